"""Check of lab 09: fake quantization and its straight-through gradient."""

import torch

from labkit.labs.engine import Mistake, attempt, check, tensor
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill

LAB = "09_quantization"

OTHER_VALUE = (
    "{call}: {x} becomes {got}; {want} is wanted, code {code:d} of {low:d} to {high:d}. {why}"
)
UNROUNDED = (
    "Your output is x itself. In a + (b - a).detach() the value is that of b, and the gradient is "
    "that of a."
)
UNCLAMPED = "Your values come out if no code is clamped."
DOWN = "Your values come out if x / scale is rounded down."
CLAMPED_FIRST = "Your values come out if the code is clamped before zero is added."
A_CODE = "Your {got} is the code itself."
NO_GRADIENT = (
    "{call}: the values are right, and no gradient reaches x: its grad is None. Which of your "
    "operations cuts the graph?"
)
ALL_ZERO = (
    "{call}: the values are right, and every gradient is 0. torch's `round` has the derivative 0. "
    "By which gradient do you replace it?"
)
OTHER_GRADIENT = (
    "{call}: the values are right. The gradient of the output at x = {x} is {sent}, and {got} "
    "reaches x; {want} is wanted. The code there is {code:d} before it is clamped to {low:d} to "
    "{high:d}. {why}"
)
AT_AN_END = "An end of the grid is a code like the others, and this one was not clamped."
PER_STEP = "All your gradients are 1 / scale times the right ones."

_ROW_SCALES = torch.tensor([[0.1], [0.025], [3.0]])


def _cases(seed):
    """x, the scale, zero, low and high of each call, and the gradient of its output."""
    draw = torch.Generator().manual_seed(seed)

    def on(scale, zero, low, high, count, rows=1):
        # Away from ties, and from the last half step, where torch masks codes and others values.
        wide = high - low
        codes = torch.randint(low - wide // 2, high + wide // 2, (rows, count), generator=draw)
        off = (torch.rand(rows, count, generator=draw) - 0.5) * 0.6
        off = torch.where(codes == low, off.abs(), torch.where(codes == high, -off.abs(), off))
        return (codes - zero + off) * scale

    row = torch.tensor([0.26, 5.0, -3.0, -0.14, 0.0])
    cases = {
        "the example": (row, 0.1, 0, -8, 7),
        "codes 0 to 255, zero 90": (on(0.02, 90, 0, 255, 60)[0], 0.02, 90, 0, 255),
        "a scale as a tensor, zero 3, codes 0 to 15": (
            on(0.5, 3, 0, 15, 40), torch.tensor(0.5), 3, 0, 15
        ),
        "one scale a row": (on(_ROW_SCALES, 0, -7, 7, 30, rows=3), _ROW_SCALES, 0, -7, 7),
    }  # fmt: skip
    return {
        name: (*case, 1 + torch.randint(8, case[0].shape, generator=draw) / 4)
        for name, case in cases.items()
    }


def run_fake_quant(fake_quant, seed):
    """What comes out of each call, and the gradient that reaches x."""
    seen = {}
    for name, (x, scale, zero, low, high, sent) in _cases(seed).items():
        x = x.clone().requires_grad_()
        out = attempt(fake_quant, x, scale, zero, low, high)
        if isinstance(out, torch.Tensor) and out.requires_grad and out.shape == x.shape:
            failed = attempt(out.backward, sent.clone())
            seen[name] = out, failed if type(failed) is Raised else x.grad
        else:
            seen[name] = out, None
    return seen


def _torchs(x, scale, zero, low, high, sent):
    """torch's own value and gradient."""
    x = x.clone().requires_grad_()
    if isinstance(scale, torch.Tensor) and scale.dim():
        zeros = torch.full((len(scale),), zero, dtype=torch.int32)
        out = torch.fake_quantize_per_channel_affine(x, scale.flatten(), zeros, 0, low, high)
    else:
        out = torch.fake_quantize_per_tensor_affine(x, float(scale), zero, low, high)
    out.backward(sent)
    return out.detach(), x.grad


@check(
    run_fake_quant,
    own_work=(
        "labkit.formats.fake_quantize",
        "torch.fake_quantize_per_tensor_affine",
        "torch.fake_quantize_per_channel_affine",
    ),
)
def check_fake_quant(seen, seed):
    """Values on the grid, and a gradient of 1 wherever no code was clamped."""
    for name, (x, scale, zero, low, high, sent) in _cases(seed).items():
        call = f"fake_quant with {name}"
        out, grad = seen[name]
        out = tensor(out, call=call, shape=x.shape, dtype=torch.float32)
        value, gradient = _torchs(x, scale, zero, low, high, sent)
        codes = torch.round(x.double() / scale) + zero
        said = {"call": call, "low": low, "high": high}
        # A code times a scale is rounded once, and x + (y - x) twice more.
        off = ~((out - value).abs() <= 4 * 2.0**-24 * (value.abs() + x.abs()))
        if off.any():
            at = tuple(off.nonzero()[0].tolist())
            got, code = out[at].item(), int(codes[at].clamp(low, high))
            why = _explained(x, scale, zero, low, high, out.detach())
            why = fill(A_CODE, got=got) if got in (code, code - zero) else why
            said |= {"x": x[at].item(), "want": value[at].item(), "got": got}
            raise Mistake(OTHER_VALUE, code=code, why=why, **said)
        if type(grad) is Raised or grad is None:
            raise Mistake(NO_GRADIENT, call=call)
        if not grad.any():
            raise Mistake(ALL_ZERO, call=call)
        off = ~((grad - gradient).abs() <= 4 * 2.0**-24 * sent)
        if off.any():
            at = tuple(off.nonzero()[0].tolist())
            said |= {"x": x[at].item(), "want": gradient[at].item(), "got": grad[at].item()}
            code = int(codes[at])
            ended = code in (low, high) and not said["got"]
            steps = ((grad * scale - gradient).abs() <= 8 * 2.0**-24 * sent).all()
            why = AT_AN_END if ended else PER_STEP if steps else ""
            raise Mistake(OTHER_GRADIENT, sent=sent[at].item(), code=code, why=why, **said)


def _explained(x, scale, zero, low, high, out):
    """The sentence of the mistake that gives all these values, or ""."""
    ratio = x / scale
    near = ratio.round()
    others = {
        UNROUNDED: x,
        UNCLAMPED: near * scale,
        DOWN: ((ratio.floor() + zero).clamp(low, high) - zero) * scale,
        CLAMPED_FIRST: near.clamp(low, high) * scale,
    }
    return next((why for why, other in others.items() if torch.allclose(out, other)), "")


check_fake_quant.slip(
    "ste-ignores-clipping",
    "Moving a clamped value a little does not move its code. Which values may pass a gradient?",
    swap=("x * inside", "x"),
)
check_fake_quant.slip(
    "rounding-passes-gradients",
    "Which call lets the value through and stops the gradient?",
    swap=("passed + (rounded - passed).detach()", "rounded"),
)
check_fake_quant.slip(
    "codes-are-values",
    "A code counts steps from the zero point. What is its value?",
    swap=("(codes.clamp(low, high) - zero) * scale", "codes.clamp(low, high)"),
)
check_fake_quant.slip(
    "the-grid-bounds-the-values",
    "low and high bound the codes. Which of your variables do you compare with them?",
    swap=("(codes >= low) & (codes <= high)", "(x >= low) & (x <= high)"),
)
check_fake_quant.slip(
    "codes-clamp-themselves",
    "A float holds any code. Which call keeps the codes on the grid?",
    swap=("codes.clamp(low, high)", "codes"),
)
check_fake_quant.slip(
    "zero-point-is-added-once",
    "Without the zero point the smallest code stands for another value. Where is it subtracted?",
    swap=("(codes.clamp(low, high) - zero) * scale", "codes.clamp(low, high) * scale"),
)
