"""Check of lab 08: an autograd function whose three matmuls run in FP8."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.emulation import as_on_cuda
from labkit.labs.engine import AnswerError, Mistake, attempt, check, tensor
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure, in_line
from labkit.labs.fp8_and_fp4 import solutions
from labkit.labs.fp8_and_fp4.checks.shared import E4M3, E5M2, SLACK, first, nearest_of, values_of

LAB = "08_fp8_and_fp4"

RAISED = "{case}: {pass_name} raised {error}."
LAYOUT = "{case}: {pass_name} raised CUDA's error: {error}{line}. On a CPU the same call would run."
NO_GRADIENT = "{case}: backward left no gradient of {what}."
OTHER = "{case}: {name}[{i}, {j}] is {got}; {want} is wanted. {why}"
MADE_OF = (
    "All of {name} is right for {a} in {a_got} and {b} in {b_got}; {a_want} and {b_want}, each "
    "with its scale, are asked for."
)
ALL_ZERO = (
    "All of {name} is 0. The largest magnitude of g is {amax}, and E5M2 rounds to 0 what is below "
    "{flushed}. Which cast of yours takes g as it is?"
)
TIMES = "All of {name} is {times} times the right value. {factor}"
TWICE = "This is 1 / (descale of {a} * descale of {b})**2: by what does `scaled_mm` multiply?"
MISSING = "This is 1 / (descale of {a} * descale of {b})."
OTHER_DESCALE = (
    "This is the descale of {other} over that of {instead}: where do the codes of {instead} get "
    "the descale of {other}?"
)
MEAN = "This is 1 / {tokens}. The gradient of w is a sum over the {tokens} rows of x, not a mean."
RESHAPED = (
    "All of {name} is right for `reshape` in place of a transpose. `reshape` keeps the values in "
    "their order and puts them into other rows. Which call swaps rows and columns?"
)
IN_BF16 = (
    "All of {name} is the right value, rounded to BF16. Which argument of `scaled_mm` says so?"
)
TOO_FEW = (
    "{case}: the values are right, but {seen} FP8 matmuls ran in forward and {seen_back} in "
    "backward; 1 and 2 are asked for."
)

_DTYPES = {"E4M3": E4M3, "E5M2": E5M2}
_RESULTS = {  # what comes back, and its two operands as `a @ b.T`
    "y": ("the result", ("x", "w")),
    "gx": ("the gradient of x", ("g", "w")),
    "gw": ("the gradient of w", ("g", "x")),
}
_WANTED = {"x": "E4M3", "w": "E4M3", "g": "E5M2"}


def _cases(seed):
    """x, w and g by a name."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(rows, columns, size):
        return torch.randn(rows, columns, generator=generator) * size

    return {
        "x (32, 48), w (64, 48), g near 1e-6": {
            "x": drawn(32, 48, 3), "w": drawn(64, 48, 0.05), "g": drawn(32, 64, 1e-6),
        },
        "x (64, 16), w (32, 16), g near 100": {
            "x": drawn(64, 16, 1e-3), "w": drawn(32, 16, 20), "g": drawn(64, 32, 100),
        },
    }  # fmt: skip


class _Watch(TorchDispatchMode):
    """Counts the calls of `scaled_mm`."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls += "scaled_mm" in str(function)
        return function(*args, **(kwargs or {}))


def run_fp8_matmul(Fp8Matmul, seed):
    """`Fp8Matmul` forward and backward under CUDA's rules for operands."""
    return {case: _both_passes(Fp8Matmul, **tensors) for case, tensors in _cases(seed).items()}


def _both_passes(Fp8Matmul, x, w, g):
    x, w = x.requires_grad_(), w.requires_grad_()
    with as_on_cuda(), _Watch() as watch:
        y = attempt(getattr(Fp8Matmul, "apply", Fp8Matmul), x, w)
        seen = watch.calls
        ended = attempt(torch.autograd.backward, y, g) if isinstance(y, torch.Tensor) else None
    return {
        "y": y, "backward": ended, "gx": x.grad, "gw": w.grad, "calls": [seen, watch.calls - seen],
    }  # fmt: skip


@check(run_fp8_matmul)
def check_fp8_matmul(answers, seed):
    """Three FP8 matmuls, E5M2 for the gradient, with operands in the layout that CUDA takes."""
    for case, tensors in _cases(seed).items():
        seen = answers[case]
        operands = {name: t.double() for name, t in tensors.items()}
        _no_failure(seen["y"], case, "forward")
        shape = len(operands["x"]), len(operands["w"])
        y = tensor(seen["y"], call="Fp8Matmul.apply(x, w)", shape=shape, dtype=torch.float32)
        _judge("y", {"y": y}, operands, case)
        _no_failure(seen["backward"], case, "backward")
        for key, of in ("gx", "x"), ("gw", "w"):
            if seen[key] is None:
                raise Mistake(NO_GRADIENT, case=case, what=of)
        for key in "gx", "gw":
            _judge(key, seen, operands, case)
        forward, backward = seen["calls"]
        if forward < 1 or backward < 2:
            raise Mistake(TOO_FEW, case=case, seen=forward, seen_back=backward, search=False)


def _no_failure(got, case, pass_name):
    if type(got) is not Raised:
        return
    said = {"case": case, "pass_name": pass_name}
    if "row_major" in got.message or "col_major" in got.message:
        idea = "layout-is-free"
        error, line = got.message.rstrip("."), in_line(got)
        raise Mistake(LAYOUT, error=error, line=line, misconception=idea, **said)
    raise AnswerError(RAISED, error=failure(got), **said)


def _judge(key, seen, operands, case):
    name, (a, b) = _RESULTS[key]
    want, room = _matmul(key, operands, _WANTED[a], _WANTED[b])
    got = seen[key].double()
    wrong = ~((got - want).abs() <= room)
    if wrong.any():
        why, idea = _why(key, got, operands)
        if idea == "both":  # shown only if the two gradients agree
            idea = _of_both(seen, operands)
        i, j = first(wrong)
        raise Mistake(
            OTHER,
            case=case, name=name, i=i, j=j, got=got[i, j].item(), want=want[i, j].item(), why=why,
            misconception=idea, search=idea is None and not why,
        )  # fmt: skip


def _matmul(key, operands, a_format, b_format, turn=torch.t):
    """A result from operands in these formats, and by how much float32 arithmetic may differ."""
    a, b = _RESULTS[key][1]
    (a_low, a_high), (b_low, b_high) = (
        _stored(operands[a], a_format),
        _stored(operands[b], b_format),
    )
    if key != "y":  # g @ w, and g.T @ x
        b_low, b_high = turn(b_low), turn(b_high)
    if key == "gw":
        a_low, a_high = turn(a_low), turn(a_high)
    want = a_low @ b_low.t()
    # K + 4 roundings of 2**-24 for K <= 64, doubled; codes beside a tie may go either way.
    room = 2.0**-17 * (a_low.abs() @ b_low.abs().t())
    room += (a_high - a_low).abs() @ b_low.abs().t() + a_low.abs() @ (b_high - b_low).abs().t()
    return want, room


def _stored(x, fmt):
    """x as an operand stores it: the values for a quotient slightly too small and too large."""
    if fmt == "float32":
        return x, x
    if fmt == "BF16":
        return x.bfloat16().double(), x.bfloat16().double()
    values = values_of(_DTYPES[fmt.removesuffix(" without a scale")])
    descale = 1 if fmt.endswith("scale") else _descale(x, fmt)
    low, high = (nearest_of(x / descale * (1 + e), values) * descale for e in (-SLACK, SLACK))
    return low, high


def _descale(x, fmt):
    return x.abs().max() / values_of(_DTYPES[fmt])[-1]


_FORMATS = (
    "E4M3", "E5M2", "float32", "BF16", "E4M3 without a scale", "E5M2 without a scale",
)  # fmt: skip


def _why(key, got, operands):
    """What explains all of a wrong result, and the idea behind it."""
    name, (a, b) = _RESULTS[key]
    said = {"name": name, "a": a, "b": b}
    if not got.any() and a == "g":
        flushed, amax = 2.0**-17, operands["g"].abs().max()
        return fill(ALL_ZERO, name=name, amax=amax, flushed=flushed), None
    for a_got in _FORMATS:
        for b_got in _FORMATS:
            want, room = _matmul(key, operands, a_got, b_got)
            if bool(((got - want).abs() <= room).all()):
                wanted = {"a_want": _WANTED[a], "b_want": _WANTED[b]}
                said |= {"a_got": a_got, "b_got": b_got} | wanted
                return fill(MADE_OF, **said), "both" if key != "y" else _of_y(a_got, b_got)
    want, room = _matmul(key, operands, _WANTED[a], _WANTED[b])
    if bool(((got - want).abs() <= room + 2.0**-8 * want.abs()).all()):
        return fill(IN_BF16, name=name), "fp8-matmul-returns-float32"
    if key != "y":
        other, its_room = _matmul(key, operands, _WANTED[a], _WANTED[b], _reshaped)
        if bool(((got - other).abs() <= its_room).all()):
            return fill(RESHAPED, name=name), None
    times = ((got * want).sum() / (want * want).sum()).item()
    if times == times and (got - times * want).norm() <= 1e-4 * abs(times) * want.norm():
        factor, idea = _factor(key, times, operands)
        return fill(TIMES, name=name, times=times, factor=factor), idea
    return "", None


def _reshaped(t):
    return t.reshape(t.shape[::-1])


def _factor(key, times, operands):
    """Where a factor in all of a result comes from, and the idea behind it."""
    a, b = _RESULTS[key][1]
    descale = {name: _descale(t, _WANTED[name]).item() for name, t in operands.items()}
    once, tokens = 1 / (descale[a] * descale[b]), len(operands["x"])
    if abs(times / once - 1) < 1e-3:
        return fill(MISSING, a=a, b=b), None
    if abs(times / once**2 - 1) < 1e-3:
        return fill(TWICE, a=a, b=b), "scale-is-its-inverse"
    if key == "gw" and abs(times * tokens - 1) < 1e-3:
        return fill(MEAN, tokens=tokens), None
    for instead in a, b:
        for other in operands:
            if abs(times / (descale[other] / descale[instead]) - 1) < 1e-3:
                return fill(OTHER_DESCALE, other=other, instead=instead), None
    return "", None


def _of_y(a_format, b_format):
    bare = all(fmt.endswith("without a scale") for fmt in (a_format, b_format))
    return "fp8-has-range-enough" if bare else None


def _of_both(seen, operands):
    """The idea behind two gradients that are wrong in the same way."""
    for formats, idea in (
        (("E4M3", "E4M3"), "gradients-need-precision-most"),
        (("float32", "float32"), "fp8-backward-stays-high"),
        (("BF16", "BF16"), "fp8-backward-stays-high"),
    ):
        pairs = [(seen[key].double(), _matmul(key, operands, *formats)) for key in ("gx", "gw")]
        if all(bool(((got - want).abs() <= room).all()) for got, (want, room) in pairs):
            return idea
    return None


check_fp8_matmul.slip(
    "gradients-need-precision-most",
    "Gradients spread over many powers of two. Which of the two formats has the wider range?",
    swap=(
        """\
            cast(g, torch.float8_e5m2), cast(w.t().contiguous(), torch.float8_e4m3fn)
        )
        grad_w = scaled_matmul(
            cast(g.t().contiguous(), torch.float8_e5m2),""",
        """\
            cast(g, torch.float8_e4m3fn), cast(w.t().contiguous(), torch.float8_e4m3fn)
        )
        grad_w = scaled_matmul(
            cast(g.t().contiguous(), torch.float8_e4m3fn),""",
    ),
)
check_fp8_matmul.slip(
    "fp8-backward-stays-high",
    "Two of the three matmuls of a layer are in its backward pass. Where are they cast to FP8?",
    swap=("return grad_x, grad_w", "return g @ w, g.t() @ x"),
)
check_fp8_matmul.slip(
    "layout-is-free",
    "`t()` swaps the strides and moves no data, and `contiguous()` moves it. Which operand must be "
    "row-major, and which column-major?",
    swap=("w.t().contiguous()", "w.t()"),
)
check_fp8_matmul.slip(
    "fp8-has-range-enough",
    "Divide a tensor by its descale before the cast, and give the descale to `scaled_matmul`. "
    "Which of your operands have none?",
    swap=(
        "scaled_matmul(cast(x, torch.float8_e4m3fn), cast(w, torch.float8_e4m3fn))",
        "scaled_matmul(*((t.to(torch.float8_e4m3fn), torch.ones(())) for t in (x, w)))",
    ),
)


@check_fp8_matmul.wrong(
    "scale-is-its-inverse",
    "Which of amax / 448 and 448 / amax gives x back?",
)
class _(solutions.Fp8Matmul):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        operands = (solutions.to_fp8(t, E4M3) for t in (x, w))
        return solutions.scaled_matmul(*((codes, 1 / descale) for codes, descale in operands))


@check_fp8_matmul.wrong(
    "fp8-matmul-returns-float32",
    "What does `scaled_mm` return without `output_dtype`?",
)
class _(solutions.Fp8Matmul):
    @staticmethod
    def forward(ctx, x, w):
        return solutions.Fp8Matmul.forward(ctx, x, w).bfloat16().float()
