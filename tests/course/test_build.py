"""The build: what comes out, that it is the same twice, and that mistakes are named."""

import functools
import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from tiny_lab import TINY

from labkit.__main__ import main
from labkit.course import build as build_module
from labkit.course.build import TABLE_BEGINS, TABLE_ENDS, BuildError, build
from labkit.course.lab_source import (
    LabError,
    cell_id,
    digest,
    names_assigned,
    names_loaded,
    read_lab,
)
from labkit.course.solution_text import answers_text, solutions_text


def lab_of(notebooks: Path):
    return read_lab(notebooks / "source" / "02_tiny.py")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The tiny course, built once; tests that change it work on a copy."""
    notebooks = tmp_path_factory.mktemp("built") / "notebooks"
    (notebooks / "source").mkdir(parents=True)
    (notebooks / "source" / "02_tiny.py").write_text(TINY, encoding="utf-8")
    build(notebooks=notebooks)
    return notebooks


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "notebooks"))


def files(notebooks: Path) -> dict[str, bytes]:
    paths = [path for path in notebooks.rglob("*") if path.is_file()]
    return {str(path.relative_to(notebooks)): path.read_bytes() for path in paths}


def cells(path: Path) -> dict[str, nbformat.NotebookNode]:
    """The cells that carry nbgrader's metadata, by grade_id."""
    notebook = nbformat.read(path, as_version=4)
    found = [c for c in notebook.cells if "nbgrader" in c.metadata]
    return {c.metadata.nbgrader.grade_id: c for c in found}


def test_learner_notebook_has_stubs_and_no_solution(built):
    by_id = cells(built / "02_tiny.ipynb")
    assert by_id["ulp"].source == (
        "def ulp(x: float) -> float:\n"
        '    """Gap above x."""\n'
        "    # `math.frexp` helps.\n"
        "    # your code here\n"
        '    raise NotImplementedError("your code here")'
    )
    assert by_id["gap"].source == "gap = ...\n# your code here"
    assert "SOLUTION" not in (built / "02_tiny.ipynb").read_text()


def test_learner_notebook_has_no_outputs(built):
    notebook = nbformat.read(built / "02_tiny.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert notebook.metadata.kernelspec.name == "python3"
    assert "version" not in notebook.metadata.language_info


def test_only_learners_check_cells_may_raise(built):
    for path, tagged in [
        (built / "02_tiny.ipynb", {"check-ulp", "check-gap"}),
        (built / "solutions" / "02_tiny.ipynb", set()),
    ]:
        notebook = nbformat.read(path, as_version=4)
        may_raise = [c for c in notebook.cells if "raises-exception" in c.metadata.get("tags", [])]
        assert {c.metadata.nbgrader.grade_id for c in may_raise} == tagged
        ignored = [c for c in notebook.cells if "nbval-ignore-output" in c.metadata.get("tags", [])]
        assert [c.source for c in ignored] == ["print(math.pi)"]


def test_nbgraders_own_validator_and_release_step_agree(built):
    from nbgrader.nbgraderformat.v3 import MetadataValidatorV3
    from nbgrader.preprocessors import CheckCellMetadata, ClearSolutions

    learner = nbformat.read(built / "02_tiny.ipynb", as_version=4)
    solution = nbformat.read(built / "solutions" / "02_tiny.ipynb", as_version=4)
    for notebook in (learner, solution):
        MetadataValidatorV3().validate_nb(notebook)
        CheckCellMetadata().preprocess(notebook, {})
    # What an instructor's own release makes of the solved notebook, with nbgrader's stub.
    released, _ = ClearSolutions().preprocess(solution, {})
    theirs = {c.metadata.nbgrader.grade_id: c for c in released.cells if "nbgrader" in c.metadata}
    assert theirs["ulp"].source == cells(built / "02_tiny.ipynb")["ulp"].source.replace(
        "# your code here", "# YOUR CODE HERE"
    ).replace('("your code here")', "()")
    ours = cells(built / "02_tiny.ipynb")
    assert {i: c.metadata.nbgrader for i, c in theirs.items()} == {
        i: c.metadata.nbgrader for i, c in ours.items()
    }


def test_exercise_and_check_metadata(built):
    by_id = cells(built / "02_tiny.ipynb")
    assert by_id["ulp"].metadata.nbgrader == {
        "schema_version": 3,
        "grade_id": "ulp",
        "solution": True,
        "grade": False,
        "locked": False,
        "task": False,
    }
    assert by_id["check-ulp"].metadata.nbgrader == {
        "schema_version": 3,
        "grade_id": "check-ulp",
        "solution": False,
        "grade": True,
        "locked": True,
        "task": False,
        "points": 2,
    }


def test_solution_is_executed_and_predictions_are_shown(built):
    notebook = nbformat.read(built / "solutions" / "02_tiny.ipynb", as_version=4)
    guess = next(c for c in notebook.cells if c.metadata.get("labkit") == {"predict": "ones"})
    assert guess.source == (
        '@predict(guesses.ones)\ndef count():\n    return bin(7).count("1")'
        '\n\n\ncount.guess("skip")'
    )
    asked, answered = (output["data"]["text/plain"] for output in guess.outputs)
    assert "How many ones has 7?" in asked and "answer is" not in asked
    assert answered == "The answer is 3."
    printed = next(c for c in notebook.cells if c.source == "print(math.pi)")
    assert printed.outputs[0].text.startswith("3.14")
    assert all("execution" not in cell.metadata for cell in notebook.cells)
    assert "version" not in notebook.metadata.language_info


def test_ids_are_the_same_in_both_and_tell_the_learners_text(built):
    learner = nbformat.read(built / "02_tiny.ipynb", as_version=4).cells
    solution = nbformat.read(built / "solutions" / "02_tiny.ipynb", as_version=4).cells
    assert [c.id for c in learner] == [c.id for c in solution]
    assert len({c.id for c in learner}) == len(learner)
    assert learner[-2].id == cell_id("code", 'print("done")', 1)
    assert learner[-1].id == cell_id("code", 'print("done")', 2)


def test_an_explanation_stands_behind_its_guess_and_in_no_notebook(built):
    for path in (built / "02_tiny.ipynb", built / "solutions" / "02_tiny.ipynb"):
        assert "three" not in path.read_text(encoding="utf-8")
    solutions: dict = {}
    exec((built / "labs" / "tiny" / "solutions.py").read_text(encoding="utf-8"), solutions)
    assert solutions["EXPLANATIONS"] == {"ones": '7 is $2^3 - 1$: three "ones", é.'}


@pytest.mark.parametrize("text", ['ends in "', 'holds """ and \\sum', "two\nlines"])
def test_an_explanation_comes_out_as_it_was_written(course, text):
    lines = "\n".join(f"# {line}" for line in text.split("\n"))
    written = '# 7 is $2^3 - 1$: three "ones", é.'
    assert TINY.count(written) == 1
    found: dict = {}
    exec(solutions_text(lab_of(course(**{"02_tiny": TINY.replace(written, lines)}))), found)
    assert found["EXPLANATIONS"] == {"ones": text}


def test_manifest(built):
    assert json.loads((built / "manifest.json").read_text()) == {
        "schema": 1,
        "labs": [
            {
                "lab": "02_tiny",
                "title": "Tiny numbers",
                "version": digest(TINY)[:12],
                "minutes": 3,
                "optional_minutes": 0,
                "hardware": "any laptop, no GPU",
                "exercises": [
                    {
                        "exercise": "ulp",
                        "names": ["ulp"],
                        "points": 2,
                        "check_version": None,
                        "limits": {"seconds": 10},
                    },
                    {
                        "exercise": "gap",
                        "names": ["gap"],
                        "points": 1,
                        "check_version": None,
                        "limits": {"seconds": 3},
                    },
                ],
                "predictions": ["ones"],
                "sections": [],
            }
        ],
    }


@pytest.fixture
def labs(tmp_path, monkeypatch) -> Path:
    """An empty labkit.labs, with a folder for the tiny lab."""
    monkeypatch.setattr(build_module, "_LABKIT", tmp_path / "labkit")
    folder = tmp_path / "labkit" / "labs"
    (folder / "tiny").mkdir(parents=True)
    return folder


def test_manifest_knows_the_version_of_the_checks(course, labs):
    (labs / "tiny" / "checks.py").write_text("FACT = 1\n")
    lab = lab_of(course())
    (entry,) = build_module._manifest([lab])["labs"]
    version = digest("FACT = 1\n" + answers_text(lab))[:12]
    assert {e["check_version"] for e in entry["exercises"]} == {version}


def test_the_version_covers_every_module_that_the_checks_use(course, labs):
    (labs / "tiny" / "checks").mkdir()
    (labs / "tiny" / "checks" / "__init__.py").write_text(
        "from labkit.labs.tiny.checks import deep\nfrom labkit.labs.tiny import solutions\n"
    )
    (labs / "tiny" / "checks" / "deep.py").write_text("from labkit.labs.tiny.facts import x\n")
    lab = lab_of(course())

    def version():
        (entry,) = build_module._manifest([lab])["labs"]
        return entry["exercises"][0]["check_version"]

    seen = [version()]
    for name in ("checks/deep", "facts", "unused", "solutions"):
        with (labs / "tiny" / f"{name}.py").open("a") as file:
            file.write("# changed\n")
        seen.append(version())
    assert len(set(seen[:3])) == 3 and seen[2] == seen[3] == seen[4]


def test_a_second_build_writes_and_executes_nothing(copy, monkeypatch):
    monkeypatch.setattr(build_module, "_executed", lambda *_: pytest.fail("executed again"))
    before = files(copy)
    assert build(notebooks=copy) == []
    assert build(notebooks=copy, check=True) == []
    assert files(copy) == before


def test_executing_again_gives_the_same_bytes(copy):
    before = files(copy)
    assert len(build(notebooks=copy, execute=True)) == 1
    assert files(copy) == before


def test_check_names_the_stale_file_and_the_command_and_changes_nothing(copy, monkeypatch):
    monkeypatch.setattr(build_module, "_executed", lambda *_: pytest.fail("--check executed"))
    source = copy / "source" / "02_tiny.py"
    source.write_text(source.read_text(encoding="utf-8") + "# a thought\n", encoding="utf-8")
    before = files(copy)
    said = build(notebooks=copy, check=True)
    assert files(copy) == before
    assert [re.sub(r"\S*/notebooks/", "", line) for line in said] == [
        "02_tiny.ipynb is not what its source gives. Mend it with: python -m labkit build 02_tiny",
        "solutions/02_tiny.ipynb is not what its source gives. "
        "Mend it with: python -m labkit build 02_tiny",
        "manifest.json is not what the sources give. Mend it with: python -m labkit build",
    ]


@pytest.mark.parametrize(
    "name", ["02_tiny.ipynb", "solutions/02_tiny.ipynb", "labs/tiny/solutions.py", "manifest.json"]
)
def test_check_sees_a_missing_and_an_edited_file(copy, name):
    text = (copy / name).read_text(encoding="utf-8")
    (copy / name).write_text(text.replace("ulp", "ulq"), encoding="utf-8")
    (said,) = build(notebooks=copy, check=True)
    assert f"{name} is not what" in said
    (copy / name).unlink()
    (said,) = build(notebooks=copy, check=True)
    assert name in said and "python -m labkit build" in said


def test_check_sees_a_damaged_solution_and_a_notebook_without_source(copy):
    (copy / "solutions" / "02_tiny.ipynb").write_text("{")
    shutil.copy(copy / "02_tiny.ipynb", copy / "03_gone.ipynb")
    shutil.copytree(copy / "labs" / "tiny", copy / "labs" / "gone")
    damaged, *orphans = build(notebooks=copy, check=True)
    assert "solutions/02_tiny.ipynb is not what" in damaged
    for orphan, name in zip(orphans, ("03_gone.ipynb", "labs/gone/solutions.py"), strict=True):
        assert f"{name} has no source" in orphan and "git rm" in orphan


def test_only_a_changed_lab_is_executed(copy, monkeypatch):
    executed = []
    monkeypatch.setattr(
        build_module, "_executed", lambda lab, _: executed.append(lab.lab) or lab.solution
    )
    other = TINY.replace("# # 2.", "# # 3.")
    (copy / "source" / "03_other.py").write_text(other, encoding="utf-8")
    said = build(notebooks=copy)
    assert executed == ["03_other"]
    assert [Path(line.removeprefix("wrote ")).name for line in said] == [
        "03_other.ipynb",
        "solutions.py",
        "__init__.py",
        "manifest.json",
        "03_other.ipynb",
    ]


def test_an_unknown_lab_is_named(course):
    with pytest.raises(BuildError, match="There is no lab '07_x'; there are 02_tiny"):
        build(["07_x"], notebooks=course())


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            'print("done")\n',
            "1 / 0\n",
            r"cell 9 raised ZeroDivisionError: division by zero\n    1 /",
        ),
        (
            'print("done")\n',
            'import sys; print("oh", file=sys.stderr)\n',
            "cell 9 wrote to stderr: oh",
        ),
        ("gap = 2\n", "gap = 3\n", r"cell 7 raised AssertionError: \n    assert gap == 2"),
    ],
)
def test_a_solution_that_fails_says_where_and_writes_nothing(course, old, new, expected):
    notebooks = course(**{"02_tiny": TINY.replace(old, new, 1)})
    with pytest.raises(BuildError, match=rf"source/02_tiny\.py: {expected}"):
        build(notebooks=notebooks)
    assert not (notebooks / "solutions").exists()


def test_execution_has_no_progress_log_and_the_notebooks_folder(course, monkeypatch):
    monkeypatch.setenv("LABKIT_PROGRESS", "on")
    line = 'import os; print(os.environ["LABKIT_PROGRESS"], os.getcwd())\n'
    notebooks = course(**{"02_tiny": TINY.replace('print("done")\n', line, 1)})
    build(notebooks=notebooks)
    notebook = nbformat.read(notebooks / "solutions" / "02_tiny.ipynb", as_version=4)
    assert notebook.cells[-2].outputs[0].text == f"off {notebooks}\n"


def test_widgets_leave_their_text_and_no_state(course):
    widget = "import ipywidgets; ipywidgets.IntSlider(value=3)\n"
    notebooks = course(**{"02_tiny": TINY.replace('print("done")\n', widget, 1)})
    build(notebooks=notebooks)
    text = (notebooks / "solutions" / "02_tiny.ipynb").read_text()
    assert "IntSlider(value=3)" in text
    assert "widget-view" not in text and '"widgets"' not in text


MISTAKES = {
    "exercise without check": (
        '# %% check="gap" points=1 seconds=3\nassert gap == 2\n',
        "",
        'exercise="gap": no check="gap" judges it',
    ),
    "check without exercise": (
        '# %% exercise="gap"\ngap = ...\n### BEGIN SOLUTION\ngap = 2\n### END SOLUTION\n',
        "",
        'check="gap": no exercise="gap" stands before this check',
    ),
    "duplicate slug": (
        'exercise="gap"\n',
        'exercise="ulp"\n',
        'exercise="ulp": duplicate slug; another exercise of this lab has it',
    ),
    "malformed slug": (
        'exercise="gap"\n',
        'exercise="1.4 gap"\n',
        'exercise="1.4 gap": malformed slug',
    ),
    "placeholder inside the region": (
        "gap = ...\n### BEGIN SOLUTION\n",
        "### BEGIN SOLUTION\ngap = ...\n",
        'exercise="gap": the placeholder of `gap` stands inside the solution region',
    ),
    "def line inside the region": (
        'def ulp(x: float) -> float:\n    """Gap above x."""\n    # `math.frexp` helps.\n'
        "    ### BEGIN SOLUTION\n",
        "### BEGIN SOLUTION\ndef ulp(x):\n",
        'exercise="ulp": the placeholder of `ulp` stands inside the solution region',
    ),
    "a prediction of another name": (
        "@predict(guesses.ones)",
        "@predict(guesses.twos)",
        'predict="ones": the cell must be one function below `@predict(guesses.ones)`',
    ),
    "a predict cell that does more": (
        '    return bin(7).count("1")\n',
        '    return bin(7).count("1")\nx = 1\n',
        'predict="ones": the cell must be one function',
    ),
    "a prediction without an explanation": (
        '# %% [markdown]\n# 7 is $2^3 - 1$: three "ones", é.\n\n',
        "",
        'predict="ones": the cell below must be the explanation',
    ),
    "an explanation that begins a section": (
        '# 7 is $2^3 - 1$: three "ones", é.\n',
        '# 7 is $2^3 - 1$: three "ones", é.\n#\n# ### Next\n',
        'predict="ones": the cell below must be the explanation, Markdown without a heading',
    ),
    "a cell that reads a prediction": (
        "print(math.pi)",
        "print(count + 1)",
        "reads `count`, which is the prediction 'ones' and not its truth",
    ),
    "missing BEGIN": (
        "    ### BEGIN SOLUTION\n",
        "",
        'exercise="ulp": needs `### BEGIN SOLUTION`, then `### END SOLUTION`',
    ),
    "missing END": (
        "    ### END SOLUTION\n",
        "",
        'exercise="ulp": needs `### BEGIN SOLUTION`, then `### END SOLUTION`',
    ),
    "region outside an exercise": (
        "import math\n",
        "### BEGIN SOLUTION\nimport math\n### END SOLUTION\n",
        "a solution region outside an exercise",
    ),
    "check without points": (" points=2", "", 'check="ulp": a check needs whole points'),
    "check with half a point": (" points=2", " points=0.5", 'check="ulp": a check needs whole'),
    "check with negative points": (" points=2", " points=-1", 'check="ulp": a check needs whole'),
    "check with bad seconds": (" seconds=3", " seconds=true", "seconds is a number above 0"),
    "solution does not define it": (
        "gap = ...\n### BEGIN SOLUTION\ngap = 2\n",
        "gapp = ...\n### BEGIN SOLUTION\ngapp = 2\n",
        "check=\"gap\": the check uses ['gap'], the exercise's solution defines ['gapp']",
    ),
    "check uses something else": (
        "assert gap == 2",
        "assert math.pi > 3",
        "check=\"gap\": the check uses ['math'], the exercise's solution defines ['gap']",
    ),
    "stub in a class body": (
        "def ulp(x: float) -> float:\n",
        "class ulp:\n",
        'exercise="ulp": an indented solution region must stand inside a function',
    ),
    "not Python": ("import math\n", "import math import\n", "invalid syntax"),
    "unknown option": (" points=2", " points=2 poits=3", "unknown option ['poits']"),
    "option without quotes": ('exercise="gap"', "exercise=gap", "incorrectly_encoded_metadata"),
    "two kinds": (
        '# %% check="gap" points=1',
        '# %% check="gap" predict="gap" points=1',
        "one cell is one of ['check', 'predict'], not several",
    ),
    "markdown exercise": ('# %% exercise="gap"', '# %% [markdown] exercise="gap"', "code cell"),
    "no title": (
        "# # 2. Tiny numbers",
        "# # Tiny",
        "must be markdown and start with `# 2. <title>`",
    ),
    "another lab's number": ("# # 2. Tiny", "# # 3. Tiny", "start with `# 2. <title>`"),
    "no knowledge": (" · needs: nothing", "", "needs the line `*<hardware> · needs: <knowledge>*`"),
    "minutes": ("*any laptop", "*5 minutes · any laptop", "its minutes are computed"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(course, mistake):
    old, new, expected = MISTAKES[mistake]
    assert TINY.count(old) == 1, "the tiny lab changed under this test"
    notebooks = course(**{"02_tiny": TINY.replace(old, new)})
    with pytest.raises(LabError) as error:
        build(notebooks=notebooks)
    assert expected in str(error.value)
    assert str(error.value).startswith("02_tiny.py: ")
    assert not (notebooks / "02_tiny.ipynb").exists()


def test_all_mistakes_are_listed_at_once(course):
    text = TINY.replace(" points=2", "").replace('exercise="gap"', 'exercise="Gap"')
    with pytest.raises(LabError) as error:
        read_lab(course(**{"02_tiny": text}) / "source" / "02_tiny.py")
    message = str(error.value)
    assert "needs whole points" in message and "malformed slug" in message


def test_a_lab_with_a_malformed_name(course):
    with pytest.raises(LabError, match=r"Tiny\.py: a lab is named NN_topic\.py"):
        build(notebooks=course(Tiny=TINY))


def test_a_region_in_a_cell_of_both_kinds(course):
    both = "gap = ...\n### BEGIN SOLUTION\ngap = 2\n### END SOLUTION\n"
    text = TINY.replace(
        both, f"{both}def f():\n    ### BEGIN SOLUTION\n    pass\n    ### END SOLUTION\n"
    )
    by_slug = {
        c.metadata.nbgrader.grade_id: c.source
        for c in lab_of(course(**{"02_tiny": text})).learner.cells
        if "nbgrader" in c.metadata
    }
    assert by_slug["gap"] == (
        "gap = ...\n# your code here\ndef f():\n    # your code here\n"
        '    raise NotImplementedError("your code here")'
    )


def test_names_of_a_cell():
    code = (
        "%matplotlib inline\nimport a.b, c as d\nfrom e import f\n"
        "def g(h): i = j\nclass K: l = 1\n"
        "m, (n, *o) = p, q\nr: int = 1\nfor s in t: u += 1\n"
        "with v as w: pass\n[x for x in y if (z := x)]\nlambda A: A + B\n"
    )
    assert names_assigned(code) == set("adfgKmnorsuwz")
    assert [n for n in names_loaded(code) if len(n) == 1] == list("jpqtvyB")


def test_the_command(copy, monkeypatch, capsys):
    monkeypatch.setattr("labkit.course.build.build", functools.partial(build, notebooks=copy))

    def run(*args: str) -> tuple[int, str, str]:
        return main(["build", *args]), *capsys.readouterr()

    assert run("--check") == (0, "Every notebook and every widget is current.\n", "")
    (copy / "02_tiny.ipynb").unlink()
    status, _, told = run("--check", "02_tiny")
    assert status == 1
    assert "02_tiny.ipynb is missing. Mend it with: python -m labkit build 02_tiny" in told
    status, wrote, _ = run("02_tiny")
    assert status == 0 and "wrote" in wrote
    assert run("--check")[0] == 0
    status, _, told = run("99_x")
    assert status == 1 and "There is no lab '99_x'" in told


OUTCOMES = {
    "After this lab you can:\n#\n# - read a\n#   code;\n# - round it.": "read a code",
    "After this lab you can:\n#\n# - read a code.": "read a code",
    "After this lab you can write a loop by hand. Two sittings.": "write a loop by hand",
    "After this lab you can scale by 0.5; no more.": "scale by 0.5",
    "You can do much after this lab.": "",
}


@pytest.mark.parametrize("text", OUTCOMES)
def test_the_outcome_is_the_first_thing_that_a_lab_promises(text, tmp_path):
    source = tmp_path / "02_tiny.py"
    source.write_text(TINY.replace("You write one function and one number.", text))
    assert read_lab(source).outcome == OUTCOMES[text]


def test_the_readmes_table_of_labs_is_written_between_its_marks(copy):
    promise = "After this lab you can read |x|."
    source = copy / "source" / "02_tiny.py"
    source.write_text(TINY.replace("You write one function and one number.", promise))
    readme = copy.parent / "README.md"
    readme.write_text(f"# Before\n\n{TABLE_BEGINS}\nold\n{TABLE_ENDS}\n\nAfter.\n")
    build(notebooks=copy)
    text = readme.read_text()
    before, _, rest = text.partition(TABLE_BEGINS)
    table, _, after = rest.partition(TABLE_ENDS)
    assert (before, after) == ("# Before\n\n", "\n\nAfter.\n")
    row = "| [02 Tiny numbers](notebooks/02_tiny.ipynb) | 3 | read \\|x\\| |"
    assert row in table.splitlines() and "old" not in table
    assert build(notebooks=copy, check=True) == []
    readme.write_text(text.replace("Tiny numbers", "Small numbers"))
    (said,) = build(notebooks=copy, check=True)
    assert "README.md is not what the sources give" in said
    assert "Small numbers" in readme.read_text(), "--check writes nothing"


def test_a_readme_without_the_marks_is_an_error(copy):
    readme = copy.parent / "README.md"
    readme.write_text(f"# Before\n{TABLE_ENDS}\n{TABLE_BEGINS}\n")
    with pytest.raises(BuildError, match=r"README\.md must hold the lines"):
        build(notebooks=copy)
