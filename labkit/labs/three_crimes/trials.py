"""The five small training runs of lab 01, A to E: three of them fail, each of another cause.

A ``Trial`` holds the settings of a run, and a repair changes one of them. ``run`` trains it and
keeps, beside the losses, which gradients are 0 and which weights move. Which run fails, and why,
is measured in tests/labs/three_crimes/test_three_crimes_runs.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice, repeat
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from labkit.training import StepRecord, train
from labkit.training.batches import Batch
from labkit.training.data import batches, digits
from labkit.training.models import mlp
from labkit.training.scaling import LossScale

_BATCH = 64


_NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "digits": lambda: mlp(64, 256, 10),
    # A sigmoid keeps each error below 1, and so each gradient of the mean below 2 / elements.
    "autoencoder": lambda: nn.Sequential(mlp(64, 32, 64), nn.Sigmoid()),
}

# "adam" is one operator after the other on every device, so that its format is that of the weights.
_OPTIMIZERS = {
    "adam": lambda p, trial: torch.optim.Adam(p, lr=trial.lr, eps=trial.eps, foreach=False),
    "sgd": lambda p, trial: torch.optim.SGD(p, lr=trial.lr),
}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The settings of one run.

    Args:
        precision: one of ``labkit.training.PRECISIONS``.
        task: "digits" tells digits apart by a cross-entropy, 64 images a step; "autoencoder"
            rebuilds all 1,438 training images at once, by a mean squared error.
        optimizer: "adam" or "sgd". ``eps`` is Adam's.
        loss_weight: what the loss is multiplied by before anything else.
        loss_scale: a static loss scale for "fp16"; None leaves ``train`` its dynamic one.
    """

    precision: str
    task: str = "digits"
    optimizer: str = "adam"
    lr: float = 1e-3
    eps: float = 1e-8
    loss_weight: float = 1.0
    loss_scale: float | None = None
    steps: int = 60

    def __post_init__(self) -> None:
        for name, allowed in (("task", tuple(_NETWORKS)), ("optimizer", tuple(_OPTIMIZERS))):
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"{name} is {value!r}: choose {' or '.join(map(repr, allowed))}")
        if self.loss_scale is not None and self.precision != "fp16":
            raise ValueError(
                f"loss_scale={self.loss_scale!r} with precision={self.precision!r}: only 'fp16' "
                "scales its loss; choose it, or leave loss_scale out"
            )


@dataclass(frozen=True)
class RunEvidence:
    """What a run leaves behind.

    Args:
        records: one a step. The losses are divided by ``loss_weight``, so that runs compare.
        zero_gradients: share of the gradients of step 0 that are exactly 0.
        moved: for each step, the share of the weights that it changed; a NaN that stays NaN is
            unchanged, as ``train`` skips the step.
        weights_finite: after the last step, no weight is inf or NaN.
        test: on images not trained on: the share of right classes, or the mean squared error.
    """

    records: tuple[StepRecord, ...]
    zero_gradients: float
    moved: tuple[float, ...]
    weights_finite: bool
    test: float

    @property
    def usual_move(self) -> float:
        """The share of the weights that changes in a usual step: the median of ``moved``."""
        return median(self.moved)

    @property
    def losses(self) -> list[float]:
        """The loss of each step."""
        return [record.loss for record in self.records]

    @property
    def final_loss(self) -> float:
        """The mean loss of the last 20 steps: one batch more or less does not show."""
        last = self.losses[-20:]
        return sum(last) / len(last)


RUNS = {
    "A": Trial(precision="fp16_unscaled"),
    "B": Trial(precision="pure_fp16", optimizer="sgd", lr=0.1),
    "C": Trial(precision="pure_fp16"),
    "D": Trial(precision="pure_bf16", lr=5e-5, steps=300),
    "E": Trial(precision="fp16_unscaled", task="autoencoder", loss_weight=1e-3, lr=1e-2),
}
"""The five runs: A and B end as in FP32; C, D and E do not."""


@lru_cache(maxsize=32)
def run(trial: Trial, *, seed: int = 0) -> RunEvidence:
    """Run a trial from the first weights that ``seed`` draws, and keep its evidence.

    The same trial and seed give the same outcome, so a second call costs nothing. The global
    random state is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _NETWORKS[trial.task]()
    optimizer = _OPTIMIZERS[trial.optimizer](model.parameters(), trial)
    before, zeros, moved = parameters_to_vector(model.parameters()).detach(), [], []

    def look(record: StepRecord) -> None:
        nonlocal before
        if record.step == 0:
            gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
            zeros.append((gradients == 0).float().mean().item())
            # `pure_*` casts the weights before the first step.
            before = before.to(gradients.dtype)
        after = parameters_to_vector(model.parameters()).detach()
        same = (after == before) | (after.isnan() & before.isnan())
        moved.append((~same).float().mean().item())
        before = after

    records = train(
        model,
        _steps(trial, seed),
        optimizer=optimizer,
        loss_fn=lambda output, target: trial.loss_weight * _loss(trial, output, target),
        precision=trial.precision,
        scaler=LossScale.static(trial.loss_scale) if trial.loss_scale else None,
        on_step=look,
        progress=False,
    )
    kept = tuple(replace(record, loss=record.loss / trial.loss_weight) for record in records)
    finite = bool(before.isfinite().all())  # what look saw after the last step
    return RunEvidence(kept, zeros[0], tuple(moved), finite, _test(trial, model))


def _loss(trial: Trial, output: Tensor, target: Tensor) -> Tensor:
    return (F.cross_entropy if trial.task == "digits" else F.mse_loss)(output, target)


def _steps(trial: Trial, seed: int) -> Iterator[Batch]:
    data = digits()
    images = data.train_images.flatten(1)
    if trial.task == "autoencoder":
        return repeat((images, images), trial.steps)
    loader = batches(images, data.train_labels, _BATCH, seed=seed, drop_last=True)
    return islice(chain.from_iterable(repeat(loader)), trial.steps)


def _test(trial: Trial, model: nn.Module) -> float:
    """The float32 view of the weights that came out, so that only training differs."""
    data = digits()
    images = data.test_images.flatten(1)
    with torch.no_grad():
        output = model.float()(images)
    if trial.task == "digits":
        return (output.argmax(dim=1) == data.test_labels).float().mean().item()
    return F.mse_loss(output, images).item()
