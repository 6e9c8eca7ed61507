"""Rollout: an export of the GPT goes from shadow to all requests, or a gate or a guardrail ends it.

The requests are recorded: what each export predicted on 37,120 characters (``canaries``). Python
computes every number; the page draws.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import traitlets

from labkit.labs.engine.described import AskingWidget
from labkit.labs.production.canaries import CANARIES, GUARDRAIL, REFERENCE, order, recorded_hits
from labkit.labs.production.gates import Gate, Rule, log_e
from labkit.labs.production.releases import RolledBack, Stage, Window, advance, stages

SHADOWS = (0, 500, 2_000, 8_000)
LIVES = (500, 1_000, 4_000)
ALPHA = 0.05

_LOW, _HIGH = -2.0, 3.0  # the ends of the axis of E, powers of 10
_APART = 50  # requests between two points of the curve


@dataclass(kw_only=True)
class _Row:
    """What one stage has seen: all requests, those that both models answered, and their answers."""

    stage: Stage
    requests: int
    passed: int = 0
    pairs: int = 0
    worse: int = 0
    better: int = 0

    @property
    def harmed(self) -> int:
        """Answers that users got and that the reference would have given better."""
        return self.worse if self.stage.share else 0


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    """How a rollout ended: "all requests", or by "the gate", "the guardrail", "hand"."""

    name: str
    by: str
    where: str
    pairs: int
    harmed: int

    @property
    def right(self) -> bool:
        """A sound export answers all requests; a rule took another one back."""
        if CANARIES[self.name].sound:
            return self.by == "all requests"
        return self.by in ("the gate", "the guardrail")

    def describe(self) -> str:
        back = f"rolled back by {self.by} {_at(self.where)}"
        ended = "answers all requests" if self.by == "all requests" else back
        return f"{ended}, {self.pairs:,} compared, {_users(self.harmed)}"


class _Run:
    """One rollout of one export: the plan that is left, the counts, the curve of E."""

    def __init__(self, name: str, plan: tuple[Stage, ...], gate: Rule, places: np.ndarray) -> None:
        reference, candidate = recorded_hits()[REFERENCE], recorded_hits()[name]
        columns = (reference.right, candidate.right, candidate.finite)
        self._pairs = zip(*(column[places].tolist() for column in columns), strict=True)
        self._name, self._gate, self.plan = name, gate, plan
        self.rows = [_Row(stage=stage, requests=_requests(stage)) for stage in plan]
        self.curve = [(0, 0, 0.0)]  # the stage's place, requests in it, log10 of E
        self.outcome: _Outcome | None = None

    @property
    def place(self) -> int:
        """Which stage runs, or was the last one."""
        return min(len(self.rows) - len(self.plan), len(self.rows) - 1)

    @property
    def row(self) -> _Row:
        return self.rows[self.place]

    def count(self, name: str) -> int:
        """The sum of one of the counts over the stages."""
        return sum(getattr(row, name) for row in self.rows)

    @property
    def power(self) -> float:
        """The power of 10 that E is by now."""
        return log_e(self.count("worse"), self.count("better")) / math.log(10)

    def requests(self, count: int) -> None:
        """Let so many requests come; the rollout may end before."""
        for _ in range(count):
            if self.outcome:
                return
            place, row = self.place, self.row
            row.passed += 1
            if row.passed % (row.requests // row.stage.pairs) == 0:
                self._compare(row)
            if row.passed % _APART == 0 or row.passed == row.requests or self.outcome:
                self.curve.append((place, row.passed, self.power))

    def stage(self) -> None:
        """Let requests come until the stage ends."""
        self.requests(self.row.requests - self.row.passed)

    def stop(self, by: str) -> None:
        self.outcome = _Outcome(
            name=self._name,
            by=by,
            where=self.row.stage.name,
            pairs=self.count("pairs"),
            harmed=self.count("harmed"),
        )

    def _compare(self, row: _Row) -> None:
        right, candidate_right, finite = next(self._pairs)
        row.pairs += 1
        row.worse += right and not candidate_right
        row.better += candidate_right and not right
        window = Window(pairs=[(right, candidate_right)], guardrails={GUARDRAIL: finite})
        try:
            left = advance(self.plan, self._gate, window)
        except RolledBack as error:
            self.stop("the guardrail" if error.why.startswith("guardrail") else "the gate")
            return
        if left:
            self.plan = left
        else:
            self.stop("all requests")


class Rollout(AskingWidget):
    """A staged rollout of one export of the GPT, request by request, with the curve of its E-value.

    ``candidate`` (a name of ``CANARIES``), ``shadow`` and ``live`` (requests of the shadow stage
    and of each later one) can be read, set and observed; each begins the rollout anew. Before the
    stage of 100 % the reference answers most requests, and only what the candidate answers is
    compared. ``outcomes`` says how the rollouts so far ended.

    A goal is reached when one plan, shadow and live, ended the rollouts of all exports as it asks.

    Args:
        gate: makes a gate for each rollout; its ``see`` is asked after each compared request.
        seed: of the order of the requests.

    Raises:
        TraitError: a candidate or a length that there is not.

    >>> rollout = Rollout()
    >>> rollout.candidate = "INT4 by tensor"
    >>> rollout.run()
    >>> rollout.outcomes["INT4 by tensor"]
    'rolled back by the gate in shadow, 36 compared, users saw 0 worse answers'
    """

    _esm = Path(__file__).with_suffix(".bundle.js")
    _css = Path(__file__).with_suffix(".bundle.css")

    candidate = traitlets.Enum(tuple(CANARIES), "BF16")
    shadow = traitlets.Enum(SHADOWS, 500)
    live = traitlets.Enum(LIVES, 1_000)
    outcomes = traitlets.Dict(read_only=True)

    def __init__(self, gate: Callable[[], Rule] = Gate, seed: int = 0) -> None:
        self._gate, self._places = gate, order(seed)
        self._ended: dict[tuple[str, int, int], _Outcome] = {}
        self._begin()
        super().__init__()
        self._show()

    @traitlets.observe("candidate", "shadow", "live")
    def _set(self, change: dict) -> None:
        self._begin()
        self._show()

    def requests(self, count: int = 100) -> None:
        """Let so many requests come, or fewer where the rollout ends."""
        self._run.requests(count)
        self._keep()
        self._show()

    def stage(self) -> None:
        """Let requests come until the running stage ends."""
        self._run.stage()
        self._keep()
        self._show()

    def run(self) -> None:
        """Let requests come until the rollout ends."""
        while not self._run.outcome:
            self._run.stage()
        self._keep()
        self._show()

    def roll_back(self) -> None:
        """End the rollout by hand."""
        if not self._run.outcome:
            self._run.stop("hand")
        self._keep()
        self._show()

    def again(self) -> None:
        """Begin the rollout of the same export anew."""
        self._begin()
        self._show()

    def _do(self, asked: dict) -> None:
        """Do what the page asks: {seq, act} of the methods above; {seq, candidate}, ..."""
        for name in asked.keys() & {"candidate", "shadow", "live"}:
            setattr(self, name, asked[name])
        acts = {
            "requests": self.requests,
            "stage": self.stage,
            "run": self.run,
            "roll back": self.roll_back,
            "again": self.again,
        }
        if "act" in asked:
            acts[asked["act"]]()

    # ------------------------------------------------------------ what is computed

    def _begin(self) -> None:
        plan = stages(shadow=self.shadow, live=self.live)
        self._run = _Run(self.candidate, plan, self._gate(), self._places)

    def _keep(self) -> None:
        outcome = self._run.outcome
        if outcome:
            self._ended[self.candidate, self.shadow, self.live] = outcome
            self.set_trait("outcomes", {**self.outcomes, self.candidate: outcome.describe()})

    def _under(self, shadow: int, live: int) -> dict[str, _Outcome]:
        """How rollouts ended under one plan."""
        plan = (shadow, live)
        return {name: self._ended[name, *plan] for name in CANARIES if (name, *plan) in self._ended}

    def _right_plans(self) -> list[int]:
        """The worse answers that users saw under each plan that ended all exports rightly.

        Counted are those of the exports with a defect.
        """
        plans = {(shadow, live) for _, shadow, live in self._ended}
        harms = []
        for plan in plans:
            ended = self._under(*plan)
            if len(ended) == len(CANARIES) and all(each.right for each in ended.values()):
                harms.append(sum(ended[name].harmed for name in ended if not CANARIES[name].sound))
        return harms

    def _targets(self) -> list[dict]:
        harms = self._right_plans()
        sound = " and ".join(name for name, canary in CANARIES.items() if canary.sound)
        return [
            {
                "done": bool(harms),
                "text": f"Under one plan {sound} come to answer all requests, and the gate or the "
                "guardrail takes the other five back.",
            },
            {
                "done": 0 in harms,
                "text": "The same, and users see no worse answer of the other five.",
            },
        ]

    def _verdict(self) -> str:
        run, row = self._run, self._run.row
        if run.outcome is None:
            where = _at(row.stage.name).capitalize()
            return f"{where}: {row.passed:,} of {row.requests:,} requests."
        if run.outcome.by == "all requests":
            return f"{self.candidate} answers all requests."
        return f"Rolled back by {run.outcome.by} {_at(row.stage.name)}."

    def _reading(self) -> str:
        run = self._run
        return (
            f"{run.count('pairs'):,} compared: {run.count('worse'):,} worse, "
            f"{run.count('better'):,} better, E = {_e_value(run.power)}. "
            f"{_users(run.count('harmed')).capitalize()}."
        )

    def _broken(self) -> bool:
        outcome = self._run.outcome
        return outcome is not None and outcome.by == "the guardrail"

    def _lane(self) -> list[dict]:
        """The stages from left to right, all drawn equally wide."""
        run, count = self._run, len(self._run.rows)
        lane = []
        for i, row in enumerate(run.rows):
            state = "ahead" if i > run.place else "done" if i < run.place else "now"
            if i == run.place and run.outcome:
                state = "done" if run.outcome.by == "all requests" else "back"
            lane.append(
                {
                    "name": row.stage.name,
                    "edges": [i / count, (i + 1) / count],
                    "state": state,
                    "sign": {"done": "✓", "back": "✗", "now": "▸"}.get(state, ""),
                    "requests": f"{row.requests:,}",
                }
            )
        return lane

    def _curve(self) -> list[list[float]]:
        """The points of E: places from 0 to 1, across and up."""
        rows = self._run.rows
        return [
            [
                (place + passed / rows[place].requests) / len(rows),
                min(max((power - _LOW) / (_HIGH - _LOW), 0.0), 1.0),
            ]
            for place, passed, power in self._run.curve
        ]

    # ------------------------------------------------------------ what is drawn

    def _numbers(self) -> dict:
        run, canary = self._run, CANARIES[self.candidate]
        verdict, reading = self._verdict(), self._reading()
        rows = [_cells(row) for row in run.rows]
        targets = self._targets()
        here = self._under(self.shadow, self.live)
        ended = f"Under this plan {len(here)} of {len(CANARIES)} rollouts have ended"
        told = [
            f"{self.candidate}: {canary.what}.",
            verdict,
            reading,
            *(
                f"{row['stage']}: {row['requests']} requests, {row['pairs']} compared, worse "
                f"{row['worse']}, better {row['better']}, worse for users {row['harmed']}."
                for row in rows
            ),
            f"{ended}.",
            *(f"{name}: {outcome.describe()}." for name, outcome in here.items()),
            *(f"Goal{', reached' * target['done']}: {target['text']}" for target in targets),
        ]
        return {
            "menus": {"candidate": list(CANARIES), "shadow": SHADOWS, "live": LIVES},
            "candidate": self.candidate,
            "shadow": self.shadow,
            "live": self.live,
            "what": f"{canary.what}.",
            "over": run.outcome is not None,
            "right": run.outcome is None or run.outcome.right,
            "lane": self._lane(),
            "curve": self._curve(),
            "ticks": [[(e - _LOW) / (_HIGH - _LOW), f"{10.0**e:g}"] for e in range(-2, 4)],
            "limit": [(-math.log10(ALPHA) - _LOW) / (_HIGH - _LOW), f"alarm at {1 / ALPHA:g}"],
            "guardrail": f"Guardrail, {GUARDRAIL}: {'broken' if self._broken() else 'holds'}.",
            "broken": self._broken(),
            "verdict": verdict,
            "reading": reading,
            "rows": rows,
            "ended": f"{ended}.",
            "here": [[name, outcome.describe(), outcome.right] for name, outcome in here.items()],
            "targets": targets,
            "spoken": f"{verdict} {reading}",
            "sentence": "\n".join(told),
        }


def _requests(stage: Stage) -> int:
    return round(stage.pairs / stage.share) if stage.share else stage.pairs


def _cells(row: _Row) -> dict[str, str]:
    return {
        "stage": row.stage.name,
        "requests": f"{row.passed:,} of {row.requests:,}",
        "pairs": f"{row.pairs:,}",
        "worse": f"{row.worse:,}",
        "better": f"{row.better:,}",
        "harmed": f"{row.harmed:,}",
    }


def _users(worse: int) -> str:
    return f"users saw {worse:,} worse answer{'s' * (worse != 1)}"


def _at(stage: str) -> str:
    return f"at {stage}" if "%" in stage else f"in {stage}"


def _e_value(power: float) -> str:
    return f"{10.0**power:.3g}" if abs(power) < 6 else f"1e{power:.0f}"
