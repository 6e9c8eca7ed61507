"""Check of lab 05's accumulation: micro-batches end where one large batch ends, token by token."""

import math

import torch
from torch.nn import functional as F

from labkit.emulation import emulate_gpu
from labkit.labs.automatic_mixed_precision import solutions
from labkit.labs.automatic_mixed_precision.checks.shared import outside, samples, small_network
from labkit.labs.engine import Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import HeldPasses, Loop, brief, first_other, flat, same_end
from labkit.labs.engine.messages import fill

LAB = "05_automatic_mixed_precision"

GROUP = "{dtype}, micro-batches with {sizes} counted targets: {said}"
COUNT_OF_LOSSES = "you return {count}; {want} are wanted, one for each step."
LARGE_BATCH = "loss 0 is {got}; one large batch has {want}. {why}"
THE_SCALE = "That is {scale:g} times as much, which is the scale."
TIMES = (
    "That is {times} as much; the group has {parts} micro-batches and {counted} counted targets."
)
ONLY_REPORTED = "The weights are right, so only the losses that you return are wrong."
LOSS_IN_16_BITS = (
    "In FP16 a sum of losses above 65504 is inf. Under autocast cross_entropy runs in float32. "
    "Where does your autocast block end?"
)
NOT_FINITE = "the weights end as inf or NaN, and with a large batch they stay finite."
OTHER_SKIPS = (
    "Your scale ends at {got:g}, and {want:g} is right. Is one step made for each group, and does "
    "`update` follow it?"
)
OFF_LARGE = "the weights' movement differs by {away:.0%} from that with large batches. {why}"
NO_LIST = "a list of {count} losses is wanted."
OTHER_LOSS = "loss {place} is {got}; {want} is wanted."
HELD = (
    "You held the forward passes of {held} sequences at once; there is memory for {most}, one "
    "micro-batch. backward() frees what its forward pass holds. When do you call backward()?"
)

_ROWS, _LENGTH = 4, 4  # sequences of a micro-batch, and positions of each
_SCALE = 2.0**9  # at which sums over the tokens of a group fit FP16 as means do
_IGNORED = -100  # what F.cross_entropy leaves out by default
_CASES = {
    "16 and 16, then 16 and 16": ((16, 16, 16, 16), 2, torch.float16),
    "16, 5 and 9, then 12 and 2": ((16, 5, 9, 12, 2), 3, torch.bfloat16),
    "16, 0 and 3, then 1": ((16, 0, 3, 1), 3, torch.float16),
}


def _padded(seed, counted):
    """Inputs (rows, length, 6), and targets (rows, length) of which ``counted`` count."""
    inputs, targets = samples(seed, _ROWS * _LENGTH)
    targets[counted:] = _IGNORED
    return inputs.unflatten(0, (_ROWS, _LENGTH)), targets.unflatten(0, (_ROWS, _LENGTH))


def _enlarged(network, inputs):
    """A batch with inputs so large that its losses fit FP16, and their sum does not.

    Each target is the class that the network thinks least of: no logit is far above the mean loss.
    """
    with torch.no_grad():
        logits = network(1000 * inputs)
    targets = logits.argmin(-1)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    return 1e7 / loss * inputs, targets


def run_accumulate(accumulate, seed):
    """`accumulate` on even groups, on padded ones in BF16, and with a micro-batch of padding.

    The first weights and the batches come of the seed.
    """
    shown = {}
    with emulate_gpu():
        for name, (counts, k, dtype) in _CASES.items():
            network = small_network(seed)
            optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
            live = dtype is torch.float16
            scaler = torch.amp.GradScaler("cpu", init_scale=_SCALE, enabled=live)
            start, first = flat(network), 80 + 100 * seed
            batches = [_padded(first + i, n) for i, n in enumerate(counts)]
            if name == "16 and 16, then 16 and 16":  # an overflow at first: its inf must not stay
                batches[0] = _enlarged(network, batches[0][0])
            passes = HeldPasses(network)
            losses = attempt(accumulate, network, batches, k, optimizer, scaler, dtype, "cpu")
            shown[name] = losses
            shown[name + " at once"] = passes.most
            shown[name + " met"] = passes.met
            shown[name + " scale"] = scaler.get_scale()
            shown[name + " moved"] = flat(network) - start
    return shown


def _evidence(got, want):
    for name, (_, _, dtype) in _CASES.items():
        if all(same_end(got[name + part], want[name + part]) for part in ("", " moved", " met")):
            continue
        said = _group_evidence(got, want, name)
        asked = {torch.float16: "FP16", torch.bfloat16: "BF16"}[dtype]
        return fill(GROUP, dtype=asked, sizes=name, said=said)
    return "Your run does not end where the right one ends."


def _group_evidence(got, want, name):
    """What is true of the first sizes of micro-batches that end elsewhere."""
    losses, moved, wanted = got[name], got[name + " moved"], want[name + " moved"]
    if type(losses) is Raised:
        return f"{brief(losses)}."
    if isinstance(losses, (list, tuple)) and len(losses) != len(want[name]):
        count = f"{len(losses)} loss{'es' * (len(losses) != 1)}"
        return fill(COUNT_OF_LOSSES, count=count, want=len(want[name]))
    if got[name + " met"] != want[name + " met"]:
        asked = want[name + " met"][0].removeprefix("torch.")
        return outside("the network", got[name + " met"], asked)
    other = first_other(losses, want[name])
    if other and other[0] == 0:
        right = same_end(moved, wanted)
        why = _why_loss(name, other[1], other[2], right)
        return fill(LARGE_BATCH, got=brief(other[1]), want=brief(other[2]), why=why)
    if not moved.isfinite().all():
        return NOT_FINITE
    if not same_end(moved, wanted):
        scales = {"got": got[name + " scale"], "want": want[name + " scale"]}
        why = fill(OTHER_SKIPS, **scales) if scales["got"] != scales["want"] else ""
        return fill(OFF_LARGE, away=(moved - wanted).norm() / wanted.norm(), why=why)
    if other is None:
        return fill(NO_LIST, count=len(want[name]))
    place, a, b = other
    return fill(OTHER_LOSS, place=place, got=brief(a), want=brief(b))


def _why_loss(name, got, want, weights_right):
    """What is true of the first loss, and of nothing that the numbers do not say by themselves."""
    counts, k, dtype = _CASES[name]
    try:
        ratio = float(got) / want
    except (TypeError, ValueError, RuntimeError):
        return ""
    if ratio == math.inf and dtype is torch.float16:
        return LOSS_IN_16_BITS
    if same_end(ratio, _SCALE) and dtype is torch.float16:
        return fill(THE_SCALE, scale=_SCALE)
    sizes = {"parts": k, "counted": sum(counts[:k])}
    said = [ONLY_REPORTED] if weights_right else []
    for factor in sizes.values():
        if same_end(ratio, factor):
            said.append(fill(TIMES, times=f"{factor} times", **sizes))
        elif same_end(ratio, 1 / factor):
            said.append(fill(TIMES, times=f"1/{factor}", **sizes))
    return " ".join(said)


ACCUMULATE = Loop(
    run_accumulate,
    solutions.accumulate,
    _evidence,
    lambda shown: [shown[key] for key in shown if key.endswith("moved")],
)


@check(run_accumulate, seeds=2, own_work=("labkit.training.train",))
def check_accumulate(got, seed):
    """Accumulation that equals the large batch, with padding and an uneven tail."""
    ends = {key: got[key] for key in got if not key.endswith("at once")}
    ACCUMULATE.judge(ends, check_accumulate.known_wrong, seed=seed)
    largest = max(got[key] for key in got if key.endswith("at once"))
    if largest > _ROWS:
        raise Mistake(HELD, held=largest, most=_ROWS)


_SHARE = 'targets.flatten(), reduction="sum") / count'

check_accumulate.slip(
    "sums-need-no-division",
    "`backward` adds gradients up. By what must each sum be divided for the total to be a mean?",
    cut=" / count",
)
check_accumulate.slip(
    "mean-of-means",
    "You averaged the micro-batches' means. Should a token of a padded micro-batch count more than "
    "a token of a full one?",
    swap=(_SHARE, "targets.flatten()) / len(group)"),
)
check_accumulate.slip(
    "every-group-has-k",
    "You averaged the micro-batches' means, and divided by k although the last group has fewer. By "
    "which number must you divide for all tokens of a group to count the same?",
    swap=(_SHARE, "targets.flatten()) / k"),
)
check_accumulate.slip(
    "padding-counts-as-tokens",
    "You divide by the number of all positions. Over which positions does cross_entropy sum?",
    swap=("(targets != -100).sum()", "targets.numel()"),
)
check_accumulate.slip(
    "an-empty-mean-is-zero",
    "One micro-batch has no counted target. What is the mean of no losses, and what is that mean "
    "times 0?",
    swap=(_SHARE, "targets.flatten()) * (targets != -100).sum() / count"),
)
check_accumulate.slip(
    "the-tail-may-be-dropped",
    "No step followed the last batches. After which batch must a step come, besides every k-th?",
    swap=("range(0, len(batches), k)", "range(0, len(batches) - k + 1, k)"),
)
check_accumulate.slip(
    "gradients-reset-themselves",
    "The first group overflowed, and its inf is still in .grad. When are the gradients emptied?",
    cut="optimizer.zero_grad()",
)
check_accumulate.slip(
    "zero-grad-each-micro-batch",
    "Only the gradients of a group's last micro-batch are left. When must .grad be emptied?",
    swap=(
        "for inputs, targets in group:",
        "for inputs, targets in group:\n            optimizer.zero_grad()",
    ),
)
check_accumulate.slip(
    "unscale-each-micro-batch",
    "Call `unscale_` at most once, before the step. To what would the next micro-batch add its "
    "scaled gradient?",
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
