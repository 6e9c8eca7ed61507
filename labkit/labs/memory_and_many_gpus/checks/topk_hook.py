"""Check of lab 07: a communication hook of DDP that sends the largest entries."""

from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from labkit.labs.engine import (
    AnswerError,
    Mistake,
    attempt,
    check,
    messages,
    number,
    several,
    tensor,
)
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure
from labkit.labs.memory_and_many_gpus.ranks import ranks

LAB = "07_memory_and_many_gpus"

RAISED = "{name}: your hook raised {error}."
LENGTHS = (
    "{name}: your hook raised {error}. Buckets have these lengths. Under which key does your code "
    "keep what is left of each?"
)
UNFINISHED = (
    "`{call}` returns a future that has no value, so DDP waits for ever. Which method gives a "
    "future its value?"
)
DIFFER = (
    "{name}: in step {step:d} the ranks get different gradients for weight {place} of a bucket of "
    "{all}: rank 0 gets {got}, and rank {other:d} gets {others}. From here on they train different "
    "networks."
)
OFF = (
    "{name}: in step {step:d} weight {place} of a bucket of {all} gets the gradient {got}; {want} "
    "is wanted. The ranks' own gradients are {gradients} there, and left from the steps before are "
    "{owed}. {why}"
)
LESS_THE_MEAN = (
    "All gradients of this step come out if the residual is what a rank wanted to send, less the "
    "mean of all ranks. Which values has this rank not sent itself?"
)
NOT_A_MEAN = "All gradients of this step are {times:d} times as large as they should be."
TOO_MANY_BYTES = (
    "{name}: the gradients are right, and rank {rank:d} sends {got:,d} bytes in a step. Its "
    "{numbers:d} largest entries and their places take {want:,d}; all {all:,d} entries take "
    "{dense:,d}."
)
OTHER_COUNT = (
    "{name}: `state.sent` of rank {rank:d} is {got:,d} after {steps:d} steps; this rank has sent "
    "{want:,d} bytes."
)

_STEPS = 6
_CASES = {  # ranks, the lengths of the buckets, share
    "2 ranks, 5 % of 400 and of 280 values": (2, (400, 280), 0.05),
    "3 ranks, 1 % of 300 and of 7 values": (3, (300, 7), 0.01),
}
_BYTES = 16
"""Of a sent value and its place: float32 and int64 take 12, and two words of 8 bytes are fine."""


def _gradients(name, seed):
    """The gradients of each step, bucket and rank; ranks share some of their largest places."""
    size, lengths, _ = _CASES[name]
    draw = torch.Generator().manual_seed(2000 + seed)
    return [
        [
            [
                _peaks(length, seed + n) * 4 + torch.randn(length, generator=draw)
                for _ in range(size)
            ]
            for n, length in enumerate(lengths)
        ]
        for _ in range(_STEPS)
    ]


def _peaks(length, seed):
    """A vector of 0, and of +1 or -1 at one place in fifty."""
    draw = torch.Generator().manual_seed(3000 + seed)
    signs = 2 * torch.randint(2, (length,), generator=draw) - 1
    return signs * (torch.rand(length, generator=draw) < 0.02)


class _Slopes(nn.Module):
    """A network whose gradients are what it is called with."""

    def __init__(self, lengths):
        super().__init__()
        self.weights = nn.ParameterList(torch.zeros(length) for length in lengths)

    def forward(self, slopes):
        return sum((w * slope).sum() for w, slope in zip(self.weights, slopes, strict=True))


def run_topk_hook(topk_hook, seed):
    """Of each case, on each rank: the gradients after each step, and the bytes of all steps."""
    return {
        name: attempt(ranks, _on_rank, size, topk_hook, lengths, share, _gradients(name, seed))
        for name, (size, lengths, share) in _CASES.items()
    }


def _on_rank(group, hook, lengths, share, gradients):
    # Buckets of 16 bytes: from its second step on, DDP gives each parameter one of its own.
    model = DistributedDataParallel(_Slopes(lengths), process_group=group, bucket_cap_mb=2**-16)
    state = SimpleNamespace(group=group, share=share, residual={}, sent=0)
    brought, got, unusable = [], [], set()

    def watched(state, bucket):
        before = group.brought_bytes.total()
        future = hook(state, bucket)
        brought.append(group.brought_bytes.total() - before)
        waits = isinstance(future, torch.futures.Future) and not future.done()
        if future is None or waits:  # None ends Python inside DDP, and the other is never done
            unusable.add("unfinished" if waits else "None")
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
        return future

    model.register_comm_hook(state, watched)
    for step, sent in enumerate([gradients[0], *gradients]):
        if step == 1:  # what the step with DDP's first bucket has left belongs to no later one
            state.residual.clear()
            state.sent = 0
            brought.clear()
        model.zero_grad()
        model([slope[group.rank()] for slope in sent]).backward()
        got.append([p.grad.clone() for p in model.parameters()])
    return {
        "got": got[1:],
        "sent": state.sent,
        "brought": sum(brought),
        "unusable": sorted(unusable),
    }


@check(run_topk_hook)
def check_topk_hook(seen, seed):
    """Few bytes a step, the same gradient on all ranks, and nothing is lost for good."""
    for name in _CASES:
        reports = seen[name]
        if type(reports) is Raised:
            raise _raised(name, reports)
        _Judge(name, seed).judge(reports)


def _raised(name, error):
    """A sentence on torch's own error, where it names the lengths of two buckets."""
    both = all(f"({length})" in error.message for length in _CASES[name][1])
    return AnswerError(LENGTHS if both else RAISED, name=name, error=failure(error))


class _Judge:
    """One case, with what is right in float64."""

    def __init__(self, name, seed):
        self.name = name
        self.size, self.lengths, self.share = _CASES[name]
        self.counts = [max(1, round(self.share * length)) for length in self.lengths]
        self.gradients = _gradients(name, seed)

    def mistake(self, template, **values):
        return Mistake(template, name=self.name, **values)

    def judge(self, reports):
        """Raises the first thing that is wrong."""
        call = f"topk_hook, {self.name}"
        reports = several(reports, self.size, call=call)
        unusable = {one for report in reports for one in report["unusable"]}
        if unusable:
            template = messages.RETURNS_NONE if "None" in unusable else UNFINISHED
            raise self.mistake(template, call="topk_hook(state, bucket)")
        steps = [several(report["got"], _STEPS, call=call) for report in reports]
        owed = [[torch.zeros(n) for _ in range(self.size)] for n in self.lengths]
        owed_less_mean = [[one.clone() for one in bucket] for bucket in owed]
        for step in range(_STEPS):
            on_ranks = [several(one[step], len(self.lengths), call=call) for one in steps]
            for n, length in enumerate(self.lengths):
                got = [tensor(one[n], call=call, shape=(length,)).double() for one in on_ranks]
                other = self.less_the_mean(step, n, owed_less_mean[n])
                self.bucket(step, got, self.gradients[step][n], owed[n], self.counts[n], other)
        for rank, report in enumerate(reports):
            self.bytes(rank, report)

    def less_the_mean(self, step, n, owed):
        """What comes of one bucket if a residual is the sum less the mean; ``owed`` becomes it."""
        mean = torch.zeros(self.lengths[n])
        for gradient, one in zip(self.gradients[step][n], owed, strict=True):
            one += gradient
            places = one.abs().topk(self.counts[n]).indices
            mean[places] += one[places] / self.size
        for one in owed:
            one -= mean
        return mean.double()

    def bucket(self, step, got, gradients, owed, count, other_mean):
        """One bucket in one step; ``owed`` becomes what it leaves."""
        before = [one.clone() for one in owed]
        want = torch.zeros(len(got[0])).double()
        for gradient, one in zip(gradients, owed, strict=True):
            one += gradient
            places = one.abs().topk(count).indices
            want[places] += one[places].double() / self.size
            one[places] = 0
        room = 2.0**-20 * want.abs()  # a few roundings to float32
        said = {"step": step + 1, "all": len(want)}
        for rank, other in enumerate(got):
            if not torch.equal(other, got[0]):
                place = int((other != got[0]).nonzero()[0])
                values = {"got": got[0][place].item(), "others": other[place].item()}
                raise self.mistake(DIFFER, place=place, other=rank, **values, **said)
        off = ~((got[0] - want).abs() <= room)
        if off.any():
            place = int(off.nonzero()[0])
            raise self.mistake(
                OFF,
                place=place,
                got=got[0][place].item(),
                want=want[place].item(),
                gradients=_listed(gradients, place),
                owed=_listed(before, place),
                why=self.why(got[0], want, room, other_mean),
                **said,
            )

    def why(self, got, want, room, other_mean):
        if ((got - self.size * want).abs() <= self.size * room).all():
            return fill(NOT_A_MEAN, times=self.size)
        return LESS_THE_MEAN if torch.allclose(got, other_mean, rtol=1e-4, atol=1e-5) else ""

    def bytes(self, rank, report):
        """What was sent, as measured, and as the state says."""
        call = f"state.sent, {self.name}"
        brought, sent = report["brought"], number(report["sent"], call=call)
        all_of_them, numbers = sum(self.lengths), sum(self.counts)
        if not 0 < brought <= _BYTES * numbers * _STEPS:
            raise self.mistake(
                TOO_MANY_BYTES,
                rank=rank,
                got=brought // _STEPS,
                numbers=numbers,
                want=12 * numbers,
                all=all_of_them,
                dense=4 * all_of_them,
            )
        if sent != brought:
            raise self.mistake(OTHER_COUNT, rank=rank, got=int(sent), steps=_STEPS, want=brought)


def _listed(vectors, place):
    texts = [f"{one[place].item():.4g}" for one in vectors]
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


check_topk_hook.slip(
    "unsent-gradients-do-not-matter",
    "In which step does a gradient arrive that is never among the largest?",
    swap=("grad + state.residual.get(bucket.index(), torch.zeros_like(grad))", "grad"),
)
check_topk_hook.slip(
    "ranks-send-different-places",
    "Where two ranks send the same place, what becomes of the first value?",
    swap=(
        "torch.zeros_like(grad).index_add_(0, all_places, all_values / n)",
        "torch.zeros_like(grad).index_copy_(0, all_places, all_values / n)",
    ),
)
check_topk_hook.slip(
    "ddp-sums-gradients",
    "By what does DDP expect the sum to be divided?",
    swap=("all_values / n", "all_values"),
)
check_topk_hook.slip(
    "what-was-sent-stays-owed",
    "What is still owed of an entry that has just been sent?",
    swap=("whole.index_fill(0, places, 0.0)", "whole"),
)
check_topk_hook.slip(
    "largest-means-most-positive",
    "When is an entry of -8 sent?",
    swap=("whole.abs().topk(k)", "whole.topk(k)"),
)


@check_topk_hook.wrong(
    "ranks-send-the-same-places",
    "To which weight does the third value of rank 1 belong?",
)
def topk_hook(state, bucket):
    whole = bucket.buffer() + state.residual.get(bucket.index(), 0.0)
    places = whole.abs().topk(max(1, round(state.share * len(whole)))).indices
    values = whole[places]
    state.residual[bucket.index()] = whole.index_fill(0, places, 0.0)
    dist.all_reduce(values, group=state.group)
    state.sent += values.nbytes
    future = torch.futures.Future()
    future.set_result(torch.zeros_like(whole).index_copy(0, places, values / state.group.size()))
    return future


@check_topk_hook.wrong(
    "zeros-cost-nothing-to-send",
    "Which tensor goes over the wire, and how many bytes does one of its zeros take?",
)
def topk_hook(state, bucket):  # noqa: F811
    whole = bucket.buffer() + state.residual.get(bucket.index(), 0.0)
    places = whole.abs().topk(max(1, round(state.share * len(whole)))).indices
    state.residual[bucket.index()] = whole.index_fill(0, places, 0.0)
    sent = whole - state.residual[bucket.index()]
    state.sent += sent.nbytes
    dist.all_reduce(sent, group=state.group)
    future = torch.futures.Future()
    future.set_result(sent / state.group.size())
    return future
