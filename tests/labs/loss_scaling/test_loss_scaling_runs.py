"""The networks of lab 04 fail for the reason that the lab teaches, and its repairs repair them.

Three seeds. Two float32 runs that differ in their seed alone say how much a last loss may differ:
a repaired run must be nearer to float32's run of its own seed than such two runs are to each other.
"""

from contextlib import nullcontext
from itertools import combinations

import pytest
import torch
import torch.nn.functional as F

from labkit.emulation import emulate_gpu
from labkit.labs.loss_scaling.figures import layer_gradients
from labkit.labs.loss_scaling.recorded import weight_runs
from labkit.labs.loss_scaling.saturating import saturating_gradients
from labkit.labs.loss_scaling.solutions import Masters
from labkit.training import train
from labkit.training.data import digits
from labkit.training.models import Autoencoder, mlp
from labkit.training.scaling import LossScale

pytestmark = pytest.mark.slow

SEEDS = (0, 1, 2)
CONTROL = range(5)  # seeds of the float32 runs that are compared with each other
STEPS = 60


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def images():
    return digits().train_images.flatten(1)


@pytest.fixture(scope="module")
def labels():
    return digits().train_labels


def spread(losses):
    """How far two float32 runs of different seeds may end from each other."""
    return max(abs(a - b) for a, b in combinations(losses, 2))


def autoencoder(seed, images, **settings):
    torch.manual_seed(seed)
    model = Autoencoder()
    start = [p.detach().clone() for p in model.parameters()]
    records = train(
        model,
        [(images, images)] * STEPS,
        optimizer=torch.optim.Adam(model.parameters(), lr=5e-3),
        loss_fn=lambda output, images: 1e-3 * F.mse_loss(output, images),
        progress=False,
        **settings,
    )
    return model, start, records


@pytest.fixture(scope="module")
def in_float32(images):
    return [autoencoder(seed, images, precision="fp32")[2] for seed in CONTROL]


def test_the_weighted_autoencoder_learns_in_float32(in_float32):
    for records in in_float32:
        assert records[-1].loss < records[0].loss / 3


@pytest.mark.seeds(SEEDS)
def test_unscaled_every_gradient_is_zero_and_no_bit_moves(seed, images):
    model, start, records = autoencoder(seed, images, precision="fp16_unscaled")
    assert all(record.grad_norm == 0 for record in records)
    assert all(map(torch.equal, model.parameters(), start))


@pytest.mark.seeds(SEEDS)
def test_the_reason_is_underflow_at_the_output(seed, images, in_float32):
    torch.manual_seed(seed)
    output = Autoencoder()(images)
    output.retain_grad()
    (1e-3 * F.mse_loss(output, images)).backward()
    assert output.grad.abs().max() < 2.0**-25 and (output.grad != 0).float().mean() > 0.9
    # With BF16's range and fewer mantissa bits it learns.
    records = autoencoder(seed, images, precision="bf16")[2]
    assert records[-1].loss < records[0].loss / 3


def test_zero_propagates_from_the_output_to_weights_that_would_fit(images):
    torch.manual_seed(0)
    model = Autoencoder()

    def error(output, images):
        return 1e-3 * F.mse_loss(output, images)

    full = layer_gradients(model, images, error, autocast=False)
    half = layer_gradients(model, images, error, autocast=True)
    assert [layer.weight.shape for layer in full] == [(64, 128), (128, 16), (16, 128), (128, 64)]
    for true, computed in zip(full, half, strict=True):
        assert true.output.abs().max() < 2.0**-25 and not computed.output.any()
        assert (true.weight.abs() > 2.0**-25).double().mean() > 0.5 and not computed.weight.any()
        assert (computed.output.dtype, computed.weight.dtype) == (torch.float16, torch.float32)
    # As the lab's text says.
    assert f"{full[0].output.abs().max():.1e}" == "2.6e-08"
    assert f"{error(model(images), images):.1e}" == "2.4e-04"


def test_the_first_updates_are_swamped_as_the_lab_says(images, labels):
    torch.manual_seed(0)
    model = mlp(64, 32, 10).bfloat16()
    with emulate_gpu():
        F.cross_entropy(model(images.bfloat16()).float(), labels).backward()
    p = torch.cat([p.detach().flatten() for p in model.parameters()])
    g = torch.cat([p.grad.flatten() for p in model.parameters()])
    p, g = p[g != 0], g[g != 0]
    assert round(100 * (p - 0.003 * g == p).double().mean().item()) == 97
    assert 13_000 < (p.float() / (0.003 * g.float())).abs().median() < 15_000


def test_saturating_hardware_hides_the_overflow(images):
    """At a scale that overflows, the gradients are finite and shorter than they should be."""

    def gradients(scale, saturating):
        torch.manual_seed(0)
        model = Autoencoder()
        mode = saturating_gradients(model) if saturating else nullcontext()
        with emulate_gpu(), mode:
            with torch.autocast("cpu", dtype=torch.float16):
                loss = 1e-3 * F.mse_loss(model(images), images)
            (scale * loss).backward()
        return torch.cat([p.grad.flatten() / scale for p in model.parameters()])

    assert torch.equal(gradients(2.0**16, True), gradients(2.0**16, False))
    assert not gradients(2.0**40, False).isfinite().all()
    hidden, right = gradients(2.0**40, True), gradients(2.0**16, False)
    assert hidden.isfinite().all() and hidden.norm() < 0.1 * right.norm()


def test_the_recorded_weights_show_learning_and_its_absence():
    """Five seeds: BF16 weights alone stay at chance, each of the three remedies is float32's."""
    runs = weight_runs()
    wide = runs["float32 weights"]
    assert wide.steps[-1] == 3000 and min(wide.accuracy) > 0.7
    for name, run in runs.items():
        assert len(run.losses) == len(run.accuracy) == 5
        if name == "BF16 weights":
            assert max(run.accuracy) < 0.15 and min(losses[-1] for losses in run.losses) > 2.25
        elif run is not wide:
            allowed = spread([losses[-1] for losses in wide.losses]) / 10
            for mine, full in zip(run.losses, wide.losses, strict=True):
                assert abs(mine[-1] - full[-1]) < allowed


@pytest.mark.parametrize(
    "start", [LossScale.static(256.0), LossScale()], ids=["S = 256", "dynamic"]
)
def test_a_scale_repairs_it_in_every_seed(start, images, in_float32):
    allowed = spread([records[-1].loss for records in in_float32])
    for seed, wanted in zip(SEEDS, in_float32, strict=False):
        records = autoencoder(seed, images, precision="fp16", scaler=start)[2]
        assert abs(records[-1].loss - wanted[-1].loss) < allowed
        assert not any(record.skipped for record in records)


def classifier(seed, images, labels, dtype, make_optimizer):
    """First and last loss, and the shares of zero gradients and of swallowed updates at first."""
    torch.manual_seed(seed)
    model, losses, lr = mlp(64, 32, 10).to(dtype), [], 0.003
    optimizer = make_optimizer(list(model.parameters()), lr)
    with emulate_gpu():
        for step in range(STEPS):
            loss = F.cross_entropy(model(images.to(dtype)).float(), labels)
            model.zero_grad()
            loss.backward()
            if step == 0:
                zeros = torch.cat([p.grad.flatten() == 0 for p in model.parameters()])
                same = torch.cat([(p - lr * p.grad == p).flatten() for p in model.parameters()])
            optimizer.step()
            losses.append(loss.item())
    swallowed = same[~zeros].double().mean().item()
    return losses[0], losses[-1], zeros.double().mean().item(), swallowed


def test_bf16_weights_swallow_their_updates_and_masters_do_not(images, labels):
    wide, narrow, kept = (
        [classifier(seed, images, labels, dtype, optimizer) for seed in SEEDS]
        for dtype, optimizer in (
            (torch.float32, torch.optim.SGD),
            (torch.bfloat16, torch.optim.SGD),
            (torch.bfloat16, Masters),
        )
    )
    progress = [first - last for first, last, *_ in wide]
    allowed = spread(progress)
    for full, stalled, repaired, control in zip(progress, narrow, kept, wide, strict=True):
        assert full > 0 and stalled[0] - stalled[1] < full / 3
        assert abs(repaired[0] - repaired[1] - full) < allowed
        # By swamping: BF16 makes no gradient 0 that float32 has, and float32 swallows few updates.
        assert abs(stalled[2] - control[2]) < 0.02
        assert stalled[3] > 0.9 and control[3] < 0.05
