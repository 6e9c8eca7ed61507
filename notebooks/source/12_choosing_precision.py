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
import math, torch
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
# A model is to be trained and served, and you are asked in which formats. A common rule answers from the size of the model alone: FP16 above 1 GB.
# The cell asks this rule about a model of 1.2 GB, then `recommend`, which reads what the device accelerates (lab 06).

# %%
from labkit.devices import Description, device_of, recommend


def by_size(gigabytes):
    return "fp16" if gigabytes > 1 else "fp32"


fleet = {
    "GTX 1080": "6.1",
    "Tesla V100": "7.0",
    "Tesla T4": "7.5",
    "A100": "8.0",
    "H100": "9.0",
}
devices = [
    device_of(Description(name=name, kind="cuda", capability=capability))
    for name, capability in fleet.items()
]
devices.append(device_of(Description(name="a CPU with AVX2", kind="cpu", features={"avx2"})))
print("device            by size   by hardware")
for device in devices:
    recipe = recommend(device)
    scaler = " with a loss scaler" if recipe.scaler else ""
    print(f"{device.name:18}{by_size(1.2):10}{recipe.dtype}{scaler}")

# %% [markdown]
# The size rule asks for FP16 where no unit accelerates 16 bits (the GTX 1080 and the CPU), and where BF16 is accelerated and needs no loss scaler (the A100 and the H100).
# The size of a model tells whether it fits into memory. It does not tell what a device accelerates.
#
# The hardware leaves one or two formats to choose from. Whether the *model* tolerates them must be measured, layer by layer where they have few bits.
# At the end of this lab, a **decision record** states each choice, the measurement it rests on, and what would change it. First you need a measure.
#
# ### KL divergence: what a cast changes in the answers
#
# A loss is a poor measure of a small change. Rounding errors have both signs, so a cast model can even have a lower loss by chance. Compare all its probabilities instead.
# Let p be the probabilities of the next character under the FP32 model and q those under the cast model. Their **KL divergence** is
#
# KL(p || q) = Σ p × ln(p / q),
#
# averaged over all positions of a text. It is 0 if q = p, and positive for every other q. For p = (0.5, 0.5) and q = (0.6, 0.4) it is
# 0.5 × ln(0.5 / 0.6) + 0.5 × ln(0.5 / 0.4) = 0.0204. The logarithm is natural, so the unit is the **nat**; a nat is 1.44 bits. If the text is
# drawn from p, KL is the number of nats by which the model's loss rises. KL is not symmetric: p stands first, because the FP32 model is the one to keep.
#
# Near q = p, ln(p / q) is the difference of two nearly equal numbers, so subtract the log-probabilities in float64.
#
# `analyse` casts one linear layer of the course's GPT at a time (its weights, its input and its output) and measures the KL on 2,048 characters. The next cell adds up the KL of the nine layers.

# %%
from labkit.labs.choosing_precision.sensitivity import analyse
from labkit.training import trained_gpt
from labkit.training.data import characters, shakespeare, shakespeare_split

gpt, (text, test) = trained_gpt(), shakespeare_split()
tokens = characters(shakespeare()).encode(text[:2048]).view(32, 64)


# %% predict="kl-of-eight"
@predict(guesses.kl_of_eight)
def kl_ratio():
    rows = analyse(gpt, [tokens], formats=(FP16, BF16)).rows
    fp16, bf16 = (sum(row.kl for row in rows if row.format == fmt) for fmt in ("fp16", "bf16"))
    return 2 ** round(math.log2(bf16 / fp16))


# %% [markdown]
# BF16 has three bits fewer than FP16, so its rounding errors are 8 times as large. KL has its minimum, 0, at q = p. Near a minimum a smooth function has no slope, so it grows with the *square* of the error: 8² = 64. The same
# rule gives 256 from BF16 to E4M3, which has four bits fewer still. In absolute terms all of this is small: the BF16 layers cost about 0.0001 nats together. So for BF16 and FP16 the question is seldom how coarse they are. It is whether values *overflow or underflow*.

# %% [markdown]
# ### One layer in another format
#
# To find the layer that does not tolerate a format, cast one layer at a time and leave the rest in FP32. A published analyser does this by `layer.half()`, a forward pass, and `layer.float()`. The second call
# restores the dtype but not the 13 mantissa bits that FP16 does not have, so the analyser damages the model that it measures. These tools leave the model alone:
#
# - `functional_call(model, {"0.weight": w}, (x,))` runs the model with `w` in place of this parameter, for one call.
# - `layer.register_forward_pre_hook(hook)` calls `hook(layer, inputs)` before the layer runs; a tuple that it returns replaces the inputs. `register_forward_hook` calls `hook(layer, inputs, output)` afterwards; what it returns replaces the output. Both return a handle whose `remove()` takes the hook away.
# - `quantize(t, fmt)` rounds a float32 tensor to a format and returns float32; what overflows becomes inf.
#
# Dropout would change both models at random, so both run in eval mode.

# %% [markdown]
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
# A network can hide large values. The cell multiplies the values of the first attention by 2¹⁸ (262,144) and divides the weights that read them by 2¹⁸. Powers of two change only exponents, so
# the FP32 model computes the same bits as before. Compare the first layer's two rows.

# %%
cast_one = yours(one_layer, ours.one_layer)
planted = trained_gpt()
with torch.no_grad():
    planted.blocks[0].qkv.weight[128:] *= 2.0**18
    planted.blocks[0].qkv.bias[128:] *= 2.0**18
    planted.blocks[0].attention_out.weight /= 2.0**18
claim("in FP32 both models give the same bits", torch.equal(gpt(tokens), planted(tokens)))
print("model     layer                      FP16 KL   overflow    BF16 KL   overflow")
for label, model in (("as it was", gpt), ("planted", planted)):
    for name in ("blocks.0.qkv", "blocks.0.attention_out"):
        found = [cast_one(model, name, fmt, tokens) for fmt in (FP16, BF16)]
        print(f"{label:10}{name:24}", *(f"{kl:9.0e}{over:10.1%}" for kl, over in found))

# %% [markdown]
# BF16 has FP32's exponents, so the planted factor changes nothing. In FP16 the first layer overflows. Then some logits are NaN, and so is the KL.
# The weights of this layer fit into FP16, and only its output does not. That is why input and output are cast too.
#
# ### Equal errors of the weights, unequal harm
#
# Fewer than 8 bits are usually spent on the weights alone, as integer codes with one FP16 scale a row (lab 09). Which matrices should get more bits than others? At four bits
# all eleven matrices of the GPT lose about as much: the norm of the rounding error is 10 to 14 % of the norm of the weights. The next cell rounds one matrix at a time and measures the KL.

# %%
from labkit.labs.choosing_precision.sensitivity import bit_costs, matrix_sizes

cost = bit_costs(gpt, [tokens], bits=(2, 3, 4, 5, 6, 8))  # {matrix: {bits: KL}}
size = matrix_sizes(gpt)  # {matrix: number of weights}


# %% predict="same-weight-error"
@predict(guesses.same_weight_error)
def spread():
    at_four = [kl[4] for kl in cost.values()]
    ratio = max(at_four) / min(at_four)
    return "about 1" if ratio < 1.7 else "about 3" if ratio < 5 else "more than 10"


# %% [markdown]
# The token embedding costs about 14 times as much as the output matrix of the last attention. An error of the weights is multiplied by the layer's input, and the layers behind it amplify the result or average it away. So rank layers by what the *output of the network* loses.

# %% tags=["nbval-ignore-output"]
figures.sensitivity_picture(gpt, cost, bits=4)

# %% [markdown]
# ### Bits for each layer
#
# Now choose the bits of each matrix so that the weights take little memory and the KL stays within a **budget**. As an estimate, add up the KL of the single matrices. With eleven matrices and six widths there are
# 6¹¹ (363 million) choices. A **greedy** search does without trying them all. It starts with the widest choice for every matrix and narrows one matrix at a time: always the step that saves the most bits of memory for each nat that it adds, among
# the steps that still fit into the budget. A step may skip widths, from 8 to 4 for example. When the best step does not fit, another matrix may still have one that does.
#
# Greedy has no guarantee. It can even end above the best **uniform** choice, the same width for all, so compare the two at the end. Exact searches exist: HAWQ-V3 solves an integer linear program.

# %% [markdown]
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
# ### All matrices together
#
# The budget is 0.05 nats, 0.07 bits a character. The last column rounds all matrices at once and measures again.

# %%
from labkit.labs.choosing_precision.sensitivity import kl_of_bits

share_out, budget = yours(allocate, ours.allocate), 0.05
by_layer = share_out(cost, size, budget)
print("bits a weight   sum of the single KLs   measured together")
for bits in (dict.fromkeys(cost, 4), dict.fromkeys(cost, 5), by_layer):
    mean_bits = sum(size[n] * bits[n] for n in bits) / sum(size.values())
    alone = sum(cost[n][bits[n]] for n in bits)
    print(f"{mean_bits:13.2f}{alone:24.3f}{kl_of_bits(gpt, [tokens], bits):20.3f}")

# %% [markdown]
# Four bits for all break the budget and five keep it. Your choice needs about 4.6 bits a weight, 9 % less than five. But measured together it costs more than the sum said, and misses the budget.
# The sum treats the errors as independent, yet the error of one layer changes what the next layers read. Here the sum is 5 to 20 % too low; at three bits for all, it is 30 % too low. Treat it as an estimate: choose with a smaller budget, measure all layers together, and repeat.
#
# The widget shows this search. Choose a layer, change its bits, and compare the memory and the measured KL with the greedy choice. Can you meet the measured budget with fewer bits than five for all?

# %% tags=["nbval-ignore-output"]
from labkit.labs.choosing_precision.widget_sensitivity_map import SensitivityMap

SensitivityMap(cost, size, lambda bits: kl_of_bits(gpt, [tokens], bits), budget)

# %% [markdown]
# *This is a good place to stop.*
#
# ## Sitting B: rollouts, and the record
#
# *You are here:* **rollouts** → policy loss → pairs for a margin → rules → the record

# %%
import math, torch
from labkit.formats import BF16, E4M3, E5M2, FP16
from labkit.labs.choosing_precision import checks, figures, predictions as guesses, solutions as ours
from labkit.labs.engine import claim, predict, whose, yours

# %% [markdown]
# ### Rollouts in another format than training
#
# In reinforcement learning (RL) of a language model, an inference engine samples texts, the **rollouts**. A reward judges them, and a trainer makes the tokens of good texts more probable. Sampling takes most of the time, so the engine has its own fast kernels and often
# a narrower format. Engine and trainer then hold the same weights and still give a token different probabilities. The trainer computes as if the tokens came from its own **policy**, its probabilities of the next token. In truth they came from the
# engine's policy: the training is **off-policy**.
#
# The measure is the **log ratio** of each sampled token, ln p_trainer − ln p_engine. In the cell, an engine stores the course's GPT in 16 bits and continues 128 pieces of text by 24 characters each. A trainer scores these 3,072 characters under autocast, in the same format. Both run on an emulated GPU.

# %%
from labkit.labs.choosing_precision.rollouts import mismatch

print("engine and trainer   mean |log ratio|   tokens that differ by more than 10 %")
for fmt in (FP16, BF16):
    found = mismatch(fmt, seed=0)
    print(f"{fmt.name:21}{found.mean_abs:16.4f}{found.outside:19.1%}")

# %% [markdown]
# Though both sides use one format, they differ: the engine also stores norms, sums of the residual stream and logits in 16 bits, and autocast keeps them in FP32. BF16 differs 8 times as much as FP16, for its three missing bits.
#
# The next engine casts the weights and inputs of all linear layers to E4M3, with one scale a tensor. The trainer uses BF16 autocast. E4M3 has four bits fewer than BF16.


# %% predict="fp8-tokens"
@predict(guesses.fp8_tokens)
def differing():
    share = mismatch(E4M3, seed=0).outside
    return "less than 2 %" if share < 0.02 else "10 to 50 %" if share < 0.5 else "more than 90 %"


# %% [markdown]
# About 29 %: the mean |log ratio| is 0.09. The probability of a whole text is a product over its tokens, so log ratios add up. Over 24 characters their sum has a standard deviation of about 0.75, and e^0.75 is a factor of 2.1. Texts of RL have thousands of tokens.

# %% [markdown]
# The table shows five recorded seeds of each engine.

# %% tags=["nbval-ignore-output"]
from labkit.labs.choosing_precision.recorded import mismatch_table

mismatch_table()

# %% [markdown]
# A team monitors the KL between engine and trainer during the run. With r = p_trainer / p_engine, the mean of −ln r over sampled tokens estimates KL(engine || trainer), but single terms have both signs: in BF16 the estimate is negative for some seeds. The mean of r − 1 − ln r estimates the same KL, and none
# of its terms is negative. Log this mean, and the largest |ln r|.
#
# ### Importance weights
#
# PPO is a common RL method. Each token has an **advantage** A, positive if the text did better than expected. Let *old* be the trainer's policy when the rollouts were drawn, and *new* the one in training. With ratio = p_new / p_old, PPO maximizes
#
# min(ratio × A, clip(ratio, 1 − 0.2, 1 + 0.2) × A).
#
# The clip removes the reward for moving a probability by more than 20 % from where it was. Both probabilities come from the trainer, so rounding differences to the engine are not in this ratio. They are corrected by an **importance weight** for each token,
#
# w = p_old / p_engine.
#
# If the engine draws a token twice as often as the old policy would, each draw counts half. Rare tokens can get very large weights and make the gradient noisy, so w is **truncated**: at most a cap such as 2. This leaves a small bias. And w is a constant, since no later update changes who drew the token: no gradient flows through it.
#
# This is the *decoupled* form, with three policies. verl (`rollout_is`) and TRL (`vllm_importance_sampling_correction`) have it. Other presets use the one ratio p_new / p_engine in PPO's formula. That is a valid estimator too, but there the mismatch uses up part of the clip range before any update. The exercise asks for the decoupled form.

# %% [markdown]
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
# Does the weight repair the gradient? The cell needs no luck of the draw: at each of 2,048 positions it counts every one of the 68 characters as often as the engine would draw it. It compares the gradient of the logits with the one that the trainer's own policy would give.

# %% tags=["nbval-ignore-output"]
from labkit.labs.choosing_precision.rollouts import policies

weighted = yours(policy_loss, ours.policy_loss)


def gradient(drawn_by, trainer, engine, cap=2.0):
    """Of the expected loss over characters of one policy, for the trainer's logits."""
    logits = trainer.clone().requires_grad_()
    reward = torch.randn(68, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    advantage = reward - (trainer.exp() @ reward)[:, None]
    counted = drawn_by.exp() * advantage  # each character as often as it is drawn
    new = logits.log_softmax(-1)
    weighted(new, trainer, engine, counted, torch.ones_like(new), cap=cap).backward()
    return logits.grad


print(f"error of the gradient with {whose(weighted)} loss")
print("engine   no weight   w at most 2   w not truncated")
for fmt in (BF16, E4M3, E5M2):
    trainer, engine = policies(fmt)
    wanted = gradient(trainer, trainer, trainer)
    errors = []
    for score, cap in ((trainer, 2.0), (engine, 2.0), (engine, math.inf)):
        wrong = gradient(engine, trainer, score, cap) - wanted
        errors.append((wrong.norm() / wanted.norm()).item())
    print(f"{fmt.name:6}", *(f"{error:12.1%}" for error in errors))

# %% [markdown]
# Without a weight, E4M3 rollouts turn the gradient by 14 %. The truncated weight leaves 2 %, and the whole weight nothing. But in a real run you draw each token once, and large weights then make the gradient noisy: the cap trades noise for a bias.
#
# ### FP16 for reinforcement learning
#
# Qi et al. (2025) train and sample in FP16 instead of BF16 and publish steadier reward curves. You have measured their mechanism: the mismatch is 8 times smaller. The effect on rewards is *not* measured here. FP16 has its usual price, a loss scaler and overflow above 65,504. There are other remedies. The trainer and the engine can
# compute the head in FP32, or quantize alike. Or they share kernels whose results do not depend on the batch, which makes the policies equal bit for bit; vLLM and TorchTitan showed this in 2025, and it cost speed.
#
# ### Changing the format during a run
#
# *Optional.* Some training services change the format during a run: from FP16 to BF16 to FP32 when the loss stops being finite, and back when the run is stable. They judge windows of, say, 100 steps. A rule that moves up after every unstable window and down after every stable one never settles: if FP16 never
# works for this model, it moves in each window.
#
# Two rules help. **Hysteresis** asks for several windows in a row before a move: 2 unstable ones to go up, 20 stable ones to go down. But if FP16 never works, even this rule tries it again every 20 windows. So a move down is a **trial**, and if it fails, the wait doubles: 40 stable windows, then 80.

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
# ### How many pairs a margin needs
#
# A choice of a training format rests on paired runs (lab 06): the same seeds in both formats, the differences of their losses, and a **margin**, the largest difference that does not matter. Two formats are *equivalent* if the whole 95 % interval of the mean difference lies within the margin. With n pairs
# whose differences have the standard deviation s, the interval reaches t × s / √n to both sides, where t is 4.3 for 3 pairs, 2.8 for 5 and 2.3 for 10.
#
# The cell takes runs of lab 08, a small GPT trained in FP32 and in E4M3 with one scale a tensor. The margin is 0.02 bits a character.

# %%
from labkit.labs.fp8_and_fp4.recorded import training_runs
from labkit.measuring import verdict

better = [-gap for gap in training_runs()["e4m3_tensorwise"].gaps]
for pairs in (2, 5, 10):
    print(verdict(better[:pairs], margin=0.02).describe())

# %% [markdown]
# Two pairs agree by luck, and the verdict is *equivalent*. Five show how much pairs really differ (s is 0.015), so the answer is *inconclusive*. Ten settle it. So choose the number of pairs before you look, from an s that you know: here t × s / √n is 0.019 for 5 pairs, just within the margin, and 0.011 for 10. Adding pairs until
# the verdict pleases you makes its 95 % untrue.
#
# ### Rules with their reasons
#
# `recommend` of this lab takes the requirements and the device and decides three things apart: the training format, the serving format, and whether weights must be quantized. Each answer names the rule that led to it. A format that was not measured is never chosen, and requirements that contradict each other are reported.

# %%

# %% [markdown]
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
# **Sources.** Qi et al., *Defeating the training-inference mismatch via FP16*, arXiv:2510.26788. Yao et al., *Your efficient RL framework secretly brings you off-policy RL training*, 2025. Hilton et al., *Batch size-invariance for policy optimization*, arXiv:2110.00641 (three policies). Schulman et al., *PPO*, arXiv:1707.06347;
# Schulman, *Approximating KL divergence*, 2020. Ionides, *Truncated importance sampling*, 2008. vLLM and TorchTitan, *Bitwise consistent on-policy reinforcement learning*, 2025. Dong et al., *HAWQ*, arXiv:1905.03696; Yao et al., *HAWQ-V3*, arXiv:2011.10680. Nygard, *Documenting architecture decisions*, 2011. Schuirmann, 1987 (equivalence by two one-sided tests).
#
# **Next.** [Lab 16: the interview](16_interview.ipynb).
