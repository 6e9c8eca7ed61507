"""How fast quantize is: ``python tests/benchmarks/bench_quantize.py [--millions 10] [--rounds 9]``.

One thread. All candidates take turns inside each round, so a busy machine slows all of them; the
table gives medians over rounds and the ratio to ml_dtypes and to copy_ as the median of the
ratios within rounds. copy_ and quantize run twice a round: the A/A rows say how far equal work may
differ. gfloat rounds a fiftieth of the values and its rate is scaled. Nothing is asserted.

``quantize`` runs numba's loop, and in the rows "by torch" torch's operations, as without numba.
What the first call takes is printed: it loads numba, and compiles what was not compiled before.

``quantize`` and ``clone`` allocate their results, and fresh memory costs time: the system clears
it, page by page. So there are two tables: memory as the system gives it, then memory kept by the
allocator (glibc only).
"""

import argparse
import ctypes
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable

import gfloat
import gfloat.formats
import ml_dtypes
import numba
import torch

from labkit.formats import E2M1, E3M4, E4M3, E4M3FNUZ, E5M2, quantize, rounding_kernel

FEWER = 50  # gfloat is so much slower
ML_DTYPES = {
    E4M3: ml_dtypes.float8_e4m3fn,
    E5M2: ml_dtypes.float8_e5m2,
    E3M4: ml_dtypes.float8_e3m4,
    E2M1: ml_dtypes.float4_e2m1fn,
}


def by_torch(x: torch.Tensor, **how: object) -> torch.Tensor:
    """quantize to E4M3 as without numba."""
    large, rounding_kernel.LARGE = rounding_kernel.LARGE, math.inf
    try:
        return quantize(x, E4M3, **how)
    finally:
        rounding_kernel.LARGE = large


def candidates(x: torch.Tensor) -> dict[str, tuple[Callable[[], object], int]]:
    """Name -> (what to run, how many values it rounds)."""
    out, low = torch.empty_like(x), torch.empty(x.shape, dtype=torch.float8_e4m3fn)
    array, few = x.numpy(), x[: x.numel() // FEWER].numpy()
    e4m3 = gfloat.formats.format_info_ocp_e4m3
    every = x.numel()
    with_overflow = x.clone()
    with_overflow[::1000] = 1e9
    runs = {
        "copy_, preallocated": (lambda: out.copy_(x), every),
        "copy_ again (A/A)": (lambda: out.copy_(x), every),
        "clone: copy and allocate": (lambda: x.clone(), every),
        "torch e4m3 round trip, preallocated": (lambda: out.copy_(low.copy_(x)), every),
        "torch e4m3 round trip": (lambda: x.to(torch.float8_e4m3fn).float(), every),
    }
    for fmt, dtype in ML_DTYPES.items():
        runs[f"ml_dtypes {fmt.name}, one way"] = (lambda d=dtype: array.astype(d), every)
    runs["gfloat e4m3 (scaled)"] = (lambda: gfloat.round_ndarray(e4m3, few), len(few))
    for fmt in ML_DTYPES:
        runs[f"quantize {fmt.name}"] = (lambda f=fmt: quantize(x, f), every)
    runs["quantize e4m3 again (A/A)"] = (lambda: quantize(x, E4M3), every)
    runs["quantize e4m3 by torch"] = (lambda: by_torch(x), every)
    runs["quantize e4m3fnuz"] = (lambda: quantize(x, E4M3FNUZ), every)
    runs["quantize e4m3, saturate"] = (lambda: quantize(x, E4M3, saturate=True), every)
    runs["quantize e4m3, overflow everywhere"] = (lambda: quantize(with_overflow, E4M3), every)
    for rounding in ("nearest_away", "toward_zero", "up", "stochastic"):
        runs[f"quantize e4m3, {rounding}"] = (
            lambda r=rounding: quantize(x, E4M3, rounding=r),
            every,
        )
    runs["quantize e4m3 by torch, stochastic"] = (
        lambda: by_torch(x, rounding="stochastic"),
        every,
    )
    return runs


def measure(runs: dict[str, tuple[Callable[[], object], int]], rounds: int) -> dict[str, list]:
    """Million values per second of every candidate, once a round, in turn."""
    rates = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, (run, values) in runs.items():
            start = time.perf_counter()
            run()
            seconds = time.perf_counter() - start
            if turn:  # the first round only warms up
                rates[name].append(values / seconds / 1e6)
    return rates


def table(rates: dict[str, list]) -> str:
    """Medians, and medians of the ratios within rounds."""

    def ratio(name: str, base: str) -> float:
        return statistics.median(a / b for a, b in zip(rates[name], rates[base], strict=True))

    lines = [f"{'':38}{'million/s':>10}{'x ml_dtypes':>13}{'x copy_':>9}"]
    for name, values in rates.items():
        named = [fmt.name for fmt in ML_DTYPES if f" {fmt.name}" in name]
        base = f"ml_dtypes {named[0] if named else 'e4m3'}, one way"
        against = f"{ratio(name, base):13.1f}{ratio(name, 'copy_, preallocated'):9.3f}"
        lines.append(f"{name:38}{statistics.median(values):10.0f}{against}")
    return "\n".join(lines)


def keep_freed_memory() -> bool:
    """Tell glibc's malloc neither to map large blocks afresh nor to give memory back."""
    if not (sys.platform == "linux" and platform.libc_ver()[0] == "glibc"):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    trim_threshold, mmap_max = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h
    return bool(mallopt(mmap_max, 0) and mallopt(trim_threshold, 2**31 - 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--millions", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    count = int(arguments.millions * 1e6)
    x = torch.randn(count, generator=torch.Generator().manual_seed(0))
    print(
        f"{count:,} float32 values of N(0, 1), one thread, "
        f"torch {torch.__version__}, numba {numba.__version__}"
    )
    start = time.perf_counter()
    quantize(x[: rounding_kernel.LARGE], E4M3)
    print(f"the first call took {time.perf_counter() - start:.2f} s")
    print("\nMemory as the system gives it")
    print(table(measure(candidates(x), arguments.rounds)))
    if keep_freed_memory():
        print("\nMemory kept by the allocator")
        print(table(measure(candidates(x), arguments.rounds)))


if __name__ == "__main__":
    main()
