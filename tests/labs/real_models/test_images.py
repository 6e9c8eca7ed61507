"""S31: images in FP16 as in FP32, in either order of the bytes, and batch norm's statistics."""

import copy

import pytest
import torch

from labkit.labs.real_models.resnet import SmallResNet
from labkit.training import evaluate, train
from labkit.training.data import batches, digits


@pytest.fixture(scope="module")
def data():
    return digits()


def trained(data, *, epochs, precision):
    torch.manual_seed(0)
    model = SmallResNet()
    train(
        model, batches(data.train_images, data.train_labels, 64), epochs=epochs,
        optimizer=torch.optim.AdamW(model.parameters(), lr=3e-3), precision=precision,
        progress=False,
    )  # fmt: skip
    return model


def test_statistics_stay_float32_and_move_in_a_run_in_fp16(data):
    for name, buffer in trained(data, epochs=1, precision="fp16").named_buffers():
        want = torch.int64 if name.endswith("num_batches_tracked") else torch.float32
        assert buffer.dtype is want
        assert (buffer != 0).any()


def test_channels_last_reaches_the_convolutions_and_changes_no_result(data):
    torch.manual_seed(0)
    model, seen = SmallResNet(), []
    twin, last = copy.deepcopy(model), {"memory_format": torch.channels_last}
    model.to(**last)
    convolution = model.blocks[1].body[0]
    hook = convolution.register_forward_hook(lambda _, x, y: seen.append((x[0], y)))
    images, labels = next(iter(batches(data.train_images, data.train_labels, 64)))
    losses = []
    for network, shown in ((model, images.contiguous(**last)), (twin, images)):
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
        run = train(
            network, [(shown, labels)] * 3, optimizer=optimizer, precision="fp32", progress=False
        )
        losses.append(run[-1].loss)
    hook.remove()
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert all(x.is_contiguous(**last) and not x.is_contiguous() for pair in seen for x in pair)
    assert convolution.weight.is_contiguous(**last)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-3)  # sums in another order, three steps


def test_fp16_reads_digits_as_well_as_float32(data):
    """One seed here; ten paired seeds are recorded, and test_real_models_recorded judges them."""
    found = {
        precision: evaluate(
            trained(data, epochs=4, precision=precision), data.test_images, data.test_labels
        )
        for precision in ("fp32", "fp16")
    }
    assert min(found.values()) > 0.93
    assert found["fp16"] > found["fp32"] - 0.04
