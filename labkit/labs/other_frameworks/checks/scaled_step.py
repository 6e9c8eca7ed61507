"""Check of lab 14's scaled step: its scales beside GradScaler's, its weights beside torch's."""

import math

import torch

from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.other_frameworks.checks.jax_steps import TorchRun, distance, loss_of, to_torch
from labkit.labs.other_frameworks.frameworks import jax, jnp, missing, optax
from labkit.labs.other_frameworks.jaxprs import matmul_dtypes
from labkit.labs.other_frameworks.mlp import batch, batch_in_numpy, mlp, mlp_in_numpy
from labkit.labs.other_frameworks.ports import grad_scaler_trace

LAB = "14_other_frameworks"

MATMULS = "the forward pass has a matmul of {left} and {right}; both must be float16."
DTYPE = "{what} is {got}; {want} is wanted."
SCALE = "after step {step} the scale is {got:g}; {want:g} is wanted."
GOOD = "after step {step} `good` is {got}; {want} is wanted."
LOSS = "step {step} returns a loss of {got}; {want} is wanted."
KEPT = "step {step} is skipped, but {what} changed."
ASTRAY = "after {steps} steps `{name}` is off by {away:.0%} of the way that it must go."

_STEPS, _SKIPPED, _START = 14, 9, 2.0**24
_LR, _MOMENTUM, _FACTOR = 0.5e4, 0.9, 1e-4
"""2**27 times the gradients of this loss fit into FP16; unscaled, most of them are 0 in it."""


def _small_loss(weights, x, y):
    return _FACTOR * loss_of(weights, x, y)


def run_scaled_step(answer, seed):
    """A run with SGD and one with Adam; or a sentence where JAX is missing."""
    if said := missing("jax", "optax"):
        attempt(answer, *(None,) * 8)
        return said
    optimizers = {"SGD": optax.sgd(_LR, momentum=_MOMENTUM), "Adam": optax.adam(1e-3)}
    return {name: attempt(_run, answer, one, seed) for name, one in optimizers.items()}


def _run(answer, optimizer, seed):
    weights = mlp(seed)
    state, scale, good = optimizer.init(weights), jnp.float32(_START), jnp.int32(0)

    def step(*args):
        return answer(*args, _small_loss, optimizer)

    compiled = jax.jit(step)
    report = {"scales": [], "goods": [], "losses": []}
    for number in range(_STEPS):
        x, y = batch(seed + number)
        x = x * math.inf if number == _SKIPPED else x
        before = weights, state
        weights, state, scale, good, loss = compiled(weights, state, scale, good, x, y)
        report["scales"].append(float(scale))
        report["goods"].append(int(good))
        report["losses"].append(float(loss))
        if number == _SKIPPED:
            pairs = zip(before, (weights, state), strict=True)
            report["kept"] = [_same_bits(was, now) for was, now in pairs]
    args = (weights, state, scale, good, *batch(seed))
    report["matmuls"] = matmul_dtypes(step, *args)
    report["dtypes"] = {
        "the scale": str(scale.dtype),
        "`good`": str(good.dtype),
        "the loss": str(loss.dtype),
        "a weight": str(weights["w1"].dtype),
    }
    return report | {"weights": to_torch(weights)}


def _same_bits(was, now):
    pairs = zip(jax.tree.leaves(was), jax.tree.leaves(now), strict=True)
    return all(bool(jnp.array_equal(a, b)) for a, b in pairs)


@check(run_scaled_step, seeds=2)
def check_scaled_step(report, seed):
    """An FP16 step with a dynamic loss scale, compiled by jit."""
    if isinstance(report, str):
        raise AnswerError(report)
    for name in ("SGD", "Adam"):
        got = report[name]
        if type(got) is Raised:
            raise AnswerError(f"with {name}: {got.type_name}: {got.message}")
        _judge_scales(got)
    _judge_weights(report["SGD"], seed)


def _judge_scales(got):
    for left, right, _ in got["matmuls"][:2]:
        if (left, right) != ("float16", "float16"):
            raise Mistake(MATMULS, left=left, right=right)
    wanted = grad_scaler_trace({_SKIPPED}, steps=_STEPS, start=_START)
    good = 0
    for step, want in enumerate(wanted):
        if got["scales"][step] != want:
            raise Mistake(SCALE, step=step, got=got["scales"][step], want=want)
        good = 0 if step == _SKIPPED else (good + 1) % 3
        if got["goods"][step] != good:
            raise Mistake(GOOD, step=step, got=got["goods"][step], want=good)
    for what, kept in zip(("a weight", "the optimizer's state"), got["kept"], strict=True):
        if not kept:
            raise Mistake(KEPT, step=_SKIPPED, what=what)
    wanted = {"the scale": "float32", "the loss": "float32", "a weight": "float32"}
    for what, want in wanted.items():
        if got["dtypes"][what] != want:
            raise Mistake(DTYPE, what=what, got=got["dtypes"][what], want=want)


def _judge_weights(got, seed):
    start = mlp_in_numpy(seed)
    run = TorchRun(start, torch.float16, _FACTOR)
    scale = _START
    for step in range(_STEPS):
        if step != _SKIPPED:
            loss, gradients = run.loss_and_gradients(*batch_in_numpy(seed + step), scale)
            run.step(gradients, _LR, _MOMENTUM)
            if not abs(got["losses"][step] - loss) <= 0.02 * loss:
                raise Mistake(LOSS, step=step, got=got["losses"][step], want=loss)
        scale = got["scales"][step]
    for name, want in run.weights.items():
        away = distance(got["weights"][name], want, torch.from_numpy(start[name]))
        if not away <= 0.05:
            raise Mistake(ASTRAY, steps=_STEPS, name=name, away=away)
