"""What the log says of a learner: labs and exercises passed, certain and wrong, wrong ideas met."""

from datetime import UTC, datetime, timedelta

import pytest
from small_manifest import lab

from labkit.base import progress
from labkit.course.progress_panel import LabProgress, lab_progress, overview
from labkit.labs.engine.misconceptions import misconceptions_met, sure_and_wrong

START = lab("00_start_here", "Start here", first=1)
FORMATS = lab("02_number_formats", "Build a number system", sixteen=1, ulp=2, snap=3)
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A log of its own for each test."""
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)


def passed(item="ulp", *, lab="02_number_formats", status="passed", **more):
    return progress.record("check", lab=lab, item=item, status=status, **more)


def test_overview_counts_an_exercise_passed_once_as_passed():
    passed("ulp", status="failed", now=NOON)
    passed("ulp", status="passed", now=NOON)
    passed("ulp", status="failed", now=NOON + timedelta(hours=1))
    passed("sixteen", status="failed", now=NOON)
    passed("removed-since", status="passed", now=NOON)
    progress.record("prediction", lab="02_number_formats", item="snap", status="passed", now=NOON)
    start, formats = overview([START, FORMATS], progress.events())
    assert start == LabProgress(
        lab="00_start_here",
        title="Start here",
        exercises=1,
        passed=0,
        optional=0,
        optional_passed=0,
        points=1,
        points_earned=0,
        last_seen=None,
    )
    assert formats == LabProgress(
        lab="02_number_formats",
        title="Build a number system",
        exercises=3,
        passed=1,
        optional=0,
        optional_passed=0,
        points=6,
        points_earned=2,
        last_seen=NOON + timedelta(hours=1),
    )


def test_overview_counts_what_is_optional_apart():
    of_lab = lab("02_number_formats", "Build a number system", ulp=2, snap=3, tf32=0, more=0)
    passed("ulp")
    passed("tf32")
    (row,) = overview([of_lab], progress.events())
    assert (row.passed, row.exercises, row.optional_passed, row.optional) == (1, 2, 1, 2)


def test_the_same_exercise_id_in_another_lab_earns_nothing_here():
    passed("ulp", lab="00_start_here")
    assert [row.passed for row in overview([START, FORMATS], progress.events())] == [0, 0]


def test_lab_progress_tells_tries_and_the_best_status():
    passed("ulp", status="not attempted", now=NOON)
    passed("ulp", status="error", now=NOON)
    passed("ulp", status="passed", now=NOON)
    passed("ulp", status="failed", now=NOON + timedelta(days=2))
    passed("snap", status="not attempted", now=NOON)
    rows = lab_progress(FORMATS, progress.events())
    assert [(row.exercise, row.status, row.tries) for row in rows] == [
        ("sixteen", "not started", 0),
        ("ulp", "passed", 3),
        ("snap", "not attempted", 0),
    ]
    assert rows[1].last_seen == NOON + timedelta(days=2)


def predicted(item, *, sure, correct, at):
    progress.record(
        "prediction",
        lab="02_number_formats",
        item=item,
        status="right" if correct else "wrong",
        now=at,
        sure=sure,
        correct=correct,
    )


def test_sure_and_wrong_takes_the_first_answer_of_those_who_were_certain():
    predicted("early", sure=3, correct=False, at=NOON)
    predicted("early", sure=3, correct=True, at=NOON + timedelta(minutes=1))
    predicted("guessed", sure=1, correct=False, at=NOON)
    predicted("right", sure=3, correct=True, at=NOON)
    predicted("right", sure=3, correct=False, at=NOON + timedelta(minutes=1))
    predicted("late", sure=3, correct=False, at=NOON + timedelta(hours=1))
    assert [event.item for event in sure_and_wrong(progress.events())] == ["late", "early"]


def test_a_carried_guess_is_counted_once_it_is_judged():
    lab, sure = "02_number_formats", {"guess": "1", "sure": 3}
    progress.record("prediction", lab=lab, item="carried", status="carried", now=NOON, **sure)
    assert sure_and_wrong(progress.events()) == []
    predicted("carried", sure=3, correct=False, at=NOON + timedelta(hours=2))
    assert [event.item for event in sure_and_wrong(progress.events())] == ["carried"]


def test_misconceptions_are_counted_the_last_met_first():
    passed("ulp", status="failed", misconceptions=["max-not-gap"], now=NOON)
    passed("ulp", status="failed", misconceptions=["max-not-gap", "eps-times-x"], now=NOON)
    passed("snap", status="failed", misconceptions=["inf-above-max"], now=NOON + timedelta(hours=1))
    met = misconceptions_met(progress.events())
    assert [(name, len(seen)) for name, seen in met.items()] == [
        ("inf-above-max", 1),
        ("max-not-gap", 2),
        ("eps-times-x", 1),
    ]
