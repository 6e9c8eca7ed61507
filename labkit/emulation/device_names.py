"""``torch.autocast("cuda")`` inside ``emulate_gpu()`` on a machine without CUDA: refused.

torch would switch it off and warn. The loop would then run in float32, and look emulated.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch.amp import autocast

WRITE = (
    'emulate_gpu() computes on the CPU: write torch.autocast("cpu", dtype=torch.float16), and '
    'torch.amp.GradScaler("cpu"), or pass the device.type of your tensors. There is no CUDA here, '
    'so torch.autocast("cuda"), torch.cuda.amp.autocast() and their scalers would do nothing.'
)


@contextmanager
def cuda_refused() -> Iterator[None]:
    """A block in which an autocast for "cuda" raises, on a machine without CUDA.

    One that is made with ``enabled=False`` does not: torch's checkpoints make such ones.

    Raises:
        RuntimeError: what to write instead.
    """
    if torch.cuda.is_available():
        yield
        return
    attribute, before = "__init__", autocast.__init__

    @wraps(before)
    def init(
        self: autocast,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        *rest: Any,
        **more: Any,
    ) -> None:
        if device_type == "cuda" and enabled:
            raise RuntimeError(WRITE)
        before(self, device_type, dtype, enabled, *rest, **more)

    setattr(autocast, attribute, init)
    try:
        yield
    finally:
        setattr(autocast, attribute, before)
