"""What ``torch.cuda`` says on a machine with another GPU: its questions, answered for one card.

Only questions are answered, and the answers of ``is_bf16_supported`` are torch's own code at work.
A tensor on such a GPU cannot be made.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import torch

from labkit.devices.fp32_products import fp32_products_pinned


@contextmanager
def simulated_gpu(name: str, capability: tuple[int, int]) -> Iterator[Callable[[], str]]:
    """Inside the block ``torch.cuda`` knows one NVIDIA GPU, of this name and compute capability.

    ``fp32_precision`` is "ieee" at the beginning, and as before after the block. The block gets a
    function that reads what it is for CUDA's matmuls.

    >>> with simulated_gpu("Tesla T4", (7, 5)):
    ...     torch.cuda.get_device_capability(), torch.cuda.is_bf16_supported()
    ((7, 5), True)
    """
    major, minor = capability
    properties = SimpleNamespace(name=name, major=major, minor=minor)
    answers = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda device=None: name,
        "get_device_capability": lambda device=None: capability,
        "get_device_properties": lambda device=None: properties,
        # torch makes a BF16 tensor to find out: any GPU can.
        "_check_bf16_tensor_supported": lambda device: True,
    }
    older, everywhere = _older_settings(), torch.backends.fp32_precision
    with (
        patch.multiple(torch.cuda, **answers),
        patch.object(torch.version, "hip", None),
        fp32_products_pinned("ieee"),
        fp32_products_pinned("ieee", device="cpu"),  # the older settings change both
    ):
        try:
            yield lambda: torch.backends.cuda.matmul.fp32_precision
        finally:
            torch.backends.fp32_precision = everywhere
            if older:  # before fp32_precision, which they change too
                torch.set_float32_matmul_precision(older[0])
                torch.backends.cudnn.allow_tf32 = older[1]


def _older_settings() -> tuple[str, bool] | None:
    """torch's older settings of TF32; None where torch refuses to read them.

    It does so once they contradict ``fp32_precision``.
    """
    try:
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:
        return None
