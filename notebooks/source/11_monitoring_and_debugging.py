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
# - say what logging costs on a GPU, when two runs count as equal, and what to restore after a bad batch.
#
# ## Sitting A: watch a run
#
# *You are here:* **two alarms** → baseline → false alarms → cost of a log line → what to record → *stop*

# %%
import math, statistics, torch
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
# ### A baseline that one value cannot move

# %% predict="largest-z"
@predict(guesses.largest_z)
def deviations():
    losses = [1.0] * 9 + [1e6]
    return round((losses[-1] - statistics.fmean(losses)) / statistics.pstdev(losses), 3)


# %% [markdown]
# Explanation of the bound.

# %% [markdown]
# ### Exercise: a spike alarm
#
# *14 minutes, about 10 lines.* Write `see`, the rule of an alarm that gets one loss a step.
#
# - **Input:** a loss, a float that may be inf or NaN. `past` holds up to `window` earlier finite losses.
# - **Output:** "nonfinite", "spike" or None. One fault gives one alarm: while it lasts, None.
# - **Spike:** `past` is full and the loss lies more than max(k * 1.4826 * MAD, margin) above the median of `past`.
# - `past` then takes the loss, if it is finite.


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
# ### False alarms and missed faults

# %%
Alarm = yours(SpikeAlarm, ours.SpikeAlarm)

# %% [markdown]
# ### What a log line costs

# %% predict="waiting"
@predict(guesses.waiting)
def milliseconds():
    return 17.0


# %% [markdown]
# Explanation of waiting.

# %% [markdown]
# ### What to record beside the loss
#
# ### Exercise: a layer's row
#
# *8 minutes, optional, about 6 lines.* Write `layer_row`, four numbers about one layer, without waiting for the device.
#
# - **Input:** `weight` and `before`, the layer's weight after and before the step, float32; `grad`, its gradient, float32 or float16, still multiplied by the float `scale`.
# - **Output:** a float32 tensor of 4 values: the norm of the true gradient; the norm of `before`; the norm of `weight - before` over that of `before`;
#   the share of the non-zero scaled gradients that become 0 in FP16 (magnitude at most 2⁻²⁵).


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
# ### Optional: TensorBoard
#
# **A stopping point.** Sitting B begins with its own setup cell.

# %% [markdown]
# ## Sitting B: find the cause
#
# *You are here:* *stop* → **where a NaN begins** → bad in FP16 → two runs that differ → a bad batch → four tickets

# %%
import math, torch, torch.nn as nn, torch.nn.functional as F
from labkit.emulation import emulate_gpu
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.monitoring_and_debugging import checks, figures, predictions as guesses
from labkit.labs.monitoring_and_debugging import solutions as ours

# %% [markdown]
# ### Where a NaN begins

# %% predict="who-notices"
@predict(guesses.who_notices)
def anomaly_mode():
    return "nothing"


# %% [markdown]
# Explanation of anomaly mode.

# %% [markdown]
# ### Exercise: the first operator
#
# *14 minutes, about 8 lines.* Write `__torch_dispatch__` of a mode that names the first operator whose inputs are all finite and whose output is not.
#
# - **Input:** torch calls it for each operator inside `with FirstNonfinite() as mode:`, also in the backward pass.
# - **Result:** the operator's output, unchanged. `mode.found` is `str(func)` of that operator, such as "aten.log.default", and None before.
# - **Example:** after `torch.zeros(1).log() - 1`, `found` is "aten.log.default": the subtraction got an inf.

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
# ### Bad in FP16, good in FP32
#
# ### Exercise: modules that stay in FP32
#
# *14 minutes, about 9 lines.* Write `must_stay`, which finds the modules that must stay in FP32.
#
# - **Input:** `names`, a list of module names in the order of the forward pass; `good(wide)`, which runs the network with the set `wide` of modules in FP32 and the
#   rest in FP16, and says whether the result is good. It is good whenever `wide` holds all culprits, a set of names that you do not know.
# - **Output:** the set of culprits.
# - **Runs:** at most m + 1 + m * ceil(log2(L)) calls of `good` for m culprits among L modules.


# %% exercise="must-stay"
def must_stay(names, good):
    """The smallest set of modules that must run in FP32."""
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
# ### Two runs that differ
#
# ### Exercise: a tolerance for a sum
#
# *8 minutes, optional, about 3 lines.* Write `tolerance`, how far two float32 sums of the same products can lie apart if only the order of the additions differs.
#
# - **Input:** `a` and `b`, float32 vectors of length n.
# - **Output:** a float: 2 γ Σ|a||b| with γ = n u / (1 − n u) and u = 2⁻²⁴.


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
# ### After a bad batch
#
# ### Four tickets
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
# **Sources.** To come.
#
# **Next.** [Lab 12: choosing precision](12_choosing_precision.ipynb).
