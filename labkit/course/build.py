"""Build the notebooks: from a source file to a learner notebook, a solved one and the manifest.

Everything in ``notebooks/`` but ``source/`` is generated, and three things outside it:

- ``notebooks/NN_topic.ipynb``, for the learner: no solutions, no outputs;
- ``notebooks/solutions/NN_topic.ipynb``: solved and executed, with outputs that nbval compares;
- ``notebooks/manifest.json``: labs, exercises, points and versions, for programs;
- ``labkit/labs/TOPIC/solutions.py``: the exercises' solutions, for checks and for ``yours``, and
  what stands behind guesses;
- the table of labs in the README beside ``notebooks/``, between two comments;
- ``docs/glossary.md`` beside it, where ``data/terms.csv`` stands there too.

``labkit build`` bundles the widgets too, see ``labkit.course.bundle``.

A solution notebook is current when, its outputs taken away, it is what its source gives now, the
source's hash (``metadata.labkit.source_hash``) included. The hash covers the text of the source
and nothing of labkit: an edit of a docstring would otherwise execute every lab again. Where an edit
of labkit changes what a lab prints, ``pytest --nbval`` says so; ``build --execute LAB`` mends it.
"""

from __future__ import annotations

import ast
import copy
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from labkit.base.home import NOTEBOOKS, full_name, replace_file
from labkit.course.cell_ids import digest
from labkit.course.lab_source import Lab, read_lab
from labkit.course.solution_text import answers_text, solutions_text, topic
from labkit.course.terms import TermError, glossary, terms_beside

# The longest a cell may take. A lab runs in under 60 s, but a machine under load has been seen to
# take minutes over `import torch`; a kernel that died is noticed at once.
CELL_SECONDS = 600
_LABKIT = Path(__file__).resolve().parents[1]
LABS = _LABKIT / "labs"
_BAR = "\\|"  # a bar that ends no cell of a table in Markdown
TABLE_BEGINS = "<!-- The table of labs: `python -m labkit build` writes it. -->"
TABLE_ENDS = "<!-- End of the table of labs. -->"
_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


class BuildError(Exception):
    """A notebook that cannot be built, with the file, the cell and what happened."""


def build(
    labs: Iterable[str] | None = None,
    *,
    check: bool = False,
    execute: bool = False,
    notebooks: Path = NOTEBOOKS,
    folders: Path | None = None,
) -> list[str]:
    """Write what is not current and return a sentence a file.

    Where a README.md stands beside the folder ``notebooks``, it gets the table of all labs.
    ``labs`` are names such as ``"02_number_formats"``; all of them by default. With ``check``
    nothing is written or executed: the sentences say which files are stale and what mends them.
    With ``execute`` solutions are executed even where they are current. ``folders`` is where each
    lab's own folder lies: labkit.labs for the course's notebooks, else ``labs`` in ``notebooks``.

    Raises LabError for a mistake in a source, TermError for one in the table of terms, and
    BuildError for a lab that does not run.
    """
    folders = folders or (LABS if notebooks == NOTEBOOKS else notebooks / "labs")
    sources = sorted((notebooks / "source").glob("*.py"))
    read = {path.stem: read_lab(path) for path in sources}
    chosen = chosen_labs(labs, read)
    manifest = json.dumps(_manifest(read.values()), indent=1, ensure_ascii=False) + "\n"
    shared = {notebooks / "manifest.json": manifest, **_readme(read.values(), notebooks)}
    shared |= _glossary(read, notebooks)
    if check:
        return _stale(chosen, read, shared, notebooks, folders)

    # All is in place before the first solution runs: lab 00 copies the learner notebooks, and each
    # lab imports its solutions.
    texts = {notebooks / f"{lab.lab}.ipynb": notebook_text(lab.learner) for lab in chosen}
    for lab in chosen:
        texts[folders / topic(lab.lab) / "solutions.py"] = solutions_text(lab)
        package = folders / topic(lab.lab) / "__init__.py"
        if not package.exists():
            texts[package] = f'"""What belongs to lab {lab.lab[:2]} alone."""\n'
    texts |= shared
    said = [_replace(path, text) for path, text in texts.items() if _read(path) != text]
    for lab in chosen:
        path = notebooks / "solutions" / f"{lab.lab}.ipynb"
        if execute or not _is_current(lab, path):
            said.append(_replace(path, notebook_text(_executed(lab, notebooks))))
    return said


def chosen_labs(labs: Iterable[str] | None, read: dict[str, Lab]) -> list[Lab]:
    """The labs of these names or numbers (``"02"``), all by default; raises BuildError."""
    try:
        return [read[full_name(name, read)] for name in (read if labs is None else labs)]
    except ValueError as error:
        raise BuildError(str(error)) from None


def _readme(labs: Iterable[Lab], notebooks: Path) -> dict[Path, str]:
    """The README beside ``notebooks`` with its table of labs; {} where there is no README."""
    path = notebooks.parent / "README.md"
    now = _read(path)
    if now is None:
        return {}
    before, begins, rest = now.partition(TABLE_BEGINS)
    _, ends, after = rest.partition(TABLE_ENDS)
    if not (begins and ends):
        raise BuildError(
            f"{_name(path)} must hold the lines {TABLE_BEGINS} and {TABLE_ENDS}, in this order: "
            "the table of labs stands between them."
        )
    return {path: f"{before}{begins}\n{table_of_labs(labs)}\n{ends}{after}"}


def _glossary(read: Iterable[str], notebooks: Path) -> dict[Path, str]:
    """The page of all terms; {} where there are none."""
    terms = terms_beside(notebooks)
    if unknown := [term for term in terms if term.lab and term.lab not in read]:
        lines = [f"terms.csv, {term.id}: there is no lab {term.lab!r}" for term in unknown]
        raise TermError("\n".join(lines))
    return {notebooks.parent / "docs" / "glossary.md": glossary(terms)} if terms else {}


def table_of_labs(labs: Iterable[Lab]) -> str:
    """The README's table in Markdown: a row a lab, and a line with the minutes of all."""
    labs = list(labs)
    rows = [
        f"| [{lab.lab[:2]} {lab.title}](notebooks/{lab.lab}.ipynb) | {lab.minutes} "
        f"| {lab.outcome.replace('|', _BAR)} |"
        for lab in labs
    ]
    minutes = sum(lab.minutes.required for lab in labs)
    optional = sum(lab.minutes.optional for lab in labs)
    total = f"All of them take {minutes:,} minutes, about {round(minutes / 60)} hours."
    if optional:
        total += f" What is *optional* takes {optional} more: it carries no points, and nothing"
        total += " later needs it."
    head = ["| lab | minutes | after it you can |", "|---|---|---|"]
    return "\n".join([*head, *rows, "", total])


def _manifest(labs: Iterable[Lab]) -> dict[str, Any]:
    return {"schema": 1, "labs": [_entry(lab) for lab in labs]}


def _entry(lab: Lab) -> dict[str, Any]:
    texts = _texts_of_checks(lab)
    # A check judges and explains with the lab's solutions too.
    check_version = digest("".join([*texts, answers_text(lab)]))[:12] if texts else None
    return {
        "lab": lab.lab,
        "title": lab.title,
        "version": lab.version,
        "minutes": lab.minutes.required,
        "optional_minutes": lab.minutes.optional,
        "hardware": lab.hardware,
        "exercises": [
            {
                "exercise": exercise.exercise,
                "names": list(exercise.names),
                "points": exercise.points,
                "check_version": check_version,
                "limits": {"seconds": exercise.seconds},
            }
            for exercise in lab.exercises
        ],
        "predictions": list(lab.explanations),
        "sections": lab.sections,
    }


def _texts_of_checks(lab: Lab) -> list[str]:
    """The modules of the lab's checks, and those of labkit.labs that these import in turn.

    Solutions are left out: they follow from the source, and their file may be older than it.
    """
    texts: dict[Path, str] = {}
    folder = _LABKIT / "labs" / topic(lab.lab)
    unread = {*folder.glob("checks.py"), *folder.glob("checks/*.py")}
    while unread:
        path = unread.pop()
        if path not in texts and path.name != "solutions.py":
            texts[path] = path.read_text(encoding="utf-8")
            unread |= _imported(texts[path])
    return [texts[path] for path in sorted(texts)]


def _imported(code: str) -> set[Path]:
    """The files of labkit.labs that ``from a import b`` reads: module a, and b where it is one."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("labkit.labs."):
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            found |= {path for name in names for path in _file(name)}
    return found


def _file(module: str) -> list[Path]:
    """The file of a module or a package; none where there is no such module."""
    path = _LABKIT.parent.joinpath(*module.split("."))
    return [p for p in (path.with_suffix(".py"), path / "__init__.py") if p.exists()]


def _stale(
    chosen: list[Lab],
    read: dict[str, Lab],
    shared: dict[Path, str],
    notebooks: Path,
    folders: Path,
) -> list[str]:
    said = []
    for lab in chosen:
        command = f"python -m labkit build {lab.lab}"
        learner = notebooks / f"{lab.lab}.ipynb"
        solution = notebooks / "solutions" / f"{lab.lab}.ipynb"
        answers = folders / topic(lab.lab) / "solutions.py"
        for path, current in [
            (learner, _read(learner) == notebook_text(lab.learner)),
            (solution, _is_current(lab, solution)),
            (answers, _read(answers) == solutions_text(lab)),
        ]:
            if not current:
                why = "is not what its source gives" if path.exists() else "is missing"
                said.append(f"{_name(path)} {why}. Mend it with: {command}")
    said += [
        f"{_name(path)} is not what the sources give. Mend it with: python -m labkit build"
        for path, text in shared.items()
        if _read(path) != text
    ]
    built = [*sorted(notebooks.glob("*.ipynb")), *sorted(notebooks.glob("solutions/*.ipynb"))]
    left = [path for path in built if path.stem not in read]
    topics = {topic(lab) for lab in read}
    left += [p for p in sorted(folders.glob("*/solutions.py")) if p.parent.name not in topics]
    return said + [
        f"{_name(path)} has no source. Mend it with: git rm {_name(path)}" for path in left
    ]


def _is_current(lab: Lab, path: Path) -> bool:
    """Whether the stored solution, its outputs taken away, is what the source gives."""
    import nbformat

    stored = _read(path)
    if stored is None:
        return False
    try:
        notebook = nbformat.reads(stored, as_version=4)
    except Exception:  # whatever is wrong with the file, building it again mends it
        return False
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return notebook == lab.solution


def _executed(lab: Lab, notebooks: Path) -> Any:
    """The solution notebook with its outputs; raises BuildError where a cell fails."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    notebook = copy.deepcopy(lab.solution)
    metadata = copy.deepcopy(notebook.metadata)
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(notebooks)}},
    )
    try:
        client.execute(env={**os.environ, "LABKIT_PROGRESS": "off"})
    except CellExecutionError as error:
        outputs = [(cell, one) for cell in notebook.cells for one in cell.get("outputs", [])]
        cell = next(cell for cell, one in outputs if one.output_type == "error")
        raise BuildError(_place(lab, cell, f"raised {error.ename}: {error.evalue}")) from None
    except (CellTimeoutError, DeadKernelError) as error:
        raise BuildError(f"source/{lab.lab}.py: {error}") from None
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell["outputs"] = [
                _without_widget(o)
                for o in cell.outputs
                if list(o.get("data", {})) != [_WIDGET_VIEW]
            ]
            written = "".join(o.text for o in cell.outputs if o.get("name") == "stderr")
            if written:
                raise BuildError(_place(lab, cell, f"wrote to stderr: {written.strip()}"))
    # Execution adds the Python version and widget state, which differ between machines.
    notebook["metadata"] = metadata
    return notebook


def _place(lab: Lab, cell: Any, what: str) -> str:
    number = [c["id"] for c in lab.solution.cells].index(cell["id"]) + 1
    code = "\n".join(f"    {line}" for line in cell.source.splitlines()[:6])
    plain = re.sub(r"\x1b\[[0-9;]*m", "", what)
    return f"source/{lab.lab}.py: cell {number} {plain}\n{code}"


def _without_widget(output: Any) -> Any:
    # A view without its stored model shows as an error; the text twin beside it stays readable.
    output.get("data", {}).pop(_WIDGET_VIEW, None)
    return output


def notebook_text(notebook: Any) -> str:
    """A notebook as the text of its file; raises nbformat.ValidationError."""
    import nbformat

    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _replace(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text)
    return f"wrote {_name(path)}"


def _name(path: Path) -> str:
    """The path as typed from the top of the repository."""
    return os.path.relpath(path).replace(os.sep, "/")
