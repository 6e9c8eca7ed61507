"""Every network takes what it says, in every precision, and says what is wrong with the rest."""

import inspect
import math

import pytest
import torch
import torch.nn.functional as F

from labkit.emulation import emulate_gpu
from labkit.labs.automatic_mixed_precision.digit_gan import Discriminator, Generator
from labkit.labs.real_models.resnet import SmallResNet
from labkit.training import cross_entropy, evaluate, models, train
from labkit.training.data import batches, character_batches, characters, digits, shakespeare

TOKENS = torch.arange(40).reshape(2, 20) % 7


def images(channels=1, size=8, count=3):
    return torch.rand(count, channels, size, size, generator=torch.Generator().manual_seed(0))


NETWORKS = {
    "mlp": (lambda: models.mlp(64, 32, 10), images(), (3, 10)),
    "autoencoder": (models.Autoencoder, images(), (3, 1, 8, 8)),
    "cnn 8": (models.SmallCNN, images(), (3, 10)),
    "cnn 28": (lambda: models.SmallCNN(size=28), images(1, 28), (3, 10)),
    "cnn 32x3": (lambda: models.SmallCNN(channels=3, size=32), images(3, 32), (3, 10)),
    "resnet 8": (SmallResNet, images(), (3, 10)),
    "resnet 32x3": (lambda: SmallResNet(channels=3), images(3, 32), (3, 10)),
    "gpt": (lambda: models.SmallGPT(vocabulary=7, context=24), TOKENS, (2, 20, 7)),
    "generator": (Generator, torch.linspace(-2, 2, 48).reshape(3, 16), (3, 1, 8, 8)),
    "discriminator": (Discriminator, images(), (3, 1)),
}
every_network = pytest.mark.parametrize("name", NETWORKS)


def built(name):
    build, inputs, shape = NETWORKS[name]
    torch.manual_seed(0)
    return build(), inputs, shape


@every_network
def test_shapes_and_dtypes_are_the_documented_ones(name):
    network, inputs, shape = built(name)
    output = network(inputs)
    assert (output.shape, output.dtype) == (shape, torch.float32)
    assert {p.dtype for p in network.parameters()} == {torch.float32}
    assert network(inputs[:0]).shape == (0, *shape[1:]), "an empty batch is a batch"


@every_network
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_on_an_emulated_gpu_changes_little_and_trains_every_parameter(name, dtype):
    network, inputs, _ = built(name)
    exact = network(inputs).detach()
    with emulate_gpu():
        with torch.autocast("cpu", dtype=dtype):
            output = network(inputs)
        output.float().square().mean().backward()
    # Logits lie near 1; 2e-2 is five unit roundoffs (2**-8) of bfloat16, the coarser of the two.
    assert (output.float() - exact).abs().max() <= 2e-2 * max(1.0, exact.abs().max().item())
    for parameter_name, parameter in network.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.dtype == torch.float32


@every_network
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_network_cast_as_a_whole_runs_in_that_dtype(name, dtype):
    network, inputs, shape = built(name)
    network.to(dtype)
    with emulate_gpu():
        output = network(inputs.to(dtype) if inputs.is_floating_point() else inputs)
        output.float().square().mean().backward()
    assert (output.shape, output.dtype) == (shape, dtype)
    assert output.isfinite().all()
    assert {p.grad.dtype for p in network.parameters()} == {dtype}


@pytest.mark.parametrize(
    ("network", "wrong", "expected", "actual"),
    [
        (models.SmallCNN(), images(3, 8), "N x 1 x 8 x 8", "3 x 3 x 8 x 8"),
        (models.SmallCNN(), images(1, 28), "N x 1 x 8 x 8", "3 x 1 x 28 x 28"),
        (models.SmallCNN(3, 32), images(1, 32), "N x 3 x 32 x 32", "3 x 1 x 32 x 32"),
        (models.SmallCNN(), images()[:, 0], "N x 1 x 8 x 8", "got 3 x 8 x 8"),
        (models.SmallCNN(), torch.tensor(1.0), "N x 1 x 8 x 8", "a single number"),
        (SmallResNet(), images(3, 8), "N x 1 x H x W", "3 x 3 x 8 x 8"),
        (Discriminator(), images(1, 28), "N x 1 x 8 x 8", "3 x 1 x 28 x 28"),
        (models.SmallGPT(7, 16), TOKENS, "T up to 16", "2 x 20"),
        (models.SmallGPT(7, 32), TOKENS[0], "N x T", "got 20."),
    ],
)
def test_a_wrong_shape_is_refused_by_what_was_expected_and_what_came(
    network, wrong, expected, actual
):
    with pytest.raises(ValueError) as caught:
        network(wrong)
    assert expected in str(caught.value) and actual in str(caught.value)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: models.SmallCNN(size=10), "size 10 cannot be halved twice"),
        (lambda: models.SmallCNN(size=0), "size 0 cannot"),
        (lambda: models.SmallGPT(7, 16, width=64, heads=5), "5 heads cannot share a width of 64"),
        (lambda: models.mlp(64), "mlp(64,) has no layer"),
    ],
)
def test_a_network_that_cannot_be_is_refused(build, said):
    with pytest.raises(ValueError) as caught:
        build()
    assert said in str(caught.value)


def test_gpt_sees_no_later_token():
    network, tokens, _ = built("gpt")
    changed = tokens.clone()
    changed[:, 10] = (changed[:, 10] + 1) % 7
    before, after = network(tokens), network(changed)
    assert torch.equal(before[:, :10], after[:, :10])
    assert (before[:, 10:] != after[:, 10:]).any(dim=-1).all(), "all later ones see it"


def test_the_default_loss_takes_gpts_logits_classes_last():
    network, tokens, _ = built("gpt")
    loss = cross_entropy(network(tokens), tokens)
    # torch's own order: classes second.
    torch.testing.assert_close(loss, F.cross_entropy(network(tokens).transpose(1, 2), tokens))
    # An untrained network spreads its bets: within half a nat of ln(7).
    assert abs(loss.item() - math.log(7)) < 0.5


def test_a_generators_pixels_lie_between_0_and_1():
    network, noise, _ = built("generator")
    pixels = network(100 * noise)
    assert (pixels.min() >= 0) and (pixels.max() <= 1)


def test_no_layer_of_an_mlp_follows_the_last():
    assert isinstance(models.mlp(64, 32, 10)[-1], torch.nn.Linear)
    assert [p.shape for p in models.mlp(4, 3).parameters()] == [(3, 4), (3,)]


@pytest.mark.parametrize(
    "part", [each for _, each in inspect.getmembers(models) if inspect.getmodule(each) is models]
)
def test_each_network_is_under_80_lines(part):
    assert len(inspect.getsource(part).splitlines()) < 80


@pytest.fixture
def one_thread():
    """Steps this small gain nothing from more threads, which wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
def test_the_small_cnn_learns_the_digits(one_thread):
    split = digits(seed=0)
    torch.manual_seed(0)
    network = models.SmallCNN()
    train(
        network,
        batches(split.train_images, split.train_labels, batch_size=32, seed=0),
        optimizer=torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9),
        epochs=15,
        progress=False,
    )
    assert evaluate(network, split.test_images, split.test_labels) >= 0.98


@pytest.mark.slow
def test_the_small_residual_net_learns_the_digits(one_thread):
    split = digits(seed=0)
    torch.manual_seed(0)
    network = SmallResNet()
    train(
        network,
        batches(split.train_images, split.train_labels, batch_size=64, seed=0),
        optimizer=torch.optim.Adam(network.parameters(), lr=2e-3),
        epochs=4,
        progress=False,
    )
    assert evaluate(network, split.test_images, split.test_labels) >= 0.95


@pytest.mark.slow
def test_the_small_gpt_learns_more_than_which_characters_are_frequent(one_thread):
    text = shakespeare()
    vocabulary = characters(text)
    torch.manual_seed(0)
    network = models.SmallGPT(vocabulary.size, context=32)
    records = train(
        network,
        character_batches(text, 32, 16, steps=200, seed=0),
        optimizer=torch.optim.Adam(network.parameters(), lr=3e-3),
        progress=False,
    )
    frequencies = vocabulary.encode(text).bincount() / len(text)
    alone = -(frequencies * frequencies.log()).sum().item()
    assert sum(record.loss for record in records[-20:]) / 20 < alone - 0.5
    inputs, targets = next(iter(character_batches(text, 32, 64, steps=1, seed=1)))
    assert evaluate(network, inputs, targets) > frequencies.max(), "better than always a space"


def test_each_of_the_gan_pair_learns_against_the_other_held_still(one_thread):
    split = digits(seed=0)
    torch.manual_seed(0)
    generator, discriminator = Generator(), Discriminator()
    judge = F.binary_cross_entropy_with_logits
    real, noise = split.train_images[:256], torch.randn(256, generator.noise)
    ones, zeros = torch.ones(256, 1), torch.zeros(256, 1)

    d = torch.optim.Adam(discriminator.parameters(), lr=1e-2)
    fake = generator(noise).detach()
    for _ in range(20):
        loss = judge(discriminator(real), ones) + judge(discriminator(fake), zeros)
        d.zero_grad()
        loss.backward()
        d.step()
    assert (discriminator(split.test_images) > 0).float().mean() > 0.9
    assert (discriminator(fake) < 0).float().mean() > 0.9

    g = torch.optim.Adam(generator.parameters(), lr=1e-2)
    for _ in range(40):
        loss = judge(discriminator(generator(noise)), ones)
        g.zero_grad()
        loss.backward()
        g.step()
    assert (discriminator(generator(noise)) > 0).float().mean() > 0.9, "all were called fake"
