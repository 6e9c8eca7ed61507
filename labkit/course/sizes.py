"""Lines of each part of the repository beside its ceiling: ``python -m labkit.course.sizes``.

It exits 1 where a part has more lines than its ceiling, and where a ceiling stands so far above its
part that the part could grow back. ``--lower`` writes lower ceilings, never a higher one.
"""

import argparse
import csv
import sys
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from labkit.base.home import NOTEBOOKS

ROOT = NOTEBOOKS.parent
CEILINGS = Path(".ci/ceilings.csv")
COLUMNS = ("part", "counts", "ceiling", "must become", "aim")
ROOM = 50
"""By so many lines a part may be below its ceiling: who deletes one need not touch the table."""


@dataclass(frozen=True)
class SizedPart:
    """A row of the table: a part of the repository, and how many lines it may have.

    ``counts`` are globs; what matches one with a ``!`` before it is left out. ``ceiling`` is None
    for what is counted and not held.
    """

    part: str
    counts: str
    ceiling: int | None = None
    must_become: int | None = None
    aim: int | None = None

    def files(self, root: Path = ROOT) -> set[Path]:
        """The files that count in this part."""
        globs = self.counts.split()
        left_out = {path for glob in globs if glob[0] == "!" for path in root.glob(glob[1:])}
        return {path for glob in globs if glob[0] != "!" for path in root.glob(glob)} - left_out

    def lines(self, root: Path = ROOT) -> int:
        """The lines of its files, as ``wc -l`` counts them."""
        return sum(path.read_bytes().count(b"\n") for path in self.files(root))

    def lowered(self, lines: int) -> "SizedPart":
        """With the lowest ceiling that ``lines`` allow, which is never below ``must_become``."""
        if self.ceiling is None:
            return self
        return replace(self, ceiling=min(self.ceiling, max(lines, self.must_become or 0)))

    def fault(self, lines: int) -> str:
        """What is wrong with the ceiling of a part of so many lines, in a sentence; "" if it holds.

        >>> SizedPart("plots", "labkit/plots.py", 150, 120).fault(157)
        'plots: 157 lines, 7 above its ceiling of 150. Take them out: no ceiling is raised.'
        """
        lowest = self.lowered(lines).ceiling
        if self.ceiling is None or lowest is None:
            return ""
        if lines > self.ceiling:
            above = f"{lines - self.ceiling:,} above its ceiling of {self.ceiling:,}"
            return f"{self.part}: {lines:,} lines, {above}. Take them out: no ceiling is raised."
        if self.ceiling - lowest > ROOM:
            return (
                f"{self.part}: {lines:,} lines, so its ceiling falls from {self.ceiling:,} to"
                f" {lowest:,}. Run `python -m labkit.course.sizes --lower`, and commit the table."
            )
        return ""


def read_ceilings(root: Path = ROOT) -> list[SizedPart]:
    """The rows of the table, in its order."""
    with open(root / CEILINGS, encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    return [SizedPart(*row[:2], *(int(n) if n else None for n in row[2:])) for row in rows]


def write_ceilings(parts: list[SizedPart], root: Path = ROOT) -> None:
    """Put these rows in the place of the table's."""
    with open(root / CEILINGS, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *map(astuple, parts)])


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Print the table, and on stderr what is wrong with it; the exit status is 1 then."""
    parser = argparse.ArgumentParser(prog="python -m labkit.course.sizes")
    parser.add_argument("--lower", action="store_true", help="write lower ceilings")
    lower = parser.parse_args(arguments).lower
    sizes = [(part, part.lines(root)) for part in read_ceilings(root)]
    if lower:
        sizes = [(part.lowered(lines), lines) for part, lines in sizes]
        write_ceilings([part for part, _ in sizes], root)
    print("{:32}{:>9}{:>9}{:>13}{:>9}".format("part", "lines", *COLUMNS[2:]))
    for part, lines in sizes:
        numbers = (lines, part.ceiling, part.must_become, part.aim)
        shown = ("" if number is None else f"{number:,}" for number in numbers)
        print("{:32}{:>9}{:>9}{:>13}{:>9}".format(part.part, *shown).rstrip())
    faults = [fault for part, lines in sizes if (fault := part.fault(lines))]
    print(*faults, sep="\n", end="\n" if faults else "", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
