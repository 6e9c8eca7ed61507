"""Parity of served models: by hand, beside other code, as recorded, and in ONNX Runtime."""

import math

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from labkit.labs.production.onnx_export import onnx_served
from labkit.labs.production.serving import exports, parity, parity_table, serving_record
from labkit.training import bits_per_character, trained_gpt
from labkit.training.data import characters, shakespeare, shakespeare_split


def text(rows=16, part=0):
    tokens = characters(shakespeare()).encode(shakespeare_split()[1])
    return tokens[part * 65 * rows : (part + 1) * 65 * rows].view(rows, 65)


def logits(rows):
    """A model that gives the same logits everywhere."""
    return lambda tokens: torch.tensor(rows).expand(*tokens.shape, -1)


def test_two_symbols_by_hand():
    tokens = torch.tensor([[0, 0, 1]])  # targets 0 and 1
    even, sure = logits([0.0, 0.0]), logits([math.log(3.0), 0.0])  # 1/2, 1/2 and 3/4, 1/4
    found = parity(even, sure, tokens)
    # -log2(3/4) and -log2(1/4), against 1 bit each.
    assert found.bits == pytest.approx((-math.log2(0.75) - math.log2(0.25)) / 2 - 1, abs=1e-6)
    assert found.kl == pytest.approx(0.5 * math.log2(0.5 / 0.75) + 0.5 * math.log2(0.5 / 0.25))
    assert (found.flips, found.ties) == (0.0, 0.0)
    assert found.max_error == pytest.approx(math.log(3.0))
    back = parity(sure, even, tokens)
    assert back.ties == 1.0 and back.bits == pytest.approx(-found.bits)
    assert parity(sure, logits([0.0, 1.0]), tokens).flips == 1.0


def test_a_model_beside_itself_is_the_same():
    found = parity(trained_gpt(), trained_gpt(), text())
    assert (found.bits, found.kl, found.flips, found.max_error) == (0, 0, 0, 0)


@pytest.mark.parametrize("name", ["BF16", "FP16", "INT8 by row", "INT4 by 32"])
def test_parity_is_what_numpy_and_scipy_compute(name):
    gpt, tokens = trained_gpt(), text()
    served = exports(gpt)[name]
    with torch.no_grad():
        true, given = (m(tokens[:, :-1]).double().numpy() for m in (gpt, served))
    p, q = log_softmax(true, axis=-1), log_softmax(given, axis=-1)
    kl = (np.exp(p) * (p - q)).sum(-1).mean() / np.log(2)
    found = parity(gpt, served, tokens)
    assert found.kl == pytest.approx(kl, rel=1e-6)
    assert found.flips == (true.argmax(-1) != given.argmax(-1)).mean()
    assert found.max_error == np.abs(true - given).max()
    top = np.sort(given, axis=-1)
    assert found.ties == (top[..., -1] == top[..., -2]).mean()


def test_bits_are_the_course_s_bits_a_character():
    gpt = trained_gpt()
    served = exports(gpt)["INT4 by 32"]
    tokens = characters(shakespeare()).encode(shakespeare_split()[1])
    # bits_per_character cuts the text into pieces that share their ends.
    pieces = tokens[: 64 * 64 + 1].unfold(0, 65, 64)
    held_out = shakespeare_split()[1][: 64 * 64 + 1]
    worse = bits_per_character(served, held_out) - bits_per_character(gpt, held_out)
    assert parity(gpt, served, pieces).bits == pytest.approx(worse, abs=1e-5)


def test_exports_leave_the_model_as_it_was_and_hold_what_they_say():
    gpt = trained_gpt()
    served = exports(gpt)
    assert all(
        torch.equal(a, b) for a, b in zip(gpt.parameters(), trained_gpt().parameters(), strict=True)
    )
    assert {p.dtype for p in served["BF16"].parameters()} == {torch.bfloat16}
    assert {p.dtype for p in served["FP16"].parameters()} == {torch.float16}
    for name, size, codes in (("INT8 by row", None, 255), ("INT4 by 32", 32, 15)):
        for layer in served[name].modules():
            if isinstance(layer, torch.nn.Linear | torch.nn.Embedding):
                rows = layer.weight.detach().view(-1, size or layer.weight.shape[1])
                assert max(len(row.unique()) for row in rows) <= codes


@pytest.mark.parametrize("wrong", [logits([0.0, 0.0, 0.0]), logits([0.0, math.nan])])
def test_what_cannot_be_compared_is_refused(wrong):
    with pytest.raises(ValueError, match="logits"):
        parity(logits([0.0, 0.0]), wrong, torch.tensor([[0, 1]]))


# ------------------------------------------------------------ recorded, and in ONNX Runtime


def test_the_table_has_a_row_for_each_recorded_export():
    record, table = serving_record(), parity_table()
    assert list(table.index) == list(record["exports"]) and len(table) >= 9
    assert all(len(parts) == 5 for parts in record["exports"].values())


def test_the_text_s_claims_hold_on_all_five_parts():
    parts = serving_record()["exports"]

    def each(name, key):
        return [part[key] for part in parts[name]]

    # Nothing to see in the bits, and yet other answers.
    for name in ("BF16", "FP16", "INT8 by row", "torchao, INT8 weights", "ONNX Runtime, FP16"):
        assert max(map(abs, each(name, "bits"))) < 0.002
        assert min(each(name, "flips")) > 0
    assert min(each("BF16", "ties")) > 0.005
    # The same weights in another runtime round differently, and in FP32 nobody sees it.
    assert max(each("ONNX Runtime, FP32", "flips")) == 0
    assert 0 < max(each("ONNX Runtime, FP32", "max_error")) < 1e-4
    assert min(each("ONNX Runtime, dynamic INT8", "flips")) > max(each("INT8 by row", "flips"))
    assert min(each("INT4 by 32", "bits")) > 0.05


def test_an_export_that_was_made_without_an_error_may_not_run():
    (name,) = refused = serving_record()["refused"]
    assert name == "ONNX Runtime, BF16" and "NOT_IMPLEMENTED" in refused[name]


def test_exports_measured_here_are_those_recorded():
    record = serving_record()["exports"]
    tokens = text(rows=64)
    for name, served in exports(trained_gpt()).items():
        found = parity(trained_gpt(), served, tokens)
        # Processors add in other orders.
        assert found.kl == pytest.approx(record[name][0]["kl"], rel=0.2)


def test_onnx_runtime_computes_the_same_model_for_any_number_of_texts():
    gpt, tokens = trained_gpt(), text()
    served = onnx_served(gpt, tokens[:2, :-1])
    found = parity(gpt, served, tokens)
    assert found.flips == 0 and found.max_error < 1e-4
    assert served(tokens[:1, :-1]).shape == (1, 64, 68)
