"""What lab 17 recorded: how far four methods bring the networks of some seeds under each budget."""

import json

import pandas as pd

from labkit.base.home import DATA
from labkit.labs.ship_it.scoring import BUDGETS


def ladder_table() -> pd.DataFrame:
    """A row for each method: the lowest and highest KL of the seeds by budget, and the points.

    Points are of 100, with a claim equal to the KL.
    """
    path = DATA / "emulated" / "ship_it.json"
    seeds = json.loads(path.read_text(encoding="utf-8"))["ladder"]
    rows = {}
    for method in seeds[0][str(min(BUDGETS))]:
        kls = [
            {budget: seed[str(budget)][method]["sampled"] for budget in BUDGETS} for seed in seeds
        ]
        points = [100 * sum(BUDGETS[budget].earned(kl) for budget, kl in of.items()) for of in kls]
        rows[method] = {
            f"KL, {budget:,} bytes": _span([of[budget] for of in kls], ".2g") for budget in BUDGETS
        } | {"points": _span(points, ".0f")}
    return pd.DataFrame.from_dict(rows, orient="index")


def _span(values: list[float], digits: str) -> str:
    low, high = format(min(values), digits), format(max(values), digits)
    return low if low == high else f"{low} to {high}"
