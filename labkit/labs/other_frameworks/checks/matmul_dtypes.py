"""Check of lab 14's reader of jaxprs: programs whose matmuls are known by hand."""

import numpy as np

from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.other_frameworks.frameworks import jax, jnp, missing

LAB = "14_other_frameworks"

WRONG = "{name}: you found {got}; {want} is wanted."

_F16, _B16, _F32 = ("float16",) * 3, ("bfloat16",) * 3, ("float32",) * 3
_WANTED = {
    "two layers": [_B16, _B16],
    "no matmul": [],
    "a float32 input and a BF16 weight": [("float32", "bfloat16", "float32")],
    "a BF16 matmul with a float32 result": [("bfloat16", "bfloat16", "float32")],
    "a matmul in jit": [_F32, _B16],
    "a matmul in checkpoint in jit": [_F16],
    "a matmul in scan": [_B16],
    "a matmul in each branch of cond": [_B16, _F32],
}


def _programs():
    """For each name a function and its arguments."""
    x32, w32 = jnp.ones((2, 4)), jnp.ones((4, 4))
    x16, w16 = x32.astype(jnp.bfloat16), w32.astype(jnp.bfloat16)

    def in_scan(x, w):
        return jax.lax.scan(lambda carry, _: (carry @ w, None), x, None, length=3)[0]

    def in_cond(x, w):
        def narrow():
            return (x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32)

        return jax.lax.cond(x.sum() > 0, lambda: x @ w, narrow)

    half = x32.astype(jnp.float16), w32.astype(jnp.float16)
    return {
        "two layers": (lambda x, w: jnp.tanh(x @ w) @ w, (x16, w16)),
        "no matmul": (lambda x, w: x + w[:2], (x16, w16)),
        "a float32 input and a BF16 weight": (lambda x, w: x @ w, (x32, w16)),
        "a BF16 matmul with a float32 result": (
            lambda x, w: jnp.matmul(x, w, preferred_element_type=jnp.float32),
            (x16, w16),
        ),
        "a matmul in jit": (
            lambda x, w: jax.jit(lambda h, v: h @ v)((x @ w).astype(jnp.bfloat16), w16),
            (x32, w32),
        ),
        "a matmul in checkpoint in jit": (
            jax.jit(lambda x, w: jax.checkpoint(lambda h: jnp.tanh(h @ w))(x)),
            half,
        ),
        "a matmul in scan": (in_scan, (x16, w16)),
        "a matmul in each branch of cond": (in_cond, (x32, w32)),
    }


def run_matmul_dtypes(answer):
    """What the answer lists for each program; or a sentence where JAX is missing."""
    if said := missing("jax"):
        attempt(answer, None)
        return said
    return {
        name: _named(attempt(answer, function, *args))
        for name, (function, args) in _programs().items()
    }


def _named(value):
    """Dtypes as their names."""
    if isinstance(value, (list, tuple)):
        return [_named(one) for one in value]
    return str(value) if isinstance(value, np.dtype) else value


@check(run_matmul_dtypes, own_work=("labkit.labs.other_frameworks.jaxprs.matmul_dtypes",))
def check_matmul_dtypes(report):
    """The dtypes of each matmul of a JAX program, in the programs inside it too."""
    if isinstance(report, str):
        raise AnswerError(report)
    for name, want in _WANTED.items():
        got = report[name]
        if type(got) is Raised:
            raise AnswerError(f"{name}: {got.type_name}: {got.message}")
        listed = sorted(map(tuple, got))
        if listed != sorted(want):
            raise Mistake(WRONG, name=name, got=str(listed), want=str(sorted(want)))
