"""``train``: one visible loop for every precision of the course.

This module believes that a precision is a few facts, written as data in ``_PLANS``: what autocast
computes in, what the parameters are kept in, whether the loss is scaled, and what a float32 product
means. Everything else of a training step is the same for all, and stands in the loop of ``train``.
What was asked for is tried before the first step; what is not so is said loudly.
"""

import math
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer
from tqdm.auto import tqdm

from labkit import accumulators
from labkit.dtype_support import dtype_support
from labkit.emulation import emulate_gpu
from labkit.loss_scaler import LossScaler

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


@dataclass(frozen=True, kw_only=True)
class _Plan:
    autocast: torch.dtype | None = None
    parameters: torch.dtype = torch.float32
    scaled: bool = False
    fp32_products: str = "ieee"  # or "tf32", on devices that have it

    @property
    def products(self) -> torch.dtype:
        """The dtype in which a matmul comes back."""
        return self.autocast or self.parameters


_PLANS = {
    "fp32": _Plan(),
    "tf32": _Plan(fp32_products="tf32"),
    "bf16": _Plan(autocast=torch.bfloat16),
    "fp16": _Plan(autocast=torch.float16, scaled=True),
    "fp16_unscaled": _Plan(autocast=torch.float16),
    "pure_bf16": _Plan(parameters=torch.bfloat16),
    "pure_fp16": _Plan(parameters=torch.float16),
}
PRECISIONS = tuple(_PLANS)


class PrecisionWarning(UserWarning):
    """The run does not compute, or not by units of its own, in the precision asked for."""


def train(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    optimizer: Optimizer,
    loss_fn: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
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
    plan, device = _plan(precision), _device(device)
    _check_numbers(batches, epochs=epochs, accumulate=accumulate, max_grad_norm=max_grad_norm)
    _check_model(model, optimizer, plan, precision)
    scaler = _scaler(scaler, precision, device)
    records: list[StepRecord] = []
    with _whole_steps() as stop_if_asked, _ready(precision, device) as autocast:
        model.to(device=device, dtype=plan.parameters).train()
        groups = _groups(batches, epochs, accumulate)
        with _bar(groups, batches, epochs, accumulate, precision, progress) as bar:
            for step, group in enumerate(bar):
                optimizer.zero_grad()
                loss, samples = 0.0, sum(len(inputs) for inputs, _ in group)
                for batch in group:
                    inputs, targets = _moved(batch, plan, device)
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

                skipped = not any(steps_taken)
                records.append(StepRecord(step, loss, grad_norm, loss_scale, skipped))
                bar.set_postfix(loss=f"{loss:.4g}", loss_scale=f"{loss_scale:g}", refresh=False)
                if on_step is not None:
                    on_step(records[-1])
                stop_if_asked()
    return records


def evaluate(
    model: nn.Module, inputs: Tensor, targets: Tensor, *, precision: str = "fp32"
) -> float:
    """The share of inputs whose largest output is at the target, with the model in eval mode.

    Args:
        inputs, targets: of one length. They go where the model is, 1,024 at a time.
        precision: as in ``train``; the model must have the parameters that go with it.

    Raises:
        ValueError: no inputs, other lengths, another dtype of parameters, an unknown precision.
    """
    plan = _plan(precision)
    _check_parameters(model, plan, precision)
    _check_batch((inputs, targets), "evaluate")
    device = next(model.parameters(), targets).device
    modes = {module: module.training for module in model.modules()}
    right = total = 0
    try:
        model.eval()
        with _ready(precision, device) as autocast, torch.no_grad(), autocast():
            for batch in zip(inputs.split(1024), targets.split(1024), strict=True):
                x, y = _moved(batch, plan, device)
                right += (model(x).argmax(dim=-1) == y).sum().item()
                total += y.numel()
    finally:
        for module, training in modes.items():
            module.training = training
    return right / total


# What the loop calls


def _groups(batches: Iterable[Batch], epochs: int, accumulate: int) -> Iterator[list[Batch]]:
    """The batches of each step, epoch after epoch."""
    for epoch in range(epochs):
        unread, empty = iter(batches), True
        while group := list(islice(unread, accumulate)):
            for batch in group:
                _check_batch(batch, f"a batch of epoch {epoch}")
            empty = False
            yield group
        if empty:
            raise ValueError(
                f"batches gave nothing in epoch {epoch}: pass at least one (inputs, targets), in "
                "a list, a DataLoader or another thing that can be read once an epoch"
            )


def _moved(batch: Batch, plan: _Plan, device: torch.device) -> list[Tensor]:
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


def _bar(
    groups: Iterator[list[Batch]],
    batches: Iterable[Batch],
    epochs: int,
    accumulate: int,
    precision: str,
    progress: bool,
) -> tqdm:
    try:
        total = epochs * math.ceil(len(batches) / accumulate)
    except TypeError:  # not every loader knows its length
        total = None
    return tqdm(groups, total=total, desc=precision, unit="step", leave=False, disable=not progress)


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


# What holds during a run


@contextmanager
def _ready(precision: str, device: torch.device) -> Iterator[Callable[[], torch.autocast]]:
    """Everything around the loop; yields what opens autocast. Says what is not as asked."""
    plan = _PLANS[precision]
    with ExitStack() as stack:
        # One that is open may add in a narrower format: it stays.
        if device.type == "cpu" and not accumulators.in_force:
            stack.enter_context(emulate_gpu())
        if device.type == "cuda":
            stack.enter_context(_pinned(plan.fp32_products))

        def autocast() -> torch.autocast:
            enabled = plan.autocast is not None
            return torch.autocast(device.type, dtype=plan.autocast, enabled=enabled)

        _try_product(precision, device, autocast)
        yield autocast


@contextmanager
def _pinned(fp32_products: str) -> Iterator[None]:
    """CUDA's float32 products in "ieee" or "tf32", afterwards as before.

    cuDNN's convolutions and RNNs are TF32 unless told otherwise. Only through ``fp32_precision``:
    once it was written, torch refuses to read the older flags.
    """
    backends = torch.backends
    switches = (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)
    before = [switch.fp32_precision for switch in switches]
    try:
        for switch in switches:
            switch.fp32_precision = fp32_products
        yield
    finally:
        for switch, precision in zip(switches, before, strict=True):
            switch.fp32_precision = "none"
            # A precision inherited from torch.backends reads the same and is not set again.
            if switch.fp32_precision != precision:
                switch.fp32_precision = precision


def _try_product(
    precision: str, device: torch.device, autocast: Callable[[], torch.autocast]
) -> None:
    """Multiply by the identity and look at the result: its dtype, and the bits that are left."""
    plan = _PLANS[precision]
    # 1 + 2**-12 has more bits than TF32's 10 behind the point; float32 keeps it.
    x = torch.full((64, 64), 1 + 2.0**-12, device=device, dtype=plan.parameters)
    with autocast():
        product = x @ torch.eye(64, device=device, dtype=plan.parameters)
    if product.dtype is not plan.products:
        raise RuntimeError(
            f"precision={precision!r} is not active on {device}: a matmul gives {product.dtype} "
            f"instead of {plan.products}. Ask for one of {PRECISIONS} that this device computes"
        )
    if plan.products is not torch.float32:
        _say_if_slow(precision, device)
        return
    found = "ieee" if torch.equal(product, x) else "tf32"
    if found == plan.fp32_products:
        return
    if found == "tf32":
        raise RuntimeError(
            f"precision={precision!r} is not active on {device}: float32 products lose the bits "
            "that TF32 loses. Ask for precision='tf32', or look who sets fp32_precision"
        )
    warnings.warn(
        f"precision={precision!r} is not active on {device}: its float32 products are IEEE "
        "float32, so this run is one of 'fp32'. TF32 needs a CUDA device of compute capability 8.0",
        PrecisionWarning,
        stacklevel=5,  # past _ready and contextlib: where train was called
    )


def _say_if_slow(precision: str, device: torch.device) -> None:
    """Warn of a device without units for the dtype; not of a CPU, which emulates and is meant."""
    if device.type == "cpu":
        return
    dtype = precision.removeprefix("pure_").removesuffix("_unscaled")
    (row,) = (row for row in dtype_support(torch, device.type) if row.dtype == dtype)
    if row.accelerated == "no":
        warnings.warn(
            f"precision={precision!r}: {device} computes {dtype} without units of its own "
            f"({row.evidence}), so expect no speed from it",
            PrecisionWarning,
            stacklevel=6,
        )


# What is refused


def _plan(precision: str) -> _Plan:
    if precision not in _PLANS:
        raise ValueError(f"precision={precision!r}: pass one of {', '.join(map(repr, _PLANS))}")
    return _PLANS[precision]


def _device(device: str | torch.device) -> torch.device:
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device={device!r}: {str(error).splitlines()[0]}") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        why = (
            "was built without CUDA" if torch.version.cuda is None else "finds no device or driver"
        )
        raise ValueError(
            f"device={device!r}: this torch {why}. Pass device='cpu', where the run is emulated"
        )
    if not torch.amp.is_autocast_available(found.type):
        raise ValueError(f"device={device!r} has no autocast: pass 'cpu' or 'cuda'")
    return found


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


def _check_batch(batch: object, what: str) -> None:
    pair = isinstance(batch, tuple | list) and len(batch) == 2
    if not pair or not all(isinstance(part, Tensor) and part.dim() for part in batch):
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


def _check_model(model: nn.Module, optimizer: Optimizer, plan: _Plan, precision: str) -> None:
    if plan.parameters is torch.float32:
        _check_parameters(model, plan, precision)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if held.isdisjoint(id(p) for p in model.parameters()):
        raise ValueError(
            "optimizer holds no parameter of this model, which would learn nothing: make it anew, "
            "as in torch.optim.SGD(model.parameters(), lr=0.1)"
        )


def _check_parameters(model: nn.Module, plan: _Plan, precision: str) -> None:
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and parameter.dtype is not plan.parameters:
            raise ValueError(
                f"precision={precision!r} needs parameters of {plan.parameters}, and {name} is "
                f"{parameter.dtype}: call model.to({plan.parameters}), or ask for the precision "
                "the model was trained in"
            )


def _scaler(
    scaler: LossScaler | torch.amp.GradScaler | None, precision: str, device: torch.device
) -> LossScaler | torch.amp.GradScaler:
    """The scaler of the run; a disabled one, which does nothing, where the loss is not scaled."""
    if precision == "fp16_unscaled" and scaler is not None:
        raise ValueError("precision='fp16_unscaled' takes no scaler: ask for 'fp16' to scale")
    if scaler is None and _PLANS[precision].scaled:
        return LossScaler()
    if scaler is None:
        return torch.amp.GradScaler(device.type, enabled=False)
    if _PLANS[precision].scaled and isinstance(scaler, torch.amp.GradScaler):
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
