"""Check of lab 14's BF16 step: what its matmuls and its optimizer get, and where ten steps lead."""

import torch

from labkit.labs.engine import AnswerError, attempt, check
from labkit.labs.other_frameworks.checks.jax_steps import (
    BACKWARDS,
    RESTARTED,
    JaxCase,
    JaxHeard,
    TorchRun,
    dtypes_of,
    formed,
    jax_cross_entropy,
    judge_casts,
    judge_dtypes,
    judge_form,
    judge_gradients,
    judge_loss,
    judge_rounding,
    judge_way,
    to_torch,
)
from labkit.labs.other_frameworks.frameworks import jax, missing, optax
from labkit.labs.other_frameworks.mlp import batch, batch_in_numpy, mlp, mlp_in_numpy

LAB = "14_other_frameworks"

_STEPS, _LR = 10, 0.5
_CASE = JaxCase(
    name="bf16_step",
    optimizer="SGD with momentum",
    returns=("weights", "state", "loss"),
    narrow="bfloat16",
)


def run_step(answer, seed):
    """What a compiled run does; or a sentence where JAX is missing."""
    if said := missing("jax", "optax"):
        attempt(answer, *(None,) * 6)  # an open exercise stays open
        return said
    return attempt(_run, answer, seed)


def _run(answer, seed):
    heard = JaxHeard()
    optimizer = heard.optimizer(optax.sgd(_LR, momentum=0.9))
    loss_of = heard.loss(jax_cross_entropy)
    compiled = jax.jit(lambda *args: answer(*args, loss_of, optimizer))
    weights = mlp(seed)
    state = optimizer.init(weights)
    report = {"losses": []}
    for number in range(_STEPS):
        before = weights, state
        returned = compiled(*before, *batch(seed + number))
        if wrong := formed(returned, before, 3):
            return {"wrong": wrong}
        weights, state, loss = returned
        report["losses"].append(float(loss))
        if not number:
            report |= {"first": to_torch(state["got"]), "updates": int(state["count"])}
    report |= {"calls": heard.calls[:4], "gradients": heard.gradients}
    report["dtypes"] = dtypes_of(weights, state) | {"The loss": str(loss.dtype)}
    return report | {"weights": to_torch(weights)}


@check(run_step, seeds=2)
def check_step(report, seed):
    """A JAX step with BF16 matmuls and FP32 weights."""
    if isinstance(report, str):
        raise AnswerError(report)
    judge_form(report, _CASE)
    judge_casts(report, _CASE)
    what = "A weight", "The optimizer's state", "The loss"
    judge_dtypes(report, dict.fromkeys(what, "float32"))
    runs = {why: _torch_run(seed, **how) for why, how in _RUNS.items()}
    losses, first, _ = runs[""]
    judge_gradients(report["first"], first, report["updates"])
    judge_loss(0, report["losses"][0], losses[0], {})
    judge_rounding(report["weights"], torch.bfloat16, steps=_STEPS)
    ends = {why: end for why, (_, _, end) in runs.items()}
    judge_way(report["weights"], mlp_in_numpy(seed), ends, steps=_STEPS, optimizer=_CASE.optimizer)
    for number in range(_STEPS):
        judge_loss(number, report["losses"][number], losses[number], {})


_RUNS = {"": {}, BACKWARDS: {"maximize": True}, RESTARTED: {"forgets": True}}


def _torch_run(seed, **how):
    """Losses, the first gradients and the last weights of a run by torch."""
    how = {"dtype": torch.bfloat16, "factor": 1.0, "optimizer": "SGD", "lr": _LR} | how
    run = TorchRun(mlp_in_numpy(seed), **how)
    losses, first = [], None
    for number in range(_STEPS):
        loss, gradients = run.loss_and_gradients(*batch_in_numpy(seed + number))
        run.step(gradients)
        losses.append(loss)
        first = first or gradients
    return losses, first, run.weights


check_step.slip(
    "masters-are-a-cast",
    "Which weights does `optax.apply_updates` get? Those must be the float32 ones that came in.",
    swap=(
        "optax.apply_updates(weights, updates)",
        "optax.apply_updates(jax.tree.map(lambda w: w.astype(jnp.bfloat16), weights), updates)",
    ),
)
check_step.slip(
    "matmuls-follow-the-weight",
    "JAX casts nothing by itself: BF16 weights times a float32 `x` run in float32.",
    swap=("x.astype(jnp.bfloat16)", "x"),
)
check_step.slip(
    "one-wide-operand-stays-alone",
    "BF16 plus a float32 bias is float32, and it is the input of the next matmul.",
    swap=(
        "jax.tree.map(lambda w: w.astype(jnp.bfloat16), weights)",
        "{k: w.astype(jnp.bfloat16) if w.ndim > 1 else w for k, w in weights.items()}",
    ),
)
check_step.slip(
    "a-cast-outside-changes-nothing",
    "A gradient has the dtype of what you differentiate by. Does the cast stand inside that "
    "function?",
    swap=(
        "loss, gradients = jax.value_and_grad(narrow_loss)(weights)",
        "narrow = jax.tree.map(lambda w: w.astype(jnp.bfloat16), weights)\n"
        "    loss, gradients = jax.value_and_grad(narrow_loss)(narrow)",
    ),
)
