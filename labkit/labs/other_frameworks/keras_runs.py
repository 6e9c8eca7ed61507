"""A classifier of digits in Keras under a dtype policy, with each of three output layers."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.labs.other_frameworks.frameworks import check_labels, keras, loss_for, policy
from labkit.training.data import digits

HEADS = ("logits", "softmax", "softmax in float32")


@dataclass(frozen=True, kw_only=True)
class KerasRun:
    """A run of ``fit_digits``.

    Args:
        losses: the mean loss of each epoch.
        accuracy: of the last epoch, on the training images.
        dtypes: compute dtype, variable dtype and output dtype of each layer with weights.
        optimizer: the class of the optimizer that ``compile`` left in the model.
        loss_scale: at the end; None without a loss scale.
        steps, steps_taken: batches, and those of them after which weights were updated.
        moved: the share of weights that differ from their start.
    """

    losses: tuple[float, ...]
    accuracy: float
    dtypes: tuple[tuple[str, str, str], ...]
    optimizer: str
    loss_scale: float | None
    steps: int
    steps_taken: int
    moved: float


def classifier(head: str = "logits") -> Any:
    """Images of 8 x 8 to ten classes, in the global dtype policy.

    Args:
        head: "logits", or an activation softmax in the policy's dtype or "in float32".
    """
    if head not in HEADS:
        raise ValueError(f"head is {head!r}; it must be one of {', '.join(HEADS)}.")
    last = {} if head == "softmax" else {"dtype": "float32"}
    activation = None if head == "logits" else "softmax"
    return keras.Sequential(
        [
            keras.Input((8, 8)),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation=activation, **last),
        ]
    )


def fit_digits(
    name: str,
    *,
    head: str = "logits",
    from_logits: bool | None = None,
    one_hot: bool = False,
    beta_2: float = 0.999,
    initial_scale: float | None = None,
    brightest: float = 1.0,
    epochs: int = 3,
    seed: int = 0,
) -> KerasRun:
    """Train the classifier with Adam on 1,438 digits in batches of 64, on the torch backend.

    Args:
        name: of a dtype policy, such as "mixed_float16".
        head: one of HEADS.
        from_logits: what the loss is told about the head; None tells it the truth.
        one_hot: the labels are one-hot rows instead of integers.
        beta_2: Adam's.
        initial_scale: of the loss scale; None leaves Keras its own.
        brightest: the value of a white pixel.
    """
    data = digits()
    images = brightest * data.train_images.squeeze(1).numpy()
    labels = data.train_labels.numpy()
    if one_hot:
        labels = keras.utils.to_categorical(labels)
    with policy(name):
        keras.utils.set_random_seed(seed)
        model = classifier(head)
        loss = loss_for(model, labels)
        if from_logits is not None:
            loss = type(loss)(from_logits=from_logits)
        check_labels(labels, loss)
        optimizer = keras.optimizers.Adam(1e-3, beta_2=beta_2)
        if initial_scale is not None:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=initial_scale)
        model.compile(optimizer, loss, metrics=["accuracy"])
    before = _weights(model)
    fitted = model.fit(images, labels, batch_size=64, epochs=epochs, verbose=0)
    changed = [old != new for old, new in zip(before, _weights(model), strict=True)]
    scale = getattr(model.optimizer, "dynamic_scale", None)
    return KerasRun(
        losses=tuple(fitted.history["loss"]),
        accuracy=fitted.history["accuracy"][-1],
        dtypes=layer_dtypes(model),
        optimizer=type(model.optimizer).__name__,
        loss_scale=None if scale is None else float(scale),
        steps=epochs * -(-len(images) // 64),
        steps_taken=int(model.optimizer.iterations),
        moved=float(np.concatenate([each.ravel() for each in changed]).mean()),
    )


def layer_dtypes(model: Any) -> tuple[tuple[str, str, str], ...]:
    """Compute dtype, variable dtype and output dtype of each layer that has weights."""
    return tuple(
        (
            layer.compute_dtype,
            layer.variable_dtype,
            keras.backend.standardize_dtype(layer.output.dtype),
        )
        for layer in model.layers
        if layer.weights
    )


def _weights(model: Any) -> list[np.ndarray]:
    return [
        keras.ops.convert_to_numpy(keras.ops.cast(weight, "float32")).copy()
        for weight in model.weights
    ]
