"""A range report counts what torch's own casts do."""

import pytest
import torch

from labkit.formats import BF16, E2M1, E4M3, FP16, histograms
from labkit.formats.histograms import range_report
from labkit.training.data import digits_mlp

INF, NAN = float("inf"), float("nan")
EDGES = torch.tensor(
    [
        *(0.0, -0.0, 2.0**-25, 1.1 * 2.0**-25, -(2.0**-24), 2.0**-14, 1.0, -3.0),
        *(65519.0, 65520.0, 1e9, INF, -INF, NAN),
    ]
)


def test_edges_of_fp16_are_counted_one_by_one():
    report = range_report(EDGES, FP16)
    assert (report.format, report.values, report.zeros, report.nonfinite) == ("fp16", 14, 2, 3)
    assert (report.lost, report.subnormal, report.overflowed) == (1, 2, 2)
    assert (report.normal, report.nans) == (4, 1)
    assert report.share_lost == 1 / 9 and report.share_overflowed == 2 / 9
    assert report.share_subnormal == 2 / 9


def test_every_value_is_counted_once():
    report = range_report(EDGES, FP16)
    parts = (report.zeros, report.lost, report.subnormal, report.normal, report.overflowed)
    assert sum(parts) + report.nonfinite == report.values


@pytest.mark.parametrize(("fmt", "dtype"), [(FP16, torch.float16), (BF16, torch.bfloat16)])
@pytest.mark.parametrize("name", ["weights", "activations", "gradients"])
def test_recorded_tensors_are_counted_as_torch_casts_them(fmt, dtype, name):
    x = digits_mlp()[name]
    after = x.to(dtype).float()
    report = range_report(x, fmt)
    assert report.lost == int(((after == 0) & (x != 0)).sum())
    assert report.zeros == int((x == 0).sum())
    assert report.overflowed == 0
    kept = after != 0
    error = ((after.double() - x.double())[kept] / x.double()[kept]).abs().median()
    assert report.error == float(error)


def test_a_format_without_inf_counts_what_it_clips_or_makes_nan():
    # E2M1 ends at 6; its next value would be 8, so the cut is 7. E4M3 gives NaN above 464.
    assert range_report(torch.tensor([6.0, 6.9, 7.1, -100.0]), E2M1).overflowed == 2
    assert range_report(torch.tensor([448.0, 463.0, 465.0]), E4M3).overflowed == 1


def test_exponents_count_every_finite_value_that_is_not_zero():
    report = range_report(torch.tensor([1.0, 1.9, 2.0, 0.0, -0.75, float("inf"), 1e-40]), FP16)
    assert report.exponents == ((-133, 1), (-1, 1), (0, 2), (1, 1))


@pytest.mark.parametrize("x", [torch.zeros(0), torch.zeros(3), torch.tensor(float("nan"))])
def test_nothing_to_count_gives_zeros_and_no_error(x):
    report = range_report(x, FP16)
    assert (report.lost, report.share_lost, report.error, report.exponents) == (0, 0.0, 0.0, ())


def test_float64_is_not_rounded_to_float32_first():
    # In float32 this is the midpoint of 0 and the smallest subnormal, which goes to 0.
    x = torch.tensor([2.0**-25 * (1 + 2.0**-40)], dtype=torch.float64)
    assert range_report(x, FP16).lost == 0


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(histograms, "CHUNK", 50)


def test_chunks_change_nothing(small_chunks, monkeypatch):
    x = torch.randn(3, 7, 13, generator=torch.Generator().manual_seed(0)) * 1e-6
    views = [x, x.transpose(0, 2)[:, ::2], x.expand(2, 3, 7, 13)]
    in_chunks = [range_report(view, FP16) for view in views]
    monkeypatch.setattr(histograms, "CHUNK", 1 << 20)
    assert in_chunks == [range_report(view, FP16) for view in views]


def test_a_strided_tensor_is_read_without_a_copy(small_chunks):
    x = torch.randn(40, 30).t()
    for chunk in histograms._chunks(x):
        assert chunk.numel() <= 50
        assert chunk.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_the_text_form_gives_counts_and_shares():
    assert str(range_report(EDGES, FP16)).splitlines() == [
        "14 values in fp16",
        "  zero before                  2",
        "  flushed to zero              1    11.11%",
        "  subnormal                    2    22.22%",
        "  normal                       4    44.44%",
        "  overflowed                   2    22.22%",
        "  inf before                   2",
        "  NaN before                   1",
        "  median error             0.00%",
        "  binades          2**-25 to 2**30",
    ]
