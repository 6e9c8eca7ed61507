"""Record the rows of the ledger that a learner finds filled in.

    nice -n 5 python data/emulated/record_ledger.py
    nice -n 5 python data/emulated/record_ledger.py 12_choosing_precision

It executes the solved notebooks of the labs, each with a progress log of its own, and keeps the
rows that they add to the ledger. Rows of labs that are not named stay as they are.
"""

import json
import os
import sys
import tempfile
from datetime import date

import nbformat
import torch
from nbclient import NotebookClient

from labkit.base import progress
from labkit.base.paths import NOTEBOOKS
from labkit.devices.probe import processor
from labkit.measuring.ledger import FILE

LABS = (
    "00_start_here",
    "05_automatic_mixed_precision",
    "08_fp8_and_fp4",
    "09_quantization",
    "12_choosing_precision",
    "15_production",
    "17_ship_it",
)


def rows_of(lab: str) -> list[dict]:
    notebook = nbformat.read(NOTEBOOKS / "solutions" / f"{lab}.ipynb", as_version=4)
    resources = {"metadata": {"path": str(NOTEBOOKS)}}
    client = NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources)
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"LABKIT_HOME": home, "OMP_NUM_THREADS": "1"}
        client.execute(env=dict(os.environ))
        added = progress.events(lab=lab, kind="ledger")
    return [
        {"lab": lab, "name": e.item, "bytes": e.detail["bytes"], "bits": round(e.detail["bits"], 4)}
        for e in added
    ]


def main() -> None:
    os.environ.pop("LABKIT_PROGRESS", None)
    labs = tuple(sys.argv[1:]) or LABS
    rows = [
        row
        for row in json.loads(FILE.read_text(encoding="utf-8"))["rows"]
        if row["lab"] not in labs
    ]
    for lab in labs:
        rows += rows_of(lab)
    record = {
        "what": "The course's GPT (data/gpt) in the forms that the labs store it in: bytes of all "
        "parameters, scales counted, and bits a character on the last 10 % of the text. They are "
        "the rows that the solved notebooks add to the ledger.",
        "device": f"CPU, {processor().name}, one thread",
        "torch": torch.__version__,
        "date": str(date.today()),
        "by": "data/emulated/record_ledger.py",
        "rows": sorted(rows, key=lambda row: row["lab"]),
    }
    FILE.write_text(json.dumps(record) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
