"""MemoryTape without a browser: what is drawn of a step, the limits that it reaches, its words."""

import itertools
import json
from dataclasses import replace

import pytest
from traitlets import TraitError

from labkit.labs.memory_and_many_gpus.counted_step import StepSettings
from labkit.labs.memory_and_many_gpus.tape import BLOCKS, GIB, tape
from labkit.labs.memory_and_many_gpus.widget_memory_tape import LIMITS, ROLES, MemoryTape
from tests.labs.memory_and_many_gpus.small_tape import small_tape

ALL_BLOCKS = frozenset(range(BLOCKS))
SEVERAL = [
    StepSettings(),
    StepSettings(autocast=True, loss_chunks=16, foreach=False),
    StepSettings(batch=16, micro_batches=8, moments="8-bit"),
    StepSettings(batch=1, checkpointed=ALL_BLOCKS),
]


def small(settings: StepSettings | None = None, **more) -> MemoryTape:
    return MemoryTape(settings, tape=small_tape, **more)


def press(widget: MemoryTape, **wanted) -> dict:
    """What the page does: a request one number higher than the last answer."""
    widget.request = {"seq": widget.numbers["seq"] + 1, **wanted}
    return widget.numbers


def done(widget: MemoryTape) -> list[bool]:
    return [target["done"] for target in widget.numbers["targets"]]


# ---------------------------------------------------------------- on the counted GPT-2


def test_the_recorded_step_wins_one_limit_after_the_other():
    widget = MemoryTape()
    assert sorted(widget.reached) == [16]
    widget.settings = StepSettings(autocast=True)
    assert sorted(widget.reached) == [16]
    widget.settings = StepSettings(autocast=True, loss_chunks=16)
    assert sorted(widget.reached) == [6, 8, 16]
    for row in widget.numbers["rows"][:2]:
        counted = tape(StepSettings(autocast=True, loss_chunks=16 if row["what"] == "now" else 1))
        assert row["peak"] == f"{counted.peak / GIB:.2f} GiB"
        for name, hill in counted.hills.items():
            assert row[name] == f"{hill.total / GIB:.2f} GiB"


def test_the_goal_of_the_lab_needs_five_blocks_and_has_no_room_for_six():
    widget = MemoryTape(StepSettings(autocast=True, loss_chunks=16), limit=4 * GIB, goal=0.17)
    for blocks, fits, met in ((4, False, False), (6, True, False), (5, True, True)):
        widget.settings = replace(widget.settings, checkpointed=frozenset(range(blocks)))
        assert (widget.numbers["fits"], done(widget)[-1]) == (fits, met)


# ---------------------------------------------------------------- what is drawn


@pytest.mark.parametrize("settings", SEVERAL)
def test_the_drawn_step_is_as_high_as_the_counted_one(settings):
    shown = small_tape(settings)
    drawing = small(settings).numbers["drawing"]
    most, title = drawing["limit"]
    assert title == "limit 16 GiB"
    scale = 16 * GIB / most
    assert max(drawing["stack"]["temporary"]) * scale == pytest.approx(shown.peak, rel=1e-3)
    for hill, mark in zip(shown.hills.values(), drawing["hills"], strict=True):
        across, up = mark["at"]
        assert up * scale == pytest.approx(hill.total)
        assert mark["largest"] == (hill.total == shown.peak)
        (under,) = (name for left, right, name in drawing["phases"] if left < across < right)
        assert under[0] == hill.phase[0]
    for place, text in drawing["ticks"]:
        assert place * scale == pytest.approx(float(text) * GIB)


@pytest.mark.parametrize("settings", SEVERAL)
def test_roles_are_stacked_in_their_order_and_columns_lie_side_by_side(settings):
    drawing = small(settings).numbers["drawing"]
    assert list(drawing["stack"]) == list(ROLES)
    for lower, upper in itertools.pairwise(ROLES):
        pairs = zip(drawing["stack"][lower], drawing["stack"][upper], strict=True)
        assert all(a <= b for a, b in pairs)
    edges = drawing["edges"]
    assert edges[0][0] == 0 and edges[-1][1] == pytest.approx(1)
    for (_, right), (left, _) in itertools.pairwise(edges):
        assert right == pytest.approx(left)
    assert len(edges) == len(drawing["stack"]["weights"])


def test_a_column_shows_the_largest_of_its_operators():
    points = small_tape(StepSettings()).points
    many = tuple(point for point in points for _ in range(30))
    widget = MemoryTape(tape=lambda settings: replace(small_tape(settings), points=many))
    drawing = widget.numbers["drawing"]
    assert len(drawing["edges"]) < 300 < len(many)
    scale = 16 * GIB / drawing["limit"][0]
    highest = max(drawing["stack"]["temporary"]) * scale
    assert highest == pytest.approx(max(point.total for point in many), rel=1e-3)


def test_phases_are_named_and_micro_batches_by_a_letter():
    for pieces, names in ((1, ["forward", "backward", "step"]), (2, [*"fbfb", "step"])):
        phases = small(StepSettings(micro_batches=pieces)).numbers["drawing"]["phases"]
        assert [name for _, _, name in phases] == names
        assert all(a[1] == pytest.approx(b[0]) for a, b in itertools.pairwise(phases))


def test_a_place_is_read_and_the_peak_first():
    widget = small()
    assert widget.numbers["reading"] == (
        "The peak, 10.80 GiB at aten._log_softmax_backward_data (backward)"
    )
    shown = press(widget, place=1)
    assert shown["reading"] == "1.70 GiB at aten.gelu (forward)"
    assert [role["bytes"] for role in shown["roles"]][:3] == ["0.50 GiB", "1.00 GiB", "0.00 GiB"]
    assert press(widget, place=10_000)["reading"].endswith("aten._foreach_sqrt (step)")
    assert press(widget, place=None)["reading"].startswith("The peak")
    for change in ({"settings": {"autocast": True}}, {"limit": 4}):
        press(widget, place=1)
        assert press(widget, **change)["reading"].startswith("The peak")


# ---------------------------------------------------------------- limits and the goal


@pytest.mark.parametrize("settings", SEVERAL)
@pytest.mark.parametrize("limit", LIMITS)
def test_a_step_fits_where_its_peak_is_at_most_the_limit(settings, limit):
    peak = small_tape(settings).peak
    widget = small(settings, limit=limit)
    assert widget.numbers["fits"] == (peak <= limit)
    first, *_ = widget.describe().splitlines()
    rest = f"{abs(limit - peak) / GIB:.2f} GiB"
    if peak <= limit:
        assert first.startswith(f"Fits into {limit // GIB} GiB") and f"{rest} are left" in first
    else:
        assert first.startswith("Does not fit") and f"{rest} too much" in first


def test_the_operator_where_memory_runs_out_is_named():
    words = small(limit=4 * GIB).describe()
    assert "Memory runs out near aten.mm (forward)." in words


def test_a_limit_keeps_the_settings_with_the_least_extra_flop():
    widget = small(StepSettings(autocast=True, loss_chunks=16))
    widget.settings = most = replace(widget.settings, checkpointed=ALL_BLOCKS)
    assert widget.reached[4] == most
    widget.settings = few = replace(most, checkpointed=frozenset(range(8)))
    assert small_tape(few).fits(4 * GIB) and widget.reached[4] == few
    widget.settings = most
    assert widget.reached[4] == few
    assert "fits into 4 GiB: peak 3.29 GiB, extra FLOP 26 %" in widget.describe()


def test_a_smaller_batch_than_the_first_reaches_nothing():
    widget = small(limit=4 * GIB)
    before = done(widget)
    widget.settings = StepSettings(batch=1)
    assert widget.numbers["fits"] and done(widget) == before == [True, False, False, False]
    widget.settings = StepSettings(batch=16, micro_batches=8)
    assert done(widget) == [small_tape(widget.settings).fits(limit) for limit in LIMITS]


@pytest.mark.parametrize(
    ("changed", "met"),
    [
        ({}, True),
        ({"checkpointed": frozenset(range(9))}, False),  # 28 % extra FLOP
        ({"micro_batches": 2, "checkpointed": frozenset()}, False),
        ({"moments": "8-bit"}, False),
        ({"loss_chunks": 1}, False),  # does not fit
    ],
)
def test_the_goal_asks_for_what_it_says(changed, met):
    good = StepSettings(autocast=True, loss_chunks=16, checkpointed=frozenset(range(8)))
    widget = small(goal=0.26)
    assert done(widget)[-1] is False
    widget.settings = replace(good, **changed)
    assert done(widget)[-1] is met
    widget.settings = StepSettings()
    assert done(widget)[-1] is met, "a goal that was met stays met"
    assert len(done(small())) == len(LIMITS), "no share, no goal"


# ---------------------------------------------------------------- settings


def test_a_request_does_what_it_asks():
    widget = small()
    wanted = {"batch": 4, "autocast": True, "checkpointed": [0, 3], "foreach": False}
    shown = press(widget, settings=wanted)
    assert widget.settings == StepSettings(
        batch=4, autocast=True, checkpointed=frozenset({0, 3}), foreach=False
    )
    assert shown["seq"] == 1 and shown["settings"]["checkpointed"] == [0, 3]
    press(widget, settings={"loss_chunks": 16, "moments": "bf16"}, limit=4)
    assert (widget.settings.loss_chunks, widget.settings.moments) == (16, "bf16")
    assert widget.limit == 4 * GIB and widget.settings.autocast


def test_a_batch_has_at_most_one_micro_batch_a_row():
    widget = small(StepSettings(micro_batches=8))
    assert press(widget, settings={"batch": 2})["settings"]["micro_batches"] == 2


def test_what_is_not_possible_is_refused():
    with pytest.raises(TraitError, match="limit"):
        small(limit=5 * GIB)
    widget = small()
    with pytest.raises(TraitError, match="settings"):
        widget.settings = {"batch": 4}
    with pytest.raises(TraitError, match="read-only"):
        widget.reached = {}


def test_a_step_is_counted_once():
    asked = []

    def counted(settings: StepSettings):
        asked.append(settings)
        return small_tape(settings)

    widget = MemoryTape(tape=counted)
    for chunks in (16, 1, 16):
        press(widget, settings={"loss_chunks": chunks})
        press(widget, place=3)
    press(widget, limit=4)
    assert asked == [StepSettings(), StepSettings(loss_chunks=16)]


# ---------------------------------------------------------------- words


def test_the_words_say_what_the_page_shows():
    widget = small(StepSettings(autocast=True), limit=8 * GIB, goal=0.26)
    widget.settings = StepSettings(batch=8, loss_chunks=16, checkpointed=frozenset({0, 5}))
    words, numbers = widget.describe(), widget.numbers
    assert "8 texts, FP32, loss in 16 chunks" in words and "Checkpointed: 0, 5." in words
    for text in (numbers["verdict"], numbers["setting"], numbers["reading"]):
        assert text in words
    for role in numbers["roles"]:
        assert f"{role['name']} {role['bytes']}" in words
    assert [row["what"] for row in numbers["rows"]] == ["now", "before"]
    widget.settings = StepSettings()
    assert [row["what"] for row in widget.numbers["rows"]] == ["now", "before", "at first"]
    for target in numbers["targets"]:
        assert target["text"] in words
    data, _ = widget._repr_mimebundle_()
    assert repr(widget) == data["text/plain"] == widget.describe()
    assert json.loads(json.dumps(widget.numbers, allow_nan=False))["seq"] == 0
