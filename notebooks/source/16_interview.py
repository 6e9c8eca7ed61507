# %% [markdown]
# # 16. Interview: a port, the drills, and the mock
#
# You port a GPT that was written for FP32, find out what you do not know yet, and take a mock interview.
#
# *any laptop, or a GPU · needs: labs 01 to 06, above all the loops of lab 05*
#
# After this lab you can:
#
# - port FP32 code to FP16 without instructions, say what broke and why, and say what changes in BF16 and in FP8;
# - say how ready you are, topic by topic, and how far your confidence can be trusted.
#
# In sitting **A** you port the model against the clock. Sitting **B** is the interview, which you can repeat as often as you like. If your interview
# is only days away, begin with [the plans](#Three-plans).

# %% [markdown]
# ## Sitting A: the port
#
# *You are here:* **the code** → the model → the loop → a real run → BF16 and FP8 → *stop* → plans → ready? → the detective → the mock → three levels

# %%
import inspect, math, torch
from labkit.labs.interview import checks as capstone, predictions as guesses, solutions as ours
from labkit.labs.engine import claim, predict, whose, yours
from labkit.emulation import emulate_gpu
from labkit.labs.interview.handmade import HandmadeGPT

device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# First, a few questions from earlier labs, 90 seconds at most. Questions that you missed come first.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("16_interview")

# %% [markdown]
# ### Capstone: port a GPT
#
# The interviewer says: "Here is our model and its training loop. It trains in FP32. Make it train in FP16 on our V100s. You have 45 minutes, and I will
# not say much." Set a clock. The next cell prints the model, and the one after it holds the loop. Read the model as a reviewer does. Autocast casts only
# what the functions on its lists receive, so note every line of the model that uses no function of either list.

# %%
print(inspect.getsource(HandmadeGPT))


# %%
def train_fp32(model, batches, optimizer, every, limit):
    """Losses and gradient norms, one for each step of `every` micro-batches."""
    losses, norms = [], []
    for first in range(0, len(batches), every):
        group = batches[first : first + every]
        optimizer.zero_grad()
        losses.append(0.0)
        for tokens, next_tokens in group:
            loss = model.loss(model(tokens), next_tokens) / len(group)
            loss.backward()
            losses[-1] += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item())
        optimizer.step()
    return losses, norms


# %% [markdown]
# Before you change anything: the next cell runs one forward pass of the unchanged model under FP16 autocast.


# %% predict="first-break"
@predict(guesses.first_break)
def forward_pass():
    model = HandmadeGPT(vocabulary=11, context=8)
    try:
        with emulate_gpu(), torch.autocast("cpu", dtype=torch.float16):
            logits = model(torch.zeros(1, 5, dtype=torch.int64))
    except RuntimeError:
        return "an error"
    return "nothing" if logits.isfinite().all() else "NaN"


# %% [markdown]
# `masked_fill` raises an error, because FP16 cannot hold -1e9: its largest value is 65504. Other calls change the constant without an error:
# `torch.where(keep, scores, -1e9)` gives -inf.

# %% [markdown]
# ### Exercise: the model
#
# *15 minutes, about 8 lines.* Write `GPT16`, a `HandmadeGPT` that also works under FP16 autocast. Repair what FP16 breaks in `norm`, `attend` and `loss`,
# and nothing else. Not every one of the three needs a repair; one that needs none may call `super()`.
#
# - **In FP32:** logits, loss and gradients stay what they were. So eps stays 1e-8, because it is part of the model. The weights keep their names.
# - **Under FP16 autocast:** the logits are those of `HandmadeGPT` in FP32, up to FP16's rounding. The five Linear layers still run in FP16, and the loss is float32.
# - **Example:** `norm` of the FP16 queries [300, 300] is [1, 1], although 300² = 90,000 is more than FP16 can hold.
# - **Edge cases:** the check tries weights so small that the mean square is near 1e-8 (in FP32), queries near 1000, logits far apart, and a token whose embedding is all zeros. Its logits and all gradients must be finite.


# %% exercise="gpt16"
class GPT16(HandmadeGPT):
    """The same model, fit for FP16 autocast."""

    def norm(self, x):
        ### BEGIN SOLUTION
        # The squares of FP16 queries overflow above 255, and its eps is 0.
        x = x.float()
        return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + 1e-8)
        ### END SOLUTION

    def attend(self, query, key, value):
        ### BEGIN SOLUTION
        scores = self.norm(query) @ self.norm(key).transpose(-2, -1)
        future = torch.ones(scores.shape[-2:], device=scores.device).triu(1).bool()
        return scores.masked_fill(future, -math.inf).softmax(dim=-1) @ value
        ### END SOLUTION

    def loss(self, logits, next_tokens):
        ### BEGIN SOLUTION
        return super().loss(logits, next_tokens)  # log_softmax is on autocast's FP32 list
        ### END SOLUTION


# %% check="gpt16" points=3
capstone.check_gpt16(GPT16)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Under autocast a Linear layer returns FP16. Follow `query` from there. Which operations on it are on neither of autocast's lists?
# </details>
# <details><summary>Hint 2</summary>
#
# Take a query of two values in FP16. If it is [300, 300], what is `x * x`? If it is [0, 0], what is 0 + 1e-8 in FP16, and what is 0 times the `rsqrt` of that?
# And which score gets the weight 0 from a softmax in every format?
# </details>
# <details><summary>Hint 3</summary>
#
# In `norm`, one line comes before the square, `x = ...`; the rest stays. In `attend`, only the constant in `scores.masked_fill(future, ...)` changes.
# `loss` stays, because `log_softmax` is on autocast's FP32 list.
# </details>
#
# ### Exercise: the loop
#
# *20 minutes, about 20 lines.* Write `train_amp`, which is `train_fp32` in FP16. Use torch's `GradScaler` with its defaults, and write the loop without labkit's `train`.
#
# - **Input:** `batches` is a list of (tokens, next_tokens) of equal sizes. `every` micro-batches make a step; the last group may be shorter. `limit` is that of the
#   gradient norm. `state` is None, or what an earlier call returned.
# - **Output:** `(losses, norms, state)`, one loss and one norm for each step. A loss is the mean over its group, without the scale. A norm is that of the true gradients
#   before clipping, and is inf or NaN if the step overflowed.
# - **Example:** ten micro-batches with `every=4` make three steps. The last has two micro-batches, so each of them counts a half.
# - **Dtype:** pass `dtype=`. Without it `torch.autocast` takes BF16 on a CPU, where the check runs, and FP16 on a GPU.
# - **Restart:** runs are stopped and resumed. `state` is any object of your choice with which a second call goes on as if the first had never ended; the check
#   restores the weights and the optimizer itself. For example, the scale doubles after 2000 good steps in a row, so after 1990 good steps, a restart and 10 more it must double, too.


# %% exercise="train-amp"
def train_amp(model, batches, optimizer, device, every, limit, state=None):
    """(losses, norms, state); state is what an earlier call returned, or None."""
    # batches: (tokens, next_tokens) of equal sizes. The loss: model.loss(model(tokens), next_tokens).
    ### BEGIN SOLUTION
    scaler = torch.amp.GradScaler(device)
    if state is not None:
        scaler.load_state_dict(state)
    losses, norms = [], []
    for first in range(0, len(batches), every):
        group = batches[first : first + every]
        optimizer.zero_grad()
        losses.append(0.0)
        for tokens, next_tokens in group:
            with torch.autocast(device, dtype=torch.float16):
                loss = model.loss(model(tokens), next_tokens) / len(group)
            scaler.scale(loss).backward()
            losses[-1] += loss.item()
        scaler.unscale_(optimizer)
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item())
        scaler.step(optimizer)
        scaler.update()
    return losses, norms, scaler.state_dict()
    ### END SOLUTION


# %% check="train-amp" points=4
capstone.check_train_amp(train_amp)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A step of one micro-batch makes these calls, in this order: `zero_grad`, enter autocast, forward pass and loss, leave autocast, `scale`, `backward`, `unscale_`,
# `clip_grad_norm_`, `step`, `update`. Which of them belong to each micro-batch, and which to each step?
# </details>
# <details><summary>Hint 2</summary>
#
# Print `scaler.state_dict()` before and after three good steps. Which entry has changed? Which of the scaler's later decisions depends on it?
# </details>
# <details><summary>Hint 3</summary>
#
# Begin with `scaler = torch.amp.GradScaler(device)` and `if state is not None: ...`. For each micro-batch of a group, compute
# `loss = model.loss(model(tokens), next_tokens) / ...` inside autocast and call `scaler.scale(loss).backward()` outside it. After the group come `unscale_`, the clipping, `scaler.step(optimizer)` and `scaler.update()`.
# </details>
#
# ### A real run
#
# The cell trains your port and the FP32 original for 60 steps on Shakespeare, from the same weights and on the same batches. FP16 is **emulated** on a CPU
# and real on a GPU. The claims compare the last losses.

# %%
from labkit.training.data import character_batches, shakespeare

model, loop = yours(GPT16, ours.GPT16), yours(train_amp, ours.train_amp)
text = shakespeare()[:20_000]
pieces = [(x.to(device), y.to(device)) for x, y in character_batches(text, 32, 8, steps=120)]
torch.manual_seed(0)
start = HandmadeGPT(vocabulary=65, context=32).state_dict()


def trained(kind, loop, *settings):
    """Losses of 60 steps from the same weights on the same batches."""
    network = kind(vocabulary=65, context=32).to(device)
    network.load_state_dict(start)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    with emulate_gpu():
        return loop(network, pieces, optimizer, *settings, every=2, limit=1.0)[0]


wide, narrow = trained(HandmadeGPT, train_fp32), trained(model, loop, device)
claim("in FP32 the loss falls by a quarter in 60 steps", wide[-1] < 0.75 * wide[0])
same = abs(narrow[-1] / wide[-1] - 1) < 0.05
claim(f"{whose(loop)} loop with {whose(model)} model ends within 5 %", same)

# %% [markdown]
# Does this run prove that the port is right? The next cell undoes one repair, that of the norm, and trains again. Then it compares single forward passes
# with `query_key_value` 1000 times as large. Many queries then exceed 255, so their squares overflow FP16.


# %%
class MaskOnly(model):
    norm = HandmadeGPT.norm  # as it was


lazy = trained(MaskOnly, loop, device)
claim("without the norm's repair the run ends as well", abs(lazy[-1] / wide[-1] - 1) < 0.05)


def logits(kind, dtype=torch.float16, large=1000):
    network = kind(vocabulary=65, context=32).to(device)
    network.load_state_dict(
        start | {"query_key_value.weight": large * start["query_key_value.weight"]}
    )
    with emulate_gpu(), torch.autocast(device, dtype=dtype, enabled=dtype is not None):
        return network(pieces[0][0]).float()


exact = logits(HandmadeGPT, None)
off = {kind: (logits(kind) - exact).norm() / exact.norm() for kind in (model, MaskOnly)}
claim("at large queries it is over 20 times as far off", off[MaskOnly] > 20 * off[model])

# %% [markdown]
# The run without the repair ends as well as the other, because no query came near 255 in it. With large queries its logits have an error of about 100 %. So 60 steps that end
# well did not test the repaired line, and they did not test a skipped step either: no gradient overflowed. In an interview, say what your run did **not** test.
#
# One more case is not tested here: a row of scores that is masked as a whole. In every format its softmax is NaN if the mask is -inf. Mask with
# `torch.finfo(scores.dtype).min` there, and set the output of such rows to zero.

# %% [markdown]
# ### The same port in BF16
#
# The interviewer goes on: "And on our A100s, in BF16?" BF16 has the 8 exponent bits of FP32, so it has nearly the same largest value, 3.4e38. The constant -1e9 fits, the squares stay finite, and
# small gradients survive as they do in FP32. So the scaler goes, and with it `unscale_`, the skipped steps and the saved state. Accumulation and clipping stay.
#
# The cell trains in BF16 with `train_fp32`, unchanged. The class opens autocast around the forward pass and returns float32 logits, so that the loss is computed in FP32. The cell then measures two costs of BF16's 7 mantissa bits, where FP16 has 10: the error of one
# forward pass, and the share of BF16 weights that an update of a given size changes.


# %%
class GPTBF16(model):
    def forward(self, tokens):
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
            return super().forward(tokens).float()


in_bf16 = trained(GPTBF16, train_fp32)
claim("BF16 without a scaler ends within 5 %", abs(in_bf16[-1] / wide[-1] - 1) < 0.05)
exact = logits(HandmadeGPT, None, large=1)
off = {d: (logits(model, d, large=1) - exact).norm() for d in (torch.float16, torch.bfloat16)}
ratio = off[torch.bfloat16] / off[torch.float16]
claim("BF16's logits are 4 to 16 times as far off as FP16's", 4 < ratio < 16)

weight = start["query_key_value.weight"].bfloat16()
for update in (3e-3, 3e-4, 3e-5):
    changed = (weight - update != weight).double().mean()
    print(f"an update of {update:.0e} changes {changed:.0%} of the BF16 weights")

# %% [markdown]
# Three mantissa bits fewer make the rounding errors of the logits about 8 times as large. The training bears this, because the weights, the optimizer and the sums inside a matmul are FP32.
# It would not bear weights that are stored in BF16: an update that is smaller than half the gap between two BF16 numbers is rounded away, and the smaller the learning rate, the more weights stand still. If you call `model.to(torch.bfloat16)`,
# keep FP32 master weights or round stochastically (lab 04).
#
# ### FP8 in the linear layers
#
# "And on H100s, in FP8?" Now only the linear layers change. Their three matmuls, one forward and two backward, read FP8 operands; everything else stays in BF16 or FP32. E4M3's largest value is 448, and magnitudes up to
# 2⁻¹⁰ (0.00098) become 0, so each operand needs a scale. Here each row has its own scale, which brings the row's largest magnitude to 448. The output layer, `head`, stays in BF16, as is usual.
#
# The cells use labkit's FP8 layers (lab 08), and keep attention, norms and loss in FP32. The last row of the table is the same run without scales. The third column is the size of what the matmuls read of the weights: a
# cast copy, with its scales. **Emulated**: the casts are those of FP8, the sums those of FP32.

# %% tags=["nbval-ignore-output"]
from labkit.formats import E4M3, scaled
from labkit.training.low_bit import RECIPES, LowBitRecipe, Operand, convert

hidden = ("query_key_value", "attention_out", "feed_forward")


def fp8_model(scaling):
    def build(**sizes):
        network = convert(HandmadeGPT(**sizes), LowBitRecipe(Operand(E4M3, scaling)), skip=["head"])
        return convert(network, RECIPES["bf16"], skip=hidden)  # the head

    return build


in_fp8, unscaled = (trained(fp8_model(scaling), train_fp32) for scaling in ("rowwise", None))
ends = [losses[-1] / wide[-1] for losses in (wide, narrow, in_bf16, in_fp8)]
claim("FP32, FP16, BF16 and FP8 with scales end within 2 %", max(ends) / min(ends) < 1.02)
claim("without scales it ends more than 3 % higher", unscaled[-1] > 1.03 * wide[-1])

# %% [markdown]
# What do the weights of the hidden layers learn without scales? One backward pass through the untrained model shows it.

# %%
network = fp8_model(None)(vocabulary=65, context=32).to(device)
network.load_state_dict(start)
matrices = {n: w for n, w in network.named_parameters() if n.startswith(hidden) and w.dim() == 2}
with emulate_gpu():
    network.loss(network(pieces[0][0]), pieces[0][1]).backward()
none = not any(w.grad.any() for w in matrices.values())
claim("without scales all gradients of the four weight matrices are 0", none)

# %% tags=["nbval-ignore-output"]
rowwise = {"granularity": "rowwise", "overflow": "saturate"}
codes = [scaled(w, E4M3, **rowwise) for w in matrices.values()]
values, head = sum(w.numel() for w in matrices.values()), network.head.weight.numel()
sixteen, fp8 = 2 * (values + head), sum(c.codes.nbytes + c.scales.nbytes for c in codes) + 2 * head
claim("FP8 codes and scales take 61 % of the 16-bit bytes", round(100 * fp8 / sixteen) == 61)
rows = {
    "FP32": (wide, 2 * sixteen),
    "FP16, with a scaler": (narrow, sixteen),
    "BF16": (in_bf16, sixteen),
    "FP8, a scale for each row": (in_fp8, fp8),
    "FP8, no scales": (unscaled, values + 2 * head),
}
print(f"{'matmuls in':28}{'loss of step 60':>16}{'bytes of weights':>18}")
for name, (losses, size) in rows.items():
    print(f"{name:28}{losses[-1]:16.3f}{size:18,}")

# %% [markdown]
# The first four rows end within 2 % of each other, so this run cannot rank them. Without scales the loss is several percent higher, and nothing reports an error. It falls all the same,
# because the embeddings and the head learn; the four weight matrices got gradients of 0 only. A falling loss therefore does not show that FP8 works: look at the share of zeros in each layer's weight gradient (lab 08).
#
# The FP8 copy takes 61 % of the bytes of the 16-bit copy. It is not half, because the head stays in BF16 and each row has a scale of 4 bytes. Rows have 32 or 128 values here; of a row of 4096 values, a scale takes 0.1 %. The state of the training shrinks in no row of the table: the
# FP32 weights, their gradients and Adam's two moments take 16 bytes a parameter. What FP8 buys is the speed of matmuls, and only a GPU with FP8 units can show it (lab 06).
#
# **A stopping point.** Sitting B begins with its own setup cell.

# %% [markdown]
# ## Sitting B: the interview
#
# *You are here:* the code → the model → the loop → a real run → BF16 and FP8 → *stop* → **plans** → ready? → the detective → the mock → three levels
#
# All cards here work by keyboard: the line below each card names its keys. The cards come in English or in Chinese:
# `set_language("zh")` from `labkit.interview.log` switches, and stays set. In a terminal you get the same cards with
# `python -m labkit drill` and `python -m labkit mock`.

# %%
from labkit.interview import preparing
from labkit.interview.widget_drill_card import diagnostic, drill, mock_interview

# %% [markdown]
# ### Three plans
#
# **Friday.** Your interview is days away. Set its date once: remove the `#` in the cell below and write your day. Then run the cell, and do the first line of the
# plan: copy it into a cell and run it. Run the plan again until no line is left. It holds a diagnostic, the **core** (the questions of the bank that are marked as asked most) in sittings of a quarter of an hour, and two mocks, spread over
# the days. The topics in which you missed most come first. On the day itself the plan is half an hour of the core. The minutes count your answers only; reading the explanations takes extra time.

# %% tags=["nbval-ignore-output"]
# from labkit.interview.log import set_interview_date; set_interview_date("2027-01-15")
preparing.friday_plan()

# %% tags=["nbval-ignore-output"]
diagnostic()  # or what the plan names

# %% [markdown]
# **Weeks.** Your interview is weeks away. With its date set, the plan above names a drill for each day and a mock for each week. **Spaced repetition** asks a question again shortly before
# you would forget it. Questions that you would have forgotten by the day of the interview come first. The figure shows how many reviews come on which day.

# %% tags=["nbval-ignore-output"]
preparing.weeks_plan()

# %% tags=["nbval-ignore-output"]
drill(count=8)

# %% [markdown]
# **Topic.** You study one topic, from its first definition to the follow-up questions. The table lists the names that `drill` takes.

# %% tags=["nbval-ignore-output"]
preparing.topics()

# %% tags=["nbval-ignore-output"]
drill(topics=("fp8", "quantization"), count=6)

# %% [markdown]
# ### Are you ready?
#
# An interviewer asks questions that you have not seen. So the first figure estimates, topic by topic, which share of **new** questions you would answer right: in a screen, and in a
# deep dive. It rests on your first answer to each question. Later answers show that you remember a card, and speech that you tick yourself shows nothing to others, so neither counts.
# You get a verdict on a round once you have answered eight new questions of its levels. The fewer your answers, the wider the intervals.
#
# The second figure compares how sure you were with how often you were right. What you call "certain" should be right nearly always, because one answer that is certain and wrong
# makes an interviewer doubt the others.

# %% tags=["nbval-ignore-output"]
preparing.ready()

# %% tags=["nbval-ignore-output"]
preparing.confidence()

# %% [markdown]
# ### The NaN detective
#
# An interviewer says: "A 16-bit run does not train. What do you look at first?" A good answer weighs what a measurement
# tells against what it costs. Here a small run really fails, and eight instruments really measure it. Each query has a
# price in GPU-minutes: reading the log costs 1, and training an FP32 twin costs 20. You have 40, and half of the
# cases take three queries or more. Start with cheap queries that rule out many suspects, then accuse one. The verdict
# names the cheapest proof, its price beside yours, and the repair. Another number than 7 opens another case, and
# `language="zh"` shows the case in Chinese.

# %% tags=["nbval-ignore-output"]
from labkit.labs.detective.widget_nan_detective import NanDetective

NanDetective(7, lab="16_interview")

# %% [markdown]
# The second tier is a job on 32 GPUs: one rank's NaN that the all-reduce spreads, a loss spike, a faulty host, a bad
# shard, an FP8 scale that is too old. A program draws its telemetry; nothing of it was recorded. You have 60 GPU-minutes
# and nine instruments. Loss by shard and the amax history are cheap. A replay on other hosts is dear, and it alone
# separates a faulty device from faulty data.

# %% tags=["nbval-ignore-output"]
NanDetective(0, lab="16_interview", tier="scale")

# %% [markdown]
# ### The mock
#
# The mock asks for twenty minutes, by the times that the bank gives its questions, and tells no verdict before the end. After a right answer the next question goes deeper, and after a wrong one it goes a step back.
# Expect a colleague's claim, which is as often true as false, the same problem under a changed constraint, a function to write, and an
# interruption. If you do not know, say "I do not know"; the interview goes on. Where you are asked to speak, speak aloud, then sum up your answer in one line; afterwards you
# tick what you said. If you close the notebook, the mock goes on later where it was. A mock of 30 minutes or more also has a long problem, whose parts depend on each other.

# %% tags=["nbval-ignore-output"]
mock_interview(minutes=20)

# %% [markdown]
# The report says how you answer new questions, with the same estimate as above, and what to do next. It shows the path of the questions, your
# calibration, up to three labs to go back to, your mocks so far, and every question with your answer and its explanation. Questions that you missed are due again within ten minutes.
#
# With a seed the same interview comes again: `mock_interview(minutes=20, seed=7)`. An instructor can set the same interview for everybody in this way; in a
# terminal the command is `python -m labkit mock --seed 7`. Which questions come still depends on the answers.

# %% [markdown]
# ### Ten questions at three levels
#
# *Optional.* An interview on mixed precision is likely to contain several of these ten questions. Say your own answer before you unfold one. A junior engineer knows the rule. A senior engineer knows its reason,
# its numbers and its limit. A staff engineer says how to decide, what to measure, and what can still go wrong.
#
# <details><summary>Why does FP16 training need loss scaling, and BF16 training not?</summary>
#
# - **Junior.** FP16's smallest positive number is 2⁻²⁴, about 6e-8, and many gradients are smaller, so they become 0. Loss scaling multiplies the loss before `backward` and divides the gradients before the step. BF16 has the exponent range of FP32, so it needs no scale.
# - **Senior.** Magnitudes up to 2⁻²⁵ round to 0. Backward is linear, so a loss that is multiplied by S multiplies every gradient by S. PyTorch's scaler starts at 65536, halves and skips the step when a gradient overflows, and doubles after 2,000 good steps in a row. Its state belongs in the checkpoint, with the count of good steps.
# - **Staff.** A scale moves FP16's range and does not widen it. In our lab's simulated run no fixed scale kept 90 % of 120,000 steps, because the gradients moved. A scale that only falls points to a NaN that no scale repairs, so I set an alarm on it. If the hardware has BF16, I drop the scaler and accept three mantissa bits fewer.
# </details>
# <details><summary>Where does gradient clipping go in a loop with a GradScaler?</summary>
#
# - **Junior.** After `scaler.unscale_(optimizer)` and before `scaler.step(optimizer)`. Before `unscale_` the gradients are still multiplied by the scale.
# - **Senior.** Without `unscale_`, a limit of 1 at a scale of 65536 is really a limit of 1/65536, so almost every step is clipped. SGD then hardly moves; Adam hides the mistake for longer, because it divides by the size of the gradients. With accumulation I unscale once per step. If the step overflowed, clipping cannot repair it: inf times 0 is NaN, and `scaler.step` skips the step.
# - **Staff.** I log the norm that `clip_grad_norm_` returns, which is the norm before clipping, and the shares of clipped and of skipped steps. A share of clipped steps that stays near 100 % can mean a wrong order of the calls or a limit from another batch size. With sharded parameters the norm must be that of all shards, and all ranks must skip together, or the replicas diverge.
# </details>
# <details><summary>What are master weights, and when do you need them?</summary>
#
# - **Junior.** An FP32 copy of the weights, which the optimizer updates. The matmuls read a 16-bit copy. Without it small updates are lost.
# - **Senior.** A BF16 weight moves only if the update is more than half the gap to the next number, which is 0.2 to 0.4 % of the weight. With BF16 weights alone the network of lab 04 had an accuracy of 8 %, where guessing gives 10 %; master weights restored FP32's result. Under autocast the parameters are FP32 already, so they are the master weights.
# - **Staff.** Master weights cost 4 bytes a parameter. Kahan compensation costs 2, and stochastic rounding costs none but adds noise. With sharding over N ranks the masters take 4/N bytes on each, and then I seldom take the risk of leaving them out. Where I do, I watch the share of weights that a step changes.
# </details>
# <details><summary>What does autocast do, and what does it not protect?</summary>
#
# - **Junior.** Inside the block, matmuls and convolutions run in 16 bits, and softmax, layer norm and losses in FP32. The weights stay FP32. `backward` runs outside the block.
# - **Senior.** It decides by the function's name and never by the values. A function on no list runs in the dtypes that it receives. A handwritten RMS norm squares FP16 values, which overflow above 255.9, and then returns 0 without an error. So I look for handwritten norms, `exp`, sums and mask constants.
# - **Staff.** A loss curve does not prove the port. In this lab a run without one repair ended within 5 % of the right one, while at large queries its logits had an error of 100 %. I test a port on recorded or enlarged activations against FP32, and log the largest magnitude of the tensors that are at risk.
# </details>
# <details><summary>FP16 or BF16?</summary>
#
# - **Junior.** BF16 if the GPU has it: it has FP32's range, so there is no scaler. FP16 has 10 mantissa bits instead of 7, but ends at 65504.
# - **Senior.** BF16 pays for its range with precision: in this lab its logits were 8 times as far from FP32's as those of FP16. Training bears that, because sums and weights are FP32. V100 and T4 have Tensor Cores for FP16 and none for BF16, so there I use FP16 with a scaler.
# - **Staff.** I ask which of the two fails. Where range is the problem, as with large attention scores, I take BF16. Where two programs must agree on log-probabilities, as a trainer and a rollout engine in RL, FP16's three bits more are a published remedy (arXiv:2510.26788). I compare both at equal steps, over several seeds, before I change a fleet.
# </details>
# <details><summary>How does FP8 training work?</summary>
#
# - **Junior.** The operands of the linear layers' matmuls are cast to FP8, each with a scale. In the hybrid recipe activations and weights are E4M3, which ends at 448, and gradients are E5M2. Norms, softmax and the optimizer stay in higher precision.
# - **Senior.** A linear layer has three matmuls with six operands. A scale belongs to a tensor, a row or a block; rows and blocks run along the summed axis, so the transposed copy of a weight, for the backward pass, has other scales. Without scales nothing becomes NaN: the loss of this lab's GPT fell, but ended 7 % too high.
# - **Staff.** The peak doubles from BF16 to FP8, but weights, gradients and Adam's state keep their 16 bytes a parameter, and a cast that is not fused costs a pass over memory. I start from a BF16 baseline with its spread over seeds, leave out the head, name the allowed loss gap beforehand, watch the share of zeros in the weight gradients, and keep a way back for each layer. On Hopper I ask how the kernel adds: its FP8 units keep about 14 bits, which is why DeepSeek-V3 promotes sums every 128 products.
# </details>
# <details><summary>The loss is NaN. What do you do?</summary>
#
# - **Junior.** I look for the first step with a NaN, and check the batch, the learning rate and the scale. Then I go back to the last good checkpoint.
# - **Senior.** I run the same batch from the last good checkpoint in FP32. If it is still NaN, precision is not the cause, and I look at data, learning rate and code. If not, forward hooks show the first module with an inf or a NaN. One skipped step under a GradScaler is normal; a loss that is NaN itself is not.
# - **Staff.** On many GPUs the all-reduce carries one rank's NaN to all, so I need flags from each rank before the reduction. I read what changed in the hours before: the largest attention score, the gradient norm, the scale. I repeat the step on another node, to exclude a faulty GPU. A repair counts when the run passes the step, holds the quality gate, and has an alarm that would have rung earlier.
# </details>
# <details><summary>How much memory does mixed precision save?</summary>
#
# - **Junior.** Activations that are stored for backward take half. The weights under autocast stay FP32, and so do the gradients and Adam's state.
# - **Senior.** FP32 weights, gradients and two moments take 4 + 4 + 8 = 16 bytes a parameter, 112 GB for 7 billion parameters, with and without autocast. BF16 weights and gradients with FP32 masters take 2 + 2 + 4 + 8, which is 16 again. So the saving is in activations, and depends on batch and context.
# - **Staff.** To shrink the state I shard it, which gives 16/N bytes on each of N ranks, or I store the moments in 8 bits with a scale for each block. Plain BF16 is wrong for v with beta2 = 0.999: a step lowers v by at most 0.1 %, less than half a gap of BF16, so v can never fall. I check the plan by the measured peak, because activations, buffers and fragmentation come on top.
# </details>
# <details><summary>BF16 made the training hardly faster. Why?</summary>
#
# - **Junior.** Perhaps the GPU waits for data or for Python, or the matmuls are small. I profile a few steps and look at what takes the time.
# - **Senior.** If matmuls are 70 % of a step, even infinitely fast ones give 3.3 times the speed. An H100 is compute-bound only above 989 / 3.35 = 295 FLOP per byte, so norms and activation functions are memory-bound. In lab 06 a small matmul takes 0.27 µs to compute, 0.47 µs to move and 5 µs to launch: it is overhead-bound, and larger batches, `torch.compile` or CUDA graphs help. And the FP32 baseline may already use TF32.
# - **Staff.** First I doubt the measurement: warm-up, synchronization, and an A/A control. If two identical runs differ by 20 %, nobody can claim 10 %. Then I compare with a ceiling: Llama 3 405B reached 38 to 43 % of peak on up to 16,384 H100s. I decide by the cost of reaching the same quality, and not by the step time alone.
# </details>
# <details><summary>At temperature 0 the same prompt gives different texts under load. Why?</summary>
#
# - **Junior.** Floating-point addition depends on the order. Another order gives another rounding error, and where two tokens are nearly tied the other one wins.
# - **Senior.** For a given batch each kernel is deterministic. But the batch depends on the load, and for another batch size a kernel splits its sums in another way. So the result of one row depends on the other requests. The cure is batch-invariant kernels for norms, matmuls and attention.
# - **Staff.** Such kernels cost throughput, so I ask who needs them: evaluation, debugging, and RL, where rollout log-probabilities enter the importance ratio. An error of 2⁻⁸ per token over 4,096 tokens changes the ratio of a sequence by a factor of about 1.3 if the signs are random, and of e¹⁶ if they agree. Truncated importance weights limit the damage; the same kernels in trainer and engine remove it.
# </details>

# %% [markdown]
# ### Say it
#
# Answer three questions aloud that close many interviews. What did you build, and what broke? How do you know that the precision was the cause? What would you do
# with one more week? Your port above gives you an answer to each.

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** Open-spaced-repetition, FSRS (the scheduler of the drills). Micikevicius et al., arXiv:1710.03740 (mixed precision). Micikevicius et al., arXiv:2209.05433 (FP8). Henry et
# al., arXiv:2010.04245 (QK-norm). Zhang and Sennrich, arXiv:1910.07467 (RMS norm). DeepSeek-V3, arXiv:2412.19437 (FP8 with promoted sums). Qi et al., arXiv:2510.26788 (FP16 in RL). Thinking Machines, *Defeating Nondeterminism in LLM Inference*, 2025. Llama 3, arXiv:2407.21783 (MFU). PyTorch 2.13, `torch.amp`. Each question of the bank
# names its own sources.
#
# **Next.** [Lab 17: ship it under a budget](17_ship_it.ipynb), or [back to the start](00_start_here.ipynb), where the panel shows what is left.
