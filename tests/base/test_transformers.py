"""transformers comes in silence and asks no network; where it is missing a sentence says so."""

import logging
import os
import subprocess
import sys

import pytest

from labkit.base.home import import_optional

GPT2 = "transformers.models.gpt2.modeling_gpt2"


def python(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True,
        env=os.environ | environment,
    )  # fmt: skip


def test_import_and_use_write_nothing_and_leave_the_environment(seeds):
    if seeds > 1:
        # The control: transformers' own import is heard, or this test holds without the function.
        assert python(f"import {GPT2}").stderr
    done = python(
        "import logging, os\n"
        "from labkit.base.home import import_optional\n"
        f"gpt2 = import_optional({GPT2!r})\n"
        "settings = dict(vocab_size=68, n_embd=8, n_layer=1, n_head=1, n_positions=8)\n"
        "config = gpt2.GPT2Config(**settings)\n"  # of which transformers warns: token 50256 of 68
        "print(sum(p.numel() for p in gpt2.GPT2LMHeadModel(config).parameters()))\n"
        "assert not {'HF_HUB_OFFLINE', 'TORCHAO_FORCE_SKIP_LOADING_SO_FILES'} & os.environ.keys()\n"
        "logging.warning('heard')\n"
    )
    assert done.returncode == 0, done.stderr
    # 68 x 8 tokens, 8 x 8 positions, a block of 12 x 8**2 + 13 x 8, a norm of 16.
    assert done.stdout == f"{68 * 8 + 64 + 12 * 64 + 13 * 8 + 16}\n"
    assert done.stderr == "WARNING:root:heard\n"


def test_no_request_leaves_the_machine(tmp_path):
    done = python(
        "import socket\n"
        "from labkit.base.home import import_optional\n"
        "library = import_optional('transformers')\n"
        "def refused(*_, **__): raise AssertionError('a socket was opened')\n"
        "socket.socket.connect = socket.getaddrinfo = refused\n"
        "try: library.AutoConfig.from_pretrained('openai-community/gpt2')\n"
        "except OSError as error: print('offline')\n",
        HF_HOME=str(tmp_path),
    )
    assert done.stdout == "offline\n", done.stderr


def test_without_transformers_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"not installed: .*`pip install transformers==5\.23\.0`"):
        import_optional("transformers")
    for name in [name for name in sys.modules if name.startswith("transformers.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"`pip install transformers==5\.23\.0`"):
        import_optional(GPT2)


def test_settings_of_the_caller_come_back(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(logging.root.manager, "disable", logging.ERROR)
    with pytest.raises(ImportError):
        import_optional("transformers")
    assert os.environ["HF_HUB_OFFLINE"] == "0"
    assert logging.root.manager.disable == logging.ERROR
