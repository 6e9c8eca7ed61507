"""``measure``: what it times, what it cannot, and that it never fails for what a device lacks."""

import math

import pytest
import torch

from labkit.devices import DTYPES
from labkit.measuring import measure
from labkit.measuring import throughput as measuring
from labkit.measuring.throughput import Measurement, Timing


@pytest.fixture(scope="module")
def measured():
    return measure(sizes=(32, 64), seconds=0.5, progress=False)


def test_every_dtype_and_size_is_an_entry_with_times_or_a_reason(measured):
    products = [t for t in measured.timings if t.what == "matmul"]
    assert [(t.size, t.dtype) for t in products] == [(n, d) for n in (32, 64) for d in DTYPES]
    for timing in measured.timings:
        assert bool(timing.seconds) != bool(timing.why_not)
        assert all(seconds > 0 for seconds in timing.seconds)
    assert measured.matmul("fp32", 64).work == 2 * 64**3
    assert not measured.matmul("fp32", 64).why_not
    assert "no plain matmul" in measured.matmul("fp4", 64).why_not
    assert "no TF32 switch on cpu" in measured.matmul("tf32", 64).why_not


def test_rounds_are_paired_with_the_control(measured):
    rounds = len(measured.control)
    assert rounds >= 3
    assert all(len(t.seconds) in (0, rounds) for t in measured.timings)
    low, middle, high = measured.noise
    assert 0 < low <= middle <= high


def test_rates_are_work_over_the_median():
    timing = Timing("matmul", "fp32", 64, (3.0, 1.0, 2.0), work=4.0)
    assert timing.quartiles == (1.5, 2.0, 2.5)
    assert timing.rate == 2.0
    silent = Timing("matmul", "fp8", 64, why_not="no fp8 here")
    assert math.isnan(silent.rate)
    copy = Timing("copy", "fp32", 8, (2.0,), work=16.0)
    whole = Measurement("a device", "2.13", "2026-11-21", (timing, silent, copy), (1.0, 1.1, 0.9))
    assert (whole.peak("fp32"), whole.bandwidth) == (2.0, 8.0)
    assert math.isnan(whole.peak("fp8"))
    roof = whole.roof("fp32")
    assert (roof.device, roof.flops, roof.bandwidth) == ("a device (measured)", 2.0, 8.0)
    assert roof.verified and "2026-11-21" in roof.source
    with pytest.raises(ValueError, match="fp8"):
        whole.roof("fp8")
    assert "matmul fp8 64: not measured, no fp8 here" in whole.describe()
    with pytest.raises(KeyError, match="bf16 with size 64"):
        whole.matmul("bf16", 64)


def test_a_dtype_that_fails_is_an_entry(monkeypatch):
    def broken(x, y):
        raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED\nmore")

    monkeypatch.setattr(torch, "_int_mm", broken)
    found = measure(dtypes=["int8"], sizes=[32], seconds=0.1, progress=False)
    assert found.matmul("int8", 32).why_not == "CUBLAS_STATUS_NOT_SUPPORTED"
    assert found.timings[1].what == "copy" and found.timings[1].seconds


def test_a_product_that_would_take_too_long_is_left_out(monkeypatch):
    monkeypatch.setattr(measuring, "_LONGEST", 0.0)
    found = measure(dtypes=["fp32"], sizes=[32, 64], seconds=0.1, progress=False)
    assert found.matmul("fp32", 32).seconds
    assert "would take about" in found.matmul("fp32", 64).why_not


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"dtypes": ["fp12"]}, "fp12"),
        ({"sizes": [100]}, "multiples of 16"),
        ({"sizes": [0]}, "multiples of 16"),
        ({"seconds": 0}, "above 0"),
        ({"seconds": float("nan")}, "above 0"),
    ],
)
def test_bad_input_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        measure(**wrong)
