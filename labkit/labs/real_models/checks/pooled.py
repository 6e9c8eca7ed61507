"""Check of lab 13's mean over real tokens, beside the mean in float64."""

import torch

from labkit.emulation import emulate_gpu
from labkit.formats.dtypes import name_of
from labkit.labs.engine import Mistake, attempt, check, tensor
from labkit.labs.engine.messages import fill

LAB = "13_real_models"

OFF = (
    "pooled in {dtype} with {name}{where}: row {row}, channel {channel} is {got}; {want} is "
    "wanted, the mean of {count:d} of {length:d} tokens. {why}"
)
EMPTY = (
    "pooled in {dtype} with {name}{where}: row {row} has no real token, and its channel {channel} "
    "is {got}; 0 is wanted. {why}"
)
OF_ALL = "That is the mean of all {length:d} positions."
OF_FIRST = "That is the mean of the first {count:d} positions. Where does the mask hold True?"
BY_EVERY_ROW = (
    "It comes out if the sum is divided by {other:d}, the real tokens of all rows together."
)
BY_ALL = "It comes out if the sum is divided by all {length:d} positions."
WITHOUT_ZEROS = "It comes out if the zeros among the real tokens are not counted."
OTHER_COUNT = "It comes out if the sum is divided by {other:g}: {dtype} does not hold {count:d}."
ROUNDED_LATE = "That is the right mean, rounded to {dtype}."
ROUNDED_SUM = "It comes out if the sum of the tokens is rounded to {dtype}."
LOST_SUM = (
    "Here a sum of the tokens passes 65504, the largest FP16 value. In which dtype do you add?"
)
ONLY_HERE = "In bfloat16 this row is right, so it is FP16 that cannot hold one of your numbers."
FROM_PADDING = (
    "The padding holds NaN, and in {dtype} with all other inputs so far you are right. What is "
    "NaN * 0?"
)

_LARGEST = torch.finfo(torch.float16).max
_DTYPES = (torch.bfloat16, torch.float16)
_ANYWHERE = "real tokens in any places"
_PADDING_OF_NAN = "NaN in the padding"
_CASES = {  # positions, real tokens of each row, size of the values
    _ANYWHERE: (8, (5, 8), 1.0),
    "rows of 257 and 300 tokens": (300, (257, 300), 1.0),
    "rows of 511 and 600 tokens": (600, (511, 600), 1.0),
    "long rows of values about 40": (2100, (2049, 2100), 40.0),
    "a row without tokens": (6, (3, 0), 1.0),
    _PADDING_OF_NAN: (8, (3, 6), 1.0),
}
_WHERE = {"": False, ", inside autocast": True}


def _batch(name, dtype, seed):
    """hidden and mask."""
    length, counts, size = _CASES[name]
    draw = torch.Generator().manual_seed(seed)
    hidden = size * (1 + 0.5 * torch.randn(len(counts), length, 4, generator=draw))
    hidden = hidden.to(dtype)
    mask = torch.stack(
        [torch.randperm(length, generator=draw) < count for count in counts]
    )  # in any places
    if name == _ANYWHERE:
        hidden[1, 3, 0] = 0  # a real token, as all of row 1 are
    if name == _PADDING_OF_NAN:
        hidden[~mask] = torch.nan
    return hidden, mask


def run_pooled(pooled, seed):
    """Each case in both dtypes, outside and inside autocast."""
    shown = {}
    with emulate_gpu():
        for dtype in _DTYPES:
            for name in _CASES:
                for where, inside in _WHERE.items():
                    with torch.autocast("cpu", dtype=dtype, enabled=inside):
                        shown[name_of(dtype), name, where] = attempt(
                            pooled, *_batch(name, dtype, seed)
                        )
    return shown


@check(run_pooled)
def check_pooled(shown, seed):
    """The mean over real tokens in float32, also of long, empty and NaN-padded rows."""
    for name in _CASES:
        for dtype in _DTYPES:
            for where in _WHERE:
                call = f"pooled in {name_of(dtype)} with {name}{where}"
                hidden, mask = _batch(name, dtype, seed)
                shape = len(hidden), hidden.shape[2]
                got = shown[name_of(dtype), name, where]
                got = tensor(got, call=call, shape=shape, dtype=torch.float32).double()
                _judge(got, hidden.double(), mask, name=name, dtype=dtype, where=where)


def _judge(got, hidden, mask, *, name, dtype, where):
    counts = mask.sum(dim=1, keepdim=True)
    kept = hidden.masked_fill(~mask[..., None], 0)
    want = kept.sum(dim=1) / counts.clamp(min=1)
    # Each of n additions and the quotient round to 2**-24.
    room = (counts + 2) * 2.0**-24 * (kept.abs().sum(dim=1) / counts.clamp(min=1)) + 1e-12
    off = ~((got - want).abs() <= room)
    if not off.any():
        return
    row, channel = off.nonzero()[0].tolist()
    count, length = int(counts[row]), hidden.shape[1]
    said = {"name": name, "dtype": name_of(dtype), "where": where, "row": row, "channel": channel}
    said |= {"got": got[row, channel].item()}
    if not count:
        why, idea = (ONLY_HERE, "eps-fits-every-format") if dtype is torch.float16 else ("", None)
        raise Mistake(EMPTY, misconception=idea, search=not why, why=why, **said)
    total = kept.sum(dim=1)[row]
    other = torch.tensor(count).to(dtype).double()
    near = _near(got[row], room[row])  # in every channel: one alone may come out so by chance
    rounded_sum = total.to(dtype).double() / count
    filled = (kept[row] != 0).sum(dim=0)
    why, idea, search = "", None, False
    if name == _PADDING_OF_NAN and got[row, channel].isnan():
        why, idea = fill(FROM_PADDING, dtype=name_of(dtype)), "zero-times-anything-is-zero"
    elif near(hidden[row].mean(dim=0)):
        why, idea = fill(OF_ALL, length=length), "padding-averages-out"
    elif near(total / counts.sum()):
        why = fill(BY_EVERY_ROW, other=int(counts.sum()))
    elif filled[channel] < count and near(total / filled):
        why = WITHOUT_ZEROS
    elif count < length and near(total / length):
        why = fill(BY_ALL, length=length)
    elif count < length and near(hidden[row, :count].mean(dim=0)):
        why = fill(OF_FIRST, count=count)
    elif other != count and near(total / other):
        why = fill(OTHER_COUNT, other=other.item(), dtype=name_of(dtype), count=count)
        idea = "counting-is-exact"
    elif got[row, channel] == torch.inf and dtype is torch.float16 and total[channel] > _LARGEST:
        why, idea = LOST_SUM, "upcast-too-late"
    elif got[row, channel] == want[row, channel].to(dtype):
        why, search = fill(ROUNDED_LATE, dtype=name_of(dtype)), True
    elif near(rounded_sum) or (got[row] == rounded_sum.to(dtype)).all():
        why, search = fill(ROUNDED_SUM, dtype=name_of(dtype)), True
    said |= {"count": count, "length": length, "want": want[row, channel].item()}
    raise Mistake(OFF, misconception=idea, search=search or not why, why=why, **said)


def _near(got, room):
    return lambda other: bool(((got - other).abs() <= 2 * room).all())


_KEPT = "hidden.float().masked_fill(~mask[..., None], 0)"

check_pooled.slip(
    "counting-is-exact",
    "A sum in BF16 is rounded to BF16, also one of ones. In which dtype do you count?",
    swap=("mask.sum(dim=1", "mask.to(hidden.dtype).sum(dim=1"),
)
check_pooled.slip(
    "upcast-too-late",
    "The sum was rounded to 16 bits before it became float32. Where must `.float()` stand?",
    swap=(f"{_KEPT}\n    return kept.sum(dim=1)",
          "hidden.masked_fill(~mask[..., None], 0)\n    return kept.sum(dim=1).float()"),
)  # fmt: skip
check_pooled.slip(
    "zero-times-anything-is-zero",
    "A NaN times 0 is NaN. Which function replaces a value instead of multiplying it?",
    swap=(_KEPT, "hidden.float() * mask[..., None]"),
)
check_pooled.slip(
    "padding-averages-out",
    "Over which positions is the mean taken, and by which number is the sum divided?",
    swap=(f"{_KEPT}\n    return kept.sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)",
          "hidden.float()\n    return kept.mean(dim=1)"),
)  # fmt: skip
check_pooled.slip(
    "an-empty-mean-is-zero",
    "The mean of no tokens is 0 / 0. What is the smallest count that you may divide by?",
    cut=".clamp(min=1)",
)


@check_pooled.wrong(
    "eps-fits-every-format",
    "Both sums are in 16 bits here, and 1e-9 is 0 in FP16. In which dtype do you add and divide?",
)
def _(hidden, mask):
    """What stands on many model cards."""
    kept = mask[..., None].expand(hidden.size()).to(hidden.dtype)
    return ((hidden * kept).sum(1) / torch.clamp(kept.sum(1), min=1e-9)).float()
