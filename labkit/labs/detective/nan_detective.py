"""The NaN detective: a run that fails, eight instruments, four queries, one cause.

A case is a real training run, and each instrument measures it. The table in ``causes`` says
which findings each cause can show, so a reading rules out every cause that cannot show it.
``accuse`` compares the queries that were made with the fewest that settle the case.

>>> case = new_case(2)
>>> case.ask("fp32").finding
'it trains'
>>> case.queries_left
3
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

from labkit.labs.detective.broken_runs import run
from labkit.labs.detective.causes import CAUSES, FLAT, Cause
from labkit.labs.detective.instruments import INSTRUMENTS, Reading, first_bad_loss, learns, symptom

QUERIES = 4
"""How many instruments may be asked in one case."""

_DRAWS = 5
# For a sentence that says what would have ruled a suspect out: the broadest measurement first.
_BROADEST_FIRST = (
    "fp32",
    "first",
    "batch",
    "updates",
    "gradients",
    "scaler",
    "activations",
    "loss",
)


class Case:
    """A broken run, what has been asked of it, and the verdict once somebody was accused.

    ``symptom`` is what everybody can see, ``readings`` what was asked so far, in order.
    """

    def __init__(self, cause: Cause, seed: int, *, draw: int = 0) -> None:
        self.seed = seed
        self._cause = cause
        self._recipe = cause.recipe(seed + 10_000 * draw)
        self._steps = run(self._recipe)
        self._measured: dict[str, Reading] = {}
        self.readings: tuple[Reading, ...] = ()
        self.verdict: Verdict | None = None

    def __repr__(self) -> str:
        return f"Case {self.seed}: {self.symptom} {self.queries_left} queries left."

    @property
    def finding(self) -> str:
        """The symptom in the words of the table."""
        return symptom(self._steps)

    @property
    def symptom(self) -> str:
        """The complaint that opens the case."""
        if self.finding == FLAT:
            return "A 16-bit run: every loss is finite, and the loss hardly moves."
        bad = first_bad_loss(self._steps)
        return f"A 16-bit run: at step {bad} the loss is not finite any more."

    @property
    def queries_left(self) -> int:
        return QUERIES - len(self.readings)

    def losses(self, *, repaired: bool = False) -> list[float]:
        """The loss of each step; ``repaired``: of the run without its cause, once it is known.

        Raises:
            ValueError: the repaired run is asked for while the case is open.
        """
        if not repaired:
            return [step.loss for step in self._steps]
        if not self.verdict:
            raise ValueError(f"case {self.seed} is open: accuse a cause first")
        return [step.loss for step in run(self._cause.repaired(self._recipe))]

    def ask(self, instrument: str) -> Reading:
        """Measure, at the price of one query; an instrument that was asked before costs nothing.

        Raises:
            ValueError: there is no such instrument, no query is left, or the case is closed.
        """
        if instrument not in INSTRUMENTS:
            raise ValueError(f"instrument {instrument!r}: ask one of {', '.join(INSTRUMENTS)}")
        asked = {reading.instrument: reading for reading in self.readings}
        if instrument in asked:
            return asked[instrument]
        if self.verdict:
            raise ValueError(f"case {self.seed} is closed: open another with new_case(seed)")
        if not self.queries_left:
            raise ValueError(f"all {QUERIES} queries are used: accuse one of the causes")
        reading = self._measure(instrument)
        self.readings += (reading,)
        return reading

    def _measure(self, instrument: str) -> Reading:
        if instrument not in self._measured:
            reading = INSTRUMENTS[instrument].read(self._recipe, self._steps)
            self._measured[instrument] = reading
        return self._measured[instrument]

    def is_fair(self) -> bool:
        """Whether it fails, no reading contradicts the cause, and four queries can prove it.

        This measures everything, so that later queries take no time.
        """
        if self.finding == FLAT and learns([step.loss for step in self._steps]):
            return False
        readings = {name: self._measure(name) for name in INSTRUMENTS}
        if self._cause.id not in left(self.finding, readings.values()):
            return False
        try:
            return bool(shortest_chain(self._cause, self.finding, readings))
        except LookupError:
            return False

    def all_readings(self) -> dict[str, Reading]:
        """Every instrument's reading, once the case is closed.

        Raises:
            ValueError: it is still open.
        """
        if not self.verdict:
            raise ValueError(f"case {self.seed} is open: accuse a cause first")
        return {name: self._measure(name) for name in INSTRUMENTS}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of an accusation.

    Args:
        accused, cause: ids of ``CAUSES``. ``right``: they are the same.
        left: the causes that the readings had not ruled out, ids. If ``right`` and only the cause
            is left, the case was proved; otherwise it was guessed.
        sign: the reading that shows the mechanism at work.
        evidence: the readings that settle the case, as few as can be.
        against: for every innocent cause, the sentence that clears it.
        misconception: the wrong idea behind a wrong accusation, None if it was right.
        repair: what to do about the cause.
    """

    accused: str
    cause: str
    right: bool
    left: tuple[str, ...]
    sign: Reading
    evidence: tuple[Reading, ...]
    against: Mapping[str, str]
    misconception: str | None
    repair: str

    @property
    def proved(self) -> bool:
        return self.right and self.left == (self.cause,)

    def __str__(self) -> str:
        lines = [self._opening(), f"The sign of it: {_said(self.sign)}"]
        lines += ["What settles it, in as few queries as can be:"]
        lines += [f"- {_said(reading)}" for reading in self.evidence]
        return "\n".join([*lines, f"Repair: {self.repair}"])

    def _opening(self) -> str:
        name = CAUSES[self.cause].name
        if self.proved:
            return f"Proved: {_lower(name)}. Your readings leave no other suspect."
        if self.right:
            others = "; ".join(_lower(CAUSES[c].name) for c in self.left if c != self.cause)
            return f"Right, but not proved: {_lower(name)}. Your readings also allow: {others}."
        return f"Not so. {self.against[self.accused]} It was this: {_lower(name)}."


def new_case(seed: int) -> Case:
    """Open the case of a seed: the run is built and run, in seconds at most.

    As many seeds in a row as there are causes give every cause once, in an order of their own. A
    run that its readings do not settle, such as one that has not broken yet, is drawn anew.

    Raises:
        RuntimeError: none of the runs drawn for this seed is settled by its readings.
    """
    round_, place = divmod(seed, len(CAUSES))
    order = list(CAUSES)
    random.Random(f"order {round_}").shuffle(order)
    for draw in range(_DRAWS):
        case = Case(CAUSES[order[place]], seed, draw=draw)
        if case.is_fair():
            return case
    raise RuntimeError(
        f"case {seed}: none of {_DRAWS} runs is settled by its readings on this machine; take "
        "another seed, and please report it"
    )


def accuse(case: Case, cause: str) -> Verdict:
    """Close the case: say whether it was this, and what proves it.

    Raises:
        ValueError: an unknown cause, or the case is closed.
    """
    if cause not in CAUSES:
        raise ValueError(f"cause {cause!r}: accuse one of {', '.join(CAUSES)}")
    if case.verdict:
        raise ValueError(f"case {case.seed} is closed: open another with new_case(seed)")
    guilty = case._cause
    readings = {name: case._measure(name) for name in INSTRUMENTS}
    chain = shortest_chain(guilty, case.finding, readings)
    case.verdict = Verdict(
        accused=cause,
        cause=guilty.id,
        right=cause == guilty.id,
        left=tuple(left(case.finding, case.readings)),
        sign=readings[guilty.sign],
        evidence=tuple(readings[name] for name in chain),
        against={
            other.id: _cleared(other, case, readings)
            for other in CAUSES.values()
            if other is not guilty
        },
        misconception=None if cause == guilty.id else misconception(CAUSES[cause], guilty, case),
        repair=guilty.advice,
    )
    return case.verdict


def left(symptom: str, readings: Iterable[Reading]) -> list[str]:
    """The causes that a symptom and some readings do not rule out."""
    readings = list(readings)
    return [
        cause.id
        for cause in CAUSES.values()
        if cause.can_show("symptom", symptom)
        and all(cause.can_show(r.instrument, r.finding) for r in readings)
    ]


def shortest_chain(cause: Cause, symptom: str, readings: Mapping[str, Reading]) -> tuple[str, ...]:
    """The fewest instruments that together rule every other cause out, at most ``QUERIES``.

    Those are preferred of which the cause has something to say, in the order of the instruments.

    Raises:
        LookupError: no so few instruments do.
    """
    telling = [name for name in readings if name in cause.allows]
    for names in (telling, list(readings)):
        for length in range(QUERIES + 1):
            for chain in combinations(names, length):
                if left(symptom, (readings[name] for name in chain)) == [cause.id]:
                    return chain
    raise LookupError(f"{cause.id}: no {QUERIES} instruments rule all other causes out")


def _cleared(other: Cause, case: Case, readings: Mapping[str, Reading]) -> str:
    """Which measurement rules a cause out: one that was made if there is any, else the broadest."""
    if not other.can_show("symptom", case.finding):
        return f"Among these runs the symptom alone clears “{_lower(other.name)}”: {case.finding}."
    asked = [reading.instrument for reading in case.readings]
    for name in (*asked, *_BROADEST_FIRST):
        reading = readings[name]
        if not other.can_show(name, reading.finding):
            whose = "Your own reading" if name in asked else "One reading"
            can = other.allows.get(name)
            would = f", where that cause shows {' or '.join(can)}" if can else ""
            return (
                f"{whose} clears “{_lower(other.name)}”: {INSTRUMENTS[name].name} shows "
                f"{reading.finding}{would}."
            )
    raise LookupError(f"no reading clears {other.id}")


def misconception(accused: Cause, guilty: Cause, case: Case) -> str:
    """The wrong idea that a wrong accusation shows, an id of ``labkit.base.misconceptions``."""
    if not accused.can_show("symptom", case.finding):
        return "nan-and-stall-are-one-illness"
    if any(not accused.can_show(r.instrument, r.finding) for r in case.readings):
        return "a-hunch-outweighs-a-reading"
    if accused.precision and not guilty.precision:
        return "sixteen-bits-are-to-blame"
    if guilty.precision and not accused.precision:
        return "formats-are-innocent"
    if accused.id == "underflow":
        return "a-stall-is-underflow"
    if accused.id == "unchecked-scale":
        return "the-loss-scale-rules-the-forward-pass"
    if guilty.id == "adam-eps":
        return "nan-means-overflow"
    return "one-symptom-one-cause"


def _said(reading: Reading) -> str:
    return f"{INSTRUMENTS[reading.instrument].name}: {reading.text}"


def _lower(name: str) -> str:
    """A name in the middle of a sentence; names and abbreviations keep their capitals."""
    return name if name.startswith("Adam") else name[0].lower() + name[1:]
