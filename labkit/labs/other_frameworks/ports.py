"""A Keras model to be ported to PyTorch, and what its optimizer and a GradScaler do."""

import math
from collections.abc import Container
from typing import Any

import numpy as np
import torch

from labkit.labs.other_frameworks.frameworks import keras
from labkit.training.data import digits


def trained_model(*, seed: int = 0) -> Any:
    """Dense, BatchNormalization, ReLU, Dense: 64 pixels to ten digits, after two epochs of Adam."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((64,)),
            layers.Dense(32),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss)
    data = digits()
    images, labels = data.train_images.flatten(1).numpy(), data.train_labels.numpy()
    model.fit(images, labels, batch_size=64, epochs=2, verbose=0)
    return model


def first_step_of_keras(gradient: float) -> float:
    """How far Keras' Adam, with its defaults, moves a weight in its first step."""
    weight = keras.Variable(np.zeros(1, np.float32))
    adam = keras.optimizers.Adam(1e-3)
    with torch.no_grad():
        adam.apply([torch.full((1,), gradient)], [weight])
    return -weight.value[0].item()


def grad_scaler_trace(
    skipped: Container[int], *, steps: int, start: float, growth_interval: int = 3
) -> list[float]:
    """The scale of torch's GradScaler after each step, with an inf in the gradient of some."""
    weight = torch.nn.Parameter(torch.zeros(1))
    sgd = torch.optim.SGD([weight], lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=start, growth_interval=growth_interval)
    scales = []
    for step in range(steps):
        sgd.zero_grad()
        scaler.scale(weight.sum() * (math.inf if step in skipped else 1.0)).backward()
        scaler.step(sgd)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales
