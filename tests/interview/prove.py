"""Prove a question: its answer recomputed, every known wrong answer judged wrong with its words.

``python -m tests.interview.prove FILE.toml [--quick] [--only ID]`` does so for one file, while it
is written; tests/interview/test_bank.py does it for the bank. ``failures`` gives a sentence for
each thing that does not hold.
"""

import argparse
import contextlib
import functools
import io
import math
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import torch

from labkit.interview import questions
from labkit.interview.answers import Unclear, judge, run_code, same_output
from labkit.interview.questions import BankError, Card, Question, draw, within

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
    """The right answer in the form of its kind."""
    question = card.question
    match question.kind:
        case "select":
            return [option.key for option in question.options if option.right]
        case "choice":
            return next(option.key for option in question.options if option.right)
        case "spot" if hasattr(question, "options"):
            return next(option.key for option in question.options if option.right)
        case "spot":
            return question.line
        case "numeric":
            return [text(value) for value in card.expected]
        case "bits":
            return f"{int(card.expected[0]):0{question.width}b}"
        case "order":
            return [item.key for item in question.items]
        case "match":
            return [pair.right for pair in question.pairs]
        case "predict":
            return card.fill(question.answer)
        case "free":
            return list(range(1, len(question.rubric) + 1))
    return question.solution


def text(value) -> str:
    """A number as an exact text."""
    if isinstance(value, float):
        return str(value)
    top, bottom = value.as_integer_ratio()
    return str(top) if bottom == 1 else f"{top}/{bottom}"


def wrong_answers(card: Card) -> Iterator[tuple[object, str, str]]:
    """Every known wrong answer: the answer, the feedback it must get, its misconception."""
    question = card.question
    for option in getattr(question, "options", ()):
        if not option.right:
            answer = option.key
            if question.kind == "select":
                answer = [*right_answer(card), option.key]
            yield answer, option.feedback.en, option.misconception
    for place, wrong in enumerate(getattr(question, "wrong", ())):
        match question.kind:
            case "numeric":
                answer = right_answer(card)
                answer[wrong.part - 1] = text(card.wrong[place])
            case "bits":
                answer = f"{int(card.wrong[place]):0{question.width}b}"
            case "order":
                answer = list(wrong.order)
            case "match":
                answer = right_answer(card)
                answer[wrong.pair - 1] = wrong.right
            case "predict":
                answer = card.fill(wrong.answer)
            case "spot":
                answer = wrong.line
            case _:
                continue
        yield answer, wrong.feedback.en, wrong.misconception


def _the_right_answer_is_right(card: Card) -> Iterator[str]:
    if card.question.kind == "code":
        result = run_code(card.question, card.question.solution)
        if result.status != "passed":
            yield f"the solution does not pass: {result.message}"
        for place, wrong in enumerate(card.question.wrong, start=1):
            result = run_code(card.question, wrong.code)
            if result.status == "passed":
                yield f"wrong[{place}]: the wrong code passes"
        return
    found = judge(card, right_answer(card))
    if not found.correct or found.score != 1 or found.misconceptions:
        yield f"the right answer {right_answer(card)!r} is judged wrong: {found.said}"


def _known_wrongs_are_named(card: Card) -> Iterator[str]:
    for answer, feedback, misconception in wrong_answers(card):
        found = judge(card, answer)
        if found.correct:
            yield f"the wrong answer {answer!r} is judged right"
        elif card.fill(feedback) not in (found.said.en if found.said else ""):
            yield f"the wrong answer {answer!r} does not get its feedback"
        elif misconception not in found.misconceptions:
            yield f"the wrong answer {answer!r} is not tied to {misconception!r}"


@functools.cache
def _compiled(code: str):
    return compile(code, "<cell>", "exec")


def _run(code: str, card: Card) -> tuple[dict, str]:
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
    if question.kind == "predict":
        printed = _run(card.fill(question.code), card)[1]
        if not same_output(printed, card.fill(question.answer)):
            yield f"the code prints {printed!r}, the answer says {card.fill(question.answer)!r}"
    if question.cell is None:
        if question.verified == "computed" and question.kind not in ("predict", "code"):
            yield "verified = computed, but there is no cell"
        return
    try:
        names, _ = _run(question.cell, card)
    except Exception as error:
        yield f"the cell raises {type(error).__name__}: {error}"
        return
    if question.kind == "spot":
        if names.get("holds") is not question.holds:
            yield f"the cell says holds = {names.get('holds')!r}, the question {question.holds}"
        return
    if "answer" not in names:
        if question.kind in ("numeric", "bits"):
            yield "the cell sets no answer"
        return
    found = names["answer"]
    if question.kind in ("numeric", "bits"):
        given = found if isinstance(found, list | tuple) else [found]
        tolerances = [part.tolerance for part in getattr(question, "parts", ())] or [None]
        if len(given) != len(card.expected):
            yield f"the cell gives {len(given)} numbers, {len(card.expected)} are asked for"
            return
        for value, expected, tolerance in zip(given, card.expected, tolerances, strict=True):
            if not within(_plain(value), expected, tolerance):
                yield f"the cell gives {value!r}, the expression {expected!r} ({float(expected):g})"
    elif question.kind == "select":
        if sorted(found) != sorted(right_answer(card)):
            yield f"the cell gives {found!r}"
    elif question.kind != "free" and found != right_answer(card):
        yield f"the cell gives {found!r}"


def _plain(value):
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and math.isfinite(value):
        return Fraction(value)
    return int(value) if isinstance(value, bool) else value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--quick", action="store_true", help="10 seeds instead of 200")
    parser.add_argument("--only", help="one question's id")
    options = parser.parse_args()
    torch.set_num_threads(1)
    mistakes: list[str] = []
    topic = questions._read(options.file, mistakes)
    for mistake in mistakes:
        print(mistake)
    proved = 0
    for question in topic.questions if topic else ():
        if options.only in (None, question.id):
            said = list(failures(question, 10 if options.quick else SEEDS))
            proved += not said
            for each in said:
                print(f"{options.file.name}: {question.id}: {each}")
    kinds = [question.kind for question in topic.questions] if topic else []
    print(f"{proved} proved; kinds: { ({kind: kinds.count(kind) for kind in sorted(set(kinds))}) }")
    return int(bool(mistakes) or proved < (1 if options.only else len(kinds)))


if __name__ == "__main__":
    sys.exit(main())
