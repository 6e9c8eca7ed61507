"""The recording of lab 10: nine seeds of each, and what the lab says of them."""

from statistics import fmean

import pytest

from labkit.labs.compression.figures import layout_picture, pruning_picture, weigh_in_picture
from labkit.labs.compression.pipeline import pipeline, weigh
from labkit.labs.compression.recorded import compare, compression_record, pruned, weighed_entries
from labkit.measuring import verdict

PARTS = ("pruning", "zeros", "narrow", "rank", "entries", "orders")
LARGE, MEDIUM = "large, 90 % pruned, INT8", "medium, 80 % pruned, INT8"


def mean(part, *path):
    """Of one number of a part, over the seeds."""
    values = compression_record()[part]
    for key in path:
        values = [value[key] for value in values]
    return fmean(values)


def test_every_part_has_nine_seeds_and_says_how_it_was_made():
    file = compression_record()
    assert all(len(file[part]) == 9 for part in PARTS)
    for key in ("what", "device", "torch", "date", "by"):
        assert file[key]


@pytest.mark.parametrize("name", ["small, 70 % pruned, INT8", "tiny, dense, INT8"])
def test_entries_are_recorded_as_they_are_weighed(name):
    now, then = (
        weigh(compression_record()["settings"][name], 1),
        compression_record()["entries"][1][name],
    )
    assert now.total == pytest.approx(then["bytes"], rel=0.01)
    assert now.accuracy == pytest.approx(then["accuracy"], abs=0.015)


# What the text says


def test_fine_tuning_wins_back_80_percent_of_zeros_and_loses_a_point_at_90():
    dense = mean("pruning", "dense")
    after = {share: fmean(seed[1] for seed in seeds) for share, seeds in pruned("together").items()}
    rounded = [f"{accuracy:.1%}" for accuracy in (dense, after[0.8], after[0.9])]
    assert rounded == ["97.2%", "97.5%", "96.0%"]


def test_all_layers_together_are_better_at_90_and_95_and_worse_at_98_percent():
    together, each_layer = pruned("together"), pruned("each layer")

    def answer(share):
        pairs = zip(together[share], each_layer[share], strict=True)
        return verdict([a[1] - b[1] for a, b in pairs], 0.005).answer

    assert [answer(share) for share in (0.9, 0.95, 0.98)] == ["better", "better", "worse"]
    assert max(seed[1] for seed in (*together[0.98], *each_layer[0.98])) < 0.35


def test_zeros_come_back_without_masks_and_with_masked_gradients_of_a_used_optimizer():
    zeros = compression_record()["zeros"]
    # The guess says 15 %, of 90, 50, 15 and 0.
    assert all(0.1 < seed["no mask"] < 0.2 for seed in zeros)
    assert all(seed["masked gradients, old AdamW"] < 0.15 for seed in zeros)
    assert all(seed["masked gradients, new AdamW"] == 0.9 for seed in zeros)


def test_fp16_makes_zeros_of_moments_and_of_no_weight():
    for seed in compression_record()["zeros"]:
        cast = seed["by cast"]
        assert cast["weights"]["fp16"] < 0.001
        assert all(0.1 < cast[name]["fp16"] < 0.2 for name in ("exp_avg", "exp_avg_sq"))


def test_int8_changes_no_accuracy_and_the_large_reader_cannot_get_below_14_kb():
    found = weighed_entries()
    assert found["large, dense, FP32"].bytes == 340_440
    assert f"{340_440 / found['large, dense, INT8'].bytes:.1f}" == "3.9"
    assert found["large, dense, INT8"].accuracies == found["large, dense, FP32"].accuracies
    pruned_to_pieces = found["large, 98 % pruned, INT8"]
    kept = round(0.02 * 84_480)  # a byte each
    assert pruned_to_pieces.bytes - kept > 14_000 and 84_480 // 8 == 10_560
    assert pruned_to_pieces.accuracy < 0.5


def test_pruning_costs_the_large_reader_half_a_point_and_pays_at_10_kb():
    found = weighed_entries()
    dense, pruned_large = found["large, dense, FP32"], found[LARGE]
    assert [f"{e.accuracy:.1%}" for e in (dense, pruned_large)] == ["97.4%", "96.9%"]
    control = found["medium, dense, INT8"]
    assert f"{control.bytes / 1000:.0f}" == "28" and f"{control.accuracy:.1%}" == "96.7%"
    small = found["small, dense, INT8"]
    assert 10_000 < small.bytes < found[MEDIUM].bytes
    assert [f"{e.accuracy:.1%}" for e in (small, found[MEDIUM])] == ["95.9%", "96.8%"]
    assert compare(MEDIUM, "small, dense, INT8", margin=0.001).answer == "better"
    assert f"{found['small, dense, FP32'].accuracy:.1%}" == "96.0%"


def test_the_medium_reader_matches_the_large_one_in_half_of_the_bytes():
    found = weighed_entries()
    assert 23_000 < found[LARGE].bytes < 23_500
    assert 10_900 < found[MEDIUM].bytes < 11_200
    assert compare(MEDIUM, LARGE, margin=0.01).answer == "equivalent"


def test_an_entry_for_the_weigh_in_takes_a_small_reader_and_pruning():
    passing = {
        e.name for e in weighed_entries().values() if e.bytes <= 6_000 and e.accuracy >= 0.95
    }
    assert passing == {"small, 70 % pruned, INT8", "small, rank 8, 50 % pruned, INT8"}
    others = [e for e in weighed_entries().values() if e.name not in passing]
    assert all(e.bytes > 6_500 or e.accuracy < 0.947 for e in others)


def test_narrow_readers_are_no_better_for_having_been_wide():
    assert f"{mean('narrow', '64', 'pruned', 1):.1%}" == "94.9%"
    assert f"{mean('narrow', '64', 'from scratch'):.1%}" == "95.4%"
    assert mean("narrow", "26", "from scratch") > mean("narrow", "26", "pruned", 1) + 0.1
    pairs = [
        seed["64"]["pruned"][1] - seed["64"]["from scratch"]
        for seed in compression_record()["narrow"]
    ]
    found = verdict(pairs, 0.01, step=1 / 359)
    assert found.answer == "inconclusive"
    assert [f"{100 * x:.1f}" for x in (found.mean, found.low, found.high)] == [
        "-0.5",
        "-1.3",
        "0.2",
    ]


def test_rank_8_keeps_56_percent_and_nearly_all_of_the_accuracy():
    place = compression_record()["ranks"].index(8)
    assert f"{mean('rank', 'energy', place):.0%}" == "56%"
    assert f"{mean('rank', 'energy of a random matrix', place):.0%}" == "11%"
    lost = mean("pruning", "dense") - mean("rank", "accuracy", place)
    assert 0 < lost < 0.015
    assert mean("pruning", "dense") - mean("rank", "accuracy", place - 1) > 0.15


def test_the_published_order_undoes_its_own_stages():
    for seed in compression_record()["orders"]:
        rows = {row["stage"]: row for row in seed["published"]}
        assert rows["rank 32"]["nonzeros"] > rows["tune 3"]["nonzeros"] == 25_344
        assert rows["store fp16"]["bytes"] > 1.55 * rows["store int8"]["bytes"]
        assert 56_000 < rows["store fp16"]["bytes"] < 57_000
        assert seed["rank first"][-1]["bytes"] == pytest.approx(19_600, abs=50)
        assert seed["rank first"][-1]["nonzeros"] == 10_598
    alone = pipeline([("prune", 0.7), ("store", "int8")])[-1]
    assert alone.total == pytest.approx(40_000, abs=500)


def test_both_orders_have_the_same_rank_share_and_epochs_and_end_as_accurate():
    settings = [
        {row["stage"] for row in compression_record()["orders"][0][order]}
        for order in compression_record()["orders"][0]
    ]
    assert settings[0] - settings[1] == {"store fp16"} and settings[1] < settings[0]
    pairs = [
        seed["rank first"][-1]["accuracy"] - seed["published"][-1]["accuracy"]
        for seed in compression_record()["orders"]
    ]
    assert verdict(pairs, 0.01, step=1 / 359).answer == "equivalent"
    last = [mean("orders", order, -1, "accuracy") for order in ("published", "rank first")]
    assert [f"{accuracy:.1%}" for accuracy in last] == ["97.6%", "97.3%"]


def test_the_order_is_run_as_it_is_recorded():
    rows = pipeline([("rank", 32), ("prune", 0.7), ("tune", 3), ("store", "int8")], 2)
    for now, then in zip(rows, compression_record()["orders"][2]["rank first"], strict=True):
        assert now.total == pytest.approx(then["bytes"], rel=0.01)
        assert now.accuracy == pytest.approx(then["accuracy"], abs=0.03)


def test_figures_say_in_words_what_they_draw():
    words = pruning_picture().alt
    for seeds in pruned("each layer").values():
        assert f"{fmean(seed[1] for seed in seeds):.1%}" in words
    words = weigh_in_picture().alt
    assert MEDIUM in words and "98 % pruned" not in words
    assert "small, 70 % pruned" not in words  # an answer to the exercise below the figure
    words = layout_picture().alt
    assert all(share in words for share in ("1/9", "1/8", "1/16"))
