"""CallOrder: put the calls of one AMP step in order, and read at each call what it breaks.

Python judges and the page moves the calls: ``call_order.misuses`` says what an order does;
``numbers`` holds the rows as final text. An order may come from running code.
"""

from collections.abc import Sequence
from pathlib import Path

import traitlets

from labkit.labs.automatic_mixed_precision.call_order import CALLS, misuses
from labkit.labs.engine.described import AskingWidget

SHUFFLED = (
    "update",
    "backward",
    "forward",
    "clip",
    "enter autocast",
    "step",
    "scale",
    "exit autocast",
    "zero_grad",
    "unscale_",
)
"""Where an unordered widget begins."""

_WORDS = {"raises": "raises: ", "wrong": "", "style": "works, but "}


class CallOrder(AskingWidget):
    """A list of calls that can be moved, taken out and put back; each row says what goes wrong.

    ``order`` (readable, observable) holds the calls, names of ``call_order.CALLS``; without
    one it begins shuffled. ``move(place, to)``, ``take(place)`` and ``put(call)`` do what the page
    does. Raises ValueError for an unknown call or place.

    >>> order = ["zero_grad", "forward", "scale", "backward", "step", "update"]
    >>> CallOrder(order).numbers["rows"][1]["fault"]
    'runs outside autocast: in float32, and nothing is mixed'
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    order = traitlets.List(read_only=True)

    def __init__(self, order: Sequence[str] = SHUFFLED) -> None:
        misuses(order)  # refuses unknown calls before there is a widget
        super().__init__()
        self._first = list(order)
        self._put_in(self._first)

    def move(self, place: int, to: int) -> None:
        """Move the call at ``place`` so that it stands at ``to``, both from 0."""
        self._put_in(self._moved(place, to))

    def take(self, place: int) -> None:
        """Take the call at ``place`` out of the order."""
        self._put_in(self._without(place))

    def put(self, call: str) -> None:
        """Put a call at the end of the order."""
        misuses([call])
        self._put_in([*self.order, call])

    def _moved(self, place: int, to: int) -> list[str]:
        order = self._without(place)
        if not 0 <= to <= len(order):
            raise ValueError(f"place {to}: this order has places 0 to {len(order)}")
        return [*order[:to], self.order[place], *order[to:]]

    def _without(self, place: int) -> list[str]:
        if not 0 <= place < len(self.order):
            raise ValueError(f"place {place}: this order has places 0 to {len(self.order) - 1}")
        return [call for i, call in enumerate(self.order) if i != place]

    def _do(self, asked: dict) -> None:
        """Take over the page's order: {seq, order}, whole, for requests may be merged."""
        self._put_in(asked["order"])

    def _put_in(self, order: list[str]) -> None:
        self.set_trait("order", list(order))
        self._show()

    def _numbers(self) -> dict:
        order = self.order
        said = {misuse.place: misuse for misuse in misuses(order)}
        rows = []
        for place, call in enumerate(order):
            misuse = said.get(place)
            text = _WORDS[misuse.kind] + misuse.sentence if misuse else ""
            spoken = f"{place + 1} of {len(order)}: {call}" + (f", {text}" if text else "")
            rows.append(
                {
                    "call": call,
                    "kind": misuse.kind if misuse else "",
                    "fault": text,
                    "spoken": spoken,
                }
            )
        return {
            "rows": rows,
            "first": self._first,
            "absent": [call for call in CALLS if call not in order],
            "verdict": _verdict(said.values()),
            "sentence": self._words(rows, _verdict(said.values())),
        }

    @staticmethod
    def _words(rows: list[dict], verdict: str) -> str:
        lines = [
            f"{place}. {row['call']}" + (f"  <- {row['fault']}" if row["fault"] else "")
            for place, row in enumerate(rows, start=1)
        ]
        return "\n".join(["The calls of one step, in order:", *lines, verdict])


def _verdict(said) -> str:
    kinds = [misuse.kind for misuse in said]
    if "raises" in kinds:
        return "This loop raises."
    wrong = kinds.count("wrong")
    if wrong:
        rows = "1 row complains" if wrong == 1 else f"{wrong} rows complain"
        return f"This loop runs, and {rows}."
    return "This loop is right." if "style" not in kinds else "This loop is right, but not neat."
