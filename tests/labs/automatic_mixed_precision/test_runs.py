"""Batches of the course's GPT, and the figure of several runs."""

import pytest
import torch

from labkit.labs.automatic_mixed_precision.runs import gpt_batches, loss_curves
from labkit.measuring.efficiency import work_and_memory
from labkit.training.models import SmallGPT


def test_batches_are_the_same_each_time_and_targets_come_one_character_later():
    (tokens, following), _ = gpt_batches(2)
    assert tokens.shape == following.shape == (8, 64)
    assert torch.equal(tokens[:, 1:], following[:, :-1])
    assert torch.equal(gpt_batches(2)[0][0], tokens)


def test_the_figure_has_a_line_a_run_and_words_for_its_ends():
    picture = loss_curves({"FP32": [4.0, 3.0], "FP16": [4.0, 3.5]}, provenance="Computed.")
    (axes,) = picture.figure.axes
    assert [line.get_label() for line in axes.lines] == ["FP32", "FP16"]
    assert list(axes.lines[1].get_ydata()) == [4.0, 3.5]
    assert "FP32 from 4.00 to 3.00; FP16 from 4.00 to 3.50" in picture.alt
    with pytest.raises(ValueError, match="zip"):
        loss_curves({name: [1.0] for name in "abcd"}, provenance="Computed.")


def test_bf16_keeps_about_a_third_less_for_backward_as_the_lab_says():
    batch = gpt_batches(1)[0]
    full, half = (
        work_and_memory(SmallGPT(68, 64), batch, precision=name)[1] for name in ("fp32", "bf16")
    )
    assert round(full / 2**20, 2) == 4.43 and round(half / full, 1) == 0.7
