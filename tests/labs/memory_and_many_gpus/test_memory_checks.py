"""Lab 07's loss in chunks, its step that survives and its AdamW, beside torch's own."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from labkit.formats import BF16, quantize
from labkit.labs.memory_and_many_gpus import solutions
from labkit.labs.memory_and_many_gpus.checks import check_chunked_loss, check_survive
from labkit.labs.memory_and_many_gpus.checks import survive as survive_module
from labkit.measuring.live_bytes import LiveBytes


def seeded(seed):
    return torch.Generator().manual_seed(seed)


# chunked-loss


@pytest.mark.parametrize("rows", [1, 7, 64, 100, 1000])
def test_a_loss_in_chunks_equals_torch_s_two_losses(rows):
    draw = seeded(rows)
    hidden = torch.randn(100, 8, generator=draw)
    targets = torch.randint(50, (100,), generator=draw)
    targets[:30] = -100
    head = nn.Linear(8, 50)
    ends = []
    for loss_of in (
        lambda h: solutions.chunked_loss(head, h, targets, rows),
        lambda h: F.cross_entropy(head(h), targets),
        lambda h: F.linear_cross_entropy(h, head.weight, targets, linear_bias=head.bias),
    ):
        h = hidden.clone().requires_grad_()
        head.zero_grad()
        loss = loss_of(h)
        loss.backward()
        ends.append([loss.detach(), h.grad, head.weight.grad.clone(), head.bias.grad.clone()])
    for other in ends[1:]:
        torch.testing.assert_close(ends[0], other, rtol=1e-5, atol=1e-6)


def test_the_example_of_chunked_loss():
    head = nn.Linear(2, 4, bias=False)
    nn.init.zeros_(head.weight)
    loss = solutions.chunked_loss(head, torch.randn(3, 2), torch.tensor([0, -100, 2]), rows=2)
    assert round(loss.item(), 4) == 1.3863 and loss.dtype is torch.float32


def test_the_peak_of_a_loss_in_chunks_is_three_chunks_and_the_gradients():
    head, hidden = nn.Linear(16, 4096, bias=False), torch.randn(512, 16, requires_grad=True)
    targets = torch.randint(4096, (512,), generator=seeded(0))
    peaks = []
    for rows in (512, 32):
        head.zero_grad()
        with LiveBytes().hold(head, hidden, targets) as card:
            before = card.now
            solutions.chunked_loss(head, hidden, targets, rows).backward()
        above = card.peak - before - head.weight.nbytes - hidden.nbytes
        peaks.append(above / (4 * rows * 4096))
    assert all(2 <= peak <= 4 for peak in peaks)


def test_the_bf16_case_lies_halfway_between_two_losses():
    low, high = 6.90625, 6.9375
    assert torch.tensor([low, high]).bfloat16().tolist() == [low, high]
    assert abs(math.log(1014) - (low + high) / 2) < 2.0**-12
    assert torch.nextafter(torch.tensor(low).bfloat16(), torch.tensor(9.0).bfloat16()) == high


@pytest.mark.seeds(check_chunked_loss.seeds)
def test_a_loss_of_narrow_logits_is_refused_at_any_seed(seed):
    def narrow(head, hidden, targets, rows):
        logits = head(hidden)
        if logits.dtype is torch.bfloat16:
            return F.cross_entropy(logits, targets).float()
        return solutions.chunked_loss(head, hidden, targets, rows)

    result = check_chunked_loss.result(narrow, seed=seed)
    assert result.status == "failed" and "In which dtype" in result.message


# survive


def fits(name, rows, seed):
    """Whether a step in micro-batches of so many rows goes through on a new card."""
    network, inputs, targets = survive_module._setting(name, seed)
    with LiveBytes(survive_module._limit(name, seed)).hold(network, inputs, targets):
        try:
            for x, y in zip(inputs.split(rows), targets.split(rows), strict=True):
                F.cross_entropy(network(x), y).backward()
        except torch.OutOfMemoryError:
            return False
    return True


@pytest.mark.seeds(check_survive.seeds)
def test_each_card_has_room_for_the_rows_that_its_name_says(seed):
    tries = survive_module._TRIES
    assert [-(-rows // 2) for rows in tries[:-1]] == list(tries[1:])
    for name, rows in survive_module.CARDS.items():
        if name not in (survive_module._LATE, survive_module._NARROW):
            assert [fits(name, r, seed) for r in tries] == [r <= rows for r in tries], name


@pytest.mark.parametrize("rows", [57, 8])
def test_survive_makes_the_step_of_the_whole_batch(rows):
    name = {57: "room for the batch", 8: "room for 8 rows"}[rows]
    ends = []
    for limited in (True, False):
        network, inputs, targets = survive_module._setting(name, 0)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        if limited:
            with LiveBytes(survive_module._limit(name, 0)).hold(network, inputs, targets) as card:
                assert solutions.survive(network, inputs, targets, optimizer) == rows
            held = sum(p.nbytes for p in network.parameters())
            assert card.now == 2 * held + inputs.nbytes + targets.nbytes
        else:
            F.cross_entropy(network(inputs), targets).backward()
            optimizer.step()
        ends.append([p.detach() for p in network.parameters()])
    torch.testing.assert_close(*ends, rtol=0, atol=1e-7)


def test_a_right_answer_may_try_again_inside_except_if_it_clears_the_frames():
    import traceback

    def survive(model, inputs, targets, optimizer, rows=None):
        rows = rows or len(inputs)
        optimizer.zero_grad()
        try:
            for x, y in zip(inputs.split(rows), targets.split(rows), strict=True):
                (F.cross_entropy(model(x), y) * (len(x) / len(inputs))).backward()
        except torch.OutOfMemoryError as error:
            if rows == 1:
                raise
            traceback.clear_frames(error.__traceback__)
            return survive(model, inputs, targets, optimizer, (rows + 1) // 2)
        optimizer.step()
        return rows

    result = check_survive.result(survive)
    assert result.status == "passed", result.message


# moments


def test_adamw_step_is_torch_s_but_for_the_rounding_of_its_moments():
    draw, noise = seeded(0), seeded(1)
    p = torch.randn(256, generator=draw)
    q = nn.Parameter(p.clone())
    settings = {"lr": 0.01, "betas": (0.8, 0.97), "eps": 1e-3, "weight_decay": 0.1}
    theirs = torch.optim.AdamW([q], **settings)
    m, v = torch.zeros(256).bfloat16(), torch.zeros(256).bfloat16()
    for t in range(1, 6):
        grad = torch.randn(256, generator=draw)
        q.grad = grad
        theirs.step()
        solutions.adamw_step(p, grad, m, v, t, noise, 0.01, 0.8, 0.97, 1e-3, 0.1)
        if t == 1:  # no moment was rounded before
            torch.testing.assert_close(p, q.detach(), rtol=1e-6, atol=1e-7)
    state = theirs.state[q]
    # Five roundings of a relative 2**-8 at most; the oldest have decayed.
    for ours, wide in ((m, state["exp_avg"]), (v, state["exp_avg_sq"])):
        assert ((ours.float() - wide).norm() / wide.norm()).item() < 5 * 2.0**-8


@pytest.mark.seeds(range(3))
def test_v_decays_after_a_burst_and_to_nearest_it_does_not(seed):
    draw, noise, grad = seeded(seed), seeded(seed + 9), torch.zeros(4096)
    p, m, exact = torch.zeros(4096), torch.zeros(4096).bfloat16(), 1.0
    v, near = torch.ones(4096).bfloat16(), torch.ones(4096).bfloat16()
    for t in range(1, 301):
        grad = 0.1 * torch.randn(4096, generator=draw)
        solutions.adamw_step(p, grad, m, v, t, noise)
        near.copy_(0.999 * near.float() + 0.001 * grad * grad)
        exact = 0.999 * exact + 0.001 * 0.01
    assert near.float().mean() > 0.99
    # The sum of 300 roundings is 0.034 at most for one weight, and a 64th of that for the mean.
    assert abs(v.float().mean().item() - exact) < 6 * 0.034 / 64


def test_the_example_of_adamw_step():
    went = []
    for seed in range(2000):
        p, m, v = torch.ones(1), torch.zeros(1).bfloat16(), torch.zeros(1).bfloat16()
        solutions.adamw_step(p, torch.full((1,), 0.5), m, v, 1, seeded(seed))
        assert round(p.item(), 5) == 0.99899
        went.append(m.item())
    assert sorted({round(x, 7) for x in went}) == [0.0498047, 0.0500488]
    # Four of five: 0.05 is 204.8 steps of BF16; six standard deviations.
    assert abs(sum(x > 0.05 for x in went) / 2000 - 0.8) < 6 * math.sqrt(0.16 / 2000)
    assert quantize(0.05, BF16, rounding="down") == went[went.index(min(went))]
