"""Notebooks made to gain points, to hide, or to harm, through what the grader repairs and allows.

Each holds a right answer to one exercise and a wrong one to another. It is read as the grader reads
a file, and graded in the sandbox: the right one earns its points, the wrong one none, and the next
submission is graded as if it were alone. Attacks inside an answer are in ``test_attacks``.
"""

import os
from pathlib import Path

import pytest
from attacks import E2M1, LAB, ONLY, honest
from handing_in import WRONG_ULP, as_bytes, cell_of, code, small, unsolved, with_answer
from submissions import graded

from labkit.grading.course_labs import read_course
from labkit.grading.intake.notebooks_read import Unreadable
from labkit.grading.intake.reader import understand_apart

COURSE = read_course()
CHECK = "check_ulp(ulp)"
MARKS = {"nbgrader": {"grade": True, "solution": False, "grade_id": "check-ulp", "locked": True}}


def wrong(*sources: str, answer: str = WRONG_ULP, marks: dict | None = None) -> dict:
    """Lab 02 with one right answer, one wrong, and cells of one's own on top and at the end."""
    notebook = with_answer(with_answer(unsolved(), "e2m1_value", E2M1), "ulp", answer)
    own = [code(source, **(marks or {})) for source in sources]
    notebook["cells"] = [*own, *notebook["cells"], *own]
    return notebook


def check(source: str) -> dict:
    notebook = wrong()
    cell_of(notebook, CHECK)["source"] = source
    return notebook


IMPOSTOR = "def __getattr__(name):\n    return lambda *args, **kwargs: 2.0 ** -10\n"
LAST_WORD = "import sys\nfor name in ('labkit.labs.engine.running', 'torch'):\n    "

NOTEBOOKS = {
    # Modules of the learner's own in the place of others.
    **{
        f"a module called {name}": wrong(f"%%writefile {name}.py\n{IMPOSTOR}", f"import {name}")
        for name in ("math", "torch", "labkit", "pickle", "json", "socket", "asyncio", "codec")
    },
    "a module over labkit's": wrong(
        "import labkit.formats\nPATH = labkit.formats.__file__",
        f"%%writefile {Path(COURSE[LAB].lab)}/../x.py\n{IMPOSTOR}",
        f"%%writefile {Path(__file__).parents[2] / 'labkit/formats/__init__.py'}\n{IMPOSTOR}",
    ),
    "files of the host": wrong(
        "%%writefile /etc/passwd\nroot",
        "%%writefile ../../../../etc/hosts\nx",
        "%%file ~/.bashrc\nx",
    ),
    "a file as long as it goes": wrong(f"%%writefile x\n{'x' * 10**6}", "%%writefile -a x\n" * 50),
    "a device": wrong("%%writefile /dev/sda\nx", "%%writefile /proc/self/mem\nx"),
    "a file as one's own package": wrong("%%writefile __init__.py\n1 / 0", "%%file __main__.py\n1"),
    "a file that names nothing": wrong("%%writefile\nx", "%%writefile 'x\ny", "%%file -a\nx"),
    # What runs after an ImportError.
    "an import error that is a trap": wrong(
        "class Trap(ImportError):\n    @property\n    def __traceback__(self):\n"
        "        raise SystemExit\n\nraise Trap\nimport os\nos._exit(1)"
    ),
    "statements after an import error": wrong("import nothing_at_all\n" + "1 / 0\n" * 9_000),
    "an exit after an import error": wrong("import nothing_at_all\nraise SystemExit"),
    "the right answer's name after an import error": wrong(
        "import nothing_at_all\nulp = ulp", answer=f"import nothing_at_all\n{WRONG_ULP}"
    ),
    "an import that patches the imports": wrong(
        "import builtins\ndef broken(*args, **kwargs): raise ImportError\n"
        "builtins.__import__ = broken\nimport math"
    ),
    # Cells of checks.
    "a check of one's own": check("def check_ulp(answer):\n    return True\n\ncheck_ulp(ulp)"),
    "a check that gives another answer": check("check_ulp(lambda x: 2.0 ** -10)"),
    "a check that replaces the engine": check(
        f"{LAST_WORD}sys.modules.pop(name, None)\n{CHECK}\nimport labkit.labs.engine as engine\n"
        "engine.same_value = lambda *args, **kwargs: None"
    ),
    "a hidden test without an end": check(
        f"{CHECK}\n### BEGIN HIDDEN TESTS\nimport os\nos.abort()"
    ),
    "marks on everything": wrong("check_ulp = check_e2m1_value = print", marks=MARKS),
    "a check that binds the answer again": check(f"ulp = e2m1_value\n{CHECK}"),
    "a check that deletes the answer": check(f"del ulp\n{CHECK}"),
    "half a check": check("check_ulp(ulp"),
    # Names and marks.
    "a stub that says it is the lab's": wrong(
        "def ulp(x):\n    return 2.0 ** -10", marks={"nbgrader": {"solution": True}}
    ),
    "marks of a guess": wrong("guess = sure = 0", marks={"labkit": {"predict": "x"}}),
    "annotations without values": wrong("ulp: float", "e2m1_value: int"),
    "names of the kernel": wrong("__name__ = __file__ = __builtins__ = None"),
    "a display that raises": wrong("get_ipython = display = None", "%time 1", "display(1)"),
    "thousands of cells": wrong(*(f"v{i} = {i}" for i in range(900))),
    "thousands of answers": wrong(*(WRONG_ULP + f"# {i}" for i in range(900))),
    # What a parser may break on.
    "nul": wrong("ulp = 1\0"),
    "as deep as it goes": wrong("ulp2 = " + "(" * 190 + ")" * 190, "x = " + "-" * 9_000 + "1"),
    "blank lines": wrong("\n" * 300_000 + "x = 1"),
    "a page of magics": wrong("%a\n" * 300, "%%time\n" * 5_000 + "x = 1"),
    "a huge number": wrong("x = " + "9" * 9_000, "x = 0x" + "f" * 19_000),
    "half characters": wrong("x = '\ud800'", "\udfff"),
    "a Python from far ahead": {
        **(ahead := wrong("def f(x) = x")),
        "metadata": {**ahead["metadata"], "language_info": {"name": "python", "version": "3.999"}},
    },
}


THEIR_OWN_HARM = (
    "an import that patches the imports",
    "a check that replaces the engine",
    "names of the kernel",
)
"""These break what their own right answer needs."""


@pytest.fixture(scope="module")
def canary(tmp_path_factory):
    path = tmp_path_factory.mktemp("host") / "canary"
    path.write_text("sings")
    path.chmod(0o666)
    return path


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_wrong_answer_earns_nothing_and_a_right_one_its_points(grader, name):
    outcomes = graded(grader, as_bytes(NOTEBOOKS[name]), ONLY)
    assert outcomes["ulp"].status in ("failed", "error", "not attempted"), outcomes["ulp"]
    if name not in THEIR_OWN_HARM:
        assert outcomes["e2m1-value"].status == "passed", outcomes["e2m1-value"]
    assert honest(grader) == ["passed", "passed"]


def test_a_file_is_written_in_the_sandbox_alone(grader, canary):
    graded(
        grader,
        as_bytes(wrong(f"%%writefile {canary}\nsilence", f"%%writefile -a {canary}\nsilence")),
        ONLY,
    )
    assert canary.read_text() == "sings"
    graded(grader, as_bytes(wrong("%%writefile left_behind.py\nx = 1")), ONLY)
    assert not Path("left_behind.py").exists() and not Path("/left_behind.py").exists()
    look = "def ulp(x):\n    import os\n    raise ValueError(os.path.exists('left_behind.py'))"
    assert "ValueError: False" in graded(grader, as_bytes(wrong(answer=look)), ONLY)["ulp"].message


REFUSED = {
    "deep JSON": (b'{"cells": [{"source": ' + b"[" * 10**5, "corrupt"),
    "JSON of one huge number": (b'{"cells": [], "nbformat": ' + b"9" * 10**6 + b"}", "corrupt"),
    "a zip": (b"PK\x03\x04" + os.urandom(64) + b"\xff\x81", None),
    "no lab": (as_bytes({"cells": [code("x = 1")] * 3}), "unknown lab"),
    "two thousand and one cells": (as_bytes({"cells": [code("x")] * 2_001}), "too large"),
    "much code": (as_bytes(small("\n" * (2**21 + 1))), "too large"),
    "a language made up": (
        as_bytes({"cells": [code("x")], "metadata": {"language_info": {"name": "=1+1"}}}),
        "language",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_notebook_has_a_cause(name):
    content, cause = REFUSED[name]
    with pytest.raises(Unreadable) as caught:
        understand_apart(content, COURSE)
    assert caught.value.cause == cause or cause is None
    assert str(caught.value).endswith(".")
