"""Numbers in the text of lab 07 that no cell prints."""

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

from labkit.emulation import emulate_gpu
from labkit.labs.memory_and_many_gpus import solutions
from labkit.labs.memory_and_many_gpus.counted_step import StepSettings
from labkit.labs.memory_and_many_gpus.tape import tape
from labkit.measuring.live_bytes import LiveBytes
from labkit.training import cross_entropy
from labkit.training.models import SmallGPT, mlp

GIB = 2**30
PARAMETERS = 163_159_680
ALL = frozenset(range(12))


def fake_gpt2():
    return SmallGPT(50304, 1024, width=768, blocks=12, heads=12)


def in_gib(settings):
    return round(tape(settings).peak / GIB, 2)


def test_gpt2_has_163_million_parameters_and_needs_16_bytes_for_each():
    with FakeTensorMode():
        assert sum(p.numel() for p in fake_gpt2().parameters()) == PARAMETERS
    assert round(16 * PARAMETERS / GIB, 2) == 2.43
    assert round(8 * 1024 * 50304 * 4 / GIB, 2) == 1.54


def test_the_peaks_of_the_text():
    assert in_gib(StepSettings()) == 10.98
    assert in_gib(StepSettings(autocast=True)) == 8.46
    assert round(100 * (1 - 8.46 / 10.98)) == 23
    assert in_gib(StepSettings(autocast=True, loss_chunks=16)) == 4.97
    checkpointed = tape(StepSettings(autocast=True, loss_chunks=16, checkpointed=ALL))
    assert round(checkpointed.peak / GIB, 2) == 3.04
    assert checkpointed.peak_at.startswith("step/")
    # The state that does not belong to a parameter, and the tokens, are a few bytes.
    assert checkpointed.peak == pytest.approx(20 * PARAMETERS, rel=0.001)


@pytest.mark.parametrize("batch", [1, 8])
def test_with_one_text_autocast_keeps_more_than_fp32(batch):
    after = {}
    for autocast in (False, True):
        with emulate_gpu(), FakeTensorMode():
            model, tokens = fake_gpt2(), torch.zeros(batch, 1024, dtype=torch.int64)
            with LiveBytes().hold(model, tokens) as card:
                with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    loss = cross_entropy(model(tokens), tokens)
                after[autocast] = card.now
                del loss
    assert (after[True] > after[False]) == (batch == 1)


def test_log_softmax_backward_has_three_tensors_of_the_logits_size():
    with FakeTensorMode():
        logits = torch.zeros(8192, 50304, requires_grad=True)
        with LiveBytes().hold(logits) as card:
            F.cross_entropy(logits, torch.zeros(8192, dtype=torch.int64)).backward()
    # The logits themselves are held here; in a model nothing needs them once the loss is there.
    assert card.at_peak == "aten._log_softmax_backward_data"
    assert round((card.peak - logits.nbytes) / logits.nbytes) == 3


@pytest.mark.seeds(range(5))
def test_the_published_retry_gives_up_where_499_rows_fit(seed):
    torch.manual_seed(seed)
    network = mlp(*[64] * 9, 10)
    batch = torch.randn(997, 64), torch.randint(0, 10, (997,))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    with LiveBytes(limit=2 * 2**20).hold(network, *batch) as card:
        assert solutions.survive(network, *batch, optimizer) == 499
        optimizer.zero_grad()
        assert card.now < 0.4 * 2**20


def test_the_place_of_256_decides_its_sum_with_seven_ones():
    one, large = torch.tensor([1.0, 256.0]).bfloat16()
    assert sum([one] * 7, large) == 256
    assert sum([one] * 7) + large == 264


@pytest.mark.parametrize(
    ("beta2", "way", "ends"),
    [(0.999, "foreach", 0.5), (0.999, "fused", 0.25), (0.95, "foreach", 1), (0.95, "fused", 1)],
)
def test_where_a_second_moment_in_bf16_stops(beta2, way, ends):
    parameter = torch.nn.Parameter(torch.zeros(8, dtype=torch.bfloat16))
    optimizer = torch.optim.AdamW([parameter], betas=(0.9, beta2), **{way: True})
    for _ in range(1500):
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    v = optimizer.state[parameter]["exp_avg_sq"][0].item()
    assert v == ends if beta2 == 0.999 else 0.96 <= v <= 1


def test_torchs_loss_in_chunks_has_the_dtype_of_its_inputs():
    hidden, weight = torch.ones(8, 4).bfloat16(), torch.ones(16, 4).bfloat16()
    assert F.linear_cross_entropy(hidden, weight, torch.zeros(8).long()).dtype is torch.bfloat16
