"""How a training loop is judged: by where it ends, beside a run of the judge's own.

A loop is right when its losses and weights are. An answer's end is compared with the end of the
lab's own solution; if they differ, the judge runs the check's known wrong answers, and the idea of
one that ends where the answer ends is named: with the same weights, and with the same exception or
none. How an answer is written is never looked at.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from labkit.labs.engine.behaviour import same_failure
from labkit.labs.engine.checks import KEPT, KnownWrong, bind_seed
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.reading import AnswerError, Mistake, failure
from labkit.labs.engine.running import plain
from labkit.labs.engine.slips import Slip

# Two right loops may round in another order. Each step of ours has gradients within 2**-11, a run
# has up to 8 steps: 2**-8 of the way that the weights went. Mistakes measured here are 2**-4 away
# or more, so the limit stands between the two. The networks of the checks are smooth: at the kink
# of a ReLU two right loops of one rounding more or less go 2**-5 of the way apart at some seeds.
NEAR = 2.0**-6

# What torch's errors mean for a learner's loop, by a part of each.
SCALER_SAYS = {
    "recorded for this optimizer": (
        "None of the optimizer's weights had a gradient. Is backward() called before the step, on "
        "a loss that depends on them?"
    ),
    "_scale is None": (
        "The scaler has scaled no loss yet. On which tensor do you call backward()?"
    ),
    "recorded prior to update": (
        "Since the last `update`, the scaler has checked no gradient. In which order, and how "
        "often in an iteration, do `step` and `update` come?"
    ),
    "being called after step": (
        "Since the last `update`, `scaler.step` had been called already. With which call does an "
        "iteration end?"
    ),
    "unscale_() has already been called": (
        "`update` must come before the next `unscale_`, also after a step that overflows."
    ),
}

_Network = TypeVar("_Network", bound=nn.Module)


def seeded(seed: int, *shape: int, scale: float = 1.0) -> Tensor:
    """Normal numbers, the same on every machine."""
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def filled(network: _Network, seed: int) -> _Network:
    """The network with weights of its own, the same on every machine."""
    with torch.no_grad():
        for place, parameter in enumerate(network.parameters()):
            scale = 1 / math.sqrt(parameter.shape[-1]) if parameter.dim() > 1 else 0.1
            parameter.copy_(seeded(100 * seed + place, *parameter.shape, scale=scale))
    return network


def labels(seed: int, count: int, classes: int = 4) -> Tensor:
    """``count`` labels, the same on every machine."""
    return torch.randint(classes, (count,), generator=torch.Generator().manual_seed(seed))


def flat(network: nn.Module) -> Tensor:
    """All weights in one vector, as they are now."""
    return parameters_to_vector(network.parameters()).detach().clone()


class HeldPasses:
    """Counts sequences whose forward pass is held for a backward, and the most at once.

    ``met`` holds the dtypes of the network's outputs, sorted.
    """

    def __init__(self, network: nn.Module) -> None:
        self.held = self.most = 0
        self.met: list[str] = []
        network.register_forward_hook(self._forward)

    def _forward(self, module: nn.Module, args: Any, output: Any) -> None:
        self.met = sorted({*self.met, str(output.dtype)})
        count = len(args[0])
        self.most = max(self.most, self.held + count)
        if isinstance(output, Tensor) and output.requires_grad:
            self.held += count
            output.register_hook(lambda gradient: self._backward(count))

    def _backward(self, count: int) -> None:
        self.held -= count


@dataclass(frozen=True)
class Loop:
    """One exercise: how a loop is run, the lab's own solution, and how an end is shown.

    ``weights(shown)`` is the part of an end that no slip in reporting touches: where the weights
    went; ``reported(got, want)`` may name such a slip by its size. ``run``, ``evidence`` and
    ``reported`` get the check's seed where they have a parameter ``seed``. ``ends`` keeps the
    judge's own runs: one a loop, seed and process.
    """

    run: Callable[..., dict[str, Any]]
    right: Callable[..., Any]
    evidence: Callable[..., str]
    weights: Callable[[Any], Any]
    reported: Callable[..., str | None] | None = None
    ends: dict[Any, dict[str, Any]] = field(default_factory=dict)

    def end(self, loop: Any, *, seed: int = 0) -> dict[str, Any]:
        """Where a loop of the judge's own ends."""
        if (loop, seed) not in self.ends:
            if len(self.ends) >= KEPT:
                self.ends.clear()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                end = plain(bind_seed(self.run, seed)(loop))
            self.ends[loop, seed] = {k: end[k] for k in end if not k.endswith("at once")}
        return self.ends[loop, seed]

    def judge(self, got: Any, known_wrong: Sequence[KnownWrong | Slip], *, seed: int = 0) -> None:
        """Raise what is wrong with an answer's end; return when it is that of the solution.

        ``known_wrong`` holds the check's known wrong answers: one that ends alike is named.
        """
        want = self.end(self.right, seed=seed)
        if same_end(got, want):
            return
        ends = [(wrong.misconception, self.end(wrong.answer, seed=seed)) for wrong in known_wrong]
        fitting = {idea for idea, end in ends if same_end(got, end)}
        went = self.weights(got)
        if not fitting and not same_end(went, self.weights(want)) and _moves(went):
            fitting = {
                idea
                for idea, end in ends
                if same_end(went, self.weights(end)) and _fails_alike(got, end)
            }
        named = fitting.pop() if len(fitting) == 1 else None
        if named is None and self.reported:
            named = bind_seed(self.reported, seed)(got, want)
        if named is None and (failed := next(_failures(got), None)):
            said = f"{failure(failed)}."
            means = next((means for part, means in SCALER_SAYS.items() if part in said), "")
            raise AnswerError(f"{said} {means}".rstrip())
        evidence = bind_seed(self.evidence, seed)(got, want)
        raise Mistake(evidence, misconception=named, search=False)


def same_end(got: Any, want: Any) -> bool:
    """Whether two runs ended alike: tensors within NEAR of their movement, the rest as numbers."""
    if type(got) is Raised or type(want) is Raised:
        return same_failure(got, want)
    if isinstance(want, dict):
        return isinstance(got, dict) and all(
            key in got and same_end(got[key], want[key]) for key in want
        )
    if isinstance(want, (list, tuple)):
        if isinstance(got, torch.Tensor) and got.dim():
            got = got.unbind()
        same = isinstance(got, (list, tuple)) and len(got) == len(want)
        return same and all(same_end(a, b) for a, b in zip(got, want, strict=True))
    if isinstance(want, torch.Tensor):
        if not isinstance(got, torch.Tensor) or (got.shape, got.dtype) != (want.shape, want.dtype):
            return False
        if want.dim():
            finite = want.isfinite()  # what is inf or NaN in one is not finite in the other
            far = (got - want)[finite].norm() > NEAR * want[finite].norm()
            return torch.equal(got.isfinite(), finite) and not far
    if isinstance(want, (bool, str)) or want is None:
        return type(got) is type(want) and got == want
    if isinstance(got, bool):
        return False
    try:
        got, want = float(got), float(want)
    except (TypeError, ValueError, RuntimeError):
        return False
    if not math.isfinite(want):
        return not math.isfinite(got)
    return abs(got - want) <= NEAR * abs(want)


def _moves(weights: Any) -> bool:
    """Whether any weight went anywhere: two loops that raise at once end alike."""
    if isinstance(weights, torch.Tensor):
        return bool(weights.any())
    return isinstance(weights, list) and any(_moves(entry) for entry in weights)


def _failures(end: Any) -> Iterator[Raised]:
    """The exceptions of a run, in its order."""
    if type(end) is Raised:
        yield end
    elif isinstance(end, (dict, list, tuple)):
        for part in end.values() if isinstance(end, dict) else end:
            yield from _failures(part)


def _fails_alike(got: Any, want: Any) -> bool:
    """Whether both runs went through, or both raised first what is one mistake."""
    ours, theirs = next(_failures(got), None), next(_failures(want), None)
    return same_failure(ours, theirs) if ours and theirs else ours is theirs


def brief(value: Any) -> str:
    """A value as an evidence shows it: four digits, or an exception in a line."""
    if type(value) is Raised:
        first = value.message.split("\n")[0].split(". ")[0].rstrip(".")
        return f"{value.type_name}: {first}"
    try:
        return f"{float(value):.4g}"
    except (TypeError, ValueError, RuntimeError):
        return repr(value)[:60]


def first_other(got: Any, want: Sequence[Any]) -> tuple[int, Any, Any] | None:
    """(place, got, want) at the first entry of two lists that differs."""
    if not isinstance(got, (list, tuple)) or len(got) != len(want):
        return None
    pairs = enumerate(zip(got, want, strict=True))
    return next(((i, a, b) for i, (a, b) in pairs if not same_end(a, b)), None)
