"""``quantize`` rounds large tensors by a compiled loop and small ones by torch: tests ask both."""

import math

import pytest

from labkit.formats import rounding_kernel


@pytest.fixture(scope="module", params=["torch", "numba"])
def rounded_by(request):
    """Who rounds tensors of every size, as far as the loop takes the format."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounding_kernel, "LARGE", {"torch": math.inf, "numba": 1}[request.param])
        yield request.param
