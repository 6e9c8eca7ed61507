"""What there is to see of one number in a format, as plain data that a page can draw.

``picture`` says everything about a ``Look``: its fields, its neighbours, every rounding, every
format. ``described_picture`` says the same in words.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from labkit.formats import FP32, ROUNDINGS, FloatFormat, decode, encode, quantize, spacing
from labkit.labs.number_formats.exact_numbers import (
    Exact,
    decimal_in_full,
    is_finite,
    rounded_to_odd,
    short,
)
from labkit.labs.number_formats.look import (
    Look,
    height,
    last_code,
    nearest_float64,
    next_code,
    rounded_exact,
    sign_weight,
)

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _power_of_two(gap: float) -> str:
    """A gap of a format is a power of two: 2⁻¹⁰."""
    return "2" + str(math.frexp(gap)[1] - 1).translate(_SUPERSCRIPTS)


def _hex(code: int, fmt: FloatFormat) -> str:
    return f"0x{code:0{-(-fmt.bits // 4)}X}"


def _kind(value: float, fmt: FloatFormat) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "infinity"
    if value == 0:
        return "zero"
    return "subnormal" if abs(value) < fmt.smallest_normal else "normal"


def _beyond(fmt: FloatFormat) -> str:
    return "inf" if fmt.has_inf else "NaN" if fmt.has_nan else "max"


@lru_cache
def _layout(fmt: FloatFormat) -> dict:
    """What holds for every code of a format: its fields, its bits' names, the ends of its line."""
    e, m = fmt.exponent_bits, fmt.mantissa_bits
    bits = [("sign", "sign bit, 1 means negative")] if fmt.signed else []
    bits += [("exponent", f"exponent bit {i}, weight {2**i}") for i in reversed(range(e))]
    bits += [("mantissa", f"mantissa bit {i}, weight 1/{2 ** (m - i)}") for i in reversed(range(m))]
    counts = [("sign", int(fmt.signed)), ("exponent", e), ("mantissa", m)]
    return {
        "format_name": fmt.name,
        "bits": [{"field": field, "name": name} for field, name in bits],
        "bits_label": f"The {fmt.bits} bits of a {fmt.name} code, highest first",
        "fields": [
            {"field": field, "title": f"{field}, {count} bit{'s' * (count > 1)}"}
            for field, count in counts
            if count
        ],
        "signed": fmt.signed,
        "sign_weight": sign_weight(fmt),
        "negative_zero": fmt.has_negative_zero,
        "has_zero": fmt.has_zero,
        "has_inf": fmt.has_inf,
        "stays_at_max": not (fmt.has_inf or fmt.has_nan),
        "mantissa_bits": m,
        "bias": fmt.bias,
        "k_max": last_code(fmt),
        "k_min": -last_code(fmt) if fmt.signed else 0,
        "beyond_high": f"too large: {_beyond(fmt)}",
        "beyond_low": f"too large: {'-' * fmt.has_inf}{_beyond(fmt)}" if fmt.signed else "no zero",
        "caption": "Computed. Every number in the shaded band rounds to the value ▼. "
        + ("● even and ○ odd codes; a tie goes to the even one." if m else "A tie goes up."),
        "nan_sentence": "NaN is not a number: it has no place on the line.",
    }


def _fields(look: Look) -> tuple[list[str], list[list[str]]]:
    """The value of each field, and the formula as coloured parts."""
    fmt, kind = look.fmt, _kind(look.value, look.fmt)
    m = fmt.mantissa_bits
    field = look.code >> m & ((1 << fmt.exponent_bits) - 1)
    rest = look.code & ((1 << m) - 1)
    minus = fmt.signed and look.code >= sign_weight(fmt)
    if kind in ("NaN", "infinity"):
        exponent, formula = f"{field}: a special code", [["plain", str(look.value)]]
    else:
        leads = field > 0 or not fmt.has_zero
        power = f"{field if leads else 1} − {fmt.bias}"
        exponent = f"{power} = {max(field, int(fmt.has_zero)) - fmt.bias}".replace("-", "−")
        if not leads:
            exponent = f"field 0, so {exponent}"
        formula = [["plain", "(−1)"], ["sign-power", str(int(minus))], ["plain", " × "]]
        formula = formula if fmt.signed else []
        formula += [["plain", "2"], ["exponent-power", power]]
        if m:
            formula += [["plain", " × "], ["mantissa", f"{int(leads)}.{rest:0{m}b}"]]
            formula += [["base", "₂"]]
    values = ["minus" if minus else "plus"] if fmt.signed else []
    values += [exponent]
    values += [f"{rest}/{1 << m}"] if m else []
    return values, formula


def _signed(error: Fraction) -> str:
    text = short(abs(error), 4)
    if not text.endswith(".5"):  # beside a tie "≈" tells 0.49999 from 0.5; elsewhere it is noise
        text = text.removeprefix("≈ ")
    about, sign = "≈ " * text.startswith("≈"), "+" if error > 0 else "-"
    return f"{about}{sign}{text.removeprefix('≈ ')}"


def _error(value: float, x: Exact, fmt: FloatFormat) -> tuple[str, str]:
    """value - x in ulps of x and relative to x, as text; a dash where that means nothing."""
    if not math.isfinite(value) or not is_finite(x) or abs(x) > height(math.inf, fmt):
        return "—", "—"
    off = Fraction(value) - Fraction(x)
    if off == 0:
        return "0", "0"
    units = Fraction(spacing(rounded_to_odd(x), fmt)), abs(Fraction(x))
    texts = [_signed(off / unit) if unit else "—" for unit in units]
    return texts[0], texts[1]


def _what_happened(value: float, x: Exact, fmt: FloatFormat) -> tuple[str, str]:
    """A mark for the style sheet and a note: exact, rounded, under or over."""
    if not is_finite(x) and math.isnan(x):
        return ("exact", "NaN") if fmt.has_nan else ("over", "no NaN in this format")
    if not is_finite(x):
        return ("exact", "exact") if math.isinf(value) else ("over", f"no inf: {_beyond(fmt)}")
    if not fmt.signed and x < 0:
        return "over", "no sign in this format"
    if math.isnan(value) or math.isinf(value):
        return "over", f"overflow: {_beyond(fmt)}"
    if abs(x) > fmt.max and abs(x) - Fraction(fmt.max) > Fraction(spacing(fmt.max, fmt)) / 2:
        return "over", "overflow: stays at max"
    if value == x:
        note, mark = "exact", "exact"
    elif value == 0:
        return "under", "underflow: 0"
    else:
        note, mark = f"rounded {'up' if value > x else 'down'}", "rounded"
        if abs(x) > fmt.max:
            note += " to max"
        if not fmt.has_zero and abs(x) < fmt.smallest_normal:
            return "under", "underflow: no zero here"
    if value and abs(value) < fmt.smallest_normal:
        bits = int(abs(value) / fmt.smallest_subnormal).bit_length()
        note += f"; subnormal, {bits} significant bit{'s' * (bits > 1)}"
    return mark, note


def _row(name: str, value: float, x: Exact, fmt: FloatFormat) -> dict:
    try:
        code = _hex(encode(value, fmt), fmt)
    except ValueError:
        code = "—"
    ulps, relative = _error(value, x, fmt)
    mark, note = _what_happened(value, x, fmt)
    shown = "—" if code == "—" else short(value, 12)
    return {
        "name": name, "value": shown, "hex": code, "ulps": ulps,
        "relative": relative, "note": note, "mark": mark,
    }  # fmt: skip


def _format_rows(look: Look, formats: Sequence[FloatFormat]) -> list[dict]:
    return [
        _row(fmt.name, rounded_exact(look.x, fmt), look.x, fmt) | {"current": fmt == look.fmt}
        for fmt in formats
    ]


def _mode_rows(look: Look) -> list[dict]:
    """A row a deterministic rounding, and one for each value stochastic rounding may give."""
    x, fmt = look.x, look.fmt
    modes = [mode for mode in ROUNDINGS if mode != "stochastic"]
    rows = [_row(mode, rounded_exact(x, fmt, mode), x, fmt) for mode in modes]
    chances = {}
    inner = rounded_exact(x, fmt, "toward_zero")
    outer = rounded_exact(x, fmt, "down" if x < 0 else "up")
    if math.isfinite(inner) and is_finite(x):
        part = abs(Fraction(x) - Fraction(inner)) / Fraction(spacing(rounded_to_odd(x), fmt))
        chances = {inner: 1 - min(part, 1), outer: min(part, 1)}
        if inner == outer:
            chances = {inner: 1}
    for value, chance in (chances or {inner: 1}).items():
        if chance:
            percent = short(Fraction(chance) * 100, 4)
            rows.append(_row(f"stochastic, {percent} %", value, x, fmt))
    return rows


def _notes(look: Look) -> list[str]:
    """What x costs before the format sees it, and whether a stop on the way changes the answer."""
    x, fmt = look.x, look.fmt
    if isinstance(x, float):
        return []
    stored = nearest_float64(x)
    notes = []
    if not math.isfinite(stored) or Fraction(stored) != x:
        notes.append(
            f"x is kept exactly as typed. A Python float would already round it, to "
            f"{decimal_in_full(stored)}."
        )
    elif Fraction(quantize(stored, FP32) if abs(x) <= FP32.max else 0) != x:
        notes.append("x needs float64: float32 does not hold it.")
    if fmt != FP32 and look.value == rounded_exact(x, fmt):
        twice = rounded_exact(rounded_exact(x, FP32), fmt)
        if twice != look.value and not math.isnan(twice):
            notes.append(
                f"By way of float32, as in torch.tensor({look.text}), {fmt.name} would get "
                f"{short(twice)}: rounded twice."
            )
    return notes


def _line(look: Look) -> tuple[dict | None, list[dict], str]:
    """Labels of the number line, its legend in the order of the line, and both in a sentence."""
    fmt, value = look.fmt, look.value
    if math.isnan(value):
        return None, [], _layout(fmt)["nan_sentence"]
    here = height(value, fmt)
    gaps, entries, words = [], {}, []
    for direction, side, sign, end in ((-1, "below", "◀", "low"), (1, "above", "▶", "high")):
        code = next_code(look.code, fmt, direction)
        if code is None:
            gaps.append("")
            beyond = _layout(fmt)[f"beyond_{end}"]
            if fmt.has_nan and not fmt.has_inf and abs(value) == fmt.max:
                edge = (height(math.inf, fmt) + abs(here)) / 2
                beyond = f"NaN past {short(direction * edge)}"
            entries[side] = [{"sign": sign, "title": side, "value": "none", "detail": beyond}]
            words.append(f"nothing {side} ({beyond})")
            continue
        other = decode(code, fmt)
        gap = abs(height(other, fmt) - here)
        gaps.append(_power_of_two(float(gap)))
        entries[side] = [
            {"sign": sign, "title": f"next {side}", "value": short(other, 17),
             "detail": f"{_hex(code, fmt)}, gap {gaps[-1]}"},
            {"sign": "◇", "title": f"midpoint {side}",
             "value": short((height(other, fmt) + here) / 2, 17), "detail": "a tie"},
        ]  # fmt: skip
        words.append(f"{short(other, 17)} {side} (gap {gaps[-1]})")
    parity = (", odd" if look.code % 2 else ", even") * (fmt.mantissa_bits > 0)
    current = {
        "sign": "▼", "title": "value", "value": short(value, 17),
        "detail": _hex(look.code, fmt) + parity,
    }  # fmt: skip
    legend = [*entries["below"], current, *reversed(entries["above"])]
    sentence = f"Number line of {fmt.name}: {short(value, 17)}, with {words[0]} and {words[1]}."
    part = None
    if is_finite(look.x) and look.x != here:
        side = 1 if look.x > here else -1
        code = next_code(look.code, fmt, side)
        # Past max without inf the line goes on by one more gap: there rounding leaves the format.
        edge = height(side * math.inf, fmt) if fmt.has_zero else here
        gap = abs((edge if code is None else height(decode(code, fmt), fmt)) - here)
        if gap and abs(look.x - here) <= gap:
            part = float((Fraction(look.x) - here) / gap)
            sentence += f" x = {look.text} lies {short(abs(part), 4)} gaps "
            sentence += f"{'above' if part > 0 else 'below'} the value."
    label = f"x = {look.text}" if len(look.text) <= 16 else "x"
    line = {"here": short(value, 12), "gap_below": gaps[0], "gap_above": gaps[1],
            "x_part": part, "x_label": label}  # fmt: skip
    return line, legend, sentence


def _moves(look: Look) -> tuple[dict, dict]:
    """The codes that ÷ 2, × 2 and negate lead to, or None with the reason."""
    fmt, value = look.fmt, look.value
    codes, refusals = {}, {}
    for name, result in (("halve", value / 2), ("double", value * 2), ("negate", -value)):
        codes[name] = None
        if math.isnan(value):
            refusals[name] = "NaN stays NaN under every operation."
        elif result < 0 and not fmt.signed:
            refusals[name] = f"{fmt.name} has no sign."
        else:
            codes[name] = encode(result, fmt)
    return codes, refusals


def picture(look: Look, formats: Sequence[FloatFormat]) -> dict:
    """All that the widget shows, as plain JSON data: every number in it is final text."""
    field_values, formula = _fields(look)
    line, legend, sentence = _line(look)
    moves, refusals = _moves(look)
    kind = _kind(look.value, look.fmt)
    code = _hex(look.code, look.fmt)
    return {
        "format_name": look.fmt.name,
        "code": look.code,
        "text": look.text,
        "layout": _layout(look.fmt),
        "field_values": field_values,
        "formula": formula,
        "kind": kind,
        "hex": code,
        "exact": decimal_in_full(look.value),
        "line": line,
        "legend": legend,
        "line_sentence": sentence,
        "notes": _notes(look),
        "moves": moves,
        "refusals": refusals,
        "modes_title": f"x = {look.text} in {look.fmt.name}, every rounding",
        "modes": _mode_rows(look),
        "rows_title": f"x = {look.text} in every format, to nearest even",
        "rows": _format_rows(look, formats),
        "spoken": f"{look.fmt.name}: {short(look.value, 17)}, {kind}, code {code}",
    }


# ---------------------------------------------------------------- the same in words


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = [[text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in rows]
    return ["  " + "  ".join(row).rstrip() for row in cells]


def described_picture(shown: dict) -> str:
    """A picture in words, table for table; the marks of the line are named, not drawn."""
    layout = shown["layout"]
    code = iter(f"{shown['code']:0{len(layout['bits'])}b}")
    fields = [
        (
            part["title"],
            "".join(next(code) for each in layout["bits"] if each["field"] == part["field"]),
            value,
        )
        for part, value in zip(layout["fields"], shown["field_values"], strict=True)
    ]
    formula = "".join(
        f"^({text})" if part.endswith("power") else "" if part == "base" else text
        for part, text in shown["formula"]
    )
    keys = ("name", "value", "hex", "ulps", "relative", "note")
    titles = ("", "value", "code", "ulps", "relative", "")
    tables = []
    for title, rows in (("modes_title", shown["modes"]), ("rows_title", shown["rows"])):
        tables += ["", shown[title]]
        tables += _aligned([titles, *([row[key] for key in keys] for row in rows)])
    lines = [
        f"{shown['format_name']}, x = {shown['text']}: {shown['exact']} "
        f"({shown['kind']}, code {shown['hex']})",
        *_aligned(fields),
        f"  {formula}" + " (mantissa in binary)" * ("mantissa" in dict(shown["formula"])),
        shown["line_sentence"],
        *_aligned([(part["title"], part["value"], part["detail"]) for part in shown["legend"]]),
        *shown["notes"],
        *tables,
    ]
    return "\n".join(lines)
