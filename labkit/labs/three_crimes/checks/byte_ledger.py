"""Checks of lab 01: the bytes of each kind of tensor."""

import random

from labkit.labs.engine import Mistake, calls, check, entries, number
from labkit.labs.three_crimes import solutions

LAB = "01_three_crimes"

FOR_EVERY_MODEL = (
    "`{call}`: {item} is {got:g} bytes, and you return the same for every model. Multiply the "
    "bytes of one value by the number of {counted}."
)
OTHER_COUNT = (
    "`{call}`: {item} is {got:g} bytes; {want} is wanted. Yours grows with the number of {other}, "
    "but the bytes of {item} depend on the number of {counted}."
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
    "In the backward pass, the weight's gradient goes back through the cast from FP32 to 16 bits. "
    "Which dtype does `weight.grad` have after it?",
    swap=('"gradients": 4', '"gradients": 2'),
)
check_ledger.slip(
    "casts-cost-nothing",
    "Backward needs the 16-bit copies again, so they are kept. How many bytes does one copy take?",
    swap=('"copies": 2', '"copies": 0'),
)
check_ledger.slip(
    "adam-keeps-one-number",
    "Adam keeps a running mean and a running mean square. How many FP32 numbers is that for each "
    "parameter?",
    swap=('"adam": 8', '"adam": 4'),
)
check_ledger.slip(
    "activations-stay-fp32",
    "The output of an op that ran in 16 bits is 16-bit too. How many bytes does one value take?",
    swap=('"activations": 2', '"activations": 4'),
)
