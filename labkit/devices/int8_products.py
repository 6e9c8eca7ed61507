"""Whether ``torch._int_mm`` adds its int8 products exactly on this machine's CPU.

An x86 CPU without VNNI adds two products of bytes in 16 bits, which saturate: oneDNN then gives
2,040 for 16 * 127 * 127 = 258,064, and says nothing.
"""

from functools import cache

import torch


@cache
def int8_products_are_exact() -> bool:
    """Whether ``torch._int_mm`` on a CPU gives the exact sum of the largest products.

    The answer holds for the process: ``ONEDNN_MAX_CPU_ISA`` may forbid VNNI when it starts.
    """
    largest = torch.full((16, 64), 127, dtype=torch.int8)
    sums = [torch._int_mm(largest, b) for b in (largest.t().contiguous(), -largest.t() - 1)]
    return all((s == 64 * 127 * b).all() for s, b in zip(sums, (127, -128), strict=True))
