"""S15: a checkpointed module: the plain bits, only its inputs kept, and what that costs."""

import copy
import gc

import pytest
import torch
from torch import nn

from labkit.emulation import emulate_gpu
from labkit.labs.memory_and_many_gpus.checkpointed import Checkpointed, Recomputed
from labkit.measuring.card import Card
from labkit.training.models import Block


def _block(dropout=0.0):
    return nn.Sequential(
        nn.Linear(32, 128), nn.GELU(), nn.Dropout(dropout), nn.Linear(128, 32), nn.LayerNorm(32)
    )


def _gradients(blocks, x, dtype=None):
    torch.manual_seed(1)
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        out = blocks(x)
    out.float().square().sum().backward()
    return [out.detach(), *(p.grad for p in blocks.parameters())]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
def test_outputs_and_gradients_have_the_plain_modules_bits(dtype, dropout, first):
    """A model's first module, whose input needs no gradient, too."""
    torch.manual_seed(0)
    plain = nn.Sequential(_block(dropout), _block(dropout))
    wrapped = nn.Sequential(*(Checkpointed(copy.deepcopy(block)) for block in plain))
    x = torch.randn(16, 32, requires_grad=not first)
    y = x.detach().clone().requires_grad_(not first)
    with emulate_gpu():
        expected, found = _gradients(plain, x, dtype), _gradients(wrapped, y, dtype)
    assert len(found) == len(expected) == 13
    assert all(map(torch.equal, found, expected))
    if not first:
        assert torch.equal(x.grad, y.grad)


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, *, scale, parts=()):
        y = self.layer(x) * scale
        return {"both": (y, y.tanh()), "parts": [part * y for part in parts], "scale": scale}


def test_arguments_by_name_and_nested_outputs_go_through():
    torch.manual_seed(0)
    plain, x = Split(), torch.randn(3, 4)
    wrapped = Checkpointed(copy.deepcopy(plain))
    for module in (plain, wrapped):
        out = module(x, scale=2.0, parts=[torch.ones(4), torch.full((4,), 3.0)])
        assert out["scale"] == 2.0 and len(out["parts"]) == 2
        (out["both"][0].sum() + out["both"][1].sum() + out["parts"][1].sum()).backward()
    assert torch.equal(plain.layer.weight.grad, wrapped.module.layer.weight.grad)
    assert wrapped.report.extra_flop > 0


def test_without_gradients_it_is_the_plain_module():
    block = Checkpointed(_block())
    with torch.no_grad(), Card().hold(block) as card:
        out = block.eval()(torch.ones(2, 32))
    assert not out.requires_grad and card.now == Card().hold(block, out).now
    with pytest.raises(RuntimeError, match="gradients enabled"):
        block.report  # noqa: B018


def test_what_is_no_module_is_refused():
    with pytest.raises(TypeError, match=r"pass an nn\.Module.*use_reentrant=False"):
        Checkpointed(torch.tanh)


def test_the_report_by_hand():
    block = Checkpointed(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)))
    block(torch.ones(4, 8)).sum().backward()
    # Kept by the plain block: its input, and the hidden values before and after GELU. Backward
    # computes the first layer again and stops there: the second's output is not asked for.
    hidden = 4 * 4 * 32
    assert block.report == Recomputed(
        saved_bytes=4 * 4 * 8, plain_bytes=4 * 4 * 8 + 2 * hidden, extra_flop=2 * 4 * 8 * 32
    )
    with torch.autocast("cpu", torch.bfloat16):
        block(torch.ones(4, 8)).sum().backward()
        inside = block.report
    assert inside == block.report  # an open block's cached copies are not the module's
    assert inside.saved_bytes == 4 * 4 * 8


def test_the_report_is_what_a_card_counts_on_real_tensors():
    torch.manual_seed(0)
    blocks = [Block(64, 4) for _ in range(6)]
    wrapped = [Checkpointed(block) for block in blocks]
    alive = []
    for chain in (blocks, wrapped):
        gc.collect()
        with Card().hold(*blocks) as card:
            before = card.now
            x = torch.zeros(8, 64, 64)
            for block in chain:
                x = block(x)
            alive.append(card.now - before - x.nbytes)
        x.sum().backward()
    plain, saved = alive
    reports = [block.report for block in wrapped]
    assert sum(report.saved_bytes for report in reports) == saved == 6 * 4 * 8 * 64 * 64
    assert sum(report.plain_bytes for report in reports) == pytest.approx(plain, rel=1e-3)
    assert saved < plain / 10


def test_a_report_holds_no_values_alive():
    block = Checkpointed(nn.Linear(4, 4))
    with Card() as card:
        x = torch.zeros(1000, 4)
        out = block(x)
        del x, out
        assert card.now == Card().hold(block).now
