"""A product says what its dtypes cost: exact where sums are, in the derived interval elsewhere."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.formats.matmul import mixed_matmul

HALF, BRAIN, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
SIXTEENS = torch.full((1, 512), 16.0)


def uniform(seed, *shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def worst(a, b, **dtypes):
    exact = a.double() @ b.double()
    return ((mixed_matmul(a, b, **dtypes).result.double() - exact).abs().max() / exact.max()).item()


def test_512_times_16_times_16_needs_a_wide_output():
    wide = mixed_matmul(SIXTEENS, SIXTEENS.T)
    assert (wide.result.item(), wide.overflowed, wide.has_nan) == (131072.0, False, False)
    narrow = mixed_matmul(SIXTEENS, SIXTEENS.T, out_dtype=HALF)
    assert (narrow.result.item(), narrow.overflowed) == (math.inf, True)
    brain = mixed_matmul(SIXTEENS, SIXTEENS.T, in_dtype=BRAIN, out_dtype=BRAIN)
    assert (brain.result.item(), brain.overflowed) == (131072.0, False)


def test_a_sixteen_bit_sum_is_a_hundred_times_worse_than_a_float32_sum():
    a, b = uniform(0, 24, 1000), uniform(1, 1000, 24)
    assert worst(a, b) < 1e-4
    assert worst(a, b, accumulate=HALF) > 100 * worst(a, b)
    assert worst(a, b, accumulate=BRAIN, in_dtype=BRAIN) > worst(a, b, in_dtype=BRAIN)


def test_a_narrow_accumulator_overflows_where_the_sum_does_not():
    row = torch.cat([torch.full((1, 300), 200.0), torch.full((1, 299), -200.0)], dim=1)
    column = torch.full((599, 1), 200.0)
    assert mixed_matmul(row, column, out_dtype=HALF).result.item() == 40000.0
    narrow = mixed_matmul(row, column, accumulate=HALF)
    assert narrow.overflowed and not narrow.result.isfinite()


def test_a_narrow_accumulator_stalls():
    ones = torch.ones(1, 5000)
    assert mixed_matmul(ones, ones.T, accumulate=HALF).result.item() == 2048
    assert mixed_matmul(ones, ones.T, in_dtype=BRAIN, accumulate=BRAIN).result.item() == 256


def test_an_input_that_the_input_dtype_cannot_hold_is_an_overflow():
    big, one = torch.tensor([[1e5]]), torch.ones(1, 1)
    assert mixed_matmul(big, one).overflowed
    assert not mixed_matmul(big, one, in_dtype=BRAIN).overflowed


def test_nan_goes_through_and_is_flagged_and_is_no_overflow():
    a = torch.tensor([[1.0, math.nan], [2.0, 3.0]])
    product = mixed_matmul(a, torch.ones(2, 2))
    assert product.result[0].isnan().all() and product.result[1].tolist() == [5.0, 5.0]
    assert (product.has_nan, product.overflowed) == (True, False)
    infinite = mixed_matmul(torch.tensor([[math.inf]]), torch.ones(1, 1))
    assert (infinite.result.item(), infinite.overflowed, infinite.has_nan) == (
        math.inf,
        False,
        False,
    )


def test_an_empty_inner_dimension_gives_zeros():
    for accumulate in (SINGLE, HALF):
        product = mixed_matmul(torch.ones(2, 0), torch.ones(0, 3), accumulate=accumulate)
        assert product.result.tolist() == [[0.0] * 3] * 2 and not product.overflowed


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (torch.ones(2, 3), torch.ones(2, 3), r"a is \(2, 3\), b is \(2, 3\).*b\.T"),
        (torch.ones(3), torch.ones(3, 1), r"a must have 2 dimensions, got shape \(3,\)"),
        (torch.ones(1, 3), torch.ones(3), "b must have 2 dimensions"),
    ],
)
def test_bad_inputs_are_named(a, b, said):
    with pytest.raises(ValueError, match=said):
        mixed_matmul(a, b)


@pytest.mark.parametrize(
    ("dtypes", "said"),
    [
        ({"in_dtype": torch.int8}, "in_dtype must be"),
        ({"out_dtype": "fp16"}, "out_dtype must be .*'fp16'"),
        ({"accumulate": torch.float8_e5m2}, "accumulate must be"),
    ],
)
def test_bad_dtypes_are_named(dtypes, said):
    with pytest.raises(ValueError, match=said):
        mixed_matmul(torch.ones(1, 1), torch.ones(1, 1), **dtypes)


@settings(max_examples=60, deadline=None)
@given(
    k=st.integers(1, 300),
    seed=st.integers(0, 10**6),
    spread=st.integers(0, 6),
    dtypes=st.sampled_from([(HALF, HALF), (HALF, SINGLE), (BRAIN, BRAIN), (HALF, BRAIN)]),
)
def test_every_result_lies_in_the_derived_interval(k, seed, spread, dtypes):
    in_dtype, out_dtype = dtypes
    generator = torch.Generator().manual_seed(seed)

    def matrix(*shape):
        sign = 2 * torch.rand(*shape, generator=generator) - 1
        return sign * 2.0 ** torch.randint(-spread, spread + 1, shape, generator=generator)

    a, b = matrix(3, k), matrix(k, 3)
    got = mixed_matmul(a, b, in_dtype=in_dtype, out_dtype=out_dtype).result
    x, y = a.to(in_dtype).double(), b.to(in_dtype).double()
    # Higham (3.5): gamma_k sum |a||b| with u of float32, and float64's own for the reference.
    ku = k * 2.0**-24
    room = (ku / (1 - ku) + k * 2.0**-53) * (x.abs() @ y.abs())
    assert ((x @ y - room).to(out_dtype) <= got).all() and (
        got <= (x @ y + room).to(out_dtype)
    ).all()
