"""scaled, mx and nvfp4 against torchao, gfloat, ml_dtypes, F.scaled_mm and exact fractions."""

import math
from fractions import Fraction

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from labkit.base.home import import_optional
from labkit.formats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E5M2,
    E8M0,
    FP32,
    encode,
    mx,
    nvfp4,
    quantize,
    scaled,
)
from labkit.formats.block_scaling import MX_RULES

ML_DTYPES = {
    E4M3: ml_dtypes.float8_e4m3fn,
    E5M2: ml_dtypes.float8_e5m2,
    E3M2: ml_dtypes.float6_e3m2fn,
    E2M3: ml_dtypes.float6_e2m3fn,
    E2M1: ml_dtypes.float4_e2m1fn,
}
FORMATS = list(ML_DTYPES)
FLOAT8 = [E4M3, E5M2]


def named(fmt):
    return fmt.name if hasattr(fmt, "name") else str(fmt)


def rows(seed=0, count=96, width=128):
    """Normal values, each row by its own power of two from 2**-100 to 2**100."""
    generator = torch.Generator().manual_seed(seed)
    powers = 2.0 ** torch.randint(-100, 100, (count, 1), generator=generator)
    return torch.randn(count, width, generator=generator) * powers


def hard_blocks():
    """Rows of 128 whose blocks of 32 have a largest value at an edge, of either sign, and ties."""
    edges = [2.0**e * m for e in (-60, -1, 0, 8, 10, 60) for m in (1, 1.5, 1.75, 1.875)]
    edges += [6, 7, 7.5, 28, 30, 31, 448, 464, 480, 496, 57344, 61440]
    edges = np.float32([*edges, 1e30, 1e-30, 3.5])
    beside = [np.nextafter(edges, np.float32(side)) for side in (0, np.inf)]
    largest = np.concatenate([edges, *beside])
    largest = np.concatenate([largest, -largest])[:, None]
    ratios = np.float32([1, 0.96875, 0.75, 0.625, 0.3, 1 / 24, 1e-3, 2**-9])
    ratios = np.concatenate([ratios, -ratios, ratios / 3, -ratios[:7] / 7])
    blocks = np.concatenate([largest, abs(largest) * ratios], axis=1).astype(np.float32)
    zeros = np.zeros((2, 32), np.float32)
    zeros[1] = -0.0
    assert len(blocks) % 4 == 2
    return torch.from_numpy(np.concatenate([blocks, zeros])).view(-1, 128)


def same_bytes(a, b):
    return a.view(torch.uint8) == b.view(torch.uint8)


# torchao

TORCHAO_RULES = {"floor": "FLOOR", "up": "RCEIL", "even": "EVEN"}


def torchaos_mx(x, fmt, rule):
    """Scales and element values of torchao's MXTensor."""
    mx_tensor = import_optional("torchao.prototype.mx_formats.mx_tensor")
    config = import_optional("torchao.prototype.mx_formats.config")
    kernels = import_optional("torchao.prototype.mx_formats.kernels")
    names = {
        E4M3: torch.float8_e4m3fn,
        E5M2: torch.float8_e5m2,
        E3M2: "fp6_e3m2",
        E2M3: "fp6_e2m3",
        E2M1: torch.float4_e2m1fn_x2,
    }
    mode = config.ScaleCalculationMode[TORCHAO_RULES[rule]]
    q = mx_tensor.MXTensor.to_mx(x, names[fmt], 32, scaling_mode=mode)
    read = {
        E3M2: kernels.f6_e3m2_unpacked_to_f32,
        E2M3: kernels.f6_e2m3_unpacked_to_f32,
        E2M1: lambda packed: kernels.f4_unpacked_to_f32(kernels.unpack_uint4(packed)),
    }.get(fmt, lambda codes: codes.float())
    return q.scale, read(q.qdata).view(x.shape), q.dequantize(torch.float32)


@pytest.mark.parametrize("rule", MX_RULES)
@pytest.mark.parametrize("fmt", FORMATS, ids=named)
def test_mx_has_the_bits_of_torchao(fmt, rule):
    x = torch.cat([rows(), hard_blocks()])
    q = mx(x, fmt, overflow="saturate", rule=rule)
    scales, values, dequantized = torchaos_mx(x, fmt, rule)
    apart = torch.zeros(q.scales.shape, dtype=torch.bool)
    if rule == "up":
        # torchao rounds up log2 of the descale in float32, which is whole already a little above
        # a power of two. Half the right scale is too small by so little that nothing overflows.
        descale = x.unflatten(-1, (-1, 32)).abs().amax(-1) / fmt.max
        apart = (descale.log2().frac() == 0) & (torch.frexp(descale).mantissa != 0.5)
        assert apart.any() and torch.all(q.scales.float()[apart] >= scales.float()[apart])
    assert torch.all(same_bytes(q.scales, scales) | apart)
    kept = ~apart.repeat_interleave(32, -1)
    assert torch.equal(q.codes.float()[kept], values[kept])
    assert torch.equal(torch.signbit(q.codes.float())[kept], torch.signbit(values)[kept])
    assert torch.equal(q.dequantize()[kept], dequantized[kept])


@pytest.mark.parametrize("rule", MX_RULES)
def test_where_torchao_leaves_the_definition(rule):
    """A block below E8M0's smallest scale: torchao stores 2**-127 and divides by more."""
    x = torch.full((1, 32), 2.0**-130)
    q = mx(x, E4M3, overflow="saturate", rule=rule)
    scales, values, _ = torchaos_mx(x, E4M3, rule)
    assert q.scales.view(torch.uint8).item() == scales.view(torch.uint8).item() == 0
    assert q.codes.float()[0, 0] == 2.0**-3 and torch.equal(q.dequantize(), x)
    # By 2**-126 under floor and even, by 1 under RCEIL.
    assert values[0, 0] == (0.0 if rule == "up" else 2.0**-4)
    # inf counts as float32's largest: under floor torchao takes the exponent after it.
    x[0, 0] = torch.inf
    assert mx(x, E4M3, overflow="saturate", rule=rule).scales.item() == 2.0 ** (
        119 if rule == "floor" else 120
    )


@pytest.mark.parametrize("tensor_scale", [True, False])
@pytest.mark.parametrize("size", [1.0, 1e-5, 1e4, 1e-30, 1e30])
def test_nvfp4_has_the_bits_of_torchao(size, tensor_scale):
    nv = import_optional("torchao.prototype.mx_formats.nvfp4_tensor")
    kernels = import_optional("torchao.prototype.mx_formats.kernels")
    generator = torch.Generator().manual_seed(0)
    spread = torch.exp(3 * torch.randn(64, 1, generator=generator))
    x = torch.randn(64, 128, generator=generator) * spread
    x = torch.cat([x, hard_blocks().clamp(-1e3, 1e3)]) * size
    # Ties between codes, where it shows whether one divides by a scale or by its reciprocal.
    first = nvfp4(x, overflow="saturate", tensor_scale=tensor_scale)
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5]).repeat(2)
    factor = first.scales.float() * (first.tensor_scale if tensor_scale else 1)
    tied = x.unflatten(-1, (-1, 16)).clone()
    tied[..., 1:15] = factor[..., None] * ties
    where = tied.abs().amax(-1, keepdim=True) == x.unflatten(-1, (-1, 16)).abs().amax(-1, True)
    x = torch.cat([x, torch.where(where, tied, 0).flatten(-2)])
    per_tensor = nv.per_tensor_amax_to_scale(x.abs().amax()) if tensor_scale else None
    want = nv.NVFP4Tensor.to_nvfp4(x, per_tensor_scale=per_tensor)
    q = nvfp4(x, overflow="saturate", tensor_scale=tensor_scale)
    assert q.tensor_scale == per_tensor
    assert torch.all(same_bytes(q.scales, want.scale))
    values = kernels.f4_unpacked_to_f32(kernels.unpack_uint4(want.qdata))
    assert torch.equal(q.codes, values)
    assert torch.equal(torch.signbit(q.codes), torch.signbit(values))
    assert torch.equal(q.dequantize(), want.dequantize(torch.float32))
    if not tensor_scale:
        block = {"granularity": "block", "block": 16, "scale_format": E4M3}
        assert torch.equal(scaled(x, E2M1, overflow="saturate", **block).codes, values)


def test_nvfp4_of_a_tensor_whose_reciprocal_scales_overflow():
    """There torchao multiplies by inf: it divides 1 by a tensor scale of about 2**-128."""
    nv = import_optional("torchao.prototype.mx_formats.nvfp4_tensor")
    x = torch.randn(1, 64, generator=torch.Generator().manual_seed(9)) * 1e-35
    x[0, 16:32] *= 2.0**-14
    x[0, 32:48] = 0
    q = nvfp4(x, overflow="raise")
    want = nv.NVFP4Tensor.to_nvfp4(x, per_tensor_scale=nv.per_tensor_amax_to_scale(x.abs().amax()))
    assert torch.all(same_bytes(q.scales, want.scale))
    # Both scale what float64 scales by so much, to the precision of float32's subnormal scales.
    large = nvfp4(x * 2.0**100, overflow="raise")
    assert torch.equal(q.codes, large.codes) and not torch.equal(
        q.dequantize(), want.dequantize(torch.float32)
    )
    smallest = torch.zeros(1, 32)
    smallest[0, 0], smallest[0, 16] = 6 * 2.0**-149, 2.0**-149
    assert nvfp4(smallest, overflow="raise").codes[0, 0] == 6


# gfloat


@pytest.mark.parametrize("fmt", FORMATS, ids=named)
def test_mx_has_the_values_of_gfloat(fmt):
    """gfloat has the floor rule, computes in float64 and saturates."""
    blocks = hard_blocks().view(-1, 32).clamp(-1e30, 1e30)
    name = f"format_info_mxfp{fmt.bits}_{fmt.name}"
    info = getattr(gfloat.formats, name)
    got = mx(blocks, fmt, overflow="saturate").dequantize().numpy()
    for x, values in zip(blocks.double().numpy(), got, strict=True):
        want = gfloat.quantize_block(info, x, gfloat.compute_scale_amax)
        np.testing.assert_array_equal(values, want, err_msg=f"largest {x[0].hex()}")


def test_nvfp4_block_is_gfloats_with_its_scale():
    """gfloat encodes E2M1 by any scale that its block format has."""
    info = gfloat.BlockFormatInfo(
        "nvfp4", gfloat.formats.format_info_ocp_e2m1, 16, gfloat.formats.format_info_ocp_e4m3
    )
    x = torch.randn(40, 16, generator=torch.Generator().manual_seed(1))
    q = nvfp4(x, overflow="raise", tensor_scale=False)
    scales = q.scales.double().flatten().tolist()
    for block, scale, values in zip(x, scales, q.dequantize(), strict=True):
        want = gfloat.quantize_block(info, block.double().numpy(), lambda *_, scale=scale: scale)
        np.testing.assert_array_equal(values.numpy(), want)


# Fractions


def floor_log2(x):
    """The exponent of a positive fraction."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if x >= Fraction(2) ** e else e - 1


def exact_exponent(amax, fmt, rule):
    """The definition of each rule, in exact fractions."""
    amax = Fraction(amax)
    if rule == "up":
        ratio = amax / Fraction(fmt.max)
        e = floor_log2(ratio)
        return e if ratio == Fraction(2) ** e else e + 1
    if rule == "even":
        step = Fraction(2) ** (floor_log2(amax) - fmt.mantissa_bits)
        amax = math.floor(amax / step + Fraction(1, 2)) * step
    return floor_log2(amax) - fmt.max_exponent


@pytest.mark.parametrize("rule", MX_RULES)
@pytest.mark.parametrize("fmt", FORMATS, ids=named)
def test_mx_follows_its_definition(fmt, rule):
    blocks = hard_blocks().view(-1, 32)[:-2]
    tiny = torch.zeros(149 - 100, 32)
    tiny[:, 0] = 2.0 ** torch.arange(-149, -100)
    tiny[:, 1] = -1.75 * tiny[:, 0]
    blocks = torch.cat([blocks, tiny])
    q = mx(blocks, fmt, overflow="saturate", rule=rule)
    for block, scale, codes in zip(blocks, q.scales, q.codes.float(), strict=True):
        e = exact_exponent(block.abs().amax().item(), fmt, rule)
        # A descale that float32 rounds to a power of two counts as one: cuBLAS's definition.
        got = math.log2(scale.item())
        ratio = np.float32(block.abs().amax().item()) / np.float32(fmt.max)
        rounded = rule == "up" and Fraction(float(ratio)) == Fraction(2) ** (e - 1)
        assert got == max(e - rounded, -127), block[:2]
        quotient = np.clip(block.double().numpy() * 2.0**-got, -fmt.max, fmt.max)
        np.testing.assert_array_equal(codes.numpy(), quotient.astype(ML_DTYPES[fmt]))


# ml_dtypes


def numpys_quotient(x, descale):
    with np.errstate(under="ignore"):
        return x / descale.astype(np.float32)


@pytest.mark.parametrize("fmt", FORMATS, ids=named)
@pytest.mark.parametrize("granularity", ["tensorwise", "rowwise", 16, (16, 32)], ids=str)
def test_float32_scales_are_amax_over_max(fmt, granularity):
    x = torch.cat([rows(count=92) * 1e-7, hard_blocks()[:28]]).clamp(-1e30, 1e30)[:96]
    is_block = not isinstance(granularity, str)
    q = scaled(
        x,
        fmt,
        overflow="raise",
        granularity="block" if is_block else granularity,
        block=granularity if is_block else None,
    )
    rows_, columns = {"tensorwise": (96, 128), "rowwise": (1, 128), 16: (1, 16)}.get(
        granularity, granularity
    )
    a = x.numpy().reshape(96 // rows_, rows_, 128 // columns, columns)
    amax = abs(a).max((1, 3), keepdims=True)
    want = amax / np.float32(fmt.max)
    np.testing.assert_array_equal(q.scales.numpy().reshape(want.shape), want)
    codes = (a / want).clip(-fmt.max, fmt.max).astype(ML_DTYPES[fmt]).reshape(96, 128)
    np.testing.assert_array_equal(q.codes.float().numpy(), codes.astype(np.float32))
    values = (codes.astype(np.float32).reshape(a.shape) * want).reshape(96, 128)
    np.testing.assert_array_equal(q.dequantize().numpy(), values)
    assert q.scales.shape == (() if granularity == "tensorwise" else (96 // rows_, 128 // columns))


@pytest.mark.parametrize("fmt", FORMATS, ids=named)
def test_scales_in_e8m0_and_e4m3(fmt):
    x = rows(count=40) * 2.0**-40
    block = {"granularity": "block", "block": (8, 32)}
    powers = scaled(x, fmt, overflow="raise", scale_format=E8M0, **block)
    descale = scaled(x, fmt, overflow="raise", **block).scales
    assert powers.scales.dtype == torch.float8_e8m0fnu
    ratio = powers.scales.float() / descale
    assert torch.all((ratio >= 1) & (ratio < 2))
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(2)) * fmt.max
    q = scaled(x, fmt, overflow="saturate", granularity="block", block=16, scale_format=E4M3)
    amax = x.view(32, 4, 16).abs().amax(-1).numpy()
    want = (amax / np.float32(fmt.max)).clip(2.0**-6, 448).astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(q.scales.float().numpy(), want.astype(np.float32))
    quotient = x.numpy().reshape(32, 4, 16) * (1 / want.astype(np.float32))[..., None]
    codes = quotient.clip(-fmt.max, fmt.max).astype(ML_DTYPES[fmt]).astype(np.float32)
    np.testing.assert_array_equal(q.codes.float().numpy(), codes.reshape(32, 64))


def test_square_nvfp4_by_ml_dtypes():
    w = torch.randn(48, 32, generator=torch.Generator().manual_seed(3)) * 0.05
    q = nvfp4(w, overflow="raise", square=True)
    a = w.numpy().reshape(3, 16, 2, 16)
    amax = abs(a).max((1, 3), keepdims=True)
    tensor = amax.max() / np.float32(448 * 6)
    scales = (amax / np.float32(6) / tensor).clip(2.0**-6, 448).astype(ml_dtypes.float8_e4m3fn)
    factor = np.float32(1) / tensor / scales.astype(np.float32)
    codes = (a * factor).clip(-6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
    np.testing.assert_array_equal(q.codes.numpy(), codes.reshape(48, 32))
    np.testing.assert_array_equal(q.scales.float().numpy(), scales.squeeze().astype(np.float32))
    assert q.scales.shape == (3, 2) and q.tensor_scale.item() == tensor


# What follows from the definitions


@pytest.mark.parametrize("fmt", FORMATS, ids=named)
@pytest.mark.parametrize("amax", [1e-35, 1e-30, 1.0, 1e30, 3.4e38])
def test_the_largest_code_is_the_largest_value(fmt, amax):
    x = torch.tensor([[0.1, -1.0, 0.0, 0.5]]).repeat(2, 8) * amax
    for granularity in ("tensorwise", "rowwise"):
        q = scaled(x, fmt, overflow="raise", granularity=granularity)
        assert q.codes.float()[0, 1] == -fmt.max and torch.all(q.scales.isfinite())
        assert torch.allclose(q.dequantize()[:, 1], x[:, 1], rtol=1e-5, atol=0)
    q = nvfp4(x, overflow="raise")
    assert q.codes[0, 1] == -6 and q.scales.float().amax() == 448
    assert torch.allclose(q.dequantize()[:, 1], x[:, 1], rtol=1e-5, atol=0)


@given(st.floats(2.0**-116, FP32.max, width=32), st.sampled_from(FORMATS))
@settings(max_examples=300)
def test_float32_scales_never_overflow(amax, fmt):
    q = scaled(torch.tensor([amax, -amax / 3]), fmt, overflow="raise")
    assert q.codes.float()[0] == fmt.max
    assert abs(q.dequantize()[0].item() / amax - 1) < 2.0**-15


@given(
    st.lists(st.floats(-FP32.max, FP32.max, width=32), min_size=32, max_size=32),
    st.sampled_from(FORMATS),
)
@settings(max_examples=300)
def test_rounding_a_scale_up_never_overflows(values, fmt):
    x = torch.tensor([values])
    for q in (
        mx(x, fmt, overflow="raise", rule="up"),
        scaled(x, fmt, overflow="raise", granularity="rowwise", scale_format=E8M0),
    ):
        scale = q.scales.double()
        assert q.scales.dtype == torch.float8_e8m0fnu
        # Half a step of the code, which is at least the smallest subnormal.
        codes = q.codes.double()
        step = torch.maximum(codes.abs() * fmt.eps, torch.tensor(fmt.smallest_subnormal))
        assert torch.all((codes * scale - x.double()).abs() <= step / 2 * scale)


def test_zeros_have_a_scale():
    x = torch.zeros(2, 32)
    x[1] = -0.0
    for fmt in FORMATS:
        for q in (
            scaled(x, fmt, overflow="raise"),
            scaled(x, fmt, overflow="raise", granularity="block", block=(2, 16)),
            scaled(x, fmt, overflow="raise", granularity="rowwise", scale_format=E8M0),
            scaled(x, fmt, overflow="raise", granularity="rowwise", scale_format=E4M3),
            *(mx(x, fmt, overflow="raise", rule=rule) for rule in MX_RULES),
            nvfp4(x, overflow="raise"),
            nvfp4(x, overflow="raise", tensor_scale=False),
        ):
            assert torch.all(q.scales.float() > 0) and torch.all(q.scales.float().isfinite())
            assert torch.equal(q.dequantize(), x)
            assert torch.equal(torch.signbit(q.codes.float()), torch.signbit(x))


@pytest.mark.parametrize("fmt", FORMATS, ids=named)
def test_the_floor_rule_overflows_and_the_call_says_what_happens(fmt):
    """A largest value of 2 - 2**-20 times a power of two lies past every format's largest."""
    x = torch.full((1, 32), (2 - 2.0**-20) * 2.0**fmt.max_exponent)
    x[0, 1], x[0, 2] = -x[0, 0], 1.0
    q = mx(x, fmt, overflow="saturate")
    assert q.scales.item() == 1
    assert q.codes.float()[0, :3].tolist() == [fmt.max, -fmt.max, 1.0]
    with pytest.raises(ValueError, match=rf"^31 of 32 values are past .*{fmt.name}"):
        mx(x, fmt, overflow="raise")
    if fmt.has_nan:
        codes = mx(x, fmt, overflow="nan").codes.float()[0]
        assert codes[:2].isnan().all() and codes[2] == 1
    else:
        with pytest.raises(ValueError, match="no NaN"):
            mx(x, fmt, overflow="nan")
    # Just below the tie nothing is past.
    tie = fmt.max + 2.0 ** (fmt.max_exponent - fmt.mantissa_bits - 1)
    x = torch.full((1, 32), np.nextafter(np.float32(tie), np.float32(0)).item())
    assert mx(x, fmt, overflow="raise").codes.float()[0, 0] == fmt.max


def test_nvfp4_without_its_tensor_scale_overflows():
    x = torch.full((1, 16), 2688 * 7 / 6)
    assert nvfp4(x, overflow="saturate", tensor_scale=False).dequantize()[0, 0] == 2688
    with pytest.raises(ValueError, match=r"^16 of 16 .* up to 7$"):
        nvfp4(x, overflow="raise", tensor_scale=False)
    assert nvfp4(x, overflow="raise").codes[0, 0] == 6


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_inf(bad):
    x = torch.ones(2, 64)
    x[0, 3] = bad
    calls = {
        "tensor": lambda how: scaled(x, E4M3, overflow=how),
        "row": lambda how: scaled(x, E5M2, overflow=how, granularity="rowwise"),
        "floor": lambda how: mx(x, E4M3, overflow=how),
        "up": lambda how: mx(x, E4M3, overflow=how, rule="up"),
        "even": lambda how: mx(x, E2M1, overflow=how, rule="even"),
        "nvfp4": lambda how: nvfp4(x, overflow=how),
        "nvfp4 one level": lambda how: nvfp4(x, overflow=how, tensor_scale=False),
    }
    touched = {"tensor": 128, "row": 64, "nvfp4": 128, "nvfp4 one level": 16}
    for name, call in calls.items():
        with pytest.raises(ValueError, match="1 values that are inf or NaN"):
            call("raise")
        q = call("saturate")
        values = q.dequantize()
        if math.isnan(bad):
            assert values.isnan().sum() == touched.get(name, 32), name
            if not q.fmt.has_nan:
                encode(q.codes, q.fmt)  # which refuses NaN
        else:
            assert q.codes.float()[0, 3] == math.copysign(q.fmt.max, bad), name
            assert not values.isnan().any() and values[1, 32:].unique().numel() == 1
            if name == "tensor":
                assert call("nan").codes.float().isnan().nonzero().tolist() == [[0, 3]]


def test_stochastic_rounding_is_that_of_quantize():
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(4))

    def seeded():
        return torch.Generator().manual_seed(5)

    for call in (scaled, mx):
        nearest = call(x, E4M3, overflow="saturate")
        q = call(x, E4M3, overflow="saturate", rounding="stochastic", generator=seeded())
        assert torch.all(same_bytes(q.scales.view(-1, 1), nearest.scales.view(-1, 1)))
        scales = q.scales.float()
        quotient = x / (scales.repeat_interleave(32, -1) if call is mx else scales)
        want = quantize(quotient, E4M3, rounding="stochastic", saturate=True, generator=seeded())
        assert torch.equal(q.codes.float(), want)
        assert not torch.equal(q.codes.float(), nearest.codes.float())
    many = [
        nvfp4(x, overflow="saturate", rounding="stochastic", generator=generator).dequantize()
        for generator in [seeded()]
        for _ in range(400)
    ]
    q = nvfp4(x, overflow="saturate")
    widest = 2 * q.tensor_scale * q.scales.float().repeat_interleave(16, -1)
    # A draw is off by at most one step, 2 near 6; so its standard deviation is at most half of it.
    # Five of the mean's, for 512 values. Codes of up to 6.4 saturate: they only come nearer.
    off = torch.stack(many).mean(0) - x
    inside = x.abs() <= 6 * q.tensor_scale * q.scales.float().repeat_interleave(16, -1)
    assert torch.all(off.abs()[inside] <= (5 * widest / 2 / math.sqrt(400))[inside])
    assert torch.any((q.dequantize() - x).abs() > 5 * widest / 2 / math.sqrt(400))


def test_axes_and_transposes():
    x = torch.randn(64, 96, generator=torch.Generator().manual_seed(6))
    pairs = [
        lambda x, axis: mx(x, E4M3, overflow="saturate", axis=axis),
        lambda x, axis: nvfp4(x, overflow="saturate", axis=axis),
        lambda x, axis: scaled(x, E5M2, overflow="saturate", granularity="rowwise", axis=axis),
    ]
    for call in pairs:
        along, across = call(x.t(), 1), call(x, 0)
        assert torch.equal(along.codes.float().t(), across.codes.float())
        assert torch.equal(along.scales.float().t(), across.scales.float())
        assert torch.equal(along.dequantize().t(), across.dequantize())
        three = call(x.view(4, 16, 96).transpose(0, 1), -1)
        assert torch.equal(
            three.dequantize(), call(x, -1).dequantize().view(4, 16, 96).transpose(0, 1)
        )
        assert three.axis == 2
    # Square blocks have the same scales both ways; blocks along an axis do not.
    for call in (
        lambda x: nvfp4(x, overflow="saturate", square=True),
        lambda x: scaled(x, E4M3, overflow="saturate", granularity="block", block=(32, 32)),
    ):
        assert torch.equal(call(x.t()).dequantize(), call(x).dequantize().t())
    flat = nvfp4(x, overflow="saturate").dequantize()
    assert not torch.equal(nvfp4(x.t(), overflow="saturate").dequantize().t(), flat)


def test_bits_count_the_scales():
    x = torch.ones(64, 256)
    assert mx(x, E4M3, overflow="raise").bits_per_value == 8 + 8 / 32
    assert mx(x, E2M1, overflow="raise").bits_per_value == 4 + 8 / 32
    assert nvfp4(x, overflow="raise").bits_per_value == 4 + 8 / 16 + 32 / x.numel()
    tiles = scaled(x, E4M3, overflow="raise", granularity="block", block=(32, 32))
    assert tiles.bits_per_value == 8 + 32 / 1024
    assert scaled(x, E3M2, overflow="raise").bits_per_value == 6 + 32 / x.numel()


def test_scaled_mm_takes_the_record():
    """F.scaled_mm multiplies by the scales as they are: the product of the dequantized tensors."""
    generator = torch.Generator().manual_seed(8)
    a, b = torch.randn(32, 64, generator=generator), torch.randn(48, 64, generator=generator)
    for granularity, kind in (
        ("tensorwise", F.ScalingType.TensorWise),
        ("rowwise", F.ScalingType.RowWise),
    ):
        qa, qb = (scaled(x, E4M3, overflow="raise", granularity=granularity) for x in (a, b))
        got = F.scaled_mm(
            qa.codes,
            qb.codes.t(),
            qa.scales,
            kind,
            qb.scales if granularity == "tensorwise" else qb.scales.t(),
            kind,
            output_dtype=torch.float32,
        )
        left, right = qa.dequantize().double(), qb.dequantize().double().t()
        # 64 terms, each within 2**-24 for each operand's product and each sum: 70 units at most.
        assert torch.all((got - left @ right).abs() <= 70 * 2.0**-24 * (left.abs() @ right.abs()))


def test_scaling_by_amax_reduces_the_error_of_small_gradients():
    """T10: E4M3 of a million values of N(0, 1e-3), relative to them in the 2-norm.

    Unscaled they lie below E4M3's smallest normal value, 2**-6, and two thirds of them below half
    its smallest value, 2**-9: these become 0.
    """
    x = torch.randn(1 << 20, generator=torch.Generator().manual_seed(0)) * 1e-3

    def error(y):
        return ((y - x).norm() / x.norm()).item()

    unscaled = quantize(x, E4M3, saturate=True)
    assert x.abs().amax() < 2.0**-6 and 0.65 < (unscaled == 0).float().mean() < 0.69
    assert error(unscaled) == pytest.approx(0.562, abs=2e-3)
    assert error(scaled(x, E4M3, overflow="raise").dequantize()) == pytest.approx(0.0264, abs=2e-4)


def test_wrong_arguments_are_refused():
    x = torch.ones(4, 100)
    for call in (scaled, mx):
        with pytest.raises(TypeError, match="overflow"):
            call(x, E4M3)
        for bad in (x.int(), x.double(), x.bool(), [1.0], x.to(torch.float8_e4m3fn)):
            with pytest.raises(TypeError, match=r"x must be a tensor .*x\.float\(\)"):
                call(bad, E4M3, overflow="saturate")
        with pytest.raises(TypeError, match="fmt must be a FloatFormat"):
            call(x, torch.float8_e4m3fn, overflow="saturate")
        for fmt in (BF16, E8M0):
            with pytest.raises(ValueError, match="sign and at most 8 bits"):
                call(x, fmt, overflow="saturate")
        with pytest.raises(ValueError, match=r"overflow must be one of .*'clip'"):
            call(x, E4M3, overflow="clip")
        with pytest.raises(ValueError, match="axis=2"):
            call(x, E4M3, overflow="saturate", axis=2)
        with pytest.raises(ValueError, match="no values"):
            call(x[:0], E4M3, overflow="saturate")
        with pytest.raises(ValueError, match="rounding must be one of"):
            call(x[:, :96], E4M3, overflow="saturate", rounding="nearest")
    with pytest.raises(ValueError, match=r"rule must be one of .*'ceil'"):
        mx(x, E4M3, overflow="saturate", rule="ceil")
    with pytest.raises(ValueError, match=r"axis 1 of .* \(4, 100\) .* append 28 zeros"):
        mx(x, E4M3, overflow="saturate")
    with pytest.raises(ValueError, match=r"axis 0 of .* \(4, 100\) .* append 12 zeros"):
        nvfp4(x, overflow="saturate", axis=0)
    with pytest.raises(ValueError, match="append 12 zeros"):
        nvfp4(x, overflow="saturate", square=True)

    def blocked(block, granularity="block", x=x, **rest):
        return scaled(x, E4M3, overflow="saturate", granularity=granularity, block=block, **rest)

    for block in (0, -32, (16, 0), 2.5, True, (4,), (1, 2, 3), "32"):
        with pytest.raises(ValueError, match="block must be"):
            blocked(block)
    with pytest.raises(ValueError, match="both or neither"):
        blocked(None)
    with pytest.raises(ValueError, match="both or neither"):
        blocked(4, "rowwise")
    with pytest.raises(ValueError, match=r"granularity must be one of .*'blockwise'"):
        blocked(4, "blockwise")
    with pytest.raises(ValueError, match=r"block=\(2, 2\): x has the shape \(8,\)"):
        blocked((2, 2), x=torch.ones(8))
    with pytest.raises(ValueError, match="scale_format must be"):
        blocked(4, scale_format=E5M2)
