"""The child process of ``run_code``: programs in by lines of JSON, what became of each out.

A request says the program, the check, the stub, the name of what it must define and the seconds;
the reply is what ``Check.collect`` gives, in base64, or null where that name is not defined. Of
the first line only the arrival counts: the imports are done.
"""

import ast
import base64
import importlib
import json
import linecache
import os
import signal

from labkit.labs.engine import codec
from labkit.labs.engine.limit import limited
from labkit.labs.engine.running import TookTooLong, raised


def main() -> None:
    """Run programs until the input ends; what they print goes to the standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the parent
    importlib.import_module("torch")
    asking, telling = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    _tell(telling, "ready")
    for line in asking:
        told = _run(**json.loads(line))
        _tell(telling, told if told is None else base64.b64encode(told).decode())


def _tell(telling, said: str | None) -> None:
    telling.write(json.dumps(said).encode() + b"\n")
    telling.flush()


def _run(
    *, answer: str, check: str, stub: str, name: str, wanted: str, seconds: float
) -> bytes | None:
    module, _, function = check.rpartition(".")
    judge = getattr(importlib.import_module(module), function)
    file = f"<answer to {name}>"
    linecache.cache[file] = (len(answer), None, answer.splitlines(keepends=True), file)
    given = ast.parse(stub).body
    imports = [node for node in given if isinstance(node, ast.Import | ast.ImportFrom)]
    namespace: dict = {"__name__": "__answer__"}
    exec(compile(ast.Module(imports, []), file, "exec"), namespace)
    program = compile(answer, file, "exec")
    try:
        with limited(seconds):
            exec(program, namespace)
            return judge.collect(namespace[wanted]) if wanted in namespace else None
    except (Exception, SystemExit, TookTooLong) as error:
        report = {"outcome": "raised", "value": raised(error), "printed": "", "warned": []}
        return codec.encode_value(report)


if __name__ == "__main__":
    main()
