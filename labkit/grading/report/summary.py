"""What the class did, without names: how scores lie, what failed and why, what is believed.

Students appear under pseudonyms that only the instructor's secret gives; each is a link to its line
on the page of names.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from markupsafe import Markup

from labkit.grading.course_labs import CourseLab
from labkit.grading.intake.remarks import KINDS, Remark
from labkit.grading.records import HIDDEN
from labkit.grading.report.failed_exercises import Cluster, clusters
from labkit.grading.report.leaderboard import Board, boards
from labkit.grading.report.likeness import Likeness
from labkit.grading.report.noteworthy import without_names
from labkit.grading.report.pages import PageTable, code_html, page
from labkit.grading.report.scores import Row, Sheet, is_hidden, pseudonym
from labkit.labs.engine.misconceptions import Misconception, cured_at, misconceptions
from labkit.labs.engine.templates import render

_STATUSES = ("passed", "failed", "error", "not attempted", "not graded", "missing")
_BINS = 10
_NAMED = 6  # pseudonyms that stand open; more are folded
_WHOLE = 40  # groups of failures in a lab with an example of the code
_LISTED = 400  # further ones with their message only
_LINES, _CHARACTERS = 30, 1_500  # of the code of an example
_MOST_ALIKE = 100  # rows of answers that are alike


@dataclass(frozen=True, kw_only=True)
class _Failures:
    """A group of failures as the page shows it, under the ``anchor`` that links lead to.

    ``rest`` counts the lines of the example's code that are left out.
    """

    anchor: str
    of: Cluster
    exercise: str
    idea: Misconception | None
    who: Markup
    code: Markup | None = None
    rest: int = 0


@dataclass(frozen=True, kw_only=True)
class _Lab:
    """What the page says of one lab: sentences, the picture of scores, tables, failures.

    ``shared`` are failures of several students and ``alone`` of one each, all with an example;
    ``listed`` are those beyond, and ``unlisted`` counts what is on no list. ``boards`` are the
    leaderboards of open-ended exercises.
    """

    anchor: str
    title: str
    facts: str
    shared: list[_Failures]
    alone: list[_Failures]
    listed: list[_Failures]
    unlisted: int
    scores: str = ""
    picture: str = ""
    exercises: PageTable | None = None
    boards: Sequence[PageTable] = ()


class _Students:
    """Pseudonyms as links to the page of names."""

    def __init__(self, secret: bytes, names: str):
        self.secret = secret
        self.url = f"./{quote(names)}"

    def links(self, students: Iterable[str]) -> Markup:
        """Those of students, sorted."""
        return self.linked(sorted(pseudonym(one, self.secret) for one in set(students)))

    def linked(self, pseudonyms: Sequence[str]) -> Markup:
        """The links; folded where they are many."""
        link = Markup('<a href="{}#{}">{}</a>')
        links = Markup(", ").join(link.format(self.url, one, one) for one in pseudonyms)
        if len(pseudonyms) <= _NAMED:
            return links
        folded = Markup("<details><summary>{} students</summary>{}</details>")
        return folded.format(len(pseudonyms), links)


def summary(
    sheets: Sequence[Sheet],
    course: Mapping[str, CourseLab],
    secret: bytes,
    remarks: Sequence[Remark] = (),
    alike: Sequence[Likeness] = (),
    names: str = "grades.names.html",
) -> str:
    """The page of the whole class.

    Args:
        sheets: all of them.
        course: the labs by name.
        secret: what the pseudonyms are made with.
        remarks: those on the run.
        alike: answers that are the published solution, and answers that students share.
        names: the file beside the page that says who is who.
    """
    students = _Students(secret, names)
    in_order = sorted({sheet.submission.lab for sheet in sheets})
    by_lab = {lab: [sheet for sheet in sheets if sheet.submission.lab == lab] for lab in in_order}
    labs = [
        _lab(f"lab-{number}", lab, of_lab, course, students)
        for number, (lab, of_lab) in enumerate(by_lab.items(), 1)
    ]
    return page(
        "summary.html",
        students=len({sheet.submission.student for sheet in sheets}),
        names=students.url,
        hidden=any(_is_hidden_failure(row) for sheet in sheets for row in sheet.rows),
        ideas=_ideas(sheets, labs),
        labs=labs,
        copies=_alike(
            "Copies of the published solution", [x for x in alike if x.published], students
        ),
        shared=_alike("Identical answers", [x for x in alike if not x.published], students),
        causes=_causes(sheets, students),
        remarks=_remarks(remarks, {s.submission.student for s in sheets}, students),
        count=_count,
        cured_at=cured_at,
    )


def _lab(
    anchor: str,
    lab: str,
    sheets: Sequence[Sheet],
    course: Mapping[str, CourseLab],
    students: _Students,
) -> _Lab:
    failures = _failures(anchor, sheets, students)
    if lab not in course:
        title, facts = "Files of no known lab", f"{_count(len(sheets), 'file')}."
        return _Lab(anchor=anchor, title=title, facts=facts, **failures)
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
        anchor=anchor,
        title=lab,
        facts=f"{', '.join(facts)}.",
        scores=scores,
        picture=picture,
        exercises=_exercises(sheets),
        boards=[_leaderboard(board, students) for board in boards(sheets)],
        **failures,
    )


def _failures(anchor: str, sheets: Sequence[Sheet], students: _Students) -> dict:
    """The fields of ``_Lab`` on failures: the largest groups whole, then a list, then a number."""
    found = clusters(sheets, students.secret)
    groups = [
        _group(f"{anchor}-{number}", one, students, whole=number <= _WHOLE)
        for number, one in enumerate(found[: _WHOLE + _LISTED], 1)
    ]
    whole = groups[:_WHOLE]
    return {
        "shared": [one for one in whole if len(one.of.students) > 1],
        "alone": [one for one in whole if len(one.of.students) == 1],
        "listed": groups[_WHOLE:],
        "unlisted": len(found[_WHOLE + _LISTED :]),
    }


def _group(anchor: str, of: Cluster, students: _Students, *, whole: bool) -> _Failures:
    part = "\n".join(of.code[:_CHARACTERS].split("\n")[:_LINES])
    return _Failures(
        anchor=anchor,
        of=of,
        exercise=_label(of.exercise),
        idea=misconceptions().get(of.idea),
        who=students.linked(of.students),
        code=code_html(part) if whole and part else None,
        rest=of.code[len(part) :].count("\n"),
    )


def _is_hidden_failure(row: Row) -> bool:
    return is_hidden(row) and row.status in ("failed", "error")


def _label(exercise: str) -> str:
    bare = exercise.removeprefix(HIDDEN)
    return bare if bare == exercise else f"{bare}, hidden check"


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


def _exercises(sheets: Sequence[Sheet]) -> PageTable:
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
    return PageTable(
        caption="Exercises, number of students",
        heads=["exercise", "share passed", *_STATUSES],
        rows=rows,
        numbers=range(1, 2 + len(_STATUSES)),
    )


def _leaderboard(board: Board, students: _Students) -> PageTable:
    rows = [
        [
            one.place,
            students.links([one.student]),
            f"{one.score:.1%}",
            *("" if value is None else _measured(value) for value in one.values),
        ]
        for one in board.places
    ]
    return PageTable(
        caption=f"Leaderboard of {board.exercise}, as the judge measured",
        heads=["place", "who", "of the points", *board.measured],
        rows=rows,
        numbers=[0, *range(2, 3 + len(board.measured))],
    )


def _measured(value: float) -> str:
    return f"{value:,}" if value == int(value) else f"{value:.4g}"


def _ideas(sheets: Sequence[Sheet], labs: Sequence[_Lab]) -> PageTable:
    holders: dict[str, set[str]] = defaultdict(set)
    for sheet in sheets:
        for row in sheet.rows:
            if row.idea:
                holders[row.idea].add(sheet.submission.student)
    where: dict[str, list[Markup]] = defaultdict(list)
    for lab in labs:
        for one in sorted([*lab.shared, *lab.alone, *lab.listed], key=lambda one: one.exercise):
            if one.of.idea:
                link = Markup('<a href="#{}">{}</a>').format(one.anchor, one.exercise)
                where[one.of.idea].append(link)
    known = misconceptions()
    rows = [
        [
            len(students),
            known[idea].en if idea in known else idea,
            Markup("; ").join(where[idea]),
            cured_at(known[idea].cure) if idea in known else "",
        ]
        for idea, students in sorted(holders.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    return PageTable(
        caption="Misconceptions that answers showed",
        heads=["students", "idea", "exercises", "where it is cured"],
        rows=rows,
        numbers=[0],
        wide=1,
    )


def _alike(caption: str, found: Sequence[Likeness], students: _Students) -> PageTable:
    rows = [
        [
            len(one.students),
            one.lab,
            ", ".join(filter(None, ["the whole file" if one.files else "", one.listed()])),
            students.links(one.students),
        ]
        for one in found[:_MOST_ALIKE]
    ]
    return PageTable(
        caption=caption,
        heads=["students", "lab", "exercises", "who"],
        rows=rows,
        numbers=[0],
        wide=2,
    )


def _causes(sheets: Sequence[Sheet], students: _Students) -> PageTable:
    causes: dict[str, set[str]] = defaultdict(set)
    for sheet in sheets:
        for row in sheet.rows:
            if row.cause and row.cause != "missing":
                causes[row.cause].add(sheet.submission.student)
    rows = [
        [cause, len(who), students.links(who)]
        for cause, who in sorted(causes.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    return PageTable(caption="Causes", heads=["cause", "students", "who"], rows=rows, numbers=[1])


def _remarks(remarks: Sequence[Remark], known: set[str], students: _Students) -> PageTable:
    """Remarks that have no part of their own, under pseudonyms, what reads alike in one row."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in remarks:
        if one.kind not in ("copied", "identical"):
            said = one.said if one.kind == "slow" else without_names(one.said)
            found[KINDS[one.kind], said].append(one.who)
    rows = []
    for (what, said), who in found.items():
        links = [students.links(named)] if (named := known & set(who)) else []
        files = sum(one not in known for one in who)
        links += [_count(files, "file")] if files else []
        rows.append([what, len(who), said, Markup(", ").join(links)])
    return PageTable(
        caption="Of this run",
        heads=["what", "number", "remark", "who"],
        rows=rows,
        numbers=[1],
        wide=2,
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
