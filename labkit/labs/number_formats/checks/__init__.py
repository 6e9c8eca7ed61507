"""Checks of lab 02: codes, gaps, rounding, what a cast keeps, a format of eight bits."""

from labkit.labs.number_formats.checks.casts import check_window
from labkit.labs.number_formats.checks.codes import check_decode, check_e2m1_value
from labkit.labs.number_formats.checks.eight_bits import check_eight_bits
from labkit.labs.number_formats.checks.gaps import check_ulp
from labkit.labs.number_formats.checks.rounding import check_snap

__all__ = [
    "check_decode",
    "check_e2m1_value",
    "check_eight_bits",
    "check_snap",
    "check_ulp",
    "check_window",
]
