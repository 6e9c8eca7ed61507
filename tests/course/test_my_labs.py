"""The learner's copies: whatever happens, nothing that a learner wrote is lost."""

import json
import os
import re
from pathlib import Path

import pytest
from tiny_lab import TINY

from labkit.__main__ import main
from labkit.base import progress
from labkit.base.home import ManifestError
from labkit.course import my_labs
from labkit.course.build import build
from labkit.course.cell_ids import digest
from labkit.course.my_labs import Started, default_folder, start
from labkit.labs.engine.copies import stale_copy

NAME = "02_tiny.ipynb"
OLD = digest(TINY)[:12]
NEWER = TINY.replace("# You write one function", "# In this edition you write one function")
KEPT = f"02_tiny.before-{OLD}.ipynb"


@pytest.fixture(autouse=True)
def no_execution(monkeypatch):
    """Copies come from learner notebooks; solutions need not be executed for them."""
    monkeypatch.setattr("labkit.course.build._executed", lambda lab, _: lab.solution)


@pytest.fixture
def notebooks(course) -> Path:
    folder = course()
    build(notebooks=folder)
    return folder


@pytest.fixture
def mine(tmp_path) -> Path:
    return tmp_path / "mine"


def publish(notebooks: Path, text: str) -> None:
    """The course moves on: another text of the lab, built."""
    (notebooks / "source" / "02_tiny.py").write_text(text, encoding="utf-8")
    build(notebooks=notebooks)


def load(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def write_in(path: Path, old: str, new: str) -> None:
    """A learner replaces ``old`` in the cell that holds it, and saves as JupyterLab does."""
    notebook = load(path)
    (cell,) = [c for c in notebook["cells"] if old in "".join(c["source"])]
    cell["source"] = "".join(cell["source"]).replace(old, new)
    cell.setdefault("outputs", [])
    path.write_text(json.dumps(notebook, indent=2), encoding="utf-8")


def add_cell(path: Path, source: str, **changes) -> None:
    notebook = load(path)
    cell = {
        "cell_type": "code",
        "id": "6f1c0a52-0a5e-4a3e-9a68-3f0f3f6e7d11",
        "metadata": {},
        "execution_count": 3,
        "outputs": [],
        "source": source,
    }
    notebook["cells"].append({**cell, **changes})
    path.write_text(json.dumps(notebook), encoding="utf-8")


def text_of(path: Path) -> str:
    return "\n".join("".join(c["source"]) for c in load(path)["cells"])


def snapshot(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


ANSWER = 'raise NotImplementedError("your code here")'


def test_labs_are_copied_byte_for_byte(notebooks, mine):
    started = start(mine, notebooks=notebooks)
    assert (mine / NAME).read_bytes() == (notebooks / NAME).read_bytes()
    assert snapshot(mine).keys() == {NAME}
    assert started.labs == ((NAME, "2. Tiny numbers"),)
    assert not started.updates and not started.blocked


def test_starting_again_leaves_work_alone(notebooks, mine):
    start(mine, notebooks=notebooks)
    write_in(mine / NAME, ANSWER, "return 1.0")
    before = snapshot(mine)
    started = start(mine, notebooks=notebooks)
    assert snapshot(mine) == before
    assert not started.updates and not started.blocked


def test_an_unchanged_old_copy_is_replaced(notebooks, mine):
    start(mine, notebooks=notebooks)
    notebook = load(mine / NAME)
    notebook["cells"][1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "ran"}]
    notebook["metadata"]["language_info"]["version"] = "3.13.1"
    (mine / NAME).write_text(json.dumps(notebook), encoding="utf-8")
    add_cell(mine / NAME, "")  # JupyterLab adds one below the last cell that ran
    publish(notebooks, NEWER)
    started = start(mine, notebooks=notebooks)
    assert (mine / NAME).read_bytes() == (notebooks / NAME).read_bytes()
    assert snapshot(mine).keys() == {NAME}
    assert started.updates == (
        f"{NAME} is now the current version; you had changed nothing in it.",
    )


@pytest.fixture
def log(tmp_path, monkeypatch):
    """The learner's guesses in a log of their own: prediction, words, sure."""
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)

    def guesses():
        events = progress.events(lab="02_tiny", kind="prediction")
        return [(event.item, event.detail["guess"], event.detail["sure"]) for event in events]

    return guesses


BODY = '    return bin(7).count("1")'


def test_answers_and_guesses_are_carried_into_the_new_version(notebooks, mine, log):
    start(mine, notebooks=notebooks)
    write_in(mine / NAME, ANSWER, "return 1.5  # mine")
    write_in(mine / NAME, BODY, f"{BODY}\n\ncount.guess(2, sure=3)")
    learners = (mine / NAME).read_bytes()
    publish(notebooks, NEWER)
    started = start(mine, notebooks=notebooks)

    assert (mine / KEPT).read_bytes() == learners
    new = text_of(mine / NAME)
    assert "In this edition" in new and "return 1.5  # mine" in new
    assert "count.guess" not in new and log() == [("ones", "2", 3)]
    assert "gap = ...\n# your code here" in new, "an open exercise stays as the lab has it"
    assert load(mine / NAME)["metadata"]["labkit"]["version"] == digest(NEWER)[:12]
    assert started.updates == (
        f"{NAME} is now the current version. Carried over: `ulp`, `ones`. "
        f"Your earlier file is {KEPT}.",
    )


@pytest.mark.parametrize(
    ("cell", "kept"),
    [
        ("count.guess(2048, sure=3)", [("ones", "2048", 3)]),
        ("count.guess(2**-14, sure=1)  # a power", [("ones", "2**-14", 1)]),
        ("count.guess('inf')", [("ones", "inf", 2)]),
        ("count.guess(math.inf)", [("ones", "inf", 2)]),
        ('count.guess(float("nan"))', [("ones", "nan", 2)]),
        ("count.guess(-1)", [("ones", "-1", 2)]),
        ("count.guess([True, False])", [("ones", "True, False", 2)]),
        ("count.guess(\n    3,\n    1,\n)", [("ones", "3", 1)]),
        ("count.guess(3, 'very')", [("ones", "3", 2)]),
        ("count.guess([], sure=1)", [("ones", "none", 1)]),
        ("count.guess(..., sure=3)", []),
        ("count.guess([True, ...], 3)", []),
        ("count.guess('skip')", []),
        ("count.guess(", []),
    ],
)
def test_a_guess_of_any_form_is_read(notebooks, mine, log, cell, kept):
    start(mine, notebooks=notebooks)
    write_in(mine / NAME, f"@predict(guesses.ones)\ndef count():\n{BODY}", cell)
    publish(notebooks, NEWER)
    (said,) = start(mine, notebooks=notebooks).updates
    assert log() == kept
    assert ("`ones`" in said) == bool(kept)
    assert ("changed (1) stay" in said) == (not kept)
    assert cell not in text_of(mine / NAME) and cell in text_of(mine / KEPT)


def test_a_guess_that_was_logged_is_logged_no_second_time(notebooks, mine, log):
    start(mine, notebooks=notebooks)
    progress.record("prediction", lab="02_tiny", item="ones", status="right", guess="3", sure=1)
    write_in(mine / NAME, BODY, f"{BODY}\n\ncount.guess(2, sure=3)")
    publish(notebooks, NEWER)
    start(mine, notebooks=notebooks)
    assert log() == [("ones", "3", 1)]


def test_a_guess_that_no_log_can_take_is_named(notebooks, mine, log, tmp_path):
    (tmp_path / "home" / "progress.db").mkdir(parents=True)
    start(mine, notebooks=notebooks)
    write_in(mine / NAME, BODY, f"{BODY}\n\ncount.guess(2, sure=3)")
    publish(notebooks, NEWER)
    (said,) = start(mine, notebooks=notebooks).updates
    assert "Carried over: nothing." in said
    assert "cannot take the guesses `ones`; they are in that file." in said


def test_an_open_exercise_takes_the_new_stub(notebooks, mine):
    start(mine, notebooks=notebooks)
    write_in(mine / NAME, "gap = ...", "gap = 7")
    publish(notebooks, NEWER.replace("Gap above x.", "The gap above x."))
    start(mine, notebooks=notebooks)
    new = text_of(mine / NAME)
    assert "The gap above x." in new and "gap = 7" in new


def test_an_open_exercise_is_recognised_when_a_tool_has_dropped_the_ids(notebooks, mine):
    start(mine, notebooks=notebooks)
    notebook = load(mine / NAME)
    for cell in notebook["cells"]:
        del cell["id"]
    (mine / NAME).write_text(json.dumps(notebook), encoding="utf-8")
    write_in(mine / NAME, "gap = ...\n# your code here", "gap = 7")
    publish(notebooks, NEWER.replace("Gap above x.", "The gap above x."))
    start(mine, notebooks=notebooks)
    new = text_of(mine / NAME)
    assert "The gap above x." in new and "gap = 7" in new
    assert (mine / KEPT).exists()


def test_half_an_answer_is_carried_too(notebooks, mine):
    start(mine, notebooks=notebooks)
    write_in(mine / NAME, "    # your code here\n", "    half = x / 2  # so far\n")
    publish(notebooks, NEWER)
    start(mine, notebooks=notebooks)
    assert "half = x / 2  # so far" in text_of(mine / NAME)


def test_other_cells_stay_in_the_kept_file_and_the_report_says_so(notebooks, mine):
    start(mine, notebooks=notebooks)
    add_cell(mine / NAME, "my_notes = 1")
    write_in(mine / NAME, "import math", "import math, cmath")
    publish(notebooks, NEWER)
    (said,) = start(mine, notebooks=notebooks).updates
    assert "Other cells that you added or changed (2) stay in that file." in said
    assert "my_notes" in text_of(mine / KEPT) and "cmath" in text_of(mine / KEPT)
    assert "my_notes" not in text_of(mine / NAME)


def test_an_answer_to_an_exercise_that_is_gone_is_kept_and_named(notebooks, mine):
    start(mine, notebooks=notebooks)
    write_in(mine / NAME, "gap = ...", "gap = 7")
    begin, end = NEWER.index('# %% exercise="gap"'), NEWER.index("# %% tags=")
    publish(notebooks, NEWER[:begin] + NEWER[end:])
    (said,) = start(mine, notebooks=notebooks).updates
    assert "The lab no longer asks for `gap`; what you wrote is in that file." in said
    assert "gap = 7" in text_of(mine / KEPT)


def test_a_doubled_exercise_cell_loses_nothing(notebooks, mine):
    start(mine, notebooks=notebooks)
    write_in(mine / NAME, ANSWER, "return 1.0")
    graded = {"nbgrader": {"grade_id": "ulp", "solution": True, "grade": False}}
    add_cell(mine / NAME, "def ulp(x): return 2.0", metadata=graded)
    publish(notebooks, NEWER)
    (said,) = start(mine, notebooks=notebooks).updates
    assert "return 2.0" in text_of(mine / NAME), "the cell that ran last is the answer"
    assert "return 1.0" in text_of(mine / KEPT) and "changed (1) stay" in said


def test_a_kept_file_is_never_overwritten(notebooks, mine):
    start(mine, notebooks=notebooks)
    (mine / KEPT).write_text("the learner's own file of that name")
    write_in(mine / NAME, ANSWER, "return 1.0")
    publish(notebooks, NEWER)
    (said,) = start(mine, notebooks=notebooks).updates
    assert (mine / KEPT).read_text() == "the learner's own file of that name"
    second = f"02_tiny.before-{OLD}-2.ipynb"
    assert "return 1.0" in text_of(mine / second) and second in said


def test_interrupted_between_keeping_and_writing_it_goes_on_next_time(notebooks, mine, monkeypatch):
    start(mine, notebooks=notebooks)
    write_in(mine / NAME, ANSWER, "return 1.0")
    learners = (mine / NAME).read_bytes()
    publish(notebooks, NEWER)
    replace, calls = os.replace, []

    def only_once(source, target):
        calls.append(target)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", only_once)
    with pytest.raises(OSError, match="No space left on device"):
        start(mine, notebooks=notebooks)
    assert snapshot(mine) == {NAME: learners, KEPT: learners}, "no temporary file stays"
    monkeypatch.undo()
    start(mine, notebooks=notebooks)
    assert snapshot(mine).keys() == {NAME, KEPT}
    assert (mine / KEPT).read_bytes() == learners
    assert "return 1.0" in text_of(mine / NAME) and "In this edition" in text_of(mine / NAME)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is damaged"),
        (b'{"cells": [', "it is damaged"),
        (b"\xff\xfe\x00", "it is damaged"),
        (b"[1, 2]", "it is not a copy of this lab"),
        (b"null", "it is not a copy of this lab"),
        (b'{"cells": [], "metadata": {}}', "it is not a copy of this lab"),
        (
            b'{"cells": [3], "metadata": {"labkit": {"lab": "02_tiny", "version": "x"}}}',
            "not a copy",
        ),
        (
            b'{"cells": [], "metadata": {"labkit": {"lab": "02_tiny", "version": "../../etc/x"}}}',
            "it is not a copy of this lab",
        ),
        (
            b'{"cells": [], "metadata": {"labkit": {"lab": "03_x", "version": "0123456789ab"}}}',
            "it is not a copy of this lab",
        ),
    ],
)
def test_a_foreign_or_damaged_file_is_left_alone(notebooks, mine, content, reason):
    mine.mkdir()
    (mine / NAME).write_bytes(content)
    started = start(mine, notebooks=notebooks)
    assert snapshot(mine) == {NAME: content}
    (said,) = started.blocked
    assert said.startswith(f"{NAME} is left as it is: ") and reason in said
    assert "Rename it and start again" in said and said in repr(started)


def test_a_folder_in_the_way_is_left_alone(notebooks, mine):
    (mine / NAME).mkdir(parents=True)
    (said,) = start(mine, notebooks=notebooks).blocked
    assert "it cannot be read (" in said and (mine / NAME).is_dir()


def test_a_file_where_the_folder_should_be(notebooks, mine):
    mine.write_text("mine")
    with pytest.raises(OSError, match=r"cannot be copied to .*mine: File exists.*labkit start DIR"):
        start(mine, notebooks=notebooks)
    assert mine.read_text() == "mine"


def test_pictures_are_copied_so_that_links_hold(notebooks, mine):
    (notebooks / "images" / "deep").mkdir(parents=True)
    (notebooks / "images" / "deep" / "ruler.png").write_bytes(b"png")
    start(mine, notebooks=notebooks)
    assert (mine / "images" / "deep" / "ruler.png").read_bytes() == b"png"


def test_the_report_is_the_same_on_the_first_day_and_later(notebooks, mine):
    first, later = start(mine, notebooks=notebooks), start(mine, notebooks=notebooks)
    assert repr(first) == repr(later) and first._repr_html_() == later._repr_html_()


def test_the_report_reads_well_and_links(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labs = (("00_start_here.ipynb", "0. Start here"), ("02_a.ipynb", "2. Bits & <ulps>"))
    started = Started(tmp_path / "my_labs", labs, updates=("02_a.ipynb is new.",))
    assert repr(started) == (
        "Your labs are in my_labs/:\n"
        "  00_start_here.ipynb  0. Start here\n"
        "  02_a.ipynb           2. Bits & <ulps>\n"
        "02_a.ipynb is new."
    )
    page = started._repr_html_()
    assert re.findall('<a href="(.*?)">(.*?)</a>', page) == [
        ("my_labs/00_start_here.ipynb", "0. Start here"),
        ("my_labs/02_a.ipynb", "2. Bits &amp; &lt;ulps&gt;"),
    ]
    assert "Your labs are in my_labs/:" in page and "<p>02_a.ipynb is new.</p>" in page


def test_no_name_becomes_a_tag_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evil = "\"><script>alert('1')<"
    page = Started(
        Path(f"/{evil}"), ((evil, evil),), updates=(evil,), blocked=(evil,)
    )._repr_html_()
    assert "<script" not in page and page.count("&lt;script&gt;") == 4
    (link,) = re.findall('href="(.*?)"', page)
    assert not {*link} & {*"<>'"}


def test_links_from_inside_the_folder(notebooks, mine, monkeypatch):
    started = start(mine, notebooks=notebooks)
    monkeypatch.chdir(mine)
    assert re.findall('href="(.*?)"', started._repr_html_()) == [f"./{NAME}"]


def test_where_the_copies_go(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert default_folder(notebooks=Path("/c/notebooks"), in_checkout=True) == Path(
        "/c/notebooks/my_labs"
    )
    assert default_folder(in_checkout=False) == tmp_path / "my_labs"
    (tmp_path / "my_labs").mkdir()
    monkeypatch.chdir(tmp_path / "my_labs")
    assert default_folder(in_checkout=False) == tmp_path / "my_labs", "no folder in the folder"


def test_a_stale_copy_says_so(notebooks, mine):
    start(mine, notebooks=notebooks)
    assert stale_copy(mine / NAME, notebooks=notebooks) is None
    publish(notebooks, NEWER)
    said = stale_copy(mine / NAME, notebooks=notebooks)
    assert OLD in said and digest(NEWER)[:12] in said and "python -m labkit start" in said
    assert stale_copy(mine / "missing.ipynb", notebooks=notebooks) is None
    (mine / "other.ipynb").write_text('{"cells": [], "metadata": {}}')
    assert stale_copy(mine / "other.ipynb", notebooks=notebooks) is None


def test_a_course_that_is_not_built_says_so(tmp_path):
    with pytest.raises(ManifestError, match=r"is missing.*python -m labkit build"):
        start(tmp_path / "mine", notebooks=tmp_path)


def test_the_command(notebooks, mine, monkeypatch, capsys):
    real = my_labs.start
    monkeypatch.setattr(my_labs, "start", lambda folder: real(folder, notebooks=notebooks))
    assert main(["start", str(mine)]) == 0
    assert capsys.readouterr().out == f"Your labs are in {mine}:\n  {NAME}  2. Tiny numbers\n"
    (mine / NAME).write_text("{")
    assert main(["start", str(mine)]) == 1
    assert "is left as it is: it is damaged" in capsys.readouterr().out
    assert main(["start", str(mine / NAME)]) == 1
    assert "cannot be copied" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written(notebooks, tmp_path, monkeypatch):
    # root may write anywhere, so the system's refusal is played.
    def refuse(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(my_labs, "replace_file", refuse)
    with pytest.raises(OSError, match=r"Permission denied\. Name a folder that you may write to"):
        start(tmp_path / "mine", notebooks=notebooks)
