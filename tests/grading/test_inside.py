"""What runs inside the sandbox, tried here: frames, cells, the stand-in, watching."""

import io
import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.grading.sandbox import cells, frames, watching


@given(st.lists(st.binary(max_size=50)), st.integers(1, 7))
def test_frames_come_out_as_they_went_in(contents, step):
    data = b"".join(frames.framed(content) for content in contents)
    incoming, got = frames.Incoming(50), []
    for at in range(0, len(data), step):
        incoming.feed(data[at : at + step])
        while (frame := incoming.frame()) is not None:
            got.append(frame)
    assert got == contents
    stream = io.BytesIO(data)
    assert [frames.read_frame(stream, most=50) for _ in contents] == contents


def test_a_long_frame_is_refused_before_it_arrives():
    incoming = frames.Incoming(50)
    with pytest.raises(frames.TooLong, match="51 bytes; at most 50"):
        incoming.feed(frames.framed(bytes(51))[:8])
    with pytest.raises(EOFError):
        frames.read_frame(io.BytesIO(frames.framed(b"half")[:9]), most=50)


@pytest.fixture
def names(monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    return cells.namespace()


def test_cells_share_their_names_and_an_exception_costs_its_cell(names):
    assert cells.run_cell(0, "x = 1", names) is None
    assert type(cells.run_cell(1, "x = 2\n1 / 0\nx = 3", names)) is ZeroDivisionError
    assert type(cells.run_cell(2, "raise SystemExit", names)) is SystemExit
    assert type(cells.run_cell(3, "x = = 1", names)) is SyntaxError
    assert names["x"] == 2
    assert names["__name__"] == "__main__"


@pytest.mark.parametrize(
    "source",
    [
        "%matplotlib inline\nx = 1",
        "!pip install torch\nx = 1",
        "files = !ls\nx = 1",
        "%%time\nx = 1",
        "  %%capture out\nx = 1",
        "import asyncio\nasync def f():\n    return 1\nx = await f()",
        "get_ipython().run_line_magic('time', '')\ndisplay(3)\nx = 1",
    ],
)
def test_what_ipython_adds(names, source):
    assert cells.run_cell(0, source, names) is None
    assert names["x"] == 1


def test_other_languages_are_refused(names):
    error = cells.run_cell(0, "%%javascript\nalert(1)", names)
    assert type(error) is cells.RefusedCell and "%%javascript" in str(error)
    assert cells.run_cell(0, "x = 1\0", names) is not None


@pytest.mark.parametrize(
    "source",
    [
        "import no_such_package\nx = 1",
        "import no_such_package; x = 1",
        "import math, no_such_package, json\nx = int(json.dumps(1))",
        "from no_such_package import y\nx = 1",
        "import no_such_package as n\nn.set_theme()\nn.more()\nx = 1",
        "%matplotlib inline\nimport no_such_package\nx = 1",
        "import no_such_package\n\n@no_such_package.cached\ndef f(): pass\n\nx = 1",
        "import asyncio\nfrom math import no_such_name\nx = await asyncio.sleep(0, 1)",
        "await __import__('asyncio').sleep(0)\nimport no_such_package\nx = 1",
        "def f():\n    import no_such_package\n\nf()\nx = 1",
        "try:\n    import no_such_package\nexcept KeyError:\n    pass\nx = 1",
        "import no_such_package\nraise SystemExit\nx = 1",
        "import no_such_package\nraise KeyboardInterrupt\nx = 1",
    ],
)
def test_what_needs_no_missing_package_takes_effect(names, source):
    error = cells.run_cell(0, source, names)
    assert isinstance(error, ImportError) and "no_such" in str(error)
    assert names["x"] == 1


def test_after_a_missing_package_annotations_are_as_the_cell_says(names):
    source = (
        "from __future__ import annotations\nimport no_such_package\n"
        "def f(x: no_such_package.Thing): return x\nx = f(1)"
    )
    assert type(cells.run_cell(0, source, names)) is ModuleNotFoundError
    assert names["x"] == 1


def test_statements_before_a_missing_package_run_once_and_none_runs_after_another_error(names):
    source = "seen = []\nseen.append(1)\nimport no_such_package\nseen.append(2)"
    assert type(cells.run_cell(0, source, names)) is ModuleNotFoundError
    assert names["seen"] == [1, 2]
    source = "def f():\n    seen.append(3)\n    raise ImportError\n\nf()\nseen.append(4)"
    assert type(cells.run_cell(1, source, names)) is ImportError
    assert names["seen"] == [1, 2, 3, 4]
    assert type(cells.run_cell(1, "1 / 0\nimport no_such_package\nx = 1", names)) is (
        ZeroDivisionError
    )
    assert "x" not in names


@pytest.mark.parametrize(
    "source",
    [
        "class E(ImportError):\n    __traceback__ = None\nraise E",
        "class E(ImportError):\n    @property\n    def __traceback__(self): 1 / 0\nraise E",
        "raise ImportError from ImportError()",
        "exec('raise ImportError')",
        "eval(compile('raise ImportError', '<other>', 'exec'))",
    ],
)
def test_an_odd_import_error_costs_its_cell(names, source):
    assert isinstance(cells.run_cell(0, source, names), ImportError)
    assert cells.run_cell(1, "x = 1", names) is None


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder from which modules are imported, as the server's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_cell_under_writefile_becomes_a_module(names, folder):
    assert type(cells.run_cell(0, "import written_here", names)) is ModuleNotFoundError
    before = folder.stat()
    source = "%%writefile written_here.py\ndef f(x):\n    return x + 1"
    assert cells.run_cell(1, source, names) is None
    assert "f" not in names
    # Python looks again into a folder whose time has changed; a clock may be too coarse for that.
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cells.run_cell(2, "from written_here import f\nx = f(1)", names) is None
    assert names["x"] == 2
    assert (folder / "written_here.py").read_text() == "def f(x):\n    return x + 1\n"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("%%file a.txt\r\none", "one\n"),
        ("%%writefile 'a.txt'\n%%time\ntwo\n", "%%time\ntwo\n"),
        ("%%time\n%%writefile a.txt\n", "\n"),
        ("%%writefile -a a.txt\nend", "begin\nend\n"),
        ("%%writefile --append a.txt\nend", "begin\nend\n"),
        ("%%writefile ~/a.txt\nhome", "home\n"),
    ],
)
def test_writefile_is_jupyter_s(names, folder, monkeypatch, source, text):
    monkeypatch.setenv("HOME", str(folder))
    (folder / "a.txt").write_text("begin\n")
    assert cells.run_cell(0, source, names) is None
    assert (folder / "a.txt").read_text() == text


@pytest.mark.parametrize("words", ["", " -a", " a b", " 'a", " no/such/folder/a.py", " ."])
def test_a_file_that_cannot_be_written_is_said(names, folder, words):
    error = cells.run_cell(0, f"%%writefile{words}\nx = 1", names)
    assert isinstance(error, cells.RefusedCell | OSError | ValueError)
    assert list(folder.iterdir()) == []


STANDIN = """
from labkit.grading.sandbox import standin
standin.install_stand_ins()
import labkit.labs.engine
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.number_formats import predictions as guesses
from labkit.labs.automatic_mixed_precision.checks import amp_loops as part
from labkit.labs.number_formats.checks import check_ulp, anything_at_all, near_the_top
from labkit.labs.number_formats import checks as court

claim("never looked at", False)
check_ulp(lambda x: x)
court.check_decode(1)
assert yours(1, 2) == 2 and whose(1) == "labkit's"

@predict(guesses.step_at_2048)
def step(): raise AssertionError

step.guess(2048, sure=2)
assert not isinstance(step, int)
try: pass
except labkit.labs.engine.CheckFailed: pass
standin.furnish({"labkit.labs.number_formats.checks": {"LOW": {1}}})
assert court.LOW == {1}
step = yours(None, part.step)
assert step(3) is None
standin.lend({"labkit.labs.automatic_mixed_precision.checks.amp_loops.step": lambda x: x + 1})
assert step(3) == 4
"""


def test_the_stand_in_takes_what_a_notebook_does():
    subprocess.run([sys.executable, "-c", STANDIN], check=True, timeout=60)


BURN = """
import os, time
pids = [os.fork() for _ in range(1)]
end = time.process_time() + 0.4
while time.process_time() < end: pass
kept = bytearray(b"x") * 50_000_000
print(flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs /proc")
def test_a_tree_is_summed():
    with subprocess.Popen([sys.executable, "-c", BURN], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.readline()
        tree = watching.Tree(process.pid)
        usage = tree.usage()
        assert usage.processes == len(watching.members(process.pid)) == 2
        assert usage.cpu_seconds >= 0.8 - 4 / watching.TICKS
        assert usage.memory_bytes > 100_000_000
        for pid in reversed(watching.members(process.pid)):
            os.kill(pid, 9)
        process.wait()
        time.sleep(0.05)
        assert tree.usage().processes == 0
        assert tree.usage().cpu_seconds == usage.cpu_seconds, "it never runs backwards"
