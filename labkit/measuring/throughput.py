"""How fast this machine multiplies matrices, moves memory and casts, measured.

A time is an interval with a cause: every operation is warmed up, the device is synchronised before
the clock is read, and operations take turns (``labkit.measuring.arms``). At each size one product
runs twice a round, which is the A/A control of that size. A dtype that the device lacks is an entry
with a reason, never an exception.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import torch
from matplotlib.ticker import LogLocator
from torch import Tensor
from tqdm.auto import tqdm

from labkit.base.home import COLORS, Picture, new_axes
from labkit.devices.fp32_products import fp32_products_pinned
from labkit.devices.probe import described, scaled_product
from labkit.devices.rules import DTYPES
from labkit.formats.dtypes import DTYPE_NAMED
from labkit.measuring.arms import quartiles, ratio, synchronize, take_turns
from labkit.measuring.showing import readable_bytes, table
from labkit.measuring.verdicts import (
    CONTROL_MARGIN,
    FEWEST_ROUNDS,
    TIME_MARGIN,
    TimeVerdict,
    check_margin,
    control_trouble,
    time_verdict,
)

_SAMPLE = 0.005  # seconds: a thousand times what reading a clock or a launch costs
_LONGEST = 1.0  # seconds that a single product may take
_MOST_ROUNDS = 200  # beyond, intervals narrow slowly and the pairs of their ends are many
_COPIED = {"cpu": 2**27}  # bytes read, and as many written: beyond most caches
_COPIED_ELSEWHERE = 2**30
_Make = Callable[[], Callable[[], object]]


@dataclass(frozen=True)
class Timing:
    """An operation's times, one a round, or why there are none.

    Args:
        what: "matmul", "copy" or "cast".
        dtype: what is multiplied, or what float32 is cast to.
        size: rows and columns of the square matrices, or bytes copied or read.
        seconds: of one operation, a value a round.
        work: of one operation, in FLOP (operations for int8) or bytes moved.
        why_not: why nothing was timed; empty otherwise.
        again: seconds of its second run in each round, for the product that the others of its size
            are compared with; empty otherwise.
    """

    what: str
    dtype: str
    size: int
    seconds: tuple[float, ...] = ()
    work: float = 0.0
    why_not: str = ""
    again: tuple[float, ...] = ()

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile of the seconds; NaN without a time."""
        return quartiles(self.seconds)

    @property
    def rate(self) -> float:
        """Work a second at the median time, in FLOP/s or bytes/s; NaN without a time."""
        return self.work / self.quartiles[1]

    @property
    def control(self) -> tuple[float, ...]:
        """For each round its second time over its first."""
        return tuple(map(ratio, self.again, self.seconds))

    @property
    def readable_size(self) -> str:
        """Such as "512 x 512" or "128 MiB"."""
        return f"{self.size} x {self.size}" if self.what == "matmul" else readable_bytes(self.size)

    @property
    def readable_rate(self) -> str:
        """Such as "151 GFLOP/s" or "9.3 GB/s"."""
        return f"{self.rate / 1e9:.3g} {'GFLOP/s' if self.what == 'matmul' else 'GB/s'}"


@dataclass(frozen=True)
class Measurement:
    """What ``measure`` returns.

    Args:
        device, torch, measured: what was measured, with which version, when (UTC, ISO 8601).
        timings: every operation, those that could not run included.
        margin: 0.02 if times from 1/1.02 to 1.02 of one another would not matter.
    """

    device: str
    torch: str
    measured: str
    timings: tuple[Timing, ...]
    margin: float = TIME_MARGIN

    @property
    def products(self) -> list[Timing]:
        """The timings of matmuls."""
        return [timing for timing in self.timings if timing.what == "matmul"]

    def matmul(self, dtype: str, size: int) -> Timing:
        """The timing of a product.

        Raises:
            KeyError: no such product was asked for.
        """
        for timing in self.products:
            if (timing.dtype, timing.size) == (dtype, size):
                return timing
        raise KeyError(f"no product of {dtype} with size {size} was measured")

    def baseline(self, size: int) -> Timing | None:
        """The product that ran twice at this size: that of fp32, else the first one that runs."""
        return next((t for t in self.products if t.size == size and t.again), None)

    def verdict(self, dtype: str, size: int) -> TimeVerdict:
        """Whether a product takes less or more time than the baseline of its size.

        Raises:
            KeyError: no such product was asked for.
            ValueError: it was not timed, it is the baseline, or its size has none.
        """
        one, other = self.matmul(dtype, size), self.baseline(size)
        if not one.seconds or other is None or one is other:
            raise ValueError(f"{dtype} at {size} has nothing to be compared with: see the table")
        ratios = tuple(map(ratio, one.seconds, other.seconds))
        return time_verdict(ratios, control=other.control, margin=self.margin)

    @property
    def controls(self) -> dict[int, TimeVerdict]:
        """By size, the baseline over itself, against ``CONTROL_MARGIN``, 5 %."""
        return {
            t.size: time_verdict(t.control, margin=CONTROL_MARGIN) for t in self.products if t.again
        }

    @property
    def trouble(self) -> str:
        """Why these times are not to be trusted: bad A/A controls. Empty if they are."""
        return control_trouble({f"{size} x {size}": c for size, c in self.controls.items()})

    def peak(self, dtype: str) -> float:
        """The best matmul rate of a dtype over the sizes, in FLOP/s; NaN if none ran."""
        best = self._best(dtype)
        return best.rate if best else float("nan")

    def _best(self, dtype: str) -> Timing | None:
        ran = [timing for timing in self.products if timing.dtype == dtype and timing.seconds]
        return max(ran, key=lambda timing: timing.rate, default=None)

    @property
    def bandwidth(self) -> float:
        """Bytes read and written a second by a large copy; NaN if it did not run."""
        return next(t.rate for t in self.timings if t.what == "copy")

    def describe(self) -> str:
        """The best product of each dtype and the copy, as lines of text."""
        lines = self._above()
        for dtype in dict.fromkeys(timing.dtype for timing in self.products):
            if best := self._best(dtype):
                line = f"{dtype}: {best.readable_rate} at {best.readable_size}"
                other = self.baseline(best.size)
                if other and other is not best:
                    line += f"; over {other.dtype}, {self.verdict(dtype, best.size).describe()}"
                lines.append(line)
            else:
                why = next(t.why_not for t in self.products if t.dtype == dtype)
                lines.append(f"{dtype}: not measured, {why}")
        return "\n".join([*lines, f"memory: {self.bandwidth / 1e9:.3g} GB/s read and written"])

    def _above(self) -> list[str]:
        controls = [f"{size} x {size}: {c.interval}" for size, c in self.controls.items()]
        lines = [f"{self.device}, torch {self.torch}, measured {self.measured[:10]}"]
        return lines + ([self.trouble or f"A/A control, {'; '.join(controls)}"] if controls else [])

    def _repr_html_(self) -> str:
        below = (
            "Time ratio: over the matmul of the same size that ran twice (A/A); margin "
            f"{100 * self.margin:g} %."
        )
        return table([*map(self._row, self.timings)], above=self._above(), below=below)

    def _row(self, timing: Timing) -> dict[str, str]:
        low, middle, high = (1e3 * seconds for seconds in timing.quartiles)
        row = {
            "operation": timing.what,
            "dtype": timing.dtype,
            "size": timing.readable_size,
            "rate": "" if timing.why_not else timing.readable_rate,
            "ms (quartiles)": timing.why_not or f"{middle:.3g} ({low:.3g} to {high:.3g})",
            "time ratio": "",
            "verdict": "",
        }
        if timing.again:
            return row | {"time ratio": f"A/A {self.controls[timing.size].interval}"}
        if timing.what != "matmul" or timing.why_not or not self.baseline(timing.size):
            return row
        found = self.verdict(timing.dtype, timing.size)
        return row | {"time ratio": found.interval, "verdict": found.answer}

    def plot(self) -> Picture:
        """The rate of each dtype's products by size, with the quartiles of the rounds."""
        figure, axes = new_axes(height=3.4)
        spoken = []
        for number, dtype in enumerate(dict.fromkeys(t.dtype for t in self.products)):
            ran = [t for t in self.products if t.dtype == dtype and t.seconds]
            if not ran:
                continue
            ends = [[t.work / seconds / 1e9 for seconds in t.quartiles] for t in ran]
            axes.errorbar(
                [t.size for t in ran],
                [middle for _, middle, _ in ends],
                [[m - low for _, m, low in ends], [high - m for high, m, _ in ends]],
                marker="osD^v<>"[number % 7],
                color=COLORS[number % 4],
                ls=("-", "--")[number // 4 % 2],
                capsize=3,
                label=dtype,
            )
            spoken.append(f"{dtype}: " + ", ".join(f"{t.readable_rate} at {t.size}" for t in ran))
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set(major_locator=LogLocator(subs=(1, 2, 5)), major_formatter="{x:g}")
        axes.minorticks_off()
        sizes = sorted({timing.size for timing in self.products})
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.set_xlabel("rows and columns of the square matrices")
        axes.set_ylabel("GFLOP/s")
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        caption = f"Measured on {self.device}: matmul rates, with quartiles. {self.trouble}"
        return Picture(figure, caption.strip(), f"{'; '.join(spoken)}.")


def measure(
    device: str | torch.device = "cpu",
    *,
    dtypes: Sequence[str] = DTYPES,
    sizes: Sequence[int] = (256, 512, 1024),
    seconds: float = 60,
    margin: float = TIME_MARGIN,
    progress: bool = True,
) -> Measurement:
    """Time products of square matrices by dtype and size, a large copy, and casts from float32.

    At each size the product of fp32, or the first that runs, takes part twice in each round: the
    others are compared with it. No single call decides anything: how long an operation takes is
    the least of three calls before the rounds, and the median of the rounds after.

    Args:
        device: "cpu", or an accelerator that torch sees.
        dtypes: some of DTYPES. "fp32" is IEEE float32 and "tf32" is pinned besides it on CUDA.
        sizes: rows and columns, multiples of 16.
        seconds: when to stop; at least five rounds are made, and at most 200.
        margin: the largest difference in time that would not matter.

    Raises:
        ValueError: a device that is not there, an unknown dtype, a size that is no multiple of 16,
            or a time or margin that is not above 0. Whatever a device lacks is an entry with a
            reason instead.
    """
    device = _present(device)
    check_margin(margin)
    if unknown := [dtype for dtype in dtypes if dtype not in DTYPES]:
        raise ValueError(f"dtypes={unknown}: some of {', '.join(DTYPES)}")
    if wrong := [size for size in sizes if size < 16 or size % 16]:
        raise ValueError(f"sizes={wrong}: multiples of 16, which the units for fp8 ask for")
    if not seconds > 0:
        raise ValueError(f"seconds={seconds!r}: pass a number above 0")
    deadline = time.perf_counter() + seconds
    operations = [_matmul(device, dtype, size) for size in sorted(sizes) for dtype in dtypes]
    operations += [_copy(device), *(_cast(device, dtype) for dtype in ("fp16", "bf16", "fp8"))]
    with tqdm(
        total=round(seconds), desc="measure", unit="s", leave=False, disable=not progress
    ) as bar:
        started = time.perf_counter()

        def tick() -> None:
            bar.update(min(round(time.perf_counter() - started), bar.total) - bar.n)

        _warm_up(operations, tick)
        _rounds(operations, deadline, tick)
    return Measurement(
        device=_name(device),
        torch=torch.__version__,
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
        timings=tuple(operation.timing() for operation in operations),
        margin=margin,
    )


def _present(device: str | torch.device) -> torch.device:
    """The device, if a tensor can be made there; else a ValueError with torch's own words."""
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        said = str(error).splitlines()[0]
        raise ValueError(
            f"device={str(device)!r}: {said}. Pass 'cpu', or one that is here"
        ) from None


class _Operation:
    """One operation to be timed, made when it is first needed."""

    def __init__(
        self, what: str, dtype: str, size: int, work: float, device: torch.device, make: _Make
    ) -> None:
        self.what, self.dtype, self.size, self.work = what, dtype, size, work
        self.device, self.make = device, make
        self.call: Callable[[], object] | None = None
        self.repeats = 1
        self.seconds: tuple[float, ...] = ()
        self.again: tuple[float, ...] = ()
        self.why_not = ""

    def run(self) -> float:
        """Seconds of one call, over as many as make a sample long enough."""
        if self.call is None:
            self.call = self.make()
        synchronize(self.device)
        start = time.perf_counter()
        for _ in range(self.repeats):
            self.call()
        synchronize(self.device)
        return (time.perf_counter() - start) / self.repeats

    def timing(self) -> Timing:
        return Timing(
            self.what, self.dtype, self.size, self.seconds, self.work, self.why_not, self.again
        )


def _warm_up(operations: Sequence[_Operation], tick: Callable[[], None]) -> None:
    """Make and run every operation; note why one cannot run, or how often it makes a sample."""
    slowest: dict[tuple[str, str], float] = {}
    for operation in operations:
        tick()
        kind = (operation.what, operation.dtype)
        expected = slowest.get(kind, 0) * operation.work
        if expected > _LONGEST:
            operation.why_not = f"one would take about {expected:.2g} s"
            continue
        try:
            operation.run()  # the first makes it, and loads and chooses kernels
            once = min(operation.run() for _ in range(3))  # one of them may be stalled
        except Exception as error:  # what a device lacks it says in many ways
            said = str(error).strip()
            operation.why_not = said.splitlines()[0] if said else repr(error)
            operation.call = None
            continue
        slowest[kind] = once / operation.work
        operation.repeats = max(1, round(_SAMPLE / max(once, 1e-9)))


def _rounds(operations: Sequence[_Operation], deadline: float, tick: Callable[[], None]) -> None:
    """Let the operations take turns until the time is up; each size's baseline runs twice."""
    running = [operation for operation in operations if operation.call is not None]
    twice: dict[int, _Operation] = {}
    for operation in running:
        if operation.what == "matmul" and (
            operation.size not in twice or operation.dtype == "fp32"
        ):
            twice[operation.size] = operation
    rounds: list[tuple[float, ...]] = []
    for times in take_turns([o.run for o in (*running, *twice.values())], on_turn=tick):
        rounds.append(times)
        if len(rounds) >= FEWEST_ROUNDS and time.perf_counter() >= deadline:
            break
        if len(rounds) == _MOST_ROUNDS:
            break
    columns = list(zip(*rounds, strict=True))
    for operation, seconds in zip(running, columns[: len(running)], strict=True):
        operation.seconds = seconds
    for operation, seconds in zip(twice.values(), columns[len(running) :], strict=True):
        operation.again = seconds


def _matmul(device: torch.device, dtype: str, size: int) -> _Operation:
    def make() -> Callable[[], object]:
        if dtype == "fp4":
            raise NotImplementedError("torch multiplies fp4 by block scales only: no plain matmul")
        if dtype == "tf32" and device.type != "cuda":
            raise NotImplementedError(f"no TF32 switch on {device.type}")
        x = torch.randn(size, size, device=device)
        if dtype == "int8":
            x = x.mul(32).clamp(-127, 127).to(torch.int8)
            return lambda: torch._int_mm(x, x)
        if dtype == "fp8":
            return scaled_product(x.to(torch.float8_e4m3fn))
        x = x.to(DTYPE_NAMED[dtype].torch)
        if device.type != "cuda" or dtype not in ("fp32", "tf32"):
            return lambda: x @ x
        kind = "tf32" if dtype == "tf32" else "ieee"

        def pinned() -> Tensor:
            with fp32_products_pinned(kind):
                return x @ x

        return pinned

    return _Operation("matmul", dtype, size, 2.0 * size**3, device, make)


def _copy(device: torch.device) -> _Operation:
    size = _COPIED.get(device.type, _COPIED_ELSEWHERE)

    def make() -> Callable[[], object]:
        source = torch.ones(size // 4, device=device)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    return _Operation("copy", "fp32", size, 2.0 * size, device, make)


def _cast(device: torch.device, dtype: str) -> _Operation:
    """From float32 memory to new memory of the dtype, as autocast does with a weight."""
    count = 2**22
    to = DTYPE_NAMED[dtype].torch

    def make() -> Callable[[], object]:
        source = torch.ones(count, device=device)
        return lambda: source.to(to)

    return _Operation("cast", dtype, 4 * count, count * (4.0 + to.itemsize), device, make)


def _name(device: torch.device) -> str:
    threads = torch.get_num_threads()
    of_threads = f", {threads} thread{'s' * (threads > 1)}"
    return described(str(device)).name + of_threads * (device.type == "cpu")
