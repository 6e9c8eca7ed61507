"""What lab 11 says of one batch of raw pixels is what was recorded."""

import pytest

from labkit.labs.monitoring_and_debugging.bad_batch import bad_batch_record
from tests.record_scripts import record_script

CHANCE = 0.15  # ten digits
WHOLE = 0.95


def at_chance(way):
    return sum(accuracy < CHANCE for accuracy in bad_batch_record()[way])


def test_ten_seeds_of_each_way_are_recorded():
    record = bad_batch_record()
    assert tuple(record) == record_script("record_bad_batch").WAYS
    assert {len(each) for each in record.values()} == {10}


def test_one_batch_ends_half_of_the_runs_at_chance():
    assert min(bad_batch_record()["no bad batch"]) > WHOLE
    assert at_chance("nothing done") == 5


def test_only_weights_momentum_and_skipping_together_or_clipping_save_every_run():
    record = bad_batch_record()
    assert record["rewound, same batches"] == record["nothing done"]
    assert at_chance("weights rewound, batch skipped") == 4
    for way in ("rewound, batch skipped", "gradients clipped at 1"):
        assert min(record[way]) > WHOLE


def test_a_run_ends_as_it_is_recorded():
    way = "rewound, batch skipped"
    found = record_script("record_bad_batch").accuracy_after(way, 0)
    assert found == pytest.approx(bad_batch_record()[way][0], abs=0.03)
