"""Predict, then look: a guess is collected before a cell's body runs, and set beside the truth."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from labkit.base import progress
from labkit.labs.engine import showing

_SURENESS = {1: "guessing", 2: "fairly sure", 3: "certain"}
_OPEN = "var(--jp-info-color1, #1565c0)"

_Truth = TypeVar("_Truth")
_Compared = float | str | tuple["_Compared", ...]


@dataclass(frozen=True)
class Prediction:
    """A question asked before its cell runs.

    ``form`` is "number" (inf included), words to pick from, or the length of a list of True and
    False. ``usual`` maps guesses that people make to what to say of them: a sentence, or a sentence
    and the id of the misconception behind the guess.
    """

    id: str
    lab: str
    form: str | int | tuple[str, ...]
    usual: Mapping[_Compared, tuple[str, str | None]]


def predict(
    id: str,
    *,
    lab: str,
    form: str | int | tuple[str, ...],
    usual: Mapping[Any, str | tuple[str, str]],
) -> Prediction:
    """Declare a prediction; see ``Prediction``."""
    said: dict[_Compared, tuple[str, str | None]] = {
        _comparable(guess): (words, None) if isinstance(words, str) else words
        for guess, words in usual.items()
    }
    return Prediction(id, lab, form, MappingProxyType(said))


def reveal(
    guess: Any, sure: int, prediction: Prediction
) -> Callable[[Callable[[], _Truth]], _Truth | None]:
    """Run the decorated function once there is a guess, and set the guess beside what it returns.

    Args:
        guess: a number, "inf", a word, a list in order; ``...`` while there is none yet; "skip"
            shows the truth and records nothing.
        sure: 1 guessing, 2 fairly sure, 3 certain.
        prediction: which question this is.

    Returns:
        A decorator; the decorated name then holds the truth, or None while there is no guess.
    """

    def decorate(body: Callable[[], _Truth]) -> _Truth | None:
        if guess is ...:
            showing.line('No guess yet: write one where the dots are, or "skip".', color=_OPEN)
            return None
        slip = _slip(guess, sure, prediction.form)
        if slip:
            showing.line(slip, color=_OPEN)
            return None
        # A guess is used once: where the next one has a slip, this one must not answer for it.
        if "guess" in body.__globals__:
            body.__globals__["guess"] = ...
        truth = body()
        if guess == "skip":
            showing.line(f"It is {_words(truth)}.", color=_OPEN)
            return truth
        correct = _comparable(guess) == _comparable(truth)
        said, misconception = prediction.usual.get(_comparable(guess), ("", None))
        trouble = progress.record(
            "prediction",
            lab=prediction.lab,
            item=prediction.id,
            status="right" if correct else "wrong",
            guess=_words(guess),
            truth=_words(truth),
            sure=sure,
            correct=correct,
            misconceptions=[misconception] if misconception and not correct else [],
        )
        verdict = "You were right" if correct else f"You said {_words(guess)}"
        if not correct and isinstance(truth, list) and isinstance(guess, (list, tuple)):
            said = f"{said} Look again at {_differing(guess, truth)}.".strip()
        showing.line(
            f"{verdict} ({_SURENESS[sure]}). It is {_words(truth)}. {said}".rstrip(), color=_OPEN
        )
        if trouble:
            showing.aside("Progress:", trouble)
        return truth

    return decorate


def _slip(guess: Any, sure: int, form: str | int | tuple[str, ...]) -> str:
    """What is wrong with the form of a guess; empty where nothing is."""
    if sure not in _SURENESS:
        return f"sure is {sure!r}; it is 1 (guessing), 2 (fairly sure) or 3 (certain)."
    if isinstance(guess, str) and guess == "skip":
        return ""
    if isinstance(form, tuple):
        fits, wanted = _comparable(guess) in map(_comparable, form), f"one of {', '.join(form)}"
    elif isinstance(form, int):
        fits = isinstance(guess, (list, tuple)) and len(guess) == form
        fits = fits and all(type(entry) is bool for entry in guess)
        wanted = f"a list of {form}, each True or False"
    else:
        comparable = _comparable(guess)
        fits, wanted = isinstance(comparable, float) or comparable == "nan", 'a number, or "inf"'
    return "" if fits else f"Your guess is {guess!r}; {wanted} is asked for."


def _differing(guess: Sequence[Any], truth: Sequence[Any]) -> str:
    """The places, counted from 1, at which a guessed list is not the true one."""
    pairs = enumerate(zip(guess, truth, strict=True), start=1)
    places = [str(place) for place, (a, b) in pairs if _comparable(a) != _comparable(b)]
    return "number " + ", ".join(places)


def _comparable(value: Any) -> _Compared:
    """A guess in the form in which guesses are compared: numbers as floats, words in lower case."""
    if isinstance(value, (list, tuple)):
        return tuple(_comparable(item) for item in value)
    if hasattr(value, "item"):
        value = value.item()
    try:
        value = float(value)
    except (TypeError, ValueError):
        return str(value).strip().casefold()
    return "nan" if math.isnan(value) else value


def _words(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_words(item) for item in value)
    if hasattr(value, "item"):
        value = value.item()
    return f"{value:g}" if isinstance(value, float) and value == round(value, 3) else str(value)
