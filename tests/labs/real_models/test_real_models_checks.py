"""Lab 13's solutions beside other people's arithmetic, and the examples of its statements."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parameters_to_vector

from labkit.emulation import emulate_gpu
from labkit.labs.real_models import solutions
from labkit.training.models import SmallGPT

seeds = pytest.mark.seeds(range(3))


def test_rotary_equals_pythons_cosines():
    positions = [0, 1, 257, 65_537, 131_071]
    cos, sin = solutions.Rotary(8)(torch.tensor(positions))
    for row, position in enumerate(positions):
        for pair in range(4):
            angle = position * 10_000.0 ** (-2 * pair / 8)
            room = 8 * 2.0**-24 * angle + 2.0**-22
            assert abs(cos[row, pair].item() - math.cos(angle)) <= room
            assert abs(sin[row, pair].item() - math.sin(angle)) <= room


def test_the_example_of_rotary():
    cos, sin = solutions.Rotary(4)(torch.tensor([1, 300]))
    angles = torch.tensor([[1, 0.01], [300, 3]])
    torch.testing.assert_close(cos, angles.cos(), rtol=0, atol=1e-4)
    torch.testing.assert_close(sin, angles.sin(), rtol=0, atol=1e-4)


def test_the_example_of_pooled():
    hidden = torch.tensor([[[1.0], [3.0], [100.0]]], dtype=torch.bfloat16)
    assert solutions.pooled(hidden, torch.tensor([[True, True, False]])).tolist() == [[2.0]]


@seeds
def test_pooled_equals_masked_means_of_numpy(seed):
    torch.manual_seed(seed)
    hidden, mask = torch.randn(3, 50, 4).half(), torch.rand(3, 50) < 0.5
    masked = hidden.double().numpy().mean(axis=1, where=mask[..., None].numpy())
    torch.testing.assert_close(
        solutions.pooled(hidden, mask).double(), torch.tensor(masked), rtol=1e-6, atol=1e-6
    )


def test_the_example_of_attend_and_of_head_loss():
    query = F.rms_norm(torch.tensor([3.0, 4.0]), (2,), eps=1e-6)
    assert [round(x, 2) for x in query.tolist()] == [0.85, 1.13]
    loss = solutions.head_loss(torch.zeros(1, 2), torch.tensor([0]), z=0.1)
    assert round(loss.item(), 3) == 0.741


@seeds
def test_attend_equals_attention_written_out_in_float64(seed):
    torch.manual_seed(seed)
    q, k, v = torch.randn(3, 2, 2, 7, 8).half()
    norm_q, norm_k = nn.RMSNorm(8, eps=1e-6).double(), nn.RMSNorm(8, eps=1e-6).double()
    for norm in (norm_q, norm_k):
        nn.init.uniform_(norm.weight, 0.5, 2)
    scores = norm_q(q.double()) @ norm_k(k.double()).mT / 8**0.5
    weights = scores.masked_fill(torch.ones(7, 7).triu(1).bool(), -math.inf).softmax(-1)
    want = weights @ v.double()
    gains = norm_q.weight.detach().float(), norm_k.weight.detach().float()
    with emulate_gpu(), torch.autocast("cpu", dtype=torch.float16):
        got = solutions.attend(q, k, v, *gains)
    assert (got.double() - want).norm() < 2.0**-10 * want.norm()


@seeds
def test_head_loss_equals_probabilities_written_out(seed):
    torch.manual_seed(seed)
    logits, targets = 20 * torch.randn(5, 9), torch.tensor([3, -100, 0, 8, -100])
    terms = []
    for row, target in zip(logits.tolist(), targets.tolist(), strict=True):
        if target >= 0:
            capped = [30 * math.tanh(x / 30) for x in row]
            log_z = math.log(math.fsum(math.exp(x) for x in capped))
            terms.append(log_z - capped[target] + 1e-4 * log_z**2)
    got = solutions.head_loss(logits, targets).item()
    assert got == pytest.approx(sum(terms) / 3, rel=1e-6)


def micro_batches(seed):
    torch.manual_seed(seed)
    for rows, counted in ((2, 6), (3, 0), (1, 2)):
        tokens, targets = torch.randint(11, (2, rows, 6))
        targets[:, counted:] = -100
        yield tokens, targets


@seeds
@pytest.mark.parametrize("limit", [1e9, 0.1])
def test_language_step_equals_one_large_batch_in_fp32(seed, limit):
    torch.manual_seed(seed)
    model = SmallGPT(11, 6, width=16, blocks=1, heads=2)
    large, start = copy.deepcopy(model), copy.deepcopy(model)
    group = list(micro_batches(seed))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(sgd, 0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with emulate_gpu():
        loss = solutions.language_step(model, group, sgd, schedule, scaler, limit, "cpu")
    tokens, targets = (torch.cat(parts) for parts in zip(*group, strict=True))
    mean = F.cross_entropy(large(tokens).flatten(0, 1), targets.flatten())
    mean.backward()
    nn.utils.clip_grad_norm_(large.parameters(), limit)
    torch.optim.SGD(large.parameters(), lr=0.1).step()
    assert loss == pytest.approx(mean.item(), rel=2e-3)
    begin, end, right = (parameters_to_vector(m.parameters()) for m in (start, model, large))
    went, wanted = end - begin, right - begin
    assert (went - wanted).norm() < 0.01 * wanted.norm()
    assert sgd.param_groups[0]["lr"] == 0.05


class Pair(nn.Module):
    """A matrix for Muon and a vector for the other optimizer."""

    def __init__(self):
        super().__init__()
        self.matrix, self.vector = nn.Parameter(torch.ones(1, 1)), nn.Parameter(torch.ones(1))


def pair():
    model = Pair()
    muon = torch.optim.Muon([model.matrix], lr=0.1, weight_decay=0.0)
    other = torch.optim.SGD([model.vector], lr=1.0)
    return model, muon, other, torch.amp.GradScaler("cpu", init_scale=4.0)


def test_the_example_of_joint_step():
    model, muon, sgd, scaler = pair()
    loss = 3 * model.matrix.sum() + 4 * model.vector.sum()
    assert solutions.joint_step(model, loss, muon, sgd, scaler, 1.0) is True
    assert model.vector.item() == pytest.approx(1 - 4 / 5, rel=1e-5)


@pytest.mark.parametrize("infinite", ["matrix", "vector"])
def test_joint_step_leaves_both_alone_when_one_overflows(infinite):
    model, muon, sgd, scaler = pair()
    weight = getattr(model, infinite)
    loss = model.matrix.sum() + model.vector.sum() + (weight - 1).sum().sqrt()
    assert loss.isfinite()
    assert solutions.joint_step(model, loss, muon, sgd, scaler, 1.0) is False
    assert (model.matrix.item(), model.vector.item(), scaler.get_scale()) == (1.0, 1.0, 2.0)
