"""Grade what a class handed in: read each file, choose what counts, grade what is not known yet.

A file that the intake found becomes a ``Submission``, and what is run of it a ``Work``. Works that
the ledger does not know go to the runner, and the ledger keeps each outcome as it comes back.
"""

import queue
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from labkit.base import progress
from labkit.grading.course_labs import CourseLab
from labkit.grading.intake.deliveries import Handed
from labkit.grading.intake.forms import Form
from labkit.grading.intake.notebooks_read import Unreadable
from labkit.grading.intake.reader import understand_apart
from labkit.grading.intake.remarks import Remark, one_line, quoted
from labkit.grading.intake.roster import Student, counting_attempt, identify
from labkit.grading.judge.grade_ledger import GradeLedger
from labkit.grading.records import Outcome, Work, not_graded

Grade = Callable[[Work], list[Outcome]]
Stop = Callable[[], bool]
"""Whether somebody asked to stop."""

Engine = Callable[[list[Work], Stop], Iterator[tuple[Work, list[Outcome]]]]
"""Grades each work once, in any order, and never raises because of one; ends early on ``Stop``."""

_LOOK_SECONDS = 0.2  # how often a stop is looked for
_MOST_REPAIRS = 30  # sentences that a page shows; a notebook may have a repair in each cell


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One file that was handed in, read. ``work`` is None where it cannot be graded.

    ``cause`` and ``trouble`` then say why; ``code`` holds the learner's answer by exercise, and
    ``forms`` what is compared of it.
    ``repairs`` are for the student, ``remarks`` for the instructor.
    """

    student: str
    file: str
    lab: str = ""
    name: str = ""
    lms_id: str = ""
    at: datetime | None = None
    attempt: int = 0
    marked_late: bool = False
    late: bool = False
    work: Work | None = None
    code: Mapping[str, str] = field(default_factory=dict)
    forms: Mapping[str, Form] = field(default_factory=dict)
    repairs: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = ()
    cause: str = ""
    trouble: str = ""

    @property
    def is_readable(self) -> bool:
        return self.work is not None

    @property
    def has_answer(self) -> bool:
        """Whether it defines the name of an exercise, be it with an empty body."""
        return any(self.code.values())


def read_submission(
    handed: Handed, course: Mapping[str, CourseLab], lab: str | None
) -> Submission | None:
    """One file as a submission; None for a notebook of another lab than the one asked for."""
    hint = lab or (handed.assignment if handed.assignment in course else "")
    facts = {
        name: getattr(handed, name)
        for name in ("student", "file", "lms_id", "at", "attempt", "marked_late", "remarks")
    }
    if handed.content is None:
        return Submission(**facts, lab=hint, cause=handed.cause, trouble=handed.trouble)
    try:
        selected = understand_apart(handed.content, course, hint, only=lab)
    except Unreadable as error:
        return Submission(**facts, lab=hint, cause=error.cause, trouble=str(error))
    if selected is None:
        return None
    return Submission(
        **facts,
        lab=selected.work.lab,
        work=replace(selected.work, helpers=handed.helpers),
        code=selected.code,
        forms=selected.forms,
        repairs=_bounded(selected.repairs),
    )


def _bounded(repairs: tuple[str, ...]) -> tuple[str, ...]:
    shown = [one_line(said, 300) for said in repairs[:_MOST_REPAIRS]]
    more = len(repairs) - len(shown)
    return (*shown, *([f"There are {more} more sentences like these."] if more else []))


def counting_submissions(
    submissions: Iterable[Submission], roster: Mapping[str, Student]
) -> list[Submission]:
    """The submission that counts of each student and lab, with their names of the roster.

    What does not count is named among the repairs and remarks of what does. A file of no known lab
    stands for itself unless the student handed in one that can be read.
    """
    groups: dict[tuple[str, str], list[Submission]] = defaultdict(list)
    for one in _identified(list(submissions), roster):
        groups[one.student, one.lab].append(one)
    chosen = []
    for (student, _), attempts in sorted(groups.items(), key=lambda item: item[0]):
        due = roster[student].due if student in roster else None
        # A notebook that only lay in the folder does not take the place of an answer.
        best, late = counting_attempt([one for one in attempts if one.has_answer] or attempts, due)
        others = sorted((one for one in attempts if one is not best), key=lambda one: one.file)
        chosen.append(replace(_with_others(best, others), late=late))
    return _without_strays(chosen)


def _with_others(best: Submission, others: list[Submission]) -> Submission:
    """The attempt that counts, with what is to be said of it and of the others."""
    remarks = [Remark(kind="repaired", who=best.student, said=said) for said in best.repairs]
    passed_by = [quoted(one.file) for one in others if one.is_readable or _is_older(one, best)]
    if passed_by:
        more = f" and {len(passed_by) - 3} more" if passed_by[3:] else ""
        remarks.append(
            Remark(
                kind="merged",
                who=best.student,
                said=f"{quoted(best.file)} counts; of the same lab and not counted:"
                f" {', '.join(passed_by[:3])}{more}.",
            )
        )
    # It might have counted: nothing says that it is an older one.
    remarks += [
        Remark(
            kind="dropped",
            who=best.student,
            said=f"{quoted(one.file)} could not be read: {one.trouble}",
        )
        for one in others
        if not one.is_readable and not _is_older(one, best)
    ]
    said = [f"{quoted(one.file)} is another attempt and does not count." for one in others]
    of_others = [remark for one in others for remark in one.remarks]
    return replace(
        best,
        repairs=(*best.repairs, *_bounded(tuple(said))),
        remarks=tuple(dict.fromkeys([*best.remarks, *of_others, *remarks])),
    )


def _is_older(one: Submission, best: Submission) -> bool:
    return one.at is not None and best.at is not None and one.at < best.at


def _identified(submissions: list[Submission], roster: Mapping[str, Student]) -> list[Submission]:
    people = identify({(one.student, one.lms_id) for one in submissions}, roster)
    identified = []
    for one in submissions:
        person = people[one.student, one.lms_id]
        remarks = [
            replace(remark, who=person.id) if remark.who == one.student else remark
            for remark in one.remarks
        ]
        if person.kind:
            remarks.append(Remark(kind=person.kind, who=person.id, said=person.said))
        one = replace(one, student=person.id, remarks=tuple(remarks))
        if person.listed:
            number = person.listed.lms_id or one.lms_id
            one = replace(one, name=person.listed.name, lms_id=number)
        identified.append(one)
    return identified


def _without_strays(chosen: list[Submission]) -> list[Submission]:
    """Without files of no lab by students who handed in a lab; these say so instead."""
    readable = {one.student: one for one in chosen if one.is_readable}
    strays: dict[str, list[Submission]] = defaultdict(list)
    kept = []
    for one in chosen:
        if not one.lab and one.student in readable:
            strays[one.student].append(one)
        else:
            kept.append(one)
    return [
        _with_strays(one, strays[one.student]) if readable.get(one.student) is one else one
        for one in kept
    ]


def _with_strays(one: Submission, strays: list[Submission]) -> Submission:
    said = tuple(f"{quoted(stray.file)} was left out: {stray.trouble}" for stray in strays)
    remarks = [remark for stray in strays for remark in stray.remarks]
    remarks += [Remark(kind="dropped", who=one.student, said=each) for each in said]
    return replace(
        one,
        repairs=(*one.repairs, *_bounded(said)),
        remarks=tuple(dict.fromkeys([*one.remarks, *remarks])),
    )


def missing_submissions(
    chosen: Iterable[Submission], roster: Mapping[str, Student], labs: Iterable[str]
) -> list[Submission]:
    """An empty submission for each student of the roster and lab without one.

    Whoever handed in a file of no known lab is not missing: it may be the lab that lacks.
    """
    there = {(one.student, one.lab) for one in chosen}
    return [
        Submission(
            student=student.id,
            name=student.name,
            lms_id=student.lms_id,
            lab=lab,
            file="",
            cause="missing",
            trouble="Nothing was handed in.",
        )
        for student in roster.values()
        for lab in labs
        if not {(student.id, lab), (student.id, "")} & there
    ]


def to_do(works: Iterable[Work], ledger: GradeLedger, only: frozenset[str]) -> list[Work]:
    """What is left to grade: each digest and lab once, and of it what the ledger does not hold.

    With ``only``, these exercises are graded again and no other is.
    """
    left = []
    for work in {(work.identity, work.lab): work for work in works}.values():
        known = ledger.known(work)
        exercises = tuple(
            one
            for one in work.exercises
            if (one.exercise in only if only else one.exercise not in known)
        )
        if exercises:
            left.append(replace(work, exercises=exercises))
    return left


def grade(left: list[Work], engine: Engine, ledger: GradeLedger, stop: Stop) -> int:
    """Grade what is left, with a progress bar; returns how many were graded and kept.

    Each result is in the ledger before the next is waited for.
    """
    count = 0
    for work, outcomes in with_bar(engine(left, stop), len(left)):
        ledger.keep(work, by_exercise(work, outcomes))
        count += 1
    return count


def by_exercise(work: Work, outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes of each exercise that was asked for: its check's first, then hidden ones."""
    found = {one.exercise: [] for one in work.exercises}
    for outcome in outcomes:
        if outcome.exercise in found:
            found[outcome.exercise].append(outcome)
    for exercise, of_it in found.items():
        of_it.sort(key=lambda one: one.hidden)
        if not of_it or of_it[0].hidden:
            of_it.insert(0, not_graded(exercise, "The grader gave no verdict."))
    return found


def safely(grade_one: Grade, work: Work) -> list[Outcome]:
    """``grade_one(work)``; what it raises becomes outcomes, so that the batch goes on."""
    try:
        return grade_one(work)
    except Exception as error:
        said = f"The grader failed: {type(error).__name__}: {error}"
        return [not_graded(one.exercise, said) for one in work.exercises]


def with_bar(results: Iterable, total: int) -> Iterable:
    """The results with a progress bar, unless nobody watches or LABKIT_PROGRESS=off."""
    if progress.is_off() or not sys.stderr.isatty():
        return results
    from tqdm import tqdm

    return tqdm(results, total=total, unit=" submissions", desc="grading", smoothing=0.05)


def as_they_end(futures: Iterable, stop: Stop) -> Iterator:
    """Futures in the order in which they end; once ``stop()``, those that have ended by then."""
    ended: queue.SimpleQueue = queue.SimpleQueue()
    for future in futures:
        future.add_done_callback(ended.put)
    left = len(futures)
    while left:
        try:
            future = ended.get(timeout=0 if stop() else _LOOK_SECONDS)
        except queue.Empty:
            if stop():
                return
            continue
        left -= 1
        yield future


def on_this_machine(grade_one: Grade, jobs: int) -> Engine:
    """An engine of ``jobs`` threads; ``grade_one`` keeps students' code in processes of its own."""

    def engine(works: list[Work], stop: Stop) -> Iterator[tuple[Work, list[Outcome]]]:
        pool = ThreadPoolExecutor(jobs)
        try:
            futures = {pool.submit(partial(safely, grade_one, work)): work for work in works}
            for future in as_they_end(futures, stop):
                yield futures[future], future.result()
        finally:  # nothing more begins; what runs is stopped by the grader's end
            pool.shutdown(wait=False, cancel_futures=True)

    return engine
