"""What the class did, without names: how scores lie, what was missed, what is believed.

Students appear under pseudonyms that only the instructor's secret gives; what a message quotes of
somebody's code is left out.
"""

import difflib
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labkit.base.misconceptions import misconceptions
from labkit.grading.course import CourseLab
from labkit.grading.report.pages import page, table, text
from labkit.grading.report.scores import Row, Sheet, pseudonym

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


def summary(sheets: Sequence[Sheet], course: Mapping[str, CourseLab], secret: bytes) -> str:
    """The page of the whole class."""
    students = {sheet.submission.student for sheet in sheets}
    body = [
        "<h1>Class summary</h1>",
        f"<p>{_count(len(students), 'student')}, under pseudonyms: the column"
        " <code>pseudonym</code> of the table of grades tells who is who.</p>",
    ]
    labs = sorted({sheet.submission.lab for sheet in sheets})
    for lab in labs:
        of_lab = [sheet for sheet in sheets if sheet.submission.lab == lab]
        body.append(_lab(lab, of_lab, course))
        body.append(_clusters(clusters(of_lab, secret)))
    body.insert(2, _ideas(sheets))
    body.append(_causes(sheets, secret))
    return page("Class summary", "\n".join(part for part in body if part))


def clusters(sheets: Sequence[Sheet], secret: bytes) -> list[Cluster]:
    """Failures beyond the listed misconceptions, the largest group first."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for sheet in sheets:
        for row in sheet.rows:
            if row.status in ("failed", "error") and not row.misconceptions:
                template = _template(row.message)
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


def _template(message: str) -> str:
    """A message without what differs from student to student: code, words in quotes, numbers."""
    message = re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"", "…", message)
    return re.sub(r"(?<![\w…])-?\d+(\.\d+)?(e[+-]?\d+)?\b", "N", message)[:300]


def _alike(one: str, other: str) -> bool:
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    return matcher.quick_ratio() >= _ALIKE and matcher.ratio() >= _ALIKE


def _lab(lab: str, sheets: Sequence[Sheet], course: Mapping[str, CourseLab]) -> str:
    if lab not in course:
        return f"<h2>Files of no known lab</h2><p>{_count(len(sheets), 'file')}.</p>"
    facts = [
        _count(len([s for s in sheets if s.submission.cause != "missing"]), "submission"),
        f"{sum(s.submission.cause == 'missing' for s in sheets)} missing",
        f"{sum(s.submission.late for s in sheets)} late",
        f"{sum(s.points is None for s in sheets)} not wholly graded",
    ]
    scored = [s.points for s in sheets if s.points is not None and s.submission.work]
    parts = [f"<h2>{text(lab)}</h2>", f"<p>{', '.join(facts)}.</p>"]
    if scored:
        possible = max(s.possible for s in sheets)
        parts.append(
            f"<p>Median {statistics.median(scored):g} of {possible:g} points,"
            f" from {min(scored):g} to {max(scored):g}.</p>"
        )
        parts.append(histogram(scored, possible))
    parts.append(_exercises(sheets))
    return "\n".join(parts)


def histogram(scored: Sequence[float], possible: float) -> str:
    """A picture of the scores, as SVG that says in words what it shows."""
    counts = [0] * (_BINS + 1)
    for points in scored:
        counts[min(int(_BINS * points / possible), _BINS) if possible else 0] += 1
    labels = [f"{10 * n}–{10 * n + 9}" for n in range(_BINS)] + ["100"]
    said = "; ".join(
        f"{label} %: {count}" for label, count in zip(labels, counts, strict=True) if count
    )
    width, base, tall = 56, 190, 150
    top = max(counts)
    drawn = []
    for place, (label, count) in enumerate(zip(labels, counts, strict=True)):
        left, height = place * width + 8, round(tall * count / top)
        middle = left + width // 2 - 4
        drawn.append(
            f'<rect class="bar" x="{left}" y="{base - height}" width="{width - 8}"'
            f' height="{height}"/>'
            f'<text x="{middle}" y="{base + 18}" text-anchor="middle">{label}</text>'
        )
        if count:
            drawn.append(
                f'<text x="{middle}" y="{base - height - 6}" text-anchor="middle">{count}</text>'
            )
    full = (_BINS + 1) * width + 16
    title = f"Number of submissions by score in percent of {possible:g} points. {said}."
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Scores">'
        f'<svg viewBox="0 0 {full} 238" role="img" aria-label="{text(title)}">'
        f"<title>{text(title)}</title>{''.join(drawn)}"
        f'<line class="axis" x1="4" y1="{base}" x2="{full - 4}" y2="{base}"/>'
        f'<text x="{full // 2}" y="{base + 40}" text-anchor="middle">score, percent of'
        f" {possible:g} points (bars: number of submissions)</text></svg></div>"
    )


def _exercises(sheets: Sequence[Sheet]) -> str:
    by_exercise: dict[str, list[Row]] = defaultdict(list)
    for sheet in sheets:
        for row in sheet.rows:
            by_exercise[row.exercise].append(row)
    rows = []
    for exercise, of_it in by_exercise.items():
        counts = Counter(row.status for row in of_it)
        handed = len(of_it) - counts["missing"]
        share = f"{100 * counts['passed'] / handed:.0f} %" if handed else ""
        rows.append([text(exercise), share, *(str(counts[status] or "") for status in _STATUSES)])
    return table(
        "Exercises, number of students",
        ["exercise", "share passed", *_STATUSES],
        rows,
        numbers=range(1, 2 + len(_STATUSES)),
    )


def _ideas(sheets: Sequence[Sheet]) -> str:
    holders: dict[str, set[str]] = defaultdict(set)
    where: dict[str, set[str]] = defaultdict(set)
    for sheet in sheets:
        for row in sheet.rows:
            for idea in row.misconceptions:
                holders[idea].add(sheet.submission.student)
                where[idea].add(row.exercise)
    known = misconceptions()
    rows = [
        [
            str(len(students)),
            text(known[idea].en if idea in known else idea),
            text(", ".join(sorted(where[idea]))),
            text(known[idea].cure.replace("#", ", ").replace("-", " ") if idea in known else ""),
        ]
        for idea, students in sorted(holders.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    if not rows:
        return "<p>No answer showed a listed misconception.</p>"
    return table(
        "What the class believes: misconceptions that answers showed",
        ["students", "idea", "exercises", "where it is cured"],
        rows,
        numbers=[0],
        wide=1,
    )


def _clusters(found: Sequence[Cluster]) -> str:
    shared = [one for one in found if len(one.students) > 1]
    alone = len(found) - len(shared)
    rows = [
        [
            str(len(one.students)),
            text(one.exercise),
            text(one.message),
            text(", ".join(one.students[:_NAMED]) + (" …" if one.students[_NAMED:] else "")),
        ]
        for one in shared
    ]
    rest = f"<p>{_count(alone, 'more message')} went to one student each.</p>" if alone else ""
    if not rows:
        return rest
    heads = ["students", "exercise", "message", "who"]
    return (
        table("Other failures whose messages read alike", heads, rows, numbers=[0], wide=2) + rest
    )


def _causes(sheets: Sequence[Sheet], secret: bytes) -> str:
    causes: dict[str, set[str]] = defaultdict(set)
    for sheet in sheets:
        for row in sheet.rows:
            if row.cause and row.cause != "missing":
                causes[row.cause].add(pseudonym(sheet.submission.student, secret))
    rows = [
        [text(cause), str(len(who)), text(", ".join(sorted(who)[:_NAMED]))]
        for cause, who in sorted(causes.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    if not rows:
        return ""
    title = "<h2>What stopped the grading of exercises</h2>"
    return title + table("Causes", ["cause", "students", "who"], rows, numbers=[1])


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
