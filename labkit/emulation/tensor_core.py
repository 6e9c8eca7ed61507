"""What a Tensor Core GPU rounds, operator by operator, done with float32 kernels of a CPU.

It rests on four facts:

1. A 16-bit product is exact in float32 (11 + 11 significant bits, or 8 + 8), and Tensor Cores add
   such products in float32. So a 16-bit operator is its float32 operator on the same values, and
   one rounding of the result. The order of the additions differs, and with it the last bits.
2. Where CUDA rounds more than once, or keeps float32, the operator has a kernel of its own:
   convolutions with a bias, batch norm, attention.
3. Autograd's formulas call the same operators with 16-bit gradients. A kernel at the CPU key below
   autograd therefore serves forward, backward, checkpoints and ``model.half()`` alike.
4. ``TABLE`` is the whole of it, and stands in ``tensor_core.toml``: a row says which operators it
   replaces, what CUDA rounds, what happens here, and how the two still differ.

Operators that compute 16-bit values in float32 and round once on a CPU as well (additions,
activations, softmax, layer norm) need nothing and stay.

Sources: ATen/native/Convolution.cpp; Blas.cpp, ScatterGatherKernel.cu, group_norm_kernel.cu and
RreluWithNoise.cu in ATen/native/cuda; SparseBlasLegacy.cpp and SparseCUDATensor.cu in
ATen/native/sparse/cuda; cuDNN's documentation of CUDNN_DATA_HALF convolutions; Dao,
FlashAttention-2 (arXiv:2307.08691); Fasi et al., Numerical behavior of NVIDIA tensor cores (PeerJ
CS-330).
"""

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labkit.emulation import atomic_sums, flash_attention
from labkit.emulation.autocast_lists import operator
from labkit.formats.accumulators import current

KEY, COO, CSR = "CPU", "SparseCPU", "SparseCsrCPU"
"""The keys of dense CPU tensors and of the sparse ones. (One more is that of CSC, BSR and BSC.)"""
COMPOSITE = "CompositeImplicitAutograd"
"""The key of operators that are made of others, above autograd and for every device."""
FLOAT32 = torch.float32
ROUND = {torch.float16: Tensor.half, torch.bfloat16: Tensor.bfloat16}
"""A 16-bit dtype -> what rounds a float32 tensor to it, in half the time that ``to`` takes."""
SIXTEEN_BITS = tuple(ROUND)
SCALAR_TYPE = {torch.float16: "Half", torch.bfloat16: "BFloat16", torch.float32: "Float"}
"""What torch's errors call a dtype."""
MODE_MAX = 2
"""What the operators of nn.EmbeddingBag call mode="max"."""
Kernel = Callable[..., Any]


def original(name: str, key: str = KEY) -> Kernel:
    """The kernel that runs an operator on CPU tensors now, also once another has replaced it."""
    kernel = torch.library.get_kernel(f"aten::{name}", key)
    return partial(kernel.call_boxed, torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key)))


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


def written(result: Tensor, out: Tensor | None) -> Tensor:
    """The result, or the tensor that an operator with ``out=`` writes it into."""
    return result if out is None else out.resize_(result.shape).copy_(result)


# The matmul family: one function computes in float32, out-of-place, in-place and out= share it.


def _float32_product(name: str) -> Kernel:
    """A product operator on float32 arguments, with the accumulator that is in force."""
    full = original(name)

    def product(*args: Any, **kwargs: Any) -> Tensor:
        accumulator = current()
        if accumulator is None:
            return full(*args, **kwargs)
        matmul = accumulator.matmul
        return matmul(*args) if len(args) == 2 else _with_addend(matmul, *args, **kwargs)

    return product


def _with_addend(
    matmul: Kernel, x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * x + alpha * (a @ b); beta = 0 ignores x, even its NaNs, as BLAS does."""
    product = matmul(a, b) if alpha == 1 else alpha * matmul(a, b)
    return product if beta == 0 else torch.add(product, x, alpha=beta)


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
        return args[0].copy_(result) if writes_first else written(result, out)

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
        return written(result, out)

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
                wanted, found = (SCALAR_TYPE.get(t.dtype, "Double") for t in (x, value))
                raise RuntimeError(f"expected scalar type {wanted} but found {found}")
        return normalize(x, *args)

    return kernel


def normalization_of_groups(name: str) -> Kernel:
    """As ``normalization_in_one_dtype``, but eps and the statistics for backward are rounded."""
    normalize = normalization_in_one_dtype(name)

    def kernel(x: Tensor, *args: Any) -> tuple[Tensor, ...]:
        *rest, eps = args
        output, *statistics = normalize(x, *rest, torch.tensor(eps, dtype=x.dtype).item())
        return output, *[statistic.to(x.dtype) for statistic in statistics]

    return kernel


def normalization_backward(name: str) -> Kernel:
    """From float32 statistics, each gradient rounded once; torch's own kernel for fp32 weights."""
    here = original(name)
    weight_at = [argument.name for argument in operator(name)._schema.arguments].index("weight")

    def kernel(*args: Any) -> tuple[Tensor | None, ...]:
        dtype = args[1].dtype
        if dtype not in SIXTEEN_BITS or has_float32(args[weight_at]):
            return here(*args)
        return tuple(rounded(grad, dtype) for grad in here(*map(widened, args)))

    return kernel


def embedding_bag_backward(name: str) -> Kernel:
    """Gradients that meet in a row are summed in float32 and rounded once, except of maxima."""
    here, once = original(name), round_all(name)
    mode = [argument.name for argument in operator(name)._schema.arguments].index("mode")

    def kernel(*args: Any) -> Tensor:
        return here(*args) if args[mode] == MODE_MAX else once(*args)

    return kernel


def scattered(name: str) -> Kernel:
    """Each addition or product is rounded; torch's own kernel checks, and knows where to write."""
    here = original(name)

    def kernel(x: Tensor, dim: int, index: Tensor, source: Any, *args: Any, **kwargs: Any) -> Any:
        kind = atomic_sums.KINDS.get(args[0] if args else kwargs.get("reduce", "sum"))
        if kind is None or x.dtype not in SIXTEEN_BITS or not index.numel():
            return here(x, dim, index, source, *args, **kwargs)
        before, include_self = x.clone(), kwargs.get("include_self", True)
        result = here(x, dim, index, source, *args, **kwargs)
        return result.copy_(atomic_sums.reduced(before, dim, index, source, kind, include_self))

    return kernel


def with_noise(name: str) -> Kernel:
    """RReLU writes its noise, rounded, and the output is the rounded product with the input."""
    functional = name.removesuffix(".out").removesuffix("_")
    here, compute = original(name), original(functional)
    writes_first = functional + "_" == name

    def kernel(x: Tensor, noise: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if x.dtype not in SIXTEEN_BITS:
            return here(x, noise, *args, **kwargs)
        wide = noise.float()
        result = ROUND[x.dtype](compute(x.float(), wide, *args))
        training = len(args) > 2 and args[2]
        if training:
            result = x * noise.copy_(wide)
        return x.copy_(result) if writes_first else written(result, kwargs.get("out"))

    return kernel


def refused_sparse_product(name: str) -> Kernel:
    """CUDA has no 16-bit product of a COO matrix, and says so; one without values it leaves out."""
    here = original(name, COO)

    def kernel(*args: Tensor, **kwargs: Any) -> Tensor:
        for x in args:
            if x.is_sparse and x.dtype in SIXTEEN_BITS and x._nnz():
                said = f"not implemented for '{SCALAR_TYPE[x.dtype]}'"
                raise NotImplementedError(f'"addmm_sparse_cuda" {said}')
        return here(*args, **kwargs)

    return kernel


def sparse_product(name: str) -> Kernel:
    """A product with a compressed matrix in float32, the result once."""
    here, compute = original(name, CSR), original(name.removesuffix(".out"), CSR)

    def kernel(*args: Any, **kwargs: Any) -> Tensor:
        dtype = shared_dtype(args)
        if dtype is None:
            return here(*args, **kwargs)
        out = kwargs.pop("out", None)
        result = compute(*[widened(value) for value in args], **kwargs)
        return written(ROUND[dtype](result), out)

    return kernel


def coalesced(name: str) -> Kernel:
    """Values that meet in a COO tensor are summed in float32 and rounded once."""
    here = original(name, COO)

    def kernel(x: Tensor) -> Tensor:
        return here(x.float()).to(x.dtype) if x.dtype in SIXTEEN_BITS else here(x)

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
class KernelRow:
    """A row of the table: which operators, what CUDA rounds, what we round, the difference."""

    operators: str
    kernel: str
    cuda: str
    here: str
    difference: str
    key: str = KEY


_ROWS = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
TABLE = tuple(KernelRow(**row) for row in tomllib.loads(_ROWS)["rows"])


def rounding_kernels() -> Iterator[tuple[str, Kernel, str]]:
    """The table's operators, and for each its kernel and the key where it stands."""
    for row in TABLE:
        for name in row.operators.split():
            yield name, globals()[row.kernel](name), row.key
