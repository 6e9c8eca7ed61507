"""A report with parts taken out or made NaN earns nothing: the judge asks for all that it wants.

A student's process writes the report. Here labkit's right answers are run, and what came back is
changed in one place after another, as somebody would who wants to pass without an answer.
"""

import math
from collections.abc import Iterator

import pytest
import torch

from labkit.base.home import NOTEBOOKS
from labkit.grading.course_labs import read_course
from labkit.grading.intake.notebooks_read import read_notebook
from labkit.grading.intake.selecting import select_cells
from labkit.grading.judge import shipping
from labkit.labs.engine import Check, codec
from labkit.labs.memory_and_many_gpus.checks.survive import CARDS

COURSE = read_course()
CHECKS = [
    check
    for module in shipping.check_modules()
    for check in shipping.checks_in(module)
    if check.lab in COURSE
]
PLACES = 30
"""Of a long report so many places are tried, spread over it; five times as many with --seeds 5."""

OPEN_ENDED = {"compress": 12}
"""Exercises whose answers earn a part, and how many places are tried: a verdict takes seconds."""

EXPLAINS = {
    "experiment": {"made", "end"},
    "train-amp": {"arrived", "came"},
    "amp-loop": {"handed", "open"},
    "lora-linear": {"end", "rate"},
    "one-layer": {"heard"},
    "chunked-loss": {"calls"},
    "survive": {f"{card} at once" for card in CARDS},
}
"""What of a report only says why an answer is wrong: whether it is, the judge sees elsewhere."""


@pytest.fixture(scope="module")
def solved():
    """The names of a solved lab; each is run once."""
    run: dict[str, dict] = {}

    def names(lab: str) -> dict:
        if lab not in run:
            notebook = read_notebook((NOTEBOOKS / "solutions" / f"{lab}.ipynb").read_bytes())
            run[lab] = {"display": lambda *_: None}
            for cell in select_cells(notebook, COURSE[lab]).work.cells:
                exec(cell, run[lab])
        return run[lab]

    return names


def places(value, way=()) -> Iterator[tuple[tuple, object]]:
    """Every value of a report and the way to it."""
    yield way, value
    steps = value.items() if type(value) is dict else enumerate(value) if _is_row(value) else ()
    for step, item in steps:
        yield from places(item, (*way, step))


def _is_row(value) -> bool:
    return type(value) in (list, tuple)


def changed(value, way: tuple, new):
    """The report with ``new`` in one place."""
    if not way:
        return new
    step, *rest = way
    if type(value) is dict:
        return value | {step: changed(value[step], tuple(rest), new)}
    items = list(value)
    items[step] = changed(items[step], tuple(rest), new)
    return type(value)(items)


def poorer(value, *, any_numbers: bool) -> Iterator[object]:
    """What may stand in the place of a value and says less."""
    if _holds(value):
        yield type(value)()
        yield _hollow(value)
    elif any_numbers:
        return
    elif type(value) is float and math.isfinite(value):
        yield math.nan
    elif (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.float().isfinite().any()
    ):
        yield torch.full_like(value.float(), math.nan).to(value.dtype)


def _hollow(value):
    """The same outer container, all that it holds emptied."""
    if type(value) is dict:
        return {key: type(item)() if _holds(item) else item for key, item in value.items()}
    return type(value)(type(item)() if _holds(item) else item for item in value)


def _holds(item) -> bool:
    # A recorder's notes, a list of words, may refuse an answer; what is asked for is beside them.
    is_container = type(item) is dict or _is_row(item)
    return is_container and bool(item) and not all(type(part) is str for part in item)


def worth(check: Check, value) -> float:
    """The score of an answer that passed; an open-ended exercise gives less than 1."""
    report = {"outcome": "value", "value": value, "printed": "", "warned": []}
    result = check.verdict(codec.encode_value(report))
    return result.score if result.status == "passed" else 0.0


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.exercise)
def test_a_report_that_says_less_does_not_pass(check, solved, seeds, monkeypatch):
    names = next(e.names for e in COURSE[check.lab].exercises if e.exercise == check.exercise)
    values = tuple(solved(check.lab)[name] for name in names)
    report = codec.decode_value(check.collect(values[0] if len(values) == 1 else values))
    full = worth(check, report["value"])
    assert full == 1 or check.exercise in OPEN_ENDED
    monkeypatch.setattr(check, "known_wrong", [])  # the verdict counts, not its explanation
    right = codec.encode_value(report["value"])
    found = list(places(report["value"]))
    most = OPEN_ENDED.get(check.exercise, seeds * PLACES)
    found = found[: most // 3] + found[most // 3 :: 1 + len(found) // most]
    # Which numbers `dtypes` makes is the learner's own choice: h.log() holds NaN, rightly.
    free = check.exercise == "dtypes"
    forged = [
        changed(report["value"], way, new)
        for way, old in found
        if not EXPLAINS.get(check.exercise, set()).intersection(way)
        for new in poorer(old, any_numbers=free)
    ]
    wrong = [value for value in forged if codec.encode_value(value) != right]
    earned = [worth(check, value) for value in wrong]
    assert [value for value in earned if value >= full or (full == 1 and value)] == []
