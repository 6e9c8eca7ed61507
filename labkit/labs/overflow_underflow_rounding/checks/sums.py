"""Checks of lab 03: 16-bit sums by a tree, and with compensation."""

import math
import random

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from labkit.formats import BF16, quantize, spacing
from labkit.formats.dtypes import name_of
from labkit.labs.engine import AnswerError, Mistake, attempt, check, number
from labkit.labs.engine.messages import fill
from labkit.labs.overflow_underflow_rounding.checks.shared import uniform_tensor

LAB = "03_overflow_underflow_rounding"

_OTHER_SUM = "Your total of {name} is {got:exact}; {want:exact} is expected."
_FAR_SUM = "Your total of {name} is {got:exact}; {want:exact}, within {slack:.0f}, is expected."
_STALLED = (
    "A running sum of FP16 ones stops at 2048, and your total is {chains} times 2048: no "
    "running sum may take more ones than that."
)
_BY = (
    "Your total of {name} is {got:exact}, but `{by}` computed it: use only `+` and `-` on {dtype} "
    "tensors."
)
_IN_PYTHON = (
    "Your total of {name} is {got:exact}, but you read {reads} values into Python or numpy, "
    "which add in other dtypes. Add {dtype} tensors."
)
_WIDE = (
    "Your total of {name} is {got:exact}, and a {wide} tensor took part. A tensor made without a "
    "dtype is float32: say `dtype=x.dtype`."
)
_OTHER_KAHAN = (
    "Your sum of {name} is {got:exact}; the BF16 value nearest to {exact:.7g} is {want:exact}."
)
_SMALL_KAHAN = (
    "Your sum of 256, 1 and 1 is {got:exact}; 258 is expected. After the first 1, t = s = 256 and "
    "c = -1, so the next y is 2."
)
_FROM_VALUE = (
    "Your sum of {name} is {got:exact}; the BF16 value nearest to {exact:.7g} is {want:exact}. You "
    "get this sum if c is (t - s) minus the number itself. Subtract y instead: the number minus "
    "the old c."
)
_FIRST_ALONE = "Each of your sums is the first number alone: does your loop end in its first round?"
_WITHOUT_EFFECT = (
    "Your sum is the plain sum, although you add or subtract {each} times for each number. Is your "
    "c -1 after the first 1, and does your t add y?"
)
_UNCOMPENSATED = (
    "Your sum of {name} is {got:exact}, which is near enough, but with only {adds} adds and "
    "subtractions of elements. Compensation takes about four for each of the {n} numbers: which "
    "line of yours measures what an add has lost?"
)


# Reach 5000


class _Watch(TorchFunctionMode):
    """Notes what a sum is made of: it may refuse a sum, never award one.

    ``dtypes`` and ``reductions`` are names, ``reads`` counts the values that became Python's or
    numpy's, and ``adds`` the elements that were added or subtracted.
    """

    def __init__(self):
        super().__init__()
        self.dtypes, self.reductions, self.reads, self.adds = set(), set(), 0, 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", "")
        if name in _REDUCTIONS:
            self.reductions.add(name)
        if name in _READS:
            self.reads += args[0].numel()
        if name.strip("_") in _ADDS and isinstance(result, torch.Tensor):
            self.adds += result.numel()
        # A number that is made and then cast has added nothing: whatever it meets is noted.
        made = name in _MAKERS and result.numel() == 1
        if isinstance(result, torch.Tensor) and result.is_floating_point() and not made:
            self.dtypes.add(name_of(result.dtype))
        return result


_REDUCTIONS = {
    "sum", "nansum", "mean", "cumsum", "dot", "inner", "vdot", "matmul", "__matmul__",
    "__rmatmul__", "mv", "mm", "einsum", "norm", "logcumsumexp",
}  # fmt: skip


_MAKERS = {"tensor", "as_tensor", "scalar_tensor", "zeros", "ones", "full", "empty"}
_READS = {"tolist", "item", "numpy", "__array__", "__float__", "__int__"}
_ADDS = {"add", "sub", "radd", "rsub", "iadd", "isub", "subtract"}


def _watched(answer, x):
    with _Watch() as watch:
        value = attempt(answer, x)
    return value, sorted(watch.dtypes), sorted(watch.reductions), watch.reads, watch.adds


def _sums(seed):
    ones = random.Random(seed).randrange(257, 2048)
    return {
        "one number, 3.5": torch.tensor([3.5], dtype=torch.float16),
        "the numbers 1 to 7": torch.arange(1, 8).half(),
        "5000 ones": torch.ones(5000, dtype=torch.float16),
        "4000 numbers between 0 and 2": (2 * uniform_tensor(5, 4000)).half(),
        "501 numbers between 0 and 2": (2 * uniform_tensor(seed + 6, 501)).half(),
        # As many as one chain adds exactly: their sum is another one at each seed.
        f"{ones} ones": torch.ones(ones, dtype=torch.float16),
    }


def run_total(total, seed):
    """`total` on FP16 tensors, with a look at the dtypes and reductions it uses."""
    return {name: _watched(total, x) for name, x in _sums(seed).items()}


@check(run_total, bits=True, own_work=("math.fsum",))
def check_total(answers, seed):
    """5000 by FP16 adds alone: a balanced tree has log2 n roundings on each path, not n."""
    sums = _sums(seed)
    for name, x in sums.items():
        got, *seen, _ = answers[name]
        value = number(got, call=f"total of {name}")
        _no_help(name, len(x), value, seen, "float16")
        exact = x.double().sum().item()
        # A tree of depth d rounds each number d times: d u / (1 - d u) times the sum of |x|. Twice
        # the depth of a balanced tree leaves room for other trees, and none for a chain.
        depth = 2 * math.ceil(math.log2(max(len(x), 2)))
        slack = 0 if "between" not in name else depth * 2.0**-11 * x.double().abs().sum().item()
        if abs(value - exact) <= slack:
            continue
        template = _FAR_SUM if slack else _OTHER_SUM
        said = fill(template, name=name, got=value, want=exact, slack=slack)
        if name == "5000 ones" and value % 2048 == 0 and value > 0:
            said = f"{said} {fill(_STALLED, chains=int(value // 2048))}"
        raise Mistake(said, misconception=_total_idea(x, value, answers, sums))


def _no_help(name, n, value, seen, dtype):
    dtypes, reductions, reads = seen
    said = {"name": name, "got": value, "dtype": dtype}
    if reductions:
        raise Mistake(_BY, by=reductions[0], **said)
    wide = [other for other in dtypes if other != dtype]
    if wide:
        raise Mistake(_WIDE, wide=wide[0], **said)
    # One value may leave at the end, as the result.
    if reads > max(1, n // 3):
        raise Mistake(_IN_PYTHON, reads=reads, **said)


def _chain(values):
    return np.add.accumulate(values.numpy())[-1].item()


def _total_idea(x, value, answers, sums):
    last = answers["4000 numbers between 0 and 2"][0]
    if len(x) == 7:
        return "every-length-is-even" if value in (21.0, 10.0, 12.0) else None
    if len(x) == 1:
        return "every-length-is-even" if value == 0 else None
    values = sums["4000 numbers between 0 and 2"]
    last = _float(last)
    if value != _chain(x):
        return None
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
    "From 2048 on the gap is 2, so 2048 + 1 is rounded back to 2048. How can you group the adds so "
    "that both terms have about the same size?",
)
def _(x):
    return _added(x)


@check_total.wrong(
    "sorting-cures-swamping",
    "The 5000 ones are equal, so sorting changes nothing: each 1 is still added to a long running "
    "sum. How else could you group the adds?",
)
def _(x):
    return _added(x.sort().values)


check_total.slip(
    "every-length-is-even",
    "An odd length leaves one number without a partner. What does your code do with that number?",
    swap=("torch.cat([x, x.new_zeros(1)])", "x[:-1]"),
)


@check_total.wrong(
    "sum-adds-in-its-dtype",
    "`sum` of a 16-bit tensor adds in float32 and rounds once. Can you write it with `+` alone?",
)
def _(x):
    return x.sum()


@check_total.wrong(
    "a-wider-sum-is-the-only-cure",
    "A float32 sum is one remedy. Which order of FP16 adds is another?",
)
def _(x):
    return _added(x.float()).half()


# Kahan in BF16


def _from_value(x):
    """The sum with an excess that is measured against the number instead of against y."""
    s = c = torch.zeros((), dtype=x.dtype)
    for value in x:
        t = s + (value - c)
        s, c = t, (t - s) - value
    return s.item()


def _additions(seed):
    steps = torch.full((1001,), 1e-4)
    steps[0] = 1.0
    return {
        "256, 1 and 1": torch.tensor([256.0, 1.0, 1.0]).bfloat16(),
        "257 ones": torch.ones(257, dtype=torch.bfloat16),
        "5000 ones": torch.ones(5000, dtype=torch.bfloat16),
        "1 and 1000 times 1e-4": steps.bfloat16(),
        "400 numbers between 0 and 1": uniform_tensor(6, 400).bfloat16(),
        "100 numbers between 0 and 1": uniform_tensor(seed + 6, 100).bfloat16(),
    }


def run_kahan(kahan, seed):
    """`kahan` on BF16 tensors, with a look at the dtypes and reductions it uses."""
    return {name: _watched(kahan, x) for name, x in _additions(seed).items()}


@check(run_kahan, bits=True, own_work=("math.fsum",))
def check_kahan(answers, seed):
    """A BF16 sum that passes the rounding error of each add on to the next."""
    additions = _additions(seed)
    for name, x in additions.items():
        got, *seen, adds = answers[name]
        value = number(got, call=f"kahan of {name}")
        _no_help(name, len(x), value, seen, "bfloat16")
        exact = x.double().sum().item()
        # Higham, Accuracy and Stability, (4.8): |error| <= (2 u + O(n u**2)) sum |x|, u = 2**-8.
        # 2 u is two gaps at most. The second term is 1.5 % for n = 1001: that these inputs need
        # none of it was measured, with Kahan and with the other right answers of the tests.
        # On 5000 ones every step is exact but the last rounding: half a gap.
        gap = spacing(exact, BF16)
        slack = 2 * gap if x[1] < 1 else 0 if len(x) == 3 else gap / 2
        if quantize(value, BF16) != value or not abs(value - exact) <= slack:
            idea = _kahan_idea(answers, additions)
            # Neumaier's sum of the ones is the same 512.
            from_value = value == _from_value(x) and idea is None
            template = _FROM_VALUE if from_value else _OTHER_KAHAN
            template = _SMALL_KAHAN if len(x) == 3 else template
            want = quantize(exact, BF16)
            said = fill(template, name=name, got=value, exact=exact, want=want)
            # A c that no line reads leaves three operations for each number: here is a fourth.
            if idea == "compensation-is-optional" and adds >= 4 * len(x):
                said = f"{said} {fill(_WITHOUT_EFFECT, each=adds // len(x))}"
                idea = None
            if all(_float(answers[other][0]) == y[0] for other, y in additions.items()):
                said = f"{said} {_FIRST_ALONE}"
            raise Mistake(said, misconception=idea)
        if adds < 2 * len(x) and len(x) > 257:
            raise Mistake(_UNCOMPENSATED, name=name, got=value, adds=adds, n=len(x))


def _kahan_idea(answers, additions):
    """The known wrong answer whose five sums these are, however it is written."""
    got = [_float(answers[name][0]) for name in additions]
    helped = ("sum-adds-in-its-dtype", "a-wider-sum-is-the-only-cure")
    fitting = [
        wrong.misconception
        for wrong in check_kahan.known_wrong
        if wrong.misconception not in helped
        and all(float(wrong.answer(x)) == y for x, y in zip(additions.values(), got, strict=True))
    ]
    return fitting[0] if len(fitting) == 1 else None


check_kahan.slip(
    "compensation-is-optional",
    "Your sum is the plain sum. Which line of yours uses what the last add has lost?",
    cut=" - c",
)
check_kahan.slip(
    "compensation-has-no-sign",
    "After 256 + 1 = 256, is your c -1 or 1? And is your next y 2, as it must be, or 0?",
    swap=("value - c", "value + c"),
)
check_kahan.slip(
    "order-of-updates-is-free",
    "(t - s) must be the growth of the sum. Which value does s have when you compute c?",
    swap=("c = (t - s) - y\n        s = t", "s = t\n        c = (t - s) - y"),
)


@check_kahan.wrong(
    "losses-may-wait-for-the-end",
    "You collect the losses in a BF16 sum of their own, and it stalls as well. "
    "Into which add could each loss go instead?",
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
    "Kahan summation needs one more BF16 number and no wider dtype. Which two numbers would you "
    "keep from one add to the next?",
)
def _(x):
    return _added(x.float()).bfloat16()


@check_kahan.wrong(
    "sum-adds-in-its-dtype",
    "`sum` of a 16-bit tensor adds in float32 and rounds once. Can you write it with BF16 adds?",
)
def _(x):
    return x.sum()
