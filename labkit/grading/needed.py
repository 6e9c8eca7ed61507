"""Which unchanged demonstrations a submission still needs: those that bind a name it reads.

Demonstrations are skipped when they are graded, for nothing that is judged happens in them. But a
lab imports some names, and defines some functions, in a demonstration between two exercises.
"""

import re
from collections.abc import Collection, Sequence

from labkit.lab_source import names_assigned, names_loaded


def needed(cells: Sequence[str], demonstrations: Collection[int]) -> list[int]:
    """The places of the cells to run: all that are no demonstrations, and what these need.

    Args:
        cells: the sources of a notebook's code cells in order, its check cells left out.
        demonstrations: the places of those that are as labkit ships them. Only these are parsed;
            of what a student wrote every word counts as read.
    """
    kept, wanted = [], set()
    for place in reversed(range(len(cells))):
        if place not in demonstrations:
            wanted |= set(re.findall(r"[^\W\d]\w*", cells[place]))
        elif (bound := names_assigned(cells[place])) & wanted:
            wanted = wanted - bound | set(names_loaded(cells[place]))
        else:
            continue
        kept.append(place)
    return kept[::-1]
