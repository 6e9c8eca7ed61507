"""Record what lab 10 says about pruning, packing and factorising a digit reader.

    nice -n 5 python data/records/record_compression.py

Nine seeds, each with its own split of the digits, initial weights and batches. The reader has two
hidden layers of 256 units and trains 15 epochs with AdamW. ``pruning``: test accuracies right after
pruning and after 3 more epochs with masks. ``zeros``: shares of zeros that are left after one epoch
without masks, or with masked gradients and the old or a new optimizer; zeros that a cast makes.
``narrow``: units by norm, tuned for 3 epochs, beside a network of this size that trained for all
18. ``rank``: of the middle weight, the share of its squared norm and the accuracy, not retrained.
``entries``: files of the weigh-in with bytes and accuracies. ``orders``: a published
order of stages, and rank first, with the same rank, share and epochs.

A part that the file holds is not computed again: delete it from the file to record it anew.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from common import about, cpu, file_of, read, write
from torch import Tensor, nn

from labkit.labs.compression.low_rank import factorise
from labkit.labs.compression.pipeline import (
    EPOCHS,
    accuracy,
    adamw,
    pipeline,
    reader,
    tune,
    weigh,
)
from labkit.labs.compression.pruning import hold_masks, hold_zeros, linears, narrow, two_of_four
from labkit.labs.compression.sparsity import sparsity
from labkit.training import cross_entropy
from labkit.training.data import batches, digits

SEEDS = range(9)
SHARES = (0.5, 0.8, 0.9, 0.95, 0.98)
TUNING = 3
RANKS = (2, 4, 8, 16, 32)
UNITS = {"large": 256, "medium": 128, "small": 64, "tiny": 32}
ENTRIES = {
    f"{size}, {how}, {values.upper()}": dict(
        hidden=UNITS[size], rank=rank, prune=share, values=values
    )
    for size, how, rank, share, values in (
        ("large", "dense", None, 0.0, "fp32"),
        ("large", "dense", None, 0.0, "fp16"),
        ("large", "dense", None, 0.0, "int8"),
        ("large", "90 % pruned", None, 0.9, "fp32"),
        ("large", "90 % pruned", None, 0.9, "int8"),
        ("large", "98 % pruned", None, 0.98, "int8"),
        ("large", "rank 8", 8, 0.0, "int8"),
        ("large", "rank 8, 70 % pruned", 8, 0.7, "int8"),
        ("medium", "dense", None, 0.0, "fp32"),
        ("medium", "dense", None, 0.0, "int8"),
        ("medium", "80 % pruned", None, 0.8, "int8"),
        ("small", "dense", None, 0.0, "fp32"),
        ("small", "dense", None, 0.0, "int8"),
        ("small", "70 % pruned", None, 0.7, "int8"),
        ("small", "rank 8, 50 % pruned", 8, 0.5, "int8"),
        ("tiny", "dense", None, 0.0, "int8"),
        ("tiny", "50 % pruned", None, 0.5, "int8"),
    )
}
PUBLISHED = (("prune", 0.7), ("tune", 3), ("rank", 32), ("store", "int8"), ("store", "fp16"))
OTHER = (("rank", 32), ("prune", 0.7), ("tune", 3), ("store", "int8"))

torch.set_num_threads(1)


def rounded(x: float) -> float:
    return round(x, 4)


def tuned(model: nn.Sequential, seed: int, prune: Callable) -> list[float]:
    """Accuracy after pruning, and after 3 epochs more."""
    data, optimizer = digits(seed), adamw(model)
    prune(model, optimizer)
    before = accuracy(model, data)
    tune(model, data, optimizer, epochs=TUNING, seed=seed + 1000)
    return [rounded(before), rounded(accuracy(model, data))]


def pruning(seed: int) -> dict[str, Any]:
    row: dict[str, Any] = {"dense": rounded(accuracy(reader(seed), digits(seed)))}
    for name, each_layer in (("together", False), ("each layer", True)):
        row[name] = {
            share: tuned(
                reader(seed),
                seed,
                lambda m, o, s=share, e=each_layer: hold_masks(m, o, s, each_layer=e),
            )
            for share in SHARES
        }
    row["2:4"] = tuned(
        reader(seed),
        seed,
        lambda m, o: hold_zeros(
            [layer.weight for layer in linears(m)],
            [two_of_four(layer.weight) for layer in linears(m)],
            o,
        ),
    )
    return row


def share_of_zeros(model: nn.Module) -> float:
    weights = torch.cat([layer.weight.detach().flatten() for layer in linears(model)])
    return rounded((weights == 0).double().mean().item())


def mask_gradients(model: nn.Module) -> None:
    for layer in linears(model):
        kept = (layer.weight != 0).float()
        layer.weight.register_hook(lambda gradient, kept=kept: gradient * kept)


def zeros(seed: int) -> dict[str, Any]:
    data = digits(seed)
    row: dict[str, Any] = {}
    torch.manual_seed(seed)
    model = reader(seed, epochs=0)
    optimizer = adamw(model)
    tune(model, data, optimizer, epochs=EPOCHS, seed=seed)
    for name, masked, old in (
        ("no mask", False, False),
        ("masked gradients, old AdamW", True, True),
        ("masked gradients, new AdamW", True, False),
    ):
        pruned = copy.deepcopy(model)
        adam = adamw(pruned)
        if old:
            adam.load_state_dict(optimizer.state_dict())
        hold_masks(pruned, adam, 0.9).remove()
        if masked:
            mask_gradients(pruned)
        tune(pruned, data, adam, epochs=1, seed=seed + 1000)
        row[name] = share_of_zeros(pruned)
    model.zero_grad()
    images, labels = next(iter(batches(data.train_images, data.train_labels, 64, seed=seed)))
    cross_entropy(model(images), labels).backward()
    weights = [layer.weight for layer in linears(model)]
    tensors: dict[str, list[Tensor]] = {
        "weights": weights,
        "gradients": [w.grad for w in weights],
        "exp_avg": [optimizer.state[w]["exp_avg"] for w in weights],
        "exp_avg_sq": [optimizer.state[w]["exp_avg_sq"] for w in weights],
    }
    row["by cast"] = {
        name: {
            short: rounded(sparsity(torch.cat([x.flatten() for x in parts]), dtype).made_by_cast)
            for short, dtype in (
                ("fp16", torch.float16),
                ("bf16", torch.bfloat16),
                ("e5m2", torch.float8_e5m2),
            )
        }
        for name, parts in tensors.items()
    }
    return row


def narrowed(seed: int) -> dict[int, dict[str, Any]]:
    data = digits(seed)
    row = {}
    for keep in (64, 26):
        model = narrow(reader(seed), keep)
        row[keep] = {
            "pruned": tuned(model, seed, lambda m, o: None),
            "from scratch": rounded(
                accuracy(reader(seed, hidden=keep, epochs=EPOCHS + TUNING), data)
            ),
        }
    return row


def energy(weight: Tensor) -> list[float]:
    squares = torch.linalg.svdvals(weight.detach().double()).square()
    return [rounded((squares[:rank].sum() / squares.sum()).item()) for rank in RANKS]


def rank(seed: int) -> dict[str, Any]:
    data, model = digits(seed), reader(seed)
    middle = model[3]
    accuracies = []
    for r in RANKS:
        model[3] = factorise(middle, r)
        accuracies.append(rounded(accuracy(model, data)))
    other = torch.randn(256, 256, generator=torch.Generator().manual_seed(seed))
    return {
        "energy": energy(middle.weight),
        "energy of a random matrix": energy(other),
        "accuracy": accuracies,
    }


def entries(seed: int) -> dict[str, dict[str, Any]]:
    row = {}
    for name, entry in ENTRIES.items():
        weighed = weigh(entry, seed)
        row[name] = {"bytes": weighed.total, "accuracy": rounded(weighed.accuracy)}
    return row


def orders(seed: int) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [
            {
                "stage": row.stage,
                "bytes": row.total,
                "nonzeros": row.nonzeros,
                "accuracy": rounded(row.accuracy),
            }
            for row in pipeline(stages, seed)
        ]
        for name, stages in (("published", PUBLISHED), ("rank first", OTHER))
    }


def main(file) -> None:
    record = read(file)
    record |= about(__file__, __doc__, cpu(), torch=torch.__version__)
    record |= {"shares": SHARES, "ranks": RANKS, "settings": ENTRIES}
    parts = {
        "pruning": pruning,
        "zeros": zeros,
        "narrow": narrowed,
        "rank": rank,
        "entries": entries,
        "orders": orders,
    }
    for name, measure in parts.items():
        rows = record.setdefault(name, [])
        while len(rows) < len(SEEDS):
            rows.append(measure(len(rows)))
            print(name, rows[-1], flush=True)
            write(file, record, "},{")


if __name__ == "__main__":
    main(file_of(__doc__, "emulated/compression.json"))
