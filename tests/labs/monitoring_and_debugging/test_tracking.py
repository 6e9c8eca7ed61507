"""Metrics are written as TensorBoard's event files and read back, and nothing needs tensorboard."""

import math
import subprocess
import sys

import pytest
import torch

from labkit.labs.monitoring_and_debugging.tracking import read_events, round_trip, write_events
from labkit.measuring import Monitor
from labkit.training import StepRecord


def test_every_value_comes_back_as_float32_at_its_step(tmp_path):
    # More than the 10,000 that TensorBoard's reader keeps by default.
    losses = [(2 * step, 1 / (step + 3)) for step in range(10_500)]
    write_events(tmp_path, {"loss": losses, "scale": [(7, 65536.0)]})
    read = read_events(tmp_path)
    as_float32 = torch.tensor([value for _, value in losses]).tolist()
    steps = [step for step, _ in losses]
    assert read == {
        "loss": tuple(zip(steps, as_float32, strict=True)), "scale": ((7, 65536.0),),
    }  # fmt: skip


def test_what_is_not_finite_survives(tmp_path):
    write_events(tmp_path, {"grad_norm": [(0, math.nan), (1, math.inf), (2, -math.inf)]})
    (nan, *infinite) = read_events(tmp_path)["grad_norm"]
    assert nan[0] == 0 and math.isnan(nan[1])
    assert infinite == [(1, math.inf), (2, -math.inf)]


def test_a_round_trip_needs_no_folder():
    metrics = {"loss": ((0, 2.5), (3, 0.5)), "scale": ((0, 65536.0),)}
    assert round_trip(metrics) == metrics


def test_a_monitor_hands_its_history_over(tmp_path):
    monitor = Monitor()
    for step in range(5):
        monitor.see(StepRecord(step, 0.5**step, 1.0, 1.0, step == 2))
    metrics = {metric: monitor.history(metric) for metric in ("loss", "skipped")}
    write_events(tmp_path, metrics)
    assert read_events(tmp_path) == metrics


def test_a_folder_without_events_is_named(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FileNotFoundError, match=folder.name):
            read_events(folder)


@pytest.mark.parametrize("use", [lambda f: write_events(f, {}), read_events])
def test_without_tensorboard_the_error_says_how_to_install_it(use, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match=r"not installed: .*`pip install tensorboard==2\.21\.0`"):
        use(tmp_path)


def test_writing_and_reading_say_nothing(tmp_path):
    code = (
        "from labkit.labs.monitoring_and_debugging.tracking import read_events, write_events\n"
        f"write_events({str(tmp_path)!r}, {{'loss': [(0, 1.0), (1, float('nan'))]}})\n"
        f"print(len(read_events({str(tmp_path)!r})['loss']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("2\n", "")
