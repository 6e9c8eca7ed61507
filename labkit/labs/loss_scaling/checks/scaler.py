"""Check of lab 04: a loss scaler beside torch.amp.GradScaler."""

import math
import random

import torch

from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure
from labkit.labs.loss_scaling import solutions

LAB = "04_loss_scaling"

RAISED = "{name}: the run with your scaler raised {error}."
OTHER_SCALER = (
    "{name}: after step {step} {what} is {got:exact}, with GradScaler {want:exact}. {why}"
)
LOADED = "The scaler was saved after step {step}, and another one loaded what was saved."
NOTHING_LOADED = (
    "After an overflow the other one still has the scale that it was made with: the saved scale "
    "was not loaded."
)
WENT = "It went {times:g} times as far as it should; the scale was {scale:g}."
ITS_OVERFLOW = "The weight's own gradient overflowed, so the weight stays as it is."
ITS_STEP = "The weight's own gradient was finite, so its optimizer steps."
HALVES = "A gradient overflowed in this step, so the scale halves, once."
GOOD_STEP = "This is good step {good} of {interval} in a row, so the scale {then}."


_WHAT = "the scale", "the first weight", "the second weight"
_AFTER_OVERFLOW = "saved and loaded after an overflow"
_SCRIPTS = {  # scale, interval, (first, second optimizer overflows) at each step, resumed before
    "flags 1,1,0,0,0,0,1,0,0": (65536.0, 3, [(f, f) for f in (1, 1, 0, 0, 0, 0, 1, 0, 0)], None),
    "only the second of two optimizers overflows": (
        1024.0, 3, [(0, 0), (0, 1), (0, 0), (0, 0), (0, 0), (0, 0)], None
    ),
    "only the first of two optimizers overflows": (
        1024.0, 3, [(0, 0), (1, 0), (0, 0), (0, 0), (0, 0), (0, 0)], None
    ),
    "saved and loaded after 2 good steps, interval 3": (512.0, 3, [(0, 0)] * 6, 2),
    _AFTER_OVERFLOW: (512.0, 3, [(0, 0), (1, 1), (0, 0), (0, 0)], 2),
}  # fmt: skip


def _scripts(seed):
    """The scripts above, and one of 20 steps that are drawn."""
    draw = random.Random(seed)
    drawn = [(int(draw.random() < 0.15), int(draw.random() < 0.15)) for _ in range(20)]
    return _SCRIPTS | {
        "20 random steps, saved and loaded": (1024.0, 3, drawn, draw.randrange(1, 20))
    }


def run_scaler(Scaler, seed):
    """`Scaler` drives two optimizers along six scripts: its scale and the weights at each step."""
    return {name: attempt(_drive, Scaler, *script) for name, script in _scripts(seed).items()}


def _overflow(scaler):
    weight = torch.nn.Parameter(torch.ones(()))
    scaler.scale(weight * math.inf).backward()
    scaler.step(torch.optim.SGD([weight], lr=1.0))
    scaler.update()


def _drive(make, scale, interval, flags, resume):
    weights = [torch.nn.Parameter(torch.ones(())) for _ in range(2)]
    optimizers = [torch.optim.SGD([weight], lr=2.0**-6) for weight in weights]
    scaler, rows = make(scale, interval), []
    for i, overflows in enumerate(flags):
        if i == resume:
            state = scaler.state_dict()
            _overflow(scaler)  # training that goes on must not change what was saved
            scaler = make(scale, interval)
            scaler.load_state_dict(state)
        for weight, optimizer, overflow in zip(weights, optimizers, overflows, strict=True):
            optimizer.zero_grad()
            scaler.scale(weight * (math.inf if overflow else 1.0)).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        one = scaler.scale(torch.ones(()))
        rows.append([one.item(), *(weight.item() for weight in weights)])
    return rows


@check(
    run_scaler,
    bits=True,
    own_work=(
        "torch.amp.GradScaler",
        "torch.cuda.amp.GradScaler",
        "torch.cpu.amp.GradScaler",
        "labkit.training.scaling.LossScale",
    ),
)
def check_scaler(answers, seed):
    """In step with torch.amp.GradScaler: two optimizers, one update, saved and resumed."""
    for name, script in _scripts(seed).items():
        rows = answers[name]
        if type(rows) is Raised:
            raise AnswerError(RAISED, name=name, error=failure(rows))
        right = _drive(
            lambda scale, interval: torch.amp.GradScaler(
                "cpu", init_scale=scale, growth_interval=interval
            ),
            *script,
        )
        for i, (got, want) in enumerate(zip(rows, right, strict=True)):
            for what, mine, theirs in zip(_WHAT, got, want, strict=True):
                if mine != theirs:
                    rule = _scaler_rule(what, script, i)
                    went = _weight_went(what, rows, right, i, script)
                    raise Mistake(
                        OTHER_SCALER,
                        name=name,
                        step=i + 1,
                        what=what,
                        got=mine,
                        want=theirs,
                        why=" ".join(filter(None, (rule, _loaded(script, i, answers), went))),
                    )


def _loaded(script, i, answers):
    """What was saved and loaded before a step, and whether loading does anything."""
    resume = script[3]
    if resume is None or i < resume:
        return ""
    told = fill(LOADED, step=resume)
    made, _, _, resume = _SCRIPTS[_AFTER_OVERFLOW]
    rows = answers[_AFTER_OVERFLOW]
    untouched = type(rows) is not Raised and rows[resume][0] == made
    return f"{told} {NOTHING_LOADED}" if untouched else told


def _weight_went(what, rows, right, i, script):
    """How far a weight went in the first step that is wrong."""
    place = _WHAT.index(what)
    before = right[i - 1] if i else [script[0], 1.0, 1.0]
    wanted, went = right[i][place] - before[place], rows[i][place] - before[place]
    if not place or not wanted or not went or not math.isfinite(went):
        return ""
    return fill(WENT, times=went / wanted, scale=before[0])


def _scaler_rule(what, script, i):
    """Why GradScaler does what it does in a step, as a sentence."""
    _, interval, flags, _ = script
    if what != "the scale":
        overflowed = flags[i][what == "the second weight"]
        return ITS_OVERFLOW if overflowed else ITS_STEP
    if any(flags[i]):
        return HALVES
    good = 0
    for overflows in flags[: i + 1]:
        good = 0 if any(overflows) or good == interval else good
        good += not any(overflows)
    then = "doubles" if good == interval else "stays"
    return fill(GOOD_STEP, good=good, interval=interval, then=then)


check_scaler.slip(
    "resuming-needs-the-scale-alone",
    "After loading, the scale is right and grows too late. "
    "Which other number must be saved and loaded?",
    swap=(
        'self.current, self.count = state["scale"], state["count"]',
        'self.current = state["scale"]',
    ),
)


@check_scaler.wrong(
    "saved-state-is-a-copy",
    "The dict that you returned changed when the old scaler went on. Does `state_dict` return a "
    "copy?",
)
class _(solutions.Scaler):
    def state_dict(self):
        return self.__dict__

    def load_state_dict(self, state):
        self.__dict__.update(state)


@check_scaler.wrong(
    "step-updates-the-scale",
    "With two optimizers your scale changes twice in one iteration. Which call may change it?",
)
class _(solutions.Scaler):
    def step(self, optimizer):
        super().step(optimizer)
        super().update()

    def update(self):
        pass


check_scaler.slip(
    "the-last-optimizer-decides",
    "The second optimizer's False replaced the first one's True. How must the two flags be "
    "combined?",
    swap=("|=", "="),
)
check_scaler.slip(
    "an-overflow-is-never-forgiven",
    "Every step after an overflow counts as an overflow. When must the flag become False again?",
    cut="self.found_inf = False\n",
)
check_scaler.slip(
    "all-optimizers-wait-for-one",
    "The second optimizer's gradients were finite, so it must step. Is its step called after the "
    "first one overflowed? `True or f()` does not call f.",
    swap=("|=", "= self.found_inf or"),
)
