# Answers to lab 11 that the author of its checks had not foreseen: see tests/corpus.py.

import itertools

import numpy as np
import torch.nn.functional as F
from torch.utils._pytree import tree_map


class Given:
    """The constructor that the exercise gives."""

    def __init__(self, window=50, k=6.0, margin=1.0):
        self.past, self.k, self.margin = deque(maxlen=window), k, margin
        self.ringing = False


class GivenMode(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.found = None


# %% right spike-alarm: numpy, early returns
class SpikeAlarm(Given):
    def see(self, loss):
        fault = self.fault(loss)
        if np.isfinite(loss):
            self.past.append(loss)
        was, self.ringing = self.ringing, bool(fault)
        if was:
            return None
        return fault

    def fault(self, loss):
        if not np.isfinite(loss):
            return "nonfinite"
        if len(self.past) < self.past.maxlen:
            return None
        past = np.array(self.past)
        center = np.median(past)
        width = 1.4826 * np.median(np.abs(past - center))
        return "spike" if loss > center + max(self.k * width, self.margin) else None


# %% right spike-alarm: torch's lower median, a plain list
class SpikeAlarm(Given):
    def see(self, loss):
        old = list(self.past)
        bad = math.isnan(loss) or math.isinf(loss)
        kind = "nonfinite" if bad else None
        if not bad and len(old) == self.past.maxlen:
            values = torch.tensor(old, dtype=torch.float64)
            m = values.median()
            mad = (values - m).abs().median()
            if (loss - m > self.k * 1.4826 * mad) and loss - m > self.margin:
                kind = "spike"
        if not bad:
            self.past.append(loss)
        result = kind if not self.ringing else None
        self.ringing = kind != None
        return result


# %% right spike-alarm: sorted values, the fault of the step before in another field
class SpikeAlarm:
    def __init__(self, window=50, k=6.0, margin=1.0):
        self.window, self.k, self.margin, self.values, self.last = window, k, margin, [], None

    def see(self, loss):
        now = None
        if loss != loss or loss in (math.inf, -math.inf):
            now = "nonfinite"
        else:
            if len(self.values) >= self.window:
                middle = self.middle(self.values)
                spread = self.middle([abs(v - middle) for v in self.values])
                limit = max([self.k * spread * 1.4826, self.margin])
                if loss - middle > limit:
                    now = "spike"
            self.values = (self.values + [loss])[-self.window :]
        before, self.last = self.last, now
        return now if before is None else None

    @staticmethod
    def middle(values):
        values, n = sorted(values), len(values)
        return (values[(n - 1) // 2] + values[n // 2]) / 2


# %% right spike-alarm: a dataclass
from dataclasses import dataclass, field


@dataclass
class SpikeAlarm:
    window: int = 50
    k: float = 6.0
    margin: float = 1.0
    past: list = field(default_factory=list)
    ringing: bool = False

    def see(self, loss: float):
        if not math.isfinite(loss):
            first, self.ringing = not self.ringing, True
            return "nonfinite" if first else None
        spike = False
        if len(self.past) == self.window:
            m = statistics.median(self.past)
            sigma = 1.4826 * statistics.median([abs(p - m) for p in self.past])
            spike = loss - m > max(self.k * sigma, self.margin)
            self.past.pop(0)
        self.past.append(loss)
        alarm = "spike" if spike and not self.ringing else None
        self.ringing = spike
        return alarm


# %% right spike-alarm: quantiles, a numpy string
class SpikeAlarm(Given):
    def see(self, loss):
        kind = ""
        if not torch.isfinite(torch.tensor(loss)):
            kind = "nonfinite"
        elif len(self.past) == self.past.maxlen:
            m = np.quantile(self.past, 0.5)
            mad = np.quantile(np.abs(np.subtract(self.past, m)), 0.5)
            kind = "spike" if loss - m > np.maximum(self.k * 1.4826 * mad, self.margin) else ""
        if kind != "nonfinite":
            self.past.append(loss)
        new, self.ringing = (kind and not self.ringing), kind != ""
        return np.str_(kind) if new else None


# %% right spike-alarm: a generator that is sent the losses
class SpikeAlarm:
    def __init__(self, window=50, k=6.0, margin=1.0):
        self.rule = self.rules(window, k, margin)
        next(self.rule)

    def see(self, loss):
        return self.rule.send(loss)

    def rules(self, window, k, margin):
        past, ringing, answer = deque(maxlen=window), False, None
        while True:
            loss = yield answer
            kind = None if math.isfinite(loss) else "nonfinite"
            if kind is None:
                if len(past) == window:
                    m = statistics.median(past)
                    mad = statistics.median(abs(m - x) for x in past)
                    kind = "spike" if loss > m + max(k * 1.4826 * mad, margin) else None
                past.append(loss)
            answer, ringing = (None if ringing else kind), kind is not None


# %% wrong spike-alarm: the mean and deviation of a window that holds the loss, nothing else
#    says: `see(nan)` is None; "nonfinite" is wanted
class SpikeAlarm(Given):
    def see(self, loss):
        self.past.append(loss)
        if len(self.past) < self.past.maxlen:
            return None
        m, s = statistics.fmean(self.past), float(np.std(self.past))
        return "spike" if loss - m > self.k * s else None


# %% wrong spike-alarm: mean and sigma, six deviations and no margin
#    says: step 85 `see(100)` is None
#    says: their standard deviation 139.7
class SpikeAlarm(Given):
    def see(self, loss):
        kind = None
        if not math.isfinite(loss):
            kind = "nonfinite"
        else:
            if len(self.past) == self.past.maxlen:
                if loss - np.mean(self.past) > self.k * np.std(self.past) + self.margin / 2:
                    kind = "spike"
            self.past.append(loss)
        new, self.ringing = kind if not self.ringing else None, bool(kind)
        return new


# %% wrong spike-alarm: mean absolute deviation
#    says: step 85 `see(100)` is None
SpikeAlarm = changed(
    "mad = statistics.median",
    "mad = statistics.fmean",
    "abs(x - median) for x in self.past)",
    "[abs(x - median) for x in self.past])",
)

# %% wrong spike-alarm: the median, and the standard deviation as width
#    says: step 90 `see(30)` is None
SpikeAlarm = changed(
    "statistics.median(abs(x - median) for x in self.past)", "statistics.pstdev(self.past)"
)

# %% wrong spike-alarm: the margin alone
#    says: a MAD of 0.2551
#    says: 1.25 above the median
SpikeAlarm = changed("max(self.k * 1.4826 * mad, self.margin)", "self.margin")

# %% wrong spike-alarm: min for max
#    says: 0.01 above the median
SpikeAlarm = changed("max(self.k", "min(self.k")

# %% wrong spike-alarm: both limits added up
#    says: 1) = 2.36, and the loss lies 2.75 above the median
SpikeAlarm = changed(
    "max(self.k * 1.4826 * mad, self.margin)", "self.k * 1.4826 * mad + self.margin"
)

# %% wrong spike-alarm: the factor of the MAD multiplies the margin too
#    says: step 80 `see(1.95)` is None
#    says: = 1, and the loss lies 1.25 above the median
SpikeAlarm = changed("max(self.k * 1.4826 * mad, self.margin)", "1.4826 * max(self.k * mad, self.margin)")

# %% wrong spike-alarm: ten times the median
#    says: 2.75 above the median
SpikeAlarm = changed("loss - median > max(self.k * 1.4826 * mad, self.margin)", "loss > 10 * median or 1 < loss - median < 1.3 and mad == 0")

# %% wrong spike-alarm: the MAD around the mean
#    says: step 85 `see(100)` is None
SpikeAlarm = changed("mad = statistics.median(abs(x - median) for x in self.past)", "mean = statistics.fmean(self.past)\n                mad = statistics.median(abs(x - mean) for x in self.past)")

# %% wrong spike-alarm: against the last loss
#    says: The loss of step 79 was a fault too
SpikeAlarm = changed("median = statistics.median(self.past)", "median = self.past[-1]")

# %% wrong spike-alarm: never silent again once it rang
#    says: The last fault before it ended with step 10, so this one is new.
SpikeAlarm = changed(
    "self.ringing = kind is not None", "self.ringing = self.ringing or kind is not None"
)

# %% wrong spike-alarm: silent for one step only
#    says: This one lasts 60 steps, and you gave 30 alarms for it.
SpikeAlarm = changed("self.ringing = kind is not None", "self.ringing = new is not None")


# %% wrong spike-alarm: another kind of fault is a new fault
#    says: The loss of step 80 was a fault too, so no new fault begins here.
class SpikeAlarm(Given):
    ringing = None

    def see(self, loss):
        kind = None
        if not math.isfinite(loss):
            kind = "nonfinite"
        else:
            if len(self.past) == self.past.maxlen:
                m = statistics.median(self.past)
                mad = statistics.median(abs(x - m) for x in self.past)
                if loss - m > max(self.k * 1.4826 * mad, self.margin):
                    kind = "spike"
            self.past.append(loss)
        new, self.ringing = kind if kind != self.ringing else None, kind
        return new


# %% wrong spike-alarm: numbers of the defaults written into `see`
#    says: window=20, k=4, margin=0.2: at step 60
SpikeAlarm = changed("max(self.k * 1.4826 * mad, self.margin)", "max(6 * 1.4826 * mad, 1)")

# %% wrong spike-alarm: the loss is never stored
#    says: is None; "spike" is wanted
SpikeAlarm = changed("            self.past.append(loss)\n", "")


# %% wrong spike-alarm: True and False
#    says: step 0 `see(
#    says: is False, a bool; "nonfinite", "spike" or None is asked for
class SpikeAlarm(Given):
    def see(self, loss):
        self.past.append(loss)
        return loss > statistics.median(self.past) + self.margin


# %% wrong spike-alarm: "ok" for a loss in order
#    says: is 'ok', a str; "nonfinite", "spike" or None is asked for
SpikeAlarm = changed(
    "kind = None\n",
    "kind = 'ok'\n",
    "None if self.ringing else kind",
    "'ok' if self.ringing else kind",
    "kind is not None",
    "kind != 'ok'",
)

# %% wrong spike-alarm: the deque is taken for a list
#    says: raised TypeError
SpikeAlarm = changed("statistics.median(self.past)", "statistics.median(self.past[-50:])")


# %% wrong spike-alarm: stores no loss that is far away, nor the fault's
#    idea: faults-are-no-history
class SpikeAlarm(Given):
    def see(self, loss):
        kind = None
        if not math.isfinite(loss):
            kind = "nonfinite"
        elif len(self.past) == self.past.maxlen:
            m = np.median(self.past)
            mad = np.median([abs(x - m) for x in self.past])
            if loss - m > max(self.k * 1.4826 * mad, self.margin):
                kind = "spike"
            else:
                self.past.append(loss)
        else:
            self.past.append(loss)
        new, self.ringing = kind if not self.ringing else None, bool(kind)
        return new


# %% wrong spike-alarm: NaN is found by != and inf is a number
#    idea: nan-is-the-only-nonfinite
SpikeAlarm = changed("not math.isfinite(loss)", "loss != loss")

# %% wrong spike-alarm: -inf is no fault
#    says: `see(-inf)` is None; "nonfinite" is wanted
SpikeAlarm = changed("not math.isfinite(loss)", "math.isnan(loss) or loss == math.inf")


# %% wrong spike-alarm: NaN by comparison, and the window of its own
#    says: 998 above the median
class SpikeAlarm(Given):
    def see(self, loss):
        self.past.append(loss)
        if loss > 1e6:
            return "nonfinite"
        return None


# %% wrong spike-alarm: while past fills, ringing is not reset
#    says: at step 30 `see(nan)` is None
#    says: The last fault before it ended with step 10
class SpikeAlarm(Given):
    def see(self, loss):
        if not math.isfinite(loss):
            if self.ringing:
                return None
            self.ringing = True
            return "nonfinite"
        if len(self.past) < self.past.maxlen:
            self.past.append(loss)
            return None
        median = statistics.median(self.past)
        mad = statistics.median(abs(x - median) for x in self.past)
        self.past.append(loss)
        if loss > median + max(self.k * 1.4826 * mad, self.margin):
            if self.ringing:
                return None
            self.ringing = True
            return "spike"
        self.ringing = False
        return None


# %% wrong spike-alarm: a fault ends the method before anything is stored
#    idea: faults-are-no-history
class SpikeAlarm(Given):
    def see(self, loss):
        if not math.isfinite(loss):
            if not self.ringing:
                self.ringing = True
                return "nonfinite"
            return None
        if len(self.past) == self.past.maxlen:
            median = statistics.median(self.past)
            mad = statistics.median(abs(x - median) for x in self.past)
            if loss > median + max(self.k * 1.4826 * mad, self.margin):
                if not self.ringing:
                    self.ringing = True
                    return "spike"
                return None
        self.ringing = False
        self.past.append(loss)


# %% wrong spike-alarm: the margin only where the MAD is 0
#    says: at step 60 `see(2.7)` is "spike"
#    says: 0.05102, 1) = 1, and the loss lies 0.7 above the median
SpikeAlarm = changed("max(self.k * 1.4826 * mad, self.margin)", "(self.k * 1.4826 * mad or self.margin)")

# %% wrong spike-alarm: a margin relative to the median
#    says: at step 80 `see(3.5)` is None
SpikeAlarm = changed("self.margin)", "self.margin * median)")


# %% wrong spike-alarm: a NaN counts where the window fills
#    says: NaN, and 30 before `past` is full
#    says: `past` holds 49 of 50 losses
class SpikeAlarm(Given):
    seen = 0

    def see(self, loss):
        kind = None
        if not math.isfinite(loss):
            kind = "nonfinite"
        elif self.seen >= self.past.maxlen:
            m = statistics.median(self.past)
            mad = statistics.median(abs(x - m) for x in self.past)
            if loss - m > max(self.k * 1.4826 * mad, self.margin):
                kind = "spike"
        if math.isfinite(loss):
            self.past.append(loss)
        self.seen += 1
        new, self.ringing = kind if not self.ringing else None, bool(kind)
        return new


# %% wrong spike-alarm: a loss at the limit is above it
#    says: = 1, and the loss lies 1 above the median
SpikeAlarm = changed("loss - median >", "loss - median >=")

# %% wrong spike-alarm: the window is full one loss early
#    says: `past` holds 49 of 50 losses
#    never: The loss was in `past` when you computed the baseline
SpikeAlarm = changed("len(self.past) == self.past.maxlen", "len(self.past) >= self.past.maxlen - 1")


# %% right layer-row: methods
def layer_row(weight, before, grad, scale):
    g = grad.float()
    some = (g.abs() > 0).sum()
    gone = ((g.abs() > 0) & (g.half() == 0)).sum()
    parts = [(g / scale).norm(), before.norm(), (weight - before).norm() / before.norm()]
    return torch.stack([*parts, torch.where(some > 0, gone / some, 0.0)])


# %% right layer-row: float64
def layer_row(weight, before, grad, scale):
    w, b, g = weight.double(), before.double(), grad.double() / scale
    norm = torch.linalg.norm
    count = torch.count_nonzero(g)
    kept = torch.count_nonzero((g * scale).abs() > 2**-25)
    share = (count - kept) / count.clamp(min=1)
    return torch.stack(
        [norm(g.ravel()), norm(b.ravel()), norm((w - b).ravel()) / norm(b.ravel()), share]
    )


# %% right layer-row: norms with a dtype
def layer_row(weight, before, grad, scale):
    def norm(x):
        return torch.linalg.vector_norm(x, dtype=torch.float32)

    lost = torch.logical_and(grad != 0, grad.abs() <= 2.0**-25)
    share = lost.float().sum() / torch.maximum(
        (grad != 0).float().sum(), torch.ones_like(lost[:1].sum())
    )
    return torch.stack(
        (norm(grad) / scale, norm(before), norm(weight - before) / norm(before), share.reshape(()))
    )


# %% right layer-row: square roots of sums of squares
def layer_row(weight, before, grad, scale):
    size = lambda x: x.float().square().sum().sqrt()
    nonzero = (grad != 0).sum()
    zero_in_half = (grad.half() == 0).sum() - (grad == 0).sum()
    share = (zero_in_half / nonzero).nan_to_num(nan=0.0)
    return torch.stack(
        [size(grad) / scale, size(before), size(weight - before) / size(before), share]
    )


# %% right layer-row: filled in place
def layer_row(weight, before, grad, scale):
    row = torch.zeros(4, device=weight.device)
    row[0] = grad.float().div(scale).norm()
    row[1] = before.norm(p=2)
    row[2] = torch.dist(weight, before) / row[1]
    row[3] = ((grad != 0) & (grad.abs() <= 2.0**-25)).sum() / (grad != 0).sum().clamp_min(1)
    return row


# %% right layer-row: cat of vectors of one element
def layer_row(weight, before, grad, scale):
    g = grad.flatten().to(torch.float32)
    nonzero = g.ne(0)
    mean = (nonzero & g.abs().le(2.0**-25)).sum() / nonzero.sum().clip(1)
    norms = torch._foreach_norm([g / scale, before.flatten(), (weight - before).flatten()])
    return torch.cat([norms[0][None], norms[1][None], (norms[2] / norms[1])[None], mean[None]])


# %% right layer-row: a list of tensors
def layer_row(weight, before, grad, scale):
    return list(ours.layer_row(weight, before, grad, scale))


# %% wrong layer-row: floats
#    idea: logging-is-free
#    says: in your line `nonzero = (g != 0).sum().item()`
def layer_row(weight, before, grad, scale):
    g = grad.float()
    nonzero = (g != 0).sum().item()
    lost = ((g != 0) & (g.abs() <= 2.0**-25)).sum().item()
    norms = (g / scale).norm().item(), before.norm().item(), (weight - before).norm().item()
    return torch.tensor([norms[0], norms[1], norms[2] / norms[1], lost / max(nonzero, 1)])


# %% wrong layer-row: an if on a tensor
#    idea: logging-is-free
#    says: if nonzero.sum() == 0
def layer_row(weight, before, grad, scale):
    norm = torch.linalg.vector_norm
    nonzero = grad != 0
    if nonzero.sum() == 0:
        share = torch.zeros((), device=grad.device)
    else:
        share = (nonzero & (grad.abs() <= 2.0**-25)).sum() / nonzero.sum()
    return torch.stack(
        [norm(grad.float()) / scale, norm(before), norm(weight - before) / norm(before), share]
    )


# %% wrong layer-row: elements taken out by a mask
#    idea: logging-is-free
#    says: torch.nonzero
def layer_row(weight, before, grad, scale):
    norm = torch.linalg.vector_norm
    g = grad.float()
    some = g[g != 0]
    share = (some.abs() <= 2.0**-25).sum() / max(some.numel(), 1)
    return torch.stack([norm(g) / scale, norm(before), norm(weight - before) / norm(before), share])


# %% wrong layer-row: on the CPU first
#    idea: logging-is-free
#    says: Cannot copy out of meta tensor
def layer_row(weight, before, grad, scale):
    return ours.layer_row(weight.cpu(), before.cpu(), grad.cpu(), scale)


# %% wrong layer-row: numpy
#    idea: logging-is-free
def layer_row(weight, before, grad, scale):
    w, b, g = (x.detach().numpy().astype(np.float64) for x in (weight, before, grad))
    nonzero = g != 0
    share = (nonzero & (abs(g) <= 2.0**-25)).sum() / max(nonzero.sum(), 1)
    norm = lambda x: np.linalg.norm(x.ravel())
    return torch.tensor([norm(g / scale), norm(b), norm(w - b) / norm(b), share])


# %% wrong layer-row: the scaled norm
#    says: row[0], the norm of the true gradient, is
#    says: without the division by `scale`
layer_row = changed("norm(scaled / scale)", "norm(scaled)")

# %% wrong layer-row: divided twice
#    says: row[0], the norm of the true gradient, is
layer_row = changed("norm(scaled / scale)", "norm(scaled / scale) / scale")

# %% wrong layer-row: the norm of the new weight
#    says: of `weight`, which is after the step
layer_row = changed("norm(before), norm(weight", "norm(weight), norm(weight")

# %% wrong layer-row: the change without a norm below it
#    says: if it is not divided by a norm
layer_row = changed("norm(weight - before) / norm(before)", "norm(weight - before)")

# %% wrong layer-row: norms subtracted
#    says: if the two norms are subtracted
layer_row = changed(
    "norm(weight - before) / norm(before)", "(norm(weight) - norm(before)) / norm(before)"
)

# %% wrong layer-row: lost of all
#    says: divided by the number of all gradients
layer_row = changed("nonzero.sum().clamp(min=1)", "nonzero.numel()")

# %% wrong layer-row: NaN where nothing is left
#    says: No gradient differs from 0
layer_row = changed(".clamp(min=1)", "")

# %% wrong layer-row: without the tie
#    says: if 2**-25, which is a tie, does not count as lost
layer_row = changed("<= 2.0**-25", "< 2.0**-25")

# %% wrong layer-row: the norm in FP16, squares by hand
#    idea: norms-fit-their-dtype
layer_row = changed("norm(scaled / scale)", "grad.square().sum().sqrt() / scale")

# %% wrong layer-row: the first dimension's norms
#    says: has shape (4, 40); (4,) is asked for
layer_row = changed(
    "norm = torch.linalg.vector_norm",
    "norm = lambda x: torch.linalg.vector_norm(x.reshape(len(x), -1), dim=1)",
    ", share]",
    ", share.expand(len(before))]",
)


# %% wrong layer-row: a dict
#    says: a tensor is asked for
def layer_row(weight, before, grad, scale):
    return dict(zip("abcd", ours.layer_row(weight, before, grad, scale)))


# %% wrong layer-row: unscaled in FP16
#    idea: unscaling-may-be-sixteen-bit
#    says: divided by `scale` in FP16
def layer_row(weight, before, grad, scale):
    nonzero = grad != 0
    lost = nonzero & (grad.abs() <= 2.0**-25)
    share = lost.sum() / nonzero.sum().clamp(min=1)
    norm = before.norm()
    return torch.stack([(grad / scale).float().norm(), norm, (weight - before).norm() / norm, share])


# %% wrong layer-row: negative gradients are all small
#    says: if every negative gradient counts as lost
def layer_row(weight, before, grad, scale):
    grad = grad.float()
    nonzero = grad != 0
    lost = nonzero & (grad <= 2.0**-25)
    share = lost.sum() / nonzero.sum().clamp(min=1)
    norm = before.norm()
    return torch.stack([grad.norm() / scale, norm, (weight - before).norm() / norm, share])


# %% right layer-row: numbers counted by the norm of order 0
def layer_row(weight, before, grad, scale):
    grad = grad.float()
    nonzero = torch.linalg.vector_norm(grad, ord=0)
    stays = torch.linalg.vector_norm(grad * (grad.abs() > 2**-25), ord=0)
    share = (nonzero - stays) / torch.maximum(nonzero, torch.ones_like(nonzero))
    return torch.stack(
        [
            torch.linalg.norm(grad) / scale,
            torch.linalg.norm(before),
            torch.linalg.norm(weight - before) / torch.linalg.norm(before),
            share,
        ]
    )


# %% wrong layer-row: the share that is kept
#    says: if it counts what FP16 keeps
layer_row = changed("share = lost.sum()", "share = (nonzero & ~lost).sum()")

# %% wrong layer-row: magnitudes added up
#    says: if magnitudes are added, not squares
layer_row = changed("norm = torch.linalg.vector_norm", "norm = lambda x: x.abs().sum()")

# %% wrong layer-row: the root of the mean square
#    says: if the mean of the squares is taken
layer_row = changed("norm = torch.linalg.vector_norm", "norm = lambda x: x.square().mean().sqrt()")


# %% wrong layer-row: the gradients of the run are unscaled
#    says: layer_row changes `grad`
def layer_row(weight, before, grad, scale):
    nonzero = grad != 0
    share = (nonzero & (grad.abs() <= 2.0**-25)).sum() / nonzero.sum().clamp(min=1)
    g = grad.float()
    g /= scale
    norm = torch.linalg.vector_norm
    return torch.stack([norm(g), norm(before), norm(weight - before) / norm(before), share])


# %% wrong layer-row: a mask takes elements out, and torch says so in a long message
#    idea: logging-is-free
#    says: implementation does not exist in your line
#    never: please set
def layer_row(weight, before, grad, scale):
    g = grad.float() / scale
    kept = grad[grad != 0]
    share = (kept.abs() <= 2.0**-25).sum() / max(kept.numel(), 1)
    size = before.norm()
    return torch.stack([g.norm(), size, (weight - before).norm() / size, share])


# %% right first-born: loops, a flag
class FirstNonfinite(GivenMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        bad_input = False
        for x in tree_leaves([args, kwargs]):
            if not finite(x):
                bad_input = True
        result = func(*args, **kwargs)
        if bad_input or self.found is not None:
            return result
        for x in tree_leaves(result):
            if not finite(x):
                self.found = str(func)
        return result


# %% right first-born: early return once found
class FirstNonfinite(GivenMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if kwargs is None:
            kwargs = {}
        if self.found:
            return func(*args, **kwargs)
        before = [finite(leaf) for leaf in tree_leaves(args) + tree_leaves(kwargs)]
        out = func(*args, **kwargs)
        after = [finite(leaf) for leaf in tree_leaves(out)]
        if all(before) and not all(after):
            self.found = f"{func}"
        return out


# %% right first-born: torch's tree_map
from torch.utils._pytree import tree_any


class FirstNonfinite(GivenMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        sick = tree_any(lambda x: not finite(x), (args, kwargs))
        out = func(*args, **kwargs)
        if not sick and tree_any(lambda x: not finite(x), out) and self.found is None:
            self.found = str(func)
        return out


# %% right first-born: it looks at the inputs afterwards as well
class FirstNonfinite(GivenMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        inputs = tree_leaves((args, kwargs or {}))
        healthy = all(finite(x) for x in inputs)
        out = func(*args, **(kwargs or {}))
        now = all(finite(x) for x in (*inputs, *tree_leaves(out)))
        self.found = self.found or (str(func) if healthy and not now else None)
        return out


# %% right first-born: a list of all births, the first by property
class FirstNonfinite(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.births = []

    @property
    def found(self):
        return self.births[0] if self.births else None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        healthy = not [x for x in tree_leaves((args, kwargs)) if not finite(x)]
        out = func(*args, **(kwargs or {}))
        if healthy and [x for x in tree_leaves(out) if not finite(x)]:
            self.births.append(str(func))
        return out


# %% right first-born: its own test of finite, tensors and floats
from torch.utils._pytree import tree_flatten


class FirstNonfinite(GivenMode):
    def well(self, tree):
        for x in tree_flatten(tree)[0]:
            if torch.is_tensor(x) and (x.is_floating_point() or x.is_complex()):
                if (x.isnan() | x.isinf()).any():
                    return False
            elif isinstance(x, float) and not math.isfinite(x):
                return False
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs={}):
        kwargs = kwargs or {}
        before = self.well([args, kwargs])
        out = func(*args, **kwargs)
        if before and not self.well(out) and not self.found:
            self.found = str(func)
        return out


# %% wrong first-born: a lazy map is asked after the call
#    idea: arguments-stay-as-they-were
FirstNonfinite = changed(
    "healthy = all(map(finite, tree_leaves((args, kwargs or {}))))",
    "leaves = map(finite, tree_leaves((args, kwargs or {})))",
    "and healthy",
    "and all(leaves)",
)


# %% wrong first-born: isinf alone
#    says: aten.sqrt.default is wanted. It makes a NaN
class FirstNonfinite(GivenMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        def inf(tree):
            return any(
                isinstance(x, float)
                and abs(x) == math.inf
                or isinstance(x, torch.Tensor)
                and x.is_floating_point()
                and x.isinf().any()
                for x in tree_leaves(tree)
            )

        before = inf((args, kwargs or {}))
        out = func(*args, **(kwargs or {}))
        if self.found is None and not before and inf(out):
            self.found = str(func)
        return out


# %% wrong first-born: +inf alone
#    says: an overflow to -inf
#    says: `found` is None; aten.add.Tensor is wanted
class FirstNonfinite(GivenMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        def bad(tree):
            return any(
                isinstance(x, torch.Tensor)
                and x.is_floating_point()
                and bool(((x == math.inf) | x.isnan()).any())
                for x in tree_leaves(tree)
            )

        before = bad((args, kwargs or {}))
        out = func(*args, **(kwargs or {}))
        if self.found is None and not before and bad(out):
            self.found = str(func)
        return out


# %% wrong first-born: tensors among the inputs alone, no numbers
#    says: `masked_fill` got -inf as its value
class FirstNonfinite(GivenMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        def well(tree):
            return all(finite(x) for x in tree_leaves(tree) if isinstance(x, torch.Tensor))

        before = well((args, kwargs or {}))
        out = func(*args, **(kwargs or {}))
        if self.found is None and before and not well(out):
            self.found = str(func)
        return out


# %% wrong first-born: the operator instead of its text
#    says: an OpOverload
#    says: the `str(func)` of an operator
FirstNonfinite = changed("self.found = str(func)", "self.found = func")

# %% wrong first-born: the operator's name
#    says: `found` is
#    says: aten.mul.Tensor is wanted
FirstNonfinite = changed("self.found = str(func)", "self.found = func.__name__")

# %% wrong first-born: nothing is returned
#    says: Does your method return what `func` returns, each time?
FirstNonfinite = changed("        return out\n", "")

# %% wrong first-born: the operator runs twice
#    says: under your mode the code gives
FirstNonfinite = changed("        return out\n", "        return func(*args, **(kwargs or {}))\n")

# %% wrong first-born: repaired on the way
#    says: under your mode the code gives
FirstNonfinite = changed(
    "        return out\n",
    "        return out.nan_to_num() if isinstance(out, torch.Tensor) else out\n",
)

# %% wrong first-born: the mode is left at the first birth
#    says: raised RuntimeError
FirstNonfinite = changed(
    "            self.found = str(func)\n",
    "            self.found = str(func)\n            raise RuntimeError(self.found)\n",
)


# %% wrong first-born: only the first output of a tuple or list
#    says: The first tensor of its output is finite
class FirstNonfinite(GivenMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        healthy = all(map(finite, tree_leaves((args, kwargs or {}))))
        out = func(*args, **(kwargs or {}))
        first = out[0] if isinstance(out, (tuple, list)) else out
        if self.found is None and healthy and not finite(first):
            self.found = str(func)
        return out


# %% wrong first-born: any of the inputs may be finite
#    says: `found` is
FirstNonfinite = changed("healthy = all(map", "healthy = any(map")

# %% wrong first-born: any for all in the output
#    says: `found` is None
FirstNonfinite = changed(
    "not all(map(finite, tree_leaves(out)))", "not any(map(finite, tree_leaves(out)))"
)


# %% wrong first-born: kwargs that are None are spread
#    says: the code under your mode raised
class FirstNonfinite(GivenMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **kwargs["more"])
        return out


# %% wrong first-born: the first argument only
#    says: `found` is
class FirstNonfinite(GivenMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        healthy = not args or finite(args[0])
        out = func(*args, **(kwargs or {}))
        if self.found is None and healthy and not all(map(finite, tree_leaves(out))):
            self.found = str(func)
        return out


# %% wrong first-born: kwargs that are None are passed on
#    says: must be a mapping, not NoneType
#    says: Here `kwargs` is None.
#    never: Does your method return
class FirstNonfinite(GivenMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        healthy = all(finite(x) for x in tree_leaves((args, kwargs)))
        out = func(*args, **kwargs)
        if self.found is None and healthy and not all(finite(x) for x in tree_leaves(out)):
            self.found = str(func)
        return out


# %% right first-born: tree_map into a list, of None as well
class FirstNonfinite(GivenMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen = []
        tree_map(lambda x: seen.append(finite(x)), [args, kwargs])
        out = func(*args, **dict(kwargs or {}))
        after = []
        tree_map(lambda x: after.append(finite(x)), out)
        if all(seen) and False in after and self.found is None:
            self.found = str(func)
        return out


# %% wrong first-born: keywords are dropped after the first find
#    says: [nan] in float32, and without it [nan] in float64
#    says: what does it hand to `func`
class FirstNonfinite(GivenMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self.found:
            return func(*args)
        healthy = all(map(finite, tree_leaves((args, kwargs or {}))))
        out = func(*args, **(kwargs or {}))
        if healthy and not all(map(finite, tree_leaves(out))):
            self.found = str(func)
        return out


# %% wrong first-born: a copy for the output, so that a view is none
#    says: all values finite: under your mode the code gives
FirstNonfinite = changed(
    "        return out\n", "        return out.clone() if torch.is_tensor(out) else out\n"
)


# %% right must-stay: recursion over halves, with the rest in FP32
def must_stay(names, good):
    def among(part, rest):
        if good(rest):
            return set()
        if len(part) == 1:
            return set(part)
        left, right = part[: len(part) // 2], part[len(part) // 2 :]
        found = among(left, rest | set(right))
        return found | among(right, rest | found)

    return among(list(names), set())


# %% right must-stay: bisect of the standard library
import bisect


def must_stay(names, good):
    keep = []
    while not good(set(keep)):
        place = bisect.bisect_left(
            range(len(names) + 1), True, key=lambda n: good({*keep, *names[:n]})
        )
        keep.append(names[place - 1])
    return frozenset(keep)


# %% right must-stay: suffixes from the back
def must_stay(names, good):
    keep = set()
    while good(keep) is False:
        low, high = 0, len(names) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if good(keep.union(names[middle:])):
                low = middle
            else:
                high = middle - 1
        keep.add(names[low])
    return keep


# %% right must-stay: a list, checked first that all in FP32 is good
def must_stay(names, good):
    assert good(names)
    found = []
    while True:
        if good(found):
            return found
        start, stop = 1, len(names)
        while start < stop:
            half = (start + stop) // 2
            start, stop = (start, half) if good(found + names[:half]) else (half + 1, stop)
        found = [*found, names[start - 1]]


# %% right must-stay: groups of shrinking size are dropped
def must_stay(names, good):
    wide, step = list(names), len(names)
    while step:
        at = 0
        while at < len(wide):
            rest = wide[:at] + wide[at + step :]
            if good(set(rest)):
                wide = rest
            else:
                at += step
        step //= 2
    return set(wide)


# %% right must-stay: recursion to the next culprit, a dict as an ordered set
def must_stay(names, good, keep=()):
    if good(dict.fromkeys(keep)):
        return set(keep)
    low, high = -1, len(names) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if good([*keep, *names[: middle + 1]]) else (middle, high)
    return must_stay(names, good, (*keep, names[high]))


# %% wrong must-stay: demote one at a time
#    says: your set is right, after 48 runs
def must_stay(names, good):
    return {name for name in names if not good(set(names) - {name})}


# %% wrong must-stay: demote one after the other, for good
#    says: your set is right, after 48 runs
def must_stay(names, good):
    wide = set(names)
    for name in names:
        if good(wide - {name}):
            wide = wide - {name}
    return wide


# %% wrong must-stay: promote in order until it is good
#    idea: widening-is-free
def must_stay(names, good):
    wide = set()
    for name in names:
        if good(wide):
            break
        wide.add(name)
    return wide


# %% wrong must-stay: the shortest good prefix, by bisection
#    idea: widening-is-free
def must_stay(names, good):
    if good(set()):
        return set()
    low, high = 0, len(names)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if good(set(names[:middle])) else (middle, high)
    return set(names[:high])


# %% wrong must-stay: off by one, the module before the culprit
#    says: runs had layer3 in FP32, and only layer4 must stay there
must_stay = changed("{names[high - 1]}", "{names[low - 1]}")


# %% wrong must-stay: both halves are kept where neither repairs
#    says: need no FP32
def must_stay(names, good):
    part = list(names)
    if good(set()):
        return set()
    while len(part) > 1:
        left, right = part[: len(part) // 2], part[len(part) // 2 :]
        if good(set(left)):
            part = left
        elif good(set(right)):
            part = right
        else:
            return set(part)
    return set(part)


# %% wrong must-stay: recursion into each half, without the other one in FP32
#    says: `good` is False, because
def must_stay(names, good):
    if good(set()) or not names:
        return set()
    if len(names) == 1:
        return set(names) if good(set(names)) else set()
    half = len(names) // 2
    return must_stay(names[:half], good) | must_stay(names[half:], good)


# %% wrong must-stay: pairs of neighbours
#    says: with
def must_stay(names, good):
    for a, b in itertools.pairwise(names):
        if good({a, b}):
            return {a, b}
    return set()


# %% wrong must-stay: the culprit found last takes the place of the first
#    idea: each-search-starts-anew
must_stay = changed("keep = keep | {names[high - 1]}", "keep = {names[high - 1]}")


# %% wrong must-stay: a name for a set
#    says: good takes a set of module names; it got 'layer0'
def must_stay(names, good):
    return {name for name in names if good(name)}


# %% wrong must-stay: places for names
#    says: good takes module names; 0 is none
def must_stay(names, good):
    return {names[i] for i in range(len(names)) if good({i})}


# %% wrong must-stay: an index comes back
#    says: your set holds
#    says: which is the name of no module
def must_stay(names, good):
    return {names.index(name) for name in ours.must_stay(names, good)}


# %% wrong must-stay: nothing comes back
#    says: `must_stay` returned None; a set of module names is asked for
def must_stay(names, good):
    ours.must_stay(names, good)


# %% wrong must-stay: all from the first to the last culprit
#    says: need no FP32
def must_stay(names, good):
    if good(set()):
        return set()
    low, high = 0, len(names)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if good(names[:middle]) else (middle, high)
    last, low, high = high, -1, high - 1
    start, stop = 0, last
    while stop - start > 1:
        middle = (start + stop) // 2
        start, stop = (middle, stop) if good(names[middle:]) else (start, middle)
    return set(names[start:last])


# %% wrong must-stay: the last of the shortest prefix and the first of the shortest suffix
#    says: 12 modules, four culprits: with layer
def must_stay(names, good):
    if good(set()):
        return set()
    low, high = 0, len(names)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if good(names[:middle]) else (middle, high)
    start, stop = 0, len(names)
    while stop - start > 1:
        middle = (start + stop) // 2
        start, stop = (middle, stop) if good(names[middle:]) else (start, middle)
    return {names[high - 1], names[start]}


# %% wrong must-stay: every subset, the smallest first
#    says: your search went on after 1000 runs
def must_stay(names, good):
    for size in range(len(names)):
        for some in itertools.combinations(names, size):
            if good(set(some)):
                return set(some)


# %% wrong must-stay: the FP16 modules instead
#    says: because layer4 is missing
def must_stay(names, good):
    return set(names) - ours.must_stay(names, good)


# %% right must-stay: only before the culprit found last
def must_stay(names, good):
    keep, end = [], len(names)
    while not good(set(keep)):
        low, high = 0, end
        while low + 1 < high:
            mid = low + (high - low) // 2
            low, high = (low, mid) if good({*keep, *names[:mid]}) else (mid, high)
        keep.append(names[low])
        end = low
    return set(keep)


# %% right must-stay: candidates cut out of a list
def must_stay(names, good):
    keep, left = set(), list(names)
    while not good(keep):
        part = left
        outside = set()
        while len(part) > 1:
            first, second = part[: len(part) // 2], part[len(part) // 2 :]
            if good(keep | outside | set(first)):
                part = first
            else:
                outside |= set(first)
                part = second
        keep.add(part[0])
        left.remove(part[0])
    return keep


# %% wrong must-stay: off by one, the module behind the prefix
#    says: runs had layer5 in FP32, and only layer4 must stay there
def must_stay(names, good):
    keep = set()
    while not good(keep):
        low, high = 0, len(names)
        while high - low > 1:
            middle = (low + high) // 2
            if good(keep | set(names[:middle])):
                high = middle
            else:
                low = middle
        keep.add(names[high])
    return keep


# %% wrong must-stay: good read the wrong way round
#    says: runs had layer47 in FP32, and only layer4 must stay there
def must_stay(names, good):
    keep = set()
    while not good(keep):
        low, high = 0, len(names)
        while high - low > 1:
            middle = (low + high) // 2
            if good(keep | set(names[:middle])):
                low = middle
            else:
                high = middle
        keep.add(names[high - 1])
    return keep


# %% wrong must-stay: the kept set swallows the prefix
#    says: 23 of your 24 need no FP32
def must_stay(names, good):
    keep = set()
    while not good(keep):
        low, high = 0, len(names)
        while high - low > 1:
            middle = (low + high) // 2
            keep |= set(names[:middle])
            if good(keep):
                high = middle
            else:
                low = middle
        keep.add(names[high - 1])
    return keep


# %% wrong must-stay: two culprits, then it stops
#    says: because layer1, layer4 are missing
def must_stay(names, good):
    keep = set()
    for _ in range(2):
        if good(keep):
            break
        low, high = 0, len(names)
        while high - low > 1:
            middle = (low + high) // 2
            if good(keep | set(names[:middle])):
                high = middle
            else:
                low = middle
        keep.add(names[high - 1])
    return keep


# %% wrong must-stay: the next search begins behind the culprit
#    says: had layer28, layer29 ... layer47 (20 modules) in FP32
#    never: What does your second search keep
def must_stay(names, good):
    keep, low = set(), 0
    while not good(keep):
        high = len(names)
        while high - low > 1:
            middle = (low + high) // 2
            if good(keep | set(names[:middle])):
                high = middle
            else:
                low = middle
        keep.add(names[high - 1])
        low = high
    return keep


# %% wrong must-stay: six halvings, as many as 48 modules need
#    says: 200 modules, three culprits
must_stay = changed("while high - low > 1:", "for _ in range(6):")


# %% right same-sum: numpy
def tolerance(a, b):
    products = np.abs(a.numpy().astype(np.float64) * b.numpy().astype(np.float64))
    nu = len(products) * np.float64(2) ** -24
    return 2 * nu / (1 - nu) * products.sum()


# %% right same-sum: a matmul in float32
def tolerance(a, b):
    gamma = a.numel() * 2**-24 / (1 - a.numel() * 2**-24)
    return 2 * gamma * (a.abs() @ b.abs())


# %% right same-sum: eps of float32
def tolerance(a, b):
    nu = len(a) * torch.finfo(torch.float32).eps / 2
    return (2 * nu / (1 - nu) * torch.dot(a.abs().double(), b.abs().double())).item()


# %% right same-sum: fsum
def tolerance(a, b):
    total = math.fsum(abs(x * y) for x, y in zip(a.tolist(), b.tolist()))
    n, u = a.shape[0], 1 / 2**24
    return total * (2 * n * u) / (1 - n * u)


# %% right same-sum: the norm of the products
def tolerance(a, b):
    n = torch.tensor(len(a), dtype=torch.float64)
    gamma = n / (2.0**24 - n)
    return 2 * gamma * torch.linalg.vector_norm(a.double() * b.double(), ord=1)


# %% right same-sum: einsum
def tolerance(a, b):
    u = np.finfo(np.float32).eps / 2
    return (
        float(torch.einsum("i,i->", a.double().abs(), b.double().abs()))
        / (1 / (len(a) * u) - 1)
        * 2
    )


# %% wrong same-sum: a relative tolerance of the result
#    says: Two orders of the additions give
def tolerance(a, b):
    return 1e-5 * abs((a.double() @ b.double()).item())


# %% wrong same-sum: the sum first, then its magnitude
#    idea: a-tolerance-follows-the-result
def tolerance(a, b):
    nu = len(a) * 2.0**-24
    return 2 * nu / (1 - nu) * float(torch.abs(torch.dot(a.double(), b.double())))


# %% wrong same-sum: magnitudes of the sums of each vector
#    says: with the sums of |a| and of |b|, each by itself
#    says: your tolerance lets it pass
def tolerance(a, b):
    nu = len(a) * 2.0**-24
    return 2 * nu / (1 - nu) * float(a.abs().sum() * b.abs().sum())


# %% wrong same-sum: eps
#    idea: u-is-eps
def tolerance(a, b):
    nu = len(a) * torch.finfo(torch.float32).eps
    return 2 * nu / (1 - nu) * (a * b).abs().sum().item()


# %% wrong same-sum: on one side
#    idea: one-order-is-exact
def tolerance(a, b):
    nu = len(a) * 2.0**-24
    return nu / (1 - nu) * (a * b).abs().sum().item()


# %% wrong same-sum: without the denominator
#    says: without the division by 1 - n u
tolerance = changed("n * u / (1 - n * u)", "n * u")

# %% wrong same-sum: a plus in the denominator
#    says: 100,000 products
tolerance = changed("(1 - n * u)", "(1 + n * u)")


# %% wrong same-sum: n times the largest product
#    says: with the largest product in the place of the sum
def tolerance(a, b):
    nu = len(a) * 2.0**-24
    return 2 * nu / (1 - nu) * (a * b).abs().max().item()


# %% wrong same-sum: the root of n, as random roundings would give
#    says: with the root of n in the place of n
tolerance = changed("n, u = len(a), 2.0**-24", "n, u = len(a) ** 0.5, 2.0**-24")

# %% wrong same-sum: one rounding
#    says: without n
tolerance = changed("n, u = len(a), 2.0**-24", "n, u = 1, 2.0**-24")

# %% wrong same-sum: FP16's u
#    says: is wanted
tolerance = changed("2.0**-24", "2.0**-11")


# %% wrong same-sum: a tensor of all products
#    says: one number is asked for
def tolerance(a, b):
    nu = len(a) * 2.0**-24
    return 2 * nu / (1 - nu) * (a * b).abs()


# %% wrong same-sum: eps and one side
#    says: for one order and with u = 2**-23
def tolerance(a, b):
    n, u = len(a), torch.finfo(torch.float32).eps
    gamma = n * u / (1 - n * u)
    return gamma * (a.double() * b.double()).abs().sum().item()


# %% wrong same-sum: gamma without the sum
#    says: without the sum
def tolerance(a, b):
    n, u = len(a), 2.0**-24
    return 2 * n * u / (1 - n * u)


# %% wrong same-sum: n - 1 roundings
#    says: with the example
#    says: with n - 1 in the place of n
def tolerance(a, b):
    n, u = len(a) - 1, 2.0**-24
    gamma = n * u / (1 - n * u)
    return 2 * gamma * (a.double() * b.double()).abs().sum().item()


# %% wrong same-sum: the product of two norms
#    says: the product of the norms
def tolerance(a, b):
    n, u = len(a), 2.0**-24
    gamma = n * u / (1 - n * u)
    return 2 * gamma * (a.double().norm() * b.double().norm()).item()


# %% wrong same-sum: relative to the sum, a ratio
#    says: divided by the magnitude of the sum
def tolerance(a, b):
    n, u = len(a), 2.0**-24
    gamma = n * u / (1 - n * u)
    p = a.double() * b.double()
    return (2 * gamma * p.abs().sum() / p.sum().abs()).item()


# %% wrong same-sum: u of float64
#    says: the u of float64
def tolerance(a, b):
    n, u = len(a), 2.0**-53
    gamma = n * u / (1 - n * u)
    return 2 * gamma * (a.double() * b.double()).abs().sum().item()


# %% wrong same-sum: never below a fixed tolerance
#    says: products around 1e-30
#    says: your tolerance lets it pass
def tolerance(a, b):
    n, u = len(a), 2.0**-24
    gamma = n * u / (1 - n * u)
    return max(2 * gamma * (a.double() * b.double()).abs().sum().item(), 1e-6)


# %% wrong same-sum: two orders, measured
#    says: Two orders of the additions give
def tolerance(a, b):
    products = a * b
    forward = backward = torch.zeros((), dtype=torch.float32)
    for x in products:
        forward = forward + x
    for x in products.flip(0):
        backward = backward + x
    return abs(forward - backward).item()


# %% wrong same-sum: 4 gamma, which is no eps
#    says: with 4 gamma in the place of 2 gamma
tolerance = changed("return 2 * gamma", "return 4 * gamma")


# %% wrong same-sum: the products take the place of a
#    says: tolerance changes its arguments
def tolerance(a, b):
    n, u = len(a), 2.0**-24
    return 2 * n * u / (1 - n * u) * a.mul_(b).double().abs().sum().item()


# %% wrong spike-alarm: labkit's monitor
#    says: uses `labkit.measuring.monitor.Monitor`
class SpikeAlarm:
    def __init__(self, window=50, k=6.0, margin=1.0):
        from labkit.measuring.monitor import Monitor

        self.monitor = Monitor(window=window, k=k, margin=margin, stall=None)
        self.ringing = False

    def see(self, loss):
        rest = {"grad_norm": 1.0, "loss_scale": 1.0, "skipped": False}
        kind = next((fault.kind for fault in self.monitor.see({"loss": loss} | rest)), None)
        kind = "spike" if kind == "loss spike" else kind
        kind, self.ringing = None if self.ringing else kind, bool(self.monitor._lasting)
        return kind


# %% wrong spike-alarm: labkit's baseline
#    says: uses `labkit.measuring.monitor.Baseline`
class SpikeAlarm:
    def __init__(self, window=50, k=6.0, margin=1.0):
        from labkit.measuring.monitor import Baseline

        self.before, self.ringing = Baseline(window, k, margin), False

    def see(self, loss):
        limit, kind = self.before.limit(), None
        if not math.isfinite(loss):
            kind = "nonfinite"
        else:
            kind = "spike" if limit is not None and loss > limit else None
            self.before.past.append(loss)
        kind, self.ringing = None if self.ringing else kind, kind is not None
        return kind


# %% wrong spike-alarm: the rules of labkit's AlarmBench
#    says: uses `labkit.labs.monitoring_and_debugging.alarm_rules.normal`
class SpikeAlarm:
    def __init__(self, window=50, k=6.0, margin=1.0):
        self.losses, self.window, self.settings = [1.0] * window, window, {"k": k, "margin": margin}

    def see(self, loss):
        from labkit.labs.monitoring_and_debugging import alarm_rules as rules

        self.losses.append(loss)
        losses, how = np.array(self.losses), {"rule": "median", "window": self.window}
        limit = rules.limits(rules.normal(losses, **how), **how, **self.settings)
        limit[: 2 * self.window] = np.inf
        rings = rules.alarms(losses, limit)[-1:] == len(losses) - 1
        return ("spike" if math.isfinite(loss) else "nonfinite") if rings.any() else None
