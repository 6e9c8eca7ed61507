"""The thirteen causes of the cases at scale: how each is simulated, and what it can show."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from labkit.labs.detective.telemetry import LAYERS, RANKS, SHARDS, Job

RESUMED, QUIET = "a resume just before", "no event"
TOGETHER, CLIMB = "loss and gradient at once", "a gradient that climbs before the loss"
EQUAL, DIFFER = "equal weights", "one replica with other weights"
APART, ALIKE = "one rank apart", "ranks alike"
ONE_SHARD, EVEN = "one shard apart", "shards alike"
SATURATES, GROWS, WITHIN = "values above the scale's limit", "a growing amax", "values within"
KEPT, LOST = "all that the checkpoint held", "not what the checkpoint held"
SAME, OTHER = "the same gradients", "another gradient on one rank"
HOLDS, FAILS = "it holds", "it fails too"

_SOUND: Mapping[str, tuple[str, ...]] = {
    "curves": (TOGETHER,),
    "checksums": (EQUAL,),
    "ranks": (ALIKE,),
    "shards": (EVEN,),
    "amax": (WITHIN,),
    "state": (KEPT,),
    "replay": (SAME,),
    "twin": (FAILS,),
}


@dataclass(frozen=True, kw_only=True)
class ScaleCause:
    """One thing that can be wrong with a job; the fields are those of ``causes.Cause``."""

    id: str
    name: str
    advice: str
    sign: str
    allows: Mapping[str, tuple[str, ...]]
    precision: bool = False

    def recipe(self, seed: int) -> Job:
        """The job that a seed draws; the place of the fault and the step differ."""
        source = random.Random(f"{self.id} {seed}")
        return Job(
            seed=seed,
            fault=self.id,
            at=source.randrange(60, 90),
            rank=source.randrange(1, RANKS),
            shard=source.randrange(SHARDS),
            layer=source.randrange(LAYERS),
            resumed=self.allows.get("log") == (RESUMED,) or source.random() < 0.3,
        )

    def repaired(self, job: Job) -> Job:
        """The same job without its fault."""
        return replace(job, fault="none")

    def can_show(self, instrument: str, finding: str) -> bool:
        """Whether a job of this cause, and of no other, may give that finding."""
        return instrument not in self.allows or finding in self.allows[instrument]


def _cause(id: str, name: str, advice: str, sign: str, **shows: tuple[str, ...]) -> ScaleCause:
    precision = shows.get("twin") == (HOLDS,)
    return ScaleCause(
        id=id, name=name, advice=advice, sign=sign, allows={**_SOUND, **shows}, precision=precision
    )


_ALL = (
    _cause(
        "empty-microbatch",
        "One rank's micro-batch has no label: 0/0, and the all-reduce spreads it",
        "Sum loss and label count over all ranks, then divide by max(count, 1).",
        "ranks", ranks=(APART,), shards=(ONE_SHARD,),
    ),
    _cause(
        "device-nan",
        "A faulty GPU returns NaN on one rank, and the all-reduce spreads it",
        "Drain the host, run its diagnostics, and resume from the last sound checkpoint.",
        "replay", ranks=(APART,), shards=(ONE_SHARD,), replay=(OTHER,),
    ),
    _cause(
        "silent-corruption",
        "A host computes wrong, finite gradients: silent data corruption",
        "Drain the host; compare replays across hosts on a schedule.",
        "replay", ranks=(APART,), amax=(WITHIN, SATURATES), replay=(OTHER,),
    ),
    _cause(
        "flipped-weight",
        "A bit flips in one replica's weights",
        "Compare checksums of the weights across replicas, and restore the replica that differs.",
        "checksums", checksums=(DIFFER,), ranks=(APART,), replay=(OTHER,),
    ),
    _cause(
        "replica-skips",
        "One rank skips a step by itself, and its replica drifts",
        "Reduce found_inf over all ranks before the scaler decides.",
        "checksums", checksums=(DIFFER,), ranks=(APART,), twin=(HOLDS,),
    ),
    _cause(
        "corrupt-shard",
        "A data shard is corrupt",
        "Drop the shard, resume before it, and check shards against a checksum.",
        "shards", ranks=(APART,), shards=(ONE_SHARD,), amax=(SATURATES,),
    ),
    _cause(
        "unmixed-shards",
        "The shards are read one after the other, without mixing",
        "Mix all shards into every batch, and restore the loader's position after a resume.",
        "shards", shards=(ONE_SHARD,), amax=(SATURATES,),
    ),
    _cause(
        "schedule-lost",
        "After a resume the learning rate is not the schedule's",
        "Save and restore the schedule's state with the optimizer's.",
        "state", log=(RESUMED,), curves=(CLIMB,), amax=(GROWS,), state=(LOST,),
    ),
    _cause(
        "adam-lost",
        "After a resume Adam's second moment starts from 0",
        "Restore the optimizer's state, or warm up again without it.",
        "state", log=(RESUMED,), state=(LOST,),
    ),
    _cause(
        "stale-amax",
        "FP8 with delayed scaling: the amax history is too old for a spike of activations",
        "Scale by the current amax, or keep a larger margin for that layer.",
        "amax", shards=(ONE_SHARD,), amax=(SATURATES,), twin=(HOLDS,),
    ),
    _cause(
        "local-amax",
        "FP8 amax is not reduced over ranks: one rank scales by its own history",
        "All-reduce amax with max over the ranks that share a tensor.",
        "amax", ranks=(APART,), shards=(ONE_SHARD,), amax=(SATURATES,),
        replay=(SAME, OTHER), twin=(HOLDS,),
    ),
    _cause(
        "logit-growth",
        "Attention logits grow until the softmax is one-hot",
        "Normalize queries and keys, or clip the logits.",
        "amax", curves=(CLIMB,), amax=(GROWS,),
    ),
    _cause(
        "fp16-sum",
        "The sum of scaled gradients over the ranks overflows in FP16",
        "Reduce in FP32 or BF16, or divide by the number of ranks before the sum.",
        "twin", curves=(CLIMB,), amax=(GROWS,), twin=(HOLDS,),
    ),
)  # fmt: skip

SCALE_CAUSES: Mapping[str, ScaleCause] = MappingProxyType({cause.id: cause for cause in _ALL})
"""Every cause at scale by its id."""
