"""What to do until an interview, as plain records: today, within days, over weeks.

Pure functions over a bank, reviews and a moment, as in ``drills``; the moment is in the learner's
time zone, so that its date is today.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Literal

from labkit.interview.cards import Question
from labkit.interview.drills import Review, diagnostic_questions, due_dates, moment, session, unseen
from labkit.interview.question_parts import Text
from labkit.interview.questions import Bank
from labkit.interview.wording import WORDS, ahead

_RECENT = timedelta(days=7)
_SITTING = 15 * 60  # seconds of core questions in one step, at most, where a topic has no more
_MOCKS = 2
MOCK_MINUTES = 20
_TODAY = 30  # minutes of drills on the day itself: what was missed, or the first things to know
_DAYS = 6  # days before an interview from which on the whole core is asked, and two mocks held
_A_DAY = 10  # questions a day before that, at least
_DIAGNOSTIC_LASTS = timedelta(days=28)
_NO_LAB = "99"  # after all labs


@dataclass(frozen=True)
class Step:
    """One thing to do, for how many minutes; ``action`` is what it begins.

    A "drill" asks ``count`` core questions of its ``topics``; "daily" asks ``count`` of what is due
    and then of what is new; "plan" is the plan itself, on a later day. ``when`` says on which days.
    """

    what: Text
    minutes: int
    action: Literal["diagnostic", "drill", "daily", "mock", "plan"]
    topics: tuple[str, ...] = ()
    count: int = 0
    when: Text | None = None

    @property
    def cell(self) -> str:
        """What to run for it in a notebook; the names are in ``widget_drill_card``."""
        return {
            "diagnostic": "diagnostic()",
            "drill": f"drill(topics={self.topics}, core=True, count={self.count})",
            "daily": f"drill(count={self.count})",
            "mock": "mock_interview()",
            "plan": "preparing.friday_plan()",
        }[self.action]

    @property
    def command(self) -> str:
        """What to run for it in a terminal."""
        topics = " ".join(f"--topic {topic}" for topic in self.topics)
        rest = {
            "diagnostic": "interview diagnostic",
            "drill": f"drill --core {topics} --count {self.count}",
            "daily": f"drill --count {self.count}",
            "mock": "mock",
            "plan": "interview plan",
        }[self.action]
        return f"python -m labkit {rest}"


@dataclass(frozen=True)
class StudyPlan:
    """What is left to do from ``today`` on; ``interview`` is None where no date is set."""

    today: date
    interview: date | None
    steps: tuple[Step, ...]

    def text(self, language: str, line: Callable[[Step], str]) -> str:
        """The plan in lines; ``line(step)`` is what to run for a step, in a line of its own."""
        said, minutes = WORDS["plan without a date"][language], WORDS["minutes"][language]
        lines = [ahead(self.interview, self.today)[language] if self.interview else said]
        for when, steps in itertools.groupby(self.steps, key=lambda step: step.when):
            lines += ["", when[language]] if when else [""]
            for step in steps:
                lines.append(f"{step.minutes:3} {minutes}  {step.what[language]}")
                lines.append(f"         {line(step)}")
        return "\n".join(lines if self.steps else [*lines, WORDS["all done"][language]])


def plan(
    bank: Bank, reviews: Sequence[Review], now: datetime, interview: datetime | None = None
) -> StudyPlan:
    """What is left to do until an interview, by the days left; without a date that is six or less.

    - On the day itself: half an hour of the core, what was missed or never asked.
    - Within six days: a diagnostic, the whole core and two mocks, spread over the days.
    - Before that: a diagnostic, a drill each day, a mock each week.

    The topics that need most work come first, and those of the first labs where nothing is known of
    several. What was done in the last seven days counts: a core question whose newest answer then
    was right is not asked again. Raises ValueError for an interview before today.
    """
    today, day = now.date(), interview.date() if interview else None
    if interview is None:
        steps = _last_days(bank, reviews, now)
    elif day < today:
        raise ValueError(f"the interview must not be before today, {today}; got {day}")
    elif day == today:
        steps = _today(bank, reviews, now)
    elif (day - today).days <= _DAYS:
        steps = _spread(_last_days(bank, reviews, now), today, day)
    else:
        steps = _weeks(bank, reviews, now, interview)
    return StudyPlan(today, day, tuple(steps))


def _today(bank: Bank, reviews: Sequence[Review], now: datetime) -> list[Step]:
    """Sittings of the core, as many as fit into half an hour; one of them at least."""
    steps = _core(bank, reviews, now)
    ends = itertools.accumulate(step.minutes for step in steps)
    return [step for step, end in zip(steps, ends, strict=True) if end <= _TODAY] or steps[:1]


def _last_days(bank: Bank, reviews: Sequence[Review], now: datetime) -> list[Step]:
    """A diagnostic, the core and the mocks, without what the last seven days hold of them."""
    recent = _since(reviews, now, _RECENT)
    return [
        *_diagnostic(bank, reviews, recent),
        *_core(bank, reviews, now),
        *(_mock(place) for place in range(_mocks(recent) + 1, _MOCKS + 1)),
    ]


def _spread(steps: Sequence[Step], today: date, day: date) -> list[Step]:
    """The steps with a day for each, from today to the day before the interview, evenly."""
    days, whole = (day - today).days, sum(step.minutes for step in steps)
    ends = itertools.accumulate(step.minutes for step in steps)
    begun = [end - step.minutes for step, end in zip(steps, ends, strict=True)]
    return [
        replace(step, when=_named(today + timedelta(days=days * before // whole), today))
        for step, before in zip(steps, begun, strict=True)
    ]


def _named(day: date, today: date) -> Text:
    names = {0: ("today", "今天"), 1: ("tomorrow", "明天")}
    en, zh = names.get((day - today).days, (f"{day}", f"{day}"))
    return Text(en=en, zh=zh)


def _weeks(bank: Bank, reviews: Sequence[Review], now: datetime, interview: datetime) -> list[Step]:
    last = interview.date() - timedelta(days=_DAYS)
    held = weeks(bank, reviews, now, interview)
    count = max(_A_DAY, held.due[0][1] + held.new_a_day)
    asked = session(bank, reviews, now, count=count, interview=interview)
    each_day = Step(
        Text(
            en=f"{len(asked)} questions: what is due, then new ones",
            zh=f"{len(asked)} 题：先做到期的，再做新题",
        ),
        _minutes(asked),
        "daily",
        count=len(asked),
        when=Text(en=f"each day before {last}", zh=f"{last} 之前每天"),
    )
    then = Step(
        Text(en="the whole core and two mocks", zh="全部核心题和两次模拟面试"),
        sum(step.minutes for step in _last_days(bank, [], now)),
        "plan",
        when=Text(en=f"from {last} on", zh=f"{last} 起"),
    )
    known, today = _since(reviews, now, _DIAGNOSTIC_LASTS), _named(now.date(), now.date())
    mocks = [] if _mocks(_since(reviews, now, _RECENT)) else [_mock(_mocks(reviews) + 1)]
    return [
        *(replace(step, when=today) for step in _diagnostic(bank, reviews, known)),
        each_day,
        *(replace(step, when=Text(en="this week", zh="本周")) for step in mocks),
        then,
    ]


def _since(reviews: Sequence[Review], now: datetime, span: timedelta) -> list[Review]:
    now = moment(reviews, now)
    return [review for review in reviews if now - review.at < span]


def _mocks(reviews: Iterable[Review]) -> int:
    """How many mocks were held: the answers of one are kept at one moment, its end."""
    return len({review.at for review in reviews if review.mode == "mock"})


def _diagnostic(bank: Bank, reviews: Sequence[Review], recent: Iterable[Review]) -> list[Step]:
    """The diagnostic, unless one is among the recent reviews."""
    if any(review.mode == "diagnostic" for review in recent):
        return []
    asked = diagnostic_questions(bank, reviews)
    labs = len({question.lab for question in asked})
    what = Text(
        en=f"the diagnostic: {len(asked)} questions on {labs} labs, to find the gaps",
        zh=f"诊断测验：{labs} 个实验共 {len(asked)} 题，找出薄弱之处",
    )
    return [Step(what, _minutes(asked), "diagnostic")]


def _mock(place: int) -> Step:
    what = Text(en=f"mock interview {place}", zh=f"第 {place} 次模拟面试")
    return Step(what, MOCK_MINUTES, "mock")


def _core(bank: Bank, reviews: Sequence[Review], now: datetime) -> list[Step]:
    """The core questions that are not known, in sittings of a quarter of an hour."""
    newest = {review.question: review for review in _since(reviews, now, _RECENT)}
    open_: dict[str, list[Question]] = defaultdict(list)
    for question in bank.questions.values():
        known = question.id in newest and newest[question.id].correct
        if "core" in question.tags and not known:
            open_[question.topic].append(question)
    needy = [topic for topic in _by_need(bank, reviews) if topic in open_]
    return [_drill(bank, topics, open_) for topics in _sittings(needy, open_)]


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
    """The topics of the core, the one that needs most work first, then that of the first lab."""
    core = Counter(q.topic for q in bank.questions.values() if "core" in q.tags)
    newest = {review.question: review for review in reviews}
    rows = []
    for topic in core:
        known = [newest[q.id] for q in bank.topics[topic].questions if q.id in newest]
        # Laplace's rule of succession: nothing seen is a half.
        right = (sum(review.correct for review in known) + 1) / (len(known) + 2)
        rows.append((right, bank.topics[topic].lab or _NO_LAB, -core[topic], topic))
    return [topic for *_, topic in sorted(rows)]


@dataclass(frozen=True)
class Weeks:
    """What the days until the interview hold.

    ``due`` gives each day from today to the day before the interview, or today alone if the
    interview is today, with the number of reviews that fall due on it if nothing new is begun; what
    is overdue counts today. ``new_a_day`` new questions a day see all ``unseen`` core questions
    once before the interview.
    """

    interview: date
    due: tuple[tuple[date, int], ...]
    unseen: int
    new_a_day: int


def weeks(bank: Bank, reviews: Sequence[Review], now: datetime, interview: datetime) -> Weeks:
    """The days until an interview; ValueError for one before today."""
    today, day = now.date(), interview.date()
    if day < today:
        raise ValueError(f"the interview must not be before today, {today}; got {day}")
    days = [today + timedelta(days=place) for place in range(max(1, (day - today).days))]
    dates = due_dates(bank, reviews, now, interview)
    falls = Counter(max(at.astimezone(now.tzinfo).date(), today) for at in dates)
    left = sum("core" in question.tags for question in unseen(bank, reviews))
    return Weeks(
        interview=day,
        due=tuple((each, falls[each]) for each in days),
        unseen=left,
        new_a_day=-(-left // len(days)),
    )
