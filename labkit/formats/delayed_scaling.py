"""Delayed scaling: the scale of a cast from the largest magnitudes of earlier steps, as pure state.

Scaling by the tensor's own amax reads the tensor twice: once for the amax, once for the cast.
Transformer Engine's delayed recipe casts with a scale from earlier steps instead, and notes the
amax on the way. A value above everything in the history then overflows, so the caller saturates.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from labkit.formats.float_formats import FP32, FloatFormat

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class AmaxHistory:
    """The amaxes of the last ``length`` casts of one tensor of a model, and the scale they give.

    Cast with ``scale`` first and ``observe`` after: a step's own amax counts from the next on.

    Args:
        length: casts that are remembered; Transformer Engine's default is 1024.
        margin: powers of two of headroom, so 1 halves the scale; there the default is 0.
        amaxes: what was observed, the latest last.
        largest: the amax that the scale is made of, 0 before there is one above 0.

    Raises ValueError for a length below 1 and a margin below 0.

    Source: Transformer Engine's ``DelayedScaling`` with ``amax_compute_algo="max"``. It notes an
    inf and keeps its scale until the inf has left the history; here inf and NaN are not noted.

    >>> from labkit.formats import E4M3
    >>> history = AmaxHistory(2).observe(7.0).observe(3.5)
    >>> history.scale(E4M3), history.observe(1.0).scale(E4M3)
    (64.0, 128.0)
    """

    length: int
    margin: int = 0
    amaxes: tuple[float, ...] = ()
    largest: float = 0.0

    def __post_init__(self) -> None:
        if type(self.length) is not int or self.length < 1:
            raise ValueError(f"length must be an int from 1 on, got {self.length!r}")
        if type(self.margin) is not int or self.margin < 0:
            raise ValueError(f"margin must be an int from 0 on, got {self.margin!r}")

    def observe(self, amax: "float | Tensor") -> "AmaxHistory":
        """The state after a cast of a tensor whose largest magnitude is ``amax``.

        inf and NaN leave the state as it is. Where all that is remembered is 0, the scale stays.
        Raises ValueError for a negative amax.
        """
        amax = float(amax)
        if amax < 0:
            raise ValueError(f"amax is the largest magnitude, so not negative; got {amax}")
        if not math.isfinite(amax):
            return self
        amaxes = (*self.amaxes, amax)[-self.length :]
        return replace(self, amaxes=amaxes, largest=max(amaxes) or self.largest)

    def scale(self, fmt: FloatFormat) -> float:
        """What to multiply the next tensor by: ``fmt.max / largest / 2**margin``.

        1.0 before an amax above 0 was observed, and never more than float32's largest value. The
        descale of ``ScaledTensor`` and ``F.scaled_mm`` is the reciprocal.
        """
        if not self.largest:
            return 1.0
        return min(fmt.max / self.largest / 2**self.margin, FP32.max)

    def to_state_dict(self) -> dict[str, Any]:
        """The state as numbers and a list, for a checkpoint."""
        return {
            "length": self.length,
            "margin": self.margin,
            "amaxes": list(self.amaxes),
            "largest": self.largest,
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> "AmaxHistory":
        """The state that ``to_state_dict`` gave."""
        return cls(**{**state, "amaxes": tuple(state["amaxes"])})
