"""Check of lab 09: SmoothQuant's rescaling of a LayerNorm and the linear layer that reads it."""

import torch
import torch.nn.functional as F
from torch import nn

from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import seeded
from labkit.labs.engine.reading import failure

LAB = "09_quantization"

RAISED = "{name}: your smooth raised {error}."
MOVED = (
    "{name}: linear's output moved by {moved:.2g} of its size; it must stay what it was. Channel "
    "{channel:d} of norm's output was {before} for one input, and is {after} now."
)
OTHER_BIAS = (
    "{name}: linear's output moved by {moved:.2g} of its size; it must stay what it was. Your "
    "smooth changed linear's bias, which is added after the matmul: s has no part in it."
)
OTHER_SIZE = (
    "{name}: linear's output stays, and channel {channel:d} of norm's output now reaches {got}; "
    "{want} is wanted. amax is {amax} there, the largest |weight| of the column {column}, and so "
    "s is {s}. {why}"
)
UNCHANGED = "norm and linear hold what they held before. Which of your lines writes into them?"
EXCHANGED = "Your s has the exponents alpha and 1 - alpha exchanged."
ALWAYS_HALF = "Your s comes out if alpha is always 0.5."
WITH_SIGN = "Your s comes out if the largest weight of a column is taken with its sign."
ONE_FOR_ALL = "Your s is the same in all channels; each channel has an s of its own."
AT_LEAST_1 = "Your s is never below 1. Here it must be, which makes a small channel larger."

_CASES = {  # channels, outputs, alpha, whether a channel and a column are 0
    "16 channels to 8 outputs": (16, 8, 0.5, False),
    "16 channels to 16 outputs, alpha 0.8": (16, 16, 0.8, False),
    "a channel and a column of zeros": (12, 6, 0.3, True),
}


def _layers(name, seed):
    """A LayerNorm with a large channel 3 and a small channel 7, the linear layer, and amax."""
    width, out, _, dead = _CASES[name]
    norm, linear = nn.LayerNorm(width), nn.Linear(width, out)
    with torch.no_grad():
        norm.weight.copy_(1 + 0.3 * seeded(seed, width))
        norm.weight[3] = 40.0
        norm.bias.copy_(seeded(seed + 100, width))
        norm.weight[7] /= 100  # here s is below 1
        norm.bias[7] /= 100
        linear.weight.copy_(seeded(seed + 200, out, width) / width**0.5)
        linear.bias.copy_(seeded(seed + 300, out))
        if dead:
            norm.weight[1] = norm.bias[1] = 0.0
            linear.weight[:, 5] = 0.0
        return norm, linear, norm(_inputs(width, seed)).abs().amax(dim=0)


def _inputs(width, seed):
    return seeded(seed + 400, 64, width)


def _state(norm, linear):
    return [p.detach().clone() for p in (norm.weight, norm.bias, linear.weight, linear.bias)]


def run_smooth(smooth, seed):
    """The parameters of both layers after each call."""
    seen = {}
    for name, (_, _, alpha, _) in _CASES.items():
        norm, linear, amax = _layers(name, seed)
        failed = attempt(smooth, norm, linear, amax, alpha)
        seen[name] = failed if type(failed) is Raised else attempt(_state, norm, linear)
    return seen


@check(run_smooth)
def check_smooth(seen, seed):
    """The size moves from the activations into the weight, and the output stays."""
    for name, (width, _, alpha, _) in _CASES.items():
        if type(seen[name]) is Raised:
            raise AnswerError(RAISED, name=name, error=failure(seen[name]))
        norm, linear, amax = _layers(name, seed)
        columns, amax = linear.weight.detach().abs().amax(dim=0).double(), amax.double()
        normed = F.layer_norm(_inputs(width, seed).double(), (width,), eps=norm.eps)
        given = _state(norm, linear)
        old, want = _outputs(given, normed)
        new, got = _outputs(seen[name], normed)
        moved = ((got - want).norm() / want.norm()).item()
        if not moved <= 1e-6:  # each parameter is rounded twice, to 2**-24 of itself
            if not torch.equal(seen[name][3], given[3]):
                raise Mistake(OTHER_BIAS, name=name, moved=moved)
            far = (new - old).norm(dim=0).nan_to_num(torch.inf)
            at = int(far.argmax())
            before, after = old[0, at].item(), new[0, at].item()
            raise Mistake(MOVED, name=name, moved=moved, channel=at, before=before, after=after)
        s = amax**alpha / columns ** (1 - alpha)
        got, want = new.abs().amax(dim=0), amax / s
        # Two powers and a quotient in float32; of a channel of zeros any s is right.
        off = ~((got - want).abs() <= 1e-5 * want) & (amax > 0) & (columns > 0)
        if off.any():
            shown = {"got": got, "want": want, "amax": amax, "column": columns, "s": s}
            at = int(off.nonzero()[0])
            shown = {key: value[at].item() for key, value in shown.items()}
            same = all(map(torch.equal, seen[name], given))
            signed = linear.weight.detach().amax(dim=0).double()
            live = (amax > 0) & (columns > 0)
            each = (t[live] for t in (amax / got, s, amax, columns, signed))
            why = UNCHANGED if same else _explained(alpha, *each)
            raise Mistake(OTHER_SIZE, name=name, channel=at, why=why, **shown)


def _explained(alpha, got, s, amax, columns, signed):
    """The sentence of the mistake that gives this s in all channels, or ""."""
    if torch.allclose(got, got[0].expand_as(got), rtol=1e-5):
        return ONE_FOR_ALL
    positive = signed > 0  # with a negative one no power is defined
    others = {
        EXCHANGED: amax ** (1 - alpha) / columns**alpha,
        ALWAYS_HALF: (amax / columns).sqrt(),
        WITH_SIGN: torch.where(positive, amax**alpha / signed ** (1 - alpha), got),
        AT_LEAST_1: s.clamp(min=1),
    }
    return next((why for why, other in others.items() if torch.allclose(got, other, rtol=1e-5)), "")


def _outputs(state, normed):
    """What the LayerNorm and the linear layer make of normed inputs, in float64."""
    gain, shift, weight, bias = (p.double() for p in state)
    inner = normed * gain + shift
    return inner, inner @ weight.T + bias


check_smooth.slip(
    "a-norm-is-its-gain",
    "A LayerNorm adds its bias after the gain. Which other tensor of norm makes channel j large?",
    cut="norm.bias /= s",
)
check_smooth.slip(
    "activations-scale-alone",
    "A smaller channel makes the next layer's output smaller. Which tensor makes up for it?",
    cut="linear.weight *= s",
)
check_smooth.slip(
    "scale-is-its-inverse",
    "The large channel became larger. Which of the tensors must be divided by s?",
    swap=("norm.weight /= s\n    norm.bias /= s\n    linear.weight *= s",
          "norm.weight *= s\n    norm.bias *= s\n    linear.weight /= s"),
)  # fmt: skip
check_smooth.slip(
    "smoothing-evens-out-the-activations",
    "All channels of the activations are equally large now, and the weight bears all of it. Where "
    "does the weight stand in the formula of s?",
    swap=("amax**alpha / columns ** (1 - alpha)", "amax.clone()"),
)
check_smooth.slip(
    "alpha-is-for-both",
    "At alpha 0.5 this makes no difference. Which exponent has the weight?",
    swap=("columns ** (1 - alpha)", "columns**alpha"),
)
check_smooth.slip(
    "every-channel-is-alive",
    "A channel of zeros has amax 0. What do s and the quotient become?",
    cut="s[(amax == 0) | (columns == 0)] = 1.0",
)
