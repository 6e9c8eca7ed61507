"""Notebooks as honest students hand them in: each form of a right answer earns its points.

A form changes lab 02 with two exercises answered. It is read as the grader reads a file, and graded
in the sandbox.
"""

import json
from collections.abc import Callable

import pytest
from attacks import E2M1, LAB, ONLY
from handing_in import RIGHT_ULP, as_bytes, cell_of, code, unsolved, with_answer
from submissions import graded

from labkit.base.home import NOTEBOOKS
from labkit.grading.course_labs import read_course

COURSE = read_course()
SETUP = COURSE[LAB].setup
CHECK = "check_ulp(ulp)"
NUMPY_ULP = """\
def ulp(x):
    return float(np.ldexp(1.0, max(math.frexp(x)[1] - 1 if x else -14, -14) - 10))
"""
HALF_ULP = "def ulp(x):\n    return twice(RIGHT(x) / 2)\n"
TWICE = "def twice(x):\n    return 2 * x\n"
RIGHT = RIGHT_ULP.replace("def ulp(", "def RIGHT(")


def begun(answer: str = RIGHT_ULP) -> dict:
    """Lab 02 with two exercises answered, the second with ``answer``."""
    return with_answer(with_answer(unsolved(), "e2m1_value", E2M1), "ulp", answer)


def check_of(notebook: dict) -> dict:
    return cell_of(notebook, CHECK)


def check(source: str, answer: str = NUMPY_ULP) -> dict:
    """With another text in the cell of ulp's check."""
    notebook = begun(answer)
    check_of(notebook)["source"] = source
    return notebook


def setup(source: str, answer: str = RIGHT_ULP) -> dict:
    """With another setup cell; "" stands for none."""
    notebook = begun(answer)
    cell = cell_of(notebook, SETUP)
    cell["source"] = source
    if not source:
        notebook["cells"].remove(cell)
    return notebook


def first(*sources: str, answer: str = RIGHT_ULP) -> dict:
    """With cells of one's own on top."""
    notebook = begun(answer)
    notebook["cells"][:0] = [code(source) for source in sources]
    return notebook


def last(*sources: str, answer: str = RIGHT_ULP) -> dict:
    """With cells of one's own at the end."""
    notebook = begun(answer)
    notebook["cells"] += [code(source) for source in sources]
    return notebook


def everywhere(change: Callable[[dict], object], notebook: dict | None = None) -> dict:
    """With each cell changed."""
    notebook = notebook or begun()
    for cell in notebook["cells"]:
        change(cell)
    return notebook


def answered_in(place: Callable[[dict], dict], *, below: bool) -> dict:
    """With ulp open in its own cell, and answered in another one's."""
    notebook = with_answer(unsolved(), "e2m1_value", E2M1)
    cell = place(notebook)
    text = "".join(cell["source"])
    cell["source"] = f"{text}\n\n{RIGHT_ULP}" if below else f"{RIGHT_ULP}\n\n{text}"
    return notebook


def copied_check() -> dict:
    """A helper in a copy of a check's cell, with all its marks."""
    notebook = begun(HALF_ULP)
    notebook["cells"].insert(0, {**check_of(notebook), "id": "copy", "source": TWICE + RIGHT})
    return notebook


def autograded() -> dict:
    """As nbgrader's autograde leaves it: marks of its own, and its tests in the checks' cells."""

    def change(cell):
        marks = cell["metadata"].get("nbgrader")
        if marks:
            marks |= {"checksum": "0" * 32, "cell_type": "code"}
        if marks and marks["grade"]:
            cell["source"] = (
                f"{''.join(cell['source'])}\n### BEGIN HIDDEN TESTS\n"
                "from labkit.grading.judge.hidden_checks import must_have_passed\n\n"
                f"must_have_passed('x', x)\n### END HIDDEN TESTS"
            )
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["passed"]}]

    return everywhere(change)


def format_3() -> bytes:
    notebook = begun()
    cells = [
        {"cell_type": cell["cell_type"], "metadata": {}, "input": cell["source"], "outputs": []}
        for cell in notebook["cells"]
    ]
    return as_bytes({"worksheets": [{"cells": cells}], "metadata": {}, "nbformat": 3})


def vs_code() -> dict:
    notebook = everywhere(lambda cell: (cell.pop("id"), cell.pop("metadata")))
    return {**notebook, "metadata": {"language_info": {"name": "python"}}, "nbformat_minor": 2}


def colab() -> dict:
    notebook = begun()
    for number, cell in enumerate(notebook["cells"]):
        cell["id"] = f"aB3_{number}"
        cell["metadata"]["id"] = cell["id"]
    notebook["cells"][:0] = [
        code(
            "!pip install -q torch\nfrom google.colab import drive\n\n"
            "drive.mount('/content/drive')\n%cd /content/drive/MyDrive\nKEPT = 1",
            colab={"base_uri": "https://localhost:8080/"},
        ),
        code('#@title Helpers { display-mode: "form" }\nKEPT  # made in a cell that failed'),
    ]
    notebook["metadata"] = {"colab": {"provenance": []}, "kernelspec": {"name": "python3"}}
    return notebook


def without_imports_of_the_second_sitting() -> dict:
    (imports,) = [text for text in COURSE[LAB].imports if "FloatFormat" in text]
    notebook = begun()
    notebook["cells"].remove(cell_of(notebook, imports))
    cell_of(notebook, "def ulp(")["source"] = (
        "HALF = FloatFormat('half', exponent_bits=5, mantissa_bits=10)\n\n"
        "def ulp(x):\n    exponent = max(math.frexp(x)[1] - 1 if x else -14, HALF.min_exponent)\n"
        "    return 2.0 ** (exponent - HALF.mantissa_bits)\n"
    )
    return notebook


def second_sitting_first() -> dict:
    notebook = begun()
    (place,) = [p for p, c in enumerate(notebook["cells"]) if "FloatFormat" in str(c["source"])][:1]
    notebook["cells"] = notebook["cells"][place:] + notebook["cells"][:place]
    return notebook


# What a student adds to the cell of a check.
IN_CHECKS = {
    "an import above": lambda: check(f"import numpy as np\n\n{CHECK}"),
    "an import below": lambda: check(f"{CHECK}\nimport numpy as np"),
    "an import beside": lambda: check(f"import numpy as np; {CHECK}"),
    "an import above a printed check": lambda: check(f"import numpy as np\nprint({CHECK})"),
    "an import above an asserted check": lambda: check(f"assert {CHECK}\nimport numpy as np"),
    "an import under %%time": lambda: check(f"%%time\nimport numpy as np\n{CHECK}"),
    "an import and a shell line": lambda: check(f"!pip install numpy\nimport numpy as np\n{CHECK}"),
    "an import and a question mark": lambda: check(
        f"import numpy as np\n{CHECK}\ncheck_ulp?", answer=NUMPY_ULP
    ),
    "a helper above": lambda: check(f"{TWICE}\n{RIGHT}\n{CHECK}", HALF_ULP),
    "a helper, no check": lambda: check(f"{TWICE}\n{RIGHT}", HALF_ULP),
    "a helper in a copied one": copied_check,
    "an import where its marks are gone": lambda: everywhere(
        lambda cell: cell.update(metadata={}), check(f"import numpy as np\n{CHECK}")
    ),
    "the answer above": lambda: answered_in(check_of, below=False),
    "the answer below": lambda: answered_in(check_of, below=True),
    "the answer, and the open cell deleted": lambda: {
        **(notebook := answered_in(check_of, below=False)),
        "cells": [c for c in notebook["cells"] if "Gap between |x|" not in str(c["source"])],
    },
    "a loop over several checks": lambda: check(
        f"import numpy as np\nfor check, answer in [(check_ulp, ulp)]:\n    check(answer)\n{CHECK}"
    ),
    "a longer trial": lambda: check(
        f"import numpy as np\nwith np.errstate(all='ignore'):\n    {CHECK}\nprint(ulp(3.0))"
    ),
}

# What a student does with setup cells and packages.
IN_SETUPS = {
    "deleted": lambda: setup(""),
    "deleted, and of the second sitting": without_imports_of_the_second_sitting,
    "a package above": lambda: setup(f"import seaborn as sns\n{SETUP}"),
    "a package used at once": lambda: setup(f"import seaborn as sns\nsns.set_theme()\n{SETUP}"),
    "a package in one import with others": lambda: setup(
        f"import seaborn, numpy as np\n{SETUP}", NUMPY_ULP
    ),
    "a package, and imports of one's own below": lambda: setup(
        f"{SETUP}\nfrom sklearn import datasets\nimport numpy as np", NUMPY_ULP
    ),
    "a package that is tried": lambda: setup(
        "try:\n    import cupy as np\nexcept ImportError:\n    import numpy as np\n" + SETUP,
        NUMPY_ULP,
    ),
    "a package in the answer's cell": lambda: begun(f"import seaborn as sns\n\n{RIGHT_ULP}"),
    "a package in a helper's cell": lambda: first(
        f"import cv2, tqdm_of_mine\n{RIGHT}\n{TWICE}", answer=HALF_ULP
    ),
    "a name that a newer library has": lambda: first(
        "from torch import a_name_of_next_year\nimport numpy as np", answer=NUMPY_ULP
    ),
    "replaced by one's own": lambda: setup("import math", RIGHT_ULP),
    "Colab": colab,
    "VS Code": vs_code,
    "a star import": lambda: first(
        "from math import *", answer=RIGHT_ULP.replace("math.frexp", "frexp")
    ),
    "an import in the cell of a guess": lambda: {
        **(notebook := begun(NUMPY_ULP)),
        "cells": [
            {**c, "source": f"import numpy as np\n{''.join(c['source'])}"}
            if c["metadata"].get("labkit")
            else c
            for c in notebook["cells"]
        ],
    },
    "the second sitting first": second_sitting_first,
}

# How a student writes Python.
IN_STYLE = {
    "as it is": begun,
    "lambda": lambda: begun(
        "ulp = lambda x: 2.0 ** (max(math.frexp(x)[1] - 1 if x else -14, -14) - 10)"
    ),
    "an annotated name": lambda: begun(
        f"from collections.abc import Callable\n{RIGHT}\nulp: Callable[[float], float] = RIGHT"
    ),
    "annotations": lambda: begun(
        "from __future__ import annotations\n"
        + RIGHT_ULP.replace("(x)", "(x: NotThere | float) -> list[NotThere]", 1)
    ),
    "a class with __call__": lambda: begun(
        f"{RIGHT}\nclass Gap:\n    def __call__(self, x):\n        return RIGHT(x)\n\nulp = Gap()"
    ),
    "a method": lambda: begun(
        f"{RIGHT}\nclass Gap:\n    @staticmethod\n    def of(x):\n        return RIGHT(x)\n\n"
        "ulp = Gap.of"
    ),
    "partial": lambda: begun(
        f"import functools\n{RIGHT.replace('(x)', '(_, x)', 1)}\nulp = functools.partial(RIGHT, 2)"
    ),
    "decorators": lambda: begun(
        "import functools\n\ndef same(f):\n    @functools.wraps(f)\n    def inner(*args):\n"
        f"        return f(*args)\n    return inner\n\n@same\n@functools.cache\n{RIGHT_ULP}"
    ),
    "a dataclass and match": lambda: begun(
        "from dataclasses import dataclass\n\n@dataclass\nclass Gap:\n    exponent: int\n\n"
        "def ulp(x):\n    match Gap(math.frexp(x)[1] - 1 if x else -14):\n"
        "        case Gap(exponent=e) if e > -14:\n            return 2.0 ** (e - 10)\n"
        "    return 2.0 ** -24"
    ),
    "a top-level await": lambda: begun(
        f"import asyncio\nasync def shift():\n    return 10\nSHIFT = await shift()\n"
        f"{RIGHT_ULP.replace('- 10)', '- SHIFT)')}"
    ),
    "asyncio inside": lambda: begun(
        f"import asyncio\n{RIGHT}\nasync def later(x):\n    return RIGHT(x)\n\n"
        "def ulp(x):\n    return asyncio.run(later(x))"
    ),
    "defined under a condition": lambda: begun(
        "if torch.cuda.is_available():\n    def ulp(x): return 0\nelse:\n"
        + "".join(f"    {line}\n" for line in RIGHT_ULP.splitlines())
    ),
    "unpacked": lambda: begun(f"{RIGHT}\nulp, other = RIGHT, None"),
    "a walrus": lambda: begun(f"{RIGHT}\nprint(ulp := RIGHT)"),
    "global": lambda: begun(f"{RIGHT}\ndef make():\n    global ulp\n    ulp = RIGHT\n\nmake()"),
    "exec": lambda: begun(f"exec({RIGHT_ULP!r})"),
    "one's own check": lambda: last(
        "def check_mine():\n    assert ulp(0) == 2**-24\n\ncheck_mine()"
    ),
    "tabs": lambda: begun(RIGHT_ULP.replace("    ", "\t")),
    "two answers": lambda: last(RIGHT_ULP, answer="def ulp(x):\n    return 0"),
    "an answer below the stub": lambda: answered_in(
        lambda notebook: cell_of(notebook, "def ulp("), below=True
    ),
    "helpers after": lambda: last(TWICE, RIGHT, answer=HALF_ULP),
    "helpers before": lambda: first(TWICE, RIGHT, answer=HALF_ULP),
    "lines like magics in a text": lambda: begun(
        f'{RIGHT_ULP}\nNOTES = """\n% of the values\n! not a command\n%%time\n"""\n'
    ),
    "a line that begins with %": lambda: begun(
        "SHIFT = (110\n         % 100)\n" + RIGHT_ULP.replace("- 10)", "- SHIFT)")
    ),
    "Chinese": lambda: begun(f"# 步长\n步长 = 10\n{RIGHT_ULP.replace('- 10)', '- 步长)')}"),
    "wide letters": lambda: begun(RIGHT_ULP.replace("ulp", "ｕｌｐ")),
}

# What Jupyter adds to Python, and what editors do to files.
IN_FORM = {
    "%%time": lambda: begun(f"%%time\n{RIGHT_ULP}"),
    "%%time after lines": lambda: begun(f"\n\n  %%time\n{RIGHT_ULP}"),
    "%%capture and %%time": lambda: begun(f"%%capture out\n%%time\n{RIGHT_ULP}"),
    "%%timeit": lambda: begun(f"%%timeit -n 1 -r 1\n{RIGHT_ULP}"),
    "%time in a line": lambda: begun(f"{RIGHT_ULP}\n%time ulp(3.0)\nulp?\nfiles = !ls"),
    "%matplotlib": lambda: first("%matplotlib inline\n%config InlineBackend.figure_format = 'svg'"),
    "a shell in another cell": lambda: first("%%bash\npip install torch", "!nvidia-smi"),
    "%%writefile and its import": lambda: first(
        f"%%writefile my_gap.py\nimport math\n\n{RIGHT_ULP}", answer="from my_gap import ulp"
    ),
    "%%writefile": lambda: first(f"%%writefile notes.txt\n{RIGHT_ULP}", "print(open('notes.txt'))"),
    "Windows line ends": lambda: everywhere(
        lambda cell: cell.update(source="".join(cell["source"]).replace("\n", "\r\n"))
    ),
    "Windows line ends below %%time": lambda: begun(f"%%time\n{RIGHT_ULP}".replace("\n", "\r\n")),
    "Windows line ends in a check": lambda: check(f"import numpy as np\r\n{CHECK}\r\n"),
    "old Macintosh line ends": lambda: begun(RIGHT_ULP.replace("\n", "\r")),
    "sources in one string": lambda: everywhere(
        lambda cell: cell.update(source="".join(cell["source"]))
    ),
    "BOM": lambda: b"\xef\xbb\xbf" + as_bytes(begun()),
    "UTF-16": lambda: json.dumps(begun()).encode("utf-16"),
    "GB18030": lambda: json.dumps(begun(f"# 步长\n{RIGHT_ULP}"), ensure_ascii=False).encode(
        "gb18030"
    ),
    "format 3": format_3,
    "nbgrader's autograded copy": autograded,
    "no ids": lambda: everywhere(lambda cell: cell.pop("id")),
    "one id": lambda: everywhere(lambda cell: cell.update(id="same")),
    "an answer in a raw cell": lambda: {
        **(notebook := begun()),
        "cells": [
            {**c, "cell_type": "raw"} if "def ulp(" in c["source"] else c for c in notebook["cells"]
        ],
    },
    "outputs kept": lambda: everywhere(
        lambda cell: cell.update(
            outputs=[{"output_type": "display_data", "data": {"x": "y" * 9999}}]
        )
    ),
    "checks deleted": lambda: {
        **(notebook := begun()),
        "cells": [
            c for c in notebook["cells"] if not c["metadata"].get("nbgrader", {}).get("grade")
        ],
    },
    "demonstrations deleted": lambda: {
        **(notebook := begun()),
        "cells": [c for c in notebook["cells"] if "nbgrader" in c["metadata"]],
    },
    "text deleted": lambda: {
        **(notebook := begun()),
        "cells": [c for c in notebook["cells"] if c["cell_type"] == "code"],
    },
    "a cell that never ends": lambda: first("while True:\n    pass"),
    "a cell that fails": lambda: first("1 / 0", "input('ready? ')", "breakpoint()", "exit()"),
}


FORMS = {**IN_CHECKS, **IN_SETUPS, **IN_STYLE, **IN_FORM}


def content(form: dict | bytes) -> bytes:
    return form if isinstance(form, bytes) else as_bytes(form)


def test_no_two_forms_have_one_name():
    assert len(FORMS) == sum(map(len, (IN_CHECKS, IN_SETUPS, IN_STYLE, IN_FORM)))


@pytest.mark.parametrize("form", FORMS)
def test_a_right_answer_in_this_form_earns_its_points(grader, form):
    outcomes = graded(grader, content(FORMS[form]()), ONLY)
    assert {name: (one.status, one.message) for name, one in outcomes.items()} == {
        name: ("passed", outcomes[name].message) for name in ONLY
    }


@pytest.mark.parametrize("change", ["a package above", "deleted"])
def test_the_setup_cell_of_another_lab_is_the_grader_s_too(grader, change):
    lab, only = "04_loss_scaling", ("amp-loop", "masters")
    notebook = json.loads((NOTEBOOKS / "solutions" / f"{lab}.ipynb").read_text(encoding="utf-8"))
    cell = cell_of(notebook, COURSE[lab].setup)
    cell["source"] = f"import seaborn as sns\n{COURSE[lab].setup}" if change != "deleted" else ""
    outcomes = graded(grader, as_bytes(notebook), only)
    assert {name: one.status for name, one in outcomes.items()} == dict.fromkeys(only, "passed")


@pytest.mark.parametrize(
    ("answer", "file"),
    [
        ("from helpers import RIGHT as ulp", "helpers.py"),
        ("import helpers\nulp = helpers.RIGHT", "helpers.py"),
        ("from tools.gaps import *\nulp = RIGHT", "tools/gaps.py"),
        ("def ulp(x):\n    from helpers import RIGHT\n    return RIGHT(x)", "helpers.py"),
    ],
)
def test_a_file_handed_in_beside_the_notebook_is_imported(grader, answer, file):
    module = f"import math\n\n{RIGHT}".encode()
    outcomes = graded(grader, as_bytes(begun(answer)), ONLY, helpers=((file, module),))
    assert outcomes["ulp"].status == "passed", outcomes["ulp"]


def test_of_a_file_handed_in_the_module_that_it_lacks_is_named(grader):
    helpers = (("helpers.py", b"import more_helpers\n"),)
    outcome = graded(grader, as_bytes(begun("from helpers import ulp")), ONLY, helpers=helpers)[
        "ulp"
    ]
    assert "upload more_helpers.py beside the notebook" in outcome.message


# Where something is missing that the answer needs, its points are lost and the page says why.


def test_a_package_that_the_answer_needs_is_named_as_the_cause(grader):
    notebook = setup(f"import seaborn as sns\n{SETUP}", "def ulp(x):\n    return sns.gap(x)")
    outcomes = graded(grader, as_bytes(notebook), ONLY)
    assert outcomes["e2m1-value"].status == "passed"
    said = outcomes["ulp"].message
    assert "NameError: name 'sns' is not defined" in said
    assert "raised ModuleNotFoundError: No module named 'seaborn'" in said
    assert "in your line `import seaborn as sns`" in said
    assert "`seaborn` was not handed in and is none of the grader's packages" in said


@pytest.mark.parametrize(
    "answer",
    [
        "from helpers import gap\n\ndef ulp(x):\n    return gap(x)",
        "import helpers\n\nulp = helpers.ulp",
        "def ulp(x):\n    from helpers import gap\n    return gap(x)",
        "class Gap(__import__('helpers').Gap): pass\nulp = Gap()",
        "from helpers import ulp",
        "from helpers import *",
    ],
)
def test_a_file_that_was_not_handed_in_is_asked_for(grader, answer):
    outcome = graded(grader, as_bytes(begun(answer)), ONLY)["ulp"]
    assert outcome.status == "error"
    assert "upload helpers.py beside the notebook" in outcome.message


def test_a_helper_whose_cell_failed_is_named_with_what_its_cell_raised(grader):
    notebook = first(f"HALF = 1 / 0\n{RIGHT}", answer="def ulp(x):\n    return RIGHT(x)")
    said = graded(grader, as_bytes(notebook), ONLY)["ulp"].message
    assert "`RIGHT` is missing because its cell raised ZeroDivisionError" in said
    assert "in your line `HALF = 1 / 0`" in said


def test_syntax_of_a_newer_python_names_both(grader):
    notebook = begun("def ulp(x) = 2.0 ** x")
    notebook["metadata"]["language_info"]["version"] = "3.99.1"
    outcome = graded(grader, as_bytes(notebook), ONLY)["ulp"]
    assert outcome.status == "error"
    assert "SyntaxError" in outcome.message and "Python 3.99" in outcome.message
