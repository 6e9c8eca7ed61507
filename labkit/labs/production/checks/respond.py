"""Check of lab 15: a policy for faults, asked about single events and about rows of them."""

import dataclasses
import itertools
import random

from labkit.labs.engine import AnswerError, Mistake, attempt, check, number, several, word
from labkit.labs.engine.codec import Foreign, Raised
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure
from labkit.labs.production.run_plan import ANSWERS, Plan

LAB = "15_production"

RAISED = "`{call}` raised {error}. {why}"
NO_PLAN = (
    "`{call}` gives {came} as its plan; a `Plan` is asked for: `replace(plan, ...)` makes one."
)
ANSWER = "`{call}` answers {got}; {want} is wanted. {why}"
FIELD = "`{call}` gives {field}={got}; {field}={want} is wanted. {why}"
IN_THE_PLAN = "All that the policy remembers stands in the plan."

OK = "A finite step ends the streak, and the run goes on."
COUNTS = (
    "With the {before:d} of the plan that is {streak:d} in a row, and patience is {patience:d}: "
    "until it is reached, the step is skipped in every format."
)
REACHED = "That is {streak:d} in a row: patience is reached, and {precision} has a wider format."
AT_FP32 = (
    "That is {streak:d} in a row: patience is reached, and there is no wider format than fp32."
)
HALVES = "Half of {micro_batch:d} rows, and twice {accumulate:d} passes: the global batch stays."
ONE_ROW = "A micro-batch of 1 cannot be halved."
KEPT = "A full device says nothing about the streak."
FORMAT_STAYS = "The memory failed, not the format."
DAMAGED = "What a save would write now is the damage."
GOES_BACK = "The run goes on from a checkpoint, so the steps in a row are over."
OTHER_EVENT = 'Any event that no rule names gives "save and stop", with the plan as it came.'
AS_IT_CAME = "The plan stays as it came."

_FIELDS = "precision", "micro_batch", "accumulate", "streak"
_RULED = "ok", "non-finite", "out of memory", "corruption"
# Of the others, three hold a word of a rule.
_OTHERS = "loader", "power failure", "finite", "host memory low", "corrupt file"
_START = {"precision": "fp16", "micro_batch": 32, "accumulate": 1, "streak": 0}


def _cases(seed):
    """Events, fields of plans, and patience: the example, each rule at its edges, drawn ones."""
    rows = [("non-finite", _START | {"streak": streak}, 3) for streak in range(3)]
    precisions = "fp16", "bf16", "fp32"
    for event, precision, streak in itertools.product(_RULED + _OTHERS, precisions, (0, 1, 2)):
        rows.append((event, _START | {"precision": precision, "streak": streak}, 3))
    for micro, passes, streak in ((1, 32, 0), (1, 1, 2), (2, 16, 1), (16, 2, 2), (64, 3, 0)):
        plan = {"precision": "bf16", "micro_batch": micro, "accumulate": passes, "streak": streak}
        alone = plan | {"streak": 0}
        rows += [("out of memory", plan, 3), ("non-finite", alone, 1), ("non-finite", plan, 4)]
    draw = random.Random(seed)
    for _ in range(20):
        plan = {
            "precision": draw.choice(precisions),
            "micro_batch": 2 ** draw.randrange(8),
            "accumulate": draw.randrange(1, 9),
            "streak": draw.randrange(6),
        }
        rows.append((draw.choice(_RULED), plan, draw.randrange(plan["streak"] + 1, 9)))
    return rows


def run_respond(respond, seed):
    """Answers and plans of the events, one after another, and of the same once more."""
    return [
        [_shown(_asked(respond, *case)) for case in _cases(seed)],
        [_shown(_asked(respond, *case)) for case in reversed(_cases(seed))],
    ]


def _asked(respond, event, plan, patience):
    """One call; where patience is 3, as it is by itself."""
    if patience == 3:
        return attempt(respond, event, Plan(**plan))
    return attempt(respond, event, Plan(**plan), patience)


def _shown(reply):
    """A plan as a dict of its fields, so that a judge can be shown it."""
    if isinstance(reply, tuple | list) and len(reply) == 2 and dataclasses.is_dataclass(reply[1]):
        plan = {field: getattr(reply[1], field, None) for field in _FIELDS}
        return {"answer": reply[0], "plan": plan}
    return reply


@check(run_respond)
def check_respond(rows, seed):
    """An answer to each event, a plan that changes only where a rule says so."""
    cases = _cases(seed)
    first, again = rows[0], list(reversed(rows[1]))
    for case, got in zip(cases, first, strict=True):
        _judge(case, got)
    for case, got in zip(cases, again, strict=True):
        _judge(case, got, IN_THE_PLAN)


def _judge(case, got, more=""):
    event, plan, patience = case
    call = _call(*case)
    if type(got) is Raised:
        why = f"{_why(event, plan, patience)} {more}"
        raise AnswerError(RAISED, call=call, error=failure(got), why=why)
    is_plan = type(got) is dict and got.keys() == {"answer", "plan"}
    answer, after = (got["answer"], got["plan"]) if is_plan else several(got, 2, call=call)
    wanted, changes = _right(event, plan, patience)
    why = f"{_why(event, plan, patience)} {more}"
    answer = word(answer, ANSWERS, call=f"{call}[0]")
    if answer != wanted:
        raise Mistake(ANSWER, call=call, got=repr(answer), want=repr(wanted), why=why)
    if not is_plan:
        said = str(after) if isinstance(after, Foreign) else repr(after)
        raise Mistake(NO_PLAN, call=call, came=said)
    for field, want in (plan | changes).items():
        value = after.get(field)
        if field != "precision":
            value = number(value, call=f"{call}[1].{field}")
            value = int(value) if value.is_integer() else value
        if value != want:
            said = why if field in changes else f"{_stays(event, field)} {more}"
            if (wanted, field) == ("roll back", "streak"):
                said = f"{GOES_BACK} {more}"
            shown = {"got": repr(value), "want": repr(want)}
            raise Mistake(FIELD, call=call, field=field, why=said, **shown)


def _call(event, plan, patience):
    fields = ", ".join(f"{field}={plan[field]!r}" for field in _FIELDS)
    more = "" if patience == 3 else f", patience={patience}"
    return f"respond({event!r}, Plan({fields}){more})"


def _right(event, plan, patience):
    """The answer, and the fields that change, from a table of the rules."""
    wider = {"fp16": "bf16", "bf16": "fp32", "fp32": None}[plan["precision"]]
    patient = plan["streak"] < patience - 1
    halved = {"micro_batch": plan["micro_batch"] // 2, "accumulate": plan["accumulate"] * 2}
    table = (
        ("ok", True, "go on", {"streak": 0}),
        ("non-finite", patient, "skip", {"streak": plan["streak"] + 1}),
        ("non-finite", wider, "roll back", {"precision": wider, "streak": 0}),
        ("out of memory", plan["micro_batch"] > 1, "retry", halved),
        ("corruption", True, "roll back", {"streak": 0}),
    )
    for name, applies, answer, changes in table:
        if name == event and applies:
            return answer, changes
    return "save and stop", {}


def _why(event, plan, patience):
    """The rule that decides, as a sentence."""
    said = {**plan, "before": plan["streak"], "streak": plan["streak"] + 1, "patience": patience}
    if event == "non-finite" and plan["streak"] + 1 < patience:
        return fill(COUNTS, **said)
    if event == "non-finite":
        return fill(AT_FP32 if plan["precision"] == "fp32" else REACHED, **said)
    if event == "out of memory":
        return fill(HALVES if plan["micro_batch"] > 1 else ONE_ROW, **said)
    return {"ok": OK, "corruption": DAMAGED}.get(event, OTHER_EVENT)


def _stays(event, field):
    """Why a field that no rule names stays."""
    if event == "out of memory" and field == "streak":
        return KEPT
    return FORMAT_STAYS if (event, field) == ("corruption", "precision") else AS_IT_CAME


_SAME_AGAIN = (
    "The checkpoint leads to the same bits and so to the same NaN. What must be different the next "
    "time?"
)

check_respond.slip(
    "a-rollback-heals",
    _SAME_AGAIN,
    swap=("replace(plan, precision=wider, streak=0)", "replace(plan, streak=0)"),
)
check_respond.slip(
    "a-rollback-heals",
    _SAME_AGAIN,
    swap=(
        'if wider:\n            return "roll back", replace(plan, precision=wider, streak=0)',
        'return "roll back", replace(plan, streak=0)',
    ),
)
check_respond.slip(
    "in-a-row-is-in-all",
    "Non-finite steps that lie far apart count together. Which event ends a streak?",
    swap=('"go on", replace(plan, streak=0)', '"go on", plan'),
)
check_respond.slip(
    "a-smaller-batch-is-the-same-run",
    "The optimizer now sees fewer rows a step, at the same learning rate. Which number keeps the "
    "global batch?",
    swap=("accumulate=twice", "accumulate=plan.accumulate"),
)
check_respond.slip(
    "every-fault-is-the-formats",
    "A bit flips in memory whatever the format is. Which field should not change here?",
    swap=(
        'if event == "corruption":\n        return "roll back", replace(plan, streak=0)',
        'if event == "corruption":\n'
        '        wider = {"fp16": "bf16"}.get(plan.precision, "fp32")\n'
        '        return "roll back", replace(plan, precision=wider, streak=0)',
    ),
)
check_respond.slip(
    "always-save-before-a-stop",
    "The damage would become the newest checkpoint. Which state of the run is known to be right?",
    swap=(
        'if event == "corruption":\n        return "roll back", replace(plan, streak=0)',
        'if event == "corruption":\n        return "save and stop", plan',
    ),
)
check_respond.slip(
    "skipped-steps-cost-nothing",
    "Each skipped step leaves a batch out, and in fp32 no wider format follows. When does the run "
    "stop?",
    swap=(
        "if plan.streak + 1 < patience:",
        'if plan.streak + 1 < patience or plan.precision == "fp32":',
    ),
)
