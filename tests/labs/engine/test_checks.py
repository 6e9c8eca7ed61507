"""The machinery of a check: outcomes, sentences, records, and what never reaches the learner."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch

from labkit.base import progress
from labkit.formats import FP16
from labkit.labs.engine import (
    CheckFailed,
    Mistake,
    Worth,
    attempt,
    calls,
    check,
    claim,
    codec,
    messages,
    number,
    same_bits,
    same_value,
    showing,
    whose,
    yours,
)
from labkit.labs.engine.running import ITEMS_LIMIT, STUB

LAB = "99_test"


@check(calls([1.0, 3.0]))
def check_double(values):
    """Twice the input.

    More words that no learner sees.
    """
    for x, got in zip([1.0, 3.0], values, strict=True):
        same_value(got, 2 * x, call=f"double({x})")


@check_double.wrong("ulp-is-constant", "What is added to 1, and what to 3?")
def _(x):
    return x + 1


@check_double.wrong("ties-go-up", "Is it a square?")
def _(x):
    return x * x + 1


@check_double.wrong("casts-truncate", "Or this?")
def _(x):
    return float(int(x)) ** 2 + 1


def double(x):
    return 2 * x


def stub(x):
    raise NotImplementedError(STUB)


@pytest.fixture
def log(monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)
    return lambda: [(e.kind, e.item, e.status) for e in progress.events()]


def test_a_right_answer_passes_with_the_first_line_of_the_judges_docstring():
    result = check_double.result(double)
    assert (result.exercise, result.status, result.message) == (
        "double",
        "passed",
        "Twice the input.",
    )


def test_a_judge_without_a_docstring_passes_too():
    def check_half(values):
        assert values == [0.5]

    undescribed = check(calls([1.0]))(check_half)
    result = undescribed.result(lambda x: x / 2)
    assert result.status == "passed" and result.message


@pytest.mark.parametrize(
    "right",
    [
        lambda x: x + x,
        lambda x: torch.tensor(2 * x),
        lambda x: np.float32(2 * x),
        lambda x: int(2 * x),
    ],
)
def test_other_types_of_a_right_number_pass(right):
    assert check_double.result(right).status == "passed"


def test_a_known_wrong_answer_is_told_which():
    result = check_double.result(lambda x: 1 + x)
    assert result.status == "failed"
    assert result.misconceptions == ("ulp-is-constant",)
    assert result.message == "`double(3.0)` is 4; 6 is wanted. What is added to 1, and what to 3?"


def test_of_two_ideas_that_fit_none_is_named():
    result = check_double.result(lambda x: 1 + x**2)
    assert (result.misconceptions, result.message) == ((), "`double(3.0)` is 10; 6 is wanted.")


def test_an_idea_that_the_evidence_rules_out_is_not_searched_for():
    @check(calls([1.0]))
    def check_one(values):
        raise Mistake("Both ends hurt.", search=False)

    check_one.wrong("ulp-is-constant", "Which end?")(lambda x: 2.0)
    result = check_one.result(lambda x: 2.0)
    assert (result.misconceptions, result.message) == ((), "Both ends hurt.")


@pytest.mark.parametrize(("bits", "ideas"), [(False, ("ulp-is-relative",)), (True, ())])
def test_a_known_wrong_answer_is_recognised_by_value_or_where_asked_by_bits(bits, ideas):
    @check(calls([3.0, 0.3]), bits=bits)
    def check_tenth(values):
        """A tenth."""
        for x, got in zip([3.0, 0.3], values, strict=True):
            same_value(got, x / 10, call=f"tenth({x})")

    check_tenth.wrong("ulp-is-relative", "Why?")(lambda x: x * 0.3)
    for other_words in (lambda x: x * 3 / 10, lambda x: torch.tensor(x) * 0.3):
        assert check_tenth.result(other_words).misconceptions == ideas
    assert check_tenth.result(lambda x: x * 0.31).misconceptions == ()


def test_a_score_is_1_for_what_passed_and_what_the_judge_says_else():
    assert (check_double.result(double).score, check_double.result(lambda x: x).score) == (1, 0)

    @check(calls([1.0]))
    def check_half(values):
        raise Mistake("Half of it is there.", score=0.5)

    assert check_half.result(double).score == 0.5


def test_an_open_ended_exercise_passes_with_what_its_judge_says_it_is_worth():
    @check(calls([1.0]))
    def check_far(values):
        """Not shown."""
        return Worth(score=values[0] / 4, said=f"It is {values[0]}.", measured={"m": values[0]})

    result = check_far.result(double)
    assert (result.status, result.score, result.message) == ("passed", 0.5, "It is 2.0.")
    assert result.measured == (("m", 2.0),)
    assert check_double.result(double).measured == ()
    assert check_far.result(lambda x: 8 * x).status == "error", "a score above 1"


@pytest.mark.parametrize("score", [-0.1, 1.1, math.nan])
def test_a_score_outside_0_to_1_is_the_authors_mistake(score):
    with pytest.raises(ValueError, match="from 0 to 1"):
        Mistake("Half of it is there.", score=score)
    with pytest.raises(ValueError, match="from 0 to 1"):
        Worth(score=score, said="", measured={})


def inputs(seed):
    return [1.0, 3.0] if seed == 0 else [1.0, 3.0, float(seed)]


def test_run_and_judge_get_one_seed_and_0_in_a_notebook(log, capsys):
    @check(calls(inputs))
    def check_twice(values, seed):
        """Twice."""
        for x, got in zip(inputs(seed), values, strict=True):
            same_value(got, 2 * x, call=f"twice({x})")

    check_twice.wrong("ulp-is-constant", "Why?")(lambda x: x + 7.0)
    right_twice = {1.0: 2.0, 3.0: 6.0}.get
    assert check_twice.takes_seed and list(check_twice.seeds) == [0, 1, 2, 3, 4]
    check_twice(right_twice)
    assert check_twice.result(right_twice, seed=5).message.startswith("`twice(5.0)` returns None")
    assert check_twice.result(double, seed=5).status == "passed"
    assert check_twice.result(lambda x: x + 7, seed=5).misconceptions == ("ulp-is-constant",)


def test_the_known_wrong_answers_of_many_seeds_are_not_all_kept():
    @check(calls(inputs))
    def check_twice(values, seed):
        """Twice."""
        for x, got in zip(inputs(seed), values, strict=True):
            same_value(got, 2 * x, call=f"twice({x})")

    check_twice.wrong("ulp-is-constant", "Why?")(lambda x: x + 7)
    for seed in range(300):
        assert check_twice.result(lambda x: x + 7, seed=seed).misconceptions
    assert len(check_twice._behaviours) <= 100


def test_known_answers_of_a_check_without_a_seed_are_tested_once():
    assert not check_double.takes_seed and list(check_double.seeds) == [0]


def test_an_unknown_wrong_answer_is_not_told_an_idea():
    result = check_double.result(lambda x: 3 * x)
    assert result.misconceptions == ()
    assert result.message == "`double(1.0)` is 3; 2 is wanted."


@pytest.mark.parametrize("answer", [stub, ..., [1, ...], {"a": ...}])
def test_the_stub_and_the_placeholder_are_not_attempted(answer):
    assert check_double.result(answer).status == "not attempted"


@pytest.mark.parametrize("words", [(), ("not implemented for 'Float8_e4m3fn'",)])
def test_any_other_not_implemented_error_is_an_error(words):
    def answer(x):
        raise NotImplementedError(*words)

    assert check_double.result(answer).status == "error"


def test_an_error_shows_the_learners_own_line():
    def answer(x):
        ratio = x / 0
        return ratio

    result = check_double.result(answer)
    assert result.status == "error"
    assert "ZeroDivisionError" in result.message
    assert "`ratio = x / 0`" in result.message


def test_an_error_shows_no_address_in_memory():
    def double(x):
        raise ValueError(f"{object()} at {0xFF:#x}")

    message = check_double.result(double).message
    assert "<object object at 0x...> at 0xff in your line" in message


def test_an_error_inside_a_library_shows_the_learners_line_too():
    def answer(x):
        return torch.ones(2) @ torch.ones(3)

    assert "`return torch.ones(2) @ torch.ones(3)`" in check_double.result(answer).message


def test_a_call_with_too_many_arguments_is_an_error_and_no_traceback():
    result = check_double.result(lambda: 1)
    assert result.status == "error"
    assert "TypeError" in result.message and "\n" not in result.message


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "returns None: is there a `return`"),
        ("2", "is '2', a str; one number"),
        ([2.0], "is [2.0], a list of 1; one number"),
        (torch.ones(3), "is a tensor of shape (3,), float32; one number"),
        (math.nan, "is nan; 2 is wanted"),
        (True, "is True, a bool; one number"),
        (np.True_, "is True, a bool; one number"),
        (torch.tensor(True), "is a tensor of shape (), bool; one number"),
        (torch.tensor(2j), "is a tensor of shape (), complex64; one number"),
        (2j, "is a complex; one number"),
        ({1, 2}, "is a set; one number"),
        (float, "is the type float; one number"),
        (lambda: 1, "is the function <lambda>; one number"),
    ],
)
def test_values_that_are_not_the_number_fail_with_what_came_and_what_is_asked(value, words):
    result = check_double.result(lambda x: value)
    assert result.status == "failed"
    assert f"`double(1.0)` {words}" in result.message


def test_what_the_codec_refuses_is_an_error_with_its_reason():
    result = check_double.result(lambda x: torch.ones(2).to_sparse())
    assert result.status == "error"
    assert "cannot be judged" in result.message and "return a dense one" in result.message


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor(1j),
        torch.zeros(1, dtype=torch.float4_e2m1fn_x2)[0],
        torch.zeros(2, dtype=torch.float8_e8m0fnu),
        [10**400, {"a": (math.nan, -0.0)}],
        np.array(["x"]),
    ],
)
def test_no_wrong_answer_of_any_type_stops_the_judge(value):
    @check(calls([1.0]))
    def check_nothing(values):
        raise Mistake("Nothing is right.")

    check_nothing.wrong("ulp-is-relative", "Why?")(lambda x: value)
    check_nothing.wrong("ulp-is-constant", "Why?")(lambda x: [value, 2.0])
    result = check_nothing.result(lambda x: value)
    assert (result.status, result.misconceptions) == ("failed", ("ulp-is-relative",))


@pytest.mark.parametrize(
    "value",
    [10**5000, [1, -(10**5000)], {"a": (10**5000,)}, {10**5000: 1}, Fraction(10**5000, 7)],
    ids=["int", "list", "dict", "key", "fraction"],
)
def test_a_number_of_more_digits_than_python_writes_is_refused_with_a_sentence(value, log):
    @check(lambda answer: answer)
    def check_value(got):
        raise Mistake(messages.NOT_A_TRUTH, call="value", came=messages.came(got))

    check_value.wrong("ulp-is-relative", "Why?")(1.0)
    result = check_value.result(value)
    assert result.status in ("failed", "error")
    assert "int of 16,610 bits" in result.message or "a Fraction" in result.message
    assert check_double.result(lambda x: value).status in ("failed", "error")
    with pytest.raises(CheckFailed):
        check_value(value)


def test_an_exception_with_such_a_number_is_told_without_it():
    for error in (ValueError, KeyError):

        def answer(x, error=error):
            raise error(10**5000)

        said = check_double.result(answer).message
        assert error.__name__ in said and "in your line `raise error(10**5000)`" in said


def test_a_generator_is_drained_to_a_bound():
    def endless(x):
        while True:
            yield x

    assert len(attempt(endless, 1)) == ITEMS_LIMIT
    assert check_double.result(endless).status == "failed"


def test_exit_is_an_error_and_an_interrupt_passes_through():
    def leave(x):
        raise SystemExit(3)

    def interrupt(x):
        raise KeyboardInterrupt

    assert check_double.result(leave).status == "error"
    with pytest.raises(KeyboardInterrupt):
        check_double.result(interrupt)


def test_a_recursion_without_end_is_an_error():
    def deeper(x):
        return deeper(x)

    result = check_double.result(deeper)
    assert result.status == "error" and "RecursionError" in result.message


def test_prints_and_warnings_are_shown_as_text_and_never_reach_stderr(capsys):
    def chatty(x):
        print("hello from the answer")
        warnings.warn("look out", stacklevel=1)
        return 2 * x

    check_double(chatty)
    shown = capsys.readouterr()
    assert "hello from the answer" in shown.out and "look out (2 times)" in shown.out
    assert shown.err == ""


def test_what_torch_says_of_a_scaler_for_a_device_that_is_not_there_is_shown(capsys, log):
    def forgot_the_device(x):
        torch.amp.GradScaler()
        return x

    with pytest.raises(CheckFailed):
        check_double(forgot_the_device)
    assert "CUDA is not available.  Disabling." in capsys.readouterr().out


def test_a_message_that_quotes_megabytes_is_cut():
    @check(calls([1.0]))
    def check_word(values):
        """A word."""
        raise Mistake(f"`word` is {values[0]}; one of two words is wanted.")

    message = check_word.result(lambda x: "a " * 2**20).message
    assert message.startswith("`word` is a a a") and len(message) <= 10_000


def test_very_long_prints_are_cut():
    def chatty(x):
        print("x" * 100_000)
        return 2 * x

    assert len(check_double.collect(chatty)) < 10_000


def test_a_failed_check_raises_one_line_without_a_traceback(log):
    with pytest.raises(CheckFailed) as raised:
        check_double(lambda x: x)
    assert "\n" not in str(raised.value)
    assert raised.value._render_traceback_() == [str(raised.value)]


def test_not_attempted_is_a_line_and_an_exception_that_shows_nothing(log, capsys):
    with pytest.raises(CheckFailed, match=r"^double: not attempted\. ") as raised:
        check_double(...)
    assert raised.value._render_traceback_() == [showing.UNSEEN]
    assert "double: not attempted" in capsys.readouterr().out


def test_checks_are_recorded_and_not_attempted_is_not(log):
    check_double(double)
    for answer in (stub, lambda x: 1 + x):
        with pytest.raises(CheckFailed):
            check_double(answer)
    assert log() == [("check", "double", "passed"), ("check", "double", "failed")]
    assert progress.events()[1].detail["misconceptions"] == ["ulp-is-constant"]


def test_result_shows_and_records_nothing(log, capsys):
    check_double.result(double)
    assert log() == [] and capsys.readouterr().out == ""


def test_three_identical_failures_point_to_the_next_hint():
    said = []
    for _ in range(6):
        with pytest.raises(CheckFailed) as raised:
            check_double(lambda x: 7 * x)
        said.append("open the next hint" in str(raised.value))
    assert said == [False, False, True, False, False, True]


def test_yours_is_ours_until_the_check_has_passed():
    mine, ours = (lambda x: x + x), object()
    assert yours(mine, ours) is ours and whose(ours) == "labkit's"
    check_double(mine)
    assert yours(mine, ours) is mine and whose(mine) == "your"
    assert yours(lambda x: x + x, ours) is ours


def test_the_two_halves_work_apart():
    collected = check_double.collect(double)
    assert type(collected) is bytes
    assert check_double.verdict(collected).status == "passed"


@pytest.mark.parametrize("name", codec.DTYPES)
def test_an_element_of_any_type_in_a_wrong_answer_is_judged(name):
    raw = torch.ones(codec.DTYPES[name], dtype=torch.uint8)
    odd = [raw.view(getattr(torch, name)).reshape(())]
    if name in codec.NUMPY_DTYPES:
        odd += [np.dtype(name).type(1), np.ones((), name)]
    for value in odd:
        for values in ([1.5, value], [value, 1.5]):
            report = {"outcome": "value", "value": values, "printed": "", "warned": []}
            assert check_double.verdict(codec.encode_value(report)).status in ("failed", "error")


@pytest.mark.parametrize(
    "hostile",
    [
        b"",
        b"\xff" * 40,
        codec.encode_value([]),
        codec.encode_value({}),
        codec.encode_value({"outcome": "passed", "value": None}),
        codec.encode_value({"outcome": "raised", "value": 3, "printed": "", "warned": []}),
        codec.encode_value({"outcome": "value", "value": [2.0], "printed": "", "warned": []}),
        codec.encode_value({"outcome": "value", "value": {"a": 1}, "printed": "", "warned": []}),
        codec.encode_value(
            {"outcome": ["value"], "value": [2.0, 6.0], "printed": "", "warned": []}
        ),
    ],
)
def test_hostile_bytes_never_pass_and_never_raise(hostile):
    assert check_double.verdict(hostile).status in ("failed", "error")


@pytest.mark.parametrize(
    ("got", "want", "at", "words"),
    [
        (0.0, -0.0, -0.0, "the wrong sign"),
        (2050.0, 2048.0, 2049.0, "You rounded up; a tie goes to the even mantissa, 2048."),
        (2050.0, 2052.0, 2051.0, "You rounded down; a tie goes to the even mantissa, 2052."),
        (math.inf, 65504.0, 65519.0, "65519 rounds to 65504"),
        (65504.0, math.inf, 65520.0, "65520 or more, half a gap above"),
        (0.0, 2.0**-24, 2.0**-24, "which FP16 holds as a subnormal"),
        (0.1, 0.0999755859375, 0.1, "FP16 does not hold that value"),
        (1.0, 1.0009765625, 1 + 2.0**-11 + 2.0**-40, "You rounded down"),
        (1.5, 1.0, 1.0, "off by 512 ulp"),
        (-1.0, 1.0, 1.0, "keeps the sign"),
        (1.0, math.nan, math.nan, "NaN stays NaN"),
        (math.nan, 1.0, 1.0, "NaN is not the answer"),
    ],
)
def test_same_bits_names_the_kind_of_the_difference(got, want, at, words):
    same_bits(want, want, at=at, fmt=FP16, call="f(x)")
    with pytest.raises(Mistake, match=None) as raised:
        same_bits(got, want, at=at, fmt=FP16, call="f(x)")
    assert words in str(raised.value)


def test_number_takes_one_number_and_nothing_else():
    assert number(torch.tensor([2.5]), call="f()") == 2.5
    assert number(np.float16(0.5), call="f()") == 0.5
    for wrong in (None, "1", [1.0], torch.ones(2), np.ones(2), True):
        with pytest.raises(Mistake, match=r"f\(\)"):
            number(wrong, call="f()")


def test_claim_prints_a_tick_or_raises_the_sentence(capsys):
    claim("one is one", 1 == 1)
    assert capsys.readouterr().out == "✓ one is one\n"
    with pytest.raises(AssertionError, match="one is two"):
        claim("one is two", 1 == 2)
