# %% [markdown]
# # 1. Three crimes: what mixed precision is, and is not
#
# Three training runs are dead, each of another cause; you find it, repair one run, and judge what articles claim.
#
# *any laptop · needs: Python, and what a training step does*
#
# After this lab you can:
#
# - say which tensors of a training step are 16-bit, which are FP32, and what each costs in bytes;
# - tell a vanished constant, a stalled weight and a lost gradient apart by their evidence.
#
# ## Sitting A: the crimes
#
# *You are here:* **the bet** → the race → witnesses → evidence → *stop* → pardon → ledger → claims → outlook

# %%
import torch
from dataclasses import replace
from torch.nn.functional import cross_entropy
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.three_crimes import checks as court
from labkit.labs.three_crimes import predictions as guesses, solutions as ours
from labkit.labs.three_crimes.suspects import SUSPECTS, run

# %% [markdown]
# A few questions on lab 00, 90 seconds at most: numbers choose, Enter answers, h gives a hint. Every lab from here on
# opens with such a card. It asks about earlier labs only, and what you missed comes first.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("01_three_crimes")

# %% [markdown]
# ### The bet
#
# Two 16-bit formats, each half of FP32. **FP16** 半精度 has a short range: 65504 at most, and 0 from 2**-25 down.
# **BF16** has the range of FP32 and fewer digits. Five small networks train, as on a GPU:
#
# | run | what is 16-bit | optimizer | task |
# |---|---|---|---|
# | A | products in FP16, by `torch.autocast`, no loss scale | Adam, 1e-3 | digits |
# | B | everything in FP16 (`model.half()`) | SGD, 0.1 | digits |
# | C | everything in FP16 | Adam, 1e-3 | digits |
# | D | everything in BF16 | Adam, 5e-5 | digits |
# | E | products in FP16, no loss scale | Adam, 1e-2 | autoencoder, its loss weighted by 1e-3 |
#
# Each has a twin in FP32: same data, same first weights. Run the next cell, which trains all ten and keeps the outcome
# until you have guessed. Numbers tick, Enter goes on, and 1, 2 or 3 says how sure you are. **Show me** gives the answer
# without a guess.


# %% predict="bet"
@predict(guesses.bet)
def fails():
    twins = [run(replace(trial, precision="fp32")) for trial in SUSPECTS.values()]
    runs = [run(trial) for trial in SUSPECTS.values()]
    ends = zip(runs, twins, strict=True)
    # A NaN is not below anything; by chance alone FP32 runs end up to CHANCE apart.
    return [not abs(suspect.final_loss - twin.final_loss) < court.CHANCE for suspect, twin in ends]


# %% [markdown]
# "FP16 is the risky one" does not tell the dead from the living. A has no loss scale and is well. B is FP16 throughout
# and is well. D is BF16, the "safe" format, and fails.

# %% [markdown]
# ### The race
#
# Three lanes: FP32, everything in 16 bits, and mixed. Press play. Then turn one dial at a time, and turn it back: which
# dial saves the middle lane, and which does nothing?
#
# Without the picture: `race.eps = "0.0001"` turns a dial, `race.step = 299` goes to the end, `print(race)` says the rest.

# %% tags=["nbval-ignore-output"]
from labkit.labs.three_crimes.widget_run_race import RunRace

race = RunRace()
race

# %% [markdown]
# From where the race opens, two dials save the middle lane: BF16, and an eps of 1e-4. Learning rate, task and the mixed
# dial do nothing for it. Neither cure holds everywhere. At the middle rate BF16 stalls; on the autoencoder, eps 1e-4
# stands still.
#
# Whatever you turned, one lane kept up: mixed, in BF16 or with a loss scale. **Mixed precision** 混合精度 means more than
# one format in one step: 16 bits where products are made, FP32 where small things add up. The Chinese 精度 says both
# *precision* (how finely numbers are written) and *accuracy* (how often the model is right). Here it is the first.
#
# ### The witness
#
# Who is 16-bit, exactly? A **hook** 钩子 is called when a layer has computed, and sees its output.
#
# ### Exercise: who is what dtype
#
# *12 minutes, about 7 lines.* Write `witness`. It runs `step()` once and leaves no hook behind. It returns a dict of five
# dtypes, such as `torch.float32`. The layer may be of any kind, and the step may run with autocast or without it.
#
# - `"parameter"` and `"gradient"`: of the layer's weight;
# - `"activation"`: of the layer's output;
# - `"loss"`: of what `step()` returns;
# - `"state"`: of Adam's running mean of that gradient.
#
# The layer may have no bias, and another layer of the model may have another dtype.


# %% exercise="witness"
def witness(layer, optimizer, step) -> dict:
    """Role -> dtype of one training step; step() does forward, backward and update, returns loss."""
    # `handle = layer.register_forward_hook(look)` asks the layer to call look(layer, inputs, output)
    # each time it has computed. look must return None: anything else replaces the output.
    # `handle.remove()` ends that.
    # `optimizer.state[layer.weight]["exp_avg"]` is Adam's running mean.
    seen = {}
    ### BEGIN SOLUTION
    handle = layer.register_forward_hook(
        lambda layer, inputs, output: seen.update(activation=output.dtype)
    )
    seen["loss"] = step().dtype
    handle.remove()
    seen["parameter"] = layer.weight.dtype
    seen["gradient"] = layer.weight.grad.dtype
    seen["state"] = optimizer.state[layer.weight]["exp_avg"].dtype
    ### END SOLUTION
    return seen


# %% check="witness" points=2
court.check_witness(witness)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Four of the five can be read after `step()`. Which one is gone by then?
# </details>
# <details><summary>Hint 2</summary>
#
# For a list instead of a dict: `h = layer.register_forward_hook(lambda l, i, o: found.append(...))`, then `step()`,
# then `h....()`.
# </details>

# %%
from labkit.training.data import digits
from labkit.emulation import emulate_gpu
from labkit.training.models import mlp

data = digits()
images, labels = data.train_images[:64].flatten(1), data.train_labels[:64]
torch.manual_seed(0)
model = mlp(64, 256, 10)
optimizer = torch.optim.Adam(model.parameters())


def step():
    with torch.autocast("cpu", dtype=torch.float16):
        loss = cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss


# %%
ask = yours(witness, ours.witness)
with emulate_gpu():
    seen = ask(model[1], optimizer, step)
print(f"By {whose(ask)} witness, under FP16 autocast:")
for role in ("activation", "parameter", "gradient", "state", "loss"):
    print(f"  {role:10} {seen[role]}")

# %% [markdown]
# One role of five is 16-bit. **Autocast** 自动混合精度 casts the inputs of products and leaves the weights alone. The model
# itself is FP32, the optimizer updates it, and each step makes 16-bit copies.
#
# Another method turns this round: the model is 16-bit, and the optimizer keeps a second set of its weights in FP32, the
# **master weights** 主权重. Autocast needs no second set.
#
# `emulate_gpu()` makes a CPU follow the rules of a GPU; there the same code runs without it.
#
# ### First blood
#
# Run C is NaN from step 1 on. NaN spreads, so the loss is only where it was noticed. Who was first?
#
# ### Exercise: the first that is not finite
#
# *4 minutes, about 3 lines.* You get pairs (name, tensor) in the order in which they were computed. Return the name of
# the first tensor with an inf or a NaN, or None. The pairs may come from an iterator, and there may be none. A tensor may
# be empty, hold integers, or hold finite values whose sum overflows. Its dtype may be a 16-bit one, float32 or float64.
# -inf counts as an inf.


# %% exercise="first-nonfinite"
def first_nonfinite(named_tensors):
    """The name of the first tensor that holds an inf or a NaN; None if all are finite."""
    ### BEGIN SOLUTION
    for name, x in named_tensors:
        if not x.isfinite().all():
            return name
    return None
    ### END SOLUTION


# %% check="first-nonfinite" points=2
court.check_first_nonfinite(first_nonfinite)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `torch.isfinite` answers for each element. What must hold for all of them?
# </details>
# <details><summary>Hint 2</summary>
#
# For plain floats: `next((name for name, x in pairs if not math.isfinite(x)), None)`.
# </details>
#
# Now the first step of run C, in slow motion.

# %%
torch.manual_seed(0)
model = mlp(64, 256, 10).half()
weight = model[1].weight
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
with emulate_gpu():
    loss = cross_entropy(model(images.half()), labels)
    loss.backward()
    optimizer.step()
mean, square = (optimizer.state[weight][key] for key in ("exp_avg", "exp_avg_sq"))
trail = {"loss": loss, "gradient": weight.grad, "mean": mean, "square": square, "weight": weight}

# %%
find, vanished = yours(first_nonfinite, ours.first_nonfinite), square == 0
claim(f"by {whose(find)} search, the first is the weight", find(trail.items()) == "weight")
claim("eps, 1e-8, is 0 in FP16", torch.tensor(1e-8).half() == 0)
claim("more than 9 in 10 of Adam's mean squares are 0", vanished.float().mean() > 0.9)
claim("there a mean of 0 makes NaN: 0 / 0", torch.equal(weight.isnan(), vanished & (mean == 0)))
claim("and any other mean makes inf: m / 0", torch.equal(weight.isinf(), vanished & (mean != 0)))
claim("more weights are inf than NaN", weight.isinf().sum() > weight.isnan().sum())

# %% tags=["nbval-ignore-output"]
shares = {"mean square 0": vanished, "NaN": weight.isnan(), "inf": weight.isinf()}
for what, where in shares.items():
    print(f"{what:13} {where.float().mean():4.0%} of the first layer's weights")

# %% [markdown]
# Loss and gradients are fine. Adam divides the gradient's running mean by the root of its mean square, plus eps. In FP16
# two things vanished there. eps is 0. And 0.001 times the square of a gradient is 0 already below a gradient of 0.0055:
# 95 % of them.
#
# Where the gradient itself is 0 (black pixels, idle units), 0 / 0 is NaN: 30 % of these weights. Where it is not 0 and
# only its square underflowed, m / 0 is inf: 65 %. An eps that is not 0 would guard both. Run B divides by nothing.
#
# ### The evidence
#
# Zero gradients are those of step 0. "Moved" is the share of weights that a usual step changes; NaN counts as moved.

# %% tags=["nbval-ignore-output"]
trials = {name: SUSPECTS[name] for name in "ACDE"}
trials["D in FP32"] = replace(SUSPECTS["D"], precision="fp32")
print("run        first loss  last loss  zero gradients  moved")
for name, trial in trials.items():
    suspect = run(trial)
    first, last = suspect.losses[0], suspect.losses[-1]
    print(f"{name:10} {first:10.3f} {last:10.3f}", end="")
    print(f" {suspect.zero_gradients:15.0%} {suspect.usual_move:6.0%}")

# %% [markdown]
# A quarter of zeros is no crime: FP32 has them too, from black pixels and idle units. Two more facts. Adam's first
# updates are about as large as its learning rate. And a **gap** 间隔 is the distance from a number to the next one in its
# format. An update below half a gap is rounded away.
#
# ### Exercise: match the evidence
#
# *3 minutes.* Give each run its cause: `"overflow"`, `"gradients are 0"`, `"eps is 0"`, `"updates below half a gap"` or
# `"healthy"`.

# %% exercise="causes"
causes = {"A": ..., "C": ..., "D": ..., "E": ...}
### BEGIN SOLUTION
causes = {
    "A": "healthy",
    "C": "eps is 0",
    "D": "updates below half a gap",
    "E": "gradients are 0",
}
### END SOLUTION

# %% check="causes" points=1
court.check_causes(causes)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A gradient of 0 moves nothing. A gradient that is not 0 may move nothing either: what is added to what?
# </details>
# <details><summary>Hint 2</summary>
#
# Round to whole numbers: 100 + 0.3 is 100, each time. Which run has gradients, and weights that stay?
# </details>

# %%
largest = 2 * 1e-3 / data.train_images.numel()  # each error of the sigmoid is below 1
claim("no gradient of E's outputs can reach 2**-25", largest < 2**-25)
claim("so in FP16 each is 0", torch.tensor(largest).half() == 0)
w = torch.tensor(0.1).bfloat16()
claim("0.1 + 5e-5 is 0.1 in BF16: a tenth of the gap", w + 5e-5 == w)
claim("but 0.003 + 5e-5 is not 0.003", torch.tensor(0.003).bfloat16() + 5e-5 > w.new_tensor(0.003))

# %% [markdown]
# Three causes, and none is overflow. Range kills C and E, rounding D: lab 03 treats both.
#
# *A good place to stop.* Sitting B starts with its own setup.

# %% [markdown]
# ## Sitting B: pardons, bytes and claims
#
# *You are here:* the bet → the race → witnesses → evidence → *stop* → **pardon** → ledger → claims → outlook

# %%
from dataclasses import replace
import torch
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.three_crimes import checks as court
from labkit.labs.three_crimes import predictions as guesses, solutions as ours
from labkit.labs.three_crimes.suspects import SUSPECTS, run

# %% [markdown]
# ### Pardon
#
# Run D first. Somebody proposes a fifth of the learning rate, "to be careful".


# %% predict="lower-rate"
@predict(guesses.lower_rate)
def moved():
    slow, usual = run(replace(SUSPECTS["D"], lr=1e-5)), run(SUSPECTS["D"])
    change = slow.usual_move - usual.usual_move
    return "as many" if abs(change) < 0.01 else "more" if change > 0 else "fewer"


# %% [markdown]
# A BF16 weight moves only if its update is at least about half the gap at that weight. An update a fifth as large
# reaches that at fewer weights, so a lower learning rate makes the stall worse.

# %% [markdown]
# ### Exercise: the one-line pardon
#
# *4 minutes, 1 line.* Change one setting of D, so that its small updates arrive as they do in its FP32 twin. The run must
# keep some 16-bit products and end where the twin ends. A run that ends there by larger or other updates does not count.
# Settings: `precision` ("pure_bf16" now; also "pure_fp16", "bf16", "fp16", "fp32"), `lr`, `eps`, `loss_weight`.

# %%
print(SUSPECTS["D"])

# %% exercise="pardon"
pardon = ...  # such as {"eps": 1e-6}
### BEGIN SOLUTION
pardon = {"precision": "bf16"}
### END SOLUTION

# %% check="pardon" points=2 seconds=120
court.check_pardon(pardon)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The updates are right, and too small to arrive. Who could remember them?
# </details>
# <details><summary>Hint 2</summary>
#
# In FP32, 0.1 + 5e-5 arrives. Your witness saw a mode whose weights are FP32.
# </details>
#
# C and E have pardons too.


# %% tags=["nbval-ignore-output"]
def end(name, **changes):
    return run(replace(SUSPECTS[name], **changes)).final_loss


def like_fp32(name, **changes):
    return abs(end(name, **changes) - end(name, precision="fp32")) < court.CHANCE


claim(
    "E under autocast with a loss scale of 256: like FP32",
    like_fp32("E", precision="fp16", loss_scale=256.0),
)
claim("C under autocast: like FP32", like_fp32("C", precision="fp16"))
larger, twin = end("C", eps=1e-4), end("C", precision="fp32")
same_eps = end("C", precision="fp32", eps=1e-4)
print(f"C ends at {larger:.2f} with eps 1e-4; FP32 at {twin:.2f}, with eps 1e-4 at {same_eps:.2f}")
claim("C with eps=1e-4: lower, but not FP32's run", larger < min(twin, same_eps) - court.CHANCE)

# %% [markdown]
# A larger eps takes NaN and inf away, and C ends at 0.44 instead of 1.19. That is lower, but not FP32's run: many mean
# squares still are 0, so Adam divides by eps alone. Those weights step by lr / eps, 10 times the mean gradient.
#
# The race says "keeps up: 103 %" of the same change. It lasts 300 steps, not 60, and by then both losses are below 0.2.
#
# **Loss scaling** 损失缩放 multiplies the loss before backward and divides the gradients after it: lab 04. Two surprises:

# %% tags=["nbval-ignore-output"]
loud = run(replace(SUSPECTS["A"], precision="fp16", loss_weight=100.0)).records
claim("a scale that starts too high skips first steps", loud[0].skipped and not loud[-1].skipped)
claim("and then the run learns: no crime", loud[-1].loss < 0.7 * loud[0].loss)
print("C with Adam(fused=True), from three first weights:")
for seed in range(3):
    losses = run(replace(SUSPECTS["C"], optimizer="fused adam", steps=10), seed=seed).losses
    print("  losses", *(f"{loss:.3g}" for loss in losses[:6]))
    claim("  its first step leaves no NaN", losses[1] < losses[0])
    claim("  and the loss is not finite by step 4", not abs(losses[4]) < torch.inf)

# %% [markdown]
# Skipped first steps calibrate the scale. The fused Adam computes each update in FP32 registers, eps included, so C's
# first step is well. But it stores the mean square in FP16, where it is 0 again. In the next step Adam has forgotten how
# large the gradients were. Where the new one is near 0 and the mean is not, it divides by little more than eps. Some
# weights leap by more than 50.
#
# So that switch delays C's death by a few steps. FP32 weights and moments prevent it.
#
# ### The byte ledger
#
# Mixed precision "halves the memory", it is said. Count. Adam keeps two numbers for each parameter, like those you
# witnessed. Under autocast the 16-bit copies of the weights are kept for backward.
#
# ### Exercise: the byte ledger
#
# *8 minutes, about 5 lines.* Count the bytes that each role takes, at its largest, in a step under FP16 autocast with
# Adam. Return a dict of `"weights"`, `"gradients"`, `"adam"`, `"copies"` and `"activations"`. You are given the number of
# parameters and of activation values that are kept for backward; either may be 0. Each of these activations is the
# output of an op that ran in FP16.


# %% exercise="ledger"
def ledger(parameters: int, activations: int) -> dict:
    """Role -> bytes under FP16 autocast with Adam."""
    ### BEGIN SOLUTION
    return {
        "weights": 4 * parameters,
        "gradients": 4 * parameters,
        "adam": 8 * parameters,
        "copies": 2 * parameters,
        "activations": 2 * activations,
    }
    ### END SOLUTION


# %% check="ledger" points=2
court.check_ledger(ledger)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which dtype did the witness give for each role, and how many bytes has it?
# </details>
# <details><summary>Hint 2</summary>
#
# In pure FP16 it would be 2, 2, 4, 0 and 2. Which of these change?
# </details>

# %%
count = yours(ledger, ours.ledger)


def ratio(batch, parameters=10**6, per_image=10**4):
    return sum(count(parameters, batch * per_image).values()) / (
        16 * parameters + 4 * batch * per_image
    )


claim(f"by {whose(count)} ledger, a batch of 1: more bytes than FP32", ratio(1) > 1)
claim("a batch of 10 000: nearly half", 0.5 < ratio(10_000) < 0.55)

# %% [markdown]
# So activations halve, and everything else grows by an eighth. Memory is saved where activations rule: large batches,
# long sequences, large images.
#
# ### Four claims
#
# Articles claim these of 16-bit training. The cell below the next one decides each.

# %%
from labkit.emulation import emulate_gpu
from torch.utils.flop_counter import FlopCounterMode


def flops(dtype):
    layer, x = torch.nn.Linear(64, 128).to(dtype), torch.ones(32, 64, dtype=dtype)
    with FlopCounterMode(display=False) as counter:
        layer(x).sum().backward()
    return counter.get_total_flops()


def chosen(x):
    with emulate_gpu(), torch.autocast("cpu", dtype=torch.float16):
        y = x @ x
        return y.dtype, y.softmax(dim=1).dtype, (y + y).dtype


# %% predict="myths"
@predict(guesses.myths)
def hold():
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    return [
        flops(torch.float16) < flops(torch.float32),
        sum(ours.ledger(1, 0).values()) < 16,
        len({chosen(size * x) for size in (1e-6, 1.0, 1e6)}) > 1,
        torch.equal(x.half().float(), x),
    ]


# %% [markdown]
# All four are myths. The operations are the same; Tensor Cores do more of them in a second, and fewer bytes move.
# Autocast looks each operation up in a fixed list. Only the loss scale is dynamic. What a cast lost stays lost, and
# under autocast there is nothing to restore: the weights were FP32 all along.

# %% [markdown]
# ### Exercise: sort the methods
#
# *10 minutes, optional.* Articles list these as "methods of mixed precision". Sort them: `"pure"`, `"autocast"`,
# `"masters"`, `"fp8"`, `"quantization"`, or `"none"` if no framework does it.
#
# 1. `model.half()`, then train as before.
# 2. FP32 weights; each product takes 16-bit copies, by a list of operations.
# 3. A 16-bit model; the optimizer updates an FP32 copy of its weights.
# 4. Inputs of products in 8 bits, each tensor or block with a scale of its own.
# 5. Convert a trained model to INT8 with a few calibration batches (PTQ).
# 6. Imitate INT8 rounding in training, so that the model survives conversion (QAT).
# 7. Lower the precision while the GPU is busy.
# 8. "Dynamic" mixed precision: each operation's dtype is chosen anew as training goes.

# %% exercise="kinds"
kinds = ...  # a list of eight words
### BEGIN SOLUTION
kinds = ["pure", "autocast", "masters", "fp8", "quantization", "quantization", "none", "none"]
### END SOLUTION

# %% check="kinds" points=0
court.check_kinds(kinds)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Is it for training, or for use after training? Does it mix two formats in a step? Could you name the function?
# </details>
# <details><summary>Hint 2</summary>
#
# Of two that mix FP32 weights with 16 bits, ask for the dtype of the model itself: your witness saw one of them.
# </details>
#
# INT8 is no floating-point format. Autocast has none of it: training in INT8 exists, and needs scales.
#
# ### Outlook
#
# Three cards to discuss, each with a source. Nothing here is built in this course.
#
# <details><summary>On small devices: train where the data is?</summary>
#
# Lin et al. (arXiv:2206.15472) fine-tune on a microcontroller with 256 KB of memory, on an INT8 graph. Gradients come
# in very different sizes, so they rescale them. Which of the three crimes is that?
# </details>
# <details><summary>Federated learning: send fewer bits?</summary>
#
# FedPAQ (arXiv:1909.13014) quantizes the updates that devices send, not the training itself. Your byte ledger has no
# line for the network. What would you add, and what may be rounded there without harm?
# </details>
# <details><summary>Continual learning: small steps on an old model?</summary>
#
# Schiemer et al. (PMLR 274:198-220) report that usual fully quantized training does not converge there, and use a
# Hadamard transform. New tasks often mean small updates to large weights. Which of our runs is that?
# </details>

# %% [markdown]
# ### Say it
#
# Interview questions of this lab. Where one asks for speech, say it aloud, sum it up in a line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("01_three_crimes")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** Micikevicius et al., arXiv:1710.03740 (ResNet-50, table 1). Zamirai et al., arXiv:2010.06192 (BF16
# updates). PyTorch documentation, `torch.amp`. NVIDIA A100 data sheet. DeepSeek-V3, arXiv:2412.19437. NVFP4,
# arXiv:2509.25149.
#
# **Next.** Lab 02 builds the number formats: [Build a number system](02_number_formats.ipynb).
