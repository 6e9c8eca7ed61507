"""The page that a student gets back: what they earned, each check's sentence, their own code."""

import hashlib
import re
from collections.abc import Mapping, Sequence

from labkit.base.misconceptions import misconceptions
from labkit.grading.course import CourseLab
from labkit.grading.report.pages import code, page, points, table, text
from labkit.grading.report.scores import HIDDEN, Row, Sheet


def file_name(student: str) -> str:
    """The name of a student's page: readable, and no two students share one."""
    kept = re.sub(r"[^a-z0-9_-]+", "_", student.lower(), flags=re.ASCII)[:60].strip("_-")
    # What ends like a hash might be another student's page.
    if kept == student and not re.search(r"-[0-9a-f]{8}\Z", kept):
        return f"{kept}.html"
    return f"{kept or 'student'}-{hashlib.sha256(student.encode()).hexdigest()[:8]}.html"


def feedback(sheets: Sequence[Sheet], course: Mapping[str, CourseLab]) -> str:
    """The page of one student, whose sheets these are."""
    of = sheets[0].submission
    body = [f"<h1>Feedback for {text(of.name or of.student)}</h1>"]
    if len(sheets) > 1:
        parts = [
            f'<li><a href="#{text(s.submission.lab or "no-lab")}">{text(_title(s, course))}</a>:'
            f" {points(s.points, s.possible)}</li>"
            for s in sheets
        ]
        body.append(f"<ul>{''.join(parts)}</ul>")
    body += [_lab(sheet, course) for sheet in sheets]
    return page(f"Feedback for {of.name or of.student}", "\n".join(body))


def _title(sheet: Sheet, course: Mapping[str, CourseLab]) -> str:
    lab = course.get(sheet.submission.lab)
    return f"{int(lab.lab[:2])}. {lab.title}" if lab else "A file of no known lab"


def _lab(sheet: Sheet, course: Mapping[str, CourseLab]) -> str:
    of = sheet.submission
    parts = [
        f'<section id="{text(of.lab or "no-lab")}">',
        f"<h2>{text(_title(sheet, course))}</h2>",
    ]
    late = " Handed in late." if of.late else ""
    parts.append(
        f'<p class="score">{points(sheet.points, sheet.possible)} points.{late}</p>'
        if sheet.points is not None
        else f'<p class="score">{"Not wholly graded yet" if of.work else "Not graded"}.{late}</p>'
    )
    if of.file:
        parts.append(f'<p class="soft">From {text(of.file)}</p>')
    if of.trouble:
        parts.append(f"<p>{text(of.trouble)}</p>")
    if of.repairs:
        items = "".join(f"<li>{_marked(repair)}</li>" for repair in of.repairs)
        parts.append(f"<p>While reading your notebook:</p><ul>{items}</ul>")
    if of.work or any(row.override for row in sheet.rows):
        parts.append(_overview(sheet))
        parts += [_exercise(row, of.lab, of.code.get(row.exercise, "")) for row in sheet.rows]
    parts.append("</section>")
    return "\n".join(parts)


def _overview(sheet: Sheet) -> str:
    lab = sheet.submission.lab
    rows = [
        [
            f'<a href="#{text(lab)}-{text(row.exercise)}">{_label(row)}</a>',
            _status(row),
            text(points(row.points, row.possible)),
        ]
        for row in sheet.rows
    ]
    return table("Exercises", ["exercise", "result", "points"], rows, numbers=[2])


def _exercise(row: Row, lab: str, answer: str) -> str:
    parts = [
        f'<article id="{text(lab)}-{text(row.exercise)}">',
        f"<h3>{_label(row)}: {_status(row)}, {points(row.points, row.possible)}</h3>",
    ]
    parts.append(f"<p>{_marked(row.message)}</p>")
    if row.override:
        parts.append(f"<p>Points set by your instructor: {text(row.override)}</p>")
    for one in row.misconceptions:
        if idea := misconceptions().get(one):
            where = idea.cure.replace("#", ", section ").replace("-", " ")
            parts.append(
                f"<blockquote><p>The idea behind this may be: {text(idea.en)}</p>"
                f'<p lang="zh">{text(idea.zh)}</p><p class="soft">Read again: {text(where)}</p>'
                "</blockquote>"
            )
    if answer:
        parts.append(code(answer))
    elif row.status != "missing" and not row.exercise.startswith(HIDDEN):
        parts.append('<p class="soft">The notebook holds no cell for this exercise.</p>')
    parts.append("</article>")
    return "\n".join(parts)


def _label(row: Row) -> str:
    if row.exercise.startswith(HIDDEN):
        return f"{text(row.exercise.removeprefix(HIDDEN))}, your instructor's check"
    return text(row.exercise)


def _status(row: Row) -> str:
    kind = "not" if row.status.startswith("not") else row.status
    return f'<span class="{text(kind)}">{text(row.status)}</span>'


def _marked(sentence: str) -> str:
    """A sentence whose `code` is set as code."""
    parts = sentence.split("`")
    if len(parts) % 2 == 0:
        return text(sentence)
    return "".join(
        f"<code>{text(part)}</code>" if place % 2 else text(part)
        for place, part in enumerate(parts)
    )
