"""``benchmark``: precisions beside one another in a real training loop.

A speed-up is a claim about pairs. Every mode trains a model of its own from the same weights, the
modes take turns (``labkit.measuring.timing``), and the first one runs twice.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import count, islice, pairwise
from statistics import fmean, median
from time import perf_counter

import torch
from torch import nn
from torch.optim import Optimizer
from tqdm.auto import tqdm

from labkit.devices.probe import described
from labkit.measuring.efficiency import work_and_memory
from labkit.measuring.energy import EnergyCounter, energy_counter
from labkit.measuring.timing import Measurement, Timing, clock, take_turns
from labkit.measuring.verdicts import TIME_MARGIN, check_margin
from labkit.training.batches import Batch, Loss, check_batch
from labkit.training.loop import StepRecord, TrainingRun, evaluate, train
from labkit.training.precision import check_values, device_named, precision_named

Make = Callable[[], tuple[nn.Module, Optimizer]]


@dataclass
class _Arm:
    """A model in training, a block of steps at a time.

    Args:
        fit: ``train``, with the settings that all arms have.
        unread: batches without end.
        seeds: of the blocks: the same dropout, and the same shuffle of a loader, for every arm.
        scaler: the first block makes it, the others go on with it.
        records: of all steps.
        waiting, joules: of each block, the share of its timed steps that waited for batches, and
            what a counter says.
    """

    mode: str
    model: nn.Module
    optimizer: Optimizer
    fit: Callable[..., TrainingRun]
    unread: Iterator[Batch]
    seeds: Iterator[int]
    steps: int
    device: torch.device
    counter: EnergyCounter | None
    scaler: torch.amp.GradScaler | None = None
    records: list[StepRecord] = field(default_factory=list)
    waiting: list[float] = field(default_factory=list)
    joules: list[float] = field(default_factory=list)

    def block(self) -> float:
        """Train a block; the seconds of its median step.

        The first step finds the caches full of another arm: it is not timed.
        """
        torch.manual_seed(next(self.seeds))
        ends, waits = [], []

        def read() -> Iterator[Batch]:
            for _ in range(self.steps + 1):
                start = perf_counter()
                batch = next(self.unread)
                waits.append(perf_counter() - start)
                yield batch

        before = self.counter.joules() if self.counter else 0.0
        run = self.fit(
            self.model,
            read(),
            optimizer=self.optimizer,
            precision=self.mode,
            scaler=self.scaler,
            on_step=lambda _: ends.append(clock(self.device)),  # the update may still be running
        )
        self.joules.append(self.counter.joules() - before if self.counter else 0.0)
        self.scaler = run.scaler if precision_named(self.mode).scaled else None
        self.records += run
        seconds = [end - start for start, end in pairwise(ends)]
        self.waiting.append(sum(waits[1:]) / sum(seconds) if any(seconds) else 0.0)
        return median(seconds)


def _endless(batches: Iterable[Batch]) -> Iterator[Batch]:
    while True:
        empty = True
        for batch in batches:
            empty = False
            yield batch
        if empty:
            raise ValueError(
                f"batches, a {type(batches).__name__}, gave nothing, and every arm reads it again: "
                "pass at least one (inputs, targets), in a list or a DataLoader"
            )


def benchmark(
    modes: Sequence[str] = ("fp32", "bf16", "fp16"),
    *,
    make: Make,
    batches: Iterable[Batch],
    test: Batch | None = None,
    loss_fn: Loss | None = None,
    steps: int = 10,
    rounds: int = 15,
    warm_up: int = 1,
    margin: float = TIME_MARGIN,
    seed: int = 0,
    device: str | torch.device = "cpu",
    progress: bool = True,
) -> Measurement:
    """Train every mode in turns, the first one twice, and report what each step took and gave.

    A round is a block of steps of every arm, in a shuffled order. The first step of a block is not
    timed, nor are the first ``warm_up`` rounds. Every arm goes on with its own model, optimizer and
    loss scale, ``(warm_up + rounds) * (steps + 1)`` steps in all. The global random state is left
    as it was. An interrupt ends it without a report.

    The facts of each timing are "loss", the mean of the last round; "steps" and "skipped steps",
    all that were trained and those without an update for inf or NaN; "memory" in bytes, and "waits
    for data", the share of a step's time in the median round, from 0 to 1; with test data "test
    accuracy", from 0 to 1; and "J a step" where a counter can be read. The work is the FLOP of the
    matrix products and convolutions, forward and backward, of the first batch; what checkpointing
    computes twice counts twice.

    Args:
        modes: some of PRECISIONS, each once; the others are compared with the first.
        make: gives a fresh (model, optimizer). It is called after ``torch.manual_seed(seed)`` for
            every arm, and must draw the weights from torch's global generator.
        batches: read again and again by each arm: (inputs, targets). A list gives every arm the
            same batches; a loader with a generator of its own goes on from where it was, so the
            arms then see the same data in other orders.
        test: (inputs, targets) for the test accuracy.
        loss_fn: that of ``train``.
        steps: timed steps of a block.
        rounds: 5 or more for a verdict. The interval of a mode narrows with their square root: with
            times that scatter by 5 %, 15 rounds find a difference of 10 % in about 9 of 10
            benchmarks, also where 3 % of the times are twice as long.
        margin: the largest difference in time that would not matter, decided before the run.

    Raises:
        ValueError: an argument is not as described, or ``make`` gives unequal or shared models, or
            one that ``train`` does not take or whose parameters are uninitialised.
    """
    device = device_named(device)
    check_modes(modes, 1)
    for name, value, least in (("steps", steps, 1), ("rounds", rounds, 1), ("warm_up", warm_up, 0)):
        check_whole(name, value, least)
    check_margin(margin)
    if isinstance(batches, Iterator):
        raise ValueError(
            f"batches is a {type(batches).__name__}, which can be read once, and every arm reads "
            "it: pass list(batches), or a DataLoader"
        )
    if test is not None:
        check_batch(test, "test")
    counter = energy_counter(device)
    fit = partial(train, loss_fn=loss_fn, device=device, progress=False)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        first_batch = next(_endless(batches))
        check_batch(first_batch, "the first batch")
        arms = []
        for mode in (*modes, modes[0]):
            torch.manual_seed(seed)
            model, optimizer = make()
            check_values(model)
            reading = _endless(batches)
            arms.append(
                _Arm(mode, model, optimizer, fit, reading, count(seed), steps, device, counter)
            )
        _check_equal([arm.model for arm in arms])
        turns = islice(take_turns([arm.block for arm in arms], seed=seed), warm_up + rounds)
        bar = tqdm(turns, "benchmark", warm_up + rounds, leave=False, disable=not progress)
        *columns, again = zip(*list(bar)[warm_up:], strict=True)
        timings = []
        for arm, seconds in zip(arms, columns, strict=False):  # the control is no mode
            facts = {
                "loss": fmean(record.loss for record in arm.records[-steps - 1 :]),
                "steps": len(arm.records),
                "skipped steps": sum(record.skipped for record in arm.records),
                "waits for data": median(arm.waiting[warm_up:]),
            }
            if test is not None:
                facts["test accuracy"] = evaluate(arm.model, *test, precision=arm.mode)
            if counter:
                facts["J a step"] = sum(arm.joules[warm_up:]) / (rounds * (steps + 1))
            flop, facts["memory"] = work_and_memory(
                arm.model, first_batch, loss_fn=loss_fn, precision=arm.mode, device=device
            )
            if device.type == "cuda":
                facts["memory"] = _peak_bytes(arm.mode, make, first_batch, fit, device)
            twice = again if arm is arms[0] else ()
            timings.append(
                Timing("training step", arm.mode, 0, seconds, flop, again=twice, facts=facts)
            )
    memory = (
        "the most that CUDA allocates for the model, its optimizer and two steps"
        if device.type == "cuda"
        else "what autograd keeps for backward, without the parameters"
    )
    energy = counter.source if counter else "not measured"
    return Measurement(
        device=described(str(device)).name,
        torch=torch.__version__,
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
        timings=tuple(timings),
        margin=margin,
        emulated=device.type == "cpu",
        notes=(f"Memory: {memory}.", f"Energy: {energy}."),
    )


def _peak_bytes(
    mode: str, make: Make, batch: Batch, fit: Callable[..., TrainingRun], device: torch.device
) -> int:
    """What CUDA allocates at most for a model, its optimizer and two of its steps."""
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    model, optimizer = make()
    fit(model, [batch, batch], optimizer=optimizer, precision=mode)
    return torch.cuda.max_memory_allocated(device) - before


def check_modes(modes: Sequence[str], least: int) -> None:
    """ValueError unless the modes are so many of PRECISIONS or more, each once."""
    if isinstance(modes, str) or len(modes) < least:
        raise ValueError(f"modes={modes!r}: pass {least} or more, such as ('fp32', 'bf16')")
    for mode in modes:
        precision_named(mode)
    if len(set(modes)) != len(modes):
        raise ValueError(
            f"modes={modes!r}: name each mode once. The A/A control of the first one is made "
            "without being asked for"
        )


def check_whole(name: str, value: float, least: int) -> None:
    """ValueError unless the value is a whole number from ``least`` on."""
    if value != int(value) or value < least:
        raise ValueError(f"{name}={value!r}: pass a whole number from {least} on")


def _check_equal(models: Sequence[nn.Module]) -> None:
    """ValueError unless the models have the same first weights in parameters of their own."""
    first, *others = (list(model.parameters()) for model in models)
    for call, other in enumerate(others, 2):
        if any(a is b for a, b in zip(first, other, strict=True)):
            raise ValueError(
                "make() gave the same parameters twice, so the arms would train one another's "
                "model: build the model inside make()"
            )
        if not all(torch.equal(a, b) for a, b in zip(first, other, strict=True)):
            raise ValueError(
                f"make() gave other first weights at call {call}, after the same seed: draw "
                "them from torch's global generator"
            )
