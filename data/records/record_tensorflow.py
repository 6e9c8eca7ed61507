"""Record what lab 14 says about TensorFlow, on a CPU.

    python -m venv tf && tf/bin/pip install tensorflow-cpu==2.21.0 keras==3.15.1
    tf/bin/python data/records/record_tensorflow.py

It needs TensorFlow (1.5 GB), which the course does not, and no labkit: an environment of its own.
Promotions: the dtype of each expression, or an error. Column: one step under the policy
mixed_float16. Softmax twice: a last layer with softmax and a loss that is told logits, trained for
two epochs on digits, by policy and seed: the loss, whether Keras warned, and the loss with logits.
Moved: the share of weights that changed in an epoch of Adam under the policy bfloat16.
"""

import os
import platform
import warnings

os.environ |= {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "KERAS_BACKEND": "tensorflow",
}

import keras
import numpy as np
import tensorflow as tf
from common import DATA, about, file_of, write

SEEDS = range(5)
layers, named = keras.layers, keras.backend.standardize_dtype

with np.load(DATA / "digits.npz") as arrays:
    images = (arrays["images"][:1438] / 16).astype("float32")
    labels = arrays["labels"][:1438].astype("int64")


def dtype(compute):
    try:
        return compute().dtype.name
    except Exception:
        return "error"


def promotions():
    h, x, b = (tf.ones(3, d) for d in (tf.float16, tf.float32, tf.bfloat16))
    return {
        "h * 2.0": dtype(lambda: h * 2.0),
        "h * np.float32(2)": dtype(lambda: h * np.float32(2)),
        "h * 0-d": dtype(lambda: h * tf.constant(2.0)),
        "h * x": dtype(lambda: h * x),
        "h * b": dtype(lambda: h * b),
        "h @ x": dtype(lambda: h[None] @ x[:, None]),
    }


def loss(from_logits):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)


def column():
    seen = []

    class Probed(layers.Dense):
        def call(self, inputs, training=None):
            outputs = super().call(inputs)
            kernel = keras.ops.convert_to_tensor(self.kernel)
            seen.append([named(v.dtype) for v in (inputs, kernel, outputs)])
            return outputs

    keras.mixed_precision.set_global_policy("mixed_float16")
    model = keras.Sequential([layers.Flatten(), Probed(64), layers.Dense(10, dtype="float32")])
    model.build((8, 8, 8))
    model.compile("adam")
    keras.mixed_precision.set_global_policy("float32")
    optimizer, weights = model.optimizer, model.trainable_variables
    optimizer.build(weights)
    with tf.GradientTape() as tape:
        value = loss(True)(labels[:8], model(images[:8], training=True))
        scaled = optimizer.scale_loss(value)
    gradients = tape.gradient(scaled, [weight.value for weight in weights])
    scale = float(optimizer.dynamic_scale)
    optimizer.apply(gradients, weights)
    moments = next(v for v in optimizer.inner_optimizer.variables if "momentum" in v.path)
    probed = (weights[0], *seen[-1], value, gradients[0], moments)
    names = [named(getattr(one, "dtype", one)) for one in probed]
    roles = (
        "stored weights", "matmul: input", "matmul: weight", "matmul: result", "loss",
        "gradient for the optimizer", "Adam's moments", "loss scale at the start",
    )  # fmt: skip
    return dict(zip(roles, (*names, f"{scale:g}"), strict=True))


def run(policy, *, softmax, seed, epochs):
    """The last loss, whether Keras warned of a softmax, and the share of weights that moved."""
    keras.utils.set_random_seed(seed)
    keras.mixed_precision.set_global_policy(policy)
    last = layers.Dense(10, activation="softmax" if softmax else None)
    model = keras.Sequential(
        [keras.Input((8, 8)), layers.Flatten(), layers.Dense(64, activation="relu"), last]
    )
    model.compile("adam", loss(True))
    keras.mixed_precision.set_global_policy("float32")
    before = model.get_weights()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        fitted = model.fit(images, labels, batch_size=64, epochs=epochs, verbose=0)
    warned = any("from_logits" in str(one.message) for one in heard)
    pairs = zip(before, model.get_weights(), strict=True)
    moved = np.concatenate(
        [(np.asarray(a, "float32") != np.asarray(b, "float32")).ravel() for a, b in pairs]
    )
    return round(fitted.history["loss"][-1], 3), warned, float(moved.mean())


def softmax_twice():
    rows = []
    for policy in ("float32", "mixed_float16"):
        for seed in SEEDS:
            twice, warned, _ = run(policy, softmax=True, seed=seed, epochs=2)
            logits, _, _ = run(policy, softmax=False, seed=seed, epochs=2)
            row = {"policy": policy, "seed": seed, "loss": twice, "warned": warned}
            rows.append(row | {"loss with logits": logits})
            print(rows[-1], flush=True)
    return rows


def experimental():
    try:
        from tensorflow.keras.mixed_precision import experimental

        return str(experimental)
    except ImportError as error:
        return f"ImportError: {str(error).partition(' (')[0]}"


if __name__ == "__main__":
    versions = {"tensorflow": tf.__version__, "keras": keras.__version__}
    record = about(__file__, __doc__, f"CPU, {platform.machine()}", **versions) | {
        "promotions": promotions(),
        "column": column(),
        "softmax_twice": softmax_twice(),
        "moved": [run("bfloat16", softmax=False, seed=s, epochs=1)[2] for s in SEEDS],
        "experimental": experimental(),
    }
    write(file_of(__doc__, "emulated/tensorflow.json"), record, '},{"', '],"')
