"""What somebody would get right of new questions, with an interval: by topic, and by depth.

Evidence are first answers: the first one to each question, given when the question was new. A
question that was practised is remembered, which says nothing about those that an interviewer asks.
Free speech is left out, for its speaker judges it, and an answer that needed a hint is not right.

A learner has a skill in each topic, and the skills of one learner lie near each other; how much of
it is left in a question of level 3 differs from topic to topic. How likely an answer is right
follows from the skill, the level of the question and the chance to guess it: the model of item
response theory with one parameter. Its prior stands for what nobody has answered yet, so an unseen
topic is neither 0 nor certain: it is what one would expect of a learner with these answers
elsewhere, within a wide interval.

The posterior is computed on a grid, exactly up to the grid: no samples, equal answers give equal
numbers.

Source: G. Rasch, Probabilistic Models for Some Intelligence and Attainment Tests, 1960; the chance
to guess is the lower asymptote of A. Birnbaum's three-parameter model, 1968.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from labkit.interview.cards import Question
from labkit.interview.drills import Review
from labkit.interview.question_parts import Text
from labkit.interview.questions import Bank

SCREEN, DEEP_DIVE = (1, 2), (3,)
"""The levels of the questions that a screen asks, and of those of a deep dive."""

BAR = 0.7
"""The share of right answers from which an interviewer is satisfied: our convention."""

ENOUGH = 8
"""First answers of a round's levels below which there is no verdict on it.

With six of six right, the interval of a screen still reaches down to 67 %, which is below ``BAR``;
with eight of eight it begins at 76 %. With six of eight right it is 34 points wide.
"""

_ROUNDS = {
    "screen": (SCREEN, "A screen", "初面"),
    "deep dive": (DEEP_DIVE, "A deep dive", "深入追问"),
}
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
    """An expected share of right answers to new questions, 0 to 1, and its interval of 80 %.

    ``answers`` counts the first answers of the same levels that it rests on.
    """

    share: float
    low: float
    high: float
    answers: int

    @property
    def percent(self) -> str:
        """In whole percent: `83 % (74–90)`."""
        share, low, high = (f"{100 * x:.0f}" for x in (self.share, self.low, self.high))
        return f"{share} % ({low}–{high})"

    @property
    def verdict(self) -> str | None:
        """ "pass" or "fail" where the interval lies on one side of ``BAR``, else "open".

        None where fewer than ``ENOUGH`` answers support it.
        """
        if self.answers < ENOUGH:
            return None
        return "pass" if self.low >= BAR else "fail" if self.high < BAR else "open"


@dataclass(frozen=True, kw_only=True)
class TopicReadiness:
    """One topic: its first answers, and what would be right in a screen and in a deep dive.

    None where the topic has no questions of these levels.
    """

    topic: str
    answered: int
    right: int
    screen: Estimate | None
    deep_dive: Estimate | None


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """What somebody would get right of new questions, over all topics and topic by topic.

    Of ``answered`` questions the first answer was ``right``; of ``practised`` ones, which were
    answered again, the newest answer was right in ``still_right``. ``ticked`` questions of free
    speech count in none of these.
    """

    screen: Estimate | None
    deep_dive: Estimate | None
    answered: int
    right: int
    practised: int
    still_right: int
    ticked: int
    topics: tuple[TopicReadiness, ...]


def readiness(bank: Bank, reviews: Iterable[Review]) -> Readiness:
    """Readiness for new questions, with a row for each topic in the bank's order.

    Over all topics the questions asked are new ones of the topics, levels and forms of those tagged
    "core", which interviewers ask most; of a bank without any, of all of them.
    """
    told = [r for r in sorted(reviews, key=lambda r: r.at) if r.question in bank.questions]
    judged = [review for review in told if not bank.questions[review.question].spoken]
    newest = {review.question: review for review in judged}
    first = {review.question: review for review in reversed(judged)}
    evidence = {id: review.correct and not review.hints for id, review in first.items()}
    again = [review for id, review in newest.items() if review is not first[id]]
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
        known = [evidence[q.id] for q in topic.questions if q.id in evidence]
        rows.append(
            TopicReadiness(
                topic=topic.topic,
                answered=len(known),
                right=sum(known),
                screen=posterior.of(topic.questions, SCREEN, [topic.topic]),
                deep_dive=posterior.of(topic.questions, DEEP_DIVE, [topic.topic]),
            )
        )
    return Readiness(
        screen=posterior.of(asked, SCREEN, bank.topics),
        deep_dive=posterior.of(asked, DEEP_DIVE, bank.topics),
        answered=len(evidence),
        right=sum(evidence.values()),
        practised=len(again),
        still_right=sum(review.correct for review in again),
        ticked=len({review.question for review in told} - set(first)),
        topics=tuple(rows),
    )


def summed_up(found: Readiness, bank: Bank) -> Text:
    """What that means for an interview, in sentences: what is known, the screen, the deep dive."""
    said = [_known(found)]
    if found.answered:
        rounds = (("screen", found.screen), ("deep dive", found.deep_dive))
        said += [_round_of(name, estimate) for name, estimate in rounds if estimate]
    dives = [row for row in found.topics if row.deep_dive and row.deep_dive.verdict == "fail"]
    dives.sort(key=lambda row: row.deep_dive.share)
    failing = [bank.topics[row.topic].title for row in dives[:_NAMED]]
    if failing:
        said.append(
            Text(
                en=f"A deep dive would fail on: {'; '.join(t.en for t in failing)}.",
                zh=f"深入追问会失分的主题：{'；'.join(t.zh for t in failing)}。",
            )
        )
    if found.ticked:
        said.append(
            Text(
                en=f"Spoken answers that you ticked yourself ({found.ticked}) do not count.",
                zh=f"自己勾选的口头题（{found.ticked} 道）不计入。",
            )
        )
    return Text(en=" ".join(text.en for text in said), zh="".join(text.zh for text in said))


def _known(found: Readiness) -> Text:
    """How many new questions were answered rightly, and apart from them those practised."""
    if not found.answered:
        return Text(
            en="No question that can be judged is answered yet, so nothing is known.",
            zh="还没有回答过可以判分的题目，因此无从估计。",
        )
    share = f"{100 * found.right / found.answered:.0f} %"
    en = f"You answered {found.right} of {found.answered} new questions right ({share})"
    zh = f"{found.answered} 道新题答对 {found.right} 道（{share}）"
    if found.practised:
        share = f"{100 * found.still_right / found.practised:.0f} %"
        en += f", and {share} of the {found.practised} that you answered again"
        zh += f"；练习过的 {found.practised} 道题，正确率 {share}"
    return Text(en=f"{en}.", zh=f"{zh}。")


def _round_of(name: str, estimate: Estimate) -> Text:
    levels, en, zh = _ROUNDS[name]
    en += f" (level {' or '.join(map(str, levels))})"
    zh += f"（{'、'.join(map(str, levels))} 级）"
    if estimate.verdict is None:
        return Text(
            en=f"{en}: no verdict yet. A verdict takes {ENOUGH} new questions, and you have"
            f" answered {estimate.answers}.",
            zh=f"{zh}：暂无结论，需要 {ENOUGH} 道新题，目前答了 {estimate.answers} 道。",
        )
    told_en, told_zh = _VERDICTS[estimate.verdict]
    percent_zh = estimate.percent.replace(" (", "（").replace(")", "）")
    return Text(
        en=f"{en}: about {estimate.percent} of new questions right, with an interval of 80 %;"
        f" {told_en}.",
        zh=f"{zh}：新题约答对 {percent_zh}，区间 80 %；{told_zh}。",
    )


@functools.cache
def _on_grid(level: int, guess: float) -> tuple[np.ndarray, np.ndarray]:
    return _moments(level, guess, _SKILLS + _AT_DEPTH if level in DEEP_DIVE else _SKILLS)


def _moments(level: int, guess: float, skills: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and mean square of the chance of a right answer, for each skill.

    Over questions harder and easier than their level; ``guess`` is the chance to be right without
    knowing anything, and skill 0 is even odds on a question of level 2 that nobody guesses.
    """
    away = skills[..., None] - _HARDER * (level - 2) - _QUESTIONS * _NODES
    right = guess + (1 - guess) / (1 + np.exp(-away))
    return right @ _WEIGHTS, right**2 @ _WEIGHTS


def guess(question: Question) -> float:
    """The chance to be right without knowing anything: one of the options, where one is right."""
    return 1 / len(question.entries) if question.form == "choice" else 0.0


class _Posterior:
    """Skills after some evidence, on a grid.

    ``evidence`` holds for each topic its answered questions, and whether each was right.
    """

    def __init__(self, evidence: Mapping[str, Sequence[tuple[Question, bool]]]) -> None:
        self._evidence = evidence
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

    def of(
        self, questions: Iterable[Question], levels: tuple[int, ...], topics: Iterable[str]
    ) -> Estimate | None:
        """The share of new questions like those of these levels; None where there are none.

        Answers of these levels in ``topics`` are counted as what supports it.
        """
        asked = [q for q in questions if q.level in levels]
        if not asked:
            return None
        known = [q for topic in topics for q, _ in self._evidence[topic]]
        return Estimate(*self._share(asked), sum(q.level in levels for q in known))

    def _share(self, questions: Sequence[Question]) -> tuple[float, float, float]:
        """The share of such questions that would be right; those of a topic count together."""
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


def _likelihood(evidence: Iterable[tuple[Question, bool]]) -> np.ndarray:
    """How likely the answers of a topic are, for each state, (states,); at most 1."""
    logs = np.zeros_like(_SKILLS)
    for question, correct in evidence:
        right, _ = _on_grid(question.level, guess(question))
        logs += np.log(right) if correct else np.log1p(-right)
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


def _mixed(
    weights: np.ndarray, means: np.ndarray, variances: np.ndarray
) -> tuple[float, float, float]:
    """Mean and both ends of the interval of a share: a mixture of normal distributions."""
    spreads = np.sqrt(np.maximum(variances, 1e-12))
    low, high = (_where(functools.partial(_below, weights, means, spreads), p) for p in _TAILS)
    return float(weights @ means), low, high


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
