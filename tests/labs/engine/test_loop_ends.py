"""A loop is recognised by where it ends: weights and exceptions together, never by chance."""

import math

import pytest
import torch

from labkit.labs.engine import AnswerError, KnownWrong, Mistake, attempt
from labkit.labs.engine.checks import KEPT
from labkit.labs.engine.loop_ends import HeldPasses, Loop, same_end

START = torch.tensor([1.0, -1.0])


def run(loop):
    """Three steps of a loop, on weights of its own."""
    weights = START.clone()
    losses = [attempt(loop, weights, step) for step in range(3)]
    return {"losses": losses, "moved": weights - START}


def right(weights, step):
    weights -= 0.25 * weights
    return weights.norm().item()


def doubled(weights, step):
    weights -= 0.5 * weights
    return weights.norm().item()


def walked_twice(weights, step):
    weights -= 0.125 * weights
    raise RuntimeError("Trying to backward through the graph a second time")


def idle(weights, step):
    raise RuntimeError("Trying to backward through the graph a second time")


KNOWN = [
    KnownWrong(doubled, "ulp-is-relative", "Why twice?"),
    KnownWrong(walked_twice, "detach-is-optional", "Who cuts the graph?"),
    KnownWrong(idle, "ulp-is-constant", "Why not at all?"),
]


def judged(answer, known=KNOWN):
    loop = Loop(run, right, lambda got, want: "It ends elsewhere.", lambda end: end["moved"])
    try:
        loop.judge(run(answer), known)
    except (Mistake, AnswerError) as error:
        return str(error), getattr(error, "misconception", None)
    return None


def test_another_way_to_the_same_end_is_right():
    def in_other_words(weights, step):
        weights.mul_(0.75)
        return torch.linalg.vector_norm(weights)

    assert judged(in_other_words) is None


def test_a_known_end_is_told_its_idea_and_one_with_another_report_too():
    def reports_otherwise(weights, step):
        doubled(weights, step)
        return 0.0

    for answer in (doubled, reports_otherwise):
        assert judged(answer) == ("It ends elsewhere.", "ulp-is-relative")
    assert judged(walked_twice) == ("It ends elsewhere.", "detach-is-optional")


def test_equal_weights_and_another_exception_are_another_mistake():
    def cut_too_often(weights, step):
        weights -= 0.125 * weights
        raise AssertionError("No inf checks were recorded for this optimizer.")

    said, idea = judged(cut_too_often)
    assert idea is None
    assert said.startswith("AssertionError: No inf checks were recorded for this optimizer in your")

    def no_exception(weights, step):
        weights -= 0.125 * weights
        return 1.0

    assert judged(no_exception) == ("It ends elsewhere.", None)


def test_the_judge_s_own_runs_meet_the_answer_s_seed():
    def run_from(loop, seed):
        weights = START * (seed + 1)
        return {"losses": [attempt(loop, weights, 0)], "moved": weights - START * (seed + 1)}

    def said(got, want, seed):
        return f"With seed {seed} it ends elsewhere."

    loop = Loop(run_from, right, said, lambda end: end["moved"])
    for seed in (0, 1):
        loop.judge(run_from(right, seed), KNOWN, seed=seed)
        with pytest.raises(Mistake, match=f"seed {seed} it ends") as caught:
            loop.judge(run_from(doubled, seed), KNOWN, seed=seed)
        assert caught.value.misconception == "ulp-is-relative"
    with pytest.raises(Mistake):
        loop.judge(run_from(right, 0), KNOWN, seed=1)


def test_only_so_many_ends_are_kept():
    loop = Loop(lambda answer, seed: {"seed": seed}, right, "".join, lambda end: end)
    for seed in range(3 * KEPT):
        assert loop.end(right, seed=seed) == {"seed": seed}
    assert len(loop.ends) <= KEPT


def test_weights_that_did_not_move_are_like_no_other():
    assert judged(lambda weights, step: 1.0) == ("It ends elsewhere.", None)


def test_of_two_ideas_with_one_end_none_is_named():
    known = [*KNOWN, KnownWrong(lambda w, step: doubled(w, step), "ties-go-up", "Or this?")]
    assert judged(doubled, known) == ("It ends elsewhere.", None)


def test_an_error_of_the_scaler_is_told_with_what_it_means():
    def twice(weights, step):
        w = weights.clone().requires_grad_()
        optimizer, scaler = torch.optim.SGD([w]), torch.amp.GradScaler("cpu")
        scaler.scale(w.sum()).backward()
        scaler.unscale_(optimizer)
        scaler.unscale_(optimizer)

    said, idea = judged(twice)
    assert idea is None
    assert said.startswith("RuntimeError: unscale_() has already been called on this optimizer")
    assert said.endswith("also after a step that overflows.")


def test_passes_are_held_until_their_backward():
    network = torch.nn.Linear(2, 1)
    passes = HeldPasses(network)
    for _ in range(2):
        network(torch.ones(3, 2)).sum().backward()
    assert (passes.most, passes.met) == (3, ["torch.float32"])
    first = network(torch.ones(3, 2))
    with torch.no_grad():
        network(torch.ones(5, 2))
    network.bfloat16()(torch.ones(4, 2, dtype=torch.bfloat16)).sum().backward()
    first.sum().backward()
    assert (passes.held, passes.most) == (0, 8)
    assert passes.met == ["torch.bfloat16", "torch.float32"]


@pytest.mark.parametrize(
    ("got", "want", "same"),
    [
        (torch.tensor([math.nan, 1.0]), torch.tensor([math.inf, 1.0]), True),
        (torch.tensor([math.nan, 1.0]), torch.tensor([1.0, 1.0]), False),
        (torch.tensor([math.nan, 1.0]), torch.tensor([math.nan, 2.0]), False),
        (torch.tensor([1.0, 2.0]), [1.0, 2.0], True),
        ([torch.tensor(1.0), 2], [1.0, 2.0], True),
        (True, 1.0, False),
        ({}, {"losses": []}, False),
        (1.0, True, False),
    ],
)
def test_same_end(got, want, same):
    assert same_end(got, want) is same
