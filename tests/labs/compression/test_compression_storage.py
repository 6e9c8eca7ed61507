"""T15 and T14: zeros stay zeros, places are counted, and sparsity counts what is exactly 0."""

import io
from fractions import Fraction

import pytest
import torch
from safetensors.torch import load, save

from labkit.labs.compression.sparsity import sparsity
from labkit.labs.compression.storage import (
    LAYOUTS,
    break_even,
    file_bytes,
    layout_bytes,
    pack_weight,
    unpack_weight,
)


def sparse(density=0.1, shape=(257, 250), seed=0):
    """Rows from 1e-6 to 1 in size, one of them empty."""
    g = torch.Generator().manual_seed(seed)
    weight = torch.randn(shape, generator=g) * torch.logspace(-6, 0, shape[0])[:, None]
    weight[torch.rand(shape, generator=g) >= density] = 0
    weight[5] = 0
    return weight


@pytest.mark.seeds(range(3))
def test_zeros_stay_and_no_weight_is_off_by_more_than_half_a_step(seed):
    weight = sparse(seed=seed)
    back = unpack_weight(pack_weight(weight))
    assert (back[weight == 0] == 0).all()
    half = weight.abs().amax(dim=1, keepdim=True) / 127 / 2
    assert ((back - weight).abs() <= half * (1 + 1e-5)).all()
    assert (back[weight.abs() > 1.001 * half] != 0).all()  # only what rounds to 0 is lost


@pytest.mark.parametrize("values, mantissa", [("fp32", 24), ("fp16", 11)])
@pytest.mark.parametrize("bitmask", [True, False])
def test_floating_point_values_come_back_rounded_once(values, mantissa, bitmask):
    weight = sparse()[200:]  # FP16 has no normal number for smaller ones
    back = unpack_weight(pack_weight(weight, values=values, bitmask=bitmask))
    assert ((back - weight).abs() <= weight.abs() * 2.0**-mantissa + 2.0**-25).all()


@pytest.mark.parametrize("values", ["fp32", "int8"])
@pytest.mark.parametrize("bitmask", [True, False])
def test_a_file_gives_the_same_weight(values, bitmask):
    packed = pack_weight(sparse(), values=values, bitmask=bitmask)
    assert len(save(packed)) == file_bytes(packed)
    assert torch.equal(unpack_weight(load(save(packed))), unpack_weight(packed))


def test_a_tenth_of_the_weights_fits_into_65_thousandths_of_the_dense_file():
    weight = sparse()
    assert file_bytes(pack_weight(weight)) <= 0.065 * weight.nbytes
    assert file_bytes(pack_weight(weight, bitmask=False)) > 0.25 * weight.nbytes


def test_a_weight_that_is_no_finite_matrix_is_refused():
    for weight in (torch.ones(3), torch.tensor([[1.0, torch.inf]]), torch.tensor([[torch.nan]])):
        with pytest.raises(ValueError, match="finite matrix"):
            pack_weight(weight)


@pytest.mark.parametrize("density", [0.02, 0.3])
def test_layouts_are_counted_as_torch_and_pack_store_them(density):
    weight = sparse(density)
    kept = (weight != 0).double().mean().item()
    csr = weight.to_sparse_csr()
    indices = csr.col_indices(), csr.crow_indices()
    sizes = layout_bytes(kept, weight.shape, value_bytes=4)
    assert sizes["csr64"] == csr.values().nbytes + sum(x.nbytes for x in indices)
    assert sizes["csr32"] == csr.values().nbytes + sum(x.int().nbytes for x in indices)
    packed = pack_weight(weight, values="fp32")
    assert sizes["bitmask"] == packed["mask"].nbytes + packed["values"].nbytes
    assert sizes["dense"] == weight.nbytes


@pytest.mark.parametrize("value_bytes", [1, 2, 4])
def test_break_even_is_where_the_layouts_cross(value_bytes):
    shape = (64, 1 << 14)  # long rows: their pointers count for little
    for layout in LAYOUTS:
        for other in LAYOUTS:
            density = break_even(layout, other, value_bytes)
            if density is None:
                continue
            below, above = (
                layout_bytes(float(density) * f, shape, value_bytes) for f in (0.98, 1.02)
            )
            assert (below[layout] - below[other]) * (above[layout] - above[other]) < 0


def test_break_evens_that_the_lab_states():
    assert break_even("csr64", "dense", value_bytes=4) == Fraction(1, 3)
    assert break_even("csr64", "dense", value_bytes=1) == Fraction(1, 9)
    for value_bytes in (1, 2, 4):
        assert break_even("csr16", "bitmask", value_bytes) == Fraction(1, 16)
    assert break_even("dense", "dense", value_bytes=4) is None
    with pytest.raises(ValueError, match="coo"):
        break_even("coo", "dense", value_bytes=4)


def test_torch_save_writes_the_longer_storage_of_csr_columns():
    csr = sparse().to_sparse_csr()
    columns = csr.col_indices()

    def saved(x):
        file = io.BytesIO()
        torch.save(x, file)
        return len(file.getvalue())

    assert saved(columns) > 1.9 * columns.nbytes > 1.7 * saved(columns.clone())
    with pytest.raises(ValueError, match="sparse"):
        save({"weight": csr})


ROWS = torch.tensor(
    [
        [0.0, -0.0, 1e-9, 2.0**-25, 2.0**-24, 1e-5, 1.0, -3.0],
        [0.0] * 8,
        [1.0, 0.0, 0.0, 2.0, 5e-8, 0.0, 0.0, 3e-8],
        [torch.nan, 0, 0, 1, torch.inf, 0, 0, -(2.0**-25)],
    ]
)


def test_sparsity_counts_exact_zeros_and_those_of_the_cast_apart():
    found = sparsity(ROWS, torch.float16)
    # 1e-9 and both 2**-25 (a tie, to even) become 0; 2**-24, 5e-8 and 3e-8 are subnormals.
    assert (found.exact, found.made_by_cast, found.rows) == (18 / 32, 3 / 32, 1 / 4)
    assert sparsity(ROWS, torch.bfloat16).made_by_cast == 0
    assert sparsity(ROWS, torch.float8_e5m2).made_by_cast == 6 / 32
    assert sparsity(ROWS.t(), torch.float16).columns == 1 / 4


def test_two_of_four_is_a_pattern_of_groups_along_a_row():
    half = torch.zeros(4, 8)
    half[:, :4] = 1
    assert not sparsity(half, torch.float16).two_of_four  # half zeros, but four in a group
    half[:, 2:6] = torch.tensor([0.0, 0.0, 1.0, 1.0])
    assert sparsity(half, torch.float16).two_of_four
    assert not sparsity(torch.zeros(4, 6), torch.float16).two_of_four
