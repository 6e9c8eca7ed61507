"""S24 and T27: the table of devices, evidence and conflicts; a record that cannot skip evidence."""

import json

import pytest

from labkit.devices import Description, device_of
from labkit.labs.choosing_precision.decision import (
    STATES,
    Comparison,
    Evidence,
    EvidenceMissing,
    Record,
    Requirements,
    decide,
)


def gpu(name, capability):
    return device_of(Description(name=name, kind="cuda", capability=capability))


def cpu(*features):
    return device_of(Description(name="a processor", kind="cpu", features=frozenset(features)))


V100, T4, A100, H100 = gpu("V100", "7.0"), gpu("T4", "7.5"), gpu("A100", "8.0"), gpu("H100", "9.0")
PASCAL, PLAIN, AVX = gpu("GeForce GTX 1080", "6.1"), cpu(), cpu("avx512f", "avx512_bf16")
GB = 10**9


def need(gb=16.0, trained=None, served=None, **more):
    return Requirements(
        parameters=7 * GB,
        serving_bytes=gb * GB,
        training_evidence=trained or {},
        serving_evidence=served or {},
        **more,
    )


OK = "equivalent"
TABLE = [
    # device, requirements, training, serving, is there a conflict?
    (V100, need(), "fp16", "fp16", False),
    (T4, need(), "fp16", "fp16", False),
    (A100, need(), "bf16", "bf16", False),
    (H100, need(), "bf16", "bf16", False),
    (AVX, need(), "bf16", "bf16", False),
    (PLAIN, need(gb=28), "fp32", "fp32", False),
    (PLAIN, need(gb=16, served={"bf16": OK}), "fp32", "bf16", False),
    (PASCAL, need(gb=16, served={"int8": OK}), "fp32", "int8", False),
    (T4, need(gb=8, served={"int8": OK}), "fp16", "int8", False),
    (H100, need(gb=8, served={"fp8": OK, "int8": OK}), "bf16", "fp8", False),
    (A100, need(gb=8, served={"fp8": OK, "int8": OK}), "bf16", "int8", False),
    (H100, need(gb=8, served={"fp8": "inconclusive", "int8": "better"}), "bf16", "int8", False),
    (H100, need(gb=8), "bf16", None, True),
    (H100, need(gb=8, served={"int8": "inconclusive", "int4": "worse"}), "bf16", None, True),
    (H100, need(gb=4, served={"int8": OK, "int4": OK}), "bf16", "int4", False),
    (H100, need(gb=3, served={"int8": OK, "int4": OK}), "bf16", None, True),
    (A100, need(trained={"bf16": "worse"}), "fp16", "fp16", False),
    (A100, need(trained={"bf16": "inconclusive"}), "bf16", "bf16", False),
    (AVX, need(gb=28, trained={"bf16": "worse"}), "fp32", "fp32", True),
    (T4, need(gb=28, trained={"fp16": "worse"}), "fp32", "fp32", True),
    (A100, need(served={"bf16": "worse", "fp16": OK}), "bf16", "fp16", False),
    (A100, need(gb=28, served={"fp16": OK, "fp32": OK}), "bf16", "bf16", False),
    (T4, need(served={"bf16": OK}), "fp16", "fp16", False),
    (A100, need(gb=8, served={"fp8": OK}), "bf16", None, True),
    (PLAIN, need(gb=8, served={"fp8": OK}), "fp32", None, True),
]


@pytest.mark.parametrize("device, requirements, training, serving, conflict", TABLE)
def test_the_decision_table(device, requirements, training, serving, conflict):
    found = decide(requirements, device)
    assert (found.training, found.serving) == (training, serving)
    assert found.scaler == (training == "fp16")
    assert found.quantize == (serving in ("fp8", "int8", "int4"))
    assert bool(found.conflicts) == conflict
    assert any(rule.startswith(f"training: {training}") for rule in found.rules)
    if serving:
        assert any(rule.startswith(f"serving: {serving}") for rule in found.rules)


def test_the_time_of_a_token_asks_for_fewer_bytes():
    # 7 billion weights over 2 TB/s: 7 ms in BF16, 3.5 ms in 8 bits.
    slow = need(served={"int8": OK}, token_seconds=0.008, bandwidth=2e12)
    fast = need(served={"int8": OK}, token_seconds=0.004, bandwidth=2e12)
    none = need(served={"int8": OK}, token_seconds=0.003, bandwidth=2e12)
    assert [decide(n, A100).serving for n in (slow, fast, none)] == ["bf16", "int8", None]
    (conflict,) = decide(none, A100).conflicts
    assert "3.5 ms to read the weights, 3 ms a token allowed" in conflict
    assert "int4: no evidence" in conflict


def test_a_conflict_names_memory_and_missing_evidence():
    (conflict,) = decide(need(gb=8), H100).conflicts
    assert "bf16: 14 GB of weights, 8 GB allowed" in conflict and "int8: no evidence" in conflict


@pytest.mark.parametrize("served", [{}, {"bf16": "better"}])
def test_a_rule_claims_no_evidence_that_nobody_gave(served):
    rule = decide(need(served=served), A100).rules[-1]
    assert rule.startswith("serving: bf16") and ("better" in rule) == bool(served)
    assert "equivalent" not in rule


def test_rules_say_what_was_passed_over():
    rules = decide(need(trained={"bf16": "worse"}), A100).rules
    assert any("not bf16" in rule and "worse" in rule for rule in rules)


FIELDS = {
    "parameters": 7 * GB,
    "serving_bytes": 1e9,
    "training_evidence": {},
    "serving_evidence": {},
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_field_is_named(field):
    given = {name: value for name, value in FIELDS.items() if name != field}
    with pytest.raises(ValueError, match=field):
        decide(given, A100)


@pytest.mark.parametrize(
    "wrong",
    [
        {"parameters": 0},
        {"parameters": "many"},
        {"serving_bytes": -1.0},
        {"serving_bytes": float("nan")},
        {"training_evidence": {"bf16": "fine"}},
        {"serving_evidence": {"fp7": "equivalent"}},
        {"token_seconds": 0.0},
        {"bandwidth": -1.0},
        {"latency": 1.0},
    ],
)
def test_a_wrong_field_is_named(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        decide(FIELDS | wrong, A100)


def test_a_wrong_record_of_requirements_is_refused_as_a_dict_is():
    with pytest.raises(ValueError, match="parameters"):
        decide(Requirements(**FIELDS | {"parameters": -1}), A100)


def test_a_token_s_time_needs_a_bandwidth():
    with pytest.raises(ValueError, match="bandwidth"):
        decide(FIELDS | {"token_seconds": 0.01}, A100)


# The record

SAME = Comparison(differences=(0.001, -0.002, 0.0, 0.001, -0.001), margin=0.02)
WORSE = Comparison(differences=(-0.1, -0.11, -0.1, -0.09, -0.1), margin=0.02)
WIDE = Comparison(differences=(0.5, -0.5, 0.4, -0.4, 0.1), margin=0.02)
FEW = Comparison(differences=(0.001, -0.002, 0.0, 0.001), margin=0.02)
STEPS = (
    Evidence(what="bits a character, test text, FP32", results=(3.35, 3.36, 3.4, 3.38, 3.38)),
    Evidence(what="BF16", reasons=("training: bf16, accelerated on A100",)),
    Evidence(what="BF16 autocast beside FP32", comparison=SAME),
    Evidence(what="head in FP32", comparison=SAME),
    Evidence(what="held-out text", comparison=SAME),
)


def reached(states):
    record = Record(title="The GPT on A100")
    for step in STEPS[:states]:
        record = record.advance(step)
    return record


def test_a_control_widens_the_interval_of_a_comparison():
    shifted = Comparison(
        differences=SAME.differences, margin=0.02, control=(0.05, 0.051, 0.05, 0.049, 0.05)
    )
    assert SAME.verdict.answer == "equivalent" and shifted.verdict.answer == "inconclusive"


def test_a_record_passes_all_states_with_their_evidence():
    assert [reached(n).state for n in range(6)] == [None, *STATES]
    text = reached(5).describe()
    assert text.count("equivalent") == 3 and text.startswith("The GPT on A100\nbaseline:")
    with pytest.raises(ValueError):
        reached(5).advance(STEPS[4])


@pytest.mark.parametrize(
    "states, evidence, says",
    [
        (0, Evidence(what="FP32", results=(1.0,) * 4), "5 seeds"),
        (0, Evidence(what=" ", results=(1.0,) * 5), "what was measured"),
        (0, Evidence(what="FP32", results=(1.0, 1.0, 1.0, 1.0, float("nan"))), "finite"),
        (0, STEPS[2], "5 seeds"),
        (1, Evidence(what="BF16"), "rules"),
        (1, Evidence(what="BF16", reasons=(" ",)), "rules"),
        *[(n, Evidence(what="no comparison"), "5 pairs") for n in (2, 3, 4)],
        *[(n, Evidence(what="x", comparison=FEW), "5 pairs") for n in (2, 3, 4)],
        *[(n, Evidence(what="x", comparison=WORSE), "worse") for n in (2, 3, 4)],
        *[(n, Evidence(what="x", comparison=WIDE), "inconclusive") for n in (2, 3, 4)],
    ],
)
def test_no_state_is_entered_without_its_evidence(states, evidence, says):
    record = reached(states)
    with pytest.raises(EvidenceMissing, match=says) as caught:
        record.advance(evidence)
    assert STATES[states] in str(caught.value)
    assert record.state == reached(states).state


def test_a_record_can_be_kept_as_json_with_its_evidence():
    kept = json.loads(reached(5).to_json())
    assert [piece["what"] for piece in kept["evidence"]] == [step.what for step in STEPS]
    assert kept["evidence"][2]["comparison"]["differences"]
