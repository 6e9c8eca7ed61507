"""torchao comes in silence, and where it is missing a sentence says what to do."""

import logging
import os
import subprocess
import sys
import warnings

import pytest

from labkit.base.home import import_optional

MX = "torchao.prototype.mx_formats.mx_tensor"


def python(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_import_writes_nothing_and_leaves_nothing_behind(seeds):
    if seeds > 1:
        # The control: torchao's own import warns, or this test would hold without the function.
        assert python(f"import {MX}").stderr
    done = python(
        "import logging, os, torch, warnings\n"
        "from labkit.base.home import import_optional\n"
        f"to_mx = import_optional({MX!r}).to_mx\n"
        "print(to_mx(torch.ones(1, 32), torch.float8_e4m3fn, 32)[0].float().item())\n"
        "assert 'TORCHAO_FORCE_SKIP_LOADING_SO_FILES' not in os.environ\n"
        "logging.getLogger('torchao').warning('heard'), warnings.warn('seen')\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0.00390625\n"
    first, second = done.stderr.splitlines()[:2]
    assert first == "heard" and "seen" in second


def test_without_torchao_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(ImportError, match=r"not installed: .*`pip install torchao==0\.18\.0`"):
        import_optional("torchao")
    for name in [name for name in sys.modules if name.startswith("torchao.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"`pip install torchao==0\.18\.0`"):
        import_optional(MX)


def test_a_torchao_that_does_not_fit_is_named_with_its_error(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "torchao"]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "torchao.py").write_text("raise AttributeError('torch has no scaled_mm')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"torch has no scaled_mm.*`pip install torchao==0"):
        import_optional("torchao")


def test_settings_of_the_caller_come_back(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchao", None)
    monkeypatch.setenv("TORCHAO_FORCE_SKIP_LOADING_SO_FILES", "0")
    monkeypatch.setattr(logging.root.manager, "disable", logging.ERROR)
    filters = list(warnings.filters)
    with pytest.raises(ImportError):
        import_optional("torchao")
    assert os.environ["TORCHAO_FORCE_SKIP_LOADING_SO_FILES"] == "0"
    assert logging.root.manager.disable == logging.ERROR and warnings.filters == filters
