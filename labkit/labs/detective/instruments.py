"""Eight instruments for a run that fails: each is one measurement, in words and as a picture.

A measurement says what it saw and at which step it looked. It looks where the evidence still is: at
the first loss that is not finite, or at the step before it, for after that all is NaN. Where every
loss is finite, it looks at the last step.

Numbers in the texts are rounded: magnitudes to powers of two, shares to ten percent. So other
processors give the same words, but for a number that lies at an edge between two, and but for a
run that explodes at float32's end: where and when that overflows hangs on the last bits of its
sums. What a cause can show allows for either.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch import Tensor

from labkit.formats import FP16
from labkit.formats.histograms import range_report
from labkit.labs.detective import causes
from labkit.labs.detective.broken_runs import NO_LABEL, RunSettings, TracedStep, gaps, traced_run
from labkit.labs.texts import Text

EXP_ENDS = 11.09
"""exp(x) overflows in FP16 above this, ln 65520, where rounding leaves the range; and so does 1 / p
of a probability whose logit lies so far below the largest."""


@dataclass(frozen=True)
class Reading:
    """What an instrument shows: its finding in words of ``causes``, a text, a picture.

    ``picture`` is plain data: {"kind": "line" | "bars" | "chain" | "digits", ...}; a word in it is
    {"en": ..., "zh": ...}. ``detail`` names the mechanism, which would give the cause away, and is
    said when the case is closed.
    """

    instrument: str
    finding: str
    text: Text
    picture: dict
    detail: Text | None = None


@dataclass(frozen=True)
class Instrument:
    """One of the eight: its id, its name, what it can tell, its price, and the measurement.

    ``price`` is in GPU-minutes of a job of which this run is the model.
    """

    id: str
    name: Text
    tells: Text
    price: int
    read: Callable[[RunSettings, list[TracedStep]], Reading]


def by_id(*instruments: Instrument) -> Mapping[str, Instrument]:
    """The instruments in this order, each under its id."""
    return MappingProxyType({each.id: each for each in instruments})


def first_bad_loss(steps: list[TracedStep]) -> int | None:
    """The first step whose loss is inf or NaN."""
    return next((s.step for s in steps if not math.isfinite(s.loss)), None)


def symptom(steps: list[TracedStep]) -> str:
    """Whether the loss breaks or stays."""
    return causes.FLAT if first_bad_loss(steps) is None else causes.NAN


def learns(losses: list[float]) -> bool:
    """The last ten losses lie clearly, by an eighth, below the first five."""
    return sum(losses[-10:]) / 10 < 7 / 8 * sum(losses[:5]) / 5


def _look_at(steps: list[TracedStep]) -> tuple[TracedStep, TracedStep]:
    """The step before the first bad loss and that step; the last one twice where there is none."""
    bad = first_bad_loss(steps)
    if bad is None:
        return steps[-1], steps[-1]
    return steps[max(bad - 1, 0)], steps[bad]


def _power(x: float) -> str:
    return "0" if x == 0 else f"2**{round(math.log2(x))}"


def _percent(share: float) -> Text:
    if share in (0, 1):
        return _same(f"{share:.0%}")
    rounded = f"{min(max(round(share, 1), 0.1), 0.9):.0%}"
    return Text(en=f"about {rounded}", zh=f"约 {rounded}")


def _same(text: str) -> Text:
    """A name or a number, which is the same in both languages."""
    return Text(en=text, zh=text)


def _named(x: Tensor) -> str:
    return "NaN" if bool(x.isnan().any()) else "inf"


# The loss


def _loss_curve(settings: RunSettings, steps: list[TracedStep]) -> Reading:
    losses, bad = [s.loss for s in steps], first_bad_loss(steps)
    picture = _line([losses], [Text(en="loss", zh="损失")])
    if bad is None:
        said = Text(
            en="From {first:.1f} to {last:.1f} in {steps} steps. No value is inf or NaN.",
            zh="{steps} 步内从 {first:.1f} 变到 {last:.1f}。没有 inf 或 NaN。",
        ).filled(first=losses[0], last=sum(losses[-10:]) / 10, steps=len(steps))
        return Reading("loss", causes.LEVEL, said, picture)
    good = losses[:bad]
    if not good:
        said = Text(en="The very first loss is not finite.", zh="第一个损失就不是有限值。")
        return Reading("loss", causes.SUDDEN, said, picture)
    if max(good) > 2 * good[0]:
        said = Text(
            en="It climbs from {first:.1f} to about {top}, then it is not finite.",
            zh="损失从 {first:.1f} 上升到约 {top}，随后不再是有限值。",
        ).filled(first=good[0], top=_power(max(good)))
        return Reading("loss", causes.CLIMBS, said, picture)
    said = Text(
        en="It is {last:.1f} at step {before} and not finite at step {bad}. "
        "It did not climb before.",
        zh="第 {before} 步的损失是 {last:.1f}，第 {bad} 步不是有限值。此前没有上升。",
    ).filled(last=good[-1], before=bad - 1, bad=bad)
    return Reading("loss", causes.SUDDEN, said, picture)


def _line(series: list[list[float]], names: list[Text], marks: list[int] = ()) -> dict:
    """Curves over the steps; what is not finite is None."""
    return {
        "kind": "line",
        "series": [[v if math.isfinite(v) and abs(v) < 1e6 else None for v in s] for s in series],
        "names": [name.model_dump() for name in names],
        "marks": list(marks),
        "length": max(map(len, series)),
    }


# The first value that is not finite


def _first_nonfinite(settings: RunSettings, steps: list[TracedStep]) -> Reading:
    for step in steps:
        values = _in_order_of_time(step)
        for place, (group, name, x) in enumerate(values):
            if not bool(x.isfinite().all()):
                text = Text(
                    en="At step {step}, in {name}: {bad}. All before it is finite.",
                    zh="第 {step} 步，{name}：{bad}。此前的值都是有限值。",
                ).filled(step=step.step, name=name, bad=_named(x))
                bad = _row(name, _same(_named(x)))
                return Reading("first", group, text, _chain(step, place, bad))
    text = Text(
        en="Nothing: in {steps} steps each output, gradient and weight is finite.",
        zh="没有：{steps} 步内所有输出、梯度和权重都是有限值。",
    ).filled(steps=len(steps))
    return Reading("first", causes.NOTHING, text, _chain(steps[-1]))


def _in_order_of_time(step: TracedStep) -> list[tuple[str, Text, Tensor]]:
    """(finding, name, values) of a step: forward, loss, backward, update."""
    groups = {"embed": causes.EMBED, "attention": causes.ATTENTION}
    output = Text(en="the output of {part}", zh="前向输出（{part}）")
    values = [
        (groups.get(name, causes.LATER), output.filled(part=_PARTS[name]), x)
        for name, x in step.outputs.items()
    ]
    values.append((causes.LOSS, Text(en="the loss", zh="损失"), torch.tensor(step.loss)))
    # Backward goes from the last layer to the first.
    backward = reversed(step.gradients.items())
    found = next((pair for pair in backward if not bool(pair[1].isfinite().all())), None)
    name, gradient = found or ("all", torch.zeros(1))
    of = Text(en="the gradient of {name}", zh="{name} 的梯度").filled(name=name)
    values.append((causes.GRADIENTS, of, gradient))
    updated = Text(en="the weights after the update", zh="更新后的权重")
    values.append((causes.WEIGHTS, updated, step.after))
    return values


_PARTS: Mapping[str, Text] = MappingProxyType(
    {
        "embed": Text(en="embed", zh="嵌入层"),
        "norm": Text(en="norm", zh="归一化层"),
        "scores": Text(en="scores", zh="注意力分数"),
        "attention": Text(en="attention", zh="注意力"),
        "feed-forward": Text(en="feed-forward", zh="前馈层"),
        "logits": Text(en="logits", zh="logits"),
    }
)
"""What a reader calls the parts of ``broken_runs.PARTS``."""


def _row(label: Text, said: Text) -> Text:
    return Text(en="{label}: {said}", zh="{label}：{said}").filled(label=label, said=said)


def _chain(step: TracedStep, place: int | None = None, bad: Text | None = None) -> dict:
    """The parts of a step in order of time: finite, not finite, or not looked at any more."""
    labels = [
        *(_PARTS[name] for name in step.outputs),
        Text(en="loss", zh="损失"),
        Text(en="gradients", zh="梯度"),
        Text(en="weights after the update", zh="更新后的权重"),
    ]
    states = ["fine" if place is None or i < place else "after" for i in range(len(labels))]
    words = {
        "fine": Text(en="finite", zh="有限"),
        "after": Text(en="not looked at", zh="未检查"),
    }
    rows = [_row(label, words[state]) for label, state in zip(labels, states, strict=True)]
    if place is not None:
        short = bad.en.removeprefix("the output of ").removeprefix("the ")
        states[place], rows[place] = "bad", Text(en=short, zh=bad.zh)
    return {"kind": "chain", "rows": [row.model_dump() for row in rows], "states": states}


# Gradients


def _gradients(settings: RunSettings, steps: list[TracedStep]) -> Reading:
    step, _ = _look_at(steps)
    reports = {name: range_report(x, FP16) for name, x in _by_layer(step.gradients).items()}
    values = sum(r.values for r in reports.values())
    zeros = sum(r.zeros for r in reports.values()) / values
    rows = [_gradient_row(name, report) for name, report in reports.items()]
    picture = {"kind": "bars", "rows": rows, "limits": [[-24, "2**-24"], [16, "65504"]]}
    bad = [name for name, r in reports.items() if r.nonfinite]
    if not math.isfinite(step.loss):
        text = Text(
            en="Step {step}: the loss is not finite, so the gradients are not either.",
            zh="第 {step} 步：损失不是有限值，因此梯度也不是。",
        ).filled(step=step.step)
        return Reading("gradients", causes.NO_LOSS, text, picture)
    if bad:
        everywhere = Text(en="all layers", zh="所有层")
        some = Text(en=", ".join(bad), zh=f" {'、'.join(bad)} ")
        text = Text(
            en="Step {step}, a finite loss: inf or NaN in the gradients of {where}.",
            zh="第 {step} 步，损失是有限值：{where}的梯度中有 inf 或 NaN。",
        ).filled(step=step.step, where=everywhere if len(bad) == len(reports) else some)
        return Reading("gradients", causes.BAD, text, picture)
    if zeros > 0.85:
        text = Text(
            en="Step {step}: {share} of the gradients are exactly 0.",
            zh="第 {step} 步：{share} 的梯度恰好为 0。",
        ).filled(step=step.step, share=_percent(zeros))
        return Reading("gradients", causes.ZERO, text, picture)
    norm = _all(step.gradients).double().norm().item()
    text = Text(
        en="Step {step}: all finite, {share} exactly 0. The norm is about {norm}.",
        zh="第 {step} 步：全部有限，{share} 恰好为 0。范数约为 {norm}。",
    ).filled(step=step.step, share=_percent(zeros), norm=_power(norm))
    return Reading("gradients", causes.LARGE if norm > 64 else causes.ORDINARY, text, picture)


def _by_layer(gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
    layers: dict[str, list[Tensor]] = {}
    for name, x in gradients.items():
        layers.setdefault(name.removesuffix(".weight").removesuffix(".bias"), []).append(x)
    return {name: torch.cat([x.flatten() for x in parts]) for name, parts in layers.items()}


def _all(gradients: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([x.flatten() for x in gradients.values()])


def _gradient_row(name: str, report) -> dict:
    """The binades of a layer's gradients: all of them as a thin bar, the middle half as a thick."""
    if report.nonfinite:
        said = Text(en="inf or NaN", zh="inf 或 NaN")
        return {"label": name, "span": None, "text": said.model_dump()}
    if not report.exponents:
        return {"label": name, "span": None, "text": Text(en="all 0", zh="全为 0").model_dump()}
    low, high = report.exponents[0][0], report.exponents[-1][0] + 1
    span = Text(en="2**{low} to 2**{high}", zh="2**{low} 到 2**{high}")
    if report.zeros:
        span = Text(en=span.en + ", {zeros} are 0", zh=span.zh + "，{zeros} 为 0")
    said = span.filled(low=low, high=high, zeros=_percent(report.zeros / report.values))
    return {"label": name, "span": [low, high], "text": said.model_dump()}


# The scaler


def _scaler(settings: RunSettings, steps: list[TracedStep]) -> Reading:
    scales, skipped = [s.loss_scale for s in steps], [s.step for s in steps if s.skipped]
    name = Text(en="log2 of the scale", zh="缩放因子的 log2")
    picture = _line([[math.log2(v) for v in scales]], [name], skipped)
    if settings.scaler == "none":
        text = Text(en="There is none: the scale is 1.", zh="没有 scaler：缩放因子是 1。")
        return Reading("scaler", causes.NO_SCALER, text, picture)
    way = {"start": _power(scales[0]), "end": _power(scales[-1])}
    if skipped and scales[-1] <= scales[0] / 1024:
        share = len(skipped) / (len(steps) - skipped[0])
        text = Text(
            en="The scale falls from {start} to {end}: from step {first} on {share} are skipped.",
            zh="缩放因子从 {start} 降到 {end}：自第 {first} 步起，{share} 的步被跳过。",
        ).filled(**way, first=skipped[0], share=_percent(share))
        return Reading("scaler", causes.FALLS, text, picture)
    text = Text(
        en="The scale goes from {start} to {end}. Skipped steps: {skipped}.",
        zh="缩放因子从 {start} 到 {end}。跳过的步数：{skipped}。",
    ).filled(**way, skipped=_same(str(len(skipped))) if skipped else Text(en="none", zh="无"))
    return Reading("scaler", causes.STEADY, text, picture)


# Activations


def _activations(settings: RunSettings, steps: list[TracedStep]) -> Reading:
    before, at = _look_at(steps)
    largest = {}
    for name in at.outputs:
        both = torch.cat([before.outputs[name].flatten(), at.outputs[name].flatten()])
        finite = both[both.isfinite()].abs()
        largest[name] = finite.max().item() if finite.numel() else 0.0
    apart = max(_spread(step.outputs["logits"]) for step in (before, at))
    rows = [
        {
            "label": _PARTS[name].model_dump(),
            "span": [-6, math.log2(max(x, 2.0**-6))],
            "text": _short(x).model_dump(),
        }
        for name, x in largest.items()
    ]
    picture = {"kind": "bars", "rows": rows, "limits": [[3.47, "11"], [16, "65504"]]}
    text = Text(
        en="Largest finite values up to step {step}: scores {scores}, "
        "logits {logits}, {apart} apart in a row. "
        "FP16 ends at 65504, so exp(x) overflows from 11.1 on, and 1 / p for p below exp(-11.1).",
        zh="到第 {step} 步为止的最大有限值：注意力分数 {scores}，logits {logits}，"
        "同一行内 logits 相差 {apart}。FP16 的最大值是 65504，所以 x 从 11.1 起 exp(x) 溢出，"
        "p 小于 exp(-11.1) 时 1 / p 溢出。",
    ).filled(
        step=at.step,
        scores=_short(largest["scores"]),
        logits=_short(largest["logits"]),
        apart=_short(apart),
    )
    if max(largest.values()) > 1000:
        finding = causes.HUGE
    elif largest["scores"] > EXP_ENDS:
        finding = causes.SHARP_SCORES
    else:
        finding = causes.FAR_LOGITS if apart > EXP_ENDS else causes.ORDINARY
    return Reading("activations", finding, text, picture)


def _spread(logits: Tensor) -> float:
    apart = logits.amax(-1) - logits.amin(-1)
    apart = apart[apart.isfinite()]
    return apart.max().item() if apart.numel() else 0.0


def _short(x: float) -> Text:
    if x < 1:
        return Text(en="below 1", zh="小于 1")
    if x < 16:
        return _same(f"{x:.0f}")
    return Text(en=f"about {_power(x)}", zh=f"约 {_power(x)}")


# The batch


def _batch(settings: RunSettings, steps: list[TracedStep]) -> Reading:
    _, step = _look_at(steps)
    batch = step.batch
    nans, empty = int(batch.images.isnan().sum()), int((batch.lengths == 0).sum())
    labelled = batch.labels != NO_LABEL
    agree = int((batch.labels == batch.true_labels).sum())
    count = len(batch.labels)
    text = Text(
        en="Step {step}, {count} digits: {nans} NaN among the pixels, {empty} with every row "
        "masked, {labelled} with a label; {agree} labels agree with the data set.",
        zh="第 {step} 步，{count} 个数字：像素中有 {nans} 个 NaN，{empty} 个数字的所有行都被掩掉，"
        "{labelled} 个有标签；{agree} 个标签与数据集一致。",
    ).filled(
        step=step.step, count=count, nans=nans, empty=empty,
        labelled=int(labelled.sum()), agree=agree,
    )  # fmt: skip
    finding = causes.EMPTY_DIGIT if empty else causes.CLEAN
    if nans:
        finding = causes.NAN_PIXEL
    elif not bool(labelled.any()):
        finding = causes.NO_LABELS
    elif agree < count:
        finding = causes.WRONG_LABELS
    return Reading("batch", finding, text, _digits(batch))


def _digits(batch) -> dict:
    """Eight digits to be drawn, those that are unlike the others first."""
    odd = batch.images.isnan().flatten(1).any(1) | (batch.lengths == 0)
    shown = torch.argsort((~odd).int(), stable=True)[:8]
    pixels = (16 * batch.images[shown]).tolist()
    return {
        "kind": "digits",
        "images": [
            [[None if math.isnan(v) else round(v) for v in row] for row in image]
            for image in pixels
        ],
        "labels": [_label(y).model_dump() for y in batch.labels[shown].tolist()],
    }


def _label(digit: int) -> Text:
    if digit == NO_LABEL:
        return Text(en="label none", zh="无标签")
    return Text(en=f"label {digit}", zh=f"标签 {digit}")


# The same run in float32


def _in_fp32(settings: RunSettings, steps: list[TracedStep]) -> Reading:
    losses = [s.loss for s in traced_run(replace(settings, precision="fp32"))]
    names = [Text(en="16 bits", zh="16 位"), _same("FP32")]
    picture = _line([[s.loss for s in steps], losses], names)
    same = Text(
        en="Same seed and batches, autocast and scaler off, all in FP32: {result}",
        zh="种子和批次相同，关闭 autocast 和 scaler，全部用 FP32：{result}",
    )
    if not all(map(math.isfinite, losses)):
        result = Text(en="the loss is not finite here either.", zh="损失同样不是有限值。")
        return Reading("fp32", causes.BREAKS_TOO, same.filled(result=result), picture)
    result = Text(
        en="the loss goes from {first:.1f} to {last:.1f}.",
        zh="损失从 {first:.1f} 变到 {last:.1f}。",
    ).filled(first=losses[0], last=sum(losses[-10:]) / 10)
    text = same.filled(result=result)
    return Reading("fp32", causes.TRAINS if learns(losses) else causes.FLAT_TOO, text, picture)


# Updates


def _updates(settings: RunSettings, steps: list[TracedStep]) -> Reading:
    step, _ = _look_at(steps)
    finding, said, detail = _update_words(step)
    at = Text(en="Step {step}: {said}", zh="第 {step} 步：{said}")
    text = at.filled(step=step.step, said=said)
    return Reading("updates", finding, text, _update_picture(step), detail)


def _update_words(step: TracedStep) -> tuple[str, Text, Text | None]:
    """The finding, the text, and the detail that names the mechanism."""
    given = _all(step.gradients).double()
    if step.skipped:
        text = Text(en="skipped; no weight moves.", zh="该步被跳过，权重没有变化。")
        return causes.SKIPPED, text, None
    if not bool(given.isfinite().all()):
        text = Text(
            en="the update is made of gradients that are not finite.",
            zh="更新是由非有限的梯度算出的。",
        )
        return causes.OF_BAD, text, None
    if not bool(step.after.isfinite().all()):
        text = Text(
            en="the gradients are finite, and after the update weights are not.",
            zh="梯度是有限值，更新之后有权重不是。",
        )
        return causes.WRECKED, text, None
    changed = (step.after.double() - step.before.double()).norm() / step.before.double().norm()
    text = Text(
        en="the weights change by about {part} of their size.",
        zh="权重的变化约为自身大小的 {part}。",
    ).filled(part=_power(changed.item()))
    if not bool(step.asked.any()):
        detail = Text(
            en="The optimizer asks for an update of exactly 0.", zh="优化器要求的更新恰好为 0。"
        )
        return causes.HARDLY, text, detail
    part = step.reached / given.norm().item()
    if part < 0.01:
        detail = Text(
            en="The optimizer is given {part} times the gradient that backward made.",
            zh="优化器得到的梯度是反向传播所得梯度的 {part} 倍。",
        ).filled(part=_power(part))
        return causes.HARDLY, text, detail
    asked = step.asked != 0
    in_gaps = (step.asked[asked].abs() / gaps(step.before)[asked]).median().item()
    moved = (step.after != step.before)[asked].float().mean().item()
    detail = Text(
        en="The middle update is about {gaps} gaps (ulp) of its weight; {moved} of the weights "
        "move.",
        zh="更新量的中位数约为所属权重间隔（ulp）的 {gaps} 倍；{moved} 的权重发生变化。",
    ).filled(gaps=_power(in_gaps), moved=_percent(moved))
    if in_gaps < 0.5:
        return causes.HARDLY, text, detail
    size = (step.asked.double().norm() / step.before.double().norm()).item()
    return (causes.TOO_LARGE if size > 0.25 else causes.ARRIVE), text, detail


def _update_picture(step: TracedStep) -> dict:
    """How many updates have which size in gaps, as bars over powers of two."""
    asked = step.asked[step.asked.isfinite() & (step.asked != 0)]
    kept = step.before[step.asked.isfinite() & (step.asked != 0)]
    exponents = torch.log2(asked.abs() / gaps(kept)).floor().clamp(-20, 23) if len(asked) else asked
    counts = [int((exponents == e).sum()) for e in range(-20, 24)]
    word = Text(en="half a gap", zh="半个间隔").model_dump()
    return {"kind": "histogram", "low": -20, "counts": counts, "limit": -1, "word": word}


INSTRUMENTS = by_id(
    # The log is there; it only has to be read.
    Instrument(
        "loss",
        Text(en="Loss curve", zh="损失曲线"),
        Text(en="does it break, climb or stay?", zh="变成 NaN、上升，还是不动？"),
        1,
        _loss_curve,
    ),
    Instrument(
        "scaler",
        _same("Scaler"),
        Text(en="the scale and the skipped steps", zh="缩放因子和跳过的步"),
        1,
        _scaler,
    ),
    # One step is run again from a checkpoint, with hooks.
    Instrument(
        "gradients",
        Text(en="Gradients", zh="梯度"),
        Text(en="zeros, inf, sizes by layer", zh="各层的零、inf 和大小"),
        2,
        _gradients,
    ),
    Instrument(
        "activations",
        Text(en="Activations", zh="激活值"),
        Text(en="the largest value of each part", zh="各部分的最大值"),
        2,
        _activations,
    ),
    Instrument(
        "batch",
        Text(en="Batch", zh="批次"),
        Text(en="what the step at hand was given to read", zh="这一步读到的数据"),
        2,
        _batch,
    ),
    # The run again, with all weights kept before and after each step, or all outputs looked
    # at one after the other.
    Instrument(
        "updates",
        Text(en="Updates", zh="更新"),
        Text(en="do updates arrive in the weights?", zh="更新是否写进了权重？"),
        12,
        _updates,
    ),
    Instrument(
        "first",
        Text(en="First inf or NaN", zh="首个 inf 或 NaN"),
        Text(
            en="in which part of which step does it begin?",
            zh="从哪一步的哪个部分开始？",
        ),
        15,
        _first_nonfinite,
    ),
    # The whole run again, at FP32's speed.
    Instrument(
        "fp32",
        Text(en="FP32 twin", zh="FP32 对照"),
        Text(en="is it the 16 bits at all?", zh="到底是不是 16 位的问题？"),
        20,
        _in_fp32,
    ),
)
"""The eight instruments by id."""
