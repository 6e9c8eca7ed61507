"""One worker: a warm server, a judge, and the submissions it grades one after the other.

A submission is graded from one snapshot as long as all goes well. Where an exercise passes a limit,
dies or leaves something behind, the snapshot and all its processes are killed, and the exercises
that are left get a new one: the cells run again, and the exercise alone has paid. All that happens
within the submission's wall time.

A process that dies may have been killed by the machine. So a crash counts once it has happened
again in a server that has served nobody else, and what was ended from outside is tried again.
"""

import base64
import contextlib
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from labkit.grading.judge.error_causes import in_a_line, makers, with_causes
from labkit.grading.judge.judging import Cargo, Judge, JudgeError, Shipment
from labkit.grading.judge.seeds import derive_seed
from labkit.grading.judge.snapshot import CellError, CellStopped, Snapshot
from labkit.grading.records import AGAIN, GradedExercise, Outcome, Settings, Work, not_graded
from labkit.grading.sandbox import bubblewrap as sandbox
from labkit.grading.sandbox import frames, groups, metering, watching
from labkit.grading.sandbox.metering import Limits, Stopped

READY_SECONDS = 120
SWEEP_SECONDS = 10

STOPPED_CELLS = 5
"""Cells that may stop a submission, by a limit or a crash, and be left out of the next try."""

FORGIVEN = 2
"""Failures of our own, and ends from outside, after which a submission is tried again."""

GROUP_BYTES = 2**26
"""Above the limit of memory that is watched: where the kernel stops a submission's cgroup."""

_SAID = {
    "time": "used more than {seconds:g} seconds of computing time, the limit here. Does a loop "
    "never end?",
    "wall": "was still waiting when the grader gave up. Does it sleep, or wait for something that "
    "never comes?",
    "budget": "had used up the {minutes:g} minutes that the grader takes for one notebook. Do its "
    "cells or answers sleep, or wait?",
    "memory": "took more memory than the {memory:,} MiB that the grader allows.",
    "processes": "started more processes than the grader allows.",
    "output": "sent back more data than the grader takes.",
    "crashed": "ended Python itself, each time it was run. Does it call os._exit, or recurse "
    "without end?",
    "killed": "was ended by a kill signal, each time it was run. Does it send one itself?",
    "protocol": "wrote to the grader's own connection, so its answer was not taken.",
}


_CAUSES = {"wall": "time", "budget": "time", "killed": "crashed"}
"""What an outcome calls its cause where it may end otherwise in another run."""


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
        self.data_bytes = 0
        self.control.settimeout(READY_SECONDS)
        self.stream = control.makefile("rb", buffering=0)
        try:
            frames.read_frame(self.stream, most=64)
            if self.forks:
                pid = self._handles(1)[0]
                self.root = watching.pid_behind(pid)
                os.close(pid)
                self.data_bytes = watching.data_bytes(self.root)
                folders = sandbox.SCRATCH if how == "sandbox" else ()
                self.counted = watching.Counted(self.root, folders=folders)
        except (OSError, EOFError, frames.TooLong) as error:
            self.close()
            raise ServerGone(str(error)) from None

    def snapshot(self, memory_bytes: int) -> Snapshot:
        """Fork a submission's first process; a cgroup, where there is one, stops at the bytes."""
        if not self.forks:
            return self._alone()
        try:
            self.control.sendall(frames.framed(b"next"))
            sock, handle = self._handles(2)
        except OSError as error:
            raise ServerGone(f"the grader's server does not fork: {error}") from None
        root = watching.pid_behind(handle)
        group = self._group(root, memory_bytes)
        tree = watching.Tree(root, group or self.counted)

        def kill(waiting: bool) -> bool:
            had_ended = bool(select.select([handle], [], [], SWEEP_SECONDS * waiting)[0])
            # With the first process of a namespace all its others end.
            below = [] if self.how == "sandbox" else watching.members(tree.root)[1:]
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            for pid in below:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.close(handle)
            ended_by = self._swept()
            if group:
                group.close()
            killed = self.how == "sandbox" and had_ended and ended_by == signal.SIGKILL
            return killed or ended_by is None

        return Snapshot(socket.socket(fileno=sock), tree, kill)

    def _group(self, pid: int, memory_bytes: int) -> groups.ControlGroup | None:
        """A cgroup with this process in it, before it has run anything of a student's."""
        home = groups.home() if self.how == "sandbox" else None
        if home is None:
            return None
        group = None
        try:
            group = groups.ControlGroup(home, limit_bytes=memory_bytes + GROUP_BYTES)
            group.enter(pid)
        except OSError:  # somebody has changed the rights: it is counted instead
            if group:
                group.close()
            return None
        return group

    def _alone(self) -> Snapshot:
        tree = watching.Tree(self.process.pid) if os.path.isdir("/proc/self/task") else None

        def kill(waiting: bool) -> bool:
            self.close()
            return False

        return Snapshot(self.control, tree, kill)

    def _swept(self) -> int | None:
        """Wait until the submission has gone; a server that cannot clean up behind it ends.

        Returns the signal that ended the submission, or 0; None where the server itself is gone.
        """
        self.control.settimeout(SWEEP_SECONDS)
        try:
            swept, _, ended_by = frames.read_frame(self.stream, most=64).partition(b" ")
        except TimeoutError:
            self.close()
            return 0
        except (OSError, EOFError, frames.TooLong):
            self.close()
            return None
        if swept != b"clean":
            self.close()
        return int(ended_by)

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
        self.second: Server | None = None
        self.cargo: dict[str, Cargo] = {}

    def grade(self, work: Work) -> list[Outcome]:
        """One outcome for each exercise, in order, then one for each check of the instructor's."""
        try:
            if work.lab not in self.cargo:
                self.cargo[work.lab] = self.judge.cargo(work.lab)
            cargo = self.cargo[work.lab]
            tasks, outcomes = _tasks(work, cargo)
        except JudgeError as error:
            return [could_not_judge(e.exercise, str(error)) for e in work.exercises]
        _Submission(self, work, tasks, outcomes).grade()
        return list(outcomes.values())

    @contextlib.contextmanager
    def snapshot(self, *, fresh: bool) -> Iterator[tuple[Server, Snapshot]]:
        """A snapshot and its server, for as long as the block lasts.

        ``fresh`` asks for a server that has served nobody. Raises ServerGone where none starts.
        """
        if self.judge.stopped:
            raise ServerGone("the grader was stopped")
        is_alive = self.server is not None and self.server.alive
        if fresh and is_alive:
            server = self.second = self.start()
        else:
            server = self.server = self.server if is_alive else self.start()
        try:
            snapshot = server.snapshot(watched_bytes(self.settings))
        except ServerGone:
            server.close()
            raise
        try:
            yield server, snapshot
        finally:
            snapshot.close()
            if server is self.second:
                server.close()
                self.second = None

    def stop(self) -> None:
        """End both processes for good: a thread that still grades starts no others."""
        self.judge.stopped = True
        self.close()

    def close(self) -> None:
        """End both processes; the next submission starts new ones."""
        self.judge.close()
        for server in (self.server, self.second):
            if server:
                server.close()
        self.server = self.second = None


class _Submission:
    """One submission on its way: which checks are open, which cells are left out."""

    def __init__(self, worker: Worker, work: Work, tasks: list[Task], outcomes: dict):
        self.worker, self.work, self.outcomes = worker, work, outcomes
        self.public = worker.cargo[work.lab].public
        self.open = list(tasks)
        self.stopped: dict[int, Stopped] = {}
        self.crashes: Counter[str] = Counter()
        self.fresh = False
        self.failures = 0
        self.kills_before = watching.out_of_memory_kills()
        self.minutes = _minutes(worker.settings, work)
        self.mark: float | None = None
        self.end = 0.0

    def grade(self) -> None:
        while self.open:
            try:
                with self.worker.snapshot(fresh=self.fresh) as (server, snapshot):
                    self.fresh = False
                    self._from(server, snapshot)
            except ServerGone as error:
                self._gone(str(error))

    def _gone(self, why: str) -> None:
        """Not the submission's fault, and forgiven some times; then nothing more is tried."""
        self.failures += 1
        if self.failures > FORGIVEN:
            for task in self.open:
                self._keep(task, could_not_judge(task.exercise, why, hidden=task.shipment.hidden))
            self.open.clear()

    def _from(self, server: Server, snapshot: Snapshot) -> None:
        """Run the cells and as many exercises as this snapshot serves."""
        if self.mark is None:  # a server that had to start first is no time of the submission
            self.mark = time.monotonic()
            self.end = self.mark + 60 * self.minutes
        with self._folder(server) as folder:
            asked = {
                "cells": self.work.cells,
                "skipped": [*self.stopped],
                "seed": self._seed("cells"),
                "disk_bytes": sandbox.DISK_BYTES,
                "data_bytes": self._memory() + server.data_bytes,
                "folder": folder,
                "helpers": _helpers(self.work),
            }
            try:
                errors = snapshot.run_cells(asked, self.public, self._limits(metering.CELL_SECONDS))
            except CellStopped as stopped:
                if counted := self._counted(stopped, snapshot, f"cell {stopped.number}"):
                    self._cell_stopped(CellStopped(stopped.number, counted))
                return
            while self.open:
                task = self.open[0]
                try:
                    outcome = self._one(snapshot, task, errors)
                except Stopped as stopped:
                    if counted := self._counted(stopped, snapshot, _place(task)):
                        self._exercise_stopped(task, counted)
                    return
                self._keep(task, outcome)
                del self.open[0]
                if not server.forks or not snapshot.clean():
                    return
                if self.open and self.open[0].shipment.hidden and not task.shipment.hidden:
                    return  # what was lent to the others may lie in /tmp

    @contextlib.contextmanager
    def _folder(self, server: Server) -> Iterator[str]:
        """The folder in which the cells run: the sandbox's own, else one of this machine."""
        if server.how == "sandbox":
            yield sandbox.SCRATCH[0]
            return
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            yield folder

    def _one(self, snapshot: Snapshot, task: Task, errors: list[CellError]) -> Outcome:
        if time.monotonic() > self.end:
            raise Stopped("budget")
        # Its own for a hidden check: an answer's message in the lab's own tells the other one.
        seed = self._seed(_place(task))
        question = {"names": task.names, "seed": seed, "takes_seed": task.shipment.takes_seed}
        question["own_work"] = task.shipment.own_work
        blobs = [task.shipment.run, *task.lent]
        collected, spent = snapshot.ask(question, blobs, self._limits(task.seconds))
        try:
            told = self.worker.judge.verdict(self.work.lab, task.shipment, seed, collected)
        except JudgeError as error:
            return could_not_judge(task.exercise, str(error), hidden=task.shipment.hidden)
        if told.get("missing"):
            return self._missing(task, errors, spent)
        passed = told["status"] == "passed"
        more = {}
        if told["status"] in ("failed", "error"):
            more = self._further(task, seed, collected)
        return Outcome(
            exercise=task.exercise,
            status=told["status"],
            message=told["message"] if passed else with_causes(told["message"], self.work, errors),
            misconceptions=tuple(told["misconceptions"]),
            score=told["score"] or more.get("score", 0.0),
            shortcuts=tuple(told["shortcuts"]),
            measured=tuple((name, value) for name, value in told["measured"]),
            hidden=task.shipment.hidden,
            cpu_seconds=round(spent, 2),
            more=tuple(more.get("more", ())),
            wrong=more.get("wrong", 0),
            cases=more.get("cases", 0),
        )

    def _further(self, task: Task, seed: int, collected: bytes) -> dict:
        """What else is wrong; it takes nothing from the time of the submission."""
        begun = time.monotonic()
        try:
            return self.worker.judge.further(self.work.lab, task.shipment, seed, collected)
        finally:
            self.end += time.monotonic() - begun

    def _missing(self, task: Task, errors: list[CellError], spent: float) -> Outcome:
        """No value has the exercise's name: the cell that would have made it says why."""
        asked = " and ".join(f"`{name}`" for name in task.names)
        made = makers(task.names, self.work.cells)
        for number in made:
            if number in self.stopped:
                return self._stopped(task, self.stopped[number], metering.CELL_SECONDS)
        raised = [error for error in errors if error.number in made]
        if raised and not raised[-1].stub:
            said = f"The cell that makes {asked} raised {in_a_line(raised[-1])}."
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

    def _counted(self, stopped: Stopped, snapshot: Snapshot, where: str) -> Stopped | None:
        """What counts of a stop ``where`` it came up: None where it is tried again."""
        if stopped.cause != "crashed":
            return stopped
        ended = snapshot.crash()
        short = watching.out_of_memory_kills() > self.kills_before
        if ended == "outside" or (ended == "killed" and short):
            self._gone("its process was killed from outside, as where memory is short")
            return None
        self.crashes[where] += 1
        self.fresh = self.crashes[where] == 1
        return None if self.fresh else Stopped(ended)

    def _cell_stopped(self, stopped: CellStopped) -> None:
        """Leave the cell out next time; where that does not help, everything open has this end."""
        number, here = stopped.number, range(len(self.work.cells))
        if stopped.cause == "budget":
            self._end_all(stopped)
        elif number == -1:
            self._gone("its process ended before it had run anything")
        elif number in here and number not in self.stopped and len(self.stopped) < STOPPED_CELLS:
            self.stopped[number] = stopped
        else:
            self._end_all(stopped)

    def _exercise_stopped(self, task: Task, stopped: Stopped) -> None:
        if stopped.cause == "budget":
            self._end_all(stopped)
        else:
            self._keep(task, self._stopped(task, stopped, task.seconds))
            del self.open[0]

    def _end_all(self, stopped: Stopped) -> None:
        """Everything that is open ends like this."""
        for task in self.open:
            self._keep(task, self._stopped(task, stopped, metering.CELL_SECONDS))
        self.open.clear()

    def _stopped(self, task: Task, stopped: Stopped, seconds: float) -> Outcome:
        said = _SAID[stopped.cause].format(
            seconds=seconds, memory=self._memory() // 2**20, minutes=round(self.minutes, 1)
        )
        rerun = stopped.cause in _CAUSES
        return Outcome(
            exercise=task.exercise,
            status="error",
            message=f"Your code {said}{AGAIN if rerun else ''}",
            cause=_CAUSES.get(stopped.cause, stopped.cause),
            rerun=rerun,
            hidden=task.shipment.hidden,
            cpu_seconds=seconds if stopped.cause == "time" else 0.0,
        )

    def _keep(self, task: Task, outcome: Outcome) -> None:
        now = time.monotonic()
        wall = 0.0 if self.mark is None else round(now - self.mark, 2)
        self.outcomes[task.exercise, task.shipment.hidden] = replace(outcome, wall_seconds=wall)
        if self.mark is not None:
            self.mark = now

    def _limits(self, seconds: float) -> Limits:
        memory = watched_bytes(self.worker.settings)
        return Limits(seconds=seconds, memory_bytes=memory, end=self.end)

    def _memory(self) -> int:
        return self.worker.settings.memory_bytes

    def _seed(self, what: str) -> int:
        return derive_seed(self.worker.settings.secret, self.work.digest, self.work.lab, what)


def _place(task: Task) -> str:
    return f"{task.exercise}{' hidden' * task.shipment.hidden}"


def watched_bytes(settings: Settings) -> int:
    """What a submission may take before it is stopped; an allocation fails before that."""
    return settings.memory_bytes * 5 // 4


def _minutes(settings: Settings, work: Work) -> float:
    if settings.minutes is not None:
        return settings.minutes
    return metering.budget(one.seconds for one in work.exercises) / 60


def _helpers(work: Work) -> dict[str, str]:
    """The files beside the notebook, as they cross to the sandbox: none outside its folder."""
    return {
        name: base64.b64encode(content).decode()
        for name, content in work.helpers
        if not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts
    }


def _tasks(work: Work, cargo: Cargo) -> tuple[list[Task], dict]:
    """What to run, and a place for each outcome in the order in which they are told."""
    outcomes = {
        (e.exercise, False): could_not_judge(e.exercise, "labkit has no check of this name")
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


def _judged_by(shipment: Shipment, exercises: tuple[GradedExercise, ...]) -> GradedExercise | None:
    """The exercise that a check looks at; an instructor's own by how its name begins."""
    name = shipment.exercise
    if not shipment.hidden:
        return next((e for e in exercises if e.exercise == name), None)
    fitting = [e for e in exercises if f"{name}-".startswith(f"{e.exercise}-")]
    if fitting:
        return max(fitting, key=lambda e: len(e.exercise))
    return GradedExercise(exercise=name, names=(name.replace("-", "_"),), points=0, seconds=10)


def could_not_judge(exercise: str, why: str, *, hidden: bool = False) -> Outcome:
    """An outcome for what the grader itself could not do."""
    return not_graded(exercise, f"The grader could not judge this: {why}.", hidden=hidden)
