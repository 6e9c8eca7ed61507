"""``BlockAdamW``: AdamW that stores its two moments in 8 bits, by blocks of 256 values."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

BLOCK = 256
"""How many codes share one float32 scale; torchao's block, of which Dettmers et al. take 2,048."""

_SLICE = 2**10 * BLOCK
"""How many values are in float32 at a time: 1 MiB a tensor."""

_CODES = {"first": torch.int8, "second": torch.uint8}


class BlockAdamW(torch.optim.Optimizer):
    """AdamW for float32 parameters whose moments take 2.03 bytes a parameter instead of 8.

    The first moment is stored as int8, the square root of the second as uint8, each block of 256 on
    a grid up to its largest value. A code is rounded up or down at random, so that small changes
    add up: to the nearest, a change of 1/1000 would be lost in each step. Where a block has a
    second moment at all no code of it is 0, so that no update is divided by eps.

    The arithmetic is in float32, for a slice of a parameter at a time. Libraries (torchao,
    bitsandbytes) do it in one kernel, on grids that are finer near 0.

    Source: Dettmers et al. 2021, arXiv:2110.02861.

    Raises:
        ValueError: a parameter that is not float32 or not contiguous.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        generator: torch.Generator | None = None,
    ) -> None:
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(parameters, settings)
        self.generator = generator
        for parameter in self._parameters():
            if parameter.dtype is not torch.float32 or not parameter.is_contiguous():
                raise ValueError(
                    f"a parameter is {parameter.dtype} with strides {parameter.stride()}: pass "
                    "contiguous float32 parameters, which autocast casts where it may"
                )

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As every optimizer's; torch would leave the codes in the parameters' dtype."""
        super().load_state_dict(state_dict)
        for state in self.state.values():
            for name, dtype in _CODES.items():
                state[name] = state[name].to(dtype)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update each parameter that has a gradient."""
        with torch.enable_grad():
            loss = closure() if closure is not None else None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            for name, dtype in _CODES.items():
                blocks = -(-parameter.numel() // BLOCK)
                state[name] = torch.zeros(blocks, BLOCK, dtype=dtype, device=parameter.device)
                state[f"{name} scale"] = torch.ones(blocks, 1, device=parameter.device)
        state["step"] += 1
        (b1, b2), t = group["betas"], state["step"]
        values, gradients = parameter.view(-1), gradient.reshape(-1)
        for start in range(0, len(values), _SLICE):
            p, g = (flat[start : start + _SLICE] for flat in (values, gradients))
            blocks = slice(start // BLOCK, -(-(start + len(p)) // BLOCK))
            m = self._read(state, "first", blocks)[: len(p)].lerp_(g, 1 - b1)
            v = self._read(state, "second", blocks)[: len(p)].square_()
            v.mul_(b2).addcmul_(g, g, value=1 - b2)
            p.mul_(1 - group["lr"] * group["weight_decay"])
            root = (v / (1 - b2**t)).sqrt_().add_(group["eps"])
            p.addcdiv_(m, root, value=-group["lr"] / (1 - b1**t))
            self._write(state, "first", blocks, m)
            self._write(state, "second", blocks, v.sqrt_())

    @staticmethod
    def _read(state: dict, name: str, blocks: slice) -> Tensor:
        return (state[name][blocks] * state[f"{name} scale"][blocks]).flatten()

    def _write(self, state: dict, name: str, blocks: slice, x: Tensor) -> None:
        codes, scales = state[name][blocks], state[f"{name} scale"][blocks]
        x = torch.nn.functional.pad(x, (0, codes.numel() - len(x))).view_as(codes)
        top = x.abs().amax(dim=1, keepdim=True)
        scales.copy_(top / torch.iinfo(codes.dtype).max).masked_fill_(top == 0, 1.0)
        x = x / scales
        x += torch.rand(x.shape, device=x.device, generator=self.generator)
        x.floor_().clamp_(max=torch.iinfo(codes.dtype).max)
        if name == "second":
            x.clamp_(min=1).mul_(top > 0)
        codes.copy_(x)
