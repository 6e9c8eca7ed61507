"""Text for a terminal: lines that fit, code that stays, formulas that read."""

import re

import pytest

from labkit.interview import questions
from labkit.interview.card_text import card_text
from labkit.interview.cards import draw
from labkit.interview.plain_text import for_terminal, formula_text, text_width
from labkit.labs.texts import LANGUAGES

BANK = questions.load_bank()


def test_words_stay_whole_and_nothing_is_lost():
    text = "- c) The scaler doubles `scale = 2 * scale` after that many steps without an overflow."
    shown = for_terminal(text, 30)
    lines = shown.split("\n")
    assert all(text_width(line) <= 30 for line in lines) and len(lines) > 3
    assert "`scale = 2 * scale`" in shown
    assert all(line.startswith("     ") for line in lines[1:])
    assert shown.split() == text.split()


def test_chinese_counts_two_columns_and_no_line_begins_with_punctuation():
    text = "损失缩放把梯度乘以一个系数，使 FP16 的小梯度不会变成零；更新之前再除回去（反缩放）。"
    for width in range(20, 50):
        lines = for_terminal(text, width).split("\n")
        assert all(text_width(line) <= width for line in lines)
        assert not any(line[0] in "，。；）" or line[-1] in "（" for line in lines)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
        assert any("FP16" in line for line in lines), "a Latin word is not broken"


@pytest.mark.parametrize(
    "code",
    [
        "    loss = model(batch).float().mean() + penalty * weight   # $a$ is no formula",
        "```python\nloss = model(batch).float().mean() + penalty * weight\n```",
        "| topic | score | seconds | expected |\n|---|---|---|---|",
    ],
)
def test_code_and_tables_stay_as_they_are(code):
    assert for_terminal(code, 24) == code


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (r"k = \lfloor\log_2 a\rfloor - 8", "k = ⌊log_2 a⌋ - 8"),
        (r"2^{-24}", "2^-24"),
        (r"2^{{m}}", "2^m"),
        (r"2^{-6+11} = 32", "2^(-6+11) = 32"),
        (r"\frac{a + b}{n} \times x_{i}", "(a + b)/n × x_i"),
        (r"\sqrt{\frac{1}{n}} \approx u", "sqrt(1/n) ≈ u"),
        (r"\operatorname{softmax}(z) \le 1", "softmax(z) ≤ 1"),
        (r"\delta^T H \delta", "δ^T H δ"),
        (r"\oplus x", r"\oplus x"),
    ],
)
def test_formulas_read_as_one_would_type_them(latex, text):
    assert formula_text(latex) == text
    assert for_terminal(f"So ${latex}$.", 90) == f"So {text}."


def test_dollars_that_are_no_formula_stay():
    for text in ("It costs $3 and then $4.", "`echo $HOME and $PATH`", "$ python -m labkit"):
        assert for_terminal(text, 90) == text


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_prompt_of_the_bank_shows_latex(language):
    for question in BANK.questions.values():
        card = draw(question, 0)
        told = (card_text(card, language), card.fill(question.explanation[language]))
        for line in for_terminal("\n".join(told), 60).split("\n"):
            if not line.startswith("    ") and "`" not in line:
                assert not re.search(r"\\[a-z]+|\^\{", line), (question.id, line)
