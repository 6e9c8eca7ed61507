"""Checks of the questions on debugging: the first bad module, the share of zero gradients."""

import math
import reprlib

import torch
from torch import nn

from labkit.labs.engine import AnswerError, Mistake, attempt, check, number
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import came
from labkit.labs.engine.reading import failure

LAB = "interview"

RAISED = "{scene}: {error}."
OTHER_NAME = "{scene}: your answer is {got}; {want} is wanted."
HOOKS_LEFT = "{scene}: the name is right, but {hooks} forward hooks are left behind."
NO_SHARES = "{scene}: {came} came back; a dict with a share for each of {layers} is wanted."
OTHER_SHARE = (
    "{scene}: the share of {name} is {got}; {want} is wanted. Of its {all} elements {alive} are "
    "not 0 in FP32, and FP16 lost {lost} of those."
)


# The first module whose output is not finite


class _Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


class _Minus(nn.Module):
    def forward(self, x):
        return x - x


class _Repair(nn.Module):
    def forward(self, x):
        return x.nan_to_num(0.0, 1.0, -1.0)


class _Spike(nn.Module):
    """One inf among finite elements."""

    def forward(self, x):
        x = x.clone()
        x[0, 0] = math.inf
        return x


class _Crossed(nn.Module):
    """Two children, of which the one that was made last is called first."""

    def __init__(self):
        super().__init__()
        self.early, self.late = nn.Tanh(), _Times(math.nan)

    def forward(self, x):
        return self.early(self.late(x))


_BIG = 1e30
_GLOBAL_HOOKS = nn.modules.module._global_forward_hooks
# Scene -> what makes its modules. A list inside is a Sequential of its own.
_SCENES = {
    "all finite": lambda: [_Times(2.0), nn.ReLU(), _Times(3.0)],
    "inf, then the NaN it causes": lambda: [_Times(_BIG), _Times(_BIG), _Minus(), nn.Tanh()],
    "-inf alone": lambda: [_Times(-_BIG), _Times(_BIG), nn.ReLU()],
    "inside a block": lambda: [_Times(2.0), [nn.Identity(), _Times(_BIG * 1e9)], nn.Tanh()],
    "NaN, hidden by a later module": lambda: [_Times(math.nan), _Repair(), nn.Tanh()],
    "one inf among finite elements": lambda: [nn.Tanh(), _Spike(), _Repair()],
    "called in another order than made": lambda: [_Crossed()],
}
_FIRST_BAD = {  # stays with the judge
    "all finite": None,
    "inf, then the NaN it causes": "1",
    "-inf alone": "1",
    "inside a block": "1.1",
    "NaN, hidden by a later module": "0",
    "one inf among finite elements": "1",
    "called in another order than made": "0.late",
}


def _model(modules):
    return nn.Sequential(*(_model(m) if type(m) is list else m for m in modules))


def run_first_bad_module(first_bad_module):
    """`first_bad_module` on each model: what it returns, and the hooks that are left."""
    seen = {}
    for scene, modules in _SCENES.items():
        model, before = _model(modules()), dict(_GLOBAL_HOOKS)
        got = attempt(first_bad_module, model, torch.ones(2, 3))
        hooks = sum(len(module._forward_hooks) for module in model.modules())
        seen[scene] = [got, hooks + len(_GLOBAL_HOOKS) - len(before)]
        for left in _GLOBAL_HOOKS.keys() - before.keys():
            del _GLOBAL_HOOKS[left]
    return seen


@check(run_first_bad_module)
def check_first_bad_module(seen):
    """The first module with an inf or a NaN in its output, by name, and no hook is left."""
    wrong = {}
    for scene, want in _FIRST_BAD.items():
        got, _ = seen[scene]
        if type(got) is Raised:
            raise AnswerError(RAISED, scene=scene, error=failure(got))
        if got != want or type(got) is not type(want):
            wrong[scene] = {"got": reprlib.repr(got), "want": repr(want)}
    if wrong:
        scene, said = next(iter(wrong.items()))
        idea = _BLIND.get(frozenset(wrong))
        raise Mistake(OTHER_NAME, scene=scene, misconception=idea, **said)
    for scene, (_, hooks) in seen.items():
        if hooks:
            idea = "a-hook-removes-itself"
            raise Mistake(HOOKS_LEFT, scene=scene, hooks=hooks, misconception=idea)


# Which scenes an idea gets wrong.
_BLIND = {
    frozenset(
        [
            "inf, then the NaN it causes",
            "-inf alone",
            "inside a block",
            "one inf among finite elements",
        ]
    ): "nan-is-the-only-nonfinite"
}


def _finder(is_bad, *, last=False, keep=False):
    def first_bad_module(model, x):
        found, handles = [], []

        def watch(name):
            def hook(module, inputs, output):
                if is_bad(output):
                    found.append(name)

            return hook

        for name, module in model.named_modules():
            handles.append(module.register_forward_hook(watch(name)))
        model(x)
        for handle in handles if not keep else ():
            handle.remove()
        return (found[-1] if last else found[0]) if found else None

    return first_bad_module


check_first_bad_module.wrong(
    "nan-is-the-only-nonfinite",
    "inf is not NaN, and a moment later it makes one. Which test says no to both?",
)(_finder(lambda x: bool(x.isnan().any())))
check_first_bad_module.wrong(
    "the-last-nan-is-the-first",
    "The hooks fire in the order of execution. Which of those that report is the cause?",
)(_finder(lambda x: not x.isfinite().all(), last=True))
check_first_bad_module.wrong(
    "a-hook-removes-itself",
    "They would fire in every later forward. What does `register_forward_hook` return?",
)(_finder(lambda x: not x.isfinite().all(), keep=True))


@check_first_bad_module.wrong(
    "a-closure-copies-its-names",
    "Each hook reports the same name. When is `name` looked up: as a hook is made, or as it runs?",
)
def _(model, x):
    bad, handles = [], []
    for name, module in model.named_modules():

        def hook(module, inputs, output):
            if not output.isfinite().all():
                bad.append(name)  # noqa: B023

        handles.append(module.register_forward_hook(hook))
    model(x)
    for handle in handles:
        handle.remove()
    return bad[0] if bad else None


@check_first_bad_module.wrong(
    "the-loss-tells-everything",
    "You looked at the last output only. Who hands you the others?",
)
def _(model, x):
    return None if model(x).isfinite().all() else ""


# The share of gradients that became zero

_HALF = torch.float16
_FP16_LEAST = 2.0**-24


def _gradients():
    """Two layers and their FP32 twins: underflow, zeros that were zeros before, a silent layer."""
    reference = {
        "first": torch.tensor([1e-3, 1e-9, 0.0, -2e-9, 0.0, 0.0, 5e-4, 1e-5]),
        "second": torch.tensor([[0.5, -0.25], [1e-2, 1e-8]]),
        "tiny": torch.tensor([1e-7, -1e-7, 6e-8, 1e-9]),
        "dead": torch.zeros(5),
    }
    return {name: g.to(_HALF) for name, g in reference.items()}, reference


def run_zero_share(zero_share):
    """`zero_share` on FP16 gradients without a scale, and with a scale of 1024."""
    plain, reference = _gradients()
    scaled = {name: (g * 1024).to(_HALF) for name, g in reference.items()}
    return {
        "without a scale": attempt(zero_share, plain, reference),
        "with a scale of 1024": attempt(zero_share, scaled, reference),
    }


@check(run_zero_share)
def check_zero_share(seen):
    """For each layer the share of gradients that FP32 has and FP16 lost."""
    _, reference = _gradients()
    for scene, scale in (("without a scale", 1.0), ("with a scale of 1024", 1024.0)):
        got = seen[scene]
        if type(got) is Raised:
            raise AnswerError(RAISED, scene=scene, error=failure(got))
        if not isinstance(got, dict) or set(got) != set(reference):
            raise Mistake(NO_SHARES, scene=scene, came=came(got), layers=", ".join(reference))
        for name, exact in reference.items():
            alive = [g for g in exact.flatten().tolist() if g]
            lost = [g for g in alive if abs(g) * scale <= _FP16_LEAST / 2]
            want = len(lost) / len(alive) if alive else 0.0
            share = number(got[name], call=f"zero_share(...)[{name!r}]")
            if not abs(share - want) <= 1e-6:
                raise Mistake(
                    OTHER_SHARE,
                    scene=scene,
                    name=repr(name),
                    got=share,
                    want=want,
                    all=exact.numel(),
                    alive=len(alive),
                    lost=len(lost),
                )


@check_zero_share.wrong(
    "zeros-count-as-lost",
    "Some gradients are 0 in FP32 too. Which zeros did the format make?",
)
def _(gradients, reference):
    return {name: (g == 0).double().mean().item() for name, g in gradients.items()}


@check_zero_share.wrong(
    "zeros-belong-in-the-base",
    "A gradient that was never there cannot be lost. What do you divide by?",
)
def _(gradients, reference):
    return {
        name: ((gradients[name] == 0) & (exact != 0)).double().mean().item()
        for name, exact in reference.items()
    }


@check_zero_share.wrong(
    "close-to-zero-is-zero",
    "A tiny gradient that FP16 still holds is not lost. Which comparison is meant?",
)
def _(gradients, reference):
    shares = {}
    for name, exact in reference.items():
        alive = exact != 0
        lost = (gradients[name].abs() < 1e-6) & alive
        shares[name] = lost.sum().item() / max(alive.sum().item(), 1)
    return shares
