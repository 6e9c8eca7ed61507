"""Checks of lab 03: masked attention, and a norm whose eps is there."""

import math
import random

import torch

from labkit.labs.engine import Mistake, attempt, check, tensor
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill
from labkit.labs.overflow_underflow_rounding.checks.shared import row_text

LAB = "03_overflow_underflow_rounding"

_RAISED = "`{call}` raised: {error}."
_CHANGED = (
    "`masked_softmax` changes its argument: after the call `scores` holds other values. Which "
    "operation returns a new tensor?"
)
_EXCHANGED = (
    "All your weight in this row lies where keep is False: either keep is exchanged, or your "
    "hidden scores are not below the kept ones."
)
_OTHER_AXIS = (
    "Your weights are those of a softmax over axis {axis} of shape {shape}. The softmax must run "
    "over the last axis: dim=-1."
)
_HIDDEN_WEIGH = (
    "Scores {scores}, keep {keep}: your hidden positions have {share:.3g} of the weight and should "
    "have 0. Your weights are {got}."
)
_KEPT_DIFFER = (
    "Scores {scores}, keep {keep}: the kept positions should get {want}; your weights are {got}."
)
_NOT_FINITE = "Scores {scores}, keep {keep}: your weights are {got}. They must be finite."
_NO_WEIGHTS = (
    "Scores {scores}, keep {keep}: your weights are {got}. Each must lie "
    "between 0 and 1, and their sum must be at most 1."
)

_OTHER_ROW = "`unit_rms(x)` turns the row {row} into {got}; {want} is expected."
_NORMS = {
    "all": "You divide by the mean square of the whole tensor: each row has one of its own.",
    "columns": "You divide by the mean squares of columns: which axis runs along a row?",
    "no root": "Your result is x divided by the mean square: divide by its root.",
    "sum": (
        "Your result is x divided by the root of the sum of squares: take the mean of the squares."
    ),
    "centred": "You subtracted mean(x) from x; the formula does not.",
    "eps": "Your result is that of an eps of {eps:.3g}.",
    "nothing": "Your result is 0 / 0: no eps is left in the divisor.",
    "no eps": "This row comes out as it does without an eps.",
}


# Masked attention

_SCORES = [
    ([2.0, 1.0, 0.5, -1.0], [True, True, False, True]),
    ([0.0, 0.5, -0.5, 3.0], [True, True, True, True]),
    ([200.0, -300.0, -301.0, 150.0], [False, True, True, False]),
    ([7.0, 9.0, 8.0, 1.0], [False, False, True, False]),
    ([3.0, 2.0, 1.0, 0.0], [False] * 4),
    ([-40.0, -41.0, -42.0, -43.0], [False] * 4),
    ([-20000.0, 5.0, -20000.0, -20016.0], [True, False, True, False]),
    ([-60000.0, 5.0, -59968.0, -60000.0], [True, False, False, True]),
]


def _scores(seed):
    """The rows above, and four that are drawn, none of which is hidden as a whole."""
    draw = random.Random(seed)
    rows = list(_SCORES)
    for shown in range(4):
        keep = [draw.random() < 0.5 or place == shown for place in range(4)]
        rows.append(([draw.randint(-32, 32) / 4 for _ in range(4)], keep))
    scores = torch.tensor([row for row, _ in rows], dtype=torch.float16)
    return scores.view(3, 4, 4), torch.tensor([keep for _, keep in rows]).view(3, 4, 4)


def run_masked_softmax(masked_softmax, seed):
    """`masked_softmax` on twelve rows of scores at once, and the scores after the call."""
    scores, keep = _scores(seed)
    return attempt(masked_softmax, scores, keep), scores


@check(run_masked_softmax)
def check_masked_softmax(answer, seed):
    """Attention weights: masked places get 0, and a row with nothing to attend to is no NaN."""
    call, (weights, after) = "masked_softmax(scores, keep)", answer
    if type(weights) is Raised and "without overflow" in weights.message:
        raise Mistake(
            _RAISED, misconception="mask-constant-overflows", call=call, error=weights.message
        )
    scores, keep = _scores(seed)
    weights = tensor(weights, call=call, shape=scores.shape, dtype=torch.float16).double()
    _judge_axis(weights, scores, keep)
    wanted = scores.double().masked_fill(~keep, -math.inf).softmax(dim=-1)
    parts = (part.view(-1, 4) for part in (weights, scores.double(), keep, wanted))
    for row in zip(*parts, strict=True):
        _judge_row(*row)
    if not torch.equal(after, scores):
        raise Mistake(_CHANGED)


def _judge_axis(weights, scores, keep):
    filled = scores.masked_fill(~keep, torch.finfo(scores.dtype).min).double()
    for axis in (0, 1):
        if _near(weights, filled.softmax(dim=axis)):
            raise Mistake(_OTHER_AXIS, axis=axis, shape=tuple(scores.shape))


def _near(got, other):
    # Differences, exponentials, their sum of 4 and the quotient: each within u = 2**-11 of
    # something that adds at most u to a weight; |d| exp(-|d|) <= 1/e for a difference d.
    return bool((got - other).abs().max() <= 8 * 2.0**-11)


def _judge_row(got, scores, keep, wanted):
    said = {"scores": row_text(scores), "keep": str(keep.tolist()), "got": row_text(got)}
    if not got.isfinite().all():
        raise Mistake(_NOT_FINITE, **said)
    if not keep.any():
        if not ((got >= 0) & (got <= 1)).all() or got.sum() > 1 + 2.0**-9:
            raise Mistake(_NO_WEIGHTS, **said)
        return
    if _near(got, wanted):
        return
    if _near(got, scores.softmax(dim=0) * keep):
        raise Mistake(
            _KEPT_DIFFER, misconception="mask-after-the-softmax", want=row_text(wanted), **said
        )
    share = got[~keep].sum().item()
    if share > 8 * 2.0**-11:
        evidence = fill(_HIDDEN_WEIGH, share=share, **said)
        if _near(got, scores.masked_fill(keep, -math.inf).softmax(dim=0)):
            raise Mistake(f"{evidence} {_EXCHANGED}")
        raise Mistake(evidence, misconception=_hidden_idea(got, scores, keep))
    raise Mistake(_KEPT_DIFFER, want=row_text(wanted), **said)


def _hidden_idea(got, scores, keep):
    if scores[keep].max() > -10 and _near(got, (scores * keep).softmax(dim=0)):
        return "masked-means-score-zero"
    # The softmax of the kept scores, and of one constant at the hidden positions: every weight of
    # theirs is the same, and the share of the kept is divided as it should be.
    hidden, kept = got[~keep], got[keep]
    even = _near(hidden, hidden[0]) and _near(kept, kept.sum() * scores[keep].softmax(dim=0))
    # Or nothing was hidden at all: of unequal scores the constant could not be seen.
    whole = abs(got.sum() - 1) <= 8 * 2.0**-11 and not _near(got, scores.softmax(dim=0))
    return "any-negative-number-masks" if even and whole and scores.min() < -100 else None


_FILLED = "scores.masked_fill(~keep, torch.finfo(scores.dtype).min)"
check_masked_softmax.slip(
    "mask-constant-overflows",
    "Below -65504 FP16 has only -inf, and the softmax of a row of -inf is NaN. "
    "What is the lowest finite value of the scores' own dtype?",
    swap=(_FILLED, "torch.where(keep, scores, -1e9)"),
)
check_masked_softmax.slip(
    "adding-is-replacing",
    "-40 + finfo.min is below finfo.min, so it is -inf again. Which call replaces a score instead "
    "of adding to it?",
    swap=(_FILLED, "(scores + (~keep).half() * torch.finfo(scores.dtype).min)"),
)
check_masked_softmax.slip(
    "masked-means-score-zero",
    "A hidden score of 0, or near 0, still adds exp(0) = 1 to the sum. Which finite score is so "
    "low that its exp becomes 0?",
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
    "Here your constant is not far enough below the kept scores. Which finite score is the lowest?",
    swap=("torch.finfo(scores.dtype).min", "-100.0"),
)


# An eps that is there

_RMS_ROWS = {
    "ordinary": [1.0, -2.0, 0.5, 3.0],
    "zeros": [0.0] * 4,
    "large": [300.0, -400.0, 500.0, 60000.0],
    "tiny": [2.0**-14, -(2.0**-14), 2.0**-14, 2.0**-14],
    "small": [1e-3, -2e-3, 5e-4, 3e-3],
    # An eps after the root still counts here, and makes this row 0.99; no eps makes it 1.
    "faint": [2.0**-20, -(2.0**-20), 2.0**-20, 2.0**-20],
}


def _rows(seed):
    """The rows above, and two that are drawn, as one tensor."""
    draw = random.Random(seed)
    drawn = [[draw.gauss(0, 10.0**size) for _ in range(4)] for size in (-3, 3)]
    return torch.tensor([*_RMS_ROWS.values(), *drawn], dtype=torch.float16)


def run_unit_rms(unit_rms, seed):
    """`unit_rms` on eight FP16 rows at once."""
    return attempt(unit_rms, _rows(seed))


@check(
    run_unit_rms, own_work=("torch.nn.functional.rms_norm", "torch.rms_norm", "torch.nn.RMSNorm")
)
def check_unit_rms(answer, seed):
    """RMS normalisation of FP16 rows: zeros, large and tiny values, and an eps that counts."""
    x = _rows(seed).double()
    result = tensor(answer, call="unit_rms(x)", shape=tuple(x.shape), dtype=torch.float16).double()
    wanted = x / (x.square().mean(dim=-1, keepdim=True) + 1e-8).sqrt()
    names = [*_RMS_ROWS, "small and drawn", "large and drawn"]
    for name, row, got, want in zip(names, x, result, wanted, strict=True):
        # One rounding to FP16 (2**-11, or half of 2**-24), and float32's own 2**-22 or so.
        if ((got - want).abs() <= want.abs() * 2.0**-10 + 2.0**-25).all():
            continue
        kind, eps = _norm_kind(x, result, row, got)
        said = fill(_OTHER_ROW, row=row_text(row), got=row_text(got), want=row_text(want))
        why = fill(_NORMS[kind], eps=eps) if kind else ""
        raise Mistake(f"{said} {why}".rstrip(), misconception=_norm_idea(name, x, result, eps))


def _close(got, other):
    return bool(((got - other).abs() <= other.abs() * 2.0**-6 + 2.0**-24).all())


def _norm_kind(x, result, row, got):
    """What is true of a wrong row, as a key of _NORMS, and the eps that it shows."""
    if not row.any() and got.isnan().all():
        return "nothing", 0.0
    squares = x.square()
    centred = x - x.mean(dim=-1, keepdim=True)
    shapes = {
        "all": x / (squares.mean() + 1e-8).sqrt(),
        "columns": x / (squares.mean(dim=0) + 1e-8).sqrt(),
        "no root": x / (squares.mean(dim=-1, keepdim=True) + 1e-8),
        "sum": x / (squares.sum(dim=-1, keepdim=True) + 1e-8).sqrt(),
        "centred": centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-8).sqrt(),
    }
    for kind, other in shapes.items():
        # On 60000 the result without its root is below what FP16 holds; the first row shows all.
        if _close(result[0], other[0]):
            return kind, 0.0
    eps = _shown_eps(row, got)
    if eps is None:
        return None, 0.0
    return ("eps", eps) if eps > 1e-10 else ("no eps", 0.0)


def _shown_eps(row, got):
    """The eps of a row's own formula; None where the row is no such result."""
    if not row.any() or not got.isfinite().all() or not (got != 0).all():
        return None
    shown = (row / got).square() - row.square().mean()
    room = 2.0**-9 * (row / got).square()
    return shown.mean().item() if (shown - shown.mean()).abs().max() <= room.max() else None


def _norm_idea(name, x, result, eps):
    rows = dict(zip(_RMS_ROWS, result, strict=False))  # those that are drawn show no idea
    if name == "zeros" and rows["zeros"].isnan().any():
        # With an eps of 0 in FP16 the tiny row is x / 0; with no eps in float32 it is 1.
        return None if rows["tiny"].isfinite().all() else "eps-fits-every-format"
    if name == "large" and (rows["large"] == 0).all():
        return "upcast-too-late"
    after = dict(zip(_RMS_ROWS, x / (x.square().mean(-1, True).sqrt() + 1e-8), strict=False))
    if name == "tiny" and _close(rows["tiny"], after["tiny"]):
        # Without any eps the faint row is 1 or -1.
        counts = bool((rows["faint"].abs() < 1).all()) and _close(rows["faint"], after["faint"])
        return "eps-may-stand-anywhere" if counts and not rows["zeros"].any() else None
    return "a-larger-eps-costs-nothing" if eps > 5e-8 else None


check_unit_rms.slip(
    "eps-fits-every-format",
    "1e-8 is below 2**-25, so eps is 0 in FP16. In which dtype must the addition happen?",
    swap=("x.float().square()", "x.square()"),
)
check_unit_rms.slip(
    "upcast-too-late",
    "300 squared overflows FP16. Which operation must be the first in float32?",
    swap=("x.float().square()", "x.square().float()"),
)
check_unit_rms.slip(
    "eps-may-stand-anywhere",
    "The mean square of this row is about as small as eps. Do you add eps under the root, or after "
    "it?",
    swap=("(mean + 1e-8).sqrt()", "(mean.sqrt() + 1e-8)"),
)
check_unit_rms.slip(
    "a-larger-eps-costs-nothing",
    "A larger eps shrinks small rows. In which dtype can you keep 1e-8?",
    swap=("mean + 1e-8", "mean + 1e-3"),
)
