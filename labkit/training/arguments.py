"""What ``train`` is asked for: which arguments it refuses, and the scaler that a run gets."""

import warnings
from collections.abc import Iterator

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from labkit.training.precision import Precision, PrecisionWarning, check_parameters, check_values
from labkit.training.scaling import LossScale

Scaler = torch.amp.GradScaler | LossScale
"""What a run may be given: a scaler, or the state that one starts from."""


def check_settings(batches: object, max_grad_norm: float | None, **counts: int | None) -> None:
    for name, count in counts.items():
        least = 0 if name == "epochs" else 1
        if count is not None and (count != int(count) or count < least):
            raise ValueError(f"{name}={count!r}: pass a whole number from {least} on")
    if max_grad_norm is not None and not max_grad_norm > 0:
        raise ValueError(f"max_grad_norm={max_grad_norm!r}: pass a number above 0, or None")
    if (counts["epochs"] or 0) > 1 and isinstance(batches, Iterator):
        raise ValueError(
            f"batches is a {type(batches).__name__}, which can be read once, and "
            f"epochs={counts['epochs']}: pass list(batches), or a DataLoader"
        )


def check_model(
    model: nn.Module, optimizer: Optimizer, schedule: LRScheduler | None, plan: Precision
) -> None:
    check_trainable(model, plan)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if held.isdisjoint(id(p) for p in model.parameters()):
        raise ValueError(
            "optimizer holds no parameter of this model, which would learn nothing: make it anew, "
            "as in torch.optim.SGD(model.parameters(), lr=0.1)"
        )
    if schedule is not None and schedule.optimizer is not optimizer:
        raise ValueError(
            "schedule changes the learning rate of another optimizer: make it from this one, as in "
            "torch.optim.lr_scheduler.LinearLR(optimizer)"
        )


def check_trainable(model: nn.Module, plan: Precision) -> None:
    """ValueError for a model that a step in this precision would change, or would fail with."""
    check_values(model, lazy=True)
    pure = plan.parameters is not torch.float32
    if not pure:
        check_parameters(model, plan)
    for name, tensor in (*model.named_parameters(), *(model.named_buffers() if pure else ())):
        if tensor.is_complex():
            raise ValueError(
                f"{name} is {tensor.dtype}, and a step in {plan.name!r} takes real values: keep "
                "torch.view_as_real of it, and call torch.view_as_complex in forward"
            )
        if hasattr(tensor, "full_tensor"):
            raise ValueError(
                f"{name} is a {type(tensor).__name__}, of a model on several devices, and a step "
                "here is one device's: take the model before fully_shard, or write your own loop"
            )
    if plan.autocast and any(isinstance(m, torch.jit.ScriptModule) for m in model.modules()):
        raise ValueError(
            f"precision={plan.name!r} with a TorchScript model: its backward does not follow "
            "autocast. Take the model that it was scripted from, or 'fp32'"
        )


def prepare(model: nn.Module, plan: Precision, device: torch.device) -> None:
    """The model to the device and into train mode; of a pure precision, into 16 bits."""
    model.to(device).train()
    if plan.parameters is not torch.float32:
        model.to(plan.parameters)


def scaler_for(
    scaler: Scaler | None, plan: Precision, device: torch.device
) -> torch.amp.GradScaler:
    """The scaler of the run; one that is disabled passes everything through."""
    if plan.name == "fp16_unscaled" and scaler is not None:
        raise ValueError("precision='fp16_unscaled' takes no scaler: ask for 'fp16' to scale")
    if not isinstance(scaler, torch.amp.GradScaler):
        made = torch.amp.GradScaler(device.type, enabled=plan.scaled or scaler is not None)
        if scaler is not None:
            made.load_state_dict(scaler.to_state_dict())
        return made
    if plan.scaled and not scaler.is_enabled():
        warnings.warn(
            "precision='fp16' with a disabled GradScaler: the loss is not scaled. "
            "GradScaler('cuda') disables itself where there is no CUDA: write "
            "GradScaler(device.type), or ask for 'fp16_unscaled'",
            PrecisionWarning,
            stacklevel=3,
        )
    return scaler
