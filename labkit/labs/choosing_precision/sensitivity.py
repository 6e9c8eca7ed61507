"""Sensitivity: what a model's output loses when one layer at a time computes in another format.

``analyse`` rounds a layer's parameters, inputs and output to a floating point format.
``kl_by_bits`` rounds one matrix at a time to integers of few bits, and ``joint_kl`` all of them at
once. Losses are KL(FP32 || rounded) in nats, the mean over all predictions, computed in float64.
The model is never changed: rounded parameters go through ``torch.func.functional_call``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_map

from labkit.formats import BF16, FP16, FloatFormat, choose, fake_quantize, quantize
from labkit.measuring import verdict
from labkit.training import cross_entropy
from labkit.training.data import character_batches, characters, shakespeare, shakespeare_split
from labkit.training.models import SmallGPT

TOLERANCE = 1e-4
"""The KL in nats that a layer's format may cost."""
MENU = (2, 3, 4, 5, 6, 8)
"""Bits that a matrix may have."""
_CONVOLUTIONS = (
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
)
_LAYERS = (nn.Linear, *_CONVOLUTIONS)
_MATRICES = (*_LAYERS, nn.Embedding)


# Formats


@dataclass(frozen=True, kw_only=True)
class LayerSensitivity:
    """What one layer in one format does to the model.

    Args:
        name, format: of the layer and of the format.
        kl: KL(FP32 || with this layer rounded), nats a prediction; NaN where logits are not finite.
        output_error: the norm of the change of the layer's output over the norm of the output.
        loss_change: mean of the loss's increase over the batches and the ends of its 95 % interval;
            None without targets.
        overflow: of a parameter, an input or the output, the share of finite values that round to
            inf or NaN; the largest such share.
        underflow: likewise, of its non-zero values, the share below the smallest normal value that
            is not exact in the format (underflow as IEEE 754 defines it).
        within: no overflow, and a KL within the tolerance.
        why: "" where it is within; else "overflow", "underflow" or "rounding".
    """

    name: str
    format: str
    kl: float
    output_error: float
    loss_change: tuple[float, float, float] | None
    overflow: float
    underflow: float
    within: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class Sensitivities:
    """Rows of ``analyse``, layer by layer; ``formats`` and ``tolerance`` as they were asked for."""

    rows: tuple[LayerSensitivity, ...]
    formats: tuple[FloatFormat, ...]
    tolerance: float

    def recommended(self) -> dict[str, str]:
        """For each layer the name of the cheapest format within the tolerance, or "fp32".

        The cheapest has the fewest bits; of those, the least KL.
        """
        bits = {fmt.name: fmt.storage_bits for fmt in self.formats}
        best: dict[str, str] = {}
        for name in dict.fromkeys(row.name for row in self.rows):
            good = [row for row in self.rows if row.name == name and row.within]
            row = min(good, key=lambda row: (bits[row.format], row.kl), default=None)
            best[name] = row.format if row else "fp32"
        return best

    def table(self) -> pd.DataFrame:
        """A row for each layer and format."""
        shown = ("kl", "output_error", "overflow", "underflow", "within", "why")
        return pd.DataFrame(
            [[getattr(row, field) for field in shown] for row in self.rows],
            index=pd.MultiIndex.from_tuples([(row.name, row.format) for row in self.rows]),
            columns=list(shown),
        )


def analyse(
    model: nn.Module,
    batches: Iterable[Tensor],
    *,
    formats: Sequence[FloatFormat] = (FP16, BF16),
    targets: Iterable[Tensor] | None = None,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    tolerance: float = TOLERANCE,
) -> Sensitivities:
    """Round each linear or convolutional layer alone to each format, and see what changes.

    The model runs in eval mode and without gradients. It comes back as it was, also where a layer
    raises: weights, buffers, hooks and the mode of each module.

    Args:
        model: float32; it gives logits whose classes are the last dimension.
        batches: inputs of the model.
        targets: of each batch, for the change of the loss; 2 batches or more.
        loss: of logits and targets; ``labkit.training.cross_entropy`` by default.
        tolerance: the KL in nats that still counts as no difference.

    Raises:
        ValueError: no linear or convolutional layer; no batch, or an empty one; a loss without
            targets, or not one target for each batch.
    """
    layers = _named(model, _LAYERS)
    inputs, answers = list(batches), None if targets is None else list(targets)
    _check(layers, inputs, answers, loss)
    loss = loss or cross_entropy
    with _in_eval_mode(model), torch.no_grad():
        runs = [_Run(model, x, layers) for x in inputs]
        plain = None
        if answers is not None:
            plain = [loss(run.logits, y).item() for run, y in zip(runs, answers, strict=True)]
        rows = []
        for name in layers:
            for fmt in formats:
                cast = _Cast(fmt)
                with _casting(layers[name], cast):
                    rounded = {f"{name}.{key}": cast(p) for key, p in _parameters(layers[name])}
                    cast_runs = [_Run(model, x, {name: layers[name]}, rounded) for x in inputs]
                change = None
                if plain is not None:
                    change = _interval(
                        [
                            loss(run.logits, y).item() - before
                            for run, y, before in zip(cast_runs, answers, plain, strict=True)
                        ]
                    )
                rows.append(_row(name, cast, runs, cast_runs, change, tolerance))
    return Sensitivities(rows=tuple(rows), formats=tuple(formats), tolerance=tolerance)


def _row(name, cast, runs, cast_runs, change, tolerance) -> LayerSensitivity:
    kl = _kl(runs, cast_runs)
    error = _relative_error(
        [out for run in runs for out in run.outputs[name]],
        [out for run in cast_runs for out in run.outputs[name]],
    )
    within = cast.overflow == 0 and kl <= tolerance
    return LayerSensitivity(
        name=name,
        format=cast.fmt.name,
        kl=kl,
        output_error=error,
        loss_change=change,
        overflow=cast.overflow,
        underflow=cast.underflow,
        within=within,
        why="" if within else _why(cast, error),
    )


def _why(cast: "_Cast", error: float) -> str:
    if cast.overflow:
        return "overflow"
    # Rounding alone moves a normal value by eps / 2 at most; three roundings stay near eps.
    return "underflow" if cast.underflow and error > 2 * cast.fmt.eps else "rounding"


# Bits of matrices


def sizes(model: nn.Module) -> dict[str, int]:
    """Weights of each linear, convolutional and embedding layer, by name."""
    return {name: layer.weight.numel() for name, layer in _named(model, _MATRICES).items()}


def kl_by_bits(
    model: nn.Module, x: Tensor, *, bits: Sequence[int] = MENU
) -> dict[str, dict[int, float]]:
    """The KL of each matrix alone in so many bits: ``{layer: {bits: nats}}``.

    Linear, convolutional and embedding weights are rounded to nearest, symmetrically, with one FP16
    scale a row.

    Args:
        x: one batch of inputs, such as ``text_pieces(16)`` for the GPT.

    Raises:
        ValueError: no matrix; an empty batch; bits outside 2 to 16.
    """
    layers = _named(model, _MATRICES)
    _check(layers, [x], None, None)
    with _in_eval_mode(model), torch.no_grad():
        plain = _Run(model, x)
        return {name: {b: _kl_with(model, x, plain, {name: b}) for b in bits} for name in layers}


def joint_kl(model: nn.Module, x: Tensor, bits: Mapping[str, int]) -> float:
    """The KL of the model with all these matrices rounded at once, as ``kl_by_bits`` rounds them.

    Raises:
        ValueError: as ``kl_by_bits``; a name that is no matrix of the model.
    """
    layers = _named(model, _MATRICES)
    _check(layers, [x], None, None)
    if unknown := sorted(set(bits) - set(layers)):
        raise ValueError(f"{', '.join(unknown)}: the model's matrices are {', '.join(layers)}")
    with _in_eval_mode(model), torch.no_grad():
        return _kl_with(model, x, _Run(model, x), bits)


def text_pieces(count: int, *, context: int = 64, seed: int = 0, part: str = "test") -> Tensor:
    """Pieces of the "train" or "test" text from random places: tokens, int64, count x context."""
    text = dict(zip(("train", "test"), shakespeare_split(), strict=True))[part]
    vocabulary = characters(shakespeare())
    ((tokens, _),) = character_batches(
        text, context, count, steps=1, seed=seed, vocabulary=vocabulary
    )
    return tokens


@torch.no_grad()
def plant_channels(gpt: SmallGPT, factor: float = 32.0) -> None:
    """Move a factor from a channel of two norms into the weights that read it, in place.

    The function stays the same, to the bit for a power of two; the rows of those weights are then
    ruled by one column each, as outlier channels rule them in large models.
    """
    first, second = gpt.blocks
    for norm, linear, channel in (
        (first.feed_forward_norm, first.feed_forward[0], 3),
        (second.attention_norm, second.qkv, 7),
    ):
        norm.weight[channel] /= factor
        norm.bias[channel] /= factor
        linear.weight[:, channel] *= factor


def round_weight(weight: Tensor, bits: int) -> Tensor:
    """A matrix rounded to nearest in so many bits, symmetrically, with one FP16 scale a row."""
    rows = weight.detach().flatten(1)
    grid = choose(*rows.aminmax(dim=1), bits=bits, symmetric=True, axis=0)
    span = torch.finfo(torch.float16)
    scale = grid.scale.clamp(min=span.smallest_normal, max=span.max).half().float()
    stored = type(grid)(
        scale=scale, zero_point=grid.zero_point, low=grid.low, high=grid.high, axis=0
    )
    return fake_quantize(rows, stored).view_as(weight)


def _kl_with(model: nn.Module, x: Tensor, plain: "_Run", bits: Mapping[str, int]) -> float:
    rounded = {
        f"{name}.weight": round_weight(model.get_submodule(name).weight, b)
        for name, b in bits.items()
    }
    return _kl([plain], [_Run(model, x, parameters=rounded)])


# Runs


class _Run:
    """A pass over one batch: logits, and each call's output of the layers that are named."""

    def __init__(
        self,
        model: nn.Module,
        x: Tensor,
        layers: Mapping[str, nn.Module] | None = None,
        parameters: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.outputs: dict[str, list[Tensor]] = {name: [] for name in layers or {}}
        hooks = [
            layer.register_forward_hook(lambda _, __, out, name=name: self._keep(name, out))
            for name, layer in (layers or {}).items()
        ]
        # A layer that writes into its buffers writes into copies of them.
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        try:
            # tie_weights=False: only this layer's use of a shared weight is rounded.
            state = {**buffers, **(parameters or {})}
            self.logits = functional_call(model, state, (x,), tie_weights=False)
        finally:
            for hook in hooks:
                hook.remove()

    def _keep(self, name: str, out: Tensor) -> None:
        self.outputs[name].append(out)


class _Cast:
    """Rounds what is floating to a format, and keeps the largest shares that were lost."""

    def __init__(self, fmt: FloatFormat) -> None:
        self.fmt, self.overflow, self.underflow = fmt, 0.0, 0.0

    def __call__(self, x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.is_floating_point():
            return x
        rounded = quantize(x, self.fmt)
        lost = x.isfinite() & ~rounded.isfinite()
        there = x != 0
        tiny = there & (x.abs() < self.fmt.smallest_normal) & (rounded != x)
        self.overflow = max(self.overflow, lost.double().mean().item())
        self.underflow = max(self.underflow, (tiny.sum() / there.sum().clamp(min=1)).item())
        return rounded


@contextmanager
def _casting(layer: nn.Module, cast: _Cast) -> Iterator[None]:
    hooks = [
        layer.register_forward_pre_hook(
            lambda _, args, kwargs: (tree_map(cast, args), tree_map(cast, kwargs)), with_kwargs=True
        ),
        layer.register_forward_hook(lambda _, __, out: tree_map(cast, out)),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _in_eval_mode(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    try:
        for module in modes:
            module.training = False
        yield
    finally:
        for module, training in modes.items():
            module.training = training


# Numbers


def _kl(runs: Sequence[_Run], rounded: Sequence[_Run]) -> float:
    total, count = 0.0, 0
    for run, other in zip(runs, rounded, strict=True):
        before, after = (r.logits.double().log_softmax(-1) for r in (run, other))
        terms = torch.where(before == -inf, 0.0, before.exp() * (before - after))
        each = terms.sum(-1)
        total, count = total + each.sum().item(), count + each.numel()
    return total / count


def _relative_error(outputs: Sequence[Tensor], rounded: Sequence[Tensor]) -> float:
    squares = [
        sum(x.double().square().sum().item() for x in tensors)
        for tensors in (
            [
                after.double() - before.double()
                for before, after in zip(outputs, rounded, strict=True)
            ],
            outputs,
        )
    ]
    change, whole = squares
    if change == 0:
        return 0.0
    return (change / whole) ** 0.5 if whole else inf


def _interval(changes: Sequence[float]) -> tuple[float, float, float]:
    """Mean and ends of the 95 % interval of the mean, by lab 06's verdict."""
    found = verdict(changes, margin=1.0)  # the margin decides a word that is not read here
    return found.mean, found.low, found.high


# Inputs


def _named(model: nn.Module, kinds: tuple[type[nn.Module], ...]) -> dict[str, Any]:
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, kinds)}


def _parameters(layer: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return ((name, p.detach()) for name, p in layer.named_parameters())


def _check(layers, inputs, answers, loss) -> None:
    if not layers:
        raise ValueError("this model has no linear or convolutional layer to round")
    if not inputs or any(len(x) == 0 for x in inputs):
        raise ValueError(
            f"{len(inputs)} batches, of {[len(x) for x in inputs]} inputs: pass at least one "
            "batch, and none without inputs"
        )
    if loss is not None and answers is None:
        raise ValueError("a loss needs targets: pass targets=, one tensor for each batch")
    if answers is not None and not len(answers) == len(inputs) >= 2:
        raise ValueError(
            f"{len(answers)} targets for {len(inputs)} batches: pass one for each, and 2 batches "
            "or more, since one has no spread"
        )
