"""DeviceCard without a browser: every fact with its evidence, and the recipe."""

import json

import pytest
from traitlets import TraitError

from labkit.devices import DTYPES, Description, device_of, recommend
from labkit.labs.hardware_and_benchmarks.widget_device_card import DeviceCard

T4 = device_of(Description(name="Tesla T4", kind="cuda", capability="7.5", memory=15 * 2**30))
MPS = device_of(Description(name="Apple M1", kind="mps"))


def test_a_card_has_every_fact_and_its_evidence():
    card = DeviceCard([T4]).cards[0]
    assert [row["dtype"] for row in card["rows"]] == list(DTYPES)
    bf16 = card["rows"][DTYPES.index("bf16")]["facts"]
    assert [fact["answer"] for fact in bf16] == ["yes", "yes", "no"]
    assert "(capability table)" in bf16[2]["why"] and "8.0" in bf16[2]["why"]
    assert card["dtype"] == "fp16"
    assert card["recipe"] == "FP16 with a loss scale"
    assert card["code"] == recommend(T4).code
    assert card["about"] == "cuda, 7.5, 15.0 GiB"
    json.dumps(card)


def test_the_words_follow_the_choice():
    widget = DeviceCard([T4, MPS])
    assert widget.describe().startswith("Tesla T4")
    assert "FP16 ends at 65504" in repr(widget)
    widget.chosen = 1
    assert widget.describe().startswith("Apple M1")
    assert "unknown" in widget.describe()


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="no device"):
        DeviceCard([])
    with pytest.raises(TraitError, match="0 to 1"):
        DeviceCard([T4, MPS]).chosen = 2
