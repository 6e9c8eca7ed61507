"""``Checkpointed``: a module that keeps its inputs for backward, and computes the rest again."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from labkit.labs.memory_and_many_gpus.counting import FlopCard, emptied, shapes_of
from labkit.measuring.card import fake_copy


@dataclass(frozen=True, kw_only=True)
class Recomputed:
    """What checkpointing a module saves and costs, for inputs of one shape.

    Args:
        saved_bytes: kept between forward and backward, parameters apart: the inputs.
        plain_bytes: what the module would keep without checkpointing, its inputs included.
        extra_flop: what backward computes again. As soon as it has all that it needs it stops, so
            this may be less than the FLOP of forward.
    """

    saved_bytes: int
    plain_bytes: int
    extra_flop: int


class Checkpointed(nn.Module):
    """Runs a module so that autograd keeps its inputs only; backward runs it a second time.

    Outputs and gradients have the bits of the plain module, under autocast and with dropout too:
    the second run has the autocast state and the random numbers of the first. Inputs need no
    gradient, so the module may be a model's first. Without gradients it is the plain module. What a
    module changes in forward, it changes twice, such as the statistics of batch norm.

    Args:
        module: any; its parameters stand below "module." in the state_dict.

    Raises:
        TypeError: it is no module.

    Source: Chen et al. 2016, arXiv:1604.06174; ``torch.utils.checkpoint`` does the work.

    >>> block = Checkpointed(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)))
    >>> _ = block(torch.ones(4, 8)).sum().backward()
    >>> block.report
    Recomputed(saved_bytes=128, plain_bytes=1152, extra_flop=2048)
    """

    def __init__(self, module: nn.Module) -> None:
        if not isinstance(module, nn.Module):
            raise TypeError(
                f"Checkpointed({module!r}): pass an nn.Module; for a function there is "
                "torch.utils.checkpoint.checkpoint(function, ..., use_reentrant=False)"
            )
        super().__init__()
        self.module = module
        self._last: _Call | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives for these arguments, which may be any."""
        if not torch.is_grad_enabled():
            return self.module(*args, **kwargs)
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        device = tensors[0].device.type if tensors else "cpu"
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        self._last = _Call(*shapes_of((args, kwargs)), device, dtype)
        return checkpoint(self.module, *args, use_reentrant=False, **kwargs)

    @property
    def report(self) -> Recomputed:
        """What the last call with gradients saved and will cost, counted on fake tensors.

        Raises:
            RuntimeError: there was no such call.
        """
        if self._last is None:
            raise RuntimeError("nothing to report yet: call the module once with gradients enabled")
        plain, once = _count(self.module, self._last)
        saved, twice = _count(Checkpointed(self.module), self._last)
        return Recomputed(saved_bytes=saved, plain_bytes=plain, extra_flop=twice - once)


@dataclass(frozen=True)
class _Call:
    """Arguments as shapes, and the autocast block around the call."""

    args: Any
    kwargs: Any
    device: str
    autocast: torch.dtype | None


def _count(module: nn.Module, call: _Call) -> tuple[int, int]:
    """The bytes that a call keeps for backward, and the FLOP of both."""
    module, mode = fake_copy(module)
    with mode, FlopCard().hold(module) as card:
        parameters = card.now
        args, kwargs = emptied((call.args, call.kwargs))
        autocast = call.autocast is not None
        with torch.autocast(call.device, dtype=call.autocast, enabled=autocast):
            out = module(*args, **kwargs)
        outputs = [x for x in tree_leaves(out) if isinstance(x, Tensor) and x.requires_grad]
        edges, shapes = [get_gradient_edge(x) for x in outputs], shapes_of(outputs)
        # Whoever reads the outputs keeps them; what the module itself keeps of them stays alive.
        del out, outputs
        torch.clear_autocast_cache()  # where the caller's own block is open, ours is not the last
        kept = card.now - parameters
        torch.autograd.backward(edges, [shape.empty().detach() for shape in shapes])
    return kept, card.flop
