# %% [markdown]
# # 16. Interview: a port, the drills, and the mock
#
# You port a GPT that somebody wrote for FP32, find what you do not know yet, and sit a mock interview.
#
# *90 minutes · any laptop, or a GPU · needs: labs 01 to 06, above all the loops of lab 05*
#
# After this lab you can:
#
# - port float32 code to FP16 without instructions, and say what broke and why;
# - say how ready you are, topic by topic, and how far your confidence can be trusted.
#
# Two sittings: **A** is the port, 45 minutes against the clock. **B** is the interview, as often as you like. An
# interview on Friday? Begin with [the plans](#Three-plans).

# %% [markdown]
# ## Sitting A: the port
#
# *You are here:* **the code** → the model → the loop → a real run → *stop* → plans → ready? → the detective → the mock

# %%
import inspect, math, torch
from labkit.checks import capstone, claim, reveal, whose, yours
from labkit.emulation import emulate_gpu
from labkit.models import HandmadeGPT

device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# Three questions from earlier labs, in 90 seconds. What you missed comes first.

# %% tags=["nbval-ignore-output"]
from labkit.widgets.drill_card import warm_up

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
# Put the model, as it is, under FP16 autocast and run one forward pass. What happens first?

# %% predict="first-break"
guess, sure = ..., 2  # "nothing", "NaN", "an error" or "a wrong number"

# %%


@reveal(guess, sure, capstone.first_break)
def forward_pass():
    model = HandmadeGPT(vocabulary=11, context=8)
    try:
        with emulate_gpu(), torch.autocast("cpu", dtype=torch.float16):
            logits = model(torch.zeros(1, 5, dtype=torch.int64))
    except RuntimeError as error:
        claim("FP16 cannot hold -1e9, and torch says so", "overflow" in str(error))
        return "an error"
    return "nothing" if logits.isfinite().all() else "NaN"


# %% [markdown]
# The loud fault is the easy one. Others are silent: they give a number.
#
# ### Exercise: the model
#
# *15 minutes, about 8 lines.* Repair what FP16 breaks, and nothing else. The weights keep their names, the logits in
# FP32 stay what they are, and large products still run in 16 bits. The check tries small queries, queries near 1000, and
# a token that is all zeros. Not every method needs a repair.


# %% exercise="gpt16"
class GPT16(HandmadeGPT):
    """The same model, fit for FP16 autocast."""

    def norm(self, x):
        ### BEGIN SOLUTION
        x = x.float()  # the squares of FP16 queries overflow above 255, and its eps is 0
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
# *25 minutes, about 20 lines.* Port `train_fp32` to FP16. It accumulates, clips the true norm, and logs true losses and
# norms. Runs are stopped and go on: return a state, any object you like, with which a second call goes on as if the first
# had never ended.


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
# Weights and moments are saved by others. What else did the first run learn?
# </details>
#
# ### A real run
#
# Both parts on Shakespeare, beside the FP32 originals: same weights, same batches. **Emulated** here, real on a GPU.

# %%
from labkit.data import character_batches, shakespeare
from labkit.models import HandmadeGPT as FP32

model, loop = yours(GPT16, capstone.GPT16), yours(train_amp, capstone.train_amp)
text = shakespeare()[:20_000]
pieces = [(x.to(device), y.to(device)) for x, y in character_batches(text, 32, 8, steps=120)]
torch.manual_seed(0)
before = FP32(vocabulary=65, context=32).to(device)
after = model(vocabulary=65, context=32).to(device)
after.load_state_dict(before.state_dict())
optimizers = [torch.optim.Adam(net.parameters(), lr=3e-3) for net in (before, after)]
wide, _ = train_fp32(before, pieces, optimizers[0], every=2, limit=1.0)
with emulate_gpu():
    narrow, norms, state = loop(after, pieces, optimizers[1], device, every=2, limit=1.0)
claim("in FP32 the loss falls by a quarter in 60 steps", wide[-1] < 0.75 * wide[0])
claim(
    f"{whose(loop)} loop with {whose(model)} model ends within 5 %",
    abs(narrow[-1] / wide[-1] - 1) < 0.05,
)

# %% [markdown]
# What an interviewer asks next: which of your changes would BF16 make needless? The scaler goes. The mask's constant, the
# eps and the squares fit BF16's range. Division, clipping and the restart stay what they were.
#
# **A stopping point.** Sitting B starts with its own setup.

# %% [markdown]
# ## Sitting B: the interview
#
# *You are here:* the code → the model → the loop → a real run → *stop* → **plans** → ready? → the detective → the mock
#
# All cards here work by keyboard: numbers choose, Enter answers, h gives a hint in a drill. They come in English or in
# Chinese: `set_language("zh")` from `labkit.interview` is kept. In a terminal the same cards come with
# `python -m labkit drill` and `python -m labkit mock`.

# %%
from labkit import preparing
from labkit.questions import load
from labkit.widgets.drill_card import diagnostic, drill, mock_interview

# %% [markdown]
# ### Three plans
#
# **Friday.** The interview is days away. Run the cell, do its first line, run it again. Its topics are those of the
# **core 40**, the questions that are asked most. A diagnostic, the five topics you know least, two mocks: 100 minutes.

# %% tags=["nbval-ignore-output"]
preparing.friday_plan()

# %% tags=["nbval-ignore-output"]
diagnostic()  # or what the plan names

# %% [markdown]
# **Weeks.** Set the date once, then run `drill()` every day. **Spaced repetition** 间隔重复 asks again shortly before
# you would forget, and what you would have forgotten by the interview comes first. The picture shows the reviews to come.

# %% tags=["nbval-ignore-output"]
# from labkit.interview import set_interview_date; set_interview_date("2027-01-15")
preparing.weeks_plan()

# %% tags=["nbval-ignore-output"]
drill(count=8)

# %% [markdown]
# **Topic.** One matter, from the first definition to the follow-ups. These are the topics:

# %% tags=["nbval-ignore-output"]
print(", ".join(load().topics))
drill(topics=("fp8", "quantization"), count=6)

# %% [markdown]
# ### Are you ready?
#
# Two pictures of your own answers. The first says what you would get right, topic by topic. The second says whether your
# confidence can be trusted: "certain" should be right nearly always. In an interview, certain and wrong costs most.

# %% tags=["nbval-ignore-output"]
preparing.ready()

# %% tags=["nbval-ignore-output"]
preparing.confidence()

# %% [markdown]
# ### The NaN detective
#
# "The loss is NaN. What do you look at?" A run fails; it really ran, and each of eight instruments really measures. You
# have four queries. Ask for the reading that rules out most suspects, not for the one that you expect to confirm. Then
# accuse. The verdict says what would have settled it, and the repair. Each seed is another case.

# %% tags=["nbval-ignore-output"]
from labkit.widgets.nan_detective import NanDetective

NanDetective(16, lab="16_interview")

# %% [markdown]
# ### The mock
#
# Ten questions, twenty minutes, no verdict before the end. A right answer leads deeper, a wrong one a step back. Expect a
# false premise, a changed constraint, an interruption. "I do not know" is an honest answer and leads on. Where you speak,
# speak aloud, then sum it up in a line; afterwards you tick what you said. Closed in the middle, it goes on where it was.

# %% tags=["nbval-ignore-output"]
mock_interview(length=10)

# %% [markdown]
# Its report shows the time of each answer against what is usual, your calibration, three labs to revisit, and every
# question with its explanation. What you missed is due tomorrow.
#
# With a seed the same interview comes again: `mock_interview(length=10, seed=7)`. An instructor can set one that way, in a
# terminal with `labkit mock --seed 7`. The path still depends on the answers.

# %% [markdown]
# ### Say it
#
# The three that end most interviews, aloud: What did you build, and what broke? How do you know that it was the
# precision? What would you do with a week more? Your port above is an answer to all three.

# %% tags=["nbval-ignore-output"]
from labkit.widgets.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** Open-spaced-repetition, FSRS (the scheduler of the drills). Micikevicius et al., arXiv:1710.03740. Henry et
# al., arXiv:2010.04245 (QK-norm). Zhang and Sennrich, arXiv:1910.07467 (RMS norm). PyTorch 2.13, `torch.amp`. Each question
# names its own sources.
#
# **Next.** [Back to the start](00_start_here.ipynb), where the panel shows what is left.
