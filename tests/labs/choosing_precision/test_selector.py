"""S12: the decision table, the override, attention, and moves without flapping."""

import random
from dataclasses import replace

import pytest
import torch
from torch import nn

from labkit.devices import Description, device_of
from labkit.formats import BF16, FP16
from labkit.labs.choosing_precision.selector import (
    LADDER,
    SKIPS,
    Strategy,
    adjust,
    attention_layers,
    select,
)
from labkit.labs.choosing_precision.sensitivity import analyse
from labkit.training.models import SmallGPT, mlp


def gpu(name, capability, memory=None):
    return device_of(Description(name=name, kind="cuda", capability=capability, memory=memory))


def cpu(*features):
    return device_of(Description(name="a processor", kind="cpu", features=frozenset(features)))


T4, V100, A100, H100 = gpu("T4", "7.5"), gpu("V100", "7.0"), gpu("A100", "8.0"), gpu("H100", "9.0")
PASCAL = gpu("GeForce GTX 1080", "6.1")
BAD, FINE = {"nonfinite_losses": 3}, {}


def huge():
    """1.2 GB of parameters that take no memory."""
    with torch.device("meta"):
        return nn.Linear(30_000, 10_000)


# The table


@pytest.mark.parametrize("model", [mlp(4, 2), huge()])
@pytest.mark.parametrize(
    "device, name, dtype, scale",
    [
        (T4, "fp16", torch.float16, 65536),
        (V100, "fp16", torch.float16, 65536),
        (A100, "bf16", torch.bfloat16, None),
        (H100, "bf16", torch.bfloat16, None),
        (cpu("avx512f", "avx512_bf16"), "bf16", torch.bfloat16, None),
        (cpu(), "fp32", None, None),
        (PASCAL, "fp32", None, None),
    ],
)
def test_the_device_and_not_the_size_of_the_model_decides(device, name, dtype, scale, model):
    strategy = select(device, model)
    assert (strategy.name, strategy.amp_dtype, strategy.init_scale) == (name, dtype, scale)
    assert strategy.use_scaler == (name == "fp16") and strategy.reasons
    assert strategy.per_layer == {} and not strategy.pinned


@pytest.mark.parametrize(
    "device, override, ladder",
    [
        (T4, None, ("fp16", "fp32")),
        (A100, None, ("bf16", "fp32")),
        (A100, "fp16", LADDER),
        (PASCAL, "bf16", ("bf16", "fp32")),
        (H100, "fp32", ("fp32",)),
    ],
)
def test_the_ladder_holds_what_the_device_accelerates_and_fp32(device, override, ladder):
    assert select(device, mlp(4, 2), override=override).ladder == ladder


def test_a_model_that_does_not_fit_is_told_and_keeps_its_format():
    strategy = select(gpu("A100", "8.0", memory=10**9), huge())
    assert strategy.name == "bf16"
    assert any("4.8 GB of 1.0 GB" in reason for reason in strategy.reasons)


@pytest.mark.parametrize("override", LADDER)
def test_the_user_s_wish_wins_and_is_recorded(override):
    strategy = select(A100, mlp(4, 2), override=override)
    assert strategy.name == override and strategy.pinned
    assert any("asked for" in reason and override in reason for reason in strategy.reasons)


def test_layers_beyond_the_tolerance_stay_in_fp32():
    torch.manual_seed(0)
    model = mlp(16, 32, 32, 10)
    with torch.no_grad():
        model[1].weight *= 2.0**18
        model[1].bias *= 2.0**18
        model[3].weight /= 2.0**18
    found = analyse(model, [torch.randn(64, 16)])
    # Layer 3 reads what layer 1 gives, and inputs are rounded too.
    beyond = {"1": "fp32", "3": "fp32"}
    assert select(T4, model, sensitivities=found).per_layer == beyond
    assert any(r.startswith("1 stays") for r in select(T4, model, sensitivities=found).reasons)
    assert select(A100, model, sensitivities=found).per_layer == {}
    assert select(cpu(), model, sensitivities=found).per_layer == {}
    # On a ladder each format has its own layers.
    fp16 = replace(select(A100, model, override="fp16", sensitivities=found), pinned=False)
    assert fp16.per_layer == beyond and replace(fp16, level=1).per_layer == {}


class SelfAttention(nn.Linear):
    pass


class Mixer(SelfAttention):
    pass


@pytest.mark.parametrize(
    "model, names",
    [
        (mlp(4, 2), ()),
        (nn.Sequential(nn.MultiheadAttention(4, 1)), ("0",)),
        (nn.Sequential(nn.ReLU(), Mixer(2, 2)), ("1",)),
        (nn.ModuleDict({"attn": nn.Linear(2, 2), "attention_norm": nn.LayerNorm(2)}), ("attn",)),
        (SelfAttention(2, 2), ("the model",)),
        (nn.MultiheadAttention(4, 1), ("the model",)),
        (nn.ModuleDict({"attn": nn.ModuleDict({"attn_out": nn.Linear(2, 2)})}), ("attn",)),
        (SmallGPT(11, 8), ("blocks.0.attention_out", "blocks.1.attention_out")),
    ],
)
def test_attention_is_found_by_class_base_class_or_name(model, names):
    assert attention_layers(model) == names
    warned = any("scores" in reason for reason in select(T4, model).reasons)
    assert warned == bool(names)
    assert not any("scores" in reason for reason in select(A100, model).reasons)


# Moves


def run(strategy, unstable, windows=1000):
    """The strategy after windows whose stability may depend on the format, and its formats."""
    formats = []
    for t in range(windows):
        formats.append(strategy.name)
        strategy = adjust(strategy, BAD if unstable(t, strategy.name) else FINE)
    return strategy, formats


def automaton(level, signal, windows, up=2, first_wait=20):
    """Another one's automaton (the design's facts.py): levels before each window."""
    bad = good = 0
    wait, trial, levels = first_wait, False, []
    for t in range(windows):
        levels.append(level)
        is_bad = signal(t, LADDER[level])
        bad, good = (bad + 1, 0) if is_bad else (0, good + 1)
        if bad >= up and level < 2:
            wait = 2 * wait if trial else wait
            level, bad, good, trial = level + 1, 0, 0, False
        elif good >= wait and level:
            level, bad, good, trial = level - 1, 0, 0, True
        elif good >= wait:
            trial = False
    return levels


START = Strategy(ladder=LADDER)


@pytest.mark.parametrize("seed", range(20))
def test_moves_are_those_of_another_automaton_on_open_and_closed_loops(seed):
    draw = random.Random(seed)
    chance = {name: draw.choice([0.0, 0.02, 0.3, 0.6, 1.0]) for name in LADDER}
    noise = [draw.random() for _ in range(500)]

    def signal(t, name):
        return noise[t] < chance[name]

    _, formats = run(START, signal, 500)
    assert formats == [LADDER[level] for level in automaton(0, signal, 500)]


@pytest.mark.parametrize(
    "signal, moves, last",
    [
        (lambda t, name: t % 2 == 0, 0, "fp16"),
        (lambda t, name: name == "fp16", 11, None),
        (lambda t, name: t < 2, 2, "fp16"),
        (lambda t, name: True, 2, "fp32"),
        (lambda t, name: False, 0, "fp16"),
    ],
)
def test_it_does_not_flap(signal, moves, last):
    strategy, _ = run(START, signal)
    assert len(strategy.moves) == moves and strategy.name == (last or strategy.name)


def test_a_trial_that_lasted_is_over_and_a_later_failure_waits_no_longer():
    lasted, _ = run(START, lambda t, name: name == "fp16" and (t < 2 or t in (60, 61)), 70)
    failed, _ = run(START, lambda t, name: name == "fp16" and (t < 2 or t in (30, 31)), 70)
    assert [len(s.moves) for s in (lasted, failed)] == [3, 3]
    assert (lasted.wait, failed.wait) == (20, 40)


def test_each_move_is_one_format_and_is_logged():
    strategy, formats = run(START, lambda t, name: t < 4, 50)
    assert formats[:5] == ["fp16", "fp16", "bf16", "bf16", "fp32"]
    assert strategy.moves[0].startswith("window 2: fp16 -> bf16")
    assert strategy.moves[1].startswith("window 4: bf16 -> fp32")
    assert strategy.moves[2].startswith("window 24: fp32 -> bf16") and strategy.windows == 50
    assert strategy.moves[3].startswith("window 44: bf16 -> fp16")
    assert formats[24] == "bf16" and strategy.name == "fp16"


def test_what_the_user_asked_for_stays_and_the_trouble_is_logged_once():
    strategy, formats = run(select(A100, mlp(4, 2), override="fp16"), lambda t, name: True, 10)
    assert set(formats) == {"fp16"}
    assert len(strategy.moves) == 1 and "asked for" in strategy.moves[0]


@pytest.mark.parametrize(
    "history, unstable",
    [
        ({"nonfinite_losses": 1}, True),
        ({"longest_skip_streak": SKIPS}, True),
        ({"longest_skip_streak": SKIPS - 1, "nonfinite_losses": 0}, False),
    ],
)
def test_skips_while_the_scale_settles_are_no_instability(history, unstable):
    after = adjust(START, history)
    assert (after.bad, after.good) == ((1, 0) if unstable else (0, 1))


def test_a_strategy_is_not_changed_in_place():
    adjust(START, BAD)
    assert Strategy(ladder=LADDER) == START


# Refusals


@pytest.mark.parametrize(
    "history, says",
    [({"losses": 1}, "losses"), ({"nonfinite_losses": -1}, "0 or more")],
)
def test_unknown_or_negative_counts_are_refused(history, says):
    with pytest.raises(ValueError, match=says):
        adjust(START, history)


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(ValueError, match="no parameters"):
        select(A100, nn.ReLU())
    with pytest.raises(ValueError, match="memory=-1"):
        select(gpu("A100", "8.0", memory=-1), mlp(4, 2))
    with pytest.raises(ValueError, match="override='fp8'"):
        select(A100, mlp(4, 2), override="fp8")
    found = analyse(mlp(4, 2), [torch.ones(1, 4)], formats=(FP16,))
    with pytest.raises(ValueError, match="bf16"):
        select(A100, mlp(4, 2), sensitivities=found)
    with pytest.raises(ValueError, match="measure bf16"):
        select(A100, mlp(4, 2), override="fp16", sensitivities=found)
    assert select(T4, mlp(4, 2), sensitivities=found).name == "fp16"


@pytest.mark.parametrize(
    "fields",
    [{"ladder": ()}, {"ladder": ("bf16", "fp16")}, {"ladder": ("fp8",)}]
    + [
        {"ladder": LADDER, **wrong}
        for wrong in ({"level": 3}, {"level": -1}, {"wait": 0}, {"bad": -1})
    ],
)
def test_a_strategy_that_cannot_be_is_refused(fields):
    with pytest.raises(ValueError):
        Strategy(**fields)


def test_formats_of_the_sensitivities_are_not_mixed_up():
    torch.manual_seed(0)
    model = mlp(16, 32, 10)
    found = analyse(model, [torch.randn(64, 16)], formats=(FP16, BF16), tolerance=1e-9)
    per_layer = {
        name: select(A100, model, override=name, sensitivities=found).per_layer for name in LADDER
    }
    assert per_layer == {
        "fp16": {r.name: "fp32" for r in found.rows if r.format == "fp16" and not r.within},
        "bf16": {r.name: "fp32" for r in found.rows if r.format == "bf16" and not r.within},
        "fp32": {},
    }
    assert per_layer["bf16"]
