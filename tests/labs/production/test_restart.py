"""Runs of torchrun that are killed and go on, here once and as recorded for five seeds."""

from labkit.labs.production.restart import restart_record, restart_table
from tests.record_scripts import record_script


def test_a_run_whose_process_is_killed_ends_at_the_same_bits(tmp_path):
    script = record_script("record_restart")
    (whole,) = script.restarted(tmp_path / "whole", seeds=(0,))
    (killed,) = script.restarted(tmp_path / "killed", seeds=(0,), kill_at=script.KILLED)
    assert (whole["started_at"], killed["started_at"]) == (0, script.WENT_ON)
    assert killed["sha256"] == whole["sha256"]
    assert whole["weights"].isfinite().all() and whole["weights"].std() > 0.05


def test_what_was_recorded_of_five_seeds():
    runs = restart_record()["runs"]
    assert all([run["seed"] for run in rows] == list(range(5)) for rows in runs.values())
    assert all(
        run["started_at"] == record_script("record_restart").WENT_ON
        for rows in runs.values()
        for run in rows
    )
    (killed,) = (rows for name, rows in runs.items() if "killed" in name)
    assert all(run["same_bits"] for run in killed)
    for name, rows in runs.items():
        for run in rows:
            assert run["same_bits"] == (run["largest"] == 0) == name.startswith("FP16")
            assert run["largest"] < 1e-6
    assert list(restart_table().index) == list(runs)
