"""``accuracy_impact``: whether a precision costs accuracy, from runs in pairs.

Each pair trains from the same weights on the same batches, so all that differs is the arithmetic.
``verdicts`` says what the differences mean against a margin that was named beforehand.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from tqdm.auto import tqdm

from labkit.measuring.html_tables import table
from labkit.measuring.speed import Make, check_modes, check_whole
from labkit.measuring.verdicts import Verdict, check_margin, verdict
from labkit.training.batches import Batch, Loss, check_batch
from labkit.training.loop import evaluate, train
from labkit.training.precision import check_values, device_named


@dataclass(frozen=True)
class Impact:
    """What ``accuracy_impact`` returns. Accuracies are shares from 0 to 1.

    Args:
        accuracies: for each mode the test accuracy of each seed.
        comparisons: for each mode its accuracy minus that of the first. Of the first mode itself it
            is the A/A control, from weights that were rounded once to bfloat16: what chance makes
            of a rounding. Batches and their order are those of the pair.
    """

    accuracies: dict[str, tuple[float, ...]]
    comparisons: dict[str, Verdict]

    @property
    def trouble(self) -> str:
        """Why the verdicts are not to be trusted: a bad A/A control. Empty if they are."""
        first, control = next(iter(self.comparisons.items()))
        if control.answer == "equivalent":
            return ""
        return (
            f"Bad A/A control: {first} from weights rounded once is {control.answer}, not "
            "equivalent to itself. Take more seeds or more test data."
        )

    def describe(self) -> str:
        """The control and each comparison, as lines of text."""
        first, *others = self.comparisons
        control = self.comparisons[first].describe()
        lines = [f"A/A control, {first} from weights rounded once: {control}"]
        lines += [self.trouble] if self.trouble else []
        return "\n".join(
            [*lines, *(f"{one} - {first}: {self.comparisons[one].describe()}" for one in others)]
        )

    def _repr_html_(self) -> str:
        first, control = next(iter(self.comparisons.items()))
        rows = [
            {
                "mode": mode,
                "test accuracy (seeds)": f"{fmean(own):.4f} ({min(own):.4f} to {max(own):.4f})",
                f"minus {first}": self.comparisons[mode].interval,
                "verdict": "A/A control" if mode == first else self.comparisons[mode].answer,
            }
            for mode, own in self.accuracies.items()
        ]
        below = (
            f"{len(control.pairs)} pairs; margin {control.margin:g}; one step of the measure is "
            f"{control.step:.2g}. A/A: {first} from weights rounded once."
        )
        return table(rows, above=[self.trouble] if self.trouble else [], below=below)


def accuracy_impact(
    modes: Sequence[str] = ("fp32", "bf16"),
    *,
    make: Make,
    train_data: Batch,
    test_data: Batch,
    epochs: int = 5,
    batch_size: int = 64,
    loss_fn: Loss | None = None,
    seeds: Sequence[int] = range(5),
    margin: float = 0.005,
    device: str | torch.device = "cpu",
    progress: bool = True,
) -> Impact:
    """Train each mode from the same weights on the same batches, seed by seed, and compare.

    The first mode is trained once more for each seed, on the same batches in the same order, from
    weights that were rounded once to bfloat16: the A/A control. It varies what the pairs vary, a
    rounding, and the precision stays. The global random state is left as it was.

    Args:
        modes: two or more of PRECISIONS; the others are compared with the first.
        make: gives a fresh (model, optimizer). It is called after ``torch.manual_seed(seed)`` for
            every run, and must draw the weights from torch's global generator.
        train_data, test_data: (inputs, targets). The test data must not be trained on.
        loss_fn: that of ``train``.
        seeds: two or more, none twice; each gives one pair.
        margin: the largest difference in accuracy that would not matter, decided before the run:
            0.005 is half a percentage point.

    Raises:
        ValueError: an argument is not as described, or samples and labels differ in number, or
            ``train`` does not take the model or its parameters are uninitialised.
    """
    check_modes(modes, 2)
    seeds, device = tuple(seeds), device_named(device)
    if len(set(seeds)) != len(seeds) or len(seeds) < 2:
        raise ValueError(f"seeds={seeds}: pass 2 or more, each once, such as range(5)")
    check_whole("epochs", epochs, 1)
    check_whole("batch_size", batch_size, 1)
    check_margin(margin)
    check_batch(train_data, "train_data")
    check_batch(test_data, "test_data")

    def accuracy(mode: str, seed: int, *, rounded: bool = False) -> float:
        torch.manual_seed(seed)
        model, optimizer = make()
        check_values(model)
        if rounded:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_(parameter.bfloat16())
        # Whatever else is drawn, such as dropout, is the same for every mode.
        torch.manual_seed(seed)
        train(
            model,
            _shuffled(train_data, batch_size, epochs, seed),
            optimizer=optimizer,
            loss_fn=loss_fn,
            precision=mode,
            device=device,
            progress=False,
        )
        bar.update()
        return evaluate(model, *test_data, precision=mode)

    total = len(seeds) * (len(modes) + 1)
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        tqdm(total=total, desc="runs", leave=False, disable=not progress) as bar,
    ):
        found = {mode: tuple(accuracy(mode, seed) for seed in seeds) for mode in modes}
        again = [accuracy(modes[0], seed, rounded=True) for seed in seeds]
    step = 1 / test_data[1].numel()  # one image more or less

    def over_first(accuracies: Sequence[float]) -> list[float]:
        return [one - other for one, other in zip(accuracies, found[modes[0]], strict=True)]

    control = over_first(again)
    compared = {modes[0]: verdict(control, margin, step=step)}
    for mode in modes[1:]:
        compared[mode] = verdict(over_first(found[mode]), margin, control=control, step=step)
    return Impact(found, compared)


def _shuffled(data: Batch, batch_size: int, epochs: int, seed: int) -> Iterator[Batch]:
    """The samples in batches, in another order each epoch; the orders follow from the seed."""
    inputs, targets = data
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        order = torch.randperm(len(inputs), generator=generator)
        for part in order.split(batch_size):
            yield inputs[part], targets[part]
