"""In which order a loop makes its AMP calls, and what an order breaks.

A training step is modelled as calls and a state: are there gradients, are they scaled, has the
scaler seen them. ``record_calls`` writes down the calls of code that runs; ``misuses`` walks an
order, call by call, through that state, and says at each call what goes wrong. A walk goes round
twice, because some orders break only in the second iteration. Where there are several optimizers, a
letter behind a call says whose it is: "step B"; "backward AB" leaves gradients for both.

Source: torch/amp/grad_scaler.py of torch 2.13; the walk is compared with it in the tests.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from itertools import chain

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

BARE_STEP = "optimizer.step"
"""A step that the optimizer makes beside a scaler. Without a scaler it is the loop's "step"."""

_OF_SCALER = {"scale", "unscale_", "update", BARE_STEP}


class record_calls:
    """Inside the block, the calls of any training code are written down in ``.calls``, in order.

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
        self._noted: list[_Noted] = []
        self._depth = 0
        self._undo: list = []

    @property
    def calls(self) -> list[str]:
        """The calls so far; with a letter for each optimizer where there are several."""
        optimizers = list(dict.fromkeys(one.optimizer for one in self._noted if one.optimizer))
        scaled = any(one.call in _OF_SCALER - {BARE_STEP} for one in self._noted)
        return [_written(one, optimizers, scaled) for one in self._noted]

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
            register_optimizer_step_pre_hook(lambda *given: self._note(BARE_STEP, given)),
        )
        self._undo += [hook.remove for hook in hooks]
        return self

    def __exit__(self, *exception: object) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _note(self, call: str, given: Iterable = ()) -> None:
        # A scaler that is off hands its calls through.
        off = any(isinstance(x, torch.amp.GradScaler) and not x.is_enabled() for x in given)
        if self._depth or (off and call != "step"):
            return
        optimizer = next((x for x in given if isinstance(x, torch.optim.Optimizer)), None)
        loss = next((x for x in given if call == "backward"), None)
        reached = frozenset() if loss is None else frozenset(map(id, _leaves(loss)))
        self._noted.append(_Noted(BARE_STEP if off else call, optimizer, reached))

    def _forward(self) -> None:
        # A network's layers are modules too, and a loss may be one: the first counts.
        if not self._noted or self._noted[-1].call != "forward":
            self._note("forward")

    def _wrap(self, owner: object, name: str, call: str) -> None:
        original = getattr(owner, name)

        @wraps(original)
        def noted(*args, **kwargs):
            self._note(call, args)
            self._depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                self._depth -= 1

        setattr(owner, name, noted)
        self._undo.append(lambda: setattr(owner, name, original))


@dataclass(frozen=True)
class _Noted:
    call: str
    optimizer: torch.optim.Optimizer | None
    reached: frozenset[int]  # of a backward: the ids of the parameters that get a gradient


def _leaves(loss: torch.Tensor) -> Iterator[torch.Tensor]:
    """The parameters that a backward from this loss reaches."""
    waiting, seen = [loss.grad_fn], set()
    while waiting:
        function = waiting.pop()
        if function is None or function in seen:
            continue
        seen.add(function)
        if hasattr(function, "variable"):
            yield function.variable
        waiting += [following for following, _ in function.next_functions]


def _written(noted: _Noted, optimizers: list, scaled: bool) -> str:
    call = noted.call if scaled or noted.call != BARE_STEP else "step"
    if len(optimizers) < 2:
        return call
    whose = [
        "ABCDEFGH"[place]
        for place, optimizer in enumerate(optimizers)
        if optimizer is noted.optimizer
        or not noted.reached.isdisjoint(
            id(p) for p in chain(*(group["params"] for group in optimizer.param_groups))
        )
    ]
    return f"{call} {''.join(whose)}" if whose else call


@dataclass(frozen=True)
class Misuse:
    """What goes wrong at a call.

    Args:
        place: which call of the order, from 0.
        kind: "raises", "wrong" (the weights end elsewhere) or "style".
        sentence: what happens.
    """

    place: int
    kind: str
    sentence: str


def misuses(order: Iterable[str]) -> list[Misuse]:
    """What an order of calls breaks, when it is repeated as the body of a loop.

    An order with no call of a scaler is a loop without one, such as a BF16 or an FP32 loop.

    Args:
        order: names of ``CALLS`` or BARE_STEP, in the order in which one iteration makes them; of
            several optimizers with their letters, as ``record_calls`` writes them.

    Returns:
        At most one misuse a call, in the order of the calls. What is missing altogether is said at
        the call that misses it, or at the last one. After a call that raises nothing more is said.

    Raises:
        ValueError: a name that is not in ``CALLS``.

    >>> [misuse.sentence for misuse in misuses([call for call in CALLS if call != "unscale_"])]
    ['clips scaled gradients: with a scale of 65536 your real limit is 1/65536']
    >>> misuses(["enter autocast", "forward", "exit autocast", "backward", "step", "zero_grad"])
    []
    """
    order = list(order)
    calls = [_parsed(call) for call in order]
    walk, found = _Walk(calls), {}
    for _ in range(2):
        walk.begin()
        for place, (call, whose) in enumerate(calls):
            said = getattr(walk, _METHODS[call])(whose)
            if said is None:
                continue
            if said[0] == "raises":
                found[place] = Misuse(place, *said)
                return sorted(found.values(), key=_place)
            found.setdefault(place, Misuse(place, *said))
    if order and not any(call in ("step", BARE_STEP) for call, _ in calls):
        found[len(order) - 1] = Misuse(len(order) - 1, "wrong", "and no step: no weight ever moves")
    return sorted(found.values(), key=_place)


def _place(misuse: Misuse) -> int:
    return misuse.place


def _parsed(written: str) -> tuple[str, str]:
    """(call, letters of its optimizers): ("backward", "AB"), and "" for all of them."""
    if written in _METHODS:
        return written, ""
    call, _, whose = written.rpartition(" ")
    if call not in _METHODS or not whose.isupper():
        raise ValueError(f"call {written!r}: use one of {', '.join([*CALLS, BARE_STEP])}")
    return call, whose


@dataclass
class _State:
    """What an optimizer's gradients are, and what the scaler has done with them."""

    stage: str = "ready"  # "ready", "unscaled", "unchecked", "stepped"
    gradients: str = "none"  # what .grad holds: "none", "scaled" or "true"
    unused: bool = False  # a backward whose gradients no step has used
    stale: bool = False  # gradients of an earlier backward are among them


@dataclass
class _Walk:
    """A loop's state; each method is a call, and returns (kind, sentence) or None."""

    calls: list[tuple[str, str]]
    inside: bool = False  # an autocast block is open
    states: dict[str, _State] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = {call for call, _ in self.calls}
        self.has_scaler = not names.isdisjoint(_OF_SCALER)
        self.is_mixed = self.has_scaler or "enter autocast" in names
        self.ready = not self.has_scaler  # the scaler has scaled once, and has a state
        letters = {letter for _, whose in self.calls for letter in whose} or {""}
        self.states = {letter: _State() for letter in sorted(letters)}

    def begin(self) -> None:
        """An iteration begins: there is no loss of its own yet."""
        self.loss = "none"  # "none", "fresh", "used"
        self.scaled = False

    def of(self, whose: str) -> list[_State]:
        return [self.states[letter] for letter in whose] if whose else list(self.states.values())

    def zero_grad(self, whose):
        """Gradients become None."""
        lost = False
        for state in self.of(whose):
            lost |= state.unused
            state.gradients, state.unused, state.stale = "none", False, False
        if lost:
            return "wrong", "empties the gradients before a step has used them"
        return None

    def enter(self, whose):
        """A block opens."""
        nested, self.inside = self.inside, True
        if nested:
            return "wrong", "the block before was never closed: its cast weights are used on, stale"
        return None

    def leave(self, whose):
        """A block closes."""
        if not self.inside:
            return "raises", "closes a block that is not open"
        self.inside = False
        return None

    def forward(self, whose):
        """The network runs, and there is a loss."""
        self.loss, self.scaled = "fresh", False
        if self.is_mixed and not self.inside:
            return "wrong", "runs outside autocast: in float32, and nothing is mixed"
        return None

    def scale(self, whose):
        """The loss is multiplied."""
        if self.loss == "none":
            return "raises", "there is no loss yet"
        self.ready = self.scaled = True
        if self.loss == "used":
            return "wrong", "too late: backward has used the loss as it was"
        return None

    def backward(self, whose):
        """Gradients are added to what is there."""
        if self.loss == "none":
            return "raises", "there is no loss yet"
        if self.loss == "used":
            return "raises", "the graph is gone: backward has run already"
        self.loss, reached, stale, mixed = "used", self.of(whose), False, False
        for state in reached:
            # What no step has used yet is a micro-batch's, to be added to.
            if state.gradients != "none" and not state.unused:
                state.stale = stale = True
            mixed |= state.unused and state.gradients != ("scaled" if self.scaled else "true")
            state.gradients = "scaled" if self.scaled else "true"
            # A loss that reaches several networks leaves gradients that only one of them uses.
            state.unused = len(reached) == 1
        if stale and len(reached) == 1:
            reached[0].stale = False  # said here, and not again at the step
            return "wrong", "adds to the gradients of the iteration before: they were not emptied"
        if mixed:
            return "wrong", "adds scaled gradients to gradients that are not"
        if self.has_scaler and not self.scaled:
            return "wrong", "of a loss that is not scaled: small gradients underflow"
        if self.inside:
            return "style", "inside autocast: allowed, but the documentation advises to leave it"
        return None

    def unscale(self, whose):
        """Gradients are divided by the scale and checked for inf."""
        if not self.ready:
            return "raises", "the scaler has not scaled anything yet"
        (state,) = self.of(whose)
        if state.stage != "ready":
            already = "unscaled" if state.stage == "unscaled" else "stepped"
            return "raises", f"the scaler has {already} already, and no update came since"
        if state.gradients == "none":
            state.stage = "unchecked"
            return "wrong", "there are no gradients yet: nothing is checked"
        again, state.stage, state.gradients = state.gradients == "true", "unscaled", "true"
        if again:
            return "wrong", "divides gradients that are not scaled"
        return None

    def clip(self, whose):
        """Gradients are shortened to the limit."""
        states = self.of(whose)
        if all(state.gradients == "none" for state in states):
            return "wrong", "there are no gradients to clip"
        if len(states) == 1 and not states[0].unused:
            return "wrong", "after the step: nobody uses what you clip"
        if all(state.gradients == "scaled" for state in states):
            return (
                "wrong",
                "clips scaled gradients: with a scale of 65536 your real limit is 1/65536",
            )
        return None

    def step(self, whose):
        """The scaler unscales if nobody has, and steps or skips; or the optimizer steps alone."""
        if not self.ready:
            return "raises", "the scaler has not scaled anything yet"
        (state,) = self.of(whose)
        if self.has_scaler and state.stage == "stepped":
            return "raises", "a second step, and no update since the first"
        missing = state.gradients == "none"
        if self.has_scaler and (state.stage == "unchecked" or (state.stage == "ready" and missing)):
            return "raises", "there are no gradients: no inf check was recorded"
        twice = self.has_scaler and state.stage == "ready" and state.gradients == "true"
        state.stage = "stepped"
        return self._used(state) or (
            ("wrong", "divides gradients that are not scaled") if twice else None
        )

    def bare_step(self, whose):
        """The optimizer steps beside the scaler, with the gradients as they are."""
        (state,) = self.of(whose)
        scaled, unchecked = state.gradients == "scaled", state.stage != "unscaled"
        said = self._used(state)
        if scaled:
            return "wrong", "the optimizer does not unscale: its gradients still hold the scale"
        if unchecked:
            return said
        return "wrong", "the optimizer does not skip: an inf that unscale_ found is used"

    def _used(self, state):
        """A step uses the gradients of an optimizer."""
        if state.gradients == "none":
            return "wrong", "there are no gradients: no weight moves"
        old = len(self.states) == 1 and not state.unused
        stale, state.stale = state.stale, False
        state.unused, state.gradients = False, "true"
        if old:
            return "wrong", "uses the gradients of the iteration before"
        if stale:
            return "wrong", "uses gradients of an earlier backward too: they were not emptied"
        return None

    def update(self, whose):
        """The scale goes on, and inf checks are forgotten."""
        if not self.ready:
            return "raises", "the scaler has not scaled anything yet"
        stages = {state.stage for state in self.states.values()}
        if stages.isdisjoint({"unscaled", "stepped"}):
            return "raises", "no inf check was recorded since the last update"
        for state in self.states.values():
            state.stage = "ready"
        if "unscaled" in stages:
            return "wrong", "forgets that the gradients are unscaled: step will divide them again"
        return None


_METHODS = {
    "enter autocast": "enter",
    "exit autocast": "leave",
    "unscale_": "unscale",
    BARE_STEP: "bare_step",
} | {call: call for call in ("zero_grad", "forward", "scale", "backward", "clip", "step", "update")}
