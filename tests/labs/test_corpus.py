"""Each answer of the corpus is judged as it asks; the form of the corpus."""

import pytest

from labkit.labs.engine import slips
from tests import corpus
from tests.corpus import Snippet, every_snippet, judge, main, read, table

SNIPPETS = every_snippet()


@pytest.mark.slow
@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda s: f"{s.lab[:2]} {s.exercise}: {s.title}")
def test_an_answer_is_accepted_or_told_what_the_corpus_asks(snippet, seeds):
    at = corpus._checks()[snippet.lab, snippet.exercise].seeds[:seeds]
    for seed in at if snippet.kind == "right" else [0]:
        found = judge(snippet, seed)
        assert found.as_asked, f"seed {seed}, {found.what}: {found.message}"
        assert snippet.kind == "wrong" or not found.shortcuts, "it does not do its own work"


def test_every_idea_of_the_corpus_is_one_of_its_check():
    for snippet in SNIPPETS:
        check = corpus._checks()[snippet.lab, snippet.exercise]
        ideas = {wrong.misconception for wrong in check.known_wrong}
        assert not snippet.idea or snippet.idea in ideas, snippet.place


FILE = """\
import math
HALF = 0.5

# %% right ulp: as labkit's
ulp = ours.ulp

# %% wrong ulp: half of it
#    says: 0.5 times
#    never: eps
# a comment of the answer
def ulp(x):
    return ours.ulp(x) * HALF

# %% wrong ulp: too small at the smallest
#    idea: gap-shrinks-below-normal
ulp = changed("max(exponent, -14)", "exponent")
"""


@pytest.fixture
def made(tmp_path):
    path = tmp_path / "02_number_formats.py"
    path.write_text(FILE)
    return path


def test_a_file_gives_its_snippets(made):
    right, half, small = read(made)
    assert (right.kind, half.kind) == ("right", "wrong")
    assert (half.says, half.never) == (("0.5 times",), ("eps",))
    assert (small.idea, small.place) == ("gap-shrinks-below-normal", "02_number_formats.py:14")
    assert half.code.splitlines()[10] == "def ulp(x):", "lines are counted as in the file"
    assert [judge(one).what for one in (right, half, small)] == [
        "accepted",
        "told truly",
        "told truly",
    ]


SHRINKS = 'ulp = changed("max(exponent, -14)", "exponent")'


@pytest.mark.parametrize(
    ("kind", "code", "asks", "what"),
    [
        ("right", "ulp = ours.ulp", {}, "accepted"),
        ("right", "ulp = abs", {}, "refused wrongly"),
        ("wrong", "ulp = ours.ulp", {}, "accepted wrongly"),
        ("wrong", "ulp = abs", {"says": ("is wanted",)}, "told truly"),
        ("wrong", "ulp = abs", {}, "only refused"),
        ("wrong", "ulp = abs", {"says": ("other words",)}, "only refused"),
        ("wrong", "ulp = abs", {"never": ("is wanted",)}, "misled"),
        ("wrong", SHRINKS, {}, "misled"),
        ("wrong", SHRINKS, {"idea": "ulp-is-constant"}, "misled"),
        ("wrong", "ulp = abs", {"idea": "ulp-is-relative"}, "only refused"),
    ],
)  # fmt: skip
def test_what_is_found(kind, code, asks, what):
    given = {"lab": "02_number_formats", "exercise": "ulp", "title": "it", "place": "02.py:1"}
    found = judge(Snippet(kind=kind, code=code, **given, **asks))
    assert found.what == what
    asked = {"accepted", "told truly"} | ({"only refused"} if not asks else set())
    assert found.as_asked is (what in asked)


def test_a_header_of_another_form_is_an_error(made):
    made.write_text("# %% almost right ulp: it\nulp = 1\n")
    with pytest.raises(ValueError, match=r"02_number_formats\.py:1"):
        read(made)


def test_an_answer_that_does_not_define_its_name_or_changes_nothing_is_an_error():
    given = {"lab": "02_number_formats", "exercise": "ulp", "kind": "right", "title": ""}
    with pytest.raises(KeyError, match="ulp"):
        judge(Snippet(code="pass", place="x", **given))
    with pytest.raises(ValueError, match="stands 0 times"):
        judge(Snippet(code='ulp = changed("no such text", "")', place="x", **given))


def test_the_command_counts_shows_and_fails(made, monkeypatch, capsys):
    monkeypatch.setattr(corpus, "CORPUS", made.parent)
    assert main(["02", "--exercise", "ulp"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["all", "1", "0", "2", "0", "2", "0"]
    made.write_text(FILE.replace("as labkit's\nulp = ours.ulp", "other\nulp = abs"))
    assert main(["02"]) == 1
    assert "refused wrongly: 02_number_formats.py:4, ulp, other" in capsys.readouterr().out


def test_the_table_has_a_row_an_exercise(made):
    made.write_text(FILE + "# %% wrong snap: not at all\nsnap = abs\n")
    rows = table(map(judge, read(made))).splitlines()
    assert [row.split() for row in rows[1:]] == [
        ["02", "ulp", *"102020"],
        ["02", "snap", *"001000"],
        ["all", *"103020"],
    ]


def test_answers_run_in_the_names_of_the_lab_s_solutions():
    ulp = slips.answer_of("ulp = lambda x: spacing(x, FP16)", "02_number_formats", "ulp", "x")
    assert ulp(1.0) == 2.0**-10
