"""Look at this machine's devices and try each dtype, in a process of its own.

A trial may crash or hang: a driver that aborts then ends that process and not the learner's kernel.
``python -m labkit.devices.probe`` writes a JSON line before and after each trial, so that whoever
reads them knows what it died of.
"""

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.devices.rules import DTYPES, Description, Tried
from labkit.formats.dtypes import DTYPE_NAMED

if TYPE_CHECKING:
    from torch import Tensor

_COMMAND = (sys.executable, "-m", "labkit.devices.probe")


@dataclass(frozen=True)
class Findings:
    """The devices that were found, and what went wrong with looking."""

    devices: tuple[Description, ...]
    troubles: tuple[str, ...] = ()


def look(*, seconds: float = 120, command: Sequence[str] = _COMMAND) -> Findings:
    """Describe every device and try its dtypes in child processes; nothing is raised.

    A child that dies at a trial is reported at that dtype, and another goes on behind it.

    Args:
        seconds: the time for all of it; what has not been tried by then is reported as such.
        command: what to start; a test passes another.
    """
    deadline = time.monotonic() + seconds
    devices: dict[int, Description] = {}
    troubles: list[str] = []
    skip: list[str] = []
    while True:
        trial = None
        for line in (child := _Child([*command, *skip], deadline)):
            if "device" in line:
                number = line.pop("device")
                features = line.pop("features")
                line["features"] = None if features is None else frozenset(features)
                devices.setdefault(number, Description(**line))
            elif "begin" in line:
                trial = line["begin"]
            elif "end" in line:
                _note(devices, line.pop("end"), Tried(line["storable"], tuple(line["operations"])))
                trial = None
        if child.ending is None:
            break
        if trial is None:  # it died of looking, not of a trial: another would do the same
            troubles.append(f"looking for devices {child.ending}")
            break
        number, _, dtype = trial.partition(":")
        troubles.append(f"trying {dtype} on {devices[int(number)].name} {child.ending}")
        _note(devices, trial, Tried(trouble=f"the trial {child.ending}"))
        skip = [_name(n, dtype) for n, device in devices.items() for dtype in device.tried]
        if time.monotonic() > deadline:
            break
    if not any(device.kind == "cpu" for device in devices.values()):
        devices[len(devices)] = processor()
    return Findings(tuple(devices.values()), tuple(troubles))


def _name(number: int, dtype: str) -> str:
    return f"{number}:{dtype}"


def _note(devices: dict[int, Description], name: str, tried: Tried) -> None:
    number, _, dtype = name.partition(":")
    device = devices[int(number)]
    devices[int(number)] = replace(device, tried={**device.tried, dtype: tried})


class _Child:
    """The JSON lines of a child process; ``ending`` tells how it ended, None for well."""

    def __init__(self, command: Sequence[str], deadline: float) -> None:
        self.command, self.deadline = command, deadline
        self.ending: str | None = None

    def __iter__(self) -> Iterator[dict]:
        try:
            done = subprocess.run(
                self.command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=max(self.deadline - time.monotonic(), 0.1),
            )
            out, self.ending = done.stdout, _how_it_ended(done)
        except subprocess.TimeoutExpired as late:
            out, self.ending = late.stdout or b"", "did not end in time"
        except OSError as error:
            out, self.ending = b"", f"could not start: {error.strerror}"
        for text in out.decode(errors="replace").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue  # something that a driver printed
            if isinstance(line, dict):
                yield line


def _how_it_ended(done: subprocess.CompletedProcess) -> str | None:
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        return f"ended by signal {-done.returncode}"
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return f"failed: {said[-1] if said else f'exit status {done.returncode}'}"


# The processor, without torch


def processor() -> Description:
    """The processor, as the operating system tells; nothing is tried."""
    return Description(name=_cpu_name(), kind="cpu", memory=_memory(), features=cpu_features())


def cpu_features() -> frozenset[str] | None:
    """The features that the processor lists, or None where nothing lists them."""
    if sys.platform == "darwin":
        names = re.findall(r"^hw\.optional\.(?:\w+\.)?(\w+): 1$", _sysctl("hw.optional"), re.M)
    else:
        line = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
        names = line.group(1).split() if line else []
    return frozenset(names) or None


def _cpu_name() -> str:
    if sys.platform == "darwin":
        return _sysctl("-n", "machdep.cpu.brand_string") or platform.machine()
    said = re.search(r"^model name\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    return said.group(1) if said else platform.processor() or platform.machine() or "unknown"


_CGROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")  # where the kernel would be killed on a hub


def _memory() -> int | None:
    """Bytes that this machine, or the container around us, has."""
    sizes = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if _CGROUP_MEMORY.is_file() and (text := _CGROUP_MEMORY.read_text().strip()).isdigit():
        sizes.append(int(text))
    return min(sizes, default=None)


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _sysctl(*arguments: str) -> str:
    try:
        command = ["sysctl", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


# With torch


def described(device: str) -> Description:
    """What torch tells of a device that is there, "cuda:1" or "cpu"; nothing is tried."""
    import torch

    kind = torch.device(device).type
    if kind == "cuda":
        card = torch.cuda.get_device_properties(device)
        rocm = torch.version.hip is not None
        return Description(
            name=card.name,
            kind="rocm" if rocm else "cuda",
            capability=card.gcnArchName.split(":")[0] if rocm else f"{card.major}.{card.minor}",
            memory=card.total_memory,
        )
    if kind == "xpu":
        gpu = torch.xpu.get_device_properties(device)
        has = {name for name in dir(gpu) if name.startswith("has_") and getattr(gpu, name)}
        memory = gpu.total_memory
        return Description(name=gpu.name, kind=kind, memory=memory, features=frozenset(has))
    if kind == "mps":  # the processor and its GPU are one chip with one memory
        return replace(processor(), kind="mps", features=None)
    return processor()


def scaled_product(x: "Tensor") -> "Callable[[], Tensor]":
    """What multiplies x by its transpose with the matmul made for fp8, a scale of 1 beside each.

    The scales are made now, so that the call is the product alone. The second operand lies column
    by column, as the kernel asks for.
    """
    import torch
    from torch.nn.functional import ScalingType, scaled_mm

    one, by_column = torch.ones((), device=x.device), x.t()
    kind = ScalingType.TensorWise
    return lambda: scaled_mm(x, by_column, one, kind, one, kind, output_dtype=torch.bfloat16)


# In the child


def _devices() -> Iterator[str]:
    """What torch calls each device that it sees; the processor last."""
    import torch

    if torch.cuda.is_available():
        yield from (f"cuda:{i}" for i in range(torch.cuda.device_count()))
    if torch.xpu.is_available():
        yield from (f"xpu:{i}" for i in range(torch.xpu.device_count()))
    if torch.backends.mps.is_available():
        yield "mps"
    yield "cpu"


def _try(device: str, dtype: str) -> Tried:
    """Keep ones of the dtype on the device, then add and multiply them."""
    import torch

    torch_dtype = DTYPE_NAMED[dtype].torch
    try:
        if dtype == "fp4":  # two to a byte, made of bytes: 0x22 is 1.0 twice
            kept = torch.full((16, 8), 0x22, dtype=torch.uint8).to(device).view(torch_dtype)
            return Tried(bool((kept.view(torch.uint8) == 0x22).all()))
        ones = torch.ones(16, 16, device=device).to(torch_dtype)
        storable = bool((ones.float() == 1).all())
    except Exception:  # what a device cannot do it says with a TypeError, RuntimeError or others
        return Tried()
    tries = {
        "add": (lambda: ones + ones, 2),
        "matmul": (lambda: ones @ ones, 16),
        "int8 matmul": (lambda: torch._int_mm(torch.cat([ones, ones]), ones), 16),
        "scaled matmul": (lambda: scaled_product(ones)(), 16),
    }
    if dtype != "fp8":
        del tries["scaled matmul"]
    if dtype != "int8":
        del tries["int8 matmul"]
    works = tuple(name for name, (compute, result) in tries.items() if _gives(compute, result))
    return Tried(storable, works if storable else ())


def _gives(compute: Callable, result: float) -> bool:
    try:
        return bool((compute().float() == result).all())
    except Exception:  # as above
        return False


def _main(skip: Sequence[str]) -> None:
    found = list(_devices())
    for number, description in enumerate(map(described, found)):
        features = description.features
        _write(
            device=number,
            name=description.name,
            kind=description.kind,
            capability=description.capability,
            memory=description.memory,
            features=None if features is None else sorted(features),
        )
    for number, device in enumerate(found):
        for dtype in DTYPES:
            name = _name(number, dtype)
            # TF32 is kept as float32: there is no other thing to try.
            if dtype != "tf32" and name not in skip:
                _write(begin=name)
                tried = _try(device, dtype)
                _write(end=name, storable=tried.storable, operations=tried.operations)


def _write(**line: object) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1:])
