"""Check of lab 12: the KL divergence and the overflow of one layer in a narrow format."""

import copy
import math

import torch
from torch import nn

from labkit.formats import BF16, E4M3, E5M2, FP16, quantize
from labkit.labs.engine import AnswerError, Mistake, attempt, check, number, several, tensor
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import filled, seeded
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure
from labkit.training.models import SmallGPT

LAB = "12_choosing_precision"

RAISED = "{name}: your one_layer raised {error}."
SWALLOWED = (
    "{name}: the model raises a ValueError when it meets inf, and you returned {got}. The "
    "exception must reach the caller."
)
OTHER_ERROR = "{name}: the model raises a ValueError. From your one_layer came {error}."
CHANGED = (
    "{name}: after your one_layer, {count:d} of the {all:d} values of `{what}` are not what they "
    "were. {why}"
)
ROUNDED_FOR_GOOD = "They now have the precision of {fmt}."
BATCH_CHANGED = (
    "{name}: after your one_layer, {count:d} of the {all:d} values of the caller's batch `x` are "
    "not what they were. Which line writes into the tensor that the layer reads?"
)
AFTER_AN_ERROR = "This model raised. Which lines run when it does?"
OTHER_PARTS = (
    "{name}: after your one_layer, the model's state_dict has the keys {got}; before, "
    "it had {want}. {why}"
)
OTHER_MODE = "{name}: after your one_layer, `{what}` has training = {got}; before, it had {want}."
HOOK_GONE = (
    "{name}: after your one_layer, a hook is gone that the caller had put on the model. Which line "
    "removes more hooks than you registered?"
)
FROZEN = (
    "{name}: after your one_layer, `{what}` has requires_grad = {got}; before, it had {want}. "
    "Which line sets it?"
)
NO_GRADIENTS = (
    "{name}: after your one_layer, gradients are off for all code that follows: "
    "torch.is_grad_enabled() is False. Which line turns them off, and which turns them on again?"
)
HOOKS_LEFT = (
    "{name}: after your one_layer, {count:d} hooks are still on the model, so its next call rounds "
    "too. {why}"
)
TRAIN_MODE = (
    "{name}: kl is {got}; {want} is wanted. You called the model in train mode, where dropout "
    "draws another mask in each call."
)
OTHER_OVERFLOW = (
    "{name}: overflow is {got}; {want} is wanted: {count:d} of {all:d} output values. {why}"
)
A_NUMBER = "That is how many they are, and their share is asked for."
PERCENT = "That is in percent, and a share is asked for."
BEFORE_ROUNDING = "The layer's output in FP32 is finite; rounding it to {fmt} is what overflows."
WITHOUT_INF = "E4M3 has no inf: what overflows becomes NaN."
OTHER_KL = "{name}: kl is {got}; {want} is wanted. {why}"
NOT_NAN = (
    "{name}: kl is {got}, and nan is wanted: the layer's output overflows in {fmt}, and "
    "{rows:d} rows of logits become NaN. Which line of yours drops them?"
)
EXCHANGED = "The second value that you return is the kl. Asked for is (kl, overflow)."
ONLY_IF = "Your values come out if {what}."
TIMES = "In each case your kl is {times:.4g} times the right one. {why}"
SUMMED = "You add up the rows, and their mean is asked for."
OVER_CLASSES = "Where do you divide by the number of classes as well?"
OVER_BATCH = (
    "Here the logits have three dimensions, and each of the {rows:d} pairs of sequence and "
    "position is a row. By what do you divide?"
)
IN_BITS = "That is 1 / ln 2: yours is in bits, and nats are asked for."
SINGLE = (
    "Where kl is large, yours is right. float32 rounds a log-probability by up to 1e-7, and here "
    "the differences are hardly larger. In which dtype do you take the softmax?"
)

WEIGHTS = "only weight and bias are rounded"
BOTH_ENDS = "weight and bias are not rounded"
ALL = "weight", "bias", "input", "output"
PARTS = {
    WEIGHTS: ("weight", "bias"),
    "only the weight is rounded": ("weight",),
    "only the output is rounded": ("output",),
    BOTH_ENDS: ("input", "output"),
    "the bias is not rounded": ("weight", "input", "output"),
    "the layer's input is not rounded": ("weight", "bias", "output"),
    "the layer's output is not rounded": ("weight", "bias", "input"),
    "the parameters of all layers are rounded": (*ALL, "model"),
}
REVERSED = "the probabilities before the difference are the narrow run's, and the sign is right"
NEGATED = "the difference is log narrow - log exact"
HOOKED = "the exact run rounds the layer's input and output too"
CAST = "the exact run has the rounded weight and bias"

# An answer may run the whole model in float64: that moves a kl by 1e-4 of it at most.
_ROOM = 1e-3
_RAISES = "weights times 2**15 and a layer that raises on inf, FP16"
_NAMES = (
    "the example",
    "dropout, FP16",
    "dropout, BF16",
    "batch norm in eval mode in a model in train mode, BF16",
    "a GPT, E4M3",
    "large logits, E4M3",
    "logits near one another, FP16",
    "weights times 2**15, FP16",
    "weights times 2**15, BF16",
    "weights times 2**9, E4M3",
    _RAISES,
)


class _Note(nn.Module):
    """Passes its input on and notes whether it was called in train mode."""

    def __init__(self, heard):
        super().__init__()
        self.note = heard.append

    def forward(self, x):
        self.note(self.training)
        return x


def _passes_on(layer, inputs, output):
    """A hook of the caller's: it changes nothing."""


class _RaisesOnInf(nn.Module):
    def forward(self, x):
        if not x.isfinite().all():
            raise ValueError("an activation is inf or NaN")
        return x


def _network(seed, heard, middle, *, first=1.0, last=1.0):
    """Two linear layers, with others between them."""
    layers = nn.Linear(16, 32), _Note(heard), *middle, nn.ReLU(), nn.Linear(32, 10)
    model = filled(nn.Sequential(*layers), seed)
    with torch.no_grad():
        for p in model[0].parameters():
            p.mul_(first)
        for p in model[-1].parameters():
            p.mul_(last)
    return model


def _case(name, seed, heard):
    """The model, the layer's name, the format, and x."""
    x = seeded(seed + 50, 64, 16)
    match name:
        case "the example":
            model = nn.Sequential(nn.Linear(1, 2))
            model.load_state_dict(
                {"0.weight": torch.tensor([[1.1], [0.0]]), "0.bias": torch.zeros(2)}
            )
            return model, "0", E5M2, torch.tensor([[3.3]])
        case "dropout, FP16" | "dropout, BF16":
            fmt = FP16 if name.endswith("FP16") else BF16
            model = _network(seed, heard, [nn.Dropout(0.5)])
            if fmt is BF16:
                model[0].register_forward_hook(_passes_on)
            return model, "0", fmt, x
        case "batch norm in eval mode in a model in train mode, BF16":
            norm = nn.BatchNorm1d(32)
            model = _network(seed, heard, [norm, nn.Dropout(0.5)])
            norm.running_mean.copy_(seeded(seed, 32))
            norm.eval()
            return model, "0", BF16, x
        case "a GPT, E4M3":
            model = filled(SmallGPT(12, 8, width=16, blocks=2, heads=2), seed)
            model.norm = nn.Sequential(model.norm, _Note(heard))
            tokens = torch.arange(48).view(6, 8) * (seed + 5) % 12
            return model, "blocks.1.feed_forward.0", E4M3, tokens
        case "large logits, E4M3":
            model = _network(seed, heard, [], last=8.0)
            return model, f"{len(model) - 1}", E4M3, x
        case "logits near one another, FP16":
            return _network(seed, heard, [nn.Dropout(0.5)], last=2.0**-3), "0", FP16, x
        case "weights times 2**9, E4M3":
            return _network(seed, heard, [], first=2.0**9, last=2.0**-9), "0", E4M3, x
    guard = [_RaisesOnInf()] if name == _RAISES else [nn.Dropout(0.5)]
    fmt = BF16 if name.endswith("BF16") else FP16
    return _network(seed, heard, guard, first=2.0**15, last=2.0**-15), "0", fmt, x


def _hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def run_one_layer(one_layer, seed):
    """Of each case: (kl, overflow), the modes that were met, and the model as it is afterwards."""
    seen = {}
    for name in _NAMES:
        heard = []
        model, layer, fmt, x = _case(name, seed, heard)
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(seed)  # dropout that an answer leaves on drops the same everywhere
            returned = attempt(one_layer, model, layer, fmt, x)
            gradients = torch.is_grad_enabled()
        seen[name] = {
            "returned": returned,
            "heard": heard,
            "after": dict(model.state_dict()),
            "batch": x,
            "modes": [module.training for module in model.modules()],
            "trained": {key: p.requires_grad for key, p in model.named_parameters()},
            "hooks": _hooks(model),
            "gradients": gradients,
        }
    return seen


@check(run_one_layer, own_work=("labkit.labs.choosing_precision.sensitivity.analyse",))
def check_one_layer(seen, seed):
    """The KL and the overflow of one layer in a narrow format; the model stays as it is."""
    cases = {name: _case(name, seed, []) for name in _NAMES}
    returning = [name for name in _NAMES if name != _RAISES]
    right, found = {name: _narrow(*cases[name]) for name in returning}, {}
    for name in returning:
        returned, call = seen[name]["returned"], f"one_layer with {name}"
        if type(returned) is Raised:
            raise AnswerError(RAISED, name=name, error=failure(returned))
        _judge_state(name, seen[name], *cases[name])
        kl, overflow = several(returned, 2, call=call)
        found[name] = number(kl, call=f"{call}: kl"), number(overflow, call=f"{call}: overflow")
    kls = {name: kl for name, (kl, _) in found.items()}
    for name, (want, _) in right.items():
        if math.isfinite(want) and not abs(kls[name] - want) <= _ROOM * want:
            if all(_near(found[one][1], kl) for one, (kl, _) in right.items() if kl == kl):
                raise Mistake(
                    OTHER_KL, search=False, name=name, got=kls[name], want=want, why=EXCHANGED
                )
            _explain(name, kls, cases, right, seen[name])
    for name, (want, output) in right.items():
        fmt = cases[name][2]
        _judge_overflow(name, found[name][1], output, fmt)
        if math.isnan(want) and math.isfinite(kls[name]):
            rows = int(_logits(*cases[name], ALL)[0].isnan().any(-1).sum())
            raise Mistake(NOT_NAN, name=name, got=kls[name], fmt=fmt.name.upper(), rows=rows)
    _judge_exception(seen[_RAISES]["returned"])
    _judge_state(_RAISES, seen[_RAISES], *cases[_RAISES])


def _judge_exception(returned):
    if type(returned) is not Raised:
        raise Mistake(SWALLOWED, name=_RAISES, got=returned)
    if returned.type_name != "ValueError":
        raise AnswerError(OTHER_ERROR, name=_RAISES, error=failure(returned))


def _judge_state(name, case, model, layer, fmt, x):
    """The model's values, modes and hooks are what they were."""
    last = AFTER_AN_ERROR if name == _RAISES else ""
    state, after, modes = model.state_dict(), case["after"], case["modes"]
    if after.keys() != state.keys() or len(modes) != len(list(model.modules())):
        said = {"got": ", ".join(map(str, after)), "want": ", ".join(state), "why": last}
        raise Mistake(OTHER_PARTS, search=False, name=name, **said)
    for what, was in state.items():
        now = tensor(after[what], call=f"{name}: {what}", shape=was.shape)
        if count := int((now != was).sum()):
            held = _format_of(now, was, fmt)
            raise Mistake(
                CHANGED,
                misconception="a-measurement-may-change-the-model" if held and not last else None,
                search=False,
                name=name,
                count=count,
                all=was.numel(),
                what=what,
                why=last or (fill(ROUNDED_FOR_GOOD, fmt=held.name.upper()) if held else ""),
            )
    for (what, module), got in zip(model.named_modules(), modes, strict=True):
        want = module.training
        if got is not want:
            said = {"what": what or "model", "got": got, "want": want}
            raise Mistake(OTHER_MODE, search=False, name=name, **said)
    for what, p in model.named_parameters():
        got = case["trained"].get(what)  # None: it is no parameter any more
        if got is not p.requires_grad:
            said = {"what": what, "got": got, "want": p.requires_grad}
            raise Mistake(FROZEN, search=False, name=name, **said)
    if case["gradients"] is not True:
        raise Mistake(NO_GRADIENTS, search=False, name=name)
    left = case["hooks"] - _hooks(model)
    if left < 0:
        raise Mistake(HOOK_GONE, search=False, name=name)
    if left > 0:
        idea = None if last else "hooks-leave-by-themselves"
        said = {"name": name, "count": left, "why": last}
        raise Mistake(HOOKS_LEFT, misconception=idea, search=False, **said)
    batch = tensor(case["batch"], call=f"{name}: x", shape=x.shape)
    if count := int((batch != x).sum()):
        raise Mistake(BATCH_CHANGED, search=False, name=name, count=count, all=x.numel())


def _format_of(now, was, fmt):
    """The format to which a parameter was rounded: that of the call, or a dtype of 16 bits."""
    formats = (fmt, FP16, BF16) if was.is_floating_point() else ()
    return next((f for f in formats if torch.equal(now, quantize(was, f))), None)


def _judge_overflow(name, got, output, fmt):
    """The share of an output's values that are inf or NaN."""
    count, every = int((~output.isfinite()).sum()), output.numel()
    want = count / every
    if abs(got - want) <= 2.0**-22:
        return
    why = ""
    if abs(got - count) < 0.5:
        why = A_NUMBER
    elif abs(got - 100 * want) <= 1e-3 * want:
        why = PERCENT
    elif got == 0:
        why = WITHOUT_INF if fmt is E4M3 else fill(BEFORE_ROUNDING, fmt=fmt.name.upper())
    raise Mistake(OTHER_OVERFLOW, name=name, got=got, want=want, count=count, all=every, why=why)


class _Rounds(nn.Module):
    """A layer whose parameters, input and output are rounded, as far as ``parts`` says."""

    def __init__(self, layer, fmt, parts):
        super().__init__()
        self.layer, self.fmt, self.parts = layer, fmt, parts
        with torch.no_grad():
            for key, p in layer.named_parameters():
                p.copy_(self._rounded(p, key))

    def _rounded(self, x, part):
        return quantize(x, self.fmt) if part in self.parts else x

    def forward(self, x):
        self.output = self._rounded(self.layer(self._rounded(x, "input")), "output")
        return self.output


def _logits(model, layer, fmt, x, parts):
    """Log-probabilities with the layer rounded, float64, and the layer's output."""
    model = copy.deepcopy(model).eval()
    rounds = _Rounds(model.get_submodule(layer), fmt, parts)
    model.set_submodule(layer, rounds)
    with torch.no_grad():
        for p in model.parameters() if "model" in parts else ():
            p.copy_(quantize(p, fmt))
        return model(x).double().log_softmax(-1), rounds.output


def _kl(p, q):
    return (p.exp() * (p - q)).sum(-1).mean().item()


def _narrow(*case):
    """What is right: the kl, and the layer's output."""
    low, output = _logits(*case, ALL)
    return _kl(_logits(*case, ())[0], low), output


def _others(case):
    """The kl that each mistake gives, by the words of its sentence."""
    exact, low = _logits(*case, ())[0], _logits(*case, ALL)[0]
    hooked, cast = (_logits(*case, PARTS[what])[0] for what in (BOTH_ENDS, WEIGHTS))
    return {what: _kl(exact, _logits(*case, parts)[0]) for what, parts in PARTS.items()} | {
        REVERSED: _kl(low, exact),
        NEGATED: -_kl(exact, low),
        HOOKED: _kl(hooked, low),
        CAST: _kl(cast, low),
    }


_IDEAS = {
    WEIGHTS: "weights-are-the-layer",
    HOOKED: "the-baseline-is-measured-anywhere",
    CAST: "the-baseline-is-measured-anywhere",
    REVERSED: "kl-is-symmetric",
}


def _explain(name, found, cases, right, case):
    """Raise what is true of a wrong kl."""
    got, (want, _) = found[name], right[name]
    said = {"name": name, "got": got, "want": want}
    if any(case["heard"]):
        raise Mistake(TRAIN_MODE, misconception="eval-mode-is-optional", search=False, **said)
    finite = {one: kl for one, (kl, _) in right.items() if math.isfinite(kl)}
    others = {one: _others(cases[one]) for one in finite}
    for what in others[name]:
        if all(_near(found[one], others[one][what]) for one in finite):
            idea = _IDEAS.get(what)
            why = fill(ONLY_IF, what=what)
            raise Mistake(OTHER_KL, misconception=idea, search=False, why=why, **said)
    idea, why = None, _factor(name, found, finite, cases)
    if not why and all(
        abs(found[one] - kl) <= 2e-6 and (kl < 1e-5 or _near(found[one], kl, 0.05))
        for one, kl in finite.items()
    ):
        idea, why = "float32-log-probabilities-are-exact", SINGLE
    raise Mistake(OTHER_KL, misconception=idea, search=False, why=why, **said)


def _near(got, want, room=_ROOM):
    return abs(got - want) <= room * abs(want)


def _factor(name, found, finite, cases):
    """What a constant factor, or one that follows from the shapes, says."""
    times = {one: found[one] / kl for one, kl in finite.items()}
    shapes = {one: _logits(*cases[one], ())[0].shape for one in finite}
    rows = {one: math.prod(shape[:-1]) for one, shape in shapes.items()}
    explained = {
        SUMMED: rows,
        OVER_CLASSES: {one: 1 / shape[-1] for one, shape in shapes.items()},
        IN_BITS: dict.fromkeys(finite, 1 / math.log(2)),
    }
    for why, wanted in explained.items():
        if all(_near(times[one], wanted[one]) for one in finite):
            return why if why is not IN_BITS else fill(TIMES, times=times[name], why=why)
    if all(_near(times[one], rows[one] / shapes[one][0]) for one in finite):
        return fill(OVER_BATCH, rows=rows[name])
    if times[name] and all(_near(t, times[name]) for t in times.values()):
        return fill(TIMES, times=times[name], why="")
    return ""


check_one_layer.slip(
    "eval-mode-is-optional",
    "Which call sets the mode, and puts it back?",
    swap=("with evaluating(model):", "with torch.no_grad():"),
)
check_one_layer.slip(
    "kl-is-symmetric",
    "KL(exact || narrow) asks how much the narrow model misses of what the exact one expects. Of "
    "which run are the probabilities in front?",
    swap=("(exact.exp() * (exact - narrow))", "(narrow.exp() * (narrow - exact))"),
)
check_one_layer.slip(
    "the-baseline-is-measured-anywhere",
    "The exact run is the model as it came: no hook, no rounded weight. When do you take it?",
    swap=(
        "        try:\n",
        "        try:\n            exact = model(x).double().log_softmax(-1)\n",
    ),
)
check_one_layer.slip(
    "float32-log-probabilities-are-exact",
    "The subtraction of two nearly equal numbers keeps their rounding errors.",
    swap=(
        "(exact.exp() * (exact - narrow))",
        "(exact.float().exp() * (exact.float() - narrow.float()))",
    ),
)
check_one_layer.slip(
    "hooks-leave-by-themselves",
    "Which method of a hook's handle takes it off?",
    swap=("hook.remove()", "pass"),
)


@check_one_layer.wrong(
    "weights-are-the-layer",
    "A kernel in this format reads its input and writes its output in it. Which functions of a "
    "layer see them?",
)
@torch.no_grad()
def one_layer(model, name, fmt, x):
    model = copy.deepcopy(model).eval()
    exact = model(x).double().log_softmax(-1)
    for p in model.get_submodule(name).parameters():
        p.copy_(quantize(p, fmt))
    narrow = model(x).double().log_softmax(-1)
    overflow = (~model.get_submodule(name).weight.isfinite()).double().mean().item()
    return _kl(exact, narrow), overflow


@check_one_layer.wrong(
    "a-measurement-may-change-the-model",
    "No cast brings back bits that were rounded away. Which tensors hold the exact weights while "
    "the narrow ones are in use?",
)
@torch.no_grad()
def one_layer_in_place(model, name, fmt, x):
    model.eval()
    exact = model(x).double().log_softmax(-1)
    layer = model.get_submodule(name)
    dtypes = {FP16: torch.float16, BF16: torch.bfloat16, E4M3: torch.float8_e4m3fn}
    layer.to(dtypes.get(fmt, torch.float8_e5m2)).float()
    return _kl(exact, model(x).double().log_softmax(-1)), 0.0
