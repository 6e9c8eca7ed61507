"""Checks of the code questions on FP8 and quantization."""

import math

import torch

from labkit.labs.engine import AnswerError, Mistake, attempt, check, number
from labkit.labs.engine.codec import Raised

LAB = "interview"


def _values(seed: int, size: int = 64) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def _parts(got, count: int, call: str) -> tuple:
    """What an answer returned, as a tuple of `count` parts."""
    if type(got) is Raised:
        place = f" in your line `{got.line}`" if got.line else ""
        raise AnswerError(f"`{call}` raised {got.type_name}: {got.message}{place}.")
    if type(got) not in (tuple, list) or len(got) != count:
        raise Mistake(f"`{call}` is {type(got).__name__}; {count} values are wanted.")
    return tuple(got)


def _tensor(got, like: torch.Tensor, dtype: torch.dtype, call: str) -> torch.Tensor:
    shape, wanted = tuple(like.shape), str(dtype).removeprefix("torch.")
    if not isinstance(got, torch.Tensor):
        raise Mistake(f"`{call}` gives a {type(got).__name__}; a tensor of {wanted} is wanted.")
    if got.dtype != dtype:
        given = str(got.dtype).removeprefix("torch.")
        raise Mistake(f"`{call}` gives a tensor of {given}; {wanted} is wanted.")
    if tuple(got.shape) != shape:
        raise Mistake(f"`{call}` gives a tensor of shape {tuple(got.shape)}; {shape} is wanted.")
    return got


def _place(bad: torch.Tensor) -> int:
    """The first place that is marked."""
    return int(bad.flatten().nonzero()[0])


# Scaled casts to E4M3

_SCALED = {
    "small values": _values(1) * 1e-4,
    "large values": _values(2) * 1e5,
    "largest magnitude negative": torch.tensor([0.5, 2.0, -6.0, 1.0]),
    "all negative": torch.tensor([-3.0, -0.25, -1.0]),
    "amax 3.5": torch.tensor([3.5, -1.0, 0.03125]),
    "zeros": torch.zeros(4),
    "1e-40, 0 and -5e-41": torch.tensor([1e-40, 0.0, -5e-41]),
}


def run_to_e4m3(to_e4m3):
    """`to_e4m3` on tensors of several sizes and signs."""
    return {name: attempt(to_e4m3, x.clone()) for name, x in _SCALED.items()}


@check(run_to_e4m3)
def check_to_e4m3(answers):
    """Scales a tensor so that its largest magnitude lands on 448, zeros included."""
    for name, x in _SCALED.items():
        call = f"to_e4m3({name})"
        q, scale = _parts(answers[name], 2, call)
        q = _tensor(q, x, torch.float8_e4m3fn, call)
        scale = number(scale, call=f"scale of {call}")
        amax = x.abs().max().item()
        want = min(448 / amax, torch.finfo(torch.float32).max) if amax else 1.0
        if not math.isclose(scale, want, rel_tol=1e-5):
            raise Mistake(f"The scale of {call} is {scale:g}; with amax {amax:g} it is {want:g}.")
        back = q.float() / scale
        # Half an ulp of E4M3 is 1/16 relative, or half of its smallest value.
        allowed = torch.maximum(x.abs() * (1.001 / 16), torch.tensor(1.001 * 2.0**-10 / scale))
        bad = ~((back - x).abs() <= allowed)
        if bad.any():
            i = _place(bad)
            raise Mistake(
                f"`{call}`: {x[i].item():g} comes back as {back[i].item():g} from q.float() / "
                "scale, further away than rounding explains."
            )


# Fake quantization

_FAKE = {
    "INT4, scale 0.1": (
        torch.tensor([0.31, -0.26, 0.0, 0.68, 0.73, 5.0, -3.0, -0.77, -0.84]),
        0.1,
        -8,
        7,
    ),
    "INT8, scale 0.02": (_values(3), 0.02, -128, 127),
    "two bits, scale 1": (torch.tensor([-3.2, -1.6, -0.4, 0.3, 0.8, 4.0]), 1.0, -2, 1),
}


def run_fake_quantize(fake_quantize):
    """Values and gradients of `fake_quantize`."""

    def both(x, *grid):
        x = x.clone().requires_grad_()
        y = fake_quantize(x, *grid)
        if not isinstance(y, torch.Tensor) or y.shape != x.shape:
            return [y, None]
        if y.requires_grad:
            (y * torch.arange(1.0, x.numel() + 1)).sum().backward()
        gradient = torch.zeros_like(x) if x.grad is None else x.grad
        return [y.detach().clone(), gradient]

    return {name: attempt(both, *grid) for name, grid in _FAKE.items()}


@check(run_fake_quantize)
def check_fake_quantize(answers):
    """Rounds to the grid in the forward pass and lets the gradient through inside the range."""
    for name, (x, scale, low, high) in _FAKE.items():
        call = f"fake_quantize({name})"
        y, gradient = _parts(answers[name], 2, call)
        y = _tensor(y, x, torch.float32, call)
        want = torch.clamp(torch.round(x / scale), low, high) * scale
        bad = ~torch.isclose(y, want, atol=1e-6 * scale, rtol=1e-5)
        if bad.any():
            i = _place(bad)
            raise Mistake(
                f"{call}: the value of {x[i].item():g} is {y[i].item():g}; {want[i].item():g} is "
                f"wanted, {want[i].item() / scale:.0f} steps of {scale:g}."
            )
        inside = ((x / scale).round() >= low) & ((x / scale).round() <= high)
        weights = torch.arange(1.0, x.numel() + 1)
        if not isinstance(gradient, torch.Tensor):
            raise Mistake(f"{call}: there is no gradient with respect to x.")
        bad = ~torch.isclose(gradient, weights * inside, rtol=1e-5)
        if bad.any():
            i = _place(bad)
            code = (x[i] / scale).item()
            raise Mistake(
                f"{call}: the values are right. The gradient at {x[i].item():g} is "
                f"{(gradient[i] / weights[i]).item():.3g}; {int(inside[i])} is wanted: its code "
                f"{code:.2f} rounds to {round(code)}, "
                f"{'inside' if inside[i] else 'outside'} {low} to {high}."
            )


# Affine UINT8

_AFFINE = {
    "values around 0": _values(4),
    "values in [3, 5]": torch.linspace(3, 5, 33),
    "values in [-4, -1]": torch.linspace(-4, -1, 33),
    "values in [-1, 3]": torch.linspace(-1, 3, 41),
    "zeros": torch.zeros(5),
}


def run_quantize_uint8(quantize_uint8):
    """`quantize_uint8` on ranges with and without 0."""
    return {name: attempt(quantize_uint8, x.clone()) for name, x in _AFFINE.items()}


@check(run_quantize_uint8)
def check_quantize_uint8(answers):
    """Quantizes to 256 codes within half a step, with an exact zero."""
    for name, x in _AFFINE.items():
        call = f"quantize_uint8({name})"
        q, scale, zero_point = _parts(answers[name], 3, call)
        q = _tensor(q, x, torch.uint8, call)
        scale = number(scale, call=f"scale of {call}")
        zero_point = number(zero_point, call=f"zero point of {call}")
        low, high = min(x.min().item(), 0.0), max(x.max().item(), 0.0)
        want = (high - low) / 255 or 1.0
        if not (zero_point.is_integer() and 0 <= zero_point <= 255):
            raise Mistake(
                f"The zero point of {call} is {zero_point:g}: no UINT8 code stands for 0.0."
            )
        if not math.isclose(scale, want, rel_tol=1e-5):
            raise Mistake(f"The scale of {call} is {scale:g}; {want:g} is wanted.")
        back = (q.float() - zero_point) * scale
        i = int((back - x).abs().argmax())
        worst = (back - x).abs()[i].item()
        # An end of the range may lose another half step's fraction to the rounded zero point.
        if not worst <= 0.51 * scale:
            raise Mistake(
                f"{call}: {x[i].item():g} comes back as {back[i].item():g}, an error of "
                f"{worst / scale:.2f} steps; at most half a step is wanted."
            )
