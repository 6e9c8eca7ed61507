# %% [markdown]
# # 12. Choosing precision: a decision record
#
# You measure what formats cost one model in training, serving and rollouts, choose with this evidence, and leave a record that others can check.
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
from labkit.labs.choosing_precision import checks, predictions as guesses, solutions as ours
from labkit.labs.engine import claim, predict, whose, yours
from labkit.formats import BF16, FP16, quantize

# %% [markdown]
# First, a few questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("12_choosing_precision")

# %% [markdown]
# ### Rules that look at the hardware
#
# You are asked in which formats a model is to be trained and served. A common rule looks at its size alone: FP16 above 1 GB.
# The cell sets this rule beside `recommend`, which reads what the device accelerates (lab 06), for a model of 1.2 GB.

# %%
from labkit.devices import Description, device_of, recommend


def by_size(gigabytes):
    return "fp16" if gigabytes > 1 else "fp32"


fleet = [Description(name="a CPU with AVX2", kind="cpu", features=frozenset({"avx2"}))]
for name, capability in {"GTX 1080": "6.1", "Tesla T4": "7.5", "A100": "8.0"}.items():
    fleet.append(Description(name=name, kind="cuda", capability=capability))
print("device            by size   by hardware")
for description in fleet:
    recipe = recommend(device_of(description))
    scaler = "with a loss scaler" if recipe.scaler else ""
    print(f"{description.name:18}{by_size(1.2):10}{recipe.dtype} {scaler}")

# %% [markdown]
# The size rule asks for FP16 where nothing accelerates 16 bits (GTX 1080, CPU), and where BF16 is accelerated and needs no loss scaler (A100).
# So the hardware leaves one 16-bit format, or none. Whether the *model* tolerates it must be measured. At the end, a **decision record** states each choice and the measurement behind it.
#
# ### KL divergence: what a cast changes in the answers
#
# A loss measures small changes badly: rounding errors have both signs, so a cast can even lower it by chance. Compare all probabilities instead.
# Let p be the FP32 model's probabilities of the next character, and q the cast model's. Their **KL divergence**, averaged over all positions of a text, is
#
# KL(p || q) = Σ p × ln(p / q).
#
# It is 0 if q = p, and positive for every other q. For p = (0.5, 0.5) and q = (0.6, 0.4) it is
# 0.5 × ln(0.5 / 0.6) + 0.5 × ln(0.5 / 0.4) = 0.0204 **nats**; a nat is 1.44 bits. KL is not symmetric: p, the model to be kept, stands first. Near q = p, ln p and ln q nearly cancel, so subtract them in float64.
#
# `analyse` casts one linear layer of the course's GPT at a time: its weights, input and output. The next cell adds up the KLs of the nine linear layers (four in each of two blocks, and the head), on 2,048 characters of the training text.

# %%
from labkit.labs.choosing_precision.sensitivity import analyse, text_pieces
from labkit.training import trained_gpt

gpt, tokens = trained_gpt(), text_pieces(32, part="train")  # 32 pieces of 64 characters


# %% predict="kl-of-eight"
@predict(guesses.kl_of_eight)
def kl_ratio():
    rows = analyse(gpt, [tokens], formats=(FP16, BF16)).rows
    fp16, bf16 = (sum(row.kl for row in rows if row.format == fmt) for fmt in ("fp16", "bf16"))
    return 2 ** round(math.log2(bf16 / fp16))


# %% [markdown]
# BF16 has three bits fewer, so its errors are 8 times as large. At its minimum, q = p, KL has no slope, so it grows with the *square* of a small error: 8² = 64. Still, the KLs of the nine layers in BF16 add up to only 0.0001 nats. In a forward pass with 16 bits, the question is mostly whether values *overflow or underflow*.

# %% [markdown]
# ### One layer in another format
#
# To find a layer that does not tolerate a format, cast one layer at a time. A published analyser calls `layer.half()`, runs the model, and calls `layer.float()`. That
# restores the dtype but not the 13 lost mantissa bits: the analyser damages the model. These tools leave the model as it is:
#
# - `functional_call(model, {"0.weight": w}, (x,))` runs the model with `w` in place of this parameter, for one call.
# - `layer.register_forward_pre_hook(hook)` calls `hook(layer, inputs)` before the layer; `inputs` is a tuple, so the tensor is `inputs[0]`; what it returns replaces the input. `layer.register_forward_hook(hook)` calls `hook(layer, inputs, output)` after it; what it returns replaces the output. Both return a handle with a `remove()`.
# - `quantize(t, fmt)` rounds float32 to a format, as float32; overflow becomes inf (in E4M3, which has no inf, NaN).
#
# Measure in eval mode: dropout would change the probabilities at random.

# %% [markdown]
# ### Exercise: one layer at a time
#
# *14 minutes, about 14 lines.* Write `one_layer`, which keeps one layer of a model in a narrow format and measures the KL.
# Write it yourself: labkit's `analyse` does not count.
#
# - **Input:** `model`; the `name` of a layer, such as `"blocks.0.qkv"`, which takes one float tensor and returns one; a format `fmt`; a batch `x`. `model(x)` is
#   logits (..., classes).
# - **Two runs in eval mode**, also if the model is in train mode: the exact run changes nothing; the narrow run rounds the layer's weight, bias, input and output.
# - **Output:** `(kl, overflow)`, two floats. `kl` is KL(exact || narrow) in nats, the mean over all rows of logits, from log-probabilities in float64. `overflow` is the share of
#   inf and NaN in the layer's rounded output.
# - **Example:** `nn.Sequential(nn.Linear(1, 2))` with weight [[1.1], [0]] and bias 0, name "0", x = [[3.3]], E5M2. Weight and input become 1 and 3.5, so the logits (3.63, 0)
#   become (3.5, 0): kl is 2.2e-4, overflow 0.
# - **Edge cases:** if logits become NaN, so does `kl`. An exception of the model, for instance at an inf, reaches the caller.
# - **Afterwards the model is as it was**, after an exception too: weights bit for bit and their `requires_grad`, each module's `training` flag, no hooks but its own. `x` keeps its values, and torch its gradient mode.
#
# `evaluating`, below, sets eval mode and puts each module's mode back.

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
# Which of the four tensors (weight, bias, input, output) does `functional_call` replace, and which does a hook? A forward pre-hook returns a new input for the layer, and a forward hook returns a new output.
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
# The cell makes the values of the first attention 2¹⁷ (131,072) times larger and divides the weights that read them by 2¹⁷. Powers of two change only exponents, so
# FP32 gives the same bits as before. Compare the two models.

# %% tags=["nbval-ignore-output"]
cast_one = yours(one_layer, ours.one_layer)
planted = trained_gpt()
with torch.no_grad():
    planted.blocks[0].qkv.weight[128:] *= 2.0**17
    planted.blocks[0].qkv.bias[128:] *= 2.0**17
    planted.blocks[0].attention_out.weight /= 2.0**17
claim("in FP32 both models give the same bits", torch.equal(gpt(tokens), planted(tokens)))
print("first attention   FP16 KL   overflow    BF16 KL   overflow")
for label, model in (("as it was", gpt), ("planted", planted)):
    found = [cast_one(model, "blocks.0.qkv", fmt, tokens) for fmt in (FP16, BF16)]
    print(f"{label:15}", *(f"{kl:9.0e}{over:10.1%}" for kl, over in found))

# %% [markdown]
# BF16 has FP32's exponents, so the KL of the planted model is that of the original. In FP16 the weights of this layer fit, but its output overflows, and the KL is NaN. Casting this layer's weights alone would not have shown it.
#
# ### Equal errors of the weights, unequal harm
#
# Below 8 bits one usually rounds weights only, to integer codes with FP16 scales (lab 09), here one scale a row. Which matrices need more bits? At four bits, the rounding error of
# each of the GPT's eleven matrices (those of the nine layers and two embedding tables) is 10 to 14 % of the norm of its weights. The next cell measures the KL of each matrix alone.

# %%
from labkit.labs.choosing_precision.sensitivity import kl_by_bits, sizes

cost = kl_by_bits(gpt, tokens)  # {matrix: {bits: KL}}
size = sizes(gpt)  # {matrix: number of weights}


# %% predict="same-weight-error"
@predict(guesses.same_weight_error)
def spread():
    at_four = [kl[4] for kl in cost.values()]
    ratio = max(at_four) / min(at_four)
    return "about 1" if ratio < 1.7 else "about 3" if ratio < 5 else "more than 10"


# %% [markdown]
# The token embedding costs about 14 times as much as the output matrix of the last attention. An error of the weights is multiplied by the layer's input, and later layers amplify it or average it away. So rank layers by what the *network's output* loses.

# %% tags=["nbval-ignore-output"]
from labkit.labs.choosing_precision.figures import sensitivity_picture

sensitivity_picture(gpt, cost, bits=4)

# %% [markdown]
# ### Bits for each layer
#
# Choose the bits of each matrix so that the memory is small and the sum of the single KLs stays within a **budget**. Six widths (2, 3, 4, 5, 6 or 8 bits) for eleven matrices give 6¹¹ (363 million) choices. A **greedy** search starts with the widest choice for each matrix and repeats one step: of all steps that give one matrix fewer bits and
# still fit the budget, take the one that saves the most bits of memory for each nat. (The scales are not counted: they are the same for every width.) A step may skip widths, for example from 8 to 4.
#
# Greedy has no guarantee, and can even end above the best **uniform** choice, one width for all, so return the smaller of the two. HAWQ-V3 searches exactly, by an integer linear program.

# %% [markdown]
# ### Exercise: bits under a budget
#
# *13 minutes, about 14 lines.* Write `allocate`, which gives each layer a number of bits, without labkit's own `optimum`.
#
# - **Input:** `cost[layer][bits]`, the KL if this layer alone has so many bits; `size[layer]`, its number of weights; `budget`,
#   a KL. All layers have the same numbers of bits to choose from. Fewer bits never cost less, but may cost the same. With the most bits everywhere the sum is within the budget.
# - **Output:** a dict `{layer: bits}`. `total(bits, cost)` is at most `budget`. The caller's `cost` and `size` stay as they are.
# - **How small:** never more memory than the best uniform choice. In the check's cases it is at most 1.6 times
#   the smallest possible memory, and at most 1.03 times on average. The greedy search meets both limits if it takes steps that add no KL first, and goes on with other steps when the best one does not fit.
# - **Example:** cost = {"large": {2: 0.5, 4: 0.02, 8: 0}, "small": {2: 0.3, 4: 0.01, 8: 0}}, sizes 1000 and 10, budget 0.02. Uniform needs 8
#   bits; {"large": 4, "small": 8} takes 4,080 bits instead of 8,080.
#
# `total(bits, cost)` is the sum of the costs, `memory(bits, size)` the bits of memory, and `uniform(cost, budget)` the best uniform choice, or None if no width fits.

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
# In the example, what does each step save, what does it add, and which steps fit into 0.02? Which step has the largest quotient?
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
# *This is a good place to stop.*
#
# ## Sitting B: the whole model, rollouts, and the record
#
# *You are here:* **all matrices together** → rollouts → policy loss → the record. After a restart, run the cells of `memory` and `allocate` above again.

# %%
import math, torch
from labkit.labs.choosing_precision import checks, predictions as guesses, solutions as ours
from labkit.labs.choosing_precision.sensitivity import joint_kl, kl_by_bits, sizes, text_pieces
from labkit.labs.engine import claim, predict, whose, yours
from labkit.training import bits_per_character, trained_gpt

# %% [markdown]
# ### All matrices together
#
# The budget is 0.05 nats (0.07 bits) a character. The last column rounds all matrices at once.

# %%
gpt, tokens = trained_gpt(), text_pieces(32, part="train")
cost, size, budget = kl_by_bits(gpt, tokens), sizes(gpt), 0.05
share_out = yours(allocate, ours.allocate)
by_layer = share_out(cost, size, budget)
print("bits a weight   sum of the single KLs   measured together")
for bits in (dict.fromkeys(cost, 4), dict.fromkeys(cost, 5), by_layer):
    mean_bits = memory(bits, size) / sum(size.values())
    measured = joint_kl(gpt, tokens, bits)
    print(f"{mean_bits:13.2f}{total(bits, cost):24.3f}{measured:20.3f}")

# %% [markdown]
# Your choice takes 4.6 bits a weight where one width for all needs 5. But together it costs more than the sum, and misses the budget: an error in one layer changes what later layers read. The sum is only an estimate, so measure all matrices together, and lower the search's budget until they fit.
#
# The widget starts with the best single width. Change the bits of single matrices until you reach both of its goals.

# %% tags=["nbval-ignore-output"]
from labkit.labs.choosing_precision.widget_sensitivity_map import SensitivityMap

sensitivity_map = SensitivityMap(cost, size, lambda bits: joint_kl(gpt, tokens, bits), budget)
sensitivity_map

# %% [markdown]
# ### Rollouts in another format than training
#
# In reinforcement learning (RL) of a language model, an inference engine samples texts, the **rollouts**, and a trainer makes the tokens of the better texts more probable. Sampling takes most of the time, so the engine has faster kernels and often
# a narrower format. With the same weights, engine and trainer then give a token different probabilities. The trainer computes as if its own **policy**, its probabilities of the next token, had drawn the tokens. In truth the engine's policy drew them: training is **off-policy**.
#
# The measure is the **log ratio** of each token, ln p_trainer − ln p_engine. In the cell an engine that stores the GPT in 16 bits continues 128 texts by 24 characters. A trainer scores them under autocast in the same format. Both emulate a GPU.

# %% tags=["nbval-ignore-output"]
from labkit.labs.choosing_precision.rollouts import mismatch

print("engine and trainer   mean |log ratio|   tokens that differ by more than 10 %")
for fmt in ("fp16", "bf16"):
    found = mismatch(fmt, seed=0)
    print(f"{fmt:21}{found.mean_abs:16.4f}{found.outside:19.1%}")

# %% [markdown]
# Both sides use one format and still differ: the engine also stores norms and the residual stream in 16 bits, autocast keeps them in FP32. BF16 differs 8 times as much as FP16.
#
# The next engine casts weights and inputs of linear layers to E4M3, which has four mantissa bits fewer than BF16; its trainer uses BF16.


# %% predict="fp8-tokens"
@predict(guesses.fp8_tokens)
def differing():
    share = mismatch("e4m3", seed=0).outside
    return "less than 2 %" if share < 0.02 else "10 to 50 %" if share < 0.5 else "more than 90 %"


# %% [markdown]
# About 29 %; the mean |log ratio| is about 0.085. The log ratios of a text add up: over 24 characters their sum has a standard deviation of about 0.7, a factor of 2. RL's texts have thousands of tokens, so the ratio of a whole text is useless.

# %% [markdown]
# The table has five recorded seeds of each engine; E5M2 has one bit fewer than E4M3. With r = p_trainer / p_engine, log r is the log ratio.

# %% tags=["nbval-ignore-output"]
from labkit.labs.choosing_precision.recorded import mismatch_table

mismatch_table()

# %% [markdown]
# Monitor the KL between engine and trainer. The mean of −ln r over the sampled tokens estimates KL(engine || trainer), but it can come out negative, as in FP16 and BF16. The mean of r − 1 − ln r estimates the same KL and has no negative terms.
#
# ### Importance weights
#
# PPO, a common RL method, uses two policies of the trainer: *old*, as it was when the rollouts were drawn, and *new*, as it is now. Each token has an **advantage** A, positive if its text did better than expected. With ratio = p_new / p_old, PPO maximizes
#
# min(ratio × A, clip(ratio, 0.8, 1.2) × A).
#
# The clip ends the reward for moving a probability by more than 20 %. The engine is not in this ratio. Its draws are corrected by an **importance weight**, w = p_old / p_engine: a token that the engine draws twice as often as *old* would counts half. Large weights make the gradient noisy, so w is **truncated** to a cap, which leaves a bias. No gradient flows through w, because no update changes who drew the token. (The weight of a token corrects the draw of this token, not of the text before it: that bias grows with the length of the text.)
#
# This is the *decoupled* form, which TRL and verl offer and the exercise asks for. Other presets put one ratio, p_new / p_engine, into PPO's formula. That is another estimator, in which the mismatch uses up part of the clip range.

# %% [markdown]
# ### Exercise: a policy loss for rollouts of another engine
#
# *10 minutes, about 7 lines.* Write `policy_loss`, PPO's clipped loss with the truncated importance weight, in the decoupled form.
#
# - **Input:** `new`, `old` and `rollout`, the log-probabilities of the drawn tokens under p_new, p_old and p_engine; `advantage`; `mask`, 1 for a token that counts and 0 for
#   padding. All are float32 (N, T). Padding holds ordinary log-probabilities that mean nothing. In each call some token counts.
# - **PPO's part:** ratio = exp(new − old); the smaller of ratio · advantage and ratio clipped to [1 − clip, 1 + clip] · advantage.
# - **The importance weight** exp(old − rollout) of trainer over engine, at most `cap`, multiplies it.
# - **Output:** a scalar tensor: minus the sum over all tokens that count, divided by their number. Its gradient goes to `new` alone: `old` and
#   `rollout` are constants. All inputs keep their values. In the first update after a rollout, a trainer may pass one tensor as `new` and as `old`.
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
# At each position the cell counts all 68 characters, each as often as the engine would draw it, so no luck is involved. It compares the gradient with that of the trainer's own draws.

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
for fmt in ("bf16", "e4m3", "e5m2"):
    trainer, engine = policies(fmt)
    wanted = gradient(trainer, trainer, trainer)
    errors = []
    for score, cap in ((trainer, 2.0), (engine, 2.0), (engine, math.inf)):
        wrong = gradient(engine, trainer, score, cap) - wanted
        errors.append((wrong.norm() / wanted.norm()).item())
    print(f"{fmt:6}", *(f"{error:12.1%}" for error in errors))

# %% [markdown]
# Without a weight, rollouts in E4M3 put the gradient off by about 14 %. The truncated weight leaves between 1 and 2 %, in E5M2 about 6 %. Without a cap the error is 0, because this cell counts every character and has no sampling noise. The cap pays where tokens are drawn.
#
# ### FP16 for reinforcement learning
#
# Qi et al. (2025) train and sample in FP16 instead of BF16 and publish steadier reward curves. You measured the mechanism, a mismatch 8 times smaller, but not rewards. The price is a loss scaler, and overflow above 65,504. Other remedies: an FP32 head, the same quantization on both sides, or shared kernels that make both policies equal bit for bit. With such kernels a published run of vLLM and TorchTitan took 2.4 times as long.
#
# ### Changing the format during a run
#
# *Optional.* Some training services change the format during a run: from FP16 to BF16 to FP32 when the loss stops being finite, and back when the run is stable. They judge windows of, say, 100 steps. A rule that moves to a wider format after every unstable window and back after every stable one never settles: if FP16 never
# works for this model, it moves in each window.
#
# Two rules help. **Hysteresis** asks for several windows in a row before a move: 2 unstable ones to go up, 20 stable ones to go down. But if FP16 never works, even this rule tries it again after every 20 stable windows. The second rule: a move down is a **trial**, and if it fails, the wait doubles: 40 stable windows, then 80.

# %% [markdown]
# ### Exercise: escalate and come back
#
# *12 minutes, optional, about 9 lines.* Write `escalate`, which chooses the level of a run after each window of steps: 0 is FP16, 1 is BF16, 2 is FP32.
# Write it yourself: labkit's `adjust` does not count.
#
# - **Input:** a `state`, the dict that `START` shows; `unstable`, whether the window was; `up`. `bad` and `good` count unstable and stable windows in a row.
# - **Output:** the next state, a new dict with the same keys. The caller's dict stays as it is.
# - **Up:** after `up` unstable windows in a row, one level up.
# - **Down:** after `wait` stable windows in a row, one level down, on trial: `trial` becomes True.
# - **A trial** ends after `wait` stable windows in a row: `trial` becomes False. If the level goes up before that, the trial has failed, and `wait` doubles.
# - **After each move** both counts are 0; after a move up `trial` is False, after a move down it is True, also if a trial ends in the same window. There is no level below 0 or above 2. Without a move the counts go on.
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
# The cell counts the moves in 1,000 windows if FP16 never works and BF16 always does.

# %%
escalating = yours(escalate, ours.escalate)


def moves(rule):
    state, count = START, 0
    for _ in range(1000):
        after = rule(state, unstable=state["level"] == 0)
        count += after["level"] != state["level"]
        state = after
    return count


def at_once(state, unstable):
    return state | {"level": state["level"] + (1 if unstable else -1)}


def without_trials(state, unstable):
    return escalating(state | {"trial": False}, unstable)


for rule in (at_once, without_trials, escalating):
    print(f"{rule.__name__:16}{moves(rule):5}")

# %% [markdown]
# After the first move up, each try takes two moves. So hysteresis alone tries FP16 45 times in vain (91 moves), and with growing waits the rule tries it five times (11 moves). `adjust` in `labkit.labs.choosing_precision.selector` follows this rule in a real run: it reads how many losses of a window were not finite and how many steps in a row were skipped, and logs each move.
#
# ### How many pairs a margin needs
#
# *Optional.* A training format is chosen by paired runs (lab 06): it is *equivalent* to FP32 if the 95 % interval of the mean difference lies within a margin that was set before. The cell uses the first 2, 5 and 10 recorded pairs of lab 08, a small GPT in E4M3 with one scale a tensor. The differences are in bits a character; a negative one means that E4M3 is worse.

# %%
from labkit.labs.fp8_and_fp4.recorded import training_runs
from labkit.measuring import verdict

better = [-gap for gap in training_runs()["e4m3_tensorwise"].gaps]
for pairs in (2, 5, 10):
    print(verdict(better[:pairs], margin=0.02).describe())

# %% [markdown]
# By chance the first two differences are nearly equal, so their interval is too narrow. Five show the real spread, a standard deviation s of 0.015, and decide nothing; ten do. The interval reaches t × s / √n to each side, where t comes from Student's distribution: 0.019 for 5 pairs (t = 2.78) and 0.011 for 10 (t = 2.26). So estimate the number of pairs from the s of earlier runs, and fix it before you look at the differences: adding pairs until the verdict pleases makes the 95 % untrue.
#
# ### Rules with their reasons
#
# `decide`, imported below, chooses the training format and the serving format separately and names each rule. The *evidence* for a format is the verdict of paired runs beside FP32 (lab 06). The cell asks about 7 billion weights on an A100, with 16 GB for them and with 8 GB.

# %%
from labkit.devices import Description, device_of
from labkit.labs.choosing_precision.decision import Requirements, decide

a100 = device_of(Description(name="A100", kind="cuda", capability="8.0"))
for gigabytes in (16, 8):
    need = Requirements(
        parameters=7_000_000_000,
        serving_bytes=gigabytes * 1e9,
        training_evidence={"bf16": "equivalent"},
        serving_evidence={"int8": "inconclusive"},
    )
    decided = decide(need, a100)
    print(f"{gigabytes} GB: train in {decided.training}, serve in {decided.serving}")
    print("  " + "\n  ".join(decided.rules + decided.conflicts))

# %% [markdown]
# Only INT8 and INT4 fit into 8 GB, but INT8's evidence is inconclusive and INT4 has none. The function reports this conflict and chooses no serving format: measure more pairs, or allow more memory.
#
# ### The decision record
#
# A record passes five states, each on its own evidence: *baseline* (FP32, five seeds), *precision* (the rules of the choice), *mixed* (paired runs beside FP32), *tuned* (paired with the model before tuning), and *validated* (on data that no choice was made on). The first cell gives each matrix of the GPT your bits. It lowers the budget to 0.9 of its value, because the sum of the single KLs is too low. `compared` sets the result beside the FP32 model on eight parts of a text, within a margin of 0.1 bits a character. The second cell fills in the record.

# %% tags=["nbval-ignore-output"]
from labkit.labs.choosing_precision.decision import Comparison, Evidence, EvidenceMissing, Record
from labkit.labs.choosing_precision.recorded import gains, training_bits
from labkit.labs.choosing_precision.sensitivity import round_weight
from labkit.training.data import shakespeare_split

small, margin = trained_gpt(), 0.1  # bits a character
with torch.no_grad():
    for name, bits in share_out(cost, size, 0.9 * budget).items():
        weight = small.get_submodule(name).weight
        weight.copy_(round_weight(weight, bits))


def compared(text):
    parts = [text[i : i + 4_600] for i in range(0, 36_800, 4_600)]
    return Comparison(
        differences=tuple(bits_per_character(gpt, p) - bits_per_character(small, p) for p in parts),
        margin=margin,
    )


# %% tags=["nbval-ignore-output"]
in_bf16 = Comparison(differences=gains("bf16"), margin=0.02, control=gains("control"))
train_text, test_text = shakespeare_split()
own = Requirements(
    parameters=sum(size.values()), serving_bytes=1e6, training_evidence={}, serving_evidence={}
)
record = Record(title="Formats of the course's GPT")
try:
    for piece in (
        Evidence(what="FP32 training, 300 steps", results=training_bits()["fp32"]),
        Evidence(what="BF16", reasons=decide(own, a100).rules[:1]),
        Evidence(what="BF16 training", comparison=in_bf16),
        Evidence(what="bits of each matrix, training text", comparison=compared(train_text)),
        Evidence(what="bits of each matrix, test text", comparison=compared(test_text)),
    ):
        record = record.advance(piece)
except EvidenceMissing as missing:
    print("The record stops:", missing)
print(record.describe())

# %% [markdown]
# Set `margin` to 0.05 and run both cells again: the record stops before *tuned*. Then lower the factor 0.9 until *tuned* passes on the training text. Only then read *validated*, once: its text must serve no choice. Keep `record.to_json()` beside the code, with what would reopen the decision: another device, other text, a smaller margin.

# %% [markdown]
# ### Your GPT in the ledger
#
# *Optional.* The ledger is the table that lab 00 began: bytes, quality and time of your GPT in each format. The cell adds the GPT with `allocate`'s bits for each matrix, under 0.9 of the budget. `stored` counts the codes
# of each width and one FP16 scale a row, and keeps biases and norms in FP16.

# %% tags=["nbval-ignore-output"]
from labkit.measuring.ledger import Ledger, stored

ledger, chosen = Ledger(), share_out(cost, size, 0.9 * budget)


def by_layer_bits(name, weight):
    bits = chosen[name]
    return round_weight(weight, bits), weight.numel() * bits / 8 + 2 * len(weight)


by, form = whose(share_out), f"KL budget {0.9 * budget:.3f}"
row = ledger.add("12_choosing_precision", form, *stored(gpt, by_layer_bits), whose=by)
claim("rounding to nearest costs less than 0.1 bits a character", row.bits < 2.1044 + 0.1)
ledger

# %% tags=["nbval-ignore-output"]
ledger.plot()

# %% [markdown]
# With 70 kB this GPT has 2.160 bits a character. INT4 in all matrices has 62 kB and 2.271 bits, and lab 09's parcel has 72 kB and 2.152 bits. GPTQ chooses codes, and `allocate` chooses widths, so the two can be combined.
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
# **Sources.** Qi et al., arXiv:2510.26788 (FP16 for RL). Yao et al., *Your efficient RL framework secretly brings you off-policy RL training*, 2025. Hilton et al., arXiv:2110.00641 (three policies). Schulman et al., arXiv:1707.06347 (PPO); *Approximating KL divergence*, 2020. vLLM and TorchTitan, *Bitwise consistent on-policy reinforcement learning*, 2025. Yao et al., *HAWQ-V3*, arXiv:2011.10680. Nygard, *Documenting architecture decisions*, 2011.
#
# **Next.** [Lab 13: real models](13_real_models.ipynb), if you have not done it after lab 05. Then [lab 15: production](15_production.ipynb).
