"""A learner's program as an answer: run in a child process with a limit, judged by a lab's check.

The child, ``program_runner``, runs the half of the check that calls the program and brings back
plain data; what is right stays in this process. It is started with the first program, since the
checks need torch, and runs one program after another; one that is late or dies takes the child with
it, and the next program gets a new one.
"""

import ast
import atexit
import base64
import functools
import importlib
import json
import os
import subprocess
import sys
import textwrap
import threading

from labkit.interview.question_parts import Unclear

SECONDS = 60.0
"""A program and the tests of it are stopped after this."""

_START_SECONDS = 120.0  # the child imports torch first
_GRACE_SECONDS = 10.0  # for which a late program may still be stopped by its own process


def run_code(answer: str, *, check: str, stub: str, name: str):
    """Run the text of an answer and judge what it defines; returns the check's ``CheckResult``.

    ``check`` is the full name of a check, ``stub`` defines the function that is wanted, and its
    imports are there for the answer; ``name`` stands in tracebacks. Raises Unclear where the text
    is no Python, or defines nothing of that name. A text that ran to its end is not run again.
    """
    module, _, function = check.rpartition(".")
    judge = getattr(importlib.import_module(module), function)
    answer = textwrap.dedent(answer)
    try:
        compile(answer, "<answer>", "exec")
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte
        raise _no_python(error) from None
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    wanted = next(node.name for node in ast.parse(stub).body if isinstance(node, defined))
    try:
        told = _told(answer, check=check, stub=stub, name=name, wanted=wanted, seconds=SECONDS)
    except _Stopped as stopped:
        told = _raised(*stopped.args)
    if told is None:
        raise Unclear(f"The answer defines no {wanted}.", f"答案里没有定义 {wanted}。")
    return judge.verdict(told)


@functools.lru_cache(maxsize=64)
def _told(answer: str, **asked) -> bytes | None:
    return _runner.run({"answer": answer, **asked})


class _Stopped(Exception):
    """A program that was late or ended its process: the exception's name and what it says."""


class _Runner:
    """The child process, started when it is first needed and after one that died."""

    def __init__(self) -> None:
        self._child: subprocess.Popen | None = None
        self._owner = 0
        self._one_at_a_time = threading.Lock()

    def run(self, asked: dict) -> bytes | None:
        """What became of a program, for ``Check.verdict``; None where the name is not defined."""
        with self._one_at_a_time:
            child = self._started()
            try:
                child.stdin.write(json.dumps(asked).encode() + b"\n")
                child.stdin.flush()
                line = self._line(asked["seconds"] + _GRACE_SECONDS)
            except BaseException:  # Ctrl-C too: what it would say later answers no other program
                self.stop()
                raise
            if line is None:
                self.stop()
                raise _Stopped("TookTooLong", f"{asked['seconds']:g}")
            if not line:
                status = child.wait()
                self.stop()
                raise _Stopped("SystemExit", f"the process ended with status {status}")
        told = json.loads(line)
        return None if told is None else base64.b64decode(told)

    def _started(self) -> subprocess.Popen:
        if self._child is None or self._owner != os.getpid() or self._child.poll() is not None:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "labkit.interview.program_runner"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            self._owner = os.getpid()
            if not self._line(_START_SECONDS):
                self.stop()
                raise RuntimeError("the process that runs programs could not be started")
        return self._child

    def _line(self, seconds: float) -> bytes | None:
        """A line of the child; empty where it ended, None where it says nothing in time."""
        found: list[bytes] = []
        reading = threading.Thread(
            target=lambda pipe=self._child.stdout: found.append(pipe.readline()), daemon=True
        )
        reading.start()
        reading.join(seconds)
        return found[0] if found else None

    def stop(self) -> None:
        """End the child, whatever it does."""
        child, self._child = self._child, None
        if child is not None and self._owner == os.getpid():
            child.kill()
            child.wait()
            child.stdin.close()


_runner = _Runner()
atexit.register(_runner.stop)


def _raised(kind: str, why: str) -> bytes:
    from labkit.labs.engine import codec

    value = codec.Raised(type_name=kind, message=why, line="")
    return codec.encode_value({"outcome": "raised", "value": value, "printed": "", "warned": []})


def _no_python(error: SyntaxError | ValueError) -> Unclear:
    """What the compiler says, and of which line."""
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    line = getattr(error, "lineno", None)
    return Unclear(
        f"Python cannot read that{f', from line {line} on' if line else ''}: {said}.",
        f"Python 读不懂{f'第 {line} 行起的内容' if line else ''}：{said}。",
    )
