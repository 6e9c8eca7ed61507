"""The dtype map: a block's step is recorded below autocast, and the widget walks through it."""

import json

import pytest
import torch
from traitlets import TraitError

from labkit.labs.automatic_mixed_precision.dtype_map import record_block
from labkit.labs.automatic_mixed_precision.widget_dtype_map import DtypeMap, walk

LINEAR = ["linear: q, k, v", "linear: out", "linear: up", "linear: down"]


@pytest.fixture(scope="module")
def block():
    return {operation.name: operation for operation in record_block()}


def test_linear_layers_read_16_bit_copies_of_float32_weights(block):
    assert [name for name, op in block.items() if op.copy == "fp16"] == LINEAR
    assert {op.weight for op in block.values() if op.weight} == {"fp32"}


def test_weight_gradients_of_linear_layers_are_computed_in_16_bits_and_kept_in_float32(block):
    assert [name for name, op in block.items() if op.weight_gradient == "fp16"] == LINEAR
    assert {op.grad for op in block.values() if op.weight} == {"fp32"}


def test_the_residual_stream_stays_in_float32_and_the_branches_do_not(block):
    wide = [name for name, op in block.items() if op.gives == "fp32"]
    assert wide == ["layer norm", "add", "layer norm 2", "add 2"]
    assert block["gelu"].gives == block["attention"].gives == "fp16"


def test_a_gradient_has_the_dtype_of_its_value(block):
    assert all(op.gradient == op.gives for op in block.values())


def test_the_record_follows_the_dtype_of_autocast():
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float32, "fp32")):
        linear = [op for op in record_block(dtype) if op.name in LINEAR]
        assert {op.weight_gradient for op in linear} == {op.copy for op in linear} == {name}


def test_the_walk_goes_forward_casts_where_dtypes_change_and_comes_back(block):
    moments = walk(list(block.values()))
    parts = [(moment["row"], moment["part"]) for moment in moments]
    assert [row for row, part in parts if part == "forward"] == list(range(10))
    assert [row for row, part in parts if part == "backward"] == list(range(10))[::-1]
    # Attention's and gelu's 16-bit outputs need no cast: two of the four linear layers have one.
    assert [row for row, part in parts if part == "cast"] == [1, 6]
    assert [row for row, part in parts if part == "copy"] == [1, 3, 6, 8]
    assert [row for row, part in parts if part == "cast-back"] == [8, 5, 3, 0]
    (weight,) = [m["text"] for m in moments if (m["row"], m["part"]) == (6, "weight")]
    assert "computed in fp16, then cast to fp32 for .grad" in weight


def test_without_autocast_nothing_is_cast_and_no_list_is_named():
    moments = walk(record_block(torch.float32))
    assert {moment["part"] for moment in moments} == {"forward", "backward", "weight"}
    assert not any("list" in moment["text"] for moment in moments)


# The widget


def ask(widget, **asked):
    """What the page does: a request with its whole state, one number higher than the last."""
    widget.request = {"seq": widget.numbers["seq"] + 1, "dtype": widget.dtype} | asked
    return widget.numbers


@pytest.fixture
def widget(block):
    return DtypeMap({"FP16": block.values(), "FP32": record_block(torch.float32)})


def test_a_walk_is_answered_moment_by_moment(widget):
    shown = ask(widget, at=1)
    assert (shown["seq"], shown["at"], widget.at) == (1, 1, 1)
    assert shown["said"].startswith("2 of 36: Cast: autocast casts the fp32 input")
    shown = ask(widget, dtype="FP32", at=1)
    assert (widget.dtype, widget.at, len(shown["moments"])) == ("FP32", 1, 26)
    assert json.loads(json.dumps(widget.numbers)) == widget.numbers


def test_another_record_and_a_place_in_it_are_asked_for_at_once(widget):
    # A click on "next" directly after a choice: the page asks for both, and neither is lost.
    ask(widget, dtype="FP32", at=1)
    assert (widget.dtype, widget.at, widget.numbers["seq"]) == ("FP32", 1, 1)
    ask(widget, dtype="FP16", at=2)
    assert (widget.dtype, widget.at) == ("FP16", 2)
    ask(widget, dtype="FP32", at=35)  # a place that only the longer walk has
    assert (widget.dtype, widget.at) == ("FP32", len(walk(widget.records["FP32"])) - 1)


def test_the_words_say_what_the_picture_shows(widget):
    widget.go(3)
    words = widget.describe()
    assert "linear: up: reads fp16, gives fp16, weight fp32 read as fp16" in words
    assert "weight gradient fp16, .grad fp32" in words
    assert words.endswith(widget.numbers["said"]) and repr(widget) == words


def test_what_is_not_possible_is_refused(widget):
    with pytest.raises(ValueError, match="records is empty"):
        DtypeMap({})
    with pytest.raises(ValueError, match=r"no record 'FP8': choose one of FP16, FP32"):
        widget.choose("FP8")
    with pytest.raises(ValueError, match="moments 0 to 35"):
        widget.go(36)
    with pytest.raises(TraitError):
        widget.at = 2
