"""How fast this machine multiplies matrices, moves memory and casts, measured.

A time is an interval with a cause: every operation is warmed up, the device is synchronised before
the clock is read, and operations take turns (``labkit.measuring.arms``), one of them twice to show
what chance alone does. A dtype that the device lacks is an entry with a reason, never an exception.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isnan

import torch
from torch import Tensor
from tqdm.auto import tqdm

from labkit.devices.fp32_products import fp32_products_pinned
from labkit.devices.probe import described, scaled_product
from labkit.devices.roofline import Roof
from labkit.devices.rules import DTYPES
from labkit.formats.dtypes import DTYPE_NAMED
from labkit.measuring.arms import quartiles, ratio, spread, synchronize, take_turns

_SAMPLE = 0.005  # seconds: a thousand times what reading a clock or a launch costs
_LONGEST = 1.0  # seconds that a single product may take
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
    """

    what: str
    dtype: str
    size: int
    seconds: tuple[float, ...] = ()
    work: float = 0.0
    why_not: str = ""

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile of the seconds; NaN without a time."""
        return quartiles(self.seconds)

    @property
    def rate(self) -> float:
        """Work a second at the median time, in FLOP/s or bytes/s; NaN without a time."""
        return self.work / self.quartiles[1]


@dataclass(frozen=True)
class Measurement:
    """What ``measure`` returns.

    Args:
        device, torch, measured: what was measured, with which version, when (UTC, ISO 8601).
        timings: every operation, those that could not run included.
        control: one run of an operation over another of the same in the same round, a ratio a
            round. What differs by less is no difference.
    """

    device: str
    torch: str
    measured: str
    timings: tuple[Timing, ...]
    control: tuple[float, ...]

    @property
    def noise(self) -> tuple[float, float, float]:
        """The smallest, the median and the largest ratio of the A/A control."""
        return spread(self.control)

    def matmul(self, dtype: str, size: int) -> Timing:
        """The timing of a product.

        Raises:
            KeyError: no such product was asked for.
        """
        for timing in self.timings:
            if (timing.what, timing.dtype, timing.size) == ("matmul", dtype, size):
                return timing
        raise KeyError(f"no product of {dtype} with size {size} was measured")

    def peak(self, dtype: str) -> float:
        """The best matmul rate of a dtype over the sizes, in FLOP/s; NaN if none ran."""
        rates = [t.rate for t in self.timings if (t.what, t.dtype) == ("matmul", dtype)]
        return max((rate for rate in rates if not isnan(rate)), default=float("nan"))

    @property
    def bandwidth(self) -> float:
        """Bytes read and written a second by a large copy; NaN if it did not run."""
        return next(t.rate for t in self.timings if t.what == "copy")

    def roof(self, dtype: str) -> Roof:
        """The roofline of what was measured: the best product and the copy.

        Raises:
            ValueError: no product of the dtype ran.
        """
        if isnan(self.peak(dtype)):
            raise ValueError(f"no product of {dtype} was measured: see describe() for the reason")
        return Roof(
            device=f"{self.device} (measured)",
            dtype=dtype,
            flops=self.peak(dtype),
            bandwidth=self.bandwidth,
            source=f"measured {self.measured[:10]}, torch {self.torch}",
            verified=True,
        )

    def describe(self) -> str:
        """All of it as lines of text."""
        low, middle, high = quartiles(self.control)
        lines = [
            f"{self.device}, torch {self.torch}, measured {self.measured[:10]}",
            f"A/A control: {middle:.2f} (half of the rounds within {low:.2f} to {high:.2f})",
        ]
        for timing in self.timings:
            name = f"{timing.what} {timing.dtype} {timing.size}"
            if timing.why_not:
                lines.append(f"{name}: not measured, {timing.why_not}")
                continue
            low, middle, high = (1e3 * seconds for seconds in timing.quartiles)
            unit = "GFLOP/s" if timing.what == "matmul" else "GB/s"
            lines.append(
                f"{name}: {timing.rate / 1e9:.3g} {unit}, {middle:.3g} ms ({low:.3g} to {high:.3g})"
            )
        return "\n".join(lines)


def measure(
    device: str | torch.device = "cpu",
    *,
    dtypes: Sequence[str] = DTYPES,
    sizes: Sequence[int] = (256, 512, 1024),
    seconds: float = 60,
    progress: bool = True,
) -> Measurement:
    """Time products of square matrices by dtype and size, a large copy, and casts from float32.

    Args:
        device: "cpu", or an accelerator that torch sees.
        dtypes: some of DTYPES. "fp32" is IEEE float32 and "tf32" is pinned besides it on CUDA.
        sizes: rows and columns, multiples of 16.
        seconds: when to stop; at least three rounds are made.

    Raises:
        ValueError: an unknown dtype, a size that is no multiple of 16, or a time that is not above
            0. Whatever a device lacks is an entry with a reason instead.
    """
    device = torch.device(device)
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
            bar.n = min(round(time.perf_counter() - started), bar.total)
            bar.refresh()

        _warm_up(operations, tick)
        control = _rounds(operations, deadline, tick)
    return Measurement(
        device=_name(device),
        torch=torch.__version__,
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
        timings=tuple(operation.timing() for operation in operations),
        control=control,
    )


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
        return Timing(self.what, self.dtype, self.size, self.seconds, self.work, self.why_not)


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
            once = operation.run()
        except Exception as error:  # what a device lacks it says in many ways
            said = str(error).strip()
            operation.why_not = said.splitlines()[0] if said else repr(error)
            operation.call = None
            continue
        slowest[kind] = once / operation.work
        operation.repeats = max(1, round(_SAMPLE / max(once, 1e-9)))


def _rounds(
    operations: Sequence[_Operation], deadline: float, tick: Callable[[], None]
) -> tuple[float, ...]:
    """Let the operations take turns until the time is up; returns the A/A control."""
    running = [operation for operation in operations if operation.call is not None]
    if not running:
        return ()
    floats = [o for o in running if (o.what, o.dtype) == ("matmul", "fp32")]
    twice = (floats or running)[-1]
    rounds = []
    for times in take_turns([o.run for o in (*running, twice)], on_turn=tick):
        rounds.append(times)
        if len(rounds) >= 3 and time.perf_counter() >= deadline:
            break
    *own, again = zip(*rounds, strict=True)
    for operation, seconds in zip(running, own, strict=True):
        operation.seconds = seconds
    return tuple(map(ratio, again, twice.seconds))


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
