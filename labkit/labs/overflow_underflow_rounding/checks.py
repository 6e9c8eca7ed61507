"""Checks of lab 03: cliffs, log-sum-exp, masks, eps; products, sums, fair rounding, tolerances."""

import math
import reprlib

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from labkit.formats import BF16, FP16, quantize, spacing
from labkit.formats.dtypes import name_of
from labkit.formats.matmul import mixed_matmul
from labkit.labs.engine import Mistake, attempt, calls, check, number, predict
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.comparing import AnswerError, show

LAB = "03_overflow_underflow_rounding"


# Predictions

triage = predict(
    "triage",
    lab=LAB,
    form=6,
    usual={
        (True,) * 6: (
            "Three of them stay ill with more exponent bits.",
            "nan-and-stall-are-one-illness",
        ),
        (False,) * 6: (
            "Three of them are cured by exponent bits alone.",
            "nan-and-stall-are-one-illness",
        ),
    },
)
masked_row = predict(
    "masked-row",
    lab=LAB,
    form="number",
    usual={
        0: ("-1e9 is -inf in FP16, and -inf - (-inf) is NaN.", "mask-constant-overflows"),
        0.33: ("So it is in float32. In FP16 -1e9 is -inf.", "mask-constant-overflows"),
        0.333: ("So it is in float32. In FP16 -1e9 is -inf.", "mask-constant-overflows"),
        1 / 3: ("So it is in float32. In FP16 -1e9 is -inf.", "mask-constant-overflows"),
        "inf": "The weights are a quotient; both of its parts went wrong.",
    },
)
late_upcast = predict(
    "late-upcast",
    lab=LAB,
    form="number",
    usual={
        131072: ("That is the exact sum. It met FP16 before the cast.", "upcast-too-late"),
        65504: ("FP16 rounds to inf from 65520 on; it does not stop at max.", "overflow-saturates"),
    },
)
torch_sum = predict(
    "torch-sum",
    lab=LAB,
    form="number",
    usual={
        256: (
            "A loop of adds stops there. `sum` keeps its running sum in float32.",
            "sum-adds-in-its-dtype",
        ),
        10000: "The float32 sum was exact. Then it became a BF16 value, and 10000 is none.",
    },
)
remedies = predict(
    "remedies",
    lab=LAB,
    form=5,
    usual={(True,) * 5: "Three of them cure nothing.", (False,) * 5: "Two of them work."},
)


# Cliffs

_CURVES = {
    "torch.exp": torch.exp,
    "lambda x: x * x": lambda x: x * x,
    "lambda x: x": lambda x: x,
    "lambda x: 65504 * x": lambda x: 65504 * x,
    "lambda x: x * x * x": lambda x: x * x * x,
    "lambda x: x + 65504": lambda x: x + 65504,
}
_VALUES = torch.arange(0x7C00, dtype=torch.int16).view(torch.float16)  # 0 to 65504, in order
_SAFE = {text: _VALUES[curve(_VALUES).isfinite()].max().item() for text, curve in _CURVES.items()}


@check(calls(_CURVES.values()))
def check_cliff(values):
    """The last FP16 value before the overflow, for any rising function."""
    for (text, want), got in zip(_SAFE.items(), values, strict=True):
        call = f"cliff({text})"
        value = number(got, call=call)
        if value == want:
            continue
        if not math.isfinite(value):
            raise Mistake(f"`{call}` is {value}; the largest safe x is a finite number.")
        if value.is_integer() and 0 <= value < 0x7C00 and _VALUES[int(value)] == want != value:
            raise Mistake(
                f"`{call}` is {value:g}: the code of {show(want)}. Which x has that code?"
            )
        if quantize(value, FP16) != value:
            raise Mistake(
                f"`{call}` is {value!r}, which is no FP16 value.",
                misconception="cliff-is-a-real-number"
                if abs(value - want) <= spacing(want, FP16)
                else "overflow-depends-on-the-number-alone"
                if text == "torch.exp" and value > 80
                else None,
            )
        image = torch.tensor(value, dtype=torch.float16)
        reached = _CURVES[text](image).item()
        if math.isinf(reached):
            after = want + spacing(want, FP16)
            raise Mistake(
                f"`{call}` is {show(value)}, where the result is already inf.",
                misconception="first-unsafe-is-last-safe" if value == after else None,
            )
        raise Mistake(
            f"`{call}` is {show(value)}. {show(value + spacing(value, FP16))} is safe as well.",
            misconception="only-whole-numbers-count"
            if value == math.floor(want) != want
            else "only-powers-of-two-count"
            if value and math.frexp(value)[0] == 0.5 and value > want / 2
            else None,
        )


def _bisected(f, dtype):
    """Bisection over real numbers, given to ``f`` in this dtype."""
    low, high = 0.0, 65536.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        safe = f(torch.tensor(middle, dtype=dtype)).isfinite()
        low, high = (middle, high) if safe else (low, middle)
    return low


@check_cliff.wrong(
    "cliff-is-a-real-number",
    "Between two neighbours FP16 holds nothing. Over which list of values must you bisect?",
)
def _(f):
    return _bisected(f, torch.float16)


@check_cliff.wrong(
    "overflow-depends-on-the-number-alone",
    "Up there float32 overflows. In which dtype is the x that you give to f?",
)
def _(f):
    return torch.tensor(_bisected(f, torch.float32)).item()


check_cliff.slip(
    "first-unsafe-is-last-safe",
    "When the two ends are neighbours, one is safe and one is not. Which of them do you return?",
    swap=("value(safe)", "value(unsafe)"),
)
check_cliff.slip(
    "only-whole-numbers-count",
    "You step by 1. How many FP16 values lie between 11 and 12?",
    swap=(
        "return torch.tensor(code, dtype=torch.int16).view(torch.float16)",
        "return torch.tensor(code, dtype=torch.float16)",
    ),
)


@check_cliff.wrong(
    "only-powers-of-two-count",
    "Doubling finds the octave. How do you go on inside it?",
)
def _(f):
    powers = _VALUES[::1024]
    return powers[f(powers).isfinite()].max().item()


# Log-sum-exp

_LSE_INPUTS = [
    [0.0, 0.0], [12.0, 11.0, 1.0], [100.0, 99.0], [1000.0, 0.0], [-300.0, -301.0], [5.0],
    [-math.inf, 3.0], [0.5, -2.0, 3.25, 1.0, 0.0, -7.5],
    [-math.inf, 1.0, 2.0], [-math.inf, -math.inf], [math.inf, 0.0], [math.nan, 0.0],
]  # fmt: skip


def run_logsumexp(logsumexp):
    """`logsumexp` on FP16 tensors, one call for each row."""
    return [attempt(logsumexp, torch.tensor(row, dtype=torch.float16)) for row in _LSE_INPUTS]


@check(run_logsumexp)
def check_logsumexp(values):
    """log-sum-exp in FP16 that neither overflows nor turns -inf into NaN."""
    for row, got in zip(_LSE_INPUTS, values, strict=True):
        call = f"logsumexp({row})"
        value = number(got, call=call)
        want = torch.tensor(row, dtype=torch.float64).logsumexp(0).item()
        if _lse_is_right(value, want, len(row)):
            continue
        shown = f"`{call}` is {value:.7g}; {want:.7g} is wanted."
        raise Mistake(shown, misconception=_lse_idea(row, value, want))


def _lse_is_right(value, want, n):
    if not math.isfinite(want):
        return math.isnan(value) if math.isnan(want) else value == want
    # Half a gap for the result. Below it n exponentials, n sums and the logarithm, each within
    # u = 2**-11 of at most 2 n: no more than 2 n u each, as the sum is at least 1.
    return abs(value - want) <= spacing(want, FP16) / 2 + (4 * n + 4) * 2.0**-11


def _lse_idea(row, value, want):
    finite = math.isfinite(want)
    if finite and row[0] == 12 and math.isinf(value):
        return "exp-never-overflows"
    if finite and abs(row[0]) >= 100 and math.isinf(value):
        return "wider-dtype-replaces-the-shift"
    if finite and row[0] in (12, 1000) and abs(value - (want - max(row))) < 0.1:
        return "shift-changes-nothing-to-undo"
    if finite and row[0] in (12, 100, 1000) and value < want:
        return "clamping-prevents-overflow"
    if math.isnan(value) and not math.isnan(want):
        return "shift-is-always-defined"
    return None


check_logsumexp.slip(
    "exp-never-overflows",
    "Where is the cliff of exp in FP16, and what is exp(12) there?",
    swap=("top + (x - top).exp()", "x.exp()"),
)
check_logsumexp.slip(
    "clamping-prevents-overflow",
    "A clamp keeps the result finite by changing x. Which shift of x could you undo afterwards?",
    swap=("top + (x - top).exp()", "x.clamp(max=10).exp()"),
)
check_logsumexp.slip(
    "shift-changes-nothing-to-undo",
    "You divided the sum by exp(max). Where does your formula put that factor back?",
    cut="top + ",
)
check_logsumexp.slip(
    "shift-is-always-defined",
    "The shift computes inf - inf there, which is NaN. For which maximum is nothing to shift?",
    cut="if not top.isfinite():\n        return top",
)
check_logsumexp.slip(
    "wider-dtype-replaces-the-shift",
    "A wider dtype only moves the cliff (float32: to 88.7), and so does a shift by the mean. "
    "Which x - c can never reach any?",
    swap=("top + (x - top).exp()", "x.float().exp()"),
)


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
    weights = _tensor(
        weights, call="masked_softmax(scores, keep)", shape=scores.shape, dtype=torch.float16
    )
    hidden = torch.where(keep, scores.double(), -math.inf)
    wanted = hidden.softmax(dim=1)
    for row in range(len(scores)):
        got, text = weights[row], _row(weights[row])
        shown = f"scores {_row(scores[row])}, keep {keep[row].tolist()}: your weights are {text}."
        if not keep[row].any():
            _judge_empty_row(got, row, shown)
            continue
        # Differences, exponentials, their sum of 4 and the quotient: each within u = 2**-11 of
        # something that adds at most u to a weight; |d| exp(-|d|) <= 1/e for a difference d.
        if not (got - wanted[row]).abs().max() <= 8 * 2.0**-11:
            raise Mistake(
                f"{shown} {_row(wanted[row])} is wanted.",
                misconception=_mask_idea(row, got, scores[row].double(), keep[row]),
            )


def _row(row):
    return "[" + ", ".join(f"{value:.4g}" for value in row.tolist()) + "]"


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


def _tensor(got, *, call, shape, dtype=None):
    """What came back, as a float64 tensor of this shape."""
    if type(got) is Raised:
        place = f" in your line `{got.line}`" if got.line else ""
        raise AnswerError(f"`{call}` raised {got.type_name}: {got.message}{place}.")
    if isinstance(got, np.ndarray):
        got = torch.from_numpy(got)
    if not isinstance(got, torch.Tensor):
        raise Mistake(f"`{call}` is {reprlib.repr(got)}; a tensor is wanted.")
    if tuple(got.shape) != tuple(shape):
        raise Mistake(f"`{call}` has shape {tuple(got.shape)}; {tuple(shape)} is wanted.")
    if dtype is not None and got.dtype != dtype:
        raise Mistake(f"`{call}` has dtype {got.dtype}; {dtype} is wanted.")
    return got.double()


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
        got = _tensor(answers[name], call=call, shape=(1, 4), dtype=torch.float16)
        x = torch.tensor([row], dtype=torch.float16).double()
        mean = x.square().mean()
        wanted = x / (mean + 1e-8).sqrt()
        # One rounding to FP16 (2**-11, or half of 2**-24), and float32's own 2**-22 or so.
        if ((got - wanted).abs() <= wanted.abs() * 2.0**-10 + 2.0**-25).all():
            continue
        raise Mistake(
            f"`{call}` is {_row(got[0])}; {_row(wanted[0])} is wanted.",
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


# Rescue the matmul


def _uniform(seed, *shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def _products():
    """Name -> (a, b, input dtype, output dtype)."""
    half, brain, single = torch.float16, torch.bfloat16, torch.float32
    sixteens = torch.full((1, 512), 16.0)
    there_and_back = torch.cat([torch.full((1, 300), 200.0), torch.full((1, 299), -200.0)], dim=1)
    poisoned = torch.tensor([[1.0, math.nan]])
    long = 2 * _uniform(3, 4, 1000) - 1, 2 * _uniform(4, 1000, 4) - 1
    return {
        "8 products, FP16 in": (_uniform(1, 8, 8), _uniform(2, 8, 8), half, single),
        "8 products, BF16 in": (_uniform(1, 8, 8), _uniform(2, 8, 8), brain, single),
        "1000 products": (*long, half, single),
        "1000 products, FP16 out": (*long, half, half),
        "512 times 16 * 16": (sixteens, sixteens.T.clone(), half, single),
        "512 times 16 * 16, FP16 out": (sixteens, sixteens.T.clone(), half, half),
        "512 times 16 * 16, BF16 out": (sixteens, sixteens.T.clone(), brain, brain),
        "300 times 200 * 200, then 299 times -200 * 200": (
            there_and_back, torch.full((599, 1), 200.0), half, half,
        ),
        "an input of 1e5, FP16 in": (torch.tensor([[1e5]]), torch.ones(1, 1), half, single),
        "an input of NaN": (poisoned, torch.ones(2, 1), half, single),
    }  # fmt: skip


def run_rescue(rescue):
    """`rescue` on each product."""
    return {name: attempt(rescue, *entry) for name, entry in _products().items()}


@check(run_rescue)
def check_rescue(answers):
    """A product with 16-bit inputs, float32 sums, one rounding at the end, and an honest flag."""
    for name, (a, b, in_dtype, out_dtype) in _products().items():
        got = answers[name]
        if type(got) not in (tuple, list) or len(got) != 2:
            number(0.0 if isinstance(got, (tuple, list, torch.Tensor)) else got, call="rescue(...)")
            raise Mistake(f"{name}: two things are wanted, the product and the flag.")
        product, flag = got
        c = _tensor(product, call="rescue(...)[0]", shape=(len(a), b.shape[1]), dtype=out_dtype)
        _judge_product(name, c, a, b, in_dtype, out_dtype)
        _judge_flag(name, flag, c, answers)


def _judge_product(name, c, a, b, in_dtype, out_dtype):
    x, y = a.to(in_dtype).double(), b.to(in_dtype).double()
    exact, reach = x @ y, x.abs() @ y.abs()
    if not exact.isfinite().all():
        if c.isfinite().all():
            raise Mistake(f"{name}: your product is {_row(c[0])}; {exact[0, 0]} comes through.")
        return
    # A float32 sum of k products in any order: k u / (1 - k u) times the sum of |a||b|.
    ku = a.shape[1] * 2.0**-24
    error = ku / (1 - ku) * reach
    low, high = (exact - error).to(out_dtype).double(), (exact + error).to(out_dtype).double()
    if ((low <= c) & (c <= high)).all():
        return
    row, column = divmod(int((~((low <= c) & (c <= high))).flatten().nonzero()[0]), c.shape[1])
    at = f"[{row}, {column}]" if c.numel() > 1 else ""
    raise Mistake(
        f"{name}: your product{at} is {show(c[row, column].item())}; "
        f"{show(low[row, column].item())} is wanted"
        + ("." if low[row, column] == high[row, column] else ", up to float32 rounding."),
        misconception=_product_idea(c, a, b, (exact, reach), in_dtype, out_dtype),
    )


def _product_idea(c, a, b, wanted, in_dtype, out_dtype):
    exact, reach = wanted
    unrounded = a.double() @ b.double()
    if out_dtype == torch.float32 and torch.allclose(c, unrounded, rtol=1e-6, atol=0):
        return "inputs-keep-their-bits"
    if not c.isfinite().all():
        return "sums-in-sixteen-bits-are-enough" if exact.abs().max() < 65504 else "upcast-too-late"
    if c.abs().max() == torch.finfo(torch.float16).max < exact.abs().max():
        return "overflow-saturates"
    if torch.equal(c, exact.to(in_dtype).double()):
        return "upcast-too-late"
    # k sums, each off by at most half an eps of the input dtype, and as many products.
    near = (c - exact).abs() <= a.shape[1] * torch.finfo(in_dtype).eps * reach
    if near.all() and torch.equal(c, c.to(in_dtype).double()):
        return "sums-in-sixteen-bits-are-enough"
    return None


def _judge_flag(name, flag, c, answers):
    if isinstance(flag, torch.Tensor) and flag.numel() == 1:
        flag = flag.item()
    if isinstance(flag, np.bool_):
        flag = bool(flag)
    if type(flag) is not bool:
        raise Mistake(f"{name}: the flag is {reprlib.repr(flag)}; True or False is wanted.")
    if flag == bool(not c.isfinite().all()):
        return
    idea = None
    if flag:
        idea = "sixteen-bits-means-65504" if c.abs().max() > 65504 else None
        raise Mistake(
            f"{name}: the flag is True, and the product is {show(c.max().item())}.",
            misconception=idea,
        )
    if name.endswith("FP16 out"):
        idea = "only-the-sum-can-overflow"
    raise Mistake(
        f"{name}: the flag is False, and the product is {_row(c[0])}.", misconception=idea
    )


check_rescue.slip(
    "upcast-too-late",
    "Every element is a 16-bit value: the product was rounded before it was widened. "
    "Where must float32 begin?",
    swap=(".to(out_dtype)", ".to(in_dtype).to(out_dtype)"),
)


@check_rescue.wrong(
    "sums-in-sixteen-bits-are-enough",
    "Each is a 16-bit value, and not even the nearest one. In which dtype is the running sum?",
)
def _(a, b, in_dtype, out_dtype):
    # A CPU's own 16-bit product adds in float32.
    product = mixed_matmul(a, b, in_dtype=in_dtype, accumulate=in_dtype, out_dtype=out_dtype)
    return product.result, not product.result.isfinite().all().item()


check_rescue.slip(
    "inputs-keep-their-bits",
    "That is the product of the float32 inputs. What do 16-bit inputs lose before they meet?",
    swap=("a.to(in_dtype).float() @ b.to(in_dtype).float()", "a @ b"),
)
check_rescue.slip(
    "sixteen-bits-means-65504",
    "BF16 goes on to 3.4e38. Which test asks the result itself, and no constant?",
    swap=("product.isfinite()", "(product.abs() <= 65504)"),
)
check_rescue.slip(
    "only-the-sum-can-overflow",
    "The float32 sum was finite. What did the last cast make of it?",
    swap=(".to(out_dtype)\n    return product", "\n    return product.to(out_dtype)"),
)
check_rescue.slip(
    "overflow-saturates",
    "You stop at the largest value. How would a reader of the result see that it is wrong?",
    swap=(
        ".to(out_dtype)",
        ".clamp(torch.finfo(out_dtype).min, torch.finfo(out_dtype).max).to(out_dtype)",
    ),
)


# Reach 5000


class _Watch(TorchFunctionMode):
    """Notes which dtypes appear and which reductions run: it may refuse a sum, never award one."""

    def __init__(self):
        super().__init__()
        self.dtypes, self.reductions = set(), set()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if getattr(function, "__name__", "") in _REDUCTIONS:
            self.reductions.add(function.__name__)
        if isinstance(result, torch.Tensor) and result.is_floating_point():
            self.dtypes.add(name_of(result.dtype))
        return result


_REDUCTIONS = {
    "sum", "nansum", "mean", "cumsum", "dot", "inner", "vdot", "matmul", "__matmul__",
    "__rmatmul__", "mv", "mm", "einsum", "norm", "logcumsumexp",
}  # fmt: skip


def _watched(answer, x):
    with _Watch() as watch:
        value = attempt(answer, x)
    return value, sorted(watch.dtypes), sorted(watch.reductions)


def _sums():
    return {
        "5000 ones": torch.ones(5000, dtype=torch.float16),
        "the numbers 1 to 7": torch.arange(1, 8).half(),
        "one number, 3.5": torch.tensor([3.5], dtype=torch.float16),
        "4000 numbers between 0 and 2": (2 * _uniform(5, 4000)).half(),
    }


def run_total(total):
    """`total` on FP16 tensors, with a look at the dtypes and reductions it uses."""
    return {name: _watched(total, x) for name, x in _sums().items()}


@check(run_total)
def check_total(answers):
    """5000, reached by FP16 adds alone; no sum of n numbers needs an error that grows like n."""
    for name, x in _sums().items():
        got, dtypes, reductions = answers[name]
        value = number(got, call=f"total of {name}")
        _no_help(name, value, dtypes, reductions, "float16")
        exact = x.double().sum().item()
        # A tree of depth d rounds each number d times: d u / (1 - d u) times the sum of |x|. Twice
        # the depth of a balanced tree leaves room for other trees, and none for a chain.
        depth = 2 * math.ceil(math.log2(max(len(x), 2)))
        slack = 0 if len(x) != 4000 else depth * 2.0**-11 * x.double().abs().sum().item()
        if abs(value - exact) <= slack:
            continue
        wanted = f"{exact:.7g}" if not slack else f"{exact:.1f}, within {slack:.0f},"
        raise Mistake(
            f"Your total of {name} is {show(value)}; {wanted} is wanted.",
            misconception=_total_idea(x, value, answers),
        )


def _no_help(name, value, dtypes, reductions, dtype):
    if reductions:
        raise Mistake(
            f"Your total of {name} is {show(value)}, by `{reductions[0]}`.",
            misconception="sum-adds-in-its-dtype",
        )
    wide = [other for other in dtypes if other != dtype]
    if wide:
        raise Mistake(
            f"Your total of {name} is {show(value)}, and a {wide[0]} tensor took part. "
            f"A tensor made without a dtype is float32: say `dtype=x.dtype`.",
            misconception="a-wider-sum-is-the-only-cure",
        )


def _chain(values):
    return np.add.accumulate(values.numpy())[-1].item()


def _total_idea(x, value, answers):
    last = answers["4000 numbers between 0 and 2"][0]
    if len(x) == 7:
        return "every-length-is-even" if value in (21.0, 10.0) else None
    if len(x) == 1:
        return "every-length-is-even" if value == 0 else None
    values = _sums()["4000 numbers between 0 and 2"]
    last = _float(last)
    if value != _chain(x):
        return "every-length-is-even" if value in (4096.0, 4992.0) else None
    if last == _chain(values):
        return "adding-never-stalls"
    if last in (_chain(values.sort().values), _chain(values.sort(descending=True).values)):
        return "sorting-cures-swamping"
    return None


def _float(got):
    """A number for comparison; NaN for what is none."""
    try:
        return number(got, call="")
    except (AnswerError, Mistake):
        return math.nan


def _added(values):
    total = torch.zeros((), dtype=values.dtype)
    for value in values:
        total = total + value
    return total


@check_total.wrong(
    "adding-never-stalls",
    "From 2048 on the gap is 2, and a 1 falls back. Which adds have two terms of equal size?",
)
def _(x):
    return _added(x)


@check_total.wrong(
    "sorting-cures-swamping",
    "All are equal, so sorting changes nothing: the running sum still meets a 1. "
    "How else could you group the adds?",
)
def _(x):
    return _added(x.sort().values)


check_total.slip(
    "every-length-is-even",
    "An odd length leaves one number without a partner. Where does yours go?",
    swap=("torch.cat([x, x.new_zeros(1)])", "x[:-1]"),
)


@check_total.wrong(
    "sum-adds-in-its-dtype",
    "On a 16-bit tensor it adds in float32 and rounds once. Can you do it with `+` alone?",
)
def _(x):
    return x.sum()


@check_total.wrong(
    "a-wider-sum-is-the-only-cure",
    "float32 is one cure. Which order of FP16 adds is another?",
)
def _(x):
    return _added(x.float()).half()


# Fair rounding

_COINS = 4096
_FAIR_INPUTS = [1 + 2.0**-9, 1 + 3 * 2.0**-9, -(1 + 2.0**-9), 3 + 2.0**-8, 0.3, 1.5, 2.0, -0.75]


def run_fair_round(fair_round):
    """`fair_round` on 4096 copies of each value, after seeding torch."""
    torch.manual_seed(11)
    return [attempt(fair_round, torch.full((_COINS,), x)) for x in _FAIR_INPUTS]


@check(run_fair_round)
def check_fair_round(answers):
    """Stochastic rounding to BF16: both neighbours, and the right mean."""
    for x, got in zip(_FAIR_INPUTS, answers, strict=True):
        x = torch.tensor(x).item()  # as float32 holds it
        call = f"fair_round of {_COINS} times {show(x)}"
        values = _tensor(got, call=call, shape=(_COINS,))
        low, high = quantize(x, BF16, rounding="down"), quantize(x, BF16, rounding="up")
        strange = values[(values != low) & (values != high)]
        if len(strange):
            allowed = (
                "it is a BF16 value already"
                if low == high
                else f"the BF16 neighbours are {show(low)} and {show(high)}"
            )
            raise Mistake(
                f"{call}: {show(strange[0].item())} came out; {allowed}.",
                misconception=_strange_idea(x, values, low, high),
            )
        if low == high:
            continue
        part = (x - low) / (high - low)
        share = (values == high).double().mean().item()
        # Six standard deviations of a mean of 4096 draws: one right answer in 5e8 would fail.
        if abs(share - part) > 6 * math.sqrt(part * (1 - part) / _COINS):
            raise Mistake(
                f"{call}: {share:.3f} of them went up to {show(high)}, {part:.3f} is wanted. "
                f"The mean is {values.mean().item():.6f}.",
                misconception=_fair_idea(x, share, part),
            )


def _strange_idea(x, values, low, high):
    if low == high:
        return "exact-values-move-too"
    on_the_grid_of_one = (values * 2**7 == (values * 2**7).round()).all()
    return "ulp-is-constant" if on_the_grid_of_one and high - low != 2.0**-7 else None


def _fair_idea(x, share, part):
    if share in (0, 1):
        nearest = quantize(x, BF16) > x
        return "nearest-is-fair" if share == nearest and x == _FAIR_INPUTS[0] else None
    if abs(share - 0.5) < 0.05:
        return "fair-means-half"
    return "nearer-is-less-likely" if abs(share - (1 - part)) < 0.05 else None


check_fair_round.slip(
    "fair-means-half",
    "A coin ignores how near x lies. With which probability must it go up, so that the mean is x?",
    swap=("(x - below) / gap", "0.5 * (x > below)"),
)
check_fair_round.slip(
    "nearest-is-fair",
    "All of them went the same way. Which rounding keeps a small remainder on average?",
    swap=("torch.rand(x.shape) <", "0.5 <"),
)
check_fair_round.slip(
    "nearer-is-less-likely",
    "The probabilities are exchanged. Is x near the lower neighbour: which should it become?",
    swap=("torch.rand(x.shape) <", "torch.rand(x.shape) >"),
)


@check_fair_round.wrong(
    "exact-values-move-too",
    "That value needed no rounding. What is its distance to the neighbour below, in gaps?",
)
def _(x):
    return (x + spacing(x, BF16) * (2 * torch.rand(x.shape) - 1)).bfloat16().float()


check_fair_round.slip(
    "ulp-is-constant",
    "That is no BF16 value. The gap at 1 is 2**-7; what is it at your x?",
    swap=("gap = spacing(x, BF16)", "gap = 2.0**-7"),
)


# Kahan in BF16


def _additions():
    steps = torch.full((1001,), 1e-4)
    steps[0] = 1.0
    return {
        "5000 ones": torch.ones(5000, dtype=torch.bfloat16),
        "1 and 1000 times 1e-4": steps.bfloat16(),
        "400 numbers between 0 and 1": _uniform(6, 400).bfloat16(),
    }


def run_kahan(kahan):
    """`kahan` on BF16 tensors, with a look at the dtypes and reductions it uses."""
    return {name: _watched(kahan, x) for name, x in _additions().items()}


@check(run_kahan)
def check_kahan(answers):
    """A BF16 sum that carries what each add has lost."""
    for name, x in _additions().items():
        got, dtypes, reductions = answers[name]
        value = number(got, call=f"kahan of {name}")
        _no_help(name, value, dtypes, reductions, "bfloat16")
        exact = x.double().sum().item()
        # Higham, Accuracy and Stability, (4.8): |error| <= (2 u + O(n u**2)) sum |x|, u = 2**-8.
        # On 5000 ones every step is exact but the last rounding: half a gap.
        gap = spacing(exact, BF16)
        slack = gap / 2 if name == "5000 ones" else 2 * gap
        if quantize(value, BF16) == value and abs(value - exact) <= slack:
            continue
        raise Mistake(
            f"Your sum of {name} is {show(value)}; the BF16 value nearest to {exact:.7g} is "
            f"{show(quantize(exact, BF16))}.",
            misconception=_kahan_idea(answers),
        )


def _kahan_idea(answers):
    got = answers["400 numbers between 0 and 1"][0]
    got = _float(got)
    x = _additions()["400 numbers between 0 and 1"]
    ideas = {
        wrong.misconception: float(wrong.answer(x))
        for wrong in check_kahan.known_wrong
        if wrong.misconception not in ("sum-adds-in-its-dtype", "a-wider-sum-is-the-only-cure")
    }
    fitting = [idea for idea, value in ideas.items() if value == got]
    return fitting[0] if len(fitting) == 1 else None


check_kahan.slip(
    "compensation-is-optional",
    "That is the plain sum. Which of your lines reads what the last add has lost?",
    cut=" - c",
)
check_kahan.slip(
    "compensation-has-no-sign",
    "What is your c after 256 + 1 = 256: -1 or 1? And what does your next y make of the next 1: "
    "2, or 0?",
    swap=("value - c", "value + c"),
)
check_kahan.slip(
    "order-of-updates-is-free",
    "(t - s) is to be what arrived. Which value has s when you compute it?",
    swap=("c = (t - s) - y\n        s = t", "s = t\n        c = (t - s) - y"),
)


@check_kahan.wrong(
    "losses-may-wait-for-the-end",
    "You add up the losses apart, in BF16: that sum stalls as well. When could each be paid back?",
)
def _(x):
    s = c = torch.zeros((), dtype=x.dtype)
    for value in x:
        t = s + value
        c = c + ((s - t) + value if s.abs() >= value.abs() else (value - t) + s)
        s = t
    return s + c


@check_kahan.wrong(
    "a-wider-sum-is-the-only-cure",
    "Kahan needs one more BF16 number, and nothing wider. Which two would you carry?",
)
def _(x):
    return _added(x.float()).bfloat16()


@check_kahan.wrong(
    "sum-adds-in-its-dtype",
    "On a 16-bit tensor it adds in float32 and rounds once. Can you do it with BF16 adds?",
)
def _(x):
    return x.sum()


# A tolerance


def _pairs_to_bound():
    positive = _uniform(7, 3, 1000), _uniform(8, 1000, 3)
    half = 2 * _uniform(9, 3, 500) - 1
    cancelling = torch.cat([half, -half], dim=1), torch.ones(1000, 3)
    return {
        "1000 products, all positive": positive,
        "1000 products that cancel": cancelling,
        "1000 products near 1e8": (1e4 * positive[0], 1e4 * positive[1]),
        "2 products": (_uniform(10, 3, 2), _uniform(11, 2, 3)),
    }


def run_tolerance(tolerance):
    """`tolerance` on four pairs of float32 matrices."""
    return {name: attempt(tolerance, a, b) for name, (a, b) in _pairs_to_bound().items()}


@check(run_tolerance)
def check_tolerance(answers):
    """A bound on a float32 product's error that holds when terms cancel, and is not lax."""
    for name, (a, b) in _pairs_to_bound().items():
        bound = _tensor(answers[name], call="tolerance(a, b)", shape=(3, 3))
        reach = a.double().abs() @ b.double().abs()
        k = a.shape[1]
        # From k u on a bound may hold; past 4 k u (eps = 2 u, and once more) it is lax.
        least, most = k * 2.0**-24 * reach, 4 * k * 2.0**-24 * reach
        if (bound >= least * 0.999).all() and (bound <= most).all():
            continue
        place = int(((bound < least * 0.999) | ~(bound <= most)).flatten().nonzero()[0])
        low, high = least.flatten()[place].item(), most.flatten()[place].item()
        raise Mistake(
            f"{name}: your tolerance is {bound.flatten()[place].item():.2g}; "
            f"k u times the sum of |a||b| is {low:.2g}, and four times that, {high:.2g}, is lax.",
            misconception=_tolerance_idea(answers, bound, reach, k),
        )


def _tolerance_idea(answers, bound, reach, k):
    def answered(name):
        return _tensor(answers[name], call="tolerance(a, b)", shape=(3, 3))

    positive = answered("1000 products, all positive")
    if not (positive > 0).all():
        return None
    if (positive == positive[0, 0]).all():
        return "one-tolerance-fits-all"
    a, b = _pairs_to_bound()["1000 products that cancel"]
    cancelling = answered("1000 products that cancel")
    # Less than half of one rounding of the terms, where k of them are wanted.
    if (cancelling < 2.0**-25 * (a.double().abs() @ b.double().abs())).all():
        return "error-is-relative-to-the-result"
    ratio = (bound / reach).flatten()
    if ratio.max() > 1.0001 * ratio.min():
        return None
    if ratio.max() <= 2.0**-22 and k == 1000:
        return "errors-do-not-add-up"
    return "u-of-the-inputs" if ratio.min() > k * 2.0**-12 else None


check_tolerance.slip(
    "error-is-relative-to-the-result",
    "The terms cancel and their rounding errors do not. Which sum stays large here?",
    swap=("(a.abs() @ b.abs())", "(a @ b).abs()"),
)
check_tolerance.slip(
    "one-tolerance-fits-all",
    "A fixed number knows neither the size of the terms nor their count. What grows with both?",
    swap=("ku / (1 - ku) * (a.abs() @ b.abs())", "torch.full((len(a), b.shape[1]), 1e-5)"),
)
check_tolerance.slip(
    "errors-do-not-add-up",
    "That is one rounding. How many adds does one element take?",
    cut="a.shape[1] * ",
)
check_tolerance.slip(
    "u-of-the-inputs",
    "That u belongs to FP16. In which dtype are these sums made?",
    swap=("2.0**-24", "2.0**-11"),
)


# Welford

_STREAMS = {
    "1, 2, 3, 4": [1.0, 2.0, 3.0, 4.0],
    "1e9, 1e9 + 1, 1e9 + 2": [1e9, 1e9 + 1, 1e9 + 2],
    "one number, 7": [7.0],
    "100 numbers": _uniform(12, 100).double().tolist(),
}


def run_welford(welford):
    """`welford` on streams that can be read once."""
    return {name: attempt(welford, iter(stream)) for name, stream in _STREAMS.items()}


@check(run_welford)
def check_welford(answers):
    """Mean and variance of a stream, also when the mean is a billion."""
    for name, stream in _STREAMS.items():
        got, call = answers[name], f"welford({name})"
        if type(got) not in (tuple, list) or len(got) != 2:
            number(0.0 if isinstance(got, (tuple, list)) else got, call=call)
            raise Mistake(f"`{call}` is {reprlib.repr(got)}; a mean and a variance are wanted.")
        mean, variance = (number(value, call=call) for value in got)
        right = np.mean(np.array(stream, dtype=np.longdouble)).item()
        spread = np.mean((np.array(stream) - right) ** 2).item()
        # float64 keeps 1e9 to 1e-7; a stable formula loses a few such steps and no more.
        if not abs(mean - right) <= 1e-12 * abs(right):
            raise Mistake(f"`{call}`: the mean is {mean!r}; {right!r} is wanted.")
        if not abs(variance - spread) <= 1e-5 * spread:
            raise Mistake(
                f"`{call}`: the variance is {variance:.7g}; {spread:.7g} is wanted.",
                misconception=_welford_idea(variance, stream, spread),
            )


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
    "That divides by n - 1. The layers of a network divide by n: which does the exercise ask for?",
    swap=("squares / n", "squares / max(n - 1, 1)"),
)
check_welford.slip(
    "either-mean-will-do",
    "One of the two differences belongs to the old mean, one to the new. Which do you multiply?",
    swap=("(x - before) * (x - mean)", "(x - before) ** 2"),
)
check_welford.slip(
    "either-mean-will-do",
    "One of the two differences belongs to the old mean, one to the new. Which do you multiply?",
    swap=("(x - before) * (x - mean)", "(x - mean) ** 2"),
)


# Rounded twice


def run_hair(hair):
    """A number is data already."""
    return hair


@check(run_hair)
def check_hair(hair):
    """A number that BF16 gets wrong by way of float32."""
    x = number(hair, call="hair")
    if not math.isfinite(x):
        raise Mistake(f"hair is {x}; a finite number is wanted.")
    once = quantize(x, BF16)
    through = torch.tensor(x, dtype=torch.float64).float()
    twice = through.bfloat16().item()
    if once != twice:
        return
    said = f"{x.hex()} becomes {show(once)} both ways. In float32 it is {through.item().hex()}"
    low, high = quantize(x, BF16, rounding="down"), quantize(x, BF16, rounding="up")
    middle = (low + high) / 2
    idea = None
    if low == high:
        said += ", and BF16 holds it."
    elif x == middle:
        said, idea = f"{said}: a tie before and after.", "a-tie-is-enough"
    elif through.item() == middle:
        said, idea = f"{said}: a tie.", "both-sides-of-a-tie-differ"
    elif abs(x - middle) < abs(middle) * 2.0**-10:
        said, idea = f"{said}: no tie.", "float32-rounds-nothing-away"
    else:
        said, idea = f"{said}: far from a tie.", "every-second-rounding-hurts"
    raise Mistake(said, misconception=idea)


check_hair.slip(
    "a-tie-is-enough",
    "Python's float has 52 mantissa bits and float32 has 23. What can only the first one see?",
    cut=" + 2**-30",
)
check_hair.slip(
    "float32-rounds-nothing-away",
    "float32 still sees your hair. How small must it be, beside 1, to vanish there?",
    swap=("2**-30", "2**-20"),
)
check_hair.wrong(
    "every-second-rounding-hurts",
    "Two roundings agree almost always. Where in a gap must x lie for them to part?",
)(0.1)
check_hair.slip(
    "both-sides-of-a-tie-differ",
    "The tie goes to even, and your hair points there as well. On which side should it lie?",
    swap=("+ 2**-30", "- 2**-30"),
)
