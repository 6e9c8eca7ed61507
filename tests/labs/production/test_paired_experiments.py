"""S21: two arms with two controls, decisions that keep their level, and their power."""

import math
from statistics import NormalDist, fmean, stdev

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from labkit.labs.production.experiments import Experiment, paired, pairs_needed
from labkit.measuring.verdicts import t_quantile, verdict
from labkit.training.data import batches, digits

SEEDS = range(5)


def experiment(differences, *, again=None, broken=None, seconds=None):
    """One whose candidates differ by this much from references around 1."""
    reference = {seed: 1 + 0.125 * seed for seed in range(len(differences))}

    def over(gaps):
        return {seed: reference[seed] + gap for seed, gap in enumerate(gaps)}

    spread = [-1.0 - 0.001 * (seed % 2) for seed in reference]
    return Experiment(
        reference=reference,
        candidate=over(differences),
        again=over(again or [0.0] * len(reference)),
        broken=over(spread if broken is None else broken),
        seconds=seconds or {},
    )


# Real runs


def fit(model, loader, arm):
    """SGD at 1e-2; "pure bf16" has BF16 parameters, "a tenth" keeps a tenth of each gradient."""
    dtype = torch.bfloat16 if arm == "pure bf16" else torch.float32
    model.to(dtype)
    sgd = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(4):
        for x, y in loader:
            sgd.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=arm == "bf16"):
                logits = model(x.to(dtype))
            F.cross_entropy(logits.float(), y).backward()
            for p in model.parameters():
                p.grad *= 0.1 if arm == "a tenth" else 1.0
            sgd.step()
    model.float()


def loader(seed):
    data = digits()
    return batches(data.train_images, data.train_labels, 32, seed=seed)


def make():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10)
    )


def score(model):
    data = digits()
    model.eval()
    with torch.no_grad():
        return -F.cross_entropy(model(data.test_images), data.test_labels).item()


def test_a_paired_experiment_is_silent_on_a_a_and_sees_a_broken_arm():
    found = paired(["fp32", "bf16"], SEEDS, make, loader, fit, score, broken="a tenth")
    assert found.over_reference("again") == [0.0] * 5 and found.trouble() == ""
    assert max(found.over_reference("broken")) < 0
    assert len(set(found.reference.values())) == 5
    assert found.decide(0.05).answer == "ship"


def test_pure_bf16_at_a_learning_rate_of_a_hundredth_is_seen():
    found = paired(["fp32", "pure bf16"], SEEDS, make, loader, fit, score, broken="a tenth")
    decision = found.decide(0.001)
    assert decision.high < 0 and decision.answer == "reject"


def test_the_arms_do_not_depend_on_each_other_nor_on_their_order():
    one = paired(["fp32", "bf16"], [3, 4], make, loader, fit, score, broken="a tenth")
    two = paired(["bf16", "fp32"], [4, 3], make, loader, fit, score, broken="a tenth")
    assert one.reference == two.candidate and one.candidate == two.reference
    assert one.broken == two.broken


def test_the_random_state_is_left_as_it_was():
    torch.manual_seed(7)
    want = torch.rand(3)
    torch.manual_seed(7)
    paired(["fp32", "bf16"], [0, 1], make, loader, lambda *_: None, score, broken="b")
    assert torch.equal(torch.rand(3), want)


def test_every_run_has_weights_and_a_loader_of_its_own():
    models, loaders = [], []

    def keep(model, loader, arm):
        models.append(model)
        loaders.append(loader)

    paired(["a", "b"], [0, 1], make, loader, keep, score, broken="c")
    assert len({id(model) for model in models}) == len({id(each) for each in loaders}) == 8
    first = [model[1].weight.data_ptr() for model in models]
    assert len(set(first)) == 8


def test_another_arm_goes_first_with_each_seed():
    names = []
    paired(["a", "b"], range(4), make, loader, lambda *of: names.append(of[2]), score, broken="c")
    assert names[::4] == ["a", "b", "a", "c"]


def test_a_loader_that_the_arms_share_is_found_by_a_a():
    shared = {seed: loader(seed) for seed in SEEDS}
    found = paired(["fp32", "fp32"], SEEDS, make, shared.get, fit, score, broken="a tenth")
    assert found.trouble().startswith("A/A differs in 5 of 5 pairs")
    decision = found.decide(10.0)
    assert decision.answer == "hold" and decision.reason == found.trouble()


@pytest.mark.parametrize(
    "arms, seeds, said",
    [
        (["fp32"], SEEDS, "arms"),
        ("fp", SEEDS, "arms"),
        (["a", "b"], [3], "2 or more"),
        (["a", "b"], [3, 3], "each once"),
    ],
)
def test_what_makes_no_experiment_is_refused_before_a_run(arms, seeds, said):
    def never(*_):
        raise AssertionError("a run began")

    with pytest.raises(ValueError, match=said):
        paired(arms, seeds, make, loader, never, score, broken="c")


def test_time_is_the_candidate_s_over_the_reference_s():
    seconds = {
        "reference": dict.fromkeys(range(6), 2.0),
        "candidate": {seed: 1.0 + 0.01 * seed for seed in range(6)},
        "again": dict.fromkeys(range(6), 2.0),
    }
    found = experiment([0.0, 0.1] * 3, seconds=seconds).time()
    assert found.mean == pytest.approx(0.51, abs=0.01) and found.answer == "faster"
    timed = paired(["a", "b"], SEEDS, make, loader, lambda *_: None, score, broken="c")
    assert len(timed.time().pairs) == 5


# Decisions


@pytest.mark.parametrize(
    "differences, margin, answer",
    [
        ([0.0, 0.001, -0.001, 0.0, 0.0005], 0.01, "ship"),
        ([-0.05, -0.051, -0.049, -0.05, -0.052], 0.01, "reject"),
        ([-0.05, 0.05, 0.02, -0.03, 0.01], 0.01, "hold"),
        ([-0.005, -0.0051, -0.0049, -0.005, -0.0052], 0.01, "ship"),  # worse, and it may be
        ([0.5, 0.49, 0.51, 0.5, 0.52], 0.01, "ship"),
        ([math.nan, 0.5, 0.5, 0.5, 0.5], 0.01, "reject"),
        ([math.inf, 0.5, 0.5, 0.5, 0.5], 0.01, "reject"),
    ],
)
def test_decisions_by_hand(differences, margin, answer):
    decision = experiment(differences).decide(margin)
    assert decision.answer == answer and str(decision).startswith(f"{answer}: ")
    if all(map(math.isfinite, differences)):
        want = verdict(differences, margin)
        assert (decision.low, decision.high) == pytest.approx((want.low, want.high), abs=1e-12)
        assert decision.effect == pytest.approx(fmean(differences), abs=1e-12)
    else:
        assert decision.pairs_needed is None and math.isnan(decision.minimum_detectable)


def test_a_reference_that_died_decides_nothing():
    found = experiment([0.0, 0.001, 0.002])
    found.reference[1] = found.again[1] = math.nan
    assert found.decide(0.01).answer == "hold"
    found.candidate[2] = math.nan
    decision = found.decide(0.01)
    assert decision.answer == "hold" and "1 of 3 runs of the reference" in decision.reason
    found.reference[1] = found.again[1] = 1.0
    decision = found.decide(0.01)
    assert decision.answer == "reject" and "1 of 3 runs of the candidate" in decision.reason


def test_pairs_that_agree_show_the_step_of_the_score_only():
    same = experiment([0.0] * 5)
    assert same.decide(0.002).answer == "ship"
    assert same.decide(0.002, step=1 / 359).answer == "hold"


def test_a_design_that_cannot_see_a_broken_arm_holds():
    blind = experiment([0.0, 0.001, 0.0], broken=[0.01, -0.01, 0.002])
    assert "broken arm is not seen" in blind.trouble()
    assert blind.decide(0.05).answer == "hold"
    better = experiment([0.0, 0.001, 0.0], broken=[1.0, 1.1, 1.0])
    assert better.decide(0.05).answer == "hold"
    assert better.trouble() in better.controls()
    died = experiment([0.0, 0.001, 0.0], broken=[math.nan, -1.0, -1.0])
    assert "1 runs died" in died.controls()
    assert died.trouble() == "" and died.decide(0.05).answer == "ship"


def test_a_a_must_be_0_to_the_bit():
    found = experiment([0.0, 0.001, 0.0], again=[0.0, 2.0**-50, 0.0])
    assert found.trouble().startswith("A/A differs in 1 of 3 pairs")
    assert "exactly 0 in 2 of 3" in found.controls()
    assert found.decide(0.05).answer == "hold"


def test_unequal_pairs_and_a_single_one_are_refused():
    with pytest.raises(ValueError, match="1 pairs"):
        experiment([0.1])
    whole = {0: 1.0, 1: 2.0}
    arms = {"candidate": whole, "again": whole, "broken": whole}
    for arm in arms:
        with pytest.raises(ValueError, match=f"{arm}: seed 1"):
            Experiment(reference=whole, seconds={}, **arms | {arm: {0: 1.0}})
    for margin in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="margin"):
            experiment([0.1, 0.2]).decide(margin)


# Levels and power, simulated

COUNT = 4000


def share(answer, *, mean, spread, pairs, margin=1.0, seed=0):
    source = np.random.default_rng(seed)
    draws = source.normal(mean, spread, (COUNT, pairs))
    return fmean(experiment(list(draw)).decide(margin).answer == answer for draw in draws)


@pytest.mark.parametrize("pairs", [2, 5, 20])
def test_a_candidate_at_the_margin_ships_and_is_rejected_in_at_most_2_5_percent(pairs):
    """3 standard errors of a share of 2.5 % in 4,000 are 0.74 %."""
    for answer in ("ship", "reject"):
        found = share(answer, mean=-1.0, spread=0.7, pairs=pairs)
        assert found == pytest.approx(0.025, abs=0.0075)


def test_fifty_a_a_experiments_raise_few_false_alarms():
    """S21: at most 10 % of 50. What A/A shows is noise where kernels are not deterministic."""
    alarms = 0
    for seed in range(50):
        noise = np.random.default_rng(seed).normal(0, 0.01, 5)
        decision = experiment(list(noise)).decide(0.01)
        alarms += decision.high < 0 or decision.low > 0
    assert alarms <= 5


@pytest.mark.parametrize("spread", [0.6, 1.0, 1.6])
def test_the_pairs_needed_ship_an_equal_candidate_in_90_percent(spread):
    pairs = pairs_needed(spread, 1.0)
    assert share("ship", mean=0.0, spread=spread, pairs=pairs, seed=1) >= 0.9 - 0.015
    assert share("ship", mean=0.0, spread=spread, pairs=pairs - 1, seed=1) < 0.9 + 0.015


@pytest.mark.parametrize("ratio, pairs", [(1.0, 13), (0.8, 19), (0.5, 45)])
def test_pairs_needed_are_those_of_the_tables(ratio, pairs):
    """Paired t-test, two-sided 5 %, power 90 %: 13, 19 and 44 (Cohen 1988, and G*Power 3.1).

    Above 31 pairs the quantile of ``verdict`` stays 2.042, which costs the one pair more.
    """
    assert pairs_needed(1.0, ratio) == pairs


def test_pairs_needed_at_the_ends():
    assert pairs_needed(0.0, 0.1) == 2
    with pytest.raises(ValueError, match="too small"):
        pairs_needed(1.0, 1e-4)


@pytest.mark.parametrize("pairs", [5, 20])
def test_the_minimum_detectable_loss_is_seen_in_90_percent(pairs):
    """Draws are scaled to the spread that the experiment knows, so that it is the true one."""
    known = experiment(list(np.random.default_rng(3).normal(0, 1, pairs)))
    decision = known.decide(1.0)
    spread = stdev(known.candidate[s] - known.reference[s] for s in known.reference)
    draws = np.random.default_rng(4).normal(-decision.minimum_detectable, spread, (COUNT, pairs))
    seen = fmean(verdict(list(draw), 1.0).high < 0 for draw in draws)
    assert seen == pytest.approx(0.9, abs=0.015)


def test_the_minimum_detectable_loss_of_two_pairs_is_that_of_an_integral():
    """With one degree of freedom s is half a normal: integrate P(z > t s - c) over it."""
    spread, normal = 1.0, NormalDist()
    decision = experiment([-spread / 2**0.5, spread / 2**0.5]).decide(1.0)
    c = decision.minimum_detectable * 2**0.5
    grid = np.linspace(0, 4, 4001)
    seen = sum(2 * normal.pdf(s) * normal.cdf(c - 12.706 * s) for s in grid) * (grid[1] - grid[0])
    assert seen == pytest.approx(0.9, abs=0.003)


@pytest.mark.parametrize("pairs, quantile", [(2, 12.706), (5, 2.776), (31, 2.042), (500, 2.042)])
def test_quantiles_are_those_of_the_handbook(pairs, quantile):
    assert t_quantile(pairs) == quantile
