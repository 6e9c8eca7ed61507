"""What a FloatFormat says of itself, codes, spacing, and the refusals."""

import math

import ml_dtypes
import numpy as np
import pytest
import torch
from rounding_oracle import positive_values

from labkit.formats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E3M4,
    E4M3,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    E8M0,
    FORMATS,
    FP16,
    FP32,
    FP64,
    TF32,
    FloatFormat,
    decode,
    encode,
    quantize,
    spacing,
)

SMALL = [fmt for fmt in FORMATS.values() if fmt.bits <= 16]

# bits, bias, max, smallest normal, smallest subnormal, eps: IEEE 754-2019 table 3.5, OCP OFP8 and
# MX tables 1 to 3, and for TF32 the widths alone. Subnormals of E8M0: none, so the normal one.
FACTS = {
    "fp64": (64, 1023, 1.7976931348623157e308, 2.2250738585072014e-308, 5e-324, 2.0**-52),
    "fp32": (32, 127, 3.4028234663852886e38, 2.0**-126, 2.0**-149, 2.0**-23),
    "tf32": (19, 127, 3.4011621342146535e38, 2.0**-126, 2.0**-136, 2.0**-10),
    "fp16": (16, 15, 65504.0, 2.0**-14, 2.0**-24, 2.0**-10),
    "bf16": (16, 127, 3.3895313892515355e38, 2.0**-126, 2.0**-133, 2.0**-7),
    "e5m2": (8, 15, 57344.0, 2.0**-14, 2.0**-16, 0.25),
    "e4m3": (8, 7, 448.0, 2.0**-6, 2.0**-9, 0.125),
    "e4m3fnuz": (8, 8, 240.0, 2.0**-7, 2.0**-10, 0.125),
    "e5m2fnuz": (8, 16, 57344.0, 2.0**-15, 2.0**-17, 0.25),
    "e3m4": (8, 3, 15.5, 0.25, 2.0**-6, 2.0**-4),
    "e8m0": (8, 127, 2.0**127, 2.0**-127, 2.0**-127, 1.0),
    "e3m2": (6, 3, 28.0, 0.25, 0.0625, 0.25),
    "e2m3": (6, 1, 7.5, 1.0, 0.125, 0.125),
    "e2m1": (4, 1, 6.0, 1.0, 0.5, 0.5),
}
FINFO = {
    FP64: np.float64,
    FP32: np.float32,
    FP16: np.float16,
    BF16: ml_dtypes.bfloat16,
    E5M2: ml_dtypes.float8_e5m2,
    E4M3: ml_dtypes.float8_e4m3fn,
    E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    E3M4: ml_dtypes.float8_e3m4,
    E8M0: ml_dtypes.float8_e8m0fnu,
    E3M2: ml_dtypes.float6_e3m2fn,
    E2M3: ml_dtypes.float6_e2m3fn,
    E2M1: ml_dtypes.float4_e2m1fn,
}
CODES = {fmt: dtype for fmt, dtype in FINFO.items() if fmt.bits <= 16}


def test_the_named_formats_and_their_facts():
    assert list(FORMATS) == list(FACTS)
    for name, facts in FACTS.items():
        fmt = FORMATS[name]
        derived = (fmt.max, fmt.smallest_normal, fmt.smallest_subnormal, fmt.eps)
        assert (fmt.name, fmt.bits, fmt.bias, *derived) == (name, *facts)
        assert fmt.storage_bits == (32 if fmt is TF32 else fmt.bits)
        assert 2.0**fmt.min_exponent == fmt.smallest_normal
        assert 1 <= fmt.max / 2.0**fmt.max_exponent < 2
        assert fmt.eps == 2.0**-fmt.mantissa_bits


@pytest.mark.parametrize("fmt", FINFO, ids=lambda fmt: fmt.name)
def test_finfo_of_other_libraries_says_the_same(fmt):
    info = ml_dtypes.finfo(FINFO[fmt])
    assert float(info.max) == fmt.max
    assert float(info.smallest_normal) == fmt.smallest_normal
    assert float(info.eps) == fmt.eps
    if fmt is not E8M0:
        assert float(info.smallest_subnormal) == fmt.smallest_subnormal


def test_a_format_is_frozen_and_hashable():
    with pytest.raises(AttributeError):
        E4M3.mantissa_bits = 4
    twin = FloatFormat("e4m3", exponent_bits=4, mantissa_bits=3, specials="fn")
    assert twin == E4M3 and hash(twin) == hash(E4M3) and twin != E4M3FNUZ


@pytest.mark.parametrize(
    ("widths", "error", "words"),
    [
        ({"exponent_bits": 0}, ValueError, "exponent_bits must be from 1 to 11, got 0"),
        ({"exponent_bits": 12}, ValueError, "exponent_bits must be from 1 to 11, got 12"),
        ({"exponent_bits": 4.0}, TypeError, "exponent_bits must be an int, got 4.0"),
        ({"exponent_bits": True}, TypeError, "exponent_bits must be an int, got True"),
        ({"mantissa_bits": -1}, ValueError, "mantissa_bits must be from 0 to 52, got -1"),
        ({"mantissa_bits": 53}, ValueError, "mantissa_bits must be from 0 to 52, got 53"),
        ({"mantissa_bits": 0}, ValueError, "mantissa_bits of at least 1"),
        ({"exponent_bits": 1}, ValueError, "use at least 2 exponent bits"),
        ({"specials": "ocp"}, ValueError, "'ieee', 'fn', 'fnuz', 'none'), got 'ocp'"),
        ({"specials": ["fn"]}, ValueError, r"got \['fn'\]"),
        ({"specials": "fnuz", "signed": False}, ValueError, "signed=True"),
        ({"signed": 1}, TypeError, "signed must be True or False, got 1"),
        ({"bias": 2000}, ValueError, "bias must be from -2 to 1023, got 2000"),
        ({"bias": -4}, ValueError, "bias must be from -2 to 1023, got -4"),
        ({"bias": 7.0}, TypeError, "bias must be an int, got 7.0"),
        ({"storage_bits": 7}, ValueError, "storage_bits must be from 8 to 64, got 7"),
        ({"name": ""}, TypeError, "name must be a string"),
    ],
)
def test_impossible_formats_are_refused(widths, error, words):
    arguments = {"name": "own", "exponent_bits": 4, "mantissa_bits": 3} | widths
    with pytest.raises(error, match=words.replace("(", r"\(").replace(")", r"\)")):
        FloatFormat(arguments.pop("name"), **arguments)


@pytest.mark.parametrize("fmt", CODES, ids=lambda fmt: fmt.name)
def test_every_code_decodes_as_in_ml_dtypes_and_encodes_back(fmt):
    codes = np.arange(2**fmt.bits)
    storage = codes.astype(np.uint8 if fmt.bits <= 8 else np.uint16)
    theirs = storage.view(CODES[fmt]).astype(np.float32)
    ours = decode(torch.from_numpy(codes), fmt)
    assert ours.dtype == torch.float32
    numbers = ~np.isnan(theirs)
    assert np.array_equal(np.isnan(ours.numpy()), ~numbers)
    assert np.array_equal(ours.numpy()[numbers].view(np.int32), theirs[numbers].view(np.int32))
    for values in (ours[numbers], ours[numbers].double()):
        assert torch.equal(encode(values, fmt), torch.from_numpy(codes)[numbers])
        assert torch.equal(quantize(values, fmt), values)
    if fmt.has_nan:
        assert decode(encode(torch.tensor([-math.nan]), fmt), fmt).isnan().item()


@pytest.mark.parametrize("fmt", SMALL, ids=lambda fmt: fmt.name)
def test_codes_count_up_through_the_values(fmt):
    values = positive_values(fmt)
    decoded = decode(torch.arange(len(values)), fmt).double().numpy()
    assert np.array_equal(decoded, values)
    assert values[-1] == fmt.max


def test_codes_of_fp32_tf32_and_fp64_are_their_bits():
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (20_000,), generator=generator)
    x = bits.int().view(torch.float32)
    numbers = ~x.isnan()
    assert torch.equal(encode(x, FP32)[numbers], bits[numbers] & 0xFFFFFFFF)
    assert torch.equal(decode(bits[numbers] & 0xFFFFFFFF, FP32), x[numbers])
    cut = (bits & ~0x1FFF).int().view(torch.float32)
    numbers = ~cut.isnan()
    assert torch.equal(encode(cut, TF32)[numbers], (bits[numbers] & 0xFFFFFFFF) >> 13)

    bits = torch.randint(-(2**63), 2**63 - 1, (20_000,), generator=generator)
    wide = bits.view(torch.float64)
    numbers = ~wide.isnan()
    assert torch.equal(encode(wide, FP64)[numbers], bits[numbers])
    assert torch.equal(decode(bits, FP64)[numbers], wide[numbers])
    assert encode(x[:9].double(), FP64).tolist() == encode(x[:9], FP64).tolist()
    assert encode(-2.0, FP64) == 0xC000 << 48 and decode(0xC000 << 48, FP64) == -2.0


def test_encode_rounds_as_quantize_does():
    x = torch.tensor([0.3, 464.0, 465.0, -1e9, math.inf, -0.0])
    for options in ({}, {"rounding": "up"}, {"rounding": "toward_zero"}, {"saturate": True}):
        codes = encode(x, E4M3, **options)
        assert codes.dtype == torch.int64
        assert torch.equal(
            decode(codes, E4M3).nan_to_num(7), quantize(x, E4M3, **options).nan_to_num(7)
        )
    assert encode(-0.0, E4M3) == 0x80 and encode(-0.0, E4M3FNUZ) == 0
    assert encode(torch.empty(2, 0), E4M3).shape == (2, 0)
    assert decode(torch.tensor(0x7E, dtype=torch.uint8), E4M3).shape == ()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: encode(math.nan, E2M1), ValueError, "e2m1 has no code for NaN"),
        (lambda: encode(torch.tensor([1.0, -2.0]), E8M0), ValueError, "e8m0 has no sign.*-2.0"),
        (lambda: decode(256, E4M3), ValueError, "0 .. 255, got 256"),
        (lambda: decode(-1, E4M3), ValueError, "0 .. 255, got -1"),
        (lambda: decode(torch.tensor([3, 16]), E2M1), ValueError, "0 .. 15, got 16"),
        (lambda: decode(torch.tensor([3, -1]), E2M1), ValueError, "0 .. 15, got -1"),
        (lambda: decode(torch.tensor([1.0]), E2M1), TypeError, "int64, got torch.float32"),
        (lambda: decode(True, E2M1), TypeError, "integers, got True"),
        (lambda: decode(1, "e2m1"), TypeError, "FloatFormat.*got 'e2m1'"),
        (lambda: quantize(1.0, "e2m1"), TypeError, "FloatFormat.*got 'e2m1'"),
        (lambda: quantize(1.0, E4M3, rounding="even"), ValueError, "nearest_even.*got 'even'"),
        (lambda: quantize(True, E4M3), TypeError, "a float or an int, got True"),
        (lambda: quantize("1", E4M3), TypeError, "a float or an int, got '1'"),
        (lambda: quantize(2**53 + 1, E4M3), ValueError, "exact in float64.*9007199254740993"),
        (lambda: quantize(10**400, E4M3), ValueError, "exact in float64"),
        (lambda: spacing([1.0], E4M3), TypeError, r"a float or an int, got \[1.0\]"),
    ],
)
def test_refusals_name_the_value_and_what_is_allowed(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.int64, torch.complex64, torch.bool]
)
def test_other_dtypes_are_refused_by_name(dtype):
    for verb in (quantize, encode, spacing):
        with pytest.raises(TypeError, match=f"float32 or torch.float64, got {dtype}"):
            verb(torch.ones(2).to(dtype), E4M3)


def test_spacing_in_fp64_is_math_ulp():
    for x in (0.0, -0.0, 1.0, -3.0, 5e-324, 1e300, FP64.max, math.inf, 2049.0):
        assert spacing(x, FP64) == math.ulp(x)
    assert math.isnan(spacing(math.nan, FP64))


@pytest.mark.parametrize("fmt", SMALL, ids=lambda fmt: fmt.name)
def test_spacing_is_the_gap_to_the_next_value(fmt):
    values = positive_values(fmt)
    for dtype in (torch.float32, torch.float64):
        x = torch.from_numpy(values[:-1]).to(dtype)
        gaps = torch.from_numpy(np.diff(values)).to(dtype)
        assert torch.equal(spacing(x, fmt), gaps)
        assert torch.equal(spacing(-x, fmt), gaps)
        between = x + gaps / 2
        assert torch.equal(spacing(between, fmt), gaps)
    assert spacing(fmt.max * 1.5, fmt) == spacing(fmt.max, fmt)
    assert spacing(0.0, fmt) == fmt.smallest_subnormal


def test_spacing_widens_where_float32_cannot_hold_the_gap():
    assert spacing(torch.tensor(1.0), FP64).dtype == torch.float64
    assert spacing(torch.tensor(1.0), FP64).item() == 2.0**-52
    assert spacing(torch.tensor(1.0), FP32).dtype == torch.float32
