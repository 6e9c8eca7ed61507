"""DtypeMap: a transformer block drawn with the dtype of each value, to be walked through.

Python says what the kernels read and gave, moment by moment; the page draws the block and marks
where the walk stands.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import traitlets

from labkit.labs.automatic_mixed_precision.dtype_map import Operation
from labkit.labs.engine.described import AskingWidget

_REASONS = {
    "layer norm": "layer_norm is on the FP32 list.",
    "linear": "linear is on the 16-bit list.",
    "attention": "scaled_dot_product_attention is on the 16-bit list.",
    "gelu": "gelu is on no list, so it keeps the dtype of its input.",
    "add": "+ is on no list. It adds the block's input, which is fp32, so the sum is fp32.",
}


class DtypeMap(AskingWidget):
    """A block's step, forward and backward, with every cast.

    ``records`` maps a name such as "FP16" to what ``record_block`` gave. Two traits can be read and
    observed: ``dtype``, the record that is drawn, and ``at``, the moment of the walk, from 0.
    ``choose(dtype)`` and ``go(at)`` do what the page does. Raises ValueError for no records, an
    unknown name and a moment that the walk does not have.
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    dtype = traitlets.Unicode(read_only=True)
    at = traitlets.Int(read_only=True)

    def __init__(self, records: Mapping[str, Sequence[Operation]]) -> None:
        if not records:
            raise ValueError("records is empty: pass such as {'FP16': record_block()}")
        super().__init__()
        self.records = {name: tuple(operations) for name, operations in records.items()}
        self.choose(next(iter(self.records)))

    def choose(self, dtype: str) -> None:
        """Draw another record, from its first moment."""
        if dtype not in self.records:
            raise ValueError(f"no record {dtype!r}: choose one of {', '.join(self.records)}")
        self.set_trait("dtype", dtype)
        self.go(0)

    def go(self, at: int) -> None:
        """Stand at a moment of the walk."""
        last = len(self._moments()) - 1
        if not 0 <= at <= last:
            raise ValueError(f"moment {at}: this walk has moments 0 to {last}")
        self.set_trait("at", at)
        self._show()

    def _do(self, asked: dict) -> None:
        """Take over what the page shows: {seq, dtype, at}."""
        if asked["dtype"] != self.dtype:
            self.choose(asked["dtype"])
        self.go(min(asked["at"], len(self._moments()) - 1))

    def _moments(self) -> list[dict]:
        return walk(self.records[self.dtype])

    def _numbers(self) -> dict:
        moments = self._moments()
        said = f"{self.at + 1} of {len(moments)}: {moments[self.at]['text']}"
        return {
            "dtypes": list(self.records),
            "dtype": self.dtype,
            "rows": [asdict(operation) for operation in self.records[self.dtype]],
            "moments": moments,
            "at": self.at,
            "said": said,
            "sentence": self._words(said),
        }

    def _words(self, said: str) -> str:
        lines = [f"A transformer block in {self.dtype}.", *map(_in_words, self._operations()), said]
        return "\n".join(lines)

    def _operations(self) -> tuple[Operation, ...]:
        return self.records[self.dtype]


def walk(operations: Sequence[Operation]) -> list[dict]:
    """What happens in the step, moment by moment: {row, part, text}, forward and then backward."""
    moments = []

    def happens(row: int, part: str, text: str) -> None:
        moments.append({"row": row, "part": part, "text": text})

    autocast = any(op.gives != "fp32" for op in operations)
    came = "fp32"  # the embeddings
    for row, op in enumerate(operations):
        if not op.name.startswith("add") and op.reads != came:
            text = f"Cast: autocast casts the {came} input of {op.name} to {op.reads}."
            happens(row, "cast", text)
        if op.copy != op.weight:
            text = f"Cast: the {op.weight} weight of {op.name} is copied to {op.copy}."
            happens(row, "copy", text)
        why = f" {_reason(op)}" if autocast else ""
        happens(row, "forward", f"Forward: {op.name} gives {op.gives}.{why}")
        came = op.gives
    came = operations[-1].gives
    for row, op in reversed(list(enumerate(operations))):
        if op.gradient != came:
            happens(row, "cast-back", f"Cast: {op.name} gave {op.gives}, so its gradient is "
                    f"cast from {came} to {op.gradient}.")  # fmt: skip
        handed = "is handed on" if op.name.startswith("add") else "is read"
        happens(row, "backward", f"Backward: the gradient of {op.name} {handed} in {op.gradient}.")
        if op.weight_gradient:
            cast = "" if op.grad == op.weight_gradient else f", then cast to {op.grad} for .grad"
            happens(row, "weight", f"Backward: the weight gradient of {op.name} is computed in "
                    f"{op.weight_gradient}{cast}.")  # fmt: skip
        came = op.passes
    return moments


def _reason(op: Operation) -> str:
    return next(reason for name, reason in _REASONS.items() if op.name.startswith(name))


def _in_words(op: Operation) -> str:
    words = f"{op.name}: reads {op.reads}, gives {op.gives}"
    if op.weight:
        words += f", weight {op.weight} read as {op.copy}"
    words += f"; backward reads {op.gradient}"
    if op.weight_gradient:
        words += f", weight gradient {op.weight_gradient}, .grad {op.grad}"
    return words + "."
