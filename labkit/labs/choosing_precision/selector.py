"""A strategy for a device, by rules, and its change while training is unstable.

``select`` asks ``labkit.devices.recommend``; the size of a model has no part in the choice.
``adjust`` moves one format up after unstable windows in a row and comes back on trial.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from labkit.devices import Device, recommend
from labkit.labs.choosing_precision.sensitivity import Sensitivities
from labkit.training.scaling import LossScale

LADDER = ("fp16", "bf16", "fp32")
"""From the format that fails first to the one that fails last."""
UP = 2
"""Unstable windows in a row that move a strategy one format up."""
WAIT = 20
"""Stable windows in a row before a narrower format is tried again."""
SKIPS = 8
"""Skipped steps in a row that make a window unstable: a first scale may halve some times."""
HISTORY = ("nonfinite_losses", "longest_skip_streak")
"""What is counted in a window of steps."""
_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": None}


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """What a run trains in now, why, and where it may go.

    Args:
        ladder: formats of ``LADDER`` in its order, from the one that the run prefers.
        level: the place in the ladder.
        sensitive: by format, layers that ``analyse`` found beyond the tolerance.
        reasons: a sentence each.
        pinned: the user asked for this format, and ``adjust`` does not leave it.
        moves: what ``adjust`` did, a line each.
        windows, bad, good: windows seen, unstable and stable ones in a row.
        wait: stable windows before the next trial.
        trial: is the format on trial?

    Raises:
        ValueError: a ladder, a level or a count is not as described.
    """

    ladder: tuple[str, ...]
    level: int = 0
    sensitive: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    pinned: bool = False
    moves: tuple[str, ...] = ()
    windows: int = 0
    bad: int = 0
    good: int = 0
    wait: int = WAIT
    trial: bool = False

    def __post_init__(self) -> None:
        if not self.ladder or self.ladder != tuple(f for f in LADDER if f in self.ladder):
            raise ValueError(f"ladder={self.ladder!r}: formats of {LADDER} in this order")
        if not 0 <= self.level < len(self.ladder):
            raise ValueError(f"level={self.level!r}: 0 to {len(self.ladder) - 1}")
        if min(self.windows, self.bad, self.good, self.wait - 1) < 0:
            raise ValueError("windows, bad and good count from 0 on, and wait from 1 on")

    @property
    def name(self) -> str:
        """ "fp16", "bf16" or "fp32"."""
        return self.ladder[self.level]

    @property
    def amp_dtype(self) -> torch.dtype | None:
        """What autocast computes in; None for no autocast."""
        return _DTYPES[self.name]

    @property
    def use_scaler(self) -> bool:
        """Only FP16 scales the loss."""
        return self.name == "fp16"

    @property
    def init_scale(self) -> float | None:
        """The first loss scale, GradScaler's; None without a scaler."""
        return LossScale().scale if self.use_scaler else None

    @property
    def per_layer(self) -> dict[str, str]:
        """Layers that compute in another format than the rest."""
        return dict.fromkeys(self.sensitive.get(self.name, ()), "fp32")


def select(
    device: Device,
    model: nn.Module,
    *,
    override: str | None = None,
    sensitivities: Sensitivities | None = None,
) -> Strategy:
    """The strategy for a model on a device: the device's recipe, or what the user asks for.

    Args:
        override: a format of ``LADDER``; it wins over the recipe, stays, and is a reason.
        sensitivities: of ``analyse``; layers beyond its tolerance stay in FP32.

    Raises:
        ValueError: a model without parameters, a negative memory, another override, or
            sensitivities that did not measure a format of the ladder.
    """
    if not (count := sum(p.numel() for p in model.parameters())):
        raise ValueError("this model has no parameters, so there is nothing to train")
    if device.memory is not None and device.memory < 0:
        raise ValueError(f"memory={device.memory} bytes of {device.name}: pass 0 or more, or None")
    if override not in (None, *LADDER):
        raise ValueError(f"override={override!r}: one of {', '.join(LADDER)}")
    recipe = recommend(device)
    chosen, reasons = override or recipe.dtype, list(recipe.reasons)
    if override:
        reasons.append(f"The user asked for {override}; the rules say {recipe.dtype}.")
    if device.memory is not None and 16 * count > device.memory:
        reasons.append(
            f"FP32 weights, gradients and Adam's state take {16 * count / 1e9:.1f} GB of "
            f"{device.memory / 1e9:.1f} GB: shard or offload them. Autocast does not shrink them."
        )
    if chosen == "fp16" and (attention := attention_layers(model)):
        reasons.append(
            f"Attention in {', '.join(attention)}: its scores can pass 65504. Watch their largest."
        )
    rest = LADDER[LADDER.index(chosen) + 1 :]
    wider = [f for f in rest if f == "fp32" or device.dtypes[f].accelerated.answer]
    sensitive = _sensitive(sensitivities, (chosen, *wider)) if sensitivities else {}
    for name in sensitive.get(chosen, ()):
        reasons.append(f"{name} stays in FP32: in {chosen} it is beyond the tolerance.")
    return Strategy(
        ladder=(chosen, *wider),
        sensitive=sensitive,
        reasons=tuple(reasons),
        pinned=override is not None,
    )


def _sensitive(found: Sensitivities, ladder: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    measured = {"fp32", *(fmt.name for fmt in found.formats)}
    if missing := [fmt for fmt in ladder if fmt not in measured]:
        raise ValueError(f"the sensitivities did not measure {', '.join(missing)}: see formats=")
    return {
        fmt: tuple(row.name for row in found.rows if row.format == fmt and not row.within)
        for fmt in ladder
    }


def attention_layers(model: nn.Module) -> tuple[str, ...]:
    """Modules that attend: by torch's class, or by "attention" or "attn" in a class or a name.

    >>> attention_layers(nn.ModuleDict({"mix": nn.MultiheadAttention(4, 1)}))
    ('mix',)
    """
    found: list[str] = []
    for name, module in model.named_modules():
        classes = (c.__name__ for c in type(module).__mro__)
        words = " ".join((name.rpartition(".")[2], *classes)).lower()
        inside = any(not outer or name.startswith(f"{outer}.") for outer in found)
        if ("attention" in words or "attn" in words) and "norm" not in words and not inside:
            found.append(name)
    return tuple(name or "the model" for name in found)


def adjust(strategy: Strategy, history: Mapping[str, int]) -> Strategy:
    """The strategy after one more window of steps, with a line in ``moves`` for each move.

    A window is unstable with a loss that is not finite or ``SKIPS`` skipped steps in a row. ``UP``
    unstable windows in a row move one format up. ``wait`` stable ones in a row try the format below
    again; if the trial fails, the next one waits twice as long.

    Args:
        history: counts of ``HISTORY`` in the window; one that is left out is 0.

    Raises:
        ValueError: an unknown key, or a count below 0.
    """
    if unknown := sorted(set(history) - set(HISTORY)):
        raise ValueError(f"history has {', '.join(unknown)}: the keys are {', '.join(HISTORY)}")
    if any(count < 0 for count in history.values()):
        raise ValueError(f"history={dict(history)!r}: counts are 0 or more")
    losses, skips = (history.get(key, 0) for key in HISTORY)
    unstable = losses > 0 or skips >= SKIPS
    bad, good = (strategy.bad + 1, 0) if unstable else (0, strategy.good + 1)
    trial = strategy.trial and good < strategy.wait
    seen = replace(strategy, windows=strategy.windows + 1, bad=bad, good=good, trial=trial)
    if bad >= UP and strategy.level + 1 < len(strategy.ladder):
        if strategy.pinned:
            why = f"{bad} unstable windows in a row; {strategy.name} was asked for and stays"
            return replace(seen, moves=_logged(seen, why)) if bad == UP else seen
        wait = strategy.wait * (2 if strategy.trial else 1)
        return _moved(seen, 1, f"{bad} unstable windows in a row", wait=wait, trial=False)
    if good >= strategy.wait and strategy.level > 0:
        return _moved(seen, -1, f"{good} stable windows in a row, on trial", trial=True)
    return seen


def _moved(seen: Strategy, by: int, why: str, **settings: int) -> Strategy:
    after = replace(seen, level=seen.level + by, bad=0, good=0, **settings)
    return replace(after, moves=_logged(seen, f"{seen.name} -> {after.name}, {why}"))


def _logged(seen: Strategy, what: str) -> tuple[str, ...]:
    return (*seen.moves, f"window {seen.windows}: {what}")
