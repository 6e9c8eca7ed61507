"""Record how the gradients of one training run drift, for the widget GradientWindow.

    python data/emulated/record_autoencoder_gradients.py

An autoencoder of 64-128-16-128-64 units learns to copy the digits in float32; its mean squared
error is weighted by 1e-3. From frame 20 to 33 a loader delivers the same images as 12-bit ones,
pixels of 0 to 4095 instead of 0 to 1. A frame is 5 steps; at its last step the gradients of
all parameters and of the output are counted by their power of two.
"""

import json
import platform
from datetime import date
from pathlib import Path

import numpy as np
import torch
from torch import nn

HERE = Path(__file__).resolve().parent
FRAMES, STEPS = 60, 5
TWELVE_BIT = range(20, 34)

torch.manual_seed(0)
torch.set_num_threads(1)
pixels = np.load(HERE.parent / "digits.npz")["images"]
images = torch.from_numpy(pixels).float().reshape(-1, 64)[:1437] / 16

layers = []
for before, after in ((64, 128), (128, 16), (16, 128), (128, 64)):
    layers += [nn.Linear(before, after), nn.ReLU()]
model = nn.Sequential(*layers[:-1])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

frames = []
for number in range(FRAMES):
    batch = images * 4095 if number in TWELVE_BIT else images
    for _ in range(STEPS):
        optimizer.zero_grad()
        output = model(batch)
        output.retain_grad()
        loss = 1e-3 * nn.functional.mse_loss(output, batch)
        loss.backward()
        parts = [output.grad, *(p.grad for p in model.parameters())]
        optimizer.step()
    gradients = torch.cat([part.flatten() for part in parts])
    present = gradients[gradients != 0]
    powers, counts = (torch.frexp(present).exponent - 1).unique(return_counts=True)
    exponents = list(zip(powers.tolist(), counts.tolist(), strict=True))
    frames.append({"largest": present.abs().max().item(), "exponents": exponents})
    print(f"frame {number}: loss {loss.item():.2e}, binades {powers[0]} to {powers[-1]}")

record = {
    "what": __doc__.strip().split("\n\n")[2].replace("\n", " "),
    "device": f"CPU, {platform.machine()}",
    "torch": torch.__version__,
    "date": date.today().isoformat(),
    "by": "data/emulated/record_autoencoder_gradients.py",
    "steps_a_frame": STEPS,
    "frames": frames,
}
path = HERE / "autoencoder_gradients.json"
path.write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")
