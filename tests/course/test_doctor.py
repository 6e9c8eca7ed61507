"""The doctor: what it finds, what it says, and that nothing missing makes it fail."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import metadata
from pathlib import Path

import pytest

from labkit.base.home import IN_CHECKOUT
from labkit.course import doctor
from labkit.course.doctor import Finding, Report, examine
from labkit.devices import Description, Device, Fact, Support
from labkit.devices.probe import Findings

TOP = Path(doctor.__file__).parents[2]
CPU = Description(name="a processor", kind="cpu")


@pytest.fixture(autouse=True)
def nothing_is_tried(monkeypatch):
    """A trial starts a process and imports torch: tests/devices/test_hardware_probe.py does."""
    monkeypatch.setattr(doctor, "look", lambda: Findings((CPU,)))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)
    return tmp_path / "home"


@pytest.fixture
def labs(tmp_path, monkeypatch):
    """A folder of two labs, as built."""
    folder = tmp_path / "labs"
    folder.mkdir()
    names = ["00_start_here", "02_number_formats"]
    rest = {"title": "", "version": "", "minutes": 1, "optional_minutes": 0, "hardware": ""}
    rest |= {"exercises": [], "predictions": [], "sections": []}
    listed = [{"lab": name, **rest} for name in names]
    folder.joinpath("manifest.json").write_text(json.dumps({"labs": listed}))
    for name in names:
        folder.joinpath(f"{name}.ipynb").write_text("{}")
    monkeypatch.setattr(doctor, "NOTEBOOKS", folder)
    return folder


def found(name, report=None):
    (finding,) = (f for f in (report or examine()).findings if f.name == name)
    return finding


def installed(monkeypatch, name, version):
    """Pretend that a package has that version, or is missing with None."""
    real = metadata.version

    def version_of(asked):
        if asked != name:
            return real(asked)
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", version_of)


def test_the_environment_that_runs_these_tests_runs_the_course(labs):
    report = examine()
    assert [f for f in report.findings if f.status == "problem"] == []
    assert report.runs
    assert str(report).startswith("The course will run on this machine.\n")


@pytest.mark.parametrize("exact, status", [(True, "ok"), (False, "note")])
def test_int8_products_that_saturate_are_a_note(labs, monkeypatch, exact, status):
    function = "labkit.devices.int8_products.int8_products_are_exact"
    monkeypatch.setattr(function, lambda: exact)
    report = examine()
    assert found("int8 matmul", report).status == status
    assert report.runs
    assert ("saturates" in str(report)) == (not exact)


def test_every_required_package_is_looked_at():
    asked = [line for line in metadata.requires("mixed-precision-labs") if "extra ==" not in line]
    names = {re.match(r"[\w-]+", line).group() for line in asked}
    assert names >= {"torch", "jupyterlab", "anywidget", "platformdirs"}
    report = examine()
    for name in names:
        assert found(name, report).found == metadata.version(name)


@pytest.mark.skipif(not IN_CHECKOUT, reason="a wheel carries no requirements.txt")
def test_the_version_the_labs_ran_with_is_the_one_of_requirements():
    pins = re.findall(r"^([\w-]+)==(\S+)", TOP.joinpath("requirements.txt").read_text(), re.M)
    assert dict(pins).keys() >= {"torch", "nbval"}
    report = examine()
    for name, version in pins:
        assert found(name, report).wanted.endswith(f"labs ran with {version}")


@pytest.mark.parametrize(
    ("version", "minimum", "pin", "status"),
    [
        ("2.13.0", "2.13", "2.13.0", "ok"),
        ("2.13.0+cpu", "2.13", "2.13.0", "ok"),
        ("2.13.0+cpu", "2.13", "", "ok"),
        ("2.14.1", "2.13", "2.13.0", "note"),
        ("2.9.1", "2.13", "2.13.0", "problem"),  # 2.9 is older than 2.13
        ("3", "2.13", "", "ok"),
        (None, "2.13", "2.13.0", "problem"),
    ],
)
def test_a_version_is_held_against_the_least_and_the_one_the_labs_ran_with(
    monkeypatch, version, minimum, pin, status
):
    installed(monkeypatch, "torch", version)
    finding = doctor._package("torch", minimum, pin, needed=True)
    assert finding.status == status
    assert finding.found == (version or "missing")
    assert bool(finding.mend) == (status != "ok")


def test_a_package_that_only_tests_the_notebooks_may_be_missing(monkeypatch, labs):
    installed(monkeypatch, "nbval", None)
    report = examine()
    assert found("nbval", report).status == "note"
    assert report.runs


def test_a_package_with_metadata_and_no_files_is_a_problem(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    finding = found("anywidget")
    assert finding.status == "problem"
    assert finding.found.endswith("but cannot be imported")


def test_missing_torch_is_a_finding(monkeypatch, labs):
    installed(monkeypatch, "torch", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    report = examine()
    assert found("torch", report).status == "problem"
    assert found("accelerator", report).found == "unknown: only torch can tell"
    assert report.devices == ()
    assert not report.runs
    assert str(report).startswith("The course will not run yet: 1 problem to mend.\n")
    assert "Number formats" not in str(report)


def test_a_torch_that_fails_on_import_is_a_finding(tmp_path, home):
    broken = tmp_path / "broken"
    broken.mkdir()
    broken.joinpath("torch.py").write_text("raise OSError('libcudart.so: not there\\nmore')")
    code = "from labkit.course.doctor import examine; print(examine())"
    out = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(broken)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(r"^problem +import torch +OSError: libcudart.so: not there", out.stdout, re.M)
    assert "more" not in out.stdout.split("To mend")[0].replace("or more", "")


def test_without_any_package_the_doctor_still_speaks(home):
    # -S: the packages of this environment are out of reach, as on a new machine.
    out = subprocess.run(
        [sys.executable, "-S", "-m", "labkit", "doctor"], capture_output=True, text=True, cwd=TOP
    )
    assert out.returncode == 1
    assert out.stderr == ""
    for name in ("labkit", "torch", "jupyterlab", "ipykernel", "platformdirs"):
        assert re.search(rf"^problem +{name} ", out.stdout, re.MULTILINE), name
    assert "pip install -r" in out.stdout


def test_a_missing_lab_is_a_problem(labs):
    assert found("labs").found == f"2 in {labs}"
    labs.joinpath("02_number_formats.ipynb").unlink()
    report = examine()
    assert found("labs", report) == Finding(
        name="labs",
        found="missing: 02_number_formats",
        status="problem",
        mend=found("labs", report).mend,
    )
    assert found("labs", report).mend
    assert not report.runs


@pytest.mark.parametrize(
    ("text", "words"), [(None, "is missing"), ("{", "cannot be read"), ("{}", "cannot be read")]
)
def test_a_missing_or_unreadable_manifest_is_a_problem(labs, text, words):
    manifest = labs / "manifest.json"
    manifest.unlink() if text is None else manifest.write_text(text)
    finding = found("labs")
    assert finding.status == "problem"
    assert words in finding.found


def test_the_log_is_tried_and_nothing_stays_in_it(home):
    from labkit.base import progress

    assert found("progress log") == Finding(name="progress log", found=str(progress.path()))
    assert progress.events() == []


def test_a_log_that_cannot_be_written_is_a_note(home, labs):
    home.write_text("a file where the folder should be")
    report = examine()
    finding = found("progress log", report)
    assert (finding.status, finding.found) == ("note", "cannot be written")
    assert "LABKIT_HOME" in finding.mend
    assert report.runs


def test_a_log_that_is_off_is_a_note_and_not_touched(home, monkeypatch):
    monkeypatch.setenv("LABKIT_PROGRESS", "off")
    assert found("progress log").status == "note"
    assert not home.exists()


def test_jupyterlab_of_another_environment_is_a_note(monkeypatch, tmp_path):
    other = tmp_path / "bin" / "jupyter-lab"
    monkeypatch.setattr(doctor.shutil, "which", lambda name: str(other))
    finding = found("jupyter lab")
    assert (finding.status, finding.found) == ("note", str(other))
    assert finding.mend == f"Start JupyterLab as `{sys.executable} -m jupyterlab`"


def test_in_a_kernel_the_server_that_runs_counts_and_not_what_would_be_started(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    monkeypatch.setenv("JPY_PARENT_PID", str(os.getpid()))  # as if this Python were the server
    assert (found("jupyter lab").status, found("jupyter lab").mend) == ("ok", "")
    monkeypatch.setenv("JPY_PARENT_PID", "no number")
    assert found("jupyter lab").found == "not on PATH"


def test_a_crash_of_a_trial_is_a_note(monkeypatch):
    monkeypatch.setattr(
        doctor, "look", lambda: Findings((CPU,), ("trying fp8 ended by signal 11",))
    )
    finding = found("devices")
    assert (finding.status, finding.found) == ("note", "trying fp8 ended by signal 11")


def test_cards_of_one_kind_are_shown_once(monkeypatch):
    card = Description(name="NVIDIA H100", kind="cuda", capability="9.0", memory=80 * 2**30)
    monkeypatch.setattr(doctor, "look", lambda: Findings((card, card, CPU)))
    report = examine()
    assert [device.name for device in report.devices] == ["NVIDIA H100", "a processor"]
    assert found("accelerator", report).found == "NVIDIA H100, 80.0 GiB; NVIDIA H100, 80.0 GiB"
    assert "Number formats on NVIDIA H100 (cuda)" in str(report)


# What it shows


class Cells(HTMLParser):
    """The text of a page's table cells, and its tags."""

    def __init__(self, page):
        super().__init__()
        self.text, self.tags = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


YES = Fact(True, "probe", "kept and read back")
UNKNOWN = Fact(None, "unknown", "nothing lists this processor's flags")
REPORT = Report(
    findings=(
        Finding(name="Python", found="3.12.1", wanted=">=3.11"),
        Finding(name="torch", found="missing", wanted=">=2.13", status="problem", mend="pip it"),
        Finding(name="numpy", found="<old>", wanted=">=2", status="problem", mend="pip it"),
    ),
    devices=(
        Device(
            name="<cpu>",
            kind="cpu",
            capability="",
            memory=None,
            matrix_units=UNKNOWN,
            dtypes={"bf16": Support(YES, Fact(True, "probe", "add, matmul"), UNKNOWN)},
        ),
    ),
)


def test_the_text_is_aligned_and_gathers_what_one_command_mends():
    assert str(REPORT).splitlines() == [
        "The course will not run yet: 2 problems to mend.",
        "",
        "status   name    found    wanted",
        "ok       Python  3.12.1   >=3.11",
        "problem  torch   missing  >=2.13",
        "problem  numpy   <old>    >=2",
        "",
        "To mend",
        "- pip it (torch, numpy)",
        "",
        "Number formats on <cpu> (cpu)",
        "format  storable  computable   accelerated  evidence",
        "bf16    yes       add, matmul  unknown      nothing lists this processor's flags",
    ]


def test_the_page_says_what_the_text_says():
    page = REPORT._repr_html_()
    cells = Cells(page)
    assert "<old>" in cells.text, "escaped"
    for finding in REPORT.findings:
        assert {finding.name, finding.found, finding.wanted, finding.status} <= set(cells.text)
    assert {"pip it", "torch, numpy", "Number formats on <cpu> (cpu)", "unknown"} <= set(cells.text)
    headers = [attributes for tag, attributes in cells.tags if tag == "th"]
    assert headers
    assert all(attributes.get("scope") in ("col", "row") for attributes in headers)


def test_the_page_folds_the_findings_away_only_where_all_is_well():
    assert "<details open><summary>All 3 findings</summary>" in REPORT._repr_html_()
    well = dataclasses.replace(REPORT, findings=REPORT.findings[:1])
    assert "<details><summary>All 1 findings</summary>" in well._repr_html_()


def test_a_report_is_data():
    (device,) = json.loads(json.dumps(dataclasses.asdict(REPORT)))["devices"]
    assert device["dtypes"]["bf16"]["storable"]["answer"] is True
    with pytest.raises(dataclasses.FrozenInstanceError):
        REPORT.devices = ()
