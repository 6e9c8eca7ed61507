"""Check of lab 11's dispatch mode: short scenes, each with one operator that is to be named."""

import itertools
import math
import random

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import seeded
from labkit.labs.engine.messages import came, fill
from labkit.labs.engine.reading import failure

LAB = "11_monitoring_and_debugging"

RAISED = "{name}: the code under your mode raised {error}. {why}"
NO_OUTPUT = "Does your method return what `func` returns, each time?"
NO_KEYWORDS = "Here `kwargs` is None."
NOT_TEXT = "{name}: `found` is {came}; {want} is wanted, the `str(func)` of an operator."
OTHER_RESULT = (
    "{name}: under your mode the code gives {got}, and without it {want}. What does your method "
    "return, and what does it hand to `func`?"
)
OTHER = "{name}: `found` is {got}; {want} is wanted. {why}"
ALL_FINITE = "No value is inf or NaN."
WHY_FIRST = "Its inputs are finite, and so are those of all operators before it."


def _nothing_wrong():
    x = torch.linspace(-3, 3, 7).softmax(0)
    x[1:].add_(1)
    return x.log()


def _mask():
    hidden = torch.ones(3, 3).triu(1).bool()
    weights = torch.eye(3).masked_fill(hidden, -math.inf).softmax(-1)
    return weights * 1e30 * 1e30


def _square():
    y = torch.full((4,), 300.0).half()
    square = y * y
    return square - square


def _cast():
    return torch.full((2,), 1e5).to(torch.float16)


def _root():
    return torch.tensor([4.0, -1.0]).sqrt() + 1


def _in_place():
    x = torch.full((3,), 100.0)
    x.exp_()
    return x - x


def _overflow_below_zero():
    x = torch.full((3,), -3e38)
    return (x + x).exp()


def _backward():
    w = torch.zeros(3, requires_grad=True)
    (w * w).sum().sqrt().backward()
    return w.grad


def _two():
    large = torch.tensor([3e38]) * 2
    return (large + torch.tensor([0.0]).log()).double()


def _list():
    return torch._foreach_mul([torch.full((2,), 1e20)] * 2, 1e30)[1]


def _second_of_a_list():
    return torch._foreach_mul([torch.ones(2), torch.full((3,), 1e20)], 1e30)[1]


def _tuple():
    return torch.var_mean(torch.tensor([3e38, -3e38]))[0]


def _batch():
    batch = torch.tensor([1.0, math.nan])
    return torch.stack([batch, torch.ones(2)]).relu() * 2


def _alpha():
    return torch.add(torch.ones(2), torch.ones(2), alpha=math.inf)


def _log():
    return torch.zeros(2).log()


_BARE = "log(0), where `kwargs` is None"
_SCENES = {
    "all values finite": _nothing_wrong,
    "an FP16 square of 300": _square,
    "a cast of 1e5 to FP16": _cast,
    "the square root of -1": _root,
    "`x.exp_()`, in place": _in_place,
    "an overflow to -inf, and its exp": _overflow_below_zero,
    "a mask of -inf, then an overflow": _mask,
    "the backward pass of sqrt at 0": _backward,
    "an overflow, and then log(0)": _two,
    "a list of tensors": _list,
    "a list of two tensors, of which the second overflows": _second_of_a_list,
    "a tuple of tensors": _tuple,
    "a batch that holds NaN": _batch,
    "an inf as keyword argument": _alpha,
    _BARE: _log,
}
"""Each runs a few operators and returns a tensor."""

_HEALTHY = torch.sin, torch.cos, torch.tanh, torch.sigmoid, torch.neg
"""What lies between -1 and 1 stays there."""

_SICK = {
    "a division by 0": lambda x: x / torch.zeros(()),
    "the logarithm of 0": lambda x: (x - x).log(),
    "the reciprocal of 0": lambda x: (x - x).reciprocal(),
    "the reciprocal of the root of 0": lambda x: (x - x).rsqrt(),
    "the root of a negative number": lambda x: (x - 2).sqrt(),
    "log1p below -1": lambda x: (x - 5).log1p(),
    "the arc cosine of 3": lambda x: (x + 3).acos(),
    "the exponential of 100": lambda x: (x + 100).exp(),
    "the exponential of 100, in place": lambda x: (x + 100).exp_(),
    "the square of 1e30": lambda x: (x + 1e30) ** 2,
    "1e30 times 1e30": lambda x: (x + 1e30) * 1e30,
    "a difference beyond -3.4e38": lambda x: (x - 3e38) - 3e38,
    "a cast of 1e5 to FP16": lambda x: (x + 1e5).half(),
}
"""What makes inf or NaN of every x between -1 and 1: an operator that makes room, and the one."""


def _scenes(seed):
    """The scenes above; then drawn operators, all healthy, and with two sick ones among them."""
    draw = random.Random(seed)
    start = seeded(seed, draw.randrange(2, 9)).tanh()

    def steps():
        return [draw.choice(_HEALTHY) for _ in range(draw.randrange(1, 6))]

    drawn = {"a chain of finite values": _chain(start, [*steps(), *steps()])}
    for first, second in itertools.pairwise(draw.sample(sorted(_SICK), 7)):
        before, between, after = steps(), steps(), steps()
        code = [*before, _SICK[first], *between, _SICK[second], *after]
        drawn[f"{len(before)} finite steps; {first}; {second}"] = _chain(start, code)
    return _SCENES | drawn


def _chain(start, code):
    def scene():
        x = start
        for step in code:
            x = step(x)
        return x

    return scene


def run_first_born(FirstNonfinite, seed):
    """Of each scene `found`, and what the scene returns."""
    return {name: attempt(_met, FirstNonfinite, scene) for name, scene in _scenes(seed).items()}


class _Below(TorchDispatchMode):
    """Hands each operator to a mode, with None for keyword arguments where there are none."""

    def __init__(self, mode):
        super().__init__()
        self.mode = mode

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self.mode.__torch_dispatch__(func, types, args, kwargs or None)


def _met(FirstNonfinite, scene):
    mode = FirstNonfinite()
    with _Below(mode) if scene is _log else mode:
        value = scene()
    return mode.found, value


_FIRST = {
    "a mask of -inf, then an overflow": (
        "aten.mul.Tensor",
        "`masked_fill` got -inf as its value, as causal masks do, so the inf is not its own.",
    ),
    "an FP16 square of 300": (
        "aten.mul.Tensor",
        "90,000 overflows to inf; after it, inf - inf is NaN.",
    ),
    "a cast of 1e5 to FP16": (
        "aten._to_copy.default",
        "The cast's dtype is a keyword argument.",
    ),
    "the square root of -1": ("aten.sqrt.default", "It makes a NaN, and no inf comes before."),
    "`x.exp_()`, in place": (
        "aten.exp_.default",
        "It got 100, and after the call the same tensor holds inf.",
    ),
    "an overflow to -inf, and its exp": ("aten.add.Tensor", "-3e38 twice is -inf."),
    "the backward pass of sqrt at 0": (
        "aten.div.Tensor",
        "The slope of sqrt divides by 0. The multiplication after it makes NaN of inf.",
    ),
    "an overflow, and then log(0)": (
        "aten.mul.Tensor",
        "Both make an inf of finite inputs, and the multiplication is the first.",
    ),
    "a list of tensors": (
        "aten._foreach_mul.Scalar",
        "It takes a list and returns a list.",
    ),
    "a list of two tensors, of which the second overflows": (
        "aten._foreach_mul.Scalar",
        "The first tensor of its output is finite, and the second holds inf.",
    ),
    "a tuple of tensors": (
        "aten.var_mean.correction",
        "It returns a tuple: a variance that overflows, and a mean.",
    ),
    "a batch that holds NaN": (
        None,
        "The NaN came with the batch, and every operator after it got it as input.",
    ),
    "an inf as keyword argument": (None, "`torch.add` got the inf itself, as alpha."),
    _BARE: ("aten.log.default", "It makes -inf of 0."),
}


_MADE_BY = {
    "a division by 0": "aten.div.Tensor",
    "the logarithm of 0": "aten.log.default",
    "the reciprocal of 0": "aten.reciprocal.default",
    "the reciprocal of the root of 0": "aten.rsqrt.default",
    "the root of a negative number": "aten.sqrt.default",
    "log1p below -1": "aten.log1p.default",
    "the arc cosine of 3": "aten.acos.default",
    "the exponential of 100": "aten.exp.default",
    "the exponential of 100, in place": "aten.exp_.default",
    "the square of 1e30": "aten.pow.Tensor_Scalar",
    "1e30 times 1e30": "aten.mul.Tensor",
    "a difference beyond -3.4e38": "aten.sub.Tensor",
    "a cast of 1e5 to FP16": "aten._to_copy.default",
}


def _first_of(name):
    """The operator that a scene wants named, and why."""
    first = name.split("; ")[1:2]
    return (_MADE_BY[first[0]], WHY_FIRST) if first else _FIRST.get(name, (None, ALL_FINITE))


@check(run_first_born)
def check_first_born(shown, seed):
    """The first operator that makes an inf or NaN, in the forward and the backward pass."""
    for name, scene in _scenes(seed).items():
        got = shown[name]
        if type(got) is Raised:
            why = NO_OUTPUT if "NoneType" in got.message else ""
            why = NO_KEYWORDS if name == _BARE else why
            raise AnswerError(RAISED, name=name, error=failure(got), why=why)
        found, value = got
        right, (want, why) = scene(), _first_of(name)
        if not _same(value, right):
            raise Mistake(OTHER_RESULT, name=name, got=_text(value), want=_text(right))
        if found is not None and type(found) is not str:
            raise Mistake(NOT_TEXT, name=name, came=came(found), want=_text(want))
        if found != want:
            raise Mistake(OTHER, name=name, got=_text(found), want=_text(want), why=why)


def _same(value, right):
    if not isinstance(value, torch.Tensor) or value.dtype != right.dtype:
        return False
    return value.shape == right.shape and torch.allclose(value, right, equal_nan=True)


def _text(value):
    if isinstance(value, torch.Tensor):
        numbers = ", ".join(f"{x:.4g}" for x in value.flatten().tolist())
        return f"[{numbers}] in {str(value.dtype).removeprefix('torch.')}"
    return fill("{value}", value=value) if type(value) is str else str(value)


_LOOK = "healthy = all(map(finite, tree_leaves((args, kwargs or {}))))"
_CALL = "out = func(*args, **(kwargs or {}))"

check_first_born.slip(
    "every-inf-is-a-fault",
    "What must be true of an operator's inputs before you accuse it?",
    swap=("is None and healthy", "is None"),
)
check_first_born.slip(
    "arguments-stay-as-they-were",
    "After an operator in place, its input is its output. When must you look at the inputs?",
    swap=(f"{_LOOK}\n        {_CALL}", f"{_CALL}\n        {_LOOK}"),
)
check_first_born.slip(
    "nan-is-the-only-nonfinite",
    "The square of 300 was inf before it was NaN. What does `finite` ask that `isnan` does not?",
    swap=(
        f"{_LOOK}\n        {_CALL}\n"
        "        if self.found is None and healthy and not all(map(finite, tree_leaves(out))):",
        "def healthy(tree):\n"
        "            tensors = [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]\n"
        "            return not any(x.isnan().any() for x in tensors)\n\n"
        "        before = healthy((args, kwargs or {}))\n"
        f"        {_CALL}\n"
        "        if self.found is None and before and not healthy(out):",
    ),
)
check_first_born.slip(
    "the-last-nan-is-the-first",
    "A later operator took the place of the first. When may `found` still change?",
    cut="self.found is None and ",
)
check_first_born.slip(
    "arguments-are-flat",
    "The operator returned a list, which is no tensor. What does `tree_leaves` make of it?",
    swap=("all(map(finite, tree_leaves(out)))", "finite(out)"),
)
check_first_born.slip(
    "arguments-are-flat",
    "`torch.stack` got a list of tensors, and one of them held the NaN. What does `tree_leaves` "
    "make of it?",
    swap=("tree_leaves((args, kwargs or {}))", "(*args, *(kwargs or {}).values())"),
)
check_first_born.slip(
    "operators-have-no-keywords",
    "Some inputs come as keyword arguments, such as a dtype. Where do you pass them on?",
    swap=(_CALL, "out = func(*args)"),
)
check_first_born.slip(
    "operators-have-no-keywords",
    "Some inputs come as keyword arguments, such as this alpha. Where do you look at them?",
    swap=("tree_leaves((args, kwargs or {}))", "tree_leaves(args)"),
)
