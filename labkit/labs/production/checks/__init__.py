"""Checks of lab 15: paired experiments, a verdict, a gate, checkpoints and a fault policy."""

from labkit.labs.production.checks.checkpoints import check_checkpoints
from labkit.labs.production.checks.experiment import check_experiment
from labkit.labs.production.checks.gate import check_gate
from labkit.labs.production.checks.respond import check_respond
from labkit.labs.production.checks.ship import check_ship

__all__ = ["check_checkpoints", "check_experiment", "check_gate", "check_respond", "check_ship"]
