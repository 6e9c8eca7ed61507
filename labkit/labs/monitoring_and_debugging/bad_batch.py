"""A digit reader that meets one batch of raw pixels: what each remedy leaves of it, as recorded."""

import json

from labkit.base.home import DATA


def bad_batch_record() -> dict[str, list[float]]:
    """Recorded test accuracies by what was done about the batch, ten seeds."""
    path = DATA / "emulated" / "bad_batch.json"
    return json.loads(path.read_text(encoding="utf-8"))["accuracies"]
