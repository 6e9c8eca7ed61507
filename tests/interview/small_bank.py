"""A bank of a few questions, written where a test may use it."""

from pathlib import Path

from labkit.interview.questions import Bank, load_bank

SMALL = """
topic = "small"
title.en = "Small"
title.zh = "小"
lab = "02_number_formats"

[[question]]
id = "pick"
tags = ["core"]
level = 2
kind = "choice"
seconds = 30
prompt.en = "Which?"
prompt.zh = "哪一个?"
hints.en = ["Not the first that comes to mind."]
hints.zh = ["不是最先想到的那个。"]
explanation.en = "Because of $2^{10}$."
explanation.zh = "因为 $2^{10}$。"
section = "02_number_formats#Four-bits:-E2M1"
follow_ups = ["double"]
asked = [{ source = "A list of interview questions", year = 2025 }]
verified = "reasoned"
[[question.options]]
key = "this"
right = true
en = "This."
zh = "这个。"
[[question.options]]
key = "that"
en = "That <b>bold</b>."
zh = "那个。"
misconception = "implied-one-in-subnormals"
feedback.en = "That has an implied one."
feedback.zh = "那个隐含了 1。"
[[question.options]]
key = "other"
en = "Other."
zh = "另一个。"
misconception = "subnormal-exponent-minus-bias"
feedback.en = "Other takes the bias."
feedback.zh = "另一个用了 bias。"

[[question]]
id = "double"
level = 3
kind = "numeric"
seconds = 40
prompt.en = "Twice {n}?"
prompt.zh = "{n} 的两倍?"
explanation.en = "Two times {n}."
explanation.zh = "{n} 乘 2。"
verified = "reasoned"
section = "02_number_formats#Four-bits:-E2M1"
parameters.n = { from = 3, to = 9000 }
answer = "2 * n"
[[question.wrong]]
answer = "n"
misconception = "implied-one-in-subnormals"
feedback.en = "That is {n} itself."
feedback.zh = "这就是 {n}。"

[[question]]
id = "easy"
level = 1
kind = "numeric"
seconds = 20
prompt.en = "One and one?"
prompt.zh = "一加一?"
explanation.en = "Two."
explanation.zh = "二。"
verified = "reasoned"
answer = "2"
[[question.wrong]]
answer = "11"
misconception = "sign-is-twos-complement"
feedback.en = "You wrote them side by side."
feedback.zh = "你把它们并排写了。"

[[question]]
id = "false-claim"
level = 2
kind = "claim"
seconds = 45
prompt.en = "Does it hold?"
prompt.zh = "成立吗?"
claim.en = "Two is odd."
claim.zh = "二是奇数。"
holds = false
cell = "holds = 2 % 2 == 1"
explanation.en = "It is even."
explanation.zh = "它是偶数。"
verified = "computed"
[[question.options]]
key = "no"
right = true
en = "It does not."
zh = "不成立。"
[[question.options]]
key = "yes"
en = "It does."
zh = "成立。"
misconception = "exponent-has-no-bias"
feedback.en = "Divide it."
feedback.zh = "除一下。"
[[question.options]]
key = "maybe"
en = "It depends."
zh = "看情况。"
misconception = "bias-is-always-ieee"
feedback.en = "On what?"
feedback.zh = "看什么?"

[[question]]
id = "speak"
level = 2
kind = "free"
seconds = 90
prompt.en = "Say why."
prompt.zh = "说说为什么。"
explanation.en = "So it is."
explanation.zh = "就是这样。"
verified = "reasoned"
model.en = "Because of this and that."
model.zh = "因为这个和那个。"
[[question.rubric]]
en = "this"
zh = "这个"
weight = 3
[[question.rubric]]
en = "that"
zh = "那个"
weight = 1
"""


def _start(id: str) -> int:
    return SMALL.index(f'\n[[question]]\nid = "{id}"')


def small_bank(folder: Path) -> Bank:
    """The bank of the questions above, and as many more easy ones as a long mock needs."""
    more = [
        SMALL[_start("easy") : _start("false-claim")]
        .replace('"easy"', f'"easy-{i}"')
        .replace("level = 1", f"level = {1 + i % 3}")
        for i in range(40)
    ]
    other = SMALL[: SMALL.index("\n[[question]]")].replace("small", "other") + "".join(more)
    (folder / "small.toml").write_text(SMALL, encoding="utf-8")
    (folder / "other.toml").write_text(other, encoding="utf-8")
    return load_bank(folder)
