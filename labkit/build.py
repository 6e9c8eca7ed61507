"""Build the notebooks: from a source file to a learner notebook, a solved one and the manifest.

This module believes that everything in ``notebooks/`` but ``source/`` can be made again:

- ``notebooks/NN_topic.ipynb``, for the learner: no solutions, no outputs;
- ``notebooks/solutions/NN_topic.ipynb``: solved and executed, with outputs that nbval compares;
- ``notebooks/manifest.json``: labs, exercises, points and versions, for programs.

``labkit build`` bundles the widgets too, see ``labkit.bundle``.

A solution notebook is current when, its outputs taken away, it is what its source gives now, the
source's hash (``metadata.labkit.source_hash``) included. The hash covers the text of the source
and nothing of labkit: an edit of a docstring would otherwise execute every lab again. Where an edit
of labkit changes what a lab prints, ``pytest --nbval`` says so; ``build --execute LAB`` mends it.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from labkit import bundle
from labkit.lab_source import Lab, LabError, digest, read_lab
from labkit.paths import NOTEBOOKS

# The longest a cell may take. A lab runs in under 60 s, but a machine under load has been seen to
# take minutes over `import torch`; a kernel that died is noticed at once.
CELL_SECONDS = 600
_CHECKS = Path(__file__).resolve().parent / "checks"
_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


class BuildError(Exception):
    """A notebook that cannot be built, with the file, the cell and what happened."""


def build(
    labs: Iterable[str] | None = None,
    *,
    check: bool = False,
    execute: bool = False,
    notebooks: Path = NOTEBOOKS,
) -> list[str]:
    """Write what is not current and return a sentence a file.

    ``labs`` are names such as ``"02_number_formats"``; all of them by default. With ``check``
    nothing is written or executed: the sentences say which files are stale and what mends them.
    With ``execute`` solutions are executed even where they are current.

    Raises LabError for a mistake in a source and BuildError for a lab that does not run.
    """
    sources = sorted((notebooks / "source").glob("*.py"))
    read = {path.stem: read_lab(path) for path in sources}
    chosen = choose(labs, read)
    manifest = json.dumps(_manifest(read.values()), indent=1, ensure_ascii=False) + "\n"
    if check:
        return _stale(chosen, read, manifest, notebooks)

    # Every learner notebook is in place before the first solution runs: lab 00 copies them.
    texts = {notebooks / f"{lab.lab}.ipynb": _text(lab.learner) for lab in chosen}
    texts[notebooks / "manifest.json"] = manifest
    said = [_replace(path, text) for path, text in texts.items() if _read(path) != text]
    for lab in chosen:
        path = notebooks / "solutions" / f"{lab.lab}.ipynb"
        if execute or not _is_current(lab, path):
            said.append(_replace(path, _text(_executed(lab, notebooks))))
    return said


def choose(labs: Iterable[str] | None, read: dict[str, Lab]) -> list[Lab]:
    """The labs of these names or numbers (``"02"``), all by default; raises BuildError."""
    numbers = {name.split("_")[0]: name for name in read}
    names = list(read) if labs is None else [numbers.get(name, name) for name in labs]
    unknown = [name for name in names if name not in read]
    if unknown:
        raise BuildError(f"no lab is called {unknown[0]!r}; there are {', '.join(read) or 'none'}")
    return [read[name] for name in names]


def _manifest(labs: Iterable[Lab]) -> dict[str, Any]:
    return {"schema": 1, "labs": [_entry(lab) for lab in labs]}


def _entry(lab: Lab) -> dict[str, Any]:
    texts = _texts_of_checks(lab)
    check_version = digest("".join(texts))[:12] if texts else None
    return {
        "lab": lab.lab,
        "title": lab.title,
        "version": lab.version,
        "minutes": lab.minutes,
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
        "predictions": list(lab.predictions),
    }


def _texts_of_checks(lab: Lab) -> list[str]:
    """The modules of checks that the lab imports, and those that these import in turn."""
    code = [cell.source for cell in lab.learner.cells if cell.cell_type == "code"]
    texts: dict[str, str] = {}
    unread = _checks_imported("\n".join(code)) | {lab.lab[3:]}
    while unread:
        path = _CHECKS / f"{unread.pop()}.py"
        if path.name not in texts and path.exists():
            texts[path.name] = path.read_text(encoding="utf-8")
            unread |= _checks_imported(texts[path.name])
    return [texts[name] for name in sorted(texts)]


def _checks_imported(code: str) -> set[str]:
    """Names that ``from labkit.checks import a`` or ``from labkit.checks.a import b`` name as a."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module == "labkit.checks":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("labkit.checks."):
            found.add(node.module.split(".")[2])
    return found


def _stale(chosen: list[Lab], read: dict[str, Lab], manifest: str, notebooks: Path) -> list[str]:
    said = []
    for lab in chosen:
        command = f"python -m labkit build {lab.lab}"
        learner = notebooks / f"{lab.lab}.ipynb"
        solution = notebooks / "solutions" / f"{lab.lab}.ipynb"
        for path, current in [
            (learner, _read(learner) == _text(lab.learner)),
            (solution, _is_current(lab, solution)),
        ]:
            if not current:
                why = "is not what its source gives" if path.exists() else "is missing"
                said.append(f"{_name(path)} {why}. Mend it with: {command}")
    if _read(notebooks / "manifest.json") != manifest:
        path = _name(notebooks / "manifest.json")
        said.append(f"{path} is not what the sources give. Mend it with: python -m labkit build")
    for folder in (notebooks, notebooks / "solutions"):
        for path in sorted(folder.glob("*.ipynb")):
            if path.stem not in read:
                said.append(f"{_name(path)} has no source. Mend it with: git rm {_name(path)}")
    return said


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
        cell = next(c for c in notebook.cells if _failed(c))
        raise BuildError(_place(lab, cell, f"raised {error.ename}: {error.evalue}")) from None
    except (CellTimeoutError, DeadKernelError) as error:
        raise BuildError(f"source/{lab.lab}.py: {error}") from None
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell["outputs"] = [_without_widget(o) for o in cell.outputs if not _only_widget(o)]
            written = "".join(o.text for o in cell.outputs if o.get("name") == "stderr")
            if written:
                raise BuildError(_place(lab, cell, f"wrote to stderr: {written.strip()}"))
    # Execution adds the Python version and widget state, which differ between machines.
    notebook["metadata"] = metadata
    return notebook


def _failed(cell: Any) -> bool:
    return any(o.output_type == "error" for o in cell.get("outputs", []))


def _place(lab: Lab, cell: Any, what: str) -> str:
    number = [c["id"] for c in lab.solution.cells].index(cell["id"]) + 1
    code = "\n".join(f"    {line}" for line in cell.source.splitlines()[:6])
    plain = re.sub(r"\x1b\[[0-9;]*m", "", what)
    return f"source/{lab.lab}.py: cell {number} {plain}\n{code}"


def _without_widget(output: Any) -> Any:
    # A view without its stored model shows as an error; the text twin beside it stays readable.
    output.get("data", {}).pop(_WIDGET_VIEW, None)
    return output


def _only_widget(output: Any) -> bool:
    return list(output.get("data", {})) == [_WIDGET_VIEW]


def _text(notebook: Any) -> str:
    import nbformat

    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _replace(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    os.replace(temporary, path)
    return f"wrote {_name(path)}"


def _name(path: Path) -> str:
    """The path as typed from the top of the repository."""
    return os.path.relpath(path).replace(os.sep, "/")


def main(args: list[str]) -> int:
    """``labkit build [--check | --execute] [LAB ...]``; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="labkit build",
        description="Build the notebooks from notebooks/source, and bundle the widgets.",
        epilog="For a class: labkit build --nbgrader COURSE_DIR; its --help tells more.",
    )
    parser.add_argument("labs", nargs="*", metavar="LAB", help="such as 02_number_formats")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="say what is stale, change nothing")
    mode.add_argument("--execute", action="store_true", help="execute current solutions again")
    options = parser.parse_args(args)
    try:
        said = bundle.stale() if options.check else bundle.bundle()
        said += build(options.labs or None, check=options.check, execute=options.execute)
    except (LabError, BuildError, bundle.BundleError) as error:
        print(error, file=sys.stderr)
        return 1
    for sentence in said:
        print(sentence, file=sys.stderr if options.check else sys.stdout)
    if not said:
        print("Every notebook and every widget is current.")
    return 1 if options.check and said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
