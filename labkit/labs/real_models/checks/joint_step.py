"""Check of lab 13's step of two optimizers on one model: both step, or neither."""

import torch
import torch.nn.functional as F
from torch import nn

from labkit.emulation import emulate_gpu
from labkit.labs.engine import attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import Loop, brief, filled, flat, same_end
from labkit.labs.engine.messages import fill
from labkit.labs.real_models import solutions

LAB = "13_real_models"

STEP = "{name}, step {place}: {said}"
HALF_A_STEP = (
    "{where}'s gradient holds an inf. {stayed} stayed, and {moving}'s weights moved by "
    "{moved:.2g}. Both must stay."
)
NOT_SKIPPED = (
    "{where}'s gradient holds an inf, and the weights of both optimizers moved, by {moved:.2g}. "
    "Both must stay."
)
TO_INF = "{where}'s gradient holds an inf, and now {moving}'s weights hold inf or NaN."
STOOD_STILL = "all gradients are finite, and {still}'s weights did not move."
TOO_FAR = "{moving}'s weights moved {times:.3g} times as far as they must.{why}"
ASTRAY = "{moving}'s movement differs by {away:.0%} from the right one.{why}"
UNCLIPPED = " A step without any clip ends there too."
FROM_BEFORE = " Before the first step .grad held gradients of another loss. When do you empty it?"
THE_SCALE = " The scale is {scale:g}."
OTHER_SCALE = "afterwards the scale is {got:g}; {want:g} is wanted. When do you call `update`?"
OTHER_ANSWER = "you return {got}; {want} is wanted."
ENDS_DIFFER = "Your steps do not end where the right ones end."

_OLD = "old gradients in .grad"
_CASES = {  # the second optimizer, the limit, the scaler, where the gradient of a step holds an inf
    "AdamW, no limit": ("AdamW", 1e9, {}, {}),
    "SGD, no limit": ("SGD", 1e9, {}, {}),
    "SGD, a limit of 0.02": ("SGD", 0.02, {}, {}),
    "an inf in Muon's matrix": ("AdamW", 1e9, {}, {0: 0, 2: 0}),
    "an inf in a bias of AdamW": ("AdamW", 1e9, {}, {1: 1}),
    _OLD: ("AdamW", 1e9, {}, {}),
    "a scale that grows": ("AdamW", 1e9, {"growth_interval": 1, "init_scale": 2.0**8}, {}),
}
_STEPS = 4


class _Network(nn.Module):
    """An embedding, a matrix for Muon, a norm and a head."""

    def __init__(self):
        super().__init__()
        self.token, self.hidden = nn.Embedding(7, 8), nn.Linear(8, 8)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 7)

    def forward(self, tokens):
        return self.head(self.norm(self.hidden(self.token(tokens)).relu()))


def _loss(network, step, infinite):
    """A finite loss; the gradient of Muon's matrix (0) or of the head's bias (1) may be inf."""
    tokens = (torch.arange(14) + step) % 7
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(network(tokens), (3 * tokens + 1) % 7)
    if infinite is not None:
        weight = (network.hidden.weight, network.head.bias)[infinite]
        loss = loss + (weight - weight.detach()).sum().sqrt()  # sqrt(0), whose slope is inf
    return loss


def run_joint_step(joint_step, seed):
    """Four steps of each case: what is returned, both movements, and the scales."""
    shown = {}
    with emulate_gpu():
        for name, (second, limit, settings, infinite) in _CASES.items():
            network = filled(_Network(), 3 + seed)
            matrix = network.hidden.weight
            others = [p for p in network.parameters() if p is not matrix]
            muon = torch.optim.Muon([matrix], lr=0.02)
            rate = {"SGD": 0.2, "AdamW": 0.01}[second]
            other = getattr(torch.optim, second)(others, lr=rate)
            scaler = torch.amp.GradScaler("cpu", **{"init_scale": 2.0**10} | settings)
            if name == _OLD:
                (2.0**10 * network(torch.arange(3)).square().sum()).backward()
            ends = {"returned": [], "moved": [], "scales": []}
            for step in range(_STEPS):
                loss = _loss(network, step, infinite.get(step))
                before = matrix.detach().clone(), flat(nn.ParameterList(others))
                given = network, loss, muon, other, scaler, limit
                ends["returned"].append(_truth(attempt(joint_step, *given)))
                now = matrix.detach(), flat(nn.ParameterList(others))
                ends["moved"].append([a - b for a, b in zip(now, before, strict=True)])
                ends["scales"].append(scaler.get_scale())
            shown[name] = ends
    return shown


def _truth(got):
    """True or False, where it is a tensor of one element."""
    return got.item() if isinstance(got, torch.Tensor) and got.numel() == 1 else got


def _evidence(got, want, seed):
    for name in _CASES:
        for place in range(_STEPS):
            said = _step_evidence(name, place, got[name], want[name], seed)
            if said:
                said += FROM_BEFORE if name == _OLD else ""
                return fill(STEP, name=name, place=place, said=said)
    return ENDS_DIFFER


def _step_evidence(name, place, got, want, seed):
    """What is true of a step that ends elsewhere, or ""."""
    returned = got["returned"][place]
    if type(returned) is Raised:
        return f"{brief(returned)}."
    moved, wanted = got["moved"][place], want["moved"][place]
    second, _, _, infinite = _CASES[name]
    two = "Muon", second
    if place in infinite and any(part.any() for part in moved):
        return _not_skipped(moved, two, two[infinite[place]])
    for who, step, right in zip(two, moved, wanted, strict=True):
        if not same_end(step, right):
            said = _otherwise(
                who, step.flatten(), right.flatten(), _scale_before(name, place, want)
            )
            unclipped = JOINT.end(_unclipped, seed=seed)[name]["moved"][place]
            return said + (UNCLIPPED if same_end(moved, unclipped) and step.any() else "")
    if got["scales"][place] != want["scales"][place]:
        return fill(OTHER_SCALE, got=got["scales"][place], want=want["scales"][place])
    if not same_end(returned, want["returned"][place]):
        return fill(OTHER_ANSWER, got=str(returned), want=str(want["returned"][place]))
    return ""


def _not_skipped(moved, two, where):
    """What moved in a step whose gradients hold an inf."""
    for who, step in zip(two, moved, strict=True):
        if not step.isfinite().all():
            return fill(TO_INF, where=where, moving=who)
    moving = [who for who, step in zip(two, moved, strict=True) if step.any()]
    size = torch.cat([step.flatten() for step in moved]).norm()
    if len(moving) == 2:
        return fill(NOT_SKIPPED, where=where, moved=size)
    stayed = next(who for who in two if who not in moving)
    return fill(HALF_A_STEP, where=where, stayed=stayed, moving=moving[0], moved=size)


def _otherwise(who, step, right, scale):
    """How a movement differs from the right one."""
    if not step.any():
        return fill(STOOD_STILL, still=who)
    times = (step @ right / (right @ right)).item()
    why = fill(THE_SCALE, scale=scale) if not 1 / 50 < times < 50 else ""
    if (step - times * right).norm() < 0.02 * step.norm():
        return fill(TOO_FAR, moving=who, times=times, why=why)
    return fill(ASTRAY, moving=who, away=(step - right).norm() / right.norm(), why=why)


def _unclipped(model, loss, muon, adamw, scaler, limit):
    return solutions.joint_step(model, loss, muon, adamw, scaler, 1e9)


def _scale_before(name, place, want):
    first = ({"init_scale": 2.0**10} | _CASES[name][2])["init_scale"]
    return want["scales"][place - 1] if place else first


JOINT = Loop(
    run_joint_step,
    solutions.joint_step,
    _evidence,
    lambda shown: [[shown[name]["moved"], shown[name]["returned"]] for name in _CASES],
)


@check(run_joint_step, seeds=2)
def check_joint_step(got, seed):
    """Two optimizers on one model: clipped by one norm, and both step or neither."""
    JOINT.judge(got, check_joint_step.known_wrong, seed=seed)


_CLIP = "norm = nn.utils.clip_grad_norm_(model.parameters(), limit)"
_UNSCALE = "scaler.unscale_(muon)\n    scaler.unscale_(adamw)\n"
_EMPTY = "muon.zero_grad()\n    adamw.zero_grad()"
_STILL_THERE = "Gradients of the step before are still in .grad. When are they emptied?"
_STEP = "if finite:\n        scaler.step(muon)\n        scaler.step(adamw)"

check_joint_step.slip(
    "half-a-step-is-a-skip",
    "The scaler decides for each optimizer by itself. Who makes the other one stay too?",
    swap=(_STEP, "scaler.step(muon)\n    scaler.step(adamw)"),
)
check_joint_step.slip(
    "two-norms-are-one",
    "Each optimizer's gradients were clipped by a norm of their own. Of which gradients is the "
    "norm to be at most `limit`?",
    swap=(
        _CLIP,
        "norms = [nn.utils.clip_grad_norm_(o.param_groups[0]['params'], limit) for o in "
        "(muon, adamw)]\n    norm = torch.stack(norms).norm()",
    ),
)
check_joint_step.slip(
    "muon-needs-no-unscale",
    "Muon's step forgets the length of its gradient, and the norm of all gradients does not. Which "
    "optimizer's gradients are still scaled?",
    cut="scaler.unscale_(muon)",
)
check_joint_step.slip(
    "one-unscale-is-for-all",
    "`unscale_` divides the gradients of one optimizer. Which optimizer's gradients are still "
    "scaled?",
    cut="scaler.unscale_(adamw)",
)
check_joint_step.slip(
    "clip-before-unscale",
    "You clipped scaled gradients, so your real limit is limit / scale. Which calls must come "
    "before the clip?",
    swap=(f"{_UNSCALE}    {_CLIP}", f"{_CLIP}\n    {_UNSCALE}".rstrip()),
)
check_joint_step.slip(
    "clip-before-unscale",
    "You clipped scaled gradients, so your real limit is limit / scale. Which calls must come "
    "before the clip?",
    swap=(f"{_UNSCALE}    {_CLIP}", _CLIP),
)
check_joint_step.slip(
    "a-skip-needs-no-update",
    "A step that is skipped ends with `update` too: it halves the scale, and allows the next "
    "`unscale_`. Under which condition do you call it?",
    swap=("    scaler.update()", "        scaler.update()"),
)
check_joint_step.slip(
    "one-update-per-optimizer",
    "Both optimizers share one scale. How often must a step call `update`?",
    swap=(f"{_STEP}\n    scaler.update()",
          "if finite:\n        scaler.step(muon)\n        scaler.update()\n"
          "        scaler.step(adamw)\n    scaler.update()"),
)  # fmt: skip
check_joint_step.slip(
    "gradients-reset-themselves",
    _STILL_THERE,
    swap=(_EMPTY, "adamw.zero_grad()"),
)
check_joint_step.slip("gradients-reset-themselves", _STILL_THERE, swap=(_EMPTY, "muon.zero_grad()"))
check_joint_step.slip("gradients-reset-themselves", _STILL_THERE, cut=_EMPTY)
