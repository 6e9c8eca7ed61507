"""LossScaler beside torch.amp.GradScaler: the same moves, the same bits, the same refusals."""

import copy
import math

import pytest
import torch
from torch import nn

from labkit.emulation import emulate_gpu
from labkit.training.loss_scaler import LossScaler
from labkit.training.scaling import LossScale, NumericalInstability

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]


def ours(start=None, device="cpu"):
    return LossScaler(start)


def torchs(start=None, device="cpu"):
    scaler = torch.amp.GradScaler(device)
    scaler.load_state_dict((start or LossScale()).to_state_dict())
    return scaler


BOTH = pytest.mark.parametrize("make", [ours, torchs])


def bits(tensors):
    """Exactly what the tensors hold; -0.0 and NaN count."""
    return [
        (t.dtype, t.detach().cpu().contiguous().view(-1).view(torch.uint8).tolist())
        for t in tensors
    ]


def moments(optimizer):
    """What the optimizer remembers of each parameter, in order."""
    return [
        (name, bits([torch.as_tensor(value)]))
        for group in optimizer.param_groups
        for p in group["params"]
        for name, value in sorted(optimizer.state.get(p, {}).items())
    ]


def network(device="cpu"):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(12, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)
    )
    return model.to(device)


OPTIMIZERS = {
    "SGD": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9),
    "SGD fused": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, fused=True),
    "Adam": lambda groups: torch.optim.Adam(groups, lr=0.01),
    "AdamW foreach": lambda groups: torch.optim.AdamW(groups, lr=0.01, foreach=True),
    "AdamW fused": lambda groups: torch.optim.AdamW(groups, lr=0.01, fused=True),
}


def groups(model):
    """Two parameter groups: weights and the rest."""
    named = list(model.named_parameters())
    weights = [p for name, p in named if name.endswith("weight")]
    others = [p for name, p in named if not name.endswith("weight")]
    return [{"params": weights}, {"params": others, "lr": 0.02}]


def amp_run(scaler, optimizer_name, device, *, steps=40, unscale=False):
    """fp16 AMP by hand; after each step the parameters, the scale, and whether it was skipped."""
    model = network(device)
    optimizer = OPTIMIZERS[optimizer_name](groups(model))
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(32, 12, generator=generator)
        labels = x[:, :4].argmax(1).to(device)
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x.to(device)), labels)
        scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(optimizer)
        before = bits(model.parameters())
        scaler.step(optimizer)
        scaler.update()
        after = bits(model.parameters())
        yield after, scaler.get_scale(), after == before


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("unscale", [False, True], ids=["step", "unscale_, step"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_steps_are_torchs_bit_by_bit(name, unscale, device):
    # Doubles each good step, so that it climbs into skips after a while and then keeps on skipping.
    start = LossScale(2.0**17, growth_interval=1)
    with emulate_gpu():
        ran = list(amp_run(ours(start), name, device, unscale=unscale))
        theirs = list(amp_run(torchs(start, device), name, device, unscale=unscale))
    assert ran == theirs
    skipped = [skip for _, _, skip in ran]
    assert not skipped[0], "see the test of fused SGD below"
    assert any(skipped[10:]) and not all(skipped[10:]), "steps and skips both"


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if "fused" not in name])
def test_a_scale_that_is_no_power_of_two_gives_torchs_bits_too(name):
    start = LossScale(3e7, growth_factor=1.5, backoff_factor=0.3, growth_interval=2)
    with emulate_gpu():
        ran = list(amp_run(ours(start), name, "cpu"))
        assert ran == list(amp_run(torchs(start), name, "cpu"))
    assert any(math.frexp(scale)[0] != 0.5 for _, scale, _ in ran)


@pytest.mark.parametrize("start", [LossScale(3.0), LossScale(2.0**-130)], ids=["3", "2**-130"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_unscaled_gradients_are_torchs(start, dtype):
    gradient = torch.tensor([1.0, -7.0, 1e-30, 3e38, math.inf, math.nan]).to(dtype)
    left = []
    for scaler in (ours(start), torchs(start)):
        weight = nn.Parameter(torch.zeros(6, dtype=dtype))
        weight.grad = gradient.clone()
        scaler.scale(torch.ones(()))
        scaler.unscale_(torch.optim.SGD([weight]))
        left.append(weight.grad.nan_to_num(nan=7.0, posinf=math.inf, neginf=-math.inf))
    assert bits(left[:1]) == bits(left[1:])


def test_scaled_losses_are_torchs():
    for loss in (torch.tensor(3.3).half(), torch.tensor(3.3), torch.ones(2).bfloat16()):
        scaled, wanted = ours().scale(loss), torchs().scale(loss)
        assert scaled.dtype == wanted.dtype and torch.equal(scaled, wanted)
    assert ours().scale(torch.tensor(3.3).half()).isfinite(), "65536 * 3.3 fits no fp16"


# Skipped steps


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("device", DEVICES)
def test_a_skip_leaves_parameters_and_moments_as_they_were(name, bad, device):
    model, scaler = network(device), LossScaler(LossScale(8.0))
    optimizer = OPTIMIZERS[name](groups(model))
    parameters = list(model.parameters())

    def iteration(spoil):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 12, device=device)).square().mean()).backward()
        if spoil:
            # One element, of the last parameter of the second group.
            parameters[-1].grad.view(-1)[-1] = bad
        stepped = scaler.step(optimizer)
        scaler.update()
        return stepped

    assert iteration(spoil=False)
    before = bits(parameters), moments(optimizer)
    assert before[1], "the optimizer has moments to keep"
    assert not iteration(spoil=True)
    assert (bits(parameters), moments(optimizer)) == before
    assert scaler.get_scale() == 4.0
    assert iteration(spoil=False)
    assert (bits(parameters), moments(optimizer)) != before


def test_fused_sgd_whose_first_step_is_skipped_starts_without_momentum():
    """Where we are not torch's twin: there, torch 2.13 takes uninitialised memory for momentum."""

    def after(optimizer_name):
        weight = nn.Parameter(torch.ones(64))
        optimizer, scaler = OPTIMIZERS[optimizer_name]([weight]), LossScaler(LossScale(8.0))
        for spoil in (True, False):
            iterate(scaler, optimizer, weight, spoil)
        return bits([weight]), moments(optimizer)

    assert after("SGD fused") == after("SGD")


@BOTH
def test_an_inf_in_one_optimizer_skips_that_one_and_the_scale_backs_off_once(make):
    first, second = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizers = [torch.optim.SGD([p], lr=1.0) for p in (first, second)]
    scaler = make(LossScale(8.0))
    for spoilt in ((True, False), (True, True), (False, False)):
        before, scale = [first.tolist(), second.tolist()], scaler.get_scale()
        scaler.scale(first.sum() + 2 * second.sum()).backward()
        for p, spoil in zip((first, second), spoilt, strict=True):
            if spoil:
                p.grad[0] = math.inf
        for optimizer in optimizers:
            scaler.step(optimizer)
            optimizer.zero_grad()
        scaler.update()
        after = [first.tolist(), second.tolist()]
        assert [a == b for a, b in zip(after, before, strict=True)] == list(spoilt)
        assert scaler.get_scale() == (scale / 2 if any(spoilt) else scale)


@BOTH
def test_parameters_without_a_gradient_are_left_alone(make):
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer, scaler = torch.optim.SGD([used, unused], lr=0.5), make(LossScale(8.0))
    scaler.scale(used.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert (used.tolist(), unused.tolist(), unused.grad) == ([0.5, 0.5], [1.0, 1.0], None)


@BOTH
@pytest.mark.parametrize("unscale", [False, True], ids=["step", "unscale_, step"])
@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if "fused" in name])
def test_a_fused_optimizer_without_gradients_steps_and_others_decide_the_scale(name, unscale, make):
    """The idle half of a GAN."""
    busy, idle = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizers, scaler = [OPTIMIZERS[name]([p]) for p in (busy, idle)], make(LossScale(8.0))
    scaler.scale(busy.sum()).backward()
    busy.grad[0] = math.inf
    for optimizer in optimizers:
        if unscale:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
    scaler.update()
    assert (idle.tolist(), moments(optimizers[1])) == ([1.0, 1.0], [])
    assert (busy.tolist(), scaler.get_scale()) == ([1.0, 1.0], 4.0)


@BOTH
@pytest.mark.parametrize("spoil", [False, True])
def test_sparse_gradients(make, spoil):
    table = nn.Embedding(5, 2, sparse=True)
    nn.init.ones_(table.weight)
    optimizer, scaler = torch.optim.SGD(table.parameters(), lr=0.5), make(LossScale(8.0))
    scaler.scale(table(torch.tensor([1, 1, 3])).sum()).backward()
    assert table.weight.grad.is_sparse
    if spoil:
        table.weight.grad._values()[0, 0] = math.nan
    scaler.step(optimizer)
    scaler.update()
    wanted = [1.0] * 5 if spoil else [1.0, 0.0, 1.0, 0.5, 1.0]
    assert table.weight[:, 0].tolist() == wanted
    assert scaler.get_scale() == (4.0 if spoil else 8.0)


# Moves out of order


def ready(make, start=None):
    """A scaler and an optimizer whose only parameter has a scaled gradient."""
    weight, scaler = nn.Parameter(torch.ones(2)), make(start)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler.scale(weight.sum()).backward()
    return scaler, optimizer, weight


def unscale_twice(make):
    scaler, optimizer, _ = ready(make)
    scaler.unscale_(optimizer)
    scaler.unscale_(optimizer)


def unscale_after_step(make):
    scaler, optimizer, _ = ready(make)
    scaler.step(optimizer)
    scaler.unscale_(optimizer)


def step_twice(make):
    scaler, optimizer, _ = ready(make)
    scaler.step(optimizer)
    scaler.step(optimizer)


def update_twice(make):
    scaler, optimizer, _ = ready(make)
    scaler.step(optimizer)
    scaler.update()
    scaler.update()


def update_without_a_check(make):
    ready(make)[0].update()


def no_gradients(make):
    scaler, optimizer, weight = ready(make)
    weight.grad = None
    scaler.step(optimizer)


def only_a_fused_optimizer_without_gradients(make):
    scaler, _, weight = ready(make)
    weight.grad = None
    scaler.step(torch.optim.Adam([weight], fused=True))
    scaler.update()


def unscale_no_gradients_then_update(make):
    scaler, optimizer, weight = ready(make)
    weight.grad = None
    scaler.unscale_(optimizer)
    scaler.update()


def fp16_gradients(make):
    scaler, optimizer, weight = ready(make)
    weight.data, weight.grad = weight.data.half(), None
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)


def step_before_scale(make):
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    make().step(torch.optim.SGD([weight]))


def unscale_before_scale(make):
    make().unscale_(torch.optim.SGD([nn.Parameter(torch.ones(2))]))


def update_before_scale(make):
    make().update()


WRONG = {
    unscale_twice: (RuntimeError, "unscale_() has already been called on this optimizer"),
    unscale_after_step: (RuntimeError, "unscale_() is being called after step()"),
    step_twice: (RuntimeError, "step() has already been called since the last update()"),
    update_twice: (AssertionError, "No inf checks were recorded prior to update"),
    update_without_a_check: (AssertionError, "No inf checks were recorded prior to update"),
    no_gradients: (AssertionError, "No inf checks were recorded for this optimizer"),
    only_a_fused_optimizer_without_gradients: (AssertionError, "No inf checks were recorded prior"),
    unscale_no_gradients_then_update: (AssertionError, "No inf checks were recorded prior"),
    fp16_gradients: (ValueError, "Attempting to unscale FP16 gradients"),
    step_before_scale: (AssertionError, "scale("),
    unscale_before_scale: (AssertionError, "scale("),
    update_before_scale: (AssertionError, "scale("),
}


@BOTH
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_a_move_out_of_order_raises_what_torch_raises(wrong, make):
    kind, said = WRONG[wrong]
    with pytest.raises(kind) as error:
        wrong(make)
    assert type(error.value) is kind
    assert said in str(error.value)


@BOTH
def test_orders_that_are_right(make):
    scaler, optimizer, weight = ready(make)
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    scaler.update()  # an iteration may end without a step
    scaler.unscale_(optimizer)


def test_a_fp16_gradient_among_others_leaves_them_scaled():
    full, half = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2).half())
    scaler, optimizer = LossScaler(LossScale(8.0)), torch.optim.SGD([full, half])
    scaler.scale(full.sum() + half.sum()).backward()
    with pytest.raises(ValueError, match="float32"):
        scaler.unscale_(optimizer)
    assert full.grad.tolist() == [8.0, 8.0]


# Streaks and state


def iterate(scaler, optimizer, weight, spoil):
    optimizer.zero_grad()
    scaler.scale(weight.sum()).backward()
    if spoil:
        weight.grad[0] = math.nan
    scaler.step(optimizer)
    scaler.update()


def test_a_streak_of_skips_raises_on_request():
    scaler, optimizer, weight = ready(lambda start: LossScaler(start, max_skips=3))
    for spoil in (True, True, False, True, True):
        iterate(scaler, optimizer, weight, spoil)
    with pytest.raises(
        NumericalInstability, match="of 3 steps in a row; the loss scale is down to"
    ):
        iterate(scaler, optimizer, weight, True)
    assert scaler.get_scale() == 65536.0 / 2**5


def test_a_loaded_state_begins_the_streak_again():
    scaler, optimizer, weight = ready(lambda start: LossScaler(start, max_skips=3))
    for spoil in (True, True):
        iterate(scaler, optimizer, weight, spoil)
    scaler.load_state_dict(LossScale(1024.0).to_state_dict())
    for spoil in (True, True):
        iterate(scaler, optimizer, weight, spoil)
    assert scaler.get_scale() == 256.0
    with pytest.raises(NumericalInstability):
        iterate(scaler, optimizer, weight, True)


def test_by_default_any_streak_is_torchs():
    (scaler, *rest), (other, *others) = ready(ours), ready(torchs)
    for _ in range(200):
        iterate(scaler, *rest, spoil=True)
        iterate(other, *others, spoil=True)
        assert scaler.get_scale() == other.get_scale()
    assert scaler.get_scale() == 0.0


@pytest.mark.parametrize("max_skips", [0, -1, 2.5, 3.0, math.inf, "3"])
def test_max_skips_is_checked(max_skips):
    with pytest.raises(ValueError, match=f"max_skips={max_skips!r}: pass a whole number from 1 on"):
        LossScaler(max_skips=max_skips)


def test_a_static_scale_skips_and_stays():
    scaler, optimizer, weight = ready(ours, LossScale.static(4.0))
    iterate(scaler, optimizer, weight, True)
    assert weight.tolist() == [1.0, 1.0]
    iterate(scaler, optimizer, weight, False)
    assert weight.tolist() == pytest.approx([0.9, 0.9])
    assert scaler.get_scale() == 4.0


def test_state_dicts_load_in_either_scaler():
    start = LossScale(2.0**20, 1.5, 0.3, 4)
    (scaler, *rest), (other, *others) = ready(ours, start), ready(torchs, start)
    for step in range(30):
        iterate(scaler, *rest, spoil=step % 7 == 3)
        iterate(other, *others, spoil=step % 7 == 3)
        assert scaler.state_dict() == other.state_dict()
        mine, theirs = copy.deepcopy(scaler.state_dict()), other.state_dict()
        scaler.load_state_dict(theirs)
        other.load_state_dict(mine)
        assert scaler.state == LossScale.from_state_dict(theirs)
