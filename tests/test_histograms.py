"""A range report counts what torch's own casts do."""

import pytest
import torch

from labkit.data import digits_mlp
from labkit.formats import BF16, E2M1, E4M3, FP16
from labkit.histograms import range_report

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
    assert report.share_lost == 1 / 9 and report.share_overflowed == 2 / 9


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


def test_other_dtypes_are_refused():
    with pytest.raises(TypeError, match="float16"):
        range_report(torch.ones(2, dtype=torch.float16), FP16)
