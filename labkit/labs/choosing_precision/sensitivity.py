"""Sensitivity: what a model's output loses when one layer at a time computes in another format.

``analyse`` rounds a layer's parameters, inputs and output to a floating point format.
``kl_by_bits`` rounds one matrix at a time to integers of few bits, and ``joint_kl`` all of them at
once. Losses are KL(FP32 || rounded) in nats, the mean over all predictions, computed in float64.
The model is never changed: rounded parameters go through ``torch.func.functional_call``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_map

from labkit.formats import BF16, FP16, FloatFormat, choose, fake_quantize, quantize
from labkit.measuring import verdict
from labkit.training import cross_entropy, in_eval_mode
from labkit.training.data import character_batches, characters, shakespeare, shakespeare_split

TOLERANCE = 1e-4
"""The KL in nats that a layer's format may cost."""
MENU = (2, 3, 4, 5, 6, 8)
"""Bits that a matrix may have."""
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_LAYERS = (nn.Linear, *_CONVOLUTIONS, *_TRANSPOSED)
_Run = tuple[Tensor, dict[str, list[Tensor]]]  # logits; each call's output of some layers, by name


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
        why: it is beyond the tolerance: "overflow", "underflow" or "rounding"; "" if it is not.
    """

    name: str
    format: str
    kl: float
    output_error: float
    loss_change: tuple[float, float, float] | None
    overflow: float
    underflow: float
    why: str

    @property
    def within(self) -> bool:
        """No overflow, and a KL within the tolerance."""
        return not self.why


@dataclass(frozen=True, kw_only=True)
class Sensitivities:
    """Rows of ``analyse``, layer by layer, and the formats that were asked for."""

    rows: tuple[LayerSensitivity, ...]
    formats: tuple[FloatFormat, ...]

    def recommended(self) -> dict[str, str]:
        """For each layer the name of the cheapest format within the tolerance, or "fp32".

        The cheapest has the fewest bits; of those, the least KL.
        """
        bits = {fmt.name: fmt.storage_bits for fmt in self.formats}
        best = dict.fromkeys((row.name for row in self.rows), "fp32")
        for row in sorted(self.rows, key=lambda row: (-bits[row.format], -row.kl)):
            if row.within:
                best[row.name] = row.format
        return best


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
            targets, not one target for each batch, or targets of a single batch.
    """
    layers, inputs = _named(model, _LAYERS), list(batches)
    answers = None if targets is None else list(targets)
    _check(layers, inputs)
    if loss is not None and answers is None:
        raise ValueError("a loss needs targets: pass targets=, one tensor for each batch")
    if answers is not None and len(answers) != len(inputs):
        raise ValueError(f"{len(answers)} targets for {len(inputs)} batches: pass one for each")

    def losses(runs: Sequence[_Run]) -> list[float]:
        pairs = zip(runs, answers or (), strict=True)
        return [(loss or cross_entropy)(logits, y).item() for (logits, _), y in pairs]

    rows = []
    with in_eval_mode(model), torch.no_grad():
        plain = [_run(model, x, layers) for x in inputs]
        for name, fmt in ((name, fmt) for name in layers for fmt in formats):
            cast, layer = _Cast(fmt), layers[name]
            with _casting(layer, cast):
                weights = {f"{name}.{key}": cast(p.detach()) for key, p in layer.named_parameters()}
                rounded = [_run(model, x, [name], weights) for x in inputs]
            kl, error, change = _kl(plain, rounded), _output_error(name, plain, rounded), None
            if answers is not None:
                pairs = zip(losses(rounded), losses(plain), strict=True)
                found = verdict([after - before for after, before in pairs], margin=1.0)
                change = found.mean, found.low, found.high  # they do not depend on the margin
            row = LayerSensitivity(
                name=name, format=fmt.name, kl=kl, output_error=error, loss_change=change,
                overflow=cast.overflow, underflow=cast.underflow, why="",
            )  # fmt: skip
            rows.append(row if kl <= tolerance and not row.overflow else _explained(row, fmt))
    return Sensitivities(rows=tuple(rows), formats=tuple(formats))


def _explained(row: LayerSensitivity, fmt: FloatFormat) -> LayerSensitivity:
    if row.overflow:
        return replace(row, why="overflow")
    # Rounding moves a normal value by eps / 2 at most; three roundings stay near eps.
    tiny = row.underflow > 0 and row.output_error > 2 * fmt.eps
    return replace(row, why="underflow" if tiny else "rounding")


# Bits of matrices


def sizes(model: nn.Module) -> dict[str, int]:
    """Weights of each linear, convolutional and embedding layer, by name."""
    return {name: layer.weight.numel() for name, layer in _matrices(model).items()}


def kl_by_bits(
    model: nn.Module, x: Tensor, *, bits: Sequence[int] = MENU
) -> dict[str, dict[int, float]]:
    """The KL of each matrix of ``sizes`` alone in so many bits: ``{layer: {bits: nats}}``.

    Args:
        x: one batch of inputs, such as ``text_pieces(16)`` for the GPT.
        bits: as in ``round_weight``.

    Raises:
        ValueError: no matrix; an empty batch; bits outside 2 to 16.
    """
    layers = _matrices(model)
    _check(layers, [x])
    with in_eval_mode(model), torch.no_grad():
        plain = _run(model, x)
        return {name: {b: _kl_with(model, x, plain, {name: b}) for b in bits} for name in layers}


def joint_kl(model: nn.Module, x: Tensor, bits: Mapping[str, int]) -> float:
    """The KL of the model with all these matrices rounded at once, by ``round_weight``.

    Raises:
        ValueError: as ``kl_by_bits``; a name that is no matrix of the model.
    """
    layers = _matrices(model)
    _check(layers, [x])
    if unknown := sorted(set(bits) - set(layers)):
        raise ValueError(f"{', '.join(unknown)}: the model's matrices are {', '.join(layers)}")
    with in_eval_mode(model), torch.no_grad():
        return _kl_with(model, x, _run(model, x), bits)


def _kl_with(model: nn.Module, x: Tensor, plain: _Run, bits: Mapping[str, int]) -> float:
    rounded = {
        f"{name}.weight": round_weight(model.get_submodule(name).weight, b)
        for name, b in bits.items()
    }
    return _kl([plain], [_run(model, x, parameters=rounded)])


def round_weight(weight: Tensor, bits: int) -> Tensor:
    """A matrix rounded to nearest in so many bits, symmetrically, with one FP16 scale a row."""
    rows, span = weight.detach().flatten(1), torch.finfo(torch.float16)
    grid = choose(*rows.aminmax(dim=1), bits=bits, symmetric=True, axis=0)
    scale = grid.scale.clamp(min=span.smallest_normal, max=span.max).half().float()
    return fake_quantize(rows, replace(grid, scale=scale)).view_as(weight)


def text_pieces(count: int, *, context: int = 64, seed: int = 0, part: str = "test") -> Tensor:
    """Pieces of the "train" or "test" text from random places: tokens, int64, count x context."""
    text = dict(zip(("train", "test"), shakespeare_split(), strict=True))[part]
    vocabulary = characters(shakespeare())
    batch = character_batches(text, context, count, steps=1, seed=seed, vocabulary=vocabulary)
    return next(iter(batch))[0]


# Runs


def _run(
    model: nn.Module,
    x: Tensor,
    layers: Iterable[str] = (),
    parameters: Mapping[str, Tensor] | None = None,
) -> _Run:
    outputs: dict[str, list[Tensor]] = {name: [] for name in layers}
    # A layer that writes into its buffers writes into copies of them.
    state = {name: buffer.clone() for name, buffer in model.named_buffers()} | dict(
        parameters or {}
    )
    with ExitStack() as hooks:  # a handle removes its hook when its block ends
        for name, kept in outputs.items():
            layer = model.get_submodule(name)
            hooks.enter_context(
                layer.register_forward_hook(lambda _, __, out, kept=kept: kept.append(out))
            )
        # tie_weights=False: only this layer's use of a shared weight is rounded.
        return functional_call(model, state, (x,), tie_weights=False), outputs


class _Cast:
    """Rounds what is floating to a format, and keeps the largest shares that were lost."""

    def __init__(self, fmt: FloatFormat) -> None:
        self.fmt, self.overflow, self.underflow = fmt, 0.0, 0.0

    def __call__(self, x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.is_floating_point():
            return x
        rounded = quantize(x, self.fmt)
        lost = x.isfinite() & ~rounded.isfinite()
        tiny = (x.abs() < self.fmt.smallest_normal) & (rounded != x)
        self.overflow = max(self.overflow, lost.double().mean().item())
        self.underflow = max(self.underflow, (tiny.sum() / (x != 0).sum().clamp(min=1)).item())
        return rounded


@contextmanager
def _casting(layer: nn.Module, cast: _Cast) -> Iterator[None]:
    def inputs(_: nn.Module, args: Any, kwargs: Any) -> Any:
        return tree_map(cast, (args, kwargs))

    with (
        layer.register_forward_pre_hook(inputs, with_kwargs=True),
        layer.register_forward_hook(lambda _, __, out: tree_map(cast, out)),
    ):
        yield


# Numbers


def _kl(plain: Sequence[_Run], rounded: Sequence[_Run]) -> float:
    each = []
    for runs in zip(plain, rounded, strict=True):
        before, after = (logits.double().log_softmax(-1) for logits, _ in runs)
        terms = torch.where(before == -inf, 0.0, before.exp() * (before - after))
        each.append(terms.sum(-1).flatten())
    return torch.cat(each).mean().item()


def _output_error(name: str, plain: Sequence[_Run], rounded: Sequence[_Run]) -> float:
    before, after = (
        torch.cat([out.double().flatten() for _, outputs in runs for out in outputs[name]])
        for runs in (plain, rounded)
    )
    change, whole = (after - before).norm().item(), before.norm().item()
    return change / whole if whole else change and inf


# Inputs


def _named(model: nn.Module, kinds: tuple[type[nn.Module], ...]) -> dict[str, Any]:
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, kinds)}


def _matrices(model: nn.Module) -> dict[str, Any]:
    return _named(model, (*_LAYERS, nn.Embedding))


def _check(layers: Mapping[str, nn.Module], inputs: Sequence[Tensor]) -> None:
    if not layers:
        raise ValueError("this model has no linear or convolutional layer to round")
    if not inputs or any(len(x) == 0 for x in inputs):
        raise ValueError(
            f"{len(inputs)} batches, of {[len(x) for x in inputs]} inputs: pass at least one "
            "batch, and none without inputs"
        )
