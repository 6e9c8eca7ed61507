"""Nine instruments for a job at scale: each computes its finding from the simulated telemetry."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from labkit.labs.detective import scale_causes as found
from labkit.labs.detective.instruments import Instrument, Reading
from labkit.labs.detective.telemetry import Job, Telemetry, simulate


def bad_step(t: Telemetry) -> int | None:
    """The first step after which the loss is not finite or has jumped by more than 1."""
    for step in range(40, len(t.loss)):
        if not t.loss[step] - t.loss[step - 10 : step].mean() < 1:
            return step
    return None


def _line(series: list[np.ndarray], names: list[str]) -> dict:
    """Curves, each over its largest finite value."""
    tops = [np.nanmax(np.where(np.isfinite(s), s, np.nan)) for s in series]
    return {
        "kind": "line",
        "series": [
            [round(float(v / top), 4) if np.isfinite(v) else None for v in s]
            for s, top in zip(series, tops, strict=True)
        ],
        "names": names,
        "marks": [],
        "length": len(series[0]),
    }


def _rows(rows: list[tuple[str, bool]]) -> dict:
    return {
        "kind": "chain",
        "rows": [text for text, _ in rows],
        "states": ["bad" if odd else "fine" for _, odd in rows],
    }


def _outliers(values: np.ndarray, factor: float) -> list[int]:
    """Where a value is not finite or more than ``factor`` times the median."""
    middle = np.nanmedian(values)
    return [i for i, v in enumerate(values) if not v <= factor * middle]


def _log(job: Job, t: Telemetry) -> Reading:
    at = job.at - 11
    text = f"Step {at}: resumed from a checkpoint." if job.resumed else "No event before the step."
    finding = found.RESUMED if job.resumed else found.QUIET
    return Reading("log", finding, f"Log: {text}", _rows([(text.rstrip("."), False)]))


def _curves(job: Job, t: Telemetry) -> Reading:
    at = bad_step(t) or len(t.loss) - 1
    climbs = t.gradient[at - 4] > 1.5 * t.gradient[at - 40 : at - 30].mean()
    before = "climbs for many steps before" if climbs else "moves only with the loss"
    picture = _line(
        [t.loss, t.gradient, t.update, t.amax.max(1)],
        ["loss", "gradient norm", "update over weights", "largest activation"],
    )
    text = f"Step {at}: the loss breaks; the gradient norm {before}. Each curve over its own top."
    return Reading("curves", found.CLIMB if climbs else found.TOGETHER, text, picture)


def _checksums(job: Job, t: Telemetry) -> Reading:
    odd = np.flatnonzero(t.checksums != np.median(t.checksums))
    odd = odd if len(odd) < len(t.checksums) else []
    text = (
        f"After step {job.at}: rank {odd[0]} holds other weights than the rest."
        if len(odd)
        else f"After step {job.at}: the weights of all {len(t.checksums)} replicas are equal."
    )
    picture = _rows([(f"rank {r}: {'differs' if r in odd else 'equal'}", r in odd)
                     for r in sorted({0, 1, 2, *odd})])  # fmt: skip
    return Reading("checksums", found.DIFFER if len(odd) else found.EQUAL, text, picture)


def _ranks(job: Job, t: Telemetry) -> Reading:
    odd, middle = _outliers(t.rank_norms, 8), np.nanmedian(t.rank_norms)
    picture = _rows([(f"rank {r}: {t.rank_norms[r]:.2g}", r in odd)
                     for r in sorted({0, 1, 2, *odd})])  # fmt: skip
    if odd:
        seen = "NaN" if np.isnan(t.rank_norms[odd[0]]) else f"{t.rank_norms[odd[0]]:.2g}"
        text = f"Step {job.at}, before the reduce: rank {odd[0]} has {seen}, median {middle:.2g}."
    else:
        text = f"Step {job.at}, before the reduce: all ranks lie near {middle:.2g}."
    return Reading("ranks", found.APART if odd else found.ALIKE, text, picture)


def _shards(job: Job, t: Telemetry) -> Reading:
    odd = _outliers(t.shard_loss[1], 1.5)
    picture = _rows([(f"shard {s}: {v:.2f}", s in odd) for s, v in enumerate(t.shard_loss[1])])
    which = f"shard {odd[0]} stands apart" if odd else "all shards are alike"
    text = f"Loss by data shard at step {job.at}: {which}."
    return Reading("shards", found.ONE_SHARD if odd else found.EVEN, text, picture)


def _amax(job: Job, t: Telemetry) -> Reading:
    at = slice(50, min(job.at + 2, len(t.loss)))
    over = (t.amax[at] / t.limit[at]).max(0)
    grown = t.amax[job.at - 5 : job.at].mean(0) / t.amax[10:20].mean(0)
    saturates, grows = over.max() > 1, grown.max() > 4
    finding = found.SATURATES if saturates else found.GROWS if grows else found.WITHIN
    layer = int(over.argmax() if saturates else grown.argmax())
    text = {
        found.SATURATES: f"Layer {layer}: amax is {over.max():.0f} times what its scale can hold.",
        found.GROWS: f"Layer {layer}: amax has grown {grown.max():.0f} times, within its scale.",
        found.WITHIN: "In every layer amax stays level and within its scale.",
    }[finding]
    picture = _line([t.amax[:, layer], t.limit[:, layer]], ["amax", "limit of its scale"])
    return Reading("amax", finding, f"Up to step {job.at}. {text}", picture)


def _state(job: Job, t: Telemetry) -> Reading:
    held, now = t.restored
    lost = held != now
    words = "something is not what the checkpoint held" if lost else "all is as it was saved"
    text = f"Optimizer and schedule beside the checkpoint: {words}."
    detail = (
        f"Learning rate {held[0]:.1e} became {now[0]:.1e}; second moment {held[1]:.1e} became "
        f"{now[1]:.1e}."
    )
    return Reading(
        "state", found.LOST if lost else found.KEPT, text, _rows([(words, lost)]), detail
    )


def _replay(job: Job, t: Telemetry) -> Reading:
    same = np.isclose(t.replayed, t.rank_norms, rtol=1e-6, equal_nan=True)
    odd = [int(r) for r in np.flatnonzero(~same)]
    what = f"rank {odd[0]} gives {t.replayed[odd[0]]:.2g}, not what it gave" if odd else "the same"
    text = f"Step {job.at}, replayed on other hosts: {what}."
    picture = _rows([(f"rank {r}: {'other' if r in odd else 'same'}", r in odd)
                     for r in sorted({0, 1, 2, *odd})])  # fmt: skip
    return Reading("replay", found.OTHER if odd else found.SAME, text, picture)


def _twin(job: Job, t: Telemetry) -> Reading:
    twin = simulate(replace(job, fp8=False))
    fails = bad_step(twin) is not None
    text = f"The same job in BF16 with sums in FP32: {'it fails too' if fails else 'it holds'}."
    picture = _line([t.loss, twin.loss], ["FP8", "BF16, sums in FP32"])
    return Reading("twin", found.FAILS if fails else found.HOLDS, text, picture)


SCALE_INSTRUMENTS: Mapping[str, Instrument] = MappingProxyType(
    {
        each.id: each
        for each in (
            Instrument("log", "Log", "resumes and events", 1, _log),
            Instrument("curves", "Four curves", "loss, gradient, update, activation", 1, _curves),
            Instrument("checksums", "Checksums", "are the replicas equal?", 3, _checksums),
            Instrument("shards", "Loss by shard", "does one data shard stand apart?", 4, _shards),
            Instrument("amax", "Amax history", "of each layer, beside its scale", 4, _amax),
            Instrument("ranks", "Ranks", "gradient norms before the reduce", 6, _ranks),
            Instrument("state", "Restored state", "is it what the checkpoint held?", 8, _state),
            Instrument("replay", "Replay", "the step again on other hosts", 16, _replay),
            Instrument("twin", "BF16 twin", "without FP8, sums in FP32", 30, _twin),
        )
    }
)
"""The nine instruments at scale by id."""
