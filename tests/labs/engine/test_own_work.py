"""What a check notices of the functions that do its exercise's work, and what it leaves alone."""

import linecache
import math
import sys
import types
from pathlib import Path

import pytest
import torch

from labkit.labs.engine import CheckFailed, calls, check, codec
from labkit.labs.engine import own_work as own_work_module
from labkit.labs.engine.own_work import is_learners, reported

LAB = "99_test"
ROWS = [[0.5, 0.25], [1.0, 2.0]]
OWN = (
    "math.fsum",
    "statistics.fmean",
    "torch.logsumexp",
    "torch.Tensor.logsumexp",
    "torch.amp.GradScaler",
    "torch.cuda.amp.autocast",
    "numpy.var",
    "numpy.logaddexp",
    "numpy.float16",
    "labkit.formats.quantize",
    "not_installed.anything",
)


@check(calls([(row,) for row in ROWS]), own_work=OWN)
def check_own(values):
    """Anything that came back."""
    assert len(values) == len(ROWS)


@check(calls([(row,) for row in ROWS]), own_work=("colorsys.rgb_to_hsv", "turtle.Turtle"))
def check_later(values):
    """Anything that came back."""


@check(calls([(row,) for row in ROWS]))
def check_free(values):
    """Anything that came back."""


def written(text: str):
    """``own`` of a cell, as a kernel defines it: its file is none of ours, its lines are known."""
    name = f"<a cell {len(linecache.cache)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names: dict = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), names)
    return names["own"]


BY_NAME = {
    "a builtin": ("import math\ndef own(x):\n    return math.fsum(x)", "math.fsum"),
    "an import of the name": (
        "from math import fsum\ndef own(x):\n    return fsum(x)", "math.fsum"),
    "an import inside": (
        "def own(x):\n    from math import fsum\n    return fsum(x)", "math.fsum"),
    "another name of the module": (
        "import math as m\ndef own(x):\n    return m.fsum(x)", "math.fsum"),
    "handed to map": (
        "import math\ndef own(x):\n    return list(map(math.fsum, [x]))", "math.fsum"),
    "beside an empty tuple": (
        "import math\ndef own(x):\n    start = ()\n    return math.fsum(x)", "math.fsum"),
    "a function of Python": (
        "import statistics\ndef own(x):\n    return statistics.fmean(x)", "statistics.fmean"),
    "a ufunc": ("import numpy as np\ndef own(x):\n    return np.logaddexp(*x)", "numpy.logaddexp"),
    "numpy's dispatcher": ("import numpy as np\ndef own(x):\n    return np.var(x)", "numpy.var"),
    "a method": (
        "import torch\ndef own(x):\n    return (torch.tensor(x) + 0).logsumexp(0)",
        "torch.Tensor.logsumexp"),
    "a method as a function": (
        "import torch\ndef own(x):\n    return torch.Tensor.logsumexp(torch.tensor(x), 0)",
        "torch.Tensor.logsumexp"),
    "a class": (
        "import torch\ndef own(x):\n    return torch.amp.GradScaler('cpu').get_scale()",
        "torch.amp.GradScaler"),
    "labkit's, by its package": (
        "import labkit.formats\ndef own(x):\n"
        "    return [labkit.formats.quantize(y, labkit.formats.FP16) for y in x]",
        "labkit.formats.quantize"),
    "labkit's, by its module": (
        "from labkit.formats import FP16, tensors\ndef own(x):\n"
        "    return [tensors.quantize(y, FP16) for y in x]",
        "labkit.formats.quantize"),
    "a class with a decorated __init__": (
        "import torch\ndef own(x):\n    return bool(torch.cuda.amp.autocast(enabled=False))",
        "torch.cuda.amp.autocast"),
    "a helper": (
        "import math\ndef helper(x):\n    return math.fsum(x)\ndef own(x):\n    return helper(x)",
        "math.fsum"),
    "a comprehension": (
        "import math\ndef own(x):\n    return [math.fsum([y]) for y in x]", "math.fsum"),
    "a generator": (
        "import math\ndef own(x):\n    yield math.fsum(x)", "math.fsum"),
    "a closure": (
        "def make():\n    from math import fsum\n    return lambda x: fsum(x)\nown = make()",
        "math.fsum"),
    "one that raises": (
        "import math\ndef own(x):\n    raise ValueError(math.fsum(x))", "math.fsum"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "name"), BY_NAME.values(), ids=BY_NAME)
def test_a_use_by_name_is_refused_with_its_line(text, name):
    result = check_own.result(written(text))
    word = name.rpartition(".")[2]
    line = next(part.strip() for part in reversed(text.splitlines()) if word in part)
    assert (result.status, result.score, result.shortcuts) == ("failed", 0.0, ())
    assert f"`{name}`" in result.message and f"`{line}`" in result.message
    assert check_free.result(written(text)).status == "passed"


MADE_OF = {
    "itself": ("import math\nown = math.fsum", "math.fsum"),
    "a partial": (
        "import functools, math\nown = functools.partial(functools.partial(math.fsum))",
        "math.fsum"),
    "a subclass": (
        "import torch\nclass own(torch.amp.GradScaler):\n    def __init__(self, x):\n        pass",
        "torch.amp.GradScaler"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "name"), MADE_OF.values(), ids=MADE_OF)
def test_an_answer_that_is_the_function_itself_is_refused(text, name):
    result = check_own.result(written(text))
    assert result.status == "failed" and f"made of `{name}`" in result.message
    values = (len, written(text))  # of an exercise with two names
    assert "made of" in check_own.verdict(check_own.collect(values)).message


IN_ANOTHER_WAY = {
    "getattr": ("import math\ndef own(x):\n    return getattr(math, 'fs' + 'um')(x)", "math.fsum"),
    "an alias": ("from math import fsum as add\ndef own(x):\n    return add(x)", "math.fsum"),
    "eval": ("import math\ndef own(x):\n    return eval('math.f' + 'sum')(x)", "math.fsum"),
    "an alias of a class": (
        "from torch.amp import GradScaler as S\ndef own(x):\n    return S('cpu').get_scale()",
        "torch.amp.GradScaler"),
    "an alias of a ufunc": (
        "from numpy import logaddexp as add\ndef own(x):\n    return add(*x)", "numpy.logaddexp"),
    "a ufunc's alias that the first call does not reach": (
        "def own(x):\n    if x[0] == 0.5:\n        return 0\n"
        "    from numpy import logaddexp as add\n    return add(*x)", "numpy.logaddexp"),
    "another name of a type, in its module": (
        "import numpy as np\ndef own(x):\n    return np.half(x[0])", "numpy.float16"),
    "an alias handed to map": (
        "from math import fsum as add\ndef own(x):\n    return list(map(add, [x]))", "math.fsum"),
    "an alias as a default": (
        "import numpy as np\ndef own(x, add=np.logaddexp):\n    return add(*x)",
        "numpy.logaddexp"),
    "a subclass made inside": (
        "import torch\nclass Mine(torch.amp.GradScaler):\n    pass\n"
        "def own(x):\n    return Mine('cpu').get_scale()", "torch.amp.GradScaler"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "name"), IN_ANOTHER_WAY.values(), ids=IN_ANOTHER_WAY)
def test_a_use_in_another_way_passes_and_is_told_to_the_instructor(text, name, capsys):
    own = written(text)
    result = check_own.result(own)
    assert (result.status, result.score, result.shortcuts) == ("passed", 1.0, (name,))
    check_own(own)
    assert name not in capsys.readouterr().out


LEFT_ALONE = {
    "compared with outside of the answer":
        "import math\ndef own(x):\n    return sum(x)\nassert own([1.0]) == math.fsum([1.0])",
    "a test beside it that does not run":
        "import math\ndef own(x):\n    return sum(x)\ndef test(x):\n    return math.fsum(x)",
    "another function of the same name":
        "class math:\n    fsum = sum\ndef own(x):\n    return math.fsum(x)",
    "a method of another class of the same name":
        "class Mine:\n    def logsumexp(self):\n        return 1\n"
        "def own(x):\n    return Mine().logsumexp()",
    "what a library calls inside":
        "import statistics\ndef own(x):\n    return statistics.NormalDist.from_samples(x).mean",
    "the name as text": "def own(x):\n    'math.fsum'\n    fsum = sum\n    return fsum(x)",
}  # fmt: skip


@pytest.mark.parametrize("text", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_other_code_is_left_alone(text):
    result = check_own.result(written(text))
    assert (result.status, result.shortcuts) == ("passed", ())


def test_a_folder_whose_name_begins_like_labkits_is_the_learners():
    def frame(path):
        code = compile("import sys\nframe = sys._getframe()", path, "exec")
        names = {}
        exec(code, names)
        return names["frame"]

    labkit = Path(own_work_module.__file__).parents[2]
    assert is_learners(frame(f"{labkit}-of-mine/answer.py"))
    assert not is_learners(frame(str(labkit / "answer.py")))


def test_what_the_run_itself_uses_does_not_count():
    """An instructor's own check stands in a file that is no part of labkit either."""
    text = "import math\ndef run(answer):\n    return [answer([1.0]), math.fsum([1.0])]\nown = run"

    def judge(values):
        "Anything."

    hidden = check(written(text), own_work=("math.fsum",))(judge)
    assert hidden.result(lambda x: 1.0).status == "passed"
    assert hidden.result(written(BY_NAME["a builtin"][0])).status == "failed"


def test_a_shortcut_is_told_in_the_notebook():
    with pytest.raises(CheckFailed, match=r"own: failed\. .*math\.fsum"):
        check_own(written(BY_NAME["a builtin"][0]))


def test_a_check_without_own_work_sets_no_profile_and_reports_nothing(monkeypatch):
    set_to = []
    monkeypatch.setattr(sys, "setprofile", set_to.append)
    report = codec.decode_value(check_free.collect(lambda x: 1.0))
    assert (set_to, "shortcuts" in report) == ([], False)
    check_own.collect(lambda x: 1.0)
    assert len(set_to) == 2


def test_a_profile_that_was_there_is_put_back():
    events = []

    def mine(frame, event, arg):
        events.append(event)

    before = sys.getprofile()
    sys.setprofile(mine)
    try:
        check_own.collect(lambda x: 1 / 0)
        assert sys.getprofile() is mine
    finally:
        sys.setprofile(before)


def test_nothing_is_imported_for_the_names_and_a_late_import_is_seen(monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    assert check_later.result(lambda x: 1.0).status == "passed"
    assert not sys.modules.keys() & {"colorsys", "turtle"}
    text = "def own(x):\n    import colorsys\n    return colorsys.rgb_to_hsv(0, 0, 0)"
    assert "`colorsys.rgb_to_hsv`" in check_later.result(written(text)).message
    monkeypatch.delitem(sys.modules, "colorsys")
    text = "def own(x):\n    from colorsys import rgb_to_hsv as hsv\n    return hsv(0, 0, 0)"
    assert "`colorsys.rgb_to_hsv`" in check_later.result(written(text)).message


def test_known_wrong_answers_run_without_a_profile(monkeypatch):
    """Explaining a failure costs no more than before."""

    @check(calls([(1.0,)]), own_work=("math.fsum",))
    def check_half(values):
        assert values == [0.5]

    check_half.wrong("ulp-is-constant", "Why?")(lambda x: x)
    collected = check_half.collect(lambda x: x)
    monkeypatch.setattr(sys, "setprofile", lambda _: pytest.fail("a known answer is no learner's"))
    assert check_half.verdict(collected).status == "error"  # the assertion is the judge's own


@pytest.mark.parametrize(
    "hostile",
    [
        None,
        7,
        [None, 3, []],
        [{}],
        [{"name": "os.system", "line": "", "by_name": True}],
        [{"name": ["math.fsum"], "line": "", "by_name": True}],
        [{"name": "math.fsum", "line": None, "by_name": True}],
        [{"name": "math.fsum", "line": "", "by_name": torch.ones(2)}],
    ],
)
def test_a_report_may_hold_anything(hostile):
    assert reported(hostile, OWN) == []
    report = {"outcome": "value", "value": [1, 2], "printed": "", "warned": []}
    collected = codec.encode_value(report | {"shortcuts": hostile})
    assert check_own.verdict(collected).status == "passed"


def test_the_first_line_counts_and_the_order_is_the_check_s():
    uses = [
        {"name": "statistics.fmean", "line": "b", "by_name": True},
        {"name": "math.fsum", "line": "a", "by_name": True},
    ]
    assert [one.name for one in reported(uses, OWN)] == ["math.fsum", "statistics.fmean"]


def test_where_the_text_is_not_known_nothing_is_by_name():
    names: dict = {}
    exec("import math\ndef own(x):\n    return math.fsum(x)", names)
    result = check_own.result(names["own"])
    assert (result.status, result.shortcuts) == ("passed", ("math.fsum",))


def test_the_names_of_this_test_are_what_they_claim():
    assert not isinstance(math.fsum, types.FunctionType)
    assert not isinstance(sys.modules["numpy"].logaddexp, types.BuiltinFunctionType)
