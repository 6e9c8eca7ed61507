"""``measure``: what it times, what it cannot, and that it never fails for what a device lacks."""

import dataclasses
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


def test_rounds_are_paired_with_the_control_of_each_size(measured):
    rounds = len(measured.matmul("fp32", 64).again)
    assert rounds >= 5
    assert all(len(t.seconds) in (0, rounds) for t in measured.timings)
    assert [(t.dtype, t.size) for t in measured.timings if t.again] == [("fp32", 32), ("fp32", 64)]
    assert list(measured.controls) == [32, 64]
    assert all(found.rounds == rounds for found in measured.controls.values())


def product(dtype, *seconds, size=64, again=(), work=1e9):
    return Timing("matmul", dtype, size, seconds, work=work, again=again)


BASE = product("fp32", *[1.0] * 8, again=(1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.0))
HALF = product("bf16", 0.5, 0.5, 0.51, 0.49, 0.5, 0.5, 0.51, 0.5)
SILENT = Timing("matmul", "fp8", 64, why_not="no <fp8> here")
COPY = Timing("copy", "fp32", 2**27, (2.0,), work=16e9)


def test_rates_are_work_over_the_median():
    timing = product("fp32", 3.0, 1.0, 2.0, work=4.0)
    assert timing.quartiles == (1.5, 2.0, 2.5)
    assert timing.rate == 2.0
    assert math.isnan(SILENT.rate)
    whole = Measurement("a device", "2.13", "2026-11-21", (timing, SILENT, COPY))
    assert (whole.peak("fp32"), whole.bandwidth) == (2.0, 8e9)
    assert math.isnan(whole.peak("fp8"))
    with pytest.raises(KeyError, match="bf16 with size 64"):
        whole.matmul("bf16", 64)


def test_a_dtype_is_compared_with_the_baseline_of_its_size():
    slow = product("fp16", *[3.0] * 8, size=128)
    whole = Measurement("a device", "2.13", "2026-11-21", (HALF, BASE, SILENT, slow, COPY))
    found = whole.verdict("bf16", 64)
    assert found.answer == "faster" and 0.49 <= found.low <= found.ratio <= found.high <= 0.51
    for dtype, size in (("fp32", 64), ("fp8", 64), ("fp16", 128)):
        with pytest.raises(ValueError, match="nothing to be compared with"):
            whole.verdict(dtype, size)
    assert dataclasses.replace(whole, margin=2.0).verdict("bf16", 64).answer == "equivalent"
    off = dataclasses.replace(whole, timings=(HALF, dataclasses.replace(BASE, again=(3.0,) * 8)))
    assert off.verdict("bf16", 64).answer == "inconclusive", "the control is off by more"


def test_a_measurement_shows_itself():
    whole = Measurement("a device", "2.13", "2026-11-21", (BASE, HALF, SILENT, COPY))
    lines = whole.describe().splitlines()
    assert len(lines) == 6
    assert "bf16: 2 GFLOP/s at 64 x 64" in whole.describe() and lines[3].endswith("faster")
    assert "fp8: not measured, no <fp8> here" in lines
    page = whole._repr_html_()
    assert page.count("<tr>") == 5
    assert "128 MiB" in page and "134217728" not in page
    assert "no &lt;fp8&gt; here" in page and "<td>faster</td>" in page
    picture = whole.plot()
    assert "bf16: 2 GFLOP/s at 64" in picture.alt and "fp8" not in picture.alt
    drawn = {line.get_label() for line in picture.figure.axes[0].containers}
    assert drawn == {"fp32", "bf16"}


def test_a_bad_control_is_said_wherever_a_measurement_is_shown():
    wild = dataclasses.replace(BASE, again=(1.0, 3.0, 0.3, 1.0, 2.0, 0.5, 1.0, 1.0))
    good, bad = (
        Measurement("a device", "2.13", "2026-11-21", (base, HALF, COPY)) for base in (BASE, wild)
    )
    assert good.trouble == "" and "64 x 64" in bad.trouble
    for shown in (bad.describe(), bad._repr_html_(), bad.plot().caption):
        assert "bad a/a control" in shown.lower()
    for shown in (good.describe(), good._repr_html_(), good.plot().caption):
        assert "bad a/a control" not in shown.lower()


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


@pytest.mark.parametrize("stalled", range(4))
def test_no_single_stalled_call_leaves_a_product_out(monkeypatch, stalled):
    """A warm-up call that took 30 times as long once left fp64 out at the next size."""
    calls = iter(range(100))

    def run(operation):
        seconds = operation.work * (30 if next(calls) == stalled else 1)
        operation.call = print
        return seconds

    monkeypatch.setattr(measuring._Operation, "run", run)
    small, large = (
        measuring._Operation("matmul", "fp64", size, work, torch.device("cpu"), None)
        for size, work in ((512, 0.033), (1024, 0.27))
    )
    measuring._warm_up([small, large], tick=lambda: None)
    assert small.why_not == large.why_not == ""


def test_a_device_that_is_not_there_is_refused_in_a_sentence():
    for device in ("cuda:63", "gpu"):
        with pytest.raises(ValueError, match=f"device='{device}'.*Pass 'cpu'"):
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
