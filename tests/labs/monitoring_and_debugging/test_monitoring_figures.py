"""The figures of lab 11 show the numbers that they are given, and say the same in words."""

import math

from labkit.labs.monitoring_and_debugging.figures import alarms_picture, difference_picture


def test_alarms_have_a_row_of_strokes_for_each_rule():
    losses = [2.0, 1.0, 500.0, math.nan, 0.5]
    picture = alarms_picture(losses, {"silent": [], "loud": [1, 2, 3]})
    (axes,) = picture.figure.axes
    curve, silent, loud = axes.lines
    assert [math.isnan(y) for y in curve.get_ydata()] == [False, False, False, True, False]
    assert (list(silent.get_xdata()), list(loud.get_xdata())) == ([], [1, 2, 3])
    assert max(loud.get_ydata()) < min(loss for loss in losses if loss == loss)
    assert "a spike of 500 and a NaN at step 3" in picture.alt
    assert "silent rings at 0 steps; loud rings at 3 steps" in picture.alt


def test_differences_are_relative_and_a_step_without_one_has_no_mark():
    runs = {"a": [2.0, 4.0], "b": [2.2, 4.4], "c": [2.0, 4.04]}
    picture = difference_picture([2.0, 4.0], runs)
    (axes,) = picture.figure.axes
    gaps = [list(line.get_ydata()) for line in axes.lines]
    assert all(math.isnan(gap) for gap in gaps[0])
    assert [round(gap, 6) for gap in gaps[1]] == [0.1, 0.1]
    assert math.isnan(gaps[2][0]) and round(gaps[2][1], 6) == 0.01
    assert "b: at most 1e-01; c: at most 1e-02" in picture.alt
