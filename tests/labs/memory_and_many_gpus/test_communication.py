"""Sums around a ring, and DDP with gradients in 16 bits."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from labkit.labs.memory_and_many_gpus.communication import ring_sum
from labkit.labs.memory_and_many_gpus.ranks import ranks


def test_a_ring_in_bf16_by_the_place_of_the_largest():
    ones = [1.0] * 8
    sums = [
        ring_sum([*ones[:place], 256.0, *ones[place + 1 :]], torch.bfloat16) for place in range(8)
    ]
    # 256 + 1 is a tie that goes to 256; 258 + 1 one that goes to 260; 7 + 256 one that goes to 264.
    assert sums == [256.0, 256.0, 260.0, 260.0, 260.0, 260.0, 264.0, 264.0]
    assert ring_sum([256.0, *ones[1:]], torch.float32) == 263.0


@pytest.mark.seeds(range(3))
def test_a_ring_in_fp16_equals_numpys_running_sum(seed):
    values = np.random.default_rng(seed).normal(size=50)
    running = np.add.accumulate(values.astype(np.float16), dtype=np.float16)
    assert ring_sum(values.tolist(), torch.float16) == running[-1]


def test_when_to_divide():
    """Two ranks of 40000 overflow in FP16; 2**-24 divided by four is 0."""
    large, small = [40000.0] * 2, [2.0**-24] * 4
    assert math.isinf(ring_sum(large, torch.float16, divide="last"))
    assert ring_sum(large, torch.float16, divide="first") == 40000.0
    assert ring_sum(small, torch.float16, divide="first") == 0.0
    assert ring_sum(small, torch.float16, divide="last") == 2.0**-24


def gradients(hook, size):
    """Of a step of DDP with the hook, on each rank; and of the same samples in one process."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
    x, y = torch.randn(8 * size, 16), torch.randint(4, (8 * size,))

    def work(group, models):
        model = DistributedDataParallel(models[group.rank()], process_group=group)
        model.register_comm_hook(group, hook)
        mine = slice(8 * group.rank(), 8 * group.rank() + 8)
        F.cross_entropy(model(x[mine]), y[mine]).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    found = ranks(work, size, [copy.deepcopy(network) for _ in range(size)])
    F.cross_entropy(network(x), y).backward()
    return found, torch.cat([p.grad.flatten() for p in network.parameters()])


def test_torchs_bf16_hook_on_three_ranks_gives_the_average_within_its_roundings():
    """T22: what DDP sends is BF16, and what it gets float32."""
    # By its name DDP would refuse BF16's on a CPU.
    found, whole = gradients(
        lambda group, bucket: default_hooks.bf16_compress_hook(group, bucket), 3
    )
    assert all(torch.equal(one, found[0]) for one in found) and found[0].dtype == torch.float32
    # Three roundings and two additions, each within half an ulp of what is there.
    assert 0 < (found[0] - whole).norm() / whole.norm() < 4 * torch.finfo(torch.bfloat16).eps
