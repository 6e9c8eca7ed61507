"""Attacks on the grader: each earns what the honest code earns, and harms nothing.

A trick counts as beaten when the wrong ``ulp`` does not pass, the right ``e2m1_value`` does, a file
of the host is as it was, and the next submission is graded rightly by the same warm server.
"""

import pytest
from attacks import attack, told, unharmed


@pytest.fixture(scope="module")
def canary(tmp_path_factory):
    path = tmp_path_factory.mktemp("host") / "canary"
    path.write_text("sings")
    path.chmod(0o666)
    return path


@pytest.fixture(autouse=True)
def beaten(grader, canary):
    """After each attack: the host, the server and the next submission are well."""
    before = grader._workers[0].server
    yield
    assert unharmed(grader, canary)
    if before is not None:
        assert grader._workers[0].server is before, "the attack took the warm server down"


# Monkeypatching: the judge is in another process.

PATCHES = {
    "math": "import math\nmath.isclose = lambda *a, **k: True\nmath.isnan = lambda x: True",
    "torch": (
        "import torch\ntorch.equal = torch.allclose = torch.isclose = lambda *a, **k: True\n"
        "torch.Tensor.__eq__ = lambda a, b: True"
    ),
    "numpy": "import numpy\nnumpy.array_equal = numpy.allclose = lambda *a, **k: True",
    "builtins": "import builtins\nbuiltins.all = builtins.any = lambda *a: True",
    "float type check": (
        "import builtins\n_isinstance = isinstance\n"
        "builtins.isinstance = lambda x, t: True if t is float else _isinstance(x, t)"
    ),
    "labkit": (
        "import labkit.formats\nlabkit.formats.spacing = lambda *a: 0\n"
        "labkit.formats.quantize = lambda x, *a, **k: x"
    ),
    "the checks": (
        "import labkit.labs.number_formats.checks as checks\nimport labkit.labs.engine\n"
        "checks.check_ulp = lambda answer: None\n"
        "labkit.labs.engine.Check = labkit.labs.engine.same_value = lambda *a, **k: True"
    ),
    "IPython hooks": (
        "ip = get_ipython()\nip.events.register('pre_run_cell', print)\n"
        "ip.ast_transformers.append(None)\n"
        "ip.input_transformers_post.append(lambda lines: ['pass'])"
    ),
    "sys.modules": (
        "import sys, types\n"
        "fake = types.ModuleType('labkit.labs.engine.running')\n"
        "fake.collect = lambda run, answer: b''\n"
        "for name in list(sys.modules):\n"
        "    if name.startswith('labkit'): sys.modules[name] = fake"
    ),
    "import hooks": (
        "import sys\nclass Finder:\n    def find_spec(self, name, *a):\n"
        "        raise SystemExit(name)\nsys.meta_path.insert(0, Finder())"
    ),
    "sys.settrace": (
        "import sys, threading\ndef tracer(frame, event, arg):\n"
        "    frame.f_locals['value'] = 2.0**-10\n    return tracer\n"
        "sys.settrace(tracer)\nthreading.settrace(tracer)\nsys.setprofile(lambda *a: None)"
    ),
    "pickle and json": (
        "import json, pickle\n_loads = pickle.loads\n"
        "pickle.loads = lambda data: (lambda answer: 'passed') if len(data) > 99 else _loads(data)"
    ),
    "warnings as errors": "import warnings\nwarnings.simplefilter('error')",
    "recursion limit": "import sys\nsys.setrecursionlimit(10**6)",
    "a trap at exit": "import atexit\natexit.register(lambda: print('x' * 10**6))",
}


@pytest.mark.parametrize("name", PATCHES)
def test_monkeypatching_earns_nothing(grader, name):
    outcomes = attack(grader, cell=PATCHES[name])
    assert outcomes["ulp"].status in ("failed", "error")
    if name not in ("pickle and json", "import hooks", "sys.modules"):  # they break their own code
        assert outcomes["ulp"].status == "failed"
        assert outcomes["e2m1-value"].status == "passed"


def test_rewriting_the_grader_in_memory_earns_nothing(grader):
    outcomes = attack(
        grader,
        cell="""
            import gc, types
            def collect(run, answer):
                return b"everything passed"
            for thing in gc.get_objects():
                if isinstance(thing, types.FunctionType) and thing.__name__ == "collect":
                    thing.__code__ = collect.__code__
        """,
    )
    assert {o.status for o in outcomes.values()} <= {"failed", "error", "passed"}
    assert outcomes["ulp"].status != "passed"


# Objects that agree with everything: only exact types cross.

OBJECTS = {
    "float that equals everything": (
        "class Agrees(float):\n    __eq__ = lambda a, b: True\n    __ne__ = lambda a, b: False\n"
        "    __hash__ = float.__hash__\nreturn Agrees(1.0)"
    ),
    "__float__": "class Agrees:\n    def __float__(self): return 0.0\nreturn Agrees()",
    "__array__": (
        "import numpy\nclass Agrees:\n    def __array__(self, *a, **k): return numpy.zeros(1)\n"
        "    def __eq__(self, other): return True\nreturn Agrees()"
    ),
    "__torch_function__": (
        "import torch\nclass Agrees(torch.Tensor):\n    @classmethod\n"
        "    def __torch_function__(cls, *a, **k): return True\n"
        "return torch.ones(()).as_subclass(Agrees)"
    ),
    "a lying __class__": (
        "class Agrees:\n    __class__ = float\n    def __eq__(self, other): return True\n"
        "return Agrees()"
    ),
    "a lying metaclass": (
        "class Meta(type):\n    def __eq__(cls, other): return True\n"
        "    def __hash__(cls): return hash(float)\n"
        "class Agrees(metaclass=Meta):\n    def __eq__(self, other): return True\nreturn Agrees()"
    ),
    "the answer as a CheckResult": (
        "from types import SimpleNamespace\n"
        "return SimpleNamespace(exercise='ulp', status='passed', message='', misconceptions=())"
    ),
    "a generator without end": "import itertools\nreturn itertools.count()",
    "an enormous list": "return [0] * 10**7",
    "a list in itself": "loop = []\nloop.append(loop)\nreturn loop",
}


@pytest.mark.parametrize("name", OBJECTS)
def test_permissive_objects_earn_nothing(grader, name):
    outcomes = attack(grader, body=OBJECTS[name])
    assert outcomes["ulp"].status in ("failed", "error")
    assert outcomes["e2m1-value"].status == "passed"


# Ending things

ENDS = {
    "SystemExit": ("raise SystemExit(0)", ""),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", ""),
    "GeneratorExit": ("raise GeneratorExit", ""),
    "os._exit": ("import os; os._exit(0)", "crashed"),
    "abort": ("import os; os.abort()", "crashed"),
    "segmentation fault": ("import ctypes; ctypes.string_at(0)", "crashed"),
    "killing itself": ("import os; os.kill(os.getpid(), 9)", "crashed"),
    "killing the parent": ("import os; os.kill(os.getppid(), 9)", None),
    "killing everything": ("import os; os.kill(-1, 9)", None),
    "killing its group": ("import os; os.killpg(0, 9)", "crashed"),
    "stopping the parent": ("import os, signal; os.kill(os.getppid(), signal.SIGSTOP)", None),
    "recursion": ("def f(): f()\nf()", ""),
    "recursion in C": (
        "import sys; sys.setrecursionlimit(10**9)\n"
        "x = ()\nfor _ in range(10**6): x = (x,)\nhash(x)",
        "crashed",
    ),
    "a lost connection": ("import os; os.closerange(3, 256)", "crashed"),
}


# A crash is confirmed in a fresh server, which takes seconds to start.
ALWAYS = {"os._exit", "killing itself"} | {name for name, (_, cause) in ENDS.items() if not cause}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in ALWAYS else pytest.mark.thorough) for n in ENDS],
)
def test_ending_costs_this_exercise_only(grader, name):
    body, cause = ENDS[name]
    outcomes = attack(grader, body=body)
    assert outcomes["e2m1-value"].status == "passed"
    assert outcomes["ulp"].status in ("failed", "error")
    if cause is not None:
        assert (outcomes["ulp"].status, outcomes["ulp"].cause) == ("error", cause)


@pytest.mark.parametrize(
    "cell",
    [
        "import sys; sys.exit()",
        "import os; os._exit(0)",
        "raise KeyboardInterrupt",
        "while 1: pass",
    ],
)
def test_a_cell_that_ends_or_hangs_costs_no_exercise(grader, cell):
    outcomes = attack(grader, cell=cell)
    assert (outcomes["e2m1-value"].status, outcomes["ulp"].status) == ("passed", "failed")


def test_an_exercise_cell_that_hangs_costs_its_exercise(grader):
    outcomes = attack(grader, end="return 1.0\nwhile 1: pass")
    assert outcomes["e2m1-value"].status == "passed"
    assert (outcomes["ulp"].status, outcomes["ulp"].cause) == ("error", "time")


# Taking too much

TAKES = {
    "loop without end": ("while 1: pass", "time"),
    "a sleep": ("import time; time.sleep(10**6)", "time"),
    "a deadlock": ("import threading; l = threading.Lock(); l.acquire(); l.acquire()", "time"),
    "waiting for a child": (
        "import os, time\nif os.fork(): os.wait()\nelse: time.sleep(10**6)",
        "time",
    ),
    "time burnt in children": (
        "import os\nfor _ in range(4):\n    if not os.fork():\n        while 1: pass\n"
        "while 1:\n    try: os.wait()\n    except ChildProcessError: break",
        "time",
    ),
    "time burnt in a chain of children": (
        "import os, signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "if os.fork(): os.wait()\n"
        "while 1:\n    for _ in range(10**6): pass\n    if os.fork(): os._exit(0)",
        None,
    ),
    "a fork bomb": ("import os\nwhile 1:\n    try: os.fork()\n    except OSError: pass", None),
    "memory in children": (
        "import os, time\nfor _ in range(8):\n    if not os.fork():\n"
        "        x = bytearray(b'x') * 10**9\n        while 1: pass\nwhile 1: pass",
        "memory",
    ),
    "a flood on the sockets": (
        "import os\nwhile 1:\n    for fd in range(3, 64):\n        try: os.write(fd, b'x' * 4096)\n"
        "        except OSError: pass",
        "output",
    ),
}


@pytest.mark.parametrize("name", TAKES)
def test_taking_too_much_costs_this_exercise_only(grader, name):
    body, cause = TAKES[name]
    outcomes = attack(grader, body=body, seconds=20 if cause == "memory" else 0.5)
    assert outcomes["e2m1-value"].status == "passed"
    assert outcomes["ulp"].status == "error"
    assert outcomes["ulp"].cause in ((cause,) if cause else ("time", "processes", "crashed"))


def test_memory_has_an_end(grader):
    assert "MemoryError" in told(grader, "found = len(bytearray(b'x') * 2**34)")


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_a_full_disk_is_small_and_swept(grader, folder):
    fill = f"""
        import os
        found = 0
        try:
            for i in range(1000):
                with open(f"{folder}/{{i}}", "wb") as file:
                    for _ in range(16):
                        found += file.write(b"x" * 2**20)
        except OSError as error:
            found = found >> 20, error.strerror
    """
    listing = f"import os; found = os.listdir('{folder}')"
    clean = told(grader, listing)  # in a clone below /tmp the folder that holds it
    assert "(6" in (first := told(grader, fill, seconds=20)) and "No space left" in first
    assert told(grader, listing) == clean


def test_print_goes_nowhere(grader):
    flood = "import sys, os\nfor _ in range(300): print('x' * 10**5); os.write(1, b'x' * 10**5)"
    assert attack(grader, body=flood, seconds=10)["ulp"].status in ("failed", "error")


@pytest.mark.parametrize(
    "code",
    [
        "import threading\ndef on():\n    while 1: pass\nthreading.Thread(target=on).start()",
        "import os, time\nif not os.fork():\n    time.sleep(10**6)",
        "import os, time\nif not os.fork():\n    os.setsid()\n    if not os.fork():\n"
        "        while 1: pass\n    os._exit(0)",
    ],
    ids=["thread", "child", "orphan"],
)
def test_what_goes_on_after_the_answer_is_ended(grader, code):
    once = "import builtins\nif not hasattr(builtins, 'done'):\n    builtins.done = 1\n"
    body = once + "\n".join("    " + line for line in code.splitlines())
    assert attack(grader, body=body)["ulp"].status == "failed"


# Looking around

GONE = "FileNotFoundError"


@pytest.mark.parametrize(
    "path",
    [
        "{labkit}/checks/__init__.py",
        "{labkit}/checks/number_formats.py",
        "{labkit}/grading/judge.py",
        "{labkit}/misconceptions.py",
        "{notebooks}/solutions/02_number_formats.ipynb",
        "{notebooks}/02_number_formats.ipynb",
        "{data}/questions",
        "{canary}",
        "/etc/passwd",
        "/root/.bashrc",
        "/proc/1/environ",
        "/proc/self/mem",
        "/sys",
        "/var",
        "/bin/sh",
    ],
)
def test_files_of_the_host_are_not_there(grader, canary, path):
    import labkit
    from labkit.base import home

    path = path.format(
        labkit=labkit.__path__[0], notebooks=home.NOTEBOOKS, data=home.DATA, canary=canary
    )
    assert GONE in told(grader, f"open({path!r}); found = 'a file'")


def test_the_environment_holds_nothing_of_the_host(grader, monkeypatch):
    monkeypatch.setenv("NBGRADER_TOKEN", "hunter2")
    assert "hunter2" not in told(grader, "import os; found = sorted(os.environ)")


def test_no_other_process_is_seen(grader):
    code = """
        import os
        found = []
        for pid in range(1, 3000):
            try:
                os.kill(pid, 0)
                found.append(pid)
            except OSError:
                pass
    """
    said = told(grader, code)
    assert said.count(",") <= 1, f"itself and its snapshot, nothing else: {said}"


def test_the_parent_cannot_be_traced(grader):
    code = """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        found = libc.ptrace(16, os.getppid(), 0, 0), os.strerror(ctypes.get_errno())
    """
    assert "(-1, 'Operation not permitted')" in told(grader, code)


@pytest.mark.parametrize(
    "call",
    [
        "libc.unshare(0x10000000)",
        "libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)",
        "libc.umount2(b'/tmp', 0)",
        "libc.memfd_create(b'x', 0)",
        "libc.setns(0, 0)",
        "libc.syscall(56, 0x10000011, 0, 0, 0, 0)",
        "libc.shmget(0, 2**20, 0o1600)",
        "libc.setuid(0)",
        "libc.chroot(b'/tmp')",
    ],
)
def test_calls_that_reach_past_the_limits_fail(grader, call):
    code = f"""
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        found = {call}, os.strerror(ctypes.get_errno())
    """
    said = told(grader, code)
    assert "(-1, 'Operation not permitted')" in said or "(-1, 'Invalid argument')" in said


def test_limits_cannot_be_raised(grader):
    code = """
        import resource
        resource.setrlimit(resource.RLIMIT_DATA, (-1, -1)); found = "raised"
    """
    assert "not allowed to raise maximum limit" in told(grader, code)


@pytest.mark.parametrize("address", [("127.0.0.1", 22), ("10.0.0.1", 80), ("192.0.2.1", 80)])
def test_there_is_no_network(grader, address):
    code = f"import socket; found = socket.create_connection({address!r}, timeout=1)"
    said = told(grader, code)
    assert "ConnectionRefusedError" in said or "Network is unreachable" in said


def test_nothing_that_python_needs_can_be_written(grader):
    code = """
        import os, sys, torch, labkit
        found = []
        for folder in ("/", "/dev", sys.prefix, sys.base_prefix, *torch.__path__, *labkit.__path__):
            try:
                open(os.path.join(folder, "planted.py"), "w")
                found.append(folder)
            except OSError:
                pass
    """
    assert "ValueError: []" in told(grader, code)


def test_a_deep_tree_in_tmp_is_swept(grader):
    code = """
        import os
        os.chdir("/tmp")
        for _ in range(3000):
            os.mkdir("d" * 100)
            os.chdir("d" * 100)
        os.chmod(".", 0)
        os.symlink("/", "/tmp/root")
    """
    attack(grader, cell=code)
