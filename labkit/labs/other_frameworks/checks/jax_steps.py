"""What the checks of lab 14's two training steps share: a run with probes, and a run by torch."""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from labkit.formats.dtypes import name_of
from labkit.labs.engine import AnswerError, Mistake
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.reading import failure, in_line
from labkit.labs.other_frameworks.frameworks import jax, jnp, optax

RAISED = "Your {name} raised {error}. {why}"
TRACED = (
    "Under `jit` a value is a placeholder: `float()`, `int()`, `.item()` and NumPy find no number "
    "in it."
)
NOT_SO_MANY = "Your {name} returns {came}; a tuple of {count:d} is asked for: {names}."
NO_WEIGHTS = (
    "The weights that you return are {came}; a dict of arrays with the names and shapes of those "
    "that came in is asked for."
)
NO_STATE = (
    "The state that you return has another form than the one that came in. `optimizer.update` "
    "returns (updates, state), in this order."
)
NO_SCALAR = "{what} is {came}; a scalar array is asked for."
NO_CALL = "Your {name} does not call `loss_of`, which computes the forward pass."
CALLED = (
    "Your {name} calls `loss_of` with {what} in {got}; {want} is wanted for all weights, biases "
    "and `x`."
)
DTYPE = "{what} is {got}; {want} is wanted."
GRADIENTS = "The gradients that `optimizer.update` gets are {got}; float32 is wanted."
NO_UPDATE = (
    "The state that you return after a good step is the one that came in. "
    "Which of the two values of `optimizer.update` is the new state?"
)
GRADIENT = (
    "In step 0 the gradient of `{name}` that the optimizer gets has a norm of {got}; {want} is "
    "wanted. {why}"
)
LOSS = "Step {step:d} returns a loss of {got}; {want} is wanted. {why}"
STILL = "After {steps:d} steps with {optimizer} `{name}` is what it was at the start."
ASTRAY = (
    "After {steps:d} steps with {optimizer} `{name}` is off by {away:.0%} of the way that it must "
    "go. {why}"
)
ROUNDED = (
    "After {steps:d} steps all values of your weights are {narrow} values, in float32. Each step "
    "rounds them."
)
BACKWARDS = (
    "Your weights go the opposite way: `updates` hold the minus already, and `optax.apply_updates` "
    "adds them."
)
RESTARTED = (
    "They come out if the optimizer gets its first state in each step. Which state do you return?"
)

NAMES = "w1", "b1", "w2", "b2"
_BRANCH = "TracerBoolConversionError"
_NO_VALUE = (
    "ConcretizationTypeError",
    "TracerArrayConversionError",
    "TracerIntegerConversionError",
)
NEAR = 0.05
"""Of the way that weights go: right steps differ by 0.01, as two libraries round unalike."""


# Beside the answer


def jax_cross_entropy(weights: Any, x: Any, y: Any) -> Any:
    """The notebook's ``loss_of``: a mean crossentropy in float32, one hidden layer, tanh."""
    hidden = jnp.tanh(x @ weights["w1"] + weights["b1"])
    logits = (hidden @ weights["w2"] + weights["b2"]).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


class JaxHeard:
    """What a step does: the dtypes in its calls of the loss, and of what its optimizer gets."""

    def __init__(self) -> None:
        self.calls: list[dict[str, str]] = []
        self.gradients: list[str] = []

    def loss(self, function: Any) -> Any:
        """The function, overheard."""

        def loss_of(weights: Any, x: Any, y: Any) -> Any:
            dtypes = {name: str(value.dtype) for name, value in weights.items()}
            self.calls.append(dtypes | {"x": str(x.dtype)})
            return function(weights, x, y)

        return loss_of

    def optimizer(self, own: Any) -> Any:
        """The optimizer, overheard; its state counts updates and keeps the last gradients."""

        def init(weights: Any) -> Any:
            got = jax.tree.map(jnp.zeros_like, weights)
            return {"got": got, "count": jnp.int32(0), "own": own.init(weights)}

        def update(gradients: Any, state: Any, weights: Any = None) -> Any:
            leaves = jax.tree.leaves(gradients)
            self.gradients = sorted({*self.gradients, *(str(leaf.dtype) for leaf in leaves)})
            updates, changed = own.update(gradients, state["own"], weights)
            got = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), gradients)
            return updates, {"got": got, "count": state["count"] + 1, "own": changed}

        return optax.GradientTransformation(init, update)


def formed(returned: Any, before: tuple[Any, Any], count: int) -> dict[str, Any] | None:
    """What a step returned, as a judge quotes it, where it has not the form that is asked for.

    Args:
        returned: by the step; it begins with weights and state, and all that follows is scalar.
        before: weights and state as they came in.
        count: of values that are asked for.
    """
    if not isinstance(returned, (tuple, list)) or len(returned) != count:
        return {"came": _came(returned)}
    weights, state, *scalars = returned
    shapes = {name: np.shape(one) for name, one in weights.items()} if _is_dict(weights) else {}
    if shapes != {name: np.shape(one) for name, one in before[0].items()}:
        return {"weights": _came(weights)}
    if jax.tree.structure(state) != jax.tree.structure(before[1]):
        return {"state": True}
    for place, one in enumerate(scalars):
        if np.shape(one) != ():
            return {"scalar": [place, _came(one)]}
    return None


def _is_dict(weights: Any) -> bool:
    return isinstance(weights, dict) and all(hasattr(one, "dtype") for one in weights.values())


def _came(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" if shape is None else f"an array of shape {shape}"


def to_torch(tree: dict[str, Any]) -> dict[str, torch.Tensor]:
    """A dict of JAX's arrays as float32 tensors."""
    return {name: torch.from_numpy(np.array(value, np.float32)) for name, value in tree.items()}


def dtypes_of(weights: Any, state: Any) -> dict[str, str]:
    """The dtype of the weights and of the floats in a state; two of them joined by "and"."""
    own = [str(leaf.dtype) for leaf in jax.tree.leaves(state["own"]) if leaf.dtype != jnp.int32]
    return {
        "A weight": " and ".join(sorted({str(one.dtype) for one in weights.values()})),
        "The optimizer's state": " and ".join(sorted(set(own))),
    }


# In the judge


@dataclass(frozen=True, kw_only=True)
class JaxCase:
    """One run with one optimizer, as the judge's sentences call it.

    ``name`` is the answer's; ``returns`` names its values; ``narrow`` the matmuls' dtype.
    """

    name: str
    optimizer: str
    returns: tuple[str, ...]
    narrow: str


def judge_form(got: Any, case: JaxCase) -> None:
    """Raise where a run ended early: an exception, or values of another form."""
    if type(got) is Raised:
        said = {"name": case.name, "error": got.type_name + in_line(got), "why": ""}
        if got.type_name == _BRANCH:
            raise Mistake(RAISED, misconception="branches-see-values", search=False, **said)
        if got.type_name in _NO_VALUE:
            raise AnswerError(RAISED, **said | {"why": TRACED})
        raise AnswerError(RAISED, **said | {"error": failure(got)})
    wrong = got.get("wrong")
    if wrong is None:
        return
    if "came" in wrong:
        names, count = ", ".join(case.returns), len(case.returns)
        said = {"name": case.name, "came": wrong["came"], "count": count, "names": names}
        raise Mistake(NOT_SO_MANY, search=False, **said)
    if "weights" in wrong:
        raise Mistake(NO_WEIGHTS, search=False, came=wrong["weights"])
    if "scalar" in wrong:
        place, came = wrong["scalar"]
        raise Mistake(NO_SCALAR, search=False, what=f"`{case.returns[2 + place]}`", came=came)
    raise Mistake(NO_STATE, search=False)


def judge_casts(got: dict[str, Any], case: JaxCase) -> None:
    """Raise where a matmul has an operand that is not narrow, by the calls of ``loss_of``."""
    if not got["calls"]:
        raise Mistake(NO_CALL, search=False, name=case.name)
    for call in got["calls"]:
        other = {name: call[name] for name in (*NAMES, "x") if call[name] != case.narrow}
        if not other:
            continue
        dtype = next(iter(other.values()))
        alike = [name for name in other if other[name] == dtype]
        idea = None
        if dtype == "float32" and alike == ["x"]:
            idea = "matmuls-follow-the-weight"
        elif dtype == "float32" and alike == ["b1", "b2"]:
            idea = "one-wide-operand-stays-alone"
        said = {"what": " and ".join(f"`{one}`" for one in alike), "got": dtype}
        said |= {"want": case.narrow, "name": case.name}
        raise Mistake(CALLED, misconception=idea, search=False, **said)


def judge_dtypes(got: dict[str, Any], wanted: dict[str, str]) -> None:
    """Raise at the first value, and then at gradients, of another dtype than wanted."""
    for what, want in wanted.items():
        if got["dtypes"][what] != want:
            narrow = got["dtypes"][what] in ("float16", "bfloat16")
            idea = "masters-are-a-cast" if what == "A weight" and narrow else None
            said = {"what": what, "got": got["dtypes"][what] or "missing", "want": want}
            raise Mistake(DTYPE, misconception=idea, search=False, **said)
    if got["gradients"] != ["float32"]:
        idea = None
        if len(got["gradients"]) == 1 and got["gradients"][0] in ("float16", "bfloat16"):
            idea = "a-cast-outside-changes-nothing"
        heard = " and ".join(got["gradients"]) or "missing"
        raise Mistake(GRADIENTS, misconception=idea, search=False, got=heard)


_OPTIMIZERS = {
    "SGD": functools.partial(torch.optim.SGD, momentum=0.9),
    "Adam": torch.optim.Adam,
}


class TorchRun:
    """The same network in torch: float32 weights, 16-bit matmuls, and torch's optimizers.

    Args:
        weights: at the start.
        dtype: of the matmuls.
        factor: of the loss.
        optimizer: "SGD", with momentum, or "Adam".
        maximize: whether the run goes the opposite way.
        forgets: whether each step begins with the optimizer's first state.
    """

    def __init__(
        self,
        weights: dict[str, np.ndarray],
        *,
        dtype: torch.dtype,
        factor: float,
        optimizer: str,
        lr: float,
        maximize: bool = False,
        forgets: bool = False,
    ) -> None:
        self.weights = {name: torch.from_numpy(value.copy()) for name, value in weights.items()}
        self.dtype, self.factor, self.forgets = dtype, factor, forgets
        self.optimizer = _OPTIMIZERS[optimizer](
            list(self.weights.values()), lr=lr, maximize=maximize
        )

    def loss_and_gradients(
        self, x: np.ndarray, y: np.ndarray, scale: float = 1.0
    ) -> tuple[float, dict[str, torch.Tensor]]:
        """The loss, times the factor, and its unscaled gradients."""
        leaves = {name: value.clone().requires_grad_() for name, value in self.weights.items()}
        narrow = {name: leaf.to(self.dtype) for name, leaf in leaves.items()}
        hidden = torch.tanh(torch.from_numpy(x).to(self.dtype) @ narrow["w1"] + narrow["b1"])
        logits = (hidden @ narrow["w2"] + narrow["b2"]).float()
        labels = torch.from_numpy(y).long()
        loss = self.factor * torch.nn.functional.cross_entropy(logits, labels)
        (loss * scale).backward()
        return loss.item(), {name: leaf.grad / scale for name, leaf in leaves.items()}

    def step(self, gradients: dict[str, torch.Tensor]) -> None:
        """One update."""
        if self.forgets:
            self.optimizer.state.clear()
        for name, gradient in gradients.items():
            self.weights[name].grad = gradient
        self.optimizer.step()


def judge_rounding(got: dict[str, torch.Tensor], narrow: torch.dtype, *, steps: int) -> None:
    """Raise where all weights are values of the narrow dtype."""
    if all(torch.equal(got[name], got[name].to(narrow).float()) for name in NAMES):
        said = {"steps": steps, "narrow": name_of(narrow)}
        raise Mistake(ROUNDED, misconception="masters-are-a-cast", search=False, **said)


def judge_way(
    got: dict[str, torch.Tensor],
    start: dict[str, np.ndarray],
    ends: dict[str, dict[str, torch.Tensor]],
    *,
    steps: int,
    optimizer: str,
) -> None:
    """Raise where weights did not go where they must.

    Args:
        got: the answer's last weights.
        start: the first ones.
        ends: where they must end, by "", and where one mistake leads, by the sentence about it.
        steps: that were run.
        optimizer: its name.
    """
    aways = {
        why: {name: _away(got[name], end[name], start[name]) for name in NAMES}
        for why, end in ends.items()
    }
    for name in NAMES:
        if not aways[""][name] <= NEAR:
            said = {"steps": steps, "optimizer": optimizer, "name": name}
            if np.array_equal(got[name].numpy(), start[name]):
                raise Mistake(STILL, search=False, **said)
            why = next((why for why in ends if why and max(aways[why].values()) <= NEAR), "")
            raise Mistake(ASTRAY, search=False, away=aways[""][name], why=why, **said)


def _away(got: torch.Tensor, want: torch.Tensor, start: np.ndarray) -> float:
    """How far a weight is from where it must be, as a share of the way that it must go."""
    if got.shape != want.shape:
        return math.inf
    way = (want - torch.from_numpy(start)).double().norm().item()
    return (got - want).double().norm().item() / way


def judge_loss(step: int, got: float, want: float, reasons: dict[str, float]) -> None:
    """Raise where a loss is off by over 2 %; ``reasons`` are sentences, with the loss they give."""
    if abs(got - want) <= 0.02 * want:
        return
    why = next((why for why, other in reasons.items() if abs(got - other) <= 0.02 * other), "")
    raise Mistake(LOSS, search=False, step=step, got=got, want=want, why=why)


def judge_gradients(
    got: dict[str, torch.Tensor],
    want: dict[str, torch.Tensor],
    updates: int,
    why: Any = lambda got, want: ("", None),
) -> None:
    """Raise where a gradient of the first step is off by over 5 %.

    ``updates`` counts those of the state that came back; ``why(got, want)`` is a sentence about
    the first such gradient, and the id of its misconception.
    """
    if not updates:
        raise Mistake(NO_UPDATE, search=False)
    for name in NAMES:
        is_off = got[name].shape != want[name].shape
        is_off = is_off or not (got[name] - want[name]).norm() <= NEAR * want[name].norm()
        if is_off:
            said, idea = why(got[name], want[name])
            norms = {"got": got[name].norm().item(), "want": want[name].norm().item()}
            raise Mistake(GRADIENT, misconception=idea, search=False, name=name, why=said, **norms)
