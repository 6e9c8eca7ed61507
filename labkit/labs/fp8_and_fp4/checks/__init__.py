"""Checks of lab 08: FP8 with one scale, three matmuls, scales of blocks, a recipe."""

from labkit.labs.fp8_and_fp4.checks.blocks import check_mx_block, check_nvfp4_block
from labkit.labs.fp8_and_fp4.checks.delayed import check_delayed
from labkit.labs.fp8_and_fp4.checks.fp8_matmul import check_fp8_matmul
from labkit.labs.fp8_and_fp4.checks.recipe import check_recipe
from labkit.labs.fp8_and_fp4.checks.to_fp8 import check_to_fp8

__all__ = [
    "check_delayed",
    "check_fp8_matmul",
    "check_mx_block",
    "check_nvfp4_block",
    "check_recipe",
    "check_to_fp8",
]
