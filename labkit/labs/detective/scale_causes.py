"""The thirteen causes of the cases at scale: how each is simulated, and what it can show."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from labkit.labs.detective.telemetry import LAYERS, RANKS, SHARDS, Job
from labkit.labs.texts import Text

RESUMED, QUIET = "a resume just before", "no event"
TOGETHER, CLIMB = "loss and gradient at once", "a gradient that climbs before the loss"
EQUAL, DIFFER = "equal weights", "one replica with other weights"
APART, ALIKE = "one rank apart", "ranks alike"
ONE_SHARD, EVEN = "one shard apart", "shards alike"
SATURATES, GROWS, WITHIN = "values above the scale's limit", "a growing amax", "values within"
KEPT, LOST = "all that the checkpoint held", "not what the checkpoint held"
SAME, OTHER = "the same gradients", "another gradient on one rank"
HOLDS, FAILS = "it holds", "it fails too"

IN_CHINESE: Mapping[str, str] = MappingProxyType(
    {
        RESUMED: "出问题前刚恢复过训练",
        QUIET: "没有事件",
        TOGETHER: "损失与梯度同时异常",
        CLIMB: "梯度先于损失上升",
        EQUAL: "权重一致",
        DIFFER: "有一个副本的权重不同",
        APART: "有一个 rank 不同",
        ALIKE: "各 rank 一致",
        ONE_SHARD: "有一个分片不同",
        EVEN: "各分片一致",
        SATURATES: "有值超出缩放因子的上限",
        GROWS: "amax 不断增大",
        WITHIN: "所有值都在范围内",
        KEPT: "与检查点保存的完全一致",
        LOST: "与检查点保存的不一致",
        SAME: "梯度相同",
        OTHER: "有一个 rank 的梯度不同",
        HOLDS: "没有问题",
        FAILS: "同样失败",
    }
)
"""Each finding in Chinese."""

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
    name: Text
    advice: Text
    sign: str
    allows: Mapping[str, tuple[str, ...]]
    precision: bool = False

    def settings(self, seed: int) -> Job:
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


def _cause(id: str, name: Text, advice: Text, sign: str, **shows: tuple[str, ...]) -> ScaleCause:
    precision = shows.get("twin") == (HOLDS,)
    return ScaleCause(
        id=id, name=name, advice=advice, sign=sign, allows={**_SOUND, **shows}, precision=precision
    )


_ALL = (
    _cause(
        "empty-microbatch",
        Text(
            en="One rank's micro-batch has no label: 0/0, and the all-reduce spreads it",
            zh="某个 rank 的微批次没有标签：0/0，再由 all-reduce 扩散",
        ),
        Text(
            en="Sum loss and label count over all ranks, then divide by max(count, 1).",
            zh="在所有 rank 上分别对损失和标签数求和，再除以 max(count, 1)。",
        ),
        "ranks", ranks=(APART,), shards=(ONE_SHARD,),
    ),
    _cause(
        "device-nan",
        Text(
            en="A faulty GPU returns NaN on one rank, and the all-reduce spreads it",
            zh="一块有故障的 GPU 在某个 rank 上返回 NaN，再由 all-reduce 扩散",
        ),
        Text(
            en="Drain the host, run its diagnostics, and resume from the last sound checkpoint.",
            zh="把该主机移出集群并运行诊断，从最近一个完好的检查点恢复。",
        ),
        "replay", ranks=(APART,), shards=(ONE_SHARD,), replay=(OTHER,),
    ),
    _cause(
        "silent-corruption",
        Text(
            en="A host computes wrong, finite gradients: silent data corruption",
            zh="某台主机算出错误但有限的梯度：静默数据损坏",
        ),
        Text(
            en="Drain the host; compare replays across hosts on a schedule.",
            zh="把该主机移出集群；定期在不同主机之间比对重放结果。",
        ),
        "replay", ranks=(APART,), amax=(WITHIN, SATURATES), replay=(OTHER,),
    ),
    _cause(
        "flipped-weight",
        Text(
            en="A bit flips in one replica's weights",
            zh="某个副本的权重发生了位翻转",
        ),
        Text(
            en="Compare checksums of the weights across replicas, and restore the replica that "
            "differs.",
            zh="比对各副本权重的校验和，并恢复不一致的副本。",
        ),
        "checksums", checksums=(DIFFER,), ranks=(APART,), replay=(OTHER,),
    ),
    _cause(
        "replica-skips",
        Text(
            en="One rank skips a step by itself, and its replica drifts",
            zh="某个 rank 单独跳过一步，其副本逐渐偏离",
        ),
        Text(
            en="Reduce found_inf over all ranks before the scaler decides.",
            zh="先对所有 rank 的 found_inf 做归约，再由 scaler 决定。",
        ),
        "checksums", checksums=(DIFFER,), ranks=(APART,), twin=(HOLDS,),
    ),
    _cause(
        "corrupt-shard",
        Text(
            en="A data shard is corrupt",
            zh="一个数据分片已损坏",
        ),
        Text(
            en="Drop the shard, resume before it, and check shards against a checksum.",
            zh="去掉该分片，从它之前恢复训练，并用校验和检查分片。",
        ),
        "shards", ranks=(APART,), shards=(ONE_SHARD,), amax=(SATURATES,),
    ),
    _cause(
        "unmixed-shards",
        Text(
            en="The shards are read one after the other, without mixing",
            zh="数据分片逐个顺序读取，没有混合",
        ),
        Text(
            en="Mix all shards into every batch, and restore the loader's position after a resume.",
            zh="让每个批次混合所有分片，恢复训练时也恢复数据加载器的位置。",
        ),
        "shards", shards=(ONE_SHARD,), amax=(SATURATES,),
    ),
    _cause(
        "schedule-lost",
        Text(
            en="After a resume the learning rate is not the schedule's",
            zh="恢复训练后，学习率不是调度器规定的值",
        ),
        Text(
            en="Save and restore the schedule's state with the optimizer's.",
            zh="把调度器状态和优化器状态一起保存、一起恢复。",
        ),
        "state", log=(RESUMED,), curves=(CLIMB,), amax=(GROWS,), state=(LOST,),
    ),
    _cause(
        "adam-lost",
        Text(
            en="After a resume Adam's second moment starts from 0",
            zh="恢复训练后，Adam 的二阶矩从 0 开始",
        ),
        Text(
            en="Restore the optimizer's state, or warm up again without it.",
            zh="恢复优化器状态；没有它就重新预热。",
        ),
        "state", log=(RESUMED,), state=(LOST,),
    ),
    _cause(
        "stale-amax",
        Text(
            en="FP8 with delayed scaling: the amax history is too old for a spike of activations",
            zh="FP8 延迟缩放：激活值突然变大时，amax 历史已经过时",
        ),
        Text(
            en="Scale by the current amax, or keep a larger margin for that layer.",
            zh="用当前的 amax 缩放，或给该层留更大的余量。",
        ),
        "amax", shards=(ONE_SHARD,), amax=(SATURATES,), twin=(HOLDS,),
    ),
    _cause(
        "local-amax",
        Text(
            en="FP8 amax is not reduced over ranks: one rank scales by its own history",
            zh="FP8 的 amax 没有跨 rank 归约：某个 rank 按自己的历史缩放",
        ),
        Text(
            en="All-reduce amax with max over the ranks that share a tensor.",
            zh="在共享同一张量的 rank 之间，用取最大值的 all-reduce 同步 amax。",
        ),
        "amax", ranks=(APART,), shards=(ONE_SHARD,), amax=(SATURATES,),
        replay=(SAME, OTHER), twin=(HOLDS,),
    ),
    _cause(
        "logit-growth",
        Text(
            en="Attention logits grow until the softmax is one-hot",
            zh="注意力的 logits 不断增大，直到 softmax 变成 one-hot",
        ),
        Text(
            en="Normalize queries and keys, or clip the logits.",
            zh="对 query 和 key 做归一化，或裁剪 logits。",
        ),
        "amax", curves=(CLIMB,), amax=(GROWS,),
    ),
    _cause(
        "fp16-sum",
        Text(
            en="The sum of scaled gradients over the ranks overflows in FP16",
            zh="缩放后的梯度跨 rank 求和时在 FP16 中溢出",
        ),
        Text(
            en="Reduce in FP32 or BF16, or divide by the number of ranks before the sum.",
            zh="用 FP32 或 BF16 归约，或在求和之前先除以 rank 数。",
        ),
        "twin", curves=(CLIMB,), amax=(GROWS,), twin=(HOLDS,),
    ),
)  # fmt: skip

SCALE_CAUSES: Mapping[str, ScaleCause] = MappingProxyType({cause.id: cause for cause in _ALL})
"""Every cause at scale by its id."""
