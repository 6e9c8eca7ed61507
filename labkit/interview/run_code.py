"""A learner's program as an answer: run in this process, judged by a check of a lab.

The answer is the learner's own code, run where the learner's code runs anyway. The checks need
torch, so they are imported when the first program is judged.
"""

import ast
import importlib
import linecache
import textwrap

from labkit.interview.question_parts import Unclear


def run_code(answer: str, *, check: str, stub: str, name: str):
    """Run the text of an answer and judge what it defines; returns the check's ``CheckResult``.

    ``check`` is the full name of a check, ``stub`` defines the function that is wanted, and its
    imports are there for the answer; ``name`` stands in tracebacks. Raises Unclear where the text
    is no Python, or defines nothing of that name.
    """
    from labkit.labs.engine import codec
    from labkit.labs.engine.limit import LEAST_SECONDS, limited
    from labkit.labs.engine.running import TookTooLong, raised

    module, _, function = check.rpartition(".")
    judge = getattr(importlib.import_module(module), function)
    given = ast.parse(stub).body
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    wanted = next(node.name for node in given if isinstance(node, defined))
    answer = textwrap.dedent(answer)
    file = f"<answer to {name}>"
    linecache.cache[file] = (len(answer), None, answer.splitlines(keepends=True), file)
    imports = [node for node in given if isinstance(node, ast.Import | ast.ImportFrom)]
    namespace: dict = {"__name__": "__answer__"}
    exec(compile(ast.Module(imports, []), file, "exec"), namespace)
    try:
        program = compile(answer, file, "exec")
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte
        raise _no_python(error) from None
    try:
        with limited(LEAST_SECONDS):
            exec(program, namespace)
    except (Exception, SystemExit, TookTooLong) as error:
        report = {"outcome": "raised", "value": raised(error), "printed": "", "warned": []}
        return judge.verdict(codec.encode(report))
    if wanted not in namespace:
        raise Unclear(f"The answer defines no {wanted}.", f"答案里没有定义 {wanted}。")
    return judge.result(namespace[wanted])


def _no_python(error: SyntaxError | ValueError) -> Unclear:
    """What the compiler says, and of which line."""
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    line = getattr(error, "lineno", None)
    return Unclear(
        f"Python cannot read that{f', from line {line} on' if line else ''}: {said}.",
        f"Python 读不懂{f'第 {line} 行起的内容' if line else ''}：{said}。",
    )
