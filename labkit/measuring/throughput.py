"""``measure``: how fast a device multiplies matrices by dtype, moves memory and casts.

Every operation is warmed up, torch's ``Timer`` reads a clock that waits for the device, and
operations take turns (``labkit.measuring.timing``). At each size one product runs twice a round,
which is the A/A control of that size. A dtype that the device lacks is an entry with a reason,
never an exception.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import torch
from torch import Tensor
from torch.utils.benchmark import Timer
from tqdm.auto import tqdm

from labkit.devices.fp32_products import fp32_products_pinned
from labkit.devices.probe import described, scaled_product
from labkit.devices.rules import DTYPES
from labkit.formats.dtypes import DTYPE_NAMED
from labkit.measuring.timing import Measurement, Timing, clock, take_turns
from labkit.measuring.verdicts import FEWEST_ROUNDS, TIME_MARGIN, check_margin
from labkit.training.precision import device_named

_SAMPLE = 0.005  # seconds: a thousand times what reading a clock or a launch costs
_LONGEST = 1.0  # seconds that a single product may take
_MOST_ROUNDS = 200  # beyond, intervals narrow slowly
_CAST = 2**24  # bytes of float32


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
        ValueError: a device that is not there or has no autocast, an unknown dtype, a size that is
            no multiple of 16, or a time or margin that is not above 0. Whatever a device lacks is
            an entry with a reason instead.
    """
    device = device_named(device)
    check_margin(margin)
    if unknown := [dtype for dtype in dtypes if dtype not in DTYPES]:
        raise ValueError(f"dtypes={unknown}: some of {', '.join(DTYPES)}")
    if wrong := [size for size in sizes if size < 16 or size % 16]:
        raise ValueError(f"sizes={wrong}: multiples of 16, which the units for fp8 ask for")
    if not seconds > 0:
        raise ValueError(f"seconds={seconds!r}: pass a number above 0")
    deadline = time.perf_counter() + seconds
    copied = 2**27 if device.type == "cpu" else 2**30  # bytes: beyond most caches
    timings = [
        Timing("matmul", dtype, size, work=2.0 * size**3)
        for size in sorted(sizes)
        for dtype in dtypes
    ]
    timings.append(Timing("copy", "fp32", copied, work=2.0 * copied))
    for dtype in ("fp16", "bf16", "fp8"):
        moved = _CAST * (1 + DTYPE_NAMED[dtype].torch.itemsize / 4)
        timings.append(Timing("cast", dtype, _CAST, work=moved))
    arms: dict[int, Callable[[], float]] = {}  # by the place of the timing
    per_work: dict[tuple[str, str], float] = {}
    for place, timing in enumerate(timings):
        kind = timing.what, timing.dtype
        try:
            if (expected := per_work.get(kind, 0) * timing.work) > _LONGEST:
                raise TimeoutError(f"one would take about {expected:.2g} s")
            arms[place], once = _arm(timing, device)
            per_work[kind] = once / timing.work
        except Exception as error:  # what a device lacks it says in many ways
            why_not = (str(error).strip() or repr(error)).splitlines()[0]
            timings[place] = replace(timing, why_not=why_not)
    twice: dict[int, int] = {}
    for place in arms:
        timing = timings[place]
        if timing.what == "matmul" and (timing.size not in twice or timing.dtype == "fp32"):
            twice[timing.size] = place
    turns, rounds = take_turns([*arms.values(), *map(arms.__getitem__, twice.values())]), []
    for times in tqdm(turns, "measure", unit=" rounds", leave=False, disable=not progress):
        rounds.append(times)
        late = time.perf_counter() >= deadline
        if len(rounds) == _MOST_ROUNDS or (late and len(rounds) >= FEWEST_ROUNDS):
            break
    columns = list(zip(*rounds, strict=True))
    seconds_of = dict(zip(arms, columns, strict=False))
    again_of = dict(zip(twice.values(), columns[len(arms) :], strict=True))
    threads = f", {(n := torch.get_num_threads())} thread{'s' * (n > 1)}"
    return Measurement(
        device=described(str(device)).name + threads * (device.type == "cpu"),
        torch=torch.__version__,
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
        timings=tuple(
            replace(timing, seconds=seconds_of.get(place, ()), again=again_of.get(place, ()))
            for place, timing in enumerate(timings)
        ),
        margin=margin,
    )


def _arm(timing: Timing, device: torch.device) -> tuple[Callable[[], float], float]:
    """What gives the seconds of one operation, over as many as make a sample; and those of a call.

    The Timer runs an operation twice, or a hundredth as often, before it reads the clock: the
    caches are full of another arm.
    """
    timer = Timer(
        "call()",
        globals={"call": _call(timing, device)},
        timer=partial(clock, device),
        num_threads=torch.get_num_threads(),
    )
    once = min(timer.timeit(1).mean for _ in range(3))  # one of them may be stalled
    number = max(1, round(_SAMPLE / max(once, 1e-9)))
    return lambda: timer.timeit(number).mean, once


def _call(timing: Timing, device: torch.device) -> Callable[[], object]:
    """The operation, with its tensors."""
    dtype, size = timing.dtype, timing.size
    if timing.what != "matmul":
        source = torch.ones(size // 4, device=device)
        if timing.what == "copy":
            target = torch.empty_like(source)
            return lambda: target.copy_(source)
        to = DTYPE_NAMED[dtype].torch
        return lambda: source.to(to)  # into new memory, as autocast does with a weight
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

    def pinned() -> Tensor:
        with fp32_products_pinned("tf32" if dtype == "tf32" else "ieee"):
            return x @ x

    return pinned
