"""quantize on tensors of every shape, at the edges, and with random rounding."""

import math

import pytest
import torch

import labkit.formats.rounding
from labkit.formats import (
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E4M3FNUZ,
    E5M2,
    E8M0,
    FORMATS,
    FloatFormat,
    decode,
    quantize,
)
from labkit.formats.rounding import RANDOM_BITS, ROUNDINGS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (4, 5), (2, 3, 4, 5)])
def test_shape_dtype_and_values_for_every_shape(shape, dtype):
    x = torch.randn(shape, dtype=dtype)
    before = x.clone()
    y = quantize(x, E4M3)
    assert y.shape == x.shape and y.dtype == dtype and torch.equal(x, before)
    assert y.flatten().tolist() == [quantize(v, E4M3) for v in x.flatten().tolist()]


def test_views_give_what_their_copies_give():
    x = torch.randn(6, 8, 10)
    views = [x.transpose(0, 2), x[::2, 1:], x[:, :, ::3], x.flip(0), x[0].expand(3, 8, 10)]
    for view in views:
        generators = [torch.Generator().manual_seed(3) for _ in range(2)]
        for rounding in ROUNDINGS:
            copy = quantize(
                view.clone(memory_format=torch.contiguous_format),
                E5M2,
                rounding=rounding,
                generator=generators[0],
            )
            got = quantize(view, E5M2, rounding=rounding, generator=generators[1])
            assert torch.equal(got, copy) and got.is_contiguous()


def test_plain_numbers_give_floats():
    assert quantize(3, E4M3) == 3.0 and type(quantize(3, E4M3)) is float
    assert quantize(2**60, E4M3, saturate=True) == 448.0
    assert math.copysign(1.0, quantize(-0.0, E4M3)) == -1.0


@pytest.mark.parametrize(
    ("fmt", "saturate", "want"),
    [
        (E5M2, False, [math.inf, -math.inf, math.inf, -math.inf]),
        (E5M2, True, [57344.0, -57344.0, 57344.0, -57344.0]),
        (E4M3, True, [448.0, -448.0, 448.0, -448.0]),
        (E3M2, False, [28.0, -28.0, 28.0, -28.0]),
        (E2M3, False, [7.5, -7.5, 7.5, -7.5]),
        (E2M1, True, [6.0, -6.0, 6.0, -6.0]),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_overflow_and_infinity(fmt, saturate, want):
    x = torch.tensor([1e9, -1e9, math.inf, -math.inf, math.nan])
    y = quantize(x, fmt, saturate=saturate)
    assert y[:4].tolist() == want and y[4].isnan()


def test_without_inf_overflow_is_nan_in_the_rounding_direction_only():
    x = torch.tensor([1e9, -1e9, math.inf, -math.inf])
    nan = math.nan
    expected = {
        "nearest_even": [nan, nan, nan, nan],
        "nearest_away": [nan, nan, nan, nan],
        "toward_zero": [448.0, -448.0, nan, nan],
        "up": [nan, -448.0, nan, nan],
        "down": [448.0, nan, nan, nan],
        "stochastic": [nan, nan, nan, nan],
    }
    for rounding, want in expected.items():
        assert repr(quantize(x, E4M3, rounding=rounding).tolist()) == repr(want)
    assert [quantize(v, E4M3) for v in (464.0, -464.0)] == [448.0, -448.0]
    assert math.isnan(quantize(464.0, E4M3, rounding="nearest_away"))
    assert math.isnan(quantize(math.nextafter(464.0, 465.0), E4M3))


def test_fnuz_has_one_zero():
    x = torch.tensor([-0.0, -1e-9, 0.0])
    for rounding in ("nearest_even", "nearest_away", "toward_zero", "up"):
        assert not quantize(x, E4M3FNUZ, rounding=rounding).signbit().any()
        assert quantize(x, E4M3, rounding=rounding).signbit().tolist() == [True, True, False]


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_e8m0_has_neither_zero_nor_sign(rounding):
    low = 2.0**-127
    x = [0.0, -0.0, low / 4, low, -1.0, -math.inf, math.nan]
    for dtype in (torch.float32, torch.float64):
        y = quantize(torch.tensor(x, dtype=dtype), E8M0, rounding=rounding).tolist()
        assert y[:4] == [low] * 4 and all(math.isnan(v) for v in y[4:])


def test_e8m0_ties_go_up():
    assert [quantize(x, E8M0) for x in (1.5, 3.0, 6.0, 12.0)] == [2.0, 4.0, 8.0, 16.0]
    assert quantize(math.nextafter(3.0, 0.0), E8M0) == 2.0
    assert quantize(3.0, E8M0, rounding="down") == 2.0
    assert math.isnan(quantize(1.5 * 2.0**127, E8M0))
    assert quantize(1.5 * 2.0**127, E8M0, saturate=True) == 2.0**127


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=lambda fmt: fmt.name)
def test_stochastic_rounding_never_moves_a_value_of_the_format(fmt):
    codes = torch.arange(2 ** min(fmt.bits, 16)) << max(0, fmt.bits - 16)
    values = decode(codes, fmt)
    values = values[~values.isnan()]
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        assert torch.equal(
            quantize(values, fmt, rounding="stochastic", generator=generator), values
        )


@pytest.mark.parametrize("numerator", [0, 1, 2, 127, 128, 129, 255, 256, 1000, 1023])
def test_stochastic_bias_is_at_most_one_draw(numerator, monkeypatch):
    """With all 2**8 draws in turn instead of random ones, the mean is exact to 2**-8 steps."""
    every_draw = lambda like, generator: (torch.arange(256) + 0.5).to(like.dtype) / 256  # noqa: E731
    monkeypatch.setattr(labkit.formats.rounding, "_random_fractions", every_draw)
    fraction = numerator / 1024
    for low, step in ((8.0, 1.0), (-8.0, -1.0), (0.0, 2.0**-9)):
        x = torch.full((256,), low + fraction * step)
        away = (quantize(x, E4M3, rounding="stochastic") - low) / step
        assert set(away.tolist()) <= {0.0, 1.0}
        assert abs(away.mean().item() - fraction) <= 2.0**-8


def test_stochastic_draws_are_uniform_over_all_their_bits():
    like = torch.empty(1 << 16)
    draws = labkit.formats.rounding._random_fractions(like, torch.Generator().manual_seed(0))
    k = draws * 2.0**RANDOM_BITS - 0.5
    assert torch.equal(k, k.trunc()) and k.min() >= 0 and k.max() < 2**RANDOM_BITS
    # Each bit of k is 1 in half of 65536 draws; six standard deviations are 6 * 128 = 768.
    for bit in range(RANDOM_BITS):
        ones = ((k.long() >> bit) & 1).sum().item()
        assert abs(ones - 32768) < 768


def test_stochastic_mean_is_the_value():
    x = torch.full((1 << 16,), 8.3)
    y = quantize(x, E4M3, rounding="stochastic", generator=torch.Generator().manual_seed(0))
    # A coin of probability 0.3 over 65536 throws: one standard deviation is 0.0018 steps.
    assert set(y.tolist()) == {8.0, 9.0}
    assert abs(y.double().mean().item() - 8.3) < 6 * 0.0018


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000, 1 << 20])
def test_the_size_of_chunks_changes_nothing(chunk, monkeypatch):
    x = torch.randn(1003) * 200
    for rounding in ROUNDINGS:
        want = quantize(x, E4M3, rounding=rounding, generator=torch.Generator().manual_seed(5))
        monkeypatch.setattr(labkit.formats.rounding, "CHUNK", chunk)
        got = quantize(x, E4M3, rounding=rounding, generator=torch.Generator().manual_seed(5))
        monkeypatch.undo()
        assert torch.equal(got.nan_to_num(7), want.nan_to_num(7))


def test_more_threads_change_nothing():
    x = torch.randn(200_000)
    threads = torch.get_num_threads()
    try:
        answers = []
        for count in (1, 2):
            torch.set_num_threads(count)
            generator = torch.Generator().manual_seed(5)
            answers.append(quantize(x, E4M3, rounding="stochastic", generator=generator))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*answers)


def test_formats_below_float32s_subnormals():
    low = FloatFormat("low", exponent_bits=8, mantissa_bits=3, bias=140)
    x = torch.tensor([1.0625 * 2.0**-130, 2.0**-149, 1.1875 * 2.0**-131])
    assert quantize(x, low).tolist() == [2.0**-130, 0.0, 1.25 * 2.0**-131]
