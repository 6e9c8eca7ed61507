"""Record lab 08's GPT, trained with FP8 and FP4 matmuls.

    python data/records/record_low_bit_training.py [SEED ...]

SmallGPT(68, 64) learns the first 90 % of the text from scratch: 300 steps of 16 pieces of 64
characters, AdamW and OneCycleLR up to 6e-3, gradients clipped to norm 1, as the course's
checkpoint. All arms of a seed start from the same weights and see the same pieces. In each arm the
eight hidden linear layers follow one of labkit.training.low_bit.RECIPES; the head, the embeddings
and the norms stay in float32. "fp32_reordered" is the A/A control: float32, but each hidden layer
adds up its input features in reverse order.

For each arm and seed: the mean loss of every ten steps and the cross-entropy on the last 10 % of
the text, both in bits a character and both with the arm's own matmuls. For some arms also what
reached the hidden layers' weights: the share of their gradients that is exactly 0, the steps at
which any was not, and the largest gradient of their outputs.

The file is written after each run, and what it holds is not run again: the script may be stopped. A
seed takes five minutes of one core.
"""

import math
from dataclasses import replace

import torch
from common import about, command, cpu, read, write
from torch import nn

from labkit.training import bits_per_character, cross_entropy
from labkit.training.data import character_batches, characters, shakespeare, shakespeare_split
from labkit.training.low_bit import RECIPES, convert
from labkit.training.models import SmallGPT

SEEDS, STEPS, EVERY, CONTEXT, BATCH = range(10), 300, 10, 64, 16
LEARNING_RATE, WEIGHT_DECAY, MAX_NORM = 6e-3, 0.05, 1.0
WATCHED = ("fp32", "e4m3_unscaled", "hybrid_unscaled", "fp8_tensorwise")
ARMS = ("fp32", "fp32_reordered", *(name for name in RECIPES if name != "fp32"))

vocabulary = characters(shakespeare())
training_text, test_text = shakespeare_split()


class Reordered(nn.Linear):
    """A linear layer that adds up its input features from the last to the first."""

    def forward(self, x):
        return nn.functional.linear(x.flip(-1), self.weight.flip(-1), self.bias)


def hidden_layers(model):
    return [m for name, m in model.named_modules() if isinstance(m, nn.Linear) and name != "head"]


def make(arm, seed):
    """The model of an arm as it starts."""
    torch.manual_seed(seed)
    model = SmallGPT(vocabulary.size, CONTEXT)
    if arm == "fp32_reordered":
        for layer in hidden_layers(model):
            layer.__class__ = Reordered
    elif arm != "fp32":
        convert(model, replace(RECIPES[arm], seed=seed))
    return model


def train(model, seed, watch=lambda: None, steps=STEPS):
    """The losses in nats; ``watch`` is called when the gradients of a step are there."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=STEPS, pct_start=0.1
    )
    loader = character_batches(
        training_text, CONTEXT, BATCH, steps=steps, seed=seed, vocabulary=vocabulary
    )
    losses = []
    for tokens, next_tokens in loader:
        optimizer.zero_grad()
        loss = cross_entropy(model(tokens), next_tokens)
        loss.backward()
        watch()
        nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


class Watcher:
    """What reaches the weights of the hidden layers."""

    def __init__(self, model):
        self.layers = hidden_layers(model)
        self.zeros, self.largest = [], 0.0
        for layer in self.layers:
            layer.register_full_backward_hook(self.see)

    def see(self, layer, grads_in, grads_out):
        self.largest = max(self.largest, grads_out[0].abs().max().item())

    def __call__(self):
        self.zeros.append([(m.weight.grad == 0).float().mean().item() for m in self.layers])

    def record(self):
        zeros = torch.tensor(self.zeros)
        return {
            "zero_share": [round(share, 4) for share in zeros.mean(0).tolist()],
            "steps_with_gradient": int((zeros < 1).any(1).sum()),
            "largest_gradient": float(f"{self.largest:.3e}"),
        }


def run(arm, seed):
    model = make(arm, seed)
    watcher = Watcher(model) if arm in WATCHED else None
    losses = torch.tensor(train(model, seed, watcher or (lambda: None))) / math.log(2)
    found = {
        "losses": [round(loss, 4) for loss in losses.view(-1, EVERY).mean(1).tolist()],
        "bits": round(bits_per_character(model, test_text), 7),
    }
    return found | (watcher.record() if watcher else {})


def operands(recipe):
    x, w, grad = (
        f"{o.format.name} {o.scaling or 'unscaled'} {o.rounding}" for o in recipe.operands
    )
    return {"x": x, "w": w, "dx_grad": grad, "dx_w": w, "dw_grad": grad, "dw_x": x}


def main(file, seeds):
    torch.set_num_threads(1)
    runs = read(file).get("runs", {})
    for seed in map(str, seeds):
        for arm in ARMS:
            if arm in runs.get(seed, {}):
                continue
            found = run(arm, int(seed))
            print(seed, arm, found["bits"], flush=True)
            runs.setdefault(seed, {})[arm] = found
            device = cpu("one thread, emulated by labkit")
            record = about(__file__, __doc__, device, torch=torch.__version__) | {
                "steps": STEPS,
                "every": EVERY,
                "recipes": {arm: operands(RECIPES[arm]) for arm in ARMS if arm in RECIPES},
                "runs": dict(sorted(runs.items())),
            }
            write(file, record)


if __name__ == "__main__":
    parser = command(__doc__, "emulated/low_bit_training.json")
    parser.add_argument("seeds", nargs="*", type=int, default=SEEDS, metavar="SEED")
    asked = parser.parse_args()
    main(asked.file, asked.seeds)
