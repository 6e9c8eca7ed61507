"""Wrong answers that are the solution with one change, and the solutions that they are cut from.

The solutions stand in ``labkit.labs.<topic>.solutions``, which ``labkit build`` takes from the
labs' sources. A slip's answer is made when it is first asked for: the text of its exercise, with
the change, is run in a copy of that module's names.
"""

import functools
import importlib
import inspect
import linecache
import re
import zlib
from dataclasses import dataclass
from types import ModuleType


class SlipError(Exception):
    """A slip that cannot be made, with the exercise's text where the change does not apply."""


@dataclass(frozen=True)
class Slip:
    """A known wrong answer: the solution of ``exercise`` with one change.

    ``cut`` is taken out of its text, or ``swap[0]`` replaced by ``swap[1]``. Read as a
    ``KnownWrong``: ``answer``, ``misconception`` and ``question``.
    """

    lab: str
    exercise: str
    misconception: str
    question: str
    cut: str | None = None
    swap: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if (self.cut is None) == (self.swap is None):
            raise SlipError(f"{self.exercise}: a slip has cut=... or swap=(old, new), and one only")

    @functools.cached_property
    def answer(self) -> object:
        """The wrong answer; raises SlipError where the change applies not exactly once."""
        text = self.text()
        number = zlib.crc32(text.encode())
        name = f"<slip {self.lab} {self.exercise} {self.misconception} {number:08x}>"
        try:
            return answer_of(text, self.lab, self.exercise, name)
        except SyntaxError as error:
            raise SlipError(f"{self._where()}: {error.msg}\n{text}") from None

    def text(self) -> str:
        """The exercise's text with the change."""
        right = text_of(solutions_of(self.lab), self.exercise)
        old, new = self.swap or (self.cut or "", "")
        if right.count(old) != 1:
            raise SlipError(
                f"{self._where()}: {old!r} stands {right.count(old)} times in the solution; "
                f"once is wanted:\n{right}"
            )
        start = right.index(old)
        before, after = right[:start], right[start + len(old) :]
        last, rest = before.rpartition("\n")[2], after.partition("\n")[0]
        if self.swap is None and not last.strip() and not rest.partition("#")[0].strip():
            new = "pass"  # whole lines are cut, and what is left of the block stays a block
        return before + new + after

    def _where(self) -> str:
        return f"slip {self.misconception!r} of {self.exercise} in {self.lab}"


def answer_of(text: str, lab: str, exercise: str, name: str, **more: object) -> object:
    """The answer that a text defines, run in a copy of the names of the lab's solutions.

    Args:
        text: Python that defines the exercise's names.
        lab: a lab's name, such as "02_number_formats".
        exercise: the exercise's id.
        name: what tracebacks call the text.
        more: names that the text may use besides.

    Raises what the text raises, and KeyError where it does not define a name of the exercise.
    """
    solutions = solutions_of(lab)
    # Without a time of change linecache keeps it, as it keeps a notebook's cells.
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    asked = solutions.EXERCISES[exercise]
    names = {key: value for key, value in vars(solutions).items() if key not in asked}
    names |= {"__name__": f"{solutions.__name__}.slips", "__file__": name, **more}
    exec(compile(text, name, "exec"), names)
    answers = tuple(names[each] for each in asked)
    return answers[0] if len(answers) == 1 else answers


def solutions_of(lab: str) -> ModuleType:
    """A lab's own answers: ``solutions_of("02_number_formats").ulp``."""
    topic = lab.partition("_")[2]
    try:
        return importlib.import_module(f"labkit.labs.{topic}.solutions")
    except ModuleNotFoundError as error:
        raise SlipError(
            f"{error}: slips are cut from the solutions that `labkit build {lab}` writes"
        ) from None


def text_of(solutions: ModuleType, exercise: str) -> str:
    """The text of one exercise's solution in a solutions module."""
    found = re.search(
        rf"^# Exercise: {re.escape(exercise)}\n(.*?)^# End$",
        inspect.getsource(solutions),
        re.MULTILINE | re.DOTALL,
    )
    if found is None:
        listed = ", ".join(solutions.EXERCISES)
        raise SlipError(f"{solutions.__name__} has no exercise {exercise!r}; it has {listed}")
    return found[1]
