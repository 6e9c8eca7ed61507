"""Keras, JAX and optax, an optional extra: imported at first use, quietly, and on the CPU.

``jax``, ``jnp``, ``core`` (jax.extend.core), ``keras`` and ``optax`` are here, to be imported from
here. A forked child hangs once JAX has computed in its parent, and the grader forks. So each of
them imports its library when something of it is first used, in whichever process that is.
"""

import contextlib
import importlib.metadata
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from labkit.base.home import DATA, import_optional

# Libraries


def installed() -> dict[str, str | None]:
    """The version of each library of the extra; None where it is not installed."""
    found: dict[str, str | None] = {}
    for name in ("keras", "jax", "optax"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def missing(*names: str) -> str:
    """How to install the first of these modules that cannot be imported; "" if all can.

    Args:
        names: such as "jax" or "jax.numpy".
    """
    try:
        for name in names:
            _import(name)
    except ImportError as error:
        return f"{error}."
    return ""


class _Library(ModuleType):
    """A module that is imported when something of it is first used.

    Where its library is missing, that first use raises an ImportError that says how to install it.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what inspects objects shall not import them
            raise AttributeError(name)
        return getattr(sys.modules.get(self.__name__) or _import(self.__name__), name)

    def __reduce__(self) -> tuple[type, tuple[str]]:  # a check's first half refers to it
        return _Library, (self.__name__,)


jax, jnp, core = _Library("jax"), _Library("jax.numpy"), _Library("jax.extend.core")
keras, optax = _Library("keras"), _Library("optax")


def use_keras(backend: str = "torch") -> ModuleType:
    """Keras on this backend, on the CPU.

    Raises:
        ImportError: it is not installed.
        RuntimeError: this process has imported Keras with another backend.
    """
    # Keras writes its settings into its home at import. They are given here instead.
    with tempfile.TemporaryDirectory() as home:
        settings = {"KERAS_BACKEND": backend, "KERAS_HOME": home, "KERAS_TORCH_DEVICE": "cpu"}
        keras = import_optional("keras", settings=settings)
    if keras.config.backend() != backend:
        raise RuntimeError(
            f"Keras runs on {keras.config.backend()} in this process, and {backend} is asked for. "
            "A process keeps its first backend: restart the kernel."
        )
    return keras


def _import(name: str) -> ModuleType:
    package = name.partition(".")[0]
    if package == "keras" and package not in sys.modules:
        use_keras()
    # Without the setting JAX looks for a TPU, and takes most of a GPU's memory.
    return import_optional(name, settings={"JAX_PLATFORMS": "cpu"})


# Results


def live(function: Callable[[], Any]) -> Any:
    """What the function returns, or, where a library is missing, what it returned when recorded.

    Its results are recorded by its name, as plain data: lists for tuples.
    """
    try:
        return function()
    except ImportError as error:
        kept = recorded("other_frameworks")
        print(f"{error}.\nRecorded on {kept['date']}:")
        return kept["results"][function.__name__]


def recorded(name: str) -> dict[str, Any]:
    """data/emulated/NAME.json: "other_frameworks", "tensorflow" or "mlx"."""
    return json.loads((DATA / "emulated" / f"{name}.json").read_text(encoding="utf-8"))


# Keras


@contextlib.contextmanager
def policy(name: str) -> Iterator[None]:
    """Inside, layers that are made get this dtype policy; afterwards the global one is as before.

    Raises ValueError with the names that there are, if ``name`` is none of them.
    """
    config = keras.config
    before = config.dtype_policy()
    config.set_dtype_policy(name)
    try:
        yield
    finally:
        config.set_dtype_policy(before)


def loss_for(model: Any, labels: np.ndarray) -> Any:
    """Keras' crossentropy that fits the labels and the model's last layer.

    Args:
        model: whose last layer gives logits, or probabilities by its activation softmax.
        labels: integers N, or one-hot N x classes.
    """
    kinds = {1: keras.losses.SparseCategoricalCrossentropy, 2: keras.losses.CategoricalCrossentropy}
    gives_logits = model.layers[-1].activation is not keras.activations.softmax
    return kinds[np.ndim(labels)](from_logits=gives_logits)


def check_labels(labels: np.ndarray, loss: Any) -> None:
    """Raise ValueError where the labels are not of the kind that the crossentropy reads.

    Args:
        labels: integers N, or one-hot N x classes.
        loss: a loss of Keras.
    """
    sparse = isinstance(loss, keras.losses.SparseCategoricalCrossentropy)
    if sparse and np.ndim(labels) == 2:
        raise ValueError(
            f"The labels are one-hot, of shape {np.shape(labels)}, and the sparse crossentropy "
            "reads integers. Give it labels.argmax(axis=1), or take CategoricalCrossentropy."
        )
    if not sparse and np.ndim(labels) == 1:
        raise ValueError(
            f"The labels are integers, of shape {np.shape(labels)}, and this crossentropy reads "
            "one-hot rows. Take SparseCategoricalCrossentropy, or keras.utils.to_categorical."
        )
