"""The class page and the page of names: what an instructor of 300 finds there, and how much."""

import re
from dataclasses import replace

import pytest
from test_scores import COURSE, EVIL, LAB, SECRET, Page, made

from labkit.grading.intake.forms import form_of
from labkit.grading.judge.batch import Submission
from labkit.grading.records import Work
from labkit.grading.report.failed_exercises import clusters
from labkit.grading.report.feedback import file_name
from labkit.grading.report.likeness import Likeness
from labkit.grading.report.names import names_page
from labkit.grading.report.scores import Row, Sheet, pseudonym
from labkit.grading.report.summary import summary

CODE = '''\
def ulp(x):
    """By Ada Lovelace."""
    return x / 1024  # Ada
'''


def answered(student: str, code: str = CODE, facts: dict | None = None, **words) -> Sheet:
    """A sheet whose answer to `ulp` is ``code``, as the intake reads it."""
    form = form_of(code, ["ulp"], frozenset())
    return made(student, facts={"forms": {"ulp": form}, **(facts or {})}, **words)


def text_of(html: str) -> str:
    return re.sub(r"<[^>]*>", "", html)


def article(page: str, exercise: str) -> str:
    (found,) = re.findall(rf"<article[^>]*>\s*<h4>{exercise}:.*?</article>", page, re.DOTALL)
    return found


def test_a_group_has_a_message_as_it_was_a_code_and_links():
    said = "`ulp(3.0)` is 17 and 2**-9 is wanted."
    sheets = [answered(f"s{n}", ulp=f"failed: {said}") for n in range(3)]
    page = summary(sheets, COURSE, SECRET, names="my grades.names.html")
    group = article(page, "ulp")
    words = text_of(group)
    assert "ulp: 3 students" in words and "ulp(3.0) is 17 and 2**-9 is wanted." in words
    assert "return x / 1024" in words and "Ada" not in page and "Lovelace" not in page
    for one in sheets:
        who = pseudonym(one.submission.student, SECRET)
        assert f'<a href="./my%20grades.names.html#{who}">{who}</a>' in group
    # The list on top leads there.
    (anchor,) = re.findall(r'<article id="([^"]*)"', page)
    assert page.count(f'<a href="#{anchor}">ulp</a>') == 1


def test_the_message_and_the_code_are_of_one_student_and_what_most_wrote():
    sheets = [answered(f"s{n}", ulp="failed: It is 2.") for n in range(2)]
    odd = answered("s7", "def ulp(x):\n    return 2", ulp="failed: It is 7.")
    (one,) = clusters([*sheets, odd], SECRET)
    assert len(one.students) == 3
    assert (one.message, one.code) == ("It is 2.", "def ulp(x):\n    return x / 1024")


def test_an_idea_is_a_group_with_its_sentence():
    sheets = [answered(f"s{n}", ulp="failed: believes") for n in range(2)]
    page = summary(sheets, COURSE, SECRET)
    assert "The gap above x is eps * x." in text_of(article(page, "ulp"))
    (anchor,) = re.findall(r'<article id="([^"]*)"', page)
    assert page.count(f'<a href="#{anchor}">ulp</a>') == 2  # among the ideas, and in the list


def test_an_example_is_of_somebody_whose_name_does_not_stand_in_it():
    facts = {"name": "Ada Lovelace"}
    told = "error: ValueError: ada was here"
    ada = answered("s1", "def ulp(x):\n    raise ValueError('ada was here')", facts, ulp=told)
    bob = answered(
        "s2", "def ulp(x):\n    return 1", {"name": "Bob"}, ulp=told.replace("ada", "he")
    )
    for sheets in ([ada, bob], [bob, ada]):
        (one,) = clusters(sheets, SECRET)
        assert one.message == "ValueError: he was here"
    # Where each has a name in it, it is blotted out, in the code too.
    (one,) = clusters([ada], SECRET)
    assert one.message == "ValueError: … was here"
    assert one.code == "def ulp(x):\n    raise ValueError('… was here')"


def test_a_short_name_is_no_part_of_a_word():
    (one,) = clusters([answered("s1", facts={"name": "An Na"}, ulp="failed: nan, an inf")], SECRET)
    assert one.message == "nan, … inf"


def test_a_failure_of_one_student_is_listed_folded():
    sheets = [answered("a", ulp="failed: Something odd."), made("b", snap="failed: Quite another.")]
    page = summary(sheets, COURSE, SECRET)
    (folded,) = re.findall(r"<details>.*?</details>", page, re.DOTALL)
    words = text_of(folded)
    assert "2 failures of one student each" in words
    assert "Something odd." in words and "Quite another." in words and "x / 1024" in words
    assert "cannot be shown" in text_of(article(page, "snap"))


def test_many_pseudonyms_are_folded_and_all_are_there():
    sheets = [answered(f"s{n}", ulp="failed: No.") for n in range(50)]
    group = article(summary(sheets, COURSE, SECRET), "ulp")
    assert "<details><summary>50 students</summary>" in group
    assert all(pseudonym(one.submission.student, SECRET) in group for one in sheets)


@pytest.mark.parametrize(("status", "told"), [("failed", True), ("passed", False)])
def test_a_page_with_hidden_messages_says_so(status, told):
    one = made("ada", hidden={"ulp": 2.0}, ulp="passed")
    rows = [replace(r, status=status) if r.exercise == "hidden-ulp" else r for r in one.rows]
    page = summary([replace(one, rows=tuple(rows))], COURSE, SECRET)
    assert ("hidden checks" in page) == told
    assert ("do not pass it on to students" in page) == told


def test_groups_are_sorted_by_students_over_ideas_and_messages():
    sheets = [answered(f"a{n}", ulp="failed: believes") for n in range(2)]
    sheets += [made(f"b{n}", snap="failed: No.") for n in range(3)]
    sheets += [made("c", window="failed: No.")]
    page = summary(sheets, COURSE, SECRET)
    assert re.findall(r"<h4>([^<]*)</h4>", page) == [
        "snap: 3 students",
        "ulp: 2 students",
        "window: 1 student",
    ]


def class_of_300(message) -> list[Sheet]:
    """Lab 03 has nine exercises; the code is made of what Pygments marks most."""
    lab = COURSE["03_overflow_underflow_rounding"]
    assert len(lab.exercises) == 9
    source = "def f(x):\n" + "    x = -x + 1 < 2 & x\n" * 400
    work = Work(lab=lab.lab, digest="ab" * 32, cells=(), exercises=lab.exercises)
    form = form_of(source, ["f"], frozenset())
    forms = {one.exercise: form for one in lab.exercises}
    return [
        Sheet(
            submission=Submission(
                student=f"student-{n:03}", file="x", lab=lab.lab, work=work, forms=forms
            ),
            rows=tuple(
                Row(
                    exercise=one.exercise,
                    status="failed",
                    points=0.0,
                    possible=1.0,
                    message=message(n, place),
                )
                for place, one in enumerate(lab.exercises)
            ),
        )
        for n in range(300)
    ]


def letters(number: int) -> str:
    """A word that is like no other one's word."""
    return "".join(chr(97 + (number * k) % 26) for k in (1, 3, 5, 7, 11)) * 40


@pytest.mark.parametrize(
    "message",
    [
        lambda n, place: f"{letters(n)} {letters(n // 26 + place)}"[:999],
        lambda n, place: f"`f({n})` is {n}; 4 is wanted. {letters(n % 60)}",
        lambda n, place: "The same for all.",
    ],
    ids=["each another", "sixty groups", "one group"],
)
def test_a_page_of_300_students_and_nine_exercises_is_bounded(message):
    sheets = class_of_300(message)
    shared = [
        Likeness(
            lab=sheets[0].submission.lab,
            students=(f"student-{n:03}", f"student-{(n + 1) % 300:03}"),
            exercises=("kahan", "welford"),
            renamed=frozenset({"kahan"}),
        )
        for n in range(300)
    ]
    page = summary(sheets, COURSE, SECRET, alike=shared)
    assert len(page.encode()) < 1_500_000
    assert page == summary(sheets[::-1], COURSE, SECRET, alike=shared)
    found = clusters(sheets, SECRET)
    lines = re.findall(r'<article id="lab-1-\d+"|<tr id="lab-1-\d+"', page)
    more = re.search(r"Not listed here: (\d+) more group", page)
    assert len(lines) + (int(more[1]) if more else 0) == len(found)
    ids = Page(page).ids()
    assert len(ids) == len(set(ids))
    inside = re.findall(r'href="#([^"]*)"', page)
    assert inside and set(inside) <= set(ids)


def test_the_page_of_names_says_who_is_who_and_leads_to_their_pages():
    sheets = [made("zoe", facts={"name": "Zoë <b>"}, ulp="passed"), made("Ada", ulp="failed: no")]
    absent = made("eve")
    missing = Submission(student="eve", file="", lab="04_loss_scaling", cause="missing")
    sheets += [absent, Sheet(submission=missing, rows=absent.rows[:1])]
    page = names_page(sheets, SECRET, "my grades.feedback")
    rows = re.findall(r'<tr id="(s[0-9a-f]{8})">(.*?)</tr>', page, re.DOTALL)
    assert [who for who, _ in rows] == sorted(pseudonym(s, SECRET) for s in ("zoe", "Ada", "eve"))
    by_name = dict(rows)
    zoe, eve = by_name[pseudonym("zoe", SECRET)], by_name[pseudonym("eve", SECRET)]
    assert "<bdi>Zoë &lt;b&gt;</bdi>" in zoe and '<td class="number">2</td>' in zoe
    assert '<td class="number">0</td>' in eve and '<td class="number">missing</td>' in eve
    assert f'href="./my%20grades.feedback/{file_name("Ada")}"' in by_name[pseudonym("Ada", SECRET)]
    assert f"{LAB.lab} (6)" in page and "Do not share this page." in page


def test_no_student_breaks_the_page_of_names():
    page = Page(names_page([made(EVIL, facts={"name": EVIL})], SECRET, EVIL))
    assert "script" not in {tag for tag, _ in page.tags}
    (link,) = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert re.fullmatch(r"\./[\w%()./-]+\.html", link)
