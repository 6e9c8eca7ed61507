"""Checks of lab 05's loop and of its clipped step.

They are judged by where they end (``labkit.labs.engine.loop_ends``), beside the lab's solutions.
All runs are CPU runs under ``emulate_gpu()``, in which a scale of 65536 really overflows. The other
loops are judged in ``accumulation`` and ``two_optimizers`` beside this module.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from labkit.emulation import emulate_gpu
from labkit.labs.automatic_mixed_precision import solutions
from labkit.labs.automatic_mixed_precision.checks.shared import dtype_words, samples, small_network
from labkit.labs.engine import AnswerError, Mistake, attempt, check, listening
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import Loop, brief, filled, first_other, flat, same_end
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure

LAB = "05_automatic_mixed_precision"

LOSS_IN_16_BITS = (
    "In {name} each of your losses, such as {loss}, is a value of 16 bits, so the loss was "
    "computed in 16 bits. Under autocast cross_entropy runs in float32. Where does your autocast "
    "block end?"
)
IN_THE_BLOCK = (
    "In {name} the losses and the weights are right, but your autocast block was still open while "
    "backward ran. Which call must come after the block?"
)
LIVE = (
    "In {name} the gradient at the network's output was multiplied by a loss scale, so your scaler "
    "is enabled. Only FP16 needs a scaler."
)
UNSCALED = (
    "In {name} no gradient at the network's output was above 1, so your loop scaled no loss. For "
    "which dtype is your scaler enabled?"
)
STOPPED = "In {name} your loop raised {error}."
RAISED_WITH = "In {name} your loop raised {error}. Outputs of the network were {met}{so}."
LOSSES = "Return a list of {count} losses, one for each batch."
TRAINED = "Asked for {name}, your loop trained on outputs of {met} dtype."
OTHER_LOSS = "In {name} loss {place} is {got}; the right loop has {want}.{why}"
UNMOVED = " No step changed the weights. Is your scaler made once, or anew for each batch?"
ONLY_REPORTED = " The weights end right, so only the losses that you return are wrong."
OTHER_WEIGHTS = "After the run the weights are {got}; they must stay torch.float32."
LOUD = "In {name} all outputs had the dtype that was asked for, yet your loop warned."
ELSEWHERE = "In {name} the losses are right, but the weights do not end where they should."
UNHEARD = (
    "One of the networks switches autocast off in its forward pass, so {name} was asked for and "
    "FP32 came out. Your loop trained it, and neither raised nor warned."
)

STEP_RAISED = "Your step raised: {error}."
OTHER_NORM = "The gradient norm is {norm}; you report {got}."
NOT_SKIPPED = (
    "The gradients overflowed, their norm is {norm}: this step must be skipped, yet the weights "
    "moved by {moved:.2g}."
)
OTHER_MOVE = (
    "The gradient norm is {norm} and the limit {limit:g}: {so}, yet the weights moved by "
    "{moved:.2g} instead of {wanted:.2g}.{report}"
)
SO_NOT_CLIPPED, SO_CLIPPED = "nothing should be clipped", "the step has length {length:g}"
REPORTED_TOO = " The norm that you report is {got}."
OTHER_SCALES = "After each step the scale was {got}; {want} is wanted. Is `update` called?"

# The loop

_FIT_BATCH = 16
_DTYPES = {"FP32": torch.float32, "BF16": torch.bfloat16, "FP16": torch.float16}


class _Unheard(nn.Module):
    """A network that switches autocast off inside, as some published layers do."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return self.inner(x.float())


def _fit_network(seed):
    layers = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.SiLU(), nn.Linear(16, 4)
    network = filled(nn.Sequential(*layers), 1 + 100 * seed)
    # Large features, so that the first scaled steps overflow: by that a live scaler is seen.
    nn.init.constant_(network[1].weight, 4.0)
    return network


class _Outputs:
    """Dtypes of a network's outputs, the largest gradient that came back, and if under autocast.

    That of a mean over examples is at most 1 over their number, times the scale if there is one.
    """

    def __init__(self):
        self.met, self.largest, self.inside = [], 0.0, False

    def __call__(self, module, inputs, output):
        self.met.append(str(output.dtype))
        if output.requires_grad:
            output.register_hook(self.came_back)

    def came_back(self, gradient):
        self.largest = max(self.largest, gradient.abs().max().item())
        self.inside |= torch.is_autocast_enabled("cpu")


def run_fit(fit, seed):
    """`fit` in three dtypes, and on a network that does not listen to autocast.

    The first weights and the batches come of the seed.
    """
    shown = {}
    with emulate_gpu():
        for name, dtype in _DTYPES.items():
            network, watch = _fit_network(seed).eval(), _Outputs()  # as an evaluation left it
            network.register_forward_hook(watch)
            start = flat(network)
            shown[name], loud = _fitted(fit, network, dtype, 6, seed)
            shown[f"{name} loud"] = loud or type(shown[name]) is Raised
            shown[f"{name} met"] = sorted(set(watch.met))
            shown[f"{name} live"] = watch.largest > 1
            shown[f"{name} inside"] = watch.inside
            shown[f"{name} weights"] = flat(network) - start
        for name in ("FP16", "BF16"):
            end, loud = _fitted(fit, _Unheard(_fit_network(seed)), _DTYPES[name], 1, seed)
            shown[f"unheard {name} loud"] = loud or type(end) is Raised
    return shown


def _fitted(fit, network, dtype, count, seed):
    """(what `fit` returned, whether it warned by itself)."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    batches = [samples(20 + 100 * seed + i, _FIT_BATCH) for i in range(count)]
    with listening() as heard:
        end = attempt(fit, network, batches, F.cross_entropy, optimizer, dtype, "cpu")
    return end, any(one.theirs for one in heard)


def _fit_evidence(got, want):
    for name in _DTYPES:
        end = got[name]
        parts = ("", " weights", " met", " loud", " live", " inside")
        if all(same_end(got[name + part], want[name + part]) for part in parts):
            continue
        if type(end) is Raised:
            return fill(STOPPED, name=name, error=brief(end))
        if not isinstance(end, (list, tuple)) or len(end) != len(want[name]):
            return fill(LOSSES, count=len(want[name]))
        if got[f"{name} met"] != want[f"{name} met"]:
            return fill(TRAINED, name=name, met=dtype_words(got[f"{name} met"]) or "no")
        if got[f"{name} live"] != want[f"{name} live"]:
            return fill(LIVE if got[f"{name} live"] else UNSCALED, name=name)
        other = first_other(end, want[name])
        if other:
            place, a, b = other
            weights = got[f"{name} weights"]
            why = ONLY_REPORTED if same_end(weights, want[f"{name} weights"]) else ""
            why = UNMOVED if name == "FP16" and not weights.any() else why
            return fill(OTHER_LOSS, name=name, place=place, got=brief(a), want=brief(b), why=why)
        if got[f"{name} weights"].dtype is not torch.float32:
            return fill(OTHER_WEIGHTS, got=str(got[f"{name} weights"].dtype))
        if got[f"{name} inside"] and same_end(got[f"{name} weights"], want[f"{name} weights"]):
            return fill(IN_THE_BLOCK, name=name)
        return fill(LOUD if got[f"{name} loud"] else ELSEWHERE, name=name)
    return fill(UNHEARD, name="BF16" if got["unheard FP16 loud"] else "FP16")


def _scaled_loss(got, want):
    """Whether the losses are large by a factor that only a scale has."""
    try:
        large = float(got["FP16"][0]) > 1000 * want["FP16"][0]
    except (TypeError, ValueError, IndexError, AttributeError):
        return None
    went = all(same_end(got[f"FP16{part}"], want[f"FP16{part}"]) for part in (" weights", " met"))
    return "scaled-loss-is-the-loss" if large and went else None


FIT = Loop(
    run_fit,
    solutions.fit,
    _fit_evidence,
    lambda shown: [shown[f"{name}{part}"] for name in _DTYPES for part in (" weights", " met")],
    _scaled_loss,
)


@check(run_fit, seeds=2, own_work=("labkit.training.train",))
def check_fit(got, seed):
    """One loop for FP32, BF16 and FP16, that says when it computes in another dtype."""
    try:
        FIT.judge(got, check_fit.known_wrong, seed=seed)
    except AnswerError as error:
        name = next(name for name in _DTYPES if type(got[name]) is Raised)
        met = dtype_words(got[f"{name} met"]) or "not computed"
        so = ", as asked" if got[f"{name} met"] == [str(_DTYPES[name])] else ""
        text = fill(RAISED_WITH, name=name, error=failure(got[name]), met=met, so=so)
        raise AnswerError(text) from error
    for name, dtype in _DTYPES.items():
        # Six losses of float32 are all values of 16 bits once in 2**78.
        losses = torch.tensor([float(loss) for loss in got[name]])
        if name != "FP32" and torch.equal(losses.to(dtype).float(), losses):
            raise Mistake(LOSS_IN_16_BITS, name=name, loss=losses[0].item())


_WARNING = """\
if output.dtype is not dtype:
            warnings.warn(f"asked for {dtype}, computed in {output.dtype}", stacklevel=2)"""
_IN_AUTOCAST = f"""\
        with torch.autocast(device, dtype=dtype, enabled=dtype is not torch.float32):
            output = model(inputs)
            loss = loss_fn(output, targets)
        {_WARNING}
        scaler.scale(loss).backward()
"""
_BACKWARD_IN_AUTOCAST = """\
        loss = loss_fn(model(inputs), targets)
        with torch.autocast(device, dtype=dtype, enabled=dtype is not torch.float32):
            scaler.scale(loss).backward()
"""

check_fit.slip(
    "gradients-reset-themselves",
    "What was in .grad stays there, and so does an inf. Which line empties it?",
    cut="optimizer.zero_grad()",
)
check_fit.slip(
    "scaled-loss-is-the-loss",
    "That is the loss times the scale. Do you want the loss before or after scaling?",
    swap=("scaler.scale(loss).backward()", "loss = scaler.scale(loss)\n        loss.backward()"),
)
check_fit.slip(
    "autocast-belongs-around-backward",
    "The forward pass ran in float32. What must stand inside the block, and what need not?",
    swap=(_IN_AUTOCAST, _BACKWARD_IN_AUTOCAST),
)
check_fit.slip(
    "update-may-be-called-again",
    "`update` forgets the inf checks it has used. How often may an iteration call it?",
    swap=("scaler.update()", "scaler.update()\n        scaler.update()"),
)
check_fit.slip(
    "the-scale-adjusts-itself",
    "The first scaled gradient overflows, and so do all others. Which call lowers the scale?",
    cut="scaler.update()",
)
check_fit.slip(
    "any-step-unscales",
    "The optimizer stepped with gradients times 65536. Whose step divides them first?",
    swap=("scaler.step(optimizer)\n        scaler.update()", "optimizer.step()"),
)
check_fit.slip(
    "train-mode-is-the-default",
    "The network came to you in eval mode. Which mode does training need?",
    cut="model.train()",
)
check_fit.slip(
    "cuda-amp-works-everywhere",
    "Without CUDA, torch.cuda.amp switches itself off: your loop ran in float32 without a scaler. "
    "Which autocast and which GradScaler take a device?",
    # torch.cuda.amp's names are torch.amp's with this device.
    swap=("losses = []", 'losses, device = [], "cuda"'),
)
check_fit.slip(
    "asked-is-active",
    "Where does your loop compare the dtype of the outputs with the one that was asked for?",
    cut=_WARNING,
)
check_fit.slip(
    "autocast-casts-the-parameters",
    "Under autocast the optimizer keeps float32 weights. Which line of yours changed them?",
    swap=("model.train()", "model.to(dtype).train()"),
)
check_fit.slip(
    "bf16-needs-a-loss-scale",
    "BF16 has FP32's range, so its gradients need no loss scale. For which dtype is your scaler "
    "enabled?",
    swap=("GradScaler(device, enabled=dtype is torch.float16)", "GradScaler(device)"),
)


@check_fit.wrong(
    "a-block-may-span-steps",
    "From the second step on the network computed with copies of its first weights. When does "
    "autocast empty its cache?",
)
def _(*training):
    *_, dtype, device = training
    with torch.autocast(device, dtype=dtype):
        return solutions.fit(*training)


# Clip

_RATE = 0.1
# Seed, scale and limit of each batch. At _LATE_SCALE the last ones overflow at no seed.
_LATE = 6
_LATE_SCALE = 2.0**12
_CLIP_BATCHES = (
    (60, 1.0, 1.0),
    (61, 0.3, 1.0),
    (62, 3.0, 1.0),
    (63, 9.0, 1.0),
    (64, 0.3, 1.0),
    (65, 9.0, 1.0),
    (66, 3.0, 0.5),
    (67, 3.0, 2.0),
)


def run_clipped_step(clipped_step, seed):
    """Eight steps on batches of small and large gradients; the scale grows, and overflows.

    The first weights and the batches come of the seed.
    """
    network = small_network(seed)
    optimizer = torch.optim.SGD(network.parameters(), lr=_RATE)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**17, growth_interval=2)
    shown = {"norms": [], "scales": [], "moved": []}
    with emulate_gpu():
        for i, (draw, scale, limit) in enumerate(_CLIP_BATCHES):
            if i == _LATE:
                scaler = torch.amp.GradScaler("cpu", init_scale=_LATE_SCALE, growth_interval=2)
            before = flat(network)
            inputs, targets = samples(draw + 100 * seed, scale=scale)
            norm = attempt(clipped_step, network, inputs, targets, optimizer, scaler, limit, "cpu")
            shown["norms"].append(norm)
            shown["scales"].append(scaler.get_scale())
            shown["moved"].append(flat(network) - before)
    return shown


def _clip_evidence(got, want):
    for i, norm in enumerate(want["norms"]):
        moved, wanted = got["moved"][i], want["moved"][i]
        limit, reported = _CLIP_BATCHES[i][2], got["norms"][i]
        if same_end(moved, wanted) and same_end(reported, norm):
            continue
        if type(reported) is Raised:
            return fill(STEP_RAISED, error=brief(reported))
        if same_end(moved, wanted):
            return fill(OTHER_NORM, norm=brief(norm), got=brief(reported))
        if not math.isfinite(norm):
            return fill(NOT_SKIPPED, norm=brief(norm), moved=moved.norm())
        return fill(
            OTHER_MOVE,
            norm=brief(norm),
            limit=limit,
            so=SO_NOT_CLIPPED if norm < limit else fill(SO_CLIPPED, length=_RATE * limit),
            moved=moved.norm(),
            wanted=wanted.norm(),
            report="" if same_end(reported, norm) else fill(REPORTED_TOO, got=brief(reported)),
        )
    return fill(OTHER_SCALES, got=str(got["scales"]), want=str(want["scales"]))


def _clipped_norm(got, want):
    """Whether each finite norm is at most its limit, and right below it."""
    if not same_end(got["moved"], want["moved"]):
        return None
    for reported, norm, (*_, limit) in zip(got["norms"], want["norms"], _CLIP_BATCHES, strict=True):
        if math.isfinite(norm) and not same_end(reported, min(norm, limit)):
            return None
    return "norm-after-clipping"


CLIP = Loop(
    run_clipped_step,
    solutions.clipped_step,
    _clip_evidence,
    lambda shown: shown["moved"],
    _clipped_norm,
)


@check(run_clipped_step, seeds=2, own_work=("labkit.training.train",))
def check_clipped_step(got, seed):
    """A step clipped by its true norm, under a scale that overflows at first."""
    CLIP.judge(got, check_clipped_step.known_wrong, seed=seed)


_CLIP = "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)"
_NORM = "torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])"

check_clipped_step.slip(
    "clip-before-unscale",
    "You clipped *scaled* gradients: your real limit is 1 / scale, such as 1/65536. Which call "
    "must come before?",
    cut="scaler.unscale_(optimizer)",
)
check_clipped_step.slip(
    "step-does-not-unscale",
    "`step` unscales what you had unscaled by hand. Which call tells the scaler that this is done?",
    swap=(
        "scaler.unscale_(optimizer)",
        "for p in model.parameters():\n        p.grad /= scaler.get_scale()",
    ),
)
check_clipped_step.slip(
    "unscale-is-idempotent",
    "Before each `update` the gradients may be unscaled once. How often do you call `unscale_`?",
    swap=(
        "scaler.unscale_(optimizer)",
        "scaler.unscale_(optimizer)\n    scaler.unscale_(optimizer)",
    ),
)
check_clipped_step.slip(
    "the-scale-adjusts-itself",
    "The scaler was never told that the iteration has ended. Which call tells it?",
    cut="scaler.update()",
)
check_clipped_step.slip(
    "update-may-be-called-again",
    "The first `update` used up the inf checks of this step. How often must a step call `update`?",
    swap=("scaler.update()", "scaler.update()\n    scaler.update()"),
)
check_clipped_step.slip(
    "clip-may-come-last",
    "The step was taken before you clipped. Which of the two calls must come first?",
    swap=(f"{_CLIP}\n    scaler.step(optimizer)", f"scaler.step(optimizer)\n    {_CLIP}"),
)
check_clipped_step.slip(
    "each-value-or-the-norm",
    "Clipping each value changes the gradient's direction. Which function keeps the direction?",
    swap=(
        _CLIP,
        f"norm = {_NORM}\n    torch.nn.utils.clip_grad_value_(model.parameters(), limit)",
    ),
)
check_clipped_step.slip(
    "reported-norm-is-true",
    "That is the norm of the *scaled* gradients. After which call must you compute it?",
    swap=(
        "scaler.unscale_(optimizer)\n    norm =",
        f"norm = {_NORM}\n    scaler.unscale_(optimizer)\n   ",
    ),
)
check_clipped_step.slip(
    "norm-after-clipping",
    "That is the norm after clipping. What does clip_grad_norm_ return?",
    swap=("return norm", f"return {_NORM}"),
)
