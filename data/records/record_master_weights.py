"""Record lab 04's digit classifier with five ways to keep its weights.

    python data/records/record_master_weights.py

A network of 64-32-10 units learns all 1,438 training digits with SGD at 0.003, 3,000 steps, in
emulated BF16 on a CPU. Five seeds each. The gradients are BF16 but for the first way:
"float32 weights"; "BF16 weights"; "BF16, float32 masters"; "BF16, stochastic rounding" of each
new weight; "BF16, Kahan" with a second BF16 number a weight for what rounding dropped.
"""

import torch
from common import about, cpu, file_of, write
from torch.nn.functional import cross_entropy

from labkit.emulation import emulate_gpu
from labkit.formats import BF16, quantize
from labkit.training.data import digits
from labkit.training.models import mlp

STEPS, EVERY, LR, SEEDS = 3000, 50, 0.003, range(5)
data = digits()
images, labels = data.train_images.flatten(1), data.train_labels


def plain(p, state):
    p.sub_(LR * p.grad)


def with_masters(p, state):
    master = state.setdefault("master", p.float())
    master -= LR * p.grad.float()
    p.copy_(master)


def rounded_at_random(p, state):
    p.copy_(quantize(p.float() - LR * p.grad.float(), BF16, rounding="stochastic"))


def kahan(p, state):
    rest = state.setdefault("rest", torch.zeros_like(p))
    rest -= LR * p.grad
    before = p.clone()
    p += rest
    rest -= p - before


WAYS = {
    "float32 weights": (torch.float32, plain),
    "BF16 weights": (torch.bfloat16, plain),
    "BF16, float32 masters": (torch.bfloat16, with_masters),
    "BF16, stochastic rounding": (torch.bfloat16, rounded_at_random),
    "BF16, Kahan": (torch.bfloat16, kahan),
}


def run(dtype, update, seed):
    """The loss every EVERY steps, and the share of training digits that are right at the end."""
    torch.manual_seed(seed)
    model, x, losses = mlp(64, 32, 10).to(dtype), images.to(dtype), []
    states = {p: {} for p in model.parameters()}
    with emulate_gpu():
        for step in range(STEPS + 1):
            logits = model(x).float()
            loss = cross_entropy(logits, labels)
            if step % EVERY == 0:
                losses.append(round(loss.item(), 5))
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in model.parameters():
                    update(p, states[p])
    return losses, (logits.argmax(1) == labels).float().mean().item()


def main(file):
    torch.set_num_threads(1)
    runs = {}
    for name, (dtype, update) in WAYS.items():
        runs[name] = [run(dtype, update, seed) for seed in SEEDS]
        print(name, [(losses[-1], round(right, 3)) for losses, right in runs[name]], flush=True)

    record = about(__file__, __doc__, cpu("emulated by labkit"), torch=torch.__version__) | {
        "every": EVERY,
        "losses": {name: [losses for losses, _ in seeds] for name, seeds in runs.items()},
        "accuracy": {name: [round(r, 4) for _, r in seeds] for name, seeds in runs.items()},
    }
    write(file, record)


if __name__ == "__main__":
    main(file_of(__doc__, "emulated/master_weights.json"))
