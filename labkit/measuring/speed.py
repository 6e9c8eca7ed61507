"""``benchmark``: precisions beside one another in a real training loop.

A speed-up is a claim about pairs. Every mode trains a model of its own from the same weights, the
modes take turns (``labkit.measuring.arms``), and the first one runs twice. ``report`` shows what
came of it, and ``verdicts`` says which mode is faster.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count, islice, pairwise
from statistics import fmean, median
from time import perf_counter

import torch
from torch import nn
from torch.optim import Optimizer
from tqdm.auto import tqdm

from labkit.devices.probe import described
from labkit.measuring.arms import ratio, synchronize, take_turns
from labkit.measuring.efficiency import work_and_memory
from labkit.measuring.energy import NvmlCounter, RaplCounter, energy_counter
from labkit.measuring.report import Benchmark, ModeResult
from labkit.measuring.verdicts import TIME_MARGIN, check_margin
from labkit.training.batches import Batch, Loss, check_batch
from labkit.training.loop import StepRecord, evaluate, train
from labkit.training.precision import check_values, device_named, precision_named

Make = Callable[[], tuple[nn.Module, Optimizer]]


# A mode in training


@dataclass(frozen=True)
class _Block:
    """Seconds of each timed step, seconds that these waited for their batches, joules of all."""

    seconds: list[float]
    waiting: float
    joules: float

    @property
    def waiting_share(self) -> float:
        return self.waiting / sum(self.seconds) if any(self.seconds) else 0.0


class _Training:
    """One model in training, a block of steps at a time."""

    def __init__(
        self,
        mode: str,
        make: Make,
        batches: Iterable[Batch],
        *,
        seed: int,
        steps: int,
        loss_fn: Loss | None,
        device: torch.device,
        counter: RaplCounter | NvmlCounter | None,
    ) -> None:
        self.mode, self.steps, self.loss_fn = mode, steps, loss_fn
        self.device, self.counter = device, counter
        torch.manual_seed(seed)
        self.model, self.optimizer = make()
        # The first block makes it, the others go on with it.
        self.scaler: torch.amp.GradScaler | None = None
        self.unread = _endless(batches)
        self.seeds = count(seed)
        self.trained = self.skipped = 0
        self.losses: list[float] = []  # of the latest block

    def block(self) -> _Block:
        """Train a block. Its first step finds the caches full of another arm: it is not timed."""
        # The same dropout, and the same shuffle of a loader, for every arm.
        torch.manual_seed(next(self.seeds))
        ends, waits = [], []

        def read() -> Iterator[Batch]:
            for _ in range(self.steps + 1):
                start = perf_counter()
                batch = next(self.unread)
                waits.append(perf_counter() - start)
                yield batch

        def look(record: StepRecord) -> None:
            synchronize(self.device)  # the update may still be running
            ends.append(perf_counter())

        before = self.counter.joules() if self.counter else 0.0
        records = train(
            self.model,
            read(),
            optimizer=self.optimizer,
            loss_fn=self.loss_fn,
            precision=self.mode,
            device=self.device,
            scaler=self.scaler,
            on_step=look,
            progress=False,
        )
        joules = self.counter.joules() - before if self.counter else 0.0
        self.scaler = records.scaler if precision_named(self.mode).scaled else None
        self.trained += len(records)
        self.skipped += sum(record.skipped for record in records)
        self.losses = [record.loss for record in records]
        return _Block([end - start for start, end in pairwise(ends)], sum(waits[1:]), joules)


def _endless(batches: Iterable[Batch]) -> Iterator[Batch]:
    while True:
        empty = True
        for batch in batches:
            empty = False
            yield batch
        if empty:
            raise ValueError(
                f"batches, a {type(batches).__name__}, gave nothing when it was read again, and "
                "every arm reads it: pass list(batches), or a DataLoader"
            )


def _peak_bytes(
    mode: str, make: Make, batch: Batch, loss_fn: Loss | None, device: torch.device
) -> int:
    """What CUDA allocates at most for a model, its optimizer and two of its steps."""
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    model, optimizer = make()
    train(
        model,
        [batch, batch],
        optimizer=optimizer,
        loss_fn=loss_fn,
        precision=mode,
        device=device,
        progress=False,
    )
    return torch.cuda.max_memory_allocated(device) - before


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
) -> Benchmark:
    """Train every mode in turns, the first one twice, and report what each step took and gave.

    A round is a block of steps of every arm, in a shuffled order. The first step of a block is not
    timed, nor are the first ``warm_up`` rounds. Every arm goes on with its own model, optimizer and
    loss scale, ``(warm_up + rounds) * (steps + 1)`` steps in all. The global random state is left
    as it was. An interrupt ends it without a report.

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
    _check(modes, batches, steps=steps, rounds=rounds, warm_up=warm_up)
    check_margin(margin)
    counter = energy_counter(device)
    if test is not None:
        check_batch(test, "test")
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        first_batch = _first(batches)
        trainings = [
            _Training(
                mode,
                make,
                batches,
                seed=seed,
                steps=steps,
                loss_fn=loss_fn,
                device=device,
                counter=counter,
            )
            for mode in (*modes, modes[0])
        ]
        _check_equal([training.model for training in trainings])
        total = (warm_up + rounds) * len(trainings)
        with tqdm(total=total, desc="benchmark", leave=False, disable=not progress) as bar:
            turns = take_turns([t.block for t in trainings], seed=seed, on_turn=bar.update)
            timed = list(islice(turns, warm_up, warm_up + rounds))
        *blocks, again = zip(*timed, strict=True)
        results = []
        for training, own in zip(trainings, blocks, strict=False):  # the control is no result
            mode, step_seconds = training.mode, [s for block in own for s in block.seconds]
            torch.manual_seed(seed)
            model, _ = make()
            flop, memory = work_and_memory(
                model, first_batch, loss_fn=loss_fn, precision=mode, device=device
            )
            if device.type == "cuda":
                del model
                memory = _peak_bytes(mode, make, first_batch, loss_fn, device)
            joules = sum(block.joules for block in own)
            results.append(
                ModeResult(
                    mode=mode,
                    step_ms=tuple(1e3 * seconds for seconds in step_seconds),
                    time_ratios=_over(own, blocks[0]),
                    steps=training.trained,
                    skipped_steps=training.skipped,
                    final_loss=fmean(training.losses),
                    test_accuracy=(
                        None if test is None else evaluate(training.model, *test, precision=mode)
                    ),
                    memory_bytes=memory,
                    flop_per_step=flop,
                    waiting_share=median(block.waiting_share for block in own),
                    joules_per_step=joules / (rounds * (steps + 1)) if counter else None,
                )
            )
    return Benchmark(
        device=described(str(device)).name,
        torch=torch.__version__,
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
        emulated=device.type == "cpu",
        results=tuple(results),
        control=_over(again, blocks[0]),
        memory=(
            "the most that CUDA allocates for the model, its optimizer and two steps"
            if device.type == "cuda"
            else "what autograd keeps for backward, without the parameters"
        ),
        energy=counter.source if counter else "not measured",
        margin=margin,
    )


def _over(own: Sequence[_Block], first: Sequence[_Block]) -> tuple[float, ...]:
    """For each round the median step of an arm over that of the first one."""
    return tuple(
        ratio(median(mine.seconds), median(its.seconds))
        for mine, its in zip(own, first, strict=True)
    )


# What is refused


def _check(
    modes: Sequence[str], batches: Iterable[Batch], *, steps: int, rounds: int, warm_up: int
) -> None:
    if isinstance(modes, str) or not modes:
        raise ValueError(f"modes={modes!r}: pass one or more, such as ('fp32', 'bf16')")
    for mode in modes:
        precision_named(mode)
    if len(set(modes)) != len(modes):
        raise ValueError(
            f"modes={modes!r}: name each mode once. The first one runs twice without being asked"
        )
    for name, value, least in (("steps", steps, 1), ("rounds", rounds, 1), ("warm_up", warm_up, 0)):
        if value != int(value) or value < least:
            raise ValueError(f"{name}={value!r}: pass a whole number from {least} on")
    if isinstance(batches, Iterator):
        raise ValueError(
            f"batches is a {type(batches).__name__}, which can be read once, and every arm reads "
            "it: pass list(batches), or a DataLoader"
        )


def _first(batches: Iterable[Batch]) -> Batch:
    for batch in batches:
        check_batch(batch, "the first batch")
        return batch
    raise ValueError(
        "batches gave nothing: pass at least one (inputs, targets), in a list or a DataLoader"
    )


def _check_equal(models: Sequence[nn.Module]) -> None:
    """ValueError unless the models have the same first weights in parameters of their own."""
    for model in models:
        check_values(model)
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
