"""What lab 03 states about torch and about sums, where no cell of its notebook runs it."""

import math
import shutil

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    scaled_dot_product_attention,
)

from labkit.formats import BF16, FP16, quantize, spacing
from labkit.labs.overflow_underflow_rounding.solutions import fair_round, kahan, total


def step(s, c, update):
    """One add of Kahan's: the new sum and the new excess."""
    y = update - c
    t = s + y
    return t, (t - s) - y


def trained(one_step, *, update=1e-4, steps=1000):
    s, c = torch.ones(8).bfloat16(), torch.zeros(8).bfloat16()
    for _ in range(steps):
        s, c = one_step(s, c, torch.full((8,), update).bfloat16())
    return s[0].item()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs a C++ compiler")
def test_a_compiled_kahan_step_loses_its_compensation():
    assert trained(step) == 1.1015625
    assert trained(torch.compile(step)) == 1.0
    torch.compiler.reset()
    with torch._inductor.config.patch(emulate_precision_casts=True):
        assert trained(torch.compile(step)) == 1.1015625
    torch.compiler.reset()


def test_kahan_in_bf16_ends_where_two_numbers_have_no_more_bits():
    assert kahan(torch.ones(70_000).bfloat16()) == 65536
    for update, stalls in ((1.5e-5, True), (1.6e-5, False)):
        terms = torch.tensor([1.0] + 2000 * [update]).bfloat16()
        assert (kahan(terms) == 1) == stalls, update
        assert (update < 2.0**-16) == stalls
    assert spacing(2.0**-8, BF16) / 2 > 1e-5 and spacing(1.0, BF16) / 2 == 2.0**-8


def test_error_correction_by_order_compensation_and_chance():
    """1 plus 1000 updates of 1e-4 in BF16: what each remedy makes of the exact 1.1."""
    terms = torch.tensor([1.0] + 1000 * [1e-4]).bfloat16()
    plain = terms[0]
    for update in terms[1:]:
        plain = plain + update
    assert plain == 1
    assert kahan(terms) == 1.1015625  # the value next to 1.1
    assert abs(total(terms) - 1.1) <= 2 * spacing(1.1, BF16)
    torch.manual_seed(0)
    weights = torch.ones(500)
    for update in terms[1:]:
        weights = fair_round(weights + update)
    assert abs(weights.mean() - 1.1) < 0.01


def test_stochastic_rounding_arrives_where_kahan_does_not():
    torch.manual_seed(0)
    weights = torch.ones(500)
    for _ in range(2000):
        weights = fair_round(weights + 1e-5)
    # The mean of 500 weights of 2000 steps each, of variance p (1 - p) gap**2 with p = 1e-5 / gap.
    deviation = math.sqrt(2000 * 1e-5 * spacing(1.0, BF16) / 500)
    assert abs(weights.mean() - 1.02) < 5 * deviation < 0.01


def test_neumaier_repairs_kahan_where_a_term_exceeds_the_sum():
    terms = [1.0, 1e100, 1.0, -1e100]
    assert kahan(torch.tensor(terms, dtype=torch.float64)) == 0
    s = losses = 0.0
    for value in terms:
        t = s + value
        losses += (s - t) + value if abs(s) >= abs(value) else (value - t) + s
        s = t
    assert s + losses == 2


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_attention_gives_zeros_to_rows_without_a_visible_place(dtype, backend):
    q = torch.ones(1, 1, 2, 4, dtype=dtype)
    with sdpa_kernel(backend):
        out = scaled_dot_product_attention(q, q, q, attn_mask=torch.zeros(2, 2, dtype=torch.bool))
    assert torch.equal(out, torch.zeros_like(q))


def test_multihead_attention_gives_nan_unless_no_weights_are_asked_for():
    attention = torch.nn.MultiheadAttention(4, num_heads=1, batch_first=True)
    x, hidden = torch.ones(1, 2, 4), torch.ones(2, 2, dtype=torch.bool)
    for need_weights in (True, False):
        out, _ = attention(x, x, x, attn_mask=hidden, need_weights=need_weights)
        assert out.isnan().all() == need_weights


def test_the_nan_of_a_row_that_nobody_reads_reaches_the_weights():
    w = torch.ones((), requires_grad=True)
    scores = w * torch.zeros(2, 3) + torch.tensor([[0.0], [-math.inf]])
    scores.softmax(dim=-1)[0].sum().backward()  # of the row that is visible
    assert w.grad.isnan()


def test_losses_on_logits_stay_finite_where_a_chain_does_not():
    logit, one = torch.tensor([-20.0]).half(), torch.ones(1).half()
    assert (-logit.sigmoid().log()).isinf()
    assert binary_cross_entropy_with_logits(logit, one) == 20


def test_what_fp16_holds_of_each_eps():
    assert 0 < quantize(1e-5, FP16) < FP16.smallest_normal
    assert quantize(1e-8, FP16) == 0


def test_a_guard_against_equal_numbers_does_not_prevent_overflow():
    a = torch.tensor(1.25 * 2.0**-14).half()
    for difference in (2.0**-16, 2.0**-24):
        b = a + torch.tensor(difference).half()
        assert (b - a).item() == difference
        assert (1 / (b - a)).isinf()
    b = a + torch.tensor(2.0**-15).half()
    assert (1 / (b - a)).isfinite()


def test_the_noise_of_a_thousand_stochastic_updates():
    gap = spacing(1.0, BF16)
    p = 1e-4 / gap
    assert round(math.sqrt(1000 * p * (1 - p)) * gap, 2) == 0.03
