"""Checks of lab 03: a product with three dtypes, and a bound on its error."""

import math
import reprlib

import numpy as np
import torch

from labkit.formats.matmul import mixed_matmul
from labkit.labs.engine import Mistake, attempt, check, number
from labkit.labs.engine.messages import show
from labkit.labs.overflow_underflow_rounding.checks.shared import row_text, tensor_of, uniform

LAB = "03_overflow_underflow_rounding"


# Rescue the matmul


def _products():
    """Name -> (a, b, input dtype, output dtype)."""
    half, brain, single = torch.float16, torch.bfloat16, torch.float32
    sixteens = torch.full((1, 512), 16.0)
    there_and_back = torch.cat([torch.full((1, 300), 200.0), torch.full((1, 299), -200.0)], dim=1)
    poisoned = torch.tensor([[1.0, math.nan]])
    long = 2 * uniform(3, 4, 1000) - 1, 2 * uniform(4, 1000, 4) - 1
    return {
        "8 products, FP16 in": (uniform(1, 8, 8), uniform(2, 8, 8), half, single),
        "8 products, BF16 in": (uniform(1, 8, 8), uniform(2, 8, 8), brain, single),
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
        c = tensor_of(product, call="rescue(...)[0]", shape=(len(a), b.shape[1]), dtype=out_dtype)
        _judge_product(name, c, a, b, in_dtype, out_dtype)
        _judge_flag(name, flag, c, answers)


def _judge_product(name, c, a, b, in_dtype, out_dtype):
    x, y = a.to(in_dtype).double(), b.to(in_dtype).double()
    exact, reach = x @ y, x.abs() @ y.abs()
    if not exact.isfinite().all():
        if c.isfinite().all():
            raise Mistake(f"{name}: your product is {row_text(c[0])}; {exact[0, 0]} comes through.")
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
        f"{name}: the flag is False, and the product is {row_text(c[0])}.", misconception=idea
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


# A tolerance


def _pairs_to_bound():
    positive = uniform(7, 3, 1000), uniform(8, 1000, 3)
    half = 2 * uniform(9, 3, 500) - 1
    cancelling = torch.cat([half, -half], dim=1), torch.ones(1000, 3)
    return {
        "1000 products, all positive": positive,
        "1000 products that cancel": cancelling,
        "1000 products near 1e8": (1e4 * positive[0], 1e4 * positive[1]),
        "2 products": (uniform(10, 3, 2), uniform(11, 2, 3)),
    }


def run_tolerance(tolerance):
    """`tolerance` on four pairs of float32 matrices."""
    return {name: attempt(tolerance, a, b) for name, (a, b) in _pairs_to_bound().items()}


@check(run_tolerance)
def check_tolerance(answers):
    """A bound on a float32 product's error that holds when terms cancel, and is not lax."""
    for name, (a, b) in _pairs_to_bound().items():
        bound = tensor_of(answers[name], call="tolerance(a, b)", shape=(3, 3))
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
        return tensor_of(answers[name], call="tolerance(a, b)", shape=(3, 3))

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
