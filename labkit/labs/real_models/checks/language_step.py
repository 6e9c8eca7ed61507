"""Check of lab 13's step of a language model: where it ends, beside a run of labkit's own."""

import contextlib
import math

import torch

from labkit.emulation import emulate_gpu
from labkit.labs.engine import Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import (
    HeldPasses,
    Loop,
    brief,
    filled,
    first_other,
    flat,
    same_end,
)
from labkit.labs.engine.messages import fill
from labkit.labs.real_models import solutions
from labkit.training.models import SmallGPT

LAB = "13_real_models"

CASE = "{name}: {said}"
IN_FP32 = (
    "the model's outputs are {met}; under FP16 autocast they are float16. Which call must "
    "stand inside an autocast block?"
)
IN_BF16 = "the model's outputs are {met}; FP16 is asked for. Which dtype does autocast get?"
OTHER_LOSS = "step {place} returns a loss of {got}; {want} is wanted. {why}"
TIMES = "That is about {times} as much; a group has {parts} micro-batches and {count} targets."
RIGHT_WEIGHTS = "The weights are right, so only the loss that you return is wrong."
SCALED = "That is {scale:g} times as much, which is the scale."
NOT_FINITE = "after step {place} weights are inf or NaN; in a right run none is. {why}"
AN_INF = "Its scaled gradients hold an inf, and the scaler skips it."
UNMOVED = "in step {place} the weights did not move. In a right run its gradients are finite."
MOVED_ANYWAY = (
    "in a right run the scaled gradients of step {place} hold an inf, so the step is skipped; your "
    "weights moved by {moved:.2g}."
)
TOO_FAR = "in step {place} the weights moved {times:.3g} times as far as they must. {why}"
ASTRAY = "in step {place} the weights' movement differs by {away:.0%} from the right one. {why}"
UNCLIPPED = "A step without any clip ends there too."
LENGTH = "The limit {limit:g} and the learning rate {rate:.3g} allow a length of {length:.2g}."
OTHER_RATE = (
    "after step {place} the learning rate is {got}; {want} is wanted, because {taken:d} of "
    "{steps:d} steps were taken.{why}"
)
GROWN = " The scale doubled after each of them."
LOSS_IS_FINITE = (
    " Your schedule waits where the loss is NaN. Here the loss is finite, and a gradient is not."
)
READ_EARLY = " You read the scale twice before `update`. Which call lowers it after an overflow?"
OTHER_SCALE = (
    "after step {place} the scale is {got:g}; {want:g} is wanted. Is `update` called once a step?"
)
LOSS_IN_16_BITS = (
    "Each of your losses, such as {loss}, is a sum of FP16 values, so the loss was computed in 16 "
    "bits. Under autocast cross_entropy runs in float32. Where does your autocast block end?"
)
HELD = (
    "You held the forward passes of {held} sequences at once; there is memory for {most}, one "
    "micro-batch. When do you call backward()?"
)
ENDS_DIFFER = "Your steps do not end where the right ones end."

_WORDS, _LENGTH, _ROWS = 11, 6, 3
_RATE = 0.5
_NAN_LOSS = "logits that overflow in step 0"
# No micro-batch has a third of the targets, so none of them can stand for all.
_CASES = {  # targets a row that count in each micro-batch, the limit, and the scaler
    "no limit": ((5, 2, 6), 1e9, {"init_scale": 2.0**10}),
    "a limit of 0.1": ((5, 2, 6), 0.1, {"init_scale": 2.0**10}),
    "a micro-batch of padding": ((5, 0, 3), 1e9, {"init_scale": 2.0**10}),
    # A loss of 2**40 is inf in FP16; 2**10 is left for the next step.
    "an overflow in step 0": (
        (5, 2, 6), 1e9, {"init_scale": 2.0**40, "backoff_factor": 2.0**-30}
    ),
    _NAN_LOSS: ((5, 2, 6), 1e9, {"init_scale": 2.0**10}),
    "a scale that grows": ((5, 2, 6), 1e9, {"init_scale": 2.0**8, "growth_interval": 1}),
}  # fmt: skip
_STEPS = 3


def _group(seed, counted):
    """Micro-batches of one to three rows, with ``counted`` targets a row that are not -100."""
    draw = torch.Generator().manual_seed(seed)
    for place, count in enumerate(counted):
        shape = (2, 3, 1)[place], _LENGTH
        tokens, targets = torch.randint(_WORDS, (2, *shape), generator=draw)
        targets[:, count:] = -100
        yield tokens, targets


class _Scaler(torch.amp.GradScaler):
    """Notes in which order its scale is read and updated."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.calls = []

    def get_scale(self):
        self.calls.append("get_scale")
        return super().get_scale()

    def update(self, new_scale=None):
        self.calls.append("update")
        super().update(new_scale)

    def read_early(self):
        """Whether the scale was read twice before ``update``, and not after it."""
        return self.calls[-1:] == ["update"] and self.calls.count("get_scale") > 1


def run_language_step(language_step, seed):
    """Three steps of each case: losses, movements, learning rates, scales."""
    shown = {}
    with emulate_gpu():
        for place, (name, (counted, limit, settings)) in enumerate(_CASES.items()):
            model = filled(SmallGPT(_WORDS, _LENGTH, width=16, blocks=1, heads=2), 7 + seed)
            optimizer = torch.optim.SGD(model.parameters(), lr=_RATE)
            scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
            scaler = _Scaler("cpu", **settings)
            passes = HeldPasses(model)
            ends = {"losses": [], "moved": [], "rates": [], "scales": []}
            for step in range(_STEPS):
                drawn = 100 * seed + 10 * place + step
                group, before = list(_group(drawn, counted)), flat(model)
                scaler.calls.clear()
                step_of = model, group, optimizer, scheduler, scaler, limit, "cpu"
                with _overflowing(model, name == _NAN_LOSS and step == 0):
                    ends["losses"].append(_loss(attempt(language_step, *step_of)))
                # Ends are compared by the entries of a right run, and this is none of them.
                ends |= {"read early": True} if scaler.read_early() else {}
                ends["moved"].append(flat(model) - before)
                ends["rates"].append(optimizer.param_groups[0]["lr"])
                ends["scales"].append(scaler.get_scale())
            shown[name] = ends | {"met": passes.met}
            shown[name + " at once"] = passes.most
    return shown


@contextlib.contextmanager
def _overflowing(model, overflows):
    """Logits beyond the range of FP16, if asked for."""
    hook = model.head.register_forward_hook(
        lambda _, args, out: out * 2.0**20 if overflows else out
    )
    yield
    hook.remove()


def _loss(got):
    """A loss as a number, where it is a tensor of one element."""
    return got.item() if isinstance(got, torch.Tensor) and got.numel() == 1 else got


def _evidence(got, want, seed):
    waits = got[_NAN_LOSS]["rates"][0] == _RATE
    for name in _CASES:
        if not same_end(got[name], want[name]):
            said = _case_evidence(name, got[name], want[name], waits, seed)
            return fill(CASE, name=name, said=said)
    return ENDS_DIFFER


def _case_evidence(name, got, want, waits, seed):
    """What is true of the first case that ends elsewhere.

    ``waits`` says whether the schedule stands where the loss is NaN.
    """
    failed = next((loss for loss in got["losses"] if type(loss) is Raised), None)
    if failed:
        return f"{brief(failed)}."
    if got["met"] != want["met"]:
        met = " and ".join(got["met"]).replace("torch.", "") or "of no dtype"
        return fill(IN_BF16 if "bfloat16" in met else IN_FP32, met=met)
    _, limit, settings = _CASES[name]
    for place in range(_STEPS):
        moved, wanted = got["moved"][place], want["moved"][place]
        other = first_other(got["losses"][place : place + 1], want["losses"][place : place + 1])
        if other:
            _, loss, right = other
            why = _why_loss(name, loss, right, same_end(moved, wanted))
            return fill(OTHER_LOSS, place=place, got=brief(loss), want=brief(right), why=why)
        if not same_end(moved, wanted):
            rate = want["rates"][place - 1] if place else _RATE
            unclipped = LANGUAGE.end(_unclipped, seed=seed)[name]["moved"][place]
            return _why_moved(moved, wanted, place, limit, rate, unclipped)
        if got["rates"][place] != want["rates"][place]:
            return fill(
                OTHER_RATE,
                place=place,
                got=got["rates"][place],
                want=want["rates"][place],
                taken=sum(bool(step.any()) for step in want["moved"][: place + 1]),
                steps=place + 1,
                why=(GROWN if "growth_interval" in settings else "")
                + (READ_EARLY if got.get("read early") else "")
                + (LOSS_IS_FINITE if waits and not want["moved"][place].any() else ""),
            )
        if got["scales"][place] != want["scales"][place]:
            scales = {"got": got["scales"][place], "want": want["scales"][place]}
            return fill(OTHER_SCALE, place=place, **scales)
    return ENDS_DIFFER


def _why_loss(name, loss, right, weights_right):
    """What is true of a loss, and of nothing that the numbers do not say by themselves."""
    counted, _, settings = _CASES[name]
    try:
        ratio = float(loss) / right
    except (TypeError, ValueError, RuntimeError):
        return ""
    said = [RIGHT_WEIGHTS] if weights_right else []
    if same_end(ratio, settings["init_scale"]):
        said.append(fill(SCALED, scale=settings["init_scale"]))
    count = sum(rows * n for rows, n in zip((2, 3, 1), counted, strict=True))
    for factor in (len(counted), count):
        for times, text in ((factor, f"{factor} times"), (1 / factor, f"1/{factor}")):
            if same_end(ratio, times):
                said.append(fill(TIMES, times=text, parts=len(counted), count=count))
    return " ".join(said)


def _why_moved(moved, wanted, place, limit, rate, unclipped):
    """How a step went elsewhere."""
    if not wanted.any():
        if not moved.isfinite().all():
            return fill(NOT_FINITE, place=place, why=AN_INF)
        return fill(MOVED_ANYWAY, place=place, moved=moved.norm())
    if not moved.isfinite().all():
        return fill(NOT_FINITE, place=place, why="")
    if not moved.any():
        return fill(UNMOVED, place=place)
    length = rate * limit
    bites = wanted.norm() > 0.99 * length
    why = fill(LENGTH, limit=limit, rate=rate, length=length) if bites else ""
    why += f" {UNCLIPPED}" if bites and same_end(moved, unclipped) else ""
    times = (moved @ wanted / (wanted @ wanted)).item()
    if (moved - times * wanted).norm() < 0.02 * moved.norm() and times > 0:
        return fill(TOO_FAR, place=place, times=times, why=why)
    away = (moved - wanted).norm() / wanted.norm()
    return fill(ASTRAY, place=place, away=away, why=why)


def _unclipped(model, group, optimizer, scheduler, scaler, limit, device):
    return solutions.language_step(model, group, optimizer, scheduler, scaler, 1e9, device)


LANGUAGE = Loop(
    run_language_step,
    solutions.language_step,
    _evidence,
    lambda shown: [shown[name]["moved"] for name in _CASES],
)


@check(run_language_step, seeds=2, own_work=("labkit.training.train",))
def check_language_step(got, seed):
    """One step of a language model: a mean over tokens, clipped, and a schedule that waits."""
    ends = {key: got[key] for key in got if not key.endswith("at once")}
    known = check_language_step.known_wrong
    if any(ends[name].get("read early") for name in _CASES):
        known = [one for one in known if one.misconception != "scheduler-waits-for-the-scaler"]
    LANGUAGE.judge(ends, known, seed=seed)
    largest = max(got[key] for key in got if key.endswith("at once"))
    if largest > _ROWS:
        raise Mistake(HELD, held=largest, most=_ROWS)
    losses = [float(loss) for name in _CASES for loss in ends[name]["losses"]]
    # A micro-batch's share of the loss is above 2**-3, where FP16's gap is 2**-13. Seventeen finite
    # losses of float32 are all multiples of it once in 2**150.
    if all((loss * 2.0**13).is_integer() for loss in losses if math.isfinite(loss)):
        raise Mistake(LOSS_IN_16_BITS, loss=losses[0])


_SHARE = 'targets.flatten(), reduction="sum") / count'

check_language_step.slip(
    "mean-of-means",
    "You averaged the micro-batches' means. Should a token of a padded micro-batch count more than "
    "a token of a full one?",
    swap=(_SHARE, "targets.flatten()) / len(group)"),
)
check_language_step.slip(
    "examples-are-tokens",
    "You weigh each micro-batch's mean by its rows, and rows have different numbers of targets. By "
    "which number must a sum over targets be divided?",
    swap=(_SHARE, "targets.flatten()) * len(targets) / sum(len(t) for _, t in group)"),
)
check_language_step.slip(
    "padding-counts-as-tokens",
    "You divide by the number of all positions. Over which positions does cross_entropy sum?",
    swap=("(targets != -100).sum()", "targets.numel()"),
)
check_language_step.slip(
    "sums-need-no-division",
    "`backward` adds gradients up. By what must each sum be divided for the total to be a mean?",
    cut=" / count",
)
check_language_step.slip(
    "an-empty-mean-is-zero",
    "One micro-batch has no target. What is the mean of no losses, and what is that times 0?",
    swap=(_SHARE, "targets.flatten()) * (targets != -100).sum() / count"),
)
check_language_step.slip(
    "clip-before-unscale",
    "You clipped scaled gradients, so your real limit is limit / scale. Which call must come "
    "before the clip?",
    cut="scaler.unscale_(optimizer)",
)
check_language_step.slip(
    "unscale-each-micro-batch",
    "Call `unscale_` once, after the last micro-batch. To what would the next one add its scaled "
    "gradient?",
    swap=("mean += loss.item()", "mean += loss.item()\n        scaler.unscale_(optimizer)"),
)
check_language_step.slip(
    "gradients-reset-themselves",
    "The gradients of the step before are still in .grad. When are they emptied?",
    cut="optimizer.zero_grad()",
)
check_language_step.slip(
    "zero-grad-each-micro-batch",
    "Only the gradients of a group's last micro-batch are left. When must .grad be emptied?",
    swap=("for tokens, targets in group:",
          "for tokens, targets in group:\n        optimizer.zero_grad()"),
)  # fmt: skip
check_language_step.slip(
    "scheduler-waits-for-the-scaler",
    "The scaler skipped a step, and the schedule moved on. How do you see that a step was skipped?",
    swap=("if scaler.get_scale() >= before:\n        scheduler.step()", "scheduler.step()"),
)
check_language_step.slip(
    "a-changed-scale-is-a-skip",
    "The scale also changes when it grows, after a step that was taken. Which change means a skip?",
    swap=(">= before", "== before"),
)
check_language_step.slip(
    "the-scale-adjusts-itself",
    "The scaler was never told that the step has ended. Which call tells it?",
    cut="scaler.update()",
)
