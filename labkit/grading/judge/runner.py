"""Grade submissions: ``Grader(settings)``, then ``grade(work)`` from as many threads as jobs.

with Grader(Settings(jobs=2, secret=secret)) as grader:
    outcomes = grader.grade(work)
"""

import os
import queue
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

from labkit.grading.judge.judging import JudgeError
from labkit.grading.judge.worker import Server, ServerGone, Worker, could_not_judge
from labkit.grading.records import Outcome, Settings, Work
from labkit.grading.sandbox import bubblewrap as sandbox


class GraderError(RuntimeError):
    """The grader cannot start; the message says why and what to do."""


class Grader:
    """A pool of workers, each with a warm server in a sandbox and a judge outside of it.

    Raises GraderError on entering where bubblewrap cannot be used and the settings ask for it, and
    where the instructor's own checks cannot be loaded.
    """

    def __init__(self, settings: Settings):
        self.settings = settings
        # A sandbox dies with the thread that started it: this one lasts as long as the grader.
        self._starter = ThreadPoolExecutor(max_workers=1)
        self._starting: subprocess.Popen | None = None
        self._workers = [Worker(settings, self._server) for _ in range(settings.jobs)]
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()
        for worker in self._workers:
            self._idle.put(worker)

    def __enter__(self) -> "Grader":
        if os.name == "nt":
            raise GraderError("the grader does not run on Windows itself: use WSL or a container")
        if self.settings.sandboxed and (why := sandbox.why_not()):
            without = ". Without a sandbox: --no-sandbox, for code that you trust"
            raise GraderError(f"{why}{without if sandbox.is_about_sandbox(why) else ''}")
        if self.settings.extra:
            try:
                self._workers[0].judge.load()
            except JudgeError as error:
                self.close()
                raise GraderError(f"{self.settings.extra}: {error}") from None
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def grade(self, work: Work) -> list[Outcome]:
        """Grade one submission; waits while all workers are busy.

        Returns an outcome for each exercise of the work, in order, then one for each check of the
        instructor's own. Nothing that a submission does raises here.
        """
        worker = self._idle.get()
        try:
            return worker.grade(work)
        except Exception as error:  # a fault of ours must not stop the class
            worker.close()
            return [could_not_judge(e.exercise, repr(error)) for e in work.exercises]
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """End every process."""
        for worker in self._workers:
            worker.stop()
        if self._starting:
            self._starting.kill()
        self._starter.shutdown(cancel_futures=True)

    def _server(self) -> Server:
        return self._starter.submit(self._start).result()

    def _start(self) -> Server:
        how = "sandbox" if self.settings.sandboxed else "bare" if sandbox.CAN_FORK else "alone"
        with tempfile.TemporaryFile() as said:
            self._starting, control = sandbox.start_server(how, said)
            try:
                return Server(self._starting, control, how=how)
            except ServerGone as error:
                said.seek(0)
                words = said.read().decode(errors="replace").strip().splitlines() or [str(error)]
                raise ServerGone(f"the grader's server does not start: {words[-1]}") from None
            finally:
                self._starting = None
