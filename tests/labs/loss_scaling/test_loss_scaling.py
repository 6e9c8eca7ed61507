"""Lab 04's checks: other right answers pass, and other wrong ones are told their idea."""

import math

import numpy as np
import pytest
import torch

from labkit.labs.loss_scaling.checks import (
    check_masters,
    check_scaled_step,
    check_scaler,
    check_transition,
)
from labkit.labs.loss_scaling.recorded import five_traces

# Right answers, written in other ways than the solution.


class MastersInSGD:
    """torch's own SGD over float32 copies."""

    def __init__(self, parameters, lr):
        self.pairs = [(p, torch.nn.Parameter(p.detach().float())) for p in parameters]
        self.sgd = torch.optim.SGD([master for _, master in self.pairs], lr=lr)

    def step(self):
        for p, master in self.pairs:
            master.grad = None if p.grad is None else p.grad.float()
        self.sgd.step()
        for p, master in self.pairs:
            p.data.copy_(master.data)


class MastersInFloat64:
    def __init__(self, parameters, lr):
        self.lr, self.master = lr, {p: p.detach().double() for p in parameters}

    @torch.no_grad()
    def step(self):
        for p in self.master:
            if p.grad is not None:
                self.master[p] = self.master[p] - self.lr * p.grad.double()
                p.copy_(self.master[p].float())


def transition_by_numpy(scale, count, found_inf, growth=2.0, backoff=0.5, interval=2000):
    with np.errstate(over="ignore", under="ignore"):
        count = 0 if found_inf else count + 1
        if found_inf:
            scale = float(np.float32(scale * backoff))
        elif count == interval:
            count = 0
            if np.isfinite(np.float32(scale * growth)):
                scale = float(np.float32(scale * growth))
    return [scale, count]


def transition_by_torch(scale, count, found_inf, growth=2.0, backoff=0.5, interval=2000):
    scale, count = torch.tensor([scale]), torch.tensor([count], dtype=torch.int32)
    found = torch.tensor([float(found_inf)])
    torch._amp_update_scale_(scale, count, found, growth, backoff, interval)
    return scale.item(), count.item()


@torch.no_grad()
def step_looking_first(optimizer, scale):
    gradients = [
        p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None
    ]
    if any(gradient.dtype == torch.float16 for gradient in gradients):
        raise ValueError("FP16 gradients")
    if not all(math.isfinite(gradient.abs().max().item()) for gradient in gradients):
        return torch.tensor(True)
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                p.grad.mul_(1 / scale)
    optimizer.step()
    return torch.tensor(False)


@pytest.mark.parametrize(
    ("check", "right"),
    [
        (check_masters, MastersInSGD),
        (check_masters, MastersInFloat64),
        (check_transition, transition_by_numpy),
        (check_transition, transition_by_torch),
        (check_scaled_step, step_looking_first),
    ],
)
def test_right_answers_written_in_other_ways_pass(check, right):
    result = check.result(right)
    assert result.status == "passed", result.message


# Wrong answers that no check was written for.


def doubling_each_time(scale, count, found_inf, growth=2.0, backoff=0.5, interval=2000):
    return (scale * backoff, 0) if found_inf else (scale * growth, 0)


def in_float64(scale, count, found_inf, growth=2.0, backoff=0.5, interval=2000):
    if found_inf:
        return max(scale * backoff, 0.0), 0
    return (scale * growth, 0) if count == interval - 1 else (scale, count + 1)


def without_reset(scale, count, found_inf, growth=2.0, backoff=0.5, interval=2000):
    if found_inf:
        return scale * backoff, count
    return transition_by_numpy(scale, count, False, growth, backoff, interval)


class Weights16:
    """The update is made in BF16, by the parameters' own dtype."""

    def __init__(self, parameters, lr):
        self.parameters, self.lr = parameters, lr

    @torch.no_grad()
    def step(self):
        for p in self.parameters:
            if p.grad is not None:
                p.sub_(self.lr * p.grad)


class Rebuilt:
    def __init__(self, parameters, lr):
        self.parameters, self.lr = parameters, lr

    def step(self):
        for p in self.parameters:
            if p.grad is not None:
                master = p.data.to(torch.float32)
                master.sub_(p.grad.to(torch.float32), alpha=self.lr)
                p.data.copy_(master)


@pytest.mark.parametrize(
    ("check", "wrong", "idea"),
    [
        (check_transition, doubling_each_time, "growth-at-each-step"),
        (check_transition, in_float64, "scale-is-a-python-float"),
        (check_transition, without_reset, "counter-survives-overflow"),
        (check_masters, Rebuilt, "masters-are-a-cast"),
    ],
)
def test_wrong_answers_written_in_another_way_are_told_their_idea_too(check, wrong, idea):
    result = check.result(wrong)
    assert (result.status, result.misconceptions) == ("failed", (idea,)), result.message


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (check_transition, lambda *state, **settings: 65536.0),
        (check_transition, lambda scale, count, *rest, **settings: (scale, count)),
        (check_scaled_step, lambda optimizer, scale: None),
        (check_scaled_step, lambda optimizer, scale: False),
        (check_masters, Weights16),
    ],
)
def test_other_wrong_answers_fail_with_a_sentence(check, wrong):
    result = check.result(wrong)
    assert result.status == "failed" and len(result.message) > 20


def test_an_answer_that_raises_is_an_error_with_its_own_line():
    def without_none(optimizer, scale):
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad /= scale
        optimizer.step()
        return False

    result = check_scaled_step.result(without_none)
    assert result.status == "error" and "p.grad /= scale" in result.message


def test_a_number_under_the_name_of_the_method_is_an_error_that_says_so():
    class Shadowed:
        def __init__(self, scale=65536.0, interval=2000):
            self.scale = scale

        def scale(self, loss):
            return loss * self.scale

    result = check_scaler.result(Shadowed)
    assert result.status == "error" and "'float' object is not callable" in result.message


def test_the_five_traces_show_what_their_names_say():
    runs = five_traces()
    skipped = {name: [r.step for r in records if r.skipped] for name, records in runs.items()}
    fell = {name: records[-1].loss < records[0].loss / 3 for name, records in runs.items()}
    assert 20 < len(skipped["A"]) < 40 and max(skipped["A"]) > 50  # growth at each step
    assert skipped["B"] == [] and not fell["B"] and runs["B"][0].grad_norm == 0  # underflow
    assert skipped["C"] == list(range(len(skipped["C"]))) and fell["C"]  # calibration
    gaps = [b - a for a, b in zip(skipped["D"], skipped["D"][1:], strict=False)]
    assert 0 < len(skipped["D"]) < 10 and min(gaps) > 6 and fell["D"]  # healthy
    first = skipped["E"][0]
    assert skipped["E"] == list(range(first, 60)) and math.isnan(runs["E"][first].loss)  # NaN
