"""Three ways to prepare, as plain records: by Friday, over weeks, and one topic at a time.

Pure functions over a bank, reviews and a moment, as in ``drills``. The third way needs no
plan: it is a drill with a topic.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from labkit.interview.drills import Review, diagnostic, due_dates, moment, unseen
from labkit.interview.questions import Bank

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
        """What to run for it in a notebook; the names are in ``widget_drill_card``."""
        if self.action == "drill":
            return f'drill(topics=("{self.topic}",), count={_CARDS})'
        return {"diagnostic": "diagnostic()", "mock": "mock_interview()"}[self.action]

    @property
    def command(self) -> str:
        """What to run for it in a terminal."""
        if self.action == "drill":
            return f"python -m labkit drill --topic {self.topic} --count {_CARDS}"
        return {
            "diagnostic": "python -m labkit interview diagnostic",
            "mock": "python -m labkit mock",
        }[self.action]


def friday(bank: Bank, reviews: Sequence[Review], now: datetime) -> list[Step]:
    """What is left to do when the interview is days away: diagnostic, five topics, two mocks.

    What was done in the last seven days counts. The topics are those of the core: first where
    most was missed, then what was never asked, the most asked first. All done is an empty list.
    """
    now = moment(reviews, now)
    recent = [review for review in reviews if now - review.at < _RECENT]
    steps = []
    if not any(review.mode == "diagnostic" for review in recent):
        asked = diagnostic(bank, reviews)
        labs = len({question.lab for question in asked})
        minutes = -(-sum(question.seconds for question in asked) // 60)
        what = f"the diagnostic: {len(asked)} questions on {labs} labs, to find the gaps"
        steps.append(Step(what, minutes, "diagnostic"))
    topic_of = {question.id: question.topic for question in bank.questions.values()}
    drilled = Counter(topic_of.get(r.question) for r in recent if r.mode == "drill")
    done = [topic for topic in bank.topics if drilled[topic] >= _CARDS]
    open_ = [row for row in _by_need(bank, reviews) if row[0] not in done]
    for topic, right, seen in open_[: max(0, _TOPICS - len(done))]:
        so_far = f"{right} of {seen} right so far" if seen else "never asked"
        steps.append(Step(f"{bank.topics[topic].title.en}: {so_far}", 10, "drill", topic))
    # The answers of one mock are kept at one moment, its end.
    held = len({review.at for review in recent if review.mode == "mock"})
    return steps + [Step(f"mock interview {k}", 20, "mock") for k in range(held + 1, _MOCKS + 1)]


def _by_need(bank: Bank, reviews: Sequence[Review]) -> list[tuple[str, int, int]]:
    """(topic, right, seen) for each topic of the core, the one that needs most work first."""
    core = Counter(q.topic for q in bank.questions.values() if "core" in q.tags)
    newest = {review.question: review for review in reviews}
    rows = []
    for topic in core:
        known = [newest[q.id] for q in bank.topics[topic].questions if q.id in newest]
        rows.append((topic, sum(review.correct for review in known), len(known)))
    # Laplace's rule of succession: nothing seen is a half.
    return sorted(rows, key=lambda row: ((row[1] + 1) / (row[2] + 2), -core[row[0]]))


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
