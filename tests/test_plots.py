"""A picture carries its own words: a caption that names where its numbers are from, and alt."""

import re

import pytest

from labkit import plots
from labkit.formats import BF16, E2M1, FP16, spacing
from labkit.formats.histograms import range_report
from labkit.training.data import digits_mlp


def pictures():
    reports = {name: range_report(tensor, FP16) for name, tensor in digits_mlp().items()}
    gaps = {"FP16": lambda x: spacing(x, FP16), "BF16": lambda x: spacing(x, BF16)}
    return {
        "number_line": plots.number_line([E2M1], limit=6),
        "gap_staircase": plots.gap_staircase(gaps, exponents=range(-20, 13), whose="your"),
        "windows": plots.windows(reports, [FP16, BF16], provenance="Recorded on a CPU."),
    }


@pytest.fixture(scope="module")
def picture(request):
    return pictures()[request.param]


@pytest.mark.parametrize("picture", ["number_line", "gap_staircase", "windows"], indirect=True)
def test_a_picture_shows_its_alt_text_and_its_caption(picture):
    bundle = picture._repr_mimebundle_()
    page = bundle["text/html"]
    assert len(re.search(r'alt="([^"]+)"', page)[1]) > 60
    assert re.search(r"<figcaption>(Computed|Measured|Emulated|Recorded)", page)
    assert bundle["text/plain"] == f"{picture.caption}\n{picture.alt}"


@pytest.mark.parametrize("picture", ["gap_staircase", "windows"], indirect=True)
def test_both_axes_are_labelled(picture):
    axes = picture.figure.axes[0]
    assert axes.get_xlabel() and axes.get_ylabel()


def test_the_number_line_draws_every_value_once():
    axes = plots.number_line([E2M1], limit=6).figure.axes[0]
    assert list(axes.lines[0].get_xdata()) == [
        -6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6,
    ]  # fmt: skip


def test_the_staircase_says_whose_gaps_it_draws_and_draws_them():
    picture = plots.gap_staircase({"x": lambda x: 2 * x}, exponents=range(2), whose="labkit's")
    assert "labkit's ulp" in picture.caption
    line = picture.figure.axes[0].lines[0]
    assert list(line.get_ydata()) == [2 * x for x in line.get_xdata()]


def test_the_windows_say_what_each_format_holds():
    alt = pictures()["windows"].alt
    assert "fp16 holds 2**-24 to 2**16, subnormal below 2**-14" in alt
    assert "gradients peaks at 2**-22" in alt
