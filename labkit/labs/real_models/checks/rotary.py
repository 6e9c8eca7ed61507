"""Check of lab 13's rotary positions: float32 angles, whatever surrounds or converts the module."""

import contextlib
import math

import torch

from labkit.emulation import emulate_gpu
from labkit.formats.dtypes import name_of
from labkit.labs.engine import Mistake, attempt, check, several, tensor
from labkit.labs.engine.messages import fill

LAB = "13_real_models"

OFF = (
    "{call}, position {position}, pair {pair}: cos is {cos} and sin is {sin}; {want_cos} and "
    "{want_sin} are wanted, those of {position} * base**(-2 * {pair} / width) = {angle}. {why}"
)
NARROW = "{call}: cos is {dtype}; float32 is wanted. {why}"
RIGHT_ANGLES = "The angles are right."
EXCHANGED = "Your first tensor holds the sines, and the second one the cosines."
NO_COSINE = "Your first tensor holds the angles, and not their cosines."
TURNED_BY = "Yours are those of the angle {got}."
OTHER_BASE = "Yours come out with the base 10000."
EARLIER = (
    "Yours are those of an earlier call of the same module, with other positions. What does your "
    "module keep from one call to the next?"
)
FROM_FIRST = "Yours are those of each position minus the first position, {first:d}."
COUNTED = "Yours are those of row {row}, counted from 0. Does your forward read `positions`?"
MODULE_ROUNDED = "Yours come out if the frequencies are rounded to {dtype}. "
TO_CONVERTS = "The conversion reaches all that the module holds as a parameter or a buffer."
TABLE_ROUNDED = "All your cosines are values of {dtype}."
POSITIONS_ROUNDED = (
    "Yours come out if the positions are rounded to {dtype}, which has {other} for {position}."
)
MATMUL = (
    "Yours come out if positions, frequencies and angles are rounded to {dtype}, as a matmul "
    "rounds them inside autocast."
)
ALL_ROUNDED = "Yours come out if positions, frequencies and angles are rounded to {dtype}."
ELSEWHERE = "You opened an autocast block for {device}; these positions are on cpu."

_SETTINGS = {  # the dtype that the module is converted to, and that of autocast
    "": (None, None),
    " under BF16 autocast": (None, torch.bfloat16),
    " under FP16 autocast": (None, torch.float16),
    " after .to(torch.bfloat16)": (torch.bfloat16, None),
    " after .half()": (torch.float16, None),
}
_MODULES = {"Rotary(64)": (64, {}), "Rotary(16, base=500000.0)": (16, {"base": 500_000.0})}
_NARROW = (torch.bfloat16, torch.float16)


def _positions(seed):
    draw = torch.Generator().manual_seed(seed)
    named = torch.tensor([1, 0, *range(2, 8), 255, 256, 257, 4095, 65536, 65537, 131071])
    return torch.cat([named, torch.randint(131_072, (5,), generator=draw)])


def run_rotary(Rotary, seed):
    """(cos, sin) of each module in each setting, which of them widened, and autocast's devices."""
    shown, widened = {}, []
    with emulate_gpu(), _blocks() as opened:
        for name, (width, settings) in _MODULES.items():
            for setting in _SETTINGS:
                with _Widening() as widening:
                    shown[name + setting] = attempt(
                        _turned, Rotary, width, settings, *_SETTINGS[setting], _positions(seed)
                    )
                widened += [name + setting] if widening.seen else []
    return shown, widened, sorted(opened)


def _earlier(positions):
    """The positions of the call before, as many in another order."""
    return positions.flip(0)


class _Widening(torch.overrides.TorchFunctionMode):
    """Notes whether a 16-bit tensor was converted to a wider dtype."""

    seen = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in ("float", "double", "to", "type"):
            self.seen |= args[0].dtype in _NARROW and out.dtype not in _NARROW
        return out


@contextlib.contextmanager
def _blocks():
    """The devices for which autocast blocks are opened."""
    opened, enter = set(), torch.autocast.__enter__

    def noted(block):
        opened.add(block.device)
        return enter(block)

    torch.autocast.__enter__ = noted
    try:
        yield opened
    finally:
        torch.autocast.__enter__ = enter


def _turned(Rotary, width, settings, converted, surrounding, positions):
    module = Rotary(width, **settings)
    module = module.to(converted) if converted else module
    with torch.autocast("cpu", dtype=surrounding or _NARROW[0], enabled=surrounding is not None):
        module(_earlier(positions))
        return module(positions)


@check(run_rotary)
def check_rotary(found, seed):
    """Rotary positions in float32, under autocast and after .to(torch.bfloat16)."""
    shown, widened, opened = found
    elsewhere = " and ".join(device for device in opened if device != "cpu")
    positions = _positions(seed).double()
    for setting, (converted, surrounding) in _SETTINGS.items():
        for name, (width, settings) in _MODULES.items():
            call = f"{name}(positions){setting}"
            cos, sin = several(shown[name + setting], 2, call=call)
            shape = len(positions), width // 2
            cos = tensor(cos, call=f"{call}: cos", shape=shape)
            sin = tensor(sin, call=f"{call}: sin", shape=shape)
            base = settings.get("base", 10_000.0)
            late = name + setting in widened
            case = _Case(positions, width, base, converted, surrounding, elsewhere, late)
            if {cos.dtype, sin.dtype} != {torch.float32}:
                raise case.narrow(cos, sin, call)
            cos, sin = cos.double(), sin.double()
            if not case.holds(cos, sin, case.angles).all():
                raise case.mistake(cos, sin, call)


class _Case:
    """One module in one setting, with the right angles in float64."""

    def __init__(self, positions, width, base, converted, surrounding, elsewhere, late):
        self.positions, self.width, self.base, self.late = positions, width, base, late
        self.converted, self.surrounding, self.elsewhere = converted, surrounding, elsewhere
        self.frequencies = self._frequencies(base)
        self.angles = positions[:, None] * self.frequencies

    def _frequencies(self, base):
        return base ** (-torch.arange(0, self.width, 2, dtype=torch.float64) / self.width)

    def holds(self, cos, sin, angles):
        """Where cos and sin are those of the angles, as far as float32 goes."""
        # As exp(-log(base) * x), whose argument of up to 13 is rounded three times to 2**-21: 24
        # units of 2**-24. The power itself, the multiplication and the cast take four more.
        room = 28 * 2.0**-24 * angles.abs() + max(2.0**-22, torch.finfo(cos.dtype).eps)
        return ((cos - angles.cos()).abs() <= room) & ((sin - angles.sin()).abs() <= room)

    def narrow(self, cos, sin, call):
        """The mistake of a result in another dtype than float32."""
        narrow = cos.dtype if cos.dtype is not torch.float32 else sin.dtype
        why, idea = "", None
        if cos.is_floating_point() and sin.is_floating_point():
            right = self.holds(cos, sin, self.angles).all()
            why, idea = (RIGHT_ANGLES, None) if right else self._rounded(cos, sin)
        said = {"call": call, "dtype": name_of(narrow), "why": why}
        return Mistake(NARROW, misconception=idea, search=not why, **said)

    def mistake(self, cos, sin, call):
        row, pair = (~self.holds(cos, sin, self.angles)).nonzero()[0].tolist()
        why, idea = self._explained(cos, sin, row, pair)
        angle = self.angles[row, pair]
        return Mistake(
            OFF,
            misconception=idea,
            search=not why,
            call=call,
            position=int(self.positions[row]),
            pair=pair,
            cos=cos[row, pair].item(),
            sin=sin[row, pair].item(),
            want_cos=angle.cos().item(),
            want_sin=angle.sin().item(),
            angle=angle.item(),
            why=why,
        )

    def _explained(self, cos, sin, row, pair):
        """The sentence of the mistake that gives all these values, and its idea."""
        why, idea = self._rounded(cos, sin)
        if why:
            return why, idea
        if self.holds(sin, cos, self.angles).all():
            return EXCHANGED, None
        if ((cos - self.angles).abs() <= 2.0**-20 * self.angles).all():
            return NO_COSINE, None
        for dtype in _NARROW:
            if torch.equal(cos.to(dtype).double(), cos):
                return fill(TABLE_ROUNDED, dtype=name_of(dtype)), None
        first = self.positions[0]
        for why, positions in {
            EARLIER: _earlier(self.positions),
            fill(FROM_FIRST, first=int(first)): self.positions - first,
            fill(COUNTED, row=row): torch.arange(len(cos)),
        }.items():
            if self.holds(cos, sin, positions[:, None] * self.frequencies).all():
                return why, None
        c, s = cos[row, pair].item(), sin[row, pair].item()
        if self.positions[row] == 1 and abs(math.hypot(c, s) - 1) < 1e-5:
            return fill(TURNED_BY, got=math.atan2(s, c)), None
        return "", None

    def _rounded(self, cos, sin):
        """The sentence of the other angles that give all these values, and its idea."""
        for (why, idea), angles in self._others().items():
            if (self.holds(cos, sin, angles) | (~angles.isfinite() & ~cos.isfinite())).all():
                return why, idea
        return "", None

    def _others(self):
        """The angles that each mistake gives, by its sentence and its idea."""
        others = {}
        if self.base != 10_000.0:
            others[OTHER_BASE, None] = self.positions[:, None] * self._frequencies(10_000.0)
        for dtype in _NARROW:
            name, positions, frequencies = (
                name_of(dtype),
                *(t.to(dtype).double() for t in (self.positions, self.frequencies)),
            )
            late = "upcast-too-late" if self.late else None
            held = fill(MODULE_ROUNDED + TO_CONVERTS, dtype=name), late
            if dtype is self.converted:
                others[held] = self.positions[:, None] * frequencies
            at = int((positions != self.positions).nonzero()[0])
            said = {"other": positions[at].item(), "position": int(self.positions[at])}
            counted = fill(POSITIONS_ROUNDED, dtype=name, **said), "positions-are-small-integers"
            others[counted] = positions[:, None] * self.frequencies
            others[self._all_rounded(dtype, name)] = (
                (positions[:, None] * frequencies).to(dtype).double()
            )
        return others

    def _all_rounded(self, dtype, name):
        """What is said of angles that are rounded with both of their factors."""
        if dtype is self.converted:
            return f"{fill(ALL_ROUNDED, dtype=name)} {TO_CONVERTS}", None
        if dtype is not self.surrounding:
            return fill(ALL_ROUNDED, dtype=name), "upcast-too-late"
        if self.elsewhere:
            said = fill(f"{MATMUL} {ELSEWHERE}", dtype=name, device=self.elsewhere)
            return said, "autocast-off-for-another-device"
        return fill(MATMUL, dtype=name), "float-is-a-shelter"


_ANGLES = "positions.float()[:, None] * inverse"
_LATE = "`.float()` brings back no bit that was rounded away. Which tensors were rounded before it?"

check_rotary.slip(
    "float-is-a-shelter",
    "Both factors are float32, and autocast casts them. Which operator that is on no list gives "
    "the angles?",
    swap=(_ANGLES, "positions.float()[:, None] @ inverse[None]"),
)
check_rotary.slip(
    "float-is-a-shelter",
    "Both factors are float32, and autocast casts them. Which operator that is on no list gives "
    "the angles?",
    swap=(_ANGLES, 'torch.einsum("i,j->ij", positions.float(), inverse)'),
)
check_rotary.slip(
    "positions-are-small-integers",
    "No 16-bit format holds all positions. To which dtype must an int64 position be converted?",
    swap=("positions.float()", "positions.bfloat16().float()"),
)
check_rotary.slip(
    "upcast-too-late",
    _LATE,
    swap=(_ANGLES, "(positions.bfloat16()[:, None] * inverse.bfloat16()).float()"),
)
check_rotary.slip(
    "autocast-off-for-another-device",
    "The block must be for the device of the tensors. Which attribute of `positions` names it?",
    swap=(
        f"angles = {_ANGLES}",
        # For "cuda", emulate_gpu() lets these positions stand for a GPU's where there is none.
        'with torch.autocast("xpu", enabled=False):\n'
        "            angles = positions.float()[:, None] @ inverse[None]",
    ),
)


@check_rotary.wrong("upcast-too-late", _LATE)
class _(torch.nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        even = torch.arange(0, width, 2).float()
        self.register_buffer("inverse", base ** (-even / width))

    def forward(self, positions):
        angles = positions.float()[:, None] * self.inverse.float()
        return angles.cos(), angles.sin()
