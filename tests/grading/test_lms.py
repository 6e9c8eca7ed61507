"""Marks find their way back: what is written for Moodle and Canvas, read as their sources do."""

import csv
import io
import json
import zipfile
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from handing_in import LAB, POINTS, as_bytes, code, hand_in, small
from lms_importers import MOODLE_DAY, canvas_comments, canvas_grades, moodle_feedback, moodle_grades
from quick_grader import QuickGrader, answer, grade_command

from labkit.base.home import NOTEBOOKS
from labkit.grading.command import ALL_GRADED, CANNOT_START, SOME_UNGRADED
from labkit.grading.course_labs import read_course
from labkit.grading.intake.remarks import Remark
from labkit.grading.judge.batch import Submission
from labkit.grading.report import canvas, feedback, lms, moodle
from labkit.grading.report.lms import Line, Upload
from labkit.grading.report.lms_table import LmsError, parse_table, read_table
from labkit.grading.report.scores import Row, Sheet

COURSE = read_course()
LAB4 = "04_loss_scaling"
TOTAL = sum(POINTS.values())
FORMULA = '=HYPERLINK("http://x","y")'
NAMES = {
    101: "Ada Lovelace",
    102: "Zoë Ångström",
    103: "李小龙",
    104: "Ana Silva",
    105: "Ana Silva",
    106: "Lou Late",
    107: "Mia Missing",
    108: "Uma Ungraded",
    109: FORMULA,
}
WORDS = dict.fromkeys((101, 102, 104, 106, 109), "passes") | {103: "fails", 105: "fails"}
WORDS[108] = "breaks"
EARNED = {n: POINTS["ulp"] * (WORDS[n] == "passes") for n in WORDS if n != 108} | {107: 0}
ROSTER = "id;name;lms_id;due\n" + "".join(
    f's{n};"{name.replace(chr(34), 2 * chr(34))}";{n};2026-11-20\n' for n, name in NAMES.items()
)
LMS_IDS = {number: f"s{number}" for number in NAMES}


def of_lab4(word: str) -> dict:
    """A notebook of lab 04 with one answer."""
    (first, *_) = [e.names[0] for e in COURSE[LAB4].exercises]
    lab = json.loads((NOTEBOOKS / f"{LAB4}.ipynb").read_text(encoding="utf-8"))
    setup = next(cell for cell in lab["cells"] if cell["cell_type"] == "code")
    return lab | {"cells": [setup, code(answer(word, first))]}


def delivery(root, naming: str):
    """A zip of the class as an LMS names its files; 106 is late, 107 handed in nothing."""
    root.mkdir(exist_ok=True)
    with zipfile.ZipFile(root / "class.zip", "w") as archive:
        for number, word in WORDS.items():
            plain = NAMES[number].replace("/", "").replace("_", " ")
            day = 21 if number == 106 else 19
            name = naming.format(name=plain, squeezed="".join(plain.lower().split()), number=number)
            entry = zipfile.ZipInfo(name, date_time=(2026, 11, day, 12, 0, 0))
            archive.writestr(entry, as_bytes(small(answer(word))))
    (root / "roster.csv").write_text(ROSTER, encoding="utf-8")
    return root / "class.zip"


def grade(root, submissions, *more) -> int:
    words = [submissions, "-o", root / "grades.csv", "--roster", root / "roster.csv", *more]
    return grade_command(words, QuickGrader)


def remarks(root) -> list[tuple[str, str]]:
    with open(root / "grades.remarks.csv", encoding="utf-8", newline="") as file:
        return [(r["who"], r["remark"]) for r in csv.DictReader(file) if r["kind"] == "lms"]


def worksheet(numbers, *, maximum="6,00", heads=None, end="\r\n") -> str:
    """A grading worksheet as Moodle exports it, with a byte-order mark and a site's own field."""
    heads = heads or ["Identifier", "Full name", "Email address", "Status", "Grade"]
    rows = [
        [f"Participant {n}", NAMES[n], f"{n}@x.org", "Submitted, for grading", "", maximum, "Yes"]
        for n in numbers
    ]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=end)
    writer.writerow([*heads, "Maximum Grade", "Grade can be changed", *_DATES, "Comments"])
    day = datetime(2026, 11, 18, 9, tzinfo=UTC).strftime(MOODLE_DAY)
    writer.writerows([*row, day, day, 'said "no", twice'] for row in rows)
    return "\ufeff" + out.getvalue()


_DATES = ("Last modified (submission)", "Last modified (grade)")
MOODLE = "{name}_{number}_assignsubmission_file/x.ipynb"
CANVAS = f"{{squeezed}}_{{number}}_9{{number}}_{LAB}.ipynb"


def test_marks_and_pages_go_back_to_moodle_into_its_own_worksheet(tmp_path):
    zip_ = delivery(tmp_path, MOODLE)
    sheet = worksheet(NAMES)
    (tmp_path / "sheet.csv").write_bytes(sheet.encode())
    assert (
        grade(tmp_path, zip_, "--lms", "moodle", "--lms-table", tmp_path / "sheet.csv")
        == SOME_UNGRADED
    )  # 108
    filled = (tmp_path / "grades.moodle" / f"{LAB}.csv").read_bytes().decode()
    assert moodle_grades(filled, LMS_IDS, TOTAL) == {f"s{n}": EARNED[n] for n in EARNED}
    assert remarks(tmp_path) == []
    # All but one cell of each line is as it was, byte for byte.
    for was, now in zip(sheet.split("\r\n"), filled.split("\r\n"), strict=True):
        if was != now:
            before, _, after = was.partition(",,")
            assert now.startswith(f"{before},") and now.endswith(f",{after}")
    given = moodle_feedback(tmp_path / "grades.moodle" / f"{LAB}.feedback.zip", LMS_IDS)
    assert set(given) == {f"s{n}" for n in WORDS}
    for student, files in given.items():
        page = tmp_path / "grades.feedback" / feedback.file_name(student)
        assert files == {f"/{LAB}.html": page.read_bytes()}


def test_without_a_worksheet_moodle_gets_one_in_english(tmp_path):
    zip_ = delivery(tmp_path, MOODLE)
    assert grade(tmp_path, zip_, "--lms", "moodle") == SOME_UNGRADED
    text = (tmp_path / "grades.moodle" / f"{LAB}.csv").read_text(encoding="utf-8")
    assert moodle_grades(text, LMS_IDS, TOTAL) == {f"s{n}": EARNED[n] for n in EARNED}
    graded_before = {"s101": (1.0, datetime(2026, 1, 1, tzinfo=UTC))}
    assert "s101" not in moodle_grades(text, LMS_IDS, TOTAL, graded=graded_before)
    assert moodle_grades(text, LMS_IDS, TOTAL, graded=graded_before, ignore_modified=True)["s101"]
    (line,) = [line for line in csv.DictReader(io.StringIO(text)) if "109" in line["Identifier"]]
    assert line["Full name"] == f"'{FORMULA}"


def test_a_worksheet_in_another_language_is_filled_by_the_places_of_its_columns(tmp_path):
    heads = ["ID", "Vollständiger Name", "E-Mail-Adresse", "Status", "Bewertung"]
    text = worksheet(NAMES, heads=heads).replace("Participant ", "Teilnehmer/in")
    text = text.replace("Maximum Grade", "Bestwertung").replace(_DATES[1], "Zuletzt (Bewertung)")
    zip_ = delivery(tmp_path, MOODLE)
    (tmp_path / "a.csv").write_bytes(text.encode())
    grade(tmp_path, zip_, "--lms", "moodle", "--lms-table", tmp_path / "a.csv")
    filled = (tmp_path / "grades.moodle" / f"{LAB}.csv").read_bytes().decode()
    words = {"heads": ("ID", "Bewertung", "Zuletzt (Bewertung)"), "hidden_user": "Teilnehmer/in"}
    assert moodle_grades(filled, LMS_IDS, TOTAL, **words)["s101"] == 2


def test_two_labs_have_two_worksheets_and_students_are_found_by_what_is_known(tmp_path, capsys):
    """Ids of the roster that the worksheet has as e-mail, then names; nothing for namesakes."""
    (tmp_path / "roster.csv").write_text(
        "id,name,lms_id\n101@x.org,A. L.,\nzoe,Zoë Ångström,\nana,Ana Silva,\nnew,Nia New,\n"
    )
    for student in ("101@x.org", "zoe", "ana"):
        for lab, notebook in ((LAB, small(answer("passes"))), (LAB4, of_lab4("fails"))):
            folder = tmp_path / "submitted" / student / lab
            folder.mkdir(parents=True)
            (folder / "x.ipynb").write_bytes(as_bytes(notebook))
    words = []
    for lab in (LAB, LAB4):
        (tmp_path / f"Grades-{lab}.csv").write_text(worksheet(NAMES, maximum="100.00"))
        words += ["--lms-table", tmp_path / f"Grades-{lab}.csv"]
    assert grade(tmp_path, tmp_path / "submitted", "--lms", "moodle", *words) == SOME_UNGRADED
    for lab, points in ((LAB, 2), (LAB4, 0)):
        filled = (tmp_path / "grades.moodle" / f"{lab}.csv").read_text()
        assert moodle_grades(filled, LMS_IDS, 100) == {"s101": points, "s102": points}
        given = moodle_feedback(tmp_path / "grades.moodle" / f"{lab}.feedback.zip", LMS_IDS)
        assert set(given) == {"s101", "s102"}
    said = remarks(tmp_path)
    assert sorted(who for who, _ in said if ".csv" not in who) == ["ana", "ana", "new", "new"]
    ours = {lab: sum(e.points for e in COURSE[lab].exercises) for lab in (LAB, LAB4)}
    for lab in (LAB, LAB4):
        (one,) = [said for who, said in said if who == f"Grades-{lab}.csv"]
        assert f"{ours[lab]} points" in one and "100" in one
    assert "7 lines without a student" in capsys.readouterr().out


def gradebook(numbers, labs, *, mark=",", bom="", heads=("Student",), points="6") -> str:
    """A gradebook as Canvas exports it."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=mark, lineterminator="\n")
    titles = [f"{title} ({number})" for number, title in labs.items()]
    writer.writerow(
        [*heads, "ID", "SIS User ID", "SIS Login ID", "Section", *titles, "Final Score"]
    )
    blank = [""] * (3 + len(heads))  # and one more before them
    writer.writerow(["", *blank, *["Manual Posting" for _ in titles], ""])
    writer.writerow(["    Points Possible", *blank, *[points for _ in titles], "(read only)"])
    for number in numbers:
        first, _, last = NAMES[number].partition(" ")
        name = [last, first] if len(heads) == 2 else [f"{last}, {first}" if last else first]
        name = [f'="{one}"' if one.startswith("=") else one for one in name]
        writer.writerow([*name, number, f"u{number}", "", "S1", *["" for _ in titles], "7,5"])
    return bom + out.getvalue()


ASSIGNMENTS = {7001: f"Lab: {LAB}", 7002: COURSE[LAB4].title, 7003: "Essay"}


@pytest.mark.parametrize(
    "form", [{}, {"mark": ";", "bom": "\ufeff"}, {"heads": ("LastName", "FirstName")}]
)
def test_marks_and_pages_go_back_to_canvas_into_its_own_gradebook(tmp_path, form):
    zip_ = delivery(tmp_path, CANVAS)
    with zipfile.ZipFile(zip_, "a") as archive:  # two labs
        archive.writestr(f"lovelaceada_101_8101_{LAB4}.ipynb", as_bytes(of_lab4("passes")))
    text = gradebook(NAMES, ASSIGNMENTS, **form)
    (tmp_path / "book.csv").write_bytes(text.encode())
    grade(tmp_path, zip_, "--lms", "canvas", "--lms-table", tmp_path / "book.csv")
    filled = (tmp_path / "grades.canvas" / "gradebook.csv").read_bytes().decode()
    given = canvas_grades(filled, LMS_IDS, ASSIGNMENTS)
    assert {who: marks[ASSIGNMENTS[7001]] for who, marks in given.items()} == {
        f"s{n}": "" if n == 108 else str(EARNED[n]) for n in NAMES
    }
    assert {who for who, marks in given.items() if marks[ASSIGNMENTS[7002]] == "0"} == {
        f"s{n}" for n in NAMES if n != 101
    }, "missing"
    assert all(marks["Essay"] == "" for marks in given.values())
    lines = zip(text.splitlines(), filled.splitlines(), strict=True)
    assert sum(was == now for was, now in lines) == 3, "the heads, and no line of a student"
    present = {number: {int(f"9{number}")} for number in WORDS}
    pages, ignored = canvas_comments(
        tmp_path / "grades.canvas" / f"{LAB}.feedback.zip", LMS_IDS, present
    )
    assert not ignored
    assert pages == {
        f"s{n}": [(tmp_path / "grades.feedback" / feedback.file_name(f"s{n}")).read_bytes()]
        for n in WORDS
    }


def test_without_a_gradebook_canvas_gets_one_with_a_column_a_lab(tmp_path):
    zip_ = delivery(tmp_path, CANVAS)
    grade(tmp_path, zip_, "--lms", "canvas")
    text = (tmp_path / "grades.canvas" / "gradebook.csv").read_text(encoding="utf-8")
    given = canvas_grades(text, LMS_IDS, {1: LAB})
    assert {who: marks[LAB] for who, marks in given.items()} == {
        f"s{n}": "" if n == 108 else str(EARNED[n]) for n in NAMES
    }
    (possible,) = [line for line in csv.reader(io.StringIO(text)) if "Points Possible" in line[0]]
    assert possible[3] == str(TOTAL)


@pytest.mark.parametrize("system", ["moodle", "canvas"])
def test_a_second_run_writes_the_same_bytes(tmp_path, system):
    zip_ = delivery(tmp_path, MOODLE if system == "moodle" else CANVAS)
    folder = tmp_path / f"grades.{system}"
    grade(tmp_path, zip_, "--lms", system)
    first = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert len(first) == 2
    grade(tmp_path, zip_, "--lms", system)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == first


def test_what_was_written_beside_the_submissions_is_nobody(tmp_path):
    zip_ = delivery(tmp_path, MOODLE)
    with zipfile.ZipFile(zip_) as archive:
        archive.extractall(tmp_path)
    zip_.unlink()
    for _ in range(2):
        assert grade(tmp_path, tmp_path, "--lms", "moodle") == SOME_UNGRADED
        with open(tmp_path / "grades.csv", encoding="utf-8", newline="") as file:
            assert {row["student"] for row in csv.DictReader(file)} == set(LMS_IDS.values())


def sheet(student: str, points: float | None = 2.0, **facts) -> Sheet:
    submission = Submission(**{"student": student, "file": "x", "lab": LAB, **facts})
    row = Row(exercise="ulp", status="passed", points=points, possible=6.0, message="")
    return Sheet(submission=submission, rows=(row,))


LINES = [
    Line(row=1, number="11", name="Ada Lovelace", ids=("ada@x",)),
    Line(row=2, number="12", name="Bob Best", ids=("bob@x",)),
    Line(row=3, number="13", name="Ana Silva"),
    Line(row=4, number="14", name="Ana Silva"),
]


@pytest.mark.parametrize(
    ("facts", "row"),
    [
        ({"student": "x", "name": "Ada Lovelace", "lms_id": "11"}, 1),
        ({"student": "Ada Lovelace", "lms_id": "11"}, 1),
        ({"student": "someone", "lms_id": "12"}, 2),
        ({"student": "ada@x", "name": "A."}, 1),
        ({"student": "a1", "name": "Ada Lovelace"}, 1),
        ({"student": "a1", "name": "Ana Silva", "lms_id": "14"}, 4),
        ({"student": "a1", "name": "Ana Silva"}, None),
        ({"student": "a1", "name": "Ada Lovelace", "lms_id": "12"}, None),
        ({"student": "bob@x", "name": "Bob", "lms_id": "11"}, None),
        ({"student": "a1", "name": "Ada Lovelace", "lms_id": "99"}, None),
        ({"student": "a1", "name": "Nobody"}, None),
    ],
)
def test_a_mark_goes_to_the_line_of_its_student_or_to_none(facts, row):
    one = sheet(**facts)
    found, without = lms.match([one], LINES)
    student = facts["student"]
    assert ({student: row} if row else {}) == {who: line.row for who, line in found.items()}
    assert (student in without) == (row is None)


@pytest.mark.parametrize(
    "two",
    [
        [{"student": "a", "lms_id": "11"}, {"student": "b", "lms_id": "11"}],
        [{"student": "a", "name": "Ada Lovelace"}, {"student": "b", "name": "Ada Lovelace"}],
        [{"student": "ada@x"}, {"student": "b", "name": "Ada Lovelace"}],
    ],
)
def test_two_students_never_share_a_line(two):
    found, without = lms.match([sheet(**one) for one in two], LINES)
    assert len(found) <= 1 and len(found) + len(without) == 2
    assert all(line.number not in ("12", "13", "14") for line in found.values())


def test_an_id_that_two_lines_have_is_nobodys():
    twins = [replace(line, ids=("x",)) for line in LINES[:2]]
    found, without = lms.match([sheet("x")], twins)
    assert not found and set(without) == {"x"}


def test_whoever_contradicts_gets_no_line():
    doubt = Remark(kind="contradicting", who="b", said="!")
    found, without = lms.match([sheet("b", lms_id="11", remarks=(doubt,))], LINES)
    assert not found and set(without) == {"b"}


def test_what_moodle_skips_without_a_word_is_said():
    table = parse_table("t", worksheet([101], maximum="6.00"))
    made = moodle.moodle_upload({LAB: table}, [sheet("s101", 7.0, lms_id="101")])
    (one,) = made.remarks
    assert one.who == "s101" and "7 points" in one.said
    table = parse_table("t", worksheet([101], maximum="6.00"))
    assert not moodle.moodle_upload({LAB: table}, [sheet("s101", 6.0, lms_id="101")]).remarks
    assert moodle_grades(made.tables[f"{LAB}.csv"], LMS_IDS, 6.0) == {}
    assert moodle_grades(made.tables[f"{LAB}.csv"], LMS_IDS, 8.0) == {"s101": 7.0}


@pytest.mark.parametrize(
    ("heads", "row", "filled"),
    [
        # English heads say which columns these are, whatever else looks like them.
        ("Identifier,Full name,Phone,Room,Grade,Maximum grade", "Participant 7,A B,,3,,6", 4),
        ("ID,Name,Nummer,Bewertung,Maximum", "Teilnehmer 7,A B,4711,,6", 3),
        ("ID,Bewertung,Maximum", "Teilnehmer 7,,6", 1),
    ],
)
def test_the_column_of_grades_is_found(heads, row, filled):
    table = parse_table("t", f"{heads}\n{row}\n")
    made = moodle.moodle_upload({LAB: table}, [sheet("a", lms_id="7")])
    want = row.split(",")
    want[filled] = "2"
    assert made.tables[f"{LAB}.csv"].splitlines()[1].split(",") == want
    assert not made.remarks


def test_a_login_of_canvas_finds_its_student():
    book = canvas._gradebook(parse_table("t", gradebook([101, 102], {1: LAB})), {LAB: "-"})
    made = canvas.canvas_upload(book, [sheet("u102")])
    given = canvas_grades(made.tables["gradebook.csv"], LMS_IDS, {1: LAB})
    assert {who: marks[LAB] for who, marks in given.items()} == {"s101": "", "s102": "2"}


def test_a_name_of_canvas_is_read_with_the_family_name_last():
    text = gradebook([101], {1: LAB}).replace("Lovelace, Ada", "Gogh, Vincent Willem van")
    book = canvas._gradebook(parse_table("t", text), {LAB: "-"})
    made = canvas.canvas_upload(book, [sheet("v", name="Vincent Willem van Gogh")])
    assert not made.remarks


@pytest.mark.parametrize("there", ["EX", "N/A"])
def test_an_excused_student_stays_excused_and_a_bonus_stays(there):
    text = gradebook([101, 102], {7001: LAB}).replace("101,u101,,S1,,", f"101,u101,,S1,{there},")
    book = canvas._gradebook(parse_table("t", text), {LAB: "-"})
    made = canvas.canvas_upload(book, [sheet("a", lms_id="101"), sheet("b", 9.0, lms_id="102")])
    given = canvas_grades(made.tables["gradebook.csv"], LMS_IDS, {7001: LAB})
    assert [marks[LAB] for marks in given.values()] == [there, "9"]
    assert len(made.said) == 2 and not made.remarks


def test_a_grade_that_the_lms_has_stays_where_the_lab_is_not_wholly_graded():
    text = gradebook([101], {7001: LAB}).replace("S1,,", "S1,5,")
    book = canvas._gradebook(parse_table("t", text), {LAB: "-"})
    made = canvas.canvas_upload(book, [sheet("a", None, lms_id="101")])
    assert made.tables["gradebook.csv"] == text


def test_points_possible_that_differ_are_said():
    book = canvas._gradebook(parse_table("t", gradebook([], {1: LAB}, points="10")), {LAB: "-"})
    (one,) = [r for r in canvas.canvas_upload(book, [sheet("a")]).remarks if r.who == "t"]
    assert "6" in one.said and "10" in one.said


def test_an_anonymous_submission_of_canvas_is_in_no_gradebook_and_is_said():
    made = canvas.canvas_upload(None, [sheet("anon", lms_id="a1B2c", attempt=9)])
    assert [one.who for one in made.remarks] == ["anon"]
    assert made.zips == {f"{LAB}.feedback.zip": {}}


HOSTILE = ["../../etc/passwd", "C:\\x", "a/b", ".hidden", "~tilde", "a_1_2_b", "123", "anon", ""]
HOSTILE += ["LATE", "\x00\n", "\u202eevil", "x" * 500, "\u00e9" * 200, "link", "con"]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_of_a_student_leads_a_page_astray(tmp_path, name):
    for folder in ("pages", "m", "c"):
        (tmp_path / folder).mkdir()
    students = [name or "?", "other"]
    sheets = [
        sheet(one, lms_id=str(41 + n), attempt=91 + n, name=one) for n, one in enumerate(students)
    ]
    for one in students:
        (tmp_path / "pages" / feedback.file_name(one)).write_text(one, encoding="utf-8")
    users = {41: students[0], 42: "other"}
    want = {one: one.encode() for one in students}
    lms.write_lms(tmp_path / "m", moodle.moodle_upload({}, sheets), tmp_path / "pages")
    given = moodle_feedback(tmp_path / "m" / f"{LAB}.feedback.zip", users)
    assert {who: files[f"/{LAB}.html"] for who, files in given.items()} == want
    lms.write_lms(tmp_path / "c", canvas.canvas_upload(None, sheets), tmp_path / "pages")
    comments, ignored = canvas_comments(
        tmp_path / "c" / f"{LAB}.feedback.zip", users, {41: {91}, 42: {92}}
    )
    assert not ignored and {who: page for who, (page,) in comments.items()} == want
    with zipfile.ZipFile(tmp_path / "c" / f"{LAB}.feedback.zip") as archive:
        assert all(len(one) < 200 and "/" not in one for one in archive.namelist())


def test_a_zip_without_a_page_takes_the_place_of_an_earlier_one(tmp_path):
    file = tmp_path / f"{LAB}.feedback.zip"
    file.write_bytes(b"of an earlier run")
    lms.write_lms(tmp_path, Upload(tables={}, zips={file.name: {}}), tmp_path)
    assert not file.exists()


@pytest.mark.parametrize(
    "text",
    ["a,b\r\n1,2\r\n", 'a;"b;\n""c"""\n1;2', "a\tb\r1\t2\r", '\ufeff"a",b\n\n1,\n', "a,b\n1,", ","],
)
def test_a_table_comes_out_byte_for_byte(tmp_path, text):
    (tmp_path / "t.csv").write_bytes(text.encode())
    table = read_table(tmp_path / "t.csv")
    assert table.text() == text
    mark = max(",;\t", key=text.count)
    lines = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), delimiter=mark)
    width = range(max(map(len, table.rows)))
    ours = [[table.cell(row, column) for column in width] for row in range(len(table.rows))]
    for theirs, cells in zip([line for line in lines if line], filter(any, ours), strict=False):
        assert cells[: len(theirs)] == theirs


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "empty"), (b'a,"b"c\n', "line 1"), ("Identität".encode("latin-1"), "UTF-8")],
)
def test_a_table_that_cannot_be_read_says_why(tmp_path, content, said):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(LmsError, match=said):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("system", "tables", "said"),
    [
        ("moodle", {"a.csv": "x,y\n1,2\n"}, "no grading worksheet"),
        ("moodle", {"a.csv": worksheet([101]), "b.csv": worksheet([102])}, "which lab"),
        ("moodle", {"a.csv": worksheet([101], maximum="")}, "no grading worksheet"),
        ("moodle", {"a.csv": worksheet([101, 102]).replace("pant 102", "102")}, "no grading"),
        ("canvas", {"a.csv": "x,y\n1,2\n"}, "no gradebook"),
        ("canvas", {"a.csv": gradebook([101], {7: "Essay"})}, "0 columns"),
        ("canvas", {"a.csv": gradebook([101], {7: LAB, 8: f"{LAB} again"})}, "2 columns"),
        ("canvas", {"a.csv": gradebook([101], {7: LAB}), "b.csv": ""}, "once"),
        ("canvas", {}, "none.csv cannot be read"),
    ],
)
def test_a_table_of_the_lms_that_does_not_fit_stops_before_grading(
    tmp_path, capsys, system, tables, said
):
    zip_ = delivery(tmp_path, MOODLE)
    words = []
    for name, text in tables.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        words += ["--lms-table", tmp_path / name]
    if not tables:
        words = ["--lms-table", tmp_path / "none.csv"]
    assert grade(tmp_path, zip_, "--lms", system, *words) == CANNOT_START
    assert said in capsys.readouterr().err
    assert not (tmp_path / "grades.csv").exists()


def test_a_class_whose_marks_all_find_their_way_is_well(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, number in (("Ada Lovelace", 11), ("Bob Best", 12)):
            where = MOODLE.format(name=name, number=number)
            archive.writestr(where, as_bytes(small(answer("passes"))))
    (tmp_path / "roster.csv").write_text("id,name,lms_id\na,Ada Lovelace,\nb,Bob Best,\n")
    assert grade(tmp_path, tmp_path / "a.zip", "--lms", "moodle") == ALL_GRADED


def test_where_no_number_is_known_nothing_is_said_to_be_ready_for_moodle(tmp_path, capsys):
    hand_in(tmp_path, ada=small(answer("passes")))
    words = [tmp_path, "-o", tmp_path / "grades.csv", "--lms", "moodle"]
    assert grade_command(words, QuickGrader) == SOME_UNGRADED
    said = capsys.readouterr().out
    assert "No worksheet was written" in said and "to upload" not in said
    assert list((tmp_path / "grades.moodle").iterdir()) == []


def test_a_file_in_the_place_of_the_folder_stops_before_grading(tmp_path, capsys):
    zip_ = delivery(tmp_path, MOODLE)
    (tmp_path / "grades.moodle").write_text("mine")
    assert grade(tmp_path, zip_, "--lms", "moodle") == CANNOT_START
    assert "cannot be written" in capsys.readouterr().err


def test_a_mark_without_points_says_that_it_is_not_graded():
    one = sheet("a", None)
    (said,) = lms.marks_without_line([one], {"a": "why"}, "t.csv")
    assert "not graded" in said.said
