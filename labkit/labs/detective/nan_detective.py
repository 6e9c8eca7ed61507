"""The NaN detective: a run that fails, eight instruments with a price each, a budget, one cause.

A case is a real training run, and each instrument measures it. The table in ``causes`` says
which findings each cause can show, so a reading rules out every cause that cannot show it.
``accuse`` compares the queries that were made with the cheapest that settle the case.

>>> case = new_case(2)
>>> case.ask("fp32").finding
'it trains'
>>> case.minutes_left
20
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Any

from labkit.labs.detective import causes, scale_causes
from labkit.labs.detective.broken_runs import TracedStep, traced_run
from labkit.labs.detective.causes import CAUSES, FLAT, Cause
from labkit.labs.detective.instruments import (
    INSTRUMENTS,
    Instrument,
    Reading,
    first_bad_loss,
    learns,
    symptom,
)
from labkit.labs.detective.scale_causes import SCALE_CAUSES, ScaleCause
from labkit.labs.detective.scale_instruments import SCALE_INSTRUMENTS, bad_step
from labkit.labs.detective.telemetry import simulate
from labkit.labs.texts import BilingualError, Text

FINDINGS: Mapping[str, str] = MappingProxyType(causes.IN_CHINESE | scale_causes.IN_CHINESE)
"""Each finding of either tier in Chinese."""


class RefusedQuery(BilingualError, ValueError):
    """A query or an accusation that cannot be made."""


class Unsettled(BilingualError, RuntimeError):
    """A seed for which no run is settled by its readings."""


@dataclass(frozen=True, kw_only=True)
class Tier:
    """A size of case: its suspects, its instruments, and what their queries may cost together.

    Args:
        budget: in GPU-minutes. ``complaint``: what opens a case.
        run: the settings that a cause draws -> what the run leaves behind.
        fails: whether that is a failure at all.
    """

    id: str
    complaint: Text
    budget: int
    causes: Mapping[str, Any]
    instruments: Mapping[str, Instrument]
    run: Callable[[Any], Any]
    fails: Callable[[Any], bool]


def _digits_fail(steps: list[TracedStep]) -> bool:
    return symptom(steps) != FLAT or not learns([step.loss for step in steps])


DIGITS = Tier(
    id="digits",
    complaint=Text(
        en="A 16-bit run does not train: its loss is not finite at last, or it never falls.",
        zh="一次 16 位训练没有正常进行：损失最终不是有限值，或者一直不下降。",
    ),
    budget=40,
    causes=CAUSES,
    instruments=INSTRUMENTS,
    run=traced_run,
    fails=_digits_fail,
)
"""Small runs that really fail."""

SCALE = Tier(
    id="scale",
    complaint=Text(
        en="Simulated: a job in FP8 on 32 GPUs, replicated. The loss jumps or is not finite. What "
        "can be read of it is drawn by a program, not recorded.",
        zh="模拟：32 块 GPU 上的 FP8 训练任务，数据并行，每个 rank 一个副本。损失突然跳高，"
        "或不是有限值。能读到的遥测数据由程序生成，并非真实记录。",
    ),
    budget=60,
    causes=SCALE_CAUSES,
    instruments=SCALE_INSTRUMENTS,
    run=simulate,
    fails=lambda telemetry: bad_step(telemetry) is not None,
)
"""Jobs on 32 ranks, simulated."""

TIERS = {tier.id: tier for tier in (DIGITS, SCALE)}

_DRAWS = 5


class Case:
    """A broken run, what has been asked of it, and the verdict once somebody was accused.

    ``readings`` is what was asked so far, in order. ``symptom`` says what the loss does; the
    detective's page leaves that to the loss curve.
    """

    def __init__(
        self, cause: Cause | ScaleCause, seed: int, *, draw: int = 0, tier: Tier = DIGITS
    ) -> None:
        self.seed, self.tier = seed, tier
        self._cause = cause
        self._settings = cause.settings(seed + 10_000 * draw)
        self._steps = tier.run(self._settings)
        self._measured: dict[str, Reading] = {}
        self.readings: tuple[Reading, ...] = ()
        self.verdict: Judged | None = None

    def __repr__(self) -> str:
        return f"Case {self.seed}: {self.complaint.en} {self.minutes_left} GPU-minutes left."

    @property
    def finding(self) -> str:
        """The symptom in the words of the table."""
        return symptom(self._steps)

    @property
    def symptom(self) -> str:
        """What the loss does, and from which step on."""
        if self.finding == FLAT:
            return "A 16-bit run: every loss is finite, and the loss hardly moves."
        bad = first_bad_loss(self._steps)
        return f"A 16-bit run: at step {bad} the loss is not finite any more."

    @property
    def complaint(self) -> Text:
        """What opens the case for a detective."""
        return self.tier.complaint

    @property
    def minutes_left(self) -> int:
        """The GPU-minutes that are left for queries."""
        spent = price((reading.instrument for reading in self.readings), self.tier)
        return self.tier.budget - spent

    def losses(self, *, repaired: bool = False) -> list[float]:
        """The loss of each step; ``repaired``: of the run without its cause, once it is known.

        Raises:
            ValueError: the repaired run is asked for while the case is open.
        """
        if not repaired:
            return [step.loss for step in self._steps]
        if not self.verdict:
            raise ValueError(f"case {self.seed} is open: accuse a cause first")
        return [step.loss for step in traced_run(self._cause.repaired(self._settings))]

    def ask(self, instrument: str) -> Reading:
        """Measure, at the instrument's price; one that was asked before costs nothing.

        Raises:
            RefusedQuery: there is no such instrument, it costs more than is left, or the case is
                closed.
        """
        if instrument not in self.tier.instruments:
            known = ", ".join(self.tier.instruments)
            raise RefusedQuery(
                f"instrument {instrument!r}: ask one of {known}",
                f"没有诊断工具 {instrument!r}：可用的有 {known}",
            )
        asked = {reading.instrument: reading for reading in self.readings}
        if instrument in asked:
            return asked[instrument]
        if self.verdict:
            raise self._closed()
        if price([instrument], self.tier) > self.minutes_left:
            raise self._cannot_pay(instrument)
        reading = self._measure(instrument)
        self.readings += (reading,)
        return reading

    def _closed(self) -> RefusedQuery:
        return RefusedQuery(
            f"case {self.seed} is closed: open another with new_case(seed)",
            f"案例 {self.seed} 已结案：请用 new_case(seed) 打开另一个",
        )

    def _cannot_pay(self, instrument: str) -> RefusedQuery:
        asked = {reading.instrument for reading in self.readings}
        payable = [
            each.id
            for each in self.tier.instruments.values()
            if each.id not in asked and each.price <= self.minutes_left
        ]
        way = Text(en="accuse a cause", zh="请直接指认原因")
        if payable:
            way = Text(en="ask one of {ids}, or accuse", zh="可以改用 {ids}，或直接指认原因")
        said = Text(
            en="{dear} costs {price} GPU-minutes, and {left} are left: {way}",
            zh="“{dear}”需要 {price} GPU 分钟，只剩 {left} GPU 分钟：{way}",
        ).filled(
            dear=self.tier.instruments[instrument].name,
            price=self.tier.instruments[instrument].price,
            left=self.minutes_left,
            way=way.filled(ids=", ".join(payable)),
        )
        return RefusedQuery(said.en, said.zh)

    def _measure(self, instrument: str) -> Reading:
        if instrument not in self._measured:
            reading = self.tier.instruments[instrument].read(self._settings, self._steps)
            self._measured[instrument] = reading
        return self._measured[instrument]

    def is_fair(self) -> bool:
        """Whether it fails, no reading contradicts the cause, and the budget pays for a proof.

        This measures everything, so that later queries take no time.
        """
        if not self.tier.fails(self._steps):
            return False
        readings = {name: self._measure(name) for name in self.tier.instruments}
        if self._cause.id not in left(readings.values(), self.tier):
            return False
        try:
            return bool(cheapest_proof(self._cause, readings, self.tier))
        except LookupError:
            return False


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What became of an accusation.

    Args:
        accused, cause: ids of the tier's causes. ``right``: they are the same.
        left: the causes that the readings had not ruled out, ids. If ``right`` and only the cause
            is left, the case was proved; otherwise it was guessed.
        sign: the reading that shows the mechanism at work.
        evidence: the readings that settle the case, as cheap as can be.
        against: for every innocent cause, the sentence that clears it.
        spent: GPU-minutes of the queries that were made.
        misconception: the wrong idea behind a wrong accusation, None if it was right.
        repair: what to do about the cause.

    ``str`` is the verdict in English, ``in_words`` in either language.
    """

    tier: Tier
    accused: str
    cause: str
    right: bool
    left: tuple[str, ...]
    sign: Reading
    evidence: tuple[Reading, ...]
    against: Mapping[str, Text]
    spent: int
    misconception: str | None
    repair: Text

    @property
    def proved(self) -> bool:
        return self.right and self.left == (self.cause,)

    def __str__(self) -> str:
        return self.in_words("en")

    def in_words(self, language: str) -> str:
        """The whole verdict, "en" or "zh"."""
        sign = Text(en="The sign of it: {sign}", zh="关键证据：{sign}")
        repair = Text(en="Repair: {repair}", zh="修复：{repair}")
        lines = [
            self.opening()[language],
            sign.filled(sign=said(self.sign, self.tier, closed=True))[language],
            self.bill()[language],
        ]
        lines += [f"- {said(reading, self.tier)[language]}" for reading in self.evidence]
        return "\n".join([*lines, repair.filled(repair=self.repair)[language]])

    def bill(self) -> Text:
        """What the cheapest proof costs, beside what was spent."""
        cheapest = price((reading.instrument for reading in self.evidence), self.tier)
        return Text(
            en="What settles it at the lowest price, {cheapest} GPU-minutes; you spent {spent}:",
            zh="代价最低的证明只需 {cheapest} GPU 分钟，你用了 {spent} GPU 分钟：",
        ).filled(cheapest=cheapest, spent=self.spent)

    def opening(self) -> Text:
        """Whether it was right, and whether the readings proved it."""
        name = _lower(self.tier.causes[self.cause].name)
        if self.proved:
            return Text(
                en="Proved: {name}. Your readings leave no other suspect.",
                zh="已证明：{name}。你的检查结果排除了所有其他原因。",
            ).filled(name=name)
        if self.right:
            others = [_lower(self.tier.causes[c].name) for c in self.left if c != self.cause]
            return Text(
                en="Right, but not proved: {name}. Your readings also allow: {others}.",
                zh="正确，但未证明：{name}。你的检查结果还允许：{others}。",
            ).filled(name=name, others=_joined(others, en="; ", zh="；"))
        return Text(
            en="Not so. {cleared} It was this: {name}.", zh="不对。{cleared}真正的原因是：{name}。"
        ).filled(cleared=self.against[self.accused], name=name)


def new_case(seed: int, tier: Tier = DIGITS) -> Case:
    """Open the case of a seed: the run is built and run, in seconds at most.

    As many seeds in a row as there are causes give every cause once, in an order of their own. A
    run that its readings do not settle, such as one that has not broken yet, is drawn anew.

    Raises:
        Unsettled: none of the runs drawn for this seed is settled by its readings.
    """
    round_, place = divmod(seed, len(tier.causes))
    order = list(tier.causes)
    random.Random(f"order {round_}").shuffle(order)
    for draw in range(_DRAWS):
        case = Case(tier.causes[order[place]], seed, draw=draw, tier=tier)
        if case.is_fair():
            return case
    raise Unsettled(
        f"case {seed}: none of {_DRAWS} runs is settled by its readings on this machine; take "
        "another seed, and please report it",
        f"案例 {seed}：在这台机器上，{_DRAWS} 次运行都无法由检查结果定案；"
        "请换一个 seed，并报告此问题",
    )


def accuse(case: Case, cause: str) -> Judged:
    """Close the case: say whether it was this, and what proves it.

    Raises:
        RefusedQuery: an unknown cause, or the case is closed.
    """
    tier = case.tier
    if cause not in tier.causes:
        known = ", ".join(tier.causes)
        raise RefusedQuery(
            f"cause {cause!r}: accuse one of {known}", f"没有原因 {cause!r}：可指认的有 {known}"
        )
    if case.verdict:
        raise case._closed()
    guilty = case._cause
    readings = {name: case._measure(name) for name in tier.instruments}
    proof = cheapest_proof(guilty, readings, tier)
    case.verdict = Judged(
        tier=tier,
        accused=cause,
        cause=guilty.id,
        right=cause == guilty.id,
        left=tuple(left(case.readings, tier)),
        sign=readings[guilty.sign],
        evidence=tuple(readings[name] for name in proof),
        against={
            other.id: _cleared(other, case, readings)
            for other in tier.causes.values()
            if other is not guilty
        },
        spent=tier.budget - case.minutes_left,
        misconception=None
        if cause == guilty.id
        else misconception(tier.causes[cause], guilty, case),
        repair=guilty.advice,
    )
    return case.verdict


def price(instruments: Iterable[str], tier: Tier = DIGITS) -> int:
    """GPU-minutes for a query of each of these instruments, ids."""
    return sum(tier.instruments[name].price for name in instruments)


def left(readings: Iterable[Reading], tier: Tier = DIGITS) -> list[str]:
    """The causes that some readings do not rule out."""
    readings = list(readings)
    return [
        cause.id
        for cause in tier.causes.values()
        if all(cause.can_show(r.instrument, r.finding) for r in readings)
    ]


def cheapest_proof(
    cause: Cause | ScaleCause, readings: Mapping[str, Reading], tier: Tier = DIGITS
) -> tuple[str, ...]:
    """The cheapest instruments that together rule every other cause out, within the tier's budget.

    Of equally cheap sets the one with fewest instruments is taken, then the one with most of which
    the cause has something to say.

    Raises:
        LookupError: the budget pays for no such set.
    """

    def cost(names: tuple[str, ...]) -> tuple[int, int, int]:
        return price(names, tier), len(names), sum(name not in cause.allows for name in names)

    sets = (names for n in range(len(readings) + 1) for names in combinations(readings, n))
    for names in sorted((names for names in sets if price(names, tier) <= tier.budget), key=cost):
        if left((readings[name] for name in names), tier) == [cause.id]:
            return names
    raise LookupError(f"{cause.id}: no queries for {tier.budget} GPU-minutes rule all others out")


def _cleared(other: Cause | ScaleCause, case: Case, readings: Mapping[str, Reading]) -> Text:
    """Which measurement rules a cause out: one that was made if there is any, else the cheapest."""
    asked = [reading.instrument for reading in case.readings]
    for name in (*asked, *sorted(readings, key=lambda name: price([name], case.tier))):
        reading = readings[name]
        if not other.can_show(name, reading.finding):
            own = Text(en="Your own reading", zh="你自己的检查结果")
            one = Text(en="One reading", zh="有一项检查结果")
            can = [_finding(each) for each in other.allows.get(name, ())]
            would = ""
            if can:
                would = Text(
                    en=", where that cause shows {can}", zh="，而该原因应显示“{can}”"
                ).filled(can=_joined(can, en=" or ", zh="”或“"))
            return Text(
                en="{whose} clears “{name}”: {instrument} shows {finding}{would}.",
                zh="{whose}排除了“{name}”：“{instrument}”显示“{finding}”{would}。",
            ).filled(
                whose=own if name in asked else one,
                name=_lower(other.name),
                instrument=case.tier.instruments[name].name,
                finding=_finding(reading.finding),
                would=would,
            )
    raise LookupError(f"no reading clears {other.id}")


def _finding(finding: str) -> Text:
    return Text(en=finding, zh=FINDINGS[finding])


def _joined(texts: Iterable[Text], *, en: str, zh: str) -> Text:
    texts = list(texts)
    return Text(en=en.join(each.en for each in texts), zh=zh.join(each.zh for each in texts))


def misconception(accused: Cause | ScaleCause, guilty: Cause | ScaleCause, case: Case) -> str:
    """The wrong idea that a wrong accusation shows, an id of ``data/misconceptions.toml``."""
    if case.tier is DIGITS and not accused.can_show("symptom", case.finding):
        return "nan-and-stall-are-one-illness"
    if any(not accused.can_show(r.instrument, r.finding) for r in case.readings):
        return "a-hunch-outweighs-a-reading"
    if accused.precision and not guilty.precision:
        return "sixteen-bits-are-to-blame"
    if guilty.precision and not accused.precision:
        return "formats-are-innocent"
    if accused.id == "underflow":
        return "a-stall-is-underflow"
    if accused.id == "unchecked-scale":
        return "the-loss-scale-rules-the-forward-pass"
    if guilty.id == "adam-eps":
        return "nan-means-overflow"
    return "one-symptom-one-cause"


def said(reading: Reading, tier: Tier = DIGITS, *, closed: bool = False) -> Text:
    """A reading in words; in a closed case with the mechanism."""
    text = Text(en="{name}: {text}", zh="{name}：{text}")
    if closed and reading.detail:
        text = Text(en="{name}: {text} {detail}", zh="{name}：{text}{detail}")
    name = tier.instruments[reading.instrument].name
    return text.filled(name=name, text=reading.text, detail=reading.detail)


def _lower(name: Text) -> Text:
    """A name in the middle of a sentence; names and abbreviations keep their capitals."""
    if name.en.startswith("Adam"):
        return name
    return Text(en=name.en[0].lower() + name.en[1:], zh=name.zh)
