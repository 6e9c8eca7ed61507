"""Small training runs with one mistake in them, and all that a run leaves behind.

Each mistake is a setting of code that really runs, and its repair changes that setting and nothing
else. The network reads a digit row by row, as a sentence is read word by word; digits of fewer than
8 rows are filled up with rows of zeros, and the attention must not look there. ``traced_run``
writes every step down, so that instruments can measure afterwards, at the step that they need.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from labkit.formats import spacing
from labkit.formats.dtypes import format_of
from labkit.training.data import batches, digits
from labkit.training.models import mlp
from labkit.training.precision import active, precision_named

ROWS, WIDTH, CLASSES, BATCH = 8, 32, 10, 64
NO_LABEL = -100
"""The label that ``F.cross_entropy`` leaves out."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The settings of one run; each default is sound.

    Args:
        precision: one of ``labkit.training.PRECISIONS``; whether and how the loss is scaled is the
            scaler's.
        scaler: "none", "checked" (GradScaler's rule) or "unchecked" (grows, never looks for inf).
        growth_interval: good steps before either scaler doubles its scale.
        clip: "none", or where the norm is limited to 1: "after unscale_" or "before unscale_".
        softmax: "shifted" by the maximum, or "bare": exp in place, then divide.
        mask: what is added to the score of a row that is not there: "least" (the smallest finite
            number of the dtype) or "-1e9".
        norm_eps: "below the root" or "after the root".
        loss: "cross entropy", or "log of p": the probability in the dtype of the logits, then log.
        mean: the loss is divided by the number of labels, "guarded": at least 1, or "bare".
        loss_weight: what the loss is multiplied by before anything else.
        sharpness, logit_gain: factors on the scores of the attention and on the logits.
        data: "clean", "nan pixel" (one, once), "no labels" (a batch without) or "shuffled labels".
        bad_step: where the pixel or the batch without labels comes.
        empty_steps: where a batch holds one digit without any row; harmless under a sound mask.
    """

    seed: int = 0
    steps: int = 60
    precision: str = "fp16"
    optimizer: str = "sgd"
    lr: float = 0.1
    eps: float = 1e-8
    scaler: str = "none"
    growth_interval: int = 2000
    clip: str = "none"
    softmax: str = "shifted"
    mask: str = "least"
    norm_eps: str = "below the root"
    loss: str = "cross entropy"
    mean: str = "guarded"
    loss_weight: float = 1.0
    sharpness: float = 1.0
    logit_gain: float = 1.0
    data: str = "clean"
    bad_step: int = 0
    empty_steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class RowBatch:
    """What one step reads: images (N x 8 x 8), the rows of each, labels, and the true labels."""

    images: Tensor
    lengths: Tensor
    labels: Tensor
    true_labels: Tensor


@dataclass(frozen=True)
class TracedStep:
    """All that one step leaves behind.

    Args:
        loss: not scaled, divided by ``loss_weight``.
        loss_scale: 1.0 without a scaler.
        outputs: of each part of the network in the order of the forward pass, in float32.
        gradients: of each parameter as backward left it, divided by the loss scale, in float32.
        before: the parameters before the step, and ``after``: after it, in their own dtype.
        asked: the update that float32 would make of these gradients.
        reached: the norm of the gradients that the optimizer was given.
        skipped: the scaler left the step out.
    """

    step: int
    batch: RowBatch
    loss: float
    loss_scale: float
    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor]
    before: Tensor
    after: Tensor
    asked: Tensor
    reached: float
    skipped: bool


# The network


class Norm(nn.Module):
    """Divides each row by its root mean square."""

    EPS = 1e-3  # In FP16 a much smaller one would overflow in the backward of the root.

    def __init__(self, norm_eps: str) -> None:
        super().__init__()
        self.below = norm_eps == "below the root"
        self.gain = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        square = x.pow(2).mean(-1, keepdim=True)
        if self.below:
            return self.gain * x * (square + self.EPS).rsqrt()
        return self.gain * x / (square.sqrt() + self.EPS)


class Scores(nn.Module):
    """How much each row looks at each other, before the mask: N x rows x rows."""

    def __init__(self, sharpness: float) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.factor = sharpness * WIDTH**-0.5

    def forward(self, x: Tensor) -> Tensor:
        return (self.factor * self.query(x)) @ self.key(x).transpose(1, 2)


class Attention(nn.Module):
    """Mixes the rows that are there, weighted by a softmax of their scores."""

    def __init__(self, settings: RunSettings) -> None:
        super().__init__()
        self.settings = settings
        self.scores = Scores(settings.sharpness)
        self.value, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, missing: Tensor) -> Tensor:
        scores = self.scores(x)
        weights = self._softmax(scores + self._mask(missing, scores.dtype))
        return self.out(weights @ self.value(x))

    def _mask(self, missing: Tensor, dtype: torch.dtype) -> Tensor:
        least = -1e9 if self.settings.mask == "-1e9" else torch.finfo(dtype).min / 2
        return (missing[:, None, :].to(dtype) * least).to(dtype)

    def _softmax(self, scores: Tensor) -> Tensor:
        if self.settings.softmax == "shifted":
            return scores.softmax(-1)
        weights = scores.exp_()  # in place: no memory, and no autocast either
        return weights / weights.sum(-1, keepdim=True)


class Reader(nn.Module):
    """Reads a digit row by row: N x 8 x 8 and the number of rows, to N x 10 logits."""

    def __init__(self, settings: RunSettings) -> None:
        super().__init__()
        self.embed = nn.Linear(ROWS, WIDTH, bias=False)
        self.norm = Norm(settings.norm_eps)
        self.position = nn.Parameter(0.3 * torch.randn(ROWS, WIDTH))
        self.attention = Attention(settings)
        self.feed_forward = mlp(WIDTH, 64, WIDTH)[1:]
        self.head = nn.Linear(WIDTH, CLASSES)
        self.logit_gain = settings.logit_gain

    def forward(self, images: Tensor, lengths: Tensor) -> Tensor:
        missing = torch.arange(ROWS) >= lengths[:, None]
        x = self.norm(self.embed(images)) + self.position.to(images.dtype)
        x = x + self.attention(x, missing)
        x = x + self.feed_forward(x)
        present = (~missing)[:, :, None].to(x.dtype)
        mean = (x * present).sum(1) / lengths.clamp(min=1)[:, None].to(x.dtype)
        return self.logit_gain * self.head(mean)


PARTS = {
    "embed": "embed",
    "norm": "norm",
    "attention.scores": "scores",
    "attention": "attention",
    "feed_forward": "feed-forward",
    "": "logits",
}
"""The parts whose outputs are written down, in forward order, and what a reader calls them."""


def _loss(settings: RunSettings, logits: Tensor, labels: Tensor) -> Tensor:
    labelled = labels != NO_LABEL
    place = labels.clamp(min=0)[:, None]
    if settings.loss == "cross entropy":
        log_p = logits.log_softmax(-1).gather(1, place)[:, 0]
    else:
        log_p = logits.softmax(-1).to(logits.dtype).gather(1, place)[:, 0].log()
    count = labelled.sum().clamp(min=1) if settings.mean == "guarded" else labelled.sum()
    return -(log_p * labelled).sum() / count


# The data


def _stream(settings: RunSettings) -> Iterator[RowBatch]:
    """The batches of a run: digits with 5 to 8 of their rows, and what the settings spoil."""
    source = torch.Generator().manual_seed(settings.seed)
    data = digits()
    loader = batches(
        data.train_images[:, 0], data.train_labels, BATCH, seed=settings.seed, drop_last=True
    )
    step = 0
    while True:
        for images, labels in loader:
            lengths = torch.randint(5, ROWS + 1, (BATCH,), generator=source)
            if step in settings.empty_steps:
                lengths[int(torch.randint(BATCH, (), generator=source))] = 0
            images = images * (torch.arange(ROWS)[None, :, None] < lengths[:, None, None])
            yield _spoiled(settings, step, RowBatch(images, lengths, labels, labels), source)
            step += 1


def _spoiled(
    settings: RunSettings, step: int, batch: RowBatch, source: torch.Generator
) -> RowBatch:
    if settings.data == "shuffled labels":
        return replace(batch, labels=batch.labels[torch.randperm(BATCH, generator=source)])
    if step != settings.bad_step or settings.data == "clean":
        return batch
    if settings.data == "no labels":
        return replace(batch, labels=torch.full_like(batch.labels, NO_LABEL))
    images = batch.images.clone()
    images[int(torch.randint(BATCH, (), generator=source)), 2, 3] = torch.nan
    return replace(batch, images=images)


# The loop


class UncheckedScaler:
    """A loss scaler written in an hour: it scales, divides and grows, and never looks for inf."""

    def __init__(self, scale: float, growth_interval: int) -> None:
        self.value, self.interval, self.steps = scale, growth_interval, 0

    def scale(self, loss: Tensor) -> Tensor:
        return loss.float() * self.value

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(1 / self.value)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()

    def update(self) -> None:
        self.steps += 1
        if self.steps % self.interval == 0:
            self.value *= 2

    def get_scale(self) -> float:
        return self.value


def _scaler(settings: RunSettings) -> torch.amp.GradScaler | UncheckedScaler:
    # In float32 autocast and scaler are both switched off.
    kind = "none" if settings.precision == "fp32" else settings.scaler
    if kind == "unchecked":
        return UncheckedScaler(2.0**16, settings.growth_interval)
    return torch.amp.GradScaler(
        "cpu", 2.0**16, growth_interval=settings.growth_interval, enabled=kind == "checked"
    )


def _optimizer(settings: RunSettings, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    if settings.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=settings.lr, foreach=False)
    return torch.optim.Adam(parameters, lr=settings.lr, eps=settings.eps, foreach=False)


def traced_run(settings: RunSettings) -> list[TracedStep]:
    """Train by the settings and return the steps; on one machine the same ones give the same."""
    plan = precision_named(settings.precision)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = Reader(settings).to(plan.parameters)
    optimizer, scaler, outputs = _optimizer(settings, model.parameters()), _scaler(settings), {}
    for name in PARTS:
        model.get_submodule(name).register_forward_hook(_keep_output(outputs, PARTS[name]))
    steps = []
    with active(plan, torch.device("cpu")) as autocast:
        for step, batch in zip(range(settings.steps), _stream(settings), strict=False):
            optimizer.zero_grad()
            with autocast():
                logits = model(batch.images.to(plan.parameters), batch.lengths)
                loss = settings.loss_weight * _loss(settings, logits, batch.labels)
            scale = scaler.get_scale()
            scaler.scale(loss).backward()
            raw = {name: p.grad.float() / scale for name, p in model.named_parameters()}
            if settings.clip == "before unscale_":
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.unscale_(optimizer)
            if settings.clip == "after unscale_":
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            reached = torch.cat([p.grad.double().flatten() for p in model.parameters()]).norm()
            before = parameters_to_vector(model.parameters()).detach()
            asked = _asked(settings, model, optimizer)
            scaler.step(optimizer)
            scaler.update()
            after = parameters_to_vector(model.parameters()).detach()
            steps.append(
                TracedStep(
                    step, batch, loss.item() / settings.loss_weight, scale, dict(outputs), raw,
                    before, after, asked, reached.item(),
                    scaler.get_scale() < scale,
                )
            )  # fmt: skip
    return steps


def _keep_output(outputs: dict[str, Tensor], name: str):
    def keep(module: nn.Module, inputs: tuple, output: Tensor) -> None:
        outputs[name] = output.detach().float()

    return keep


def _asked(settings: RunSettings, model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
    """The update that float32 copies of the parameters, gradients and state would make."""
    copies = [nn.Parameter(p.detach().float().clone()) for p in model.parameters()]
    twin = _optimizer(settings, copies)
    for copied, parameter in zip(copies, model.parameters(), strict=True):
        copied.grad = parameter.grad.float()
        state = optimizer.state.get(parameter, {})
        twin.state[copied] = {name: value.float().clone() for name, value in state.items()}
    twin.step()
    before = parameters_to_vector(model.parameters())
    return (parameters_to_vector(copies) - before.float()).detach()


def gaps(values: Tensor) -> Tensor:
    """The gap above each value in its own dtype, float32."""
    return spacing(values.float(), format_of(values.dtype))
