"""Checks of lab 01: dtypes of a step, the first NaN, causes, a repair, bytes, kinds of methods."""

import math
import reprlib
from dataclasses import replace

import torch
from torch import nn

from labkit.emulation import emulate_gpu
from labkit.formats.dtypes import name_of
from labkit.labs.engine import AnswerError, Mistake, attempt, calls, check, plain
from labkit.labs.engine.codec import Raised
from labkit.labs.three_crimes import solutions
from labkit.labs.three_crimes.suspects import SUSPECTS, run

LAB = "01_three_crimes"


# Who is what dtype

ROLES = ("parameter", "activation", "loss", "gradient", "state")
_FP32, _FP16, _BF16 = torch.float32, torch.float16, torch.bfloat16
# Scene -> the dtype of the model, of autocast (None: off), the observed layer, the right answer.
_SCENES = {
    "FP32": (_FP32, None, 0),
    "FP16 autocast, the first layer": (_FP32, _FP16, 0),
    "FP16 autocast, the LayerNorm": (_FP32, _FP16, 1),
    "BF16 autocast, the last layer": (_FP32, _BF16, 2),
    "pure BF16": (_BF16, None, 0),
}
_WITNESSED = {  # stays with the judge
    "FP32": (_FP32,) * 5,
    "FP16 autocast, the first layer": (_FP32, _FP16, _FP32, _FP32, _FP32),
    "FP16 autocast, the LayerNorm": (_FP32,) * 5,
    "BF16 autocast, the last layer": (_FP32, _BF16, _FP32, _FP32, _FP32),
    "pure BF16": (_BF16,) * 5,
}


def _scene(dtype, autocast, place):
    """A layer of a small model, its optimizer, and a step that can be counted."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 3)).to(dtype)
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
        for name, (dtype, autocast, place) in _SCENES.items():
            layer, optimizer, step, steps, replaced = _scene(dtype, autocast, place)
            report = attempt(witness, layer, optimizer, step)
            seen[name] = [report, len(steps), len(layer._forward_hooks), replaced()]
    return seen


@check(run_witness)
def check_witness(seen):
    """Parameters, gradients and Adam's moments stay FP32 under autocast; activations do not."""
    for name, wanted in _WITNESSED.items():
        report, steps, hooks, replaced = seen[name]
        if replaced:
            raise Mistake(
                f"{name}: your hook returns a {replaced[0]}, and the layer hands that on instead "
                "of its output.",
                misconception="what-a-hook-returns-is-ignored",
            )
        if type(report) is Raised:
            place = f" in your line `{report.line}`" if report.line else ""
            raise AnswerError(f"{name}: {report.type_name}: {report.message}{place}.")
        if type(report) is not dict or set(report) != set(ROLES):
            raise Mistake(
                f"{name}: {reprlib.repr(report)} came back; a dict of {', '.join(ROLES)} is wanted."
            )
        for role, want in zip(ROLES, wanted, strict=True):
            got = report[role]
            if type(got) is not torch.dtype:
                raise Mistake(
                    f"{name}: {role} is {_value(got)}; a dtype is wanted, such as torch.float32: "
                    "what `x.dtype` gives, and no text of it."
                )
            if got != want:
                raise Mistake(
                    f"{name}: you report {role} {name_of(got)}; it is {name_of(want)}.",
                    misconception=_witness_idea(role, seen),
                )
        if steps != 1:
            raise Mistake(f"{name}: `step()` ran {steps} times; the run takes one step.")
        if hooks:
            raise Mistake(
                f"{name}: {hooks} hook is left on the layer.",
                misconception="a-hook-removes-itself",
            )


def _value(x):
    return "a tensor" if isinstance(x, torch.Tensor) else f"{reprlib.repr(x)}, a {type(x).__name__}"


def _witness_idea(role, seen):
    reports = {name: report for name, (report, *_) in seen.items() if type(report) is dict}

    def says(name, role):
        return reports.get(name, {}).get(role)

    first, norm, last = list(_SCENES)[1:4]
    if role == "activation":
        if says(first, role) == _FP32 and says(norm, role) == _FP16:
            return "the-input-tells-the-dtype"
        if says(first, role) == _FP32 and says(last, role) == _FP32:
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
    "all finite": [("weight", torch.ones(3)), ("loss", torch.tensor(2.3))],
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
    "nothing at all": [],
}


def run_first_nonfinite(first_nonfinite):
    """`first_nonfinite` on one series of pairs after another, each as an iterator."""
    return [attempt(first_nonfinite, iter(pairs)) for pairs in _STATES.values()]


@check(run_first_nonfinite)
def check_first_nonfinite(names):
    """The first tensor with an inf or a NaN, by name; None where there is none."""
    wrong = {}
    for (scene, pairs), got in zip(_STATES.items(), names, strict=True):
        if type(got) is Raised:
            place = f" in your line `{got.line}`" if got.line else ""
            raise AnswerError(f"{scene}: {got.type_name}: {got.message}{place}.")
        want = next((name for name, x in pairs if not x.double().isfinite().all()), None)
        if got != want or type(got) is not type(want):
            wrong[scene] = f"{scene}: your answer is {reprlib.repr(got)}; {want!r} is wanted."
    if wrong:
        scenes = frozenset(wrong)
        idea = next((idea for idea, where in _BLIND if scenes == where), None)
        raise Mistake(next(iter(wrong.values())), misconception=idea)


_MIDDLE, _INF, _MINUS, _LARGE, _UNDER, _HUGE, _EMPTY = list(_STATES)[1:8]
# Which series each idea gets wrong.
_BLIND = (
    ("the-loss-tells-everything", {_MIDDLE, _INF, _MINUS, _UNDER}),
    ("nan-is-the-only-nonfinite", {_INF, _MINUS, _EMPTY}),
    ("finite-terms-finite-sum", {_LARGE, _HUGE}),
    ("finite-terms-finite-sum", {_HUGE}),
    ("the-last-nan-is-the-first", {_MIDDLE, _INF}),
    ("comparisons-find-nan", {_MIDDLE, _LARGE, _UNDER, _HUGE}),
    ("one-finite-element-is-enough", {_MIDDLE, _INF, _MINUS, _LARGE, _HUGE, _EMPTY}),
    ("one-look-is-a-search", {_MIDDLE, _LARGE, _UNDER, _HUGE, _EMPTY}),
)


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
    if type(causes) is not dict or set(causes) != set(solutions.causes):
        raise Mistake(
            f"causes is {reprlib.repr(causes)}; a dict with the keys A, C, D and E is wanted."
        )
    causes = {key: _lower(cause) for key, cause in causes.items()}
    for key, cause in causes.items():
        if cause not in CAUSES:
            raise Mistake(f"{key}: {cause!r} is no cause; choose among {', '.join(CAUSES)}.")
    for key, want in solutions.causes.items():
        if causes[key] != want:
            raise Mistake(
                f"{key}: you say {causes[key]!r}. The evidence: {_EVIDENCE[key]}.",
                misconception=_cause_idea(key, causes),
            )


def _lower(word):
    return word.lower() if type(word) is str else word


def _cause_idea(key, causes):
    said = causes[key]
    guilty = [causes[name] for name in "CDE"]
    if key == "A":
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
        return (
            f"pardon is {given}; a dict with one setting and its new value is wanted, such as "
            '{"eps": 1e-6}.'
        )
    ((setting, value),) = pardon.items()
    if setting not in SETTINGS:
        return f"{setting!r} stays as it is; choose one setting among {', '.join(SETTINGS)}."
    if setting == "precision" and type(value) is not str:
        return f'precision is {reprlib.repr(value)}; a name is wanted, such as "pure_fp16".'
    if setting != "precision" and type(value) not in (int, float):
        return f"{setting} is {_value(value)}; a number is wanted, such as 1e-6, with no quotes."
    return ""


@check(run_pardon)
def check_pardon(given):
    """One setting, and the run follows FP32 with its own small steps."""
    pardon, kind = given
    if refusal := _refusal(pardon, kind):
        raise Mistake(refusal)
    # The stall shows up on the numbers of a run, never on a name that is no setting.
    outcome = attempt(lambda: run(replace(STALLED, **pardon)))
    if type(outcome) is Raised:
        raise AnswerError(f"The run refuses {pardon}: {outcome.message}.")
    ((setting, value),) = pardon.items()
    if getattr(STALLED, setting) == value:
        raise Mistake(f"{pardon} is what the run has already. What do you change?")
    twin = run(replace(STALLED, precision="fp32"))
    shown = (
        f"With {pardon} the loss ends at {outcome.final_loss:.2f}, and {outcome.usual_move:.0%} of "
        f"the weights move in a step. FP32: {twin.final_loss:.2f} and {twin.usual_move:.0%}."
    )
    if value in ("fp32", "tf32"):
        raise Mistake(shown, misconception="sixteen-bits-must-go")
    if abs(outcome.final_loss - twin.final_loss) <= CHANCE and setting == "precision":
        return
    raise Mistake(shown, misconception=_pardon_idea(setting, value))


def _pardon_idea(setting, value):
    if setting == "lr":
        return "smaller-steps-are-safer" if value < STALLED.lr else "a-faster-run-is-a-repair"
    if value == "pure_fp16":
        return "more-mantissa-bits-are-enough"
    return {"loss_weight": "scale-cures-a-stall", "eps": "eps-cures-all"}.get(setting)


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


@check(calls(_MODELS))
def check_ledger(answers):
    """18 bytes a parameter under AMP with Adam, and 2 an activation."""
    for (parameters, activations), got in zip(_MODELS, answers, strict=True):
        call, wanted = (
            f"ledger({parameters}, {activations})",
            solutions.ledger(parameters, activations),
        )
        if type(got) is Raised:
            place = f" in your line `{got.line}`" if got.line else ""
            raise AnswerError(f"`{call}` raised {got.type_name}: {got.message}{place}.")
        if type(got) is not dict or set(got) != set(ITEMS):
            raise Mistake(
                f"`{call}` is {reprlib.repr(got)}; a dict of {', '.join(ITEMS)} is wanted."
            )
        for item in ITEMS:
            want = wanted[item]
            if type(got[item]) not in (int, float):
                raise Mistake(f"`{call}`: {item} is {reprlib.repr(got[item])}; a number is wanted.")
            if got[item] != want and _forgets(answers, item):
                what = "activations" if item == "activations" else "parameters"
                raise Mistake(
                    f"`{call}`: {item} is {got[item]:g} bytes, and so it is for every model. "
                    f"That is what one of them takes: how many {what} are there?"
                )
            if got[item] != want:
                raise Mistake(
                    f"`{call}`: {item} is {got[item]:g} bytes; {want} is wanted.",
                    misconception=_ledger_idea(answers),
                )


def _ledger_idea(answers):
    """What each wrong item is, a parameter or an activation: the idea behind just that."""
    one, activation = answers[0], answers[1]
    each = [one.get(item) for item in ITEMS[:4]]
    each.append(activation.get("activations") if type(activation) is dict else None)
    if tuple(each) not in _LEDGERS and each[0] == 2:
        if each[1] == 2 and each[2] in (4, 8):
            return "amp-halves-everything"
        if each[1:3] == [4, 8]:
            return "autocast-casts-the-parameters"
    return _LEDGERS.get(tuple(each))


def _forgets(answers, item):
    """Whether an item is one number, whatever the model."""
    values = [answer.get(item) if type(answer) is dict else None for answer in answers]
    return values[0] is not None and values[0] != 0 and all(v == values[0] for v in values)


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
    "A layer hands on what it computed in. Which dtype did your hook see?",
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
    if type(kinds) not in (list, tuple) or len(kinds) != len(solutions.kinds):
        raise Mistake(
            f"kinds is {reprlib.repr(kinds)}; a list of {len(solutions.kinds)} is wanted."
        )
    kinds = [_lower(kind) for kind in kinds]
    for place, kind in enumerate(kinds, start=1):
        if kind not in KINDS:
            raise Mistake(f"Number {place}: {kind!r} is no kind; choose among {', '.join(KINDS)}.")
    for place, (kind, want) in enumerate(zip(kinds, solutions.kinds, strict=True), start=1):
        if kind != want:
            raise Mistake(
                f"Number {place}: you say {kind!r}.", misconception=_SORTING.get((place, kind))
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
