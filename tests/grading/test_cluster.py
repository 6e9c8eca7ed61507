"""On a cluster the grades are those of one process, also when a worker dies on the way."""

import os
import signal
from pathlib import Path

import pytest
from handing_in import POINTS, hand_in, small
from quick_grader import QuickGrader, answer, grade_command
from test_grade_command import outputs, rows

from labkit.grading import command

WORDS = ["passes", "fails", "believes", "stops", "breaks"]
SECRET = "0123456789abcdef"


class DyingGrader(QuickGrader):
    """Kills its worker once, on the submission that says so."""

    def grade(self, work):
        place = Path(os.environ["LABKIT_TEST_DEATH"])
        if any("dies" in cell for cell in work.cells) and not place.exists():
            place.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().grade(work)


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("LABKIT_TEST_DEATH", str(tmp_path / "died"))
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address=None,
        silence_logs=100,
    ) as started:
        yield started


def grade(root: Path, grader: type, *more: str) -> int:
    (root / "grades.secret").write_text(SECRET)
    return grade_command([root, "-o", root / "grades.csv", *more], grader)


@pytest.mark.slow
def test_two_workers_grade_as_one_process_and_a_dead_one_loses_nothing(tmp_path, cluster):
    made = {f"s{n}": small(answer(WORDS[n % 5]) + f"  # {n}") for n in range(15)}
    made["s7"] = small(answer("passes") + "  # dies")
    here, there = hand_in(tmp_path / "here", **made), hand_in(tmp_path / "there", **made)
    status = grade(here, QuickGrader)
    assert status == command.SOME_UNGRADED  # "breaks" is the grader's own fault
    assert grade(there, DyingGrader, "--scheduler", cluster.scheduler_address) == status
    assert (tmp_path / "died").exists(), "a worker was killed"
    assert outputs(here) == outputs(there)
    assert len(rows(there)) == 15 * len(POINTS)


@pytest.mark.slow
def test_a_cluster_that_cannot_be_used_says_why(tmp_path, cluster, capsys):
    hand_in(tmp_path, ada=small(answer("passes")))

    class Failing(QuickGrader):
        def __enter__(self):
            raise RuntimeError("bubblewrap does not start")

    assert grade(tmp_path, Failing, "--scheduler", cluster.scheduler_address) == 2
    assert "bubblewrap does not start" in capsys.readouterr().err


def test_an_address_without_a_scheduler_is_one_sentence(tmp_path, capsys, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("labkit.grading.judge.cluster._CONNECT_SECONDS", 1)
    hand_in(tmp_path, ada=small(answer("passes")))
    assert grade(tmp_path, QuickGrader, "--scheduler", "tcp://127.0.0.1:9") == 2
    err = capsys.readouterr().err
    assert "No scheduler answers at tcp://127.0.0.1:9" in err
