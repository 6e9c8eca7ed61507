"""DDP with gradients in 16 bits."""

import copy

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from labkit.labs.memory_and_many_gpus.ranks import ranks


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
