"""Output dtypes under emulate_gpu() equal those of torch's own AutocastCUDA kernels.

The oracle needs no GPU: fake tensors of device "cuda" run the real autocast kernels and the meta
functions behind them. ``torch.autocast("cuda")`` would switch itself off here, so the oracle sets
the thread's state directly.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

from labkit import autocast_lists
from labkit.emulation import emulate_gpu

LOW = (torch.float16, torch.bfloat16)


@contextmanager
def cuda_autocast(dtype: torch.dtype) -> Iterator[None]:
    """AutocastCUDA switched on, with fake tensors."""
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", dtype)
    try:
        with FakeTensorMode():
            yield
    finally:
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])


class Inputs:
    """Makes arguments on one device: ``low`` in the dtype under test, ``full`` in float32."""

    def __init__(self, device: str, low: torch.dtype) -> None:
        self.dtype = low
        self.low = partial(self._make, device, low)
        self.full = partial(self._make, device, torch.float32)
        self.double = partial(self._make, device, torch.float64)
        self.whole = lambda *shape: torch.ones(shape, dtype=torch.int64, device=device)

    @staticmethod
    def _make(device: str, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        return torch.full(shape, 0.5, dtype=dtype, device=device)


def unary(f: Callable) -> Callable:
    return lambda i: (f(i.low(4, 4)), f(i.full(4, 4)), f(i.double(4, 4)))


def square(f: Callable) -> Callable:
    """An operator of linear algebra, on an invertible matrix."""
    return lambda i: f(torch.eye(3, device=i.full(1).device, dtype=i.dtype) + i.low(3, 3))


def pair(f: Callable) -> Callable:
    """Two tensors in both dtypes and mixed."""
    return lambda i: (
        f(i.low(4, 4), i.low(4, 4)),
        f(i.full(4, 4), i.full(4, 4)),
        f(i.low(4, 4), i.full(4, 4)),
    )


def loss(f: Callable) -> Callable:
    return lambda i: (f(i.low(4, 4), i.low(4, 4)), f(i.full(4, 4), i.low(4, 4)))


UNARY = (
    "acos asin atan ceil cos cosh erf erfinv exp expm1 log log10 log1p log2 neg reciprocal relu "
    "rsqrt sigmoid sin sinh sqrt square tan tanh mean std var abs norm prod sum max min median "
    "logsumexp cumsum cumprod softmax log_softmax softplus gelu silu elu hardtanh leaky_relu "
    "softmin normalize trace"
).split()
along = {"logsumexp", "cumsum", "cumprod", "softmax", "log_softmax", "softmin"}
CASES: dict[str, Callable] = {}
for name in UNARY:
    call = getattr(torch, name, None) or getattr(F, name)
    CASES[name] = unary(partial(call, dim=-1) if name in along else call)
for name in "mm matmul add mul sub div atan2 dist cdist minimum hypot".split():
    CASES[name] = pair(getattr(torch, name))
for name in (
    "mse_loss l1_loss smooth_l1_loss huber_loss kl_div poisson_nll_loss soft_margin_loss "
    "hinge_embedding_loss binary_cross_entropy_with_logits binary_cross_entropy"
).split():
    CASES[name] = loss(getattr(F, name))
for name in (
    "linalg.inv linalg.cholesky linalg.eigh linalg.eigvalsh linalg.qr linalg.svd linalg.svdvals "
    "linalg.cond linalg.matrix_rank linalg.pinv inverse pinverse cholesky qr svd geqrf"
).split():
    function = torch.linalg if name.startswith("linalg.") else torch
    CASES[name] = square(getattr(function, name.removeprefix("linalg.")))
for (
    name
) in "fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn".split():
    CASES[f"fft.{name}"] = lambda i, f=getattr(torch.fft, name): f(i.low(4, 4))
for dims, size in ((1, (8,)), (2, (8, 8)), (3, (8, 8, 8))):
    for kind in ("conv", "conv_transpose"):
        CASES[f"{kind}{dims}d"] = lambda i, f=getattr(F, f"{kind}{dims}d"), k=(3,) * dims, s=size: (
            f(i.full(2, 3, *s), i.full(3, 3, *k)),
            f(i.low(2, 3, *s), i.full(3, 3, *k), i.full(3)),
        )
    for kind in ("avg_pool", "max_pool"):
        CASES[f"{kind}{dims}d"] = lambda i, f=getattr(F, f"{kind}{dims}d"), s=size: (
            f(i.low(2, 3, *s), 2),
            f(i.full(2, 3, *s), 2),
        )
    for kind in ("adaptive_avg_pool", "adaptive_max_pool"):
        CASES[f"{kind}{dims}d"] = lambda i, f=getattr(F, f"{kind}{dims}d"), s=size: f(
            i.low(2, 3, *s), 2
        )
    for mode in ("reflect", "replicate", "constant", "circular"):
        CASES[f"pad {mode} {dims}d"] = lambda i, m=mode, s=size, d=dims: F.pad(
            i.low(2, 3, *s), (1, 1) * d, mode=m
        )
    for mode in ("nearest", "nearest-exact", ("linear", "bilinear", "trilinear")[dims - 1]):
        CASES[f"interpolate {mode} {dims}d"] = lambda i, m=mode, s=size: F.interpolate(
            i.low(2, 3, *s), scale_factor=2, mode=m
        )
CASES |= {
    "interpolate bicubic": lambda i: F.interpolate(
        i.low(2, 3, 8, 8), scale_factor=2, mode="bicubic"
    ),
    "interpolate bilinear antialias": lambda i: F.interpolate(
        i.low(2, 3, 8, 8), size=4, mode="bilinear", antialias=True
    ),
    "interpolate bicubic antialias": lambda i: F.interpolate(
        i.low(2, 3, 8, 8), size=4, mode="bicubic", antialias=True
    ),
    "conv1d same": lambda i: F.conv1d(i.full(2, 3, 8), i.full(4, 3, 3), padding="same"),
    "conv2d same": lambda i: F.conv2d(i.full(2, 3, 8, 8), i.full(4, 3, 3, 3), padding="same"),
    "conv_tbc": lambda i: torch.conv_tbc(i.full(8, 2, 3), i.full(3, 3, 4), i.full(4)),
    "torch.convolution": lambda i: torch.convolution(
        i.full(2, 3, 8), i.full(4, 3, 3), None, [1], [0], [1], False, [0], 1
    ),
    "linear": lambda i: F.linear(i.full(2, 3), i.full(4, 3), i.full(4)),
    "linear 3-D": lambda i: F.linear(i.full(2, 5, 3), i.full(4, 3), i.full(4)),
    "bilinear": lambda i: (
        F.bilinear(i.low(2, 3), i.low(2, 4), i.full(5, 3, 4)),
        F.bilinear(i.low(2, 3), i.low(2, 4), i.low(5, 3, 4)),
    ),
    "bmm": lambda i: torch.bmm(i.full(2, 3, 4), i.low(2, 4, 3)),
    "addmm": lambda i: torch.addmm(i.full(3, 3), i.full(3, 4), i.low(4, 3)),
    "addbmm": lambda i: torch.addbmm(i.full(3, 3), i.full(2, 3, 4), i.low(2, 4, 3)),
    "baddbmm": lambda i: torch.baddbmm(i.full(2, 3, 3), i.full(2, 3, 4), i.low(2, 4, 3)),
    "addmv": lambda i: torch.addmv(i.full(3), i.full(3, 4), i.low(4)),
    "addr": lambda i: torch.addr(i.full(3, 4), i.full(3), i.low(4)),
    "mv": lambda i: torch.mv(i.full(3, 4), i.low(4)),
    "dot": lambda i: (torch.dot(i.low(4), i.low(4)), torch.dot(i.full(4), i.low(4))),
    "vdot": lambda i: (torch.vdot(i.low(4), i.low(4)), torch.vdot(i.full(4), i.low(4))),
    "linalg.vecdot": lambda i: torch.linalg.vecdot(i.full(4), i.low(4)),
    "einsum": lambda i: torch.einsum("ij,jk->ik", i.full(3, 4), i.full(4, 3)),
    "chain_matmul": lambda i: torch.chain_matmul(i.full(3, 4), i.full(4, 3), i.full(3, 2)),
    "multi_dot": lambda i: torch.linalg.multi_dot([i.full(3, 4), i.low(4, 3), i.full(3, 2)]),
    "tensordot": lambda i: (
        torch.tensordot(i.low(3, 4), i.low(4, 3), 1),
        torch.tensordot(i.low(3, 4), i.full(4, 3), 1),
    ),
    "prelu": lambda i: F.prelu(i.low(2, 3), i.full(3)),
    "lstm_cell": lambda i: torch.lstm_cell(
        i.full(2, 3),
        [i.full(2, 4), i.full(2, 4)],
        i.full(16, 3),
        i.full(16, 4),
        i.full(16),
        i.full(16),
    ),
    "gru_cell": lambda i: torch.gru_cell(
        i.full(2, 3), i.full(2, 4), i.full(12, 3), i.full(12, 4), i.full(12), i.full(12)
    ),
    "rnn_tanh_cell": lambda i: torch.rnn_tanh_cell(
        i.full(2, 3), i.full(2, 4), i.full(4, 3), i.full(4, 4), i.full(4), i.full(4)
    ),
    "rnn_relu_cell": lambda i: torch.rnn_relu_cell(
        i.full(2, 3), i.full(2, 4), i.full(4, 3), i.full(4, 4), i.full(4), i.full(4)
    ),
    "attention": lambda i: F.scaled_dot_product_attention(
        i.full(1, 2, 4, 8), i.full(1, 2, 4, 8), i.low(1, 2, 4, 8)
    ),
    "layer_norm": lambda i: F.layer_norm(i.low(2, 4), (4,), i.full(4), i.full(4)),
    "rms_norm": lambda i: F.rms_norm(i.low(2, 4), (4,), i.full(4)),
    "group_norm": lambda i: F.group_norm(i.low(2, 4, 3), 2, i.full(4), i.full(4)),
    "batch_norm": lambda i: F.batch_norm(
        i.low(2, 4, 3), i.full(4), i.full(4), i.full(4), i.full(4), training=True
    ),
    "instance_norm": lambda i: F.instance_norm(i.low(2, 4, 3)),
    "cosine_similarity": lambda i: F.cosine_similarity(i.low(2, 4), i.low(2, 4)),
    "pdist": lambda i: F.pdist(i.low(3, 4)),
    "renorm": lambda i: torch.renorm(i.low(3, 4), 2, 0, 1.0),
    "norm p": lambda i: torch.norm(i.low(3, 4), p=3),
    "norm dim": lambda i: (torch.norm(i.low(3, 4), 2, 1), torch.norm(i.low(3, 4), 2, [1], True)),
    "norm fro": lambda i: torch.norm(i.low(3, 4), "fro", [0, 1]),
    "frobenius_norm": lambda i: torch.frobenius_norm(i.low(3, 4), [0, 1]),
    "Tensor.norm": lambda i: i.low(3, 4).norm(),
    "linalg.norm": lambda i: torch.linalg.norm(i.low(3, 4)),
    "linalg.vector_norm": lambda i: torch.linalg.vector_norm(i.low(3, 4)),
    "linalg.vector_norm asked": lambda i: torch.linalg.vector_norm(i.low(3), dtype=i.dtype),
    "linalg.matrix_norm": lambda i: torch.linalg.matrix_norm(i.low(3, 4)),
    "linalg.matrix_norm 1": lambda i: torch.linalg.matrix_norm(i.low(3, 4), 1),
    "pow scalar": lambda i: i.low(4) ** 2,
    "pow tensor": lambda i: i.low(4) ** i.low(4),
    "pow of a scalar": lambda i: 2 ** i.low(4),
    "softmax asked": lambda i: torch.softmax(i.low(3, 4), 1, dtype=i.dtype),
    "softmax asked fp32": lambda i: F.softmax(i.low(3, 4), 1, dtype=torch.float32),
    "softmax asked fp64": lambda i: F.softmax(i.low(3, 4), 1, dtype=torch.float64),
    "log_softmax asked": lambda i: F.log_softmax(i.full(3, 4), 1, dtype=i.dtype),
    "gumbel_softmax": lambda i: F.gumbel_softmax(i.low(3, 4)),
    "sum dim": lambda i: i.low(3, 4).sum(1),
    "sum asked": lambda i: i.low(3, 4).sum(1, dtype=i.dtype),
    "sum of integers": lambda i: i.whole(3).sum(),
    "prod dim": lambda i: i.low(3, 4).prod(1),
    "prod asked": lambda i: i.low(3, 4).prod(1, dtype=i.dtype),
    "cumsum asked": lambda i: i.low(3, 4).cumsum(1, dtype=i.dtype),
    "mean dim": lambda i: i.low(3, 4).mean(1),
    "nll_loss": lambda i: F.nll_loss(i.low(3, 4), i.whole(3)),
    "nll_loss 2-D": lambda i: F.nll_loss(i.low(3, 4, 2, 2), i.whole(3, 2, 2)),
    "cross_entropy": lambda i: (
        F.cross_entropy(i.low(3, 4), i.whole(3)),
        F.cross_entropy(i.full(3, 4), i.whole(3)),
        F.cross_entropy(i.low(3, 4), i.whole(3), reduction="none"),
    ),
    "cross_entropy soft": lambda i: F.cross_entropy(i.low(3, 4), i.low(3, 4)),
    "cross_entropy smoothed": lambda i: F.cross_entropy(
        i.low(3, 4), i.whole(3), label_smoothing=0.1
    ),
    "cosine_embedding_loss": lambda i: F.cosine_embedding_loss(i.low(3, 4), i.low(3, 4), i.low(3)),
    "margin_ranking_loss": lambda i: F.margin_ranking_loss(i.low(3), i.low(3), i.low(3)),
    "triplet_margin_loss": lambda i: F.triplet_margin_loss(i.low(3, 4), i.low(3, 4), i.low(3, 4)),
    "multi_margin_loss": lambda i: F.multi_margin_loss(i.low(3, 4), i.whole(3)),
    "multilabel_margin_loss": lambda i: F.multilabel_margin_loss(i.low(3, 4), i.whole(3, 4)),
    "multilabel_soft_margin_loss": lambda i: F.multilabel_soft_margin_loss(
        i.low(3, 4), i.low(3, 4)
    ),
    "gaussian_nll_loss": lambda i: F.gaussian_nll_loss(i.low(3), i.low(3), i.low(3)),
    "ctc_loss": lambda i: F.ctc_loss(
        i.low(5, 2, 4), i.whole(2, 3), torch.tensor([5, 5]), torch.tensor([1, 1])
    ),
    "addcdiv": lambda i: (
        torch.addcdiv(i.low(4), i.low(4), i.low(4)),
        torch.addcdiv(i.low(4), i.full(4), i.low(4)),
    ),
    "addcmul": lambda i: (
        torch.addcmul(i.low(4), i.low(4), i.low(4)),
        torch.addcmul(i.low(4), i.full(4), i.low(4)),
    ),
    "addcmul of two low dtypes": lambda i: torch.addcmul(
        i.low(4), i.low(4).to(LOW[i.dtype is LOW[0]]), i.low(4)
    ),
    "cross": lambda i: torch.cross(i.low(4, 3), i.full(4, 3), dim=1),
    "grid_sample": lambda i: (
        F.grid_sample(i.low(1, 1, 4, 4), i.low(1, 2, 2, 2), align_corners=False),
        F.grid_sample(i.low(1, 1, 4, 4), i.full(1, 2, 2, 2), align_corners=False),
    ),
    "grid_sample 3-D": lambda i: F.grid_sample(
        i.low(1, 1, 4, 4, 4), i.low(1, 2, 2, 2, 3), align_corners=False
    ),
    "index_put": lambda i: i.full(4).index_put((i.whole(2),), i.low(2)),
    "index_copy": lambda i: i.full(4).index_copy(0, i.whole(1), i.low(1)),
    "scatter_add": lambda i: i.full(4).scatter_add(0, i.whole(2), i.low(2)),
    "cat": lambda i: (torch.cat([i.low(2), i.low(2)]), torch.cat([i.low(2), i.full(2)])),
    "stack": lambda i: (torch.stack([i.low(2), i.low(2)]), torch.stack([i.low(2), i.full(2)])),
    "where": lambda i: torch.where(i.low(3) > 0, i.low(3), i.full(3)),
    "embedding": lambda i: F.embedding(i.whole(3), i.full(4, 2)),
    "dropout": lambda i: F.dropout(i.low(3)),
    "glu": lambda i: F.glu(i.low(4)),
    "baddbmm of float64": lambda i: torch.addmm(i.double(3, 3), i.double(3, 4), i.double(4, 3)),
    "quantile": lambda i: torch.quantile(i.full(4), 0.5),
    "quantile low": lambda i: torch.quantile(i.low(4), 0.5),
    "polar": lambda i: torch.polar(i.low(4), i.low(4)),
    "view_as_complex": lambda i: torch.view_as_complex(i.low(4, 2)),
    "stft": lambda i: torch.stft(i.low(16), 4, window=i.low(4), return_complex=True),
    "max_unpool2d": lambda i: F.max_unpool2d(
        *F.max_pool2d(i.low(1, 1, 4, 4), 2, return_indices=True), 2
    ),
    "fractional_max_pool2d": lambda i: F.fractional_max_pool2d(i.low(1, 1, 8, 8), 2, output_size=4),
    "linalg.solve": lambda i: torch.linalg.solve(i.low(3, 3), i.low(3, 3)),
    "triangular_solve": lambda i: torch.triangular_solve(i.low(3, 1), i.low(3, 3)),
}
