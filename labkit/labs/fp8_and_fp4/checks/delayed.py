"""Check of lab 08: casts whose scale comes from earlier steps."""

import math
import random

import torch

from labkit.labs.engine import Mistake, attempt, check, number, several, tensor
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure
from labkit.labs.fp8_and_fp4.checks.shared import E4M3, E5M2, close, first, off, values_of

LAB = "08_fp8_and_fp4"

STEP = "{made}, step {step}{before}: "
OTHER_DESCALE = STEP + "x has {amax} and your descale is {got}; {want} is wanted. {why}"
OTHER_CODES = (
    STEP + "the descale {descale} is right. x[{i}] is {x}; divided by it and clamped it is "
    "{quotient}, and your code is {got}."
)
RAISED_AFTER = STEP + "cast raised {error}. The step before had {last}. {why}"
OWN = "That is the descale of the next step, which knows this step's {amax}."
NO_MARGIN = "That is the right one without the margin of {margin}: 2**{margin} times too small."
SCALE = "That is the scale, which multiplies x."
POWER = "That is {times:g} times the right one; the margin is {margin}."
MULTIPLIED = POWER + " Your scale is multiplied by 2**margin. Which way does headroom move a scale?"
DIVIDED = "Your margin of {margin} divides the scale by {by:g}; 2**{margin} is {want}."
LAST = "That is {last} / {largest:exact}: only the last step counts in it."
EVER = "That is {most} / {largest:exact}, and {most} has left the history of {length} steps."
CLIPS = "With it {most} would clip, which is among the last {length} magnitudes."
SIGNED = (
    "That is right for the largest value of each x; its largest magnitude is negative here, and 4 "
    "times as large. Of which tensor do you take the maximum?"
)
RESET = "The history holds zeros only, so the scale stays as it was."
SKIPPED = (
    "That is right for the last {length} magnitudes that are not 0. A step of zeros has a place in "
    "the history, too. Does yours store it?"
)
POISONED = "An inf or a NaN that is stored stays in the history for {length} steps."
UNCHANGED = (
    "The step before had {last}, after which history and scale stay as they are: the descale of "
    "that step is right again, and yours is {times:.4g} times as large."
)
PUSHED_OUT = (
    "That is the descale without {most}: {last} pushed it out of the history. After {last} the "
    "history stays as it is."
)
FORGOTTEN = (
    "That is the descale of a history that holds only what came after {last}. The magnitudes from "
    "before {last} stay in it."
)

_STEPS = (
    1.0, 2.0, 8.0, 0.5, 0.5, 0.5, 0.0, math.inf, 4.0, 0.0, 0.0, 0.0, 0.0, math.nan, 64.0, 1.0,
    0.25, math.inf, 0.125, 0.125, 0.0, 0.125,
)  # fmt: skip


def _cases(seed):
    """Of each object: largest value, length and margin, the dtype, and its steps' magnitudes."""
    draw = random.Random(seed)
    drawn = tuple(draw.lognormvariate(0, 2) for _ in range(12))
    return {
        "Delayed(448.0, 3, 0)": ((448.0, 3, 0), E4M3, _STEPS),
        "Delayed(57344.0, 2, 1)": ((57344.0, 2, 1), E5M2, _STEPS),
        "Delayed(448.0, 4, 2)": ((448.0, 4, 2), E4M3, drawn),
    }


def _tensor(amax):
    return torch.tensor([0.25, -1.0, 0.125]) * amax if math.isfinite(amax) else torch.tensor(
        [0.25, amax, 1.0]
    )  # fmt: skip


def run_delayed(Delayed, seed):
    """One object a case; what it casts, step after step."""
    return {made: _steps(Delayed, *case) for made, case in _cases(seed).items()}


def _steps(Delayed, arguments, dtype, steps):
    delayed = Delayed(*arguments)
    return [attempt(delayed.cast, _tensor(amax), dtype) for amax in steps]


@check(run_delayed)
def check_delayed(answers, seed):
    """The scale of each step comes from the steps before it, with a margin, and without infs."""
    for made, ((largest, length, margin), dtype, steps) in _cases(seed).items():
        rows = several(answers[made], len(steps), call=made)
        scales = _scales(largest, length, margin, steps)
        for i, (got, amax) in enumerate(zip(rows, steps, strict=True)):
            call = f"{made}, step {i + 1}: cast(x, {dtype})"
            seen = list(steps[max(i - length, 0) : i])
            before = f" after the magnitudes {seen}" if i else ""
            said = {"made": made, "step": i + 1, "before": before}
            if type(got) is Raised and i and not math.isfinite(steps[i - 1]):
                why, error = fill(POISONED, length=length), failure(got)
                raise Mistake(RAISED_AFTER, error=error, last=str(steps[i - 1]), why=why, **said)
            codes, descale = several(got, 2, call=call)
            x = _tensor(amax)
            codes = tensor(codes, call=f"{call}[0]", shape=x.shape, dtype=dtype).double()
            descale, want = number(descale, call=f"{call}[1]"), 1 / scales[i]
            if not close(descale, want):
                why = _why(descale, scales, i, steps, largest, length, margin)
                raise Mistake(OTHER_DESCALE, amax=amax, got=descale, want=want, why=why, **said)
            quotient = (x.double() * scales[i]).clamp(-largest, largest)
            wrong = off(codes, quotient, values_of(dtype)) & x.isfinite()
            if wrong.any():
                (j,) = first(wrong)
                raise Mistake(
                    OTHER_CODES,
                    descale=descale, i=j, x=x[j], quotient=quotient[j], got=codes[j], **said,
                )  # fmt: skip


def _scales(largest, length, margin, steps):
    """The scale of each step and of the one after the last, as Transformer Engine defines it."""
    scales, finite = [1.0], []
    for amax in steps:
        finite += [amax] if math.isfinite(amax) else []
        most = max(finite[-length:], default=0)
        scales.append(largest / most / 2**margin if most else scales[-1])
    return scales


def _why(got, scales, i, steps, largest, length, margin):
    """What the descale of a step is instead."""
    before = [amax for amax in steps[:i] if math.isfinite(amax)]
    if before and not math.isfinite(steps[i - 1]):
        return _after_overflow(got, scales[i], before, steps[i - 1], largest, length, margin)
    window = steps[max(i - length, 0) : i]
    if before and not math.isfinite(sum(window)):
        gone = max(j for j, amax in enumerate(window) if not math.isfinite(amax))
        if close(got, max(window[gone + 1 :]) * 2**margin / largest):
            return fill(FORGOTTEN, last=str(window[gone]))
        return fill(POISONED, length=length)
    if before and not any(before[-length:]):
        return RESET
    times, right = 2**margin / largest, 1 / scales[i]
    if margin and before and close(got, right / 2**margin):
        return fill(NO_MARGIN, margin=margin)
    if margin and before and close(got, right / 4**margin):
        return fill(MULTIPLIED, times=got / right, margin=margin)
    if margin and before and math.frexp(abs(got) / right)[0] == 0.5:
        return fill(POWER, times=got / right, margin=margin)
    by = got / right * 2**margin
    if margin > 1 and before and round(by) > 1 and close(by, round(by)):
        return fill(DIVIDED, margin=margin, by=by, want=2**margin)
    if close(got, scales[i]):
        return SCALE
    fit = [fill(OWN, amax=steps[i])] if close(got, 1 / scales[i + 1]) else []
    if before and close(got, before[-1] * times):
        fit.append(fill(LAST, last=before[-1], largest=largest))
    if before and close(got, max(before) * times):
        fit.append(fill(EVER, most=max(before), largest=largest, length=length))
    others = [amax for amax in before if amax][-length:]
    if 0 in before[-length:] and close(got, max(others) * times):
        fit.append(fill(SKIPPED, length=length))
    if len(fit) == 1:
        return fit[0]
    if not margin and before and close(got, right / 4):
        return SIGNED
    clips = before and 0 < got * largest < max(before[-length:])
    return fill(CLIPS, most=max(before[-length:]), length=length) if clips else ""


def _after_overflow(got, scale, before, last, largest, length, margin):
    """What the descale of a step is whose step before had inf or NaN."""
    if not math.isfinite(got) or not got:
        return fill(POISONED, length=length)
    window, last = before[-length:], str(last)
    kept = max(window[1:], default=0)
    if kept < max(window) and close(got, kept * 2**margin / largest):
        return fill(PUSHED_OUT, last=last, most=max(window))
    return fill(UNCHANGED, last=last, times=got * scale)


check_delayed.slip(
    "codes-and-descale-may-be-of-two-steps",
    "The codes were made with the old scale. With which must they be multiplied back?",
    swap=("return codes, descale", "return codes, 1 / self.scale"),
)
check_delayed.slip(
    "an-inf-belongs-in-the-history",
    "Which test of a number is False for inf and for NaN?",
    swap=("if math.isfinite(amax):", "if True:"),
)
check_delayed.slip(
    "delayed-scales-need-no-margin",
    "Where does your scale use the margin?",
    cut=" / 2**self.margin",
)
check_delayed.slip(
    "the-last-step-is-the-history",
    "The scale must fit the largest of the last steps, not the latest one. Which values do you "
    "take the maximum of?",
    swap=(
        "max(self.history) > 0:\n            self.scale = self.largest / max(self.history)",
        "self.history[-1] > 0:\n            self.scale = self.largest / self.history[-1]",
    ),
)
check_delayed.slip(
    "the-history-never-forgets",
    "A list of fixed length drops its oldest value for each new one. Which of yours is dropped?",
    swap=("*self.history[1:]", "*self.history"),
)
check_delayed.slip(
    "scaled-casts-cannot-clip",
    "A tensor may exceed everything in the history, and E5M2 has an inf. Which call saturates?",
    cut=".clamp(-self.largest, self.largest)",
)
check_delayed.slip(
    "a-step-of-zeros-resets-the-scale",
    "Zeros say nothing about the tensor's range. Which scale was in use before them?",
    swap=(
        "        descale = ",
        "        self.scale = self.scale if any(self.history) else 1.0\n        descale = ",
    ),
)


@check_delayed.wrong(
    "delayed-scaling-measures-first",
    "Delayed scaling must not look at x before the cast. Whose magnitude does your scale use?",
)
class _:
    def __init__(self, largest, length=16, margin=0):
        self.largest, self.margin, self.history = largest, margin, [0.0] * length
        self.scale = 1.0

    def cast(self, x, dtype):
        amax = x.abs().max().item()
        if math.isfinite(amax):
            self.history = [*self.history[1:], amax]
        if max(self.history) > 0:
            self.scale = self.largest / max(self.history) / 2**self.margin
        codes = (x * self.scale).clamp(-self.largest, self.largest).to(dtype)
        return codes, 1 / self.scale
