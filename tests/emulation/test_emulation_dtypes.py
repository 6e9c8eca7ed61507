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
from torch.utils._pytree import tree_leaves

from labkit.emulation import autocast_lists, emulate_gpu

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


def words(text: str) -> list[str]:
    return text.split()


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


def sequence(layer: Callable, i: Inputs, *, gates: int, states: int = 1) -> tuple:
    """A layer of five steps, 3 wide inside and 2 wide outside."""
    state = [i.full(1, 4, 3) for _ in range(states)]
    weights = [i.full(3 * gates, 2), i.full(3 * gates, 3), i.full(3 * gates), i.full(3 * gates)]
    state = state if states > 1 else state[0]
    return layer(i.full(5, 4, 2), state, weights, True, 1, 0.0, False, False, False)


UNARY = words(
    "acos asin atan ceil cos cosh erf erfinv exp expm1 log log10 log1p log2 neg reciprocal relu "
    "rsqrt sigmoid sin sinh sqrt square tan tanh mean std var abs norm prod sum max min median "
    "logsumexp cumsum cumprod softmax log_softmax softplus gelu silu elu hardtanh leaky_relu "
    "softmin normalize trace"
)
along = {"logsumexp", "cumsum", "cumprod", "softmax", "log_softmax", "softmin"}
CASES: dict[str, Callable] = {}
for name in UNARY:
    call = getattr(torch, name, None) or getattr(F, name)
    CASES[name] = unary(partial(call, dim=-1) if name in along else call)
for name in words("mm matmul add mul sub div atan2 dist cdist minimum hypot"):
    CASES[name] = pair(getattr(torch, name))
for name in words(
    "mse_loss l1_loss smooth_l1_loss huber_loss kl_div poisson_nll_loss soft_margin_loss "
    "hinge_embedding_loss binary_cross_entropy_with_logits binary_cross_entropy"
):
    CASES[name] = loss(getattr(F, name))
LINEAR_ALGEBRA = words(
    "linalg.cholesky linalg.eigh linalg.eigvalsh linalg.qr linalg.svd linalg.svdvals linalg.cond "
    "cholesky qr svd"
)
for name in LINEAR_ALGEBRA:
    function = torch.linalg if name.startswith("linalg.") else torch
    CASES[name] = square(getattr(function, name.removeprefix("linalg.")))
FOURIER = words("fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn")
for name in FOURIER:
    CASES[f"fft.{name}"] = lambda i, name=name: getattr(torch.fft, name)(i.low(4, 4))
for dims, size in ((1, (8,)), (2, (8, 8)), (3, (8, 8, 8))):
    for kind in ("conv", "conv_transpose"):
        call = getattr(F, f"{kind}{dims}d")
        CASES[f"{kind}{dims}d"] = lambda i, f=call, k=(3,) * dims, s=size: (
            f(i.full(2, 3, *s), i.full(3, 3, *k)),
            f(i.low(2, 3, *s), i.full(3, 3, *k), i.full(3)),
        )
    for kind in ("avg_pool", "max_pool"):
        call = getattr(F, f"{kind}{dims}d")
        CASES[f"{kind}{dims}d"] = lambda i, f=call, s=size: (
            f(i.low(2, 3, *s), 2),
            f(i.full(2, 3, *s), 2),
        )
    for kind in ("adaptive_avg_pool", "adaptive_max_pool"):
        call = getattr(F, f"{kind}{dims}d")
        CASES[f"{kind}{dims}d"] = lambda i, f=call, s=size: f(i.low(2, 3, *s), 2)
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
    "mm out_dtype": lambda i: torch.mm(i.low(3, 4), i.low(4, 3), out_dtype=torch.float32),
    "bmm out_dtype": lambda i: torch.bmm(i.low(2, 3, 4), i.low(2, 4, 3), out_dtype=torch.float32),
    "addmm out_dtype": lambda i: torch.addmm(
        i.low(3, 3), i.low(3, 4), i.low(4, 3), out_dtype=torch.float32
    ),
    "LSTM": lambda i: sequence(torch.lstm, i, gates=4, states=2),
    "GRU": lambda i: sequence(torch.gru, i, gates=3),
    "RNN of tanh": lambda i: sequence(torch.rnn_tanh, i, gates=1),
    "RNN of relu": lambda i: sequence(torch.rnn_relu, i, gates=1),
    "attention of shared heads": lambda i: F.scaled_dot_product_attention(
        i.full(1, 4, 4, 8), i.full(1, 2, 4, 8), i.low(1, 2, 4, 8), enable_gqa=True
    ),
    "embedding_bag": lambda i: (
        F.embedding_bag(i.whole(3, 2), i.full(4, 2)),
        F.embedding_bag(i.whole(3, 2), i.low(4, 2)),
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

NO_KERNEL = (
    "torch has no such kernel for 16 bits on a CPU: it raises, with or without emulate_gpu()"
)
DEVIATIONS: dict[str, str] = {
    **dict.fromkeys(LINEAR_ALGEBRA, NO_KERNEL),
    **dict.fromkeys(("polar", "linalg.solve", "triangular_solve"), NO_KERNEL),
    "index_copy": "both raise on a machine; the fake tensors of the oracle do not compare dtypes",
}
# Refused in float16 with a sentence. In bfloat16 CUDA raises what torch raises on a CPU.
REFUSED = ("stft", *(f"fft.{name}" for name in FOURIER))
# What fake tensors cannot run without CUDA: the dtypes follow from the lists in autocast_mode.h.
WITHOUT_ORACLE: dict[str, tuple[str, ...]] = {
    "batch_norm": ("low",),  # on no list: the input's dtype
    "grid_sample": ("low", "float32"),  # promote
    "gru_cell": ("low",),  # low precision
    "GRU": ("low", "low"),  # made of such cells
    "gaussian_nll_loss": ("float32",),  # its logarithm is on the fp32 list
}


def outcome(case: Callable, inputs: Inputs) -> list[str] | str:
    """The dtypes of all tensors that come out, or the first line of what it raised."""
    try:
        results = case(inputs)
    except (RuntimeError, NotImplementedError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return [str(x.dtype)[6:] for x in tree_leaves(results) if isinstance(x, torch.Tensor)]


def here(name: str, low: torch.dtype) -> list[str] | str:
    with torch.autocast("cpu", dtype=low):
        return outcome(CASES[name], Inputs("cpu", low))


def cuda(name: str, low: torch.dtype) -> list[str] | str:
    with cuda_autocast(low):
        return outcome(CASES[name], Inputs("cuda", low))


@pytest.fixture(scope="class")
def emulated() -> Iterator[None]:
    with emulate_gpu():
        yield


@pytest.mark.usefixtures("emulated")
class TestUnderEmulation:
    @pytest.mark.parametrize("low", LOW, ids=["fp16", "bf16"])
    @pytest.mark.parametrize(
        "name", sorted(CASES.keys() - DEVIATIONS.keys() - WITHOUT_ORACLE.keys() - set(REFUSED))
    )
    def test_dtypes_are_those_of_the_real_kernels(self, name, low):
        assert here(name, low) == cuda(name, low)

    @pytest.mark.parametrize("low", LOW, ids=["fp16", "bf16"])
    @pytest.mark.parametrize("name", WITHOUT_ORACLE)
    def test_dtypes_where_the_oracle_needs_a_gpu(self, name, low):
        wanted = [str(low)[6:] if dtype == "low" else dtype for dtype in WITHOUT_ORACLE[name]]
        assert here(name, low) == wanted

    def test_the_cases_cover_ninety_operators_that_raise_nothing(self):
        compared = CASES.keys() - DEVIATIONS.keys() - WITHOUT_ORACLE.keys() - set(REFUSED)
        run = [name for name in compared if not isinstance(cuda(name, torch.float16), str)]
        assert len(run) >= 90
        assert compared - set(run) == {"binary_cross_entropy", "addcmul of two low dtypes"}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_the_listed_deviations_raise_as_a_plain_cpu_does(name):
    plain = outcome(CASES[name], Inputs("cpu", torch.float16))
    assert isinstance(plain, str)
    with emulate_gpu():
        assert here(name, torch.float16) == plain


@pytest.mark.parametrize("name", REFUSED)
def test_transforms_of_half_are_refused_and_those_of_bfloat16_raise_as_plain(name):
    plain = outcome(CASES[name], Inputs("cpu", torch.bfloat16))
    with emulate_gpu():
        said = here(name, torch.float16)
        assert said.startswith("NotImplementedError") and f"torch.{name} " in said
        assert "x.float()" in said
        assert here(name, torch.bfloat16) == plain
        assert isinstance(outcome(CASES[name], Inputs("cpu", torch.float32)), list)


def test_a_plain_cpu_follows_other_lists():
    """The comparison can fail: without emulate_gpu() it does, for the operators that matter."""
    different = {name for name in UNARY if here(name, LOW[0]) != cuda(name, LOW[0])}
    assert {"softmax", "log_softmax", "exp", "log", "sum", "cumsum", "norm"} <= different
    assert here("layer_norm", LOW[0]) != cuda("layer_norm", LOW[0])
    assert here("binary_cross_entropy", LOW[0]) != cuda("binary_cross_entropy", LOW[0])


# Kernels of CUDA's own libraries, which no operator reaches on a CPU.
ONLY_ON_CUDA = {
    "_scaled_dot_product_flash_attention",
    "_thnn_fused_gru_cell",
    "_thnn_fused_lstm_cell",
    "cudnn_convolution",
    "cudnn_convolution_transpose",
}

# Lists on which CPU and CUDA agree: nothing is registered, torch's own CPU kernel stays.
SHARED_LOW_PRECISION = (
    "_convolution.deprecated addbmm addmm baddbmm bmm conv1d conv2d conv3d conv_tbc "
    "conv_transpose1d conv_transpose2d.input conv_transpose3d.input linalg_vecdot linear matmul "
    "mm prelu scaled_dot_product_attention"
)
SHARED_FP32 = (
    "binary_cross_entropy_with_logits cdist cosine_embedding_loss hinge_embedding_loss huber_loss "
    "kl_div l1_loss margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss "
    "nll_loss2d poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss"
)
# On CPU's list alone, and yet right: inside they are linear layers and convolutions, which CUDA
# runs in 16 bits one by one.
SAME_BY_ANOTHER_WAY = (
    "_addmm_activation _native_multi_head_attention conv1d.padding conv2d.padding conv3d.padding"
)


def operators_with_kernel(key: str) -> set[str]:
    names = (name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return {name.removeprefix("aten::") for name in names if has_kernel(name, key)}


def test_every_operator_of_cudas_lists_has_a_policy_here():
    """torch knows which operators have a CUDA autocast kernel; ours are those, or shared ones."""
    registered = {name for _, names in autocast_lists.LISTS for name in names}
    left_alone = set(dict(autocast_lists.LISTS)[autocast_lists.left_alone])
    sequences = {name for name in registered if name.endswith((".data", ".input"))}
    shared = {*SHARED_LOW_PRECISION.split(), *SHARED_FP32.split()}
    same = set(SAME_BY_ANOTHER_WAY.split())
    on_cuda, on_cpu = operators_with_kernel("AutocastCUDA"), operators_with_kernel("AutocastCPU")
    assert on_cuda - ONLY_ON_CUDA == (registered - left_alone - sequences) | shared
    assert on_cpu - on_cuda == left_alone | same
