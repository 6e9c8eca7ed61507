"""16-bit results lie in the intervals of tests/intervals.py, rounded where CUDA rounds."""

import math

import pytest
import torch
import torch.nn.functional as F
from intervals import (
    ADVERSARIES,
    CONVOLUTIONS,
    FORMATS,
    LOW,
    assert_inside,
    bound,
    gradients,
    interval,
    judge,
    nearly_cancelling,
    plain,
)

from labkit.emulation import emulate_gpu, tensor_core
from labkit.formats import FP16, quantize


@pytest.fixture(scope="class")
def emulated():
    with emulate_gpu():
        yield


@pytest.mark.usefixtures("emulated")
class TestProducts:
    @LOW
    @ADVERSARIES
    @pytest.mark.parametrize("k", [1, 3, 64, 1000, 8192])
    def test_mm(self, low, values, k):
        torch.manual_seed(k)
        # Equal pairs of b meet the cancelling pairs of a.
        b = values((k, 16), low) if values is not nearly_cancelling else torch.ones(k, 16).to(low)
        judge(torch.mm, values((16, k), low), b, terms=k)

    @LOW
    def test_the_interval_is_narrow_and_can_fail(self, low):
        torch.manual_seed(0)
        a, b = plain((32, 64), low), plain((64, 32), low)
        exact, error = a.double() @ b.double(), bound(a.double().abs() @ b.double().abs(), 64)
        ends = interval(exact, error, FORMATS[low])
        assert (ends[0] == ends[1]).double().mean() > 0.8
        with pytest.raises(AssertionError, match="outside"):
            assert_inside((a.double() @ b.double()).float().mul(1 + 2.0**-7).to(low), ends)
        with emulate_gpu(accumulate=low), pytest.raises(AssertionError, match="outside"):
            assert_inside(a @ b, ends)

    @LOW
    @pytest.mark.parametrize("k", [1, 31, 1024, 8192])
    def test_exact_partial_sums_give_the_rounded_sum_itself(self, low, k):
        """Whole numbers up to 8: no sum of 8192 products passes 2**24."""
        torch.manual_seed(k)
        a, b = torch.randint(-8, 9, (24, k)), torch.randint(-8, 9, (k, 24))
        wanted = quantize((a.double() @ b.double()), FORMATS[low])
        assert torch.equal((a.to(low) @ b.to(low)).double(), wanted)

    @LOW
    @ADVERSARIES
    def test_the_rest_of_the_family(self, low, values):
        torch.manual_seed(0)
        a, b, x = values((6, 50), low), values((50, 6), low), values((6, 6), low)
        vector = values((50,), low)
        judge(torch.bmm, a.expand(2, 6, 50), b.expand(2, 50, 6), terms=50)
        judge(torch.mv, a, vector, terms=50)
        judge(torch.dot, a[0], vector, terms=50)
        judge(torch.addmm, x, a, b, terms=51)
        judge(torch.addmv, x[0], a, vector, terms=51)
        judge(torch.baddbmm, x[None], a[None], b[None], terms=51)
        judge(F.linear, a, b.T, terms=50)
        judge(lambda a, b, x: F.linear(a, b, x), a, b.T, x[0], terms=51)
        judge(lambda a, b: torch.einsum("ik,kj->ij", a, b), a, b, terms=50)
        judge(lambda x, a, b: torch.addmm(x, a, b, beta=0.5, alpha=2), x, a, b, terms=53)

    def test_in_place_and_out_write_where_they_should(self):
        torch.manual_seed(0)
        a, b, x = (torch.randn(4, 4).half() for _ in range(3))
        for name in ("addmm", "addmv"):
            second = b if name == "addmm" else b[0]
            start = x if name == "addmm" else x[0]
            wanted = getattr(torch, name)(start, a, second)
            again = start.clone()
            assert getattr(again, name + "_")(a, second) is again and torch.equal(again, wanted)
            out = torch.empty_like(start)
            assert getattr(torch, name)(start, a, second, out=out) is out
            assert torch.equal(out, wanted)
        out = torch.empty(0, dtype=torch.float16)
        assert torch.equal(torch.mm(a, b, out=out), a @ b)

    def test_beta_zero_ignores_nan(self):
        a = torch.ones(2, 2).half()
        nan = torch.full((2, 2), math.nan).half()
        assert (torch.addmm(nan, a, a, beta=0) == 2).all()
        with emulate_gpu(accumulate=torch.float16):
            assert (torch.addmm(nan, a, a, beta=0) == 2).all()

    def test_inf_and_nan_pass_through(self):
        a = torch.tensor([[1.0, math.inf], [math.nan, 1.0], [0.0, 1.0]]).half()
        b = torch.tensor([[1.0], [1.0]]).half()
        values = (a @ b).flatten().tolist()
        assert values[0] == math.inf and math.isnan(values[1]) and values[2] == 1

    @LOW
    def test_gradients(self, low):
        torch.manual_seed(0)
        a, b, grad = plain((8, 300), low), plain((300, 9), low), plain((8, 9), low)
        a.requires_grad_(), b.requires_grad_()
        (a @ b).backward(grad)
        da, db = grad.double(), a.detach().double()
        for result, left, right, terms in (
            (a.grad, da, b.detach().double().T, 9),
            (b.grad, db.T, da, 8),
        ):
            error = bound(left.abs() @ right.abs(), terms)
            assert_inside(result, interval(left @ right, error, FORMATS[low]))


@pytest.mark.usefixtures("emulated")
class TestConvolutions:
    @LOW
    @pytest.mark.parametrize("name", CONVOLUTIONS)
    @pytest.mark.parametrize("transposed", [False, True])
    def test_forward_and_gradients(self, low, name, transposed):
        torch.manual_seed(0)
        shape, kernel, settings = CONVOLUTIONS[name]
        op = getattr(F, f"conv{'_transpose' * transposed}{len(shape) - 2}d")
        if transposed:
            shape = (shape[0], kernel[0], *shape[2:])
        x, weight = plain(shape, low), plain(kernel, low)
        most = math.prod(kernel)  # no output has more terms than a kernel has values
        y = judge(lambda x, w: op(x, w, **settings), x, weight, terms=most)

        grad = plain(tuple(y.shape), low)
        terms = max(most, y.numel() // y.shape[1])
        results = gradients(op, settings, x, weight, grad)
        exact = gradients(op, settings, x.double(), weight.double(), grad.double())
        sizes = gradients(op, settings, *[t.double().abs() for t in (x, weight, grad)])
        for result, value, magnitude in zip(results, exact, sizes, strict=True):
            assert result.dtype is low
            assert_inside(result, interval(value, bound(magnitude, terms), FORMATS[low]))

    @LOW
    def test_a_bias_is_added_after_the_first_rounding(self, low):
        torch.manual_seed(0)
        x, weight, bias = plain((2, 8, 9, 9), low), plain((5, 8, 3, 3), low), plain((5,), low)
        fmt, doubles = FORMATS[low], (x.double(), weight.double())
        error = bound(F.conv2d(x.double().abs(), weight.double().abs()), 72)
        ends = interval(F.conv2d(*doubles), error, fmt)
        shift = bias.double().view(-1, 1, 1)
        result = F.conv2d(x, weight, bias)
        assert_inside(result, tuple(quantize(end + shift, fmt) for end in ends))
        once = quantize(F.conv2d(*doubles) + shift, fmt)
        assert (result.double() != once).any(), "two roundings are not one"

    @LOW
    def test_exact_partial_sums_give_the_rounded_sum_itself(self, low):
        torch.manual_seed(0)
        x, weight = torch.randint(-8, 9, (2, 512, 6, 6)), torch.randint(-8, 9, (4, 512, 3, 3))
        wanted = quantize(F.conv2d(x.double(), weight.double()), FORMATS[low])
        assert torch.equal(F.conv2d(x.to(low), weight.to(low)).double(), wanted)

    def test_the_bias_gradient_is_summed_in_float32(self):
        x, weight = torch.zeros(1, 1, 64, 64).half(), torch.zeros(1, 1, 1, 1).half()
        bias = torch.zeros(1).half().requires_grad_()
        F.conv2d(x, weight, bias).backward(torch.ones(1, 1, 64, 64).half())
        assert bias.grad.item() == 4096


@pytest.mark.usefixtures("emulated")
class TestNorms:
    def test_batch_norm_keeps_float32_where_cuda_does(self):
        torch.manual_seed(0)
        x = (1000 + 300 * torch.randn(64, 3, 8, 8)).half()
        weight, bias = torch.rand(3), torch.rand(3)
        output, mean, invstd = torch.native_batch_norm(
            x, weight, bias, torch.zeros(3), torch.ones(3), True, 0.1, 1e-5
        )
        assert (output.dtype, mean.dtype, invstd.dtype) == (
            torch.float16,
            torch.float32,
            torch.float32,
        )
        wanted = torch.native_batch_norm(
            x.float(), weight, bias, torch.zeros(3), torch.ones(3), True, 0.1, 1e-5
        )
        assert torch.equal(output, wanted[0].half()) and torch.equal(mean, wanted[1])

    @pytest.mark.parametrize("norm", [torch.nn.BatchNorm2d(3), torch.nn.GroupNorm(3, 3)])
    def test_gradients_of_weight_and_bias_take_the_weights_dtype(self, norm):
        torch.manual_seed(0)
        x = torch.randn(16, 3, 4, 4).half().requires_grad_()
        y = torch.ops.aten.native_batch_norm(
            x, norm.weight, norm.bias, None, None, True, 0.1, 1e-5
        )[0]
        y.backward(torch.randn(y.shape).half())
        assert x.grad.dtype is torch.float16 and norm.weight.grad.dtype is torch.float32
        assert not torch.equal(norm.weight.grad, norm.weight.grad.half().float())
        norm.weight.grad = norm.bias.grad = None

    def test_running_statistics_of_a_half_model_move_in_place(self):
        norm = torch.nn.BatchNorm1d(2).half()
        norm(torch.tensor([[1.0, 10.0], [3.0, 30.0]]).half())
        assert norm.running_mean.tolist() == quantize(torch.tensor([0.2, 2.0]), FP16).tolist()
        assert norm.running_mean.dtype is torch.float16

    def test_layer_norm_of_a_half_model(self):
        torch.manual_seed(0)
        x, norm = (300 * torch.randn(4, 64)).half(), torch.nn.LayerNorm(64).half()
        wanted = F.layer_norm(x.float(), (64,), norm.weight.float(), norm.bias.float()).half()
        assert torch.equal(norm(x), wanted)


@pytest.mark.usefixtures("emulated")
class TestAttention:
    @LOW
    def test_p_is_rounded_before_it_meets_v(self, low):
        """With V the identity the output shows P itself, divided by the sum of the row."""
        torch.manual_seed(0)
        query, key = plain((1, 2, 16, 16), low), plain((1, 2, 16, 16), low)
        value = torch.eye(16).to(low).expand(1, 2, 16, 16)
        output = F.scaled_dot_product_attention(query, key, value)
        scores = query.double() @ key.double().mT / 4
        exponentials = (scores - scores.amax(-1, keepdim=True)).exp()
        share = 1 / exponentials.sum(-1, keepdim=True)
        fmt = FORMATS[low]
        rounded = quantize(quantize(exponentials, fmt) * share, fmt)
        unrounded = quantize(exponentials * share, fmt)
        agree = (output.double() == rounded).double().mean()
        assert agree > 0.98, "float32 noise may move a value over a tie, hardly more"
        assert (output.double() == unrounded).double().mean() < 0.9

    @LOW
    @pytest.mark.parametrize("kind", ["all", "causal", "mask", "added"])
    def test_outputs_and_gradients_follow_float64(self, low, kind):
        """Within 8 roundings of the largest value: a sanity bound, chosen and not derived."""
        torch.manual_seed(0)
        shape = 2, 3, 40, 16
        tensors = [plain(shape, low).requires_grad_() for _ in range(3)]
        doubles = [t.detach().double().requires_grad_() for t in tensors]
        mask = torch.rand(40, 40) < 0.7
        mask[:, 0] = True
        added = torch.randn(40, 40).to(low)
        settings = {
            "all": ({}, {}),
            "causal": ({"is_causal": True}, {"is_causal": True}),
            "mask": ({"attn_mask": mask}, {"attn_mask": mask}),
            "added": ({"attn_mask": added}, {"attn_mask": added.double()}),
        }[kind]
        grad = plain(shape, low)
        output = F.scaled_dot_product_attention(*tensors, **settings[0])
        exact = F.scaled_dot_product_attention(*doubles, **settings[1])
        output.backward(grad)
        exact.backward(grad.double())
        u = 2.0 ** -(FORMATS[low].mantissa_bits + 1)
        for name, result, wanted in [
            ("output", output, exact),
            *[(n, a.grad, b.grad) for n, a, b in zip("qkv", tensors, doubles, strict=True)],
        ]:
            assert result.dtype is low
            difference = (result.double() - wanted).abs().max()
            assert difference <= 8 * u * wanted.abs().max(), name

    def test_a_row_with_every_key_hidden_gives_zeros(self):
        torch.manual_seed(0)
        x = torch.randn(1, 1, 4, 8).half().requires_grad_()
        mask = torch.tensor([[True] * 4, [False] * 4, [True] * 4, [False] * 4])
        output = F.scaled_dot_product_attention(x, x, x, attn_mask=mask)
        output.float().sum().backward()
        assert (output[0, 0, 1::2] == 0).all() and output[0, 0, ::2].any()
        assert x.grad.isfinite().all()

    def test_dropout_is_never_ignored(self):
        x = torch.randn(1, 1, 4, 8).half()
        fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        with pytest.raises(RuntimeError, match="dropout"):
            fused(x, x, x, 0.5)

    def test_parts_of_the_heads_give_what_all_at_once_gives(self, monkeypatch):
        torch.manual_seed(0)
        x = [torch.randn(2, 5, 12, 8).half() for _ in range(3)]
        whole = F.scaled_dot_product_attention(*x, is_causal=True)
        monkeypatch.setattr("labkit.emulation.flash_attention.SCORES_AT_ONCE", 1)
        assert torch.equal(F.scaled_dot_product_attention(*x, is_causal=True), whole)


POOLS = {
    "avg_pool1d": lambda x: F.avg_pool1d(x.flatten(2), 3),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 3),
    "avg_pool3d": lambda x: F.avg_pool3d(x[:, None], 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 3),
    "adaptive_avg_pool3d": lambda x: F.adaptive_avg_pool3d(x[:, None], 2),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "max_pool3d": lambda x: F.max_pool3d(x[:, None], 2),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 3),
    "adaptive_max_pool3d": lambda x: F.adaptive_max_pool3d(x[:, None], 2),
    "fold": lambda x: F.fold(x.reshape(1, 28, 36), 7, 2),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "grid_sample": lambda x: F.grid_sample(
        x, x.detach()[:, :2].permute(0, 2, 3, 1).clamp(-1, 1), align_corners=False
    ),
}


@pytest.mark.usefixtures("emulated")
@LOW
@pytest.mark.parametrize("name", POOLS)
def test_windows_are_summed_in_float32_and_rounded_once(low, name):
    torch.manual_seed(0)
    x = plain((4, 4, 7, 9), low)
    grad = plain(tuple(POOLS[name](x).shape), low)
    results = []
    for start in (x, x.float()):
        leaf = start.clone().requires_grad_()
        y = POOLS[name](leaf)
        assert y.dtype is start.dtype
        y.backward(grad.to(start.dtype))
        results.append((y.detach(), leaf.grad))
    (y, dx), (wide, dwide) = results
    if "softmax" in name:  # its gradient is a function of the output, which is rounded
        assert torch.equal(y, wide.to(low))
    else:
        assert torch.equal(y, wide.to(low)) and torch.equal(dx, dwide.to(low))


# Everything else stays as it is


def test_other_dtypes_run_as_without_emulation():
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float64, torch.complex64, torch.int64):
        a = torch.randint(-4, 5, (5, 5)).to(dtype)
        without = a @ a
        with emulate_gpu(accumulate=torch.float16):
            assert torch.equal(a @ a, without)


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.ones(2, 2).half() @ torch.ones(2, 2),
        lambda: torch.ones(2, 3).half() @ torch.ones(2, 3).half(),
        lambda: torch.dot(torch.ones(2).half(), torch.ones(3).half()),
        lambda: F.conv2d(torch.ones(1, 2, 4, 4).half(), torch.ones(1, 3, 3, 3).half()),
        lambda: torch.mm(torch.ones(2, 2).half(), torch.ones(2, 2).half(), out=torch.ones(2, 2)),
    ],
)
def test_errors_are_torchs_own(call):
    with pytest.raises(RuntimeError) as plain_error:
        call()
    with emulate_gpu(), pytest.raises(RuntimeError) as error:
        call()
    assert str(error.value) == str(plain_error.value)


def test_the_table_speaks_of_every_operator_once():
    names = [name for row in tensor_core.TABLE for name in row.operators]
    assert len(names) == len(set(names))
    for row in tensor_core.TABLE:
        assert row.cuda and row.here and row.difference
