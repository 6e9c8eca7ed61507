"""Check of lab 09: a linear layer whose input, weight and output are integer codes."""

import math
from fractions import Fraction

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.labs.engine import Mistake, attempt, check, number, several, tensor
from labkit.labs.engine.messages import fill

LAB = "09_quantization"

OTHER_SCALE = (
    "{call}: sy is {got}; {want} is wanted: {low} to {high} in 255 steps. The grid must hold 0 and "
    "both ends."
)
NO_CODE = "{call}: zy is {got}. A zero point is a code, so it must be an integer."
OTHER_ZERO = (
    "{call}: zy is {got}; {want} is wanted, the integer nearest to -lo / sy = {exact}. {why}"
)
OTHER_CODE = (
    "{call}: y[{row}, {column}] is {got}; {want} is wanted. There the sum of (x - zx) * w is "
    "{total:d} and the bias adds {bias:d}. Then {both:d} * sx * sw / sy is {value}, zy adds "
    "{zero:d}, and the code is clamped. {why}"
)
ONLY_DEEP = (
    "Your codes of the smaller cases are right, and here sums reach 33.7 million. Which dtype "
    "holds your sum?"
)
WRAPPED = "Your codes come out if x - zx stays in uint8, where 120 - 128 is 248."
CUT_TO_INT8 = "Your codes come out if x - zx is cast to int8, where 255 - 64 is -65."
BIAS_AS_IT_IS = "Your codes come out if the bias is rounded without being divided by sx * sw."
FLOAT_BIAS = "Your codes come out if the bias is divided by sx * sw and not rounded."
NO_ZERO = "Your codes come out if zy is not added."
CUT_OFF = "You took the integer below that number, and the nearest one is above it."
SATURATES = (
    "Your answer calls `torch._int_mm`, and on this processor it gives {got:d} for a sum of "
    "{want:d}: it saturates inside. Use `(x.int() - zx) @ w.int().t()` here."
)

_DEEP = "1,040 inputs"
_SUM = 16 * 127 * 127

# An answer may compute the factor sx * sw / sy and its product with the sum in float32: three
# roundings of at most 2**-24 each. As many again are room for a rounded sy.
_ROUNDINGS = Fraction(6, 2**24)


class _Calls(TorchDispatchMode):
    """Notes the names of the torch functions that run."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def _layers(seed):
    """The arguments of each call, by what is special about it."""
    draw = torch.Generator().manual_seed(seed)

    def codes(*shape):
        return torch.randint(256, shape, dtype=torch.uint8, generator=draw)

    def weights(*shape):
        return torch.randint(-127, 128, shape, generator=draw).to(torch.int8)

    def normal(*shape):
        return torch.randn(shape, generator=draw)

    rows = torch.logspace(-2, 0, 16) / 127  # rows of unlike sizes, as trained ones are
    deep = torch.full((2, 1040), 255, dtype=torch.uint8)
    deep[0, -1], deep[1, -1] = 254, 253
    signs = torch.tensor([[127], [-127]], dtype=torch.int8).expand(2, 1040)
    unit = 2.0**-13  # the bias takes all but 1 or -126 of a sum that float32 cannot hold
    return {
        "the example": (
            torch.tensor([[130, 120]], dtype=torch.uint8), torch.tensor([[2, 1]], dtype=torch.int8),
            torch.tensor([0.3]), 0.5, 128, torch.tensor([0.25]), -2.0, 3.0,
        ),
        "64 inputs": (codes(8, 64), weights(16, 64), normal(16), 4 / 255, 64, rows, -10.55, 11.0),
        "lo = 0.5, hi = 1": (
            codes(4, 8), weights(3, 8), 0.4 + normal(3) / 4, 0.01, 90,
            torch.tensor([0.002, 0.003, 0.001]), 0.5, 1.0,
        ),
        "lo = -3, hi = -1": (
            codes(4, 8), weights(3, 8), normal(3) / 4 - 1.5, 0.02, 200,
            torch.tensor([0.003, 0.002, 0.004]), -3.0, -1.0,
        ),
        _DEEP: (
            deep, signs.contiguous(), torch.tensor([-33_680_272.0, 33_680_272.0]) * unit, 2.0**-6,
            0, torch.tensor([2.0**-7, 2.0**-7]), -160 * unit / 1.2, 95 * unit / 1.2,
        ),
    }  # fmt: skip


def run_integer_linear(integer_linear, seed):
    """Each call's (y, sy, zy), whether it called ``_int_mm``, and what ``_int_mm`` gives here."""
    with _Calls() as calls:
        seen = {name: attempt(integer_linear, *layer) for name, layer in _layers(seed).items()}
    full = torch.full((16, 16), 127, dtype=torch.int8)
    return seen, "_int_mm" in calls.names, torch._int_mm(full, full)[0, 0].item()


@check(
    run_integer_linear,
    own_work=(
        "labkit.labs.quantization.linear.integer_linear",
        "labkit.labs.quantization.linear.IntegerLinear",
    ),
)
def check_integer_linear(found, seed):
    """A linear layer in integers: the output's grid, 32-bit sums, one rescaling, clamped codes."""
    seen, called, full = found
    saturates = fill(SATURATES, got=full, want=_SUM) if called and full != _SUM else ""
    why = saturates or _explained(seen, seed)
    for name, layer in _layers(seed).items():
        call = f"integer_linear with {name}"
        y, sy, zy = several(seen[name], 3, call=call)
        _judge_grid(number(sy, call=f"{call}: sy"), number(zy, call=f"{call}: zy"), layer, call)
        shape = len(layer[0]), len(layer[1])
        y = tensor(y, call=f"{call}: y", shape=shape, dtype=torch.uint8).tolist()
        _judge_codes(y, layer, call, why or (ONLY_DEEP if name == _DEEP else ""))


def _grid(layer):
    """Both ends of the output's range, its exact scale, and the exact -lo / sy."""
    low, high = min(Fraction(layer[-2]), 0), max(Fraction(layer[-1]), 0)
    sy = (high - low) / 255
    return low, high, sy, -low / sy


def _explained(seen, seed):
    """The sentence of the mistake that gives the codes of all calls but the deep one, or ""."""
    layers = {name: layer for name, layer in _layers(seed).items() if name != _DEEP}
    if any(type(seen[name]) is not tuple or len(seen[name]) != 3 for name in layers):
        return ""
    made = {name: seen[name][0] for name in layers}
    if not all(isinstance(y, torch.Tensor) for y in made.values()):
        return ""
    others = {name: _other_codes(layer) for name, layer in layers.items()}
    for why in (WRAPPED, CUT_TO_INT8, BIAS_AS_IT_IS, FLOAT_BIAS, NO_ZERO):
        if all(torch.equal(made[name], others[name][why]) for name in layers):
            return why
    return ""


def _other_codes(layer):
    """The codes that each mistake makes of a layer, by its sentence."""
    x, w, bias, sx, zx, sw, *_ = layer
    _, _, sy, exact = _grid(layer)
    unit, w, bias = sx * sw.double(), w.double().T, bias.double()
    total, whole = (x.double() - zx) @ w, torch.round(bias / unit)

    def codes(total, zero):
        return (torch.round(total * (unit / float(sy))) + zero).clamp(0, 255).to(torch.uint8)

    return {
        WRAPPED: codes((x - zx).double() @ w + whole, round(exact)),
        CUT_TO_INT8: codes((x.int() - zx).to(torch.int8).double() @ w + whole, round(exact)),
        BIAS_AS_IT_IS: codes(total + bias.round(), round(exact)),
        FLOAT_BIAS: codes(total + bias / unit, round(exact)),
        NO_ZERO: codes(total + whole, 0),
    }


def _judge_grid(sy, zy, layer, call):
    low, high, want, exact = _grid(layer)
    if not abs(sy - want) <= 2.0**-22 * want:  # a range and a quotient in float32
        raise Mistake(
            OTHER_SCALE, call=call, got=sy, want=float(want), low=float(low), high=float(high)
        )
    if not zy.is_integer():
        raise Mistake(NO_CODE, call=call, got=zy)
    if not abs(zy - exact) <= 0.5 + 2.0**-12:
        why = CUT_OFF if zy == math.floor(exact) else ""
        raise Mistake(OTHER_ZERO, call=call, got=zy, want=round(exact), exact=float(exact), why=why)


def _judge_codes(y, layer, call, why):
    x, w, bias, sx, zx, sw, *_ = layer
    _, _, sy, exact = _grid(layer)
    totals = ((x.long() - zx) @ w.long().t()).tolist()
    for row, column in ((i, j) for i in range(len(x)) for j in range(len(w))):
        total, unit = totals[row][column], Fraction(sx) * Fraction(sw[column].item())
        quotient = Fraction(bias[column].item()) / unit
        both, factor, zero = total + round(quotient), unit / sy, round(exact)
        room = abs(both * factor) * _ROUNDINGS
        if quotient.denominator > 1 and abs(quotient) > 2**12:
            room += factor  # in float32 such a quotient may go to either neighbour
        right = [_clamped(round(both * factor + r) + zero) for r in (0, room, -room)]
        if (got := y[row][column]) not in right:
            below = _clamped(math.floor(both * factor) + zero)
            raise Mistake(
                OTHER_CODE,
                call=call, row=row, column=column, got=got, want=right[0], total=total,
                bias=round(quotient), both=both, value=float(both * factor), zero=zero,
                why=why or (CUT_OFF if got == below else ""),
            )  # fmt: skip


def _clamped(code):
    return min(max(code, 0), 255)


check_integer_linear.slip(
    "codes-are-values",
    "The code zx stands for 0. What does a sum of x * w hold beside the sum of (x - zx) * w?",
    swap=("(x.int() - zx)", "x.int()"),
)
check_integer_linear.slip(
    "int8-products-widen",
    "A product of two int8 tensors is int8 in torch, and wraps. Which dtype must the factors have?",
    swap=("(x.int() - zx) @ w.int().t()", "((x.int() - zx).to(torch.int8) @ w.t()).int()"),
)
check_integer_linear.slip(
    "bias-has-the-scale-of-the-weight",
    "One unit of the sum stands for sx * sw. By which scale do you divide the bias?",
    swap=("bias / (sx * sw)", "bias / sw"),
)
check_integer_linear.slip(
    "integer-layers-add-a-float-bias",
    "You add the bias as a float. Which integer stands for it in the sum?",
    swap=("torch.round(bias / (sx * sw)).int()", "(bias / (sx * sw)).double()"),
)
check_integer_linear.slip(
    "weights-need-one-scale",
    "Row i of the weight has the scale sw[i]. With which scale do you rescale it?",
    swap=("(sx * sw / sy)", "(sx * sw.max() / sy)"),
)
check_integer_linear.slip(
    "the-sum-is-a-code",
    "sx * sw turns the sum into a value, not into a code of the output. Which scale is missing?",
    swap=("(sx * sw / sy)", "(sx * sw)"),
)
check_integer_linear.slip(
    "casts-round-to-nearest",
    "A cast to an integer cuts the fraction off. Which function must come before it?",
    swap=("torch.round(acc.double() * (sx * sw / sy).double())",
          "(acc.double() * (sx * sw / sy).double()).int()"),
)  # fmt: skip
check_integer_linear.slip(
    "codes-clamp-themselves",
    "A cast to uint8 keeps the lowest 8 bits, so 260 becomes 4. Which call must come before it?",
    swap=("y.clamp(0, 255)", "y.long()"),
)
check_integer_linear.slip(
    "the-range-is-that-of-the-data",
    "Which code would stand for the value 0? Which end of the range must move so that 0 is in it?",
    cut="lo, hi = min(lo, 0.0), max(hi, 0.0)",
)
check_integer_linear.slip(
    "codes-are-steps",
    "The codes 0 to 255 are 256 numbers. How many steps lie between the first and the last?",
    swap=("/ 255", "/ 256"),
)
check_integer_linear.slip(
    "zero-point-has-the-sign-of-lo",
    "The value lo must become code 0: lo = sy * (0 - zy). Which sign has zy?",
    swap=("round(-lo / sy)", "round(lo / sy)"),
)
check_integer_linear.slip(
    "zero-point-may-be-fractional",
    "The value 0 must have a code of its own, so that padding and ReLU are exact. Which function "
    "is missing?",
    swap=("round(-lo / sy)", "-lo / sy"),
)
