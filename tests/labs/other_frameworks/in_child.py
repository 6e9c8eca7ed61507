"""JAX and Keras run in child processes only: a process that has used JAX cannot be forked."""

import json
import subprocess
import sys
import textwrap

BLOCKED = "import sys\nfor name in ('keras', 'jax', 'optax'): sys.modules[name] = None\n"
"""Code that makes these libraries missing."""


def in_child(code: str) -> object:
    """What the code's last line, an expression, gives in a Python of its own, through JSON."""
    *above, last = textwrap.dedent(code).strip().split("\n")
    program = "\n".join(["import json", *above, f"print('\\n' + json.dumps(({last})))"])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
