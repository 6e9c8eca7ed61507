"""The leaderboard: by what the judge measured, under pseudonyms, and only where it measured."""

import csv
import io
import json

import pytest
from test_scores import COURSE, LAB, SECRET, made

from labkit.grading.records import Outcome
from labkit.grading.report.leaderboard import boards, leaderboard_csv
from labkit.grading.report.scores import pseudonym, sheet
from labkit.grading.report.summary import summary

FAR, NEAR = ("KL at 47 bytes", 0.2), ("KL at 47 bytes", 0.1)


def of(student, score, *measured, status="passed"):
    submission = made(student).submission
    outcome = Outcome(
        exercise="snap", status=status, message="Measured.", score=score, measured=measured
    )
    return sheet(submission, LAB, {"snap": [outcome]}, {})


SHEETS = [
    of("ada", 0.5, FAR, ("bytes at 47 bytes", 40)),
    of("bob", 0.75, FAR, ("bytes at 47 bytes", 47)),
    of("cyd", 1.0, FAR, ("bytes at 47 bytes", 46)),
    of("dan", 1.0, NEAR, ("bytes at 47 bytes", 47)),
    of("eve", 1.0, NEAR, ("bytes at 47 bytes", 47)),
    of("fay", 0.0, status="failed"),
    of("gus", 0.5, ("bytes at 47 bytes", 40)),
]


def test_the_better_score_stands_first_and_of_equal_ones_the_smaller_numbers():
    (board,) = boards(SHEETS)
    assert (board.lab, board.exercise) == (LAB.lab, "snap")
    assert board.measured == ("KL at 47 bytes", "bytes at 47 bytes")
    assert [(one.place, one.student) for one in board.places] == [
        (1, "dan"), (1, "eve"), (3, "cyd"), (4, "bob"), (5, "ada"), (6, "gus"),
    ]  # fmt: skip
    assert board.places[-1].values == (None, 40)


def test_the_table_names_nobody_and_says_what_was_measured():
    text = leaderboard_csv(boards(SHEETS), SECRET)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["pseudonym"] for row in rows][2:4] == [pseudonym(s, SECRET) for s in ("cyd", "bob")]
    assert rows[2] == {
        "lab": LAB.lab, "exercise": "snap", "place": "3", "pseudonym": pseudonym("cyd", SECRET),
        "score": "1", "KL at 47 bytes": "0.2", "bytes at 47 bytes": "46",
    }  # fmt: skip
    assert "ada" not in text


def test_the_class_page_shows_it_where_there_is_one():
    page = summary(SHEETS, COURSE, SECRET)
    assert "Leaderboard of snap" in page and page.count("KL at 47 bytes") >= 1
    assert "Leaderboard" not in summary([made(snap="passed")], COURSE, SECRET)
    assert boards([made(snap="passed")]) == []


def test_points_of_an_open_ended_exercise_are_a_part_without_any_option():
    ada = of("ada", 0.5, FAR)
    (row,) = (row for row in ada.rows if row.exercise == "snap")
    assert (row.points, row.possible, row.status) == (1.5, 3.0, "passed")


@pytest.mark.parametrize("measured", [(), (FAR, ("bytes", 7))])
def test_what_was_measured_survives_the_ledger(measured):
    from dataclasses import asdict

    from labkit.grading.judge.grade_ledger import _outcome

    outcome = Outcome(exercise="snap", status="passed", message="", measured=measured)
    assert _outcome(json.loads(json.dumps(asdict(outcome)))) == outcome
