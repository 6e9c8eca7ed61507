"""What to ask next: pure functions over a bank, reviews and a moment.

The schedule is computed from the reviews each time and stored nowhere. The fsrs package turns
ratings into dates (its default parameters; no random shift, so that equal reviews give equal
dates). A rating follows from what can be seen: correct or not, hints, time, stated confidence.
Moments are aware datetimes, given by the caller.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

import fsrs
from pydantic import AwareDatetime, ConfigDict, Field, StrictBool

from labkit.interview.cards import Question
from labkit.interview.question_parts import Text
from labkit.interview.questions import Bank
from labkit.labs.engine.misconceptions import misconceptions

GUESSING, FAIRLY_SURE, CERTAIN = 1, 2, 3
NOT_SAID = 0
"""The confidence of "I do not know", and of free speech, which its speaker judges."""

_SLOW = 2.0
_QUICK = 0.5
WARM_UP_SECONDS = 90
"""What a warm-up takes at most, by the questions' own times."""

_SHORT = 45  # seconds of a question never asked, at most: two fit into a warm-up
_START = "00_start_here"
_LATER = "07"  # labs from here on take those before for granted
_NEXT_DAY = timedelta(days=1)
_CLOCK_SLACK = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Review:
    """One answered card.

    ``seed`` drew its numbers, ``score`` lies in 0 to 1, ``sure`` is 1 guessing to 3 certain or
    ``NOT_SAID``, ``seconds`` is how long it took, ``mode`` where it was asked ("drill", "mock",
    "diagnostic").
    """

    __pydantic_config__ = ConfigDict(extra="forbid")  # for reviews that come out of a file

    at: AwareDatetime
    question: str
    seed: int
    correct: StrictBool
    score: Annotated[float, Field(ge=0, le=1)]
    sure: Annotated[int, Field(ge=NOT_SAID, le=CERTAIN)] = FAIRLY_SURE
    hints: int = 0
    seconds: float = 0.0
    mode: str = "drill"
    misconceptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class WrongIdeaSeen:
    """A wrong idea that showed in a lab, and when."""

    misconception: str
    at: datetime


@dataclass(frozen=True)
class Due:
    """A question to ask: ``since`` when, ``recall`` the chance that it is still known, and why."""

    question: Question
    since: datetime
    recall: float
    why: str


def rating(review: Review, expected_seconds: float) -> fsrs.Rating:
    """How well a card was known: Again, Hard, Good or Easy.

    Wrong is Again. Right with a hint, by a guess, or in over twice the expected time is Hard;
    right, certain and in at most half of it is Easy.
    """
    if not review.correct:
        return fsrs.Rating.Again
    if review.hints or review.sure == GUESSING or review.seconds > _SLOW * expected_seconds:
        return fsrs.Rating.Hard
    if review.sure == CERTAIN and 0 < review.seconds <= _QUICK * expected_seconds:
        return fsrs.Rating.Easy
    return fsrs.Rating.Good


def moment(reviews: Iterable[Review], now: datetime) -> datetime:
    """The present, or the last review where the clock went backwards: time does not run back."""
    return max((review.at for review in reviews), default=now) if _ahead(reviews, now) else now


def clock_trouble(reviews: Sequence[Review], now: datetime) -> Text | None:
    """A sentence where the newest review lies over an hour in the future, else None."""
    if not _ahead(reviews, now):
        return None
    last = max(review.at for review in reviews)
    clock, newest = f"{now:%Y-%m-%d %H:%M}", f"{last:%Y-%m-%d %H:%M}"
    return Text(
        en=f"The clock says {clock}, your newest review {newest} (UTC)."
        " Nothing is lost; set the clock. Until then the schedule counts from that review.",
        zh=f"系统时间是 {clock}，而最新的答题记录是 {newest}（UTC）。"
        "记录没有丢失；请校准时钟。在此之前，复习计划从那条记录算起。",
    )


def _ahead(reviews: Iterable[Review], now: datetime) -> bool:
    return any(review.at > now + _CLOCK_SLACK for review in reviews)


def _memories(
    bank: Bank, reviews: Iterable[Review], scheduler: fsrs.Scheduler
) -> dict[str, fsrs.Card]:
    """What fsrs believes of each question that was reviewed; unknown questions are left out."""
    cards: dict[str, fsrs.Card] = {}
    for review in reviews:
        question = bank.questions.get(review.question)
        if question is None:
            continue
        at = review.at.astimezone(UTC)
        card = cards.get(question.id) or fsrs.Card(card_id=1, due=at)
        if card.last_review is not None:
            at = max(at, card.last_review)  # reviews of a clock that went backwards
        rated = rating(review, question.seconds)
        cards[question.id], _ = scheduler.review_card(card, rated, at)
    return cards


def _scheduler(now: datetime, interview: datetime | None) -> fsrs.Scheduler:
    longest = 36500 if interview is None else max(1, (interview - now).days)
    return fsrs.Scheduler(enable_fuzzing=False, maximum_interval=longest)


def due(
    bank: Bank,
    reviews: Sequence[Review],
    now: datetime,
    *,
    mistakes: Iterable[WrongIdeaSeen] = (),
    interview: datetime | None = None,
    topics: Iterable[str] | None = None,
) -> list[Due]:
    """The questions that are due, the first to ask first.

    A mistake made in a lab makes the questions that know it due the day after, until one of them
    is answered. With an ``interview`` date no interval reaches beyond it, and what will be
    forgotten first by then comes first; without one, what is likeliest forgotten now.
    """
    now = moment(reviews, now)
    wanted = None if topics is None else set(topics)
    scheduler = _scheduler(now, interview)
    cards = _memories(bank, reviews, scheduler)
    at = now if interview is None else max(now, interview)
    found = [
        Due(bank.questions[id], card.due, scheduler.get_card_retrievability(card, at), "review")
        for id, card in cards.items()
        if card.due <= now
    ]
    seen = {entry.question.id for entry in found}
    for question, mistake in _questions_of(bank, mistakes):
        last = cards[question.id].last_review if question.id in cards else None
        since = mistake.at + _NEXT_DAY
        if question.id not in seen and since <= now and (last is None or last < mistake.at):
            seen.add(question.id)
            found.append(Due(question, since, 0.0, mistake.misconception))
    found = [entry for entry in found if wanted is None or entry.question.topic in wanted]
    return sorted(found, key=lambda entry: (entry.recall, entry.since, entry.question.id))


def _questions_of(bank: Bank, mistakes: Iterable[WrongIdeaSeen]):
    knowing: dict[str, list[Question]] = defaultdict(list)
    for question in bank.questions.values():
        for idea in question.wrong_ideas:
            knowing[idea].append(question)
    newest: dict[str, WrongIdeaSeen] = {}
    for mistake in mistakes:
        newest[mistake.misconception] = mistake
    for mistake in newest.values():
        for question in knowing[mistake.misconception]:
            yield question, mistake


def unseen(
    bank: Bank, reviews: Iterable[Review], *, topics: Iterable[str] | None = None
) -> list[Question]:
    """Questions never asked: what interviewers ask most first, then the easier ones."""
    asked = {review.question for review in reviews}
    wanted = None if topics is None else set(topics)
    fresh = [
        question
        for question in bank.questions.values()
        if question.id not in asked and (wanted is None or question.topic in wanted)
    ]
    return sorted(fresh, key=lambda q: ("core" not in q.tags, q.level))


def next_seed(question: Question, reviews: Iterable[Review]) -> int:
    """The seed of the next card of a question: one more each time, so numbers are fresh."""
    return sum(review.question == question.id for review in reviews)


def session(
    bank: Bank,
    reviews: Sequence[Review],
    now: datetime,
    *,
    count: int | None = 10,
    mistakes: Iterable[WrongIdeaSeen] = (),
    interview: datetime | None = None,
    topics: Iterable[str] | None = None,
    core: bool = False,
) -> list[Question]:
    """The questions of one sitting: what is due, then new ones, at most ``count`` (None: all).

    With ``core`` only what interviewers ask most: first what was missed or never asked, so that the
    whole of it is asked sooner or later. Raises ValueError for a count below 1 and for a topic that
    the bank does not have.
    """
    if count is not None and count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    strays = sorted(set(topics or ()) - set(bank.topics))
    if strays:
        raise ValueError(f"there is no topic {strays[0]!r}; there are {', '.join(bank.topics)}")
    waiting = due(bank, reviews, now, mistakes=mistakes, interview=interview, topics=topics)
    chosen = [entry.question for entry in waiting]
    fresh = unseen(bank, reviews, topics=topics)
    if core:
        newest = {review.question: review.correct for review in reviews}
        again = [question for question in chosen if newest.get(question.id)]
        missed = [question for question in chosen if not newest.get(question.id)]
        chosen = [q for q in [*missed, *fresh, *again] if "core" in q.tags]
    else:
        chosen += fresh
    return list({question.id: question for question in chosen}.values())[:count]


def due_dates(
    bank: Bank, reviews: Sequence[Review], now: datetime, interview: datetime | None = None
) -> list[datetime]:
    """When each question that was ever answered falls due again."""
    now = moment(reviews, now)
    return [card.due for card in _memories(bank, reviews, _scheduler(now, interview)).values()]


def warm_up_questions(
    bank: Bank,
    reviews: Sequence[Review],
    now: datetime,
    *,
    lab: str,
    passed: Collection[str],
    count: int = 3,
    mistakes: Iterable[WrongIdeaSeen] = (),
) -> list[Question]:
    """At most ``count`` questions, in at most ``WARM_UP_SECONDS``, on what was taught before a lab.

    What is due comes first, then short ones never asked, of the newest lab first. Each belongs to
    a section of ``passed``, written "LAB#Section", and of a lab before ``lab``, a name such as
    "03_overflow_underflow_rounding"; names sort as the labs do.
    """

    def fits(question: Question) -> bool:
        earlier = question.taught_in is not None and question.taught_in < lab
        return earlier and question.section in passed and not question.long

    waiting = [entry.question for entry in due(bank, reviews, now, mistakes=mistakes)]
    known = {question.id for question in waiting}
    fresh = [q for q in unseen(bank, reviews) if q.id not in known and q.seconds <= _SHORT]
    # The newest lab before this one first: what one builds on.
    fresh.sort(key=lambda q: q.taught_in or "", reverse=True)
    chosen: list[Question] = []
    left = WARM_UP_SECONDS
    for question in filter(fits, waiting + fresh):
        if len(chosen) < count and question.seconds <= left:
            chosen.append(question)
            left -= question.seconds
    return chosen


def questions_to_say(bank: Bank, *, lab: str, count: int = 5) -> list[Question]:
    """What an interviewer asks on what a lab taught: free speech first, then what is asked most."""
    of_lab = [q for q in bank.questions.values() if q.taught_in == lab and not q.program]
    of_lab.sort(key=lambda q: (not q.spoken, "core" not in q.tags, q.level))
    return of_lab[:count]


def diagnostic_questions(bank: Bank, reviews: Iterable[Review]) -> list[Question]:
    """Two questions of each lab from 01 to 06, one of each later lab that is written, in order.

    Those asked least often come first, then what interviewers ask most; no two of a lab share a
    section while there is another.
    """
    asked = Counter(review.question for review in reviews)
    chosen: list[Question] = []
    for lab in sorted({q.lab for q in bank.questions.values() if q.lab} - {_START}):
        of_lab = [q for q in bank.questions.values() if q.lab == lab and not q.long]
        of_lab.sort(key=lambda q: (asked[q.id], "core" not in q.tags, q.level, q.seconds))
        sections = {q.section: q for q in reversed(of_lab)}
        first = [q for q in of_lab if sections[q.section] is q]
        count = 2 if lab < _LATER else 1
        chosen += (first + [q for q in of_lab if q not in first])[:count]
    return chosen


@dataclass(frozen=True)
class LabResult:
    """Of the questions of one lab: how many were right, of how many."""

    lab: str
    right: int
    asked: int


def by_lab(bank: Bank, reviews: Iterable[Review]) -> list[LabResult]:
    """The results of some reviews lab by lab, in the labs' order."""
    results: dict[str, list[bool]] = defaultdict(list)
    for review in reviews:
        question = bank.questions.get(review.question)
        if question and question.lab:
            results[question.lab].append(review.correct)
    return [LabResult(lab, sum(results[lab]), len(results[lab])) for lab in sorted(results)]


def where_to_start(bank: Bank, reviews: Iterable[Review]) -> str | None:
    """The first lab of which a question was missed; None where none was."""
    return next((row.lab for row in by_lab(bank, reviews) if row.right < row.asked), None)


@dataclass(frozen=True)
class Confidence:
    """Of the answers given with one confidence: how many, and which share was right."""

    sure: int
    answers: int
    right: float


def calibration(reviews: Iterable[Review]) -> list[Confidence]:
    """The share of right answers at each stated confidence, from guessing to certain.

    Somebody well calibrated is right more often the surer they are; with no answers the share is
    NaN.
    """
    by_sure: dict[int, list[bool]] = {sure: [] for sure in (GUESSING, FAIRLY_SURE, CERTAIN)}
    for review in reviews:
        if review.sure != NOT_SAID:
            by_sure[review.sure].append(review.correct)
    return [
        Confidence(sure, len(given), sum(given) / len(given) if given else math.nan)
        for sure, given in by_sure.items()
    ]


def to_revisit(bank: Bank, reviews: Iterable[Review]) -> list[str]:
    """Sections of labs (lab#section) with at least two missed cards, the most missed first.

    A card counts with its own section and with those that cure the ideas its answer showed; the
    newest answer to a question counts.
    """
    newest: Mapping[str, Review] = {review.question: review for review in reviews}
    missed: dict[str, set[str]] = defaultdict(set)
    for id, review in newest.items():
        question = bank.questions.get(id)
        if question is None or review.correct:
            continue
        for section in sections(question, review):
            missed[section].add(id)
    twice = [section for section, ids in missed.items() if len(ids) >= 2]
    return sorted(twice, key=lambda section: (-len(missed[section]), section))


def sections(question: Question, review: Review) -> set[str]:
    """The question's own section, and those that cure the ideas which its answer showed."""
    known = misconceptions()
    cures = {known[idea].cure for idea in review.misconceptions if idea in known}
    places = cures | ({question.section} if question.section else set())
    return {place for place in places if not place.startswith("topic:")}
