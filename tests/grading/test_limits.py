"""Attacks on the limits: memory that no process shows, time that nothing uses, ends by a signal.

Each is one submission of two exercises, under a limit on memory that is small enough to reach here.
"""

import contextlib
import os
import textwrap
import threading

import pytest
import submissions
from attacks import E2M1, HONEST, LAB, ONLY, SETUP, WRONG, ulp

from labkit.grading.judge.runner import Grader
from labkit.grading.judge.snapshot import Snapshot
from labkit.grading.records import Outcome, Settings, Work
from labkit.grading.sandbox import bubblewrap as sandbox
from labkit.grading.sandbox import metering, watching

MEGABYTE = 2**20
LIMIT = 256 * MEGABYTE
MARGIN = 2 * sandbox.DISK_BYTES + 64 * MEGABYTE
"""Both memory file systems inside, full, and what other programs do meanwhile."""


def thorough(*values):
    """One of several that end a server, which takes seconds to start again."""
    return pytest.param(*values, marks=pytest.mark.thorough)


@pytest.fixture(scope="module", autouse=True)
def _here():
    if why := sandbox.why_not():
        pytest.skip(why)


@pytest.fixture(scope="module")
def small():
    """A grader whose submissions may take 256 MB."""
    with Grader(Settings(memory_bytes=LIMIT)) as made:
        yield made


def work(*, cell: str = "pass", body: str = "pass", end: str = WRONG, seconds: float = 5) -> Work:
    sources = [SETUP, textwrap.dedent(cell), E2M1, ulp(body, end=end)]
    return submissions.work(LAB, sources, only=ONLY, seconds=seconds)


def graded(grader: Grader, **attack) -> dict[str, Outcome]:
    """The outcomes of an attack; an honest submission behind it gets what it deserves."""
    outcomes = {one.exercise: one for one in grader.grade(work(**attack))}
    assert statuses(grader.grade(HONEST)) == ["passed", "passed"]
    return outcomes


def statuses(outcomes) -> list[str]:
    return [one.status for one in outcomes]


# Memory


class Shared(threading.Thread):
    """Notes the most shared memory of this machine, in bytes, while the block lasts."""

    def __init__(self):
        super().__init__(daemon=True)
        self.over, self.before = threading.Event(), self.now()
        self.most = self.before

    def now(self) -> int:
        with open("/proc/meminfo", encoding="ascii") as facts:
            return next(int(line.split()[1]) * 1024 for line in facts if line.startswith("Shmem:"))

    def run(self):
        while not self.over.wait(0.02):
            self.most = max(self.most, self.now())

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.over.set()
        self.join()


MAPPED = """
    import ctypes, mmap
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    held, size = [], 64 * 2**20
    def hold(flags, fd=-1, most=2):
        for _ in range(most):
            at = libc.mmap(None, size, 3, flags, fd, 0)
            if at == 2**64 - 1:
                return
            ctypes.memset(at, 1, size)
            libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(size), 4)  # MADV_DONTNEED
            held.append(at)
    hold(0x21, most=12)
    for flags in (0x23, 0x40021):  # validated, huge
        hold(flags)
    try:
        hold(0x01, open("/dev/zero", "r+b").fileno())
    except OSError:
        pass
    try:
        whole = mmap.mmap(-1, size)
        held.append(whole)
    except OSError:
        pass
"""


def test_shared_memory_that_no_process_shows_stays_within_the_limit(small):
    """768 MB are mapped, touched and given back: they stay, and the process looks small."""
    with Shared() as shared:
        outcomes = graded(small, cell=MAPPED, end="raise ValueError(len(held))")
    assert shared.most - shared.before < LIMIT + MARGIN
    assert outcomes["e2m1-value"].status == "passed"
    assert "ValueError: 0 " in outcomes["ulp"].message, "no such mapping is to be had"


HIDDEN_MEMORY = {
    "sockets in a queue": """
        import socket
        server = socket.socket(socket.AF_UNIX)
        server.bind("\\0here")
        server.listen(4096)
        for _ in range(4096):
            client = socket.socket(socket.AF_UNIX)
            client.setblocking(False)
            client.connect("\\0here")
            try:
                while True: client.send(bytes(2**16))
            except BlockingIOError:
                client.close()
        import time; time.sleep(1)
    """,
    "sockets of children": """
        import os, socket, time
        for _ in range(8):
            if not os.fork():
                pairs = [socket.socketpair() for _ in range(100)]
                for one in [one for pair in pairs for one in pair]:
                    one.setblocking(False)
                    try:
                        while True: one.send(bytes(2**16))
                    except BlockingIOError:
                        pass
                time.sleep(60)
        time.sleep(60)
    """,
    "empty files": """
        import os
        for n in range(10**6):
            os.close(os.open(f"/tmp/{n:0240d}", os.O_CREAT))
    """,
    "page tables": """
        import mmap
        step, size = 2**21, 2**39
        nothing = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | 0x4000, prot=mmap.PROT_READ)
        for at in range(0, size, step):
            nothing[at]
    """,
    "children that start anew": """
        import os, subprocess, sys
        code = "x = bytearray(b'1') * 90_000_000\\nimport time; time.sleep(60)"
        children = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(10)]
        for child in children: child.wait()
    """,
    "children that give back what they share": """
        import os, time
        kept = bytearray(b"1") * 60_000_000
        for _ in range(10):
            if not os.fork():
                kept = bytearray(b"2") * 60_000_000
                time.sleep(60)
        time.sleep(60)
    """,
}


@pytest.mark.parametrize("name", HIDDEN_MEMORY)
def test_memory_that_the_sizes_of_processes_hide_is_counted(small, name):
    outcomes = graded(small, body=HIDDEN_MEMORY[name], seconds=20)
    assert outcomes["e2m1-value"].status == "passed"
    assert outcomes["ulp"].cause == "memory", outcomes["ulp"]


def test_memory_that_children_share_is_counted_once(small):
    body = """
        import os, time
        if x == 3.0:
            kept = bytearray(b"1") * 100_000_000
            children = []
            for _ in range(8):
                if not (child := os.fork()):
                    time.sleep(0.5)
                    os._exit(kept[-1] - 49)
                children.append(child)
            assert all(os.waitpid(child, 0)[1] == 0 for child in children)
    """
    outcome = graded(small, body=body)["ulp"]
    assert outcome.status == "failed", outcome


REFUSED = {
    "a network socket": "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "datagrams": "import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "the kernel's own sockets": "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "a larger buffer": (
        "import socket\n"
        "socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**26)"
    ),
    "a terminal": "import os; os.openpty()",
    "watches of files": "call(libc.inotify_init1(0))",
    "pages in a pipe": "call(libc.vmsplice(1, 0, 0, 0))",
    "asynchronous input": "call(libc.syscall(206, 64, 0))",
    "locks of ranges": "import fcntl; fcntl.lockf(open('/tmp/x', 'w'), fcntl.LOCK_EX, 1, 7)",
    "attributes of a file": (
        "open('/tmp/x', 'w').close(); os.setxattr('/tmp/x', 'user.x', bytes(4096))"
    ),
    "work for every disk": "call(libc.syncfs(os.open('/tmp', 0)))",
    "an end by a limit": "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 1))",
    "an end by a limit, later": "call(libc.prlimit(0, 0, (ctypes.c_long * 2)(1, 1), None))",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_hold_memory_or_lie_about_an_end_is_refused(small, name):
    body = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    body += "def call(result):\n    if result: raise OSError(ctypes.get_errno(), 'refused')\n"
    body += f"try:\n{textwrap.indent(REFUSED[name], '    ')}\n    found = 'granted'\n"
    body += "except (OSError, ValueError) as error:\n    found = 'no: ' + str(error)"
    outcomes = graded(small, body=body, end="raise RuntimeError(found)")
    assert "RuntimeError: no: " in outcomes["ulp"].message


def test_a_process_of_an_answer_may_be_killed_in_the_middle_of_a_file(small):
    body = """
        import pathlib, signal, subprocess, sys, tempfile
        code = (
            "import resource, signal\\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\\n"
            "open('cut', 'wb').write(bytes(1000))"
        )
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-c", code], cwd=folder)
            size = (pathlib.Path(folder) / "cut").stat().st_size
        found = done.returncode == -signal.SIGXFSZ, size
    """
    outcome = graded(small, body=body, end="raise RuntimeError(str(found))")["ulp"]
    assert "(True, 100)" in outcome.message


def test_what_honest_code_shares_still_works(small):
    """Workers that hand over arrays, locks and shared memory of the standard library's kind."""
    body = """
        import asyncio, fcntl, multiprocessing, shutil, torch
        from multiprocessing import shared_memory
        fork = multiprocessing.get_context("fork")
        loader = torch.utils.data.DataLoader(
            torch.arange(8.0), batch_size=4, num_workers=2, multiprocessing_context=fork
        )
        total = sum(batch.sum().item() for batch in loader)
        shared = shared_memory.SharedMemory(create=True, size=2**16)
        shared.buf[0] = 7
        value = fork.Value("i", 3)
        async def five(): return 5
        with open("held", "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
        shutil.copy2("held", "copied")
        found = total, shared.buf[0], value.value, asyncio.run(five())
        shared.close(); shared.unlink()
    """
    outcomes = graded(small, body=body, end="raise ValueError(repr(found))", seconds=20)
    assert "(28.0, 7, 3, 5)" in outcomes["ulp"].message


# Wall time

TICKS = """
    import time
    def sleep(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.2)
            sum(range(300_000))
"""


@pytest.fixture
def hasty(monkeypatch):
    """A grader that takes six seconds for a notebook, and no more than one second of idling."""
    monkeypatch.setattr(metering, "IDLE_SECONDS", 1.0)
    with Grader(Settings(minutes=0.1)) as made:
        made.grade(HONEST)
        yield made


def is_out_of_time(outcome: Outcome) -> bool:
    return (outcome.status, outcome.cause, outcome.rerun) == ("error", "time", True)


def test_a_cell_that_sleeps_by_ticks_uses_up_the_notebook_s_time(hasty):
    outcomes = graded(hasty, cell=TICKS + "    sleep(60)")
    assert all(is_out_of_time(one) for one in outcomes.values())
    assert "0.1 minutes" in outcomes["ulp"].message


def test_an_answer_that_sleeps_by_ticks_uses_up_the_notebook_s_time(hasty):
    outcomes = graded(hasty, cell=TICKS, body="sleep(60)", seconds=50)
    assert outcomes["e2m1-value"].status == "passed"
    assert is_out_of_time(outcomes["ulp"])


def test_cells_that_run_again_use_up_the_notebook_s_time(hasty):
    """An exercise leaves a process behind, so the cells run again for the next one."""
    leave = """
        right = e2m1_value
        def e2m1_value(code):
            if code == 8 and not os.fork():
                time.sleep(60)
            return right(code)
    """
    cells = [SETUP, textwrap.dedent(TICKS) + "import os\nsleep(4)", E2M1, textwrap.dedent(leave)]
    sources = [*cells, ulp("pass", end="return 2.0 ** (max(math.frexp(x)[1] - 1, -14) - 10)")]
    first, second = hasty.grade(submissions.work(LAB, sources, only=ONLY))
    assert first.status == "passed"
    assert is_out_of_time(second)
    assert first.wall_seconds > 4, "the cells' time is in it"


def test_the_times_of_a_submission_are_those_of_its_outcomes(hasty):
    first, second = hasty.grade(work(cell=TICKS + "    sleep(1)", body="sleep(0.1)"))
    assert first.wall_seconds >= 1 and second.wall_seconds >= 0.1


# Ends

KILLS = {
    "by itself": "os.kill(os.getpid(), 9)",
    "by a timer": (
        "import ctypes, time\n"
        "librt = ctypes.CDLL('librt.so.1')\n"
        "event = (ctypes.c_int * 16)(); event[2] = 9\n"  # struct sigevent: value, signal, SIGNAL
        "timer = ctypes.c_void_p()\n"
        "assert librt.timer_create(0, event, ctypes.byref(timer)) == 0\n"
        "librt.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 0, 0, 10**7), None)\n"
        "time.sleep(5)"
    ),
}


@pytest.mark.parametrize("name", [thorough("by itself"), "by a timer"])
def test_who_kills_himself_is_tried_again_and_gains_nothing(small, name):
    outcomes = graded(small, body=f"import os\n{KILLS[name]}")
    assert outcomes["e2m1-value"].status == "passed"
    one = outcomes["ulp"]
    assert (one.status, one.cause, one.rerun) == ("error", "crashed", True)


FORGED = """
    import os, socket, stat, struct
    def everywhere(data):
        for fd in range(3, 64):
            try:
                if stat.S_ISSOCK(os.fstat(fd).st_mode):
                    socket.socket(fileno=os.dup(fd)).send(struct.pack("<Q", len(data)) + data)
            except OSError:
                pass
"""


@pytest.mark.parametrize(
    "cell",
    [
        "everywhere(b'done 9')",
        thorough("everywhere(b'clean 9')"),
        thorough("os.closerange(3, 256)"),
        "os._exit(9)",
    ],
)
def test_a_cell_that_tells_of_a_kill_gains_nothing(small, cell):
    outcomes = graded(small, cell=f"{FORGED}    {cell}")
    assert (outcomes["e2m1-value"].status, outcomes["ulp"].status) == ("passed", "failed")


def test_a_crash_that_does_not_come_back_costs_nothing(small):
    """What crashed may have been the machine's fault: here it crashes in one server of two."""
    once = "import os\nif os.getpid() % 2 == 0: os._exit(1)"
    body = "import os\nif len(os.listdir('/tmp')) < 0: pass"
    outcomes = graded(small, cell=once, body=body)
    assert outcomes["e2m1-value"].status == "passed"


# The machine's own faults


@pytest.fixture(scope="module")
def plain():
    with Grader(Settings()) as made:
        yield made


class Killer:
    """Kills a process of the grader's in the middle of the first exercises that are asked."""

    def __init__(self, monkeypatch, grader: Grader, whom: str, times: int):
        self.worker, self.whom, self.left = grader._workers[0], whom, times
        ask = Snapshot.ask

        def asked(snapshot, *args):
            timer = threading.Timer(0.3, self.kill, [snapshot])
            timer.start()
            try:
                return ask(snapshot, *args)
            finally:
                timer.join()

        monkeypatch.setattr(Snapshot, "ask", asked)

    def kill(self, snapshot: Snapshot) -> None:
        if self.left:
            self.left -= 1
            server = self.worker.second or self.worker.server
            pids = {
                "server": [server.root],
                "bubblewrap": [server.process.pid],
                "first process": [snapshot.tree.root],
                "exercise": watching.members(snapshot.tree.root)[1:],
            }
            for pid in pids[self.whom]:
                with contextlib.suppress(ProcessLookupError):  # an exercise that was quicker
                    os.kill(pid, 9)


SLOW = work(
    body="import time; time.sleep(0.03)",
    end="return 2.0 ** (max(math.frexp(x)[1] - 1 if x else -14, -14) - 10)",
)
"""A right answer that takes a second to check."""


@pytest.mark.parametrize(
    ("whom", "times"),
    [
        ("server", 2),
        thorough("bubblewrap", 1),
        thorough("first process", 2),
        ("first process", 9),
    ],
)
def test_what_is_killed_from_outside_is_never_the_student_s_fault(monkeypatch, plain, whom, times):
    Killer(monkeypatch, plain, whom, times)
    outcomes = plain.grade(SLOW)
    if times < 9:
        assert statuses(outcomes) == ["passed", "passed"]
    else:
        assert {(one.status, one.cause) for one in outcomes} <= {
            ("passed", ""),
            ("not graded", "grader"),
        }
        assert "not graded" in statuses(outcomes)
    monkeypatch.undo()
    assert statuses(plain.grade(SLOW)) == ["passed", "passed"]


def test_an_exercise_that_is_killed_from_outside_once_is_tried_again(monkeypatch, plain):
    Killer(monkeypatch, plain, "exercise", 1)
    assert statuses(plain.grade(SLOW)) == ["passed", "passed"]


def test_an_exercise_that_is_always_killed_is_for_the_next_run_to_decide(monkeypatch, plain):
    """It may be the student's own doing."""
    Killer(monkeypatch, plain, "exercise", 9)
    first, second = plain.grade(SLOW)
    assert (first.status, second.status) == ("passed", "error")
    assert (second.cause, second.rerun) == ("crashed", True)


def test_a_kill_for_want_of_memory_is_the_machine_s(monkeypatch, plain):
    kills = iter(range(1000))
    monkeypatch.setattr(watching, "out_of_memory_kills", lambda: next(kills))
    Killer(monkeypatch, plain, "exercise", 9)
    _, second = plain.grade(SLOW)
    assert (second.status, second.cause) == ("not graded", "grader")
