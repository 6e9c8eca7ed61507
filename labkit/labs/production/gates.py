"""``Gate``: a test of mirrored requests that may be looked at after each of them.

If two models are equally good, each request on which exactly one of them is right is a fair coin.
The e-value compares this coin with the average over all biased ones. The chance that it *ever*
reaches 1 / alpha is then at most alpha (Ville 1939), so a look costs nothing.
"""

import math
from typing import Protocol


def log_e(worse: int, better: int) -> float:
    """The natural logarithm of E = 2**n * worse! * better! / (n + 1)! for n disagreements.

    2**n overflows a float from n = 1024 on; its logarithm does not.
    """
    n = worse + better
    return n * math.log(2) + math.lgamma(worse + 1) + math.lgamma(better + 1) - math.lgamma(n + 2)


class Rule(Protocol):
    """What decides after each mirrored request."""

    def see(self, reference_right: bool, candidate_right: bool) -> bool:
        """True: roll back now."""


class Gate:
    """An e-value over the requests on which exactly one of two models is right.

    ``worse`` counts those that the reference alone answers rightly, ``better`` those that the
    candidate alone does. The promise presumes that these disagreements are independent: retries of
    one request, or bursts of similar ones, must be shuffled or counted once.

    Args:
        alpha: the largest share of equally good candidates that the gate ever rolls back.

    Raises:
        ValueError: alpha is not between 0 and 1.
    """

    def __init__(self, alpha: float = 0.05) -> None:
        if not 0 < alpha < 1:
            raise ValueError(f"alpha is {alpha}; a share between 0 and 1 is wanted, such as 0.05")
        self.alpha, self.worse, self.better = alpha, 0, 0

    def see(self, reference_right: bool, candidate_right: bool) -> bool:
        """Count a request; True: roll back now."""
        self.worse += bool(reference_right and not candidate_right)
        self.better += bool(candidate_right and not reference_right)
        alarm = log_e(self.worse, self.better) >= -math.log(self.alpha)
        return alarm and self.worse > self.better
