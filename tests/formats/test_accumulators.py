"""A running sum in few bits: against numpy's, and where it stalls, truncates and is promoted."""

import pytest
import torch

from labkit.formats import BF16, FP16, FP32, FloatFormat, quantize
from labkit.formats.accumulators import add_up


def test_a_chain_of_adds_is_numpys_running_sum():
    terms = torch.rand(4, 700, generator=torch.Generator().manual_seed(3)).half()
    chained = add_up(terms.double(), FP16)
    running = terms.numpy().cumsum(axis=1, dtype="float16")[:, -1]
    assert chained.tolist() == running.astype(float).tolist()


def test_a_chain_stalls_truncates_and_is_rescued_by_promotion():
    ones = torch.ones(1, 5000, dtype=torch.float64)
    assert add_up(ones, FP16).item() == 2048
    assert add_up(ones, BF16).item() == 256
    assert add_up(ones, FP16, promote_every=128).item() == 5000
    terms = torch.rand(2, 300, generator=torch.Generator().manual_seed(4)).double()
    fourteen = FloatFormat("14 bits", exponent_bits=8, mantissa_bits=13)
    cut, near = add_up(terms, fourteen, rounding="toward_zero"), add_up(terms, fourteen)
    exact = terms.sum(dim=1)
    assert (cut < exact).all() and ((exact - cut) > (exact - near).abs()).all()
    assert torch.equal(add_up(terms, FP32), quantize(add_up(terms, FP32), FP32))


@pytest.mark.parametrize("promote_every", [0, -1, 1.5, True])
def test_a_count_below_one_is_refused(promote_every):
    with pytest.raises(ValueError, match=f"promote_every={promote_every}"):
        add_up(torch.ones(1, 2, dtype=torch.float64), FP16, promote_every=promote_every)


def test_no_sum_is_rounded_to_float32_on_its_way():
    # 1 + 2**-11 + 2**-30 lies above a tie of FP16; float32 would make it the tie, which goes down.
    terms = torch.tensor([[1.0, 2.0**-11 + 2.0**-30]], dtype=torch.float64)
    assert add_up(terms, FP16).item() == 1 + 2.0**-10
