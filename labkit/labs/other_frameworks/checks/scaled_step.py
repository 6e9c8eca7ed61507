"""Check of lab 14's scaled step: its scales beside GradScaler's, its weights beside torch's."""

import math

import torch

from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.messages import fill
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
from labkit.labs.other_frameworks.frameworks import jax, jnp, missing, optax
from labkit.labs.other_frameworks.mlp import batch, batch_in_numpy, mlp, mlp_in_numpy
from labkit.labs.other_frameworks.ports import grad_scaler_trace

LAB = "14_other_frameworks"

NOT_SKIPPED = (
    "With {optimizer}: in step {step:d} {bad}, and the scale is {got:exact} afterwards; half of "
    "{before:exact} is wanted. {why}"
)
FELL = (
    "With {optimizer}: in step {step:d} all gradients are finite at a scale of {before:exact}, "
    "and the scale is {got:exact} afterwards; {want:exact} is wanted."
)
SCALE = (
    "With {optimizer}: step {step:d} {what}, and the scale is {got:exact} afterwards; "
    "{want:exact} is wanted."
)
GOOD = (
    "With {optimizer}: step {step:d} {what}, and `good` is {got:g} afterwards; {want:g} is wanted."
)
SKIPPED = "must be skipped"
IN_A_ROW = "is good step number {number:d} in a row"
KEPT = "With {optimizer}: in step {step:d} {bad}, and {what}."
SPOILED = "the weights that you return hold inf or NaN"
MOVED = "the weights that you return are not those that came in"
ONE_STILL = "of the weights that you return only `{name}` is the one that came in"
STATE_SPOILED = "the state that you return holds inf or NaN"
STATE_MOVED = "the state that you return is not the one that came in"
ONLY_NAN = "A test for NaN alone lets an inf pass."
ALL_GRADIENTS = "The loss is finite there. What do you test, and is it all gradients?"
SCALED_LOSS = "It is multiplied by the scale of that step."
OTHER_SCALE = "It is divided by the new scale, and was multiplied by the old one."
TIMES = "It is {times:.4g} times as large, and the scale is {scale:exact}."
UNSCALED_LOSS = (
    "FP16 holds nothing below 6e-8. What multiplies the loss before you take the gradient?"
)
FP16_VALUES = "All its values are FP16 values: it was rounded to FP16 after the division."

_STEPS, _START, _FACTOR = 16, 2.0**24, 1e-6
"""2**26 times the gradients of this loss fit into FP16; unscaled, most of them are 0 in it."""

_BAD = {5: "w1", 9: "", 12: "b2"}
"""Steps with gradients that are not finite: of one array, or of all four."""

_SAID = {
    5: "the gradient of `w1` is inf, the others are finite",
    9: "all gradients are NaN",
    12: "the gradient of `b2` is NaN, the others are finite",
}
_MARKS = {5: 128.0, 12: 256.0}
_LR = {"SGD": 5e5, "Adam": 1e-3}


# Beside the answer


def _loss(weights, x, y):
    """The crossentropy times a factor; at a mark in ``x`` one array's gradient is inf or NaN."""

    @jax.custom_vjp
    def spoiled(array, bad):
        return jnp.float32(0)

    def backward(kept, gradient):
        array, bad = kept
        return jnp.full_like(array, bad), jnp.zeros_like(bad)

    spoiled.defvjp(lambda array, bad: (jnp.float32(0), (array, bad)), backward)
    mark = x[0, 0].astype(jnp.float32)
    inf = jnp.where(mark == _MARKS[5], jnp.inf, 0.0)
    nan = jnp.where(mark == _MARKS[12], jnp.nan, 0.0)
    loss = _FACTOR * jax_cross_entropy(weights, x, y)
    return loss + spoiled(weights["w1"], inf) + spoiled(weights["b2"], nan)


def run_scaled_step(answer, seed):
    """A run with SGD and one with Adam; or a sentence where JAX is missing."""
    if said := missing("jax", "optax"):
        attempt(answer, *(None,) * 8)  # an open exercise stays open
        return said
    return {name: attempt(_run, answer, name, seed) for name in _LR}


def _run(answer, name, seed):
    heard = JaxHeard()
    own = optax.sgd(_LR[name], momentum=0.9) if name == "SGD" else optax.adam(_LR[name])
    optimizer, loss_of = heard.optimizer(own), heard.loss(_loss)
    compiled = jax.jit(lambda *args: answer(*args, loss_of, optimizer))
    weights = mlp(seed)
    state, scale, good = optimizer.init(weights), jnp.float32(_START), jnp.int32(0)
    report = {"scales": [], "goods": [], "losses": {}, "kept": {}, "still": {}}
    for number in range(_STEPS):
        x, y = batch(seed + number)
        if number in _MARKS:
            x = x.at[0, 0].set(_MARKS[number])
        elif number in _BAD:
            x = x * math.inf
        before = weights, state
        returned = compiled(*before, scale, good, x, y)
        if wrong := formed(returned, before, 5):
            return {"wrong": wrong}
        weights, state, scale, good, loss = returned
        report["scales"].append(float(scale))
        report["goods"].append(float(good))
        if number in _BAD:
            pairs = zip(before, (weights, state), strict=True)
            report["kept"][number] = [_kept(*pair) for pair in pairs]
            report["still"][number] = [
                name for name, was in before[0].items() if jnp.array_equal(was, weights[name])
            ]
            weights, state = before  # what one bad step has spoiled tells nothing of the next
        else:
            report["losses"][number] = float(loss)
        if not number:
            report |= {"first": to_torch(state["got"]), "updates": int(state["count"])}
    report |= {"calls": heard.calls[:4], "gradients": heard.gradients}
    report["dtypes"] = dtypes_of(weights, state) | {
        "`scale`": str(scale.dtype),
        "`good`": str(good.dtype),
        "`loss`": str(loss.dtype),
    }
    return report | {"weights": to_torch(weights)}


def _kept(before, after):
    """Whether all bits are what they were, whether all is finite, and whether `got` is all 0."""
    leaves = jax.tree.leaves(before), jax.tree.leaves(after)
    same = all(bool(jnp.array_equal(a, b)) for a, b in zip(*leaves, strict=True))
    got = jax.tree.leaves(after.get("got", {}))
    return [
        same,
        all(bool(jnp.isfinite(leaf).all()) for leaf in leaves[1]),
        bool(got) and not any(bool(leaf.any()) for leaf in got),
    ]


# In the judge


@check(run_scaled_step, seeds=2)
def check_scaled_step(report, seed):
    """An FP16 step with a dynamic loss scale, compiled by jit."""
    if isinstance(report, str):
        raise AnswerError(report)
    for name in _LR:
        case = JaxCase(
            name="scaled_step",
            optimizer=name,
            returns=("weights", "state", "scale", "good", "loss"),
            narrow="float16",
        )
        got = report[name]
        judge_form(got, case)
        judge_casts(got, case)
        what = "A weight", "The optimizer's state", "`scale`", "`loss`"
        judge_dtypes(got, dict.fromkeys(what, "float32") | {"`good`": "int32"})
        runs = {why: _torch_run(seed, name, **how) for why, how in _RUNS.items()}
        if got["scales"][0] == _START:  # step 0 was taken
            judge_gradients(got["first"], runs[""][1], got["updates"], _about_gradient)
        _judge_scales(got, name)
        _judge_run(got, name, seed, runs)


def _judge_scales(got, optimizer):
    """Step by step: is it skipped where it must be, and do scale and count follow their rule?"""
    wanted = grad_scaler_trace(_BAD, steps=_STEPS, start=_START)
    counts, before, idea = _trajectory()[1], _START, _idea(got)
    for step in range(_STEPS):
        scale, want = got["scales"][step], wanted[step]
        said = {"optimizer": optimizer, "step": step}
        why = {"misconception": idea, "search": False}
        if step in _BAD and scale >= before:
            values = {"bad": _SAID[step], "got": scale, "before": before, "why": _missed(got)}
            raise Mistake(NOT_SKIPPED, **why, **said, **values)
        if step not in _BAD and scale < before:
            raise Mistake(FELL, **why, **said, before=before, got=scale, want=want)
        is_what = SKIPPED if step in _BAD else fill(IN_A_ROW, number=1 + step - _since(step))
        if scale != want:
            raise Mistake(SCALE, **why, **said, what=is_what, got=scale, want=want)
        if step in _BAD:
            _judge_kept(got["kept"][step], got["still"][step], step, said)
        if got["goods"][step] != counts[step]:
            values = {"got": got["goods"][step], "want": float(counts[step])}
            raise Mistake(GOOD, **why, **said, what=is_what, **values)
        before = want


def _since(step):
    """The step after the last one before this that was skipped."""
    return max([0, *(bad + 1 for bad in _BAD if bad < step)])


def _missed(got):
    """What the steps that were not skipped have in common, as a sentence."""
    scales = [_START, *got["scales"]]
    missed = [step for step in _BAD if scales[step + 1] >= scales[step]]
    return {(5,): ONLY_NAN, (5, 12): ALL_GRADIENTS}.get(tuple(missed), "")


def _judge_kept(kept, still, step, said):
    (weights, weights_finite, _), (state, state_finite, zeros) = kept
    if weights is True and state is True:
        return
    said |= {"bad": _SAID[step], "search": False}
    if weights is not True:
        idea = "zeroed-step-is-a-skip" if weights_finite is True and zeros is True else None
        what = MOVED if weights_finite else SPOILED
        if still == [_BAD[step]]:
            idea, what = "an-overflow-spoils-one-tensor", fill(ONE_STILL, name=_BAD[step])
        raise Mistake(KEPT, misconception=idea, what=what, **said)
    what = STATE_MOVED if state_finite else STATE_SPOILED
    raise Mistake(KEPT, misconception="only-weights-need-protection", what=what, **said)


def _trajectory(
    *,
    after_growth=lambda good: 0,
    after_skip=lambda good: 0,
    grows=lambda good: good == 3,
    skips=lambda step, scale: step in _BAD,
):
    """The scales and counts of all steps by a rule."""
    scale, good, scales, goods = _START, 0, [], []
    for step in range(_STEPS):
        if skips(step, scale):
            scale, good = scale / 2, after_skip(good)
        else:
            good += 1
            if grows(good):
                scale, good = scale * 2, after_growth(good)
        scales.append(scale)
        goods.append(good)
    return scales, goods


def _same(good):
    return good


_RULES = {
    "counter-survives-growth": [
        {"after_growth": _same},
        {"after_growth": _same, "grows": lambda good: good >= 3},
        {"after_growth": _same, "grows": lambda good: good % 3 == 0},
    ],
    "counter-survives-overflow": [{"after_skip": _same}],
    "growth-comes-one-step-later": [{"grows": lambda good: good == 4}],
    "the-scale-must-fit-fp16": [{"skips": lambda step, scale: step in _BAD or scale > 2.0**15}],
    "only-inf-spoils-a-step": [{"skips": lambda step, scale: step == 5}],
}


def _idea(got):
    """The misconception by whose rule all scales and counts come out."""
    for idea, rules in _RULES.items():
        if any(_trajectory(**rule) == (got["scales"], got["goods"]) for rule in rules):
            return idea
    return None


def _judge_run(got, optimizer, seed, runs):
    losses = runs[""][0]
    scales = [_START, *got["scales"]]
    judge_loss(0, got["losses"][0], losses[0], {SCALED_LOSS: losses[0] * _START})
    judge_rounding(got["weights"], torch.float16, steps=_STEPS)
    ends = {why: end for why, (_, _, end) in runs.items()}
    judge_way(got["weights"], mlp_in_numpy(seed), ends, steps=_STEPS, optimizer=optimizer)
    for step, want in losses.items():
        changed = want * scales[step] / scales[step + 1]
        judge_loss(step, got["losses"][step], want, {OTHER_SCALE: changed})


_RUNS = {"": {}, BACKWARDS: {"maximize": True}, RESTARTED: {"forgets": True}}


def _about_gradient(got, want):
    times = (got.norm() / want.norm()).item()
    if abs(times / _START - 1) < 0.05:
        return fill(TIMES, times=times, scale=_START), "unscaling-is-optional"
    if not got.any():
        return UNSCALED_LOSS, None
    if torch.equal(got, got.half().float()):
        return FP16_VALUES, "unscaling-may-be-sixteen-bit"
    return "", None


def _torch_run(seed, optimizer, **how):
    """The losses of the good steps, the first gradients, the last weights of a run by torch."""
    run = TorchRun(
        mlp_in_numpy(seed),
        dtype=torch.float16,
        factor=_FACTOR,
        optimizer=optimizer,
        lr=_LR[optimizer],
        **how,
    )
    scales = [_START, *_trajectory()[0]]
    losses, first = {}, None
    for step in range(_STEPS):
        if step in _BAD:
            continue
        losses[step], gradients = run.loss_and_gradients(*batch_in_numpy(seed + step), scales[step])
        run.step(gradients)
        first = first or gradients
    return losses, first, run.weights


_UPDATE = "    updates, new_state = optimizer.update(gradients, state, weights)\n"
_REST = """    new_weights = optax.apply_updates(weights, updates)
    loss = scaled / scale

    def choose(new, old):
        return jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, old)

    weights, state = choose(new_weights, weights), choose(new_state, state)
"""

check_scaled_step.slip(
    "only-weights-need-protection",
    "`optimizer.update` got those gradients. What have they made of the moments, and of the count?",
    swap=("choose(new_state, state)", "new_state"),
)
check_scaled_step.slip(
    "zeroed-step-is-a-skip",
    "The optimizer got gradients of 0. What do momentum, and Adam's moments and count, make of "
    "them?",
    swap=(
        _UPDATE + _REST,
        "    gradients = jax.tree.map(lambda g: jnp.where(finite, g, 0), gradients)\n"
        "    updates, state = optimizer.update(gradients, state, weights)\n"
        "    weights = optax.apply_updates(weights, updates)\n"
        "    loss = scaled / scale\n",
    ),
)
check_scaled_step.slip(
    "an-overflow-spoils-one-tensor",
    "One gradient that is not finite skips the step for all arrays. What decides for each of them?",
    swap=(
        "choose(new_weights, weights), choose",
        "jax.tree.map(\n"
        "        lambda g, a, b: jnp.where(jnp.isfinite(g).all(), a, b),\n"
        "        gradients, new_weights, weights,\n"
        "    ), choose",
    ),
)
check_scaled_step.slip(
    "counter-survives-growth",
    "From which number does the count go on after the scale has grown?",
    swap=("jnp.where(grow, 0, good), loss", "good, loss"),
)
check_scaled_step.slip(
    "counter-survives-overflow",
    "Three good steps in a row are wanted. What is the count after a skipped one?",
    swap=("jnp.where(finite, good + 1, 0)", "jnp.where(finite, good + 1, good)"),
)
check_scaled_step.slip(
    "growth-comes-one-step-later",
    "Which value of `good` do you compare with 3: before this step is counted, or after?",
    swap=("grow = good == 3", "grow = good == 4"),
)
check_scaled_step.slip(
    "the-scale-must-fit-fp16",
    "The scale falls until it is below 65,504. In which dtype is the loss when it is multiplied?",
    swap=(
        "x.astype(jnp.float16), y) * scale",
        "x.astype(jnp.float16), y) * scale.astype(jnp.float16)",
    ),
)
check_scaled_step.slip(
    "unscaling-is-optional",
    "Where are the gradients divided before the optimizer gets them?",
    cut="gradients = jax.tree.map(lambda g: g / scale, gradients)",
)
check_scaled_step.slip(
    "unscaling-may-be-sixteen-bit",
    "The smallest gradients are 0 in FP16. In which dtype do you divide?",
    swap=("lambda g: g / scale,", "lambda g: (g / scale).astype(jnp.float16).astype(jnp.float32),"),
)
check_scaled_step.slip(
    "only-inf-spoils-a-step",
    "`jnp.isinf` is False for a NaN. Which function is False for both?",
    swap=("jnp.isfinite(g).all()", "~jnp.isinf(g).any()"),
)
check_scaled_step.slip(
    "branches-see-values",
    "Under `jit` a value is a placeholder without a number. Which function chooses between two "
    "arrays?",
    swap=(
        "    updates, new_state",
        "    if not finite:\n"
        "        return weights, state, scale / 2, jnp.int32(0), scaled / scale\n"
        "    updates, new_state",
    ),
)
check_scaled_step.slip(
    "matmuls-follow-the-weight",
    "JAX casts nothing by itself: FP16 weights times a float32 `x` run in float32.",
    swap=("x.astype(jnp.float16)", "x"),
)
check_scaled_step.slip(
    "one-wide-operand-stays-alone",
    "FP16 plus a float32 bias is float32, and it is the input of the next matmul.",
    swap=(
        "jax.tree.map(lambda w: w.astype(jnp.float16), weights)",
        "{k: w.astype(jnp.float16) if w.ndim > 1 else w for k, w in weights.items()}",
    ),
)
check_scaled_step.slip(
    "masters-are-a-cast",
    "Which weights does `optax.apply_updates` get? Those must be the float32 ones that came in.",
    swap=(
        "optax.apply_updates(weights, updates)",
        "optax.apply_updates(jax.tree.map(lambda w: w.astype(jnp.float16), weights), updates)",
    ),
)
