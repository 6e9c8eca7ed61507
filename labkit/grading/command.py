"""``labkit grade``: from a folder or a zip to grades, feedback pages and a class summary."""

import argparse
import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

from labkit.base.home import full_name
from labkit.grading.course_labs import CourseLab, missing_libraries, read_course
from labkit.grading.intake.deliveries import IntakeError, deliveries_in
from labkit.grading.intake.remarks import Remark
from labkit.grading.intake.roster import Override, TableError, read_overrides, read_roster
from labkit.grading.judge import batch, cluster
from labkit.grading.judge.batch import Engine, Submission
from labkit.grading.judge.cluster import ClusterError
from labkit.grading.judge.grade_ledger import Basis, GradeLedger, LedgerError
from labkit.grading.judge.runner import Grader, GraderError
from labkit.grading.judge.seeds import make_secret
from labkit.grading.nbgrader import gradebook
from labkit.grading.nbgrader.gradebook import GradebookError
from labkit.grading.records import Settings
from labkit.grading.report import (
    canvas,
    feedback,
    leaderboard,
    likeness,
    lms,
    moodle,
    names,
    noteworthy,
    scores,
    summary,
    tables,
)
from labkit.grading.report.likeness import Likeness
from labkit.grading.report.lms import Upload
from labkit.grading.report.lms_table import LmsError
from labkit.grading.report.scores import Sheet

ALL_GRADED, SOME_UNGRADED, CANNOT_START, INTERRUPTED = 0, 1, 2, 130
_SHOWN = 40  # lines of one kind on a terminal


class CannotStart(Exception):
    """Why nothing was graded, in a sentence with what to do."""


class NotWritten(Exception):
    """What could not be written after grading, with what to do."""


_REASONS = (
    CannotStart,
    IntakeError,
    TableError,
    LmsError,
    LedgerError,
    ClusterError,
    GraderError,
)


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Where everything is written: the table that -o names, and what stands beside it."""

    grades: Path
    totals: Path
    everything: Path
    remarks: Path
    summary: Path
    names: Path
    board: Path
    feedback: Path
    moodle: Path
    canvas: Path
    ledger: Path
    secret: Path

    @classmethod
    def beside(cls, grades: Path) -> "Outputs":
        """The outputs of a table; `grades.csv` has `grades.json` beside it, and so on."""

        def named(ending: str) -> Path:
            return grades.with_name(f"{grades.stem}.{ending}")

        return cls(
            grades=grades,
            totals=named("totals.csv"),
            everything=named("json"),
            remarks=named("remarks.csv"),
            summary=named("summary.html"),
            names=named("names.html"),
            board=named("leaderboard.csv"),
            feedback=named("feedback"),
            moodle=named("moodle"),
            canvas=named("canvas"),
            ledger=named("ledger.db"),
            secret=named("secret"),
        )

    def of(self, system: str) -> Path:
        """The folder of what is to be uploaded to an LMS."""
        return {"moodle": self.moodle, "canvas": self.canvas}[system]


def run_grade(options: argparse.Namespace, make_grader: Callable | None = None) -> int:
    """Grade as the options of ``labkit grade`` say, and return the exit status.

    0: every exercise of every submission was graded, and it is clear whose each is. 1: something
    is to be looked at: an exercise that was not graded, a file that was dropped, a student who is
    not in the roster, names and numbers that contradict each other, a mark that the LMS's files do
    not bring back, an output that could not be written. 2: it could not start. 130: it was stopped,
    and what was graded is kept.

    What was repaired, who handed in nothing, several attempts of one student and slow submissions
    are listed and change no status.

    ``make_grader(settings)`` gives a context manager with ``grade(work)``; by default the runner's
    ``Grader``.
    """
    try:
        if options.self_test:
            from labkit.grading.judge import selftest

            lab = _lab(options.lab, read_course())
            return selftest.self_test(_settings(options, b"self-test"), make_grader or Grader, lab)
        if options.submissions is None or options.out is None:
            raise CannotStart("Name the submissions and the table: labkit grade DIR -o grades.csv")
        return _grade(options, make_grader)
    except _REASONS as problem:
        _say(str(problem), to=sys.stderr)
        return CANNOT_START
    except NotWritten as problem:
        _say(str(problem), to=sys.stderr)
        return SOME_UNGRADED
    except KeyboardInterrupt:
        _say("\nStopped. What was graded is kept; the same command goes on.", to=sys.stderr)
        return INTERRUPTED


def _grade(options: argparse.Namespace, make_grader: Callable | None) -> int:
    course = read_course()
    lab = _lab(options.lab, course)
    only = _only(options.only, course, lab)
    outputs = Outputs.beside(options.out)
    _try_to_write(outputs, options.lms)
    roster = read_roster(options.roster) if options.roster else {}
    overrides = read_overrides(options.overrides, course) if options.overrides else None
    hidden = _hidden_points(options.extra, course)
    if options.gradebook:
        _require_gradebook()
    settings = _settings(options, _secret(options.secret_file or outputs.secret))

    read, of_all = _submissions(options.submissions, course, lab)
    chosen = batch.counting_submissions(read, roster)
    wanted = [lab] if lab else sorted({one.lab for one in chosen if one.lab})
    for missing in filter(None, map(missing_libraries, wanted)):
        raise CannotStart(missing)  # else each answer would seem to be wrong
    make_upload = _upload_maker(options, wanted, course)
    with GradeLedger(outputs.ledger, Basis.of(course.values(), settings)) as ledger:
        overrides = _overrides(overrides, ledger)
        left = batch.to_do((one.work for one in chosen if one.work), ledger, only)
        _say(f"Submissions: {len(chosen)}. To grade: {len(left)}.")
        if left:  # nothing starts where nothing is to be graded
            with _engine(options.scheduler, settings, make_grader or Grader) as engine:
                if not _run(left, engine, ledger):
                    return INTERRUPTED
        chosen += batch.missing_submissions(chosen, roster, wanted)
        graded = _sheets(chosen, course, ledger, hidden, partial=options.partial)
        sheets, unmet = scores.with_overrides(graded, overrides)
        upload = make_upload(sheets)
        alike = likeness.likenesses(chosen, course)
        beside = [*of_all, *upload.remarks, *likeness.remarks(alike)]
        remarks = noteworthy.remarks_on(sheets, only, beside)
        try:
            _write(outputs, sheets, remarks, alike, course, settings.secret)
            feedback.write_pages(
                outputs.feedback,
                sheets,
                course,
                ledger,
                chinese=options.chinese,
                hidden=options.hidden_feedback or scores.RESULT,
                labs_url=options.labs_url or "",
            )
            if options.lms:
                lms.write_lms(outputs.of(options.lms), upload, outputs.feedback)
        except OSError as error:
            raise NotWritten(
                f"The tables and pages beside {outputs.grades} are not all written"
                f" ({error.strerror}). What was graded is kept: make room, and run the same command"
                " again."
            ) from None
        except LedgerError as error:
            raise NotWritten(str(error)) from None
        before, now = ledger.reported(), scores.scores_of(sheets)
        ledger.report(now)

    unwritten = _write_gradebook(options.gradebook, sheets, course) if options.gradebook else ""
    _say_changes(scores.changes(before, now), unmet)
    _say(*noteworthy.lines(remarks, outputs.remarks.name))
    _say(
        f"{outputs.grades}, {outputs.totals.name}, {outputs.everything.name},",
        f"{outputs.remarks.name}, {outputs.summary.name}, {outputs.names.name} and",
        f"{outputs.feedback.name}/ are written.",
    )
    if leaderboard.boards(sheets):
        _say(f"{outputs.board.name} holds the leaderboard, under pseudonyms.")
    _say_some(upload.said)
    if upload.tables:
        _say(f"{outputs.of(options.lms).name}/ holds what to upload to {options.lms.title()}.")
    if unwritten:
        _say(unwritten, to=sys.stderr)
    return ALL_GRADED if noteworthy.all_well(remarks) and not unwritten else SOME_UNGRADED


def _lab(name: str | None, course: dict[str, CourseLab]) -> str | None:
    try:
        return None if name is None else full_name(name, course)
    except ValueError as error:
        raise CannotStart(str(error)) from None


def _only(names: list[str], course: dict[str, CourseLab], lab: str | None) -> frozenset[str]:
    labs = [course[lab]] if lab else list(course.values())
    there = [one.exercise for each in labs for one in each.exercises]
    for name in names:
        if name not in there:
            raise CannotStart(f"There is no exercise {name!r}; there are {', '.join(there)}.")
    return frozenset(names)


def _hidden_points(file: Path | None, course: dict[str, CourseLab]) -> dict[str, dict[str, float]]:
    """What the instructor's own checks grant, by lab and exercise."""
    if file is None:
        return {}
    from labkit.grading.judge import hidden_checks

    points: dict[str, dict[str, float]] = {}
    try:
        text = file.read_text(encoding="utf-8")
        for exercise, one in hidden_checks.load_hidden(text, file.name).items():
            lab = course.get(one.check.lab)
            if lab is None or exercise not in lab.check_versions:
                raise CannotStart(
                    f"{file.name} checks {exercise!r} of {one.check.lab!r}, which the course does"
                    " not have; a check is called check_<exercise>, and LAB names its lab."
                )
            points.setdefault(lab.lab, {})[exercise] = one.points
    except (OSError, UnicodeDecodeError) as error:
        raise CannotStart(f"{file} cannot be read: {error}.") from None
    except hidden_checks.HiddenCheckError as error:
        raise CannotStart(f"{error}{_line_of(error.__cause__, file.name)}") from None
    return points


def _line_of(error: BaseException | None, name: str) -> str:
    """Where in the instructor's file an exception arose: `, line 7`."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f" (line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__) if error else []
    lines = [frame.lineno for frame in frames if frame.filename == f"<{name}>"]
    return f" (line {lines[-1]})" if lines else ""


def _settings(options: argparse.Namespace, secret: bytes) -> Settings:
    return Settings(
        jobs=options.jobs or os.cpu_count() or 1,
        secret=secret,
        extra=str(options.extra.resolve()) if options.extra else None,
        sandboxed=not options.no_sandbox,
    )


def _try_to_write(outputs: Outputs, system: str | None) -> None:
    """Fail before an hour of grading, not after it."""
    folder = outputs.grades.parent
    if outputs.grades.is_dir():
        raise CannotStart(f"{outputs.grades} is a folder; name a file, such as grades.csv.")
    if not folder.is_dir():
        raise CannotStart(f"{folder} is no folder; make it, or write somewhere else with -o.")
    trial = folder / f".labkit-{os.getpid()}"
    try:
        trial.touch()
        trial.unlink()
        outputs.feedback.mkdir(exist_ok=True)
        if system:
            outputs.of(system).mkdir(exist_ok=True)
    except OSError as error:
        raise CannotStart(
            f"{outputs.grades} cannot be written ({error.strerror}); name another file with -o."
        ) from None


def _secret(file: Path) -> bytes:
    """What seeds the checks, made on the first run."""
    try:
        with contextlib.suppress(FileExistsError):
            make_secret(file)
        secret = file.read_bytes().strip()
    except OSError as error:
        raise CannotStart(f"{file} cannot be used ({error.strerror}).") from None
    if len(secret) < 16:
        raise CannotStart(f"{file} holds {len(secret)} characters; a secret needs 16 at least.")
    return secret


def _submissions(
    where: Path, course: dict[str, CourseLab], lab: str | None
) -> tuple[list[Submission], list[Remark]]:
    """What was handed in for the lab, and what the intake remarked beside that."""
    read, beside, elsewhere = [], [], 0
    for handed in deliveries_in(where, course):
        one = batch.read_submission(handed, course, lab)
        if one:
            read.append(one)
        else:
            elsewhere += 1
            beside += [remark for remark in handed.remarks if remark.who != handed.student]
    if elsewhere:
        _say(f"Left out, because they are of other labs than {lab}: {elsewhere} notebooks.")
    if not read:
        raise IntakeError(f"{where} holds no submissions of {lab}.")
    return read, beside


def _overrides(given: list[Override] | None, ledger: GradeLedger) -> list[Override]:
    """What the instructor wrote: what is given now, else what an earlier run was given."""
    if given is not None:
        ledger.keep_overrides(given)
    kept = ledger.overrides()
    if kept and given is None:
        _say(
            f"Kept from an earlier run: {len(kept)} overrides. --overrides with another file"
            " replaces them."
        )
    return kept


@contextlib.contextmanager
def _engine(address: str | None, settings: Settings, make_grader: Callable) -> Iterator[Engine]:
    if address:
        with cluster.engine(address, settings, make_grader) as engine:
            yield engine
    else:
        with make_grader(settings) as grader:
            yield batch.on_this_machine(grader.grade, settings.jobs)


def _run(left: list, engine: Engine, ledger: GradeLedger) -> bool:
    """Grade what is left; False where somebody stopped it."""
    with _asked_to_stop() as stop:
        done = batch.grade(left, engine, ledger, stop)
    if done < len(left):
        _say(
            f"\nStopped. {done} of {len(left)} are graded and kept; the same command goes on.",
            to=sys.stderr,
        )
    return done == len(left)


@contextlib.contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C asks to stop between two submissions; a second one stops at once."""
    asked = threading.Event()

    def ask(number, frame) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def _sheets(
    chosen: list[Submission],
    course: dict[str, CourseLab],
    ledger: GradeLedger,
    hidden: dict[str, dict],
    *,
    partial: bool,
) -> list[Sheet]:
    """A sheet for each submission, sorted, whatever the order in which they were graded."""
    return [
        scores.sheet(
            one,
            course.get(one.lab),
            ledger.found(one.work) if one.work else {},
            hidden.get(one.lab, {}),
            partial=partial,
            graded_on=ledger.graded_on(one.work) if one.work else None,
        )
        for one in sorted(chosen, key=lambda one: (one.student, one.lab))
    ]


def _write(
    outputs: Outputs,
    sheets: list[Sheet],
    remarks: list[Remark],
    alike: list[Likeness],
    course: dict,
    secret: bytes,
) -> None:
    versions = {lab.lab: lab.version for lab in course.values()}
    tables.write_text(outputs.grades, tables.grades_csv(sheets, secret))
    tables.write_text(outputs.totals, tables.totals_csv(sheets))
    tables.write_text(outputs.everything, tables.grades_json(sheets, versions=versions))
    tables.write_text(outputs.remarks, tables.remarks_csv(remarks))
    page = summary.summary(sheets, course, secret, remarks, alike, outputs.names.name)
    tables.write_text(outputs.summary, page)
    tables.write_text(outputs.names, names.names_page(sheets, secret, outputs.feedback.name))
    if boards := leaderboard.boards(sheets):
        tables.write_text(outputs.board, leaderboard.leaderboard_csv(boards, secret))


def _upload_maker(
    options: argparse.Namespace, labs: Sequence[str], course: dict[str, CourseLab]
) -> Callable[[list[Sheet]], Upload]:
    """What makes the files for the LMS; the LMS's own tables are read before an hour of grading."""
    if options.lms == "moodle":
        return partial(moodle.moodle_upload, moodle.read_worksheets(options.lms_table, labs))
    if options.lms == "canvas":
        titles = {lab: course[lab].title for lab in labs}
        return partial(canvas.canvas_upload, canvas.read_gradebook(options.lms_table, titles))
    return lambda sheets: Upload(tables={}, zips={})


def _require_gradebook() -> None:
    try:
        gradebook.require()
    except GradebookError as error:
        raise CannotStart(str(error)) from None


def _write_gradebook(file: Path, sheets: list[Sheet], course: dict) -> str:
    """Write the scores there; why it could not be done, or ""."""
    try:
        gradebook.write_scores(file, sheets, course)
    except GradebookError as error:
        return str(error)
    return ""


def _say_changes(changed: list[str], unmet: list[Override]) -> None:
    if changed:
        _say(f"Changed since the last run ({len(changed)}):")
        _say_some([f"  {line}" for line in changed])
    _say_some(
        [
            f"An override meets nothing: {one.student}, {one.lab}, {one.exercise or 'the lab'}."
            for one in unmet
        ]
    )


def _say_some(lines: Sequence[str]) -> None:
    """Print the first of the lines, and how many more there are."""
    _say(*lines[:_SHOWN])
    if lines[_SHOWN:]:
        _say(f"  and {len(lines) - _SHOWN} more")


def _say(*lines: str, to: TextIO | None = None) -> None:
    """Print; what a terminal cannot show is escaped, and one that has gone stops nothing."""
    out = to or sys.stdout
    encoding = getattr(out, "encoding", None) or "ascii"
    for line in lines:
        with contextlib.suppress(OSError, ValueError):  # such as a closed pipe
            print(line.encode(encoding, "backslashreplace").decode(encoding), file=out)
