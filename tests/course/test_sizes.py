"""Ceilings: every file of labkit counts once, and a ceiling falls with its part and never rises."""

from dataclasses import replace

import pytest

from labkit.course import sizes
from labkit.course.sizes import CEILINGS, ROOM, ROOT, SizedPart, main, read_ceilings, write_ceilings


def test_every_module_and_table_of_labkit_counts_in_one_part_and_in_the_whole():
    *parts, whole = [
        part for part in read_ceilings() if "labkit/" in part.counts and ".py" in part.counts
    ]
    generated = set(ROOT.glob("labkit/labs/*/solutions.py"))
    assert whole.part == "labkit" and len(generated) > 15
    assert sorted(path for part in parts for path in part.files()) == sorted(whole.files())
    written = {*ROOT.glob("labkit/**/*.py"), *ROOT.glob("labkit/**/*.toml")}
    assert whole.files() == written - generated


def test_what_is_no_labkit_counts_in_no_more_than_one_part():
    others = [part.files() for part in read_ceilings() if "labkit/**/*.py" not in part.counts]
    assert sum(map(len, others)) == len(set().union(*others))


def test_each_part_has_the_figures_that_lie_ahead():
    held = [part for part in read_ceilings() if part.ceiling is not None]
    assert len(held) > 20
    for part in held:
        assert part.ceiling >= part.must_become >= part.aim > 0, part


@pytest.mark.parametrize(
    ("lines", "ceiling"),
    [(1000, 1000), (1200, 1000), (999, 999), (601, 601), (600, 600), (500, 600), (0, 600)],
)
def test_a_ceiling_falls_to_the_lines_and_not_below_what_they_must_become(lines, ceiling):
    assert SizedPart("x", "*.py", 1000, 600, 400).lowered(lines).ceiling == ceiling


@pytest.mark.parametrize(
    ("lines", "holds"),
    [(1000, True), (1001, False), (1000 - ROOM, True), (999 - ROOM, False), (0, False)],
)
def test_a_ceiling_is_passed_from_neither_side(lines, holds):
    part = SizedPart("x", "*.py", 1000, 600, 400)
    assert (part.fault(lines) == "") == holds
    reached = replace(part, ceiling=600)
    assert (reached.fault(lines) == "") == (lines <= 600)


def test_what_has_no_ceiling_is_counted_and_not_held():
    part = SizedPart("x", "*.py")
    assert part.fault(10**6) == "" and part.lowered(7) == part


@pytest.fixture
def root(tmp_path):
    """A repository with a part of 100 lines, one of them in a folder that is left out."""
    (tmp_path / CEILINGS).parent.mkdir()
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "all.py").write_text("x = 1\n" * 500)
    (tmp_path / "one.py").write_text("x = 1\n" * 100)
    write_ceilings(
        [SizedPart("one", "**/*.py !made/*.py", 100, 20, 10), SizedPart("rest", "made/*.py")],
        tmp_path,
    )
    return tmp_path


def test_the_command_fails_above_a_ceiling_and_lower_does_not_help(root, capsys):
    assert main([], root) == 0
    shown = capsys.readouterr()
    assert [line.split() for line in shown.out.splitlines()[1:]] == [
        ["one", "100", "100", "20", "10"],
        ["rest", "500"],
    ]
    with (root / "one.py").open("a") as file:
        file.write("y = 2\n")
    assert main(["--lower"], root) == main([], root) == 1
    assert "101 lines, 1 above" in capsys.readouterr().err
    assert read_ceilings(root)[0].ceiling == 100


def test_the_command_fails_far_below_a_ceiling_until_it_is_lowered(root, capsys):
    (root / "one.py").write_text("x = 1\n" * 30)
    assert main([], root) == 1
    assert "--lower" in capsys.readouterr().err
    assert main(["--lower"], root) == main([], root) == 0
    assert [part.ceiling for part in read_ceilings(root)] == [30, None]
    (root / "one.py").write_text("x = 1\n" * 31)
    assert main([], root) == 1


def test_the_table_of_the_course_is_written_as_it_is_read(tmp_path):
    (tmp_path / CEILINGS).parent.mkdir()
    write_ceilings(read_ceilings(), tmp_path)
    assert (tmp_path / CEILINGS).read_bytes() == (sizes.ROOT / CEILINGS).read_bytes()
