"""PredictionCard: a question, an answer and how sure; then the truth and why it is so.

Nothing of the truth is in the card's state before there is a guess or a wish to be shown it. The
first guess goes into the log. Who runs the cell again sees that guess again.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from IPython.display import display

from labkit.base import progress
from labkit.labs.engine import rendered
from labkit.labs.engine.described import AskingWidget
from labkit.labs.engine.predictions import (
    SKIP,
    SURENESS,
    Prediction,
    UnclearGuess,
    explanation_of,
    split_reasons,
)

ASKING, ANSWERED = "asking", "answered"
"""The states of a card; a card that showed the truth without a guess is answered too."""


@dataclass(frozen=True, kw_only=True)
class _Verdict:
    """What is said of a guess, or of none: ``correct`` is None where there was none to judge."""

    said: str
    correct: bool | None = None
    reasons: tuple[str, ...] = ()


class _Markdown:
    """A text that a notebook shows as Markdown and everything else as it is."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def _repr_markdown_(self) -> str:
        return self._text


class PredictionCard(AskingWidget):
    """One prediction; ``guess(value, sure=2)`` answers by code what the page answers by keyboard.

    ``truth`` is what the cell computed, as the prediction reads it, and ``name`` what the cell
    calls the card. ``describe()`` is the card in plain text.
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    def __init__(self, prediction: Prediction, truth: Any, *, name: str = "prediction") -> None:
        super().__init__()
        self._prediction, self._truth, self._name = prediction, truth, name
        self._verdict: _Verdict | None = None
        self._unclear = self._trouble = ""
        self._recall()
        self._show()

    def guess(self, guess: Any, sure: int = 2) -> None:
        """Answer by code, and print what the card then says.

        Args:
            guess: a number, a choice, or a list of what you tick; "skip" shows the truth and logs
                nothing. Only the first guess is logged: a later one has seen the truth.
            sure: 1 guessing, 2 fairly sure, 3 certain.
        """
        try:
            said = self._said_of(guess, sure)
        except UnclearGuess as unclear:
            display(_Markdown(str(unclear)))
            return
        self._show()
        display(_Markdown(self._ending(said)))

    def describe(self) -> str:
        """Say in words all that the card shows."""
        asked = [f"Predict: {self._prediction.question}"]
        asked += [f"{place}. {item}" for place, item in enumerate(self._prediction.choices, 1)]
        if self._verdict:
            return "\n".join([*asked, "", self._ending(self._verdict)])
        call = f"{self._name}.guess(..., sure=2)"
        return "\n".join(
            [
                *asked,
                f"Your guess, in a cell: {call} with {self._prediction.how}.",
                'sure: 1 guessing, 2 fairly sure, 3 certain. A guess of "skip" shows the answer.',
            ]
        )

    def _do(self, asked: dict[str, Any]) -> None:
        """Do what the page asks: {seq, do, value, sure}. What is unclear is said on the card."""
        if self._verdict:
            return  # a key that was pressed twice
        self._unclear = ""
        try:
            self._said_of(SKIP if asked["do"] == "show" else asked["value"], asked.get("sure", 2))
        except UnclearGuess as unclear:
            self._unclear = str(unclear)

    def _said_of(self, guess: Any, sure: int) -> _Verdict:
        """What is said of a guess; the first one stays on the card. Raises UnclearGuess."""
        if isinstance(guess, str) and guess.strip().casefold() == SKIP:
            said = _Verdict(said=self._answer_in_words())
        else:
            if sure not in SURENESS:
                raise UnclearGuess(
                    f"sure is {sure!r}; it is 1 (guessing), 2 (fairly sure) or 3 (certain)."
                )
            said = self._judged(self._prediction.read(guess), sure, log=self._verdict is None)
        self._verdict = self._verdict or said
        return said

    def _judged(
        self, guess: Any, sure: int | None, *, log: bool, said: str = "You said"
    ) -> _Verdict:
        """The verdict on a guess that was read."""
        prediction, truth = self._prediction, self._truth
        correct = prediction.is_right(guess, truth)
        reasons, ideas = split_reasons([] if correct else prediction.reasons(guess, truth))
        words = prediction.words(guess)
        if log:
            self._trouble = (
                progress.record(
                    "prediction",
                    lab=prediction.lab,
                    item=prediction.id,
                    status="right" if correct else "wrong",
                    guess=words,
                    truth=prediction.words(truth),
                    sure=sure,
                    correct=correct,
                    misconceptions=ideas,
                )
                or ""
            )
        said += f" {words} ({SURENESS[sure]})" if sure in SURENESS else f" {words}"
        exactly = prediction.words(truth)
        if not correct:
            said += f". The answer is {exactly}."
        else:
            said += ", and that is right." + (f" Exactly: {exactly}." if exactly != words else "")
        return _Verdict(said=said, correct=correct, reasons=tuple(reasons))

    def _recall(self) -> None:
        """Take up the first guess that the log holds."""
        prediction = self._prediction
        try:
            log = progress.events(lab=prediction.lab, kind="prediction")
        except progress.ProgressError as problem:
            self._trouble = str(problem)
            return
        made = [event.detail for event in log if event.item == prediction.id]
        # One that `labkit start` found in an older copy has not been judged yet.
        judged = [detail for detail in made if "correct" in detail]
        if not made:
            return
        first = (judged or made)[0]
        words, sure = str(first.get("guess")), first.get("sure")
        try:
            guess = prediction.read(words)
        except UnclearGuess:  # of another form: the question has changed since
            said = f"Earlier you said {words}. {self._answer_in_words()}"
            self._verdict = _Verdict(said=said)
        else:
            said = "Earlier you said"
            self._verdict = self._judged(guess, sure, log=not judged, said=said)

    def _answer_in_words(self) -> str:
        return f"The answer is {self._prediction.words(self._truth)}."

    def _ending(self, verdict: _Verdict) -> str:
        """A verdict and the explanation, as Markdown."""
        parts = [verdict.said, *verdict.reasons, explanation_of(self._prediction), self._trouble]
        return "\n\n".join(part for part in parts if part)

    def _numbers(self) -> dict[str, Any]:
        prediction, verdict = self._prediction, self._verdict
        view: dict[str, Any] = {
            "state": ANSWERED if verdict else ASKING,
            "form": type(prediction).__name__,
            "question": rendered.text(prediction.question),
            "choices": [rendered.line_html(choice) for choice in prediction.choices],
            "names": list(prediction.choices),
            "how": prediction.how,
            "unit": getattr(prediction, "unit", None) or "",
            "sureness": list(SURENESS.values()),
            "unclear": self._unclear,
            "trouble": self._trouble,
        }
        if verdict:
            view |= {
                "said": verdict.said,
                "correct": verdict.correct,
                "reasons": [rendered.line_html(reason) for reason in verdict.reasons],
                "explanation": rendered.text(explanation_of(prediction)),
            }
        return view
