"""Check of lab 14's BF16 step: dtypes of its matmuls, and where ten steps lead."""

import torch

from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.other_frameworks.checks.jax_steps import TorchRun, distance, loss_of, to_torch
from labkit.labs.other_frameworks.frameworks import jax, missing, optax
from labkit.labs.other_frameworks.jaxprs import matmul_dtypes
from labkit.labs.other_frameworks.mlp import batch, batch_in_numpy, mlp, mlp_in_numpy

LAB = "14_other_frameworks"

MATMULS = "the forward pass has a matmul of {left} and {right}; both must be bfloat16."
DTYPE = "{what} is {got}; float32 is wanted."
LOSS = "step {step} returns a loss of {got}; {want} is wanted."
ASTRAY = "after {steps} steps `{name}` is off by {away:.0%} of the way that it must go."

_STEPS, _LR, _MOMENTUM = 10, 0.5, 0.9


def run_step(answer, seed):
    """Dtypes and the end of a run; or a sentence where JAX is missing."""
    if said := missing("jax", "optax"):
        attempt(answer, *(None,) * 6)
        return said
    return attempt(_run, answer, seed)


def _run(answer, seed):
    optimizer, weights = optax.sgd(_LR, momentum=_MOMENTUM), mlp(seed)
    state = optimizer.init(weights)

    def step(*args):
        return answer(*args, loss_of, optimizer)

    report = {"matmuls": matmul_dtypes(step, weights, state, *batch(seed)), "losses": []}
    compiled = jax.jit(step)
    for number in range(_STEPS):
        weights, state, loss = compiled(weights, state, *batch(seed + number))
        report["losses"].append(float(loss))
    report["dtypes"] = {
        "the loss": str(loss.dtype),
        "a weight": str(weights["w1"].dtype),
        "the optimizer's state": str(jax.tree.leaves(state)[0].dtype),
    }
    return report | {"weights": to_torch(weights)}


@check(run_step, seeds=2)
def check_step(report, seed):
    """A JAX step with BF16 matmuls and FP32 weights."""
    if isinstance(report, str):
        raise AnswerError(report)
    if type(report) is Raised:
        raise AnswerError(f"{report.type_name}: {report.message}")
    for left, right, _ in report["matmuls"][:2]:
        if (left, right) != ("bfloat16", "bfloat16"):
            raise Mistake(MATMULS, left=left, right=right)
    for what in ("the loss", "a weight", "the optimizer's state"):
        if report["dtypes"][what] != "float32":
            raise Mistake(DTYPE, what=what, got=report["dtypes"][what])
    start = mlp_in_numpy(seed)
    run = TorchRun(start, torch.bfloat16, 1.0)
    for number in range(_STEPS):
        loss, gradients = run.loss_and_gradients(*batch_in_numpy(seed + number))
        run.step(gradients, _LR, _MOMENTUM)
        if not abs(report["losses"][number] - loss) <= 0.02 * loss:
            raise Mistake(LOSS, step=number, got=report["losses"][number], want=loss)
    for name, want in run.weights.items():
        away = distance(report["weights"][name], want, torch.from_numpy(start[name]))
        if not away <= 0.05:
            raise Mistake(ASTRAY, steps=_STEPS, name=name, away=away)
