"""Record the weights, activations and gradients of one training run, as lab 02 shows them.

    python data/tensors/record_digits_mlp.py

A network of 64-256-256-10 units learns the digits in float32 until it makes hardly any mistake.
Then one pass over 512 images gives three tensors of the second layer: its weights, what enters it
(after ReLU), and the gradient of the mean loss with respect to that input. 8,191 evenly spaced
values of each are kept (an odd count, so that a median is one of them).
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn

HERE = Path(__file__).resolve().parent
KEPT = 8191
STEPS = 400

torch.manual_seed(0)
torch.set_num_threads(1)
digits = np.load(HERE.parent / "digits.npz")
images = torch.from_numpy(digits["images"]).float().reshape(-1, 64) / 16
labels = torch.from_numpy(digits["labels"]).long()

first, second, last = nn.Linear(64, 256), nn.Linear(256, 256), nn.Linear(256, 10)
parameters = [*first.parameters(), *second.parameters(), *last.parameters()]
optimizer = torch.optim.Adam(parameters, lr=1e-3)


def forward(batch):
    hidden = torch.relu(first(batch))
    hidden.retain_grad()
    return hidden, last(torch.relu(second(hidden)))


for _ in range(STEPS):
    chosen = torch.randint(len(images), (128,))
    _, logits = forward(images[chosen])
    loss = nn.functional.cross_entropy(logits, labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

hidden, logits = forward(images[:512])
loss = nn.functional.cross_entropy(logits, labels[:512])
loss.backward()
print(f"step {STEPS}, loss over 512 images {loss.item():.2e}")


def keep(tensor):
    flat = tensor.detach().flatten()
    return flat[torch.linspace(0, flat.numel() - 1, KEPT).long()].numpy()


np.savez_compressed(
    HERE / "digits_mlp.npz",
    weights=keep(second.weight),
    activations=keep(hidden),
    gradients=keep(hidden.grad),
)
