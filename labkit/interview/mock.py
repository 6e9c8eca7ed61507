"""A mock interview as a pure state machine.

``next_turn(mock, bank)`` gives the next question, ``with_answer(mock, asked, answer)`` the state
after it: same seed and answers, same interview. A right micro-answer is followed by a harder
question on the same matter, a wrong one by an easier one, and after three the interviewer moves on.
Only answers that can be judged objectively decide that. Some turns are fixed by the seed: a claim
to take apart (its premise is false), the same question under a changed constraint, an interruption
in the middle of free speech, and free speech itself. Nothing is said of right and wrong before the
end; then ``report`` says all of it.

A ``Mock`` is its settings and its turns, so it can be stored after every answer and resumed.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from labkit.interview.answers import Judgement, judge
from labkit.interview.cards import Card, Question, Spot, draw
from labkit.interview.drills import NOT_SAID, Confidence, Review, calibration, to_revisit
from labkit.interview.question_parts import Text
from labkit.interview.questions import Bank

LENGTHS = (5, 10, 15)
SECONDS_A_TURN = 120
_ON_ONE_MATTER = 3
_LABS = 3

OPENING, DEEPER, EASIER, ELSEWHERE = "opening", "deeper", "easier", "elsewhere"
PREMISE, CONSTRAINT, INTERRUPTION, SPEECH = "premise", "constraint", "interruption", "speech"

INTRODUCTIONS = {
    OPENING: Text(en="Let us begin.", zh="我们开始吧。"),
    DEEPER: Text(en="Staying with that:", zh="接着这个问题往下："),
    EASIER: Text(en="Let me take one step back.", zh="我们退一步看。"),
    ELSEWHERE: Text(en="Something else.", zh="换一个话题。"),
    PREMISE: Text(en="A colleague of mine says this.", zh="我的一位同事这样说。"),
    CONSTRAINT: Text(
        en="The constraint changes. The same question, with other numbers:",
        zh="条件变了。同一个问题，换一组数字：",
    ),
    INTERRUPTION: Text(
        en="Before you go on, let me interrupt with a short one.",
        zh="先打断一下，问一个短问题。",
    ),
    SPEECH: Text(
        en="Say this one aloud, as you would to me. Then sum it up in one line.",
        zh="这一题请像面对面那样说出来，再用一句话概括。",
    ),
}
"""What the interviewer says before a turn, by its move."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One answered turn: the question and its seed, why it was asked, and what was answered.

    ``answer`` is in the form of its kind; None is "I do not know". In free speech it
    is the one line that sums it up, and ``ticked`` holds the points of the rubric that were made,
    once the learner has ticked them after the end.
    """

    question: str
    seed: int
    move: str
    answer: object = None
    sure: int = 2
    seconds: float = 0.0
    ticked: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Mock:
    """One mock interview: its settings, and the turns so far.

    Raises ValueError for a length other than 5, 10 or 15, and for no minutes.
    """

    seed: int
    length: int = 10
    minutes: float = 20.0
    turns: tuple[Turn, ...] = ()

    def __post_init__(self) -> None:
        if self.length not in LENGTHS:
            raise ValueError(f"length must be one of {LENGTHS}, got {self.length}")
        if not self.minutes > 0:
            raise ValueError(f"minutes must be above 0, got {self.minutes}")

    @property
    def seconds(self) -> float:
        """Seconds used by the answers so far."""
        return sum(turn.seconds for turn in self.turns)

    @property
    def over(self) -> bool:
        """Whether all questions are answered or the time is used up."""
        return len(self.turns) >= self.length or self.seconds >= 60 * self.minutes


@dataclass(frozen=True)
class NextTurn:
    """What the interviewer asks next: a card, and the move that led to it."""

    card: Card
    move: str

    @property
    def introduction(self) -> Text:
        """What the interviewer says before it."""
        return INTRODUCTIONS[self.move]


def next_turn(mock: Mock, bank: Bank) -> NextTurn | None:
    """The next question, the same for the same seed and turns; None when the interview is over."""
    if mock.over:
        return None
    place = len(mock.turns)
    source = random.Random(f"{mock.seed}:{place}")
    plan = _plan(mock)
    planned = plan.get(place)
    # Where nothing asked so far has numbers to change, the constraint waits for a free place.
    waits = any(plan.get(before) == CONSTRAINT for before in range(place + 1))
    if waits and planned in (None, CONSTRAINT) and not _met(mock, CONSTRAINT):
        again = _to_ask_again(mock, bank)
        if again:
            return NextTurn(draw(again, _seed(mock, place)), CONSTRAINT)
    chosen, move = _planned(mock, bank, planned, source) or _branched(mock, bank, source)
    return NextTurn(draw(chosen, _seed(mock, place)), move)


def with_answer(
    mock: Mock, asked: NextTurn, answer, *, sure: int = 2, seconds: float = 0.0
) -> Mock:
    """The interview after one more answer; ``Unclear`` is raised and counts not."""
    question = asked.card.question
    if not question.spoken:
        judge(asked.card, answer)
    if question.spoken or answer is None:
        sure = NOT_SAID
    turn = Turn(
        question=question.id,
        seed=asked.card.seed,
        move=asked.move,
        answer=answer,
        sure=sure,
        seconds=seconds,
    )
    return replace(mock, turns=(*mock.turns, turn))


def with_ticks(mock: Mock, place: int, points: Iterable[int]) -> Mock:
    """The interview after the learner ticked the rubric of one free answer, counted from 0."""
    turn = replace(mock.turns[place], ticked=tuple(points))
    return replace(mock, turns=(*mock.turns[:place], turn, *mock.turns[place + 1 :]))


def _seed(mock: Mock, place: int) -> int:
    return mock.seed * 100 + place


def _plan(mock: Mock) -> dict[int, str]:
    """Which turns are fixed: place -> move."""
    source = random.Random(f"{mock.seed}:plan")
    if mock.length == 5:
        places = source.sample(range(1, 4), 2)
        return {places[0]: PREMISE, places[1]: CONSTRAINT, 4: SPEECH}
    speech = mock.length - 3
    early = sorted(source.sample(range(2, speech - 1), 2))
    plan = {early[0]: PREMISE, early[1]: CONSTRAINT, speech: SPEECH, speech + 1: INTERRUPTION}
    if mock.length == 15:
        plan |= {5 if 5 not in plan else 8 if 8 not in plan else 9: PREMISE}
    return plan


def _planned(mock: Mock, bank: Bank, move: str | None, source: random.Random):
    kinds = {
        PREMISE: lambda q: isinstance(q, Spot) and not q.holds,
        SPEECH: lambda q: q.spoken,
        INTERRUPTION: lambda q: q.objective and q.level == 1 and q.seconds <= 60,
    }
    if move not in kinds:
        return None
    fits = [q for q in _fresh(mock, bank) if kinds[move](q)]
    return (_one_of(fits, source), move) if fits else None


def _met(mock: Mock, move: str) -> bool:
    return any(turn.move == move for turn in mock.turns)


def _to_ask_again(mock: Mock, bank: Bank) -> Question | None:
    """The newest question so far whose numbers can be drawn anew."""
    for turn in reversed(mock.turns):
        question = bank.questions[turn.question]
        if question.parameters and question.objective and turn.move != CONSTRAINT:
            return question
    return None


def _branched(mock: Mock, bank: Bank, source: random.Random):
    fresh = [q for q in _fresh(mock, bank) if q.objective]
    last = next((turn for turn in reversed(mock.turns) if _decides(turn, bank)), None)
    if last is None:
        usual = [q for q in fresh if "core" in q.tags and q.level <= 2]
        return _one_of(usual or fresh, source), OPENING
    question = bank.questions[last.question]
    right = _judged(last, bank).correct
    if _run_length(mock, bank) < _ON_ONE_MATTER:
        if right:
            deeper = [q for q in fresh if q.id in question.follow_ups] or [
                q for q in fresh if q.topic == question.topic and q.level > question.level
            ]
            if deeper:
                return _one_of(deeper, source), DEEPER
        else:
            easier = [q for q in fresh if q.topic == question.topic and q.level < question.level]
            if easier:
                return _one_of(easier, source), EASIER
    asked = Counter(bank.questions[turn.question].topic for turn in mock.turns)
    level = 2 if right else 1
    others = [q for q in fresh if q.topic != question.topic and q.level == level]
    others = others or [q for q in fresh if q.topic != question.topic] or fresh
    rarest = min(asked[q.topic] for q in others)
    return _one_of([q for q in others if asked[q.topic] == rarest], source), ELSEWHERE


def _fresh(mock: Mock, bank: Bank) -> list[Question]:
    asked = {turn.question for turn in mock.turns}
    return [question for question in bank.questions.values() if question.id not in asked]


def _one_of(questions: Sequence[Question], source: random.Random) -> Question:
    """One at random, those that interviewers ask most three times as likely."""
    if not questions:
        raise ValueError("the bank has no question left for this turn")
    weights = [3 if "core" in question.tags else 1 for question in questions]
    return source.choices(questions, weights)[0]


def _decides(turn: Turn, bank: Bank) -> bool:
    return bank.questions[turn.question].objective and turn.move != INTERRUPTION


def _judged(turn: Turn, bank: Bank) -> Judgement:
    return judge(draw(bank.questions[turn.question], turn.seed), turn.answer)


def _run_length(mock: Mock, bank: Bank) -> int:
    """How many of the last turns were on one topic."""
    topics = [bank.questions[turn.question].topic for turn in mock.turns if _decides(turn, bank)]
    length = 0
    for topic in reversed(topics):
        if topic != topics[-1]:
            break
        length += 1
    return length


@dataclass(frozen=True)
class TopicRow:
    """One topic of the report: turns, mean score, seconds taken and expected."""

    topic: str
    turns: int
    score: float
    seconds: float
    expected_seconds: float


@dataclass(frozen=True)
class ItemRow:
    """One turn of the report: its card, what was answered, and what it is worth.

    ``judgement`` is None for free speech that was not ticked yet.
    """

    card: Card
    turn: Turn
    judgement: Judgement | None


@dataclass(frozen=True)
class Report:
    """What is said at the end: by topic, by confidence, the labs to revisit, and every item."""

    topics: tuple[TopicRow, ...]
    confidence: tuple[Confidence, ...]
    labs: tuple[str, ...]
    items: tuple[ItemRow, ...]
    score: float
    seconds: float
    expected_seconds: float


def report(mock: Mock, bank: Bank) -> Report:
    """The report of an interview, whole or broken off; free speech counts once it is ticked."""
    items = tuple(_item(turn, bank) for turn in mock.turns)
    rows: dict[str, list[ItemRow]] = defaultdict(list)
    for item in items:
        rows[item.card.question.topic].append(item)
    topics = tuple(_topic_row(topic, rows[topic]) for topic in bank.topics if topic in rows)
    scores = [item.judgement.score for item in items if item.judgement]
    told = reviews(mock, bank, None)
    return Report(
        topics=topics,
        confidence=tuple(calibration(told)),
        labs=_labs(items, told, bank),
        items=items,
        score=sum(scores) / len(scores) if scores else 0.0,
        seconds=mock.seconds,
        expected_seconds=sum(item.card.question.seconds for item in items),
    )


def _item(turn: Turn, bank: Bank) -> ItemRow:
    card = draw(bank.questions[turn.question], turn.seed)
    if card.question.spoken and turn.answer is not None and turn.ticked is None:
        return ItemRow(card, turn, None)
    answer = turn.ticked if card.question.spoken else turn.answer
    return ItemRow(card, turn, judge(card, answer))


def _topic_row(topic: str, items: Sequence[ItemRow]) -> TopicRow:
    scores = [item.judgement.score for item in items if item.judgement]
    return TopicRow(
        topic,
        len(items),
        sum(scores) / len(scores) if scores else 0.0,
        sum(item.turn.seconds for item in items),
        sum(item.card.question.seconds for item in items),
    )


def _labs(items: Sequence[ItemRow], told: Sequence[Review], bank: Bank) -> tuple[str, ...]:
    """At most three labs, those with the most lost points first."""
    lost: Counter = Counter()
    for item in items:
        if item.card.question.lab and item.judgement and item.judgement.score < 1:
            lost[item.card.question.lab] += 1 - item.judgement.score
    for section in to_revisit(bank, told):
        lost[section.split("#")[0]] += 1
    return tuple(lab for lab, _ in lost.most_common(_LABS))


def reviews(mock: Mock, bank: Bank, at: datetime | None) -> list[Review]:
    """The answers as reviews, so that a mock moves the schedule too; unticked speech has none."""
    found = []
    for turn in mock.turns:
        judgement = _item(turn, bank).judgement
        if judgement is not None:
            found.append(
                Review(
                    at=at,
                    question=turn.question,
                    seed=turn.seed,
                    correct=judgement.correct,
                    score=judgement.score,
                    sure=turn.sure,
                    seconds=turn.seconds,
                    mode="mock",
                    misconceptions=judgement.misconceptions,
                )
            )
    return found
