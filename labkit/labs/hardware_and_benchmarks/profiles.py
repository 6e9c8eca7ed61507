"""Profiles of ``torch.profiler``: one that is written down instead of measured, and quiet ones."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from torch.autograd.profiler_util import EventList, FunctionEvent

Call = tuple[str, float, Sequence[Any]]
"""An operator, its own microseconds, and the calls that it makes."""


def written_profile(calls: Sequence[Call]) -> Any:
    """A profile of calls, one after another, with ``key_averages()`` and ``events()`` of torch.

    >>> linear = ("aten::linear", 5.0, [("aten::addmm", 100.0, [])])
    >>> profile = written_profile([linear, ("aten::relu", 20.0, [])])
    >>> [(e.key, e.self_cpu_time_total, e.cpu_time_total) for e in profile.key_averages()]
    [('aten::linear', 5.0, 105.0), ('aten::addmm', 100.0, 100.0), ('aten::relu', 20.0, 20.0)]
    """
    found: list[FunctionEvent] = []

    def add(name: str, own: float, inner: Sequence[Call], start: float) -> float:
        place, end = len(found), start + own
        found.append(None)  # type: ignore[arg-type]
        for call in inner:
            end = add(*call, end)
        found[place] = FunctionEvent(
            id=place, name=name, thread=0, start_us=start, end_us=end, stack=[]
        )
        return end

    now = 0.0
    for call in calls:
        now = add(*call, now)
    events = EventList(found)
    events._build_tree()
    return SimpleNamespace(key_averages=events.key_averages, events=lambda: events)


@contextmanager
def profiler_log_hidden() -> Iterator[None]:
    """Hide two lines that torch 2.13 writes to stderr whenever a profiler starts and stops.

    The C++ library writes them, so the process's stderr goes to nowhere inside the block.
    """
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
