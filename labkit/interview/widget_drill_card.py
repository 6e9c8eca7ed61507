"""DrillCard: one question after another, by keyboard alone if one likes.

``sittings`` holds the state, Python sends what to show as final HTML in ``numbers``, and the
page sends what was answered.
"""

import dataclasses
from pathlib import Path

import traitlets

from labkit.base.progress import ProgressError
from labkit.interview import card_text, drills, sittings, terminal
from labkit.interview import log as interview
from labkit.interview.answers import Judgement, read_answer
from labkit.interview.cards import Card
from labkit.interview.mock_report import report_markdown
from labkit.interview.question_parts import Unclear
from labkit.interview.questions import load_bank
from labkit.interview.sittings import ANSWERED, ASKING, DONE, TICKING, MockSitting, Sitting
from labkit.interview.wording import WORDS, in_brackets, labelled, listed, sureness, words
from labkit.labs.engine import rendered
from labkit.labs.engine.described import AskingWidget
from labkit.labs.texts import LANGUAGES


class DrillCard(AskingWidget):
    """The cards of a sitting, one at a time; ``describe()`` is the card in plain text.

    ``language`` is "en" or "zh". ``answer(typed)`` answers with the line that a terminal would take
    (``2``, ``b a c``, ``2**-14``), ``tick(1, 3)``, ``hint()`` and ``next()`` do what the page does.
    ``answer`` raises ``question_parts.Unclear`` for a line that cannot be understood.
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    language = traitlets.Enum(LANGUAGES, default_value="en").tag(sync=True)

    def __init__(self, sitting: Sitting, *, language: str | None = None) -> None:
        super().__init__()
        self.sitting = sitting
        self._unclear = ""
        with self.hold_trait_notifications():
            self.language = language or interview.language()
        self._show()

    def answer(self, typed: str, *, sure: int = drills.FAIRLY_SURE) -> None:
        """Answer the card with a typed line; empty or ? is "I do not know"."""
        question = self.sitting.card.question
        speech = question.spoken and typed.strip() not in ("", "?")
        self.sitting.submit(typed if speech else read_answer(self.sitting.card, typed), sure=sure)
        self._show()

    def tick(self, *points: int) -> None:
        """Tick the points that were made in free speech, counted from 1."""
        self.sitting.tick(points)
        self._show()

    def hint(self) -> None:
        """Show the next hint."""
        self.sitting.hint()
        self._show()

    def next(self) -> None:
        """Go on to the next card."""
        self.sitting.next()
        self._show()

    def _do(self, asked: dict) -> None:
        """Do what the page asks: {seq, do, value, sure}. What is unclear is said on the card."""
        self._unclear = ""
        if asked.get("card") != self._card_name():
            return  # of a card that has gone
        try:
            if asked["do"] == "answer":
                self.sitting.submit(self._in_its_form(asked["value"]), sure=asked["sure"])
            elif asked["do"] == "tick":
                self.sitting.tick(asked["value"])
            elif asked["do"] == "hint":
                self.sitting.hint()
            elif asked["do"] == "next":
                self.sitting.next()
        except Unclear as unclear:
            self._unclear = unclear.said[self.language]
        except ProgressError as problem:
            self._unclear = str(problem)

    def _in_its_form(self, value):
        """What the page sends: keys as they are, a typed line as a terminal would read it."""
        card = self.sitting.card
        typed = isinstance(value, str) and not card.keys and not card.question.spoken
        return read_answer(card, value) if typed else value

    @traitlets.observe("language")
    def _speak(self, change: dict) -> None:
        if hasattr(self, "sitting"):
            self._show()

    def _card_name(self) -> str:
        card = self.sitting.card
        return f"{self.sitting.place}:{card.question.id}" if card else "done"

    def _numbers(self) -> dict:
        sitting, language = self.sitting, self.language
        view = {
            "state": sitting.state,
            "card": self._card_name(),
            "words": words(language) | {"sureness": list(sureness(language))},
            "unclear": self._unclear,
            "trouble": sitting.trouble or "",
            "where": _where(sitting, language),
            "mock": isinstance(sitting, MockSitting),
        }
        if sitting.state == DONE:
            view["report"] = rendered.text(self._ending())
        else:
            view |= self._card_view(sitting.card, language)
        return view

    def _card_view(self, card: Card, language: str) -> dict:
        sitting, question = self.sitting, card.question
        view = _asked(card, language)
        view["how"] = question.how[language]
        view["hints"] = [rendered.line_html(hint[language]) for hint in sitting.shown_hints()]
        view["more_hints"] = sitting.has_hint
        if is_mock(sitting) and sitting.before:
            view["prompt"] = rendered.text(sitting.before[language]) + view["prompt"]
        if sitting.introduction:
            view["introduction"] = sitting.introduction[language]
        if sitting.state == TICKING:
            view["speech"] = sitting.speech
            view["model"] = rendered.text(card.fill(question.model[language]))
        if question.spoken and sitting.state != ASKING:
            view["rubric"] = [rendered.line_html(point[language]) for point in question.rubric]
        if sitting.state == ANSWERED:
            view |= _verdict(card, sitting.answer, sitting.judgement, language)
            view["again"] = self._again()
        return view

    def _again(self) -> str:
        """Where to read again, once a second card of this one's sections has been missed."""
        if self.sitting.judgement.correct:
            return ""
        links = [_link(place, self.language) for place in self.sitting.missed_twice()]
        again = WORDS["read again"][self.language]
        said = labelled(again, listed(links, self.language), self.language)
        return rendered.line_html(said) if links else ""

    def _ending(self) -> str:
        sitting, language = self.sitting, self.language
        if isinstance(sitting, MockSitting):
            return report_markdown(
                sitting.report(), sitting.bank, language, link=_link, trend=sitting.trend()
            )
        first, *rest = terminal.ending(sitting, language, link=_link)
        return "\n\n".join([f"**{first}**" if rest or sitting.questions else first, *rest])

    def describe(self) -> str:
        """Say in words all that the card shows."""
        sitting, language = self.sitting, self.language
        if sitting.state == DONE:
            return self._ending()
        lines = [self.numbers["where"], self.numbers.get("introduction", "")]
        if is_mock(sitting) and sitting.before:
            lines.append(sitting.before[language])
        lines = [line for line in (*lines, card_text.card_text(sitting.card, language)) if line]
        lines += [hint[language] for hint in sitting.shown_hints()]
        if sitting.state == TICKING:
            question = sitting.card.question
            lines.append(sitting.card.fill(question.model[language]))
            lines += [f"{i}. {p[language]}" for i, p in enumerate(question.rubric, 1)]
        if sitting.state == ANSWERED:
            card, answer = sitting.card, sitting.answer
            if card.question.spoken:
                notes = card.question.notes(card, answer, language)
                points = zip(card.question.rubric, notes, strict=False)  # no notes: not known
                lines += [f"{p[language]}{in_brackets(note.said, language)}" for p, note in points]
            lines.append(card_text.verdict_text(card, answer, sitting.judgement, language))
            lines.append(card.fill(card.question.explanation[language]))
        return "\n\n".join(lines)


def _where(sitting: Sitting, language: str) -> str:
    """Which card it is of how many, and its topic; in a mock, the minutes that are left."""
    words = WORDS["minutes left"][language]
    if is_mock(sitting):
        return f"{sitting.place + 1} · {sitting.minutes_left:.0f} {words}"
    where = f"{min(sitting.place + 1, sitting.length)}/{sitting.length}"
    if sitting.card is None:
        return where
    return f"{where} · {sitting.bank.topics[sitting.card.question.topic].title[language]}"


def _link(place: str, language: str) -> str:
    """A lab, or a section of one, as a Markdown link; the labs lie beside the notebook."""
    lab, _, anchor = place.partition("#")
    name = f"{WORDS['lab'][language]} {lab.partition('_')[0]}"
    shown = f"{name}, {anchor.replace('-', ' ')}" if anchor else name
    return f"[{shown}](<{lab}.ipynb{'#' + anchor if anchor else ''}>)"


def is_mock(sitting: Sitting) -> bool:
    """Whether a sitting is an interview, which says nothing of right and wrong before its end."""
    return isinstance(sitting, MockSitting)


def _asked(card: Card, language: str) -> dict:
    """What a card asks, as HTML: prompt, claim or code, and what there is to choose from."""
    face = card.question.face(card, language)
    return {
        "form": card.question.form,
        "prompt": rendered.text(card.fill(card.question.prompt[language])),
        "claim": rendered.text(face.claim),
        "code": rendered.code_lines(face.code) if face.code else "",
        "stub": face.stub,
        "choices": [
            {"key": key, "html": rendered.line_html(choice)}
            for key, choice in zip(card.keys, face.choices, strict=True)
        ],
        "lefts": [rendered.line_html(left) for left in face.lefts],
        "parts": [{"label": rendered.line_html(label), "unit": unit} for label, unit in face.parts],
    }


def _verdict(card: Card, answer, judgement: Judgement, language: str) -> dict:
    """What an answered card shows: what was answered, what became of it, and why it is so."""
    question, unknown = card.question, answer is None
    shown = rendered.code_lines if question.prints else rendered.line_html
    return {
        "notes": [dataclasses.asdict(note) for note in question.notes(card, answer, language)],
        "given": "" if card.keys else card_text.given_text(card, answer, language),
        "program": answer if question.program and not unknown else "",
        "correct": judgement.correct,
        "mark": not unknown and not question.spoken,
        "verdict": card_text.verdict_words(card, judgement, language, unknown=unknown),
        "label": card_text.label(card, language),
        "said": rendered.line_html(judgement.said[language]) if judgement.said else "",
        "right": shown(judgement.right[language]),
        "explanation": rendered.text(card.fill(question.explanation[language])),
        "cell": rendered.code_lines(card_text.cell_text(card)) if question.cell else "",
        "sources": list(question.sources),
    }


def drill(
    *,
    count: int | None = None,
    topics: tuple[str, ...] = (),
    core: bool = False,
    language: str | None = None,
) -> DrillCard:
    """What is due for this learner, then what is new, as cards; raises as ``sittings.todays``."""
    sitting = sittings.todays(load_bank(), count=count, topics=topics, core=core)
    return DrillCard(sitting, language=language)


def mock_interview(
    *, minutes: float | None = None, seed: int | None = None, language: str | None = None
) -> DrillCard:
    """A mock interview as cards: the one that was broken off, or a new one of 20 minutes.

    What is given of minutes and seed, the one that was broken off must have.
    """
    bank, asked = load_bank(), {"minutes": minutes, "seed": seed}
    sitting = sittings.resumed(bank, **asked) or sittings.new_mock(bank, **asked)
    return DrillCard(sitting, language=language)


def warm_up(lab: str, *, language: str | None = None) -> DrillCard:
    """A few questions of earlier labs, 90 seconds at most, as cards: what is due comes first."""
    return DrillCard(sittings.warm_up_sitting(load_bank(), lab), language=language)


def say_it(lab: str, *, language: str | None = None) -> DrillCard:
    """What an interviewer asks on what a lab taught, as cards, to end it with."""
    return DrillCard(sittings.sitting_to_say(load_bank(), lab), language=language)


def diagnostic(*, language: str | None = None) -> DrillCard:
    """Questions of every lab, as cards, and at the end the lab to start with."""
    return DrillCard(sittings.diagnostic_sitting(load_bank()), language=language)
