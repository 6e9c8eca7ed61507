"""Check of lab 14's port: outputs, running mean and optimizer of the twin, beside NumPy's."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.other_frameworks.frameworks import keras, missing

LAB = "14_other_frameworks"

RAISES = "{name}: {said}"
NOT_A_PAIR = "{name}: `twin` returned {came}; a network and an optimizer are wanted."
OUTPUT = "{name}: in {mode} mode an output is {got}; Keras gives {want}."
MEAN = "{name}: after one batch the running mean is {got}; in Keras it is {want}."
OPTIMIZER = "{name}: the optimizer's {what} is {got}; {want} is wanted."
FOREIGN = "{name}: the optimizer does not hold the network's parameters, all of them once."
SHARED = "{name}: training the network changed the Keras model. Does it have its own copies?"
IN_EVAL = "{name}: the network is in eval mode; train mode is wanted."

_GRADIENT = 1e-7


@dataclass(frozen=True, kw_only=True)
class _Case:
    sizes: tuple[int, int, int]
    epsilon: float
    momentum: float
    lr: float
    betas: tuple[float, float]
    adam_epsilon: float


_CASES = {
    "Keras' defaults": _Case(
        sizes=(6, 5, 3), epsilon=1e-3, momentum=0.99, lr=1e-3, betas=(0.9, 0.999), adam_epsilon=1e-7
    ),
    "other numbers": _Case(
        sizes=(4, 7, 2), epsilon=2e-4, momentum=0.75, lr=2e-2, betas=(0.8, 0.95), adam_epsilon=1e-4
    ),
}


def _numbers(case, seed):
    """Keras' eight variables in order, and inputs 32 x n of magnitude 0.02."""
    rng = np.random.default_rng(seed)
    n, hidden, out = case.sizes
    shapes = [(n, hidden), hidden, hidden, hidden, hidden, hidden, (hidden, out), out]
    values = [rng.normal(size=shape) for shape in shapes]
    values[2] = 1 + 0.3 * values[2]  # gamma
    values[4] = 0.05 * values[4]  # the moving mean
    values[5] = 0.01 + 0.01 * values[5] ** 2  # the moving variance
    inputs = 0.02 * rng.normal(size=(32, n)) + 0.01
    return [value.astype(np.float32) for value in values], inputs.astype(np.float32)


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
    for variable, value in zip(model.weights, values, strict=True):
        variable.assign(value)
    return model


def run_twin(answer, seed):
    """What each twin computes; or a sentence where Keras is missing."""
    if said := missing("keras"):
        attempt(answer, None)  # an open exercise stays open
        return said
    return {name: _report(answer, case, seed) for name, case in _CASES.items()}


def _report(answer, case, seed):
    values, inputs = _numbers(case, seed)
    model = _model(case, values)
    made = attempt(answer, model)
    if type(made) is Raised:
        return made
    pair = made if isinstance(made, (tuple, list)) else (made,)
    kinds = [type(one).__name__ for one in pair]
    if len(pair) != 2 or not isinstance(pair[0], nn.Module):
        return {"came": kinds}
    if not isinstance(pair[1], torch.optim.Optimizer):
        return {"came": kinds}
    return attempt(_measure, *pair, model, torch.from_numpy(inputs))


def _measure(network, optimizer, model, x):
    report = {"training": network.training}
    with torch.no_grad():
        report["eval"] = network.eval()(x)
        report["train"] = network.train()(x)
    norm = next(m for m in network.modules() if hasattr(m, "running_mean"))
    report["mean"] = norm.running_mean.clone()
    held = [p for group in optimizer.param_groups for p in group["params"]]
    report["held"] = sorted(map(id, held)) == sorted(map(id, network.parameters()))
    group = optimizer.param_groups[0]
    report["optimizer"] = type(optimizer).__name__
    report["group"] = {
        key: group.get(key) for key in ("lr", "betas", "eps", "weight_decay", "amsgrad")
    }
    first = next(network.parameters())
    before = first.detach().clone()
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, _GRADIENT)
    optimizer.step()
    report["step"] = (before - first.detach()).double().mean().item()
    report["keras"] = [variable.value.detach().clone() for variable in model.weights]
    return report


@check(run_twin, seeds=2)
def check_twin(report, seed):
    """A Keras network and its optimizer, ported to PyTorch with the same numbers."""
    if isinstance(report, str):
        raise AnswerError(report)
    for name, case in _CASES.items():
        _judge(name, case, report[name], seed)


def _judge(name, case, got, seed):
    if type(got) is Raised:
        raise AnswerError(f"{name}: {got.type_name}: {got.message}")
    if "came" in got:
        raise Mistake(NOT_A_PAIR, name=name, came=" and ".join(got["came"]) or "nothing")
    if not got["training"]:
        raise Mistake(IN_EVAL, name=name)
    values, x = _numbers(case, seed)
    want = _keras_in_numpy(case, values, x)
    for mode in ("eval", "train"):
        _same(OUTPUT, got[mode], want[mode], name=name, mode=mode)
    _same(MEAN, got["mean"], want["mean"], name=name)
    if got["optimizer"] != "Adam":
        raise Mistake(OPTIMIZER, name=name, what="class", got=got["optimizer"], want="Adam")
    wanted = {"lr": case.lr, "eps": case.adam_epsilon, "weight_decay": 0.0}
    for what, value in wanted.items():
        if not abs(got["group"][what] - value) <= 1e-6 * value:
            raise Mistake(OPTIMIZER, name=name, what=what, got=got["group"][what], want=value)
    for place in (0, 1):
        one, value = got["group"]["betas"][place], case.betas[place]
        if not abs(one - value) <= 1e-6:
            raise Mistake(OPTIMIZER, name=name, what=f"betas[{place}]", got=one, want=value)
    if not got["held"]:
        raise Mistake(FOREIGN, name=name)
    for now, was in zip(got["keras"], values, strict=True):
        if not np.array_equal(now.numpy(), was):
            raise Mistake(SHARED, name=name)


def _keras_in_numpy(case, values, x):
    """Outputs in both modes and the moving mean after the batch, in float64."""
    kernel, bias, gamma, beta, mean, variance, last, last_bias = (v.astype(float) for v in values)
    hidden = x.astype(float) @ kernel + bias
    of_batch = hidden.mean(axis=0), hidden.var(axis=0)
    outputs = {"mean": case.momentum * mean + (1 - case.momentum) * of_batch[0]}
    for mode, (m, v) in {"eval": (mean, variance), "train": of_batch}.items():
        normal = (hidden - m) / np.sqrt(v + case.epsilon) * gamma + beta
        outputs[mode] = np.maximum(normal, 0) @ last + last_bias
    return outputs


def _same(template, got, want, **where):
    """Float32 rounding through two layers and a norm stays far below 1e-4 of the largest value."""
    got = got.double().numpy()
    if got.shape != want.shape:
        raise Mistake(template, got=list(got.shape), want=list(want.shape), **where)
    away = np.abs(got - want)
    if not away.max() <= 1e-4 * max(np.abs(want).max(), 1e-3):
        place = np.unravel_index(np.nanargmax(away) if away.size else 0, away.shape)
        raise Mistake(template, got=float(got[place]), want=float(want[place]), **where)
