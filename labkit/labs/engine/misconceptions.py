"""The wrong ideas that the course knows by name, one list for checks, predictions and reports.

``data/misconceptions.toml`` holds them. Each has an id that is never reused, one sentence in
English and in Chinese, and the section of a lab that cures it.
"""

import functools
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass

from labkit.base.home import DATA
from labkit.base.progress import CERTAIN, Event


@dataclass(frozen=True)
class Misconception:
    """A wrong idea: ``id`` (a slug), ``en`` and ``zh`` (what it holds), and ``cure``.

    ``cure`` is a section of a lab, as "02_number_formats#The-gap", or a topic of the interview
    questions, as "topic:fp8".
    """

    id: str
    en: str
    zh: str
    cure: str


@functools.cache
def misconceptions() -> dict[str, Misconception]:
    """Every known wrong idea by its id, in the order of the file.

    Raises:
        ValueError: an id stands twice in the file.
    """
    with open(DATA / "misconceptions.toml", "rb") as file:
        entries = [Misconception(**entry) for entry in tomllib.load(file)["misconception"]]
    by_id = {entry.id: entry for entry in entries}
    if len(by_id) != len(entries):
        ids = [entry.id for entry in entries]
        raise ValueError(f"ids that stand twice: {sorted({i for i in ids if ids.count(i) > 1})}")
    return by_id


def cured_at(cure: str) -> str:
    """A ``cure`` in words: `lab 02, section “The gap”`, or `the interview questions on fp8`.

    A lab without a section is `lab 02`.
    """
    where, _, section = cure.partition("#")
    if where.startswith("topic:"):
        return f"the interview questions on {where.removeprefix('topic:').replace('-', ' ')}"
    lab = f"lab {where.partition('_')[0]}"
    return f"{lab}, section “{section.replace('-', ' ')}”" if section else lab


def sure_and_wrong(log: Iterable[Event]) -> list[Event]:
    """The predictions made with certainty that were wrong, newest first.

    Of several answers to one prediction the first counts: the later ones had seen the truth. A
    guess that was carried from an older copy has not been judged yet, and does not count.
    """
    first: dict[tuple[str, str], Event] = {}
    for event in log:
        if event.kind == "prediction" and "correct" in event.detail:
            first.setdefault((event.lab, event.item), event)
    certain = [event for event in first.values() if event.detail.get("sure") == CERTAIN]
    wrong = [event for event in certain if event.detail["correct"] is False]
    return sorted(wrong, key=lambda event: event.at, reverse=True)


def misconceptions_met(log: Iterable[Event]) -> dict[str, list[Event]]:
    """The events in which each misconception showed, the one met last first."""
    met: dict[str, list[Event]] = {}
    for event in log:
        for misconception in event.detail.get("misconceptions", ()):
            met.setdefault(misconception, []).append(event)
    return dict(sorted(met.items(), key=lambda one: one[1][-1].at, reverse=True))
