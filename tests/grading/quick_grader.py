"""A grader that looks at the text of the cells, for tests of what stands around the runner.

``# passes``, ``# fails``, ``# believes``, ``# stops``, ``# breaks``, ``# again`` behind an answer's
head decide; without one the answer is not attempted.
"""

import hashlib
import time
from dataclasses import replace

from labkit.__main__ import parse
from labkit.grading import command
from labkit.grading.records import Outcome, Settings, Work

_OUTCOMES = {
    "passes": {"status": "passed", "message": "Right.", "score": 1.0},
    "fails": {"status": "failed", "message": "`f(3)` is 17, and 4 is wanted."},
    "believes": {
        "status": "failed",
        "message": "That is eps * x.",
        "misconceptions": ("ulp-is-relative",),
    },
    "stops": {"status": "error", "message": "It took longer than 10 s.", "cause": "time"},
    "again": {"status": "not graded", "message": "Wall time.", "cause": "time", "rerun": True},
}


def unlike_any_other(seed: str) -> str:
    """A message of ten words that no other seed has; of letters, since numbers are left out."""
    made = hashlib.shake_256(seed.encode()).hexdigest(30)
    letters = made.translate(str.maketrans("0123456789", "ghijklmnop"))
    return " ".join(letters[n : n + 6] for n in range(0, 60, 6))


class QuickGrader:
    """In the place of the runner's ``Grader``; ``graded`` lists what it was asked for."""

    graded: list[Work] = []  # noqa: RUF012 - shared by all of a test, which makes a class of its own
    seconds = 0.0

    def __init__(self, settings: Settings):
        self.settings = settings

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def grade(self, work: Work) -> list[Outcome]:
        type(self).graded.append(work)
        time.sleep(self.seconds)
        outcomes = []
        for exercise in work.exercises:
            cells = [cell for cell in work.cells if f"def {exercise.names[0]}(" in cell]
            head = f"def {exercise.names[0]}(x):  # "
            words = cells[-1].partition(head)[2].split() if cells else []
            word = words[0] if words else ""
            if word == "breaks":
                raise RuntimeError("the grader's own fault")
            found = _OUTCOMES.get(word, {"status": "not attempted", "message": "Write it."})
            outcomes.append(Outcome(exercise=exercise.exercise, cpu_seconds=time.time(), **found))
        if self.settings.extra:
            hidden = [one for one in outcomes if one.exercise == "ulp"]
            outcomes += [replace(one, message="Hidden.", hidden=True) for one in hidden]
        return outcomes


def answer(word: str, name: str = "ulp") -> str:
    return f"def {name}(x):  # {word}\n    return x"


def grade_command(words, grader=None) -> int:
    """``labkit grade WORDS`` with another grader than the runner's; its exit status."""
    return command.run_grade(parse(["grade", *(str(word) for word in words)]), grader)
