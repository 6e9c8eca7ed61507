"""A card and its verdict as text: Markdown that reads as plain text too.

The terminal prints it, the deck of cards and a mock's report hold it, and a widget says it where
there is no page.
"""

from textwrap import indent

from labkit.interview.answers import Judgement, given_answer
from labkit.interview.cards import Card
from labkit.interview.choice_kinds import LETTERS
from labkit.interview.wording import WORDS, labelled


def card_text(card: Card, language: str) -> str:
    """A card: prompt, code or claim, and what there is to choose from."""
    face = card.question.face(card, language)
    blocks = [card.fill(card.question.prompt[language])]
    if face.claim:
        blocks.append("> " + face.claim)
    if face.code:
        lines = face.code.strip("\n").splitlines()
        blocks.append("\n".join(f"    {place:2}  {line}" for place, line in enumerate(lines, 1)))
    if face.stub:
        blocks.append("\n".join(f"    {line}".rstrip() for line in face.stub.splitlines()))
    if face.lefts:
        blocks.append(_numbered(face.lefts))
    if face.choices:
        lettered = [f"- {LETTERS[i]}) {choice}" for i, choice in enumerate(face.choices)]
        blocks.append("\n".join(lettered) if face.lettered else _numbered(face.choices))
    asked = [f"{label} [{unit}]" if unit else label for label, unit in face.parts]
    if any(asked):
        blocks.append("; ".join(part.strip() for part in asked))
    return "\n\n".join(blocks)


def _numbered(texts: tuple[str, ...]) -> str:
    return "\n".join(f"{place}. {text}" for place, text in enumerate(texts, 1))


def verdict_words(card: Card, judgement: Judgement, language: str, *, unknown: bool) -> str:
    """Right or not in a word; for free speech the share of the rubric's points."""
    if unknown:
        return WORDS["noted"][language]
    if card.question.spoken:
        return f"{100 * judgement.score:.0f} %"
    return WORDS["right" if judgement.correct else "wrong"][language]


def label(card: Card, language: str) -> str:
    """What the right answer is called."""
    return WORDS["model" if card.question.spoken else "answer"][language]


def given_text(card: Card, answer, language: str) -> str:
    """What was answered, in words; empty for "I do not know", speech and programs."""
    question = card.question
    if answer is None or question.spoken or question.program:
        return ""
    return given_answer(card, answer)[language]


def verdict_text(card: Card, answer, judgement: Judgement, language: str) -> str:
    """What was answered, whether it is right, what the mistake was, and the right answer.

    "I do not know", an answer of None, is no mistake.
    """
    said = verdict_words(card, judgement, language, unknown=answer is None)
    if judgement.said:
        said += (" " if language == "en" else "") + judgement.said[language]
    right = judgement.right[language].strip("\n")
    if card.question.prints and "\n" in right:
        right = "\n\n" + indent(right, "    ") + "\n"
    given = given_text(card, answer, language)
    lines = [labelled(WORDS["given"][language], given, language)] if given else []
    return "\n".join([*lines, said, labelled(label(card, language), right, language)])


def cell_text(card: Card) -> str:
    """The cell that decides the answer, with the drawn numbers set before it."""
    said = [f"{name} = {value!r}" for name, value in card.values.items()]
    return "\n".join([*said, card.question.cell.strip("\n")])
