"""The thirteen causes of the NaN detective: how each is built, and what it can show.

For each cause and instrument, the table holds the findings that the cause allows, for reasons that
stand beside it; where nothing is said, any finding may be seen. A reading rules a cause out when
its finding is not among those allowed. So the table errs to one side only: a cause may survive a
reading, but never wrongly fall to it.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from labkit.labs.detective.broken_runs import Recipe

# The findings of the instruments (instruments), in the words that a reader sees.
NAN, FLAT = "the loss is not finite", "the loss hardly moves"

SUDDEN, CLIMBS, LEVEL = "no climb before it broke", "a climb before it broke", "a flat line"

EMBED, ATTENTION, LOSS = "the embedding", "the attention", "the loss"
GRADIENTS, WEIGHTS, LATER, NOTHING = "a gradient", "a weight", "another part", "nothing"

ORDINARY = "ordinary values"
ZERO, BAD, LARGE, NO_LOSS = "zeros", "inf or NaN", "large values", "no loss to derive"

NO_SCALER, STEADY = "no scaler", "no skipped step"
FALLS = "a scale that only falls"

SHARP_SCORES, FAR_LOGITS, HUGE = "scores above 11", "logits more than 11 apart", "huge values"

NAN_PIXEL, NO_LABELS, WRONG_LABELS = "a NaN pixel", "no label at all", "labels of other digits"
EMPTY_DIGIT, CLEAN = "a digit with every row masked", "nothing unusual"

TRAINS, BREAKS_TOO, FLAT_TOO = "it trains", "it breaks too", "it is flat too"

ARRIVE, HARDLY = "updates that arrive", "weights that hardly move"
SKIPPED = "no step at all"
WRECKED, TOO_LARGE = "finite gradients, broken weights", "updates as large as the weights"
OF_BAD = "updates of gradients that are not finite"


# One thing is wrong with a run. So what is a fault by itself speaks against every other cause.
_ONLY = (NAN_PIXEL, WRONG_LABELS)
# A digit with every row masked is no fault: under a sound mask it changes nothing. Nor is a batch
# without labels, where the mean is guarded.
_SOUND_BATCH = (CLEAN, EMPTY_DIGIT, NO_LABELS)
_BREAKS = (SUDDEN, CLIMBS)
# What the step before the first bad loss shows, where the forward pass breaks of itself. If the
# very first loss is bad there is no such step.
_GOOD_BEFORE = {"gradients": (ORDINARY, NO_LOSS), "updates": (ARRIVE, SKIPPED, OF_BAD)}


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One thing that can be wrong with a run.

    Args:
        id: a slug. ``name``: what the list of suspects says.
        broken: settings that a seed's random numbers choose, over a sound ``Recipe``.
        repair: the changed settings.
        advice: the repair, in words.
        sign: the instrument that shows the mechanism at work.
        allows: instrument -> findings that this cause can show; "symptom" too. An instrument
            that is not there: any but those of ``_ONLY``.
        precision: whether float32 would have been spared.
    """

    id: str
    name: str
    broken: Callable[[random.Random], dict]
    repair: Mapping[str, object]
    advice: str
    sign: str
    allows: Mapping[str, tuple[str, ...]]
    precision: bool

    def recipe(self, seed: int) -> Recipe:
        """The broken run that a seed draws; the other seeds break in other steps and settings."""
        source = random.Random(f"{self.id} {seed}")
        empty = tuple(sorted(source.sample(range(6, 60), 3)))
        return replace(Recipe(seed=seed, empty_steps=empty), **self.broken(source))

    def can_show(self, instrument: str, finding: str) -> bool:
        """Whether a run of this cause, and of no other, may give that finding."""
        if instrument in self.allows:
            return finding in self.allows[instrument]
        return finding not in _ONLY

    def repaired(self, recipe: Recipe) -> Recipe:
        """The same run with this cause repaired, and nothing else."""
        return replace(recipe, **self.repair)


# A stall shows in FP32's lead, which takes its time. Others are as long, lest the length tells.
_LENGTHS = (60, 300)


def _optimizer(source: random.Random) -> dict:
    return source.choice(
        [{"optimizer": "sgd", "lr": 0.1}, {"optimizer": "adam", "lr": 3e-3, "eps": 1e-8}]
    )


def _sixteen_bits(source: random.Random) -> dict:
    return {"precision": source.choice(["fp16", "bf16"])}


def _adam_eps(source: random.Random) -> dict:
    lr = source.choice([1e-3, 2e-3, 3e-3])
    return {"precision": "pure_fp16", "optimizer": "adam", "lr": lr, "eps": 1e-8}


def _bare_softmax(source: random.Random) -> dict:
    # Without a digit that has no row: a bare softmax divides 0 by 0 there, in float32 too.
    return {
        "softmax": "bare",
        "sharpness": source.choice([10.0, 11.0, 12.0]),
        "empty_steps": (),
    }


def _mask(source: random.Random) -> dict:
    first = source.randrange(6, 30)
    return {"mask": "-1e9", "empty_steps": (first, first + 9, first + 17)} | _optimizer(source)


def _nan_pixel(source: random.Random) -> dict:
    step = source.randrange(5, 40)
    return {"data": "nan pixel", "bad_step": step} | _optimizer(source) | _sixteen_bits(source)


def _empty_mean(source: random.Random) -> dict:
    step = source.randrange(5, 40)
    broken = {"data": "no labels", "mean": "bare", "bad_step": step}
    return broken | _optimizer(source) | _sixteen_bits(source)


def _log_zero(source: random.Random) -> dict:
    gain = source.choice([9.0, 10.0, 11.0])
    return {"loss": "log of p", "logit_gain": gain, "lr": 0.1 / gain}


def _unchecked(source: random.Random) -> dict:
    return {"scaler": "unchecked", "growth_interval": source.choice([2, 3, 4])}


def _lr(source: random.Random) -> dict:
    return {"lr": source.choice([1.0, 1.5, 2.0])} | _sixteen_bits(source)


def _underflow(source: random.Random) -> dict:
    weight = 2.0 ** source.choice([-20, -21, -22])
    return {"loss_weight": weight, "optimizer": "adam", "lr": 3e-3, "eps": 1e-15}


def _stall(source: random.Random) -> dict:
    lr = source.choice([8e-5, 9e-5])
    return {"precision": "pure_bf16", "optimizer": "adam", "lr": lr, "steps": 300}


def _clip(source: random.Random) -> dict:
    lr, steps = source.choice([0.1, 0.15, 0.2]), source.choice(_LENGTHS)
    return {"scaler": "checked", "clip": "before unscale_", "lr": lr, "steps": steps}


def _root(source: random.Random) -> dict:
    return {"scaler": "checked", "norm_eps": "after the root"} | _optimizer(source)


def _labels(source: random.Random) -> dict:
    chosen = {"scaler": source.choice(["none", "checked"]), "steps": source.choice(_LENGTHS)}
    return {"data": "shuffled labels", "lr": 0.1} | chosen | _sixteen_bits(source)


_ALL = (
    Cause(
        id="adam-eps",
        name="Adam's eps is 0 in FP16: zero over zero",
        broken=_adam_eps,
        repair={"eps": 1e-4},
        advice="eps=1e-4, or master weights and Adam's state in FP32.",
        sign="updates",
        precision=True,
        # Gradients are finite and the update is not. A scaler refuses gradients in FP16.
        allows={
            "symptom": (NAN,),
            "loss": _BREAKS,
            "first": (WEIGHTS,),
            "gradients": (ORDINARY,),
            "scaler": (NO_SCALER,),
            "batch": _SOUND_BATCH,
            "fp32": (TRAINS,),
            "updates": (WRECKED,),
        },
    ),
    Cause(
        id="softmax-overflow",
        name="A softmax without the shift by its maximum overflows in FP16",
        broken=_bare_softmax,
        repair={"softmax": "shifted"},
        advice="Subtract the row's maximum before exp: torch.softmax does, and runs in FP32.",
        sign="activations",
        precision=True,
        # exp overflows in FP16 above 11.09, in FP32 only above 88.
        allows=_GOOD_BEFORE
        | {
            "symptom": (NAN,),
            "loss": _BREAKS,
            "first": (ATTENTION,),
            "activations": (SHARP_SCORES, HUGE),
            "batch": _SOUND_BATCH,
            "fp32": (TRAINS,),
        },
    ),
    Cause(
        id="mask-overflow",
        name="A mask of -1e9 becomes -inf in FP16, and a row is masked throughout",
        broken=_mask,
        repair={"mask": "least"},
        advice="Mask with torch.finfo(dtype).min / 2, or compute the masked softmax in FP32.",
        sign="batch",
        precision=True,
        # It takes a digit of which every row is masked.
        allows=_GOOD_BEFORE
        | {
            "symptom": (NAN,),
            "loss": _BREAKS,
            "first": (ATTENTION,),
            "batch": (EMPTY_DIGIT,),
            "fp32": (TRAINS,),
        },
    ),
    Cause(
        id="log-of-zero",
        name="The loss takes the log of a probability kept in FP16",
        broken=_log_zero,
        repair={"loss": "cross entropy"},
        advice="Give F.cross_entropy the logits: it never forms the probability.",
        sign="activations",
        precision=True,
        # The slope 1 / p overflows where logits are 11.1 apart; from 17.3 on p is 0, log p -inf.
        allows={
            "symptom": (NAN,),
            "loss": _BREAKS,
            "first": (LOSS, GRADIENTS),
            "gradients": (ORDINARY, LARGE, BAD, NO_LOSS),
            "updates": (ARRIVE, SKIPPED, OF_BAD),
            "activations": (FAR_LOGITS, SHARP_SCORES, HUGE),
            "batch": _SOUND_BATCH,
            "fp32": (TRAINS,),
        },
    ),
    Cause(
        id="unchecked-scale",
        name="The loss scale grows for ever: nobody looks for inf",
        broken=_unchecked,
        repair={"scaler": "checked"},
        advice="Use torch.amp.GradScaler: skip a step with inf or NaN, and halve the scale.",
        sign="scaler",
        precision=True,
        # Scaled gradients overflow while the loss is still fine, and the step is taken.
        allows={
            "symptom": (NAN,),
            "loss": _BREAKS,
            "first": (GRADIENTS,),
            "gradients": (BAD,),
            "scaler": (STEADY,),
            "batch": _SOUND_BATCH,
            "fp32": (TRAINS,),
            "updates": (OF_BAD,),
        },
    ),
    Cause(
        id="nan-pixel",
        name="There is a NaN in the data",
        broken=_nan_pixel,
        repair={"data": "clean"},
        advice="Drop or mend the sample, and let the loader refuse what is not finite.",
        sign="batch",
        precision=False,
        allows=_GOOD_BEFORE
        | {
            "symptom": (NAN,),
            "loss": (SUDDEN,),
            "first": (EMBED,),
            "batch": (NAN_PIXEL,),
            "fp32": (BREAKS_TOO,),
        },
    ),
    Cause(
        id="mean-of-nothing",
        name="The loss divides by the number of labels, and a batch has none",
        broken=_empty_mean,
        repair={"mean": "guarded"},
        advice="Divide by labelled.clamp(min=1), or leave such a batch out.",
        sign="batch",
        precision=False,
        allows=_GOOD_BEFORE
        | {
            "symptom": (NAN,),
            "loss": (SUDDEN,),
            "first": (LOSS,),
            "batch": (NO_LABELS,),
            "fp32": (BREAKS_TOO,),
        },
    ),
    Cause(
        id="learning-rate",
        name="The learning rate is too high",
        broken=_lr,
        repair={"lr": 0.1},
        advice="Lower the learning rate, warm it up, or clip the gradients.",
        sign="loss",
        precision=False,
        # Each step is worse than the last, in any format, until one of them overflows somewhere.
        allows={
            "symptom": (NAN,),
            "loss": (CLIMBS,),
            "batch": _SOUND_BATCH,
            "fp32": (BREAKS_TOO,),
            "updates": (TOO_LARGE, OF_BAD, WRECKED),
        },
    ),
    Cause(
        id="root-of-zero",
        name="A square root at 0: the backward pass makes a NaN",
        broken=_root,
        repair={"norm_eps": "below the root"},
        advice="Put eps below the root: its slope at 0 is infinite, and times 0 that is NaN.",
        sign="gradients",
        precision=False,
        # Under a scaler every step is skipped, so weights and loss stay as they were; without one
        # the first step is the last good one.
        allows={
            "symptom": (FLAT, NAN),
            "loss": (LEVEL, SUDDEN),
            "first": (GRADIENTS,),
            "gradients": (BAD,),
            "batch": _SOUND_BATCH,
            "fp32": (BREAKS_TOO,),
            "updates": (SKIPPED, OF_BAD),
        },
    ),
    Cause(
        id="underflow",
        name="The gradients underflow in FP16: the loss is not scaled",
        broken=_underflow,
        repair={"scaler": "checked"},
        advice="Scale the loss: torch.amp.GradScaler.",
        sign="gradients",
        precision=True,
        allows={
            "symptom": (FLAT,),
            "loss": (LEVEL,),
            "first": (NOTHING,),
            "gradients": (ZERO,),
            "scaler": (NO_SCALER,),
            "batch": _SOUND_BATCH,
            "fp32": (TRAINS,),
            # Its weights are FP32: what little survives arrives.
            "updates": (HARDLY, ARRIVE),
        },
    ),
    Cause(
        id="bf16-stall",
        name="The weights are BF16, and the updates are below half a gap",
        broken=_stall,
        repair={"precision": "bf16"},
        advice="Keep master weights in FP32: autocast instead of model.to(torch.bfloat16).",
        sign="updates",
        precision=True,
        allows={
            "symptom": (FLAT,),
            "loss": (LEVEL,),
            "first": (NOTHING,),
            "gradients": (ORDINARY,),
            "scaler": (NO_SCALER,),
            "batch": _SOUND_BATCH,
            "fp32": (TRAINS,),
            "updates": (HARDLY,),
        },
    ),
    Cause(
        id="clip-before-unscale",
        name="The gradients are clipped before they are unscaled",
        broken=_clip,
        repair={"clip": "after unscale_"},
        advice="Call scaler.unscale_(optimizer) before clip_grad_norm_.",
        sign="updates",
        precision=True,
        # It takes a scaler. With autocast and scaler off the limit is what it says.
        allows={
            "symptom": (FLAT,),
            "loss": (LEVEL,),
            "first": (NOTHING,),
            "gradients": (ORDINARY, LARGE),
            "scaler": (STEADY,),
            "batch": _SOUND_BATCH,
            "fp32": (TRAINS,),
            "updates": (HARDLY,),
        },
    ),
    Cause(
        id="shuffled-labels",
        name="The labels belong to other digits",
        broken=_labels,
        repair={"data": "clean"},
        advice="Shuffle images and labels together; look at a batch before training.",
        sign="batch",
        precision=False,
        allows={
            "symptom": (FLAT,),
            "loss": (LEVEL,),
            "first": (NOTHING,),
            "gradients": (ORDINARY,),
            "scaler": (NO_SCALER, STEADY),
            "batch": (WRONG_LABELS,),
            "fp32": (FLAT_TOO,),
            "updates": (ARRIVE,),
        },
    ),
)

CAUSES: Mapping[str, Cause] = MappingProxyType({cause.id: cause for cause in _ALL})
"""Every cause by its id."""
