"""Check of lab 07: one optimizer step that halves its micro-batch until it fits the card."""

import itertools
import sys

import torch
import torch.nn.functional as F
from torch import nn

from labkit.labs.engine import Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import NEAR, Loop, filled, flat, labels, same_end, seeded
from labkit.labs.engine.messages import came, fill
from labkit.labs.memory_and_many_gpus import solutions
from labkit.measuring.live_bytes import LiveBytes

LAB = "07_memory_and_many_gpus"

OUTCOME = "{name}: your survive {got}; it should have {want}. {why}"
HOLDS = "{name}: the step is right, and your survive holds memory that it does not need. {why}"
STILL_HELD = (
    "When its try of {rows:d} rows began, {now:,d} bytes were in use on a card of {limit:,d}, and "
    "model, data and gradients take {base:,d}. What still held the tensors of the failed try?"
)
HELD_WITHIN = (
    "In its try of {rows:d} rows, {now:,d} bytes were in use when a later micro-batch began, on a "
    "card of {limit:,d}, and model, data and gradients take {base:,d}. Which call frees what a "
    "micro-batch holds, before the next one runs?"
)
NEXT_TRY = "After {rows:d} rows you tried {got:d}. Half of {rows:d}, rounded up, is {half:d}."
FIRST_TRY = "Your first try had {rows:d} rows; the first try is the whole batch."
PIECES = "That is the number of micro-batches."
NO_OTHER = "After the try of {rows:d} rows came no other. Which exception does your code catch?"
LATER = (
    "Here the first 29 rows go through, and then the backward of the others fails once. Is each of "
    "your micro-batches inside a `try`?"
)
MUST_RAISE = "The caller must learn that there was no step: let this error pass."
OTHER_ERROR = "This error has nothing to do with memory, and no number of rows helps."
MOVED = "{name}: there was no step, and your survive has moved the weights."
NO_STEP = "{name}: the weights have not moved. Where does your optimizer step?"
OFF = (
    "{name}: the weights' movement differs from that of one large batch by {away:.2g} of its "
    "length. {why}"
)
TIMES = "It is {times} times as long."
STEPS = "Your optimizer has stepped {steps:d} times; one step is asked for."
HAD_GRADIENTS = "Here the parameters have gradients before the call."
FAILED_LATE = (
    "The first layers move too far by what the first 29 rows give: when the second micro-batch "
    "failed, their gradients were in .grad already."
)
HALFWAY = (
    "The first layers move rightly, and the last ones do not. When a backward fails halfway, the "
    "last layers have got their gradients already."
)
INSIDE = ", after tries that began inside an `except` block"

_ROWS, _WIDTH, _DEPTH, _RATE = 57, 8, 12, 0.5
_TRIES = 57, 29, 15, 8, 4, 2, 1
_BATCH = "room for the batch"
_LATE = "room for 29 rows, where the backward of the second micro-batch fails once"
_FAILS_AFTER = 5  # the layer whose output gets no gradient then
_UNEVEN = "room for 8 rows"
_TOO_SMALL = "no room for one row"
_NARROW = "inputs of a wrong width"
CARDS = {_BATCH: 57, "room for 29 rows": 29, _LATE: 29, _UNEVEN: 8, _TOO_SMALL: 0, _NARROW: 57}


def _setting(name, seed):
    """A network, inputs, targets."""
    layers = [nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.SiLU()) for _ in range(_DEPTH)]
    network = filled(nn.Sequential(*layers, nn.Linear(_WIDTH, 4)), 1 + seed)
    inputs = seeded(1000 + seed, _ROWS, _WIDTH, scale=3.0)
    if name == _NARROW:
        inputs = inputs[:, 1:].contiguous()
    return network, inputs, labels(2000 + seed, _ROWS)


def _need(rows, seed):
    """The most bytes alive while a micro-batch adds its gradients to those of another."""
    network, inputs, targets = _setting(_BATCH, seed)
    F.cross_entropy(network(inputs), targets).backward()
    with LiveBytes().hold(network, inputs, targets) as card:
        F.cross_entropy(network(inputs[:rows]), targets[:rows]).backward()
    return card.peak


def _limit(name, seed):
    """The bytes of the card: what fits needs less, and the next larger try more."""
    rows = CARDS[name]
    if not rows:
        held = _setting(name, seed)
        return LiveBytes().hold(held).now + 256
    need = _need(rows, seed)
    more = 2 * need if rows == _ROWS else _need(_TRIES[_TRIES.index(rows) - 1], seed)
    return int(0.3 * need + 0.7 * more)


def run_survive(survive, seed):
    """Of each card: what came of it, the weights' movement, how tries began, and the steps."""
    shown = {}
    for name in CARDS:
        network, inputs, targets = _setting(name, seed)
        optimizer = torch.optim.SGD(network.parameters(), lr=_RATE)
        start = flat(network)
        if name == _BATCH:
            for parameter in network.parameters():
                parameter.grad = torch.ones_like(parameter)
        card = LiveBytes(_limit(name, seed)).hold(network, inputs, targets)
        began, steps = _watch(network, card, inputs, name), []
        optimizer.register_step_post_hook(lambda *_, steps=steps: steps.append(1))
        with card:
            rows = attempt(survive, network, inputs, targets, optimizer)
        shown[f"{name} outcome"] = _outcome(name, rows, began)
        shown[f"{name} moved"] = flat(network) - start
        shown[f"{name} at once"] = began
        shown[f"{name} steps"] = len(steps)
    return shown


def _watch(network, card, inputs, name):
    """Of the calls of the network: whether a try begins, rows, bytes in use, and inside `except`.

    On one of the cards the backward of rows 29 to 57 fails once.
    """
    began, late = [], {"now": False, "over": name != _LATE}

    def see(module, args):
        rows = args[0]
        handled = isinstance(sys.exc_info()[1], torch.OutOfMemoryError)
        if len(began) < 100:
            began.append((torch.equal(rows[:1], inputs[:1]), len(rows), card.now, handled))
        late["now"] = torch.equal(rows[:1], inputs[29:30])

    def fail(gradient):
        late["over"] = True
        raise torch.OutOfMemoryError("CUDA out of memory. Another process uses this card, too.")

    def arm(module, args, output):
        if late["now"] and not late["over"] and output.requires_grad:
            output.register_hook(fail)

    network.register_forward_pre_hook(see)
    network[_FAILS_AFTER].register_forward_hook(arm)
    return began


def _outcome(name, rows, began):
    """What came of a call, as text, which compares exactly; an unforeseen exception as it is."""
    if type(rows) is Raised:
        if rows.type_name == "OutOfMemoryError":
            inside = CARDS[name] and any(handled for *_, handled in began)
            return "raised OutOfMemoryError" + (INSIDE if inside else "")
        if rows.type_name == "RuntimeError" and began:
            calls = f"{len(began)} call{'s' * (len(began) > 1)}"
            return f"raised RuntimeError after {calls} of the model"
        return rows
    try:
        return f"returned {float(rows):g}"
    except (TypeError, ValueError, RuntimeError):
        return f"returned {came(rows)}"


def _evidence(got, want, seed):
    """What is true of the first card on which the answer ends elsewhere."""
    for name in CARDS:
        came_out, right = got[f"{name} outcome"], want[f"{name} outcome"]
        moved, wanted = got[f"{name} moved"], want[f"{name} moved"]
        if came_out != right:
            why = _why_outcome(name, came_out, got[f"{name} at once"], seed)
            return fill(OUTCOME, name=_on(name), got=came_out, want=right, why=why)
        if same_end(moved, wanted):
            continue
        if not wanted.any():
            return fill(MOVED, name=_on(name))
        if not moved.any():
            return fill(NO_STEP, name=_on(name))
        steps = got[f"{name} steps"]
        away = ((moved - wanted).norm() / wanted.norm()).item()
        return fill(
            OFF, name=_on(name), away=away, why=_why_moved(name, moved, wanted, steps, seed)
        )
    return "Your step does not end where the right one ends."


def _on(name):
    return f"With {name}" if name == _NARROW else f"On a card with {name}"


def _why_outcome(name, came_out, began, seed):
    """What is true of the tries on the first card on which the outcome is another."""
    tries = [(rows, now) for first, rows, now, _ in began if first]
    if name == _NARROW:
        return OTHER_ERROR
    if name == _TOO_SMALL:
        return MUST_RAISE
    if held := _held(name, began, seed):
        return held
    if name == _LATE and came_out.startswith("raised"):
        return LATER
    if tries and tries[0][0] != _ROWS:
        return fill(FIRST_TRY, rows=tries[0][0])
    for (rows, _), (after, _) in itertools.pairwise(tries):
        if after != (rows + 1) // 2:
            return fill(NEXT_TRY, rows=rows, got=after, half=(rows + 1) // 2)
    if came_out == "raised OutOfMemoryError" and len(tries) == 1:
        return fill(NO_OTHER, rows=tries[0][0])
    if tries and came_out == f"returned {-(-_ROWS // tries[-1][0])}":
        return PIECES
    return ""


def _held(name, began, seed):
    """What is true of the first micro-batch that begins beside the tensors of an earlier one."""
    network, inputs, targets = _setting(name, seed)
    parameters = sum(p.nbytes for p in network.parameters())
    base = LiveBytes().hold(network, inputs, targets).now + parameters
    rows = _ROWS
    for first, size, now, _ in began:
        rows = size if first else rows
        if now > base + 1.5 * parameters:  # sums may wait beside the gradients
            said = {"rows": rows, "now": now, "limit": _limit(name, seed), "base": base}
            return fill(STILL_HELD if first else HELD_WITHIN, **said)
    return ""


def _why_moved(name, moved, wanted, steps, seed):
    """What is true of a movement that differs from the right one."""
    if steps > 1:
        return fill(STEPS, steps=steps)
    extra = moved - wanted
    if torch.allclose(extra, torch.full_like(extra, -_RATE), rtol=1e-3):
        return HAD_GRADIENTS
    times = ((moved * wanted).sum() / (wanted * wanted).sum()).item()
    if torch.allclose(moved, times * wanted, rtol=1e-3, atol=1e-3 * wanted.abs().max().item()):
        return fill(TIMES, times=times)
    if name != _LATE:
        return ""
    network, inputs, targets = _setting(name, seed)
    F.cross_entropy(network(inputs[:29]), targets[:29]).backward()
    left = -_RATE * 29 / _ROWS * torch.cat([p.grad.flatten() for p in network.parameters()])
    first = sum(p.numel() for p in network[: _FAILS_AFTER + 1].parameters())
    if (extra - left)[:first].norm() <= NEAR * left[:first].norm():
        return FAILED_LATE
    return HALFWAY if extra[:first].norm() <= NEAR * wanted[:first].norm() else ""


SURVIVE = Loop(
    run_survive,
    solutions.survive,
    _evidence,
    lambda shown: [shown[key] for key in shown if not key.endswith(("at once", "steps"))],
)


@check(run_survive, seeds=2)
def check_survive(got, seed):
    """One step over the whole batch, in micro-batches that fit the card."""
    SURVIVE.judge(got, check_survive.known_wrong, seed=seed)
    for name in CARDS:
        if held := _held(name, got[f"{name} at once"], seed):
            raise Mistake(HOLDS, search=False, name=_on(name), why=held)


@check_survive.wrong(
    "a-caught-error-is-over",
    "Inside `except`, the exception, its traceback and the failed forward's variables are alive. "
    "Where must the next try begin?",
)
def survive(model, inputs, targets, optimizer, rows=None):
    """Tries again inside the except block."""
    rows = rows or len(inputs)
    optimizer.zero_grad()
    try:
        for x, y in zip(inputs.split(rows), targets.split(rows), strict=True):
            (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()
    except torch.OutOfMemoryError:
        if rows == 1:
            raise
        return survive(model, inputs, targets, optimizer, (rows + 1) // 2)
    optimizer.step()
    return rows


check_survive.slip(
    "an-exception-is-its-message",
    "An exception that you keep keeps its traceback. What do you need of it?",
    swap=(
        "except torch.OutOfMemoryError:",
        "except torch.OutOfMemoryError as error:\n            failed = error",
    ),
)
check_survive.slip(
    "a-failed-try-leaves-nothing",
    "Micro-batches of a failed try have left gradients. When must they go?",
    swap=(
        "    while True:\n        optimizer.zero_grad()",
        "    optimizer.zero_grad()\n    while True:",
    ),
)
check_survive.slip(
    "gradients-reset-themselves",
    "Which call drops the gradients that are there before a try?",
    cut="optimizer.zero_grad()",
)
check_survive.slip(
    "mean-of-means",
    "You averaged the micro-batches' means. The last micro-batch may have 1 row: what should that "
    "row's weight be?",
    swap=("* (len(x) / len(inputs))", "/ -(-len(inputs) // rows)"),
)
check_survive.slip(
    "sums-need-no-division",
    "backward adds the micro-batches' gradients up. By what must each mean be multiplied?",
    cut=" * (len(x) / len(inputs))",
)
check_survive.slip(
    "step-each-micro-batch",
    "You step after each micro-batch: that is training with a smaller batch. Where does the only "
    "step belong?",
    swap=(
        "(len(x) / len(inputs))).backward()\n            break",
        "(len(x) / len(inputs))).backward()\n                optimizer.step()\n"
        "                optimizer.zero_grad()\n            break",
    ),
)
check_survive.slip(
    "no-room-is-no-error",
    "What can a caller do that is told of a step that did not happen?",
    swap=("if rows == 1:\n                raise", "if rows == 1:\n                return 0"),
)
check_survive.slip(
    "every-error-is-a-full-card",
    "Which exception means that the card is full? Catch that one alone.",
    swap=("except torch.OutOfMemoryError:", "except Exception:"),
)
