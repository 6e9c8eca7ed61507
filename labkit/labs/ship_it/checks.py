"""Check of lab 17: a network in three budgets, counted, decoded and measured by the judge."""

import hashlib
import itertools
import math
from dataclasses import dataclass

import torch

from labkit.labs.engine import AnswerError, Mistake, Worth, attempt, check, codec, number, several
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure
from labkit.labs.ship_it.packed import BITS, HEADER, PackedError, nbytes, pack, unpack
from labkit.labs.ship_it.scoring import BUDGETS, divergence, pieces, sampled, shapes
from labkit.labs.ship_it.variants import network
from labkit.training import bits_per_character, trained_gpt
from labkit.training.data import shakespeare_split

LAB = "17_ship_it"

FORGED = "What came back is no list of networks, one for each budget."
RAISED = "{budget:,} bytes: compress raised {error}."
NOT_A_PAIR = "{budget:,} bytes: compress returns {came}; (artifact, claim) is wanted."
NOT_A_NETWORK = (
    "{budget:,} bytes: the artifact is {came}; a dict {{name: packed tensor}} is wanted."
)
OTHER_NAMES = "{budget:,} bytes: {what} `{name}`; the artifact has the names of `weights`."
NOT_PACKED = "{budget:,} bytes: `{name}` cannot be unpacked: {why}."
OVER = (
    "{budget:,} bytes: your artifact has {total:,}, which is {over:,} too many. Codes take "
    "{codes:,}, scales {scales:,}, and {count:d} headers {headers:,}. {why}"
)
WITHOUT_SCALES = "Without the scales it would fit."
WHOLE = (
    "All codes of `{name}` are whole numbers that {bits:d} bits hold, and {fmt} stores {wide:d} "
    "bits for each."
)
NO_CLAIM = "{budget:,} bytes: your claim is {got}; a KL is a finite number from 0 on."
BROKEN = "{budget:,} bytes: you claim a KL of at most {claim}, and {kl} is measured. {why}"
NATS = "That is {nats} in nats; the claim is in bits a character."
ROSE = "On Shakespeare's text the loss has risen by {rise} bits a character, which is no KL."
KL_IS = (
    "Measured is the sum of p log2(p / q) over all characters, p the original's probabilities and "
    "q those of the whole artifact, all its tensors at once, as a mean over the positions of text "
    "that the original wrote."
)
LOOSE = (
    "{budget:,} bytes: a KL of {kl} is measured and you claim at most {claim}; points follow the "
    "larger one, and begin below {none}."
)
FAR = "{budget:,} bytes: a KL of {kl} is measured, and points begin below {none}. {why}"
CLAIMED = "You claim at most {claim}: is this the KL of `unpacked(artifact)`?"
BARE = (
    "`{name}` is packed in {fmt} without scales, and {zeros:.0%} of its values are 0 now; of the "
    "original's, {before:.0%} are."
)
CHECKPOINT = (
    "The artifact's tensors are closer to the course's checkpoint than to `weights`, the network "
    "that `compress` is given."
)
LOSS = (
    "On Shakespeare's text your network takes {own:.3f} bits a character, and the original "
    "{other:.3f}: its loss is lower, and its answers are other ones."
)
ONE = "{budget:,} bytes: {total:,} used, KL {kl}, claim {claim}, {earned:.1%} of the points."
NOTHING = "No budget earns points. {why}"
SUM = "{score:.1%} of the points. {each}"

PIECES = 128
"""Pieces of 64 characters on which the judge measures."""


def run_compress(compress, seed):
    """What compress returns for each budget; each call gets weights of its own.

    The seed decides which budget comes first, so no call can rely on another one.
    """
    text, orders = shakespeare_split()[0], list(itertools.permutations(BUDGETS))
    order = orders[(seed + 3) % len(orders)]
    found = {budget: attempt(compress, network(seed), text, budget) for budget in order}
    return [found[budget] for budget in BUDGETS]


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """One budget's artifact as the judge has counted and measured it."""

    total: int
    kl: float
    claim: float
    earned: float


@check(run_compress, seeds=2)
def check_compress(found, seed):
    """A network in three budgets, with claims that hold.

    Measured is on text that the original writes, drawn by the seed and by the artifacts themselves:
    an answer can learn the seed, and still has nothing to fit its networks to.
    """
    if type(found) is not list or len(found) != len(BUDGETS):  # no run of ours made it
        raise Mistake(FORGED, search=False)
    original, tokens = network(seed), None
    entries, troubles = {}, []
    for budget, returned in zip(BUDGETS, found, strict=True):
        try:
            artifact, weights, claim = _read(budget, returned)
            if tokens is None:
                tokens = _secret_text(original, found, seed)
            entries[budget] = _measured(budget, artifact, weights, claim, original, tokens)
        except (Mistake, AnswerError) as trouble:
            troubles.append(trouble)
    if not entries:
        _raise_for(troubles)
    said = [
        fill(ONE, budget=b, total=e.total, kl=e.kl, claim=e.claim, earned=e.earned)
        for b, e in entries.items()
    ]
    score = min(1.0, sum(entry.earned for entry in entries.values()))
    each = " ".join([*said, *map(str, troubles)])
    return Worth(
        score=score, said=fill(SUM, score=score, each=each), measured=_measurements(entries)
    )


def _measurements(entries):
    """What a leaderboard shows, the smallest budget first."""
    return {
        f"{what} at {budget:,} bytes": value
        for budget, entry in reversed(entries.items())
        for what, value in (("KL", entry.kl), ("bytes", entry.total))
    }


def _raise_for(troubles):
    """The trouble of each budget, once, with the idea that budgets show, where they show one."""
    if isinstance(troubles[0], AnswerError):
        raise troubles[0]
    ideas = {trouble.misconception for trouble in troubles if isinstance(trouble, Mistake)} - {None}
    idea = ideas.pop() if len(ideas) == 1 else None
    each = {str(trouble).partition(": ")[2]: str(trouble) for trouble in reversed(troubles)}
    why = " ".join(reversed(each.values()))
    raise Mistake(NOTHING, misconception=idea, search=False, why=why)


def _secret_text(original, found, seed):
    """Text of the original's own, drawn by the seed and by what was handed over.

    The seed is no secret beside the answer. What is drawn depends on the artifacts too, so no
    answer can have been fitted to it.
    """
    digest = hashlib.sha256(f"{seed}".encode() + codec.encode_value(list(found))).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7]))
    return sampled(original, PIECES, generator=generator)


# Counting and decoding


def _read(budget, returned):
    """The artifact, its weights, and the claim."""
    if type(returned) is Raised:
        raise AnswerError(RAISED, budget=budget, error=failure(returned))
    call = f"compress(weights, text, {budget:_})"
    if type(returned) in (dict, str):
        raise Mistake(NOT_A_PAIR, budget=budget, came=_kind(returned))
    artifact, claim = several(returned, 2, call=call)
    if type(artifact) is not dict:
        raise Mistake(NOT_A_NETWORK, budget=budget, came=_kind(artifact))
    wanted = shapes()
    for what, names in (
        ("there is no", wanted.keys() - artifact),
        ("there is", artifact.keys() - wanted),
    ):
        if names:
            raise Mistake(OTHER_NAMES, budget=budget, what=what, name=min(map(str, names)))
    weights = {}
    for name, shape in wanted.items():
        try:
            weights[name] = unpack(artifact[name], shape)
        except PackedError as error:
            raise Mistake(
                NOT_PACKED, search=False, budget=budget, name=name, why=str(error)
            ) from None
    _count(budget, artifact)
    claim = number(claim, call=f"{call}: claim")
    if not 0 <= claim < math.inf:
        raise Mistake(NO_CLAIM, search=False, budget=budget, got=claim)
    return artifact, weights, claim


def _kind(value):
    """What a value is, without what it holds: "a dict of 30"."""
    size = f" of {len(value)}" if type(value) in (dict, list, tuple) else ""
    return f"a {type(value).__name__}{size}"


def _count(budget, artifact):
    """Raise unless the artifact fits."""
    total = sum(map(nbytes, artifact.values()))
    if total <= budget:
        return
    codes = sum(len(packed["codes"]) for packed in artifact.values())
    headers = HEADER * len(artifact)
    scales = total - codes - headers
    idea, why = _why_over(budget, artifact, total, scales)
    said = {"codes": codes, "scales": scales, "count": len(artifact), "headers": headers}
    raise Mistake(
        OVER, misconception=idea, search=False, budget=budget, total=total,
        over=total - budget, why=why, **said,
    )  # fmt: skip


def _why_over(budget, artifact, total, scales):
    """The idea and the sentence that say which bytes are too many."""
    if total - scales <= budget:
        return "scales-are-free", WITHOUT_SCALES
    spare, example = 0, ""
    for name, packed in artifact.items():
        bits = _bits_needed(packed)
        if bits < BITS[packed["format"]]:
            count = math.prod(packed["shape"])
            spare += len(packed["codes"]) - math.ceil(count * bits / 8)
            example = example or fill(
                WHOLE, name=name, bits=bits, fmt=packed["format"], wide=BITS[packed["format"]]
            )
    if spare and total - spare <= budget:
        return "codes-pack-themselves", example
    return None, ""


def _bits_needed(packed):
    """Bits of the narrowest integer format that holds all codes; those of its own if none does."""
    codes = unpack(packed | {"scales": None})
    own = BITS[packed["format"]]
    fits = (
        bits
        for bits in range(2, 9)
        if (codes == codes.round()).all()
        and -(2 ** (bits - 1)) <= codes.min()
        and codes.max() < 2 ** (bits - 1)
    )
    return min(next(fits, own), own)


# Measuring


def _measured(budget, artifact, weights, claim, original, tokens):
    """The entry of a budget; raises where it earns nothing."""
    kl, scale = divergence(original, weights, tokens), BUDGETS[budget]
    if not kl < scale.none:
        idea, why = _why_far(artifact, weights, claim, kl, original)
        said = {"budget": budget, "kl": kl, "none": scale.none, "why": why}
        raise Mistake(FAR, misconception=idea, search=False, **said)
    if not kl <= claim:
        idea, why = _why_broken(claim, kl, weights, original)
        said = {"budget": budget, "claim": claim, "kl": kl, "why": why}
        raise Mistake(BROKEN, misconception=idea, search=False, **said)
    if not claim < scale.none:
        raise Mistake(LOOSE, search=False, budget=budget, claim=claim, kl=kl, none=scale.none)
    total = sum(map(nbytes, artifact.values()))
    return _Entry(total=total, kl=kl, claim=claim, earned=scale.earned(max(claim, kl)))


def _why_broken(claim, kl, weights, original):
    """The idea and the sentence on a claim below the KL. Texts differ by a few per cent."""
    if claim > 0.85 * kl:
        return "a-claim-is-an-estimate", ""
    nats, rise = kl * math.log(2), _bits(weights) - _bits(original)
    said, near = min(
        ((fill(NATS, nats=nats), nats), (fill(ROSE, rise=rise), rise)),
        key=lambda one: abs(one[1] - claim),
    )
    return None, said if math.isclose(claim, near, rel_tol=0.1) else KL_IS


def _why_far(artifact, weights, claim, kl, original):
    """The idea and the sentence on a network that is far from the original."""
    checkpoint = trained_gpt().state_dict()
    if _distance(weights, checkpoint) < _distance(weights, original):
        return None, CHECKPOINT
    own, other = (_bits(one) for one in (weights, original))
    if own < other:
        return "a-lower-loss-is-a-better-copy", fill(LOSS, own=own, other=other)
    why = [_bare(artifact, weights, original)]
    if claim < kl / 2:  # texts differ by a few per cent
        why.append(fill(CLAIMED, claim=claim))
    return None, " ".join(filter(None, why))


def _bare(artifact, weights, original):
    """The matrix without scales that lost most values to 0, as a sentence; "" if none lost any."""
    lost = {
        name: (_zeros(weights[name]), _zeros(original[name]))
        for name, packed in artifact.items()
        if packed["scales"] is None and len(packed["shape"]) == 2
    }
    name = max(lost, key=lambda one: lost[one][0] - lost[one][1], default=None)
    if name is None or lost[name][0] <= lost[name][1]:
        return ""
    zeros, before = lost[name]
    return fill(BARE, name=name, fmt=artifact[name]["format"], zeros=zeros, before=before)


def _zeros(values):
    return (values == 0).double().mean().item()


def _distance(weights, others):
    return sum((w - others[name]).square().sum().item() for name, w in weights.items())


def _bits(weights):
    """Bits a character on the course's test text."""
    model = trained_gpt()
    model.load_state_dict(weights)
    return bits_per_character(model, shakespeare_split()[1])


# Known wrong answers


def _coded(weights, bits, group, dtype, *, fmt=None):
    """Each matrix in integers of so many bits by groups; all else in BF16."""
    artifact = {}
    for name, w in weights.items():
        if w.ndim < 2:
            artifact[name] = pack(w, "bf16")
            continue
        last = 2 ** (bits - 1) - 1
        parts = w.unflatten(1, (-1, min(group, w.shape[1])))
        scales = (parts.abs().amax(dim=2) / last).to(dtype)
        codes = (parts / scales.float()[:, :, None]).round().clamp(-last - 1, last).flatten(1)
        artifact[name] = pack(codes, fmt or f"int{bits}", scales)
    return artifact


def _bits_for(budget):
    return 8 if budget > 100_000 else 4 if budget > 60_000 else 2


@check_compress.wrong(
    "scales-are-free",
    "How many bytes does one scale take, and how many weights share it?",
)
def compress(weights, text, budget):
    return _coded(weights, _bits_for(budget), 16, torch.float32), 2.0


@check_compress.wrong(
    "codes-pack-themselves",
    "Which format stores as many bits as your codes have?",
)
def compress_unpacked(weights, text, budget):
    return _coded(weights, _bits_for(budget), 256, torch.float16, fmt="fp16"), 2.0


@check_compress.wrong(
    "a-lower-loss-is-a-better-copy",
    "KL compares all probabilities with the original's. Which target does your training have?",
)
def compress_trained(weights, text, budget):
    model = trained_gpt()
    model.load_state_dict(weights)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    torch.manual_seed(0)
    for step in range(40):
        x = pieces(text, 32, seed=step)
        loss = torch.nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    trained = {name: w.detach() for name, w in model.state_dict().items()}
    return _coded(trained, _bits_for(budget), 256, torch.float16), 2.0


@check_compress.wrong(
    "a-claim-is-an-estimate",
    "The judge's text is another one. Which number are you sure not to exceed there?",
)
def compress_unsure(weights, text, budget):
    artifact = _coded(weights, _bits_for(budget), 256, torch.float16)
    own = sampled(weights, PIECES, generator=torch.Generator().manual_seed(0))
    measured = divergence(weights, {name: unpack(one) for name, one in artifact.items()}, own)
    return artifact, 0.93 * measured
