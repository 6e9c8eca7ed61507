# %% [markdown]
# # 11. Monitoring and debugging: a shift log
#
# You take over a training run for one night: you build its alarm, find the causes of what goes wrong, and hand the run over in writing.
#
# *any laptop · needs: labs 03, 04 and 05*
#
# After this lab you can:
#
# - write an alarm for the loss that stays silent on a healthy run, find the operator that makes the first inf or NaN, and find the modules that must stay in FP32;
# - say what logging costs on a GPU, what to record beside the loss, and what to restore after a bad batch.
#
# ## Sitting A: watch a run
#
# *You are here:* **two alarms** → baseline → false alarms → cost of a log line → what to record → *stop*

# %%
import math, statistics, numpy as np, torch
from collections import deque
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.monitoring_and_debugging import checks, figures, predictions as guesses
from labkit.labs.monitoring_and_debugging import solutions as ours

# %% [markdown]
# First, a few questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("11_monitoring_and_debugging")

# %% [markdown]
# ### Two alarms that fail
#
# *22:00.* You take over a training run. Two rules from tutorials watch its loss. The cell tries both on a recorded run of a small CNN, into which it plants two faults: at step 250 the loss
# is 1,000 times too large, and at step 400 it is NaN. Under the curve, a stroke marks each alarm.

# %% tags=["nbval-ignore-output"]
from labkit.labs.monitoring_and_debugging.recorded import healthy_runs


def three_sigma(losses):
    """Farther than three standard deviations from the mean of the last ten."""
    return abs(losses[-1] - np.mean(losses[-10:])) > 3 * np.std(losses[-10:])


def ten_times(losses):
    """The largest of the last 100 is more than ten times the smallest."""
    return max(losses[-100:]) / min(losses[-100:]) > 10


losses = healthy_runs()["CNN"][0].tolist()
losses[250], losses[400] = 1000 * losses[250], math.nan
rung = {
    rule.__name__: [step for step in range(100, 500) if rule(losses[: step + 1])]
    for rule in (three_sigma, ten_times)
}
figures.alarms_picture(losses, rung)

# %% [markdown]
# The first rule never rings. The second rings at almost every step, because in a healthy run too the losses of 100 steps differ by a factor of more than ten. Neither rule notices the NaN, because no comparison with NaN is True.
#
# ### A baseline that one value cannot move
#
# Ten losses show why the first rule is silent.


# %% predict="largest-z"
@predict(guesses.largest_z)
def deviations():
    losses = [1.0] * 9 + [1e6]
    return round((losses[-1] - statistics.fmean(losses)) / statistics.pstdev(losses), 6)


# %% [markdown]
# The answer is 3. The large value is part of the mean and of the standard deviation that judge it. Among n values none lies more than
# sqrt(n − 1) standard deviations from their mean, here 3, so "more than three" never comes true.

# %% [markdown]
# The **baseline**, which says what is normal, must therefore come from the *previous* values only. But after one step a spike is a previous
# value itself. The cell looks at 50 losses around 1, of which one was 1,000.

# %%
previous = np.array([0.9, 1.0, 1.1] * 16 + [1.0, 1000.0])
print(f"mean {previous.mean():.1f}, standard deviation {previous.std():.1f}")
median = np.median(previous)
mad = np.median(abs(previous - median))
print(f"median {median:.1f}, 1.4826 * MAD {1.4826 * mad:.2f}")

# %% [markdown]
# By mean and standard deviation, a loss of 100 now looks normal. The **median** and the **MAD** (median absolute deviation, the median of the
# distances from the median) hardly react to one value in 50. For normally distributed values, 1.4826 × MAD estimates the standard deviation. A usable alarm needs four more decisions:
#
# - **Non-finite first.** `loss > limit` is False for NaN, so test `math.isfinite` first, and keep NaN and inf out of the baseline.
# - **One side.** A loss that falls is no fault.
# - **A margin.** On a flat loss the MAD is 0, so any increase is infinitely many deviations. State the smallest increase that matters, here 1 nat, the unit of a cross-entropy.
# - **One alarm for one fault.** Report the first step of a fault only.

# %% [markdown]
# ### Exercise: a spike alarm
#
# *14 minutes, about 10 lines.* Write `see`, which gets the loss of each step and says whether a fault begins there.
# Write it yourself: labkit's `Monitor`, `Baseline` and `normal` do not count.
#
# - **Input:** a loss, a float that may be NaN, inf or -inf. `past` holds the last finite losses, at most `window` of them; `ringing` says whether the
#   previous loss was a fault.
# - **Fault:** a loss that is not finite is "nonfinite". A loss is a "spike" if `past` is full, with `past.maxlen` losses, and the loss lies more than
#   max(k * 1.4826 * MAD, margin) above the median of `past`.
# - **Output:** the name of the fault, if there is one and the previous loss was no fault; otherwise None. So 60 NaN in a row give one alarm, and a spike right after a NaN gives none.
# - **Afterwards:** each finite loss enters `past`, a spike too, so a loss that rises by 4 and stays there becomes normal.
# - **Example:** with `window=4`, the losses 1, 1, 1, 1, 9, 9, 1, nan give None four times, then "spike", None, None, "nonfinite".


# %% exercise="spike-alarm"
class SpikeAlarm:
    """One alarm for each loss that is not finite or far above those before it."""

    def __init__(self, window=50, k=6.0, margin=1.0):
        self.past, self.k, self.margin = deque(maxlen=window), k, margin
        self.ringing = False

    def see(self, loss):
        """ "nonfinite", "spike" or None; a fault that lasts is reported once."""
        ### BEGIN SOLUTION
        kind = None
        if not math.isfinite(loss):
            kind = "nonfinite"
        else:
            if len(self.past) == self.past.maxlen:
                median = statistics.median(self.past)
                mad = statistics.median(abs(x - median) for x in self.past)
                if loss - median > max(self.k * 1.4826 * mad, self.margin):
                    kind = "spike"
            self.past.append(loss)
        new = None if self.ringing else kind
        self.ringing = kind is not None
        return new
        ### END SOLUTION


# %% check="spike-alarm" points=3
checks.check_spike_alarm(SpikeAlarm)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# In which order must your lines ask whether the loss is finite, compute the median, and store the loss? Which of them does a NaN reach first?
# </details>
# <details><summary>Hint 2</summary>
#
# Take `window=5` and the losses 1, 1, 1, 1, 1000. What are the mean, the standard deviation, the median and the MAD of these five? Which of them
# would find a loss of 100 that comes next?
# </details>
# <details><summary>Hint 3</summary>
#
# Set `kind` to None, "nonfinite" or "spike":
# `median = statistics.median(self.past)`, `mad = statistics.median(abs(x - ...) for x in self.past)`. Store the loss where it is finite. Then return `kind` if
# `self.ringing` is False, and keep in `self.ringing` whether there is a fault now.
# </details>

# %% [markdown]
# ### False alarms and missed faults
#
# *22:30.* The cell counts false alarms on 50 recorded healthy runs of 500 steps (20 MLPs, 20
# CNNs, 10 GPTs). Then it ends each run at step 300 with a spike of 10 or 1,000 times the median of the 50 losses before, and counts the spikes found. Compare your alarm without and with its margin. The first row is the loss half of the rule by which the trainer
# OLMo-core skips a step.

# %%
Alarm = yours(SpikeAlarm, ours.SpikeAlarm)


class SixSigma:
    """More than six standard deviations above the mean of the previous 128 losses."""

    def __init__(self):
        self.past = deque(maxlen=128)

    def see(self, loss):
        enough = len(self.past) >= 63
        far = enough and loss - np.mean(self.past) > 6 * np.std(self.past, ddof=1)
        self.past.append(loss)
        return "spike" if far else None


def steps_of(alarm, losses):
    return [step for step, loss in enumerate(losses) if alarm.see(loss)]


print(f"{'rule':24}{'false alarms':>14}{'x10 found':>12}{'x1000 found':>13}")
for name, make in {
    "six sigma of 128": SixSigma,
    f"{whose(Alarm)}, no margin": lambda: Alarm(margin=0.0),
    f"{whose(Alarm)}, margin 1": Alarm,
}.items():
    false, found = 0, {10: 0, 1000: 0}
    for curve in (row.tolist() for rows in healthy_runs().values() for row in rows):
        false += len(steps_of(make(), curve))
        for factor in found:
            spiked = [*curve[:300], factor * statistics.median(curve[250:300])]
            found[factor] += 300 in steps_of(make(), spiked)
    print(f"{name:24}{false:14}{found[10]:9} / 50{found[1000]:10} / 50")

# %% [markdown]
# Without a margin there are 194 false alarms: near a loss of 0.01, healthy losses often lie more than 6 × 1.4826 MADs above the median. With a margin of 1 nat there is none, and every spike of ×1,000 is found. A spike of
# ×10 is found in ten runs only, those of the GPTs, whose loss is above 2. Ten times 0.02 is an increase of 0.18, which this margin calls unimportant: that is your decision.
#
# The widget plants four faults into each of the 50 runs: a spike, a smaller one five steps later, 20 losses that are 4 higher, and a loss that is NaN or inf. Choose a rule, a window, k and a margin until no alarm is false and every fault is found. (*MAD of logs* takes the logarithms of the losses.)

# %% tags=["nbval-ignore-output"]
from labkit.labs.monitoring_and_debugging.widget_alarm_bench import AlarmBench

bench = AlarmBench()
bench

# %% [markdown]
# ### What a log line costs
#
# *23:00.* A torch call on a GPU queues its kernels and returns at once (lab 06). But `loss.item()` needs the number, so the program waits
# until the GPU has finished. Such a wait is called a *synchronization*. The simulated step below has 300 kernels of 50 µs, 15 ms in all, and 2 ms of Python, such as reading the batch.

# %%
from labkit.devices import AsyncDevice


def milliseconds_a_step(*, items, every=1):
    gpu = AsyncDevice(launch_seconds=10e-6)
    for step in range(50):
        gpu.work(0.002)  # Python
        for _ in range(300):
            gpu.launch("kernel", seconds=50e-6)
        for _ in range(items if step % every == 0 else 0):
            gpu.launch("copy", seconds=5e-6)  # .item() copies one number and waits for it
            gpu.synchronize()
    gpu.synchronize()
    return round(1000 * gpu.clock() / 50, 2)


print(f"nothing read: {milliseconds_a_step(items=0)} ms a step")


# %% predict="waiting"
@predict(guesses.waiting)
def with_item():
    return milliseconds_a_step(items=1)


# %% [markdown]
# A step takes 17 ms. When the program has the number, the queue is empty, and the GPU waits during the 2 ms of Python that overlapped with its work before.

# %% [markdown]
# The cell reads one number of each of 148 tensors, as a loop over parameters does, then does so in every 50th step only.

# %%
print("148 numbers in each step:     ", milliseconds_a_step(items=148), "ms a step")
print("148 numbers every 50th step:  ", milliseconds_a_step(items=148, every=50), "ms a step")
print("one stack of 148 every 50th:  ", milliseconds_a_step(items=1, every=50), "ms a step")

# %% [markdown]
# So keep the numbers on the GPU, stack them, and read the stack once in 50 steps. `torch.cuda.set_sync_debug_mode("warn")` gives a warning at nearly all
# calls that wait (not at those of torch.distributed).
#
# ### What to record beside the loss
#
# *23:30.* Some faults show in the loss late or never. Other numbers show them earlier, or say more about the cause:
#
# | record | where it comes from | what it shows |
# |---|---|---|
# | gradient norm | return value of `clip_grad_norm_`, after `unscale_` | exactly 0: no gradient reaches any weight, because all underflowed or the loss is cut off |
# | loss scale, skipped steps | `scaler.get_scale()` | a scale that only falls: a NaN that no scale repairs |
# | share of the weights that a step changes | a copy of the weights | rounding discards updates |
#
# labkit's `Monitor` watches the loss and the first two rows, and keeps a bounded number of steps. The cell trains a CNN in FP16. From step 90 on, every batch holds NaN.

# %% tags=["nbval-ignore-output"]
from labkit.measuring import Monitor
from labkit.training import train
from labkit.training.data import batches, digits
from labkit.training.models import SmallCNN

data = digits()
torch.manual_seed(0)
cnn, monitor = SmallCNN(), Monitor()
healthy = [b for e in (0, 1) for b in batches(data.train_images, data.train_labels, 32, seed=e)]
broken = [(images * math.nan, labels) for images, labels in healthy[:30]]
sgd = torch.optim.SGD(cnn.parameters(), lr=0.05, momentum=0.9)
train(
    cnn, healthy + broken, optimizer=sgd, precision="fp16", on_step=monitor.see, progress=False
)  # fmt: skip
for fault in monitor.faults:
    print(fault)

# %% [markdown]
# The first alarm reports the NaN. The other two say that the loss scale is not its cause, since 17 smaller scales in a row did not help.
# The scaler protects the weights, but the run learns nothing more.
#
# ### Exercise: a layer's row
#
# *8 minutes, optional, about 6 lines.* Write `layer_row`, four numbers about one layer, without waiting for the device.
#
# - **Input:** `weight` and `before`, the layer's weight after and before the step, float32; `grad`, its gradient, float32 or float16, still multiplied
#   by `scale`, a float. `before` is not all 0.
# - **Output:** a float32 tensor of 4 values: the norm of the gradient without `scale`; the norm of `before`; the norm of `weight - before` divided by
#   that of `before`; and, of the scaled gradients that are not 0, the share that FP16 rounds to 0 (magnitude at most 2⁻²⁵).
# - **Example:** weight [4], before [2], grad [-3], scale 2 give [1.5, 2, 1, 0].
# - **Edge cases:** 2,000 FP16 gradients of 30,000 have a norm of 1.3 million, and 2⁻¹⁷ divided by a scale of 1024 is 0 in FP16: compute in float32. If all gradients are 0, the share is 0. The inputs stay as they are.
# - **No waiting:** the result stays on the device of the inputs, and nothing asks for a value, as `.item()`, `if norm > 0` and `grad[grad != 0]` do. The check calls
#   `layer_row` with tensors of torch's meta device too, which have a shape and no values.


# %% exercise="layer-row"
def layer_row(weight, before, grad, scale):
    """Gradient norm, weight norm, relative update and the share that FP16 flushes to 0."""
    ### BEGIN SOLUTION
    norm = torch.linalg.vector_norm
    scaled = grad.float()
    nonzero = scaled != 0
    lost = nonzero & (scaled.abs() <= 2.0**-25)
    share = lost.sum() / nonzero.sum().clamp(min=1)
    return torch.stack(
        [norm(scaled / scale), norm(before), norm(weight - before) / norm(before), share]
    )
    ### END SOLUTION


# %% check="layer-row" points=0
checks.check_layer_row(layer_row)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which of the four numbers needs the scaled gradient, and which one the gradient without the scale? In which dtype is a norm of FP16 gradients computed?
# </details>
# <details><summary>Hint 2</summary>
#
# For the gradients [0, 0, 2⁻³⁰, 1] the share is one half: of two that are not 0, one is lost. How do you count both without taking elements out of the tensor?
# </details>
# <details><summary>Hint 3</summary>
#
# `nonzero = grad != 0`, `lost = nonzero & (...)`, `share = lost.sum() / nonzero.sum().clamp(min=1)`. Join the four 0-dimensional tensors by `torch.stack([...])`.
# </details>

# %% [markdown]
# ### Optional: numbers for each layer
#
# A common rule says that an update should be about a thousandth of the weight: norm over norm. The cell takes 20 steps of AdamW with your GPT, with FP32 and with BF16 weights, and prints for one matrix, the first `qkv`, this ratio and the share of
# its weights that the last step changed.

# %% tags=["nbval-ignore-output"]
import torch.nn.functional as F
from labkit.emulation import emulate_gpu
from labkit.training import trained_gpt
from labkit.training.data import character_batches, characters, shakespeare, shakespeare_split

text, vocabulary = shakespeare_split()[0], characters(shakespeare())
for dtype in (torch.float32, torch.bfloat16):
    model = trained_gpt().to(dtype)
    adam = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.0)
    for x, y in character_batches(text, 64, 16, steps=20, vocabulary=vocabulary):
        weight = model.blocks[0].qkv.weight
        before = weight.detach().clone()
        adam.zero_grad()
        with emulate_gpu():
            F.cross_entropy(model(x).float().flatten(0, 1), y.flatten()).backward()
        adam.step()
    ratio = (weight.detach() - before).norm() / before.norm()
    moved = (weight != before).double().mean()
    print(f"{dtype}: update / weight {ratio:.1e}, weights changed {moved:.0%}")

# %% [markdown]
# The ratio alone looks harmless: somewhat smaller in BF16, as if the learning rate were lower. But nearly nine of ten updates were rounded away, and the others were rounded to whole gaps of BF16, most of them upwards (lab 04).
#
# `layer_report` reads the gradients of a model and changes nothing. It tells what FP16 would make of them, and up to which loss scale each layer has a headroom of 2. Look at the biases of `qkv`.

# %% tags=["nbval-ignore-output"]
from labkit.labs.monitoring_and_debugging.layer_report import layer_report

gpt = trained_gpt()
x, y = next(iter(character_batches(text, 64, 16, steps=1, vocabulary=vocabulary)))
F.cross_entropy(gpt(x).flatten(0, 1), y.flatten()).backward()
layer_report(gpt)

# %% [markdown]
# FP16 flushes a third of the gradients of `qkv.bias`, the third that belongs to the keys. A loss scale would keep them, but none is needed: a key's bias adds the same number to all scores of a row, so its true gradient is 0, and what you see is rounding noise.
#
# ### Optional: TensorBoard
#
# TensorBoard draws such numbers while a run goes on. `SummaryWriter(folder).add_scalar(name, value, step)` writes one into an event file. The cell writes three losses and reads them back.

# %% tags=["nbval-ignore-output"]
from labkit.labs.monitoring_and_debugging.tracking import round_trip

try:
    print(round_trip({"loss": [(0, 2.3), (1, float("nan")), (2, 0.9)]}))
except ImportError as missing:
    print(f"{missing}\nAll three losses come back, the NaN too.")

# %% [markdown]
# The file keeps the NaN. But a rule on these values such as "loss > 3" does not fire for it, because this comparison is False too.
#
# **A stopping point.** Sitting B begins with its own setup cell.

# %% [markdown]
# ## Sitting B: find the cause
#
# *You are here:* *stop* → **where a NaN begins** → bad in FP16, good in FP32 → a bad batch → four tickets

# %%
import math, torch, torch.nn as nn, torch.nn.functional as F
from labkit.emulation import emulate_gpu
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.monitoring_and_debugging import checks, figures, predictions as guesses
from labkit.labs.monitoring_and_debugging import solutions as ours

# %% [markdown]
# ### Where a NaN begins
#
# *01:10.* The alarm says "nonfinite". Which operator made the first inf or NaN? **Forward hooks** see what each module returns, so they miss the backward pass and every function
# that is not a module. `torch.autograd.detect_anomaly()` stops in the backward pass and names a backward function.
# In the next cell a sum of squares overflows in FP16: 300² is 90,000. What does anomaly mode report?

# %%
import warnings


def report_of_anomaly_mode(scene):
    with warnings.catch_warnings(action="ignore"):  # "enable only for debugging"
        try:
            with torch.autograd.detect_anomaly():
                scene()
        except RuntimeError as error:
            return str(error).split("'")[1]
    return "nothing"


def squares():
    w = torch.full((4,), 300.0, requires_grad=True)
    loss = w.half().square().sum()  # inf
    loss.backward()


# %% predict="who-notices"
@predict(guesses.who_notices)
def named():
    return report_of_anomaly_mode(squares)


# %% [markdown]
# It reports nothing. Anomaly mode looks for NaN in gradients only. Here the gradient is 2w = 600, so the run goes on with a loss of inf.

# %% [markdown]
# A **dispatch mode** gets every operator that torch runs, in the forward pass, the backward pass and the optimizer, with its inputs. So it can find the first operator that makes inf or NaN *from finite inputs*. A causal mask
# holds -inf on purpose, and a search for the first inf would accuse the mask.
#
# ### Exercise: the first operator
#
# *12 minutes, about 8 lines.* Write `__torch_dispatch__` of a mode that names the first operator whose inputs are all finite and whose output is not.
#
# - **Input:** torch calls the method for each operator inside `with FirstNonfinite() as mode:`, also in the backward pass. Inside the method the mode is
#   off, so your own torch calls do not come back to it. `func` is the operator, `args` and `kwargs` are its inputs; `kwargs` may be None. Inputs may be numbers, and tensors may stand in lists.
# - **Output:** what `func` returns for these inputs, unchanged: a tensor, a list or a tuple.
# - **Effect:** `mode.found` becomes `str(func)` of that operator and stays so. Until then it is None.
# - **Example:** after `torch.zeros(1).log() - 1`, `found` is "aten.log.default": the subtraction got an inf.
# - **Edge cases:** some operators work in place, such as `x.exp_()`. An inf or NaN that comes from outside, in a batch, as a mask's -inf or as a
#   keyword argument, was made by no operator. The check does not use `torch.empty`, whose output may hold any old values.
#
# Given are `finite(x)` and torch's `tree_leaves(tree)`, the list of all that nested tuples, lists and dicts hold.


# %%
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def finite(x):
    """Whether x, a tensor or anything else that an operator takes or returns, is finite."""
    if isinstance(x, torch.Tensor):
        return not x.is_floating_point() or x.isfinite().all().item()
    return not isinstance(x, float) or math.isfinite(x)


# %% exercise="first-born"
class FirstNonfinite(TorchDispatchMode):
    """The first operator that makes an inf or NaN from finite inputs."""

    def __init__(self):
        super().__init__()
        self.found = None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        ### BEGIN SOLUTION
        healthy = all(map(finite, tree_leaves((args, kwargs or {}))))
        out = func(*args, **(kwargs or {}))
        if self.found is None and healthy and not all(map(finite, tree_leaves(out))):
            self.found = str(func)
        return out
        ### END SOLUTION


# %% check="first-born" points=3
checks.check_first_born(FirstNonfinite)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# What must you know about the inputs, and when do you ask: before the call of `func` or after it? After `x.exp_()`, what is in the input?
# </details>
# <details><summary>Hint 2</summary>
#
# Write first a mode that only prints `func` and returns `func(*args, **(kwargs or {}))`, and run `torch.stack([torch.ones(2), torch.zeros(2)])` under it. What
# is `args`? What does `tree_leaves((args, kwargs or {}))` make of it?
# </details>
# <details><summary>Hint 3</summary>
#
# `healthy = all(finite(x) for x in ...)`, then `out = func(...)`. If nothing was found before, `healthy` is True and not all of `tree_leaves(out)` are finite, set
# `self.found`. Return `out`.
# </details>

# %% [markdown]
# The cell compares both tools on four more scenes: logits that overflow, a square root at 0, a logarithm that `where` hides, and a causal mask.

# %% tags=["nbval-ignore-output"]
Mode = yours(FirstNonfinite, ours.FirstNonfinite)


def logits():
    w = torch.full((8, 3), 200.0, requires_grad=True)
    with torch.autocast("cpu", torch.float16):
        out = torch.full((2, 8), 100.0) @ w  # 160,000
    F.cross_entropy(out.float(), torch.tensor([0, 1])).backward()


def root():
    w = torch.zeros(3, requires_grad=True)
    (w * w).sum().sqrt().backward()  # the derivative of sqrt at 0 is inf


def hidden_log():
    w = torch.tensor([0.0, 1.0], requires_grad=True)
    torch.where(w > 0, w.log(), torch.zeros(2)).sum().backward()


def mask():
    scores = torch.eye(4, requires_grad=True)
    later = torch.ones(4, 4).triu(1).bool()
    scores.masked_fill(later, -math.inf).softmax(-1).sum().backward()


print(f"{'scene':12}{'anomaly mode':24}{whose(Mode)} dispatch mode")
for scene in (squares, logits, root, hidden_log, mask):
    with Mode() as mode:
        scene()
    print(f"{scene.__name__:12}{report_of_anomaly_mode(scene):24}{mode.found}")

# %% [markdown]
# For the logits anomaly mode names the backward function of the softmax, although the matmul overflowed. (A warning, which the cell hides, shows the line of its forward call.) The dispatch mode names the operator in all four faulty scenes and accuses nothing in the mask. It asks of every tensor whether it is
# finite, so on a GPU it waits at each operator: replay only the step that failed, from the saved batch and the saved states of model, optimizer and scaler. If `found` stays None although the loss is NaN, look at the batch, the weights and the masks: the softmax of a row of −inf alone is NaN. labkit's `first_nonfinite(step)` adds the module and the phase.
#
# ### Bad in FP16, good in FP32
#
# *02:00.* A network gives NaN in FP16 and runs well in BF16, so some values leave FP16's range. You may keep a few modules in FP32 (lab 05). Which?
# The **FP32 twin**, the same network in FP32, says what a good result is. Promoting one module at a time can fail: if module 4 runs in FP32 and puts out 10⁷, module 5 still casts it to FP16,
# where it is inf. Only both together help.
#
# **Bisection** finds one culprit after the other. With none of 48 modules in FP32 the result is bad, with all it is good. So there is a shortest prefix of the list that is good, and its
# last module is a culprit. Halving finds it in 6 runs. Keep it in FP32, and search again until the result is good.
#
# ### Exercise: modules that stay in FP32
#
# *12 minutes, about 9 lines.* Write `must_stay`, which finds the modules that must stay in FP32.
#
# - **Input:** `names`, a list of module names in the order of the forward pass, and `good(wide)`, which runs the network with the modules of the set `wide` in FP32
#   and all others in FP16. It returns True if `wide` holds all culprits, and False if one is missing. Which modules are culprits you do not know.
# - **Output:** the set of the culprits. It may be empty.
# - **Example:** if only layer30 and layer31 together repair the network, `must_stay` returns {"layer30", "layer31"}.
# - **Runs:** each call of `good` is a run of the network. With m culprits among L modules, 2 (m + 1) log2(L) calls are allowed, rounded up: 34 for two among 48.


# %% exercise="must-stay"
def must_stay(names, good):
    """The set of modules that must stay in FP32."""
    ### BEGIN SOLUTION
    keep = set()
    while not good(keep):
        low, high = 0, len(names)  # keep with names[:low] fails, with names[:high] it is good
        while high - low > 1:
            middle = (low + high) // 2
            if good(keep | set(names[:middle])):
                high = middle
            else:
                low = middle
        keep = keep | {names[high - 1]}
    return keep
    ### END SOLUTION


# %% check="must-stay" points=3
checks.check_must_stay(must_stay)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# What does `good(set())` tell you? If `good(set(names[:24]))` is False and `good(set(names))` is True, where is the last culprit?
# </details>
# <details><summary>Hint 2</summary>
#
# Take four modules a, b, c, d, and let b and c be the culprits. Which prefixes of the list are good? The shortest good one ends in c. With c in FP32 all the time, which
# prefixes are good now?
# </details>
# <details><summary>Hint 3</summary>
#
# `keep = set()`, and `while not good(keep):` search with `low, high = 0, len(names)`: as long as they lie more than 1 apart, ask
# `good(keep | set(names[:middle]))` and move one of the two. Then the last name of the shortest good prefix joins `keep`.
# </details>

# %% [markdown]
# Try it on a digit reader of twelve linear layers. In two places a layer was multiplied by 2¹⁶ or 2¹⁵ and the next layer divided by the same factor, which leaves every bit of the FP32 result as it was.

# %%
from labkit.labs.monitoring_and_debugging.planted_reader import outputs, planted_reader

search = yours(must_stay, ours.must_stay)
net, images = planted_reader()
names = [name for name, module in net.named_children() if isinstance(module, nn.Linear)]
twin = net(images).argmax(1)


def good(wide):
    out = outputs(net, images, wide=wide)
    return out.isfinite().all().item() and (out.argmax(1) == twin).double().mean().item() > 0.98


print("good with a single layer in FP32:", [name for name in names if good({name})])
found = search(names, good)
claim(f"{whose(search)} four layers are enough", len(found) == 4 and good(found))
print(sorted(found))

# %% [markdown]
# Two pairs stay in FP32. With four culprits among twelve, bisection takes 19 runs; to start in FP32 and put one layer at a time into FP16 takes 12. With two culprits among 48, bisection takes 13 to 15 runs instead of 48.
#
# ### Optional: two runs that differ
#
# A colleague ports your GPT to another code base, and the losses differ. Is this rounding or a fault? The cell trains the GPT for 40 steps five times: twice unchanged,
# then once with the rows of each batch reversed, once under BF16 autocast, and once with the tanh approximation of GELU, as a port might have it.

# %% tags=["nbval-ignore-output"]
from labkit.labs.monitoring_and_debugging.two_runs import losses_of

first = losses_of()
print("an identical run gives identical losses:", losses_of() == first)
others = {
    "rows reversed": losses_of(reverse=True),
    "BF16": losses_of(bf16=True),
    "tanh GELU": losses_of(gelu="tanh"),
}
figures.difference_picture(first, others)

# %% [markdown]
# On this machine the losses of two identical runs agree in every bit, so any difference has a cause. Another order of the same additions changes the loss by a few ulps, at most 3e-7 here. The tanh approximation changes it by up to
# 1e-4, far more than an order of additions explains: it is a fault of the port. BF16 differs by more and would have hidden it. So compare two implementations in FP32, in the first steps.
#
# ### Exercise: a tolerance for a sum
#
# *8 minutes, optional, about 3 lines.* Write `tolerance`, how far apart two float32 sums of the same products can lie if only the order of the additions differs.
#
# - **Input:** `a` and `b`, float32 vectors of the same length n, at most 100,000.
# - **Bound:** a product and n − 1 additions are n roundings, each by a factor between 1 − u and 1 + u with u = 2⁻²⁴. So each order is at most γ Σ|a·b| away from the exact sum, with
#   γ = n u / (1 − n u), on either side of it.
# - **Output:** a float, the bound on the distance between two orders.
# - **Example:** for a = [1, 2, 4] and b = [3, −4, 0.5], Σ|a·b| = 13, and the tolerance is 4.65e-6.
# - **Edge case:** if the sum nearly cancels to 0, the tolerance does not become smaller. For values of 1e-15 it becomes smaller with them. `a` and `b` stay as they are.


# %% exercise="same-sum"
def tolerance(a, b):
    """The largest distance between two float32 values of the sum of a * b."""
    ### BEGIN SOLUTION
    n, u = len(a), 2.0**-24
    gamma = n * u / (1 - n * u)
    return 2 * gamma * (a.double() * b.double()).abs().sum().item()
    ### END SOLUTION


# %% check="same-sum" points=0
checks.check_same_sum(tolerance)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# One order may be γ Σ|a·b| above the exact sum. Where may the other one be?
# </details>
# <details><summary>Hint 2</summary>
#
# For a = [1, 2, 4] and b = [3, −4, 0.5] the sum is −3. Why do the roundings grow with Σ|a·b| = 13, and not with 3? Think of 10⁸ + 1 − 10⁸ in float32.
# </details>
# <details><summary>Hint 3</summary>
#
# `n, u = len(a), 2.0**-24`, `gamma = ...`, and twice gamma times `(a.double() * b.double()).abs().sum().item()`.
# </details>

# %% [markdown]
# ### After a bad batch
#
# *03:20.* At step 200 a batch came 255 times too large, as if the loader had forgotten to divide the pixels by 255. The table holds recorded test accuracies in % of the CNN with SGD and momentum, ten seeds, sorted. *Rewound* means that weights and momentum go back to the checkpoint of step 180; *weights rewound* keeps the present momentum; *same batches* meets the bad batch again.

# %%
from labkit.labs.monitoring_and_debugging.bad_batch import bad_batch_record

for way, accuracies in bad_batch_record().items():
    print(f"{way:32}", *(f"{100 * a:4.0f}" for a in sorted(accuracies)))

# %% [markdown]
# After this one step, five of ten runs end at chance, 10 %. Rewinding helps if it restores the weights *and* the momentum and *skips* the batch: the same batch does the same harm again, and the old momentum holds the bad gradient. Clipping works
# too, because this gradient was large but finite. PaLM's authors rewound about 100 steps and skipped 200 to 500 batches, which were not bad by themselves: from another checkpoint they made no spike.
#
# A checkpoint in memory must be a copy. `model.state_dict()` holds the live tensors, and the next step changes them: use `copy.deepcopy`, also for the optimizer's.
#
# ### Four tickets
#
# *04:30.* Four complaints arrive. For each, decide which measurement you would make first: the cheapest that excludes most causes. Then run the second cell.

# %% tags=["nbval-ignore-output"]
from labkit.labs.monitoring_and_debugging.tickets import tickets

night = tickets(seed=1)
for ticket in night:
    print(f"{ticket.kind}: {ticket.symptom}")

# %% tags=["nbval-ignore-output"]
for ticket in night:
    print(f"{ticket.kind}\n  first look: {ticket.test}\n  it shows: {ticket.look()}")
    print(f"  cause: {ticket.cause}\n  repair: {ticket.repair}")
    print(f"  {ticket.unit}: {ticket.measure(False):.4g}, repaired {ticket.measure(True):.4g}\n")

# %% [markdown]
# Another seed deals other tickets.
#
# *06:00.* Hand the run over in writing: the checkpoint it goes on from, each alarm with its step, each cause with the test that proved it, and what is open. "FP16 is unstable" is no cause. "At step 4,120 `aten.addmm` in
# `blocks.0.qkv` made the first inf, because its input had grown to 900" is one.
#
# ### Say it
#
# If a question asks for a spoken answer, say it aloud, sum it up in a line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("11_monitoring_and_debugging")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** Samuelson, *How deviant can you be?*, 1968. Iglewicz and Hoaglin, *How to Detect and Handle Outliers*, 1993 (MAD). AI2, OLMo-core, `skip_step_optimizer.py`. Chowdhery et al., *PaLM*, arXiv:2204.02311, 5.1.
# Zeller and Hildebrandt, *Simplifying and isolating failure-inducing input*, 2002 (delta debugging). Higham, *Accuracy and Stability of Numerical Algorithms*, ch. 3 and 4. PyTorch 2.13: *Reproducibility*, `torch.autograd.detect_anomaly`, `torch.cuda.set_sync_debug_mode`,
# `torch.utils.tensorboard`.
#
# **Next.** [Lab 12: choosing precision](12_choosing_precision.ipynb).
