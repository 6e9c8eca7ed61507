"""Drills and mock interviews in a terminal: the same engine as in the notebook, in plain text.

``ask`` and ``say`` are arguments, so a test can hold both ends. A line ``q`` ends the sitting; what
was answered is kept at once, so Ctrl-C loses nothing.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from labkit.interview import drills, editing, plans, readiness
from labkit.interview import log as interview
from labkit.interview.answers import SPEECH_LIMIT, is_unknown, judge, read_answer
from labkit.interview.card_text import card_text, verdict_text
from labkit.interview.drills import FAIRLY_SURE, NOT_SAID
from labkit.interview.mock_report import report_markdown
from labkit.interview.plain_text import columns, for_terminal
from labkit.interview.question_parts import Unclear
from labkit.interview.questions import Bank
from labkit.interview.sittings import ASKING, DONE, TICKING, DrillSitting, MockSitting
from labkit.interview.wording import WORDS, in_brackets, labelled, listed, sureness

_TYPED = 8
"""Columns that a prompt leaves for the answer, at least."""


class SittingEnded(Exception):
    """The learner ended the sitting."""


@dataclass(frozen=True, kw_only=True)
class _Talk:
    """The learner's end: how lines are asked for and said, in which language, with which editor."""

    language: str
    ask: Callable[[str], str]
    say: Callable[[str], None]
    editor: list[str] | None

    def tell(self, markdown: str) -> None:
        """Say a text in lines that fit the terminal."""
        self.say(for_terminal(markdown, columns()))

    def word(self, name: str, **values: object) -> str:
        """One of the interview's own words."""
        return WORDS[name][self.language].format(**values)

    def line(self, prompt: str) -> str:
        """Ask for a line, with what fits no longer in one line said before; Stopped for q."""
        *before, last = for_terminal(prompt, columns() - _TYPED).split("\n")
        if before:
            self.say("\n".join(before))
        line = self.ask(f"{last}> ")
        if line.strip().lower() in ("q", "quit"):
            raise SittingEnded
        return line


@dataclass
class _Desk:
    """The program written for one card so far.

    ``failed`` is a first one that was wrong, ``wrong`` says why, ``sure`` how sure of it one was.
    """

    draft: str
    failed: str = ""
    wrong: str = ""
    sure: int = FAIRLY_SURE


def hold(
    sitting: DrillSitting | MockSitting,
    *,
    language: str = "en",
    ask: Callable[[str], str] = input,
    say: Callable[[str], None] = print,
    editor: list[str] | None = None,
) -> None:
    """Hold a sitting to its end, or until q, Ctrl-C or the end of the input.

    ``editor`` is the command in which programs are written; by default $VISUAL or $EDITOR where
    somebody sits at a terminal.
    """
    if editor is None and ask is input and sys.stdin.isatty():
        editor = editing.editor()
    talk = _Talk(language=language, ask=ask, say=say, editor=editor)
    if sitting.state == DONE:
        talk.tell(talk.word("nothing due"))
        return
    mock_too = isinstance(sitting, MockSitting)
    talk.tell(talk.word("mock keys" if mock_too else "drill keys"))
    try:
        while sitting.state != DONE:
            _step(sitting, talk)
            if sitting.trouble:
                talk.tell(sitting.trouble)
    except (SittingEnded, EOFError, KeyboardInterrupt):
        say("")
    if mock_too:
        if sitting.state == DONE:
            told = report_markdown(sitting.report(), sitting.bank, language, trend=sitting.trend())
            talk.tell("\n" + told)
        return
    talk.tell("\n".join(ending(sitting, language)))


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
        lines += [
            "- " + labelled(link(row.lab, language), f"{row.right}/{row.asked}", language)
            for row in rows
        ]
        start = drills.where_to_start(sitting.bank, sitting.reviews)
        if start is None:
            return [*lines, WORDS["all right"][language]]
        return [*lines, labelled(WORDS["start with"][language], link(start, language), language)]
    again = WORDS["read again"][language]
    places = [link(section, language) for section in sitting.sections()]
    return lines + [f"- {labelled(again, place, language)}" for place in places]


def _step(sitting: DrillSitting | MockSitting, talk: _Talk) -> None:
    card, language = sitting.card, talk.language
    if sitting.state == ASKING:
        where = f"\n--- {sitting.place + 1}"
        if isinstance(sitting, MockSitting):
            talk.tell(f"{where} · {sitting.minutes_left:.0f} {talk.word('minutes')}")
        else:
            title = sitting.bank.topics[card.question.topic].title[language]
            talk.tell(f"{where}/{sitting.length} · {title}")
        if sitting.introduction:
            talk.tell(sitting.introduction[language])
        if isinstance(sitting, MockSitting) and sitting.before:
            talk.tell("\n" + sitting.before[language])
        talk.tell("\n" + card_text(card, language))
        desk = _Desk(draft=card.question.face(card, language).stub)
        while not _answered(sitting, talk, desk):
            pass
    elif sitting.state == TICKING:
        if isinstance(sitting, MockSitting):
            talk.tell(f"\n{card_text(card, language)}\n\n> {sitting.speech}\n")
        talk.tell(card.fill(card.question.model[language]))
        for place, point in enumerate(card.question.rubric, start=1):
            talk.tell(f"  {place}. {point[language]}")
        _understood(
            lambda: sitting.tick(read_answer(card, talk.line(talk.word("made")) or "0") or []),
            talk,
        )
    else:
        talk.tell(verdict_text(card, sitting.answer, sitting.judgement, language))
        talk.tell(card.fill(card.question.explanation[language]))
        sitting.next()


def _answered(sitting: DrillSitting | MockSitting, talk: _Talk, desk: _Desk) -> bool:
    """Take one line: a hint, or an answer with its confidence; whether the card is answered."""
    question = sitting.card.question
    line = talk.line(_how(sitting, talk, desk))
    if not line.strip() and not (question.program and talk.editor):
        return False  # a stray Enter is no answer
    if line.strip().lower() in ("h", "hint"):
        hint = sitting.hint()
        name = f"{talk.word('hint')} {sitting.hints}"
        told = hint and labelled(name, hint[talk.language], talk.language)
        talk.tell(told or talk.word("no more hints"))
        return False
    unknown = is_unknown(line)
    if question.program and not unknown:
        return bool(_understood(lambda: _programmed(sitting, talk, desk, line), talk))

    def submit() -> bool:
        if desk.failed:  # the second try is given up: the first one counts
            sitting.submit(desk.failed, sure=desk.sure)
            return True
        answer = line if question.spoken and not unknown else read_answer(sitting.card, line)
        sure = FAIRLY_SURE
        if answer is not None and not question.spoken:
            judge(sitting.card, answer)  # what is unclear is said before the confidence is asked
            sure = _sure(talk)
        elif answer is not None and len(answer) > SPEECH_LIMIT:
            talk.tell(talk.word("speech cut", length=len(answer), limit=SPEECH_LIMIT))
        sitting.submit(answer, sure=sure)
        return True

    return bool(_understood(submit, talk))


def _how(sitting: DrillSitting | MockSitting, talk: _Talk, desk: _Desk) -> str:
    """How the card is answered, for a prompt, and the keys that do something else now."""
    question, language = sitting.card.question, talk.language
    how = question.how[language]
    if question.program and talk.editor:
        how = talk.word("editor opens", editor=Path(talk.editor[0]).name, how=how)
    if desk.failed:
        how = talk.word("second try", how=how)
    keys = [labelled("?", talk.word("leave" if desk.failed else "unknown"), language)]
    if sitting.has_hint:
        keys.insert(0, labelled("h", talk.word("hint"), language))
    return how + in_brackets(listed(keys, language), language)


def _programmed(sitting: DrillSitting | MockSitting, talk: _Talk, desk: _Desk, line: str) -> bool:
    """Take a program and run it; in a drill a wrong one may be mended once.

    Returns whether the card is answered. Raises Unclear where it is no program yet; the editor
    then opens on what was written.
    """
    if line.strip():
        desk.draft = "\n".join([line, *iter(lambda: talk.ask("... "), ".")])
    else:
        desk.draft = editing.edited(desk.draft, talk.editor, note=desk.wrong)
    if isinstance(sitting, MockSitting):
        sitting.submit(desk.draft, sure=_sure(talk))
        return True
    talk.tell(talk.word("running"))
    try:
        judgement = judge(sitting.card, desk.draft)
    except KeyboardInterrupt:
        talk.tell("\n" + talk.word("run stopped"))
        return False
    mended = bool(desk.failed)
    if not mended:
        desk.sure = _sure(talk)
    if judgement.correct or mended:
        sure = NOT_SAID if mended and judgement.correct else desk.sure
        sitting.submit(desk.draft, sure=sure, tries=1 + mended)
        return True
    desk.wrong = judgement.said[talk.language]
    desk.failed = desk.draft
    talk.tell(f"{talk.word('wrong')}{'' if talk.language == 'zh' else ' '}{desk.wrong}")
    return False


def _understood(act: Callable[[], bool | None], talk: _Talk) -> bool | None:
    """What it returns; None where a line could not be understood, of which it is said why."""
    try:
        return act()
    except Unclear as unclear:
        talk.tell(unclear.said[talk.language])
        return None


def _sure(talk: _Talk) -> int:
    """The stated confidence, 1 to 3; Enter is 2."""
    named = (f"{i} {words}" for i, words in enumerate(sureness(talk.language), 1))
    levels = listed(named, talk.language)
    while True:
        said = talk.line(f"{talk.word('sure')} {levels} [{FAIRLY_SURE}]").strip()
        if not said:
            return FAIRLY_SURE
        if said in ("1", "2", "3"):
            return int(said)
        talk.tell(talk.word("sure is 1 to 3"))


def readiness_text(bank: Bank, language: str) -> str:
    """How ready the learner is, topic by topic, and how well stated confidence fits."""
    past = interview.reviews()
    found = readiness.readiness(bank, past)
    lines = [readiness.summed_up(found, bank)[language]]
    if found.answered:
        lines += ["", WORDS["ready columns"][language]]
        lines += [
            f"{_percent(row.screen):>15}  {_percent(row.deep_dive):>15}"
            f"  {row.right:3}/{row.answered:<3}  {bank.topics[row.topic].title[language]}"
            for row in found.topics
        ]
    for row in drills.calibration(past):
        if row.answers:
            words = sureness(language)[row.sure - 1]
            lines.append(labelled(words, f"{100 * row.right:.0f} % / {row.answers}", language))
    return "\n".join(lines)


def _percent(estimate: readiness.Estimate | None) -> str:
    return estimate.percent if estimate else "–"


def plan_text(bank: Bank, language: str) -> str:
    """What to do until the interview, with the commands to run."""
    now = datetime.now().astimezone()
    left = plans.plan(bank, interview.reviews(), now, interview.interview_date())
    return left.text(language, lambda step: step.command)
