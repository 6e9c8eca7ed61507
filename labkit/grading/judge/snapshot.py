"""The judge's side of one submission: its cells, and its exercises, under limits.

Everything that arrives here was written by a student's process. Sizes are bounded before they are
read, an answer counts only with the nonce of its question, and while anything is awaited the tree
of processes is watched.
"""

import contextlib
import json
import re
import secrets
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from labkit.grading.judge.judging import ANSWER_BYTES
from labkit.grading.sandbox import frames, metering, watching
from labkit.grading.sandbox.metering import Limits, Meter, Stopped

GRACE_SECONDS = 2.0
"""Between an answer and the end of the process that gave it."""

REPORT_BYTES = 2**20
_NONCE_BYTES = 32


class CellStopped(Stopped):
    """Cell ``number`` was running: -1 before the first, None where all together took too much."""

    def __init__(self, number: int | None, stopped: Stopped):
        super().__init__(stopped.cause)
        self.number = number


@dataclass(frozen=True, kw_only=True)
class CellError:
    """What a cell raised; ``stub`` where it is the marker of an exercise not begun."""

    number: int
    type_name: str
    message: str
    line: str
    stub: bool


class Snapshot:
    """A submission's first process, seen from the judge.

    ``tree`` watches it. ``kill(waiting)`` ends it and everything it has started, and returns
    whether something outside the submission had ended it before, for which it waits if asked.
    """

    def __init__(
        self,
        sock: socket.socket,
        tree: watching.Tree | None,
        kill: Callable[[bool], bool],
    ):
        self.sock, self.tree, self.kill = sock, tree, kill
        self.incoming = frames.Incoming(REPORT_BYTES)
        self.processes = 1
        self.ended_outside: bool | None = None

    def run_cells(self, asked: dict, public: bytes, limits: Limits) -> list[CellError]:
        """Have the cells run; returns what they raised. Raises CellStopped."""
        number = -1
        together = replace(limits, seconds=metering.CELLS_SECONDS)
        whole = Meter(self.tree, together)
        try:
            question = json.dumps(asked).encode()
            self._send(self.sock, frames.framed(question) + frames.framed(public))
            while True:
                meter = Meter(self.tree, limits)
                told = _report(self._frame(self.sock, self.incoming, meter))
                if type(told.get("cell")) is not int:
                    break
                if not number < told["cell"] < len(asked["cells"]):
                    raise Stopped("protocol")
                number = told["cell"]
                _look_at_all(whole)
        except CellStopped:
            raise
        except Stopped as stopped:
            raise CellStopped(number, stopped) from None
        if self.tree:
            self.processes = self.tree.usage().processes
        return _errors(told)

    def ask(self, question: dict, blobs: list[bytes], limits: Limits) -> tuple[bytes, float]:
        """One exercise: the codec's bytes that came back, and the CPU seconds it took.

        ``blobs`` are the first half of its check, and what is lent to it.

        Raises Stopped. Afterwards ``clean`` says whether the snapshot can serve another.
        """
        nonce = secrets.token_bytes(_NONCE_BYTES)
        asked = {**question, "nonce": nonce.hex(), "lent": len(blobs) - 1}
        sent = [json.dumps(asked).encode(), *blobs]
        meter = Meter(self.tree, limits)
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                try:
                    socket.send_fds(self.sock, [b"x"], [theirs.fileno()])
                except OSError:
                    raise self._gone() from None
            self._send(ours, b"".join(frames.framed(part) for part in sent))
            incoming = frames.Incoming(ANSWER_BYTES)
            content = self._frame(ours, incoming, meter)
            spent = meter.spent()  # what goes on after the answer is not the exercise's
            if not secrets.compare_digest(content[:_NONCE_BYTES], nonce):
                raise Stopped("protocol")
            self._end(ours, incoming)
        if spent > limits.seconds:
            raise Stopped("time")
        return content[_NONCE_BYTES:], spent

    def clean(self) -> bool:
        """Whether the last exercise has ended and left no process behind."""
        try:
            if self._done() is None or self.incoming.kept:
                return False
        except Stopped:
            return False
        return self.tree is None or self.tree.usage().processes <= self.processes

    def crash(self) -> str:
        """Who ended a process that is gone, once this is closed: "outside", "killed" or "crashed".

        "outside" is none of the submission: nothing in it can kill its first process, nor the
        server. "killed" is anybody, as the first process tells: a signal came that no fault of a
        program raises.
        """
        signal_number, has_gone = None, False
        try:
            signal_number = self._done()
        except Stopped:
            has_gone = True
        self.close(waiting=has_gone)
        if self.ended_outside:
            return "outside"
        return "killed" if signal_number == signal.SIGKILL else "crashed"

    def close(self, *, waiting: bool = False) -> None:
        """Kill what is left."""
        if self.ended_outside is None:
            self.ended_outside = self.kill(waiting)
            self.sock.close()

    def _done(self) -> int | None:
        """The signal that ended the last exercise, or 0, as the first process tells.

        None where it tells nothing of the kind. Raises Stopped where it has hung up.
        """
        end = time.monotonic() + GRACE_SECONDS
        try:
            while (frame := self.incoming.frame()) is None:
                if not self._more(self.sock, self.incoming, end - time.monotonic()):
                    return None
        except frames.TooLong:
            return None
        said = re.fullmatch(rb"done (\d{1,3})", frame)
        return int(said[1]) if said else None

    def _end(self, sock: socket.socket, incoming: frames.Incoming) -> None:
        """Read to the end of an exercise's socket: a second answer is none."""
        end = time.monotonic() + GRACE_SECONDS
        with contextlib.suppress(Stopped, frames.TooLong):  # the end of the stream, or no frame
            while not incoming.kept and self._more(sock, incoming, end - time.monotonic()):
                pass
        if incoming.kept:
            raise Stopped("protocol")

    def _send(self, sock: socket.socket, data: bytes) -> None:
        sock.settimeout(GRACE_SECONDS + len(data) / 2**20)
        try:
            sock.sendall(data)
        except OSError:
            raise self._gone() from None

    def _frame(self, sock: socket.socket, incoming: frames.Incoming, meter: Meter) -> bytes:
        try:
            while (frame := incoming.frame()) is None:
                self._more(sock, incoming, metering.TICK_SECONDS)
                meter.look()
        except frames.TooLong:
            raise Stopped("output") from None
        return frame

    def _more(self, sock: socket.socket, incoming: frames.Incoming, seconds: float) -> bool:
        """Wait for bytes and keep them; False when none came. Raises Stopped at the end."""
        if not select.select([sock], [], [], max(0, seconds))[0]:
            return False
        try:
            data = sock.recv(2**20)
        except OSError:
            data = b""
        if not data:
            raise self._gone()
        incoming.feed(data)
        return True

    def _gone(self) -> Stopped:
        """A process has ended: of itself, or because the kernel enforced the limit on memory."""
        starved = self.tree is not None and self.tree.memory.has_killed()
        return Stopped("memory" if starved else "crashed")


def _look_at_all(whole: Meter) -> None:
    try:
        whole.look()
    except Stopped as stopped:
        raise CellStopped(None, stopped) from None


def _report(frame: bytes) -> dict:
    try:
        told = json.loads(frame)
    except (ValueError, RecursionError):
        raise Stopped("protocol") from None
    if type(told) is not dict:
        raise Stopped("protocol")
    return told


def _errors(told: dict) -> list[CellError]:
    """The cells' errors as told by the student's process: text, cut, and believed in nothing."""
    found = []
    listed = told.get("errors")
    for entry in listed[:100] if type(listed) is list else []:
        if type(entry) is list and [type(part) for part in entry] == [int, str, str, str, bool]:
            number, *texts, stub = entry
            name, message, line = (" ".join(text.split())[:300] for text in texts)
            found.append(
                CellError(number=number, type_name=name, message=message, line=line, stub=stub)
            )
    return found
