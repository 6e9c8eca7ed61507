"""Record what one batch of raw pixels does to a digit reader, and what each remedy leaves.

    nice -n 5 python data/emulated/record_bad_batch.py

Test accuracies of ten seeds after 400 steps, for each of bad_batch.WAYS.
"""

import json
from datetime import date
from pathlib import Path

import torch

from labkit.base.files import replace_file
from labkit.devices.probe import processor
from labkit.labs.monitoring_and_debugging.bad_batch import WAYS, accuracy_after

FILE = Path(__file__).with_name("bad_batch.json")
SEEDS = range(10)

torch.set_num_threads(1)


def main():
    record = {
        "what": " ".join(__doc__.split("\n\n")[2].split()),
        "device": f"CPU, {processor().name}, one thread",
        "torch": torch.__version__,
        "date": date.today().isoformat(),
        "by": "data/emulated/record_bad_batch.py",
        "accuracies": {
            way: [round(accuracy_after(way, seed=seed), 4) for seed in SEEDS] for way in WAYS
        },
    }
    replace_file(FILE, json.dumps(record, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
