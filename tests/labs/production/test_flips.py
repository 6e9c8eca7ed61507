"""Single flipped bits of weights: which bit, what it does to the loss, and that nothing stays."""

import copy
import math
import struct

import pytest
import torch

from labkit.labs.production.flips import flip, loss_changes
from labkit.training import cross_entropy, trained_gpt
from labkit.training.data import characters, shakespeare, shakespeare_split


def pieces(count=4):
    tokens = characters(shakespeare()).encode(shakespeare_split()[1])
    return tokens.unfold(0, 65, 64)[:count]


def bits_of(value, dtype):
    """The bits of a number as an integer, by struct and not by torch."""
    if dtype is torch.float16:
        return struct.unpack("<H", struct.pack("<e", value))[0]
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return bits >> 16 if dtype is torch.bfloat16 else bits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_one_bit_of_one_value_flips(dtype):
    for bit in range(torch.finfo(dtype).bits):
        values = torch.tensor([[0.5, -0.375], [1.5, 0.0]], dtype=dtype)
        before = values.clone()
        flip(values, 1, bit)
        changed = bits_of(values[0, 1].item(), dtype)
        if not math.isnan(values[0, 1]):
            assert changed ^ bits_of(-0.375, dtype) == 1 << bit
        flip(values, 1, bit)
        assert torch.equal(values, before)


def test_the_model_is_left_to_the_bit():
    model = trained_gpt()
    before = copy.deepcopy(model.state_dict())
    for dtype in (torch.float32, torch.bfloat16):
        loss_changes(model, pieces(), per_bit=2, dtype=dtype)
        for name, value in model.state_dict().items():
            assert torch.equal(value, before[name])


def test_changes_are_those_of_the_loss():
    """A model of one weight: the loss after each flip, computed from the number itself."""

    class One(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((1, 1), 0.75))

        def forward(self, tokens):
            logits = torch.zeros(*tokens.shape, 2)
            logits[..., 1] = self.weight[0, 0]
            return logits

    tokens = torch.tensor([[0, 1, 1, 0, 1]])
    found = loss_changes(One(), tokens, per_bit=1)

    def loss(weight):
        logits = torch.tensor([0.0, weight]).expand(1, 4, 2)
        return cross_entropy(logits, tokens[:, 1:]).item()

    for bit, (change,) in found.items():
        spoilt = struct.unpack("<f", struct.pack("<I", bits_of(0.75, torch.float32) ^ 1 << bit))[0]
        assert change == pytest.approx(abs(loss(spoilt) - loss(0.75)), abs=1e-7)
    assert list(found) == list(range(32))


def test_matrices_are_hit_by_their_size_and_nothing_else(monkeypatch):
    model = torch.nn.Sequential(torch.nn.Embedding(2, 3), torch.nn.Linear(3, 2))
    hit = []
    monkeypatch.setattr(
        "labkit.labs.production.flips._flipped",
        lambda weight, place, bit, dtype: hit.append(weight) or _nothing(),
    )
    model[0].weight.data.fill_(0.5)
    loss_changes(model, torch.tensor([[0, 1, 0]]), per_bit=60, dtype=torch.bfloat16)
    embeddings = sum(weight is model[0].weight for weight in hit)
    assert len(hit) == 960 and {weight.dim() for weight in hit} == {2}
    assert embeddings == pytest.approx(480, abs=62)  # 6 of 12 values; 4 standard deviations


class _nothing:
    def __enter__(self):
        return None

    def __exit__(self, *_):
        return None


def test_a_dtype_without_bits_to_flip_is_refused():
    with pytest.raises(ValueError, match="float64"):
        loss_changes(trained_gpt(), pieces(1), dtype=torch.float64)
