"""Whether int8 products are exact here: what is said, and what the products show."""

import os
import subprocess
import sys

import pytest

LOOK = """
import torch
from labkit.devices.int8_products import int8_products_are_exact
x = torch.full((16, 64), 127, dtype=torch.int8)
sums = torch._int_mm(x, x.t().contiguous())
print(int8_products_are_exact() == bool((sums == 64 * 127 * 127).all()), sums[0, 0].item())
"""


@pytest.mark.parametrize("isa", ["DEFAULT", "AVX2"])
def test_the_finding_is_what_the_products_show(isa):
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": isa},
        capture_output=True,
        text=True,
        timeout=120,
    )
    agrees, largest = done.stdout.split()
    assert agrees == "True", done.stderr
    # Exact, or two products at a time saturated to 16 bits.
    assert int(largest) in (64 * 127 * 127, 64 * 127 * 127 // 32_258 * 255)
