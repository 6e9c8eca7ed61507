"""AlarmBench without a browser: limits beside the rules step by step, goals, and its words."""

import json
import math
import statistics
from collections import deque

import numpy as np
import pytest
from traitlets import TraitError

from labkit.labs.monitoring_and_debugging.alarm_rules import RULES, alarms, limits, normal
from labkit.labs.monitoring_and_debugging.recorded import healthy_runs, planted
from labkit.labs.monitoring_and_debugging.widget_alarm_bench import (
    MARGINS,
    SPIKE_AT,
    VISIBLE,
    WINDOWS,
    AlarmBench,
)
from labkit.measuring import Monitor
from labkit.training import StepRecord


def bench(rule: str, window: int, k: float, margin: float, **more) -> AlarmBench:
    widget = AlarmBench()
    for name, value in {"rule": rule, "window": window, "k": k, "margin": margin, **more}.items():
        setattr(widget, name, value)
    return widget


def press(widget: AlarmBench, **wanted) -> dict:
    """What the page does: a request one number higher than the last answer."""
    widget.request = {"seq": widget.numbers["seq"] + 1, **wanted}
    return widget.numbers


def found(losses, rule: str, window: int, k: float, margin: float) -> list[int]:
    past = normal(np.asarray(losses), rule, window)
    limit = limits(past, rule=rule, window=window, k=k, margin=margin)
    return alarms(np.asarray(losses), limit).tolist()


def step_by_step(losses, rule: str, window: int, k: float, margin: float) -> list[int]:
    """The rules as sentences say them, one loss after the other."""
    past, ringing, rung = deque(maxlen=window), False, []
    for step, loss in enumerate(losses):
        if not math.isfinite(loss):
            wrong = True
        else:
            if rule == "own":
                past.append(loss)
            wrong = len(past) == window and _far(loss, list(past), rule, k, margin)
            if rule != "own":
                past.append(loss)
        if wrong and not ringing:
            rung.append(step)
        ringing = wrong
    return rung


def _far(loss, past, rule, k, margin) -> bool:
    if rule == "own":
        return loss - statistics.fmean(past) > max(k * statistics.pstdev(past), margin)
    if rule == "mean":
        return loss - statistics.fmean(past) > max(k * statistics.stdev(past), margin)
    logs = [math.log(x) for x in past]
    values, value = (logs, math.log(loss)) if rule == "log" else (past, loss)
    middle = statistics.median(values)
    width = 1.4826 * statistics.median(abs(x - middle) for x in values)
    return value - middle > k * width and loss - statistics.median(past) > margin


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("window, k, margin", [(10, 2.5, 0.0), (20, 6.0, 0.1), (50, 3.0, 0.5)])
def test_a_limit_says_what_the_rule_says_step_by_step(rule, window, k, margin):
    for seed, (name, rows) in enumerate(healthy_runs().items()):
        losses, _ = planted(rows[seed], seed)
        want = step_by_step(losses, rule, window, k, margin)
        assert found(losses, rule, window, k, margin) == want, name


@pytest.mark.parametrize("network", ["MLP", "CNN", "GPT"])
def test_the_median_is_the_rule_of_the_monitor(network):
    for seed in range(4):
        losses, _ = planted(healthy_runs()[network][seed], seed)
        monitor = Monitor(window=50, k=6.0, margin=1.0, stall=None)
        for step, loss in enumerate(losses):
            monitor.see(StepRecord(step, loss, 1.0, 1.0, False))
        assert found(losses, "median", 50, 6.0, 1.0) == [fault.step for fault in monitor.faults]


def test_no_value_is_farther_than_the_bound_from_a_mean_that_contains_it():
    losses = np.array([1.0, 1.1] * 30 + [1e6])
    assert found(losses, "own", 10, 2.99, 0.0) == [60]
    assert found(losses, "own", 10, 3.0, 0.0) == []  # sqrt(10 - 1)
    assert found(losses, "mean", 10, 12.0, 0.0) == [60]


def test_a_first_spike_hides_the_second_from_sigma_and_not_from_the_median():
    losses = np.array([0.01, 0.012] * 100)
    losses[150], losses[155] = 10.0, 3.0
    for rule, want in (("own", [150]), ("mean", [150]), ("median", [150, 155])):
        assert found(losses, rule, 50, 6.0, 1.0) == want, rule


def test_what_is_not_finite_rings_once_and_is_not_stored():
    losses = np.full(120, 2.0)
    losses[60:80], losses[90] = math.nan, math.inf
    for rule in RULES:
        assert found(losses, rule, 50, 3.0, 0.5) == [60, 90], rule


# ---------------------------------------------------------------- the table


def by_hand(rule, window, k, margin) -> tuple[int, int, int]:
    false = caught = faults = 0
    for rows in healthy_runs().values():
        for seed, losses in enumerate(rows):
            false += len(step_by_step(losses, rule, window, k, margin))
            faulty, begins = planted(losses, seed)
            caught += len(set(step_by_step(faulty, rule, window, k, margin)) & set(begins))
            faults += len(begins)
    return false, caught, faults


def test_the_verdict_counts_false_alarms_and_caught_faults():
    widget = bench("mean", 10, 4.0, 0.2)
    false, caught, faults = by_hand("mean", 10, 4.0, 0.2)
    assert false > 0 and caught < faults
    assert widget.numbers["verdict"] == (
        f"{false} false alarms in 50 healthy runs, {caught} of {faults} planted faults caught."
    )
    row = widget.numbers["rows"][list(RULES).index("mean")]
    assert row["chosen"] and row["caught"] == f"{caught}/{faults}"
    assert sum(int(cell["false"]) for cell in row["cells"]) == false


def test_the_smallest_spike_seen_is_where_half_of_the_runs_ring():
    widget = bench("median", 20, 5.0, 0.5)
    cells = widget.numbers["rows"][list(RULES).index("median")]["cells"]
    for cell, rows in zip(cells, healthy_runs().values(), strict=True):
        factor = float(cell["smallest"].removeprefix("×"))
        seen = []
        for more in (0.94, 1.06):  # written with two digits
            spiked = rows.copy()
            spiked[:, SPIKE_AT] *= factor * more
            seen.append(sum(SPIKE_AT in found(losses, "median", 20, 5.0, 0.5) for losses in spiked))
        assert seen[0] <= len(rows) / 2 <= seen[1]


def test_the_margin_ends_the_false_alarms_and_costs_small_spikes():
    rows = [bench("median", 50, 6.0, margin).numbers["rows"][3] for margin in (0.0, 1.0)]
    falses, sees = (
        [[float(cell[name].removeprefix("×")) for cell in row["cells"]] for row in rows]
        for name in ("false", "smallest")
    )
    assert sum(falses[0]) > 100 and sum(falses[1]) == 0
    assert all(before < after for before, after in zip(*sees, strict=True))


# ---------------------------------------------------------------- goals


def test_the_rule_of_the_exercise_reaches_the_first_goal_and_not_the_second():
    widget = bench("median", 50, 6.0, 1.0)
    assert list(widget.reached) == [1]
    assert [target["done"] for target in widget.numbers["targets"]] == [True, False]
    assert "median" in widget.reached[1] and widget.numbers["holds"]


def test_a_smaller_margin_with_wider_limits_reaches_both():
    widget = bench("median", 50, 10.0, 0.5)
    assert sorted(widget.reached) == [1, 2]
    narrow, wide = (
        each._score("median", "CNN") for each in (widget, bench("median", 50, 6.0, 1.0))
    )
    assert narrow.smallest < VISIBLE < wide.smallest
    widget.rule = "own"  # what was reached stays
    assert "Goal, reached: The same" in widget.describe() and not widget.numbers["holds"]


@pytest.mark.parametrize("rule", ["own", "mean"])
def test_no_rule_of_mean_and_sigma_reaches_a_goal(rule):
    widget = bench(rule, 10, 3.0, 1.0)
    for window in WINDOWS:
        for margin in MARGINS:
            for k in (2.0, 3.0, 6.0, 10.0):
                widget.window, widget.margin, widget.k = window, margin, k
    assert not widget.reached


# ---------------------------------------------------------------- settings, picture, words


def test_settings_that_there_are_not_are_refused():
    widget = AlarmBench()
    for name, wrong, says in (
        ("rule", "range", "range"),
        ("window", 100, "100"),
        ("k", 0.5, "1 to 12 widths"),
        ("margin", 0.3, "0.3"),
        ("network", "RNN", "RNN"),
        ("level", 11, "0 to 10"),
        ("reached", {1: ""}, "read-only"),
    ):
        with pytest.raises(TraitError, match=says):
            setattr(widget, name, wrong)


def test_a_request_does_what_it_asks():
    widget = AlarmBench()
    for seq, (name, asked, got) in enumerate(
        [
            ("rule", "log", "log"),
            ("window", 50, 50),
            ("k", 6.5, 6.5),
            ("margin", 4, MARGINS[4]),
            ("network", "GPT", "GPT"),
            ("level", 9, 9),
        ],
        1,
    ):
        shown = press(widget, **{name: asked})
        assert shown["seq"] == seq and shown[name] == asked and getattr(widget, name) == got


def test_the_spike_lies_on_the_log_axis_and_says_whether_it_rings():
    for level, rings in ((0, False), (10, True)):
        widget = bench("median", 50, 6.0, 1.0, level=level)
        drawing, loss = widget.numbers["drawing"], healthy_runs()["MLP"][0][SPIKE_AT]
        places = {float(text): at for at, text in drawing["decades"]}
        decade = places[1.0] - places[0.1]
        want = places[1.0] + decade * math.log10(loss * 2**level)
        assert drawing["spike"][1] == pytest.approx(want, abs=1e-3)
        assert drawing["level"] == pytest.approx(decade * math.log10(2))
        assert drawing["rings"] is rings
        assert drawing["alarms"] == ([[SPIKE_AT / 499, True]] if rings else [])
        assert f"the rule {'rings' if rings else 'is silent'} at step 300" in widget.describe()


def test_a_limit_is_drawn_once_the_window_is_full():
    drawn = bench("median", 20, 6.0, 1.0).numbers["drawing"]["limit"]
    assert drawn[:20] == [None] * 20 and None not in drawn[20:]
    assert set(map(str, bench("own", 10, 3.0, 0.0).numbers["drawing"]["limit"])) == {"None"}


def test_the_words_say_what_the_picture_and_the_table_show():
    widget = bench("median", 20, 3.0, 0.1, network="CNN")
    words, numbers = widget.describe(), widget.numbers
    start = "Rule: median, MAD of those before; window 20, k 3, margin 0.1 nats.\nFirst CNN run"
    assert words.startswith(start)
    assert numbers["seen"] in words and numbers["verdict"] in words
    for row in numbers["rows"]:
        assert row["rule"] in words and f"{row['caught']} caught" in words
        for cell in row["cells"]:
            assert f"{cell['false']} false, smallest spike seen {cell['smallest']}" in words
    data, _ = widget._repr_mimebundle_()
    assert repr(widget) == data["text/plain"] == words == numbers["sentence"]


def test_what_crosses_to_the_page_is_json():
    for rule in RULES:
        numbers = bench(rule, 10, 4.0, 0.0, network="CNN", level=10).numbers
        assert json.loads(json.dumps(numbers, allow_nan=False)) == json.loads(json.dumps(numbers))
