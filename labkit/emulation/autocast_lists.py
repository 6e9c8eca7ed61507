"""Which operators run in which dtype inside ``torch.autocast``: CUDA's lists, for CPU tensors.

It follows four rules:

1. CUDA's autocast is data: lists of operators under a handful of policies. They stand in
   ``ATen/autocast_mode.h`` of torch 2.13 (``AT_FORALL_LOWER_PRECISION_FP``, ``_FP32``,
   ``_FP32_SET_OPT_DTYPE``, ``_PROMOTE``) and come with every installation of torch.
2. CPU's autocast has other lists. Where both agree, torch's own kernel stays: it is faster and it
   keeps the cast weights. Where they differ, CUDA's policy replaces it.
3. A policy is one function around an operator. It casts CPU tensors that are floating point and
   not float64, and runs the operator with autocast switched off, as the policies in C++ do.
4. Layers of whole sequences (nn.LSTM, nn.GRU, nn.RNN) are on no list: CUDA's autocast casts inside
   cuDNN's kernel. Here their inputs and weights are cast, and torch's own layers run.

Operators are named as in ``torch.ops.aten``, with the overload after the dot.
"""

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

AUTOCAST_KEY = "AutocastCPU"
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_NO_AUTOCAST = torch._C._ExcludeDispatchKeyGuard

FP32_APPENDED = {
    "norm.Scalar": "norm.ScalarOpt_dtype",
    "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype",
}
"""An operator -> its overload that takes a dtype."""


def operator(name: str) -> torch._ops.OpOverload:
    """``"sum.dim_IntList"`` -> ``torch.ops.aten.sum.dim_IntList``."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def is_eligible(value: Any) -> bool:
    """Whether autocast on a CPU may cast it: a floating point CPU tensor that is not float64."""
    return (
        isinstance(value, Tensor)
        and value.is_cpu
        and value.is_floating_point()
        and value.dtype is not torch.float64
    )


def cast(value: Any, dtype: torch.dtype) -> Any:
    """The value with the eligible tensors in it, also those inside lists, cast to the dtype."""
    if isinstance(value, Tensor):
        return value.to(dtype) if is_eligible(value) else value
    if isinstance(value, list | tuple):
        return type(value)(cast(item, dtype) for item in value)
    return value


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _run(op: Callable[..., Any], dtype: torch.dtype, args: tuple, kwargs: dict) -> Any:
    """The operator on arguments cast to the dtype, with autocast off inside it."""
    with _NO_AUTOCAST(_AUTOCAST):
        return op(
            *[cast(value, dtype) for value in args],
            **{name: cast(value, dtype) for name, value in kwargs.items()},
        )


def in_low_precision(name: str) -> Callable[..., Any]:
    """Policy: cast to the dtype that the autocast block names."""
    op = operator(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return _run(op, torch.get_autocast_dtype("cpu"), args, kwargs)

    return kernel


def in_fp32(name: str) -> Callable[..., Any]:
    """Policy: cast to float32."""
    op = operator(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return _run(op, torch.float32, args, kwargs)

    return kernel


def in_fp32_unless_asked(name: str) -> Callable[..., Any]:
    """Policy: pass ``dtype=torch.float32``, unless the caller passed a dtype."""
    op = operator(name)
    place = [argument.name for argument in op._schema.arguments].index("dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        asked = args[place] if len(args) > place else kwargs.get("dtype")
        if asked is None and is_eligible(args[0]):
            args, kwargs = args[:place], {**kwargs, "dtype": torch.float32}
        with _NO_AUTOCAST(_AUTOCAST):
            return op(*args, **kwargs)

    return kernel


def with_fp32_appended(name: str) -> Callable[..., Any]:
    """Policy: call the overload that takes a dtype, with float32."""
    op = operator(FP32_APPENDED[name])
    # norm(x) leaves out p, which the overload with a dtype wants in its place.
    order = operator(name)._schema.arguments[1].default_value

    def kernel(x: Tensor, p: Any = order, *args: Any) -> Any:
        keepdim = (False,) if len(args) == 1 else ()
        with _NO_AUTOCAST(_AUTOCAST):
            dtype = torch.float32 if is_eligible(x) else x.dtype
            return op(x, p, *args, *keepdim, dtype=dtype)

    return kernel


def in_widest(name: str) -> Callable[..., Any]:
    """Policy: cast to float32 if any tensor is float32, else to the dtype of the block."""
    op = operator(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        low = torch.get_autocast_dtype("cpu")
        widest = low
        for tensor in filter(is_eligible, _tensors((*args, *kwargs.values()))):
            if torch.float32 in (widest, tensor.dtype):
                widest = torch.float32
            elif tensor.dtype is not low:
                raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize")
        return _run(op, widest, args, kwargs)

    return kernel


def banned(name: str) -> Callable[..., Any]:
    """Policy: raise CUDA's message, whatever the dtype."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast."
            "\nMany models use a sigmoid layer right before the binary cross entropy layer.\n"
            "In this case, combine the two layers using "
            "torch.nn.functional.binary_cross_entropy_with_logits\nor torch.nn.BCEWithLogitsLoss.  "
            "binary_cross_entropy_with_logits and BCEWithLogits are\nsafe to autocast."
        )

    return kernel


def left_alone(name: str) -> Callable[..., Any]:
    """Policy: none. The dispatcher passes the autocast key by."""
    return torch.library.fallthrough_kernel


_LISTS = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
LISTS = tuple(
    (globals()[each["policy"]], tuple(each["operators"].split()))
    for each in tomllib.loads(_LISTS)["lists"]
)
"""Policies, and the operators of each; they stand in ``autocast_lists.toml``."""


def autocast_kernels() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """The operators of the lists, and for each CUDA's policy, at the autocast key of the CPU."""
    for policy, names in LISTS:
        for name in names:
            yield name, policy(name), AUTOCAST_KEY
