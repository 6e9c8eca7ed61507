"""Checks of lab 01: a BF16 step, its dtypes, the first NaN, lost updates, a repair, bytes."""

from labkit.labs.three_crimes.checks.byte_ledger import check_ledger
from labkit.labs.three_crimes.checks.failures import check_first_nonfinite, check_lost_updates
from labkit.labs.three_crimes.checks.repair import CHANCE, STALLED, check_pardon
from labkit.labs.three_crimes.checks.steps import check_bf16_step, check_witness

__all__ = [
    "CHANCE",
    "STALLED",
    "check_bf16_step",
    "check_first_nonfinite",
    "check_ledger",
    "check_lost_updates",
    "check_pardon",
    "check_witness",
]
