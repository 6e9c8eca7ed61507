"""A lab's source: what its author wrote, checked, and turned into two notebooks.

``notebooks/source/NN_topic.py`` is a jupytext py:percent file whose cells carry options:

- ``exercise="slug"``: the learner's cell. ``### BEGIN SOLUTION`` and ``### END SOLUTION`` enclose
  what the learner has to write.
- ``check="slug" points=2 [seconds=10]``: the cell that judges it, later in the file.
- ``predict="slug"``: a cell that asks for a guess: one function below ``@predict(guesses.NAME)``,
  where NAME is the slug. The Markdown cell below it is the explanation, which stands behind the
  guess and in neither notebook.
- ``tags=[...]``: passed on as they are.

``read_lab`` gives a ``Lab`` or raises ``LabError``, which lists every mistake of the file at once.
``Lab.learner`` and ``Lab.solution`` are the two notebooks, not executed. What is derived here:

- cell ids are ``lab-<hash of the learner's text>-<occurrence>``, so a rebuild is byte-identical,
  and ``labkit.course.my_labs`` sees from a cell alone whether a learner changed it;
- ``metadata.labkit`` of a notebook holds its ``lab`` and ``version`` (12 hex digits of the SHA-256
  of the source's text), of a predict cell its ``predict`` slug;
- the lab's minutes (``labkit.course.minutes``), which the first cell of a notebook tells;
- the terms of each sitting (``labkit.course.terms``), a closed block under its title.
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
import symtable
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.course.cell_ids import cell_id, digest
from labkit.course.minutes import Minutes, by_heading, is_optional, lab_minutes
from labkit.course.terms import add_blocks, terms_beside

COMMENT = "# your code here"
STUB = 'raise NotImplementedError("your code here")'
SECONDS = 10  # what a check may take unless its author says otherwise

_LAB = re.compile(r"\d\d_[a-z0-9]+(_[a-z0-9]+)*")
_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_TITLE = re.compile(r"\A# (\d+)\. (\S.*)$", re.MULTILINE)
_FACTS = re.compile(r"^\*([^·*\n]+) · needs: [^*]+\*", re.MULTILINE)
_OUTCOME = re.compile(
    r"^After this lab you can(?::\s+- | )(?P<first>.+?)(?:[.;]\s|[.;]?\Z)", re.MULTILINE | re.DOTALL
)
_KINDS = ("exercise", "check", "predict")
# jupytext adds lines_to_next_cell; a title is the words after `# %%`.
_OPTIONS = {*_KINDS, "points", "seconds", "tags", "title", "lines_to_next_cell"}
_GIVEN = {*dir(builtins), "display", "get_ipython"}
_KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
    },
}


class LabError(ValueError):
    """What an author must mend, a line for each mistake."""


@dataclass(frozen=True)
class Exercise:
    """An exercise: the names its check asks for, in order, and what the check grants."""

    exercise: str
    names: tuple[str, ...]
    points: int
    seconds: int | float


@dataclass(frozen=True)
class Lab:
    """A lab read from its source; ``learner`` and ``solution`` are notebooks without outputs.

    ``explanations`` holds, by the slug of each prediction, the Markdown that stands behind it.
    ``outcome`` is the first thing that the first cell promises after "After this lab you can", or
    "" where it promises none: "read any code of any float format as a number". ``sections`` gives
    the headings as the manifest holds them.
    """

    lab: str
    title: str
    outcome: str
    minutes: Minutes
    hardware: str
    version: str
    exercises: tuple[Exercise, ...]
    explanations: dict[str, str]
    sections: list[dict[str, Any]]
    learner: Any
    solution: Any


def tree(code: str) -> ast.Module:
    """The syntax tree of a cell, IPython's magics included; raises SyntaxError."""
    return ast.parse(_plain(code))


def names_assigned(code: str) -> set[str]:
    """The global names that running a cell binds: assignments, definitions and imports."""
    module, *inner = _scopes(code)
    outer = {s.get_name() for s in module.get_symbols() if s.is_assigned() or s.is_imported()}
    symbols = [s for scope in inner for s in scope.get_symbols()]
    return outer | {s.get_name() for s in symbols if s.is_declared_global() and s.is_assigned()}


def names_loaded(code: str) -> list[str]:
    """The global names that a cell reads, in functions too, in the order of its text."""
    module, *inner = _scopes(code)
    read = {s.get_name() for s in module.get_symbols() if s.is_referenced()}
    symbols = [s for scope in inner for s in scope.get_symbols()]
    read |= {s.get_name() for s in symbols if s.is_referenced() and s.is_global()}
    names = [node for node in ast.walk(tree(code)) if isinstance(node, ast.Name)]
    names.sort(key=lambda node: (node.lineno, node.col_offset))
    return list(dict.fromkeys(node.id for node in names if node.id in read))


def without_bare_stub(code: str) -> str:
    """An open exercise without the stubs that stand outside functions.

    There `name = ...` already marks an open exercise, and a raise would stop the whole cell.
    """
    return "\n".join(line for line in code.split("\n") if line != STUB)


def _plain(code: str) -> str:
    from IPython.core.inputtransformer2 import TransformerManager

    return TransformerManager().transform_cell(code)


def _scopes(code: str) -> list[symtable.SymbolTable]:
    """The scope of the cell and, after it, those of everything inside."""
    scopes = [symtable.symtable(_plain(code), "cell", "exec")]
    for scope in scopes:
        scopes.extend(scope.get_children())
    return scopes


def read_lab(path: Path) -> Lab:
    """The lab written in ``path`` (``.../notebooks/source/NN_topic.py``).

    Its terms are those of ``data/terms.csv`` beside ``notebooks``, where there is such a file.

    Raises LabError with every mistake of the source, or TermError with every mistake of the terms.
    """
    import jupytext

    if not _LAB.fullmatch(path.stem):
        raise LabError(f"{path.name}: a lab is named NN_topic.py, such as 02_number_formats.py")
    text = path.read_text(encoding="utf-8")
    cells = jupytext.reads(text, fmt="py:percent").cells
    errors = _mistakes_of_options(cells)
    if not errors:
        errors += _mistakes_of_regions(cells)
        errors += _mistakes_of_predictions(cells)
    written = cells
    cells, explanations = _behind_guesses(written)
    title, hardware = _head(cells, path.stem, errors)
    if errors:
        raise LabError("\n".join(f"{path.name}: {error}" for error in errors))

    outcome = _outcome(cells[0].source)
    trees = [tree(cell.source) if cell.cell_type == "code" else None for cell in written]
    minutes = lab_minutes(written, trees)  # an explanation is read too
    cells[0].source = _with_minutes(cells[0].source, minutes)
    terms = [term for term in terms_beside(path.parent.parent) if term.lab == path.stem]
    errors += add_blocks(cells, terms)
    solution = _notebook(cells, path.stem, text)
    learner = _cleared(solution)
    exercises = _exercises(solution, learner, cells, errors)
    if errors:
        raise LabError("\n".join(f"{path.name}: {error}" for error in errors))
    _finish(solution, learner, cells)
    solution.metadata.labkit["source_hash"] = digest(text)
    return Lab(
        lab=path.stem,
        title=title,
        outcome=outcome,
        minutes=minutes,
        hardware=hardware,
        version=digest(text)[:12],
        exercises=tuple(exercises),
        explanations=explanations,
        sections=_sections(cells),
        learner=learner,
        solution=solution,
    )


def _kind(cell: Any) -> str | None:
    return next((kind for kind in _KINDS if kind in cell.metadata), None)


def _label(cell: Any) -> str:
    """How to find a cell in the source: its option, or its first line."""
    kind = _kind(cell)
    return f'{kind}="{cell.metadata[kind]}"' if kind else f"cell {cell.source.splitlines()[:1]}"


def _head(cells: list[Any], lab: str, errors: list[str]) -> tuple[str, str]:
    first = cells[0].source if cells and cells[0].cell_type == "markdown" else ""
    title, facts = _TITLE.search(first), _FACTS.search(first)
    number = int(lab[:2])
    if not title or int(title[1]) != number:
        errors.append(f"the first cell must be markdown and start with `# {number}. <title>`")
    if not facts:
        errors.append(
            "the first cell needs the line `*<hardware> · needs: <knowledge>*`; its minutes are "
            "computed"
        )
    if not title or not facts:
        return "", ""
    return title[2].strip(), " ".join(facts[1].split())


def _with_minutes(first: str, minutes: Minutes) -> str:
    """The first cell with its minutes before the hardware, and a remark on them below."""
    facts = _FACTS.search(first)
    said = f"*{minutes} minutes · {facts[0][1:]}"
    if minutes.remark:
        said += f"\n\n{minutes.remark}"
    return first[: facts.start()] + said + first[facts.end() :]


def _sections(cells: list[Any]) -> list[dict[str, Any]]:
    """The headings below the title, each with the exercises and predictions under it."""
    sections: list[dict[str, Any]] = []
    for cell in cells:
        for heading, text in by_heading(cell.source) if cell.cell_type == "markdown" else ():
            if heading and not text.startswith("# "):
                # JupyterLab makes a heading's anchor by putting hyphens for its spaces.
                anchor, optional = heading.replace(" ", "-"), is_optional(heading, text)
                sections.append({"section": anchor, "items": [], "optional": optional})
        if sections:
            asked = (cell.metadata.get(kind) for kind in ("exercise", "predict"))
            sections[-1]["items"] += filter(None, asked)
    return sections


def _outcome(first: str) -> str:
    found = _OUTCOME.search(first)
    return " ".join(found["first"].split()) if found else ""


def _mistakes_of_options(cells: list[Any]) -> list[str]:
    """Options that are unknown, of the wrong form, double, or without their partner."""
    errors: list[str] = []
    seen: dict[str, set[str]] = {kind: set() for kind in _KINDS}
    for cell in cells:
        options, label = cell.metadata, _label(cell)
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            errors.append(f"{label}: unknown option {unknown}; allowed: {sorted(_OPTIONS)}")
        kinds = [kind for kind in _KINDS if kind in options]
        if not kinds:
            continue
        kind, slug = kinds[0], str(options[kinds[0]])
        if len(kinds) > 1:
            errors.append(f"{label}: one cell is one of {kinds}, not several")
        if cell.cell_type != "code":
            errors.append(f"{label}: an {kind} must be a code cell")
        if not _SLUG.fullmatch(slug):
            errors.append(f"{label}: malformed slug; use a-z and 0-9 joined by `-`, such as `ulp`")
        if slug in seen[kind]:
            errors.append(f"{label}: duplicate slug; another {kind} of this lab has it")
        seen[kind].add(slug)
        if kind == "check" and slug not in seen["exercise"]:
            errors.append(f'{label}: no exercise="{slug}" stands before this check')
        if kind == "check" and not _whole(options.get("points")):
            errors.append(f"{label}: a check needs whole points: points=2; if optional, points=0")
        if kind == "check" and not _positive(options.get("seconds", SECONDS)):
            errors.append(f"{label}: seconds is a number above 0, not {options['seconds']!r}")
    for slug in sorted(seen["exercise"] - seen["check"]):
        errors.append(f'exercise="{slug}": no check="{slug}" judges it')
    return errors


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _mistakes_of_regions(cells: list[Any]) -> list[str]:
    """Solution regions that are missing, unpaired or misplaced; cells that are not Python."""
    errors: list[str] = []
    for cell in cells:
        marks = re.findall(r"\b(BEGIN|END) SOLUTION\b", cell.source)
        label = _label(cell)
        if _kind(cell) == "exercise":
            if not marks or marks != ["BEGIN", "END"] * (len(marks) // 2):
                errors.append(f"{label}: needs `### BEGIN SOLUTION`, then `### END SOLUTION`")
        elif marks:
            errors.append(f"{label}: a solution region outside an exercise; add exercise=...")
        if cell.cell_type != "code":
            continue
        try:
            tree(cell.source)
        except SyntaxError as error:
            errors.append(f"{label}: {error.msg} (line {error.lineno} of the cell)")
    return errors


def _mistakes_of_predictions(cells: list[Any]) -> list[str]:
    """Predict cells of another form or without an explanation; cells that read a prediction."""
    errors: list[str] = []
    owner: dict[str, str] = {}
    for cell, below in zip(cells, [*cells[1:], None], strict=True):
        if cell.cell_type != "code" or not _is_python(cell.source):
            continue
        label, assigned = _label(cell), names_assigned(cell.source)
        for name in names_loaded(cell.source):
            if name in owner and name not in assigned:
                errors.append(
                    f"{label}: reads `{name}`, which is the prediction {owner[name]!r} and not its "
                    "truth; compute it again under another name"
                )
        for name in assigned:
            owner.pop(name, None)
        if _kind(cell) != "predict":
            continue
        slug = cell.metadata["predict"]
        name = _predicted(cell.source, slug)
        if name is None:
            errors.append(
                f"{label}: the cell must be one function below "
                f"`@predict(guesses.{slug.replace('-', '_')})`"
            )
            continue
        owner[name] = slug
        is_text = below is not None and below.cell_type == "markdown"
        if not is_text or re.search("^#", below.source, re.MULTILINE):
            errors.append(
                f"{label}: the cell below must be the explanation, Markdown without a heading"
            )
    return errors


def _is_python(code: str) -> bool:
    try:
        tree(code)
    except SyntaxError:
        return False
    return True


def _predicted(code: str, slug: str) -> str | None:
    """The name of the function that a predict cell decorates; None for a cell of another form."""
    match tree(code).body:
        case [
            ast.FunctionDef(
                name=name,
                decorator_list=[
                    ast.Call(func=ast.Name(id="predict"), args=[ast.Attribute(attr=asked)])
                ],
            )
        ] if asked.replace("_", "-") == slug:
            return name
    return None


def _behind_guesses(cells: list[Any]) -> tuple[list[Any], dict[str, str]]:
    """The cells without the explanations of predictions, and these by their slugs."""
    kept, explanations = [], {}
    for above, cell in zip([None, *cells], cells, strict=False):
        if above is not None and _kind(above) == "predict":
            explanations[above.metadata["predict"]] = cell.source
        else:
            kept.append(cell)
    return kept, explanations


def _notebook(cells: list[Any], lab: str, text: str) -> Any:
    """The notebook as written, with nbgrader's metadata and ours."""
    from nbformat import v4

    labkit = {"lab": lab, "version": digest(text)[:12]}
    notebook = v4.new_notebook(metadata={**copy.deepcopy(_KERNEL), "labkit": labkit})
    notebook.nbformat_minor = 5
    for cell in cells:
        options, kind = cell.metadata, _kind(cell)
        metadata: dict[str, Any] = {}
        if options.get("tags"):
            metadata["tags"] = list(options["tags"])
        if kind == "predict":
            metadata["labkit"] = {"predict": options["predict"]}
        elif kind:
            metadata["nbgrader"] = {
                "schema_version": 3,
                "grade_id": options[kind] if kind == "exercise" else f"check-{options[kind]}",
                "grade": kind == "check",
                "solution": kind == "exercise",
                "locked": kind == "check",
                "task": False,
                **({"points": options["points"]} if kind == "check" else {}),
            }
        new = v4.new_code_cell if cell.cell_type == "code" else v4.new_markdown_cell
        notebook.cells.append(new(cell.source, metadata=metadata))
    return notebook


def _cleared(notebook: Any) -> Any:
    """The notebook with every solution region replaced by the stub, by nbgrader's own step."""
    from nbgrader.preprocessors import ClearSolutions

    clear = ClearSolutions(code_stub={"python": f"{COMMENT}\n{STUB}"})
    cleared, _ = clear.preprocess(copy.deepcopy(notebook), {})
    for cell in cleared.cells:
        if "nbgrader" in cell.metadata:
            cell.source = without_bare_stub(cell.source)
    return cleared


def _exercises(solution: Any, learner: Any, cells: list[Any], errors: list[str]) -> list[Exercise]:
    """Pair each check with its exercise, and prove that the open notebook still defines names."""
    exercises: list[Exercise] = []
    defined = set(_GIVEN)
    answers: dict[str, tuple[set[str], set[str]]] = {}
    for solved, open_, cell in zip(solution.cells, learner.cells, cells, strict=True):
        if cell.cell_type != "code":
            continue
        kind, label = _kind(cell), _label(cell)
        assigned = names_assigned(solved.source)
        if kind == "exercise":
            open_names = _names_of_stub(open_.source, label, errors)
            answers[cell.metadata["exercise"]] = (assigned, open_names)
        defined |= assigned
        if kind != "check":
            continue
        slug = cell.metadata["check"]
        solved_names, open_names = answers[slug]
        loaded = names_loaded(solved.source)
        names = tuple(name for name in loaded if name in solved_names)
        unknown = [name for name in loaded if name not in defined]
        if unknown or not names:
            errors.append(
                f"{label}: the check uses {unknown or loaded}, "
                f"the exercise's solution defines {sorted(solved_names)}"
            )
        for name in [name for name in names if name not in open_names]:
            errors.append(
                f'exercise="{slug}": the placeholder of `{name}` stands inside the solution '
                f"region; write `{name} = ...` (or the def line) above ### BEGIN SOLUTION"
            )
        seconds = cell.metadata.get("seconds", SECONDS)
        exercises.append(Exercise(slug, names, cell.metadata["points"], seconds))
    return exercises


def _names_of_stub(code: str, label: str, errors: list[str]) -> set[str]:
    """What an open exercise assigns; it must run as it stands."""
    try:
        module = tree(code)
    except SyntaxError as error:
        errors.append(f"{label}: without its solution the cell is not Python: {error.msg}")
        return set()
    raised = {n for n in ast.walk(module) if isinstance(n, ast.Raise) and _is_stub(n)}
    for function in (n for n in ast.walk(module) if isinstance(n, ast.FunctionDef)):
        raised -= set(ast.walk(function))
    if raised:
        errors.append(f"{label}: an indented solution region must stand inside a function")
    return names_assigned(code)


def _is_stub(statement: ast.Raise) -> bool:
    return ast.dump(statement) == ast.dump(ast.parse(STUB).body[0])


def _finish(solution: Any, learner: Any, cells: list[Any]) -> None:
    """Give the cells their ids, the open checks their tag; solved predictions show the truth."""
    occurrences: Counter[str] = Counter()
    for solved, open_, cell in zip(solution.cells, learner.cells, cells, strict=True):
        occurrences[f"{open_.cell_type}\n{open_.source}"] += 1
        nth = occurrences[f"{open_.cell_type}\n{open_.source}"]
        solved["id"] = open_["id"] = cell_id(open_.cell_type, open_.source, nth)
        if _kind(cell) == "check":
            tags = open_.metadata.get("tags", [])
            open_.metadata["tags"] = [*tags, "raises-exception"]
        if _kind(cell) == "predict":
            name = _predicted(solved.source, cell.metadata["predict"])
            solved["source"] = f'{solved.source}\n\n\n{name}.guess("skip")'
