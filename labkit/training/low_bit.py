"""Train ``nn.Linear`` in FP8 or FP4: which format each of its three matmuls reads, as a recipe.

A linear layer has three matmuls, each with two operands: ``x @ w.T`` forward, ``grad @ w`` for the
gradient of x (dX) and ``grad.T @ x`` for that of w (dW). A ``Recipe`` says for each of the six in
which format and with which scales it is stored; ``convert`` puts it into a model. The parameters
stay in float32, and so do the optimizer's state and what it adds: they are the master weights.

Nothing here is faster or smaller. Each operand is cast, multiplied out again, and the matmul is
float32's. So the casts are those of the format, bit for bit; the additions are those of this
processor, more exact than a Tensor Core's, and every result is float32 where hardware may store
BF16. Biases, norms, embeddings, attention and the layers that are skipped stay in float32.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.formats import BF16, E2M1, E4M3, E5M2, FP32, FloatFormat, mx, nvfp4, quantize, scaled
from labkit.formats.rounding import ROUNDINGS

SCALINGS = (None, "tensorwise", "rowwise", "mx", "nvfp4", "nvfp4_square")
_BLOCKS = {"mx": 32, "nvfp4": 16, "nvfp4_square": 16}
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
        if not isinstance(self.format, FloatFormat):
            raise TypeError(
                f"format={self.format!r}: pass a FloatFormat such as labkit.formats.E4M3"
            )
        if self.scaling not in SCALINGS:
            raise ValueError(f"scaling must be one of {SCALINGS}, got {self.scaling!r}")
        if self.rounding not in ROUNDINGS:
            raise ValueError(f"rounding must be one of {ROUNDINGS}, got {self.rounding!r}")
        if not self.format.signed:
            raise ValueError(f"{self.format.name} has no sign, and operands have: pass another")
        if self.scaling and self.format.bits > 8:
            raise ValueError(
                f"scaling={self.scaling!r} is for 8 bits or less, not for {self.format.name}"
            )
        if self.block == 16 and self.format != E2M1:
            raise ValueError(f"{self.scaling} has codes in e2m1, not in {self.format.name}")

    @property
    def block(self) -> int:
        """Along the summed axis, the length must be a multiple of this."""
        return _BLOCKS.get(self.scaling or "", 1)

    @property
    def bits(self) -> float:
        """Bits that a value takes, with its share of the block scales."""
        scale_bits = 8 / self.block**2 if self.scaling == "nvfp4_square" else 8 / self.block
        return self.format.bits + (scale_bits if self.block > 1 else 0)

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
        if self.scaling in ("nvfp4", "nvfp4_square"):
            return nvfp4(x, square=self.scaling == "nvfp4_square", **how).dequantize()
        return scaled(x, self.format, granularity=self.scaling, **how).dequantize()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The six operands of a linear layer's three matmuls.

    Args:
        x, w: of ``x @ w.T``, added up over the input features.
        dx_grad, dx_w: of ``grad @ w``, over the output features.
        dw_grad, dw_x: of ``grad.T @ x``, over the tokens.
        rotate_wgrad: multiply the tokens of both operands of dW, 16 at a time, by one random
            Hadamard matrix before the cast. It is orthogonal, so it cancels in the matmul.
        seed: of its signs, and of stochastic rounding.

    >>> Recipe.of(Operand(E4M3, "tensorwise"), grad=Operand(E5M2, "tensorwise")).dx_grad.format.name
    'e5m2'
    """

    x: Operand
    w: Operand
    dx_grad: Operand
    dx_w: Operand
    dw_grad: Operand
    dw_x: Operand
    rotate_wgrad: bool = False
    seed: int = 0

    @classmethod
    def of(
        cls,
        values: Operand,
        *,
        grad: Operand | None = None,
        weight: Operand | None = None,
        rotate_wgrad: bool = False,
        seed: int = 0,
    ) -> "Recipe":
        """One operand for activations, one for weights and one for gradients; all are the first
        unless given."""
        grad, weight = grad or values, weight or values
        return cls(
            x=values,
            w=weight,
            dx_grad=grad,
            dx_w=weight,
            dw_grad=grad,
            dw_x=values,
            rotate_wgrad=rotate_wgrad,
            seed=seed,
        )

    @property
    def operands(self) -> dict[str, Operand]:
        """The six by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)[:6]}


_NVFP4 = Operand(E2M1, "nvfp4")
_NVFP4_SR = Operand(E2M1, "nvfp4", "stochastic")

RECIPES = {
    "fp32": Recipe.of(Operand(FP32)),
    "bf16": Recipe.of(Operand(BF16)),
    "e4m3_unscaled": Recipe.of(Operand(E4M3)),
    "hybrid_unscaled": Recipe.of(Operand(E4M3), grad=Operand(E5M2)),
    "fp8_tensorwise": Recipe.of(Operand(E4M3, "tensorwise"), grad=Operand(E5M2, "tensorwise")),
    "e4m3_tensorwise": Recipe.of(Operand(E4M3, "tensorwise")),
    "mxfp8": Recipe.of(Operand(E4M3, "mx")),
    "e2m1_tensorwise": Recipe.of(Operand(E2M1, "tensorwise")),
    "mxfp4": Recipe.of(Operand(E2M1, "mx")),
    "nvfp4": Recipe.of(_NVFP4),
    "nvfp4_sr": Recipe.of(_NVFP4, grad=_NVFP4_SR),
    "nvfp4_sr_rht": Recipe.of(_NVFP4, grad=_NVFP4_SR, rotate_wgrad=True),
    "nvfp4_square": Recipe.of(_NVFP4, weight=Operand(E2M1, "nvfp4_square")),
}
"""Recipes by name. The hybrids have gradients in E5M2, as arXiv:2209.05433; "sr" rounds gradients
stochastically, "rht" rotates dW, "square" has weights whose two copies agree (arXiv:2509.25149)."""


class LowBitLinear(nn.Linear):
    """An ``nn.Linear`` whose matmuls read operands of a recipe; made by ``convert``.

    Takes and gives float32, any axes before the features. The weight, its gradient, the bias and
    the sum with it are float32.

    Raises:
        TypeError: the input is not float32.
        RuntimeError: inside autocast, which would choose other formats than the recipe.
        ValueError: in the backward pass, the tokens (all axes before the features) are no whole
            number of blocks.
    """

    recipe: Recipe
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
        operands = self.recipe.operands.values()
        kinds = {f"{o.format.name} {o.scaling or 'unscaled'}" for o in operands}
        return f"{super().extra_repr()}, operands: {', '.join(sorted(kinds))}"


class _Matmuls(torch.autograd.Function):
    """x @ w.T + bias, and its gradients, with operands cast as the layer's recipe says."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, layer: LowBitLinear) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.layer = layer
        recipe, draw = layer.recipe, layer.generator
        return F.linear(recipe.x.cast(x, 1, draw), recipe.w.cast(w, 1, draw), bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        layer: LowBitLinear = ctx.layer
        recipe, draw = layer.recipe, layer.generator
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            dx = recipe.dx_grad.cast(grad, 1, draw) @ recipe.dx_w.cast(w, 0, draw)
        if ctx.needs_input_grad[1]:
            rotated = (_rotated(grad, layer.rotation), _rotated(x, layer.rotation))
            dw = recipe.dw_grad.cast(rotated[0], 0, draw).T @ recipe.dw_x.cast(rotated[1], 0, draw)
        if ctx.needs_input_grad[2]:
            db = grad.sum(0)
        return dx, dw, db, None


def _rotated(x: Tensor, rotation: Tensor | None) -> Tensor:
    """Tokens x features, its tokens mixed 16 at a time."""
    if rotation is None:
        return x
    if len(x) % ROTATED:
        raise ValueError(
            f"{len(x)} tokens are no whole number of groups of {ROTATED}, which rotate_wgrad mixes"
        )
    return (rotation.to(x.device) @ x.unflatten(0, (-1, ROTATED))).flatten(0, 1)


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


def convert(model: nn.Module, recipe: Recipe, *, skip: Iterable[str] = ("head",)) -> nn.Module:
    """Replace each ``nn.Linear`` inside the model by a ``LowBitLinear``, and return the model.

    The model is changed in place. The parameters stay the same objects, so an optimizer may have
    been made before; hooks stay behind. A layer that was converted gets the new recipe. Other
    subclasses of nn.Linear stay: nn.MultiheadAttention reads the weight of its own without a call.

    Args:
        skip: names of modules, whole ("blocks.0.qkv") or one part of them ("head", "0"), whose
            layers stay in float32.

    Raises:
        TypeError: the recipe is none.
        ValueError: no layer is left to convert; a layer has a dimension that is no whole number
            of blocks.

    >>> from labkit.training.models import mlp
    >>> convert(mlp(64, 32, 10), RECIPES["e4m3_tensorwise"], skip=["3"])
    Sequential(
      (0): Flatten(start_dim=1, end_dim=-1)
      (1): LowBitLinear(in_features=64, out_features=32, bias=True, operands: e4m3 tensorwise)
      (2): ReLU()
      (3): Linear(in_features=32, out_features=10, bias=True)
    )
    """
    if not isinstance(recipe, Recipe):
        raise TypeError(f"recipe={recipe!r}: pass a Recipe, such as RECIPES['mxfp8']")
    skip = {skip} if isinstance(skip, str) else set(skip)
    layers = {
        name: layer
        for name, layer in model.named_modules(remove_duplicate=False)
        if name and type(layer) in (nn.Linear, LowBitLinear) and not skip & {name, *name.split(".")}
    }
    if not layers:
        raise ValueError(f"no nn.Linear inside the model is left to convert, skip={sorted(skip)}")
    for name, layer in layers.items():
        _check_dimensions(name, layer, recipe)
    made: dict[nn.Module, LowBitLinear] = {}
    for name, layer in layers.items():
        if layer not in made:
            made[layer] = _low_bit(layer, recipe, place=len(made))
        model.set_submodule(name, made[layer])
    return model


def _low_bit(layer: nn.Linear, recipe: Recipe, place: int) -> LowBitLinear:
    """The layer with the same parameters and another forward and backward."""
    low = LowBitLinear(
        layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta"
    )
    low.weight, low.bias = layer.weight, layer.bias
    low.recipe = recipe
    low.rotation = hadamard(ROTATED, seed=recipe.seed) if recipe.rotate_wgrad else None
    # Each layer draws its own numbers, whatever the others draw.
    low.generator = torch.Generator().manual_seed(1_000 * recipe.seed + place)
    return low.train(layer.training)


def _check_dimensions(name: str, layer: nn.Linear, recipe: Recipe) -> None:
    for features, operands in (
        ("in_features", (recipe.x, recipe.w)),
        ("out_features", (recipe.dx_grad, recipe.dx_w)),
    ):
        length, block = getattr(layer, features), max(operand.block for operand in operands)
        if length % block:
            raise ValueError(
                f"{name}: {features}={length} is no multiple of the block of {block}; skip the "
                f"layer with skip=[{name!r}], or choose another width"
            )
