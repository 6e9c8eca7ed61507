"""A learner's program as an answer: run in this process, judged by a check of a lab.

The answer is the learner's own code, run where the learner's code runs anyway. The checks need
torch, so they are imported when the first program is judged.
"""

import ast
import importlib
import linecache


def run_code(answer: str, *, check: str, stub: str, name: str):
    """Run the text of an answer and judge what it defines; returns the check's ``CheckResult``.

    ``check`` is the full name of a check, ``stub`` defines the function that is wanted,
    and ``name`` stands in tracebacks.
    """
    from labkit.labs.engine import CheckResult
    from labkit.labs.engine.running import raised

    module, _, function = check.rpartition(".")
    judge = getattr(importlib.import_module(module), function)
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    wanted = next(node.name for node in ast.parse(stub).body if isinstance(node, defined))
    file = f"<answer to {name}>"
    linecache.cache[file] = (len(answer), None, answer.splitlines(keepends=True), file)
    namespace: dict = {"__name__": "__answer__"}
    try:
        exec(compile(answer, file, "exec"), namespace)
    except (Exception, SystemExit) as error:
        told = raised(error)
        return CheckResult(judge.exercise, "error", f"{told.type_name}: {told.message}")
    if wanted not in namespace:
        return CheckResult(judge.exercise, "error", f"The answer defines no {wanted}.")
    return judge.result(namespace[wanted])
