"""Functions of ``torch.compile`` inside ``emulate_gpu()`` run uncompiled, operator by operator.

A compiled function keeps the rules under which it was compiled. torch recompiles one whose guards
fail, but no guard knows of the emulation, and neither does the cache of compiled graphs on disk. A
function that runs uncompiled brings no CPU rules into the block and carries no GPU rules out of it.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch

INSIDE = (
    "emulate_gpu() cannot begin inside a function that torch.compile compiles: open the block "
    "around the call of that function."
)


@contextmanager
def uncompiled() -> Iterator[None]:
    """A block in which compiled functions run as they are written, and nothing is compiled.

    To import torch's compiler takes a second. Where nothing has imported it yet, the first call of
    ``torch.compile`` does, and the block takes hold of it then.

    Raises:
        RuntimeError: the block stands inside a compiled function.
    """
    with ExitStack() as block:
        if "torch._dynamo" in sys.modules:
            try:
                block.enter_context(torch.compiler.set_stance("force_eager"))
            except RuntimeError as error:
                raise RuntimeError(INSIDE) from error
        else:
            block.enter_context(_first_compile_noticed(block))
        yield


@contextmanager
def _first_compile_noticed(block: ExitStack) -> Iterator[None]:
    compile_ = torch.compile

    @wraps(compile_)
    def first(*args: Any, **kwargs: Any) -> Callable[..., Any]:
        torch.compile = compile_
        block.enter_context(torch.compiler.set_stance("force_eager"))
        return compile_(*args, **kwargs)

    torch.compile = first
    try:
        yield
    finally:
        torch.compile = compile_
