"""Hostile and broken deliveries to `labkit grade`, each with the points an honest person gives.

One class of lab 02 is graded once. Each student attacks with one exercise and has two others right:
these keep their points whatever happens beside them. Layouts, names and rosters need runs of their
own: they deliver notebooks that the ledger knows already.
"""

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
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAB = "02_number_formats"
FULL = {"e2m1-value": 1, "ulp": 2, "snap": 3}
NOTHING = dict.fromkeys(FULL, 0)

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
    """A student's folder: its files, and the points that the student earns."""

    files: dict[str, object]
    want: dict[str, float] = field(default_factory=lambda: dict(FULL))
    also: tuple[float, ...] = ()  # other points for `ulp` that a person may give as well
    fails: str = ""  # why the grader falls short of it today


CASES: dict[str, Case] = {}
XLINE = "ulp"


def attack(name: str, source: str, *, points: float = 0, also=(), fails: str = "", **others: str):
    """A case whose `ulp` is this source; `others` are further exercises with their own."""
    answers = {"ulp": source} | {key.replace("_", "-"): text for key, text in others.items()}
    CASES[name] = Case(
        files={f"{LAB}.ipynb": as_bytes(short_notebook(answers))},
        want=FULL | {"ulp": points},
        also=also,
        fails=fails,
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
    return checks._GAPS[checks._GAP_INPUTS.index(x)]
""",
)
attack(
    "the-solutions-on-disk",
    """
def ulp(x):
    import glob, labkit, os
    from pathlib import Path
    base = Path(labkit.__file__).parents[1]
    for path in [*base.glob("labkit/labs/*/solutions.py"), *base.glob("notebooks/solutions/*.ipynb"),
                 *base.glob("notebooks/source/*.py"), *base.glob("tests/labs/**/*.py")]:
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
codec.encode = lambda *a, **k: b"T"
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
    points=0,
)
CASES["torch-replaced-for-what-follows"].want["snap"] = 0  # math.copysign is the student's own
attack(
    "a-spacing-of-one-s-own-for-the-judge",
    """
import numpy as np, labkit.formats as formats
np.spacing = lambda *a, **k: 0.0
formats.spacing = spacing = lambda *a, **k: 0.0
def ulp(x):
    return 0.0
""",
)
CASES["a-spacing-of-one-s-own-for-the-judge"].want["snap"] = 3  # setup B imports it again

# Ends of the process

attack("sys-exit", "import sys\ndef ulp(x):\n    sys.exit(0)\n")
attack("os-exit", "import os\ndef ulp(x):\n    os._exit(0)\n")
attack("os-exit-while-defining", "import os\nos._exit(0)\n" + RIGHT_ULP, also=(2,))
attack("sys-exit-while-defining", "import sys\n" + RIGHT_ULP + "sys.exit()\n", also=(2,))
attack("kills-itself", "import os\ndef ulp(x):\n    os.kill(os.getpid(), 9)\n")
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
)
attack("keyboard-interrupt", "def ulp(x):\n    raise KeyboardInterrupt\n")
attack("recursion", "def ulp(x):\n    return ulp(x)\n")
attack(
    "segfault",
    "import ctypes\ndef ulp(x):\n    return ctypes.string_at(0)\n",
)
attack(
    "closes-every-file",
    "import os\ndef ulp(x):\n    os.closerange(0, 1024)\n    return 0.0\n",
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
    RIGHT_ULP
    + "right = ulp\nimport os\ndef ulp(x):\n    os.fork()\n    return right(x) if x != 1 else 0.0\n",
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
)
attack("input", "def ulp(x):\n    return float(input('x? '))\n")
attack("more-memory-than-there-is", "def ulp(x):\n    return len(bytearray(1 << 45)) * 0.0\n")
attack("a-tensor-too-large", "def ulp(x):\n    return torch.zeros(1 << 45).sum()\n")
attack(
    "a-list-in-itself",
    "def ulp(x):\n    one = []\n    one.append(one)\n    return one\n",
)
attack("a-number-of-a-million-digits", "def ulp(x):\n    return 7 ** 1_200_000\n")
attack(
    "deep-lists",
    "def ulp(x):\n    one = []\n    for _ in range(100_000):\n        one = [one]\n    return one\n",
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
    for name in ("torch.py", "math.py", "numpy.py", "labkit.py", "usercustomize.py", "sitecustomize.py"):
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
attack(
    "answers-left-in-files",
    """
import os
for folder in ("/tmp", "/dev/shm", ".", os.path.expanduser("~")):
    try:
        open(os.path.join(folder, "note.txt"), "w").write("1")
    except OSError:
        pass
def ulp(x):
    return 0.0
""",
    snap=RIGHT_SNAP
    + """
import os
right = snap
if any(os.path.exists(os.path.join(f, "note.txt")) for f in ("/tmp", "/dev/shm", ".")):
    os._exit(1)
""",
)
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
    "a-million-files",
    """
import os
def ulp(x):
    for n in range(200_000):
        os.mknod(f"/tmp/{n}-{x}")
    return 0.0
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


def deliver(name: str, files: dict[str, object], want=FULL, fails: str = "", also=()) -> None:
    CASES[name] = Case(files=files, want=dict(want), fails=fails, also=also)


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


deliver("byte-order-mark", {NB: b"\xef\xbb\xbf" + GOOD})
deliver("utf-16", {NB: GOOD.decode().encode("utf-16")}, also=(0,))
deliver(
    "windows-line-ends",
    {NB: json.dumps(short_notebook({}), indent=1).replace("\n", "\r\n").encode()},
)
deliver("stripped-metadata", {NB: changed(stripped)})
deliver("sources-as-lists", {NB: changed(sources_as_lists)})
deliver("cells-that-are-none", {NB: changed(odd_cells)}, also=(0,))
deliver("a-heavy-output", {NB: changed(heavy_output)})
deliver("many-cells", {NB: changed(many_cells)})
deliver("notebook-format-3", {NB: changed(version_3)}, also=(0,))
deliver("cut-in-half", {NB: GOOD[: len(GOOD) // 2]}, NOTHING)
deliver("empty-file", {NB: b""}, NOTHING)
deliver("nul-bytes", {NB: b"\x00" * 5000}, NOTHING)
deliver("deep-json", {NB: b"[" * 200_000 + b"]" * 200_000}, NOTHING)
deliver(
    "deep-metadata",
    {NB: GOOD[:-1] + b', "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"},
    also=(0,),
)
deliver(
    "html-by-the-name-of-a-notebook",
    {NB: b"<html><body>Sign in to continue</body></html>"},
    NOTHING,
)
deliver(
    "conflict-marks",
    {NB: b"<<<<<<< HEAD\n" + GOOD + b"\n=======\n" + BAD + b"\n>>>>>>> x\n"},
    NOTHING,
    also=(2,),
)
deliver("link-to-the-host", {NB: Path("/etc/passwd")}, NOTHING)
deliver("link-to-a-neighbour", {NB: Path("../../stripped-metadata/" + LAB + "/" + NB)}, NOTHING)
deliver("link-to-itself", {NB: Path(NB)}, NOTHING)
deliver("a-pipe", {NB: "fifo"}, NOTHING)
deliver("a-socket", {NB: "socket"}, NOTHING)
deliver("a-folder-by-the-name-of-a-notebook", {NB + "/inside.txt": b"x"}, NOTHING)
deliver("mac-forks-and-checkpoints", {
    NB: GOOD, "._" + NB: b"\x00\x05\x16\x07" + b"\x00" * 100, ".DS_Store": b"\x00\x00\x00\x01Bud1",
    f".ipynb_checkpoints/{LAB}-checkpoint.ipynb": BAD, "Thumbs.db": b"\xd0\xcf", "desktop.ini": b"",
})  # fmt: skip
deliver("a-pdf-beside-it", {NB: GOOD, "report.pdf": b"%PDF-1.4", "notes.docx": b"PK\x03\x04"})
deliver(
    "a-helper-that-shadows-math",
    {NB: GOOD, "math.py": b"raise SystemExit\n", "torch.py": b"raise SystemExit\n"},
    also=(0,),
)
deliver("=cmd-and-markup<b>&quot;'", {NB: GOOD})
deliver("../../escape".replace("/", "\u2215"), {NB: GOOD})
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


def grade(folder: Path, out: Path, *options: str, **more) -> subprocess.CompletedProcess:
    out.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "labkit", "grade", str(folder), "-o", str(out / "grades.csv")]
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
