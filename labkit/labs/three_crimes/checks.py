"""Checks of lab 01: dtypes of a step, the first NaN, causes, a repair, bytes, kinds of methods."""

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
    number,
    plain,
    several,
    word,
)
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import came, fill
from labkit.labs.engine.reading import failure
from labkit.labs.three_crimes import solutions
from labkit.labs.three_crimes.suspects import SUSPECTS, run

LAB = "01_three_crimes"


# Sentences

SCENE_RAISED = "{scene}: {error}."

REPLACES_OUTPUT = (
    "{scene}: your hook returns a {kind}, and the layer hands that on instead of its output."
)
NO_REPORT = "{scene}: {came} came back; a dict of {roles} is wanted."
OTHER_ROLES = "{scene}: your dict has the keys {got}; a dict of {roles} is wanted."
NO_ACTIVATION = (
    "{scene}: your dict has no activation. The output exists only while `step()` runs: is your "
    "hook on the layer then, and does it store the dtype?"
)
NO_DTYPE = (
    "{scene}: {role} is {came}; a dtype is wanted, such as torch.float32: what `x.dtype` gives, "
    "and no text of it."
)
OTHER_DTYPE = "{scene}: you report {role} {got}; it is {want}. Asked for is the dtype of {what}."
STEPS = "{scene}: `step()` ran {steps} times; the run takes one step."
HOOKS_LEFT = "{scene}: {hooks} hook is left on the layer."

OTHER_NAME = "{scene}: your answer is {got}; {want} is wanted. {why}"
HOLDS = "{name} holds {kinds}."
FINITE = "Each number in {name} is finite."
ALL_FINITE = "Each number of this series is finite."
NO_NAME = "Asked for is a name, or None."

OTHER_CAUSE = "{run}: you say {said}. The evidence: {evidence}."

ENDS = (
    "With {pardon} the loss ends at {loss:.2f}, and {moved:.0%} of the weights move in a step. "
    "FP32: {twin:.2f} and {twin_moved:.0%}."
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
    "{pardon} multiplies the loss, and so each gradient, by 0: nothing is left to learn from."
)
ZERO_EPS = (
    "Where a mean square is 0, Adam divides by eps alone, and yours is 0: that makes inf or NaN."
)

FOR_EVERY_MODEL = (
    "`{call}`: {item} is {got:g} bytes, and so it is for every model. That is what one of them "
    "takes: how many {counted} are there?"
)
OTHER_COUNT = (
    "`{call}`: {item} is {got:g} bytes; {want} is wanted. Yours grows with the number of {other}: "
    "{item} is kept for each of the {counted}."
)
BITS = (
    "`{call}`: {item} is {got:g}; {want} is wanted. Each of your entries is 8 times the right one: "
    "bits are counted where bytes are asked for."
)
UNITS = (
    "`{call}`: {item} is {got:g} bytes; {want} is wanted. Each of your entries is {times:g} times "
    "the right one: return plain bytes, in no larger unit."
)
SIXTEEN_BIT_MODEL = (
    "`{call}`: {item} is {got:g} bytes; {want} is wanted. 2 + 2 + 12 bytes a parameter is another "
    "ledger: that of a 16-bit model whose optimizer keeps an FP32 copy of the weights beside "
    "Adam's two moments, as the ZeRO paper counts it. Under autocast the model itself is FP32, and "
    "the copies are the 16-bit ones."
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

OTHER_KIND = "Number {place}: you say {said}, which is {meaning}. But {fact}."


# Who is what dtype

ROLES = ("parameter", "activation", "loss", "gradient", "state")
_FP32, _FP16, _BF16 = torch.float32, torch.float16, torch.bfloat16
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
    """Parameters, gradients and Adam's moments stay FP32 under autocast; activations do not."""
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
                    misconception=_witness_idea(role, seen),
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


def _witness_idea(role, seen):
    reports = {name: report for name, (report, *_) in seen.items() if type(report) is dict}

    def says(name, role):
        return reports.get(name, {}).get(role)

    first, norm, last, pure = list(_SCENES)[1:5]
    if role == "activation":
        if says(first, role) == _FP32 and says(norm, role) == _FP16:
            return "the-input-tells-the-dtype"
        outside = says(first, role) == _FP32 and says(last, role) == _FP32
        if outside and says(pure, role) == _BF16:
            return "autocast-holds-outside-its-block"
        return None
    if says(first, role) == _FP16 and says(last, role) == _BF16:
        return {
            "parameter": "autocast-casts-the-parameters",
            "gradient": "gradients-follow-the-activations",
            "state": "amp-halves-the-optimizer",
        }.get(role)
    return None


check_witness.slip(
    "autocast-casts-the-parameters",
    "Whose dtype did you read: the layer's output, or `layer.weight`?",
    swap=("layer.weight.dtype", 'seen["activation"]'),
)
check_witness.slip(
    "the-input-tells-the-dtype",
    "That is the dtype which goes in. Which argument of the hook comes out?",
    swap=("output.dtype", "inputs[0].dtype"),
)
check_witness.slip(
    "autocast-holds-outside-its-block",
    "A call of the layer after the step is outside autocast. When must you look?",
    swap=(
        '    seen["parameter"]',
        "    x = layer.weight.new_ones(layer.weight.shape[-1])\n"
        '    seen["activation"] = layer(x).dtype\n'
        '    seen["parameter"]',
    ),
)
check_witness.slip(
    "gradients-follow-the-activations",
    "The cast is part of the graph, and backward goes through it. What does `weight.grad` say?",
    swap=("layer.weight.grad.dtype", 'seen["activation"]'),
)
check_witness.slip(
    "amp-halves-the-optimizer",
    "Adam makes its moments like the parameters. What does `optimizer.state[weight]` hold?",
    swap=('optimizer.state[layer.weight]["exp_avg"].dtype', 'seen["activation"]'),
)
check_witness.slip(
    "a-hook-removes-itself",
    "It would fire in each later forward. What does `register_forward_hook` return?",
    cut="    handle.remove()\n",
)
for _returning in (
    'seen.setdefault("activation", output.dtype)',
    "seen.update(activation=output.dtype) or output.detach()",
):
    check_witness.slip(
        "what-a-hook-returns-is-ignored",
        "A hook that only looks returns None. What does the last line of yours return?",
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
    "You asked the last tensor only. Which one went wrong before it?",
    swap=("in named_tensors:", "in list(named_tensors)[-1:]:"),
)
check_first_nonfinite.slip(
    "nan-is-the-only-nonfinite",
    "inf is not NaN, and a moment later it makes one. Which test says no to both?",
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
    "You answer None after the first tensor. When do you know that all are finite?",
    swap=("    return None", "        return None"),
)
check_first_nonfinite.slip(
    "the-last-nan-is-the-first",
    "NaN spreads forward, so the last is a victim. When may your loop stop?",
    swap=("in named_tensors:", "in reversed(list(named_tensors)):"),
)
check_first_nonfinite.slip(
    "comparisons-find-nan",
    "Every comparison with NaN is False. What does `x.abs() > limit` say of one?",
    swap=("not x.isfinite().all()", "(x.abs() > 3.4e38).any()"),
)


# Causes

CAUSES = ("overflow", "gradients are 0", "eps is 0", "updates below half a gap", "healthy")
_EVIDENCE = {
    "A": "its loss falls and its weights move",
    "C": "its loss and gradients are finite at step 0, nearly all its mean squares are 0, and the "
    "update is inf or NaN",
    "D": "all is finite, most gradients are not 0, and few weights move: in FP32 nearly all do",
    "E": "all is finite, every gradient is 0, and no weight moves",
}


def run_causes(causes):
    """A dict is data already."""
    return causes


@check(run_causes)
def check_causes(causes):
    """Each failure has its own cause, and each cause leaves evidence of its own."""
    causes = entries(causes, list(solutions.causes), call="causes")
    said = {key: word(cause, CAUSES, call=f'causes["{key}"]') for key, cause in causes.items()}
    for key, want in solutions.causes.items():
        if said[key] != want:
            raise Mistake(
                OTHER_CAUSE,
                run=key,
                said=repr(said[key]),
                evidence=_EVIDENCE[key],
                misconception=_cause_idea(key, said),
            )


def _lower(text):
    return text.strip().lower() if type(text) is str else text


def _cause_idea(key, causes):
    said = causes[key]
    guilty = [causes[name] for name in "CDE"]
    if key == "A" and said == "gradients are 0":
        return "no-scaler-no-training"
    if guilty.count("overflow") > 1 or (key in "DE" and said == "overflow"):
        return "every-failure-is-overflow"
    if key == "D" and said == "healthy":
        return "a-falling-loss-is-health"
    if key == "C" and said == "gradients are 0":
        return "nan-comes-from-the-gradients"
    if key == "C" and said == "overflow":
        return "nan-means-overflow"
    if key == "D" and said == "gradients are 0":
        return "a-stall-is-underflow"
    return None


_OVERFLOW = (
    "every-failure-is-overflow",
    "Overflow makes inf of a number that is too large. Does a loss or a gradient of step 0 "
    "show one?",
)
check_causes.wrong(*_OVERFLOW)(solutions.causes | dict.fromkeys("CDE", "overflow"))
check_causes.slip(*_OVERFLOW, swap=('"updates below half a gap"', '"overflow"'))
check_causes.slip(*_OVERFLOW, swap=('"gradients are 0"', '"overflow"'))
check_causes.slip(
    "a-falling-loss-is-health",
    "Its loss falls, a little. How far does the same run fall in FP32, in the last line?",
    swap=('"updates below half a gap"', '"healthy"'),
)
check_causes.wrong(
    "a-stall-is-underflow",
    "Compare its share of zero gradients with that of run A. What is left to stop a weight?",
)(solutions.causes | {"D": "gradients are 0", "E": "updates below half a gap"})
check_causes.slip(
    "nan-comes-from-the-gradients",
    "A zero gradient by itself moves nothing, and most of C's weights become inf where it is not "
    "0. What does Adam divide by?",
    swap=('"eps is 0"', '"gradients are 0"'),
)
check_causes.slip(
    "nan-means-overflow",
    "0 / 0 is NaN and m / 0 is inf, with no number too large. What is left of Adam's denominator "
    "where the mean square is 0?",
    swap=('"eps is 0"', '"overflow"'),
)
check_causes.slip(
    "no-scaler-no-training",
    "FP16 without a scaler loses some gradients. Does the column of losses show any harm?",
    swap=('"healthy"', '"gradients are 0"'),
)


# The pardon

STALLED = SUSPECTS["D"]
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
    "That is another run, which FP32 does not follow at D's own rate. "
    "Which setting lets small updates add up?",
    swap=('"precision": "bf16"', '"lr": 1e-3'),
)
check_pardon.slip(
    "scale-cures-a-stall",
    "Adam divides the factor out again. What does a scale do to an update's size?",
    swap=('"precision": "bf16"', '"loss_weight": 65536.0'),
)
check_pardon.slip(
    "sixteen-bits-must-go",
    "It runs, and without one 16-bit product. Which precision keeps those, and FP32 weights?",
    swap=('"precision": "bf16"', '"precision": "fp32"'),
)
check_pardon.slip(
    "more-mantissa-bits-are-enough",
    "FP16 has three more mantissa bits, and the crime of run C. Which weights must be FP32?",
    swap=('"precision": "bf16"', '"precision": "pure_fp16"'),
)
check_pardon.slip(
    "eps-cures-all",
    "eps stands in Adam's denominator, and the denominator was never 0. Where is the update lost?",
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
    """18 bytes a parameter under AMP with Adam, and 2 an activation."""
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
                    search=False,
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
        return (BITS, {}) if times == 8 else (UNITS, {"times": times})
    if idea := _ledger_idea(each):
        return OTHER_BYTES, {"why": "", "misconception": idea}
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
    "copies": "Autocast keeps one FP16 copy of each weight.",
    "activations": "Each of these values is the output of an op that ran in FP16.",
}


def _ledger_idea(each):
    """What each item takes, a parameter or an activation: the idea behind just that."""
    if each not in _LEDGERS and each[0] == 2:
        if each[1] == 2 and each[2] in (4, 8) and each[3] != 4:
            return "amp-halves-everything"
        if each[1:3] == (4, 8):
            return "autocast-casts-the-parameters"
    return _LEDGERS.get(each)


# Bytes of (a weight, its gradient, its moments, its copy, an activation) -> the idea.
_LEDGERS = {
    (2, 2, 4, 0, 2): "amp-halves-everything",
    (2, 4, 8, 2, 2): "autocast-casts-the-parameters",
    (2, 4, 8, 0, 2): "autocast-casts-the-parameters",
    (4, 2, 8, 2, 2): "gradients-follow-the-activations",
    (4, 4, 8, 0, 2): "casts-cost-nothing",
    (4, 4, 4, 2, 2): "adam-keeps-one-number",
    (4, 4, 8, 2, 4): "activations-stay-fp32",
}


def _ledger(*each):
    def ledger(parameters, activations):
        counts = (parameters,) * 4 + (activations,)
        return {item: n * b for item, n, b in zip(ITEMS, counts, each, strict=True)}

    return ledger


for _each in ((2, 2, 4, 0, 2), (2, 2, 4, 2, 2), (2, 2, 8, 2, 2), (2, 2, 4, 2, 4)):
    check_ledger.wrong(
        "amp-halves-everything",
        "Not everything halves. Which of weights, gradients and Adam's state did your witness see "
        "in FP32?",
    )(_ledger(*_each))
check_ledger.slip(
    "autocast-casts-the-parameters",
    "The 16-bit weights are copies beside the weights. In which dtype does Adam update them?",
    swap=('"weights": 4', '"weights": 2'),
)
check_ledger.slip(
    "gradients-follow-the-activations",
    "Backward leaves through the cast. Which dtype has `weight.grad`?",
    swap=('"gradients": 4', '"gradients": 2'),
)
check_ledger.slip(
    "casts-cost-nothing",
    "Backward needs the FP16 weights again, so they are kept. What do they weigh?",
    swap=('"copies": 2', '"copies": 0'),
)
check_ledger.slip(
    "adam-keeps-one-number",
    "Adam keeps a mean and a mean square. How many FP32 numbers is that?",
    swap=('"adam": 8', '"adam": 4'),
)
check_ledger.slip(
    "activations-stay-fp32",
    "A layer hands on what it computed in. Which dtype is that under autocast?",
    swap=('"activations": 2', '"activations": 4'),
)


# Kinds of methods

KINDS = ("pure", "autocast", "masters", "fp8", "quantization", "none")


def run_kinds(kinds):
    """A list is data already."""
    return kinds


@check(run_kinds)
def check_kinds(kinds):
    """Four ways to train in mixed or low precision; quantization is another thing."""
    kinds = several(kinds, len(solutions.kinds), call="kinds")
    said = [word(kind, KINDS, call=f"kinds[{place}]") for place, kind in enumerate(kinds)]
    for place, (kind, want) in enumerate(zip(said, solutions.kinds, strict=True), start=1):
        if kind != want:
            raise Mistake(
                OTHER_KIND,
                place=place,
                said=repr(kind),
                meaning=_MEANINGS[kind],
                fact=_FACTS[place - 1],
                misconception=_SORTING.get((place, kind)),
                search=False,
            )


_MEANINGS = {
    "pure": "training with every tensor in one 16-bit dtype",
    "autocast": "training with FP32 weights that a list of ops casts for each call",
    "masters": "training a 16-bit model beside an FP32 copy of its weights",
    "fp8": "training with 8-bit floats as inputs of the matmuls",
    "quantization": "preparing a model to run in integers after training",
    "none": "what no framework offers",
}
_FACTS = (
    "`model.half()` is one line of PyTorch, and it leaves no tensor of the model in FP32",
    "here the weights stay FP32, and the op's name decides what is cast",
    "here the model itself is 16-bit, and the FP32 weights live in the optimizer, as in Megatron "
    "or DeepSpeed",
    "these 8 bits are the inputs of products in training, as in NVIDIA's Transformer Engine",
    "here training is over, and the 8 bits are integers",
    "here the weights and the arithmetic of training stay FP32; the integers come afterwards",
    "neither PyTorch nor TensorFlow nor JAX looks at how busy the GPU is when it picks a dtype",
    "the word *dynamic* stands for the loss scale; each op's dtype is fixed by its name",
)


_MODEL = (
    "autocast-casts-the-parameters",
    "Under autocast the model itself is FP32; masters stand behind a 16-bit model. Of which dtype "
    "is the model here?",
)
_EIGHT = (
    "eight-bits-are-integers",
    "FP8 is a float that products take in training, INT8 an integer for use after it. "
    "Which of the two is this?",
)
_MIXED = (
    "half-is-mixed-precision",
    "In pure FP16 every tensor is FP16: weights, gradients, Adam. Is there an FP32 tensor here?",
)
# Number and what was said of it -> the idea and what to ask.
_SORTINGS = {
    (1, "masters"): _MIXED,
    (2, "masters"): _MODEL,
    (3, "autocast"): _MODEL,
    (3, "pure"): _MIXED,
    (4, "quantization"): _EIGHT,
    (5, "fp8"): _EIGHT,
    (6, "fp8"): _EIGHT,
    (1, "autocast"): _MIXED,
    (2, "quantization"): (
        "amp-is-quantization",
        "Autocast has no scale, no zero point and no integers. What does it choose for each op?",
    ),
    (6, "autocast"): (
        "qat-is-mixed-precision",
        "It trains in FP32 and imitates INT8, for use after training. Which bits does it save now?",
    ),
    (7, "autocast"): (
        "precision-follows-the-load",
        "Autocast looks each op up in a fixed list. Where would the load come in?",
    ),
    (8, "autocast"): (
        "dynamic-means-dynamic-dtypes",
        "What changes during training is the loss scale. Did an op change its dtype?",
    ),
}
_SORTING = {key: idea for key, (idea, _) in _SORTINGS.items()}
for (_place, _kind), (_idea, _question) in _SORTINGS.items():
    check_kinds.wrong(_idea, _question)(
        [_kind if at == _place else kind for at, kind in enumerate(solutions.kinds, start=1)]
    )
