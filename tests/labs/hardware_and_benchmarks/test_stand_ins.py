"""What lab 06 puts in the place of a GPU and of a measured profile, against torch."""

import io
import sys

import pytest
import torch

from labkit.devices import AsyncDevice
from labkit.devices.rules import Description, device_of
from labkit.labs.hardware_and_benchmarks.profiles import profiler_log_hidden, written_profile
from labkit.labs.hardware_and_benchmarks.simulated_cuda import simulated_gpu
from labkit.labs.hardware_and_benchmarks.timeline import timeline


@pytest.mark.parametrize(
    "set_tf32",
    [
        lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
        lambda: setattr(torch.backends, "fp32_precision", "tf32"),
        lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
        lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
        lambda: torch.set_float32_matmul_precision("high"),
    ],
    ids=["fp32_precision", "everywhere", "allow_tf32", "cudnn", "set_float32_matmul_precision"],
)
def test_after_a_simulated_gpu_tf32_is_as_before_for_older_code_too(set_tf32):
    def settings():
        backends = torch.backends
        return (
            *(backends.fp32_precision, backends.cuda.matmul.fp32_precision),
            *(backends.cudnn.conv.fp32_precision, backends.mkldnn.matmul.fp32_precision),
            *(backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32),
            torch.get_float32_matmul_precision(),
        )

    before = settings()
    with simulated_gpu("NVIDIA H100 80GB HBM3", (9, 0)):
        set_tf32()
    assert settings() == before


@pytest.mark.parametrize(
    ("name", "capability"), [("Tesla T4", (7, 5)), ("NVIDIA A100-SXM4-40GB", (8, 0))]
)
def test_a_simulated_gpu_answers_torch_s_questions_as_labkit_s_rules_do(name, capability):
    before = torch.cuda.is_available(), torch.backends.cuda.matmul.fp32_precision
    written = ".".join(map(str, capability))
    bf16 = device_of(Description(name=name, kind="cuda", capability=written)).dtypes["bf16"]
    with simulated_gpu(name, capability) as matmul_precision:
        assert torch.cuda.is_available() and torch.cuda.device_count() == 1
        assert torch.cuda.get_device_name(0) == name
        assert torch.cuda.get_device_capability() == capability
        assert torch.cuda.is_bf16_supported() is bf16.computable.answer
        said = torch.cuda.is_bf16_supported(including_emulation=False)
        assert said is bf16.accelerated.answer
        torch.set_float32_matmul_precision("high")
        assert matmul_precision() == "tf32"
    assert (torch.cuda.is_available(), torch.backends.cuda.matmul.fp32_precision) == before


def test_a_written_profile_has_torch_s_tables():
    calls = [("aten::linear", 5.0, [("aten::addmm", 100.0, [])]), ("aten::relu", 20.0, [])]
    profile = written_profile(calls * 2)
    assert profile.key_averages().self_cpu_time_total == 250.0
    assert profile.events().self_cpu_time_total == 250.0
    assert "aten::addmm" in profile.key_averages().table(sort_by="self_cpu_time_total")


def test_a_profiler_s_log_is_hidden_and_later_errors_are_not(capfd):
    with profiler_log_hidden(), torch.profiler.profile() as profile:
        torch.ones(3) + 1
    assert capfd.readouterr().err == ""
    assert any(event.key == "aten::add" for event in profile.key_averages())
    sys.stderr.write("heard\n")
    assert capfd.readouterr().err == "heard\n"


def test_a_timeline_says_how_busy_the_device_was():
    gpu = AsyncDevice(launch_seconds=4e-6)
    for _ in range(3):
        gpu.launch("add", seconds=1e-6)
    picture = timeline({"small": gpu.trace}, provenance="Simulated.")
    # The last launch ends at 12 us and its kernel at 13 us.
    assert picture.alt == "small: launches 3, 13.0 us, GPU busy 23%"
    picture.figure.savefig(io.BytesIO())
