"""``StepBytes``: the bytes of a training step operator by operator, by what they hold."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from torch import nn

from labkit.measuring.live_bytes import LiveBytes

ROLES = ("weights", "gradients", "moments", "copies", "kept", "temporary")


@dataclass(frozen=True, kw_only=True)
class StepPoint:
    """The bytes alive when an operator has run, by what they hold.

    Args:
        at: phase and operator, such as "backward/aten.mm".
        weights: parameters and buffers.
        gradients: what stands in ``.grad``.
        moments: the optimizer's state.
        copies: 16-bit copies of weights that autocast made.
        kept: what forward leaves behind for backward, activations above all, and the batch.
        temporary: all else, such as gradients of activations.
    """

    at: str
    weights: int
    gradients: int
    moments: int
    copies: int
    kept: int
    temporary: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.by_role.values())

    @property
    def by_role(self) -> dict[str, int]:
        """The bytes of each of ``ROLES``."""
        return {role: getattr(self, role) for role in ROLES}

    @property
    def phase(self) -> str:
        """ "forward", "backward", "step" or "zero_grad"."""
        return self.at.partition("/")[0]


class StepBytes(LiveBytes):
    """``LiveBytes`` that also knows the role of each storage; ``points()`` gives the time line.

    Whoever runs the step says when a phase begins: ``begin("forward")``, "backward",
    "step" or "zero_grad".

    Args:
        model: its parameters and buffers are "weights".
        moments: an optimizer with its state, or the tensors of one.
        batch: the tensors of inputs and targets.
    """

    def __init__(self, model: nn.Module, moments: Any, batch: Any) -> None:
        super().__init__()
        self._phase = ""
        self._alive = dict.fromkeys(ROLES, 0)
        self._points: list[dict[str, Any]] = []
        self._storages: dict[int, _Storage] = {}
        for role, things in (("weights", model), ("moments", moments), ("kept", batch)):
            self._new_role = role
            self.hold(things)
        self._new_role = "temporary"
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._is_gradient)

    def begin(self, phase: str) -> None:
        """The operators from now on belong to this phase."""
        if phase == "backward":
            self._end_forward()
        self._phase = phase

    def note(self, name: str) -> None:
        """A point without an operator of torch's."""
        self._points.append({"at": f"{self._phase}/{name}", **self._alive})

    def points(self) -> list[StepPoint]:
        """The bytes of each role after each operator."""
        return [StepPoint(**point) for point in self._points]

    def _end_forward(self) -> None:
        """What forward made and has not freed was kept for backward since it was made."""
        made = [0] * (len(self._points) + 1)
        for storage in self._storages.values():
            if storage.role == "temporary":
                made[storage.born] += storage.size
                self._give(storage, "kept")
        for point, kept in zip(self._points, accumulate(made), strict=False):
            point["kept"] += kept
            point["temporary"] -= kept

    def _count(self, leaves: list[Any], operator: str) -> str:
        refusal = super()._count(leaves, operator)
        for key in self._sizes.keys() - self._storages.keys():
            role = "copies" if self._is_copy(leaves, operator) else self._new_role
            self._storages[key] = _Storage(role, self._sizes[key], born=len(self._points))
            self._alive[role] += self._sizes[key]
        if self._phase and operator.startswith("aten."):  # prim.device makes nothing
            self.note(operator)
        return refusal

    def _is_copy(self, leaves: list[Any], operator: str) -> bool:
        if operator != "aten._to_copy":
            return False
        source = self._storages.get(id(leaves[0].untyped_storage()))
        return source is not None and source.role == "weights"

    def _is_gradient(self, parameter: nn.Parameter) -> None:
        assert parameter.grad is not None
        self._give(self._storages[id(parameter.grad.untyped_storage())], "gradients")

    def _give(self, storage: "_Storage", role: str) -> None:
        self._alive[storage.role] -= storage.size
        self._alive[role] += storage.size
        storage.role = role

    def _forget(self, key: int) -> None:
        storage = self._storages.pop(key)
        self._alive[storage.role] -= storage.size
        super()._forget(key)


@dataclass
class _Storage:
    """A storage that is alive: what it holds, its bytes, how many points there were before it."""

    role: str
    size: int
    born: int


def highest(points: Iterable[StepPoint], *phases: str) -> StepPoint:
    """The point with the most bytes, of all or of some phases; the first of several."""
    return max((p for p in points if not phases or p.phase in phases), key=lambda p: p.total)
