"""The doctor: will the course run on this machine, and what can its device compute with?

It reads versions and asks the machine, and gives each finding with what was wanted and how to fix
it. It needs the standard library alone, because torch may be what is missing, or Jinja2; so its
page is no template.
"""

import importlib.util
import os
import platform
import re
import shlex
import shutil
import sys
import warnings
from dataclasses import dataclass, replace
from html import escape
from importlib import metadata
from pathlib import Path
from types import ModuleType

from labkit.base.home import MANIFEST, NOTEBOOKS, ManifestError, read_manifest
from labkit.devices.probe import look, processor
from labkit.devices.rules import TELLING_FLAGS, Description, Device, device_of, in_gib

_DISTRIBUTION = "mixed-precision-labs"
_MODULES = {"markdown-it-py": "markdown_it"}  # packages that are imported by another name
_REQUIREMENTS = NOTEBOOKS.parent / "requirements.txt"  # in a checkout; a wheel carries none
_DRIVER = "Update the device's driver; the labs run without the device"

_FINDINGS_HEAD = ("status", "name", "found", "wanted")
_DTYPES_HEAD = ("format", "storable", "computable", "accelerated", "evidence")
_STYLE = Path(__file__).with_name("panel.css")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing looked at: status is "ok", "note" (the course runs) or "problem" (it does not)."""

    name: str
    found: str
    wanted: str = ""
    status: str = "ok"
    mend: str = ""

    def words(self) -> tuple[str, str, str]:
        """What a table says of it, beside its status."""
        return self.name, self.found, self.wanted

    def unless(self, fine: bool, status: str, mend: str) -> "Finding":
        """This finding where all is fine, else with that status and what mends it."""
        return self if fine else replace(self, status=status, mend=mend)


@dataclass(frozen=True, kw_only=True, repr=False)
class Report:
    """All findings; a notebook displays them as tables, a terminal as text."""

    findings: tuple[Finding, ...]
    devices: tuple[Device, ...]

    @property
    def runs(self) -> bool:
        """Whether the course will run: there is no problem."""
        return not any(finding.status == "problem" for finding in self.findings)

    def __repr__(self) -> str:
        rows = [(one.status, *one.words()) for one in self.findings]
        lines = [self._verdict(), "", *aligned([_FINDINGS_HEAD, *rows])]
        if mends := self._mends():
            lines += ["", "To mend", *(f"- {mend} ({', '.join(of)})" for mend, of in mends.items())]
        for device in self.devices:
            lines += ["", f"Number formats on {device.name} ({device.kind})"]
            lines += aligned([_DTYPES_HEAD, *_dtype_rows(device)])
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [f"<p>{self._verdict()}</p>"]
        if mends := self._mends():
            rows = [(escape(mend), escape(", ".join(of))) for mend, of in mends.items()]
            parts.append(_table("To mend", ("how", "what"), rows))
        for device in self.devices:
            rows = [tuple(escape(cell) for cell in row) for row in _dtype_rows(device)]
            caption = f"Number formats on {escape(f'{device.name} ({device.kind})')}"
            parts.append(_table(caption, _DTYPES_HEAD, rows))
        rows = [
            (f'<span class="{one.status}">{one.status}</span>', *map(escape, one.words()))
            for one in self.findings
        ]
        everything = _table("This machine", _FINDINGS_HEAD, rows)
        summary = f"<summary>All {len(rows)} findings</summary>"
        parts.append(f"<details{'' if self.runs else ' open'}>{summary}{everything}</details>")
        style = f"<style>\n{_STYLE.read_text(encoding='utf-8')}</style>"
        return f'{style}\n<div class="labkit-panel labkit-doctor">{"".join(parts)}</div>'

    def _mends(self) -> dict[str, list[str]]:
        """What to do, and for which findings: one command often mends many."""
        mends: dict[str, list[str]] = {}
        for finding in self.findings:
            if finding.mend:
                mends.setdefault(finding.mend, []).append(finding.name)
        return mends

    def _verdict(self) -> str:
        if self.runs:
            return "The course will run on this machine."
        problems = sum(finding.status == "problem" for finding in self.findings)
        return f"The course will not run yet: {problems} problem{'s' * (problems > 1)} to mend."


def examine() -> Report:
    """Look at the versions, the machine, the labs and the log, and try each dtype.

    Imports torch where it is installed, and tries to write to the learner's log (nothing stays).
    Dtypes are tried in a process of their own: what crashes there is a finding.
    """
    torch, findings = _torch()
    found = look() if torch else None
    devices = found.devices if found else ()
    return Report(
        findings=(
            *_versions(),
            *findings,
            *_jupyter(),
            _labs(),
            _log(),
            *_machine(),
            *_int8_products(torch),
            _accelerator(torch, devices),
            *(
                Finding(name="devices", found=trouble, status="note", mend=_DRIVER)
                for trouble in (found.troubles if found else ())
            ),
        ),
        # Cards of one kind say the same.
        devices=tuple({device.name: device_of(device) for device in devices}.values()),
    )


# Versions


def _versions() -> list[Finding]:
    """Python and every package that the course asks for, against what it asks for."""
    minimums, python = {}, "3.11"
    findings = []
    try:
        asked = metadata.requires(_DISTRIBUTION) or []
        minimums = dict(_minimum(line) for line in asked if "extra ==" not in line)
        python = metadata.metadata(_DISTRIBUTION)["Requires-Python"].removeprefix(">=")
    except metadata.PackageNotFoundError:
        findings.append(
            Finding(name="labkit", found="not installed", status="problem", mend=_install())
        )
    found = platform.python_version()
    ours = Finding(name="Python", found=found, wanted=f">={python}")
    new_enough = _numbers(found) >= _numbers(python)
    findings.insert(0, ours.unless(new_enough, "problem", f"Install Python {python} or newer"))
    pins = _pins()
    for name in sorted({*minimums, *pins}):
        # Only in requirements.txt: it tests the notebooks, which run without it.
        needed = name in minimums or not minimums
        findings.append(_package(name, minimums.get(name, ""), pins.get(name, ""), needed=needed))
    return findings


def _package(name: str, minimum: str, pin: str, *, needed: bool) -> Finding:
    asked = [f">={minimum}"] if minimum else []
    asked += [f"labs ran with {pin}"] if pin else []
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        found, status = "missing", "problem" if needed else "note"
    else:
        module = _MODULES.get(name, name.replace("-", "_"))
        if importlib.util.find_spec(module) is None:
            found, status = f"{found}, but cannot be imported", "problem" if needed else "note"
        elif minimum and _numbers(found) < _numbers(minimum):
            status = "problem"
        else:
            status = "note" if pin and found.partition("+")[0] != pin else "ok"
    mend = "" if status == "ok" else _install(name)
    return Finding(name=name, found=found, wanted=", ".join(asked), status=status, mend=mend)


def _minimum(requirement: str) -> tuple[str, str]:
    """Name and lowest version of a line such as ``torch>=2.13``."""
    name = re.match(r"[\w.-]+", requirement).group()
    lowest = re.search(r">=\s*([\d.]+)", requirement)
    return name, lowest.group(1) if lowest else ""


def _pins() -> dict[str, str]:
    if not _REQUIREMENTS.is_file():
        return {}
    text = _REQUIREMENTS.read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE))


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a release: 2.13.0+cpu gives (2, 13, 0), in which 2.9 < 2.13."""
    return tuple(int(part) for part in re.match(r"[\d.]*", version).group().split(".") if part)


def _install(package: str = _DISTRIBUTION) -> str:
    if _REQUIREMENTS.is_file():
        return f"pip install -r {shlex.quote(str(_REQUIREMENTS))}"
    return f"pip install --upgrade {package}"


# Torch, Jupyter, the labs, the log


def _torch() -> tuple[ModuleType | None, list[Finding]]:
    """Torch, or a finding that says why it cannot be imported."""
    if importlib.util.find_spec("torch") is None:
        return None, []  # its missing version is told already
    try:
        with warnings.catch_warnings(action="ignore"):
            import torch
    except Exception as error:  # a broken installation fails with OSError, RuntimeError and others
        why = _first_line(error)
        return None, [
            Finding(name="import torch", found=why, status="problem", mend=_install("torch"))
        ]
    return torch, []


def _jupyter() -> list[Finding]:
    findings = []
    for name, part in (
        ("ipykernel", "the kernel that runs the cells"),
        ("jupyterlab_widgets", "the part of JupyterLab that shows widgets"),
    ):
        there = importlib.util.find_spec(name) is not None
        found = Finding(
            name=name, found=metadata.version(name) if there else "missing", wanted=part
        )
        findings.append(found.unless(there, "problem", _install("jupyterlab ipywidgets")))
    # A `jupyter lab` of another environment starts well and then finds neither labkit nor widgets.
    command, ours = _server() or shutil.which("jupyter-lab"), Path(sys.prefix).resolve()
    at_home = command is not None and ours in Path(command).absolute().parent.resolve().parents
    found = Finding(name="jupyter lab", found=command or "not on PATH", wanted=f"in {ours}")
    mend = f"Start JupyterLab as `{sys.executable} -m jupyterlab`"
    return [*findings, found.unless(at_home, "note", mend)]


def _server() -> str | None:
    """The Python of the Jupyter server that started this kernel; None outside of a kernel."""
    try:
        import psutil  # comes with ipykernel

        return psutil.Process(int(os.environ["JPY_PARENT_PID"])).cmdline()[0]
    except (ImportError, KeyError, ValueError, IndexError, OSError):
        return None
    except psutil.Error:
        return None


def _labs() -> Finding:
    try:
        labs = [entry.lab for entry in read_manifest(NOTEBOOKS).labs]
        absent = [lab for lab in labs if not (NOTEBOOKS / f"{lab}.ipynb").is_file()]
        found = f"missing: {', '.join(absent)}" if absent else f"{len(labs)} in {NOTEBOOKS}"
        status = "problem" if absent else "ok"
    except ManifestError as error:
        found, status = f"{MANIFEST} {error.why}", "problem"
    from_git = f"git checkout {shlex.quote(str(NOTEBOOKS))}"
    restore = from_git if _REQUIREMENTS.is_file() else _install()
    return Finding(name="labs", found=found).unless(status == "ok", status, restore)


def _log() -> Finding:
    """The learner's log: the labs run without it, so the worst is a note."""
    name = "progress log"
    try:
        from labkit.base import progress
    except ImportError as error:
        return Finding(name=name, found=_first_line(error), status="note", mend=_install())
    if progress.is_off():
        mend = "Unset LABKIT_PROGRESS to keep your progress"
        return Finding(name=name, found="off (LABKIT_PROGRESS=off)", status="note", mend=mend)
    if problem := progress.why_not_writable():
        return Finding(name=name, found="cannot be written", status="note", mend=problem)
    return Finding(name=name, found=str(progress.path()))


# The machine


def _machine() -> list[Finding]:
    cpu = processor()
    if cpu.features is None:
        said = "unknown"
    else:
        said = ", ".join(sorted(cpu.features & TELLING_FLAGS)) or "none listed"
    return [
        Finding(name="system", found=f"{platform.system()} {platform.release()}"),
        Finding(name="processor", found=cpu.name),
        Finding(name="16- and 8-bit features", found=said),
        Finding(name="cores", found=str(_cores())),
        Finding(name="memory", found=_gib(cpu.memory)),
    ]


def _int8_products(torch: ModuleType | None) -> list[Finding]:
    """Whether lab 09's fast integer matmul is exact here; the lab does without it."""
    if torch is None:
        return []
    from labkit.devices.int8_products import int8_products_are_exact  # it imports torch

    exact = int8_products_are_exact()
    found = "exact" if exact else "saturates (a processor without VNNI)"
    mend = "Nothing to install: labkit adds int8 products in int32 here, as lab 09 does"
    finding = Finding(name="int8 matmul", found=found, wanted="torch._int_mm exact")
    return [finding.unless(exact, "note", mend)]


def _cores() -> int | str:
    # A hub often lends a process fewer cores than the machine has.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or "unknown"


def _accelerator(torch: ModuleType | None, devices: tuple[Description, ...]) -> Finding:
    cards = [f"{device.name}, {_gib(device.memory)}" for device in devices if device.kind != "cpu"]
    if torch is None:
        found = "unknown: only torch can tell"
    elif not cards:
        built = torch.version.cuda and f" (torch is built for CUDA {torch.version.cuda})"
        found = f"none that torch sees{built or ''}"
    else:
        found = "; ".join(cards)
    return Finding(name="accelerator", found=found)


# Words and tables


def _dtype_rows(device: Device) -> list[tuple[str, ...]]:
    rows = []
    for dtype, support in device.dtypes.items():
        computable = support.computable
        # What was tried is named: "scaled matmul" is less than "add, matmul".
        tried = computable.why if computable.evidence == "probe" and computable.answer else ""
        rows.append(
            (
                dtype,
                support.storable.word,
                tried or computable.word,
                support.accelerated.word,
                support.accelerated.why,
            )
        )
    return rows


def _gib(memory: int | None) -> str:
    return in_gib(memory) if memory else "unknown"


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows of a table, the head among them, as lines whose columns stand below one another."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _table(caption: str, headers: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table whose cells are HTML."""
    head = "".join(f'<th scope="col">{header}</th>' for header in headers)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<table class="labkit-table"><caption>{caption}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )
