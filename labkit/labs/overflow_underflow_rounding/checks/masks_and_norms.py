"""Checks of lab 03: masked attention, and a norm whose eps is there."""

import math

import torch

from labkit.labs.engine import Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.overflow_underflow_rounding.checks.shared import row_text, tensor_of

LAB = "03_overflow_underflow_rounding"


# Masked attention

_SCORES = [
    ([2.0, 1.0, 0.0, -1.0], [True, True, False, True]),
    ([0.0, 0.5, -0.5, 3.0], [True, True, True, True]),
    ([200.0, -300.0, -301.0, 150.0], [False, True, True, False]),
    ([7.0, 9.0, 8.0, 1.0], [False, False, True, False]),
    ([3.0, 2.0, 1.0, 0.0], [False] * 4),
    ([-40.0, -41.0, -42.0, -43.0], [False] * 4),
    ([-20000.0, 5.0, -20000.0, -20016.0], [True, False, True, False]),
]


def _scores():
    scores = torch.tensor([row for row, _ in _SCORES], dtype=torch.float16)
    return scores, torch.tensor([keep for _, keep in _SCORES])


def run_masked_softmax(masked_softmax):
    """`masked_softmax` on seven rows of scores at once."""
    return attempt(masked_softmax, *_scores())


@check(run_masked_softmax)
def check_masked_softmax(weights):
    """Attention weights: masked places get 0, and a row with nothing to attend to is no NaN."""
    if type(weights) is Raised and "without overflow" in weights.message:
        raise Mistake(
            f"`masked_softmax(scores, keep)` raised: {weights.message}.",
            misconception="mask-constant-overflows",
        )
    scores, keep = _scores()
    weights = tensor_of(
        weights, call="masked_softmax(scores, keep)", shape=scores.shape, dtype=torch.float16
    )
    hidden = torch.where(keep, scores.double(), -math.inf)
    wanted = hidden.softmax(dim=1)
    for row in range(len(scores)):
        got, text = weights[row], row_text(weights[row])
        seen = f"scores {row_text(scores[row])}, keep {keep[row].tolist()}"
        shown = f"{seen}: your weights are {text}."
        if not keep[row].any():
            _judge_empty_row(got, row, shown)
            continue
        # Differences, exponentials, their sum of 4 and the quotient: each within u = 2**-11 of
        # something that adds at most u to a weight; |d| exp(-|d|) <= 1/e for a difference d.
        if not (got - wanted[row]).abs().max() <= 8 * 2.0**-11:
            raise Mistake(
                f"{shown} {row_text(wanted[row])} is wanted.",
                misconception=_mask_idea(row, got, scores[row].double(), keep[row]),
            )


def _judge_empty_row(got, row, shown):
    if got.isnan().any():
        idea = "mask-constant-overflows" if row == 4 else "adding-is-replacing"
        raise Mistake(shown, misconception=idea)
    if not ((got >= 0) & (got <= 1)).all() or got.sum() > 1 + 2.0**-9:
        raise Mistake(f"{shown} Weights are 0 to 1 and sum to at most 1.")


def _mask_idea(row, got, scores, keep):
    def near(other):
        return bool((got - other).abs().max() <= 8 * 2.0**-11)

    if row == 0 and near((scores * keep).softmax(dim=0)):
        return "masked-means-score-zero"
    if near(scores.softmax(dim=0) * keep):
        return "mask-after-the-softmax"
    if row in (2, 6) and got[keep].sum() < 0.5:
        return "any-negative-number-masks"
    return None


_FILLED = "scores.masked_fill(~keep, torch.finfo(scores.dtype).min)"
check_masked_softmax.slip(
    "mask-constant-overflows",
    "-1e9 is -inf in FP16, and a row of -inf has no maximum to shift by. "
    "What is the lowest finite value of the scores' own dtype?",
    swap=(_FILLED, "torch.where(keep, scores, -1e9)"),
)
check_masked_softmax.slip(
    "adding-is-replacing",
    "-40 + finfo.min is below finfo.min, so it is -inf again. What replaces instead of adding?",
    swap=(_FILLED, "(scores + (~keep).half() * torch.finfo(scores.dtype).min)"),
)
check_masked_softmax.slip(
    "masked-means-score-zero",
    "A score of 0 still gets exp(0) = 1 in the sum. Which score gets exp = 0?",
    swap=(_FILLED, "(scores * keep)"),
)
check_masked_softmax.slip(
    "mask-after-the-softmax",
    "The kept weights no longer sum to 1: the masked ones are still in the denominator. "
    "On which side of the softmax does a mask belong?",
    swap=(f"{_FILLED}.softmax(dim=-1)", "scores.softmax(dim=-1) * keep"),
)
check_masked_softmax.slip(
    "any-negative-number-masks",
    "Here the kept scores lie lower than your constant. Which finite score is below all others?",
    swap=("torch.finfo(scores.dtype).min", "-100.0"),
)


# An eps that is there

_RMS_ROWS = {
    "ordinary": [1.0, -2.0, 0.5, 3.0],
    "zeros": [0.0] * 4,
    "large": [300.0, -400.0, 500.0, 60000.0],
    "tiny": [2.0**-14, -(2.0**-14), 2.0**-14, 2.0**-14],
    "small": [1e-3, -2e-3, 5e-4, 3e-3],
}


def run_unit_rms(unit_rms):
    """`unit_rms` on one FP16 row after another."""
    rows = {name: torch.tensor([row], dtype=torch.float16) for name, row in _RMS_ROWS.items()}
    return {name: attempt(unit_rms, row) for name, row in rows.items()}


@check(run_unit_rms)
def check_unit_rms(answers):
    """RMS normalisation of FP16 rows: zeros, large and tiny values, and an eps that counts."""
    for name, row in _RMS_ROWS.items():
        call = f"unit_rms({row})"
        got = tensor_of(answers[name], call=call, shape=(1, 4), dtype=torch.float16)
        x = torch.tensor([row], dtype=torch.float16).double()
        mean = x.square().mean()
        wanted = x / (mean + 1e-8).sqrt()
        # One rounding to FP16 (2**-11, or half of 2**-24), and float32's own 2**-22 or so.
        if ((got - wanted).abs() <= wanted.abs() * 2.0**-10 + 2.0**-25).all():
            continue
        raise Mistake(
            f"`{call}` is {row_text(got[0])}; {row_text(wanted[0])} is wanted.",
            misconception=_rms_idea(name, got, x, mean, answers),
        )


def _rms_idea(name, got, x, mean, answers):
    def near(other):
        return bool(((got - other).abs() <= other.abs() * 2.0**-6).all())

    tiny = answers["tiny"]
    if name == "zeros" and got.isnan().any():
        # With an eps of 0 in FP16 the tiny row is x / 0; with no eps in float32 it is 1.
        gone = isinstance(tiny, torch.Tensor) and not tiny.isfinite().all()
        return "eps-fits-every-format" if gone else None
    if name == "large" and (got == 0).all():
        return "upcast-too-late"
    if name == "tiny" and near(x / (mean.sqrt() + 1e-8)):
        return "eps-may-stand-anywhere"
    if name in ("small", "tiny") and got.abs().max() < 0.5:
        return "a-larger-eps-costs-nothing"
    return None


check_unit_rms.slip(
    "eps-fits-every-format",
    "1e-8 is below 2**-25, so eps is 0 in FP16. In which dtype must the addition happen?",
    swap=("x.float().square()", "x.square()"),
)
check_unit_rms.slip(
    "upcast-too-late",
    "300 lies beyond the cliff of the square. Where must float32 begin?",
    swap=("x.float().square()", "x.square().float()"),
)
check_unit_rms.slip(
    "eps-may-stand-anywhere",
    "The mean square is near eps here. Is eps added below the root, or after it?",
    swap=("(mean + 1e-8).sqrt()", "(mean.sqrt() + 1e-8)"),
)
check_unit_rms.slip(
    "a-larger-eps-costs-nothing",
    "A larger eps is a value FP16 holds, and it shrinks small rows. Can you keep 1e-8?",
    swap=("mean + 1e-8", "mean + 1e-3"),
)
