"""Three ways to prepare, as plain records: by Friday, over weeks, and one topic at a time.

Pure functions over a bank, reviews and a moment, as in ``labkit.drills``. The third way needs no
plan: it is a drill with a topic.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from labkit.drills import Review, due_dates, moment, readiness, unseen
from labkit.questions import Bank

_RECENT = timedelta(days=7)
_TOPICS, _MOCKS = 5, 2
_CARDS = 8  # of a minute or so: ten minutes with the explanations


@dataclass(frozen=True)
class Step:
    """One thing to do, for how many minutes; ``action`` is "diagnostic", "drill" or "mock"."""

    what: str
    minutes: int
    action: str
    topic: str | None = None

    @property
    def cell(self) -> str:
        """What to run for it in a notebook; the names are in ``labkit.widgets.drill_card``."""
        if self.action == "drill":
            return f'drill(topics=("{self.topic}",), count={_CARDS})'
        return {"diagnostic": "diagnostic()", "mock": "mock_interview()"}[self.action]

    @property
    def command(self) -> str:
        """What to run for it in a terminal."""
        if self.action == "drill":
            return f"labkit drill --topic {self.topic} --count {_CARDS}"
        return {"diagnostic": "labkit drill --diagnostic", "mock": "labkit mock"}[self.action]


def friday(bank: Bank, reviews: Sequence[Review], now: datetime) -> list[Step]:
    """What is left to do when the interview is days away: diagnostic, five topics, two mocks.

    A diagnostic of the last seven days counts. The topics are those of the core forty in which
    least is known now, each for ten minutes; the list follows what was answered since.
    """
    now = moment(reviews, now)
    steps = []
    if not any(r.mode == "diagnostic" and now - r.at < _RECENT for r in reviews):
        steps.append(Step("the diagnostic, to find the gaps", 10, "diagnostic"))
    core = Counter(q.topic for q in bank.questions.values() if "core" in q.tags)
    rows = [row for row in readiness(bank, reviews, now) if core[row.topic]]
    rows.sort(key=lambda row: (row.ready, -core[row.topic]))
    steps += [
        Step(
            f"{bank.topics[row.topic].title.en}: {100 * row.ready:.0f} % ready",
            10,
            "drill",
            row.topic,
        )
        for row in rows[:_TOPICS]
    ]
    mocks = [f"mock interview {place}" for place in range(1, _MOCKS + 1)]
    return steps + [Step(mock, 20, "mock") for mock in mocks]


@dataclass(frozen=True)
class Weeks:
    """What the days until the interview hold.

    ``due`` gives each day from today to the day before the interview with the number of reviews
    that fall due on it if nothing new is begun; what is overdue counts today. ``new_a_day`` new
    questions a day see all ``unseen`` core questions once before the interview.
    """

    interview: date
    due: tuple[tuple[date, int], ...]
    unseen: int
    new_a_day: int


def weeks(bank: Bank, reviews: Sequence[Review], now: datetime, interview: datetime) -> Weeks:
    """The days until an interview; ValueError for one that is not after today."""
    today, day = now.date(), interview.date()
    if day <= today:
        raise ValueError(f"the interview must come after today, {today}; got {day}")
    days = [today + timedelta(days=place) for place in range((day - today).days)]
    falls = Counter(max(at.date(), today) for at in due_dates(bank, reviews, now, interview))
    left = sum("core" in question.tags for question in unseen(bank, reviews))
    return Weeks(
        interview=day,
        due=tuple((each, falls[each]) for each in days),
        unseen=left,
        new_a_day=-(-left // len(days)),
    )
