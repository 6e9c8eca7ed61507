"""The bank as an Anki deck: one note a question, with ids that stay over exports.

Numbers that vary are drawn once, for Anki shows the same card each time.
"""

import html
import zlib
from pathlib import Path

import genanki
from markdown_it import MarkdownIt

from labkit.interview.answers import right_answer
from labkit.interview.card_text import card_text
from labkit.interview.cards import Card, draw
from labkit.interview.questions import Bank
from labkit.labs.engine import markdown

# Anki tells decks and models by their numbers: these are ours for good.
_MODEL = 1_720_534_011
_DECKS = 1_620_000_000

_MODEL_FIELDS = [{"name": name} for name in ("Question", "Answer", "Explanation")]
_TEMPLATE = {
    "name": "Card",
    "qfmt": "{{Question}}",
    "afmt": "{{FrontSide}}<hr id=answer><b>{{Answer}}</b>{{Explanation}}",
}
_STYLE = ".card { font-family: sans-serif; text-align: left; } pre { white-space: pre-wrap; }"


def export(bank: Bank, file: Path, language: str) -> int:
    """Write the bank as an .apkg file, a deck a topic; returns how many notes it has.

    A note keeps its id over exports and languages, so importing again updates it. Raises OSError
    where the file cannot be written.
    """
    parser = markdown.parser(_formula)
    model = genanki.Model(
        _MODEL, "labkit question", fields=_MODEL_FIELDS, templates=[_TEMPLATE], css=_STYLE
    )
    decks = []
    for topic in bank.topics.values():
        name = f"Mixed precision::{topic.title[language]}"
        deck = genanki.Deck(_DECKS + zlib.crc32(topic.topic.encode()) % 10**8, name)
        for question in topic.questions:
            card = draw(question, 0)
            answer = right_answer(card)[language]
            shown = f"<pre>{html.escape(answer)}</pre>" if question.program else None
            fields = [
                _blocks(card, language, parser),
                shown or parser.render(answer),
                parser.render(card.fill(question.explanation[language])),
            ]
            tags = [question.topic, question.kind, f"level-{question.level}", *question.tags]
            guid = genanki.guid_for("labkit", question.id)
            deck.add_note(genanki.Note(model=model, fields=fields, guid=guid, tags=tags))
        decks.append(deck)
    genanki.Package(decks).write_to_file(file)
    return sum(len(deck.notes) for deck in decks)


def _formula(content: str, options: dict) -> str:
    left, right = ("\\[", "\\]") if options["display_mode"] else ("\\(", "\\)")
    return f"{left}{html.escape(content)}{right}"


def _blocks(card: Card, language: str, parser: MarkdownIt) -> str:
    """The prompt as Markdown; code and choices, which have their lines, as they stand."""
    prompt = card.fill(card.question.prompt[language])
    rest = card_text(card, language).removeprefix(prompt).strip("\n")
    return parser.render(prompt) + (f"<pre>{html.escape(rest)}</pre>" if rest else "")
