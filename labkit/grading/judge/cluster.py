"""Grade on a Dask cluster: the same works, the same outcomes, more machines.

Each worker holds one grader, in a sandbox of its own machine, and takes as many submissions at a
time as it has threads. When a worker dies, the scheduler gives its work to another; what was
finished is in the ledger of the machine that the command runs on. The secret and the instructor's
own checks travel to the workers: use a cluster that is yours, and TLS where the network is not.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path

from labkit.grading.course_labs import read_course, rest_of_labkit
from labkit.grading.judge.batch import Engine, Stop, as_they_end, safely
from labkit.grading.records import Outcome, Settings, Work, not_graded

_CONNECT_SECONDS = 30


class ClusterError(Exception):
    """A cluster that cannot be used, with what to do."""


@contextlib.contextmanager
def engine(address: str, settings: Settings, make_grader: Callable) -> Iterator[Engine]:
    """An engine that grades on the cluster whose scheduler is at ``address``.

    ``make_grader(settings)`` gives the grader of a worker and can be pickled. Raises ClusterError
    where there is no scheduler, no worker, or a worker with another course or torch.
    """
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise ClusterError(
            "--scheduler needs distributed: pip install 'mixed-precision-labs[cluster]'"
        ) from None
    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"No scheduler answers at {address} ({error}). Start one with `dask scheduler`, and"
            " `dask worker ADDRESS` on each machine."
        ) from None
    with client:
        if not client.scheduler_info()["workers"]:
            raise ClusterError(
                f"The scheduler at {address} has no workers. Start some: `dask worker {address}`."
            )
        bench = _bench(settings, make_grader)
        try:
            client.register_plugin(bench)
        except Exception as error:  # whatever a worker's setup raised
            raise ClusterError(f"A worker cannot grade: {error}") from None
        try:
            yield partial(_graded, client, bench.name)
        finally:
            with contextlib.suppress(Exception):  # the scheduler may be gone
                client.unregister_worker_plugin(bench.name)


def _graded(
    client, name: str, works: list[Work], stop: Stop
) -> Iterator[tuple[Work, list[Outcome]]]:
    futures = {
        client.submit(
            _grade, work, name, key=f"grade-{work.identity}-{work.lab}-{name}", pure=False
        ): work
        for work in works
    }
    try:
        for future in as_they_end(futures, stop):
            work = futures[future]
            if future.status in ("error", "cancelled"):
                said = f"The cluster gave no result: {future.exception()}"
                yield work, [not_graded(one.exercise, said) for one in work.exercises]
            else:
                # A worker that dies takes the results along that lay on it: this waits for them.
                yield work, future.result()
            future.release()
    finally:
        client.cancel(list(futures))


def _grade(work: Work, name: str) -> list[Outcome]:
    """On a worker: grade one work with the grader that stands ready."""
    from distributed import get_worker

    return safely(get_worker().plugins[name].grader.grade, work)


def _bench(settings: Settings, make_grader: Callable):
    """The worker's side of the cluster; distributed is imported only where it is used."""
    from distributed import WorkerPlugin

    class Bench(WorkerPlugin):
        """A grader that stands ready on each worker, those that join later too."""

        def __init__(self):
            self.name = f"labkit-grade-{os.getpid()}-{os.urandom(4).hex()}"
            self.idempotent = False
            self.extra = Path(settings.extra).read_text("utf-8") if settings.extra else None
            self.facts = facts()

        def setup(self, worker):
            if facts() != self.facts:
                raise RuntimeError(
                    f"{worker.address} has another labkit or torch than this machine; install"
                    " the same labkit and the same requirements there."
                )
            self.folder = tempfile.TemporaryDirectory(prefix="labkit-extra-")
            extra = None
            if self.extra is not None:
                extra = Path(self.folder.name) / "extra.py"
                extra.write_text(self.extra, encoding="utf-8")
            threads = worker.state.nthreads
            own = replace(settings, jobs=threads, extra=str(extra) if extra else None)
            self.grader = make_grader(own).__enter__()

        def teardown(self, worker):
            self.grader.__exit__(None, None, None)
            self.folder.cleanup()

    return Bench()


def facts() -> str:
    """A digest of what grades depend on and a machine has: labs, checks, labkit and torch."""
    course = {lab.lab: [lab.version, lab.check_versions] for lab in read_course().values()}
    known = json.dumps([course, rest_of_labkit(), metadata.version("torch")], sort_keys=True)
    return hashlib.sha256(known.encode()).hexdigest()
