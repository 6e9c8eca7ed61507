"""What the text of lab 07 says of FSDP2's policies, against the recording."""

from labkit.labs.memory_and_many_gpus.recorded import fsdp2_record, policies_table


def test_masters_and_moments_are_always_float32():
    for row in fsdp2_record()["policies"]:
        assert row["shard"] == row["moments"] == row["gradient"] == "float32"


def test_only_a_reduction_in_fp32_leaves_values_between_bf16s():
    rows = {row["policy"]: row for row in fsdp2_record()["policies"]}
    assert max(rows["none"]["gradients_in_bf16"]) < 0.01
    assert set(rows["param_dtype=bf16"]["gradients_in_bf16"]) == {1.0}
    # Some sums of two BF16 numbers are BF16 numbers, and others lie between two of them.
    reduced = rows["param_dtype=bf16, reduce_dtype=fp32"]["gradients_in_bf16"]
    assert all(0.3 < share < 0.7 for share in reduced)


def test_the_last_policy_changes_what_layers_write_and_nothing_else():
    rows = [dict(row) for row in fsdp2_record()["policies"][-2:]]
    differ = {key for key in rows[0] if rows[0][key] != rows[1][key]}
    assert differ == {"policy", "layer_output", "model_output"}


def test_the_table_shows_each_policy_once():
    table = policies_table()
    assert table["gradients that are BF16 numbers"].iloc[:2].tolist() == ["0%", "100%"]
    assert len(table) == len(fsdp2_record()["policies"]) == 4
    assert table.index.is_unique
