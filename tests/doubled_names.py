"""Public names that stand twice in labkit: ``python -m tests.doubled_names``.

One word means one thing. Two classes or functions share a name, or two modules; that a module is
named after the one function that it gives is no fault. Generated solutions, the template of a lab,
the rooms that the folders of several labs have, and a lab's checks do not count: a check, its run
and its module are named after their exercise, and two labs may have exercises of one name.
``REASONS`` says why another name may stand twice.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

LABKIT = Path(__file__).parents[1] / "labkit"

ROOMS = {"checks", "figures", "predictions", "recorded", "shared"}
"""Modules that the folders of several labs have."""

REASONS = {
    "interview": "the trainer, and the folder of lab 16, which is the lab on interviews",
    "main": "what a program is called by: the command line and the parts that run by themselves",
    "mlp": "one network in torch, for all labs, and the same in JAX, which lab 14 compares with it",
}


def names_of(file: Path) -> set[str]:
    """The public classes and functions at the top level of a module."""
    definitions = ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    nodes = ast.parse(file.read_text("utf-8")).body
    return {n.name for n in nodes if isinstance(n, definitions) and not n.name.startswith("_")}


def doubled(package: Path = LABKIT) -> dict[str, list[str]]:
    """The names of two modules or more, and of two definitions or more, each with its files."""
    modules: dict[str, list[str]] = defaultdict(list)
    definitions: dict[str, list[str]] = defaultdict(list)
    for file in sorted(package.rglob("*.py")):
        where = file.relative_to(package)
        if file.name == "solutions.py" or "_template" in where.parts:
            continue
        module = where.parent.name if file.name == "__init__.py" else file.stem
        in_checks = "checks" in where.parts[:-1] or where.name == "checks.py"
        if module and module not in ROOMS and not in_checks:
            modules[module].append(str(where))
        for name in names_of(file):
            if not (in_checks and name.startswith(("check_", "run_"))):
                definitions[name].append(str(where))
    named = [*sorted(modules.items()), *sorted(definitions.items())]
    return {name: files for name, files in named if len(files) > 1}


def faults(package: Path = LABKIT) -> list[str]:
    """A sentence for each name that stands twice without a reason, or has one and stands once."""
    found = doubled(package)
    said = [
        f"{name} stands in {', '.join(files)}: give each thing a name of its own"
        for name, files in found.items()
        if name not in REASONS
    ]
    return said + [f"{name} stands once: take its reason out" for name in REASONS.keys() - found]


if __name__ == "__main__":
    for name, files in doubled().items():
        print(f"{name}: {', '.join(files)}\n    {REASONS.get(name, 'WITHOUT A REASON')}")
    sys.exit(len(faults()) > 0)
