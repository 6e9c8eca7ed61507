"""Checks of lab 05's loops: fit, clip, accumulate, two optimizers; see ``loop_ends``.

All runs are CPU runs under ``emulate_gpu()``, in which a scale of 65536 really overflows.
"""

import math
import warnings
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from labkit.emulation import emulate_gpu
from labkit.labs.engine import Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import (
    Loop,
    brief,
    filled,
    first_other,
    flat,
    labels,
    same_end,
    seeded,
)

LAB = "05_automatic_mixed_precision"

# The loop

_CLASSES = torch.tensor(
    [[2.0, 0, 0, 0, 0, 0], [0, 2, 0, 0, 0, 0], [0, 0, 2, 0, 0, 0], [0, 0, 0, 2, 0, 0]]
)


def _batch(seed, count=16, scale=1.0):
    targets = labels(seed, count)
    return scale * (_CLASSES[targets] + seeded(seed, count, 6)), targets


class _Unheard(nn.Module):
    """A network that switches autocast off inside, as some published layers do."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return self.inner(x.float())


def _fit_network():
    layers = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)
    network = filled(nn.Sequential(*layers), 1)
    # Large features, so that the first scaled steps overflow: by that a live scaler is seen.
    nn.init.constant_(network[1].weight, 4.0)
    return network


def run_fit(fit):
    """`fit` in FP16, in BF16, and on a network that does not listen to autocast."""
    shown = {}
    with emulate_gpu():
        for name, dtype, wrap in (
            ("fp16", torch.float16, nn.Sequential),
            ("bf16", torch.bfloat16, nn.Sequential),
            ("unheard", torch.float16, _Unheard),
        ):
            network = wrap(_fit_network()).eval()  # as an evaluation before left it
            optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
            batches = [_batch(20 + i) for i in range(6 if name != "unheard" else 1)]
            inputs, targets = _batch(40, count=64)
            few = targets < 2  # two classes of four: their own statistics mislead
            test = inputs[few], targets[few]
            start, met = flat(network), []
            network.register_forward_hook(
                lambda module, inputs, output, met=met: (
                    met.append(str(output.dtype)) if torch.is_grad_enabled() else None
                )
            )
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                end = attempt(fit, network, batches, test, optimizer, dtype, "cpu")
            loud = any(issubclass(w.category, (UserWarning, RuntimeWarning)) for w in warned)
            shown[name] = end if name != "unheard" else None
            shown[name + " met"] = sorted(set(met)) if name != "unheard" else None
            shown[name + " weights"] = flat(network) - start if name != "unheard" else None
            shown[name + " loud"] = loud or type(end) is Raised
    return shown


_SILENT = ("asked-is-active", "autocast-belongs-around-backward", "cuda-amp-works-everywhere")


def fit(model, batches, test, optimizer, dtype, device, *, mistake=""):
    """labkit's own loop: (losses, share of the test that is right); with a mistake on request."""
    scaler = torch.amp.GradScaler(device, enabled=dtype is torch.float16)
    region = partial(torch.autocast, device, dtype=dtype)
    if mistake == "cuda-amp-works-everywhere":
        scaler, region = torch.cuda.amp.GradScaler(), partial(torch.cuda.amp.autocast, dtype=dtype)
    if mistake == "autocast-casts-the-parameters":
        model.to(dtype)
    losses = []
    if mistake != "train-mode-is-the-default":
        model.train()
    for inputs, targets in batches:
        if mistake != "gradients-reset-themselves":
            optimizer.zero_grad()
        if mistake == "autocast-casts-the-parameters":
            inputs = inputs.to(dtype)
        outside = mistake == "autocast-belongs-around-backward"
        with region(enabled=not outside):
            output = model(inputs)
            loss = F.cross_entropy(output, targets)
        if output.dtype is not dtype and mistake not in _SILENT:
            warnings.warn(f"asked for {dtype}, computed in {output.dtype}", stacklevel=2)
        scaled = scaler.scale(loss)
        with region(enabled=outside):
            scaled.backward()
        if mistake == "any-step-unscales":
            optimizer.step()
            losses.append(loss.item())
            continue
        scaler.step(optimizer)
        if mistake != "the-scale-adjusts-itself":
            scaler.update()
        if mistake == "update-may-be-called-again":
            scaler.update()
        losses.append((scaled if mistake == "scaled-loss-is-the-loss" else loss).item())
    if mistake != "eval-mode-is-optional":
        model.eval()
    with torch.no_grad(), region():
        right = model(test[0]).argmax(dim=1) == test[1]
    return losses, right.float().mean().item()


def _fit_evidence(got, want):
    for name in ("fp16", "bf16"):
        end = got[name]
        parts = ("", " weights", " met", " loud")
        if all(same_end(got[name + part], want[name + part]) for part in parts):
            continue
        if type(end) is Raised:
            return f"In {name} your loop stopped: {brief(end)}."
        if type(end) not in (tuple, list) or len(end) != 2:
            return "Two things are wanted: the list of losses, and the share of right answers."
        count = len(want[name][0])
        if not isinstance(end[0], (list, tuple)) or len(end[0]) != count:
            return f"A list of {count} losses is wanted, one for each batch."
        other = first_other(end[0], want[name][0])
        if other:
            place, a, b = other
            return f"In {name} loss {place} is {brief(a)}; {brief(b)} is wanted."
        if got[f"{name} weights"].dtype is not torch.float32:
            return f"After the run the weights are {got[f'{name} weights'].dtype}."
        if got[f"{name} loud"] and same_end(got[f"{name} weights"], want[f"{name} weights"]):
            return f"In {name} the output had the dtype that was asked for, and your loop warned."
        if got[f"{name} met"] != want[f"{name} met"]:
            met = " and ".join(got[f"{name} met"]).replace("torch.", "")
            return f"Asked for {name}, your loop trained on outputs of {met or 'no'} dtype."
        if same_end(got[f"{name} weights"], want[f"{name} weights"]):
            share = brief(want[name][1])
            return f"The share of right answers is {brief(end[1])}; {share} is wanted."
        return f"In {name} the losses are right and the weights end elsewhere."
    return "A network switches autocast off inside. You trained it and said nothing."


def _scaled_loss(got, want):
    """Whether the losses are large by a factor that only a scale has."""
    try:
        large = float(got["fp16"][0][0]) > 1000 * want["fp16"][0][0]
    except (TypeError, ValueError, IndexError, AttributeError):
        return None
    went = all(same_end(got[f"fp16{part}"], want[f"fp16{part}"]) for part in (" weights", " met"))
    return "scaled-loss-is-the-loss" if large and went else None


FIT = Loop(
    run_fit,
    fit,
    {
        "gradients-reset-themselves": "What was in .grad stays there, and so does an inf. Which "
        "line empties it?",
        "scaled-loss-is-the-loss": "That is the loss times the scale. Which one did you log?",
        "autocast-belongs-around-backward": "The forward pass ran in float32. What must stand "
        "inside the block, and what need not?",
        "update-may-be-called-again": "`update` forgets the inf checks it has used. How often may "
        "an iteration call it?",
        "the-scale-adjusts-itself": "The first scaled gradient overflows, and so do all others. "
        "Which call lowers the scale?",
        "any-step-unscales": "The optimizer stepped with gradients times 65536. Whose step divides "
        "them first?",
        "eval-mode-is-optional": "Batch norm used the test batch's own statistics. Which mode "
        "belongs to a test?",
        "train-mode-is-the-default": "The network came to you in eval mode. Which mode does "
        "training need?",
        "cuda-amp-works-everywhere": "On this device torch.cuda.amp does nothing: float32, and no "
        "scaler. Which names take a device?",
        "asked-is-active": "Which dtype came out of the network, and which was asked for?",
        "autocast-casts-the-parameters": "Under autocast the optimizer keeps float32 weights. "
        "Who changed them?",
    },
    _fit_evidence,
    lambda shown: [
        shown[f"{name}{part}"] for name in ("fp16", "bf16") for part in (" weights", " met")
    ],
    _scaled_loss,
)


@check(run_fit)
def check_fit(got):
    """The whole loop, in FP16 and BF16, that says when it is neither."""
    FIT.judge(got)


FIT.ship(check_fit)


# Clip

LIMIT = 1.0
_CLIP_BATCHES = ((60, 1.0), (61, 0.3), (62, 3.0), (63, 9.0), (64, 0.3), (65, 9.0), (66, 3.0))


def _clip_network():
    return filled(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)), 2)


def run_clipped_step(clipped_step):
    """Seven steps on batches of small and large gradients; the first scales overflow."""
    network = _clip_network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**17, growth_interval=4)
    shown = {"norms": [], "scales": [], "moved": []}
    with emulate_gpu():
        for seed, scale in _CLIP_BATCHES:
            before = flat(network)
            inputs, targets = _batch(seed, scale=scale)
            norm = attempt(clipped_step, network, inputs, targets, optimizer, scaler, LIMIT, "cpu")
            shown["norms"].append(norm)
            shown["scales"].append(scaler.get_scale())
            shown["moved"].append(flat(network) - before)
    return shown


def clipped_step(model, inputs, targets, optimizer, scaler, limit, device, *, mistake=""):
    """labkit's own step with a clipped norm; with a mistake on request."""
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    parameters = list(model.parameters())
    if mistake == "clip-before-unscale":
        norm = clip_grad_norm_(parameters, limit) / scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        return norm.item()
    if mistake == "step-does-not-unscale":
        for parameter in parameters:
            parameter.grad /= scaler.get_scale()
        norm = clip_grad_norm_(parameters, limit)
    elif mistake == "reported-norm-is-true":
        norm = torch.stack([p.grad.norm() for p in parameters]).norm()
        scaler.unscale_(optimizer)
        clip_grad_norm_(parameters, limit)
    else:
        scaler.unscale_(optimizer)
        if mistake == "unscale-is-idempotent":
            scaler.unscale_(optimizer)
        if mistake == "clip-may-come-last":
            scaler.step(optimizer)
        if mistake == "each-value-or-the-norm":
            norm = torch.stack([p.grad.norm() for p in parameters]).norm()
            clip_grad_value_(parameters, limit)
        else:
            norm = clip_grad_norm_(parameters, limit)
        if mistake == "norm-after-clipping":
            norm = torch.stack([p.grad.norm() for p in parameters]).norm()
    if mistake != "clip-may-come-last":
        scaler.step(optimizer)
    if mistake != "the-scale-adjusts-itself":
        scaler.update()
    if mistake == "update-may-be-called-again":
        scaler.update()
    return norm.item()


def _clip_evidence(got, want):
    for i, norm in enumerate(want["norms"]):
        moved, wanted = got["moved"][i], want["moved"][i]
        if same_end(moved, wanted) and same_end(got["norms"][i], norm):
            continue
        if type(got["norms"][i]) is Raised:
            return f"Your step raised: {brief(got['norms'][i])}."
        if same_end(moved, wanted):
            return f"The gradient norm is {brief(norm)}; you report {brief(got['norms'][i])}."
        limit = "nothing should be clipped" if norm < LIMIT else "the step has length 0.1"
        return (
            f"The gradient norm is {brief(norm)} and the limit {LIMIT:g}: {limit}, "
            f"yet the weights moved by {moved.norm():.2g} instead of {wanted.norm():.2g}."
        )
    return f"The scales were {got['scales']}; {want['scales']} is wanted. Is `update` called?"


CLIP = Loop(
    run_clipped_step,
    clipped_step,
    {
        "clip-before-unscale": "You clipped *scaled* gradients: your real limit is 1 / scale, such "
        "as 1/65536. Which call must come before?",
        "step-does-not-unscale": "`step` unscales what you had unscaled by hand. Which call tells "
        "the scaler that it is done?",
        "unscale-is-idempotent": "`unscale_` divides each time, so it may be called once. Who else "
        "calls it, and when not?",
        "the-scale-adjusts-itself": "The scaler waits for the end of the iteration. Which call is "
        "that?",
        "update-may-be-called-again": "The second `update` has no inf check to go by. How often is "
        "it called?",
        "clip-may-come-last": "The step was taken before you clipped. What is a clipped gradient "
        "good for afterwards?",
        "each-value-or-the-norm": "Clipping each value turns the gradient. Which function keeps "
        "its direction?",
        "reported-norm-is-true": "That norm still holds the scale. When do you take it?",
        "norm-after-clipping": "That is the norm after clipping. What does clip_grad_norm_ return?",
    },
    _clip_evidence,
    lambda shown: shown["moved"],
)


@check(run_clipped_step)
def check_clipped_step(got):
    """A step clipped by its true norm, under a scale that overflows at first."""
    CLIP.judge(got)


CLIP.ship(check_clipped_step)


# Accumulate


def _micro_batches(seed, sizes, scale=1.0):
    return [_batch(seed + i, count=size, scale=scale) for i, size in enumerate(sizes)]


def run_accumulate(accumulate):
    """`accumulate` on even groups, on an uneven tail, and on one group with k too large."""
    shown = {}
    with emulate_gpu():
        for name, sizes, k in (
            ("8 8 | 8 8", (8, 8, 8, 8), 2),
            ("8 8 8 | 8 2", (8, 8, 8, 8, 2), 3),
            ("8 8 8 | 1", (8, 8, 8, 1), 3),
        ):
            network = _clip_network()
            optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
            scaler = torch.amp.GradScaler("cpu", init_scale=2.0**13)
            batches, start = _micro_batches(80, sizes), flat(network)
            if name == "8 8 | 8 8":  # an overflow at first: its inf must not stay
                batches[0] = 30 * batches[0][0], batches[0][1]
            at_once = []
            network.register_forward_pre_hook(
                lambda module, args, at_once=at_once: at_once.append(len(args[0]))
            )
            losses = attempt(accumulate, network, batches, k, optimizer, scaler, "cpu")
            shown[name] = losses
            shown[name + " at once"] = max(at_once, default=0)
            shown[name + " moved"] = flat(network) - start
    return shown


def accumulate(model, batches, k, optimizer, scaler, device, *, mistake=""):
    """labkit's own epoch of steps, each over k micro-batches; with a mistake on request."""
    losses = []
    for first in range(0, len(batches), k):
        group = batches[first : first + k]
        if mistake == "the-tail-may-be-dropped" and len(group) < k:
            break
        total, mean = sum(len(targets) for _, targets in group), 0.0
        if mistake != "gradients-reset-themselves":
            optimizer.zero_grad()
        for inputs, targets in group:
            share = len(targets) / total
            if mistake == "mean-of-means":
                share = 1 / len(group)
            elif mistake == "every-group-has-k":
                share = 1 / k
            elif mistake == "sums-need-no-division":
                share = 1
            if mistake == "zero-grad-each-micro-batch":
                optimizer.zero_grad()
            with torch.autocast(device, dtype=torch.float16):
                loss = F.cross_entropy(model(inputs), targets) * share
            scaler.scale(loss).backward()
            mean += loss.item()
            if mistake == "unscale-each-micro-batch":
                scaler.unscale_(optimizer)
            if mistake == "step-each-micro-batch":
                scaler.step(optimizer)
                scaler.update()
        if mistake != "step-each-micro-batch":
            scaler.step(optimizer)
            scaler.update()
        losses.append(mean)
    return losses


def _accumulate_evidence(got, want):
    for name in ("8 8 | 8 8", "8 8 8 | 8 2", "8 8 8 | 1"):
        losses, moved, wanted = got[name], got[name + " moved"], want[name + " moved"]
        if same_end(losses, want[name]) and same_end(moved, wanted):
            continue
        where = f"Micro-batches of {name.replace(' | ', ', then ')}:"
        if type(losses) is Raised:
            return f"{where} {brief(losses)}."
        if isinstance(losses, (list, tuple)) and len(losses) != len(want[name]):
            return f"{where} you made {len(losses)} steps; {len(want[name])} are wanted."
        other = first_other(losses, want[name])
        if other and other[0] == 0:
            return f"{where} loss 0 is {brief(other[1])}; one large batch has {brief(other[2])}."
        if not same_end(moved, wanted):
            away = (moved - wanted).norm() / wanted.norm()
            return f"{where} the weights end {100 * away:.0f} % off the run with large batches."
        if other is None:
            return f"{where} a list of {len(want[name])} losses is wanted."
        return f"{where} loss {other[0]} is {brief(other[1])}; {brief(other[2])} is wanted."
    return "The ends differ."


ACCUMULATE = Loop(
    run_accumulate,
    accumulate,
    {
        "sums-need-no-division": "`backward` adds gradients up. By what must each loss be divided "
        "for the sum to be a mean?",
        "mean-of-means": "Each micro-batch weighs the same in your mean. Should one example of the "
        "small one count more?",
        "every-group-has-k": "The last group is shorter than k. By what do you divide there?",
        "the-tail-may-be-dropped": "The last batches never met a step. After which batch must one "
        "come, besides every k-th?",
        "gradients-reset-themselves": "The first group overflowed, and its inf is still in .grad. "
        "When are the gradients emptied?",
        "zero-grad-each-micro-batch": "Only the last micro-batch of a group is left. When are the "
        "gradients emptied?",
        "unscale-each-micro-batch": "`unscale_` belongs once before a step. What would a scaled "
        "gradient be added to?",
        "step-each-micro-batch": "You step after each micro-batch. Where does a group end?",
    },
    _accumulate_evidence,
    lambda shown: [shown[key] for key in shown if key.endswith("moved")],
)


@check(run_accumulate)
def check_accumulate(got):
    """Accumulation that equals the large batch, with an uneven tail."""
    ACCUMULATE.judge({key: got[key] for key in got if not key.endswith("at once")})
    largest = max(got[key] for key in got if key.endswith("at once"))
    if largest > 8:
        raise Mistake(
            f"The network met {largest} examples at once. There is memory for 8, one micro-batch."
        )


ACCUMULATE.ship(check_accumulate)


# Two networks, two optimizers, one scale

_bce = F.binary_cross_entropy_with_logits


def run_gan_step(gan_step):
    """Seven steps of a tiny pair: the third overflows in D alone, the fifth in G."""
    generator = filled(nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 6)), 3)
    discriminator = filled(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1)), 4)
    d_optimizer = torch.optim.SGD(discriminator.parameters(), lr=0.2)
    g_optimizer = torch.optim.SGD(generator.parameters(), lr=0.2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=4)
    shown = {"losses": [], "scales": [], "D": [], "G": []}
    with emulate_gpu():
        for i in range(7):
            real = seeded(90 + i, 16, 6) + 1
            real = -2000 * real if i == 2 else real
            noise = seeded(200 + i, 16, 3)
            sure = 1024.0 if i == 4 else 0.0  # D calls all fake, and the noise is large
            noise = 500 * noise if sure else noise
            discriminator[2].bias.data -= sure
            was = flat(discriminator), flat(generator)
            pair = generator, discriminator
            optimizers = d_optimizer, g_optimizer
            losses = attempt(gan_step, *pair, real, noise, *optimizers, scaler, "cpu")
            shown["losses"].append(losses)
            shown["scales"].append(scaler.get_scale())
            shown["D"].append(flat(discriminator) - was[0])
            shown["G"].append(flat(generator) - was[1])
            discriminator[2].bias.data += sure
    return shown


def gan_step(
    generator, discriminator, real, noise, d_optimizer, g_optimizer, scaler, device, *, mistake=""
):
    """labkit's own step of a GAN: (loss of D, loss of G); with a mistake on request."""
    region = partial(torch.autocast, device, dtype=torch.float16)
    bce = _bce
    if mistake == "bce-is-safe-under-autocast":
        bce = _bce_of_sigmoid
    if mistake != "g-backward-leaves-d-alone":
        d_optimizer.zero_grad()
    with region():
        fake = generator(noise)
        on_real = discriminator(real)
        on_fake = discriminator(fake if mistake == "detach-is-optional" else fake.detach())
        d_loss = bce(on_real, torch.ones_like(on_real)) + bce(on_fake, torch.zeros_like(on_fake))
    if mistake == "one-backward-for-both":
        with region():
            judged = discriminator(fake)
            g_loss = bce(judged, torch.ones_like(judged))
        g_optimizer.zero_grad()
        scaler.scale(d_loss + g_loss).backward()
        scaler.step(d_optimizer)
        scaler.step(g_optimizer)
        scaler.update()
        return d_loss.item(), g_loss.item()
    scaler.scale(d_loss).backward()
    if mistake == "one-inf-stops-both":
        scaler.unscale_(d_optimizer)
        if not all(p.grad.isfinite().all() for p in discriminator.parameters()):
            scaler.update()
            return d_loss.item(), math.nan
    scaler.step(d_optimizer)
    if mistake == "g-backward-leaves-d-alone":
        d_optimizer.zero_grad()
    if mistake == "one-update-per-optimizer":
        scaler.update()
    if mistake != "gradients-reset-themselves":
        g_optimizer.zero_grad()
    with region():
        judged = discriminator(fake)
        g_loss = bce(judged, torch.ones_like(judged))
    scaler.scale(g_loss).backward()
    scaler.step(g_optimizer)
    scaler.update()
    return d_loss.item(), g_loss.item()


def _bce_of_sigmoid(scores, targets):
    return F.binary_cross_entropy(scores.sigmoid(), targets)


def _gan_evidence(got, want):
    for i in range(len(want["scales"])):
        losses = got["losses"][i]
        if type(losses) is Raised:
            return f"Step {i} raised: {brief(losses)}."
        if not isinstance(losses, (list, tuple)) or len(losses) != 2:
            return "Two losses are wanted, that of D and that of G."
        for name in ("D", "G"):
            moved, wanted = got[name][i], want[name][i]
            if same_end(moved, wanted):
                continue
            if not moved.any():
                return f"In step {i} {name} stood still; {name} had no inf."
            if not wanted.any():
                return f"In step {i} {name} had an inf, and moved by {moved.norm():.2g}."
            away = (moved - wanted).norm() / wanted.norm()
            return f"In step {i} {name} went {100 * away:.0f} % off its way."
        if got["scales"][i] != want["scales"][i]:
            return (
                f"After step {i} the scale is {got['scales'][i]:g}; {want['scales'][i]:g} is "
                "wanted."
            )
        other = first_other(losses, want["losses"][i])
        if other:
            return (
                f"In step {i} the loss of {'DG'[other[0]]} is {brief(other[1])}; "
                f"{brief(other[2])} is wanted."
            )
    return "The ends differ."


GAN = Loop(
    run_gan_step,
    gan_step,
    {
        "one-update-per-optimizer": "The scale belongs to both. After which step has it seen both?",
        "one-inf-stops-both": "The scaler checks each optimizer apart. Who need not wait?",
        "detach-is-optional": "One graph was walked twice. Which loss must not reach through G, "
        "and where is that cut?",
        "g-backward-leaves-d-alone": "G's loss runs through D, and fills its gradients too. When "
        "must they be emptied?",
        "gradients-reset-themselves": "G overflowed before, and its inf is still in .grad. Who "
        "empties G's gradients?",
        "one-backward-for-both": "G's loss wants D to be wrong. Which gradients did D step with?",
        "bce-is-safe-under-autocast": "A 16-bit sigmoid is 1 too soon. Which loss takes logits?",
    },
    _gan_evidence,
    lambda shown: [shown["D"], shown["G"], shown["scales"]],
)


@check(run_gan_step)
def check_gan_step(got):
    """Two optimizers under one scale: an inf in D costs D its step, and G nothing."""
    GAN.judge(got)


GAN.ship(check_gan_step)
