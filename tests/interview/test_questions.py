"""What a bank says of its mistakes, and how a question becomes a card."""

from fractions import Fraction
from pathlib import Path

import pytest

from labkit.interview.cards import Card, _fill, draw
from labkit.interview.question_parts import BankError, Range
from labkit.interview.questions import load_bank
from labkit.interview.typed_numbers import written_value

HEAD = 'topic = "tiny"\ntitle.en = "Tiny"\ntitle.zh = "小"\n'
ASKED = """
[[question]]
id = "{id}"
kind = "{kind}"
level = 1
seconds = 30
prompt.en = "What?"
prompt.zh = "什么？"
explanation.en = "So."
explanation.zh = "如此。"
verified = "reasoned"
"""
SAID = """
misconception = "implied-one-in-subnormals"
feedback.en = "No."
feedback.zh = "不。"
"""


def asked(name: str, kind: str, *, rest: str) -> str:
    return ASKED.format(id=name, kind=kind) + rest


def option(key: str, rest: str = SAID) -> str:
    return f'[[question.options]]\nkey = "{key}"\nen = "{key}"\nzh = "{key}"\n{rest}\n'


RIGHT = "right = true\n"
PICK = asked("pick", "choice", rest=option("a", RIGHT) + option("b") + option("c"))
WRONG = f'[[question.wrong]]\nanswer = "3 * n"{SAID}'
TWICE = asked("twice", "numeric", rest=f'answer = "2 * n"\nparameters.n = [2, 3, 5]\n{WRONG}')
LINE = asked(
    "line", "line",
    rest=f'code = "a = 1\\nb = 2"\nline = 2\nholds = false\ncell = "holds = False"\n'
    f"[[question.wrong]]\nline = 1{SAID}",
)  # fmt: skip
CLOSE = """
tolerance.relative = 0.01
tolerance.because.en = "Read off."
tolerance.because.zh = "读图。"
"""
ULPS = CLOSE.replace("relative = 0.01", 'ulps = 1\ntolerance.format = "FP16"')


@pytest.fixture
def bank(tmp_path: Path):
    def read(text: str | bytes, name: str = "tiny.toml"):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_bank(tmp_path)

    return read


def test_a_bank_without_mistakes_is_read(bank):
    found = bank(HEAD + 'lab = "02_number_formats"\n' + PICK + TWICE + LINE)
    assert list(found.questions) == ["pick", "twice", "line"]
    assert found.topics["tiny"].questions == tuple(found.questions.values())
    assert found.topics["tiny"].title["zh"] == "小"
    assert {question.lab for question in found.questions.values()} == {"02_number_formats"}
    assert found.questions["pick"].wrong_ideas == ("implied-one-in-subnormals",)


def test_a_number_with_a_unit_and_a_tolerance_is_one_part(bank):
    text = TWICE.replace('answer = "2 * n"\n', f'answer = "2 * n"\nunit = "GB"\n{CLOSE}', 1)
    part = bank(HEAD + text).questions["twice"].parts[0]
    assert (part.answer, part.unit) == ("2 * n", "GB")
    assert part.tolerance.relative == Fraction(1, 100)


# Where the mistake is made, what was there, what stands there now; what must be said of it.
MISTAKES = {
    "unknown kind": (PICK, '"choice"', '"choise"', "pick: kind: must be one of choice, select"),
    "no kind": (PICK, 'kind = "choice"', "", "pick: kind: must be one of"),
    "unknown field": (PICK, "level = 1", "level = 1\ncolour = 7", "pick: colour: Extra inputs"),
    "missing zh": (PICK, 'prompt.zh = "什么？"', "", "pick: prompt.zh: Field required"),
    "empty zh": (PICK, '"什么？"', '""', "pick: prompt.zh: String should have at least 1"),
    "no id": (PICK, 'id = "pick"', "", "question 1: id: Field required"),
    "id with spaces": (PICK, '"pick"', '"Pick me"', "Pick me: id: String should match"),
    "level 4": (PICK, "level = 1", "level = 4", "pick: level: Input should be 1, 2 or 3"),
    "seconds": (PICK, "seconds = 30", "seconds = 3.5", "pick: seconds: Input should be"),
    "two right": (PICK, option("b"), option("b", RIGHT), "pick: question: exactly one option"),
    "none right": (PICK, option("a", RIGHT), option("a"), "pick: question: exactly one option"),
    "one key twice": (PICK, option("b"), option("c"), "pick: question: keys that stand twice"),
    "two options": (PICK, option("b"), "", "pick: options: Tuple should have at least 3"),
    "wrong without an idea": (
        PICK, option("b"), option("b", 'feedback.en = "No."\nfeedback.zh = "不。"'),
        "pick: options[2]: the wrong option 'b' needs feedback and a misconception",
    ),
    "wrong without feedback": (
        PICK, option("b"), option("b", 'misconception = "implied-one-in-subnormals"'),
        "pick: options[2]: the wrong option 'b' needs feedback and a misconception",
    ),
    "feedback without zh": (
        PICK, option("b"), option("b", SAID.replace('feedback.zh = "不。"', "")),
        "pick: options[2].feedback.zh: Field required",
    ),
    "unknown misconception": (
        PICK, option("b"), option("b", SAID.replace("implied-one", "no-such")),
        "pick: misconception: 'no-such-in-subnormals' is not in data/misconceptions.toml",
    ),
    "unknown follow-up": (
        PICK, "level = 1", 'level = 1\nfollow_ups = ["twice", "nowhere"]',
        "pick: follow_ups: there is no question 'nowhere'",
    ),
    "core without a source": (
        PICK, "level = 1", 'level = 1\ntags = ["core"]',
        "pick: asked: a core question names a source in which it is asked",
    ),
    "asked without a year": (
        PICK, "level = 1", 'level = 1\nasked = [{ source = "A list" }]',
        "pick: asked[1].year: Field required",
    ),
    "hints": (PICK, "level = 1", 'level = 1\nhints.en = ["x"]', "pick: hints: 1 in English, 0 in"),
    "duplicate id": (TWICE, '"twice"', '"pick"', "pick: id: stands twice in the bank"),
    "line out of range": (LINE, "line = 2", "line = 3", "line: question: line 3: the code has"),
    "wrong line": (LINE, "\nline = 1", "\nline = 9", "line: question: line 9: the code has"),
    "line 0 that is wrong": (LINE, "line = 2", "line = 0", "line: question: holds must be true"),
    "no wrong number": (TWICE, WRONG, "", "twice: wrong: Field required"),
    "part 2 of 1": (TWICE, WRONG, f"{WRONG}part = 2\n", "twice: question: wrong numbers of a part"),
    "empty parameter": (TWICE, "[2, 3, 5]", "[]", "twice: parameters.n"),
    "empty range": (TWICE, "[2, 3, 5]", "{ from = 5, to = 4 }", "there is no number from 5 to 4"),
    "unknown unit": (
        TWICE, 'answer = "2 * n"\n', 'answer = "2 * n"\nunit = "GX"\n',
        "twice: parts[1]: unit 'GX' is none of B, bits",
    ),
    "unknown format": (
        TWICE, 'answer = "2 * n"\n', f'answer = "2 * n"\n{ULPS.replace("FP16", "FP17")}',
        "twice: tolerance.format: 'FP17' is no format; there are FP64",
    ),
    "ulps of nothing": (
        TWICE, 'answer = "2 * n"\n',
        'answer = "2 * n"\n' + ULPS.replace('tolerance.format = "FP16"', ""),
        "twice: parts[1].tolerance: ulps of which format?",
    ),
    "two tolerances": (
        TWICE, 'answer = "2 * n"\n', f'answer = "2 * n"\n{ULPS}tolerance.relative = 0.1\n',
        "twice: parts[1].tolerance: give either relative",
    ),
    "a tolerance that is no number": (
        TWICE, 'answer = "2 * n"\n', 'answer = "2 * n"\n' + CLOSE.replace("0.01", "[1]"),
        "twice: parts[1].tolerance.relative: [1] is no number",
    ),
    "a tolerance over 0": (
        TWICE, 'answer = "2 * n"\n', 'answer = "2 * n"\n' + CLOSE.replace("0.01", '"1/0"'),
        "twice: parts[1].tolerance.relative: '1/0' is no number",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_said_with_file_question_and_field(bank, mistake):
    where, before, after, words = MISTAKES[mistake]
    assert where.count(before) == 1 or before in ("\nline = 1", 'answer = "2 * n"\n')
    questions = [where.replace(before, after, 1) if q is where else q for q in (PICK, TWICE, LINE)]
    with pytest.raises(BankError) as error:
        bank(HEAD + "".join(questions))
    said = str(error.value).splitlines()
    assert any(line.startswith("tiny.toml: ") and words in line for line in said), said


ORDER = [f'[[question.items]]\nkey = "{key}"\nen = "{key}"\nzh = "{key}"\n' for key in "abc"]


def order(*pairs: tuple[str, str]) -> str:
    before = [f"[[question.before]]\npair = {list(pair)}{SAID}" for pair in pairs]
    return asked("row", "order", rest="".join(ORDER + before))


MATCH = """
[[question.pairs]]
left.en = "1"
left.zh = "1"
right = "x"
[[question.pairs]]
left.en = "2"
left.zh = "2"
right = "{right}"
[[question.rights]]
key = "x"
en = "x"
zh = "x"
[[question.rights]]
key = "y"
en = "y"
zh = "y"
[[question.wrong]]
pair = {pair}
right = "y"
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (order(("a", "d")), "row: question: the pair ['a', 'd'] must be two of ['a', 'b', 'c']"),
        (order(("a", "a")), "row: question: the pair ['a', 'a'] must be two of ['a', 'b', 'c']"),
        (
            order(("b", "a")),
            "row: question: the items themselves stand against the pair ['b', 'a']",
        ),
        (
            order(("a", "b"), ("b", "c"), ("a", "c")),
            "row: question: the pair ['a', 'c'] follows from those before it",
        ),
        (
            asked("pair", "match", rest=MATCH.format(right="z", pair=1) + SAID),
            "pair: question: the right side 'z' is none of ['x', 'y']",
        ),
        (
            asked("pair", "match", rest=MATCH.format(right="y", pair=3) + SAID),
            "pair: question: a wrong pair of a left side that there is not",
        ),
        (
            asked("all", "select", rest="".join(option(key, RIGHT) for key in "abc")),
            "all: question: some options must be right and some wrong",
        ),
    ],
)
def test_mistakes_of_other_kinds(bank, text, words):
    with pytest.raises(BankError) as error:
        bank(HEAD + text)
    assert f"tiny.toml: {words}" in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "question: the file holds no [[question]]"),
        (HEAD, "question: the file holds no [[question]]"),
        (HEAD + "question = [1, 2]", "question: the file holds no [[question]]"),
        (HEAD + "[question]\nid = 'x'", "question: the file holds no [[question]]"),
        (HEAD + PICK + "[[question", "cannot be read: "),
        (HEAD + PICK + "also = inf", "cannot be read: "),
        (b"\xff\xfe" + HEAD.encode("utf-16-le"), "cannot be read: 'utf-8'"),
        (HEAD.replace('"tiny"', '"huge"') + PICK, "topic: must be 'tiny', as the file's name, got"),
        (HEAD.replace('topic = "tiny"', "") + PICK, "topic: must be 'tiny', as the file's name"),
        (HEAD.replace('title.zh = "小"', "") + PICK, "title: needs title.en and title.zh"),
        (HEAD + 'colour = "red"\n' + PICK, "colour: is no field of a file"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(bank, text, words):
    with pytest.raises(BankError) as error:
        bank(text)
    assert str(error.value).startswith(f"tiny.toml: {words}")


def test_all_mistakes_are_said_at_once(bank):
    two = PICK.replace("level = 1", "level = 7").replace('prompt.zh = "什么？"', "")
    bad = TWICE.replace('"numeric"', '"number"')
    with pytest.raises(BankError) as error:
        bank(HEAD + two + bad)
    assert [line.split(": ")[1:3] for line in str(error.value).splitlines()] == [
        ["pick", "level"], ["pick", "prompt.zh"], ["twice", "kind"],
    ]  # fmt: skip


def test_an_id_stands_once_in_all_files(bank):
    bank(HEAD + PICK)
    with pytest.raises(BankError, match=r"tiny\.toml: pick: id: stands twice in the bank"):
        bank(HEAD.replace('"tiny"', '"second"') + PICK, "second.toml")


def test_a_folder_without_questions_is_named(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileNotFoundError, match="holds no question files"):
            load_bank(folder)


def numeric(bank, **replaced: str):
    """The question "twice" with other lines, e.g. ``n="[1, 2]"`` or ``wrong='"n + 1"'``."""
    text = TWICE.replace("[2, 3, 5]", replaced.get("n", "[2, 3, 5]"))
    text = text.replace('"3 * n"', replaced.get("wrong", '"3 * n"'))
    text = text.replace('answer = "2 * n"\n', f'answer = "2 * n"\n{replaced.get("more", "")}\n', 1)
    return bank(HEAD + text).questions["twice"]


def test_a_seed_draws_the_same_card_every_time(bank):
    found = bank(HEAD + PICK + TWICE)
    for question in found.questions.values():
        for seed in range(20):
            assert draw(question, seed) == draw(question, seed)
    assert {draw(found.questions["twice"], seed).values["n"] for seed in range(50)} == {2, 3, 5}
    orders = {draw(found.questions["pick"], seed).keys for seed in range(80)}
    assert len(orders) == 6 and all(sorted(keys) == ["a", "b", "c"] for keys in orders)
    card = draw(found.questions["twice"], 3)
    assert card.expected == (2 * card.values["n"],) and card.wrong == (3 * card.values["n"],)


def test_items_to_order_are_never_shown_in_a_right_order(bank):
    question = bank(HEAD + order(("a", "b"))).questions["row"]
    shown = {draw(question, seed).keys for seed in range(60)}
    assert shown == {("b", "a", "c"), ("b", "c", "a"), ("c", "b", "a")}


def test_a_range_holds_both_ends(bank):
    question = numeric(bank, n="{ from = 2, to = 8, step = 3 }")
    assert question.parameters["n"] == Range(**{"from": 2, "to": 8, "step": 3})
    assert {draw(question, seed).values["n"] for seed in range(60)} == {2, 5, 8}


def test_numbers_are_drawn_again_until_wrong_ones_differ(bank):
    # 2 * 2 is 2 ** 2: there the wrong number would be right.
    question = numeric(bank, n="{ from = 2, to = 4 }", wrong='"n ** 2"')
    assert {draw(question, seed).values["n"] for seed in range(60)} == {3, 4}
    # Within one percent of 2 n, 2 n + 1 is right as well.
    question = numeric(bank, n="[10, 100, 1000]", wrong='"2 * n + 1"', more=CLOSE)
    assert {draw(question, seed).values["n"] for seed in range(60)} == {10}
    # Two wrong numbers that agree could not be told apart.
    text = TWICE.replace("[2, 3, 5]", "[2, 3, 4]")
    text += f'[[question.wrong]]\nanswer = "n + 6"{SAID}'
    question = bank(HEAD + text).questions["twice"]
    assert {draw(question, seed).values["n"] for seed in range(60)} == {2, 4}


def test_where_and_derived(bank):
    more = 'where = "m > 12"\nderived.m = "5 * n"'
    question = numeric(bank, more=more)
    assert {draw(question, seed).values["m"] for seed in range(60)} == {15, 25}


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        ({"wrong": '"n + n"'}, "parameters: no draw tells every wrong number from the right one"),
        ({"more": 'where = "n > 5"'}, "parameters: no draw tells every wrong number"),
        ({"more": 'where = "k > 5"'}, "where: 'k' is not known here"),
        ({"more": 'derived.m = "1 / 0"'}, "derived.m: '1 / 0'"),
        ({"wrong": '"n / 0"'}, "wrong[1].answer: 'n / 0'"),
        ({"wrong": '"[n]"'}, "wrong[1].answer: '[n]' is [2], which is no number"),
        ({"wrong": '"n == 5"'}, "wrong[1].answer: 'n == 5' is False, which is no number"),
    ],
)
def test_a_question_that_cannot_be_drawn_says_why(bank, replaced, words):
    question = numeric(bank, n="[2, 2, 2]", **replaced)
    with pytest.raises(BankError) as error:
        draw(question, 0)
    assert str(error.value).startswith(f"tiny.toml: twice: {words}")


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{n} values", "24 values"),
        ("2**-{n} and 2^{n}", "2**-24 and 2^{24}"),
        ("$2^{n} \\cdot x_{n}$", "$2^{24} \\cdot x_{24}$"),
        ("$\\frac{1}{n}$", "$\\frac{1}24$"),
        ("{gpu.name}: {gpu.memory} GB", "H100: 80 GB"),
        ("{gpu} {gpu.none} {n.name} {other}", "{gpu} {gpu.none} {n.name} {other}"),
        ("{} { n } {n!r} {{x: 1}} \\{a\\}", "{} { n } {n!r} {{x: 1}} \\{a\\}"),
        ("{'loss': n}", "{'loss': n}"),
        ("{tiny} of {flags}", "2**-24 of 0, 1"),
        ("{markup}", "<b>{n}</b>"),
    ],
)
def test_fill_puts_numbers_in_and_leaves_other_braces(text, filled):
    values = {
        "n": 24,
        "gpu": {"name": "H100", "memory": 80},
        "tiny": Fraction(1, 2**24),
        "flags": [0, 1],
        "markup": "<b>{n}</b>",
    }
    assert _fill(text, values) == filled
    card = Card(None, 0, {}, (), (), ())
    assert card.fill(text) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (Fraction(1, 4), "0.25"),
        (Fraction(13, 10), "1.3"),
        (Fraction(1, 1024), "2**-10"),
        (Fraction(-3, 2**24), "-3 * 2**-24"),
        (Fraction(1, 3), "0.333333"),
        (Fraction(1, 10**5), "1e-05"),
        (float("inf"), "inf"),
        ("FP16", "FP16"),
        ([1, Fraction(1, 2)], "1, 0.5"),
    ],
)
def test_numbers_are_written_as_people_do(value, text):
    assert written_value(value) == text
