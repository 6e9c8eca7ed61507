"""Files that are no sound notebook: each is repaired, or refused with a cause and a sentence."""

import json

import pytest
from handing_in import LAB, RIGHT_ULP, as_bytes, code, small, solved, unsolved
from hypothesis import given
from hypothesis import strategies as st

from labkit.grading.intake import notebooks_read
from labkit.grading.intake.notebooks_read import Unreadable, read_notebook


def test_a_sound_notebook_is_read_whole():
    notebook = read_notebook(as_bytes(solved()))
    assert (notebook.lab, notebook.language, notebook.repairs) == (LAB, "python", ())
    assert [c.source for c in notebook.cells] == ["".join(c["source"]) for c in solved()["cells"]]


def test_the_unsolved_notebook_is_as_given_and_a_changed_cell_is_not():
    cells = read_notebook(as_bytes(unsolved())).cells
    assert all(cell.given for cell in cells)
    answered = unsolved()
    answered["cells"][-1]["source"] = "mine"
    assert not read_notebook(as_bytes(answered)).cells[-1].given


DEEP = b'{"cells": ' + b"[" * 100_000
HUGE = as_bytes({"cells": [code("x" * 60)] * 3000})


@pytest.mark.parametrize(
    ("content", "cause", "said"),
    [
        (b"", "empty", "The file is empty"),
        (b" \n\0", "empty", "The file is empty"),
        (as_bytes(solved())[:-4000], "corrupt", "not a whole notebook"),
        (b"<!DOCTYPE html><html>Log in</html>", "corrupt", "a web page"),
        (b"[1, 2]", "corrupt", "JSON, but not a notebook"),
        (b'{"nbformat": 4}', "corrupt", "holds no cells"),
        (b'{"cells": {"a": 1}}', "corrupt", "holds no cells"),
        (DEEP, "corrupt", "nested too deep"),
        (HUGE, "too large", "3000 cells; the limit is 2000"),
        (as_bytes({"cells": [code("y = 1\n" * 500_000)]}), "too large", "longer than"),
        (b"PK\x03\x04\xff\xff\x81", "encoding", "not text in UTF-8"),
        (b"123", "corrupt", "not a notebook"),
        (b'{"cells": [NaN, Infinity]}' + b"\x00", "corrupt", "not a whole notebook"),
    ],
)
def test_what_is_no_notebook_is_refused_with_its_cause(content, cause, said):
    with pytest.raises(Unreadable) as caught:
        read_notebook(content)
    assert caught.value.cause == cause
    assert said in str(caught.value)


def test_fifty_megabytes_are_refused_before_they_are_parsed(monkeypatch):
    monkeypatch.setattr(notebooks_read.json, "loads", lambda _: pytest.fail("it was parsed"))
    with pytest.raises(Unreadable, match=r"50 MB; the limit is 32 MB. Clear the outputs"):
        read_notebook(b" " * (50 * 2**20))


@pytest.mark.parametrize(
    ("encoding", "repair"),
    [
        ("utf-8-sig", ()),
        ("utf-16", ("The file is not in UTF-8; it was read as utf-16.",)),
        ("gb18030", ("The file is not in UTF-8; it was read as gb18030.",)),
    ],
)
def test_another_encoding_is_read_and_said(encoding, repair):
    notebook = small(RIGHT_ULP + "# 步长")
    content = json.dumps(notebook, ensure_ascii=False).encode(encoding)
    read = read_notebook(content)
    assert read.cells[1].source == RIGHT_ULP + "# 步长"
    assert read.repairs == repair


def test_bytes_of_no_encoding_are_read_as_windows_1252():
    read = read_notebook(as_bytes(small("# caf\x80")).replace(b"\\u0080", b"\xe9\xff"))
    assert read.cells[1].source == "# caféÿ"
    assert read.repairs == ("The file is not in UTF-8; it was read as cp1252.",)


def test_format_3_is_read():
    old = {
        "worksheets": [{"cells": [{"cell_type": "code", "input": [RIGHT_ULP], "outputs": []}]}],
        "metadata": {},
        "nbformat": 3,
    }
    read = read_notebook(as_bytes(old))
    assert [cell.source for cell in read.cells] == [RIGHT_ULP]
    assert read.repairs == ("The notebook is of format 3; it was read as format 4.",)


def test_damaged_cells_and_double_ids_are_repaired_and_said():
    notebook = small(RIGHT_ULP)
    notebook["cells"][0]["id"] = notebook["cells"][1]["id"]
    notebook["cells"] += ["text", {"cell_type": "code", "source": 5}, {"source": ["a", 1]}]
    read = read_notebook(as_bytes(notebook))
    assert len(read.cells) == 2
    assert read.repairs == (
        "3 damaged cell(s) without a source were left out.",
        "1 cell id(s) stand on several cells; all of those cells count.",
    )


def test_half_a_character_does_not_reach_a_page():
    (_, cell) = read_notebook(as_bytes(small("s = '\ud800'"))).cells
    assert cell.source == "s = '?'"


@pytest.mark.parametrize(
    ("version", "python"),
    [
        ("3.13.1", "3.13"),
        ("3.13.0rc2", "3.13"),
        ("3.9", "3.9"),
        ("3.1111111", ""),
        ("3." + "9" * 10**6, ""),
        ("２.７", ""),
        ("2.7.18", ""),
        (3.13, ""),
        (["3.13"], ""),
        (None, ""),
    ],
)
def test_the_version_of_python_is_the_notebook_s(version, python):
    notebook = small("x = 1")
    notebook["metadata"] = {"language_info": {"name": "python", "version": version}}
    assert read_notebook(as_bytes(notebook)).python == python


ODD = {
    "a deep id": {"id": json.loads("[" * 900 + "]" * 900)},
    "a huge id": {"id": "x" * 10**6},
    "an id that is a number": {"id": 5},
    "a deep source": {"source": json.loads("[" * 900 + "]" * 900)},
    "a source of many lines": {"source": ["x\n"] * 10**5},
    "a kind that is a list": {"cell_type": ["code"]},
    "no kind": {"cell_type": None},
    "metadata that is text": {"metadata": "nbgrader"},
    "marks that are lists": {"metadata": {"nbgrader": [True], "labkit": [1]}},
    "an occurrence that is long": {"id": "lab-0123456789ab-" + "9" * 5000},
    "large outputs": {"outputs": [{"data": {"text/plain": "x" * 10**6}}]},
    "half characters": {"source": "\ud800" * 1000},
}


@pytest.mark.parametrize("change", ODD.values(), ids=ODD)
def test_an_odd_cell_stands_beside_a_sound_one(change):
    notebook = small(RIGHT_ULP)
    notebook["cells"].insert(0, {**code("x = 1"), **change})
    notebook["cells"].insert(0, {**code("x = 1"), **change})
    read = read_notebook(as_bytes(notebook))
    assert read.cells[-1].source == RIGHT_ULP


@pytest.mark.parametrize(
    "text",
    [
        '{"cells": [], "n": ' + "9" * 5000 + "}",
        '{"cells": [], "n": ' + "[" * 5000 + "]" * 5000 + "}",
        '{"cells": [' + "{" * 5000,
        '{"cells": []' * 1000,
        '"' * 10**6,
        "[" * 10**6,
    ],
)
def test_json_made_to_break_its_reader_is_refused(text):
    with pytest.raises(Unreadable) as caught:
        read_notebook(text.encode())
    assert caught.value.cause == "corrupt"


def test_long_numbers_are_read():
    numbers = ", ".join(["1." + "1" * 10**5] * 100)
    assert read_notebook(f'{{"cells": [], "n": [{numbers}]}}'.encode()).cells == ()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
KEYS = ("cell_type", "source", "metadata", "id", "input")
entries = st.dictionaries(st.sampled_from(KEYS), values, max_size=5)
metadata = st.dictionaries(st.sampled_from(("labkit", "kernelspec", "language_info")), values)


@given(st.fixed_dictionaries({"cells": st.lists(entries | values, max_size=3)}), metadata)
def test_any_json_is_read_or_refused(data, facts):
    try:
        read = read_notebook(as_bytes({**data, "metadata": facts}))
    except Unreadable as error:
        assert error.cause and str(error)
    else:
        assert all(isinstance(cell.source, str) for cell in read.cells)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content):
    try:
        read_notebook(content)
    except Unreadable as error:
        assert error.cause and str(error)
