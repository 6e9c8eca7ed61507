"""Checks of lab 16's capstone: a GPT written for float32, and its loop, ported to FP16.

Both are judged by where they end, under ``emulate_gpu()``; see ``labkit.labs.engine.loop_ends``.
"""

import copy
import functools
import math
from fractions import Fraction

import torch
from torch import nn

from labkit.emulation import emulate_gpu
from labkit.formats.dtypes import name_of
from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.checks import KEPT
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import NEAR, Loop, brief, filled, flat, same_end
from labkit.labs.engine.messages import fill
from labkit.labs.interview import solutions
from labkit.labs.interview.handmade import HandmadeGPT

LAB = "16_interview"

_VOCABULARY, _CONTEXT = 11, 8


def _tokens(seed, *shape):
    return torch.randint(_VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


# The model

IN_CASE = "{case}: {said}"
RAISED = "{case}: {error}."
NOT_FINITE = "{case}: {count} of {all} logits are inf or NaN, first at token {place}."
OTHER_DTYPE = "{case}: {what} has dtype {got}; {want} is wanted."
NOT_RUN = "{case}: {what} was not called."
LOGITS_OFF = "{case}: the logits are {percent:.0f} % off those of HandmadeGPT."
LOSS_OFF = "{case}: the logits are right, the loss is {got}; {want} is wanted."
GRADIENTS_OFF = "{case}: logits and loss are right, the gradients are not."

_CASES = (
    "float32",
    "float32, tiny weights",
    "FP16",
    "FP16, queries near 1000",
    "FP16, far logits",
    "FP16, a token of zeros",
)
_LINEAR = ("query_key_value", "attention_out", "feed_forward.0", "feed_forward.2", "head")


def _prepared(network, case, seed):
    """Weights of its own for a case: tiny, large queries, far logits, or a first token of zeros."""
    filled(network, 3 + seed)
    with torch.no_grad():
        if "tiny" in case:  # mean squares near 1e-8: a changed eps shows
            for weights in (network.token, network.position, network.query_key_value):
                weights.weight *= 1e-4
        if "far" in case:  # probabilities below 1e-8: a guarded logarithm shows
            network.head.weight *= 12
        if "1000" in case:
            network.query_key_value.weight *= 1000
        if "zeros" in case:
            network.token.weight[0] = 0
            network.position.weight[0] = 0
    return network


def run_gpt16(gpt16, seed):
    """Logits, loss and gradients of the port in float32 and under FP16 autocast."""
    shown = {}
    tokens = _tokens(1 + 2 * seed, 2, 6)
    tokens[0, 0] = 0
    targets = _tokens(2 + 2 * seed, 2, 6)
    with emulate_gpu():
        for case in _CASES:
            shown[case] = attempt(_one_pass, gpt16, case, tokens, targets, seed)
    return shown


def _one_pass(gpt16, case, tokens, targets, seed):
    network = _prepared(gpt16(_VOCABULARY, _CONTEXT), case, seed)
    met = {}
    for name in _LINEAR:
        network.get_submodule(name).register_forward_hook(
            lambda module, inputs, output, name=name: met.update({name: name_of(output.dtype)})
        )
    with torch.autocast("cpu", dtype=torch.float16, enabled=case.startswith("FP16")):
        logits = network(tokens)
        loss = network.loss(logits, targets)
    loss.backward()
    gradients = torch.cat([p.grad.flatten() for p in network.parameters()])
    if "zeros" in case:  # 1e4 times 1e4 times larger than any other: only whether they exist
        gradients = gradients.isfinite().all()
    return {
        "logits": logits.detach().float(),
        "loss": loss.item(),
        "gradients": gradients,
        "met": met | {"the loss": name_of(loss.dtype)},
    }


def _model_evidence(got, want):
    for case in _CASES:
        end, ours = got[case], want[case]
        if same_end(end, ours):
            continue
        if type(end) is Raised:
            return fill(RAISED, case=case, error=brief(end))
        bad = ~end["logits"].isfinite()
        if bad.any():
            place = int(bad.any(dim=-1).any(dim=0).nonzero()[0])
            return fill(NOT_FINITE, case=case, count=int(bad.sum()), all=bad.numel(), place=place)
        for what, dtype in ours["met"].items():
            if what not in end["met"]:
                return fill(NOT_RUN, case=case, what=what)
            if end["met"][what] != dtype:
                return fill(OTHER_DTYPE, case=case, what=what, got=end["met"][what], want=dtype)
        if not same_end(end["logits"], ours["logits"]):
            away = (end["logits"] - ours["logits"]).norm() / ours["logits"].norm()
            return fill(LOGITS_OFF, case=case, percent=100 * away.item())
        if not same_end(end["loss"], ours["loss"]):
            return fill(LOSS_OFF, case=case, got=end["loss"], want=ours["loss"])
        return fill(GRADIENTS_OFF, case=case)
    raise AssertionError("the ends agree in each case")


MODEL = Loop(
    run_gpt16,
    solutions.GPT16,
    _model_evidence,
    lambda shown: [end if type(end) is Raised else end["gradients"] for end in shown.values()],
)


@check(run_gpt16, seeds=2)
def check_gpt16(got, seed):
    """The same model in float32, and one that FP16 autocast does not break."""
    try:
        MODEL.judge(got, check_gpt16.known_wrong, seed=seed)
    except AnswerError as error:
        case = next(case for case in _CASES if type(got[case]) is Raised)
        raise AnswerError(IN_CASE, case=case, said=str(error)) from None


check_gpt16.slip(
    "mask-constant-overflows",
    "FP16's largest value is 65504, so -1e9 does not fit. Which score gets the weight 0 from a "
    "softmax in every format?",
    swap=("-math.inf", "-1e9"),
)
check_gpt16.slip(
    "unlisted-ops-run-in-fp32",
    "`x * x` of an FP16 tensor is FP16: it overflows above 255, and eps = 1e-8 becomes 0. Which "
    "lines of the model use no function of autocast's lists?",
    cut="x = x.float()",
)
check_gpt16.slip(
    "upcast-too-late",
    "The square had overflowed in FP16 before you converted it. Which value must be float32 before "
    "it is squared?",
    swap=(
        "x = x.float()\n        return x * torch.rsqrt((x * x).mean",
        "return x * torch.rsqrt((x * x).float().mean",
    ),
)
check_gpt16.slip(
    "eps-fits-every-format",
    "FP16's smallest positive value is 6e-8, so eps = 1e-8 becomes 0. What is 0 times the rsqrt "
    "of 0?",
    swap=("x = x.float()", "x = x / 256"),
)
check_gpt16.slip(
    "a-larger-eps-costs-nothing",
    "Your eps changes the logits in float32, and eps is part of the model. In which dtype does "
    "1e-8 not become 0?",
    swap=("1e-8", "1e-2"),
)
check_gpt16.slip(
    "a-clamp-repairs-an-overflow",
    "Clamping changes the queries. In which dtype do the squares of the true ones not overflow?",
    swap=(
        "x = x.float()\n        return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True)",
        "x = x.clamp(-240, 240)\n"
        "        return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True).float()",
    ),
)
check_gpt16.slip(
    "masked-means-score-zero",
    "You set masked scores to 0, and exp(0) is 1, so attention reads later tokens. Which score "
    "gets the weight 0 from a softmax?",
    swap=("scores.masked_fill(future, -math.inf)", "(scores * ~future)"),
)
check_gpt16.slip(
    "any-negative-number-masks",
    "exp(-10) is small but not 0, so attention still reads later tokens. Which score gets the "
    "weight 0 from a softmax?",
    swap=("-math.inf", "-10.0"),
)


@check_gpt16.wrong(
    "every-activation-needs-fp32",
    "With autocast off nothing runs in 16 bits. Which matmuls may run in FP16?",
)
class AutocastOff(solutions.GPT16):
    """The port with autocast switched off inside."""

    def forward(self, tokens):
        with torch.autocast(tokens.device.type, enabled=False):
            return super().forward(tokens)


# The loop

TRAINED_IN = (
    "The network trained in {got}; float16 is asked for. Without `dtype=` autocast takes bfloat16 "
    "on a CPU and float16 on a GPU."
)
LOSS_IN = (
    "The loss was computed in {got}, from logits of {ran}; it is wanted in float32, as autocast "
    "computes it."
)
THREE_THINGS = "{when}: {came} came back; losses, norms and a state are wanted."
NOT_SO_MANY = "{when}: {count} {what} came back; {wanted} are wanted, one for each step of {every}."
GRADIENTS_TIMES = (
    "In step {step} the gradients of the logits are {ratio} times those that a scale of {scale:g} "
    "and a division by {size} give."
)
STEPPED_ON_INF = (
    "{when}: step {before} overflowed and had to be skipped, but the optimizer stepped: the loss "
    "of step {step} is {got}, {want} is wanted."
)
OTHER_UPDATE = (
    "{when}: all losses and norms up to step {before} are right, but then the loss of step {step} "
    "is {got}; {want} is wanted. With which gradients did step {before} update the weights?"
)
OTHER_NUMBER = "{when}: the {what} of step {step} is {got}; {want} is wanted."
OTHER_WEIGHTS = (
    "{when}: losses and norms are right, the weights end elsewhere. With which gradients did the "
    "last step update them?"
)
NEVER_GROWS = (
    "After 2000 good steps in a row torch's scaler doubles its scale. Yours did not in "
    "{steps} steps without a restart."
)
LOST_COUNT = (
    "{first} good steps, a restart, {second} good steps: torch's scaler doubles its scale after "
    "2000 good steps in a row, and without the restart yours does. After it the scale stays."
)
GROWS_ELSEWHERE = (
    "{first} good steps, a restart, {second} good steps: the scale should double after 2000 good "
    "steps in a row, so that step {want} of the second run overflows; there {got} did."
)

_MICRO_BATCHES, _EVERY, _LIMIT = 10, 4, 1.0


class _Wide(HandmadeGPT):
    """A model that trains in FP16: what FP16 breaks is float32, the five layers are not."""

    steepness = 1.0

    def norm(self, x):
        return super().norm(x.float())

    def attend(self, query, key, value):
        with torch.autocast(value.device.type, enabled=False):
            return super().attend(query.float(), key.float(), value.float())

    def loss(self, logits, next_tokens):
        return self.steepness * super().loss(logits, next_tokens)


def _trained(seed):
    """A network and ten micro-batches, so steep that 65536 overflows, and 32768 does not.

    Of twenty micro-batches the steepest leads the first group of four, and the next one the second.
    The eight gentlest follow them.
    """
    network = filled(_Wide(_VOCABULARY, _CONTEXT), seed + 5)
    with torch.no_grad():
        network.head.weight *= 3
    drawn = range(100 * seed + 30, 100 * seed + 50)
    batches = [(_tokens(i, 1, 5), _tokens(i + 20, 1, 5)) for i in drawn]
    with emulate_gpu():
        steep = {place: _largest_gradient(network, *batch) for place, batch in enumerate(batches)}
    order = sorted(steep, key=steep.get, reverse=True)
    gentle = order[2 - _MICRO_BATCHES :]
    # In a group of four, a largest gradient of 4 overflows at 65536, and one of 8 at 32768; in the
    # last group, of two, one of 4 does at 32768. The second group's is put midway.
    network.steepness = 4 * math.sqrt(2) / steep[order[1]]
    order = order[:1] + gentle[:3] + order[1:2] + gentle[3:]
    return network, [batches[place] for place in order]


def _largest_gradient(network, tokens, next_tokens):
    """The largest entry of all FP16 gradients of a micro-batch."""
    met = []

    def see(module, inputs, output):
        for tensor in (inputs[0], output):
            tensor.register_hook(met.append)

    layers = [network.get_submodule(name) for name in _LINEAR]
    hooks = [layer.register_forward_hook(see) for layer in layers]
    with torch.autocast("cpu", dtype=torch.float16):
        loss = network.loss(network(tokens), next_tokens)
    (256 * loss).backward()  # far from both ends of FP16
    met += [layer.weight.grad for layer in layers]
    for hook in hooks:
        hook.remove()
    network.zero_grad()
    return max(gradient.abs().max().item() for gradient in met) / 256


def _optimizer(network):
    return torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)


def run_train_amp(train_amp, seed):
    """Ten micro-batches at one go, again with a restart, and thousands of steps of a tiny model.

    ``ran`` is the dtype of the logits and ``loss`` that of the loss. For each forward pass
    ``arrived`` holds the largest gradient that the logits got, and ``came`` how far the weights had
    come.
    """
    shown = _run_in_short(train_amp, seed)
    shown["aged"] = _aged(train_amp) if _is_triple(shown["restarted"], 2) else None
    return shown


def _run_in_short(train_amp, seed):
    shown = {"ran": "", "loss": "", "arrived": [], "came": []}
    network, batches = _trained(seed)
    start, own_loss = flat(network), network.loss

    def seen(module, inputs, output):
        if output.requires_grad:
            shown["ran"] = shown["ran"] or name_of(output.dtype)
            shown["came"].append(flat(network) - start)
            output.register_hook(lambda g: shown["arrived"].append(g.float().abs().max().item()))

    def watched(logits, next_tokens):
        loss = own_loss(logits, next_tokens)
        shown["loss"] = shown["loss"] or name_of(loss.dtype)
        return loss

    network.register_forward_hook(seen)
    network.loss = watched
    optimizer = _optimizer(network)
    rest = network, batches, optimizer, "cpu", _EVERY, _LIMIT
    with emulate_gpu():
        shown["whole"] = _without_state(attempt(train_amp, *rest))
        shown["whole moved"] = flat(network) - start
        shown["restarted"], shown["restarted moved"] = _restarted(train_amp, seed)
    return shown | {"first": (shown["arrived"] or [0.0])[0]}


def _restarted(train_amp, seed):
    network, batches = _trained(seed)
    optimizer = _optimizer(network)
    first = attempt(train_amp, network, batches[:_EVERY], optimizer, "cpu", _EVERY, _LIMIT)
    if not _is_triple(first, 3):
        return _without_state(first), torch.zeros(0)
    fresh = copy.deepcopy(network)
    fresh.zero_grad()
    again, start = _optimizer(fresh), flat(fresh)
    again.load_state_dict(optimizer.state_dict())
    rest = fresh, batches[_EVERY:], again, "cpu", _EVERY, _LIMIT, first[2]
    end = _without_state(attempt(train_amp, *rest))
    return end, flat(fresh) - start


def _is_triple(end, count):
    return isinstance(end, (tuple, list)) and len(end) == count


def _without_state(end):
    """Losses and norms; the state is anything that the answer itself can read."""
    if _is_triple(end, 3):
        return [end[0], end[1]]
    size = f" of {len(end)}" if isinstance(end, (tuple, list)) else ""
    return end if type(end) is Raised else f"{type(end).__name__}{size}"


# torch's scaler doubles after 2000 good steps in a row. Before that nothing but the scale tells a
# restarted run from one that went on, and a step of one weight takes half a millisecond.
_BEFORE, _AFTER, _GROWTH = 1990, 20, 2000


class _OneWeight(nn.Module):
    """Its gradient is 0.75: an FP16 number times 65536, and inf times twice that."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.layer.weight)

    def forward(self, x):
        return self.layer(x)

    def loss(self, output, target):
        return 0.75 * output.float().mean()


def _aged(train_amp):
    """Steps that overflowed: after a restart, and where there is none also in one long run."""
    batch = torch.ones(1, 1), torch.ones(1, 1)
    network = _OneWeight()
    optimizer = torch.optim.SGD(network.parameters(), lr=2.0**-20)
    rest = optimizer, "cpu", 1, _LIMIT
    with emulate_gpu():
        first = attempt(train_amp, network, [batch] * _BEFORE, *rest)
        if not _is_triple(first, 3):
            return None
        second = attempt(train_amp, network, [batch] * _AFTER, *rest, first[2])
        if _overflows(first) or _overflows(second):
            return [_overflows(first), _overflows(second)]
        return [[], [], _overflows(attempt(train_amp, network, [batch] * (_GROWTH + 1), *rest))]


def _overflows(end):
    """The steps whose norm is not finite."""
    if not _is_triple(end, 3):
        return []
    return [step for step, norm in enumerate(end[1]) if not math.isfinite(norm)]


def _loop_evidence(got, _, seed):
    want = _ours(seed)
    if got["ran"] and got["ran"] != want["ran"]:
        return fill(TRAINED_IN, got=got["ran"])
    if got["loss"] and got["loss"] != want["loss"]:
        return fill(LOSS_IN, got=got["loss"], ran=got["ran"])
    for name, when in (("whole", "Ten micro-batches"), ("restarted", "After the restart")):
        end, ours = got[name], want[name]
        moved, wanted = got[f"{name} moved"], want[f"{name} moved"]
        if same_end(end, ours) and same_end(moved, wanted):
            continue
        if type(end) is Raised:
            return fill(RAISED, case=when, error=brief(end))
        if not _is_triple(end, 2):
            return fill(THREE_THINGS, when=when, came=end)
        for what, told, right in zip(("losses", "norms"), end, ours, strict=True):
            if not isinstance(told, (list, tuple, torch.Tensor)) or len(told) != len(right):
                count = len(told) if isinstance(told, (list, tuple)) else "no list of"
                return fill(
                    NOT_SO_MANY, when=when, count=count, what=what, wanted=len(right), every=_EVERY
                )
        if name == "restarted":
            what, step, values = _first_difference(end, ours)
            template = OTHER_NUMBER if what else OTHER_WEIGHTS
            return fill(template, when=when, what=what, step=step, **values)
        return _about_whole(got, want)
    return _about_gradients(_times_ours(got, want), want)


def _first_difference(end, ours):
    """("loss" or "norm", step, values) of the first number that is another; (None, 0, {}) of none.

    A step's loss comes before its norm.
    """
    for step in range(len(ours[0])):
        for what, told, right in zip(("loss", "norm"), end, ours, strict=True):
            if not same_end(told[step], right[step]):
                return what, step, {"got": brief(told[step]), "want": brief(right[step])}
    return None, 0, {}


def _about_whole(got, want):
    """The first number that is another, and its cause as far as weights and gradients show it."""
    when, ours = "Ten micro-batches", want["whole"]
    what, step, values = _first_difference(got["whole"], ours)
    if what is None:
        return fill(OTHER_WEIGHTS, when=when)
    values |= {"when": when, "step": step}
    here = step * _EVERY
    if what == "loss" and step and not same_end(got["came"][here:][:1], want["came"][here:][:1]):
        inf_before = not math.isfinite(ours[1][step - 1])
        return fill(STEPPED_ON_INF if inf_before else OTHER_UPDATE, before=step - 1, **values)
    times = _times_ours(got, want)
    cause = f" {_about_gradients(times, want)}" if times and times[0] <= step else ""
    return fill(OTHER_NUMBER, what=what, **values) + cause


def _times_ours(got, want):
    """(step, ratio) of the first gradient at the logits that is not ours; None where all are.

    Up to the first other weights it is the ratio of scale and division to ours.
    """
    pairs = enumerate(zip(got["arrived"], want["arrived"], strict=False))
    other = next(((i, a / b) for i, (a, b) in pairs if not same_end(a, b)), None)
    return other and (other[0] // _EVERY, other[1])


def _small(ratio):
    """A ratio as n or 1/n where it is one; None elsewhere."""
    if not (math.isfinite(ratio) and ratio):
        return None
    near = Fraction(ratio).limit_denominator(2**17)
    is_near = min(near.as_integer_ratio()) == 1 and abs(near / Fraction(ratio) - 1) < NEAR
    return near if is_near else None


def _about_gradients(times, want):
    step, ratio = times
    skipped = sum(not math.isfinite(norm) for norm in want["whole"][1][:step])
    said = _small(ratio) or f"{ratio:.3g}"
    size = min(_EVERY, _MICRO_BATCHES - step * _EVERY)
    return fill(GRADIENTS_TIMES, step=step, ratio=str(said), scale=2.0**16 / 2**skipped, size=size)


def _judge_growth(aged):
    """Whether the scale doubles after 2000 good steps in a row, a restart among them or not."""
    if aged is None or aged == [[], [_GROWTH - _BEFORE]]:
        return
    count = {"first": _BEFORE, "second": _AFTER}
    if aged[:2] == [[], []] and _GROWTH in aged[2]:
        raise Mistake(LOST_COUNT, misconception="resuming-needs-the-scale-alone", **count)
    if aged[:2] == [[], []]:
        raise Mistake(NEVER_GROWS, steps=_GROWTH + 1, search=False)
    said = ", ".join(f"step {step}" for step in aged[1]) or "none"
    raise Mistake(GROWS_ELSEWHERE, want=_GROWTH - _BEFORE, got=said, search=False, **count)


def _steps(end):
    """How many losses a run returned; 0 where it returned none."""
    return len(end[0]) if isinstance(end, list) and isinstance(end[0], (list, tuple)) else 0


def _divided_later(model, batches, optimizer, device, every, limit, state=None):
    """As right as the solution: sums of undivided losses, whose gradients are divided at the end.

    Its gradients are larger until then, so more steps overflow.
    """
    scaler = torch.amp.GradScaler(device)
    scaler.load_state_dict(state or scaler.state_dict())
    losses, norms = [], []
    for first in range(0, len(batches), every):
        group = batches[first : first + every]
        optimizer.zero_grad()
        losses.append(0.0)
        for tokens, next_tokens in group:
            with torch.autocast(device, dtype=torch.float16):
                loss = model.loss(model(tokens), next_tokens)
            scaler.scale(loss).backward()
            losses[-1] += loss.item() / len(group)
        scaler.unscale_(optimizer)
        for parameter in model.parameters():
            parameter.grad /= len(group)
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), limit).item())
        scaler.step(optimizer)
        scaler.update()
    return losses, norms, scaler.state_dict()


def _compared(train_amp, seed):
    """What of a short run must be right; the rest of it only explains."""
    shown = _run_in_short(train_amp, seed)
    return {key: shown[key] for key in shown if key not in ("arrived", "came")}


@functools.lru_cache(KEPT)
def _ours(seed):
    return _run_in_short(solutions.train_amp, seed)


LOOP = Loop(
    _compared,
    solutions.train_amp,
    _loop_evidence,
    lambda shown: [
        shown["ran"],
        shown["loss"],
        shown["first"],
        _steps(shown["whole"]),
        shown["whole moved"],
        shown["restarted moved"],
    ],
)


@check(run_train_amp, seeds=2, own_work=("labkit.training.train",))
def check_train_amp(got, seed):
    """A loop in FP16 that accumulates, clips, logs what is true, and goes on after a restart."""
    if not same_end(got, LOOP.end(_divided_later, seed=seed)):
        LOOP.judge(got, check_train_amp.known_wrong, seed=seed)
    _judge_growth(got["aged"])


_CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), limit)"
_NORM = "torch.stack([p.grad.norm() for p in model.parameters()]).norm()"

check_train_amp.slip(
    "scaler-state-is-disposable",
    "The second run began with a scale of 65536 again. What did the first run know that neither "
    "the weights nor the optimizer hold?",
    cut="scaler.load_state_dict(state)",
)
check_train_amp.slip(
    "clip-before-unscale",
    "You clipped scaled gradients, so the real limit was `limit` divided by the scale. Which call "
    "must come before the clipping?",
    swap=(
        f"scaler.unscale_(optimizer)\n        norms.append({_CLIP}.item())",
        f"norms.append({_CLIP}.item() / scaler.get_scale())",
    ),
)
check_train_amp.slip(
    "reported-norm-is-true",
    "You logged the norm of scaled gradients. Which call must come before you take the norm?",
    swap=(
        f"scaler.unscale_(optimizer)\n        norms.append({_CLIP}.item())",
        f"norms.append({_NORM}.item())\n        scaler.unscale_(optimizer)\n        {_CLIP}",
    ),
)
check_train_amp.slip(
    "norm-after-clipping",
    "You logged the norm after clipping. What does `clip_grad_norm_` return?",
    swap=(f"norms.append({_CLIP}.item())", f"{_CLIP}\n        norms.append({_NORM}.item())"),
)
check_train_amp.slip(
    "scaled-loss-is-the-loss",
    "You logged the loss times the scale. Which tensor holds the true loss?",
    swap=("+= loss.item()", "+= scaler.scale(loss).item()"),
)
check_train_amp.slip(
    "unscale-each-micro-batch",
    "You called `unscale_` for each micro-batch, so the next one adds scaled gradients to unscaled "
    "ones. After which micro-batch does it belong?",
    swap=("scaler.unscale_(optimizer)", "    scaler.unscale_(optimizer)"),
)
check_train_amp.slip(
    "zero-grad-each-micro-batch",
    "Only the gradients of the last micro-batch are left in each step. Where must "
    "`zero_grad` stand?",
    swap=("with torch.autocast", "optimizer.zero_grad()\n            with torch.autocast"),
)
check_train_amp.slip(
    "gradients-reset-themselves",
    "The gradients of the step before were still there and were added. Which call empties them?",
    cut="optimizer.zero_grad()",
)
check_train_amp.slip(
    "sums-need-no-division",
    "`backward` adds the gradients of all micro-batches. By which number must each loss be "
    "divided?",
    cut=" / len(group)",
)
check_train_amp.slip(
    "every-group-has-k",
    "The last group has two micro-batches. By which number must their losses be divided?",
    swap=(" / len(group)", " / every"),
)
check_train_amp.slip(
    "the-tail-may-be-dropped",
    "After the last two micro-batches no step came. When must one come, besides after every "
    "fourth?",
    swap=("range(0, len(batches), every)", "range(0, len(batches) - every + 1, every)"),
)
check_train_amp.slip(
    "the-scale-adjusts-itself",
    "The first step overflows, and so do all others, because the scale stays. Which call lowers "
    "it?",
    cut="scaler.update()",
)
check_train_amp.slip(
    "autocast-alone-trains-fp16",
    "No step was skipped, though at a scale of 65536 the first one overflows. What protects small "
    "gradients in FP16?",
    swap=("GradScaler(device)", "GradScaler(device, enabled=False)"),
)
check_train_amp.slip(
    "loss-belongs-outside-autocast",
    "Outside the autocast block nothing converts the FP16 logits to FP32. Which two calls belong "
    "inside it?",
    swap=(
        "loss = model.loss(model(tokens), next_tokens)",
        "logits = model(tokens)\n            loss = model.loss(logits, next_tokens)",
    ),
)
check_train_amp.slip(
    "resuming-needs-the-scale-alone",
    "Besides its scale, which number does the scaler keep from step to step?",
    swap=(
        "scaler.load_state_dict(state)",
        'scaler = torch.amp.GradScaler(device, init_scale=state["scale"])',
    ),
)
