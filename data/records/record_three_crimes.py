"""Record the runs among which the dials of lab 01's race choose.

    python data/records/record_three_crimes.py

Two tasks, three learning rates, two values of Adam's eps, seven precisions: 84 runs from the same
first weights, a line each as it is done. Losses keep four digits; null stands for inf and NaN.
"""

import itertools
import math
import platform
from dataclasses import replace

import torch
from common import about, cpu, file_of, write

from labkit.labs.three_crimes.trials import RUNS, run

TASKS = {
    "digits": (replace(RUNS["D"], precision="fp32"), (1e-3, 5e-5, 1e-5)),
    "autoencoder": (replace(RUNS["E"], precision="fp32"), (1e-2, 1e-3, 1e-4)),
}
EPS = (1e-8, 1e-4)
PRECISIONS = (
    ("fp32", None),
    ("pure_fp16", None),
    ("pure_bf16", None),
    ("fp16_unscaled", None),
    ("fp16", 256.0),
    ("fp16", None),
    ("bf16", None),
)


def short(loss: float) -> float | None:
    return float(f"{loss:.4g}") if math.isfinite(loss) else None


def main(file):
    torch.set_num_threads(1)
    runs = []
    for task, (trial, rates) in TASKS.items():
        for lr, eps, (precision, scale) in itertools.product(rates, EPS, PRECISIONS):
            outcome = run(replace(trial, lr=lr, eps=eps, precision=precision, loss_scale=scale))
            runs.append(
                {
                    "task": task,
                    "lr": lr,
                    "eps": eps,
                    "precision": precision,
                    "loss_scale": scale,
                    "losses": [short(loss) for loss in outcome.losses],
                    "zero_gradients": round(outcome.zero_gradients, 4),
                    "moved": round(outcome.usual_move, 4),
                }
            )
            print(task, lr, eps, precision, scale, runs[-1]["losses"][-1], flush=True)

    record = about(__file__, __doc__, cpu("emulated by labkit"), torch=torch.__version__)
    record["provenance"] = (
        f"emulated on a CPU ({platform.machine()}, torch {torch.__version__}), {record['date']}"
    )
    write(file, record | {"runs": runs}, "},{")


if __name__ == "__main__":
    main(file_of(__doc__, "emulated/three_crimes.json"))
