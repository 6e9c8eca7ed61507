"""Lab 14's JAX: matmuls in a jaxpr, the table of dtypes, promotion, and steps of two Adams."""

import pytest

from tests.labs.other_frameworks.in_child import in_child


@pytest.fixture(scope="module")
def found():
    return in_child("""
        import warnings
        warnings.simplefilter("error")
        from labkit.labs.other_frameworks.dtype_table import jax_column, keras_column, torch_column
        from labkit.labs.other_frameworks.frameworks import jax, jnp, optax
        from labkit.labs.other_frameworks.ports import first_step_of_keras, trained_model
        from labkit.labs.other_frameworks.promotion import promotions
        from labkit.labs.other_frameworks import solutions as ours
        x, w = jnp.ones((2, 4), jnp.float16), jnp.ones((4, 4), jnp.bfloat16)
        grown = jax.grad(lambda w: jax.jit(lambda h: h @ w)(x).sum().astype(jnp.float32))
        loss_of = lambda p, x, y: jnp.float32((jnp.tanh(x @ p["w1"]) @ p["w2"]).mean())
        columns = {
            "PyTorch": torch_column(*ours.twin(trained_model())),
            "Keras": keras_column(),
            "JAX": jax_column(ours.scaled_step, loss_of, ours.matmul_dtypes),
        }
        nested = jax.jit(jax.jit(lambda a: a.astype(jnp.float16) @ a.astype(jnp.float16).T))
        lists = {"mixed": ours.matmul_dtypes(lambda a, b: a @ b, x, w)}
        lists["nested"] = ours.matmul_dtypes(nested, x)
        lists["gradient"] = ours.matmul_dtypes(grown, w.astype(jnp.float16))
        steps = [first_step_of_keras(g) for g in (1e-7, 1.0)]
        a = jax.random.normal(jax.random.key(0), (64, 64))
        results = []
        for precision in ("bfloat16", "float32"):
            with jax.default_matmul_precision(precision):
                results.append(a @ a)
        lists["moments"] = str(optax.adam(1e-3).init(w)[0].nu.dtype)
        lists["precision does nothing"] = bool(jnp.array_equal(*results))
        {"columns": columns, "lists": lists, "promotions": promotions(), "steps": steps}
    """)


def test_matmuls_are_found_inside_jit_and_in_a_gradient(found):
    half = ["float16"] * 3
    assert found["lists"]["mixed"] == [["float16", "bfloat16", "float32"]]
    assert found["lists"]["nested"] == [half]
    assert half in found["lists"]["gradient"]


def test_on_a_cpu_jax_multiplies_float32_as_float32(found):
    assert found["lists"]["precision does nothing"]


def test_optax_keeps_moments_in_the_dtype_of_the_weights(found):
    assert found["lists"]["moments"] == "bfloat16"


def test_the_three_frameworks_keep_float32_and_multiply_in_float16(found):
    for column in found["columns"].values():
        for role, dtype in column.items():
            if role.startswith("matmul"):
                assert dtype == "float16", role
            elif not role.startswith("loss scale"):
                assert dtype == "float32", role
    scales = {name: c["loss scale at the start"] for name, c in found["columns"].items()}
    assert scales == {"PyTorch": "65536", "Keras": "32768", "JAX": "32768"}


def test_promotion_of_a_value_without_dimensions_differs_from_library_to_library(found):
    row = {name: column["h * 0-d"] for name, column in found["promotions"].items()}
    assert row == {
        "PyTorch": "float16",
        "NumPy": "float64",
        "JAX": "float16",
        "Keras on torch": "float16",
        "TensorFlow": "error",
        "MLX": "float32",
    }
    strong = {name: column["h * np.float32(2)"] for name, column in found["promotions"].items()}
    assert strong["JAX"] == strong["NumPy"] == "float32" and strong["PyTorch"] == "float16"


def test_keras_adds_eps_before_the_bias_correction(found):
    tiny, large = found["steps"]
    # lr g / (g + eps / sqrt(1 - beta_2)) at the first step; PyTorch: lr g / (g + eps).
    assert tiny == pytest.approx(1e-3 / (1 + 1 / 0.001**0.5), rel=1e-3)
    assert 5e-4 / tiny == pytest.approx(16.3, abs=0.05)
    assert large == pytest.approx(1e-3, rel=1e-3)
