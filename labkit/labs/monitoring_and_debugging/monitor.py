"""``Monitor``: alarms for a training run, each once a fault, and bounded records of the run.

A loss or a norm is compared with the median and the MAD of the values before it. One value among
fifty moves neither, so a spike cannot hide itself or the next one. ``OpDtypes`` says in which
dtypes a step really ran, ``gradient_norm`` what to watch where the loop does not clip.
"""

import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labkit.formats.dtypes import name_of
from labkit.labs.monitoring_and_debugging.alarm_rules import SIGMAS
from labkit.training import StepRecord

METRICS = ("loss", "grad_norm", "loss_scale", "skipped", "accuracy")

NORM_FACTOR = 10.0
"""How many times the median a norm must be at least to be a spike; healthy ones reach 22 where they
also vary much, which the MAD of their logarithms allows for (data/emulated/healthy_runs.json)."""

SKIPS = 16
"""So many skips in a row halve GradScaler's first scale, 2**16, down to 1."""

SMALLEST_SCALE = 1.0
"""Where a smaller loss scale is needed, the gradients themselves are beyond FP16's range."""


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One alarm, raised at the first step of a fault.

    Args:
        kind: "nonfinite", "spike", "norm spike", "no gradient", "zero gradient", "skip streak" or
            "scale collapse".
        value: what was watched, NaN for a norm that is not there.
        limit: what it was compared with, None where nothing was.
        text: all of it as a sentence.
    """

    kind: str
    step: int
    value: float
    limit: float | None
    text: str


class Baseline:
    """The last ``window`` finite values, and the limit that the next one is compared with."""

    def __init__(self, window: int, k: float, margin: float) -> None:
        self.past: deque[float] = deque(maxlen=window)
        self.k, self.margin = k, margin

    def limit(self) -> float | None:
        """Their median + max(k * 1.4826 * MAD, margin); None before the window is full."""
        if len(self.past) < (self.past.maxlen or 0):
            return None
        middle = median(self.past)
        mad = median(abs(value - middle) for value in self.past)
        return middle + max(self.k * SIGMAS * mad, self.margin)


class Monitor:
    """Watches the numbers of a run, and raises one ``Alert`` when a fault begins.

    Args:
        window: earlier values that a loss or norm is compared with.
        k: robust standard deviations above their median that make a spike.
        margin: by how much a loss must lie above their median at least, in the loss's unit.
        keep: steps, and alerts, that are kept; older ones go.

    Raises:
        ValueError: a window below 2, a ``keep`` below 1, a negative ``k`` or ``margin``.

    >>> monitor = Monitor(window=5)
    >>> for step, loss in enumerate([2.3, 2.2, 2.2, 2.1, 2.0, 900.0, 2.0]):
    ...     monitor.watch(step, loss=loss)
    >>> [(alert.kind, alert.step) for alert in monitor.alerts]
    [('spike', 5)]
    """

    def __init__(
        self, *, window: int = 50, k: float = 6.0, margin: float = 1.0, keep: int = 10_000
    ) -> None:
        if window < 2 or keep < 1 or not (k >= 0 and margin >= 0):
            raise ValueError(
                f"window={window}, keep={keep}, k={k}, margin={margin}: a median needs a window of "
                "2 at least, keep is at least 1, and neither k nor margin is negative"
            )
        self._losses = Baseline(window, k, margin)
        # A healthy norm varies by factors, so its baseline holds logarithms.
        self._norms = Baseline(window, k, math.log(NORM_FACTOR))
        self._history: dict[str, deque[tuple[int, float]]] = {
            metric: deque(maxlen=keep) for metric in METRICS
        }
        self._alerts: deque[Alert] = deque(maxlen=keep)
        self._ringing: set[str] = set()
        self._step: int | None = None
        self._watched = self._skips = self._in_a_row = 0

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """The alarms so far, the oldest first."""
        return tuple(self._alerts)

    def history(self, metric: str) -> tuple[tuple[int, float], ...]:
        """(step, value) of the steps kept at which the metric was given.

        Raises:
            ValueError: an unknown metric.
        """
        _known([metric])
        return tuple(self._history[metric])

    def watch(self, step: int, **metrics: float | Tensor | None) -> None:
        """Take the numbers of one step; what is not given is not watched.

        Args:
            step: larger than the one before.
            metrics: numbers or tensors of one value. ``loss``; ``grad_norm``, after ``unscale_`` as
                ``clip_grad_norm_`` returns it, None if no parameter has a gradient;
                ``loss_scale``; ``skipped``, whether the scaler left the step out;
                ``accuracy``. To read a tensor of a GPU waits for the GPU: pass numbers that the
                loop has read anyway.

        Raises:
            ValueError: an unknown metric, a tensor of several values, a step that does not follow.
        """
        _known(metrics)
        if self._step is not None and step <= self._step:
            raise ValueError(f"step {step} after step {self._step}: steps must increase")
        values = {metric: _number(metric, value) for metric, value in metrics.items()}
        self._step = step
        self._watched += 1
        for metric, value in values.items():
            if value is not None:
                self._history[metric].append((step, value))
        skipped = bool(values.get("skipped"))
        # A step is skipped because its norm is inf or NaN: that is the scaler at work.
        judged = {m: v for m, v in values.items() if not (m == "grad_norm" and skipped)}
        self._watch_finite(judged)
        self._watch_loss(judged.get("loss"))
        if "grad_norm" in judged:
            self._watch_norm(judged["grad_norm"])
        self._watch_scaler(values.get("loss_scale"), skipped)

    def see(self, record: StepRecord) -> None:
        """``watch`` the record of a step: ``train(..., on_step=monitor.see)``."""
        self.watch(
            record.step,
            loss=record.loss,
            grad_norm=record.grad_norm,
            loss_scale=record.loss_scale,
            skipped=record.skipped,
        )

    def report(self) -> str:
        """What was seen and what was raised, as lines of text."""
        if self._step is None:
            return "No data: watch() has not been called."
        lines = [f"{self._watched} steps watched, the last is step {self._step}."]
        for metric in ("loss", "grad_norm", "loss_scale", "accuracy"):
            values = [value for _, value in self._history[metric]]
            if values:
                finite = [value for value in values if math.isfinite(value)]
                span = f", finite values {min(finite):.4g} to {max(finite):.4g}" if finite else ""
                lines.append(f"{metric}: last {values[-1]:.4g}{span}")
        if self._history["skipped"]:
            lines.append(f"skipped steps: {self._skips}")
        lines.append(f"alerts: {len(self._alerts) or 'none'}")
        return "\n".join([*lines, *(f"- {alert.text}" for alert in self._alerts)])

    def _watch_finite(self, judged: dict[str, float | None]) -> None:
        values = {metric: value for metric, value in judged.items() if value is not None}
        if not values:
            return
        bad = {metric: value for metric, value in values.items() if not math.isfinite(value)}
        metric, value = next(iter((bad or values).items()))
        self._raise("nonfinite", bool(bad), value, None, f"{metric} is {value}")

    def _watch_loss(self, loss: float | None) -> None:
        if loss is None or not math.isfinite(loss):
            return
        limit = self._losses.limit()
        high = limit is not None and loss > limit
        self._raise("spike", high, loss, limit, f"the loss is {loss:.4g}")
        self._losses.past.append(loss)

    def _watch_norm(self, norm: float | None) -> None:
        missing = norm is None
        value = math.nan if norm is None else norm
        self._raise("no gradient", missing, value, None, "no parameter has a gradient")
        self._raise("zero gradient", norm == 0, value, None, "all gradients are 0")
        if norm is None or not math.isfinite(norm) or norm <= 0:
            return
        log_limit = self._norms.limit()
        high = log_limit is not None and math.log(norm) > log_limit
        limit = None if log_limit is None else math.exp(min(log_limit, 700))
        self._raise("norm spike", high, norm, limit, f"the gradient norm is {norm:.4g}")
        self._norms.past.append(math.log(norm))

    def _watch_scaler(self, scale: float | None, skipped: bool) -> None:
        self._skips += skipped
        self._in_a_row = self._in_a_row + 1 if skipped else 0
        streak = self._in_a_row > SKIPS
        said = f"{self._in_a_row} steps in a row were skipped"
        self._raise("skip streak", streak, self._in_a_row, SKIPS, said)
        if scale is not None and math.isfinite(scale):
            low = scale < SMALLEST_SCALE
            self._raise("scale collapse", low, scale, SMALLEST_SCALE, f"the scale is {scale:.4g}")

    def _raise(self, kind: str, wrong: bool, value: float, limit: float | None, said: str) -> None:
        """Keep an alert if something is wrong that was not wrong before."""
        if not wrong:
            self._ringing.discard(kind)
        elif kind not in self._ringing:
            self._ringing.add(kind)
            against = "" if limit is None else f" (limit {limit:.4g})"
            text = f"step {self._step}, {kind}: {said}{against}"
            self._alerts.append(
                Alert(kind=kind, step=self._step or 0, value=value, limit=limit, text=text)
            )


def _known(metrics: Iterable[str]) -> None:
    unknown = [metric for metric in metrics if metric not in METRICS]
    if unknown:
        raise ValueError(f"unknown metric {unknown[0]!r}; the metrics are {', '.join(METRICS)}")


def _number(metric: str, value: float | Tensor | None) -> float | None:
    """A number that holds no graph."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(f"{metric} is a tensor of {value.numel()} values; pass one number")
        value = value.detach().item()
    return None if value is None else float(value)


def real_values(gradient: Tensor) -> Tensor:
    """The values of a gradient: of a sharded one all, of a sparse one its own, both complex parts.

    Where gradients are sharded, all ranks call this together.
    """
    values = gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient.detach()
    values = values.coalesce().values() if values.is_sparse else values
    return torch.view_as_real(values) if values.is_complex() else values


def gradient_norm(parameters: Iterable[Tensor]) -> Tensor | None:
    """The 2-norm of all gradients, 0-d float32 on their device; None where there is no gradient.

    It is what ``clip_grad_norm_`` returns, but the squares are added in float32: those of FP16
    gradients would overflow at 65504. Call it after ``scaler.unscale_(optimizer)``.
    """
    gradients = [real_values(p.grad).float() for p in parameters if p.grad is not None]
    return get_total_norm(gradients) if gradients else None


class OpDtypes(TorchDispatchMode):
    """Inside ``with OpDtypes() as seen:`` counts the operators and the dtypes of their outputs.

    The dtypes of parameters do not tell what autocast computed in; those of outputs do.

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
