"""Sparse weights as bytes: a bitmask with codes of the kept values, and what each layout takes.

A file here is what ``safetensors`` writes: a header of JSON with the name, dtype, shape and place
of each tensor, then the bytes of all tensors. It refuses sparse tensors, so a layout is a few dense
ones. (``torch.save`` writes whole storages: of a view, such as ``csr.col_indices()``, the tensor
that it is a view of.)
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

Values = Literal["fp32", "fp16", "int8"]
"""How a kept weight is stored."""

VALUE_BYTES: dict[Values, int] = {"fp32": 4, "fp16": 2, "int8": 1}
POSITION_BYTES = {"csr64": 8, "csr32": 4, "csr16": 2}
LAYOUTS = ("dense", *POSITION_BYTES, "bitmask")


def file_bytes(tensors: Mapping[str, Tensor]) -> int:
    """The length of the safetensors file of these tensors."""
    return len(save({name: x.detach().contiguous() for name, x in tensors.items()}))


def layout_bytes(density: float, shape: tuple[int, int], value_bytes: int) -> dict[str, int]:
    """Bytes of a matrix by layout: values, their places, and the row pointers of CSR.

    "csr64", "csr32" and "csr16" have a column of 8, 4 or 2 bytes for each kept value, and as many
    bytes for each row and one more; "bitmask" has a bit for each value, kept or not.

    >>> layout_bytes(0.1, (256, 256), value_bytes=1)["bitmask"]
    14746
    """
    rows, columns = shape
    kept = round(density * rows * columns)
    sparse = {
        name: kept * (value_bytes + place) + (rows + 1) * place
        for name, place in POSITION_BYTES.items()
    }
    return {
        "dense": rows * columns * value_bytes,
        **sparse,
        "bitmask": kept * value_bytes + math.ceil(rows * columns / 8),
    }


def break_even(layout: str, other: str, value_bytes: int) -> Fraction | None:
    """The density at which two layouts of a large matrix take equal bytes; None where none does.

    Row pointers are left out: they are a few values a row.

    >>> break_even("csr64", "dense", value_bytes=4), break_even("csr16", "bitmask", value_bytes=1)
    (Fraction(1, 3), Fraction(1, 16))
    """
    (slope, start), (other_slope, other_start) = (
        _per_weight(name, value_bytes) for name in (layout, other)
    )
    if slope == other_slope:
        return None
    density = (other_start - start) / (slope - other_slope)
    return density if 0 < density <= 1 else None


def _per_weight(layout: str, value_bytes: int) -> tuple[Fraction, Fraction]:
    """Bytes a weight as (slope, start): slope * density + start."""
    if layout == "dense":
        return Fraction(0), Fraction(value_bytes)
    if layout == "bitmask":
        return Fraction(value_bytes), Fraction(1, 8)
    if layout not in POSITION_BYTES:
        raise ValueError(f"layout {layout!r} is none of {', '.join(LAYOUTS)}")
    return Fraction(value_bytes + POSITION_BYTES[layout]), Fraction(0)


@torch.no_grad()
def pack_weight(
    weight: Tensor, *, values: Values = "int8", bitmask: bool = True
) -> dict[str, Tensor]:
    """A weight as the tensors of a file, which ``unpack_weight`` reads.

    "values" are those of the kept weights row by row, "shape" is int64, and "mask" has a bit for
    each weight, in numpy's ``packbits``; without ``bitmask`` all values are stored. INT8 codes are
    symmetric with one float32 "scale" a row, the largest magnitude / 127: a weight of 0 has the
    code 0, and no kept weight is off by more than half a scale. A kept weight whose code is 0 is
    dropped from the mask.

    Raises:
        ValueError: the weight is no matrix, or holds inf or NaN.
    """
    if weight.ndim != 2 or not weight.isfinite().all():
        raise ValueError(f"a weight of shape {tuple(weight.shape)} must be a finite matrix")
    packed = {}
    if values == "int8":
        largest = weight.float().abs().amax(dim=1)
        packed["scale"] = torch.where(largest > 0, largest / 127, 1.0)
        stored = (weight.float() / packed["scale"][:, None]).round().to(torch.int8)
    else:
        stored = weight.to(torch.float16 if values == "fp16" else torch.float32)
    if not bitmask:
        return packed | {"values": stored.contiguous()}
    kept = stored != 0
    packed["shape"] = torch.tensor(weight.shape)
    packed["mask"] = torch.from_numpy(np.packbits(kept.numpy()))
    return packed | {"values": stored[kept]}


def unpack_weight(packed: Mapping[str, Tensor]) -> Tensor:
    """The float32 weight that the tensors of ``pack_weight`` stand for.

    >>> weight = torch.tensor([[0.0, 1.27, -0.6], [0.0, 0.0, 0.0]])
    >>> [[round(v, 2) for v in row] for row in unpack_weight(pack_weight(weight)).tolist()]
    [[0.0, 1.27, -0.6], [0.0, 0.0, 0.0]]
    """
    stored = packed["values"].float()
    if "mask" in packed:
        shape = packed["shape"].tolist()
        bits = np.unpackbits(packed["mask"].numpy(), count=math.prod(shape))
        kept = torch.from_numpy(bits).bool().view(shape)
        stored = torch.zeros(shape).masked_scatter(kept, stored)
    return stored * packed["scale"][:, None] if "scale" in packed else stored
