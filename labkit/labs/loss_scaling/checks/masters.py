"""Check of lab 04: SGD on BF16 parameters with float32 master weights."""

import torch

from labkit.formats import BF16, spacing
from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure

LAB = "04_loss_scaling"

RAISED = "{name}: your class raised {error}."
OTHER_SHAPES = "{name}: after step() the parameters have another shape."
OTHER_DTYPE = "{name}: after step() the model's weight is {got}; it must stay torch.bfloat16."
OTHER_WEIGHT = (
    "{name}: after {steps} steps weight {i} is {got:.6g}; exact arithmetic gives {want:.6g}, "
    "within half a BF16 gap. {why}"
)
IDLE_MOVED = (
    "{name}: a parameter without a gradient was [1.0, 1.0] and is {idle} now; step() must not "
    "change it."
)
ONE_STEP = "It is where the last step alone would leave it: no earlier step was kept."
OTHER_WAY = "It moved in the opposite direction. Which sign does the update need?"
SO_FAR = "It went {times:.3g} times as far as it should, with lr {lr:exact}."
ONLY_ONCE = (
    "With a list of the same parameter your answer is right. A generator can be read only once: "
    "which line reads it a second time?"
)
NOWHERE = "It did not move, and in this check's other runs no weight moved either."
UNMOVED = "It did not move. Does your loop reach this parameter?"

_WIDENED = "the-model-becomes-the-master"
_FORTY = "40 random weights and gradients, lr 0.01, after them a parameter without a gradient"
_GENERATOR = "the same weight handed over in a generator, like model.parameters()"
_RUNS = {  # weights, the gradient of step i, lr, steps, what is handed over
    "a weight of 1, gradient 1, lr 2**-10": (
        [1.0], lambda i: [1.0], 2.0**-10, 300, lambda idle, weight: [weight]
    ),
    _GENERATOR: (
        [1.0], lambda i: [1.0], 2.0**-10, 300, lambda idle, weight: (p for p in [weight])
    ),
    "weights 1 and -2, gradient 1 and -1, lr 0.003, before them a parameter without a gradient": (
        [1.0, -2.0], lambda i: [1.0, -1.0], 3e-3, 300, lambda idle, weight: [idle, weight]
    ),
}  # fmt: skip


def _runs(seed):
    """The runs above, and one with weights and gradients that are drawn."""

    def drawn(i):
        return torch.randn(40, generator=torch.Generator().manual_seed(seed + i)).tolist()

    forty = drawn(0), lambda i: drawn(i + 1), 1e-2, 100, lambda idle, weight: [weight, idle]
    return _RUNS | {_FORTY: forty}


def run_masters(Masters, seed):
    """`Masters` takes the scripted steps on BF16 parameters; their values and dtypes."""
    return {name: attempt(_with_masters, Masters, *run) for name, run in _runs(seed).items()}


def _with_masters(Masters, weights, gradient, lr, steps, handed):
    weight = torch.nn.Parameter(torch.tensor(weights).bfloat16())
    idle = torch.nn.Parameter(torch.ones(2).bfloat16())  # a parameter without a gradient
    optimizer = Masters(handed(idle, weight), lr)
    for i in range(steps):
        weight.grad = torch.tensor(gradient(i)).bfloat16()
        optimizer.step()
        if weight.dtype != torch.bfloat16:
            break
    return weight.detach().clone(), idle.detach().clone()


@check(run_masters)
def check_masters(answers, seed):
    """SGD on BF16 weights that loses no update: float32 masters, rounded to BF16 at each step."""
    for name, (weights, gradient, lr, steps, _) in _runs(seed).items():
        got = answers[name]
        if type(got) is Raised:
            raise AnswerError(RAISED, name=name, error=failure(got))
        weight, idle = got
        if (len(weight), len(idle)) != (len(weights), 2):
            raise Mistake(OTHER_SHAPES, name=name)
        if weight.dtype != torch.bfloat16:
            raise Mistake(
                OTHER_DTYPE,
                name=name,
                got=str(weight.dtype),
                misconception=_WIDENED if weight.dtype == torch.float32 else None,
                search=False,
            )
        start = want = torch.tensor(weights).bfloat16().double()
        moves = [torch.tensor(gradient(i)).bfloat16().double() * lr for i in range(steps)]
        last_alone = (want - moves[-1]).bfloat16()
        want = want - torch.stack(moves).sum(dim=0)
        # Half a BF16 gap, and per step two float32 roundings of at most 2**-24 of 4.
        slack = spacing(want, BF16) / 2 + steps * 2 * 2.0**-22
        off = ~((weight.double() - want).abs() <= slack)
        if off.any():
            i = int(off.nonzero()[0])
            why = _how_far(weight.double() - start, want - start, lr)
            if name == _GENERATOR:
                why = ONLY_ONCE
            elif not _any_moved(answers, seed):
                why = NOWHERE
            elif torch.equal(weight, last_alone):
                why = ONE_STEP
            raise Mistake(
                OTHER_WEIGHT,
                name=name,
                steps=steps,
                i=i,
                got=weight[i],
                want=want[i],
                why=why,
            )
        if (idle != 1).any():
            raise Mistake(IDLE_MOVED, name=name, idle=str(idle.tolist()))


def _any_moved(answers, seed):
    """Whether a weight of any run is not where it began, or a run has no weights to show."""
    for name, (weights, *_) in _runs(seed).items():
        got = answers[name]
        if type(got) is Raised or not torch.equal(got[0], torch.tensor(weights).bfloat16()):
            return True
    return False


def _how_far(went, wanted, lr):
    """How the way of all weights compares with the right one, where one number says it."""
    if not went.any():
        return UNMOVED
    times = (went @ wanted / (wanted @ wanted)).item()
    # BF16 stores each weight within 2**-9 of itself.
    off = (went - times * wanted).norm()
    if not off <= 0.05 * abs(times) * wanted.norm() or 0.9 < times < 1.1:
        return ""
    return OTHER_WAY if times < 0 else fill(SO_FAR, times=times, lr=lr)


check_masters.slip(
    "masters-are-a-cast",
    "Each step starts from the BF16 weight, so what BF16 rounded away is lost. "
    "Which tensor keeps float32's bits from one step to the next?",
    swap=("master -=", "master = p.float() -"),
)
check_masters.slip(
    "updates-may-be-sixteen-bit",
    "lr * gradient was rounded to BF16 before it was subtracted from the master. Where must "
    "`.float()` stand?",
    swap=("p.grad.float()", "p.grad"),
)
check_masters.slip(
    "masters-train-the-model",
    "The model's BF16 weights did not change. Which line copies the masters into them?",
    cut="p.copy_(master)",
)
check_masters.slip(
    _WIDENED,
    "The model's weights are now float32, so it computes in float32. "
    "Which method writes values into a tensor without changing its dtype?",
    swap=("p.copy_(master)", "p.data = master"),
)
check_masters.slip(
    "masters-are-gradients",
    "The weights hold the sum of the updates alone. With which values must a master start?",
    swap=("p.detach().float()", "torch.zeros_like(p, dtype=torch.float32)"),
)
