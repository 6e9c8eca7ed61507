"""Lines of labkit by package and by lab, beside their budgets: ``python -m labkit.course.sizes``.

A budget is a question to whoever exceeds it, not a failure: the learner's part should be read in an
afternoon, and a lab should cost no more than it teaches. Generated files and pages count apart.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from labkit.base.paths import LEARNERS

LABKIT = Path(__file__).resolve().parents[1]
LEARNERS_BUDGET = 7_000
CHECKS_BUDGET = 800
SYSTEMS_BUDGET = 900
SHARED_BY_LABS = {"engine", "detective"}
_CHECKS = re.compile(r"(checks|slips|predictions)(/|\.py|$)|widget_\w+\.py")


def lines(paths: Iterable[Path]) -> int:
    """Lines of the Python files among ``paths`` and below them, generated ones left out."""
    files = {file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))}
    texts = (file.read_text(encoding="utf-8") for file in files if file.suffix == ".py")
    return sum(len(text.splitlines()) for text in texts if not _is_generated(text))


def _is_generated(text: str) -> bool:
    return "generated" in text.partition("\n")[0].lower()


def lab_sizes(folder: Path) -> tuple[int, int]:
    """Lines of a lab's folder: checks, predictions and widget classes; and everything else."""
    inside = sorted(folder.rglob("*.py"))
    checks = [p for p in inside if _CHECKS.match(p.relative_to(folder).as_posix())]
    return lines(checks), lines(p for p in inside if p not in checks)


def table(labkit: Path = LABKIT) -> str:
    """The sizes as text, a row a package and a row a lab."""
    rows = []
    for name in LEARNERS:
        rows.append((name.removesuffix(".py"), lines([labkit / name]), ""))
    rows.append(("what a learner reads", sum(row[1] for row in rows), f"of {LEARNERS_BUDGET}"))
    behind = ("base", "labs/engine", "labs/detective", "interview", "course", "grading", "commands")
    for name in behind:
        rows.append((name, lines([labkit / name]), ""))
    for folder in sorted(path.parent for path in labkit.glob("labs/*/__init__.py")):
        if folder.name not in SHARED_BY_LABS:
            checks, systems = lab_sizes(folder)
            rows.append((f"labs/{folder.name}: checks", checks, f"of {CHECKS_BUDGET}"))
            rows.append((f"labs/{folder.name}: systems", systems, f"of {SYSTEMS_BUDGET}"))
    rows.append(("labkit, Python", lines([labkit]), ""))
    return "\n".join(f"{name:<46}{size:>7,} {budget}".rstrip() for name, size, budget in rows)


if __name__ == "__main__":
    print(table())
