"""Does precision change what a network learns? ``python -m tests.benchmarks.bench_digits``.

The small conv net learns the digits under float32, and under float16 and bfloat16 autocast on the
emulated GPU. A seed fixes the split, the first weights and the order of the batches, so the runs
of one seed form a pair that differs in its precision only. float32 runs twice a seed, the second
time with another order of the batches: what equal work may differ by, the A/A column. All numbers
are points of test accuracy; one image more or less is 0.28 points. Nothing is asserted.

``--seeds 5 --epochs 15`` is the default and takes some ten minutes on one core.
"""

import argparse
import statistics
import time

import torch

from labkit.training import evaluate, train
from labkit.training.data import batches, digits
from labkit.training.models import SmallCNN

ARMS = {
    "fp32": ("fp32", 0),
    "A/A": ("fp32", 1000),
    "fp16": ("fp16", 0),
    "bf16": ("bf16", 0),
}
"""Column -> precision, and what is added to the seed of the order."""


def accuracy(seed: int, order_seed: int, precision: str, epochs: int) -> float:
    """Points of test accuracy after training."""
    split = digits(seed)
    torch.manual_seed(seed)
    model = SmallCNN()
    train(
        model,
        batches(split.train_images, split.train_labels, batch_size=32, seed=order_seed),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        precision=precision,
        epochs=epochs,
        progress=False,
    )
    return 100 * evaluate(model, split.test_images, split.test_labels, precision=precision)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"Test accuracy after {arguments.epochs} epochs, torch {torch.__version__}; "
        "A/A, fp16, bf16: points over fp32"
    )
    print(f"{'seed':>6}{'fp32':>9}" + "".join(f"{arm:>8}" for arm in list(ARMS)[1:]) + "   fp32 s")
    over: dict[str, list[float]] = {arm: [] for arm in list(ARMS)[1:]}
    for seed in range(arguments.seeds):
        start = time.thread_time()
        base = accuracy(seed, seed, "fp32", arguments.epochs)
        seconds = time.thread_time() - start
        for arm, differences in over.items():
            precision, shift = ARMS[arm]
            differences.append(accuracy(seed, seed + shift, precision, arguments.epochs) - base)
        row = "".join(f"{differences[-1]:8.2f}" for differences in over.values())
        print(f"{seed:6}{base:9.2f}{row}{seconds:9.1f}", flush=True)
    for name, summary in (
        ("mean", statistics.mean),
        ("largest", lambda differences: max(map(abs, differences))),
    ):
        row = "".join(f"{summary(differences):8.2f}" for differences in over.values())
        print(f"{name:>15}{row}")


if __name__ == "__main__":
    main()
