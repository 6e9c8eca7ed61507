"""Check of lab 10: a pruned weight as a bitmask, INT8 codes and a scale a row."""

import numpy as np
import torch
from safetensors.torch import save

from labkit.formats.dtypes import name_of
from labkit.labs.engine import AnswerError, Mistake, attempt, check, entries, tensor
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure

LAB = "10_compression"

UNWRITTEN = "{name}: safetensors cannot write your dict. {error}."
CHANGED = (
    "{name}: after your pack, the caller's weight[{row}, {column}] is {got} where it was {want}. "
    "Which line writes into it?"
)
OTHER_SHAPE = '{name}: "shape" holds {got}; the integers {want} are wanted.'
OTHER_MASK = (
    '{name}: "mask" is {dtype} of shape {shape}, {bytes:,} bytes. Wanted is uint8 of shape '
    "({want},), a bit for each of the {all:,} weights. {why}"
)
A_BYTE_EACH = "Each of its elements takes a whole byte, a bool too."
PLACES = "You store the place of each kept weight, in {itemsize} bytes."
ROWS_PADDED = "Each of your rows begins a new byte. The rows of the flattened matrix do not."
OTHER_COUNT = '{name}: the mask has {ones:,} ones, and "values" holds {got:,} codes. {why}'
INVERTED = "There are as many codes as zeros in your mask. Which of the two bits means kept?"
ALL_CODES = "That is a code for each weight. Which of them does the file need?"
TWO_MASKS = (
    "There are {nonzero:,} weights other than 0, and rounding makes some of them code 0. Choose "
    "once what is kept, and take both mask and codes from it."
)
KEEPS_ZEROS = "{name}: the mask keeps {kept:,} of the {zeros:,} weights that are 0. {why}"
ALL_ROW = "All of them stand in row {row}, which holds nothing but zeros. What is 0 / 0 there?"
BYTES_OF_ZEROS = "Each of them puts a byte into the file."
OTHER_SCALE = '{name}: "scale" is {dtype}; a float of at most 4 bytes for each row is wanted.'
BAD_SCALE = "{name}: scale[{row}] is {got}; a finite number above 0 is wanted. {why}"
EMPTY_ROW = (
    "Row {row} holds nothing but zeros. Then weight / scale is 0 / 0, NaN, and what a cast of NaN "
    "to int8 gives differs from processor to processor."
)
SCALE_LOST = (
    "The largest magnitude of row {row} is {largest}, and {largest} / 127 = {scale} is less than "
    "half of {tiny}, the smallest {dtype} number above 0."
)
NEGATIVE = "The row's largest magnitude is {largest}, of the weight {weight}."
REVIVED = (
    "{name}: weight[{row}, {column}] is 0 and comes back as {got}, and so do {count:,} of "
    "{zeros:,} zeros. {why}"
)
LITTLE = (
    "Your weights come out if the first weight has the lowest bit of a byte. np.packbits and "
    "unpack_weight begin with the highest."
)
COLUMNS_FIRST = (
    "Your weights come out if the matrix is read column by column. unpack_weight goes by rows."
)
VANISHED = (
    "{name}: {count:,} of {all:,} weights other than 0 come back as 0. One is weight[{row}, "
    "{column}] = {want}, {steps} steps of its row, where a step is the row's largest magnitude "
    "/ 127. {why}"
)
ONE_SCALE = (
    "Your scale is {scale} in all rows, and their largest magnitudes go from {low} to {high}."
)
OTHER_VALUE = (
    "{name}: weight[{row}, {column}] = {want} comes back as {got}, code {code:d} times {scale}. "
    "That is {off} steps away, where a step is the row's largest magnitude / 127; at most 0.51 is "
    "wanted. {why}"
)
CUT_OFF = "Your codes come out if weight / scale is cut off, not rounded."
DOWN = "Your codes come out if weight / scale is rounded down, not to the nearest integer."
UP = "Your codes come out if weight / scale is rounded up, not to the nearest integer."
WRAPPED = "weight / scale is {ratio} there, and int8 ends at 127."
CLAMPED = "weight / scale is {ratio} there, more than the 127 at which your codes end."
ROUNDED_SCALE = "In float32 the scale would be {scale}. In {dtype} it is {off:.2g} of itself away."

SCALE_OFF = "The largest magnitude of row {row} / 127 is {right}, and your scale is {scale}."

_KEYS = "shape", "mask", "values", "scale"

# A code is off by half a step. In float32 the quotient, the scale and the product add 127 * 2**-22
# at most; an answer may be a bit coarser, not as coarse as a scale in FP16: 127 * 2**-12 = 0.031
# where weights are divided by the scale before it is rounded.
_STEPS = 0.51


def _weights(seed):
    """The weight of each call."""
    draw = torch.Generator().manual_seed(seed)
    wide = torch.randn(257, 250, generator=draw) * torch.logspace(-3, 0, 257)[:, None]
    wide[torch.rand(wide.shape, generator=draw) < 0.9] = 0
    wide[5] = 0
    wide[9] *= 1e-6 / wide[9].abs().max()
    for row in range(20, 257, 4):  # the largest magnitude of a row may be a negative weight's
        place = wide[row].abs().argmax()
        wide[row, place] = -1.5 * wide[row, place].abs()
    signs = torch.randint(2, (3, 5), generator=draw) * 2 - 1
    return {
        "the example": torch.tensor([[0.0, 2.54, 0.0, -1.0], [0.0, 0.0, 0.0, 0.0]]),
        "257 x 250, 90 % zeros": wide,
        "3 x 5, no zeros": signs * (1 + torch.rand(3, 5, generator=draw)),
    }


def run_pack(pack, seed):
    """Each call's tensors, whether safetensors writes them, and the caller's weight afterwards."""
    seen = {}
    for name, weight in _weights(seed).items():
        packed = attempt(pack, weight)
        seen[name] = packed, attempt(_written, packed), weight
    return seen


def _written(packed):
    return len(save(packed))


@check(run_pack, own_work=("labkit.labs.compression.storage.pack_weight",))
def check_pack(seen, seed):
    """A pruned weight in a bit for each weight, a byte for each kept one, and a scale a row."""
    for name, weight in _weights(seed).items():
        packed, written, after = seen[name]
        call = f"pack(weight), {name}"
        packed = entries(packed, _KEYS, call=call)
        packed = {key: tensor(packed[key], call=f'{call}: "{key}"') for key in _KEYS}
        _judge_layout(packed, weight, name)
        if type(written) is Raised:
            raise AnswerError(UNWRITTEN, name=name, error=failure(written))
        if not torch.equal(after, weight):
            row, column = (after != weight).nonzero()[0].tolist()
            got, want = after[row, column], weight[row, column]
            raise Mistake(CHANGED, name=name, row=row, column=column, got=got, want=want)
        _judge_scale(packed["scale"], weight, name)
        _judge_values(packed, weight, name)


def _ones(packed, count, order="big"):
    """The mask's bits, as truth values."""
    bits = np.unpackbits(packed["mask"].numpy(), count=count, bitorder=order)
    return torch.from_numpy(bits).bool()


def _judge_layout(packed, weight, name):
    """Each tensor has its dtype and shape, and there is a code for each one of the mask."""
    shape, mask, codes = (packed[key] for key in _KEYS[:3])
    rows, columns = weight.shape
    count, zeros = weight.numel(), int((weight == 0).sum())
    if shape.is_floating_point() or shape.tolist() != [rows, columns]:
        raise Mistake(OTHER_SHAPE, name=name, got=str(shape.tolist()), want=f"[{rows}, {columns}]")
    bits = -(-count // 8)
    if mask.dtype != torch.uint8 or mask.shape != (bits,):
        size = mask.numel() * mask.element_size()
        why = ""
        if mask.numel() == count and mask.element_size() == 1:
            why = A_BYTE_EACH
        elif mask.dim() == 1 and mask.element_size() > 1 and mask.numel() <= count - zeros:
            why = fill(PLACES, itemsize=mask.element_size())
        elif mask.dtype == torch.uint8 and mask.numel() == rows * -(-columns // 8):
            why = ROWS_PADDED
        said = {
            "dtype": name_of(mask.dtype),
            "shape": str(tuple(mask.shape)),
            "bytes": size,
            "all": count,
        }
        raise Mistake(OTHER_MASK, name=name, want=bits, why=why, **said)
    tensor(codes, call=f'pack(weight), {name}: "values"', dtype=torch.int8)
    ones, nonzero = int(_ones(packed, count).sum()), count - zeros
    if codes.shape != (ones,):
        why = ""
        if codes.numel() == count:
            why = ALL_CODES
        elif codes.numel() == count - ones:
            why = INVERTED
        elif nonzero in (codes.numel(), ones):
            why = fill(TWO_MASKS, nonzero=nonzero)
        raise Mistake(OTHER_COUNT, name=name, ones=ones, got=codes.numel(), why=why)
    scale = tensor(packed["scale"], call=f'pack(weight), {name}: "scale"', shape=(rows,))
    if not scale.is_floating_point() or scale.element_size() > 4:
        raise Mistake(OTHER_SCALE, name=name, dtype=name_of(scale.dtype))


def _judge_scale(scale, weight, name):
    """Each row has a finite scale above 0."""
    bad = ~(scale.isfinite() & (scale > 0))
    if not bad.any():
        return
    row = int(bad.nonzero()[0])
    largest, why = weight[row].abs().max().item(), ""
    if not largest:
        why = fill(EMPTY_ROW, row=row)
    elif scale[row] == 0 and scale.is_floating_point():
        tiny = torch.finfo(scale.dtype).smallest_normal * torch.finfo(scale.dtype).eps
        said = {
            "largest": largest,
            "scale": largest / 127,
            "tiny": tiny,
            "dtype": name_of(scale.dtype),
        }
        why = fill(SCALE_LOST, row=row, **said) if 2 * largest / 127 <= tiny else ""
    elif scale[row] < 0:
        at = weight[row].abs().argmax()
        why = fill(NEGATIVE, largest=largest, weight=weight[row, at])
    raise Mistake(BAD_SCALE, name=name, row=row, got=scale[row].item(), why=why)


def _unpacked(packed, ones):
    """The weights that the file stands for, in float64."""
    rows = len(packed["scale"])
    codes = torch.zeros(len(ones), dtype=torch.float64)
    codes[ones] = packed["values"].double()
    return codes.view(rows, -1) * packed["scale"].double()[:, None]


def _judge_values(packed, weight, name):
    """Zeros come back as zeros, and every other weight within half a step of its row."""
    weight, count = weight.double(), weight.numel()
    got = _unpacked(packed, _ones(packed, count))
    largest = weight.abs().amax(dim=1, keepdim=True)
    step = torch.where(largest > 0, largest / 127, 1.0)
    off = (got - weight).abs() / step
    if (off <= _STEPS).all():
        _judge_kept(_ones(packed, count).view_as(weight), weight, name)
        return
    lost = (got == 0) & (weight != 0) & (off > _STEPS)
    revived = (weight == 0) & (got != 0)
    wrong = revived if revived.any() else lost if lost.any() else ~(off <= _STEPS)
    place = int(torch.where(wrong, off, -1).argmax())
    row, column = divmod(place, weight.shape[1])
    said = {"name": name, "row": row, "column": column, "want": weight[row, column].item()}
    why = _other_order(packed, weight, step)
    if revived.any():
        zeros = int((weight == 0).sum())
        values = {"got": got[row, column].item(), "count": int(revived.sum()), "zeros": zeros}
        raise Mistake(REVIVED, why=why, **values, **said)
    scale = packed["scale"].double()
    codes = (got / scale[:, None]).round()
    why = why or _other_rounding(codes.float(), weight.float() / scale[:, None].float())
    if lost.any():
        if not why and len(scale.unique()) == 1:
            ends = {"low": largest[largest > 0].min().item(), "high": largest.max().item()}
            why = fill(ONE_SCALE, scale=scale[0].item(), **ends)
        values = {"count": int(lost.sum()), "all": int((weight != 0).sum())}
        raise Mistake(VANISHED, steps=said["want"] / step[row].item(), why=why, **values, **said)
    raise Mistake(
        OTHER_VALUE,
        got=got[row, column].item(),
        off=off[row, column].item(),
        code=int(codes[row, column]),
        scale=scale[row].item(),
        why=why or _other_code(packed["scale"], codes, weight, (row, column)),
        **said,
    )


def _judge_kept(kept, weight, name):
    """No weight that is 0 takes a byte."""
    wasted = (kept & (weight == 0)).sum(dim=1)
    if not wasted.any():
        return
    rows = wasted.nonzero().flatten().tolist()
    empty = len(rows) == 1 and not weight[rows[0]].any()
    why = fill(ALL_ROW, row=rows[0]) if empty else BYTES_OF_ZEROS
    zeros = int((weight == 0).sum())
    raise Mistake(KEEPS_ZEROS, name=name, kept=int(wasted.sum()), zeros=zeros, why=why)


def _other_order(packed, weight, step):
    """The sentence of another order of bits or weights in which all is right, or ""."""
    ones = _ones(packed, weight.numel(), "little")
    if int(ones.sum()) == len(packed["values"]):
        little = _unpacked(packed, ones)
        if ((little - weight).abs() <= _STEPS * step).all():
            return LITTLE
    columns = torch.zeros(weight.numel(), dtype=torch.float64)
    columns[_ones(packed, weight.numel())] = packed["values"].double()
    turned = columns.view(weight.shape[1], -1).T * packed["scale"].double()[:, None]
    return COLUMNS_FIRST if ((turned - weight).abs() <= _STEPS * step).all() else ""


def _other_rounding(codes, ratio):
    """The sentence of another rounding that gives all codes in float32, or ""."""
    others = {CUT_OFF: ratio.trunc(), DOWN: ratio.floor(), UP: ratio.ceil()}
    return next((why for why, other in others.items() if torch.equal(codes, other)), "")


def _other_code(scale, codes, weight, place):
    """What is true of the code at a place, as a sentence; "" where it is the nearest one."""
    row = place[0]
    ratio = weight / scale.double()[:, None]
    if abs(ratio[place]) >= 127.5:
        wrapped = abs(codes[place] - ratio[place]) > 128
        return fill(WRAPPED if wrapped else CLAMPED, ratio=ratio[place].item())
    right = weight[row].abs().max().item() / 127
    if scale.dtype in (torch.float16, torch.bfloat16) and scale[row] == scale.new_tensor(right):
        off = abs(scale[row].item() / right - 1)
        return fill(ROUNDED_SCALE, scale=right, dtype=name_of(scale.dtype), off=off)
    # No rounding of a scale in 16 bits is as coarse.
    if abs(scale[row].item() - right) > right / 100:
        return fill(SCALE_OFF, row=row, right=right, scale=scale[row].item())
    return ""


check_pack.slip(
    "a-bool-takes-a-bit",
    "How do eight of them fit into one byte?",
    swap=("torch.from_numpy(np.packbits(kept.numpy()))", "kept.flatten()"),
)
check_pack.slip(
    "sparse-indices-are-free",
    "At how many bytes a place does a bit for every weight take less?",
    swap=("torch.from_numpy(np.packbits(kept.numpy()))", "kept.flatten().nonzero().flatten()"),
)
check_pack.slip(
    "weights-need-one-scale",
    "Which weights may share a scale?",
    swap=("weight.abs().amax(dim=1) / 127", "weight.abs().max().repeat(len(weight)) / 127"),
)
check_pack.slip(
    "scales-fit-in-fp16",
    "Which dtype holds this scale?",
    swap=('"scale": scale', '"scale": scale.half()'),
)
check_pack.slip(
    "zeros-may-have-scale-0",
    "Which scale do you give to a row of zeros?",
    cut="scale[scale == 0] = 1.0",
)
check_pack.slip(
    "amax-is-the-maximum",
    "The largest magnitude of a row may be that of a negative weight. Which call is missing?",
    swap=("weight.abs().amax(dim=1)", "weight.amax(dim=1)"),
)
check_pack.slip(
    "casts-round-to-nearest",
    "A cast to an integer cuts the fraction off. Which call must come before it?",
    swap=(".round().to(torch.int8)", ".to(torch.int8)"),
)
check_pack.slip(
    "a-mask-leaves-zeros-out",
    "The mask says already where the zeros are. Which codes may the file leave out?",
    swap=("codes[kept]", "codes.flatten()"),
)
