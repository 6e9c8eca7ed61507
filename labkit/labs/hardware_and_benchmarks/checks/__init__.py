"""Checks of lab 06: the recipe, the least time; the timer, the whole step, the verdict."""

from labkit.labs.hardware_and_benchmarks.checks.device import check_least_time, check_recipe
from labkit.labs.hardware_and_benchmarks.checks.profile import check_speedup
from labkit.labs.hardware_and_benchmarks.checks.timer import check_timed
from labkit.labs.hardware_and_benchmarks.checks.verdict import check_verdict

__all__ = ["check_least_time", "check_recipe", "check_speedup", "check_timed", "check_verdict"]
