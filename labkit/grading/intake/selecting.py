"""From a notebook to what is run of it: which lab, which cells, and what had to be repaired.

Exercises are found by the names that their checks ask for, never by cell id, tag or file name. Each
step goes through the cells a fixed number of times, so that many cells take no longer than as much
text in few.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from labkit.grading.course_labs import CourseLab, normal_text
from labkit.grading.intake.forms import Form, form_of
from labkit.grading.intake.naming import Names, names_of, names_of_all, without_calls
from labkit.grading.intake.notebooks_read import Cell, Notebook, Unreadable, read_notebook
from labkit.grading.records import Work
from labkit.grading.sandbox.cells import RUN_BELOW, WRITE_BELOW

_HIDDEN_TESTS = ("### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS")
_SHOWN = 60  # characters of a student's line in a sentence


@dataclass(frozen=True, kw_only=True)
class Selected:
    """What is graded of a notebook. ``code`` holds, by exercise, the cells that answer it.

    ``forms`` are the forms of those that have one, for comparisons.
    """

    work: Work
    code: dict[str, str]
    forms: dict[str, Form]
    repairs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Code:
    """A cell that is read as code: its names, and its text as ``normal_text`` makes it.

    ``run`` is its source without calls of the lab's checks, and ``only_checks`` says that this is
    nothing.
    """

    cell: Cell
    names: Names
    text: str
    run: str
    only_checks: bool

    @classmethod
    def of(cls, cell: Cell, lab: CourseLab, names: Names | None = None) -> "_Code":
        names = names or names_of(cell.source)
        calls = [call for call in names.calls if call.called & lab.check_names]
        return cls(
            cell=cell,
            names=names,
            text=normal_text(cell.source),
            run=without_calls(cell.source, calls) if calls else cell.source,
            only_checks=names.only_calls and len(calls) == len(names.calls),
        )


def understand(
    content: bytes, course: Mapping[str, CourseLab], hint: str = "", only: str | None = None
) -> Selected | None:
    """What is run of a file; None where it is of another lab than ``only``. Raises Unreadable."""
    notebook = read_notebook(content)
    lab, said = which_lab(notebook, course, hint)
    if only and lab.lab != only:
        return None
    selected = select_cells(notebook, lab)
    return replace(selected, repairs=(*said, *selected.repairs))


def which_lab(
    notebook: Notebook, course: Mapping[str, CourseLab], hint: str = ""
) -> tuple[CourseLab, tuple[str, ...]]:
    """The lab of a notebook: as its metadata says, else by the names it defines, else ``hint``.

    Returns the lab and what there is to say about it. Raises Unreadable where no lab fits.
    """
    bound = _bound(notebook)
    found = {lab.lab: len(lab.names & bound) for lab in course.values()}
    best = max(found, key=found.get, default="")
    claimed = notebook.lab
    if claimed in course and (found[claimed] or not found[best]):
        return course[claimed], _of_version(notebook, course[claimed])
    if best and found[best]:
        claim = f"says it is of {claimed!r}" if claimed else "does not say of which lab it is"
        return course[best], (f"The notebook {claim}; its exercises are those of {best}.",)
    if hint in course and _is_python(notebook):
        return course[hint], (f"The notebook defines no exercise; it was handed in for {hint}.",)
    if not _is_python(notebook):
        raise Unreadable(
            "language", f"The notebook is in {notebook.language!r}; the labs are in Python."
        )
    raise Unreadable(
        "unknown lab",
        "The notebook defines no exercise of any lab, and does not say of which lab it is.",
    )


def select_cells(notebook: Notebook, lab: CourseLab) -> Selected:
    """What is run of a notebook of this lab; raises Unreadable for another language than Python."""
    if not _is_python(notebook) and not lab.names & _bound(notebook):
        raise Unreadable(
            "language", f"The notebook is in {notebook.language!r}; the labs are in Python."
        )
    repairs = list(notebook.repairs)
    if not _is_python(notebook):
        repairs.append(f"The notebook says it is in {notebook.language!r}; it was read as Python.")
    code = _read_as_code(notebook.cells, lab, repairs)
    code = [kept for one in code if (kept := _without_check(one, lab, repairs))]
    code = [one for one in code if not _is_guess(one, lab)]
    code = _without_open_twins(code, lab, repairs)
    code = _without_demonstrations(code, lab)
    code = _with_setup(code, lab, repairs)
    _say_twice_defined(code, lab, repairs)
    repairs += _magics(code)
    answers = _answers(code, lab)
    return Selected(
        work=Work(
            lab=lab.lab,
            digest=notebook.digest,
            cells=tuple(one.run for one in code),
            exercises=lab.exercises,
            python=notebook.python,
        ),
        code=answers,
        forms=forms_of(answers, lab),
        repairs=tuple(repairs),
    )


def forms_of(answers: Mapping[str, str], lab: CourseLab) -> dict[str, Form]:
    """The forms of answers to this lab, by exercise; an answer that has none is left out."""
    forms = {
        one.exercise: form_of(answers[one.exercise], one.names, lab.given)
        for one in lab.exercises
        if answers.get(one.exercise)
    }
    return {exercise: form for exercise, form in forms.items() if form}


def _is_python(notebook: Notebook) -> bool:
    return notebook.language in ("", "python", "python3", "ipython")


def _bound(notebook: Notebook) -> set[str]:
    sources = [cell.source for cell in notebook.cells if cell.kind == "code"]
    return {name for names in names_of_all(sources) for name in names.bound}


def _of_version(notebook: Notebook, lab: CourseLab) -> tuple[str, ...]:
    if notebook.version == lab.version:
        return ()
    version = f"version {notebook.version[:12]}" if notebook.version else "an unknown version"
    return (
        f"The notebook was made from {version} of {lab.lab}; it was graded by the names of its"
        f" exercises against version {lab.version}.",
    )


def _read_as_code(cells: tuple[Cell, ...], lab: CourseLab, repairs: list[str]) -> list[_Code]:
    """The code cells, and those of text that hold an answer which no code cell does."""
    code = [place for place, cell in enumerate(cells) if cell.kind == "code"]
    found = dict(zip(code, names_of_all(cells[place].source for place in code), strict=True))
    missing = lab.names - {name for names in found.values() for name in names.bound}
    # Of text only what mentions an answer that is missing is parsed.
    text = [
        place
        for place, cell in enumerate(cells)
        if place not in found and any(name in cell.source for name in missing)
    ]
    of_text = names_of_all(cells[place].source for place in text)
    for place, names in zip(text, of_text, strict=True):
        if names.is_python and names.bound & missing:
            answer = ", ".join(f"`{name}`" for name in sorted(names.bound & missing))
            repairs.append(f"{answer} stood in a cell of text; it was read as code.")
            found[place] = names
    return [
        _Code.of(cell, lab, found[place])
        for place, cell in enumerate(cells)
        if place in found and cell.source.strip()
    ]


def _without_check(one: _Code, lab: CourseLab, repairs: list[str]) -> _Code | None:
    """None for a cell that only calls a check; else the cell, and a sentence where it was one."""
    if one.names.bound & lab.names:
        return one
    if one.names.calls and one.only_checks:
        return None
    if not one.cell.is_check:
        return one
    kept, source = one, _without_hidden_tests(one.cell.source)
    if source != one.cell.source:
        kept = _Code.of(replace(one.cell, source=source), lab)
    if one.cell.given or kept.only_checks:
        return None
    if kept.names.is_python:
        repairs.append(
            f"`{_first_line(kept.run)}` was added to the cell of a check: what was added was run,"
            " the check was not."
        )
    return kept


def _first_line(source: str) -> str:
    """The first line that is neither a comment nor the place of a check."""
    lines = (line.strip().replace("pass; ", "") for line in source.splitlines())
    return next(
        (line[:_SHOWN] for line in lines if line not in ("", "pass") and line[0] != "#"), ""
    )


def _without_hidden_tests(source: str) -> str:
    """Without what nbgrader adds to a check when it grades it itself."""
    kept, hidden = [], False
    begin, end = _HIDDEN_TESTS
    for line in source.splitlines(keepends=True):
        hidden = hidden or begin in line
        if not hidden:
            kept.append(line)
        hidden = hidden and end not in line
    return "".join(kept)


def _is_guess(one: _Code, lab: CourseLab) -> bool:
    # A guess that is misspelt would raise, and no answer reads it.
    bound = one.names.bound
    if not one.cell.is_predict or bound & lab.names:
        return False
    return not bound or (len(bound) == 1 and one.text.startswith("@predict("))


def _without_open_twins(code: list[_Code], lab: CourseLab, repairs: list[str]) -> list[_Code]:
    """Without the untouched stub of an exercise that another cell answers."""
    texts: dict[str, set[str]] = defaultdict(set)
    for one in code:
        for name in one.names.bound & lab.names:
            texts[name].add(one.text)
    kept = []
    for one in code:
        bound = one.names.bound & lab.names
        is_stub = one.text in lab.stubs or (one.cell.given and bound)
        if is_stub and bound and all(len(texts[name]) > 1 for name in bound):
            names = ", ".join(f"`{name}`" for name in sorted(bound))
            repairs.append(f"{names} was answered in another cell; the open one was left out.")
        else:
            kept.append(one)
    return kept


def _without_demonstrations(code: list[_Code], lab: CourseLab) -> list[_Code]:
    """Without unchanged cells of the lab that no cell to be run takes a name from."""

    def is_run(one: _Code) -> bool:
        is_given = one.cell.given or one.text in lab.given
        return not is_given or bool(one.names.bound & lab.names) or one.text == lab.setup

    run = {place for place, one in enumerate(code) if is_run(one)}
    binds: dict[str, list[int]] = defaultdict(list)
    for place, one in enumerate(code):
        if place not in run:
            for name in one.names.bound:
                binds[name].append(place)
    needed = [name for place in run for name in code[place].names.needed]
    for name in needed:  # grows by what the cells need that it brings in
        for place in binds.pop(name, ()):
            if place not in run:
                run.add(place)
                needed.extend(code[place].names.needed)
    return [code[place] for place in sorted(run)]


def _with_setup(code: list[_Code], lab: CourseLab, repairs: list[str]) -> list[_Code]:
    """With the lab's own setup cell in front where the notebook's is gone, changed or elsewhere.

    So are the imports of a later sitting where nothing in the notebook makes what they make.
    """
    bound = {name for one in code for name in one.names.bound}
    needed = {name for one in code for name in one.names.needed}
    front = [] if code and code[0].text == lab.setup else [lab.setup]
    missing = needed - bound - {name for text in front for name in names_of(text).bound}
    front += [text for text in lab.imports if names_of(text).bound & missing]
    added = [_Code.of(Cell(source=text, kind="code"), lab) for text in front]
    if any(not one.names.bound <= bound for one in added):
        repairs.append(
            "A setup cell of the lab was missing or changed; the grader ran its own first."
        )
    return [*added, *code]


def _say_twice_defined(code: list[_Code], lab: CourseLab, repairs: list[str]) -> None:
    counts = Counter(name for one in code for name in one.names.bound & lab.names)
    for exercise in lab.exercises:
        for name in exercise.names:
            if counts[name] > 1:
                repairs.append(
                    f"`{name}` is defined in {counts[name]} cells; the last one counts, as in a"
                    " kernel."
                )


def _magics(code: list[_Code]) -> Iterator[str]:
    """What became of magics and shell lines, a sentence each."""
    for magic in dict.fromkeys(one.names.magic for one in code):
        word = magic.partition(" ")[0]
        if word in RUN_BELOW:
            yield f"`{magic}` was left out; the cell below it was run."
        elif word and word not in WRITE_BELOW:
            yield f"The cell under `{magic}` was not run: the grader runs Python only."
    for line in dict.fromkeys(one.names.line for one in code):
        if line:
            yield (
                f"`{line}` is a magic or shell line: such lines were left out, and the rest of the"
                " cell was run."
            )


def _answers(code: list[_Code], lab: CourseLab) -> dict[str, str]:
    """The code that counts for each exercise: for each of its names the last cell that binds it."""
    last = {name: place for place, one in enumerate(code) for name in one.names.bound & lab.names}
    return {
        exercise.exercise: "\n\n".join(
            code[place].cell.source
            for place in sorted({last[name] for name in exercise.names if name in last})
        )
        for exercise in lab.exercises
    }
