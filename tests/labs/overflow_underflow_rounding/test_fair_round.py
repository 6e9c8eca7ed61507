"""What the checks of lab 03 say where chance decides."""

import torch

from labkit.formats import BF16, spacing
from labkit.labs.overflow_underflow_rounding.checks import check_fair_round


def one_draw_for_all(x):
    gap = spacing(x, BF16)
    below = (x / gap).floor()
    return (below + (torch.rand(1) < x / gap - below)) * gap


def test_one_draw_for_all_is_not_taken_for_rounding_to_nearest():
    # At seed 1 its draws round every value but those at 7/16 of a gap to nearest.
    result = check_fair_round.result(one_draw_for_all, seed=1)
    assert "Does each copy have a draw of its own" in result.message
    assert result.misconceptions == ()
