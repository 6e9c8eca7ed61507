"""Lab 16's checks: right answers in other ways, and wrong ones no check was written for."""

import math

import pytest
import torch
from torch.nn import functional as F

from labkit.labs.interview.checks import check_gpt16, check_train_amp
from labkit.labs.interview.solutions import GPT16, train_amp
from labkit.training.models import HandmadeGPT


class ByLibrary(HandmadeGPT):
    """What torch ships, in place of repaired lines."""

    def norm(self, x):
        return F.rms_norm(x.float(), x.shape[-1:], eps=1e-8)

    def attend(self, query, key, value):
        query, key = self.norm(query), self.norm(key)
        return F.scaled_dot_product_attention(
            query.to(value.dtype), key.to(value.dtype), value, is_causal=True, scale=1.0
        )

    def loss(self, logits, next_tokens):
        return F.cross_entropy(logits.flatten(0, 1), next_tokens.flatten())


class WideStatistics(HandmadeGPT):
    """Only the statistics are float32; the mask is the dtype's own smallest number."""

    def norm(self, x):
        mean = x.float().pow(2).mean(dim=-1, keepdim=True)
        return x / (mean + 1e-8).sqrt()

    def attend(self, query, key, value):
        scores = self.norm(query) @ self.norm(key).transpose(-2, -1)
        past = torch.ones(scores.shape[-2:]).tril().bool()
        scores = torch.where(past, scores, torch.finfo(scores.dtype).min)
        return torch.softmax(scores, dim=-1) @ value


class WideAttention(GPT16):
    """Attention in float32: slower, and right."""

    def attend(self, query, key, value):
        with torch.autocast("cpu", enabled=False):
            return super().attend(query.float(), key.float(), value.float())


@pytest.mark.parametrize("right", [ByLibrary, WideStatistics, WideAttention])
def test_other_right_models_pass(right):
    assert check_gpt16.result(right).status == "passed"


def own_scaler(model, batches, optimizer, device, every, limit, state=None):
    """A loop with a scaler of its own, a state of its own, and all losses of a step at once."""
    scale, good = state or (2.0**16, 0)
    losses, norms = [], []
    for first in range(0, len(batches), every):
        group = batches[first : first + every]
        model.zero_grad(set_to_none=True)
        told = []
        for tokens, following in group:
            with torch.autocast(device, torch.float16):
                told.append(model.loss(model(tokens), following))
            (told[-1] * (scale / len(group))).backward()
        for parameter in model.parameters():
            parameter.grad.div_(scale)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        if norm.isfinite():
            optimizer.step()
            good += 1
        else:
            scale, good = scale / 2, 0
        losses.append(torch.stack(told).mean().item())
        norms.append(norm.item())
    return losses, norms, (scale, good)


def the_scaler_itself(model, batches, optimizer, device, every, limit, state=None):
    """The state is the scaler; micro-batches are counted, and the tail is stepped after."""
    scaler = state or torch.amp.GradScaler(device)
    losses, norms = [], []
    sizes = [every] * (len(batches) // every) + [len(batches) % every or every]
    optimizer.zero_grad()
    for place, (tokens, following) in enumerate(batches):
        size = sizes[place // every]
        with torch.autocast(device_type=device, dtype=torch.float16):
            loss = model.loss(model(tokens), following)
        scaler.scale(loss / size).backward()
        losses += [] if place % every else [0.0]
        losses[-1] += loss.item() / size
        if (place + 1) % every == 0 or place + 1 == len(batches):
            scaler.unscale_(optimizer)
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit))
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    return losses, norms, scaler


@pytest.mark.parametrize("right", [own_scaler, the_scaler_itself])
def test_other_right_loops_pass(right):
    assert check_train_amp.result(right).status == "passed"


class Halved(HandmadeGPT):
    """`.half()` on everything: no mask repair, weights in FP16."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.half()


class NoMask(GPT16):
    def attend(self, query, key, value):
        scores = self.norm(query) @ self.norm(key).transpose(-2, -1)
        return scores.softmax(dim=-1) @ value


class ScaledScores(GPT16):
    def attend(self, query, key, value):
        return super().attend(query / math.sqrt(query.shape[-1]), key, 2 * value)


class HalfLoss(GPT16):
    def loss(self, logits, following):
        return super().loss(logits, following).half()


class GuardedLogarithm(GPT16):
    def loss(self, logits, following):
        p = logits.float().softmax(dim=-1).gather(-1, following.unsqueeze(-1))
        return -torch.log(p + 1e-8).mean()


class LargerEps(GPT16):
    def norm(self, x):
        return F.rms_norm(x.float(), x.shape[-1:], eps=1e-6)


class OnlyFeedForward(GPT16):
    """FP16 in one place, for the check to see."""

    def forward(self, tokens):
        with torch.autocast("cpu", enabled=False):
            feed = self.feed_forward.forward
            self.feed_forward.forward = lambda x: self._narrow(feed, x)
            return super().forward(tokens)

    def _narrow(self, feed, x):
        with torch.autocast("cpu", torch.float16):
            return feed(x)


OTHER_WRONG = [
    Halved,
    NoMask,
    ScaledScores,
    HalfLoss,
    GuardedLogarithm,
    LargerEps,
    OnlyFeedForward,
    HandmadeGPT,
    lambda *_: None,
]


@pytest.mark.parametrize("wrong", OTHER_WRONG)
def test_other_wrong_models_do_not_pass(wrong):
    assert check_gpt16.result(wrong).status in ("failed", "error")


def bf16(model, batches, optimizer, device, every, limit, state=None):
    losses, norms = [], []
    for first in range(0, len(batches), every):
        group = batches[first : first + every]
        optimizer.zero_grad()
        losses.append(0.0)
        for tokens, following in group:
            with torch.autocast(device, torch.bfloat16):
                loss = model.loss(model(tokens), following) / len(group)
            loss.backward()
            losses[-1] += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item())
        optimizer.step()
    return losses, norms, None


def no_state(*arguments, **rest):
    losses, norms, _ = train_amp(*arguments[:6])
    return losses, norms, None


def two_things(*arguments, **rest):
    return train_amp(*arguments)[:2]


def frozen_scale(model, batches, optimizer, device, every, limit, state=None):
    halves = [torch.amp.GradScaler(device, init_scale=2.0**15).state_dict()]
    return train_amp(model, batches, optimizer, device, every, limit, halves[0])


def few_norms(*arguments, **rest):
    losses, norms, state = train_amp(*arguments, **rest)
    return losses, norms[-1:], state


def a_scaler_each_step(model, batches, optimizer, device, every, limit, state=None):
    losses, norms = [], []
    for first in range(0, len(batches), every):
        rest = model, batches[first : first + every], optimizer, device, every, limit
        one, two, _ = train_amp(*rest)
        losses, norms = losses + one, norms + two
    return losses, norms, None


def small_scale(model, batches, optimizer, device, every, limit, state=None):
    state = state or torch.amp.GradScaler(device, init_scale=1024.0).state_dict()
    return train_amp(model, batches, optimizer, device, every, limit, state)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (bf16, "The network trained in bfloat16"),
        (few_norms, "3 norms are wanted"),
        (small_scale, "(first scale 1024)"),
        (two_things, "Three things are wanted"),
    ],
)
def test_what_ran_and_how_it_was_scaled_is_said(wrong, said):
    assert said in check_train_amp.result(wrong).message


def test_a_scaler_each_step_is_not_called_a_dropped_tail():
    assert (
        "the-tail-may-be-dropped" not in check_train_amp.result(a_scaler_each_step).misconceptions
    )


OTHER_LOOPS = [bf16, no_state, two_things, frozen_scale, a_scaler_each_step, lambda *a: None]


@pytest.mark.parametrize("wrong", OTHER_LOOPS)
def test_other_wrong_loops_do_not_pass(wrong):
    assert check_train_amp.result(wrong).status in ("failed", "error")


def test_a_lost_state_is_named_however_it_is_lost():
    assert check_train_amp.result(no_state).misconceptions == ("scaler-state-is-disposable",)
