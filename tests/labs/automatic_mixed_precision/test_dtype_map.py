"""The dtype map: a real step is recorded, and the widget compares what is painted with it."""

import json

import pytest
import torch
from torch import nn
from traitlets import TraitError

from labkit.labs.automatic_mixed_precision.dtype_map import Edge, example, record_step
from labkit.labs.automatic_mixed_precision.widget_dtype_map import DtypeMap

EDGES = (
    Edge("forward", "inputs", "into the first layer", "fp32"),
    Edge("forward", "w", "as the optimizer keeps it", "fp32"),
    Edge("forward", "after linear", "from linear to relu", "fp16"),
    Edge("backward", "gradient of linear", "from relu back to linear", "fp16"),
    Edge("backward", "gradient of w", "as backward leaves it in .grad", "fp32"),
    Edge("update", "new w", "what the step has left", "fp32"),
)


@pytest.fixture(scope="module")
def edges():
    return example()


def test_a_step_keeps_weights_and_moments_in_float32(edges):
    kept = [e for e in edges if e.phase == "update" or "weight" in e.name]
    assert len(kept) == 7 and {e.dtype for e in kept} == {"fp32"}


def test_products_and_what_follows_them_are_16_bits(edges):
    dtypes = {edge.name: edge.dtype for edge in edges}
    assert [name for name, dtype in dtypes.items() if dtype == "fp16"] == [
        "after linear", "after relu", "after linear 2",
        "gradient of linear 2", "gradient of relu", "gradient of linear",
    ]  # fmt: skip
    assert dtypes["after layer_norm"] == dtypes["after log_softmax"] == "fp32"


def test_a_gradient_has_the_dtype_of_its_value(edges):
    dtypes = {edge.name: edge.dtype for edge in edges}
    pairs = [(name, f"gradient of {name.removeprefix('after ')}") for name in dtypes]
    pairs = [(a, b) for a, b in pairs if b in dtypes]
    assert len(pairs) == 8
    assert all(dtypes[a] == dtypes[b] for a, b in pairs)


def test_edges_come_in_the_order_in_which_values_are_made(edges):
    assert [e.phase for e in edges] == sorted(
        (e.phase for e in edges), key=["forward", "backward", "update"].index
    )
    gradients = [e.name for e in edges if e.name.startswith("gradient of l")]
    assert gradients == [
        "gradient of log_softmax", "gradient of linear 2", "gradient of layer_norm",
        "gradient of linear",
    ]  # fmt: skip


def test_the_step_is_real_and_in_the_dtype_asked_for():
    model = nn.Linear(3, 2)
    before = model.weight.detach().clone()
    edges = record_step(
        model,
        torch.ones(4, 3),
        torch.zeros(4, dtype=torch.long),
        loss_fn=nn.functional.cross_entropy,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        dtype=torch.bfloat16,
    )
    dtypes = {edge.name: edge.dtype for edge in edges}
    assert dtypes["after linear"] == "bf16" and dtypes["gradient of weight"] == "fp32"
    # The gradient of the mean loss is at most 1 for inputs of 1: unscaled again before the step.
    assert 0 < (model.weight - before).abs().max() <= 1
    assert "exp_avg" not in dtypes, "plain SGD remembers nothing"


# The widget


def ask(widget, *, ran=False, **paint):
    """What the page does: a request with its whole state, one number higher than the last."""
    painted = [paint.get(edge.name.replace(" ", "_"), "") for edge in widget.edges]
    widget.request = {"seq": widget.numbers["seq"] + 1, "painted": painted, "ran": ran}
    return widget.numbers


def test_the_truth_stays_in_python_until_the_step_is_run():
    widget = DtypeMap(EDGES)
    widget.paint("after linear", "fp32")
    crossed = json.dumps([widget.numbers["cells"], widget.numbers["rows"]])
    assert "fp16" not in crossed, "only what is painted"
    assert all(cell["truth"] == "" == cell["verdict"] for cell in widget.numbers["cells"])
    widget.run()
    assert [cell["truth"] for cell in widget.numbers["cells"]] == [e.dtype for e in EDGES]
    assert [cell["verdict"] for cell in widget.numbers["cells"]] == [
        "open", "open", "wrong", "open", "open", "open",
    ]  # fmt: skip


def test_a_press_paints_and_is_answered_with_its_number():
    widget = DtypeMap(EDGES)
    shown = ask(widget, after_linear="fp16")
    assert (shown["seq"], shown["cells"][2]["paint"], shown["score"]) == (
        1, "fp16", "1 of 6 painted.",
    )  # fmt: skip
    shown = ask(widget, after_linear="fp16", ran=True)
    assert shown["cells"][2]["verdict"] == "right" and widget.ran
    assert shown["score"] == "1 of 1 painted edges are right; the step has 6."
    shown = ask(widget, after_linear="fp16", inputs="fp16", ran=True)  # painting goes on
    assert shown["cells"][0]["verdict"] == "wrong"
    assert shown["cells"][0]["spoken"].endswith("fp16, wrong, it is fp32")
    shown = ask(widget)
    assert (widget.ran, set(widget.painted), shown["cells"][2]["truth"]) == (False, {""}, "")


def test_a_value_and_its_gradient_share_a_row():
    rows = DtypeMap(EDGES).numbers["rows"]
    assert [(row["forward"], row["backward"]) for row in rows] == [
        (0, None), (1, 4), (2, 3), (5, None),
    ]  # fmt: skip


def test_the_words_say_what_the_picture_shows():
    widget = DtypeMap(EDGES)
    widget.paint("w", "fp16")
    words = widget.describe()
    assert "1 of 6 painted" in words
    places = "inputs ?", "w fp16", "after linear ?", "gradient of linear ?", "new w ?"
    assert [place for place in places if place not in words] == []
    forward, backward, update = (words.index(part) for part in ("Forward", "Backward", "Update"))
    assert forward < words.index("after linear") < backward < words.index("gradient of w") < update
    widget.run()
    words = widget.describe()
    assert "w fp32, painted fp16" in words and "after linear fp16" in words
    assert repr(widget) == widget.describe() == widget.numbers["sentence"]


def test_what_is_not_possible_is_refused():
    with pytest.raises(ValueError, match="edges is empty"):
        DtypeMap([])
    widget = DtypeMap(EDGES)
    with pytest.raises(ValueError, match="no edge 'x'"):
        widget.paint("x", "fp16")
    with pytest.raises(ValueError, match="got 'bf16'"):
        widget.paint("w", "bf16")
    with pytest.raises(TraitError):
        widget.ran = True


def test_a_bf16_step_offers_bf16():
    edge = Edge("forward", "after linear", "from linear to relu", "bf16")
    assert DtypeMap([edge]).paints == ["bf16", "fp32"]
