"""What answers to small questions of every kind are worth, and how a typed line is read."""

import math
from fractions import Fraction

import pytest

from labkit.interview.answers import LONGEST, given_answer, judge, read_answer, right_answer
from labkit.interview.cards import draw
from labkit.interview.question_kinds import KINDS
from labkit.interview.question_parts import Unclear
from labkit.interview.run_code import run_code
from labkit.interview.typed_numbers import same_output

IDEA = {
    "feedback": {"en": "Said {n}.", "zh": "说了 {n}。"},
    "misconception": "implied-one-in-subnormals",
}
OTHER = {
    "feedback": {"en": "Other.", "zh": "另外。"},
    "misconception": "subnormal-exponent-minus-bias",
}
SCRIPT = "<script>alert(1)</script>"


def both(text: str) -> dict:
    return {"en": text, "zh": f"{text}。"}


def card(kind: str, seed: int = 0, **answer):
    """A card of a question of that kind; its numbers come in as n = 24."""
    asked = {
        "id": "small",
        "kind": kind,
        "level": 1,
        "seconds": 30,
        "prompt": both("What?"),
        "explanation": both("So."),
        "verified": "reasoned",
        "parameters": {"n": [24]},
    }
    return draw(KINDS[kind](**asked | answer, topic="small", lab=None), seed)


def option(key: str, said: dict | None, **more) -> dict:
    return {"key": key, **both(key.upper()), **(said or {"right": True}), **more}


def number(answer: str, *wrong: str, **part):
    known = [{"answer": each, **IDEA} for each in wrong or ("-1",)]
    return card("numeric", answer=answer, wrong=known, **part)


CHOICE = card("choice", options=[option("a", None), option("b", IDEA), option("c", OTHER)])
CLAIM = card(
    "claim",
    claim=both("It holds."),
    holds=False,
    cell="holds = False",
    options=[option("a", None), option("b", IDEA), option("c", OTHER)],
)
SELECT = card(
    "select",
    options=[
        option("a", None, missed=both("A too.")),
        option("b", None),
        option("c", IDEA),
        option("d", OTHER),
    ],
)
ORDER = card(
    "order",
    items=[{"key": key, **both(key.upper())} for key in "abc"],
    before=[{"pair": ["a", "c"], **IDEA}, {"pair": ["b", "c"], "feedback": both("C needs B.")}],
)
MATCH = card(
    "match",
    pairs=[{"left": both(str(i)), "right": key} for i, key in enumerate("xyx", 1)],
    rights=[{"key": key, **both(key.upper())} for key in "xyz"],
    wrong=[{"pair": 1, "right": "y", **IDEA}, {"pair": 3, "right": "z", **OTHER}],
)
BITS = card("bits", width=16, answer="code(2**-n, 'FP16')", wrong=[{"answer": "0x3c00", **IDEA}])
NIBBLE = card("bits", width=4, answer="0b0110", wrong=[{"answer": "7", **IDEA}])
PREDICT = card(
    "predict",
    code="print(2**-{n}, 'inf')",
    answer="5.960464477539063e-08 inf",
    wrong=[{"answer": "0.0 inf", **IDEA}],
)
LINE = card(
    "line",
    code="a = 1\nb = 2\nc = 3\n",
    line=2,
    holds=False,
    cell="holds = False",
    wrong=[{"line": 0, **IDEA}, {"line": 3, **OTHER}],
)
FREE = card(
    "free",
    model=both("All of it, {n} times."),
    rubric=[
        {**both("One."), "weight": 5},
        {**both("Two."), "weight": 3},
        {**both("3"), "weight": 2},
    ],
)
PARTS = card(
    "numeric",
    parts=[
        {"label": both("normal"), "answer": "2**-14"},
        {"label": both("subnormal"), "answer": "2**-n"},
        {"label": both("size"), "answer": "80", "unit": "GB"},
    ],
    wrong=[{"answer": "2**-15", **IDEA}, {"answer": "2**-25", "part": 2, **OTHER}],
)
CODE = card(
    "code",
    stub="def largest(e, m):\n    raise NotImplementedError('your code here')",
    solution="def largest(e, m): return 1",
    check="labkit.labs.number_formats.checks.check_ulp",
    wrong=[{"code": "def largest(e, m): return 0", **IDEA}],
)
CARDS = {
    "choice": CHOICE, "claim": CLAIM, "select": SELECT, "order": ORDER, "match": MATCH,
    "bits": BITS, "predict": PREDICT, "line": LINE, "free": FREE, "parts": PARTS, "code": CODE,
    "number": number("3"),
}  # fmt: skip
FIRST, SECOND = IDEA["misconception"], OTHER["misconception"]


@pytest.mark.parametrize(
    ("card", "answer"),
    [
        (CHOICE, "a"), (CLAIM, "a"), (SELECT, ["b", "a"]), (SELECT, ("a", "b")),
        (ORDER, ["a", "b", "c"]), (ORDER, ["b", "a", "c"]), (MATCH, ["x", "y", "x"]),
        (BITS, "0x0001"), (BITS, "0b0000000000000001"), (BITS, "0 00000 0000000001"),
        (BITS, "0_00000_0000000001"), (BITS, "0001"), (BITS, "0X1"), (NIBBLE, "0110"),
        (NIBBLE, "0x6"), (NIBBLE, "0b0110"), (PREDICT, "5.960464477539063e-08 inf"),
        (PREDICT, " 5.960464477539063E-8,  INF\n"), (LINE, 2), (LINE, "2"), (LINE, " 2 "),
        (FREE, [1, 2, 3]), (FREE, (1, 2)), (number("3"), "3"), (number("3"), ["3"]),
        (PARTS, ["2**-14", "2^-24", "80 GB"]), (PARTS, ["6.1e-5", "5.96e-8", "80"]),
        (PARTS, ["1/16384", "0x1p-24", "80000 MB"]),
    ],
)  # fmt: skip
def test_right_answers(card, answer):
    found = judge(card, answer)
    assert found.correct and found.score >= 0.8
    assert found.said is None and found.misconceptions == ()
    if card.question.kind != "free":
        assert found.score == 1


TENTH = "size: That is 1/10 of the right"


@pytest.mark.parametrize(
    ("card", "answer", "score", "said", "ideas"),
    [
        (CHOICE, "b", 0, "Said 24.", [FIRST]),
        (CLAIM, "c", 0, "Other.", [SECOND]),
        (SELECT, ["a"], 3 / 4, "1 more is right.", []),
        (SELECT, ["b"], 3 / 4, "A too.", []),
        (SELECT, ["a", "b", "c"], 3 / 4, "Said 24.", [FIRST]),
        (SELECT, ["b", "c"], 1 / 2, "Said 24. A too.", [FIRST]),
        (SELECT, ["c", "d"], 0, "Said 24. Other. A too. 1 more", [FIRST, SECOND]),
        (SELECT, [], 0, "A too. 1 more", []),
        (ORDER, ["c", "b", "a"], 0, "Said 24.", [FIRST]),
        (ORDER, ["b", "c", "a"], 0, "Said 24.", [FIRST]),
        (ORDER, ["a", "c", "b"], 0, "C needs B.", []),
        (MATCH, ["y", "y", "x"], 2 / 3, "Said 24.", [FIRST]),
        (MATCH, ["y", "x", "z"], 0, "Said 24. Other. Line 2 ", [FIRST, SECOND]),
        (MATCH, ["x", "x", "x"], 2 / 3, "Line 2 ", []),
        (MATCH, ["z", "z", "x"], 1 / 3, "Lines 1, 2 ", []),
        (BITS, "0x3c00", 0, "Said 24.", [FIRST]),
        (BITS, "0x3c01", 0, "first 2 bits", []),
        (BITS, "0x0003", 0, "first 14 bits", []),
        (BITS, "0x0000", 0, "next to the right one", []),
        (BITS, "0x8001", 0, "first bit is wrong", []),
        (PREDICT, "0 inf", 0, "Said 24.", [FIRST]),
        (PREDICT, "0 inf inf", 0, "has 2 values; yours has 3", []),
        (PREDICT, "5.96e-8 nan", 0, "Value 2 is", []),
        (PREDICT, "6e-8 nan", 0, "No value", []),
        (PREDICT, SCRIPT, 0, "has 2 values; yours has 3", []),
        (LINE, 0, 0, "Said 24.", [FIRST]),
        (LINE, "3", 0, "Other.", [SECOND]),
        (LINE, 1, 0, "not in line 1", []),
        (FREE, [1, 3], 0.7, None, []),
        (FREE, [], 0, None, []),
        (PARTS, ["2**-15", "2^-24", "80"], 2 / 3, "Said 24.", [FIRST]),
        (PARTS, ["2**-15", "2^-25", "8"], 0, f"Said 24. Other. {TENTH}", [FIRST, SECOND]),
        (PARTS, ["2**-14", "2^-24", "8"], 2 / 3, TENTH, []),
        (PARTS, ["0", "2^-24", "80"], 2 / 3, "normal: Another", []),
        (number("3"), "4", 0, "one more", []),
        (number("3"), "2", 0, "one less", []),
        (number("3"), "-3", 0, "Only the sign", []),
        (number("3"), "-5", 0, "sign is wrong", []),
        (number("3"), "1/3", 0, "1 over the right", []),
        (number("3"), "24", 0, " 8 times the right", []),
        (number("3"), "0.003", 0, " 1/1000 of the right", []),
        (number("3"), "3.3", 0, "10 % too high", []),
        (number("3"), "0.7", 0, "is too low", []),
        (number("3"), "0", 0, None, []),
        (number("inf"), "3", 0, "is not finite", []),
        (number("3", "4"), "4.0", 0, "Said 24.", [FIRST]),
        (number("3"), "10^400", 0, "is too high", []),
        (number("3"), "-1e400", 0, "sign is wrong", []),
        (number("3"), "0x1p2000", 0, "is too high", []),
        (number("3"), "inf", 0, "is finite", []),
        (number("3"), "nan", 0, "is finite", []),
    ],
)
def test_wrong_answers_get_what_is_known_of_them(card, answer, score, said, ideas):
    found = judge(card, answer)
    assert not found.correct and found.score == pytest.approx(score, abs=1e-12)
    assert said in found.said.en if said else found.said is None
    assert found.misconceptions == tuple(ideas)
    if said:
        assert found.said.zh


@pytest.mark.parametrize("kind", CARDS)
def test_i_do_not_know_is_wrong_and_tells_the_right_answer(kind):
    found = judge(CARDS[kind], None)
    assert (found.correct, found.score, found.said, found.misconceptions) == (False, 0, None, ())
    assert found.right == right_answer(CARDS[kind]) and found.right.en and found.right.zh


@pytest.mark.parametrize(
    ("card", "right"),
    [
        (CHOICE, "A"),
        (SELECT, "A; B"),
        (ORDER, "A → B → C"),
        (MATCH, "1: X; 2: Y; 3: X"),
        (BITS, "0x0001 = 0000000000000001"),
        (NIBBLE, "0x6 = 0110"),
        (LINE, "line 2"),
        (FREE, "All of it, 24 times."),
        (PARTS, "normal: 2**-14 = 6.10352e-05; subnormal: 2**-24 = 5.96046e-08; size: 80 GB"),
    ],
)
def test_the_right_answer_in_words(card, right):
    assert right_answer(card).en == right


@pytest.mark.parametrize(
    ("card", "answer", "words"),
    [
        (CHOICE, "b", "B"),
        (SELECT, ["b", "a"], "B; A"),
        (SELECT, [], "–"),
        (ORDER, ["b", "a", "c"], "B → A → C"),
        (MATCH, ["x", "z", "x"], "X; Z; X"),
        (LINE, "3", "line 3"),
        (LINE, 0, "nothing is wrong"),
        (BITS, "0x1", "0x1"),
        (PARTS, ["1", "2", "3 GB"], "1; 2; 3 GB"),
        (FREE, "{n} in a line", "{n} in a line"),
        (PREDICT, "", "–"),
        (PREDICT, "1" * 301, "1" * 300 + " ..."),
        (CODE, None, "I do not know"),
    ],
)
def test_the_given_answer_in_words(card, answer, words):
    assert given_answer(card, answer).en == words
    assert given_answer(card, answer).zh


NEAR = {"relative": Fraction(1, 1000), "because": both("Four digits.")}


@pytest.mark.parametrize(
    ("card", "answer"),
    [
        (CHOICE, "z"), (CHOICE, ""), (CHOICE, "A"), (CHOICE, SCRIPT), (SELECT, ["a", "z"]),
        (SELECT, "ab z"), (ORDER, ["a", "b"]), (ORDER, ["a", "b", "b"]), (ORDER, []),
        (MATCH, ["x", "y"]), (MATCH, ["x", "y", "w"]), (BITS, "1"), (BITS, "0x10000"),
        (BITS, "2" * 16), (BITS, "0b1"), (BITS, SCRIPT), (NIBBLE, "6"), (NIBBLE, "0x10"),
        (number("50", unit="%"), "0.5"), (number("0.0157", "0.0160", tolerance=NEAR), "0.016"),
        (LINE, 4), (LINE, -1), (LINE, "two"), (LINE, ""), (LINE, "9" * 5000), (LINE, SCRIPT),
        (FREE, [4]), (FREE, [0]), (number("3"), "three"), (number("3"), ""), (number("3"), SCRIPT),
        (number("3"), "3 GB"), (number("3", unit="GB"), "3 s"), (number("3"), ["3", "3"]),
        (number("3"), "9**9**9"), (number("3"), "__import__('os').abort()"),
        (number("65504"), "largest('FP16')"), (PARTS, ["2**-14", "?", "80"]), (PARTS, ["1", "2"]),
    ],
)  # fmt: skip
def test_what_cannot_be_understood_is_no_wrong_answer(card, answer):
    with pytest.raises(Unclear) as unclear:
        judge(card, answer)
    assert unclear.value.said.en == str(unclear.value) and unclear.value.said.zh
    assert len(unclear.value.said.en) < 300


@pytest.mark.parametrize(
    ("value", "text", "right"),
    [
        ("2**-24", "5.96e-8", True),
        ("2**-24", "6.0e-8", True),
        ("2**-24", "5.960e-8", True),
        ("2**-24", "5.960464477539063e-8", True),  # the float's shortest digits
        ("2**-24", "0.0000000596", True),
        ("2**-24", "5.96 × 10⁻⁸", True),
        ("2**-24", "5.96x10^-8", True),
        ("2**-24", "6e-8", False),  # one digit says too little
        ("2**-24", "5.9e-8", False),  # cut, not rounded
        ("2**-24", "5.97e-8", False),
        ("2**-24", "5.961e-8", False),
        ("-2**-24", "-5.96e-8", True),
        ("-2**-24", "−5.96e−8", True),
        ("-2**-24", "－５．９６e－８", True),
        ("-2**-24", "5.96e-8", False),
        ("1234567.125", "1,234,567", True),
        ("1234567.125", "1,234,568", False),
        ("1/3", "0.33", True),
        ("1/3", "0.34", False),
        ("2/3", "0.6666666666666666", True),  # what Python prints
        ("2/3", "0.666666", False),
        ("1/3", "1/3", True),
        ("0.25", "0.3", False),  # few digits are asked for as they are
        ("65504", "6.55e4", False),
        ("65504", "65504.0", True),
        ("0", "0", True),
        ("0", "0.001", False),
        ("inf", "∞", True),
        ("-inf", "inf", False),
        ("inf", "65504", False),
        ("nan", "NaN", True),
        ("nan", "0", False),
        ("2**1024 / 3", "5.99e307", True),
    ],
)
def test_numbers_are_right_as_far_as_they_are_written(value, text, right):
    assert judge(number(value), text).correct is right


def test_a_known_wrong_number_is_known_when_it_is_rounded_too():
    found = judge(number("2**-24", "2**-25"), "2.98e-8")
    assert not found.correct and found.misconceptions == (FIRST,)


@pytest.mark.parametrize(
    ("tolerance", "value", "text", "right"),
    [
        ({"relative": Fraction(1, 50)}, "100", "102", True),
        ({"relative": Fraction(1, 50)}, "100", "98", True),
        ({"relative": Fraction(1, 50)}, "100", "102.0001", False),
        ({"relative": Fraction(1, 50)}, "-100", "−98", True),
        ({"relative": Fraction(1, 50)}, "100", "inf", False),
        ({"relative": Fraction(1, 50)}, "100", "1e400", False),
        ({"relative": Fraction(1, 200)}, "10/7", "1.4", True),  # rounded as far as it is written
        ({"relative": Fraction(1, 200)}, "10/7", "1", False),
        ({"relative": Fraction(1, 200)}, "3.71875", "3.7", True),
        ({"relative": Fraction(1, 200)}, "3.71875", "3.8", False),
        ({"ulps": 1, "format": "FP16"}, "2048", "2050", True),
        ({"ulps": 1, "format": "FP16"}, "2048", "2051", False),
        ({"ulps": 0, "format": "FP16"}, "2**-24", "5.96e-8", False),
    ],
)
def test_tolerances(tolerance, value, text, right):
    tolerance = tolerance | {"because": both("Read off.")}
    assert judge(number(value, tolerance=tolerance), text).correct is right


def test_units_are_converted_before_a_number_is_judged():
    size = number("1.6", unit="GB")
    for text in (
        "1.6",
        "1.6 GB",
        "1600MB",
        "1,600,000,000 B",
    ):
        assert judge(size, text).correct, text
    assert not judge(size, "1.6 GiB").correct
    assert judge(number("12", unit="%"), "12 %").correct
    assert judge(number("0.12"), "12 %").correct


@pytest.mark.parametrize("kind", CARDS)
def test_an_answer_of_100_000_characters_is_refused_unread(kind):
    long = "1" * 100_000
    wanted = [long] if kind in ("select", "order", "match", "free", "parts") else long
    for answer in (wanted, ["1"] * 100_000):
        with pytest.raises(Unclear) as unclear:
            judge(CARDS[kind], answer)
        assert unclear.value.said.en == (
            f"The answer has 100000 characters; at most {LONGEST} are read."
        )


def test_markup_in_an_answer_comes_back_as_text():
    with pytest.raises(Unclear) as unclear:
        judge(number("3"), SCRIPT)
    assert repr(SCRIPT) in unclear.value.said.en and repr(SCRIPT) in unclear.value.said.zh
    with pytest.raises(Unclear) as unclear:
        judge(number("3"), "{n} {0.__class__}")
    assert "{n} {0.__class__}" in unclear.value.said.en


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        ("1.0", "1", True), ("tensor([1., 2.])", "tensor([1, 2])", True), ("True", "true", True),
        ("nan inf", "NaN Inf", True), ("-inf", "inf", False), ("−1", "-1", True), ("", " \n", True),
        ("1 2", "12", False), ("1e-08", "1e-8", True), ("0.1", "0.10000000000000001", False),
        ("1/0", "1", False), ("a", "b", False), ("torch.float16", "torch.float32", False),
        ("-0.0", "0.0", True), ("torch.float16", "half", True), ("bf16", "torch.bfloat16", True),
        ("fp16", "bf16", False), ("T F", "True False", True), ("1; 2", "1 2", True),
        ("∞ 2**16", "inf 65536", True), ("'a'", "a", True), ("3 GB", "3", False),
        ("0.30", "0.30000000000000004", False),
    ],
)  # fmt: skip
def test_outputs_agree_token_by_token(one, other, agree):
    assert same_output(one, other) is agree and same_output(other, one) is agree


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("5.96e-8 inf", True), ("6.0e-8 inf", False), ("5.97e-8 inf", False), ("0.0 inf", False),
        ("5.96e-8, 65,504", False),
    ],
)  # fmt: skip
def test_an_output_is_right_as_far_as_its_numbers_are_written(typed, right):
    assert judge(PREDICT, typed).correct is right


def test_thousands_in_an_output_may_be_parted():
    printed = card("predict", code="", answer="inf 65536.0", wrong=[{"answer": "0 0", **IDEA}])
    assert judge(printed, "inf 65,536").correct and judge(printed, "inf, 65536").correct
    listed = card("predict", code="", answer="[1, 200]", wrong=[{"answer": "0 0", **IDEA}])
    assert judge(listed, "[1,200]").correct and not judge(listed, "1200").correct


def test_a_line_that_may_be_named_as_well_is_right():
    line = {"code": "if a:\n    b = 2\n", "line": 2, "holds": False, "cell": "holds = False"}
    wrongs = [{"line": 0, **IDEA}]
    assert judge(card("line", **line, also=[1], wrong=wrongs), 1).correct
    assert not judge(card("line", **line, wrong=wrongs), 1).correct


@pytest.mark.parametrize("kind", CARDS)
@pytest.mark.parametrize("text", ["", "  ", "?", " ？ ", "I don't know.", "idk", "不知道"])
def test_an_empty_line_or_a_question_mark_is_i_do_not_know(kind, text):
    assert read_answer(CARDS[kind], text) is None


def test_numbers_choose_options_as_they_are_shown():
    for seed in range(5):
        shown = draw(CHOICE.question, seed)
        assert [read_answer(shown, str(place)) for place in (1, 2, 3)] == list(shown.keys)
        shown = draw(SELECT.question, seed)
        assert (
            read_answer(shown, "1 3") == read_answer(shown, "1,3") == [shown.keys[0], shown.keys[2]]
        )
        shown = draw(CLAIM.question, seed)
        assert judge(shown, read_answer(shown, "2")).correct is (shown.keys[1] == "a")


def test_letters_stand_for_items_as_they_are_shown():
    for seed in range(5):
        for question in (ORDER.question, MATCH.question):
            shown = draw(question, seed)
            wanted = [shown.keys[1], shown.keys[0], shown.keys[2]]
            assert (
                read_answer(shown, "b a c")
                == read_answer(shown, "BAC")
                == read_answer(shown, "b, a; c")
                == wanted
            )


@pytest.mark.parametrize(
    ("card", "text", "answer"),
    [
        (LINE, "2", "2"),
        (BITS, " 0x2e66 ", "0x2e66"),
        (PREDICT, "nan", "nan"),
        (number("3"), "65,504", ["65,504"]),
        (number("3"), "2^-14 ", ["2^-14"]),
        (PARTS, "1; 2; 80 GB", ["1", "2", "80 GB"]),
        (PARTS, "1, 2, 3", ["1", "2", "3"]),
        (PARTS, "1；2，3", ["1", "2", "3"]),
        (PARTS, "65,504; 2; 3", ["65,504", "2", "3"]),
        (PARTS, "1,2345,6", ["1", "2345", "6"]),
        (FREE, "1 3", [1, 3]),
        (FREE, "1,2,3", [1, 2, 3]),
        (FREE, "0", []),
        (FREE, "-", []),
        (FREE, "none", []),
        (FREE, "all", [1, 2, 3]),
        (FREE, "1-3", [1, 2, 3]),
        (FREE, "13", [1, 3]),
        (PARTS, "0,5; 0,25; 3", ["0,5", "0,25", "3"]),
        (PARTS, "65,504, 2, 3", ["65,504", "2", "3"]),
        (PARTS, "1; 2; 3;", ["1", "2", "3"]),
        (LINE, "line 2", "2"),
        (LINE, "第 2 行", "2"),
        (LINE, "nothing", "0"),
    ],
)
def test_typed_lines(card, text, answer):
    assert read_answer(card, text) == answer


@pytest.mark.parametrize(
    ("card", "text"),
    [
        (CHOICE, "a"), (CHOICE, "0"), (CHOICE, "4"), (CHOICE, "1 2"), (CLAIM, "99"),
        (SELECT, "1 5"), (SELECT, "none"), (ORDER, "a b d"), (MATCH, "x y x"), (FREE, "4"),
        # Each of these was once read as the numbers or letters in it.
        (CHOICE, "not 2"), (SELECT, "all but 2"), (SELECT, "-1"), (SELECT, "1 or 2"),
        (ORDER, "1 2 3"), (ORDER, "b and a"), (MATCH, "1a 1b 3c"), (MATCH, "1a 3b 4c"),
    ],
)  # fmt: skip
def test_lines_that_cannot_be_understood(card, text):
    with pytest.raises(Unclear) as unclear:
        read_answer(card, text)
    assert unclear.value.said.zh


# A check of the labs stands in for a question's own: the gap above a float16.
ULP = card(
    "code",
    stub="def ulp(x):\n    raise NotImplementedError('your code here')",
    solution="import math\ndef ulp(x): return 2.0 ** max(math.frexp(x)[1] - 11 if x else -24, -24)",
    check="labkit.labs.number_formats.checks.check_ulp",
    wrong=[{"code": "def ulp(x): return 2**-10", **IDEA}],
)


def test_code_is_run_and_checked():
    found = judge(ULP, ULP.question.solution)
    assert found.correct and found.score == 1 and found.said is None
    found = judge(ULP, "def ulp(x):\n    return 2.0**-10")
    assert not found.correct and found.score == 0 and found.said.en


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(3)", "SystemExit"),
        (f"raise ValueError({SCRIPT!r})", SCRIPT),
        ("def ulp(x):\n    return torch.tensor(x)", "name 'torch' is not defined"),
    ],
)
def test_code_that_raises_says_why(answer, words):
    asked = ULP.question
    result = run_code(answer, check=asked.check, stub=asked.stub, name=asked.id)
    found = judge(ULP, answer)
    assert result.status == "error" and words in found.said.en
    assert not found.correct and found.score == 0


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("def ulp(x:", "Python cannot read that, from line 1 on"),
        ("x = '\0'", "Python cannot read that"),
        ("gap = 1", "The answer defines no ulp."),
        ("", "The answer defines no ulp."),
        (ULP.question.stub, "still empty"),
    ],
)
def test_code_that_is_no_answer_yet_is_no_wrong_answer(answer, words):
    with pytest.raises(Unclear) as unclear:
        judge(ULP, answer)
    assert words in unclear.value.said.en and unclear.value.said.zh


def test_code_that_never_ends_is_stopped(monkeypatch):
    monkeypatch.setattr("labkit.interview.run_code.SECONDS", 0.2)
    found = judge(ULP, "while True:\n    pass")
    assert not found.correct and "still running after 0.2 seconds" in found.said.en


def test_a_call_that_nothing_interrupts_is_stopped_with_its_process(monkeypatch):
    monkeypatch.setattr("labkit.interview.run_code.SECONDS", 0.2)
    monkeypatch.setattr("labkit.interview.run_code._GRACE_SECONDS", 0.5)
    hangs = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\n"
    found = judge(ULP, f"{hangs}while True:\n    pass")
    assert not found.correct and "still running after 0.2 seconds" in found.said.en
    monkeypatch.undo()
    assert judge(ULP, ULP.question.solution).correct, "the next program has a new process"


def test_code_that_ends_its_process_is_wrong_and_leaves_this_one(capfd):
    found = judge(ULP, "import os\nprint('from the child')\nos._exit(3)")
    assert not found.correct and "status 3" in found.said.en
    assert "from the child" not in capfd.readouterr().out
    assert judge(ULP, ULP.question.solution).correct


def test_code_needs_neither_the_stubs_imports_nor_its_left_margin():
    stub = "import math\n\n\ndef ulp(x):\n    ..."
    given = "    def ulp(x):\n        return 2.0 ** max(math.frexp(x)[1] - 11 if x else -24, -24)\n"
    result = run_code(given, check=ULP.question.check, stub=stub, name="small")
    assert result.status == "passed", result.message


def test_scores_lie_between_0_and_1():
    for many in (["a"], ["a", "b"], ["a", "b", "c", "d"], ["c"], ["a", "a", "b"]):
        score = judge(SELECT, many).score
        assert 0 <= score <= 1 and math.isfinite(score)
