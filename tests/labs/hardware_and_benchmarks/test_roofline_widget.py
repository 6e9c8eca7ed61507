"""Roofline without a browser: places, words, and what the page may ask for."""

import json

import pytest
from traitlets import TraitError

from labkit.devices.roofline import Roof, roofs
from labkit.labs.hardware_and_benchmarks.widget_roofline import SIZES, Roofline

A100 = Roof("A100", "fp16", 312e12, 1555e9, verified=True)
T4 = Roof("T4", "fp16", 65e12, 320e9)


def test_the_words_say_all_that_is_drawn():
    widget = Roofline([A100, T4])
    said = widget.describe()
    assert repr(widget) == said
    assert "170.7 FLOP a byte" in said
    # 3 * 2 * 512**2 bytes / 1555e9 and / 320e9
    assert "on A100 memory-bound, at least 1.01 us;" in said
    assert "on T4 memory-bound, at least 4.92 us (peak from a secondary source)." in said
    widget.size = 4096
    # 2 * 4096**3 / 65e12 = 2.11 ms
    assert "on T4 compute-bound, at least 2.11 ms" in widget.describe()
    assert [row["bound"] for row in widget.numbers["rows"]] == ["compute", "compute"]
    assert "data/gpus.csv" in widget.numbers["note"]
    assert Roofline([A100]).numbers["note"] == ""


def test_the_dot_lies_on_its_roof_and_everything_inside_the_picture():
    widget = Roofline(roofs("bf16", devices=["A10", "A100 SXM4 40GB", "H100 SXM5 80GB"]))
    for size in SIZES:
        widget.size = size
        for line in widget.numbers["lines"]:
            (x0, y0), (x1, y1), (x2, y2) = line["points"]
            x, y = line["at"]
            assert 0 <= x0 < x1 < x2 <= 1 and 0 <= y0 < y1 <= 1 and y1 == pytest.approx(y2)
            on_slope = y0 + (y1 - y0) * (x - x0) / (x1 - x0)
            assert y == pytest.approx(min(on_slope, y2))
    json.dumps(widget.numbers, allow_nan=False)


def test_the_axes_are_in_plain_numbers_and_no_roof_lies_on_the_frame():
    numbers = Roofline(roofs("fp16", devices=["T4", "H100 SXM5 80GB"])).numbers
    assert [text for _, text in numbers["columns"]] == ["0.25", "2", "16", "128", "1024", "8192"]
    assert [text for _, text in numbers["levels"]][-2:] == ["100 TFLOP/s", "1 PFLOP/s"]
    assert all(0 <= share <= 1 for share, _ in numbers["columns"] + numbers["levels"])
    assert max(point[1] for line in numbers["lines"] for point in line["points"]) < 0.96


def test_int8_counts_operations():
    widget = Roofline(roofs("int8", devices=["H100 SXM5 80GB", "GB300 (per GPU)"]))
    # 512: 2 * 512**3 operations, 512**2 * (1 + 1 + 4) bytes
    assert "170.7 operations a byte" in widget.describe()
    assert widget.numbers["rows"][0]["peak"] == "1.98 POP/s"
    assert widget.numbers["axis"] == "arithmetic intensity, operations a byte"


def test_the_page_asks_by_index_and_gets_its_number_back():
    widget = Roofline([A100])
    widget.request = {"seq": 1, "index": 0}
    assert (widget.size, widget.numbers["seq"]) == (32, 1)
    widget.request = {"seq": 2, "index": 99}
    assert (widget.size, widget.numbers["seq"]) == (SIZES[-1], 2)
    assert "ms" in widget.numbers["rows"][0]["time"]


def test_a_matmul_shorter_than_a_launch_lies_below_its_roof():
    widget = Roofline([A100], launch_seconds=5e-6)
    # 1.01 us of moving, and 2 * 512**3 operations in 5 us
    assert "on A100 overhead-bound, at least 5 us" in widget.describe()
    assert widget.numbers["rows"][0]["rate"] == "53.7 TFLOP/s"
    line = widget.numbers["lines"][0]
    (x0, y0), (x1, y1), _ = line["points"]
    x, y = line["at"]
    assert y < y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    widget.size = SIZES[0]
    assert 0 <= widget.numbers["lines"][0]["at"][1] <= 1
    widget.size = 4096
    assert "compute-bound" in widget.describe()


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="0 roofs"):
        Roofline([])
    with pytest.raises(ValueError, match="5 roofs"):
        Roofline([A100] * 5)
    with pytest.raises(ValueError, match="one dtype"):
        Roofline([A100, Roof("A100", "bf16", 312e12, 1555e9)])
    with pytest.raises(ValueError, match="launch_seconds"):
        Roofline([A100], launch_seconds=-1.0)
    with pytest.raises(TraitError):
        Roofline([A100]).size = 100
