"""Ranks as threads beside torch's own gloo in processes of torchrun."""

import copy
import signal
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from IPython.core.interactiveshell import InteractiveShell
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from labkit.labs.engine.running import STUB
from labkit.labs.memory_and_many_gpus.ranks import ranks, torchrun


def data(group, *shape):
    """Whole numbers, others on each rank: sums of them are exact in any order."""
    draw = torch.Generator().manual_seed(group.rank())
    return torch.randint(-99, 100, shape, generator=draw).float()


def all_reduce(group, op=dist.ReduceOp.SUM):
    x = data(group, 5, 3)
    dist.all_reduce(x, op=op, group=group)
    return x


def later(group):
    x = data(group, 7)
    work = dist.all_reduce(x, group=group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0] / group.size()).wait()


def reduce(group):
    x = data(group, 4)
    dist.reduce(x, group_dst=1 % group.size(), group=group)
    return x if group.rank() == 1 % group.size() else None


def broadcast(group):
    x = data(group, 2, 2)
    dist.broadcast(x, group_src=group.size() - 1, group=group)
    return x


def all_gather_single(group):
    out = torch.empty(group.size() * 3)
    dist.all_gather_single(out, data(group, 3), group=group)
    return out


def all_gather(group):
    out = [torch.empty(2, 3) for _ in range(group.size())]
    dist.all_gather(out, data(group, 2, 3), group=group)
    return torch.stack(out)


def reduce_scatter_single(group):
    out = torch.empty(3)
    dist.reduce_scatter_single(out, data(group, group.size() * 3), group=group)
    return out


def reduce_scatter(group):
    out = torch.empty(3)
    dist.reduce_scatter(out, list(data(group, group.size(), 3)), group=group)
    return out


def barrier(group):
    dist.barrier(group=group)


COLLECTIVES = (
    all_reduce, later, reduce, broadcast, all_gather_single, all_gather, reduce_scatter_single,
    reduce_scatter, barrier,
)  # fmt: skip
OPERATIONS = dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT


def all_of_them(group):
    done = [work(group) for work in COLLECTIVES]
    return done + [all_reduce(group, op) for op in OPERATIONS]


def in_bf16(group):
    """256 and ones, summed, by the rank that holds 256."""
    sums = []
    for place in range(group.size()):
        x = torch.full((4,), 256.0 if group.rank() == place else 1.0, dtype=torch.bfloat16)
        dist.all_reduce(x, group=group)
        sums.append(x[0].item())
    return sums


def both(group):
    return all_of_them(group), in_bf16(group)


@pytest.fixture
def importable(monkeypatch):
    """Processes find this module."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


def test_collectives_equal_gloos_in_processes(importable):
    gloo = torchrun(both, 3)
    torch.testing.assert_close(ranks(all_of_them, 3), [one for one, _ in gloo], rtol=0, atol=0)
    # Gloo's ring rounds at each hop as well: 258 is exact.
    assert gloo[0][1] == gloo[1][1] == gloo[2][1]
    assert 256.0 in gloo[0][1]


def test_a_sum_in_bf16_depends_on_the_rank_of_the_largest():
    sums = ranks(in_bf16, 8)
    assert sums == [sums[0]] * 8  # all ranks get the same
    assert {256.0, 264.0} <= set(sums[0])


def test_average_is_the_sum_divided():
    wanted = [sum(ranks(data, 3, 5, 3)) / 3] * 3
    torch.testing.assert_close(ranks(all_reduce, 3, dist.ReduceOp.AVG), wanted)


def test_a_shard_of_reduce_scatter_has_the_bits_of_all_reduce():
    def work(group):
        x = torch.randn(12, generator=torch.Generator().manual_seed(group.rank())).bfloat16()
        mine = torch.empty(4, dtype=x.dtype)
        dist.reduce_scatter_single(mine, x, group=group)
        dist.all_reduce(x, group=group)
        return torch.equal(mine, x.chunk(3)[group.rank()])

    assert ranks(work, 3) == [True] * 3


@pytest.mark.parametrize("bucket_cap_mb", [25, 0.0005])
def test_data_parallel_training_with_a_hook_has_the_gradient_of_the_whole_batch(bucket_cap_mb):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    x, y, lengths = torch.randn(16, 16), torch.randint(4, (16,)), set()

    def hook(group, bucket):
        lengths.add(len(bucket.buffer()))
        work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
        return work.get_future().then(lambda done: done.value()[0] / group.size())

    def work(group, models):
        model = DistributedDataParallel(
            models[group.rank()], process_group=group, bucket_cap_mb=bucket_cap_mb
        )
        model.register_comm_hook(group, hook)
        for _ in range(2):  # DDP makes its buckets anew after the first step
            model.zero_grad()
            mine = slice(8 * group.rank(), 8 * group.rank() + 8)
            F.cross_entropy(model(x[mine]), y[mine]).backward()
        return [p.grad for p in model.parameters()]

    one, other = ranks(work, 2, [copy.deepcopy(network) for _ in range(2)])
    F.cross_entropy(network(x), y).backward()
    torch.testing.assert_close(one, [p.grad for p in network.parameters()])
    assert all(map(torch.equal, one, other))
    assert len(lengths) == (1 if bucket_cap_mb == 25 else 3)


def test_two_runs_draw_the_same_numbers():
    def work(group):
        drawn = torch.rand(2)
        dist.all_reduce(drawn, group=group)
        return drawn, torch.rand(3)

    torch.manual_seed(0)
    first = ranks(work, 3)
    torch.manual_seed(0)
    torch.testing.assert_close(ranks(work, 3), first, rtol=0, atol=0)


# Errors


def no_rank_is_left():
    for thread in threading.enumerate():
        if thread.name.startswith("rank "):
            thread.join(10)
            assert not thread.is_alive()
    return True


@pytest.mark.parametrize("rank", range(3))
def test_the_first_error_ends_all_ranks_and_names_its_own(rank):
    error = ValueError("none such")
    after = []

    def work(group):
        try:
            dist.barrier(group=group)
            if group.rank() == rank:
                raise error
            dist.barrier(group=group)
        except RuntimeError:  # what ends the others is no error that they could catch
            after.append(group.rank())
        after.append(group.rank())

    with pytest.raises(ValueError, match="none such") as caught:
        ranks(work, 3)
    assert caught.value is error
    assert error.__notes__[0].startswith(f"Rank {rank} of 3 raised this")
    assert not after
    assert no_rank_is_left()


def test_an_error_in_a_hook_of_ddp_comes_out():
    def hook(group, bucket):
        raise NotImplementedError(STUB)

    def work(group, models):
        model = DistributedDataParallel(models[group.rank()], process_group=group)
        model.register_comm_hook(group, hook)
        model(torch.ones(1, 2)).sum().backward()

    with pytest.raises(NotImplementedError) as caught:
        ranks(work, 2, [nn.Linear(2, 2), nn.Linear(2, 2)])
    assert caught.value.args == (STUB,)
    assert no_rank_is_left()


def test_a_rank_that_leaves_does_not_keep_the_others_waiting():
    def work(group):
        if group.rank() != 1:
            dist.all_reduce(torch.ones(3), group=group)

    with pytest.raises(RuntimeError, match=r"rank 0 waits in all_reduce of 3 float32, and rank 1"):
        ranks(work, 3)
    assert no_rank_is_left()


def test_ranks_that_call_different_collectives_are_told():
    def work(group):
        dist.all_reduce(torch.ones(900 + group.rank()), group=group)

    with pytest.raises(RuntimeError, match=r"rank 0 calls .* 900 float32, and rank 1 .* 901 "):
        ranks(work, 2)
    assert no_rank_is_left()


def test_an_error_that_one_rank_hides_is_told_to_the_next():
    def work(group):
        try:
            dist.all_reduce(torch.ones(900 + group.rank()), group=group)
        except RuntimeError:
            if group.rank() == 1:
                raise

    with pytest.raises(RuntimeError, match=r"rank 0 calls .* 900 float32, and rank 1 .* 901 "):
        ranks(work, 2)
    assert no_rank_is_left()


def test_where_a_thread_cannot_start_none_is_left(monkeypatch):
    def start(thread):
        if thread.name == "rank 2":
            raise RuntimeError("can't start new thread")
        real(thread)

    real = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        ranks(barrier, 3)
    assert no_rank_is_left()


@pytest.mark.parametrize(
    ("call", "given"),
    [(dist.all_gather_single, (7, 4)), (dist.reduce_scatter_single, (4, 7))],
)
def test_an_output_of_another_size_is_told(call, given):
    with pytest.raises(ValueError, match="has 7 values; 8 are wanted"):
        ranks(lambda group: call(*map(torch.empty, given), group=group), 2)


def test_an_interrupt_ends_a_rank_that_never_would():
    def work(group):
        while group.rank() == 1:
            pass
        dist.barrier(group=group)

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            ranks(work, 2)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert no_rank_is_left()


@pytest.mark.parametrize("size", [0, -1, 2.0, True])
def test_a_group_has_one_rank_or_more(size):
    with pytest.raises(ValueError, match="a group has 1 rank or more"):
        ranks(barrier, size)


def test_what_watches_the_caller_watches_its_ranks():
    seen = []
    sys.setprofile(lambda frame, event, arg: seen.append(frame.f_code.co_name))
    try:
        ranks(all_gather, 2)
    finally:
        sys.setprofile(None)
    assert "all_gather" in seen


# Processes

CELLS = (
    """
import torch, torch.distributed as dist
from labkit.labs.memory_and_many_gpus.ranks import torchrun
half, values = torch.float16, torch.ones(9)

def twice(x):
    return 2 * x

class Summed:
    def __init__(self, group):
        self.group = group

    @torch.no_grad()
    def of(self, x):
        dist.all_reduce(x, group=self.group)
        return twice(x)
""",
    """
def work(group, factor):
    values = torch.ones(2, dtype=half)
    return group.rank(), Summed(group).of(factor * values)

found = torchrun(work, 2, 3.0)
""",
    """
def stops(group):
    if group.rank() == 1:
        raise KeyError("none such")
    dist.barrier(group=group)

try:
    torchrun(stops)
except RuntimeError as error:
    said = str(error)
""",
)


def test_torchrun_takes_what_a_notebook_has_defined_to_two_processes():
    shell = InteractiveShell()
    for cell in CELLS:
        shell.run_cell(cell).raise_error()
    found = shell.user_ns["found"]
    wanted = torch.full((2,), 12.0, dtype=torch.float16)
    torch.testing.assert_close(found, [(0, wanted), (1, wanted)])
    said = shell.user_ns["said"]
    assert said.startswith("rank 1 of 2 raised") and "KeyError: 'none such'" in said
