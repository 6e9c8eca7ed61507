"""The page that a student gets back: what they earned, each check's sentence, their own code."""

import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from labkit.base.files import replace_file
from labkit.base.misconceptions import misconceptions
from labkit.grading.course import CourseLab
from labkit.grading.judge.ledger import Ledger
from labkit.grading.report.pages import code, page, points
from labkit.grading.report.scores import HIDDEN, Sheet

LONGEST_CODE = 10_000
"""Characters of one answer on the page; labkit's own answers have at most some 3,000."""

_AT_A_TIME = 200  # pages in memory, and in one write of the ledger


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """A student's code for one exercise: marked up, or the exercise under which it stands already.

    ``left_out`` counts the characters that the page does not show.
    """

    code: Markup | None = None
    above: str = ""
    left_out: int = 0


def file_name(student: str) -> str:
    """The name of a student's page: readable, and no two students share one."""
    kept = re.sub(r"[^a-z0-9_-]+", "_", student.lower(), flags=re.ASCII)[:60].strip("_-")
    # What ends like a hash might be another student's page.
    if kept == student and not re.search(r"-[0-9a-f]{8}\Z", kept):
        return f"{kept}.html"
    return f"{kept or 'student'}-{hashlib.sha256(student.encode()).hexdigest()[:8]}.html"


def feedback(
    sheets: Sequence[Sheet], course: Mapping[str, CourseLab], *, chinese: bool = False
) -> str:
    """The page of one student, whose sheets these are; ``chinese`` adds the ideas in Chinese."""
    of = sheets[0].submission
    return page(
        "feedback.html",
        student=of.name or of.student,
        labs=[(sheet, _title(sheet, course), _answers(sheet)) for sheet in sheets],
        ideas=misconceptions(),
        chinese=chinese,
        hidden=HIDDEN,
        points=points,
        place=_place,
    )


def _place(cure: str) -> str:
    """Where a misconception is cured, in words."""
    where, _, section = cure.replace("-", " ").partition("#")
    if where.startswith("topic:"):
        return f"the interview questions on {where.removeprefix('topic:')}"
    return f"lab {where}, section “{section}”"


def write_pages(
    folder: Path,
    sheets: Iterable[Sheet],
    course: Mapping[str, CourseLab],
    ledger: Ledger,
    *,
    chinese: bool = False,
) -> None:
    """Write each student's page, and remove what earlier runs wrote for students who are gone.

    The ledger remembers the pages and what they held; a page that somebody has changed stays.
    """
    of_student: dict[str, list[Sheet]] = {}
    for sheet in sheets:
        of_student.setdefault(sheet.submission.student, []).append(sheet)
    before, now = ledger.pages(), set()
    for students in _parts(sorted(of_student), _AT_A_TIME):
        pages = {
            file_name(student): feedback(of_student[student], course, chinese=chinese).encode()
            for student in students
        }
        digests = {(name, _digest(content)) for name, content in pages.items()}
        now |= digests
        # First remembered, then written: where a run is killed, the next one knows its pages.
        ledger.add_pages(digests)
        for name, content in pages.items():
            replace_file(folder / name, content)
    current = {name for name, _ in now}
    for name, digest in before:
        if name not in current:
            with contextlib.suppress(FileNotFoundError):
                if _digest((folder / name).read_bytes()) == digest:
                    (folder / name).unlink()
    ledger.keep_pages(now)


def _parts(students: list[str], size: int) -> Iterator[list[str]]:
    return (students[start : start + size] for start in range(0, len(students), size))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _answers(sheet: Sheet) -> dict[str, _Answer]:
    """What the page shows of the code, by exercise: each cell once, and a bounded part of it."""
    shown: dict[str, str] = {}
    answers = {}
    for row in sheet.rows:
        source = sheet.submission.code.get(row.exercise)
        if not source:
            continue
        if source in shown:
            answers[row.exercise] = _Answer(above=shown[source])
            continue
        shown[source] = row.exercise
        part = source[:LONGEST_CODE]
        answers[row.exercise] = _Answer(code=code(part), left_out=len(source) - len(part))
    return answers


def _title(sheet: Sheet, course: Mapping[str, CourseLab]) -> str:
    lab = course.get(sheet.submission.lab)
    return f"{int(lab.lab[:2])}. {lab.title}" if lab else "A file of no known lab"
