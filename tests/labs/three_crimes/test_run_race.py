"""RunRace without a browser: dials in, picture out, and the words of its text twin."""

import itertools
import json
import math
import re

import pytest
from traitlets import TraitError

from labkit.base.home import DATA
from labkit.labs.three_crimes.widget_run_race import DIALS, RunRace

RECORDED = json.loads((DATA / "emulated" / "three_crimes.json").read_text(encoding="utf-8"))


def turn(race: RunRace, dial: str, position: str) -> dict:
    """What the page does: a request one number higher than the last answer."""
    race.request = {"seq": race.numbers["seq"] + 1, "dial": dial, "position": position}
    return race.numbers


def endings(race: RunRace) -> list[str]:
    return [lane["verdict"] for lane in race.numbers["lanes"]]


def test_every_position_of_every_dial_has_its_three_runs():
    race = RunRace()
    for dial, positions in DIALS.items():
        for position in positions:
            picture = turn(race, dial, position)
            assert [lane["name"].split(",")[0].split()[0] for lane in picture["lanes"]] == [
                "FP32", "all", "mixed",
            ]  # fmt: skip
    count = 1
    for name in ("task", "lr", "eps"):
        count *= len(DIALS[name])
    assert len(RECORDED["runs"]) == count * (1 + len(DIALS["pure"]) + len(DIALS["mixed"]))


def test_pure_fp16_with_adam_is_not_finite_from_step_1():
    race = RunRace()
    lane = race.numbers["lanes"][1]
    assert lane["verdict"] == "not finite from step 1"
    assert len(lane["heights"]) == 1 and lane["losses"][1] == "not finite"
    race.step = 1
    assert math.isnan(race.losses()["all in FP16"])
    assert race.losses()["FP32"] < 3


def test_each_crime_is_on_the_dials_and_mixed_precision_keeps_up():
    stall = RunRace(lr="middle", pure="pure_bf16", mixed="bf16")
    reference, pure, mixed = endings(stall)
    assert pure.startswith("stalls: ") and mixed.startswith("keeps up: 100%")
    slower = endings(RunRace(lr="low", pure="pure_bf16"))[1]

    def moved(verdict):
        return int(verdict.split("; ")[1].partition("%")[0])

    assert moved(slower) < moved(pure) < moved(reference)
    still = RunRace(task="autoencoder", mixed="fp16_unscaled")
    assert endings(still)[2] == "stands still: every gradient is 0"
    assert turn(still, "mixed", "fp16 256")["lanes"][2]["verdict"].startswith("keeps up: 100%")


def test_whatever_is_turned_a_mixed_lane_in_bf16_or_with_a_loss_scale_keeps_up():
    """What the lab says below the race; and an eps of 1e-4 makes another run of pure FP16."""
    for task, lr, eps in itertools.product(*(DIALS[dial] for dial in ("task", "lr", "eps"))):
        race = RunRace(task=task, lr=lr, eps=eps)
        for race.mixed in ("fp16 256", "fp16", "bf16"):
            assert re.match(r"keeps up: (9[89]|10[0-2])%", endings(race)[2]), race.describe()
    assert endings(RunRace(lr="middle", eps="0.0001"))[1].startswith("another run: ")


def test_one_dial_at_a_time_eps_or_bf16_saves_the_middle_lane_and_nothing_else_does():
    """What the lab says below the race, from the position in which it opens."""
    start = {dial: getattr(RunRace(), dial) for dial in DIALS}
    ends = {
        (dial, position): endings(RunRace(**start | {dial: position}))[1]
        for dial, positions in DIALS.items()
        for position in positions
        if position != start[dial]
    }
    saved = {key for key, end in ends.items() if end.startswith("keeps up: ")}
    assert saved == {("eps", "0.0001"), ("pure", "pure_bf16")}
    assert {end for key, end in ends.items() if key not in saved} == {"not finite from step 1"}
    assert ends["eps", "0.0001"].startswith("keeps up: 103%")
    for precision in ("fp32", "pure_fp16"):
        (run,) = (
            run for run in RECORDED["runs"]
            if (run["task"], run["lr"], run["eps"], run["precision"])
            == ("digits", 1e-3, 1e-4, precision)
        )  # fmt: skip
        assert sum(run["losses"][-20:]) / 20 < 0.2  # and so 103 % of the way is no wonder
    # With another dial turned as well, either may fail.
    assert endings(RunRace(lr="middle", pure="pure_bf16"))[1].startswith("stalls: 15%")
    assert endings(RunRace(task="autoencoder", eps="0.0001"))[1].startswith("stands still")


def test_the_words_alone_are_enough_to_turn_every_dial():
    race = RunRace()
    words = race.describe()
    for dial, positions in DIALS.items():
        listed = words.partition(f" {dial} = ")[2].partition(";")[0].rstrip(".").split(" or ")
        assert [json.loads(position) for position in listed] == list(positions)
        for position in positions:
            setattr(race, dial, position)
    race = RunRace(eps="0.0001")
    assert 'RunRace(eps="0.0001")' in words and "race.step = 299 goes to the end" in words
    race.step = 299
    assert "keeps up: 103% of FP32's way" in str(race)
    assert "race.step = 59 " in RunRace(task="autoencoder").describe()


def test_heights_are_the_recorded_losses_on_one_scale():
    race = RunRace(mixed="bf16", pure="pure_bf16")
    wanted = next(
        run for run in RECORDED["runs"]
        if (run["task"], run["lr"], run["eps"], run["precision"]) == ("digits", 1e-3, 1e-8, "fp32")
    )  # fmt: skip
    heights = race.numbers["lanes"][0]["heights"]
    top = wanted["losses"][0] / heights[0]
    for loss, height in zip(wanted["losses"], heights, strict=True):
        assert abs(height - min(loss / top, 100)) < 0.02  # heights have two decimals
    assert 80 < heights[0] <= 100


def test_a_request_is_answered_with_its_number_and_an_odd_one_changes_nothing():
    race = RunRace()
    before = race.describe()
    assert turn(race, "lr", "low")["seq"] == 1
    assert race.lr == "low" and "Adam at 1e-05" in race.describe()
    assert turn(race, "lr", "high")["seq"] == 2
    assert race.describe() == before
    assert turn(race, "colour", "red")["seq"] == 3
    assert race.describe() == before


def test_another_task_begins_at_its_start():
    race = RunRace()
    race.step = race.numbers["last"]
    race.task = "autoencoder"
    assert race.step == 0 and race.numbers["last"] == 59
    assert [label for _, label in race.numbers["dials"][1]["positions"]] == [
        "0.01",
        "0.001",
        "0.0001",
    ]


def test_what_is_not_on_a_dial_is_refused():
    for dial in DIALS:
        with pytest.raises(TraitError):
            RunRace(**{dial: "fp8"})
    race = RunRace()
    for step in (-1, race.numbers["last"] + 1):
        with pytest.raises(TraitError, match="this race has the steps 0 to 299"):
            race.step = step


def test_the_words_say_what_the_picture_shows():
    race = RunRace()
    race.step = 1
    words = race.describe()
    setting = "digits, Adam at 0.001, eps 1e-8"
    assert setting in words and "step 1 of 299" in words and "FP32 2." in words
    assert "all in FP16 not finite" in words and "mixed, FP16, dynamic loss scale 2." in words
    assert RECORDED["provenance"] in words and "From Python" in words
    assert "emulated" in words and "keeps up" not in words
    race.step = 299
    assert "all in FP16 not finite, not finite from step 1" in race.describe()
    assert "keeps up: 100% of FP32's way" in race.describe()
    data, _ = race._repr_mimebundle_()
    assert repr(race) == data["text/plain"] == race.describe()


def test_what_crosses_to_the_page_is_json():
    race = RunRace(task="autoencoder")
    assert json.loads(json.dumps(race.numbers)) == race.numbers
    assert "NaN" not in json.dumps(RunRace().numbers)


def test_every_control_keeps_its_keys_from_jupyterlab():
    script = RunRace._esm if isinstance(RunRace._esm, str) else str(RunRace._esm)
    assert 'node(tag, { ...attributes, "data-lm-suppress-shortcuts": "true" }' in script
    for tag in ("button", "select", "input"):
        assert f'control("{tag}"' in script and f'node("{tag}"' not in script
