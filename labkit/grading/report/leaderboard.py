"""The leaderboard of a class: open-ended exercises, placed by what the judge has measured.

Nothing that a student claims stands here, and no name: students appear under the pseudonyms of the
class summary, so the table can be shown to the class.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from labkit.grading.report.scores import Row, Sheet, pseudonym
from labkit.grading.report.tables import csv_text


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One student on a board; equal results share a ``place``.

    ``values`` belong to the board's ``measured``; None where that part of the answer earned
    nothing.
    """

    place: int
    student: str
    score: float
    values: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class Board:
    """One exercise: what was ``measured``, and the ``places`` from the first on."""

    lab: str
    exercise: str
    measured: tuple[str, ...]
    places: tuple[Rank, ...]


def boards(sheets: Iterable[Sheet]) -> list[Board]:
    """A board for each exercise whose judge measured something, by lab and exercise.

    The higher score stands first; of equal scores, that with the smaller measured numbers, in the
    order in which the judge names them.
    """
    found: dict[tuple[str, str], list[tuple[str, Row]]] = defaultdict(list)
    for sheet in sheets:
        for row in sheet.rows:
            if row.measured:
                of = sheet.submission
                found[of.lab, row.exercise].append((of.student, row))
    return [_board(*place, rows) for place, rows in sorted(found.items())]


def leaderboard_csv(boards: Iterable[Board], secret: bytes) -> str:
    """A row for each student on a board; ``secret`` gives the pseudonyms."""
    boards = list(boards)
    columns = list(dict.fromkeys(name for board in boards for name in board.measured))
    rows = []
    for board in boards:
        for one in board.places:
            values = dict(zip(board.measured, one.values, strict=True))
            who = pseudonym(one.student, secret)
            facts = [board.lab, board.exercise, one.place, who, one.score]
            rows.append([*facts, *(values.get(name) for name in columns)])
    return csv_text(["lab", "exercise", "place", "pseudonym", "score", *columns], rows)


def _board(lab: str, exercise: str, rows: list[tuple[str, Row]]) -> Board:
    names = tuple(name for name, _ in max((row.measured for _, row in rows), key=len))
    ranked = []
    for student, row in rows:
        known = dict(row.measured)
        values = tuple(known.get(name) for name in names)
        last = tuple(math.inf if value is None else value for value in values)
        ranked.append(((-round(row.score, 4), *last), student, values))
    ranked.sort(key=lambda one: one[:2])
    keys = [key for key, _, _ in ranked]
    places = tuple(
        Rank(place=keys.index(key) + 1, student=student, score=round(-key[0], 4), values=values)
        for key, student, values in ranked
    )
    return Board(lab=lab, exercise=exercise, measured=names, places=places)
