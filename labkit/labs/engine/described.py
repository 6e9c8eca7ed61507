"""The two bases of every widget of the course: one says what it shows, one answers its page too.

The words are what ``print`` shows, what a plain notebook shows instead of the picture, and what
nbval compares: a default repr would hold an address.
"""

from typing import Any

import anywidget
import traitlets


class DescribedWidget(anywidget.AnyWidget):
    """Base of the course's widgets; each says in ``describe()`` what it shows."""

    def describe(self) -> str:
        """Say in words all that the picture shows; also what print and a plain notebook show."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.describe()

    def _repr_mimebundle_(self, **selected: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        # anywidget has none for a widget without a view.
        data, metadata = super()._repr_mimebundle_(**selected) or ({}, {})
        return data | {"text/plain": self.describe()}, metadata  # anywidget cuts it short


class AskingWidget(DescribedWidget):
    """A widget whose page asks by ``request`` and draws ``numbers``, Python's answer.

    The page numbers its requests: ``request`` is {"seq": 3, ...}, and the answer to it carries the
    same ``seq``, so that the page (``wire`` in elements.js) tells a late answer from the newest.
    A subclass writes ``_numbers``, which says all that is drawn, as plain data, and ``_do``, which
    does what a request asks; it calls ``_show()`` after every change of its own.
    """

    request = traitlets.Dict().tag(sync=True)
    numbers = traitlets.Dict().tag(sync=True)

    _answering = False

    def _numbers(self) -> dict[str, Any]:
        """All that the page draws; its ``sentence`` is what ``describe()`` says."""
        raise NotImplementedError

    def _do(self, asked: dict[str, Any]) -> None:
        """Do what the page asks."""
        raise NotImplementedError

    def describe(self) -> str:
        """Say in words all that the picture shows; also what print and a plain notebook show."""
        return self.numbers["sentence"]

    def _show(self) -> None:
        if not self._answering:
            self.numbers = self._numbers() | {"seq": self.numbers.get("seq", 0)}

    @traitlets.observe("request")
    def _answer(self, change: dict[str, Any]) -> None:
        # One answer a request: what changes on the way is shown with the rest, at its end.
        self._answering = True
        try:
            self._do(change["new"])
        finally:
            self._answering = False
        self.numbers = self._numbers() | {"seq": change["new"]["seq"]}
