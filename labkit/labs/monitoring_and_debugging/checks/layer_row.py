"""Check of lab 11's row of a layer: its four numbers, and that no device is waited for."""

import numpy as np
import torch

from labkit.labs.engine import AnswerError, Mistake, attempt, check, tensor
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import brief
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import in_line

LAB = "11_monitoring_and_debugging"

WAITS = (
    "The four numbers are right. But with tensors of the meta device, which hold no values, "
    "layer_row raised {error}. What asks for a value makes the program wait for a GPU."
)
MOVED = (
    "The four numbers are right. But with tensors of the meta device, layer_row returns {came}: a "
    "copy to the CPU waits for a GPU."
)
TWO_DEVICES = (
    "The four numbers are right. But with tensors of the meta device, layer_row raised {error}. On "
    "which device do you make tensors of your own?"
)
CHANGED = (
    "layer_row changes {names}: after the call it holds other values, and the training step goes "
    "on with them. `.float()` of a float32 tensor makes no copy. Which operations return a new "
    "tensor?"
)
OTHER = "layer_row with {name}: {what} is {got}; {want} is wanted. {why}"
NOT_IN_FP16 = "The gradients are FP16, and the sum of their squares is above 65504."
NONE_LEFT = "No gradient differs from 0, so the share is 0 of none: 0."
ONE_CAUSE = "That is what comes out {how}."

_COLUMNS = (
    "row[0], the norm of the true gradient,",
    "row[1], the norm of `before`,",
    "row[2], the relative update,",
    "row[3], the share that FP16 rounds to 0,",
)
_SCALE = 1024.0


def _layers(seed):
    """By name: weight, before, grad and scale."""
    draw = torch.Generator().manual_seed(seed)
    before = torch.randn(40, 50, generator=draw)
    weight = before - 0.5 * torch.randn(40, 50, generator=draw)
    sizes = 2.0 ** torch.randint(-32, 4, (40, 50), generator=draw)
    grad = torch.randn(40, 50, generator=draw) * sizes
    grad[:5] = 0
    grad[5:8] = 2.0**-25
    one = torch.tensor([4.0]), torch.tensor([2.0]), torch.tensor([-3.0])
    return {
        "gradients from 2**-32 to 2**3, some of them 0": (weight, before, grad, _SCALE),
        "FP16 gradients of 30000": (weight, before, torch.full((40, 50), 3e4).half(), _SCALE),
        "FP16 gradients of 2**-17": (
            weight,
            before,
            torch.full((40, 50), 2.0**-17).half(),
            _SCALE,
        ),
        "gradients that are all 0": (weight, before, torch.zeros(40, 50), _SCALE),
        "one element": (*one, 2.0),
    }


def run_layer_row(layer_row, seed):
    """Each row, the inputs that changed, and what comes of tensors without values.

    Of the last an exception, or devices.
    """
    layers = _layers(seed)
    rows = {name: attempt(layer_row, *layer) for name, layer in layers.items()}
    changed = [
        argument
        for place, argument in enumerate(("weight", "before", "grad"))
        if any(
            not torch.equal(layers[name][place], layer[place])
            for name, layer in _layers(seed).items()
        )
    ]
    empty = [torch.empty(4, 4, device="meta") for _ in range(3)]
    return rows, changed, _devices(attempt(layer_row, *empty, _SCALE))


def _devices(row):
    """Where the tensors of a row lie, in words; a ``Raised`` stays."""
    if type(row) is Raised:
        return row
    parts = row if isinstance(row, (list, tuple)) else [row]
    kinds = {x.device.type if isinstance(x, torch.Tensor) else "cpu" for x in parts}
    return "meta" if kinds == {"meta"} else "a tensor on the CPU"


@check(run_layer_row)
def check_layer_row(shown, seed):
    """Four numbers of a layer, as a tensor that stays where the layer is."""
    rows, changed, without_values = shown
    if changed:
        raise Mistake(CHANGED, names=" and ".join(f"`{argument}`" for argument in changed))
    for name, layer in _layers(seed).items():
        call = f"layer_row with {name}"
        got = tensor(rows[name], call=call, shape=(4,)).double().tolist()
        others = _others(*layer)
        for place, want in enumerate(_row(*layer)):
            # Sums of 2,000 squares in float32: 2,000 roundings at most, halved by the root.
            if not abs(got[place] - want) <= 1e-4 * abs(want):
                why, idea = _why(got[place], want, place, name, others)
                raise Mistake(
                    OTHER,
                    misconception=idea,
                    name=name,
                    what=_COLUMNS[place],
                    got=got[place],
                    want=want,
                    why=why,
                )
    if type(without_values) is Raised:
        error = brief(without_values) + in_line(without_values)
        if "expected device" in without_values.message:
            raise AnswerError(TWO_DEVICES, error=error)
        raise Mistake(WAITS, error=error, misconception="logging-is-free")
    if without_values != "meta":
        raise Mistake(MOVED, came=str(without_values), misconception="logging-is-free")


def _row(weight, before, grad, scale):
    weight, before, grad = (x.double().numpy() for x in (weight, before, grad))
    size = np.linalg.norm
    nonzero = grad != 0
    lost = nonzero & (np.abs(grad) <= 2.0**-25)
    moved = size((weight - before).ravel()) / size(before.ravel())
    share = lost.sum() / max(nonzero.sum(), 1)
    return [size((grad / scale).ravel()), size(before.ravel()), moved, share]


def _others(weight, before, grad, scale):
    """What each mistake gives, by the place of the number: how it is said, and its idea."""
    size = torch.linalg.vector_norm
    unscaled = size((grad / scale).double()).item()
    weight, before, grad = (x.double() for x in (weight, before, grad))
    nonzero = (grad != 0).double()
    count = max(nonzero.sum().item(), 1)

    def share(below, g=grad):
        return ((g != 0) & below).sum().item() / count

    return {
        0: {
            ("without the division by `scale`", None): size(grad).item(),
            ("if it is multiplied by `scale` once more", None): size(grad * scale).item(),
            ("if its square root is not taken", None): size(grad / scale).item() ** 2,
            ("if magnitudes are added, not squares", None): (grad / scale).abs().sum().item(),
            ("if the mean of the squares is taken, not their sum", None): (
                (grad / scale).square().mean().sqrt().item()
            ),
            ("if FP16 gradients are divided by `scale` in FP16",
             "unscaling-may-be-sixteen-bit"): unscaled,
        },
        1: {("of `weight`, which is after the step", None): size(weight).item()},
        2: {
            ("if the change is divided by the norm of the weight after the step",
             "ratio-to-after"): (size(weight - before) / size(weight)).item(),
            ("if it is not divided by a norm", None): size(weight - before).item(),
            ("if the two norms are subtracted", None): (
                (size(weight) - size(before)) / size(before)
            ).item(),
        },
        3: {
            ("if exact zeros count as lost", "zero-means-underflow"): (
                (grad.abs() <= 2.0**-25).double().mean().item()
            ),
            ("if it is divided by the number of all gradients", None): (
                share(grad.abs() <= 2.0**-25) * count / grad.numel()
            ),
            ("if all values below the smallest normal one, 2**-14, count as lost",
             "lost-means-below-normal"): share(grad.abs() < 2.0**-14),
            ("if all values below 2**-24 count as lost", "lost-means-below-smallest"): (
                share(grad.abs() < 2.0**-24)
            ),
            ("if it counts what FP16 keeps", None): share(grad.abs() > 2.0**-25),
            ("if every negative gradient counts as lost", None): share(grad <= 2.0**-25),
            ("if 2**-25, which is a tie, does not count as lost", None): (
                share(grad.abs() < 2.0**-25)
            ),
            ("if the gradients are divided by `scale` first", "fp16-sees-true-gradients"): (
                share((grad / scale).abs() <= 2.0**-25)
            ),
        },
    }  # fmt: skip


def _why(got, want, place, name, others):
    """The one mistake that gives this number, and its idea."""
    if "all 0" in name and place == 3:
        return NONE_LEFT, None
    if place == 0 and "FP16" in name and np.isinf(got):
        return NOT_IN_FP16, "norms-fit-their-dtype"
    fitting = [
        key
        for key, other in others[place].items()
        if abs(got - other) <= 1e-4 * abs(other) and abs(other - want) > 1e-3 * abs(want)
    ]
    if len(fitting) != 1:
        return "", None
    how, idea = fitting[0]
    return fill(ONE_CAUSE, how=how), idea


_SHARE = "lost = nonzero & (scaled.abs() <= 2.0**-25)"

check_layer_row.slip(
    "logging-is-free",
    "Which line asks for a value, and how does it give a tensor whose shape depends on no value?",
    swap=("torch.stack(", "torch.tensor("),
)
check_layer_row.slip(
    "norms-fit-their-dtype",
    "In which dtype did you add the squares?",
    swap=("norm(scaled / scale)", "norm(grad) / scale"),
)
check_layer_row.slip(
    "unscaling-may-be-sixteen-bit",
    "2**-17 / 1024 is 2**-27, which FP16 rounds to 0. In which dtype do you divide?",
    swap=("norm(scaled / scale)", "norm((grad / scale).float())"),
)
check_layer_row.slip(
    "zero-means-underflow",
    "A gradient that is 0 in FP32 too loses nothing. By which number do you divide?",
    swap=("lost.sum() / nonzero.sum().clamp(min=1)", "(scaled.abs() <= 2.0**-25).float().mean()"),
)
check_layer_row.slip(
    "lost-means-below-normal",
    "Below 2**-14 FP16 has subnormals. From which magnitude on does it round to 0?",
    swap=("<= 2.0**-25", "< 2.0**-14"),
)
check_layer_row.slip(
    "lost-means-below-smallest",
    "A value above half of the smallest one rounds up to it. Where is this half?",
    swap=("<= 2.0**-25", "< 2.0**-24"),
)
check_layer_row.slip(
    "fp16-sees-true-gradients",
    "FP16 holds the gradient multiplied by the scale. Which of the two do you compare?",
    swap=(_SHARE, "lost = nonzero & ((scaled / scale).abs() <= 2.0**-25)"),
)
check_layer_row.slip(
    "ratio-to-after",
    "The step starts from the weight before it. By the norm of which weight do you divide?",
    swap=("norm(weight - before) / norm(before)", "norm(weight - before) / norm(weight)"),
)
