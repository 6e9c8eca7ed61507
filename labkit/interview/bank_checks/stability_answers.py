"""Checks of the code questions on numerical stability: a softmax for FP16, the online softmax."""

import math
import reprlib

import torch

from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import came
from labkit.labs.engine.reading import failure

LAB = "interview"

RAISED = "{name}: {error}."
NO_TENSOR = "{name}: {came} came back; a tensor is wanted."
OTHER_SHAPE = "{name}: the shape is {got}; {want} is wanted."
OTHER_DTYPE = "{name}: the dtype is {got}; {want} is wanted."
OTHER_WEIGHT = (
    "{name}: of the row {row} weight {place} is {got:.7g} in your softmax; {want:.7g} is wanted."
)
NO_STATE = "{name}: `absorb` gave {came}; the new m, l and o are wanted."
OTHER_AVERAGE = "{name}: o / l is {got}; {want} is wanted."


# Softmax

_ROWS = {
    "ordinary scores": [[1.0, 2.0, 3.0], [0.5, -0.5, 0.0]],
    "scores of 12 and 11": [[12.0, 11.0, 1.0], [0.0, 0.0, 0.0]],
    "scores of thousands": [[60000.0, 59999.0, -60000.0], [-30000.0, -30000.0, -30000.0]],
    "hidden places of -inf": [[-math.inf, 1.0, 2.0], [-math.inf, -math.inf, 5.0]],
    "single places": [[7.0], [-40000.0]],
    "5000 equal scores": [[3.0] * 5000],
}


def run_softmax(softmax):
    """`softmax` over the last axis of FP16 tensors."""
    return {
        name: attempt(softmax, torch.tensor(rows, dtype=torch.float16))
        for name, rows in _ROWS.items()
    }


@check(run_softmax)
def check_softmax(answers):
    """A softmax of FP16 scores that neither overflows nor loses a long sum."""
    for name, rows in _ROWS.items():
        scores = torch.tensor(rows, dtype=torch.float16).double()
        got = _tensor(answers[name], name, scores.shape, torch.float16)
        wanted = scores.softmax(dim=-1)
        # Three roundings to FP16 where all of it is done there; a single weight is exactly 1.
        room = (wanted * 2.0**-10 + 2.0**-25) * (wanted != 1)
        bad = ~((got - wanted).abs() <= room)
        if not bad.any():
            continue
        row, place = bad.nonzero()[0].tolist()
        found, right = got[row, place].item(), wanted[row, place].item()
        raise Mistake(
            OTHER_WEIGHT,
            name=name,
            row=reprlib.repr(rows[row]),
            place=place,
            got=found,
            want=right,
            misconception=_softmax_idea(name, got),
        )


def _softmax_idea(name, got):
    if name == "scores of 12 and 11" and not got.isfinite().all():
        return "exp-never-overflows"
    if name == "scores of 12 and 11" and (got[0] == 0).all():
        return "exp-never-overflows"
    # With no shift at all exp(60000) is inf, and exp(-30000) is 0 in a row of nothing else.
    if name == "scores of thousands" and not got.isfinite().any(dim=1).any():
        return "wider-dtype-replaces-the-shift"
    # An FP16 sum of ones stops at 2048.
    if name == "5000 equal scores" and (got - 1 / 2048).abs().max() < 1e-6:
        return "sums-in-sixteen-bits-are-enough"
    return None


def _tensor(got, name, shape, dtype=None):
    """What came back, as a float64 tensor of this shape."""
    if type(got) is Raised:
        raise AnswerError(RAISED, name=name, error=failure(got))
    if not isinstance(got, torch.Tensor):
        raise Mistake(NO_TENSOR, name=name, came=came(got))
    if tuple(got.shape) != tuple(shape):
        raise Mistake(OTHER_SHAPE, name=name, got=tuple(got.shape), want=tuple(shape))
    if dtype is not None and got.dtype != dtype:
        raise Mistake(OTHER_DTYPE, name=name, got=str(got.dtype), want=str(dtype))
    return got.double()


@check_softmax.wrong(
    "exp-never-overflows", "exp(12) is beyond 65504. Which shift makes every exponential at most 1?"
)
def _(x):
    weights = x.exp()
    return weights / weights.sum(dim=-1, keepdim=True)


@check_softmax.wrong(
    "wider-dtype-replaces-the-shift",
    "float32 moves the limit of exp to 88.7. FP16 scores go to 65504: what keeps them safe?",
)
def _(x):
    weights = x.float().exp()
    return (weights / weights.sum(dim=-1, keepdim=True)).half()


@check_softmax.wrong(
    "sums-in-sixteen-bits-are-enough",
    "Your sum of 5000 ones is off. In which dtype is it made?",
)
def _(x):
    weights = (x - x.max(dim=-1, keepdim=True).values).exp()
    total = torch.zeros_like(weights[..., :1])
    for place in range(weights.shape[-1]):
        total = total + weights[..., place : place + 1]
    return weights / total


# Online softmax


def _blocks():
    """Name -> blocks of (scores, values)."""
    generator = torch.Generator().manual_seed(21)

    def made(sizes, width, add):
        return [
            (3 * torch.randn(size, generator=generator) + shift,
             torch.randn(size, width, generator=generator))
            for size, shift in zip(sizes, add, strict=True)
        ]  # fmt: skip

    return {
        "one block": made([5], 3, [0.0]),
        "blocks with rising scores": made([4, 3, 5], 2, [0.0, 5.0, 10.0]),
        "blocks with falling scores": made([4, 3, 5], 2, [10.0, 5.0, 0.0]),
        "a second block far below the first": made([2, 2], 2, [200.0, 0.0]),
        "scores of 1000": made([3, 3], 2, [1000.0, 1000.0]),
    }


def run_online_softmax(absorb):
    """`absorb` over blocks, from an empty state; then the sum of values over the sum of weights."""
    return {name: attempt(_through, absorb, blocks) for name, blocks in _blocks().items()}


def _through(absorb, blocks):
    m, total, o = torch.tensor(-math.inf), torch.tensor(0.0), torch.zeros(blocks[0][1].shape[1])
    for scores, values in blocks:
        state = absorb(m, total, o, scores, values)
        if not isinstance(state, tuple | list) or len(state) != 3:
            return state
        m, total, o = state
    return [torch.as_tensor(x) for x in (m, total, o)]


@check(run_online_softmax)
def check_online_softmax(answers):
    """A softmax average over blocks, with a running maximum, sum and output."""
    for name, blocks in _blocks().items():
        got = answers[name]
        if type(got) is Raised:
            _tensor(got, name, ())
        if not isinstance(got, tuple | list) or len(got) != 3:
            raise Mistake(NO_STATE, name=name, came=came(got))
        scores = torch.cat([block[0] for block in blocks]).double()
        values = torch.cat([block[1] for block in blocks]).double()
        _tensor(got[0], f"{name}, m", ())
        total = _tensor(got[1], f"{name}, l", ())
        output = _tensor(got[2], f"{name}, o", (values.shape[1],))
        wanted = scores.softmax(dim=0) @ values
        reach = scores.softmax(dim=0) @ values.abs()
        # float32: each weight passes few roundings, and its exponent is off by |score| * 2**-24.
        room = (2.0**-18 + 2.0**-23 * scores.abs().max()) * reach
        if ((output / total - wanted).abs() <= room).all():
            continue
        idea = _online_idea(got, blocks)
        mean, want = _row(output / total), _row(wanted)
        raise Mistake(OTHER_AVERAGE, name=name, got=mean, want=want, misconception=idea)


def _row(row):
    return "[" + ", ".join(f"{value:.5g}" for value in row.tolist()) + "]"


def _online_idea(got, blocks):
    for wrong in check_online_softmax.known_wrong:
        other = attempt(_through, wrong.answer, blocks)
        if not isinstance(other, list):
            continue
        pairs = zip(got, other, strict=True)
        if all(torch.allclose(x.double(), y.double(), equal_nan=True) for x, y in pairs):
            return wrong.misconception
    return None


def _absorb(m, total, o, scores, values, *, sum_too=True, output_too=True, running=True):
    top = torch.maximum(m, scores.max()) if running else scores.max()
    weights = (scores - top).exp()
    old = (m - top).exp()
    total = (total * old if sum_too else total) + weights.sum()
    o = (o * old if output_too else o) + weights @ values
    return top, total, o


@check_online_softmax.wrong(
    "old-output-keeps-its-scale",
    "The old output was weighted relative to the old maximum. What must happen to it when the "
    "maximum rises?",
)
def _(m, total, o, scores, values):
    return _absorb(m, total, o, scores, values, output_too=False)


@check_online_softmax.wrong(
    "old-sum-keeps-its-scale",
    "The old sum was made relative to the old maximum. What must happen to it when the maximum "
    "rises?",
)
def _(m, total, o, scores, values):
    return _absorb(m, total, o, scores, values, sum_too=False)


@check_online_softmax.wrong(
    "the-block-maximum-is-enough",
    "With a first block at 200 and a second at 0, exp(m - new) is exp(200). Which maximum never "
    "makes that exponent positive?",
)
def _(m, total, o, scores, values):
    return _absorb(m, total, o, scores, values, running=False)
