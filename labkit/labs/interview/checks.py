"""Checks of lab 16's capstone: a GPT written for float32, and its loop, ported to FP16.

Both are judged by where they end, under ``emulate_gpu()``; see ``labkit.labs.engine.loop_ends``.
"""

import torch

from labkit.emulation import emulate_gpu
from labkit.formats.dtypes import name_of
from labkit.labs.engine import attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import Loop, brief, filled, first_other, flat, same_end
from labkit.labs.interview import solutions
from labkit.training.models import HandmadeGPT

LAB = "16_interview"

_VOCABULARY, _CONTEXT = 11, 8


def _tokens(seed, *shape):
    return torch.randint(_VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


# The model

_CASES = (
    "float32",
    "float32, tiny weights",
    "FP16",
    "FP16, queries near 1000",
    "FP16, far logits",
    "FP16, a token of zeros",
)
_LINEAR = ("query_key_value", "attention_out", "feed_forward.0", "feed_forward.2", "head")


def _prepared(network, case):
    """Weights of its own for a case: tiny, large queries, far logits, or a first token of zeros."""
    filled(network, 3)
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


def run_gpt16(gpt16):
    """Logits, loss and gradients of the port in float32 and under FP16 autocast."""
    shown = {}
    tokens = _tokens(1, 2, 6)
    tokens[0, 0] = 0
    targets = _tokens(2, 2, 6)
    with emulate_gpu():
        for case in _CASES:
            shown[case] = attempt(_one_pass, gpt16, case, tokens, targets)
    return shown


def _one_pass(gpt16, case, tokens, targets):
    network = _prepared(gpt16(_VOCABULARY, _CONTEXT), case)
    met = set()
    for name in _LINEAR:
        network.get_submodule(name).register_forward_hook(
            lambda module, inputs, output, name=name: met.add(f"{name} {name_of(output.dtype)}")
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
        "met": [f"the loss {name_of(loss.dtype)}", *sorted(met)],
    }


def _model_evidence(got, want):
    for case in _CASES:
        end, ours = got[case], want[case]
        if same_end(end, ours):
            continue
        if type(end) is Raised:
            return f"{case}: {brief(end)}."
        if not torch.isfinite(end["logits"]).all():
            return f"{case}: the logits are not finite."
        if end["met"] != ours["met"]:
            others = sorted(set(end["met"]) - set(ours["met"]))
            other = others[0] if others else "not every layer of the model"
            return f"{case}: {other} was met."
        if not same_end(end["logits"], ours["logits"]):
            away = (end["logits"] - ours["logits"]).norm() / ours["logits"].norm()
            return f"{case}: the logits are {100 * away:.0f} % off those of HandmadeGPT."
        if not same_end(end["loss"], ours["loss"]):
            return f"{case}: the loss is {brief(end['loss'])}; {brief(ours['loss'])} is wanted."
        return f"{case}: logits and loss are right, the gradients are not."
    return "The ends differ."


MODEL = Loop(
    run_gpt16,
    solutions.GPT16,
    _model_evidence,
    lambda shown: [end if type(end) is Raised else end["gradients"] for end in shown.values()],
)


@check(run_gpt16)
def check_gpt16(got):
    """The same model in float32, and one that FP16 autocast does not break."""
    MODEL.judge(got, check_gpt16.known_wrong)


check_gpt16.slip(
    "mask-constant-overflows",
    "FP16 ends at 65504. What masks in any format?",
    swap=("-math.inf", "-1e9"),
)
check_gpt16.slip(
    "unlisted-ops-run-in-fp32",
    "A product of two FP16 tensors stays FP16: above 255 a square overflows, and 1e-8 is 0. Which "
    "lines does no list of autocast hold?",
    cut="x = x.float()",
)
check_gpt16.slip(
    "upcast-too-late",
    "The square was infinite before your conversion. Which value must be float32 first?",
    swap=(
        "x = x.float()\n        return x * torch.rsqrt((x * x).mean",
        "return x * torch.rsqrt((x * x).float().mean",
    ),
)
check_gpt16.slip(
    "eps-fits-every-format",
    "The smallest FP16 value is 6e-8. What is 1e-8 there, and what is 0 times inf?",
    swap=("x = x.float()", "x = x / 256"),
)
check_gpt16.slip(
    "a-larger-eps-costs-nothing",
    "In float32 the logits changed: eps is part of the model. What else keeps 1e-8 from vanishing?",
    swap=("1e-8", "1e-2"),
)
check_gpt16.slip(
    "a-clamp-repairs-an-overflow",
    "Clamped queries are other queries. Which dtype holds the true ones?",
    swap=(
        "x = x.float()\n        return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True)",
        "x = x.clamp(-240, 240)\n"
        "        return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True).float()",
    ),
)
check_gpt16.slip(
    "masked-means-score-zero",
    "exp(0) is 1: the future is read. Which score has weight 0?",
    swap=("scores.masked_fill(future, -math.inf)", "(scores * ~future)"),
)
check_gpt16.slip(
    "any-negative-number-masks",
    "exp(-10) is small and not 0. Which score has weight 0?",
    swap=("-math.inf", "-10.0"),
)


@check_gpt16.wrong(
    "every-activation-needs-fp32", "Nothing runs in 16 bits any more. Which products may?"
)
class AutocastOff(solutions.GPT16):
    """The port with autocast switched off inside."""

    def forward(self, tokens):
        with torch.autocast(tokens.device.type, enabled=False):
            return super().forward(tokens)


# The loop

_EVERY, _LIMIT = 4, 1.0


class _Wide(HandmadeGPT):
    """A model that trains in FP16: what FP16 breaks is float32, the five layers are not."""

    def norm(self, x):
        return super().norm(x.float())

    def attend(self, query, key, value):
        with torch.autocast(value.device.type, enabled=False):
            return super().attend(query.float(), key.float(), value.float())


def _trained(seed=5):
    network = filled(_Wide(_VOCABULARY, _CONTEXT), seed)
    with torch.no_grad():
        network.head.weight *= 3  # so steep that 65536 overflows, and 32768 does not
    return network


def _optimizer(network):
    return torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)


def run_train_amp(train_amp):
    """Ten micro-batches at one go, then again with a restart after the first step.

    ``ran`` is the dtype of the logits, ``first`` the largest gradient that the first of them got.
    """
    batches = [(_tokens(30 + i, 1, 5), _tokens(60 + i, 1, 5)) for i in range(10)]
    shown = {"ran": "", "first": 0.0}

    def seen(module, inputs, output):
        if output.requires_grad and not shown["ran"]:
            shown["ran"] = name_of(output.dtype)
            output.register_hook(lambda g: shown.update(first=g.float().abs().max().item()))

    with emulate_gpu():
        network = _trained()
        network.register_forward_hook(seen)
        start, optimizer = flat(network), _optimizer(network)
        rest = network, batches, optimizer, "cpu", _EVERY, _LIMIT
        shown["whole"] = _without_state(attempt(train_amp, *rest))
        shown["whole moved"] = flat(network) - start
        shown["restarted"], shown["restarted moved"] = _restarted(train_amp, batches)
    return shown


def _restarted(train_amp, batches):
    network = _trained()
    optimizer = _optimizer(network)
    first = attempt(train_amp, network, batches[:_EVERY], optimizer, "cpu", _EVERY, _LIMIT)
    if type(first) is Raised or not isinstance(first, (tuple, list)) or len(first) != 3:
        return first if type(first) is Raised else None, torch.zeros(0)
    fresh = _trained(seed=6)
    fresh.load_state_dict(network.state_dict())
    again, start = _optimizer(fresh), flat(fresh)
    again.load_state_dict(optimizer.state_dict())
    rest = fresh, batches[_EVERY:], again, "cpu", _EVERY, _LIMIT, first[2]
    end = _without_state(attempt(train_amp, *rest))
    return end, flat(fresh) - start


def _without_state(end):
    """Losses and norms; the state is anything that the answer itself can read."""
    if isinstance(end, (tuple, list)) and len(end) == 3:
        return [end[0], end[1]]
    return end if type(end) is Raised else None


def _loop_evidence(got, want):
    if got["ran"] and got["ran"] != want["ran"]:
        return f"The network trained in {got['ran']}; FP16 is asked for."
    for name, where in (("whole", "Ten micro-batches"), ("restarted", "After the restart")):
        end, ours = got[name], want[name]
        moved, wanted = got[f"{name} moved"], want[f"{name} moved"]
        if same_end(end, ours) and same_end(moved, wanted):
            continue
        if type(end) is Raised:
            return f"{where}: {brief(end)}."
        if end is None:
            return "Three things are wanted: losses, norms, and a state to go on from."
        if not isinstance(end[0], (list, tuple)) or len(end[0]) != len(ours[0]):
            return f"{where}: {len(ours[0])} losses are wanted, one a step of {_EVERY}."
        if not isinstance(end[1], (list, tuple)) or len(end[1]) != len(ours[1]):
            return f"{where}: {len(ours[1])} norms are wanted, inf for a step that overflowed."
        for what, told, right in zip(("loss", "norm"), end, ours, strict=True):
            other = first_other(told, right)
            if other:
                place, a, b = other
                scale = 65536 * got["first"] / want["first"]
                hint = "" if abs(scale / 65536 - 1) < 0.1 else f" (first scale {scale:.0f})"
                told = f"the {what} of step {place} is {brief(a)}; {brief(b)} is wanted"
                return f"{where}{hint}: {told}."
        return f"{where}: losses and norms are right, the weights end elsewhere."
    return "The ends differ."


def _steps(end):
    """How many losses a run returned; 0 where it returned none."""
    return len(end[0]) if isinstance(end, list) and isinstance(end[0], (list, tuple)) else 0


LOOP = Loop(
    run_train_amp,
    solutions.train_amp,
    _loop_evidence,
    lambda shown: [
        shown["ran"],
        _steps(shown["whole"]),
        shown["whole moved"],
        shown["restarted moved"],
    ],
)


@check(run_train_amp)
def check_train_amp(got):
    """A loop in FP16 that accumulates, clips, logs what is true, and goes on after a restart."""
    LOOP.judge(got, check_train_amp.known_wrong)


_CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), limit)"
_NORM = "torch.stack([p.grad.norm() for p in model.parameters()]).norm()"

check_train_amp.slip(
    "scaler-state-is-disposable",
    "The second run began with a scale of 65536 again. What did the first run know that the "
    "weights do not hold?",
    cut="scaler.load_state_dict(state)",
)
check_train_amp.slip(
    "clip-before-unscale",
    "You clipped scaled gradients: the real limit is 1/65536. What must come before?",
    swap=(
        f"scaler.unscale_(optimizer)\n        norms.append({_CLIP}.item())",
        f"norms.append({_CLIP}.item() / scaler.get_scale())",
    ),
)
check_train_amp.slip(
    "reported-norm-is-true",
    "That norm holds the scale. When is it taken?",
    swap=(
        f"scaler.unscale_(optimizer)\n        norms.append({_CLIP}.item())",
        f"norms.append({_NORM}.item())\n        scaler.unscale_(optimizer)\n        {_CLIP}",
    ),
)
check_train_amp.slip(
    "norm-after-clipping",
    "That is the norm after clipping. What does clip_grad_norm_ return?",
    swap=(f"norms.append({_CLIP}.item())", f"{_CLIP}\n        norms.append({_NORM}.item())"),
)
check_train_amp.slip(
    "scaled-loss-is-the-loss",
    "That is the loss times the scale. Which one is logged?",
    swap=("+= loss.item()", "+= scaler.scale(loss).item()"),
)
check_train_amp.slip(
    "unscale-each-micro-batch",
    "`unscale_` belongs once before a step. What would a scaled gradient be added to?",
    swap=("scaler.unscale_(optimizer)", "    scaler.unscale_(optimizer)"),
)
check_train_amp.slip(
    "zero-grad-each-micro-batch",
    "Only the last micro-batch is left. When are the gradients emptied?",
    swap=("with torch.autocast", "optimizer.zero_grad()\n            with torch.autocast"),
)
check_train_amp.slip(
    "gradients-reset-themselves",
    "Gradients of the step before are still there. Which line empties them?",
    cut="optimizer.zero_grad()",
)
check_train_amp.slip(
    "sums-need-no-division",
    "`backward` adds up. By what is each loss divided?",
    cut=" / len(group)",
)
check_train_amp.slip(
    "every-group-has-k",
    "The last group has two micro-batches. By what is divided there?",
    swap=(" / len(group)", " / every"),
)
check_train_amp.slip(
    "the-tail-may-be-dropped",
    "The last two micro-batches met no step. When does one come, besides every fourth?",
    swap=("range(0, len(batches), every)", "range(0, len(batches) - every + 1, every)"),
)
check_train_amp.slip(
    "the-scale-adjusts-itself",
    "The first step overflows and so do all others. Which call lowers the scale?",
    cut="scaler.update()",
)
check_train_amp.slip(
    "autocast-alone-trains-fp16",
    "No step was skipped, though at a scale of 65536 the first one overflows. What protects small "
    "gradients in FP16?",
    swap=("GradScaler(device)", "GradScaler(device, enabled=False)"),
)
