"""The figures of lab 15, and the numbers that its text states."""

import math
from fractions import Fraction
from statistics import fmean, stdev, variance

import numpy as np
import pytest
import torch

from labkit.labs.production import figures, recorded
from labkit.labs.production.experiments import pairs_needed
from labkit.labs.production.flips import loss_changes
from labkit.labs.production.gates import Gate
from labkit.labs.production.serving import serving_record
from labkit.labs.production.solutions import ship
from labkit.training import train, trained_gpt
from labkit.training.data import batches, characters, digits, shakespeare, shakespeare_split
from labkit.training.models import mlp


@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_the_gates_line_stands_where_the_exact_e_value_reaches_its_limit(alpha):
    for n, z in enumerate(figures.gate_line(alpha, 120), 1):
        coin = Fraction(2**n, math.factorial(n + 1))
        alarms = [
            worse
            for worse in range(n // 2 + 1, n + 1)
            if coin * math.factorial(worse) * math.factorial(n - worse) >= 1 / alpha
        ]
        want = (min(alarms) - n / 2) / math.sqrt(n / 4) if alarms else math.inf
        assert z == pytest.approx(want)


def test_the_picture_of_looks_says_who_crosses_which_line():
    said = [line for line in figures.peeking_picture(seed=1).alt.split(":")]
    crossed = [float(part.split("%")[0]) for part in said if "% cross" in part]
    assert crossed[0] == pytest.approx(38, abs=3) and crossed[1] == pytest.approx(5, abs=0.2)
    assert crossed[2] < 5


def test_the_published_test_accuses_equal_halves():
    data = digits()
    for seed in range(20, 25):
        torch.manual_seed(seed)
        reader = mlp(64, 32, 10)
        sgd = torch.optim.SGD(reader.parameters(), lr=0.1, momentum=0.9)
        loader = batches(data.train_images, data.train_labels, 32, seed=seed)
        losses = [r.loss for r in train(reader, loader, optimizer=sgd, epochs=2, progress=False)]
        a, b = losses[:45], losses[45:]
        assert (fmean(a) - fmean(b)) / math.sqrt(variance(a) / 45 + variance(b) / 45) > 5


def test_what_two_runs_share_decides_how_many_pairs_it_takes():
    need = {}
    for shared, losses in recorded.pairing().items():
        gaps = [bf16 - fp32 for fp32, bf16 in zip(*losses, strict=True)]
        need[shared] = pairs_needed(stdev(gaps), margin=0.01)
    assert need["weights and order"] == 5 and need["nothing"] == 205
    assert need["order"] < 0.6 * need["weights"] and abs(need["weights"] / 205 - 1) < 0.1
    assert f"{need['order']} pairs" in figures.pairing_picture(recorded.pairing()).alt


def test_half_of_the_runs_die_and_the_survivors_look_like_their_twins():
    scores = recorded.training_scores()
    fp32, fixed = scores["fp32"], scores["fp16, scale 200,000"]
    alive = [seed for seed in fp32 if math.isfinite(fixed[seed])]
    assert (len(fp32), len(alive)) == (12, 6)
    assert [fixed[seed] for seed in alive] == [fp32[seed] for seed in alive]
    first = list(fp32)[:3]
    worse = [100 * (fp32[seed] - scores["pure bf16"][seed]) for seed in first]
    assert (round(min(worse), 1), round(max(worse), 1)) == (1.7, 3.6)

    def decided(arm, pairs, t):
        return ship(
            *({s: scores[a][s] for s in list(fp32)[:pairs]} for a in ("fp32", arm)), 0.01, t
        )

    assert decided("pure bf16", 3, 4.303) == "hold"
    assert decided("pure bf16", 12, 2.201) == "reject"
    assert decided("bf16", 12, 2.201) == "ship"
    assert decided("fp16, scale 200,000", 12, 2.201) == "reject"


@pytest.mark.seeds(range(3))
def test_twenty_looks_accuse_a_fifth(seed):
    w = np.random.default_rng(seed).binomial(400, 0.5, (20_000, 20)).cumsum(axis=1)
    n = 400 * np.arange(1, 21)
    above = (w - n / 2) / np.sqrt(n / 4) > 1.645
    assert above[:, 0].mean() == pytest.approx(0.05, abs=0.005)
    assert above.any(axis=1).mean() == pytest.approx(0.21, abs=0.015)
    assert round(1 - 0.95**20, 2) == 0.64


def test_what_the_gate_costs_in_time():
    draw, waits = np.random.default_rng(0), []
    for row in (draw.random((200, 1000)) < 0.6).tolist():
        gate = Gate()
        waits += [n for n, worse in enumerate(row, 1) if gate.see(worse, not worse)][:1]
    assert np.median(waits) == 191


@pytest.mark.seeds(range(2))
def test_a_flipped_bit_shows_in_about_3_of_100_cases(seed):
    tokens = characters(shakespeare()).encode(shakespeare_split()[1])[: 24 * 65].view(24, 65)
    changes = loss_changes(trained_gpt(), tokens, seed=seed)
    seen = {bit: sum(change > 0.01 for change in by_bit) for bit, by_bit in changes.items()}
    assert 0.02 < sum(seen.values()) / 256 < 0.05 and seen[30] >= 7
    assert f"exponent: {sum(seen.values())} of 64" in figures.flips_picture(changes).alt


def test_bits_unchanged_and_answers_unchanged_are_two_claims():
    exports = serving_record()["exports"]
    bf16, int8 = exports["BF16"], exports["INT8 by row"]
    assert max(abs(part["bits"]) for part in bf16) < 1e-3
    for parts, low, high in ((bf16, 0.6, 0.9), (int8, 1.0, 1.45)):
        flips = [100 * part["flips"] for part in parts]
        assert low <= min(flips) and max(flips) <= high
