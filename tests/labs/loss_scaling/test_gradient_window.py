"""GradientWindow without a browser: frames, traits, the chase, and the words of its text twin."""

import json
import math

import pytest
import torch
from traitlets import TraitError

from labkit.labs.loss_scaling.recorded import autoencoder_gradients
from labkit.labs.loss_scaling.widget_gradient_window import (
    FRAME_STEPS,
    GOAL_HELD,
    SCALES,
    GradientFrame,
    GradientWindow,
)


def press(widget: GradientWindow, **wanted) -> dict:
    """What the page does: a request one number higher than the last answer."""
    widget.request = {"seq": widget.numbers["seq"] + 1, **wanted}
    return widget.numbers


@pytest.fixture(scope="module")
def run():
    return autoencoder_gradients()


def test_the_shares_are_those_of_torchs_cast():
    torch.manual_seed(0)
    gradients = torch.exp2(6 * torch.randn(5000) - 16)
    frame = GradientFrame.of(gradients)
    for k in (-8, 0, 7, 16, 30):
        after = (gradients * 2.0**k).half()
        lost, low, high = frame.shares(k)
        assert lost == pytest.approx((after == 0).double().mean().item(), abs=1e-9)
        assert high == pytest.approx(after.isinf().double().mean().item(), abs=1e-9)
        subnormal = (after != 0) & (after.abs() < 2.0**-14)
        # A value just below 2**-14 rounds up to it: at most one in 2048 of its power of two.
        assert low == pytest.approx(subnormal.double().mean().item(), abs=1e-3)
        assert frame.overflows(k) == after.isinf().any().item()


def test_overflow_begins_at_65520_also_inside_a_power_of_two():
    assert not GradientFrame.of(torch.tensor([65519.0])).overflows(0)
    assert GradientFrame.of(torch.tensor([65520.0])).overflows(0)
    widget = GradientWindow(torch.tensor([65520.0, 1.0]))
    assert "at least one overflowed" in widget.describe()


def test_the_scale_moves_every_bar_by_its_exponent():
    widget = GradientWindow(torch.tensor([1e-6, 1e-3, 1e-3]))
    before = widget.numbers["bars"]
    widget.k = 12
    assert [[place + 12, height] for place, height in before] == widget.numbers["bars"]
    assert [height for _, height in before] == [50, 100]


def test_bars_outside_the_axis_are_drawn_at_its_ends():
    widget = GradientWindow(torch.tensor([2.0**-100, 2.0**20]))
    widget.k = 40
    low, high = widget.numbers["axis"]
    assert [place for place, _ in widget.numbers["bars"]] == [low, high]


def test_a_recorded_run_has_sixty_frames_of_whole_counts(run):
    assert len(run) == 60
    for counts, largest in run:
        assert all(type(e) is int and count > 0 for e, count in counts.items())
        assert math.frexp(largest)[1] - 1 == max(counts)


def test_no_fixed_scale_reaches_the_goal_and_a_dynamic_one_does(run):
    chase = GradientWindow(run)
    goal = GOAL_HELD * 60 * FRAME_STEPS
    assert max(chase.steps_held(scale=2.0**k) for k in SCALES) == 46 * FRAME_STEPS < goal
    assert goal < chase.steps_held() < 60 * FRAME_STEPS  # backoff costs steps, too


def test_one_yardstick_judges_fixed_and_dynamic_scales():
    fits, overflows = GradientFrame.of(torch.tensor([2.0**-8])), GradientFrame.of(torch.ones(1))
    lost = GradientFrame.of(torch.tensor([2.0**-60]))
    assert fits.judged(16, 0) == (FRAME_STEPS, 0)
    assert fits.judged(16, 3) == (FRAME_STEPS - 3, 3)
    assert overflows.judged(16, 0) == (0, FRAME_STEPS)
    assert lost.judged(16, 0) == (0, 0) and lost.judged(16, 2) == (0, 2)


def test_a_fixed_scale_played_frame_by_frame_counts_as_steps_held_does(run):
    fixed = GradientWindow(run)
    fixed.k = 20
    while not fixed.numbers["over"]:
        fixed.next_frame()
    assert fixed.held == fixed.steps_held(scale=2.0**20) == 92_000
    assert fixed.skipped == 14 * FRAME_STEPS
    assert "Frame 60 of 60" in fixed.describe() and "The goal is 90%" in fixed.describe()
    fixed.next_frame()  # after the end nothing moves
    assert (fixed.frame, fixed.held) == (59, 92_000)
    fixed.restart()
    assert (fixed.frame, fixed.held, fixed.k, fixed.numbers["over"]) == (0, 0, 20, False)


@pytest.mark.parametrize("before", [-10, 0, 16, 40])
def test_a_dynamic_scale_starts_at_gradscalers_wherever_the_slider_was(run, before):
    chase = GradientWindow(run)
    chase.k = before
    chase.next_frame()
    shown = press(chase, dynamic=True)
    assert (chase.frame, chase.k, chase.held, shown["dynamic"]) == (0, 16, 0, True)
    press(chase, k=3)  # the scaler moves the scale, nobody else
    assert chase.k == 16
    while not chase.numbers["over"]:
        assert not chase._frames[chase.frame].overflows(chase.k)
        chase.next_frame()
    assert chase.held == chase.steps_held() and chase.held + chase.skipped == 60 * FRAME_STEPS
    assert "Goal reached" in chase.describe()
    press(chase, restart=True)
    assert (chase.frame, chase.k) == (0, 16)


def test_a_press_is_answered_with_its_number(run):
    widget = GradientWindow(run)
    shown = press(widget, k=5)
    assert (shown["seq"], shown["k"], widget.k, shown["scale"]) == (1, 5, 5, "2**5 = 32")
    shown = press(widget, next=True)
    assert (shown["seq"], widget.frame) == (2, 1)
    shown = press(widget, restart=True)
    assert (shown["seq"], widget.frame) == (3, 0)


def test_one_frame_is_no_chase():
    assert not GradientWindow(torch.ones(3)).numbers["chase"]


def test_what_is_not_possible_is_refused():
    with pytest.raises(ValueError, match="all 0, inf or NaN"):
        GradientWindow(torch.tensor([0.0, math.nan]))
    with pytest.raises(ValueError, match="there is no frame"):
        GradientWindow([])
    with pytest.raises(TraitError):
        GradientWindow(torch.ones(1)).k = 41
    with pytest.raises(TraitError):
        GradientWindow(torch.ones(1)).held = 60


def test_the_words_say_what_the_picture_shows(run):
    widget = GradientWindow(run[:1])
    widget.k = 16
    words = widget.describe()
    facts = "2**16 = 65536", "108935", "0.034 %", "15.9 % subnormal", "0 % overflowed"
    assert [fact for fact in facts if fact not in words] == []
    assert "In the goal" in words
    data, _ = widget._repr_mimebundle_()
    assert repr(widget) == data["text/plain"] == widget.describe() == widget.numbers["sentence"]
    for name, share in widget.numbers["shares"]:
        assert share in widget.describe(), name


def test_what_crosses_to_the_page_is_json(run):
    widget = GradientWindow(run)
    assert json.loads(json.dumps(widget.numbers)) == widget.numbers
