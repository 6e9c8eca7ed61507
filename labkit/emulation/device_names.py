"""What "cuda" means to ``torch.amp`` inside ``emulate_gpu()``, on a machine without CUDA.

torch switches an autocast or a scaler for "cuda" off here, and warns. A loop would then run in
float32, and look emulated. So inside a block, one that is to be on is refused. Whatever else speaks
of "cuda" speaks of the CPU: an FP32 island (``enabled=False``), ``custom_fwd``, ``custom_bwd``,
torch's checkpoints, and the functions that ask for autocast's state or set it.

An island looks like an autocast that torch switched off. So from the import of this module on, each
autocast and each scaler notes whether it was to be on, as ``asked_enabled``.
"""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any

import torch
from torch.amp import GradScaler, autocast, autocast_mode

WRITE = (
    'emulate_gpu() computes on the CPU: write torch.autocast("cpu", dtype=torch.float16) and '
    'torch.amp.GradScaler("cpu"), or pass the device.type of your tensors. There is no CUDA here, '
    'and what torch.amp makes for "cuda" does nothing.'
)
TOO_EARLY = (
    'An autocast or a scaler for "cuda" is older than labkit.emulation, and off. Nobody can tell '
    f"whether you or torch switched it off: import labkit.emulation before you make it. {WRITE}"
)
SWITCHED_OFF = {
    autocast: "CUDA is not available or torch_xla is imported. Disabling autocast.",
    GradScaler: "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.",
}
"""torch's warnings. Given here, because torch would now name this file as the caller."""
PASSES_ON = ("torch.amp.autocast_mode", "torch.utils.checkpoint")
"""Modules of torch that make an autocast in a state that they asked for: custom_bwd, checkpoint."""
OTHER = {"cpu": "cuda", "cuda": "cpu"}
SETTERS = {
    "set_autocast_enabled": "cuda",
    "set_autocast_dtype": "cuda",
    "set_autocast_gpu_dtype": "cuda",
    "set_autocast_cpu_enabled": "cpu",
    "set_autocast_cpu_dtype": "cpu",
}
"""torch's functions that set autocast's state, and the device of a call that names none."""
Function = Callable[..., Any]

_set_enabled, _set_dtype = torch.set_autocast_enabled, torch.set_autocast_dtype
_refusing = False
_INIT = "__init__"


def _noting(init: Function, warning: str) -> Function:
    """The ``__init__`` of autocast or GradScaler, which also notes whether it was to be on."""
    signature = inspect.signature(init)
    _, device, *_ = signature.parameters

    @wraps(init)
    def noting(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        asked, is_cuda = given.arguments["enabled"], given.arguments[device] == "cuda"
        if asked and is_cuda and torch.cuda.amp.common.amp_definitely_not_available():
            if sys._getframe(1).f_globals.get("__name__") in PASSES_ON:
                given.arguments[device] = "cpu"
            elif _refusing:
                raise RuntimeError(WRITE)
            else:
                warnings.warn(warning, stacklevel=2)
                given.arguments["enabled"] = False
        init(*given.args)
        given.args[0].asked_enabled = asked

    return noting


def _checked(method: Function, device: str) -> Function:
    """A method that refuses what was to be on for "cuda"; ``device`` names its attribute."""

    @wraps(method)
    def checked(self: Any, *args: Any) -> Any:
        if getattr(self, device, None) == "cuda":
            if not hasattr(self, "asked_enabled"):
                raise RuntimeError(TOO_EARLY)
            if self.asked_enabled:
                raise RuntimeError(WRITE)
        return method(self, *args)

    return checked


def _mirror(device: str) -> None:
    """Give the CPU's autocast to CUDA's, or the reverse; the dtype only while it is on."""
    enabled = torch.is_autocast_enabled(device)
    _set_enabled(OTHER[device], enabled)
    if enabled:
        _set_dtype(OTHER[device], torch.get_autocast_dtype(device))


def _mirroring(setter: Function, device: str) -> Function:
    @wraps(setter)
    def both(*args: Any, **kwargs: Any) -> None:
        setter(*args, **kwargs)
        first = kwargs.get("device_type", args[0] if args else device)
        named = first if isinstance(first, str) else device
        if named in OTHER:
            _mirror(named)

    return both


def _cast_on_cpu(cast: Function) -> Function:
    """What casts the inputs of custom_fwd: those on the CPU, where it would cast those on CUDA."""

    @wraps(cast)
    def on_cpu(value: Any, device_type: str, dtype: torch.dtype) -> Any:
        return cast(value, "cpu" if device_type == "cuda" else device_type, dtype)

    return on_cpu


@contextmanager
def _replaced(owner: Any, name: str, replace: Callable[[Function], Function]) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, replace(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def cuda_means_cpu() -> Iterator[None]:
    """A block in which "cuda" means the CPU to torch.amp, on a machine without CUDA.

    Raises (by what is made for "cuda" and to be on):
        RuntimeError: what to write instead.
    """
    global _refusing
    if torch.cuda.is_available():
        yield
        return
    before = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in OTHER]
    with ExitStack() as block:
        for name, device in SETTERS.items():
            block.enter_context(_replaced(torch, name, partial(_mirroring, device=device)))
        for owner, name, replace in (
            (autocast, "__enter__", partial(_checked, device="device")),
            (GradScaler, "scale", partial(_checked, device="_device")),
            (autocast_mode, "_cast", _cast_on_cpu),
        ):
            block.enter_context(_replaced(owner, name, replace))
        _refusing = True
        _mirror("cpu")
        try:
            yield
        finally:
            _refusing = False
            for device, enabled, dtype in before:
                _set_enabled(device, enabled)
                _set_dtype(device, dtype)


for _class, _warning in SWITCHED_OFF.items():
    setattr(_class, _INIT, _noting(getattr(_class, _INIT), _warning))
