"""Whatever kind of tensor a function of labkit.formats is given: the right result, or our refusal.

Right is what the same values give as a plain, contiguous tensor.
"""

import dataclasses
from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

from labkit.base.home import import_optional
from labkit.formats import (
    BF16,
    E2M1,
    E4M3,
    E8M0,
    FORMATS,
    FP16,
    choose,
    decode,
    dequantize_affine,
    encode,
    fake_quantize,
    mx,
    nvfp4,
    quantize,
    quantize_affine,
    scaled,
    spacing,
)
from labkit.formats.accumulators import add_up
from labkit.formats.histograms import range_report
from labkit.formats.matmul import mixed_matmul

VALUES = torch.tensor([0.3, -100.0, 0.0, 465.0]).repeat_interleave(32).view(4, 32).contiguous()
CODES = torch.arange(128).view(4, 32)
GRID = choose(-1.0, 3.0, bits=8, symmetric=False)
FUNCTIONS = {
    "quantize": (lambda x: quantize(x, E4M3), VALUES),
    "quantize up": (lambda x: quantize(x, BF16, rounding="up"), VALUES),
    "quantize to E8M0": (lambda x: quantize(x, E8M0), VALUES),
    "encode": (lambda x: encode(x, E4M3), VALUES),
    "encode without NaN": (lambda x: encode(x, E2M1), VALUES),
    "decode": (lambda x: decode(x, E4M3), CODES),
    "spacing": (lambda x: spacing(x, E4M3), VALUES),
    "range_report": (lambda x: range_report(x, E4M3), VALUES),
    "scaled": (lambda x: scaled(x, E4M3, overflow="raise"), VALUES),
    "scaled by E8M0": (lambda x: scaled(x, E2M1, overflow="nan", scale_format=E8M0), VALUES),
    "mx": (lambda x: mx(x, E4M3, overflow="saturate"), VALUES),
    "nvfp4": (lambda x: nvfp4(x, overflow="saturate"), VALUES),
    "choose": (lambda x: choose(x, x, bits=8, symmetric=True), VALUES),
    "quantize_affine": (lambda x: quantize_affine(x, GRID), VALUES),
    "dequantize_affine": (lambda x: dequantize_affine(x, GRID), CODES),
    "fake_quantize": (lambda x: fake_quantize(x, GRID), VALUES),
    "mixed_matmul": (lambda x: mixed_matmul(x, VALUES.T), VALUES),
    "add_up": (lambda x: add_up(x, FP16), VALUES.double()),
}


def inference(x):
    with torch.inference_mode():
        return x.clone()


class Named(torch.Tensor):
    """A subclass that changes nothing."""


DENSE = {
    "contiguous": lambda x: x.clone(),
    "transposed": lambda x: x.T.contiguous().T,
    "every second": lambda x: x.repeat(2, 2)[::2, 32:],
    "expanded": lambda x: x[:1].expand(4, 32),
    "channels_last": lambda x: x.view(1, 4, 8, 4).to(memory_format=torch.channels_last),
    "without values": lambda x: x[:0],
    "0-d": lambda x: x[0, 0],
    "negated view": lambda x: torch._neg_view(-x),
    "imaginary part": lambda x: torch.complex(x.double(), -x.double()).conj().imag.to(x.dtype),
    "of inference mode": inference,
    "parameter": lambda x: nn.Parameter(x.clone(), requires_grad=x.is_floating_point()),
    "inside a graph": lambda x: x.float().requires_grad_() * 1 if x.is_floating_point() else x,
    "harmless subclass": lambda x: x.clone().as_subclass(Named),
}
OTHER_DTYPES = {
    str(dtype).removeprefix("torch."): lambda x, dtype=dtype: x.abs().to(dtype)
    for dtype in (
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.int32,
        torch.uint16,
        torch.bool,
        torch.complex64,
        torch.float8_e4m3fn,
    )
}
NO_VALUES = {
    "meta": lambda x: x.to("meta"),
    "uninitialised": lambda x: nn.parameter.UninitializedParameter(False),
}


def fake(x):
    with FakeTensorMode() as mode:
        return mode.from_tensor(x)


def weight_of_torchao(x):
    quantization = import_optional("torchao.quantization")
    layer = nn.Linear(32, 4, bias=False)
    layer.weight = nn.Parameter(x.float())
    quantization.quantize_(layer, quantization.Int8WeightOnlyConfig())
    return layer.weight


def sharded(x, placement):
    return distribute_tensor(x, init_device_mesh("cpu", (1,)), [placement])


REFUSED = {  # and what the sentence says to pass
    "COO": (lambda x: x.to_sparse(), ".to_dense()"),
    "CSR": (lambda x: x.to_sparse_csr(), ".to_dense()"),
    "oneDNN": (lambda x: x.float().to_mkldnn(), ".to_dense()"),
    "nested": (lambda x: torch.nested.nested_tensor([x[0], x[1, :5]]), ".unbind()"),
    "jagged": (
        lambda x: torch.nested.nested_tensor([x[0], x[1, :5]], layout=torch.jagged),
        ".unbind()",
    ),
    "quantized": (
        lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8),
        ".dequantize()",
    ),
    "torchao": (weight_of_torchao, ".dequantize()"),
    "masked": (lambda x: torch.masked.masked_tensor(x, x > 0), "MaskedTensor"),
    "fake": (fake, "FakeTensor"),
    "sharded": (lambda x: sharded(x, Shard(0)), ".full_tensor()"),
    "replicated": (lambda x: sharded(x, Replicate()), ".full_tensor()"),
}


@pytest.fixture(scope="module", autouse=True)
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def outcome(call, x):
    """The tensors and numbers that come back, or our refusal; an error of torch's is a failure."""
    try:
        result = call(x)
    except (TypeError, ValueError) as error:
        place = error.__traceback__
        while place.tb_next:
            place = place.tb_next
        assert "/labkit/" in place.tb_frame.f_code.co_filename.replace("\\", "/"), error
        return error
    return [*vars(result).values()] if dataclasses.is_dataclass(result) else [result]


def assert_same(got, want, *, check_dtype=True):
    if isinstance(want, Exception):
        assert (type(got), str(got)) == (type(want), str(want))
        return
    assert not isinstance(got, Exception), got
    for mine, right in zip(got, want, strict=True):
        if isinstance(right, torch.Tensor):
            # Codes are equal. Sums of another order, and of float64, differ by float32's roundings.
            rtol = 1e-6 if right.dtype in (torch.float32, torch.float64) else 0
            torch.testing.assert_close(
                mine, right, rtol=rtol, atol=0, equal_nan=True, check_dtype=check_dtype
            )
        else:
            assert mine == right


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_kind_gives_the_right_result_or_our_refusal(function):
    call, base = FUNCTIONS[function]
    for kind, make in DENSE.items():
        x = make(base)
        plain = torch.tensor(x.tolist(), dtype=x.dtype).reshape(x.shape)
        print(function, kind)  # shown where it fails
        got = outcome(call, x)
        assert_same(got, outcome(call, plain))
        if function != "fake_quantize" and not isinstance(got, Exception):
            assert not any(getattr(part, "requires_grad", False) for part in got)
    for kind, make in OTHER_DTYPES.items():
        x = make(base)
        print(function, kind)
        got = outcome(call, x)
        if not isinstance(got, TypeError):
            assert_same(got, outcome(call, x.to(base.dtype)), check_dtype=False)
    for kind, make in NO_VALUES.items():
        x = make(base)
        print(function, kind)
        got = outcome(call, x)
        if kind == "uninitialised" or isinstance(got, Exception):
            assert isinstance(got, ValueError) and "no values" in str(got)
        else:
            want = outcome(call, base)
            assert [(y.shape, y.dtype) for y in got if isinstance(y, torch.Tensor)] == [
                (y.shape, y.dtype) for y in want if isinstance(y, torch.Tensor)
            ]
    for kind, (make, told) in REFUSED.items():
        print(function, kind)
        with torch.no_grad():
            got = outcome(call, make(base))
        assert isinstance(got, TypeError) and told in str(got)


def test_a_replicated_tensor_has_the_codes_of_its_whole():
    x = sharded(torch.tensor([-0.3, 465.0, 0.25, -448.0]), Replicate())
    assert isinstance(x, DTensor)
    assert encode(x.full_tensor(), E4M3).tolist() == [170, 127, 40, 254]


@contextmanager
def float64_by_default():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


MODES = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "inference": torch.inference_mode,
    "float64 by default": float64_by_default,
}


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_of_torch_changes_nothing(mode):
    for call, base in FUNCTIONS.values():
        want = outcome(call, base)
        with MODES[mode]():
            assert_same(outcome(call, base), want)


@pytest.fixture
def flush_denormal():
    """A function that switches it on."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormal numbers")
    torch.set_flush_denormal(False)
    yield lambda: torch.set_flush_denormal(True)
    torch.set_flush_denormal(False)


def test_where_subnormal_numbers_are_flushed_to_zero_the_others_stay_right(flush_denormal):
    """Zeros among them: divided by a step that is flushed, 0 would be NaN."""
    values = torch.cat([VALUES, -VALUES, torch.full((1, 32), 2.0**-110), torch.full((1, 32), -0.0)])
    calls = [call for call, base in FUNCTIONS.values() if base is VALUES]
    for fmt in FORMATS.values():
        calls += [lambda x, f=fmt: quantize(x, f), lambda x, f=fmt: quantize(x, f, rounding="down")]
        calls += [lambda x, f=fmt: encode(x.abs().nan_to_num(), f, saturate=True)]
    want = [outcome(call, values) for call in calls]
    flush_denormal()
    for call, right in zip(calls, want, strict=True):
        if isinstance(right, list) and isinstance(right[0], torch.Tensor):
            right = [y * 1 if getattr(y, "dtype", None) is torch.float32 else y for y in right]
        assert_same(outcome(call, values), right)
