"""What this machine's device does with each number format, told by evidence.

This module believes nothing that it has not tried or read. A dtype is stored and computed with; it
is called accelerated only where the device's own list of features, or its compute capability, says
so. Everything else is "unknown".
"""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

_TORCH_NAMES = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}

# Features by which a processor says that it computes in a format: x86 and Arm as in Linux's
# /proc/cpuinfo (arch/x86/include/asm/cpufeatures.h; Documentation/arch/arm64/elf_hwcaps.rst),
# the FEAT names as in `sysctl hw.optional.arm` of macOS.
_CPU_FEATURES = {
    "fp16": ("avx512_fp16", "amx_fp16", "asimdhp", "FEAT_FP16"),
    "bf16": ("avx512_bf16", "amx_bf16", "bf16", "FEAT_BF16"),
    "fp8_e4m3": ("amx_fp8", "f8fma"),
    "fp8_e5m2": ("amx_fp8", "f8fma"),
}

TELLING_FEATURES = frozenset(name for names in _CPU_FEATURES.values() for name in names)

# NVIDIA, CUDA C++ Programming Guide, "Compute Capabilities": Tensor Cores take fp16 from 7.0 on,
# bf16 from 8.0 and both fp8 formats from 8.9.
_CUDA_CAPABILITIES = {"fp16": (7, 0), "bf16": (8, 0), "fp8_e4m3": (8, 9), "fp8_e5m2": (8, 9)}


@dataclass(frozen=True, kw_only=True)
class DtypeSupport:
    """What the device does with a dtype: keep it, compute in it, compute in it by its own units.

    ``storable`` and ``accelerated`` are "yes", "no" or "unknown"; ``computable`` names the
    operations that gave the right result, or is "no".
    """

    dtype: str
    storable: str
    computable: str
    accelerated: str
    evidence: str


def dtype_support(torch: ModuleType, device: str) -> list[DtypeSupport]:
    """Try each of the course's five dtypes on a device ("cpu", "cuda", "mps" ...)."""
    rows = []
    for dtype in _TORCH_NAMES:
        accelerated, evidence = _accelerated(torch, device, dtype)
        ones = _ones(torch, device, dtype)
        rows.append(
            DtypeSupport(
                dtype=dtype,
                storable="no" if ones is None else "yes",
                computable="no" if ones is None else _computable(torch, ones),
                accelerated=accelerated,
                evidence=evidence,
            )
        )
    return rows


def _ones(torch: ModuleType, device: str, dtype: str):
    """A 16 by 16 tensor of ones (the least that fp8 units take), or None if it cannot be kept."""
    try:
        ones = torch.ones(16, 16, device=device).to(getattr(torch, _TORCH_NAMES[dtype]))
        return ones if bool((ones.float() == 1).all()) else None
    except Exception:  # what a device cannot do it says with a TypeError, RuntimeError or others
        return None


def _computable(torch: ModuleType, ones) -> str:
    tries = {
        "add": (lambda: ones + ones, 2),
        "matmul": (lambda: ones @ ones, 16),
        "scaled matmul": (lambda: _scaled_matmul(torch, ones), 16),
    }
    works = [name for name, (compute, result) in tries.items() if _gives(compute, result)]
    return ", ".join(works) or "no"


def _gives(compute: Callable, result: float) -> bool:
    try:
        return bool((compute().float() == result).all())
    except Exception:  # as above
        return False


def _scaled_matmul(torch: ModuleType, ones):
    """The matmul made for fp8: scales beside the operands, the second one column by column."""
    from torch.nn.functional import ScalingType, scaled_mm

    one = torch.ones((), device=ones.device)
    # Of two E5M2 operands CUDA takes none; E5M2 gradients times E4M3 weights is the common case.
    second = torch.ones(16, 16, device=ones.device).to(torch.float8_e4m3fn).t()
    tensorwise = ScalingType.TensorWise
    return scaled_mm(ones, second, one, tensorwise, one, tensorwise, output_dtype=torch.bfloat16)


def _accelerated(torch: ModuleType, device: str, dtype: str) -> tuple[str, str]:
    """Whether the device has units of its own for a dtype, and how we know."""
    if dtype == "fp32":
        return "yes", "every device of torch computes in fp32"
    if device == "cpu":
        names, features = _CPU_FEATURES[dtype], cpu_features()
        if features is None:
            return "unknown", "nothing lists this processor's features"
        if there := [name for name in names if name in features]:
            return "yes", f"the processor lists {', '.join(there)}"
        return "no", f"the processor lists none of {', '.join(names)}"
    if device == "cuda" and torch.version.hip is None:
        has, needs = torch.cuda.get_device_capability(), _CUDA_CAPABILITIES[dtype]
        evidence = "compute capability {}.{}; Tensor Cores take it from {}.{} on"
        return "yes" if has >= needs else "no", evidence.format(*has, *needs)
    return "unknown", f"no evidence is known for {device}"


def cpu_features() -> frozenset[str] | None:
    """The features that the processor lists, or None where nothing lists them."""
    if sys.platform == "darwin":
        names = re.findall(r"^hw\.optional\.(?:\w+\.)?(\w+): 1$", sysctl("hw.optional"), re.M)
    else:
        line = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", cpuinfo(), re.MULTILINE)
        names = line.group(1).split() if line else []
    return frozenset(names) or None


def cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def sysctl(*arguments: str) -> str:
    try:
        command = ["sysctl", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
