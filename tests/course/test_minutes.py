"""The minutes of a lab: each part counted once, what is optional apart, and told to the learner."""

import ast
from collections import Counter
from datetime import UTC, datetime

import nbformat
import pytest
from nbformat import v4

from labkit.base.home import read_manifest
from labkit.course.build import build, table_of_labs
from labkit.course.lab_source import read_lab
from labkit.course.minutes import by_heading, lab_minutes
from labkit.interview import drills
from labkit.interview.questions import load_bank

FIRST = """\
# %% [markdown]
# # 2. Counted
#
# *any laptop · needs: nothing*

"""
WORDS = " ".join(["word"] * 1300)


@pytest.fixture
def minutes(tmp_path):
    """The minutes of a source with some cells below the first."""

    def read(cells: str):
        path = tmp_path / "02_counted.py"
        path.write_text(FIRST + cells, encoding="utf-8")
        return read_lab(path).minutes

    return read


def markdown(*lines: str) -> str:
    return "# %% [markdown]\n" + "".join(f"# {line}".rstrip() + "\n" for line in lines) + "\n"


def code(*lines: str, options: str = "") -> str:
    return f"# %%{options}\n" + "\n".join(lines) + "\n\n"


def exercise(note: str, *, points: int, name: str = "one") -> str:
    return (
        markdown(f"### Exercise: {name}", "", f"{note} Write {name}.")
        + code(f"{name} = ...", "### BEGIN SOLUTION", f"{name} = 1", "### END SOLUTION",
               options=f' exercise="{name}"')
        + code(f"assert {name} == 1", options=f' check="{name}" points={points}')
    )  # fmt: skip


def both(found) -> tuple[int, int]:
    return found.required, found.optional


def test_130_words_take_a_minute(minutes):
    assert both(minutes(markdown(WORDS))) == (10, 0)
    assert both(minutes(markdown(f"| {' | '.join(WORDS.split())} |", "|---|"))) == (10, 0)


def test_ten_lines_of_code_take_a_minute_in_a_cell_and_in_markdown(minutes):
    lines = ["x = 1", ""] * 100
    assert both(minutes(code(*lines))) == (10, 0)
    assert both(minutes(markdown("```python", *lines, "```"))) == (10, 0)


def test_hints_are_not_counted_but_what_else_is_folded_is(minutes):
    folded = ["<details><summary>{}</summary>", "", WORDS, "</details>"]
    for summary, found in (("Hint 1", 0), ("Hints", 0), ("A card to discuss", 10)):
        said = [line.format(summary) for line in folded]
        assert both(minutes(markdown("Text.", "", *said))) == (found, 0), summary


def test_an_exercise_takes_its_own_minutes_and_its_code_none(minutes):
    assert both(minutes(exercise("*16 minutes, about 2 lines.*", points=1))) == (16, 0)
    assert both(minutes(exercise("*16 minutes.*", points=1))) == (16, 0)
    given = "one = ...\n" + "# given\n" * 90
    long = exercise("*16 minutes.*", points=1).replace("one = ...", given)
    assert both(minutes(long)) == (16, 0)


def test_what_stands_below_an_optional_heading_is_optional(minutes):
    after = markdown(WORDS) + code(*["x = 1"] * 100)
    for note in ("*16 minutes, optional, about 2 lines.*", "*16 minutes, optional.*"):
        cells = exercise(note, points=0) + after
        assert both(minutes(cells)) == (0, 36)
        assert both(minutes(cells + markdown("### Next", WORDS))) == (10, 36)
    for heading in (["### Optional: a look"], ["### A look", "", "*Optional.* Look."]):
        assert both(minutes(markdown(*heading) + after)) == (0, 20)


def test_a_guess_takes_one_minute_and_a_half():
    cells = [v4.new_code_cell("x = 1", metadata={"predict": f"p{i}"}) for i in range(20)]
    found = lab_minutes(cells, [ast.parse(cell.source) for cell in cells])
    assert both(found) == (32, 0), "20 * 1.5, and 20 lines to read"


def test_a_widget_takes_three_minutes_each_time_it_is_shown(minutes):
    shown = code(
        "from labkit.labs.tiny.widget_ruler import Ruler as R",
        "from labkit.labs.tiny.checks import check_it",
        *["R(1)"] * 10,
        *["check_it(1)"] * 8,
    )
    assert both(minutes(shown)) == (32, 0), "10 * 3, and 20 lines to read"


def test_cards_take_the_banks_own_times(minutes):
    bank = load_bank()
    say_it = sum(q.seconds for q in drills.questions_to_say(bank, lab="02_number_formats"))
    diagnostic = sum(q.seconds for q in drills.diagnostic_questions(bank, []))
    some = drills.session(bank, [], datetime.now(UTC), count=8, topics=["memory"])
    for call, seconds in {
        'warm_up("02_number_formats")': 90,
        'say_it("02_number_formats")': say_it,
        "diagnostic()": diagnostic,
        'drill(count=8, topics=("memory",))': sum(question.seconds for question in some),
        "mock_interview(minutes=10)": 600,
    }.items():
        name = call.partition("(")[0]
        cell = code(f"from labkit.interview.widget_drill_card import {name}", *[call] * 20)
        lines = 21
        assert both(minutes(cell)) == (round(20 * seconds / 60 + lines / 10), 0), call


SITTINGS = (
    markdown(WORDS)
    + markdown("## Sitting A: begin", "", WORDS)
    + markdown("### More", WORDS)
    + markdown("## Sitting B: go on", "", WORDS)
    + exercise("*16 minutes, optional.*", points=0)
)


def test_the_sittings_are_counted_apart_and_what_stands_before_goes_with_the_first(minutes):
    found = minutes(SITTINGS)
    assert found.sittings == (("A", 30, 0), ("B", 10, 16))
    assert both(found) == (40, 16)


def test_both_notebooks_the_manifest_and_the_readme_tell_the_minutes(course):
    text = FIRST + SITTINGS
    notebooks = course(**{"02_counted": text})
    (notebooks.parent / "README.md").write_text(
        "<!-- The table of labs: `python -m labkit build` writes it. -->\n"
        "<!-- End of the table of labs. -->\n"
    )
    build(notebooks=notebooks)
    for path in ("02_counted.ipynb", "solutions/02_counted.ipynb"):
        first = nbformat.read(notebooks / path, as_version=4).cells[0].source
        line, remark = first.split("\n\n")[1:3]
        assert line == "*40 + 16 optional minutes · any laptop · needs: nothing*"
        for part in ("Sitting A takes 30 minutes", "sitting B takes 10 + 16 optional minutes"):
            assert part in remark
        assert "*optional*" in remark and "no points" in remark
    assert "| 40 + 16 optional |" in (notebooks.parent / "README.md").read_text()
    (entry,) = read_manifest(notebooks).labs
    assert (entry.minutes, entry.optional_minutes) == (40, 16)


def test_a_lab_of_one_sitting_and_nothing_optional_has_no_remark(course):
    notebooks = course(**{"02_counted": FIRST + markdown(WORDS)})
    lab = read_lab(notebooks / "source" / "02_counted.py")
    first = lab.learner.cells[0].source
    assert first == "# 2. Counted\n\n*10 minutes · any laptop · needs: nothing*"
    assert "optional" not in table_of_labs([lab])


def test_a_text_by_its_headings():
    text = "before\n\n## One\n\n```python\n# no heading\n```\n### Two words\nend"
    assert list(by_heading(text)) == [
        ("", "before\n\n"),
        ("One", "## One\n\n```python\n# no heading\n```\n"),
        ("Two words", "### Two words\nend"),
    ]
    assert list(by_heading("# Title\n\nText")) == [("Title", "# Title\n\nText")]


def test_the_manifest_lists_headings_with_the_exercises_below(course):
    cells = markdown("## Sitting A: begin", "", "### A rule", "", "Text.")
    cells += exercise("*1 minute.*", points=1) + markdown("### What's left?")
    cells += exercise("*1 minute, optional.*", points=0, name="two")
    notebooks = course(**{"02_counted": FIRST + cells})
    build(notebooks=notebooks)
    (entry,) = read_manifest(notebooks).labs
    assert [(each.section, each.items, each.optional) for each in entry.sections] == [
        ("Sitting-A:-begin", (), False),
        ("A-rule", (), False),
        ("Exercise:-one", ("one",), False),
        ("What's-left?", (), False),
        ("Exercise:-two", ("two",), True),
    ]


def test_every_exercise_and_prediction_of_the_course_stands_below_a_heading():
    for lab in read_manifest().labs:
        asked = [exercise.exercise for exercise in lab.exercises]
        below = [item for section in lab.sections for item in section.items]
        assert Counter(below) == Counter([*asked, *lab.predictions]), lab.lab
