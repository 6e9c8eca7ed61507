"""What came back is read as the type that was asked for, or a sentence says what came."""

import math

import numpy as np
import pytest
import torch

from labkit.labs.engine import (
    AnswerError,
    Mistake,
    entries,
    near_value,
    number,
    several,
    tensor,
    truth,
    word,
)
from labkit.labs.engine.codec import Foreign, Raised
from labkit.labs.engine.messages import apart, came, fill

CALL = "f(3)"


def said(read, *args, **more) -> str:
    with pytest.raises(Mistake) as caught:
        read(*args, call=CALL, **more)
    assert f"`{CALL}`" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "read", [number, truth, tensor, lambda got, call: several(got, 2, call=call)]
)
def test_every_reader_says_what_was_raised_and_that_none_came(read):
    with pytest.raises(AnswerError, match=r"`f\(3\)` raised KeyError: 'a' in your line `x\['a'\]`"):
        read(Raised("KeyError", "'a'", "x['a']"), call=CALL)
    assert "is there a `return`" in said(read, None)


def test_a_number_may_be_a_tensor_or_array_of_one_element_and_no_truth_value():
    for got in (2.5, torch.tensor([[2.5]]), np.array([2.5]), torch.tensor(2.5).half()):
        assert number(got, call=CALL) == 2.5
    assert number(10**400, call=CALL) == math.inf
    for got in (True, torch.tensor(True), np.array([True])):
        assert "True and False do not count as numbers" in said(number, got)
    assert "is a set; one number is asked for" in said(number, Foreign("a set"))


def test_a_truth_value_may_be_a_tensor_and_no_number():
    assert truth(torch.tensor([True]), call=CALL) is True
    assert truth(np.array(False), call=CALL) is False
    assert "is 1, an int; True or False" in said(truth, 1)


def test_several_values_may_be_a_row_of_a_tensor():
    assert several([1, 2], 2, call=CALL) == several(np.array([1, 2]), 2, call=CALL) == (1, 2)
    assert several(torch.tensor([1.0, 2.0]), 2, call=CALL)[1].item() == 2
    assert "is (1, 2, 3), a tuple of 3; 2 values are asked for" in said(several, (1, 2, 3), count=2)


def test_entries_name_the_keys():
    assert entries({"b": 1, "a": 2}, ["a", "b"], call=CALL) == {"a": 2, "b": 1}
    assert "has the keys a; a, b are asked for" in said(entries, {"a": 1}, keys=["a", "b"])
    assert "is [1], a list of 1; a dict with the keys a, b" in said(entries, [1], keys=["a", "b"])


def test_a_word_is_known_however_it_is_written():
    assert word(" Overflow ", ["overflow", "healthy"], call=CALL) == "overflow"
    assert "is 'ill', a str; one of overflow, healthy" in said(
        word, "ill", words=["overflow", "healthy"]
    )


def test_a_tensor_may_be_an_array_or_a_list_of_tensors():
    like = {"shape": (2,), "dtype": torch.float32}
    for got in (torch.ones(2), np.ones(2, "f4"), [torch.ones(()), torch.ones(())]):
        assert torch.equal(tensor(got, call=CALL, **like), torch.ones(2))
    assert "is [1.0, 1.0], a list of 2; a tensor is asked for" in said(tensor, [1.0, 1.0], **like)
    assert "has shape (3,); (2,) is asked for" in said(tensor, torch.ones(3), **like)
    assert "has dtype torch.float64; torch.float32" in said(tensor, torch.ones(2).double(), **like)


@pytest.mark.parametrize("right", [0.1 + 0.2, np.float32(0.3).item(), torch.tensor(0.3)])
def test_a_near_value_is_right_in_float64_and_in_float32(right):
    near_value(right, 0.3, call=CALL)


def test_a_value_that_is_not_near_shows_where_it_differs():
    assert said(near_value, 1.53846, want=1.538) == "`f(3)` is 1.5385; 1.538 is wanted."
    assert said(near_value, 1.0000001, want=1.0) == "`f(3)` is 1.0000001; 1 is wanted."


def test_numbers_of_one_sentence_look_different_where_they_are():
    assert apart(2.527, 2.527, 2.5271) == ("2.527", "2.527", "2.5271")
    assert apart(0.1, 0.1 + 2.0**-56) == ("0.1", "0.1") or len(set(apart(0.1, 0.1 + 2.0**-56))) == 2
    assert apart(math.inf, math.nan, -0.0, 0.0, 7) == ("inf", "nan", "-0.0", "0.0", "7")
    half, single = torch.tensor(2.0).half(), torch.tensor(2.0)
    assert fill("{a} and {b}", a=half, b=single) == "2 (float16) and 2 (float32)"


def test_a_template_takes_any_value_and_python_s_own_formats():
    filled = fill("{text} {braces} {part:.1%} {exact:exact} {none}", text="{x}", braces={"a": 1},
                  part=0.25, exact=2.0**-24, none=None)  # fmt: skip
    assert filled == "{x} {'a': 1} 25.0% 2**-24 None"


def test_what_came_is_a_noun():
    assert came(np.ones((2, 3))) == "an array of shape (2, 3), float64"
    assert came(["a"]) == "['a'], a list of 1"
    assert came(3) == "3, an int"
