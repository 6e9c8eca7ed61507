"""How the records of measuring show themselves: a table for a notebook, intervals as a figure."""

import html
from collections.abc import Mapping, Sequence

from matplotlib.ticker import AutoLocator, NullLocator

from labkit.base.home import BLUE, GREY, Picture, new_axes


def readable_bytes(count: float) -> str:
    """Bytes in the largest unit that leaves 1 or more, such as "128 MiB"."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def table(rows: Sequence[Mapping[str, str]], *, above: Sequence[str], below: str = "") -> str:
    """An HTML table with lines of text above it; a column that is empty in all rows is left out."""
    columns = [name for name in rows[0] if any(row[name] for row in rows)]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(row[name])}</td>" for name in columns) + "</tr>"
        for row in rows
    )
    said = "".join(f"<p>{html.escape(line)}</p>" for line in above)
    note = f"<p>{html.escape(below)}</p>" if below else ""
    return f"{said}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def intervals(
    rows: Mapping[str, tuple[Sequence[float], float, float, float, str]],
    *,
    none: float,
    margin: tuple[float, float],
    label: str,
    caption: str,
) -> Picture:
    """A row for each comparison: its pairs as dots, its interval as a bar, the margin as a band.

    Args:
        rows: name -> the pairs' values, low end, middle and high end (NaN without an interval), and
            the answer, or "A/A control".
        none: the value that means no difference; where it is 1 the axis is logarithmic.
        margin: the ends of the band.
    """
    figure, axes = new_axes(height=1.1 + 0.6 * len(rows))
    axes.axvspan(*margin, color="#dddddd", lw=0)
    axes.axvline(none, color=GREY, lw=1)
    spoken = []
    for y, (name, (values, low, middle, high, answer)) in enumerate(rows.items()):
        axes.plot(values, [y + 0.22] * len(values), ".", color=GREY, ms=5)
        axes.plot([low, high], [y, y], lw=4, color=BLUE, solid_capstyle="butt")
        axes.plot([middle], [y], "o", color=BLUE, ms=8)
        spoken.append(f"{name}: {middle:.3f}, from {low:.3f} to {high:.3f}, {answer}")
    axes.set_yticks(range(len(rows)), [f"{name}\n{row[-1]}" for name, row in rows.items()])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    if none == 1:
        axes.set_xscale("log")
        axes.xaxis.set(
            major_locator=AutoLocator(), major_formatter="{x:g}", minor_locator=NullLocator()
        )
    axes.set_xlabel(label)
    band = f"Grey band: the margin, {margin[0]:.3g} to {margin[1]:.3g}"
    return Picture(
        figure, f"{caption} Dots: pairs. Bars: 95 % intervals. {band}.", f"{'. '.join(spoken)}."
    )
