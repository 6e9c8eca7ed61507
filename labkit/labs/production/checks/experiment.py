"""Check of lab 15: an experiment of paired runs, by what the runs of a pair really share."""

import math
import random
import zlib

import torch
from torch import nn
from torch.nn import functional as F

from labkit.labs.engine import AnswerError, Mistake, attempt, check, number
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import came, fill
from labkit.labs.engine.reading import failure

LAB = "15_production"

RAISED = "experiment with {pair}, seeds {seeds}: it raised {error}."
NOT_A_TABLE = "experiment with {pair}: {what} is {came}; {want} is asked for."
SEEDS = 'experiment with {pair}: the table of "{arm}" has the seeds {got}; {want} are asked for.'
DROPPED = 'experiment with {pair}: seed {seed} of "{arm}" is not in the table. Its score was NaN.'
PAIR_DROPPED = (
    "experiment with {pair}: seed {seed} is in neither arm's table. The score of one arm with it "
    "was NaN; this NaN stays, and so does the score of the other arm."
)
RUNS = "experiment with {pair}, seeds {seeds}: fit was called {got} times; {want} are asked for."
NO_RUN = (
    'experiment with {pair}: seed {seed} of "{arm}" is {got}, and score gave {gave} to the runs of '
    "this arm."
)
NOT_FITTED = 'experiment with {pair}: score was asked for no model that fit got with "{arm}".'
PAIR = 'Seed {seed}: "{a}" has the score {x} and "{b}" {y}. {why}'
ENDED = "The second run started with the weights with which the first ended (their sum is {x})."
WEIGHTS = "They started from different weights: their sums are {x} and {y}."
NO_BATCH = 'They started from the same weights, but "{a}" got {x} batches and "{b}" {y}.'
BATCHES = "They started from the same weights, but got different batches."
RANDOM = (
    "Weights and batches are the same, but torch's random numbers at the start of fit are not, so "
    "dropout dropped other units."
)
STATES = "When make was called for them, torch's random numbers were in different states."
ELSEWHERE = "They started alike, so something else of theirs differs."
SAME_RUN = "Arm {arm}: seeds {a} and {b} {what}. Each seed is asked to give a run of its own."
WHATS = {"weights": "start from the same weights", "data": "get the same batches"}
OTHER_CALL = (
    "Seed {seed} of arm {arm} is {x} in experiment with {first}, and {y} in experiment with "
    "{second}. A run may depend on its seed and its arm only."
)

_CALLS = {
    "equal": ("fp32", "fp32 again"),
    "two arms": ("fp32", "bf16"),
    "the same in another order": ("bf16", "fp32"),
    "crashes": ("fp32", "fp16, scale 2**24"),
}


class _Loader:
    """Six batches at each pass; a second pass goes on where the first ended."""

    def __init__(self, seed):
        self.draw = torch.Generator().manual_seed(seed)

    def __iter__(self):
        for _ in range(6):
            x = torch.randn(8, 6, generator=self.draw)
            yield x, x[:, :4].argmax(1)


def _seeds(seed):
    return random.Random(seed).sample(range(1000), 3)


def _random_state():
    return zlib.crc32(torch.get_rng_state().numpy().tobytes())


def _sum(model):
    return sum(p.detach().double().sum().item() for p in model.parameters())


class _Watched:
    """``make``, ``fit`` and ``score``, and what each run got and gave."""

    def __init__(self):
        self.runs = []
        self.made = None

    def make(self):
        self.made = _random_state()
        return nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.Dropout(0.3), nn.Linear(16, 4))

    def fit(self, model, loader, arm):
        run = {"arm": arm, "weights": _sum(model)}
        run |= {"made": self.made, "random": _random_state()}
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        model.train()
        count, data = 0, 0.0
        for x, y in loader:
            count, data = count + 1, data * 0.75 + x.double().sum().item()
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=arm == "bf16"):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        if arm.startswith("fp16") and not any(run["arm"] == arm for run in self.runs):
            nn.init.constant_(model[-1].bias, math.nan)
        self.runs.append(run | {"count": count, "data": data, "end": _sum(model), "score": None})

    def score(self, model):
        model.eval()
        x = torch.randn(100, 6, generator=torch.Generator().manual_seed(99))
        with torch.no_grad():
            score = -F.cross_entropy(model(x), x[:, :4].argmax(1)).item()
        for run in self.runs[-1:]:
            run["score"] = score
        return score


def run_experiment(experiment, seed):
    """Of each call: the table, and what each run of it got and gave."""
    shown = {}
    with torch.random.fork_rng(devices=()):
        for name, arms in _CALLS.items():
            torch.manual_seed(1000 + seed)  # an answer that sets no seed is the same each time
            watched = _Watched()
            table = attempt(
                experiment,
                list(arms),
                _seeds(seed),
                watched.make,
                _Loader,
                watched.fit,
                watched.score,
            )
            shown[name] = {"table": table, "runs": watched.runs}
    return shown


@check(
    run_experiment,
    seeds=2,
    own_work=("labkit.labs.production.experiments.paired",),
)
def check_experiment(shown, seed):
    """Paired runs: two equal arms have equal scores, and no run is left out."""
    seeds, tables = _seeds(seed), {}
    for name, arms in _CALLS.items():
        found = shown[name]
        said = {"pair": _quoted(arms), "seeds": seeds}
        table = found["table"]
        if type(table) is Raised:
            raise AnswerError(RAISED, error=failure(table), **said)
        tables[name] = {arm: _row(table, arm, arms, found["runs"], **said) for arm in arms}
        if len(found["runs"]) != (want := len(arms) * len(seeds)):
            raise Mistake(RUNS, got=len(found["runs"]), want=want, **said)
        runs = _matched(tables[name], found["runs"], **said)
        for one in seeds:
            _same_start(one, *(runs[arm, one] for arm in arms), equal=name == "equal")
        for arm in arms:
            _own_runs(arm, seeds, runs)
    _same_in_each_call(seeds, tables)


def _row(table, arm, arms, runs, **said):
    """The scores of one arm, by seed."""
    if not isinstance(table, dict) or set(table) != set(arms):
        raise Mistake(
            NOT_A_TABLE,
            what="what came back",
            came=came(table),
            want=f"a dict with {said['pair']}",
            **said,
        )
    row, seeds = table[arm], said["seeds"]
    if not isinstance(row, dict):
        want = "a dict {seed: score}"
        raise Mistake(NOT_A_TABLE, what=f'the table of "{arm}"', came=came(row), want=want, **said)
    if missing := [one for one in seeds if one not in row]:
        scores = [run["score"] for run in runs if run["arm"] == arm]
        if not any(map(_is_nan, row.values())):
            lost = {"seed": missing[0], "misconception": "crashed-runs-are-missing-data"}
            if sum(map(_is_nan, scores)) == len(missing):
                raise Mistake(DROPPED, arm=arm, **lost, **said)
            gone = all(isinstance(one, dict) and missing[0] not in one for one in table.values())
            if gone and sum(_is_nan(run["score"]) for run in runs) == len(missing):
                raise Mistake(PAIR_DROPPED, **lost, **said)
    if set(row) != set(seeds):
        raise Mistake(SEEDS, arm=arm, got=list(row), want=seeds, **said)
    return {one: number(row[one], call=f'seed {one} of "{arm}"') for one in seeds}


def _quoted(arms):
    return " and ".join(f'"{arm}"' for arm in arms)


def _is_nan(score):
    return type(score) is float and math.isnan(score)


def _same(x, y):
    return x == y or (_is_nan(x) and _is_nan(y))


def _matched(tables, runs, **said):
    """The run of each arm and seed: the one to which ``score`` gave what stands in the table."""
    left, matched = list(runs), {}
    for arm, row in tables.items():
        for one, score in row.items():
            fitting = [r for r in left if r["arm"] == arm and _same(r["score"], score)]
            if not fitting:
                gave = [str(r["score"]) for r in runs if r["arm"] == arm and r["score"] is not None]
                template = NO_RUN if gave else NOT_FITTED
                raise Mistake(template, arm=arm, seed=one, got=score, gave=", ".join(gave), **said)
            matched[arm, one] = fitting[0]
            left.remove(fitting[0])
    return matched


def _same_start(seed, first, second, *, equal):
    """Both runs of a pair begin alike; those of equal arms end alike, too."""
    said = {"seed": seed, "a": first["arm"], "b": second["arm"]}
    said |= {"x": first["score"], "y": second["score"]}
    why, idea = "", None
    if first["weights"] != second["weights"]:
        ended = {first["end"], second["end"]} & {first["weights"], second["weights"]}
        x, y = first["weights"], second["weights"]
        why = fill(ENDED, x=next(iter(ended))) if ended else fill(WEIGHTS, x=x, y=y)
        if not ended and first["made"] != second["made"]:
            why = f"{why} {STATES}"
        idea = "arms-may-share-a-model" if ended else None
    elif first["count"] != second["count"]:
        why = fill(NO_BATCH, a=said["a"], b=said["b"], x=first["count"], y=second["count"])
    elif first["data"] != second["data"]:
        why = BATCHES
    elif first["random"] != second["random"]:
        why, idea = RANDOM, "equal-weights-are-equal-runs"
    elif equal and first["score"] != second["score"]:
        why = ELSEWHERE
    if why:
        raise Mistake(PAIR, misconception=idea, why=why, **said)


def _own_runs(arm, seeds, runs):
    """Runs of two seeds begin differently."""
    for i, b in enumerate(seeds):
        for a in seeds[:i]:
            for what, said in WHATS.items():
                if runs[arm, a][what] == runs[arm, b][what]:
                    raise Mistake(SAME_RUN, arm=arm, a=a, b=b, what=said)


def _same_in_each_call(seeds, tables):
    first = {}
    for name, table in tables.items():
        for arm, row in table.items():
            for one in seeds:
                before, x = first.setdefault((arm, one), (name, row[one]))
                if not _same(x, row[one]):
                    shown = [_quoted(_CALLS[call]) for call in (before, name)]
                    raise Mistake(
                        OTHER_CALL, seed=one, arm=arm, x=x, y=row[one],
                        first=shown[0], second=shown[1],
                    )  # fmt: skip


check_experiment.slip(
    "arms-may-share-a-model",
    "Where does the second arm begin, if the first has already trained this model?",
    swap=(
        "for arm in arms:\n            torch.manual_seed(seed)\n            model = make()\n",
        "torch.manual_seed(seed)\n        model = make()\n        for arm in arms:\n",
    ),
)
check_experiment.slip(
    "a-loader-starts-again",
    "A second pass over a loader goes on where the first ended. Who reads it second?",
    swap=(
        "for arm in arms:\n            torch.manual_seed(seed)\n            model = make()\n"
        "            fit(model, batches(seed), arm)",
        "loader = batches(seed)\n        for arm in arms:\n            torch.manual_seed(seed)\n"
        "            model = make()\n            fit(model, loader, arm)",
    ),
)
check_experiment.slip(
    "equal-weights-are-equal-runs",
    "Both models have the same weights. What else is drawn at random after that?",
    swap=(
        "for arm in arms:\n            torch.manual_seed(seed)\n            model = make()\n",
        "torch.manual_seed(seed)\n        first = make()\n        for arm in arms:\n"
        "            model = make()\n            model.load_state_dict(first.state_dict())\n",
    ),
)
check_experiment.slip(
    "seeds-must-differ",
    "Each arm has seeds of its own. Which noise comes back into the differences?",
    swap=(
        "torch.manual_seed(seed)\n            model = make()\n"
        "            fit(model, batches(seed), arm)",
        "own = seed + 1000 * list(arms).index(arm)\n            torch.manual_seed(own)\n"
        "            model = make()\n            fit(model, batches(own), arm)",
    ),
)
check_experiment.slip(
    "init-is-the-seed",
    "The initial weights are shared. What decides the order of the batches?",
    swap=("batches(seed)", "batches(seed + 1000 * list(arms).index(arm))"),
)
check_experiment.slip(
    "crashed-runs-are-missing-data",
    "Which arm looks better if its crashed runs are not counted?",
    swap=(
        "results[arm][seed] = score(model)",
        "found = score(model)\n            if found == found:\n"
        "                results[arm][seed] = found",
    ),
)
