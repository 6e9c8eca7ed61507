"""Check of lab 12: PPO's clipped loss with the importance weight of trainer over engine."""

from dataclasses import dataclass

import torch

from labkit.labs.engine import AnswerError, Mistake, attempt, check, tensor
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure

LAB = "12_choosing_precision"

RAISED = "{name}: your policy_loss raised {error}."
NO_SCALAR = "{name}: your loss has shape {got}; a scalar is asked for."
NO_GRADIENT = "{name}: the loss that you return has no gradient for `new`. Which line cuts it off?"
CHANGED = (
    "{name}: after your policy_loss, the caller's `{what}` has other values. Which line writes "
    "into it?"
)
OTHER_LOSS = "{name}: the loss is {got}; {want} is wanted. {why}"
OTHER_GRADIENT = (
    "{name}: the loss is right, and its gradient for new[{row}, {column}] is {got}; {want} is "
    "wanted. {why}"
)
CONSTANT = (
    "{name}: a gradient reaches `{what}`, up to {got}. `old` and `rollout` are constants. Which "
    "method of a tensor says so?"
)
ONLY_IF = "Your losses come out if {what}."
PADDING_COUNTS = "Your losses come out if padding counts as tokens. Where does `mask` enter?"
ONE_RATIO = (
    "Your losses are those of the bypass form, with one ratio of new over rollout for both. It is "
    "an estimator that RL libraries offer, and its clip band holds the difference of the engines "
    "too. The exercise asks for the decoupled form: which quotient does PPO clip there?"
)
CAPPED_RATIO = f"{ONE_RATIO} Yours is capped, too."
OUTSIDE = (
    "There the clipped product is the smaller, and it is constant. What does your clip do to a "
    "gradient?"
)
SAME_TENSOR = (
    "Here `new` and `old` are one tensor. If both sides of new - old have a gradient, they cancel."
)

_NAMES = {  # clip, cap, what is special
    "the example": (0.2, 2.0),
    "the example with new = -0.5": (0.2, 2.0),
    "4 sequences of 6 tokens": (0.2, 2.0),
    "an advantage of -3 to 3, clip = 0.1, cap = 1.5": (0.1, 1.5),
    "sequences of unlike lengths": (0.2, 2.0),
    "rollouts from the trainer's own policy": (0.2, 2.0),
    "new and old are one tensor": (0.2, 2.0),
}


def _case(name, seed):
    """new, old, rollout, advantage and mask, float32; whether new and old are one tensor."""
    one = torch.full((1, 1), -1.0)
    if name.startswith("the example"):
        new = one / 2 if name.endswith("0.5") else one
        return new, one, 1.5 * one, -2 * one, -one
    place = list(_NAMES).index(name)
    draw = torch.Generator().manual_seed(100 * seed + place)

    def normal(*shape):
        return torch.randn(shape, generator=draw)

    shape = (5, 9) if "lengths" in name else (4, 6)
    old = -3 * torch.rand(shape, generator=draw) - 0.05
    new = old if "one tensor" in name else old + 0.25 * normal(*shape)
    rollout = old if "own policy" in name else old + 0.5 * normal(*shape)
    if rollout is not old:
        rollout[0, 0], rollout[1, 1] = old[0, 0] - 2, old[1, 1] + 2
    advantage = (
        normal(*shape) if "-3 to 3" not in name else 6 * torch.rand(shape, generator=draw) - 3
    )
    lengths = torch.tensor([9, 1, 4, 2, 7]) if "lengths" in name else torch.tensor([6, 3, 5, 4])
    mask = (torch.arange(shape[1]) < lengths[:, None]).float()
    return new, old, rollout, advantage, mask


def run_off_policy(policy_loss, seed):
    """Of each case: the loss, the gradients of new, old and rollout, and what kept its values."""
    return {name: attempt(_used, policy_loss, name, seed) for name in _NAMES}


def _used(policy_loss, name, seed):
    new, old, rollout, advantage, mask = (t.clone() for t in _case(name, seed))
    one = "one tensor" in name
    given = (new, new if one else old, rollout, advantage, mask)
    clip, cap = _NAMES[name]
    new.requires_grad_()
    old = new if one else old.requires_grad_()
    rollout.requires_grad_()
    loss = policy_loss(new, old, rollout, advantage, mask, clip=clip, cap=cap)
    kept = [torch.equal(t, was) for t, was in zip(given, _case(name, seed), strict=True)]
    if isinstance(loss, torch.Tensor) and loss.requires_grad and loss.numel() == 1:
        loss.sum().backward()
    grads = [new.grad, None if old is new else old.grad, rollout.grad]
    return {"loss": loss, "grads": grads, "kept": kept}


@check(run_off_policy)
def check_off_policy(seen, seed):
    """A policy loss that corrects for the engine's own probabilities."""
    right = {name: _right(name, seed) for name in _NAMES}
    losses = {name: _read(name, seen[name]) for name in _NAMES}
    for name in _NAMES:
        _judge_inputs(name, seen[name]["kept"])
    for name, (want, terms, _) in right.items():
        if not abs(losses[name] - want) <= _room(terms):
            why, idea = _explained(losses, seed)
            said = {"name": name, "got": losses[name], "want": want}
            raise Mistake(OTHER_LOSS, misconception=idea, search=False, why=why, **said)
    for name in _NAMES:
        _judge_constants(name, seen[name]["grads"])
    for name, (_, _, want) in right.items():
        _judge_gradient(name, seen[name]["grads"][0], want)


def _read(name, used):
    """The loss of one case as a number."""
    if type(used) is Raised:
        raise AnswerError(RAISED, name=name, error=failure(used))
    loss = used["loss"]
    if type(loss) is float:
        raise Mistake(NO_GRADIENT, name=name)
    loss = tensor(loss, call=f"policy_loss with {name}")
    if loss.numel() != 1:
        raise Mistake(NO_SCALAR, name=name, got=tuple(loss.shape))
    return loss.item()


def _judge_inputs(name, kept):
    for what, same in zip(("new", "old", "rollout", "advantage", "mask"), kept, strict=True):
        if same is not True:
            raise Mistake(CHANGED, search=False, name=name, what=what)


def _judge_constants(name, grads):
    for what, grad in zip(("old", "rollout"), grads[1:], strict=True):
        if grad is not None and not (grad == 0).all():
            got = grad.abs().max().item()
            idea = "constants-need-no-detach"
            raise Mistake(CONSTANT, misconception=idea, search=False, name=name, what=what, got=got)


def _judge_gradient(name, got, want):
    if got is None:
        raise Mistake(NO_GRADIENT, name=name)
    got = tensor(got, call=f"policy_loss with {name}", shape=want.shape).double()
    off = ~((got - want).abs() <= 2.0**-18 * want.abs())
    if off.any():
        row, column = off.nonzero()[0].tolist()
        both = "one tensor" in name
        raise Mistake(
            OTHER_GRADIENT,
            misconception="constants-need-no-detach" if both else None,
            search=False,
            name=name, row=row, column=column, got=got[row, column].item(),
            want=want[row, column].item(),
            why=SAME_TENSOR if both else "" if want[row, column] else OUTSIDE,
        )  # fmt: skip


# What is right, in five parts


@dataclass(frozen=True)
class _Tokens:
    """One case in float64; ``clip`` and ``cap`` as they are used."""

    new: torch.Tensor
    old: torch.Tensor
    rollout: torch.Tensor
    advantage: torch.Tensor
    mask: torch.Tensor
    clip: float
    cap: float


_PARTS = {
    "ratio": lambda t: (t.new - t.old).exp(),
    "weight": lambda t: (t.old - t.rollout).exp().clamp(max=t.cap),
    "surrogate": lambda ratio, clipped, gain: torch.minimum(ratio * gain, clipped * gain),
    "mean": lambda terms, mask: -(terms * mask).sum() / mask.sum(),
    "settings": lambda clip, cap: (clip, cap),
}


def _terms(name, seed, **others):
    """The loss, each token's weight times surrogate, and new."""
    parts = _PARTS | others
    new, *more = (t.double() for t in _case(name, seed))
    new = new.clone().requires_grad_()
    t = _Tokens(new, *more, *parts["settings"](*_NAMES[name]))
    ratio = parts["ratio"](t)
    clipped = ratio.clamp(1 - t.clip, 1 + t.clip)
    terms = parts["weight"](t) * parts["surrogate"](ratio, clipped, t.advantage)
    return parts["mean"](terms, t.mask), terms.detach() * t.mask / t.mask.sum(), new


def _right(name, seed):
    """The loss, what each token contributes to it, and the gradient of new."""
    loss, terms, new = _terms(name, seed)
    loss.backward()
    return loss.item(), terms, new.grad


def _room(terms):
    """What float32 may lose: a few roundings of each exponential, and those of the sum."""
    return 2.0**-18 * terms.abs().sum().item()


def _explained(losses, seed):
    """The sentence and the idea of the mistake that gives all these losses, or ("", None)."""
    for what, (others, idea) in _MISTAKES.items():
        made = {name: _terms(name, seed, **others) for name in _NAMES}
        if all(
            abs(losses[name] - loss.item()) <= 4 * _room(terms)
            for name, (loss, terms, _) in made.items()
        ):
            return (what if what in _WHOLE else fill(ONLY_IF, what=what)), idea
    return "", None


def _no_weight(t):
    return torch.ones_like(t.old)


def _bypass(t):
    return (t.new - t.rollout).exp()


_MISTAKES = {
    ONE_RATIO: ({"ratio": _bypass, "weight": _no_weight}, "one-ratio-for-both"),
    CAPPED_RATIO: (
        {"ratio": lambda t: _bypass(t).clamp(max=t.cap), "weight": _no_weight},
        "one-ratio-for-both",
    ),
    "PPO's ratio is new over rollout, beside the weight": ({"ratio": _bypass}, None),
    "the importance weight is that of new over rollout": (
        {"weight": lambda t: _bypass(t).detach().clamp(max=t.cap)}, None
    ),
    "the importance weight is left out": ({"weight": _no_weight}, "ratio-one-is-on-policy"),
    "the weight is the engine's probability over the trainer's": (
        {"weight": lambda t: (t.rollout - t.old).exp().clamp(max=t.cap)}, "importance-upside-down"
    ),
    "the weight divides": (
        {"weight": lambda t: 1 / (t.old - t.rollout).exp().clamp(max=t.cap)}, None
    ),
    "the weight is part of the ratio that is clipped": (
        {"ratio": lambda t: (t.new - t.old).exp() * _PARTS["weight"](t), "weight": _no_weight}, None
    ),
    "the weight has no cap": (
        {"weight": lambda t: (t.old - t.rollout).exp()}, "importance-weights-need-no-cap"
    ),
    "the cap is on the logarithm of the weight": (
        {"weight": lambda t: (t.old - t.rollout).clamp(max=t.cap).exp()}, "cap-of-a-log"
    ),
    "the weight is kept above 1 / cap as well": (
        {"weight": lambda t: (t.old - t.rollout).exp().clamp(1 / t.cap, t.cap)}, None
    ),
    "a weight above cap becomes 0": (
        {"weight": lambda t: (w := (t.old - t.rollout).exp()) * (w <= t.cap)}, None
    ),
    "a token with a weight above cap does not count": (
        {
            "weight": lambda t: (
                (w := (t.old - t.rollout).exp())
                * (kept := w <= t.cap)
                * t.mask.sum()
                / (kept * t.mask).sum()
            )
        },
        None,
    ),
    "the sum is divided by the sum of the weights": (
        {"weight": lambda t: (w := _PARTS["weight"](t)) * t.mask.sum() / (w * t.mask).sum()}, None
    ),
    "the weight is clipped as the ratio is": (
        {"weight": lambda t: (t.old - t.rollout).exp().clamp(1 - t.clip, 1 + t.clip)}, None
    ),
    "the weight is one for the whole sequence": (
        {
            "weight": lambda t: (
                ((t.old - t.rollout) * t.mask).sum(1, keepdim=True).exp().clamp(max=t.cap)
            )
        },
        None,
    ),
    "`cap` is 2 in each call": ({"settings": lambda clip, cap: (clip, 2.0)}, None),
    "`clip` is 0.2 in each call": ({"settings": lambda clip, cap: (0.2, cap)}, None),
    "`clip` is 0.2 and `cap` is 2 in each call": ({"settings": lambda clip, cap: (0.2, 2.0)}, None),
    "`new` itself, a logarithm, stands in place of PPO's ratio, and is not clipped": (
        {"ratio": lambda t: t.new, "surrogate": lambda ratio, clipped, gain: ratio * gain}, None
    ),
    "PPO's ratio is old over new": ({"ratio": lambda t: (t.old - t.new).exp()}, None),
    "PPO's ratio is the quotient of the logarithms": ({"ratio": lambda t: t.new / t.old}, None),
    "PPO's ratio is new - old, the logarithm of the ratio": (
        {"ratio": lambda t: t.new - t.old}, None
    ),
    "PPO's ratio is not clipped": (
        {"surrogate": lambda ratio, clipped, gain: ratio * gain}, None
    ),
    "the clipped ratio is taken always, without the minimum": (
        {"surrogate": lambda ratio, clipped, gain: clipped * gain},
        "the-clipped-ratio-is-the-objective",
    ),
    "the larger of the two is taken": (
        {"surrogate": lambda ratio, clipped, gain: torch.maximum(ratio * gain, clipped * gain)},
        None,
    ),
    "the advantage comes after the minimum of the two ratios": (
        {"surrogate": lambda ratio, clipped, gain: torch.minimum(ratio, clipped) * gain},
        "the-advantage-has-one-sign",
    ),
    PADDING_COUNTS: ({"mean": lambda terms, mask: -terms.mean()}, "padding-averages-out"),
    "the sum over the mask is divided by all N x T places": (
        {"mean": lambda terms, mask: -(terms * mask).mean()}, "padding-averages-out"
    ),
    "the sum is divided by nothing": ({"mean": lambda terms, mask: -(terms * mask).sum()}, None),
    "each sequence has a mean of its own, and these are averaged": (
        {"mean": lambda terms, mask: -((terms * mask).sum(1) / mask.sum(1)).mean()},
        "mean-of-means",
    ),
    "the sum is divided by the number of sequences": (
        {"mean": lambda terms, mask: -(terms * mask).sum() / len(mask)}, None
    ),
    "the sign is the other one": (
        {"mean": lambda terms, mask: (terms * mask).sum() / mask.sum()}, "a-loss-is-a-gain"
    ),
}  # fmt: skip
_WHOLE = ONE_RATIO, CAPPED_RATIO, PADDING_COUNTS

check_off_policy.slip(
    "ratio-one-is-on-policy",
    "While new equals old your ratio is 1. Who drew the tokens, and with which probabilities?",
    swap=("(weight * surrogate * mask)", "(surrogate * mask)"),
)
check_off_policy.slip(
    "importance-upside-down",
    "An importance weight divides the probability that you want by the one that drew. Which "
    "policy drew the tokens?",
    swap=("(old - rollout)", "(rollout - old)"),
)
check_off_policy.slip(
    "importance-weights-need-no-cap",
    "One token with a weight of e^2 outweighs the others. Which argument bounds it?",
    swap=("(old - rollout).exp().clamp(max=cap)", "(old - rollout).exp()"),
)
check_off_policy.slip(
    "cap-of-a-log",
    "A log weight of 2 is a weight of 7.4. Which of the two does `cap` bound?",
    swap=("(old - rollout).exp().clamp(max=cap)", "(old - rollout).clamp(max=cap).exp()"),
)
check_off_policy.slip(
    "one-ratio-for-both",
    "The rollout's engine belongs to the weight alone.",
    swap=(
        "ratio = (new - old).exp()",
        "ratio = (new - rollout).exp()\n    old = rollout",
    ),
)
check_off_policy.slip(
    "constants-need-no-detach",
    "Whether a tensor needs a gradient is decided by the caller, unless you say otherwise.",
    cut="old, rollout = old.detach(), rollout.detach()",
)
check_off_policy.slip(
    "the-clipped-ratio-is-the-objective",
    "Where the ratio has left the band in the wrong direction, the clipped one has no gradient to "
    "bring it back. Which of the two products does PPO take?",
    swap=("torch.minimum(ratio * advantage, clipped * advantage)", "clipped * advantage"),
)
check_off_policy.slip(
    "the-advantage-has-one-sign",
    "With a negative advantage the smaller ratio gives the larger product. Of what do you take the "
    "minimum?",
    swap=(
        "torch.minimum(ratio * advantage, clipped * advantage)",
        "torch.minimum(ratio, clipped) * advantage",
    ),
)
check_off_policy.slip(
    "padding-averages-out",
    "Padding is no token. By which number do you divide?",
    swap=("(weight * surrogate * mask).sum() / mask.sum()", "(weight * surrogate * mask).mean()"),
)
check_off_policy.slip(
    "mean-of-means",
    "A token of a short sequence then counts more than one of a long sequence. What is the weight "
    "of each token in the mean that is asked for?",
    swap=(
        "(weight * surrogate * mask).sum() / mask.sum()",
        "((weight * surrogate * mask).sum(1) / mask.sum(1)).mean()",
    ),
)
check_off_policy.slip(
    "a-loss-is-a-gain",
    "An optimizer makes the loss smaller, and the surrogate should grow. What is missing?",
    swap=("return -(", "return ("),
)
