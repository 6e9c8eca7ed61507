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
from torch._subclasses.fake_tensor import FakeTensorMode

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
class TestOutDtype:
    """torch.mm(..., out_dtype=): what the documentation of torch.mm says for CUDA."""

    @LOW
    @pytest.mark.parametrize("k", [1, 31, 1024])
    def test_the_float32_sum_itself_comes_back(self, low, k):
        """Whole numbers up to 8: no float32 sum of 1024 products is rounded."""
        torch.manual_seed(k)
        a, b = torch.randint(-8, 9, (2, 6, k)), torch.randint(-8, 9, (2, k, 5))
        x, product = torch.randint(-8, 9, (5,)), (a.double() @ b.double()).float()
        low_a, low_b, wide = a.to(low), b.to(low), {"out_dtype": torch.float32}
        assert same(torch.mm(low_a[0], low_b[0], **wide), product[0])
        assert same(torch.bmm(low_a, low_b, **wide), product)
        for addend in (x.to(low), x.float()):
            scaled = torch.addmm(addend, low_a[0], low_b[0], beta=2, alpha=0.5, **wide)
            assert same(scaled, 2 * x.float() + 0.5 * product[0])
            shaped = addend.expand(2, 6, 5)
            assert same(torch.baddbmm(shaped, low_a, low_b, **wide), x.float() + product)
        out = torch.empty(0)
        assert torch.mm(low_a[0], low_b[0], out=out, **wide) is out and same(out, product[0])

    @LOW
    def test_the_inputs_own_dtype_is_rounded_once(self, low):
        torch.manual_seed(0)
        a, b = plain((8, 300), low), plain((300, 9), low)
        assert same(torch.mm(a, b, out_dtype=low), a @ b)
        assert same(
            torch.mm(a.double(), b.double(), out_dtype=torch.float64), a.double() @ b.double()
        )

    def test_a_sum_beyond_65504_survives(self):
        a = torch.full((1, 512), 16.0).half()
        assert torch.mm(a, a.T).item() == math.inf
        assert torch.mm(a, a.T, out_dtype=torch.float32).item() == 131072
        with emulate_gpu(accumulate=torch.float16):
            ones = torch.ones(1, 5000).half()
            assert torch.mm(ones, ones.T, out_dtype=torch.float32).item() == 2048

    def test_what_cuda_refuses_is_refused_in_its_words(self):
        a, wide = torch.ones(2, 2).half(), torch.ones(2, 2)
        for said, call in {
            "out_dtype must be the same as input dtype or fp32": lambda: [
                torch.mm(a, a, out_dtype=torch.bfloat16)
            ],
            "input dtypes must be the same": lambda: torch.mm(a, wide, out_dtype=torch.float32),
            "self dtype must match": lambda: torch.addmm(
                wide.double(), a, a, out_dtype=torch.float32
            ),
            "dtype of the provided out tensor": lambda: torch.mm(
                a, a, out_dtype=torch.float32, out=torch.empty_like(a)
            ),
            "cannot be multiplied": lambda: torch.mm(a, a[:1], out_dtype=torch.float32),
        }.items():
            with pytest.raises(RuntimeError, match=said):
                call()
        for x, out_dtype in ((wide, torch.float16), (wide.double(), torch.float32)):
            with pytest.raises(RuntimeError, match="out_dtype must be the same as input dtype"):
                torch.mm(x, x, out_dtype=out_dtype)

    def test_it_has_no_derivative_as_on_cuda(self):
        a = torch.ones(2, 2).half().requires_grad_()
        with pytest.raises(RuntimeError, match="derivative for aten::mm is not implemented"):
            torch.mm(a, a, out_dtype=torch.float32).sum().backward()


def same(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    return got.dtype is wanted.dtype and torch.equal(got, wanted)


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
    @LOW
    @pytest.mark.parametrize("narrow", [False, True], ids=["fp32 weights", "a model in 16 bits"])
    def test_batch_norm_keeps_float32_where_cuda_does(self, low, narrow):
        """The mean of 4096 values near 1000; in 16 bits it would be off by up to 2**-9 of itself.

        float32's noise may move an output over a tie, hardly more, and then by one gap.
        """
        torch.manual_seed(0)
        x = (1000 + 300 * torch.randn(64, 3, 8, 8)).to(low)
        weight, bias = torch.rand(2, 3).to(low if narrow else torch.float32)
        ours, exact = (
            torch.native_batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5),
            torch.native_batch_norm(
                x.double(), weight.double(), bias.double(), None, None, True, 0.1, 1e-5
            ),
        )
        assert [t.dtype for t in ours] == [low, torch.float32, torch.float32]
        for statistic, wanted in zip(ours[1:], exact[1:], strict=True):
            assert (statistic / wanted - 1).abs().max() < 2.0**-18
        rounded = quantize(exact[0], FORMATS[low])
        assert (ours[0].double() == rounded).double().mean() > 0.99
        assert (ours[0].double() - rounded).abs().max() <= 4 * torch.finfo(low).eps

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

    @LOW
    @pytest.mark.parametrize("norm", ["layer_norm", "group_norm"])
    def test_mixed_dtypes_raise_as_in_cudas_kernels(self, low, norm):
        """``LayerNormKernelImplInternal`` reads the weight as the input's type, and says so."""

        def call(x, weight, bias):
            shape = (8,) if norm == "layer_norm" else 2
            return getattr(F, norm)(x, shape, weight, bias)

        x, wide = torch.ones(4, 8).to(low), torch.ones(8)
        name = {torch.float16: "Half", torch.bfloat16: "BFloat16"}[low]
        for weight, bias in ((wide, wide), (wide, None), (wide.to(low), wide), (None, wide)):
            with pytest.raises(RuntimeError, match=f"expected scalar type {name} but found Float"):
                call(x, weight, bias)
        with pytest.raises(RuntimeError, match=f"expected scalar type Float but found {name}"):
            call(x.float(), wide.to(low), None)
        assert call(x, wide.to(low), wide.to(low)).dtype is call(x, None, None).dtype is low
        with torch.autocast("cpu", dtype=low):
            assert call(x, wide, wide).dtype is torch.float32


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

    @LOW
    @pytest.mark.parametrize("shared", [1, 2, 4])
    @pytest.mark.parametrize("causal", [False, True])
    def test_shared_heads_follow_float64(self, low, shared, causal):
        """torch's own attention of shared heads in float64; 8 roundings are a sanity bound."""
        torch.manual_seed(0)
        shapes = (2, 8, 20, 16), (2, shared, 20, 16), (2, shared, 20, 16)
        tensors = [plain(shape, low).requires_grad_() for shape in shapes]
        doubles = [t.detach().double().requires_grad_() for t in tensors]
        grad, outputs = plain(shapes[0], low), []
        for inputs in (tensors, doubles):
            outputs.append(
                F.scaled_dot_product_attention(*inputs, is_causal=causal, enable_gqa=True)
            )
            outputs[-1].backward(grad.to(inputs[0].dtype))
        u = torch.finfo(low).eps / 2
        for result, wanted in zip(
            (outputs[0], *[t.grad for t in tensors]),
            (outputs[1], *[t.grad for t in doubles]),
            strict=True,
        ):
            assert result.dtype is low and result.shape == wanted.shape
            assert (result.double() - wanted).abs().max() <= 8 * u * wanted.abs().max()

    @LOW
    def test_shared_heads_give_what_repeated_heads_give(self, low):
        torch.manual_seed(0)
        query, key, value = (
            plain((2, 6, 9, 8), low),
            plain((2, 2, 9, 8), low),
            plain((2, 2, 9, 8), low),
        )
        repeated = (x.repeat_interleave(3, dim=1) for x in (key, value))
        assert torch.equal(
            F.scaled_dot_product_attention(query, key, value, enable_gqa=True),
            F.scaled_dot_product_attention(query, *repeated),
        )

    @LOW
    def test_the_gradient_of_a_shared_head_is_rounded_for_each_head_of_queries(self, low):
        """One key: P is 1, and a head's gradient of its value is the sum of the rows of grad.

        With n = 2**mantissa_bits, n + 7/16 rounds to n, and 7/16 - n to 1/2 - n: together 1/2.
        Rounded once it would be 7/8. In the second column each head is exact, and 2n + 1 + 1 is
        2n + 2, which additions in 16 bits would never reach.
        """
        n = 1 / torch.finfo(low).eps
        rows = [[n, 2 * n], [7 / 16, 0]], [[-n, 1], [7 / 16, 0]], [[0, 1], [0, 0]]
        query, key = torch.ones(1, 3, 2, 2).to(low), torch.ones(1, 1, 1, 2).to(low)
        value = torch.ones(1, 1, 1, 2).to(low).requires_grad_()
        output = F.scaled_dot_product_attention(query, key, value, enable_gqa=True)
        output.backward(torch.tensor(rows).to(low)[None])
        assert value.grad.flatten().tolist() == [0.5, 2 * n + 2]

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


@pytest.mark.usefixtures("emulated")
class TestEmbeddingBag:
    @LOW
    def test_gradients_that_meet_are_summed_in_float32(self, low):
        bag = torch.nn.EmbeddingBag(3, 2, mode="sum").to(low)
        bag(torch.zeros(4096, 1, dtype=torch.int64)).sum().backward()
        assert bag.weight.grad.tolist() == [[4096, 4096], [0, 0], [0, 0]]

    @LOW
    def test_a_chain_of_maxima_rounds_each_addition_as_atomics_do(self, low):
        bag = torch.nn.EmbeddingBag(3, 2, mode="max").to(low)
        bag(torch.zeros(4096, 1, dtype=torch.int64)).sum().backward()
        assert bag.weight.grad[0].tolist() == [2 / torch.finfo(low).eps] * 2

    @LOW
    @pytest.mark.parametrize(("mode", "weighted"), [("sum", False), ("sum", True), ("mean", False)])
    def test_bags_and_their_gradients_are_rounded_once(self, low, mode, weighted):
        torch.manual_seed(0)
        indices, table, grad = torch.randint(5, (6, 11)), plain((5, 16), low), plain((6, 16), low)
        weights = [plain((6, 11), low)] if weighted else []

        def run(*tensors):
            table, grad, *weights = (tensor.clone() for tensor in tensors)
            leaves = [leaf.requires_grad_() for leaf in (table, *weights)]
            scale = weights[0] if weights else None
            y = F.embedding_bag(indices, table, mode=mode, per_sample_weights=scale)
            y.backward(grad)
            return [y.detach(), *[leaf.grad for leaf in leaves]]

        inputs = table, grad, *weights
        exact = run(*[x.double() for x in inputs])
        sizes = run(*[x.double().abs() for x in inputs])
        for got, value, size in zip(run(*inputs), exact, sizes, strict=True):
            assert got.dtype is low
            # No sum has more than the 66 indices; a mean is divided once more.
            assert_inside(got, interval(value, bound(size, 67), FORMATS[low]))


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


# Sums by atomics, and what else the library got wrong on code from elsewhere


def in_order(values, low, start, combine):
    """A reduction by hand: the value so far is rounded after each step."""
    total = start
    for value in values.double().tolist():
        total = quantize(combine(total, value), FORMATS[low])
    return total


def gathered(x, dim, index, source):
    """The gradient of gather, which is a scatter_add into zeros."""
    leaf = torch.zeros_like(x).requires_grad_()
    leaf.gather(dim, index).backward(source)
    return x + leaf.grad


SUMS = {
    "scatter_add": lambda x, *rest: x.scatter_add(*rest),
    "scatter_add_": lambda x, *rest: x.clone().scatter_add_(*rest),
    "scatter_add.out": lambda x, *rest: torch.scatter_add(x, *rest, out=torch.empty(0).to(x.dtype)),
    "scatter_reduce": lambda x, *rest: x.scatter_reduce(*rest, "sum"),
    "scatter_reduce_": lambda x, *rest: x.clone().scatter_reduce_(*rest, "sum"),
    "scatter": lambda x, *rest: x.scatter(*rest, reduce="add"),
    "scatter of a number": lambda x, dim, index, source: x.scatter(dim, index, 1.0, reduce="add"),
    "gather": gathered,
    "index_add": lambda x, *rest: x.index_add(*rest),
    "index_put": lambda x, dim, index, source: x.index_put((index,), source, accumulate=True),
}


@pytest.mark.usefixtures("emulated")
class TestAtomicSums:
    @LOW
    @pytest.mark.parametrize("name", SUMS)
    def test_each_addition_is_rounded(self, low, name):
        """A sum of ones stops at 2048 in float16 and at 256 in bfloat16."""
        ones, index = torch.ones(4096).to(low), torch.zeros(4096, dtype=torch.int64)
        total = SUMS[name](torch.zeros(1).to(low), 0, index, ones)
        assert total.dtype is low and total.item() == 2 / torch.finfo(low).eps

    @LOW
    def test_means_divide_by_a_rounded_count_and_products_round_too(self, low):
        torch.manual_seed(0)
        index, values = torch.zeros(600, dtype=torch.int64), (1 + torch.rand(600) / 64).to(low)
        x, ones = torch.full((2,), 3.0).to(low), torch.ones(600).to(low)
        for include, first in ((True, 3.0), (False, 0.0)):
            total = in_order(values, low, first, lambda a, b: a + b)
            count = in_order(ones, low, float(include), lambda a, b: a + b)
            mean = x.scatter_reduce(0, index, values, "mean", include_self=include)
            assert mean.tolist() == [quantize(total / count, FORMATS[low]), 3.0]
            product = in_order(values, low, 3.0 if include else 1.0, lambda a, b: a * b)
            got = x.scatter_reduce(0, index, values, "prod", include_self=include)
            assert got.tolist() == [product, 3.0]
        assert x.scatter(0, index, values, reduce="multiply")[0] == in_order(
            values, low, 3.0, lambda a, b: a * b
        )

    @pytest.mark.parametrize(
        ("shape", "index_shape", "source_shape", "dim"),
        [
            ((5,), (9,), (9,), 0),
            ((4, 6), (3, 9), (4, 11), 1),
            ((4, 6, 3), (9, 5, 2), (10, 6, 3), 0),
            ((4, 6, 3), (2, 5, 7), (2, 5, 7), -1),
            ((), (), (), 0),
            ((3,), (), (), 0),
            ((2, 2), (0,), (1, 1), 0),
        ],
    )
    def test_indices_mean_what_they_mean_to_torch(self, shape, index_shape, source_shape, dim):
        """Whole numbers below 100: no sum is rounded, so that torch's own float64 is right."""
        torch.manual_seed(0)
        x, source = torch.randint(9, shape), torch.randint(9, source_shape)
        index = torch.randint((shape or (1,))[dim if shape else 0], index_shape)
        x, source, wide, wide_source = x.half(), source.half(), x.double(), source.double()
        for include in (True, False):
            settings = {"reduce": "sum", "include_self": include}
            got = x.scatter_reduce(dim, index, source, **settings)
            assert torch.equal(
                got.double(), wide.scatter_reduce(dim, index, wide_source, **settings)
            )
        into = x.t() if x.dim() == 2 else x  # a view is written in place
        before = into.double()
        if into.shape == wide.shape:
            assert into.scatter_add_(dim, index, source) is into
            assert torch.equal(into.double(), before.scatter_add(dim, index, wide_source))

    def test_what_torch_refuses_is_refused_in_its_words(self):
        x, one = torch.zeros(2).half(), torch.ones(1).half()
        with pytest.raises(RuntimeError, match="index 5 is out of bounds"):
            x.scatter_add(0, torch.tensor([5]), one)
        with pytest.raises(RuntimeError, match="to be equal to src"):
            x.scatter_add(0, torch.tensor([1]), one.float())
        assert x.scatter_reduce(0, torch.tensor([1]), one, "amax").tolist() == [0, 1]


@pytest.mark.usefixtures("emulated")
class TestSparse:
    @LOW
    @pytest.mark.parametrize("by", ["autocast", "dtype"])
    def test_coo_by_dense_raises_as_on_cuda(self, low, by):
        coo, dense = torch.ones(2, 8).to_sparse(), torch.ones(8, 2)
        if by == "dtype":
            coo, dense = coo.to(low), dense.to(low)
        said = {torch.float16: "Half", torch.bfloat16: "BFloat16"}[low]
        with torch.autocast("cpu", low, enabled=by == "autocast"):
            for call in (
                lambda: coo @ dense,
                lambda: coo @ dense[:, 0],
                lambda: torch.sparse.mm(coo, dense),
                lambda: torch.mm(coo, dense, out=torch.empty(2, 2).to(dense.dtype)),
            )[: 3 if by == "autocast" else None]:
                with pytest.raises(NotImplementedError, match=f"addmm_sparse_cuda.*'{said}'"):
                    call()
        assert (coo.float() @ dense.float()).tolist() == [[8, 8]] * 2
        empty = torch.zeros(2, 8).to_sparse().to(low)
        assert not (empty @ dense.to(low)).any(), "without values CUDA leaves it out"

    @LOW
    @pytest.mark.parametrize("layout", ["csr", "csc"])
    def test_compressed_by_dense_is_summed_in_float32(self, low, layout):
        torch.manual_seed(0)
        matrix = torch.where(torch.rand(6, 40) < 0.5, torch.randn(6, 40), 0.0).to(low)
        dense, exact = torch.randn(40, 3).to(low), matrix.double()
        sparse = getattr(matrix, f"to_sparse_{layout}")()
        ends = interval(
            exact @ dense.double(), bound(exact.abs() @ dense.double().abs(), 40), FORMATS[low]
        )
        wanted = sparse @ dense
        assert_inside(wanted, ends)
        out = torch.empty(6, 3).to(low)
        assert torch.equal(torch.mm(sparse, dense, out=out), wanted)
        assert torch.equal(sparse @ dense[:, 0], wanted[:, 0])
        ones = torch.ones(1, 4096)
        with torch.autocast("cpu", low):
            assert (ones.to_sparse_csr() @ ones.T).item() == 4096

    @LOW
    def test_values_that_meet_are_summed_in_float32(self, low):
        table = torch.nn.Embedding(3, 2, sparse=True).to(low)
        table(torch.zeros(4096, dtype=torch.int64)).sum().backward()
        gradient = table.weight.grad.coalesce()
        assert gradient.is_coalesced() and gradient.dtype is low
        assert gradient.values().tolist() == [[4096, 4096]]


@pytest.mark.usefixtures("emulated")
class TestGroupNormOfAHalfModel:
    @LOW
    @pytest.mark.parametrize("off", [10.3, 2000.3])
    def test_the_gradients_come_from_rounded_statistics(self, low, off):
        """The formula of group_norm_kernel.cu in float64, from mean and rstd as they were saved.

        In float32 the weight's gradient for the second ``off`` would be far away: it is
        the sum of grad * (x - mean) * rstd, and the mean is rounded by up to half a gap.
        """
        torch.manual_seed(0)
        x = (torch.randn(4, 4, 6, 6) + off).to(low)
        grad, weight = torch.randn(x.shape).to(low), torch.rand(4).to(low)
        sizes = (4, 4, 36, 2)
        _, mean, rstd = torch.native_group_norm(x, weight, None, *sizes, 1e-5)
        assert mean.dtype is rstd.dtype is low
        grads = torch.ops.aten.native_group_norm_backward(
            grad, x, mean, rstd, weight, *sizes, [True, True, True]
        )
        groups = x.double().view(4, 2, -1)
        assert torch.equal(mean.double(), quantize(groups.mean(-1), FORMATS[low]))
        m, r = (value.double().repeat_interleave(2, 1)[..., None, None] for value in (mean, rstd))
        each = grad.double() * (x.double() - m) * r
        exact = each.sum((0, 2, 3))
        error = bound((each.abs() + (grad.double() * m * r).abs() * 2).sum((0, 2, 3)), 300)
        assert_inside(grads[1], interval(exact, error, FORMATS[low]))
        fine = torch.native_group_norm(x.float(), weight.float(), None, *sizes, 1e-5)[1:]
        m, r = (value.double().repeat_interleave(2, 1)[..., None, None] for value in fine)
        kept = (grad.double() * (x.double() - m) * r).sum((0, 2, 3))
        assert (exact - kept).abs().max() > torch.finfo(low).eps * kept.abs().max()
        with FakeTensorMode():
            on_cuda = torch.empty(4, 4, 6, 6, dtype=low, device="cuda")
            of_cuda = torch.native_group_norm(on_cuda, None, None, *sizes, 1e-5)
        assert [t.dtype for t in of_cuda] == [low] * 3

    def test_the_output_is_rounded_once_and_eps_before(self):
        """An eps of 1e-8 is 0 in float16: the values of a constant group are 0/0."""
        torch.manual_seed(0)
        x, norm = (torch.randn(2, 4, 8) * 300).half(), torch.nn.GroupNorm(2, 4).half()
        wanted = F.group_norm(x.double(), 2, eps=torch.tensor(1e-5).half().item())
        agree = norm(x).double() == quantize(wanted, FP16)
        assert agree.double().mean() > 0.97
        constant = torch.ones(1, 2, 2).half()
        assert F.group_norm(constant, 1, eps=1e-8).isnan().all()
        assert not F.group_norm(constant.float(), 1, eps=1e-8).any()


@pytest.mark.usefixtures("emulated")
@LOW
def test_rrelu_rounds_its_noise_and_the_product(low):
    torch.manual_seed(0)
    x = torch.randn(64).to(low).requires_grad_()
    y = F.rrelu(x, training=True)
    slope = torch.autograd.grad(y.sum(), x)[0]
    assert y.dtype is slope.dtype is low and (slope[x > 0] == 1).all()
    assert ((slope[x <= 0] >= 1 / 8) & (slope[x <= 0] <= 1 / 3)).all()
    assert torch.equal(y, (x.float() * slope.float()).to(low))
    z = x.detach().clone()
    assert F.rrelu(z, training=True, inplace=True) is z and (z[x <= 0] != x[x <= 0]).all()
    assert torch.equal(F.rrelu(x), F.leaky_relu(x, (1 / 8 + 1 / 3) / 2))


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


def test_a_product_in_place_changes_no_shape():
    a, b = torch.ones(3, 2).half(), torch.ones(2, 2).half()
    whole = torch.zeros(4, 2).half()
    with emulate_gpu():
        for place in (whole[:1], whole[0]):
            with pytest.raises(RuntimeError):
                place.addmm_(a, b)
    assert not whole.any()


def test_the_table_speaks_of_every_operator_once():
    places = [(name, row.key) for row in tensor_core.TABLE for name in row.operators.split()]
    assert len(places) == len(set(places))
    for row in tensor_core.TABLE:
        assert row.cuda and row.here and row.difference
