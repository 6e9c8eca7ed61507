"""Several ranks on one machine: as threads of this process, or as processes of torchrun.

Code for ranks gets its group and uses ``torch.distributed`` on it, as on a cluster:
``dist.all_reduce(x, group=group)``, ``group.rank()``, ``group.size()``. Threads need no network, so
they run in the grader's sandbox too. Processes talk over gloo, torch's backend for CPUs.
"""

import ast
import contextlib
import ctypes
import importlib
import inspect
import linecache
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from labkit.labs.memory_and_many_gpus.thread_group import Ended, Table, ThreadGroup

T = TypeVar("T")

LIMIT_SECONDS = 300
"""After this ``torchrun`` ends its processes."""


def ranks(work: Callable[..., T], size: int, *args: Any) -> list[T]:
    """Call ``work(group, *args)`` on each of ``size`` ranks: threads of this process.

    One rank runs at a time and hands over where it waits for others, in the order of the ranks:
    the same program does the same each time. Threads share torch's random generator and ``args``.
    Make models before, one for each rank. Autocast and ``no_grad`` do not reach into them.

    Returns:
        What each rank returned, by rank.

    Raises:
        ValueError: ``size`` is no positive whole number.
        RuntimeError: ranks call different collectives, or one has returned and others wait for it.
        Exception: the first one that a rank raised; a note of it names the rank. All others end.
    """
    if type(size) is not int or size < 1:
        raise ValueError(f"size is {size!r}; a group has 1 rank or more")
    table = Table(size)
    results: list[Any] = [None] * size
    watch = sys.getprofile()  # what watches the caller's calls watches those of its ranks

    def run(rank: int) -> None:
        sys.setprofile(watch)
        try:
            table.wait(rank)
            results[rank] = work(ThreadGroup(table, rank), *args)
        except Ended:
            pass
        except BaseException as error:
            error.add_note(f"Rank {rank} of {size} raised this; the others were ended.")
            table.fail(error)
        finally:
            sys.setprofile(None)
            table.leave(rank)

    threads = [
        threading.Thread(target=run, args=(rank,), name=f"rank {rank}", daemon=True)
        for rank in range(size)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # with a limit, or Windows would not see Ctrl-C
                thread.join(0.1)
    except BaseException as error:
        table.fail(error)
        for thread in threads:
            _end(thread)
        raise
    if table.error is not None:
        raise table.error
    return results


def _end(thread: threading.Thread) -> None:
    """Raise ``Ended`` in a thread, at its next line of Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Ended)
    )


def torchrun(work: Callable[..., T], size: int = 2, *args: Any) -> list[T]:
    """Call ``work(group, *args)`` on each of ``size`` ranks: processes of torchrun, over gloo.

    ``work`` goes to them as text, with the modules, functions, classes, numbers and words of the
    notebook that it names. Hand other values over as ``args``. Takes some seconds.

    Returns:
        What each rank returned, by rank.

    Raises:
        RuntimeError: a rank raised; the message holds its traceback.
        TimeoutExpired: the processes ran for more than ``LIMIT_SECONDS``.
    """
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "work.py")
        script.write_text(_script(work), encoding="utf-8")
        torch.save(args, Path(folder, "args"))
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--local-addr", "127.0.0.1", f"--nproc-per-node={size}", str(script), folder]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                printed, said = process.communicate(timeout=LIMIT_SECONDS)
            except BaseException:
                process.terminate()  # torchrun ends its processes then
                raise
        print(printed, end="")
        errors = sorted(Path(folder).glob("*.error"), key=lambda path: path.stat().st_mtime_ns)
        if errors:
            told = errors[0].read_text(encoding="utf-8")
            raise RuntimeError(f"rank {errors[0].stem} of {size} raised:\n{told}")
        if process.returncode:
            raise RuntimeError(f"torchrun failed:\n{said[:4000]}")
        found = [Path(folder, f"{rank}.result") for rank in range(size)]
        return [torch.load(path, weights_only=False) for path in found]


def run_process(work: Callable[..., Any], folder: str) -> None:
    """In a process of torchrun: call ``work`` and leave in ``folder`` what came of it."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, failed = dist.get_rank(), False
    try:
        args = torch.load(Path(folder, "args"), weights_only=False)
        torch.save(work(dist.group.WORLD, *args), Path(folder, f"{rank}.result"))
    except BaseException:
        Path(folder, f"{rank}.error").write_text(traceback.format_exc(), encoding="utf-8")
        failed = True
    dist.destroy_process_group()
    sys.stdout.flush()
    # While Python shuts down, a thread of gloo that asks for the GIL to drop a hook's future aborts
    # the process. So Python does not shut down.
    os._exit(failed)


def _script(work: Callable[..., Any]) -> str:
    lines = {"torch": "import torch"}  # a dtype is told by it
    name = _define("work", work, lines)
    lines["__main__"] = textwrap.dedent(
        f"""
        if __name__ == "__main__":
            import sys
            from {__name__} import run_process
            run_process({name}, sys.argv[1])
        """
    )
    return "\n".join(lines.values())


def _define(name: str, value: Any, lines: dict[str, str]) -> str:
    """Add to ``lines`` what makes ``name`` stand for ``value``, and whatever that needs.

    A value that cannot be told in a line is left out: a local name may only look like it.
    """
    if name in lines:
        return name
    if isinstance(value, types.ModuleType):
        lines[name] = f"import {value.__name__} as {name}"
    elif isinstance(value, (bool, int, float, str, torch.dtype)) or value is None:
        lines[name] = f"{name} = {value!r}"
    elif _can_be_imported(value):
        lines[name] = f"from {value.__module__} import {value.__qualname__} as {name}"
    elif isinstance(value, (types.FunctionType, type)):
        lines[name] = ""  # a function may name itself
        source, known = _source(value)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Name) and node.id in known:
                _define(node.id, known[node.id], lines)
        del lines[name]  # behind what it needs
        lines[name] = f"{source}\n{name} = {value.__name__}"
    return name


def _can_be_imported(value: Any) -> bool:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not module or module == "__main__":
        return False
    with contextlib.suppress(ImportError):
        return getattr(importlib.import_module(module), name, None) is value
    return False


def _source(value: Any) -> tuple[str, dict[str, Any]]:
    """The text of a function or a class, and the names around it."""
    if isinstance(value, types.FunctionType):
        function = inspect.unwrap(value)
        known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
        return textwrap.dedent(inspect.getsource(function)), known
    # Of a class in a notebook inspect finds no file: its methods know theirs.
    methods = [one for one in vars(value).values() if isinstance(one, types.FunctionType)]
    if not methods:
        return inspect.getsource(value), vars(sys.modules[value.__module__])
    function = inspect.unwrap(methods[0])
    lines = linecache.getlines(function.__code__.co_filename, function.__globals__)
    first = function.__code__.co_firstlineno
    around = (
        node
        for node in ast.walk(ast.parse("".join(lines)))
        if isinstance(node, ast.ClassDef) and node.lineno <= first <= (node.end_lineno or 0)
    )
    node = max(around, key=lambda node: node.lineno)
    begin = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    return textwrap.dedent("".join(lines[begin - 1 : node.end_lineno])), function.__globals__
