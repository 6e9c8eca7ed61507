"""The names of a cell, and cells made to break or to delay whoever looks for names."""

import pytest
from handing_in import LAB, RIGHT_ULP, as_bytes, code, small, unsolved

from labkit.grading.course_labs import read_course
from labkit.grading.intake.naming import LONGEST, MOST_PARSED, names_of, names_of_all
from labkit.grading.intake.notebooks_read import MOST_CODE, Unreadable
from labkit.grading.intake.reader import understand_apart

COURSE = read_course()


@pytest.mark.parametrize(
    ("source", "bound", "needed"),
    [
        ("x = 1\ny = x + z", {"x", "y"}, {"z"}),
        ("x = x + 1", {"x"}, {"x"}),
        ("x += 1", {"x"}, {"x"}),
        ("def f(a):\n    return a + b", {"f"}, {"b"}),
        ("def f():\n    global g\n    g = h", {"f", "g"}, {"h"}),
        ("import a.b as c, d.e\nd.e(c)", {"c", "d"}, set()),
        ("[i for i in xs]", set(), {"xs"}),
        ("%matplotlib inline\nx = 1", {"x"}, set()),
        ("class A(B):\n    c = D", {"A"}, {"B", "D"}),
        ("if t:\n    %time f()\n", set(), {"t"}),
        ("with a as b: b", {"b"}, {"a", "b"}),
        ("y = f(x)\nf?", {"y"}, {"y", "f", "x"}),
        ("y = (a\n     % b)", {"y"}, {"a", "b"}),
        ('s = """\n%time b\n!c\n"""', {"s"}, set()),
        ("%%time\nx = a", {"x"}, {"a"}),
        ("\n %%capture out \r\n%%time\r\nx = a\r\n!ls\r\n", {"x"}, {"a"}),
        ("%%writefile x.py\nx = a", set(), set()),
        ("%%time\n%%writefile x.py\nx = a", set(), set()),
        ("%%writefile x.py\n%%time\nx = a", set(), set()),
        ("x = 1\ry = a", {"x", "y"}, {"a"}),
        ("def ｕｌｐ(x): pass", {"ulp"}, set()),
    ],
)
def test_names_of_a_cell(source, bound, needed):
    names = names_of(source)
    assert (names.bound, names.needed) == (bound, needed)


def test_a_long_cell_is_searched_and_not_parsed():
    answer = "def ulp(x):\n    return x\n"
    padding = "# " + "x" * (LONGEST - len(answer) - 2)
    assert names_of(answer + padding).is_python
    searched = names_of(answer + padding + "x")
    assert not searched.is_python and searched.bound == {"ulp"}


def test_of_many_cells_the_first_are_parsed():
    cells = ["x = 1 " + "#" * 9_994] * (MOST_PARSED // 10_000 + 3)
    parsed = [names.is_python for names in names_of_all(cells)]
    assert parsed == [True] * (MOST_PARSED // 10_000) + [False] * 3
    assert all(names.bound == {"x"} for names in names_of_all(cells))


def filled(text: str, size: int) -> str:
    return text * (size // len(text))


LONG = 300_000
"""Characters: by their square it would take minutes."""

# What a regular expression could go through again and again.
FOR_EXPRESSIONS = {
    "lines": "\n",
    "spaces": " ",
    "carriage returns": "\r",
    "empty lines with a space": " \n",
    "tabs before no magic": "\t",
    "cell magics": "%%\n",
    "magics that run": "%%time\n",
    "line magics": "%a\n",
    "percents": "%",
    "half a definition": "async\n",
    "definitions of nothing": "def ",
    "half an assignment": "x:",
    "half an annotation": "x:a ",
    "a long name": "w",
    "names": "w ",
    "equals": "=",
    "parentheses": "(\n",
    "imports": "import (",
    "hidden tests": "### BEGIN HIDDEN TESTS\n",
    "numbers": "1",
}

# What a parser could go down into, or be long at.
FOR_THE_PARSER = {
    "unary": "-" * 200_000 + "1",
    "sums": "1+" * 100_000 + "1",
    "parentheses": "(" * 90_000,
    "as deep as it goes": "(" * 190 + ")" * 190,
    "brackets of each kind": "([{" * 60,
    "magics": "%a\n" * 2_000,
    "nul": "a\0b",
    "attributes": "a" + ".b" * 30_000,
    "attributes that are parsed": "a" + ".b" * 9_900,
    "sums that are parsed": "1+" * 9_900 + "1",
    "calls": "f(" * 195,
    "subscripts": "a" + "[0]" * 6_500,
    "lambdas": "lambda:" * 2_800 + "0",
    "conditions": "1 if 1 else " * 1_600 + "1",
    "elifs": "if a: pass\n" + "elif a: pass\n" * 1_500,
    "blocks": "".join(" " * depth + "if a:\n" for depth in range(99)),
    "f-strings": 'f"{' * 300,
    "f-strings in f-strings": "f'{f\"{f'''{1}'''}\"}'",
    "a huge number": "x = " + "9" * 19_000,
    "a huge hexadecimal number": "x = 0x" + "f" * 19_000,
    "a huge power": "x = 10 ** 10 ** 10 ** 10",
    "a large multiple": "x = 'x' * 10 ** 12",
    "comparisons": "a" + "<a" * 9_900,
    "one line of statements": "a;" * 9_900,
    "functions": "\n".join(f"def f{i}(): 0" for i in range(1_200)),
    "half a character": "'\ud800'",
    "continued": "\\\n" * 9_000,
    "an endless string": "'''" + "x" * 19_000,
    "a bad escape": "'\\N{no such name}'",
    "a coding line": "# -*- coding: rot13 -*-\nx = 1",
    "a long import": "import " + "a." * 9_000 + "a",
    "decorators": "@a\n" * 6_000,
    "match": "match a:\n case " + "[" * 190,
}


@pytest.mark.parametrize("source", FOR_THE_PARSER.values(), ids=FOR_THE_PARSER)
def test_a_cell_made_to_break_the_parser_is_kept_for_the_sandbox(source):
    assert "ulp" in names_of(f"{RIGHT_ULP}\n{source}").bound
    content = as_bytes(small(f"{RIGHT_ULP}\n{source}"))
    chosen = understand_apart(content, COURSE)
    assert chosen.code["ulp"].endswith(source.replace("\ud800", "?"))


@pytest.mark.parametrize("text", FOR_EXPRESSIONS.values(), ids=FOR_EXPRESSIONS)
def test_a_cell_made_to_delay_a_search_is_read(text):
    """A file that takes too long is refused by ``understand_apart``, and this fails."""
    long = filled(text, LONG)
    chosen = understand_apart(as_bytes(small(f"{RIGHT_ULP}\n{long}")), COURSE)
    assert chosen.code["ulp"].startswith(RIGHT_ULP)
    notebook = small(RIGHT_ULP)
    notebook["cells"].append(code(long, nbgrader={"grade": True}))
    assert understand_apart(as_bytes(notebook), COURSE).code["ulp"] == RIGHT_ULP


@pytest.mark.parametrize("kind", ["markdown", "raw", "heading", ""])
@pytest.mark.parametrize("name", ["lines", "cell magics", "half a definition", "names"])
def test_text_made_to_delay_a_search_is_read(kind, name):
    # Text is looked at where an answer is missing and the text mentions it.
    notebook = small("x = 1")
    for size in (LONGEST - 10, LONG):
        text = f"ulp\n{filled(FOR_EXPRESSIONS[name], size)}"
        notebook["cells"].append({**code(text), "cell_type": kind})
    notebook["cells"].append({**code(RIGHT_ULP), "cell_type": "raw"})
    assert understand_apart(as_bytes(notebook), COURSE).code["ulp"] == RIGHT_ULP


@pytest.mark.parametrize("kind", ["code", "markdown"])
def test_three_hundred_thousand_empty_lines_are_read(kind):
    notebook = unsolved()
    notebook["cells"].insert(3, {**code("\n" * 300_000), "cell_type": kind})
    chosen = understand_apart(as_bytes(notebook), COURSE)
    assert chosen.work.lab == LAB and chosen.repairs == ()


def test_text_may_be_longer_than_code():
    notebook = small("x = 1")
    notebook["cells"].append({**code("ulp " + "x" * MOST_CODE), "cell_type": "markdown"})
    assert understand_apart(as_bytes(notebook), COURSE).code["ulp"] == ""
    notebook["cells"][-1]["cell_type"] = "code"
    with pytest.raises(Unreadable, match="The code is longer"):
        understand_apart(as_bytes(notebook), COURSE)
