"""Bytes by ZeRO stage beside the paper, a divided layer beside the whole one, torch's meshes."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional as F
from torch.testing._internal.distributed.fake_pg import FakeStore

from labkit.labs.memory_and_many_gpus.ranks import ranks
from labkit.labs.memory_and_many_gpus.sharding import column_row, coordinates, zero_bytes


def test_bytes_of_a_model_of_seven_and_a_half_billion_on_64_ranks():
    """Rajbhandari et al., arXiv:1910.02054, figure 1: 120, 31.4, 16.6 and 1.9 GB."""
    totals = [zero_bytes(7_500_000_000, 64, stage) for stage in range(4)]
    assert [round(total / 1e9, 1) for total in totals] == [120.0, 31.4, 16.6, 1.9]


def test_seven_billion_in_gib():
    totals = [zero_bytes(7_000_000_000, 64, stage) for stage in range(4)]
    assert [round(total / 2**30, 1) for total in totals] == [104.3, 27.3, 14.5, 1.6]


def test_shares_are_filled_up_to_one_size():
    assert zero_bytes(901, 2, 1) == 1802 + 1802 + 12 * 451
    assert zero_bytes(901, 2, 3) == 902 + 902 + 12 * 451


@pytest.mark.parametrize("stage", [-1, 4, 1.5])
def test_zero_has_stages_0_to_3(stage):
    with pytest.raises(ValueError, match="0, 1, 2 and 3"):
        zero_bytes(10, 2, stage)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_divided_layer_gives_what_the_whole_one_gives(size, dtype):
    draw = torch.Generator().manual_seed(0)
    shapes = (5, 16), (64, 16), (16, 64)
    x, up, down = ((torch.randn(*shape, generator=draw) / 4).to(dtype) for shape in shapes)
    wide = F.linear(F.gelu(F.linear(x.double(), up.double())), down.double())
    found = ranks(column_row, size, x, up, down)
    assert all(torch.equal(one, found[0]) for one in found)
    # A few roundings to dtype on the way, of values of the output's size.
    assert (found[0].double() - wide).norm() < 4 * torch.finfo(dtype).eps * wide.norm()


@pytest.fixture
def world_of_16():
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=16)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("shape", [(2, 2, 4), (4, 2, 2), (1, 16, 1), (2, 1, 8)])
def test_coordinates_are_those_of_torchs_mesh(world_of_16, shape):
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "pp", "tp")).mesh
    dp, pp, tp = shape
    for rank in range(16):
        found = coordinates(rank, dp=dp, pp=pp, tp=tp, world=16)
        place = tuple((mesh == rank).nonzero()[0].tolist())
        assert (found.data, found.pipeline, found.tensor) == place
        assert list(found.tensor_group) == mesh[place[:2]].tolist()


def test_a_mesh_of_another_size_is_refused():
    with pytest.raises(ValueError, match="2 x 3 x 2 = 12 is not 16"):
        coordinates(0, dp=2, pp=3, tp=2, world=16)
    with pytest.raises(ValueError, match="ranks 0 to 15"):
        coordinates(16, dp=2, pp=2, tp=4, world=16)
