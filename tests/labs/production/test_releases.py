"""Releases: fingerprints, a registry that refuses and goes back, a rollout that a defect ends."""

import json
import re

import pytest
import torch

from labkit.labs.production.canaries import CANARIES, traffic
from labkit.labs.production.gates import Gate
from labkit.labs.production.releases import (
    Registry,
    RolledBack,
    Stage,
    Tampered,
    Window,
    advance,
    fingerprint,
    roll_out,
    stages,
)

RECIPE = {"weights": "int8", "scales": "fp16", "group": "row"}
EVALUATED = {"bits": 2.1}


def weights(value: float = 1.0) -> dict[str, torch.Tensor]:
    return {"w": torch.full((3, 4), value, dtype=torch.bfloat16), "step": torch.tensor(7)}


@pytest.fixture
def registry(tmp_path):
    """v1 answers every request; v2 is registered."""
    made = Registry(tmp_path / "releases")
    made.promote(made.add({"weights": "bf16"}, weights(), EVALUATED))
    made.add(RECIPE, weights(2.0), EVALUATED)
    return made


# ---------------------------------------------------------------- fingerprints


def test_a_fingerprint_changes_with_every_part_and_with_no_order():
    first = fingerprint(RECIPE, weights())
    assert fingerprint(dict(reversed(RECIPE.items())), dict(reversed(weights().items()))) == first
    one_bit = weights()
    one_bit["w"].view(torch.int16)[2, 3] ^= 1
    others = [
        fingerprint({**RECIPE, "group": 32}, weights()),
        fingerprint(RECIPE, one_bit),
        fingerprint(RECIPE, {**weights(), "w": weights()["w"].float()}),
        fingerprint(RECIPE, {**weights(), "w": weights()["w"].view(torch.float16)}),
        fingerprint(RECIPE, {**weights(), "w": weights()["w"].T.contiguous()}),
        fingerprint(RECIPE, {"v": weights()["w"], "step": torch.tensor(7)}),
        fingerprint(RECIPE, {"w": weights()["w"]}),
    ]
    assert len({first, *others}) == 8


def test_a_fingerprint_reads_values_and_not_how_they_lie_in_memory():
    w = torch.arange(12.0).view(3, 4)
    assert fingerprint({}, {"w": w.T.contiguous().T}) == fingerprint({}, {"w": w})
    assert fingerprint({}, {"w": w[0, 1].expand(4)}) == fingerprint({}, {"w": torch.ones(4)})
    assert fingerprint({}, {"w": torch.tensor([0.0])}) != fingerprint(
        {}, {"w": torch.tensor([-0.0])}
    )


def test_a_recipe_that_is_not_json_has_no_fingerprint():
    with pytest.raises(ValueError, match="JSON"):
        fingerprint({"scale": float("nan")}, weights())
    with pytest.raises(TypeError, match="JSON"):
        fingerprint({"dtype": torch.bfloat16}, weights())


# ---------------------------------------------------------------- the registry


def test_versions_are_plain_files_that_a_new_registry_reads(registry, tmp_path):
    again = Registry(tmp_path / "releases")
    assert again.versions() == ("v1", "v2") and again.current().version == "v1"
    second = again.release("v2")
    assert second.recipe == RECIPE and second.evaluated == EVALUATED
    assert second.fingerprint == fingerprint(RECIPE, weights(2.0))
    loaded = again.weights(second)
    assert torch.equal(loaded["w"], weights(2.0)["w"]) and loaded["w"].dtype == torch.bfloat16
    names = sorted(path.name for path in (tmp_path / "releases").iterdir())
    assert names == ["pointer.json", "v1.json", "v1.pt", "v2.json", "v2.pt"]


def test_versions_are_ordered_by_number(tmp_path):
    registry = Registry(tmp_path)
    for _ in range(11):
        last = registry.add(RECIPE, weights(), EVALUATED)
    assert last.version == registry.versions()[-1] == "v11"


def test_a_recipe_with_a_tuple_is_the_one_that_is_read_again(registry):
    release = registry.add({"keep": ("head", "norm")}, weights(), EVALUATED)
    registry.promote(release)
    assert registry.current() == release


def test_a_candidate_gets_its_share_and_the_release_before_it_the_rest(registry):
    assert registry.shares() == {"v1": 1.0}
    second = registry.release("v2")
    for share in (0.0, 0.25, 0.75):
        registry.promote(second, share)
        assert registry.shares() == {"v1": 1 - share, "v2": share}
        assert registry.current().version == "v1"
    third = registry.add(RECIPE, weights(3.0), EVALUATED)
    with pytest.raises(ValueError, match="v2 is a candidate already"):
        registry.promote(third, 0.01)
    registry.promote(second)
    assert registry.shares() == {"v2": 1.0} and registry.current() == second


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_a_release_that_was_rolled_back_stays_so(registry, share):
    second = registry.release("v2")
    registry.promote(second, share)
    assert registry.rollback("too slow").version == "v1"
    assert registry.shares() == {"v1": 1.0}
    assert registry.rolled_back() == {"v2": "too slow"}
    with pytest.raises(LookupError, match=r"too slow.*add a new version"):
        registry.promote(second)
    with pytest.raises(LookupError, match="no release before"):
        registry.rollback("again")


def test_each_release_that_was_rolled_back_keeps_its_reason(registry):
    registry.promote(registry.release("v2"))
    registry.rollback("too slow")
    registry.promote(registry.add(RECIPE, weights(3.0), EVALUATED), 0.5)
    registry.rollback("worse")
    assert registry.rolled_back() == {"v2": "too slow", "v3": "worse"}


def test_nothing_is_served_before_the_first_promotion(tmp_path):
    registry = Registry(tmp_path)
    assert registry.shares() == {} and registry.versions() == ()
    release = registry.add(RECIPE, weights(), EVALUATED)
    with pytest.raises(LookupError, match="no release was promoted"):
        registry.current()
    with pytest.raises(ValueError, match="no release answers the rest"):
        registry.promote(release, 0.01)
    with pytest.raises(LookupError, match="no v2"):
        registry.release("v2")
    with pytest.raises(ValueError, match="from 0 to 1"):
        registry.promote(release, 1.5)
    for nothing in ({}, {"bits": float("nan")}):
        with pytest.raises(ValueError, match="evaluated"):
            registry.add(RECIPE, weights(), nothing)


def test_weights_that_differ_by_one_bit_are_not_promoted(registry, tmp_path):
    second = registry.release("v2")
    changed = weights(2.0)
    changed["w"].view(torch.int16)[0, 0] ^= 1
    torch.save(changed, tmp_path / "releases" / "v2.pt")
    with pytest.raises(Tampered, match="are not what v2 was made of"):
        registry.promote(second)
    assert registry.current().version == "v1"


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "gone"])
def test_a_damaged_file_of_weights_is_not_promoted(registry, tmp_path, damage):
    file = tmp_path / "releases" / "v2.pt"
    data = bytearray(file.read_bytes())
    if damage == "flipped":
        # The bits of the weights: BF16's 2.0 is 0x4000, twelve times.
        data[data.index(b"\x00\x40" * 12)] ^= 4
        file.write_bytes(data)
    elif damage == "gone":
        file.unlink()
    else:
        file.write_bytes(data[: len(data) // 2] if damage == "cut" else b"")
    with pytest.raises(Tampered, match=re.escape(str(file))):
        registry.promote(registry.release("v2"), 0.01)
    assert registry.shares() == {"v1": 1.0}


def test_a_recipe_that_was_edited_is_refused(registry, tmp_path):
    file = tmp_path / "releases" / "v2.json"
    before = registry.release("v2")
    entry = json.loads(file.read_text())
    entry["recipe"]["group"] = 32
    file.write_text(json.dumps(entry))
    with pytest.raises(Tampered, match="another release"):
        registry.promote(before)
    with pytest.raises(Tampered, match="add a changed recipe as a new version"):
        registry.promote(registry.release("v2"))
    file.write_text("{")
    with pytest.raises(Tampered, match="is damaged"):
        registry.release("v2")


def test_another_release_of_the_same_name_is_refused(registry, tmp_path):
    elsewhere = Registry(tmp_path / "elsewhere")
    stranger = [elsewhere.add(RECIPE, weights(v), EVALUATED) for v in (5.0, 6.0)][-1]
    with pytest.raises(Tampered, match="another release"):
        registry.promote(stranger)


def test_a_damaged_pointer_is_named(registry, tmp_path):
    (tmp_path / "releases" / "pointer.json").write_text('{"serving": 3}')
    with pytest.raises(Tampered, match=r"pointer\.json is damaged"):
        registry.current()


# ---------------------------------------------------------------- stages

FINE, WORSE = (True, True), (True, False)


def test_the_stages_pass_each_other_the_pairs():
    plan = stages(shadow=3, live=100)
    assert [(stage.share, stage.pairs) for stage in plan] == [
        (0, 3), (0.01, 1), (0.1, 10), (0.5, 50), (1, 100)
    ]  # fmt: skip
    assert [stage.name for stage in stages(shadow=0, live=200)] == ["1 %", "10 %", "50 %", "100 %"]
    plan = advance(plan, Gate(), Window(pairs=[FINE] * 5))
    assert plan[0] == Stage(name="10 %", share=0.1, pairs=10, seen=1)
    assert advance(plan, Gate(), Window(pairs=[FINE] * 158))[0].seen == 99
    assert advance(plan, Gate(), Window(pairs=[FINE] * 159)) == ()
    assert advance(plan, Gate(), Window(pairs=[FINE] * 500)) == ()
    for wrong in (
        {"shadow": -1, "live": 100},
        {"shadow": 0, "live": 150},
        {"shadow": 0, "live": 0},
    ):
        with pytest.raises(ValueError, match="multiple of 100"):
            stages(**wrong)


def test_the_gate_keeps_what_it_saw_from_stage_to_stage():
    """Eight pairs against the candidate: 2**8 / 9 is the first e-value of at least 20."""
    plan, gate = stages(shadow=5, live=100), Gate()
    plan = advance(plan, gate, Window(pairs=[WORSE] * 7))
    with pytest.raises(RolledBack, match="10 %, after 2 of 10 pairs: the gate") as caught:
        advance(plan, gate, Window(pairs=[WORSE] * 3))
    assert caught.value.stage.seen == 2


def test_a_guardrail_needs_no_pair():
    broken = {"p99": True, "finite logits": False}
    with pytest.raises(RolledBack, match="shadow, after 0 of 10 pairs: guardrail finite logits"):
        advance(stages(shadow=10, live=100), Gate(), Window(pairs=(), guardrails=broken))


# ---------------------------------------------------------------- acceptance: T29


@pytest.mark.seeds(range(5))
def test_injected_regressions_are_rolled_back_and_sound_exports_reach_all_requests(tmp_path, seed):
    registry = Registry(tmp_path)
    first = registry.add({"weights": "fp32"}, weights(), EVALUATED)
    registry.promote(first)
    for name, canary in CANARIES.items():
        release = registry.add({"weights": name}, weights(), EVALUATED)
        before = registry.current()
        arguments = {
            "plan": stages(shadow=16_000, live=4_000),
            "gate": Gate(),
            "traffic": traffic(name, seed=seed),
        }
        if canary.sound:
            assert roll_out(registry, release, **arguments) == release == registry.current()
        else:
            with pytest.raises(RolledBack) as caught:
                roll_out(registry, release, **arguments)
            assert registry.current() == before
            assert registry.shares() == {before.version: 1.0}
            assert registry.rolled_back()[release.version] == str(caught.value)


def test_a_rollout_without_enough_traffic_stays_where_it_is(registry):
    second = registry.release("v2")
    windows = [Window(pairs=[FINE] * 105)]
    current = roll_out(
        registry, second, plan=stages(shadow=100, live=1000), gate=Gate(), traffic=windows
    )
    assert current.version == "v1" and registry.shares() == {"v1": 0.99, "v2": 0.01}


def test_files_that_change_during_a_rollout_end_it(registry, tmp_path):
    def windows():
        yield Window(pairs=[FINE] * 10)
        torch.save(weights(9.0), tmp_path / "releases" / "v2.pt")
        yield Window(pairs=[FINE] * 100)

    with pytest.raises(Tampered, match="are not what v2 was made of"):
        roll_out(
            registry,
            registry.release("v2"),
            plan=stages(shadow=20, live=100),
            gate=Gate(),
            traffic=windows(),
        )
    assert registry.shares() == {"v1": 1.0}
    assert "are not what v2 was made of" in registry.rolled_back()["v2"]


def test_a_release_that_is_rolled_back_at_all_requests_gives_them_back(registry):
    second = registry.release("v2")
    plan = stages(shadow=0, live=100)
    windows = [Window(pairs=[FINE] * 61), Window(pairs=[WORSE] * 8)]
    with pytest.raises(RolledBack, match="100 %, after 8 of 100 pairs"):
        roll_out(registry, second, plan=plan, gate=Gate(), traffic=windows)
    assert registry.shares() == {"v1": 1.0} and registry.current().version == "v1"
