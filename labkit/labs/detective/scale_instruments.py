"""Nine instruments for a job at scale: each computes its finding from the simulated telemetry."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from labkit.labs.detective import scale_causes as found
from labkit.labs.detective.instruments import Instrument, Reading, by_id
from labkit.labs.detective.telemetry import Job, Telemetry, simulate
from labkit.labs.texts import Text


def bad_step(t: Telemetry) -> int | None:
    """The first step after which the loss is not finite or has jumped by more than 1."""
    for step in range(40, len(t.loss)):
        if not t.loss[step] - t.loss[step - 10 : step].mean() < 1:
            return step
    return None


def _line(series: list[np.ndarray], names: list[Text]) -> dict:
    """Curves, each over its largest finite value."""
    tops = [np.nanmax(np.where(np.isfinite(s), s, np.nan)) for s in series]
    return {
        "kind": "line",
        "series": [
            [round(float(v / top), 4) if np.isfinite(v) else None for v in s]
            for s, top in zip(series, tops, strict=True)
        ],
        "names": [name.model_dump() for name in names],
        "marks": [],
        "length": len(series[0]),
    }


def _rows(rows: list[tuple[Text, bool]]) -> dict:
    return {
        "kind": "chain",
        "rows": [text.model_dump() for text, _ in rows],
        "states": ["bad" if odd else "fine" for _, odd in rows],
    }


def _by_rank(odd: Iterable[int], said: Callable[[int], object]) -> dict:
    """The first three ranks and the odd ones, each with what is said of it."""
    row = Text(en="rank {rank}: {said}", zh="rank {rank}：{said}")
    ranks = sorted({0, 1, 2, *odd})
    return _rows([(row.filled(rank=r, said=said(r)), r in odd) for r in ranks])


def _outliers(values: np.ndarray, factor: float) -> list[int]:
    """Where a value is not finite or more than ``factor`` times the median."""
    middle = np.nanmedian(values)
    return [i for i, v in enumerate(values) if not v <= factor * middle]


def _log(job: Job, t: Telemetry) -> Reading:
    resumed = Text(en="Step {at}: resumed from a checkpoint", zh="第 {at} 步：从检查点恢复训练")
    quiet = Text(en="No event before the step", zh="该步之前没有事件")
    event = resumed.filled(at=job.at - 11) if job.resumed else quiet
    text = Text(en="Log: {event}.", zh="日志：{event}。").filled(event=event)
    finding = found.RESUMED if job.resumed else found.QUIET
    return Reading("log", finding, text, _rows([(event, False)]))


def _curves(job: Job, t: Telemetry) -> Reading:
    at = bad_step(t) or len(t.loss) - 1
    climbs = t.gradient[at - 4] > 1.5 * t.gradient[at - 40 : at - 30].mean()
    rising = Text(en="climbs for many steps before", zh="在此前许多步一直上升")
    together = Text(en="moves only with the loss", zh="只随损失一起变化")
    picture = _line(
        [t.loss, t.gradient, t.update, t.amax.max(1)],
        [
            Text(en="loss", zh="损失"),
            Text(en="gradient norm", zh="梯度范数"),
            Text(en="update over weights", zh="更新与权重之比"),
            Text(en="largest activation", zh="最大激活值"),
        ],
    )
    text = Text(
        en="Step {at}: the loss breaks; the gradient norm {before}. Each curve over its own top.",
        zh="第 {at} 步：损失异常；梯度范数{before}。每条曲线都除以自身的最大值。",
    ).filled(at=at, before=rising if climbs else together)
    return Reading("curves", found.CLIMB if climbs else found.TOGETHER, text, picture)


def _checksums(job: Job, t: Telemetry) -> Reading:
    odd = np.flatnonzero(t.checksums != np.median(t.checksums))
    odd = odd if len(odd) < len(t.checksums) else []
    if len(odd):
        text = Text(
            en="After step {at}: rank {rank} holds other weights than the rest.",
            zh="第 {at} 步之后：rank {rank} 的权重与其他 rank 不同。",
        ).filled(at=job.at, rank=odd[0])
    else:
        text = Text(
            en="After step {at}: the weights of all {count} replicas are equal.",
            zh="第 {at} 步之后：全部 {count} 个副本的权重一致。",
        ).filled(at=job.at, count=len(t.checksums))
    differs, equal = Text(en="differs", zh="不同"), Text(en="equal", zh="一致")
    picture = _by_rank(odd, lambda r: differs if r in odd else equal)
    return Reading("checksums", found.DIFFER if len(odd) else found.EQUAL, text, picture)


def _ranks(job: Job, t: Telemetry) -> Reading:
    odd, middle = _outliers(t.rank_norms, 8), np.nanmedian(t.rank_norms)
    picture = _by_rank(odd, lambda r: f"{t.rank_norms[r]:.2g}")
    if odd:
        seen = "NaN" if np.isnan(t.rank_norms[odd[0]]) else f"{t.rank_norms[odd[0]]:.2g}"
        text = Text(
            en="Step {at}, before the reduce: rank {rank} has {seen}, median {middle:.2g}.",
            zh="第 {at} 步，归约之前：rank {rank} 为 {seen}，中位数为 {middle:.2g}。",
        ).filled(at=job.at, rank=odd[0], seen=seen, middle=middle)
    else:
        text = Text(
            en="Step {at}, before the reduce: all ranks lie near {middle:.2g}.",
            zh="第 {at} 步，归约之前：所有 rank 都在 {middle:.2g} 附近。",
        ).filled(at=job.at, middle=middle)
    return Reading("ranks", found.APART if odd else found.ALIKE, text, picture)


def _shards(job: Job, t: Telemetry) -> Reading:
    odd = _outliers(t.shard_loss[1], 1.5)
    row = Text(en="shard {shard}: {loss:.2f}", zh="分片 {shard}：{loss:.2f}")
    picture = _rows(
        [(row.filled(shard=s, loss=v), s in odd) for s, v in enumerate(t.shard_loss[1])]
    )
    if odd:
        which = Text(en="shard {s} stands apart", zh="分片 {s} 明显不同").filled(s=odd[0])
    else:
        which = Text(en="all shards are alike", zh="各分片一致")
    text = Text(
        en="Loss by data shard at step {at}: {which}.", zh="第 {at} 步各数据分片的损失：{which}。"
    ).filled(at=job.at, which=which)
    return Reading("shards", found.ONE_SHARD if odd else found.EVEN, text, picture)


def _amax(job: Job, t: Telemetry) -> Reading:
    at = slice(50, min(job.at + 2, len(t.loss)))
    over = (t.amax[at] / t.limit[at]).max(0)
    grown = t.amax[job.at - 5 : job.at].mean(0) / t.amax[10:20].mean(0)
    saturates, grows = over.max() > 1, grown.max() > 4
    finding = found.SATURATES if saturates else found.GROWS if grows else found.WITHIN
    layer = int(over.argmax() if saturates else grown.argmax())
    said = {
        found.SATURATES: Text(
            en="Layer {layer}: amax is {over:.0f} times what its scale can hold.",
            zh="第 {layer} 层：amax 是其缩放因子所能容纳的 {over:.0f} 倍。",
        ),
        found.GROWS: Text(
            en="Layer {layer}: amax has grown {grown:.0f} times, within its scale.",
            zh="第 {layer} 层：amax 增大到 {grown:.0f} 倍，仍在其缩放因子的范围内。",
        ),
        found.WITHIN: Text(
            en="In every layer amax stays level and within its scale.",
            zh="每一层的 amax 都保持平稳，且在其缩放因子的范围内。",
        ),
    }[finding].filled(layer=layer, over=over.max(), grown=grown.max())
    names = [
        Text(en="amax", zh="amax"), Text(en="limit of its scale", zh="缩放因子的上限"),
    ]  # fmt: skip
    picture = _line([t.amax[:, layer], t.limit[:, layer]], names)
    text = Text(en="Up to step {at}. {said}", zh="到第 {at} 步为止。{said}")
    return Reading("amax", finding, text.filled(at=job.at, said=said), picture)


def _state(job: Job, t: Telemetry) -> Reading:
    held, now = t.restored
    lost = held != now
    other = Text(en="something is not what the checkpoint held", zh="有的状态与检查点保存的不一致")
    words = other if lost else Text(en="all is as it was saved", zh="全部与保存时一致")
    text = Text(
        en="Optimizer and schedule beside the checkpoint: {words}.",
        zh="优化器和调度器与检查点比较：{words}。",
    ).filled(words=words)
    detail = Text(
        en="Learning rate {rate:.1e} became {rate_now:.1e}; second moment {moment:.1e} became "
        "{moment_now:.1e}.",
        zh="学习率由 {rate:.1e} 变成 {rate_now:.1e}；二阶矩由 {moment:.1e} 变成 {moment_now:.1e}。",
    ).filled(rate=held[0], rate_now=now[0], moment=held[1], moment_now=now[1])
    return Reading(
        "state", found.LOST if lost else found.KEPT, text, _rows([(words, lost)]), detail
    )


def _replay(job: Job, t: Telemetry) -> Reading:
    same = np.isclose(t.replayed, t.rank_norms, rtol=1e-6, equal_nan=True)
    odd = [int(r) for r in np.flatnonzero(~same)]
    if odd:
        what = Text(
            en="rank {rank} gives {norm:.2g}, not what it gave",
            zh="rank {rank} 得到 {norm:.2g}，与原来不同",
        ).filled(rank=odd[0], norm=t.replayed[odd[0]])
    else:
        what = Text(en="the same", zh="结果相同")
    text = Text(
        en="Step {at}, replayed on other hosts: {what}.",
        zh="第 {at} 步，在其他主机上重放：{what}。",
    ).filled(at=job.at, what=what)
    unlike, like = Text(en="other", zh="不同"), Text(en="same", zh="相同")
    picture = _by_rank(odd, lambda r: unlike if r in odd else like)
    return Reading("replay", found.OTHER if odd else found.SAME, text, picture)


def _twin(job: Job, t: Telemetry) -> Reading:
    twin = simulate(replace(job, fp8=False))
    fails = bad_step(twin) is not None
    outcome = (
        Text(en="it fails too", zh="同样失败") if fails else Text(en="it holds", zh="没有问题")
    )
    text = Text(
        en="The same job in BF16 with sums in FP32: {outcome}.",
        zh="同一任务改用 BF16、求和用 FP32：{outcome}。",
    ).filled(outcome=outcome)
    names = [
        Text(en="FP8", zh="FP8"), Text(en="BF16, sums in FP32", zh="BF16，求和用 FP32"),
    ]  # fmt: skip
    picture = _line([t.loss, twin.loss], names)
    return Reading("twin", found.FAILS if fails else found.HOLDS, text, picture)


SCALE_INSTRUMENTS = by_id(
    Instrument(
        "log",
        Text(en="Log", zh="日志"),
        Text(en="resumes and events", zh="恢复训练和事件"),
        1,
        _log,
    ),
    Instrument(
        "curves",
        Text(en="Four curves", zh="四条曲线"),
        Text(en="loss, gradient, update, activation", zh="损失、梯度、更新、激活值"),
        1,
        _curves,
    ),
    Instrument(
        "checksums",
        Text(en="Checksums", zh="校验和"),
        Text(en="are the replicas equal?", zh="各副本是否一致？"),
        3,
        _checksums,
    ),
    Instrument(
        "shards",
        Text(en="Loss by shard", zh="各分片的损失"),
        Text(en="does one data shard stand apart?", zh="有没有某个数据分片明显不同？"),
        4,
        _shards,
    ),
    Instrument(
        "amax",
        Text(en="Amax history", zh="Amax 历史"),
        Text(en="of each layer, beside its scale", zh="各层的 amax 与其缩放因子对照"),
        4,
        _amax,
    ),
    Instrument(
        "ranks",
        Text(en="Ranks", zh="各 rank"),
        Text(en="gradient norms before the reduce", zh="归约前的梯度范数"),
        6,
        _ranks,
    ),
    Instrument(
        "state",
        Text(en="Restored state", zh="恢复后的状态"),
        Text(en="is it what the checkpoint held?", zh="与检查点保存的一致吗？"),
        8,
        _state,
    ),
    Instrument(
        "replay",
        Text(en="Replay", zh="重放"),
        Text(en="the step again on other hosts", zh="在其他主机上重跑这一步"),
        16,
        _replay,
    ),
    Instrument(
        "twin",
        Text(en="BF16 twin", zh="BF16 对照"),
        Text(en="without FP8, sums in FP32", zh="不用 FP8，求和用 FP32"),
        30,
        _twin,
    ),
)
"""The nine instruments at scale by id."""
