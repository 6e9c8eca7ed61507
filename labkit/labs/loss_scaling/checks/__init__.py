"""Checks of lab 04: the AMP loop, master weights, the parts of a loss scaler."""

from labkit.labs.loss_scaling.checks.amp_loop import check_amp_loop
from labkit.labs.loss_scaling.checks.masters import check_masters
from labkit.labs.loss_scaling.checks.scaler import check_scaler
from labkit.labs.loss_scaling.checks.transition import check_transition
from labkit.labs.loss_scaling.checks.unscale_and_step import check_scaled_step

__all__ = [
    "check_amp_loop",
    "check_masters",
    "check_scaled_step",
    "check_scaler",
    "check_transition",
]
