"""Checks of lab 01: a step in BF16, and the dtypes of a step."""

import random

import torch
from torch import nn

from labkit.emulation import emulate_gpu
from labkit.formats.dtypes import name_of
from labkit.labs.engine import Mistake, attempt, check
from labkit.labs.engine.loop_ends import Loop, brief, filled, flat, labels, same_end, seeded
from labkit.labs.engine.messages import came
from labkit.labs.three_crimes import solutions
from labkit.labs.three_crimes.checks.shared import BF16, FP16, FP32, refuse_raised

LAB = "01_three_crimes"

OTHER_OUTPUT = (
    "The linear layers returned {got}; under BF16 autocast they return bfloat16. Does your "
    "`with` block name the device of the images and dtype bfloat16, and is the call of the model "
    "inside it?"
)
NO_DTYPE_NAMED = (
    "Your block names no dtype, so it takes the default of the device: bfloat16 on a CPU, but "
    "float16 on a GPU. Pass dtype=torch.bfloat16."
)
MODEL_CAST = (
    "After your step the weights are {got}: the model itself was cast. Autocast casts copies and "
    "leaves the weights in float32."
)
INSIDE = "{what} ran inside the autocast block. The block holds the forward pass and the loss only."
OTHER_LOSS = "Step {place} returns {got}; the loss of its batch is {want}."
HOLDS_GRAPH = (
    "Step {place} returns a tensor that requires a gradient. It keeps the step's graph alive for "
    "as long as you keep the loss. Return a Python float: `loss.item()`."
)
NOT_MOVED = (
    "Step {place} moved no weight. Which two calls must follow the loss, and does anything between "
    "them empty the gradients?"
)
OTHER_MOVE = (
    "Step {place} moved the weights by {got:.3g} (norm of the difference); {want:.3g} is wanted. "
    "When the first step began, `.grad` still held gradients of an earlier step."
)
LOSS_IN_16_BITS = (
    "Each of your losses, such as {loss}, is a BF16 value: the loss was computed in 16 bits, or "
    "cast to them. Inside the block `cross_entropy` computes in float32: compute the loss there, "
    "and cast nothing yourself."
)

REPLACES_OUTPUT = (
    "{scene}: your hook returns a {kind}, and the layer passes that on instead of its output."
)
NO_REPORT = "{scene}: you return {came}; a dict with the keys {roles} is asked for."
OTHER_ROLES = "{scene}: your dict has the keys {got}; {roles} are asked for."
NO_ACTIVATION = (
    "{scene}: your dict has no activation. The output exists only while `step()` runs: is your "
    "hook on the layer then, and does it store the dtype?"
)
NO_DTYPE = (
    "{scene}: {role} is {came}; a dtype is wanted, such as torch.float32. Store what `x.dtype` "
    "returns."
)
OTHER_DTYPE = "{scene}: you report {role} {got}; it is {want}. Report the dtype of {what}."
STEPS = "{scene}: `step()` ran {steps} times; call it exactly once."
HOOKS_LEFT = "{scene}: hooks still on the layer after your call: {hooks}."


# A step in BF16

_BATCHES = ((31, 8), (32, 8), (33, 5))  # seed and number of images


def run_bf16_step(bf16_step, seed):
    """Three steps of `bf16_step`; the first finds gradients of an earlier step.

    The first weights and the batches come of the seed. In the last step a block that names no dtype
    is an FP16 block, as it is on a GPU.
    """
    model = filled(nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.Linear(16, 4)), 3 + 100 * seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    met, inside = set(), set()

    def note(what):
        if torch.is_autocast_enabled("cpu"):
            inside.add(what)

    for layer in (model[0], model[2]):
        layer.register_forward_hook(lambda layer, inputs, x: met.add(name_of(x.dtype)))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
        parameter.register_hook(lambda gradient: note("backward"))
    optimizer.register_step_pre_hook(lambda *_: note("the optimizer's step"))
    shown = {"losses": [], "moved": [], "graphs": []}
    usual = torch.get_autocast_dtype("cpu")
    for place, (draw, count) in enumerate(_BATCHES):
        before, draw = flat(model), draw + 100 * seed
        torch.set_autocast_dtype("cpu", FP16 if place == len(_BATCHES) - 1 else usual)
        try:
            loss = attempt(bf16_step, model, optimizer, seeded(draw, count, 6), labels(draw, count))
        finally:
            torch.set_autocast_dtype("cpu", usual)
        shown["losses"].append(loss)
        shown["moved"].append(flat(model).float() - before.float())
        shown["graphs"].append(isinstance(loss, torch.Tensor) and loss.requires_grad)
    weights = name_of(model[0].weight.dtype)
    return shown | {"met": sorted(met), "inside": sorted(inside), "weights": weights}


def _bf16_step_evidence(got, want):
    if got["weights"] != want["weights"]:
        return MODEL_CAST.format(got=got["weights"])
    if got["met"] == ["bfloat16", "float16"]:
        return NO_DTYPE_NAMED
    if got["met"] != want["met"]:
        return OTHER_OUTPUT.format(got=" and ".join(got["met"]) or "nothing")
    if got["inside"]:
        what = " and ".join(got["inside"])
        return INSIDE.format(what=what[0].upper() + what[1:])
    for place in range(len(_BATCHES)):
        loss, moved = got["losses"][place], got["moved"][place]
        right, way = want["losses"][place], want["moved"][place]
        if not same_end(loss, right):
            return OTHER_LOSS.format(place=place + 1, got=brief(loss), want=brief(right))
        if not moved.any():
            return NOT_MOVED.format(place=place + 1)
        if not same_end(moved, way):
            return OTHER_MOVE.format(place=place + 1, got=moved.norm(), want=way.norm())
        if got["graphs"][place]:
            return HOLDS_GRAPH.format(place=place + 1)
    return f"Your steps end elsewhere: {got}."


BF16_STEP = Loop(
    run_bf16_step,
    solutions.bf16_step,
    _bf16_step_evidence,
    # Weights of an FP32 step may be near enough to those of BF16, and at another seed not.
    lambda shown: [shown["moved"], shown["met"], shown["inside"]],
)


@check(run_bf16_step, seeds=2, own_work=("labkit.training.train",))
def check_bf16_step(got, seed):
    """Forward and loss under BF16 autocast; backward and update outside, on FP32 weights."""
    BF16_STEP.judge(got, check_bf16_step.known_wrong, seed=seed)
    losses = torch.tensor([float(loss) for loss in got["losses"]])
    # Three float32 losses are all values of BF16 once in 2**48.
    if torch.equal(losses.bfloat16().float(), losses):
        raise Mistake(LOSS_IN_16_BITS, loss=losses[0].item(), search=False)


_FORWARD = """\
        loss = cross_entropy(model(images), labels)
    loss.backward()
"""
check_bf16_step.slip(
    "gradients-reset-themselves",
    "`backward` adds to what `.grad` holds. Which call empties it?",
    cut="optimizer.zero_grad()",
)
check_bf16_step.slip(
    "backward-belongs-inside-autocast",
    "Backward runs each op in the dtype of its forward pass, also outside the block. Which lines "
    "need the block?",
    swap=("    loss.backward()", "        loss.backward()"),
)
check_bf16_step.slip(
    "autocast-belongs-around-backward",
    "The forward pass ran in float32: the line that calls the model belongs inside the block.",
    swap=(
        "    with torch.autocast(images.device.type, dtype=torch.bfloat16):\n" + _FORWARD,
        "    loss = cross_entropy(model(images), labels)\n"
        "    with torch.autocast(images.device.type, dtype=torch.bfloat16):\n"
        "        loss.backward()\n",
    ),
)
check_bf16_step.slip(
    "half-is-mixed-precision",
    "Small updates need FP32 weights. Which line of yours casts the model?",
    swap=("optimizer.zero_grad()", "optimizer.zero_grad()\n    model.bfloat16()"),
)


# Which dtype each tensor has

ROLES = ("parameter", "activation", "loss", "gradient", "state")
# Scene -> the dtype of the model, of its norm, of autocast (None: off), the observed layer. An FP16
# input with an FP32 LayerNorm raises on a GPU; with an FP32 BatchNorm it does not.
_SCENES = {
    "FP32": (FP32, FP32, None, 0),
    "FP16 autocast, the first layer": (FP32, FP32, FP16, 0),
    "FP16 autocast, the LayerNorm": (FP32, FP32, FP16, 1),
    "BF16 autocast, the last layer, which has no bias": (FP32, FP32, BF16, 2),
    "pure BF16": (BF16, BF16, None, 0),
    "an FP16 model, its BatchNorm in FP32": (FP16, FP32, None, 1),
}
_WITNESSED = {  # stays with the judge
    "FP32": (FP32,) * 5,
    "FP16 autocast, the first layer": (FP32, FP16, FP32, FP32, FP32),
    "FP16 autocast, the LayerNorm": (FP32,) * 5,
    "BF16 autocast, the last layer, which has no bias": (FP32, BF16, FP32, FP32, FP32),
    "pure BF16": (BF16,) * 5,
    "an FP16 model, its BatchNorm in FP32": (FP32, FP16, FP16, FP32, FP32),
}
# Of a drawn step: what it is -> the dtype of the model, of its norm, of autocast.
_KINDS = {
    "FP32": (FP32, FP32, None),
    "FP16 autocast": (FP32, FP32, FP16),
    "BF16 autocast": (FP32, FP32, BF16),
    "pure FP16": (FP16, FP16, None),
    "pure BF16": (BF16, BF16, None),
    "an FP16 model, its BatchNorm in FP32": (FP16, FP32, None),
}
_LAYERS = ("the first layer", "the norm", "the last layer")
_WHAT = {
    "parameter": "the layer's weight",
    "activation": "what the layer computes inside `step()`",
    "loss": "what `step()` returns",
    "gradient": "the gradient of the layer's weight",
    "state": "Adam's running mean for the layer's own weight",
}


def _scenes(seed):
    """The scenes above, and eight that are drawn."""
    draw, drawn = random.Random(seed), {}
    for number in range(1, 9):
        kind, place = draw.choice(list(_KINDS)), draw.randrange(3)
        drawn[f"drawn step {number}, {kind}, {_LAYERS[place]}"] = *_KINDS[kind], place
    return _SCENES | drawn


def _dtypes(dtype, norm, autocast, place):
    """The dtypes of a drawn step, by role."""
    own = norm if place == 1 else dtype
    output = (FP32 if place == 1 else autocast) if autocast else dtype
    return own, output, FP32 if autocast else dtype, own, own


def _scene(dtype, norm, autocast, place):
    """A layer of a small model, its optimizer, and a step that can be counted."""
    torch.manual_seed(0)
    middle = nn.LayerNorm(6) if norm is dtype else nn.BatchNorm1d(6)
    model = nn.Sequential(nn.Linear(6, 6), middle, nn.Linear(6, 3, bias=False)).to(dtype)
    middle.to(norm)
    layer = model[place]
    optimizer = torch.optim.Adam(model.parameters(), eps=1e-4)
    inputs, targets = torch.randn(4, 6, dtype=dtype), torch.tensor([0, 1, 2, 0])
    steps, made, handed_on = [], [], []

    def step():
        steps.append(1)
        optimizer.zero_grad()
        # One hook before the answer's and one after it: between them no output may be replaced.
        watch = [
            layer.register_forward_hook(lambda layer, inputs, x: made.append(x), prepend=True),
            layer.register_forward_hook(lambda layer, inputs, x: handed_on.append(x)),
        ]
        try:
            with torch.autocast("cpu", dtype=autocast or BF16, enabled=autocast is not None):
                loss = nn.functional.cross_entropy(model(inputs), targets)
        finally:
            for handle in watch:
                handle.remove()
        loss.backward()
        optimizer.step()
        return loss

    def replaced():
        return [type(b).__name__ for a, b in zip(made, handed_on, strict=False) if a is not b]

    return layer, optimizer, step, steps, replaced


def run_witness(witness, seed):
    """`witness` in each scene: its report, its steps, the hooks it left, outputs it replaced."""
    seen = {}
    with emulate_gpu():
        for name, settings in _scenes(seed).items():
            layer, optimizer, step, steps, replaced = _scene(*settings)
            report = attempt(witness, layer, optimizer, step)
            seen[name] = [report, len(steps), len(layer._forward_hooks), replaced()]
    return seen


@check(run_witness)
def check_witness(seen, seed):
    """Parameters, gradients and moments stay FP32 under autocast; a matmul's output does not."""
    for scene, settings in _scenes(seed).items():
        wanted = _WITNESSED.get(scene) or _dtypes(*settings)
        report, steps, hooks, replaced = seen[scene]
        if replaced:
            idea = "what-a-hook-returns-is-ignored"
            raise Mistake(REPLACES_OUTPUT, misconception=idea, scene=scene, kind=replaced[0])
        refuse_raised(report, scene)
        _read_roles(report, scene)
        for role, want in zip(ROLES, wanted, strict=True):
            got = report[role]
            if type(got) is not torch.dtype:
                raise Mistake(NO_DTYPE, scene=scene, role=role, came=came(got))
            if got != want:
                said = {"got": name_of(got), "want": name_of(want), "what": _WHAT[role]}
                raise Mistake(OTHER_DTYPE, scene=scene, role=role, **said)
        if steps != 1:
            raise Mistake(STEPS, scene=scene, steps=steps)
        if hooks:
            idea = "a-hook-removes-itself"
            raise Mistake(HOOKS_LEFT, misconception=idea, scene=scene, hooks=hooks)


def _read_roles(report, scene):
    """Refuse a report that is no dict of the five roles."""
    roles = ", ".join(ROLES)
    if type(report) is not dict:
        raise Mistake(NO_REPORT, scene=scene, came=came(report), roles=roles)
    if set(ROLES) - set(report) == {"activation"}:
        raise Mistake(NO_ACTIVATION, scene=scene)
    if set(report) != set(ROLES):
        got = ", ".join(map(str, report)) or "none"
        raise Mistake(OTHER_ROLES, scene=scene, got=got, roles=roles)


check_witness.slip(
    "autocast-casts-the-parameters",
    "You reported the dtype of the layer's output. What is the dtype of `layer.weight`?",
    swap=("layer.weight.dtype", 'seen["activation"]'),
)
check_witness.slip(
    "the-input-tells-the-dtype",
    "You reported the dtype of the layer's input. Which argument of the hook is the output?",
    swap=("output.dtype", "inputs[0].dtype"),
)
check_witness.slip(
    "autocast-holds-outside-its-block",
    "The activation that you report has the dtype of the weight, as the output has outside "
    "autocast. Can your hook read the dtype of the output while `step()` runs?",
    swap=(
        '    seen["parameter"]',
        "    x = layer.weight.new_ones(layer.weight.shape[-1])\n"
        '    seen["activation"] = layer(x).dtype\n'
        '    seen["parameter"]',
    ),
)
check_witness.slip(
    "gradients-follow-the-activations",
    "In the backward pass, the weight's gradient goes back through the cast from FP32 to 16 bits. "
    "What is the dtype of `layer.weight.grad` after it?",
    swap=("layer.weight.grad.dtype", 'seen["activation"]'),
)
check_witness.slip(
    "amp-halves-the-optimizer",
    "Adam creates its moments in the dtype of the parameter. What is the dtype of "
    '`optimizer.state[layer.weight]["exp_avg"]`?',
    swap=('optimizer.state[layer.weight]["exp_avg"].dtype', 'seen["activation"]'),
)
check_witness.slip(
    "a-hook-removes-itself",
    "A hook that stays runs in every later forward pass. `register_forward_hook` returns a handle: "
    "which of its methods removes the hook?",
    cut="    handle.remove()\n",
)
for _returning in (
    'seen.setdefault("activation", output.dtype)',
    "seen.update(activation=output.dtype) or output.detach()",
):
    check_witness.slip(
        "what-a-hook-returns-is-ignored",
        "A hook that only reads the output must return None: let yours store the dtype and return "
        "nothing.",
        swap=("seen.update(activation=output.dtype)", _returning),
    )
