"""Lab 17's score: each way to earn points without a better network earns none."""

import itertools
import json
from functools import cache

import pytest
import torch

from labkit.base.home import DATA, read_manifest
from labkit.labs.engine import Mistake, codec
from labkit.labs.ship_it import checks
from labkit.labs.ship_it.checks import check_compress
from labkit.labs.ship_it.packed import in_integers, pack, total_bytes, unpacked
from labkit.labs.ship_it.scoring import BUDGETS, divergence, pieces, sampled, shapes
from labkit.labs.ship_it.variants import network, noisy, relabelled
from labkit.training import trained_gpt
from labkit.training.data import shakespeare_split

RECORD = json.loads((DATA / "emulated" / "ship_it.json").read_text(encoding="utf-8"))
BITS = {120_000: (8, None), 68_000: (4, 32), 47_000: (2, 32)}


def uniform(weights, budget):
    """All matrices in one width, with a claim that holds: what any answer may begin with."""
    bits, group = BITS[budget]
    return {
        name: in_integers(w, bits=bits, group=group, clip=True) if w.ndim == 2 else pack(w, "bf16")
        for name, w in weights.items()
    }


def honest(weights, text, budget):
    return uniform(weights, budget), {120_000: 0.001, 68_000: 0.2, 47_000: 9.0}[budget]


@cache
def result_of(answer):
    return check_compress.result(answer)


# What is right


def test_eight_bits_earn_the_first_budget_and_plain_rounding_nothing_of_the_others():
    result = result_of(honest)
    assert result.status == "passed" and result.score == pytest.approx(0.2)
    assert set(dict(result.measured)) == {"KL at 120,000 bytes", "bytes at 120,000 bytes"}
    assert "47,000 bytes: a KL of" in result.message and "117,768 used" in result.message


def test_the_same_answer_is_worth_the_same_again():
    assert check_compress.result(honest) == result_of(honest)


def test_a_score_falls_by_equal_steps_for_each_doubling_of_the_kl():
    for scale in BUDGETS.values():
        earned = [scale.earned(scale.full * 2**k) for k in range(-1, 5)]
        steps = [a - b for a, b in itertools.pairwise(earned)]
        assert steps == pytest.approx([0, *[scale.share / 3] * 3, 0])
        assert scale.earned(float("nan")) == scale.earned(float("inf")) == 0
    assert sum(scale.share for scale in BUDGETS.values()) == pytest.approx(1)


# The network is another one


def test_a_network_of_other_labels_is_the_same_function():
    public = trained_gpt().state_dict()
    other = relabelled(public, torch.Generator().manual_seed(5))
    tokens = pieces(shakespeare_split()[1], 20)
    assert divergence(public, other, tokens) < 1e-9
    changed = [name for name in public if not torch.equal(public[name], other[name])]
    assert set(public) - set(changed) == {"head.bias"}, "one for each character"


def test_prepared_weights_of_the_public_checkpoint_do_not_fit():
    public = dict(trained_gpt().state_dict())
    result = check_compress.result(lambda weights, text, budget: honest(public, text, budget))
    assert result.score == 0 and "points begin below 0.008" in result.message


def test_a_classmate_s_networks_do_not_fit():
    report = check_compress.collect(honest, seed=0)
    assert check_compress.verdict(report, seed=1).score == 0


def test_noise_moves_a_network_farther_than_the_first_budget_allows():
    public = trained_gpt().state_dict()
    tokens = pieces(shakespeare_split()[1], 40)
    for seed in range(3):
        other = noisy(public, torch.Generator().manual_seed(seed))
        assert divergence(other, public, tokens) > 10 * BUDGETS[120_000].none


# Training on the text


def test_further_training_of_the_network_pays_for_nothing_at_two_budgets():
    for of_seed in RECORD["cheats"]:
        for budget in (120_000, 68_000):
            found = of_seed[str(budget)]["trained on"]
            assert BUDGETS[budget].earned(found["sampled"]) == 0


def test_no_cheat_earns_what_a_hundred_steps_of_distillation_earn():
    for cheats, ladder in zip(RECORD["cheats"], RECORD["ladder"], strict=True):
        for budget, scale in BUDGETS.items():
            best = min(one["sampled"] for one in ladder[str(budget)].values())
            for found in cheats[str(budget)].values():
                assert scale.earned(found["sampled"]) < scale.earned(best)


def test_the_judge_s_text_depends_on_what_was_handed_over():
    weights = network(0)
    found = [[{"a": 1}, 0.5]] * 3
    text = checks._secret_text(weights, found, 0)
    assert torch.equal(text, checks._secret_text(weights, found, 0))
    other = checks._secret_text(weights, [[{"a": 1}, 0.5]] * 2 + [[{"a": 2}, 0.5]], 0)
    assert (text == other).float().mean() < 0.2, "as two texts by chance"


# Bytes beside the count


def spoiled(change):
    def compress(weights, text, budget):
        artifact, claim = honest(weights, text, budget)
        return change(artifact), claim

    return check_compress.result(compress)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a: a | {"more": a["head.bias"]}, "there is `more`"),
        (lambda a: a | {7: b"weights"}, "there is `7`"),
        (lambda a: {name: a[name] for name in list(a)[1:]}, "there is no"),
        (lambda a: a | {"head.bias": a["head.bias"] | {"n": 2**900}}, "exactly format"),
        (lambda a: a | {"head.bias": torch.zeros(68)}, "cannot be unpacked"),
        (lambda a: a | {"head.bias": lambda: 0}, "cannot be unpacked"),
        (lambda a: list(a.items()), "dict"),
        (lambda a: lambda tokens: tokens, "a dict"),
    ],
)
def test_what_is_not_counted_is_refused(change, says):
    result = spoiled(change)
    assert result.score == 0 and says in result.message, result.message


def test_one_byte_too_much_earns_nothing():
    artifact = uniform(network(0), 120_000)
    checks._count(117_768, artifact)
    with pytest.raises(Mistake, match="which is 1 too many"):
        checks._count(117_767, artifact)


# Claims


@pytest.mark.parametrize(
    ("claim", "says"),
    [
        (0.0, "you claim a KL of at most 0"),
        (1e-5, "you claim"),
        (-1.0, "a finite number from 0 on"),
        (float("nan"), "a finite number"),
        (float("inf"), "a finite number"),
        (100.0, "and begin below 0.008"),
        ("0.001", "one number is asked for"),
        (None, "return"),
    ],
)
def test_a_claim_that_does_not_hold_earns_nothing(claim, says):
    def compress(weights, text, budget):
        return uniform(weights, budget), claim

    result = check_compress.result(compress)
    assert result.score == 0 and says in result.message, result.message


def test_points_follow_the_claim_where_it_is_above_what_is_measured():
    def cautious(weights, text, budget):
        return uniform(weights, budget), 0.004

    result = check_compress.result(cautious)
    assert result.score == pytest.approx(BUDGETS[120_000].earned(0.004))
    assert 0 < result.score < result_of(honest).score


# The answer's process


def test_weights_that_an_answer_spoils_are_not_the_judge_s():
    def compress(weights, text, budget):
        for w in weights.values():
            w.zero_()
        return uniform(weights, budget), 0.0

    assert check_compress.result(compress).score == 0


def test_one_budget_that_raises_costs_that_budget_alone():
    def compress(weights, text, budget):
        if budget < 100_000:
            raise MemoryError("no room")
        return honest(weights, text, budget)

    result = check_compress.result(compress)
    assert result.score == pytest.approx(0.2) and "MemoryError: no room" in result.message


def test_a_report_in_place_of_networks_earns_nothing():
    for forged in ([], [None] * 3, {"score": 1.0}, [[{}, 0.0]] * 3, 1.0):
        report = {"outcome": "value", "value": forged, "printed": "", "warned": []}
        assert check_compress.verdict(codec.encode_value(report)).score == 0


def test_computing_time_is_limited_for_all_three_budgets_together():
    (lab,) = (lab for lab in read_manifest().labs if lab.lab == "17_ship_it")
    assert [exercise.seconds for exercise in lab.exercises] == [180]


# Anchors


def test_a_text_of_the_network_s_own_and_held_out_shakespeare_agree():
    for ladder in (RECORD["public"], *RECORD["ladder"]):
        for steps in ladder.values():
            for one in steps.values():
                assert one["held_out"] == pytest.approx(one["sampled"], rel=0.2)


def test_every_step_of_the_ladder_pays_where_it_helps_and_the_last_is_not_the_end():
    for ladder in RECORD["ladder"]:
        for budget in (68_000, 47_000):
            steps = [one["sampled"] for one in ladder[str(budget)].values()]
            earned = [BUDGETS[budget].earned(kl) for kl in steps]
            assert earned[0] == 0 and earned == sorted(earned)
            assert 0.5 < earned[-1] / BUDGETS[budget].share < 0.95
        eight = ladder["120000"]
        assert eight["round to nearest"]["sampled"] < BUDGETS[120_000].full
        assert all(one["bytes"] <= int(b) for b in ladder for one in ladder[b].values())


def test_the_recording_holds_here_for_one_network():
    weights = network(0)
    tokens = sampled(weights, 40, generator=torch.Generator().manual_seed(3))
    for budget, kl in ((120_000, 0.0007046), (68_000, 0.1455)):
        artifact = uniform(weights, budget)
        assert total_bytes(artifact) == RECORD["ladder"][0][str(budget)]["clip search"]["bytes"]
        assert divergence(weights, unpacked(artifact), tokens) == pytest.approx(kl, rel=0.3)
    assert shapes() == {name: tuple(w.shape) for name, w in weights.items()}
