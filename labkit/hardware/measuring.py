"""How fast this machine multiplies matrices, moves memory and casts, measured.

This module believes that a time is an interval with a cause: every arm is warmed up, the device is
synchronised before the clock is read, arms take turns in a shuffled order, and the same arm runs
twice to show what chance alone does. A dtype that the device lacks is an entry with a reason, never
an exception.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isnan
from statistics import quantiles

import torch
from torch import Tensor
from tqdm.auto import tqdm

from labkit.dtypes import DTYPE_NAMED
from labkit.hardware.fp32_products import fp32_products_pinned
from labkit.hardware.probe import described
from labkit.hardware.roofline import Roof
from labkit.hardware.rules import DTYPES

_SAMPLE = 0.005  # seconds: a thousand times what reading a clock or a launch costs
_LONGEST = 1.0  # seconds that a single product may take
_COPIED = {"cpu": 2**27}  # bytes read, and as many written: beyond most caches
_COPIED_ELSEWHERE = 2**30


@dataclass(frozen=True)
class Timing:
    """An arm's times, one a round, or why there are none.

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
        return _quartiles(self.seconds)

    @property
    def rate(self) -> float:
        """Work a second at the median time, in FLOP/s or bytes/s; NaN without a time."""
        return self.work / self.quartiles[1]


@dataclass(frozen=True)
class Measurement:
    """What ``measure`` returns.

    Args:
        device, torch, measured: what was measured, with which version, when (UTC, ISO 8601).
        timings: every arm, those that could not run included.
        control: the second run of an arm over its first in the same round, a ratio a round. What
            differs by less is no difference.
    """

    device: str
    torch: str
    measured: str
    timings: tuple[Timing, ...]
    control: tuple[float, ...]

    @property
    def noise(self) -> tuple[float, float, float]:
        """Quartiles of the A/A control: 1 would be a machine without noise."""
        return _quartiles(self.control)

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
        low, middle, high = self.noise
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
    arms = [_matmul(device, dtype, size) for size in sorted(sizes) for dtype in dtypes]
    arms += [_copy(device), *(_cast(device, dtype) for dtype in ("fp16", "bf16", "fp8"))]
    with tqdm(
        total=round(seconds), desc="measure", unit="s", leave=False, disable=not progress
    ) as bar:
        started = time.perf_counter()

        def tick() -> None:
            bar.n = min(round(time.perf_counter() - started), bar.total)
            bar.refresh()

        _warm_up(arms, tick)
        control = _rounds(arms, deadline, tick)
    return Measurement(
        device=_name(device),
        torch=torch.__version__,
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
        timings=tuple(arm.timing() for arm in arms),
        control=tuple(control),
    )


class _Arm:
    """One operation to be timed, made when it is first needed."""

    def __init__(
        self, what: str, dtype: str, size: int, work: float, device: torch.device, make: Callable
    ) -> None:
        self.what, self.dtype, self.size, self.work = what, dtype, size, work
        self.device, self.make = device, make
        self.operation: Callable[[], object] | None = None
        self.repeats = 1
        self.seconds: list[float] = []
        self.why_not = ""

    def run(self) -> float:
        """Seconds of one operation, over as many as make a sample long enough."""
        _synchronize(self.device)
        start = time.perf_counter()
        for _ in range(self.repeats):
            self.operation()
        _synchronize(self.device)
        return (time.perf_counter() - start) / self.repeats

    def timing(self) -> Timing:
        return Timing(
            self.what, self.dtype, self.size, tuple(self.seconds), self.work, self.why_not
        )


def _warm_up(arms: Sequence[_Arm], tick: Callable[[], None]) -> None:
    """Make and run every arm; note why one cannot run, or how often it makes a sample."""
    slowest: dict[tuple[str, str], float] = {}
    for arm in arms:
        tick()
        kind = (arm.what, arm.dtype)
        expected = slowest.get(kind, 0) * arm.work
        if expected > _LONGEST:
            arm.why_not = f"one would take about {expected:.2g} s"
            continue
        try:
            arm.operation = arm.make()
            arm.run()  # the first loads and chooses kernels
            once = arm.run()
        except Exception as error:  # what a device lacks it says in many ways
            arm.why_not = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            arm.operation = None
            continue
        slowest[kind] = once / arm.work
        arm.repeats = max(1, round(_SAMPLE / max(once, 1e-9)))


def _rounds(arms: Sequence[_Arm], deadline: float, tick: Callable[[], None]) -> list[float]:
    """Let the arms take turns until the time is up; returns the ratios of the A/A control."""
    running = [arm for arm in arms if arm.operation is not None]
    floats = [arm for arm in running if (arm.what, arm.dtype) == ("matmul", "fp32")]
    twice = (floats or running)[-1:]
    order, ratios, shuffle = [*running, *twice], [], random.Random(0).shuffle
    rounds = 0
    while running and (rounds < 3 or time.perf_counter() < deadline):
        shuffle(order)
        times: dict[int, list[float]] = {}
        for arm in order:
            times.setdefault(id(arm), []).append(arm.run())
            tick()
        for arm in running:
            arm.seconds.append(times[id(arm)][0])
        first, second = times[id(twice[0])]
        ratios.append(second / first)
        rounds += 1
    return ratios


def _matmul(device: torch.device, dtype: str, size: int) -> _Arm:
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
            return _scaled(x.to(torch.float8_e4m3fn))
        x = x.to(DTYPE_NAMED[dtype].torch)
        if device.type != "cuda" or dtype not in ("fp32", "tf32"):
            return lambda: x @ x
        kind = "tf32" if dtype == "tf32" else "ieee"

        def pinned() -> Tensor:
            with fp32_products_pinned(kind):
                return x @ x

        return pinned

    return _Arm("matmul", dtype, size, 2.0 * size**3, device, make)


def _scaled(x: Tensor) -> Callable[[], object]:
    from torch.nn.functional import ScalingType, scaled_mm

    one, by_column = torch.ones((), device=x.device), x.t()
    kind = ScalingType.TensorWise
    return lambda: scaled_mm(x, by_column, one, kind, one, kind, output_dtype=torch.bfloat16)


def _copy(device: torch.device) -> _Arm:
    size = _COPIED.get(device.type, _COPIED_ELSEWHERE)

    def make() -> Callable[[], object]:
        source = torch.ones(size // 4, device=device)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    return _Arm("copy", "fp32", size, 2.0 * size, device, make)


def _cast(device: torch.device, dtype: str) -> _Arm:
    """From float32 memory to new memory of the dtype, as autocast does with a weight."""
    count = 2**22
    to = DTYPE_NAMED[dtype].torch

    def make() -> Callable[[], object]:
        source = torch.ones(count, device=device)
        return lambda: source.to(to)

    return _Arm("cast", dtype, 4 * count, count * (4.0 + to.itemsize), device, make)


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _name(device: torch.device) -> str:
    threads = torch.get_num_threads()
    of_threads = f", {threads} thread{'s' * (threads > 1)}"
    return described(str(device)).name + of_threads * (device.type == "cpu")


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if not values:
        return (float("nan"),) * 3
    if len(values) == 1:
        return (values[0],) * 3
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return low, middle, high
