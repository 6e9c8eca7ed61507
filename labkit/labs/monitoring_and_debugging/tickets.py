"""Four tickets of a night: a NaN, worse accuracy, out of memory, slow; each from symptom to repair.

Every ticket is a small run with one mistake in it, drawn by a seed and measured on a CPU. The NaN
is a case of the NaN detective. The slow step runs on a simulated device, whose times are the same
on every machine.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, pairwise
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from labkit.devices.async_device import AsyncDevice
from labkit.labs.detective.causes import CAUSES, NAN
from labkit.labs.detective.instruments import INSTRUMENTS
from labkit.labs.detective.nan_detective import Case, accuse, new_case
from labkit.labs.monitoring_and_debugging.layer_report import findings, layer_report
from labkit.measuring.html_tables import readable_bytes
from labkit.training import cross_entropy, evaluate, train
from labkit.training.data import batches, digits
from labkit.training.models import mlp


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """One complaint about a run, and all that it takes to close it.

    Args:
        kind: "NaN", "worse accuracy", "out of memory" or "slow".
        symptom: the complaint, with what was measured.
        test: the first look, in words; ``look()`` makes it and says what it shows.
        cause, repair: in words.
        measure: the number of the complaint, of the run as it is (False) or repaired (True).
        unit: of that number.
    """

    kind: str
    symptom: str
    test: str
    look: Callable[[], str]
    cause: str
    repair: str
    measure: Callable[[bool], float]
    unit: str


def tickets(seed: int = 0) -> tuple[Ticket, ...]:
    """The four tickets that a seed draws, in an order of its own; it takes some seconds."""
    source = random.Random(f"tickets {seed}")
    made = [
        _nan(seed),
        source.choice([_stall, _underflow])(seed),
        _kept_graphs(size=source.randrange(128, 512)),
        _waits(kernels=source.randrange(200, 400)),
    ]
    source.shuffle(made)
    return tuple(made)


def nan_case(seed: int) -> Case:
    """The case behind the NaN ticket of a seed, open: the first from 13 * seed on that breaks."""
    return next(case for n in count(13 * seed) if (case := new_case(n)).finding == NAN)


def _nan(seed: int) -> Ticket:
    case = nan_case(seed)
    verdict = accuse(case, next(iter(CAUSES)))

    def measure(repaired: bool) -> float:
        return sum(not math.isfinite(loss) for loss in case.losses(repaired=repaired))

    return Ticket(
        kind="NaN",
        symptom=case.symptom,
        test=" and ".join(INSTRUMENTS[r.instrument].name.en for r in verdict.evidence),
        look=lambda: " ".join(reading.text.en for reading in verdict.evidence),
        cause=CAUSES[verdict.cause].name.en,
        repair=verdict.repair.en,
        measure=measure,
        unit="losses that are not finite",
    )


# Worse accuracy


@dataclass(frozen=True)
class _Digits:
    """Six epochs of a classifier of digits, in a precision to be named."""

    seed: int
    lr: float
    loss_weight: float = 1.0

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self.loss_weight * cross_entropy(logits, labels)

    def trained(self, precision: str) -> nn.Module:
        torch.manual_seed(self.seed)
        data, model = digits(self.seed), mlp(64, 64, 10)
        train(
            model, batches(data.train_images, data.train_labels, 64, seed=self.seed), epochs=6,
            optimizer=torch.optim.Adam(model.parameters(), lr=self.lr, eps=1e-15),
            loss_fn=self.loss, precision=precision, progress=False,
        )  # fmt: skip
        return model

    def accuracy(self, precision: str) -> float:
        data = digits(self.seed)
        model = self.trained(precision)
        return evaluate(model, data.test_images, data.test_labels, precision=precision)

    def ticket(self, broken: str, sound: str, **words) -> Ticket:
        accuracies = [f"{self.accuracy(precision):.0%}" for precision in (broken, "fp32")]
        symptom = "The 16-bit run ends at an accuracy of {}, the same run in FP32 at {}."
        return Ticket(
            kind="worse accuracy",
            symptom=symptom.format(*accuracies),
            measure=lambda repaired: self.accuracy(sound if repaired else broken),
            unit="accuracy",
            **words,
        )


def _stall(seed: int) -> Ticket:
    run, cause = _Digits(seed, lr=2e-4), CAUSES["bf16-stall"]
    return run.ticket(
        "pure_bf16",
        "bf16",
        test="findings: known mistakes of the model",
        look=lambda: "; ".join(f.seen for f in findings(run.trained("pure_bf16"))),
        cause=cause.name.en,
        repair=cause.advice.en,
    )


def _underflow(seed: int) -> Ticket:
    run, cause = _Digits(seed, lr=1e-3, loss_weight=2.0**-16), CAUSES["underflow"]

    def look() -> str:
        model, data = run.trained("fp32"), digits(seed)
        run.loss(model(data.train_images[:64]), data.train_labels[:64]).backward()
        reports = [row.report for row in layer_report(model)]
        lost = sum(r.lost for r in reports) / sum(r.values - r.zeros for r in reports)
        return f"FP16 flushes {lost:.0%} of the gradients that are not 0 in FP32."

    words = {"cause": cause.name.en, "repair": cause.advice.en}
    test = "layer_report: what FP16 does to the gradients of an FP32 run"
    return run.ticket("fp16_unscaled", "fp16", test=test, look=look, **words)


# Out of memory


class _Kept:
    """A tensor that autograd keeps for a backward pass, until its graph goes."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def _evaluate_batches(size: int, *, no_grad: bool) -> list[int]:
    """Bytes that autograd keeps after each of eight batches whose losses are added up."""
    model, kept, total, after = mlp(64, 256, 256, 10), WeakSet(), 0.0, []
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def pack(tensor: Tensor) -> _Kept:
        box = _Kept(tensor)
        kept.add(box)
        return box

    with saved_tensors_hooks(pack, lambda box: box.tensor), torch.set_grad_enabled(not no_grad):
        for _ in range(8):
            total = total + model(torch.zeros(size, 64)).square().mean()
            storages = {s.data_ptr(): s for s in (box.tensor.untyped_storage() for box in kept)}
            after.append(sum(s.nbytes() for at, s in storages.items() if at not in weights))
    return after


def _kept_graphs(size: int) -> Ticket:
    *_, card, needed = _evaluate_batches(size, no_grad=False)
    return Ticket(
        kind="out of memory",
        symptom=f"Evaluation, batch 8 of 8: {readable_bytes(needed)} needed, "
        f"{readable_bytes(card)} left on the card beside the model.",
        test="bytes that autograd keeps after each batch",
        look=lambda: (
            "After batches 1 to 4: "
            + ", ".join(readable_bytes(kept) for kept in _evaluate_batches(size, no_grad=False)[:4])
        ),
        cause="The evaluation adds up losses with their graphs, so that no activation is freed",
        repair="Evaluate under torch.no_grad(), and add up loss.item().",
        measure=lambda repaired: max(_evaluate_batches(size, no_grad=repaired)),
        unit="bytes kept for backward",
    )


# Slow


def _step_on_device(kernels: int, *, wait: bool) -> AsyncDevice:
    """A step of kernels of 15 µs, each of which takes 10 µs to launch."""
    device = AsyncDevice(launch_seconds=1e-5)
    for _ in range(kernels):
        device.launch("kernel", seconds=1.5e-5)
        if wait:
            device.synchronize()
    device.synchronize()
    return device


def _waits(kernels: int) -> Ticket:
    def measure(repaired: bool) -> float:
        return 1e3 * _step_on_device(kernels, wait=not repaired).clock()

    def look() -> str:
        trace = _step_on_device(kernels, wait=True).trace
        idle = sum(after.called >= before.end for before, after in pairwise(trace))
        return f"{idle} of {kernels} kernels are launched only when the one before is done."

    return Ticket(
        kind="slow",
        symptom=f"A step takes {measure(False):.1f} ms, its kernels {kernels * 0.015:.1f} ms.",
        test="a trace of the device: when each kernel is launched, begins and ends",
        look=look,
        cause="The loop reads a value after every kernel, and the device is idle while it launches",
        repair="Keep statistics as tensors on the device, and read them once in many steps.",
        measure=measure,
        unit="ms a step",
    )
