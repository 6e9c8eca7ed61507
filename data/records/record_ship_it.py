"""Record what lab 17's budgets cost: baselines that anchor its score, and cheats it must refuse.

    nice -n 10 python data/records/record_ship_it.py

The network of each of five seeds, by ``labkit.labs.ship_it.variants``. Each entry has the bytes and
KL(original || artifact) in bits a character on two texts: "sampled", 160 pieces of 64 characters
that the original has written, as in the check, and "held_out", 160 pieces of the last 10 % of the
course's text. ``public`` is the shipped checkpoint itself, in the place of the first network.

Ladder: round to nearest with the largest weight as the last code; the same with a search for the
scale of least squared error; labkit's own answer, bits by sensitivity; and 100 steps of
distillation from there, a straight-through estimator with the original's probabilities as target.
Cheats: the network is trained on the text for 300 steps before labkit's own answer compresses it;
the public checkpoint, compressed and distilled beforehand, is handed over for every network.

A part that the file holds is not computed again: delete it from the file to record it anew.
"""

import torch
from common import about, cpu, file_of, read, write
from torch import Tensor
from torch.func import functional_call

from labkit.labs.ship_it import variants
from labkit.labs.ship_it.packed import Packed, in_integers, pack, total_bytes, unpacked
from labkit.labs.ship_it.scoring import BUDGETS, divergence, pieces, sampled
from labkit.labs.ship_it.solutions import compress
from labkit.training import cross_entropy, trained_gpt
from labkit.training.data import shakespeare_split

SEEDS = range(5)
PIECES, DISTIL, FURTHER = 160, 100, 300
UNIFORM = {120_000: (8, None), 68_000: (4, 32), 47_000: (2, 32)}
"""The widest integers that fit, with one scale a row or 32 weights."""

torch.set_num_threads(1)
TEXT, HELD_OUT = shakespeare_split()

Weights = dict[str, Tensor]
Artifact = dict[str, Packed]


def rounded(weights: Weights, budget: int, *, clip: bool) -> Artifact:
    """All matrices in one width."""
    bits, group = UNIFORM[budget]
    artifact = {}
    for name, w in weights.items():
        if w.ndim == 1:
            artifact[name] = pack(w, "bf16")
        else:
            artifact[name] = in_integers(w, bits=bits, group=group, clip=clip)
    return artifact


def distilled(weights: Weights, start: Artifact) -> Artifact:
    """The artifact after some steps towards the original's probabilities; scales stay."""
    model = trained_gpt()
    masters = {name: w.clone().requires_grad_() for name, w in weights.items()}
    optimizer = torch.optim.AdamW(masters.values(), lr=1e-3, weight_decay=0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.05, DISTIL)
    for step in range(DISTIL):
        tokens = pieces(TEXT, 32, seed=1000 + step)
        with torch.no_grad():
            exact = functional_call(model, weights, (tokens,)).log_softmax(-1)
            values = unpacked(recoded(masters, start))
        through = {name: w + (values[name] - w).detach() for name, w in masters.items()}
        other = functional_call(model, through, (tokens,)).log_softmax(-1)
        loss = (exact.exp() * (exact - other)).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return recoded(masters, start)


def recoded(weights: Weights, like: Artifact) -> Artifact:
    """Weights in the formats and scales of another artifact."""
    artifact = {}
    for name, w in weights.items():
        fmt, scales = like[name]["format"], like[name]["scales"]
        if scales is None:
            artifact[name] = pack(w, fmt)
            continue
        last = 2 ** (int(fmt.removeprefix("int")) - 1) - 1
        steps = scales.float().repeat_interleave(w.shape[1] // scales.shape[1], dim=1)
        artifact[name] = pack((w.detach() / steps).round().clamp(-last - 1, last), fmt, scales)
    return artifact


def trained_on(weights: Weights) -> Weights:
    """The network after further steps on the text."""
    model = trained_gpt()
    model.load_state_dict(weights)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.05, FURTHER)
    for step in range(FURTHER):
        piece = pieces(TEXT, 32, seed=2000 + step)
        loss = cross_entropy(model(piece[:, :-1]), piece[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return {name: w.detach().clone() for name, w in model.state_dict().items()}


def measured(weights: Weights, artifact: Artifact, texts: dict[str, Tensor]) -> dict[str, float]:
    kls = {name: divergence(weights, unpacked(artifact), text) for name, text in texts.items()}
    return {"bytes": total_bytes(artifact)} | {name: float(f"{kl:.4g}") for name, kl in kls.items()}


def ladder(weights: Weights, texts: dict[str, Tensor]) -> dict[str, dict[str, dict[str, float]]]:
    """What each step of the ladder gives, by budget."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for budget in BUDGETS:
        own = compress(weights, TEXT, budget)[0]
        entries = {
            "round to nearest": rounded(weights, budget, clip=False),
            "clip search": rounded(weights, budget, clip=True),
            "bits by sensitivity": own,
            "then distilled": distilled(weights, own),
        }
        found[str(budget)] = {name: measured(weights, one, texts) for name, one in entries.items()}
    return found


def cheats(weights: Weights, texts: dict[str, Tensor], carried: dict[int, Artifact]) -> dict:
    """What training on the text, and weights that were prepared for the public network, give."""
    further = trained_on(weights)
    return {
        str(budget): {
            "trained on": measured(weights, compress(further, TEXT, budget)[0], texts),
            "carried": measured(weights, carried[budget], texts),
        }
        for budget in BUDGETS
    }


def texts_of(weights: Weights, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "sampled": sampled(weights, PIECES, generator=generator),
        "held_out": pieces(HELD_OUT, PIECES, seed=seed),
    }


def main(file):
    found = read(file)
    public = {name: w.clone() for name, w in trained_gpt().state_dict().items()}
    if "public" not in found:
        found["public"] = ladder(public, texts_of(public, 0))
    carried: dict[int, Artifact] = {}
    for part in ("ladder", "cheats"):
        for seed in SEEDS:
            if len(found.setdefault(part, [])) > seed:
                continue
            weights = variants.network(seed)
            if part == "cheats":
                carried = carried or {
                    budget: distilled(public, compress(public, TEXT, budget)[0])
                    for budget in BUDGETS
                }
                found[part].append(cheats(weights, texts_of(weights, seed), carried))
            else:
                found[part].append(ladder(weights, texts_of(weights, seed)))
            print(part, seed, found[part][-1], flush=True)
            found |= about(__file__, __doc__, cpu(), torch=torch.__version__)
            write(file, found | {"noise": variants.NOISE}, indent=1)


if __name__ == "__main__":
    main(file_of(__doc__, "emulated/ship_it.json"))
