"""``Detector``: typed faults of a training run, each reported once, where it begins.

It reads what a loop knows anyway: the record of a step, the loss of a validation, the dtypes in
which matmuls came back. A loss is compared with the median and the MAD of the losses before it, so
one wild value moves neither. A metric that the loop leaves out is a fault of its own, not an
exception in the middle of a run.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from labkit.training import StepRecord

METRICS = ("loss", "grad_norm", "loss_scale", "skipped")

SIGMAS = 8.0
"""A spike lies so many robust standard deviations above the median, 1.4826 MAD each."""
MARGIN = 1.0
"""And so many nats at least: losses of 50 healthy runs, data/emulated/healthy_runs.json, vary by
less."""
SKIPS = 8
"""Skipped steps in a row that are no search for the first scale any more."""
SMALLEST_SCALE = 1.0
"""Where a smaller loss scale is needed, the gradients themselves are beyond FP16's range."""
STALL = 100
"""Steps after which the loss must have fallen by ``LEARNT``."""
LEARNT = 0.02
DIVERGENCE = 0.1
"""Nats by which validations must lie above the best one."""
VALIDATIONS = 3
"""So many in a row: one bad validation is noise."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault that begins.

    Args:
        kind: "missing", "non-finite", "loss spike", "skip streak", "scale collapse", "stall",
            "divergence" or "dtype fallback".
        step: the first step at which it shows.
        evidence: the number that was seen and what it was compared with, as a sentence.
    """

    kind: str
    step: int
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Validation:
    """The mean loss in nats on validation data, after a step; None where it was not computed."""

    step: int
    loss: float | None


@dataclass(frozen=True, kw_only=True)
class Products:
    """The dtypes in which the matmuls of a step came back.

    Args:
        asked: the dtype that the recipe asks for, such as "bfloat16".
        seen: matmuls by the dtype of their output, such as {"bfloat16": 6}.
    """

    step: int
    asked: str
    seen: Mapping[str, int]


class Detector:
    """Watches a run and reports each fault when it begins; while it lasts, nothing more.

    Args:
        window: losses that a loss is compared with.
        margin: nats that a spike lies above their median at least.
        skips: skipped steps in a row that are a fault.
        stall: steps within which the loss must fall by 2 %; None for a run that starts from trained
            weights, whose loss may stand still because it has converged.

    Raises:
        ValueError: a window below 2, ``skips`` below 1, a margin that is not above 0, a ``stall``
            that is no longer than two windows.

    >>> detector = Detector(window=5)
    >>> losses = [2.3, 2.2, 2.2, 2.1, 2.0, 900.0, 2.0]
    >>> steps = [StepRecord(i, loss, 1.0, 1.0, False) for i, loss in enumerate(losses)]
    >>> [(fault.kind, fault.step) for step in steps for fault in detector.see(step)]
    [('loss spike', 5)]
    """

    def __init__(
        self,
        *,
        window: int = 20,
        margin: float = MARGIN,
        skips: int = SKIPS,
        stall: int | None = STALL,
    ) -> None:
        if window < 2 or skips < 1 or not margin > 0:
            raise ValueError(
                f"window={window}, margin={margin}, skips={skips}: a median needs 2 losses, and "
                "margin and skips must be above 0"
            )
        if stall is not None and stall <= 2 * window:
            raise ValueError(f"stall={stall}: pass more than two windows of {window}, or None")
        self.margin, self.skips, self.stall = margin, skips, stall
        self._losses: deque[float] = deque(maxlen=window)
        self._first: float | None = None  # the median of the first full window
        self._best: tuple[float, float] | None = None  # validation loss, training loss beside it
        self._scale: float | None = 1.0  # of the step before
        self._step = -1
        self._taken = self._skipped = self._worse = 0
        self._lasting: set[tuple[str, str]] = set()
        self._new: list[Fault] = []

    def see(
        self, record: StepRecord | Mapping[str, Any] | Validation | Products
    ) -> tuple[Fault, ...]:
        """The faults that begin with this record; for most records none.

        Args:
            record: of a step, with the fields of ``StepRecord`` or as a mapping with their names; a
                field that is not there, or None, is missing. ``Validation`` and ``Products`` come
                after the record of their step, as often as the loop has them.
        """
        self._new = []
        match record:
            case Validation():
                self._see_validation(record)
            case Products():
                self._see_products(record)
            case Mapping():
                self._see_step(record)
            case _:
                self._see_step(vars(record))
        return tuple(self._new)

    def _see_step(self, fields: Mapping[str, Any]) -> None:
        step = fields.get("step")
        self._step = self._step + 1 if step is None else step
        loss, norm, scale, skipped = (fields.get(metric) for metric in METRICS)
        for metric in METRICS:
            absent = fields.get(metric) is None
            self._report("missing", absent, f"the record has no {metric}", of=metric)
        bad_loss = loss is not None and not math.isfinite(loss)
        self._see_finite(bad_loss, loss, norm, scale, bool(skipped))
        self._see_scaler(scale, bool(skipped), bad_loss)
        if loss is not None and not bad_loss:
            self._see_loss(loss, bool(skipped))

    def _see_finite(
        self, bad_loss: bool, loss: float, norm: float | None, scale: float | None, skipped: bool
    ) -> None:
        # A scaler skips steps whose gradients overflow: with a finite loss that is its work.
        # A scale of 1 twice in a row is none, or one that cannot help.
        searching = skipped and (scale != 1.0 or self._scale != 1.0)
        self._scale = scale
        bad_norm = norm is not None and not math.isfinite(norm) and not searching
        what = f"the loss is {loss}" if bad_loss else f"the gradient norm is {norm}"
        self._report("non-finite", bad_loss or bad_norm, what)

    def _see_scaler(self, scale: float | None, skipped: bool, bad_loss: bool) -> None:
        # Steps that a NaN loss skips have their own fault, and no scale would save them.
        self._skipped = self._skipped + 1 if skipped and not bad_loss else 0
        self._report(
            "skip streak",
            self._skipped >= self.skips,
            f"{self._skipped} steps in a row were skipped; {self.skips - 1} are allowed",
        )
        low = scale is not None and scale < SMALLEST_SCALE and not bad_loss
        self._report(
            "scale collapse", low, f"the loss scale is {scale}; {SMALLEST_SCALE:g} is the smallest"
        )

    def _see_loss(self, loss: float, skipped: bool) -> None:
        if len(self._losses) == self._losses.maxlen:
            middle = median(self._losses)
            mad = median(abs(value - middle) for value in self._losses)
            limit = middle + max(SIGMAS * 1.4826 * mad, self.margin)
            said = f"the loss is {loss:.4g}; the {len(self._losses)} before allow {limit:.4g}"
            self._report("loss spike", loss > limit, said)
        self._losses.append(loss)
        self._taken += not skipped
        if self._first is None and len(self._losses) == self._losses.maxlen:
            self._first = median(self._losses)
        if self.stall is not None and self._first is not None and self._taken >= self.stall:
            self._see_stall(self._first)

    def _see_stall(self, first: float) -> None:
        now = median(self._losses)
        stands = now > (1 - LEARNT) * first
        said = f"after {self._taken} steps the median loss is {now:.4g}, at first {first:.4g}"
        self._report("stall", stands, said)
        if not stands:
            self.stall = None  # it has learnt; what stands still later may have converged

    def _see_validation(self, validation: Validation) -> None:
        loss, self._step = validation.loss, validation.step
        self._report("missing", loss is None, "the validation has no loss", of="validation")
        if loss is None:
            return
        bad = not math.isfinite(loss)
        self._report("non-finite", bad, f"the validation loss is {loss}", of="validation")
        if bad or not self._losses:
            return
        training = median(self._losses)
        if self._best is None or loss < self._best[0]:
            self._best = loss, training
        best, beside = self._best
        self._worse = self._worse + 1 if loss > best + DIVERGENCE and training < beside else 0
        self._report(
            "divergence",
            self._worse >= VALIDATIONS,
            f"the validation loss rose from {best:.4g} to {loss:.4g} while the training loss fell "
            f"from {beside:.4g} to {training:.4g}",
        )

    def _see_products(self, products: Products) -> None:
        self._step = products.step
        total = sum(products.seen.values())
        self._report("missing", not total, "no matmul was counted", of="products")
        others = {d: n for d, n in products.seen.items() if d != products.asked and n}
        named = ", ".join(f"{n} of {total} in {dtype}" for dtype, n in others.items())
        said = f"{products.asked} was asked for; matmuls came back {named}"
        self._report("dtype fallback", bool(others), said)

    def _report(self, kind: str, wrong: bool, evidence: str, *, of: str = "") -> None:
        """Keep a fault if something is wrong that was not wrong before."""
        if not wrong:
            self._lasting.discard((kind, of))
        elif (kind, of) not in self._lasting:
            self._lasting.add((kind, of))
            self._new.append(Fault(kind=kind, step=self._step, evidence=evidence))
