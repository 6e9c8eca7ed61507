"""Record what one batch of raw pixels does to a digit reader, and what each remedy leaves.

    nice -n 5 python data/records/record_bad_batch.py

Test accuracies of ten seeds after 400 steps of SGD with momentum on a SmallCNN, for each way to
deal with batch 200, which is in raw pixels, 255 times too large. "rewound" is weights and the
optimizer's state: the run goes back once, to the newest of its checkpoints, one in 20 steps, that
is 10 steps old when the loss lies 1 above the median of the last 50; "skipped" are the three
batches up to that step.
"""

import copy
import math
import statistics

import torch
import torch.nn.functional as F
from common import about, cpu, file_of, write
from torch import nn

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
STEPS, BAD, EVERY, BACK, SEEDS = 400, 200, 20, 10, range(10)


def accuracy_after(way, seed):
    data = digits()
    torch.manual_seed(seed)
    model = SmallCNN()
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    stream = stream_of(seed, spoiled=way != "no bad batch")
    saved, losses, skipped = {}, {}, set()
    step, rewound = 0, "rewound" not in way
    while step < STEPS:
        if step % EVERY == 0 and step not in saved:
            saved[step] = copy.deepcopy((model.state_dict(), sgd.state_dict()))
        if step in skipped:
            step += 1
            continue
        losses[step] = stepped(model, sgd, *stream[step], clip="clipped" in way)
        if not rewound and is_spike(losses, step):
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


def stream_of(seed, *, spoiled):
    data, found = digits(), []
    for epoch in range(STEPS):
        found += batches(data.train_images, data.train_labels, 32, seed=1000 * seed + epoch)
        if len(found) >= STEPS:
            break
    if spoiled:
        images, labels = found[BAD]
        found[BAD] = 255 * images, labels
    return found


def stepped(model, sgd, x, y, *, clip):
    sgd.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    sgd.step()
    return loss.item()


def is_spike(losses, step):
    earlier = [loss for at, loss in losses.items() if step - 50 <= at < step]
    if len(earlier) < 50:
        return False
    return not math.isfinite(losses[step]) or losses[step] > statistics.median(earlier) + 1


def main(file):
    torch.set_num_threads(1)
    accuracies = {way: [round(accuracy_after(way, seed), 4) for seed in SEEDS] for way in WAYS}
    record = about(__file__, __doc__, cpu(), torch=torch.__version__)
    write(file, record | {"accuracies": accuracies})


if __name__ == "__main__":
    main(file_of(__doc__, "emulated/bad_batch.json"))
