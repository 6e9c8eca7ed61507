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
# *16 minutes, about 14 lines.* Write `one_layer`, which casts one layer of a model and measures the KL.


# %% exercise="one-layer"
def one_layer(model, name, fmt, x):
    """Mean KL(FP32 || cast) in nats, and the largest share of values that overflow."""
    ### BEGIN SOLUTION
    layer, training, shares = model.get_submodule(name), model.training, []

    def cast(t):
        low = quantize(t.detach(), fmt)
        shares.append((~low.isfinite()).double().mean().item())
        return low

    hooks = []
    try:
        model.eval()
        with torch.no_grad():
            reference = model(x).double().log_softmax(-1)
            hooks = [
                layer.register_forward_pre_hook(lambda _, inputs: (cast(inputs[0]),)),
                layer.register_forward_hook(lambda _, inputs, output: cast(output)),
            ]
            weights = {f"{name}.{key}": cast(p) for key, p in layer.named_parameters()}
            low = functional_call(model, weights, (x,)).double().log_softmax(-1)
    finally:
        for hook in hooks:
            hook.remove()
        model.train(training)
    return (reference.exp() * (reference - low)).sum(-1).mean().item(), max(shares)
    ### END SOLUTION


# %% check="one-layer" points=3
checks.check_one_layer(one_layer)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Where?
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
# *14 minutes, about 10 lines.* Write `allocate`, which gives each layer a number of bits.


# %% exercise="allocate"
def allocate(cost, size, budget):
    """Bits for each layer: small, with a sum of costs of at most the budget."""
    ### BEGIN SOLUTION
    bits = {layer: max(costs) for layer, costs in cost.items()}
    while True:
        left = budget - sum(cost[layer][b] for layer, b in bits.items())
        offers = []
        for layer, now in bits.items():
            for b in cost[layer]:
                more = cost[layer][b] - cost[layer][now]
                if b < now and more <= left:
                    offers.append((size[layer] * (now - b) / max(more, 1e-300), layer, b))
        if not offers:
            break
        _, layer, b = max(offers)
        bits[layer] = b
    for b in sorted(next(iter(cost.values()))):
        same = dict.fromkeys(cost, b)
        if sum(cost[layer][b] for layer in cost) <= budget:
            return min(bits, same, key=lambda found: sum(size[n] * found[n] for n in size))
    return bits
    ### END SOLUTION


# %% check="allocate" points=3
checks.check_allocate(allocate)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Where?
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
# *12 minutes, about 6 lines.* Write `policy_loss`, PPO's clipped loss times the truncated importance weight of trainer over engine (decoupled form, three policies).


# %% exercise="off-policy"
def policy_loss(new, old, rollout, advantage, mask, clip=0.2, cap=2.0):
    """The mean over the tokens of the mask, a scalar with a gradient for `new`."""
    ### BEGIN SOLUTION
    ratio = (new - old).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    surrogate = torch.minimum(ratio * advantage, clipped * advantage)
    weight = (old - rollout).exp().clamp(max=cap).detach()
    return -(weight * surrogate)[mask.bool()].sum() / mask.sum()
    ### END SOLUTION


# %% check="off-policy" points=3
checks.check_off_policy(policy_loss)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Where?
# </details>

# %% [markdown]
# ### FP16 for reinforcement learning
#
# ### Changing the format during a run
#
# *Optional.*

# %%
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class State:
    """Levels: 0 is FP16, 1 is BF16, 2 is FP32; bad and good count windows in a row."""

    level: int = 0
    bad: int = 0
    good: int = 0
    wait: int = 20
    trial: bool = False


# %% [markdown]
# ### Exercise: escalate and come back
#
# *12 minutes, optional, about 8 lines.* Write `escalate`, the next state after one window.


# %% exercise="escalate"
def escalate(state, unstable, up=2):
    """The state after one more window that was unstable or stable."""
    ### BEGIN SOLUTION
    bad = state.bad + 1 if unstable else 0
    good = 0 if unstable else state.good + 1
    if bad >= up and state.level < 2:
        return State(state.level + 1, wait=2 * state.wait if state.trial else state.wait)
    if good >= state.wait and state.level > 0:
        return State(state.level - 1, wait=state.wait, trial=True)
    return replace(state, bad=bad, good=good, trial=state.trial and good < state.wait)
    ### END SOLUTION


# %% check="escalate" points=0
checks.check_escalate(escalate)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Where?
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
