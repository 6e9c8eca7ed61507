"""Bundles of widgets: an edit of any of their files is found without Node."""

import json
import shutil
from pathlib import Path

import pytest

from labkit.__main__ import main
from labkit.course import bundle
from labkit.course.bundle import BundleError

MODULES = sorted(p for p in bundle.PACKAGE.rglob("*.js") if p.with_suffix(".py").exists())
SOURCES = ["widget_roofline.js", "widget_roofline.css", "elements.js", "elements.css"]
OUTPUTS = [
    "widget_roofline.bundle.js",
    "widget_roofline.bundle.js.map",
    "widget_roofline.bundle.css",
]


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A package with the pages of one widget, and no Node on the machine."""
    (page,) = (module for module in MODULES if module.name == "widget_roofline.js")
    first = page.with_suffix(".bundle.js").read_text(encoding="utf-8").partition("\n")[0]
    sources = first.partition(" from ")[2].partition(", ")[0].split()
    assert sorted(Path(name).name for name in sources) == sorted(SOURCES)
    folder = tmp_path / "labkit" / page.relative_to(bundle.PACKAGE).parent
    for name in [*sources, *OUTPUTS, "widget_roofline.py"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page.parent / name, folder / name)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "labkit"


def one(package: Path, name: str) -> Path:
    (path,) = package.rglob(name)
    return path


def test_every_bundle_is_current():
    assert len(MODULES) >= 11
    assert bundle.stale_bundles() == []


def test_what_is_current_needs_no_node(package):
    assert bundle.stale_bundles(package) == [] and bundle.bundle(package) == []


@pytest.mark.parametrize("name", [*SOURCES, *OUTPUTS])
def test_an_edit_of_any_file_is_found_and_how_to_mend_it_is_said(package, name):
    path = one(package, name)
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    (said,) = bundle.stale_bundles(package)
    assert "widget_roofline.bundle.js " in said and "python -m labkit build" in said
    with pytest.raises(BundleError, match="install Node"):
        bundle.bundle(package)


@pytest.mark.parametrize("name", [*SOURCES[1:], *OUTPUTS])
def test_a_file_that_is_missing_is_found(package, name):
    one(package, name).unlink()
    assert ["widget_roofline.bundle.js " in said for said in bundle.stale_bundles(package)] == [
        True
    ]


def test_a_bundle_without_a_source_is_found(package):
    one(package, "widget_roofline.js").unlink()
    said = bundle.stale_bundles(package)
    assert len(said) == len(OUTPUTS) and all("git rm " in each for each in said)


def test_another_esbuild_makes_every_bundle_stale(package, monkeypatch):
    monkeypatch.setattr(bundle, "ESBUILD", "esbuild@0.0.1")
    assert len(bundle.stale_bundles(package)) == 1


def test_build_check_says_what_is_stale(monkeypatch, capsys):
    monkeypatch.setattr(bundle, "ESBUILD", "esbuild@0.0.1")
    assert main(["build", "--check"]) == 1
    assert capsys.readouterr().err.count(".bundle.js is not what its sources give") == len(MODULES)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_a_source_map_names_the_modules_by_their_place(module):
    bundled = module.with_suffix(".bundle.js")
    assert bundled.read_text(encoding="utf-8").endswith(
        f"//# sourceMappingURL={bundled.name}.map\n"
    )
    named = json.loads(bundled.with_suffix(".js.map").read_text(encoding="utf-8"))["sources"]
    assert module.name in named and all((module.parent / name).is_file() for name in named)
