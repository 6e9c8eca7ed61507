"""The report of a mock interview as Markdown, for the card in a notebook and for the terminal."""

import re
from collections.abc import Callable

from labkit.interview.answers import given_answer, right_answer
from labkit.interview.card_text import card_text, label, verdict
from labkit.interview.mock import ItemRow, Report
from labkit.interview.questions import Bank
from labkit.interview.wording import stated, sureness, words


def report_markdown(
    report: Report,
    bank: Bank,
    language: str,
    *,
    link: Callable[[str, str], str] = lambda place, _: place,
) -> str:
    """The report: a table by topic, one by confidence, the labs to revisit, then every item.

    ``link(place, language)`` writes a lab.
    """
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
        links = [link(lab, language) for lab in report.labs]
        lines += ["", f"{said['labs to revisit']}: {', '.join(links)}"]
    for place, item in enumerate(report.items, start=1):
        lines += ["", f"**{place}.** {card_text(item.card, language)}", ""]
        lines += _transcript(item, language)
    return "\n".join(lines)


def _transcript(item: ItemRow, language: str) -> list[str]:
    """One turn: what was answered and how fast, the verdict, and why it is so."""
    card, question, turn, said = item.card, item.card.question, item.turn, words(language)
    given = given_answer(card, turn.answer)[language]
    if turn.answer is not None and not card.keys:
        given = _as_typed(given)
    pace = f"{turn.seconds:.0f} / {question.seconds} {said['seconds']}"
    lines = [f"{said['given']} ({pace}{stated(turn.sure, language)}): {given}", ""]
    if item.judgement:
        why = item.judgement.said[language] if item.judgement.said else ""
        word = verdict(card, item.judgement, language, unknown=turn.answer is None)
        lines += [f"{word} {why}".rstrip(), ""]
    if question.spoken and turn.ticked is not None:
        lines += [
            f"- {'✓' if number in turn.ticked else '–'} {point[language]}"
            for number, point in enumerate(question.rubric, start=1)
        ]
        lines.append("")
    right = right_answer(card)[language]
    lines += [f"{label(card, language)}: {right}", ""]
    return [*lines, card.fill(question.explanation[language])]


def _as_typed(text: str) -> str:
    """What a learner typed, as code in Markdown, in which nothing means anything."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{' '.join(text.split())}{pad}{fence}"
