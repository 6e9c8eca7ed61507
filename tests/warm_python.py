"""``subprocess.run([python, "-m", MODULE, ...])`` in a fork of a Python that has imported torch.

To import torch takes seconds, and there are dozens of processes that do little else. The first run
starts the warm process; it ends when the tests do.
"""

import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

PRELOADED = ("cloudpickle", "torch._dynamo", "labkit.labs.production.small_run")
FORWARDED = ("OMP_NUM_THREADS", "LABKIT_PROGRESS", "PYTHONPATH")

_process: subprocess.Popen | None = None


def run(words: list[str], *, input: bytes, env: dict, timeout: float, capture_output: bool):
    """As ``subprocess.run``, for words that begin with a Python, its options and ``-m``."""
    global _process
    if _process is None or _process.poll() is not None:
        _process = subprocess.Popen(
            [sys.executable, "-u", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {name: env[name] for name in FORWARDED},
        )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "in").write_bytes(input)
        asked = {"words": words[words.index("-m") + 1 :], "folder": folder, "env": dict(env)}
        _process.stdin.write(json.dumps(asked | {"timeout": timeout, "cwd": os.getcwd()}) + "\n")
        _process.stdin.flush()
        code = json.loads(_process.stdout.readline())
        if code is None:
            raise subprocess.TimeoutExpired(words, timeout)
        out, err = ((Path(folder) / name).read_bytes() for name in ("out", "err"))
    return subprocess.CompletedProcess(words, code, out, err)


def _serve() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            _child(**asked)
        ended = os.pidfd_open(child)
        in_time = select.select([ended], [], [], asked["timeout"])[0]
        os.close(ended)
        if not in_time:
            os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps(code if in_time else None), flush=True)


def _child(words: list[str], folder: str, env: dict, cwd: str, **_: object) -> None:
    code = 1
    try:
        for number, (name, mode) in enumerate(
            [("in", os.O_RDONLY), ("out", os.O_WRONLY), ("err", os.O_WRONLY)]
        ):
            os.dup2(os.open(f"{folder}/{name}", mode | os.O_CREAT), number)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the process ends with it
        os.environ.clear()
        os.environ.update(env)
        os.chdir(cwd)
        found = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
        sys.path[:0] = [path for path in found if path not in sys.path]
        sys.argv = words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
