"""Drills and mock interviews in a terminal: the same engine as in the notebook, in plain text.

``ask`` and ``say`` are arguments, so a test can hold both ends. A line ``q`` ends the sitting; what
was answered is kept at once, so Ctrl-C loses nothing.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from textwrap import fill

from labkit.interview import drills, editing, plans, readiness
from labkit.interview import log as interview
from labkit.interview.answers import is_unknown, judge, read
from labkit.interview.card_text import card_text, verdict_text
from labkit.interview.drills import FAIRLY_SURE
from labkit.interview.mock_report import report_markdown
from labkit.interview.question_parts import Unclear
from labkit.interview.questions import Bank
from labkit.interview.sittings import ASKING, DONE, TICKING, DrillSitting, MockSitting
from labkit.interview.wording import WORDS, sureness


class Stopped(Exception):
    """The learner ended the sitting."""


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
            told = report_markdown(sitting.report(), sitting.bank, language, trend=sitting.trend())
            say("\n" + told)
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
        where = f"\n--- {sitting.place + 1}"
        if isinstance(sitting, MockSitting):
            say(f"{where} · {sitting.minutes_left:.0f} min")
        else:
            title = sitting.bank.topics[card.question.topic].title[language]
            say(f"{where}/{sitting.length} · {title}")
        if sitting.introduction:
            say(sitting.introduction[language])
        if isinstance(sitting, MockSitting) and sitting.before:
            say("\n" + sitting.before[language])
        say("\n" + card_text(card, language))
        while not _answered(sitting, language, ask, say):
            pass
    elif sitting.state == TICKING:
        if isinstance(sitting, MockSitting):
            say(f"\n{card_text(card, language)}\n\n> {sitting.speech}\n")
        say(card.fill(card.question.model[language]))
        for place, point in enumerate(card.question.rubric, start=1):
            say(f"  {place}. {point[language]}")
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
    command = editing.editor() if question.program else None
    how = WORDS["editor"][language] if command else question.how[language]
    line = _line(f"{how}> ", ask)
    if not line.strip():
        return False  # a stray Enter is no answer
    if line.strip().lower() in ("h", "hint"):
        hint = sitting.hint()
        told = f"{WORDS['hint'][language]} {sitting.hints}: {hint[language]}" if hint else None
        say(told or WORDS["no more hints"][language])
        return False
    unknown = is_unknown(line)
    if command and line.strip().lower() == "e":
        try:
            line = sitting.draft = editing.edited(sitting.draft or question.stub, command)
        except Unclear as unclear:
            say(unclear.said[language])
            return False
    elif question.program and not unknown:
        line = "\n".join([line, *iter(lambda: ask("... "), ".")])

    def submit() -> None:
        answer = line if question.spoken and not unknown else read(sitting.card, line)
        sure = FAIRLY_SURE
        if answer is not None and not question.spoken:
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


def readiness_text(bank: Bank, language: str) -> str:
    """How ready the learner is, topic by topic, and how well stated confidence fits."""
    past, now = interview.reviews(), datetime.now(UTC)
    found = readiness.readiness(bank, past, now, interview=interview.interview_date())
    lines = [readiness.summed_up(found, bank)[language], "", WORDS["ready columns"][language]]
    lines += [
        f"{_percent(row.screen):>15}  {_percent(row.deep_dive):>15}"
        f"  {row.seen:3}/{row.questions:<3}  {bank.topics[row.topic].title[language]}"
        for row in found.topics
    ]
    for row in drills.calibration(past):
        if row.answers:
            words = sureness(language)[row.sure - 1]
            lines.append(f"{words}: {100 * row.right:.0f} % / {row.answers}")
    return "\n".join(lines)


def _percent(estimate: readiness.Estimate | None) -> str:
    return estimate.percent if estimate else "–"


def friday_text(bank: Bank, language: str) -> str:
    """The plan for an interview that is days away, with the commands to run."""
    steps = plans.friday(bank, interview.reviews(), datetime.now(UTC))
    if not steps:
        return WORDS["all done"][language]
    minutes = WORDS["minutes"][language]
    return "\n".join(
        f"{step.minutes:3} {minutes}  {step.what[language]}\n         {step.command}"
        for step in steps
    )
