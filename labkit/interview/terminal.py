"""Drills and mock interviews in a terminal: the same engine as in the notebook, in plain text.

``ask`` and ``say`` are arguments, so a test can hold both ends. A line ``q`` ends the sitting; what
was answered is kept at once, so Ctrl-C loses nothing.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from textwrap import fill

from labkit.interview import drills, mock, plans
from labkit.interview import log as interview
from labkit.interview.answers import Judgement, Unclear, given_answer, judge, read
from labkit.interview.drills import FAIRLY_SURE
from labkit.interview.questions import Bank, Card, Question
from labkit.interview.sittings import ASKING, DONE, TICKING, DrillSitting, MockSitting
from labkit.interview.wording import FORMS, WORDS, stated, sureness

LETTERS = "abcdefghij"


class Stopped(Exception):
    """The learner ended the sitting."""


def card_text(card: Card, language: str) -> str:
    """A card as plain text: prompt, code or claim, and what there is to choose from."""
    question = card.question
    blocks = [card.fill(question.prompt[language])]
    if hasattr(question, "claim"):
        blocks.append("> " + card.fill(question.claim[language]))
    if question.kind in ("predict", "spot") and hasattr(question, "code"):
        lines = card.fill(question.code).strip("\n").splitlines()
        blocks.append("\n".join(f"{place:3}  {line}" for place, line in enumerate(lines, 1)))
    if question.kind == "code":
        blocks.append(question.stub.strip("\n"))
    if hasattr(question, "options"):
        shown = {option.key: option for option in question.options}
        rows = [card.fill(getattr(shown[key], language)) for key in card.keys]
        blocks.append("\n".join(f"  {place}. {row}" for place, row in enumerate(rows, 1)))
    if question.kind == "match":
        lefts = [card.fill(pair.left[language]) for pair in question.pairs]
        blocks.append("\n".join(f"  {place}. {left}" for place, left in enumerate(lefts, 1)))
    if question.kind in ("order", "match"):
        items = getattr(question, "items", None) or question.rights
        shown = {item.key: item for item in items}
        rows = [card.fill(getattr(shown[key], language)) for key in card.keys]
        blocks.append("\n".join(f"  {LETTERS[place]}) {row}" for place, row in enumerate(rows)))
    if question.kind == "numeric":
        asked = [_part(card, part, language) for part in question.parts]
        if any(asked):
            blocks.append("  " + "; ".join(asked))
    return "\n\n".join(blocks)


def _part(card: Card, part, language: str) -> str:
    label = card.fill(part.label[language]) if part.label else ""
    return " ".join(filter(None, (label, f"[{part.unit}]" if part.unit else "")))


def how(question: Question, language: str) -> str:
    """In which form an answer is written."""
    kind = question.kind
    if kind == "spot":
        kind = "choice" if hasattr(question, "options") else "line"
    if kind == "numeric" and len(question.parts) > 1:
        kind = "parts"
    return FORMS[kind][language]


def hold(
    sitting: DrillSitting | MockSitting,
    *,
    language: str = "en",
    ask: Callable[[str], str] = input,
    say: Callable[[str], None] = print,
) -> None:
    """Hold a sitting to its end, or until q, Ctrl-C or the end of the input."""
    if sitting.state == DONE:
        say(WORDS["nothing due"][language])
        return
    mock_too = isinstance(sitting, MockSitting)
    say(WORDS["mock keys" if mock_too else "terminal keys"][language])
    try:
        while sitting.state != DONE:
            _step(sitting, language, ask, say)
            if sitting.trouble:
                say(sitting.trouble)
    except (Stopped, EOFError, KeyboardInterrupt):
        say("")
    if mock_too:
        if sitting.state == DONE:
            say(report_text(sitting.report(), sitting.bank, language))
        return
    say("\n".join(ending(sitting, language)))


def ending(
    sitting: DrillSitting,
    language: str,
    *,
    link: Callable[[str, str], str] = lambda place, _: place,
) -> list[str]:
    """The lines after the last card: how many were right, and what to read again.

    After a diagnostic also the labs one by one, and which to start with. ``link(place, language)``
    writes a lab or a section of one.
    """
    if not sitting.questions:
        return [WORDS["nothing due"][language]]
    right = sum(review.correct for review in sitting.reviews)
    lines = [WORDS["right of"][language].format(right=right, all=len(sitting.reviews))]
    if sitting.mode == "diagnostic":
        rows = drills.by_lab(sitting.bank, sitting.reviews)
        lines += [f"- {link(row.lab, language)}: {row.right}/{row.asked}" for row in rows]
        start = drills.where_to_start(sitting.bank, sitting.reviews)
        begin = f"{WORDS['start with'][language]}: {link(start, language)}" if start else None
        return [*lines, begin or WORDS["all right"][language]]
    again = WORDS["read again"][language]
    return lines + [f"- {again}: {link(section, language)}" for section in sitting.sections()]


def _step(sitting, language, ask, say) -> None:
    card = sitting.card
    if sitting.state == ASKING:
        where = f"\n--- {sitting.place + 1}/{sitting.length}"
        if isinstance(sitting, MockSitting):
            say(f"{where} · {sitting.minutes_left:.0f} min\n{sitting.introduction[language]}")
        else:
            say(f"{where} · {sitting.bank.topics[card.question.topic].title[language]}")
        say("\n" + card_text(card, language))
        while not _answered(sitting, language, ask, say):
            pass
    elif sitting.state == TICKING:
        if isinstance(sitting, MockSitting):
            say(f"\n{card_text(card, language)}\n\n> {sitting.speech}\n")
        say(card.fill(card.question.model[language]))
        for place, point in enumerate(card.question.rubric, start=1):
            say(f"  {place}. {getattr(point, language)}")
        _understood(
            lambda: sitting.tick(
                read(card, _line(f"{WORDS['made'][language]}> ", ask) or "0") or []
            ),
            language,
            say,
        )
    else:
        say(verdict_text(card, sitting.judgement, language, unknown=sitting.unknown))
        say(fill(card.fill(card.question.explanation[language]), 96, replace_whitespace=False))
        sitting.next()


def _answered(sitting, language, ask, say) -> bool:
    """Take one line: a hint, or an answer with its confidence; whether the card is answered."""
    question = sitting.card.question
    line = _line(f"{how(question, language)}> ", ask)
    if not line.strip():
        return False  # a stray Enter is no answer
    if line.strip().lower() in ("h", "hint"):
        hint = sitting.hint()
        told = f"{WORDS['hint'][language]} {sitting.hints}: {hint[language]}" if hint else None
        say(told or WORDS["no more hints"][language])
        return False
    unknown = line.strip() in ("?", "？")
    if question.kind == "code" and not unknown:
        line = "\n".join([line, *iter(lambda: ask("... "), ".")])

    def submit() -> None:
        answer = line if question.kind == "free" and not unknown else read(sitting.card, line)
        sure = FAIRLY_SURE
        if answer is not None and question.kind != "free":
            judge(sitting.card, answer)  # what is unclear is said before the confidence is asked
            sure = _sure(language, ask)
        sitting.submit(answer, sure=sure)

    return _understood(submit, language, say)


def _understood(act: Callable[[], None], language: str, say) -> bool:
    try:
        act()
    except Unclear as unclear:
        say(unclear.said[language])
        return False
    return True


def _line(prompt: str, ask) -> str:
    line = ask(prompt)
    if line.strip().lower() in ("q", "quit"):
        raise Stopped
    return line


def _sure(language: str, ask) -> int:
    said = _line(f"{WORDS['sure'][language]} 1-3 [2]> ", ask).strip()
    return int(said) if said in ("1", "2", "3") else FAIRLY_SURE


def verdict(card: Card, judgement: Judgement, language: str, *, unknown: bool) -> str:
    """Right or not in a word; for free speech the share of the rubric's points."""
    if unknown:
        return WORDS["noted"][language]
    if card.question.kind == "free":
        return f"{100 * judgement.score:.0f} %"
    return WORDS["right" if judgement.correct else "wrong"][language]


def verdict_text(card: Card, judgement: Judgement, language: str, *, unknown: bool = False) -> str:
    """Right or not, what the mistake was, and the right answer; "I do not know" is no mistake."""
    lines = [verdict(card, judgement, language, unknown=unknown)]
    if judgement.said:
        lines[0] += " " + judgement.said[language]
    label = "model" if card.question.kind == "free" else "answer"
    lines.append(f"{WORDS[label][language]}: {judgement.right[language]}")
    return "\n".join(lines)


def report_text(report: mock.Report, bank: Bank, language: str) -> str:
    """The report of a mock interview as plain text."""
    unit, expected = WORDS["seconds"][language], WORDS["expected"][language]
    lines = ["", f"{100 * report.score:.0f} %, {report.seconds:.0f} {unit}"
             f" ({expected} {report.expected_seconds:.0f})", ""]  # fmt: skip
    for row in report.topics:
        title = bank.topics[row.topic].title[language]
        lines.append(
            f"  {title}: {100 * row.score:.0f} %, {row.seconds:.0f} {unit}"
            f" ({expected} {row.expected_seconds:.0f})"
        )
    lines += ["", WORDS["confidence"][language] + ":"]
    for row in report.confidence:
        if row.answers:
            words = sureness(language)[row.sure - 1]
            lines.append(f"  {words}: {100 * row.right:.0f} % / {row.answers}")
    if report.labs:
        lines += ["", f"{WORDS['labs to revisit'][language]}: {', '.join(report.labs)}"]
    for place, item in enumerate(report.items, start=1):
        lines += ["", f"{place}. {card_text(item.card, language)}", ""]
        lines += _transcript(item, language)
    return "\n".join(lines)


def _transcript(item: mock.ItemRow, language: str) -> list[str]:
    """One turn: what was answered and how fast, the verdict, and why it is so."""
    question, turn = item.card.question, item.turn
    pace = f"{turn.seconds:.0f} / {question.seconds} {WORDS['seconds'][language]}"
    given = given_answer(item.card, turn.answer)[language]
    lines = [f"{WORDS['given'][language]} ({pace}{stated(turn.sure, language)}): {given}"]
    if item.judgement:
        unknown = turn.answer is None
        lines.append(verdict_text(item.card, item.judgement, language, unknown=unknown))
    if question.kind == "free" and turn.ticked is not None:
        lines += [
            f"  {'[x]' if number in turn.ticked else '[ ]'} {getattr(point, language)}"
            for number, point in enumerate(question.rubric, start=1)
        ]
    return [*lines, item.card.fill(question.explanation[language])]


def readiness_text(bank: Bank, language: str) -> str:
    """How ready the learner is, topic by topic, and how well stated confidence fits."""
    past, now = interview.reviews(), datetime.now(UTC)
    rows = drills.readiness(bank, past, now, interview=interview.interview_date())
    lines = [
        f"{100 * row.ready:4.0f} %  {row.seen:3}/{row.questions:<3}"
        f"  {bank.topics[row.topic].title[language]}"
        for row in rows
    ]
    for row in drills.calibration(past):
        if row.answers:
            words = sureness(language)[row.sure - 1]
            lines.append(f"{words}: {100 * row.right:.0f} % / {row.answers}")
    return "\n".join(lines)


def friday_text(bank: Bank) -> str:
    """The plan for an interview that is days away, with the commands to run."""
    steps = plans.friday(bank, interview.reviews(), datetime.now(UTC))
    if not steps:
        return "All done: nothing is left before the interview."
    return "\n".join(
        f"{step.minutes:3} min  {step.what}\n         {step.command}" for step in steps
    )
