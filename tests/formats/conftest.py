"""``quantize`` rounds large tensors by a compiled loop and small ones by torch: tests ask both."""

import math

import pytest


@pytest.fixture(scope="module", params=["torch", "numba"])
def rounded_by(request):
    """Who rounds tensors of every size, as far as the loop takes the format."""
    from labkit.formats import rounding_kernel  # here: it imports torch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounding_kernel, "LARGE", {"torch": math.inf, "numba": 1}[request.param])
        yield request.param
