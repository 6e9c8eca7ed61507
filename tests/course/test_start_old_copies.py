"""`labkit start` brings old copies of the labs up to date and loses no answer and no guess."""

import ast
import json
from pathlib import Path

import pytest

from labkit.base import progress
from labkit.base.home import NOTEBOOKS, read_manifest
from labkit.course import my_labs

COPIES = sorted(Path(__file__).parents[1].glob("old_copies/*.ipynb"))


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """The folder of a learner who wrote in each cell of every old copy: before, after, reports."""
    folder = tmp_path_factory.mktemp("started")
    before = {copy.stem: written_in(copy) for copy in COPIES}
    (folder / "mine").mkdir()
    for lab, notebook in before.items():
        (folder / "mine" / f"{lab}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_HOME", str(folder / "home"))
        patch.delenv("LABKIT_PROGRESS", raising=False)
        reports = my_labs.start(folder / "mine").updates
        guesses = {lab: progress.events(lab=lab, kind="prediction") for lab in before}
    return folder / "mine", before, reports, guesses


def written_in(copy: Path) -> dict:
    """An old copy with a line below each answer, and a guess in each cell that asks for one."""
    notebook = json.loads(copy.read_text(encoding="utf-8"))
    notebook["metadata"]["labkit"]["version"] = "0123456789ab"  # a lab may be as it was then
    for cell in notebook["cells"]:
        if answer_of(cell):
            cell["source"] = "".join(cell["source"]) + "\n# mine"
        elif guess_of(cell):
            name = ast.parse("".join(cell["source"])).body[-1].name
            cell["source"] = "".join(cell["source"]) + f"\n\n{name}.guess(2050, sure=3)"
    return notebook


def answer_of(cell: dict) -> str | None:
    graded = cell["metadata"].get("nbgrader", {})
    return graded["grade_id"] if graded.get("solution") else None


def guess_of(cell: dict) -> str | None:
    return cell["metadata"].get("labkit", {}).get("predict")


@pytest.mark.parametrize("lab", [copy.stem for copy in COPIES])
def test_start_carries_each_answer_and_each_guess_into_the_lab_of_today(started, lab):
    folder, before, reports, guesses = started
    old, new = before[lab], json.loads((folder / f"{lab}.ipynb").read_text(encoding="utf-8"))
    today = json.loads((NOTEBOOKS / f"{lab}.ipynb").read_text(encoding="utf-8"))
    (said,) = [sentence for sentence in reports if sentence.startswith(lab)]
    said, _, not_asked = said.partition("no longer asks for")

    written = {slug: cell["source"] for cell in old["cells"] if (slug := answer_of(cell))}
    asked = {slug for cell in today["cells"] if (slug := answer_of(cell))}
    for cell in today["cells"]:
        if (slug := answer_of(cell)) in written:
            cell["source"] = written[slug]
    assert new == today, "the lab of today, with the learner's answers"
    assert new["metadata"]["labkit"]["version"] == read_manifest().find(lab).version

    guessed = {slug for cell in old["cells"] if (slug := guess_of(cell))}
    asks = {slug for cell in today["cells"] if (slug := guess_of(cell))}
    logged = {event.item: event.detail for event in guesses[lab]}
    assert {slug: (one["guess"], one["sure"]) for slug, one in logged.items()} == dict.fromkeys(
        guessed & asks, ("2050", 3)
    )
    for slug in written.keys() | guessed:
        assert f"`{slug}`" in (said if slug in asked | asks else not_asked)

    (kept,) = folder.glob(f"{lab}.before-*.ipynb")
    assert json.loads(kept.read_text(encoding="utf-8")) == old
