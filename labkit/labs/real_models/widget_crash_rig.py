"""CrashRig: four parts of a model in 16 bits, a setting that grows, and repairs on and off.

The parts are one query's attention, a head's probabilities, rotary angles and a mean over tokens.
Each runs under ``emulate_gpu()`` beside float64. Python computes every number; the page draws.
"""

import math
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
import traitlets
from torch import Tensor

from labkit.emulation import emulate_gpu
from labkit.formats import BF16, FP16, FP32, FloatFormat, spacing
from labkit.labs.engine.described import AskingWidget

FORMATS = {"BF16": BF16, "FP16": FP16}
LIMIT = 0.005
"""A relative error above it is too large."""

PASSING = 0.1
"""Below it, too little of the gradient passes the softmax and the cap."""

VALUES = 16
"""Values that are drawn: keys, classes, pairs of a head, channels."""

ATTENTION_CAP, HEAD_CAP = 50.0, 30.0  # Gemma 2's, arXiv:2408.00118
_WIDTH = 64  # of a head
_ROWS = 6  # of the table of settings that were tried
_DTYPES = {"BF16": torch.bfloat16, "FP16": torch.float16}
_LOWEST, _WORST = 1e-6, 1.0  # the ends of the axis of errors


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a part computed, beside float64 of the same function on the same inputs."""

    exact: Tensor  # float64, VALUES of them
    computed: Tensor
    wide: bool  # whether ``held`` is float32
    held: float  # the largest magnitude that was held on the way
    apart: float  # a difference of values of that size, which must survive
    passes: float | None = None  # of the gradient, through softmax and cap
    passes_exact: float | None = None  # the same in float64

    @property
    def broken(self) -> int:
        """How many values are inf or NaN."""
        return int((~self.computed.isfinite()).sum())

    @property
    def error(self) -> float:
        """The relative error, by norms; NaN where a value is inf or NaN."""
        if self.broken:
            return math.nan
        return ((self.computed - self.exact).norm() / self.exact.norm()).item()

    @property
    def holds(self) -> bool:
        """Whether the error is small enough and a gradient passes."""
        return self.error <= LIMIT and (self.passes is None or self.passes >= PASSING)


@contextmanager
def _autocast(dtype: torch.dtype, repairs: Set[str]) -> Iterator[None]:
    with emulate_gpu(), torch.autocast("cpu", dtype=dtype, enabled="before" not in repairs):
        yield


def _bf16(x: Tensor) -> Tensor:
    """Rounded once, so that BF16, FP16 and float64 begin with the same numbers."""
    return x.to(torch.bfloat16).float()


# ---------------------------------------------------------------- attention


@cache
def _query_and_keys() -> tuple[Tensor, Tensor]:
    """A query (1, 64) and keys (16, 64): the largest score is 1, the second largest 0.996."""
    generator = torch.Generator().manual_seed(0)
    direction = F.normalize(torch.randn(1, _WIDTH, generator=generator))
    scores = torch.cat([torch.tensor([1, 0.996]), torch.linspace(0.85, -0.6, VALUES - 2)])
    cosines = 0.6 * scores[torch.randperm(VALUES, generator=generator)][:, None]
    across = torch.randn(VALUES, _WIDTH, generator=generator)
    across = F.normalize(across - (across @ direction.T) * direction)
    keys = cosines * direction + (1 - cosines**2).sqrt() * across
    return _bf16(math.sqrt(_WIDTH) * direction), _bf16(keys / 0.6)


def _attend(q: Tensor, k: Tensor, repairs: Set[str]) -> tuple[Tensor, Tensor]:
    """The weights of one query (16,) and its scores before the cap (16,)."""
    values = torch.eye(VALUES, _WIDTH, dtype=k.dtype)  # so that the output is the weights
    if "qk_norm" in repairs:
        q, k = (F.rms_norm(x, (_WIDTH,), eps=1e-6) for x in (q, k))
    scores = q @ k.mT / math.sqrt(_WIDTH)
    if "fused" in repairs:
        out = F.scaled_dot_product_attention(q[None, None], k[None, None], values[None, None])[0, 0]
    else:
        capped = _capped(scores, ATTENTION_CAP if "cap" in repairs else None)
        out = capped.softmax(-1) @ values
    return out[0, :VALUES], scores[0]


def _attention(level: int, dtype: torch.dtype, repairs: Set[str]) -> Run:
    query, keys = _query_and_keys()
    q, k = query * 2.0 ** (level - level // 2), keys * 2.0 ** (level // 2)
    exact, true = _attend(q.double(), k.double(), repairs - {"fused"})
    wide = "before" in repairs
    with _autocast(dtype, repairs):
        computed, scores = _attend(q if wide else q.to(dtype), k if wide else k.to(dtype), repairs)
    if "fused" in repairs:  # the kernel keeps its scores in float32
        scores, wide = true.float(), True
    cap = ATTENTION_CAP if "cap" in repairs else None
    return _softmaxed(exact, computed, true=true, scores=scores, cap=cap, wide=wide)


# ---------------------------------------------------------------- the head


@cache
def _head() -> tuple[Tensor, Tensor]:
    """A hidden state (1, 64) and a head's weight (16, 64)."""
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(1, _WIDTH, generator=generator)
    return _bf16(hidden), _bf16(torch.randn(VALUES, _WIDTH, generator=generator) / 8)


def _logits(level: int, dtype: torch.dtype, repairs: Set[str]) -> Run:
    hidden, weight = _head()
    offset = torch.full((VALUES,), 2.0**level)
    cap = HEAD_CAP if "cap" in repairs else None
    true = F.linear(hidden.double(), weight.double(), offset.double())[0]
    exact = _capped(true, cap).softmax(-1)
    wide = "before" in repairs
    with _autocast(dtype, repairs):
        logits = F.linear(hidden, weight, offset)[0]
        if "after" in repairs:
            logits = logits.float()
        computed = _capped(logits, cap).softmax(-1)
    return _softmaxed(exact, computed, true=true, scores=logits, cap=cap, wide=wide)


def _capped(scores: Tensor, cap: float | None) -> Tensor:
    return scores if cap is None else cap * torch.tanh(scores / cap)


def _softmaxed(
    exact: Tensor, computed: Tensor, *, true: Tensor, scores: Tensor, cap: float | None, wide: bool
) -> Run:
    first, second = true.topk(2).values.tolist()
    return Run(
        exact=exact,
        computed=computed.double(),
        wide=wide,
        held=scores.abs().max().item(),
        apart=first - second,
        passes=_passes(computed, scores, cap),
        passes_exact=_passes(exact, true, cap),
    )


def _passes(weights: Tensor, scores: Tensor, cap: float | None) -> float:
    """The sum of p (1 - p), times the cap's slope, which autograd takes from the stored tanh."""
    p = weights.double()
    slope = 1.0 if cap is None else 1 - torch.tanh(scores / cap).double() ** 2
    return (p * (1 - p) * slope).sum().item()


# ---------------------------------------------------------------- angles and means


def _angles(level: int, dtype: torch.dtype, repairs: Set[str]) -> Run:
    positions = torch.tensor([2**level + 1])
    even = torch.arange(0, 2 * VALUES, 2) / (2 * VALUES)
    inverse = 10000.0**-even
    exact = (positions.double() * 10000.0 ** -even.double()).cos()
    with _autocast(dtype, repairs):
        angles = (positions.float()[:, None] @ inverse[None])[0]
        if "after" in repairs:
            angles = angles.float()
        computed = angles.cos().double()
    return Run(
        exact=exact,
        computed=computed,
        wide="before" in repairs,
        held=angles.abs().max().item(),
        apart=2 * math.pi,
    )


@cache
def _tokens() -> Tensor:
    """Hidden states (16385, 16), whose channels have means from 24 to 54."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(2**14 + 1, VALUES, generator=generator)
    return _bf16(torch.arange(24.0, 24 + 2 * VALUES, 2) + 4 * noise)


def _mean(level: int, dtype: torch.dtype, repairs: Set[str]) -> Run:
    tokens = _tokens()[: 2**level + 1]
    mask = torch.ones(len(tokens))
    total = tokens.double().sum(0)
    wide = "before" in repairs
    with emulate_gpu():  # no autocast, whose list has sum in float32: a model after .half()
        hidden = tokens if wide else tokens.to(dtype)
        sums = hidden.sum(0)
        computed = sums / mask.to(hidden.dtype).sum()
    return Run(
        exact=total / len(tokens),
        computed=computed.double(),
        wide=wide,
        held=sums.max().item(),
        apart=(total.max() / len(tokens)).item(),
    )


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a model: what is set, what can be repaired, and the words for both."""

    title: str
    dial: str
    levels: range  # exponents of 2
    more: int = 0  # added to the power of 2
    start: int
    repairs: dict[str, str]
    run: Callable[[int, torch.dtype, Set[str]], Run]
    values: str  # what is drawn
    signed: bool = False  # whether bars go both ways
    held: str
    overflow: str = ""  # what overflows where ``held`` is inf
    apart: str
    goal: tuple[int, str]  # at this level or a higher one, in this format


PARTS = {
    "attention": Part(
        title="attention",
        dial="Largest score before repairs",
        levels=range(15),
        start=2,
        repairs={
            "qk_norm": "QK-norm",
            "fused": "fused",
            "cap": "soft cap at 50",
            "before": "float32 matmul",
        },
        run=_attention,
        values="weights of 16 keys",
        held="largest score",
        overflow="q @ k.mT, 8 times the scores, overflows",
        apart="the two largest scores differ by",
        goal=(12, "BF16"),
    ),
    "angles": Part(
        title="rotary angles",
        dial="Position",
        levels=range(18),
        start=3,
        repairs={"after": ".float() on the angles", "before": "float32 matmul"},
        run=_angles,
        values="cosines of 16 pairs",
        held="largest angle",
        overflow="The position overflows",
        apart="a full turn is",
        goal=(16, "BF16"),
        signed=True,
        more=1,
    ),
    "logits": Part(
        title="logits of the head",
        dial="Offset of all logits",
        levels=range(10),
        start=0,
        repairs={
            "cap": "soft cap at 30",
            "after": ".float() on the logits",
            "before": "float32 matmul",
        },
        run=_logits,
        values="probabilities of 16 classes",
        held="largest logit",
        apart="the two largest logits differ by",
        goal=(8, "BF16"),
    ),
    "mean": Part(
        title="mean over tokens",
        dial="Tokens",
        levels=range(4, 15),
        start=4,
        repairs={"after": ".float() on the mean", "before": ".float() on the tokens"},
        run=_mean,
        values="means of 16 channels",
        held="largest sum",
        overflow="The largest sum overflows",
        apart="one token adds about",
        goal=(12, "FP16"),
        more=1,
    ),
}


class CrashRig(AskingWidget):
    """One part of a model as bars, exact and computed, with its error on a log axis.

    ``part`` ("attention", "angles", "logits", "mean"), ``level`` (the exponent of the setting, a
    power of 2), ``format_name`` ("BF16", "FP16") and ``repairs`` (a set of names, see ``PARTS``)
    can be read, set and observed. Another part begins at its own level without repairs. ``reached``
    says with which repairs a part's goal was reached: the error is at most 0.5 % at the goal's
    level or above, a gradient passes, and no repair can be left out.

    Raises:
        TraitError: a part, format or repair that there is not, a level out of the part's range, or
            fused attention with a soft cap, which ``F.scaled_dot_product_attention`` has not.

    >>> rig = CrashRig()
    >>> rig.level, rig.repairs = 12, {"fused"}
    >>> print(rig.describe().splitlines()[0])
    attention in BF16, largest score before repairs 4,096. Repairs: fused.
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    part = traitlets.Enum(tuple(PARTS), "attention")
    level = traitlets.Int(PARTS["attention"].start)
    format_name = traitlets.Enum(tuple(FORMATS), "BF16")
    repairs = traitlets.Set(traitlets.Unicode())
    reached = traitlets.Dict(read_only=True)

    def __init__(self) -> None:
        self._tried: dict[tuple, dict[str, str]] = {}
        super().__init__()
        self._show()

    @traitlets.validate("level")
    def _level_of_part(self, proposal: dict) -> int:
        levels = PARTS[self.part].levels
        if proposal["value"] not in levels:
            raise traitlets.TraitError(
                f"level={proposal['value']}: {self.part} takes {levels[0]} to {levels[-1]}"
            )
        return proposal["value"]

    @traitlets.validate("repairs")
    def _repairs_of_part(self, proposal: dict) -> set[str]:
        repairs, known = proposal["value"], PARTS[self.part].repairs
        if not repairs <= known.keys():
            raise traitlets.TraitError(f"repairs={repairs}: {self.part} takes {', '.join(known)}")
        if {"fused", "cap"} <= repairs:
            raise traitlets.TraitError("F.scaled_dot_product_attention has no soft cap: choose one")
        return repairs

    @traitlets.observe("part")
    def _begin(self, change: dict) -> None:
        with self.hold_trait_notifications():
            self.repairs = set()
            self.level = PARTS[self.part].start
        self._show()

    @traitlets.observe("level", "format_name", "repairs")
    def _set(self, change: dict) -> None:
        self._show()

    def _do(self, asked: dict) -> None:
        """Do what the page asks: {seq, part}, {seq, level}, {seq, format_name}, {seq, repair}."""
        for name in asked.keys() & {"part", "format_name"}:
            setattr(self, name, asked[name])
        # What was asked before the page drew the new part may be the old one's.
        part = PARTS[self.part]
        if "level" in asked:
            self.level = min(max(asked["level"], part.levels[0]), part.levels[-1])
        if asked.get("repair") in part.repairs:
            self._switch(asked["repair"])

    def _switch(self, repair: str) -> None:
        """Turn a repair on or off; fused attention turns the soft cap off, and the other way."""
        self.repairs = (self.repairs ^ {repair}) - {{"fused": "cap", "cap": "fused"}.get(repair)}

    # ------------------------------------------------------------ what is computed

    def _run(self, repairs: Set[str]) -> Run:
        return PARTS[self.part].run(self.level, _DTYPES[self.format_name], frozenset(repairs))

    def _judge(self, run: Run) -> None:
        level, format_name = PARTS[self.part].goal
        if self.level < level or self.format_name != format_name or not run.holds:
            return
        if self.part not in self.reached and not any(
            self._run(self.repairs - {repair}).holds for repair in self.repairs
        ):
            self.set_trait("reached", self.reached | {self.part: self._named()})

    def _named(self) -> str:
        """The repairs that are on, in the order of their buttons."""
        titles = PARTS[self.part].repairs
        return ", ".join(titles[name] for name in titles if name in self.repairs) or "none"

    # ------------------------------------------------------------ what is drawn

    def _numbers(self) -> dict:
        part, run = PARTS[self.part], self._run(self.repairs)
        self._judge(run)
        row = {
            "setting": self._value(),
            "format": self.format_name,
            "repairs": self._named(),
            "error": _percent(run.error),
            "passes": "" if run.passes is None else f"{run.passes:.2g}",
        }
        key = (self.part, self.level, self.format_name, frozenset(self.repairs))
        self._tried = {k: v for k, v in self._tried.items() if k != key} | {key: row}
        rows = [row for (name, *_), row in self._tried.items() if name == self.part][-_ROWS:]
        setting = (
            f"{part.title} in {self.format_name}, {part.dial.lower()} {self._value()}. "
            f"Repairs: {self._named()}."
        )
        verdict, reading, targets = _verdict(run), self._reading(run), self._targets()
        drawn = f"Drawn: {part.values}. {_farthest(run)}"
        asked = (
            f"An error of {_percent(LIMIT)} or less, at least {PASSING:g} passes where there is a "
            "softmax, and no repair that could be left out:"
        )
        told = [
            setting,
            drawn,
            verdict,
            reading,
            *(
                f"Tried: {row['setting']} in {row['format']}, repairs {row['repairs']}: error "
                f"{row['error']}{', passes ' * bool(row['passes'])}{row['passes']}."
                for row in rows
            ),
            asked,
            *(f"Goal{', reached' * target['done']}: {target['text']}" for target in targets),
        ]
        return {
            "part": self.part,
            "level": self.level,
            "levels": [part.levels[0], part.levels[-1]],
            "dial": part.dial,
            "value": self._value(),
            "format_name": self.format_name,
            "repairs": [
                [name, title, name in self.repairs] for name, title in part.repairs.items()
            ],
            "drawn": drawn,
            "bars": _bars(run),
            "signed": part.signed,
            "error": {
                "at": 1.0 if run.broken else _place(run.error),
                "text": _percent(run.error),
                "broken": bool(run.broken),
                "limit": _place(LIMIT),
                "ticks": [[_place(10.0**e), _percent(10.0**e)] for e in range(-6, 1)],
            },
            "scale": self._scale(run),
            "setting": setting,
            "verdict": verdict,
            "holds": run.holds,
            "reading": reading,
            "rows": rows,
            "asked": asked,
            "targets": targets,
            "spoken": f"{part.dial} {self._value()}. {verdict}",
            "sentence": "\n".join(told),
        }

    def _value(self) -> str:
        return f"{2**self.level + PARTS[self.part].more:,}"

    def _format(self, run: Run) -> tuple[str, FloatFormat]:
        return ("float32", FP32) if run.wide else (self.format_name, FORMATS[self.format_name])

    def _gap(self, run: Run) -> float:
        return spacing(run.held, self._format(run)[1]) if math.isfinite(run.held) else math.inf

    def _scale(self, run: Run) -> dict:
        """The gap and what must stay apart, as lengths from 0 to 1 on one linear scale."""
        gap, name = self._gap(run), self._format(run)[0]
        finite = math.isfinite(gap)
        largest = max(gap, run.apart)
        part = PARTS[self.part]
        return {
            "gap": gap / largest if finite else 1.0,
            "apart": run.apart / largest,
            "gap_text": (f"gap of {name} there: {_short(gap)}" if finite else f"{name} overflows"),
            "apart_text": f"{part.apart} {_short(run.apart)}",
        }

    def _reading(self, run: Run) -> str:
        part, (name, _) = PARTS[self.part], self._format(run)
        if not math.isfinite(run.held):
            return (
                f"{part.overflow}: {name} ends at {FORMATS[name].max:,.0f}. "
                f"{part.apart.capitalize()} {_short(run.apart)}."
            )
        return (
            f"The {part.held} is {_short(run.held)}, where {name} has a gap of "
            f"{_short(self._gap(run))}; {part.apart} {_short(run.apart)}."
        )

    def _targets(self) -> list[dict]:
        targets = []
        for name, part in PARTS.items():
            level, format_name = part.goal
            text = (
                f"{part.title} in {format_name}, {part.dial.lower()} {2**level + part.more:,} "
                "or more"
            )
            done = name in self.reached
            if done:
                text += f": {self.reached[name]}"
            targets.append({"done": done, "text": f"{text}."})
        return targets


def _verdict(run: Run) -> str:
    if run.broken:
        return f"{run.broken} of {VALUES} values are inf or NaN."
    side = "within" if run.error <= LIMIT else "above"
    words = f"Relative error {_percent(run.error)}, {side} the limit of {_percent(LIMIT)}."
    if run.passes is not None and run.passes < PASSING:
        too = ", in float64 too" * (run.passes_exact < PASSING)
        words += (
            f" Almost no gradient passes{too}: {run.passes:.2g}; at least {PASSING:g} is asked for."
        )
    return words


def _farthest(run: Run) -> str:
    """The value that is farthest from its exact one, or the first that is inf or NaN."""
    place = int((run.computed - run.exact).abs().nan_to_num(math.inf, math.inf).argmax())
    computed, exact = run.computed[place].item(), run.exact[place].item()
    return f"Farthest off is value {place + 1}: {_word(computed)} for {exact:.3g}."


def _word(x: float) -> str:
    return "NaN" if math.isnan(x) else f"{x:.3g}"


def _bars(run: Run) -> list[dict]:
    """Each value as heights from -1 to 1; a computed value that is not finite has its name."""
    finite = run.computed[run.computed.isfinite()]
    top = torch.cat([run.exact, finite]).abs().max().item()
    return [
        {
            "exact": exact / top,
            "computed": computed / top if math.isfinite(computed) else None,
            "word": "" if math.isfinite(computed) else _word(computed),
        }
        for exact, computed in zip(run.exact.tolist(), run.computed.tolist(), strict=True)
    ]


def _place(error: float) -> float:
    """Where an error lies on the log axis, from 0 to 1."""
    within = min(max(error, _LOWEST), _WORST)
    return math.log(within / _LOWEST) / math.log(_WORST / _LOWEST)


def _percent(error: float) -> str:
    if not math.isfinite(error):
        return "inf or NaN"
    return f"{100 * error:.2g} %" if error < 1 else f"{100 * error:.0f} %"


def _short(x: float) -> str:
    return f"{x:,.0f}" if 1000 <= x < math.inf else f"{x:.3g}"
