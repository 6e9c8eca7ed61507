"""Whether a precision costs accuracy: paired runs, an interval, and a margin named beforehand.

"No significant difference" is not "no difference". Two precisions are equivalent when a confidence
interval of their difference fits inside a margin; an interval that does not is an honest
"inconclusive". ``verdict`` says that of any differences; ``accuracy_impact`` trains the pairs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan, sqrt
from statistics import fmean, stdev

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from tqdm.auto import tqdm

from labkit.training.loop import Batch, check_batch, cross_entropy, evaluate, train
from labkit.training.precision import device_named, precision_named

# The 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom: NIST/SEMATECH e-Handbook of
# Statistical Methods, section 1.3.6.7.2.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True)
class Verdict:
    """What paired differences say against a margin.

    Args:
        differences: one a pair, in the unit of the margin; above 0 is better.
        margin: the largest difference that would not matter.
        mean: of the differences; NaN if one of them is not finite.
        low, high: ends of the 95 % confidence interval of the mean; NaN likewise.
        answer: "equivalent", "worse", "better" or "inconclusive".
    """

    differences: tuple[float, ...]
    margin: float
    mean: float
    low: float
    high: float
    answer: str

    def describe(self) -> str:
        """One line, with the unit as it came in."""
        return (
            f"{self.mean:+.4f} (95 % CI {self.low:+.4f} to {self.high:+.4f}, "
            f"{len(self.differences)} pairs) against a margin of {self.margin:g}: {self.answer}"
        )


def verdict(differences: Sequence[float], margin: float) -> Verdict:
    """Equivalent, worse, better or inconclusive, by a 95 % interval from Student's t.

    "equivalent": the interval lies inside -margin to +margin, also where it leaves out 0. "worse":
    all of it below -margin. "better": all of it above +margin. Anything else is "inconclusive".
    Above 30 degrees of freedom the quantile stays that of 30, 2.042: the exact one falls to 1.960,
    so the interval is at most 4 % too wide and never too narrow.

    A difference that is NaN or infinite (a run that left no number) makes the interval NaN and the
    answer "inconclusive": which of the two runs failed is not known here.

    Raises:
        ValueError: fewer than 2 differences, or a margin that is not above 0.

    >>> verdict([0.2, -0.3, -0.1, 0.4, -0.7], margin=0.5).describe()
    '-0.1000 (95 % CI -0.6340 to +0.4340, 5 pairs) against a margin of 0.5: inconclusive'
    """
    differences = tuple(map(float, differences))
    if len(differences) < 2:
        raise ValueError(
            f"{len(differences)} paired differences have no spread: pass 2 or more, 5 is usual"
        )
    _check_margin(margin)
    if not all(map(isfinite, differences)):
        return Verdict(differences, margin, nan, nan, nan, "inconclusive")
    quantile = _T[min(len(differences) - 1, len(_T)) - 1]
    mean = fmean(differences)
    half = quantile * stdev(differences) / sqrt(len(differences))
    low, high = mean - half, mean + half
    return Verdict(differences, margin, mean, low, high, _answer(low, high, margin))


def _answer(low: float, high: float, margin: float) -> str:
    if high < -margin:
        return "worse"
    if low > margin:
        return "better"
    return "equivalent" if -margin < low and high < margin else "inconclusive"


@dataclass(frozen=True)
class Impact:
    """What ``accuracy_impact`` returns. Accuracies are shares from 0 to 1.

    Args:
        seeds: one pair each.
        accuracies: for each mode the test accuracy of each seed.
        comparisons: for each mode but the first, its accuracy minus that of the first.
        control: the first mode in another order of its batches, minus itself: what chance does.
        margin: the largest difference in accuracy that would not matter.
    """

    seeds: tuple[int, ...]
    accuracies: dict[str, tuple[float, ...]]
    comparisons: dict[str, Verdict]
    control: Verdict
    margin: float

    def describe(self) -> str:
        """All of it as lines of text."""
        first, *_ = self.accuracies
        lines = [
            f"{mode}: test accuracy {fmean(found):.4f} (seeds {min(found):.4f} to {max(found):.4f})"
            for mode, found in self.accuracies.items()
        ]
        lines.append(f"A/A control, {first} in another order: {self.control.describe()}")
        if self.control.answer == "inconclusive":
            lines.append(
                f"The control is inconclusive: these pairs cannot even show that {first} is as "
                "good as itself to within the margin. Take more seeds or more test data before you "
                "believe a verdict"
            )
        elif self.control.answer != "equivalent":
            lines.append(
                f"The control is {self.control.answer}, and both of its arms are {first}: these "
                "pairs find a difference where there is none. Take more seeds before you believe "
                "a verdict"
            )
        for mode, found in self.comparisons.items():
            lines.append(f"{mode} - {first}: {found.describe()}")
        return "\n".join(lines)


def accuracy_impact(
    modes: Sequence[str] = ("fp32", "bf16"),
    *,
    make: Callable[[], tuple[nn.Module, Optimizer]],
    train_data: Batch,
    test_data: Batch,
    epochs: int = 5,
    batch_size: int = 64,
    loss_fn: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
    seeds: Sequence[int] = range(5),
    margin: float = 0.005,
    device: str | torch.device = "cpu",
    progress: bool = True,
) -> Impact:
    """Train each mode from the same weights on the same batches, seed by seed, and compare.

    The first mode is trained once more for each seed, from the same weights with its batches in
    another order: the A/A control. The global random state is left as it was.

    Args:
        modes: two or more of PRECISIONS; the others are compared with the first.
        make: gives a fresh (model, optimizer). It is called after ``torch.manual_seed(seed)`` for
            every run, and must draw the weights from torch's global generator.
        train_data, test_data: (inputs, targets). The test data must not be trained on.
        seeds: two or more, none twice; each gives one pair.
        margin: the largest difference in accuracy that would not matter, decided before the run:
            0.005 is half a percentage point.

    Raises:
        ValueError: an argument is not as described, or samples and labels differ in number.
    """
    _check_modes(modes)
    seeds, device = tuple(seeds), device_named(device)
    if len(set(seeds)) != len(seeds) or len(seeds) < 2:
        raise ValueError(f"seeds={seeds}: pass 2 or more, each once, such as range(5)")
    for name, value in (("epochs", epochs), ("batch_size", batch_size)):
        if value != int(value) or value < 1:
            raise ValueError(f"{name}={value!r}: pass a whole number from 1 on")
    _check_margin(margin)
    check_batch(train_data, "train_data")
    check_batch(test_data, "test_data")

    def accuracy(mode: str, seed: int, order: int) -> float:
        torch.manual_seed(seed)
        model, optimizer = make()
        # Whatever else is drawn, such as dropout, is the same for every mode.
        torch.manual_seed(seed)
        batches = _Shuffled(*train_data, batch_size, order)
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
        found = {mode: tuple(accuracy(mode, s, order=s) for s in seeds) for mode in modes}
        unused = range(max(seeds) + 1, max(seeds) + 1 + len(seeds))
        again = [accuracy(first, s, order=order) for s, order in zip(seeds, unused, strict=True)]

    def over_first(accuracies: Sequence[float]) -> Verdict:
        pairs = zip(accuracies, found[first], strict=True)
        return verdict([one - other for one, other in pairs], margin)

    return Impact(
        seeds=seeds,
        accuracies=found,
        comparisons={mode: over_first(found[mode]) for mode in others},
        control=over_first(again),
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


def _check_margin(margin: float) -> None:
    if not 0 < margin < inf:
        raise ValueError(f"margin={margin!r}: pass a difference above 0 that would not matter")
