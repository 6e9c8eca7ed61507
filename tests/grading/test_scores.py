"""Points, tables and pages: what a spreadsheet, a browser and a student make of them."""

import base64
import csv
import hashlib
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from labkit.grading.course_labs import read_course
from labkit.grading.intake.remarks import KINDS, Remark, one_line
from labkit.grading.intake.roster import Override
from labkit.grading.judge.batch import Submission
from labkit.grading.records import Outcome, Work
from labkit.grading.report.failed_exercises import clusters
from labkit.grading.report.feedback import LONGEST_CODE, feedback, file_name
from labkit.grading.report.noteworthy import all_well, lines, remarks_on
from labkit.grading.report.scores import Row, Sheet, changes, pseudonym, sheet, with_overrides
from labkit.grading.report.summary import histogram, summary
from labkit.grading.report.tables import grades_csv, safe, totals_csv, write_text

COURSE = read_course()
LAB = COURSE["02_number_formats"]
SECRET = b"0123456789abcdef"
EVIL = "<script>alert(1)</script>"


def outcomes(**words: str) -> dict[str, list[Outcome]]:
    """An outcome an exercise: "passed", or a status and a message; others are not attempted."""
    found = {}
    for one in LAB.exercises:
        status, _, message = words.get(one.exercise, "not attempted").partition(": ")
        ideas = ("ulp-is-relative",) if message == "believes" else ()
        found[one.exercise] = [
            Outcome(
                exercise=one.exercise,
                status=status,
                message=message,
                misconceptions=ideas,
                score=float(status == "passed"),
            )
        ]
    return found


def made(student: str = "ada", *, hidden: dict | None = None, facts: dict | None = None, **words):
    work = Work(lab=LAB.lab, digest="ab" * 32, cells=(), exercises=LAB.exercises)
    submission = Submission(
        **{"student": student, "file": "x.ipynb", "lab": LAB.lab, "work": work, **(facts or {})}
    )
    return sheet(submission, LAB, outcomes(**words), hidden or {})


def absent(student: str) -> Sheet:
    submission = Submission(student=student, file="", lab=LAB.lab, cause="missing", trouble="No.")
    return sheet(submission, LAB, {}, {})


def test_an_exercise_earns_all_or_nothing():
    one = made(ulp="passed", snap="failed: no")
    assert {row.exercise: row.points for row in one.rows if row.points} == {"ulp": 2.0}
    assert (one.points, one.possible) == (2.0, 6.0)


def test_what_is_not_graded_leaves_no_total():
    one = made(ulp="not graded: the grader failed", snap="passed")
    assert one.points is None
    (line,) = list(csv.DictReader(io.StringIO(totals_csv([one]))))
    assert (line["02_number_formats"], line["total"]) == ("", "")
    assert (line["02_number_formats possible"], line["total possible"]) == ("6", "6")


@pytest.mark.parametrize("one", [made(), absent("cy")], ids=["no verdict", "missing"])
def test_the_row_of_a_hidden_check_says_so_whatever_became_of_it(one):
    own = {"ulp": 3.0}
    again = sheet(one.submission, LAB, outcomes() if one.submission.work else {}, own)
    table = csv.DictReader(io.StringIO(grades_csv([again], SECRET)))
    assert {row["exercise"] for row in table if row["hidden"] == "yes"} == {"hidden-ulp"}


def test_a_lab_that_was_not_handed_in_adds_nothing():
    other = Sheet(submission=Submission(student="bob", file="", lab="04"), rows=made().rows[:1])
    lines = list(csv.DictReader(io.StringIO(totals_csv([made(ulp="passed"), other]))))
    lab, total = "02_number_formats", "total"
    assert [(line[lab], line["04"], line[total]) for line in lines] == [
        ("2", "", "2"),
        ("", "0", "0"),
    ]
    assert {line["04 possible"] for line in lines} == {"1"}


def test_an_override_sets_points_keeps_the_others_and_names_what_it_missed():
    def override(exercise: str) -> Override:
        return Override(student="ada", lab=LAB.lab, exercise=exercise, points=1.5, reason="oral")

    (one,), unmet = with_overrides([made(snap="passed")], [override("ulp"), override("none")])
    assert one.points == 4.5
    (ulp,) = [row for row in one.rows if row.override]
    assert (ulp.exercise, ulp.points, ulp.checked, ulp.status) == (
        "ulp",
        1.5,
        0.0,
        "not attempted",
    )
    assert [each.exercise for each in unmet] == ["none"]


def test_an_override_grades_what_could_not_be_graded():
    broken = sheet(
        Submission(student="ada", file="x", lab=LAB.lab, cause="corrupt", trouble="cut off"),
        LAB,
        {},
        {},
    )
    overrides = [
        Override(student="ada", lab=LAB.lab, exercise=row.exercise, points=1, reason="on paper")
        for row in broken.rows
    ]
    (one,), _ = with_overrides([broken], overrides)
    assert (broken.points, one.points) == (None, 6)


def by_hand(student: str, exercise: str, points: float | None = None, **facts) -> Override:
    return Override(student=student, lab=LAB.lab, exercise=exercise, points=points, **facts)


def test_what_no_check_grades_has_one_maximum_for_the_class():
    sheets = [made("ada", ulp="passed"), made("bob", ulp="passed"), absent("cy"), absent("dan")]
    lines = [
        by_hand(name, "essay", points, possible=5.0)
        for name, points in (("ada", 6.0), ("dan", 3.0))
    ]
    (ada, bob, cy, dan), unmet = with_overrides(sheets, lines)
    assert not unmet
    assert {one.possible for one in (ada, bob, cy, dan)} == {11.0}
    assert (ada.points, bob.points, cy.points, dan.points) == (8.0, None, 0.0, 3.0)
    essays = [one.rows[-1] for one in (ada, bob, cy, dan)]
    assert [row.status for row in essays] == ["by hand", "not graded", "missing", "by hand"]
    (remark,) = [one for one in remarks_on([ada, bob, cy, dan]) if one.kind == "ungraded"]
    assert remark.who == "bob" and "essay" in remark.said


def test_a_bonus_is_for_those_who_have_it():
    sheets = [made("ada", ulp="passed"), made("bob", ulp="passed")]
    (ada, bob), _ = with_overrides(sheets, [by_hand("ada", "extra", 1.0, possible=0.0)])
    assert [(one.points, one.possible) for one in (ada, bob)] == [(3.0, 6.0), (2.0, 6.0)]
    assert all_well(remarks_on([ada, bob]))


def test_a_line_for_everyone_is_for_those_who_handed_in_and_have_none_of_their_own():
    sheets = [made("ada"), made("bob"), absent("cy")]
    lines = [
        by_hand("ada", "ulp", comment="Nice try."),
        by_hand("*", "ulp", 2.0, reason="the check was wrong", comment="Sorry."),
        by_hand("ada", "essay", 4.0, possible=5.0),
        by_hand("*", "essay", 0.0, possible=5.0),
        by_hand("*", "", comment="Read section 3 again."),
    ]
    (ada, bob, cy), unmet = with_overrides(sheets, lines)
    assert (ada.points, bob.points, cy.points, unmet) == (6.0, 2.0, 0.0, [])
    assert [one.comment for one in (ada, bob, cy)] == ["Read section 3 again."] * 2 + [""]
    of_ulp = [r.comment for one in (ada, bob, cy) for r in one.rows if r.exercise == "ulp"]
    assert of_ulp == ["Nice try.", "Sorry.", ""]


def test_comments_and_hand_given_points_stand_on_the_page():
    lines = [
        by_hand("ada", "essay", 3.0, possible=5.0, reason="two of three"),
        by_hand("ada", "", comment=f"Come and see me. {EVIL}"),
        by_hand("cy", "snap", comment="On paper, please."),
    ]
    (ada, cy), _ = with_overrides([made(ulp="failed: no"), absent("cy")], lines)
    text = feedback([ada], COURSE)
    assert "3 of 5" in text and "two of three" in text and "Come and see me." in text
    assert EVIL not in text and "3 of 11 points" in text
    assert "On paper, please." in feedback([cy], COURSE)
    # No cell of the notebook is missed for what no check grades.
    essay = text.partition(f'<article id="{LAB.lab}-essay">')[2]
    assert essay and "holds no cell" not in essay


def scored(score: float, status: str = "failed", **facts):
    found = outcomes()
    found["snap"] = [Outcome(exercise="snap", status=status, message="no", score=score)]
    return sheet(made().submission, LAB, found, {}, **facts)


@pytest.mark.parametrize(
    ("status", "score", "earned"),
    [
        ("failed", 0.5, 1.5),
        ("failed", 1 / 3, 1.0),
        ("failed", 0.111, 0.33),
        ("failed", 0, 0.0),
        ("error", 0.5, 1.5),
        ("not attempted", 0.5, 0.0),
        ("passed", 1.0, 3.0),
        ("passed", 0.363, 1.09),
    ],
)
def test_a_failed_answer_earns_a_part_only_where_that_is_asked_for(status, score, earned):
    assert scored(score, status, partial=True).points == pytest.approx(earned, abs=1e-12)
    # An open-ended exercise passes with a part of the points, whatever the option.
    assert scored(score, status).points == (earned if status == "passed" else 0.0)


def test_a_part_of_the_points_stands_on_the_page_and_in_the_table():
    one = scored(0.5, partial=True)
    assert "1.5 of 3" in feedback([one], COURSE)
    (snap,) = [
        r for r in csv.DictReader(io.StringIO(grades_csv([one], SECRET))) if r["exercise"] == "snap"
    ]
    assert (snap["points"], snap["checked"], snap["score"], snap["status"]) == (
        "1.5",
        "1.5",
        "0.5",
        "failed",
    )


def test_changes_name_what_was_and_what_is():
    before = {("ada", "02", "ulp"): (0.0, "failed"), ("bob", "02", "ulp"): (2.0, "passed")}
    now = {("ada", "02", "ulp"): (2.0, "passed"), ("eve", "02", "ulp"): (2.0, "passed")}
    assert changes(before, now) == ["ada 02 ulp: 0 -> 2 (failed -> passed)"]
    assert changes(now, now) == []


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r=", " =", "＝"])
def test_no_cell_is_a_formula(start):
    assert safe(f"{start}1+1").startswith("'")
    table = grades_csv([made(f"{start}1+1", ulp=f"failed: {start}1+1")], SECRET)
    for line in csv.reader(io.StringIO(table)):
        assert not [cell for cell in line if cell.lstrip(" ").startswith(tuple("=+-@\t\r＝"))]


@pytest.mark.parametrize("within", ["x;=1+1", "x;+1", 'x; "=1+1', "x\t=1", "a;b;@c", "x;＝1"])
def test_no_part_of_a_cell_is_a_formula(within):
    """Where a comma is the decimal mark, a spreadsheet parts the same file by semicolons."""
    table = grades_csv([made(f"s{within}", ulp=f"failed: {within}")], SECRET)
    assert "1" in table and not re.search(r'[;\t][\s"]*[=+@＝]', table)


def test_a_line_in_a_cell_starts_no_row():
    assert "\n" not in safe("x\n=1+1") and "\r" not in safe("x\r=1+1")


def test_numbers_stay_numbers():
    assert [safe(value) for value in (1.5, 2.0, -1.0, None, True, False)] == [
        "1.5",
        "2",
        "-1",
        "",
        "yes",
        "",
    ]


def test_a_message_is_one_line_of_visible_text():
    assert one_line("a\n b\x1b[31m\u202ec\ud800") == "a b?[31m?c?"
    assert len(one_line("x" * 10_000)) == 1_000


def test_a_file_is_replaced_whole_and_nothing_is_left(tmp_path):
    write_text(tmp_path / "a.csv", "one")
    write_text(tmp_path / "a.csv", "two \ud800")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a.csv", "two ?")]


class Page(HTMLParser):
    """The tags of a page, their attributes, and its style."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        (self.style,) = re.findall("<style>(.*?)</style>", text, re.DOTALL)
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.tags if "id" in attributes]


def hostile() -> Sheet:
    facts = {
        "name": EVIL,
        "file": EVIL,
        "repairs": (EVIL, f"`{EVIL}` is defined twice"),
        "code": {"ulp": f"def ulp(x):\n    return '{EVIL}'  # \u202e \x00"},
    }
    return made(EVIL, ulp=f"failed: `{EVIL}`", snap=f"failed: {EVIL}", facts=facts)


def unread() -> Sheet:
    """A file whose every word is somebody's: nothing of it could be graded."""
    row = Row(exercise=EVIL, status="not graded", points=None, possible=1, message=EVIL, cause=EVIL)
    submission = Submission(student=EVIL, file=EVIL, lab=EVIL, cause=EVIL, trouble=EVIL)
    return Sheet(submission=submission, rows=(replace(row, override=EVIL, misconceptions=(EVIL,)),))


PAGES = {
    "feedback": lambda: feedback([hostile(), unread()], COURSE),
    "summary": lambda: summary(
        [hostile(), unread(), made("bob", ulp=f"failed: {EVIL}")], COURSE, SECRET
    ),
}


@pytest.mark.parametrize("render", PAGES.values(), ids=PAGES)
def test_a_page_runs_nothing_and_loads_nothing(render):
    text = render()
    page = Page(text)
    assert EVIL not in text and "<script" not in text and "&lt;script&gt;" in text
    assert not {"script", "img", "iframe", "link", "object"} & {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        link = attributes.get("href", "#")
        assert re.match(r"#|\./grades\.names\.html(#s[0-9a-f]{8})?\Z", link)
    (policy,) = [a["content"] for _, a in page.tags if "http-equiv" in a]
    digest = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'")


@pytest.mark.parametrize("render", PAGES.values(), ids=PAGES)
def test_a_page_can_be_read_by_ear_on_a_phone_and_in_the_dark(render):
    page = Page(render())
    tags = dict(page.tags)
    assert tags["html"] == {"lang": "en"}
    assert (
        "width=device-width"
        in next(a for _, a in page.tags if a.get("name") == "viewport")["content"]
    )
    assert "prefers-color-scheme: dark" in page.style
    assert len(page.ids()) == len(set(page.ids()))
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    heads = [attributes for tag, attributes in page.tags if tag == "th"]
    assert heads and all(attributes["scope"] == "col" for attributes in heads)
    # What scrolls sideways is reached by the keyboard.
    assert all(a["tabindex"] == "0" for tag, a in page.tags if a.get("class") == "scroll")


def test_the_feedback_has_the_sentence_the_idea_and_the_code():
    one = made(
        ulp="failed: believes",
        facts={"code": {"ulp": "def ulp(x): return x"}, "late": True, "repairs": ("Mended.",)},
    )
    text = feedback([one], COURSE)
    assert "The gap above x is eps * x." in text
    assert "0 of 6 points. Handed in late." in text
    assert "<li>Mended.</li>" in text
    assert re.sub("<[^>]*>", "", text).count("def ulp(x): return x") == 1


def test_an_idea_is_offered_as_a_thought_and_refused():
    """A hasty reader took the sentence of the idea for a fact."""
    text = feedback([made(ulp="failed: believes")], COURSE)
    assert re.search(r"You may be thinking: “The gap above x is eps \* x\.” In fact[^<]* not", text)


def test_a_page_shows_a_bounded_part_of_the_code_and_each_cell_once():
    """One cell of 1.5 MB that answers everything made a page of 166 MB."""
    cell = "".join(f"def {e.names[0]}(x): return x\n" for e in LAB.exercises)
    code = dict.fromkeys((e.exercise for e in LAB.exercises), cell + "x = 1\n" * 250_000)
    text = feedback([made(ulp="passed", facts={"code": code})], COURSE)
    assert len(text) < 200_000
    assert text.count('<pre dir="ltr"') == 1
    left = len(cell) + 1_500_000 - LONGEST_CODE
    assert f"{left:,} more characters of your code are not shown." in text
    first = LAB.exercises[0].exercise
    assert text.count(f'href="#{LAB.lab}-{first}">{first}</a>.') == len(LAB.exercises) - 1


def test_the_feedback_of_a_hidden_check_shows_its_sentence():
    one = made(hidden={"ulp": 3.0}, ulp="passed")
    assert one.possible == 9.0
    assert [row.status for row in one.rows if row.exercise == "hidden-ulp"] == ["not graded"]
    text = feedback([one], COURSE)
    assert ">ulp, your instructor's check</a>" in text


def test_each_student_has_a_file_of_a_safe_name():
    students = ["ada", "Ada", "../ada", "-rf", "rf", "=a", "李雷", "韩", "x" * 300]
    taken = file_name("Ada").removesuffix(".html")
    names = [file_name(student) for student in (*students, taken)]
    assert names[0] == "ada.html"
    assert len(set(map(str.lower, names))) == len(names)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,70}\.html", name) for name in names)


def test_the_summary_counts_ideas_and_names_nobody():
    sheets = [made(f"student-{n}", ulp="failed: believes", snap="passed") for n in range(4)]
    sheets.append(made("student-4", ulp="passed"))
    text = summary(sheets, COURSE, SECRET)
    words = re.sub(r"<[^>]*>", " ", text)
    assert re.search(
        r"4\s+The gap above x is eps \* x\.\s+ulp\s+lab 02, section “The gap to the next value”",
        words,
    )
    assert re.search(r"snap\s+80 %\s+4\s+1", words)
    assert "student-" not in text
    assert "5 submissions, 0 missing, 0 late, 0 not wholly graded." in words
    assert "Median 3 of 6 points, from 2 to 3." in words


def with_ideas(student: str, status: str, *ideas: str) -> Sheet:
    one = made(student, ulp=f"{status}: told")
    rows = [replace(r, misconceptions=ideas) if r.exercise == "ulp" else r for r in one.rows]
    return replace(one, rows=tuple(rows))


@pytest.mark.parametrize(
    ("status", "ideas", "counted"),
    [
        ("failed", ["ulp-is-relative"], True),
        ("error", ["ulp-is-relative"], True),
        ("failed", ["ulp-is-relative", "integers-always-exact"], False),  # one of two: which?
        ("passed", ["ulp-is-relative"], False),
        ("not attempted", ["ulp-is-relative"], False),
        ("not graded", ["ulp-is-relative"], False),
    ],
)
def test_the_class_report_counts_an_idea_that_an_answer_shows(status, ideas, counted):
    text = summary([with_ideas("ada", status, *ideas)], COURSE, SECRET)
    assert ("The gap above x is eps * x." in text) == counted


def test_a_student_holds_an_idea_once():
    sheet_ = made("ada", hidden={"ulp": 2.0}, ulp="failed: believes", snap="failed: believes")
    rows = [
        replace(r, status="failed", misconceptions=("ulp-is-relative",)) if r.hidden else r
        for r in sheet_.rows
    ]
    text = summary([replace(sheet_, rows=tuple(rows)), made("bob")], COURSE, SECRET)
    words = re.sub(r"<[^>]*>", " ", text)
    assert re.search(r"\s1\s+The gap above x is eps \* x\.\s+snap\s*;\s*ulp\s", words)


def test_what_shows_one_of_several_ideas_stands_among_the_other_failures():
    sheets = [with_ideas(s, "failed", "ulp-is-relative", "bias-is-always-ieee") for s in "ab"]
    (cluster,) = clusters(sheets, SECRET)
    assert len(cluster.students) == 2


def on(kind: str, who: str, said: str) -> Remark:
    return Remark(kind=kind, who=who, said=said)


@pytest.mark.parametrize("kind", KINDS)
def test_a_remark_that_leaves_a_grade_in_doubt_is_not_well(kind):
    doubtful = {"contradicting", "dropped", "unknown", "ungraded", "lms"}
    assert all_well([on(kind, "ada", "said.")]) == (kind not in doubtful)


def test_the_list_is_by_kind_says_a_sentence_once_and_is_bounded():
    remarks = [on("dropped", f"s{n}", "The file is empty.") for n in range(20)]
    remarks += [on("repaired", "ada", f"Repair {n}.") for n in range(20)]
    told = lines(remarks, "grades.remarks.csv")
    assert told[0] == "Files that were not graded (20):"
    assert told[1] == "  s0, s1, s2, s3, s4, s5 and 14 more: The file is empty."
    assert told[2] == "Repaired while reading (20):"
    assert told[-2:] == ["  and 12 more", "The whole list is in grades.remarks.csv."]
    assert len(told) == 13
    assert max(map(len, lines([on("dropped", "x" * 9999, "y" * 9999)], "f"))) < 400
    assert lines([], "f") == []


def test_remarks_on_a_class_are_in_the_order_of_the_kinds():
    said = Submission(
        student="bob",
        file="b.ipynb",
        lab=LAB.lab,
        cause="corrupt",
        trouble="cut off",
        remarks=(on("contradicting", "bob", "Two numbers."),),
    )
    sheets = [made("zoe", ulp="passed", snap="not graded: x"), sheet(said, LAB, {}, {})]
    slow = [replace(row, seconds=1.5) for row in made("ada", ulp="passed").rows]
    sheets.append(replace(made("ada", ulp="passed"), rows=tuple(slow)))
    found = remarks_on(sheets)
    assert [(one.kind, one.who) for one in found] == [
        ("contradicting", "bob"),
        ("dropped", "bob"),
        ("ungraded", "zoe"),
        ("slow", "ada"),
    ]
    assert "snap" in found[2].said and f"{1.5 * len(slow):.1f} s" in found[3].said
    # What was not asked for is not missed.
    assert "ungraded" not in {one.kind for one in remarks_on(sheets, only={"ulp"})}


def test_a_shortcut_that_earned_points_is_a_remark_and_changes_no_grade():
    found = outcomes(ulp="passed", snap="failed: x", decode="passed")
    for exercise in ("ulp", "snap"):
        found[exercise] = [
            replace(one, shortcuts=("labkit.formats.spacing", "numpy.spacing"))
            for one in found[exercise]
        ]
    one = sheet(made().submission, LAB, found, {})
    (remark,) = remarks_on([one])
    assert (remark.kind, remark.who) == ("shortcut", "ada")
    assert "ulp uses labkit.formats.spacing, numpy.spacing" in remark.said
    assert all_well([remark]) and one.rows[0].points == made(ulp="passed").rows[0].points
    assert remarks_on([one], only={"snap"}) == []


def test_points_set_by_hand_settle_a_file_that_was_dropped():
    broken = sheet(
        Submission(student="ada", file="x", lab=LAB.lab, cause="corrupt", trouble="cut off"),
        LAB,
        {},
        {},
    )
    assert not all_well(remarks_on([broken]))
    rows = tuple(replace(row, points=1.0, override="on paper") for row in broken.rows)
    assert all_well(remarks_on([replace(broken, rows=rows)]))


def test_the_summary_has_the_remarks_and_no_name():
    remarks = [
        on("unknown", "student-1", "It came as `student-1` with 'student-1.ipynb'."),
        on("dropped", "in/student-2.ipynb", "`in/student-2.ipynb` is a link, see `student-2"),
        on("slow", "student-1", "Grading 02_number_formats took 312.0 s."),
    ]
    text = summary([made("student-1")], COURSE, SECRET, remarks)
    assert "student-" not in text
    assert pseudonym("student-1", SECRET) in text and "took 312.0 s." in text
    (table,) = re.findall(r'<table aria-label="Of this run">.*?</table>', text, re.DOTALL)
    assert table.count("<tr>") == 1 + 3


def test_failures_that_read_alike_are_one_cluster():
    messages = [
        "`f(1)` raised TypeError: 'float' object is not subscriptable.",
        "`f(22.5)` raised TypeError: 'int' object is not subscriptable.",
        "`f(-3e-5)` raised TypeError: 'Ada' object is not subscriptable in your line `x`.",
        "Something quite different happened to it.",
    ]
    sheets = [made(f"s{n}", snap=f"error: {said}") for n, said in enumerate(messages)]
    sheets.append(made("s9", snap="failed: believes"))  # an idea is a group of its own
    first, *others = clusters(sheets, SECRET)
    assert len(first.students) == 3 and first.message in messages[:3]
    alone = {one.idea: one.students for one in others}
    assert alone == {
        "": (pseudonym("s3", SECRET),),
        "ulp-is-relative": (pseudonym("s9", SECRET),),
    }


def test_a_pseudonym_needs_the_secret():
    assert pseudonym("ada", SECRET) == pseudonym("ada", SECRET) != pseudonym("bob", SECRET)
    assert pseudonym("ada", SECRET) != pseudonym("ada", b"another secret..")


def test_the_picture_says_in_words_what_it_shows():
    svg = histogram([0, 5, 5, 10], 10)
    (said,) = re.findall('role="img" aria-label="([^"]*)"', svg)
    assert said.endswith("0–9 %: 1; 50–59 %: 2; 100 %: 1.")
    heights = [int(h) for h in re.findall(r'<rect[^>]* height="(\d+)"', svg)]
    assert heights == [75, 0, 0, 0, 0, 150, 0, 0, 0, 0, 75]
