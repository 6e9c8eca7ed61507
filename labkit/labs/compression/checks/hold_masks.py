"""Check of lab 10: magnitude pruning of all linear layers together, held through a training run."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import NEAR, filled, labels, same_end
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure

LAB = "10_compression"

RAISED = "{name}: your hold_masks raised {error}."
OTHER_PARTS = (
    "{name}: after your call, the model's state_dict has the keys {got}; before, it had {want}. "
    "{why}"
)
PRUNE_KEEPS_TWO = (
    "torch.nn.utils.prune keeps the old weight and a mask beside it until prune.remove is called."
)
NOT_LINEAR = (
    "{name}: after your call, {count:d} values of `{what}` are not what they were. Only the "
    "weights of nn.Linear are pruned."
)
KEPT_CHANGED = (
    "{name}: after your call, {what}[{row}, {column}] is {got} where it was {want}. A weight that "
    "is kept stays as it is."
)
OTHER_COUNT = (
    "{name}: {got:d} of {all:d} linear weights are 0 after your call; {want:d} are wanted. {why}"
)
TIES = (
    "{ties:d} weights have the magnitude {size}, and a comparison with it prunes all of them or "
    "none. topk picks a number of places, and ties do not matter to it."
)
CUT_OFF = "{share} * {all:d} = {exact}, and the nearest integer is wanted."
OTHER_CHOICE = (
    "{name}: you pruned a weight of {gone} in `{where}` and kept one of {kept} in `{other}`. "
    "Wanted are the smallest magnitudes of all linear weights together. {why}"
)
BY_LAYER = "Each of your layers loses the same share: {shares} zeros."
SIGNED = "Every weight that you pruned is below every one that you kept, with its sign."
LARGEST = "Every weight that you pruned has a larger magnitude than every one that you kept."
RETURNED = (
    "{name}: {count:d} of {all:d} pruned weights are not 0 after step {step:d}, and {last:d} after "
    "step {steps:d}. {why}"
)
ONCE = "They take the values that training gives them if nothing holds them."
BEFORE = "They have the values that one step gives to a 0: each step begins with zeros."
NO_GRADIENT = (
    "They take the values that the optimizer gives them where their gradient is 0: it goes on with "
    "what it remembers of earlier gradients, and of earlier weights."
)
AFTER_FORWARD = "Your zeros return in the next forward pass. They are wanted after each step."
OTHER_PLACES = (
    "There are {zeros:d} zeros, as wanted, at other places than after your call. Do you choose "
    "them anew after each step?"
)
OTHER_LAYERS = (
    "All pruned weights of {held} stay 0, and those of {free} do not. Does a hook with its own "
    "mask reach each layer?"
)
REPLACED = (
    "{name}: after the steps, `{what}` of the model is another Parameter than the optimizer's. The "
    "optimizer trains the old one, and the model does not see it."
)
OTHER_TRAINING = (
    "{name}: after step {step:d} the kept weights have moved by {moved}, and {wanted} is wanted; "
    "yours are {off} away. {why}"
)
STAND_STILL = "A kept weight trains on as before. Which line of yours stops it?"
FORGOT = (
    "They move as if the optimizer had no steps behind it. What it remembers of the kept weights "
    "must stay."
)
NO_HANDLE = (
    "{name}: what your hold_masks returns has no method `remove`. What does "
    "`optimizer.register_step_post_hook` return?"
)
STILL_HELD = (
    "{name}: after `remove()` of what you returned, one more step leaves all pruned weights of "
    "`{what}` at 0. Which of your hooks still runs?"
)

_STEPS = 4


@dataclass(frozen=True, kw_only=True)
class _Case:
    """A share, an optimizer, the steps behind it, and what is special about the run."""

    share: float
    optimizer: type = torch.optim.AdamW
    settings: dict = field(default_factory=lambda: {"lr": 0.02})
    behind: int = 3
    grid: bool = False
    skips: bool = False

    @property
    def frees(self):
        """Whether the handle is removed: where most weights are 0, all gradients may be."""
        return 0 < self.share < 0.8


_MOMENTUM = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}
_CASES = {
    "share 0.9": _Case(share=0.9),
    "share 0.85, SGD with momentum": _Case(
        share=0.85, optimizer=torch.optim.SGD, settings=_MOMENTUM
    ),
    # Steps so long that other weights are the smallest after them.
    "share 0.6, weights that are multiples of 1/16": _Case(
        share=0.6, grid=True, behind=0, settings={"lr": 0.2}
    ),
    "share 0.7, a GradScaler that skips step 2": _Case(share=0.7, skips=True),
    "share 0": _Case(share=0.0),
    "share 1": _Case(share=1.0),
}
_LINEAR = "1.weight", "4.0.weight", "6.weight"


def _start(case, seed):
    """A model, its optimizer, and a function that takes the next step; some are taken."""
    inner = nn.Sequential(nn.Linear(12, 10, bias=False), nn.SiLU())
    parts = nn.Embedding(16, 8), nn.Linear(8, 12), nn.LayerNorm(12), nn.SiLU(), inner
    model = filled(nn.Sequential(*parts, nn.Identity(), nn.Linear(10, 4)), seed)
    with torch.no_grad():
        model[-1].weight.mul_(3)
        for name in _LINEAR if case.grid else ():
            weight = model.get_parameter(name)
            weight.copy_((weight * 16).round() / 16)
        if case.grid:
            _tie([model.get_parameter(name) for name in _LINEAR], case.share)
    optimizer = case.optimizer(model.parameters(), **case.settings)
    # Its first steps are not skipped, and then the case decides.
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=case.skips)
    taken = []

    def step():
        number = len(taken)
        taken.append(number)
        tokens = torch.arange(40) * (2 * number + 3 + 2 * seed) % 16
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens), labels(seed + number, 40))
        scaler.scale(loss).backward()
        if case.skips and number == case.behind + 1:
            model[1].bias.grad[0] = torch.inf
        scaler.step(optimizer)
        scaler.update()

    for _ in range(case.behind):
        step()
    return model, optimizer, step


def _tie(weights, share):
    """Give the smallest weight that stays the magnitude of the largest that goes, at every seed."""
    flat = torch.cat([weight.flatten() for weight in weights])
    order, want = flat.abs().argsort(), round(share * len(flat))
    goes, stays = order[want - 1], order[want]
    flat[stays] = flat[stays].sign() * flat[goes].abs()
    for weight, part in zip(weights, flat.split([w.numel() for w in weights]), strict=True):
        weight.copy_(part.view_as(weight))


def _state(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _weights(model):
    return [model.get_parameter(name).detach().clone() for name in _LINEAR]


def run_hold_masks(hold_masks, seed):
    """The model before and after each call, and its linear weights after each of some steps."""
    return {name: attempt(_trained, hold_masks, case, seed) for name, case in _CASES.items()}


def _trained(hold_masks, case, seed):
    model, optimizer, step = _start(case, seed)
    held = dict(model.named_parameters())
    seen = {"before": _state(model)}
    handle = hold_masks(model, optimizer, case.share)
    seen["called"] = _state(model)
    if seen["called"].keys() != seen["before"].keys():
        return seen
    seen["steps"] = []
    for _ in range(_STEPS):
        step()
        seen["steps"].append(_weights(model))
    seen["replaced"] = [name for name, p in model.named_parameters() if p is not held[name]]
    seen["handle"] = callable(getattr(handle, "remove", None))
    if seen["handle"] and case.frees:
        handle.remove()
        step()
        seen["freed"] = _weights(model)
    return seen


@check(run_hold_masks, own_work=("labkit.labs.compression.pruning.hold_masks",))
def check_hold_masks(seen, seed):
    """The smallest weights of all linear layers are 0, and stay 0 while the others train."""
    for name, case in _CASES.items():
        if type(seen[name]) is Raised:
            raise AnswerError(RAISED, name=name, error=failure(seen[name]))
        judge = _Judge(name, case, seed, seen[name])
        judge.others()
        judge.zeros()
        judge.steps()
    for name in _CASES:
        if seen[name]["handle"] is not True:
            raise Mistake(NO_HANDLE, name=name)
    for name, case in _CASES.items():
        if case.frees:
            _Judge(name, case, seed, seen[name]).freed()


class _Judge:
    """One case; weights of all linear layers lie in one vector."""

    def __init__(self, name, case, seed, seen):
        self.name, self.case, self.seed, self.seen = name, case, seed, seen
        model, *_ = _start(case, seed)
        self.before = _state(model)
        if not same_end(seen["before"], self.before):
            raise AnswerError(RAISED, name=name, error="a report that contradicts itself")
        self.sizes = [self.before[key].numel() for key in _LINEAR]
        self.old = self.flat(seen["before"][key] for key in _LINEAR)

    def flat(self, tensors):
        return torch.cat([t.flatten() for t in tensors])

    def place(self, at):
        """The name of the weight with this place in the vector, its row and its column."""
        for key, size in zip(_LINEAR, self.sizes, strict=True):
            if at < size:
                return key, *divmod(at, self.before[key].shape[1])
            at -= size
        raise IndexError(at)

    def others(self):
        """The call leaves all but linear weights as they are."""
        before, called = self.seen["before"], self.seen["called"]
        if called.keys() != before.keys():
            why = PRUNE_KEEPS_TWO if any(key.endswith("_orig") for key in called) else ""
            got, want = (", ".join(keys) for keys in (called, before))
            raise Mistake(OTHER_PARTS, name=self.name, got=got, want=want, why=why)
        for key in (key for key in before if key not in _LINEAR):
            if not torch.equal(called[key], before[key]):
                count = int((called[key] != before[key]).sum())
                raise Mistake(NOT_LINEAR, name=self.name, count=count, what=key)

    def zeros(self):
        """The right number of zeros, at the smallest magnitudes, and all else as it was."""
        self.new = self.flat(self.seen["called"][key] for key in _LINEAR)
        self.gone = self.new == 0
        all_, share = len(self.old), self.case.share
        changed = ~self.gone & (self.new != self.old)
        if changed.any():
            at = int(changed.nonzero()[0])
            what, row, column = self.place(at)
            said = {"what": what, "row": row, "column": column, "name": self.name}
            raise Mistake(KEPT_CHANGED, got=self.new[at].item(), want=self.old[at].item(), **said)
        sizes, want = self.old.abs(), round(share * all_)
        if (got := int(self.gone.sum())) != want:
            said = {"got": got, "all": all_, "want": want, "name": self.name}
            raise Mistake(OTHER_COUNT, why=self._count_why(got, want), **said)
        kept, gone = sizes.clone(), sizes.clone()
        kept[self.gone], gone[~self.gone] = torch.inf, -1
        if kept.min() < gone.max():
            (where, *_), (other, *_) = (
                self.place(int(gone.argmax())),
                self.place(int(kept.argmin())),
            )
            said = {"where": where, "other": other, "why": self._choice_why(), "name": self.name}
            at = int(gone.argmax()), int(kept.argmin())
            raise Mistake(
                OTHER_CHOICE, gone=self.old[at[0]].item(), kept=self.old[at[1]].item(), **said
            )

    def _count_why(self, got, want):
        sizes, all_ = self.old.abs(), len(self.old)
        size = sizes.sort().values[min(max(want - 1, 0), all_ - 1)].item()
        ties = int((sizes == size).sum())
        if ties > 1 and got in (int((sizes <= size).sum()), int((sizes < size).sum())):
            return fill(TIES, ties=ties, size=size)
        exact = self.case.share * all_
        return (
            fill(CUT_OFF, share=self.case.share, all=all_, exact=exact) if got == int(exact) else ""
        )

    def _choice_why(self):
        parts = [int(part.sum()) for part in self.gone.split(self.sizes)]
        if parts == [round(self.case.share * size) for size in self.sizes]:
            return fill(BY_LAYER, shares=", ".join(map(str, parts)))
        gone, kept = self.old[self.gone], self.old[~self.gone]
        if gone.max() <= kept.min():
            return SIGNED
        return LARGEST if gone.abs().min() >= kept.abs().max() else ""

    def steps(self):
        """After each step the same weights are 0, and the others are where training puts them."""
        steps = [self.flat(weights) for weights in self.seen["steps"]]
        returned = [int((weights[self.gone] != 0).sum()) for weights in steps]
        first = next((k for k, count in enumerate(returned) if count), None)
        if first is not None:
            idea, why = self._returned_why(steps)
            said = {"all": int(self.gone.sum()), "step": first + 1, "steps": _STEPS, "why": why}
            raise Mistake(
                RETURNED,
                misconception=idea,
                name=self.name,
                count=returned[first],
                last=returned[-1],
                **said,
            )
        for step, (got, want) in enumerate(zip(steps, self.replay("after"), strict=True)):
            moved, wanted, off = got - self.new, want - self.new, got - want
            if not off.norm() <= NEAR * wanted.norm():
                if self.seen["replaced"]:
                    raise Mistake(REPLACED, name=self.name, what=self.seen["replaced"][0])
                why = "" if moved.any() else STAND_STILL
                if step == 0 and same_end(moved, self.replay("forgotten")[0] - self.new):
                    why = FORGOT
                said = {"moved": moved, "wanted": wanted, "off": off}
                said = {key: value.norm().item() for key, value in said.items()}
                raise Mistake(OTHER_TRAINING, name=self.name, step=step + 1, why=why, **said)
        if self.seen["replaced"]:
            raise Mistake(REPLACED, name=self.name, what=self.seen["replaced"][0])

    def _returned_why(self, steps):
        """The idea and the sentence of the mistake that gives these weights after each step."""
        for how, idea, why in (
            ("once", "one-masking-is-enough", ONCE),
            ("before", "masks-belong-before-the-step", BEFORE),
            ("forward", None, AFTER_FORWARD),
            ("gradients", "masked-gradients-are-enough", NO_GRADIENT),
        ):
            if same_end([w - self.new for w in steps], [w - self.new for w in self.replay(how)]):
                return idea, why
        zeros = int(self.gone.sum())
        moved = all(int((w == 0).sum()) == zeros for w in steps)
        if moved:
            return None, fill(OTHER_PLACES, zeros=zeros)
        freed = (torch.stack(steps) != 0).any(dim=0) & self.gone
        layers = zip(_LINEAR, self.gone.split(self.sizes), freed.split(self.sizes), strict=True)
        names = {True: [], False: []}
        for key, gone, free in layers:
            if gone.any():
                names[bool(free.any())].append(f"`{key}`")
        held, free = ", ".join(names[False]), ", ".join(names[True])
        return None, fill(OTHER_LAYERS, held=held, free=free) if held else ""

    def replay(self, how):
        """The weights after each step, where the zeros are set once, before, or after a step."""
        model, optimizer, step = _start(self.case, self.seed)
        weights = [model.get_parameter(key) for key in _LINEAR]
        masks = [
            part.view_as(w) for part, w in zip(self.gone.split(self.sizes), weights, strict=True)
        ]

        def zero(*_):
            for weight, mask in zip(weights, masks, strict=True):
                weight.data[mask] = 0

        def no_gradient(*_):
            for weight, mask in zip(weights, masks, strict=True):
                weight.grad[mask] = 0

        zero()
        if how == "forgotten":
            optimizer.state.clear()
            optimizer.register_step_post_hook(zero)
        elif how == "before":
            optimizer.register_step_pre_hook(zero)
        elif how == "after":
            optimizer.register_step_post_hook(zero)
        elif how == "forward":
            model.register_forward_pre_hook(zero)
        elif how == "gradients":
            optimizer.register_step_pre_hook(no_gradient)
        found = []
        for _ in range(_STEPS):
            step()
            found.append(self.flat(_weights(model)))
        return found

    def freed(self):
        """Once the handle is removed, a step moves the pruned weights again."""
        for key, freed in zip(_LINEAR, self.seen["freed"], strict=True):
            gone = self.seen["called"][key] == 0
            if not (freed.isfinite().all() and freed[gone].any()):
                raise Mistake(STILL_HELD, name=self.name, what=key)


check_hold_masks.slip(
    "one-masking-is-enough",
    "Which weights must become 0 again after each step, and which call does it?",
    cut="return optimizer.register_step_post_hook(zero)",
)
check_hold_masks.slip(
    "masks-belong-before-the-step",
    "The step comes after your hook. Which hook runs when the step is over?",
    swap=("register_step_post_hook", "register_step_pre_hook"),
)
check_hold_masks.slip(
    "masked-gradients-are-enough",
    "Momentum and moments move a weight without a gradient. What must be 0 after the step?",
    swap=(
        "zero()\n    return optimizer.register_step_post_hook(zero)",
        "zero()\n"
        "    for weight, part in zip(weights, parts, strict=True):\n"
        "        weight.register_hook(lambda g, part=part: g.masked_fill(part.view_as(g), 0))\n"
        "    return optimizer.register_step_post_hook(lambda *_: None)",
    ),
)
check_hold_masks.slip(
    "the-smallest-is-the-most-negative",
    "A weight of -2 is not small. Which call is missing before topk?",
    swap=(".abs()", ""),
)
check_hold_masks.slip(
    "pruning-takes-all-parameters",
    "Which of the model's layers have the weights that you are asked to prune?",
    swap=("layer.weight for layer in linears(model)", "p for p in model.parameters()"),
)
check_hold_masks.slip(
    "topk-takes-the-smallest",
    "topk returns the largest values. Which argument turns it round?",
    cut=", largest=False",
)


@check_hold_masks.wrong(
    "a-share-of-all-is-a-share-of-each",
    "The smallest of one layer may be larger than the others' large ones. Over which weights do "
    "you sort?",
)
def _layer_by_layer(model, optimizer, share):
    masks = []
    for layer in (m for m in model.modules() if isinstance(m, nn.Linear)):
        sizes = layer.weight.detach().abs().flatten()
        mask = torch.zeros_like(sizes, dtype=torch.bool)
        mask[sizes.topk(round(share * len(sizes)), largest=False).indices] = True
        masks.append((layer.weight, mask.view_as(layer.weight)))

    @torch.no_grad()
    def zero(*_):
        for weight, mask in masks:
            weight.masked_fill_(mask, 0)

    zero()
    return optimizer.register_step_post_hook(zero)


@check_hold_masks.wrong(
    "a-threshold-prunes-a-share",
    "Which function picks exactly so many places, whatever their values are?",
)
def _by_threshold(model, optimizer, share):
    weights = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
    sizes = torch.cat([w.detach().abs().flatten() for w in weights])
    limit = sizes.sort().values[max(round(share * len(sizes)) - 1, 0)] if share else -1.0
    masks = [w.detach().abs() <= limit for w in weights]

    @torch.no_grad()
    def zero(*_):
        for weight, mask in zip(weights, masks, strict=True):
            weight.masked_fill_(mask, 0)

    zero()
    return optimizer.register_step_post_hook(zero)


@check_hold_masks.wrong(
    "a-new-parameter-is-trained-too",
    "How do you write zeros into the tensor that the optimizer holds?",
)
def _new_parameters(model, optimizer, share):
    layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
    sizes = torch.cat([layer.weight.detach().abs().flatten() for layer in layers])
    keep = torch.ones_like(sizes)
    keep[sizes.topk(round(share * len(sizes)), largest=False).indices] = 0
    parts = keep.split([layer.weight.numel() for layer in layers])

    def zero(*_):
        for layer, part in zip(layers, parts, strict=True):
            layer.weight = nn.Parameter(layer.weight.detach() * part.view_as(layer.weight))

    zero()
    return optimizer.register_step_post_hook(zero)
