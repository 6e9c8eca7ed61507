"""The page that a student gets back: what they earned, each check's sentence, their own code."""

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from labkit.base.home import replace_file
from labkit.grading.course_labs import CourseLab, rest_of_labkit
from labkit.grading.judge.grade_ledger import GradeLedger
from labkit.grading.records import HIDDEN
from labkit.grading.report.pages import code_html, page, points
from labkit.grading.report.scores import RESULT, Sheet, for_student, is_hidden
from labkit.labs.engine.misconceptions import cured_at, misconceptions

LONGEST_CODE = 10_000
"""Characters of one answer on the page; labkit's own answers have at most some 3,000."""

_IN_FRAGMENTS = "!$&'()*+,;=:@/?"  # may stand after the # of an address, RFC 3986

_AT_A_TIME = 200  # pages in memory, and in one write of the ledger


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """A student's code for one exercise: marked up, or the exercise under which it stands already.

    ``left_out`` counts the characters that the page does not show.
    """

    code: Markup | None = None
    above: str = ""
    left_out: int = 0


@dataclass(frozen=True, kw_only=True)
class _Lab:
    """One lab on the page: its sheet as the student may see it, its title and what goes with it.

    ``address`` is the lab's on the web and ``places`` those of its exercises' sections.
    ``left_out`` says that rows of hidden checks are.
    """

    sheet: Sheet
    title: str
    address: str
    answers: Mapping[str, _Answer]
    places: Mapping[str, str]
    left_out: bool


def file_name(student: str) -> str:
    """The name of a student's page: readable, and no two students share one."""
    kept = re.sub(r"[^a-z0-9_-]+", "_", student.lower(), flags=re.ASCII)[:60].strip("_-")
    # What ends like a hash might be another student's page.
    if kept == student and not re.search(r"-[0-9a-f]{8}\Z", kept):
        return f"{kept}.html"
    return f"{kept or 'student'}-{hashlib.sha256(student.encode()).hexdigest()[:8]}.html"


def feedback(
    sheets: Sequence[Sheet],
    course: Mapping[str, CourseLab],
    *,
    chinese: bool = False,
    hidden: str = RESULT,
    labs_url: str = "",
) -> str:
    """The page of one student, whose sheets these are.

    Args:
        sheets: one a lab.
        course: the labs by name.
        chinese: whether wrong ideas are stated in Chinese too.
        hidden: what is told of hidden checks, one of ``scores.HIDDEN_FEEDBACK``.
        labs_url: where the labs' notebooks lie on the web, for links; "" for none.
    """
    of = sheets[0].submission
    shown = [for_student(sheet, hidden) for sheet in sheets]
    return page(
        "feedback.html",
        student=of.name or of.student,
        labs=[
            _Lab(
                sheet=one,
                title=_title(one, course),
                address=_address(labs_url, one.submission.lab) if _known(one, course) else "",
                answers=_answers(one),
                places=_places(labs_url, course.get(one.submission.lab)),
                left_out=len(one.rows) < len(sheet.rows),
            )
            for one, sheet in zip(shown, sheets, strict=True)
        ],
        together=_together(shown),
        possible=sum(sheet.possible for sheet in shown),
        ideas=misconceptions(),
        cures=_cures(labs_url),
        chinese=chinese,
        hidden=HIDDEN,
        points=points,
        is_hidden=is_hidden,
    )


def _together(sheets: Sequence[Sheet]) -> float | None:
    """The points of all labs; None while one is not wholly graded."""
    each = [sheet.points for sheet in sheets]
    return None if None in each else sum(each)


@functools.cache
def _cures(labs_url: str) -> Mapping[str, tuple[str, str]]:
    """Where each misconception is cured; the same for all pages of a run."""
    return {idea.id: _cure(labs_url, idea.cure) for idea in misconceptions().values()}


def _cure(labs_url: str, cure: str) -> tuple[str, str]:
    """Where a misconception is cured: in words, and the address of the place, or ""."""
    lab, _, section = cure.partition("#")
    return cured_at(cure), _address(labs_url, lab, section) if section else ""


def _places(labs_url: str, lab: CourseLab | None) -> dict[str, str]:
    """The address of each exercise's section."""
    anchors = lab.anchors if lab else {}
    return {name: _address(labs_url, lab.lab, section) for name, section in anchors.items()}


def _address(labs_url: str, lab: str, section: str = "") -> str:
    """The address of a lab or of a section of it; "" where nobody said where the labs lie.

    JupyterLab compares a section as it stands in the address, so what may stand there is not
    escaped.
    """
    if not labs_url or not lab:
        return ""
    place = f"#{quote(section, safe=_IN_FRAGMENTS)}" if section else ""
    return f"{labs_url.rstrip('/')}/{lab}.ipynb{place}"


def write_pages(
    folder: Path,
    sheets: Iterable[Sheet],
    course: Mapping[str, CourseLab],
    ledger: GradeLedger,
    *,
    chinese: bool = False,
    hidden: str = RESULT,
    labs_url: str = "",
) -> None:
    """Write each student's page, and remove what earlier runs wrote for students who are gone.

    The ledger remembers the pages and what they held; a page that somebody has changed is replaced
    where its student is still there, and stays where they are gone. One that was made from the same
    facts, and holds what it held then, is not made again.
    """
    of_student: dict[str, list[Sheet]] = {}
    for sheet in sheets:
        of_student.setdefault(sheet.submission.student, []).append(sheet)
    before, now = ledger.pages(), set()
    earlier, made = ledger.made(), {}
    for students in _parts(sorted(of_student), _AT_A_TIME):
        pages = {}
        for student in students:
            name, own = file_name(student), of_student[student]
            facts = _facts(own, course, chinese, hidden, labs_url)
            there, digest = earlier.get(name, ("", ""))
            if there != facts or digest != _digest_of(folder / name):
                page = feedback(own, course, chinese=chinese, hidden=hidden, labs_url=labs_url)
                pages[name] = page.encode()
                digest = _digest(pages[name])
            made[name] = facts, digest
        digests = {(name, made[name][1]) for name in map(file_name, students)}
        now |= digests
        # First remembered, then written: where a run is killed, the next one knows its pages.
        ledger.add_pages(digests)
        for name, content in pages.items():
            replace_file(folder / name, content)
    current = {name for name, _ in now}
    for name, digest in before:
        if name not in current and _digest_of(folder / name) == digest:
            (folder / name).unlink()
    ledger.keep_pages(now)
    ledger.keep_made(made)


def _facts(sheets: Sequence[Sheet], course: Mapping[str, CourseLab], *options: str | bool) -> str:
    """A digest of everything that a page is made from, this code included."""
    of_sheets = []
    for sheet in sheets:
        one, lab = sheet.submission, course.get(sheet.submission.lab)
        of_lab = (lab.title, sorted(lab.anchors.items())) if lab else ()
        submission = replace(one, forms={}, work=None)
        own = submission, one.is_readable, sheet.rows, sheet.comment, sheet.graded_on
        of_sheets.append((own, of_lab))
    return _digest(repr((of_sheets, options, _maker())).encode())


@functools.cache
def _maker() -> str:
    """A digest of labkit, the pages' templates, the misconceptions, and of what marks the code."""
    of_all = [rest_of_labkit(), metadata.version("pygments"), misconceptions()]
    of_all += [file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.*"))]
    return _digest(repr(of_all).encode())


def _parts(students: list[str], size: int) -> Iterator[list[str]]:
    return (students[start : start + size] for start in range(0, len(students), size))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest_of(file: Path) -> str:
    """The digest of what the file holds; "" where there is none."""
    try:
        return _digest(file.read_bytes())
    except FileNotFoundError:
        return ""


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
        answers[row.exercise] = _Answer(code=code_html(part), left_out=len(source) - len(part))
    return answers


def _known(sheet: Sheet, course: Mapping[str, CourseLab]) -> bool:
    return sheet.submission.lab in course


def _title(sheet: Sheet, course: Mapping[str, CourseLab]) -> str:
    lab = course.get(sheet.submission.lab)
    return f"{int(lab.lab[:2])}. {lab.title}" if lab else "A file of no known lab"
