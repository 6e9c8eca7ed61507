"""A worker of torchrun that is killed and goes on: DDP over gloo, ``torch.distributed.checkpoint``.

``restarted`` starts it. By hand, with two processes of which one is killed at step 13:

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    torchrun --standalone --nproc-per-node 2 --max-restarts 3 \\
        -m labkit.labs.production.restart FOLDER --kill-at 13
"""

import argparse
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from labkit.base.paths import DATA
from labkit.emulation import emulate_gpu
from labkit.training.data import digits

STEPS, EVERY = 20, 5
"""Steps of a run, and steps between checkpoints."""
BATCH, MICRO_BATCH = 32, 8
"""Samples of a step in all processes together, and of a backward in one."""
LIMIT_SECONDS = 300

# torchrun 2.13 keeps its store, with the addresses of dead processes in it, for those it starts
# again, which then wait for each other forever or are refused. This gives each attempt a new one.
_OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


@dataclass(frozen=True, kw_only=True)
class Restarted:
    """How a run ended.

    Args:
        started_at: the step that the last attempt began with.
        restarts: how often torchrun had started the processes again by then.
        scale: the loss scale at the end.
        sha256: of the weights' bytes.
        weights: float32, all parameters in a row.
    """

    started_at: int
    restarts: int
    scale: float
    sha256: str
    weights: Tensor


def restarted(
    folder: Path,
    *,
    processes: int = 2,
    seeds: Sequence[int] = (0,),
    precision: str = "fp16",
    kill_at: int | None = None,
) -> list[Restarted]:
    """Train one run a seed with so many processes, each from its newest checkpoint.

    Args:
        folder: has a folder for each seed, which has one for each checkpoint.
        precision: "fp16", autocast with a loss scale, or "fp32".
        kill_at: the step in which the last process gets SIGKILL, once for each seed.

    Raises:
        RuntimeError: torchrun gave up; the message holds what it wrote.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--local-addr", "127.0.0.1", "--monitor-interval", "0.2"]
    command += ["--max-restarts", str(len(seeds) + 2)]
    command += ["--nproc-per-node", str(processes), "-m", __name__, str(folder)]
    command += ["--precision", precision, "--seeds", *map(str, seeds)]
    if kill_at is not None:
        command += ["--kill-at", str(kill_at)]
    environment = os.environ | _OWN_STORE
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            said = process.communicate(timeout=LIMIT_SECONDS)[1]
        except BaseException:
            process.terminate()  # torchrun ends its processes then
            raise
    if process.returncode:
        raise RuntimeError(f"torchrun failed:\n{said[-4000:]}")
    return [Restarted(**torch.load(folder / str(seed) / "end.pt")) for seed in seeds]


def work(folder: Path, *, seed: int, precision: str, kill_at: int | None) -> None:
    """What each process does for a seed: resume, train, save, and tell how it ended."""
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 32), nn.SiLU(), nn.Linear(32, 10))
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    half = precision == "fp16"
    scaler = torch.amp.GradScaler("cpu", enabled=half)

    def state() -> dict[str, Any]:
        weights, moments = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": moments, "scaler": scaler.state_dict()}

    start = _newest(folder)
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
            "restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
            "scale": scaler.get_scale(),
            "sha256": hashlib.sha256(weights.numpy().tobytes()).hexdigest(),
            "weights": weights,
        }
        torch.save(end, folder / "end.pt")


def _newest(folder: Path) -> int:
    """The step of the newest checkpoint that is whole, 0 for none: DCP writes .metadata last."""
    return max((int(path.parent.name) for path in folder.glob("*/.metadata")), default=0)


def restart_record() -> dict[str, Any]:
    """data/emulated/restart.json: "runs" holds a row for each seed."""
    return json.loads((DATA / "emulated" / "restart.json").read_text(encoding="utf-8"))


def restart_table() -> pd.DataFrame:
    """A row for each way a run was interrupted: in how many of the seeds its bits are the same."""
    rows = {}
    for name, runs in restart_record()["runs"].items():
        same = sum(run["same_bits"] for run in runs)
        rows[name] = {
            "went on from step": runs[0]["started_at"],
            "same bits": f"{same} of {len(runs)} seeds",
            "largest difference of a weight": f"{max(run['largest'] for run in runs):.1g}",
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("the run")


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
