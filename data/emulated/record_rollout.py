"""Record what exports of the course's GPT predict, for lab 15's rollout.

    nice -n 5 python data/emulated/record_rollout.py

Each export of ``canaries.CANARIES`` and the float32 reference read the last 10 % of the text in
pieces of 64 characters. Kept is, for each character, whether the largest logit was right, and, of
the exports that have such, whether a logit was not finite: eight characters a byte, in base64. The
trained GPT is one network and nothing here is random; a rollout draws the order of the requests
from a seed.
"""

import json
from datetime import date
from pathlib import Path

import torch

from labkit.base.files import replace_file
from labkit.devices.probe import processor
from labkit.labs.production.canaries import CANARIES, REFERENCE, hits, packed
from labkit.training import gpt_record, trained_gpt

FILE = Path(__file__).with_name("rollout.json")

torch.set_num_threads(1)
gpt, about = trained_gpt(), gpt_record()
found = {REFERENCE: hits(gpt)} | {name: hits(c.export(gpt)) for name, c in CANARIES.items()}
for name, each in found.items():
    print(name, each.right.mean(), (~each.finite).sum(), flush=True)
kept = {
    "what": f"exports of data/gpt/gpt.npz ({about.steps:,} steps, seed {about.seed}) on the last "
    "10 % of the text",
    "device": f"CPU, {processor().name}, one thread",
    "torch": torch.__version__,
    "date": date.today().isoformat(),
    "by": "data/emulated/record_rollout.py",
    "characters": len(found[REFERENCE].right),
    "right": {name: packed(each.right) for name, each in found.items()},
    "not_finite": {
        name: packed(~each.finite) for name, each in found.items() if not each.finite.all()
    },
}
replace_file(FILE, json.dumps(kept, indent=1) + "\n")
