"""What a precision is, asked for by name, and whether a device really computes in it.

A precision is four facts: the dtype autocast computes in, the dtype of the parameters, whether the
loss is scaled, and what a float32 product means. ``active`` makes them hold for a block and tries a
product before anything is trained: a dtype that was asked for and is not in force is the mistake
that no loss curve shows.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from labkit.devices.fp32_products import fp32_products_pinned
from labkit.devices.probe import described
from labkit.devices.rules import device_of
from labkit.emulation import emulate_gpu
from labkit.formats import accumulators
from labkit.formats.dtypes import dtype_of


class PrecisionWarning(UserWarning):
    """The run does not compute, or not by units of its own, in the precision asked for."""


@dataclass(frozen=True, kw_only=True)
class Precision:
    """One row of the table below."""

    name: str
    autocast: torch.dtype | None = None  # None: no autocast
    parameters: torch.dtype = torch.float32
    scaled: bool = False  # a dynamic loss scale unless another is given
    fp32_products: str = "ieee"  # or "tf32", on devices that have it


_TABLE = {
    row.name: row
    for row in (
        Precision(name="fp32"),
        Precision(name="tf32", fp32_products="tf32"),
        Precision(name="bf16", autocast=torch.bfloat16),
        Precision(name="fp16", autocast=torch.float16, scaled=True),
        Precision(name="fp16_unscaled", autocast=torch.float16),
        Precision(name="pure_bf16", parameters=torch.bfloat16),
        Precision(name="pure_fp16", parameters=torch.float16),
    )
}
PRECISIONS = tuple(_TABLE)


def precision_named(name: str) -> Precision:
    if name not in _TABLE:
        raise ValueError(f"precision={name!r}: pass one of {', '.join(map(repr, PRECISIONS))}")
    return _TABLE[name]


def device_named(device: str | torch.device) -> torch.device:
    """The device, if it is there and has autocast; else a ValueError that says why not."""
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device={device!r}: {str(error).splitlines()[0]}") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        why = "finds no device" if torch.version.cuda else "was built without CUDA"
        raise ValueError(
            f"device={device!r}: this torch {why}. Pass device='cpu', where the run is emulated"
        )
    if not torch.amp.is_autocast_available(found.type):
        raise ValueError(f"device={device!r} has no autocast: pass 'cpu' or 'cuda'")
    return found


def check_values(model: nn.Module, *, lazy: bool = False) -> None:
    """ValueError for a model on "meta", or, unless they may be lazy, with uninitialised parameters.

    Who only looks at a model must not call a lazy one: the call would give it its parameters.
    """
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor) and not lazy:
            raise ValueError(f"{name} has no values yet: call the model once on a batch before")
        if tensor.is_meta and not is_lazy(tensor):
            raise ValueError(
                f'{name} is on "meta" and has no values: make the model on a device, or call '
                "model.to_empty(device=...) and load its values"
            )


def check_parameters(model: nn.Module, precision: Precision) -> None:
    """ValueError for a model whose parameters are kept in another dtype."""
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and parameter.dtype is not precision.parameters:
            raise ValueError(
                f"precision={precision.name!r} needs parameters of {precision.parameters}, and "
                f"{name} is {parameter.dtype}: call model.to({precision.parameters}), or ask for "
                "the precision the model was trained in"
            )


@contextmanager
def active(precision: Precision, device: torch.device) -> Iterator[Callable[[], torch.autocast]]:
    """A block in which the device computes in the precision; yields what opens autocast.

    A CPU is inside ``emulate_gpu()``, unless one is open already. On CUDA float32 products are
    pinned, afterwards as before.

    Raises:
        RuntimeError: a product comes back in another dtype, or float32 loses the bits of TF32.

    Warns:
        PrecisionWarning: TF32 was asked for and products are IEEE float32; or the GPU has no units
            of its own for the dtype.
    """
    with ExitStack() as stack:
        # One that is open may add in a narrower format: it stays.
        if device.type == "cpu" and not accumulators.in_force:
            stack.enter_context(emulate_gpu())
        if device.type == "cuda":
            stack.enter_context(fp32_products_pinned(precision.fp32_products))

        def autocast() -> torch.autocast:
            enabled = precision.autocast is not None
            return torch.autocast(device.type, dtype=precision.autocast, enabled=enabled)

        if said := _try_product(precision, device, autocast):
            # Four frames up: past contextlib, to whoever called train or evaluate.
            warnings.warn(f"precision={precision.name!r}{said}", PrecisionWarning, stacklevel=4)
        yield autocast


def _try_product(
    precision: Precision, device: torch.device, autocast: Callable[[], torch.autocast]
) -> str | None:
    """Multiply by the identity and look at the dtype and the bits; what there is to warn of."""
    # 1 + 2**-12 has more bits than TF32's 10 behind the point; float32 keeps them.
    x = torch.full((64, 64), 1 + 2.0**-12, device=device, dtype=precision.parameters)
    with autocast():
        product = x @ torch.eye(64, device=device, dtype=precision.parameters)
    not_active = f" is not active on {device}: "
    asked = precision.autocast or precision.parameters
    if product.dtype is not asked:
        raise RuntimeError(
            f"precision={precision.name!r}{not_active}a matmul gives {product.dtype} instead of "
            f"{asked}. Ask for another of {', '.join(map(repr, PRECISIONS))}"
        )
    if product.dtype is not torch.float32:
        return _slow(product.dtype, device)
    ieee = torch.equal(product, x)
    if ieee == (precision.fp32_products == "ieee"):
        return None
    if ieee:
        return (
            f"{not_active}its float32 products are IEEE float32, so this run is one of 'fp32'. "
            "TF32 needs a CUDA device of compute capability 8.0 or more"
        )
    raise RuntimeError(
        f"precision={precision.name!r}{not_active}its float32 products lose the bits that TF32 "
        "loses. Ask for 'tf32', or look who sets fp32_precision"
    )


def _slow(dtype: torch.dtype, device: torch.device) -> str | None:
    """What to say of a GPU without units for the dtype. A CPU emulates, and that is meant."""
    name = dtype_of(dtype).short
    if device.type == "cpu":
        return None
    units = device_of(described(str(device))).dtypes[name].accelerated
    if units.answer is not False:
        return None
    return (
        f": {device} computes {name} without units of its own ({units.why}), so expect the "
        "rounding and no speed"
    )
