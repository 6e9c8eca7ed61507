"""Train the course's small GPT, the checkpoint that labs 05 to 17 start from.

    python data/records/record_gpt.py

SmallGPT(68, 64) reads the first 90 % of the text in pieces of 64 characters, 32 at a time, for
5,000 steps in float32, without autocast. AdamW follows OneCycleLR up to 6e-3, and gradients are
clipped to norm 1. The last 10 % of the text is never trained on: bits a character are measured on
it.
"""

import json

import numpy as np
import torch
from common import about, cpu, file_of
from torch import nn

from labkit.training import cross_entropy
from labkit.training.data import character_batches, characters, shakespeare, shakespeare_split
from labkit.training.gpt import bits_per_character
from labkit.training.models import SmallGPT

SEED, STEPS, CONTEXT, BATCH = 0, 5_000, 64, 32
LEARNING_RATE, WEIGHT_DECAY, MAX_NORM = 6e-3, 0.05, 1.0


def main(file):
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    vocabulary = characters(shakespeare())
    training_text, test_text = shakespeare_split()
    model = SmallGPT(vocabulary.size, CONTEXT)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=STEPS, pct_start=0.1
    )
    loader = character_batches(
        training_text, CONTEXT, BATCH, steps=STEPS, seed=SEED, vocabulary=vocabulary
    )

    for step, (tokens, next_tokens) in enumerate(loader, start=1):
        optimizer.zero_grad()
        loss = cross_entropy(model(tokens), next_tokens)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        schedule.step()
        if step % 500 == 0:
            bits = bits_per_character(model, test_text)
            print(
                f"step {step}: loss {loss.item():.3f} nats, {bits:.4f} bits a character", flush=True
            )

    record = about(__file__, __doc__, cpu(), torch=torch.__version__) | {
        "vocabulary": vocabulary.symbols,
        "context": CONTEXT,
        "steps": STEPS,
        "seed": SEED,
        "bits_per_character": bits,
    }
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    np.savez_compressed(file, about=json.dumps(record), **weights)


if __name__ == "__main__":
    main(file_of(__doc__, "gpt/gpt.npz"))
