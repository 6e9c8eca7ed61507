"""Runs of torchrun that are killed and go on, here once and as recorded for five seeds."""

import shutil

import pytest
import torch

from labkit.labs.production.restart import EVERY, STEPS, restart_record, restart_table, restarted


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    (whole,) = restarted(folder)
    return folder, whole


def test_a_run_whose_process_is_killed_ends_at_the_same_bits(undisturbed, tmp_path):
    _, whole = undisturbed
    (killed,) = restarted(tmp_path, kill_at=13)
    assert whole.started_at == 0 and killed.started_at == 10 and killed.restarts >= 1
    assert killed.sha256 == whole.sha256 and torch.equal(killed.weights, whole.weights)
    assert killed.scale == whole.scale > 1
    assert whole.weights.isfinite().all() and whole.weights.std() > 0.05


def test_a_checkpoint_of_two_processes_goes_on_with_one(undisturbed, tmp_path):
    folder, whole = undisturbed
    for step in (5, 10):
        shutil.copytree(folder / "0" / str(step), tmp_path / "0" / str(step))
    # Newer, but without the metadata that the last rank writes last.
    (tmp_path / "0" / "15").mkdir()
    (alone,) = restarted(tmp_path, processes=1)
    assert alone.started_at == 10
    # The same samples, whose gradients are summed in another order.
    assert (alone.weights - whole.weights).abs().max() < 1e-3


def test_what_was_recorded_of_five_seeds():
    runs = restart_record()["runs"]
    assert all([run["seed"] for run in rows] == list(range(5)) for rows in runs.values())
    assert all(run["started_at"] == STEPS - 2 * EVERY for rows in runs.values() for run in rows)
    (killed,) = (rows for name, rows in runs.items() if "killed" in name)
    assert all(run["same_bits"] for run in killed)
    for name, rows in runs.items():
        for run in rows:
            assert run["same_bits"] == (run["largest"] == 0) == name.startswith("FP16")
            assert run["largest"] < 1e-6
    assert list(restart_table().index) == list(runs)
