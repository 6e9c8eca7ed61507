"""Train ``nn.Linear`` in FP8 or FP4: in which format its three matmuls read their operands.

A linear layer has three matmuls, each with two operands: ``x @ w.T`` forward, ``grad @ w`` for the
gradient of x (dX) and ``grad.T @ x`` for that of w (dW). A ``LowBitRecipe`` says for activations,
weights and gradients in which format and with which scales they are stored; ``convert`` puts it
into a model. The parameters stay in float32, and so do the optimizer's state and what it adds: they
are the master weights.

Nothing here is faster or smaller. The casts are those of the format, bit for bit; the matmul is
float32's, added by this processor, more exactly than by a Tensor Core, and its result is float32
where hardware may store BF16. What is no linear layer, or is skipped, stays in float32.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.formats import BF16, E2M1, E4M3, E5M2, FP32, FloatFormat, mx, nvfp4, quantize, scaled
from labkit.formats.rounding import ROUNDINGS

_BLOCKS = {None: 1, "tensorwise": 1, "rowwise": 1, "mx": 32, "nvfp4": 16, "nvfp4_square": 16}
"""By scaling, how many values along the summed axis share a scale of 8 bits; 1 for none."""
ROTATED = 16
"""Tokens that one Hadamard matrix mixes, as in NVIDIA's NVFP4 recipe (arXiv:2509.25149)."""


@dataclass(frozen=True)
class Operand:
    """How one operand of a matmul is stored.

    Overflow saturates. Scales run along the axis that the matmul adds up.

    Args:
        format: of the codes. FP32 and BF16 take no scaling; ``FP32`` leaves the operand alone.
        scaling: None, the values are cast as they are; "tensorwise" or "rowwise", float32 scales;
            "mx", blocks of 32 with the floor rule; "nvfp4", blocks of 16; "nvfp4_square", 16x16.
        rounding: one of ``labkit.formats.ROUNDINGS``.

    Raises:
        TypeError: the format is no FloatFormat.
        ValueError: an unknown scaling or rounding, or a format that the scaling does not take.
    """

    format: FloatFormat
    scaling: str | None = None
    rounding: str = "nearest_even"

    def __post_init__(self) -> None:
        fmt = self.format
        if not isinstance(fmt, FloatFormat):
            raise TypeError(f"format={fmt!r}: pass a FloatFormat such as labkit.formats.E4M3")
        if self.scaling not in _BLOCKS:
            raise ValueError(f"scaling must be one of {tuple(_BLOCKS)}, got {self.scaling!r}")
        if self.rounding not in ROUNDINGS:
            raise ValueError(f"rounding must be one of {ROUNDINGS}, got {self.rounding!r}")
        if not fmt.signed:
            raise ValueError(f"{fmt.name} has no sign, and operands have: pass another")
        if self.scaling and fmt.bits > 8:
            raise ValueError(f"scaling={self.scaling!r} is for 8 bits or less, not for {fmt.name}")
        if self.block == 16 and fmt != E2M1:
            raise ValueError(f"{self.scaling} has codes in e2m1, not in {fmt.name}")

    @property
    def block(self) -> int:
        """Along the summed axis, the length must be a multiple of this."""
        return _BLOCKS[self.scaling]

    @property
    def bits(self) -> float:
        """Bits that a value takes, with its share of the block scales."""
        sharing = self.block**2 if self.scaling == "nvfp4_square" else self.block
        return self.format.bits + (8 / sharing if sharing > 1 else 0)

    def cast(self, x: Tensor, axis: int, generator: torch.Generator | None = None) -> Tensor:
        """The float32 values that the stored operand stands for, in the shape of x.

        Args:
            x: float32, two axes.
            axis: the axis that the matmul adds up.
            generator: for rounding="stochastic".

        Raises:
            ValueError: the length along the axis is no multiple of the block.
        """
        if self.format == FP32:
            return x
        how: dict[str, Any] = {"rounding": self.rounding, "generator": generator}
        if self.scaling is None:
            return quantize(x, self.format, saturate=True, **how)
        how |= {"overflow": "saturate", "axis": axis}
        if self.scaling == "mx":
            return mx(x, self.format, **how).dequantize()
        if self.block == 16:
            return nvfp4(x, square=self.scaling == "nvfp4_square", **how).dequantize()
        return scaled(x, self.format, granularity=self.scaling, **how).dequantize()


@dataclass(frozen=True)
class LowBitRecipe:
    """How the operands of a linear layer's three matmuls are stored.

    Args:
        values: the activations; and what is not given.
        grad, weight: the gradients and the weights, in both matmuls that read them.
        rotate_wgrad: multiply the tokens of both operands of dW, 16 at a time, by one random
            Hadamard matrix before the cast. It is orthogonal, so it cancels in the matmul.
        seed: of its signs, and of stochastic rounding.

    >>> LowBitRecipe(Operand(E4M3, "tensorwise"), Operand(E5M2, "tensorwise")).operands[2].bits
    8
    """

    values: Operand
    grad: Operand | None = None
    weight: Operand | None = None
    rotate_wgrad: bool = False
    seed: int = 0

    @property
    def operands(self) -> tuple[Operand, Operand, Operand]:
        """Activations, weights and gradients."""
        return self.values, self.weight or self.values, self.grad or self.values


_NVFP4 = Operand(E2M1, "nvfp4")
_NVFP4_SR = Operand(E2M1, "nvfp4", "stochastic")

RECIPES = {
    "fp32": LowBitRecipe(Operand(FP32)),
    "bf16": LowBitRecipe(Operand(BF16)),
    "e4m3_unscaled": LowBitRecipe(Operand(E4M3)),
    "hybrid_unscaled": LowBitRecipe(Operand(E4M3), Operand(E5M2)),
    "fp8_tensorwise": LowBitRecipe(Operand(E4M3, "tensorwise"), Operand(E5M2, "tensorwise")),
    "e4m3_tensorwise": LowBitRecipe(Operand(E4M3, "tensorwise")),
    "mxfp8": LowBitRecipe(Operand(E4M3, "mx")),
    "e2m1_tensorwise": LowBitRecipe(Operand(E2M1, "tensorwise")),
    "mxfp4": LowBitRecipe(Operand(E2M1, "mx")),
    "nvfp4": LowBitRecipe(_NVFP4),
    "nvfp4_sr": LowBitRecipe(_NVFP4, _NVFP4_SR),
    "nvfp4_sr_rht": LowBitRecipe(_NVFP4, _NVFP4_SR, rotate_wgrad=True),
    "nvfp4_square": LowBitRecipe(_NVFP4, weight=Operand(E2M1, "nvfp4_square")),
}
"""Recipes by name. The hybrids have gradients in E5M2, as arXiv:2209.05433; "sr" rounds gradients
stochastically, "rht" rotates dW, "square" has weights whose two copies agree (arXiv:2509.25149)."""


class LowBitLinear(nn.Linear):
    """An ``nn.Linear`` whose matmuls read operands of a recipe; ``convert`` makes it of one.

    Takes and gives float32, any axes before the features. The weight, its gradient, the bias and
    the sum with it are float32.

    Raises:
        TypeError: the input is not float32.
        RuntimeError: inside autocast, which would choose other formats than the recipe.
        ValueError: in the backward pass, the tokens (all axes before the features) are no whole
            number of blocks.
    """

    recipe: LowBitRecipe
    generator: torch.Generator
    rotation: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype is not torch.float32:
            raise TypeError(f"a low-bit layer takes float32, got {x.dtype}: it does the casts")
        if torch.is_autocast_enabled(x.device.type):
            raise RuntimeError("a low-bit layer inside autocast has two recipes: leave autocast")
        y = _Matmuls.apply(x.flatten(0, -2), self.weight, self.bias, self)
        return y.unflatten(0, x.shape[:-1])

    def extra_repr(self) -> str:
        kinds = {f"{o.format.name} {o.scaling or 'unscaled'}" for o in self.recipe.operands}
        return f"{super().extra_repr()}, operands: {', '.join(sorted(kinds))}"

    def rotated(self, x: Tensor) -> Tensor:
        """Tokens x features, its tokens mixed 16 at a time where the recipe rotates dW."""
        if self.rotation is None:
            return x
        if len(x) % ROTATED:
            raise ValueError(
                f"{len(x)} tokens are no whole number of groups of {ROTATED} to rotate"
            )
        return (self.rotation.to(x.device) @ x.unflatten(0, (-1, ROTATED))).flatten(0, 1)


class _Matmuls(torch.autograd.Function):
    """x @ w.T + bias, and its gradients, with operands cast as the layer's recipe says."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, layer: LowBitLinear) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.layer = layer
        values, weight, _ = layer.recipe.operands
        draw = layer.generator
        return F.linear(values.cast(x, 1, draw), weight.cast(w, 1, draw), bias)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        layer: LowBitLinear = ctx.layer
        values, weight, grad = layer.recipe.operands
        draw = layer.generator
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            dx = grad.cast(dy, 1, draw) @ weight.cast(w, 0, draw)
        if ctx.needs_input_grad[1]:
            # Both are rotated first: which tokens fit is said before any cast.
            rotated_dy, rotated_x = layer.rotated(dy), layer.rotated(x)
            dw = grad.cast(rotated_dy, 0, draw).T @ values.cast(rotated_x, 0, draw)
        if ctx.needs_input_grad[2]:
            db = dy.sum(0)
        return dx, dw, db, None


def hadamard(size: int, *, seed: int | None = None) -> Tensor:
    """An orthogonal matrix of +-1/sqrt(size), float32; with a seed its columns get random signs.

    Raises:
        ValueError: the size is no power of two.

    >>> hadamard(2)
    tensor([[ 0.7071,  0.7071],
            [ 0.7071, -0.7071]])
    """
    if size < 1 or size & (size - 1):
        raise ValueError(f"size={size}: pass a power of two")
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), matrix)
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        matrix = matrix * (2.0 * torch.randint(0, 2, (size,), generator=generator) - 1)
    return matrix / size**0.5


def convert(
    model: nn.Module, recipe: LowBitRecipe, *, skip: Iterable[str] = ("head",)
) -> nn.Module:
    """Turn each ``nn.Linear`` of the model into a ``LowBitLinear``, in place, and return the model.

    Parameters and hooks stay, so an optimizer may have been made before. A layer that was converted
    gets the new recipe. Other subclasses of nn.Linear stay as they are: nn.MultiheadAttention reads
    the weight of its own without a call.

    Args:
        skip: names of modules, whole ("blocks.0.qkv") or one part of them ("head", "0"), whose
            layers stay in float32; of a layer with several names any of them.

    Raises:
        TypeError: the recipe is none.
        ValueError: no layer is left to convert; a layer has a dimension that is no whole number
            of blocks.

    >>> from labkit.training.models import mlp
    >>> convert(mlp(64, 32, 10), RECIPES["e4m3_tensorwise"], skip=["3"])[1]
    LowBitLinear(in_features=64, out_features=32, bias=True, operands: e4m3 tensorwise)
    """
    if not isinstance(recipe, LowBitRecipe):
        raise TypeError(f"recipe={recipe!r}: pass a LowBitRecipe, such as RECIPES['mxfp8']")
    skip = {skip} if isinstance(skip, str) else set(skip)
    named = list(model.named_modules(remove_duplicate=False))
    skipped = {layer for name, layer in named if skip & {name, *name.split(".")}}
    layers = {
        name: layer
        for name, layer in model.named_modules()
        if type(layer) in (nn.Linear, LowBitLinear) and layer not in skipped
    }
    if not layers:
        raise ValueError(f"the model has no nn.Linear left to convert, skip={sorted(skip)}")
    values, weight, grad = recipe.operands
    summed = {"in_features": (values, weight), "out_features": (grad, weight)}
    for name, layer in layers.items():
        for features, operands in summed.items():
            length, block = getattr(layer, features), max(operand.block for operand in operands)
            if length % block:
                raise ValueError(
                    f"{name}: {features}={length} is no multiple of the block of {block}; skip the "
                    f"layer with skip=[{name!r}], or choose another width"
                )
    for place, layer in enumerate(layers.values()):
        layer.__class__ = LowBitLinear
        layer.recipe = recipe
        layer.rotation = hadamard(ROTATED, seed=recipe.seed) if recipe.rotate_wgrad else None
        # Each layer draws its own numbers, whatever the others draw.
        layer.generator = torch.Generator().manual_seed(1_000 * recipe.seed + place)
    return model
