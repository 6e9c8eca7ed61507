"""What lab 13's text states and its cells show: the same from other seeds."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from labkit.emulation import emulate_gpu
from labkit.formats import BF16, spacing
from labkit.training import cross_entropy, trained_gpt
from labkit.training.data import character_batches, characters, shakespeare, shakespeare_split

SEEDS = range(3)
seeds = pytest.mark.seeds(SEEDS)
OPTIMIZERS = {
    "SGD": lambda w: torch.optim.SGD([w], lr=0.02),
    "AdamW": lambda w: torch.optim.AdamW([w], lr=0.02),
    "Muon": lambda w: torch.optim.Muon([w], lr=0.02, weight_decay=0.0),
}


def test_from_65536_on_24_neighbours_are_one_bf16_number():
    assert spacing(65_536.0, BF16) == 512
    assert torch.arange(65_536, 65_536 + 24).bfloat16().unique().tolist() == [65_536]


@pytest.mark.parametrize("multiply", ["@", "einsum", "*", "outer"])
def test_autocast_casts_angles_by_matmul_and_no_others(multiply):
    positions, inverse = torch.arange(300).float(), 10000.0 ** (-torch.arange(0, 1, 1 / 8))
    with emulate_gpu(), torch.autocast("cpu", dtype=torch.bfloat16):
        angles = {
            "@": lambda: positions[:, None] @ inverse[None],
            "einsum": lambda: torch.einsum("i,j->ij", positions, inverse),
            "*": lambda: positions[:, None] * inverse,
            "outer": lambda: torch.outer(positions, inverse),
        }[multiply]()
    matmul = multiply in ("@", "einsum")
    assert angles.dtype is (torch.bfloat16 if matmul else torch.float32)
    assert (angles[256, 0] == angles[257, 0]) == matmul


@seeds
@pytest.mark.parametrize(
    ("dtype", "mean"), [(torch.float32, 995), (torch.float16, 995), (torch.bfloat16, 960)]
)
def test_running_statistics_in_16_bits(dtype, mean, seed):
    generator = torch.Generator().manual_seed(seed)
    x = (1000 + 300 * torch.randn(16, 4, 8, 8, generator=generator)).to(dtype)
    norm = nn.BatchNorm2d(4).to(dtype)
    for _ in range(50):
        trained = norm(x)
    assert trained.float().std().item() == pytest.approx(1, abs=0.01)
    assert norm.running_mean.float().mean().item() == pytest.approx(mean, abs=15)
    spread = norm.eval()(x).float().std().item()
    if dtype is torch.float16:
        assert norm.running_var.isinf().all() and spread == 0
    else:
        assert spread == pytest.approx(1, abs=0.05)


def test_autocast_leaves_batch_norm_in_float32():
    norm = nn.BatchNorm2d(4)
    with emulate_gpu(), torch.autocast("cpu", dtype=torch.float16):
        out = norm(torch.full((2, 4, 8, 8), 300.0).half())
    assert out.dtype is torch.float16
    assert {norm.weight.dtype, norm.running_mean.dtype, norm.running_var.dtype} == {torch.float32}


def attention_errors(gain, seed):
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, 4, 64, 64, generator=generator) for _ in range(3))
    q, k, v = (gain**0.5 * q).bfloat16(), (gain**0.5 * k).bfloat16(), v.bfloat16()
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double())
    with emulate_gpu(), torch.autocast("cpu", dtype=torch.bfloat16):
        eager = (q @ k.mT / 8).softmax(-1) @ v
        fused = F.scaled_dot_product_attention(q, k, v)
    return [((found - exact).norm() / exact.norm()).item() for found in (eager, fused)]


def test_a_score_of_11580_is_the_largest_dot_product_of_width_32():
    assert round(torch.finfo(torch.float16).max / math.sqrt(32)) == 11_580


@seeds
def test_fused_attention_loses_less_and_eager_more_as_scores_grow(seed):
    (eager, fused), (eager_then, fused_then) = (attention_errors(g, seed) for g in (1, 64))
    assert fused_then < fused / 2 and eager_then > 3.5 * eager


def ends(name, scales, seed):
    """Where twelve steps on noisy data end, and where they started."""
    generator = torch.Generator().manual_seed(seed)
    w = nn.Parameter(0.1 * torch.randn(8, 8, generator=generator))
    start, optimizer = w.detach().clone(), OPTIMIZERS[name](w)
    for scale in scales:
        x, noise = torch.randn(2, 4, 8, generator=generator)
        optimizer.zero_grad()
        (scale * (x @ w - x - noise).square().mean()).backward()
        optimizer.step()
    return w.detach(), start


def distance(name, scales, seed):
    (scaled, _), (right, start) = ends(name, scales, seed), ends(name, [1.0] * len(scales), seed)
    return ((scaled - right).norm() / (right - start).norm()).item()


@seeds
def test_a_constant_scale_shows_in_sgd_only(seed):
    off = {name: distance(name, [1024.0] * 5, seed) for name in OPTIMIZERS}
    assert off["Muon"] == 0 and 0 < off["AdamW"] < 1e-5 and off["SGD"] > 100


@seeds
@pytest.mark.parametrize("name", ["AdamW", "Muon"])
def test_a_falling_scale_shows_in_normalized_updates_too(name, seed):
    assert distance(name, [2.0 ** (16 - min(i, 5)) for i in range(12)], seed) > 0.2


@seeds
def test_underflow_turns_muons_step_more_than_the_gradient(seed):
    generator = torch.Generator().manual_seed(seed)
    left, right = torch.randn(2, 64, 64, generator=generator)
    gradient = left @ torch.diag(torch.logspace(0, -3, 64)) @ right
    gradient *= 1e-6 / gradient.abs().max()
    steps = []
    for g in (gradient, gradient.half().float()):
        w = nn.Parameter(torch.zeros(64, 64))
        w.grad = g.clone()
        torch.optim.Muon([w], lr=1.0, weight_decay=0.0).step()
        steps.append(w.detach().flatten())
    same = [gradient.flatten(), gradient.half().float().flatten()]
    assert F.cosine_similarity(*same, dim=0) > 0.99
    assert F.cosine_similarity(*steps, dim=0) < 0.75


@pytest.mark.parametrize("weak", [1e-5, 1e-6])
def test_muon_lengthens_a_weak_direction_almost_500_times(weak):
    w = nn.Parameter(torch.zeros(2, 2))
    w.grad = torch.diag(torch.tensor([1.0, weak]))
    torch.optim.Muon([w], lr=1.0, weight_decay=0.0).step()
    lengthened = w.detach()[1, 1].abs().item()  # of a gradient that is divided by its norm, 1
    assert 400 < lengthened / weak < 500


def test_at_two_to_the_20_a_bias_overflows_and_no_matrix():
    vocabulary, (text, _) = characters(shakespeare()), shakespeare_split()
    batches = list(character_batches(text, 64, 8, steps=80, vocabulary=vocabulary))
    gpt = trained_gpt()
    with emulate_gpu():
        with torch.autocast("cpu", dtype=torch.float16):
            loss = cross_entropy(gpt(batches[2][0]), batches[2][1])
        (2.0**20 * loss).backward()
    names = {name for name, p in gpt.named_parameters() if not p.grad.isfinite().all()}
    assert names and all(name.endswith("bias") for name in names)


def test_a_clip_hides_what_the_loss_was_divided_by():
    clipped = []
    for factor in (1.0, 25.0):
        p = nn.Parameter(torch.zeros(2))
        p.grad = factor * torch.tensor([3.0, 4.0])
        nn.utils.clip_grad_norm_([p], 1.0)
        clipped.append(p.grad)
    torch.testing.assert_close(*clipped)


@pytest.mark.parametrize(("n", "counted"), [(256, 256), (257, 256), (300, 300)])
def test_bf16_counts_ones_up_to_256(n, counted):
    total = torch.zeros(1, dtype=torch.bfloat16)
    for _ in range(n):
        total += 1
    assert total.item() == min(n, 256)
    assert torch.ones(n, dtype=torch.bfloat16).sum().item() == counted


def test_a_soft_cap_hides_an_overflow_and_stops_its_gradient():
    score = torch.tensor(math.inf, requires_grad=True)
    capped = 50 * torch.tanh(score / 50)
    capped.backward()
    assert capped.item() == 50 and score.grad.item() == 0
