"""``train``: one visible loop for every precision of the course.

Precisions differ around the loop, not in it: ``precision`` says what each one is and makes
it hold, a scaler that is disabled does nothing, and every step is zero_grad, forward under
autocast, scaled backward, unscale_, clip, step, update. ``train`` is that loop; above it stands
what it returns, below it what it calls.
"""

import math
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer
from tqdm.auto import tqdm

from labkit.training.loss_scaler import LossScaler
from labkit.training.precision import (
    Precision,
    PrecisionWarning,
    active,
    check_parameters,
    device_named,
    precision_named,
)

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class StepRecord:
    """One training step: a call of the optimizer, or what was skipped instead of it.

    Args:
        step: 0 for the first.
        loss: the mean over the samples of the step, not scaled.
        grad_norm: the 2-norm of all gradients, not scaled and before clipping; inf or NaN where a
            gradient is.
        loss_scale: what the loss of this step was multiplied by, 1.0 without a scaler.
        skipped: the scaler found inf or NaN, so the parameters stayed as they were.
    """

    step: int
    loss: float
    grad_norm: float
    loss_scale: float
    skipped: bool


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy of logits whose classes are the last dimension, a 0-d tensor.

    Args:
        logits: N x C, or N x T x C as a language model gives them.
        targets: int64, N or N x T; -100 marks what does not count.

    >>> round(cross_entropy(torch.zeros(2, 5, 4), torch.ones(2, 5, dtype=torch.int64)).item(), 3)
    1.386
    """
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def train(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    optimizer: Optimizer,
    loss_fn: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
    precision: str = "fp32",
    epochs: int = 1,
    device: str | torch.device = "cpu",
    scaler: LossScaler | torch.amp.GradScaler | None = None,
    max_grad_norm: float | None = None,
    accumulate: int = 1,
    on_step: Callable[[StepRecord], object] | None = None,
    progress: bool = True,
) -> list[StepRecord]:
    """Train the model in place and return a record of each step.

    On a CPU the run is inside ``emulate_gpu()``; on CUDA float32 products are pinned to IEEE, for
    "tf32" to TF32. The model moves to the device, and for "pure_*" its parameters become 16-bit;
    they stay the same objects, so an optimizer made before holds them still.

    An interrupt (Ctrl-C, JupyterLab's stop button) comes through as KeyboardInterrupt once the step
    at hand is whole and ``on_step`` has seen it; a second one does not wait.

    Args:
        batches: read once an epoch: (inputs, targets), of one length. Floating point values are
            cast to the dtype of the parameters.
        optimizer: over the model's parameters.
        loss_fn: (output, targets) -> the mean loss of the samples.
        precision: one of PRECISIONS. "fp16", "bf16": autocast, "fp16" with a dynamic loss scale,
            "fp16_unscaled" without one. "pure_*": the whole model in 16 bits.
        scaler: used in place of a fresh ``LossScaler()``, which only "fp16" has by itself.
        max_grad_norm: longer gradients are shortened to this norm.
        accumulate: batches to a step. The last step of an epoch takes what is left.
        on_step: called with each record as soon as its step is done.

    Raises:
        ValueError: an argument, an empty loader or a batch is not as described.
        RuntimeError: products turn out to be of another dtype than was asked for.
    """
    plan, device = precision_named(precision), device_named(device)
    _check_numbers(batches, epochs=epochs, accumulate=accumulate, max_grad_norm=max_grad_norm)
    _check_model(model, optimizer, plan)
    scaler = _scaler(scaler, plan, device)
    records: list[StepRecord] = []
    groups = _groups(batches, epochs, accumulate)
    total = _number_of_steps(batches, epochs, accumulate)
    with (
        _whole_steps() as stop_if_asked,
        active(plan, device) as autocast,
        tqdm(groups, total=total, desc=precision, leave=False, disable=not progress) as bar,
    ):
        model.to(device=device, dtype=plan.parameters).train()
        for step, group in enumerate(bar):
            optimizer.zero_grad()
            loss, samples = 0.0, sum(len(inputs) for inputs, _ in group)
            for batch in group:
                inputs, targets = moved(batch, plan, device)
                with autocast():
                    batch_loss = loss_fn(model(inputs), targets)
                # The mean of the step's samples, also where its batches differ in length.
                share = batch_loss * (len(inputs) / samples)
                scaler.scale(share).backward()
                loss += share.item()

            scaler.unscale_(optimizer)
            grad_norm = _clip(optimizer, max_grad_norm)

            loss_scale = scaler.get_scale()
            with _watching(optimizer) as steps_taken:
                scaler.step(optimizer)
            scaler.update()

            records.append(StepRecord(step, loss, grad_norm, loss_scale, not any(steps_taken)))
            bar.set_postfix(loss=f"{loss:.4g}", loss_scale=f"{loss_scale:g}", refresh=False)
            if on_step is not None:
                on_step(records[-1])
            stop_if_asked()
    return records


def evaluate(
    model: nn.Module, inputs: Tensor, targets: Tensor, *, precision: str = "fp32"
) -> float:
    """The share of targets at which the largest output stands, with the model in eval mode.

    Args:
        inputs, targets: of one length; outputs have one dimension more than targets, the classes,
            last. They go where the model is, 1,024 at a time.
        precision: as in ``train``; the model must have the parameters that go with it.

    Raises:
        ValueError: no inputs, other lengths, another dtype of parameters, an unknown precision.
    """
    plan = precision_named(precision)
    check_parameters(model, plan)
    check_batch((inputs, targets), "evaluate")
    device = next(model.parameters(), targets).device
    modes = {module: module.training for module in model.modules()}
    right = total = 0
    try:
        model.eval()
        with active(plan, device) as autocast, torch.no_grad(), autocast():
            for batch in zip(inputs.split(1024), targets.split(1024), strict=True):
                x, y = moved(batch, plan, device)
                right += (model(x).argmax(dim=-1) == y).sum().item()
                total += y.numel()
    finally:
        for module, training in modes.items():
            module.training = training
    return right / total


# What the loop calls


def _groups(batches: Iterable[Batch], epochs: int, accumulate: int) -> Iterator[list[Batch]]:
    """For each step, epoch after epoch, the batches it takes."""
    for epoch in range(epochs):
        unread, empty = iter(batches), True
        while group := list(islice(unread, accumulate)):
            for batch in group:
                check_batch(batch, f"a batch of epoch {epoch}")
            empty = False
            yield group
        if empty:
            raise ValueError(
                f"batches gave nothing in epoch {epoch}: pass at least one (inputs, targets), in "
                "a list, a DataLoader or another thing that can be read once an epoch"
            )


def moved(batch: Batch, plan: Precision, device: torch.device) -> list[Tensor]:
    """The batch on the device, floating point values in the dtype of the parameters."""
    return [
        values.to(device, plan.parameters if values.is_floating_point() else None)
        for values in batch
    ]


def _clip(optimizer: Optimizer, max_norm: float | None) -> float:
    """The norm of all gradients of the optimizer, which are then clipped if it is finite."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    parameters = [p for p in parameters if p.grad is not None]
    # A norm in fp16 would overflow at 65504.
    norm = get_total_norm([p.grad.float() for p in parameters])
    if max_norm is not None and norm.isfinite():
        clip_grads_with_norm_(parameters, max_norm, norm)
    return norm.item()


@contextmanager
def _watching(optimizer: Optimizer) -> Iterator[list[bool]]:
    """Whether each call of ``optimizer.step()`` inside takes a step.

    A scaler skips a step by not calling it; under GradScaler a fused optimizer is called, told of
    the inf, and skips by itself.
    """
    taken: list[bool] = []

    def note(optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
        found_inf = getattr(optimizer, "found_inf", None)
        taken.append(found_inf is None or not found_inf.item())

    hook = optimizer.register_step_post_hook(note)
    try:
        yield taken
    finally:
        hook.remove()


def _number_of_steps(batches: Iterable[Batch], epochs: int, accumulate: int) -> int | None:
    try:
        return epochs * math.ceil(len(cast("Sized", batches)) / accumulate)
    except TypeError:  # not every loader knows its length
        return None


@contextmanager
def _whole_steps() -> Iterator[Callable[[], None]]:
    """Hold an interrupt back until the step at hand is whole: until the yielded function is called.

    Only where an interrupt would raise KeyboardInterrupt here: in the main thread, under Python's
    own handler. A second interrupt is not held back.
    """
    asked = False

    def note(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    def stop_if_asked() -> None:
        if asked:
            raise KeyboardInterrupt

    own = signal.default_int_handler
    here = threading.current_thread() is threading.main_thread()
    held = here and signal.getsignal(signal.SIGINT) is own
    if held:
        signal.signal(signal.SIGINT, note)
    try:
        yield stop_if_asked
    finally:
        if held:
            signal.signal(signal.SIGINT, own)
    stop_if_asked()


# What is refused


def _check_numbers(
    batches: Iterable[Batch], *, epochs: int, accumulate: int, max_grad_norm: float | None
) -> None:
    if epochs != int(epochs) or epochs < 0:
        raise ValueError(f"epochs={epochs!r}: pass a whole number from 0 on")
    if accumulate != int(accumulate) or accumulate < 1:
        raise ValueError(f"accumulate={accumulate!r} batches to a step: pass a whole number from 1")
    if max_grad_norm is not None and not max_grad_norm > 0:
        raise ValueError(f"max_grad_norm={max_grad_norm!r}: pass a number above 0, or None")
    if epochs > 1 and isinstance(batches, Iterator):
        raise ValueError(
            f"batches is a {type(batches).__name__}, which can be read once, and epochs={epochs}: "
            "pass list(batches), or a DataLoader"
        )


def check_batch(batch: object, what: str) -> None:
    """ValueError unless it is (inputs, targets) with as many samples of one as of the other."""
    if (
        not isinstance(batch, tuple | list)
        or len(batch) != 2
        or not all(isinstance(part, Tensor) and part.dim() for part in batch)
    ):
        raise ValueError(
            f"{what} is {_described(batch)}: it must be (inputs, targets), two tensors with the "
            "samples along their first dimension"
        )
    inputs, targets = batch
    if len(inputs) != len(targets) or not len(inputs):
        raise ValueError(
            f"{what} has inputs of shape {tuple(inputs.shape)} and targets of shape "
            f"{tuple(targets.shape)}: both must have the same number of samples, 1 or more"
        )


def _described(batch: object) -> str:
    if isinstance(batch, tuple | list):
        return f"a {type(batch).__name__} of {[type(part).__name__ for part in batch]}"
    return f"a {type(batch).__name__}"


def _check_model(model: nn.Module, optimizer: Optimizer, plan: Precision) -> None:
    if plan.parameters is torch.float32:
        check_parameters(model, plan)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if held.isdisjoint(id(p) for p in model.parameters()):
        raise ValueError(
            "optimizer holds no parameter of this model, which would learn nothing: make it anew, "
            "as in torch.optim.SGD(model.parameters(), lr=0.1)"
        )


def _scaler(
    scaler: LossScaler | torch.amp.GradScaler | None, plan: Precision, device: torch.device
) -> LossScaler | torch.amp.GradScaler:
    """The scaler of the run; a disabled one, which does nothing, where the loss is not scaled."""
    if plan.name == "fp16_unscaled" and scaler is not None:
        raise ValueError("precision='fp16_unscaled' takes no scaler: ask for 'fp16' to scale")
    if scaler is None and plan.scaled:
        return LossScaler()
    if scaler is None:
        return torch.amp.GradScaler(device.type, enabled=False)
    if plan.scaled and isinstance(scaler, torch.amp.GradScaler):
        _say_if_disabled(scaler)
    return scaler


def _say_if_disabled(scaler: torch.amp.GradScaler) -> None:
    if not scaler.is_enabled():
        warnings.warn(
            "precision='fp16' with a disabled GradScaler: the loss is not scaled. "
            "GradScaler('cuda') disables itself where there is no CUDA: write "
            "GradScaler(device.type), or ask for 'fp16_unscaled'",
            PrecisionWarning,
            stacklevel=4,
        )
