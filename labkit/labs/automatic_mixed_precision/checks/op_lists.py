"""Check of lab 05's small autocast, against torch's own under the GPU's lists."""

import torch
from torch import nn
from torch.nn import functional as F

from labkit.emulation import emulate_gpu
from labkit.formats.dtypes import name_of
from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import brief, seeded
from labkit.labs.engine.messages import came
from labkit.labs.engine.reading import failure

LAB = "05_automatic_mixed_precision"

NOT_LISTED = (
    "{call} gives {came}. `log1p` and `abs` are in neither set, so they keep the float16 that "
    "they got."
)
WEIGHT_CHANGED = "After the block a weight is {got}{rounded}."
OTHER_VALUES = "{call} gives other values than outside of the block."
NO_GRADIENT = "A weight has no finite float32 gradient. Does your cast cut the graph?"
CUT = "The loss has no path back to the weights: {error}. Does your cast cut the graph?"
STAYS_NARROW = (
    "After the block the network's outputs are not finite float32 values. What does your block "
    "leave changed?"
)
RAISED = "{call} raised: {error}."
RAISED_BY = "{call} raised {error}."
NO_TENSOR = "{call} gives {came}. Do you return what `func` returns?"
CASE_DTYPE = "{call} is {got}; torch.autocast gives {want}. {why}"
KEPT_NARROW = "A function in `WIDE` gets float32 inputs, also where the inputs have 16 bits."
NOT_NARROWED = "`@` arrives as the name `matmul`, which is in `LOW`."
OTHER_BITS = "{call} has the right dtype, but other values than under torch.autocast."


def _network():
    network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))
    with torch.no_grad():
        for seed, parameter in enumerate(network.parameters()):
            parameter.copy_(seeded(seed, *parameter.shape, scale=0.5))
    return network


def _x(seed):
    return seeded(seed + 10, 4, 6)


_TARGETS = torch.tensor([0, 2, 1, 2])


def _cases(seed):
    """What is computed inside the block, by its text."""
    x, w = _x(seed), seeded(seed + 11, 5, 6)
    image, kernel = seeded(seed + 13, 1, 2, 5, 5), seeded(seed + 14, 3, 2, 3, 3)
    return {
        "x @ w": lambda: x @ w.T,
        "torch.mm(x, w)": lambda: torch.mm(x, w.T),
        "linear(x, w, bias=b)": lambda: F.linear(x, w, bias=seeded(seed + 12, 5)),
        "conv2d(image, kernel)": lambda: F.conv2d(image, kernel),
        "(x @ w).relu()": lambda: (x @ w.T).relu(),
        "(20 * (x @ w)).exp()": lambda: (20 * (x @ w.T).abs()).exp(),
        "(x @ w).softmax(dim=1)": lambda: (x @ w.T).softmax(dim=1),
        "(100 * (x @ w)).pow(2).sum()": lambda: (100 * (x @ w.T)).pow(2).sum(),
        "nll_loss(x.log_softmax(dim=1), targets)": lambda: F.nll_loss(x.log_softmax(1), _TARGETS),
        "x + x": lambda: x + x,
        "x.half() + x": lambda: x.half() + x,
        "x.double() @ w.double()": lambda: x.double() @ w.T.double(),
        "sum of counts": lambda: _TARGETS.sum(),
        "network(x)": lambda: _network()(x),
    }


def _on_no_list(seed):
    # CUDA's own list is longer than WIDE, and `log1p` only looks like a name of it.
    return {"x.half().abs().log1p()": lambda: _x(seed).half().abs().log1p()}


def run_mini_autocast(mini, seed):
    """Each case inside `mini(dtype)`, and what a network and its gradients are afterwards."""
    shown = {}
    with emulate_gpu():
        for dtype in (torch.float16, torch.bfloat16):
            for text, case in (_cases(seed) | _on_no_list(seed)).items():
                shown[text, dtype] = attempt(_inside, mini, dtype, case)
        network = _network()
        shown["loss"] = attempt(_loss, mini, network, _x(seed))
        shown["outside"] = attempt(network, _x(seed))
    shown["parameters"] = [p.detach().clone() for p in network.parameters()]
    shown["gradients"] = [p.grad for p in network.parameters()]
    return shown


def _inside(mini, dtype, case):
    with mini(dtype):
        result = case()
    # Outside of the block: what the learner's mode does to `detach` is no part of the case.
    return result.detach() if isinstance(result, torch.Tensor) else result


def _loss(mini, network, x):
    with mini(torch.float16):
        loss = F.nll_loss(network(x).log_softmax(dim=1), _TARGETS)
    loss.backward()
    return loss.dtype


@check(
    run_mini_autocast,
    own_work=(
        "torch.autocast",
        "torch.cuda.amp.autocast",
        "torch.cpu.amp.autocast",
    ),
)
def check_mini_autocast(shown, seed):
    """Autocast in a dozen lines: matmuls in 16 bits, listed functions in float32."""
    for was, now in zip(_network().parameters(), shown["parameters"], strict=True):
        if now.dtype is not torch.float32 or not torch.equal(was, now):
            raise Mistake(
                WEIGHT_CHANGED,
                got=name_of(now.dtype),
                rounded=", with other values than before" if now.dtype is torch.float32 else "",
                misconception="autocast-casts-the-parameters",
            )
    with emulate_gpu():
        for dtype in (torch.float16, torch.bfloat16):
            for text, case in _cases(seed).items():
                _judge_case(text, case, dtype, shown)
            for text, case in _on_no_list(seed).items():
                call = f"`{text}` inside `mini_autocast({name_of(dtype)})`"
                got = _value(shown[text, dtype], call)
                if getattr(got, "dtype", None) is not torch.float16:
                    raise Mistake(NOT_LISTED, call=call, came=came(got))
                if not torch.equal(got, case()):
                    raise Mistake(OTHER_VALUES, call=call)
    loss = shown["loss"]
    if type(loss) is Raised and "does not require grad" in loss.message:
        raise Mistake(CUT, error=brief(loss))
    _value(loss, "loss.backward()")
    weights = _network().parameters()
    if not all(_fits(g, w) for g, w in zip(shown["gradients"], weights, strict=True)):
        raise Mistake(NO_GRADIENT)
    outside = _value(shown["outside"], "network(x) after the block")
    if outside.dtype is not torch.float32 or not outside.isfinite().all():
        raise Mistake(STAYS_NARROW)


def _fits(gradient, weight):
    return (
        gradient is not None
        and (gradient.shape, gradient.dtype) == (weight.shape, torch.float32)
        and bool(gradient.isfinite().all())
    )


def _judge_case(text, case, dtype, shown):
    got = shown[text, dtype]
    with torch.autocast("cpu", dtype=dtype):
        want = case().detach()
    call = f"`{text}` inside `mini_autocast({name_of(dtype)})`"
    if type(got) is Raised and "dtype" in got.message and "bias=b" in text:
        idea = "keywords-need-no-cast"
        raise Mistake(RAISED, call=call, error=got.message, misconception=idea)
    if type(got) is Raised and text.startswith("nll_loss"):
        idea = "every-tensor-is-cast"
        raise Mistake(RAISED, call=call, error=got.message, misconception=idea)
    got = _value(got, call)
    if not isinstance(got, torch.Tensor):
        raise Mistake(NO_TENSOR, call=call, came=came(got))
    if got.dtype is not want.dtype:
        listed = want.dtype is torch.float32 and "(x @ w)" in text
        keeps = listed and got.dtype is dtype and not _narrows(shown, dtype)
        raise Mistake(
            CASE_DTYPE,
            call=call,
            got=name_of(got.dtype),
            want=name_of(want.dtype),
            why=_why(text, keeps, got, dtype),
            misconception=None if keeps else _idea(text, got, dtype),
            search=not keeps,
        )
    if torch.equal(got.nan_to_num(), want.nan_to_num()):
        return
    with torch.no_grad():
        late = case().detach().to(want.dtype)
    idea = "casting-the-output-is-enough" if torch.equal(got, late) else None
    raise Mistake(OTHER_BITS, call=call, misconception=idea)


def _why(text, keeps, got, dtype):
    if keeps:
        return KEPT_NARROW
    return NOT_NARROWED if text == "x @ w" and got.dtype is torch.float32 else ""


def _narrows(shown, dtype):
    """Whether a float32 argument of a name of WIDE, or of none, has come down to 16 bits."""
    loss = shown["nll_loss(x.log_softmax(dim=1), targets)", dtype]
    total = shown["x + x", dtype]
    return getattr(total, "dtype", None) is dtype or getattr(loss, "dtype", dtype) is dtype


def _idea(text, got, dtype):
    if got.dtype is torch.float32 and text in ("(x @ w).relu()", "network(x)"):
        return "unlisted-ops-run-in-fp32" if "relu" in text else None
    if "double" in text or "counts" in text:
        return "every-tensor-is-cast"
    if got.dtype is dtype and any(f in text for f in ("exp", "softmax", "sum", "ent")):
        return "autocast-casts-every-op"
    if got.dtype is dtype and text == "x + x":
        return "autocast-casts-every-op"
    return None


def _value(got, call):
    if type(got) is Raised:
        raise AnswerError(RAISED_BY, call=call, error=failure(got))
    return got


check_mini_autocast.slip(
    "autocast-casts-the-parameters",
    "You changed the weight that the optimizer updates. Which tensor should only the function get?",
    swap=(
        "def cast(x):",
        "def cast(x):\n            if target and isinstance(x, torch.nn.Parameter):\n"
        "                x.data = x.data.to(target)",
    ),
)
check_mini_autocast.slip(
    "autocast-casts-every-op",
    "Not every function may run in 16 bits. What does your code do with a name in `WIDE`, and with "
    "one in neither set?",
    swap=("torch.float32 if", "self.dtype if"),
)
_RUN = """\
        kwargs = {key: cast(value) for key, value in (kwargs or {}).items()}
        return func(*[cast(value) for value in args], **kwargs)
"""
_RUN_WIDE_AND_CAST = """\
        target = torch.float32 if target else None
        kwargs = {key: cast(value) for key, value in (kwargs or {}).items()}
        result = func(*[cast(value) for value in args], **kwargs)
        target = self.dtype if func.__name__ in LOW else None
        return cast(result)
"""
check_mini_autocast.slip(
    "unlisted-ops-run-in-fp32",
    "A function in neither set keeps the dtypes that it gets: 16 bits stay 16 bits. What does your "
    "code do with such a function?",
    swap=("in LOW else None", "in LOW else torch.float32"),
)
check_mini_autocast.slip(
    "casting-the-output-is-enough",
    "Your matmul ran on float32 inputs and only its result was cast. What must be cast to 16 bits "
    "before the call?",
    swap=(_RUN, _RUN_WIDE_AND_CAST),
)
check_mini_autocast.slip(
    "keywords-need-no-cast",
    "One argument kept its float32. Which arguments does your cast not see?",
    swap=("{key: cast(value) for key, value in (kwargs or {}).items()}", "kwargs or {}"),
)
check_mini_autocast.slip(
    "every-tensor-is-cast",
    "Integers such as labels, and float64 tensors, keep their dtype. Which dtypes may your cast "
    "change?",
    swap=("eligible and x.dtype != torch.float64", "isinstance(x, torch.Tensor)"),
)
