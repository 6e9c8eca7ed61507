"""Checks of lab 03: rounding at random, a variance in one pass, rounding twice."""

import math
import random

import numpy as np
import torch

from labkit.formats import BF16, quantize, spacing
from labkit.labs.engine import Mistake, attempt, check, number, several, tensor
from labkit.labs.engine.messages import fill, show
from labkit.labs.overflow_underflow_rounding.checks.shared import uniform_tensor

LAB = "03_overflow_underflow_rounding"

_STRANGE = "{call}: {got:exact} came out; the BF16 neighbours are {low:exact} and {high:exact}."
_EXACT_MOVED = "{call}: {got:exact} came out; {low:exact} is a BF16 value already and must stay."
_SHARE = (
    "{call}: a share of {share:.3f} became {high:exact}. x lies {part:.3f} of the way from "
    "{low:exact} to {high:exact}, so a share of {part:.3f} is expected."
)
_ALL_ALIKE = (
    "{call}: All 4096 copies became {got:exact}; a share of {part:.3f} should become {high:exact}. "
    "Does each copy have a draw of its own, and do you compare the draw with that share?"
)
_NOT_IN_GAPS = "Your share is the distance to the lower neighbour itself: divide it by the gap."
_FROM_NEAREST = (
    "Where x was nearer to its lower neighbour, your share was right. From which neighbour do you "
    "measure here, the lower or the nearest?"
)
_SAME_DRAWS = (
    "{call}: each copy went the same way as in the first call. A seed inside the function repeats "
    "the draws: leave the seed to the caller."
)
_NEGATIVE = (
    "For the positive x before, your shares were right. The lower neighbour of a negative x is the "
    "one away from zero: do you measure from there?"
)

_MEAN = "`{call}`: the mean is {got}; {want} is expected."
_VARIANCE = "`{call}`: the variance is {got}; {want} is expected."
_EXCHANGED = "`{call}`: you return {got} first, which is the variance; the mean comes first."
_SINGLE = (
    "The gap of float32 at 1e9 is 64, that of a Python float 1e-7: in which dtype do you keep the "
    "mean?"
)
_VARIANCES = {
    "root": "Yours is the root of the variance.",
    "sum": "Yours is {n} times the right one: what must the sum of squares be divided by?",
    "times": "Yours is {times:.3g} times the right one, for n = {n}.",
    "zero": "The stream can be read only once: a second loop over it gets no numbers.",
}

_NO_HAIR = "hair is {x}; a finite number within the range of BF16 is expected."
_HAIR = (
    "{x} is {hex}. It becomes {once:exact} with one rounding and with two. In float32 it is "
    "{single}{what}"
)
_HAIRS = {
    None: ", and BF16 holds it.",
    "a-tie-is-enough": ": a tie of BF16 before and after.",
    "both-sides-of-a-tie-differ": ": a tie.",
    "float32-rounds-nothing-away": ": no tie.",
    "every-second-rounding-hurts": ": far from a tie.",
}


# Fair rounding

_COINS = 4096
# floor(x / gap + draw) moves an exact value where float32 rounds up to the next whole number: of a
# gap in 128 to 256 that is one draw in 2**17, and three of 4096 in one of 2 million.
_STRAYS = 2
_FAIR_INPUTS = [
    1 + 2.0**-9,
    1 + 3 * 2.0**-9,
    -(1 + 2.0**-9),
    3 + 2.0**-8,
    0.3,
    1.5,
    2.0,
    -0.75,
    0.0,
]


def _fair_inputs(seed):
    """The values above, eight drawn at eighths of a gap, eight at 7/16 of one, the first again.

    One draw for a whole call can round each of the others to nearest. At 7/16 of a gap it does so
    with probability 9/16: for all eight, at one seed in 100.
    """
    draw = random.Random(seed)
    drawn = [draw.choice((-1, 1)) * draw.randrange(1024, 2048) / 1024 for _ in range(8)]
    drawn = [math.ldexp(x, draw.randint(-8, 8)) for x in drawn]
    near_half = [2.0**k * (1 + 7 * 2.0**-11) for k in range(8)]
    return [*_FAIR_INPUTS, *drawn, *near_half, _FAIR_INPUTS[0]]


def run_fair_round(fair_round, seed):
    """`fair_round` on 4096 copies of each value, after seeding torch."""
    torch.manual_seed(seed)
    return [attempt(fair_round, torch.full((_COINS,), x)) for x in _fair_inputs(seed)]


@check(run_fair_round, bits=True, own_work=("labkit.formats.quantize",))
def check_fair_round(answers, seed):
    """Stochastic rounding to BF16: both neighbours, and the right mean."""
    inputs = _fair_inputs(seed)
    for x, got in zip(inputs, answers, strict=True):
        x = torch.tensor(x).item()  # as float32 holds it
        call = f"fair_round of {_COINS} times {show(x)}"
        values = tensor(got, call=call, shape=(_COINS,)).double()
        low, high = quantize(x, BF16, rounding="down"), quantize(x, BF16, rounding="up")
        strange = values[(values != low) & (values != high)]
        if len(strange) > (_STRAYS if low == high and _is_next(strange, x) else 0):
            raise Mistake(
                _EXACT_MOVED if low == high else _STRANGE,
                misconception=_strange_idea(x, values, low, high),
                call=call,
                got=strange[0].item(),
                low=low,
                high=high,
            )
        if low == high:
            continue
        part = (x - low) / (high - low)
        share = (values == high).double().mean().item()
        # Six standard deviations of a mean of 4096 draws: one right answer in 5e8 would fail.
        if abs(share - part) > 6 * math.sqrt(part * (1 - part) / _COINS):
            idea = _fair_idea(answers, inputs, share, part)
            said = fill(
                _ALL_ALIKE if share in (0, 1) and x > 0 else _SHARE,
                call=call,
                got=values[0].item(),
                share=share,
                part=part,
                low=low,
                high=high,
            )
            why = "" if idea else _fair_reason(x, share, part, high - low)
            raise Mistake(f"{said} {why}".rstrip(), misconception=idea)
    if torch.equal(answers[0].double(), answers[-1].double()):
        raise Mistake(_SAME_DRAWS, call=f"fair_round of {_COINS} times {show(inputs[0])}, again")


def _fair_reason(x, share, part, gap):
    """What is true of a wrong share, after the right ones of the inputs before it."""
    if x < 0:
        return _NEGATIVE
    if share == 1 and part > 0.5:
        return _FROM_NEAREST
    # Six standard deviations again.
    near = abs(share - part * gap) <= 6 * math.sqrt(part * gap / _COINS)
    return _NOT_IN_GAPS if gap < 1 and share > 0 and near else ""


def _is_next(strange, x):
    return bool(((strange - x).abs() <= spacing(x, BF16)).all())


def _strange_idea(x, values, low, high):
    if low == high:
        return "exact-values-move-too"
    on_the_grid_of_one = (values * 2**7 == (values * 2**7).round()).all()
    return "ulp-is-constant" if on_the_grid_of_one and high - low != 2.0**-7 else None


def _fair_idea(answers, inputs, share, part):
    if share in (0, 1):
        nearest = all(
            isinstance(got, torch.Tensor) and (got == quantize(x, BF16)).all()
            for x, got in zip(torch.tensor(inputs).tolist(), answers, strict=True)
        )
        return "nearest-is-fair" if nearest else None
    if abs(share - 0.5) < 0.05:
        return "fair-means-half"
    # 1/4 and 3/4 of a gap, exchanged both: noise of a whole gap before a cast does one of them.
    shares = [_share_above(x, got) for x, got in zip(inputs[:2], answers[:2], strict=True)]
    exchanged = abs(shares[0] - 0.75) < 0.05 and abs(shares[1] - 0.25) < 0.05
    return "nearer-is-less-likely" if exchanged else None


def _share_above(x, got):
    """The share of the neighbour above x; NaN of what is no tensor."""
    if not isinstance(got, torch.Tensor):
        return math.nan
    return (got == quantize(x, BF16, rounding="up")).double().mean().item()


check_fair_round.slip(
    "fair-means-half",
    "About half of the copies go up, however near x lies to a neighbour. With which probability "
    "must a copy go up, so that the mean is x?",
    swap=("(x - below) / gap", "0.5 * (x > below)"),
)
check_fair_round.slip(
    "nearest-is-fair",
    "Yours rounds to nearest, which loses a small remainder each time. What must you compare with "
    "a random draw to keep the remainder on average?",
    swap=("torch.rand(x.shape) <", "0.5 <"),
)
check_fair_round.slip(
    "nearer-is-less-likely",
    "The probabilities are exchanged. If x is near the lower neighbour, "
    "which one should it become more often?",
    swap=("torch.rand(x.shape) <", "torch.rand(x.shape) >"),
)


@check_fair_round.wrong(
    "exact-values-move-too",
    "Yours moves values that BF16 holds already, and these must stay. What is the distance of such "
    "a value to the neighbour below, in gaps?",
)
def _(x):
    return (x + spacing(x, BF16) * (2 * torch.rand(x.shape) - 1)).bfloat16().float()


check_fair_round.slip(
    "ulp-is-constant",
    "Your results are multiples of 2**-7, the gap at 1. What is the gap at this x?",
    swap=("gap = spacing(x, BF16)", "gap = 2.0**-7"),
)


# Welford

_STREAMS = {
    "1, 2, 3, 4": [1.0, 2.0, 3.0, 4.0],
    "1e9, 1e9 + 1, 1e9 + 2": [1e9, 1e9 + 1, 1e9 + 2],
    "one number, 7": [7.0],
}


def _streams(seed):
    """The streams above, and 100 numbers from 0 to 1."""
    return _STREAMS | {"100 numbers": uniform_tensor(seed, 100).double().tolist()}


def run_welford(welford, seed):
    """`welford` on streams that can be read once."""
    return {name: attempt(welford, iter(stream)) for name, stream in _streams(seed).items()}


@check(
    run_welford,
    own_work=(
        "numpy.var",
        "numpy.ndarray.var",
        "torch.var",
        "torch.Tensor.var",
        "torch.var_mean",
        "statistics.pvariance",
        "numpy.std",
        "numpy.ndarray.std",
        "torch.std",
        "torch.Tensor.std",
        "torch.std_mean",
        "statistics.pstdev",
    ),
)
def check_welford(answers, seed):
    """Mean and variance of a stream, also when the mean is a billion."""
    for name, stream in _streams(seed).items():
        got, call = answers[name], f"welford({name})"
        mean, variance = (number(value, call=call) for value in several(got, 2, call=call))
        right = float(np.mean(np.array(stream, dtype=np.longdouble)))
        spread = np.mean((np.array(stream) - right) ** 2).item()
        # float64 keeps 1e9 to 1e-7; a stable formula loses a few such steps and no more.
        if not abs(mean - right) <= 1e-12 * abs(right):
            exchanged = math.isclose(variance, right) and math.isclose(mean, spread)
            said = fill(_EXCHANGED if exchanged else _MEAN, call=call, got=mean, want=right)
            # 1e9 is the float32 nearest to all three.
            single = stream[0] == mean == 1e9
            raise Mistake(f"{said} {_SINGLE}" if single else said, search=False)
        if not abs(variance - spread) <= 1e-5 * spread:
            said = fill(_VARIANCE, call=call, got=variance, want=spread)
            # Near 1e9 a variance of 0 has another cause.
            why = _variance_kind(variance, len(stream), spread) if right < 1e9 else ""
            idea = _welford_idea(variance, stream, spread)
            raise Mistake(f"{said} {why}".rstrip(), misconception=idea)


def _variance_kind(variance, n, spread):
    if variance == 0:
        return _VARIANCES["zero"]
    if not spread or not math.isfinite(variance) or not 0.1 < variance / spread < 2 * n:
        return ""
    if math.isclose(variance, math.sqrt(spread), rel_tol=1e-9):
        return _VARIANCES["root"]
    kind = "sum" if math.isclose(variance, spread * n, rel_tol=1e-9) else "times"
    return fill(_VARIANCES[kind], n=n, times=variance / spread)


def _welford_idea(variance, stream, spread):
    n = len(stream)
    if stream[0] == 1e9 and not 0.1 < variance < 10:
        return "algebra-survives-rounding"
    if n > 1 and math.isclose(variance, spread * n / (n - 1), rel_tol=1e-9):
        return "variance-divides-by-n-minus-1"
    squared = [w for w in check_welford.known_wrong if w.misconception == "either-mean-will-do"]
    if any(math.isclose(variance, wrong.answer(stream)[1]) for wrong in squared):
        return "either-mean-will-do"
    return None


@check_welford.wrong(
    "algebra-survives-rounding",
    "1e9 squared is 1e18, where the gap of float64 is 128. What could you square instead of x?",
)
def _(stream):
    values = list(stream)
    mean = sum(values) / len(values)
    return mean, sum(x * x for x in values) / len(values) - mean**2


check_welford.slip(
    "variance-divides-by-n-minus-1",
    "Yours divides by n - 1. By what does the exercise divide?",
    swap=("squares / n", "squares / max(n - 1, 1)"),
)
check_welford.slip(
    "either-mean-will-do",
    "Multiply the difference of x from the old mean by its difference from the new mean. Which two "
    "differences does yours multiply?",
    swap=("(x - before) * (x - mean)", "(x - before) ** 2"),
)
check_welford.slip(
    "either-mean-will-do",
    "Multiply the difference of x from the old mean by its difference from the new mean. Which two "
    "differences does yours multiply?",
    swap=("(x - before) * (x - mean)", "(x - mean) ** 2"),
)


# Rounded twice


def run_hair(hair):
    """A number is data already."""
    return hair


@check(run_hair, bits=True)
def check_hair(hair):
    """A number that the cast by way of float32 rounds to a wrong BF16 value."""
    x = number(hair, call="hair")
    once = quantize(x, BF16)
    through = torch.tensor(x, dtype=torch.float64).float()
    twice = through.bfloat16().item()
    # Less than half a gap above max the nearest value is max, where the cast may give inf.
    if math.isfinite(x) and once != twice:
        return
    if not abs(x) <= BF16.max:
        raise Mistake(_NO_HAIR, x=str(x))
    idea = _hair_idea(x, through.item())
    raise Mistake(
        _HAIR,
        x=repr(x),
        hex=x.hex(),
        once=once,
        single=through.item().hex(),
        what=_HAIRS[idea],
        misconception=idea,
    )


def _hair_idea(x, through):
    """Where x and its float32 value lie in a gap of BF16, as the idea that this shows."""
    low, high = quantize(x, BF16, rounding="down"), quantize(x, BF16, rounding="up")
    middle = (low + high) / 2
    if low == high:
        return None
    if x == middle:
        return "a-tie-is-enough"
    if through == middle:
        return "both-sides-of-a-tie-differ"
    near = abs(x - middle) < abs(middle) * 2.0**-10
    return "float32-rounds-nothing-away" if near else "every-second-rounding-hurts"


check_hair.slip(
    "a-tie-is-enough",
    "Your number is a tie before any cast. A Python float has 52 mantissa bits and float32 has 23: "
    "which small addend would the first keep and the second lose?",
    cut=" + 2**-30",
)
check_hair.slip(
    "float32-rounds-nothing-away",
    "float32 keeps your distance from the tie. How small must the distance be, beside 1, for "
    "float32 to lose it?",
    swap=("2**-30", "2**-20"),
)
check_hair.wrong(
    "every-second-rounding-hurts",
    "One rounding and two almost always agree. Where in a gap must x lie for them to differ?",
)(0.1)
check_hair.slip(
    "both-sides-of-a-tie-differ",
    "In float32 your number is a tie and goes to even, which was the nearer value anyway. On which "
    "side of the tie must your number lie?",
    swap=("+ 2**-30", "- 2**-30"),
)
