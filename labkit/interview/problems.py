"""A long problem: a story and six to eight questions, each built on what the ones before settled.

``questions.load`` reads data/problems/*.toml, one file a problem. A part is a question of an
existing kind; what it settles is said before the next one is asked, so that a wrong answer costs
one part and not the rest.
"""

from dataclasses import dataclass

from labkit.interview.cards import Question
from labkit.interview.question_parts import Text

FEWEST, MOST = 6, 8


@dataclass(frozen=True)
class ProblemPart:
    """One part: its question, and in a sentence what is known once it is answered."""

    question: Question
    settled: Text


@dataclass(frozen=True)
class Problem:
    """A long problem of one topic, with its parts in order."""

    id: str
    topic: str
    title: Text
    story: Text
    parts: tuple[ProblemPart, ...]

    @property
    def seconds(self) -> int:
        """What the whole takes by its own times."""
        return sum(part.question.seconds for part in self.parts)

    def before(self, place: int) -> Text:
        """What stands before a part, counted from 0: the story, and what is settled so far."""
        return Text(en=self._before(place, "en"), zh=self._before(place, "zh"))

    def _before(self, place: int, language: str) -> str:
        heads = {
            "en": f"**{self.title.en}**, part {place + 1} of {len(self.parts)}",
            "zh": f"**{self.title.zh}**，第 {place + 1} / {len(self.parts)} 部分",
        }
        settled = [
            f"{number}. {part.settled[language]}"
            for number, part in enumerate(self.parts[:place], start=1)
        ]
        known = {"en": "Settled so far:", "zh": "目前已确定："}[language]
        blocks = [heads[language], self.story[language]]
        return "\n\n".join(blocks + ([known, "\n".join(settled)] if settled else []))
