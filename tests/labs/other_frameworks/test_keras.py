"""Lab 14's Keras: policies that end, losses that fit, and runs of a classifier of digits."""

import math

import pytest

from tests.labs.other_frameworks.in_child import in_child


@pytest.fixture(scope="module")
def found():
    return in_child("""
        import numpy as np
        from dataclasses import asdict
        from labkit.labs.other_frameworks import frameworks
        from labkit.labs.other_frameworks.frameworks import check_labels, keras, loss_for, policy
        from labkit.labs.other_frameworks.keras_runs import classifier, fit_digits

        runs = {
            "fp32": fit_digits("float32", epochs=2),
            "fp16": fit_digits("mixed_float16", epochs=2),
            "bf16": fit_digits("mixed_bfloat16", epochs=2),
            "one-hot": fit_digits("mixed_float16", epochs=2, one_hot=True),
            "pure bf16": fit_digits("bfloat16", epochs=1),
            "fp16 softmax": fit_digits("mixed_float16", head="softmax", brightest=16),
            "high scale": fit_digits("mixed_float16", epochs=1, initial_scale=2.0**30),
            "softmax": fit_digits("float32", epochs=2, head="softmax in float32"),
        }

        ids = np.arange(4)
        hot = keras.utils.to_categorical(ids, 10)
        losses = {}
        for head, prepare in (("logits", lambda z: z), ("softmax in float32", keras.ops.softmax)):
            for labels in (ids, hot):
                loss = loss_for(classifier(head), labels)
                values = [float(loss(labels, prepare(z))) for z in (40 * hot, 0 * hot)]
                losses[f"{type(loss).__name__}, {head}"] = values

        def said(call, *args):
            try:
                return call(*args) or "fine"
            except (RuntimeError, ValueError) as error:
                return str(error)

        sparse = keras.losses.SparseCategoricalCrossentropy()
        dense = keras.losses.CategoricalCrossentropy()
        pairs = ((ids, sparse), (hot, dense), (hot, sparse), (ids, dense))
        labels = [said(check_labels, *pair) for pair in pairs]

        names = []
        try:
            with policy("mixed_float16"):
                names.append(keras.config.dtype_policy().name)
                raise KeyError
        except KeyError:
            names.append(keras.config.dtype_policy().name)
        names.append(said(policy("float17").__enter__))
        names.append(said(frameworks.use_keras, "jax"))

        import torch
        gaps = {}
        for gap in (16.0, 16.2):
            for logits in (False, True):
                z = torch.tensor([[gap, 0.0, 0.0]], requires_grad=True)
                head = z if logits else z.softmax(-1)
                loss = type(sparse)(from_logits=logits)(np.array([1]), head)
                loss.backward()
                gaps[f"{gap}, {logits}"] = [loss.item(), z.grad[0, 1].item()]
        twice = type(sparse)(from_logits=True)(np.array([1]), torch.eye(10)[[1]]).item()
        fp16 = keras.DTypePolicy("mixed_float16")
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, dtype=fp16)])
        model.compile("adam", "mse")
        facts = {"gaps": gaps, "softmax twice": twice, "wrapped": type(model.optimizer).__name__}
        facts["one-hot"] = said(type(sparse)(from_logits=True), np.eye(4), np.zeros((4, 4), "f"))
        runs = {name: asdict(run) for name, run in runs.items()}
        {"facts": facts, "runs": runs, "losses": losses, "labels": labels, "names": names}
    """)


@pytest.fixture
def runs(found):
    return found["runs"]


def test_a_mixed_policy_computes_in_16_bits_and_ends_in_float32(runs):
    for name, narrow in (("fp16", "float16"), ("bf16", "bfloat16")):
        hidden, last = runs[name]["dtypes"]
        assert hidden == [narrow, "float32", narrow]
        assert last == ["float32"] * 3


def test_fp16_gets_a_loss_scale_and_bf16_none(runs):
    assert runs["fp16"]["optimizer"] == "LossScaleOptimizer"
    assert runs["fp16"]["loss_scale"] == 2.0**15
    assert runs["bf16"]["optimizer"] == "Adam" and runs["bf16"]["loss_scale"] is None


def test_both_repaired_listings_have_one_loss_curve(runs):
    # Integer labels with the sparse loss, one-hot labels with the other: the same sums.
    for one, other in zip(runs["fp16"]["losses"], runs["one-hot"]["losses"], strict=True):
        assert one == pytest.approx(other, abs=1e-4)


def test_mixed_precision_leaves_the_loss_curve_as_it_is(runs):
    for name in ("fp16", "bf16", "softmax"):
        assert runs[name]["losses"] == pytest.approx(runs["fp32"]["losses"], abs=2e-3)
    assert runs["fp32"]["losses"][-1] < 2 < math.log(10)


def test_adam_moves_no_bf16_weight(runs):
    assert runs["pure bf16"]["moved"] == 0
    assert runs["bf16"]["moved"] > 0.9


def test_a_softmax_in_fp16_drives_the_loss_scale_down(runs):
    run = runs["fp16 softmax"]
    skipped = run["steps"] - run["steps_taken"]
    assert skipped >= 15 and run["loss_scale"] == 2.0 ** (15 - skipped)


def test_a_loss_scale_that_is_too_high_backs_off_by_skipping(runs):
    run = runs["high scale"]
    skipped = run["steps"] - run["steps_taken"]
    assert skipped > 5 and run["loss_scale"] == 2.0 ** (30 - skipped)


def test_the_loss_follows_the_labels_and_the_last_layer(found):
    assert len(found["losses"]) == 4
    for perfect, uniform in found["losses"].values():
        assert perfect < 1e-3
        assert uniform == pytest.approx(math.log(10), abs=1e-4)


def test_labels_of_the_other_kind_are_refused_before_fit(found):
    right, also_right, hot, ids = found["labels"]
    assert right == also_right == "fine"
    assert "one-hot, of shape (4, 10)" in hot and "argmax" in hot
    assert "integers, of shape (4,)" in ids and "to_categorical" in ids


def test_keras_clips_probabilities_where_logits_still_have_a_gradient(found):
    gaps = found["facts"]["gaps"]
    assert gaps["16.0, False"] == pytest.approx([16, -1], abs=1e-4)
    assert gaps["16.2, False"] == pytest.approx([-math.log(1e-7), 0], abs=1e-4)
    assert gaps["16.2, True"] == pytest.approx([16.2, -1], abs=1e-4)


def test_a_second_softmax_costs_a_perfect_prediction_its_loss(found):
    assert found["facts"]["softmax twice"] == pytest.approx(math.log(math.e + 9) - 1, abs=1e-5)


def test_policies_of_single_layers_bring_no_loss_scale(found):
    assert found["facts"]["wrapped"] == "Adam"


def test_one_hot_labels_with_the_sparse_loss_are_an_error_of_keras(found):
    assert "shape" in found["facts"]["one-hot"]


def test_a_policy_ends_with_its_block_and_an_unknown_one_is_refused(found):
    inside, after, unknown, _ = found["names"]
    assert (inside, after) == ("mixed_float16", "float32")
    assert "'mixed_float16'" in unknown and "'mixed_bfloat16'" in unknown


def test_a_second_backend_is_refused(found):
    assert "runs on torch" in found["names"][-1] and "restart" in found["names"][-1]


def test_a_policy_acts_on_jax_too():
    found = in_child("""
        from labkit.labs.other_frameworks.frameworks import policy, use_keras
        keras = use_keras("jax")
        found = {}
        for name in ("mixed_float16", "mixed_bfloat16"):
            with policy(name):
                model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
                model.compile("adam", "mse")
            layer = model.layers[0]
            kind = type(model.optimizer).__name__
            found[name] = [layer.compute_dtype, layer.variable_dtype, kind]
        found
    """)
    assert found == {
        "mixed_float16": ["float16", "float32", "LossScaleOptimizer"],
        "mixed_bfloat16": ["bfloat16", "float32", "Adam"],
    }
