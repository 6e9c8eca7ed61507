"""Checks of lab 05's loops: fit, clip, accumulate, two optimizers.

They are judged by where they end (``labkit.labs.engine.loop_ends``), beside the lab's solutions.
All runs are CPU runs under ``emulate_gpu()``, in which a scale of 65536 really overflows.
"""

import math

import torch
from torch import nn

from labkit.emulation import emulate_gpu
from labkit.labs.automatic_mixed_precision import solutions
from labkit.labs.engine import Mistake, attempt, check, listening
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import (
    Loop,
    brief,
    filled,
    first_other,
    flat,
    labels,
    same_end,
    seeded,
)
from labkit.labs.engine.messages import fill

LAB = "05_automatic_mixed_precision"

LOSS_IN_16_BITS = (
    "In {name} each of your losses, such as {loss}, is a value of 16 bits: the loss was computed "
    "in 16 bits. Under autocast cross_entropy runs in float32. Where does the block end?"
)
LIVE = (
    "In {name} the gradient that came back to the network's output is large by the factor of a "
    "scale: your scaler is live. BF16 has the range of float32."
)
UNSCALED = (
    "In {name} no gradient that came back to the network's output was above 1: your loop scaled no "
    "loss. For which dtype is your scaler enabled?"
)
STOPPED = "In {name} your loop stopped: {error}."
OFF = (
    "In {name} torch warned that CUDA is not available and switched a part of your loop off. Which "
    "call did not get `device`?"
)
TWO_THINGS = "Two things are wanted: the list of losses, and the share of right answers."
LOSSES = "A list of {count} losses is wanted, one for each batch."
TRAINED = "Asked for {name}, your loop trained on outputs of {met} dtype."
TESTED = "Asked for {name}, your loop tested on outputs of {met} dtype."
OTHER_LOSS = "In {name} loss {place} is {got}; {want} is wanted."
OTHER_WEIGHTS = "After the run the weights are {got}."
LOUD = "In {name} all outputs had the dtype that was asked for, and your loop warned."
OTHER_SHARE = "The share of right answers is {got}; {want} is wanted."
ELSEWHERE = "In {name} the losses are right and the weights end elsewhere."
UNHEARD = "A network switches autocast off inside. You trained it, and neither raised nor warned."

STEP_RAISED = "Your step raised: {error}."
OTHER_NORM = "The gradient norm is {norm}; you report {got}."
NOT_SKIPPED = (
    "The gradients overflowed, their norm is {norm}: this step must be skipped, yet the weights "
    "moved by {moved:.2g}."
)
OTHER_MOVE = (
    "The gradient norm is {norm} and the limit {limit:g}: {so}, yet the weights moved by "
    "{moved:.2g} instead of {wanted:.2g}."
)
SO_NOT_CLIPPED, SO_CLIPPED = "nothing should be clipped", "the step has length 0.1"
OTHER_SCALES = "The scales were {got}; {want} is wanted. Is `update` called?"

OUTSIDE = (
    "outputs of {who} are {met}; under FP16 autocast they are float16. Which call stands outside "
    "of the block?"
)
GROUP = "Micro-batches of {sizes}: {said}"
FEWER_LOSSES = "you return {count}; {want} are wanted."
LARGE_BATCH = "loss 0 is {got}; one large batch has {want}. {why}"
THE_SCALE = "That is {scale:g} times as much, the scale."
NOT_FINITE = "weights end as inf or NaN. A step whose gradients overflow is skipped."
OTHER_SKIPS = "Your scale ends at {got:g}, and {want:g} is right: you skipped other steps."
OFF_LARGE = "the weights end {away:.0%} off the run with large batches. {why}"
GROUP_LOSSES = "a list of {count} losses is wanted."
GROUP_LOSS = "loss {place} is {got}; {want} is wanted."

GAN_RAISED = "Step {i} raised: {error}."
TWO_LOSSES = "Two losses are wanted, that of D and that of G."
IN_YOUR_STEPS = "In your steps {said}"
STOOD_STILL = "In step {i} {name} stood still; {name} had no inf."
HAD_AN_INF = "In step {i} {name} had an inf, and moved by {moved:.2g}."
HOLDS_SCALE = (
    "In step {i} {name} moved {times:.0f} times as far as it should; the scale was {scale:g}. Does "
    "a gradient still hold the scale when its optimizer steps?"
)
TOO_FAR = "In step {i} {name} moved {times:.2g} times as far as it should."
AGAINST = "In step {i} {name} went against its way. Which labels does its loss compare with?"
OFF_ITS_WAY = "In step {i} {name} went {away:.0%} off its way."
GAN_SCALE = "After step {i} the scale is {got:g}; {want:g} is wanted."
GAN_LOSS = "In step {i} the loss of {name} is {got}; {want} is wanted."
ENDS_DIFFER = "The ends differ."
HELD = (
    "You held the forward passes of {held} examples at once; there is memory for 8, one "
    "micro-batch. A pass is let go by its backward. When does each backward run?"
)

# The loop

_FIT_BATCH = 16
_CLASSES = torch.tensor(
    [[2.0, 0, 0, 0, 0, 0], [0, 2, 0, 0, 0, 0], [0, 0, 2, 0, 0, 0], [0, 0, 0, 2, 0, 0]]
)


def _batch(seed, count=_FIT_BATCH, scale=1.0):
    targets = labels(seed, count)
    return scale * (_CLASSES[targets] + seeded(seed, count, 6)), targets


class _Unheard(nn.Module):
    """A network that switches autocast off inside, as some published layers do."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return self.inner(x.float())


def _fit_network():
    layers = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)
    network = filled(nn.Sequential(*layers), 1)
    # Large features, so that the first scaled steps overflow: by that a live scaler is seen.
    nn.init.constant_(network[1].weight, 4.0)
    return network


class _Outputs:
    """Dtypes of a network's outputs, and the largest gradient that came back to one.

    That of a mean over examples is at most 1 over their number, times the scale if there is one.
    """

    def __init__(self):
        self.met, self.tested, self.largest = [], [], 0.0

    def __call__(self, module, inputs, output):
        (self.met if len(output) == _FIT_BATCH else self.tested).append(str(output.dtype))
        if output.requires_grad:
            output.register_hook(self.came_back)

    def came_back(self, gradient):
        self.largest = max(self.largest, gradient.abs().max().item())


def run_fit(fit):
    """`fit` in FP16, in BF16, and on a network that does not listen to autocast."""
    shown = {}
    with emulate_gpu():
        for name, dtype, wrap in (
            ("fp16", torch.float16, nn.Sequential),
            ("bf16", torch.bfloat16, nn.Sequential),
            ("unheard", torch.float16, _Unheard),
        ):
            network = wrap(_fit_network()).eval()  # as an evaluation before left it
            optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
            batches = [_batch(20 + i) for i in range(6 if name != "unheard" else 1)]
            inputs, targets = _batch(40, count=64)
            few = targets < 2  # two classes of four: their own statistics mislead
            test = inputs[few], targets[few]
            start, watch = flat(network), _Outputs()
            network.register_forward_hook(watch)
            with listening() as heard:
                end = attempt(fit, network, batches, test, optimizer, dtype, "cpu")
            loud = any(one.theirs for one in heard)
            off = any("CUDA is not available" in one.text for one in heard)
            shown[name] = end if name != "unheard" else None
            shown[name + " met"] = sorted(set(watch.met)) if name != "unheard" else None
            shown[name + " tested"] = sorted(set(watch.tested)) if name != "unheard" else None
            shown[name + " live"] = watch.largest > 1 if name != "unheard" else None
            shown[name + " off"] = off
            shown[name + " weights"] = flat(network) - start if name != "unheard" else None
            shown[name + " loud"] = loud or type(end) is Raised
    return shown


def _fit_evidence(got, want):
    for name in ("fp16", "bf16"):
        end = got[name]
        parts = ("", " weights", " met", " tested", " off", " loud", " live")
        if all(same_end(got[name + part], want[name + part]) for part in parts):
            continue
        if type(end) is Raised:
            return fill(STOPPED, name=name, error=brief(end))
        if got[f"{name} off"]:
            return fill(OFF, name=name)
        if type(end) not in (tuple, list) or len(end) != 2:
            return TWO_THINGS
        count = len(want[name][0])
        if not isinstance(end[0], (list, tuple)) or len(end[0]) != count:
            return fill(LOSSES, count=count)
        if got[f"{name} met"] != want[f"{name} met"]:
            return fill(TRAINED, name=name, met=_names(got[f"{name} met"]) or "no")
        if got[f"{name} live"] != want[f"{name} live"]:
            return fill(LIVE if got[f"{name} live"] else UNSCALED, name=name)
        other = first_other(end[0], want[name][0])
        if other:
            place, a, b = other
            return fill(OTHER_LOSS, name=name, place=place, got=brief(a), want=brief(b))
        if got[f"{name} weights"].dtype is not torch.float32:
            return fill(OTHER_WEIGHTS, got=str(got[f"{name} weights"].dtype))
        if got[f"{name} tested"] != want[f"{name} tested"]:
            return fill(TESTED, name=name, met=_names(got[f"{name} tested"]) or "no")
        if got[f"{name} loud"]:
            return fill(LOUD, name=name)
        if same_end(got[f"{name} weights"], want[f"{name} weights"]):
            return fill(OTHER_SHARE, got=brief(end[1]), want=brief(want[name][1]))
        return fill(ELSEWHERE, name=name)
    return UNHEARD


def _names(dtypes):
    return " and ".join(dtypes).replace("torch.", "")


def _scaled_loss(got, want):
    """Whether the losses are large by a factor that only a scale has."""
    try:
        large = float(got["fp16"][0][0]) > 1000 * want["fp16"][0][0]
    except (TypeError, ValueError, IndexError, AttributeError):
        return None
    went = all(same_end(got[f"fp16{part}"], want[f"fp16{part}"]) for part in (" weights", " met"))
    return "scaled-loss-is-the-loss" if large and went else None


FIT = Loop(
    run_fit,
    solutions.fit,
    _fit_evidence,
    lambda shown: [
        shown[f"{name}{part}"] for name in ("fp16", "bf16") for part in (" weights", " met", " off")
    ],
    _scaled_loss,
)


@check(run_fit)
def check_fit(got):
    """The whole loop, in FP16 and BF16, that says when it is neither."""
    FIT.judge(got, check_fit.known_wrong)
    for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
        # Six losses of float32 are all values of 16 bits once in 2**78.
        losses = torch.tensor([float(loss) for loss in got[name][0]])
        if torch.equal(losses.to(dtype).float(), losses):
            raise Mistake(LOSS_IN_16_BITS, name=name, loss=losses[0].item())


_WARNING = """\
if output.dtype is not dtype:
            warnings.warn(f"asked for {dtype}, computed in {output.dtype}", stacklevel=2)"""
_IN_AUTOCAST = f"""\
        with torch.autocast(device, dtype=dtype):
            output = model(inputs)
            loss = F.cross_entropy(output, targets)
        {_WARNING}
        scaler.scale(loss).backward()
"""
_BACKWARD_IN_AUTOCAST = """\
        loss = F.cross_entropy(model(inputs), targets)
        with torch.autocast(device, dtype=dtype):
            scaler.scale(loss).backward()
"""

check_fit.slip(
    "gradients-reset-themselves",
    "What was in .grad stays there, and so does an inf. Which line empties it?",
    cut="optimizer.zero_grad()",
)
check_fit.slip(
    "scaled-loss-is-the-loss",
    "That is the loss times the scale. Which one did you log?",
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
    "eval-mode-is-optional",
    "Batch norm used the test batch's own statistics. Which mode belongs to a test?",
    cut="model.eval()",
)
check_fit.slip(
    "train-mode-is-the-default",
    "The network came to you in eval mode. Which mode does training need?",
    cut="model.train()",
)
check_fit.slip(
    "cuda-amp-works-everywhere",
    "On this device torch.cuda.amp does nothing: float32, and no scaler. Which names take a "
    "device?",
    # torch.cuda.amp's names are torch.amp's with this device.
    swap=("losses = []", 'losses, device = [], "cuda"'),
)
check_fit.slip(
    "asked-is-active",
    "Which dtype came out of the network, and which was asked for?",
    cut=_WARNING,
)
check_fit.slip(
    "autocast-casts-the-parameters",
    "Under autocast the optimizer keeps float32 weights. Who changed them?",
    swap=("model.train()", "model.to(dtype).train()"),
)
check_fit.slip(
    "bf16-needs-a-loss-scale",
    "Which gradients would it save there? For which dtype is yours enabled?",
    swap=("enabled=dtype is torch.float16", "enabled=True"),
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

LIMIT = 1.0
_CLIP_BATCHES = ((60, 1.0), (61, 0.3), (62, 3.0), (63, 9.0), (64, 0.3), (65, 9.0), (66, 3.0))


def _clip_network():
    return filled(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)), 2)


def run_clipped_step(clipped_step):
    """Seven steps on batches of small and large gradients; the first scales overflow."""
    network = _clip_network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**17, growth_interval=4)
    shown = {"norms": [], "scales": [], "moved": []}
    with emulate_gpu():
        for seed, scale in _CLIP_BATCHES:
            before = flat(network)
            inputs, targets = _batch(seed, scale=scale)
            norm = attempt(clipped_step, network, inputs, targets, optimizer, scaler, LIMIT, "cpu")
            shown["norms"].append(norm)
            shown["scales"].append(scaler.get_scale())
            shown["moved"].append(flat(network) - before)
    return shown


def _clip_evidence(got, want):
    for i, norm in enumerate(want["norms"]):
        moved, wanted = got["moved"][i], want["moved"][i]
        if same_end(moved, wanted) and same_end(got["norms"][i], norm):
            continue
        if type(got["norms"][i]) is Raised:
            return fill(STEP_RAISED, error=brief(got["norms"][i]))
        if same_end(moved, wanted):
            return fill(OTHER_NORM, norm=brief(norm), got=brief(got["norms"][i]))
        if not math.isfinite(norm):
            return fill(NOT_SKIPPED, norm=brief(norm), moved=moved.norm())
        return fill(
            OTHER_MOVE,
            norm=brief(norm),
            limit=LIMIT,
            so=SO_NOT_CLIPPED if norm < LIMIT else SO_CLIPPED,
            moved=moved.norm(),
            wanted=wanted.norm(),
        )
    return fill(OTHER_SCALES, got=str(got["scales"]), want=str(want["scales"]))


CLIP = Loop(
    run_clipped_step,
    solutions.clipped_step,
    _clip_evidence,
    lambda shown: shown["moved"],
)


@check(run_clipped_step)
def check_clipped_step(got):
    """A step clipped by its true norm, under a scale that overflows at first."""
    CLIP.judge(got, check_clipped_step.known_wrong)


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
    "`step` unscales what you had unscaled by hand. Which call tells the scaler that it is done?",
    swap=(
        "scaler.unscale_(optimizer)",
        "for p in model.parameters():\n        p.grad /= scaler.get_scale()",
    ),
)
check_clipped_step.slip(
    "unscale-is-idempotent",
    "`unscale_` divides each time, so it may be called once. Who else calls it, and when not?",
    swap=(
        "scaler.unscale_(optimizer)",
        "scaler.unscale_(optimizer)\n    scaler.unscale_(optimizer)",
    ),
)
check_clipped_step.slip(
    "the-scale-adjusts-itself",
    "The scaler waits for the end of the iteration. Which call is that?",
    cut="scaler.update()",
)
check_clipped_step.slip(
    "update-may-be-called-again",
    "The second `update` has no inf check to go by. How often is it called?",
    swap=("scaler.update()", "scaler.update()\n    scaler.update()"),
)
check_clipped_step.slip(
    "clip-may-come-last",
    "The step was taken before you clipped. What is a clipped gradient good for afterwards?",
    swap=(f"{_CLIP}\n    scaler.step(optimizer)", f"scaler.step(optimizer)\n    {_CLIP}"),
)
check_clipped_step.slip(
    "each-value-or-the-norm",
    "Clipping each value turns the gradient. Which function keeps its direction?",
    swap=(
        _CLIP,
        f"norm = {_NORM}\n    torch.nn.utils.clip_grad_value_(model.parameters(), limit)",
    ),
)
check_clipped_step.slip(
    "reported-norm-is-true",
    "That norm still holds the scale. When do you take it?",
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


# Accumulate


def _micro_batches(seed, sizes, scale=1.0):
    return [_batch(seed + i, count=size, scale=scale) for i, size in enumerate(sizes)]


_SCALE = 2.0**9  # at which sums over 25 examples fit FP16 as means do


class _Passes:
    """Counts examples whose forward pass is held for a backward, and the most at once.

    ``met`` holds the dtypes of the outputs.
    """

    def __init__(self):
        self.held = self.most = 0
        self.met = set()

    def forward(self, module, args, output):
        self.met.add(str(output.dtype))
        count = len(args[0])
        self.most = max(self.most, self.held + count)
        if isinstance(output, torch.Tensor) and output.requires_grad:
            self.held += count
            output.register_hook(lambda gradient: self.backward(count))

    def backward(self, count):
        self.held -= count


def run_accumulate(accumulate):
    """`accumulate` on even groups, on an uneven tail, and on one group with k too large."""
    shown = {}
    with emulate_gpu():
        for name, sizes, k in (
            ("8 8 | 8 8", (8, 8, 8, 8), 2),
            ("8 8 8 | 8 2", (8, 8, 8, 8, 2), 3),
            ("8 8 8 | 1", (8, 8, 8, 1), 3),
        ):
            network = _clip_network()
            optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
            scaler = torch.amp.GradScaler("cpu", init_scale=_SCALE)
            batches, start = _micro_batches(80, sizes), flat(network)
            if name == "8 8 | 8 8":  # an overflow at first: its inf must not stay
                batches[0] = 600 * batches[0][0], batches[0][1]
            passes = _Passes()
            network.register_forward_hook(passes.forward)
            losses = attempt(accumulate, network, batches, k, optimizer, scaler, "cpu")
            shown[name] = losses
            shown[name + " at once"] = passes.most
            shown[name + " met"] = sorted(passes.met)
            shown[name + " scale"] = scaler.get_scale()
            shown[name + " moved"] = flat(network) - start
    return shown


def _outside(who, met):
    return fill(OUTSIDE, who=who, met=_names(met) or "no dtype")


def _accumulate_evidence(got, want):
    for name in ("8 8 | 8 8", "8 8 8 | 8 2", "8 8 8 | 1"):
        losses, moved, wanted = got[name], got[name + " moved"], want[name + " moved"]
        if same_end(losses, want[name]) and same_end(moved, wanted):
            continue
        said = _group_evidence(got, want, name)
        return fill(GROUP, sizes=name.replace(" | ", ", then "), said=said)
    return ENDS_DIFFER


def _group_evidence(got, want, name):
    """What is true of the first sizes of micro-batches that end elsewhere."""
    losses, moved, wanted = got[name], got[name + " moved"], want[name + " moved"]
    if type(losses) is Raised:
        return f"{brief(losses)}."
    if isinstance(losses, (list, tuple)) and len(losses) != len(want[name]):
        count = f"{len(losses)} loss{'es' * (len(losses) != 1)}"
        return fill(FEWER_LOSSES, count=count, want=len(want[name]))
    if got[name + " met"] != want[name + " met"]:
        return _outside("the network", got[name + " met"])
    other = first_other(losses, want[name])
    if other and other[0] == 0:
        scaled = same_end(other[1], other[2] * _SCALE)
        why = fill(THE_SCALE, scale=_SCALE) if scaled else ""
        return fill(LARGE_BATCH, got=brief(other[1]), want=brief(other[2]), why=why)
    if not moved.isfinite().all():
        return NOT_FINITE
    if not same_end(moved, wanted):
        scales = {"got": got[name + " scale"], "want": want[name + " scale"]}
        why = fill(OTHER_SKIPS, **scales) if scales["got"] != scales["want"] else ""
        return fill(OFF_LARGE, away=(moved - wanted).norm() / wanted.norm(), why=why)
    if other is None:
        return fill(GROUP_LOSSES, count=len(want[name]))
    place, a, b = other
    return fill(GROUP_LOSS, place=place, got=brief(a), want=brief(b))


ACCUMULATE = Loop(
    run_accumulate,
    solutions.accumulate,
    _accumulate_evidence,
    lambda shown: [shown[key] for key in shown if key.endswith("moved")],
)


@check(run_accumulate)
def check_accumulate(got):
    """Accumulation that equals the large batch, with an uneven tail."""
    ends = {key: got[key] for key in got if not key.endswith("at once")}
    ACCUMULATE.judge(ends, check_accumulate.known_wrong)
    largest = max(got[key] for key in got if key.endswith("at once"))
    if largest > 8:
        raise Mistake(HELD, held=largest)


check_accumulate.slip(
    "sums-need-no-division",
    "`backward` adds gradients up. By what must each loss be divided for the sum to be a mean?",
    cut=" * len(targets) / count",
)
check_accumulate.slip(
    "mean-of-means",
    "Each micro-batch weighs the same in your mean. Should one example of the small one count "
    "more?",
    swap=("* len(targets) / count", "/ len(group)"),
)
check_accumulate.slip(
    "every-group-has-k",
    "The last group is shorter than k. By what do you divide there?",
    swap=("* len(targets) / count", "/ k"),
)
check_accumulate.slip(
    "the-tail-may-be-dropped",
    "The last batches never met a step. After which batch must one come, besides every k-th?",
    swap=("range(0, len(batches), k)", "range(0, len(batches) - k + 1, k)"),
)
check_accumulate.slip(
    "gradients-reset-themselves",
    "The first group overflowed, and its inf is still in .grad. When are the gradients emptied?",
    cut="optimizer.zero_grad()",
)
check_accumulate.slip(
    "zero-grad-each-micro-batch",
    "Only the last micro-batch of a group is left. When are the gradients emptied?",
    swap=(
        "for inputs, targets in group:",
        "for inputs, targets in group:\n            optimizer.zero_grad()",
    ),
)
check_accumulate.slip(
    "unscale-each-micro-batch",
    "`unscale_` belongs once before a step. What would a scaled gradient be added to?",
    swap=(
        "losses[-1] += loss.item()",
        "losses[-1] += loss.item()\n            scaler.unscale_(optimizer)",
    ),
)
check_accumulate.slip(
    "step-each-micro-batch",
    "You step after each micro-batch. Where does a group end?",
    swap=(
        "        scaler.step(optimizer)\n        scaler.update()",
        "            scaler.step(optimizer)\n            scaler.update()",
    ),
)


# Two networks, two optimizers, one scale

_GAN_SCALE = 2.0**12


def run_gan_step(gan_step):
    """Seven steps of a tiny pair: the third overflows in D alone, the fifth in G."""
    generator = filled(nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 6)), 3)
    discriminator = filled(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1)), 4)
    d_optimizer = torch.optim.SGD(discriminator.parameters(), lr=0.2)
    g_optimizer = torch.optim.SGD(generator.parameters(), lr=0.2)
    scaler = torch.amp.GradScaler("cpu", init_scale=_GAN_SCALE, growth_interval=4)
    met = {"D": set(), "G": set()}
    for name, network in (("D", discriminator), ("G", generator)):
        network.register_forward_hook(
            lambda module, inputs, output, name=name: met[name].add(str(output.dtype))
        )
    shown = {"losses": [], "scales": [], "D": [], "G": []}
    with emulate_gpu():
        for i in range(7):
            real = seeded(90 + i, 16, 6) + 1
            real = -2000 * real if i == 2 else real
            noise = seeded(200 + i, 16, 3)
            sure = 1024.0 if i == 4 else 0.0  # D calls all fake, and the noise is large
            noise = 500 * noise if sure else noise
            discriminator[2].bias.data -= sure
            was = flat(discriminator), flat(generator)
            pair = generator, discriminator
            optimizers = d_optimizer, g_optimizer
            losses = attempt(gan_step, *pair, real, noise, *optimizers, scaler, "cpu")
            shown["losses"].append(losses)
            shown["scales"].append(scaler.get_scale())
            shown["D"].append(flat(discriminator) - was[0])
            shown["G"].append(flat(generator) - was[1])
            discriminator[2].bias.data += sure
    shown["met"] = {name: sorted(dtypes) for name, dtypes in met.items()}
    return shown


def _gan_evidence(got, want):
    for i in range(len(want["scales"])):
        losses = got["losses"][i]
        if type(losses) is Raised:
            return fill(GAN_RAISED, i=i, error=brief(losses))
        if not isinstance(losses, (list, tuple)) or len(losses) != 2:
            return TWO_LOSSES
        for name in ("D", "G"):
            if got["met"][name] != want["met"][name]:
                return fill(IN_YOUR_STEPS, said=_outside(name, got["met"][name]))
        for name in ("D", "G"):
            moved, wanted = got[name][i], want[name][i]
            if same_end(moved, wanted):
                continue
            if not moved.any():
                return fill(STOOD_STILL, i=i, name=name)
            if not wanted.any():
                return fill(HAD_AN_INF, i=i, name=name, moved=moved.norm())
            times = (moved @ wanted / (wanted @ wanted)).item()
            away = (moved - wanted).norm() / wanted.norm()
            if away > 50:
                times = moved.norm() / wanted.norm()
                scale = want["scales"][i - 1] if i else _GAN_SCALE
                return fill(HOLDS_SCALE, i=i, name=name, times=times, scale=scale)
            if (moved - times * wanted).norm() < 0.02 * moved.norm():
                return fill(TOO_FAR, i=i, name=name, times=times)
            if moved @ wanted < -0.5 * moved.norm() * wanted.norm():
                return fill(AGAINST, i=i, name=name)
            return fill(OFF_ITS_WAY, i=i, name=name, away=away)
        if got["scales"][i] != want["scales"][i]:
            return fill(GAN_SCALE, i=i, got=got["scales"][i], want=want["scales"][i])
        other = first_other(losses, want["losses"][i])
        if other:
            place, a, b = other
            return fill(GAN_LOSS, i=i, name="DG"[place], got=brief(a), want=brief(b))
    return ENDS_DIFFER


GAN = Loop(
    run_gan_step,
    solutions.gan_step,
    _gan_evidence,
    lambda shown: [shown["D"], shown["G"], shown["scales"]],
)


@check(run_gan_step)
def check_gan_step(got):
    """Two optimizers under one scale: an inf in D costs D its step, and G nothing."""
    GAN.judge(got, check_gan_step.known_wrong)


_STOP_AT_INF_IN_D = """\
    if not all(p.grad.isfinite().all() for p in discriminator.parameters()):
        scaler.update()
        return d_loss.item(), float("nan")"""
_D_STEPS = """\
    scaler.scale(d_loss).backward()
    scaler.step(d_optimizer)
"""
_G_LOSS = """\
    with torch.autocast(device, dtype=torch.float16):
        on_fake = discriminator(fake)
        g_loss = bce(on_fake, torch.ones_like(on_fake))
    g_optimizer.zero_grad()
"""
_G_STEPS = f"{_G_LOSS}    scaler.scale(g_loss).backward()\n"
_BOTH_STEP = (
    f"{_G_LOSS}    scaler.scale(d_loss + g_loss).backward()\n    scaler.step(d_optimizer)\n"
)

check_gan_step.slip(
    "one-update-per-optimizer",
    "The scale belongs to both. After which step has it seen both?",
    swap=("scaler.step(d_optimizer)", "scaler.step(d_optimizer)\n    scaler.update()"),
)
check_gan_step.slip(
    "one-inf-stops-both",
    "The scaler checks each optimizer apart. Who need not wait?",
    swap=("scaler.step(d_optimizer)", f"scaler.step(d_optimizer)\n{_STOP_AT_INF_IN_D}"),
)
check_gan_step.slip(
    "detach-is-optional",
    "One graph was walked twice. Which loss must not reach through G, and where is that cut?",
    swap=("discriminator(fake.detach())", "discriminator(fake)"),
)
check_gan_step.slip(
    "g-backward-leaves-d-alone",
    "G's loss runs through D, and fills its gradients too. When must they be emptied?",
    swap=(f"    d_optimizer.zero_grad()\n{_D_STEPS}", f"{_D_STEPS}    d_optimizer.zero_grad()\n"),
)
check_gan_step.slip(
    "gradients-reset-themselves",
    "G overflowed before, and its inf is still in .grad. Who empties G's gradients?",
    cut="g_optimizer.zero_grad()",
)
check_gan_step.slip(
    "one-backward-for-both",
    "G's loss wants D to be wrong. Which gradients did D step with?",
    swap=(f"{_D_STEPS}{_G_STEPS}", _BOTH_STEP),
)
check_gan_step.slip(
    "bce-is-safe-under-autocast",
    "A 16-bit sigmoid is 1 too soon. Which loss takes logits?",
    swap=(
        "F.binary_cross_entropy_with_logits",
        "lambda logits, targets: F.binary_cross_entropy(logits.sigmoid(), targets)",
    ),
)
