"""What somebody would get right in an interview, with an interval: by topic, and by depth.

A learner has a skill in each topic, and the skills of one learner lie near each other; how much of
it is left in a question of level 3 differs from topic to topic. How likely an answer is right
follows from the skill, the level of the question and the chance to guess it: the model of item
response theory with one parameter. Its prior stands for what nobody has answered yet, so an unseen
topic is neither 0 nor certain: it is what one would expect of a learner with these answers
elsewhere, within a wide interval. The newest answer to each question counts, and a right one as
much as it is still remembered.

The posterior is computed on a grid, exactly up to the grid: no samples, equal answers give equal
numbers.

Source: G. Rasch, Probabilistic Models for Some Intelligence and Attainment Tests, 1960; the chance
to guess is the lower asymptote of A. Birnbaum's three-parameter model, 1968.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from labkit.interview.cards import Question
from labkit.interview.drills import Review, moment, recalls
from labkit.interview.question_parts import Text
from labkit.interview.questions import Bank

SCREEN, DEEP_DIVE = (1, 2), (3,)
"""The levels of the questions that a screen asks, and of those of a deep dive."""

BAR = 0.7
"""The share of right answers from which an interviewer is satisfied: our convention."""

_ROUNDS = {"screen": ("A screen", "初面"), "deep dive": ("A deep dive", "深入追问")}
_VERDICTS = {
    "pass": ("you would pass", "可以通过"),
    "fail": ("you would not pass yet", "目前还不能通过"),
    "open": ("it could go either way", "两种结果都有可能"),
}
_NAMED = 6  # topics

_TAILS = 0.1, 0.9  # an interval of 80 %

# In units of the logistic: how far two learners lie apart, two topics of one, depth in two topics,
# two questions of a level; and how much harder a level is than the one below.
_LEARNERS, _TOPICS, _DEPTHS, _QUESTIONS = 1.6, 0.8, 0.8, 0.8
_HARDER = 1.0

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(7)  # averages over a standard normal
_WEIGHTS /= _WEIGHTS.sum()

_MEANS = np.linspace(-6, 6, 41)
"""A learner's mean skill."""

_SKILLS, _AT_DEPTH = (grid.ravel() for grid in np.meshgrid(_MEANS, _DEPTHS * _NODES))
"""The skill in a topic, and what is added to it in a question of level 3: (states,) each."""


@dataclass(frozen=True)
class Estimate:
    """An expected share of right answers, 0 to 1, and its interval of 80 %."""

    share: float
    low: float
    high: float

    @property
    def percent(self) -> str:
        """In whole percent: `83 % (74–90)`."""
        share, low, high = (f"{100 * x:.0f}" for x in (self.share, self.low, self.high))
        return f"{share} % ({low}–{high})"

    @property
    def verdict(self) -> str:
        """ "pass" or "fail" where the interval lies on one side of ``BAR``, else "open"."""
        return "pass" if self.low >= BAR else "fail" if self.high < BAR else "open"


@dataclass(frozen=True, kw_only=True)
class TopicReadiness:
    """One topic: what was seen of it, and what would be right in a screen and in a deep dive.

    None where the topic has no questions of these levels.
    """

    topic: str
    questions: int
    seen: int
    missed: int
    screen: Estimate | None
    deep_dive: Estimate | None


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """What somebody would get right: of all that interviewers ask most, and topic by topic."""

    screen: Estimate | None
    deep_dive: Estimate | None
    answers: int
    topics: tuple[TopicReadiness, ...]


def readiness(
    bank: Bank, reviews: Sequence[Review], now: datetime, *, interview: datetime | None = None
) -> Readiness:
    """Readiness in each topic, in the bank's order; on the day of the interview if it is given.

    Over all topics the questions tagged "core" count, those that interviewers ask most; of a bank
    without any, all of them.
    """
    now = moment(reviews, now)
    at = now if interview is None else max(now, interview)
    newest = {r.question: r for r in reviews if r.question in bank.questions}
    known = recalls(bank, reviews, now, at, interview=interview)
    evidence = {id: known[id] * review.correct for id, review in newest.items()}
    posterior = _Posterior(
        {
            topic.topic: [(q, evidence[q.id]) for q in topic.questions if q.id in evidence]
            for topic in bank.topics.values()
        }
    )
    core = [q for q in bank.questions.values() if "core" in q.tags]
    asked = core or list(bank.questions.values())
    rows = []
    for topic in bank.topics.values():
        seen = [newest[q.id] for q in topic.questions if q.id in newest]
        rows.append(
            TopicReadiness(
                topic=topic.topic,
                questions=len(topic.questions),
                seen=len(seen),
                missed=sum(not review.correct for review in seen),
                screen=posterior.of(topic.questions, SCREEN),
                deep_dive=posterior.of(topic.questions, DEEP_DIVE),
            )
        )
    return Readiness(
        screen=posterior.of(asked, SCREEN),
        deep_dive=posterior.of(asked, DEEP_DIVE),
        answers=len(newest),
        topics=tuple(rows),
    )


def summed_up(found: Readiness, bank: Bank) -> Text:
    """What that means for an interview, in sentences: the screen, the deep dive, and on what."""
    if not found.answers:
        return Text(
            en="Nothing is answered yet: these are guesses about somebody unknown.",
            zh="还没有作答：这里只是对一个陌生人的估计。",
        )
    rounds = (("screen", found.screen), ("deep dive", found.deep_dive))
    said = [_round_of(name, estimate) for name, estimate in rounds if estimate]
    dives = [row for row in found.topics if row.deep_dive]
    dives.sort(key=lambda row: row.deep_dive.share)
    failing = [bank.topics[row.topic].title for row in dives if row.deep_dive.verdict == "fail"]
    if failing:
        said.append(
            Text(
                en=f"A deep dive would fail on: {'; '.join(t.en for t in failing[:_NAMED])}.",
                zh=f"深入追问会失分的主题：{'；'.join(t.zh for t in failing[:_NAMED])}。",
            )
        )
    return Text(en=" ".join(text.en for text in said), zh="".join(text.zh for text in said))


def _round_of(name: str, estimate: Estimate) -> Text:
    en, zh = _ROUNDS[name]
    told_en, told_zh = _VERDICTS[estimate.verdict]
    return Text(
        en=f"{en}: {estimate.percent}, {told_en}.", zh=f"{zh}：{estimate.percent}，{told_zh}。"
    )


def chances(level: int, guess: float, skills: np.ndarray) -> np.ndarray:
    """The chance of a right answer to a question of a level, for each skill.

    Args:
        level: 1 to 3.
        guess: the chance to be right without knowing anything.
        skills: float64 of any shape; 0 is even odds on a question of level 2 that nobody guesses.
    """
    return _moments(level, guess, skills)[0]


@functools.cache
def _on_grid(level: int, guess: float) -> tuple[np.ndarray, np.ndarray]:
    return _moments(level, guess, _SKILLS + _AT_DEPTH if level in DEEP_DIVE else _SKILLS)


def _moments(level: int, guess: float, skills: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and mean square of that chance over questions harder and easier than their level."""
    away = skills[..., None] - _HARDER * (level - 2) - _QUESTIONS * _NODES
    right = guess + (1 - guess) / (1 + np.exp(-away))
    return right @ _WEIGHTS, right**2 @ _WEIGHTS


def guess(question: Question) -> float:
    """The chance to be right without knowing anything: one of the options, where one is right."""
    return 1 / len(question.entries) if question.form == "choice" else 0.0


class _Posterior:
    """Skills after some evidence, on a grid.

    ``evidence`` holds for each topic its questions with how far each is known, 0 to 1.
    """

    def __init__(self, evidence: Mapping[str, Iterable[tuple[Question, float]]]) -> None:
        self._likelihoods = {topic: _likelihood(of_it) for topic, of_it in evidence.items()}
        # Row: the learner's mean skill. Column: the state of a topic.
        self._prior = _normal(_SKILLS, _MEANS[:, None], _TOPICS) * np.repeat(_WEIGHTS, _MEANS.size)

    @functools.cached_property
    def _means(self) -> np.ndarray:
        """The distribution of the learner's mean skill, (means,)."""
        logs = np.log(_normal(_MEANS, 0.0, _LEARNERS))
        for likelihood in self._likelihoods.values():
            logs += np.log(self._prior @ likelihood)
        weights = np.exp(logs - logs.max())
        return weights / weights.sum()

    def _given_mean(self, topic: str) -> np.ndarray:
        """The distribution of the state of a topic for each mean skill, (means, states)."""
        joint = self._prior * self._likelihoods[topic]
        return joint / joint.sum(axis=1, keepdims=True)

    def of(self, questions: Iterable[Question], levels: tuple[int, ...]) -> Estimate | None:
        """The share of the questions of these levels; None where there are none."""
        asked = [q for q in questions if q.level in levels]
        return self.share(asked) if asked else None

    def share(self, questions: Sequence[Question]) -> Estimate:
        """The share of these questions that would be right; those of a topic count together."""
        topics = list(dict.fromkeys(q.topic for q in questions))
        if len(topics) == 1:
            mean, square = _shares(questions)
            return _mixed(self._means @ self._given_mean(topics[0]), mean, square - mean**2)
        # Given the mean skill the topics are independent, and their sum is nearly normal.
        mean, variance = np.zeros_like(_MEANS), np.zeros_like(_MEANS)
        for topic in topics:
            of_it = [q for q in questions if q.topic == topic]
            weights, part = self._given_mean(topic), len(of_it) / len(questions)
            first, second = _shares(of_it)
            right = weights @ first
            mean += part * right
            variance += part**2 * (weights @ second - right**2)
        return _mixed(self._means, mean, variance)


def _likelihood(evidence: Iterable[tuple[Question, float]]) -> np.ndarray:
    """How likely the answers of a topic are, for each state, (states,); at most 1."""
    logs = np.zeros_like(_SKILLS)
    for question, known in evidence:
        right, _ = _on_grid(question.level, guess(question))
        logs += known * np.log(right) + (1 - known) * np.log1p(-right)
    return np.exp(logs - logs.max())


def _shares(questions: Sequence[Question]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and mean square of the share of these questions that is right, for each state."""
    each = [_on_grid(q.level, guess(q)) for q in questions]
    means = np.array([mean for mean, _ in each])
    variances = np.array([square - mean**2 for mean, square in each])
    mean = means.mean(axis=0)
    return mean, mean**2 + variances.sum(axis=0) / len(questions) ** 2


def _normal(x: np.ndarray, mean: np.ndarray | float, spread: float) -> np.ndarray:
    """The density of a normal distribution, up to a factor."""
    return np.exp(-(((x - mean) / spread) ** 2) / 2)


def _mixed(weights: np.ndarray, means: np.ndarray, variances: np.ndarray) -> Estimate:
    """The estimate of a share that is a mixture of normal distributions."""
    spreads = np.sqrt(np.maximum(variances, 1e-12))
    low, high = (_where(functools.partial(_below, weights, means, spreads), p) for p in _TAILS)
    return Estimate(float(weights @ means), low, high)


def _below(weights: np.ndarray, means: np.ndarray, spreads: np.ndarray, x: float) -> float:
    """The chance to lie below ``x`` of a mixture of normal distributions."""
    away = (x - means) / spreads / math.sqrt(2)
    return sum(w * (1 + math.erf(z)) / 2 for w, z in zip(weights, away, strict=True))


def _where(below: Callable[[float], float], part: float) -> float:
    """The share in 0 to 1 below which that part of a distribution lies."""
    low, high = 0.0, 1.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < part else (low, middle)
    return (low + high) / 2
