"""CrashRig: four parts of a model in 16 bits, a setting that grows, and repairs on and off.

What a part computes is in ``parts``. Python computes every number; the page draws.
"""

import math
from collections.abc import Set
from pathlib import Path

import torch
import traitlets

from labkit.formats import BF16, FP16, FP32, FloatFormat, spacing
from labkit.labs.engine.described import AskingWidget
from labkit.labs.real_models.parts import LIMIT, PARTS, PASSING, VALUES, PartRun

FORMATS = {"BF16": BF16, "FP16": FP16}
_DTYPES = {"BF16": torch.bfloat16, "FP16": torch.float16}
_ROWS = 6  # of the table of settings that were tried
_LOWEST, _WORST = 1e-6, 1.0  # the ends of the axis of errors


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
    attention in BF16, largest score before repairs 4,096. Repairs: fused attention.
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

    def _run(self, repairs: Set[str]) -> PartRun:
        return PARTS[self.part].run(self.level, _DTYPES[self.format_name], frozenset(repairs))

    def _judge(self, run: PartRun) -> None:
        level, format_name = PARTS[self.part].goal
        if self.level < level or self.format_name != format_name or not run.holds:
            return
        if not any(self._run(self.repairs - {repair}).holds for repair in self.repairs):
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
            f"Reach each setting with an error of at most {_percent(LIMIT)}, a gradient that "
            f"passes the softmax ({PASSING:g} or more), and no repair that could be left out:"
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

    def _format(self, run: PartRun) -> tuple[str, FloatFormat]:
        return ("float32", FP32) if run.wide else (self.format_name, FORMATS[self.format_name])

    def _gap(self, run: PartRun) -> float:
        return spacing(run.held, self._format(run)[1]) if math.isfinite(run.held) else math.inf

    def _scale(self, run: PartRun) -> dict:
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

    def _reading(self, run: PartRun) -> str:
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


def _verdict(run: PartRun) -> str:
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


def _farthest(run: PartRun) -> str:
    """The value that is farthest from its exact one, or the first that is inf or NaN."""
    place = int((run.computed - run.exact).abs().nan_to_num(math.inf, math.inf).argmax())
    computed, exact = run.computed[place].item(), run.exact[place].item()
    return f"Farthest off is value {place + 1}: {_word(computed)} for {exact:.3g}."


def _word(x: float) -> str:
    return "NaN" if math.isnan(x) else f"{x:.3g}"


def _bars(run: PartRun) -> list[dict]:
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
    return f"{100 * error:.2g} %" if error < 0.995 else f"{100 * error:.0f} %"


def _short(x: float) -> str:
    return f"{x:,.0f}" if 1000 <= x < math.inf else f"{x:.3g}"
