"""Optional libraries: what a message says to install is what pyproject.toml pins."""

import tomllib
from pathlib import Path

import pytest

from labkit.base import home

_FILE = Path(__file__).parents[2] / "pyproject.toml"
PROJECT = tomllib.loads(_FILE.read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize(
    ("library", "extra"),
    [
        ("torchao", "low_bit"),
        ("transformers", "transformers"),
        ("tensorboard", "tracking"),
        ("keras", "frameworks"),
        ("jax", "frameworks"),
        ("optax", "frameworks"),
    ],
)
def test_the_message_names_the_pinned_version(monkeypatch, library, extra):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {library!r}", name=library)

    monkeypatch.setattr(home.importlib, "import_module", missing)
    extras = PROJECT["optional-dependencies"]
    (pin,) = (line for line in extras[extra] if line.split("==")[0] == library)
    assert pin in extras["dev"]
    with pytest.raises(ImportError, match=f"pip install {pin}`"):
        home.import_optional(library)
