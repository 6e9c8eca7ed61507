"""Checks of code questions on choosing a precision."""

import math

import torch
from torch import nn

from labkit.formats.dtypes import name_of
from labkit.labs.engine import Mistake, attempt, check, number
from labkit.labs.engine.loop_ends import filled, flat, seeded

LAB = "interview"

_NAMES = ("0", "2", "4")
_DTYPES = (torch.float16, torch.bfloat16)
# Two right answers may sum a norm in another order: 16 terms, far fewer than 100 roundings of
# 2**-24 beside errors of 1e-4 or more.
_NEAR = 0.01


def _network(planted):
    """Three layers; where one is planted, the middle one's outputs pass 65504, its weights not."""
    network = filled(
        nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)),
        seed=12,
    )
    if planted:
        with torch.no_grad():
            network[2].weight.mul_(6e4)
            network[4].weight.mul_(2.0**-16)
    return network.eval()


def _x():
    return seeded(7, 8, 16)


def run_sensitivity(sensitivity):
    """The error of each layer in each dtype, on a plain network and on one with a planted layer."""
    errors, kept = {}, {}
    for kind in ("plain", "planted"):
        network = _network(kind == "planted")
        before = flat(network)
        for name in _NAMES:
            for dtype in _DTYPES:
                short = name_of(dtype)
                got = attempt(sensitivity, network, name, _x(), dtype)
                errors[f"{kind} {name} {short}"] = got
                kept.setdefault(f"{kind} {name} {short}", bool(torch.equal(flat(network), before)))
        hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in network.modules())
        kept[f"{kind} hooks"] = hooks == 0
    return {"errors": errors, "kept": kept}


@check(run_sensitivity)
def check_sensitivity(data):
    """One layer at a time, rounded at its input, weights and output, on an untouched model."""
    for place, got in data["errors"].items():
        kind, name, short = place.split()
        call = f'sensitivity({kind} model, "{name}", x, torch.{short})'
        value = number(got, call=call)
        if not data["kept"][place]:
            raise Mistake(f"After `{call}` the model's weights are other numbers.")
        want = _error(_network(kind == "planted"), name, getattr(torch, short))
        if not math.isfinite(want):
            if math.isfinite(value):
                raise Mistake(
                    f"`{call}` is {value:.3g}; the layer's output overflows there, so the error "
                    "is not finite."
                )
        elif not abs(value - want) <= _NEAR * want:
            raise Mistake(f"`{call}` is {value:.3g}; {want:.3g} is wanted.")
    if not all(data["kept"].values()):
        raise Mistake("A hook is left on the model: the next forward pass is rounded, too.")


def _error(network, name, dtype):
    """The judge's own forward pass, written out."""
    x = _x()
    with torch.no_grad():
        exact, got = network(x), x
        for place, layer in enumerate(network):
            if str(place) != name:
                got = layer(got)
                continue
            weight, bias, got = (t.to(dtype).float() for t in (layer.weight, layer.bias, got))
            got = nn.functional.linear(got, weight, bias).to(dtype).float()
        return ((got - exact).norm() / exact.norm()).item()


def sensitivity(model, name, x, dtype):
    """labkit's answer, where none has passed yet."""
    return _sensitivity(model, name, x, dtype)


def _sensitivity(model, name, x, dtype, *, activations=True, everywhere=False, relative=True):
    import copy

    def rounded(t):
        return t.to(dtype).to(t.dtype)

    twin = copy.deepcopy(model)
    for layer in list(twin.children()) if everywhere else [twin.get_submodule(name)]:
        if activations:
            layer.register_forward_pre_hook(lambda module, inputs: rounded(inputs[0]))
            layer.register_forward_hook(lambda module, inputs, output: rounded(output))
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(rounded(parameter))
    with torch.no_grad():
        exact = model(x)
        error = (twin(x) - exact).norm()
        return (error / exact.norm()).item() if relative else error.item()


@check_sensitivity.wrong(
    "sensitivity-is-about-weights", "What of the layer's input and output? Which of them overflow?"
)
def sensitivity_of_weights(model, name, x, dtype):
    return _sensitivity(model, name, x, dtype, activations=False)


@check_sensitivity.wrong(
    "one-cast-tells-every-layer", "Which layer does your number blame? How many did you round?"
)
def sensitivity_of_all(model, name, x, dtype):
    return _sensitivity(model, name, x, dtype, everywhere=True)


@check_sensitivity.wrong(
    "error-is-absolute", "Multiply all outputs by 10: what happens to your number?"
)
def sensitivity_absolute(model, name, x, dtype):
    return _sensitivity(model, name, x, dtype, relative=False)


@check_sensitivity.wrong(
    "casting-back-restores", "Where did your answer keep the bits that the first cast dropped?"
)
def sensitivity_in_place(model, name, x, dtype):
    value = _sensitivity(model, name, x, dtype)
    model.get_submodule(name).to(dtype).float()
    return value
