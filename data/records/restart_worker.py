"""A process of record_restart.py: DDP over gloo, ``torch.distributed.checkpoint``, and a kill.

By hand, with two processes of which one is killed at step 13:

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    torchrun --standalone --nproc-per-node 2 --max-restarts 3 \\
        data/records/restart_worker.py FOLDER --kill-at 13
"""

import argparse
import contextlib
import hashlib
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from labkit.emulation import emulate_gpu
from labkit.training.data import digits

STEPS, EVERY = 20, 5
"""Steps of a run, and steps between checkpoints."""
BATCH, MICRO_BATCH = 32, 8
"""Samples of a step in all processes together, and of a backward in one."""


def work(folder, *, seed, precision, kill_at):
    """What each process does for a seed: resume, train, save, and tell how it ended."""
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 32), nn.SiLU(), nn.Linear(32, 10))
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    half = precision == "fp16"
    scaler = torch.amp.GradScaler("cpu", enabled=half)

    def state():
        weights, moments = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": moments, "scaler": scaler.state_dict()}

    start = newest(folder)
    if start:
        saved = state()
        dcp.load(saved, checkpoint_id=folder / str(start))
        set_state_dict(
            model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"]
        )
        scaler.load_state_dict(saved["scaler"])

    split = digits(seed)
    for step in range(start, STEPS):
        # The samples of a step follow from its number, whoever asks and however many they are.
        drawn = torch.randperm(
            len(split.train_labels), generator=torch.Generator().manual_seed(step)
        )
        mine = drawn[:BATCH].view(-1, world, MICRO_BATCH)[:, rank]
        optimizer.zero_grad()
        for count, rows in enumerate(mine, 1):
            waits = replica.no_sync() if count < len(mine) else contextlib.nullcontext()
            with waits, emulate_gpu():
                with torch.autocast("cpu", torch.float16, enabled=half):
                    logits = replica(split.train_images[rows].flatten(1))
                loss = F.cross_entropy(logits.float(), split.train_labels[rows]) / len(mine)
                scaler.scale(loss).backward()
        if step == kill_at and rank == world - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        scaler.step(optimizer)
        scaler.update()
        if (step + 1) % EVERY == 0:
            dcp.save(state(), checkpoint_id=folder / str(step + 1))

    if rank == 0:
        weights = torch.cat([p.detach().flatten() for p in model.parameters()])
        end = {
            "started_at": start,
            "sha256": hashlib.sha256(weights.numpy().tobytes()).hexdigest(),
            "weights": weights,
        }
        torch.save(end, folder / "end.pt")


def newest(folder):
    """The step of the newest checkpoint that is whole, 0 for none: DCP writes .metadata last."""
    return max((int(path.parent.name) for path in folder.glob("*/.metadata")), default=0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--precision", choices=("fp16", "fp32"), default="fp16")
    parser.add_argument("--kill-at", type=int)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    for place, seed in enumerate(asked.seeds):
        if not (asked.folder / str(seed) / "end.pt").exists():
            kill_at = asked.kill_at if place == attempt else None
            work(asked.folder / str(seed), seed=seed, precision=asked.precision, kill_at=kill_at)
    sys.stdout.flush()
    # To free the group is to wait, with the GIL, for its own thread, which may wait for the GIL
    # (torch 2.13). So nothing is freed.
    os._exit(0)
