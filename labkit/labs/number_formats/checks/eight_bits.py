"""Checks of lab 02: a format of eight bits for gradients."""

import torch

from labkit.formats import FloatFormat
from labkit.formats.histograms import range_report
from labkit.labs.engine import Mistake, check, entries, number
from labkit.training.data import digits_mlp

LAB = "02_number_formats"

WHOLE = "eight_bits is {design}; whole numbers are wanted."
BITS = "1 sign + {e} exponent + {m} mantissa bits are {width} bits; 8 are wanted."
FEW_EXPONENTS = "{e} exponent and {m} mantissa bits: IEEE 754 needs 2 exponent bits or more."
NO_MANTISSA = (
    "{e} exponent bits leave no mantissa bit. In IEEE 754 inf and NaN share the highest exponent "
    "field, and the mantissa tells them apart: it needs 1 bit or more."
)
FAR_AWAY = (
    "With {e} exponent bits and bias {bias} the normal values lie between 2**{bottom} and "
    "2**{top}, and the gradients between 2**{low} and 2**{high}. Which bias moves the normal "
    "values to where the gradients are?"
)
FOUND = (
    "{overflowed} gradients overflow, {lost:.2%} are lost, the median error of the others is "
    "{error:.1%}. {why}"
)
BOTH_ENDS = (
    "Values are lost at both ends, so no bias can help: the range is too narrow. Which width must "
    "grow?"
)
TOO_LOW = (
    "The range ends below the largest gradient. To which side does a larger bias move the range?"
)
TOO_NARROW = (
    "The range ends below the largest gradient. With {e} exponent bits it is so narrow that a bias "
    "at which none overflows loses more than 1 %. Which width must grow?"
)
TOO_HIGH = "Is the range of the format too narrow, or does it lie too high?"


# Eight bits

BUDGET_LOST = 0.01
BUDGET_ERROR = 0.06


def run_eight_bits(design):
    """A design is data already."""
    return design


@check(run_eight_bits)
def check_eight_bits(design):
    """Your eight bits keep the gradients inside the budget."""
    design = entries(design, ("exponent_bits", "mantissa_bits", "bias"), call="eight_bits")
    widths = [number(value, call=f'eight_bits["{key}"]') for key, value in design.items()]
    if not all(width.is_integer() for width in widths):
        raise Mistake(WHOLE, design=repr(design))
    e, m, bias = (int(design[key]) for key in ("exponent_bits", "mantissa_bits", "bias"))
    if 1 + e + m != 8:
        idea = "sign-bit-is-free" if e + m == 8 else None
        raise Mistake(BITS, e=e, m=m, width=1 + e + m, misconception=idea)
    if e < 2 or m < 1:
        raise Mistake(FEW_EXPONENTS if e < 2 else NO_MANTISSA, e=e, m=m)
    gradients = digits_mlp()["gradients"]
    try:
        fmt = FloatFormat("yours", exponent_bits=e, mantissa_bits=m, bias=bias)
    except ValueError:  # the bias is out of bounds, and all else was looked at
        exponents = torch.frexp(gradients[gradients != 0]).exponent
        low, high = int(exponents.min()) - 1, int(exponents.max())
        ends = {"bottom": 1 - bias, "top": 2**e - 1 - bias, "low": low, "high": high}
        raise Mistake(FAR_AWAY, e=e, bias=bias, **ends) from None
    report = range_report(gradients, fmt)
    lost, imprecise = report.share_lost > BUDGET_LOST, report.error > BUDGET_ERROR
    why, idea = "", None
    if report.overflowed and lost:
        why = BOTH_ENDS
    elif (lost or report.overflowed) and bias == 2 ** (e - 1) - 1 and e >= 5:
        idea = "default-bias-fits-all"
    elif report.overflowed:
        why = TOO_LOW if e >= 5 else TOO_NARROW.format(e=e)
    elif lost and e < 4:
        idea = "precision-is-all-that-counts"
    elif lost:
        why = TOO_HIGH
    elif imprecise:
        idea = "range-is-all-that-counts"
    else:
        return
    raise Mistake(
        FOUND,
        overflowed=report.overflowed,
        lost=report.share_lost,
        error=report.error,
        why=why,
        misconception=idea,
        search=False,
    )


check_eight_bits.wrong(
    "precision-is-all-that-counts",
    "Count the powers of two from the smallest to the largest gradient. "
    "How many exponent bits do they need?",
)({"exponent_bits": 2, "mantissa_bits": 5, "bias": 10})
check_eight_bits.wrong(
    "range-is-all-that-counts",
    "The range is wide enough, but the error is above 6 %. Which bits make the error smaller?",
)({"exponent_bits": 6, "mantissa_bits": 1, "bias": 60})
check_eight_bits.slip(
    "default-bias-fits-all",
    "The range is wide enough, but in the wrong place. How far is its upper end from the largest "
    "gradient?",
    swap=("bias=38", "bias=15"),
)
check_eight_bits.slip(
    "sign-bit-is-free",
    "Gradients have signs, and a sign takes one of the eight bits. How many are left for exponent "
    "and mantissa?",
    swap=("mantissa_bits=2", "mantissa_bits=3"),
)
