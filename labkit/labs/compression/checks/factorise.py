"""Check of lab 10: a linear layer as two of a smaller rank, judged by Eckart and Young's bound."""

import torch
from torch import nn

from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import seeded
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure

LAB = "10_compression"

RAISED = "{name}: your factorise raised {error}."
OTHER_PARTS = "{name}: your factorise returned {got}; an nn.Sequential of two nn.Linear is wanted."
CHANGED = (
    "{name}: after your call, the caller's {what} is another than before. Which line writes into "
    "it?"
)
OTHER_KIND = (
    "{name}: after your call, the caller's {what} has dtype {got} where it had {want}. "
    "`linear.float()` and `linear.to(dtype)` change the layer itself."
)
OTHER_SHAPE = "{name}: the weight of layer {layer:d} has shape {got}; {want} is wanted."
OTHER_DTYPE = (
    "{name}: the weight of layer {layer:d} has dtype {got}; {want} is wanted, the caller's."
)
FIRST_BIAS = "{name}: layer 0 has a bias. {why}"
OTHER_BIAS = "{name}: layer 1's bias is {got}; {want} is wanted, the caller's. {why}"
BIAS_MIXED = "What layer 0 adds, layer 1 multiplies. Which layer adds after both matmuls?"
OTHER_ERROR = (
    "{name}: layer 1's weight @ layer 0's weight is {got} from the caller's weight, in the norm of "
    "all its elements. The best matrix of rank {rank:d} is {best} away. {why}"
)
NO_VALUES = "Your product comes out if the singular values are left out."
TWICE = "Your product comes out if each singular value counts twice, once in each layer."
SMALLEST = "Your product comes out of the {rank:d} smallest singular values."
CENTRED = (
    "Your product comes out if the mean row is subtracted first, as for principal components. The "
    "layer needs that mean, too."
)
LARGEST = (
    "The best matrix keeps the largest singular values and their vectors of the caller's weight, "
    "as torch.linalg.svd gives them."
)
OVERFLOWS = (
    "{name}: in FP16, layer {layer:d} has {count:d} infinite elements: its largest is {largest}, "
    "and FP16 ends at 65504. The other layer's largest is {other}."
)

_CASES = {  # outputs, inputs, rank, dtype, whether with a bias, the largest singular value
    "2 x 2, rank 1": (2, 2, 1, torch.float32, True, 3.0),
    "96 x 64, rank 8, singular values up to 400,000": (96, 64, 8, torch.float32, True, 4e5),
    "64 x 96, rank 8": (64, 96, 8, torch.float32, True, 2.0),
    "48 x 32, rank 4, BF16, no bias": (48, 32, 4, torch.bfloat16, False, 2.0),
}


def _linear(name, seed):
    """A layer whose singular values halve from each to the next."""
    rows, columns, _, dtype, biased, largest = _CASES[name]
    layer = nn.Linear(columns, rows, bias=biased)
    short = min(rows, columns)
    left, _ = torch.linalg.qr(seeded(seed, rows, short))
    right, _ = torch.linalg.qr(seeded(seed + 100, columns, short))
    values = largest * 2.0 ** -(torch.arange(short) / 2)
    with torch.no_grad():
        layer.weight.copy_((left * values) @ right.T)
        if name.startswith("2 x 2"):
            layer.weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 1.0]]))
        if biased:
            layer.bias.copy_(seeded(seed + 200, rows))
    return layer.to(dtype)


def run_factorise(factorise, seed):
    """What each call returned: the kinds of its parts, their parameters, and the caller's after."""
    return {name: attempt(_called, factorise, name, seed) for name in _CASES}


def _called(factorise, name, seed):
    linear = _linear(name, seed)
    made = factorise(linear, _CASES[name][2])
    kept = [None if p is None else p.detach().clone() for p in (linear.weight, linear.bias)]
    seen = {"kind": type(made).__name__, "kept": kept, "parts": []}
    if isinstance(made, nn.Sequential):
        seen["kind"] += f" of {', '.join(type(part).__name__ for part in made) or 'nothing'}"
        if len(made) == 2 and all(isinstance(part, nn.Linear) for part in made):
            seen["parts"] = [[_tensor(part.weight), _tensor(part.bias)] for part in made]
    return seen


def _tensor(x):
    return None if x is None else x.detach().clone()


@check(run_factorise, own_work=("labkit.labs.compression.low_rank.factorise",))
def check_factorise(seen, seed):
    """Two linear layers whose product is the best matrix of their rank."""
    for name in _CASES:
        if type(seen[name]) is Raised:
            # What raises in 16 bits is known, and may be named.
            kind = Mistake if "not implemented for" in seen[name].message else AnswerError
            raise kind(RAISED, name=name, error=failure(seen[name]))
        _judge_call(name, seen[name], _linear(name, seed))


def _judge_call(name, seen, linear):
    rows, columns, rank, dtype, *_ = _CASES[name]
    if len(seen["parts"]) != 2:
        raise Mistake(OTHER_PARTS, name=name, got=seen["kind"])
    for what, got in zip(("weight", "bias"), seen["kept"], strict=True):
        want = getattr(linear, what)
        if want is not None and got is not None and got.dtype != want.dtype:
            kinds = {"got": str(got.dtype), "want": str(want.dtype)}
            raise Mistake(OTHER_KIND, name=name, what=what, **kinds)
        if want is not None and (got is None or not torch.equal(got, want)):
            raise Mistake(CHANGED, name=name, what=what)
    (down, first), (up, last) = seen["parts"]
    for layer, (got, want) in enumerate(((down, (rank, columns)), (up, (rows, rank)))):
        said = {"name": name, "layer": layer}
        if tuple(got.shape) != want:
            raise Mistake(OTHER_SHAPE, got=str(tuple(got.shape)), want=str(want), **said)
        if got.dtype != dtype:
            raise Mistake(OTHER_DTYPE, got=str(got.dtype), want=str(dtype), **said)
    if first is not None:
        raise Mistake(FIRST_BIAS, name=name, why=BIAS_MIXED if first.any() else "")
    _judge_product(name, down.double(), up.double(), linear.weight.detach().double(), rank)
    _judge_bias(name, last, linear.bias)
    _judge_range(name, down, up)


def _judge_product(name, down, up, weight, rank):
    """The distance from the weight is that of the best matrix of this rank."""
    left, values, right = torch.linalg.svd(weight, full_matrices=False)
    best, off = values[rank:].norm().item(), (up @ down - weight).norm().item()
    rounding = torch.finfo(_CASES[name][3]).eps
    # Both factors are rounded to their dtype, in any split of the singular values, and so is the
    # float32 SVD, to a few eps of the largest value.
    room = rounding * up.norm() * down.norm() + 64 * 2.0**-23 * values[0]
    if off <= best + room:
        return
    mean = weight.mean(dim=0)
    turned, lengths, axes = torch.linalg.svd(weight - mean, full_matrices=False)
    others = {
        NO_VALUES: left[:, :rank] @ right[:rank],
        TWICE: (left[:, :rank] * values[:rank].square()) @ right[:rank],
        fill(SMALLEST, rank=rank): (left[:, -rank:] * values[-rank:]) @ right[-rank:],
        CENTRED: (turned[:, :rank] * lengths[:rank]) @ axes[:rank],
    }
    got = up @ down
    near = (w for w, other in others.items() if (got - other).norm() <= 0.02 * other.norm())
    why = next(near, LARGEST)
    raise Mistake(OTHER_ERROR, name=name, got=off, rank=rank, best=best, why=why)


def _judge_bias(name, got, want):
    if (got is None) != (want is None) or (want is not None and got.shape != want.shape):
        said = ["none" if b is None else f"one of shape {tuple(b.shape)}" for b in (got, want)]
        raise Mistake(OTHER_BIAS, name=name, got=said[0], want=said[1], why="")
    if want is not None and not torch.equal(got, want):
        at = int((got != want).nonzero()[0])
        why = "" if got.any() else "All of it is 0."
        said = {"got": got[at].item(), "want": want[at].item(), "why": why}
        raise Mistake(OTHER_BIAS, name=name, **said)


def _judge_range(name, down, up):
    """Both layers hold finite numbers in FP16."""
    for layer, (factor, other) in enumerate(((down, up), (up, down))):
        if count := int((~factor.half().isfinite()).sum()):
            said = {"largest": factor.abs().max().item(), "other": other.abs().max().item()}
            # Singular vectors alone have length 1: by rows in layer 0, by columns in layer 1.
            lengths = other.double().norm(dim=0 if layer == 0 else 1)
            alone = torch.allclose(lengths, torch.ones_like(lengths), atol=1e-3)
            idea = "the-values-may-stand-in-one-factor" if alone else None
            said |= {"name": name, "layer": layer, "count": count}
            raise Mistake(OVERFLOWS, misconception=idea, search=False, **said)


check_factorise.slip(
    "low-rank-needs-directions-alone",
    "U and Vh have columns and rows of length 1. What says how large each of them counts?",
    swap=("s[:rank].sqrt()", "torch.ones(rank)"),
)
check_factorise.slip(
    "vh-holds-columns",
    "torch.linalg.svd returns Vh, not V. Is a right singular vector a row or a column of it?",
    swap=("vh[:rank]", "vh[:, :rank].T"),
)
check_factorise.slip(
    "both-factors-take-the-values",
    "Both layers multiply. Which power of a singular value may each take?",
    swap=("s[:rank].sqrt()", "s[:rank]"),
)
check_factorise.slip(
    "svd-takes-any-dtype",
    "In which dtype can you take it?",
    swap=(".detach().float()", ".detach()"),
)


@check_factorise.wrong(
    "the-values-may-stand-in-one-factor",
    "How do you share the singular values, so that both layers are of one size?",
)
def _values_in_one(linear, rank):
    u, s, vh = torch.linalg.svd(linear.weight.detach().float(), full_matrices=False)
    down = nn.Linear(linear.in_features, rank, bias=False)
    up = nn.Linear(rank, linear.out_features, bias=linear.bias is not None)
    with torch.no_grad():
        down.weight.copy_(vh[:rank])
        up.weight.copy_(u[:, :rank] * s[:rank])
        if linear.bias is not None:
            up.bias.copy_(linear.bias)
    return nn.Sequential(down, up).to(linear.weight.dtype)
