"""What an answer to a card is worth, and what to say about it.

``judge`` takes a card and an answer in the form of its kind and returns a ``Judgement``; the kind's
class, in ``choice_kinds`` or ``typed_kinds``, says which form that is. ``read_answer`` turns
a line that somebody typed into that form. An answer that cannot be understood is no wrong answer:
it raises ``Unclear`` with what would be understood, and may be given again. ``None`` is "I do not
know".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.interview.cards import Card
from labkit.interview.question_parts import Text, Unclear

LONGEST = 20_000
"""Characters of an answer; more is refused unread."""

SPEECH_LIMIT = 2000
"""Characters that are kept of the line that sums a speech up."""

GIVEN_LIMIT = 300
"""Characters of a typed answer that a report shows."""


@dataclass(frozen=True)
class Judgement:
    """What an answer is worth: ``score`` from 0 to 1, 1 where it is ``correct``.

    ``said`` names the mistake where it is a known one; ``right`` is the right answer in words;
    ``misconceptions`` are the ids of the wrong ideas that the answer shows.
    """

    correct: bool
    score: float
    said: Text | None
    right: Text
    misconceptions: tuple[str, ...] = ()


def judge(card: Card, answer) -> Judgement:
    """Judge one answer. Raises Unclear, and TypeError for a form that its kind does not know."""
    right = right_answer(card)
    if answer is None:
        return Judgement(False, 0.0, None, right)
    entries = answer if isinstance(answer, Sequence) and not isinstance(answer, str) else [answer]
    length = sum(len(str(entry)) for entry in entries)
    if length > LONGEST:
        raise Unclear(
            f"The answer has {length} characters; at most {LONGEST} are read.",
            f"答案有 {length} 个字符；最多读取 {LONGEST} 个。",
        )
    found = card.question.judge(card, answer)
    said = found.said and card.fill_both(found.said)
    ideas = tuple(dict.fromkeys(found.misconceptions))
    return Judgement(found.correct, found.score, said, right, ideas)


def read_answer(card: Card, text: str):
    """The answer that a typed line means, in the form that ``judge`` takes.

    Options are numbered as shown, from 1; items and right sides have letters, from a. An empty
    line, ``?`` or the words themselves are "I do not know". Raises Unclear where the line cannot
    be understood.
    """
    text = text.strip()
    return None if not text or is_unknown(text) else card.question.read(card, text)


def is_unknown(text: str) -> bool:
    """Whether a typed line says "I do not know"."""
    said = text.strip().casefold().replace("’", "'").rstrip(".。")
    return said in ("?", "？", "i do not know", "i don't know", "don't know", "idk", "不知道")


def right_answer(card: Card) -> Text:
    """The right answer in words."""
    return card.question.right(card)


def given_answer(card: Card, answer) -> Text:
    """What was answered, in words; of what was typed at most ``GIVEN_LIMIT`` characters.

    ``answer`` is in the form that ``judge`` takes, for free speech the line that sums it up.
    """
    if answer is None:
        return Text(en="I do not know", zh="不知道")
    said = card.question.given(card, answer)
    if card.keys:  # the bank's own words
        return said
    return Text(en=_cut(said.en), zh=_cut(said.zh))


def _cut(typed: str) -> str:
    return typed if len(typed) <= GIVEN_LIMIT else typed[:GIVEN_LIMIT] + " ..."
