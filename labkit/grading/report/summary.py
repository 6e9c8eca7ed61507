"""What the class did, without names: how scores lie, what was missed, what is believed.

Students appear under pseudonyms that only the instructor's secret gives; what a message quotes of
somebody's code is left out.
"""

import difflib
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from labkit.base.misconceptions import misconceptions
from labkit.base.templates import render
from labkit.grading.course import CourseLab
from labkit.grading.intake.remarks import KINDS, Remark
from labkit.grading.report.attention import without_names
from labkit.grading.report.pages import Table, page
from labkit.grading.report.scores import HIDDEN, Row, Sheet, pseudonym

_STATUSES = ("passed", "failed", "error", "not attempted", "not graded", "missing")
_BINS = 10
_ALIKE = 0.85  # by eye: two sentences of one check that differ in a clause lie above it
_MOST_COMPARED = 300  # each sentence is compared with the clusters so far
_NAMED = 6


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Failures of one exercise whose messages read alike, with the students' pseudonyms."""

    exercise: str
    message: str
    students: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Lab:
    """What the page says of one lab: sentences, the picture of scores, tables.

    ``alone`` counts the messages that went to one student each.
    """

    title: str
    facts: str
    clusters: Table
    alone: int
    scores: str = ""
    picture: str = ""
    exercises: Table | None = None


def summary(
    sheets: Sequence[Sheet],
    course: Mapping[str, CourseLab],
    secret: bytes,
    remarks: Sequence[Remark] = (),
) -> str:
    """The page of the whole class; ``remarks`` are those on the run."""
    labs = sorted({sheet.submission.lab for sheet in sheets})
    by_lab = {lab: [sheet for sheet in sheets if sheet.submission.lab == lab] for lab in labs}
    return page(
        "summary.html",
        students=len({sheet.submission.student for sheet in sheets}),
        ideas=_ideas(sheets),
        labs=[_lab(lab, of_lab, course, secret) for lab, of_lab in by_lab.items()],
        causes=_causes(sheets, secret),
        remarks=_remarks(remarks, {s.submission.student for s in sheets}, secret),
        count=_count,
    )


def clusters(sheets: Sequence[Sheet], secret: bytes) -> list[Cluster]:
    """Failures beyond the listed misconceptions, the largest group first."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for sheet in sheets:
        for row in sheet.rows:
            if row.status in ("failed", "error") and not row.idea:
                template = without_names(row.message)
                found[row.exercise, template].append(sheet.submission.student)
    merged: dict[tuple[str, str], list[str]] = {}
    by_size = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    for place, (key, students) in enumerate(by_size):
        twin = _twin(key, merged) if place < _MOST_COMPARED else None
        merged.setdefault(twin or key, []).extend(students)
    return sorted(
        (
            Cluster(
                exercise=exercise,
                message=template,
                students=tuple(sorted(pseudonym(one, secret) for one in set(students))),
            )
            for (exercise, template), students in merged.items()
        ),
        key=lambda one: (-len(one.students), one.exercise, one.message),
    )


def _twin(key: tuple[str, str], merged: Mapping) -> tuple[str, str] | None:
    """The cluster of the same exercise whose message reads like this one's."""
    exercise, template = key
    return next((k for k in merged if k[0] == exercise and _alike(k[1], template)), None)


def _alike(one: str, other: str) -> bool:
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    return matcher.quick_ratio() >= _ALIKE and matcher.ratio() >= _ALIKE


def _lab(lab: str, sheets: Sequence[Sheet], course: Mapping[str, CourseLab], secret: bytes) -> _Lab:
    found = clusters(sheets, secret)
    failures = {
        "clusters": _shared(found),
        "alone": sum(len(one.students) == 1 for one in found),
    }
    if lab not in course:
        title, facts = "Files of no known lab", f"{_count(len(sheets), 'file')}."
        return _Lab(title=title, facts=facts, **failures)
    facts = [
        _count(len([s for s in sheets if s.submission.cause != "missing"]), "submission"),
        f"{sum(s.submission.cause == 'missing' for s in sheets)} missing",
        f"{sum(s.submission.late for s in sheets)} late",
        f"{sum(s.points is None for s in sheets)} not wholly graded",
    ]
    scored = [s.points for s in sheets if s.points is not None and s.submission.work]
    scores = picture = ""
    if scored:
        possible = max(s.possible for s in sheets)
        picture = histogram(scored, possible)
        scores = (
            f"Median {statistics.median(scored):g} of {possible:g} points,"
            f" from {min(scored):g} to {max(scored):g}."
        )
    return _Lab(
        title=lab,
        facts=f"{', '.join(facts)}.",
        scores=scores,
        picture=picture,
        exercises=_exercises(sheets),
        **failures,
    )


def histogram(scored: Sequence[float], possible: float) -> Markup:
    """A picture of the scores, as SVG that says in words what it shows."""
    counts = [0] * (_BINS + 1)
    for points in scored:
        counts[min(int(_BINS * points / possible), _BINS) if possible else 0] += 1
    labels = [f"{10 * n}–{10 * n + 9}" for n in range(_BINS)] + ["100"]
    said = "; ".join(
        f"{label} %: {count}" for label, count in zip(labels, counts, strict=True) if count
    )
    tall, top = 150, max(counts)
    bars = [
        (label, count, round(tall * count / top))
        for label, count in zip(labels, counts, strict=True)
    ]
    picture = render(
        "grading/report/histogram.html",
        title=f"Number of submissions by score in percent of {possible:g} points. {said}.",
        bars=bars,
        possible=f"{possible:g}",
    )
    return Markup(picture)


def _exercises(sheets: Sequence[Sheet]) -> Table:
    by_exercise: dict[str, list[Row]] = defaultdict(list)
    for sheet in sheets:
        for row in sheet.rows:
            if not row.manual:
                by_exercise[row.exercise].append(row)
    rows = []
    for exercise, of_it in by_exercise.items():
        counts = Counter(row.status for row in of_it)
        handed = len(of_it) - counts["missing"]
        share = f"{100 * counts['passed'] / handed:.0f} %" if handed else ""
        rows.append([exercise, share, *(counts[status] or "" for status in _STATUSES)])
    return Table(
        caption="Exercises, number of students",
        heads=["exercise", "share passed", *_STATUSES],
        rows=rows,
        numbers=range(1, 2 + len(_STATUSES)),
    )


def _ideas(sheets: Sequence[Sheet]) -> Table:
    holders: dict[str, set[str]] = defaultdict(set)
    where: dict[str, set[str]] = defaultdict(set)
    for sheet in sheets:
        for row in sheet.rows:
            if row.idea:
                holders[row.idea].add(sheet.submission.student)
                where[row.idea].add(row.exercise.removeprefix(HIDDEN))
    known = misconceptions()
    rows = [
        [
            len(students),
            known[idea].en if idea in known else idea,
            ", ".join(sorted(where[idea])),
            known[idea].cure.replace("#", ", ").replace("-", " ") if idea in known else "",
        ]
        for idea, students in sorted(holders.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    return Table(
        caption="What the class believes: misconceptions that answers showed",
        heads=["students", "idea", "exercises", "where it is cured"],
        rows=rows,
        numbers=[0],
        wide=1,
    )


def _shared(found: Sequence[Cluster]) -> Table:
    """The messages that went to more than one student."""
    return Table(
        caption="Other failures whose messages read alike",
        heads=["students", "exercise", "message", "who"],
        rows=[
            [
                len(one.students),
                one.exercise,
                one.message,
                ", ".join(one.students[:_NAMED]) + (" …" if one.students[_NAMED:] else ""),
            ]
            for one in found
            if len(one.students) > 1
        ],
        numbers=[0],
        wide=2,
    )


def _causes(sheets: Sequence[Sheet], secret: bytes) -> Table:
    causes: dict[str, set[str]] = defaultdict(set)
    for sheet in sheets:
        for row in sheet.rows:
            if row.cause and row.cause != "missing":
                causes[row.cause].add(pseudonym(sheet.submission.student, secret))
    rows = [
        [cause, len(who), ", ".join(sorted(who)[:_NAMED])]
        for cause, who in sorted(causes.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    return Table(caption="Causes", heads=["cause", "students", "who"], rows=rows, numbers=[1])


def _remarks(remarks: Sequence[Remark], students: Collection[str], secret: bytes) -> Table:
    """All remarks under pseudonyms, what reads alike in one row."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in remarks:
        said = one.said if one.kind == "slow" else without_names(one.said)
        who = pseudonym(one.who, secret) if one.who in students else "a file"
        found[KINDS[one.kind], said].append(who)
    return Table(
        caption="Of this run",
        heads=["what", "number", "remark", "who"],
        rows=[[what, len(who), said, ", ".join(who)] for (what, said), who in found.items()],
        numbers=[1],
        wide=2,
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
