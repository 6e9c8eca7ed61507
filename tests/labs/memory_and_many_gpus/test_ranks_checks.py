"""Lab 07's ZeRO-1 and top-k hook: data parallel's bits, a share of its bytes, and nothing lost."""

import copy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from labkit.labs.engine.running import STUB
from labkit.labs.memory_and_many_gpus import solutions
from labkit.labs.memory_and_many_gpus.checks import check_topk_hook, check_zero_step
from labkit.labs.memory_and_many_gpus.ranks import ranks, torchrun
from labkit.labs.memory_and_many_gpus.sharding import STATE_BYTES
from labkit.training.models import mlp

# ZeRO-1


class DataParallel:
    """All masters and states on every rank."""

    def __init__(self, parameters, group, make_optimizer):
        self.parameters, self.group = list(parameters), group
        self.masters = [nn.Parameter(p.detach().float()) for p in self.parameters]
        self.optimizer = make_optimizer(self.masters)

    @torch.no_grad()
    def step(self):
        for p, master in zip(self.parameters, self.masters, strict=True):
            gradient = p.grad.float()
            dist.all_reduce(gradient, group=self.group)
            master.grad = gradient / self.group.size()
        self.optimizer.step()
        for p, master in zip(self.parameters, self.masters, strict=True):
            p.copy_(master)


def trained(group, kind, models, x, y):
    """Five steps of Adam: all weights, and the bytes of masters and states on this rank."""
    model, made = models[group.rank()], []

    def make_optimizer(masters):
        made.append(torch.optim.Adam(masters, lr=0.01))
        return made[-1]

    optimizer = kind(model.parameters(), group, make_optimizer)
    for inputs, targets in zip(x.split(12), y.split(12), strict=True):
        mine = slice(group.rank(), None, group.size())
        model.zero_grad()
        F.cross_entropy(model(inputs[mine]).float(), targets[mine]).backward()
        optimizer.step()
    masters = [p for one in made[0].param_groups for p in one["params"]]
    states = [t for state in made[0].state.values() for t in state.values() if t.dim()]
    held = sum(t.untyped_storage().nbytes() for t in [*masters, *states])
    return torch.cat([p.detach().flatten() for p in model.parameters()]), held


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.seeds(range(3))
def test_zero_one_gives_the_weights_of_data_parallel_with_a_share_of_its_bytes(size, seed):
    torch.manual_seed(seed)
    network = mlp(16, 33, 10).bfloat16()
    data = torch.randn(60, 16).bfloat16(), torch.randint(10, (60,))
    runs = {
        kind: ranks(trained, size, kind, [copy.deepcopy(network) for _ in range(size)], *data)
        for kind in (DataParallel, solutions.ZeroOne)
    }
    whole, _ = runs[DataParallel][0]
    start = torch.cat([p.detach().flatten() for p in network.parameters()])
    assert len(whole) == 901 and (whole != start).sum() > 450
    for weights, held in runs[solutions.ZeroOne]:
        # Both add around a ring and round to float32; the piece decides where the ring begins.
        assert (weights != whole).float().mean() < (0.01 if size > 2 else 1e-9)
        assert held == STATE_BYTES * -(-901 // size)
    assert runs[DataParallel][0][1] == STATE_BYTES * 901


@pytest.mark.parametrize("check", [check_zero_step, check_topk_hook])
def test_an_exercise_that_is_not_begun_is_told_so(check):
    class ZeroOne:
        def __init__(self, parameters, group, make_optimizer):
            raise NotImplementedError(STUB)

    def topk_hook(state, bucket):
        raise NotImplementedError(STUB)

    answer = ZeroOne if check is check_zero_step else topk_hook
    assert check.result(answer).status == "not attempted"


# Top-k


def delivered(group, models, x, y, steps):
    """The sum of DDP's gradients, the residual's mean, bytes, and each step's own gradients."""
    model = DistributedDataParallel(models[group.rank()], process_group=group)
    state = SimpleNamespace(group=group, share=0.05, residual={}, sent=0)
    order = []

    def hook(state, bucket):
        order[:] = bucket.gradients()
        return solutions.topk_hook(state, bucket)

    model.register_comm_hook(state, hook)
    total = 0.0
    for step in range(steps + 1):
        if step == 1:
            state.residual.clear()
            state.sent, total = 0, 0.0
        model.zero_grad()
        mine = slice(8 * group.rank(), 8 * group.rank() + 8)
        F.cross_entropy(model(x[mine]), y[mine]).backward()
        total = total + torch.cat([p.grad.flatten() for p in model.parameters()])
    left = state.residual[0].clone()
    dist.all_reduce(left, group=group)
    # DDP's bucket has an order of its own.
    sizes = [len(one.flatten()) for one in order]
    return total, left / group.size(), sizes, state.sent / steps


def made():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    return network, torch.randn(16, 16), torch.randint(4, (16,))


def delivered_in_a_process(group, steps):
    network, x, y = made()
    return delivered(group, [network] * 2, x, y, steps)


def test_the_hook_gives_the_same_bits_in_two_processes_over_gloo(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    network, x, y = made()
    models = [copy.deepcopy(network) for _ in range(2)]
    threads, processes = (
        ranks(delivered, 2, models, x, y, 5),
        torchrun(delivered_in_a_process, 2, 5),
    )
    torch.testing.assert_close(threads, processes, rtol=0, atol=0)


def test_what_top_k_has_delivered_and_what_it_owes_is_the_whole_gradient():
    (network, x, y), steps = made(), 40
    models = [copy.deepcopy(network) for _ in range(2)]
    one, other = ranks(delivered, 2, models, x, y, steps)
    assert torch.equal(one[0], other[0])
    F.cross_entropy(network(x), y).backward()
    whole = steps * torch.cat([p.grad.flatten() for p in network.parameters()])
    sent, left, sizes, sent_bytes = one
    parameters = {p.numel(): n for n, p in enumerate(network.parameters())}
    pieces = sorted(
        zip(sizes, left.split(sizes), strict=True), key=lambda piece: parameters[piece[0]]
    )
    owed = torch.cat([piece for _, piece in pieces])
    # 2 ranks x 40 steps of roundings to float32.
    torch.testing.assert_close(sent + owed, whole, rtol=0, atol=80 * 2.0**-23 * whole.abs().max())
    assert owed.norm() > 0.05 * whole.norm()
    assert sent_bytes == 12 * round(0.05 * 676)
