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

from labkit.labs.detective.broken_runs import RunSettings
from labkit.labs.texts import Text

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

IN_CHINESE: Mapping[str, str] = MappingProxyType(
    {
        NAN: "损失不是有限值",
        FLAT: "损失几乎不动",
        SUDDEN: "出问题前没有上升",
        CLIMBS: "出问题前先上升",
        LEVEL: "一条平线",
        EMBED: "嵌入层",
        ATTENTION: "注意力",
        LOSS: "损失",
        GRADIENTS: "梯度",
        WEIGHTS: "权重",
        LATER: "其他部分",
        NOTHING: "没有异常",
        ORDINARY: "正常的值",
        ZERO: "零",
        BAD: "inf 或 NaN",
        LARGE: "很大的值",
        NO_LOSS: "没有可求导的损失",
        NO_SCALER: "没有 scaler",
        STEADY: "没有跳过的步",
        FALLS: "缩放因子一路下降",
        SHARP_SCORES: "注意力分数大于 11",
        FAR_LOGITS: "logits 相差超过 11",
        HUGE: "极大的值",
        NAN_PIXEL: "有 NaN 像素",
        NO_LABELS: "一个标签也没有",
        WRONG_LABELS: "标签属于别的数字",
        EMPTY_DIGIT: "有一个数字的所有行都被掩掉",
        CLEAN: "没有异常之处",
        TRAINS: "能正常训练",
        BREAKS_TOO: "同样出问题",
        FLAT_TOO: "同样不下降",
        ARRIVE: "更新写进了权重",
        HARDLY: "权重几乎不动",
        SKIPPED: "一步也没有更新",
        WRECKED: "梯度有限，权重却坏了",
        TOO_LARGE: "更新与权重一样大",
        OF_BAD: "由非有限梯度算出的更新",
    }
)
"""Each finding in Chinese."""


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
        broken: settings that a seed's random numbers choose, over a sound ``RunSettings``.
        repair: the changed settings.
        advice: the repair, in words.
        sign: the instrument that shows the mechanism at work.
        allows: instrument -> findings that this cause can show; "symptom" too. An instrument
            that is not there: any but those of ``_ONLY``.
        precision: whether float32 would have been spared.
    """

    id: str
    name: Text
    broken: Callable[[random.Random], dict]
    repair: Mapping[str, object]
    advice: Text
    sign: str
    allows: Mapping[str, tuple[str, ...]]
    precision: bool

    def settings(self, seed: int) -> RunSettings:
        """The broken run that a seed draws; the other seeds break in other steps and settings."""
        source = random.Random(f"{self.id} {seed}")
        empty = tuple(sorted(source.sample(range(6, 60), 3)))
        return replace(RunSettings(seed=seed, empty_steps=empty), **self.broken(source))

    def can_show(self, instrument: str, finding: str) -> bool:
        """Whether a run of this cause, and of no other, may give that finding."""
        if instrument in self.allows:
            return finding in self.allows[instrument]
        return finding not in _ONLY

    def repaired(self, settings: RunSettings) -> RunSettings:
        """The same run with this cause repaired, and nothing else."""
        return replace(settings, **self.repair)


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
        name=Text(
            en="Adam's eps is 0 in FP16: zero over zero",
            zh="Adam 的 eps 在 FP16 中为 0：零除以零",
        ),
        broken=_adam_eps,
        repair={"eps": 1e-4},
        advice=Text(
            en="eps=1e-4, or master weights and Adam's state in FP32.",
            zh="使用 eps=1e-4，或用 FP32 保存主权重和 Adam 的状态。",
        ),
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
        name=Text(
            en="A softmax without the shift by its maximum overflows in FP16",
            zh="softmax 没有先减去最大值，在 FP16 中溢出",
        ),
        broken=_bare_softmax,
        repair={"softmax": "shifted"},
        advice=Text(
            en="Subtract the row's maximum before exp: torch.softmax does, and runs in FP32.",
            zh="在 exp 之前减去每行的最大值：torch.softmax 会这样做，并以 FP32 计算。",
        ),
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
        name=Text(
            en="A mask of -1e9 becomes -inf in FP16, and a row is masked throughout",
            zh="-1e9 的掩码在 FP16 中变成 -inf，而有一行被全部掩掉",
        ),
        broken=_mask,
        repair={"mask": "least"},
        advice=Text(
            en="Mask with torch.finfo(dtype).min / 2, or compute the masked softmax in FP32.",
            zh="用 torch.finfo(dtype).min / 2 作掩码，或在 FP32 中计算带掩码的 softmax。",
        ),
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
        name=Text(
            en="The loss takes the log of a probability kept in FP16",
            zh="损失对以 FP16 保存的概率取对数",
        ),
        broken=_log_zero,
        repair={"loss": "cross entropy"},
        advice=Text(
            en="Give F.cross_entropy the logits: it never forms the probability.",
            zh="把 logits 直接交给 F.cross_entropy：它不会单独算出这个概率。",
        ),
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
        name=Text(
            en="The loss scale grows for ever: nobody looks for inf",
            zh="损失缩放因子一直增大：没有人检查 inf",
        ),
        broken=_unchecked,
        repair={"scaler": "checked"},
        advice=Text(
            en="Use torch.amp.GradScaler: skip a step with inf or NaN, and halve the scale.",
            zh="使用 torch.amp.GradScaler：遇到 inf 或 NaN 时跳过该步，并把缩放因子减半。",
        ),
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
        name=Text(
            en="There is a NaN in the data",
            zh="数据里有一个 NaN",
        ),
        broken=_nan_pixel,
        repair={"data": "clean"},
        advice=Text(
            en="Drop or mend the sample, and let the loader refuse what is not finite.",
            zh="删掉或修复该样本，并让数据加载器拒收非有限值。",
        ),
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
        name=Text(
            en="The loss divides by the number of labels, and a batch has none",
            zh="损失除以标签个数，而有一个批次没有标签",
        ),
        broken=_empty_mean,
        repair={"mean": "guarded"},
        advice=Text(
            en="Divide by labelled.clamp(min=1), or leave such a batch out.",
            zh="除以 labelled.clamp(min=1)，或跳过这样的批次。",
        ),
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
        name=Text(
            en="The learning rate is too high",
            zh="学习率太高",
        ),
        broken=_lr,
        repair={"lr": 0.1},
        advice=Text(
            en="Lower the learning rate, warm it up, or clip the gradients.",
            zh="降低学习率、做学习率预热，或裁剪梯度。",
        ),
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
        name=Text(
            en="A square root at 0: the backward pass makes a NaN",
            zh="在 0 处开平方：反向传播产生 NaN",
        ),
        broken=_root,
        repair={"norm_eps": "below the root"},
        advice=Text(
            en="Put eps below the root: its slope at 0 is infinite, and times 0 that is NaN.",
            zh="把 eps 放到根号里面：平方根在 0 处的导数是无穷大，乘以 0 就是 NaN。",
        ),
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
        name=Text(
            en="The gradients underflow in FP16: the loss is not scaled",
            zh="梯度在 FP16 中下溢：没有做损失缩放",
        ),
        broken=_underflow,
        repair={"scaler": "checked"},
        advice=Text(
            en="Scale the loss: torch.amp.GradScaler.",
            zh="使用损失缩放：torch.amp.GradScaler。",
        ),
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
        name=Text(
            en="The weights are BF16, and the updates are below half a gap",
            zh="权重是 BF16，更新量不到半个间隔",
        ),
        broken=_stall,
        repair={"precision": "bf16"},
        advice=Text(
            en="Keep master weights in FP32: autocast instead of model.to(torch.bfloat16).",
            zh="用 FP32 保存主权重：使用 autocast，而不是 model.to(torch.bfloat16)。",
        ),
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
        name=Text(
            en="The gradients are clipped before they are unscaled",
            zh="梯度在反缩放之前就被裁剪",
        ),
        broken=_clip,
        repair={"clip": "after unscale_"},
        advice=Text(
            en="Call scaler.unscale_(optimizer) before clip_grad_norm_.",
            zh="先调用 scaler.unscale_(optimizer)，再调用 clip_grad_norm_。",
        ),
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
        name=Text(
            en="The labels belong to other digits",
            zh="标签与数字图像错位",
        ),
        broken=_labels,
        repair={"data": "clean"},
        advice=Text(
            en="Shuffle images and labels together; look at a batch before training.",
            zh="打乱时让图像和标签保持对应；训练前先看一个批次。",
        ),
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
