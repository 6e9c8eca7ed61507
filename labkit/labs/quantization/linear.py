"""Linear layers on integers: one that trains as its integer version will run, and that version.

``QuantLinear`` rounds in floating point and learns in ``labkit.training.train``, whose autocast
leaves the rounding in float32; freeze its layers afterwards, and ``convert`` gives the
``IntegerLinear`` that computes the same from integers. ``integer_linear`` is the sum behind it.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.devices.int8_products import int8_products_are_exact
from labkit.formats import QuantParams, choose, fake_quantize, quantize_affine
from labkit.labs.quantization.calibration import Kind, Observer


def integer_linear(x: Tensor, weight: Tensor, zero_point: int) -> Tensor:
    """The sums of a linear layer, (x - zero_point) @ weight.T, exact in int32, on a CPU.

    ``torch._int_mm`` adds them where it is exact on this machine. It takes int8: unsigned codes are
    moved down by 128, the zero point too, and the zero point's share is subtracted once a row.

    Args:
        x: codes, uint8 or int8, ... x in.
        weight: codes whose zero point is 0, int8, out x in.
        zero_point: of x.

    Raises:
        ValueError: so many columns that a sum may leave int32.

    >>> x, w = torch.tensor([[255, 3]], dtype=torch.uint8), torch.tensor([[127, -1]]).to(torch.int8)
    >>> integer_linear(x, w, 5)
    tensor([[31752]], dtype=torch.int32)
    """
    columns = weight.shape[1]
    # |x - zero_point| is at most 255, and |weight| at most 128.
    if columns * 255 * 128 > torch.iinfo(torch.int32).max:
        raise ValueError(f"{columns} columns of uint8 x int8 may not fit into int32; split the sum")
    if not int8_products_are_exact():
        return (x.int() - zero_point) @ weight.int().t()
    shift = 128 if x.dtype is torch.uint8 else 0
    rows = (x.int() - shift).to(torch.int8).flatten(0, -2)
    sums = torch._int_mm(rows, weight.t().contiguous())
    sums = sums - (zero_point - shift) * weight.sum(dim=1, dtype=torch.int32)
    return sums.unflatten(0, x.shape[:-1])


class IntegerLinear(nn.Module):
    """A linear layer with int8 weights: its inputs become codes, its sums are int32.

    Takes floats, ... x in, and gives float32, ... x out.

    Args:
        weight: codes, int8, out x in, whose zero point is 0.
        scale: of each row of the weight, float32, out.
        bias: float32, out, or None.
        grid: of the inputs, 8 bits at most, per tensor; None chooses one for each batch that
            comes ("dynamic").
    """

    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(
        self, weight: Tensor, scale: Tensor, bias: Tensor | None, grid: QuantParams | None = None
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)
        self.grid = grid

    def forward(self, x: Tensor) -> Tensor:
        grid = self.grid or choose(*x.aminmax(), bits=8, symmetric=False)
        sums = integer_linear(quantize_affine(x, grid), self.weight, int(grid.zero_point))
        y = sums * (grid.scale * self.scale)
        return y if self.bias is None else y + self.bias


class QuantLinear(nn.Linear):
    """A linear layer that trains as its integer version will run.

    Weights are rounded symmetrically with one scale a row, inputs to a grid that an observer
    chooses while the layer trains, both in float32 with a straight-through gradient. Under
    autocast the rounding stays float32, and the matmul is autocast's.

    Args:
        in_features, out_features, bias: as in ``nn.Linear``.
        bits: of the weights, 2 to 16.
        input_bits: of the inputs, 2 to 16.
        kind: of the observer.

    Raises:
        ValueError: bits outside 2 to 16; in ``forward``, NaN in the input.
        RuntimeError: in ``forward`` in eval mode, before any batch was seen in training mode.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        bits: int = 8,
        input_bits: int = 8,
        kind: Kind = "minmax",
    ) -> None:
        super().__init__(in_features, out_features, bias)
        choose(0.0, 1.0, bits=bits, symmetric=True)  # refuses other bits
        self.bits = bits
        self.inputs = Observer(kind, bits=input_bits)

    @classmethod
    def from_linear(cls, linear: nn.Linear, **settings: int | Kind) -> "QuantLinear":
        """A layer with this one's parameters, the same objects."""
        has_bias = linear.bias is not None
        layer = cls(linear.in_features, linear.out_features, has_bias, **settings)
        layer.weight, layer.bias = linear.weight, linear.bias
        return layer.train(linear.training)

    @property
    def weight_grid(self) -> QuantParams:
        """Symmetric, one scale a row, of the weights as they are now."""
        return choose(*self.weight.aminmax(dim=1), bits=self.bits, symmetric=True, axis=0)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.inputs.observe(x)
        x = fake_quantize(x, self.inputs.grid)
        return F.linear(x, fake_quantize(self.weight, self.weight_grid), self.bias)

    def freeze(self) -> "QuantLinear":
        """Settle the grid of the inputs; train and eval mode then give the same.

        Raises:
            RuntimeError: no batch was seen in training mode.
        """
        self.inputs.freeze()
        return self

    def convert(self) -> IntegerLinear:
        """The layer in integers, with the same results to float32's rounding of a sum.

        Raises:
            RuntimeError: no batch was seen in training mode.
            ValueError: weights or inputs of more than 8 bits, which int8 does not hold.
        """
        if max(self.bits, self.inputs.bits) > 8:
            raise ValueError(
                f"weights of {self.bits} and inputs of {self.inputs.bits} bits: "
                "integer products are of 8 bits at most"
            )
        grid = self.weight_grid
        codes = quantize_affine(self.weight, grid)
        bias = None if self.bias is None else self.bias.detach()
        return IntegerLinear(codes, grid.scale, bias, self.inputs.grid)


def quant_layers(model: nn.Module) -> list[QuantLinear]:
    """The QuantLinear layers of a model, in order.

    Raises:
        ValueError: there is none, so that training would round nothing.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, QuantLinear)]
    if not layers:
        raise ValueError(
            "no QuantLinear in this model, so nothing would be rounded: put them in place of its "
            "linear layers first, with replace_linears and QuantLinear.from_linear"
        )
    return layers


def replace_linears(
    model: nn.Module,
    make: Callable[[str, nn.Linear], nn.Module],
    *,
    kind: type[nn.Linear] = nn.Linear,
    skip: tuple[str, ...] = (),
) -> nn.Module:
    """Put ``make(name, layer)`` in place of each layer of this kind, in place.

    Args:
        skip: names of layers that stay.

    Returns:
        the model.
    """
    for name, layer in list(model.named_modules()):
        if isinstance(layer, kind) and name not in skip:
            model.set_submodule(name, make(name, layer))
    return model


# After training


def dynamic(model: nn.Module) -> nn.Module:
    """Dynamic quantization of a trained model, in place: no calibration.

    Weights of linear layers become int8 with one scale a row; each batch of inputs gets a grid of
    its own.
    """

    def in_integers(name: str, linear: nn.Linear) -> IntegerLinear:
        grid = choose(*linear.weight.aminmax(dim=1), bits=8, symmetric=True, axis=0)
        bias = None if linear.bias is None else linear.bias.detach()
        return IntegerLinear(quantize_affine(linear.weight, grid), grid.scale, bias)

    return replace_linears(model, in_integers)
