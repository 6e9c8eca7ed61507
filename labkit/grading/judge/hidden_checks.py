"""An instructor's own checks: a file of check functions, written as a lab's ``checks`` are.

Such a file needs no edit of a notebook::

    from labkit.labs.engine import attempt, check, same_value

    LAB = "02_number_formats"
    POINTS = {"ulp": 3}                       # 1 for an exercise that is not named

    def run_ulp(ulp, seed):
        return [attempt(ulp, x) for x in inputs(seed)]

    @check(run_ulp)
    def check_ulp(gaps, seed):
        '''The gap above numbers of your own.'''

``check_<exercise>`` judges the exercise of that name. Where the functions take ``seed``, it is a
whole number below 2**32 made of an instructor's secret, the exercise and, for a variant of each
student's own, the student's id. The file stands alone: its text travels to where it is run.
"""

import types
from dataclasses import dataclass

from labkit.labs.engine import Check, CheckFailed, whose
from labkit.labs.engine.showing import passed


class HiddenCheckError(ValueError):
    """A file of checks that cannot be used, in one sentence."""


@dataclass(frozen=True)
class HiddenCheck:
    """One check of an instructor's file and what it grants."""

    check: Check
    points: int | float

    @property
    def takes_seed(self) -> bool:
        """Whether one of its two functions asks for a seed."""
        return self.check.takes_seed


def load_hidden(text: str, name: str) -> dict[str, HiddenCheck]:
    """The checks of a file's ``text`` by exercise; ``name`` is what errors call the file.

    Raises HiddenCheckError where the text does not run or holds no check.
    """
    module = types.ModuleType("hidden_checks")
    try:
        exec(compile(text, f"<{name}>", "exec"), vars(module))
    except (Exception, SystemExit) as error:
        if isinstance(error, KeyError) and error.args == ("LAB",):
            raise HiddenCheckError(
                f'{name} does not name its lab: write LAB = "02_number_formats", for one, above the'
                " checks"
            ) from None
        raise HiddenCheckError(
            f"{name} cannot be imported: {type(error).__name__}: {' '.join(str(error).split())}"
        ) from error
    own = [v for v in vars(module).values() if isinstance(v, Check)]
    own = [check for check in own if check.judge.__globals__ is vars(module)]
    if not own:
        raise HiddenCheckError(
            f"{name} holds no check: write `@check(run)` above a function `check_<exercise>`"
        )
    points = dict.fromkeys((check.exercise for check in own), 1) | getattr(module, "POINTS", {})
    for exercise, granted in points.items():
        if exercise not in [check.exercise for check in own]:
            raise HiddenCheckError(f"{name} gives points to {exercise!r}, which it does not check")
        if not isinstance(granted, int | float) or granted < 0:
            raise HiddenCheckError(
                f"{name} gives {exercise!r} {granted!r} points: give a number from 0 on"
            )
    return {check.exercise: HiddenCheck(check, points[check.exercise]) for check in own}


# In a grade cell


def must_have_passed(exercise: str, answer) -> None:
    """Raise CheckFailed unless a check has passed this very answer in this kernel.

    A grade cell that raises nothing earns full marks, whatever it has shown.
    """
    if whose(answer) != "your":
        raise CheckFailed(f"{exercise}: its check has not passed this answer, so it earns nothing.")


def run_hidden(exercise: str, answer, *, text: str, seed: int | None = None) -> None:
    """Run the hidden check of one exercise; raise CheckFailed with one line unless it passes."""
    hidden = load_hidden(text, "hidden checks")[exercise]
    if hidden.takes_seed and seed is None:
        raise CheckFailed(
            f"{exercise}: the hidden check got no seed. "
            "Grade with the nbgrader_config.py that labkit wrote."
        )
    result = hidden.check.result(answer, seed=seed or 0)
    if result.status != "passed":
        raise CheckFailed(f"{exercise}, hidden check: {result.status}. {result.message}")
    passed(f"{exercise}, hidden check", result.message)
