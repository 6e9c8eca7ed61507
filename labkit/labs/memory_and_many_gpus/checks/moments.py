"""Check of lab 07: AdamW whose moments are BF16, rounded stochastically."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from labkit.formats import BF16, quantize
from labkit.labs.engine import AnswerError, Mistake, attempt, check, tensor
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import seeded
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure

LAB = "07_memory_and_many_gpus"

RAISED = "{name}: your adamw_step raised {error}."
KEPT = (
    "{name}: {what} still holds what it held before the call. An assignment to a name makes "
    "another tensor; which methods write into the caller's?"
)
CHANGED = "{name}: your adamw_step changes grad, which belongs to the caller."
OTHER_P = "{name}: p[{at:d}] becomes {got}; {want} is wanted. grad is {grad} there. {why}"
ONLY_IF = "All your weights come out if {what}."
NO_NEIGHBOUR = (
    "{name}: {what}[{at:d}] becomes {got}. Before rounding it is {exact}, which lies between the "
    "BF16 values {below} and {above}. {why}"
)
CORRECTED = "Your values are those after the bias correction, which belongs to the update alone."
SHARE = (
    "{name}: {what} is {exact} before rounding, {share:.0%} of the way from {below} up to {above}. "
    "So it should go up for {share:.0%} of the weights, and it goes up for {got:.0%}. {why}"
)
NEAREST = "Round to nearest always takes the nearer one."
ALL_ALIKE = "All weights go the same way: does each have a random number of its own?"
SAME_DRAWS = (
    "{name}: two calls with one generator, one after the other, round the same weights up. What "
    "does your code do to the generator?"
)
NOT_REPEATED = (
    "{name}: two runs whose generators have the same seed give different moments. Where do your "
    "random numbers come from?"
)

_EXAMPLE, _FIRST, _TENTH = "the example", "the first step of 64 weights", "a tenth step"
_EQUAL, _AGAIN = "4,096 equal weights", "4,096 equal weights again"
_DEFAULT = {"lr": 1e-3, "b1": 0.9, "b2": 0.999, "eps": 1e-8, "wd": 0.01}
_OTHER = {"lr": 0.05, "b1": 0.8, "b2": 0.97, "eps": 0.01, "wd": 0.2}
_SETTINGS = {  # t, and what is passed by name
    _EXAMPLE: (1, {}),
    _FIRST: (1, _OTHER),
    _TENTH: (10, _OTHER),
    _EQUAL: (5, {}),
    _AGAIN: (5, {}),
}
_MOMENTS = "m", "v"


def _case(name, seed):
    """p, grad, m and v before a step."""
    if name == _EXAMPLE:
        zero = torch.zeros(1, dtype=torch.bfloat16)
        return torch.ones(1), torch.full((1,), 0.5), zero, zero.clone()
    if name in (_EQUAL, _AGAIN):
        # m goes up by 0.2 to 0.35 of its gap, and v by about 0.4.
        grad = 2 + 0.1 * (0.2 + 0.05 * (seed % 4)) * 2**-6 / 0.01
        values = 1.0, grad, 2.0, 1.0
        p, grad, m, v = (torch.full((4096,), x) for x in values)
        return p, grad, m.bfloat16(), v.bfloat16()
    draw = 7000 + 10 * seed
    p, grad, m, v = (seeded(draw + place, 64) for place in range(4))
    grad[0] = 0
    if name == _FIRST:
        m, v = torch.zeros(64), torch.zeros(64)
    return p, grad, m.bfloat16(), v.square().bfloat16()


def run_moments(adamw_step, seed):
    """What p, grad, m and v hold after each call."""
    draws = torch.Generator().manual_seed(seed)
    shown = {name: _stepped(adamw_step, name, seed, draws) for name in _SETTINGS}
    draws = torch.Generator().manual_seed(seed)
    shown["repeated"] = [_stepped(adamw_step, name, seed, draws) for name in _SETTINGS][-1]
    return shown


def _stepped(adamw_step, name, seed, generator):
    p, grad, m, v = _case(name, seed)
    t, passed = _SETTINGS[name]
    failed = attempt(adamw_step, p, grad, m, v, t, generator, **passed)
    return failed if type(failed) is Raised else {"p": p, "grad": grad, "m": m, "v": v}


@check(run_moments, own_work=("torch.optim.AdamW", "torch.optim.Adam"))
def check_moments(seen, seed):
    """AdamW that keeps its moments in BF16 without losing small changes."""
    for name in _SETTINGS:
        _judge_writes(name, seen[name], seed)
    for name in _SETTINGS:
        _judge_weights(name, seen, seed)
    for name in _SETTINGS:
        for what in _MOMENTS:
            _judge_neighbours(name, what, seen[name][what], seed)
    for name in (_EQUAL, _AGAIN):
        for what in _MOMENTS:
            _judge_share(name, what, seen, seed)
    if all(torch.equal(seen[_AGAIN][what], seen[_EQUAL][what]) for what in _MOMENTS):
        idea = "reseeding-keeps-rounding-random"
        raise Mistake(SAME_DRAWS, misconception=idea, search=False, name=_AGAIN)
    _judge_writes(_AGAIN, seen["repeated"], seed)
    for what in ("p", *_MOMENTS):
        if not torch.equal(seen["repeated"][what], seen[_AGAIN][what]):
            raise Mistake(NOT_REPEATED, search=False, name=_AGAIN)


def _judge_writes(name, after, seed):
    """The caller's p, m and v hold something new, of their dtype, and grad does not."""
    if type(after) is Raised:
        raise AnswerError(RAISED, name=name, error=failure(after))
    p, grad, m, v = _case(name, seed)
    before = {"p": p, "m": m, "v": v}
    if not torch.equal(tensor(after["grad"], call="grad", shape=grad.shape), grad):
        raise Mistake(CHANGED, search=False, name=name)
    for what, was in before.items():
        now = tensor(after[what], call=what, shape=was.shape, dtype=was.dtype)
        if name in (_EXAMPLE, _FIRST) and torch.equal(now, was):
            raise Mistake(KEPT, search=False, name=name, what=what)


# What is right, in parts


@dataclass(frozen=True)
class _Step:
    """One step in float64: what stands before it, the settings, and what m and v become."""

    p: Tensor
    grad: Tensor
    m: Tensor
    v: Tensor
    t: int
    lr: float
    b1: float
    b2: float
    eps: float
    wd: float

    def moments(self, grad):
        b1, b2 = self.b1, self.b2
        return b1 * self.m + (1 - b1) * grad, b2 * self.v + (1 - b2) * grad**2

    def corrected(self, m, v):
        return m / (1 - self.b1**self.t), v / (1 - self.b2**self.t)

    def moved(self, m, v):
        """p after decay and an update by these two."""
        return self.p * (1 - self.lr * self.wd) - self.lr * m / (v.sqrt() + self.eps)

    def right(self):
        return self.moved(*self.corrected(*self.moments(self.grad)))


def _step(name, seed, **others):
    t, passed = _SETTINGS[name]
    values = (x.double() for x in _case(name, seed))
    return _Step(*values, **({"t": t} | _DEFAULT | passed | others))


def _judge_weights(name, seen, seed):
    step, got = _step(name, seed), seen[name]["p"].double()
    want = step.right()
    off = ~((got - want).abs() <= _room(step, want))
    if off.any():
        at = int(off.nonzero()[0])
        why, idea = _explained(seen, seed)
        said = {"got": got[at].item(), "want": want[at].item(), "grad": step.grad[at].item()}
        raise Mistake(
            OTHER_P, misconception=idea, search=idea is None, name=name, at=at, why=why, **said
        )


def _room(step, want):
    """What float32 may lose: two roundings of p, and some of the update."""
    return 2.0**-22 * want.abs() + 2.0**-19 * (want - step.p).abs()


def _explained(seen, seed):
    """The sentence and the idea of the mistake that gives all these weights, or ("", None)."""
    for what, (other, idea) in _MISTAKES.items():
        fits = True
        for name in _SETTINGS:
            step = _step(name, seed)
            after = {key: seen[name][key].double() for key in ("p", "m", "v")}
            made = other(step, after).nan_to_num(1e30)
            near = (after["p"].nan_to_num(1e30) - made).abs() <= 4 * _room(step, made)
            fits = fits and bool(near.all())
        if fits:
            return fill(ONLY_IF, what=what), idea
    return "", None


def _decay_in_gradient(step, after):
    grad = step.grad + step.wd * step.p
    return replace(step, wd=0.0).moved(*step.corrected(*step.moments(grad)))


_MISTAKES = {
    "the update reads m and v after they were rounded": (
        lambda s, after: s.moved(*s.corrected(after["m"], after["v"])), "rounded-moments-will-do"
    ),
    "wd * p is added to the gradient, as Adam with L2 does": (
        _decay_in_gradient, "decay-is-part-of-the-gradient"
    ),
    "neither moment is corrected for its start at 0": (
        lambda s, after: s.moved(*s.moments(s.grad)), "moments-start-at-their-mean"
    ),
    "m is not corrected for its start at 0": (
        lambda s, after: s.moved(s.moments(s.grad)[0], s.corrected(*s.moments(s.grad))[1]), None
    ),
    "v is not corrected for its start at 0": (
        lambda s, after: s.moved(s.corrected(*s.moments(s.grad))[0], s.moments(s.grad)[1]), None
    ),
    "nothing decays": (lambda s, after: replace(s, wd=0.0).right(), None),
    "the weights decay by wd, and not by lr * wd": (
        lambda s, after: replace(s, wd=s.wd / s.lr).right(), None
    ),
    "p decays after the update": (
        lambda s, after: replace(s, wd=0.0).right() * (1 - s.lr * s.wd), None
    ),
    "eps stands under the root": (
        lambda s, after: replace(s, eps=0.0).moved(
            s.corrected(*s.moments(s.grad))[0], s.corrected(*s.moments(s.grad))[1] + s.eps
        ),
        None,
    ),
    "eps is added before v is corrected": (
        lambda s, after: replace(s, eps=s.eps / (1 - s.b2**s.t) ** 0.5).right(), None
    ),
    "the update divides by v, and not by its root": (
        lambda s, after: s.moved(
            s.corrected(*s.moments(s.grad))[0], s.corrected(*s.moments(s.grad))[1] ** 2
        ),
        "adam-divides-by-v",
    ),
    "m and v are those before the step": (
        lambda s, after: s.moved(*s.corrected(s.m, s.v)), None
    ),
    "the settings are always the default ones": (
        lambda s, after: replace(s, **_DEFAULT).right(), None
    ),
    "t counts from 0": (lambda s, after: replace(s, t=s.t + 1).right(), None),
    "the gradient is rounded to BF16 first": (
        lambda s, after: s.moved(*s.corrected(*s.moments(s.grad.bfloat16().double()))), None
    ),
    "p moves with the gradient": (
        lambda s, after: 2 * s.p * (1 - s.lr * s.wd) - s.right(), None
    ),
}  # fmt: skip


def _neighbours(exact):
    """The BF16 values below and above; the same one twice where float32 may hit it."""
    low = quantize(exact * (1 - 2.0**-21 * exact.sign()), BF16, rounding="down")
    high = quantize(exact * (1 + 2.0**-21 * exact.sign()), BF16, rounding="up")
    return low, high


def _exact(name, what, seed):
    step = _step(name, seed)
    return step.moments(step.grad)[_MOMENTS.index(what)]


def _judge_neighbours(name, what, got, seed):
    exact, got = _exact(name, what, seed), got.double()
    below, above = _neighbours(exact)
    off = ~((got >= below) & (got <= above))
    if off.any():
        step, at = _step(name, seed), int(off.nonzero()[0])
        corrected = step.corrected(exact, exact)[_MOMENTS.index(what)]
        low, high = _neighbours(corrected)
        why = CORRECTED if ((got >= low) & (got <= high)).all() else ""
        shown = {"got": got, "exact": exact, "below": below, "above": above}
        shown = {key: value[at].item() for key, value in shown.items()}
        raise Mistake(NO_NEIGHBOUR, name=name, what=what, at=at, why=why, **shown)


def _judge_share(name, what, seen, seed):
    """It goes up as often as its place between the neighbours says."""
    exact = _exact(name, what, seed)[0]
    below, above = (x[0] for x in _neighbours(exact[None]))
    share = ((exact - below) / (above - below)).item()
    went = (seen[name][what].double() == above).double().mean().item()
    # Six standard deviations of a mean of 4096.
    if abs(went - share) <= 6 * (share * (1 - share) / 4096) ** 0.5:
        return
    others = _exact(_TENTH, what, seed).bfloat16()
    nearest = went == round(share) and torch.equal(seen[_TENTH][what], others)
    raise Mistake(
        SHARE,
        misconception="nearest-is-fair" if nearest else None,
        search=went not in (0, 1),
        name=name, what=what, share=share, got=went, exact=exact.item(), below=below.item(),
        above=above.item(), why=NEAREST if nearest else ALL_ALIKE if went in (0, 1) else "",
    )  # fmt: skip


@check_moments.wrong(
    "fair-means-half",
    "A coin ignores how near each neighbour is. What should the probability depend on?",
)
def adamw_step(p, grad, m, v, t, generator, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, wd=0.01):
    """A coin decides between the two neighbours."""
    m32 = b1 * m.float() + (1 - b1) * grad
    v32 = b2 * v.float() + (1 - b2) * grad * grad
    p.mul_(1 - lr * wd)
    p.sub_(lr * (m32 / (1 - b1**t)) / ((v32 / (1 - b2**t)).sqrt() + eps))
    for old, new in ((m, m32), (v, v32)):
        down, up = (quantize(new, BF16, rounding=how) for how in ("down", "up"))
        coin = torch.rand(new.shape, generator=generator) < 0.5
        old.copy_(torch.where(coin, up, down))


_STORED = 'quantize(new, BF16, rounding="stochastic", generator=generator)'

check_moments.slip(
    "nearest-is-fair",
    "A change of less than half a gap is then lost in each step. Which rounding keeps it on "
    "average?",
    swap=(_STORED, "new"),
)
check_moments.slip(
    "reseeding-keeps-rounding-random",
    "A generator that is seeded in each step rounds the same weights up each time.",
    swap=("    for old, new in", "    generator.manual_seed(0)\n    for old, new in"),
)
check_moments.slip(
    "rounded-moments-will-do",
    "The moments that the update reads have lost bits. In which dtype are those that it needs?",
    swap=(
        "    p.mul_(1 - lr * wd)\n",
        '    m32, v32 = (quantize(x, BF16, rounding="stochastic", generator=generator) '
        "for x in (m32, v32))\n    p.mul_(1 - lr * wd)\n",
    ),
)
check_moments.slip(
    "adam-divides-by-v",
    "v has the unit of a squared gradient. What must be taken of it before m is divided?",
    swap=("(v32 / (1 - b2**t)).sqrt()", "v32 / (1 - b2**t)"),
)
check_moments.slip(
    "decay-is-part-of-the-gradient",
    "AdamW's decay is decoupled: it never passes through m and v. Where is it applied?",
    swap=(
        "    m32 = b1 * m.float() + (1 - b1) * grad\n",
        "    grad = grad + wd * p\n    wd = 0.0\n    m32 = b1 * m.float() + (1 - b1) * grad\n",
    ),
)
check_moments.slip(
    "moments-start-at-their-mean",
    "After one step m is a tenth of the gradient. By what do you divide it?",
    swap=("(m32 / (1 - b1**t)) / ((v32 / (1 - b2**t)).sqrt() + eps)", "m32 / (v32.sqrt() + eps)"),
)
