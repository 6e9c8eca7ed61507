"""Checks of lab 01: a BF16 step, its dtypes, the first NaN, lost updates, a repair, bytes."""

import math
import random
import reprlib
from dataclasses import replace

import torch
from torch import nn

from labkit.emulation import emulate_gpu
from labkit.formats.dtypes import name_of
from labkit.labs.engine import (
    AnswerError,
    Mistake,
    attempt,
    calls,
    check,
    entries,
    near_value,
    number,
    plain,
)
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import Loop, brief, filled, flat, labels, same_end, seeded
from labkit.labs.engine.messages import came, fill
from labkit.labs.engine.reading import failure
from labkit.labs.three_crimes import solutions
from labkit.labs.three_crimes.trials import RUNS, run

LAB = "01_three_crimes"

_FP32, _FP16, _BF16 = torch.float32, torch.float16, torch.bfloat16


# Sentences

OTHER_OUTPUT = (
    "The linear layers returned {got}; under BF16 autocast they return bfloat16. Does the block "
    "hold the forward pass, with the device of the images and dtype bfloat16?"
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
NOT_MOVED = "Step {place} moved no weight. Which two calls follow the loss?"
OTHER_MOVE = (
    "Step {place} moved the weights by {got:.3g} (norm of the difference); {want:.3g} is wanted. "
    "The first step found gradients of an earlier step in `.grad`."
)
LOSS_IN_16_BITS = (
    "Each of your losses, such as {loss}, is a BF16 value: the loss was computed in 16 bits, or "
    "cast to them. Inside the block `cross_entropy` computes in float32. Does your block hold it, "
    "and do you cast nothing yourself?"
)

SCENE_RAISED = "{scene}: {error}."

REPLACES_OUTPUT = (
    "{scene}: your hook returns a {kind}, and the layer hands that on instead of its output."
)
NO_REPORT = "{scene}: {came} came back; a dict of {roles} is asked for."
OTHER_ROLES = "{scene}: your dict has the keys {got}; a dict of {roles} is asked for."
NO_ACTIVATION = (
    "{scene}: your dict has no activation. The output exists only while `step()` runs: is your "
    "hook on the layer then, and does it store the dtype?"
)
NO_DTYPE = (
    "{scene}: {role} is {came}; a dtype is wanted, such as torch.float32: what `x.dtype` gives, "
    "and no text of it."
)
OTHER_DTYPE = "{scene}: you report {role} {got}; it is {want}. Report the dtype of {what}."
STEPS = "{scene}: `step()` ran {steps} times; the run takes one step."
HOOKS_LEFT = "{scene}: {hooks} hook is left on the layer."

OTHER_NAME = "{scene}: your answer is {got}; {want} is wanted. {why}"
HOLDS = "{name} holds {kinds}."
FINITE = "Each number in {name} is finite."
ALL_FINITE = "Each number of this series is finite."
NO_NAME = "Return one name, or None."

WEIGHTS_CHANGED = "{scene}: your function changed the weights it was given. Work on a new tensor."
OTHER_SHARE = (
    "{scene}: your share is {got}; {want} is wanted, which is {lost} of {tried} updates other than "
    "0. {example}"
)
EXAMPLE = "For example, {weight:g} + {update:.3g} stored in {dtype} is {stored:.9g}."

ENDS = (
    "With {pardon} the loss ends at {loss:.2f}, and a step moves {moved:.0%} of the weights. In "
    "FP32 the run ends at {twin:.2f}, and a step moves {twin_moved:.0%}."
)
NO_PARDON = (
    "pardon is {given}; a dict with one setting and its new value is wanted, such as "
    '{{"eps": 1e-6}}.'
)
NO_SETTING = "{setting} stays as it is; choose one setting among {settings}."
NO_PRECISION = 'precision is {came}; a name is wanted, such as "pure_fp16".'
NO_NUMBER = "{setting} is {came}; a number is wanted, such as 1e-6, with no quotes."
NO_CHANGE = "{pardon} is what the run has already. What do you change?"
REFUSED = "The run refuses {pardon}: {why}."
NOTHING_TO_LEARN = (
    "{pardon} multiplies the loss and every gradient by 0, so the weights cannot learn."
)
ZERO_EPS = (
    "Where Adam's mean square is 0, it divides by eps alone. Your eps is 0, which makes inf or NaN."
)

FOR_EVERY_MODEL = (
    "`{call}`: {item} is {got:g} bytes, and so it is for every model. That is the size of one "
    "entry: how many {counted} are there?"
)
OTHER_COUNT = (
    "`{call}`: {item} is {got:g} bytes; {want} is wanted. Yours grows with the number of {other}: "
    "{item} is kept for each of the {counted}."
)
UNITS = (
    "`{call}`: {item} is {got:g}; {want} is wanted. Your entries are {times:g} times the right "
    "ones: return bytes, not bits and not a larger unit."
)
SIXTEEN_BIT_MODEL = (
    "`{call}`: {item} is {got:g} bytes; {want} is wanted. You counted 2 + 2 + 12 bytes a "
    "parameter, as the ZeRO paper counts it for a 16-bit model whose optimizer keeps FP32 "
    "master weights and two moments. Under autocast the model itself is FP32, and the "
    "copies are 16-bit."
)
MASTER_COPY = (
    "`{call}`: adam is {got:g} bytes; {want} is wanted. 12 would hold an FP32 copy of the weight "
    "beside two moments. Under autocast the weight itself is FP32: no second copy is kept."
)
COPIES_INSIDE = (
    "`{call}`: weights is {got:g} bytes; {want} is wanted. The 16-bit copies have an entry of "
    "their own, `copies`."
)
OTHER_BYTES = "`{call}`: {item} is {got:g} bytes; {want} is wanted. {why}"


# A step in BF16

_BATCHES = ((31, 8), (32, 8), (33, 5))  # seed and number of images


def run_bf16_step(bf16_step):
    """Three steps of `bf16_step`; the first finds gradients of an earlier step.

    In the last step a block that names no dtype is an FP16 block, as it is on a GPU.
    """
    model = filled(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)), 3)
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
    for place, (seed, count) in enumerate(_BATCHES):
        before = flat(model)
        torch.set_autocast_dtype("cpu", _FP16 if place == len(_BATCHES) - 1 else usual)
        try:
            loss = attempt(bf16_step, model, optimizer, seeded(seed, count, 6), labels(seed, count))
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
    run_bf16_step, solutions.bf16_step, _bf16_step_evidence, lambda shown: shown["moved"]
)


@check(run_bf16_step)
def check_bf16_step(got):
    """Forward and loss under BF16 autocast; backward and update outside, on FP32 weights."""
    BF16_STEP.judge(got, check_bf16_step.known_wrong)
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
    "Backward runs each op in the dtype of its forward. Which lines need the block?",
    swap=("    loss.backward()", "        loss.backward()"),
)
check_bf16_step.slip(
    "autocast-belongs-around-backward",
    "The forward pass ran in float32. Which line calls the model?",
    swap=(
        "    with torch.autocast(images.device.type, dtype=torch.bfloat16):\n" + _FORWARD,
        "    loss = cross_entropy(model(images), labels)\n"
        "    with torch.autocast(images.device.type, dtype=torch.bfloat16):\n"
        "        loss.backward()\n",
    ),
)
check_bf16_step.slip(
    "half-is-mixed-precision",
    "Small updates need FP32 weights. Who turned them into 16 bits?",
    swap=("optimizer.zero_grad()", "optimizer.zero_grad()\n    model.bfloat16()"),
)


# Which dtype each tensor has

ROLES = ("parameter", "activation", "loss", "gradient", "state")
# Scene -> the dtype of the model, of its norm, of autocast (None: off), the observed layer. An FP16
# input with an FP32 LayerNorm raises on a GPU; with an FP32 BatchNorm it does not.
_SCENES = {
    "FP32": (_FP32, _FP32, None, 0),
    "FP16 autocast, the first layer": (_FP32, _FP32, _FP16, 0),
    "FP16 autocast, the LayerNorm": (_FP32, _FP32, _FP16, 1),
    "BF16 autocast, the last layer, which has no bias": (_FP32, _FP32, _BF16, 2),
    "pure BF16": (_BF16, _BF16, None, 0),
    "an FP16 model, its BatchNorm in FP32": (_FP16, _FP32, None, 1),
}
_WITNESSED = {  # stays with the judge
    "FP32": (_FP32,) * 5,
    "FP16 autocast, the first layer": (_FP32, _FP16, _FP32, _FP32, _FP32),
    "FP16 autocast, the LayerNorm": (_FP32,) * 5,
    "BF16 autocast, the last layer, which has no bias": (_FP32, _BF16, _FP32, _FP32, _FP32),
    "pure BF16": (_BF16,) * 5,
    "an FP16 model, its BatchNorm in FP32": (_FP32, _FP16, _FP16, _FP32, _FP32),
}
_WHAT = {
    "parameter": "the layer's weight",
    "activation": "what the layer computes inside `step()`",
    "loss": "what `step()` returns",
    "gradient": "the gradient of the layer's weight",
    "state": "Adam's running mean for the layer's own weight",
}


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
            with torch.autocast("cpu", dtype=autocast or _BF16, enabled=autocast is not None):
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


def run_witness(witness):
    """`witness` in each scene: its report, its steps, the hooks it left, outputs it replaced."""
    seen = {}
    with emulate_gpu():
        for name, settings in _SCENES.items():
            layer, optimizer, step, steps, replaced = _scene(*settings)
            report = attempt(witness, layer, optimizer, step)
            seen[name] = [report, len(steps), len(layer._forward_hooks), replaced()]
    return seen


@check(run_witness)
def check_witness(seen):
    """Parameters, gradients and moments stay FP32 under autocast; a matmul's output does not."""
    for scene, wanted in _WITNESSED.items():
        report, steps, hooks, replaced = seen[scene]
        if replaced:
            raise Mistake(
                REPLACES_OUTPUT,
                scene=scene,
                kind=replaced[0],
                misconception="what-a-hook-returns-is-ignored",
            )
        if type(report) is Raised:
            raise AnswerError(SCENE_RAISED, scene=scene, error=failure(report))
        _read_roles(report, scene)
        for role, want in zip(ROLES, wanted, strict=True):
            got = report[role]
            if type(got) is not torch.dtype:
                raise Mistake(NO_DTYPE, scene=scene, role=role, came=came(got))
            if got != want:
                raise Mistake(
                    OTHER_DTYPE,
                    scene=scene,
                    role=role,
                    got=name_of(got),
                    want=name_of(want),
                    what=_WHAT[role],
                )
        if steps != 1:
            raise Mistake(STEPS, scene=scene, steps=steps)
        if hooks:
            raise Mistake(
                HOOKS_LEFT, scene=scene, hooks=hooks, misconception="a-hook-removes-itself"
            )


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
    "You called the layer after the step, outside autocast. When does the hook see the output?",
    swap=(
        '    seen["parameter"]',
        "    x = layer.weight.new_ones(layer.weight.shape[-1])\n"
        '    seen["activation"] = layer(x).dtype\n'
        '    seen["parameter"]',
    ),
)
check_witness.slip(
    "gradients-follow-the-activations",
    "Backward also passes through the cast from FP32. What is the dtype of `weight.grad`?",
    swap=("layer.weight.grad.dtype", 'seen["activation"]'),
)
check_witness.slip(
    "amp-halves-the-optimizer",
    "Adam makes its moments in the dtype of the parameter. What is in `optimizer.state[weight]`?",
    swap=('optimizer.state[layer.weight]["exp_avg"].dtype', 'seen["activation"]'),
)
check_witness.slip(
    "a-hook-removes-itself",
    "The hook would run in every later forward pass. What does `register_forward_hook` return?",
    cut="    handle.remove()\n",
)
for _returning in (
    'seen.setdefault("activation", output.dtype)',
    "seen.update(activation=output.dtype) or output.detach()",
):
    check_witness.slip(
        "what-a-hook-returns-is-ignored",
        "A hook that only reads must return None. What does yours return?",
        swap=("seen.update(activation=output.dtype)", _returning),
    )


# The first that is not finite

_HALF = {"dtype": torch.float16}
_STATES = {
    "all finite": [("weight", torch.tensor([1.0, 70000.0])), ("loss", torch.tensor(2.3))],
    "a NaN in the middle": [
        ("input", torch.zeros(2, 2)),
        ("hidden", torch.tensor([[1.0, math.nan], [0.0, 1.0]])),
        ("loss", torch.tensor(math.nan)),
    ],
    "inf, then the NaN it causes": [
        ("scores", torch.tensor([1.0, math.inf])),
        ("weights", torch.tensor([0.0, math.nan])),
    ],
    "-inf": [("mask", torch.tensor([-math.inf, 0.0])), ("loss", torch.tensor(1.0))],
    "60000 twice in FP16, then a NaN": [
        ("large", torch.tensor([60000.0, 60000.0], **_HALF)),
        ("small", torch.tensor([math.nan, 1.0], **_HALF)),
    ],
    "a finite loss over NaN weights": [
        ("labels", torch.tensor([1, 2])),
        ("weight", torch.tensor([math.nan])),
        ("loss", torch.tensor(2.3)),
    ],
    "3e38 twice, in FP32 and BF16, then a NaN": [
        ("large", torch.tensor([3e38, 3e38])),
        ("large too", torch.tensor([3e38, 3e38], dtype=torch.bfloat16)),
        ("small", torch.tensor([math.nan, 1.0])),
    ],
    "an empty tensor, then a loss of inf": [
        ("empty", torch.zeros(0)),
        ("loss", torch.tensor(math.inf)),
    ],
    "1e300 in float64, then a NaN": [
        ("large", torch.tensor([1e300], dtype=torch.float64)),
        ("small", torch.tensor([1.0, math.nan], dtype=torch.float64)),
    ],
    "nothing at all": [],
}


def _states(seed):
    """The series above, and one with an inf or a NaN in a place that is drawn."""
    draw = random.Random(seed)
    rows = [[draw.gauss(0, 1) for _ in range(4)] for _ in range(5)]
    rows[draw.randrange(5)][draw.randrange(4)] = draw.choice((math.inf, -math.inf, math.nan))
    drawn = [(f"tensor {place}", torch.tensor(row)) for place, row in enumerate(rows)]
    return _STATES | {"five tensors of four numbers": drawn}


def run_first_nonfinite(first_nonfinite, seed):
    """`first_nonfinite` on one series of pairs after another, each as an iterator."""
    return [attempt(first_nonfinite, iter(pairs)) for pairs in _states(seed).values()]


@check(run_first_nonfinite)
def check_first_nonfinite(names, seed):
    """The first tensor with an inf or a NaN, by name; None where there is none."""
    for (scene, pairs), got in zip(_states(seed).items(), names, strict=True):
        if type(got) is Raised:
            raise AnswerError(SCENE_RAISED, scene=scene, error=failure(got))
        bad = {name: kinds for name, x in pairs if (kinds := _nonfinite(x))}
        want = next(iter(bad), None)
        if got != want or type(got) is not type(want):
            raise Mistake(
                OTHER_NAME,
                scene=scene,
                got=reprlib.repr(got),
                want=repr(want),
                why=_why_not(got, want, bad, dict(pairs)),
            )


def _nonfinite(x):
    """Which of inf, -inf and NaN a tensor holds, in words; "" for none."""
    found = {"inf": x == math.inf, "-inf": x == -math.inf, "NaN": x != x}
    return " and ".join(kind for kind, where in found.items() if where.any())


def _why_not(got, want, bad, tensors):
    """What is true of the tensor that was named, or of the one that was passed over."""
    if got is not None and type(got) is not str:
        return NO_NAME
    if got in tensors and got not in bad:
        return FINITE.format(name=repr(got))
    if want is None:
        return ALL_FINITE
    return HOLDS.format(name=repr(want), kinds=bad[want])


check_first_nonfinite.slip(
    "the-loss-tells-everything",
    "You looked at the last tensor only. Which earlier tensor already held inf or NaN?",
    swap=("in named_tensors:", "in list(named_tensors)[-1:]:"),
)
check_first_nonfinite.slip(
    "nan-is-the-only-nonfinite",
    "`isnan` is False for inf, and inf - inf makes the next NaN. Which function is False for both?",
    swap=("not x.isfinite().all()", "x.isnan().any()"),
)
for _sum in ("x.sum()", "x.float().sum()"):
    check_first_nonfinite.slip(
        "finite-terms-finite-sum",
        "A sum may be inf though each element is finite: 60000 + 60000 in FP16, 3e38 + 3e38 in "
        "FP32. What can you ask each element?",
        swap=("x.isfinite().all()", f"{_sum}.isfinite()"),
    )
check_first_nonfinite.slip(
    "one-finite-element-is-enough",
    "`isfinite(x).any()` is True when one element is finite. Which word asks all of them?",
    swap=(".all()", ".any()"),
)
check_first_nonfinite.slip(
    "one-look-is-a-search",
    "You return None after the first tensor. When do you know that all tensors are finite?",
    swap=("    return None", "        return None"),
)
check_first_nonfinite.slip(
    "the-last-nan-is-the-first",
    "NaN spreads to later tensors, so the last one is not the origin. When may your loop stop?",
    swap=("in named_tensors:", "in reversed(list(named_tensors)):"),
)
check_first_nonfinite.slip(
    "comparisons-find-nan",
    "Every comparison with NaN is False. What does `x.abs() > limit` say of one?",
    swap=("not x.isfinite().all()", "(x.abs() > 3.4e38).any()"),
)


# Updates that change nothing

# What it is -> dtype of the weights, weights, updates.
_UPDATES = {
    "BF16 weights of 1": (_BF16, [1.0] * 4, [2**-9, 2**-8, 1.5 * 2**-8, 2**-7]),
    "BF16 weights of 1 that shrink": (_BF16, [1.0] * 3, [-(2**-10), -1.5 * 2**-9, -(2**-8)]),
    "BF16 weights of 1.75 and 0.0029": (
        _BF16, [1.75, 1.75, 1.5 * 2**-9], [5e-5, 1.5 * 2**-8, 5e-5],
    ),
    "BF16 weights of 1, one update just above half a gap": (
        _BF16, [1.0, 1.0], [2**-8 + 2**-20, 2**-8],
    ),
    "BF16 weights, two updates of 0": (_BF16, [1.0, -1.0, 0.5, 0.5], [0, 0, 2**-20, 0.25]),
    "FP32 weights": (_FP32, [1.0, 1.0, 2.0, 1.0], [2**-20, 2**-30, 0.125, 2**-9]),
    "FP16 weights in two rows": (
        _FP16, [[1.0, 1.0], [-2.0, 2.0]], [[2**-11, 1.5 * 2**-11], [2**-11, 2**-9]],
    ),
    "only updates of 0": (_BF16, [1.0, 2.0], [0.0, 0.0]),
    "no weights at all": (_BF16, [], []),
}  # fmt: skip
# In that order: how many updates are lost, of how many other than 0. Stays with the judge.
_LOST = ((2, 4), (1, 3), (1, 3), (1, 2), (1, 2), (1, 4), (2, 4), (0, 0), (0, 0))


def run_lost_updates(lost_updates):
    """`lost_updates` on each pair: its share, and whether the weights it was given changed."""
    seen = []
    for dtype, weights, updates in _UPDATES.values():
        weight = torch.tensor(weights, dtype=dtype)
        share = attempt(lost_updates, weight, torch.tensor(updates, dtype=_FP32))
        seen.append([share, not torch.equal(weight, torch.tensor(weights, dtype=dtype))])
    return seen


@check(run_lost_updates)
def check_lost_updates(seen):
    """Of the updates other than 0, the share that leaves its weight bit for bit as it was."""
    cases = zip(_UPDATES.items(), _LOST, seen, strict=True)
    for (scene, case), (lost, tried), (share, changed) in cases:
        if type(share) is Raised:
            raise AnswerError(SCENE_RAISED, scene=scene, error=failure(share))
        if changed:
            raise Mistake(WEIGHTS_CHANGED, scene=scene)
        got, want = number(share, call=f"lost_updates on {scene}"), lost / max(tried, 1)
        try:
            near_value(got, want, call=scene)
        except Mistake:
            raise Mistake(
                OTHER_SHARE,
                scene=scene,
                got=got,
                want=want,
                lost=lost,
                tried=tried,
                example=_example(*case, lost=got < want),
            ) from None


def _example(dtype, weights, updates, *, lost):
    """A sentence on the first update other than 0 that is lost, or that is not."""
    weight, update = torch.tensor(weights).flatten(), torch.tensor(updates).flatten()
    stored = (weight + update).to(dtype)
    for w, u, new in zip(weight.tolist(), update.tolist(), stored.tolist(), strict=True):
        if u and (new == w) == lost:
            return EXAMPLE.format(weight=w, update=u, dtype=name_of(dtype), stored=new)
    return ""


_COUNTED = "(stored == weight)[tried]"
check_lost_updates.slip(
    "zeros-count-as-lost",
    "An update of 0 is not lost: a vanished gradient is another failure. Which updates count?",
    swap=("tried = update != 0", "tried = update == update"),
)
check_lost_updates.slip(
    "a-stall-is-underflow",
    "The update itself is not 0 in 16 bits. What happens when it is added to its weight?",
    swap=(_COUNTED, "(update.to(weight.dtype) == 0)[tried]"),
)
check_lost_updates.slip(
    "ulp-is-relative",
    "The gap is the same from one power of two to the next. What does the sum itself say?",
    swap=(_COUNTED, "(update.abs() <= torch.finfo(weight.dtype).eps * weight.abs() / 2)[tried]"),
)
check_lost_updates.slip(
    "rounding-twice-is-rounding-once",
    "You round the update before the sum. In which dtype does the sum take it?",
    swap=("(weight + update).to(weight.dtype)", "(weight + update.to(weight.dtype))"),
)
check_lost_updates.slip(
    "a-whole-gap-is-needed-to-round",
    "A sum rounds to the nearest value: more than half a gap is enough. What is stored?",
    swap=(
        _COUNTED,
        "(update.abs() < torch.finfo(weight.dtype).eps * 2.0 ** (weight.float().abs()"
        ".log2().floor()))[tried]",
    ),
)


# The repair of run D

STALLED = RUNS["D"]
# Runs of FP32 from other first weights end this far from each other by chance alone, at most:
# tests/labs/three_crimes/test_three_crimes_runs.py measures it.
CHANCE = 0.06


SETTINGS = ("precision", "lr", "eps", "loss_weight")


def run_pardon(pardon):
    """What the pardon is, and of which type; the judge runs it, for a run can be forged."""
    kind, pardon = type(pardon).__name__, plain(pardon)
    if type(pardon) is not dict:
        return [pardon if type(pardon) in (str, int, float, list) else None, kind]
    return [{setting: _lower(value) for setting, value in pardon.items()}, kind]


def _lower(text):
    return text.strip().lower() if type(text) is str else text


def _refusal(pardon, kind):
    """Why a pardon is not run at all; "" if it is."""
    if type(pardon) is not dict or len(pardon) != 1:
        given = f"a {kind}" if pardon is None else reprlib.repr(pardon)
        return fill(NO_PARDON, given=given)
    ((setting, value),) = pardon.items()
    if setting not in SETTINGS:
        return fill(NO_SETTING, setting=reprlib.repr(setting), settings=", ".join(SETTINGS))
    if setting == "precision" and type(value) is not str:
        return fill(NO_PRECISION, came=came(value))
    if setting != "precision" and type(value) not in (int, float):
        return fill(NO_NUMBER, setting=setting, came=came(value))
    return ""


@check(run_pardon)
def check_pardon(given):
    """One setting, and the run follows FP32 with its own small steps."""
    pardon, kind = given
    if refusal := _refusal(pardon, kind):
        raise Mistake(refusal)
    # The stall shows up on the numbers of a run, never on a name that is no setting.
    outcome = attempt(lambda: run(replace(STALLED, **pardon)))
    ((setting, value),) = pardon.items()
    if type(outcome) is Raised and setting == "loss_weight" and value == 0:
        raise Mistake(NOTHING_TO_LEARN, pardon=pardon)
    if type(outcome) is Raised:
        raise AnswerError(REFUSED, pardon=pardon, why=outcome.message.rstrip("."))
    if getattr(STALLED, setting) == value:
        raise Mistake(NO_CHANGE, pardon=pardon)
    twin = run(replace(STALLED, precision="fp32"))
    ends_alike = abs(outcome.final_loss - twin.final_loss) <= CHANCE
    if setting == "precision" and value not in ("fp32", "tf32") and ends_alike:
        return
    no_eps = setting == "eps" and value == 0
    raise Mistake(
        f"{ENDS} {ZERO_EPS}" if no_eps else ENDS,
        pardon=pardon,
        loss=outcome.final_loss,
        moved=outcome.usual_move,
        twin=twin.final_loss,
        twin_moved=twin.usual_move,
        misconception=_pardon_idea(setting, value),
    )


def _pardon_idea(setting, value):
    if value in ("fp32", "tf32"):
        return "sixteen-bits-must-go"
    if setting == "lr":
        return "smaller-steps-are-safer" if value < STALLED.lr else "a-faster-run-is-a-repair"
    if value == "pure_fp16":
        return "more-mantissa-bits-are-enough"
    if setting == "eps" and value > STALLED.eps:
        return "eps-cures-all"
    return "scale-cures-a-stall" if setting == "loss_weight" and value > 1 else None


check_pardon.slip(
    "smaller-steps-are-safer",
    "Each update was too small to arrive. What does a smaller rate do to it?",
    swap=('"precision": "bf16"', '"lr": 1e-5'),
)
check_pardon.slip(
    "a-faster-run-is-a-repair",
    "With this rate FP32 ends elsewhere too: you changed the run instead of repairing it. "
    "Which setting lets small updates add up?",
    swap=('"precision": "bf16"', '"lr": 1e-3'),
)
check_pardon.slip(
    "scale-cures-a-stall",
    "Adam divides by the gradient's size, so the factor cancels. How large is the update then?",
    swap=('"precision": "bf16"', '"loss_weight": 65536.0'),
)
check_pardon.slip(
    "sixteen-bits-must-go",
    "Now no matmul is 16-bit. Which precision has 16-bit matmuls and FP32 weights?",
    swap=('"precision": "bf16"', '"precision": "fp32"'),
)
check_pardon.slip(
    "more-mantissa-bits-are-enough",
    "FP16 has three more mantissa bits, but its eps is 0, as in run C. Which tensors must be FP32?",
    swap=('"precision": "bf16"', '"precision": "pure_fp16"'),
)
check_pardon.slip(
    "eps-cures-all",
    "In BF16, Adam's denominator was never 0. Where is D's update lost?",
    swap=('"precision": "bf16"', '"eps": 1e-4'),
)


# The byte ledger

ITEMS = ("weights", "gradients", "adam", "copies", "activations")
_MODELS = [(1, 0), (0, 1), (1000, 64), (4096, 0), (7_000_000_000, 123_456_789)]


def _models(seed):
    """The models above, and one that is drawn."""
    draw = random.Random(seed)
    return [*_MODELS, (draw.randrange(2, 10**6), draw.randrange(2, 10**6))]


@check(calls(_models))
def check_ledger(answers, seed):
    """Bytes of each kind of tensor under autocast with Adam."""
    models, ledgers = _models(seed), []
    for model, got in zip(models, answers, strict=True):
        call = _ledger_call(model)
        kept = entries(got, ITEMS, call=call)
        ledgers.append([number(kept[item], call=f'{call}["{item}"]') for item in ITEMS])
    for model, ledger in zip(models, ledgers, strict=True):
        wanted = solutions.ledger(*model)
        for item, got in zip(ITEMS, ledger, strict=True):
            if got != wanted[item]:
                template, more = _ledger_mistake(item, ledgers)
                raise Mistake(
                    template,
                    call=_ledger_call(model),
                    item=item,
                    got=got,
                    want=wanted[item],
                    search=template is OTHER_BYTES,
                    **more,
                )


def _ledger_call(model):
    return "ledger({}, {})".format(*model)


def _ledger_mistake(item, ledgers):
    """The template that the whole ledger calls for, and the values that it alone needs."""
    place = ITEMS.index(item)
    counted, other = "parameters", "activations"
    if item == "activations":
        counted, other = other, counted
    values = [ledger[place] for ledger in ledgers]
    if values[0] and len(set(values)) == 1:
        return FOR_EVERY_MODEL, {"counted": counted}
    mine, theirs = (ledgers[1], ledgers[0]) if item == "activations" else ledgers[:2]
    if theirs[place] and not mine[place]:
        return OTHER_COUNT, {"counted": counted, "other": other}
    each = (*ledgers[0][:4], ledgers[1][4])
    times = each[0] / 4
    if times != 1 and each == tuple(times * right for right in (4, 4, 8, 2, 2)):
        return UNITS, {"times": times}
    if each[:3] == (2, 2, 12) or each[:4] == (2, 2, 8, 4):
        return SIXTEEN_BIT_MODEL, {}
    if item == "adam" and each[2] == 12:
        return MASTER_COPY, {}
    if item == "weights" and each[0] == 6:
        return COPIES_INSIDE, {}
    return OTHER_BYTES, {"why": _KEPT[item]}


_KEPT = {
    "weights": "Under autocast the weights stay FP32.",
    "gradients": "A gradient has the dtype of its weight.",
    "adam": "Adam keeps two numbers for each parameter, in the dtype of the weight.",
    "copies": "Autocast keeps one 16-bit copy of each weight.",
    "activations": "Each of these values is the output of an op that ran in 16 bits.",
}


def _ledger(*each):
    def ledger(parameters, activations):
        counts = (parameters,) * 4 + (activations,)
        return {item: n * b for item, n, b in zip(ITEMS, counts, each, strict=True)}

    return ledger


for _each in ((2, 2, 4, 0, 2), (2, 2, 4, 2, 2), (2, 2, 8, 2, 2), (2, 2, 4, 2, 4)):
    check_ledger.wrong(
        "amp-halves-everything",
        "Not everything halves. Which of weights, gradients and Adam's state did `witness` report "
        "as FP32?",
    )(_ledger(*_each))
check_ledger.slip(
    "autocast-casts-the-parameters",
    "The 16-bit weights are copies. In which dtype are the weights that Adam updates?",
    swap=('"weights": 4', '"weights": 2'),
)
check_ledger.slip(
    "gradients-follow-the-activations",
    "Backward passes through the cast to FP32. Which dtype has `weight.grad`?",
    swap=('"gradients": 4', '"gradients": 2'),
)
check_ledger.slip(
    "casts-cost-nothing",
    "Backward needs the 16-bit copies again, so they are kept. How many bytes is one?",
    swap=('"copies": 2', '"copies": 0'),
)
check_ledger.slip(
    "adam-keeps-one-number",
    "Adam keeps a running mean and a running mean square. How many FP32 numbers is that?",
    swap=('"adam": 8', '"adam": 4'),
)
check_ledger.slip(
    "activations-stay-fp32",
    "The output of an op that ran in 16 bits is 16-bit. Which dtype is that under autocast?",
    swap=('"activations": 2', '"activations": 4'),
)
