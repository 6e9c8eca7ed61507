"""Checks of lab 03: a product with three dtypes."""

import math

import torch

from labkit.formats.matmul import mixed_matmul
from labkit.labs.engine import AnswerError, Mistake, attempt, check, several, tensor, truth
from labkit.labs.overflow_underflow_rounding.checks.shared import row_text, uniform_tensor

LAB = "03_overflow_underflow_rounding"

_OTHER_PRODUCT = "{name}: your product{at} is {got:exact}; {want:exact} is expected{room}."
_NAN_LOST = (
    "{name}: your product is {got}, but with this NaN or inf among the rounded inputs it must be "
    "{want}."
)
_FLAG_UP = (
    "{name}: the flag is True, but every element of your product is finite: the largest is {got}."
)
_FLAG_DOWN = "{name}: the flag is False, but your product holds {got}."


# Rescue the matmul


def _products(seed):
    """Name -> (a, b, input dtype, output dtype); the seed draws what is no edge case."""
    half, brain, single = torch.float16, torch.bfloat16, torch.float32
    sixteens = torch.full((1, 512), 16.0)
    there_and_back = torch.cat([torch.full((1, 300), 200.0), torch.full((1, 299), -200.0)], dim=1)
    poisoned = torch.tensor([[1.0, math.nan]])
    long = 2 * uniform_tensor(seed + 3, 4, 1000) - 1, 2 * uniform_tensor(seed + 4, 1000, 4) - 1
    square = uniform_tensor(seed + 1, 8, 8), uniform_tensor(seed + 2, 8, 8)
    return {
        "8 products, FP16 in": (*square, half, single),
        "8 products, BF16 in": (*square, brain, single),
        "1000 products": (*long, half, single),
        "1000 products, FP16 out": (*long, half, half),
        "512 times 16 * 16": (sixteens, sixteens.T.clone(), half, single),
        "512 times 16 * 16, FP16 out": (sixteens, sixteens.T.clone(), half, half),
        "512 times 16 * 16, BF16 out": (sixteens, sixteens.T.clone(), brain, brain),
        "300 times 200 * 200, then 299 times -200 * 200": (
            there_and_back, torch.full((599, 1), 200.0), half, half,
        ),
        "one row of 16 and one of 1, FP16 out": (
            torch.cat([sixteens, torch.ones(1, 512)]), sixteens.T.clone(), half, half,
        ),
        "65504 + 8, FP16 out": (
            torch.tensor([[65504.0, 8.0]]), torch.ones(2, 1), half, half,
        ),
        "an input of 1e5, FP16 in": (torch.tensor([[1e5]]), torch.ones(1, 1), half, single),
        "an input of NaN": (poisoned, torch.ones(2, 1), half, single),
    }  # fmt: skip


def run_rescue(rescue, seed):
    """`rescue` on each product."""
    return {name: attempt(rescue, *entry) for name, entry in _products(seed).items()}


@check(run_rescue, own_work=("labkit.formats.matmul.mixed_matmul",))
def check_rescue(answers, seed):
    """A product with 16-bit inputs, float32 sums, one rounding at the end, and an honest flag."""
    for name, (a, b, in_dtype, out_dtype) in _products(seed).items():
        product, flag = several(answers[name], 2, call=f"rescue(...)` for `{name}")
        shape = (len(a), b.shape[1])
        c = tensor(product, call="rescue(...)[0]", shape=shape, dtype=out_dtype).double()
        _judge_product(name, c, a, b, in_dtype, out_dtype)
        _judge_flag(name, truth(flag, call="rescue(...)[1]"), c, answers)


def _judge_product(name, c, a, b, in_dtype, out_dtype):
    x, y = a.to(in_dtype).double(), b.to(in_dtype).double()
    exact, reach = x @ y, x.abs() @ y.abs()
    if not exact.isfinite().all():
        if c.isfinite().all():
            raise Mistake(_NAN_LOST, name=name, got=row_text(c[0]), want=_named(exact[0, 0]))
        return
    # A float32 sum of k products in any order: k u / (1 - k u) times the sum of |a||b|.
    ku = a.shape[1] * 2.0**-24
    error = ku / (1 - ku) * reach
    low, high = (exact - error).to(out_dtype).double(), (exact + error).to(out_dtype).double()
    if ((low <= c) & (c <= high)).all():
        return
    row, column = divmod(int((~((low <= c) & (c <= high))).flatten().nonzero()[0]), c.shape[1])
    raise Mistake(
        _OTHER_PRODUCT,
        misconception=_product_idea(c, a, b, (exact, reach), in_dtype, out_dtype),
        name=name,
        at=f"[{row}, {column}]" if c.numel() > 1 else "",
        got=c[row, column].item(),
        want=low[row, column].item(),
        room="" if low[row, column] == high[row, column] else ", up to float32 rounding",
    )


def _named(value):
    return "NaN" if value.isnan() else str(value.item())


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
    if flag == bool(not c.isfinite().all()):
        return
    if flag:
        wide = c.dtype != torch.float16 and c.abs().max() > 65504
        raise Mistake(
            _FLAG_UP,
            misconception="sixteen-bits-means-65504" if wide else None,
            name=name,
            got=f"{c.abs().max().item():.7g}",
        )
    held = " and ".join(sorted({_named(x) for x in c.flatten() if not x.isfinite()}))
    # An inf that the last cast made is missed, and a NaN that the sum had is not.
    seen = all(_flag_of(got) for name, got in answers.items() if name.startswith("an input"))
    idea = "only-the-sum-can-overflow" if name == "512 times 16 * 16, FP16 out" and seen else None
    raise Mistake(_FLAG_DOWN, misconception=idea, name=name, got=held)


def _flag_of(got):
    try:
        return truth(several(got, 2, call="")[1], call="")
    except (AnswerError, Mistake):
        return False


check_rescue.slip(
    "upcast-too-late",
    "Your elements are 16-bit values: the product was rounded to in_dtype before the last cast. "
    "Which dtype must it have until then?",
    swap=(".to(out_dtype)", ".to(in_dtype).to(out_dtype)"),
)


@check_rescue.wrong(
    "sums-in-sixteen-bits-are-enough",
    "Your elements are 16-bit values, but not those nearest to the sums. "
    "In which dtype is the running sum?",
)
def _(a, b, in_dtype, out_dtype):
    # A CPU's own 16-bit product adds in float32.
    product = mixed_matmul(a, b, in_dtype=in_dtype, accumulate=in_dtype, out_dtype=out_dtype)
    return product.result, not product.result.isfinite().all().item()


check_rescue.slip(
    "inputs-keep-their-bits",
    "Your product is that of the float32 inputs. Where must you round them to in_dtype?",
    swap=("a.to(in_dtype).float() @ b.to(in_dtype).float()", "a @ b"),
)
check_rescue.slip(
    "sixteen-bits-means-65504",
    "65504 is the limit of FP16; BF16 and float32 reach 3.4e38. Which test looks at the result "
    "itself, without a constant?",
    swap=("product.isfinite()", "(product.abs() <= 65504)"),
)
check_rescue.slip(
    "only-the-sum-can-overflow",
    "The float32 sum was finite, and the last cast made it inf. Which tensor must the flag look "
    "at?",
    swap=(".to(out_dtype)\n    return product", "\n    return product.to(out_dtype)"),
)
check_rescue.slip(
    "overflow-saturates",
    "Your result stops at the largest finite value. How would a reader of it see that the sum does "
    "not fit?",
    swap=(
        ".to(out_dtype)",
        ".clamp(torch.finfo(out_dtype).min, torch.finfo(out_dtype).max).to(out_dtype)",
    ),
)
