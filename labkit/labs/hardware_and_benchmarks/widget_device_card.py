"""DeviceCard: what a device does with each dtype, and how one knows.

Python wrote every sentence; the page shows the device that is chosen and the reason that is asked
for.
"""

from collections.abc import Sequence
from pathlib import Path

import traitlets

from labkit.devices import Device, recommend
from labkit.devices.rules import in_gib
from labkit.labs.engine.described import DescribedWidget

_FACTS = ("storable", "computable", "accelerated")


class DeviceCard(DescribedWidget):
    """The three facts of each dtype on a device, with their evidence, and the recipe.

    ``chosen`` can be read, set and observed: the number of the device.

    Args:
        devices: what ``labkit.devices.detect`` returns, or any others.

    Raises:
        ValueError: no device. TraitError: ``chosen`` is no number of a device.
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    chosen = traitlets.Int(0).tag(sync=True)
    cards = traitlets.List().tag(sync=True)

    def __init__(self, devices: Sequence[Device]) -> None:
        if not devices:
            raise ValueError("there is no device: pass at least one, such as those of detect()")
        self._devices = tuple(devices)
        super().__init__(cards=[_card(device) for device in devices])

    @traitlets.validate("chosen")
    def _one_of_them(self, proposal: dict) -> int:
        if not 0 <= proposal["value"] < len(self._devices):
            raise traitlets.TraitError(f"chosen is 0 to {len(self._devices) - 1}")
        return proposal["value"]

    def describe(self) -> str:
        """Say in words all that the card shows; also what print and a plain notebook show."""
        device = self._devices[self.chosen]
        return "\n".join([device.describe(), *self.cards[self.chosen]["reasons"]])


def _card(device: Device) -> dict:
    recipe = recommend(device)
    memory = in_gib(device.memory) if device.memory else ""
    return {
        "name": device.name,
        "about": ", ".join(filter(None, [device.kind, device.capability, memory])),
        "matrix": f"matrix units: {device.matrix_units.word}",
        "matrix_why": device.matrix_units.why,
        "dtype": recipe.dtype,
        "recipe": recipe.dtype.upper() + (" with a loss scale" if recipe.scaler else ""),
        "reasons": list(recipe.reasons),
        "code": recipe.code,
        "rows": [
            {
                "dtype": dtype,
                "facts": [
                    {
                        "fact": name,
                        "answer": fact.word,
                        "why": f"{dtype}, {name}: {fact.word}. {fact.why} ({fact.evidence}).",
                    }
                    for name, fact in zip(
                        _FACTS,
                        (support.storable, support.computable, support.accelerated),
                        strict=True,
                    )
                ],
            }
            for dtype, support in device.dtypes.items()
        ],
    }
