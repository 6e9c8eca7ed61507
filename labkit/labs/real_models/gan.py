"""A GAN in 16 bits: two networks, two optimizers, one loss scaler, and the generator's average."""

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from labkit.training.arguments import Scaler, check_model, prepare, scaler_for
from labkit.training.precision import active, device_named, precision_named

BLOBS = 8
RADIUS, SPREAD = 2.0, 0.1


@dataclass(frozen=True)
class GanStep:
    """One step of D and one of G.

    Args:
        step: 0 for the first.
        d_loss, g_loss: not scaled.
        d_accuracy: the share of real and generated samples that D told right, before its step.
        loss_scale: what both losses were multiplied by; 1.0 without a scaler.
        d_skipped, g_skipped: a gradient of this network was inf or NaN, so it stayed as it was.
    """

    step: int
    d_loss: float
    g_loss: float
    d_accuracy: float
    loss_scale: float
    d_skipped: bool
    g_skipped: bool


def train_gan(
    generator: nn.Module,
    discriminator: nn.Module,
    batches: Iterable[Tensor | tuple[Tensor, Tensor]],
    *,
    noise: int,
    d_optimizer: Optimizer,
    g_optimizer: Optimizer,
    precision: str = "fp16",
    scaler: Scaler | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
    on_step: Callable[[GanStep], object] | None = None,
) -> list[GanStep]:
    """Train both networks in place, D and then G on each batch; a record of each step.

    Each network's step is skipped by itself if a gradient of its own is inf or NaN, and the one
    scaler is updated once, after both.

    Args:
        generator: noise, N x ``noise`` -> samples of the shape of the data's.
        discriminator: samples -> logits, N x 1; above 0 means "of the data".
        batches: samples, or (samples, labels), whose labels are dropped.
        d_optimizer, g_optimizer: each over the parameters of its network.
        scaler: in place of a fresh one, as in ``labkit.training.train``.
        seed: of the noise.

    Raises:
        ValueError: D ends with a sigmoid; the data have another shape than G's samples; else as
            ``labkit.training.train``.
    """
    plan, device = precision_named(precision), device_named(device)
    check_model(discriminator, d_optimizer, None, plan)
    check_model(generator, g_optimizer, None, plan)
    _refuse_sigmoid(discriminator)
    scaler = scaler_for(scaler, plan, device)
    drawn = torch.Generator().manual_seed(seed)
    steps: list[GanStep] = []
    with active(plan, device) as autocast:
        for network in (generator, discriminator):
            prepare(network, plan, device)
        for batch in batches:
            real = (batch if isinstance(batch, Tensor) else batch[0]).to(device, plan.parameters)
            z = torch.randn(len(real), noise, generator=drawn).to(device, plan.parameters)

            with autocast():
                fake = generator(z)
                _check_shape(real, fake)
                # D must not send a gradient into G.
                on_real, on_fake = discriminator(real), discriminator(fake.detach())
                d_loss = _loss(on_real, 1.0) + _loss(on_fake, 0.0)
            accuracy = ((on_real > 0).float().mean() + (on_fake <= 0).float().mean()) / 2
            d_stepped = _step(d_optimizer, d_loss, scaler)

            # A block of its own: the first one's copies are of D's old weights.
            with autocast():
                g_loss = _loss(discriminator(fake), 1.0)
            g_stepped = _step(g_optimizer, g_loss, scaler)

            scale = scaler.get_scale()
            scaler.update()
            numbers = (d_loss.item(), g_loss.item(), accuracy.item(), scale)
            steps.append(GanStep(len(steps), *numbers, not d_stepped, not g_stepped))
            if on_step is not None:
                on_step(steps[-1])
    return steps


def _loss(logits: Tensor, label: float) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))


def _step(optimizer: Optimizer, loss: Tensor, scaler: torch.amp.GradScaler) -> bool:
    """Whether the optimizer stepped; it clears what another loss left in its gradients."""
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    gradients = [
        p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None
    ]
    finite = all(bool(gradient.isfinite().all()) for gradient in gradients)
    if finite or scaler.is_enabled():
        scaler.step(optimizer)  # which skips by itself if it is enabled
    return finite


def _refuse_sigmoid(discriminator: nn.Module) -> None:
    *_, last = discriminator.modules()
    if isinstance(last, nn.Sigmoid):
        raise ValueError(
            "discriminator ends with a Sigmoid: leave it out. The loss is "
            "binary_cross_entropy_with_logits, since CUDA's autocast refuses binary_cross_entropy"
        )


def _check_shape(real: Tensor, fake: Tensor) -> None:
    if real.shape != fake.shape:
        raise ValueError(
            f"a batch has shape {tuple(real.shape)}, and the generator makes {tuple(fake.shape)}: "
            "give it samples of the size that both networks were built for"
        )


class MovingAverage:
    """The exponential moving average of a model's parameters, in a dtype.

    Attributes:
        model: a copy of the model that holds the average, in eval mode. Its buffers are the last.
    """

    def __init__(
        self, model: nn.Module, *, decay: float, dtype: torch.dtype = torch.float32
    ) -> None:
        self.decay, self.model = decay, copy.deepcopy(model).to(dtype).eval()

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Go ``1 - decay`` of the way to the model's parameters."""
        for average, parameter in zip(self.model.parameters(), model.parameters(), strict=True):
            average.lerp_(parameter.to(average.dtype), 1 - self.decay)
        for kept, buffer in zip(self.model.buffers(), model.buffers(), strict=True):
            kept.copy_(buffer)


# A data set for it: eight blobs on a ring


def ring(n: int, generator: torch.Generator) -> Tensor:
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
        steps: their records.
        samples: by "raw" and the dtype of the generator's average, 2,000 points each.
    """

    steps: list[GanStep]
    samples: dict[str, Tensor]

    @property
    def accuracy(self) -> tuple[float, float]:
        """D's: the highest mean of 20 steps in a row, and the mean of the last 100."""
        told = [step.d_accuracy for step in self.steps]
        windows = [sum(told[i : i + 20]) / 20 for i in range(0, len(told) - 19, 20)]
        return max(windows), sum(told[-100:]) / len(told[-100:])


def ring_run(*, precision: str, seed: int) -> RingRun:
    """Train a GAN on the ring: two hidden layers of 64 each, 600 steps of 128 points."""
    torch.manual_seed(seed)
    generator, discriminator = _network(4, 2), _network(2, 1)
    optimizers = [
        torch.optim.Adam(network.parameters(), lr=1e-3, betas=(0.5, 0.9))
        for network in (discriminator, generator)
    ]
    averages = {
        str(dtype).removeprefix("torch."): MovingAverage(generator, decay=0.995, dtype=dtype)
        for dtype in (torch.float32, torch.bfloat16)
    }
    drawn = torch.Generator().manual_seed(seed)
    records = train_gan(
        generator,
        discriminator,
        (ring(128, drawn) for _ in range(600)),
        noise=4,
        d_optimizer=optimizers[0],
        g_optimizer=optimizers[1],
        precision=precision,
        seed=seed,
        on_step=lambda _: [average.update(generator) for average in averages.values()],
    )
    z = torch.randn(2000, 4, generator=drawn)
    models = {"raw": generator} | {name: kept.model.float() for name, kept in averages.items()}
    with torch.no_grad():
        return RingRun(records, {name: model(z) for name, model in models.items()})


def _network(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, 64), nn.LeakyReLU(0.2),
        nn.Linear(64, 64), nn.LeakyReLU(0.2),
        nn.Linear(64, outputs),
    )  # fmt: skip
