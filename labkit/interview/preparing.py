"""Where a learner stands before an interview, as tables and pictures for a notebook.

Everything is computed from the learner's own log by ``drills``, ``plans`` and ``readiness``; this
module only asks the log and the clock. Each function raises ``labkit.base.progress.ProgressError``
where the log cannot be read.
"""

from datetime import datetime, timedelta

import pandas as pd

from labkit.interview import charts, drills, plans, readiness
from labkit.interview import log as interview
from labkit.interview.questions import load_bank
from labkit.interview.wording import sureness
from labkit.plots import Picture

_FOUR_WEEKS = timedelta(days=28)


def friday_plan() -> None:
    """Print what is left to do until the interview, with the cell to run for each line."""
    left = plans.plan(load_bank(), interview.reviews(), _now(), interview.interview_date())
    print(left.text("en", lambda step: step.cell))


def topics() -> pd.DataFrame:
    """Every topic of the bank: its name for ``drill``, its title, how many questions it holds."""
    rows = [
        {"name": topic.topic, "title": topic.title.en, "questions": len(topic.questions)}
        for topic in load_bank().topics.values()
    ]
    return pd.DataFrame(rows, index=range(1, len(rows) + 1))


def weeks_plan() -> Picture:
    """The reviews to come until the interview, or of four weeks where no date is set."""
    now = _now()
    day = interview.interview_date()
    ahead = plans.weeks(load_bank(), interview.reviews(), now, day or now + _FOUR_WEEKS)
    rows = [(f"{at.day} {at:%b}", count) for at, count in ahead.due]
    until = f"until the interview on {ahead.interview}" if day else "in four weeks (no date is set)"
    pace = f"{ahead.unseen} core questions are unseen; new ones a day {until}: {ahead.new_a_day}."
    return charts.due_by_day(rows, pace=pace)


def ready() -> Picture | None:
    """What would be answered rightly of new questions, topic by topic.

    Says in a sentence that nothing is known, where that is so, and draws nothing.
    """
    bank = load_bank()
    found = readiness.readiness(bank, interview.reviews())
    said = readiness.summed_up(found, bank).en
    if not found.answered:
        print(said)
        return None
    rows = [
        (bank.topics[row.topic].title.en, row.screen, row.deep_dive, row.right, row.answered)
        for row in found.topics
    ]
    return charts.readiness_chart(rows, said=said)


def confidence() -> Picture | None:
    """The share of right answers at each stated confidence; a sentence where there is none."""
    words = sureness("en")
    rows = drills.calibration(interview.reviews())
    if not any(row.answers for row in rows):
        print("You have not answered with a confidence yet, so there is nothing to compare.")
        return None
    return charts.calibration_chart([(words[row.sure - 1], row.answers, row.right) for row in rows])


def _now() -> datetime:
    """The present in the learner's time zone: its date is today."""
    return datetime.now().astimezone()
