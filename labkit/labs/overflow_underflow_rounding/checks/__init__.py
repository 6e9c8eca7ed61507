"""Checks of lab 03: log-sum-exp, masks, eps, matmuls; sums, fair rounding, variance."""

from labkit.labs.overflow_underflow_rounding.checks.log_sum_exp import check_logsumexp
from labkit.labs.overflow_underflow_rounding.checks.masks_and_norms import (
    check_masked_softmax,
    check_unit_rms,
)
from labkit.labs.overflow_underflow_rounding.checks.products import check_rescue
from labkit.labs.overflow_underflow_rounding.checks.rounding import (
    check_fair_round,
    check_hair,
    check_welford,
)
from labkit.labs.overflow_underflow_rounding.checks.sums import check_kahan, check_total

__all__ = [
    "check_fair_round",
    "check_hair",
    "check_kahan",
    "check_logsumexp",
    "check_masked_softmax",
    "check_rescue",
    "check_total",
    "check_unit_rms",
    "check_welford",
]
