"""DrillCard: one question after another, by keyboard alone if one likes.

This module believes that a sitting decides and the page moves: ``labkit.sittings`` holds the state,
Python sends what to show as final HTML in ``numbers``, and the page sends what was answered.
"""

import re
from pathlib import Path

import traitlets

from labkit import drills, interview, sittings, terminal
from labkit.answers import Unclear, given_answer, read, right_answer
from labkit.mock import ItemRow
from labkit.progress import ProgressError
from labkit.questions import LANGUAGES, Bank, Card, load
from labkit.sittings import ANSWERED, ASKING, DONE, TICKING, MockSitting, Sitting
from labkit.widgets import rendered
from labkit.widgets.described import AskingWidget
from labkit.wording import WORDS, stated, sureness, words


class DrillCard(AskingWidget):
    """The cards of a sitting, one at a time; ``describe()`` is the card in plain text.

    ``language`` is "en" or "zh". ``answer(typed)`` answers with the line that a terminal would take
    (``2``, ``b a c``, ``2**-14``), ``tick(1, 3)``, ``hint()`` and ``next()`` do what the page does.
    ``answer`` raises ``labkit.answers.Unclear`` for a line that cannot be understood.
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
        free = question.kind == "free" and typed.strip() not in ("", "?")
        self.sitting.submit(typed if free else read(self.sitting.card, typed), sure=sure)
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
        question = self.sitting.card.question
        keys = hasattr(question, "options") or question.kind == "free"
        return value if keys or not isinstance(value, str) else read(self.sitting.card, value)

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
            "where": f"{min(sitting.place + 1, sitting.length)}/{sitting.length}",
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
        view["where"] = f"{sitting.place + 1}/{sitting.length}"
        view["how"] = terminal.how(question, language)
        view["hints"] = [rendered.line(hint[language]) for hint in sitting.shown_hints()]
        view["more_hints"] = not is_mock(sitting) and sitting.hints < len(question.hints.en)
        if is_mock(sitting):
            left = f"{sitting.minutes_left:.0f} {WORDS['minutes left'][language]}"
            view["where"] += f" · {left}"
            if sitting.state == ASKING:
                view["introduction"] = sitting.introduction[language]
        else:
            title = sitting.bank.topics[question.topic].title[language]
            view["where"] += f" · {title}"
        if sitting.state == TICKING:
            view["speech"] = sitting.speech
            view["model"] = rendered.text(card.fill(question.model[language]))
            view["rubric"] = [rendered.line(getattr(point, language)) for point in question.rubric]
        if sitting.state == ANSWERED:
            view |= _verdict(card, sitting.judgement, language, unknown=sitting.unknown)
            view["again"] = self._again()
        return view

    def _again(self) -> str:
        """Where to read again, once a second card of this one's sections has been missed."""
        if self.sitting.judgement.correct:
            return ""
        links = [_link(place, self.language) for place in self.sitting.missed_twice()]
        said = f"{WORDS['read again'][self.language]}: {', '.join(links)}"
        return rendered.line(said) if links else ""

    def _ending(self) -> str:
        sitting, language = self.sitting, self.language
        if isinstance(sitting, MockSitting):
            return report_markdown(sitting.report(), sitting.bank, language)
        first, *rest = terminal.ending(sitting, language, link=_link)
        return "\n\n".join([f"**{first}**" if rest or sitting.questions else first, *rest])

    def describe(self) -> str:
        """Say in words all that the card shows."""
        sitting, language = self.sitting, self.language
        if sitting.state == DONE:
            return self._ending()
        lines = [self.numbers["where"], self.numbers.get("introduction", "")]
        lines = [line for line in (*lines, terminal.card_text(sitting.card, language)) if line]
        lines += [hint[language] for hint in sitting.shown_hints()]
        if sitting.state == TICKING:
            question = sitting.card.question
            lines.append(sitting.card.fill(question.model[language]))
            lines += [f"{i}. {getattr(p, language)}" for i, p in enumerate(question.rubric, 1)]
        if sitting.state == ANSWERED:
            said = terminal.verdict_text(
                sitting.card, sitting.judgement, language, unknown=sitting.unknown
            )
            lines.append(said)
            lines.append(sitting.card.fill(sitting.card.question.explanation[language]))
        return "\n\n".join(lines)


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
    question = card.question
    form = question.kind
    if form == "spot":
        form = "choice" if hasattr(question, "options") else "line"
    view = {"form": form, "prompt": rendered.text(card.fill(question.prompt[language]))}
    if hasattr(question, "claim"):
        view["claim"] = rendered.text(card.fill(question.claim[language]))
    if question.kind in ("predict", "spot") and hasattr(question, "code"):
        view["code"] = rendered.code(card.fill(question.code))
    if question.kind == "code":
        view["stub"] = question.stub.strip("\n")
    shown = getattr(question, "options", None) or getattr(question, "items", None)
    shown = {entry.key: entry for entry in shown or getattr(question, "rights", ())}
    view["choices"] = [
        {"key": key, "html": rendered.line(card.fill(getattr(shown[key], language)))}
        for key in card.keys
    ]
    view["lefts"] = [
        rendered.line(card.fill(pair.left[language])) for pair in getattr(question, "pairs", ())
    ]
    view["parts"] = [
        {
            "label": rendered.line(card.fill(part.label[language])) if part.label else "",
            "unit": part.unit or "",
        }
        for part in getattr(question, "parts", ())
    ]
    return view


def _verdict(card: Card, judgement, language: str, *, unknown: bool) -> dict:
    question = card.question
    shown = rendered.code if question.kind in ("code", "predict") else rendered.line
    return {
        "correct": judgement.correct,
        "mark": not unknown and question.kind != "free",
        "verdict": terminal.verdict(card, judgement, language, unknown=unknown),
        "label": WORDS["model" if question.kind == "free" else "answer"][language],
        "said": rendered.line(judgement.said[language]) if judgement.said else "",
        "right": shown(judgement.right[language]),
        "explanation": rendered.text(card.fill(question.explanation[language])),
        "cell": rendered.code(_with_values(card)) if question.cell else "",
        "sources": list(question.sources),
    }


def _with_values(card: Card) -> str:
    """The cell that decides the answer, with the drawn numbers set before it."""
    said = [f"{name} = {value!r}" for name, value in card.values.items()]
    return "\n".join([*said, card.question.cell.strip("\n")])


def report_markdown(report, bank: Bank, language: str) -> str:
    """The report of a mock interview as Markdown: a table by topic, then every item."""
    said = words(language)
    taken, expected = f"{report.seconds:.0f}", f"{report.expected_seconds:.0f}"
    lines = [f"**{100 * report.score:.0f} %**, {taken} {said['seconds']}"]
    lines[0] += f" ({said['expected']} {expected})"
    lines += ["", f"| {said['topic']} | {said['score']} | {said['seconds']} | {said['expected']} |"]
    lines += ["|---|---|---|---|"]
    lines += [
        f"| {bank.topics[row.topic].title[language]} | {100 * row.score:.0f} % |"
        f" {row.seconds:.0f} | {row.expected_seconds:.0f} |"
        for row in report.topics
    ]
    lines += ["", f"| {said['confidence']} | {said['share right']} | {said['answers']} |"]
    lines += ["|---|---|---|"]
    lines += [
        f"| {sureness(language)[row.sure - 1]} | {100 * row.right:.0f} % | {row.answers} |"
        for row in report.confidence
        if row.answers
    ]
    if report.labs:
        links = [_link(lab, language) for lab in report.labs]
        lines += ["", f"{said['labs to revisit']}: {', '.join(links)}"]
    for place, item in enumerate(report.items, start=1):
        lines += ["", f"**{place}.** {item.card.fill(item.card.question.prompt[language])}", ""]
        lines += _transcript(item, language)
    return "\n".join(lines)


def _transcript(item: ItemRow, language: str) -> list[str]:
    """One turn in Markdown: what was answered and how fast, the verdict, and why it is so."""
    question, turn, said = item.card.question, item.turn, words(language)
    given = given_answer(item.card, turn.answer)[language]
    if turn.answer is not None and not hasattr(question, "options"):
        given = given if question.kind in ("order", "match") else _as_typed(given)
    pace = f"{turn.seconds:.0f} / {question.seconds} {said['seconds']}"
    lines = [f"{said['given']} ({pace}{stated(turn.sure, language)}): {given}", ""]
    if item.judgement:
        why = item.judgement.said[language] if item.judgement.said else ""
        unknown = turn.answer is None
        verdict = terminal.verdict(item.card, item.judgement, language, unknown=unknown)
        lines += [f"{verdict} {why}", ""]
    if question.kind == "free" and turn.ticked is not None:
        lines += [
            f"- {'✓' if number in turn.ticked else '–'} {getattr(point, language)}"
            for number, point in enumerate(question.rubric, start=1)
        ]
    if question.kind == "code":
        lines += ["```python", right_answer(item.card)[language], "```", ""]
    else:
        label = said["model" if question.kind == "free" else "answer"]
        lines += ["", f"{label}: {right_answer(item.card)[language]}", ""]
    lines.append(item.card.fill(question.explanation[language]))
    return lines


def _as_typed(text: str) -> str:
    """What a learner typed, as code in Markdown, in which nothing means anything."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{' '.join(text.split())}{pad}{fence}"


def drill(
    *,
    count: int = 10,
    topics: tuple[str, ...] = (),
    core: bool = False,
    language: str | None = None,
) -> DrillCard:
    """What is due for this learner, then what is new, as cards; raises as ``sittings.todays``."""
    sitting = sittings.todays(load(), count=count, topics=topics, core=core)
    return DrillCard(sitting, language=language)


def mock_interview(
    *,
    length: int = 10,
    minutes: float | None = None,
    seed: int | None = None,
    language: str | None = None,
) -> DrillCard:
    """A mock interview as cards: the one that was broken off, or a new one for a seed."""
    bank = load()
    sitting = sittings.resumed(bank, seed=seed, length=length)
    sitting = sitting or sittings.new_mock(bank, length=length, minutes=minutes, seed=seed)
    return DrillCard(sitting, language=language)


def warm_up(lab: str, *, language: str | None = None) -> DrillCard:
    """Three short questions of earlier labs, as cards, to begin a lab with: what is due first."""
    return DrillCard(sittings.warm_up(load(), lab), language=language)


def say_it(lab: str, *, language: str | None = None) -> DrillCard:
    """What an interviewer asks after a lab, as cards, to end it with."""
    return DrillCard(sittings.say_it(load(), lab), language=language)


def diagnostic(*, language: str | None = None) -> DrillCard:
    """Two questions of every lab, as cards, and at the end the lab to start with."""
    return DrillCard(sittings.diagnostic(load()), language=language)
