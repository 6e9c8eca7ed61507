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
from labkit.labs.detective.broken_runs import NO_LABEL, Recipe, Step, gaps, run

EXP_ENDS = 11.09
"""exp(x) overflows in FP16 above this, ln 65520, where rounding leaves the range; and so does 1 / p
of a probability whose logit lies so far below the largest."""


@dataclass(frozen=True)
class Reading:
    """What an instrument shows: its finding in words of ``causes``, a text, a picture.

    ``picture`` is plain data: {"kind": "line" | "bars" | "chain" | "digits", ...}. ``detail`` names
    the mechanism, which would give the cause away, and is said when the case is closed.
    """

    instrument: str
    finding: str
    text: str
    picture: dict
    detail: str = ""


@dataclass(frozen=True)
class Instrument:
    """One of the eight: its id, its name, what it can tell, its price, and the measurement.

    ``price`` is in GPU-minutes of a job of which this run is the model.
    """

    id: str
    name: str
    tells: str
    price: int
    read: Callable[[Recipe, list[Step]], Reading]


def first_bad_loss(steps: list[Step]) -> int | None:
    """The first step whose loss is inf or NaN."""
    return next((s.step for s in steps if not math.isfinite(s.loss)), None)


def symptom(steps: list[Step]) -> str:
    """Whether the loss breaks or stays."""
    return causes.FLAT if first_bad_loss(steps) is None else causes.NAN


def learns(losses: list[float]) -> bool:
    """The last ten losses lie clearly, by an eighth, below the first five."""
    return sum(losses[-10:]) / 10 < 7 / 8 * sum(losses[:5]) / 5


def _look_at(steps: list[Step]) -> tuple[Step, Step]:
    """The step before the first bad loss and that step; the last one twice where there is none."""
    bad = first_bad_loss(steps)
    if bad is None:
        return steps[-1], steps[-1]
    return steps[max(bad - 1, 0)], steps[bad]


def _power(x: float) -> str:
    return "0" if x == 0 else f"2**{round(math.log2(x))}"


def _percent(share: float) -> str:
    if share in (0, 1):
        return f"{share:.0%}"
    return f"about {min(max(round(share, 1), 0.1), 0.9):.0%}"


def _named(x: Tensor) -> str:
    return "NaN" if bool(x.isnan().any()) else "inf"


# The loss


def _loss_curve(recipe: Recipe, steps: list[Step]) -> Reading:
    losses, bad = [s.loss for s in steps], first_bad_loss(steps)
    picture = _line([losses], ["loss"])
    if bad is None:
        said = f"From {losses[0]:.1f} to {sum(losses[-10:]) / 10:.1f} in {len(steps)} steps."
        return Reading("loss", causes.LEVEL, f"{said} No value is inf or NaN.", picture)
    good = losses[:bad]
    if not good:
        return Reading("loss", causes.SUDDEN, "The very first loss is not finite.", picture)
    if max(good) > 2 * good[0]:
        said = f"It climbs from {good[0]:.1f} to about {_power(max(good))}, then it is not finite."
        return Reading("loss", causes.CLIMBS, said, picture)
    said = f"It is {good[-1]:.1f} at step {bad - 1} and not finite at step {bad}."
    return Reading("loss", causes.SUDDEN, f"{said} It did not climb before.", picture)


def _line(series: list[list[float]], names: list[str], marks: list[int] = ()) -> dict:
    """Curves over the steps; what is not finite is None."""
    return {
        "kind": "line",
        "series": [[v if math.isfinite(v) and abs(v) < 1e6 else None for v in s] for s in series],
        "names": names,
        "marks": list(marks),
        "length": max(map(len, series)),
    }


# The first value that is not finite


def _first_nonfinite(recipe: Recipe, steps: list[Step]) -> Reading:
    for step in steps:
        values = _in_order_of_time(step)
        for place, (group, name, x) in enumerate(values):
            if not bool(x.isfinite().all()):
                text = f"At step {step.step}, in {name}: {_named(x)}. All before it is finite."
                return Reading("first", group, text, _chain(step, place, f"{name}: {_named(x)}"))
    text = f"Nothing: in {len(steps)} steps each output, gradient and weight is finite."
    return Reading("first", causes.NOTHING, text, _chain(steps[-1], None, ""))


def _in_order_of_time(step: Step) -> list[tuple[str, str, Tensor]]:
    """(finding, name, values) of a step: forward, loss, backward, update."""
    groups = {"embed": causes.EMBED, "attention": causes.ATTENTION}
    values = [
        (groups.get(name, causes.LATER), f"the output of {name}", x)
        for name, x in step.outputs.items()
    ]
    values.append((causes.LOSS, "the loss", torch.tensor(step.loss)))
    # Backward goes from the last layer to the first.
    backward = reversed(step.gradients.items())
    found = next((pair for pair in backward if not bool(pair[1].isfinite().all())), None)
    name, gradient = found or ("all", torch.zeros(1))
    values.append((causes.GRADIENTS, f"the gradient of {name}", gradient))
    values.append((causes.WEIGHTS, "the weights after the update", step.after))
    return values


def _chain(step: Step, place: int | None, bad: str) -> dict:
    """The parts of a step in order of time: finite, not finite, or not looked at any more."""
    labels = [*step.outputs, "loss", "gradients", "weights after the update"]
    states = ["fine" if place is None or i < place else "after" for i in range(len(labels))]
    words = {"fine": "finite", "after": "not looked at"}
    rows = [f"{label}: {words[state]}" for label, state in zip(labels, states, strict=True)]
    if place is not None:
        states[place], rows[place] = "bad", bad.removeprefix("the output of ").removeprefix("the ")
    return {"kind": "chain", "rows": rows, "states": states}


# Gradients


def _gradients(recipe: Recipe, steps: list[Step]) -> Reading:
    step, _ = _look_at(steps)
    reports = {name: range_report(x, FP16) for name, x in _by_layer(step.gradients).items()}
    values = sum(r.values for r in reports.values())
    zeros = sum(r.zeros for r in reports.values()) / values
    rows = [_gradient_row(name, report) for name, report in reports.items()]
    picture = {"kind": "bars", "rows": rows, "limits": [[-24, "2**-24"], [16, "65504"]]}
    bad = [name for name, r in reports.items() if r.nonfinite]
    at = f"Step {step.step}"
    if not math.isfinite(step.loss):
        text = f"{at}: the loss is not finite, so the gradients are not either."
        return Reading("gradients", causes.NO_LOSS, text, picture)
    if bad:
        where = "all layers" if len(bad) == len(reports) else ", ".join(bad)
        text = f"{at}, a finite loss: inf or NaN in the gradients of {where}."
        return Reading("gradients", causes.BAD, text, picture)
    if zeros > 0.85:
        text = f"{at}: {_percent(zeros)} of the gradients are exactly 0."
        return Reading("gradients", causes.ZERO, text, picture)
    norm = _all(step.gradients).double().norm().item()
    text = f"{at}: all finite, {_percent(zeros)} exactly 0. The norm is about {_power(norm)}."
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
        return {"label": name, "span": None, "text": "inf or NaN"}
    if not report.exponents:
        return {"label": name, "span": None, "text": "all 0"}
    low, high = report.exponents[0][0], report.exponents[-1][0] + 1
    zero = f", {_percent(report.zeros / report.values)} are 0" if report.zeros else ""
    return {"label": name, "span": [low, high], "text": f"2**{low} to 2**{high}{zero}"}


# The scaler


def _scaler(recipe: Recipe, steps: list[Step]) -> Reading:
    scales, skipped = [s.loss_scale for s in steps], [s.step for s in steps if s.skipped]
    picture = _line([[math.log2(v) for v in scales]], ["log2 of the scale"], skipped)
    if recipe.scaler == "none":
        return Reading("scaler", causes.NO_SCALER, "There is none: the scale is 1.", picture)
    way = f"from {_power(scales[0])} to {_power(scales[-1])}"
    if skipped and scales[-1] <= scales[0] / 1024:
        share = len(skipped) / (len(steps) - skipped[0])
        text = f"The scale falls {way}: from step {skipped[0]} on {_percent(share)} are skipped."
        return Reading("scaler", causes.FALLS, text, picture)
    text = f"The scale goes {way}. Skipped steps: {len(skipped) or 'none'}."
    return Reading("scaler", causes.STEADY, text, picture)


# Activations


def _activations(recipe: Recipe, steps: list[Step]) -> Reading:
    before, at = _look_at(steps)
    largest = {}
    for name in at.outputs:
        both = torch.cat([before.outputs[name].flatten(), at.outputs[name].flatten()])
        finite = both[both.isfinite()].abs()
        largest[name] = finite.max().item() if finite.numel() else 0.0
    apart = max(_spread(step.outputs["logits"]) for step in (before, at))
    rows = [
        {"label": name, "span": [-6, math.log2(max(x, 2.0**-6))], "text": _short(x)}
        for name, x in largest.items()
    ]
    picture = {"kind": "bars", "rows": rows, "limits": [[3.47, "11"], [16, "65504"]]}
    text = (
        f"Largest finite values up to step {at.step}: scores {_short(largest['scores'])}, "
        f"logits {_short(largest['logits'])}, {_short(apart)} apart in a row. "
        "FP16 ends at 65504, so exp(x) overflows from 11.1 on, and 1 / p for p below exp(-11.1)."
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


def _short(x: float) -> str:
    if x < 1:
        return "below 1"
    return f"{x:.0f}" if x < 16 else f"about {_power(x)}"


# The batch


def _batch(recipe: Recipe, steps: list[Step]) -> Reading:
    _, step = _look_at(steps)
    batch = step.batch
    nans, empty = int(batch.images.isnan().sum()), int((batch.lengths == 0).sum())
    labelled = batch.labels != NO_LABEL
    agree = int((batch.labels == batch.true_labels).sum())
    count = len(batch.labels)
    text = (
        f"Step {step.step}, {count} digits: {nans} NaN among the pixels, "
        f"{empty} with every row masked, {int(labelled.sum())} with a label; "
        f"{agree} labels agree with the data set."
    )
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
        "labels": ["none" if y == NO_LABEL else str(y) for y in batch.labels[shown].tolist()],
    }


# The same run in float32


def _in_fp32(recipe: Recipe, steps: list[Step]) -> Reading:
    losses = [s.loss for s in run(replace(recipe, precision="fp32"))]
    picture = _line([[s.loss for s in steps], losses], ["16 bits", "FP32"])
    same = "Same seed and batches, autocast and scaler off, all in FP32:"
    if not all(map(math.isfinite, losses)):
        text = f"{same} the loss is not finite here either."
        return Reading("fp32", causes.BREAKS_TOO, text, picture)
    last = sum(losses[-10:]) / 10
    text = f"{same} the loss goes from {losses[0]:.1f} to {last:.1f}."
    return Reading("fp32", causes.TRAINS if learns(losses) else causes.FLAT_TOO, text, picture)


# Updates


def _updates(recipe: Recipe, steps: list[Step]) -> Reading:
    step, _ = _look_at(steps)
    finding, text, detail = _update_words(step)
    return Reading("updates", finding, f"Step {step.step}: {text}", _update_picture(step), detail)


def _update_words(step: Step) -> tuple[str, str, str]:
    """The finding, the text, and the detail that names the mechanism."""
    given = _all(step.gradients).double()
    if step.skipped:
        return causes.SKIPPED, "skipped; no weight moves.", ""
    if not bool(given.isfinite().all()):
        return causes.OF_BAD, "the update is made of gradients that are not finite.", ""
    if not bool(step.after.isfinite().all()):
        text = "the gradients are finite, and after the update weights are not."
        return causes.WRECKED, text, ""
    changed = (step.after.double() - step.before.double()).norm() / step.before.double().norm()
    text = f"the weights change by about {_power(changed.item())} of their size."
    if not bool(step.asked.any()):
        return causes.HARDLY, text, "The optimizer asks for an update of exactly 0."
    part = step.reached / given.norm().item()
    if part < 0.01:
        detail = f"The optimizer is given {_power(part)} times the gradient that backward made."
        return causes.HARDLY, text, detail
    asked = step.asked != 0
    in_gaps = (step.asked[asked].abs() / gaps(step.before)[asked]).median().item()
    moved = (step.after != step.before)[asked].float().mean().item()
    detail = (
        f"The middle update is about {_power(in_gaps)} gaps (ulp) of its weight; "
        f"{_percent(moved)} of the weights move."
    )
    if in_gaps < 0.5:
        return causes.HARDLY, text, detail
    size = (step.asked.double().norm() / step.before.double().norm()).item()
    return (causes.TOO_LARGE if size > 0.25 else causes.ARRIVE), text, detail


def _update_picture(step: Step) -> dict:
    """How many updates have which size in gaps, as bars over powers of two."""
    asked = step.asked[step.asked.isfinite() & (step.asked != 0)]
    kept = step.before[step.asked.isfinite() & (step.asked != 0)]
    exponents = torch.log2(asked.abs() / gaps(kept)).floor().clamp(-20, 23) if len(asked) else asked
    counts = [int((exponents == e).sum()) for e in range(-20, 24)]
    return {"kind": "histogram", "low": -20, "counts": counts, "limit": -1, "word": "half a gap"}


INSTRUMENTS: Mapping[str, Instrument] = MappingProxyType(
    {
        each.id: each
        for each in (
            # The log is there; it only has to be read.
            Instrument("loss", "Loss curve", "does it break, climb or stay?", 1, _loss_curve),
            Instrument("scaler", "Scaler", "the scale and the skipped steps", 1, _scaler),
            # One step is run again from a checkpoint, with hooks.
            Instrument("gradients", "Gradients", "zeros, inf, sizes by layer", 2, _gradients),
            Instrument(
                "activations", "Activations", "the largest value of each part", 2, _activations
            ),
            Instrument("batch", "Batch", "what the step at hand was given to read", 2, _batch),
            # The run again, with all weights kept before and after each step, or all outputs looked
            # at one after the other.
            Instrument("updates", "Updates", "do updates arrive in the weights?", 12, _updates),
            Instrument(
                "first",
                "First inf or NaN",
                "in which part of which step does it begin?",
                15,
                _first_nonfinite,
            ),
            # The whole run again, at FP32's speed.
            Instrument("fp32", "FP32 twin", "is it the 16 bits at all?", 20, _in_fp32),
        )
    }
)
"""The eight instruments by id."""
