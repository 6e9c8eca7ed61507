"""Checks of code questions on choosing a precision."""

import math

import torch
from torch import nn

from labkit.formats.dtypes import name_of
from labkit.labs.engine import Mistake, attempt, check, number
from labkit.labs.engine.loop_ends import filled, flat, seeded

LAB = "interview"

WEIGHTS_CHANGED = "After `{call}` the model's weights are other numbers."
HOOKS_LEFT = (
    "After `{call}` {hooks} hooks are left on the model: they round in the next forward pass, too."
)
TOO_FINITE = (
    "`{call}` is {got:.3g}; the layer's output overflows there, so the error is not finite."
)
OTHER_ERROR = "`{call}` is {got:.3g}; {want:.3g} is wanted."

_NAMES = ("0", "2", "4")
_KINDS = ("plain", "planted", "cancelling")
_DTYPES = (torch.float16, torch.bfloat16)
# Two right answers may sum a norm in another order: 16 terms, far fewer than 100 roundings of
# 2**-24 beside errors of 1e-4 or more.
_NEAR = 0.01


def _network(kind):
    """Three layers of one kind.

    Planted: the middle one's outputs pass 65504, its weights do not. Cancelling: the last one takes
    away the 256 that the middle one added, so that an error is large beside the output.
    """
    network = filled(
        nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)),
        seed=12,
    )
    with torch.no_grad():
        if kind == "planted":
            network[2].weight.mul_(6e4)
            network[4].weight.mul_(2.0**-16)
        if kind == "cancelling":
            network[2].bias.add_(256)
            network[4].bias.sub_(256 * network[4].weight.sum(dim=1))
    return network.eval()


def _x():
    return seeded(7, 8, 16)


def run_sensitivity(sensitivity):
    """The error of each layer in each dtype, on networks of each kind."""
    errors, kept, hooks = {}, {}, {}
    for kind in _KINDS:
        network = _network(kind)
        before = flat(network)
        for name in _NAMES:
            for dtype in _DTYPES:
                short = name_of(dtype)
                got = attempt(sensitivity, network, name, _x(), dtype)
                place = f"{kind} {name} {short}"
                errors[place] = got
                kept[place] = bool(torch.equal(flat(network), before))
                hooks[place] = sum(
                    len(m._forward_hooks) + len(m._forward_pre_hooks) for m in network.modules()
                )
    return {"errors": errors, "kept": kept, "hooks": hooks}


@check(run_sensitivity)
def check_sensitivity(data):
    """One layer at a time, rounded at its input, weights and output, on an untouched model."""
    for place, got in data["errors"].items():
        kind, name, short = place.split()
        call = f'sensitivity({kind} model, "{name}", x, torch.{short})'
        value = number(got, call=call)
        if not data["kept"][place]:
            raise Mistake(WEIGHTS_CHANGED, call=call)
        if data["hooks"][place]:
            raise Mistake(HOOKS_LEFT, call=call, hooks=data["hooks"][place])
        want = _error(_network(kind), name, getattr(torch, short))
        if not math.isfinite(want):
            if math.isfinite(value):
                raise Mistake(TOO_FINITE, call=call, got=value)
        elif not abs(value - want) <= _NEAR * want:
            raise Mistake(OTHER_ERROR, call=call, got=value, want=want)


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
