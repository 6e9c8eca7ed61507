"""What stands on a student's page: dates, points of each lab, links that lead somewhere."""

import html
import json
import re
from dataclasses import replace
from datetime import UTC, date, datetime

import pytest
from handing_in import hand_in, small
from quick_grader import QuickGrader, answer, grade_command

from labkit.__main__ import main
from labkit.base.home import NOTEBOOKS
from labkit.grading.course_labs import read_course
from labkit.grading.judge.batch import Submission
from labkit.grading.records import Outcome, Work
from labkit.grading.report.feedback import feedback
from labkit.grading.report.scores import Sheet, for_student, sheet
from labkit.labs.engine.misconceptions import misconceptions

COURSE = read_course()
LAB = COURSE["02_number_formats"]
URL = "https://hub.example.org/lab/tree/course/notebooks"
AT = datetime(2026, 11, 20, 14, 5, tzinfo=UTC)


def made(lab=LAB, *, status: str = "passed", hidden: bool = False, **facts) -> Sheet:
    """A sheet with one status throughout; ``facts`` are of its outcomes."""
    work = Work(lab=lab.lab, digest="ab" * 32, cells=(), exercises=lab.exercises)
    submission = Submission(student="ada", file="x.ipynb", lab=lab.lab, work=work, at=AT)
    outcomes, granted = {}, {}
    for one in lab.exercises:
        said = {"status": status, "message": "So.", "score": float(status == "passed")}
        one_of = Outcome(**{"exercise": one.exercise, **said, **facts})
        outcomes[one.exercise] = [one_of]
        if hidden:
            outcomes[one.exercise].append(replace(one_of, hidden=True))
            granted[one.exercise] = 3.0
    return sheet(submission, lab, outcomes, granted, graded_on=date(2026, 11, 23))


def text_of(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def links(page: str) -> set[str]:
    """The addresses outside of the page."""
    found = {html.unescape(one) for one in re.findall(r'href="([^"]*)"', page)}
    return {one for one in found if not one.startswith("#")}


def anchors(lab: str) -> set[str]:
    """The headings of a learner notebook as JupyterLab names them in links."""
    notebook = json.loads((NOTEBOOKS / f"{lab}.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "markdown"]
    headings = re.findall(r"(?m)^#+ (.+)$", "\n".join(cells))
    return {heading.strip().replace(" ", "-") for heading in headings}


def test_the_dates_are_told():
    text = text_of(feedback([made()], COURSE))
    assert "Handed in 2026-11-20 14:05 UTC." in text and "Graded on 2026-11-23." in text


def test_what_nobody_knows_is_not_told():
    one = made()
    unknown = replace(one, submission=replace(one.submission, at=None), graded_on=None)
    text = text_of(feedback([unknown], COURSE))
    assert "Handed in" not in text and "Graded on" not in text


def test_several_labs_are_a_table_with_their_maxima():
    other = made(COURSE["00_start_here"], status="failed")
    text = text_of(feedback([other, made()], COURSE))
    assert "lab points maximum handed in" in text
    assert "0. Start here 0 1 2026-11-20 14:05 UTC" in text
    assert "2. Build a number system 6 6 2026-11-20 14:05 UTC" in text
    assert "together 6 7" in text and "You earned 6 of 6 points." in text
    assert "maximum" not in text_of(feedback([made()], COURSE))


def test_a_lab_that_is_not_graded_leaves_no_sum():
    other = made(COURSE["00_start_here"], status="not graded")
    text = text_of(feedback([other, made()], COURSE))
    assert "together not graded 7" in text
    assert "Not wholly graded yet; the maximum is 1 point." in text


@pytest.mark.parametrize("lab", COURSE)
def test_every_link_of_a_lab_and_of_its_exercises_leads_to_a_heading(lab):
    found = links(feedback([made(COURSE[lab])], COURSE, labs_url=URL))
    sections = found - {f"{URL}/{lab}.ipynb"}
    assert len(sections) + 1 == len(found), "the title links to the lab"
    assert set(COURSE[lab].anchors) >= {one.exercise for one in COURSE[lab].exercises}
    for one in sections:
        before, _, section = one.partition("#")
        assert before == f"{URL}/{lab}.ipynb" and section in anchors(lab), one


def test_every_cure_links_to_a_heading_or_is_a_topic():
    for idea in misconceptions().values():
        page = feedback([made(status="failed", misconceptions=(idea.id,))], COURSE, labs_url=URL)
        cure = re.search(r'Read again: (?:<a href="([^"]*)">)?([^<]*)', page)
        if idea.cure.startswith("topic:"):
            assert cure[1] is None and cure[2].startswith("the interview questions on")
        else:
            before, _, section = html.unescape(cure[1]).partition("#")
            lab = before.removeprefix(f"{URL}/").removesuffix(".ipynb")
            assert section in anchors(lab), idea.id
            assert cure[2].startswith(f"lab {lab[:2]}, section “")


def test_without_an_address_the_page_links_nowhere_and_names_the_section():
    page = feedback([made(status="failed", misconceptions=("ulp-is-relative",))], COURSE)
    assert links(page) == set()
    assert "Read again: lab 02, section “" in text_of(page)


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)//",
        "hub.example.org/x",
        "ftp://hub.example.org",
        "https://",
        "https://[x/y",
        "https://hub.example.org/x?a=1",
        "https://hub.example.org/x#y",
        'https://hub.example.org/"onclick=',
        "https://hub.example.org/a b",
        "",
    ],
)
def test_what_is_no_address_is_refused(tmp_path, capsys, url):
    with pytest.raises(SystemExit) as stopped:
        main(["grade", str(tmp_path), "-o", "g.csv", f"--labs-url={url}"])
    assert stopped.value.code == 2
    assert "begins with https:// or http://" in capsys.readouterr().err


def test_the_options_reach_the_pages(tmp_path):
    hand_in(tmp_path, ada=small(answer("passes")))
    words = [tmp_path, "-o", tmp_path / "grades.csv", "--labs-url", f"{URL}/"]
    grade_command(words, QuickGrader)
    page = (tmp_path / "grades.feedback" / "ada.html").read_text()
    assert f"{URL}/{LAB.lab}.ipynb" in links(page)


def test_further_cases_are_listed_and_counted():
    facts = {"more": ("`f(2)` is <3>.", "`f(4)` is 5."), "wrong": 9, "cases": 10}
    page = feedback([made(status="failed", **facts)], COURSE)
    text = text_of(page)
    assert "This check tries 10 cases, and your answer fails in 9 of them." in text
    assert "It is also wrong here: f(2) is <3>. f(4) is 5." in text
    assert "<3>" not in page
    alone = text_of(feedback([made(status="failed", wrong=1, cases=10)], COURSE))
    assert "fails in this one only" in alone and "also wrong" not in alone
    all_of_them = text_of(feedback([made(status="failed", wrong=10, cases=10)], COURSE))
    assert "fails in all of them" in all_of_them
    assert "cases" not in text_of(feedback([made(status="failed")], COURSE))


SAID = {"message": "54321", "misconceptions": ("ulp-is-relative",), "more": ("54321",)}
SAID |= {"cause": "time", "wrong": 2, "cases": 3, "rerun": True, "score": 0.5}


@pytest.mark.parametrize("status", ["failed", "error", "not attempted", "not graded", "passed"])
def test_a_hidden_row_says_the_same_whatever_its_check_said(status):
    one = made(hidden=True)
    talkative = replace(
        one,
        rows=tuple(replace(row, status=status, **SAID) if row.hidden else row for row in one.rows),
    )
    silent = replace(
        one, rows=tuple(replace(row, status=status) if row.hidden else row for row in one.rows)
    )
    assert for_student(talkative) == for_student(silent) != for_student(talkative, "message")
    shown = {row.status for row in for_student(talkative).rows if row.hidden}
    assert shown == {status if status in ("passed", "not graded") else "failed"}


def test_what_an_instructor_writes_of_a_hidden_row_is_shown():
    one = made(hidden=True)
    said = replace(one, rows=tuple(replace(r, override="oral", comment="Good") for r in one.rows))
    assert {(r.override, r.comment) for r in for_student(said).rows} == {("oral", "Good")}
