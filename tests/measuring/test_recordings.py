"""A recording keeps every bit of what was measured, and says where it comes from."""

import json
import math
from dataclasses import replace

import pytest
import torch

from labkit.__main__ import main
from labkit.measuring import Measurement, Timing, recordings
from labkit.measuring.recordings import (
    RECORDED,
    RUNS,
    RecordedRun,
    Recording,
    load,
    record_run,
    save,
)
from labkit.training import StepRecord

STEPS = (
    StepRecord(0, 0.1 + 0.2, math.inf, 65536.0, True),
    StepRecord(1, math.nan, math.nan, 32768.0, True),
    StepRecord(2, 1e-45, 5e-324, 1.0, False),
)
TIMINGS = (
    Timing("matmul", "fp16", 64, (0.1, 0.30000000000000004), work=524288.0, again=(0.1, 0.3)),
    Timing("matmul", "fp8", 64, why_not="no fp8 here"),
)
STEP = Timing(
    "training step", "fp32", 0, (1.0, 2.0), 100.0, again=(1.0, 1.8), facts={"loss": math.nan}
)
MADE_UP = Recording(
    device="NVIDIA H200",
    driver="580.1",
    cuda="13.0",
    torch="2.13.0",
    python="3.12.1",
    system="Linux 6.8",
    recorded="2026-11-21T10:00:00+00:00",
    command="labkit record out.json",
    measurements={
        "matmuls": Measurement(
            device="NVIDIA H200", torch="2.13.0", measured="2026-11-21", timings=TIMINGS
        ),
        "steps of digits-cnn": Measurement(
            device="NVIDIA H200",
            torch="2.13.0",
            measured="2026-11-21",
            timings=(STEP,),
            notes=("Energy: not measured.",),
        ),
    },
    runs=(RecordedRun("digits-cnn", "fp16", False, STEPS),),
)


def test_what_is_saved_is_loaded_bit_for_bit(tmp_path):
    path = tmp_path / "recordings" / "h200.json"
    save(MADE_UP, path)
    json.loads(path.read_text(), parse_constant=pytest.fail)  # no NaN: other languages read it too
    back = load(path)
    assert repr(back) == repr(MADE_UP)  # NaN is not equal to itself
    (run,) = back.runs
    types = [type(value) for value in vars(run.steps[0]).values()]
    assert types == [int, float, float, float, bool]
    assert back.source.startswith("recorded on NVIDIA H200, torch 2.13.0, 2026-11-21")
    assert repr(recordings.recordings(tmp_path / "recordings")) == repr([back])


def test_a_bad_control_is_flagged_in_what_is_shown(tmp_path):
    good, bad = (1.0, 1.01, 0.99, 1.0, 1.0, 1.02, 0.98), (1.0, 1.3) * 3 + (1.0,)

    def timed(**again):
        return replace(
            MADE_UP,
            measurements={
                what: replace(measured, timings=(replace(STEP, seconds=(1.0,) * 7, again=times),))
                for (what, measured), times in zip(
                    MADE_UP.measurements.items(), again.values(), strict=True
                )
            },
        )

    sound = timed(matmuls=good, steps=good)
    assert sound.trouble == () and sound.source.endswith("2026-11-21")
    save(timed(matmuls=good, steps=bad), tmp_path / "here.json")
    (said,) = load(tmp_path / "here.json").trouble
    assert said.startswith("steps of digits-cnn: Bad A/A control") and "within 5 %" in said
    assert load(tmp_path / "here.json").source.endswith("with a bad A/A control")
    assert [said.split(":")[0] for said in timed(matmuls=bad, steps=good).trouble] == ["matmuls"]


def test_a_file_with_inf_and_nan_as_python_says_them_is_read(tmp_path):
    path = tmp_path / "old.json"
    save(MADE_UP, path)
    text = path.read_text()
    assert '"Infinity"' in text and '"NaN"' in text
    path.write_text(text.replace('"Infinity"', '"inf"').replace('"NaN"', '"nan"'))
    assert repr(load(path)) == repr(MADE_UP)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content: content.update(colour="red"), "colour"),
        (
            lambda content: content["measurements"]["matmuls"]["timings"][0].pop("what"),
            "matmuls.timings.0.what",
        ),
        (lambda content: content["runs"][0]["steps"][1].pop("skipped"), "steps.1.skipped"),
    ],
)
def test_a_recording_of_other_fields_is_refused_and_the_place_is_named(tmp_path, change, said):
    path = tmp_path / "other.json"
    save(MADE_UP, path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"(?s)other\.json .*{said}"):
        load(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"runs": []}'])
def test_another_file_is_refused_by_name(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"other\.json"):
        load(path)


@pytest.fixture
def short(monkeypatch):
    def make():
        model = torch.nn.Linear(2, 2)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    batch = torch.ones(4, 2), torch.tensor([0, 1, 0, 1])
    for name in RUNS:
        monkeypatch.setitem(RUNS, name, lambda: (make, [batch], 3))


def test_a_run_here_says_that_it_is_emulated(short):
    done = record_run("digits-cnn", "fp16", "cpu", progress=False)
    assert (done.emulated, len(done.steps)) == (True, 3)
    assert done.steps[0].loss_scale == 65536.0


@pytest.mark.parametrize("run", RUNS)
def test_each_run_has_about_200_steps(run):
    make, loader, epochs = RUNS[run]()
    assert 200 <= epochs * len(loader) <= 210
    model, optimizer = make()
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in model.parameters()}


def test_the_command_records_this_machine(short, tmp_path, capsys):
    out = tmp_path / "here.json"
    assert main(["record", "--quick", "--device", "cpu", str(out)]) == 0
    assert "training steps of character-gpt" in capsys.readouterr().out
    done = load(out)
    assert done.command == f"labkit record --quick --device cpu {out}"
    assert (done.cuda, done.driver, done.runs) == (None, None, ())
    assert list(done.measurements) == ["matmuls", *(f"steps of {name}" for name in RUNS)]
    assert done.measurements["matmuls"].timing("fp32", 64).seconds
    steps = done.measurements["steps of digits-cnn"]
    assert [t.dtype for t in steps.timings] == ["fp32", "bf16", "fp16"] and steps.emulated


def test_the_command_says_that_a_control_is_bad(monkeypatch, tmp_path, capsys):
    bad = MADE_UP  # two rounds are too few
    monkeypatch.setattr(recordings, "record_device", lambda device, **settings: bad)
    assert main(["record", "--device", "cpu", str(tmp_path / "x.json")]) == 0
    said = capsys.readouterr().err
    assert "steps of digits-cnn: Bad A/A control" in said and "record again" in said
    assert load(tmp_path / "x.json").trouble == bad.trouble


def test_a_folder_that_is_not_there_is_refused_before_anything_is_measured(tmp_path, capsys):
    assert main(["record", str(tmp_path / "no" / "out.json")]) == 2
    assert main(["record", str(tmp_path)]) == 2
    assert "name a file in a folder that exists" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_the_command_says_that_there_is_no_gpu(tmp_path, capsys):
    assert main(["record", "--quick", "--device", "cuda", str(tmp_path / "x.json")]) == 1
    assert "CUDA" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_trains_in_its_own_units():
    done = record_run("character-gpt", "bf16", "cuda", progress=False)
    assert not done.emulated
    assert all(math.isfinite(step.loss) for step in done.steps)


def test_what_the_course_ships_can_be_read():
    shipped = recordings.recordings()
    for recording in shipped:
        assert recording.measurements["matmuls"].timing("fp32", 1024).rate > 0
        assert all(run.precision in RECORDED for run in recording.runs)
