"""A save in a second process: the kernel really kills it in the middle of a file."""

import os
import signal
import threading
import time
import tomllib
from pathlib import Path

import pytest
import torch

from labkit.base import home
from labkit.labs.production import killed_save, small_run
from labkit.labs.production.checks import check_checkpoints
from labkit.labs.production.solutions import Checkpoints

ROOT = Path(home.__file__).parents[2]
BOTH = (killed_save.BY_KERNEL, killed_save.BY_ITSELF)


class WithPath(Checkpoints):
    """torch.save writes to a path, in C++."""

    def save(self, step):
        torch.save({"step": step, "long": torch.zeros(2000)}, self.folder / f"{step}.pt")


class WithNumbers(Checkpoints):
    """os.write, to the number of a file."""

    def save(self, step):
        number = os.open(self.folder / f"{step}.pt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        left = bytes(8000)
        while left:
            left = left[os.write(number, left) :]
        os.close(number)


class CleansUp(Checkpoints):
    """What stands in `finally` would hide the half file."""

    def save(self, step):
        try:
            (self.folder / f"{step}.pt").write_bytes(bytes(8000))
        finally:
            if step == killed_save.SECOND:
                (self.folder / f"{step}.pt").unlink()


@pytest.mark.parametrize("how", BOTH)
@pytest.mark.parametrize("answer", [WithPath, WithNumbers, CleansUp])
def test_a_file_ends_in_the_middle_however_it_is_written(tmp_path, answer, how):
    assert killed_save.killed_save(answer, tmp_path, 0, how=how) is True
    whole, half = ((tmp_path / f"{step}.pt").stat().st_size for step in (5, 8))
    # The kernel ends a write at the limit; torch's own writer may be between two of its records.
    assert 0 < half <= whole // 2


@pytest.mark.parametrize("how", BOTH)
def test_the_whole_file_stays_and_the_half_one_has_no_final_name(tmp_path, how):
    assert killed_save.killed_save(Checkpoints, tmp_path, 0, how=how) is True
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "000000000005.pt",
        "000000000008.pt",
        "unfinished",
    ]


@pytest.mark.parametrize("how", BOTH)
def test_the_files_before_the_kill_are_kept_and_the_killed_save_writes_others(tmp_path, how):
    class Direct(Checkpoints):
        def save(self, step):
            state = torch.get_rng_state().numpy().tobytes()
            (self.folder / f"{step}.state").write_bytes(state)

    run, kept = tmp_path / "run", tmp_path / "kept"
    run.mkdir()
    assert killed_save.killed_save(Direct, run, 0, kept=kept, how=how) is True
    states = {}
    with torch.random.fork_rng(devices=[]):
        parts = small_run.fresh(0)
        for step in (killed_save.FIRST, killed_save.SECOND, killed_save.AGAIN):
            small_run.put(parts, step, 0)
            states[step] = torch.get_rng_state().numpy().tobytes()
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == {
        "5.state": states[5],
        "8.state": states[8],
    }
    assert (run / "8.state").read_bytes() == states[9][: len(states[9]) // 2]
    assert states[8] != states[9]


def test_the_second_process_salts_its_hashes_by_itself(tmp_path, monkeypatch, second_process):
    second_process(warm=False)
    monkeypatch.setenv("PYTHONHASHSEED", "0")

    class Salted(Checkpoints):
        def save(self, step):
            raise LookupError(str(hash(b"some bytes")))

    one, other = (killed_save.killed_save(Salted, tmp_path, 0)["message"] for _ in range(2))
    assert one != other


def test_a_process_that_ends_before_the_last_save_is_not_taken_for_one_that_saved(tmp_path):
    class Leaves(Checkpoints):
        def save(self, step):
            os._exit(0)

    ended = killed_save.killed_save(Leaves, tmp_path, 0, kept=tmp_path / "kept")
    assert ended["message"] == "the process ended with 0: "


class Idle(Checkpoints):
    def save(self, step):
        """Writes nothing."""


class Loud(Checkpoints):
    def save(self, step):
        print("on its way")
        raise LookupError(f"no step {step}")


def test_a_save_that_is_not_killed_says_so_and_one_that_raises_says_what(tmp_path):
    assert killed_save.killed_save(Idle, tmp_path, 0) is False
    raised = killed_save.killed_save(Loud, tmp_path, 0)
    assert raised == {"type_name": "LookupError", "message": "no step 5", "line": ""}


def test_a_save_that_never_ends_is_stopped(tmp_path, monkeypatch):
    class Sleeps(Checkpoints):
        def save(self, step):
            time.sleep(600)

    monkeypatch.setattr(killed_save, "SECONDS", 0.5)
    assert killed_save.killed_save(Sleeps, tmp_path, 0)["type_name"] == "TimeoutError"


def test_a_class_that_cannot_travel_is_told_so(tmp_path):
    lock = threading.Lock()

    class Locked(Checkpoints):
        def save(self, step):
            with lock:
                super().save(step)

    with pytest.raises(TypeError, match=r"second process: .* inside a method"):
        killed_save.killed_save(Locked, tmp_path, 0)
    assert "second process" in check_checkpoints.result(Locked).message


def test_where_the_kernel_cannot_the_check_says_that_it_tests_less(monkeypatch):
    monkeypatch.setattr(killed_save, "HOW", killed_save.BY_ITSELF)
    with pytest.warns(UserWarning, match="is not cut"):
        shown = check_checkpoints.run(Checkpoints, 0)
    assert shown["killed"] is True
    check_checkpoints.judge(shown, 0)


def test_this_process_keeps_its_own_limits_and_random_numbers(tmp_path):
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    check_checkpoints.run(Checkpoints, 0)
    assert (resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)) == before
    assert torch.equal(torch.get_rng_state(), state)


def test_a_learner_has_what_takes_a_class_to_another_process():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert any(one.startswith("cloudpickle") for one in project["dependencies"])


@pytest.mark.parametrize("step", [killed_save.FIRST, killed_save.SECOND, killed_save.AGAIN])
def test_a_run_has_drawn_numbers_since_its_seed(step):
    with torch.random.fork_rng(devices=[]):
        parts = small_run.fresh(0)
        small_run.put(parts, step, 0)
        state = small_run.state_of(parts)[small_run.GENERATOR]
        torch.manual_seed(torch.initial_seed())
        assert (
            small_run.state_of(parts)[small_run.GENERATOR]
            == small_run.generator_at(0, step)
            != state
        )
