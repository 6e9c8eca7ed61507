"""The class list, hand-set points, and the rule of which attempt counts."""

import random
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from labkit.grading.course_labs import read_course
from labkit.grading.intake.roster import (
    Override,
    Student,
    TableError,
    counting_attempt,
    identify,
    read_overrides,
    read_roster,
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
        (
            "id,name,lms_id\na,A,7\n\nb,B,7\n",
            "line 4: the lms_id '7' stands twice",
        ),
        ("id,name,lms_id,ID\na,A,1,b\n", "line 1: the column 'id' stands twice"),
        ("id,name,lms_id\na,Lovelace, Ada,7\n", "line 2: there are 4 cells for 3 columns"),
        ("id,name,lms_id\na,A,1\n" + "b" * 200_000 + ",B,2\n", "line 3: field larger than"),
    ],
)
def test_a_roster_that_cannot_be_used_says_why(tmp_path, text, said):
    with pytest.raises(TableError, match=r"table\.csv") as caught:
        read_roster(table(tmp_path, text))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "line",
    ['b,"Bob,2', 'b,"Bob"x,2', 'b,Bob" Smith,2', 'b,"Bob\nSmith",2', 'b,"Bob ""x",2'],
)
@pytest.mark.parametrize("below", ["", "\nc,Cy,3\nd,Di,4", '\nc,"Cy",3\nd,Di,4'])
def test_a_quote_that_is_not_closed_swallows_no_student(tmp_path, line, below):
    """The names below it were read as a part of this one, and nobody was told."""
    with pytest.raises(TableError, match="line 3:"):
        read_roster(table(tmp_path, f"id,name,lms_id\na,A,1\n{line}{below}"))


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
def test_a_table_with_any_ends_of_lines_is_read(tmp_path, end):
    file = tmp_path / "table.csv"
    file.write_bytes(end.join(["id,name,lms_id", 'a,"Lovelace, Ada",1', "b,B"]).encode())
    assert list(read_roster(file).values()) == [
        Student(id="a", name="Lovelace, Ada", lms_id="1"),
        Student(id="b", name="B"),
    ]


def test_a_roster_that_is_absent_or_in_another_encoding_says_so(tmp_path):
    with pytest.raises(TableError, match="cannot be read"):
        read_roster(tmp_path / "none.csv")
    with pytest.raises(TableError, match="not in UTF-8"):
        read_roster(table(tmp_path, "id,name,lms_id\na,é,1", "latin-1"))


COURSE = read_course()
LAB = "02_number_formats"
OLD_HEAD = "student,lab,exercise,points,reason\n"
HEAD = "student,lab,exercise,points,reason,comment,possible\n"


def test_a_table_of_points_and_reasons_is_read(tmp_path):
    assert read_overrides(
        table(tmp_path, OLD_HEAD + "ada,02,ulp,1.5,an oral answer\n"), COURSE
    ) == [Override(student="ada", lab=LAB, exercise="ulp", points=1.5, reason="an oral answer")]


def test_comments_need_no_points_and_what_no_check_grades_no_reason(tmp_path):
    rows = [
        "ada,02,ulp,,,Well argued.,",
        "ada,02,,,,Come and see me.,",
        "ada,02,essay,3,,,5",
        "bob,02,essay,6,the best,,",  # the maximum stands in another line
        "bob,02,snap,3,oral,,3",  # a line of the table of grades, with a reason
    ]
    read = read_overrides(table(tmp_path, HEAD + "\n".join(rows)), COURSE)
    facts = [(one.student, one.exercise, one.points, one.comment, one.possible) for one in read]
    assert facts == [
        ("ada", "ulp", None, "Well argued.", None),
        ("ada", "", None, "Come and see me.", None),
        ("ada", "essay", 3.0, "", 5.0),
        ("bob", "essay", 6.0, "", 5.0),
        ("bob", "snap", 3.0, "", None),
    ]


@pytest.mark.parametrize(
    ("rows", "line", "said"),
    [
        (["ada,02,ulp,all,x,,"], 2, "points is 'all'"),
        (["ada,02,ulp,-1,x,,"], 2, "points is '-1'"),
        (["ada,02,ulp,nan,x,,"], 2, "points is 'nan'"),
        (["ada,02,ulp,1,,,"], 2, "the reason is empty"),
        (["ada,02,esay,1,,,"], 2, "the reason is empty"),
        (["ada,02,ulp,,because,,"], 2, "neither points nor a comment"),
        (["ada,02,essay,,,,5"], 2, "neither points nor a comment"),
        (["ada,02,,1,x,,"], 2, "points need an exercise"),
        (["ada,77,ulp,1,x,,"], 2, "There is no lab '77'"),
        (["ada,02,essay,3,,,x"], 2, "possible is 'x'"),
        (["ada,02,ulp,1,x,,5"], 2, "the lab gives 'ulp' 2"),
        (["ada,02,my essay,3,,,5"], 2, "letters, digits and hyphens"),
        (["ada,,essay,3,,,5"], 2, "possible belongs to a lab"),
        (["ada,02,check-ulp,3,,,5"], 2, "'check-ulp' begins with 'check-'"),
        (["ada,02,essay,3,,,5", "bob,02,essay,3,,,4"], 3, "and 5 in line 2"),
        (["ada,02,ulp,1,x,,", "bob,02,ulp,1,x,,", f"ada,{LAB},ulp,2,y,,"], 4, "line 2 is for"),
    ],
)
def test_a_line_that_cannot_be_meant_is_refused_with_its_number(tmp_path, rows, line, said):
    with pytest.raises(TableError, match=f"line {line}:") as caught:
        read_overrides(table(tmp_path, HEAD + "\n".join(rows)), COURSE)
    assert said in str(caught.value)


def roster(*rows: str) -> dict[str, Student]:
    """A roster of `id, name, lms_id` each."""
    fields = [[part.strip() for part in row.split(",")] for row in rows]
    return {id_: Student(id=id_, name=name, lms_id=number) for id_, name, number in fields}


CLASS = roster(
    "ada, Ada Lovelace, 7",
    "bob, Bob, 42",
    "li1, Li Lei, 8",
    "li2, Li Lei, 9",
    "cy, Cy Young,",
    "wang, Wang Li, 20",
    "an, An Nam,",
    "ram, राम,",
    "smile, 🙂,",
    "mo1, Mo Yan,",
    "mo2, Mo Yan,",
)


@pytest.mark.parametrize(
    ("name", "number", "student"),
    [
        ("ada", "", "ada"),
        ("Ada Lovelace", "", "ada"),
        ("lovelaceada", "", "ada"),
        ("Lovelace, Ada", "7", "ada"),
        ("ada-lovelace", "", "ada"),
        ("x", "9", "li2"),
        ("Li Lei", "8", "li1"),
        ("Cy Young", "555", "cy"),  # the roster has no number to contradict
    ],
)
def test_a_student_is_found_by_number_by_id_and_by_an_only_name(name, number, student):
    (person,) = identify([(name, number)], CLASS).values()
    assert (person.id, person.listed, person.kind) == (student, CLASS[student], "")


@pytest.mark.parametrize(
    ("name", "number", "kind", "id_"),
    [
        ("Ada Lovelace", "999", "contradicting", "Ada Lovelace (999)"),  # a namesake
        ("ada", "888", "contradicting", "ada (888)"),  # a display name that is somebody's id
        ("cy", "888", "contradicting", "cy (888)"),  # ... of whom the roster has no number
        ("ada", "42", "contradicting", "ada (42)"),  # ... with a number that is another's
        ("Bob", "7", "contradicting", "Bob (7)"),
        ("Li Lei", "999", "contradicting", "Li Lei (999)"),
        ("Mo Yan", "999", "unknown", "Mo Yan"),
        ("Li Lei", "", "unknown", "Li Lei"),  # two of that name: neither is guessed
        ("eve", "1", "unknown", "eve"),
        ("eve", "", "unknown", "eve"),
        ("Ann Am", "", "unknown", "Ann Am"),  # not An Nam
        ("रमा", "", "unknown", "रमा"),  # not राम: vowel signs are no letters to `isalnum`
        ("💀", "", "unknown", "💀"),  # not 🙂: neither has a letter
    ],
)
def test_whoever_contradicts_or_is_not_listed_has_a_row_of_their_own(name, number, kind, id_):
    (person,) = identify([(name, number)], CLASS).values()
    assert (person.listed, person.kind, person.id) == (None, kind, id_)
    assert f"`{name}`" in person.said and number in person.said


@pytest.mark.parametrize(
    ("delivered", "ids"),
    [
        # One may be a namesake, and nothing tells which.
        ([("Cy Young", "1"), ("Cy Young", "2")], ["Cy Young (1)", "Cy Young (2)"]),
        (
            [("cy", ""), ("Cy Young", "1"), ("Cy Young", "2")],
            ["cy", "Cy Young (1)", "Cy Young (2)"],
        ),
        ([("Wang Li", ""), ("Li Wang", "")], ["wang", "Li Wang"]),
        ([("Wang Li", "20"), ("Li Wang", "")], ["wang", "Li Wang"]),
        ([("ada", ""), ("Ada Lovelace", "7"), ("Ada Lovelace", "")], ["ada", "ada", "ada"]),
        ([("zed", "1"), ("zed", "2")], ["zed (1)", "zed (2)"]),
    ],
)
def test_of_all_that_came_no_two_people_are_one(delivered, ids):
    people = identify(delivered, CLASS)
    assert [people[one].id for one in delivered] == ids


@pytest.mark.parametrize(
    ("delivered", "ids", "contradicting"),
    [
        ([("Li Lei", "8"), ("Li Lei", "9")], ["Li Lei (8)", "Li Lei (9)"], 0),
        ([("Li Lei", "8"), ("Li Lei", "")], ["Li Lei (8)", "Li Lei"], 1),
        ([("ada", "8"), ("bob", "8")], ["ada", "bob"], 2),
        ([("ada", "7"), ("ada", "8"), ("ada (7)", "")], ["ada (7)", "ada (8)", "ada (7) (2)"], 0),
    ],
)
def test_without_a_roster_a_name_and_a_number_are_a_person(delivered, ids, contradicting):
    people = identify(delivered, {})
    assert [people[one].id for one in delivered] == ids
    kinds = [person.kind for person in people.values()]
    assert kinds.count("contradicting") == contradicting
    assert set(kinds) <= {"contradicting", ""}


def test_no_delivery_merges_two_people():
    """Small alphabets, so that names, ids and numbers collide all the time."""
    rng = random.Random(14)
    names = ["ada", "bob", "Ada", "Ada B", "B Ada", "bada", "A Dab", "b", "(1)", "ada (1)", "!"]
    numbers = ["", "1", "2", "3"]
    for _ in range(4000):
        ids = rng.sample(names, rng.randint(0, 4))
        left = rng.sample(numbers[1:], 3)
        listed = {
            id_: Student(
                id=id_,
                name=rng.choice(["", *names]),
                lms_id=left.pop() if left and rng.random() < 0.6 else "",
            )
            for id_ in ids
        }
        delivered = {(rng.choice(names), rng.choice(numbers)) for _ in range(rng.randint(1, 6))}
        people = identify(delivered, listed)
        assert set(people) == delivered
        by_id: dict[str, list[tuple[str, str]]] = {}
        for one, person in people.items():
            by_id.setdefault(person.id, []).append(one)
            assert (person.listed is None) == (person.id not in listed)
        for id_, ours in by_id.items():
            assert len(ours) == 1 or id_ in listed, (listed, ours)
            came = {number for _, number in ours if number}
            # Neither another's number, nor one beside that of the roster, nor two of them.
            assert len(came) <= 1, (listed, ours)
            if id_ in listed:
                assert not listed[id_].lms_id or came <= {listed[id_].lms_id}, (listed, ours)
                assert {s.id for s in listed.values() if s.lms_id in came} <= {id_}, (listed, ours)


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
        chosen, late = counting_attempt(order, due)
        assert (chosen.file, late) == expected
