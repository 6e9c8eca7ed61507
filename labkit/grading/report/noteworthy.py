"""What an instructor should look at after a run: a list by kind, and whether all is well."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from labkit.grading.intake.remarks import KINDS, Remark, one_line
from labkit.grading.report.scores import Row, Sheet

OPEN = frozenset({"contradicting", "dropped", "unknown", "ungraded", "lms"})
"""The kinds that leave a grade in doubt until somebody has looked; the others only inform."""

_RANKED = frozenset({"copied", "identical"})  # they come with what weighs most in front

SLOWEST = 5

_SHOWN = 8  # sentences of a kind on a terminal
_NAMED = 6  # students before one sentence
_WIDEST = 300  # characters of a sentence on a terminal


def remarks_on(
    sheets: Sequence[Sheet], only: Collection[str] = (), beside: Iterable[Remark] = ()
) -> list[Remark]:
    """Every remark on these sheets and ``beside`` them, in the order of ``KINDS``, then of names.

    Copies and identical answers keep the order in which they come.
    Of exercises that were not graded those of ``only`` count, where it names any.
    """
    found = [*beside, *(remark for sheet in sheets for remark in sheet.submission.remarks)]
    for sheet in sheets:
        found += _on_rows(sheet, only)
    order = list(KINDS)
    found.sort(key=lambda one: (order.index(one.kind), "" if one.kind in _RANKED else one.who))
    slowest = sorted((s for s in sheets if s.seconds), key=lambda s: -s.seconds)[:SLOWEST]
    found += [
        Remark(
            kind="slow",
            who=sheet.submission.student,
            said=f"Grading {sheet.submission.lab} took {sheet.seconds:.1f} s.",
        )
        for sheet in slowest
    ]
    return list(dict.fromkeys(found))


def all_well(remarks: Iterable[Remark]) -> bool:
    """Whether no remark leaves a grade in doubt."""
    return not any(one.kind in OPEN for one in remarks)


def lines(remarks: Iterable[Remark], where: str) -> list[str]:
    """The list for a terminal: bounded, and a sentence that holds for several students once.

    ``where`` names the file that holds all of it.
    """
    by_kind: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one in remarks:
        by_kind[one.kind][one.said].append(one.who)
    told, cut = [], False
    for kind, sentences in by_kind.items():
        told.append(f"{KINDS[kind]} ({sum(map(len, sentences.values()))}):")
        for said, who in list(sentences.items())[:_SHOWN]:
            more = f" and {len(who) - _NAMED} more" if who[_NAMED:] else ""
            names = ", ".join(one_line(name, 60) for name in who[:_NAMED])
            told.append(f"  {names}{more}: {one_line(said, _WIDEST)}")
            cut = cut or bool(more) or len(said) > _WIDEST
        if len(sentences) > _SHOWN:
            told.append(f"  and {len(sentences) - _SHOWN} more")
            cut = True
    return [*told, *([f"The whole list is in {where}."] if cut else [])]


def without_names(said: str) -> str:
    """A sentence without what differs from student to student: code, words in quotes, numbers."""
    said = re.sub(r"`[^`]*(?:`|$)|'[^']*'|\"[^\"]*\"", "…", said)
    return re.sub(r"(?<![\w…])-?\d+(\.\d+)?(e[+-]?\d+)?\b", "N", said)[:300]


def _on_rows(sheet: Sheet, only: Collection[str]) -> list[Remark]:
    of = sheet.submission
    if of.cause == "missing":
        return [Remark(kind="missing", who=of.student, said=f"Nothing came for {of.lab}.")]
    rows = [row for row in sheet.rows if not only or row.exercise in only or not row.exercise]
    if of.work is None:
        is_open = any(row.points is None for row in rows)
        said = one_line(f"{of.cause}: {of.trouble}")
        return [Remark(kind="dropped", who=of.student, said=said)] if is_open else []
    open_rows: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.rerun:
            open_rows[f"{row.cause}, tried again by the same command"].append(row)
        elif row.points is None:
            open_rows[row.cause].append(row)
    shortcuts = [
        Remark(
            kind="shortcut",
            who=of.student,
            said=f"{of.lab}: {row.exercise} uses {', '.join(row.shortcuts)}, but not by name.",
        )
        for row in rows
        if row.shortcuts and row.points
    ]
    return shortcuts + [
        Remark(
            kind="ungraded",
            who=of.student,
            said=f"{of.lab}: {', '.join(row.exercise for row in its)} ({cause}).",
        )
        for cause, its in open_rows.items()
    ]
