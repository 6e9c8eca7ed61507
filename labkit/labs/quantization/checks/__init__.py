"""Checks of lab 09: a linear layer in integers, GPTQ, adapters on a 4-bit weight."""

from labkit.labs.quantization.checks.adapters import check_lora_linear
from labkit.labs.quantization.checks.fake_quant import check_fake_quant
from labkit.labs.quantization.checks.gptq import check_gptq
from labkit.labs.quantization.checks.integer_linear import check_integer_linear
from labkit.labs.quantization.checks.smooth import check_smooth

__all__ = [
    "check_fake_quant",
    "check_gptq",
    "check_integer_linear",
    "check_lora_linear",
    "check_smooth",
]
