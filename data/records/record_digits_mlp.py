"""Record the weights, activations and gradients of one training run, as lab 02 shows them.

    python data/records/record_digits_mlp.py

A network of 64-256-256-10 units learns the digits in float32 until it makes hardly any mistake.
Then one pass over 512 images gives three tensors of the second layer: its weights, what enters it
(after ReLU), and the gradient of the mean loss with respect to that input. 8,191 evenly spaced
values of each are kept (an odd count, so that a median is one of them).
"""

import json

import numpy as np
import torch
from common import DATA, about, cpu, file_of
from torch import nn

KEPT = 8191
STEPS = 400


def forward(batch, first, second, last):
    hidden = torch.relu(first(batch))
    hidden.retain_grad()
    return hidden, last(torch.relu(second(hidden)))


def keep(tensor):
    flat = tensor.detach().flatten()
    return flat[torch.linspace(0, flat.numel() - 1, KEPT).long()].numpy()


def main(file):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    digits = np.load(DATA / "digits.npz")
    images = torch.from_numpy(digits["images"]).float().reshape(-1, 64) / 16
    labels = torch.from_numpy(digits["labels"]).long()

    network = nn.Linear(64, 256), nn.Linear(256, 256), nn.Linear(256, 10)
    optimizer = torch.optim.Adam([p for layer in network for p in layer.parameters()], lr=1e-3)
    for _ in range(STEPS):
        chosen = torch.randint(len(images), (128,))
        _, logits = forward(images[chosen], *network)
        loss = nn.functional.cross_entropy(logits, labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    hidden, logits = forward(images[:512], *network)
    loss = nn.functional.cross_entropy(logits, labels[:512])
    loss.backward()
    print(f"step {STEPS}, loss over 512 images {loss.item():.2e}")
    np.savez_compressed(
        file,
        about=json.dumps(about(__file__, __doc__, cpu(), torch=torch.__version__)),
        weights=keep(network[1].weight),
        activations=keep(hidden),
        gradients=keep(hidden.grad),
    )


if __name__ == "__main__":
    main(file_of(__doc__, "tensors/digits_mlp.npz"))
