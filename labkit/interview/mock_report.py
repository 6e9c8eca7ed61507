"""The report of a mock interview as Markdown, for the card in a notebook and for the terminal."""

import re
import textwrap
from collections.abc import Callable, Sequence

from labkit.interview.answers import given_answer, right_answer
from labkit.interview.card_text import card_text, label, verdict_words
from labkit.interview.mock import MOVES, Held, ItemRow, MockReport, what_next
from labkit.interview.questions import Bank
from labkit.interview.readiness import summed_up
from labkit.interview.wording import in_brackets, labelled, listed, stated, sureness, words


def report_markdown(
    report: MockReport,
    bank: Bank,
    language: str,
    *,
    trend: Sequence[Held] = (),
    link: Callable[[str, str], str] = lambda place, _: place,
) -> str:
    """The report: what new questions say so far, what to do next, the path, then every item.

    ``trend`` are the mocks so far, this one the last; ``link(place, language)`` writes a lab.
    """
    said = words(language)
    taken, expected = f"{report.seconds:.0f}", f"{report.expected_seconds:.0f}"
    lines = [listed([f"**{100 * report.score:.0f} %**", f"{taken} {said['seconds']}"], language)]
    lines[0] += in_brackets(f"{said['expected']} {expected}", language)
    lines += ["", *_level(report, bank, language), "", *_next(report, bank, language)]
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
        links = [link(lab, language) for lab in report.labs]
        lines += ["", labelled(said["labs to revisit"], listed(links, language), language)]
    lines += _trend(trend, language)
    lines += ["", f"**{said['path']}**", "", *_path(report, bank, language)]
    for place, item in enumerate(report.items, start=1):
        lines += ["", f"**{place}.** {card_text(item.card, language)}", ""]
        lines += _transcript(item, language)
    return "\n".join(lines)


def _level(report: MockReport, bank: Bank, language: str) -> list[str]:
    """What all new questions say, this mock's too, and the points of this mock by level."""
    said = words(language)
    lines = [summed_up(report.ready, bank)[language], ""]
    lines += [f"| {said['this mock']} | {said['score']} | {said['answers']} |", "|---|---|---|"]
    return lines + [
        f"| {said[row.round]} | {_percent(row.score if row.turns else None)} | {row.turns} |"
        for row in report.levels
    ]


def _next(report: MockReport, bank: Bank, language: str) -> list[str]:
    steps = what_next(report, bank)
    lines = [f"{i}. {step.what[language]} `{step.command}`" for i, step in enumerate(steps, 1)]
    return [f"**{words(language)['what next']}**", "", *lines]


def _trend(trend: Sequence[Held], language: str) -> list[str]:
    """The mocks so far; nothing where there is no earlier one to compare with."""
    said = words(language)
    if len(trend) < 2:
        return []
    names = ("mock ended", "answers", "score", "screen", "deep dive")
    lines = ["", f"**{said['trend']}**", "", f"| {' | '.join(said[name] for name in names)} |"]
    lines.append("|---" * len(names) + "|")
    return lines + [
        f"| {held.at:%Y-%m-%d %H:%M} | {held.answers} | {_percent(held.score)}"
        f" | {_percent(held.screen)} | {_percent(held.deep_dive)} |"
        for held in trend[-_MOCKS_SHOWN:]
    ]


def _path(report: MockReport, bank: Bank, language: str) -> list[str]:
    """Turn by turn: the move that led to it, its topic and level, and whether it was right."""
    said = words(language)
    lines = []
    for place, item in enumerate(report.items, start=1):
        question = item.card.question
        title = bank.topics[question.topic].title[language]
        told = [title, f"{said['level']} {question.level}"]
        told += [_percent(item.judgement.score)] if item.judgement else []
        move = MOVES[item.turn.move][language]
        lines.append(f"{place}. {labelled(move, listed(told, language), language)}")
    return lines


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


_MOCKS_SHOWN = 10


def _transcript(item: ItemRow, language: str) -> list[str]:
    """One turn: what was answered and how fast, the verdict, and why it is so."""
    card, question, turn, said = item.card, item.card.question, item.turn, words(language)
    given = given_answer(card, turn.answer)[language]
    if turn.answer is not None and question.program:
        given = f"\n\n{_as_program(str(turn.answer))}"
    elif turn.answer is not None and not card.keys:
        given = _as_typed(given)
    pace = f"{turn.seconds:.0f} / {question.seconds} {said['seconds']}"
    how = in_brackets(listed([pace, *stated(turn.sure, language)], language), language)
    lines = [labelled(said["given"] + how, given, language), ""]
    if item.judgement:
        why = item.judgement.said[language] if item.judgement.said else ""
        word = verdict_words(card, item.judgement, language, unknown=turn.answer is None)
        lines += [f"{word} {why}".rstrip(), ""]
    if question.spoken and turn.ticked is not None:
        lines += [
            f"- {'✓' if number in turn.ticked else '–'} {point[language]}"
            for number, point in enumerate(question.rubric, start=1)
        ]
        lines.append("")
    right = right_answer(card)[language]
    shown = f"\n\n{_as_program(right)}" if question.program else right
    lines += [labelled(label(card, language), shown, language), ""]
    return [*lines, card.fill(question.explanation[language])]


def _as_program(text: str) -> str:
    """A program as a block of code in Markdown, whatever it holds."""
    return textwrap.indent(text.strip("\n"), "    ", lambda line: True)


def _as_typed(text: str) -> str:
    """What a learner typed, as code in Markdown, in which nothing means anything."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{' '.join(text.split())}{pad}{fence}"
