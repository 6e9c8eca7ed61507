"""``labkit grade --self-test``: on this machine, does each answer earn what it should?

Solutions must earn every point, unsolved notebooks none, and each wrong answer that ships beside a
check none, all through the sandbox that students' code will meet.
"""

import base64
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from labkit.base.home import NOTEBOOKS
from labkit.grading.course_labs import CourseLab, missing_libraries, read_course
from labkit.grading.intake.notebooks_read import read_notebook
from labkit.grading.intake.selecting import select_cells
from labkit.grading.judge import batch
from labkit.grading.records import Outcome, Settings, Work

SOLVED, UNSOLVED, WRONG = "solution", "unsolved notebook", "known wrong answer"
_WANTED = {SOLVED: {"passed"}, UNSOLVED: {"not attempted"}, WRONG: {"failed", "error"}}


@dataclass(frozen=True, kw_only=True)
class KnownWork:
    """One work and what it is: ``kind`` is SOLVED, UNSOLVED or WRONG."""

    kind: str
    name: str
    work: Work


def self_test(settings: Settings, make_grader: Callable, lab: str | None = None) -> int:
    """Grade every case and say what came out; 0 where each earned what it should, else 1.

    ``lab`` limits it to one lab.
    """
    course = read_course()
    labs = [course[lab]] if lab else list(course.values())
    for missing in filter(None, (missing_libraries(each.lab) for each in labs)):
        print(f"Left out: {missing}")
    labs = [each for each in labs if not missing_libraries(each.lab)]
    print("Preparing the cases.")
    cases = {(case.work.digest, case.work.lab): case for each in labs for case in _cases(each)}
    works = [case.work for case in cases.values()]
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    wrong = []
    with make_grader(settings) as grader:
        engine = batch.on_this_machine(grader.grade, settings.jobs)
        for work, outcomes in batch.with_bar(engine(works, lambda: False), len(works)):
            case = cases[work.digest, work.lab]
            said = _surprises(case, batch.by_exercise(work, outcomes))
            counts[work.lab, case.kind][bool(said)] += 1
            wrong += said
    for (name, kind), (right, surprising) in sorted(counts.items()):
        print(f"  {name:32} {kind:20} {right} as expected, {surprising} not")
    for line in sorted(wrong):
        print(line)
    print("The grader does not grade as it should here." if wrong else "The grader is in order.")
    return 1 if wrong else 0


def _cases(lab: CourseLab) -> Iterator[KnownWork]:
    for kind, path in (
        (SOLVED, NOTEBOOKS / "solutions" / f"{lab.lab}.ipynb"),
        (UNSOLVED, NOTEBOOKS / f"{lab.lab}.ipynb"),
    ):
        yield KnownWork(kind=kind, name=path.name, work=_work(path, lab))
    yield from _wrong_answers(lab)


def _work(path: Path, lab: CourseLab) -> Work:
    return select_cells(read_notebook(path.read_bytes()), lab).work


def _wrong_answers(lab: CourseLab) -> Iterator[KnownWork]:
    """Each known wrong answer as a submission of its own: a cell that unpacks it."""
    import cloudpickle

    from labkit.grading.judge.shipping import check_modules, checks_in
    from labkit.labs.engine.slips import solutions_of

    modules = [*check_modules(), solutions_of(lab.lab)]
    exercises = {one.exercise: one for one in lab.exercises}
    for module in modules:
        # Their module is not in the sandbox, so all they use goes with them.
        cloudpickle.register_pickle_by_value(module)
    try:
        for check in (one for module in modules for one in checks_in(module)):
            if check.lab != lab.lab or check.exercise not in exercises:
                continue
            names = ", ".join(exercises[check.exercise].names)
            for number, known in enumerate(check.known_wrong, start=1):
                packed = base64.b64encode(cloudpickle.dumps(known.answer)).decode()
                cell = (
                    f"import base64, pickle\n{names} = pickle.loads(base64.b64decode({packed!r}))"
                )
                work = Work(
                    lab=lab.lab,
                    digest=hashlib.sha256(f"{check.exercise} {number} {cell}".encode()).hexdigest(),
                    cells=(lab.setup, cell),
                    exercises=(exercises[check.exercise],),
                )
                label = f"{check.exercise} {number}, {known.misconception}"
                yield KnownWork(kind=WRONG, name=label, work=work)
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _surprises(case: KnownWork, outcomes: dict[str, list[Outcome]]) -> list[str]:
    return [
        f"{case.work.lab}, {case.kind} {case.name}: {exercise} is {outcome.status}"
        f" ({outcome.message})"
        for exercise, (outcome, *_) in outcomes.items()
        if outcome.status not in _WANTED[case.kind]
    ]
