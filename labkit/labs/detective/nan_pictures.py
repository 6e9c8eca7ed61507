"""The small pictures of the NaN detective, ready to be drawn: places in percent, labels as text.

Each function takes the plain data of a ``instruments.Reading`` and returns where to draw;
from the left and from the top.
"""

from typing import Any

from labkit.labs.texts import LANGUAGES, Text


def drawn(picture: dict, language: str = "en") -> dict:
    """The places of a picture of any kind, and its words in one language."""
    return _in(language, _KINDS[picture["kind"]](picture)) | {"kind": picture["kind"]}


def _in(language: str, data: Any) -> Any:
    """The same plain data, with one language instead of each {"en": ..., "zh": ...}."""
    if isinstance(data, dict):
        if data.keys() == {*LANGUAGES}:
            return data[language]
        return {name: _in(language, value) for name, value in data.items()}
    return [_in(language, value) for value in data] if isinstance(data, list) else data


def _line(picture: dict) -> dict:
    """Curves; a value that is not finite leaves a gap, and a mark at the first one."""
    known = [v for series in picture["series"] for v in series if v is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    high = high if high > low else low + 1
    across = 100 / max(picture["length"] - 1, 1)

    def point(step: int, value: float) -> list[float]:
        return [round(step * across, 1), round(100 * (high - value) / (high - low), 1)]

    curves = []
    for name, series in zip(picture["names"], picture["series"], strict=True):
        gap = next((i for i, v in enumerate(series) if v is None), None)
        curves.append(
            {
                "name": name,
                "points": [None if v is None else point(i, v) for i, v in enumerate(series)],
                "gap": None if gap is None else round(gap * across, 1),
            }
        )
    first = picture["series"][0]
    marks = [point(i, first[i]) for i in picture["marks"] if first[i] is not None]
    return {
        "curves": curves,
        "marks": marks,
        "top": f"{high:.3g}",
        "bottom": f"{low:.3g}",
        "start": _step(0),
        "end": _step(picture["length"] - 1),
    }


def _step(step: int) -> dict[str, str]:
    return Text(en="step {step}", zh="第 {step} 步").filled(step=step).model_dump()


def _bars(picture: dict) -> dict:
    """Spans over powers of two, one row a layer, with upright lines at the ends of FP16."""
    low, high = -34.0, 20.0
    if all(row["span"] and row["span"][0] == -6 for row in picture["rows"]):
        low, high = -6.0, 18.0

    def place(exponent: float) -> float:
        return round(100 * (min(max(exponent, low), high) - low) / (high - low), 1)

    return {
        "rows": [
            {
                "label": row["label"],
                "text": row["text"],
                "span": row["span"] and [place(end) for end in row["span"]],
            }
            for row in picture["rows"]
        ],
        "limits": [
            [place(exponent), word] for exponent, word in picture["limits"] if low < exponent < high
        ],
    }


_GAPS = Text(en="2**{top} gaps", zh="2**{top} 个间隔")


def _histogram(picture: dict) -> dict:
    counts, low = picture["counts"], picture["low"]
    top = max(counts) or 1
    step = 100 / len(counts)
    return {
        "bars": [
            [round(i * step, 1), round(step, 1), round(100 * count / top, 1)]
            for i, count in enumerate(counts)
            if count
        ],
        "limit": [round((picture["limit"] - low) * step, 1), picture["word"]],
        "ends": [f"2**{low}", _GAPS.filled(top=low + len(counts)).model_dump()],
    }


def _as_it_is(picture: dict) -> dict:
    return picture


_KINDS = {
    "line": _line,
    "bars": _bars,
    "histogram": _histogram,
    "chain": _as_it_is,
    "digits": _as_it_is,
}
