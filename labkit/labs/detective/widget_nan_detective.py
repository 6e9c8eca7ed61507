"""NanDetective: a run that fails, eight instruments, a budget, and whom to accuse.

A case is a ``nan_detective.Case``. The page only asks and accuses: each request says what to
do, and ``numbers`` holds everything that is then shown.
"""

from pathlib import Path

from tqdm.auto import tqdm

from labkit.base import progress
from labkit.base.misconceptions import misconceptions
from labkit.labs.detective import nan_detective
from labkit.labs.detective.instruments import Reading
from labkit.labs.detective.nan_detective import TIERS, Case, Verdict, said
from labkit.labs.detective.nan_pictures import drawn
from labkit.labs.engine.described import AskingWidget

ITEM = "nan-detective"
"""The item under which the log holds the verdicts."""


class NanDetective(AskingWidget):
    """The file of one case: the symptom, the instruments, the readings, the suspects, the verdict.

    ``ask(instrument)``, ``accuse(cause)`` and ``another()`` do what the page does. The verdict goes
    to the learner's log, a wrong accusation with its misconception.

    Args:
        seed: which case.
        lab: the lab that the log names.
        tier: "digits", small runs that really fail, or "scale", simulated jobs on 32 GPUs.

    Raises:
        ValueError: from ``ask`` and ``accuse``: an unknown name, a query that is too dear, a closed
            case.
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    def __init__(self, seed: int = 0, *, lab: str = "interview", tier: str = "digits") -> None:
        super().__init__()
        if tier not in TIERS:
            raise ValueError(f"tier {tier!r}: take one of {', '.join(TIERS)}")
        self.tier = TIERS[tier]
        self.lab = lab
        self._open(seed)

    def _open(self, seed: int) -> None:
        opening = f"Case {seed} runs on this machine: seconds, up to half a minute if it is busy"
        with tqdm(total=1, desc=opening, bar_format="{desc}", leave=False):
            self.case: Case = nan_detective.new_case(seed, self.tier)
        self._trouble = ""
        self._show()

    def ask(self, instrument: str) -> str:
        """Ask an instrument; returns what it says."""
        reading = self.case.ask(instrument)
        self._show()
        return said(reading, self.tier)

    def accuse(self, cause: str) -> str:
        """Accuse a cause and close the case; returns the verdict."""
        verdict = nan_detective.accuse(self.case, cause)
        self._trouble = self._log(verdict) or ""
        self._show()
        return str(verdict)

    def another(self) -> None:
        """Open the case of the next seed."""
        self._open(self.case.seed + 1)

    def _log(self, verdict: Verdict) -> str | None:
        return progress.record(
            "check",
            lab=self.lab,
            item=ITEM,
            status="passed" if verdict.right else "failed",
            message=str(verdict).splitlines()[0],
            misconceptions=[verdict.misconception] if verdict.misconception else [],
            seed=self.case.seed,
            tier=self.tier.id,
            accused=verdict.accused,
            cause=verdict.cause,
            proved=verdict.proved,
            queries=[reading.instrument for reading in self.case.readings],
        )

    def _do(self, asked: dict) -> None:
        """Do what the page asks: {seq, case, do, value}; of a case that has gone, nothing."""
        self._trouble = ""
        acts = {"ask": self.ask, "accuse": self.accuse, "another": lambda _: self.another()}
        if asked.get("case") == self.case.seed:
            try:
                acts[asked["do"]](asked.get("value"))
            except (ValueError, RuntimeError) as problem:
                self._trouble = str(problem)

    def _numbers(self) -> dict:
        case, asked = self.case, {reading.instrument for reading in self.case.readings}
        return {
            "case": case.seed,
            "symptom": case.complaint,
            "left": case.minutes_left,
            "left_words": _left_words(case),
            "closed": case.verdict is not None,
            "instruments": [
                {
                    "id": each.id,
                    "name": each.name,
                    "tells": each.tells,
                    "price": each.price,
                    "asked": each.id in asked,
                    "payable": each.price <= case.minutes_left,
                }
                for each in self.tier.instruments.values()
            ],
            "readings": [_reading(reading, case) for reading in case.readings],
            "suspects": [
                {"id": cause.id, "name": cause.name} for cause in self.tier.causes.values()
            ],
            "verdict": case.verdict and _verdict(case.verdict, asked),
            "trouble": self._trouble,
        }

    def describe(self) -> str:
        """Say in words all that the page shows."""
        case = self.case
        asked = {reading.instrument for reading in case.readings}
        lines = [f"NaN detective, case {case.seed}. {case.complaint}", _left_words(case)]
        if case.readings:
            lines += ["", "Readings:"]
            lines += [f"- {said(reading, self.tier)}" for reading in case.readings]
        if case.verdict:
            return "\n".join([*lines, "", str(case.verdict), *_why_not(case.verdict)])
        lines += ["", "Instruments, .ask(...):"]
        lines += [
            f"- {each.id!r}, {_minutes(each.price)}: {each.tells}"
            for each in self.tier.instruments.values()
            if each.id not in asked
        ]
        lines += ["", "Suspects, .accuse(...):"]
        lines += [f"- {cause.id!r}: {cause.name}" for cause in self.tier.causes.values()]
        return "\n".join(lines)


def _left_words(case: Case) -> str:
    if case.verdict:
        return "The case is closed."
    return f"{case.minutes_left} of {case.tier.budget} GPU-minutes left."


def _minutes(price: int) -> str:
    return f"{price} GPU-minute{'' if price == 1 else 's'}"


def _reading(reading: Reading, case: Case | Verdict) -> dict:
    return {
        "id": reading.instrument,
        "name": case.tier.instruments[reading.instrument].name,
        "text": reading.text,
        "picture": drawn(reading.picture),
    }


def _verdict(verdict: Verdict, asked: set[str]) -> dict:
    opening, *_ = str(verdict).splitlines()
    return {
        "right": verdict.right,
        "opening": opening,
        "sign": said(verdict.sign, verdict.tier, closed=True),
        "bill": verdict.bill().removesuffix(":"),
        "evidence": [
            _reading(r, verdict) | {"asked": r.instrument in asked} for r in verdict.evidence
        ],
        "against": [
            {"name": verdict.tier.causes[cause].name, "sentence": sentence}
            for cause, sentence in verdict.against.items()
        ],
        "idea": _idea(verdict),
        "repair": verdict.repair,
    }


def _idea(verdict: Verdict) -> str:
    return misconceptions()[verdict.misconception].en if verdict.misconception else ""


def _why_not(verdict: Verdict) -> list[str]:
    lines = [f"The idea behind the accusation: {_idea(verdict)}"] if verdict.misconception else []
    return [*lines, "What clears the others:", *(f"- {s}" for s in verdict.against.values())]
