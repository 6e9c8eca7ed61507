"""What an unsolved notebook may show: every check "not attempted", and no other error."""

from typing import Any


def problems_unsolved(cell: Any, outputs: list[Any]) -> list[str]:
    """What a cell of a learner notebook shows besides a check that was not attempted."""
    errors = [f"{o['ename']}: {o['evalue']}" for o in outputs if o["output_type"] == "error"]
    said = [
        f"on stderr: {o['text']}"
        for o in outputs
        if o["output_type"] == "stream" and o["name"] == "stderr"
    ]
    if cell.metadata.get("nbgrader", {}).get("grade"):
        text = errors[0] if errors else "nothing"
        if not text.startswith("CheckFailed: ") or "not attempted" not in text:
            said.append(f"an open check shows {text!r}, not CheckFailed")
    else:
        said += errors
    return said
