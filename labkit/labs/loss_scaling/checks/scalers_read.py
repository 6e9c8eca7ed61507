"""Checks of lab 04, sitting B: five scalers reviewed, five traces read."""

import json
import math
from itertools import pairwise

from labkit.base.paths import DATA
from labkit.labs.engine import Mistake, check, entries, number, word
from labkit.labs.loss_scaling import solutions
from labkit.training import StepRecord

LAB = "04_loss_scaling"

NO_LINE = "{name}: None is no line number; 0 says that no line fails."
OTHER_LINE = "{name}: you point to line {line:g}. When it runs, {said}."
NO_FAULT = "{name}: you find no fault. When it runs, {said}."

OTHER_CAUSE = "{name} is not {cause}: {evidence}. {sign}"
TRACE = (
    "{skipped} of {steps} steps are skipped{where}; the scale goes from 2**{first:.0f} to "
    "2**{last:.0f}, the loss from {loss:.3g} to {end:.3g}{until}"
)
SKIPS = ", the first {first}, the last {last}, {in_a_row} in a row"
UNTIL_NAN = " in one step, from {loss:.3g} at step {step}, and it was not rising"


# Which line?

SCALERS = """\
# A: called after each step
1 def after_step(self, overflow):
2     if overflow:
3         self.scale = self.scale / 2
4     else:
5         self.scale = self.scale * 2

# B: the gradients are unscaled already
1 def step(self, optimizer):
2     for p in optimizer.param_groups[0]["params"]:
3         if p.grad is not None and not p.grad.isfinite().all():
4             return False
5     optimizer.step()

# C: for a model that was made by model.half()
1 def unscale(self, model):
2     for p in model.parameters():
3         if p.grad is not None:
4             p.grad /= self.scale

# D: called after each step
1 def after_step(self, overflow):
2     self.skips += 1
3     if overflow:
4         self.scale, self.skips = self.scale / 2, 0
5     elif self.skips == 2000:
6         self.scale, self.skips = self.scale * 2, 0

# E: in a class
1 class Scaler:
2     def __init__(self, scale=65536.0):
3         self.scale = scale
4     def scale(self, loss):
5         return loss * self.scale"""
"""Five scalers to review, rewritten after published ones."""

_SAID = {
    "A": "on gradients that do not change, half of its steps are skipped",
    "B": "a NaN in the second group goes into the weights",
    "C": "an FP16 gradient of 0.001 at scale 65536 is 0 afterwards",
    "D": "within the range of float32 its scale is GradScaler's",
    "E": "`scaler.scale(loss)` raises TypeError: 'float' object is not callable",
}


def run_which_line(which_line):
    """A dict of numbers is data already."""
    return which_line


@check(run_which_line)
def check_which_line(answer):
    """Five scalers reviewed: four lines that fail, and one that only looks wrong."""
    answer = entries(answer, list(solutions.which_line), call="which_line")
    for name, line in solutions.which_line.items():
        if answer[name] is None:
            raise Mistake(NO_LINE, name=name)
        said_line = number(answer[name], call=f'which_line["{name}"]')
        # Of two things with one name either may get another.
        if said_line not in ((3, 4) if name == "E" else (line,)):
            template = OTHER_LINE if said_line else NO_FAULT
            raise Mistake(template, name=name, line=said_line, said=_SAID[name])


check_which_line.slip(
    "growth-at-each-step",
    "Halving after an overflow is right. How often does the other half run?",
    swap=('"A": 5', '"A": 3'),
)
check_which_line.slip(
    "first-group-is-all",
    "What does an optimizer with two groups keep in `param_groups[1]`?",
    swap=('"B": 2', '"B": 5'),
)
check_which_line.slip(
    "unscaling-may-be-sixteen-bit",
    "The model was `.half()`. What is 0.001 / 65536 in its dtype?",
    swap=('"C": 4', '"C": 0'),
)
check_which_line.slip(
    "a-bad-name-is-a-bug",
    "Rename `skips` to `good_steps`. Which value does any line get wrong?",
    swap=('"D": 0', '"D": 2'),
)
check_which_line.slip(
    "methods-and-attributes-live-apart",
    "After `__init__` has run, what does `scaler.scale` find first?",
    swap=('"E": 3', '"E": 5'),
)


# Five traces

CAUSES = (
    "calibration", "growth at each step", "NaN in the data", "underflow", "healthy", "divergence",
)  # fmt: skip


def traces():
    """The five recorded runs of the exercise: a letter -> StepRecords."""
    path = DATA / "emulated" / "five_traces.json"
    recorded = json.loads(path.read_text(encoding="utf-8"))["traces"]
    return {
        name: [
            StepRecord(i, float(loss), float(norm), float(scale), skipped)
            for i, (loss, norm, scale, skipped) in enumerate(rows)
        ]
        for name, rows in recorded.items()
    }


def run_diagnosis(diagnosis):
    """A dict of words is data already."""
    return diagnosis


@check(run_diagnosis)
def check_diagnosis(answer):
    """Five traces read: what is healthy, what is ill, and what only looks ill."""
    answer = entries(answer, list(solutions.diagnosis), call="diagnosis")
    for name, cause in solutions.diagnosis.items():
        said = word(answer[name], CAUSES, call=f'diagnosis["{name}"]')
        if said != cause:
            raise Mistake(
                OTHER_CAUSE,
                name=name,
                cause=said,
                evidence=_evidence(traces()[name]),
                sign=_SIGNS[said],
                misconception=_CONFUSED.get((cause, said)),
                search=False,
            )


_SIGNS = {
    "calibration": "A calibration is a row of skips at the start, one after another, and it ends.",
    "growth at each step": "With growth at each step every second or third step is skipped.",
    "NaN in the data": "A NaN in the data spoils a loss from one step to the next, at any scale.",
    "underflow": "In an underflow nothing is skipped, and the loss stays where it was.",
    "healthy": "In a healthy run the loss falls, and many good steps lie between two skips.",
    "divergence": "In a divergence the loss rises, step after step, before it is inf or NaN.",
}
"""What a trace of each cause shows."""


_CONFUSED = {
    ("calibration", "divergence"): "calibration-is-divergence",
    ("underflow", "healthy"): "no-skip-means-healthy",
    ("healthy", "growth at each step"): "every-skip-is-a-fault",
    ("NaN in the data", "calibration"): "a-falling-scale-will-settle",
    ("growth at each step", "healthy"): "growth-at-each-step",
}
"""The idea behind taking one cause for another."""


def _evidence(records):
    skipped = [record.step for record in records if record.skipped]
    in_a_row = sum(after - before == 1 for before, after in pairwise(skipped))
    first, last = records[0], records[-1]
    where = SKIPS.format(first=skipped[0], last=skipped[-1], in_a_row=in_a_row) if skipped else ""
    return TRACE.format(
        skipped=len(skipped),
        steps=len(records),
        where=where,
        first=math.log2(first.loss_scale),
        last=math.log2(last.loss_scale),
        loss=first.loss,
        end=last.loss,
        until=_until_nan(records),
    )


def _until_nan(records):
    """Of a loss that becomes NaN: how it came there."""
    place = next((i for i, record in enumerate(records) if math.isnan(record.loss)), 0)
    if not place:
        return ""
    before = records[place - 1]
    return UNTIL_NAN.format(loss=before.loss, step=before.step)


check_diagnosis.slip(
    "calibration-is-divergence",
    "The skips end, and the loss falls afterwards. What was the scale looking for?",
    swap=('"calibration"', '"divergence"'),
)
check_diagnosis.slip(
    "no-skip-means-healthy",
    "No step is skipped, and nothing is learnt. Which gradients are finite and useless?",
    swap=('"underflow"', '"healthy"'),
)
check_diagnosis.slip(
    "every-skip-is-a-fault",
    "Count the steps between two skips. Which rule lets the scale try a larger value now and then?",
    swap=('"healthy"', '"growth at each step"'),
)
check_diagnosis.slip(
    "a-falling-scale-will-settle",
    "From one step on all are skipped, at any scale. Which number is not finite at any scale?",
    swap=('"NaN in the data"', '"calibration"'),
)
check_diagnosis.slip(
    "growth-at-each-step",
    "Every second step is lost, to the end. How long does each scale last?",
    swap=('"growth at each step"', '"healthy"'),
)
