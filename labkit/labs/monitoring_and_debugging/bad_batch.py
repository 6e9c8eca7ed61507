"""A digit reader that meets one batch of raw pixels, and what each remedy leaves of it."""

import copy
import json
import math
import statistics
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.base.paths import DATA
from labkit.training import evaluate
from labkit.training.data import batches, digits
from labkit.training.models import SmallCNN

WAYS = (
    "no bad batch",
    "nothing done",
    "gradients clipped at 1",
    "rewound, same batches",
    "weights rewound, batch skipped",
    "rewound, batch skipped",
)
"""What can be done about the batch; "rewound" is weights and the optimizer's state."""

STEPS, BAD, EVERY, BACK = 400, 200, 20, 10


def accuracy_after(way: str, *, seed: int) -> float:
    """The test accuracy of a SmallCNN after 400 steps of SGD with momentum.

    Batch 200 is in raw pixels, 255 times too large. A run that is rewound goes back once, to the
    newest of its checkpoints, one in 20 steps, that is 10 steps old when the loss lies 1 above the
    median of the last 50; the three batches up to that step are skipped.

    Raises:
        ValueError: ``way`` is none of WAYS.
    """
    if way not in WAYS:
        raise ValueError(f"way={way!r} is not known; use one of {', '.join(map(repr, WAYS))}")
    data = digits()
    torch.manual_seed(seed)
    model = SmallCNN()
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    stream = _batches(seed, spoiled=way != "no bad batch")
    saved: dict[int, Any] = {}
    losses: dict[int, float] = {}
    skipped: set[int] = set()
    step, rewound = 0, "rewound" not in way
    while step < STEPS:
        if step % EVERY == 0 and step not in saved:
            saved[step] = copy.deepcopy((model.state_dict(), sgd.state_dict()))
        if step in skipped:
            step += 1
            continue
        losses[step] = _step(model, sgd, *stream[step], clip="clipped" in way)
        if not rewound and _is_spike(losses, step):
            rewound = True
            skipped = {step - 2, step - 1, step} if "skipped" in way else set()
            step = max(at for at in saved if at <= step - BACK)
            weights, state = copy.deepcopy(saved[step])
            model.load_state_dict(weights)
            if not way.startswith("weights"):
                sgd.load_state_dict(state)
        else:
            step += 1
    return evaluate(model, data.test_images, data.test_labels)


def _batches(seed: int, *, spoiled: bool) -> list[tuple[Tensor, Tensor]]:
    data, found = digits(), []
    for epoch in range(STEPS):
        found += batches(data.train_images, data.train_labels, 32, seed=1000 * seed + epoch)
        if len(found) >= STEPS:
            break
    if spoiled:
        images, labels = found[BAD]
        found[BAD] = 255 * images, labels
    return found


def _step(
    model: nn.Module, sgd: torch.optim.Optimizer, x: Tensor, y: Tensor, *, clip: bool
) -> float:
    sgd.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    sgd.step()
    return loss.item()


def _is_spike(losses: dict[int, float], step: int) -> bool:
    earlier = [loss for at, loss in losses.items() if step - 50 <= at < step]
    if len(earlier) < 50:
        return False
    return not math.isfinite(losses[step]) or losses[step] > statistics.median(earlier) + 1


def bad_batch_record() -> dict[str, list[float]]:
    """Recorded test accuracies by what was done about the batch, ten seeds."""
    path = DATA / "emulated" / "bad_batch.json"
    return json.loads(path.read_text(encoding="utf-8"))["accuracies"]
