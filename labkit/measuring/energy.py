"""The joules that training takes, read from a machine's own counter, or not known.

A name-plate power is no measurement, so nothing here is computed from one.
"""

import re
from collections.abc import Callable
from math import inf
from pathlib import Path

import torch

POWERCAP = Path("/sys/class/powercap")
"""Where Linux keeps RAPL, the energy counters of Intel's and AMD's processors."""


class EnergyCounter:
    """Joules that were used since the counter was made.

    A register of RAPL begins again at its range, after some minutes at full power: ``joules`` sees
    through that if it is called at least once in between.

    Args:
        source: what is counted, in words.
        read: gives the registers, in microjoules.
        ranges: where each register begins again.

    Source: the Linux kernel's Documentation/power/powercap/powercap.rst.
    """

    def __init__(self, source: str, read: Callable[[], list[int]], ranges: list[float]) -> None:
        self.source, self._read, self._ranges = source, read, ranges
        self._last, self._microjoules = read(), 0.0

    def joules(self) -> float:
        """Since the counter was made."""
        now = self._read()
        self._microjoules += sum(
            (after - before) % size
            for before, after, size in zip(self._last, now, self._ranges, strict=True)
        )
        self._last = now
        return self._microjoules / 1e6


def energy_counter(device: torch.device) -> EnergyCounter | None:
    """A counter for the device, or None where there is none that may be read.

    NVML counts from Volta on, and needs the package nvidia-ml-py. RAPL mostly needs root, since its
    fine steps betray what a processor computes (CVE-2020-8694).
    """
    try:
        return _nvml(device) if device.type == "cuda" else _rapl()
    # ImportError, OSError, or an NVMLError, a class that cannot be named without the package.
    except Exception:
        return None


def _nvml(device: torch.device) -> EnergyCounter:
    import pynvml

    pynvml.nvmlInit()
    uuid = torch.cuda.get_device_properties(device).uuid
    handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    millijoules = pynvml.nvmlDeviceGetTotalEnergyConsumption
    return EnergyCounter("NVML, the whole device", lambda: [1000 * millijoules(handle)], [inf])


def _rapl() -> EnergyCounter | None:
    # "psys" counts the packages once more, and "intel-rapl:0:0" is a part of "intel-rapl:0".
    packages = [
        zone
        for zone in sorted(POWERCAP.glob("intel-rapl:*"))
        if re.fullmatch(r"intel-rapl:\d+", zone.name)
        and (zone / "name").read_text().startswith("package")
    ]
    if not packages:
        return None

    def read(name: str) -> list[int]:
        return [int((package / name).read_text()) for package in packages]

    source = "RAPL, the processor packages with all that runs on them"
    ranges = [float(size) for size in read("max_energy_range_uj")]
    return EnergyCounter(source, lambda: read("energy_uj"), ranges)
