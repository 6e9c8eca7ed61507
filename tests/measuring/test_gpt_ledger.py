"""The ledger: what a row counts, which rows stand beside each other, and where they are kept."""

import html
import json
import math

import nbformat
import numpy as np
import pytest
import torch

from labkit.base import progress
from labkit.base.home import DATA, NOTEBOOKS
from labkit.measuring import ledger as module
from labkit.measuring.ledger import CARD, FILE, PARAMETERS, Ledger, LedgerRow, front, stored
from labkit.training import bits_per_character, trained_gpt
from labkit.training.data import shakespeare_split

LAB = "09_quantization"
RECORDED = json.loads(FILE.read_text(encoding="utf-8"))["rows"]
recorded = {(row["lab"][:2], row["name"]): row for row in RECORDED}


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A progress log of its own, and nothing recorded."""
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)
    monkeypatch.setattr(module, "_recorded", list)
    return lambda: progress.events(kind="ledger")


@pytest.fixture
def quick(monkeypatch):
    """Bits a character without a text: the model is the number."""
    monkeypatch.setattr(module, "bits_per_character", lambda model, text: model)


def row(bytes, bits, name="", origin="yours"):
    return LedgerRow(lab=LAB, name=name, bytes=bytes, bits=bits, origin=origin)


def test_the_time_of_8_billion_parameters_is_their_bytes_over_the_cards_bandwidth():
    assert sum(p.numel() for p in trained_gpt().parameters()) == PARAMETERS
    in_bf16 = row(2 * PARAMETERS, 2.1)
    # 16e9 bytes at 3.35e12 bytes/s (H100 SXM5 80GB in data/gpus.csv)
    assert (CARD, in_bf16.ms_8b) == ("H100 SXM5 80GB", pytest.approx(16 / 3.35))
    assert row(PARAMETERS // 2, 2.1).ms_8b == pytest.approx(in_bf16.ms_8b / 4)


def test_stored_casts_every_matrix_once_and_counts_all_bytes():
    gpt, cast = trained_gpt(), {}

    def zeros(name, weight):
        cast[name] = weight.numel()
        return torch.zeros_like(weight), weight.numel() * 3 / 8

    model, size = stored(gpt, zeros)
    before, after = dict(gpt.named_parameters()), dict(model.named_parameters())
    matrices = {name.removesuffix(".weight") for name, p in before.items() if p.ndim == 2}
    assert cast.keys() == matrices and len(cast) == 11
    assert not any(after[f"{name}.weight"].any() for name in matrices)
    for name in before.keys() - {f"{name}.weight" for name in matrices}:
        assert torch.equal(after[name], before[name].half().float())
    vectors = PARAMETERS - sum(cast.values())
    assert size == sum(math.ceil(n * 3 / 8) for n in cast.values()) + 2 * vectors
    assert torch.equal(gpt.head.weight, trained_gpt().head.weight), "the caller's stays"


def test_a_row_has_the_bits_that_the_model_really_has(log):
    model = trained_gpt().bfloat16().float()
    found = Ledger().add(LAB, "BF16", model, 2 * PARAMETERS)
    assert found.bits == bits_per_character(model, shakespeare_split()[1])
    assert (found.bytes, found.origin) == (2 * PARAMETERS, "yours")


def test_rows_of_yours_are_kept_for_other_notebooks_and_logged_once(log, quick):
    first = Ledger()
    first.add(LAB, "INT8", 2.2, 117_528)
    first.add(LAB, "INT8", 2.2, 117_528)
    Ledger().add(LAB, "INT8", 2.2, 117_528)
    assert len(log()) == 1
    Ledger().add(LAB, "INT8", 2.1, 117_528)
    assert Ledger().rows == (row(117_528, 2.1, "INT8"),)
    Ledger().add(LAB, "INT8", 2.2, 117_528)
    assert len(log()) == 3 and Ledger().rows[0].bits == 2.2, "the last one counts"


def test_without_a_log_the_rows_of_this_ledger_stand(log, quick, monkeypatch):
    monkeypatch.setenv("LABKIT_PROGRESS", "off")
    mine = Ledger()
    mine.add(LAB, "INT8", 2.2, 117_528)
    assert mine.rows == (row(117_528, 2.2, "INT8"),) and Ledger().rows == ()


def test_a_log_that_cannot_be_read_takes_no_row_away(log, quick, tmp_path, capsys):
    (tmp_path / "progress.db").write_bytes(b"this is no database" * 100)
    mine = Ledger()
    mine.add(LAB, "INT8", 2.2, 117_528)
    assert mine.rows == (row(117_528, 2.2, "INT8"),)


def test_a_row_of_yours_stands_in_the_place_of_labkits_and_of_the_recorded_one(
    log, quick, monkeypatch
):
    monkeypatch.setattr(module, "_recorded", lambda: [row(5, 3.0, "INT8", "recorded")])
    mine = Ledger()
    assert [one.origin for one in mine.rows] == ["recorded"]
    mine.add(LAB, "INT8", 2.9, 5, whose="labkit's")
    assert [one.origin for one in mine.rows] == ["labkit's"] and log() == []
    mine.add(LAB, "INT8", 2.8, 5, whose="your")
    mine.add(LAB, "INT8", 2.7, 5, whose="labkit's")
    assert mine.rows == (row(5, 2.8, "INT8"),)
    assert Ledger().rows == (row(5, 2.8, "INT8"),)


@pytest.mark.parametrize("bits", [math.nan, math.inf])
def test_a_model_that_overflows_is_no_row(bits, log, quick):
    mine = Ledger()
    with pytest.raises(ValueError, match="not finite"):
        mine.add(LAB, "E5M2", bits, 5)
    assert mine.rows == () and log() == []


def test_the_front_holds_what_no_other_row_beats():
    small, large = row(60, 2.27), row(450, 2.1044)
    beaten, equal = row(70, 2.28), row(225, 2.1041)  # to three decimals equal to `large`
    assert front([large, beaten, small, equal]) == [small, equal]
    assert front([]) == []


def test_table_text_and_picture_say_the_same(log, quick):
    mine = Ledger()
    mine.add(LAB, "INT8 <x>", 2.1046, 117_528)
    mine.add(LAB, "INT4", 2.271, 61_976, whose="labkit's")
    page, picture = mine._repr_html_(), mine.plot()
    for said in ("117,528", "2.105", "2.48", "61,976", "2.271", "labkit's", "INT8 <x>"):
        assert html.escape(said) in page and said in repr(mine) and said in picture.alt
    assert CARD in page
    assert picture.alt.endswith("On the line: INT4, INT8 <x>.")
    drawn = {text.get_text() for text in picture.figure.axes[0].texts}
    assert drawn == {"INT8 <x>", "INT4"}


def test_no_name_stands_on_another_or_outside_the_picture(monkeypatch):
    crowd = [LedgerRow(**kept, origin="recorded") for kept in RECORDED]
    crowd += [row(68_000 + 300 * k, 2.16, "within 68,000 bytes") for k in range(4)]
    crowd += [row(451_856, 2.1044, "my own BF16 run")]
    monkeypatch.setattr(Ledger, "rows", crowd)
    (axes,) = Ledger().plot().figure.axes
    boxes = [text.get_window_extent() for text in axes.texts if text.get_text()]
    assert len(boxes) == len(crowd)
    for at, box in enumerate(boxes):
        assert not box.count_overlaps(boxes[at + 1 :]), crowd[at]
        assert axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1


def test_the_recorded_rows_are_those_that_the_solved_notebooks_show():
    shown = {}
    for lab in {row["lab"] for row in RECORDED}:
        solved = nbformat.read(NOTEBOOKS / "solutions" / f"{lab}.ipynb", as_version=4)
        outputs = [o for cell in solved.cells for o in cell.get("outputs", ())]
        texts = "\n".join(o.get("data", {}).get("text/plain", "") for o in outputs).splitlines()
        shown[lab] = [text for text in texts if text.endswith("from yours")]
        assert shown[lab], f"{lab} adds no row of its own"
    for kept in RECORDED:
        (said,) = {text for text in shown[kept["lab"]] if f"form {kept['name']}, bytes" in text}
        assert f"bytes {kept['bytes']:,}," in said
        bits = float(said.partition("bits a character ")[2].partition(",")[0])
        assert bits == pytest.approx(kept["bits"], abs=0.0006)


def test_what_the_sections_say_of_the_recorded_rows():
    with np.load(DATA / "gpt" / "gpt.npz") as file:
        fp32 = json.loads(str(file["about"]))["bits_per_character"]
    whole = recorded["00", "FP32"]
    assert (whole["bytes"], whole["bits"]) == (451_856, pytest.approx(fp32, abs=1e-4))
    assert 2 * recorded["00", "FP16"]["bytes"] == whole["bytes"]
    assert abs(recorded["00", "FP16"]["bits"] - fp32) < 0.0005
    int4, parcel = recorded["09", "INT4"], recorded["09", "INT4 by GPTQ and INT8"]
    assert round((parcel["bytes"] - int4["bytes"]) / 1e3) == 10
    assert 2 * (parcel["bits"] - fp32) < int4["bits"] - fp32
    by_kl = recorded["12", "KL budget 0.045"]
    assert [round(one["bytes"] / 1e3) for one in (by_kl, int4, parcel)] == [70, 62, 72]
    assert [round(one["bits"], 3) for one in (by_kl, int4, parcel)] == [2.160, 2.271, 2.152]
