"""What this machine's devices do with each dtype, which precision to use, and how fast they are.

Read in this order: ``rules`` (pure: a description in, three facts per dtype out), ``probe`` (looks
and tries, in a child process), ``recipe``, ``measuring``, ``async_device``.

>>> h100 = device_of(Description(name="H100", kind="cuda", capability="9.0"))
>>> h100.dtypes["fp8"].accelerated.answer
True
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from labkit.hardware.async_device import AsyncDevice
from labkit.hardware.probe import look
from labkit.hardware.recipe import Recipe, recommend
from labkit.hardware.rules import DTYPES, Description, Device, Fact, Support, Tried, device_of

if TYPE_CHECKING:
    from labkit.hardware.measuring import Measurement, measure

__all__ = [
    "DTYPES",
    "AsyncDevice",
    "Description",
    "Device",
    "Fact",
    "Measurement",
    "Recipe",
    "Support",
    "Tried",
    "detect",
    "device_of",
    "measure",
    "recommend",
]


def detect(
    descriptions: Iterable[Description] | None = None, *, seconds: float = 120
) -> list[Device]:
    """The devices of this machine, or of the descriptions given, accelerators first.

    Each dtype is tried in a child process with a time limit: a trial that crashes or hangs is
    reported in its facts, never raised.

    >>> detect([Description(name="Tesla V100", kind="cuda", capability="7.0")])[0].dtypes[
    ...     "bf16"].accelerated.answer
    False
    """
    found = look(seconds=seconds).devices if descriptions is None else descriptions
    return [device_of(description) for description in found]


def __getattr__(name: str) -> object:
    """``measure`` needs torch, which is what may be missing where ``detect`` is asked."""
    if name in ("Measurement", "measure"):
        from labkit.hardware import measuring

        return getattr(measuring, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
