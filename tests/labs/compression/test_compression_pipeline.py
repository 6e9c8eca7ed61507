"""T18: bytes of the file, accuracy and time after each stage; AMP makes no smaller checkpoint."""

import pytest
import torch
from safetensors.torch import save

from labkit.labs.compression.pipeline import (
    accuracy,
    adamw,
    linears,
    pipeline,
    reader,
    restored,
    stored_tensors,
    weigh,
)
from labkit.labs.compression.storage import file_bytes
from labkit.training import train
from labkit.training.data import batches, digits
from labkit.training.models import mlp

SMALL = dict(hidden=32, rank=None, prune=0.5, values="int8")


def test_each_stage_is_weighed_as_the_file_that_it_writes():
    start = mlp(64, 16, 16, 10)
    rows = pipeline(
        [("prune", 0.9), ("tune", 1), ("rank", 4), ("store", "int8"), ("store", "fp16")],
        start=start,
    )
    assert [row.stage for row in rows] == [
        "trained",
        "prune 0.9",
        "tune 1",
        "rank 4",
        "store int8",
        "store fp16",
    ]
    assert (
        rows[0].total == len(save(start.state_dict())) == file_bytes(stored_tensors(start, "fp32"))
    )
    count = sum(layer.weight.numel() for layer in linears(start))
    assert rows[1].nonzeros == rows[2].nonzeros == count - round(0.9 * count)
    assert rows[3].nonzeros > rows[2].nonzeros  # factors of a pruned weight are dense
    assert rows[4].bytes["values"] < rows[3].bytes["values"] / 3
    assert rows[5].bytes["values"] == 2 * rows[4].bytes["values"]  # codes cast to FP16
    assert rows[5].accuracy == pytest.approx(rows[4].accuracy, abs=0.01)
    assert all(row.seconds > 0 and sum(row.bytes.values()) == row.total for row in rows)


def test_the_start_and_the_cached_reader_stay_as_they_were():
    start = mlp(64, 16, 16, 10)
    before = [p.clone() for p in start.parameters()]
    pipeline([("prune", 0.5), ("tune", 1)], start=start)
    assert all(torch.equal(p, b) for p, b in zip(start.parameters(), before, strict=True))
    assert weigh(SMALL, 1).accuracy == weigh(SMALL, 1).accuracy
    first = reader(1, hidden=32)
    first[1].weight.data.zero_()
    assert reader(1, hidden=32)[1].weight.any()


def test_the_accuracy_is_that_of_the_stored_network():
    model, data = reader(0, hidden=32), digits(0)
    shipped = restored(model, stored_tensors(model, "int8"))
    (_, row) = pipeline([("store", "int8")], start=model)
    assert row.accuracy == accuracy(shipped, data)
    assert not torch.equal(shipped[1].weight, model[1].weight)


def test_mixed_precision_training_leaves_the_checkpoint_as_large():
    sizes = set()
    for precision in ("fp32", "fp16", "bf16"):
        data, model = digits(), mlp(64, 256, 256, 10)
        loader = batches(data.train_images[:128], data.train_labels[:128], 64)
        train(model, loader, optimizer=adamw(model), precision=precision, progress=False)
        sizes.add(len(save(model.state_dict())))
    assert sizes == {340_440}
    assert len(save(model.half().state_dict())) == 170_436


@pytest.mark.parametrize(
    "change, says",
    [
        ({"hidden": 0}, "1 to 512"),
        ({"prune": 1.0}, "below 1"),
        ({"rank": 99}, "rank 99"),
        ({"values": "int4"}, "fp32, fp16, int8"),
        ({"more": 1}, "keys"),
    ],
)
def test_an_entry_outside_the_rules_is_refused(change, says):
    with pytest.raises(ValueError, match=says):
        weigh(SMALL | change)


def test_an_unknown_stage_is_refused_before_anything_is_trained():
    with pytest.raises(ValueError, match="distil"):
        pipeline([("prune", 0.5), ("distil", 1)])
