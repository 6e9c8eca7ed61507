# %% [markdown]
# # 1. Three crimes: what mixed precision is, and is not
#
# Three training runs are dead, each of another cause; you find it, repair one run, and bury four myths.
#
# *35 minutes · any laptop · needs: Python, and what a training step does*
#
# After this lab you can:
#
# - say which tensors of a training step are 16-bit, which are FP32, and what each costs in bytes;
# - tell a vanished constant, a stalled weight and a lost gradient apart by their evidence.
#
# *You are here:* **the bet** → the race → witnesses → evidence → pardon → ledger → *stop* → myths → outlook

# %%
import torch
from dataclasses import replace
from torch.nn.functional import cross_entropy
from labkit.checks import claim, reveal, three_crimes as court, whose, yours
from labkit.suspects import SUSPECTS, run

# %% [markdown]
# From lab 00, aloud: what is the difference between measured and emulated? How many bytes has an FP16 number? What does
# a check do with a wrong answer?
#
# <details><summary>Answers</summary>
#
# Measured ran on this hardware; emulated computes here what a GPU would. Two. It names the mistake and asks.
# </details>
#
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
# Each has a twin in FP32: same data, same first weights. Which of the five fall behind their twins?

# %% predict="bet"
guess, sure = ..., 2  # a list of five, True for a run that fails


# %%
@reveal(guess, sure, court.bet)
def fails():
    """Some seconds: ten runs."""
    twins = [run(replace(trial, precision="fp32")) for trial in SUSPECTS.values()]
    runs = [run(trial) for trial in SUSPECTS.values()]
    ends = zip(runs, twins, strict=True)
    # A NaN is not below anything; by chance alone FP32 runs end up to CHANCE apart.
    return [not abs(suspect.final_loss - twin.final_loss) < court.CHANCE for suspect, twin in ends]


# %% [markdown]
# "FP16 is the risky one" does not tell the dead from the living. A has no loss scale and is well. B is FP16 throughout
# and is well. D is BF16, the "safe" format, and fails.
#
# ### The race
#
# Three lanes: FP32, everything in 16 bits, and mixed. Press play. Then turn one dial at a time: which dial saves the
# middle lane, and which does nothing?

# %% tags=["nbval-ignore-output"]
from labkit.widgets.run_race import RunRace

RunRace()

# %% [markdown]
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
# *6 minutes, about 7 lines.* Write `witness`. It runs `step()` once and leaves no hook behind. It returns five dtypes:
#
# - `"parameter"` and `"gradient"`: of the layer's weight;
# - `"activation"`: of the layer's output;
# - `"loss"`: of what `step()` returns;
# - `"state"`: of Adam's running mean of the weight.


# %% exercise="witness"
def witness(layer, optimizer, step) -> dict:
    """Role -> dtype of one training step; step() does forward, backward and update, returns loss."""
    # `layer.register_forward_hook(f)` calls f(layer, inputs, output); what it returns has remove().
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
from labkit.data import digits
from labkit.emulation import emulate_gpu
from labkit.models import mlp

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
def our_witness(layer, optimizer, step):
    outputs = []
    handle = layer.register_forward_hook(lambda layer, inputs, output: outputs.append(output.dtype))
    loss, weight = step(), layer.weight
    handle.remove()
    roles = {"parameter": weight, "loss": loss, "gradient": weight.grad}
    roles["state"] = optimizer.state[weight]["exp_avg"]
    return {"activation": outputs[0]} | {role: x.dtype for role, x in roles.items()}


ask = yours(witness, our_witness)
with emulate_gpu():
    seen = ask(model[1], optimizer, step)
print(f"By {whose(ask)} witness, under FP16 autocast:")
for role in ("activation", "parameter", "gradient", "state", "loss"):
    print(f"  {role:10} {seen[role]}")

# %% [markdown]
# One role of five is 16-bit. **Autocast** 自动混合精度 casts the inputs of products and leaves the weights alone. These FP32
# weights are the **master weights** 主权重: the optimizer updates them, and each step makes 16-bit copies.
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
# the first tensor with an inf or a NaN, or None.


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
adam = optimizer.state[weight]
trail = {"loss": loss, "gradient": weight.grad, "mean square": adam["exp_avg_sq"], "weight": weight}


# %%
def our_first(named_tensors):
    return next((name for name, x in named_tensors if not x.isfinite().all()), None)


find = yours(first_nonfinite, our_first)
claim(f"by {whose(find)} search, the first is the weight", find(trail.items()) == "weight")
claim("where the gradient is 0, the weight is NaN", weight[weight.grad == 0].isnan().all())
claim("Adam's mean square is 0 there", (adam["exp_avg_sq"][weight.grad == 0] == 0).all())
claim("and eps, 1e-8, is 0 in FP16", torch.tensor(1e-8).half() == 0)

# %% [markdown]
# Loss and gradients are fine. Adam divides by the root of the mean square, plus eps. Some pixels are always black,
# so their gradients are 0: 0 / (0 + 0). The constant that guards this division vanished in the format. Run B has no
# such constant.
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
# A quarter of zeros is no crime: FP32 has them too, from black pixels and idle units. One more fact: Adam's first
# updates are about as large as its learning rate.
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
# <details><summary>Hints</summary>
#
# A gradient of 0 moves nothing. A gradient that is not 0 may move nothing either: what is added to what?
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
# ### Pardon
#
# Run D first. Somebody proposes a fifth of the learning rate, "to be careful". Does a usual step then move more
# weights, as many, or fewer?

# %% predict="lower-rate"
guess, sure = ..., 2  # "more", "as many" or "fewer"


# %%
@reveal(guess, sure, court.lower_rate)
def moved():
    slow, usual = run(replace(SUSPECTS["D"], lr=1e-5)), run(SUSPECTS["D"])
    change = slow.usual_move - usual.usual_move
    return "as many" if abs(change) < 0.01 else "more" if change > 0 else "fewer"


# %% [markdown]
# ### Exercise: the one-line pardon
#
# *4 minutes, 1 line.* Change one setting of D. The run must keep some 16-bit products and end where its FP32 twin ends.
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


# %%
def end(name, **changes):
    return run(replace(SUSPECTS[name], **changes)).final_loss


def like_fp32(name, **changes):
    return abs(end(name, **changes) - end(name, precision="fp32")) < court.CHANCE


claim(
    "E under autocast with a loss scale of 256: like FP32",
    like_fp32("E", precision="fp16", loss_scale=256.0),
)
claim("C under autocast: like FP32", like_fp32("C", precision="fp16"))
claim("C with eps=1e-4: finite", end("C", eps=1e-4) < 2)
claim("C with eps=1e-4: not like FP32", not like_fp32("C", eps=1e-4))

# %% [markdown]
# A larger eps takes the NaN away. But many mean squares still are 0, so it is another optimizer. **Loss scaling**
# 损失缩放 multiplies the loss before backward and divides the gradients after it: lab 04. Two surprises:

# %%
loud = run(replace(SUSPECTS["A"], precision="fp16", loss_weight=100.0)).records
claim("a scale that starts too high skips first steps", loud[0].skipped and not loud[-1].skipped)
claim("and then the run learns: no crime", loud[-1].loss < 0.7 * loud[0].loss)
torch.manual_seed(0)
model = mlp(64, 256, 10).half()
fused = torch.optim.Adam(model.parameters(), fused=True)
cross_entropy(model(images.half()), labels).backward()
fused.step()
claim(
    "C's first step with Adam(fused=True): no NaN",
    all(p.isfinite().all() for p in model.parameters()),
)

# %% [markdown]
# Skipped first steps calibrate the scale. The fused Adam computes each weight's update in FP32 registers, eps included.
# So a switch of the optimizer decides whether C dies. FP32 weights and moments need none.
#
# ### The byte ledger
#
# Mixed precision "halves the memory", it is said. Count. Adam keeps two numbers for each parameter, like those you
# witnessed. Under autocast the 16-bit copies of the weights are kept for backward.
#
# ### Exercise: the byte ledger
#
# *4 minutes, about 5 lines.* Count the bytes in the middle of a step under FP16 autocast with Adam. Return a dict of
# `"weights"`, `"gradients"`, `"adam"`, `"copies"` and `"activations"`.


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
BYTES = {"weights": 4, "gradients": 4, "adam": 8, "copies": 2}
count = yours(
    ledger, lambda n, a: {role: n * b for role, b in BYTES.items()} | {"activations": 2 * a}
)


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
# *A good place to stop.*
#
# ### Four myths
#
# Which of these hold?
#
# 1. FP16 needs fewer floating-point operations.
# 2. A parameter costs fewer bytes of weights, gradients and Adam than in FP32.
# 3. Autocast looks at the values, or at how busy the GPU is, and chooses dtypes.
# 4. Casting FP16 weights to FP32 at the end restores their precision.

# %% predict="myths"
guess, sure = ..., 2  # a list of four, True where it holds

# %%
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


# %%
@reveal(guess, sure, court.myths)
def hold():
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    return [
        flops(torch.float16) < flops(torch.float32),
        sum(BYTES.values()) < 16,
        len({chosen(size * x) for size in (1e-6, 1.0, 1e6)}) > 1,
        torch.equal(x.half().float(), x),
    ]


# %% [markdown]
# Four myths. The operations are the same; Tensor Cores do more of them in a second, and bytes move faster. Autocast
# looks each operation up in a fixed list. Only the loss scale is dynamic. What a cast lost stays lost, and under
# autocast there is nothing to restore: the weights were FP32 all along.
#
# ### Exercise: sort the methods
#
# *4 minutes, stretch.* Articles list these as "methods of mixed precision". Sort them: `"pure"`, `"autocast"`,
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
# <details><summary>Hints</summary>
#
# Is it for training, or for use after training? Does it mix two formats in a step? Could you name the function?
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
# Answer aloud, or in one line, as in an interview. Then open ours.
#
# <details><summary>What is mixed precision training?</summary>
#
# Several formats in one training step: products in FP16, BF16 or scaled FP8; weights, optimizer state, losses and
# reductions in FP32; with FP16 also loss scaling. `model.half()` alone is not mixed.
# </details>
# <details><summary>Why do it, and what does not get smaller?</summary>
#
# Matrix units do more 16-bit operations a second, and activations and traffic halve, at the accuracy of FP32. The
# number of operations stays, and so do 16 bytes a parameter with Adam.
# </details>
# <details><summary>Name the methods. Static or dynamic?</summary>
#
# Autocast with FP32 weights; a 16-bit model with FP32 masters; pure BF16 with stochastic rounding; FP8 with scales.
# PTQ and QAT are quantization. Static and dynamic are words for the loss scale.
# </details>
# <details><summary>Where does it pay most, and where not?</summary>
#
# Large products on hardware with 16-bit units, much memory in activations. Tiny models, CPUs without such units and
# jobs that wait for data gain nothing. Real-time inference is another question.
# </details>
# <details><summary>What is it worth? Give an example.</summary>
#
# Name chip and baseline. By NVIDIA's data sheets, FP16 Tensor Cores peak at 312 TFLOP/s on an A100: 16 times its FP32
# peak, 2 times TF32. ResNet-50 kept its accuracy: 75.92 % in FP32, 76.04 % mixed. Measure before you promise.
# </details>
# <details><summary>How common is it today, and what comes next?</summary>
#
# It is the default: BF16 for most large models, FP8 where chips have it (DeepSeek-V3). Next: FP4 in scaled blocks with
# stochastic rounding (NVFP4), smaller optimizer state, fewer bits on the network.
# </details>

# %% tags=["nbval-ignore-output"]
from labkit.widgets.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** Micikevicius et al., arXiv:1710.03740 (ResNet-50, table 1). Zamirai et al., arXiv:2010.06192 (BF16
# updates). PyTorch documentation, `torch.amp`. NVIDIA A100 data sheet. DeepSeek-V3, arXiv:2412.19437. NVFP4,
# arXiv:2509.25149.
#
# **Next.** Lab 02 builds the number formats: [Build a number system](02_number_formats.ipynb).
