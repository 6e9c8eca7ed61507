"""The grader's pages in a browser: readable in both schemes, on a phone, and running nothing."""

import pytest

from labkit.grading.course_labs import read_course
from labkit.grading.judge.batch import Submission
from labkit.grading.records import Outcome, Work
from labkit.grading.report.feedback import feedback
from labkit.grading.report.scores import sheet
from labkit.grading.report.summary import summary
from tests.browser.conftest import GLANCE
from tests.browser.contrast import contrasts

pytestmark = pytest.mark.browser

COURSE = read_course()
LAB = COURSE["02_number_formats"]
EVIL = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"
CODE = f"class A:\n    @property\n    def f(self):  # {EVIL}\n        return f'{{1.5:g}}' is None\n"
STATUSES = ["passed", "failed", "error", "not attempted", "not graded"]


def sheets() -> list:
    made = []
    for student in ("ada", EVIL):
        work = Work(lab=LAB.lab, digest="ab", cells=(), exercises=LAB.exercises)
        code = {one.exercise: CODE for one in LAB.exercises}
        submission = Submission(
            student=student, file="x.ipynb", lab=LAB.lab, work=work, code=code, repairs=(EVIL,)
        )
        outcomes = {
            one.exercise: [
                Outcome(
                    exercise=one.exercise,
                    status=STATUSES[place % 5],
                    message=f"`{EVIL}` is wrong: {EVIL}",
                    misconceptions=("ulp-is-relative",) if place % 5 == 1 else (),
                )
            ]
            for place, one in enumerate(LAB.exercises)
        }
        made.append(sheet(submission, LAB, outcomes, {"ulp": 3.0}))
    return made


PAGES = {
    "feedback": lambda: feedback(sheets()[1:], COURSE),
    "summary": lambda: summary(sheets(), COURSE, b"0123456789abcdef"),
}


@pytest.mark.parametrize("render", PAGES.values(), ids=PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_of_the_grader_reads_well_and_runs_nothing(chromium, tmp_path, render, scheme):
    file = tmp_path / "page.html"
    file.write_text(render(), encoding="utf-8")
    page = chromium.new_page(color_scheme=scheme, viewport={"width": 390, "height": 800})
    page.set_default_timeout(GLANCE * 1000)
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(file.as_uri())
    assert said == []
    assert page.title() in (f"Feedback for {EVIL}", "Class summary")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 28)"}[scheme]
    # WCAG 2.1, 1.4.3: 4.5 for text of ordinary size.
    measured = contrasts(page, "main")
    assert len(measured) > 30
    assert [entry for entry in measured if entry[0] < 4.5] == []
    page.close()
