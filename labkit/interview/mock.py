"""A mock interview as a pure state machine.

``next_turn(mock, bank)`` gives the next question, ``with_answer(mock, asked, answer)`` the state
after it: same seed and answers, same interview. A right micro-answer is followed by a harder
question on the same matter, a wrong one by an easier one, and after three the interviewer moves on.
Only answers that can be judged objectively decide that. Some turns are fixed by the seed: what a
colleague claims, true as often as false; a question asked before under a changed constraint; code;
free speech and an interruption after it; in a long interview a problem of dependent parts. By the
bank's times all turns together take the minutes that were asked for. Nothing is said of right and
wrong before the end, but what a part of a problem settles; then ``report`` says all of it.

A ``Mock`` is its settings and its turns, so it can be stored after every answer and resumed.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from labkit.interview.answers import Judgement, judge
from labkit.interview.cards import Card, Question, draw
from labkit.interview.choice_kinds import Claim
from labkit.interview.drills import NOT_SAID, Confidence, Review, calibration, to_revisit
from labkit.interview.problems import Problem
from labkit.interview.question_parts import Text
from labkit.interview.questions import Bank
from labkit.interview.readiness import DEEP_DIVE, SCREEN, Readiness, readiness

MINUTES = 20
SHORTEST, LONGEST = 5, 120
_WITH_SPEECH, _WITH_CODE, _WITH_PROBLEM = 10, 15, 30  # minutes from which on there is one
_ON_ONE_MATTER = 3
_LABS = 3
_OFF = 0.05
"""How far the bank's times may end from the minutes, as a share of them."""

OPENING, DEEPER, EASIER, ELSEWHERE = "opening", "deeper", "easier", "elsewhere"
CLAIM, CONSTRAINT, INTERRUPTION, SPEECH = "claim", "constraint", "interruption", "speech"
CODE, PROBLEM = "code", "problem"

MOVES = {
    OPENING: Text(en="opening", zh="开场"),
    DEEPER: Text(en="deeper", zh="深入"),
    EASIER: Text(en="a step back", zh="退一步"),
    ELSEWHERE: Text(en="another topic", zh="换话题"),
    CLAIM: Text(en="a colleague's claim", zh="同事的说法"),
    CONSTRAINT: Text(en="a changed constraint", zh="条件改变"),
    INTERRUPTION: Text(en="an interruption", zh="打断"),
    SPEECH: Text(en="free speech", zh="口头作答"),
    CODE: Text(en="code", zh="编程"),
    PROBLEM: Text(en="the long problem", zh="综合题"),
}
"""The moves by name, as the report says them."""

INTRODUCTIONS = {
    OPENING: Text(en="Let us begin.", zh="我们开始吧。"),
    DEEPER: Text(en="Staying with that:", zh="接着这个问题往下："),
    EASIER: Text(en="Let me take one step back.", zh="我们退一步看。"),
    ELSEWHERE: Text(en="Something else.", zh="换一个话题。"),
    CLAIM: Text(
        en="A colleague of mine says this. It may be right or wrong.",
        zh="我的一位同事这样说，可能对，也可能不对。",
    ),
    INTERRUPTION: Text(
        en="Before you go on, let me interrupt with a short one.",
        zh="先打断一下，问一个短问题。",
    ),
    SPEECH: Text(
        en="Say this one aloud, as you would to me. Then sum it up in one line.",
        zh="这一题请像面对面那样说出来，再用一句话概括。",
    ),
    CODE: Text(
        en="Write this one. You have {minutes} minutes; hidden tests judge it at the end.",
        zh="请写代码，时间 {minutes} 分钟；结束后由隐藏测试评判。",
    ),
    PROBLEM: Text(
        en="Now a longer problem. Each part builds on the ones before.",
        zh="下面是一道综合题，后面的部分以前面的为基础。",
    ),
}
"""What the interviewer says before a turn, by its move; of a changed constraint the bank says it.
"""


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

    Raises ValueError for minutes below ``SHORTEST`` or above ``LONGEST``.
    """

    seed: int
    minutes: float = MINUTES
    turns: tuple[Turn, ...] = ()

    def __post_init__(self) -> None:
        if not SHORTEST <= self.minutes <= LONGEST:
            raise ValueError(f"minutes must be {SHORTEST} to {LONGEST}, got {self.minutes:g}")

    @property
    def seconds(self) -> float:
        """Seconds used by the answers so far."""
        return sum(turn.seconds for turn in self.turns)

    @property
    def late(self) -> bool:
        """Whether the answers have used up the time."""
        return self.seconds >= 60 * self.minutes


@dataclass(frozen=True)
class NextTurn:
    """What the interviewer asks next: a card, the move that led to it, and what is said first.

    ``before`` is Markdown that stands before a part of a long problem.
    """

    card: Card
    move: str
    introduction: Text
    before: Text | None = None


def next_turn(mock: Mock, bank: Bank) -> NextTurn | None:
    """The next question, the same for the same seed and turns; None when the interview is over."""
    if mock.late:
        return None
    place = len(mock.turns)
    source = random.Random(f"{mock.seed}:{place}")
    part = _next_part(mock, bank)
    if part:
        return part
    time, spent, open_ = 60 * mock.minutes, expected_seconds(mock, bank), _open(mock)
    due = [move for share, move in open_ if spent >= share * time]
    found = _first_fixed(mock, bank, due, source)
    if found is None and spent <= (1 - _OFF) * time:
        found = _branched(mock, bank, source, _room(mock, bank, open_))
        if found is None:  # no time is left but what the fixed turns wait for
            found = _first_fixed(mock, bank, [move for _, move in open_], source)
        found = found or _branched(mock, bank, source, _room(mock, bank, ()))
    return found


def _first_fixed(
    mock: Mock, bank: Bank, moves: Iterable[str], source: random.Random
) -> NextTurn | None:
    fixed = (_fixed(mock, bank, move, source) for move in moves)
    return next((found for found in fixed if found), None)


def expected_seconds(mock: Mock, bank: Bank) -> int:
    """What the turns so far take by the bank's times."""
    return sum(bank.asked(turn.question).seconds for turn in mock.turns)


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


def _seed(mock: Mock) -> int:
    return mock.seed * 100 + len(mock.turns)


def _asked(mock: Mock, question: Question, move: str, said: Text | None = None) -> NextTurn:
    said = said or INTRODUCTIONS[move]
    if move == CODE:
        minutes = -(-question.seconds // 60)
        said = Text(en=said.en.format(minutes=minutes), zh=said.zh.format(minutes=minutes))
    return NextTurn(draw(question, _seed(mock)), move, said)


def _plan(mock: Mock) -> list[tuple[float, str]]:
    """The turns that the seed fixes: from which share of the time on, and the move."""
    source = random.Random(f"{mock.seed}:plan")
    plan = [(source.uniform(0.1, 0.4), CLAIM), (source.uniform(0.2, 0.6), CONSTRAINT)]
    if mock.minutes >= _WITH_SPEECH:
        speech = source.uniform(0.6, 0.75)
        plan += [(speech, SPEECH), (speech, INTERRUPTION)]
    if mock.minutes >= _WITH_CODE:
        plan.append((source.uniform(0.2, 0.5), CODE))
    if mock.minutes >= _WITH_PROBLEM:
        plan += [(source.uniform(0.1, 0.5), PROBLEM), (source.uniform(0.5, 0.8), CLAIM)]
    return sorted(plan, key=lambda fixed: fixed[0])


def _open(mock: Mock) -> list[tuple[float, str]]:
    """The fixed turns that were not made yet."""
    made = Counter(turn.move for turn in mock.turns)
    left = []
    for due, move in _plan(mock):
        if made[move]:
            made[move] -= 1
        else:
            left.append((due, move))
    return left


def _kept_free(mock: Mock, move: str) -> float:
    """Seconds that are kept free for a fixed turn, and the most that its question may take."""
    shares = {CODE: 0.35, PROBLEM: 0.4}
    seconds = {CLAIM: 75, CONSTRAINT: 150, SPEECH: 150, INTERRUPTION: 60}
    return shares[move] * 60 * mock.minutes if move in shares else seconds[move]


def _room(mock: Mock, bank: Bank, open_: Iterable[tuple[float, str]]) -> float:
    """Seconds that are left for other turns than these."""
    end = (1 + _OFF) * 60 * mock.minutes
    kept = sum(_kept_free(mock, move) for _, move in open_)
    return end - expected_seconds(mock, bank) - kept


def _fixed(mock: Mock, bank: Bank, move: str, source: random.Random) -> NextTurn | None:
    """A turn of the plan; None where no question fits it now."""
    room = min(_kept_free(mock, move), _room(mock, bank, ()))
    if move == PROBLEM:
        return _first_part(mock, bank, room, source)
    if move == CONSTRAINT:
        return _continued(mock, bank, room)
    fresh = [q for q in _fresh(mock, bank) if q.seconds <= room]
    if move == CLAIM:
        claims = [q for q in fresh if isinstance(q, Claim)]
        holds = source.random() < 0.5  # first, so that the bank's share of true ones tells nothing
        fits = [q for q in claims if q.holds == holds] or claims
    elif move == SPEECH:
        fits = [q for q in fresh if q.spoken]
    elif move == CODE:
        fits = [q for q in fresh if q.program]
    else:
        fits = [q for q in fresh if _may_branch(q) and q.level == 1]
    return _asked(mock, _one_of(fits, source), move) if fits else None


def _continued(mock: Mock, bank: Bank, room: float) -> NextTurn | None:
    """The newest question so far that the bank has under another constraint."""
    fresh = {question.id for question in _fresh(mock, bank)}
    for place in range(len(mock.turns) - 1, -1, -1):
        for change in bank.asked(mock.turns[place].question).changed:
            question = bank.questions[change.id]
            if question.id in fresh and question.seconds <= room:
                said = Text(en=change.en, zh=change.zh)
                if place < len(mock.turns) - 1:
                    said = Text(
                        en=f"Back to question {place + 1}. {change.en}",
                        zh=f"回到第 {place + 1} 题。{change.zh}",
                    )
                return _asked(mock, question, CONSTRAINT, said)
    return None


def _first_part(mock: Mock, bank: Bank, room: float, source: random.Random) -> NextTurn | None:
    fits = [problem for problem in bank.problems.values() if problem.seconds <= room]
    return _part(mock, source.choice(fits), 0) if fits else None


def _next_part(mock: Mock, bank: Bank) -> NextTurn | None:
    """The part after the newest turn's; None where that is no part, or the last one."""
    newest = mock.turns[-1].question if mock.turns else ""
    if newest not in bank.parts:
        return None
    problem, place = bank.parts[newest]
    return _part(mock, problem, place + 1) if place + 1 < len(problem.parts) else None


def _part(mock: Mock, problem: Problem, place: int) -> NextTurn:
    asked = _asked(mock, problem.parts[place].question, PROBLEM)
    said = asked.introduction if place == 0 else Text(en="The next part:", zh="下一部分：")
    return replace(asked, introduction=said, before=problem.before(place))


def _may_branch(question: Question) -> bool:
    """Claims are a colleague's: asked elsewhere too, they would be false more often than true."""
    return question.objective and not isinstance(question, Claim)


def _branched(mock: Mock, bank: Bank, source: random.Random, room: float) -> NextTurn | None:
    """A turn that follows from the answers; None where no question takes so little time."""
    fresh = [q for q in _fresh(mock, bank) if _may_branch(q) and q.seconds <= room]
    if not fresh:
        return None
    last = next((turn for turn in reversed(mock.turns) if _decides(turn, bank)), None)
    if last is None:
        usual = [q for q in fresh if "core" in q.tags and q.level <= 2]
        return _asked(mock, _one_of(usual or fresh, source), OPENING)
    question = bank.questions[last.question]
    right = _judged(last, bank).correct
    if _run_length(mock, bank) < _ON_ONE_MATTER:
        if right:
            deeper = [q for q in fresh if q.id in question.follow_ups] or [
                q for q in fresh if q.topic == question.topic and q.level > question.level
            ]
            if deeper:
                return _asked(mock, _one_of(deeper, source), DEEPER)
        else:
            easier = [q for q in fresh if q.topic == question.topic and q.level < question.level]
            if easier:
                return _asked(mock, _one_of(easier, source), EASIER)
    asked = Counter(bank.asked(turn.question).topic for turn in mock.turns)
    level = 2 if right else 1
    others = [q for q in fresh if q.topic != question.topic and q.level == level]
    others = others or [q for q in fresh if q.topic != question.topic] or fresh
    rarest = min(asked[q.topic] for q in others)
    return _asked(mock, _one_of([q for q in others if asked[q.topic] == rarest], source), ELSEWHERE)


def _fresh(mock: Mock, bank: Bank) -> list[Question]:
    asked = {turn.question for turn in mock.turns}
    return [question for question in bank.questions.values() if question.id not in asked]


def _one_of(questions: Sequence[Question], source: random.Random) -> Question:
    """One at random; three times as likely one that interviewers ask most, and again one that
    can go on under a changed constraint."""
    weights = [
        (3 if "core" in question.tags else 1) * (3 if question.changed else 1)
        for question in questions
    ]
    return source.choices(questions, weights)[0]


def _decides(turn: Turn, bank: Bank) -> bool:
    question = bank.questions.get(turn.question)
    return question is not None and question.objective and turn.move != INTERRUPTION


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
class LevelRow:
    """The turns of the levels that one round asks, "screen" or "deep dive", and their score."""

    round: str
    turns: int
    score: float


@dataclass(frozen=True)
class ItemRow:
    """One turn of the report: its card, what was answered, and what it is worth.

    ``judgement`` is None for free speech that was not ticked yet.
    """

    card: Card
    turn: Turn
    judgement: Judgement | None


@dataclass(frozen=True)
class MockReport:
    """What is said at the end: by level, topic and confidence, the labs to revisit, every item.

    ``minutes`` is the time that was given. ``ready`` is what all new questions answered so far say,
    those of this mock and those before it.
    """

    ready: Readiness
    levels: tuple[LevelRow, ...]
    topics: tuple[TopicRow, ...]
    confidence: tuple[Confidence, ...]
    labs: tuple[str, ...]
    items: tuple[ItemRow, ...]
    score: float
    seconds: float
    expected_seconds: float
    minutes: float


def report(mock: Mock, bank: Bank, past: Sequence[Review] = ()) -> MockReport:
    """The report of an interview, whole or broken off; free speech counts once it is ticked.

    ``past`` is what was answered before.
    """
    items = tuple(_item(turn, bank) for turn in mock.turns)
    rows: dict[str, list[ItemRow]] = defaultdict(list)
    for item in items:
        rows[item.card.question.topic].append(item)
    topics = tuple(_topic_row(topic, rows[topic]) for topic in bank.topics if topic in rows)
    scores = [item.judgement.score for item in items if item.judgement]
    told = reviews_of_mock(mock, bank, max((review.at for review in past), default=_NO_PAST))
    return MockReport(
        ready=readiness(bank, [*past, *told]),
        levels=tuple(_level_row(name, levels, items) for name, levels in _ROUNDS),
        topics=topics,
        confidence=tuple(calibration(told)),
        labs=_labs(items, told, bank),
        items=items,
        score=sum(scores) / len(scores) if scores else 0.0,
        seconds=mock.seconds,
        expected_seconds=sum(item.card.question.seconds for item in items),
        minutes=mock.minutes,
    )


_NO_PAST = datetime.min.replace(tzinfo=UTC)
_ROUNDS = (("screen", SCREEN), ("deep dive", DEEP_DIVE))


def _level_row(name: str, levels: tuple[int, ...], items: Iterable[ItemRow]) -> LevelRow:
    judged = [i for i in items if i.judgement and i.card.question.level in levels]
    scores = [item.judgement.score for item in judged]
    return LevelRow(name, len(scores), sum(scores) / len(scores) if scores else 0.0)


def _item(turn: Turn, bank: Bank) -> ItemRow:
    card = draw(bank.asked(turn.question), turn.seed)
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


def reviews_of_mock(mock: Mock, bank: Bank, at: datetime) -> list[Review]:
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


@dataclass(frozen=True)
class Held:
    """One mock of the log: when it ended, its answers, and the shares of points.

    ``screen`` and ``deep_dive`` are those of the levels that such a round asks; None for none.
    """

    at: datetime
    answers: int
    score: float
    screen: float | None
    deep_dive: float | None


def trend(reviews: Iterable[Review], bank: Bank) -> list[Held]:
    """The mocks in the log, the oldest first. The answers of one are kept at one moment, its end.

    Answers to what the bank no longer has count in the score and at no level.
    """
    ended: dict[datetime, list[Review]] = defaultdict(list)
    for review in reviews:
        if review.mode == "mock":
            ended[review.at].append(review)
    return [
        Held(
            at,
            len(of_it),
            sum(review.score for review in of_it) / len(of_it),
            *(_share(of_it, levels, bank) for _, levels in _ROUNDS),
        )
        for at, of_it in sorted(ended.items())
    ]


def _share(reviews: Iterable[Review], levels: tuple[int, ...], bank: Bank) -> float | None:
    known = [(bank.asked(review.question), review.score) for review in reviews]
    scores = [score for question, score in known if question and question.level in levels]
    return sum(scores) / len(scores) if scores else None


@dataclass(frozen=True)
class NextStep:
    """One thing to do after a mock, and the command for it."""

    what: Text
    command: str


def what_next(told: MockReport, bank: Bank) -> tuple[NextStep, ...]:
    """Three things to do: what was missed, the topic that lost most, the next mock."""
    if not told.items:
        return ()
    drilled = [item for item in told.items if item.card.question.id in bank.questions]
    missed = sum(1 for item in drilled if item.judgement and not item.judgement.correct)
    if missed:
        first = NextStep(
            Text(
                en=f"You missed {missed} of {len(drilled)} questions that a drill can ask."
                " Ten minutes from now a drill asks them again.",
                zh=f"练习会问的 {len(drilled)} 题中有 {missed} 题没答对。十分钟后练习会再次问到。",
            ),
            f"python -m labkit drill --count {missed}",
        )
    else:
        first = NextStep(
            Text(
                en="You missed nothing that a drill asks. See what is still open.",
                zh="练习会问的题都没有失分。看看还有哪些没掌握。",
            ),
            "python -m labkit interview ready",
        )
    lost = max(told.topics, key=lambda row: (1 - row.score) * row.turns)
    title = bank.topics[lost.topic].title
    on_topic = NextStep(
        Text(en=f"Most points to gain: {title.en}.", zh=f"最值得补的主题：{title.zh}。"),
        f"python -m labkit drill --topic {lost.topic} --count 10",
    )
    passes = told.ready.screen is not None and told.ready.screen.verdict == "pass"
    minutes = max(told.minutes, _FULL_ROUND) if passes else told.minutes
    longer = NextStep(
        Text(
            en=f"Then the next mock, of {minutes:g} minutes.",
            zh=f"然后再做一次 {minutes:g} 分钟的模拟面试。",
        ),
        f"python -m labkit mock --minutes {minutes:g}",
    )
    return first, on_topic, longer


_FULL_ROUND = 45
"""Minutes of a whole round, with a long problem: for those who would pass a screen."""
