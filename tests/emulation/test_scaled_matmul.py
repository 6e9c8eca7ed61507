"""``as_on_cuda()`` refuses what torch's shape functions for CUDA refuse, with their words; and what
``F.scaled_mm`` on a CPU computes and refuses by itself.

FakeTensor is the oracle: it runs those shape functions without a GPU. It does not know that two
E5M2 matrices are refused; that is from torch's source, and was not run on a GPU.
"""

import itertools
import logging

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import ScalingType, scaled_mm

from labkit.emulation import as_on_cuda

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
TENSOR, ROW = ScalingType.TensorWise, ScalingType.RowWise


def by_v2(a, b):
    one = torch.ones((), device=a.device)
    return scaled_mm(a, b, one, TENSOR, one, TENSOR)


def by_v1(a, b):
    one = torch.ones((), device=a.device)
    return torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)


def layouts(rows, columns):
    """Strides that people meet: contiguous, transposed, parts of a wider one, every other one."""
    return {
        (columns, 1),
        (1, rows),
        (2 * columns, 1),
        (1, 2 * rows),
        (2 * columns, 2),
        (1, 1),
        (0, 1),
        (1, 0),
    }


SIZES = (0, 1, 8, 16, 40, 48)
CASES = [
    ((m, k), of_a, (k, n), of_b)
    for m, k, n in itertools.product((0, 1, 32), SIZES, SIZES)
    for of_a in layouts(m, k)
    for of_b in layouts(k, n)
]


def refusal(call, *operands):
    try:
        call(*operands)
    except Exception as error:
        return type(error), str(error).splitlines()[0]
    return None


@pytest.fixture
def quiet_fake_tensors():
    logging.disable(logging.ERROR)  # FakeTensor logs what it raises
    yield
    logging.disable(logging.NOTSET)


class TestAsOnCuda:
    @pytest.mark.parametrize("call", [by_v1, by_v2])
    def test_layouts_and_sizes_are_refused_as_by_torchs_shape_functions(
        self, call, quiet_fake_tensors, seeds
    ):
        cases = CASES[::7] if seeds == 1 else CASES

        def answers(device):
            for shape_a, stride_a, shape_b, stride_b in cases:
                a = torch.empty_strided(shape_a, stride_a, dtype=E4M3, device=device)
                b = torch.empty_strided(shape_b, stride_b, dtype=E4M3, device=device)
                yield refusal(call, a, b)

        with as_on_cuda():
            here = list(answers("cpu"))
        with FakeTensorMode():
            wanted = list(answers("cuda"))
        differ = [
            case for case, *pair in zip(cases, here, wanted, strict=True) if len(set(pair)) > 1
        ]
        assert differ == []
        kinds = {answer and answer[1].split(",")[0][:30] for answer in here}
        assert len(kinds) == 5  # taken, and four kinds of refusal: no rule is untried

    def test_each_size_counts_where_shapes_do_not_fit_too(self):
        a, b = torch.ones(32, 16).to(E4M3), torch.ones(48, 40).to(E4M3).t()
        with (
            as_on_cuda(),
            pytest.raises(RuntimeError, match=r"of mat2 .*\[40, 48\]"),
        ):
            by_v2(a, b)

    @pytest.mark.parametrize("call", [by_v1, by_v2])
    def test_e5m2_with_e5m2(self, call):
        a, b = torch.ones(16, 32), torch.ones(48, 32).t()
        with as_on_cuda():
            for one, other in [(E4M3, E5M2), (E5M2, E4M3), (E4M3, E4M3)]:
                assert call(a.to(one), b.to(other)).shape == (16, 48)
            with pytest.raises(ValueError, match="two Float8_e5m2 matrices is not supported"):
                call(a.to(E5M2), b.to(E5M2))

    def test_calls_in_a_backward_pass_are_seen(self):
        class Product(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(w)
                return by_v2(x.to(E4M3), w.to(E4M3).t()).float()

            @staticmethod
            def backward(ctx, grad):
                (w,) = ctx.saved_tensors
                return by_v2(grad.to(E5M2), w.to(E4M3)).float(), None  # w: row-major

        x = torch.ones(16, 32, requires_grad=True)
        with as_on_cuda():
            y = Product.apply(x, torch.ones(48, 32))
            with pytest.raises(RuntimeError, match=r"mat2 must be col_major, got stride \(32, 1\)"):
                y.sum().backward()
        y.sum().backward()  # the CPU alone does not mind
        assert x.grad[0, 0] == 48

    def test_values_and_other_operators_stay(self):
        torch.manual_seed(0)
        a, b = torch.randn(16, 32).to(E4M3), torch.randn(48, 32).to(E4M3)
        outside = by_v2(a, b.t())
        with as_on_cuda():
            assert torch.equal(by_v2(a, b.t()), outside)
            assert torch.equal(torch.ones(3, 5) @ torch.ones(5, 2), torch.full((3, 2), 5.0))
        by_v2(a, torch.ones(32, 48).to(E4M3))  # after the block the CPU's rules hold again

    @pytest.mark.parametrize(
        ("a", "b"),
        [
            (torch.ones(16, 32), torch.ones(48, 32).t().to(E4M3)),
            (torch.ones(16, 32).to(E4M3), torch.ones(48, 16).t().to(E4M3)),
            (torch.ones(16).to(E4M3), torch.ones(16, 16).to(E4M3)),
        ],
        ids=["float32", "shapes", "a vector"],
    )
    def test_what_torch_refuses_on_a_cpu_keeps_its_words(self, a, b):
        with as_on_cuda():
            inside = refusal(by_v2, a, b)
        assert inside is not None
        assert inside == refusal(by_v2, a, b)


class TestScaledMmOnACpu:
    """What lab 08 says of torch 2.13 on a CPU. Another torch may differ: then the lab must."""

    @pytest.mark.parametrize("other", [E4M3, E5M2])
    @pytest.mark.parametrize("rowwise", [False, True])
    def test_scales_multiply_the_result(self, rowwise, other):
        """gamma_K = K u bounds K float32 additions; two more roundings are the scales'."""
        torch.manual_seed(0)
        a, b = torch.randn(24, 40).to(E4M3), torch.randn(40, 56).to(other)
        if rowwise:
            sa, sb, how = torch.rand(24, 1) + 0.5, torch.rand(1, 56) + 0.5, ROW
        else:
            sa, sb, how = torch.tensor(0.75), torch.tensor([[3.0]]), TENSOR
        y = scaled_mm(a, b, sa, how, sb, how, output_dtype=torch.float32)
        scales = sa.double() * sb.double()
        exact = (a.double() @ b.double()) * scales
        bound = (40 + 2) * 2.0**-24 * (a.double().abs() @ b.double().abs()) * scales
        assert ((y.double() - exact).abs() <= bound).all()

    def test_any_layout_any_size_and_e5m2_with_e5m2(self):
        torch.manual_seed(0)
        a, b = torch.randn(24, 40).to(E5M2), torch.randn(40, 56).to(E5M2)
        column_major = b.t().contiguous().t()
        assert torch.equal(by_v2(a, b), by_v2(a, column_major))
        assert torch.equal(by_v2(a[:, :0], b[:0]), torch.zeros(24, 56, dtype=torch.bfloat16))

    def test_the_result_is_bfloat16_unless_asked(self):
        a, b = torch.ones(16, 257).to(E4M3), torch.ones(257, 16).to(E4M3)
        assert by_v2(a, b).dtype is torch.bfloat16
        assert by_v2(a, b)[0, 0] == 256  # 257 is no bfloat16
        assert (a @ b).dtype is E4M3  # and the operator gives float8

    @pytest.mark.parametrize(
        "how", ["BlockWise1x128", "BlockWise128x128", "BlockWise1x32", "BlockWise1x16"]
    )
    def test_block_scales_have_no_kernel(self, how):
        a, b = torch.ones(128, 128).to(E4M3), torch.ones(128, 128).to(E4M3)
        kind, scale = getattr(ScalingType, how), torch.ones(128, 1)
        with pytest.raises(ValueError, match="Invalid scaling configuration"):
            scaled_mm(a, b, scale, kind, scale, kind)

    def test_what_it_refuses(self):
        a, b = torch.ones(16, 32).to(E4M3), torch.ones(32, 48).to(E4M3)
        one, rows = torch.ones(()), torch.ones(16, 1)
        with pytest.raises(ValueError, match="Invalid scaling configuration"):
            scaled_mm(a, b, one.double(), TENSOR, one, TENSOR)
        with pytest.raises(ValueError, match="scale_a must have 1 Float element"):
            scaled_mm(a, b, rows, TENSOR, one, TENSOR)
        with pytest.raises(ValueError, match="Invalid scaling configuration"):
            scaled_mm(a.float(), b, one, TENSOR, one, TENSOR)
        with pytest.raises(ValueError, match="cannot be multiplied"):
            scaled_mm(a, b[:16], one, TENSOR, one, TENSOR)
        with pytest.raises(NotImplementedError):
            a + a
