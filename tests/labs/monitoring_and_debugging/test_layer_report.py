"""S25: gradients by layer, the first inf or NaN by module and phase, and seven known mistakes."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from labkit.emulation import emulate_gpu
from labkit.labs.monitoring_and_debugging.layer_report import (
    BCE,
    EPS,
    FOREIGN,
    HALF_PARAMETERS,
    MASK,
    STILL_SCALED,
    TWICE,
    findings,
    first_nonfinite,
    layer_report,
)
from labkit.training.models import SmallGPT, mlp


def with_gradient(*values, dtype=torch.float32):
    """A model of one parameter whose gradient holds these values."""
    model = nn.Module()
    model.weight = nn.Parameter(torch.zeros(len(values), dtype=dtype))
    model.weight.grad = torch.tensor(values, dtype=dtype)
    return model


# Gradients by layer


def test_no_gradients_yet_is_a_report():
    report = layer_report(mlp(4, 3))
    assert report == ()
    for shown in (str(report), repr(report), report._repr_html_()):
        assert "No gradients yet" in shown and "backward()" in shown
    assert report.suggested_scale is None


def test_a_row_counts_what_fp16_does_to_the_scaled_gradient():
    # Of seven values that are not 0: 2**-25 is a tie and goes to 0, the next float32 does not.
    above = 2.0**-25 * (1 + 2.0**-23)
    model = with_gradient(0.0, 0.0, 2.0**-30, 2.0**-25, above, 2.0**-15, 2.0**-14, 1.0, 4.0)
    (row,) = layer_report(model, scale=8.0)
    assert row.name == "weight"
    assert (row.flushed, row.subnormal) == (2 / 7, 2 / 7)
    assert row.report.zeros == 2
    assert dict(row.report.exponents)[0] == 1 and dict(row.report.exponents)[-30] == 1
    assert row.norm == pytest.approx(math.sqrt(17) / 8, rel=1e-6)
    assert row.headroom == 65504 / 4
    # The true largest is 0.5: 2**16 * 0.5 is half of the range, 2**17 * 0.5 is beyond it.
    assert row.suggested_scale == 2.0**15


@pytest.mark.parametrize("largest", [1e-6, 0.3, 1.0, 32752.0, 32753.0, 1e6])
def test_the_suggested_scale_is_the_largest_power_of_two_with_headroom_two(largest):
    (row,) = layer_report(with_gradient(largest, 0.0, -largest / 3))
    held = torch.tensor(largest).item()
    assert math.frexp(row.suggested_scale)[0] == 0.5
    assert 2 * held * row.suggested_scale <= 65504 < 4 * held * row.suggested_scale


def test_a_report_shows_each_row():
    model = nn.Sequential(with_gradient(2.0**-30, 2.0**-20, 1.0, 2.0), with_gradient(math.nan))
    report = layer_report(model)
    for shown in (str(report), report._repr_html_()):
        for part in ("0.weight", "1.weight", "2.24", "25.0%", "3.28e+04", "2**13", "nan"):
            assert part in shown


def test_the_report_suggests_what_suits_every_row():
    model = nn.ModuleList([with_gradient(1.0), with_gradient(2.0**-10), with_gradient(0.0)])
    report = layer_report(model)
    assert [row.suggested_scale for row in report] == [2.0**14, 2.0**24, None]
    assert report.suggested_scale == 2.0**14


def test_fp16_gradients_are_squared_in_float64_and_one_value_is_enough():
    (row,) = layer_report(with_gradient(*[30_000.0] * 2000, dtype=torch.float16))
    assert row.norm == pytest.approx(30_000 * 2000**0.5)
    (row,) = layer_report(with_gradient(0.5))
    assert (row.norm, row.flushed) == (0.5, 0.0)


def test_gradients_that_are_not_finite_are_counted_and_the_rest_is_read():
    (row,) = layer_report(with_gradient(math.nan, math.inf, 2.0, -4.0))
    assert row.report.nonfinite == 2
    assert row.headroom == 65504 / 4
    assert not math.isfinite(row.norm)
    (row,) = layer_report(with_gradient(math.nan, 0.0))
    assert row.suggested_scale is None


def test_a_sparse_gradient_is_read():
    table = nn.Embedding(10, 3, sparse=True)
    table(torch.tensor([1, 1, 4])).sum().backward()
    (row,) = layer_report(table)
    assert row.norm == pytest.approx(math.sqrt(3 * 4 + 3))


def test_a_complex_gradient_is_read_as_both_of_its_parts():
    model = with_gradient(3 + 4j, -(2.0**-30), dtype=torch.complex64)
    (row,) = layer_report(model)
    assert (row.norm, row.headroom, row.report.values) == (5.0, 65504 / 4, 4)
    assert row.flushed == 1 / 3


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_a_scale_that_nothing_can_be_divided_by_is_refused(scale):
    with pytest.raises(ValueError, match="scale="):
        layer_report(mlp(4, 3), scale=scale)


def planted_error(output):
    raise RuntimeError("planted")


# The first value that is not finite

TOKENS = torch.arange(32).reshape(2, 16) % 20
LAYERS = ("attention_norm", "qkv", "attention_out", "feed_forward_norm", "feed_forward.0")


def small_gpt():
    torch.manual_seed(0)
    return SmallGPT(20, 16, width=16)


def language_step(model):
    F.cross_entropy(model(TOKENS).flatten(0, 1), TOKENS.flatten()).backward()


@pytest.mark.parametrize("block", [0, 1])
@pytest.mark.parametrize("layer", LAYERS)
def test_an_overflow_planted_in_the_forward_pass_of_a_layer_is_named(block, layer):
    model = small_gpt()
    nn.init.constant_(model.blocks[block].get_submodule(layer).weight, 3e38)
    birth = first_nonfinite(lambda: language_step(model))
    assert birth.module == f"SmallGPT.blocks.{block}.{layer}"
    assert (birth.phase, birth.dtype, birth.value) == ("forward", "float32", "inf")
    assert birth.operator.startswith("aten.")


class Planted(torch.autograd.Function):
    """The identity, whose backward multiplies by 1e38 twice."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return (grad + 1) * 1e38 * 1e38


class Overflowing(nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, x):
        return Planted.apply(self.inside(x))


class Looking(nn.Module):
    """Begins with an operator that has no backward."""

    def forward(self, x):
        self.largest = x.detach().abs().max()
        return 2 * x


@pytest.mark.parametrize("place", range(5))
def test_an_overflow_planted_in_the_backward_pass_of_a_layer_is_named(place):
    layers = [nn.Linear(8, 8) for _ in range(5)]
    layers[place] = Overflowing(layers[place])
    model = nn.Sequential(*(nn.Sequential(layer, Looking()) for layer in layers))
    birth = first_nonfinite(lambda: model(torch.ones(3, 8)).sum().backward())
    assert birth.module == f"Sequential.{place}.0"
    assert (birth.operator, birth.phase) == ("aten.mul.Tensor", "backward")


@pytest.mark.parametrize("block", [0, 1])
def test_under_autocast_the_layer_whose_fp16_output_overflows_is_named(block):
    model = small_gpt()
    with torch.no_grad():
        # Its inputs are some thousand large and its weights 100: FP16 holds both, and no product.
        model.blocks[block].feed_forward[0].weight[:, 0] = 100.0
        model.blocks[block].feed_forward_norm.weight.mul_(1e4)

    def step():
        with emulate_gpu():
            with torch.autocast("cpu", torch.float16):
                loss = F.cross_entropy(model(TOKENS).flatten(0, 1), TOKENS.flatten())
            loss.backward()

    birth = first_nonfinite(step)
    assert birth.module == f"SmallGPT.blocks.{block}.feed_forward.0"
    assert (birth.operator, birth.dtype) == ("aten.addmm.default", "float16")


def adam_of_zero_gradients():
    weight = nn.Parameter(torch.ones(3, dtype=torch.float16))
    weight.grad = torch.zeros_like(weight)
    torch.optim.Adam([weight], eps=1e-8).step()


SCENES = {
    "nothing": (lambda: torch.ones(3).exp().sum(), None),
    "a mask of -inf": (
        lambda: torch.zeros(2, 3).masked_fill(torch.eye(2, 3).bool(), -math.inf).softmax(-1),
        None,
    ),
    "a row that is masked throughout": (
        lambda: torch.full((2, 3), -math.inf).softmax(-1),
        ("aten._softmax.default", "forward", "NaN"),
    ),
    "a NaN in the batch": (lambda: torch.full((2,), math.nan).exp() * 2, None),
    "in place": (
        lambda: (torch.full((3,), 100.0).exp_(), None),
        ("aten.exp_.default", "forward", "inf"),
    ),
    "a list": (
        lambda: torch._foreach_mul([torch.ones(2), torch.full((2,), 1e38)], 1e38),
        ("aten._foreach_mul.Scalar", "forward", "inf"),
    ),
    "two births": (
        lambda: (torch.zeros(1).log(), torch.zeros(1) / torch.zeros(1)),
        ("aten.log.default", "forward", "inf"),
    ),
    "memory that nobody wrote": (
        lambda: [torch.empty(1000) for _ in range(50) if torch.full((1000,), math.nan) is not None],
        None,
    ),
    "Adam": (adam_of_zero_gradients, ("aten.addcdiv_.default", "optimizer", "NaN")),
}


@pytest.mark.parametrize("scene", SCENES)
def test_the_operator_and_its_phase_are_named(scene):
    step, expected = SCENES[scene]
    birth = first_nonfinite(step)
    found = birth and (birth.operator, birth.phase, birth.value)
    assert found == expected
    if birth:
        assert birth.module == "" and birth.operator in str(birth)


HOLDERS = {
    "parameter": (lambda net: net[0].weight, "parameter Sequential.0.weight"),
    "buffer": (lambda net: net[1].running_mean, "buffer Sequential.1.running_mean"),
    "input": (lambda net: net.x, "an input of Sequential"),
    "gradient": (lambda net: net[0].weight.grad, "the gradient of Sequential.0.weight"),
    "target": (lambda net: net.y, "a tensor of shape (6, 4)"),
}


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_value_that_was_there_before_the_step_is_named_with_its_holder(holder, value):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)).eval()
    net.x, net.y = torch.randn(6, 8), torch.zeros(6, 4)

    def step():
        loss = (net(net.x) - net.y).abs().sum()
        loss.backward()
        return loss, net[0].weight.grad.sum()

    step()
    assert first_nonfinite(step) is None
    where, name = HOLDERS[holder]
    where(net).data[0].fill_(value)
    birth = first_nonfinite(step)
    kind = "NaN" if math.isnan(value) else "inf"
    assert (birth.holder, birth.value, birth.dtype) == (name, kind, "float32")
    assert name in str(birth) and birth.operator in str(birth)


def test_the_step_runs_once_and_its_errors_come_through():
    calls = []
    first_nonfinite(lambda: calls.append(1))
    assert calls == [1]
    with pytest.raises(RuntimeError, match="planted"):
        first_nonfinite(lambda: planted_error(0))
    assert first_nonfinite(lambda: language_step(small_gpt())) is None


# Known mistakes


def names(found):
    return [finding.name for finding in found]


def classifier():
    torch.manual_seed(0)
    model, x, y = mlp(8, 16, 4), torch.randn(6, 8), torch.arange(6) % 4
    return model, lambda: F.cross_entropy(model(x), y)


def test_a_sound_step_shows_nothing():
    model, loss = classifier()
    optimizer = torch.optim.Adam(model.parameters())
    assert findings(model, optimizer, loss=loss) == ()
    loss().backward()
    assert findings(model, optimizer, loss=loss, scale=1024.0) == ()


def test_gradients_still_scaled_are_found_until_they_are_unscaled():
    model, loss = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(loss()).backward()
    (found,) = findings(model, loss=loss, scale=1024.0)
    assert found.name == STILL_SCALED and "1024 times" in str(found)
    assert "unscale_" in found.advice
    scaler.unscale_(optimizer)
    assert findings(model, loss=loss, scale=1024.0) == ()


def test_a_second_backward_is_found():
    model, loss = classifier()
    for _ in range(2):
        loss().backward()
    assert names(findings(model, loss=loss)) == [TWICE]
    assert names(findings(model, loss=loss, scale=1024.0)) == [TWICE]
    for parameter in model.parameters():
        parameter.grad *= 1024.0
    assert names(findings(model, loss=loss, scale=1024.0)) == [STILL_SCALED, TWICE]


def test_gradients_of_another_batch_are_no_second_backward():
    model, loss = classifier()
    loss().backward()
    (2 * F.cross_entropy(model(torch.randn(6, 8)), torch.zeros(6).long())).backward()
    assert findings(model, loss=loss) == ()


def test_gradients_with_more_than_noise_beside_them_are_no_second_backward():
    model, loss = classifier()
    loss().backward()
    for parameter in model.parameters():
        true = parameter.grad.flatten()
        noise = torch.randn_like(true)
        noise -= (noise @ true) / (true @ true) * true
        parameter.grad = (2 * true + noise).view_as(parameter)
    assert findings(model, loss=loss) == ()


def test_findings_need_no_grad_mode_of_the_caller():
    model, loss = classifier()
    for _ in range(2):
        loss().backward()
    with torch.no_grad():
        assert names(findings(model, loss=loss)) == [TWICE]
        assert not torch.is_grad_enabled()


@pytest.mark.parametrize("as_module", [True, False])
def test_a_loss_of_probabilities_is_found_and_one_of_logits_is_not(as_module):
    model, x = mlp(8, 1), torch.randn(6, 8)
    targets = torch.ones(6, 1)
    of_p = nn.BCELoss() if as_module else F.binary_cross_entropy
    assert names(findings(model, loss=lambda: of_p(model(x).sigmoid(), targets))) == [BCE]
    with_logits = F.binary_cross_entropy_with_logits
    assert findings(model, loss=lambda: with_logits(model(x), targets)) == ()


MASKS = {
    "added": lambda scores, future: scores + future.to(scores.dtype) * -1e9,
    "filled": lambda scores, future: scores.masked_fill(future, -1e9),  # torch refuses it in FP16
    "where": lambda scores, future: torch.where(future, -1e9, scores),
    "where, a tensor": lambda scores, future: torch.where(future, torch.tensor(-1e9), scores),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_mask_that_fp16_cannot_hold_is_found_in_fp16_only(mask, dtype):
    model, future = mlp(4, 4), torch.ones(4, 4).triu(1).bool()

    def loss():
        scores = MASKS[mask](model(torch.eye(4)).to(dtype), future)
        return scores.softmax(-1).float().square().sum()

    assert names(findings(model, loss=loss)) == ([MASK] if dtype is torch.float16 else [])


def test_a_mask_that_fp16_can_hold_is_sound():
    model = mlp(4, 4)
    least = torch.finfo(torch.float16).min / 2
    assert findings(model, loss=lambda: (model(torch.eye(4)).half() + least).float().sum()) == ()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_parameters_are_found(dtype):
    (found,) = findings(mlp(4, 4, 2).to(dtype))
    assert found.name == HALF_PARAMETERS and "4 parameters" in found.seen


def test_an_optimizer_of_another_model_is_found():
    model, other = mlp(4, 4), mlp(4, 4)
    assert names(findings(model, torch.optim.SGD(other.parameters()))) == [FOREIGN]
    both = [*model.parameters(), *other.parameters()]
    assert findings(model, torch.optim.SGD(both)) == ()


def test_an_eps_that_fp16_flushes_is_found_where_it_meets_fp16():
    half, full = mlp(4, 2).half(), mlp(4, 2)
    adam = torch.optim.Adam
    assert names(findings(half, adam(half.parameters(), eps=1e-8))) == [HALF_PARAMETERS, EPS]
    assert names(findings(half, adam(half.parameters(), eps=1e-4))) == [HALF_PARAMETERS]
    assert findings(full, adam(full.parameters(), eps=1e-8)) == ()
    assert names(findings(half, adam(half.parameters(), eps=1e-8, fused=True))) == [HALF_PARAMETERS]


def test_the_eps_that_is_found_makes_a_nan_and_the_fused_one_does_not():
    ends = []
    for fused in (False, True):
        weight = nn.Parameter(torch.ones(3, dtype=torch.float16))
        weight.grad = torch.zeros_like(weight)
        torch.optim.Adam([weight], eps=1e-8, fused=fused).step()
        ends.append(bool(weight.isfinite().all()))
    assert ends == [False, True]
