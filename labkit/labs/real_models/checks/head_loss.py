"""Check of lab 13's capped head with a z-loss, beside the same in float64."""

import math

import torch
import torch.nn.functional as F

from labkit.emulation import emulate_gpu
from labkit.formats.dtypes import name_of
from labkit.labs.engine import AnswerError, Mistake, attempt, check, number, tensor
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure

LAB = "13_real_models"

RAISED = "{call} raised {error}."
OFF = "{call} is {got}; {want} is wanted: a cross-entropy of {entropy} and z times {square}. {why}"
OTHER_GRADIENT = "{call} is right, but the gradient of the logits is {off:.0%} off in norm. {why}"
BAD_GRADIENT = "{call} is right, but {count:d} of {all:d} gradients of the logits are inf or NaN."
NO_GRADIENT = "{call} sends no gradient to the logits. Which line of yours cuts the graph?"
COMES_OUT = "Yours comes out if {how}."
DETACHED = "It is what the cross-entropy alone sends."
EXP_OVERFLOWS = "A capped logit is {top} here, and exp({top}) is above the largest float32 value."
LOG_OF_ZERO = (
    "The probability of a target is exp({low}) here, which is 0 in float32. Of what do you take "
    "the log?"
)

_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_LOGITS = {  # size of the logits, and what is added to even and to odd classes
    "large logits": (20.0, 0.0, 0.0),
    "small logits": (2.0, 0.0, 0.0),
    "logits around 25": (2.0, 25.0, 25.0),
    "logits around 200": (2.0, 200.0, 200.0),
    "logits around 200 and -200": (2.0, 200.0, -200.0),
}
_SETTINGS = ({"cap": 30.0, "z": 0.1}, {"cap": 100.0, "z": 0.1}, {})
# There 1 - tanh**2 is 6e-6, a difference of float32 values.
_SLOPE_IS_LOST = ("logits around 200", "logits around 200 and -200")
_LOG_TINY, _LOG_LARGEST = math.log(2.0**-150), math.log(torch.finfo(torch.float32).max)


def _cases(seed):
    """(call, dtype, name, logits, targets, settings) of each case."""
    for place, name in enumerate(_LOGITS):
        size, *shifts = _LOGITS[name]
        for dtype in _DTYPES:
            draw = torch.Generator().manual_seed(8 * seed + place)
            shift = torch.tensor(shifts).repeat(25)
            logits = (size * torch.randn(6, 50, generator=draw) + shift).to(dtype)
            targets = torch.randint(50, (6,), generator=draw)
            targets[0] = 1  # a target whose logit is about -200 in the last case
            targets[2] = targets[5] = -100
            for settings in _SETTINGS:
                more = "".join(f", {key}={value:g}" for key, value in settings.items())
                call = f"head_loss({name}, targets{more}) in {name_of(dtype)}"
                yield call, dtype, name, logits, targets, settings


def run_head_loss(head_loss, seed):
    """Each case's loss, and the gradient of its logits or None where its slope is lost."""
    shown = {}
    with emulate_gpu():
        for call, dtype, name, logits, targets, settings in _cases(seed):
            narrow, back = dtype is not torch.float32, name not in _SLOPE_IS_LOST
            with torch.autocast("cpu", dtype=dtype if narrow else None, enabled=narrow):
                shown[call] = attempt(_passed, head_loss, logits, targets, settings, back)
    return shown


def _passed(head_loss, logits, targets, settings, back):
    logits = logits.clone().requires_grad_()
    loss = head_loss(logits, targets, **settings)
    if back and isinstance(loss, torch.Tensor) and loss.requires_grad and loss.numel() == 1:
        loss.backward()
    return loss, logits.grad


@check(run_head_loss)
def check_head_loss(shown, seed):
    """A capped head in float32: cross-entropy and z-loss over the rows with a target."""
    for call, dtype, name, logits, targets, settings in _cases(seed):
        if type(shown[call]) is Raised:
            raise AnswerError(RAISED, call=call, error=failure(shown[call]))
        loss, gradient = shown[call]
        got = number(loss, call=call)
        cap, z = settings.get("cap", 30.0), settings.get("z", 1e-4)
        logits = logits.double().requires_grad_()
        others = _others(logits, targets, cap, z, dtype)
        want, entropy, square = _parts(logits, targets, cap, z)
        # cap, tanh, log Z and the mean of it: some ten roundings to 2**-24.
        if not abs(got - want.item()) <= 1e-5 * want.item():
            why, idea = _explained(got, others)
            if not math.isfinite(got):
                why, idea = _not_finite(logits, targets, cap)
            raise Mistake(
                OFF,
                misconception=idea,
                search=idea is None,
                call=call,
                got=got,
                want=want.item(),
                entropy=entropy.item(),
                square=square.item(),
                why=why,
            )
        if name in _SLOPE_IS_LOST:
            continue
        if gradient is None:
            raise Mistake(NO_GRADIENT, call=call)
        gradient = tensor(gradient, call=f"the logits' gradient of {call}").double()
        _judge_gradient(gradient, logits, want, entropy, dtype, call)


def _parts(logits, targets, cap, z):
    """The loss, its cross-entropy, and the mean of log Z squared."""
    return _of_capped(cap * torch.tanh(logits / cap), targets, z)


def _of_capped(capped, targets, z):
    entropy = F.cross_entropy(capped, targets)
    square = capped.logsumexp(dim=-1)[targets != -100].square().mean()
    return entropy + z * square, entropy, square


def _loss(capped, targets, z):
    return _of_capped(capped, targets, z)[0]


def _judge_gradient(gradient, logits, want, entropy, dtype, call):
    right, alone = (
        torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in (want, entropy)
    )
    # A gradient is rounded once to the logits' dtype, and 1 - tanh**2 in float32 is a difference.
    room = max(2 * torch.finfo(dtype).eps, 1e-4) * right.norm()
    if (off := (gradient - right).norm()) <= room:
        return
    if bad := int((~gradient.isfinite()).sum()):
        raise Mistake(BAD_GRADIENT, call=call, count=bad, all=gradient.numel())
    why = DETACHED if (gradient - alone).norm() <= room else ""
    raise Mistake(OTHER_GRADIENT, call=call, off=(off / right.norm()).item(), why=why)


def _explained(got, others):
    """How the value comes out by one mistake, and the mistake's idea."""
    fitting = [key for key, other in others.items() if abs(got - other) <= 1e-5 * abs(other)]
    if len({how for how, _ in fitting}) != 1:
        return "", None
    # Where it is by chance the same with and without one of torch's roundings, no idea is named.
    (how, idea), *more = fitting
    return fill(COMES_OUT, how=how), None if more else idea


@torch.no_grad()
def _not_finite(logits, targets, cap):
    """Which number of these logits float32 does not hold, and the idea of one who meets it."""
    kept, capped = targets != -100, cap * torch.tanh(logits / cap)
    low = -F.cross_entropy(capped, targets, reduction="none")[kept].max().item()
    if low < _LOG_TINY:
        return fill(LOG_OF_ZERO, low=low), None
    if (top := capped.max().item()) > _LOG_LARGEST:
        return fill(EXP_OVERFLOWS, top=top), "exp-never-overflows"
    return "", None


@torch.no_grad()
def _others(logits, targets, cap, z, dtype):
    """What each mistake gives, by how it is said and its idea."""
    kept = targets != -100
    capped = cap * torch.tanh(logits / cap)
    log_z, raw = capped.logsumexp(dim=-1), logits.logsumexp(dim=-1)
    entropy, square = F.cross_entropy(capped, targets), log_z[kept].square().mean()
    cut = logits.clamp(-cap, cap)
    other_caps = {
        "the logits are not divided by the cap": cap * torch.tanh(logits),
        "tanh is not multiplied by the cap": torch.tanh(logits / cap),
        "the cap is 30": 30 * torch.tanh(logits / 30),
    }
    others = {(how, None): _loss(other, targets, z) for how, other in other_caps.items()} | {
        ("the z-loss counts the rows without a target", "padding-averages-out"): (
            entropy + z * log_z.square().mean()
        ),
        ("the mean of log Z is squared", "square-of-the-mean"): (
            entropy + z * log_z[kept].mean() ** 2
        ),
        ("the z-loss takes the logits before the cap", "z-loss-sees-raw-logits"): (
            entropy + z * raw[kept].square().mean()
        ),
        ("the logits are clamped to the cap", "clamping-is-capping"): (
            F.cross_entropy(cut, targets) + z * cut.logsumexp(dim=-1)[kept].square().mean()
        ),
        ("no logit is capped", None): (
            F.cross_entropy(logits, targets) + z * raw[kept].square().mean()
        ),
        ("the cross-entropy takes the logits before the cap", None): (
            F.cross_entropy(logits, targets) + z * square
        ),
        ("the z-loss is left out", None): entropy,
        ("the z-loss is not multiplied by z", None): entropy + square,
        ("Z is squared, and not log Z", None): entropy + z * log_z[kept].exp().square().mean(),
        ("the mean of log Z is not squared", None): entropy + z * log_z[kept].mean(),
        ("both terms are divided by all rows", None): (
            (entropy + z * square) * kept.double().mean()
        ),
        ("the cross-entropy is divided by all rows", None): (
            entropy * kept.double().mean() + z * square
        ),
    }
    if dtype is not torch.float32:
        # torch rounds the quotient, the tanh and the capped value each once.
        tanh = torch.tanh(logits.to(dtype) / cap)
        low = cap * tanh
        others |= {
            (f"tanh and the cap are computed in {name_of(dtype)}", None): _loss(
                low.double(), targets, z
            ),
            (f"tanh is computed in {name_of(dtype)}", None): _loss(cap * tanh.double(), targets, z),
        }
        low_z = low.double().logsumexp(dim=-1)[kept].square().mean()
        how = f"tanh and the cap are computed in {name_of(dtype)}", "unlisted-ops-run-in-fp32"
        # Of 16-bit logits, CUDA's cross_entropy rounds the log-softmax to 16 bits too.
        log_p = low.float().log_softmax(dim=-1).to(dtype).double()
        others[how] = F.nll_loss(log_p, targets) + z * low_z
    return {how: other.item() for how, other in others.items()}


_CAPPED = "cap * torch.tanh(logits.float() / cap)"
_MEAN = "log_z.square().mean()"

check_head_loss.slip(
    "unlisted-ops-run-in-fp32",
    "`tanh` is on no list of autocast, so it keeps the dtype that it gets. What must come before "
    "the division?",
    swap=("logits.float() / cap", "logits / cap"),
)
check_head_loss.slip(
    "clamping-is-capping",
    "A clamp leaves all that is below the cap as it is, and has slope 0 above. Which function "
    "bends towards the cap?",
    swap=(_CAPPED, "logits.float().clamp(-cap, cap)"),
)
check_head_loss.slip(
    "padding-averages-out",
    "`cross_entropy` leaves out targets of -100 by itself. Who leaves these rows out of the mean "
    "of log Z?",
    cut="[targets != -100]",
)
check_head_loss.slip(
    "square-of-the-mean",
    "The square of a mean is smaller than the mean of the squares. Which comes first?",
    swap=(_MEAN, "log_z.mean() ** 2"),
)
check_head_loss.slip(
    "z-loss-sees-raw-logits",
    "The softmax divides by the Z of the capped logits. Of which tensor do you take log Z?",
    swap=("capped.logsumexp", "logits.float().logsumexp"),
)
check_head_loss.slip(
    "exp-never-overflows",
    "Which function computes log Z without exp of so large a number?",
    swap=("capped.logsumexp(dim=-1)", "capped.exp().sum(dim=-1).log()"),
)
