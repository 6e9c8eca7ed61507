"""Rooflines by hand, and the table of devices behind them."""

import csv

import pytest

from labkit.base.home import DATA
from labkit.devices import Description, device_of
from labkit.devices.roofline import Roof, matmul_work, roofs

ROWS = list(csv.DictReader((DATA / "gpus.csv").open(encoding="utf-8", newline="")))
FLOATS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4")


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
    assert matmul_work(2, 3, 5, "int8") == (60, 10 + 15 + 4 * 6)


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


def test_only_rows_read_whole_in_the_vendors_document_are_verified():
    verified = {roof.device for roof in (*roofs("fp16"), *roofs("bf16")) if roof.verified}
    assert {"Trainium3", "TPU v7x (Ironwood)"} <= verified
    # The bandwidths of these were read in another's work.
    assert not verified & {"P100 SXM2 16GB", "V100 SXM2", "A100 SXM4 40GB", "H100 SXM5 80GB"}
    for row in ROWS:
        if row["verification"] == "read":
            assert "second-hand" not in row["source"] and "via" not in row["source"]


# dtype, device, peak in TFLOP/s or TOP/s. Sources: AMD lab notes on Matrix Cores (256 FLOP a clock
# and CU x 220 x 1.7 GHz); AMD's MI300X and MI355X pages; the appendices of NVIDIA's GA102 and RTX
# Blackwell whitepapers; the HGX B200 sheet; verda.com on the GB300; NVIDIA's A100 and H100 sheets.
@pytest.mark.parametrize(
    ("dtype", "device", "peak"),
    [
        ("fp32", "MI250X (both GCDs)", 256 * 220 * 1.7e-3),
        ("fp64", "MI250X (both GCDs)", 256 * 220 * 1.7e-3),
        ("fp8", "MI300X", 2614.9),
        ("int8", "MI300X", 2614.9),
        ("fp16", "MI355X", 2516.6),
        ("fp8", "MI355X", 5033.2),
        ("fp32", "RTX 5090", 104.8),
        ("tf32", "RTX 5090", 104.8),
        ("int8", "RTX 5090", 838),
        ("tf32", "RTX 3090", 35.6),
        ("int8", "RTX 3090", 284),
        ("fp32", "B200 SXM", 75),
        ("int8", "GB300 (per GPU)", 165),
        ("fp64", "A100 SXM4 40GB", 19.5),
        ("fp64", "H100 SXM5 80GB", 67),
        ("int8", "H100 SXM5 80GB", 1979),
    ],
)
def test_a_published_peak(dtype, device, peak):
    (roof,) = roofs(dtype, devices=[device])
    assert roof.flops == pytest.approx(peak * 1e12, rel=1e-3)


def test_what_no_document_has_is_left_out():
    assert roofs("fp8", devices=["A100 SXM4 40GB"]) == []
    assert roofs("fp32", devices=["Apple M1"]) == []
    assert roofs("fp64", devices=["MI355X"]) == []


def test_tf32_of_a_geforce_has_the_peak_of_fp32():
    geforce = [row for row in ROWS if row["device"].startswith("RTX ") and row["tf32_tflops"]]
    assert len(geforce) > 4
    for row in geforce:
        if "A6000" not in row["device"] and "PRO" not in row["device"]:
            assert row["tf32_tflops"] == row["fp32_tflops"]


def test_rows_and_rules_agree_on_what_is_accelerated():
    # A peak of at least fp32's in the file is what the rules call accelerated.
    kinds = {"NVIDIA": "cuda", "AMD": "rocm"}
    for row in ROWS:
        if row["vendor"] not in kinds or not row["fp32_tflops"]:
            continue
        geforce = row["device"].startswith("RTX") and "A6000" not in row["device"]
        name = ("NVIDIA GeForce " if geforce and "PRO" not in row["device"] else "") + row["device"]
        kind = kinds[row["vendor"]]
        device = device_of(Description(name=name, kind=kind, capability=row["capability"]))
        for dtype in (*FLOATS, "int8"):
            peak = row["int8_tops" if dtype == "int8" else f"{dtype}_tflops"]
            if peak:
                fast = float(peak) >= float(row["fp32_tflops"])
                assert device.dtypes[dtype].accelerated.answer is fast, (name, dtype)


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
