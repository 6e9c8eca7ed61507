"""Check of lab 07: the step of ZeRO-1, on two to four ranks."""

import torch
import torch.distributed as dist
from torch import nn

from labkit.formats.dtypes import name_of
from labkit.labs.engine import AnswerError, Mistake, attempt, check, several, tensor
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure
from labkit.labs.memory_and_many_gpus.ranks import ranks

LAB = "07_memory_and_many_gpus"

RAISED = "{name}: your ZeroOne raised {error}."
UNEVEN = (
    "{name}: your ZeroOne raised {error}. It works where {size} divides the number of weights. A "
    "vector of {all} needs {zeros:d} more values behind it, which go back into no weight."
)
NO_DEFAULT_GROUP = (
    "{name}: your ZeroOne raised {error}. There is no default group here: ask the group that you "
    "were given, with `group.rank()` and `group.size()`, and hand it over as `group=`."
)
ONE_PASS = (
    "{name}: your ZeroOne raised {error}. `parameters` is an iterator here, as "
    "`model.parameters()` is: a second pass over it finds nothing. What keeps the parameters?"
)
NO_OPTIMIZER = "{name}: rank {rank:d} made {got:d} optimizers with make_optimizer; 1 is wanted."
NARROW = (
    "{name}: the optimizer of rank {rank:d} got a parameter in {dtype}; float32 is wanted. In "
    "{dtype} a step of less than half a gap changes nothing."
)
OTHER_DTYPE = "{name}: after your step weights have the dtype {dtype}; bfloat16 is wanted."
NO_STEP = "{name}: after step {step:d} no weight of rank {rank:d} has moved."
DIFFER = (
    "{name}: after step {step:d} the ranks hold different weights. On rank {one:d} {moved} of "
    "{all} have moved, and on rank {other:d} {others}. {why}"
)
SHARES = "Each rank has the right new weights in its own share, and the old ones elsewhere."
OFF = (
    "{name}: after step {step:d} all ranks hold the same weights, and {count} of {all} are off. "
    "Weight {place} is {got:.6g}; {want:.6g} is wanted, rounded to bfloat16. {why}"
)
TIMES = "From the start the weights have moved {times:.2f} times as far as they should."
RANK_ZERO = (
    "The second share is near the first share's weights, and far from its own. Which part does "
    "rank 1 keep?"
)
NEW_MEMORY = (
    "{name}: the weights are right, and after your step {count:d} of 4 parameters lie in other "
    "memory than before. What shares the old memory, as tied weights or DDP's buckets do, keeps "
    "the old values. Which method writes into a parameter?"
)
WIDE_GATHER = (
    "{name}: the weights are right, and the all-gathers of rank {rank:d} carry more bytes than the "
    "{want:,d} that its share takes in BF16. Which of the bits that you gather do the parameters "
    "keep?"
)
HELD = (
    "{name}: the weights are right, and the optimizer of rank {rank:d} keeps {got:,d} bytes of "
    "masters and states for {all} weights. A share on {size} ranks takes {want:,d}."
)
WHOLE_STORAGE = (
    "{name}: the weights are right, and rank {rank:d} steps on {numbers:,d} masters. They are a "
    "slice of a tensor of {got:,d} bytes, all of which stay in memory; the share takes {want:,d}."
)

_STEPS = 6
_SHAPES = (33, 16), (33,), (10, 33), (10,)
_CASES = {  # ranks, optimizer, whether the ranks divide the number of weights
    "SGD on 2 ranks, 900 weights": (2, "SGD", True),
    "Adam on 2 ranks, 901 weights": (2, "Adam", False),
    "SGD with momentum on 3 ranks, 901 weights": (3, "momentum", False),
    "Adam on 4 ranks, 901 weights": (4, "Adam", False),
}
_OPTIMIZERS = {
    "SGD": lambda masters: torch.optim.SGD(masters, lr=0.1),
    "momentum": lambda masters: torch.optim.SGD(masters, lr=0.05, momentum=0.9),
    "Adam": lambda masters: torch.optim.Adam(masters, lr=2e-3),
}


def _case(name, seed):
    """Weights in BF16, and the gradients of each step and rank in BF16.

    The gradients are whole multiples of 2**-12 below 2**8 of them: in float32 their sum over ranks
    is exact in any order, and in BF16 most of the sums are not.
    """
    size, _, even = _CASES[name]
    draw = torch.Generator().manual_seed(1000 + seed)
    shapes = [*_SHAPES[:-1], (9,)] if even else _SHAPES
    start = [torch.randn(shape, generator=draw).bfloat16() for shape in shapes]
    start = [w if w.dim() == 2 else 0 * w for w in start]  # near 0 each movement has all its bits
    steady = [torch.randint(64, 128, s, generator=draw) * _signs(s, draw) for s in shapes]
    gradients = [
        [
            [
                ((one + torch.randint(-127, 128, one.shape, generator=draw)) * 2.0**-12).bfloat16()
                for one in steady
            ]
            for _ in range(size)
        ]
        for _ in range(_STEPS)
    ]
    return start, gradients


def _signs(shape, draw):
    return 2 * torch.randint(2, shape, generator=draw) - 1


def run_zero_step(ZeroOne, seed):
    """Of each case, on each rank: the weights after each step, and what the optimizer keeps."""
    return {
        name: attempt(ranks, _on_rank, size, ZeroOne, kind, *_case(name, seed))
        for name, (size, kind, _) in _CASES.items()
    }


def _on_rank(group, ZeroOne, kind, start, gradients):
    parameters, made = [nn.Parameter(w.clone()) for w in start], []

    def make_optimizer(given):
        made.append(_OPTIMIZERS[kind](given))
        return made[-1]

    optimizer, after = ZeroOne(iter(parameters), group, make_optimizer), []
    memory, brought = [p.data_ptr() for p in parameters], group.brought_bytes["all_gather"]
    for step in gradients:
        for p, gradient in zip(parameters, step[group.rank()], strict=True):
            p.grad = gradient.to(p.dtype, copy=True)
        optimizer.step()
        after.append(torch.cat([p.detach().flatten() for p in parameters]))
    return {
        "after": after,
        "made": [_kept(one) for one in made],
        "moved": sum(p.data_ptr() != was for p, was in zip(parameters, memory, strict=True)),
        # No number: answers with one idea gather by different collectives.
        "wide": group.brought_bytes["all_gather"] - brought > _STEPS * _narrow(start, group.size()),
    }


def _narrow(start, size):
    """The bytes of a share in BF16, at most: filling up each of the tensors is as good."""
    return 2 * (-(-sum(w.numel() for w in start) // size) + len(start))


def _kept(optimizer):
    """Dtypes and number of the masters, bytes of their storages, bytes of the states."""
    masters = [p for group in optimizer.param_groups for p in group["params"]]
    storages = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in masters}
    states = [t for state in optimizer.state.values() for t in state.values()]
    return {
        "dtypes": sorted({name_of(p.dtype) for p in masters}),
        "masters": sum(p.numel() for p in masters),
        "storage": sum(storages.values()),
        "states": sum(t.nbytes for t in states if isinstance(t, torch.Tensor) and t.numel() > 1),
    }


@check(
    run_zero_step,
    own_work=(
        "torch.distributed.optim.ZeroRedundancyOptimizer",
        "torch.distributed.fsdp.fully_shard",
    ),
)
def check_zero_step(seen, seed):
    """The weights of data parallel, alike on all ranks, with one n-th of the states on each."""
    judges = [_Judge(name, seed, seen[name]) for name in _CASES]
    for one in judges:
        one.judge()
    for one in judges:
        one.writes()


class _Judge:
    """One case, with what is right in float64."""

    def __init__(self, name, seed, reports):
        self.name, self.reports = name, reports
        self.size, self.kind, self.even = _CASES[name]
        start, self.gradients = _case(name, seed)
        self.start = torch.cat([w.flatten() for w in start]).double()
        self.share = -(-len(self.start) // self.size)

    def mistake(self, template, **values):
        return Mistake(template, name=self.name, all=len(self.start), **values)

    def judge(self):
        """Raises the first thing that is wrong."""
        if type(self.reports) is Raised:
            raise self.raised(self.reports)
        reports = several(self.reports, self.size, call=f"ZeroOne, {self.name}")
        self.made(reports)
        after = [self.weights(rank, report) for rank, report in enumerate(reports)]
        for step, want in enumerate(self.wanted(), start=1):
            self.step(step, [one[step - 1] for one in after], want, after[0][-1])
        self.memory(reports)

    def raised(self, error):
        """A sentence on torch's own error, where it is known what it comes of."""
        said = {"name": self.name, "error": failure(error)}
        if error.message.startswith("Default process group has not been initialized"):
            return AnswerError(NO_DEFAULT_GROUP, **said)
        if "expected a non-empty list of Tensors" in error.message:
            return AnswerError(ONE_PASS, **said)
        if error.type_name in ("ValueError", "RuntimeError") and not self.even:
            zeros = self.size * self.share - len(self.start)
            return self.mistake(UNEVEN, error=said["error"], size=self.size, zeros=zeros)
        return AnswerError(RAISED, **said)

    def made(self, reports):
        """One optimizer on each rank, of float32 masters."""
        for rank, report in enumerate(reports):
            made = report["made"]
            if len(made) != 1:
                raise self.mistake(NO_OPTIMIZER, rank=rank, got=len(made))
            if made[0]["dtypes"] != ["float32"]:
                dtypes = ", ".join(made[0]["dtypes"]) or "no dtype at all"
                idea = "bf16-needs-no-masters" if dtypes == "bfloat16" else None
                raise self.mistake(NARROW, misconception=idea, rank=rank, dtype=dtypes)

    def weights(self, rank, report):
        """The weights of one rank after each step, in float64."""
        call = f"the weights of rank {rank}, {self.name}"
        after = several(report["after"], _STEPS, call=call)
        for one in after:
            if isinstance(one, torch.Tensor) and one.dtype != torch.bfloat16:
                raise self.mistake(OTHER_DTYPE, dtype=name_of(one.dtype))
        shape = self.start.shape
        return [tensor(one, call=call, shape=shape, dtype=torch.bfloat16).double() for one in after]

    def wanted(self):
        """The masters of data parallel after each step, in float64."""
        master = nn.Parameter(self.start.clone())
        optimizer = _OPTIMIZERS[self.kind]([master])
        for step in self.gradients:
            sent = [torch.cat([g.flatten() for g in one]).double() for one in step]
            master.grad = torch.stack(sent).mean(dim=0)
            optimizer.step()
            yield master.detach().clone()

    def step(self, step, after, want, last):
        """All ranks alike, and within half a gap of BF16 of the masters."""
        off = [~((one - want).abs() <= _room(want, step)) for one in after]
        for rank, one in enumerate(after):
            if torch.equal(one, self.start):
                raise self.mistake(NO_STEP, rank=rank, step=step)
            if not torch.equal(one, after[0]):
                raise self.differ(step, after, off, rank)
        if off[0].any():
            place = int(off[0].nonzero()[0])
            raise self.mistake(
                OFF,
                step=step,
                count=int(off[0].sum()),
                place=place,
                got=after[0][place].item(),
                want=want[place].item(),
                why=self.first_twice(after[0]) or self.times(last),
            )

    def differ(self, step, after, off, other):
        moved = [int((one != self.start).sum()) for one in after]
        own = [
            ((one == self.start) | ~wrong).all() and count < len(one)
            for one, wrong, count in zip(after, off, moved, strict=True)
        ]
        return self.mistake(
            DIFFER, step=step, one=0, other=other, moved=moved[0], others=moved[other],
            why=SHARES if all(own) else "",
        )  # fmt: skip

    def first_twice(self, after):
        first, own = self.start.split(self.share)[:2]
        second = after.split(self.share)[1]
        away = (second - first[: len(second)]).norm()
        return RANK_ZERO if away < 0.1 * (second - own).norm() else ""

    def times(self, last):
        """How far all steps together went, where they went the right way and not as far."""
        *_, want = self.wanted()
        way, went = want - self.start, last - self.start
        times = ((went * way).sum() / way.square().sum()).item()
        aside = (went - times * way).norm() / went.norm()
        return "" if abs(times - 1) < 0.05 or aside > 0.5 else fill(TIMES, times=times)

    def memory(self, reports):
        """On each rank the masters and states of a share, and nothing that they are cut from."""
        per_master = 4 * {"SGD": 1, "momentum": 2, "Adam": 3}[self.kind]
        # Filling up each of the four tensors, and not all of them together, is as good.
        share = self.share + len(_SHAPES)
        for rank, report in enumerate(reports):
            (kept,) = report["made"]
            masters, storage, states = (kept[key] for key in ("masters", "storage", "states"))
            said = {"rank": rank, "want": per_master * self.share}
            if not (0 <= masters <= share and 0 <= states <= (per_master - 4) * share):
                got = 4 * masters + states
                raise self.mistake(HELD, got=got, size=self.size, **said)
            if not 0 <= storage <= 4 * share:
                said |= {"numbers": masters, "got": storage, "want": 4 * self.share}
                raise self.mistake(WHOLE_STORAGE, **said)

    def writes(self):
        """The parameters' memory is as before, and the gathers carry BF16."""
        for rank, report in enumerate(self.reports):
            if report["moved"]:
                raise self.mistake(NEW_MEMORY, count=report["moved"])
            if report["wide"]:
                raise self.mistake(WIDE_GATHER, rank=rank, want=2 * self.share)


def _room(want, step):
    """Half a gap of BF16, and what a few roundings to float32 in each step come to."""
    size = want.abs() * (1 + 2.0**-20)
    gap = torch.exp2(size.log2().floor() - 7)
    return gap / 2 + step * (2.0**-22 * size + 2.0**-26)


check_zero_step.slip(
    "shares-divide-evenly",
    "How many zeros make the vector divisible?",
    swap=("-sum(self.sizes) % group.size()", "0"),
)
check_zero_step.slip(
    "masters-are-a-cast",
    "Do your masters keep what BF16 cannot hold from one step to the next?",
    swap=(
        "gradient = flat([p.grad",
        "weights = flat(self.parameters, self.pad)\n"
        "        self.master.copy_(weights.chunk(self.group.size())[self.group.rank()])\n"
        "        gradient = flat([p.grad",
    ),
)
check_zero_step.slip(
    "bf16-needs-no-masters",
    "Which dtype has gaps that are small enough for your steps?",
    swap=("share.clone()", "share.bfloat16()"),
)
check_zero_step.slip(
    "ddp-sums-gradients",
    "reduce_scatter adds up. Which number makes a mean of the sum? Adam would hide the factor, as "
    "it divides by the gradient's own size.",
    swap=("mine / self.group.size()", "mine"),
)
check_zero_step.slip(
    "sums-in-sixteen-bits-are-enough",
    "In which dtype do the ranks' gradients meet?",
    swap=(
        "dist.reduce_scatter_single(mine, gradient, group=self.group)",
        "mine = mine.bfloat16()\n"
        "        dist.reduce_scatter_single(mine, gradient.bfloat16(), group=self.group)\n"
        "        mine = mine.float()",
    ),
)
check_zero_step.slip(
    "ranks-step-before-they-reduce",
    "Which gradients has rank 1 in this step, and where does rank 0 hear of them?",
    swap=(
        "dist.reduce_scatter_single(mine, gradient, group=self.group)",
        "mine.copy_(gradient.chunk(self.group.size())[self.group.rank()] * self.group.size())",
    ),
)
check_zero_step.slip(
    "own-share-is-enough",
    "Which collective gives each rank the shares of the others?",
    swap=(
        "dist.all_gather_single(whole, self.master.to(whole.dtype), group=self.group)",
        "whole.copy_(flat(self.parameters, self.pad))\n"
        "        whole.chunk(self.group.size())[self.group.rank()].copy_(self.master)",
    ),
)
check_zero_step.slip(
    "a-slice-frees-the-rest",
    "What makes a tensor of its own out of a slice?",
    swap=("share.clone()", "share"),
)


@check_zero_step.wrong(
    "each-rank-needs-all-states",
    "Of which weights does a rank need masters and moments, if the others send it theirs?",
)
class ZeroOne:
    def __init__(self, parameters, group, make_optimizer):
        self.parameters, self.group = list(parameters), group
        self.masters = [nn.Parameter(p.detach().float()) for p in self.parameters]
        self.optimizer = make_optimizer(self.masters)

    def step(self):
        for p, master in zip(self.parameters, self.masters, strict=True):
            gradient = p.grad.float()
            dist.all_reduce(gradient, group=self.group)
            master.grad = gradient / self.group.size()
        self.optimizer.step()
        for p, master in zip(self.parameters, self.masters, strict=True):
            p.data.copy_(master)
