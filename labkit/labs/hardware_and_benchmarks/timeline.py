"""The timeline of a trace, as profilers draw it: a lane for the host and one for the device."""

from collections.abc import Mapping, Sequence

from labkit.devices.async_device import Span
from labkit.plots import BLUE, ORANGE, Picture, new_axes


def timeline(traces: Mapping[str, Sequence[Span]], *, provenance: str) -> Picture:
    """Two lanes for each trace, over microseconds.

    Args:
        traces: of an ``AsyncDevice``, by the name of the case.
        provenance: how the times were come by, for the caption.
    """
    figure, axes = new_axes(height=0.9 + 0.9 * len(traces))
    spoken, places, names = [], [], []
    for row, (name, spans) in enumerate(traces.items()):
        host = [(1e6 * s.called, 1e6 * (s.queued - s.called)) for s in spans]
        device = [(1e6 * s.start, 1e6 * (s.end - s.start)) for s in spans]
        for lane, bars, color in ((0, host, ORANGE), (1, device, BLUE)):
            y = -(2.4 * row + lane)
            # A white edge parts launches that touch; it would cover a short kernel.
            axes.broken_barh(bars, (y - 0.4, 0.8), fc=color, ec="none" if lane else "white", lw=0.5)
            places.append(y)
            names.append(f"{name}: {('host', 'GPU')[lane]}")
        end = max(s.end for s in spans)
        busy = sum(s.end - s.start for s in spans) / end
        spoken.append(f"{name}: launches {len(spans)}, {1e6 * end:.1f} us, GPU busy {busy:.0%}")
    axes.set_yticks(places, names)
    axes.set_xlabel("microseconds")
    caption = f"Orange: the host launches a kernel. Blue: the GPU runs one. {provenance}"
    return Picture(figure, caption, "; ".join(spoken))
