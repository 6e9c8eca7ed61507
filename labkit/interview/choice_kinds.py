"""The kinds whose answers name what the card shows: options, items to order, sides to match."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from pydantic import Field, model_validator

from labkit.interview.cards import (
    Card,
    Face,
    Note,
    Question,
    Result,
    Spot,
    WithWrongs,
    as_a_whole,
    places_in,
    together,
)
from labkit.interview.question_parts import (
    Before,
    Item,
    Option,
    Pair,
    Text,
    Unclear,
    WrongPair,
)
from labkit.interview.wording import WORDS, labelled, listed

LETTERS = "abcdefghij"


def _keys_are_unique(records: Sequence[Option | Item]) -> None:
    keys = [record.key for record in records]
    if len(set(keys)) < len(keys):
        raise ValueError(f"keys that stand twice among {keys}")


def _listed(texts: Sequence[Text]) -> Text:
    """Some texts in a line; sentences among them lose their full stops but the last."""
    if len(texts) == 1:
        return Text(en=texts[0].en, zh=texts[0].zh)
    en = "; ".join(text.en.rstrip(".") for text in texts)
    return Text(en=en or "–", zh="；".join(text.zh.rstrip("。") for text in texts) or "–")


def _lettered_keys(card: Card, text: str) -> list[str]:
    """The keys whose letters stand in a line: ``b a c``, ``bac``, ``b > a > c``, ``2a 1b 3c``."""
    last = LETTERS[len(card.keys) - 1]
    said = unicodedata.normalize("NFKC", text).casefold()
    words = re.findall(r"[^\W\d_]+", said)
    letters = list(words[0]) if len(words) == 1 else words
    if any(re.findall(r"\d", said)):
        numbered = re.findall(r"(\d+)\s*[^\w\s]*\s*([a-z])(?![a-z])", said)
        letters = [letter for _, letter in sorted(numbered, key=lambda pair: int(pair[0]))]
        places = sorted(int(place) for place, _ in numbered)
        if places != list(range(1, len(words) + 1)) or len(re.findall(r"\d+", said)) != len(words):
            letters = []
    if not letters or any(letter not in LETTERS[: len(card.keys)] for letter in letters):
        raise Unclear(
            f"Give letters from a to {last}, as b a c.", f"请用 a 到 {last} 的字母作答，如 b a c。"
        )
    return [card.keys[LETTERS.index(letter)] for letter in letters]


_BESIDE = {
    (True, True): "chosen right",
    (True, False): "chosen wrong",
    (False, True): "right option",
}
"""The word beside an option, by whether it was chosen and whether it is right."""


def _given_and_right(given: object, right: object, language: str) -> str:
    """The place or letter that was given and the right one; None for one that is not to be said."""
    both = (("given", given), ("answer", right))
    said = (labelled(WORDS[word][language], str(it), language) for word, it in both if it)
    return listed(said, language)


class Keyed(Question):
    """What the kinds share whose answers are keys of what the card shows: one, or several."""

    def choices(self, card: Card, language: str) -> tuple[str, ...]:
        """The texts to choose from, in the card's order."""
        shown = {entry.key: entry for entry in self.entries}
        return tuple(card.fill(shown[key][language]) for key in card.keys)

    def named(self, answer: str | Sequence[str]) -> list[Option | Item]:
        """The entries that an answer names."""
        shown = {entry.key: entry for entry in self.entries}
        return [shown[key] for key in ([answer] if isinstance(answer, str) else answer)]

    def given(self, card: Card, answer: str | Sequence[str]) -> Text:
        return card.fill_both(_listed(self.named(answer)))


class Options(Keyed):
    """What the kinds with options share."""

    options: tuple[Option, ...] = Field(min_length=3, max_length=6)

    @property
    def entries(self) -> tuple[Option, ...]:
        return self.options

    @property
    def known_wrongs(self) -> tuple[Option, ...]:
        return tuple(option for option in self.options if not option.right)

    def face(self, card: Card, language: str) -> Face:
        return Face(choices=self.choices(card, language))

    def notes(
        self, card: Card, answer: str | Sequence[str] | None, language: str
    ) -> tuple[Note, ...]:
        chosen = {option.key for option in self.named(answer or [])}
        right = {option.key for option in self.options if option.right}
        found = []
        for key in card.keys:
            word = _BESIDE.get((key in chosen, key in right))
            found.append(Note(WORDS[word][language], key in right) if word else Note())
        return tuple(found)


class OneOption(Options):
    """One option is right. An answer is its key."""

    form = "choice"
    how = Text(en="the number", zh="编号")

    @model_validator(mode="after")
    def _one_is_right(self):
        _keys_are_unique(self.options)
        if sum(option.right for option in self.options) != 1:
            raise ValueError("exactly one option must be right")
        return self

    def judge(self, card: Card, answer: str) -> Result:
        chosen = {option.key: option for option in self.options}.get(answer)
        if chosen is None:
            raise Unclear("Choose one of the options.", "请从选项中选一个。")
        return as_a_whole(chosen.right, chosen)

    def read(self, card: Card, text: str) -> str:
        numbers = places_in(text, len(card.keys))
        if len(numbers) != 1:
            raise Unclear("Give one number.", "请给出一个编号。")
        return card.keys[numbers[0] - 1]

    def right_answer(self, card: Card) -> str:
        return next(option.key for option in self.options if option.right)

    def wrong_answers(self, card: Card) -> Iterator[tuple[str, Option]]:
        return ((option.key, option) for option in self.known_wrongs)


class Choice(OneOption):
    """One option is right."""

    kind: Literal["choice"]


class Select(Options):
    """All options that are right. An answer is their keys, in any order."""

    kind: Literal["select"]
    options: tuple[Option, ...] = Field(min_length=3, max_length=9)  # a digit chooses one

    form = "select"
    how = Text(en="all right numbers, as 1 3", zh="所有正确的编号，如 1 3")

    @model_validator(mode="after")
    def _some_are_right(self):
        _keys_are_unique(self.options)
        if not 0 < sum(option.right for option in self.options) < len(self.options):
            raise ValueError("some options must be right and some wrong")
        return self

    def judge(self, card: Card, answer: Sequence[str]) -> Result:
        chosen = set(answer)
        if chosen - {option.key for option in self.options}:
            raise Unclear("Choose among the options.", "请在选项中选择。")
        added = [option for option in self.known_wrongs if option.key in chosen]
        missed = [o for o in self.options if o.right and o.key not in chosen]
        score = 1 - (len(added) + len(missed)) / len(self.options) if chosen else 0.0
        said = [option.feedback for option in added] + [o.missed for o in missed if o.missed]
        if n := sum(option.missed is None for option in missed):
            said.append(
                Text(en=f"{n} more {'is' if n == 1 else 'are'} right.", zh=f"还有 {n} 项也对。")
            )
        ideas = tuple(option.misconception for option in added)
        return Result(not added and not missed, score, together(said), ideas)

    def read(self, card: Card, text: str) -> list[str]:
        return [card.keys[place - 1] for place in places_in(text, len(card.keys))]

    def right_answer(self, card: Card) -> list[str]:
        return [option.key for option in self.options if option.right]

    def wrong_answers(self, card: Card) -> Iterator[tuple[list[str], Option]]:
        right = self.right_answer(card)
        return (([*right, option.key], option) for option in self.known_wrongs)


class Claim(OneOption, Spot):
    """Whether somebody's claim holds, and why."""

    kind: Literal["claim"]
    claim: Text

    def face(self, card: Card, language: str) -> Face:
        return Face(
            claim=card.fill(self.claim[language]),
            choices=self.choices(card, language),
        )


class Order(Keyed):
    """Items to put in order; ``items`` stand in a right one. An answer is all keys in order.

    An order is right if each pair of ``before`` stands that way round in it. A wrong one is told
    why the first pair that does not is needed, in the question's order of the pairs.
    """

    kind: Literal["order"]
    items: tuple[Item, ...] = Field(min_length=3, max_length=9)
    before: tuple[Before, ...] = Field(min_length=1)

    form = "order"
    how = Text(en="the letters in order, as b a c", zh="按顺序写字母，如 b a c")

    @model_validator(mode="after")
    def _each_pair_can_be_told(self):
        _keys_are_unique(self.items)
        keys = self._keys()
        for needed in self.before:
            if len({*needed.pair} & {*keys}) < 2:
                raise ValueError(f"the pair {list(needed.pair)} must be two of {list(keys)}")
        if self._violated(keys):
            pair = list(self._violated(keys).pair)
            raise ValueError(f"the items themselves stand against the pair {pair}")
        for needed in self.before:
            if self._violating(needed) is None:
                raise ValueError(f"the pair {list(needed.pair)} follows from those before it")
        return self

    @property
    def entries(self) -> tuple[Item, ...]:
        return self.items

    @property
    def known_wrongs(self) -> tuple[Before, ...]:
        return self.before

    def may_show(self, keys: tuple[str, ...]) -> bool:
        return self._violated(keys) is not None

    def _keys(self) -> tuple[str, ...]:
        return tuple(item.key for item in self.items)

    def _violated(self, order: tuple[str, ...]) -> Before | None:
        """The first pair that stands the other way round in an order of all keys."""
        for needed in self.before:
            first, then = needed.pair
            if order.index(first) > order.index(then):
                return needed
        return None

    def _violating(self, needed: Before) -> tuple[str, ...] | None:
        """An order of which ``needed`` is the first pair violated; None where there is none."""
        first, then = needed.pair
        pairs = [(then, first), *(b.pair for b in self.before[: self.before.index(needed)])]
        graph = {key: [a for a, b in pairs if b == key] for key in self._keys()}
        try:
            return tuple(TopologicalSorter(graph).static_order())
        except CycleError:
            return None

    def face(self, card: Card, language: str) -> Face:
        return Face(choices=self.choices(card, language), lettered=True)

    def notes(self, card: Card, answer: Sequence[str] | None, language: str) -> tuple[Note, ...]:
        given, right = list(answer or ()), self.right_answer(card)
        correct = bool(given) and self._violated(tuple(given)) is None
        found = []
        for key in card.keys:
            put = given.index(key) + 1 if given else None
            place = None if correct else right.index(key) + 1  # other orders may be right too
            found.append(Note(_given_and_right(put, place, language)))
        return tuple(found)

    def judge(self, card: Card, answer: Sequence[str]) -> Result:
        given = tuple(answer)
        if sorted(given) != sorted(self._keys()):
            raise Unclear("Give every item once.", "每一项都要出现一次。")
        violated = self._violated(given)
        return as_a_whole(violated is None, violated)

    def read(self, card: Card, text: str) -> list[str]:
        return _lettered_keys(card, text)

    def right_answer(self, card: Card) -> list[str]:
        return list(self._keys())

    def wrong_answers(self, card: Card) -> Iterator[tuple[list[str], Before]]:
        return ((list(self._violating(needed)), needed) for needed in self.before)

    def given(self, card: Card, answer: Sequence[str]) -> Text:
        items = self.named(answer)
        arrows = Text(en=" → ".join(i.en for i in items), zh=" → ".join(i.zh for i in items))
        return card.fill_both(arrows)


class Match(Keyed, WithWrongs):
    """A right side for each left side. An answer is a key for each left."""

    kind: Literal["match"]
    pairs: tuple[Pair, ...] = Field(min_length=2, max_length=10)
    rights: tuple[Item, ...] = Field(min_length=2, max_length=10)
    wrong: tuple[WrongPair, ...] = Field(min_length=1)

    form = "match"
    how = Text(en="a letter for each line, as b a a", zh="每行一个字母，如 b a a")

    @model_validator(mode="after")
    def _rights_are_known(self):
        _keys_are_unique(self.rights)
        keys = {item.key for item in self.rights}
        for name in (*(pair.right for pair in self.pairs), *(w.right for w in self.wrong)):
            if name not in keys:
                raise ValueError(f"the right side {name!r} is none of {sorted(keys)}")
        if any(not 1 <= wrong.pair <= len(self.pairs) for wrong in self.wrong):
            raise ValueError("a wrong pair of a left side that there is not")
        return self

    @property
    def entries(self) -> tuple[Item, ...]:
        return self.rights

    def face(self, card: Card, language: str) -> Face:
        return Face(
            lefts=tuple(card.fill(pair.left[language]) for pair in self.pairs),
            choices=self.choices(card, language),
            lettered=True,
        )

    def notes(self, card: Card, answer: Sequence[str] | None, language: str) -> tuple[Note, ...]:
        letters = dict(zip(card.keys, LETTERS, strict=False))
        found = []
        for place, pair in enumerate(self.pairs):
            given = answer[place] if answer else None
            hit = given == pair.right
            right = None if hit else letters[pair.right]
            said = _given_and_right(letters.get(given), right, language)
            found.append(Note(said, hit if answer else None))
        return tuple(found)

    def judge(self, card: Card, answer: Sequence[str]) -> Result:
        given = list(answer)
        if len(given) != len(self.pairs) or set(given) - {item.key for item in self.rights}:
            raise Unclear(
                "Give one right side for each left side.", "请为左边每一项选一个右边的项。"
            )
        hits = [key == pair.right for key, pair in zip(given, self.pairs, strict=True)]
        known = [wrong for wrong in self.wrong if given[wrong.pair - 1] == wrong.right]
        said = [wrong.feedback for wrong in known]
        told = {wrong.pair for wrong in known}
        others = [str(i) for i, hit in enumerate(hits, 1) if not hit and i not in told]
        if others:
            listed, more = ", ".join(others), len(others) > 1
            said.append(
                Text(
                    en=f"Lines {listed} are not right." if more else f"Line {listed} is not right.",
                    zh=f"第 {listed} 行不对。",
                )
            )
        return Result(
            correct=all(hits),
            score=sum(hits) / len(hits),
            said=together(said),
            misconceptions=tuple(wrong.misconception for wrong in known),
        )

    def read(self, card: Card, text: str) -> list[str]:
        return _lettered_keys(card, text)

    def right_answer(self, card: Card) -> list[str]:
        return [pair.right for pair in self.pairs]

    def wrong_answers(self, card: Card) -> Iterator[tuple[list[str], WrongPair]]:
        for wrong in self.wrong:
            answer = self.right_answer(card)
            answer[wrong.pair - 1] = wrong.right
            yield answer, wrong

    def right(self, card: Card) -> Text:
        rights = self.named(self.right_answer(card))
        both = list(zip(self.pairs, rights, strict=True))
        said = Text(
            en="; ".join(f"{pair.left.en}: {right.en}" for pair, right in both),
            zh="；".join(f"{pair.left.zh}：{right.zh}" for pair, right in both),
        )
        return card.fill_both(said)
