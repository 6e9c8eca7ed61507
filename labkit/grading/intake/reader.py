"""Reads each notebook in a process beside the grader, so that one file cannot hold up a class.

No code of a notebook is run here, but a file can be made to swell in memory, and Python's own
parser to take for ever or to overflow its stack. That ends this process and costs that file;
``understand_apart`` starts another one for the next.

    python -m labkit.grading.intake.reader
"""

import atexit
import contextlib
import os
import pickle
import select
import subprocess
import sys
from collections.abc import Mapping

from labkit.grading.course_labs import CourseLab
from labkit.grading.intake import selecting
from labkit.grading.intake.deliveries import IntakeError
from labkit.grading.intake.notebooks_read import Unreadable
from labkit.grading.intake.selecting import Selected

START_SECONDS = 120
READ_SECONDS = 30
"""Wall time of one file; a lab takes a tenth of a second."""

MEMORY_BYTES = 4 * 2**30


class _Reader:
    """The process, once it has been needed, and the course that it was told."""

    def __init__(self) -> None:
        self.process: subprocess.Popen | None = None
        self.course: Mapping[str, CourseLab] | None = None

    def ask(self, course: Mapping[str, CourseLab], *asked: object) -> object:
        """What ``selecting.understand`` returned, or the Unreadable that it raised.

        Raises TimeoutError, or what tells that the process has ended; then it is closed.
        """
        if self.process is None:
            self._start()
        try:
            if self.course is not course:
                self._send(course)
                self.course = course
            self._send(asked)
            return self._receive(READ_SECONDS)
        except BaseException:  # Ctrl-C too: a late reply would be taken for the next file's
            self.close()
            raise

    def close(self) -> None:
        """End the process."""
        if self.process:
            self.process.kill()
            self.process.wait()
            with contextlib.suppress(OSError):  # what it has not read
                self.process.stdin.close()
            self.process.stdout.close()
        self.process = self.course = None

    def _start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "labkit.grading.intake.reader"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches the grader alone
        )
        try:
            self._receive(START_SECONDS)
        except (EOFError, TimeoutError):
            self.close()
            raise IntakeError(
                "The process that reads notebooks does not start; what it says stands above."
            ) from None

    def _send(self, thing: object) -> None:
        pickle.dump(thing, self.process.stdin)
        self.process.stdin.flush()

    def _receive(self, seconds: float) -> object:
        # It writes when it has done its work, and then all at once.
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            raise TimeoutError
        return pickle.load(self.process.stdout)


_reader = _Reader()
atexit.register(_reader.close)


def understand_apart(
    content: bytes, course: Mapping[str, CourseLab], hint: str = "", only: str | None = None
) -> Selected | None:
    """``selecting.understand`` in a process of its own; one thread at a time.

    Raises Unreadable, for what hangs or crashes the process too, and IntakeError where there is no
    process to be had.
    """
    for _ in range(2):  # an end that comes from outside is no fault of the file
        try:
            told = _reader.ask(course, content, hint, only)
        except TimeoutError:
            raise Unreadable(
                "too slow",
                f"Reading the file was broken off after {READ_SECONDS:g} seconds; a notebook of a"
                " lab takes less than one. Hand in the notebook as Jupyter saves it.",
            ) from None
        except (OSError, EOFError, pickle.UnpicklingError):
            continue
        if isinstance(told, Unreadable):
            raise told
        return told
    raise Unreadable(
        "crashed",
        "The file ended the program that reads it, twice. Hand in the notebook as Jupyter saves"
        " it.",
    )


# In the process


def _understood(course: Mapping[str, CourseLab], asked: tuple) -> Selected | Unreadable | None:
    content, hint, only = asked
    try:
        return selecting.understand(content, course, hint, only)
    except Unreadable as error:
        return error
    except MemoryError:
        return Unreadable("too large", "Reading the file took more memory than the grader allows.")
    except Exception as error:  # our own fault, and no reason to stop with the others
        return Unreadable("grader", f"The file cannot be read: {type(error).__name__}: {error}.")


def _bound_memory() -> None:
    """Let an allocation fail here before the machine runs out; Linux only."""
    if sys.platform.startswith("linux"):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))


def main() -> None:
    """Read until the input ends: a course, and files as ``understand_apart`` sends them."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that is printed must stand between the replies
    _bound_memory()
    course: Mapping[str, CourseLab] = {}
    told: object = None
    while True:
        pickle.dump(told, replies)
        replies.flush()
        try:
            while isinstance(asked := pickle.load(requests), Mapping):
                course = asked
        except EOFError:
            return
        told = _understood(course, asked)


if __name__ == "__main__":
    main()
