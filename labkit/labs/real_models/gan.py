"""A GAN in 16 bits on eight blobs: two networks, two optimizers, one loss scaler, and averages."""

import copy
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from labkit.training.arguments import scaler_for
from labkit.training.precision import active, precision_named

BLOBS = 8
RADIUS, SPREAD = 2.0, 0.1
DECAY = 0.995
"""Of the generator's moving averages: a step goes 0.5 % of the way to its weights."""


def ring_points(n: int, generator: torch.Generator) -> Tensor:
    """``n`` points, N x 2, around eight centres at a distance of 2 from the origin."""
    angle = torch.randint(BLOBS, (n,), generator=generator) * (2 * math.pi / BLOBS)
    centres = RADIUS * torch.stack([angle.cos(), angle.sin()], dim=1)
    return centres + SPREAD * torch.randn(n, 2, generator=generator)


def blobs_found(points: Tensor) -> int:
    """How many of the eight blobs have 1 % of the points: in their eighth, and near their radius.

    Near is within 0.4, four standard deviations of a blob. Each has 12.5 % of the data.
    """
    angle = torch.atan2(points[:, 1], points[:, 0]) / (2 * math.pi / BLOBS)
    near = (points.norm(dim=1) - RADIUS).abs() < 4 * SPREAD
    counts = (angle.round() % BLOBS)[near].long().bincount(minlength=BLOBS)
    return int((counts >= 0.01 * len(points)).sum())


@dataclass(frozen=True, eq=False)
class RingRun:
    """A GAN after its training on the ring.

    Args:
        told: for each step the share of real and generated points that D told right before it.
        samples: 2,000 points of the generator as it is ("raw"), and of its moving averages, by
            their dtype.
    """

    told: list[float]
    samples: dict[str, Tensor]

    @property
    def accuracy(self) -> tuple[float, float]:
        """D's: the highest mean of 20 steps in a row, and the mean of the last 100."""
        windows = [sum(self.told[i : i + 20]) / 20 for i in range(0, len(self.told) - 19, 20)]
        return max(windows), sum(self.told[-100:]) / len(self.told[-100:])


def ring_run(*, precision: str, seed: int) -> RingRun:
    """Train a GAN on the ring: two hidden layers of 64 each, 600 steps of 128 points.

    ``labkit.training.train`` has one loss and one optimizer; a GAN has two of each. A network whose
    own gradient overflows stays as it was, and the scaler is updated once, after both.
    """
    torch.manual_seed(seed)
    generator, discriminator = _network(4, 2), _network(2, 1)
    d_adam, g_adam = (
        torch.optim.Adam(network.parameters(), lr=1e-3, betas=(0.5, 0.9))
        for network in (discriminator, generator)
    )
    averages = {
        str(dtype).removeprefix("torch."): copy.deepcopy(generator).to(dtype)
        for dtype in (torch.float32, torch.bfloat16)
    }
    plan, cpu = precision_named(precision), torch.device("cpu")
    scaler, told = scaler_for(None, plan, cpu), []
    points, noise = (torch.Generator().manual_seed(seed) for _ in range(2))
    with active(plan, cpu) as autocast:
        for _ in range(600):
            real, z = ring_points(128, points), torch.randn(128, 4, generator=noise)
            with autocast():
                fake = generator(z)
                # D must not send a gradient into G.
                on_real, on_fake = discriminator(real), discriminator(fake.detach())
                d_loss = _loss(on_real, 1.0) + _loss(on_fake, 0.0)
            right = (on_real > 0).float().mean() + (on_fake <= 0).float().mean()
            told.append(right.item() / 2)
            _step(d_adam, d_loss, scaler)

            # A block of its own: the first one's copies are of D's old weights.
            with autocast():
                g_loss = _loss(discriminator(fake), 1.0)
            _step(g_adam, g_loss, scaler)
            scaler.update()
            for average in averages.values():
                follow(average, generator)
    z = torch.randn(2000, 4, generator=points)
    models = {"raw": generator} | {name: kept.float() for name, kept in averages.items()}
    with torch.no_grad():
        return RingRun(told, {name: model(z) for name, model in models.items()})


def _loss(logits: Tensor, label: float) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))


def _step(optimizer: Optimizer, loss: Tensor, scaler: torch.amp.GradScaler) -> None:
    optimizer.zero_grad()  # another loss left gradients in these parameters
    scaler.scale(loss).backward()
    scaler.step(optimizer)


@torch.no_grad()
def follow(average: nn.Module, model: nn.Module, decay: float = DECAY) -> None:
    """Take a moving average ``1 - decay`` of the way to the model's parameters, in its dtype."""
    for kept, parameter in zip(average.parameters(), model.parameters(), strict=True):
        kept.lerp_(parameter.to(kept.dtype), 1 - decay)


def _network(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, 64), nn.LeakyReLU(0.2),
        nn.Linear(64, 64), nn.LeakyReLU(0.2),
        nn.Linear(64, outputs),
    )  # fmt: skip
