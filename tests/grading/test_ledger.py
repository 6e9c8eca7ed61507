"""The ledger: what is kept is whole, and what it cannot be used for it says."""

import sqlite3
from dataclasses import replace
from datetime import date

import pytest

from labkit.grading import course_labs
from labkit.grading.course_labs import read_course
from labkit.grading.intake.roster import Override
from labkit.grading.judge import grade_ledger as ledger_module
from labkit.grading.judge.grade_ledger import Basis, GradeLedger, LedgerError
from labkit.grading.records import AGAIN, Outcome, Settings, Work

COURSE = read_course()
LAB = COURSE["02_number_formats"]
WORK = Work(lab=LAB.lab, digest="ab" * 32, cells=("x",), exercises=LAB.exercises)
BASIS = Basis.of(COURSE.values(), Settings())


def outcome(exercise: str, **facts) -> Outcome:
    return Outcome(
        **{"exercise": exercise, "status": "passed", "message": "Right.", "score": 1.0, **facts}
    )


def test_what_was_kept_is_known_again_field_by_field(tmp_path):
    found = {
        "ulp": [
            outcome("ulp", misconceptions=("a", "b"), cpu_seconds=1.5),
            outcome("ulp", hidden=True, cause="time", more=("x", "y"), wrong=3, cases=4),
        ]
    }
    with GradeLedger(tmp_path / "l.db", BASIS) as ledger:
        ledger.keep(WORK, found)
    with GradeLedger(tmp_path / "l.db", BASIS) as ledger:
        assert ledger.known(WORK) == found
        assert ledger.known(replace(WORK, digest="cd" * 32)) == {}


@pytest.mark.parametrize("facts", [{"rerun": True}, {"cause": "grader", "status": "not graded"}])
def test_what_is_to_be_tried_again_is_found_and_not_known(tmp_path, facts):
    with GradeLedger(tmp_path / "l.db", BASIS) as ledger:
        ledger.keep(WORK, {"ulp": [outcome("ulp", **facts)]})
        assert ledger.known(WORK) == {}
        assert list(ledger.found(WORK)) == ["ulp"]
        ledger.keep(WORK, {"ulp": [outcome("ulp")]})
        assert list(ledger.known(WORK)) == ["ulp"]


def test_what_two_runs_ended_alike_is_not_tried_a_third_time(tmp_path):
    late = outcome("ulp", status="error", cause="time", rerun=True, message=f"It slept.{AGAIN}")
    with GradeLedger(tmp_path / "l.db", BASIS) as ledger:
        ledger.keep(WORK, {"ulp": [late, outcome("ulp", hidden=True)]})
        assert ledger.known(WORK) == {}
        ledger.keep(WORK, {"ulp": [late, replace(late, hidden=True)], "snap": [late]})
        first, hidden = ledger.found(WORK)["ulp"]
        assert (first.status, first.cause, first.rerun) == ("error", "time", False)
        assert first.message == "It slept. It was so in two runs of the grader."
        assert hidden.rerun, "the first time for this one"
        ledger.keep(WORK, {"ulp": [late, replace(late, hidden=True)]})
        assert list(ledger.known(WORK)) == ["ulp"]
        ledger.keep(WORK, {"snap": [late]})
        assert set(ledger.known(WORK)) == {"ulp", "snap"}


def test_the_day_of_the_last_grade_is_kept_and_a_rerun_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_module, "_today", lambda: date(2026, 11, 20))
    with GradeLedger(tmp_path / "l.db", BASIS) as ledger:
        assert ledger.graded_on(WORK) is None
        ledger.keep(WORK, {"ulp": [outcome("ulp")], "snap": [outcome("snap")]})
    monkeypatch.setattr(ledger_module, "_today", lambda: date(2026, 12, 1))
    with GradeLedger(tmp_path / "l.db", BASIS) as ledger:
        assert ledger.graded_on(WORK) == date(2026, 11, 20)
        ledger.keep(WORK, {"snap": [outcome("snap")]})
        assert ledger.graded_on(WORK) == date(2026, 12, 1)
        assert ledger.graded_on(replace(WORK, digest="cd" * 32)) is None
    other = Basis.of(COURSE.values(), Settings(secret=b"of another class"))
    with GradeLedger(tmp_path / "l.db", other) as ledger:
        assert ledger.graded_on(WORK) is None, "nothing of it holds any more"


def test_a_ledger_of_before_there_were_days_opens_and_knows_none(tmp_path):
    with GradeLedger(tmp_path / "l.db", BASIS) as ledger:
        ledger.keep(WORK, {"ulp": [outcome("ulp")]})
        ledger._log.execute("DROP TABLE days")
    with GradeLedger(tmp_path / "l.db", BASIS) as ledger:
        assert list(ledger.known(WORK)) == ["ulp"] and ledger.graded_on(WORK) is None
        ledger.keep(WORK, {"snap": [outcome("snap")]})
        assert ledger.graded_on(WORK) is not None


def test_helpers_are_part_of_what_was_handed_in(tmp_path):
    beside = replace(WORK, helpers=(("helper.py", b"x = 1"),))
    other = replace(WORK, helpers=(("helper.py", b"x = 2"),))
    moved = replace(WORK, helpers=(("helper.pyx", b" = 1"),))
    assert len({one.identity for one in (WORK, beside, other, moved)}) == 4
    assert WORK.identity == WORK.digest
    with GradeLedger(tmp_path / "l.db", BASIS) as ledger:
        ledger.keep(beside, {"ulp": [outcome("ulp")]})
        assert list(ledger.known(beside)) == ["ulp"]
        assert ledger.known(WORK) == ledger.known(other) == {}


def test_a_row_of_an_older_labkit_can_be_read(tmp_path):
    with GradeLedger(tmp_path / "l.db", BASIS) as ledger:
        ledger.keep(WORK, {"ulp": [outcome("ulp", wall_seconds=2.0)]})
        ledger._log.execute(
            "UPDATE graded SET outcomes = json_remove(outcomes, '$[0].wall_seconds')"
        )
        assert ledger.known(WORK) == {"ulp": [outcome("ulp")]}


@pytest.mark.parametrize(
    "settings",
    [
        Settings(secret=b"other"),
        Settings(sandboxed=False),
        Settings(memory_bytes=1),
        Settings(minutes=5),
    ],
    ids=["secret", "sandbox", "memory", "minutes"],
)
def test_a_grade_holds_under_the_settings_it_was_made_with(tmp_path, settings):
    with GradeLedger(tmp_path / "l.db", BASIS) as ledger:
        ledger.keep(WORK, {"ulp": [outcome("ulp")]})
    with GradeLedger(tmp_path / "l.db", Basis.of(COURSE.values(), settings)) as ledger:
        assert ledger.known(WORK) == {}
    with GradeLedger(tmp_path / "l.db", Basis.of(COURSE.values(), Settings(jobs=7))) as ledger:
        assert list(ledger.known(WORK)) == ["ulp"]


def test_a_grade_holds_for_one_version_of_the_lab_and_of_the_check(tmp_path):
    newer = replace(LAB, version="newer")
    checked = replace(LAB, check_versions={**LAB.check_versions, "ulp": "newer"})
    with GradeLedger(tmp_path / "l.db", BASIS) as ledger:
        ledger.keep(WORK, {"ulp": [outcome("ulp")], "snap": [outcome("snap")]})
    with GradeLedger(tmp_path / "l.db", Basis.of([newer], Settings())) as ledger:
        assert ledger.known(WORK) == {}
    with GradeLedger(tmp_path / "l.db", Basis.of([checked], Settings())) as ledger:
        assert list(ledger.known(WORK)) == ["snap"]


def test_a_grade_holds_for_one_state_of_labkit(tmp_path, monkeypatch):
    package = tmp_path / "labkit"
    own = ("labs/tiny/checks.py", "labs/tiny/widget_w.py", "labs/tiny/solutions.py")
    shared = ("base/home.py", "formats/dtypes.py", "labs/engine/checks.py")
    for name in own + shared:
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("")
    monkeypatch.setattr(course_labs.home, "__file__", str(package / "base" / "home.py"))
    digest = course_labs.rest_of_labkit.__wrapped__
    before = digest()
    for name in own:  # with versions of their own, or of no matter
        (package / name).write_text("edited")
    assert digest() == before
    for name in shared:
        (package / name).write_text("edited")
        assert digest() != before
        before = digest()


def test_an_edited_extra_file_grades_again(tmp_path):
    extra = tmp_path / "mine.py"
    extra.write_text("a")
    settings = Settings(extra=str(extra))
    one = Basis.of(COURSE.values(), settings)
    extra.write_text("b")
    assert one.keys.keys() == Basis.of(COURSE.values(), settings).keys.keys()
    assert set(one.keys.values()).isdisjoint(Basis.of(COURSE.values(), settings).keys.values())


def test_a_write_that_fails_leaves_nothing_behind(tmp_path):
    with GradeLedger(tmp_path / "l.db", BASIS) as ledger:
        ledger.keep(WORK, {"ulp": [outcome("ulp")]})
        with pytest.raises(KeyError):
            ledger.keep(WORK, {"snap": [outcome("snap")], "no-exercise": []})
        assert list(ledger.known(WORK)) == ["ulp"]


def test_a_full_disk_is_said_as_such(tmp_path):
    with GradeLedger(tmp_path / "l.db", BASIS) as ledger:
        ledger._log.execute("PRAGMA max_page_count = 1")  # SQLite's own way to a full disk
        with pytest.raises(LedgerError, match=r"disk is full.*see that its disk has room"):
            for n in range(100):
                ledger.keep(replace(WORK, digest=str(n)), {"ulp": [outcome("ulp")]})


def test_a_row_that_somebody_has_changed_is_named(tmp_path):
    with GradeLedger(tmp_path / "l.db", BASIS) as ledger:
        ledger.keep(WORK, {"ulp": [outcome("ulp")]})
        ledger._log.execute("UPDATE graded SET outcomes = '[{}]'")
        with pytest.raises(LedgerError, match="move it away"):
            ledger.known(WORK)


def test_a_ledger_of_version_1_keeps_what_was_graded_and_set_by_hand(tmp_path):
    with GradeLedger(tmp_path / "l.db", BASIS) as ledger:
        ledger.keep(WORK, {"ulp": [outcome("ulp")]})
    with sqlite3.connect(tmp_path / "l.db") as log:
        log.execute("DROP TABLE overrides")
        log.execute(
            "CREATE TABLE overrides (student TEXT, lab TEXT, exercise TEXT, points REAL,"
            " reason TEXT, PRIMARY KEY (student, lab, exercise)) WITHOUT ROWID"
        )
        log.execute("INSERT INTO overrides VALUES ('ada', '02', 'ulp', 1.5, 'oral')")
        log.execute("PRAGMA user_version = 1")
    log.close()
    old = Override(student="ada", lab="02", exercise="ulp", points=1.5, reason="oral")
    new = replace(old, student="bob", points=None, comment="Come and see me.", possible=5.0)
    with GradeLedger(tmp_path / "l.db", BASIS) as ledger:
        assert ledger.overrides() == [old]
        assert ledger.known(WORK) == {"ulp": [outcome("ulp")]}
        ledger.keep_overrides([new, old])
    with GradeLedger(tmp_path / "l.db", BASIS) as ledger:
        assert ledger.overrides() == [old, new]


def test_a_ledger_of_a_newer_labkit_is_left_alone(tmp_path):
    with sqlite3.connect(tmp_path / "l.db") as log:
        log.execute("PRAGMA user_version = 99")
    log.close()
    before = (tmp_path / "l.db").read_bytes()
    with pytest.raises(LedgerError, match="written by a newer labkit"):
        GradeLedger(tmp_path / "l.db", BASIS)
    assert (tmp_path / "l.db").read_bytes() == before
