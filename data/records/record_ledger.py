"""Record the rows of the ledger that a learner finds filled in.

    nice -n 5 python data/records/record_ledger.py
    nice -n 5 python data/records/record_ledger.py 12_choosing_precision

The course's GPT (data/gpt) in the forms that the labs store it in: bytes of all parameters, scales
counted, and bits a character on the last 10 % of the text. They are the rows that the solved
notebooks add to the ledger.

It executes these notebooks, each with a progress log of its own. Rows of labs that are not named
stay as they are.
"""

import os
import tempfile

import nbformat
import torch
from common import about, command, cpu, read, write
from nbclient import NotebookClient

from labkit.base import progress
from labkit.base.home import NOTEBOOKS

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
    parser = command(__doc__, "emulated/ledger.json")
    parser.add_argument("labs", nargs="*", default=LABS, metavar="LAB")
    asked = parser.parse_args()
    rows = [row for row in read(asked.file).get("rows", ()) if row["lab"] not in asked.labs]
    for lab in asked.labs:
        rows += rows_of(lab)
    record = about(__file__, __doc__, cpu(), torch=torch.__version__)
    write(asked.file, record | {"rows": sorted(rows, key=lambda row: row["lab"])})


if __name__ == "__main__":
    main()
