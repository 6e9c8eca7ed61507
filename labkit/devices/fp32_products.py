"""What a float32 product means: IEEE float32, or something faster and narrower such as TF32.

It keeps a run called fp32 from being narrower unnoticed: cuDNN's convolutions and RNNs are TF32
unless told otherwise, and oneDNN on a CPU takes BF16 where it is told to. Only
``fp32_precision`` is used: once it was written, torch refuses to read the older flags.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_backends = torch.backends
SWITCHES = {
    # torch's types leave out what it puts into these modules when they are imported.
    "cuda": (_backends.cuda.matmul, _backends.cudnn.conv, _backends.cudnn.rnn),  # type: ignore[attr-defined]
    "cpu": (_backends.mkldnn.matmul, _backends.mkldnn.conv),  # type: ignore[attr-defined]
}
"""Where torch keeps the meaning of float32 products, by device."""


@contextmanager
def fp32_products_pinned(kind: str, *, device: str = "cuda") -> Iterator[None]:
    """A device's float32 products are "ieee" or "tf32" inside the block, afterwards as before."""
    switches = SWITCHES[device]
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
