"""The parts of a training run, in states that are exact on every machine.

A model with dropout, AdamW, a schedule, a loss scaler and the order of the data stand together as
in a real run. ``put`` sets them to drawn values instead of training them: the bits of a state are
then the same wherever they are made.
"""

import hashlib
from typing import Any

import torch
from torch import nn

GENERATOR = "torch's generator"
"""What ``state_of`` calls the state of torch's generator for the CPU."""


class DataOrder:
    """The place of a run in its data: a generator and a count."""

    def __init__(self) -> None:
        self.generator, self.position = torch.Generator(), 0

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state(), "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])
        self.position = state["position"]


class Box:
    """A part that holds one tensor."""

    def __init__(self, value: float) -> None:
        self.value = torch.tensor([value])

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def fresh(seed: int) -> dict[str, Any]:
    """The parts of a run that has just begun, by name; torch's generator is seeded too."""
    model = nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.Dropout(0.3), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.015625)
    parts = {
        "model": model,
        "optimizer": optimizer,
        "schedule": torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5),
        "scaler": torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=7),
        "data": DataOrder(),
    }
    optimizer.step()  # without gradients: the schedule warns where no step comes first
    draw = torch.Generator().manual_seed(_number(seed, 0))
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(_drawn(weight, draw))
    parts["data"].generator.manual_seed(_number(seed, 0))
    torch.manual_seed(_number(seed, 0) + 1)
    return parts


def put(parts: dict[str, Any], step: int, seed: int) -> None:
    """Put parts and torch's generator where the run of this seed stands after a step, above 0."""
    draw = torch.Generator().manual_seed(_number(seed, step))
    optimizer, scaler, data = parts["optimizer"], parts["scaler"], parts["data"]
    with torch.no_grad():
        for weight in parts["model"].parameters():
            weight.copy_(_drawn(weight, draw))
            moments = {"exp_avg": _drawn(weight, draw), "exp_avg_sq": _drawn(weight, draw) ** 2}
            optimizer.state[weight] = {"step": torch.tensor(float(step)), **moments}
    while parts["schedule"].last_epoch < step:
        parts["schedule"].step()
    counts = {"scale": 2.0 ** (8 + step % 5), "_growth_tracker": step % 7}
    scaler.load_state_dict(scaler.state_dict() | counts)
    data.generator.manual_seed(_number(seed, step))
    data.position = 16 * step
    torch.manual_seed(_number(seed, step) + 1)
    torch.rand(step)  # the seed alone is not the state


def generator_at(seed: int, step: int) -> str:
    """torch's generator as in ``state_of``, had the run of this step not drawn from it."""
    return _digest(torch.Generator().manual_seed(_number(seed, step) + 1).get_state())


def state_of(parts: dict[str, Any]) -> dict[str, Any]:
    """All that the parts and torch's generator hold: a path such as "model['0.weight']" -> value.

    Tensors are copies. The state of a generator is its SHA-256.
    """
    found: dict[str, Any] = {}
    for name, part in parts.items():
        _collect(name, part.state_dict(), found)
    return found | {GENERATOR: _digest(torch.get_rng_state())}


def _collect(path: str, value: Any, found: dict[str, Any]) -> None:
    if isinstance(value, (dict, list, tuple)) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            _collect(f"{path}[{key!r}]", item, found)
    elif isinstance(value, torch.Tensor):
        found[path] = _digest(value) if value.dtype == torch.uint8 else value.detach().clone()
    else:
        found[path] = value


def _digest(state: torch.Tensor) -> str:
    return hashlib.sha256(bytes(state.tolist())).hexdigest()


def _drawn(like: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    """Values between -0.5 and 0.5 with up to 23 significant bits."""
    return torch.randint(-(2**23), 2**23, like.shape, generator=draw).float() / 2**24


def _number(seed: int, step: int) -> int:
    return 1000 * (seed % 2**40) + 2 * step
