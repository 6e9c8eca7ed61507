"""The recorded healthy runs of lab 11, and the faults that are planted into them."""

import numpy as np
import pytest

from labkit.labs.monitoring_and_debugging.recorded import (
    LEVEL,
    healthy_runs,
    healthy_steps,
    planted,
)


def test_fifty_runs_of_500_steps_learn():
    runs = healthy_runs()
    assert {name: losses.shape for name, losses in runs.items()} == {
        "MLP": (20, 500), "CNN": (20, 500), "GPT": (10, 500),
    }  # fmt: skip
    for losses in runs.values():
        assert np.isfinite(losses).all()
        assert (np.median(losses[:, -LEVEL:], axis=1) < 0.6 * losses[:, 0]).all()


def test_every_run_skips_a_step_and_halves_its_scale_there():
    for runs in healthy_steps().values():
        for run in runs:
            skipped = [step.step for step in run[:-1] if step.skipped]
            assert skipped
            for step in skipped:
                assert run[step + 1].loss_scale == run[step].loss_scale / 2


@pytest.mark.seeds(range(5))
@pytest.mark.parametrize("network", ["MLP", "CNN", "GPT"])
def test_three_faults_are_planted_far_apart(network, seed):
    losses = healthy_runs()[network][seed]
    kept = losses.copy()
    faulty, starts = planted(losses, seed, factor=100)
    assert np.array_equal(losses, kept)
    changed = np.flatnonzero(faulty != losses)
    assert set(starts) <= set(changed) and len(changed) == 23
    assert len(starts) == 4 and sorted(np.diff(starts))[0] == 5
    assert sorted(np.diff([LEVEL, *starts]))[1] >= 30
    assert (~np.isfinite(faulty)).sum() == 1
    (spike,) = (s for s in starts if faulty[s] == 100 * np.median(losses[s - LEVEL : s]))
    assert spike + 5 in starts
    assert faulty[spike + 5] == pytest.approx(0.3 * faulty[spike])


def test_a_seed_repeats_its_faults_and_seeds_differ():
    losses = healthy_runs()["CNN"][0]
    made = [planted(losses, seed) for seed in range(5)]
    assert len({starts for _, starts in made}) == 5
    places = {starts.index(np.flatnonzero(~np.isfinite(faulty))[0]) for faulty, starts in made}
    assert len(places) > 1
    assert np.array_equal(planted(losses, 3)[0], planted(losses, 3)[0], equal_nan=True)


def test_faults_go_into_one_whole_run():
    with pytest.raises(ValueError, match="500 steps"):
        planted(healthy_runs()["MLP"], 0)
