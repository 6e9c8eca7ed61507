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


def _linear(own: float, matmul: float) -> Call:
    return "aten::linear", own, [("aten::t", 3.0, []), ("aten::addmm", matmul, [])]


def _backward(own: float, matmul: float) -> Call:
    inner = ("AddmmBackward0", own, [("aten::t", 2.0, []), *[("aten::mm", matmul, [])] * 2])
    return "autograd::engine::evaluate_function: AddmmBackward0", 4.0, [inner]


_ATTENTION = ("aten::matmul", 6.0, [("aten::expand", 2.0, []), ("aten::bmm", 45.0, [])])
_NORM = ("aten::layer_norm", 5.0, [("aten::native_layer_norm", 35.0, [])])
_LOADER = ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 150.0, [])
_ADAM = (
    "Optimizer.step#AdamW.step",
    20.0,
    [("aten::addcmul_", 30.0, []), ("aten::mul_", 25.0, [])],
)
STEPS = {
    "a linear layer": ([_linear(9.0, 100.0), _backward(6.0, 90.0)], 2.0),
    "attention": ([_linear(5.0, 80.0), _ATTENTION, _NORM, _ATTENTION, _backward(6.0, 75.0)], 8.0),
    "a slow loader": ([_LOADER, _linear(4.0, 60.0), _backward(5.0, 55.0), _ADAM], 2.0),
    "no matmul": ([_NORM, _ADAM], 4.0),
    "matmuls that become slower": ([_linear(4.0, 200.0), _NORM, _backward(5.0, 190.0)], 0.5),
    "matmuls in no time": ([_linear(5.0, 700.0), _NORM, _backward(6.0, 650.0), _ADAM], 1e9),
}
"""The calls of a training step, and by what factor its matmuls become faster, by name."""


def drawn_step(own: float, matmul: float) -> list[Call]:
    """A forward pass and an update whose linear layer takes these microseconds."""
    return [_linear(own, matmul), _NORM, _ATTENTION, _ADAM]


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
