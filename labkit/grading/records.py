"""What is graded and what comes back: plain records between the intake and the runner."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Exercise:
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
    exercise and learner-added cells; no check cells and no unchanged demonstrations. ``python`` is
    the version of Python that the notebook names, such as "3.13", or "".
    """

    lab: str
    digest: str
    cells: tuple[str, ...]
    exercises: tuple[Exercise, ...]
    helpers: tuple[tuple[str, bytes], ...] = ()
    python: str = ""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one exercise of one submission is worth.

    ``status`` is "passed", "failed", "error", "not attempted" or "not graded"; ``message`` is one
    line for the student. ``cause`` says why there was no verdict on data: "time", "memory",
    "processes", "output", "crashed", "protocol", "cell" (a cell of the notebook raised or was
    refused) or "grader" (our own fault); "" where there was one. ``rerun`` says that the limit on
    wall time was hit, so that another run may end otherwise. ``hidden`` marks a check of the
    instructor's own.
    """

    exercise: str
    status: str
    message: str
    misconceptions: tuple[str, ...] = ()
    cause: str = ""
    rerun: bool = False
    hidden: bool = False
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to grade.

    ``jobs`` submissions run at a time. ``secret`` seeds what is random, with the submission and
    the exercise. ``extra`` is the path of the instructor's own checks. ``memory_bytes`` bounds all
    processes of one submission together, above what the warm server holds.
    """

    jobs: int = 1
    secret: bytes = b""
    extra: str | None = None
    sandboxed: bool = True
    memory_bytes: int = 2 * 2**30
