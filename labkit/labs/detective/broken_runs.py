"""Small training runs with one mistake in them, and all that a run leaves behind.

Each mistake is a setting of code that really runs, and its repair changes that setting and nothing
else. The network reads a digit row by row, as a sentence is read word by word; digits of fewer than
8 rows are filled up with rows of zeros, and the attention must not look there. ``run`` writes every
step down, so that measurements can be made afterwards, at the step that they need.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from labkit.formats import spacing
from labkit.formats.dtypes import format_of
from labkit.training.data import batches, digits
from labkit.training.models import mlp
from labkit.training.precision import active, precision_named

ROWS, WIDTH, CLASSES, BATCH = 8, 32, 10, 64
NO_LABEL = -100
"""The label that ``F.cross_entropy`` leaves out."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings of one run; each default is sound.

    Args:
        precision: one of ``labkit.training.precision.PRECISIONS``; whether the loss is scaled, and
        how, is
            the scaler's.
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
class Batch:
    """What one step reads: images (N x 8 x 8), the rows of each, labels, and the true labels."""

    images: Tensor
    lengths: Tensor
    labels: Tensor
    true_labels: Tensor


@dataclass(frozen=True)
class Step:
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
    batch: Batch
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

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.scores = Scores(recipe.sharpness)
        self.value, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, missing: Tensor) -> Tensor:
        scores = self.scores(x)
        weights = self._softmax(scores + self._mask(missing, scores.dtype))
        return self.out(weights @ self.value(x))

    def _mask(self, missing: Tensor, dtype: torch.dtype) -> Tensor:
        least = -1e9 if self.recipe.mask == "-1e9" else torch.finfo(dtype).min / 2
        return (missing[:, None, :].to(dtype) * least).to(dtype)

    def _softmax(self, scores: Tensor) -> Tensor:
        if self.recipe.softmax == "shifted":
            return scores.softmax(-1)
        weights = scores.exp_()  # in place: no memory, and no autocast either
        return weights / weights.sum(-1, keepdim=True)


class Reader(nn.Module):
    """Reads a digit row by row: N x 8 x 8 and the number of rows, to N x 10 logits."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.embed = nn.Linear(ROWS, WIDTH, bias=False)
        self.norm = Norm(recipe.norm_eps)
        self.position = nn.Parameter(0.3 * torch.randn(ROWS, WIDTH))
        self.attention = Attention(recipe)
        self.feed_forward = mlp(WIDTH, 64, WIDTH)[1:]
        self.head = nn.Linear(WIDTH, CLASSES)
        self.logit_gain = recipe.logit_gain

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


def _loss(recipe: Recipe, logits: Tensor, labels: Tensor) -> Tensor:
    labelled = labels != NO_LABEL
    place = labels.clamp(min=0)[:, None]
    if recipe.loss == "cross entropy":
        log_p = logits.log_softmax(-1).gather(1, place)[:, 0]
    else:
        log_p = logits.softmax(-1).to(logits.dtype).gather(1, place)[:, 0].log()
    count = labelled.sum().clamp(min=1) if recipe.mean == "guarded" else labelled.sum()
    return -(log_p * labelled).sum() / count


# The data


def _stream(recipe: Recipe) -> Iterator[Batch]:
    """The batches of a run: digits with 5 to 8 of their rows, and what the recipe spoils."""
    source = torch.Generator().manual_seed(recipe.seed)
    data = digits()
    loader = batches(
        data.train_images[:, 0], data.train_labels, BATCH, seed=recipe.seed, drop_last=True
    )
    step = 0
    while True:
        for images, labels in loader:
            lengths = torch.randint(5, ROWS + 1, (BATCH,), generator=source)
            if step in recipe.empty_steps:
                lengths[int(torch.randint(BATCH, (), generator=source))] = 0
            images = images * (torch.arange(ROWS)[None, :, None] < lengths[:, None, None])
            yield _spoiled(recipe, step, Batch(images, lengths, labels, labels), source)
            step += 1


def _spoiled(recipe: Recipe, step: int, batch: Batch, source: torch.Generator) -> Batch:
    if recipe.data == "shuffled labels":
        return replace(batch, labels=batch.labels[torch.randperm(BATCH, generator=source)])
    if step != recipe.bad_step or recipe.data == "clean":
        return batch
    if recipe.data == "no labels":
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


class NoScaler(UncheckedScaler):
    """The same calls, and a scale of 1 for good."""

    def __init__(self) -> None:
        super().__init__(1.0, growth_interval=1)

    def update(self) -> None:
        """Nothing grows."""


def _scaler(recipe: Recipe):
    # As with enabled=False: in float32 autocast and scaler are both switched off.
    if recipe.scaler == "none" or recipe.precision == "fp32":
        return NoScaler()
    start = 2.0**16
    if recipe.scaler == "unchecked":
        return UncheckedScaler(start, recipe.growth_interval)
    return torch.amp.GradScaler("cpu", init_scale=start, growth_interval=recipe.growth_interval)


def _optimizer(recipe: Recipe, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=recipe.lr, foreach=False)
    return torch.optim.Adam(parameters, lr=recipe.lr, eps=recipe.eps, foreach=False)


def run(recipe: Recipe) -> list[Step]:
    """Run a recipe and return its steps; the same recipe gives the same steps on one machine."""
    plan = precision_named(recipe.precision)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = Reader(recipe).to(plan.parameters)
    optimizer, scaler, outputs = _optimizer(recipe, model.parameters()), _scaler(recipe), {}
    for name in PARTS:
        model.get_submodule(name).register_forward_hook(_keep_output(outputs, PARTS[name]))
    steps = []
    with active(plan, torch.device("cpu")) as autocast:
        for step, batch in zip(range(recipe.steps), _stream(recipe), strict=False):
            optimizer.zero_grad()
            with autocast():
                logits = model(batch.images.to(plan.parameters), batch.lengths)
                loss = recipe.loss_weight * _loss(recipe, logits, batch.labels)
            scale = scaler.get_scale()
            scaler.scale(loss).backward()
            raw = {name: p.grad.float() / scale for name, p in model.named_parameters()}
            if recipe.clip == "before unscale_":
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.unscale_(optimizer)
            if recipe.clip == "after unscale_":
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            reached = torch.cat([p.grad.double().flatten() for p in model.parameters()]).norm()
            before, asked = _values(model), _asked(recipe, model, optimizer)
            scaler.step(optimizer)
            scaler.update()
            steps.append(
                Step(
                    step, batch, loss.item() / recipe.loss_weight, scale, dict(outputs), raw,
                    before, _values(model), asked, reached.item(),
                    scaler.get_scale() < scale,
                )
            )  # fmt: skip
    return steps


def _keep_output(outputs: dict[str, Tensor], name: str):
    def keep(module: nn.Module, inputs: tuple, output: Tensor) -> None:
        outputs[name] = output.detach().float()

    return keep


def _values(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def _asked(recipe: Recipe, model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
    """The update that float32 copies of the parameters, gradients and state would make."""
    copies = [nn.Parameter(p.detach().float().clone()) for p in model.parameters()]
    twin = _optimizer(recipe, copies)
    for copied, parameter in zip(copies, model.parameters(), strict=True):
        copied.grad = parameter.grad.float()
        state = optimizer.state.get(parameter, {})
        twin.state[copied] = {name: value.float().clone() for name, value in state.items()}
    twin.step()
    after = torch.cat([copied.detach().flatten() for copied in copies])
    return after - _values(model).float()


def gaps(values: Tensor) -> Tensor:
    """The gap above each value in its own dtype, float32."""
    return spacing(values.float(), format_of(values.dtype))
