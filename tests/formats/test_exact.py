"""Scalar formats in exact fractions: the same numbers as tensors give, one at a time."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rounding_oracle import positive_values

from labkit.formats import (
    BF16,
    E2M1,
    E4M3,
    E8M0,
    FORMATS,
    FP16,
    FP32,
    FP64,
    TF32,
    FloatFormat,
    decode,
    encode,
    exact,
    quantize,
    spacing,
)
from labkit.training.scaling import LossScale

ALL = tuple(FORMATS.values())
SMALL = [fmt for fmt in ALL if fmt.bits <= 8]
HALVES = [fmt for fmt in ALL if fmt.bits == 16]
WIDE = (TF32, FP32, FP64)
SCALE_WITHOUT_NAN = FloatFormat(
    "scale", exponent_bits=4, mantissa_bits=0, signed=False, specials="none"
)

named = pytest.mark.parametrize("fmt", ALL, ids=lambda fmt: fmt.name)


def number(x: float) -> exact.Number:
    """A float as this module's numbers are: a fraction where it is finite."""
    return Fraction(x) if math.isfinite(x) else x


def agree(ours: exact.Number, theirs: float) -> bool:
    return math.isnan(ours) if math.isnan(theirs) else ours == number(theirs)


@pytest.mark.parametrize("fmt", [*SMALL, *HALVES], ids=lambda fmt: fmt.name)
def test_codes_have_the_values_that_decode_gives_and_come_back(fmt):
    codes = torch.arange(0, 1 << fmt.bits, 1 if fmt.bits <= 8 else 7)
    wrong = []
    for code, theirs in zip(codes.tolist(), decode(codes, fmt).tolist(), strict=True):
        ours = exact.value(code, fmt)
        back = code if math.isnan(theirs) or theirs == 0 else exact.code(ours, fmt)
        if not agree(ours, theirs) or back != code:
            wrong.append(code)
    assert wrong == []
    assert fmt.has_zero == (exact.value(0, fmt) == 0)


@pytest.mark.parametrize("fmt", SMALL, ids=lambda fmt: fmt.name)
def test_values_midpoints_and_their_neighbours_round_as_tensors_do(fmt):
    values = [0.0, *positive_values(fmt).tolist()]
    values += [2 * values[-1] - values[-2], 4 * values[-1], 1e300]
    points = values + [(low + high) / 2 for low, high in itertools.pairwise(values)]
    points = [near for x in points for near in (x, math.nextafter(x, 0), math.nextafter(x, 9e307))]
    points += [-x for x in points] + [math.inf, -math.inf, math.nan]
    x = torch.tensor(points, dtype=torch.float64)
    nearest = quantize(x, fmt).tolist()
    cut = quantize(x, fmt, rounding="toward_zero").tolist()
    gaps = spacing(x, fmt).tolist()
    for each, near, toward, gap in zip(points, nearest, cut, gaps, strict=True):
        assert agree(exact.nearest(number(each), fmt), near), each
        assert agree(exact.toward_zero(number(each), fmt), toward), each
        assert agree(exact.ulp(number(each), fmt), gap), each


floats = st.floats(allow_subnormal=True) | st.floats(width=32) | st.integers(-4096, 4096).map(float)


@named
@settings(max_examples=60, deadline=None)
@given(x=floats)
def test_any_float_rounds_and_is_coded_as_labkit_formats_does(fmt, x):
    assert agree(exact.nearest(number(x), fmt), quantize(x, fmt))
    assert agree(exact.toward_zero(number(x), fmt), quantize(x, fmt, rounding="toward_zero"))
    assert agree(exact.ulp(number(x), fmt), spacing(x, fmt))
    try:
        theirs = encode(x + 0.0, fmt)  # a fraction has no -0
    except ValueError:
        with pytest.raises(ValueError, match="has no code"):
            exact.code(number(x), fmt)
    else:
        if quantize(x, fmt) != 0:
            assert exact.code(number(x), fmt) == theirs
        else:  # -1e-300 rounds to -0.0 in a tensor, and to plain 0 here
            assert exact.code(number(x), fmt) == 0


@pytest.mark.parametrize("fmt", WIDE, ids=lambda fmt: fmt.name)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_codes_of_wide_formats_are_their_values(fmt, data):
    code = data.draw(st.integers(0, (1 << fmt.bits) - 1))
    signed = code - (1 << 64) if code >= 1 << 63 else code
    theirs = decode(signed, fmt) if fmt is not FP64 else decode(torch.tensor(signed), fmt).item()
    ours = exact.value(code, fmt)
    assert agree(ours, theirs)
    if not math.isnan(theirs) and theirs != 0:
        assert exact.code(ours, fmt) == code


@pytest.mark.parametrize("fmt", WIDE, ids=lambda fmt: fmt.name)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_tie_goes_to_the_even_code_and_past_it_to_the_nearer(fmt, data):
    top = exact.code(Fraction(fmt.max), fmt)
    code = data.draw(st.integers(0, top - 1))
    low, high = exact.value(code, fmt), exact.value(code + 1, fmt)
    middle = (low + high) / 2
    hair = (high - low) / 2**80  # float64 has no such numbers: exact fractions have
    assert exact.nearest(middle, fmt) == (high if code % 2 else low)
    assert exact.nearest(middle - hair, fmt) == low
    assert exact.nearest(middle + hair, fmt) == high
    assert exact.nearest(-middle - hair, fmt) == -high
    assert exact.toward_zero(high - hair, fmt) == low
    assert exact.toward_zero(hair - high, fmt) == -low
    assert exact.ulp(middle, fmt) == high - low


@pytest.mark.parametrize("fmt", [fmt for fmt in ALL if fmt.signed], ids=lambda fmt: fmt.name)
def test_the_overflow_tie_and_what_no_float_can_hold(fmt):
    largest = Fraction(fmt.max)
    edge = largest + exact.ulp(largest, fmt) / 2
    # IEEE 754 rounds as if exponents had no end. The largest mantissa is odd where the top code
    # is a plain number with all ones; E4M3's is even, so its tie stays at 448.
    stays = exact.code(largest, fmt) % 2 == 0
    assert exact.nearest(edge - Fraction(1, 10**400), fmt) == largest
    past = math.inf if fmt.has_inf else math.nan if fmt.has_nan else fmt.max
    assert agree(exact.nearest(edge, fmt), float(largest) if stays else past)
    for huge in (10**400, Fraction(10**400, 3)):
        assert agree(exact.nearest(huge, fmt), past)
        assert agree(exact.nearest(-huge, fmt), -past)
        assert exact.toward_zero(huge, fmt) == largest
        assert exact.toward_zero(-huge, fmt) == -largest
        assert exact.ulp(huge, fmt) == exact.ulp(largest, fmt)
    assert exact.nearest(Fraction(1, 10**400), fmt) == 0


def test_named_results():
    assert exact.nearest(Fraction(1, 10), FP16) == Fraction(1638, 2**14)
    assert [exact.nearest(x, FP16) for x in (2049, 2051, 65519)] == [2048, 2052, 65504]
    assert exact.nearest(65520, FP16) == math.inf and exact.nearest(-65520, FP16) == -math.inf
    assert exact.nearest(464, E4M3) == 448 and math.isnan(exact.nearest(465, E4M3))
    assert exact.nearest(100, E2M1) == 6 and exact.nearest(-math.inf, E2M1) == -6
    assert math.isnan(exact.nearest(math.nan, E2M1))
    assert exact.code(math.inf, FP16) == 0x7C00 and exact.code(math.nan, BF16) == 0x7FC0
    assert exact.code(-2, FP16) == 0xC000 and exact.code(Fraction(-1, 10**9), FP16) == 0


def test_a_scale_has_neither_zero_nor_sign():
    smallest = Fraction(1, 2**127)
    assert exact.nearest(0, E8M0) == exact.toward_zero(smallest / 3, E8M0) == smallest
    assert math.isnan(exact.nearest(-1, E8M0)) and math.isnan(exact.toward_zero(-1, E8M0))
    for x in (-1, -math.inf):
        assert exact.nearest(x, SCALE_WITHOUT_NAN) == quantize(float(x), SCALE_WITHOUT_NAN)
        with pytest.raises(ValueError, match="e8m0 has no code for -"):
            exact.code(x, E8M0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: exact.value(256, E4M3), "0 .. 255, got 256"),
        (lambda: exact.value(-1, E4M3), "0 .. 255, got -1"),
        (lambda: exact.code(math.nan, E2M1), "e2m1 has no code for nan"),
        (lambda: exact.floor_log2(0), "above 0, got 0"),
        (lambda: exact.floor_log2(-2), "above 0, got -2"),
        (lambda: exact.floor_log2(math.inf), "above 0, got inf"),
        (lambda: exact.floor_log2(math.nan), "above 0, got nan"),
    ],
)
def test_what_is_no_code_and_no_logarithm_is_refused(call, words):
    with pytest.raises(ValueError, match=words.replace(".", r"\.")):
        call()


@settings(max_examples=60, deadline=None)
@given(
    top=st.integers(1, 10**60) | st.integers(0, 3000).map(lambda power: 2**power),
    bottom=st.integers(1, 10**60) | st.integers(0, 3000).map(lambda power: 2**power),
)
def test_floor_log2_bounds_its_argument(top, bottom):
    exponent = Fraction(2) ** exact.floor_log2(Fraction(top, bottom))
    assert exponent <= Fraction(top, bottom) < 2 * exponent


@pytest.mark.parametrize("step", [1, 3, 0.1, 0.01, 2.0**-9, -0.3])
@pytest.mark.parametrize(("fmt", "dtype"), [(BF16, torch.bfloat16), (FP16, torch.float16)])
def test_counting_up_is_torch_s_addition(fmt, dtype, step):
    addend = torch.tensor(step, dtype=dtype)
    total = torch.zeros((), dtype=dtype)
    checked = {1, 2, 3, 10, 255, 257, 600}
    for times in range(1, 601):
        total = total + addend
        if times in checked:
            assert exact.count_up(Fraction(step), times, fmt) == Fraction(total.item())


def test_counting_stops_where_nothing_changes_any_more():
    assert exact.count_up(1, 0, BF16) == 0
    assert exact.count_up(1, 10**9, BF16) == 256  # and at once
    assert exact.count_up(1, 10**9, FP16) == 2048
    assert exact.count_up(40000, 2, FP16) == math.inf
    assert math.isnan(exact.count_up(300, 2, E4M3))


@pytest.mark.parametrize(("growth", "backoff"), [(2.0, 0.5), (4.0, 0.25), (8.0, 0.5)])
@settings(max_examples=60, deadline=None)
@given(
    flags=st.lists(st.sampled_from([0, 0, 0, 1]), max_size=60),
    power=st.integers(-20, 120),
    interval=st.integers(1, 5),
)
def test_the_loss_scale_follows_torch_and_labkit(growth, backoff, flags, power, interval):
    scale, tracker = torch.tensor(2.0**power), torch.zeros((), dtype=torch.int32)
    state = LossScale(2.0**power, growth, backoff, interval)
    for flag in flags:
        found = torch.tensor(float(flag))
        torch._amp_update_scale_(scale, tracker, found, growth, backoff, interval)
        state = state.updated(bool(flag))
    ours = exact.loss_scale(flags, 2**power if power >= 0 else Fraction(1, 2**-power), interval,
                            Fraction(growth), Fraction(backoff))  # fmt: skip
    if scale > 2.0**-126:  # below, float32 runs out of exponents and fractions do not
        assert ours == Fraction(scale.item()) == Fraction(state.scale)


def test_the_loss_scale_of_grad_scaler_itself():
    flags = [0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0]
    weight = torch.nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    for step, flag in enumerate(flags, start=1):
        weight.grad = None
        scaler.scale(weight * (math.inf if flag else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        assert exact.loss_scale(flags[:step], 1024, 3) == scaler.get_scale()
