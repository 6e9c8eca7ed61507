"""The reader of twelve layers: FP32 keeps its bits, FP16 needs four layers wide, BF16 none."""

import pytest
import torch

from labkit.labs.monitoring_and_debugging.planted_reader import PAIRS, outputs, planted_reader

CULPRITS = {name for first, second, _ in PAIRS for name in (first, second)}


@pytest.fixture(scope="module", params=range(3))
def reader(request):
    return planted_reader(seed=request.param)


def good(reader, wide):
    net, images = reader
    found = outputs(net, images, wide=wide)
    same = found.argmax(1) == net(images).argmax(1)
    return bool(found.isfinite().all()) and same.double().mean().item() > 0.98


def test_the_plant_keeps_every_bit_of_float32():
    net, images = planted_reader()
    planted = net(images)
    with torch.no_grad():
        for first, second, k in PAIRS:
            for parameter in net.get_submodule(first).parameters():
                parameter *= 2.0**-k
            net.get_submodule(second).weight *= 2.0**k
    assert torch.equal(net(images), planted)


def test_the_four_layers_repair_it_and_none_of_them_may_be_left_out(reader):
    assert good(reader, CULPRITS)
    assert not any(good(reader, CULPRITS - {name}) for name in CULPRITS)
    assert not any(good(reader, {name}) for name in CULPRITS)


def test_bf16_needs_no_wide_layer(reader):
    net, images = reader
    assert outputs(net, images, wide=(), dtype=torch.bfloat16).isfinite().all()
    assert not outputs(net, images, wide=()).isfinite().all()
