"""The tape of GPT-2's step: its roles by hand, its peak by a plain card, and its recording."""

import json

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from labkit.emulation import emulate_gpu
from labkit.labs.memory_and_many_gpus.counted_step import StepSettings
from labkit.labs.memory_and_many_gpus.step_bytes import ROLES, StepPoint
from labkit.labs.memory_and_many_gpus.tape import (
    BLOCKS,
    FILE,
    GIB,
    Tape,
    _thinned,
    count_tape,
    recorded_tapes,
    tape,
)
from labkit.measuring.live_bytes import LiveBytes
from labkit.training import cross_entropy
from labkit.training.models import SmallGPT

PARAMETERS = 163_159_680
IN_LINEAR_LAYERS = 123_701_376
LOGITS = 4 * 8 * 1024 * 50304
EVERY = frozenset(range(BLOCKS))
CHUNKED = StepSettings(autocast=True, loss_chunks=16)
SMALLEST = StepSettings(autocast=True, loss_chunks=16, checkpointed=EVERY)
ONE_BY_ONE = StepSettings(autocast=True, loss_chunks=16, checkpointed=EVERY, foreach=False)


def _step_on_a_card(*, batch, autocast, micro_batches=1):
    """The peak of the second step of an ordinary loop."""
    with emulate_gpu(), FakeTensorMode():
        model = SmallGPT(50304, 1024, width=768, blocks=12, heads=12)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        tokens = torch.zeros(batch, 1024, dtype=torch.int64)
        with LiveBytes().hold(model, tokens) as card:
            for _ in range(2):
                card.restart()
                for part in tokens.chunk(micro_batches):
                    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                        loss = cross_entropy(model(part), part) / micro_batches
                    loss.backward()
                    del loss
                optimizer.step()
                optimizer.zero_grad()
        return card.peak, card.at_peak


@pytest.mark.parametrize(
    "settings", [StepSettings(autocast=True, micro_batches=4), StepSettings(batch=1, autocast=True)]
)
def test_the_peak_is_that_of_an_ordinary_loop_on_a_card(settings):
    peak, at = _step_on_a_card(
        batch=settings.batch, autocast=True, micro_batches=settings.micro_batches
    )
    found = count_tape(settings)
    assert found.peak == peak and found.peak_at.endswith(at)
    # The recording says what is counted now.
    assert recorded_tapes()[settings] == found


def test_the_recording_holds_the_steps_of_the_lab():
    assert len(recorded_tapes()) == len(json.loads(FILE.read_text(encoding="utf-8"))["tapes"]) == 22
    for settings in (StepSettings(), StepSettings(autocast=True), CHUNKED, SMALLEST, ONE_BY_ONE):
        assert tape(settings) is recorded_tapes()[settings]


def test_the_roles_by_hand():
    for settings in (StepSettings(), StepSettings(autocast=True), SMALLEST):
        points = tape(settings).points
        assert {p.weights for p in points} == {4 * PARAMETERS}
        # Two moments, and for each of 150 parameters a count of steps.
        assert {p.moments for p in points} == {8 * PARAMETERS + 4 * 150}
        assert {p.gradients for p in points if p.phase == "forward"} == {0}
        assert {p.gradients for p in points if p.phase == "step"} == {4 * PARAMETERS}
        assert points[-1].phase == "zero_grad" and points[-1].gradients == 0
        # The step gives back all but weights, moments and tokens.
        assert points[-1].total == points[-1].weights + points[-1].moments + 8 * 8 * 1024
        # Each weight and bias of a linear layer once, in 16 bits.
        copies = max(p.copies for p in points)
        assert copies == (0 if settings == StepSettings() else 2 * IN_LINEAR_LAYERS)


def test_at_the_peak_of_float32_three_tensors_have_the_size_of_the_logits():
    peak = max(tape().points, key=lambda p: p.total)
    assert peak.at == tape().peak_at == "backward/aten._log_softmax_backward_data"
    assert peak.temporary == pytest.approx(2 * LOGITS, rel=1e-3)  # the third is kept
    end = [p for p in tape().points if p.phase == "forward"][-1]
    assert end.kept > LOGITS


def test_the_peak_of_the_optimizers_step_is_20_bytes_a_parameter_with_foreach():
    step = tape(SMALLEST).hills["step"]
    assert step.total == pytest.approx(20 * PARAMETERS, rel=1e-3)
    assert tape(SMALLEST).peak_at == step.at
    step = tape(ONE_BY_ONE).hills["step"]
    largest = 4 * 768 * 50304
    assert 16 * PARAMETERS < step.total <= 16 * PARAMETERS + 2.01 * largest


def test_what_autocast_keeps_is_more_than_float32_keeps_at_batch_1():
    def end(settings):
        return [p for p in tape(settings).points if p.phase == "forward"][-1].total

    assert end(StepSettings(batch=1)) < end(StepSettings(batch=1, autocast=True))
    assert end(StepSettings()) > end(StepSettings(autocast=True))


@pytest.mark.parametrize(
    ("settings", "level"), [(StepSettings(), 16), (CHUNKED, 6), (SMALLEST, 4), (ONE_BY_ONE, 3)]
)
def test_a_step_fits_a_card_from_its_peak_on(settings, level):
    found = tape(settings)
    assert found.fits(level * GIB) and found.fits(found.peak) and not found.fits(found.peak - 1)
    assert f"peak {found.peak / GIB:.2f} GiB" in found.describe()
    for name, hill in found.hills.items():
        assert f"{name} {hill.total / GIB:.2f}" in found.describe()


def test_extra_flop_are_those_of_torchs_own_counter():
    """The head's second run, and the blocks', each up to its last matmul."""
    assert tape(StepSettings(autocast=True)).extra_flop == 0
    with FakeTensorMode(), FlopCounterMode(display=False) as counter:
        model = SmallGPT(50304, 1024, width=768, blocks=12, heads=12)
        tokens = torch.zeros(1, 1024, dtype=torch.int64)
        cross_entropy(model(tokens), tokens).backward()
    # The counter knows no attention on a CPU: 2 matmuls forward and 5 backward in each block.
    attention = 2 * 768 * 1024**2
    step = counter.get_total_flops() + 12 * 7 * attention
    head = 2 * 1024 * 768 * 50304
    block = 2 * 1024 * 768**2 * (3 + 1 + 4) + 2 * attention
    assert tape(CHUNKED).extra_flop == pytest.approx(head / step, abs=1e-3)
    assert tape(SMALLEST).extra_flop == pytest.approx((head + 12 * block) / step, abs=1e-3)


def _points(*phases):
    sizes = dict.fromkeys(ROLES, 0)
    return [
        StepPoint(at=f"{phase}/{i}", **sizes | {"kept": total})
        for i, (phase, total) in enumerate(phases)
    ]


def test_thinning_keeps_each_phases_peak_and_its_end():
    points = _points(
        *[("forward", i % 499) for i in range(2000)],
        *[("backward", 700 - i % 300) for i in range(2000)],
        ("step", 3),
        ("zero_grad", 1),
    )
    few = _thinned(points)
    assert len(few) < 260 and list(few) == sorted(few, key=points.index)
    hills = Tape(settings=StepSettings(), points=few, extra_flop=0.0).hills
    assert [hill.total for hill in hills.values()] == [498, 700, 3]
    assert {points[1999], points[3999], points[-1]} <= set(few)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"batch": 0}, "batch=0"),
        ({"loss_chunks": 0}, "loss_chunks=0"),
        ({"batch": 8, "micro_batches": 3}, "8 has no 3 equal"),
        ({"checkpointed": {12}}, r"checkpointed=\[12\]: GPT-2 has blocks 0 to 11"),
        ({"moments": "fp8"}, "moments='fp8': pass one of fp32, bf16, 8-bit"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        tape(StepSettings(**wrong))
