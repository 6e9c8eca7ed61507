"""DescribedWidget: a widget whose words say all that its picture shows.

The words are what ``print`` shows, what a plain notebook shows instead of the picture, and what
nbval compares: a default repr would hold an address.
"""

from typing import Any

import anywidget


class DescribedWidget(anywidget.AnyWidget):
    """Base of the course's widgets; each says in ``describe()`` what it shows."""

    def describe(self) -> str:
        """Say in words all that the picture shows."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.describe()

    def _repr_mimebundle_(self, **selected: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        data, metadata = super()._repr_mimebundle_(**selected)
        return data | {"text/plain": self.describe()}, metadata  # anywidget cuts it short
