"""What a float32 product means on CUDA: IEEE float32, or TF32.

It keeps a run called fp32 from being TF32 unnoticed: cuDNN's convolutions and RNNs are TF32 unless
told otherwise. Only ``fp32_precision`` is used: once it was written, torch refuses to read the
older flags.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def fp32_products_pinned(kind: str) -> Iterator[None]:
    """CUDA's float32 products are "ieee" or "tf32" inside the block, afterwards as before."""
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    switches = (cuda.matmul, cudnn.conv, cudnn.rnn)
    before = [switch.fp32_precision for switch in switches]
    try:
        for switch in switches:
            switch.fp32_precision = kind
        yield
    finally:
        for switch, precision in zip(switches, before, strict=True):
            switch.fp32_precision = "none"
            # A precision inherited from torch.backends reads the same and is not set again.
            if switch.fp32_precision != precision:
                switch.fp32_precision = precision
