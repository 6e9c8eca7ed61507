"""Training steps of the emulation against those of a teacher: a GPU, or the emulation shuffled."""

import statistics

import pytest
import torch
from teacher_forced import STEPS, Step, amax, distance, follow, teach

TEACHERS = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    ),
]
FLOAT32 = 2.0**-24  # the relative error of one rounding
ORDERS = range(1, 11)  # of free runs; a pupil takes three


def disagreements(lesson: list[Step], orders: range) -> list[str]:
    """Gradients further from the teacher's than three times what the order of additions explains.

    The yardstick of a parameter is the largest distance, over steps and orders, between the
    emulation and one that adds in another order: that bounds each step. Most distances are far
    smaller, for few sums come near a tie; so the median over steps is bounded in the same way. It
    is 0 where more than half of the steps agree bit by bit, in one order and not in another: what
    is below the rounding of one float32 is explained by the order alone.
    """
    ours = follow(lesson)
    said, compared = [], []
    for number, (step, (gradients, found_inf)) in enumerate(zip(lesson, ours, strict=True)):
        if found_inf != step.found_inf:
            # Only where the largest scaled value stands at the edge of overflow may they differ.
            edge = max(amax(gradients), amax(step.gradients))
            if abs(edge - 65520) > 65520 * 2.0**-9:
                said.append(f"step {number}: found_inf is {found_inf}, the teacher's not")
        elif not found_inf:
            compared.append(number)
    shuffled = [follow(lesson, order=order) for order in orders]
    for name in lesson[0].gradients:
        far = [distance(lesson[n].gradients[name], ours[n][0][name]) for n in compared]
        others = [
            [distance(other[n][0][name], ours[n][0][name]) for n in compared] for other in shuffled
        ]
        for kind, statistic in (("largest", max), ("median", statistics.median)):
            yardstick = max(FLOAT32, *map(statistic, others))
            if statistic(far) > 3 * yardstick:
                said.append(f"{name}: {kind} {statistic(far):.1e} against {yardstick:.1e}")
    return said


@pytest.mark.slow
@pytest.mark.parametrize("device", TEACHERS)
def test_each_step_agrees_with_the_teachers(device):
    lesson = teach(device, order=99 if device == "cpu" else None)
    assert len(lesson) == STEPS
    assert any(step.found_inf for step in lesson) and not all(step.found_inf for step in lesson)
    assert disagreements(lesson, range(1, 4)) == []


@pytest.mark.parametrize("accumulate", [torch.float16, torch.bfloat16])
def test_a_teacher_with_other_roundings_is_told_apart(accumulate):
    lesson = teach("cpu", steps=6, accumulate=accumulate)
    assert disagreements(lesson, range(1, 4))


@pytest.mark.slow
@pytest.mark.parametrize("device", TEACHERS)
def test_a_free_run_stays_among_perturbed_emulations(device):
    """The mean loss of the last 50 steps, among those of ten emulations that add in other orders.

    Eleven exchangeable numbers: one lies beyond the ten by more than their range only by accident.
    """

    def end(lesson: list[Step]) -> float:
        return statistics.fmean(step.loss for step in lesson[-50:])

    perturbed = [end(teach("cpu", order=order)) for order in ORDERS]
    spread = max(perturbed) - min(perturbed)
    reached = end(teach(device, order=99 if device == "cpu" else None))
    assert min(perturbed) - spread <= reached <= max(perturbed) + spread
    assert reached < 1.0, "ten classes begin at a loss of 2.3"
