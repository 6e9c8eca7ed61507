"""Record the tapes of GPT-2's training step that lab 07 shows.

    python data/records/record_gpt2_tape.py

Bytes alive during one training step of GPT-2 (163 M parameters, texts of 1,024 tokens), counted on
fake CPU tensors under CUDA's autocast lists: the file is the same on every machine.

A run that was stopped goes on: delete the file to record it anew.
"""

import torch
from common import about, file_of, read, write

from labkit.labs.memory_and_many_gpus.counted_step import StepSettings
from labkit.labs.memory_and_many_gpus.tape import BLOCKS, Tape, count_tape, step_in_words

EVERY = frozenset(range(BLOCKS))
TAPES = (
    StepSettings(),
    StepSettings(autocast=True),
    StepSettings(autocast=True, loss_chunks=16),
    StepSettings(autocast=True, checkpointed=EVERY),
    StepSettings(autocast=True, micro_batches=4),
    StepSettings(autocast=True, loss_chunks=16, checkpointed=EVERY),
    StepSettings(autocast=True, loss_chunks=16, checkpointed=EVERY, foreach=False),
    StepSettings(autocast=True, loss_chunks=16, checkpointed=EVERY, moments="bf16"),
    StepSettings(autocast=True, loss_chunks=16, checkpointed=EVERY, moments="8-bit"),
    StepSettings(autocast=True, loss_chunks=16, micro_batches=4),
    StepSettings(batch=1),
    StepSettings(batch=1, autocast=True),
    # What the widget meets first.
    *(
        StepSettings(autocast=True, loss_chunks=16, checkpointed=frozenset(range(blocks)))
        for blocks in range(1, 7)
    ),
    *(
        StepSettings(autocast=True, loss_chunks=chunks, micro_batches=parts)
        for chunks in (1, 16)
        for parts in (2, 8)
    ),
)


def plain(tape: Tape) -> dict:
    """A tape as plain data; what does not change during a step stands once."""
    settings = {
        name: value
        for name, value in vars(tape.settings).items()
        if value != getattr(StepSettings(), name)
    }
    if tape.settings.checkpointed:
        settings["checkpointed"] = sorted(tape.settings.checkpointed)
    first = tape.points[0]
    names = sorted({point.at for point in tape.points})
    return {
        "settings": settings,
        "extra_flop": tape.extra_flop,
        "weights": first.weights,
        "moments": first.moments,
        "names": names,
        "points": [
            [names.index(p.at), p.gradients, p.copies, p.kept, p.temporary] for p in tape.points
        ],
    }


def main(file):
    tapes = read(file).get("tapes", [])
    for settings in TAPES[len(tapes) :]:
        tapes.append(plain(count_tape(settings)))
        record = about(__file__, __doc__, "fake CPU tensors", torch=torch.__version__)
        write(file, record | {"tapes": tapes}, ',{"settings"')
        print(step_in_words(settings), flush=True)


if __name__ == "__main__":
    main(file_of(__doc__, "emulated/gpt2_tape.json"))
