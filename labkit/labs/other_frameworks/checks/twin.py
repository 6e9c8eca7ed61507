"""Check of lab 14's port: outputs, running mean and optimizer of the twin, beside NumPy's."""

import math
import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from labkit.labs.engine import AnswerError, Mistake, attempt, check, number, several, tensor
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.reading import failure
from labkit.labs.other_frameworks.frameworks import keras, missing

LAB = "14_other_frameworks"

RAISED = "{name}: your twin raised {error}."
RAISED_LATER = "{name}: when the check {what}, PyTorch says {error}."
NOT_A_PAIR = "{name}: your twin returns {came}; (network, optimizer) is asked for."
NO_OPTIMIZER = "{name}: the second value is {came}; a `torch.optim.Adam` is asked for."
OTHER_LAYERS = (
    "{name}: the network is {came}; an `nn.Sequential` of Linear, BatchNorm1d, ReLU and Linear is "
    "asked for."
)
IN_EVAL = "{name}: the network that you return is in eval mode; train mode is asked for."
OUTPUT = "{name}: in {mode} mode an output is {got}; Keras gives {want}. {why}"
SHAPE = "The network's outputs have shape {got}; {want} is wanted."
COMES_OUT = "Your outputs come out if {what}."
MEAN = (
    "{name}: after a batch in train mode a running mean is {got}; in Keras it is {want}, of which "
    "{kept:.0%} is the old mean. {why}"
)
MEAN_COMES_OUT = "Yours comes out with `momentum={momentum:g}`."
CLASS = "{name}: the optimizer is {got}; `torch.optim.Adam` is asked for."
OPTIMIZER = "{name}: the optimizer's `{what}` is {got}; in Keras it is {want}. {why}"
DEFAULT = "That is PyTorch's default."
DECAYS = "{name}: the optimizer's `{what}` is {got}; Keras' Adam has none."
FOREIGN = (
    "{name}: the optimizer does not hold the network's parameters, each of them once. Was a "
    "parameter replaced after the optimizer was made?"
)
SHARED = (
    "{name}: after a training step of your network, the Keras model's {what} is another one than "
    "before."
)
EARLY = (
    "{name}: after your twin, and before any training, the Keras model's {what} is another one "
    "than before."
)

_VARIABLES = (
    "first kernel",
    "first bias",
    "gamma",
    "beta",
    "moving mean",
    "moving variance",
    "last kernel",
    "last bias",
)
_LAYERS = ["Linear", "BatchNorm1d", "ReLU", "Linear"]
_TORCH = {"lr": 1e-3, "beta_1": 0.9, "beta_2": 0.999, "eps": 1e-8}
_WRONG = {
    "the batch norm's eps is 1e-5, PyTorch's default": ({"eps": 1e-5}, "frameworks-share-defaults"),
    "the batch norm's eps is 1e-3, Keras' default, which this model does not have": (
        {"eps": 1e-3},
        None,
    ),
    "the running mean and variance are 0 and 1, as in a new layer": (
        {"moving mean": 0.0, "moving variance": 1.0},
        "running-statistics-need-no-copy",
    ),
    "the kernels are reshaped, and not transposed": (
        {"reshaped": True},
        "a-reshape-is-a-transpose",
    ),
    "the running mean is 0": ({"moving mean": 0.0}, None),
    "the running variance is 1": ({"moving variance": 1.0}, None),
    "gamma and beta are exchanged": ({"exchanged": True}, None),
    "gamma is 1 and beta is 0": ({"gamma": 1.0, "beta": 0.0}, None),
    "gamma is 1": ({"gamma": 1.0}, None),
    "beta is 0": ({"beta": 0.0}, None),
    "both biases are 0": ({"first bias": 0.0, "last bias": 0.0}, None),
    "the last bias is 0": ({"last bias": 0.0}, None),
    "the first bias is 0": ({"first bias": 0.0}, None),
    "the running variance is the standard deviation": ({"root": True}, None),
}


@dataclass(frozen=True, kw_only=True)
class _Case:
    sizes: tuple[int, int, int]
    epsilon: float
    momentum: float
    lr: float
    betas: tuple[float, float]
    adam_epsilon: float


# Beside the answer


def _cases(seed):
    """A model with Keras' numbers, one with others, and one with square kernels."""
    draw = random.Random(seed)
    defaults = {"epsilon": 1e-3, "momentum": 0.99, "lr": 1e-3, "adam_epsilon": 1e-7}
    return {
        "Keras' defaults": _Case(sizes=(6, 5, 3), betas=(0.9, 0.999), **defaults),
        "other numbers": _Case(
            sizes=(draw.randint(3, 6), 7, draw.randint(2, 5)),
            epsilon=draw.choice((1e-4, 2e-4, 5e-4)),
            momentum=draw.choice((0.7, 0.75, 0.8)),
            lr=draw.choice((1e-2, 2e-2, 5e-2)),
            betas=(draw.choice((0.7, 0.8, 0.85)), draw.choice((0.95, 0.97, 0.98))),
            adam_epsilon=draw.choice((1e-4, 1e-5, 1e-6)),
        ),
        "square kernels": _Case(sizes=(5, 5, 5), betas=(0.9, 0.999), **defaults),
    }


def _numbers(case, seed):
    """The values of _VARIABLES, and inputs 32 x n of magnitude 0.02, all float32."""
    rng = np.random.default_rng(seed)
    n, hidden, out = case.sizes
    shapes = [(n, hidden), hidden, hidden, hidden, hidden, hidden, (hidden, out), out]
    values = dict(zip(_VARIABLES, map(rng.normal, [0] * 8, [1] * 8, shapes), strict=True))
    values["gamma"] = 1 + 0.3 * values["gamma"]
    values["moving mean"] = values["first bias"] + 0.1 * values["moving mean"]
    values["moving variance"] = 0.01 + 0.01 * values["moving variance"] ** 2
    inputs = 0.02 * rng.normal(size=(32, n)) + 0.01
    values = {name: value.astype(np.float32) for name, value in values.items()}
    return values, inputs.astype(np.float32)


def _model(case, values):
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((case.sizes[0],)),
            layers.Dense(case.sizes[1]),
            layers.BatchNormalization(epsilon=case.epsilon, momentum=case.momentum),
            layers.ReLU(),
            layers.Dense(case.sizes[2]),
        ]
    )
    beta_1, beta_2 = case.betas
    model.compile(
        keras.optimizers.Adam(case.lr, beta_1=beta_1, beta_2=beta_2, epsilon=case.adam_epsilon),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    for variable, value in zip(_variables(model), values.values(), strict=True):
        variable.assign(value)
    return model


def _variables(model):
    """The model's variables, in the order of _VARIABLES."""
    first, norm, _, last = model.layers
    own = norm.gamma, norm.beta, norm.moving_mean, norm.moving_variance
    return [first.kernel, first.bias, *own, last.kernel, last.bias]


def run_twin(answer, seed):
    """What each twin computes; or a sentence where Keras is missing."""
    if said := missing("keras"):
        attempt(answer, None)  # an open exercise stays open
        return said
    return {name: _run(answer, case, seed) for name, case in _cases(seed).items()}


def _run(answer, case, seed):
    values, inputs = _numbers(case, seed)
    model = _model(case, values)
    made = attempt(answer, model)
    if type(made) is Raised:
        return made
    report = {"early": _values(model)}
    if not isinstance(made, (tuple, list)) or len(made) != 2:
        return report | {"pair": _kind(made)}
    network, optimizer = made
    if not isinstance(network, nn.Sequential):
        return report | {"layers": _kind(network)}
    report["layers"] = [type(layer).__name__ for layer in network]
    if not isinstance(optimizer, torch.optim.Optimizer):
        return report | {"optimizer": _kind(optimizer)}
    report |= _settings(network, optimizer)
    x = torch.from_numpy(inputs)
    for what, does in _USES.items():
        report[what] = attempt(does, network, optimizer, x)
    return report | {"late": _values(model)}


def _values(model):
    return [variable.value.detach().cpu().clone() for variable in _variables(model)]


def _kind(value):
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    kind = type(value)
    return "None" if value is None else f"a `{kind.__module__.split('.')[0]}.{kind.__name__}`"


def _settings(network, optimizer):
    groups = optimizer.param_groups
    held = [p for group in groups for p in group["params"]]
    keys = "lr", "betas", "eps", "weight_decay", "amsgrad", "maximize"
    return {
        "training": network.training,
        "class": type(optimizer).__name__,
        "held": sorted(map(id, held)) == sorted(map(id, network.parameters())),
        "groups": [{key: _plain(group.get(key)) for key in keys} for group in groups],
    }


def _plain(value):
    return value.value if isinstance(value, keras.Variable) else value


def _train_step(network, optimizer, x):
    """The running mean after a batch, and then an update of all parameters."""
    network.train()(x)
    mean = network[1].running_mean.clone()
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return mean


def _outputs(network, x, *, training):
    """The outputs, and the buffers as they were before."""
    kept = {name: value.clone() for name, value in network.state_dict().items()}
    with torch.no_grad():
        outputs = network.train(training)(x)
    for name, value in network.state_dict().items():
        value.copy_(kept[name])
    return outputs.detach()


_USES = {
    "eval": lambda network, optimizer, x: _outputs(network, x, training=False),
    "train": lambda network, optimizer, x: _outputs(network, x, training=True),
    "mean": _train_step,
}


# In the judge


@check(run_twin, seeds=2)
def check_twin(report, seed):
    """A Keras network and its optimizer, ported to PyTorch with the same numbers."""
    if isinstance(report, str):
        raise AnswerError(report)
    for name in _cases(seed):
        if type(report[name]) is Raised:
            raise AnswerError(RAISED, name=name, error=failure(report[name]))
        _judge_form(name, report[name])
    for name, case in _cases(seed).items():
        _judge_outputs(name, case, report[name], seed)
    for name, case in _cases(seed).items():
        _judge_mean(name, case, report[name], seed)
        _judge_optimizer(name, case, report[name])
        _judge_copies(name, report[name], _numbers(case, seed)[0])


def _judge_form(name, got):
    if "pair" in got:
        raise Mistake(NOT_A_PAIR, search=False, name=name, came=got["pair"])
    layers = got["layers"]
    if layers != _LAYERS:
        came = layers if isinstance(layers, str) else "of " + ", ".join(layers)
        raise Mistake(OTHER_LAYERS, search=False, name=name, came=came)
    if "optimizer" in got:
        raise Mistake(NO_OPTIMIZER, search=False, name=name, came=got["optimizer"])
    if got["training"] is not True:
        raise Mistake(IN_EVAL, search=False, name=name)


def _judge_outputs(name, case, got, seed):
    values, x = _numbers(case, seed)
    for mode in ("eval", "train"):
        outputs = _read(name, f"calls the network in {mode} mode", got[mode])
        want = _keras_in_numpy(case, values, x)[mode]
        if _near(outputs, want):
            continue
        why, idea = "", None
        for what, (change, its_idea) in _WRONG.items():
            if _near(outputs, _keras_in_numpy(case, values, x, **change)[mode]):
                why, idea = COMES_OUT.format(what=what), its_idea
                break
        place = _farthest(outputs, want)
        said = {"name": name, "mode": mode, "why": why}
        said |= {"got": float(outputs[place]), "want": float(want[place])}
        raise Mistake(OUTPUT, misconception=idea, search=False, **said)


def _judge_mean(name, case, got, seed):
    values, x = _numbers(case, seed)
    mean = _read(name, "trains the network", got["mean"])
    want = _keras_in_numpy(case, values, x)["mean"]
    if _near(mean, want):
        return
    place = _farthest(mean, want)
    of_batch = _keras_in_numpy(case, values, x)["of batch"][place]
    was = float(values["moving mean"][place])
    momentum = round((float(mean[place]) - was) / (of_batch - was), 3)
    idea = {case.momentum: "momentum-is-one-convention", 0.1: "frameworks-share-defaults"}
    said = {"got": float(mean[place]), "want": float(want[place]), "kept": case.momentum}
    why = MEAN_COMES_OUT.format(momentum=momentum) if math.isfinite(momentum) else ""
    idea = idea.get(momentum)
    raise Mistake(MEAN, misconception=idea, search=False, name=name, why=why, **said)


def _judge_optimizer(name, case, got):
    if got["class"] != "Adam":
        raise Mistake(CLASS, search=False, name=name, got=got["class"])
    if got["held"] is not True or not got["groups"]:
        raise Mistake(FOREIGN, search=False, name=name)
    wanted = {"lr": case.lr, "beta_1": case.betas[0], "beta_2": case.betas[1]}
    wanted["eps"] = case.adam_epsilon
    for group in got["groups"]:
        first, second = several(group["betas"], 2, call="betas")
        found = {"lr": group["lr"], "beta_1": first, "beta_2": second, "eps": group["eps"]}
        for what, want in wanted.items():
            one = number(found[what], call=what)
            if not abs(one - want) <= 1e-6 * want:
                is_default = one == _TORCH[what]
                idea = "frameworks-share-defaults" if is_default else None
                said = {"what": what, "got": one, "want": want}
                said["why"] = DEFAULT if is_default else ""
                raise Mistake(OPTIMIZER, misconception=idea, search=False, name=name, **said)
        for what in ("weight_decay", "amsgrad", "maximize"):
            if group[what] not in (0, False) or group[what] is None:
                raise Mistake(DECAYS, search=False, name=name, what=what, got=str(group[what]))


def _judge_copies(name, got, values):
    for when, template in (("early", EARLY), ("late", SHARED)):
        for now, (what, was) in zip(got[when], values.items(), strict=True):
            if not np.array_equal(now.numpy(), was):
                idea = "a-transpose-is-a-copy" if when == "late" and "kernel" in what else None
                raise Mistake(template, misconception=idea, search=False, name=name, what=what)


def _keras_in_numpy(
    case, values, x, *, eps=None, reshaped=False, exchanged=False, root=False, **other
):
    """In float64: outputs in both modes, the batch's mean, the moving mean after it.

    ``other`` are values for all elements of some of _VARIABLES.
    """
    v = {name: value.astype(float) for name, value in values.items()}
    v |= {name: np.full_like(v[name], value) for name, value in other.items()}
    kernels = [v["first kernel"], v["last kernel"]]
    if reshaped:
        kernels = [one.reshape(one.shape[::-1]).T for one in kernels]
    if exchanged:
        v |= {"gamma": v["beta"], "beta": v["gamma"]}
    if root:
        v["moving variance"] = v["moving variance"] ** 0.5
    hidden = x.astype(float) @ kernels[0] + v["first bias"]
    mean = hidden.mean(axis=0)
    kept = case.momentum
    found = {"of batch": mean, "mean": kept * v["moving mean"] + (1 - kept) * mean}
    of = {"eval": (v["moving mean"], v["moving variance"]), "train": (mean, hidden.var(axis=0))}
    for mode, (center, variance) in of.items():
        normal = (hidden - center) / np.sqrt(variance + (eps or case.epsilon))
        found[mode] = np.maximum(normal * v["gamma"] + v["beta"], 0) @ kernels[1] + v["last bias"]
    return found


def _read(name, what, got):
    if type(got) is Raised:
        raise AnswerError(RAISED_LATER, name=name, what=what, error=failure(got))
    return tensor(got, call="network(x)").double().numpy()


def _near(got, want):
    """Float32 rounding through two layers and a norm stays far below 1e-4 of the largest value."""
    if got.shape != want.shape:
        return False
    return bool(np.abs(got - want).max() <= 1e-4 * max(np.abs(want).max(), 1e-3))


def _farthest(got, want):
    if got.shape != want.shape:
        raise Mistake(SHAPE, search=False, got=got.shape, want=want.shape)
    return np.unravel_index(np.argmax(np.nan_to_num(np.abs(got - want), nan=np.inf)), want.shape)


check_twin.slip(
    "momentum-is-one-convention",
    "Keras' momentum says how much of the old mean is kept. What does PyTorch's say?",
    swap=("momentum=1 - norm.momentum", "momentum=norm.momentum"),
)
_LEFT = (
    "Which numbers of `nn.BatchNorm1d` and of `torch.optim.Adam` do you leave at their defaults?"
)
check_twin.slip("frameworks-share-defaults", _LEFT, cut=", momentum=1 - norm.momentum")
check_twin.slip("frameworks-share-defaults", _LEFT, cut=" eps=norm.epsilon,")
check_twin.slip("frameworks-share-defaults", _LEFT, cut=", eps=adam.epsilon")
check_twin.slip("frameworks-share-defaults", _LEFT, cut=", betas=betas")
check_twin.slip(
    "running-statistics-need-no-copy",
    "Which tensors of `nn.BatchNorm1d` does eval mode read? Its `state_dict()` lists them.",
    cut="network[1].running_mean.copy_(norm.moving_mean.value)\n"
    "        network[1].running_var.copy_(norm.moving_variance.value)",
)
check_twin.slip(
    "a-reshape-is-a-transpose",
    "Where is the number of row 0, column 1 after `reshape`, and where after `.T`?",
    swap=("dense.kernel.value.T", "dense.kernel.value.reshape(linear.weight.shape)"),
)
check_twin.slip(
    "a-transpose-is-a-copy",
    "`.T` is a view: whose memory does your weight have?",
    swap=("linear.weight.copy_(dense.kernel.value.T)", "linear.weight.data = dense.kernel.value.T"),
)
