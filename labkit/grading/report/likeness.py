"""Answers that are the published solution, and answers that several students share.

Both are told to the instructor and change no points: the solutions are public, and students may
work together. Each answer is looked up by a digest, so that a class takes time by its size.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from labkit.base.home import NOTEBOOKS
from labkit.grading.course_labs import CourseLab
from labkit.grading.intake.forms import Form
from labkit.grading.intake.notebooks_read import read_notebook
from labkit.grading.intake.remarks import Remark, one_line, quoted
from labkit.grading.intake.selecting import forms_of, select_cells
from labkit.grading.judge.batch import Submission

TELLING = 40
"""Nodes of a syntax tree, without what the notebook gives, from which on a likeness is told.

Short answers coincide by nature. Pairs of right answers to one exercise, taken from the solutions
and the corpora of tests/labs/corpus, differ in one statement only in 75 of 251 pairs where the
shorter answer has fewer than 20 nodes, in 9 of 132 from 20 on, in 1 of 184 from 30 on, and in none
of 970 from 40 on. Of the labs' 65 solutions 44 are that long.
"""

_NAMED = 20  # students in one sentence

Published = Mapping[str, Mapping[str, Form]]
"""The forms of the published solutions that are long enough to tell, by lab and exercise."""


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """Students of one lab whose answers to ``exercises`` are alike.

    ``renamed`` are those of the exercises in which their own names differ. ``published`` counts the
    lab's solutions that are long enough to compare where the answers are among these, else it is
    0. ``files``: the whole files are equal.
    """

    lab: str
    students: tuple[str, ...]
    exercises: tuple[str, ...]
    renamed: frozenset[str]
    published: int = 0
    files: bool = False

    def listed(self) -> str:
        """The exercises, with a word where names differ."""
        return ", ".join(
            f"{one} (names changed)" if one in self.renamed else one for one in self.exercises
        )


def likenesses(
    submissions: Sequence[Submission], course: Mapping[str, CourseLab]
) -> list[Likeness]:
    """Copies of the published solutions, then what students share."""
    known = published(course, {one.lab for one in submissions})
    return [*copies(submissions, known), *shared(submissions, known)]


def published(course: Mapping[str, CourseLab], labs: Collection[str]) -> Published:
    """The published solutions of these labs; none of one whose solved notebook is not here."""
    return {name: _solutions(course[name]) for name in sorted(labs) if name in course}


def _solutions(lab: CourseLab) -> dict[str, Form]:
    file = NOTEBOOKS / "solutions" / f"{lab.lab}.ipynb"
    if not file.is_file():  # some instructors take them out of their clone
        return {}
    forms = forms_of(select_cells(read_notebook(file.read_bytes()), lab).code, lab)
    return {exercise: form for exercise, form in forms.items() if form.written >= TELLING}


def copies(submissions: Iterable[Submission], known: Published) -> list[Likeness]:
    """Who handed in published solutions; students with the same ones stand together.

    The most exercises come first, then the most students.
    """
    found: dict[tuple, list[str]] = defaultdict(list)
    for one in submissions:
        solutions = known.get(one.lab, {})
        alike = {
            exercise: form.exact != solutions[exercise].exact
            for exercise, form in one.forms.items()
            if exercise in solutions and form.renamed == solutions[exercise].renamed
        }
        if alike:
            renamed = frozenset(exercise for exercise, other in alike.items() if other)
            found[one.lab, tuple(alike), renamed].append(one.student)
    return _sorted(
        Likeness(
            lab=lab,
            students=tuple(sorted(students)),
            exercises=exercises,
            renamed=renamed,
            published=len(known[lab]),
        )
        for (lab, exercises, renamed), students in found.items()
    )


def shared(submissions: Iterable[Submission], known: Published) -> list[Likeness]:
    """Which students have answers or whole files in common that are not the published ones.

    The answers that the same students share stand together. Whole files come first, then the most
    exercises, then the most students.
    """
    answers: dict[tuple, list[tuple[str, str]]] = defaultdict(list)
    files: dict[tuple, list[str]] = defaultdict(list)
    for one in submissions:
        if one.work and sum(form.written for form in one.forms.values()) >= TELLING:
            files[one.lab, one.work.digest].append(one.student)
        for exercise, form in one.forms.items():
            solution = known.get(one.lab, {}).get(exercise)
            if form.written >= TELLING and not (solution and solution.renamed == form.renamed):
                answers[one.lab, exercise, form.renamed].append((one.student, form.exact))
    together: dict[tuple, list[tuple[str, bool]]] = defaultdict(list)
    for (lab, exercise, _), of_it in answers.items():
        if len(of_it) > 1:
            students = tuple(sorted(student for student, _ in of_it))
            together[lab, students].append((exercise, len({exact for _, exact in of_it}) > 1))
    same = {(lab, tuple(sorted(who))) for (lab, _), who in files.items() if len(who) > 1}
    return _sorted(
        Likeness(
            lab=lab,
            students=students,
            exercises=tuple(exercise for exercise, _ in together.get((lab, students), ())),
            renamed=frozenset(e for e, other in together.get((lab, students), ()) if other),
            files=(lab, students) in same,
        )
        for lab, students in together.keys() | same
    )


def remarks(found: Iterable[Likeness]) -> Iterator[Remark]:
    """A remark for each student; those of a group are told the same sentence, which names them."""
    for one in found:
        for student in one.students:
            if one.published:
                are = "is" if len(one.exercises) == 1 else "are"
                said = (
                    f"{one.lab}: {len(one.exercises)} of the {one.published} answers that are"
                    f" long enough to compare {are} the published solution: {one.listed()}."
                )
                yield Remark(kind="copied", who=student, said=said)
            else:
                yield Remark(kind="identical", who=student, said=_of_group(one))


def _of_group(one: Likeness) -> str:
    more = f" and {len(one.students) - _NAMED} more" if one.students[_NAMED:] else ""
    names = ", ".join(quoted(one_line(student, 60)) for student in one.students[:_NAMED])
    what = f"the same answer to {one.listed()}" if one.exercises else ""
    whole = "the same file" if one.files else ""
    return f"{one.lab}: {names}{more} handed in {', and '.join(filter(None, [whole, what]))}."


def _sorted(found: Iterable[Likeness]) -> list[Likeness]:
    return sorted(
        found,
        key=lambda one: (
            not one.files,
            -len(one.exercises),
            -len(one.students),
            one.lab,
            one.students,
            one.exercises,
            sorted(one.renamed),
        ),
    )
