"""Preparing for an interview, with the learner's log: what was answered, what comes next.

``drills`` and ``mock`` are pure; this module reads their reviews from
``labkit.base.progress`` and writes them there, keeps the language and the date of the interview,
and carries reviews from one machine to another as JSON.
"""

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, time
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from labkit.base import progress
from labkit.base.home import replace_file
from labkit.base.progress import Event, ProgressError
from labkit.interview import mock
from labkit.interview.answers import Judgement
from labkit.interview.cards import Card
from labkit.interview.drills import Review, WrongIdeaSeen
from labkit.interview.mock import Mock, Turn
from labkit.interview.questions import Bank
from labkit.labs.texts import LANGUAGES

LOG = "interview"
"""The name under which the log keeps what belongs to no lab."""

FORMAT = 1

RULES = 2
"""The rules by which a mock asks. Those of 1, which had a length, asked otherwise."""


def reviews(log: Iterable[Event] | None = None) -> list[Review]:
    """All reviews, in the order they were recorded. Raises ProgressError for an unusable log."""
    log = progress.events(kind="review") if log is None else log
    return [_review(event) for event in log if event.kind == "review"]


def _review(event: Event) -> Review:
    said = event.detail
    return Review(
        at=event.at,
        question=event.item,
        seed=said["seed"],
        correct=said["correct"],
        score=said["score"],
        sure=said["sure"],
        hints=said["hints"],
        seconds=said["seconds"],
        mode=said["mode"],
        misconceptions=tuple(said["misconceptions"]),
    )


def keep(review: Review) -> str | None:
    """Add a review to the log; a sentence where that cannot be done, as ``progress.record``."""
    detail = asdict(review)
    at, question = detail.pop("at"), detail.pop("question")
    status = "right" if review.correct else "wrong"
    return progress.record("review", lab=LOG, item=question, status=status, now=at, **detail)


def make_review(
    card: Card,
    judgement: Judgement,
    *,
    at: datetime,
    sure: int,
    hints: int = 0,
    seconds: float = 0.0,
    mode: str = "drill",
) -> Review:
    """The review of one judged answer."""
    return Review(
        at=at,
        question=card.question.id,
        seed=card.seed,
        correct=judgement.correct,
        score=judgement.score,
        sure=sure,
        hints=hints,
        seconds=seconds,
        mode=mode,
        misconceptions=judgement.misconceptions,
    )


def mistakes(log: Iterable[Event] | None = None) -> list[WrongIdeaSeen]:
    """The wrong ideas that showed in the checks and predictions of the labs."""
    log = progress.events() if log is None else log
    return [
        WrongIdeaSeen(idea, event.at)
        for event in log
        if event.kind in ("check", "prediction")
        for idea in event.detail.get("misconceptions", ())
    ]


def language() -> str:
    """The language of questions: LABKIT_LANGUAGE, else the setting, else English.

    English also where the log cannot be read: what is asked next will say so.
    """
    chosen = os.environ.get("LABKIT_LANGUAGE", "").strip().lower()
    if not chosen:
        with suppress(ProgressError):
            chosen = _setting("language", "en")
    return chosen if chosen in LANGUAGES else "en"


def set_language(chosen: str) -> str | None:
    """Keep the language, "en" or "zh"; ValueError for another."""
    if chosen not in LANGUAGES:
        raise ValueError(f"the language is one of {', '.join(LANGUAGES)}, got {chosen!r}")
    return progress.record("setting", lab=LOG, item="language", status=chosen)


def interview_date() -> datetime | None:
    """The morning of the interview in UTC; None where no date was set or the day is past."""
    said = _setting("interview", "")
    day = datetime.combine(date.fromisoformat(said), time(9), UTC) if said else None
    return day if day and day.date() >= date.today() else None


def set_interview_date(day: date | str | None) -> str | None:
    """Keep the date of the interview, such as "2027-01-15"; None takes it back.

    Raises ValueError for a text that is no date.
    """
    if isinstance(day, str):
        day = date.fromisoformat(day)
    status = day.isoformat() if day else ""
    return progress.record("setting", lab=LOG, item="interview", status=status)


def _setting(item: str, default: str) -> str:
    said = [event.status for event in progress.events(kind="setting") if event.item == item]
    return said[-1] if said else default


def export_reviews(file: Path) -> int:
    """Write all reviews to a JSON file and return how many there are."""
    rows = [{**asdict(review), "at": review.at.isoformat()} for review in reviews()]
    replace_file(file, json.dumps({"labkit reviews": FORMAT, "reviews": rows}, indent=1))
    return len(rows)


def import_reviews(file: Path) -> tuple[int, int]:
    """Add the reviews of an exported file that the log lacks: how many were added, how many known.

    Nothing is added where one row is wrong. Raises ValueError that says what is wrong, and
    ProgressError where the log cannot be written.
    """
    try:
        content = json.loads(file.read_text("utf-8"))
        found = content["reviews"] if content["labkit reviews"] == FORMAT else None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
        found = None
    if not isinstance(found, list):
        raise ValueError(f"{file} is no export of reviews by labkit (format {FORMAT})")
    try:
        told = TypeAdapter(list[Review]).validate_python(found)
    except ValidationError as error:
        wrong = error.errors()[0]
        place, *field = wrong["loc"]
        where = ": ".join([f"review {place + 1}", *map(str, field)])
        raise ValueError(f"{file}: {where}: {wrong['msg']}") from None
    known = {(review.at, review.question) for review in reviews()}
    added = [review for review in told if (review.at, review.question) not in known]
    for review in sorted(added, key=lambda review: review.at):
        trouble = keep(review)
        if trouble:
            raise progress.ProgressError(trouble)
    return len(added), len(told) - len(added)


def start_mock(settings: Mock, now: datetime) -> str:
    """Begin to keep a mock in the log; returns the name under which ``keep_turn`` adds to it."""
    name = f"{settings.seed}-{now.astimezone(UTC):%Y%m%dT%H%M%S%f}"
    progress.record(
        "mock",
        lab=LOG,
        item=name,
        status="started",
        now=now,
        rules=RULES,
        seed=settings.seed,
        minutes=settings.minutes,
    )
    return name


def keep_turn(name: str, turn: Turn, place: int, now: datetime) -> str | None:
    """Add a turn of a mock to the log, or replace the one in that place, counted from 0."""
    return progress.record(
        "mock", lab=LOG, item=name, status="turn", now=now, place=place, **asdict(turn)
    )


def finish_mock(name: str, done: Mock, bank: Bank, now: datetime) -> None:
    """Close a mock, and let its answers move the schedule."""
    progress.record("mock", lab=LOG, item=name, status="finished", now=now)
    for review in mock.reviews_of_mock(done, bank, now):
        keep(review)


def unfinished_mock(
    bank: Bank, log: Sequence[Event] | None = None, **settings: float
) -> tuple[str, Mock] | None:
    """The newest mock that was broken off, as it stood; None where there is none.

    ``settings`` are values of ``Mock``'s fields that it must have, such as ``seed=5``. One of other
    rules, or whose questions the bank no longer has, cannot be resumed and is left out.
    """
    whole = {
        name: found
        for name, found in _broken_off(log, rules=RULES).items()
        if all(bank.asked(turn.question) for turn in found.turns)
        and all(getattr(found, field) == value for field, value in settings.items())
    }
    return next(reversed(whole.items()), None)


def close_older_mocks(bank: Bank, now: datetime) -> int:
    """Close what was broken off under older rules, its answers kept as reviews; how many."""
    older = _broken_off(None, rules=1)
    for name, found in older.items():
        turns = tuple(turn for turn in found.turns if bank.asked(turn.question))
        finish_mock(name, replace(found, turns=turns), bank, now)
    return len(older)


def _broken_off(log: Sequence[Event] | None, *, rules: int) -> dict[str, Mock]:
    """The mocks of these rules that were started and not finished, by name, the oldest first."""
    log = progress.events(kind="mock") if log is None else log
    started: dict[str, Mock] = {}
    for event in log:
        said = dict(event.detail)
        if event.status == "started" and said.get("rules", 1) == rules:
            minutes = min(max(said["minutes"], mock.SHORTEST), mock.LONGEST)
            started[event.item] = Mock(seed=said["seed"], minutes=minutes)
        elif event.status == "finished":
            started.pop(event.item, None)
        elif event.status == "turn" and event.item in started:
            started[event.item] = _with_turn(started[event.item], said)
    return started


def _with_turn(found: Mock, said: dict) -> Mock:
    place = said.pop("place")
    ticks = said.pop("ticked")
    turn = Turn(**said, ticked=None if ticks is None else tuple(ticks))
    turns = [*found.turns[:place], turn, *found.turns[place + 1 :]]
    return replace(found, turns=tuple(turns))
