"""The class list, hand-set points, and the rule of which attempt counts."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from labkit.grading.intake.roster import (
    Override,
    Student,
    TableError,
    counting,
    read_overrides,
    read_roster,
    student_of,
)


def table(tmp_path, text: str, encoding: str = "utf-8"):
    file = tmp_path / "table.csv"
    file.write_text(text, encoding=encoding)
    return file


def day(number: int) -> datetime:
    return datetime(2026, 12, number, 12, tzinfo=UTC)


def test_a_roster_is_read(tmp_path):
    text = "id,name,lms_id,due\nada,Ada Lovelace,7,2026-12-01T10:00+02:00\nbob,Bob,,\n"
    assert read_roster(table(tmp_path, text)) == {
        "ada": Student(
            id="ada", name="Ada Lovelace", lms_id="7", due=datetime(2026, 12, 1, 8, tzinfo=UTC)
        ),
        "bob": Student(id="bob", name="Bob"),
    }


def test_a_roster_of_a_spreadsheet_with_semicolons_is_read(tmp_path):
    file = table(tmp_path, "ID;Name;LMS_ID\nada;李雷;7\n\n", "utf-8-sig")
    assert read_roster(file) == {"ada": Student(id="ada", name="李雷", lms_id="7")}


def test_a_deadline_of_a_day_is_its_end(tmp_path):
    roster = read_roster(table(tmp_path, "id,name,lms_id,due\na,A,1,2026-12-01\n"))
    due = roster["a"].due.astimezone()
    assert (due.day, due.hour, due.minute) == (1, 23, 59)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,name\na,A\n", "lacks the column 'lms_id'; its first line must name id, name, lms_id"),
        ("", "lacks the column 'id'"),
        ("id,name,lms_id\n", "lists no students"),
        ("id,name,lms_id\n,A,1\n", "line 2: the id is empty"),
        ("id,name,lms_id\na,A,1\na,B,2\n", "line 3: the id 'a' stands twice"),
        ("id,name,lms_id,due\na,A,1,soon\n", "line 2: due is 'soon'; write it like 2026-12-01"),
    ],
)
def test_a_roster_that_cannot_be_used_says_why(tmp_path, text, said):
    with pytest.raises(TableError, match=r"table\.csv") as caught:
        read_roster(table(tmp_path, text))
    assert said in str(caught.value)


def test_a_roster_that_is_absent_or_in_another_encoding_says_so(tmp_path):
    with pytest.raises(TableError, match="cannot be read"):
        read_roster(tmp_path / "none.csv")
    with pytest.raises(TableError, match="not in UTF-8"):
        read_roster(table(tmp_path, "id,name,lms_id\na,é,1", "latin-1"))


def test_overrides_are_read_and_need_points_and_a_reason(tmp_path):
    head = "student,lab,exercise,points,reason\n"
    assert read_overrides(table(tmp_path, head + "ada,02,ulp,1.5,an oral answer\n")) == [
        Override(student="ada", lab="02", exercise="ulp", points=1.5, reason="an oral answer")
    ]
    for row, said in [
        ("ada,02,ulp,all,x", "points is 'all'"),
        ("ada,02,ulp,-1,x", "points is '-1'"),
        ("ada,02,ulp,nan,x", "points is 'nan'"),
        ("ada,02,ulp,1,", "the reason is empty"),
    ]:
        with pytest.raises(TableError, match="line 2") as caught:
            read_overrides(table(tmp_path, head + row))
        assert said in str(caught.value)


ROSTER = {
    "ada": Student(id="ada", name="Ada Lovelace", lms_id="7"),
    "li1": Student(id="li1", name="Li Lei", lms_id="8"),
    "li2": Student(id="li2", name="Li Lei", lms_id="9"),
}


@pytest.mark.parametrize(
    ("name", "lms_id", "student"),
    [
        ("ada", "", "ada"),
        ("Ada Lovelace", "", "ada"),
        ("lovelaceada", "", "ada"),
        ("x", "9", "li2"),
        ("Li Lei", "8", "li1"),
        ("Li Lei", "", None),  # two of that name: neither is guessed
        ("eve", "1", None),
    ],
)
def test_a_student_is_found_by_id_by_lms_id_and_by_an_only_name(name, lms_id, student):
    found = student_of(name, lms_id, ROSTER)
    assert (found and found.id) == student


@dataclass(frozen=True)
class Attempt:
    file: str
    at: datetime | None = None
    attempt: int = 0
    marked_late: bool = False
    is_readable: bool = True


@pytest.mark.parametrize(
    ("attempts", "due", "expected"),
    [
        ([Attempt("a", day(1)), Attempt("b", day(2))], None, ("b", False)),
        ([Attempt("a", day(1)), Attempt("b", day(5))], day(3), ("a", False)),
        ([Attempt("a", day(4)), Attempt("b", day(5))], day(3), ("b", True)),
        ([Attempt("a", day(1)), Attempt("b", day(2), is_readable=False)], day(3), ("a", False)),
        ([Attempt("a", day(5)), Attempt("b", day(2), is_readable=False)], day(3), ("a", True)),
        ([Attempt("a", is_readable=False)], day(3), ("a", False)),
        ([Attempt("b", attempt=1), Attempt("a", attempt=2)], None, ("a", False)),
        ([Attempt("x", marked_late=True), Attempt("b")], None, ("b", False)),
        ([Attempt("x", marked_late=True)], None, ("x", True)),
        ([Attempt("x", day(1), marked_late=True)], day(3), ("x", False)),  # their own deadline
    ],
)
def test_the_last_readable_attempt_before_the_deadline_counts(attempts, due, expected):
    for order in (attempts, attempts[::-1]):
        chosen, late = counting(order, due)
        assert (chosen.file, late) == expected
