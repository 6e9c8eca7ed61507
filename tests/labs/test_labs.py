"""Each lab's checks: known wrong answers fail with their idea, other right answers pass."""

import importlib
import json
import math
import pkgutil
import re
import struct
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import labkit.interview
import labkit.labs
from labkit.base.home import DATA, NOTEBOOKS
from labkit.formats import BF16, FP16, spacing
from labkit.labs.automatic_mixed_precision.checks.accumulation import check_accumulate
from labkit.labs.automatic_mixed_precision.checks.amp_loops import check_clipped_step, check_fit
from labkit.labs.automatic_mixed_precision.checks.op_lists import check_mini_autocast
from labkit.labs.automatic_mixed_precision.checks.two_optimizers import check_gan_step
from labkit.labs.automatic_mixed_precision.lists import LOW, WIDE
from labkit.labs.automatic_mixed_precision.solutions import fit
from labkit.labs.engine import Check
from labkit.labs.engine.misconceptions import misconceptions
from labkit.labs.number_formats.checks import (
    check_decode,
    check_e2m1_value,
    check_eight_bits,
    check_snap,
    check_ulp,
    check_window,
)
from labkit.labs.overflow_underflow_rounding.checks import (
    check_fair_round,
    check_hair,
    check_kahan,
    check_logsumexp,
    check_masked_softmax,
    check_rescue,
    check_total,
    check_unit_rms,
    check_welford,
)
from labkit.labs.start_here.checks import check_fp16_bytes

MODULES = [
    importlib.import_module(module.name)
    for package in (labkit.labs, labkit.interview)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if re.search(r"checks(\.|$)", module.name)
]
CHECKS = [
    value
    for module in MODULES
    if hasattr(module, "LAB")
    for value in vars(module).values()
    if isinstance(value, Check)
]
LAB_CHECKS = [check for check in CHECKS if check.lab != "interview"]
"""Without those of code questions, which prove their wrong answers with the bank."""
WRONG = [(check, wrong) for check in CHECKS for wrong in check.known_wrong]


def named(value):
    return value.exercise if isinstance(value, Check) else value.misconception


@pytest.mark.parametrize(("check", "wrong"), WRONG, ids=named)
def test_a_known_wrong_answer_fails_with_its_idea_and_question(check, wrong, seeds):
    for seed in check.seeds[:seeds]:
        result = check.result(wrong.answer, seed=seed)
        assert result.status == "failed"
        assert (result.misconceptions, result.shortcuts) == ((wrong.misconception,), ()), seed
        assert result.message.endswith(" ".join(wrong.question.split()))


def test_every_known_wrong_answer_points_to_a_misconception_of_the_list():
    assert {wrong.misconception for _, wrong in WRONG} - misconceptions().keys() == set()


def test_every_exercise_ships_four_known_wrong_answers():
    assert [check.exercise for check in LAB_CHECKS if len(check.known_wrong) < 4] == []


def test_the_stub_is_not_attempted():
    def stub(*arguments, **named):
        raise NotImplementedError("your code here")

    attempted = []
    for check in CHECKS:
        # A code question's wrong answers may stand with the question alone.
        is_function = all(callable(wrong.answer) for wrong in check.known_wrong)
        for answer in (stub, ...) if is_function else (..., {"key": ...}):
            if check.result(answer).status != "not attempted":
                attempted.append((check.lab, check.exercise, answer))
    assert attempted == []


def test_the_manifest_and_the_checks_name_the_same_exercises():
    manifest = json.loads((NOTEBOOKS / "manifest.json").read_text(encoding="utf-8"))
    promised = {
        (lab["lab"], entry["exercise"]) for lab in manifest["labs"] for entry in lab["exercises"]
    }
    assert promised == {(check.lab, check.exercise) for check in LAB_CHECKS}


def test_every_cure_is_a_section_of_a_lab_or_a_topic_of_the_bank():
    for idea in misconceptions().values():
        if idea.cure.startswith("topic:"):
            assert (DATA / "questions" / f"{idea.cure.removeprefix('topic:')}.toml").exists(), idea
            continue
        lab, section = idea.cure.split("#")
        source = (NOTEBOOKS / "source" / f"{lab}.py").read_text(encoding="utf-8")
        headings = re.findall(r"(?m)^# #+ (.+)$", source)
        # JupyterLab makes a heading's anchor by putting hyphens for its spaces.
        assert section in [heading.replace(" ", "-") for heading in headings], idea.id


def test_misconceptions_are_written_in_both_languages():
    for idea in misconceptions().values():
        assert idea.en.endswith(".") and idea.zh.endswith("。"), idea.id
        assert re.search(r"[\u4e00-\u9fff]", idea.zh), idea.id


# Right answers, written in other ways than the solution.


def table_of_strings(code):
    magnitude = float("0 .5 1 1.5 2 3 4 6".split()[code % 8])  # noqa: SIM905
    return -magnitude if code > 7 else magnitude


def e2m1_in_halves(code):
    exponent, mantissa = divmod(code % 8, 2)
    halves = mantissa if exponent == 0 else (2 + mantissa) << (exponent - 1)
    return math.copysign(halves / 2, -(code // 8) or 1)


def decode_by_ldexp(code, exponent_bits, mantissa_bits, bias):
    text = f"{code:0{1 + exponent_bits + mantissa_bits}b}"
    sign, exponent = int(text[0]), int(text[1 : 1 + exponent_bits], 2)
    mantissa = int(text[1 + exponent_bits :] or "0", 2)
    if exponent:
        mantissa += 1 << mantissa_bits
    value = math.ldexp(mantissa, max(exponent, 1) - bias - mantissa_bits)
    return -value if sign else value


def decode_by_fractions(code, e, m, bias):
    field, low = (code >> m) % 2**e, Fraction(code % 2**m, 2**m)
    value = (low if field == 0 else 1 + low) * Fraction(2) ** (max(field, 1) - bias)
    return np.float64(float(value)) * (1 - 2 * (code >> (e + m)))


def ulp_by_codes(x):
    code = struct.unpack("<H", struct.pack("<e", abs(x)))[0]
    above = struct.unpack("<e", struct.pack("<H", code + 1))[0]
    return np.float32(above - abs(x))


def snap_by_numpy(x):
    gap = spacing(x, FP16) if math.isfinite(x) else 1.0
    value = np.rint(np.float64(x) / gap) * gap
    return value if abs(value) <= 65504 or math.isnan(x) else math.copysign(math.inf, x)


def snap_by_remainder(x):
    if not math.isfinite(x):
        return x
    value = x - math.remainder(x, spacing(x, FP16))
    return math.copysign(value if abs(value) <= 65504 else math.inf, x)


def window_by_numpy(x, dtype):
    x = x[x != 0].double()
    after = x.float().to(dtype).double()
    survivors = after != 0
    error = np.abs(after[survivors].numpy() / x[survivors].numpy() - 1)
    return [1 - survivors.sum().item() / len(x), float(np.median(error))]


def window_by_loops(x, dtype):
    lost, errors = 0, []
    values = [value for value in x.tolist() if value]
    for value in values:
        after = torch.tensor(value, dtype=torch.float32).to(dtype).item()
        if after == 0:
            lost += 1
        else:
            errors.append(abs(after - value) / abs(value))
    return torch.tensor(lost / len(values), dtype=torch.float64), sorted(errors)[len(errors) // 2]


def window_by_ratio(x, dtype):
    x = x[x != 0]
    ratio = x.to(dtype).float() / x
    return torch.stack([(ratio == 0).float().mean(), (ratio[ratio != 0] - 1).abs().median()])


def logsumexp_by_numpy(x):
    return np.logaddexp.reduce(x.double().numpy())


def logsumexp_two_by_two(x):
    total = x[0]
    for value in x[1:]:
        low, high = torch.minimum(total, value), torch.maximum(total, value)
        total = high if low == high and high.isinf() else high + (low - high).exp().log1p()
        total = value if value == math.inf or value.isnan() else total
    return total


def softmax_with_zeros_for_empty_rows(scores, keep):
    return scores.masked_fill(~keep, -math.inf).softmax(dim=-1).nan_to_num()


def softmax_in_float32(scores, keep):
    wide = torch.where(keep, scores.float(), -1e9)
    weights = (wide - wide.max(dim=-1, keepdim=True).values).exp()
    return (weights / weights.sum(dim=-1, keepdim=True)).half()


def softmax_by_hand_in_fp16(scores, keep):
    shifted = torch.where(keep, scores, scores.new_tensor(-65504.0))
    weights = (shifted - shifted.amax(dim=-1, keepdim=True)).exp() * keep
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-4)


def rms_by_rsqrt(x):
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + 1e-8).rsqrt()).half()


def rms_by_numpy(x):
    wide = x.numpy().astype(np.float32)
    mean = (wide * wide).mean(axis=-1, keepdims=True)
    return torch.from_numpy((wide / np.sqrt(mean + 1e-8)).astype(np.float16))


def rms_by_a_scale(x):
    top = x.double().abs().amax(dim=-1, keepdim=True).clamp(min=1e-9)
    small = x.double() / top
    return (small / (small.square().mean(-1, keepdim=True) + 1e-8 / top**2).sqrt()).half()


def product_by_einsum(a, b, in_dtype, out_dtype):
    c = torch.einsum("nk,km->nm", a.to(in_dtype).double(), b.to(in_dtype).double()).float()
    return c.to(out_dtype), (~c.to(out_dtype).isfinite()).any()


def product_one_by_one(a, b, in_dtype, out_dtype):
    a, b = a.to(in_dtype).float(), b.to(in_dtype).float()
    sums = torch.zeros(len(a), b.shape[1])
    for k in range(a.shape[1]):
        sums += a[:, k, None] * b[k]
    c = sums.to(out_dtype)
    return [c, bool(c.isinf().any() or c.isnan().any())]


def total_by_halves(x):
    half = len(x) // 2
    return x[0] if len(x) == 1 else total_by_halves(x[:half]) + total_by_halves(x[half:])


def total_by_folding(x):
    while len(x) > 1:
        half = (len(x) + 1) // 2
        low, high = x[:half], x[half:]
        x = low + torch.nn.functional.pad(high, (0, half - len(high)))
    return x


def fair_by_adding_random_bits(x):
    codes = x.view(torch.int32) + torch.randint(0, 1 << 16, x.shape, dtype=torch.int32)
    return (codes & ~0xFFFF).view(torch.float32)


def kahan_with_the_other_sign(x):
    total, owed = x[0], torch.zeros_like(x[0])
    for value in x[1:]:
        sent = value + owed
        after = total + sent
        owed = sent - (after - total)
        total = after
    return total.item()


def kahan_in_a_list(x):
    state = [x.new_zeros(()), x.new_zeros(())]
    for value in x:
        y = value - state[1]
        state = [state[0] + y, (state[0] + y - state[0]) - y]
    return state[0]


def welford_with_delta(stream):
    n, mean, squares = 0, 0.0, 0.0
    for n, x in enumerate(stream, start=1):
        delta = x - mean
        mean += delta / n
        squares += delta * (x - mean)
    return mean, squares / n


def variance_of_shifted_values(stream):
    values = list(stream)
    shifted = [x - values[0] for x in values]
    mean = math.fsum(shifted) / len(shifted)
    return [values[0] + mean, math.fsum((x - mean) ** 2 for x in shifted) / len(shifted)]


# Lab 05


class MiniByTreeMap(TorchFunctionMode):
    def __init__(self, dtype):
        super().__init__()
        self.dtypes = dict.fromkeys(LOW, dtype) | dict.fromkeys(WIDE, torch.float32)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        target = self.dtypes.get(func.__name__)

        def cast(x):
            movable = (torch.float16, torch.bfloat16, torch.float32)
            return x.to(target) if isinstance(x, torch.Tensor) and x.dtype in movable else x

        if target is None:
            return func(*args, **(kwargs or {}))
        args, kwargs = torch.utils._pytree.tree_map(cast, (args, kwargs or {}))
        return func(*args, **kwargs)


def mini_by_a_function(dtype):
    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            args, kwargs = list(args), dict(kwargs or {})
            for where, key in [(args, i) for i in range(len(args))] + [(kwargs, k) for k in kwargs]:
                x = where[key]
                if torch.is_tensor(x) and x.is_floating_point() and x.dtype != torch.double:
                    if func.__name__ in LOW:
                        where[key] = x.type(dtype)
                    elif func.__name__ in WIDE:
                        where[key] = x.float()
            return func(*args, **kwargs)

    return Mode()


def fit_that_raises(model, batches, loss_fn, optimizer, dtype, device):
    torch.nn.Module.train(model, True)
    scale = torch.amp.GradScaler(device) if dtype == torch.float16 else None
    losses = torch.zeros(len(batches))
    for i, (x, y) in enumerate(batches):
        with torch.autocast(device_type=device, dtype=dtype, enabled=dtype.itemsize == 2):
            output = model(x)
            loss = torch.nn.CrossEntropyLoss()(output, y)
        assert output.dtype == dtype, f"{output.dtype} is not {dtype}"
        if scale is None:
            loss.backward()
            optimizer.step()
        else:
            scale.scale(loss).backward()
            scale.step(optimizer)
            scale.update()
        model.zero_grad()
        losses[i] = loss.detach()
    return losses.tolist()


def fit_with_the_check_in_the_block(model, batches, loss_fn, optimizer, dtype, device):
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.half)
    losses = []
    model.train()
    for x, y in batches:
        with torch.amp.autocast(device, dtype=dtype):
            output = model(x)
            if output.dtype is not dtype:
                raise RuntimeError(f"asked for {dtype}, got {output.dtype}")
            loss = F.nll_loss(output.log_softmax(dim=-1), y)
        optimizer.zero_grad(set_to_none=False)
        scaler.scale(loss).backward()
        if scaler.is_enabled():
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss)
    return losses


def clip_by_a_scaled_limit(model, inputs, targets, optimizer, scaler, limit, device):
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    scale = scaler.get_scale()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit * scale) / scale
    scaler.step(optimizer)
    scaler.update()
    return norm


def clip_by_hand(model, inputs, targets, optimizer, scaler, limit, device):
    model.zero_grad()
    with torch.autocast(device, torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = math.sqrt(sum(float(p.grad.double().square().sum()) for p in model.parameters()))
    if norm > limit:
        for p in model.parameters():
            p.grad.mul_(limit / norm)
    if math.isfinite(norm):
        optimizer.step()
    scaler.update()
    return norm


def accumulate_with_a_counter(model, batches, k, optimizer, scaler, dtype, device):
    losses, waiting = [], []
    optimizer.zero_grad()
    for i, batch in enumerate(batches, start=1):
        waiting.append(batch)
        if i % k and i < len(batches):
            continue
        n, total = sum(int(y.ge(0).sum()) for _, y in waiting), 0
        for x, y in waiting:
            with torch.autocast(device, dtype=dtype):
                loss = F.cross_entropy(model(x).transpose(1, 2), y, reduction="sum") / n
            scaler.scale(loss).backward()
            total = total + loss.detach()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(total)
        waiting = []
    return losses


def accumulate_sums(model, batches, k, optimizer, scaler, dtype, device):
    """Adds up sums, and divides the gradients before the step."""
    losses = []
    for first in range(0, len(batches), k):
        optimizer.zero_grad()
        total, count = 0.0, 0
        for x, y in batches[first : first + k]:
            with torch.autocast(device, dtype=dtype):
                each = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="none")
            scaler.scale(each.sum() / 16).backward()
            total, count = total + each.sum().item(), count + (y != -100).sum().item()
        if scaler.is_enabled():
            scaler.unscale_(optimizer)
        for p in model.parameters():
            p.grad *= 16 / count
        scaler.step(optimizer)
        scaler.update()
        losses.append(total / count)
    return tuple(losses)


def gan_with_a_second_forward(G, D, real, noise, d_optimizer, g_optimizer, scaler, device):
    D.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        with torch.no_grad():
            fake = G(noise)
        scores = D(torch.cat([real, fake]))
        truth = torch.cat([torch.ones(len(real), 1), torch.zeros(len(fake), 1)])
        # Both halves are as long, so twice the mean is the sum of the two means.
        d_loss = 2 * F.binary_cross_entropy_with_logits(scores, truth)
    scaler.scale(d_loss).backward()
    scaler.step(d_optimizer)
    G.zero_grad()
    for p in D.parameters():
        p.requires_grad_(False)
    with torch.autocast(device, dtype=torch.float16):
        scores = D(G(noise))
        g_loss = F.softplus(-scores).mean()
    scaler.scale(g_loss).backward()
    for p in D.parameters():
        p.requires_grad_(True)
    scaler.step(g_optimizer)
    scaler.update()
    return [d_loss.detach(), g_loss.detach()]


def gan_with_two_backwards_for_d(G, D, real, noise, d_optimizer, g_optimizer, scaler, device):
    amp = torch.autocast(device, dtype=torch.float16)
    bce = torch.nn.BCEWithLogitsLoss()
    g_optimizer.zero_grad()
    d_optimizer.zero_grad()
    losses = []
    for images, truth in ((real, 1.0), (None, 0.0)):
        with amp:
            scores = D(G(noise).detach() if images is None else images)
            losses.append(bce(scores, torch.full_like(scores, truth)))
        scaler.scale(losses[-1]).backward()
    scaler.step(d_optimizer)
    with amp:
        scores = D(G(noise))
        g_loss = bce(scores, torch.ones_like(scores))
    scaler.scale(g_loss).backward()
    scaler.step(g_optimizer)
    scaler.update()
    return sum(losses).item(), g_loss.item()


@pytest.mark.parametrize(
    ("check", "right"),
    [
        (check_fp16_bytes, lambda count: count << 1),
        (check_fp16_bytes, lambda count: count * torch.finfo(torch.float16).bits / 8),
        (check_e2m1_value, table_of_strings),
        (check_e2m1_value, e2m1_in_halves),
        (check_decode, decode_by_ldexp),
        (check_decode, decode_by_fractions),
        (check_ulp, ulp_by_codes),
        (check_snap, snap_by_numpy),
        (check_snap, snap_by_remainder),
        (check_window, window_by_numpy),
        (check_window, window_by_loops),
        (check_window, window_by_ratio),
        (check_eight_bits, {"exponent_bits": 5, "mantissa_bits": 2, "bias": 40}),
        (check_eight_bits, {"bias": 36, "mantissa_bits": 2, "exponent_bits": 5}),
        (check_logsumexp, logsumexp_by_numpy),
        (check_logsumexp, logsumexp_two_by_two),
        (check_masked_softmax, softmax_with_zeros_for_empty_rows),
        (check_masked_softmax, softmax_in_float32),
        (check_masked_softmax, softmax_by_hand_in_fp16),
        (check_unit_rms, rms_by_rsqrt),
        (check_unit_rms, rms_by_numpy),
        (check_unit_rms, rms_by_a_scale),
        (check_rescue, product_by_einsum),
        (check_rescue, product_one_by_one),
        (check_total, total_by_halves),
        (check_total, total_by_folding),
        (check_fair_round, fair_by_adding_random_bits),
        (check_kahan, kahan_with_the_other_sign),
        (check_kahan, kahan_in_a_list),
        (check_welford, welford_with_delta),
        (check_welford, variance_of_shifted_values),
        (check_hair, -(1 + 2.0**-8 + 2.0**-40)),
        (check_hair, 1 + 3 * 2.0**-8 - 2.0**-30),
        (check_mini_autocast, MiniByTreeMap),
        (check_mini_autocast, mini_by_a_function),
        (check_fit, fit_that_raises),
        (check_fit, fit_with_the_check_in_the_block),
        (check_clipped_step, clip_by_a_scaled_limit),
        (check_clipped_step, clip_by_hand),
        (check_accumulate, accumulate_with_a_counter),
        (check_accumulate, accumulate_sums),
        (check_gan_step, gan_with_a_second_forward),
        (check_gan_step, gan_with_two_backwards_for_d),
    ],
    ids=lambda value: getattr(value, "exercise", getattr(value, "__name__", "design")),
)
def test_differently_written_right_answers_pass(check, right, seeds):
    for seed in check.seeds[:seeds]:
        result = check.result(right, seed=seed)
        assert (result.status, result.misconceptions) == ("passed", ()), result.message


def test_a_loop_that_warns_of_everything_does_not_pass():
    def fit_that_always_warns(*arguments):
        warnings.warn("the dtype may not be the one asked for", stacklevel=2)
        return fit(*arguments)

    message = check_fit.result(fit_that_always_warns).message
    assert "had the dtype that was asked for, yet your loop warned" in message


@pytest.mark.parametrize(
    ("design", "idea"),
    [
        ({"exponent_bits": 3, "mantissa_bits": 4, "bias": 14}, "precision-is-all-that-counts"),
        ({"exponent_bits": 6, "mantissa_bits": 1, "bias": 45}, "range-is-all-that-counts"),
        ({"exponent_bits": 4, "mantissa_bits": 4, "bias": 20}, "sign-bit-is-free"),
    ],
)
def test_designs_that_were_not_shipped_are_told_their_idea_too(design, idea):
    assert check_eight_bits.result(design).misconceptions == (idea,)


def test_a_design_in_which_two_things_are_wrong_is_told_no_idea():
    for bias in (7, 24):
        design = {"exponent_bits": 4, "mantissa_bits": 3, "bias": bias}
        result = check_eight_bits.result(design)
        assert (result.status, result.misconceptions) == ("failed", ())


def window_in_float32(x, dtype, *, gone=lambda x, after: after == 0, median=torch.median):
    x = x[x != 0]
    after = x.to(dtype).float()
    kept = after != 0
    return gone(x, after).float().mean().item(), median(((after - x) / x).abs()[kept]).item()


def below_normal(x, dtype):
    return window_in_float32(x, dtype, gone=lambda x, after: x.abs() < torch.finfo(dtype).tiny)


def rounded_by_int(x):
    if not math.isfinite(x):
        return x
    gap = spacing(x, FP16)
    value = int(x / gap) * gap
    return value if abs(value) <= 65504 else math.copysign(65504.0, x)


def clamped(x):
    return max(-65504.0, min(65504.0, snap_by_numpy(x))) if math.isfinite(x) else x


def halves_go_up(x):
    if not math.isfinite(x):
        return x
    gap = spacing(x, FP16)
    value = math.floor(abs(x) / gap + 0.5) * gap
    return (value if value <= 65504 else math.inf) * (-1 if x < 0 else 1)


def loop(*, zero_grad=True, log_scaled=False, always_scaled=False):
    """A loop of a learner, with one slip."""

    def fit(model, batches, loss_fn, optimizer, dtype, device):
        scaled = always_scaled or dtype is torch.float16
        scaler, losses = torch.amp.GradScaler(device, enabled=scaled), []
        model.train()
        for x, y in batches:
            if zero_grad:
                optimizer.zero_grad()
            with torch.autocast(device, dtype=dtype, enabled=dtype.itemsize < 4):
                output = model(x)
                loss = F.cross_entropy(output, y)
            assert output.dtype is dtype
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append((scaler.scale(loss) if log_scaled else loss).item())
        return losses

    return fit


def clip_in_order(*calls):
    def clipped_step(model, x, y, optimizer, scaler, limit, device):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        for call in calls:
            if call == "clip":
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
            elif call == "update":
                scaler.update()
            else:
                {"unscale": scaler.unscale_, "step": scaler.step}[call](optimizer)
        return norm

    return clipped_step


def every_kth(*, tail):
    def accumulate(model, batches, k, optimizer, scaler, dtype, device):
        losses, total = [], 0.0
        for i, (x, y) in enumerate(batches, start=1):
            first = (i - 1) // k * k
            tokens = sum((y != -100).sum() for _, y in batches[first : first + k])
            with torch.autocast(device, dtype=dtype):
                each = F.cross_entropy(model(x).transpose(1, 2), y, reduction="none")
            loss = each.sum() / (y != -100).sum() / k if tail else each.sum() / tokens
            scaler.scale(loss).backward()
            total += loss.item()
            if i % k == 0 or (tail and i == len(batches)):
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                losses, total = [*losses, total], 0.0
        return losses

    return accumulate


def one_large_batch(model, batches, k, optimizer, scaler, dtype, device):
    losses = []
    for first in range(0, len(batches), k):
        x, y = map(torch.cat, zip(*batches[first : first + k], strict=True))
        losses += accumulate_sums(model, [(x, y)], 1, optimizer, scaler, dtype, device)
    return losses


@pytest.mark.parametrize(
    ("check", "wrong", "idea"),
    [
        (check_snap, rounded_by_int, "casts-truncate"),
        (check_snap, clamped, "overflow-saturates"),
        (check_snap, halves_go_up, "ties-go-up"),
        (check_snap, lambda x: torch.tensor(x, dtype=torch.float64).half().item(),
         "rounding-twice-is-rounding-once"),
        (check_snap, lambda x: snap_by_numpy(x) + 0, "zero-has-no-sign"),
        (check_window, below_normal, "lost-means-below-normal"),
        (check_window, lambda x, dtype: window_in_float32(x, torch.float16),
         "fp16-and-bf16-lose-alike"),
        (check_ulp, lambda x: 2.0 ** (max(math.frexp(x)[1], -14) - 10), "frexp-starts-at-one"),
        (check_ulp, lambda x: 2.0 ** (math.frexp(x)[1] - 11), "gap-shrinks-below-normal"),
        (check_ulp, lambda x: abs(x) * torch.finfo(torch.float16).eps, "ulp-is-relative"),
        (check_logsumexp, lambda x: x.exp().clamp(max=30000).sum().log(),
         "clamping-prevents-overflow"),
        (check_logsumexp, lambda x: x.float().exp().sum().log2() * math.log(2),
         "wider-dtype-replaces-the-shift"),
        (check_masked_softmax, lambda s, keep: s.masked_fill(~keep, -1e9).softmax(-1),
         "mask-constant-overflows"),
        (check_masked_softmax, lambda s, keep: s.masked_fill(~keep, -math.inf).softmax(-1),
         "mask-constant-overflows"),
        (check_masked_softmax, lambda s, keep: s.masked_fill(~keep, -50.0).softmax(-1),
         "any-negative-number-masks"),
        (check_unit_rms, lambda x: x / ((x**2).mean(-1, keepdim=True) + 1e-8).sqrt(),
         "eps-fits-every-format"),
        (check_unit_rms, lambda x: (x / (x.float().square().mean(-1, keepdim=True) + 1e-5).sqrt())
         .half(), "a-larger-eps-costs-nothing"),
        (check_rescue, lambda a, b, i, o: (lambda c: (c, not c.isfinite().all().item()))(
            (a.to(i) @ b.to(i)).to(o)), "upcast-too-late"),
        (check_total, lambda x: sum(x), "adding-never-stalls"),
        (check_total, lambda x: sum(x.sort(descending=True)[0]), "sorting-cures-swamping"),
        (check_fair_round, lambda x: torch.where(
            torch.rand(x.shape) < 0.5, (x / spacing(x, BF16)).ceil(),
            (x / spacing(x, BF16)).floor()) * spacing(x, BF16), "fair-means-half"),
        (check_welford, lambda stream: (lambda v: (np.mean(v), np.mean(np.square(v)) -
         np.mean(v)**2))(list(stream)), "algebra-survives-rounding"),
        (check_hair, 1 + 2.0**-8 + 2.0**-60, "a-tie-is-enough"),
        (check_hair, 1 / 3, "every-second-rounding-hurts"),
        (check_fit, loop(zero_grad=False), "gradients-reset-themselves"),
        (check_fit, loop(log_scaled=True), "scaled-loss-is-the-loss"),
        (check_fit, loop(always_scaled=True), "bf16-needs-a-loss-scale"),
        (check_clipped_step, clip_in_order("clip", "step", "update"), "clip-before-unscale"),
        (check_clipped_step, clip_in_order("clip", "unscale", "step", "update"),
         "clip-before-unscale"),
        (check_clipped_step, clip_in_order("unscale", "step", "clip", "update"),
         "clip-may-come-last"),
        (check_clipped_step, clip_in_order("unscale", "clip", "step"), "the-scale-adjusts-itself"),
        (check_clipped_step, clip_in_order("unscale", "clip", "step", "update", "update"),
         "update-may-be-called-again"),
        (check_accumulate, every_kth(tail=False), "the-tail-may-be-dropped"),
        (check_accumulate, every_kth(tail=True), "every-group-has-k"),
    ],
)  # fmt: skip
def test_wrong_answers_written_in_another_way_are_told_their_idea_too(check, wrong, idea):
    assert check.result(wrong).misconceptions == (idea,)


def in_place(x):
    codes = x.view(torch.int32)
    codes += 0x1000
    return (codes & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (check_window, lambda x, dtype: window_in_float32(x, dtype, median=torch.mean)),
        (check_window, lambda x, dtype: window_in_float32(x, torch.float32)),
        (check_window, lambda x, dtype: 0.5),
        (check_window, lambda x, dtype: (0.5, 0.5, 0.5)),
        (check_snap, lambda x: x),
        (check_snap, lambda x: 0.0 if 4096 < abs(x) < 65000 else snap_by_numpy(x)),
        (check_ulp, lambda x: 0.0),
        (check_logsumexp, lambda x: x.max()),
        (check_masked_softmax, lambda s, keep: torch.zeros_like(s)),
        (check_masked_softmax, lambda s, keep: s[0]),
        (check_unit_rms, lambda x: x),
        (check_unit_rms, lambda x: x.float()),
        (check_rescue, lambda a, b, i, o: a @ b),
        (check_rescue, lambda a, b, i, o: (torch.zeros(len(a), b.shape[1], dtype=o), False)),
        (check_rescue, lambda a, b, i, o: ((a.to(i).float() @ b.to(i).float()).to(o), None)),
        (check_total, lambda x: x[0] * len(x)),
        (check_fair_round, lambda x: x),
        (check_fair_round, lambda x: 1.0),
        (check_kahan, lambda x: x[0] * len(x)),
        (check_welford, lambda stream: (0.0, 0.0)),
        (check_welford, lambda stream: sum(stream)),
        (check_hair, 1.5),
        (check_hair, math.inf),
        (check_decode, lambda code, e, m, bias: float(code)),
        (check_fit, lambda *arguments: None),
        (check_fit, lambda *arguments: ([1.0], 0.5)),
        (check_clipped_step, lambda *arguments: None),
        (check_accumulate, one_large_batch),
        (check_gan_step, lambda *arguments: (1.0, 1.0)),
        (check_mini_autocast, lambda dtype: torch.no_grad()),
    ],
)
def test_other_wrong_answers_fail_and_are_told_no_idea(check, wrong):
    result = check.result(wrong)
    assert (result.status, result.misconceptions) == ("failed", ()), result.message


@pytest.mark.parametrize(
    "design",
    [
        5,
        [5, 2, 38],
        {},
        {"exponent_bits": 5, "mantissa_bits": 2},
        {"exponent_bits": 5.5, "mantissa_bits": 2, "bias": 38},
        {"exponent_bits": 7, "mantissa_bits": 0, "bias": 60},
        {"exponent_bits": 9, "mantissa_bits": -2, "bias": 38},
        {"exponent_bits": 5, "mantissa_bits": 2, "bias": 10**9},
        {"exponent_bits": True, "mantissa_bits": 6, "bias": 1},
    ],
)
def test_designs_that_make_no_sense_fail_with_a_sentence(design):
    result = check_eight_bits.result(design)
    assert result.status == "failed" and result.message


def test_a_dtype_that_slipped_in_is_named():
    def kahan(x):
        s = c = torch.zeros(())  # float32, for no dtype is given
        for value in x:
            y = value - c
            t = s + y
            c = (t - s) - y
            s = t
        return s

    result = check_kahan.result(kahan)
    assert "a float32 tensor took part" in result.message
    assert "say `dtype=x.dtype`" in result.message


def test_an_answer_that_raises_is_an_error_with_its_own_line():
    result = check_masked_softmax.result(lambda scores, keep: scores + "mask")
    assert result.status == "error" and "TypeError" in result.message
