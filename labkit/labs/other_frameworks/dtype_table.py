"""One FP16 training step in PyTorch, Keras and JAX: the dtype of each value in it, by probes."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.emulation import emulate_gpu
from labkit.formats.dtypes import name_of
from labkit.labs.other_frameworks.frameworks import jax, jnp, keras, loss_for, optax, policy
from labkit.labs.other_frameworks.mlp import batch, mlp

ROLES = (
    "stored weights",
    "matmul: input",
    "matmul: weight",
    "matmul: result",
    "loss",
    "gradient for the optimizer",
    "Adam's moments",
    "loss scale at the start",
)
Column = dict[str, str]


def torch_column(network: nn.Module, optimizer: torch.optim.Optimizer) -> Column:
    """A step under FP16 autocast with a GradScaler, by CUDA's rules.

    Args:
        network: float32; its first parameter is the weight of a linear layer that reads the input.
        optimizer: Adam, over its parameters.
    """
    first = next(network.parameters())
    x, y = torch.rand(8, first.shape[1]), torch.zeros(8, dtype=torch.long)
    scaler = torch.amp.GradScaler("cpu")
    with emulate_gpu():
        with torch.autocast("cpu", dtype=torch.float16), _Matmuls() as matmuls:
            loss = F.cross_entropy(network(x), y)
        scaler.scale(loss).backward()
    scale = scaler.get_scale()
    scaler.step(optimizer)
    moments = optimizer.state[first]["exp_avg"]
    return _column(first, *matmuls.found[0], loss, first.grad, moments, scale)


def keras_column() -> Column:
    """A step under the policy mixed_float16, on the torch backend.

    The matmul's dtypes are those that its layer gives and gets: on a CPU Keras then multiplies in
    float32, and rounds.
    """
    seen = []

    class Probed(keras.layers.Dense):
        def call(self, inputs: Any, training: bool | None = None) -> Any:
            outputs = super().call(inputs)
            seen.append((inputs, keras.ops.convert_to_tensor(self.kernel), outputs))
            return outputs

    with policy("mixed_float16"):
        last = keras.layers.Dense(10, dtype="float32")
        model = keras.Sequential([keras.Input((64,)), Probed(32), last])
        model.compile("adam")
    optimizer, weights = model.optimizer, model.trainable_variables
    optimizer.build(weights)
    logits = model(torch.rand(8, 64), training=True)
    labels = torch.zeros(8, dtype=torch.long)
    loss = loss_for(model, labels.numpy())(labels, logits)
    optimizer.scale_loss(loss).backward()
    scale = float(optimizer.dynamic_scale)
    gradients = [weight.value.grad for weight in weights]
    with torch.no_grad():
        optimizer.apply(gradients, weights)
    moments = next(v for v in optimizer.inner_optimizer.variables if "momentum" in v.path)
    return _column(weights[0].value, *seen[-1], loss, gradients[0], moments.value, scale)


def jax_column(
    step: Callable[..., Any],
    loss_of: Callable[..., Any],
    matmul_dtypes: Callable[..., list[tuple[str, str, str]]],
) -> Column:
    """A step that scales the loss itself.

    Args:
        step: (weights, state, scale, good, x, y, loss_of, optimizer) -> the first four and a loss.
        loss_of: (weights, x, y) -> a float32 loss.
        matmul_dtypes: (function, *args) -> (left, right, result) of each matmul.
    """
    seen = []
    adam = optax.adam(1e-3)

    def update(gradients: Any, state: Any, weights: Any) -> Any:
        seen.append(gradients["w1"].dtype)
        return adam.update(gradients, state, weights)

    weights, scale = mlp(), 2.0**15
    state = adam.init(weights)
    args = (weights, state, jnp.float32(scale), jnp.int32(0), *batch())

    def run(*args: Any) -> Any:
        return step(*args, loss_of, optax.GradientTransformation(adam.init, update))

    left, right, result = matmul_dtypes(run, *args)[0]
    weights, state, *_, loss = jax.eval_shape(run, *args)
    moments = state[0].mu["w1"]
    return _column(weights["w1"], left, right, result, loss, seen[0], moments, scale)


class _Matmuls(TorchDispatchMode):
    """While it is open: the dtypes (left, right, result) of each matmul that torch runs."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name in ("mm", "addmm", "bmm"):
            left, right = args[1:3] if name == "addmm" else args[:2]
            self.found.append((_name(left), _name(right), _name(result)))
        return result


def _column(*values: Any) -> Column:
    named = [f"{v:g}" if isinstance(v, float) else _name(v) for v in values]
    return dict(zip(ROLES, named, strict=True))


def _name(value: Any) -> str:
    """The name of a dtype, or of a value's dtype."""
    return name_of(getattr(value, "dtype", value))
