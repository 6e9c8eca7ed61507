"""S15: torch's checkpoint under the emulation: the plain bits, a model's first module too."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from labkit.emulation import emulate_gpu


def _gradients(blocks, x, dtype, run):
    torch.manual_seed(1)
    with emulate_gpu():
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            for block in blocks:
                x = run(block, x)
        x.float().square().sum().backward()
    return [x.detach(), *(p.grad for p in blocks.parameters())]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
def test_outputs_and_gradients_have_the_plain_modules_bits(dtype, dropout):
    """The input of the first block needs no gradient: there reentrant checkpointing loses all."""
    torch.manual_seed(0)
    parts = (nn.Linear(32, 128), nn.GELU(), nn.Dropout(dropout), nn.Linear(128, 32))
    plain = nn.Sequential(nn.Sequential(*parts), nn.LayerNorm(32), copy.deepcopy(parts[0]))
    x, twin = torch.randn(16, 32), copy.deepcopy(plain)
    expected = _gradients(plain, x, dtype, lambda block, x: block(x))
    found = _gradients(twin, x, dtype, lambda block, x: checkpoint(block, x, use_reentrant=False))
    assert len(found) == len(expected) == 9
    assert all(map(torch.equal, found, expected))
