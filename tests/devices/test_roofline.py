"""Rooflines by hand, and the table of devices behind them."""

import csv

import pytest

from labkit.base.paths import DATA
from labkit.devices.roofline import Roof, matmul_work, roofs

ROWS = list(csv.DictReader((DATA / "gpus.csv").open(encoding="utf-8", newline="")))
FLOATS = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")


def test_the_slower_of_two_rates_is_the_time():
    roof = Roof("x", "fp16", flops=100.0, bandwidth=10.0)
    assert roof.ridge == 10.0
    assert (roof.attainable(2.0), roof.attainable(50.0)) == (20.0, 100.0)
    assert roof.seconds(flop=1000, bytes_moved=50) == 10.0
    assert roof.bound(flop=1000, bytes_moved=50) == "compute"
    assert roof.seconds(flop=100, bytes_moved=50) == 5.0
    assert roof.bound(flop=100, bytes_moved=50) == "memory"
    assert roof.bound(flop=100, bytes_moved=10) == "compute"


def test_a_matmul_reads_two_matrices_and_writes_one():
    assert matmul_work(2, 3, 5, "fp16") == (60, 2 * (10 + 15 + 6))
    assert matmul_work(2, 3, 5, "tf32") == (60, 4 * (10 + 15 + 6))
    assert matmul_work(2, 3, 5, "fp8") == (60, 10 + 15 + 2 * 6)
    assert matmul_work(2, 3, 5, "fp4") == (60, 5 + 7.5 + 2 * 6)


def test_the_same_matrices_move_from_memory_to_compute_as_they_grow():
    (h100,) = roofs("bf16", devices=["H100 SXM5 80GB"])

    def bound(n):
        flop, moved = matmul_work(n, n, n, "bf16")
        return h100.bound(flop=flop, bytes_moved=moved)

    # Square matrices of 2 bytes have n / 3 FLOP a byte; the ridge is 989e12 / 3350e9 = 295.2.
    assert (bound(880), bound(896)) == ("memory", "compute")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["device"])
def test_every_row_is_dense_positive_and_sourced(row):
    peaks = {dtype: float(row[f"{dtype}_tflops"] or "nan") for dtype in FLOATS}
    known = [peak for peak in peaks.values() if peak == peak]
    assert all(peak > 0 for peak in known)
    # Narrower is never slower; of what is known, in the order of FLOATS.
    assert known == sorted(known)
    assert float(row["bandwidth_gb_s"]) > 0 and float(row["memory_gb"] or 1) > 0
    assert row["verification"] in ("read", "secondary", "weak")
    assert row["source"]


def test_only_what_was_read_in_the_vendors_document_is_verified():
    verified = {roof.device for roof in roofs("fp16") if roof.verified}
    assert "A100 SXM4 40GB" in verified
    assert "H100 SXM5 80GB" not in verified
    assert [roof.device for roof in roofs("fp8", devices=["A100 SXM4 40GB"])] == []


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: roofs("fp12"), "fp12"),
        (lambda: roofs("fp16", devices=["H1000"]), "H1000"),
        (lambda: matmul_work(0, 1, 1, "fp16"), "from 1 on"),
        (lambda: matmul_work(1, 1, 1, "int4"), "int4"),
        (lambda: Roof("x", "fp16", 0.0, 1.0), "above 0"),
        (lambda: Roof("x", "fp16", 1.0, float("nan")), "above 0"),
    ],
)
def test_bad_input_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
