"""AmaxHistory by hand, and beside Transformer Engine's update written out in numpy."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from labkit.formats import E4M3, E5M2, FP32, AmaxHistory, quantize


def scales(history, amaxes, fmt=E4M3):
    """The scale before each amax is observed, and the one after the last."""
    found = [history.scale(fmt)]
    for amax in amaxes:
        history = history.observe(amax)
        found.append(history.scale(fmt))
    return found


def test_a_table_by_hand():
    amaxes = [1.0, 2.0, 8.0, 0.5, 0.5, 0.5, 0.0, math.inf, 4.0]
    #          the scale comes from 1, 2, 8, 8, 8, .5, .5, .5, 4: 8 leaves a window of three
    assert scales(AmaxHistory(3), amaxes) == [1, 448, 224, 56, 56, 56, 896, 896, 896, 112]
    assert scales(AmaxHistory(3, margin=2), [2.0], E5M2) == [1, 57344 / 2 / 4]


def test_zeros_and_what_is_not_finite_keep_the_scale():
    history = AmaxHistory(2).observe(4.0)
    assert scales(history, [0.0, 0.0, 0.0]) == [112] * 4
    assert scales(AmaxHistory(2), [0.0, 0.0]) == [1, 1, 1]
    assert history.observe(math.inf) == history.observe(math.nan) == history
    assert history.observe(torch.tensor(torch.inf)) == history


def test_the_scale_is_a_float32():
    tiny = 2.0**-149
    assert AmaxHistory(1).observe(tiny).scale(E4M3) == FP32.max
    assert AmaxHistory(1, margin=20).observe(tiny).scale(E4M3) == FP32.max
    assert AmaxHistory(1).observe(1e-35).scale(E4M3) == pytest.approx(4.48e37)


def transformer_engines(amaxes, length, margin):
    """Its update: an array as the window, the former scale where the largest amax is 0."""
    window, scale, found = np.zeros(length), 1.0, [1.0]
    for amax in amaxes:
        window = np.roll(window, -1)
        window[-1] = amax
        scale = 448 / window.max() / 2**margin if window.max() > 0 else scale
        found.append(scale)
    return found


@pytest.mark.parametrize("length", [1, 3, 16])
def test_as_transformer_engine_updates(length):
    rng = np.random.default_rng(length)
    amaxes = np.exp(rng.normal(0, 2, 100)) * (rng.random(100) > 0.4)
    history = AmaxHistory(length, margin=1)
    assert scales(history, amaxes.tolist()) == transformer_engines(amaxes, length, 1)


def test_a_margin_is_headroom():
    x = torch.tensor([1.0, -3.0])
    for margin, clipped in ((0, True), (2, False)):
        scale = AmaxHistory(4, margin).observe(1.0).scale(E4M3)
        assert (quantize(x * scale, E4M3, saturate=True)[1] == -448) == clipped


def test_a_state_is_frozen_and_comes_back_from_a_checkpoint():
    start = AmaxHistory(2, margin=1)
    history = start.observe(3.0).observe(0.0).observe(0.0)
    assert start == AmaxHistory(2, margin=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        history.margin = 0
    again = AmaxHistory.from_state_dict(json.loads(json.dumps(history.to_state_dict())))
    assert again == history and again.scale(E4M3) == 448 / 3 / 2
    assert again.observe(7.0) == history.observe(7.0)


def test_wrong_values_are_refused():
    for length in (0, -1, 1.5, True, "3"):
        with pytest.raises(ValueError, match="length"):
            AmaxHistory(length)
    for margin in (-1, 0.5, True):
        with pytest.raises(ValueError, match="margin"):
            AmaxHistory(4, margin)
    with pytest.raises(ValueError, match=r"not negative; got -1\.0"):
        AmaxHistory(4).observe(-1.0)
