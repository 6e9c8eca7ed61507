"""FormatExplorer: one number, its bits, its neighbours, and what every format makes of it.

Python computes and the page draws. What there is to see comes from ``format_picture``;
``widget_format_explorer.js`` draws it, moves at once what a key moved, and sends a request.
"""

from pathlib import Path

import traitlets

from labkit.formats import FORMATS, FP16, FloatFormat
from labkit.labs.engine.described import AskingWidget
from labkit.labs.number_formats.format_picture import described_picture, picture
from labkit.labs.number_formats.look import Look, look_at, look_at_code

MAX_BITS = 32
"""Widest code that the widget shows: more buttons than that are no picture."""


class FormatExplorer(AskingWidget):
    """Shows one number in a format: toggle its bits, step by an ulp, type another.

    ``fmt`` is a format of at most 32 bits, of labkit or your own. ``value`` is what to type into
    the field at first: text such as "0.1", "1/3", "0x1p-24", "nan", or a number, read as its
    ``str``. Three traits can be read, set and observed, and follow one another:

    - ``text``: x, the typed number, exact. Setting it rounds x to nearest even;
    - ``code``: the integer code shown. Setting it makes x that code's value;
    - ``format_name``: the format. Setting it keeps x.

    ``numbers`` holds all that is shown, see ``format_picture.picture``. Raises ValueError for a
    format that is too wide and TraitError for a text, code or name that is not possible; the last
    good state stays.

    >>> explorer = FormatExplorer(FP16, "0.1")
    >>> explorer.code, explorer.numbers["exact"]
    (11878, '0.0999755859375')
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    text = traitlets.Unicode()
    code = traitlets.Int()
    format_name = traitlets.Unicode()
    formats = traitlets.List().tag(sync=True)

    def __init__(self, fmt: FloatFormat = FP16, value: str | float = 1.0) -> None:
        if not isinstance(fmt, FloatFormat):
            raise TypeError(f"fmt must be a FloatFormat such as labkit.formats.FP16, got {fmt!r}")
        if fmt.bits > MAX_BITS:
            raise ValueError(f"fmt must have at most {MAX_BITS} bits, got {fmt.name}: {fmt.bits}")
        self._compared = list((FORMATS | {fmt.name: fmt}).values())
        self._shown = {each.name: each for each in self._compared if each.bits <= MAX_BITS}
        self._look, self._message = look_at(str(value), fmt), ""
        # All at once, so that no page ever draws the widget without its numbers.
        super().__init__(
            formats=[[name, _title(each)] for name, each in self._shown.items()],
            format_name=fmt.name,
            code=self._look.code,
            text=self._look.text,
            numbers=self._numbers() | {"seq": 0},
        )

    def _look_again(self, look: Look, message: str = "") -> None:
        self._look, self._message = look, message
        self.format_name, self.code, self.text = look.fmt.name, look.code, look.text
        self._show()

    def _numbers(self) -> dict:
        return picture(self._look, self._compared) | {"message": self._message}

    def _look_for(self, name: str, wanted: object) -> Look:
        """The look that a trait's new value asks for; ValueError where it is not possible."""
        if name == "text":
            return look_at(wanted, self._look.fmt)
        if name == "code":
            return look_at_code(wanted, self._look.fmt)
        if wanted not in self._shown:
            raise ValueError(f"format_name must be one of {list(self._shown)}, got {wanted!r}")
        return look_at(self._look.text, self._shown[wanted])

    @traitlets.validate("text", "code", "format_name")
    def _possible(self, proposal: dict) -> object:
        try:
            self._look_for(proposal["trait"].name, proposal["value"])
        except ValueError as problem:
            raise traitlets.TraitError(str(problem)) from None
        return proposal["value"]

    @traitlets.observe("text", "code", "format_name")
    def _follow(self, change: dict) -> None:
        shown = {"text": self._look.text, "code": self._look.code}
        if change["new"] != shown.get(change["name"], self._look.fmt.name):
            self._look_again(self._look_for(change["name"], change["new"]))

    def _do(self, asked: dict) -> None:
        """Look at what the page asks for: {seq, format_name, source}.

        ``source`` is {"text"} for a typed number, {"code", "format_name"} for one that keys made.
        """
        source, fmt = asked["source"], self._shown[asked["format_name"]]
        look, message = self._look, ""
        try:
            if "code" in source:
                look = look_at_code(source["code"], self._shown[source["format_name"]])
            if "text" in source or look.fmt != fmt:
                look = look_at(source.get("text", look.text), fmt)
        except ValueError as problem:
            message = str(problem)
        self._look_again(look, message)

    def describe(self) -> str:
        """Say in words all that the picture shows; also what print and a plain notebook show."""
        return described_picture(self.numbers)


def _title(fmt: FloatFormat) -> str:
    return f"{fmt.name} ({int(fmt.signed)}·{fmt.exponent_bits}·{fmt.mantissa_bits})"
