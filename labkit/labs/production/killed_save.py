"""A checkpoint's save that is killed in the middle of a file, in a process of its own.

``killed_save`` sends the class of an answer to a new Python process. There it saves two
checkpoints, and saves the second one again, with other values, under a limit on the size of files:
at half of the largest file's size the kernel kills the process (SIGXFSZ). No ``except`` and no
``finally`` runs after that. The process is a new one, because one that has used torch's threads
must not fork.

Windows has no such limit. There the process ends itself in the middle of a write of Python's or of
``torch.save``; a file that other C code writes is not cut, so less is tested there.
"""

import builtins
import contextlib
import io
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import torch

from labkit.labs.production import small_run

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

FIRST, SECOND = 5, 8
"""The steps of the two saves that come to their end; the second one is saved again, and killed."""

AGAIN = 9
"""The killed save writes what the run holds after this step, as a run that came back to step 8."""

BY_KERNEL, BY_ITSELF = "by the kernel", "by itself"
HOW = BY_ITSELF if resource is None else BY_KERNEL
"""How a process is killed on this system."""

WEAKER = (
    "This system cannot limit the size of a file. The check ends a second process in the middle of "
    "a write of Python's or of torch.save instead; a file that other C code writes is not cut."
)
SECONDS = 120
"""After so long, the process is stopped."""

_ITSELF, _RAISED = 77, 78


def killed_save(
    answer: Any, folder: Path, seed: int, *, kept: Path | None = None, how: str = HOW
) -> bool | dict[str, str]:
    """Save steps 5 and 8 in a process of its own, and let it be killed while it saves 8 again.

    Args:
        answer: the class, called as ``answer(folder, parts)``.
        folder: an empty folder.
        seed: of the run, as in ``small_run``.
        kept: a folder that is made, with the files as they are before the save that is killed.
        how: ``BY_KERNEL`` or ``BY_ITSELF``.

    Returns:
        True if the process was killed; False if the last save came to its end; what it raised,
        as ``type_name``, ``message`` and ``line``, if it did.

    Raises:
        TypeError: the class cannot be sent to another process.
    """
    try:
        packed = cloudpickle.dumps(answer)
    except Exception as error:
        raise TypeError(
            f"your class cannot be sent to a second process: {error}. Make such an object inside "
            "a method, not as an attribute of the class or a global name"
        ) from None
    words = [sys.executable, "-B", "-m", __name__, how, str(folder), str(seed), str(kept or "")]
    # A class of an imported module travels by the module's name.
    found = os.pathsep.join(path for path in sys.path if path)
    alone = {"OMP_NUM_THREADS": "1", "LABKIT_PROGRESS": "off", "PYTHONPATH": found}
    alone["PYTHONHASHSEED"] = "random"  # as in a restart; a sandbox fixes it
    try:
        done = subprocess.run(
            words, input=packed, capture_output=True, timeout=SECONDS, env=os.environ | alone
        )
    except subprocess.TimeoutExpired:
        said = f"the process that saves was still running after {SECONDS} seconds"
        return {"type_name": "TimeoutError", "message": said, "line": ""}
    if done.returncode == 0 and (kept is None or kept.exists()):
        return False
    if done.returncode == _ITSELF or (resource and done.returncode == -signal.SIGXFSZ):
        return True
    if done.returncode == _RAISED:
        return json.loads(done.stdout)
    said = done.stderr.decode(errors="replace").strip().splitlines()
    message = f"the process ended with {done.returncode}: {said[-1] if said else ''}"
    return {"type_name": "RuntimeError", "message": message, "line": ""}


def _main(how: str, folder: Path, seed: int, kept: str) -> None:
    """What the second process does."""
    answer = pickle.loads(sys.stdin.buffer.read())
    said, sys.stdout = sys.stdout, sys.stderr
    try:
        parts = small_run.fresh(seed)
        checkpoints = answer(folder, parts)
        for step in (FIRST, SECOND):
            small_run.put(parts, step, seed)
            checkpoints.save(step)
        if kept:
            shutil.copytree(folder, kept)
        small_run.put(parts, AGAIN, seed)
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        (_limit_files if how == BY_KERNEL else _end_in_write)(max(sizes, default=0) // 2)
        checkpoints.save(SECOND)
    except Exception as error:
        raised = {"type_name": type(error).__name__, "message": str(error)[:500], "line": ""}
        print(json.dumps(raised), file=said, flush=True)
        os._exit(_RAISED)


def _limit_files(most: int) -> None:
    """From now on, the kernel kills this process when a file would grow beyond ``most`` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
    with contextlib.suppress(ValueError):  # a sandbox refuses it, and has set it
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def _end_in_write(most: int) -> None:
    """From now on, this process ends when it has written ``most`` bytes to a file by Python."""
    opened, saved, wrote = builtins.open, torch.save, os.write

    def open_cut(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        made = opened(file, mode, *args, **kwargs)
        return _Cut(made, most) if set(mode) & set("wax+") else made

    def save(value: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        if hasattr(file, "write"):
            saved(value, file, *args, **kwargs)
            return
        data = io.BytesIO()
        saved(value, data, *args, **kwargs)
        with open_cut(file, "wb") as into:
            into.write(data.getvalue())

    def write(number: int, data: Any) -> int:
        if os.fstat(number).st_size + len(data) <= most:
            return wrote(number, data)
        wrote(number, bytes(data)[:most])
        os._exit(_ITSELF)

    builtins.open = io.open = open_cut
    torch.save, os.write = save, write


class _Cut:
    """An open file that takes so many bytes; with the next one the process ends."""

    def __init__(self, file: Any, room: int) -> None:
        self._file, self._room = file, room

    def write(self, data: Any) -> int:
        if len(data) > self._room:
            self._file.write(data[: self._room])
            self._file.flush()
            os._exit(_ITSELF)
        self._room -= len(data)
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "_Cut":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
