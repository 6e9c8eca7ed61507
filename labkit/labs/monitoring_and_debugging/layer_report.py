"""Reports that change nothing: gradients by layer, the first inf or NaN, known mistakes.

``layer_report`` reads the gradients that are there. ``first_nonfinite`` runs a step and names the
operator and the module that made the first inf or NaN, or the tensor that held it before.
``findings`` looks for seven known mistakes.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.module_tracker import ModuleTracker

from labkit.formats import FP16
from labkit.formats.dtypes import name_of
from labkit.formats.histograms import RangeReport, range_report
from labkit.labs.detective.causes import CAUSES
from labkit.measuring.live_bytes import plain_parts
from labkit.training.precision import check_values

# Gradients by layer


@dataclass(frozen=True, kw_only=True)
class LayerRow:
    """The gradient of one parameter, as FP16 would hold it.

    Args:
        name: of the parameter.
        norm: of the true gradient, the loss scale divided out; inf or NaN where a value is.
        report: of the gradient times the loss scale, seen through FP16; its ``exponents`` are the
            histogram, its ``zeros`` were 0 before.
        headroom: 65504 over the largest scaled magnitude; below 1 it overflows. inf where no
            finite value differs from 0.
        suggested_scale: the largest power of two that leaves a headroom of 2, None where there is
            no finite value above 0.
    """

    name: str
    norm: float
    report: RangeReport
    headroom: float
    suggested_scale: float | None

    @property
    def flushed(self) -> float:
        """The share of finite non-zero gradients that FP16 flushes to 0, 0 to 1."""
        return self.report.share_lost

    @property
    def subnormal(self) -> float:
        """The share of finite non-zero gradients that are subnormal in FP16, 0 to 1."""
        return self.report.share_subnormal


class LayerReport(tuple[LayerRow, ...]):
    """A row for each parameter with a gradient, in the model's order; shows itself as a table."""

    NO_GRADIENTS = "No gradients yet: call backward() first."

    @property
    def suggested_scale(self) -> float | None:
        """The largest loss scale that suits every row, None where no row has one."""
        return min((s for row in self if (s := row.suggested_scale) is not None), default=None)

    def _table(self) -> pd.DataFrame:
        rows = {
            row.name: {
                "norm": f"{row.norm:.3g}",
                "inf or NaN": row.report.nonfinite,
                "flushed": f"{row.flushed:.1%}",
                "subnormal": f"{row.subnormal:.1%}",
                "headroom": f"{row.headroom:.3g}",
                "scale": f"2**{math.log2(row.suggested_scale):.0f}" if row.suggested_scale else "",
            }
            for row in self
        }
        return pd.DataFrame.from_dict(rows, orient="index")

    def __str__(self) -> str:
        return self._table().to_string() if self else self.NO_GRADIENTS

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self._table().to_html() if self else f"<p>{self.NO_GRADIENTS}</p>"


def layer_report(model: nn.Module, *, scale: float = 1.0) -> LayerReport:
    """Look at the gradients that backward left in ``model``; nothing is computed or changed in it.

    A complex gradient is read as its real and imaginary parts. Where gradients are sharded, all
    ranks call this together, and each gets the report of the whole.

    Args:
        scale: what the gradients are still multiplied by: the loss scale before ``unscale_``.

    Raises:
        ValueError: a scale that is not positive and finite.

    >>> print(layer_report(nn.Linear(2, 1)))
    No gradients yet: call backward() first.
    """
    if not 0 < scale < math.inf:
        raise ValueError(f"scale={scale}: pass the loss scale, a positive finite number, or 1.0")
    return LayerReport(
        _row(name, parameter.grad, scale)
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    )


def _row(name: str, gradient: Tensor, scale: float) -> LayerRow:
    values = _real_values(gradient)
    finite = values[values.isfinite()]
    largest = finite.abs().max().item() if finite.numel() else 0.0
    return LayerRow(
        name=name,
        norm=values.double().norm().item() / scale,
        report=range_report(values, FP16),
        headroom=FP16.max / largest if largest else math.inf,
        suggested_scale=_suggested(largest / scale) if largest else None,
    )


def _real_values(gradient: Tensor) -> Tensor:
    """The values of a gradient: of a sharded one all, of a sparse one its own, both complex parts.

    Where gradients are sharded, all ranks call this together.
    """
    values = gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient.detach()
    values = values.coalesce().values() if values.is_sparse else values
    return torch.view_as_real(values) if values.is_complex() else values


def _suggested(largest: float) -> float:
    """The largest power of two that keeps 2 * largest within FP16."""
    return 2.0 ** math.floor(math.log2(FP16.max / (2 * largest)))


# The first value that is not finite


@dataclass(frozen=True, kw_only=True)
class Birth:
    """Where the first inf or NaN was made, or first read.

    Args:
        operator: such as "aten.log.default".
        module: the innermost module that ran it, or whose backward did: its class and path, such
            as "SmallGPT.blocks.0.qkv"; "" outside all modules.
        phase: "forward", "backward" or "optimizer".
        dtype: of the output, as torch calls it.
        value: "inf" or "NaN".
        holder: the tensor that held it before the step, which the operator was the first to read:
            such as "parameter SmallGPT.head.weight"; "" where the operator made it.
    """

    operator: str
    module: str
    phase: str
    dtype: str
    value: str
    holder: str = ""

    def __str__(self) -> str:
        where = f"in {self.module}" if self.module else "outside all modules"
        did = f"{self.operator} made the first {self.value}"
        if self.holder:
            did = f"{self.holder} held {self.value} before, and {self.operator} read it first"
        return f"{did}, {self.phase}, {where}, in {self.dtype}"


def first_nonfinite(step: Callable[[], object]) -> Birth | None:
    """Run ``step`` and name the operator that made the first inf or NaN, None if there was none.

    An operator is named if its inputs are finite and an output is not, or if an output holds the
    first NaN: the -inf of a mask is an input, and a softmax of a row of them makes a NaN. If a NaN
    was there before the step, or an inf in a parameter, its ``holder`` is named with the operator
    that was the first to compute with it; if an inf was elsewhere, such as in a mask or the batch,
    only where what ``step`` returns is not finite. Run the failing step again inside it, since
    looking at every value takes several times as long. Values on "meta" are not seen.
    """
    with (
        _optimizer_steps() as optimizing,
        ModuleTracker() as tracker,
        _names_of_tensors(tracker) as names,
        _Watch(tracker, optimizing, names) as watch,
    ):
        returned = step()
    return watch.found or (watch.suspect if _worst(returned) else None)


class _Watch(TorchDispatchMode):
    def __init__(
        self, tracker: ModuleTracker, optimizing: list[Optimizer], names: dict[int, str]
    ) -> None:
        super().__init__()
        self.tracker, self.optimizing, self.names = tracker, optimizing, names
        self.found: Birth | None = None
        self.suspect: Birth | None = None  # reads an inf that may be meant, as that of a mask
        self._module_of: dict[int, str] = {}
        self._made: set[int] = set()  # storages, the memory that "empty" found included

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.found is not None:
            return func(*args, **kwargs)
        before = _worst((args, kwargs))  # an operator in place changes its inputs
        holder = self._holder(args, kwargs, before) if before and not func.is_view else ""
        module = self._module()
        result = func(*args, **kwargs)
        after = _worst(result)
        # What "empty" returns was made by nobody.
        made = after > before and "empty" not in func.overloadpacket.__name__
        if made or (holder and after == before):
            birth = Birth(
                operator=str(func),
                module=module,
                phase=self._phase(),
                dtype=next(name_of(x.dtype) for x in _floats(result) if _worst(x) == after),
                value=("finite", "inf", "NaN")[before if holder else after],
                holder=holder,
            )
            if made or after == 2 or holder.startswith("parameter"):
                self.found = birth
            else:
                self.suspect = self.suspect or birth
        self._made |= _storages(result) - _storages((args, kwargs))
        return result

    def _holder(self, args: Any, kwargs: Any, worst: int) -> str:
        """The tensor among the inputs that was there before the step and has such a value."""
        for x in _floats((args, kwargs)):
            for storage in _storages(x) - self._made:
                if _worst(x) == worst:
                    return self.names.get(storage, f"a tensor of shape {tuple(x.shape)}")
        return ""

    def _phase(self) -> str:
        if self.tracker.is_bw:
            return "backward"
        return "optimizer" if self.optimizing else "forward"

    def _module(self) -> str:
        """The module of this operator; of backward, the one of the forward operator.

        A backward node bears the number that it got in the forward pass, one below the next.
        """
        node = torch._C._current_autograd_node()
        if self.tracker.is_bw and node is not None:
            return self._module_of.get(node._sequence_nr() + 1, "")
        innermost = max(self.tracker.parents - {"Global"}, key=len, default="")
        self._module_of.setdefault(torch._C._autograd._get_sequence_nr(), innermost)
        return innermost


@contextmanager
def _optimizer_steps() -> Iterator[list[Optimizer]]:
    """The optimizers that are inside their ``step``."""
    running: list[Optimizer] = []
    hooks = (
        register_optimizer_step_pre_hook(lambda optimizer, *_: running.append(optimizer)),
        register_optimizer_step_post_hook(lambda *_: running.pop()),
    )
    try:
        yield running
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _names_of_tensors(tracker: ModuleTracker) -> Iterator[dict[int, str]]:
    """What the outermost modules own and are given, by storage, once they are called."""
    names: dict[int, str] = {}

    def note(module: nn.Module, inputs: Any) -> None:
        if len(tracker.parents - {"Global"}) != 1:
            return
        own = type(module).__name__
        names.update(dict.fromkeys(_storages(inputs), f"an input of {own}"))
        tensors = {"buffer": module.named_buffers(), "parameter": module.named_parameters()}
        for kind, name, tensor in ((k, *pair) for k, pairs in tensors.items() for pair in pairs):
            names.update(dict.fromkeys(_storages(tensor.grad), f"the gradient of {own}.{name}"))
            names.update(dict.fromkeys(_storages(tensor), f"{kind} {own}.{name}"))

    hook = nn.modules.module.register_module_forward_pre_hook(note)
    try:
        yield names
    finally:
        hook.remove()


def _storages(tree: object) -> set[int]:
    parts = (part for x in tree_leaves(tree) for part in plain_parts(x) if not is_lazy(part))
    return {part.untyped_storage()._cdata for part in parts}


def _floats(tree: object) -> list[Tensor]:
    """The values that may be inf or NaN, of a sharded tensor those that are here."""
    parts = (part for x in tree_leaves(tree) for part in plain_parts(x))
    return [x for x in parts if (x.is_floating_point() or x.is_complex()) and not x.is_meta]


def _worst(tree: object) -> int:
    """2 where a value is NaN, 1 where one is inf, 0 where all are finite."""
    numbers = [x for x in tree_leaves(tree) if isinstance(x, float)]
    worst = max((2 if math.isnan(x) else math.isinf(x) for x in numbers), default=0)
    for x in _floats(tree):
        x = x.float() if x.itemsize == 1 else x  # torch asks no float8 whether it is finite
        if not bool(x.isfinite().all()):
            worst = max(worst, 2 if bool(x.isnan().any()) else 1)
    return worst


# Known mistakes

HALF_PARAMETERS = "half parameters"
EPS = "eps underflows"
BCE = "BCELoss"
MASK = "-1e9 mask"
STILL_SCALED = "unscale missing"
TWICE = "double backward"
FOREIGN = "another model's optimizer"


@dataclass(frozen=True, kw_only=True)
class KnownMistake:
    """A known mistake: its name, what was seen, and what to do."""

    name: str
    seen: str
    advice: str

    def __str__(self) -> str:
        return f"{self.name}: {self.seen}. {self.advice}"


def findings(
    model: nn.Module,
    optimizer: Optimizer | None = None,
    *,
    loss: Callable[[], Tensor] | None = None,
    scale: float = 1.0,
) -> tuple[KnownMistake, ...]:
    """Look for seven known mistakes; the model, its gradients and random numbers stay as they are.

    Args:
        optimizer: whose eps and parameters are looked at.
        loss: computes the loss of the batch at hand again, not scaled. It is called once, and its
            gradients, which ``torch.autograd.grad`` returns, are compared with those in ``.grad``.
            Without it only parameters and the optimizer are looked at. Dropout draws other units
            each time, so that then nothing is said about ``.grad``. Where torch refuses a mask's
            number in FP16, the loss has no value, and the mask is all that is found in it.
        scale: the loss scale in force.

    Raises:
        ValueError: with ``loss``, a model whose parameters are uninitialised, on "meta" or sharded.
    """
    found = _half_parameters(model) + _eps(optimizer) + _foreign(model, optimizer)
    if loss is not None:
        check_values(model)
        if sharded := [n for n, p in model.named_parameters() if hasattr(p, "full_tensor")]:
            raise ValueError(
                f"{sharded[0]} is sharded, and its gradient is made in backward only, not by "
                "torch.autograd.grad: give the loss of the model before fully_shard, or no loss"
            )
        with _as_it_was(model):
            found += _from_a_pass(model, loss, scale)
    return tuple(found)


def _half_parameters(model: nn.Module) -> list[KnownMistake]:
    half = [n for n, p in model.named_parameters() if p.dtype in (torch.float16, torch.bfloat16)]
    if not half:
        return []
    seen = f"{len(half)} parameters are 16-bit, the first is {half[0]}"
    return [KnownMistake(name=HALF_PARAMETERS, seen=seen, advice=CAUSES["bf16-stall"].advice.en)]


def _eps(optimizer: Optimizer | None) -> list[KnownMistake]:
    """Where eps is added to FP16 numbers and is 0 there; a fused kernel adds it in float32."""
    found = []
    for group in optimizer.param_groups if optimizer else ():
        eps = group.get("eps")
        half = any(p.dtype is torch.float16 for p in group["params"])
        if eps and half and not group.get("fused") and torch.tensor(eps).half() == 0:
            seen = f"the optimizer's eps={eps:g} is 0 in FP16"
            found.append(KnownMistake(name=EPS, seen=seen, advice=CAUSES["adam-eps"].advice.en))
    return found


def _foreign(model: nn.Module, optimizer: Optimizer | None) -> list[KnownMistake]:
    groups = optimizer.param_groups if optimizer else ()
    held = {id(p) for group in groups for p in group["params"]}
    if not held or not held.isdisjoint(id(p) for p in model.parameters()):
        return []
    seen = "the optimizer holds no parameter of this model"
    advice = "Make the optimizer of model.parameters(), after the model is made or replaced."
    return [KnownMistake(name=FOREIGN, seen=seen, advice=advice)]


class _Refused(Exception):
    """torch does not convert the number that an operator was given to FP16."""


class _Operators(TorchDispatchMode):
    """Names of the operators, and those that take a finite number beyond FP16 to FP16."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.beyond: dict[str, float] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.names.add(name)
        try:
            result = func(*args, **(kwargs or {}))
        except RuntimeError as error:  # of masked_fill, where the others give inf
            if "without overflow" not in str(error):
                raise
            self._note(name, args, args)
            raise _Refused from error
        self._note(name, args, result)
        return result

    def _note(self, name: str, args: Any, halves: Any) -> None:
        if any(x.dtype is torch.float16 for x in _floats(halves)):
            # torch.where makes a tensor without dimensions of a number.
            for x in tree_leaves(args):
                number = x.item() if isinstance(x, Tensor) and x.dim() == 0 else x
                if isinstance(number, float) and FP16.max < abs(number) < math.inf:
                    self.beyond[name] = number


def _from_a_pass(model: nn.Module, loss: Callable[[], Tensor], scale: float) -> list[KnownMistake]:
    value = None
    with torch.enable_grad(), _Operators() as seen, suppress(_Refused):
        value = loss()
    found = []
    if "binary_cross_entropy" in seen.names:
        advice = (
            "Give F.binary_cross_entropy_with_logits the logits: CUDA autocast refuses BCELoss."
        )
        found.append(KnownMistake(name=BCE, seen="the loss reads probabilities", advice=advice))
    for operator, number in seen.beyond.items():
        said = f"{operator} takes {number:g} to FP16, which ends at 65504"
        found.append(KnownMistake(name=MASK, seen=said, advice=CAUSES["mask-overflow"].advice.en))
    held = [p for p in model.parameters() if p.grad is not None and not p.grad.is_sparse]
    if value is None or not held:
        return found
    true = torch.autograd.grad(value, held, allow_unused=True)
    return found + _about_gradients([p.grad for p in held], true, scale)


def _about_gradients(held: list, true: tuple, scale: float) -> list[KnownMistake]:
    """Whether those in ``.grad`` are the true gradients times 2 or times the loss scale."""
    pairs = [(h.flatten(), t.flatten()) for h, t in zip(held, true, strict=True) if t is not None]
    if not pairs:
        return []
    have, want = (torch.cat([_wide(x) for x in side]) for side in zip(*pairs, strict=True))
    size = (want @ want).item()
    if not math.isfinite(size) or not size:
        return []
    times = (have @ want).item() / size
    if not (have - times * want).norm().item() <= 0.1 * have.norm().item():
        return []
    found = []
    if scale >= 4 and any(math.isclose(times, f * scale, rel_tol=0.1) for f in (1, 2)):
        seen = f".grad is {times:.4g} times the gradient, and the loss scale is {scale:g}"
        found.append(
            KnownMistake(
                name=STILL_SCALED, seen=seen, advice=CAUSES["clip-before-unscale"].advice.en
            )
        )
    if any(math.isclose(times, 2 * s, rel_tol=0.1) for s in {1.0, scale}):
        seen = ".grad is twice the gradient of this loss"
        advice = "Call backward once a batch, and zero_grad before it; a report needs no backward."
        found.append(KnownMistake(name=TWICE, seen=seen, advice=advice))
    return found


def _wide(x: Tensor) -> Tensor:
    """Real float64 values, of a complex tensor both parts."""
    return (torch.view_as_real(x).flatten() if x.is_complex() else x).detach().double()


@contextmanager
def _as_it_was(model: nn.Module) -> Iterator[None]:
    """Buffers and random numbers afterwards as before: a forward pass in training moves both."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        device = next(model.parameters(), torch.empty(0)).device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
