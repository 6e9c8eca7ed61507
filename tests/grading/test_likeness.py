"""Copies of the published solution and identical answers, in classes as they are handed in."""

import shutil
import subprocess
import sys

import pytest
from handing_in import LAB, as_bytes, solved, unsolved, with_answer
from test_scores import COURSE, SECRET

from labkit.grading.intake.selecting import understand
from labkit.grading.judge.batch import Submission
from labkit.grading.report import likeness
from labkit.grading.report.likeness import TELLING, Likeness, copies, remarks, shared
from labkit.grading.report.scores import sheet
from labkit.grading.report.summary import summary

KNOWN = likeness.published(COURSE, [LAB])


def text_of(exercise: str) -> str:
    (cell,) = [
        cell
        for cell in solved()["cells"]
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == exercise
    ]
    return "".join(cell["source"])


DECODE = text_of("decode")
ULP = text_of("ulp")
OWN = """\
def decode(code, exponent_bits, mantissa_bits, bias):
    field = (code >> mantissa_bits) % 2**exponent_bits
    part = code % 2**mantissa_bits
    sign = (-1) ** (code >> (exponent_bits + mantissa_bits))
    if field:
        return math.ldexp(sign * (part + 2**mantissa_bits), field - bias - mantissa_bits)
    return math.ldexp(sign * part, 1 - bias - mantissa_bits)
"""
OTHER = """\
def decode(code, exponent_bits, mantissa_bits, bias):
    bits = f"{code:0{1 + exponent_bits + mantissa_bits}b}"
    e, m = int(bits[1 : 1 + exponent_bits], 2), int("0" + bits[1 + exponent_bits :], 2)
    value = m / 2**mantissa_bits + (e > 0)
    return (-1.0 if bits[0] == "1" else 1.0) * value * 2.0 ** (max(e, 1) - bias)
"""


def handed_in(student: str, notebook: dict) -> Submission:
    """The submission of a notebook, read as the grader reads it."""
    selected = understand(as_bytes(notebook), COURSE)
    return Submission(
        student=student,
        file=f"{student}.ipynb",
        lab=LAB,
        work=selected.work,
        code=selected.code,
        forms=selected.forms,
    )


def with_answers(student: str, **sources: str) -> Submission:
    """The untouched lab with these answers, and a cell that makes each file differ."""
    notebook = unsolved()
    for name, source in sources.items():
        with_answer(notebook, name, source)
    notebook["metadata"]["who"] = student
    return handed_in(student, notebook)


def renamed(source: str) -> str:
    names = {"sign": "s", "exponent": "field", "fraction": "rest", "code": "bits"}
    for old, new in names.items():
        source = source.replace(f"{old} ", f"{new} ").replace(f"{old},", f"{new},")
        source = source.replace(f"{old})", f"{new})").replace(f"{old}:", f"{new}:")
    return source


def without_comments(source: str) -> str:
    return "\n".join(line for line in source.splitlines() if not line.strip().startswith("#"))


def formatted(source: str) -> str:
    """As another formatter has it: one argument a line, other blank lines and comments."""
    head, _, body = source.partition(") -> float:\n")
    head = head.replace("(", "(\n    ", 1).replace(", ", ",\n    ")
    lines = [f"{line}  # !\n" if line.strip() else "" for line in body.splitlines()]
    return f"{head},\n) -> float:\n" + "\n".join(lines)


@pytest.mark.parametrize(
    ("change", "other_names"),
    [
        (str, False),
        (without_comments, False),
        (formatted, False),
        (renamed, True),
    ],
)
def test_a_copy_of_the_published_solution_is_told(change, other_names):
    source = change(DECODE)
    assert (source == DECODE) == (change is str)
    one = with_answers("ada", decode=source)
    (found,) = copies([one, with_answers("bob", decode=OWN)], KNOWN)
    assert found == Likeness(
        lab=LAB,
        students=("ada",),
        exercises=("decode",),
        renamed=frozenset({"decode"} if other_names else ()),
        published=len(KNOWN[LAB]),
    )
    (remark,) = remarks([found])
    assert (remark.kind, remark.who) == ("copied", "ada")
    assert f"1 of the {len(KNOWN[LAB])} answers" in remark.said and "decode" in remark.said
    assert " is the published solution" in remark.said
    assert ("names changed" in remark.said) == other_names


@pytest.mark.skipif(not shutil.which("ruff"), reason="a formatter is needed")
def test_a_formatter_changes_no_form():
    done = subprocess.run(
        ["ruff", "format", "--line-length", "40", "--stdin-filename", "x.py", "-"],
        input=DECODE,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout != DECODE
    assert len(copies([with_answers("ada", decode=done.stdout)], KNOWN)) == 1


def test_the_solved_notebook_is_a_copy_and_an_untouched_one_is_nothing():
    untouched = [handed_in(student, unsolved()) for student in "ab"]
    assert not copies(untouched, KNOWN) and not shared(untouched, KNOWN)
    whole = [handed_in(student, solved()) for student in "cd"]
    (found,) = copies([*untouched, *whole], KNOWN)
    assert found.students == ("c", "d") and set(found.exercises) == set(KNOWN[LAB])
    # What is published is no answer of theirs, but the file is the same.
    (same,) = shared(whole, KNOWN)
    assert same.files and same.exercises == () and same.students == ("c", "d")


def test_a_short_answer_that_thirty_share_says_nothing():
    """The published one, and one of the class's own."""
    assert "ulp" not in KNOWN[LAB] and all(f.written >= TELLING for f in KNOWN[LAB].values())
    own = "def ulp(x):\n    return 2.0 ** (max(math.frexp(x)[1], -13) - 11)\n"
    for source in (ULP, own):
        class_ = [with_answers(f"s{n}", ulp=source) for n in range(30)]
        assert not copies(class_, KNOWN) and not shared(class_, KNOWN)
        # Not as a whole file either.
        same = [handed_in(f"s{n}", with_answer(unsolved(), "ulp", source)) for n in range(30)]
        assert not shared(same, KNOWN)


def test_a_long_answer_that_students_share_is_told_to_each():
    class_ = [
        with_answers("ada", decode=OWN),
        with_answers("bob", decode=OWN.replace("part", "rest")),
        with_answers("eve", decode=OTHER),
        with_answers("zoe", decode=DECODE),
        with_answers("yan", decode=DECODE),
    ]
    (found,) = shared(class_, KNOWN)
    assert (found.students, found.exercises) == (("ada", "bob"), ("decode",))
    assert found.renamed == {"decode"} and not found.files
    one, other = remarks([found])
    assert (one.who, other.who) == ("ada", "bob") and one.said == other.said
    assert "`ada`, `bob`" in one.said and "decode (names changed)" in one.said
    assert one.kind == "identical"


def test_what_the_same_students_share_is_one_row_and_most_comes_first():
    snap = text_of("snap").replace("65504", "65504.0")
    class_ = [with_answers(student, decode=OWN, snap=snap) for student in "ab"]
    class_ += [with_answers(student, decode=OTHER) for student in "cde"]
    class_ += [
        handed_in(student, with_answer(unsolved(), "decode", OTHER + "\n#")) for student in "fg"
    ]
    found = shared(class_, KNOWN)
    assert [("".join(one.students), one.exercises, one.files) for one in found] == [
        ("fg", (), True),
        ("ab", ("decode", "snap"), False),
        ("cdefg", ("decode",), False),
    ]


def test_a_group_as_large_as_the_class_is_told_in_a_short_sentence():
    class_ = [with_answers(f"student-{n:03}", decode=OWN) for n in range(3)]
    many = [Submission(**{**vars(class_[0]), "student": f"student-{n:03}`"}) for n in range(300)]
    (found,) = shared(many, KNOWN)
    said = [one.said for one in remarks([found])]
    assert len(said) == 300 and len(set(said)) == 1 and len(said[0]) < 1_000
    assert "and 280 more" in said[0]


def test_likeness_changes_no_points_and_stands_on_the_class_page_only():
    class_ = [with_answers(student, decode=OWN) for student in ("ada", "bob")]
    class_.append(with_answers("eve", decode=DECODE))
    alike = likeness.likenesses(class_, COURSE)
    sheets = [sheet(one, COURSE[LAB], {}, {}) for one in class_]
    text = summary(sheets, COURSE, SECRET, list(remarks(alike)), alike)
    assert 'id="alike"' in text and "ada" not in text
    for caption in ("Copies of the published solution", "Identical answers"):
        assert text.count(f'<table aria-label="{caption}">') == 1
    assert 'id="alike"' not in summary(sheets, COURSE, SECRET)


def test_no_torch_is_needed_to_know_the_solutions():
    """The grader's parent starts in a second because it imports none."""
    code = (
        "import sys; from labkit.grading.course_labs import read_course;"
        "from labkit.grading.report.likeness import published;"
        "known = published(read_course(), ['02_number_formats']);"
        "print(len(known['02_number_formats']), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(KNOWN[LAB])), "False"]


def test_a_clone_without_solutions_knows_none(tmp_path, monkeypatch):
    monkeypatch.setattr(likeness, "NOTEBOOKS", tmp_path)
    assert likeness.published(COURSE, [LAB, "no lab"]) == {LAB: {}}


def test_the_bound_leaves_enough_to_compare():
    """What TELLING says of the labs' own answers."""
    known = likeness.published(COURSE, COURSE)
    exercises = sum(len(lab.exercises) for lab in COURSE.values())
    assert exercises / 2 < sum(map(len, known.values())) < exercises
