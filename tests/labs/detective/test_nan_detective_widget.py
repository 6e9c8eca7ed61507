"""NanDetective without a browser: what it shows, what a request does, what the log is told."""

import json

import pytest

from labkit.base import progress
from labkit.labs.detective import nan_detective
from labkit.labs.detective.causes import CAUSES
from labkit.labs.detective.instruments import INSTRUMENTS
from labkit.labs.detective.nan_detective import Case
from labkit.labs.detective.nan_pictures import drawn
from labkit.labs.detective.widget_nan_detective import NanDetective
from labkit.labs.engine.misconceptions import misconceptions_met


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))


@pytest.fixture
def known(monkeypatch):
    """Every case is one of a NaN in the data."""
    monkeypatch.setattr(
        nan_detective, "new_case", lambda seed, tier: Case(CAUSES["nan-pixel"], seed)
    )


def send(shown, do, value=None, **changed):
    asked = {"seq": shown.numbers["seq"] + 1, "case": shown.case.seed, "do": do, "value": value}
    shown.request = asked | changed
    return shown.numbers


def test_an_open_case_shows_the_symptom_and_all_there_is_to_ask(known):
    view = NanDetective(0).numbers
    assert "does not train" in view["symptom"]
    assert [each["id"] for each in view["instruments"]] == list(INSTRUMENTS)
    assert [each["id"] for each in view["suspects"]] == list(CAUSES)
    assert (view["left"], view["left_words"]) == (40, "40 of 40 GPU-minutes left.")
    assert view["verdict"] is None
    assert [each["price"] for each in view["instruments"]] == [
        each.price for each in INSTRUMENTS.values()
    ]
    assert json.loads(json.dumps(view, allow_nan=False)) == view


def test_a_case_by_requests_ends_in_a_verdict_and_in_the_log(known):
    shown = NanDetective(0, lab="11")
    view = send(shown, "ask", "fp32")
    assert (view["seq"], view["left"], view["left_words"]) == (
        1, 20, "20 of 40 GPU-minutes left.",
    )  # fmt: skip
    assert view["readings"][0]["picture"]["kind"] == "line"
    assert [each["asked"] for each in view["instruments"]].count(True) == 1
    send(shown, "ask", "batch")
    view = send(shown, "accuse", "nan-pixel")
    assert view["closed"] and view["verdict"]["right"] and view["verdict"]["idea"] == ""
    assert [e["asked"] for e in view["verdict"]["evidence"]] == [True]
    assert len(view["verdict"]["against"]) == len(CAUSES) - 1
    (event,) = progress.events()
    assert (event.kind, event.lab, event.item, event.status) == (
        "check", "11", "nan-detective", "passed",
    )  # fmt: skip
    assert event.detail["queries"] == ["fp32", "batch"] and event.detail["proved"]
    assert event.detail["misconceptions"] == []


def test_a_wrong_accusation_is_logged_with_its_idea(known):
    shown = NanDetective(0)
    view = send(shown, "accuse", "mask-overflow")
    assert view["verdict"]["idea"] == "When a 16-bit run fails, the 16 bits are the cause."
    (met,) = misconceptions_met(progress.events())
    assert met == "sixteen-bits-are-to-blame"
    assert progress.events()[0].status == "failed"


def test_what_cannot_be_done_is_said_and_changes_nothing(known):
    shown = NanDetective(0)
    for name in ("loss", "first", "scaler", "updates"):
        send(shown, "ask", name)
    view = send(shown, "ask", "fp32")
    assert "FP32 twin costs 20 GPU-minutes, and 11 are left" in view["trouble"]
    assert len(view["readings"]) == 4 and view["left_words"] == "11 of 40 GPU-minutes left."
    assert [each["id"] for each in view["instruments"] if not each["payable"]] == [
        "updates", "first", "fp32",
    ]  # fmt: skip
    assert send(shown, "ask", "loss")["trouble"] == "", "it was asked before, and is free"
    assert send(shown, "accuse", "nobody")["verdict"] is None


def test_a_request_for_a_case_that_has_gone_does_nothing(known):
    shown = NanDetective(0)
    view = send(shown, "another")
    assert view["case"] == 1
    view = send(shown, "accuse", "nan-pixel", case=0)
    assert view["verdict"] is None and progress.events() == []


def test_its_words_say_what_it_shows(known):
    shown = NanDetective(0)
    words = shown.describe()
    assert repr(shown) == words == shown.describe()
    assert all(f"{name!r}" in words for name in (*INSTRUMENTS, *CAUSES))
    said = shown.ask("batch")
    assert said.startswith("Batch: Step ") and f"- {said}" in shown.describe()
    assert "- 'batch'" not in shown.describe() and "38 of 40 GPU-minutes left." in shown.describe()
    assert shown.accuse("mask-overflow").startswith("Not so. Your own reading clears")
    words = shown.describe()
    assert "The case is closed." in words and "What clears the others:" in words
    assert "A suspicion may stand although a measurement contradicts it." in words
    with pytest.raises(ValueError, match="is closed"):
        shown.accuse("nan-pixel")


def test_a_log_that_cannot_be_written_is_said_on_the_page(known, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "_sentence_was_said", False)
    (tmp_path / "home" / "progress.db").mkdir(parents=True)
    shown = NanDetective(0)
    shown.accuse("nan-pixel")
    assert "Your progress is not recorded" in shown.numbers["trouble"]
    assert shown.numbers["verdict"]["right"]


# The pictures


def test_a_curve_goes_down_where_the_loss_falls_and_stops_where_it_is_not_finite():
    picture = {
        "kind": "line", "series": [[2.0, 1.0, None]], "names": ["loss"], "marks": [1], "length": 3,
    }  # fmt: skip
    view = drawn(picture)
    assert view["curves"] == [{"name": "loss", "points": [[0.0, 0.0], [50.0, 100.0], None],
                               "gap": 100.0}]  # fmt: skip
    assert view["marks"] == [[50.0, 100.0]]
    assert (view["top"], view["bottom"], view["end"]) == ("2", "1", "step 2")


def test_a_curve_without_a_finite_value_is_a_gap_from_the_start():
    picture = {"kind": "line", "series": [[None, None]], "names": ["x"], "marks": [], "length": 2}
    assert drawn(picture)["curves"][0]["gap"] == 0.0


def test_bars_lie_between_powers_of_two():
    rows = [
        {"label": "a", "span": [-34, 20], "text": ""},
        {"label": "b", "span": [-60, -7], "text": ""},
        {"label": "c", "span": None, "text": "all 0"},
    ]
    view = drawn({"kind": "bars", "rows": rows, "limits": [[-24, "2**-24"]]})
    assert [row["span"] for row in view["rows"]] == [[0.0, 100.0], [0.0, 50.0], None]
    assert view["limits"] == [[18.5, "2**-24"]]  # 10 of 54 octaves


def test_a_histogram_marks_half_a_gap():
    view = drawn(
        {"kind": "histogram", "low": -2, "counts": [1, 0, 4, 2], "limit": -1, "word": "half a gap"}
    )
    assert view["bars"] == [[0.0, 25.0, 25.0], [50.0, 25.0, 100.0], [75.0, 25.0, 50.0]]
    assert view["limit"] == [25.0, "half a gap"]
    empty = {"kind": "histogram", "low": -2, "counts": [0, 0], "limit": -1, "word": "x"}
    assert drawn(empty)["bars"] == []
