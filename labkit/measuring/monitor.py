"""``Monitor``: typed faults of a training run, each reported once, where it begins.

It reads what a loop knows anyway: the record of a step, the loss of a validation, the dtypes in
which matmuls came back. A loss or a norm is compared with the median and the MAD of the values
before it. One value among fifty moves neither, so a spike cannot hide itself or the next one. A
metric that the loop leaves out is a fault of its own, not an exception in the middle of a run.
"""

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labkit.formats.dtypes import name_of
from labkit.training.loop import StepRecord

METRICS = ("loss", "grad_norm", "loss_scale", "skipped")
"""What the record of a step holds."""

OF_VALIDATION = ("validation_loss", "accuracy")

MAD_TO_SIGMA = 1.4826
"""A Gaussian's standard deviation, in MADs (median absolute deviations)."""

NORM_FACTOR = 10.0
"""How many times the median a norm must be at least to be a spike; healthy ones reach 22 where they
also vary much, which the MAD of their logarithms allows for (data/emulated/healthy_runs.json)."""

SMALLEST_SCALE = 1.0
"""Where a smaller loss scale is needed, the gradients themselves are beyond FP16's range."""

LEARNT = 0.02
"""The share by which the loss of a run that learns has fallen after ``stall`` steps."""

DIVERGENCE = 0.1
"""Nats by which validations must lie above the best one."""

VALIDATIONS = 3
"""So many in a row: one bad validation is noise."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault that begins.

    Args:
        kind: "missing", "nonfinite", "loss spike", "norm spike", "zero gradient", "skip streak",
            "scale collapse", "stall", "divergence" or "dtype fallback".
        step: the first step at which it shows.
        evidence: the number that was seen and what it was compared with.
    """

    kind: str
    step: int
    evidence: str

    def __str__(self) -> str:
        return f"step {self.step}, {self.kind}: {self.evidence}"


class Baseline:
    """The last ``window`` finite values, and the limit that the next one is compared with."""

    def __init__(self, window: int, k: float, margin: float) -> None:
        self.past: deque[float] = deque(maxlen=window)
        self.k, self.margin = k, margin

    @property
    def full(self) -> bool:
        """Are there ``window`` values?"""
        return len(self.past) == self.past.maxlen

    def limit(self) -> float | None:
        """Their median + max(k * 1.4826 * MAD, margin); None before the window is full."""
        if not self.full:
            return None
        middle = median(self.past)
        mad = median(abs(value - middle) for value in self.past)
        return middle + max(self.k * MAD_TO_SIGMA * mad, self.margin)


class Monitor:
    """Watches the numbers of a run, and reports each fault when it begins.

    Args:
        window: earlier values that a loss or a norm is compared with.
        k: robust standard deviations above their median that make a spike.
        margin: by how much a loss must lie above their median at least, in the loss's unit.
        skips: skipped steps in a row that are a search for the first loss scale and no fault. 16
            halve GradScaler's first scale, 2**16, down to 1.
        stall: steps that are taken until the loss must have fallen by 2 %; None for a run that
            starts from trained weights, whose loss may stand still because it has converged.
        keep: steps, and faults, that are kept; older ones go.

    Raises:
        ValueError: a window below 2, a ``keep`` or ``skips`` below 1, a negative ``k`` or
            ``margin``, a ``stall`` that is shorter than two windows.

    >>> monitor = Monitor(window=5)
    >>> for step, loss in enumerate([2.3, 2.2, 2.2, 2.1, 2.0, 900.0, 2.0]):
    ...     _ = monitor.see(StepRecord(step, loss, grad_norm=1.0, loss_scale=1.0, skipped=False))
    >>> print(*monitor.faults)
    step 5, loss spike: the loss is 900 (limit 3.2)
    """

    def __init__(
        self,
        *,
        window: int = 50,
        k: float = 6.0,
        margin: float = 1.0,
        skips: int = 16,
        stall: int | None = 100,
        keep: int = 10_000,
    ) -> None:
        if window < 2 or min(skips, keep) < 1 or not (k >= 0 and margin >= 0):
            raise ValueError(
                f"window={window}, k={k}, margin={margin}, skips={skips}, keep={keep}: a median "
                "needs a window of 2 at least, skips and keep are at least 1, and neither k nor "
                "margin is negative"
            )
        if stall is not None and stall < 2 * window:
            raise ValueError(f"stall={stall}: pass two windows of {window} at least, or None")
        self._losses = Baseline(window, k, margin)
        # A healthy norm varies by factors, so its baseline holds logarithms.
        self._norms = Baseline(window, k, math.log(NORM_FACTOR))
        self._skips_allowed, self._stall = skips, stall
        self._history: dict[str, deque[tuple[int, float]]] = {
            metric: deque(maxlen=keep) for metric in METRICS + OF_VALIDATION
        }
        self._faults: deque[Fault] = deque(maxlen=keep)
        self._new: list[Fault] = []
        self._lasting: set[tuple[str, str]] = set()
        self._step = -1
        self._seen = self._taken = self._skips = self._in_a_row = self._worse = 0
        self._scale: float | None = 1.0  # of the step before
        self._first: float | None = None  # the median of the first full window
        self._best: tuple[float, float] | None = None  # validation loss, training loss beside it

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults so far, in the order in which they began."""
        return tuple(self._faults)

    def history(self, metric: str) -> tuple[tuple[int, float], ...]:
        """(step, value) of the steps kept at which the metric was given.

        Args:
            metric: "loss", "grad_norm", "loss_scale", "skipped", "validation_loss", "accuracy".

        Raises:
            ValueError: an unknown metric.
        """
        if metric not in self._history:
            raise ValueError(f"metric={metric!r}: pass one of {', '.join(self._history)}")
        return tuple(self._history[metric])

    def see(self, record: StepRecord | Mapping[str, Any]) -> tuple[Fault, ...]:
        """The faults that begin with this step; for most steps none.

        ``train(..., on_step=monitor.see)`` has it see each step.

        Args:
            record: with the fields of ``StepRecord``, or a mapping with their names, whose values
                are numbers or tensors of one value; a field that is not there, or None, is missing.
                ``grad_norm`` is taken after ``unscale_``, as ``clip_grad_norm_`` returns it. To
                read a tensor of a GPU waits for the GPU: pass numbers that the loop has read
                anyway. A run that rolls back gives its steps again.

        Raises:
            ValueError: a tensor of several values.
        """
        fields = record if isinstance(record, Mapping) else vars(record)
        step = fields.get("step")
        self._begin(self._step + 1 if step is None else step)
        self._seen += 1
        values = {metric: _number(metric, fields.get(metric)) for metric in METRICS}
        for metric, value in values.items():
            self._keep(metric, value)
            self._report("missing", value is None, f"the record has no {metric}", of=metric)
        skipped = bool(values["skipped"])
        self._see_finite(values, skipped)
        self._see_loss(values["loss"], skipped)
        if not skipped:
            self._see_norm(values["grad_norm"])
        self._see_scaler(values["loss_scale"], skipped)
        return tuple(self._new)

    def see_validation(
        self, step: int, loss: float | None, accuracy: float | None = None
    ) -> tuple[Fault, ...]:
        """The faults that begin with a validation, after the record of its step.

        Args:
            step: the one before it.
            loss: the mean in nats on held-out data; None where it was not computed.
            accuracy: kept for ``history``.
        """
        self._begin(step)
        self._keep("validation_loss", loss)
        self._keep("accuracy", accuracy)
        self._report("missing", loss is None, "the validation has no loss", of="validation")
        if loss is None:
            return tuple(self._new)
        bad = not math.isfinite(loss)
        self._report("nonfinite", bad, f"validation loss is {loss}", of="validation")
        if not bad and self._losses.past:
            self._see_divergence(loss, median(self._losses.past))
        return tuple(self._new)

    def see_dtypes(self, step: int, *, asked: str, seen: Mapping[str, int]) -> tuple[Fault, ...]:
        """The faults that begin with the dtypes in which the matmuls of a step came back.

        Args:
            asked: the dtype that the recipe asks for, such as "bfloat16".
            seen: matmuls by the dtype of their output, as ``OpDtypes.dtypes`` gives them.
        """
        self._begin(step)
        total = sum(seen.values())
        self._report("missing", not total, "no matmul was counted", of="dtypes")
        others = {dtype: count for dtype, count in seen.items() if dtype != asked and count}
        named = ", ".join(f"{count} of {total} in {dtype}" for dtype, count in others.items())
        said = f"{asked} was asked for; matmuls came back {named}"
        self._report("dtype fallback", bool(others), said)
        return tuple(self._new)

    def report(self) -> str:
        """What was seen and what was found, as lines of text."""
        if not self._seen:
            return "No data: the monitor has seen no step."
        lines = [f"{self._seen} steps seen, the last is step {self._step}."]
        for metric, kept in self._history.items():
            values = [value for _, value in kept]
            if values and metric != "skipped":
                finite = [value for value in values if math.isfinite(value)]
                span = f", finite values {min(finite):.4g} to {max(finite):.4g}" if finite else ""
                lines.append(f"{metric}: last {values[-1]:.4g}{span}")
        lines.append(f"skipped steps: {self._skips}")
        lines.append(f"faults: {len(self._faults) or 'none'}")
        return "\n".join([*lines, *(f"- {fault}" for fault in self._faults)])

    def _begin(self, step: int) -> None:
        self._step, self._new = step, []

    def _keep(self, metric: str, value: float | None) -> None:
        if value is not None:
            self._history[metric].append((self._step, value))

    def _see_finite(self, values: Mapping[str, float | None], skipped: bool) -> None:
        # A scaler skips steps whose gradients overflow: with a finite loss that is its work.
        # A scale of 1 twice in a row is none, or one that cannot help.
        scale = values["loss_scale"]
        at_work = skipped and (scale != 1.0 or self._scale != 1.0)
        self._scale = scale
        bad = [
            f"{metric} is {value}"
            for metric, value in values.items()
            if value is not None and not math.isfinite(value)
            if not (metric == "grad_norm" and at_work)
        ]
        self._report("nonfinite", bool(bad), "".join(bad[:1]))

    def _see_loss(self, loss: float | None, skipped: bool) -> None:
        if loss is None or not math.isfinite(loss):
            return
        self._report_spike("loss spike", f"the loss is {loss:.4g}", loss, self._losses.limit())
        self._losses.past.append(loss)
        self._taken += not skipped
        if self._first is None and self._losses.full:
            self._first = median(self._losses.past)
        if self._stall is None or self._first is None or self._taken < self._stall:
            return
        now = median(self._losses.past)
        stands = now > (1 - LEARNT) * self._first
        said = f"after {self._taken} steps the median loss is {now:.4g}, at first {self._first:.4g}"
        self._report("stall", stands, said)
        if not stands:
            self._stall = None  # it has learnt; what stands still later may have converged

    def _see_norm(self, norm: float | None) -> None:
        self._report("zero gradient", norm == 0, "all gradients are 0")
        if norm is None or not math.isfinite(norm) or norm <= 0:
            return
        limit = self._norms.limit()
        limit = None if limit is None else math.exp(min(limit, 700))
        self._report_spike("norm spike", f"the gradient norm is {norm:.4g}", norm, limit)
        self._norms.past.append(math.log(norm))

    def _see_scaler(self, scale: float | None, skipped: bool) -> None:
        self._skips += skipped
        self._in_a_row = self._in_a_row + 1 if skipped else 0
        said = f"{self._in_a_row} steps in a row were skipped (limit {self._skips_allowed})"
        self._report("skip streak", self._in_a_row > self._skips_allowed, said)
        if scale is not None and math.isfinite(scale):
            said = f"the scale is {scale:.4g} (limit {SMALLEST_SCALE:g})"
            self._report("scale collapse", scale < SMALLEST_SCALE, said)

    def _see_divergence(self, loss: float, training: float) -> None:
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

    def _report_spike(self, kind: str, said: str, value: float, limit: float | None) -> None:
        if limit is not None:
            self._report(kind, value > limit, f"{said} (limit {limit:.4g})")

    def _report(self, kind: str, wrong: bool, evidence: str, *, of: str = "") -> None:
        """Keep a fault if something is wrong that was not wrong before."""
        if not wrong:
            self._lasting.discard((kind, of))
        elif (kind, of) not in self._lasting:
            self._lasting.add((kind, of))
            self._new.append(Fault(kind=kind, step=self._step, evidence=evidence))
            self._faults.append(self._new[-1])


class OpDtypes(TorchDispatchMode):
    """Inside ``with OpDtypes() as seen:`` counts the operators and the dtypes of their outputs.

    The dtypes of parameters do not tell what autocast computed in; those of outputs do.

    >>> import torch
    >>> with OpDtypes() as seen, torch.autocast("cpu", torch.bfloat16):
    ...     _ = torch.ones(2, 2) @ torch.ones(2, 2)
    >>> seen.dtypes("mm")
    {'bfloat16': 1}
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        dtypes = {name_of(x.dtype) for x in tree_leaves(result) if isinstance(x, Tensor)}
        self.counts.update((func.overloadpacket.__name__, dtype) for dtype in dtypes)
        return result

    def dtypes(self, operator: str) -> dict[str, int]:
        """How often an operator such as "mm" gave which dtype."""
        return {dtype: n for (name, dtype), n in self.counts.items() if name == operator}


def _number(metric: str, value: float | Tensor | None) -> float | None:
    """A number that holds no graph."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(f"{metric} is a tensor of {value.numel()} values; pass one number")
        value = value.detach().item()
    return None if value is None else float(value)
