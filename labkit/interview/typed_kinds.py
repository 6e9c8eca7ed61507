"""The kinds whose answers are typed or spoken: numbers, bits, output, a line, code, speech."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field, model_validator

from labkit.interview.cards import (
    Card,
    Face,
    Note,
    Result,
    Spot,
    WithWrongs,
    as_a_whole,
    places_in,
    together,
)
from labkit.interview.question_parts import (
    NumberPart,
    RubricPoint,
    Text,
    Unclear,
    WrongCode,
    WrongLine,
    WrongNumber,
    WrongSpeech,
    WrongText,
)
from labkit.interview.run_code import run_code
from labkit.interview.typed_numbers import (
    compared,
    exponent_of_two,
    in_full,
    in_words,
    means_output,
    read_typed,
    rounds_to,
    same_output,
    tokens,
    within,
    wrong_tokens,
)
from labkit.interview.wording import WORDS, labelled

_SIGN_FIELDS = str.maketrans("", "", "-–")
"""What people put between sign, exponent and mantissa, where no minus can stand."""


class Numeric(WithWrongs):
    """One number or several. An answer is a text for each; a single text for a single number."""

    kind: Literal["numeric"]
    parts: tuple[NumberPart, ...] = Field(min_length=1)
    wrong: tuple[WrongNumber, ...] = Field(min_length=1)

    form = "numeric"

    @model_validator(mode="before")
    @classmethod
    def _a_single_number_is_a_part(cls, entry: dict) -> dict:
        if "parts" in entry:
            return entry
        of_a_part = ("answer", "unit", "tolerance", "exponent")
        single = {name: entry[name] for name in of_a_part if name in entry}
        rest = {name: said for name, said in entry.items() if name not in single}
        return {**rest, "parts": [single]}

    @model_validator(mode="after")
    def _wrongs_have_parts(self):
        strays = [wrong.part for wrong in self.wrong if not 1 <= wrong.part <= len(self.parts)]
        if strays:
            raise ValueError(f"wrong numbers of a part {strays[0]} that there is not")
        if len(self.parts) > 1 and any(part.label is None for part in self.parts):
            raise ValueError("each of several parts needs a label")
        return self

    @property
    def how(self) -> Text:
        if len(self.parts) == 1:
            return Text(en="a number", zh="一个数")
        return Text(en="the numbers, with ; between", zh="几个数，用 ; 隔开")

    @property
    def numbers(self) -> tuple[NumberPart, ...]:
        return self.parts

    @property
    def wrong_numbers(self) -> tuple[WrongNumber, ...]:
        return self.wrong

    def _labels(self, card: Card, language: str) -> list[str]:
        return [card.fill(part.label[language]) if part.label else "" for part in self.parts]

    def face(self, card: Card, language: str) -> Face:
        labels = self._labels(card, language)
        units = [part.unit or "" for part in self.parts]
        return Face(parts=tuple(zip(labels, units, strict=True)))

    def judge(self, card: Card, answer: str | Sequence[str]) -> Result:
        given = [answer] if isinstance(answer, str) else list(answer)
        n = len(self.parts)
        if len(given) != n:
            raise Unclear(
                f"{n} numbers are asked for, got {len(given)}. Put ; between them.",
                f"需要 {n} 个数，得到 {len(given)} 个。请用 ; 隔开。",
            )
        found = [self._part(card, place, str(text)) for place, text in enumerate(given)]
        hits = sum(hit for hit, _, _ in found)
        ideas = tuple(wrong.misconception for _, wrong, _ in found if wrong)
        return Result(hits == n, hits / n, together(said for _, _, said in found if said), ideas)

    def _part(
        self, card: Card, place: int, text: str
    ) -> tuple[bool, WrongNumber | None, Text | None]:
        """One number: whether it is right, the known wrong number that it is, what to say of it."""
        part, expected = self.parts[place], card.expected[place]
        text = _without_label(text, card, part)
        number = read_typed(text, part.unit)
        exponent = exponent_of_two(text) if part.exponent else None
        if exponent is not None and number != expected:
            number = exponent
        if within(number, expected, part.tolerance):
            return True, None, None
        wrongs = zip(self.wrong, card.wrong, strict=True)
        here = [(wrong, value) for wrong, value in wrongs if wrong.part == place + 1]
        known = [w for w, value in here if within(number, value, part.tolerance)] or [
            w for w, value in here if rounds_to(number, text, value, part.tolerance)
        ]
        if rounds_to(number, text, expected, part.tolerance):
            if known:
                raise Unclear(
                    f"Write more digits: {text.strip()} may be two numbers here.",
                    f"请多写几位：这里 {text.strip()} 可能是两个不同的数。",
                )
            return True, None, None
        if known:
            return False, known[0], known[0].feedback
        told = compared(number, expected)
        if part.label is None:
            return False, None, told
        said = told or Text(en="Another number is right.", zh="应为另一个数。")
        label = card.fill_both(part.label)
        return False, None, Text(en=f"{label.en}: {said.en}", zh=f"{label.zh}：{said.zh}")

    def read(self, card: Card, text: str) -> list[str]:
        if len(self.parts) == 1:
            return [text]
        # From the plainest separator on; a comma may also part thousands or be a decimal point.
        text = text.strip(" \t\n;；,，、")
        ways = (r"[;；\n]", r"[,，、]\s+|[，、]", r"[;；，、]|,(?!\d{3}(?!\d))")
        cuts = [[part.strip() for part in re.split(way, text)] for way in ways]
        return next((cut for cut in cuts if len(cut) == len(self.parts)), cuts[-1])

    def right_answer(self, card: Card) -> list[str]:
        return [in_full(value) for value in card.expected]

    def wrong_answers(self, card: Card) -> Iterator[tuple[list[str], WrongNumber]]:
        for wrong, value in zip(self.wrong, card.wrong, strict=True):
            answer = self.right_answer(card)
            answer[wrong.part - 1] = in_full(value)
            yield answer, wrong

    def right(self, card: Card) -> Text:
        return Text(en="; ".join(self._said(card, "en")), zh="；".join(self._said(card, "zh")))

    def _said(self, card: Card, language: str) -> Iterator[str]:
        labels = self._labels(card, language)
        for label, part, value in zip(labels, self.parts, card.expected, strict=True):
            said = f"{in_words(value)} {part.unit or ''}".rstrip()
            yield labelled(label, said, language) if label else said


def _without_label(text: str, card: Card, part: NumberPart) -> str:
    """A number without its own label before it, as in "DDP: 592"."""
    for label in (part.label.en, part.label.zh) if part.label else ():
        start = card.fill(label).casefold()
        if text.strip().casefold().startswith(start):
            rest = text.strip()[len(start) :].lstrip()
            if rest[:1] in (":", "：", "="):
                return rest[1:]
    return text


class Bits(WithWrongs):
    """A code of ``width`` bits. An answer is a text: all bits, or hexadecimal."""

    kind: Literal["bits"]
    width: int = Field(ge=2, le=64)
    answer: str
    wrong: tuple[WrongNumber, ...] = Field(min_length=1)

    form = "bits"
    how = Text(en="the bits, or 0x...", zh="二进制位，或 0x...")
    long = True

    @property
    def numbers(self) -> tuple[NumberPart, ...]:
        return (NumberPart(answer=self.answer),)

    @property
    def wrong_numbers(self) -> tuple[WrongNumber, ...]:
        return self.wrong

    def judge(self, card: Card, answer: str) -> Result:
        code = self._code(answer)
        if code is None:
            example = f"0x{'2e66'[: -(-self.width // 4)]}"
            raise Unclear(
                f"Write all {self.width} bits, or hexadecimal such as {example}.",
                f"请写出全部 {self.width} 位，或写成十六进制，例如 {example}。",
            )
        wrongs = zip(self.wrong, card.wrong, strict=True)
        known = next((wrong for wrong, value in wrongs if value == code), None)
        right = int(card.expected[0])
        if code == right or known:
            return as_a_whole(code == right, known)
        return Result(False, 0.0, self._compared(code, right))

    def _compared(self, code: int, right: int) -> Text:
        """How far a wrong code is right."""
        if abs(code - right) == 1:
            return Text(en="That is the code next to the right one.", zh="这是相邻的一个编码。")
        same = self.width - (code ^ right).bit_length()
        if same == 0:
            return Text(en="The first bit is wrong already.", zh="第一位就错了。")
        return Text(
            en=f"The first {same} bits are right, the next one is not.",
            zh=f"前 {same} 位是对的，下一位不对。",
        )

    def _code(self, text: str) -> int | None:
        digits = -(-self.width // 4)
        plain = unicodedata.normalize("NFKC", text).translate(_SIGN_FIELDS)
        plain = re.sub(r"[\s_.|,;:']", "", plain).lower()
        if re.fullmatch(r"0x[0-9a-f]+", plain):
            code = int(plain, 16)
        elif re.fullmatch(rf"(0b)?[01]{{{self.width}}}", plain):
            code = int(plain.removeprefix("0b"), 2)
        elif re.fullmatch(rf"[0-9a-f]{{{digits}}}", plain) and self.width >= 8:
            code = int(plain, 16)
        else:
            return None
        return code if code < 1 << self.width else None

    def right_answer(self, card: Card) -> str:
        return f"{int(card.expected[0]):0{self.width}b}"

    def wrong_answers(self, card: Card) -> Iterator[tuple[str, WrongNumber]]:
        for wrong, value in zip(self.wrong, card.wrong, strict=True):
            yield f"{int(value):0{self.width}b}", wrong

    def right(self, card: Card) -> Text:
        code = int(card.expected[0])
        shown = f"0x{code:0{-(-self.width // 4)}x} = {code:0{self.width}b}"
        return Text(en=shown, zh=shown)


class Predict(WithWrongs):
    """The text that the code prints. An answer is a text."""

    kind: Literal["predict"]
    code: str
    answer: str
    wrong: tuple[WrongText, ...] = Field(min_length=1)

    form = "predict"
    how = Text(en="what it prints", zh="输出内容")
    prints = True

    def face(self, card: Card, language: str) -> Face:
        return Face(code=card.fill(self.code))

    def judge(self, card: Card, answer: str) -> Result:
        wrongs = list(self.wrong_answers(card))
        right = self.right_answer(card)
        known = next((wrong for text, wrong in wrongs if same_output(answer, text)), None)
        if same_output(answer, right) or known:
            return as_a_whole(known is None, known)
        if means_output(answer, right):
            return Result(True, 1.0)
        known = next((wrong for text, wrong in wrongs if means_output(answer, text)), None)
        return as_a_whole(False, known) if known else Result(False, 0.0, _places_off(answer, right))

    def right_answer(self, card: Card) -> str:
        return card.fill(self.answer)

    def wrong_answers(self, card: Card) -> Iterator[tuple[str, WrongText]]:
        return ((card.fill(wrong.answer), wrong) for wrong in self.wrong)


def _places_off(answer: str, right: str) -> Text:
    """Which values of an output are wrong, or how many there should be."""
    places = wrong_tokens(answer, right)
    if places is None:
        many, wanted = len(tokens(answer)), len(tokens(right))
        return Text(
            en=f"The output has {wanted} values; yours has {many}.",
            zh=f"输出有 {wanted} 个值，你写了 {many} 个。",
        )
    if len(places) == len(tokens(right)):
        return Text(en="No value is right.", zh="没有一个值是对的。")
    listed = ", ".join(map(str, places))
    one = len(places) == 1
    return Text(
        en=f"Value {listed} is not right." if one else f"Values {listed} are not right.",
        zh=f"第 {listed} 个值不对。",
    )


class ProgramLine(Spot, WithWrongs):
    """The line of a program that is wrong. An answer is its number from 1, 0 where none is.

    ``also`` are lines that may be named as well, such as the ``if`` above a wrong line.
    """

    kind: Literal["line"]
    code: str
    line: int = Field(ge=0)
    also: tuple[int, ...] = ()
    wrong: tuple[WrongLine, ...] = Field(min_length=1)

    form = "line"
    how = Text(en="the line's number, 0 if nothing is wrong", zh="行号，没有错则写 0")

    @property
    def last(self) -> int:
        """How many lines the code has."""
        return len(self.code.strip("\n").splitlines())

    @model_validator(mode="after")
    def _lines_exist(self):
        for line in (self.line, *self.also, *(wrong.line for wrong in self.wrong)):
            if not 0 <= line <= self.last:
                raise ValueError(f"line {line}: the code has lines 1 to {self.last}")
        if self.holds != (self.line == 0):
            raise ValueError("holds must be true exactly where line is 0")
        return self

    def face(self, card: Card, language: str) -> Face:
        return Face(code=card.fill(self.code))

    def judge(self, card: Card, answer: int | str) -> Result:
        try:
            line = int(answer)
        except (TypeError, ValueError):
            raise Unclear(
                "Give the number of a line, 0 for none.", "请给出行号，0 表示没有错。"
            ) from None
        if not 0 <= line <= self.last:
            raise Unclear(
                f"The lines are 1 to {self.last}; 0 means none.",
                f"行号为 1 到 {self.last}；0 表示没有错。",
            )
        known = next((wrong for wrong in self.wrong if wrong.line == line), None)
        if known or line in (self.line, *self.also):
            return as_a_whole(known is None, known)
        said = Text(en=f"The fault is not in line {line}.", zh=f"错不在第 {line} 行。")
        return Result(False, 0.0, said)

    def read(self, card: Card, text: str) -> str:
        said = unicodedata.normalize("NFKC", text).casefold().strip(" .,:;()#")
        if said in _NOTHING:
            return "0"
        number = re.fullmatch(r"(?:line|in line|l|第|no)?\.?\s*(\d+)\s*行?", said)
        return number[1] if number else text

    def right_answer(self, card: Card) -> int:
        return self.line

    def wrong_answers(self, card: Card) -> Iterator[tuple[int, WrongLine]]:
        return ((wrong.line, wrong) for wrong in self.wrong)

    def given(self, card: Card, answer: int | str) -> Text:
        if int(answer) == 0:
            return Text(en="nothing is wrong", zh="没有错")
        return Text(en=f"line {int(answer)}", zh=f"第 {int(answer)} 行")


class Code(WithWrongs):
    """A function to write; ``check`` is the full name of a check. An answer is a text."""

    kind: Literal["code"]
    stub: str
    solution: str
    check: str = Field(pattern=r"^labkit(\.\w+)+$")
    wrong: tuple[WrongCode, ...] = Field(min_length=1)

    form = "code"
    how = Text(en="the code, closed by a line with a dot", zh="代码，最后一行只写一个点")
    program = True
    long = True
    prints = True

    def face(self, card: Card, language: str) -> Face:
        return Face(stub=self.stub.strip("\n"))

    def judge(self, card: Card, answer: str) -> Result:
        result = run_code(answer, check=self.check, stub=self.stub, name=self.id)
        if result.status == "passed":
            return Result(True, 1.0)
        if result.status == "not attempted":
            raise Unclear("The function's body is still empty.", "函数体还是空的。")
        said = Text(en=result.message, zh=result.message)
        return Result(False, 0.0, said, result.misconceptions)

    def right_answer(self, card: Card) -> str:
        return self.solution

    def wrong_answers(self, card: Card) -> Iterator[tuple[str, WrongCode]]:
        return ((wrong.code, wrong) for wrong in self.wrong)


_NOTHING = ("none", "nothing", "no line", "no error", "nothing is wrong", "没有", "没有错", "无")


class Free(WithWrongs):
    """Free speech: a model answer, and points that one ticks for oneself.

    An answer is the numbers of the points that were made, from 1; what is said of it in words is
    the line that sums the speech up.
    """

    kind: Literal["free"]
    model: Text
    rubric: tuple[RubricPoint, ...] = Field(min_length=2, max_length=8)
    wrong: tuple[WrongSpeech, ...] = ()

    form = "free"
    how = Text(en="sum it up in a line", zh="用一句话概括")
    spoken = True
    long = True

    def judge(self, card: Card, answer: Sequence[int]) -> Result:
        last = len(self.rubric)
        made = {int(point) for point in answer}
        if made - set(range(1, last + 1)):
            raise Unclear(f"The points are 1 to {last}.", f"要点编号为 1 到 {last}。")
        score = sum(self.rubric[i - 1].weight for i in made) / sum(p.weight for p in self.rubric)
        return Result(score >= 0.8, score)

    def notes(self, card: Card, answer: Sequence[int] | None, language: str) -> tuple[Note, ...]:
        if answer is None:
            return ()
        ticked = [place in answer for place in range(1, len(self.rubric) + 1)]
        words = (WORDS["ticked" if made else "not ticked"][language] for made in ticked)
        return tuple(Note(word, made or None) for word, made in zip(words, ticked, strict=True))

    def read(self, card: Card, text: str) -> list[int]:
        nothing = text.casefold() in ("0", "-", *_NOTHING)
        return [] if nothing else places_in(text, len(self.rubric))

    def right_answer(self, card: Card) -> list[int]:
        return list(range(1, len(self.rubric) + 1))

    def right(self, card: Card) -> Text:
        return card.fill_both(self.model)
