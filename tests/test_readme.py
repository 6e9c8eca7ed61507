"""The README's first screen: two lines that do all set-up, and a table of labs that is true."""

import json
import re

from labkit.base.paths import NOTEBOOKS

ROOT = NOTEBOOKS.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
INSTALL = "python -m venv .venv && . .venv/bin/activate && pip install -r requirements.txt"


def table_of_labs() -> str:
    """The table as it has to stand in the README, from the manifest."""
    labs = json.loads((NOTEBOOKS / "manifest.json").read_text(encoding="utf-8"))["labs"]
    rows = [
        f"| [{lab['lab'][:2]} {lab['title']}](notebooks/{lab['lab']}.ipynb) "
        f"| {lab['minutes']} | {lab['hardware']} | {len(lab['exercises'])} "
        f"| {sum(entry['points'] for entry in lab['exercises'])} |"
        for lab in labs
    ]
    head = ["| lab | minutes | hardware | exercises | points |", "|---|---|---|---|---|"]
    return "\n".join(head + rows)


def test_the_table_of_labs_is_the_manifests():
    assert table_of_labs() in README, f"Put this table into README.md:\n{table_of_labs()}"


def test_the_first_screen_gives_exactly_the_two_lines():
    assert re.findall(r"```bash\n(.+?)\n```", README, re.DOTALL) == [
        f"{INSTALL} && jupyter lab notebooks/00_start_here.ipynb",
        f'{INSTALL} -e ".[dev]" && pytest',
    ]
    assert README.index(".[dev]") < README.index("\n## ")


def test_every_file_the_readme_points_to_is_there():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).is_file(), target
