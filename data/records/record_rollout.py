"""Record what exports of the course's GPT predict, for lab 15's rollout.

    nice -n 5 python data/records/record_rollout.py

Each export of ``canaries.CANARIES`` and the float32 reference, data/gpt/gpt.npz, read the last 10 %
of the text in pieces of 64 characters, each alone: 37,120 predictions. Kept is, for each character,
whether the largest logit was right and all were finite, and, of the exports that have such, whether
a logit was not finite: eight characters a byte, in base64.

The trained GPT is one network and nothing here is random; a rollout draws the order of the requests
from a seed.
"""

import base64

import numpy as np
import torch
from common import about, cpu, file_of, write

from labkit.labs.production.canaries import CANARIES, REFERENCE
from labkit.training import in_eval_mode, trained_gpt
from labkit.training.data import characters, shakespeare, shakespeare_split

CONTEXT = 64


def answers(model):
    """Of each next character: is it right, with finite logits; are the logits finite."""
    tokens = characters(shakespeare()).encode(shakespeare_split()[1])
    pieces = (len(tokens) - 1) // CONTEXT
    inputs = tokens[: pieces * CONTEXT].view(pieces, CONTEXT)
    targets = tokens[1 : pieces * CONTEXT + 1].view(pieces, CONTEXT)
    right, finite = [], []
    with in_eval_mode(model), torch.no_grad():
        for x, y in zip(inputs.split(128), targets.split(128), strict=True):
            logits = model(x)
            finite.append(logits.isfinite().all(-1))
            right.append((logits.argmax(-1) == y) & finite[-1])
    return torch.cat(right).flatten().numpy(), torch.cat(finite).flatten().numpy()


def packed(flags):
    return base64.b64encode(np.packbits(flags)).decode("ascii")


def main(file):
    torch.set_num_threads(1)
    models = {REFERENCE: lambda gpt: gpt} | {name: c.export for name, c in CANARIES.items()}
    right, not_finite = {}, {}
    for name, export in models.items():
        hits, finite = answers(export(trained_gpt()))
        print(name, hits.mean(), (~finite).sum(), flush=True)
        right[name] = packed(hits)
        if not finite.all():
            not_finite[name] = packed(~finite)
    record = about(__file__, __doc__, cpu(), torch=torch.__version__)
    record |= {"characters": len(hits), "right": right, "not_finite": not_finite}
    write(file, record, indent=1)


if __name__ == "__main__":
    main(file_of(__doc__, "emulated/rollout.json"))
