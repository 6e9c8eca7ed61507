"""The form of an answer: what changes it, what does not, and what has none."""

import re

import pytest

from labkit.grading.intake.forms import LONGEST, Form, form_of

GIVEN = frozenset({"def f(x: float) -> float:\n    '''The task.'''\n    ...\n", "%pip install x"})

ANSWER = '''\
def f(x: float) -> float:
    """The task."""
    # Kahan
    total, c = 0.0, 0.0
    for part in x:
        y = part - c
        t = total + y
        c = (t - total) - y
        total = t
    return total
'''

RENAMED = """\
def f(xs: float) -> float:
    s, e = 0.0, 0.0
    for value in xs:
        z = value - e
        new = s + z
        e = (new - s) - z
        s = new
    return s
"""


def of(source: str, given: frozenset[str] = GIVEN) -> Form | None:
    return form_of(source, ["f"], given)


@pytest.mark.parametrize(
    "other",
    [
        "# Ada\n" + ANSWER + "\n\n\nprint(f([1.0]))\n",
        "import math\nSEEN = []\n" + ANSWER,
        ANSWER.replace("# Kahan", "'Kahan'").replace("The task", "By Ada"),
        ANSWER.replace("(t - total) - y", "t - total - y").replace("0.0, 0.0", "(0.0, 0.)"),
        ANSWER.replace("    ", "\t"),
        "%%time\n" + ANSWER,
    ],
    ids=["prints", "imports", "docstring", "parentheses", "tabs", "magic"],
)
def test_what_does_not_change_an_answer(other):
    assert of(other) == of(ANSWER)


def test_the_text_has_no_comment_and_no_docstring():
    text = of(ANSWER).text
    assert text.startswith("def f(x: float) -> float:\n    total, c = (0.0, 0.0)\n")
    assert "Kahan" not in text and "task" not in text


def test_other_names_are_another_text_and_the_same_form():
    one, other = of(ANSWER), of(RENAMED)
    assert one.exact != other.exact and one.renamed == other.renamed


@pytest.mark.parametrize(
    "line", ["print(y, t)", "assert c == c", "unused = 0"], ids=["print", "assert", "constant"]
)
def test_a_line_in_a_function_that_changes_no_result_does_not_count(line):
    other = of(ANSWER.replace("        total = t", f"        {line}\n        total = t"))
    assert (other.exact, other.renamed) == (of(ANSWER).exact, of(ANSWER).renamed)
    assert line in other.text  # a message may quote it


@pytest.mark.parametrize(
    "line", ["y = 0", "total = 0.0", "unused = c = 0", "x.append(0)", "global g; g = 0"]
)
def test_a_line_that_may_change_the_result_counts(line):
    other = of(ANSWER.replace("        total = t", f"        {line}\n        total = t"))
    assert other.renamed != of(ANSWER).renamed


def test_a_function_or_a_class_of_idle_lines_keeps_a_body():
    source = "class A:\n    kind = 0\n\n\ndef f(x):\n    print(x)\n    return A.kind\n"
    assert of(source).exact != of(source.replace("kind = 0", "kind = 1")).exact
    assert of("def f(x):\n    print(x)\n").exact == of("def f(x):\n    assert x\n").exact


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("total + y", "y + total"),
        ("total, c = 0.0, 0.0", "total, c = 0.0, 1.0"),
        ("part - c", "part + c"),
        ("for part in x", "for part in sorted(x)"),
        ("y = part - c", "y = part - total"),
        ("return total", "return c"),
        ("0.0, 0.0", "0, 0.0"),
    ],
)
def test_what_makes_it_another_answer(old, new):
    assert of(ANSWER.replace(old, new)).renamed != of(ANSWER).renamed


def test_each_function_counts_its_own_names():
    """Whoever renames one function only has the same form, and names of nobody stay."""
    one = "def g(a):\n    b = a + 1\n    return b\n\ndef f(x):\n    a = g(x)\n    return a * t.pi\n"
    other = (
        "def h(x):\n    y = x + 1\n    return y\n\ndef f(x):\n    q = h(x)\n    return q * t.pi\n"
    )
    assert of(one).renamed == of(other).renamed
    assert of(one).renamed != of(other.replace("t.pi", "m.pi")).renamed
    # A name of the function around it stays that name.
    inner = "def f(x):\n    def g(y):\n        return {}\n    return g\n"
    assert of(inner.format("x")).renamed != of(inner.format("y")).renamed


def test_names_of_every_construct_are_replaced():
    one = (
        "def f(x, *a, k=0, **d):\n"
        "    global n\n"
        "    try:\n"
        "        n = [i for i in a if (j := i)]\n"
        "    except OSError as e:\n"
        "        raise e\n"
        "    match x:\n"
        "        case [u, *v]:\n"
        "            return lambda w: w + u\n"
        "    class C:\n"
        "        def m(self):\n"
        "            return self.p\n"
        "    return C\n"
    )
    names = {"x": "y", "a": "b", "k": "kk", "d": "dd", "i": "ii", "j": "jj", "e": "ee", "u": "uu"}
    names |= {"v": "vv", "w": "ww", "C": "CC", "self": "me", "n": "nn"}
    other = re.sub(r"\b\w+\b", lambda found: names.get(found[0], found[0]), one)
    assert other != one and of(other).renamed == of(one).renamed
    # What others read of an object is no name of one's own.
    assert of(one.replace("self.p", "self.q")).renamed != of(one).renamed


def test_what_the_notebook_gives_is_no_answer():
    assert of(max(GIVEN, key=len)) is None
    assert of("# mine\n" + max(GIVEN, key=len).replace("...", "pass")) is None
    # Counted is what is added: here `return x`, a statement and a name.
    assert of("def f(x: float) -> float:\n    return x\n").written == 2
    whole = of(ANSWER, frozenset()).written
    head = "def f(x: float) -> float:\n    ...\n"
    assert of(ANSWER).written == whole - of(head, frozenset()).written + 1


@pytest.mark.parametrize(
    "source",
    [
        "def f(x)\n    return x",
        "def g(x):\n    return x",
        "",
        "def f(x):\n    return " + "(" * 300 + "x" + ")" * 300,
        "def f(x):\n    return " + "-" * 5_000 + "x",
        "def f(x):\n    return " + "x + " * 2_000 + "x",
        "def f(x):\n    return 1" + " " * LONGEST,
        "def f(x):\n    return '\0'",
    ],
    ids=["syntax", "other", "empty", "parentheses", "minus", "plus", "long", "nul"],
)
def test_what_has_no_form(source):
    assert of(source) is None
