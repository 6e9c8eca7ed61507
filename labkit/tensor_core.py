"""What a Tensor Core GPU rounds, operator by operator, done with float32 kernels of a CPU.

This module believes four things, and says them in this order:

1. A 16-bit product is exact in float32 (11 + 11 significant bits, or 8 + 8), and Tensor Cores add
   such products in float32. So a 16-bit operator is its float32 operator on the same values, and
   one rounding of the result. The order of the additions differs, and with it the last bits.
2. Where CUDA rounds more than once, or keeps float32, the operator has a kernel of its own:
   convolutions with a bias, batch norm, attention.
3. Autograd's formulas call the same operators with 16-bit gradients. A kernel at the CPU key below
   autograd therefore serves forward, backward, checkpoints and ``model.half()`` alike.
4. ``TABLE`` is the whole of it: a row says which operators it replaces, what CUDA rounds, what
   happens here, and how the two still differ.

Operators that compute 16-bit values in float32 and round once on a CPU as well (additions,
activations, softmax, layer norm) need nothing and stay.

Sources: ATen/native/Convolution.cpp, ATen/native/cuda/Blas.cpp, cuDNN's documentation of
CUDNN_DATA_HALF convolutions; Dao, FlashAttention-2 (arXiv:2307.08691); Fasi et al., Numerical
behavior of NVIDIA tensor cores (PeerJ CS-330).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labkit.accumulators import current

KEY = "CPU"
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
SIXTEEN_BITS = (torch.float16, torch.bfloat16)
Kernel = Callable[..., Any]


def original(name: str) -> Kernel:
    """The kernel that runs an operator on CPU tensors now, also once another has replaced it."""
    call = torch.library.get_kernel(f"aten::{name}", KEY).call_boxed
    return lambda *args, **kwargs: call(_CPU, *args, **kwargs)


def same_16_bits(*tensors: Tensor | None) -> bool:
    """Whether all of them are float16, or all bfloat16. None counts as either."""
    dtypes = {tensor.dtype for tensor in tensors if tensor is not None}
    return len(dtypes) == 1 and dtypes.pop() in SIXTEEN_BITS


def widened(value: Any) -> Any:
    """A 16-bit tensor as float32; anything else as it is."""
    if isinstance(value, Tensor) and value.dtype in SIXTEEN_BITS:
        return value.float()
    return value


def rounded(value: Any, dtype: torch.dtype) -> Any:
    """A float32 tensor rounded to the dtype; anything else, such as indices, as it is."""
    if isinstance(value, Tensor) and value.dtype is torch.float32:
        return value.to(dtype)
    return value


# The matmul family: one function computes in float32, out-of-place, in-place and out= share it.


def _dtype_of(args: tuple) -> torch.dtype | None:
    """The 16-bit dtype that all tensors among the arguments share, or None."""
    dtype = None
    for value in args:
        if isinstance(value, Tensor):
            if dtype is None:
                dtype = value.dtype
            elif value.dtype is not dtype:
                return None
    return dtype if dtype in SIXTEEN_BITS else None


def _float32_product(name: str) -> Kernel:
    """A product operator on float32 arguments, with the accumulator that is in force."""
    full = original(name)
    matmul = _LIMITED[name]

    def product(*args: Any, **kwargs: Any) -> Tensor:
        accumulator = current()
        if accumulator is None:
            return full(*args, **kwargs)
        return matmul(accumulator.matmul, *args, **kwargs)

    return product


def _with_addend(matmul: Kernel, x: Tensor, a: Tensor, b: Tensor, *, beta=1, alpha=1) -> Tensor:
    """beta * x + alpha * (a @ b); beta = 0 ignores x, even its NaNs, as BLAS does."""
    product = matmul(a, b) if alpha == 1 else alpha * matmul(a, b)
    return product if beta == 0 else torch.add(product, x, alpha=beta)


def _plain(matmul: Kernel, a: Tensor, b: Tensor) -> Tensor:
    return matmul(a, b)


# How each product is made of matmul(a, b), where the accumulator is limited.
_LIMITED: dict[str, Kernel] = {
    "mm": _plain,
    "bmm": _plain,
    "dot": _plain,
    "vdot": _plain,
    "addmm": _with_addend,
    "baddbmm": _with_addend,
    "addmv": _with_addend,
}


def product(name: str) -> Kernel:
    """Widen, multiply, round once. ``addmm_`` writes into its first argument, ``.out`` into out."""
    functional = name.removesuffix(".out").removesuffix("_")
    here, compute = original(name), _float32_product(functional)
    writes_first, writes_out = functional + "_" == name, name.endswith(".out")

    def kernel(*args: Any, **kwargs: Any) -> Tensor:
        dtype = _dtype_of(args)
        if dtype is None or (writes_out and kwargs["out"].dtype is not dtype):
            return here(*args, **kwargs)  # which also raises what it always raised
        out = kwargs.pop("out", None)
        result = compute(*[widened(value) for value in args], **kwargs).to(dtype)
        if writes_first:
            return args[0].copy_(result)
        return result if out is None else out.resize_(result.shape).copy_(result)

    return kernel


def convolution(name: str) -> Kernel:
    """Convolve, round, add the bias, round again."""
    here = original(name)

    def kernel(x: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> Tensor:
        dtype = x.dtype
        if dtype not in SIXTEEN_BITS or not same_16_bits(x, weight, bias):
            return here(x, weight, bias, *settings)
        result = here(x.float(), weight.float(), None, *settings).to(dtype)
        if bias is None:
            return result
        return result.add_(bias.view(-1, *[1] * (weight.dim() - 2)))

    return kernel


def round_all(name: str) -> Kernel:
    """Widen every 16-bit argument, run in float32, round every float32 result once."""
    here = original(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = args[0].dtype
        if dtype not in SIXTEEN_BITS:
            return here(*args, **kwargs)
        results = here(
            *[widened(value) for value in args],
            **{name: widened(value) for name, value in kwargs.items()},
        )
        if isinstance(results, Tensor):
            return results.to(dtype)
        return tuple(rounded(result, dtype) for result in results)

    return kernel


def batch_norm(name: str) -> Kernel:
    """Normalize in float32 and round the output; the saved statistics stay float32."""
    here = original(name)

    def kernel(x, weight, bias, running_mean, running_var, *settings):
        dtype = x.dtype
        if dtype not in SIXTEEN_BITS:
            return here(x, weight, bias, running_mean, running_var, *settings)
        statistics = widened(running_mean), widened(running_var)
        output, *saved = here(x.float(), widened(weight), widened(bias), *statistics, *settings)
        for kept, wide in zip((running_mean, running_var), statistics, strict=True):
            if kept is not wide:
                kept.copy_(wide)
        return output.to(dtype), *saved

    return kernel


def batch_norm_backward(name: str) -> Kernel:
    """Round the gradient of the input; those of weight and bias keep the weight's dtype."""
    here = original(name)

    def kernel(grad_output, x, weight, *settings):
        dtype = x.dtype
        if dtype not in SIXTEEN_BITS:
            return here(grad_output, x, weight, *settings)
        grads = here(
            grad_output.float(), x.float(), widened(weight), *[widened(s) for s in settings]
        )
        parameters = torch.float32 if weight is None else weight.dtype
        return tuple(
            grad if grad is None else grad.to(wanted)
            for grad, wanted in zip(grads, (dtype, parameters, parameters), strict=True)
        )

    return kernel


def attention(name: str) -> Kernel:
    """Attend in float32, round the output; the log-sum-exp that backward needs stays float32."""
    here = original(name)

    def kernel(query, key, value, *settings, **kwargs):
        dtype = query.dtype
        if dtype not in SIXTEEN_BITS or not same_16_bits(query, key, value):
            return here(query, key, value, *settings, **kwargs)
        kwargs["attn_mask"] = widened(kwargs.get("attn_mask"))
        output, logsumexp = here(query.float(), key.float(), value.float(), *settings, **kwargs)
        return output.to(dtype), logsumexp

    return kernel


@dataclass(frozen=True)
class Row:
    """One row of the table: which operators, what CUDA rounds, what we round, the difference."""

    operators: tuple[str, ...]
    cuda: str
    here: str
    difference: str
    kernel: Callable[[str], Kernel]


TABLE = (
    Row(
        ("mm", "mm.out", "bmm", "bmm.out", "dot", "vdot"),
        "cuBLAS: products exact, sums in fp32, the result once.",
        "fp32 product of the widened values, the result once.",
        "Tensor Cores truncate where they align addends, and may add split-K partial sums in 16 "
        "bits (allow_fp16_reduced_precision_reduction); here every addition rounds to nearest.",
        product,
    ),
    Row(
        (
            "addmm", "addmm_", "addmm.out", "baddbmm", "baddbmm_", "baddbmm.out",
            "addmv", "addmv_", "addmv.out",
        ),  # fmt: skip
        "cuBLAS epilogue: alpha, beta and the bias in fp32, the result once. So does a linear layer.",
        "fp32 addmm of the widened values, the result once.",
        "As for mm.",
        product,
    ),
    Row(
        ("convolution",),
        "cuDNN: the convolution once, then the sum with the bias once more.",
        "The same two roundings; transposed and grouped alike.",
        "cuDNN may pick Winograd, which rounds inside; PyTorch's own depthwise kernel, for which "
        "cuDNN is not asked, adds the bias before its one rounding.",
        convolution,
    ),
    Row(
        ("convolution_backward",),
        "cuDNN: gradients of input and weight once each; the bias gradient summed in fp32, once.",
        "The same.",
        "As for convolution.",
        round_all,
    ),
    Row(
        ("native_batch_norm",),
        "cuDNN: statistics and arithmetic in fp32, the output once; save_mean, save_invstd fp32.",
        "The same.",
        "None known; 16-bit running statistics (model.half()) are updated in fp32, rounded once.",
        batch_norm,
    ),
    Row(
        ("native_batch_norm_backward",),
        "cuDNN: the input's gradient once; gradients of weight and bias stay fp32.",
        "The same.",
        "None known.",
        batch_norm_backward,
    ),
    Row(
        ("_scaled_dot_product_flash_attention_for_cpu",),
        "Flash attention: scores and softmax in fp32, P = exp(score - max) once, the output once.",
        "Everything in fp32, the output once.",
        "P stays fp32 here.",
        attention,
    ),
    Row(
        ("_scaled_dot_product_flash_attention_for_cpu_backward",),
        "Flash attention: P and dS once each, the three gradients once.",
        "Everything in fp32, the three gradients once.",
        "P and dS stay fp32 here.",
        round_all,
    ),
    Row(
        (
            "avg_pool2d", "avg_pool2d_backward", "avg_pool3d", "avg_pool3d_backward",
            "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward",
            "_adaptive_avg_pool3d", "_adaptive_avg_pool3d_backward",
            "max_pool2d_with_indices", "max_pool2d_with_indices_backward",
            "max_pool3d_with_indices", "max_pool3d_with_indices_backward",
            "adaptive_max_pool2d", "adaptive_max_pool2d_backward",
            "adaptive_max_pool3d", "adaptive_max_pool3d_backward",
        ),  # fmt: skip
        "Sums of a window in fp32, the result once; a maximum is exact.",
        "The same.",
        "Kernels that add gradients atomically on a GPU (adaptive, overlapping windows) round "
        "after every addition.",
        round_all,
    ),
)  # fmt: skip


def register(library: torch.library.Library) -> None:
    """Put the table's kernels at the CPU key, for as long as the library lives."""
    for row in TABLE:
        for name in row.operators:
            library.impl(name, row.kernel(name), KEY)
