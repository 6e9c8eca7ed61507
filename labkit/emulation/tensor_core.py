"""What a Tensor Core GPU rounds, operator by operator, done with float32 kernels of a CPU.

It rests on four facts:

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
from functools import partial
from typing import Any

import torch
from torch import Tensor

from labkit.emulation import flash_attention
from labkit.emulation.autocast_lists import operator
from labkit.formats.accumulators import current

KEY = "CPU"
COMPOSITE = "CompositeImplicitAutograd"
"""The key of operators that are made of others, above autograd and for every device."""
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
FLOAT32 = torch.float32
ROUND = {torch.float16: Tensor.half, torch.bfloat16: Tensor.bfloat16}
"""A 16-bit dtype -> what rounds a float32 tensor to it, in half the time that ``to`` takes."""
SIXTEEN_BITS = tuple(ROUND)
MODE_MAX = 2
"""What the operators of nn.EmbeddingBag call mode="max"."""
Kernel = Callable[..., Any]


def original(name: str) -> Kernel:
    """The kernel that runs an operator on CPU tensors now, also once another has replaced it."""
    return partial(torch.library.get_kernel(f"aten::{name}", KEY).call_boxed, _CPU)


def shared_dtype(args: tuple) -> torch.dtype | None:
    """The 16-bit dtype of all floating point tensors among the arguments, or None.

    A mixture goes to torch's own kernel, which raises as CUDA's does: see ``TABLE`` for the others.
    """
    shared = None
    for value in args:
        if isinstance(value, Tensor) and value.is_floating_point():
            if shared is None:
                shared = value.dtype
            elif value.dtype is not shared:
                return None
    return shared if shared in SIXTEEN_BITS else None


def widened(value: Any) -> Any:
    """A 16-bit tensor as float32; anything else as it is."""
    if isinstance(value, Tensor) and value.dtype in SIXTEEN_BITS:
        return value.float()
    return value


def rounded(value: Any, dtype: torch.dtype) -> Any:
    """A float32 tensor rounded to the dtype; anything else, such as indices, as it is."""
    return ROUND[dtype](value) if has_float32(value) else value


def has_float32(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype is FLOAT32


# The matmul family: one function computes in float32, out-of-place, in-place and out= share it.


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


def _with_addend(
    matmul: Kernel, x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
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
        dtype = args[0].dtype  # two or three tensors; plain float32 must not wait for more
        if (
            dtype not in SIXTEEN_BITS
            or args[1].dtype is not dtype
            or args[-1].dtype is not dtype
            or (writes_out and kwargs["out"].dtype is not dtype)
        ):
            return here(*args, **kwargs)  # which also raises what it always raised
        out = kwargs.pop("out") if writes_out else None
        result = ROUND[dtype](compute(*[x.float() for x in args], **kwargs))
        if writes_first:
            return args[0].copy_(result)
        return result if out is None else out.resize_(result.shape).copy_(result)

    return kernel


def product_in(name: str) -> Kernel:
    """``out_dtype=``: 16-bit factors, and the float32 sum itself or its one rounding.

    torch has kernels for CUDA only. These raise what CUDA's raise (ATen/native/cuda/Blas.cpp).
    """
    functional = name.partition(".")[0]
    here, compute = original(functional), _float32_product(functional)

    def kernel(*args: Any, out: Tensor | None = None, **kwargs: Any) -> Tensor:
        *tensors, out_dtype = args
        *addend, a, b = tensors
        if a.dtype is not b.dtype:
            raise RuntimeError(f"input dtypes must be the same, but got {a.dtype} and {b.dtype}")
        if out_dtype is not a.dtype and (a.dtype not in SIXTEEN_BITS or out_dtype is not FLOAT32):
            raise RuntimeError(
                "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs"
            )
        if addend and addend[0].dtype not in (out_dtype, a.dtype):
            raise RuntimeError("self dtype must match either out_dtype or mat1 dtype")
        if out is not None and out.dtype is not out_dtype:
            raise RuntimeError("out_dtype must be the same as the dtype of the provided out tensor")
        run = compute if a.dtype in SIXTEEN_BITS else here
        result = run(*[widened(value) for value in tensors], **kwargs).to(out_dtype)
        return result if out is None else out.resize_(result.shape).copy_(result)

    return kernel


def convolution(name: str) -> Kernel:
    """Convolve, round, add the bias, round again."""
    here = original(name)

    def kernel(x: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> Tensor:
        dtype = shared_dtype((x, weight, bias))
        if dtype is None:
            return here(x, weight, bias, *settings)
        result = ROUND[dtype](here(x.float(), weight.float(), None, *settings))
        return result if bias is None else result.add_(bias.view(-1, *[1] * (weight.dim() - 2)))

    return kernel


def round_all(name: str) -> Kernel:
    """Widen every 16-bit argument, run in float32, round every float32 result once."""
    here = original(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = shared_dtype(args)
        if dtype is None:
            return here(*args, **kwargs)
        # softmax's backward is told the dtype of its input, which is float32 now.
        wide = [torch.float32 if value is dtype else widened(value) for value in args]
        results = here(*wide, **kwargs)
        if isinstance(results, Tensor):
            return ROUND[dtype](results)
        return tuple(rounded(result, dtype) for result in results)

    return kernel


def normalization(name: str) -> Kernel:
    """Normalize in float32 and round the output; the statistics for backward stay float32."""
    here = original(name)

    def kernel(x: Tensor, *args: Any) -> tuple[Tensor, ...]:
        dtype = x.dtype
        if dtype not in SIXTEEN_BITS:
            return here(x, *args)
        wide = [widened(value) for value in args]
        output, *statistics = here(x.float(), *wide)
        for value, updated in zip(args, wide, strict=True):
            if updated is not value:
                value.copy_(updated)  # running statistics; a weight gets back what it had
        return output.to(dtype), *statistics

    return kernel


def normalization_of_batches(name: str) -> Kernel:
    """As ``normalization``. With float32 parameters torch's own CPU kernel does that, faster."""
    here, normalize = original(name), normalization(name)

    def kernel(x: Tensor, *args: Any) -> tuple[Tensor, ...]:
        return here(x, *args) if has_float32(args[0]) else normalize(x, *args)

    return kernel


def normalization_in_one_dtype(name: str) -> Kernel:
    """As ``normalization``; a weight or bias of another dtype raises, as in CUDA's kernels."""
    normalize = normalization(name)

    def kernel(x: Tensor, *args: Any) -> tuple[Tensor, ...]:
        for value in args:
            if isinstance(value, Tensor) and value.dtype is not x.dtype:
                wanted, found = (t.type()[len("torch.") : -len("Tensor")] for t in (x, value))
                raise RuntimeError(f"expected scalar type {wanted} but found {found}")
        return normalize(x, *args)

    return kernel


def normalization_backward(name: str, *, weight_at: int, native_in_mixture: bool = False) -> Kernel:
    """Round the gradient of the input; those of weight and bias take the weight's dtype."""
    here = original(name)

    def kernel(grad: Tensor, x: Tensor, *args: Any) -> tuple[Tensor | None, ...]:
        dtype, weight = x.dtype, args[weight_at]
        if dtype not in SIXTEEN_BITS or (native_in_mixture and has_float32(weight)):
            return here(grad, x, *args)
        kept = torch.float32 if weight is None else weight.dtype
        grads = here(grad.float(), x.float(), *[widened(value) for value in args])
        return tuple(
            grad if grad is None else grad.to(wanted)
            for grad, wanted in zip(grads, (dtype, kept, kept), strict=True)
        )

    return kernel


def embedding_bag_backward(name: str) -> Kernel:
    """Gradients that meet in a row are summed in float32 and rounded once, except of maxima."""
    here, once = original(name), round_all(name)
    mode = [argument.name for argument in operator(name)._schema.arguments].index("mode")

    def kernel(*args: Any) -> Tensor:
        return here(*args) if args[mode] == MODE_MAX else once(*args)

    return kernel


def own_layers(name: str) -> Kernel:
    """torch's layers, step by step, where oneDNN would take the whole sequence in 16 bits."""
    here = original(name)

    def kernel(x: Tensor, *args: Any) -> Any:
        enabled = torch._C._get_mkldnn_enabled()
        if x.dtype not in SIXTEEN_BITS or not x.is_cpu or not enabled:
            return here(x, *args)
        torch._C._set_mkldnn_enabled(False)
        try:
            return here(x, *args)
        finally:
            torch._C._set_mkldnn_enabled(enabled)

    return kernel


def refused_in_half(name: str) -> Kernel:
    """No emulation in float16; everything else runs as without."""
    here = original(name)
    function = "torch." + name.partition(".")[0].replace("fft_", "fft.")

    def kernel(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if x.is_cpu and x.dtype in (torch.float16, torch.complex32):
            raise NotImplementedError(
                f"emulate_gpu() does not emulate {function} in float16: where cuFFT rounds is not "
                "documented, and it takes only sizes that are powers of two. Widen the input "
                "first: x.float(), or x.to(torch.complex64)."
            )
        return here(x, *args, **kwargs)

    return kernel


def attention(name: str) -> Kernel:
    """Attention as a fused CUDA kernel does it; its log-sum-exp stays float32."""
    here = original(name)

    def kernel(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        dropout: float = 0.0,
        causal: bool = False,
        *,
        attn_mask: Tensor | None = None,
        scale: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        if dropout or shared_dtype((query, key, value)) is None:  # torch refuses dropout here
            settings = {"attn_mask": attn_mask, "scale": scale}
            return here(query, key, value, dropout, causal, **settings)
        return flash_attention.forward(query, key, value, causal, attn_mask, scale)

    return kernel


def attention_backward(name: str) -> Kernel:
    """The gradients of attention, from its 16-bit inputs and output."""
    here = original(name)

    def kernel(
        grad: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        output: Tensor,
        logsumexp: Tensor,
        dropout: float,
        causal: bool,
        *,
        attn_mask: Tensor | None = None,
        scale: float | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        tensors = grad, query, key, value, output
        if dropout or shared_dtype(tensors) is None:
            settings = {"attn_mask": attn_mask, "scale": scale}
            return here(*tensors, logsumexp, dropout, causal, **settings)
        return flash_attention.backward(*tensors, logsumexp, causal, attn_mask, scale)

    return kernel


@dataclass(frozen=True)
class Row:
    """One row of the table: which operators, what CUDA rounds, what we round, the difference."""

    operators: tuple[str, ...]
    cuda: str
    here: str
    difference: str
    kernel: Callable[[str], Kernel]
    key: str = KEY


AS_MM = "As for mm."
ATOMIC = (
    "Where a GPU adds gradients atomically (adaptive pooling, grid_sample), it rounds each time."
)

TABLE = (
    Row(
        operators=("mm", "mm.out", "bmm", "bmm.out", "dot", "vdot"),
        cuda="cuBLAS: products exact, sums in fp32, the result once.",
        here="The fp32 product, the result once.",
        difference="Tensor Cores truncate where they align addends, and may add split-K partial "
        "sums in 16 bits (allow_fp16_reduced_precision_reduction); every addition here rounds to "
        "nearest.",
        kernel=product,
    ),
    Row(
        operators=(
            *("addmm", "addmm_", "addmm.out", "baddbmm", "baddbmm_", "baddbmm.out"),
            *("addmv", "addmv_", "addmv.out"),
        ),
        cuda="cuBLAS's epilogue: alpha, beta and the addend in fp32, the result once. A linear "
        "layer with a bias is addmm.",
        here="The same in one fp32 addmm.",
        difference=AS_MM,
        kernel=product,
    ),
    Row(
        operators=(
            *("mm.dtype", "mm.dtype_out", "bmm.dtype", "bmm.dtype_out"),
            *("addmm.dtype", "addmm.dtype_out", "baddbmm.dtype", "baddbmm.dtype_out"),
        ),
        cuda="torch.mm(a, b, out_dtype=torch.float32): the fp32 sum of 16-bit products, no "
        "rounding. No derivative.",
        here="The same.",
        difference=AS_MM,
        kernel=product_in,
    ),
    Row(
        operators=("convolution",),
        cuda="cuDNN: the convolution once, and the sum with the bias once more.",
        here="The same two roundings; transposed and grouped alike.",
        difference="cuDNN may choose Winograd, which rounds inside. PyTorch's own depthwise "
        "kernel, where it is chosen, adds the bias before its one rounding.",
        kernel=convolution,
    ),
    Row(
        operators=("convolution_backward",),
        cuda="cuDNN: gradients of input and weight once each; the bias's, summed in fp32, once.",
        here="The same.",
        difference="cuDNN may choose Winograd, which rounds inside.",
        kernel=round_all,
    ),
    Row(
        operators=("native_batch_norm",),
        cuda="Statistics and arithmetic in fp32, the output once; saved statistics stay fp32.",
        here="The same. Running statistics of a model.half() are updated in fp32, rounded once.",
        difference="None known.",
        kernel=normalization_of_batches,
    ),
    Row(
        operators=("native_layer_norm", "native_group_norm"),
        cuda="As batch norm's, but weight and bias must have the input's dtype: a half() model "
        "with an fp32 norm raises. Under autocast both run in fp32.",
        here="The same.",
        difference="None known.",
        kernel=normalization_in_one_dtype,
    ),
    Row(
        operators=("native_batch_norm_backward",),
        cuda="The input's gradient once; gradients of an fp32 weight and bias stay fp32.",
        here="The same.",
        difference="None known.",
        kernel=partial(normalization_backward, weight_at=0, native_in_mixture=True),
    ),
    Row(
        operators=("native_layer_norm_backward",),
        cuda="As batch norm's.",
        here="The same.",
        difference="None known.",
        kernel=partial(normalization_backward, weight_at=3),
    ),
    Row(
        operators=("native_group_norm_backward",),
        cuda="As batch norm's.",
        here="The same.",
        difference="None known.",
        kernel=partial(normalization_backward, weight_at=2),
    ),
    Row(
        operators=("_scaled_dot_product_flash_attention_for_cpu",),
        cuda="Flash attention: scores and softmax in fp32, P = exp(score - max) once, the output "
        "once.",
        here="The same (labkit.emulation.flash_attention).",
        difference="A GPU rounds P against the largest score so far, here of the whole row. Where "
        "torch chooses its unfused kernel (3-D input, dropout), P stays fp32. A mask is taken here "
        "by this kernel; a GPU's flash attention takes none, and another kernel runs.",
        kernel=attention,
    ),
    Row(
        operators=("_scaled_dot_product_flash_attention_for_cpu_backward",),
        cuda="Flash attention: P and dS once each, the three gradients once. With enable_gqa the "
        "gradients of keys and values once for each head of queries, and their fp32 sum once.",
        here="The same.",
        difference="None known.",
        kernel=attention_backward,
    ),
    Row(
        operators=(
            "_softmax",
            "_softmax_backward_data",
            "_log_softmax",
            "_log_softmax_backward_data",
        ),
        cuda="fp32 inside, the result once. cross_entropy on 16-bit logits comes here: it asks "
        "log_softmax for its input's dtype, which autocast respects.",
        here="The same.",
        difference="None known.",
        kernel=round_all,
    ),
    Row(
        operators=(
            *("avg_pool2d", "avg_pool2d_backward", "avg_pool3d", "avg_pool3d_backward"),
            *("_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward"),
            *("_adaptive_avg_pool3d", "_adaptive_avg_pool3d_backward"),
            *("max_pool2d_with_indices", "max_pool2d_with_indices_backward"),
            *("max_pool3d_with_indices", "max_pool3d_with_indices_backward"),
            *("adaptive_max_pool2d", "adaptive_max_pool2d_backward"),
            *("adaptive_max_pool3d", "adaptive_max_pool3d_backward"),
            *("col2im", "embedding_dense_backward"),
            *("grid_sampler_2d", "grid_sampler_2d_backward"),
            *("grid_sampler_3d", "grid_sampler_3d_backward"),
        ),
        cuda="Sums of a window, or of gradients that meet, in fp32, the result once; a maximum is "
        "exact.",
        here="The same.",
        difference=ATOMIC,
        kernel=round_all,
    ),
    Row(
        operators=("_embedding_bag", "_embedding_bag_forward_only"),
        cuda="A bag's sum or mean in fp32, the result once; a maximum is exact.",
        here="The same.",
        difference="None known.",
        kernel=round_all,
    ),
    Row(
        operators=("_embedding_bag_dense_backward",),
        cuda="Gradients that meet in a row in fp32, the sum once; of maxima, each addition.",
        here="The same.",
        difference="The order of atomic additions, where each is rounded.",
        kernel=embedding_bag_backward,
    ),
    Row(
        operators=("lstm.input",),
        cuda="cuDNN, for nn.GRU and nn.RNN as well: factors and states in 16 bits, sums in fp32. "
        "What it rounds between time steps is not documented.",
        here="torch's own layers, made of other operators: each linear layer, gate and state is "
        "rounded, and a weight's gradient after every time step.",
        difference="The last bits of every step.",
        kernel=own_layers,
        key=COMPOSITE,
    ),
    Row(
        operators=(
            *("fft_fft", "fft_ifft", "fft_rfft", "fft_irfft", "fft_hfft", "fft_ihfft"),
            *("fft_fft2", "fft_ifft2", "fft_rfft2", "fft_irfft2", "fft_hfft2", "fft_ihfft2"),
            *("fft_fftn", "fft_ifftn", "fft_rfftn", "fft_irfftn", "fft_hfftn", "fft_ihfftn"),
            *("stft", "stft.center", "istft"),
        ),
        cuda="cuFFT in fp16, for powers of two; what it rounds is not documented. bf16 raises.",
        here="Refused in fp16 with a sentence; bf16 raises torch's own error.",
        difference="Call it in float32.",
        kernel=refused_in_half,
        key=COMPOSITE,
    ),
)


def register(library: torch.library.Library) -> None:
    """Put the table's kernels in place, for as long as the library lives."""
    for row in TABLE:
        for name in row.operators:
            library.impl(name, row.kernel(name), row.key)
