"""``accuracy_impact``: whether a precision costs accuracy, from runs in pairs.

Each pair trains from the same weights on the same batches, so all that differs is the arithmetic.
``verdicts`` says what the differences mean against a margin that was named beforehand.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from tqdm.auto import tqdm

from labkit.base.home import Picture
from labkit.measuring.showing import intervals, table
from labkit.measuring.verdicts import Verdict, check_margin, verdict
from labkit.training.batches import Batch, Loss, check_batch
from labkit.training.loop import evaluate, train
from labkit.training.precision import check_values, device_named, precision_named


@dataclass(frozen=True)
class Impact:
    """What ``accuracy_impact`` returns. Accuracies are shares from 0 to 1.

    Args:
        seeds: one pair each.
        accuracies: for each mode the test accuracy of each seed.
        comparisons: for each mode but the first, its accuracy minus that of the first.
        control: the first mode from weights that were rounded once to bfloat16, minus itself: what
            chance makes of a rounding. Batches and their order are those of the pair.
        margin: the largest difference in accuracy that would not matter.
    """

    seeds: tuple[int, ...]
    accuracies: dict[str, tuple[float, ...]]
    comparisons: dict[str, Verdict]
    control: Verdict
    margin: float

    @property
    def trouble(self) -> str:
        """Why the verdicts are not to be trusted: a bad A/A control. Empty if they are."""
        if self.control.answer == "equivalent":
            return ""
        return (
            f"Bad A/A control: {self._first} from weights rounded once is {self.control.answer}, "
            "not equivalent to itself. Take more seeds or more test data."
        )

    @property
    def _first(self) -> str:
        return next(iter(self.accuracies))

    def describe(self) -> str:
        """The control and each comparison, as lines of text."""
        lines = [f"A/A control, {self._first} from weights rounded once: {self.control.describe()}"]
        lines += [self.trouble] if self.trouble else []
        for mode, found in self.comparisons.items():
            lines.append(f"{mode} - {self._first}: {found.describe()}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = []
        for mode, found in self.accuracies.items():
            said = self.comparisons.get(mode, self.control)
            rows.append(
                {
                    "mode": mode,
                    "test accuracy (seeds)": f"{fmean(found):.4f} ({min(found):.4f} to "
                    f"{max(found):.4f})",
                    f"minus {self._first}": f"{'A/A ' * (said is self.control)}{said.mean:+.4f} "
                    f"(95 % CI {said.low:+.4f} to {said.high:+.4f}{', one step' * said.coarse})",
                    "verdict": "" if said is self.control else said.answer,
                }
            )
        below = (
            f"{len(self.seeds)} pairs; margin {self.margin:g}; one step of the measure is "
            f"{self.control.step:.2g}."
        )
        return table(rows, above=[self.trouble] if self.trouble else [], below=below)

    def plot(self) -> Picture:
        """The differences of all pairs with their intervals, the A/A control first."""
        found = {f"{self._first}, rounded once": self.control} | self.comparisons
        said = ["A/A control", *(v.answer for v in self.comparisons.values())]
        return intervals(
            {
                name: (v.differences, v.low, v.mean, v.high, word)
                for (name, v), word in zip(found.items(), said, strict=True)
            },
            none=0,
            margin=(-self.margin, self.margin),
            label=f"test accuracy minus that of {self._first}",
            caption=f"Measured: {len(self.seeds)} paired runs. {self.trouble}".strip(),
        )


def accuracy_impact(
    modes: Sequence[str] = ("fp32", "bf16"),
    *,
    make: Callable[[], tuple[nn.Module, Optimizer]],
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
    _check_modes(modes)
    seeds, device = tuple(seeds), device_named(device)
    if len(set(seeds)) != len(seeds) or len(seeds) < 2:
        raise ValueError(f"seeds={seeds}: pass 2 or more, each once, such as range(5)")
    for name, value in (("epochs", epochs), ("batch_size", batch_size)):
        if value != int(value) or value < 1:
            raise ValueError(f"{name}={value!r}: pass a whole number from 1 on")
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
        batches = _Shuffled(*train_data, batch_size, seed)
        train(
            model,
            batches,
            optimizer=optimizer,
            loss_fn=loss_fn,
            precision=mode,
            epochs=epochs,
            device=device,
            progress=False,
        )
        found = evaluate(model, *test_data, precision=mode)
        bar.update()
        return found

    first, *others = modes
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        tqdm(
            total=len(seeds) * (len(modes) + 1), desc="runs", leave=False, disable=not progress
        ) as bar,
    ):
        found = {mode: tuple(accuracy(mode, seed) for seed in seeds) for mode in modes}
        again = [accuracy(first, seed, rounded=True) for seed in seeds]
    step = 1 / test_data[1].numel()  # one image more or less

    def over_first(accuracies: Sequence[float]) -> list[float]:
        return [one - other for one, other in zip(accuracies, found[first], strict=True)]

    control = over_first(again)

    return Impact(
        seeds=seeds,
        accuracies=found,
        comparisons={
            mode: verdict(over_first(found[mode]), margin, control=control, step=step)
            for mode in others
        },
        control=verdict(control, margin, step=step),
        margin=margin,
    )


class _Shuffled:
    """The samples in batches, in another order each epoch; the orders follow from the seed."""

    def __init__(self, inputs: Tensor, targets: Tensor, batch_size: int, seed: int) -> None:
        self.inputs, self.targets, self.batch_size = inputs, targets, batch_size
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[Batch]:
        order = torch.randperm(len(self.inputs), generator=self.generator)
        for part in order.split(self.batch_size):
            yield self.inputs[part], self.targets[part]


def _check_modes(modes: Sequence[str]) -> None:
    for mode in modes:
        precision_named(mode)
    if isinstance(modes, str) or len(modes) < 2 or len(set(modes)) != len(modes):
        raise ValueError(
            f"modes={modes!r}: pass two or more different ones, such as ('fp32', 'bf16'). The A/A "
            "control of the first is made without being asked for"
        )
