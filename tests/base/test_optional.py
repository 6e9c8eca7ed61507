"""Optional libraries: what a message says to install is what pyproject.toml pins."""

import tomllib
from pathlib import Path

import pytest

from labkit.base import optional
from labkit.base.tensorboard import import_tensorboard
from labkit.base.torchao import import_torchao
from labkit.base.transformers import import_transformers

_FILE = Path(__file__).parents[2] / "pyproject.toml"
PROJECT = tomllib.loads(_FILE.read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize(
    ("library", "extra", "load"),
    [
        ("torchao", "low_bit", import_torchao),
        ("transformers", "transformers", import_transformers),
        ("tensorboard", "tracking", import_tensorboard),
    ],
)
def test_the_message_names_the_pinned_version(monkeypatch, library, extra, load):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {library!r}", name=library)

    monkeypatch.setattr(optional.importlib, "import_module", missing)
    extras = PROJECT["optional-dependencies"]
    (pin,) = (line for line in extras[extra] if line.split("==")[0] == library)
    assert pin in extras["dev"]
    with pytest.raises(ImportError, match=f"pip install {pin}`"):
        load()
