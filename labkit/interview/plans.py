"""Three ways to prepare, as plain records: by Friday, over weeks, and one topic at a time.

Pure functions over a bank, reviews and a moment, as in ``drills``. The third way needs no
plan: it is a drill with a topic.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from labkit.interview.cards import Question
from labkit.interview.drills import Review, diagnostic, due_dates, moment, unseen
from labkit.interview.question_parts import Text
from labkit.interview.questions import Bank

_RECENT = timedelta(days=7)
_SITTING = 15 * 60  # seconds of core questions in one step, at most, where a topic has no more
_MOCKS = 2
MOCK_MINUTES = 20


@dataclass(frozen=True)
class Step:
    """One thing to do, for how many minutes; ``action`` is "diagnostic", "drill" or "mock".

    A drill asks ``count`` core questions of its ``topics``.
    """

    what: Text
    minutes: int
    action: str
    topics: tuple[str, ...] = ()
    count: int = 0

    @property
    def cell(self) -> str:
        """What to run for it in a notebook; the names are in ``widget_drill_card``."""
        if self.action == "drill":
            return f"drill(topics={self.topics}, core=True, count={self.count})"
        return {"diagnostic": "diagnostic()", "mock": "mock_interview()"}[self.action]

    @property
    def command(self) -> str:
        """What to run for it in a terminal."""
        if self.action == "drill":
            topics = " ".join(f"--topic {topic}" for topic in self.topics)
            return f"python -m labkit drill --core {topics} --count {self.count}"
        return {
            "diagnostic": "python -m labkit interview diagnostic",
            "mock": "python -m labkit mock",
        }[self.action]


def friday(bank: Bank, reviews: Sequence[Review], now: datetime) -> list[Step]:
    """What is left to do when the interview is days away: diagnostic, the whole core, two mocks.

    The core questions come in sittings of a quarter of an hour by the bank's times, the topics that
    need most work first. What was done in the last seven days counts: a core question whose newest
    answer then was right is not asked again. All done is an empty list.
    """
    now = moment(reviews, now)
    recent = [review for review in reviews if now - review.at < _RECENT]
    steps = []
    if not any(review.mode == "diagnostic" for review in recent):
        asked = diagnostic(bank, reviews)
        labs = len({question.lab for question in asked})
        what = Text(
            en=f"the diagnostic: {len(asked)} questions on {labs} labs, to find the gaps",
            zh=f"诊断测验：{labs} 个实验共 {len(asked)} 题，找出薄弱之处",
        )
        steps.append(Step(what, _minutes(asked), "diagnostic"))
    newest = {review.question: review for review in recent}
    open_: dict[str, list[Question]] = defaultdict(list)
    for question in bank.questions.values():
        known = question.id in newest and newest[question.id].correct
        if "core" in question.tags and not known:
            open_[question.topic].append(question)
    needy = [topic for topic in _by_need(bank, reviews) if topic in open_]
    steps += [_drill(bank, topics, open_) for topics in _sittings(needy, open_)]
    # The answers of one mock are kept at one moment, its end.
    held = len({review.at for review in recent if review.mode == "mock"})
    for place in range(held + 1, _MOCKS + 1):
        what = Text(en=f"mock interview {place}", zh=f"第 {place} 次模拟面试")
        steps.append(Step(what, MOCK_MINUTES, "mock"))
    return steps


def _sittings(topics: Sequence[str], open_: Mapping[str, Sequence[Question]]) -> list[list[str]]:
    """The topics in their order, as many to a sitting as fit into it."""
    sittings: list[list[str]] = []
    left = 0
    for topic in topics:
        seconds = sum(question.seconds for question in open_[topic])
        if not sittings or seconds > left:
            sittings.append([])
            left = _SITTING
        sittings[-1].append(topic)
        left -= seconds
    return sittings


def _drill(bank: Bank, topics: Sequence[str], open_: Mapping[str, Sequence[Question]]) -> Step:
    asked = [question for topic in topics for question in open_[topic]]
    titles = [bank.topics[topic].title for topic in topics]
    many = "1 core question" if len(asked) == 1 else f"{len(asked)} core questions"
    what = Text(
        en=f"{', '.join(title.en for title in titles)}: {many}",
        zh=f"{'、'.join(title.zh for title in titles)}：核心题 {len(asked)} 道",
    )
    return Step(what, _minutes(asked), "drill", tuple(topics), len(asked))


def _minutes(questions: Iterable[Question]) -> int:
    """What the questions take by the bank's times, in whole minutes."""
    return -(-sum(question.seconds for question in questions) // 60)


def _by_need(bank: Bank, reviews: Sequence[Review]) -> list[str]:
    """The topics of the core, the one that needs most work first."""
    core = Counter(q.topic for q in bank.questions.values() if "core" in q.tags)
    newest = {review.question: review for review in reviews}
    rows = []
    for topic in core:
        known = [newest[q.id] for q in bank.topics[topic].questions if q.id in newest]
        # Laplace's rule of succession: nothing seen is a half.
        right = (sum(review.correct for review in known) + 1) / (len(known) + 2)
        rows.append((right, -core[topic], topic))
    return [topic for *_, topic in sorted(rows)]


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
