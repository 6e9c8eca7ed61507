"""In which order a loop makes its AMP calls, and what an order breaks.

A training step under AMP is modelled as nine calls and a state: are there gradients, are they
scaled, has the scaler seen them. ``record_calls`` writes down the calls of code that runs;
``faults`` walks an order, call by call, through that state, and says at each call what goes wrong.
A walk goes round twice, because some orders break only in the second iteration.

Source: torch/amp/grad_scaler.py of torch 2.13; the walk is compared with it in the tests.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import wraps

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

CALLS = (
    "zero_grad",
    "enter autocast",
    "forward",
    "exit autocast",
    "scale",
    "backward",
    "unscale_",
    "clip",
    "step",
    "update",
)
"""The calls of one step, in an order that is right."""


class record_calls:
    """Inside the block, the AMP calls of any code are written down in ``.calls``, in order.

    A call that another makes is not written down: ``scaler.step`` unscales by itself. Clipping is
    seen through ``torch.nn.utils``. One block at a time.

    >>> weight = torch.nn.Parameter(torch.ones(1))
    >>> optimizer = torch.optim.SGD([weight], lr=0.1)
    >>> with record_calls() as recorder:
    ...     optimizer.zero_grad()
    ...     (2 * weight).backward()
    ...     optimizer.step()
    >>> recorder.calls
    ['zero_grad', 'backward', 'step']
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._depth = 0
        self._undo: list = []

    def __enter__(self) -> "record_calls":
        scaler, utils = torch.amp.GradScaler, torch.nn.utils
        self._wrap(torch.optim.Optimizer, "zero_grad", "zero_grad")
        self._wrap(torch.autocast, "__enter__", "enter autocast")
        self._wrap(torch.autocast, "__exit__", "exit autocast")
        self._wrap(torch.Tensor, "backward", "backward")
        for name in ("scale", "unscale_", "step", "update"):
            self._wrap(scaler, name, name)
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            self._wrap(utils, name, "clip")
        hooks = (
            register_module_forward_pre_hook(lambda module, inputs: self._forward()),
            register_optimizer_step_pre_hook(lambda *_: self._note("step")),
        )
        self._undo += [hook.remove for hook in hooks]
        return self

    def __exit__(self, *exception: object) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _note(self, call: str) -> None:
        if not self._depth:
            self.calls.append(call)

    def _forward(self) -> None:
        # A network's layers are modules too, and a loss may be one: the first counts.
        if not self.calls or self.calls[-1] != "forward":
            self._note("forward")

    def _wrap(self, owner: object, name: str, call: str) -> None:
        original = getattr(owner, name)

        @wraps(original)
        def noted(*args, **kwargs):
            self._note(call)
            self._depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                self._depth -= 1

        setattr(owner, name, noted)
        self._undo.append(lambda: setattr(owner, name, original))


@dataclass(frozen=True)
class Fault:
    """What goes wrong at a call.

    Args:
        place: which call of the order, from 0.
        kind: "raises", "wrong" (the weights end elsewhere) or "style".
        sentence: what happens.
    """

    place: int
    kind: str
    sentence: str


def faults(order: Iterable[str]) -> list[Fault]:
    """What an order of calls breaks, when it is repeated as the body of a loop.

    Args:
        order: names of ``CALLS``, in the order in which one iteration makes them.

    Returns:
        At most one fault a call, in the order of the calls. What is missing altogether is said at
        the call that misses it, or at the last one. After a call that raises nothing more is said.

    Raises:
        ValueError: a name that is not in ``CALLS``.

    >>> [fault.sentence for fault in faults([call for call in CALLS if call != "unscale_"])]
    ['clips scaled gradients: with a scale of 65536 your real limit is 1/65536']
    """
    order = list(order)
    for call in order:
        if call not in CALLS:
            raise ValueError(f"call {call!r}: use one of {', '.join(CALLS)}")
    walk, found = _Walk(), {}
    for _ in range(2):
        walk.begin()
        for place, call in enumerate(order):
            said = getattr(walk, _METHODS[call])()
            if said is None:
                continue
            if said[0] == "raises":
                found[place] = Fault(place, *said)
                return sorted(found.values(), key=_place)
            found.setdefault(place, Fault(place, *said))
    if order and "step" not in order:
        found[len(order) - 1] = Fault(len(order) - 1, "wrong", "and no step: no weight ever moves")
    return sorted(found.values(), key=_place)


def _place(fault: Fault) -> int:
    return fault.place


class _Walk:
    """A loop's state; each method is a call, and returns (kind, sentence) or None."""

    def __init__(self) -> None:
        self.inside = False  # an autocast block is open
        self.ready = False  # the scaler has scaled once, and has a state
        self.stage = "ready"  # of the scaler and its optimizer: "ready", "unscaled", "stepped"
        self.gradients = "none"  # what .grad holds: "none", "scaled" or "true"
        self.unused = False  # a backward whose gradients no step has used

    def begin(self) -> None:
        """An iteration begins: there is no loss of its own yet."""
        self.loss = "none"  # "none", "fresh", "used"
        self.scaled = False

    def zero_grad(self):
        """Gradients become None."""
        lost, self.gradients, self.unused = self.unused, "none", False
        if lost:
            return "wrong", "empties the gradients before a step has used them"
        return None

    def enter(self):
        """A block opens."""
        nested, self.inside = self.inside, True
        if nested:
            return "wrong", "the block before was never closed: its cast weights are used on, stale"
        return None

    def leave(self):
        """A block closes."""
        if not self.inside:
            return "raises", "closes a block that is not open"
        self.inside = False
        return None

    def forward(self):
        """The network runs, and there is a loss."""
        self.loss, self.scaled = "fresh", False
        if not self.inside:
            return "wrong", "runs outside autocast: in float32, and nothing is mixed"
        return None

    def scale(self):
        """The loss is multiplied."""
        if self.loss == "none":
            return "raises", "there is no loss yet"
        self.ready = self.scaled = True
        if self.loss == "used":
            return "wrong", "too late: backward has used the loss as it was"
        return None

    def backward(self):
        """Gradients are added to what is there."""
        if self.loss == "none":
            return "raises", "there is no loss yet"
        if self.loss == "used":
            return "raises", "the graph is gone: backward has run already"
        stale, self.loss, self.unused = self.gradients != "none", "used", True
        self.gradients = "scaled" if self.scaled else "true"
        if stale:
            return "wrong", "adds to the gradients of the iteration before: they were not emptied"
        if not self.scaled:
            return "wrong", "of a loss that is not scaled: small gradients underflow"
        if self.inside:
            return "style", "inside autocast: allowed, but the documentation advises to leave it"
        return None

    def unscale(self):
        """Gradients are divided by the scale and checked for inf."""
        if not self.ready:
            return "raises", "the scaler has not scaled anything yet"
        if self.stage != "ready":
            already = "unscaled" if self.stage == "unscaled" else "stepped"
            return "raises", f"the scaler has {already} already, and no update came since"
        if self.gradients == "none":
            self.stage = "unchecked"
            return "wrong", "there are no gradients yet: nothing is checked"
        divided_again, self.stage, self.gradients = self.gradients == "true", "unscaled", "true"
        if divided_again:
            return "wrong", "divides gradients that are not scaled"
        return None

    def clip(self):
        """Gradients are shortened to the limit."""
        if self.gradients == "none":
            return "wrong", "there are no gradients to clip"
        if not self.unused:
            return "wrong", "after the step: nobody uses what you clip"
        if self.gradients == "scaled":
            return (
                "wrong",
                "clips scaled gradients: with a scale of 65536 your real limit is 1/65536",
            )
        return None

    def step(self):
        """The scaler unscales if nobody has, and steps or skips."""
        if not self.ready:
            return "raises", "the scaler has not scaled anything yet"
        if self.stage == "stepped":
            return "raises", "a second step, and no update since the first"
        if self.stage == "unchecked" or (self.stage == "ready" and self.gradients == "none"):
            return "raises", "there are no gradients: no inf check was recorded"
        twice = self.stage == "ready" and self.gradients == "true"
        old, self.unused = not self.unused, False
        self.stage, self.gradients = "stepped", "true"
        if old:
            return "wrong", "uses the gradients of the iteration before"
        if twice:
            return "wrong", "divides gradients that are not scaled"
        return None

    def update(self):
        """The scale goes on, and inf checks are forgotten."""
        if not self.ready:
            return "raises", "the scaler has not scaled anything yet"
        if self.stage in ("ready", "unchecked"):
            return "raises", "no inf check was recorded since the last update"
        early, self.stage = self.stage == "unscaled", "ready"
        if early:
            return "wrong", "forgets that the gradients are unscaled: step will divide them again"
        return None


_METHODS = {
    "enter autocast": "enter",
    "exit autocast": "leave",
    "unscale_": "unscale",
} | {call: call for call in ("zero_grad", "forward", "scale", "backward", "clip", "step", "update")}
