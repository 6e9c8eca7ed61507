"""Checks of lab 10: zeros that stay, a packed file, a weigh-in, two thin matrices."""

from labkit.labs.compression.checks.factorise import check_factorise
from labkit.labs.compression.checks.hold_masks import check_hold_masks
from labkit.labs.compression.checks.pack import check_pack
from labkit.labs.compression.checks.weigh_in import check_weigh_in

__all__ = ["check_factorise", "check_hold_masks", "check_pack", "check_weigh_in"]
