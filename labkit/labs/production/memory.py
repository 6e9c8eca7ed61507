"""``Memory``: the bytes of a training step by what they hold, and one measure after another (S19).

Which measures there are, and their order, is lab 07's ``plan_memory``, which is handed in.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from labkit.emulation import emulate_gpu
from labkit.measuring.card import Card, fake_copy

_ENOUGH = 2**62
"""A budget that asks for no measure."""


class PlanExhausted(RuntimeError):
    """No measure is left that lowers the peak."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What ``Memory.next_step`` did.

    Args:
        name: the measure, such as "BF16 autocast"; several where only together they lower the peak.
        before, after: the most bytes alive during a training step.
    """

    name: str
    before: int
    after: int


class Memory:
    """A plan that takes one measure at a time.

    Args:
        plan_memory: lab 07's, (budget, model, batch) -> a plan with ``steps`` and ``apply``, or
            ValueError where no measure is enough.
        model: with float32 parameters; it is not changed.
        batch: inputs and targets.

    Attributes:
        plan: all measures that were taken; ``plan.apply(model)`` is a training step with them.
    """

    def __init__(
        self,
        plan_memory: Callable[[int, nn.Module, tuple[Tensor, Tensor]], Any],
        model: nn.Module,
        batch: tuple[Tensor, Tensor],
    ) -> None:
        self._plan_memory, self._model, self._batch = plan_memory, model, batch
        self.plan = plan_memory(_ENOUGH, model, batch)

    def predicted(self) -> dict[str, int]:
        """Bytes when most are alive, by what they hold; they sum to the peak.

        "params", "grads" and "states" are parameters, their gradients and the optimizer's state;
        "casts" 16-bit copies of parameters that autocast made; "activations" all else. Counted on
        fake tensors, in a step that is not the first.
        """
        model, mode = fake_copy(self._model)
        with emulate_gpu(), mode:
            inputs, targets = (mode.from_tensor(whole) for whole in self._batch)
            step = self.plan.apply(model)
            step(inputs, targets)  # makes the optimizer's state
            step.optimizer.zero_grad()
            with _Roles(model, step.optimizer).hold(inputs, targets) as card:
                step(inputs, targets)
        return card.at_most

    def next_step(self) -> Step:
        """Take the next measure that lowers the peak.

        Raises:
            PlanExhausted: there is none; the plan stays as it is.
        """
        before = self.plan.steps[-1].peak_bytes
        taken = {measure.name for measure in self.plan.steps}
        try:
            plan = self._plan_memory(before - 1, self._model, self._batch)
        except ValueError as error:
            raise PlanExhausted(f"no measure is left: {error}") from error
        names = [measure.name for measure in plan.steps if measure.name not in taken]
        self.plan = plan
        return Step(name=", ".join(names), before=before, after=plan.steps[-1].peak_bytes)


class _Roles(Card):
    """A card that notes what its bytes hold whenever they reach a new peak, in ``at_most``."""

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        super().__init__()
        self._model, self._optimizer = model, optimizer
        self._casts: weakref.WeakValueDictionary[int, torch.UntypedStorage] = (
            weakref.WeakValueDictionary()
        )
        self.hold(model, optimizer)
        self.at_most = self._by_role()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        highest = self.peak
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if func.overloadpacket is torch.ops.aten._to_copy and isinstance(args[0], nn.Parameter):
            storage = out.untyped_storage()
            self._casts[id(storage)] = storage
        if self.peak > highest:
            self.at_most = self._by_role()
        return out

    def _by_role(self) -> dict[str, int]:
        parameters = list(self._model.parameters())
        held = {
            "params": _nbytes([*parameters, *self._model.buffers()]),
            "grads": _nbytes([p.grad for p in parameters if p.grad is not None]),
            "states": _nbytes(tree_leaves(list(self._optimizer.state.values()))),
            "casts": sum(storage.nbytes() for storage in self._casts.values()),
        }
        return {**held, "activations": self.now - sum(held.values())}


def _nbytes(things: list[Any]) -> int:
    """Bytes of the tensors' storages, each once."""
    storages = {id(s): s for x in things if isinstance(x, Tensor) for s in [x.untyped_storage()]}
    return sum(storage.nbytes() for storage in storages.values())
