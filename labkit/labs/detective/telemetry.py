"""Simulated telemetry of a job on 32 ranks with at most one fault: small arrays, drawn by a seed.

Nothing here was recorded. A gradient is a vector of 8 numbers a rank, the reduce is their mean, and
each replica applies it to its own copy of the weights; the loss is a falling curve plus the damage
that the updates did. So what an instrument reads follows from what the fault did to these arrays.
"""

from dataclasses import dataclass

import numpy as np

RANKS, STEPS, SHARDS, LAYERS, HISTORY = 32, 120, 8, 6, 16
LR = 3e-4


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job with a fault at step ``at``; each default is sound.

    Args:
        rank, shard, layer: where the fault is, if it is in one of them.
        resumed: whether the job was resumed just before ``at``.
        fp8: matmuls in FP8 with delayed scaling, sums over ranks and loss scale in FP16.
    """

    seed: int
    fault: str = "none"
    at: int = 70
    rank: int = 0
    shard: int = 0
    layer: int = 0
    resumed: bool = False
    fp8: bool = True


@dataclass(frozen=True)
class Telemetry:
    """What a job leaves behind.

    Args:
        loss, gradient, update: of each step: the loss, the norm of the reduced gradient, the update
            over the weights.
        rank_norms: of each rank's gradient before the reduce at ``job.at``.
        shard_loss: mean loss of each shard at the steps before and at ``job.at``, 2 x shards.
        amax, limit: steps x layers: the largest activation, and what its scale can hold.
        checksums: of each rank's weights after ``job.at``.
        replayed: each rank's gradient norm at ``job.at``, replayed on another host.
        restored: (learning rate, first second moment) that the checkpoint held and that the job
            went on with.
    """

    job: Job
    loss: np.ndarray
    gradient: np.ndarray
    update: np.ndarray
    rank_norms: np.ndarray
    shard_loss: np.ndarray
    amax: np.ndarray
    limit: np.ndarray
    checksums: np.ndarray
    replayed: np.ndarray
    restored: tuple[tuple[float, float], tuple[float, float]]


_HARDWARE = ("device-nan", "silent-corruption", "flipped-weight")
_CLIMBING = ("logit-growth", "fp16-sum", "schedule-lost")


def simulate(job: Job) -> Telemetry:
    """Run a job; the same job gives the same telemetry."""
    source = np.random.default_rng(job.seed)
    steps = np.arange(STEPS)
    amax = 20 * np.exp(source.normal(0, 0.05, (STEPS, LAYERS))) * (1 + np.arange(LAYERS) / 4)
    if job.fault in _CLIMBING:
        amax[:, job.layer] *= np.exp(np.clip(steps - job.at + 40, 0, 45) / 12)
    if job.fault in ("stale-amax", "local-amax", "corrupt-shard", "unmixed-shards"):
        amax[job.at, job.layer] *= 40
    if job.fault == "silent-corruption":
        amax[job.at + 1 :, job.layer] *= 40
    limit = _limits(amax)
    weights = np.tile(source.normal(0, 1, 8), (RANKS, 1))
    direction = source.normal(0, 1, 8) / 8**0.5
    loss, gradient, update = (np.full(STEPS, np.nan) for _ in range(3))
    damage, rank_norms, replayed, shard_loss = 0.0, None, None, None
    checksums = weights.sum(1)
    for step in steps:
        base = 0.4 + 0.6 * np.exp(-step / 30) + damage / 4
        if job.fault in _CLIMBING:
            base *= np.exp(np.clip(step - job.at + 30, 0, None) / 15)
        clean = base * (direction + 0.2 * source.normal(0, 1, (RANKS, 8)))
        gradients = clean.copy()
        lr = LR * min(1, (step + 1) / 20)
        if step == job.at:
            _spoil(job, gradients, weights)
            by_shard = 2 + source.normal(0, 0.03, (2, SHARDS))
            by_shard[1] += _shard_excess(job)
            rank_norms, shard_loss = np.linalg.norm(gradients, axis=1), by_shard
            same = job.fault not in _HARDWARE
            replayed = rank_norms if same else np.linalg.norm(clean, axis=1)
        reduced = _reduced(job, gradients, step)
        size = lr * (12 if job.fault == "adam-lost" and step == job.at else 1)
        if job.fault == "schedule-lost" and step >= job.at - 10:
            size *= 6
        alone = job.fp8 and job.fault == "replica-skips" and step == job.at
        moved = np.ones(RANKS, bool)
        moved[job.rank] = not alone
        weights[moved] -= size * reduced
        if step == job.at:
            checksums = weights.sum(1)
        loss[step] = 2 + 4 * np.exp(-step / 30) + damage + source.normal(0, 0.02)
        gradient[step] = np.linalg.norm(reduced)
        update[step] = size * gradient[step]
        hit = step == job.at and _hurts(job)
        damage = 0.9 * damage + (4.0 if hit else 0.0)
        if not np.isfinite(gradient[step]):
            damage = np.nan
    moment = 1e-4
    held = (LR, moment)
    gone_on = (LR * (6 if job.fault == "schedule-lost" else 1),
               0.0 if job.fault == "adam-lost" else moment)  # fmt: skip
    return Telemetry(
        job, loss, gradient, update, rank_norms, shard_loss, amax, limit, checksums, replayed,
        (held, gone_on),
    )  # fmt: skip


def _limits(amax: np.ndarray) -> np.ndarray:
    """Delayed scaling: the largest amax of the last steps, with a margin of 2."""
    past = [amax[max(step - HISTORY, 0) : max(step, 1)].max(0) for step in range(STEPS)]
    return 2 * np.array(past)


def _spoil(job: Job, gradients: np.ndarray, weights: np.ndarray) -> None:
    if job.fault in ("empty-microbatch", "device-nan"):
        gradients[job.rank] = np.nan
    elif job.fault in ("silent-corruption", "flipped-weight", "corrupt-shard"):
        gradients[job.rank] *= 60
    elif job.fault in ("local-amax", "replica-skips"):
        gradients[job.rank] *= 60 if job.fp8 else 1
    elif job.fault in ("stale-amax", "unmixed-shards", "adam-lost"):
        gradients *= 6 if job.fp8 or job.fault != "stale-amax" else 1
    if job.fault == "flipped-weight":
        weights[job.rank, 0] += 2.0**7


def _shard_excess(job: Job) -> np.ndarray:
    excess = np.zeros(SHARDS)
    if job.fault in ("empty-microbatch", "device-nan"):
        excess[job.shard] = np.nan
    elif job.fault in ("corrupt-shard", "unmixed-shards", "stale-amax", "local-amax"):
        excess[job.shard] = 3
    return excess


def _reduced(job: Job, gradients: np.ndarray, step: int) -> np.ndarray:
    """The mean over ranks; where sums are in FP16, the loss is scaled so that they may overflow."""
    if job.fault == "fp16-sum" and job.fp8 and step >= job.at:
        with np.errstate(over="ignore", invalid="ignore"):
            total = (gradients * 2.0**15).astype(np.float16).sum(0, dtype=np.float16)
        return total.astype(float) / 2.0**15 / RANKS
    return gradients.mean(0)


def _hurts(job: Job) -> bool:
    if job.fault in ("stale-amax", "local-amax", "replica-skips"):
        return job.fp8
    return job.fault not in ("none", "fp16-sum")
