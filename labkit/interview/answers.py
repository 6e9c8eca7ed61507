"""What an answer to a card is worth, and what to say about it.

``judge`` takes a card and an answer in the form of its kind and returns a ``Judgement``. ``read``
turns a line that somebody typed into that form. An answer that cannot be understood is no wrong
answer: it raises ``Unclear`` with what would be understood, and may be given again.

Answers by kind: choice and spot-a-claim a key; select keys; numeric a text for each part; bits and
predict a text; order keys in order; match a key for each left side; spot-a-line its number, 0 for
none; code its text; free the numbers of the rubric's points that were made, from 1. ``None`` is "I
do not know".
"""

import ast
import contextlib
import importlib
import linecache
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from fractions import Fraction

from labkit.formats.expressions import ExpressionError, Number, plain, read_number, same_unit
from labkit.interview.questions import Card, Question, Text, same, within, written

LONGEST = 20_000
"""Characters of an answer; more is refused unread."""

GIVEN_LIMIT = 300
"""Characters of a typed answer that a report shows."""

_LETTERS = "abcdefghij"
_SHORT = 6
_DIGITS = 2


class Unclear(ValueError):
    """An answer that cannot be understood; ``said`` is what would be, in both languages."""

    def __init__(self, en: str, zh: str) -> None:
        super().__init__(en)
        self.said = Text(en=en, zh=zh)


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
    """Judge one answer; see the module for its form. Raises Unclear, TypeError for another form."""
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
    correct, score, said, ideas = _JUDGES[_form(card.question)](card, answer)
    filled = said and Text(en=card.fill(said.en), zh=card.fill(said.zh))
    return Judgement(correct, score, filled, right, tuple(dict.fromkeys(ideas)))


def _form(question: Question) -> str:
    if question.kind == "spot":
        return "choice" if hasattr(question, "options") else "line"
    return question.kind


def _plainly(correct: bool, wrong=None):
    """A result that is right or wrong as a whole, with the known wrong answer that it is."""
    if correct or wrong is None:
        return correct, float(correct), None, ()
    return False, 0.0, wrong.feedback, (wrong.misconception,)


def _choice(card: Card, answer: str):
    chosen = {option.key: option for option in card.question.options}.get(answer)
    if chosen is None:
        raise Unclear("Choose one of the options.", "请从选项中选一个。")
    return _plainly(chosen.right, chosen)


def _select(card: Card, answer: Sequence[str]):
    options = card.question.options
    chosen = set(answer)
    if chosen - {option.key for option in options}:
        raise Unclear("Choose among the options.", "请在选项中选择。")
    added = [option for option in options if option.key in chosen and not option.right]
    missed = [option for option in options if option.key not in chosen and option.right]
    score = max(0.0, 1 - (len(added) + len(missed)) / len(options)) if added or missed else 1.0
    if not chosen:
        score = 0.0
    said = [option.feedback for option in added] + [o.missed for o in missed if o.missed]
    if missed and not said:
        n = len(missed)
        said = [Text(en=f"{n} more {'is' if n == 1 else 'are'} right.", zh=f"还有 {n} 项也对。")]
    text = said and Text(en=" ".join(t.en for t in said), zh="".join(t.zh for t in said))
    return not added and not missed, score, text or None, [option.misconception for option in added]


def _numeric(card: Card, answer: Sequence[str]):
    parts = card.question.parts
    given = [answer] if isinstance(answer, str) else list(answer)
    if len(given) != len(parts):
        n = len(parts)
        raise Unclear(
            f"{n} numbers are asked for, got {len(given)}.",
            f"需要 {n} 个数，得到 {len(given)} 个。",
        )
    hits, said, ideas = 0, None, []
    for place, (text, part, expected) in enumerate(
        zip(given, parts, card.expected, strict=True), 1
    ):
        number = _read(str(text), part.unit)
        if _is(number, str(text), expected, part.tolerance):
            hits += 1
            continue
        for known, value in zip(card.question.wrong, card.wrong, strict=True):
            if known.part == place and _is(number, str(text), value, part.tolerance):
                said = said or known.feedback
                ideas.append(known.misconception)
                break
    return hits == len(parts), hits / len(parts), said, ideas


def _read(text: str, unit: str | None) -> Number:
    try:
        return same_unit(read_number(text), unit)
    except ExpressionError as error:
        shown = text if len(text) <= 40 else text[:40] + "..."
        wanted = f",单位 {unit}" if unit else ""
        raise Unclear(
            f"{str(error)[0].upper()}{str(error)[1:]}.",
            f"读不懂 {shown!r}。请写成 65504、6.1e-5、2**-14、1/16384 或 0x1p-14 这样的数"
            f"{wanted}。",
        ) from None


def _is(number: Number, text: str, value: Number, tolerance) -> bool:
    """Whether what was written is that value: within the tolerance, or rounded as far as written.

    2**-24 has ten digits and more: who writes 5.96e-8 has it. A value of a few digits is asked for
    as it is.
    """
    if within(number, value, tolerance):
        return True
    if tolerance is not None or isinstance(value, float) or isinstance(number, float):
        return False
    if _rounded(value, _SHORT) == value:
        return False
    digits = _significant_digits(text)
    return digits >= _DIGITS and number in _written_to(value, digits)


def _written_to(value: int | Fraction, digits: int) -> set[Fraction]:
    """The value to that many digits, a tie either way, and as Python prints it: 2/3 ends in a 6."""
    said = {_rounded(value, digits, rounding) for rounding in (ROUND_HALF_UP, ROUND_HALF_DOWN)}
    with contextlib.suppress(OverflowError):
        said.add(Fraction(repr(float(value))))
    return said


def _rounded(value: int | Fraction, digits: int, rounding: str = ROUND_HALF_UP) -> Fraction:
    """The value to that many significant digits."""
    top, bottom = value.as_integer_ratio()
    with localcontext(prec=digits, rounding=rounding):
        return Fraction(Decimal(top) / Decimal(bottom))


def _significant_digits(text: str) -> int:
    """Significant digits of a plain decimal; 0 for other forms."""
    found = re.match(r"[-+]?[\d._]+(?:[eE][-+]?\d+)?", plain(text))
    try:
        return len(Decimal(found[0]).as_tuple().digits) if found else 0
    except InvalidOperation:
        return 0


def _bits(card: Card, answer: str):
    code, width = _code(answer, card.question.width), card.question.width
    wrongs = zip(card.question.wrong, card.wrong, strict=True)
    known = next((wrong for wrong, value in wrongs if value == code), None)
    if code is None:
        raise Unclear(
            f"Write all {width} bits, or hexadecimal such as 0x{'2e66'[: -(-width // 4)]}.",
            f"请写出全部 {width} 位，或写成十六进制，例如 0x{'2e66'[: -(-width // 4)]}。",
        )
    return _plainly(code == card.expected[0], known)


def _code(text: str, width: int) -> int | None:
    plain = re.sub(r"[\s_.|]", "", text).lower()
    if re.fullmatch(r"0x[0-9a-f]+", plain):
        code = int(plain, 16)
    elif re.fullmatch(rf"(0b)?[01]{{{width}}}", plain):
        code = int(plain.removeprefix("0b"), 2)
    elif re.fullmatch(rf"[0-9a-f]{{{-(-width // 4)}}}", plain) and width >= 8:
        code = int(plain, 16)
    else:
        return None
    return code if code < 1 << width else None


def _order(card: Card, answer: Sequence[str]):
    given = tuple(answer)
    right = tuple(item.key for item in card.question.items)
    if sorted(given) != sorted(right):
        raise Unclear("Give every item once.", "每一项都要出现一次。")
    known = next((w for w in card.question.wrong if w.order == given), None)
    return _plainly(given in (right, *card.question.also), known)


def _match(card: Card, answer: Sequence[str]):
    pairs, given = card.question.pairs, list(answer)
    if len(given) != len(pairs) or set(given) - {item.key for item in card.question.rights}:
        raise Unclear("Give one right side for each left side.", "请为左边每一项选一个右边的项。")
    hits = [key == pair.right for key, pair in zip(given, pairs, strict=True)]
    known = [w for w in card.question.wrong if given[w.pair - 1] == w.right]
    said = known[0].feedback if known else None
    return all(hits), sum(hits) / len(hits), said, [w.misconception for w in known]


def _predict(card: Card, answer: str):
    known = [w for w in card.question.wrong if same_output(answer, card.fill(w.answer))]
    correct = same_output(answer, card.fill(card.question.answer))
    return _plainly(correct, known[0] if known else None)


def same_output(one: str, other: str) -> bool:
    """Whether two outputs agree token by token: numbers as numbers, words in any case."""
    tokens = [_tokens(text) for text in (one, other)]
    return len(tokens[0]) == len(tokens[1]) and all(map(_agree, *tokens))


def _tokens(text: str) -> list[str]:
    return re.findall(r"[^\s,()\[\]]+", text.casefold().replace("−", "-"))


def _agree(a: str, b: str) -> bool:
    if a == b:
        return True
    try:
        return same(Fraction(a), Fraction(b))
    except (ValueError, ZeroDivisionError):
        pass
    try:
        return same(float(a), float(b))
    except ValueError:
        return False


def _line(card: Card, answer: int | str):
    try:
        line = int(answer)
    except (TypeError, ValueError):
        raise Unclear(
            "Give the number of a line, 0 for none.", "请给出行号，0 表示没有错。"
        ) from None
    last = len(card.question.code.strip("\n").splitlines())
    if not 0 <= line <= last:
        raise Unclear(
            f"The lines are 1 to {last}; 0 means none.", f"行号为 1 到 {last};0 表示没有错。"
        )
    known = next((w for w in card.question.wrong if w.line == line), None)
    return _plainly(line == card.question.line, known)


def _free(card: Card, answer: Sequence[int]):
    rubric = card.question.rubric
    made = {int(point) for point in answer}
    if made - set(range(1, len(rubric) + 1)):
        raise Unclear(f"The points are 1 to {len(rubric)}.", f"要点编号为 1 到 {len(rubric)}。")
    score = sum(rubric[i - 1].weight for i in made) / sum(point.weight for point in rubric)
    return score >= 0.8, score, None, ()


def _code_answer(card: Card, answer: str):
    result = run_code(card.question, answer)
    if result.status == "passed":
        return True, 1.0, None, ()
    said = Text(en=result.message, zh=result.message)
    return False, 0.0, said, result.misconceptions


def run_code(question: Question, answer: str):
    """Run the text of an answer in this process and judge it with the question's check.

    The answer is the learner's own code, run where the learner's code runs anyway. Returns the
    check's ``CheckResult``.
    """
    from labkit.labs.engine import CheckResult
    from labkit.labs.engine.running import raised

    module, _, name = question.check.rpartition(".")
    check = getattr(importlib.import_module(module), name)
    wanted = next(node.name for node in ast.parse(question.stub).body if hasattr(node, "name"))
    file = f"<answer to {question.id}>"
    linecache.cache[file] = (len(answer), None, answer.splitlines(keepends=True), file)
    namespace: dict = {"__name__": "__answer__"}
    try:
        exec(compile(answer, file, "exec"), namespace)
    except (Exception, SystemExit) as error:
        told = raised(error)
        return CheckResult(check.exercise, "error", f"{told.type_name}: {told.message}")
    if wanted not in namespace:
        return CheckResult(check.exercise, "error", f"The answer defines no {wanted}.")
    return check.result(namespace[wanted])


_JUDGES = {
    "choice": _choice, "select": _select, "numeric": _numeric, "bits": _bits, "order": _order,
    "match": _match, "predict": _predict, "line": _line, "code": _code_answer, "free": _free,
}  # fmt: skip


def right_answer(card: Card) -> Text:
    """The right answer in words."""
    question = card.question
    if hasattr(question, "options"):
        right = [option for option in question.options if option.right]
        said = _joined([(option.en, option.zh) for option in right])
    elif question.kind == "numeric":
        parts = list(zip(question.parts, card.expected, strict=True))
        en = [_labelled(part, card, value, "en") for part, value in parts]
        zh = [_labelled(part, card, value, "zh") for part, value in parts]
        return Text(en="; ".join(en), zh="；".join(zh))
    elif question.kind == "bits":
        code, width = int(card.expected[0]), question.width
        shown = f"0x{code:0{-(-width // 4)}x} = {code:0{width}b}"
        return Text(en=shown, zh=shown)
    elif question.kind == "order":
        items = question.items
        said = Text(en=" → ".join(i.en for i in items), zh=" → ".join(i.zh for i in items))
    elif question.kind == "match":
        rights = {item.key: item for item in question.rights}
        said = Text(
            en="; ".join(f"{p.left.en}: {rights[p.right].en}" for p in question.pairs),
            zh="；".join(f"{p.left.zh}：{rights[p.right].zh}" for p in question.pairs),
        )
    elif question.kind == "predict":
        said = Text(en=question.answer, zh=question.answer)
    elif question.kind == "spot":
        said = Text(en=f"line {question.line}", zh=f"第 {question.line} 行")
        if question.line == 0:
            said = Text(en="nothing is wrong", zh="没有错")
    elif question.kind == "code":
        said = Text(en=question.solution, zh=question.solution)
    else:
        said = question.model
    return Text(en=card.fill(said.en), zh=card.fill(said.zh))


def _joined(entries: list[tuple[str, str]]) -> Text:
    """Some options in a line; sentences among them lose their full stops but the last."""
    if len(entries) == 1:
        return Text(en=entries[0][0], zh=entries[0][1])
    en = "; ".join(text.rstrip(".") for text, _ in entries)
    return Text(en=en, zh="；".join(text.rstrip("。") for _, text in entries))


def given_answer(card: Card, answer) -> Text:
    """What was answered, in words; of what was typed at most ``GIVEN_LIMIT`` characters.

    ``answer`` is in the form that ``judge`` takes, for free speech the line that sums it up.
    """
    question = card.question
    if answer is None:
        return Text(en="I do not know", zh="不知道")
    if question.kind == "spot" and not hasattr(question, "options"):
        return Text(en=f"line {answer}", zh=f"第 {answer} 行")
    named = getattr(question, "options", None) or getattr(question, "items", None)
    named = {entry.key: entry for entry in named or getattr(question, "rights", ())}
    if named:
        chosen = [named[key] for key in ([answer] if isinstance(answer, str) else answer)]
        if not chosen:
            return Text(en="–", zh="–")
        if question.kind == "order":
            link = " → "
            said = Text(en=link.join(e.en for e in chosen), zh=link.join(e.zh for e in chosen))
        else:
            said = _joined([(entry.en, entry.zh) for entry in chosen])
        return Text(en=card.fill(said.en), zh=card.fill(said.zh))
    typed = answer if isinstance(answer, str) else "; ".join(map(str, answer))
    if len(typed) > GIVEN_LIMIT:
        typed = typed[:GIVEN_LIMIT] + " ..."
    return Text(en=typed or "–", zh=typed or "–")


def _labelled(part, card: Card, value: Number, language: str) -> str:
    label = f"{card.fill(part.label[language])}: " if part.label else ""
    return f"{label}{_exactly(value)}{f' {part.unit}' if part.unit else ''}"


def _exactly(value: Number) -> str:
    """A right number in words; a power of two says its decimal too."""
    if isinstance(value, int) and abs(value) >= 10**12:
        return f"{float(value):.6g}"
    shown = written(value)
    return f"{shown} = {float(value):.6g}" if "**" in shown else shown


def read(card: Card, text: str):
    """The answer that a typed line means, in the form that ``judge`` takes.

    Options are numbered as shown, from 1; items and right sides have letters, from a. An empty
    line or ``?`` is "I do not know". Raises Unclear where the line cannot be understood.
    """
    text = text.strip()
    question, form = card.question, _form(card.question)
    if text in ("", "?", "？"):
        return None
    if form in ("choice", "select"):
        numbers = _places(text, len(card.keys))
        if form == "choice" and len(numbers) != 1:
            raise Unclear("Give one number.", "请给出一个编号。")
        keys = [card.keys[number - 1] for number in numbers]
        return keys[0] if form == "choice" else keys
    if form in ("order", "match"):
        letters = re.findall(r"[a-z]", text.lower())
        if any(letter not in _LETTERS[: len(card.keys)] for letter in letters):
            last = _LETTERS[len(card.keys) - 1]
            raise Unclear(f"Give letters from a to {last}.", f"请用 a 到 {last} 的字母作答。")
        return [card.keys[_LETTERS.index(letter)] for letter in letters]
    if form == "numeric":
        if len(question.parts) == 1:
            return [text]
        return [part.strip() for part in re.split(r"[;；]|,(?!\d{3}(?!\d))|，", text)]
    if form == "free":
        return [] if text in ("0", "-") else _places(text, len(question.rubric))
    return text


def _places(text: str, last: int) -> list[int]:
    numbers = [int(number) for number in re.findall(r"\d{1,3}", text)]
    if not numbers or not all(1 <= number <= last for number in numbers):
        raise Unclear(f"Give numbers from 1 to {last}.", f"请给出 1 到 {last} 的编号。")
    return numbers
