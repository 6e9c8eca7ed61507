# %% [markdown]
# # 12. Choosing precision: a decision record
#
# You choose the formats of one model for training, serving and rollouts, measure the evidence for each choice, and leave a record that others can check.
#
# *any laptop · needs: lab 06; lab 09 helps*
#
# After this lab you can:
#
# - measure what a format costs in one layer, give each layer its number of bits, and correct a policy loss for rollouts in another format;
# - say which rule and which measurement each choice of a format rests on, and what would change it.
#
# ## Sitting A: evidence for each layer
#
# *You are here:* **rules of the hardware** → KL → one layer → bits for each layer → *stop*

# %%
import torch
from torch.func import functional_call
from labkit.labs.choosing_precision import checks, figures, predictions as guesses, solutions as ours
from labkit.labs.engine import claim, predict, whose, yours
from labkit.formats import BF16, E4M3, E5M2, FP16, quantize

# %% [markdown]
# First, a few questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("12_choosing_precision")

# %% [markdown]
# ### Rules that look at the hardware
#
# ### KL divergence: what a cast changes in the answers

# %%
from labkit.training import trained_gpt

gpt = trained_gpt()


# %% predict="kl-of-eight"
@predict(guesses.kl_of_eight)
def kl_ratio():
    return 64


# %% [markdown]
# KL grows with the square of the error.

# %% [markdown]
# ### One layer in another format
#
# ### Exercise: one layer at a time
#
# *16 minutes, about 14 lines.* Write `one_layer`, which keeps one layer of a model in a narrow format and measures what this changes in the model's answers.
#
# - **Input:** a `model`; the `name` of one of its layers, such as `"blocks.0.qkv"`; a format `fmt`; a batch `x`. The layer takes one float tensor and
#   returns one. `model(x)` is logits (..., classes).
# - **Two runs in eval mode**, also if the model is in train mode. The exact run changes nothing. The narrow run rounds four tensors with
#   `quantize(tensor, fmt)`: the layer's weight, its bias, its input and its output.
# - **Output:** `(kl, overflow)`, two floats. `kl` is the mean over all rows of logits of KL(exact ‖ narrow) = Σ p_exact · (log p_exact − log p_narrow), in
#   nats. Take the softmax in float64, because kl can be 1e-9. `overflow` is the share of inf and NaN in the layer's rounded output.
# - **Example:** one `nn.Linear(1, 2)` with weight [[1.1], [0]] and bias 0, x = [[3.3]], E5M2. Weight and input become 1 and 3.5, so the logits (3.63, 0)
#   become (3.5, 0): kl is 2.2e-4, overflow 0.
# - **Edge cases:** if logits become NaN, so does `kl`. The model may raise an exception, for instance when it meets inf; it must reach the caller.
# - **Afterwards the model is as it was**, after an exception too: the same weights bit for bit, each module's `training` flag, no hooks.
#
# `evaluating`, below, sets the mode and puts it back. `functional_call(model, {"blocks.0.qkv.weight": w}, (x,))` calls a model with `w` in the place of one parameter.

# %%
from contextlib import contextmanager


@contextmanager
def evaluating(model):
    """Eval mode and no gradients inside; afterwards each module's mode is what it was."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes.items():
            module.training = training


# %% exercise="one-layer"
def one_layer(model, name, fmt, x):
    """Mean KL(exact || narrow) in nats, and the share of the layer's output that overflows."""
    ### BEGIN SOLUTION
    layer, outputs = model.get_submodule(name), []

    def round_output(module, inputs, output):
        outputs.append(quantize(output, fmt))
        return outputs[-1]

    with evaluating(model):
        exact = model(x).double().log_softmax(-1)
        weights = {f"{name}.{key}": quantize(p, fmt) for key, p in layer.named_parameters()}
        hooks = [
            layer.register_forward_pre_hook(lambda module, inputs: quantize(inputs[0], fmt)),
            layer.register_forward_hook(round_output),
        ]
        try:
            narrow = functional_call(model, weights, (x,)).double().log_softmax(-1)
        finally:
            for hook in hooks:
                hook.remove()
    kl = (exact.exp() * (exact - narrow)).sum(-1).mean().item()
    return kl, (~outputs[0].isfinite()).double().mean().item()
    ### END SOLUTION


# %% check="one-layer" points=3
checks.check_one_layer(one_layer)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which of the four tensors does the caller of the layer never see? A forward pre-hook returns a new input for the layer, and a forward hook returns a new output.
# Which of your two runs must find no hook on the model?
# </details>
# <details><summary>Hint 2</summary>
#
# Do it by hand for the example: 1.1 becomes 1, 3.3 becomes 3.5, their product is a value of E5M2. Then p = softmax(3.63, 0) weighs the differences of the logarithms.
# </details>
# <details><summary>Hint 3</summary>
#
#     with evaluating(model):
#         exact = ...                      # before any hook
#         weights = {f"{name}.{key}": ... for key, p in layer.named_parameters()}
#         hooks = [layer.register_forward_pre_hook(...), layer.register_forward_hook(...)]
#         try:
#             narrow = functional_call(model, weights, (x,)).double().log_softmax(-1)
#         finally:
#             ...                          # runs after an exception, too
# </details>

# %% [markdown]
# ### Equal errors of the weights, unequal harm

# %% predict="same-weight-error"
@predict(guesses.same_weight_error)
def spread():
    return "more than 10"


# %% [markdown]
# Explanation.

# %% [markdown]
# ### Bits for each layer
#
# ### Exercise: bits under a budget
#
# *14 minutes, about 14 lines.* Write `allocate`, which gives each layer a number of bits, so that the layers take little memory and their KL stays within a budget.
#
# - **Input:** `cost[layer][bits]`, the KL if this layer alone has so many bits, for each number of bits on the menu; `size[layer]`, its number of weights; `budget`,
#   a KL. All layers have the same menu. Fewer bits never cost less, and two numbers of bits may cost the same. All layers at the most bits are within the budget.
# - **Output:** a dict `{layer: bits}`. The sum of the costs is at most the budget, and may be equal to it.
# - **How small:** never more memory than the best uniform choice, the fewest bits that all layers can share within the budget. No case takes more than 1.6 times
#   the smallest possible memory, and the mean of these ratios is at most 1.03.
# - **A greedy way that does it:** start with the most bits everywhere. Among all steps of one layer to fewer bits that the rest of the budget allows, take the one that
#   saves most memory for each unit of KL added. Repeat until no step is possible. Return this or the uniform choice, whichever is smaller.
# - **Example:** cost = {"large": {2: 0.5, 4: 0.02, 8: 0}, "small": {2: 0.3, 4: 0.01, 8: 0}}, sizes 1000 and 10, budget 0.025. Uniform needs 8
#   bits; {"large": 4, "small": 8} takes 4,080 bits instead of 8,080.
#
# labkit has three functions for it: `total(bits, cost)` is the sum of the costs, `memory(bits, size)` the bits of memory, and `uniform(cost, budget)` the best uniform choice.

# %%
from labkit.labs.choosing_precision.allocation import memory, total, uniform


# %% exercise="allocate"
def allocate(cost, size, budget):
    """Bits for each layer: little memory, with a sum of costs within the budget."""
    ### BEGIN SOLUTION
    bits = {layer: max(menu) for layer, menu in cost.items()}
    while True:
        left = budget - total(bits, cost)
        steps = []
        for layer, now in bits.items():
            for fewer in cost[layer]:
                added = cost[layer][fewer] - cost[layer][now]
                if fewer < now and added <= left:
                    saved = size[layer] * (now - fewer)
                    steps.append((saved / max(added, 1e-300), layer, fewer))
        if not steps:
            break
        _, layer, fewer = max(steps)
        bits[layer] = fewer
    return min(bits, uniform(cost, budget), key=lambda choice: memory(choice, size))
    ### END SOLUTION


# %% check="allocate" points=3
checks.check_allocate(allocate)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# In the example, what does each step save, what does it add, and which steps fit into 0.025? Which step has the largest quotient?
# </details>
# <details><summary>Hint 2</summary>
#
# A step that does not fit ends nothing: a step of another layer may still fit. A step that adds no KL would divide by 0.
# </details>
# <details><summary>Hint 3</summary>
#
#     while True:
#         left = budget - total(bits, cost)
#         steps = [(saved / added, layer, fewer), ...]   # those with added <= left
#         if not steps:
#             break
#         _, layer, fewer = max(steps)
#         bits[layer] = fewer
#     return ...                                         # bits or uniform(cost, budget)
# </details>

# %% [markdown]
# ### The budget on your GPT
#
# ### Together and one at a time
#
# *This is a good place to stop.*
#
# ## Sitting B: engines, changes and the record
#
# *You are here:* **rollouts** → policy loss → changing the format → seeds → the record

# %%
from labkit.labs.choosing_precision import checks, figures, predictions as guesses, solutions as ours
from labkit.labs.engine import claim, predict, whose, yours

# %% [markdown]
# ### Rollouts in another format than training

# %% predict="fp8-tokens"
@predict(guesses.fp8_tokens)
def differing():
    return "between 5 and 50 %"


# %% [markdown]
# Explanation.

# %% [markdown]
# ### Importance weights
#
# ### Exercise: a policy loss for rollouts of another engine
#
# *12 minutes, about 7 lines.* Write `policy_loss`, PPO's clipped loss with a truncated importance weight. It is the decoupled form with three policies: the
# one in training, the trainer's own at the time of the rollout, and the engine's, which drew the tokens.
#
# - **Input:** `new`, `old` and `rollout`, the log-probabilities of the drawn tokens under the three policies; `advantage`; `mask`, 1 for a token that counts and 0 for
#   padding. All are float32 (N, T). Padding holds finite numbers that mean nothing.
# - **PPO's part:** ratio = exp(new − old); the smaller of ratio · advantage and ratio clipped to [1 − clip, 1 + clip] · advantage.
# - **The importance weight** exp(old − rollout) of trainer over engine, at most `cap`, multiplies it.
# - **Output:** a scalar tensor: minus the sum over all tokens that count, divided by their number. Its gradient goes to `new` alone: `old` and
#   `rollout` are constants. In the first update after a rollout, a trainer may pass one tensor as `new` and as `old`.
# - **Example:** one token, new = old = −1, rollout = −1.5, advantage 2: the ratio is 1, the weight e^0.5 = 1.6487, the loss −3.2974. With new = −0.5 the ratio of 1.6487 is
#   clipped to 1.2, and the loss is −3.9569 with gradient 0.


# %% exercise="off-policy"
def policy_loss(new, old, rollout, advantage, mask, clip=0.2, cap=2.0):
    """PPO's clipped loss times the truncated weight of trainer over engine; a scalar."""
    ### BEGIN SOLUTION
    old, rollout = old.detach(), rollout.detach()
    ratio = (new - old).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    surrogate = torch.minimum(ratio * advantage, clipped * advantage)
    weight = (old - rollout).exp().clamp(max=cap)
    return -(weight * surrogate * mask).sum() / mask.sum()
    ### END SOLUTION


# %% check="off-policy" points=3
checks.check_off_policy(policy_loss)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# There are three policies and two quotients of probabilities. Which quotient changes while the trainer makes its updates? Which one corrects who drew the tokens?
# </details>
# <details><summary>Hint 2</summary>
#
# If `new` and `old` are one tensor, exp(new − old) is 1 and its gradient 0, unless `old` is a constant. Which method of a tensor makes it one?
# </details>
# <details><summary>Hint 3</summary>
#
#     ratio = (new - old.detach()).exp()
#     surrogate = torch.minimum(..., ...)
#     weight = (...).exp().clamp(max=cap)
#     return -(weight * surrogate * mask).sum() / ...
# </details>

# %% [markdown]
# ### FP16 for reinforcement learning
#
# ### Changing the format during a run
#
# *Optional.*
#
# ### Exercise: escalate and come back
#
# *12 minutes, optional, about 9 lines.* Write `escalate`, which chooses the level of a run after each window of steps: 0 is FP16, 1 is BF16, 2 is FP32.
#
# - **Input:** a `state`, the dict that `START` shows; `unstable`, whether the window was; `up`. `bad` and `good` count unstable and stable windows in a row.
# - **Output:** the next state, a new dict with the same keys. The caller's dict stays as it is.
# - **Up:** after `up` unstable windows in a row, one level up.
# - **Down:** after `wait` stable windows in a row, one level down, on trial: `trial` becomes True.
# - **A trial fails** if the level goes up again before `wait` windows in a row were stable. Then `wait` doubles.
# - **After each move** both counts are 0; after a move up `trial` is False. There is no level below 0 or above 2.
# - **Example:** with up = 2 and wait = 20, two unstable windows lead from level 0 to 1, and 20 stable ones back to 0, on trial. Two unstable ones then lead to level 1 with wait = 40.

# %%
START = {"level": 0, "bad": 0, "good": 0, "wait": 20, "trial": False}


# %% exercise="escalate"
def escalate(state, unstable, up=2):
    """The state after one more window."""
    ### BEGIN SOLUTION
    bad = state["bad"] + 1 if unstable else 0
    good = 0 if unstable else state["good"] + 1
    level, wait, trial = state["level"], state["wait"], state["trial"]
    if bad >= up and level < 2:
        return START | {"level": level + 1, "wait": 2 * wait if trial else wait}
    if good >= wait and level > 0:
        return START | {"level": level - 1, "wait": wait, "trial": True}
    return state | {"bad": bad, "good": good, "trial": trial and good < wait}
    ### END SOLUTION


# %% check="escalate" points=0
checks.check_escalate(escalate)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Continue the example: at level 1 with wait = 40, when does the level change next, and what are the counts then?
# </details>
# <details><summary>Hint 2</summary>
#
# Count first: one of `bad` and `good` grows by 1, and the other becomes 0. Then ask for a move up, then for a move down, then whether a trial is over.
# </details>

# %% [markdown]
# ### How many seeds a margin needs
#
# ### Rules with their reasons
#
# ### The decision record
#
# ### Say it
#
# If a question asks for a spoken answer, say it aloud, sum it up in a line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("12_choosing_precision")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.**
#
# **Next.** [Lab 16: the interview](16_interview.ipynb).
