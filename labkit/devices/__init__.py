"""What this machine's devices do with each dtype, which precision to use, and how fast they are.

Read in this order: ``rules`` (pure: a description in, three facts per dtype out), ``probe`` (looks
and tries, in a child process), ``recipe``, ``roofline``, ``async_device``.

>>> h100 = device_of(Description(name="H100", kind="cuda", capability="9.0"))
>>> h100.dtypes["fp8"].accelerated.answer
True
"""

from collections.abc import Iterable

from labkit.devices.async_device import AsyncDevice, BlockingDevice
from labkit.devices.probe import look
from labkit.devices.recipe import Recipe, recommend
from labkit.devices.rules import DTYPES, Description, Device, Fact, Support, Tried, device_of

__all__ = [
    "DTYPES",
    "AsyncDevice",
    "BlockingDevice",
    "Description",
    "Device",
    "Fact",
    "Recipe",
    "Support",
    "Tried",
    "detect",
    "device_of",
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
