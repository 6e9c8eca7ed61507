"""Lab 01's checks: right answers in other ways, and wrong answers no check was written for."""

import math

import pytest
import torch

from labkit.emulation import emulate_gpu
from labkit.labs.three_crimes import solutions
from labkit.labs.three_crimes.checks import (
    check_causes,
    check_first_nonfinite,
    check_kinds,
    check_ledger,
    check_pardon,
    check_witness,
)
from labkit.labs.three_crimes.suspects import SUSPECTS

TRUE_CAUSES = {
    "E": "gradients are 0",
    "D": "updates below half a gap",
    "C": "eps is 0",
    "A": "healthy",
}
TRUE_KINDS = ("pure", "autocast", "masters", "fp8", *["quantization"] * 2, *["none"] * 2)


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
        (check_causes, TRUE_CAUSES),
        (check_causes, dict(sorted(TRUE_CAUSES.items()))),
        (check_kinds, TRUE_KINDS),
        (check_kinds, list(TRUE_KINDS)),
        (check_kinds, [kind.title() for kind in TRUE_KINDS]),
        (check_causes, TRUE_CAUSES | {"A": "Healthy"}),
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


def swapped(one, other):
    kinds = list(TRUE_KINDS)
    kinds[one - 1], kinds[other - 1] = kinds[other - 1], kinds[one - 1]
    return kinds


def says_float16(layer, optimizer, step):
    step()
    return dict.fromkeys(("parameter", "activation", "loss", "gradient", "state"), torch.float16)


@pytest.mark.parametrize(
    ("check", "wrong", "said", "ideas"),
    [
        (check_witness, twice, "`step()` ran 2 times", ()),
        (check_witness, says_float16, "FP32: you report parameter float16; it is float32", ()),
        (check_witness, lambda layer, optimizer, step: {"parameter": 1}, "a dict of parameter", ()),
        (check_witness, lambda layer, optimizer, step: step(), "is wanted", ()),
        (check_first_nonfinite, lambda pairs: None, "'hidden' is wanted", ()),
        (check_first_nonfinite, lambda pairs: dict(pairs).get("x", True), "None is wanted", ()),
        (check_first_nonfinite,
         lambda pairs: next((n for n, x in pairs if math.isnan(x.double().sum())), None),
         "'scores' is wanted", ("nan-is-the-only-nonfinite",)),
        (check_ledger, ledger_in_gigabytes, "`ledger(1, 0)`: weights is 4e-09 bytes", ()),
        (check_ledger, lambda p, a: dict.fromkeys(ledger_by_witness(p, a), 2 * p), "weights is 2",
         ()),
        (check_ledger, lambda p, a: {"weights": 4, "gradients": 4, "adam": 8, "copies": 2,
                                     "activations": 2 * a},
         "weights is 4 bytes, and so it is for every model. That is what one of them takes: how "
         "many parameters", ()),
        (check_ledger, lambda p, a: ledger_by_witness(p, a) | {"activations": 2},
         "how many activations are there?", ()),
        (check_ledger, lambda p, a: ledger_by_witness(p, a) | {"weights": 2 * p, "copies": 0},
         "Adam update them?", ("autocast-casts-the-parameters",)),
        (check_witness, names_of_dtypes,
         "FP32: parameter is 'torch.float32', a str; a dtype is wanted", ()),
        (check_witness, weight_itself, "FP32: parameter is a tensor of shape", ()),
        (check_witness, hook_that_returns,
         "FP32: your hook returns a dtype, and the layer hands that on",
         ("what-a-hook-returns-is-ignored",)),
        (check_first_nonfinite, first_or_else_none, "'hidden' holds NaN. You answer None after",
         ("one-look-is-a-search",)),
        (check_causes, TRUE_CAUSES | {"D": "Healthy"}, "D: you say 'healthy'",
         ("a-falling-loss-is-health",)),
        (check_kinds, swapped(2, 3), "Of which dtype is the model here?",
         ("autocast-casts-the-parameters",)),
        (check_pardon, {"steps": 3000}, "'steps' stays as it is; choose one setting among", ()),
        (check_pardon, {"momentum": 0.9}, "'momentum' stays as it is", ()),
        (check_pardon, {"loss_scale": 256.0}, "'loss_scale' stays as it is", ()),
        (check_pardon, SUSPECTS["D"], "pardon is a Trial; a dict with one setting", ()),
        (check_pardon, {"lr": "1e-3"}, "lr is '1e-3', a str; a number is wanted", ()),
        (check_pardon, {"precision": 16}, "precision is 16, an int; a name is wanted", ()),
        (check_ledger, lambda p, a: 18 * p, "a dict with the keys weights", ()),
        (check_causes, TRUE_CAUSES | {"C": "overflow", "D": "overflow"}, "C: you say 'overflow'",
         ("every-failure-is-overflow",)),
        (check_causes, TRUE_CAUSES | {"E": "healthy"}, "every gradient is 0", ()),
        (check_causes, TRUE_CAUSES | {"E": "underflow"}, "is 'underflow', a str; one of", ()),
        (check_causes, list(TRUE_CAUSES), "the keys A, C, D, E", ()),
        (check_kinds, ["pure"] * 8, "Number 2: you say 'pure'", ()),
        (check_kinds, ["pure"] * 7, "a list of 7; 8 values", ()),
        (check_kinds, [*TRUE_KINDS[:7], "amp"], "is 'amp', a str; one of", ()),
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
        (check_witness, lambda layer, optimizer, step: layer, "Linear came back"),
    ],
)
def test_an_answer_that_raises_is_told_why(check, answer, said):
    result = check.result(answer)
    assert result.status in ("error", "failed")
    assert said in result.message


@pytest.mark.parametrize("pardon", [{"steps": 10**9}, {"task": "autoencoder"}, {"lr": "1e-3"}])
def test_a_pardon_that_is_none_is_refused_before_it_runs(pardon, monkeypatch):
    monkeypatch.setattr("labkit.labs.three_crimes.checks.run", None)
    assert check_pardon.result(pardon).status == "failed"
