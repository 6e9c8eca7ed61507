"""Predictions: a question that a learner answers before seeing what its cell computed.

A lab declares them in its module ``predictions``, and a cell asks one::

    step_at_2048 = NumberGuess(id="step-at-2048", lab=LAB, question="What is 2048 + 1?", ...)

    @predict(guesses.step_at_2048)
    def step():
        return torch.tensor(2048, dtype=torch.float16) + 1

The body runs when the cell runs, and what it returns is the truth. It stays in the kernel: the
card that the cell shows gets it with the first guess. Each kind of prediction reads a guess, says
whether it is right, and holds what to say of the wrong guesses that people make.
"""

import contextlib
import importlib
import io
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from labkit.formats.expressions import ExpressionError
from labkit.formats.written_numbers import read_number, same_unit

if TYPE_CHECKING:
    from labkit.labs.engine.widget_prediction import PredictionCard

SKIP = "skip"
"""What stands for a guess where the truth is asked for without one."""

SURENESS = {1: "guessing", 2: "fairly sure", 3: "certain"}

Reason = str | tuple[str, str]
"""What to say of a wrong guess: a sentence, or a sentence and the id of the idea behind the guess.

The id stands only where the guess leaves no other explanation.
"""


class UnclearGuess(ValueError):
    """A guess that is of another form than the question asks for; the message says which."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A question that is answered before its cell shows the truth.

    ``question`` is Markdown. The subclasses say what a guess is.
    """

    id: str
    lab: str
    question: str

    @property
    def how(self) -> str:
        """What a guess looks like."""
        raise NotImplementedError

    @property
    def choices(self) -> tuple[str, ...]:
        """What there is to choose from, as Markdown; nothing where a guess is typed."""
        return ()

    def read(self, guess: Any) -> Any:
        """A guess, or a truth, in the form in which they are compared; raises UnclearGuess."""
        raise NotImplementedError

    def is_right(self, guess: Any, truth: Any) -> bool:
        """Whether a guess that was read is right."""
        return guess == truth

    def reasons(self, guess: Any, truth: Any) -> list[Reason]:
        """What there is to say of a wrong guess that was read."""
        raise NotImplementedError

    def words(self, value: Any) -> str:
        """A guess or a truth that was read, as a text that ``read`` takes."""
        return str(value)

    def _unclear(self, guess: Any) -> UnclearGuess:
        return UnclearGuess(f"Your guess is {guess!r}; what is asked for is {self.how}.")


@dataclass(frozen=True, kw_only=True)
class NumberGuess(Prediction):
    """A number, inf or NaN.

    Args:
        unit: of the guess and of the truth; one of ``labkit.formats.written_numbers.UNITS``.
        slack: a guess that is off by at most this is right.
        by_number: what to say of a number, of "inf" or "nan", or of an interval (low, high), both
            ends included; the first that fits counts.
        otherwise: what to say of any other wrong number.
    """

    unit: str | None = None
    slack: float = 0.0
    by_number: Mapping[float | str | tuple[float, float], Reason] = field(default_factory=dict)
    otherwise: Reason = ""

    @property
    def how(self) -> str:
        """What a guess looks like."""
        number = f"a number in {self.unit}" if self.unit else "a number"
        return f"{number}, such as 12, 1.5 or 2**-3; inf and nan count too"

    def read(self, guess: Any) -> float:
        """The number, in the unit; raises UnclearGuess."""
        try:
            if hasattr(guess, "item"):
                guess = guess.item()
            if isinstance(guess, str):
                written = read_number(guess)
                small = written.value != 0 and -1 < written.value < 1
                if self.unit == "%" and written.unit is None and small:
                    raise UnclearGuess(f"{guess!r} may be a share: add the % sign, as in 50 %.")
                guess = same_unit(written, self.unit)
            elif isinstance(guess, bool):
                raise TypeError
            return float(guess)
        except OverflowError:
            return math.inf if guess > 0 else -math.inf
        except ExpressionError as error:
            raise UnclearGuess(f"{str(error)[0].upper()}{str(error)[1:]}.") from None
        except UnclearGuess:
            raise
        except (TypeError, ValueError, RuntimeError):  # no number, or a tensor of several
            raise self._unclear(guess) from None

    def is_right(self, guess: float, truth: float) -> bool:
        """Whether a guess is the truth, up to the slack."""
        return _same(guess, truth) or abs(guess - truth) <= self.slack

    def reasons(self, guess: float, truth: float) -> list[Reason]:
        """What there is to say of a wrong number."""
        for key, reason in self.by_number.items():
            low, high = key if isinstance(key, tuple) else (float(key), float(key))
            if _same(guess, low) or low <= guess <= high:
                return [reason]
        return [self.otherwise]

    def words(self, value: float) -> str:
        """The number with its unit: ``2048``, ``0.01 ms``."""
        short = f"{value:.6g}"
        number = short if float(short) == value else repr(value)
        return f"{number} {self.unit}" if self.unit and math.isfinite(value) else number


@dataclass(frozen=True, kw_only=True)
class ChoiceGuess(Prediction):
    """One of several choices.

    ``by_choice`` holds what there is to choose from, in order, and what to say of each where it is
    wrong.
    """

    by_choice: Mapping[str, Reason]

    @property
    def how(self) -> str:
        """What a guess looks like."""
        return "one of " + ", ".join(f'"{choice}"' for choice in self.by_choice)

    @property
    def choices(self) -> tuple[str, ...]:
        """What there is to choose from."""
        return tuple(self.by_choice)

    def read(self, guess: Any) -> str:
        """The choice, whatever its case; raises UnclearGuess."""
        for choice in self.by_choice:
            if _plain(guess) == _plain(choice):
                return choice
        raise self._unclear(guess)

    def reasons(self, guess: str, truth: str) -> list[Reason]:
        """What there is to say of a wrong choice."""
        return [self.by_choice[guess]]


@dataclass(frozen=True, kw_only=True)
class TickGuess(Prediction):
    """Those of several items that something is true of: a tuple of True and False, one an item.

    ``by_item`` holds the items, as Markdown, and what to say of each where it is ticked wrongly or
    missed. ``by_pattern`` holds what to say of a guess as a whole, before that.
    """

    by_item: Mapping[str, Reason]
    by_pattern: Mapping[tuple[bool, ...], Reason] = field(default_factory=dict)

    _SHORT = 14
    """Characters of an item that stands for itself in a sentence; others have their number."""

    @property
    def how(self) -> str:
        """What a guess looks like."""
        return "a list of the numbers that you tick, such as [1, 2]; [] for none"

    @property
    def choices(self) -> tuple[str, ...]:
        """The items."""
        return tuple(self.by_item)

    @property
    def names(self) -> tuple[str, ...]:
        """What the items are called in a sentence: their own words, or their numbers."""
        plain = [item.replace("`", "") for item in self.by_item]
        if all(len(item) <= self._SHORT for item in plain):
            return tuple(plain)
        return tuple(str(number) for number in range(1, len(plain) + 1))

    def read(self, guess: Any) -> tuple[bool, ...]:
        """Which are ticked, from numbers counted from 1, names, or True and False for each."""
        if isinstance(guess, str):
            guess = [] if guess.strip() in ("", "none") else guess.split(",")
        try:
            entries = [entry.item() if hasattr(entry, "item") else entry for entry in guess]
        except TypeError:
            entries = [None]
        said = [{"true": True, "false": False}.get(_plain(entry), entry) for entry in entries]
        judged = all(entry is True or entry is False for entry in said)
        if judged and len(said) == len(self.by_item):
            return tuple(said)
        ticked = {self._place(entry) for entry in said}
        if None in ticked:
            raise self._unclear(guess)
        return tuple(place in ticked for place in range(len(self.by_item)))

    def _place(self, entry: Any) -> int | None:
        numbers = [str(number) for number in range(1, len(self.by_item) + 1)]
        for called in ([_plain(name) for name in self.names], numbers):
            if not isinstance(entry, bool) and _plain(entry) in called:
                return called.index(_plain(entry))
        return None

    def reasons(self, guess: tuple[bool, ...], truth: tuple[bool, ...]) -> list[Reason]:
        """What there is to say of the guess, and of each item that it gets wrong."""
        found: list[Reason] = [self.by_pattern[guess]] if guess in self.by_pattern else []
        rows = zip(self.names, self.by_item.values(), guess, truth, strict=True)
        for name, reason, guessed, true in rows:
            if guessed != true:
                found.append(_about(name, reason))
        return found

    def words(self, value: tuple[bool, ...]) -> str:
        """The names of those that are ticked, with commas between them; "none" without any."""
        chosen = [name for name, ticked in zip(self.names, value, strict=True) if ticked]
        return ", ".join(chosen) or "none"


def predict(prediction: Prediction) -> Callable[[Callable[[], Any]], "PredictionCard"]:
    """Run the decorated function, keep what it returns, and ask for a guess of it.

    Returns:
        A decorator. The decorated name then is the card, whose ``guess(value, sure=2)`` answers by
        code; it is not the truth.
    """

    def ask(body: Callable[[], Any]) -> "PredictionCard":
        from IPython.display import display

        from labkit.labs.engine.widget_prediction import PredictionCard

        card = PredictionCard(prediction, prediction.read(_silently(body)), name=body.__name__)
        display(card)
        return card

    return ask


def explanation_of(prediction: Prediction) -> str:
    """The Markdown that stands behind a guess; "" where the lab's built solutions hold none."""
    module = f"labkit.labs.{prediction.lab.partition('_')[2]}.solutions"
    try:
        solutions = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and not module.startswith(error.name):
            raise
        return ""
    return getattr(solutions, "EXPLANATIONS", {}).get(prediction.id, "")


def split_reasons(reasons: Iterable[Reason]) -> tuple[list[str], list[str]]:
    """The sentences of some reasons, and the ids of the ideas behind them."""
    pairs = [(reason, None) if isinstance(reason, str) else reason for reason in reasons]
    ideas = dict.fromkeys(idea for _, idea in pairs if idea)
    return [said for said, _ in pairs if said], list(ideas)


def _silently(body: Callable[[], Any]) -> Any:
    """What a function returns; what it prints or warns of could tell the answer."""
    said = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        warnings.simplefilter("ignore")
        return body()


def _about(name: str, reason: Reason) -> Reason:
    if isinstance(reason, str):
        return f"{name}: {reason}"
    return f"{name}: {reason[0]}", reason[1]


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def _plain(entry: Any) -> str:
    return str(entry).replace("`", "").strip().casefold()
