"""A figure with its words: what plots return, and records from ``.plot()``."""

import base64
import html
import io
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#888888"
COLORS = (
    BLUE,
    ORANGE,
    "#009e73",
    "#cc79a7",
)  # Okabe and Ito: told apart by colour-blind eyes


@dataclass(frozen=True)
class Picture:
    """A figure with its caption and its words; a screen reader reads ``alt``."""

    figure: Figure
    caption: str
    alt: str

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=144, bbox_inches="tight", facecolor="white")
        source = base64.b64encode(buffer.getvalue()).decode()
        alt = html.escape(self.alt)
        image = f'<img style="max-width: 100%" alt="{alt}" src="data:image/png;base64,{source}">'
        caption = f"<figcaption>{html.escape(self.caption)}</figcaption>"
        return {
            "text/plain": repr(self),
            "text/html": f'<figure style="margin: 0; max-width: 46em">{image}{caption}</figure>',
        }

    def __repr__(self) -> str:
        return f"{self.caption}\n{self.alt}"


def new_axes(*, height: float) -> tuple[Figure, Axes]:
    """A figure of that height in inches, and its axes without a frame above and to the right."""
    figure = Figure(figsize=(8, height), layout="constrained")
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes
