"""A program from the learner's editor: its text, and its failures."""

import sys

import pytest

from labkit.interview import editing
from labkit.interview.question_parts import Unclear


def script(tmp_path, body):
    """An editor: a program that gets the file's name."""
    file = tmp_path / "editor.py"
    file.write_text(f"import sys, pathlib\nfile = pathlib.Path(sys.argv[1])\n{body}\n")
    return [sys.executable, str(file)]


@pytest.mark.parametrize(
    ("visual", "editor", "command"),
    [
        ("", "", None),
        ("", "vim -n", ["vim", "-n"]),
        ("code --wait", "vim", ["code", "--wait"]),
        ('"open', "vim", ["vim"]),
    ],
)
def test_the_editor_is_the_learners(monkeypatch, visual, editor, command):
    monkeypatch.setenv("VISUAL", visual)
    monkeypatch.setenv("EDITOR", editor)
    assert editing.editor() == command


def test_the_text_comes_back_without_the_note(tmp_path):
    append = script(tmp_path, "file.write_text(file.read_text() + '# mine\\n')")
    assert editing.edited("def f(): ...", append, note="Wrong.\nTry again.") == (
        "def f(): ...\n# mine\n"
    )
    shown = script(tmp_path, "pathlib.Path(sys.argv[0] + '.seen').write_text(file.read_text())")
    editing.edited("x = 1\n", shown, note="Wrong.")
    assert (tmp_path / "editor.py.seen").read_text() == "#: Wrong.\nx = 1\n"


@pytest.mark.parametrize("body", ["sys.exit(3)", "file.unlink()", "file.write_bytes(b'\\xff')"])
def test_an_editor_that_fails_says_so(tmp_path, body):
    with pytest.raises(Unclear, match="did not work"):
        editing.edited("x = 1", script(tmp_path, body))


def test_an_editor_that_is_not_there_says_so():
    with pytest.raises(Unclear, match="no-such-editor did not work"):
        editing.edited("x = 1", ["no-such-editor"])
