"""`labkit start` on a copy from before guesses were cards: no answer and no guess is lost.

``copies_before_cards.json`` holds the exercise and guess cells of the labs of that time, with their
ids and versions, as a learner got them.
"""

import importlib
import json
from pathlib import Path

import pytest

from labkit.base import progress
from labkit.base.manifest import read_manifest
from labkit.base.paths import NOTEBOOKS
from labkit.course import my_labs

COPIES = json.loads(
    Path(__file__).with_name("copies_before_cards.json").read_text(encoding="utf-8")
)
# What the cells of that time asked for, and what a learner may have written.
GUESSES = {
    "bet": "[True, True, True, False, True]",
    "lower-rate": '"as many"',
    "myths": "[False, True, False, False]",
    "step-at-2048": "2049",
    "below-one": "10",
    "near-the-top": 'float("inf")',
    "loses-most": '"Weights"',
    "published": "[True] * 6",
    "triage": "[True, True, True, True, False, False]",
    "masked-row": "1 / 3",
    "late-upcast": '"inf"',
    "torch-sum": "256",
    "remedies": "(True, False, False, False, True)",
    "zero-gradients": "50",
    "lost-updates": '"about half"',
    "scaled-error": "'smaller'",
    "doubling": "33",
    "zeroed-step": '"stand still"',
    "six-ops": "[True, False, False, False, False, False]",
    "used-nine-times": "2056",
    "clipped-inf": '"nan"',
    "only-d": '"neither"',
    "gtx-1660": "[False, False, False, False]",
    "small-matmul": '"compute"',
    "amdahl": "1.7",
    "launches": "2",
    "first-break": '"NaN"',
}
NOT_READ = {"published"}
"""What was no list in the learner's text either; it is shown as it was written."""


@pytest.fixture(autouse=True)
def log(monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)


def slug_of(cell):
    metadata = cell["metadata"]
    return metadata.get("labkit", {}).get("predict") or metadata["nbgrader"]["grade_id"]


def changed(lab):
    """The copy, with every answer and every guess changed."""
    copy = json.loads(json.dumps(COPIES[lab]))
    copy["metadata"]["labkit"]["version"] = "0123456789ab"  # lab 00 has not changed since
    for cell in copy["cells"]:
        if "labkit" in cell["metadata"]:
            before = cell["source"]
            cell["source"] = before.replace("...", GUESSES[slug_of(cell)], 1)
            cell["source"] = cell["source"].replace("2  #", "3  #", 1).replace("2,\n", "3,\n", 1)
            assert cell["source"].count("3") > before.count("3")
        else:
            cell["source"] += f"\n# mine: {slug_of(cell)}"
    return copy


@pytest.mark.parametrize("lab", COPIES)
def test_start_loses_no_answer_and_no_guess(lab, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    old = changed(lab)
    (mine / f"{lab}.ipynb").write_text(json.dumps(old), encoding="utf-8")
    report = my_labs.start(mine).updates
    (said,) = [sentence for sentence in report if sentence.startswith(lab)]

    new = json.loads((mine / f"{lab}.ipynb").read_text(encoding="utf-8"))
    assert new["metadata"]["labkit"]["version"] == read_manifest().find(lab).version
    answers = {
        cell["metadata"]["nbgrader"]["grade_id"]: "".join(cell["source"])
        for cell in new["cells"]
        if cell["metadata"].get("nbgrader", {}).get("solution")
    }
    logged = {event.item: event.detail for event in progress.events(lab=lab, kind="prediction")}
    guesses = {cell["metadata"].get("labkit", {}).get("predict") for cell in new["cells"]}
    for cell in old["cells"]:
        slug = slug_of(cell)
        assert f"`{slug}`" in said
        if slug in answers:
            assert answers[slug] == cell["source"]
        elif slug in guesses:
            assert logged[slug]["sure"] == 3
        else:  # the lab has dropped it since: it stays in the kept file, see below
            assert f"`{slug}`" in said.partition("no longer asks for")[2]
    cells = "\n".join("".join(cell["source"]) for cell in new["cells"])
    assert "guess, sure" not in cells, "a guess is never carried as source"
    (kept,) = mine.glob(f"{lab}.before-*.ipynb")
    assert json.loads(kept.read_text(encoding="utf-8")) == old
    for slug in logged:
        shows_it_as_the_earlier_guess(lab, slug)


def shows_it_as_the_earlier_guess(lab, slug):
    """The card of the new lab, as its cell makes it."""
    from labkit.labs.engine.predictions import UnclearGuess  # here: they import torch
    from labkit.labs.engine.widget_prediction import PredictionCard
    from tests.labs.test_predictions import truth_of

    module = importlib.import_module(f"labkit.labs.{lab.partition('_')[2]}.predictions")
    prediction = getattr(module, slug.replace("-", "_"))
    card = PredictionCard(prediction, truth_of(prediction))
    assert card.numbers["state"] == "answered"
    if slug in NOT_READ:
        assert card.numbers["said"].startswith("Earlier you said [True] * 6.")
        with pytest.raises(UnclearGuess):
            prediction.read("[True] * 6")
        return
    text = GUESSES[slug].strip("[()]\"'")
    meant = prediction.words(prediction.read(text.removeprefix('float("').strip('"')))
    assert card.numbers["said"].startswith(f"Earlier you said {meant} (certain)")
    assert "correct" in progress.events(lab=lab, kind="prediction")[-1].detail


def test_a_guess_that_was_logged_counts_and_is_logged_no_second_time(tmp_path):
    lab = "02_number_formats"
    progress.record(
        "prediction", lab=lab, item="step-at-2048", status="wrong",
        guess="2050", truth="2048", sure=1, correct=False,
    )  # fmt: skip
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / f"{lab}.ipynb").write_text(json.dumps(changed(lab)), encoding="utf-8")
    my_labs.start(mine)
    events = [e for e in progress.events(lab=lab) if e.item == "step-at-2048"]
    assert [event.detail["guess"] for event in events] == ["2050"]


def test_every_lab_of_that_time_is_tried():
    labs = {lab.lab for lab in read_manifest().labs}
    assert set(COPIES) <= labs and (NOTEBOOKS / "source").is_dir()
    asked = {
        slug_of(c) for copy in COPIES.values() for c in copy["cells"] if "labkit" in c["metadata"]
    }
    assert asked == set(GUESSES)
