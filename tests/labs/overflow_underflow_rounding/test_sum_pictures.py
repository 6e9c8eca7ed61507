"""The picture of running sums: its lines, the format's grid, and its words."""

import torch

from labkit.formats import BF16
from labkit.labs.overflow_underflow_rounding.sum_pictures import running_sums

EXACT = torch.linspace(1, 1.1, 11)


def test_each_panel_shows_its_lines_from_none_to_all_of_the_updates():
    panels = {"few": {"exact": EXACT, "kahan": EXACT.bfloat16()}, "many": {"exact": EXACT[::2]}}
    picture = running_sums(panels, grid=BF16)
    few, many = picture.figure.axes
    assert [line.get_label() for line in few.lines[:2]] == ["exact", "kahan"]
    assert few.lines[0].get_xdata()[0] == 0 and few.lines[0].get_xdata()[-1] == 100
    assert many.lines[0].get_ydata()[-1] == EXACT[-1].item()
    assert "few end at: exact 1.100; kahan 1.102" in picture.alt
    assert "many end at: exact 1.100" in picture.alt


def test_the_grey_lines_are_the_formats_values():
    (axes,) = running_sums({"one": {"exact": EXACT}}, grid=BF16).figure.axes
    grid = [line.get_ydata()[0] for line in axes.lines[1:]]
    low, high = axes.get_ylim()
    # Below 1 the gap is 2**-8, above it 2**-7.
    values = [k / 256 for k in range(200, 256)] + [1 + k / 128 for k in range(20)]
    assert grid == [value for value in values if low < value < high]
