"""A program written in the learner's own editor: $VISUAL or $EDITOR.

The editor is never closed from here, so nothing that was typed is lost.
"""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from labkit.interview.question_parts import Unclear


def editor() -> list[str] | None:
    """The command of the learner's editor: $VISUAL, else $EDITOR; None where neither is set."""
    for name in ("VISUAL", "EDITOR"):
        try:
            command = shlex.split(os.environ.get(name, ""))
        except ValueError:  # a quotation mark that is not closed
            continue
        if command:
            return command
    return None


def edited(text: str, command: list[str], *, note: str = "") -> str:
    """The text as the editor left it, with ``note`` above it as comments that are taken off.

    Raises Unclear where the editor cannot be started or ends with an error.
    """
    head = "".join(f"#: {line}".rstrip() + "\n" for line in note.splitlines())
    with tempfile.TemporaryDirectory(prefix="labkit-") as folder:
        file = Path(folder) / "answer.py"
        file.write_text(head + text.rstrip("\n") + "\n", encoding="utf-8")
        try:
            ended = subprocess.run([*command, str(file)], check=False).returncode
            written = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _no_editor(command, str(error)) from None
    if ended:
        raise _no_editor(command, f"exit status {ended}")
    return "".join(line for line in written.splitlines(keepends=True) if not line.startswith("#:"))


def _no_editor(command: list[str], why: str) -> Unclear:
    return Unclear(
        f"The editor {command[0]} did not work: {why}. Set EDITOR, or type the code here.",
        f"编辑器 {command[0]} 无法使用：{why}。请设置 EDITOR，或直接在这里输入代码。",
    )
