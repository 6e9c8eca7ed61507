"""DtypeMap: paint each value of a training step fp16 or fp32, then run the step and compare.

The recorded dtypes stay in Python until they are asked for: the page gets names and what is
painted, and only after ``run`` do ``numbers`` hold what the step recorded.
"""

from collections.abc import Sequence
from pathlib import Path

import traitlets

from labkit.labs.automatic_mixed_precision.dtype_map import PHASES, Edge
from labkit.labs.engine.described import AskingWidget


class DtypeMap(AskingWidget):
    """The values of one step in rows: what forward makes, and beside it its gradient.

    ``edges`` come from ``dtype_map``. Two traits can be read and observed: ``painted`` (a
    dtype or "" for each edge) and ``ran``. ``paint(name, dtype)`` paints as a press does, ``run()``
    shows the truth, ``clear()`` begins again. Raises ValueError for an empty list of edges, an
    unknown edge or a dtype that is not in ``paints``.
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    painted = traitlets.List(read_only=True)
    ran = traitlets.Bool(read_only=True)
    paints = traitlets.List().tag(sync=True)

    def __init__(self, edges: Sequence[Edge]) -> None:
        self.edges = tuple(edges)
        if not self.edges:
            raise ValueError(
                "edges is empty: record a step with record_step of the module dtype_map"
            )
        low = sorted({edge.dtype for edge in self.edges} - {"fp32"})
        super().__init__(paints=[*(low or ["fp16"]), "fp32"])
        self._begin()

    def paint(self, name: str, dtype: str) -> None:
        """Paint one edge, named as in its row; "" takes the paint off."""
        places = [i for i, edge in enumerate(self.edges) if edge.name == name]
        if not places:
            raise ValueError(f"no edge {name!r}: use one of {[edge.name for edge in self.edges]}")
        self._paint(places[0], dtype)
        self._show()

    def run(self) -> None:
        """Show what the step recorded beside what is painted."""
        self.set_trait("ran", True)
        self._show()

    def clear(self) -> None:
        """Take off all paint, and hide the truth."""
        self._begin()

    def _begin(self) -> None:
        self.set_trait("painted", [""] * len(self.edges))
        self.set_trait("ran", False)
        self._show()

    def _paint(self, place: int, dtype: str) -> None:
        if dtype not in ("", *self.paints):
            raise ValueError(f"dtype must be one of {self.paints} or '', got {dtype!r}")
        painted = list(self.painted)
        painted[place] = dtype
        self.set_trait("painted", painted)

    def _do(self, asked: dict) -> None:
        """Take over what the page shows: {seq, painted, ran}, whole, for requests may be merged."""
        for place, dtype in enumerate(asked["painted"]):
            self._paint(place, dtype)
        self.set_trait("ran", asked["ran"])

    def _numbers(self) -> dict:
        return {
            "ran": self.ran,
            "cells": [self._cell(place) for place in range(len(self.edges))],
            "rows": _rows(self.edges),
            "score": self._score(),
            "sentence": self._words(),
        }

    def _cell(self, place: int) -> dict:
        """What the page knows of one edge; the truth only after a run."""
        edge, paint = self.edges[place], self.painted[place]
        verdict = ""
        if self.ran:
            verdict = "open" if not paint else "right" if paint == edge.dtype else "wrong"
        truth = edge.dtype if self.ran else ""
        spoken = f"{edge.name}, {edge.said}: {paint or 'not painted'}"
        if self.ran:
            spoken += f", {verdict}, it is {truth}" if verdict == "wrong" else f", it is {truth}"
        return {
            "name": edge.name,
            "said": edge.said,
            "paint": paint,
            "verdict": verdict,
            "truth": truth,
            "spoken": spoken,
        }

    def _score(self) -> str:
        count = sum(paint != "" for paint in self.painted)
        if not self.ran:
            return f"{count} of {len(self.edges)} painted."
        pairs = zip(self.painted, self.edges, strict=True)
        right = sum(paint == edge.dtype for paint, edge in pairs)
        return f"{right} of {count} painted edges are right; the step has {len(self.edges)}."

    def _words(self) -> str:
        said = ["The dtypes of one training step.", self._score()]
        for phase in PHASES:
            names = []
            for edge, paint in zip(self.edges, self.painted, strict=True):
                if edge.phase != phase:
                    continue
                shown = paint or "?"
                if self.ran:
                    wrong = f", painted {paint}" if paint and paint != edge.dtype else ""
                    shown = edge.dtype + wrong
                names.append(f"{edge.name} {shown}")
            said.append(f"{phase.capitalize()}: {'; '.join(names)}.")
        return "\n".join(said)


def _rows(edges: tuple[Edge, ...]) -> list[dict]:
    """A row for each value: its title, its edge, and the edge of its gradient (or None)."""
    gradients = {edge.name: i for i, edge in enumerate(edges) if edge.phase == "backward"}
    rows = []
    for place, edge in enumerate(edges):
        if edge.phase == "backward":
            continue
        gradient = gradients.get(f"gradient of {edge.name.removeprefix('after ')}")
        row = {"phase": edge.phase, "title": edge.name, "said": edge.said}
        rows.append(row | {"forward": place, "backward": gradient})
    return rows
