"""A submission with a trick in it, graded beside an honest one.

Its exercises are lab 02's e2m1-value, answered rightly, and ulp, answered wrongly. A trick stands
in a cell of its own or in the body of ``ulp``; what it finds out it tells as an exception.
"""

import textwrap
from pathlib import Path

import submissions

from labkit.grading.judge.runner import Grader
from labkit.grading.records import Outcome

LAB = "02_number_formats"
ONLY = ("e2m1-value", "ulp")

SETUP, *CELLS = submissions.cells(LAB, solved=True)
(E2M1,) = (cell for cell in CELLS if cell.startswith("def e2m1_value("))
(ULP,) = (cell for cell in CELLS if cell.startswith("def ulp("))
HONEST = submissions.work(LAB, [SETUP, E2M1, ULP], only=ONLY)

RIGHT = """\
def ulp(x):
    return 2.0 ** (max(math.frexp(x)[1] - 1 if x else -14, -14) - 10)
"""
WRONG = "return 2.0**-10 * abs(x)"


def ulp(body: str, *, end: str = WRONG) -> str:
    """A cell that defines ``ulp`` with this body before its end."""
    inner = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return f"def ulp(x):\n{inner}\n    {end}"


def attack(
    grader: Grader, *, cell: str = "pass", body: str = "pass", end: str = WRONG, seconds: float = 2
) -> dict[str, Outcome]:
    """Grade a submission with a trick in a cell, in ``ulp``, or in both."""
    sources = [SETUP, textwrap.dedent(cell), E2M1, ulp(body, end=end)]
    outcomes = grader.grade(submissions.work(LAB, sources, only=ONLY, seconds=seconds))
    assert [o.exercise for o in outcomes] == list(ONLY)
    return {o.exercise: o for o in outcomes}


def told(grader: Grader, code: str, *, seconds: float = 2) -> str:
    """What code inside ``ulp`` finds out: the message of the exception it ends in."""
    end = "raise ValueError(repr(found))"
    outcome = attack(grader, body=code, end=end, seconds=seconds)["ulp"]
    assert outcome.status == "error", outcome
    return outcome.message


def honest(grader: Grader) -> list[str]:
    """The statuses of an honest submission, graded now."""
    return [outcome.status for outcome in grader.grade(HONEST)]


def unharmed(grader: Grader, canary: Path) -> bool:
    """The host's file is as it was, and the next submission gets what it deserves."""
    return canary.read_text() == "sings" and honest(grader) == ["passed", "passed"]
