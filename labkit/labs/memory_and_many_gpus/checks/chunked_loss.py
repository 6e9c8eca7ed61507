"""Check of lab 07: a mean cross-entropy that never holds the logits of all rows."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from labkit.labs.engine import AnswerError, Mistake, attempt, check, tensor
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import brief, seeded
from labkit.labs.engine.messages import came, fill
from labkit.labs.engine.reading import failure
from labkit.measuring.live_bytes import LiveBytes

LAB = "07_memory_and_many_gpus"

RAISED = "{name}: your chunked_loss raised {error}."
NO_TENSOR = "{name}: your chunked_loss returns {came}; a scalar tensor is asked for."
NO_SCALAR = "{name}: your loss has shape {got}; a scalar is asked for."
OTHER_DTYPE = (
    "{name}: your loss has dtype {got}; float32 is asked for. Between 8 and 16, BF16 has steps of "
    "1/16. In which dtype do you add?"
)
OTHER_LOSS = "{name}: the loss is {got}; {want} is wanted. {why}"
HALFWAY = (
    "The losses of FP32 heads are right. Here the loss of each row is near ln 1014 = 6.9217, which "
    "lies between the BF16 values 6.90625 and 6.9375. In which dtype do cross_entropy and your sum "
    "run?"
)
ONLY_IF = "All your losses come out if {what}."
NO_GRADIENT = (
    "{name}: the loss is right, and no gradient can flow from it: it has no graph. Which of your "
    "lines cuts it from head and hidden?"
)
CALLED_BACKWARD = (
    "{name}: the loss is right, but your function has called backward itself, and what it returns "
    "has no graph. The caller calls backward, once."
)
RAISED_LATER = "{name}: the loss is right, and its backward raised {error}. {why}"
REENTRANT = (
    "Here `hidden` needs no gradient, only head does. With `use_reentrant=True`, checkpoint asks "
    "whether an *input* needs one."
)
OTHER_CHUNK = (
    "Backward runs your function again, after the loop has ended. Which chunk do its variables "
    "name by then?"
)
OTHER_GRADIENT = "{name}: the loss is right. The gradient of {what} {said}. {why}"
MISSING = "is missing: its grad is None"
UNASKED = "is there, although {what} needs none"
AWAY = "differs from the right one by {away:.0%} of its norm"
NOT_ZERO = "is 0 in the right answer, and not in yours"
TIMES = "It is {times} times the right one."
TOO_MUCH = (
    "{name}: loss and gradients are right, but {most:.1f} chunks of float32 logits are alive at "
    "the peak; at most {allowed:d} are allowed. After forward it is {kept:.1f}. {why}"
)
WHOLE = "You call head on up to {largest:d} rows at once; `rows` is {rows:d}."
KEPT = (
    "For backward, autograd still holds tensors as large as the logits of all {chunks:d} chunks. "
    "Which of your operators run outside `checkpoint`?"
)
NEVER_AGAIN = "Backward did not call head again, so no chunk had been forgotten."
AGAIN = (
    "Backward calls head again, so its logits were forgotten, but something as large is kept of "
    "each of the {chunks:d} chunks."
)
TOGETHER = (
    "Forward forgets, and backward then computes all {chunks:d} chunks before it frees one. How "
    "much does one call of `checkpoint` cover?"
)

_IN_BF16 = "a BF16 head, 500 rows in chunks of 32"
_ALLOWED = 8  # chunks of float32 logits; cross_entropy and its backward need about four
_NAMES = {
    # rows, classes, width, rows of a chunk, dtype
    "the example": (4, 2, 2, 2, torch.float32),
    "1,000 rows in chunks of 64, 300 of them not counted": (1000, 2048, 32, 64, torch.float32),
    _IN_BF16: (500, 1014, 16, 32, torch.bfloat16),
    "a head with a bias, hidden needs no gradient": (345, 512, 16, 30, torch.float32),
    "400 rows in chunks of 8": (400, 2048, 8, 8, torch.float32),
    "40 rows, in chunks of up to 64": (40, 64, 16, 64, torch.float32),
}


def _has_bias(name):
    return name == "the example" or "bias" in name


def _case(name, seed):
    """The head, hidden, targets and rows; hidden needs a gradient or none."""
    count, classes, width, rows, dtype = _NAMES[name]
    draw = 100 * seed + list(_NAMES).index(name)
    head = nn.Linear(width, classes, bias=_has_bias(name))
    # ln 1014 lies halfway between two BF16 values: with small logits each loss does.
    scale = 0.0005 if dtype is torch.bfloat16 else 0.0 if name == "the example" else 0.5
    with torch.no_grad():
        for place, parameter in enumerate(head.parameters()):
            parameter.copy_(seeded(10 * draw + place, *parameter.shape, scale=scale))
    hidden = seeded(10 * draw + 5, count, width).to(dtype)
    hidden.requires_grad_("needs no" not in name)
    if name == "the example":
        with torch.no_grad():
            head.bias[0] = math.log(3)
        return head, hidden, torch.tensor([0, -100, 1, 1]), rows
    noise = torch.Generator().manual_seed(draw)
    targets = torch.randint(classes, (count,), generator=noise)
    targets[torch.rand(count, generator=noise) < 0.1] = -100
    if "bias" in name:  # a shorter chunk of large losses at the end
        with torch.no_grad():
            targets[-(count % rows) :] = head(hidden[-(count % rows) :]).argmin(dim=-1)
    if "300" in name:
        targets[:300] = -100
    return head.to(dtype), hidden, targets, rows


def run_chunked_loss(chunked_loss, seed):
    """Of each case: the loss, the gradients, and the bytes alive."""
    return {name: attempt(_used, chunked_loss, name, seed) for name in _NAMES}


def _used(chunked_loss, name, seed):
    head, hidden, targets, rows = _case(name, seed)
    sizes = [0]
    head.register_forward_pre_hook(lambda module, args: sizes.append(len(args[0])))
    with LiveBytes().hold(head, hidden, targets) as card:
        before = card.now
        loss = chunked_loss(head, hidden, targets, rows)
        kept, early, backward = card.now - before, head.weight.grad is not None, None
        forward = len(sizes)
        if isinstance(loss, torch.Tensor) and loss.requires_grad and loss.numel() == 1:
            backward = attempt(loss.sum().backward)
    return {
        "loss": loss,
        "backward": backward if type(backward) is Raised else None,
        "gradients": [p.grad for p in (*head.parameters(), hidden)],
        "peak": card.peak - before,
        "kept": kept,
        "early": early,
        "largest": max(sizes),
        "calls": [forward - 1, len(sizes) - forward],
    }


@check(
    run_chunked_loss,
    own_work=(
        "torch.nn.functional.linear_cross_entropy",
        "torch.nn.LinearCrossEntropyLoss",
    ),
)
def check_chunked_loss(seen, seed):
    """A loss whose logits are alive for a few rows at a time."""
    losses = {name: _read(name, seen[name]) for name in _NAMES}
    for name in _NAMES:
        want = _whole(name, seed)[0]
        if not abs(losses[name] - want) <= _room(name) * want:
            why, idea = _explained(losses, seed)
            said = {"name": name, "got": losses[name], "want": want}
            raise Mistake(OTHER_LOSS, misconception=idea, search=idea is None, why=why, **said)
    for name in _NAMES:
        _judge_gradients(name, seen[name], seed)
    for name in _NAMES:
        _judge_memory(name, seen[name], seed)


def _read(name, used):
    """The loss of one case as a number."""
    if type(used) is Raised:
        raise AnswerError(RAISED, name=name, error=failure(used))
    loss = used["loss"]
    if isinstance(loss, (int, float)):
        return float(loss)
    if not isinstance(loss, torch.Tensor):
        raise Mistake(NO_TENSOR, name=name, came=came(loss))
    if loss.numel() != 1:
        raise Mistake(NO_SCALAR, name=name, got=tuple(loss.shape))
    if loss.dtype not in (torch.float32, torch.float64):
        raise Mistake(OTHER_DTYPE, name=name, got=str(loss.dtype))
    return loss.item()


def _room(name):
    """What rounding may take of a loss: sums in float32, or logits in BF16."""
    return 2.0**-11 if _NAMES[name][-1] is torch.bfloat16 else 2.0**-14


def _whole(name, seed):
    """The loss and the gradients of all rows at once, in float64."""
    head, hidden, targets, _ = _case(name, seed)
    head, wide = head.double(), hidden.detach().double().requires_grad_(hidden.requires_grad)
    loss = F.cross_entropy(head(wide), targets)
    loss.backward()
    return loss.item(), [p.grad for p in (*head.parameters(), wide)]


def _judge_gradients(name, used, seed):
    gradients, wanted = used["gradients"], _whole(name, seed)[1]
    tensors = ["head.weight", *(["head.bias"] if _has_bias(name) else []), "hidden"]
    if type(used["backward"]) is Raised:
        raise _later(name, used["backward"])
    if gradients[0] is None and not used["early"]:
        raise Mistake(NO_GRADIENT, name=name)
    loss = used["loss"]
    if not isinstance(loss, torch.Tensor) or used["early"]:
        raise Mistake(CALLED_BACKWARD if used["early"] else NO_GRADIENT, name=name)
    for what, got, want in zip(tensors, gradients, wanted, strict=True):
        say = {"name": name, "what": what}
        if (got is None) != (want is None):
            said = MISSING if got is None else fill(UNASKED, what=what)
            raise Mistake(OTHER_GRADIENT, said=said, why="", **say)
        if want is None:
            continue
        got = tensor(got, call=f"the gradient of {what}", shape=want.shape).double()
        away, size = (got - want).norm().item(), want.norm().item()
        # In BF16 each chunk's gradient is rounded, and each partial sum.
        room = 2.0**-6 if _NAMES[name][-1] is torch.bfloat16 else 1e-5
        if not away <= room * size:
            why, idea = _why_gradient(name, gradients, got, want, seed)
            raise Mistake(
                OTHER_GRADIENT,
                misconception=idea,
                search=idea is None,
                said=fill(AWAY, away=away / size) if size else NOT_ZERO,
                why=why,
                **say,
            )


def _later(name, failed):
    """What to say of a backward that raised."""
    if "does not require grad" in failed.message:
        why, idea = REENTRANT, "reentrant-is-a-detail"
    elif "metadata" in failed.message or "does not match" in failed.message:
        why, idea = OTHER_CHUNK, "a-closure-copies-its-names"
    else:
        return AnswerError(RAISED_LATER, name=name, error=failure(failed), why="")
    said = {"name": name, "error": brief(failed)}
    return Mistake(RAISED_LATER, misconception=idea, search=False, why=why, **said)


def _why_gradient(name, gradients, got, want, seed):
    """(sentence, idea) about a gradient that differs."""
    rows, hidden = _NAMES[name][3], gradients[-1]
    if hidden is not None and hidden.shape == _case(name, seed)[1].shape:
        last = len(hidden) - (len(hidden) % rows or rows)
        if last and not hidden[:last].any() and hidden[last:].any():
            return OTHER_CHUNK, "a-closure-copies-its-names"
    times = ((got * want).sum() / (want * want).sum()).item()
    if torch.allclose(got, times * want, rtol=1e-3, atol=1e-3 * want.abs().max().item()):
        return fill(TIMES, times=times), None
    return "", None


def _judge_memory(name, used, seed):
    if name == "the example":
        return
    count, classes, _, rows, _ = _NAMES[name]
    chunk = 4 * min(rows, count) * classes
    head, hidden, *_ = _case(name, seed)
    gradients = sum(p.nbytes for p in (*head.parameters(), hidden))
    most, kept = (used["peak"] - gradients) / chunk, used["kept"] / chunk
    if most <= _ALLOWED:
        return
    said = {"name": name, "most": most, "kept": kept, "allowed": _ALLOWED}
    chunks, (forward, again) = -(-count // rows), used["calls"]
    idea = None
    if used["largest"] > rows:
        why = fill(WHOLE, largest=used["largest"], rows=rows)
    elif kept < most / 2:
        why = fill(TOGETHER, chunks=chunks)
    elif not forward:  # what the hook on head does not see
        why = fill(KEPT, chunks=chunks)
    elif again:
        why, idea = fill(AGAIN, chunks=chunks), "only-the-matmul-fills-memory"
    else:
        why, idea = NEVER_AGAIN, "a-loop-frees-each-chunk"
    raise Mistake(TOO_MUCH, misconception=idea, search=idea is None, why=why, **said)


def _explained(losses, seed):
    """(sentence, idea) of the mistake that gives all these losses."""
    wants = {name: _whole(name, seed)[0] for name in _NAMES}
    others = [name for name in _NAMES if not _same(losses[name], wants[name], _room(name))]
    if others == [_IN_BF16] and _same(losses[_IN_BF16], wants[_IN_BF16], 2.0**-5):
        return HALFWAY, "a-16-bit-loss-will-do"
    for what, (other, idea) in _MISTAKES.items():
        made = {name: other(_Sums(name, seed)) for name in _NAMES}
        if all(_same(losses[name], made[name], 4 * _room(name)) for name in _NAMES):
            return fill(ONLY_IF, what=what), idea
    return "", None


def _same(got, want, room):
    return (math.isnan(got) and math.isnan(want)) or abs(got - want) <= room * abs(want)


class _Sums:
    """Of one case, by chunk: the sum of losses, counted rows and all rows; in float64."""

    def __init__(self, name, seed):
        head, hidden, targets, rows = _case(name, seed)
        with torch.no_grad():
            self.logits = head.double()(hidden.double())
        self.head, self.targets = head, targets
        each = F.cross_entropy(self.logits, targets, reduction="none").split(rows)
        self.sums = torch.stack([chunk.sum() for chunk in each])
        self.counted = torch.stack([(t != -100).sum() for t in targets.split(rows)]).double()
        self.sizes = torch.tensor([float(len(chunk)) for chunk in each])
        self.whole = self.sizes == rows

    def of(self, summed, counted):
        """The sum over some chunks divided by the counted rows of some."""
        return (self.sums[summed].sum() / self.counted[counted].sum()).item()

    def without_bias(self):
        bias = 0 if self.head.bias is None else self.head.bias.detach()
        return F.cross_entropy(self.logits - bias, self.targets).item()


_MISTAKES = {
    "the sum is divided by all rows": (
        lambda s: (s.sums.sum() / s.sizes.sum()).item(), "padding-counts-as-tokens"
    ),
    "the chunks' means are averaged. A chunk in which no target counts has the mean 0 / 0": (
        lambda s: (s.sums / s.counted).mean().item(), "mean-of-means"
    ),
    "each chunk's mean is weighted by its rows. The mean of a chunk in which no target counts is "
    "0 / 0, and 0 / 0 stays NaN whatever its weight": (
        lambda s: (s.sums / s.counted * s.sizes).sum().div(s.sizes.sum()).item(),
        "an-empty-mean-is-zero",
    ),
    "each chunk's mean is multiplied by its counted rows again. The mean of a chunk in which no "
    "target counts is 0 / 0, and NaN times 0 is NaN": (
        lambda s: (s.sums / s.counted * s.counted).sum().div(s.counted.sum()).item(),
        "an-empty-mean-is-zero",
    ),
    "the chunks' means are averaged, with 0 for a chunk in which no target counts": (
        lambda s: (s.sums / s.counted.clamp(min=1)).mean().item(), "mean-of-means"
    ),
    "the chunks' means are averaged, without those in which no target counts": (
        lambda s: (s.sums / s.counted)[s.counted > 0].mean().item(), "mean-of-means"
    ),
    "the means of chunks are weighted by all their rows, counted or not": (
        lambda s: (s.sums / s.counted.clamp(min=1) * s.sizes).sum().div(s.sizes.sum()).item(), None
    ),
    "the sum is divided by nothing": (
        lambda s: s.sums.sum().item(), "sums-need-no-division"
    ),
    "the sum is divided by the number of chunks": (
        lambda s: s.sums.mean().item(), None
    ),
    "the chunks' means are added up": (
        lambda s: (s.sums / s.counted).sum().item(), "sums-need-no-division"
    ),
    "only the last chunk counts": (
        lambda s: (s.sums[-1] / s.counted[-1]).item(), None
    ),
    "only the last chunk's sum is left, divided by all counted rows": (
        lambda s: (s.sums[-1] / s.counted.sum()).item(), None
    ),
    "the rows after the last whole chunk are left out": (
        lambda s: s.of(s.whole, s.whole), None
    ),
    "the losses of rows after the last whole chunk are left out, and the rows are counted": (
        lambda s: s.of(s.whole, s.sizes > 0), None
    ),
    "head's bias is left out": (
        lambda s: s.without_bias(), None
    ),
}  # fmt: skip


check_chunked_loss.slip(
    "a-loop-frees-each-chunk",
    "Leaving a chunk does not free what backward needs of it. Which call keeps only its inputs?",
    swap=("checkpoint(part, h, t, use_reentrant=False)", "part(h, t)"),
)
check_chunked_loss.slip(
    "chunks-of-logits-are-small",
    "Your chunks are cut from logits that exist already. Where must head be called?",
    swap=(
        "    def part(h, t):\n",
        "    hidden = head(hidden)\n    head = torch.nn.Identity()\n\n    def part(h, t):\n",
    ),
)
check_chunked_loss.slip(
    "only-the-matmul-fills-memory",
    "cross_entropy keeps its log-softmax, which is as large as the logits. What belongs inside "
    "the checkpoint?",
    swap=(
        "checkpoint(part, h, t, use_reentrant=False)",
        "F.cross_entropy(\n            checkpoint(head, h, use_reentrant=False).float(), t, "
        'reduction="sum"\n        )',
    ),
)
check_chunked_loss.slip(
    "an-empty-mean-is-zero",
    "A sum over no rows is 0, a mean over no rows is 0 / 0. Which of the two can you add up?",
    swap=(
        'F.cross_entropy(head(h).float(), t, reduction="sum")',
        "F.cross_entropy(head(h).float(), t) * (t != -100).sum()",
    ),
)
check_chunked_loss.slip(
    "padding-counts-as-tokens",
    "cross_entropy leaves out targets of -100. By which number do you divide?",
    swap=("(targets != -100).sum()", "len(targets)"),
)
check_chunked_loss.slip(
    "sums-need-no-division",
    "You return a sum. The mean over which rows is asked for?",
    cut=" / (targets != -100).sum()",
)
check_chunked_loss.slip(
    "a-16-bit-loss-will-do",
    "The exercise asks for float32 logits in cross_entropy.",
    swap=("head(h).float()", "head(h)"),
)
check_chunked_loss.slip(
    "reentrant-is-a-detail",
    "Which value of `use_reentrant` lets head's weights get a gradient from any input?",
    swap=("use_reentrant=False", "use_reentrant=True"),
)
check_chunked_loss.slip(
    "a-closure-copies-its-names",
    "A lambda reads `h` and `t` when it runs, not when it is made. How does `checkpoint` take the "
    "inputs of a chunk?",
    swap=(
        "checkpoint(part, h, t, use_reentrant=False)",
        "checkpoint(lambda: part(h, t), use_reentrant=False)",
    ),
)


@check_chunked_loss.wrong(
    "mean-of-means",
    "Chunks have different numbers of rows that count. What can be added up before you divide?",
)
def chunked_loss(head, hidden, targets, rows):
    """The mean of the chunks' means."""

    def part(h, t):
        return F.cross_entropy(head(h).float(), t)

    chunks = zip(hidden.split(rows), targets.split(rows), strict=True)
    return torch.stack([checkpoint(part, h, t, use_reentrant=False) for h, t in chunks]).mean()
