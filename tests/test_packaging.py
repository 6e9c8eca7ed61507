"""What a user installs: pinned, the same in every file, and whole outside a checkout."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Written in pieces: this file is searched too.
REGISTRIES = [
    ".".join(parts)
    for parts in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("anaconda", "org"),
        ("anaconda", "com"),
        ("npmjs", "org"),
        ("npmjs", "com"),
    ]
]


def pins() -> list[tuple[Requirement, str]]:
    """Each requirement with its comment; the last line, which installs labkit, is not one."""
    lines = [line for line in REQUIREMENTS if line.strip() and not line.startswith("#")]
    assert lines[-1] == "-e ."
    parts = [line.partition("#") for line in lines[:-1]]
    return [(Requirement(pin.strip()), reason.strip()) for pin, _, reason in parts]


def test_every_requirement_is_pinned_and_has_a_reason():
    assert pins()
    for requirement, reason in pins():
        assert re.fullmatch(r"==\d+(\.\d+)+", str(requirement.specifier)), requirement
        assert len(reason.split()) >= 1, f"{requirement} has no `# reason`"


def test_pins_satisfy_the_packages_own_ranges():
    ranges = {r.name: r.specifier for r in map(Requirement, PROJECT["dependencies"])}
    pinned = {r.name: str(r.specifier).removeprefix("==") for r, _ in pins()}
    missing = set(ranges) - set(pinned)
    assert not missing, f"pyproject.toml depends on {missing}, requirements.txt does not pin it"
    for name, version in pinned.items():
        # nbval comes with the dev extra; learners get it to prove their notebooks.
        assert name in ranges or name == "nbval", f"{name} is pinned but labkit does not need it"
        assert name not in ranges or ranges[name].contains(version), f"{name}=={version}"


def test_extras_do_not_contradict_the_pins():
    pinned = {r.name: str(r.specifier).removeprefix("==") for r, _ in pins()}
    for extra in PROJECT["optional-dependencies"].values():
        for requirement in map(Requirement, extra):
            if requirement.name in pinned:
                assert requirement.specifier.contains(pinned[requirement.name]), requirement


def test_environment_yml_holds_python_pip_and_the_requirements():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert environment.keys() == {"name", "channels", "dependencies"}
    assert environment["name"] == PROJECT["name"]
    assert environment["channels"] == ["conda-forge"]
    python, *rest = environment["dependencies"]
    assert rest == ["pip", {"pip": ["-r requirements.txt"]}]
    name, version = python.split("=")
    assert name == "python" and SpecifierSet(PROJECT["requires-python"]).contains(version)


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def test_no_tracked_file_names_a_registry():
    files = [path for path in tracked() if path.is_file()]
    assert ROOT / "pyproject.toml" in files
    for path in files:
        content = path.read_bytes().lower()
        for host in REGISTRIES:
            assert host.encode() not in content, f"{path.relative_to(ROOT)} names {host}"


def test_learners_copies_are_ignored_by_git():
    ignored = subprocess.run(
        [
            "git",
            "-c",
            "safe.directory=*",
            "check-ignore",
            "notebooks/my_labs/02_number_formats.ipynb",
            "my_labs/x.ipynb",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert len(ignored.stdout.splitlines()) == 2


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this checkout, built by pip in an environment of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        str(ROOT),
        "--no-deps",
        "-q",
        "-w",
        str(folder),
    ]
    subprocess.run(command, check=True, timeout=600)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
def test_a_wheel_holds_what_the_course_shows_and_nothing_of_a_learner(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    private = [
        n for n in names if "my_labs/" in n or ".ipynb_checkpoints" in n or n.startswith("tests")
    ]
    assert private == []
    assert "labkit/py.typed" in names  # or a type checker takes every function for untyped
    listed = {str(path.relative_to(ROOT)) for path in tracked() if path.is_file()}
    scripts = {n for n in listed if n.startswith("data/records/")}
    shipped = {
        f"labkit/_shipped/{n}" for n in listed - scripts if n.startswith(("data/", "notebooks/"))
    }
    code = {n for n in listed if n.startswith("labkit/")}
    assert shipped and code and scripts
    assert not any("data/records" in n for n in names)
    assert (shipped | code) - names == set()


OUTSIDE = """
import labkit, labkit.base.home as home, labkit.course.my_labs as my_labs
from labkit.labs.engine.misconceptions import misconceptions
from labkit.course.progress_panel import progress_panel
from labkit.labs.number_formats.widget_format_explorer import FormatExplorer
print(labkit.__file__)
print(home.IN_CHECKOUT, sorted(p.name for p in home.DATA.iterdir()))
print(len(misconceptions()) > 10, len(FormatExplorer().describe()) > 10)
print("<table" in progress_panel()._repr_html_())
print(my_labs.start())
print(my_labs.start().folder)
"""


@pytest.mark.slow
def test_a_wheel_works_outside_the_checkout(wheel, tmp_path):
    site, work = tmp_path / "site", tmp_path / "work"
    work.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    environment = {**os.environ, "PYTHONPATH": str(site), "LABKIT_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", OUTSIDE],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    where, data, works, has_templates, *started = done.stdout.splitlines()
    assert where == str(site / "labkit" / "__init__.py")
    in_checkout, _, names = data.partition(" ")
    assert in_checkout == "False" and names == str(
        sorted(p.name for p in (ROOT / "data").iterdir() if p.name != "records")
    )
    assert (works, has_templates) == ("True True", "True")
    assert started[0] == "Your labs are in my_labs/:"
    assert started[-1] == str(work / "my_labs")
    labs = sorted(p.name for p in (ROOT / "notebooks").glob("*.ipynb"))
    assert sorted(p.name for p in (work / "my_labs").glob("*.ipynb")) == labs
    for name in labs:
        assert (work / "my_labs" / name).read_bytes() == (ROOT / "notebooks" / name).read_bytes()
