"""A network in few bytes: each tensor as packed codes with scales, and which bytes count.

A packed tensor is a plain dict, so that it goes from an answer to its judge as data:

    {"format": "int4", "shape": (256, 64), "codes": uint8 tensor, "scales": float16 tensor}

- ``format``: "int2" to "int8" (two's complement), "e2m1", "e4m3", "e5m2", "fp16", "bf16" or "fp32".
- ``codes``: the codes row by row without gaps, the lowest bit of each first; uint8, one dimension.
- ``scales``: float32, float16, bfloat16, float8_e4m3fn or float8_e8m0fnu, of shape rows x groups or
  1 x groups, where the groups divide a row into equal parts; None where codes are the values.

A value is code * scale. A tensor of one dimension counts as one row.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labkit.formats import BF16, E2M1, E4M3, E5M2, FP16, FP32, FloatFormat, decode, encode

Packed = dict[str, Any]

FLOATS: dict[str, FloatFormat] = {f.name: f for f in (E2M1, E4M3, E5M2, FP16, BF16, FP32)}
BITS: dict[str, int] = {f"int{bits}": bits for bits in range(2, 9)} | {
    name: fmt.bits for name, fmt in FLOATS.items()
}
"""Bits of a code, by format."""

SCALES = (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e8m0fnu)
"""The dtypes that scales may have."""

HEADER = 8
"""Bytes that each tensor costs beside its codes and scales: its format, and how scales lie."""

_KEYS = {"format", "shape", "codes", "scales"}


class PackedError(ValueError):
    """What cannot be unpacked, with what was found and what is allowed."""


def pack(codes: Tensor, fmt: str, scales: Tensor | None = None) -> Packed:
    """Pack a tensor of one or two dimensions.

    Args:
        codes: whole numbers for an integer format; for a floating point format any values, which
            are rounded to nearest and saturate. Its shape is the tensor's.
        fmt: a name of ``BITS``.
        scales: as the module says, rows x groups; None for none.

    Raises:
        PackedError: another format; codes outside it, NaN, or no whole numbers; scales that do not
            fit the tensor.

    >>> w = torch.tensor([[0.1, -0.7], [3.0, 7.0]])
    >>> scales = (w.abs().amax(dim=1, keepdim=True) / 7).half()
    >>> packed = pack((w / scales).round(), "int4", scales)
    >>> packed["codes"].tolist(), nbytes(packed)
    ([145, 115], 14)
    """
    if fmt not in BITS:
        raise PackedError(f"format {fmt!r}; choose one of {', '.join(BITS)}")
    codes = codes.detach()
    if fmt in FLOATS:
        if codes.isnan().any():
            raise PackedError(f"{fmt}: the values hold NaN")
        patterns = encode(codes.float(), FLOATS[fmt], saturate=True)
    else:
        half = 2 ** (BITS[fmt] - 1)
        whole = codes.double()  # 128 is no int8
        if not ((whole >= -half) & (whole < half) & (whole == whole.round())).all():
            raise PackedError(f"{fmt}: codes are whole numbers from {-half} to {half - 1}")
        patterns = codes.long() % (2 * half)
    packed = {
        "format": fmt,
        "shape": tuple(codes.shape),
        "codes": _to_bytes(patterns, BITS[fmt]),
        "scales": None if scales is None else scales.detach().clone(),
    }
    _read_scales(packed["scales"], packed["shape"])
    return packed


def in_integers(w: Tensor, *, bits: int, group: int | None = None, clip: bool = False) -> Packed:
    """A matrix in integers, rounded to nearest, with an FP16 scale a row or ``group`` columns.

    Each scale makes the largest magnitude that it serves the last code. ``clip`` takes the scale of
    least squared error instead, of 80 down to a fifth of that: it cuts the largest weights, and the
    others get a finer step.

    >>> w = torch.tensor([[0.1, -0.7], [3.0, 7.0]])
    >>> unpack(in_integers(w, bits=4)).tolist()
    [[0.0999755859375, -0.6998291015625], [3.0, 7.0]]
    """
    last = 2 ** (bits - 1) - 1
    parts = w.detach().unflatten(1, (-1, group or w.shape[1]))
    smallest = torch.finfo(torch.float16).smallest_normal
    whole = (parts.abs().amax(dim=2) / last).clamp(min=smallest).half()
    best, least = whole, torch.full_like(whole, math.inf, dtype=torch.float32)
    for hundredths in range(100, 20, -1) if clip else ():
        scales = (whole.float() * hundredths / 100).clamp(min=smallest).half()
        step = scales.float()[:, :, None]
        error = ((parts / step).round().clamp(-last, last) * step - parts).square().sum(dim=2)
        best, least = torch.where(error < least, scales, best), torch.minimum(error, least)
    codes = (parts / best.float()[:, :, None]).round().clamp(-last, last)
    return pack(codes.flatten(1), f"int{bits}", best)


def unpack(packed: Any, shape: Sequence[int] | None = None) -> Tensor:
    """The values of a packed tensor, float32. Safe for whatever an answer has returned.

    Args:
        packed: what ``pack`` gives, or the like.
        shape: the shape that it must have, where one is given.

    Raises:
        PackedError: it is no packed tensor, has another shape, or holds a value that is not finite.
    """
    if type(packed) is not dict or set(packed) != _KEYS:
        held = f"a {type(packed).__name__}"
        if type(packed) is dict:
            held = f"a dict with the keys {', '.join(map(str, packed))}"
        raise PackedError(
            f"it is {held}; `pack` makes a dict with exactly format, shape, codes and scales"
        )
    fmt, own, codes = packed["format"], packed["shape"], packed["codes"]
    if type(fmt) is not str or fmt not in BITS:
        raise PackedError(f"format {fmt!r:.40}; choose one of {', '.join(BITS)}")
    own = _read_shape(own)
    if shape is not None and own != tuple(shape):
        turned = ", transposed" if own == tuple(shape)[::-1] else ""
        raise PackedError(f"its shape is {own}; the network's tensor has {tuple(shape)}{turned}")
    count, bits = math.prod(own), BITS[fmt]
    patterns = _from_bytes(_read_codes(codes, math.ceil(count * bits / 8)), count, bits).view(own)
    scales = _read_scales(packed["scales"], own)
    if fmt in FLOATS:
        values = decode(patterns, FLOATS[fmt]).float()
    else:
        half = 2 ** (bits - 1)
        values = ((patterns + half) % (2 * half) - half).float()
    if scales is not None:
        columns = own[-1] if own else 1
        values = (values.view(-1, columns) * _spread(scales, columns)).view(own)
    if not values.isfinite().all():
        raise PackedError(f"{int((~values.isfinite()).sum())} values are inf or NaN")
    return values


def nbytes(packed: Packed) -> int:
    """Bytes that a packed tensor costs: codes, scales and ``HEADER``."""
    scales = packed["scales"]
    return HEADER + len(packed["codes"]) + (0 if scales is None else scales.nbytes)


def total_bytes(artifact: Mapping[str, Packed]) -> int:
    """Bytes of a whole network, {name: packed tensor}."""
    return sum(map(nbytes, artifact.values()))


def unpacked(artifact: Mapping[str, Packed]) -> dict[str, Tensor]:
    """The float32 weights of a whole network, {name: tensor}."""
    return {name: unpack(packed) for name, packed in artifact.items()}


# Bits


def _to_bytes(patterns: Tensor, bits: int) -> Tensor:
    """Codes of so many bits, one after another, the lowest bit first."""
    codes = patterns.flatten().numpy().astype(np.uint64)
    each = (codes[:, None] >> np.arange(bits, dtype=np.uint64)) & np.uint64(1)
    return torch.from_numpy(np.packbits(each.astype(np.uint8).ravel(), bitorder="little"))


def _from_bytes(codes: np.ndarray, count: int, bits: int) -> Tensor:
    """The patterns of ``_to_bytes``, int64."""
    each = np.unpackbits(codes, count=count * bits, bitorder="little").reshape(count, bits)
    return torch.from_numpy(each.astype(np.int64) @ (1 << np.arange(bits, dtype=np.int64)))


# What an answer may have returned


def _read_shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, (tuple, list)) or not 1 <= len(shape) <= 2:
        raise PackedError(f"shape {shape!r:.60}; a tensor has one or two dimensions")
    if not all(type(size) is int and 0 < size < 2**20 for size in shape):
        raise PackedError(f"shape {shape!r:.60}; sizes are whole numbers above 0")
    return tuple(shape)


def _read_codes(codes: Any, wanted: int) -> np.ndarray:
    if type(codes) is bytes:
        codes = np.frombuffer(codes, dtype=np.uint8)
    if isinstance(codes, Tensor):
        codes = codes.numpy() if codes.dtype is torch.uint8 else codes.float().numpy()
    if not isinstance(codes, np.ndarray) or codes.dtype != np.uint8 or codes.ndim != 1:
        raise PackedError("codes are a uint8 tensor of one dimension, as `pack` makes them")
    if len(codes) != wanted:
        raise PackedError(
            f"{len(codes):,} bytes of codes; the format and the shape take {wanted:,}"
        )
    return codes


def _read_scales(scales: Any, shape: tuple[int, ...]) -> Tensor | None:
    if scales is None:
        return None
    if not isinstance(scales, Tensor) or scales.dtype not in SCALES:
        found = scales.dtype if isinstance(scales, Tensor) else type(scales).__name__
        allowed = ", ".join(str(dtype).removeprefix("torch.") for dtype in SCALES)
        raise PackedError(f"scales of {found}; they are a tensor of {allowed}, or None")
    columns = shape[-1] if shape else 1
    rows = math.prod(shape) // columns
    if scales.ndim != 2 or scales.shape[0] not in (1, rows) or not scales.shape[1]:
        raise PackedError(
            f"scales of shape {tuple(scales.shape)}; {rows} rows of {columns} values take "
            f"1 or {rows} rows of scales"
        )
    if columns % scales.shape[1]:
        raise PackedError(f"{scales.shape[1]} scales do not divide a row of {columns} values")
    wide = scales.float()
    if not wide.isfinite().all():
        raise PackedError("a scale is inf or NaN")
    return wide


def _spread(scales: Tensor, columns: int) -> Tensor:
    """One scale for each value of a row."""
    return scales.repeat_interleave(columns // scales.shape[1], dim=1)
