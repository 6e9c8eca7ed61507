"""NanDetective: a run that fails, eight instruments, a budget, and whom to accuse.

A case is a ``nan_detective.Case``. The page only asks and accuses: each request says what to
do, and ``numbers`` holds everything that is then shown.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tqdm.auto import tqdm

from labkit.base import progress
from labkit.labs.detective import case_wording, nan_detective
from labkit.labs.detective.instruments import Reading
from labkit.labs.detective.nan_detective import TIERS, Case, Judged, said
from labkit.labs.detective.nan_pictures import drawn
from labkit.labs.engine.described import AskingWidget
from labkit.labs.engine.misconceptions import misconceptions
from labkit.labs.texts import LANGUAGES, BilingualError, Text

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
        language: of all that is shown, "en" or "zh"; the log is in English.

    Raises:
        ValueError: an unknown tier or language; from ``ask`` and ``accuse``: an unknown name, a
            query that is too dear, a closed case.
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    def __init__(
        self,
        seed: int = 0,
        *,
        lab: str = "interview",
        tier: str = "digits",
        language: str = "en",
    ) -> None:
        super().__init__()
        if tier not in TIERS:
            raise ValueError(f"tier {tier!r}: take one of {', '.join(TIERS)}")
        if language not in LANGUAGES:
            raise ValueError(f"language {language!r}: take one of {', '.join(LANGUAGES)}")
        self.language = language
        self.tier = TIERS[tier]
        self.lab = lab
        self._open(seed)

    def _open(self, seed: int) -> None:
        opening = case_wording.OPENING.filled(seed=seed)[self.language]
        with (
            tqdm(total=1, desc=opening, bar_format="{desc}", leave=False),
            self._errors_in_its_language(),
        ):
            self.case: Case = nan_detective.new_case(seed, self.tier)
        self._trouble = ""
        self._show()

    def ask(self, instrument: str) -> str:
        """Ask an instrument; returns what it says."""
        with self._errors_in_its_language():
            reading = self.case.ask(instrument)
        self._show()
        return said(reading, self.tier)[self.language]

    def accuse(self, cause: str) -> str:
        """Accuse a cause and close the case; returns the verdict."""
        with self._errors_in_its_language():
            verdict = nan_detective.accuse(self.case, cause)
        self._trouble = self._log(verdict) or ""
        self._show()
        return verdict.in_words(self.language)

    def another(self) -> None:
        """Open the case of the next seed."""
        self._open(self.case.seed + 1)

    @contextmanager
    def _errors_in_its_language(self) -> Iterator[None]:
        try:
            yield
        except BilingualError as error:
            base = ValueError if isinstance(error, ValueError) else RuntimeError
            raise base(error.said[self.language]) from None

    def _log(self, verdict: Judged) -> str | None:
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
        case, language = self.case, self.language
        asked = {reading.instrument for reading in case.readings}
        return {
            "language": language,
            "words": {name: text[language] for name, text in case_wording.PAGE.items()},
            "case": case.seed,
            "symptom": case.complaint[language],
            "left": case.minutes_left,
            "left_words": _left_words(case)[language],
            "closed": case.verdict is not None,
            "instruments": [
                {
                    "id": each.id,
                    "name": each.name[language],
                    "tells": each.tells[language],
                    "price": each.price,
                    "asked": each.id in asked,
                    "payable": each.price <= case.minutes_left,
                }
                for each in self.tier.instruments.values()
            ],
            "readings": [_reading(reading, case, language) for reading in case.readings],
            "suspects": [
                {"id": cause.id, "name": cause.name[language]}
                for cause in self.tier.causes.values()
            ],
            "verdict": case.verdict and _verdict(case.verdict, asked, language),
            "trouble": self._trouble,
        }

    def describe(self) -> str:
        """Say in words all that the page shows."""
        case, language = self.case, self.language
        asked = {reading.instrument for reading in case.readings}
        head = case_wording.HEAD.filled(case=case.seed, complaint=case.complaint)
        lines = [head[language], _left_words(case)[language]]
        if case.readings:
            lines += ["", case_wording.READINGS[language]]
            lines += [f"- {said(reading, self.tier)[language]}" for reading in case.readings]
        if case.verdict:
            verdict = case.verdict.in_words(language)
            return "\n".join([*lines, "", verdict, *_why_not(case.verdict, language)])
        lines += ["", case_wording.INSTRUMENTS[language]]
        lines += [
            case_wording.INSTRUMENT.filled(
                id=each.id, price=case_wording.minutes(each.price), tells=each.tells
            )[language]
            for each in self.tier.instruments.values()
            if each.id not in asked
        ]
        lines += ["", case_wording.SUSPECTS[language]]
        lines += [
            case_wording.SUSPECT.filled(id=cause.id, name=cause.name)[language]
            for cause in self.tier.causes.values()
        ]
        return "\n".join(lines)


def _left_words(case: Case) -> Text:
    if case.verdict:
        return case_wording.CLOSED
    return case_wording.LEFT.filled(left=case.minutes_left, budget=case.tier.budget)


def _reading(reading: Reading, case: Case | Judged, language: str) -> dict:
    return {
        "id": reading.instrument,
        "name": case.tier.instruments[reading.instrument].name[language],
        "text": reading.text[language],
        "picture": drawn(reading.picture, language),
    }


def _verdict(verdict: Judged, asked: set[str], language: str) -> dict:
    return {
        "right": verdict.right,
        "opening": verdict.opening()[language],
        "sign": said(verdict.sign, verdict.tier, closed=True)[language],
        "bill": verdict.bill()[language].rstrip(":："),
        "evidence": [
            _reading(r, verdict, language) | {"asked": r.instrument in asked}
            for r in verdict.evidence
        ],
        "against": [
            {"name": verdict.tier.causes[cause].name[language], "sentence": sentence[language]}
            for cause, sentence in verdict.against.items()
        ],
        "idea": _idea(verdict, language),
        "repair": verdict.repair[language],
    }


def _idea(verdict: Judged, language: str) -> str:
    if not verdict.misconception:
        return ""
    idea = misconceptions()[verdict.misconception]
    return Text(en=idea.en, zh=idea.zh)[language]


def _why_not(verdict: Judged, language: str) -> list[str]:
    idea = _idea(verdict, language)
    lines = [case_wording.IDEA.filled(idea=idea)[language]] if idea else []
    sentences = (f"- {sentence[language]}" for sentence in verdict.against.values())
    return [*lines, case_wording.OTHERS[language], *sentences]
