"""The joules that training takes, read from a machine's own counter, or not known.

A name-plate power is no measurement, so nothing here is computed from one.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import torch

POWERCAP = Path("/sys/class/powercap")
"""Where Linux keeps RAPL, the energy counters of Intel's and AMD's processors."""


class RaplCounter:
    """Joules that the processor packages of this machine used since the counter was made.

    Each register counts microjoules and begins again at its range, after some minutes at full
    power: ``joules`` sees through that if it is called at least once in between.

    Source: the Linux kernel's Documentation/power/powercap/powercap.rst.
    """

    source = "RAPL, the processor packages with all that runs on them"

    def __init__(self, packages: Sequence[Path]) -> None:
        self.packages = packages
        self.ranges = [_number(package / "max_energy_range_uj") for package in packages]
        self.last = self._read()
        self.microjoules = 0

    def joules(self) -> float:
        """Since the counter was made."""
        now = self._read()
        for before, after, size in zip(self.last, now, self.ranges, strict=True):
            self.microjoules += after - before if after >= before else after - before + size
        self.last = now
        return self.microjoules / 1e6

    def _read(self) -> list[int]:
        return [_number(package / "energy_uj") for package in self.packages]


class NvmlCounter:
    """Joules that a CUDA device used since its driver was loaded (NVML, from Volta on)."""

    source = "NVML, the whole device"

    def __init__(self, device: torch.device) -> None:
        import pynvml

        pynvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(device).uuid
        self.handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        self.read = pynvml.nvmlDeviceGetTotalEnergyConsumption
        self.joules()

    def joules(self) -> float:
        """Since the driver was loaded."""
        return self.read(self.handle) / 1e3


def energy_counter(device: torch.device) -> RaplCounter | NvmlCounter | None:
    """A counter for the device, or None where there is none that may be read.

    NVML needs the package nvidia-ml-py. RAPL mostly needs root, since its fine steps betray what a
    processor computes (CVE-2020-8694).
    """
    if device.type == "cuda":
        try:
            return NvmlCounter(device)
        # ImportError, or an NVMLError, a class that cannot be named without the package.
        except Exception:
            return None
    try:
        # "psys" counts the packages once more, and "intel-rapl:0:0" is a part of "intel-rapl:0".
        packages = [
            zone
            for zone in sorted(POWERCAP.glob("intel-rapl:*"))
            if re.fullmatch(r"intel-rapl:\d+", zone.name)
            and (zone / "name").read_text().startswith("package")
        ]
        return RaplCounter(packages) if packages else None
    except (OSError, ValueError):
        return None


def _number(path: Path) -> int:
    return int(path.read_text())
