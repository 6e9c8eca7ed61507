"""Checks of the code questions on FP8 and quantization."""

import math

import torch

from labkit.labs.engine import Mistake, attempt, check, number, several, tensor

LAB = "interview"

OTHER_SCALE = "The scale of {case} is {got}; with amax {amax} it is {want}."
FAR_BACK = (
    "`{call}`: {at:g} comes back as {got:g} from q.float() / scale, further away than rounding "
    "explains."
)
OTHER_VALUE = (
    "{call}: the value of {at:g} is {got:g}; {want:g} is wanted, {steps:.0f} steps of {scale:g}."
)
NO_GRADIENT = "{call}: there is no gradient with respect to x."
OTHER_GRADIENT = (
    "{call}: the values are right. The gradient at {at:g} is {got:.3g}; {want} is wanted: its code "
    "{code:.2f} rounds to {rounded}, {where} {low} to {high}."
)
NO_CODE_OF_ZERO = "The zero point of {call} is {got:g}: no UINT8 code stands for 0.0."
OTHER_STEP = "The scale of {call} is {got}; {want} is wanted."
COARSE = (
    "{call}: {at:g} comes back as {got:g}, an error of {steps:.2f} steps; at most half a step is "
    "wanted."
)


def _values(seed: int, size: int = 64) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


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
        q, scale = several(answers[name], 2, call=call)
        q = tensor(q, call=call, shape=x.shape, dtype=torch.float8_e4m3fn)
        scale = number(scale, call=f"scale of {call}")
        amax = x.abs().max().item()
        want = min(448 / amax, torch.finfo(torch.float32).max) if amax else 1.0
        if not math.isclose(scale, want, rel_tol=1e-5):
            raise Mistake(OTHER_SCALE, case=call, got=scale, amax=amax, want=want)
        back = q.float() / scale
        # Half an ulp of E4M3 is 1/16 relative, or half of its smallest value.
        allowed = torch.maximum(x.abs() * (1.001 / 16), torch.tensor(1.001 * 2.0**-10 / scale))
        bad = ~((back - x).abs() <= allowed)
        if bad.any():
            i = _place(bad)
            raise Mistake(FAR_BACK, call=call, at=x[i], got=back[i])


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
        y, gradient = several(answers[name], 2, call=call)
        y = tensor(y, call=call, shape=x.shape, dtype=torch.float32)
        want = torch.clamp(torch.round(x / scale), low, high) * scale
        bad = ~torch.isclose(y, want, atol=1e-6 * scale, rtol=1e-5)
        if bad.any():
            i = _place(bad)
            steps = want[i] / scale
            raise Mistake(
                OTHER_VALUE, call=call, at=x[i], got=y[i], want=want[i], steps=steps, scale=scale
            )
        inside = ((x / scale).round() >= low) & ((x / scale).round() <= high)
        weights = torch.arange(1.0, x.numel() + 1)
        if not isinstance(gradient, torch.Tensor):
            raise Mistake(NO_GRADIENT, call=call)
        bad = ~torch.isclose(gradient, weights * inside, rtol=1e-5)
        if bad.any():
            i = _place(bad)
            code = (x[i] / scale).item()
            raise Mistake(
                OTHER_GRADIENT,
                call=call,
                at=x[i],
                got=gradient[i] / weights[i],
                want=int(inside[i]),
                code=code,
                rounded=round(code),
                where="inside" if inside[i] else "outside",
                low=low,
                high=high,
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
        q, scale, zero_point = several(answers[name], 3, call=call)
        q = tensor(q, call=call, shape=x.shape, dtype=torch.uint8)
        scale = number(scale, call=f"scale of {call}")
        zero_point = number(zero_point, call=f"zero point of {call}")
        low, high = min(x.min().item(), 0.0), max(x.max().item(), 0.0)
        want = (high - low) / 255 or 1.0
        if not (zero_point.is_integer() and 0 <= zero_point <= 255):
            raise Mistake(NO_CODE_OF_ZERO, call=call, got=zero_point)
        if not math.isclose(scale, want, rel_tol=1e-5):
            raise Mistake(OTHER_STEP, call=call, got=scale, want=want)
        back = (q.float() - zero_point) * scale
        i = int((back - x).abs().argmax())
        worst = (back - x).abs()[i].item()
        # An end of the range may lose another half step's fraction to the rounded zero point.
        if not worst <= 0.51 * scale:
            raise Mistake(COARSE, call=call, at=x[i], got=back[i], steps=worst / scale)
