"""What "cuda" names inside ``emulate_gpu()`` on a machine without CUDA: the CPU.

Most published training loops say ``torch.autocast("cuda")``. Without CUDA torch switches such an
autocast off and warns, and the loop then runs in float32.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch.amp import GradScaler, autocast

MADE_BEFORE = (
    'This torch.autocast("cuda") was made before the block of emulate_gpu() began, and torch '
    "switched it off, because it finds no CUDA here. Make it inside the block, or write "
    'torch.autocast("cpu", dtype=torch.float16).'
)


@contextmanager
def cuda_names_the_cpu() -> Iterator[None]:
    """Autocasts and scalers made for "cuda" inside the block work on the CPU. None with CUDA."""
    if torch.cuda.is_available():
        yield
        return
    replaced = [
        (autocast, "__init__", _autocast_init),
        (autocast, "__enter__", _autocast_enter),
        (autocast, "__exit__", _autocast_exit),
        (GradScaler, "__init__", _scaler_init),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    try:
        for owner, name, make in replaced:
            setattr(owner, name, make(getattr(owner, name)))
        yield
    finally:
        for owner, name, method in before:
            setattr(owner, name, method)


Method = Callable[..., Any]


def _autocast_init(init: Method) -> Method:
    @wraps(init)
    def on_cpu(
        self: Any, device_type: str, dtype: torch.dtype | None = None, *args: Any, **kwargs: Any
    ) -> None:
        cuda = device_type == "cuda"
        if cuda:
            device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
        init(self, device_type, dtype, *args, **kwargs)
        self._labkit_cuda = cuda

    return on_cpu


def _autocast_enter(enter: Method) -> Method:
    """Code that asks torch.is_autocast_enabled() is told what it is told on a GPU."""

    @wraps(enter)
    def on_cpu(self: Any) -> Any:
        if self.device == "cuda":
            raise RuntimeError(MADE_BEFORE)
        entered = enter(self)
        if getattr(self, "_labkit_cuda", False):
            self._labkit_before = (
                torch.is_autocast_enabled("cuda"),
                torch.get_autocast_dtype("cuda"),
            )
            torch.set_autocast_enabled("cuda", self._enabled)
            torch.set_autocast_dtype("cuda", self.fast_dtype)
        return entered

    return on_cpu


def _autocast_exit(leave: Method) -> Method:
    @wraps(leave)
    def on_cpu(self: Any, *exception: Any) -> Any:
        if getattr(self, "_labkit_cuda", False):
            enabled, dtype = self._labkit_before
            torch.set_autocast_enabled("cuda", enabled)
            torch.set_autocast_dtype("cuda", dtype)
        return leave(self, *exception)

    return on_cpu


def _scaler_init(init: Method) -> Method:
    @wraps(init)
    def on_cpu(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        init(self, "cpu" if device == "cuda" else device, *args, **kwargs)

    return on_cpu
