"""Checks of lab 12: one layer, bits for each layer, a policy loss, a selector of formats."""

from labkit.labs.choosing_precision.checks.allocate import check_allocate
from labkit.labs.choosing_precision.checks.escalate import check_escalate
from labkit.labs.choosing_precision.checks.off_policy import check_off_policy
from labkit.labs.choosing_precision.checks.one_layer import check_one_layer

__all__ = ["check_allocate", "check_escalate", "check_off_policy", "check_one_layer"]
