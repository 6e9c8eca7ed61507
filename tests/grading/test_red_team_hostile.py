"""Hostile and broken deliveries to `labkit grade`, each with the points an honest person gives.

One class of lab 02 is graded once. Each student attacks with one exercise and has two others right:
these keep their points whatever happens beside them. Layouts, names and rosters need runs of their
own: they deliver notebooks that the ledger knows already.
"""

import contextlib
import csv
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
LAB = "02_number_formats"
FULL = {"e2m1-value": 1, "ulp": 2, "snap": 3}

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="the grader's sandbox needs bubblewrap"
)


def solved(lab: str = LAB) -> dict:
    notebook = json.loads((ROOT / f"notebooks/solutions/{lab}.ipynb").read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = []
    return notebook


def exercise_of(cell: dict) -> str:
    return cell["metadata"].get("nbgrader", {}).get("grade_id", "")


def short_notebook(answers: dict[str, str]) -> dict:
    """Lab 02 with its setup cells and three exercises, in which `answers` replace the solutions."""
    notebook = solved()
    kept = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        name = exercise_of(cell)
        if name in FULL:
            cell["source"] = answers.get(name, source)
        if name.removeprefix("check-") in FULL or source.startswith("import math, torch"):
            kept.append(cell)
    notebook["cells"] = kept
    return notebook


def as_bytes(notebook: dict) -> bytes:
    return json.dumps(notebook).encode()


# What is delivered and what it is worth


@dataclass(frozen=True, kw_only=True)
class Case:
    """A student's files, and the points they earn: None where no person could grade them.

    ``also`` holds other points for `ulp` that a person may give; ``slow`` is graded apart, since it
    ends the sandbox or waits for a limit. ``ONE_OF_A_KIND`` are those of them that always run.
    """

    files: dict[str, object]
    want: dict[str, float] | None
    also: tuple[float, ...] = ()
    slow: bool = False


CASES: dict[str, Case] = {}


def attack(
    name: str,
    ulp: str,
    *,
    points: float = 0,
    others: dict[str, float] | None = None,
    also: tuple[float, ...] = (),
    slow: bool = False,
) -> None:
    """A case whose `ulp` is this source; the two other exercises are right."""
    CASES[name] = Case(
        files={f"{LAB}.ipynb": as_bytes(short_notebook({"ulp": ulp}))},
        want=FULL | {"ulp": points} | (others or {}),
        also=also,
        slow=slow,
    )


RIGHT_ULP = """
def ulp(x):
    exponent = math.frexp(x)[1] - 1 if x else -14
    return 2.0 ** (max(exponent, -14) - 10)
"""
RIGHT_SNAP = """
def snap(x):
    if not math.isfinite(x):
        return x
    gap = spacing(x, FP16)
    value = round(abs(x) / gap) * gap
    return math.copysign(value if value <= 65504 else math.inf, x)
"""
RIGHT_E2M1 = """
def e2m1_value(code):
    return [0.0, .5, 1., 1.5, 2., 3., 4., 6.][code & 7] * (-1 if code >> 3 else 1)
"""

# Answers that look right only to the check

attack(
    "equal-to-everything",
    """
class Same:
    __hash__ = None
    def __eq__(self, other): return True
    def __float__(self): return 1.0
def ulp(x):
    return Same()
""",
)
attack(
    "float-equal-to-everything",
    """
class Same(float):
    __hash__ = float.__hash__
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return False
    __gt__ = __lt__
def ulp(x):
    return Same(7.0)
""",
)
attack(
    "float-subclass-that-is-right",
    RIGHT_ULP
    + """
class Gap(float):
    pass
right = ulp
def ulp(x):
    return Gap(right(x))
""",
    points=2,
)
attack(
    "int-that-changes-its-value",
    """
class Moving(int):
    def __index__(self): return 2
    __int__ = __float__ = __index__
    def __eq__(self, other): return True
    __hash__ = int.__hash__
def ulp(x):
    return Moving(3)
""",
)
attack(
    "tensor-that-agrees-with-everything",
    """
class Yes(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return True
    def item(self): return 2.0**-10
    def detach(self): return torch.tensor(2.0**-10)
def ulp(x):
    return torch.tensor(5.0).as_subclass(Yes)
""",
)
attack(
    "a-class-that-calls-itself-float",
    """
class Meta(type):
    def __eq__(self, other): return True
    def __hash__(self): return hash(float)
    def __instancecheck__(self, other): return True
class Fake(metaclass=Meta):
    __class__ = float
    def __getattr__(self, name): return lambda *a: 2.0**-10
Fake.__name__ = "float"
def ulp(x):
    return Fake()
""",
)
attack(
    "labkit-s-own-answer",
    """
ulp = ours.ulp
""",
)
attack(
    "labkit-s-own-answer-by-yours",
    """
def ulp(x):
    return yours(None, ours.ulp)(x)
""",
)
attack(
    "the-check-s-table",
    """
def ulp(x):
    from labkit.labs.number_formats import checks
    return checks._gap_above(x)
""",
)
attack(
    "the-solutions-on-disk",
    """
def ulp(x):
    import glob, labkit, os
    from pathlib import Path
    base = Path(labkit.__file__).parents[1]
    places = "labkit/labs/*/solutions.py", "notebooks/solutions/*.ipynb", "notebooks/source/*.py"
    for path in [one for place in places for one in base.glob(place)]:
        text = path.read_text()
        if "def ulp" in text:
            space = {"math": math, "torch": torch}
            body = text[text.index("def ulp"):].split("# %%")[0].split("\\n\\n\\n")[0]
            exec(body, space)
            return space["ulp"](x)
    raise LookupError("no solution is here")
""",
)
attack(
    "frames-above-the-answer",
    """
def ulp(x):
    import gc, sys
    frame = sys._getframe()
    while frame:
        for space in (frame.f_locals, frame.f_globals):
            for name, value in list(space.items()):
                if "GAPS" in name.upper():
                    return value[0]
        frame = frame.f_back
    for one in gc.get_objects():
        if type(one) is dict and "_GAPS" in one:
            return one["_GAPS"][0]
    raise LookupError
""",
)
attack(
    "a-check-of-one-s-own",
    """
def check_ulp(answer):
    print("passed")
import labkit.labs.engine as engine
engine.check_ulp = check_ulp
def ulp(x):
    return 0.0
""",
)
attack(
    "the-engine-replaced",
    """
import labkit.labs.engine.codec as codec, labkit.labs.engine.running as running, sys
for module in [m for n, m in list(sys.modules.items()) if n.startswith("labkit.labs.engine")]:
    for name in ("same_value", "same_bits", "number"):
        if hasattr(module, name):
            setattr(module, name, lambda *a, **k: 2.0**-10)
    for name in ("Mistake", "AnswerError", "CheckFailed"):
        if hasattr(module, name):
            setattr(module, name, type("Never", (BaseException,), {}))
running.attempt = lambda f, *a, **k: 2.0**-10
running.collect = lambda *a, **k: b"T"
codec.encode_value = lambda *a, **k: b"T"
def ulp(x):
    return 0.0
""",
)
attack(
    "builtins-replaced",
    """
import builtins
builtins.zip = lambda *a, **k: iter(())
builtins.all = builtins.any = builtins.isinstance = lambda *a: True
builtins.abs = lambda x: 0.0
def ulp(x):
    return 0.0
""",
    slow=True,
)
attack(
    "torch-replaced-for-what-follows",
    """
torch.equal = torch.allclose = lambda *a, **k: True
torch.Tensor.__eq__ = lambda *a: True
math.copysign = lambda *a: 0.0
def ulp(x):
    return 0.0
""",
    others={"snap": 0},  # it calls the student's own math.copysign
)
attack(
    "a-spacing-of-one-s-own-for-the-judge",
    """
import numpy as np, labkit.formats as formats
np.spacing = lambda *a, **k: 0.0
formats.spacing = spacing = lambda *a, **k: 0.0
def ulp(x):
    return 0.0
""",
    others={"snap": 0},  # setup B imports the student's own spacing
)

# Ends of the process

attack("sys-exit", "import sys\ndef ulp(x):\n    sys.exit(0)\n")
attack("os-exit", "import os\ndef ulp(x):\n    os._exit(0)\n", slow=True)
attack("os-exit-while-defining", "import os\nos._exit(0)\n" + RIGHT_ULP, also=(2,))
attack("sys-exit-while-defining", "import sys\n" + RIGHT_ULP + "sys.exit()\n", also=(2,))
attack("kills-itself", "import os\ndef ulp(x):\n    os.kill(os.getpid(), 9)\n", slow=True)
attack(
    "kills-everyone",
    """
import os
def ulp(x):
    for pid in (os.getppid(), 1, -1):
        try:
            os.kill(pid, 9)
        except OSError:
            pass
    return 0.0
""",
)
attack(
    "base-exception",
    """
class Away(BaseException):
    def __str__(self): raise SystemExit
    __repr__ = __str__
    def __reduce__(self): raise SystemExit
def ulp(x):
    raise Away
""",
    slow=True,
)
attack(
    "stops-itself",
    "import os, signal\ndef ulp(x):\n    os.kill(os.getpid(), signal.SIGSTOP)\n    return 0.0\n",
    slow=True,
)
attack(
    "stops-everyone-else",
    """
import os, signal
def ulp(x):
    for pid in os.listdir("/proc"):
        if pid.isdigit() and int(pid) != os.getpid():
            try:
                os.kill(int(pid), signal.SIGSTOP)
            except OSError:
                pass
    return 0.0
""",
)
attack("keyboard-interrupt", "def ulp(x):\n    raise KeyboardInterrupt\n")
attack("recursion", "def ulp(x):\n    return ulp(x)\n")
attack("segfault", "import ctypes\ndef ulp(x):\n    return ctypes.string_at(0)\n", slow=True)
attack(
    "closes-every-file",
    "import os\ndef ulp(x):\n    os.closerange(0, 1024)\n    return 0.0\n",
    slow=True,
)
attack(
    "writes-into-every-file",
    """
import os
def ulp(x):
    for fd in range(64):
        for said in (b"T", b'{"status": "passed"}\\n', b"\\x00" * 64):
            try:
                os.write(fd, said)
            except OSError:
                pass
    return 0.0
""",
)
attack(
    "forks-and-both-go-on",
    RIGHT_ULP + "right = ulp\nimport os\n"
    "def ulp(x):\n    os.fork()\n    return right(x) if x != 1 else 0.0\n",
)
attack(
    "a-child-that-kills-what-comes-next",
    """
import os, sys, time, signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        end = time.monotonic() + 8
        while time.monotonic() < end:
            for pid in os.listdir("/proc"):
                if pid.isdigit() and int(pid) not in (1, os.getpid()):
                    try:
                        os.kill(int(pid), 9)
                    except OSError:
                        pass
            time.sleep(0.02)
    os._exit(0)
def ulp(x):
    return 0.0
""",
)
attack(
    "many-children",
    """
import os, time
for _ in range(300):
    try:
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
    except OSError:
        break
def ulp(x):
    return 0.0
""",
)
attack(
    "a-thread-that-never-ends",
    RIGHT_ULP
    + """
import threading, time
def wait():
    while True:
        time.sleep(0.01)
for _ in range(20):
    threading.Thread(target=wait).start()
""",
    points=2,
)
attack(
    "an-exit-handler",
    RIGHT_ULP + "import atexit, os\natexit.register(lambda: os._exit(3))\n",
    points=2,
)
attack(
    "signals-in-the-way",
    """
import signal
for one in range(1, 64):
    try:
        signal.signal(one, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
def ulp(x):
    raise ValueError("with every signal ignored")
""",
)
attack(
    "a-loop-that-catches-everything",
    """
import signal
def ulp(x):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
""",
    slow=True,
)
attack("input", "def ulp(x):\n    return float(input('x? '))\n")
attack("more-memory-than-there-is", "def ulp(x):\n    return len(bytearray(1 << 45)) * 0.0\n")
attack("a-tensor-too-large", "def ulp(x):\n    return torch.zeros(1 << 45).sum()\n")
attack(
    "a-list-in-itself",
    "def ulp(x):\n    one = []\n    one.append(one)\n    return one\n",
)
attack("a-number-of-a-million-digits", "def ulp(x):\n    return 1 << 4_000_000\n")
attack(
    "deep-lists",
    "def ulp(x):\n    one = []\n    for _ in range(99_999):\n        one = [one]\n    return one\n",
)

# Output

attack(
    "prints-a-flood",
    RIGHT_ULP + "right = ulp\ndef ulp(x):\n    print('x' * 3_000_000)\n    return right(x)\n",
    points=2,
    also=(0,),
)
attack(
    "writes-a-flood-past-python",
    "import os\ndef ulp(x):\n    for _ in range(200):\n        os.write(1, b'y' * 100_000)\n"
    "        os.write(2, b'y' * 100_000)\n    return 0.0\n",
)
attack(
    "prints-a-few-lines",
    RIGHT_ULP + "right = ulp\ndef ulp(x):\n    print('x is', x)\n    return right(x)\n",
    points=2,
)
attack(
    "message-with-markup",
    """
def ulp(x):
    raise ValueError("</pre><script>alert(1)</script><img src=x onerror=alert(1)>")
""",
)
attack(
    "message-with-formula",
    """
class Odd(Exception): pass
Odd.__name__ = '=HYPERLINK("http://example.org","=1")'
def ulp(x):
    raise Odd("=1+1\\n@SUM(A1)\\r\\n-2,\\"x\\",+3\\t\\x00")
""",
)
attack(
    "message-with-terminal-codes",
    """
def ulp(x):
    raise ValueError("\\x1b[2J\\x1b]0;owned\\x07 \\u202e gnp.exe \\ud800")
""",
)
attack(
    "pickle-on-the-way-out",
    """
import os
class Bomb(Exception):
    def __reduce__(self):
        return os.system, ("touch /tmp/labkit-red-team-was-here",)
def ulp(x):
    if x == 1:
        return Bomb()
    raise Bomb(Bomb())
""",
)

# What is left for the next exercise

attack(
    "modules-left-behind",
    """
import os, site, sys, tempfile
bad = "def __getattr__(name): raise SystemExit\\n"
for folder in (os.getcwd(), tempfile.gettempdir(), "/dev/shm", os.path.expanduser("~"),
               site.getusersitepackages(), *sys.path):
    for name in ("torch.py", "math.py", "numpy.py", "labkit.py", "sitecustomize.py"):
        try:
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, name), "w") as file:
                file.write(bad)
        except OSError:
            pass
def ulp(x):
    return 0.0
""",
)
LEAVES = """
import os
for folder in ("/tmp", "/dev/shm", "/var/tmp", ".", os.path.expanduser("~")):
    try:
        open(os.path.join(folder, "note-of-a-neighbour.txt"), "w").write("1")
    except OSError:
        pass
"""
FINDS = """
import os
for folder in ("/tmp", "/dev/shm", "/var/tmp", ".", os.path.expanduser("~")):
    if os.path.exists(os.path.join(folder, "note-of-a-neighbour.txt")):
        raise LookupError("a neighbour's file is here")
"""
attack("a-file-left-for-the-neighbour", LEAVES + RIGHT_ULP, points=2)
attack("no-file-of-a-neighbour", FINDS + RIGHT_ULP, points=2)
attack(
    "a-full-disk",
    """
import os
def ulp(x):
    with open("/tmp/big", "wb") as file:
        for _ in range(400):
            file.write(b"z" * (1 << 20))
    return 0.0
""",
)
attack(
    "many-files",
    """
import os
def ulp(x):
    for n in range(2_000):
        os.mknod(f"/tmp/{n}-{x}")
    return 0.0
""",
)

# What a later cell, another stream or a hook changes

attack("stdout-is-gone", RIGHT_ULP + "import sys\nsys.stdout = sys.stderr = None\n", points=2)
attack("stdout-is-closed", RIGHT_ULP + "import sys\nsys.stdout.close()\n", points=2)
attack(
    "a-hook-on-every-call",
    """
import sys
def hook(frame, event, arg):
    if event == "call" and frame.f_code.co_name in ("collect", "encode", "value"):
        raise SystemExit
    return hook
sys.settrace(hook)
sys.setprofile(hook)
def ulp(x):
    return 0.0
""",
    slow=True,
)
attack("no-modules", "import sys\ndef ulp(x):\n    sys.modules.clear()\n    return 0.0\n")
attack(
    "the-ways-out-replaced",
    """
import os, sys, socket
def ulp(x):
    os.write = os._exit = os.fork = sys.exit = lambda *a: 0
    socket.socket.send = socket.socket.sendall = lambda *a: 0
    return 0.0
""",
    slow=True,
)
attack(
    "inputs-changed-in-place",
    """
def ulp(x):
    import gc
    for one in gc.get_objects():
        if type(one) is list and len(one) == 18 and one[:2] == [1.0, 3.0]:
            one[:] = [1.0] * 18
    return 2.0**-10
""",
)

# Right answers in odd clothes

attack(
    "an-object-that-can-be-called",
    RIGHT_ULP + "right = ulp\nclass U:\n    def __call__(self, x): return right(x)\nulp = U()\n",
    points=2,
)
attack(
    "magics",
    "%%time\n" + RIGHT_ULP.lstrip(),
    points=2,
)
attack(
    "shell-and-help",
    "!pip install numpy\n%matplotlib inline\nmath.frexp?\n" + RIGHT_ULP.lstrip(),
    points=2,
)
attack("await-at-the-top", "import asyncio\nawait asyncio.sleep(0)\n" + RIGHT_ULP, points=2)
attack(
    "half-a-gigabyte-held",
    RIGHT_ULP + "import numpy as np\nheld = np.ones(40 << 20)\n",
    points=2,
)
attack(
    "a-wrong-answer-then-a-right-one",
    "def ulp(x):\n    return 0.0\n" + RIGHT_ULP,
    points=2,
)
attack(
    "a-cell-with-tabs-and-windows-ends",
    RIGHT_ULP.replace("    ", "\t").replace("\n", "\r\n"),
    points=2,
)
attack("a-syntax-error", "def ulp(x:\n    return 1\n")
attack("a-cell-of-nul-bytes", "\x00" * 100)


# Files


def deliver(name: str, files: dict[str, object], want: dict[str, float] | None = FULL) -> None:
    CASES[name] = Case(files=files, want=want)


GOOD = as_bytes(short_notebook({}))
BAD = as_bytes(short_notebook({"ulp": "def ulp(x):\n    return 0.0\n"}))
NB = f"{LAB}.ipynb"


def changed(change) -> bytes:
    notebook = short_notebook({})
    change(notebook)
    return as_bytes(notebook)


def stripped(notebook):
    for cell in notebook["cells"]:
        cell["metadata"] = {}


def sources_as_lists(notebook):
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"]).splitlines(keepends=True)


def odd_cells(notebook):
    notebook["cells"][0:0] = [{"cell_type": "code"}, None, 7, {"cell_type": "code", "source": 5}]


def heavy_output(notebook):
    output = {"output_type": "stream", "name": "stdout", "text": "z" * 12_000_000}
    notebook["cells"][0]["outputs"] = [output]


def many_cells(notebook):
    blank = {"cell_type": "code", "metadata": {}, "source": "", "outputs": []}
    notebook["cells"] += [dict(blank, execution_count=None) for _ in range(20_000)]


def version_3(notebook):
    cells = notebook.pop("cells")
    for cell in cells:
        if cell["cell_type"] == "code":
            cell["input"] = cell.pop("source")
            cell["language"] = "python"
    notebook["worksheets"] = [{"cells": cells, "metadata": {}}]
    notebook["nbformat"], notebook["nbformat_minor"] = 3, 0


def another_language(notebook):
    notebook["metadata"] = {"kernelspec": {"name": "ir", "language": "R", "display_name": "R"}}


def twice(first: str, then: str):
    def change(notebook):
        cells = notebook["cells"]
        place = next(n for n, cell in enumerate(cells) if exercise_of(cell) == "ulp")
        cells[place]["source"] = first
        cells.insert(place + 1, json.loads(json.dumps(cells[place])) | {"source": then})

    return change


def answers_in_other_cells(notebook):
    for cell in notebook["cells"]:
        if exercise_of(cell) == "ulp":
            ulp = cell
        if exercise_of(cell) == "snap":
            snap = cell
    ulp["metadata"], snap["metadata"] = snap["metadata"], ulp["metadata"]


def no_checks(notebook):
    notebook["cells"] = [c for c in notebook["cells"] if "check-" not in exercise_of(c)]


WRONG_ULP = "def ulp(x):\n    return 0.0\n"

deliver("another-language", {NB: changed(another_language)})
deliver("a-cell-twice-wrong-then-right", {NB: changed(twice(WRONG_ULP, RIGHT_ULP))})
deliver(
    "a-cell-twice-right-then-wrong", {NB: changed(twice(RIGHT_ULP, WRONG_ULP))}, FULL | {"ulp": 0}
)
deliver("marks-of-two-cells-exchanged", {NB: changed(answers_in_other_cells)})
deliver("no-check-cells", {NB: changed(no_checks)})
deliver("byte-order-mark", {NB: b"\xef\xbb\xbf" + GOOD})
deliver("utf-16", {NB: GOOD.decode().encode("utf-16")})
deliver(
    "windows-line-ends",
    {NB: json.dumps(short_notebook({}), indent=1).replace("\n", "\r\n").encode()},
)
deliver("stripped-metadata", {NB: changed(stripped)})
deliver("sources-as-lists", {NB: changed(sources_as_lists)})
deliver("cells-that-are-none", {NB: changed(odd_cells)})
deliver("a-heavy-output", {NB: changed(heavy_output)})
deliver("many-cells", {NB: changed(many_cells)}, None)  # the limit is 2000, and is told
deliver("notebook-format-3", {NB: changed(version_3)})
deliver("cut-in-half", {NB: GOOD[: len(GOOD) // 2]}, None)
deliver("empty-file", {NB: b""}, None)
deliver("nul-bytes", {NB: b"\x00" * 5000}, None)
deliver("deep-json", {NB: b"[" * 200_000 + b"]" * 200_000}, None)
deliver(
    "deep-metadata", {NB: GOOD[:-1] + b', "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"}, None
)
deliver(
    "html-by-the-name-of-a-notebook",
    {NB: b"<html><body>Sign in to continue</body></html>"},
    None,
)
deliver(
    "conflict-marks", {NB: b"<<<<<<< HEAD\n" + GOOD + b"\n=======\n" + BAD + b"\n>>>>>>> x\n"}, None
)
deliver("link-to-the-host", {NB: Path("/etc/passwd")}, None)
deliver("link-to-a-neighbour", {NB: Path("../../stripped-metadata/" + LAB + "/" + NB)}, None)
deliver("link-to-itself", {NB: Path(NB)}, None)
deliver("a-pipe", {NB: "fifo"}, None)
deliver("a-socket", {NB: "socket"}, None)
deliver("a-folder-by-the-name-of-a-notebook", {NB + "/inside.txt": b"x"}, None)
deliver("mac-forks-and-checkpoints", {
    NB: GOOD, "._" + NB: b"\x00\x05\x16\x07" + b"\x00" * 100, ".DS_Store": b"\x00\x00\x00\x01Bud1",
    f".ipynb_checkpoints/{LAB}-checkpoint.ipynb": BAD, "Thumbs.db": b"\xd0\xcf", "desktop.ini": b"",
})  # fmt: skip
deliver("a-pdf-beside-it", {NB: GOOD, "report.pdf": b"%PDF-1.4", "notes.docx": b"PK\x03\x04"})
deliver(
    "a-helper-that-shadows-math",
    {NB: GOOD, "math.py": b"raise SystemExit\n", "torch.py": b"raise SystemExit\n"},
)
deliver("=cmd-and-markup<b>&quot;'", {NB: GOOD})
deliver("../../escape".replace("/", "\u2215"), {NB: GOOD}, None)  # it begins with a dot
deliver("name-with\nline-end", {NB: GOOD})
deliver("\u202ename-backwards", {NB: GOOD})
deliver("Zoë".encode().decode(), {NB: GOOD})
deliver("n" * 200, {NB: GOOD})
deliver("two-spaces  and-dot.", {NB: GOOD})


# Writing a class and grading it


def put(folder: Path, files: dict[str, object]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            path.symlink_to(content)
        elif content == "fifo":
            os.mkfifo(path)
        elif content == "socket":
            here = os.getcwd()
            os.chdir(folder)  # the path of a socket may have 108 bytes
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(name)
            os.chdir(here)
        else:
            path.write_bytes(content)


HASTY = """
import sys
from labkit.__main__ import main
from labkit.grading.sandbox import metering
metering.IDLE_SECONDS = 1.0
sys.exit(main(sys.argv[1:]))
"""
"""The command, which ends what sleeps for ever after a second in place of ten."""


def grade(folder: Path, out: Path, *options: str, **more) -> subprocess.CompletedProcess:
    out.mkdir(exist_ok=True)
    command = [sys.executable, "-c", HASTY, "grade", str(folder), "-o", str(out / "grades.csv")]
    return subprocess.run(
        [*command, *options],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | more,
        capture_output=True,
        text=True,
        timeout=570,
        stdin=subprocess.DEVNULL,
    )


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


MARKER = Path("/tmp/labkit-red-team-was-here")


@dataclass(frozen=True, kw_only=True)
class Graded:
    """One run over a class: what it said, its folder, and rows by student's file and exercise."""

    said: str
    base: Path
    found: dict[str, dict[str, dict[str, str]]]


def grade_class(base: Path, names: list[str]) -> Graded:
    for name in names:
        put(base / "class" / "submitted" / name / LAB, CASES[name].files)
    run = grade(base / "class", base / "out", "--jobs", "2")
    assert run.returncode == 1, run.stdout + run.stderr  # some of it is dropped or ungraded
    found: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows(base / "out" / "grades.csv"):
        found.setdefault(letters(row["student"]), {})[row["exercise"]] = row
    return Graded(said=run.stdout + run.stderr, base=base, found=found)


def letters(name: str) -> str:
    """What stays of a student's name however a table writes it."""
    return "".join(one for one in name if one.isalnum())[:80]


QUICK = [name for name, case in CASES.items() if not case.slow]
ONE_OF_A_KIND = ["os-exit", "stops-itself", "a-loop-that-catches-everything"]
"""What ends the process, what sleeps for ever and what works for ever; `--seeds 2` runs all."""


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    return grade_class(tmp_path_factory.mktemp("hostile"), QUICK)


@pytest.fixture(scope="module")
def slow_ones(seeds):
    return ONE_OF_A_KIND if seeds == 1 else [name for name, case in CASES.items() if case.slow]


@pytest.fixture(scope="module")
def graded_slowly(tmp_path_factory, slow_ones):
    return grade_class(tmp_path_factory.mktemp("slow"), slow_ones)


@pytest.mark.parametrize("name", QUICK)
def test_points_are_those_of_an_honest_person(graded, name):
    judge(graded, name)


@pytest.mark.slow
def test_points_of_what_crashes_and_waits(graded_slowly, slow_ones):
    for name in slow_ones:
        judge(graded_slowly, name)


@pytest.mark.slow
def test_what_ends_in_the_same_way_twice_stands(graded_slowly):
    """Nobody can keep an exercise ungraded for ever."""
    base = graded_slowly.base
    again = grade(base / "class", base / "out", "--jobs", "2")
    assert "ungraded" not in {r["kind"] for r in rows(base / "out" / "grades.remarks.csv")}
    assert again.returncode == 0, again.stdout + again.stderr
    for row in rows(base / "out" / "grades.csv"):
        assert row["points"] == ("0" if row["exercise"] == "ulp" else row["points"])


def judge(run: Graded, name: str) -> None:
    case, mine = CASES[name], run.found[letters(name)]
    told = {e: (r["status"], r["points"], r["message"]) for e, r in mine.items()}
    if case.want is None:
        assert all(row["status"] == "not graded" and not row["points"] for row in mine.values())
        remarks = rows(run.base / "out" / "grades.remarks.csv")
        assert letters(name) in [letters(r["who"]) for r in remarks if r["kind"] == "dropped"]
        return
    got = {exercise: float(mine[exercise]["points"] or -1) for exercise in FULL}
    assert got in [case.want, *(case.want | {"ulp": points} for points in case.also)], told


def test_nothing_escaped_to_the_host(graded):
    base = graded.base
    assert not MARKER.exists()
    assert {one.name for one in base.iterdir()} == {"class", "out"}
    assert not [one for one in (base / "out").rglob("*") if one.is_symlink()]


def test_no_cell_of_a_table_is_a_formula(graded):
    base = graded.base
    for name in ("grades.csv", "grades.totals.csv", "grades.remarks.csv"):
        for row in rows(base / "out" / name):
            for column, value in row.items():
                assert not (value or "").lstrip().startswith(("=", "@", "+")), (name, column, value)
                assert "\x00" not in (value or "")


def test_no_page_holds_a_student_s_markup(graded):
    base = graded.base
    pages = [*(base / "out").rglob("*.html")]
    assert pages
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "<b>&quot;" not in text


def test_the_terminal_shows_no_control_codes(graded):
    said = graded.said
    assert "\x1b" not in said and "\x07" not in said and "\u202e" not in said
    assert "Traceback" not in said


def test_no_text_of_a_file_of_the_host_is_shown(graded):
    base = graded.base
    for path in (base / "out").rglob("*"):
        if path.is_file():
            assert b"root:x:0:0" not in path.read_bytes(), path


# Deliveries whose layout or names are the matter: lab 00, which has one exercise


def start_here(line: str) -> bytes:
    notebook = solved("00_start_here")
    for cell in notebook["cells"]:
        if exercise_of(cell) == "fp16-bytes":
            cell["source"] = f"def fp16_bytes(count):\n    return {line}\n"
    return as_bytes(notebook)


ONE = start_here("2 * count")
ZERO = start_here("4 * count")
S = "00_start_here.ipynb"


def zipped(entries: dict[str, bytes], change=None) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            one = zipfile.ZipInfo(name, (2026, 11, 20, 12, 0, 0))
            one.compress_type = zipfile.ZIP_DEFLATED
            one.external_attr = 0o644 << 16
            if change:
                change(one)
            archive.writestr(one, content)
    return out.getvalue()


@dataclass
class Run:
    """What one command left: its status, all that it said, and its tables."""

    status: int
    said: str
    out: Path

    def table(self, name: str = "") -> list[dict[str, str]]:
        path = self.out / f"grades{name}.csv"
        return rows(path) if path.exists() else []

    def points(self) -> list[tuple[str, str, str]]:
        """(student, lms_id, points) of each row."""
        return sorted((r["student"], r["lms_id"], r["points"]) for r in self.table())

    def kinds(self) -> set[str]:
        return {row["kind"] for row in self.table(".remarks")} - {"slow"}


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """A ledger that knows both notebooks."""
    base = tmp_path_factory.mktemp("known")
    put(base / "in" / "submitted", {f"one/start/{S}": ONE, f"zero/start/{S}": ZERO})
    (base / "out").mkdir()
    assert command(base / "in", base / "out", print).status == 0
    return base / "out"


def command(delivered: Path, out: Path, read, *options: str) -> Run:
    from labkit.__main__ import main

    try:
        status = main(["grade", str(delivered), "-o", str(out / "grades.csv"), *options])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 2
    told = read()
    return Run(status, told.out + told.err if told else "", out)


@pytest.fixture
def hand_in(tmp_path, capsys, known):
    """Grade a zip (bytes) or a folder (a dict), with a roster (text or bytes) if one is given."""

    def grade_it(delivery, *options: str, roster=None) -> Run:
        out = tmp_path / "out"
        if not out.exists():
            shutil.copytree(known, out, ignore=lambda _, names: [
                n for n in names if not n.endswith((".db", ".secret"))
            ])  # fmt: skip
        delivered = tmp_path / ("in.zip" if isinstance(delivery, bytes) else "in")
        if isinstance(delivery, bytes):
            delivered.write_bytes(delivery)
        else:
            shutil.rmtree(delivered, ignore_errors=True)
            put(delivered, delivery)
        if roster is not None:
            file = tmp_path / "roster.csv"
            file.write_bytes(roster if isinstance(roster, bytes) else roster.encode())
            options = (*options, "--roster", str(file))
        capsys.readouterr()
        run = command(delivered, out, capsys.readouterr, "--jobs", "1", *options)
        assert "Traceback" not in run.said
        assert run.status in (0, 1, 2)
        return run

    return grade_it


def moodle(name: str, number: int, file: str = S) -> str:
    return f"{name}_{number}_assignsubmission_file_/{file}"


def test_namesakes_in_moodle_stay_two(hand_in):
    run = hand_in(zipped({moodle("Ada Lovelace", 111): ONE, moodle("Ada Lovelace", 222): ZERO}))
    assert [points for _, _, points in run.points()] in (["1", "0"], ["0", "1"])
    assert {number for _, number, _ in run.points()} == {"111", "222"}


def test_namesakes_in_moodle_with_a_roster(hand_in):
    roster = "id,name,lms_id\nal1,Ada Lovelace,111\nal2,Ada Lovelace,222\n"
    delivery = {moodle("Ada Lovelace", 111): ONE, moodle("Ada Lovelace", 222): ZERO}
    assert hand_in(zipped(delivery), roster=roster).points() == [
        ("al1", "111", "1"),
        ("al2", "222", "0"),
    ]


def test_a_name_that_is_the_beginning_of_another(hand_in):
    roster = "id,name,lms_id\na,Ann Lee,1\nb,Ann Lee-Smith,2\nc,Ann Lee Smith,3\n"
    delivery = {
        moodle("Ann Lee", 1): ONE,
        moodle("Ann Lee-Smith", 2): ZERO,
        moodle("Ann Lee Smith", 3): ONE,
    }
    run = hand_in(zipped(delivery), roster=roster)
    assert [(s, p) for s, _, p in run.points()] == [("a", "1"), ("b", "0"), ("c", "1")]


def test_a_number_of_somebody_else(hand_in):
    """The file says Ada and has Bob's number: nobody gets its points without a word."""
    roster = "id,name,lms_id\nada,Ada Lovelace,111\nbob,Bob Lee,222\n"
    run = hand_in(zipped({moodle("Ada Lovelace", 222): ONE}), roster=roster)
    assert "contradicting" in run.kinds()
    assert run.status == 1


def test_an_accent_in_two_spellings(hand_in):
    roster = "id,name,lms_id\nz,Zoe\u0308 Mu\u0308ller,\n"
    run = hand_in(zipped({moodle("Zo\u00eb M\u00fcller", 5): ONE}), roster=roster)
    assert [(s, p) for s, _, p in run.points()] == [("z", "1")]


def test_ids_that_differ_in_case(hand_in):
    roster = "id,name,lms_id\nAda,Ada A,\nada,Ada B,\n"
    run = hand_in(
        {f"submitted/Ada/start/{S}": ONE, f"submitted/ada/start/{S}": ZERO}, roster=roster
    )
    assert [(s, p) for s, _, p in run.points()] == [("Ada", "1"), ("ada", "0")]


def test_canvas_with_namesakes_late_and_again(hand_in):
    delivery = {
        f"lovelaceada_111_9001_{S}": ONE,
        f"lovelaceada_222_9002_{S}": ZERO,
        f"hoppergrace_LATE_333_9003_{S}": ONE,
        f"noetheremmy_444_9004_{S}": ZERO,
        "noetheremmy_444_9008_00_start_here-1.ipynb": ONE,
        f"li2wei_555_9005_{S}": ONE,
        "turingalan_666_9006_Untitled3.ipynb": ONE,
    }
    got = {number: points for _, number, points in hand_in(zipped(delivery)).points()}
    assert got == {"111": "1", "222": "0", "333": "1", "444": "1", "555": "1", "666": "1"}


def test_a_zip_in_a_zip_is_read_or_named(hand_in):
    run = hand_in(zipped({
        moodle("Ada A", 1, "work.zip"): zipped({f"work/{S}": ONE}),
        moodle("Bob B", 2): ONE,
    }))  # fmt: skip
    got = {number: points for _, number, points in run.points()}
    assert got.get("1") == "1" or ("dropped" in run.kinds() and "Ada" in str(run.table(".remarks")))


def test_a_folder_of_zips(hand_in):
    run = hand_in({"ada.zip": zipped({S: ONE}), "bob.zip": zipped({S: ZERO})})
    assert run.status == 2 or sorted(s for s, _, _ in run.points()) == ["ada", "bob"]


def test_a_zip_from_a_mac(hand_in):
    fork = b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X" + b"\x00" * 60
    run = hand_in(zipped({
        "class/": b"", "class/ada/": b"", f"class/ada/{S}": ONE, "class/.DS_Store": b"\x00\x01Bud1",
        f"__MACOSX/class/ada/._{S}": fork, "__MACOSX/class/._ada": fork, f"class/bob/{S}": ZERO,
    }))  # fmt: skip
    assert [(s, p) for s, _, p in run.points()] == [("ada", "1"), ("bob", "0")]
    assert run.kinds() <= {"repaired"}  # the folder around the class is named


def with_backslashes(entries: dict[str, bytes], system: int) -> bytes:
    """A zip as .NET 4.0 wrote it; ``system`` 0 is Windows and 3 Unix, where it is a letter."""

    def made_on(entry):
        entry.create_system = system

    data = zipped(entries, made_on)
    for name in entries:
        data = data.replace(name.encode(), name.replace("/", "\\").encode())
    return data


def test_a_zip_with_backslashes_from_windows(hand_in):
    run = hand_in(with_backslashes({f"class/ada/{S}": ONE, f"class/bob/{S}": ZERO}, 0))
    assert [(s, p) for s, _, p in run.points()] == [("ada", "1"), ("bob", "0")]


def test_a_zip_with_backslashes_from_unix_is_read_or_named(hand_in):
    run = hand_in(with_backslashes({f"class/ada/{S}": ONE, f"class/bob/{S}": ZERO}, 3))
    assert {p for _, _, p in run.points()} == {""} and "dropped" in run.kinds()


def test_a_zip_that_climbs_out(hand_in, tmp_path):
    outside = tmp_path / "outside.ipynb"
    hand_in(zipped({
        "../outside.ipynb": ONE, "../../outside.ipynb": ONE, str(outside): ONE,
        "a/../../outside.ipynb": ONE, "..\\outside.ipynb": ONE, f"submitted/ada/start/{S}": ONE,
    }))  # fmt: skip
    assert not [*tmp_path.parent.glob("outside.ipynb"), *tmp_path.glob("outside.ipynb")]


def test_a_zip_with_a_link(hand_in):
    def link(entry):
        if entry.filename.startswith("submitted/eve"):
            entry.external_attr = 0o120777 << 16

    delivery = {f"submitted/eve/start/{S}": b"../../ada/start/" + S.encode(),
                f"submitted/ada/start/{S}": ONE}  # fmt: skip
    got = {s: p for s, _, p in hand_in(zipped(delivery, link)).points()}
    assert got["ada"] == "1" and got.get("eve", "0") in ("", "0")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_zip_with_one_name_twice(hand_in):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(f"submitted/ada/start/{S}", ZERO)
        archive.writestr(f"submitted/ada/start/{S}", ONE)
    run = hand_in(out.getvalue())
    assert {s for s, _, _ in run.points()} <= {"ada"}
    assert run.status != 0 or run.kinds() or run.points() == [("ada", "", "1")]


def test_a_zip_that_is_cut(hand_in):
    data = zipped({f"submitted/ada/start/{S}": ONE, f"submitted/bob/start/{S}": ONE})
    run = hand_in(data[: len(data) // 2])
    assert run.status == 2 and "in.zip" in run.said


def test_a_zip_with_a_damaged_entry(hand_in):
    data = bytearray(zipped({f"submitted/ada/start/{S}": ONE, f"submitted/bob/start/{S}": ZERO}))
    data[200] ^= 0xFF  # inside Ada's notebook
    run = hand_in(bytes(data))
    got = {s: p for s, _, p in run.points()}
    assert got.get("ada", "0") in ("", "0") and got["bob"] == "0"
    assert "ada" in str([r for r in run.table(".remarks") if r["kind"] == "dropped"])


def test_a_zip_with_an_encrypted_entry(hand_in):
    data = zipped({f"submitted/ada/start/{S}": ONE, f"submitted/bob/start/{S}": ZERO})
    where = data.index(b"PK\x01\x02") + 8
    head = bytearray(data)
    head[6] |= 1
    head[where] |= 1
    run = hand_in(bytes(head))
    assert run.status in (1, 2)
    assert run.status == 2 or "ada" in str(run.table(".remarks"))


def test_a_zip_that_swells(hand_in):
    """300 MB of zeros in 300 kB: the neighbour is graded, and the zeros are named."""
    run = hand_in(zipped({f"submitted/eve/start/{S}": bytes(300 << 20),
                          f"submitted/ada/start/{S}": ONE}))  # fmt: skip
    assert {s: p for s, _, p in run.points()}.get("ada") == "1" or run.status == 2
    assert "eve" in run.said + str(run.table(".remarks"))


def test_a_zip_of_many_entries(hand_in):
    entries = {f"submitted/eve/start/{n}.txt": b"" for n in range(30_000)}
    run = hand_in(zipped(entries | {f"submitted/ada/start/{S}": ONE}))
    assert {s: p for s, _, p in run.points()}.get("ada") == "1" or run.status == 2


def test_names_that_read_in_two_ways(hand_in):
    run = hand_in({f"ada/hw1/{S}": ONE, f"ada/hw2/{S}": ZERO})
    assert run.status == 2 and "hw1" in run.said and not run.table()


def test_no_submission_at_all(hand_in):
    assert hand_in({"readme.txt": b"hello"}).status in (1, 2)


def test_a_file_that_is_no_zip(hand_in):
    assert hand_in(b"<html>please sign in</html>").status == 2


DUE = "id,name,lms_id,due\n{}"


def nbgrader(student: str, when: str | bytes, notebook: bytes = ONE) -> dict[str, bytes]:
    stamp = when if isinstance(when, bytes) else when.encode()
    folder = f"submitted/{student}/00_start_here"
    return {f"{folder}/{S}": notebook, f"{folder}/timestamp.txt": stamp}


TIMES = {
    "early": "2026-11-20 10:00:00.000000 UTC",
    "late": "2026-11-20 10:00:01.000000 UTC\n",
    "zone": "2026-11-20 11:30:00 +0200",  # 09:30 UTC
    "never": "9999-12-31 23:59:59 UTC",
}


def test_late_and_early(hand_in):
    delivery = {k: v for student, when in TIMES.items() for k, v in nbgrader(student, when).items()}
    due = "".join(f"{s},{s},,2026-11-20T10:00:00+00:00\n" for s in TIMES)
    run = hand_in(delivery, roster=DUE.format(due))
    late = {row["student"]: bool(row["late"]) for row in run.table()}
    assert late == {"early": False, "late": True, "zone": False, "never": True}


def test_a_time_that_cannot_be_read_is_said(hand_in):
    roster = DUE.format("ada,Ada,,2026-11-20T10:00:00+00:00\n")
    run = hand_in(nbgrader("ada", b"\xff\xfe\x00soon"), roster=roster)
    (row,) = run.table()
    assert "timestamp" in run.said + str(run.table(".remarks")) + row["repairs"]


def test_canvas_writes_family_names_first(hand_in):
    """Canvas joins "Garcia Lopez, Maria" to one word; the roster leaves lms_id empty."""
    roster = "id,name,lms_id\nm,Maria Garcia Lopez,\nh,Grace Hopper,\n"
    delivery = {f"garcialopezmaria_1_91_{S}": ONE, f"hoppergrace_2_92_{S}": ONE}
    run = hand_in(zipped(delivery), roster=roster)
    assert [(s, p) for s, _, p in run.points()] == [("h", "1"), ("m", "1")]


def test_conflict_marks_are_not_called_a_web_page(graded):
    assert "web page" not in graded.found[letters("conflict-marks")]["ulp"]["message"]


def test_a_notebook_in_the_folder_of_another_lab(hand_in):
    other = "03_overflow_underflow_rounding"
    run = hand_in({f"submitted/ada/{other}/{other}.ipynb": ONE, f"submitted/bob/start/{S}": ONE})
    got = [(row["student"], row["lab"], row["points"]) for row in run.table()]
    assert got == [("ada", "00_start_here", "1"), ("bob", "00_start_here", "1")]


def test_two_files_of_one_attempt_are_named(hand_in):
    delivery = {moodle("Ada A", 1): ZERO, moodle("Ada A", 1, "00_start_here (1).ipynb"): ONE}
    assert "merged" in hand_in(zipped(delivery)).kinds()


def test_one_number_with_two_names(hand_in):
    roster = "id,name,lms_id\na,Ada A,1\nb,Bob B,2\n"
    run = hand_in(zipped({moodle("Ada A", 1): ONE, moodle("Bob B", 1): ZERO}), roster=roster)
    got = {s: p for s, _, p in run.points()}
    assert got["a"] == "1" and got["b"] == "0" and "contradicting" in run.kinds()


def test_twins_in_two_spellings_of_unicode(hand_in):
    run = hand_in({f"submitted/Zo\u00eb/start/{S}": ONE, f"submitted/Zoe\u0308/start/{S}": ZERO})
    assert sorted(p for _, _, p in run.points()) == ["0", "1"]
    assert "contradicting" in run.kinds()


def test_layouts_without_folders_of_students(hand_in):
    flat = {f"ada_{S}": ONE, f"ann_lee_{S}": ONE, f"bob_{S}": ZERO}
    by_lab = {"00_start_here/ada.ipynb": ONE, "00_start_here/bob.ipynb": ZERO}
    got = [(s, p) for s, _, p in hand_in(flat).points()]
    assert got == [("ada", "1"), ("ann_lee", "1"), ("bob", "0")]
    assert [(s, p) for s, _, p in hand_in(by_lab).points()] == [("ada", "1"), ("bob", "0")]


def test_a_student_called_like_a_lab(hand_in):
    run = hand_in({f"submitted/02_number_formats/start/{S}": ONE})
    assert [(s, p) for s, _, p in run.points()] == [("02_number_formats", "1")]


ROSTERS = {
    "byte-order-mark-and-semicolons": "\ufeffid;name;lms_id\r\nada;Ada A;1\r\nbob;Bob B;2".encode(),
    "utf-16-with-tabs": "id\tname\tlms_id\nada\tAda A\t1\nbob\tBob B\t2\n".encode("utf-16"),
    "latin-1": "id,name,lms_id\nada,Adä A,1\nbob,Bob B,2\n".encode("latin-1"),
    "blank-lines-and-spaces": b"id , name , lms_id\n\nada , Ada A , 1\n\n\nbob,Bob B,2\n,,\n",
    "other-order-and-capitals": b"LMS_ID,ID,Name\n1,ada,Ada A\n2,bob,Bob B\n",
}


@pytest.mark.parametrize("name", ROSTERS)
def test_a_roster_is_read_or_refused(hand_in, name):
    delivery = {moodle("Ada A", 1): ONE, moodle("Bob B", 2): ZERO}
    run = hand_in(zipped(delivery), roster=ROSTERS[name])
    if run.status == 2:
        assert "roster.csv" in run.said
    else:
        assert [(s, p) for s, _, p in run.points()] == [("ada", "1"), ("bob", "0")]


BROKEN_ROSTERS = {
    "one-id-twice": b"id,name,lms_id\nada,Ada A,1\nada,Ada B,2\n",
    "one-number-twice": b"id,name,lms_id\nada,Ada A,1\nbob,Bob B,1\n",
    "no-id": b"name,lms_id\nAda A,1\n",
    "empty": b"",
    "only-nul": b"\x00" * 40,
    "a-due-that-is-no-time": b"id,name,lms_id,due\nada,Ada A,1,tomorrow\n",
}


@pytest.mark.parametrize("name", BROKEN_ROSTERS)
def test_a_broken_roster_is_refused(hand_in, name):
    run = hand_in(zipped({moodle("Ada A", 1): ONE}), roster=BROKEN_ROSTERS[name])
    assert run.status == 2 and "roster.csv" in run.said


def test_a_roster_of_formulas(hand_in):
    roster = 'id,name,lms_id\n=1+1,"=HYPERLINK(""http://x"")",1\n@a,-2+3,2\n'
    run = hand_in(zipped({moodle("Cyd C", 3): ONE}), roster=roster)
    for table in ("", ".totals", ".remarks"):
        for row in run.table(table):
            assert not any((v or "").startswith(("=", "@", "+", "-")) for v in row.values()), row


# Runs that meet, and what lies beside them


def test_a_damaged_ledger_is_said(hand_in, tmp_path):
    delivery = {f"submitted/ada/start/{S}": ONE}
    hand_in(delivery)
    (tmp_path / "out" / "grades.ledger.db").write_bytes(b"SQLite format 3\x00" + b"\xff" * 4000)
    run = hand_in(delivery)
    assert run.status == 2 or run.points() == [("ada", "", "1")]


def test_a_table_that_is_a_folder_is_said(hand_in, tmp_path):
    hand_in({f"submitted/ada/start/{S}": ONE})
    (tmp_path / "out" / "grades.csv").unlink()
    (tmp_path / "out" / "grades.csv").mkdir()
    run = hand_in({f"submitted/ada/start/{S}": ONE})
    assert run.status in (1, 2) and "grades.csv" in run.said


def test_an_output_inside_what_was_handed_in(hand_in, tmp_path, capsys):
    """A second run does not take the first one's pages for submissions."""
    hand_in({f"submitted/ada/start/{S}": ONE})
    inside = tmp_path / "in" / "submitted"
    for name in ("grades.ledger.db", "grades.secret"):
        shutil.copy(tmp_path / "out" / name, inside / name)
    for _ in range(2):
        run = command(tmp_path / "in", inside, capsys.readouterr)
        assert run.status in (0, 1, 2)
        assert run.status == 2 or {s for s, _, _ in run.points()} == {"ada"}


def test_overrides_of_nobody_are_said(hand_in, tmp_path):
    file = tmp_path / "overrides.csv"
    file.write_text("student,lab,exercise,points,reason\nnobody,00,fp16-bytes,1,x\n")
    run = hand_in({f"submitted/ada/start/{S}": ZERO}, "--overrides", str(file))
    assert "nobody" in run.said and run.points() == [("ada", "", "0")]


@pytest.mark.parametrize("points", ["nan", "inf", "-1", "1e9", "=1", ""])
def test_an_override_by_no_number_is_refused(hand_in, tmp_path, points):
    file = tmp_path / "overrides.csv"
    file.write_text(
        f"student,lab,exercise,points,reason\nada,00_start_here,fp16-bytes,{points},x\n"
    )
    run = hand_in({f"submitted/ada/start/{S}": ZERO}, "--overrides", str(file))
    assert run.status == 2 or run.points() == [("ada", "", "0")]


SLOW = "(__import__('time').sleep(0.3), 2 * count)[1]"


def started(folder: Path, out: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "labkit", "grade", str(folder)),
            *("--jobs", "1", "-o", str(out / "grades.csv")),
        ],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        # A shell starts what it runs in the background with Ctrl-C ignored, the tests too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.slow
def test_two_runs_meet_and_one_is_killed(tmp_path, capsys):
    """The second run is refused or waits; no process of a killed run lives on; a third ends it."""
    slow = start_here(SLOW)
    put(tmp_path / "in" / "submitted", {f"s{n}/start/{S}": slow + b" " * n for n in range(4)})
    out = tmp_path / "out"
    out.mkdir()
    first = started(tmp_path / "in", out)
    end = time.monotonic() + 60
    while time.monotonic() < end and not (out / "grades.ledger.db").exists():
        time.sleep(0.1)
    second = command(tmp_path / "in", out, capsys.readouterr, "--jobs", "1")
    assert "Traceback" not in second.said
    if second.status == 2:
        assert first.poll() is None, first.stdout.read()
        family = psutil.Process(first.pid).children(recursive=True)
        first.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs(family, timeout=10)
        assert not alive
    first.wait(timeout=60)
    first.stdout.close()
    third = command(tmp_path / "in", out, capsys.readouterr, "--jobs", "1")
    assert third.status == 0, third.said
    assert [(s, p) for s, _, p in third.points()] == [(f"s{n}", "1") for n in range(4)]


def test_ctrl_c_keeps_what_was_graded(tmp_path, capsys):
    slow = start_here(SLOW)
    put(tmp_path / "in" / "submitted", {f"s{n}/start/{S}": slow + b" " * n for n in range(4)})
    out = tmp_path / "out"
    out.mkdir()
    run = started(tmp_path / "in", out)
    end = time.monotonic() + 60
    while time.monotonic() < end and not psutil.Process(run.pid).children():
        time.sleep(0.1)
    time.sleep(1)
    family = psutil.Process(run.pid).children(recursive=True)
    run.send_signal(signal.SIGINT)
    said = run.communicate(timeout=60)[0]
    assert run.returncode == 130 and "Traceback" not in said, said
    assert not psutil.wait_procs(family, timeout=10)[1]


# Reaching out of the sandbox


def test_no_network_and_no_file_of_the_host(tmp_path, monkeypatch):
    """The answer looks for a marker beside the class and at home, and calls a port of the host."""
    secret = "marker-that-no-answer-may-read-5d1c"
    home = tmp_path / "home"
    home.mkdir()
    (home / "secret.txt").write_text(secret)
    calls = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        over = threading.Event()

        def listen():
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    calls.append(server.accept())

        thread = threading.Thread(target=listen)
        thread.start()
        line = f"""look()


def look():
    import os, socket
    said = []
    for root in ({str(tmp_path)!r}, {str(ROOT / "notebooks")!r}, {str(ROOT / "tests")!r}):
        for folder, _, names in os.walk(root):
            for name in names:
                try:
                    said.append(open(os.path.join(folder, name), errors="replace").read(200))
                except OSError:
                    pass
        try:
            open(os.path.join(root, "written-by-an-answer"), "w").write("x")
        except OSError:
            pass
    for address in (("127.0.0.1", {port}), ("localhost", {port}), ("1.1.1.1", 53)):
        try:
            socket.create_connection(address, timeout=0.5).send(b"hello")
            said.append("connected")
        except OSError:
            pass
    raise ValueError("found: " + " ".join(said)[:1500])
"""
        put(tmp_path / "class" / "submitted", {
            f"eve/start/{S}": start_here(line), f"ada/start/{S}": ONE,
        })  # fmt: skip
        run = grade(tmp_path / "class", tmp_path / "out", "--jobs", "1", HOME=str(home))
        over.set()
        thread.join()
    assert run.returncode == 0, run.stdout + run.stderr
    got = {row["student"]: row for row in rows(tmp_path / "out" / "grades.csv")}
    assert got["ada"]["points"] == "1"
    assert not calls
    assert secret not in str(got) and "connected" not in got["eve"]["message"]
    assert "cell_type" not in got["eve"]["message"]
    assert not [*tmp_path.rglob("written-by-an-answer")]
    assert not (ROOT / "tests" / "written-by-an-answer").exists()
