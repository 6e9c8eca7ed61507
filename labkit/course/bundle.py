"""One file a widget: esbuild bundles each widget's ES module, and the bundle is committed.

A widget is a Python file with a module of the same name beside it. For ``widget_roofline.js`` there
are also

- ``widget_roofline.bundle.js``, all the JavaScript of the widget, the ``_esm`` of its class;
- ``widget_roofline.bundle.js.map``, its source map;
- ``widget_roofline.bundle.css``, all its style, the ``_css`` of its class.

A module imports the shared elements.js as ``labkit/elements``, wherever both lie, and its own style
as ``./widget_roofline.css``. The first line of ``widget_roofline.bundle.js`` names what it was made
from, with a hash of that and of what came out, so that a stale bundle is found without Node. Only
who edits a widget needs Node, for npx.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ESBUILD = "esbuild@0.28.2"
"""What npx runs; with another version every bundle is stale."""

PACKAGE = Path(__file__).resolve().parents[1]
MEND = "python -m labkit build"
_HASH = ", sha256 "


class BundleError(Exception):
    """A widget that cannot be bundled, and what to do about it."""


def stale_bundles(package: Path = PACKAGE) -> list[str]:
    """Each bundle below ``package`` that is not what its sources give, as a sentence."""
    said = [
        f"{_name(_bundle(module))} is not what its sources give. Mend it with: {MEND}"
        for module in _stale_modules(package)
    ]
    made = {path for module in _modules(package) for path in _outputs(_bundle(module))}
    left = sorted(path for path in package.rglob("*.bundle.*") if path not in made)
    return said + [
        f"{_name(path)} has no source. Mend it with: git rm {_name(path)}" for path in left
    ]


def bundle(package: Path = PACKAGE) -> list[str]:
    """Write the bundles that are stale and return a sentence each; BundleError where it cannot."""
    modules = _stale_modules(package)
    if not modules:
        return []
    npx = shutil.which("npx")
    if npx is None:
        raise BundleError(
            f"{_name(_bundle(modules[0]))} is stale, and npx is not found, which runs {ESBUILD} "
            "to bundle a widget: install Node, or undo the edit of the widget's sources."
        )
    (elements,) = package.rglob("elements.js")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            npx, "--yes", ESBUILD, *(f"./{_relative(module, package)}" for module in modules),
            "--bundle", "--format=esm", "--target=es2023", "--charset=utf8", "--sourcemap",
            "--sources-content=false", "--outdir=.", "--outbase=.",
            "--entry-names=[dir]/[name].bundle",
            f"--alias:labkit/elements=./{_relative(elements, package)}",
            "--banner:js=//", "--banner:css=/* Bundled: edit its sources. */",
            f"--metafile={report}", "--log-level=warning",
        ]  # fmt: skip
        done = subprocess.run(command, cwd=package, capture_output=True, text=True)
        if done.returncode:
            raise BundleError(f"{ESBUILD} failed:\n{done.stderr.strip()}")
        outputs = json.loads(report.read_text(encoding="utf-8"))["outputs"]
    for module in modules:
        _sign(_bundle(module), outputs, package)
    return [f"wrote {_name(_bundle(module))}" for module in modules]


def _modules(package: Path) -> list[Path]:
    return sorted(path for path in package.rglob("*.js") if path.with_suffix(".py").exists())


def _stale_modules(package: Path) -> list[Path]:
    return [module for module in _modules(package) if not _is_current(_bundle(module))]


def _bundle(module: Path) -> Path:
    return module.with_suffix(".bundle.js")


def _outputs(script: Path) -> tuple[Path, Path, Path]:
    return script, script.with_suffix(".js.map"), script.with_suffix(".css")


def _is_current(script: Path) -> bool:
    try:
        first = script.read_text(encoding="utf-8").partition("\n")[0]
        sources = first.partition(" from ")[2].partition(_HASH)[0].split()
        return first == _first_line(script, sources)
    except OSError:  # a source or an output is missing: bundling again mends it
        return False


def _sign(script: Path, outputs: dict, package: Path) -> None:
    """Replace the bundle's first line, which the source map counts, by one with the hash."""
    made = [outputs[_relative(path, package)] for path in _outputs(script) if path.suffix != ".map"]
    read = {package / name for output in made for name in output["inputs"]}
    sources = sorted(_relative(path, script.parent) for path in read)
    rest = script.read_text(encoding="utf-8").partition("\n")[2]
    _without_map(script.with_suffix(".css"))
    text = f"{_first_line(script, sources)}\n{rest}"
    script.write_text(text, encoding="utf-8", newline="\n")


def _without_map(style: Path) -> None:
    # esbuild maps both or none; a bundled style reads like its sources.
    style.with_suffix(".css.map").unlink()
    text = style.read_text(encoding="utf-8").rstrip("\n").rpartition("\n")[0]
    style.write_text(text + "\n", encoding="utf-8", newline="\n")


def _first_line(script: Path, sources: list[str]) -> str:
    texts = [(script.parent / name).read_text(encoding="utf-8") for name in sources]
    made, *others = (path.read_text(encoding="utf-8") for path in _outputs(script))
    hashed = json.dumps([ESBUILD, sources, texts, made.partition("\n")[2], others])
    digest = hashlib.sha256(hashed.encode()).hexdigest()
    return f"// Bundled by `{MEND}` from {' '.join(sources)}{_HASH}{digest}"


def _relative(path: Path, folder: Path) -> str:
    return os.path.relpath(path, folder).replace(os.sep, "/")


def _name(path: Path) -> str:
    """The path as typed from where one stands."""
    return _relative(path, Path.cwd())
