"""The loop that numba compiles gives torch's bits, stays away where torch must round, is silent."""

import math
import os
import subprocess
import sys

import numba
import numpy as np
import pytest
import torch
from numba.core.caching import CacheImpl
from rounding_oracle import hard_points
from torch.utils.flop_counter import FlopCounterMode

from labkit.formats import (
    E4M3,
    E5M2,
    FORMATS,
    FP16,
    FP32,
    FP64,
    ROUNDINGS,
    FloatFormat,
    quantize,
    rounding_kernel,
)

LARGE = rounding_kernel.LARGE


@pytest.fixture
def calls(monkeypatch):
    """The tensors that the loop rounded, of whatever size."""
    seen, run = [], rounding_kernel.round_flat

    def spy(loop, x, *rest):
        seen.append(x)
        run(loop, x, *rest)

    monkeypatch.setattr(rounding_kernel, "LARGE", 1)
    monkeypatch.setattr(rounding_kernel, "round_flat", spy)
    return seen


def by_torch(x, fmt, **how):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounding_kernel, "LARGE", math.inf)
        return quantize(x, fmt, **how)


def assert_same_bits(got, want):
    """Every NaN counts as the same."""
    integer = torch.int32 if got.dtype == torch.float32 else torch.int64
    same = (got.view(integer) == want.view(integer)) | got.isnan() & want.isnan()
    assert same.all(), [(got[i].item(), want[i].item()) for i in (~same).nonzero()[:5].flatten()]


UNSIGNED = FloatFormat("ue4m3", exponent_bits=4, mantissa_bits=3, signed=False, specials="fn")
ODD = [
    UNSIGNED,
    FloatFormat("e3m0", exponent_bits=3, mantissa_bits=0, specials="none"),
    FloatFormat("below float32", exponent_bits=8, mantissa_bits=3, bias=140),
    FloatFormat("whole numbers", exponent_bits=3, mantissa_bits=3, bias=-2, specials="none"),
    FloatFormat("e8m22", exponent_bits=8, mantissa_bits=22, specials="fn"),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fmt", [*FORMATS.values(), *ODD], ids=lambda fmt: fmt.name)
def test_every_format_and_rounding_gives_torchs_bits(fmt, dtype, calls):
    hard = torch.from_numpy(hard_points(fmt if fmt.bits <= 16 else FP16, dtype))
    integer = torch.int32 if dtype is np.float32 else torch.int64
    info = torch.iinfo(integer)
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(info.min, info.max, (20_000,), generator=generator).to(integer)
    near_top = torch.randn(20_000, generator=generator).to(hard.dtype) * min(fmt.max, 1e30)
    x = torch.cat([hard, bits.view(hard.dtype), near_top])
    for rounding in ROUNDINGS:
        for saturate in (False, True):
            got, want = (
                by(x, fmt, rounding=rounding, saturate=saturate, generator=seeded)
                for by, seeded in zip((quantize, by_torch), two_generators(), strict=True)
            )
            assert_same_bits(got, want)


def test_a_fraction_that_equals_its_draw_goes_away_from_zero(calls, monkeypatch):
    smallest = 2.0**-24  # of the draws
    draws = "labkit.formats.rounding._random_fractions"
    monkeypatch.setattr(draws, lambda x, _: torch.full_like(x, smallest))
    step = E4M3.smallest_subnormal
    x = torch.tensor([smallest * step, -smallest * step, smallest * step * 0.75])
    assert quantize(x, E4M3, rounding="stochastic").tolist() == [step, -step, 0.0]
    assert by_torch(x, E4M3, rounding="stochastic").tolist() == [step, -step, 0.0]


def two_generators():
    return [torch.Generator().manual_seed(3) for _ in range(2)]


def test_all_named_formats_take_the_loop(calls):
    x = torch.linspace(-9, 9, 100)
    for fmt in FORMATS.values():
        del calls[:]
        quantize(x, fmt)
        # FP32 and FP64 copy a float32.
        assert bool(calls) == (fmt not in (FP32, FP64)), fmt.name


def test_it_rounds_views_parameters_and_inference_tensors(calls):
    x = torch.randn(60, 70, requires_grad=True)
    with torch.inference_mode():
        inference = torch.randn(100)
    for each in (x.T, x[::2, 3:], x.expand(3, 60, 70), torch.nn.Parameter(x), inference):
        got = quantize(each, E5M2)
        assert got.is_contiguous() and not got.requires_grad
        assert torch.equal(got, by_torch(each, E5M2))
    assert len(calls) == 5


class Named(torch.Tensor):
    """A tensor that may mean something else by an operation."""


def rounded_under_a_counter(x):
    with FlopCounterMode(display=False):
        return quantize(x, E4M3)


ELSEWHERE = {
    "grad": lambda x: torch.func.grad(lambda w: (w * quantize(w, E4M3)).sum())(x),
    "functionalize": torch.func.functionalize(lambda w: quantize(w, E4M3)),
    "compile": lambda x: torch.compile(lambda w: quantize(w, E4M3, saturate=True), backend="eager")(
        x
    ),
    "a mode": rounded_under_a_counter,
    "a subclass": lambda x: quantize(x.as_subclass(Named), E4M3),
    "meta": lambda x: quantize(x.to("meta"), E4M3),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_torch_rounds_what_is_no_plain_memory_or_is_recorded(name, calls):
    x = torch.randn(100)
    got = ELSEWHERE[name](x)
    assert not calls
    assert got.is_meta or torch.equal(got, by_torch(x, E4M3))


@pytest.fixture
def fresh():
    """Nothing is compiled yet, nor afterwards."""
    rounding_kernel._compiled.cache_clear()
    yield
    rounding_kernel._compiled.cache_clear()


def test_without_numba_torch_rounds(calls, fresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    x = torch.randn(100)
    assert torch.equal(quantize(x, E4M3), by_torch(x, E4M3)) and not calls


def test_where_numba_compiles_nothing_torch_rounds(calls, fresh, monkeypatch):
    """NUMBA_DISABLE_JIT=1 would leave a loop in Python, a thousand times slower."""
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)
    x = torch.randn(100)
    assert torch.equal(quantize(x, E4M3), by_torch(x, E4M3)) and not calls


def test_it_needs_no_folder_for_a_cache(calls, fresh, monkeypatch):
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    x = torch.randn(100)
    assert torch.equal(quantize(x, E4M3), by_torch(x, E4M3)) and calls


ALONE = """
import os, sys, threading, torch
from labkit.formats import E4M3, quantize
threads = torch.get_num_threads()
small = quantize(torch.randn(1000), E4M3)
print("numba" in sys.modules)
x = torch.randn({large})
wants = [quantize(part, E4M3) for part in x.split(100_000)]
print("numba" in sys.modules)
gots = []
workers = [threading.Thread(target=lambda: gots.append(quantize(x, E4M3))) for _ in range(4)]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
print(len(gots), all(torch.equal(got, torch.cat(wants)) for got in gots), "numba" in sys.modules)
print(threading.active_count(), torch.get_num_threads() == threads)
sys.stdout.flush()
if child := os.fork():
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
else:
    os._exit(0 if torch.equal(quantize(x, E4M3), torch.cat(wants)) else 1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_it_loads_for_large_tensors_only_and_is_silent_in_threads_and_forks(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ALONE.format(large=LARGE)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["False", "False", "4 True True", "1 True", "0"]
    assert list(tmp_path.rglob("*.nbc")), "what was compiled is kept"
