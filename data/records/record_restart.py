"""Record how runs of torchrun end that were killed, or went on with other processes.

    python data/records/record_restart.py

A network of two linear layers on digits, FP16 autocast with a loss scale or FP32, AdamW, trained
for 20 steps by DistributedDataParallel over gloo, two processes, and saved by
torch.distributed.checkpoint after each 5 steps. Beside the undisturbed run of the same seed: a run
of which one process gets SIGKILL in step 13 and that torchrun starts again; and runs that go on
from the checkpoint of step 10 with one process, and with four, each step with the same samples. The
largest difference of a weight, for each seed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from common import about, cpu, file_of, write

SEEDS = range(5)
KILLED, WENT_ON = 13, 10
WORKER = Path(__file__).with_name("restart_worker.py")

# torchrun 2.13 keeps its store, with the addresses of dead processes in it, for those it starts
# again, which then wait for each other forever or are refused. This gives each attempt a new one.
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def restarted(folder, *, processes=2, seeds=SEEDS, precision="fp16", kill_at=None):
    """Train one run a seed with so many processes, each from its newest checkpoint.

    ``folder`` has a folder for each seed, which has one for each checkpoint. With ``kill_at`` the
    last process gets SIGKILL in this step, once for each seed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--local-addr", "127.0.0.1", "--monitor-interval", "0.2"]
    command += ["--max-restarts", str(len(seeds) + 2), "--nproc-per-node", str(processes)]
    command += [str(WORKER), str(folder), "--precision", precision, "--seeds", *map(str, seeds)]
    if kill_at is not None:
        command += ["--kill-at", str(kill_at)]
    subprocess.run(command, check=True, env=os.environ | OWN_STORE, timeout=300)
    return [torch.load(folder / str(seed) / "end.pt") for seed in seeds]


def compared(undisturbed, runs):
    """A row for each seed."""
    return [
        {
            "seed": seed,
            "started_at": run["started_at"],
            "same_bits": run["sha256"] == whole["sha256"],
            "largest": (run["weights"] - whole["weights"]).abs().max().item(),
        }
        for seed, whole, run in zip(SEEDS, undisturbed, runs, strict=True)
    ]


def ways(folder):
    """By words: what became of the runs of all seeds."""
    whole = {p: restarted(folder / p, precision=p) for p in ("fp16", "fp32")}
    killed = restarted(folder / "killed", kill_at=KILLED)
    yield f"FP16, one of two processes killed in step {KILLED}", compared(whole["fp16"], killed)
    for precision, undisturbed in whole.items():
        for processes, words in ((1, "one process"), (4, "four processes")):
            there = folder / f"{precision}, {words}"
            for seed in SEEDS:
                kept = Path(str(seed), str(WENT_ON))
                shutil.copytree(folder / precision / kept, there / kept)
            runs = restarted(there, processes=processes, precision=precision)
            named = f"{precision.upper()}, from step {WENT_ON} on with {words}"
            yield named, compared(undisturbed, runs)


def main(file):
    runs = {}
    with TemporaryDirectory() as folder:
        for words, rows in ways(Path(folder)):
            runs[words] = rows
            print(words, rows, flush=True)
    record = about(__file__, __doc__, cpu("one thread a process"), torch=torch.__version__)
    write(file, record | {"runs": runs}, indent=1)


if __name__ == "__main__":
    main(file_of(__doc__, "emulated/restart.json"))
