"""Packed tensors: what is packed comes back, each byte counts, and nothing else gets through."""

import math

import numpy as np
import pytest
import torch

from labkit.formats import FORMATS, quantize
from labkit.labs.ship_it.packed import (
    BITS,
    HEADER,
    PackedError,
    in_integers,
    nbytes,
    pack,
    unpack,
)

W = torch.randn(6, 32, generator=torch.Generator().manual_seed(0))


def good(**changes):
    packed = pack(torch.tensor([[1.0, -8, 7, 0]]), "int4", torch.tensor([[0.5, 2.0]]).half())
    return packed | changes


@pytest.mark.parametrize("fmt", [name for name in BITS if not name.startswith("int")])
def test_a_float_format_gives_the_nearest_values_back(fmt):
    packed = pack(W, fmt)
    assert torch.equal(unpack(packed), quantize(W, FORMATS[fmt], saturate=True))
    assert nbytes(packed) == HEADER + math.ceil(W.numel() * FORMATS[fmt].bits / 8)


@pytest.mark.parametrize("bits", range(2, 9))
def test_every_integer_code_comes_back(bits):
    codes = torch.arange(-(2 ** (bits - 1)), 2 ** (bits - 1)).to(torch.int8)[None]
    scales = torch.tensor([[0.25]]).bfloat16()
    packed = pack(codes, f"int{bits}", scales)
    assert torch.equal(unpack(packed, (1, 2**bits)), codes.float() / 4)
    assert nbytes(packed) == HEADER + 2**bits * bits // 8 + 2


def test_each_scale_serves_its_row_and_group():
    scales = torch.tensor([[1.0, 2.0], [4.0, 8.0]])
    packed = pack(torch.ones(2, 6), "int2", scales)
    assert unpack(packed).tolist() == [[1, 1, 1, 2, 2, 2], [4, 4, 4, 8, 8, 8]]
    shared = pack(torch.ones(2, 6), "int2", scales[:1].to(torch.float8_e8m0fnu))
    assert unpack(shared).tolist() == [[1, 1, 1, 2, 2, 2]] * 2
    assert nbytes(packed) - nbytes(shared) == 16 - 2
    assert unpack(pack(torch.arange(4.0), "int4", torch.tensor([[1.0, 3.0]]))).tolist() == [
        0,
        1,
        6,
        9,
    ]


@pytest.mark.parametrize("group", [None, 16])
def test_a_search_for_the_scale_never_adds_squared_error(group):
    plain, searched = (
        unpack(in_integers(W, bits=3, group=group, clip=clip)) for clip in (False, True)
    )
    off = [(w - W).view(6, -1, group or 32).square().sum(2) for w in (plain, searched)]
    assert (off[1] <= off[0] * (1 + 1e-6)).all() and off[1].sum() < 0.9 * off[0].sum()


def test_a_row_of_zeros_has_a_scale():
    assert unpack(in_integers(torch.zeros(2, 4), bits=4, clip=True)).tolist() == [[0.0] * 4] * 2


@pytest.mark.parametrize(
    ("codes", "fmt"),
    [
        (torch.tensor([8.0]), "int4"),
        (torch.tensor([0.5]), "int4"),
        (torch.tensor([math.nan]), "fp16"),
        (torch.tensor([1.0]), "int9"),
        (torch.tensor([128]), "int8"),
    ],
)
def test_what_a_format_does_not_hold_is_not_packed(codes, fmt):
    with pytest.raises(PackedError):
        pack(codes, fmt)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"note": "12 kB of weights"}, "exactly format"),
        ({"format": "int4", "shape": (1, 4.0)}, "whole numbers"),
        ({"shape": (1, 2, 2)}, "one or two dimensions"),
        ({"shape": (10**9, 10**9)}, "whole numbers"),
        ({"shape": (True, 4)}, "whole numbers"),
        ({"format": "int99"}, "choose one of"),
        ({"format": ["int4"]}, "choose one of"),
        ({"codes": torch.zeros(3, dtype=torch.uint8)}, "3 bytes of codes"),
        ({"codes": torch.zeros(2, dtype=torch.float64)}, "uint8"),
        ({"codes": "ab"}, "uint8"),
        ({"scales": torch.zeros(1, 2, dtype=torch.float64)}, "float64"),
        ({"scales": [[1.0, 1.0]]}, "list"),
        ({"scales": torch.ones(1, 3)}, "do not divide"),
        ({"scales": torch.ones(2, 2)}, "rows of scales"),
        ({"scales": torch.ones(1, 0)}, "rows of scales"),
        ({"scales": torch.ones(2)}, "rows of scales"),
        ({"scales": torch.tensor([[math.inf, 1.0]])}, "inf or NaN"),
        ({"scales": torch.full((1, 2), 3e38)}, "values are inf or NaN"),
    ],
)
def test_what_is_no_packed_tensor_is_refused_with_what_was_found(changes, says):
    assert unpack(good()).tolist() == [[0.5, -4, 14, 0]]
    with pytest.raises(PackedError, match=says):
        unpack(good(**changes))


def test_a_missing_entry_another_shape_and_other_things_are_refused():
    for other in (None, [good()], {"format": "int4"}, torch.ones(3)):
        with pytest.raises(PackedError):
            unpack(other)
    with pytest.raises(PackedError, match="network's tensor"):
        unpack(good(), (4,))


def test_codes_may_come_as_an_array_or_as_bytes():
    codes = good()["codes"].numpy()
    for same in (codes, codes.tobytes(), np.array(codes)):
        assert torch.equal(unpack(good(codes=same)), unpack(good()))
