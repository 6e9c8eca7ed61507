"""One worker: a warm server, a judge, and the submissions it grades one after the other.

A submission is graded from one snapshot as long as all goes well. Where an exercise passes a limit,
dies or leaves something behind, the snapshot and all its processes are killed, and the exercises
that are left get a new one: the cells run again, and the exercise alone has paid.
"""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from labkit.grading.judge.causes import described, makers, with_causes
from labkit.grading.judge.judging import Cargo, Judge, JudgeError, Shipment
from labkit.grading.judge.seeds import derive_seed
from labkit.grading.judge.snapshot import CellError, CellStopped, Snapshot
from labkit.grading.records import Exercise, Outcome, Settings, Work
from labkit.grading.sandbox import bubblewrap as sandbox
from labkit.grading.sandbox import frames, metering, watching
from labkit.grading.sandbox.metering import Limits, Stopped

READY_SECONDS = 120
SWEEP_SECONDS = 10

STOPPED_CELLS = 5
"""Cells that may stop a submission, by a limit or a crash, and be left out of the next try."""

_SAID = {
    "time": "used more than {seconds:g} seconds of computing time, the limit here. Does a loop "
    "never end?",
    "wall": "was still waiting when the grader gave up. Does it sleep, or wait for something that "
    "never comes? It will be run again.",
    "memory": "took more memory than the {memory:,} MiB that the grader allows.",
    "processes": "started more processes than the grader allows.",
    "output": "sent back more data than the grader takes.",
    "crashed": "ended Python itself. Does it call os._exit, or recurse without end?",
    "protocol": "wrote to the grader's own connection, so its answer was not taken.",
}


class ServerGone(Exception):
    """The warm server has ended or does not answer."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One check to run on one submission."""

    exercise: str
    names: tuple[str, ...]
    seconds: float
    shipment: Shipment
    lent: tuple[bytes, ...]


class Server:
    """A warm server and the control socket to it; one that does not fork serves one exercise."""

    def __init__(self, process: subprocess.Popen, control: socket.socket, *, how: str):
        self.process, self.control = process, control
        self.how, self.forks = how, how != "alone"
        self.spared_bytes = self.data_bytes = 0
        self.control.settimeout(READY_SECONDS)
        self.stream = control.makefile("rb", buffering=0)
        try:
            frames.read(self.stream, most=64)
            if self.forks:
                pid = self._handles(1)[0]
                self.root = watching.pid_behind(pid)
                os.close(pid)
                self.spared_bytes = watching.private_bytes(self.root)
                self.data_bytes = watching.data_bytes(self.root)
        except (OSError, EOFError, frames.TooLong) as error:
            self.close()
            raise ServerGone(str(error)) from None

    def snapshot(self) -> Snapshot:
        """Fork a submission's first process."""
        if not self.forks:
            return self._alone()
        try:
            self.control.sendall(frames.framed(b"next"))
            sock, handle = self._handles(2)
        except OSError as error:
            raise ServerGone(f"the grader's server does not fork: {error}") from None

        tree = watching.Tree(watching.pid_behind(handle), spared_bytes=self.spared_bytes)

        def kill():
            # With the first process of a namespace all its others end.
            below = [] if self.how == "sandbox" else watching.members(tree.root)[1:]
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            for pid in below:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.close(handle)
            self._swept()

        return Snapshot(socket.socket(fileno=sock), tree, kill)

    def _alone(self) -> Snapshot:
        tree = watching.Tree(self.process.pid) if os.path.isdir("/proc/self/task") else None
        return Snapshot(self.control, tree, self.close)

    def _swept(self) -> None:
        """Wait until the submission has gone; a server that cannot clean up behind it ends."""
        self.control.settimeout(SWEEP_SECONDS)
        try:
            if frames.read(self.stream, most=64) != b"clean":
                self.close()
        except (OSError, EOFError, frames.TooLong):
            self.close()

    def _handles(self, count: int) -> list[int]:
        byte, handles, _, _ = socket.recv_fds(self.control, 1, count)
        if not byte or len(handles) != count:
            for handle in handles:
                os.close(handle)
            raise OSError("its control socket is closed")
        return handles

    @property
    def alive(self) -> bool:
        """Whether it can serve another submission."""
        return self.process.poll() is None

    def close(self) -> None:
        """End it, and with it everything in its sandbox."""
        self.process.kill()
        self.process.wait()
        self.stream.close()
        self.control.close()


class Worker:
    """Grades one submission at a time; ``start`` starts a server and runs in a lasting thread."""

    def __init__(self, settings: Settings, start: Callable[[], Server]):
        self.settings, self.start = settings, start
        self.judge = Judge(settings.extra)
        self.server: Server | None = None
        self.cargo: dict[str, Cargo] = {}

    def grade(self, work: Work) -> list[Outcome]:
        """One outcome for each exercise, in order, then one for each check of the instructor's."""
        try:
            if work.lab not in self.cargo:
                self.cargo[work.lab] = self.judge.cargo(work.lab)
            cargo = self.cargo[work.lab]
            tasks, outcomes = _tasks(work, cargo)
        except JudgeError as error:
            return [not_graded(e.exercise, str(error)) for e in work.exercises]
        _Submission(self, work, tasks, outcomes).grade()
        return list(outcomes.values())

    def snapshot(self) -> Snapshot:
        """A snapshot of the server, or of a new one; raises ServerGone."""
        if self.judge.stopped:
            raise ServerGone("the grader was stopped")
        if self.server is None or not self.server.alive:
            self.server = self.start()
        try:
            return self.server.snapshot()
        except ServerGone:
            self.server.close()
            self.server = None
            raise

    def stop(self) -> None:
        """End both processes for good: a thread that still grades starts no others."""
        self.judge.stopped = True
        self.close()

    def close(self) -> None:
        """End both processes; the next submission starts new ones."""
        self.judge.close()
        if self.server:
            self.server.close()
            self.server = None


class _Submission:
    """One submission on its way: which checks are open, which cells are left out."""

    def __init__(self, worker: Worker, work: Work, tasks: list[Task], outcomes: dict):
        self.worker, self.work, self.outcomes = worker, work, outcomes
        self.public = worker.cargo[work.lab].public
        self.open = list(tasks)
        self.stopped: dict[int, Stopped] = {}
        self.failures = 0

    def grade(self) -> None:
        while self.open:
            try:
                snapshot = self.worker.snapshot()
            except ServerGone as error:
                self._gone(str(error))
                continue
            try:
                self._from(snapshot)
            finally:
                snapshot.close()

    def _gone(self, why: str) -> None:
        """Our own fault, once forgiven; a second time nothing more is tried."""
        self.failures += 1
        if self.failures > 1:
            for task in self.open:
                self._keep(task, not_graded(task.exercise, why, hidden=task.shipment.hidden))
            self.open.clear()

    def _from(self, snapshot: Snapshot) -> None:
        """Run the cells and as many exercises as this snapshot serves."""
        memory = self._memory()
        asked = {
            "cells": self.work.cells,
            "skipped": [*self.stopped],
            "seed": self._seed("cells"),
            "disk_bytes": sandbox.DISK_BYTES,
            "data_bytes": memory + self.worker.server.data_bytes,
        }
        limits = Limits(seconds=metering.CELL_SECONDS, memory_bytes=memory * 5 // 4)
        try:
            errors = snapshot.run_cells(asked, self.public, limits)
        except CellStopped as stopped:
            self._cell_stopped(stopped)
            return
        while self.open:
            task = self.open[0]
            try:
                outcome = self._one(snapshot, task, errors)
            except Stopped as stopped:
                self._keep(task, self._stopped(task, stopped, task.seconds))
                del self.open[0]
                return
            self._keep(task, outcome)
            del self.open[0]
            if not self.worker.server.forks or not snapshot.clean():
                return
            if self.open and self.open[0].shipment.hidden and not task.shipment.hidden:
                return  # what was lent to the others may lie in /tmp

    def _one(self, snapshot: Snapshot, task: Task, errors: list[CellError]) -> Outcome:
        seed = self._seed(task.exercise)
        question = {"names": task.names, "seed": seed, "takes_seed": task.shipment.takes_seed}
        limits = Limits(seconds=task.seconds, memory_bytes=self._memory() * 5 // 4)
        collected, spent = snapshot.ask(question, [task.shipment.run, *task.lent], limits)
        try:
            told = self.worker.judge.verdict(self.work.lab, task.shipment, seed, collected)
        except JudgeError as error:
            return not_graded(task.exercise, str(error), hidden=task.shipment.hidden)
        if told.get("missing"):
            return self._missing(task, errors, spent)
        passed = told["status"] == "passed"
        return Outcome(
            exercise=task.exercise,
            status=told["status"],
            message=told["message"] if passed else with_causes(told["message"], self.work, errors),
            misconceptions=tuple(told["misconceptions"]),
            hidden=task.shipment.hidden,
            cpu_seconds=round(spent, 2),
        )

    def _missing(self, task: Task, errors: list[CellError], spent: float) -> Outcome:
        """No value has the exercise's name: the cell that would have made it says why."""
        asked = " and ".join(f"`{name}`" for name in task.names)
        made = makers(task.names, self.work.cells)
        for number in made:
            if number in self.stopped:
                return self._stopped(task, self.stopped[number], metering.CELL_SECONDS)
        raised = [error for error in errors if error.number in made]
        if raised and not raised[-1].stub:
            said = f"The cell that makes {asked} raised {described(raised[-1])}."
            said = with_causes(said, self.work, errors)
            status, cause = "error", "cell"
        else:
            said = f"Write {asked} in the cell of this exercise, then run it."
            status, cause = "not attempted", ""
        return Outcome(
            exercise=task.exercise,
            status=status,
            message=said,
            cause=cause,
            hidden=task.shipment.hidden,
            cpu_seconds=round(spent, 2),
        )

    def _cell_stopped(self, stopped: CellStopped) -> None:
        """Leave the cell out next time; where that does not help, everything open has this end."""
        number, here = stopped.number, range(len(self.work.cells))
        if number in here and number not in self.stopped and len(self.stopped) < STOPPED_CELLS:
            self.stopped[number] = stopped
        elif number == -1 and not self.failures:
            self.failures += 1  # it ended before its first cell: once more
        else:
            for task in self.open:
                self._keep(task, self._stopped(task, stopped, metering.CELL_SECONDS))
            self.open.clear()

    def _stopped(self, task: Task, stopped: Stopped, seconds: float) -> Outcome:
        said = _SAID["wall" if stopped.rerun else stopped.cause]
        said = said.format(seconds=seconds, memory=self._memory() // 2**20)
        return Outcome(
            exercise=task.exercise,
            status="error",
            message=f"Your code {said}",
            cause=stopped.cause,
            rerun=stopped.rerun,
            hidden=task.shipment.hidden,
            cpu_seconds=seconds if stopped.cause == "time" and not stopped.rerun else 0.0,
        )

    def _keep(self, task: Task, outcome: Outcome) -> None:
        self.outcomes[task.exercise, task.shipment.hidden] = outcome

    def _memory(self) -> int:
        return self.worker.settings.memory_bytes

    def _seed(self, what: str) -> int:
        return derive_seed(self.worker.settings.secret, self.work.digest, self.work.lab, what)


def _tasks(work: Work, cargo: Cargo) -> tuple[list[Task], dict]:
    """What to run, and a place for each outcome in the order in which they are told."""
    outcomes = {
        (e.exercise, False): not_graded(e.exercise, "labkit has no check of this name")
        for e in work.exercises
    }
    tasks = []
    for shipment in cargo.shipments:
        exercise = _judged_by(shipment, work.exercises)
        if exercise is None:
            continue
        # What comes later stays out: no exercise is asked after its answer has been lent.
        order = list(cargo.ours)
        place = order.index(exercise.exercise) if exercise.exercise in order else 0
        task = Task(
            exercise=shipment.exercise,
            names=exercise.names,
            seconds=exercise.seconds,
            shipment=shipment,
            lent=tuple(cargo.ours.values())[:place],
        )
        tasks.append(task)
    tasks.sort(key=lambda task: (task.shipment.hidden, len(task.lent)))
    outcomes |= {(task.exercise, True): None for task in tasks if task.shipment.hidden}
    return tasks, outcomes


def _judged_by(shipment: Shipment, exercises: tuple[Exercise, ...]) -> Exercise | None:
    """The exercise that a check looks at; an instructor's own by how its name begins."""
    name = shipment.exercise
    if not shipment.hidden:
        return next((e for e in exercises if e.exercise == name), None)
    fitting = [e for e in exercises if f"{name}-".startswith(f"{e.exercise}-")]
    if fitting:
        return max(fitting, key=lambda e: len(e.exercise))
    return Exercise(exercise=name, names=(name.replace("-", "_"),), points=0, seconds=10)


def not_graded(exercise: str, why: str, *, hidden: bool = False) -> Outcome:
    """An outcome for what the grader itself could not do."""
    return Outcome(
        exercise=exercise,
        status="not graded",
        message=f"The grader could not judge this: {why}.",
        cause="grader",
        hidden=hidden,
    )
