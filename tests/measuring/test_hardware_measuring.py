"""``measure``: what it times, what it cannot, and that it never fails for what a device lacks."""

import math
from types import SimpleNamespace

import pytest
import torch

from labkit.devices import DTYPES
from labkit.measuring import measure
from labkit.measuring import throughput as measuring


@pytest.fixture(scope="module")
def measured():
    return measure(sizes=(32, 64), seconds=0.5, progress=False)


def test_every_dtype_and_size_is_an_entry_with_times_or_a_reason(measured):
    products = [t for t in measured.timings if t.what == "matmul"]
    assert [(t.size, t.dtype) for t in products] == [(n, d) for n in (32, 64) for d in DTYPES]
    for timing in measured.timings:
        assert bool(timing.seconds) != bool(timing.why_not)
        assert all(seconds > 0 for seconds in timing.seconds)
    assert measured.timing("fp32", 64).work == 2 * 64**3
    assert not measured.timing("fp32", 64).why_not
    assert "no plain matmul" in measured.timing("fp4", 64).why_not
    assert "no TF32 switch on cpu" in measured.timing("tf32", 64).why_not


def test_rounds_are_paired_with_the_control_of_each_size(measured):
    rounds = len(measured.timing("fp32", 64).again)
    assert rounds >= 5
    assert all(len(t.seconds) in (0, rounds) for t in measured.timings)
    assert [(t.dtype, t.size) for t in measured.timings if t.again] == [("fp32", 32), ("fp32", 64)]
    assert len(measured.verdict("fp32", 64).pairs) == rounds


def test_a_dtype_that_fails_is_an_entry(monkeypatch):
    def broken(x, y):
        raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED\nmore")

    monkeypatch.setattr(torch, "_int_mm", broken)
    found = measure(dtypes=["int8"], sizes=[32], seconds=0.1, progress=False)
    assert found.timing("int8", 32).why_not == "CUBLAS_STATUS_NOT_SUPPORTED"
    assert found.timings[1].what == "copy" and found.timings[1].seconds


def test_a_product_that_would_take_too_long_is_left_out(monkeypatch):
    monkeypatch.setattr(measuring, "_LONGEST", 0.0)
    found = measure(dtypes=["fp32"], sizes=[32, 64], seconds=0.1, progress=False)
    assert found.timing("fp32", 32).seconds
    assert "would take about" in found.timing("fp32", 64).why_not


class Clocked:
    """Stands in for torch's Timer: a call takes as long as the test says."""

    def __init__(self, *given, **settings):
        self.calls = iter(range(1000))

    seconds = staticmethod(lambda call: 1.0)

    def timeit(self, number):
        return SimpleNamespace(mean=self.seconds(next(self.calls)))


@pytest.fixture
def clocked(monkeypatch):
    monkeypatch.setattr(measuring, "Timer", Clocked)
    monkeypatch.setattr(measuring, "_LONGEST", math.inf)
    return Clocked


@pytest.mark.parametrize("stalled", range(3))
def test_no_single_stalled_call_leaves_a_product_out(clocked, monkeypatch, stalled):
    """A warm-up call that took 30 times as long once left fp64 out at the next size."""
    monkeypatch.setattr(measuring, "_LONGEST", 10.0)
    monkeypatch.setattr(clocked, "seconds", lambda self, call: 30.0 if call == stalled else 1.0)
    found = measure(dtypes=["fp64"], sizes=[32, 64], seconds=0.1, progress=False)
    assert found.timing("fp64", 32).why_not == found.timing("fp64", 64).why_not == ""


def test_rounds_end_when_more_would_show_no_more(clocked):
    found = measure(dtypes=["fp32", "fp64"], sizes=[32], seconds=1e9, progress=False)
    assert len(found.timing("fp64", 32).seconds) == len(found.timing("fp32", 32).again) == 200
    assert found.timing("fp64", 32).again == found.timing("fp32", 2**27).again == ()


def test_rounds_end_with_the_time_and_the_first_product_that_runs_is_compared_with(clocked):
    found = measure(dtypes=["fp4", "bf16", "fp16"], sizes=[32], seconds=1e-9, progress=False)
    assert len(found.timing("bf16", 32).again) == 5
    assert found.verdict("fp16", 32).mean == 1.0


def test_a_device_that_is_not_there_is_refused_in_a_sentence():
    for device in ("cuda:63", "gpu"):
        with pytest.raises(ValueError, match=f"device='{device}'"):
            measure(device, progress=False)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"dtypes": ["fp12"]}, "fp12"),
        ({"sizes": [100]}, "multiples of 16"),
        ({"sizes": [0]}, "multiples of 16"),
        ({"seconds": 0}, "above 0"),
        ({"margin": 0}, "margin=0"),
        ({"seconds": float("nan")}, "above 0"),
    ],
)
def test_bad_input_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        measure(**wrong)
