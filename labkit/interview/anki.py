"""The bank as an Anki deck: one note a question and language, with ids that stay over exports.

Numbers that vary are drawn once, for Anki shows the same card each time; the options are shuffled
by the card's template, so that nobody learns their places. Programs, which no flip card can take,
are left out.
"""

import html
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import genanki
from markdown_it import MarkdownIt

from labkit.interview.answers import right_answer
from labkit.interview.card_text import cell_text, label
from labkit.interview.cards import Card, Face, Question, draw
from labkit.interview.choice_kinds import Match, Options, Order
from labkit.interview.question_parts import Text
from labkit.interview.questions import Bank
from labkit.interview.typed_kinds import Free, Numeric
from labkit.interview.typed_numbers import in_words
from labkit.interview.wording import WORDS, labelled
from labkit.labs.engine import markdown

# Anki tells decks and models by their numbers: these are ours for good. A model of other fields
# needs another number.
_MODEL = 1_720_534_012
_DECKS = 1_620_000_000

ON_PAPER = "on-paper"
"""The tag of questions whose answers one writes down before turning the card."""

_FIELDS = ("Question", "Choices", "Hints", "Answer", "Explanation", "More")
_TEMPLATES = Path(__file__).with_name("anki_templates")


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What a deck holds: how many cards, how many of them are tagged ``ON_PAPER``, and how many
    questions are left out because a program answers them.
    """

    cards: int
    on_paper: int
    programs: int


def export(bank: Bank, file: Path, language: str) -> Exported:
    """Write the bank as an .apkg file, a deck a topic.

    A note keeps its id over exports in a language, so importing again updates it; the other
    language has notes of its own. Raises OSError where the file cannot be written.
    """
    model, parser = _model(), markdown.parser(_formula)
    decks = []
    for topic in bank.topics.values():
        name = f"{WORDS['deck'][language]}::{topic.title[language]}"
        number = _DECKS + zlib.crc32(f"{topic.topic} {language}".encode()) % 10**8
        deck = genanki.Deck(number, name)
        for question in topic.questions:
            if not question.program:
                deck.add_note(_note(question, model, language, parser))
        decks.append(deck)
    genanki.Package(decks).write_to_file(file)
    notes = [note for deck in decks for note in deck.notes]
    return Exported(
        cards=len(notes),
        on_paper=sum(ON_PAPER in note.tags for note in notes),
        programs=len(bank.questions) - len(notes),
    )


def _model() -> genanki.Model:
    front, back, shuffle, style = (
        (_TEMPLATES / name).read_text("utf-8")
        for name in ("front.html", "back.html", "shuffle.js", "style.css")
    )
    script = f"<script>\n{shuffle}</script>"
    template = {"name": "Card", "qfmt": front + script, "afmt": back + script}
    fields = [{"name": name} for name in _FIELDS]
    return genanki.Model(_MODEL, "labkit card", fields=fields, templates=[template], css=style)


def _note(
    question: Question, model: genanki.Model, language: str, parser: MarkdownIt
) -> genanki.Note:
    page = _Page(card=draw(question, 0), language=language, parser=parser)
    fields = (
        page.question(),
        page.choices(told=False),
        page.hints(),
        page.answer(),
        page.text(question.explanation),
        page.more(),
    )
    tags = [question.topic, question.kind, f"level-{question.level}", *question.tags]
    if isinstance(question, Order | Match):
        tags.append(ON_PAPER)
    return genanki.Note(
        model=model,
        fields=list(fields),
        guid=genanki.guid_for("labkit", question.id, language),
        tags=tags,
    )


def _formula(content: str, options: dict) -> str:
    left, right = ("\\[", "\\]") if options["display_mode"] else ("\\(", "\\)")
    return f"{left}{html.escape(content)}{right}"


@dataclass(frozen=True, kw_only=True)
class _Page:
    """The parts of one card's two sides as HTML."""

    card: Card
    language: str
    parser: MarkdownIt

    @property
    def face(self) -> Face:
        return self.card.question.face(self.card, self.language)

    def word(self, name: str) -> str:
        return WORDS[name][self.language]

    def text(self, text: Text) -> str:
        """A text of the question, as paragraphs."""
        return self.parser.render(self.card.fill(text[self.language]))

    def line(self, text: str) -> str:
        """Markdown in one line; as paragraphs where it has several."""
        return self.parser.render(text) if "\n" in text else self.parser.renderInline(text)

    def question(self) -> str:
        face, card = self.face, self.card
        blocks = [self.text(card.question.prompt)]
        if face.claim:
            blocks.append(f"<blockquote>{self.parser.render(face.claim)}</blockquote>")
        if face.code:
            rows = face.code.strip("\n").splitlines()
            if card.question.form == "line":
                rows = [f"{place:2}  {row}" for place, row in enumerate(rows, 1)]
            blocks.append(_code("\n".join(rows)))
        if face.lefts:
            blocks.append(_list("ol", map(self.line, face.lefts)))
        asked = [f"{part} [{unit}]" if unit else part for part, unit in face.parts]
        if any(asked):
            blocks.append(_list("ul", (self.line(part.strip()) for part in asked)))
        if card.question.parameters:
            blocks.append(f'<p class="note">{self.word("one draw")}</p>')
        return "".join(blocks)

    def choices(self, *, told: bool) -> str:
        """What there is to choose from; ``told`` which are right, and why the others are not."""
        question, items = self.card.question, []
        if not self.face.choices:
            return ""
        entries = {entry.key: entry for entry in question.entries}
        for key, choice in zip(self.card.keys, self.face.choices, strict=True):
            kind, why = "", ""
            if told:
                option = entries[key]
                kind = f' class="{"right" if option.right else "wrong"}"'
                said = option.missed if option.right else option.feedback
                why = f'<div class="why">{self.text(said)}</div>' if said else ""
            items.append(f"<li{kind}>{self.line(choice)}{why}</li>")
        return f'<ol class="choices" data-card="{question.id}">{"".join(items)}</ol>'

    def hints(self) -> str:
        """Hints that a click opens, one by one."""
        texts = self.card.question.hints[self.language]
        return "".join(
            f"<details><summary>{self.word('hint')} {place}</summary>"
            f"{self.parser.render(self.card.fill(text))}</details>"
            for place, text in enumerate(texts, 1)
        )

    def answer(self) -> str:
        card, question = self.card, self.card.question
        if isinstance(question, Options):
            return self.choices(told=True)
        if isinstance(question, Order):
            items = (self.line(card.fill(item[self.language])) for item in question.items)
            return _list("ol", items)
        if isinstance(question, Match):
            rights = question.named(question.right_answer(card))
            rows = (
                f"<tr><td>{self.line(card.fill(pair.left[self.language]))}</td>"
                f"<td>{self.line(card.fill(right[self.language]))}</td></tr>"
                for pair, right in zip(question.pairs, rights, strict=True)
            )
            return f"<table>{''.join(rows)}</table>"
        right = right_answer(card)[self.language]
        shown = _code(right) if question.prints else self.parser.render(right)
        return f"<p><b>{label(card, self.language)}</b></p>{shown}"

    def more(self) -> str:
        """Wrong answers and why, the points of a speech, the proof, and the sources."""
        question = self.card.question
        blocks = []
        if isinstance(question, Free):
            points = (self.line(point[self.language]) for point in question.rubric)
            blocks.append(self.titled("points", _list("ul", points)))
        wrongs = [
            f"<b>{given}</b><div>{self.line(self.card.fill(why[self.language]))}</div>"
            for given, why in self._wrongs()
        ]
        if wrongs:
            blocks.append(self.titled("wrong answers", _list("ul", wrongs)))
        if question.cell:
            blocks.append(self.titled("see", _code(cell_text(self.card)), closed=True))
        if question.sources:
            blocks.append(self.titled("sources", _list("ul", map(_source, question.sources))))
        return "".join(blocks)

    def titled(self, name: str, body: str, *, closed: bool = False) -> str:
        if closed:
            return f"<details><summary>{self.word(name)}</summary>{body}</details>"
        return f"<h4>{self.word(name)}</h4>{body}"

    def _wrongs(self) -> Iterator[tuple[str, Text]]:
        """Known wrong answers that are no options, as HTML, each with what is said of it."""
        card, question = self.card, self.card.question
        if isinstance(question, Options):
            return
        if isinstance(question, Free):
            for wrong in question.wrong:
                said = Text(en=wrong.en, zh=wrong.zh)[self.language]
                yield self.line(said), wrong.feedback
        elif isinstance(question, Numeric):
            for wrong, value in zip(question.wrong, card.wrong, strict=True):
                part = question.parts[wrong.part - 1]
                said = f"{in_words(value)} {part.unit or ''}".rstrip()
                name = card.fill(part.label[self.language]) if part.label else ""
                shown = labelled(name, said, self.language) if name else said
                yield self.line(shown), wrong.feedback
        elif isinstance(question, Match):
            for wrong in question.wrong:
                left = question.pairs[wrong.pair - 1].left[self.language]
                (right,) = question.named([wrong.right])
                said = card.fill(f"{left} → {right[self.language]}")
                yield self.line(said), wrong.feedback
        elif isinstance(question, Order):
            for needed in question.before:
                turned = question.given(card, needed.pair[::-1])
                yield self.line(turned[self.language]), needed.feedback
        else:
            for answer, wrong in question.wrong_answers(card):
                said = question.given(card, answer)[self.language]
                shown = _code(said) if question.prints else self.line(said)
                yield shown, wrong.feedback


def _code(code: str) -> str:
    return f"<pre><code>{html.escape(code.strip(chr(10)))}</code></pre>"


def _list(kind: str, items: Iterable[str]) -> str:
    return f"<{kind}>{''.join(f'<li>{item}</li>' for item in items)}</{kind}>"


def _source(source: str) -> str:
    linked = r'<a href="\g<0>">\g<0></a>'
    return re.sub(r"https?://[^\s<&]+[^\s<&.,;)]", linked, html.escape(source))
