# %% [markdown]
# # 14. Keras and JAX beside PyTorch: a porting guide
#
# You find the dtype of each value of a training step in Keras and in JAX.
#
# *any laptop, `pip install -e ".[frameworks]"` (0.6 GB; without it the cells show recorded results) · needs: labs 04 and 05*
#
# After this lab you can:
#
# - port a network and its optimizer from Keras to PyTorch, list the dtypes of all matmuls of a JAX program, and scale the loss in a compiled step;
# - say which dtype a promotion rule, a policy or one FP32 bias leads to.
#
# ## Sitting A: Keras
#
# *You are here:* **promotion** → policies → losses → 16-bit weights → port → *stop*

# %%
import numpy as np, pandas as pd, torch, torch.nn as nn
from labkit.labs.engine import claim, predict, yours
from labkit.labs.other_frameworks import checks, figures, predictions as guesses, solutions as ours
from labkit.labs.other_frameworks.frameworks import jax, jnp, keras, live, optax

# %% [markdown]
# Keras 3 is a front end: it computes with TensorFlow, JAX or PyTorch, its *backend*. labkit uses it with PyTorch, and JAX on the CPU.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("14_other_frameworks")

# %% [markdown]
# ### Which dtype a multiplication gives
#
# A ported model takes twice the memory: somewhere a 16-bit tensor met a float32 number and became float32. For floating-point values each library has its own **promotion rule**:
#
# - **PyTorch:** a Python number or a tensor without dimensions does not widen a tensor that has dimensions.
# - **NumPy** (2.x): a Python float has no dtype and widens nothing. All else has a dtype, and the wider one wins.
# - **JAX:** a value that was made of a Python number without naming a dtype is **weakly typed** and takes the dtype of the other operand. Between all others the result is the smallest dtype that holds both: FP16 with BF16 gives float32.


# %% predict="four-twos"
@predict(guesses.four_twos)
def widened():
    def products():
        h = jnp.ones(3, jnp.float16)
        twos = 2.0, np.float32(2), jnp.float32(2), jnp.array(2.0)
        return [str((h * two).dtype) for two in twos]

    return [dtype == "float32" for dtype in live(products)]


# %% [markdown]
# `np.float32(2)` and `jnp.float32(2)` name a dtype, so the products are float32. `2.0` and `jnp.array(2.0)` are weakly typed, so `h` stays in FP16.

# %% [markdown]
# In the next table `h`, `x` and `b` are vectors in FP16, FP32 and BF16, and `0-d` is the library's own array of 2.0. TensorFlow 2.21 and MLX 0.32 (Apple's) were recorded. In which row do the libraries differ most?

# %%
from labkit.labs.other_frameworks.promotion import promotions

pd.DataFrame(live(promotions))

# %% [markdown]
# `h * 0-d` gives three dtypes and an error: NumPy makes `np.array(2.0)` float64, which widens `h`, and TensorFlow refuses to mix two tensors of different dtypes. Of the constants, only `2.0` keeps FP16 in all six columns. So give constants as Python numbers.
#
# ### A policy: two dtypes for each layer
#
# Keras has nothing like `torch.autocast`. Each layer has a **dtype policy** instead, a pair: the **compute dtype**, to which each call of the layer casts inputs and weights, and the **variable dtype**, in which the layer stores its weights. `mixed_float16` means FP16 and float32. A layer takes its policy when it is made, from its argument `dtype` or from the global policy. A global policy that is set later changes nothing.
#
# labkit's `policy(name)` sets the global policy for a block. The cell builds a classifier whose last layer asks for float32, because the loss needs its range and precision. Keras' `compile` attaches the optimizer and the loss to the model; it is not `torch.compile`.


# %%
from labkit.labs.other_frameworks.frameworks import policy
from labkit.labs.other_frameworks.keras_runs import layer_dtypes


def in_mixed_float16():
    with policy("mixed_float16"):
        hidden = keras.layers.Dense(64, activation="relu")
        logits = keras.layers.Dense(10, dtype="float32")
        model = keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten(), hidden, logits])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss)
    return [*layer_dtypes(model), type(model.optimizer).__name__]


live(in_mixed_float16)

# %% [markdown]
# Each tuple holds compute, variable and output dtype. `compile` also wrapped the optimizer in a `LossScaleOptimizer`, which starts at 32,768 and doubles after 2,000 good steps. `compile` wraps the optimizer only if the *model's* policy is `mixed_float16`. With policies of single layers, wrap it yourself.
#
# ### Softmax, loss and labels in published listings
#
# Keras' crossentropy expects probabilities. With `from_logits=True` it expects logits and applies softmax itself, as PyTorch's does. Published listings for mixed precision contain these mistakes:
#
# | listing | what happens | repair |
# |---|---|---|
# | `from tensorflow.keras.mixed_precision import experimental` | ImportError: the module is gone | `keras.mixed_precision.set_global_policy` |
# | one-hot labels with `SparseCategoricalCrossentropy` | ValueError in `fit` | integer labels, or `CategoricalCrossentropy` |
# | `activation="softmax"` and `from_logits=True` | softmax is applied twice; no error | logits and `from_logits=True` |
# | softmax in FP16 | gradients overflow, the loss scale falls | the same |
#
# The cell trains with logits and with the third mistake, in FP32 and FP16.


# %%
from labkit.labs.other_frameworks.keras_runs import fit_digits


def four_curves():
    curves = {}
    for name in ("float32", "mixed_float16"):
        curves[f"logits, {name}"] = fit_digits(name).losses
        twice = fit_digits(name, head="softmax in float32", from_logits=True)
        curves[f"softmax twice, {name}"] = twice.losses
    return curves


curves = live(four_curves)

# %% tags=["nbval-ignore-output"]
figures.epochs_picture(curves)

# %% [markdown]
# FP32 and FP16 give the same curve, while the second softmax keeps the loss high: a perfect prediction gives it one 1 and nine 0s, which costs ln(e + 9) − 1 = 1.46.
#
# In the next cell softmax is applied once: in the loss (logits), by a layer in float32, or by a layer in FP16, the fourth mistake. Pixels run from 0 to 16. Compare the loss scales after 69 steps.


# %% tags=["nbval-ignore-output"]
def loss_scales():
    found = {}
    for head in ("logits", "softmax in float32", "softmax"):
        run = fit_digits("mixed_float16", head=head, brightest=16)
        found[head] = {"loss scale": run.loss_scale, "skipped": run.steps - run.steps_taken}
    return found


pd.DataFrame(live(loss_scales))

# %% [markdown]
# With softmax in FP16, the gradient of log(p), averaged over 64 images, is S / (64 p) for a loss scale S. It must fit into FP16 even where p is near 1e-7, so S falls below 1. Softmax in float32 avoids that. But Keras clips probabilities to at least 1e-7, so the loss cannot exceed 16.1, and where p is below 1e-7 the gradient is 0. Logits have neither limit: every image counts, so the first gradient is larger, and it overflows once, at 32,768.
#
# ### 16-bit weights and Keras' Adam
#
# The policy `bfloat16`, without `mixed_`, stores the weights in BF16 too. Many small updates are then rounded away (lab 04). Keras' Adam adds a cause, because it computes in the dtype of the weights:
#
# alpha = lr × √(1 − beta_2ᵗ) / (1 − beta_1ᵗ), and each weight moves by alpha × m / (√v + eps). The factor after lr is Adam's **bias correction**.
#
# In BF16 the gap below 1 is 1/256 (0.0039).


# %% predict="bf16-adam"
@predict(guesses.bf16_adam)
def moved():
    def share():
        return fit_digits("bfloat16", epochs=1).moved

    moved = live(share)
    return "none" if moved == 0 else "nearly all" if moved > 0.9 else "about half"


# %% [markdown]
# In BF16, beta_2 = 0.999 rounds to 1, so 1 − beta_2ᵗ and the bias correction are 0, and no weight ever moves. There is no error. PyTorch and optax, JAX's optimizer library, compute the correction outside of BF16 and move nearly all weights. Use `mixed_bfloat16`.

# %% [markdown]
# ### Porting a layer: the same names, other meanings
#
# A ported network can train and still give other numbers, because these things differ:
#
# | | Keras | PyTorch |
# |---|---|---|
# | weight of a dense layer | `kernel`, (inputs, outputs) | `weight`, (outputs, inputs) |
# | batch norm's `momentum` | share of the old mean that is kept; 0.99 | share of the new mean that is added; 0.1 |
# | batch norm's eps, by default | 1e-3 | 1e-5 |
# | variance that is added to the running variance | of N values, divided by N | divided by N − 1 |
# | Adam's eps, by default | 1e-7, added to √v before v's bias correction | 1e-8, added after it |
#
# The last two rows have no exact translation.

# %% [markdown]
# ### Exercise: the same network in PyTorch
#
# *16 minutes, about 15 lines.* Write `twin`, which ports a compiled Keras model and its optimizer to PyTorch.
#
# - **Input:** a `keras.Sequential` of Dense, BatchNormalization, ReLU and Dense, already trained, compiled with Keras' Adam. Sizes and all other numbers differ from model to model.
# - **What to read:** `model.layers`; of a dense layer the variables `kernel` and `bias`; of the batch norm the variables `gamma`, `beta`, `moving_mean` and `moving_variance` and the floats `epsilon` and `momentum`; of `model.optimizer` the variable `learning_rate` and the floats `beta_1`, `beta_2` and `epsilon`. A variable's `value` is a torch tensor.
# - **Output:** `(network, optimizer)`: an `nn.Sequential` of Linear, BatchNorm1d, ReLU, Linear in train mode, and `torch.optim.Adam` over its parameters with Keras' learning rate, betas and eps.
# - **Same numbers**, up to float32 rounding: the outputs in eval mode and in train mode, also for inputs as small as 0.01, and the running mean after a batch in train mode.
# - **Example:** Keras' momentum 0.9 keeps 90 % of the old mean, which is PyTorch's 0.1.
# - **Edge case:** the network has its own copies. Training it leaves the Keras model as it was.


# %% exercise="twin"
def twin(model):
    """The model as (nn.Sequential, torch.optim.Adam), with the same numbers."""
    ### BEGIN SOLUTION
    first, norm, _, last = model.layers
    network = nn.Sequential(
        nn.Linear(*first.kernel.shape),
        nn.BatchNorm1d(first.units, eps=norm.epsilon, momentum=1 - norm.momentum),
        nn.ReLU(),
        nn.Linear(*last.kernel.shape),
    )
    with torch.no_grad():
        for linear, dense in ((network[0], first), (network[3], last)):
            linear.weight.copy_(dense.kernel.value.T)
            linear.bias.copy_(dense.bias.value)
        network[1].weight.copy_(norm.gamma.value)
        network[1].bias.copy_(norm.beta.value)
        network[1].running_mean.copy_(norm.moving_mean.value)
        network[1].running_var.copy_(norm.moving_variance.value)
    adam = model.optimizer
    betas = (adam.beta_1, adam.beta_2)
    lr = float(adam.learning_rate)
    return network, torch.optim.Adam(network.parameters(), lr=lr, betas=betas, eps=adam.epsilon)
    ### END SOLUTION


# %% check="twin" points=3 seconds=30
checks.check_twin(twin)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A batch norm with Keras' momentum 0.99 and running mean 0 sees a batch of mean 1. What is its running mean afterwards, and which `momentum` of PyTorch gives the same?
# </details>
# <details><summary>Hint 2</summary>
#
# Count what must be copied: two tensors of each dense layer, four of the batch norm. Which of them has another shape in PyTorch? `copy_` inside `torch.no_grad()` fills a tensor that exists.
# </details>
# <details><summary>Hint 3</summary>
#
#     first, norm, _, last = model.layers
#     network = nn.Sequential(
#         nn.Linear(*first.kernel.shape),
#         nn.BatchNorm1d(first.units, eps=..., momentum=...),
#         nn.ReLU(),
#         nn.Linear(*last.kernel.shape),
#     )
#     with torch.no_grad():
#         network[0].weight.copy_(...)     # and seven more
#     return network, torch.optim.Adam(network.parameters(), lr=float(...), betas=(...), eps=...)
# </details>

# %% [markdown]
# The cell ports a trained Keras model and compares the outputs of both networks. Then both optimizers get a first gradient of 1e-7, with lr = 1e-3 and eps = 1e-7.

# %%
from labkit.labs.other_frameworks.ports import first_step_of_keras, trained_model

porting = yours(twin, ours.twin)


def compared():
    model = trained_model()
    network, adam = porting(model)
    x = torch.rand(100, 64)
    away = (network.eval()(x) - model(x, training=False)).abs().max().item()
    before = network[0].weight.detach().clone()
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, 1e-7)
    adam.step()
    step = (before - network[0].weight).mean().item()
    return away < 1e-4, step, first_step_of_keras(1e-7)


same, of_torch, of_keras = live(compared)
claim("the outputs differ by less than 1e-4", same)
print(f"first steps: {of_torch:.2g} with torch's Adam, {of_keras:.2g} with Keras'")

# %% [markdown]
# The outputs agree, the optimizers do not: PyTorch's first step is 16 times as long. Keras adds eps before v's bias correction, when √v is only 0.03 times the gradient, so eps weighs 32 times as much. In the first step this matters for gradients up to about 100 times eps.
#
# **Stop here**, or go on to JAX.
#
# ## Sitting B: JAX
#
# *You are here:* **jaxpr** → FP32 weights → scale → table
#
# ### A jaxpr lists each operation with its dtypes
#
# JAX has neither autocast nor policies: a matmul runs in the dtypes of its operands, and you cast them. To see these dtypes, `jax.make_jaxpr(f)(*args)` calls `f` with placeholders and records a **jaxpr**, a list of equations. Nothing is computed. `jax.jit(f)` traces `f` once and compiles it; in a jaxpr it is one equation that holds an inner jaxpr. Look for `dot_general`, JAX's matmul.


# %%
def jaxpr_of_two_layers():
    def network(x, w):
        return jax.jit(lambda h: jnp.tanh(h) @ w)(x @ w)

    x, w = jnp.ones((2, 4), jnp.bfloat16), jnp.ones((4, 4), jnp.bfloat16)
    return jax.make_jaxpr(network)(x, w).pretty_print(use_color=False)


print(live(jaxpr_of_two_layers))

# %% [markdown]
# The second matmul lies in the inner jaxpr. `jax.checkpoint` (recomputation), `jax.lax.scan` (a loop) and `jax.lax.cond` (a branch) hold jaxprs in the same way.
#
# `jax.default_matmul_precision("bfloat16")` is no cast: float32 arrays stay float32, and a TPU or GPU multiplies them more coarsely.
#
# ### Exercise: the dtypes of all matmuls
#
# *12 minutes, about 8 lines.* Write `matmul_dtypes`.
#
# - **Input:** a function and its arguments.
# - **Output:** a list with a tuple `(left, right, result)` for each `dot_general` in the function's jaxpr and in all jaxprs inside it, in any order. Each entry is a dtype or its name, such as `"bfloat16"`.
# - **What to read:** a jaxpr has `eqns`. An equation has `primitive.name`, `params`, `invars` and `outvars`; a variable has `aval.dtype`. `core.jaxprs_in_params(eqn.params)` gives the jaxprs that an equation holds. `jax.make_jaxpr(f)(*args)` returns a closed jaxpr, whose attribute `jaxpr` is the jaxpr.
# - **Example:** the network above gives `("bfloat16", "bfloat16", "bfloat16")` twice.
# - **Edge cases:** a function without a matmul gives `[]`. The body of a `scan` counts once, and each branch of a `cond` counts. A function under `jit` that is called twice counts twice. With `preferred_element_type=jnp.float32` a matmul of BF16 inputs has a float32 result. Left and right may differ.

# %%
from labkit.labs.other_frameworks.frameworks import core


# %% exercise="matmul-dtypes"
def matmul_dtypes(function, *args):
    """The dtypes (left, right, result) of each matmul in the function's program."""
    ### BEGIN SOLUTION
    found = []

    def visit(jaxpr):
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == "dot_general":
                left, right = (str(var.aval.dtype) for var in eqn.invars)
                found.append((left, right, str(eqn.outvars[0].aval.dtype)))
            for inner in core.jaxprs_in_params(eqn.params):
                visit(inner)

    visit(jax.make_jaxpr(function)(*args).jaxpr)
    return found
    ### END SOLUTION


# %% check="matmul-dtypes" points=2 seconds=20
checks.check_matmul_dtypes(matmul_dtypes)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Print `eqn.primitive.name` and `list(eqn.params)` for each equation of the jaxpr above. Where did the second matmul go?
# </details>
# <details><summary>Hint 2</summary>
#
# A jaxpr inside a jaxpr may hold another one. Which kind of function visits all of them?
# </details>
# <details><summary>Hint 3</summary>
#
#     found = []
#
#     def visit(jaxpr):
#         for eqn in jaxpr.eqns:
#             if eqn.primitive.name == "dot_general":
#                 found.append(...)
#             for inner in core.jaxprs_in_params(eqn.params):
#                 ...
# </details>

# %% [markdown]
# Now list the matmuls of a network of four layers, `relu(h @ w + bias)` each.

# %%
listing = yours(matmul_dtypes, ours.matmul_dtypes)


# %% predict="one-bias"
@predict(guesses.one_bias)
def inputs_in_float32():
    def with_one_bias():
        biases = [jnp.zeros(4, d) for d in ("float32", "bfloat16", "bfloat16", "bfloat16")]

        def network(h, w):
            for bias in biases:
                h = jax.nn.relu(h @ w + bias)
            return h

        return listing(network, jnp.ones((2, 4), jnp.bfloat16), jnp.ones((4, 4), jnp.bfloat16))

    return sum(left == "float32" for left, _, _ in live(with_one_bias))


# %% [markdown]
# Three: BF16 + float32 is float32, and so is float32 times BF16. From the first bias on, all inputs are float32, and so are the activations kept for the backward pass. The results are correct, so no loss curve shows it. Test the dtypes of matmuls.

# %% [markdown]
# ### FP32 weights, 16-bit matmuls
#
# As in lab 04, keep the weights in FP32 and cast copies for the matmuls, *inside* the function that you differentiate. The gradient then passes backwards through the cast and arrives in float32. If you cast outside and update the copies, the weights are BF16, and so are Adam's moments in optax.
#
# The cell defines a network and its loss. Below you use:
#
# - `jax.value_and_grad(f)(weights)` returns `f(weights)` and its gradient, a dict like `weights`;
# - `updates, state = optimizer.update(gradients, state, weights)`, then `optax.apply_updates(weights, updates)`;
# - `jax.tree.map` applies a function to each array of a dict.


# %%
def forward(weights, x):
    """Logits, in the dtype that weights and x have."""
    hidden = jnp.tanh(x @ weights["w1"] + weights["b1"])
    return hidden @ weights["w2"] + weights["b2"]


def loss_of(weights, x, y):
    """The mean crossentropy, in float32."""
    logits = forward(weights, x).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


# %% [markdown]
# ### Exercise: a step with FP32 weights
#
# *8 minutes, optional, about 5 lines.* Write `bf16_step`, one training step with BF16 matmuls.
#
# - **Input:** float32 `weights`, a dict of arrays; the optimizer's `state`; `x`, float32, and integer `y`; `loss_of(weights, x, y)`; an `optimizer` of optax.
# - **Output:** `(weights, state, loss)` after one step: weights and state in float32, `loss` a float32 scalar.
# - The check compiles it with `jax.jit`.
# - **All matmuls** in the forward pass have two BF16 operands. The gradients that the optimizer gets are float32.
# - **Example:** with `optax.sgd(1.0)` each weight moves by minus its gradient.


# %% exercise="step"
def bf16_step(weights, state, x, y, loss_of, optimizer):
    """(weights, state, loss) after one step with BF16 matmuls and FP32 weights."""

    ### BEGIN SOLUTION
    def narrow_loss(weights):
        narrow = jax.tree.map(lambda w: w.astype(jnp.bfloat16), weights)
        return loss_of(narrow, x.astype(jnp.bfloat16), y)

    loss, gradients = jax.value_and_grad(narrow_loss)(weights)
    updates, state = optimizer.update(gradients, state, weights)
    return optax.apply_updates(weights, updates), state, loss
    ### END SOLUTION


# %% check="step" points=0 seconds=30
checks.check_step(bf16_step)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# What is the dtype of `jax.grad(lambda w: (w.astype(jnp.bfloat16) * 2).astype(jnp.float32))(1.0)`, and why?
# </details>
# <details><summary>Hint 2</summary>
#
# Three things meet in the first matmul and the addition after it: weights, biases and x. Which of them are BF16 in your step?
# </details>

# %% [markdown]
# ### Loss scaling under jit
#
# FP16 gradients need a loss scale (lab 04), and JAX has no GradScaler. Under `jit` the step gets placeholders without values. A Python `if` on a value, such as "is a gradient inf?", raises a `TracerBoolConversionError`. Compute both outcomes and choose:
#
# `jnp.where(finite, new, old)`
#
# A skipped step must leave the weights *and* the optimizer's state as they were. `optimizer.update` with an inf gradient writes inf into both of Adam's moments. The inf never leaves them, and every later update of that weight is inf / inf = NaN. The scale and the count of good steps go into the step and come out of it, or `jit` would make them constants.

# %% [markdown]
# ### Exercise: a scaled step
#
# *18 minutes, about 14 lines.* Write `scaled_step`, one FP16 training step with a dynamic loss scale. The check compiles it with `jax.jit`.
#
# - **Input:** float32 `weights`, a dict of arrays; `state`, the state of `optimizer`, an optimizer of optax; `x`, float32; integer `y`; `loss_of(weights, x, y)`, a float32 scalar. `scale` is a float32 scalar, and `good`, int32, counts the good steps since the scale last changed.
# - **FP16:** inside the function that you differentiate, cast weights and `x` to float16, and multiply the loss by `scale` in float32. `scale` can exceed 65,504.
# - **The optimizer** gets unscaled float32 gradients.
# - **Skip:** if any gradient is inf or NaN, with a finite loss or not, weights and state stay as they were, bit for bit; the scale is halved, and `good` is 0.
# - **Otherwise** the step counts. The third good step in a row doubles the scale, and `good` starts again at 0.
# - **Output:** `(weights, state, scale, good, loss)`, with the unscaled loss; in a skipped step it may be anything.
# - **Example:** from scale 4 and good 2, a good step gives scale 8 and good 0; a skipped one gives 2 and 0.


# %% exercise="scaled-step"
def scaled_step(weights, state, scale, good, x, y, loss_of, optimizer):
    """(weights, state, scale, good, loss) after one FP16 step, taken or skipped."""

    ### BEGIN SOLUTION
    def scaled_loss(weights):
        half = jax.tree.map(lambda w: w.astype(jnp.float16), weights)
        return loss_of(half, x.astype(jnp.float16), y) * scale

    scaled, gradients = jax.value_and_grad(scaled_loss)(weights)
    gradients = jax.tree.map(lambda g: g / scale, gradients)
    finite = jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]).all()
    updates, new_state = optimizer.update(gradients, state, weights)
    new_weights = optax.apply_updates(weights, updates)
    loss = scaled / scale

    def choose(new, old):
        return jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, old)

    weights, state = choose(new_weights, weights), choose(new_state, state)
    good = jnp.where(finite, good + 1, 0)
    grow = good == 3
    scale = jnp.where(finite, jnp.where(grow, 2 * scale, scale), scale / 2)
    return weights, state, scale, jnp.where(grow, 0, good), loss
    ### END SOLUTION


# %% check="scaled-step" points=3 seconds=40
checks.check_scaled_step(scaled_step)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Under `jit`, which of the two outcomes is computed? In a skipped step, which of the five outputs keep their old value, and which follow another rule?
# </details>
# <details><summary>Hint 2</summary>
#
# `jax.tree.leaves(gradients)` is a list of arrays. `jnp.isfinite(g).all()` is a scalar array; `jnp.array([...]).all()` joins several. `jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, old)` chooses for all arrays of a tree.
# </details>
# <details><summary>Hint 3</summary>
#
#     scaled, gradients = jax.value_and_grad(scaled_loss)(weights)
#     gradients = ...
#     finite = ...
#     updates, new_state = optimizer.update(gradients, state, weights)
#     new_weights = optax.apply_updates(weights, updates)
#     weights, state = ...                  # chosen, both
#     good = jnp.where(finite, good + 1, 0)
#     scale = jnp.where(finite, jnp.where(good == 3, ..., scale), ...)
# </details>

# %% [markdown]
# The cell compiles the step and runs it 14 times from a scale of 2²⁴, with an inf in the input of step 9, counted from 0 (the tenth number printed). The loss is multiplied by 1e-4, so that its FP16 gradients fit at a scale of 2²⁴. GradScaler, with a growth interval of 3, gets the same overflow.

# %%
from labkit.labs.other_frameworks.mlp import batch, mlp
from labkit.labs.other_frameworks.ports import grad_scaler_trace

stepping = yours(scaled_step, ours.scaled_step)


def trace():
    adam = optax.adam(1e-3)
    step = jax.jit(lambda *args: stepping(*args, lambda *of: 1e-4 * loss_of(*of), adam))
    weights = mlp()
    state, scale, good = adam.init(weights), jnp.float32(2.0**24), jnp.int32(0)
    scales = []
    for number in range(14):
        x, y = batch(number)
        x = x * jnp.inf if number == 9 else x
        weights, state, scale, good, _ = step(weights, state, scale, good, x, y)
        scales.append(float(scale))
    return scales


scales = live(trace)
claim("all 14 scales are GradScaler's", scales == grad_scaler_trace({9}, steps=14, start=2.0**24))
print("powers of two:", *(int(np.log2(scale)) for scale in scales))

# %% [markdown]
# The choice between taken and skipped is compiled in: the step itself waits for no value from the device.
#
# ### One table of dtypes
#
# The cell traces one FP16 step in each framework and reads the dtypes from torch's operators, Keras' layers and the jaxpr. TensorFlow's column was recorded.

# %% tags=["nbval-ignore-output"]
from labkit.labs.other_frameworks.dtype_table import jax_column, keras_column, torch_column
from labkit.labs.other_frameworks.frameworks import recorded


def columns():
    return {
        "PyTorch": torch_column(*porting(trained_model())),
        "Keras": keras_column(),
        "JAX": jax_column(stepping, loss_of, listing),
        "Keras on TensorFlow": recorded("tensorflow")["column"],
    }


figures.dtype_picture(live(columns))

# %% [markdown]
# For the hidden layer the dtypes agree. The last Keras layer computes in float32, as in sitting A. The casts stand in different places: autocast casts for each function, Keras for each layer, and in JAX you write each cast. Before you port to another framework, list these dtypes for it.
#
# ### Say it
#
# If a question asks for a spoken answer, say it aloud, sum it up in a line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("14_other_frameworks")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** Keras 3.15.1, `optimizers/adam.py`, `optimizers/loss_scale_optimizer.py`, `trainers/trainer.py`; KerasHub #2629. TensorFlow guide, *Mixed precision*. JAX documentation: *Type promotion semantics*, `jax.default_matmul_precision`. Kingma and Ba, arXiv:1412.6980, end of section 2 (eps).
#
# **Next.** [Lab 15: production](15_production.ipynb).
