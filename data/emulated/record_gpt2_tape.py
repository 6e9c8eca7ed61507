"""Record the tapes of GPT-2's training step that lab 07 shows.

    python data/emulated/record_gpt2_tape.py

Counted on fake tensors, so the file is the same on every machine. A run that was stopped goes on:
delete the file to record it anew.
"""

import json
from datetime import date

import torch

from labkit.labs.memory_and_many_gpus.tape import BLOCKS, FILE, Settings, count_tape, to_json

EVERY = frozenset(range(BLOCKS))
TAPES = (
    Settings(),
    Settings(autocast=True),
    Settings(autocast=True, loss_chunks=16),
    Settings(autocast=True, checkpointed=EVERY),
    Settings(autocast=True, micro_batches=4),
    Settings(autocast=True, loss_chunks=16, checkpointed=EVERY),
    Settings(autocast=True, loss_chunks=16, checkpointed=EVERY, foreach=False),
    Settings(autocast=True, loss_chunks=16, checkpointed=EVERY, moments="bf16"),
    Settings(autocast=True, loss_chunks=16, checkpointed=EVERY, moments="8-bit"),
    Settings(autocast=True, loss_chunks=16, micro_batches=4),
    Settings(batch=1),
    Settings(batch=1, autocast=True),
    # What the widget meets first.
    *(
        Settings(autocast=True, loss_chunks=16, checkpointed=frozenset(range(blocks)))
        for blocks in range(1, 7)
    ),
    *(
        Settings(autocast=True, loss_chunks=chunks, micro_batches=parts)
        for chunks in (1, 16)
        for parts in (2, 8)
    ),
)


def main():
    record = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {"tapes": []}
    for settings in TAPES[len(record["tapes"]) :]:
        found = to_json(count_tape(settings))
        record = {
            "what": "bytes alive during one training step of GPT-2 (163 M parameters, texts of "
            "1,024 tokens), counted on fake CPU tensors under CUDA's autocast lists",
            "torch": torch.__version__,
            "date": date.today().isoformat(),
            "by": "data/emulated/record_gpt2_tape.py",
            "tapes": [*record["tapes"], found],
        }
        text = json.dumps(record, separators=(",", ":"))
        FILE.write_text(text.replace('{"settings"', '\n{"settings"') + "\n", encoding="utf-8")
        print(settings.describe(), flush=True)


if __name__ == "__main__":
    main()
