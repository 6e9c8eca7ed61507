"""``train``: one visible loop for every precision of the course.

Precisions differ around the loop, not in it: ``precision`` makes each one hold, and a disabled
scaler does nothing. Every step is zero_grad, forward under autocast, scaled backward, unscale_,
clip, step, update.
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import length_hint

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils._pytree import tree_map
from tqdm.auto import tqdm

from labkit.training.arguments import Scaler, check_model, check_settings, prepare, scaler_for
from labkit.training.batches import (
    Batch,
    Inputs,
    Loss,
    NamedBatch,
    counting,
    grouped,
    inputs_and_targets,
    logits_of,
    loss_of,
    on_device,
    output_of,
)
from labkit.training.interrupts import whole_steps
from labkit.training.precision import (
    active,
    check_parameters,
    check_values,
    device_named,
    precision_named,
)
from labkit.training.scaling import NumericalInstability


@dataclass(frozen=True)
class StepRecord:
    """One training step: a call of the optimizer, or what was skipped instead of it.

    Args:
        step: 0 for the first.
        loss: the mean over what the step's losses are means of, not scaled.
        grad_norm: the 2-norm of all gradients, not scaled and before clipping; inf or NaN where a
            gradient is.
        loss_scale: what the loss of this step was multiplied by, 1.0 without a scaler.
        skipped: a gradient, or without a scaler the loss, was inf or NaN, so the parameters and the
            learning rate stayed as they were.
    """

    step: int
    loss: float
    grad_norm: float
    loss_scale: float
    skipped: bool


class TrainingRun(list[StepRecord]):
    """The records of a run, and as the run left it the ``scaler``: the one that was given, or the
    run's own, which is disabled where the loss is not scaled.
    """

    def __init__(self, scaler: torch.amp.GradScaler) -> None:
        super().__init__()
        self.scaler = scaler


def train(
    model: nn.Module,
    batches: Iterable[Batch | NamedBatch],
    *,
    optimizer: Optimizer,
    loss_fn: Loss | None = None,
    precision: str = "fp32",
    epochs: int = 1,
    device: str | torch.device = "cpu",
    scaler: Scaler | None = None,
    schedule: LRScheduler | None = None,
    max_grad_norm: float | None = None,
    accumulate: int = 1,
    weigh: Callable[[Tensor], Tensor | float] | None = None,
    max_skips: int | None = None,
    on_step: Callable[[StepRecord], object] | None = None,
    progress: bool = True,
) -> TrainingRun:
    """Train the model in place and return a record of each step.

    On a CPU the run is inside ``emulate_gpu()``; on CUDA float32 products are pinned to IEEE, for
    "tf32" to TF32. The model moves to the device and into train mode, and for "pure_*" it becomes
    16-bit; its parameters stay the same objects, so an optimizer made before holds them still. The
    gradients of the last step stay in them. The host waits for an accelerator once a step.

    An interrupt (Ctrl-C, JupyterLab's stop button) comes through as KeyboardInterrupt once the step
    at hand is whole and ``on_step`` has seen it; a second one does not wait.

    To resume a run, make the scaler and the schedule yourself and pass them. Save six states after
    an epoch: ``state_dict()`` of the model, the optimizer, the scaler and the schedule,
    ``torch.get_rng_state()`` and the loader's ``generator.get_state()``. A run that loads all six
    ends at the same bits as one that never stopped.

    Args:
        batches: read once an epoch. A batch is (inputs, targets), or a dict whose "labels" are the
            targets and whose other tensors the model takes by name. The first dimension of all
            tensors is the samples. Floating point values are cast to the dtype of the parameters.
        optimizer: over the model's parameters, with dense or sparse gradients.
        loss_fn: (output, targets) -> the mean loss, one number with a gradient. By default it is
            ``cross_entropy`` of the output or of its ``.logits``. Of a dict, it is the ``.loss`` of
            a model that takes "labels" itself, as Hugging Face's do, which shift them.
        precision: one of PRECISIONS. "fp16", "bf16": autocast, "fp16" with a dynamic loss scale,
            "fp16_unscaled" without one. "pure_*": the whole model in 16 bits.
        scaler: used in place of a fresh one, which only "fp16" has by itself, or the ``LossScale``
            that a fresh one starts from. ``TrainingRun.scaler`` is the one used.
        schedule: of this optimizer; it advances after each step that is not skipped.
        max_grad_norm: unscaled gradients with a larger 2-norm are shortened to this one.
        accumulate: batches to a step. The last step of an epoch takes what is left.
        weigh: targets of a batch -> the number that their loss was divided by; a batch has this
            weight in its step. By default it is the number of targets that are not
            ``ignore_index``: -100, or what an ``nn.CrossEntropyLoss`` or a ``functools.partial``
            says. Of floating point targets all values count. A model's own loss needs a ``weigh``.
        max_skips: so many skipped steps in a row raise NumericalInstability; None: never. A step is
            skipped where a gradient, or without a scaler the loss, is inf or NaN.
        on_step: called with each record as soon as its step is done.

    Raises:
        ValueError: an argument, an empty loader or a batch is not as described; the model has
            parameters that are complex, of another dtype, on "meta" or on several devices; none of
            the optimizer's gets a gradient.
        RuntimeError: products turn out to be of another dtype than was asked for; a scaler is for
            "cuda", and there is none.
        NumericalInstability: after ``max_skips``. Parameters, optimizer and schedule are as after
            the step before.
    """
    plan, device = precision_named(precision), device_named(device)
    check_settings(
        batches, max_grad_norm, epochs=epochs, accumulate=accumulate, max_skips=max_skips
    )
    check_model(model, optimizer, schedule, plan)
    scaler = scaler_for(scaler, plan, device)
    scaled = scaler.is_enabled()
    weigh = weigh or (counting(loss_fn, model) if accumulate > 1 else len)
    run, skips_in_a_row = TrainingRun(scaler), 0
    groups = grouped(batches, epochs, accumulate)
    total = epochs * math.ceil(length_hint(batches) / accumulate)
    with (
        whole_steps() as stop_if_asked,
        active(plan, device) as autocast,
        tqdm(groups, total=total or None, desc=precision, leave=False, disable=not progress) as bar,
    ):
        prepare(model, plan, device)
        for step, group in enumerate(bar):
            optimizer.zero_grad()
            mean_loss = torch.zeros((), device=device)
            for batch, share in zip(group, _shares(group, weigh, device), strict=True):
                inputs, targets = on_device(batch, plan, device)
                with autocast():
                    batch_loss = loss_of(model, inputs, targets, loss_fn)
                # A batch of padding alone has the mean NaN, and NaN * 0 would be NaN.
                part = batch_loss.where(share != 0, 0) * share
                scaler.scale(part).backward()
                mean_loss = mean_loss + part.detach()

            scaler.unscale_(optimizer)
            norm = _clip(optimizer, max_grad_norm)

            # The host reads its three numbers at once: it waits for the device once a step.
            scale = scaler.scale(torch.ones_like(mean_loss))
            numbers = torch.stack([x.reshape(()) for x in (mean_loss, norm, scale)])
            loss, grad_norm, loss_scale = numbers.tolist()
            skipped = not math.isfinite(grad_norm) or not (scaled or math.isfinite(loss))
            if not skipped:
                optimizer.step()  # as scaler.step(optimizer) would, which reads found_inf again
                if schedule is not None:
                    schedule.step()
            scaler.update()

            run.append(StepRecord(step, loss, grad_norm, loss_scale, skipped))
            bar.set_postfix(loss=f"{loss:.4g}", loss_scale=f"{loss_scale:g}", refresh=False)
            if on_step is not None:
                on_step(run[-1])
            skips_in_a_row = skips_in_a_row + 1 if skipped else 0
            if skips_in_a_row == max_skips:
                raise NumericalInstability(
                    f"step {step}: the loss is {loss:g} and the norm of the gradients "
                    f"{grad_norm:g} at a loss scale of {loss_scale:g}. Steps in a row that were "
                    f"not taken: {max_skips}. The gradients are still in .grad. Look at the batch: "
                    "once the loss itself is inf or NaN, no scale helps"
                )
            stop_if_asked()
    return run


def evaluate(
    model: nn.Module, inputs: Inputs, targets: Tensor, *, precision: str = "fp32"
) -> float:
    """The share of targets at which the largest output stands, with the model in eval mode.

    Args:
        inputs, targets: of one length; the inputs may be a dict of tensors that the model takes by
            name. Outputs, or their ``.logits``, have one dimension more than targets, the classes,
            last; nothing is shifted. They go where the model is, 1,024 at a time.
        precision: as in ``train``; the model must have the parameters that go with it.

    Raises:
        ValueError: no inputs, other lengths, another dtype of parameters or none yet, an unknown
            precision.
    """
    plan = precision_named(precision)
    check_values(model)
    check_parameters(model, plan)
    whole = {**inputs, "labels": targets} if isinstance(inputs, Mapping) else (inputs, targets)
    inputs, targets = inputs_and_targets(whole, "evaluate")
    device = next(model.parameters(), targets).device
    right = total = 0
    with in_eval_mode(model), active(plan, device) as autocast, torch.no_grad(), autocast():
        for start in range(0, len(targets), 1024):
            part = tree_map(lambda values: values[start : start + 1024], (inputs, targets))  # noqa: B023
            x, y = on_device(part, plan, device)
            right += (logits_of(output_of(model, x)).argmax(dim=-1) == y).sum().item()
            total += y.numel()
    return right / total


@contextmanager
def in_eval_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode inside; afterwards each module's mode is what it was, and FSDP2's are sharded."""
    modes = {module: module.training for module in model.modules()}
    fsdp = sys.modules.get("torch.distributed.fsdp")
    try:
        model.eval()
        yield
    finally:
        for module, training in modes.items():
            module.training = training
            if fsdp and isinstance(module, fsdp.FSDPModule):
                module.reshard()  # FSDP2 does it in backward, and there was none


# What the loop calls


def _shares(
    group: Sequence[tuple[object, Tensor]],
    weigh: Callable[[Tensor], Tensor | float],
    device: torch.device,
) -> Tensor:
    """What part each batch has in the step's mean: one number a batch, on the device."""
    weights = torch.stack([torch.as_tensor(weigh(targets)) for _, targets in group])
    return (weights / weights.sum()).to(device, non_blocking=True)


def _clip(optimizer: Optimizer, max_norm: float | None) -> Tensor:
    """The norm of all gradients of the optimizer, 0-d, which are then clipped if it is finite."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    parameters = [p for p in parameters if p.grad is not None]
    for p in parameters:
        if p.grad.is_sparse:
            p.grad = p.grad.coalesce()  # a row that is there twice has one gradient, the sum
    if not parameters:
        raise ValueError(
            "no parameter of the optimizer has a gradient after backward, so none would learn: the "
            "loss does not depend on them, or a quantized layer ends their gradients"
        )
    gradients = [p.grad.values() if p.grad.is_sparse else p.grad for p in parameters]
    # A norm in fp16 would overflow at 65504.
    norm = get_total_norm([gradient.float() for gradient in gradients])
    if max_norm is not None:
        # A norm of 0 leaves the gradients as they are.
        clip_grads_with_norm_(parameters, max_norm, norm.nan_to_num(0, 0, 0))
    return norm
