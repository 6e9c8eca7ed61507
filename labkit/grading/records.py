"""What is graded and what comes back: plain records between the intake and the runner."""

import hashlib
from dataclasses import dataclass, replace

CHECK = "check-"
"""How the grade_id of a lab's own check begins; the exercise follows."""

HIDDEN = "hidden-"
"""How the row of a hidden check begins, and its grade_id under nbgrader; the exercise follows."""

AGAIN = " The next run of the grader tries it again."
"""How the message of an outcome with ``rerun`` ends."""

TWICE = " It was so in two runs of the grader."
"""How it ends once a second run has had it, and no third waits for it."""


@dataclass(frozen=True, kw_only=True)
class GradedExercise:
    """One exercise of notebooks/manifest.json.

    ``names`` are those that its check asks for, in order; ``points`` what it grants; ``seconds``
    the CPU time that its check may take.
    """

    exercise: str
    names: tuple[str, ...]
    points: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is run of one submission of one lab.

    ``digest`` is the SHA-256 of the notebook's bytes. ``cells`` holds the sources in order: setup,
    exercise and learner-added cells; no check cells and no unchanged demonstrations. ``helpers``
    are the files handed in beside the notebook: name relative to its folder, and content.
    ``python`` is the version of Python that the notebook names, such as "3.13", or "".
    """

    lab: str
    digest: str
    cells: tuple[str, ...]
    exercises: tuple[GradedExercise, ...]
    helpers: tuple[tuple[str, bytes], ...] = ()
    python: str = ""

    @property
    def identity(self) -> str:
        """What stands for all that was handed in: the digest, with the helpers' where there are."""
        if not self.helpers:
            return self.digest
        parts = [hashlib.sha256(part).digest() for n, c in self.helpers for part in (_utf8(n), c)]
        return hashlib.sha256(b"".join([self.digest.encode(), *parts])).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one exercise of one submission is worth.

    ``status`` is "passed", "failed", "error", "not attempted" or "not graded"; ``message`` is one
    line for the student. ``cause`` says why there was no verdict on data: "time", "memory",
    "processes", "output", "crashed", "protocol", "cell" (a cell of the notebook raised or was
    refused) or "grader" (our own fault); "" where there was one. ``rerun`` says that another run
    may end otherwise: a limit on wall time was hit, or a signal from outside may have ended the
    code. ``hidden`` marks a check of the instructor's own. ``wall_seconds`` is the time that went
    by since the outcome before it, cells that ran in between included: those of one submission add
    up to the time that it took. ``score`` is what the check says that the answer is worth, from 0
    to 1; where the answer passed it is 1, or less in an open-ended exercise. ``shortcuts`` are the
    dotted names of forbidden functions that the answer used, but not by name. ``more`` are
    sentences on further cases that are wrong, after ``message``; ``wrong`` of ``cases`` failed,
    both 0 where that is not known. ``measured`` is what the judge measured of an answer to an
    open-ended exercise, as pairs.
    """

    exercise: str
    status: str
    message: str
    misconceptions: tuple[str, ...] = ()
    shortcuts: tuple[str, ...] = ()
    cause: str = ""
    rerun: bool = False
    hidden: bool = False
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    score: float = 0.0
    more: tuple[str, ...] = ()
    wrong: int = 0
    cases: int = 0
    measured: tuple[tuple[str, float], ...] = ()


def not_graded(exercise: str, message: str, *, hidden: bool = False) -> Outcome:
    """The outcome of an exercise at which the grader itself failed."""
    failed = {"status": "not graded", "cause": "grader"}
    return Outcome(exercise=exercise, message=message, hidden=hidden, **failed)


def settled(outcome: Outcome) -> Outcome:
    """An outcome that two runs have had, as one that is not tried again."""
    return replace(outcome, rerun=False, message=outcome.message.removesuffix(AGAIN) + TWICE)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to grade.

    ``jobs`` submissions run at a time. ``secret`` seeds what is random, with the submission and
    the exercise. ``extra`` is the path of the instructor's own checks. ``memory_bytes`` bounds all
    processes of one submission together, above what the warm server holds. ``minutes`` is the wall
    time of one submission, its cells run again included; None derives it from its exercises.
    """

    jobs: int = 1
    secret: bytes = b""
    extra: str | None = None
    sandboxed: bool = True
    memory_bytes: int = 2 * 2**30
    minutes: float | None = None


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
