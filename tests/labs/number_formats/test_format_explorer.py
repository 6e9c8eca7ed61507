"""FormatExplorer without a browser: traits in, traits out, and the words of its text twin."""

import json
import math
import time
from fractions import Fraction

import pytest
from traitlets import TraitError

from labkit.formats import (
    BF16,
    E4M3,
    E8M0,
    FORMATS,
    FP16,
    FP32,
    FP64,
    ROUNDINGS,
    FloatFormat,
    decode,
    encode,
)
from labkit.formats.written_numbers import read_number
from labkit.labs.number_formats.exact_numbers import rounded_to_odd, short
from labkit.labs.number_formats.look import height, next_code, typed
from labkit.labs.number_formats.widget_format_explorer import MAX_BITS, FormatExplorer

SHOWN = [fmt for fmt in FORMATS.values() if fmt.bits <= MAX_BITS]


def ask(explorer: FormatExplorer, **wanted) -> dict:
    """What the page does: a request one number higher than the last answer."""
    seq = explorer.numbers["seq"] + 1
    explorer.request = {"seq": seq, "format_name": explorer.format_name, **wanted}
    return explorer.numbers


def rows(explorer: FormatExplorer, table: str) -> dict[str, dict]:
    return {row["name"]: row for row in explorer.numbers[table]}


# ---------------------------------------------------------------- typed numbers


@pytest.mark.parametrize("text", ["1 GB", "0.1 %", "2x", "16 bits"])
def test_a_unit_is_refused_by_name(text):
    unit = read_number(text).unit
    with pytest.raises(ValueError, match=f"is in {unit}; a format holds bare numbers"):
        typed(text)


@pytest.mark.parametrize("text", ["2**-4000", "1e4096", "-(9**4096)", "0x1p-4096", "9" * 400])
def test_a_number_far_beyond_every_format_is_shown_within_a_second(text):
    started = time.process_time()
    explorer = FormatExplorer(FP16, text)
    assert time.process_time() - started < 1
    x = typed(text)
    assert explorer.numbers["exact"] == ("0" if abs(x) < 1 else "inf" if x > 0 else "-inf")


def test_rounding_to_odd_never_lands_on_a_tie_that_x_is_not():
    tie = Fraction(1) + Fraction(1, 2**11)  # between 1 and 1 + 2**-10 in fp16
    hair = Fraction(1, 10**40)
    for x in (tie - hair, tie + hair):
        assert float(x) == tie  # float64 alone would make a tie of it
        assert (rounded_to_odd(x) > tie) == (x > tie)
    assert rounded_to_odd(tie) == tie
    assert rounded_to_odd(Fraction(10) ** 400) == math.nextafter(math.inf, 0)
    assert rounded_to_odd(Fraction(-1, 10**400)) == -5e-324


def test_short_says_when_digits_were_cut():
    assert short(Fraction(1, 3), 4) == "≈ 0.3333"
    assert short(0.5) == "0.5"
    assert short(-0.0) == "-0"


# ---------------------------------------------------------------- codes


@pytest.mark.parametrize("fmt", SHOWN, ids=lambda fmt: fmt.name)
def test_every_step_goes_to_the_next_value_and_ends_where_the_line_ends(fmt):
    if fmt.bits > 8:
        codes = [encode(x, fmt) for x in (0.0, -0.0, fmt.smallest_subnormal, 1.0, 2.0, -1.0)]
        codes += [encode(fmt.max, fmt), encode(-fmt.max, fmt), encode(math.inf, fmt)]
    else:
        codes = range(1 << fmt.bits)
    for code in codes:
        value = decode(code, fmt)
        for direction in (-1, 1):
            to = next_code(code, fmt, direction)
            if to is None:
                end = math.inf if fmt.has_inf else fmt.max
                low = -end if fmt.signed else fmt.smallest_normal
                assert math.isnan(value) or value == (end if direction > 0 else low)
                continue
            other = decode(to, fmt)
            assert (height(other, fmt) - height(value, fmt)) * direction > 0
            if not (value == 0 or other == 0):
                assert next_code(to, fmt, -direction) == code


@pytest.mark.parametrize("fmt", SHOWN, ids=lambda fmt: fmt.name)
def test_every_format_opens_and_shows_its_own_value(fmt):
    explorer = FormatExplorer(fmt, "1.25")
    shown = explorer.numbers
    assert shown["format_name"] == explorer.format_name == fmt.name
    assert Fraction(shown["exact"]) == decode(explorer.code, fmt)
    assert len(shown["layout"]["bits"]) == fmt.bits
    assert rows(explorer, "rows")[fmt.name]["hex"] == shown["hex"]
    assert [row["name"] for row in shown["rows"] if row["current"]] == [fmt.name]
    assert json.loads(json.dumps(shown)) == shown


@pytest.mark.parametrize("name", ["e2m1", "e4m3"])
def test_every_code_shows_its_exact_value_fields_and_kind(name):
    fmt = FORMATS[name]
    explorer = FormatExplorer(fmt)
    for code in range(1 << fmt.bits):
        explorer.code = code
        shown, value = explorer.numbers, decode(code, fmt)
        assert shown["code"] == code
        assert int(shown["hex"], 16) == code
        if math.isnan(value):
            assert (shown["kind"], shown["exact"], shown["line"]) == ("NaN", "nan", None)
            continue
        assert float(shown["exact"]) == value
        assert math.copysign(1, float(shown["exact"])) == math.copysign(1, value)
        mantissa, count = (int(part) for part in shown["field_values"][2].split("/"))
        exponent = int(shown["field_values"][1].split("= ")[1].replace("−", "-"))
        lead = shown["kind"] == "normal"
        assert abs(value) == (lead + mantissa / count) * 2.0**exponent
        assert (shown["kind"] == "subnormal") == (0 < abs(value) < fmt.smallest_normal)


def test_a_nan_keeps_its_payload_and_does_not_move():
    explorer = FormatExplorer(FP16)
    explorer.code = 0x7D55
    assert explorer.code == 0x7D55
    assert explorer.numbers["moves"] == {"halve": None, "double": None, "negate": None}
    assert next_code(0x7D55, FP16, 1) is None


# ---------------------------------------------------------------- traits in, traits out


def test_a_typed_text_sets_the_code():
    explorer = FormatExplorer(FP16, 1.0)
    explorer.text = "65519.99"
    assert (explorer.code, explorer.numbers["exact"]) == (0x7BFF, "65504")
    explorer.text = "65520"
    assert (explorer.code, explorer.numbers["exact"]) == (0x7C00, "inf")


def test_a_code_sets_the_text_to_an_exact_number():
    explorer = FormatExplorer(FP32, 1.0)
    for code in (1, 0x3F800001, 0x3DCCCCCD, 0x7F7FFFFF, 0x80000000):
        explorer.code = code
        assert typed(explorer.text) == decode(code, FP32)
    assert explorer.text == "-0"


def test_another_format_keeps_x():
    explorer = FormatExplorer(FP16, "0.1")
    explorer.format_name = "bf16"
    assert explorer.text == "0.1"
    assert explorer.code == encode(0.1, BF16)
    explorer.format_name = "fp16"
    assert explorer.code == encode(0.1, FP16)


def test_the_page_asks_by_code_by_text_and_by_format():
    explorer = FormatExplorer(FP16, 1.0)
    shown = ask(explorer, source={"code": 0x3C01, "format_name": "fp16"})
    assert (shown["seq"], shown["code"], explorer.text) == (1, 0x3C01, "1.0009765625")
    shown = ask(explorer, source={"text": "1/3"})
    assert (shown["seq"], explorer.code) == (2, 0x3555)
    # Two keys at once: a step in fp16 and then another format. x is where the step ended.
    shown = ask(explorer, format_name="bf16", source={"code": 0x3C01, "format_name": "fp16"})
    assert (shown["text"], shown["format_name"]) == ("1.0009765625", "bf16")
    assert explorer.code == encode(1.0009765625, BF16)


@pytest.mark.parametrize(
    ("fmt", "text", "sentence"),
    [("fp16", "abc", "no number here"), ("e2m1", "nan", "no NaN"), ("e8m0", "-1", "no sign")],
)
def test_a_bad_entry_gives_a_sentence_and_keeps_the_last_value(fmt, text, sentence):
    explorer = FormatExplorer(FORMATS[fmt], "2")
    before = explorer.code, explorer.text
    shown = ask(explorer, source={"text": text})
    assert sentence in shown["message"]
    assert (explorer.code, explorer.text) == before
    assert shown["seq"] == 1
    assert ask(explorer, source={"text": "4"})["message"] == ""


def test_a_format_without_a_code_for_x_is_refused():
    explorer = FormatExplorer(FP16, "nan")
    shown = ask(explorer, format_name="e2m1", source={"text": "nan"})
    assert "no NaN" in shown["message"]
    assert explorer.format_name == shown["format_name"] == "fp16"


@pytest.mark.parametrize(
    ("trait", "value", "sentence"),
    [
        ("text", "abc", "no number here"),
        ("code", 1 << 16, "code must be from 0 to 65535"),
        ("code", -1, "got -1"),
        ("format_name", "fp64", "format_name must be one of"),
    ],
)
def test_python_is_refused_what_is_not_possible(trait, value, sentence):
    explorer = FormatExplorer(FP16, "0.1")
    before = explorer.describe()
    with pytest.raises(TraitError, match=sentence):
        setattr(explorer, trait, value)
    assert explorer.describe() == before


def test_a_format_that_is_too_wide_or_none_is_refused():
    with pytest.raises(ValueError, match="at most 32 bits, got fp64: 64"):
        FormatExplorer(FP64)
    with pytest.raises(TypeError, match="must be a FloatFormat"):
        FormatExplorer("fp16")


def test_a_format_of_ones_own_is_shown_beside_the_others():
    mine = FloatFormat("mine", exponent_bits=3, mantissa_bits=3, specials="none")
    explorer = FormatExplorer(mine, "3.3")
    assert explorer.formats[-1][0] == "mine"
    assert rows(explorer, "rows")["mine"]["value"] == "3.25"


def test_moves_are_the_codes_of_half_double_and_negative():
    explorer = FormatExplorer(E4M3, "448")
    nan = encode(math.nan, E4M3)
    moves = {"halve": encode(224.0, E4M3), "double": nan, "negate": encode(-448.0, E4M3)}
    assert explorer.numbers["moves"] == moves
    explorer = FormatExplorer(E8M0, "1")
    assert explorer.numbers["moves"]["negate"] is None
    assert explorer.numbers["refusals"]["negate"] == "e8m0 has no sign."


# ---------------------------------------------------------------- the tables


def test_one_value_in_every_format():
    table = rows(FormatExplorer(FP16, "70000"), "rows")
    assert list(table) == list(FORMATS)
    assert table["fp16"]["note"] == "overflow: inf"
    assert table["e4m3"]["note"] == "overflow: NaN"
    assert table["e2m1"]["note"] == "overflow: stays at max"
    assert table["fp32"]["note"] == "exact"
    assert (table["bf16"]["value"], table["bf16"]["relative"]) == ("70144", "+0.002057")
    assert table["bf16"]["ulps"] == "+0.2812"  # 144 of a gap of 512

    table = rows(FormatExplorer(FP16, "1e-8"), "rows")
    assert (table["fp16"]["value"], table["fp16"]["note"]) == ("0", "underflow: 0")
    assert table["e8m0"]["note"].startswith("rounded")
    table = rows(FormatExplorer(FP16, "1e-45"), "rows")
    assert table["fp32"]["note"] == "rounded up; subnormal, 1 significant bit"
    assert table["e8m0"]["note"] == "underflow: no zero here"


def test_every_rounding_of_a_tie():
    table = rows(FormatExplorer(FP16, "2049"), "modes")
    values = {name: table[name]["value"] for name in ROUNDINGS if name != "stochastic"}
    assert values == {
        "nearest_even": "2048",
        "nearest_away": "2050",
        "toward_zero": "2048",
        "up": "2050",
        "down": "2048",
    }
    assert [name for name in table if name.startswith("stochastic")] == ["stochastic, 50 %"]
    chances = FormatExplorer(FP16, "2049").numbers["modes"][-2:]
    assert [row["value"] for row in chances] == ["2048", "2050"]


def test_stochastic_chances_are_exact_and_negative_values_round_away_downwards():
    chances = FormatExplorer(FP16, "-2048.5").numbers["modes"][-2:]
    assert [(row["name"], row["value"]) for row in chances] == [
        ("stochastic, 75 %", "-2048"),
        ("stochastic, 25 %", "-2050"),
    ]
    assert [row["name"] for row in FormatExplorer(FP16, "1").numbers["modes"]][-1] == (
        "stochastic, 100 %"
    )


def test_a_hair_beside_a_tie_is_not_a_tie():
    hair = "1.00048828125" + "0" * 40 + "1"
    explorer = FormatExplorer(FP16, hair)
    assert explorer.code == 0x3C01
    notes = " ".join(explorer.numbers["notes"])
    assert "kept exactly as typed" in notes
    assert "fp16 would get 1: rounded twice" in notes


def test_a_number_says_what_it_needs():
    def note(text):
        return " ".join(FormatExplorer(FP16, text).numbers["notes"])

    assert note("0.5") == ""
    just_above_one = "1.0000000000009094947017729282379150390625"  # 1 + 2**-40
    assert note(just_above_one) == "x needs float64: float32 does not hold it."
    assert "0.1000000000000000055511151231257827" in note("0.1")


# ---------------------------------------------------------------- the line


def test_neighbours_gaps_and_midpoints_where_the_gap_changes():
    shown = FormatExplorer(FP16, "1").numbers
    assert [(part["title"], part["value"]) for part in shown["legend"]] == [
        ("next below", "0.99951171875"),
        ("midpoint below", "0.999755859375"),
        ("value", "1"),
        ("midpoint above", "1.00048828125"),
        ("next above", "1.0009765625"),
    ]
    assert (shown["line"]["gap_below"], shown["line"]["gap_above"]) == ("2⁻¹¹", "2⁻¹⁰")
    assert shown["line"]["x_part"] is None


def test_the_place_of_x_between_the_neighbours():
    assert FormatExplorer(FP16, "2048.5").numbers["line"]["x_part"] == 0.25
    assert FormatExplorer(FP16, "2047.5").numbers["line"]["x_part"] == -0.5  # tie to 2048
    assert FormatExplorer(FP16, "65519.99").numbers["line"]["x_part"] == 0.4996875
    assert FormatExplorer(E4M3, "-460").numbers["line"]["x_part"] == -0.375  # past max
    assert FormatExplorer(E8M0, "1e-40").numbers["line"]["x_part"] is None  # below the smallest
    assert FormatExplorer(FORMATS["e2m1"], "100").numbers["line"]["x_part"] is None


def test_the_ends_of_the_line_say_what_lies_beyond():
    legend = FormatExplorer(FP16, "inf").numbers["legend"]
    assert legend[-1]["value"] == "none"
    assert legend[1]["value"] == "65520"
    assert FormatExplorer(E4M3, "448").numbers["legend"][-1]["detail"] == "NaN past 464"
    assert FormatExplorer(E4M3, "-448").numbers["legend"][0]["detail"] == "NaN past -464"
    assert FormatExplorer(E8M0, "1e-40").numbers["legend"][0]["detail"] == "no zero"


# ---------------------------------------------------------------- in words


def test_describe_says_what_the_picture_shows():
    explorer = FormatExplorer(FP16, "0.1")
    text, shown = explorer.describe(), explorer.numbers
    assert text.splitlines()[0] == "fp16, x = 0.1: 0.0999755859375 (normal, code 0x2E66)"
    assert "  exponent, 5 bits   01011       11 − 15 = −4" in text
    assert shown["line_sentence"] in text
    words = [part["value"] for part in shown["legend"]] + shown["notes"]
    for row in [*shown["rows"], *shown["modes"]]:
        words += [row[key] for key in ("name", "value", "hex", "ulps", "relative", "note")]
    assert all(word in text for word in words)


def test_repr_and_the_notebook_show_the_words_in_full_and_no_address():
    explorer = FormatExplorer(FP16, "0.1")
    data, _ = explorer._repr_mimebundle_()
    assert repr(explorer) == data["text/plain"] == explorer.describe()
    assert len(repr(explorer)) > 1000  # ipywidgets cuts at 110 characters
    assert repr(explorer) == repr(FormatExplorer(FP16, "0.1"))


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "0", "-0", "1e400", "-1e-400"])
def test_extremes_have_words_too(text):
    for fmt in SHOWN:
        try:
            explorer = FormatExplorer(fmt, text)
        except ValueError as problem:
            assert "no NaN" in str(problem) or "no sign" in str(problem)
        else:
            assert explorer.describe().startswith(f"{fmt.name}, x = {text}")


def test_the_page_is_told_the_numbers_when_the_widget_is_made(monkeypatch):
    opened = []
    monkeypatch.setattr(FormatExplorer, "open", lambda self: opened.append(self.get_state()))
    explorer = FormatExplorer(FP16, "0.1")
    assert opened[0]["numbers"] == explorer.numbers
    assert opened[0]["numbers"]["exact"] == "0.0999755859375"
