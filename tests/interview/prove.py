"""Prove a question: its answer recomputed, every known wrong answer judged wrong with its words.

``python -m tests.interview.prove FILE.toml [--quick] [--only ID]`` does so for one file, while it
is written; tests/interview/test_bank.py does it for the bank. ``failures`` gives a sentence for
each thing that does not hold.
"""

import argparse
import contextlib
import functools
import importlib
import io
import math
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

from labkit.interview import questions
from labkit.interview.answers import judge
from labkit.interview.cards import Card, Question, Spot, draw
from labkit.interview.question_parts import BankError, Unclear
from labkit.interview.typed_kinds import Predict
from labkit.interview.typed_numbers import same_output, within

SEEDS = 200


def failures(question: Question, seeds: int = SEEDS) -> Iterator[str]:
    """A sentence for each thing about the question that does not hold."""
    for seed in range(seeds if question.parameters else 1):
        try:
            card = draw(question, seed)
        except BankError as error:
            yield str(error)
            return
        said = [f"seed {seed} {dict(card.values)}: {told}" for told in _of_card(card)]
        yield from said
        if said:
            return  # the other seeds would say the same


def _of_card(card: Card) -> Iterator[str]:
    try:
        yield from _the_right_answer_is_right(card)
        yield from _known_wrongs_are_named(card)
        yield from _the_cell_agrees(card)
    except Unclear as unclear:
        yield f"an answer of its own cannot be read: {unclear}"


def right_answer(card: Card):
    """The right answer in the form that ``judge`` takes."""
    return card.question.right_answer(card)


def _the_right_answer_is_right(card: Card) -> Iterator[str]:
    right = right_answer(card)
    found = judge(card, right)
    if not found.correct or found.score != 1 or found.misconceptions:
        yield f"the right answer {right!r} is judged wrong: {found.said}"


def _known_wrongs_are_named(card: Card) -> Iterator[str]:
    for answer, wrong in card.question.wrong_answers(card):
        found = judge(card, answer)
        if found.correct:
            yield f"the wrong answer {answer!r} is judged right"
        elif card.question.program:
            continue  # a check of a lab has its own words
        elif card.fill(wrong.feedback.en) not in (found.said.en if found.said else ""):
            yield f"the wrong answer {answer!r} does not get its feedback"
        elif {wrong.misconception} - {None, *found.misconceptions}:
            yield f"the wrong answer {answer!r} is not tied to {wrong.misconception!r}"


@functools.cache
def _compiled(code: str):
    return compile(code, "<cell>", "exec")


def _run(code: str, card: Card) -> tuple[dict, str]:
    import ml_dtypes
    import numpy as np
    import torch  # here: most tests that import this module run no cell

    names = {
        "torch": torch, "math": math, "Fraction": Fraction, "ml_dtypes": ml_dtypes, "np": np,
    }  # fmt: skip
    for name, value in card.values.items():
        names[name] = SimpleNamespace(**value) if isinstance(value, dict) else value
    printed = io.StringIO()
    torch.manual_seed(0)
    with contextlib.redirect_stdout(printed):
        exec(_compiled(code), names)
    return names, printed.getvalue()


def _the_cell_agrees(card: Card) -> Iterator[str]:
    question = card.question
    if isinstance(question, Predict):
        printed = _run(card.fill(question.code), card)[1]
        if not same_output(printed, right_answer(card)):
            yield f"the code prints {printed!r}, the answer says {question.right_answer(card)!r}"
    if question.cell is None:
        if question.verified == "computed" and not question.prints:
            yield "verified = computed, but there is no cell"
        return
    try:
        names, _ = _run(question.cell, card)
    except Exception as error:
        yield f"the cell raises {type(error).__name__}: {error}"
        return
    if isinstance(question, Spot):
        if names.get("holds") is not question.holds:
            yield f"the cell says holds = {names.get('holds')!r}, the question {question.holds}"
    elif "answer" not in names:
        if card.expected:
            yield "the cell sets no answer"
    elif card.expected:
        yield from _numbers_agree(card, names["answer"])
    elif not question.spoken and not judge(card, names["answer"]).correct:
        yield f"the cell gives {names['answer']!r}"


def _numbers_agree(card: Card, found) -> Iterator[str]:
    given = found if isinstance(found, list | tuple) else [found]
    if len(given) != len(card.expected):
        yield f"the cell gives {len(given)} numbers, {len(card.expected)} are asked for"
        return
    for value, expected, part in zip(given, card.expected, card.question.numbers, strict=True):
        if not within(_plain(value), expected, part.tolerance):
            yield f"the cell gives {value!r}, the expression {expected!r} ({float(expected):g})"


def _plain(value):
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and math.isfinite(value):
        return Fraction(value)
    return int(value) if isinstance(value, bool) else value


def _asked(file: Path, mistakes: list[str]) -> list[Question]:
    """The questions of a topic's file, or the parts of a long problem's."""
    if file.resolve().parent == questions.PROBLEMS:
        topics = {path.stem: None for path in questions.FOLDER.glob("*.toml")}
        problem = questions._read_problem(file, topics, mistakes)
        return [part.question for part in problem.parts] if problem else []
    topic = questions._read(file, mistakes)
    return list(topic.questions) if topic else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--quick", action="store_true", help="10 seeds instead of 200")
    parser.add_argument("--only", help="one question's id")
    options = parser.parse_args()
    importlib.import_module("torch").set_num_threads(1)
    mistakes: list[str] = []
    asked = _asked(options.file, mistakes)
    for mistake in mistakes:
        print(mistake)
    proved = 0
    for question in asked:
        if options.only in (None, question.id):
            said = list(failures(question, 10 if options.quick else SEEDS))
            proved += not said
            for each in said:
                print(f"{options.file.name}: {question.id}: {each}")
    kinds = [question.kind for question in asked]
    print(f"{proved} proved; kinds: { ({kind: kinds.count(kind) for kind in sorted(set(kinds))}) }")
    return int(bool(mistakes) or proved < (1 if options.only else len(kinds)))


if __name__ == "__main__":
    sys.exit(main())
