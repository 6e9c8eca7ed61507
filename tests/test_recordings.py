"""A recording keeps every bit of its steps, and says where they come from."""

import json
import math

import pytest
import torch

from labkit import recordings
from labkit.__main__ import main
from labkit.recordings import PRECISIONS, RUNS, Recording, load, record, save
from labkit.training import StepRecord

STEPS = (
    StepRecord(0, 0.1 + 0.2, math.inf, 65536.0, True),
    StepRecord(1, math.nan, math.nan, 32768.0, True),
    StepRecord(2, 1e-45, 5e-324, 1.0, False),
)
MADE_UP = Recording(
    "digits-cnn", "fp16", "NVIDIA H200", "2.13.0", "13.0", "2026-11-21T10:00:00+00:00", STEPS
)


def test_what_is_saved_is_loaded_bit_for_bit(tmp_path):
    path = save(MADE_UP, tmp_path / "recordings")
    assert path.name == "digits-cnn_fp16_NVIDIA-H200.json"
    json.loads(path.read_text(), parse_constant=pytest.fail)  # no NaN: other languages read it too
    back = load(path)
    assert repr(back) == repr(MADE_UP)  # NaN is not equal to itself
    assert [type(value) for value in vars(back.steps[0]).values()] == [
        int,
        float,
        float,
        float,
        bool,
    ]
    assert back.source == "recorded on NVIDIA H200, torch 2.13.0, 2026-11-21"
    assert repr(recordings.recordings(tmp_path / "recordings")) == repr([back])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"columns": [], "steps": []}'])
def test_another_file_is_refused_by_name(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"other\.json"):
        load(path)


def test_a_run_here_says_that_it_is_emulated(monkeypatch):
    def short():
        model = torch.nn.Linear(2, 2)
        batch = torch.ones(4, 2), torch.tensor([0, 1, 0, 1])
        return model, [batch], torch.optim.SGD(model.parameters(), lr=0.1), 3

    monkeypatch.setitem(RUNS, "digits-cnn", short)
    done = record("digits-cnn", "fp16", "cpu", progress=False)
    assert (done.device, done.cuda, len(done.steps)) == ("a CPU, emulated", None, 3)
    assert done.steps[0].loss_scale == 65536.0


def test_an_unknown_run_is_refused():
    with pytest.raises(ValueError, match=r"'digits-cnn', 'character-gpt'"):
        record("bert", "fp16")


@pytest.mark.parametrize("run", RUNS)
def test_each_run_has_about_200_steps(run):
    model, loader, optimizer, epochs = RUNS[run]()
    assert 200 <= epochs * len(loader) <= 210
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in model.parameters()}


def test_the_command_records_real_gpus_only(capsys):
    assert main(["record", "--device", "cpu"]) == 2
    assert "only real GPUs are recorded" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_the_command_says_that_there_is_no_gpu(capsys):
    assert main(["record"]) == 1
    assert "CUDA" in capsys.readouterr().err


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_is_named(tmp_path):
    done = record("character-gpt", "bf16", progress=False)
    assert done.device == torch.cuda.get_device_name() and done.cuda == torch.version.cuda
    assert all(math.isfinite(step.loss) for step in done.steps)


def test_what_the_course_ships_can_be_read():
    for shipped in recordings.recordings():
        assert shipped.cuda is not None and shipped.precision in PRECISIONS
