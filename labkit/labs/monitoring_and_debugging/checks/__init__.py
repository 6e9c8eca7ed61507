"""Checks of lab 11: an alarm, a layer's row, the first operator, modules in FP32, a tolerance."""

from labkit.labs.monitoring_and_debugging.checks.first_born import check_first_born
from labkit.labs.monitoring_and_debugging.checks.layer_row import check_layer_row
from labkit.labs.monitoring_and_debugging.checks.must_stay import check_must_stay
from labkit.labs.monitoring_and_debugging.checks.same_sum import check_same_sum
from labkit.labs.monitoring_and_debugging.checks.spike_alarm import check_spike_alarm

__all__ = [
    "check_first_born",
    "check_layer_row",
    "check_must_stay",
    "check_same_sum",
    "check_spike_alarm",
]
