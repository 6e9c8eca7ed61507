# %% [markdown]
# # 16. Interview: a port, the drills, and the mock
#
# You port a GPT that somebody wrote for FP32, find what you do not know yet, and sit a mock interview.
#
# *any laptop, or a GPU · needs: labs 01 to 06, above all the loops of lab 05*
#
# After this lab you can:
#
# - port float32 code to FP16 without instructions, and say what broke and why;
# - say how ready you are, topic by topic, and how far your confidence can be trusted.
#
# Two sittings: **A** is the port, against the clock. **B** is the interview, as often as you like. An interview on
# Friday? Begin with [the plans](#Three-plans).

# %% [markdown]
# ## Sitting A: the port
#
# *You are here:* **the code** → the model → the loop → a real run → *stop* → plans → ready? → the detective → the mock

# %%
import inspect, math, torch
from labkit.labs.interview import checks as capstone, predictions as guesses, solutions as ours
from labkit.labs.engine import claim, predict, whose, yours
from labkit.emulation import emulate_gpu
from labkit.training.models import HandmadeGPT

device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# A few questions from earlier labs, 90 seconds at most. What you missed comes first.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("16_interview")

# %% [markdown]
# ### Capstone: port a GPT
#
# "Here is our model and its loop. It trains in FP32. Make it train in FP16 on our V100s. You have 45 minutes; I will
# not say much." Set a clock, and read the model as a reviewer does: which lines does no list of autocast protect?

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
# Put the model, as it is, under FP16 autocast and run one forward pass.


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
# `masked_fill` refuses -1e9, which FP16 cannot hold. Another call would have been silent:
# `torch.where(keep, scores, -1e9)` gives -inf.

# %% [markdown]
# ### Exercise: the model
#
# *15 minutes, about 8 lines.* Repair what FP16 breaks, and nothing else: eps is part of the model. The weights keep their
# names, FP32 gives what it gave, and the five Linear layers still run in 16 bits. The check tries tiny weights, queries
# near 1000, logits far apart, and a token of zeros. Not every method needs a repair.


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
# Under autocast a Linear gives FP16. Follow `query` from there: which operations on it are on neither list?
# </details>
# <details><summary>Hint 2</summary>
#
# From which value on does `x * x` overflow in FP16? What is 1e-8 in FP16? Which number masks a score in any format?
# </details>
#
# ### Exercise: the loop
#
# *20 minutes, about 20 lines.* Port `train_fp32` to FP16, with the defaults of torch's scaler and without labkit's `train`. Log true losses, and true
# norms before clipping: not finite where a step overflowed. The last group may be short. Name the dtype: on a CPU, where
# the check runs, `torch.autocast` takes BF16 if you do not. Runs are stopped and go on: return a state, any object you
# like, with which a second call goes on as if the first had never ended. The scale, for one, doubles after 2000 good steps
# in a row, also where the run was stopped in between.


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
# Ten calls, in an order: empty, open, forward and loss, close, scale, backward, unscale, clip, step, update. Which of them
# belong to a micro-batch, and which to a step?
# </details>
# <details><summary>Hint 2</summary>
#
# Weights and moments are saved by others. What else does the first run know, and how much of it?
# </details>
#
# ### A real run
#
# Both parts on Shakespeare, beside the FP32 originals: same weights, same batches. **Emulated** here, real on a GPU.

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
# Does that prove the port? Take one repair back, the norm's, and run again. Then do one forward pass with queries as
# large as trained models have them.


# %%
class MaskOnly(model):
    norm = HandmadeGPT.norm  # as it was


lazy = trained(MaskOnly, loop, device)
claim("without the norm's repair the run ends as well", abs(lazy[-1] / wide[-1] - 1) < 0.05)


def logits(kind, dtype=torch.float16):
    network = kind(vocabulary=65, context=32).to(device)
    network.load_state_dict(
        start | {"query_key_value.weight": 1000 * start["query_key_value.weight"]}
    )
    with emulate_gpu(), torch.autocast(device, dtype=dtype, enabled=dtype is not None):
        return network(pieces[0][0]).float()


exact = logits(HandmadeGPT, None)
off = {kind: (logits(kind) - exact).norm() / exact.norm() for kind in (model, MaskOnly)}
claim("at large queries it is over 20 times as far off", off[MaskOnly] > 20 * off[model])

# %% [markdown]
# A run that ends well proves little: no query came near 255 here, and no step was skipped. In an interview, say what
# your run did **not** test.
#
# What comes next: "And in BF16?" The scaler goes, and its state with it. The mask's constant fits, and the squares stay
# finite; but 8 bits are few for a mean, so the norm stays in FP32. Division and clipping stay what they were. "And if a
# row is masked whole?" Then -inf gives NaN: mask with `torch.finfo(scores.dtype).min`, and zero such rows afterwards.
#
# **A stopping point.** Sitting B starts with its own setup.

# %% [markdown]
# ## Sitting B: the interview
#
# *You are here:* the code → the model → the loop → a real run → *stop* → **plans** → ready? → the detective → the mock
#
# All cards here work by keyboard: numbers choose, Enter answers, h gives a hint in a drill, where there is one. They come in English or in
# Chinese: `set_language("zh")` from `labkit.interview.log` is kept. In a terminal the same cards come with
# `python -m labkit drill` and `python -m labkit mock`.

# %%
from labkit.interview import preparing
from labkit.interview.widget_drill_card import diagnostic, drill, mock_interview

# %% [markdown]
# ### Three plans
#
# **Friday.** The interview is days away. Run the cell, do its first line, run it again, until nothing is left: a
# diagnostic, the **core** (the questions that are asked most) in sittings of a quarter of an hour, two mocks. The topics where
# you missed most come first. The minutes are those of the answers; reading the explanations comes on top.

# %% tags=["nbval-ignore-output"]
preparing.friday_plan()

# %% tags=["nbval-ignore-output"]
diagnostic()  # or what the plan names

# %% [markdown]
# **Weeks.** Set the date once, then run `drill()` every day. **Spaced repetition** asks again shortly before
# you would forget, and what you would have forgotten by the interview comes first. The picture shows the reviews to come.

# %% tags=["nbval-ignore-output"]
# from labkit.interview.log import set_interview_date; set_interview_date("2027-01-15")
preparing.weeks_plan()

# %% tags=["nbval-ignore-output"]
drill(count=8)

# %% [markdown]
# **Topic.** One matter, from the first definition to the follow-ups. Give `drill` names from the table:

# %% tags=["nbval-ignore-output"]
preparing.topics()

# %% tags=["nbval-ignore-output"]
drill(topics=("fp8", "quantization"), count=6)

# %% [markdown]
# ### Are you ready?
#
# Two pictures of your own answers. The first estimates what you would get right, topic by topic: in a screen, and in a deep
# dive. The fewer your answers, the wider its intervals. The second says whether your
# confidence can be trusted: "certain" should be right nearly always. In an interview, certain and wrong costs most.

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
# names the cheapest proof, its price beside yours, and the repair. Another number than 7 opens another case.

# %% tags=["nbval-ignore-output"]
from labkit.labs.detective.widget_nan_detective import NanDetective

NanDetective(7, lab="16_interview")

# %% [markdown]
# ### The mock
#
# Twenty minutes of questions by the bank's times, no verdict before the end. A right answer leads deeper, a wrong one a step back.
# Expect a colleague's claim, which is as often true as false, the same problem under a changed constraint, a function to write, and an
# interruption. "I do not know" is an honest answer and leads on. Where you speak, speak aloud, then sum it up in a line; afterwards you
# tick what you said. Closed in the middle, it goes on where it was. From 30 minutes on there is also a long problem of dependent parts.

# %% tags=["nbval-ignore-output"]
mock_interview(minutes=20)

# %% [markdown]
# Its report shows whether these are answers of a screen or of a deep dive, what to do next, the path of the questions, your
# calibration, up to three labs to revisit, your mocks so far, and every question with your answer and its explanation. What you missed is due again at once: your next drill begins with it.
#
# With a seed the same interview comes again: `mock_interview(minutes=20, seed=7)`. An instructor can set one that way, in a
# terminal with `python -m labkit mock --seed 7`. The path still depends on the answers.

# %% [markdown]
# ### Say it
#
# The three that end most interviews, aloud: What did you build, and what broke? How do you know that it was the
# precision? What would you do with a week more? Your port above is an answer to all three.

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** Open-spaced-repetition, FSRS (the scheduler of the drills). Micikevicius et al., arXiv:1710.03740. Henry et
# al., arXiv:2010.04245 (QK-norm). Zhang and Sennrich, arXiv:1910.07467 (RMS norm). PyTorch 2.13, `torch.amp`. Each question
# names its own sources.
#
# **Next.** [Back to the start](00_start_here.ipynb), where the panel shows what is left.
