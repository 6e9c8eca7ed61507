"""Record the five traces that lab 04 gives to read.

    python data/records/record_five_traces.py

The weighted autoencoder of lab 04 learns the digits in emulated FP16, 60 steps on all images at
once, five times: the loss scale doubles after every good step; the scale is 1; it starts far too
high; it starts well and grows after 6 good steps; from step 20 on one pixel is NaN. A row is the
loss, the norm of the gradients, the loss scale and whether the step was skipped.
"""

import math

import torch
from common import about, cpu, file_of, write
from torch import nn

from labkit.training import train
from labkit.training.data import digits
from labkit.training.models import Autoencoder
from labkit.training.scaling import LossScale

STEPS, NAN_FROM = 60, 20
images = digits().train_images.flatten(1)
spoiled = images.clone()
spoiled[0, 0] = math.nan
fine = [(images, images)] * STEPS
SETTINGS = {
    "A": (LossScale(2.0**24, growth_interval=1), fine),
    "B": (LossScale.static(1.0), fine),
    "C": (LossScale(2.0**42), fine),
    "D": (LossScale(2.0**31, growth_interval=6), fine),
    "E": (LossScale(2.0**24), fine[:NAN_FROM] + [(spoiled, spoiled)] * (STEPS - NAN_FROM)),
}


def main(file):
    traces = {}
    for name, (start, batches) in SETTINGS.items():
        torch.manual_seed(0)
        model = Autoencoder()
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        records = train(
            model, batches, optimizer=optimizer, precision="fp16", scaler=start,
            loss_fn=lambda output, images: 1e-3 * nn.functional.mse_loss(output, images),
            progress=False,
        )  # fmt: skip
        # Numbers as text: JSON has no NaN.
        traces[name] = [
            [f"{r.loss:.4g}", f"{r.grad_norm:.4g}", f"{r.loss_scale:.17g}", r.skipped]
            for r in records
        ]
        skipped = [r.step for r in records if r.skipped]
        print(
            name, start, f"loss {records[0].loss:.3g} to {records[-1].loss:.3g}; skipped {skipped}"
        )

    record = about(__file__, __doc__, cpu("emulate_gpu()"), torch=torch.__version__)
    write(file, record | {"traces": traces})


if __name__ == "__main__":
    main(file_of(__doc__, "emulated/five_traces.json"))
