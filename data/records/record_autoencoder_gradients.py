"""Record how the gradients of lab 04's autoencoder drift, for the widget GradientWindow.

    python data/records/record_autoencoder_gradients.py

Lab 04's autoencoder learns to copy the digits in float32, with Adam at 5e-3; its mean squared error
is weighted by 1e-3. From frame 20 to 33 a loader delivers the same images as 12-bit ones, pixels
of 0 to 4095 instead of 0 to 1. Frame n holds the gradients of step 5n, counted by their power of
two: those of all parameters and that of the output. Frame 0 is the first step of the lab.
"""

import torch
from common import about, cpu, file_of, write
from torch import nn

from labkit.training.data import digits
from labkit.training.models import Autoencoder

FRAMES, STEPS = 60, 5
TWELVE_BIT = range(20, 34)


def main(file):
    torch.set_num_threads(1)
    images = digits().train_images.flatten(1)
    torch.manual_seed(0)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    frames = []
    for number in range(FRAMES):
        batch = images * 4095 if number in TWELVE_BIT else images
        for step in range(STEPS):
            optimizer.zero_grad()
            output = model(batch)
            output.retain_grad()
            loss = 1e-3 * nn.functional.mse_loss(output, batch)
            loss.backward()
            if step == 0:
                gradients = torch.cat(
                    [output.grad.flatten(), *(p.grad.flatten() for p in model.parameters())]
                )
            optimizer.step()
        present = gradients[gradients != 0]
        powers, counts = (torch.frexp(present).exponent - 1).unique(return_counts=True)
        exponents = list(zip(powers.tolist(), counts.tolist(), strict=True))
        frames.append({"largest": present.abs().max().item(), "exponents": exponents})
        print(f"frame {number}: loss {loss.item():.2e}, powers {powers[0]} to {powers[-1]}")

    record = about(__file__, __doc__, cpu(), torch=torch.__version__)
    write(file, record | {"steps_a_frame": STEPS, "frames": frames})


if __name__ == "__main__":
    main(file_of(__doc__, "emulated/autoencoder_gradients.json"))
