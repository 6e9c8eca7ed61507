"""Recordings say which script made them, and each record script is the one of a file."""

import json

import numpy as np

from labkit.base.home import DATA


def test_each_recording_names_its_script_and_so_does_its_row():
    about = {
        path: json.loads(path.read_text(encoding="utf-8")) for path in DATA.glob("emulated/*.json")
    }
    for path in (*DATA.glob("gpt/*.npz"), *DATA.glob("tensors/*.npz")):
        with np.load(path) as file:
            about[path] = json.loads(str(file["about"]))
    rows = (DATA / "README.md").read_text(encoding="utf-8").splitlines()
    for path, record in about.items():
        (row,) = (row for row in rows if row.startswith(f"| `{path.relative_to(DATA)}` |"))
        assert f"`python {record['by']}`" in row
    scripts = {f"data/records/{path.name}" for path in DATA.glob("records/record_*.py")}
    assert {record["by"] for record in about.values()} == scripts


def test_a_machine_s_recording_names_the_command_that_made_it():
    for path in DATA.glob("recordings/*.json"):
        command = json.loads(path.read_text(encoding="utf-8"))["command"]
        assert command.startswith(f"labkit record data/recordings/{path.name}")
