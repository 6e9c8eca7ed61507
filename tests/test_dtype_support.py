"""What a device does with each format is tried or read, never assumed."""

from types import SimpleNamespace

import pytest
import torch

from labkit import dtype_support as module
from labkit.dtype_support import cpu_features, dtype_support


def test_the_courses_five_dtypes_are_told_in_order():
    names = [row.dtype for row in dtype_support(torch, "cpu")]
    assert names == ["fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2"]


def test_on_the_cpu_all_are_storable_and_the_wide_ones_compute():
    rows = {row.dtype: row for row in dtype_support(torch, "cpu")}
    assert {row.storable for row in rows.values()} == {"yes"}
    for name in ("fp32", "fp16", "bf16"):
        assert rows[name].computable == "add, matmul"
    # torch has no addition for fp8 anywhere; whether it multiplies depends on the processor.
    for name in ("fp8_e4m3", "fp8_e5m2"):
        assert "add" not in rows[name].computable
        assert rows[name].computable


def test_an_operation_that_gives_a_wrong_result_does_not_count():
    class Off(torch.Tensor):
        def __matmul__(self, other):
            return torch.zeros(16, 16)

    ones = torch.ones(16, 16).as_subclass(Off)
    assert module._computable(torch, ones) == "add"


def test_a_device_that_cannot_keep_a_dtype_says_no(monkeypatch):
    def ones(*shape, device):
        raise TypeError("no float64 here")

    monkeypatch.setattr(torch, "ones", ones)
    assert {(row.storable, row.computable) for row in dtype_support(torch, "cpu")} == {("no", "no")}


@pytest.mark.parametrize(
    ("features", "fp16", "bf16", "fp8"),
    [
        (None, "unknown", "unknown", "unknown"),
        ({"avx2", "f16c"}, "no", "no", "no"),  # f16c converts and does not compute
        ({"avx512_bf16"}, "no", "yes", "no"),
        ({"amx_bf16", "avx512_fp16"}, "yes", "yes", "no"),
        ({"asimdhp", "bf16", "f8fma"}, "yes", "yes", "yes"),
        ({"FEAT_FP16"}, "yes", "no", "no"),
    ],
)
def test_a_processor_accelerates_what_it_lists(monkeypatch, features, fp16, bf16, fp8):
    monkeypatch.setattr(module, "cpu_features", lambda: features)
    accelerated = {row.dtype: row.accelerated for row in dtype_support(torch, "cpu")}
    assert accelerated == {
        "fp32": "yes",
        "fp16": fp16,
        "bf16": bf16,
        "fp8_e4m3": fp8,
        "fp8_e5m2": fp8,
    }


def gpu(capability, *, hip=None):
    """As much of torch as is asked about a GPU's features."""
    return SimpleNamespace(
        version=SimpleNamespace(hip=hip),
        cuda=SimpleNamespace(get_device_capability=lambda: capability),
    )


@pytest.mark.parametrize(
    ("capability", "accelerated"),
    [
        ((6, 1), []),
        ((7, 5), ["fp16"]),
        ((8, 6), ["fp16", "bf16"]),
        ((8, 9), ["fp16", "bf16", "fp8_e4m3", "fp8_e5m2"]),
        ((10, 0), ["fp16", "bf16", "fp8_e4m3", "fp8_e5m2"]),
    ],
)
def test_a_gpu_accelerates_what_its_compute_capability_says(capability, accelerated):
    names = ["fp16", "bf16", "fp8_e4m3", "fp8_e5m2"]
    said = {name: module._accelerated(gpu(capability), "cuda", name) for name in names}
    assert [name for name in names if said[name][0] == "yes"] == accelerated
    major, minor = capability
    assert said["bf16"][1].startswith(f"compute capability {major}.{minor};")


@pytest.mark.parametrize(("device", "hip"), [("cuda", "6.4"), ("mps", None), ("xpu", None)])
def test_without_evidence_a_device_is_unknown(device, hip):
    assert module._accelerated(gpu((9, 0), hip=hip), device, "bf16")[0] == "unknown"


@pytest.mark.parametrize(
    ("text", "features"),
    [
        (
            "processor : 0\nflags\t\t: fpu avx512_bf16 amx_tile\n",
            {"fpu", "avx512_bf16", "amx_tile"},
        ),
        ("processor : 0\nFeatures\t: fp asimd asimdhp\n", {"fp", "asimd", "asimdhp"}),
        ("processor : 0\n", None),
        ("", None),
    ],
)
def test_features_are_read_from_cpuinfo(monkeypatch, text, features):
    monkeypatch.setattr(module.sys, "platform", "linux")
    monkeypatch.setattr(module, "cpuinfo", lambda: text)
    assert cpu_features() == features


def test_features_are_read_from_sysctl_on_macos(monkeypatch):
    monkeypatch.setattr(module.sys, "platform", "darwin")
    text = "hw.optional.arm.FEAT_BF16: 1\nhw.optional.arm.FEAT_SME: 0\nhw.optional.floatingpoint: 1"
    monkeypatch.setattr(module, "sysctl", lambda *arguments: text)
    assert cpu_features() == {"FEAT_BF16", "floatingpoint"}
    monkeypatch.setattr(module, "sysctl", lambda *arguments: "")
    assert cpu_features() is None


def test_a_command_that_is_not_there_says_nothing(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert module.sysctl("hw.optional") == ""
