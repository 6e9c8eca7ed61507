"""A sitting: one card after another, as a state that a notebook's widget and a terminal both drive.

A sitting is in one of four states. In "asking" a card waits for an answer; in "ticking" a learner
ticks the points made in free speech beside the model answer; in "answered" the verdict stands; in
"done" there is nothing more to ask. What was answered is in the log before ``submit`` returns.
"""

import random
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from labkit.base import progress
from labkit.base.home import ManifestError, read_manifest
from labkit.base.progress import Event, ProgressError
from labkit.interview import drills, mock, wording
from labkit.interview import log as interview
from labkit.interview.answers import SPEECH_LIMIT, Judgement, judge
from labkit.interview.cards import Card, Question, draw
from labkit.interview.drills import Review
from labkit.interview.mock import Held, Mock, MockReport, NextTurn
from labkit.interview.question_parts import Text
from labkit.interview.questions import Bank

COUNT = 10
"""Questions of a sitting, at most, unless another number is asked for."""

ASKING, TICKING, ANSWERED, DONE = "asking", "ticking", "answered", "done"


class Sitting:
    """What the two kinds of sittings share: the card that is shown, its hints, its clock."""

    def __init__(self, bank: Bank, clock: Callable[[], float] = time.monotonic) -> None:
        self.bank = bank
        self.state = DONE
        self.card: Card | None = None
        self.place = 0
        self.hints = 0
        self.answer: object = None
        self.speech: str | None = None
        self.judgement: Judgement | None = None
        self.trouble: str | None = None
        self._clock = clock
        self._begun = clock()

    def _show(self, card: Card) -> None:
        self.card, self.state, self.hints = card, ASKING, 0
        self.answer = self.speech = self.judgement = None
        self._begun = self._clock()

    @property
    def has_hint(self) -> bool:
        """Whether there is a hint that was not shown yet."""
        return self.hints < len(self.card.question.hints.en)

    def hint(self) -> Text | None:
        """The next hint of the card, None where there is no more. A mock gives none."""
        if not self.has_hint:
            return None
        self.hints += 1
        return self.shown_hints()[-1]

    def shown_hints(self) -> list[Text]:
        """The hints that were asked for so far."""
        hints, fill = self.card.question.hints, self.card.fill
        pairs = list(zip(hints.en, hints.zh, strict=True))[: self.hints]
        return [Text(en=fill(en), zh=fill(zh)) for en, zh in pairs]


class DrillSitting(Sitting):
    """Questions one after another, each with its verdict at once.

    ``questions`` are asked in order; ``reviews_of_mock`` are those so far, so that the numbers of a
    question seen before are drawn anew. ``answer`` is what was judged, None for "I do not know".
    """

    def __init__(
        self,
        bank: Bank,
        questions: Sequence[Question],
        reviews: Sequence[Review] = (),
        *,
        mode: str = "drill",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(bank, clock)
        self.questions = list(questions)
        self.reviews: list[Review] = []
        self.mode = mode
        self._past = list(reviews)
        self._seconds = 0.0
        self._tries = 1
        self._sure = drills.FAIRLY_SURE
        self.place = -1
        self.next()

    @property
    def length(self) -> int:
        """How many questions this sitting has."""
        return len(self.questions)

    @property
    def introduction(self) -> Text | None:
        """Before the first card: how many there are, and how long they take by the bank's times."""
        if self.place or self.state != ASKING:
            return None
        return wording.lasting(self.length, sum(question.seconds for question in self.questions))

    def next(self) -> None:
        """Show the next card; "done" after the last."""
        self.place += 1
        if self.place >= len(self.questions):
            self.state, self.card = DONE, None
            return
        question = self.questions[self.place]
        self._show(draw(question, drills.next_seed(question, [*self._past, *self.reviews])))

    def submit(self, answer, *, sure: int = drills.FAIRLY_SURE, tries: int = 1) -> None:
        """Answer the card; free speech goes on to its rubric. Raises ``Unclear``.

        ``tries`` counts the programs that were run: each but the last told what was wrong, which
        is as good as a hint.
        """
        said = answer is not None and not self.card.question.spoken
        self._tries = tries
        self._seconds, self._sure = self._clock() - self._begun, sure if said else drills.NOT_SAID
        if self.card.question.spoken and answer is not None:
            self.speech, self.state = str(answer)[:SPEECH_LIMIT], TICKING
            return
        self._judged(answer)

    def tick(self, points: Iterable[int]) -> None:
        """Tick the points that were made in free speech, counted from 1."""
        self._judged(list(points))

    def _judged(self, answer) -> None:
        judgement = judge(self.card, answer)
        review = interview.make_review(
            self.card,
            judgement,
            at=datetime.now(UTC),
            sure=self._sure,
            hints=self.hints + self._tries - 1,
            seconds=self._seconds,
            mode=self.mode,
        )
        self.answer, self.judgement, self.state = answer, judgement, ANSWERED
        self.reviews.append(review)
        self.trouble = interview.keep(review)

    def sections(self) -> list[str]:
        """Sections of labs in which two cards or more were missed."""
        return drills.to_revisit(self.bank, [*self._past, *self.reviews])

    def missed_twice(self) -> list[str]:
        """Those of ``sections`` that the newest answer, if it was wrong, belongs to."""
        alone = drills.sections(self.card.question, self.reviews[-1])
        return [section for section in self.sections() if section in alone]


class MockSitting(Sitting):
    """A mock interview: no hints, no verdicts; after the last turn free speech is ticked.

    ``kept`` is the name under which the log keeps a mock that is resumed; ``closed`` says how many
    of an earlier version were closed when this one began.
    """

    def __init__(
        self,
        bank: Bank,
        settings: Mock,
        *,
        kept: str | None = None,
        closed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(bank, clock)
        self._finished = False
        self._closed = closed
        self._past: list[Review] = []
        self.mock = settings
        self.asked: NextTurn | None = None
        self._kept = kept or interview.start_mock(settings, datetime.now(UTC))
        self.next()

    @property
    def minutes_left(self) -> float:
        """Minutes that the answers so far have left."""
        return max(0.0, self.mock.minutes - self.mock.seconds / 60)

    @property
    def introduction(self) -> Text | None:
        """What the interviewer says before the card; before the first also what was closed."""
        if self.state != ASKING:
            return None
        said = self.asked.introduction
        if self._closed and self.place == 0:
            closed = wording.closed_mocks(self._closed)
            said = Text(en=f"{closed.en} {said.en}", zh=f"{closed.zh}{said.zh}")
        return said

    @property
    def before(self) -> Text | None:
        """What stands before a part of a long problem, in Markdown."""
        if self.state not in (ASKING, TICKING) or self.card.question.id not in self.bank.parts:
            return None
        problem, place = self.bank.parts[self.card.question.id]
        return problem.before(place)

    @property
    def has_hint(self) -> bool:
        """An interviewer gives no hints here."""
        return False

    def next(self) -> None:
        """Show the next card, or the next free speech to tick; "done" after all."""
        if self._finished:
            return
        self.asked = mock.next_turn(self.mock, self.bank)
        if self.asked:
            self.place = len(self.mock.turns)
            self._show(self.asked.card)
            return
        for place, turn in enumerate(self.mock.turns):
            question = self.bank.asked(turn.question)
            if question.spoken and turn.answer is not None and turn.ticked is None:
                self._show(draw(question, turn.seed))
                self.place, self.speech, self.state = place, turn.answer, TICKING
                return
        self._finished = True
        self._past = interview.reviews(_log()[0])
        interview.finish_mock(self._kept, self.mock, self.bank, datetime.now(UTC))
        self.state, self.card = DONE, None

    def submit(self, answer, *, sure: int = drills.FAIRLY_SURE) -> None:
        """Answer the card and go on. Raises ``Unclear``; then nothing counts."""
        seconds = self._clock() - self._begun
        place = len(self.mock.turns)
        if self.card.question.spoken and answer is not None:
            answer = str(answer)[:SPEECH_LIMIT]
        self.mock = mock.with_answer(self.mock, self.asked, answer, sure=sure, seconds=seconds)
        self._keep(place)
        self.next()

    def tick(self, points: Iterable[int]) -> None:
        """Tick the points that were made in free speech, counted from 1, and go on."""
        made = list(points)
        judge(self.card, made)  # an unknown point is said before it counts
        self.mock = mock.with_ticks(self.mock, self.place, made)
        self._keep(self.place)
        self.next()

    def _keep(self, place: int) -> None:
        turn = self.mock.turns[place]
        self.trouble = interview.keep_turn(self._kept, turn, place, datetime.now(UTC))

    def report(self) -> MockReport:
        """The report of the interview, once it is finished."""
        return mock.report(self.mock, self.bank, self._past)

    def trend(self) -> list[Held]:
        """The mocks in the log, this one too once it is finished; none where it is unreadable."""
        return mock.trend(interview.reviews(_log()[0]), self.bank)


def todays(
    bank: Bank, *, count: int | None = None, topics: Sequence[str] = (), core: bool = False
) -> DrillSitting:
    """What is due for this learner now, then what is new. Raises as ``drills.session``.

    Where no ``count`` is given it has ``COUNT`` questions, and of the core all that wait.
    """
    past = interview.reviews()
    questions = drills.session(
        bank,
        past,
        datetime.now(UTC),
        count=COUNT if count is None and not core else count,
        mistakes=interview.mistakes(),
        interview=interview.interview_date(),
        topics=topics or None,
        core=core,
    )
    return DrillSitting(bank, questions, past)


def warm_up_sitting(bank: Bank, lab: str) -> DrillSitting:
    """A few short questions to begin a lab with; see ``drills.warm_up_questions``.

    A log or a manifest that cannot be read never stops a lab: the sitting's ``trouble`` says what
    is the matter.
    """
    log, trouble = _log()
    try:
        passed = progress.sections_passed(read_manifest().labs, log=log)
    except ManifestError as problem:
        passed, trouble = set(), str(problem)
    past = interview.reviews(log)
    questions = drills.warm_up_questions(
        bank,
        past,
        datetime.now(UTC),
        lab=lab,
        passed=passed,
        mistakes=interview.mistakes(log),
    )
    return _with_trouble(DrillSitting(bank, questions, past), trouble)


def sitting_to_say(bank: Bank, lab: str) -> DrillSitting:
    """What an interviewer asks on what a lab taught; a log that cannot be read is said as above."""
    log, trouble = _log()
    questions = drills.questions_to_say(bank, lab=lab)
    return _with_trouble(DrillSitting(bank, questions, interview.reviews(log)), trouble)


def diagnostic_sitting(bank: Bank) -> DrillSitting:
    """Two questions of each lab up to 06, one of each later one, to find where to start."""
    log, trouble = _log()
    past = interview.reviews(log)
    questions = drills.diagnostic_questions(bank, past)
    return _with_trouble(DrillSitting(bank, questions, past, mode="diagnostic"), trouble)


def _log() -> tuple[list[Event], str | None]:
    """The learner's log; an empty one and a sentence where it cannot be read."""
    try:
        return progress.events(), None
    except ProgressError as problem:
        return [], str(problem)


def _with_trouble(sitting: DrillSitting, trouble: str | None) -> DrillSitting:
    sitting.trouble = trouble
    return sitting


def resumed(
    bank: Bank, *, minutes: float | None = None, seed: int | None = None
) -> MockSitting | None:
    """The mock interview that was broken off, where it was; None where there is none.

    Of several the newest that has the minutes and seed which are given. One of an earlier version
    had other rules and does not go on: ``new_mock`` closes it.
    """
    given = {"minutes": minutes, "seed": seed}
    given = {field: value for field, value in given.items() if value is not None}
    found = interview.unfinished_mock(bank, **given)
    return MockSitting(bank, found[1], kept=found[0]) if found else None


def new_mock(bank: Bank, *, minutes: float | None = None, seed: int | None = None) -> MockSitting:
    """A new mock interview: 20 minutes and any seed, where none are given.

    Those of an earlier version that were broken off are closed; their answers count.
    """
    seed = random.randrange(10**6) if seed is None else seed
    settings = Mock(seed=seed, minutes=mock.MINUTES if minutes is None else minutes)
    closed = interview.close_older_mocks(bank, datetime.now(UTC))
    return MockSitting(bank, settings, closed=closed)
