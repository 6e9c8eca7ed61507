"""Check of lab 10: an entry of the weigh-in, trained and weighed by the judge."""

import statistics

from labkit.labs.compression.pipeline import weigh
from labkit.labs.compression.storage import VALUE_BYTES
from labkit.labs.engine import Mistake, check, entries, number, word
from labkit.labs.engine.messages import fill

LAB = "10_compression"

OUTSIDE = "Your entry's {key} is {got}; {allowed} is asked for."
TOO_LARGE = (
    "Your entry's file has {total:,} bytes at seed {seed:d}; at most {limit:,} are wanted. {why}"
)
FLOOR = (
    "{masks:,} of them are masks, a bit for every weight, kept or not. Pruning more removes none "
    "of these bits."
)
WIDE = "{values:,} of them are {count:,} values of {each:d} bytes."
DENSE = "{values:,} of them are values, one byte for each of the weights. None is pruned."
FACTORS = (
    "The two factors of rank {rank:d} hold {factors:,} numbers, and the weight between the hidden "
    "layers has only {dense:,}."
)
ROLES = "By role: {roles}."
TOO_WEAK = (
    "Your entry's file has at most {total:,} bytes, and {limit:,} are allowed. Its mean accuracy "
    "over {seeds:d} seeds is {mean:.1%}, from {low:.1%} to {high:.1%}; at least {want:.1%} is "
    "wanted. {why}"
)
OVER_PRUNED = "{count:,} weights are left for {units:d} units and 10 digits."
UNUSED = "{unused:,} bytes are still free. Which change of the entry puts more weights into them?"

BYTES, ACCURACY, SEEDS = 6_000, 0.95, 9
_KEYS = "hidden", "rank", "prune", "values"


def run_weigh_in(entry):
    """The entry as it is: what it weighs, the judge finds out."""
    return entry


@check(run_weigh_in)
def check_weigh_in(entry):
    """A file of at most 6,000 bytes that reads 95 % of the digits, over nine seeds."""
    entry = _read(entry)
    found = []
    for seed in range(SEEDS):
        found.append(weigh(entry, seed))
        if found[-1].total > BYTES:
            idea, why = _too_large(entry, found[-1])
            said = {"total": found[-1].total, "seed": seed, "limit": BYTES, "why": why}
            raise Mistake(TOO_LARGE, misconception=idea, search=False, **said)
    rates = [one.accuracy for one in found]
    if (mean := statistics.fmean(rates)) < ACCURACY:
        over = entry["prune"] >= 0.9
        total = max(one.total for one in found)
        why = fill(UNUSED, unused=BYTES - total) if total < 0.9 * BYTES else ""
        if over:
            why = fill(OVER_PRUNED, count=found[0].nonzeros, units=2 * entry["hidden"])
        raise Mistake(
            TOO_WEAK,
            misconception="any-share-can-be-pruned" if over else None,
            search=False,
            total=total,
            limit=BYTES,
            seeds=SEEDS,
            mean=mean,
            low=min(rates),
            high=max(rates),
            want=ACCURACY,
            why=why,
        )


def _read(entry):
    """The entry with settings that ``weigh`` takes."""
    entry = entries(entry, _KEYS, call="entry")
    hidden = number(entry["hidden"], call='entry["hidden"]')
    rank = entry["rank"]
    if rank is not None:
        rank = number(rank, call='entry["rank"]')
    share = number(entry["prune"], call='entry["prune"]')
    values = word(entry["values"], VALUE_BYTES, call='entry["values"]')
    for key, got, fits, allowed in (
        ("hidden", hidden, hidden in range(1, 513), "an integer from 1 to 512"),
        ("rank", rank, rank is None or rank in range(1, int(hidden) + 1), "None or 1 to hidden"),
        ("prune", share, 0 <= share < 1, "a share from 0 to below 1"),
    ):
        if not fits:
            raise Mistake(OUTSIDE, key=key, got=got, allowed=allowed)
    rank = None if rank is None else int(rank)
    return {"hidden": int(hidden), "rank": rank, "prune": share, "values": values}


def _too_large(entry, weighed):
    """The idea and the sentence that say which bytes are too many."""
    parts, each = weighed.bytes, VALUE_BYTES[entry["values"]]
    if parts["masks"] > BYTES:
        return "pruning-has-no-floor", fill(FLOOR, masks=parts["masks"])
    narrow = weighed.total - parts["values"] * (each - 1) // each
    if each > 1 and narrow <= BYTES:
        said = {"values": parts["values"], "count": parts["values"] // each, "each": each}
        return "pruned-weights-stay-wide", fill(WIDE, **said)
    if not entry["prune"] and each == 1:
        return "eight-bits-are-small-enough", fill(DENSE, values=parts["values"])
    if entry["rank"] and 2 * entry["rank"] >= entry["hidden"]:
        rank, hidden = entry["rank"], entry["hidden"]
        return None, fill(FACTORS, rank=rank, factors=2 * rank * hidden, dense=hidden**2)
    return None, fill(ROLES, roles=", ".join(f"{role} {n:,}" for role, n in parts.items() if n))


check_weigh_in.wrong(
    "pruning-has-no-floor",
    "Which network has fewer weights to begin with?",
)({"hidden": 256, "rank": None, "prune": 0.98, "values": "int8"})
check_weigh_in.wrong(
    "pruned-weights-stay-wide",
    "How many bytes did INT8 take for a value, and what did it cost?",
)({"hidden": 64, "rank": None, "prune": 0.7, "values": "fp16"})
check_weigh_in.wrong(
    "any-share-can-be-pruned",
    "What does a smaller share of a smaller network leave?",
)({"hidden": 64, "rank": None, "prune": 0.95, "values": "int8"})
check_weigh_in.wrong(
    "eight-bits-are-small-enough",
    "Which of them can the network do without?",
)({"hidden": 64, "rank": None, "prune": 0.0, "values": "int8"})
