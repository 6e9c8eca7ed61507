"""S31: image models by name, either order of the bytes, and batch norm's float32 statistics."""

import copy

import pytest
import torch

from labkit.labs.real_models.images import image_model, train_images
from labkit.training import evaluate
from labkit.training.data import batches, digits
from labkit.training.models import SmallCNN, SmallResNet


@pytest.fixture(scope="module")
def data():
    return digits()


def loader(data, batch_size=64):
    return batches(data.train_images, data.train_labels, batch_size)


def trained(data, *, epochs=1, **settings):
    torch.manual_seed(0)
    model = image_model("resnet")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss = train_images(model, loader(data), optimizer=optimizer, epochs=epochs, **settings)
    return model, loss


def test_models_come_by_name_and_an_unknown_name_shows_the_list():
    assert type(image_model("cnn", channels=3)) is SmallCNN
    resnet = image_model("resnet", channels=3, classes=5)
    assert type(resnet) is SmallResNet
    assert resnet(torch.zeros(2, 3, 32, 32)).shape == (2, 5)
    with pytest.raises(ValueError, match=r"'resnet50'.*'cnn', 'resnet'"):
        image_model("resnet50")


def test_statistics_stay_float32_and_move_in_a_run_in_fp16(data):
    model, _ = trained(data, precision="fp16")
    for name, buffer in model.named_buffers():
        want = torch.int64 if name.endswith("num_batches_tracked") else torch.float32
        assert buffer.dtype is want
        assert (buffer != 0).any()


def test_channels_last_reaches_the_convolutions_and_changes_no_result(data):
    seen = []
    torch.manual_seed(0)
    model = image_model("resnet")
    twin = copy.deepcopy(model)
    block = model.blocks[1]
    hook = block.body[0].register_forward_hook(lambda _, x, y: seen.append((x[0], y)))
    few = [next(iter(loader(data)))] * 3
    losses = [
        train_images(
            network, few, optimizer=torch.optim.SGD(network.parameters(), lr=0.01),
            precision="fp32", channels_last=network is model,
        )
        for network in (model, twin)
    ]  # fmt: skip
    hook.remove()
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    last = {"memory_format": torch.channels_last}
    assert all(x.is_contiguous(**last) and not x.is_contiguous() for pair in seen for x in pair)
    assert block.body[0].weight.is_contiguous(**last)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-3)  # sums in another order, three steps


def test_images_of_several_channels_are_put_in_order():
    images = torch.randn(4, 3, 8, 8)
    model, seen = image_model("cnn", channels=3), []
    model.features[0].register_forward_hook(lambda _, x, y: seen.append(x[0]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = [(images, torch.arange(4))]
    train_images(model, batch, optimizer=optimizer, precision="fp32", channels_last=True)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(seen[0], images)


def test_the_loss_returned_is_the_mean_of_the_last_epoch(data):
    model = image_model("cnn")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    first, second = loader(data, 719), [(data.train_images[:719], data.train_labels[:719])] * 2
    still = train_images(model, second, optimizer=optimizer, precision="fp32", epochs=3)
    with torch.no_grad():
        want = torch.nn.functional.cross_entropy(model(second[0][0]), second[0][1]).item()
    assert still == pytest.approx(want, rel=1e-5)
    falling = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = [
        train_images(model, first, optimizer=falling, precision="fp32", epochs=epochs)
        for epochs in (1, 2)
    ]
    assert losses[1] < losses[0]


def test_fp16_reads_digits_as_well_as_float32(data):
    """One seed here; ten paired seeds are recorded, and test_real_models_recorded judges them."""
    found = {
        precision: evaluate(
            trained(data, epochs=4, precision=precision)[0], data.test_images, data.test_labels
        )
        for precision in ("fp32", "fp16")
    }
    assert min(found.values()) > 0.93
    assert found["fp16"] > found["fp32"] - 0.04
