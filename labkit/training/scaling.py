"""Loss scaling as a small state machine: what the loss is multiplied by, and what is next.

The state is two numbers, the scale and how many good steps it has lasted. A step whose gradients
held an inf or a NaN shrinks the scale; a long run of good steps grows it. That needs no tensor. The
scale is a float32 in ``torch.amp.GradScaler``, and so it is here, to the bit: in float64, factors
such as 1.1 and 0.9 part company at step 2.
"""

import ctypes
import math
from dataclasses import asdict, dataclass, replace


class NumericalInstability(RuntimeError):
    """As many steps in a row were skipped as are allowed: gradients or the loss were not finite."""


def to_float32(x: float) -> float:
    """The float32 nearest to x; inf beyond its range.

    >>> to_float32(0.1), to_float32(1e39), to_float32(2.0**-150)
    (0.10000000149011612, inf, 0.0)
    """
    return ctypes.c_float(x).value


@dataclass(frozen=True)
class LossScale:
    """The state of a loss scaler between two steps; the defaults are ``GradScaler``'s.

    Args:
        scale: what the loss is multiplied by; rounded to float32.
        growth_factor, backoff_factor: what the scale is multiplied by when it grows or shrinks.
        growth_interval: good steps in a row before the scale grows.
        growth_tracker: good steps in a row so far; 0 again when the scale grows or shrinks.

    Raises:
        ValueError: a scale that is not positive and finite in float32, a ``growth_factor`` of at
            most 1 or not finite, a ``backoff_factor`` outside 0 to 1, a ``growth_interval`` below
            1, a negative ``growth_tracker``. Both factors 1 together are a static scale.

    Nothing stops the scale from shrinking. Below 2**-149 it rounds to 0.0, and there it stays: the
    scaled loss is 0, its gradients times 1 / 0 are NaN, and the next step ruins the parameters.

    Source: torch, ATen/native/cpu/AmpGradScalerKernels.cpp.

    >>> LossScale(scale=8.0).updated(True).scale
    4.0
    >>> LossScale(scale=8.0, growth_interval=2).updated(False).updated(False).scale
    16.0
    """

    scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    growth_tracker: int = 0

    def __post_init__(self) -> None:
        both = (self.growth_factor, self.backoff_factor)
        if both != (1, 1) and not 1 < self.growth_factor < math.inf:
            raise ValueError(
                f"growth_factor={self.growth_factor!r} does not grow the scale: pass a finite "
                "number above 1, such as 2.0, or use LossScale.static(scale)"
            )
        if both != (1, 1) and not 0 < self.backoff_factor < 1:
            raise ValueError(
                f"backoff_factor={self.backoff_factor!r} does not shrink the scale: pass a number "
                "between 0 and 1, such as 0.5, or use LossScale.static(scale)"
            )
        for name, least in (("growth_interval", 1), ("growth_tracker", 0)):
            steps = getattr(self, name)
            if not isinstance(steps, int) or steps < least:
                raise ValueError(f"{name}={steps!r} good steps: pass an int from {least} on")
        object.__setattr__(self, "scale", to_float32(self.scale))
        if not 0 < self.scale < math.inf:
            raise ValueError(
                f"scale is {self.scale!r} as a float32: pass a positive number that is neither 0 "
                "nor inf there (2**-149 to 3.4e38). GradScaler starts at 65536.0"
            )

    @classmethod
    def static(cls, scale: float) -> "LossScale":
        """A scale that never changes. Too small, and gradients are still 0; too large, and every
        step is skipped.

        >>> LossScale.static(128.0).updated(True).scale
        128.0
        """
        return cls(scale, growth_factor=1.0, backoff_factor=1.0)

    @property
    def is_static(self) -> bool:
        return self.growth_factor == self.backoff_factor == 1

    def updated(self, found_inf: bool) -> "LossScale":
        """The state after a step whose gradients held an inf or a NaN, or did not."""
        if self.is_static:
            return self
        if found_inf:
            return self._at(to_float32(self.scale * self.backoff_factor), growth_tracker=0)
        if (good_steps := self.growth_tracker + 1) != self.growth_interval:
            return self._at(self.scale, growth_tracker=good_steps)
        grown = to_float32(self.scale * self.growth_factor)
        return self._at(grown if math.isfinite(grown) else self.scale, growth_tracker=0)

    def _at(self, scale: float, *, growth_tracker: int) -> "LossScale":
        """This rule in another state. A state that was reached may have the scale 0.0."""
        state = replace(self, scale=1.0, growth_tracker=growth_tracker)
        object.__setattr__(state, "scale", scale)
        return state

    def to_state_dict(self) -> dict[str, float | int]:
        """The state as ``torch.amp.GradScaler.load_state_dict`` takes it."""
        state = asdict(self)
        return state | {"_growth_tracker": state.pop("growth_tracker")}
