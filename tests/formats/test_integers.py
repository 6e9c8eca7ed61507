"""Affine integers against torch's own quantizers, exact fractions and their definition."""

import itertools
import warnings
from fractions import Fraction

import pytest
import torch

from labkit.base.home import import_optional
from labkit.formats import QuantParams, choose, dequantize_affine, fake_quantize, quantize_affine

RANGES = [
    (-1.0, 3.0),
    (0.5, 1.0),
    (-3.0, -1.0),
    (-1.0, 1.0),
    (-0.1, 6.3),
    (0.0, 0.0),
    (1e-44, 2e-44),
]


def values(seed=0, count=4000, low=-5.0, high=7.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, generator=generator) * (high - low) + low


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("bits", [2, 3, 8, 16])
@pytest.mark.parametrize(("lo", "hi"), RANGES)
def test_the_round_trip_is_off_by_half_a_step_at_most_inside_the_range(lo, hi, bits, symmetric):
    grid = choose(lo, hi, bits=bits, symmetric=symmetric)
    x = values(low=lo, high=hi)
    error = (dequantize_affine(quantize_affine(x, grid), grid).double() - x.double()).abs()
    # The range may end half a step beyond the last code, whose zero point was rounded; x / scale
    # and its product with the scale are rounded to float32.
    slack = 3 * 2**-24 * max(abs(lo), abs(hi))
    ends = 0 if symmetric else grid.scale.item() / 2
    assert error.max().item() <= grid.scale.item() / 2 + ends + slack
    inside = (x >= (grid.low - grid.zero_point) * grid.scale) & (
        x <= (grid.high - grid.zero_point) * grid.scale
    )
    assert inside.any() or lo == hi == 0 or hi < 1e-40
    assert (error[inside] <= grid.scale.item() / 2 + slack).all()


@pytest.mark.parametrize("symmetric", [False, True])
def test_zero_is_a_value_of_every_grid(symmetric):
    zero = torch.tensor([0.0, -0.0])
    for (lo, hi), bits in itertools.product(RANGES, range(2, 17)):
        grid = choose(lo, hi, bits=bits, symmetric=symmetric)
        assert (dequantize_affine(quantize_affine(zero, grid), grid) == 0).all(), grid
        assert (fake_quantize(zero, grid) == 0).all(), grid


@pytest.mark.parametrize("symmetric", [False, True])
def test_values_beyond_the_range_get_its_last_code(symmetric):
    grid = choose(-1.0, 3.0, bits=8, symmetric=symmetric)
    x = torch.tensor([-3.5, -1e30, -torch.inf, 3.5, 1e30, torch.inf])
    assert quantize_affine(x, grid).tolist() == [grid.low] * 3 + [grid.high] * 3


@pytest.mark.parametrize("lo, hi", RANGES[:5])
@pytest.mark.parametrize("low, high", [(0, 255), (0, 15)])
def test_scale_and_zero_point_are_the_definitions(lo, hi, low, high):
    grid = choose(lo, hi, bits=high.bit_length(), symmetric=False)
    lo, hi = Fraction(min(lo, 0.0)), Fraction(max(hi, 0.0))
    scale = (hi - lo) / (high - low)
    assert (grid.low, grid.high) == (low, high)
    assert abs(Fraction(grid.scale.item()) / scale - 1) <= Fraction(1, 2**24)  # one rounding
    # An integer within half a step, as far as a float32 scale can say.
    assert abs(grid.zero_point.item() - (low - lo / scale)) <= Fraction(1, 2) + Fraction(1, 2**14)


def test_a_symmetric_grid_has_as_many_codes_below_zero_as_above():
    grid = choose(-1.0, 3.0, bits=4, symmetric=True)
    assert (grid.low, grid.high, grid.zero_point.item()) == (-7, 7, 0)
    assert grid.scale.item() == torch.tensor(3 / 7).item()


@pytest.mark.parametrize("bits", [-1, 0, 1, 17, 2.5, "8"])
def test_other_numbers_of_bits_are_refused(bits):
    with pytest.raises(ValueError, match="2 to 16"):
        choose(-1.0, 1.0, bits=bits, symmetric=True)


@pytest.mark.parametrize(
    "lo, hi", [(float("nan"), 1.0), (0.0, float("inf")), (torch.tensor([0.0, torch.nan]), 1.0)]
)
def test_a_range_that_is_not_finite_is_refused(lo, hi):
    with pytest.raises(ValueError, match="not finite"):
        choose(lo, hi, bits=8, symmetric=False)


def test_a_range_upside_down_is_refused():
    with pytest.raises(ValueError, match="lo, then hi"):
        choose(1.0, -1.0, bits=8, symmetric=False)


@pytest.mark.parametrize("rounds", [quantize_affine, fake_quantize])
def test_nan_is_refused(rounds):
    grid = choose(-1.0, 1.0, bits=8, symmetric=True)
    with pytest.raises(ValueError, match="NaN"):
        rounds(torch.tensor([0.5, torch.nan]), grid)


def test_the_widest_and_the_narrowest_ranges_have_a_step():
    widest = torch.finfo(torch.float32).max
    for symmetric in (False, True):
        grid = choose(-widest, widest, bits=2, symmetric=symmetric)
        assert grid.scale.isfinite()
        grid = choose(0.0, 1e-45, bits=16, symmetric=symmetric)
        assert grid.scale > 0


# torch's own


def quantized_by_torch(x, grid):
    with warnings.catch_warnings(action="ignore"):  # deprecated in favour of torchao
        q = torch.quantize_per_tensor(x, grid.scale.item(), grid.zero_point.item(), torch.quint8)
        return q.int_repr()


@pytest.mark.seeds(range(5))
@pytest.mark.parametrize(("lo", "hi"), RANGES[:5])
def test_codes_are_those_of_torch_but_at_ties(lo, hi, seed):
    grid = choose(lo, hi, bits=8, symmetric=False)
    x = values(seed)
    steps = x.double() / grid.scale.double()
    # torch multiplies by a rounded 1 / scale: two roundings, of at most 2**-24 each, of x / scale.
    from_tie = (steps - steps.floor() - 0.5).abs()
    clear = from_tie > 2**-22 * (steps.abs() + grid.high)
    assert clear.float().mean() > 0.99
    assert torch.equal(quantize_affine(x, grid)[clear], quantized_by_torch(x, grid)[clear])


def test_at_a_tie_torch_gives_the_code_beside():
    grid = choose(0.0, 255.0, bits=8, symmetric=False)  # the scale 1 and its inverse are exact
    odd = QuantParams(scale=grid.scale, zero_point=torch.tensor(1).int(), low=0, high=255)
    ties = torch.tensor([0.5, 1.5, 2.5, 3.5])
    # torch rounds x / scale + zero_point, so its even code is another one.
    assert quantize_affine(ties, odd).tolist() == [1, 3, 3, 5]
    assert quantized_by_torch(ties, odd).tolist() == [2, 2, 4, 4]
    assert quantize_affine(ties, grid).tolist() == quantized_by_torch(ties, grid).tolist()


def test_a_rounded_inverse_of_the_scale_moves_ties():
    grid = choose(0.0, 6.0, bits=8, symmetric=False)
    ties = (torch.arange(255) + 0.5) * grid.scale
    moved = quantize_affine(ties, grid) != quantized_by_torch(ties, grid)
    assert 0 < moved.sum() < len(ties)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_fake_quantize_and_its_gradient_are_those_of_torch(bits, symmetric):
    # A power of two has an exact inverse, so that torch's product is our quotient.
    grid = choose(-1.0, 2.5, bits=bits, symmetric=symmetric)
    scale = torch.tensor(2.0 ** grid.scale.log2().round().item())
    grid = QuantParams(scale=scale, zero_point=grid.zero_point, low=grid.low, high=grid.high)
    ours, theirs = (values().requires_grad_() for _ in range(2))
    y = fake_quantize(ours, grid)
    want = torch.fake_quantize_per_tensor_affine(
        theirs, scale.item(), grid.zero_point.item(), grid.low, grid.high
    )
    assert torch.equal(y, want)
    upstream = values(seed=1)
    y.backward(upstream)
    want.backward(upstream)
    assert torch.equal(ours.grad, theirs.grad)
    assert 0 < (ours.grad == 0).sum() < len(upstream)


def test_fake_quantize_by_channel_is_that_of_torch():
    w = values(count=64 * 32).view(64, 32) * torch.logspace(-2, 0, 64)[:, None]
    grid = choose(*w.aminmax(dim=1), bits=4, symmetric=True, axis=0)
    want = torch.fake_quantize_per_channel_affine(w, grid.scale, grid.zero_point, 0, -7, 7)
    # 1 / scale again: a code may differ at a tie.
    steps = w.double() / grid.scale.double()[:, None]
    clear = (steps - steps.floor() - 0.5).abs() > 2**-20
    assert clear.float().mean() > 0.99
    assert torch.equal(fake_quantize(w, grid)[clear], want[clear])


def test_the_straight_through_gradient_is_one_inside_and_zero_outside():
    grid = choose(-1.0, 1.0, bits=3, symmetric=True)
    x = torch.tensor([-5.0, -1.0, -0.2, 0.0, 0.4, 1.0, 5.0], requires_grad=True)
    fake_quantize(x, grid).backward(torch.full((7,), 3.0))
    assert x.grad.tolist() == [0, 3, 3, 3, 3, 3, 0]


def test_rounding_without_the_estimator_has_no_gradient():
    x = values().requires_grad_()
    x.round().sum().backward()
    assert (x.grad == 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fake_quantize_computes_sixteen_bit_inputs_in_float32(dtype):
    x = values().to(dtype).requires_grad_()
    grid = choose(-5.0, 7.0, bits=8, symmetric=False)
    y = fake_quantize(x, grid)
    assert y.dtype is torch.float32
    assert torch.equal(y, fake_quantize(x.float(), grid))
    y.sum().backward()
    assert x.grad.dtype is dtype
    # What 16 bits would have given: a 0-d scale does not widen the quotient.
    assert (x.detach() / grid.scale).dtype is dtype
    if dtype is torch.bfloat16:
        narrow = (x.detach() / grid.scale).round() + grid.zero_point
        assert (narrow.float() != quantize_affine(x, grid).float()).float().mean() > 0.05


# torchao's


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("per", ["tensor", "row", "group"])
def test_grids_and_codes_are_those_of_torchao(per, symmetric, bits):
    torchao = import_optional("torchao.quantization.quant_primitives")
    w = torch.randn(6, 64, generator=torch.Generator().manual_seed(bits)) + 0.3
    block = {"tensor": (6, 64), "row": (1, 64), "group": (1, 32)}[per]
    parts = {"tensor": w, "row": w, "group": w.unflatten(1, (-1, 32))}[per]
    lo, hi = {
        "tensor": lambda: parts.aminmax(),
        "row": lambda: parts.aminmax(dim=1),
        "group": lambda: parts.aminmax(dim=2),
    }[per]()
    axis = {"tensor": None, "row": 0, "group": (0, 1)}[per]
    grid = choose(lo, hi, bits=bits, symmetric=symmetric, axis=axis)
    kind = torchao.MappingType.SYMMETRIC if symmetric else torchao.MappingType.ASYMMETRIC
    scale, zero = torchao.choose_qparams_affine(
        w, kind, block, torch.int32, grid.low, grid.high, zero_point_dtype=torch.int32
    )
    assert torch.allclose(grid.scale.flatten(), scale.flatten(), rtol=2**-22)
    assert torch.equal(grid.zero_point.flatten(), zero.flatten())
    theirs = torchao.quantize_affine(w, block, scale, zero, torch.int32, grid.low, grid.high)
    assert torch.equal(quantize_affine(parts, grid).int().view_as(w), theirs)
    back = torchao.dequantize_affine(theirs, block, scale, zero, torch.int32, grid.low, grid.high)
    assert torch.allclose(fake_quantize(parts, grid).view_as(w), back, rtol=2**-21)


# Who shares a scale


def test_one_scale_a_row_keeps_the_small_rows():
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(16, 64, generator=generator) * torch.logspace(-4, 0, 16)[:, None]

    def worst_row(grid):
        error = dequantize_affine(quantize_affine(w, grid), grid) - w
        return (error.norm(dim=1) / w.norm(dim=1)).max().item()

    tensor = worst_row(choose(*w.aminmax(), bits=8, symmetric=True))
    channel = worst_row(choose(*w.aminmax(dim=1), bits=8, symmetric=True, axis=0))
    assert tensor == 1.0  # a row of nothing but zeros
    assert channel < 0.01


def test_groups_keep_what_a_large_neighbour_in_the_row_costs():
    w = values(count=8 * 64, low=-1.0, high=1.0).view(8, 64)
    w[:, 0] = 50.0
    row = choose(*w.aminmax(dim=1), bits=4, symmetric=True, axis=0)
    groups = w.unflatten(1, (-1, 32))
    group = choose(*groups.aminmax(dim=2), bits=4, symmetric=True, axis=(0, 1))
    assert group.scale.shape == (8, 2)
    by_row = fake_quantize(w, row)
    by_group = fake_quantize(groups, group).flatten(1)
    assert (by_row[:, 1:] == 0).all()
    assert torch.equal(by_row[:, :32], by_group[:, :32])
    assert (by_group[:, 32:] - w[:, 32:]).abs().max() <= 1 / 14 + 1e-6


def test_an_axis_may_be_counted_from_the_end():
    x = values(count=2 * 3 * 4).view(2, 3, 4)
    last = choose(*x.flatten(0, 1).aminmax(dim=0), bits=8, symmetric=False, axis=-1)
    same = choose(*x.flatten(0, 1).aminmax(dim=0), bits=8, symmetric=False, axis=2)
    assert torch.equal(quantize_affine(x, last), quantize_affine(x, same))


@pytest.mark.parametrize("axis", [None, 1, 2, (0, 1)])
def test_scales_that_do_not_fit_the_tensor_are_refused(axis):
    w = values(count=12).view(3, 4)
    grid = choose(*w.aminmax(dim=1), bits=8, symmetric=True, axis=axis)
    with pytest.raises(ValueError, match="axis"):
        quantize_affine(w, grid)


@pytest.mark.parametrize(
    "bits, symmetric, dtype",
    [
        (8, False, torch.uint8),
        (2, True, torch.int8),
        (8, True, torch.int8),
        (9, False, torch.int16),
        (16, True, torch.int16),
        (16, False, torch.int32),
    ],
)
def test_codes_take_the_smallest_dtype_that_holds_them(bits, symmetric, dtype):
    grid = choose(-1.0, 1.0, bits=bits, symmetric=symmetric)
    codes = quantize_affine(torch.tensor([-9.0, 0.0, 9.0]), grid)
    assert codes.dtype is dtype
    assert codes.tolist() == [grid.low, grid.zero_point.item(), grid.high]


@pytest.mark.parametrize(
    "scale, zero, match",
    [(0.0, 0, "above 0"), (-1.0, 0, "above 0"), (torch.nan, 0, "above 0"), (1.0, 300, "0.0 needs")],
)
def test_a_grid_that_is_none_is_refused(scale, zero, match):
    with pytest.raises(ValueError, match=match):
        QuantParams(scale=torch.tensor(scale), zero_point=torch.tensor(zero), low=0, high=255)
