"""Checks of lab 13: rotary positions, pooling, attention, the head, two kinds of training steps."""

from labkit.labs.real_models.checks.attend import check_attend
from labkit.labs.real_models.checks.head_loss import check_head_loss
from labkit.labs.real_models.checks.joint_step import check_joint_step
from labkit.labs.real_models.checks.language_step import check_language_step
from labkit.labs.real_models.checks.pooled import check_pooled
from labkit.labs.real_models.checks.rotary import check_rotary

__all__ = [
    "check_attend",
    "check_head_loss",
    "check_joint_step",
    "check_language_step",
    "check_pooled",
    "check_rotary",
]
