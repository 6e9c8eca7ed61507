"""From a notebook to what is run of it: which lab, which cells, and what had to be repaired.

Exercises are found by the names that their checks ask for, never by cell id, tag or file name.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from labkit.grading.course import CourseLab, normal
from labkit.grading.intake.naming import names_of
from labkit.grading.intake.reading import Cell, Notebook, Unreadable
from labkit.grading.records import Work

_GUESS = {"guess", "sure"}
"""What a predict cell of an older copy binds."""


@dataclass(frozen=True, kw_only=True)
class Selected:
    """What is graded of a notebook. ``code`` holds, by exercise, the cells that answer it."""

    work: Work
    code: dict[str, str]
    repairs: tuple[str, ...]


def which_lab(
    notebook: Notebook, course: Mapping[str, CourseLab], hint: str = ""
) -> tuple[CourseLab, tuple[str, ...]]:
    """The lab of a notebook: as its metadata says, else by the names it defines, else ``hint``.

    Returns the lab and what there is to say about it. Raises Unreadable where no lab fits.
    """
    found = {lab.lab: len(lab.names & _bound(notebook)) for lab in course.values()}
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


def select(notebook: Notebook, lab: CourseLab) -> Selected:
    """What is run of a notebook of this lab; raises Unreadable for another language than Python."""
    if not _is_python(notebook) and not lab.names & _bound(notebook):
        raise Unreadable(
            "language", f"The notebook is in {notebook.language!r}; the labs are in Python."
        )
    repairs = list(notebook.repairs)
    if not _is_python(notebook):
        repairs.append(f"The notebook says it is in {notebook.language!r}; it was read as Python.")
    code = _code_cells(notebook.cells, lab, repairs)
    code = [cell for cell in code if not _is_check(cell, lab) and not _is_guess(cell, lab)]
    code = _without_open_twins(code, lab, repairs)
    kept = _without_demonstrations(code, lab)
    _say_twice_defined(kept, lab, repairs)
    repairs += _magics(kept)
    return Selected(
        work=Work(
            lab=lab.lab,
            digest=notebook.digest,
            cells=tuple(cell.source for cell in kept),
            exercises=lab.exercises,
        ),
        code={e.exercise: _answer(e.names, kept) for e in lab.exercises},
        repairs=tuple(repairs),
    )


def _is_python(notebook: Notebook) -> bool:
    return notebook.language in ("", "python", "python3", "ipython")


def _bound(notebook: Notebook) -> set[str]:
    sources = [cell.source for cell in notebook.cells if cell.kind == "code"]
    return {name for source in sources for name in names_of(source).bound}


def _of_version(notebook: Notebook, lab: CourseLab) -> tuple[str, ...]:
    if notebook.version == lab.version:
        return ()
    version = f"version {notebook.version[:12]}" if notebook.version else "an unknown version"
    return (
        f"The notebook was made from {version} of {lab.lab}; it was graded by the names of its"
        f" exercises against version {lab.version}.",
    )


def _code_cells(cells: tuple[Cell, ...], lab: CourseLab, repairs: list[str]) -> list[Cell]:
    """The code cells, and those of text that hold an answer which no code cell does."""
    missing = set(lab.names)
    for cell in cells:
        if cell.kind == "code":
            missing -= names_of(cell.source).bound
    code = []
    for cell in cells:
        if cell.kind == "code":
            code.append(cell)
            continue
        names = names_of(cell.source) if missing else None
        if names and names.is_python and names.bound & missing:
            answer = ", ".join(f"`{name}`" for name in sorted(names.bound & missing))
            repairs.append(f"{answer} stood in a cell of text; it was read as code.")
            code.append(cell)
    return [cell for cell in code if cell.source.strip()]


def _is_check(cell: Cell, lab: CourseLab) -> bool:
    names = names_of(cell.source)
    if names.bound & lab.names:
        return False
    if cell.is_check or normal(cell.source) in lab.checks:
        return True
    statements = names.tree.body if names.tree else []
    return bool(statements) and all(_calls_a_check(statement) for statement in statements)


def _calls_a_check(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Name)
        and statement.value.func.id.startswith("check_")
    )


def _is_guess(cell: Cell, lab: CourseLab) -> bool:
    # A guess that is misspelt would raise, and no answer reads it.
    names = names_of(cell.source)
    if not cell.is_predict or names.bound & lab.names:
        return False
    statements = names.tree.body if names.tree else [None]
    return names.bound <= _GUESS or all(_asks_or_guesses(statement) for statement in statements)


def _asks_or_guesses(statement: ast.stmt | None) -> bool:
    """Whether it is a function below ``@predict(...)``, or a call ``step.guess(...)``."""
    match statement:
        case ast.FunctionDef(decorator_list=[ast.Call(func=ast.Name(id="predict"))]):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="guess"))):
            return True
    return False


def _without_open_twins(code: list[Cell], lab: CourseLab, repairs: list[str]) -> list[Cell]:
    """Without the untouched stub of an exercise that another cell answers."""
    kept = []
    for cell in code:
        bound = names_of(cell.source).bound & lab.names
        is_stub = normal(cell.source) in lab.stubs or (cell.given and bound)
        others = [c for c in code if c is not cell and normal(c.source) != normal(cell.source)]
        answered = {name for other in others for name in names_of(other.source).bound}
        if is_stub and bound and bound <= answered:
            names = ", ".join(f"`{name}`" for name in sorted(bound))
            repairs.append(f"{names} was answered in another cell; the open one was left out.")
        else:
            kept.append(cell)
    return kept


def _without_demonstrations(code: list[Cell], lab: CourseLab) -> list[Cell]:
    """Without unchanged cells of the lab that no cell to be run takes a name from."""

    def is_given(cell: Cell) -> bool:
        if names_of(cell.source).bound & lab.names:
            return False
        return cell.given or normal(cell.source) in lab.given

    run = [not is_given(cell) or normal(cell.source) == lab.setup for cell in code]
    needed = {n for cell, kept in zip(code, run, strict=True) if kept for n in _needs(cell)}
    grown = True
    while grown:
        grown = False
        for place, cell in enumerate(code):
            if not run[place] and names_of(cell.source).bound & needed:
                run[place] = grown = True
                needed |= _needs(cell)
    return [cell for cell, kept in zip(code, run, strict=True) if kept]


def _needs(cell: Cell) -> frozenset[str]:
    return names_of(cell.source).needed


def _say_twice_defined(kept: list[Cell], lab: CourseLab, repairs: list[str]) -> None:
    for exercise in lab.exercises:
        for name in exercise.names:
            count = sum(name in names_of(cell.source).bound for cell in kept)
            if count > 1:
                repairs.append(
                    f"`{name}` is defined in {count} cells; the last one counts, as in a kernel."
                )


def _magics(kept: list[Cell]) -> list[str]:
    magics = [names_of(cell.source).magic for cell in kept]
    return [
        f"`{magic}` is a magic or shell line: the grader does not run it."
        for magic in dict.fromkeys(magics)
        if magic
    ]


def _answer(names: tuple[str, ...], kept: list[Cell]) -> str:
    """The code that counts for an exercise: for each of its names the last cell that binds it."""
    places = {
        max(p for p, cell in enumerate(kept) if name in names_of(cell.source).bound)
        for name in names
        if any(name in names_of(cell.source).bound for cell in kept)
    }
    return "\n\n".join(kept[place].source for place in sorted(places))
