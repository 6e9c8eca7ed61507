"""Looking at the machine: every way in which a trial can end."""

import sys
import textwrap

import pytest
import torch

from labkit.devices import Fact, Tried, detect, device_of, probe
from labkit.devices.probe import cpu_features, look, processor

DEVICE = (
    '{"device": 0, "name": "Broken card", "kind": "cuda", "capability": "7.5", "memory": 1, '
    '"features": null}'
)


@pytest.fixture
def command(tmp_path):
    """A child that behaves as its body says; ``skip`` are its arguments."""

    def write(body):
        path = tmp_path / "child.py"
        header = "import os, signal, sys, time\nskip = sys.argv[1:]\n"
        header += "def say(text): print(text, flush=True)\n"
        path.write_text(header + textwrap.dedent(body))
        return [sys.executable, str(path)]

    return write


def by_name(findings, name):
    return next(device for device in findings.devices if device.name == name)


def test_a_crash_is_reported_at_its_dtype_and_the_others_are_still_tried(command):
    child = command(f"""
        say('{DEVICE}')
        for dtype in ("fp16", "fp8", "int8"):
            if f"0:{{dtype}}" in skip: continue
            say('{{"begin": "0:%s"}}' % dtype)
            if dtype == "fp8": os.kill(os.getpid(), signal.SIGSEGV)
            say('{{"end": "0:%s", "storable": true, "operations": ["add"]}}' % dtype)
    """)
    findings = look(seconds=60, command=child)
    card = device_of(by_name(findings, "Broken card"))
    assert card.dtypes["fp16"].computable.answer is True
    assert card.dtypes["int8"].computable.answer is True
    assert card.dtypes["fp8"].computable.answer is None
    assert "signal 11" in card.dtypes["fp8"].computable.why
    assert findings.troubles == ("trying fp8 on Broken card ended by signal 11",)


def test_a_hang_ends_when_time_is_up(command):
    child = command(f"""
        say('{DEVICE}')
        say('{{"begin": "0:fp16"}}')
        time.sleep(600)
    """)
    findings = look(seconds=2, command=child)
    assert "did not end in time" in by_name(findings, "Broken card").tried["fp16"].trouble


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("sys.exit('no driver')", "failed: no driver"),
        ("os.abort()", "ended by signal 6"),
        ("import no_such_torch", "No module named 'no_such_torch'"),
        ("time.sleep(600)", "did not end in time"),
    ],
)
def test_looking_itself_fails_and_the_processor_is_still_there(command, body, said):
    findings = look(seconds=2, command=command(body))
    assert [device.kind for device in findings.devices] == ["cpu"]
    assert said in findings.troubles[0]


def test_a_command_that_cannot_start_is_reported():
    findings = look(seconds=2, command=["/no/such/python"])
    assert [device.kind for device in findings.devices] == ["cpu"]
    assert "could not start" in findings.troubles[0]


def test_what_a_driver_prints_is_passed_over(command):
    child = command(f"""
        say('WARNING: some driver'); say('[1, 2]'); say('7')
        say('{DEVICE}')
    """)
    findings = look(seconds=60, command=child)
    assert findings.devices[0].name == "Broken card"
    assert findings.troubles == ()


def test_this_machine():
    devices = detect()
    assert devices[-1].kind == "cpu"
    assert devices[-1].name == processor().name
    facts = devices[-1].dtypes
    for dtype in ("fp64", "fp32", "fp16", "bf16"):
        assert facts[dtype].storable == Fact(True, "probe", "kept and read back")
        assert facts[dtype].computable.answer is True
        assert "matmul" in facts[dtype].computable.why
    assert facts["fp8"].storable.answer is True
    assert "add" not in facts["fp8"].computable.why  # torch has no fp8 + fp8
    assert "add" in facts["int8"].computable.why


# The processor


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("processor : 0\nflags\t\t: fpu avx512_bf16 amx_tile\n", "fpu avx512_bf16 amx_tile"),
        ("processor : 0\nFeatures\t: fp asimd asimdhp\n", "fp asimd asimdhp"),
        ("processor : 0\n", ""),
        ("", ""),
    ],
)
def test_features_are_read_from_cpuinfo(monkeypatch, text, features):
    monkeypatch.setattr(probe.sys, "platform", "linux")
    monkeypatch.setattr(probe, "_cpuinfo", lambda: text)
    assert cpu_features() == (frozenset(features.split()) or None)


def test_features_are_read_from_sysctl_on_macos(monkeypatch):
    monkeypatch.setattr(probe.sys, "platform", "darwin")
    text = "hw.optional.arm.FEAT_BF16: 1\nhw.optional.arm.FEAT_SME: 0\nhw.optional.floatingpoint: 1"
    monkeypatch.setattr(probe, "_sysctl", lambda *arguments: text)
    assert cpu_features() == {"FEAT_BF16", "floatingpoint"}
    monkeypatch.setattr(probe, "_sysctl", lambda *arguments: "")
    assert cpu_features() is None


def test_a_command_that_is_not_there_says_nothing(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert probe._sysctl("hw.optional") == ""


def test_a_container_with_less_memory_than_its_machine_counts(monkeypatch, tmp_path):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(probe, "_CGROUP_MEMORY", limit)
    whole = processor().memory
    limit.write_text("max\n")
    assert processor().memory == whole
    limit.write_text(f"{2**30}\n")
    assert processor().memory == 2**30


# One trial


def test_an_operation_that_gives_a_wrong_result_does_not_count(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda self, other: torch.zeros(16, 16))
    assert probe._try("cpu", "fp32") == Tried(storable=True, operations=("add",))


def test_a_device_that_cannot_keep_a_dtype_says_no(monkeypatch):
    def ones(*shape, device):
        raise TypeError("no float64 here")

    monkeypatch.setattr(torch, "ones", ones)
    assert probe._try("cpu", "fp64") == Tried()
