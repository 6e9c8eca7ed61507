"""Dtypes of a JAX program, read from its jaxpr: nothing is computed."""

from collections.abc import Callable
from typing import Any

from labkit.labs.other_frameworks.frameworks import core, jax


def matmul_dtypes(function: Callable[..., Any], *args: Any) -> list[tuple[str, str, str]]:
    """The dtypes (left, right, result) of each ``dot_general`` of a function, in its jaxpr's order.

    Programs inside the program count too: those of ``jit``, ``checkpoint``, the body of a ``scan``
    once, and each branch of a ``cond``.
    """
    found: list[tuple[str, str, str]] = []

    def visit(jaxpr: Any) -> None:
        for equation in jaxpr.eqns:
            if equation.primitive.name == "dot_general":
                left, right = (str(var.aval.dtype) for var in equation.invars)
                found.append((left, right, str(equation.outvars[0].aval.dtype)))
            for inner in core.jaxprs_in_params(equation.params):
                visit(inner)

    visit(jax.make_jaxpr(function)(*args).jaxpr)
    return found
