"""Beside the answer: right answers of other types, whose warning it is, whose line."""

import collections
import enum
import math
import warnings
from decimal import Decimal
from fractions import Fraction
from warnings import warn

import numpy as np
import pytest
import torch

from labkit.formats import FP16, quantize
from labkit.labs.engine import codec, listening, plain
from labkit.labs.engine.codec import Foreign
from labkit.labs.engine.running import collect, raised

Pair = collections.namedtuple("Pair", "a b")
Level = enum.IntEnum("Level", "LOW HIGH")


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (np.float32(1.5), 1.5),
        (np.int64(3), 3),
        (np.True_, True),
        (np.longdouble("2.5"), 2.5),
        (np.array(4.0), 4.0),
        (np.str_("a"), "a"),
        (Fraction(3, 4), 0.75),
        (Decimal("0.5"), 0.5),
        (Level.HIGH, 2),
        (Pair(1, np.float64(2)), (1, 2.0)),
        (torch.ones(2, 3).shape, (2, 3)),
        (torch.ones(2).max(dim=0).values.shape, ()),
        (range(3), [0, 1, 2]),
        (collections.OrderedDict(b=1, a=np.int8(2)), {"b": 1, "a": 2}),
        (collections.defaultdict(list, {np.int64(7): [Fraction(1, 2)]}), {7: [0.5]}),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
    ],
)
def test_right_values_of_other_types_become_python_s_own(value, want):
    got = plain(value)
    assert (type(got), got) == (type(want), want)
    assert codec.decode_value(codec.encode_value(plain([value]))) == [want]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({1}, "a set"),
        (object(), "an object"),
        (float, "the type float"),
        (math.sqrt, "the function sqrt"),
        (2j, "a complex"),
        (torch.nn.ReLU(), "a ReLU"),
        (Fraction(10**400), "a Fraction"),
    ],
)
def test_what_cannot_be_shown_to_a_judge_is_named(value, words):
    assert plain({"loss": value}) == {"loss": Foreign(words)}


def test_tensors_arrays_and_dtypes_stay():
    for value in (torch.tensor(1.5), np.ones(2), torch.float16, FP16):
        assert plain(value) is value


def test_containers_that_hold_themselves_or_too_much_are_left_to_the_codec():
    loop: list = [1]
    loop.append(loop)
    deep: object = 0
    for _ in range(1000):
        deep = [deep]
    laughs: list = ["ha"]
    for _ in range(40):
        laughs = [laughs] * 10
    for value in (loop, deep, laughs, [0] * 2**18):
        with pytest.raises(codec.CodecError):
            codec.encode_value(plain(value))


def heard_from(function):
    with listening() as heard:
        function()
    return [(one.text, one.theirs) for one in heard]


def test_a_warning_is_theirs_only_if_their_own_line_calls_warn():
    def by_module():
        warnings.warn("the dtype is another one", stacklevel=2)

    def by_name():
        warn("the dtype is another one", stacklevel=1)

    def by_torch():
        float(torch.ones(1, requires_grad=True).sum() * 2)
        torch.amp.GradScaler()

    assert heard_from(by_module) == heard_from(by_name) == [("the dtype is another one", True)]
    assert [theirs for _, theirs in heard_from(by_torch)][-1:] == [False]
    assert not any(theirs for _, theirs in heard_from(by_torch))


def test_what_torch_s_c_code_warns_of_in_a_function_that_warns_is_not_theirs():
    def fit():
        np.array([1.0]) / np.array([0.0])  # numpy warns from C, at this very line
        if False:
            warnings.warn("never", stacklevel=2)

    assert heard_from(fit) == [("divide by zero encountered in divide", False)]


def test_an_outer_listener_hears_too_and_warn_is_python_s_own_afterwards():
    before = warnings.warn, warnings.showwarning
    with listening() as outer:
        with listening() as inner:
            warnings.warn("one", stacklevel=1)
        warnings.warn("two", stacklevel=1)
    assert ([one.text for one in inner], [one.text for one in outer]) == (["one"], ["one", "two"])
    assert (warnings.warn, warnings.showwarning) == before


def test_each_warning_is_reported_once_with_its_number():
    def answer():
        for _ in range(3):
            warnings.warn("again", stacklevel=1)
        warnings.warn("once", stacklevel=1)

    report = codec.decode_value(collect(lambda answer: answer(), answer))
    assert report["warned"] == ["again (3 times)", "once"]


def test_the_learner_s_line_is_neither_labkit_s_nor_torch_s():
    def answer():
        quantize("a", FP16)  # raises inside labkit

    with pytest.raises(Exception) as caught:
        answer()
    assert raised(caught.value).line.startswith('quantize("a", FP16)')
