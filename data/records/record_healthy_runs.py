"""Record 50 healthy training runs for lab 11: what an alarm has to stay silent on.

    nice -n 5 python data/records/record_healthy_runs.py

20 MLPs and 20 CNNs on the digits (SGD, momentum 0.9, batches of 32), 10 GPTs of two blocks and
width 32 on the course's text (Adam, 16 pieces of 32 characters): 500 steps each, FP16 autocast
under emulate_gpu(). The loss scale starts at 2**16 and doubles after 100 good steps, so that it
grows, overflows and skips as in longer runs. Of each step: the loss, the norm of the unscaled
gradients (null where the step was skipped, since it is inf or NaN there), the loss scale.

Runs that the file holds are not trained again: delete the file to record it anew.
"""

import torch
from common import about, cpu, file_of, read, write

from labkit.training import train
from labkit.training.data import batches, character_batches, digits, shakespeare
from labkit.training.models import SmallCNN, SmallGPT, mlp
from labkit.training.scaling import LossScale

RUNS = {"MLP": 20, "CNN": 20, "GPT": 10}
STEPS, CONTEXT = 500, 32

torch.set_num_threads(1)


def on_digits(model, lr, seed):
    data = digits(seed)
    loader = batches(data.train_images, data.train_labels, 32, seed=seed, drop_last=True)
    return model, loader, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def prepared(network, seed):
    """The model, its batches and its optimizer."""
    torch.manual_seed(seed)
    if network == "MLP":
        return on_digits(mlp(64, 64, 10), 0.1, seed)
    if network == "CNN":
        return on_digits(SmallCNN(), 0.05, seed)
    model = SmallGPT(68, CONTEXT, width=32)
    loader = character_batches(shakespeare(), CONTEXT, 16, steps=STEPS, seed=seed)
    return model, loader, torch.optim.Adam(model.parameters(), lr=1e-3)


def trained(network, seed):
    """Its steps as numbers: {"loss": [...], "grad_norm": [...], "scale": [[step, new], ...]}."""
    model, loader, optimizer = prepared(network, seed)
    epochs = -(-STEPS // len(loader))
    scaler = LossScale(growth_interval=100)
    steps = train(
        model, loader, optimizer=optimizer, precision="fp16", scaler=scaler, epochs=epochs,
        progress=False,
    )[:STEPS]  # fmt: skip
    scales = [0.0, *(step.loss_scale for step in steps)]
    print(network, seed, f"{steps[0].loss:.2f} -> {steps[-1].loss:.3f}", flush=True)
    return {
        "loss": [float(f"{step.loss:.5g}") for step in steps],
        "grad_norm": [None if s.skipped else float(f"{s.grad_norm:.4g}") for s in steps],
        "scale": [[i, scales[i + 1]] for i in range(STEPS) if scales[i + 1] != scales[i]],
    }


def main(file):
    record = read(file) or about(__file__, __doc__, cpu(), torch=torch.__version__)
    runs = record.setdefault("runs", {})
    for network, count in RUNS.items():
        done = runs.setdefault(network, [])
        while len(done) < count:
            done.append(trained(network, len(done)))
            write(file, record, "]},{")


if __name__ == "__main__":
    main(file_of(__doc__, "emulated/healthy_runs.json"))
