"""Record how runs of torchrun end that were killed, or went on with other processes.

    python data/emulated/record_restart.py

A network of two linear layers on digits, FP16 autocast with a loss scale or FP32, AdamW, trained
for 20 steps by DistributedDataParallel over gloo, two processes, and saved by
torch.distributed.checkpoint after each 5 steps. Beside the undisturbed run of the same seed: a run
of which one process gets SIGKILL in step 13 and that torchrun starts again; and runs that go on
from the checkpoint of step 10 with one process, and with four, each step with the same samples. The
largest difference of a weight, for each seed.
"""

import json
import shutil
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from labkit.devices.probe import processor
from labkit.labs.production.restart import restarted

FILE = Path(__file__).with_name("restart.json")
SEEDS = range(5)
KILLED, WENT_ON = 13, 10


def compared(undisturbed, runs):
    """A row for each seed."""
    return [
        {
            "seed": seed,
            "started_at": run.started_at,
            "same_bits": run.sha256 == whole.sha256,
            "largest": (run.weights - whole.weights).abs().max().item(),
        }
        for seed, whole, run in zip(SEEDS, undisturbed, runs, strict=True)
    ]


def ways(folder):
    """By words: what became of the runs of all seeds."""
    whole = {p: restarted(folder / p, seeds=SEEDS, precision=p) for p in ("fp16", "fp32")}
    killed = restarted(folder / "killed", seeds=SEEDS, kill_at=KILLED)
    yield f"FP16, one of two processes killed in step {KILLED}", compared(whole["fp16"], killed)
    for precision, undisturbed in whole.items():
        for processes, words in ((1, "one process"), (4, "four processes")):
            there = folder / f"{precision}, {words}"
            for seed in SEEDS:
                kept = Path(str(seed), str(WENT_ON))
                shutil.copytree(folder / precision / kept, there / kept)
            runs = restarted(there, processes=processes, seeds=SEEDS, precision=precision)
            named = f"{precision.upper()}, from step {WENT_ON} on with {words}"
            yield named, compared(undisturbed, runs)


def main():
    runs = {}
    with TemporaryDirectory() as folder:
        for words, rows in ways(Path(folder)):
            runs[words] = rows
            print(words, rows, flush=True)
    record = {
        "what": " ".join(__doc__.split("\n\n")[2].split()),
        "device": f"CPU, {processor().name}, one thread a process",
        "torch": torch.__version__,
        "date": date.today().isoformat(),
        "by": "data/emulated/record_restart.py",
        "runs": runs,
    }
    FILE.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
