"""``LossScaler``: ``torch.amp.GradScaler`` to be read in one sitting.

A loss scaler has four methods. ``scale`` multiplies the loss, so that small gradients survive in
fp16. ``unscale_`` looks for inf and NaN, then divides the gradients again. ``step`` runs the
optimizer unless something was found, and ``update`` chooses the next scale by the rule of
``scaling``. The rest of the module holds their order: each once a step, per optimizer.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from labkit.training.scaling import LossScale, NumericalInstability


class LossScaler:
    """A loss scaler that walks in step with ``torch.amp.GradScaler``, on any device.

    Fused optimizers are treated like others: they see unscaled gradients, and a skipped step does
    not reach them. GradScaler hands them scaled gradients, the scale and the inf. The bits are the
    same for scales that are powers of two; and fused SGD with momentum whose very first step is
    skipped there goes on with uninitialised memory (seen in torch 2.13), here with zeros.
    A fused optimizer none of whose parameters has a gradient takes its empty step, as there.

    GradScaler can do more: scale a list of losses, be given a new scale by ``update``, be
    disabled, and pass arguments on to ``optimizer.step``.

    Args:
        start: the state to start from, ``LossScale.static(scale)`` for a scale that stays.
        max_skips: so many skipped steps in a row raise NumericalInstability; None: never, as torch.
            Loading a state begins the count of them again.

    Attributes:
        state: the ``LossScale`` in force.

    Raises:
        RuntimeError, AssertionError, ValueError: a move out of order, no gradients, fp16 gradients;
            each where torch raises it, and of the same type.

    Source: torch/amp/grad_scaler.py.

    >>> weight = torch.nn.Parameter(torch.ones(()))
    >>> optimizer = torch.optim.SGD([weight], lr=0.25)
    >>> scaler = LossScaler(LossScale(scale=1024.0))
    >>> scaler.scale(2 * weight).backward()
    >>> weight.grad.item(), scaler.step(optimizer), weight.item()
    (2048.0, True, 0.5)
    >>> scaler.update()
    """

    def __init__(self, start: LossScale | None = None, *, max_skips: int | None = None) -> None:
        if max_skips is not None and not (isinstance(max_skips, int) and max_skips >= 1):
            raise ValueError(f"max_skips={max_skips!r}: pass a whole number from 1 on, or None")
        self.state = LossScale() if start is None else start
        self.max_skips = max_skips
        self._skips_in_a_row = 0
        self._has_scaled = False
        self._begin_iteration()

    def _begin_iteration(self) -> None:
        # Of each optimizer that was unscaled: was an inf or NaN found? None: it has no gradients.
        self._found_inf: dict[Optimizer, bool | None] = {}
        self._stepped: set[Optimizer] = set()

    def scale(self, loss: Tensor) -> Tensor:
        """The loss times the scale. An fp16 loss comes back in float32, where it does not overflow.

        Of a tensor with dimensions the dtype stays.
        """
        self._has_scaled = True
        return loss * torch.tensor(self.state.scale, dtype=torch.float32, device=loss.device)

    @torch.no_grad()
    def unscale_(self, optimizer: Optimizer) -> None:
        """Note whether a gradient of the optimizer is inf or NaN; divide all of them by the scale.

        Call it before you read or clip gradients; ``step`` calls it otherwise.
        """
        self._needs_scale("unscale_")
        if optimizer in self._stepped:
            raise RuntimeError(
                "unscale_() is being called after step(): its gradients are unscaled already. "
                "The order is scale, unscale_, step, update"
            )
        if optimizer in self._found_inf:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update(): "
                "a second time would divide its gradients twice"
            )
        gradients = _gradients(optimizer)
        finite = [bool(gradient.isfinite().all()) for gradient in gradients]
        self._found_inf[optimizer] = not all(finite) if gradients else None
        for gradient in gradients:
            gradient.mul_(self.state.inverse)

    def step(self, optimizer: Optimizer) -> bool:
        """Run ``optimizer.step()`` unless an inf or a NaN was found; return whether it ran.

        (GradScaler returns what ``optimizer.step()`` returned.)
        """
        self._needs_scale("step")
        if optimizer in self._stepped:
            raise RuntimeError(
                "step() has already been called since the last update(): call update() once, "
                "after the steps of all optimizers"
            )
        if optimizer not in self._found_inf:
            self.unscale_(optimizer)
        # A fused optimizer looks for inf by itself, so GradScaler does not ask what was found.
        is_fused = getattr(optimizer, "_step_supports_amp_scaling", False)
        if self._found_inf[optimizer] is None and not is_fused:
            raise AssertionError(
                "No inf checks were recorded for this optimizer: none of its parameters has a "
                "gradient. Call scale(loss).backward() first, on a loss that depends on them"
            )
        self._stepped.add(optimizer)
        if self._found_inf[optimizer]:
            return False
        optimizer.step()
        return True

    def update(self) -> None:
        """Choose the scale of the next step; once a step, after all optimizers.

        Raises:
            NumericalInstability: the ``max_skips``-th time in a row that an inf or NaN was found.
        """
        self._needs_scale("update")
        checks = [found for found in self._found_inf.values() if found is not None]
        if not checks:
            raise AssertionError(
                "No inf checks were recorded prior to update: call step(optimizer) first, and "
                "update() once"
            )
        self.state = self.state.updated(any(checks))
        self._skips_in_a_row = self._skips_in_a_row + 1 if any(checks) else 0
        self._begin_iteration()
        if self._skips_in_a_row == self.max_skips:
            raise NumericalInstability(
                f"inf or NaN in the gradients of {self.max_skips} steps in a row; the loss scale "
                f"is down to {self.state.scale:g}. Look at the loss: once it is inf or NaN itself, "
                "no scale helps"
            )

    def get_scale(self) -> float:
        return self.state.scale

    def state_dict(self) -> dict[str, float | int]:
        """The state with GradScaler's keys; either can load the other's."""
        return self.state.to_state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.state = LossScale.from_state_dict(state_dict)
        self._skips_in_a_row = 0

    def _needs_scale(self, move: str) -> None:
        if not self._has_scaled:
            raise AssertionError(
                f"{move}() before the first scale(): did you call backward() on the loss itself? "
                "Write scaler.scale(loss).backward()"
            )


def _gradients(optimizer: Optimizer) -> list[Tensor]:
    """The gradients of every parameter group, of a sparse one its values, to change in place."""
    gradients = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is None:
                continue
            if gradient.dtype == torch.float16:
                raise ValueError(
                    "Attempting to unscale FP16 gradients: what scaling has saved would be lost "
                    "again. Keep the parameters in float32 and let autocast cast them"
                )
            gradients.append(gradient._values() if gradient.is_sparse else gradient)
    return gradients
