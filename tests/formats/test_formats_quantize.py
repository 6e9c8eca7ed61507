"""quantize against every midpoint and neighbour, exact fractions, ml_dtypes, gfloat and torch."""

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rounding_oracle import DETERMINISTIC, by_fractions, by_search, hard_points

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
    quantize,
)

SMALL = [fmt for fmt in FORMATS.values() if fmt.bits <= 16]
BYTES = [fmt for fmt in SMALL if fmt.bits <= 8]
OWN = [
    FloatFormat("e3m0", exponent_bits=3, mantissa_bits=0, specials="none"),
    FloatFormat("e2m2 ieee", exponent_bits=2, mantissa_bits=2),
    FloatFormat("unsigned e4m3", exponent_bits=4, mantissa_bits=3, signed=False, specials="fn"),
    FloatFormat("unsigned none", exponent_bits=3, mantissa_bits=2, signed=False, specials="none"),
    FloatFormat("e4m3b11", exponent_bits=4, mantissa_bits=3, bias=11, specials="fnuz"),
    FloatFormat("below float32", exponent_bits=8, mantissa_bits=3, bias=140),
]
DTYPES = [np.float32, np.float64]
ML_DTYPES = {
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


def assert_same_bits(got: torch.Tensor, want: np.ndarray, x: np.ndarray, note: str = "") -> None:
    """Equal values and signs of zero; every NaN counts as the same."""
    got = got.numpy()
    with np.errstate(over="ignore"):
        want = want.astype(got.dtype)
    same = (got == want) & (np.signbit(got) == np.signbit(want)) | np.isnan(got) & np.isnan(want)
    wrong = np.flatnonzero(~same)[:5]
    assert not wrong.size, [(note, float(x[i]).hex(), got[i], want[i]) for i in wrong]


@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
@pytest.mark.parametrize("fmt", SMALL + OWN, ids=lambda fmt: fmt.name)
def test_every_value_midpoint_and_neighbour(fmt, dtype):
    x = hard_points(fmt, dtype)
    saturating = [("nearest_even", True), ("down", True)]
    for rounding, saturate in [*((rounding, False) for rounding in DETERMINISTIC), *saturating]:
        got = quantize(torch.from_numpy(x), fmt, rounding=rounding, saturate=saturate)
        assert got.dtype == torch.from_numpy(x).dtype
        want = by_search(x, fmt, rounding, saturate=saturate)
        assert_same_bits(got, want, x, f"{rounding} saturate={saturate}")


@pytest.mark.parametrize("fmt", BYTES, ids=lambda fmt: fmt.name)
def test_one_overflow_does_not_change_the_other_values(fmt):
    """A CPU looks for overflow once a chunk, so clean chunks take a shorter way."""
    x = hard_points(fmt, np.float32)
    alone = torch.cat([quantize(value[None], fmt) for value in torch.from_numpy(x)])
    assert_same_bits(quantize(torch.from_numpy(x), fmt), alone.numpy(), x)


@pytest.mark.parametrize("fmt", ML_DTYPES, ids=lambda fmt: fmt.name)
def test_ml_dtypes_agrees_on_float32(fmt):
    x = hard_points(fmt, np.float32)
    if not fmt.has_nan:
        x = x[~np.isnan(x)]  # ml_dtypes gives -0 where a format has no NaN
    if fmt is E8M0:
        x = x[x > 0]  # ml_dtypes gives NaN for zero; quantize the smallest value
        # ml_dtypes 0.6 rounds all that lies between these two, float32 subnormals, up to 2**-126.
        x = x[(x <= 2.0**-127) | (x >= 1.5 * 2.0**-127)]
    with np.errstate(over="ignore", invalid="ignore"):
        want = x.astype(ML_DTYPES[fmt]).astype(np.float32)
    assert_same_bits(quantize(torch.from_numpy(x), fmt), want, x)


GFLOAT = {
    E5M2: gfloat.formats.format_info_ocp_e5m2,
    E4M3: gfloat.formats.format_info_ocp_e4m3,
    E3M2: gfloat.formats.format_info_ocp_e3m2,
    E2M3: gfloat.formats.format_info_ocp_e2m3,
    E2M1: gfloat.formats.format_info_ocp_e2m1,
}
GFLOAT_ROUNDINGS = dict(
    zip(DETERMINISTIC, ["TiesToEven", "TiesToAway", "TowardZero"], strict=False)
) | {"up": "TowardPositive", "down": "TowardNegative"}


@pytest.mark.parametrize("rounding", DETERMINISTIC)
@pytest.mark.parametrize("fmt", GFLOAT, ids=lambda fmt: fmt.name)
def test_gfloat_agrees_in_every_direction(fmt, rounding):
    x = hard_points(fmt, np.float32)
    saturate = not fmt.has_nan  # gfloat refuses to overflow where there is no NaN
    if saturate:
        x = x[np.isfinite(x)]
    mode = gfloat.RoundMode[GFLOAT_ROUNDINGS[rounding]]
    want = [gfloat.round_float(GFLOAT[fmt], float(v), mode, saturate) for v in x]
    assert_same_bits(quantize(torch.from_numpy(x), fmt, rounding=rounding), np.array(want), x)


@pytest.mark.parametrize(
    ("fmt", "dtype"),
    [(FP16, torch.float16), (BF16, torch.bfloat16), (E5M2, torch.float8_e5m2)],
    ids=["fp16", "bf16", "e5m2"],
)
def test_torch_agrees_on_random_bits(fmt, dtype):
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (200_000,), generator=generator)
    x = bits.to(torch.int32).view(torch.float32)
    assert_same_bits(quantize(x, fmt), x.to(dtype).float().numpy(), x.numpy())


def test_fp32_from_float64_is_one_rounding_of_numpy():
    generator = torch.Generator().manual_seed(1)
    bits = torch.randint(-(2**63), 2**63 - 1, (200_000,), generator=generator)
    near_one = torch.randn(200_000, generator=generator, dtype=torch.float64)
    subnormal = near_one * 2.0**-140
    x = torch.cat([bits.view(torch.float64), near_one, subnormal, near_one * 2.0**127])
    with np.errstate(over="ignore", invalid="ignore"):
        want = x.numpy().astype(np.float32).astype(np.float64)
    assert_same_bits(quantize(x, FP32), want, x.numpy())


def test_float64_does_not_pass_through_float32():
    x = 1 + 2.0**-8 + 2.0**-30
    assert torch.tensor(x, dtype=torch.float64).float().bfloat16().item() == 1.0
    assert quantize(x, BF16) == 1.0078125


WIDE_VALUES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.builds(lambda m, e: m * 2.0**e, st.integers(-(2**24), 2**24), st.integers(-170, 130)),
)


def _format_or_none(exponent_bits, mantissa_bits, bias, specials):
    try:
        return FloatFormat(
            "own",
            exponent_bits=exponent_bits,
            mantissa_bits=mantissa_bits,
            bias=bias,
            specials=specials,
        )
    except ValueError:  # a width or a bias that no format may have
        return None


def formats(exponent_bits, mantissa_bits, biases):
    """Formats of up to so many bits, each with a bias of its own or the usual one."""
    return st.builds(
        _format_or_none,
        st.integers(1, exponent_bits),
        st.integers(0, mantissa_bits),
        st.none() | biases,
        st.sampled_from(["ieee", "fn", "fnuz", "none"]),
    ).filter(lambda fmt: fmt is not None)


ANY = formats(11, 52, st.integers(-5, 1100))
NARROW = formats(7, 16, st.integers(20, 90))  # almost always float32 has all of their values


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([TF32, FP32]) | ANY, WIDE_VALUES, st.sampled_from(DETERMINISTIC))
def test_any_format_equals_exact_fractions(fmt, x, rounding):
    want = torch.tensor([by_fractions(x, fmt, rounding)], dtype=torch.float64).numpy()
    got = quantize(torch.tensor([x], dtype=torch.float64), fmt, rounding=rounding)
    assert_same_bits(got, want, np.array([x]), f"{fmt} {rounding}")


@settings(max_examples=200, deadline=None)
@given(NARROW, st.floats(width=32, allow_nan=False), st.sampled_from(DETERMINISTIC))
def test_float32_gives_what_float64_gives(fmt, x, rounding):
    """Where float32 has every value of the format, the dtype of x makes no difference."""
    assume(fmt.max <= FP32.max and fmt.smallest_subnormal >= FP32.smallest_subnormal)
    narrow, wide = torch.tensor([x], dtype=torch.float32), torch.tensor([x], dtype=torch.float64)
    got = quantize(narrow, fmt, rounding=rounding)
    assert_same_bits(got, quantize(wide, fmt, rounding=rounding).numpy(), wide.numpy())


@pytest.mark.parametrize(
    ("dtype", "mantissa_bits"),
    [(torch.float32, 22), (torch.float32, 21), (torch.float64, 51), (torch.float64, 50)],
    ids=str,
)
def test_one_or_two_bits_fewer_than_the_dtype_are_rounded_right(dtype, mantissa_bits):
    """Adding and taking away a large number rounds right only with two bits to spare."""
    fmt = FloatFormat("own", exponent_bits=7, mantissa_bits=mantissa_bits)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, generator=generator, dtype=dtype)
    want = np.array([by_fractions(value, fmt, "nearest_even") for value in x.tolist()])
    assert_same_bits(quantize(x, fmt), want, x.numpy())


@settings(max_examples=200, deadline=None)
@given(ANY, st.floats(), st.sampled_from(DETERMINISTIC), st.booleans())
def test_a_second_quantize_changes_nothing(fmt, x, rounding, saturate):
    once = quantize(x, fmt, rounding=rounding, saturate=saturate)
    twice = quantize(once, fmt, rounding=rounding, saturate=saturate)
    assert_same_bits(torch.tensor([twice]), np.array([once]), np.array([x]))


@pytest.mark.parametrize("rounding", DETERMINISTIC)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_format_as_wide_as_the_input_copies_it(dtype, rounding):
    info = torch.finfo(dtype)
    edges = [0.0, -0.0, info.max, -info.max, info.tiny, info.tiny * info.eps]
    x = torch.tensor([*edges, torch.inf, -torch.inf, torch.nan, 0.1], dtype=dtype)
    for fmt in [FP64] + [FP32] * (dtype is torch.float32):
        y = quantize(x, fmt, rounding=rounding)
        assert_same_bits(y, x.numpy(), x.numpy())
        assert y.data_ptr() != x.data_ptr()
        limit = quantize(x, fmt, rounding=rounding, saturate=True)
        assert limit[6].item() == info.max and limit[7].item() == -info.max


def test_a_wider_format_gives_only_values_of_the_inputs_dtype():
    wide = FloatFormat("e11m3", exponent_bits=11, mantissa_bits=3)
    x = torch.tensor([3.4e38, 2.0**-149, 2.0**-140 * 1.0625, 1.0625])
    assert quantize(x, wide, rounding="toward_zero").tolist() == [
        1.875 * 2.0**127,
        2.0**-149,
        2.0**-140,
        1.0,
    ]
    assert quantize(x, wide, saturate=True)[0].item() == 1.875 * 2.0**127
