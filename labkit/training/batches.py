"""What a loader gives and ``train`` takes: batches, grouped, checked and moved, and their loss."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from labkit.training.precision import Precision

Batch = tuple[Tensor, Tensor]
"""Inputs and targets."""

NamedBatch = Mapping[str, Tensor]
"""As Hugging Face's collators give it: the targets under "labels", inputs under other names."""

Inputs = Tensor | dict[str, Tensor]

Loss = Callable[[Any, Tensor], Tensor]
"""(output, targets) -> the mean loss."""


def grouped(
    batches: Iterable[Batch | NamedBatch], epochs: int, accumulate: int
) -> Iterator[list[tuple[Inputs, Tensor]]]:
    """For each step, epoch after epoch, the batches it takes."""
    for epoch in range(epochs):
        unread, empty = iter(batches), True
        while group := list(islice(unread, accumulate)):
            empty = False
            yield [inputs_and_targets(batch, f"a batch of epoch {epoch}") for batch in group]
        if empty:
            raise ValueError(
                f"batches gave nothing in epoch {epoch}: pass at least one (inputs, targets), in "
                "a list, a DataLoader or another thing that can be read once an epoch"
            )


def check_batch(batch: object, what: str) -> None:
    """ValueError unless it is (inputs, targets) with as many samples of one as of the other."""
    parts = tuple(batch) if isinstance(batch, tuple | list) else None
    if not parts or len(parts) != 2 or not all(isinstance(x, Tensor) and x.dim() for x in parts):
        of = "" if parts is None else f" of {[type(part).__name__ for part in parts]}"
        raise ValueError(
            f"{what} is a {type(batch).__name__}{of}: it must be (inputs, targets), two tensors "
            "with the samples along their first dimension"
        )
    inputs, targets = parts
    if len(inputs) != len(targets) or not len(inputs):
        raise ValueError(
            f"{what} has inputs of shape {tuple(inputs.shape)} and targets of shape "
            f"{tuple(targets.shape)}: both must have the same number of samples, 1 or more"
        )


def inputs_and_targets(batch: Batch | NamedBatch, what: str) -> tuple[Inputs, Tensor]:
    """Inputs and targets of a batch, whichever of the two kinds it is."""
    if not isinstance(batch, Mapping):
        check_batch(batch, what)
        return batch
    inputs = {name: values for name, values in batch.items() if name != "labels"}
    if "labels" not in batch or not inputs:
        raise ValueError(
            f'{what} is a dict of {list(batch)}: it needs "labels", which go to the loss, and at '
            "least one other name, which goes to the model"
        )
    for name, values in inputs.items():
        check_batch((values, batch["labels"]), f"{what}, (batch[{name!r}], batch['labels']),")
    return inputs, batch["labels"]


def on_device(batch: tuple[Any, ...], plan: Precision, device: torch.device) -> tuple[Any, ...]:
    """The batch on the device, floating point values in the dtype of the parameters."""

    def move(values: Tensor) -> Tensor:
        dtype = plan.parameters if values.is_floating_point() else None
        return values.to(device, dtype, non_blocking=True)

    return tree_map_only(Tensor, move, tuple(batch))


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy of logits whose classes are the last dimension, a 0-d tensor.

    Args:
        logits: N x C, or N x T x C as a language model gives them.
        targets: int64, N or N x T; -100 marks what does not count.

    >>> round(cross_entropy(torch.zeros(2, 5, 4), torch.ones(2, 5, dtype=torch.int64)).item(), 3)
    1.386
    """
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def output_of(model: nn.Module, inputs: Inputs) -> Any:
    """What the model makes of a tensor, or of tensors by the names of its arguments."""
    return model(**inputs) if isinstance(inputs, dict) else model(inputs)


def logits_of(output: Any) -> Tensor:
    """The output itself, or its ``.logits``, as Hugging Face's models have them."""
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        raise ValueError(
            f"the model gives a {type(output).__name__}, which is no tensor and has no .logits: "
            "wrap the model in one that gives logits; a loss_fn of your own takes any output"
        )
    return logits


def takes_labels(model: nn.Module) -> bool:
    """Whether the model computes its own loss of "labels", as Hugging Face's do."""
    try:
        arguments = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):  # of TorchScript
        return False
    # What torch.compile and DistributedDataParallel make takes any arguments, for the one inside.
    inner = getattr(model, "_orig_mod", getattr(model, "module", None))
    if "kwargs" in arguments and "labels" not in arguments and isinstance(inner, nn.Module):
        return takes_labels(inner)
    return "labels" in arguments


def loss_of(model: nn.Module, inputs: Inputs, targets: Tensor, loss_fn: Loss | None) -> Tensor:
    """The loss of a batch, by the rule that ``train`` states for its ``loss_fn``."""
    if loss_fn is not None:
        return loss_fn(output_of(model, inputs), targets)
    if not isinstance(inputs, dict):
        return cross_entropy(logits_of(model(inputs)), targets)
    output = model(**inputs, labels=targets) if takes_labels(model) else model(**inputs)
    if isinstance(output, Tensor):
        return cross_entropy(output, targets)
    if getattr(output, "loss", None) is None:
        raise ValueError(
            f"{type(model).__name__} gives a {type(output).__name__} without .loss, and whether it "
            "shifts labels is not known here: pass loss_fn"
        )
    return output.loss


def counting(loss_fn: Loss | None, model: nn.Module) -> Callable[[Tensor], Tensor]:
    """A function of targets: how many values the mean of this loss is over.

    Of class numbers those that are not ``ignore_index``: the loss's own where it is a module or a
    ``functools.partial`` that says one, else -100. Of floating point targets all values.

    Raises:
        ValueError: the loss says that it is no mean, or one that weighs classes, or is the model's
            own, which may leave out the first label of a text.
    """
    if loss_fn is None and takes_labels(model):
        raise ValueError(
            f"{type(model).__name__} computes its own loss, so how the batches of a step share in "
            "it cannot be told: pass weigh=, which gives for labels what their loss is divided by"
        )
    names = ["reduction", "ignore_index"]
    # The weight of other losses, as of BCEWithLogitsLoss, is no part of what they divide by.
    if isinstance(loss_fn, nn.CrossEntropyLoss | nn.NLLLoss):
        names.append("weight")
    settings = {name: getattr(loss_fn, name) for name in names if hasattr(loss_fn, name)}
    if isinstance(loss_fn, functools.partial):
        settings = loss_fn.keywords
    if settings.get("reduction", "mean") != "mean" or settings.get("weight") is not None:
        raise ValueError(
            f"{loss_fn} is not a plain mean over targets, so how the batches of a step share in it "
            "cannot be told: pass weigh=, which gives for targets what their loss is divided by; "
            "of a sum make a mean first"
        )
    ignored = settings.get("ignore_index", -100)
    return lambda y: torch.tensor(y.numel()) if y.is_floating_point() else (y != ignored).sum()
