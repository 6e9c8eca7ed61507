"""The minutes of a lab: what its text, code, guesses, widgets, exercises and cards take.

A section is optional where its heading or the italic note below it says so: ``### Optional: ...``,
``*8 minutes, optional, about 3 lines.*``. All that stands below, up to the next heading, is then
optional too. The minutes of such a note are those that an intended learner needs for the exercise.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from labkit.interview import drills
from labkit.interview.questions import load_bank

WORDS = 130  # read in a minute
LINES = 10  # of code, read in a minute
GUESS, WIDGET = 1.5, 3.0  # minutes each takes

_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_SITTING = re.compile(r"Sitting ([A-Z])\b")
_NOTE = re.compile(
    r"^\*(?:(?P<minutes>\d+) minutes?)?(?:, )?(?P<optional>optional)?[,.]",
    re.MULTILINE | re.IGNORECASE,
)
_HINTS = re.compile(r"<details>\s*<summary>Hint.*?</details>", re.DOTALL)
_FENCED = re.compile(r"^```.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Minutes:
    """Whole minutes of a lab: as text "60 + 35 optional"; ``sittings`` has both of each sitting.

    A sitting is (letter, required, optional).
    """

    required: int
    optional: int
    sittings: tuple[tuple[str, int, int], ...] = ()

    def __str__(self) -> str:
        return _words(self.required, self.optional)

    @property
    def remark(self) -> str:
        """What each sitting takes, and what optional means; "" where there is nothing to say."""
        said = []
        if self.sittings:
            each = (f"{letter} takes {_words(*both)} minutes" for letter, *both in self.sittings)
            said.append(f"Sitting {', sitting '.join(each)}.")
        if self.optional:
            said.append("What is *optional* carries no points, and nothing later needs it.")
        return " ".join(said)


def _words(required: int, optional: int) -> str:
    return f"{required} + {optional} optional" if optional else str(required)


def lab_minutes(cells: Iterable[Any], trees: Iterable[ast.Module | None]) -> Minutes:
    """The minutes of the cells of a source; ``trees`` holds the syntax tree of each code cell."""
    spent: Counter[tuple[str, bool]] = Counter()
    sitting, optional = "", False
    modules: dict[str, str] = {}  # of each name that was imported so far
    for cell, tree in zip(cells, trees, strict=True):
        if tree is not None:
            spent[sitting, optional] += _of_code(cell, tree, modules)
            continue
        for heading, text in by_heading(cell.source):
            if heading:
                sitting = sitting_of(heading) or sitting
                optional = is_optional(heading, text)
            spent[sitting, optional] += _of_text(text)
    return _rounded(spent)


def sitting_of(heading: str) -> str:
    """The letter of the sitting that a heading opens, "A" for "Sitting A: the device"; else ""."""
    found = _SITTING.match(heading)
    return found[1] if found else ""


def is_optional(heading: str, text: str) -> bool:
    """Whether a section says in its heading or in its note that it is optional."""
    note = _NOTE.search(text)
    return heading.startswith("Optional") or bool(note and note["optional"])


def by_heading(markdown: str) -> Iterator[tuple[str, str]]:
    """The text of a cell by its headings: (heading, text with it), first what stands before any.

    A heading is "" where a text has none. Lines of fenced code are no headings.
    """
    code = [found.span() for found in _FENCED.finditer(markdown)]
    starts = [0]
    for found in _HEADING.finditer(markdown):
        if not any(begin <= found.start() < end for begin, end in code):
            starts.append(found.start())
    for start, end in zip(starts, [*starts[1:], len(markdown)], strict=True):
        text = markdown[start:end]
        if text:
            heading = _HEADING.match(text)
            yield (heading[1].strip() if heading else ""), text


def _of_text(text: str) -> float:
    """Reading, and the minutes of an exercise; its hints are read within them."""
    note = _NOTE.search(text)
    text = _HINTS.sub("", text)
    lines = [line for code in _FENCED.findall(text) for line in code.splitlines() if line.strip()]
    words = [word for word in _FENCED.sub("", text).split() if re.search(r"\w", word)]
    own = int(note["minutes"] or 0) if note else 0
    return len(words) / WORDS + len(lines) / LINES + own


def _of_code(cell: Any, tree: ast.Module, modules: dict[str, str]) -> float:
    """Reading code that is given, a guess, widgets and cards; exercises have their own minutes."""
    given = not cell.metadata.keys() & {"exercise", "check"}
    lines = [line for line in cell.source.splitlines() if line.strip()] if given else []
    minutes = len(lines) / LINES + GUESS * ("predict" in cell.metadata)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            modules |= {alias.asname or alias.name: node.module or "" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            module = modules.get(node.func.id, "")
            if module.startswith("labkit.interview"):
                minutes += _card_seconds(node) / 60
            elif module.rpartition(".")[2].startswith("widget_"):
                minutes += WIDGET
    return minutes


def _card_seconds(call: ast.Call) -> float:
    """What the cards of a call take by the bank's own times, for somebody who has no reviews."""
    bank = load_bank()
    given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    asked = []
    match call.func.id:
        case "warm_up":
            return drills.WARM_UP_SECONDS
        case "mock_interview":
            from labkit.interview.mock import MINUTES  # it needs numpy, which a build does not

            return 60 * given.get("minutes", MINUTES)
        case "say_it":
            asked = drills.questions_to_say(bank, lab=ast.literal_eval(call.args[0]))
        case "diagnostic":
            asked = drills.diagnostic_questions(bank, ())
        case "drill":
            asked = drills.session(bank, (), datetime.now(UTC), **given)
    return sum(question.seconds for question in asked)


def _rounded(spent: Counter[tuple[str, bool]]) -> Minutes:
    """Whole minutes; what stands before the first sitting is read with it."""
    letters = sorted({sitting for sitting, _ in spent} - {""})
    if letters:
        for optional in (False, True):
            spent[letters[0], optional] += spent.pop(("", optional), 0.0)
    whole = {
        letter: (round(spent[letter, False]), round(spent[letter, True]))
        for letter in letters or [""]
    }
    return Minutes(
        required=sum(required for required, _ in whole.values()),
        optional=sum(optional for _, optional in whole.values()),
        sittings=tuple((letter, *both) for letter, both in whole.items() if letter),
    )
