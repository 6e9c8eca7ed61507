"""Lab 01's checks: right answers in other ways, and wrong answers no check was written for."""

import math

import pytest
import torch

from labkit.emulation import emulate_gpu
from labkit.labs.three_crimes import solutions
from labkit.labs.three_crimes.checks import (
    check_first_nonfinite,
    check_ledger,
    check_pardon,
    check_witness,
)
from labkit.labs.three_crimes.checks.failures import _LOST, _UPDATES
from labkit.labs.three_crimes.figures import time_line
from labkit.labs.three_crimes.trials import RUNS
from labkit.measuring.live_bytes import LiveBytes
from labkit.training import train
from labkit.training.data import digits
from labkit.training.models import mlp


def witness_with_a_hook_on_all_parts(layer, optimizer, step):
    report = {}

    def look(module, arguments, output):
        report["activation"] = output.dtype
        report["parameter"] = next(module.parameters()).dtype

    hook = layer.register_forward_hook(look)
    try:
        report["loss"] = step().detach().dtype
    finally:
        hook.remove()
    weight = next(layer.parameters())
    report["state"] = optimizer.state[weight]["exp_avg_sq"].dtype
    report["gradient"] = next(p.grad for p in layer.parameters()).dtype
    return report


def witness_by_wrapping_forward(layer, optimizer, step):
    found, forward = [], layer.forward

    def spy(x):
        found.append(forward(x))
        return found[-1]

    layer.forward = spy
    loss = step()
    del layer.forward
    return {
        "parameter": layer.weight.dtype,
        "activation": found[0].dtype,
        "loss": loss.dtype,
        "gradient": layer.weight.grad.dtype,
        "state": optimizer.state[layer.weight]["exp_avg"].dtype,
    }


def first_by_differences(pairs):
    for name, x in pairs:
        if ((x - x) != 0).any():  # inf - inf and NaN - NaN are NaN
            return name


def first_by_python_floats(pairs):
    bad = [name for name, x in pairs if not all(map(math.isfinite, x.flatten().tolist()))]
    return bad[0] if bad else None


def ledger_by_witness(parameters, activations):
    fp32, fp16 = (torch.finfo(dtype).bits // 8 for dtype in (torch.float32, torch.float16))
    roles = dict.fromkeys(("weights", "gradients"), fp32 * parameters)
    roles |= {"adam": 2 * fp32 * parameters, "copies": fp16 * parameters}
    return roles | {"activations": float(fp16 * activations)}


def ledger_in_gigabytes(parameters, activations):
    return {role: size / 1e9 for role, size in ledger_by_witness(parameters, activations).items()}


def size(x):
    return x.numel() * x.element_size()


def test_the_ledger_counts_the_bytes_that_torch_holds_in_a_step():
    """What autograd saves for backward: the layer's own copy of its weight, and its output."""
    layer, saved = torch.nn.Linear(48, 32, bias=False), []
    optimizer = torch.optim.Adam(layer.parameters())
    keep = torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x)
    x = torch.ones(8, 48, requires_grad=True)
    with keep, emulate_gpu(), torch.autocast("cpu", dtype=torch.float16):
        y = layer(x)
        loss = y.square().sum()
    loss.backward()
    optimizer.step()
    (copy,) = [x for x in saved if x.numel() == layer.weight.numel()]
    moments = [optimizer.state[layer.weight][key] for key in ("exp_avg", "exp_avg_sq")]
    assert solutions.ledger(layer.weight.numel(), y.numel()) == {
        "weights": size(layer.weight),
        "gradients": size(layer.weight.grad),
        "adam": sum(map(size, moments)),
        "copies": size(copy),
        "activations": size(y),
    }


@pytest.mark.parametrize(
    ("check", "right"),
    [
        (check_witness, witness_with_a_hook_on_all_parts),
        (check_witness, witness_by_wrapping_forward),
        (check_first_nonfinite, first_by_differences),
        (check_first_nonfinite, first_by_python_floats),
        (check_ledger, ledger_by_witness),
        (check_ledger, lambda p, a: {"activations": a * 2, "adam": p << 3, "copies": p + p,
                                     "gradients": p * 4, "weights": p * 4}),
        (check_pardon, {"precision": "bf16"}),
        (check_pardon, {"precision": "fp16"}),
        (check_pardon, {"precision": "BF16"}),
    ],
)  # fmt: skip
def test_a_right_answer_passes(check, right):
    result = check.result(right)
    assert result.status == "passed", result.message


def twice(layer, optimizer, step):
    step()
    return witness_with_a_hook_on_all_parts(layer, optimizer, step)


def names_of_dtypes(layer, optimizer, step):
    report = witness_with_a_hook_on_all_parts(layer, optimizer, step)
    return {role: str(dtype) for role, dtype in report.items()}


def weight_itself(layer, optimizer, step):
    report = witness_with_a_hook_on_all_parts(layer, optimizer, step)
    return report | {"parameter": layer.weight.detach()}


def hook_that_returns(layer, optimizer, step):
    handle = layer.register_forward_hook(lambda layer, inputs, output: output.dtype)
    step()
    handle.remove()


def first_or_else_none(pairs):
    for name, x in pairs:
        if not x.isfinite().all():
            return name
        else:
            return None


def says_float16(layer, optimizer, step):
    step()
    return dict.fromkeys(("parameter", "activation", "loss", "gradient", "state"), torch.float16)


@pytest.mark.parametrize(
    ("check", "wrong", "said", "ideas"),
    [
        (check_witness, twice, "`step()` ran 2 times", ()),
        (check_witness, says_float16, "FP32: you report parameter float16; it is float32", ()),
        (check_witness, lambda layer, optimizer, step: {"parameter": 1}, "the keys parameter;", ()),
        (check_witness, lambda layer, optimizer, step: step(), "a dict with the keys", ()),
        (check_first_nonfinite, lambda pairs: None, "'hidden' is wanted", ()),
        (check_first_nonfinite, lambda pairs: dict(pairs).get("x", True), "None is wanted", ()),
        (check_first_nonfinite,
         lambda pairs: next((n for n, x in pairs if math.isnan(x.double().sum())), None),
         "'scores' is wanted", ("nan-is-the-only-nonfinite",)),
        (check_ledger, ledger_in_gigabytes, "Your entries are 1e-09 times the right ones", ()),
        (check_ledger, lambda p, a: dict.fromkeys(ledger_by_witness(p, a), 2 * p), "weights is 2",
         ()),
        (check_ledger, lambda p, a: {"weights": 4, "gradients": 4, "adam": 8, "copies": 2,
                                     "activations": 2 * a},
         "weights is 4 bytes, and you return the same for every model. Multiply the bytes of one "
         "value by the number of parameters", ()),
        (check_ledger, lambda p, a: ledger_by_witness(p, a) | {"activations": 2},
         "by the number of activations", ()),
        (check_ledger, lambda p, a: ledger_by_witness(p, a) | {"weights": 2 * p, "copies": 0},
         "Under autocast the weights stay FP32", ()),
        (check_witness, names_of_dtypes,
         "FP32: parameter is 'torch.float32', a str; a dtype is wanted", ()),
        (check_witness, weight_itself, "FP32: parameter is a tensor of shape", ()),
        (check_witness, hook_that_returns,
         "FP32: your hook returns a dtype, and the layer passes that on",
         ("what-a-hook-returns-is-ignored",)),
        (check_first_nonfinite, first_or_else_none, "'hidden' holds NaN. You return None after",
         ("one-look-is-a-search",)),
        (check_pardon, {"steps": 3000}, "'steps' is no setting that you may change", ()),
        (check_pardon, {"momentum": 0.9}, "'momentum' is no setting", ()),
        (check_pardon, {"loss_scale": 256.0}, "'loss_scale' is no setting", ()),
        (check_pardon, RUNS["D"], "pardon is a Trial; a dict with one setting", ()),
        (check_pardon, {"lr": "1e-3"}, "lr is '1e-3', a str; a number is wanted", ()),
        (check_pardon, {"precision": 16}, "precision is 16, an int; a name is wanted", ()),
        (check_ledger, lambda p, a: 18 * p, "a dict with the keys weights", ()),
        (check_pardon, {"precision": "bf16", "lr": 1e-3}, "one setting", ()),
        (check_pardon, {"lr": 5e-5}, "has already", ()),
        (check_pardon, {"precision": "tf32"}, "%", ("sixteen-bits-must-go",)),
        (check_pardon, "bf16", "a dict with one setting", ()),
    ],
)  # fmt: skip
def test_a_wrong_answer_without_a_name_is_told_what_came_out(check, wrong, said, ideas):
    result = check.result(wrong)
    assert (result.status, result.misconceptions) == ("failed", ideas), result.message
    assert said in result.message


@pytest.mark.parametrize(
    ("check", "answer", "said"),
    [
        (
            check_first_nonfinite,
            lambda pairs: next((n for n, x in pairs if not x.abs().max().isfinite()), None),
            "an empty tensor, then a loss of inf: ",
        ),
        (check_pardon, {"precision": "int8"}, "int8"),
        (check_ledger, lambda p: p, "`ledger(1, 0)` raised TypeError"),
        (check_first_nonfinite, lambda pairs: pairs[0], "not subscriptable"),
        (check_witness, lambda layer, optimizer, step: layer, "you return a Linear"),
    ],
)
def test_an_answer_that_raises_is_told_why(check, answer, said):
    result = check.result(answer)
    assert result.status in ("error", "failed")
    assert said in result.message


@pytest.mark.parametrize("pardon", [{"steps": 10**9}, {"task": "autoencoder"}, {"lr": "1e-3"}])
def test_a_pardon_that_is_none_is_refused_before_it_runs(pardon, monkeypatch):
    monkeypatch.setattr("labkit.labs.three_crimes.checks.repair.run", None)
    assert check_pardon.result(pardon).status == "failed"


def test_the_bf16_step_is_a_step_of_labkits_bf16_training():
    data = digits()
    images, labels = data.train_images[:96].flatten(1), data.train_labels[:96]
    pairs = list(zip(images.split(32), labels.split(32), strict=True))
    ends = []
    for by_hand in (True, False):
        torch.manual_seed(0)
        model = mlp(64, 16, 10)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        if by_hand:
            with emulate_gpu():
                losses = [solutions.bf16_step(model, optimizer, *pair) for pair in pairs]
        else:
            records = train(model, pairs, optimizer=optimizer, precision="bf16", progress=False)
            losses = [record.loss for record in records]
        ends.append((losses, torch.cat([p.detach().flatten() for p in model.parameters()])))
    (losses, weights), (others, theirs) = ends
    assert losses == others and torch.equal(weights, theirs)


@pytest.mark.parametrize(("scene", "wanted"), list(zip(_UPDATES, _LOST, strict=True)))
def test_lost_updates_are_those_that_torch_loses_in_place(scene, wanted):
    (dtype, weights, updates), (lost, tried) = _UPDATES[scene], wanted
    weight, update = torch.tensor(weights, dtype=dtype), torch.tensor(updates, dtype=torch.float32)
    stored = weight.clone().add_(update)
    assert int((update != 0).sum()) == tried
    assert int(((stored == weight) & (update != 0)).sum()) == lost
    assert solutions.lost_updates(weight, update) == pytest.approx(lost / max(tried, 1))


def one_step(bf16, keep_gradients):
    """Bytes a parameter at the three moments of a step, of layers without a bias."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256, bias=False) for _ in range(4)))
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    x = torch.randn(1, 256, requires_grad=True)
    with LiveBytes().hold(model) as live:
        for _ in range(2):
            live.restart()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
                loss = model(x).square().mean()
            live.mark("forward")
            loss.backward()
            live.mark("backward")
            optimizer.step()
            optimizer.zero_grad(set_to_none=not keep_gradients)
            live.mark("step")
    return live, [size / (4 * 256 * 256) for _, size in live.marks.values()]


@pytest.mark.parametrize(
    ("bf16", "keep_gradients", "moments"),
    [(False, False, (12, 16, 12)), (True, False, (14, 16, 12)), (True, True, (18, 16, 16))],
)
def test_a_step_holds_the_bytes_that_the_lab_says(bf16, keep_gradients, moments):
    live, found = one_step(bf16, keep_gradients)
    # The inputs, outputs and gradients of a batch of 1 are below 0.05 bytes a parameter.
    assert all(0 <= got - want < 0.05 for got, want in zip(found, moments, strict=True))
    words = time_line({"a step": live}, 4 * 256 * 256).alt
    assert all(f" {moment:.1f}" in words for moment in moments)


def test_the_published_figures_give_the_times_and_factors_that_the_lab_names():
    assert [round(256 / rate, 2) for rate in (367, 1200)] == [0.70, 0.21]
    assert (round(63_361 / 16_882, 1), round(1200 / 367, 1)) == (3.8, 3.3)
