"""``run``: a training run that applies its recipe, survives a kill, and answers faults by a policy.

The steps are those of ``labkit.training.train``. Around them stand checkpoints of all that the next
step depends on, and ``respond``, which says what follows a fault; the run does as it says.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from pydantic import ConfigDict, PositiveFloat, PositiveInt, TypeAdapter
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.optim import Optimizer

from labkit.formats.dtypes import name_of
from labkit.labs.production.data_order import DataOrder, LoaderFailed
from labkit.labs.production.faults import Detector, Fault, Products, Validation
from labkit.labs.production.injections import Injection, Injections
from labkit.labs.production.respond import Plan
from labkit.training import StepRecord, cross_entropy, evaluate, in_eval_mode, train
from labkit.training.precision import precision_named

Respond = Callable[[str, Plan, int], tuple[str, Plan]]
"""(event, plan, patience) -> an answer, and the plan from now on."""

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False, revalidate_instances="always")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a run trains.

    Args:
        precision: "fp16", with a dynamic loss scale, "bf16" or "fp32".
        micro_batch: samples that go through the model at once.
        accumulate: micro-batches to a step.
        clip: the largest 2-norm of the unscaled gradients; None for no limit.
        checkpoint_every: steps.
        patience: handed on to ``respond``.
    """

    __pydantic_config__ = _STRICT

    precision: Literal["fp16", "bf16", "fp32"]
    micro_batch: PositiveInt
    accumulate: PositiveInt = 1
    clip: PositiveFloat | None = None
    checkpoint_every: PositiveInt = 10
    patience: PositiveInt = 3


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """After an epoch, of the held-out samples: the mean loss, in float32, and the share right."""

    step: int
    loss: float
    accuracy: float


class Saved(Protocol):
    """What ``run`` asks of checkpoints, as ``Checkpoints`` has it."""

    def save(self, step: int) -> None: ...

    def resume(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What ``run`` did since it was called; what a process did that was killed is not in it.

    Args:
        resumed_from: the step of the checkpoint that it began with, 0 for a fresh run.
        steps: one record a step, numbered by its batch; what was done again comes again.
        recipes: (step, recipe) from when on it was in force.
        alerts: what the detector raised, and "loader" and "corruption"; the step is the batch's.
        skips: steps whose update was not taken.
        rollbacks: (from step, to step).
        metrics: one an epoch.
        dtypes_seen: by precision, in which dtypes linear layers and convolutions gave their
            outputs.
        stopped: the event that ended the run before its last epoch, or "".
    """

    resumed_from: int
    steps: tuple[StepRecord, ...]
    recipes: tuple[tuple[int, Recipe], ...]
    alerts: tuple[Fault, ...]
    skips: int
    rollbacks: tuple[tuple[int, int], ...]
    metrics: tuple[Metrics, ...]
    dtypes_seen: Mapping[str, tuple[str, ...]]
    stopped: str

    def describe(self) -> str:
        """Recipes, skips, rollbacks, dtypes, alerts and the last metrics, as lines of text."""
        lines = [f"{len(self.steps)} steps from step {self.resumed_from} on, {self.skips} skipped"]
        for step, recipe in self.recipes:
            batch = f"{recipe.accumulate} x {recipe.micro_batch}"
            lines.append(f"step {step}: {recipe.precision}, {batch} samples a step")
        lines += [f"rolled back from step {now} to {then}" for now, then in self.rollbacks]
        for precision, dtypes in self.dtypes_seen.items():
            lines.append(f"{precision}: layers gave {', '.join(dtypes)}")
        lines += [f"alert at step {a.step}: {a.kind}, {a.evidence}" for a in self.alerts]
        if self.metrics:
            last = self.metrics[-1]
            lines.append(
                f"step {last.step}: {last.accuracy:.1%} right, validation loss {last.loss:.3f}"
            )
        lines.append(f"saved and stopped: {self.stopped}" if self.stopped else "ran to its end")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.describe()


def run(
    model: nn.Module,
    loader: Iterable[tuple[Tensor, Tensor]],
    validation: tuple[Tensor, Tensor],
    *,
    optimizer: Optimizer,
    recipe: Recipe | Mapping[str, object],
    respond: Respond,
    checkpoints: Callable[[Path, dict[str, Any]], Saved],
    folder: str | Path,
    epochs: int = 1,
    detector: Detector | None = None,
    on_step: Callable[[StepRecord], object] | None = None,
    faults: Sequence[Injection] = (),
) -> RunRecord:
    """Train to the end of the last epoch, or until ``respond`` says "save and stop".

    A run begins with the newest whole checkpoint in ``folder``. It ends at the bits of a run that
    was never killed: a checkpoint holds model, optimizer, loss scale, torch's random generator, the
    place in the data, and the plan, which wins over the recipe when the run goes on. The model
    stays on its device, and data go there.

    Events: "ok"; "non-finite", a loss that is inf or NaN, or a skipped step that a smaller loss
    scale cannot help; "out of memory"; "loader", any error that it raises; "corruption", weights
    that changed between two steps. A skipped step whose loss is finite is the loss scale at work,
    and no event. No answer has to undo a step that is not finite: ``train`` has not taken it. A
    roll back that finds no whole checkpoint saves and stops.

    Args:
        loader: batches of one step each, the last of an epoch may be smaller; a list, or a
            DataLoader that has a generator, such as ``labkit.training.data.batches``.
        validation: inputs and targets that are held out.
        optimizer: over the model's parameters.
        respond: answers "go on" and "skip" keep the run going, "roll back" loads the newest whole
            checkpoint, "retry" does the step again, each with the plan that came along.
        checkpoints: called as ``Checkpoints(folder, parts)``.
        detector: sees each step, each epoch's validation, and the dtypes of its matmuls.
        on_step: sees each step too, such as ``see`` of lab 11's Monitor.
        faults: for a drill.

    Raises:
        ValueError: a field of the recipe is missing, unknown or not as described, or another
            argument is; a batch is larger than the recipe's; an answer that is none, or a roll back
            or retry with the plan that has just failed, which would fail again.
    """
    recipe = TypeAdapter(Recipe).validate_python(recipe)
    if validation is None or len(validation) != 2 or not len(validation[1]):
        raise ValueError("validation is missing: pass inputs and targets that are held out")
    if type(epochs) is not int or epochs < 1:
        raise ValueError(f"epochs={epochs!r}: pass a whole number from 1 on")
    drill = Injections(faults, Path(folder))
    going = _Run(model, DataOrder(loader), optimizer, recipe, respond, drill)
    going.saved = checkpoints(Path(folder), going.parts())
    going.detector, going.on_step = detector, on_step
    with going.watching_layers():
        return going.go(epochs, validation)


class _Corrupted(Exception):
    """The weights are not those that the step before has left."""


class _Left(Exception):
    """Leaves ``train`` with an event and its answer."""

    def __init__(self, event: str, answer: str, plan: Plan) -> None:
        super().__init__(event)
        self.event, self.answer, self.plan = event, answer, plan


@dataclass(eq=False)
class _Run:
    """A run that is going on."""

    model: nn.Module
    order: DataOrder
    optimizer: Optimizer
    recipe: Recipe
    respond: Respond
    drill: Injections
    detector: Detector | None = None
    on_step: Callable[[StepRecord], object] | None = None
    steps: list[StepRecord] = field(default_factory=list)
    recipes: list[tuple[int, Recipe]] = field(default_factory=list)
    alerts: list[Fault] = field(default_factory=list)
    rollbacks: list[tuple[int, int]] = field(default_factory=list)
    metrics: list[Metrics] = field(default_factory=list)
    seen: dict[str, Counter[str]] = field(default_factory=dict)
    resumed_from: int = 0
    newest: int = 0
    bits: int | None = None
    stopped: str = ""

    saved: Saved = field(init=False)

    def __post_init__(self) -> None:
        settings = ("precision", "micro_batch", "accumulate")
        self.plan = Plan(**{name: getattr(self.recipe, name) for name in settings})
        self.device = next(self.model.parameters()).device
        # One object through all precisions: it is saved where no loss is scaled, too.
        self.scaler = torch.amp.GradScaler(self.device.type)

    def parts(self) -> dict[str, Any]:
        """All that the next step depends on, but torch's random generator."""
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scaler": self.scaler,
            "data": self.order,
            "plan": self,
        }

    def state_dict(self) -> dict[str, Any]:
        return asdict(self.plan)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.plan = Plan(**state)

    # -------------------------------------------------------------- the run

    def go(self, epochs: int, validation: tuple[Tensor, Tensor]) -> RunRecord:
        self.resumed_from = self.saved.resume()
        if self.resumed_from != self.order.done:
            raise ValueError(
                f"the checkpoint of step {self.resumed_from} holds the data of {self.order.done}"
            )
        self._begin(self.plan)
        if not self.resumed_from:
            self._save()
        while self.order.epoch < epochs and not self.stopped:
            try:
                self._train()
            except _Left as left:
                self._do(left.event, left.answer, left.plan)
            except (torch.OutOfMemoryError, MemoryError):
                self._ask("out of memory")
            except _Corrupted:
                self._alert(
                    "corruption", "weights have changed since the step before", self.order.done
                )
                self._ask("corruption")
            except LoaderFailed as failed:
                self._alert("loader", str(failed), self.order.done)
                self._ask("loader")
            else:
                self._validate(*validation)
                self.order.next_epoch()
                self._save()
        return RunRecord(
            resumed_from=self.resumed_from,
            steps=tuple(self.steps),
            recipes=tuple(self.recipes),
            alerts=tuple(self.alerts),
            skips=sum(record.skipped for record in self.steps),
            rollbacks=tuple(self.rollbacks),
            metrics=tuple(self.metrics),
            dtypes_seen={p: tuple(sorted(counts)) for p, counts in self.seen.items()},
            stopped=self.stopped,
        )

    def _train(self) -> None:
        """The rest of the epoch under the plan in force."""
        parts = self._micro_batches()
        if (first := next(parts, None)) is None:
            return
        train(
            self.model,
            chain([first], parts),
            optimizer=self.optimizer,
            precision=self.plan.precision,
            device=self.device,
            scaler=self.scaler if precision_named(self.plan.precision).scaled else None,
            max_grad_norm=self.recipe.clip,
            accumulate=self.plan.accumulate,
            on_step=self._see,
            progress=False,
        )

    def _micro_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """``accumulate`` parts for each step; fewer of the epoch's last batch."""
        size, most = self.plan.micro_batch, self.plan.micro_batch * self.plan.accumulate
        count = self.plan.accumulate
        for step, batch in enumerate(self.drill.batches(self.order), self.order.done):
            if len(batch[1]) > most:
                raise ValueError(
                    f"a batch of {len(batch[1])} samples, and the recipe's steps have "
                    f"{self.plan.accumulate} x {size}: make accumulate or micro_batch larger"
                )
            if count < self.plan.accumulate:
                raise ValueError("only the last batch of an epoch may be smaller than the others")
            if self.bits not in (None, _bits(self.model)):
                raise _Corrupted
            self.drill.allocate(step, size)
            parts = list(zip(*(whole.split(size) for whole in batch), strict=True))
            count = len(parts)
            yield from parts

    def _see(self, record: StepRecord) -> None:
        """After each step of ``train``, which numbers its own from 0 on."""
        # Who watches a run wants numbers that only grow.
        seen = replace(record, step=self.resumed_from + len(self.steps))
        self.steps.append(replace(record, step=self.order.done))
        self._detect(seen)
        if self.on_step is not None:
            self.on_step(seen)
        self.order.advance()
        self.bits = _bits(self.model)
        event = "non-finite" if _beyond_the_scale(record) else "ok"
        answer, plan = self.respond(event, self.plan, self.recipe.patience)
        if answer not in ("go on", "skip"):
            raise _Left(event, answer, plan)
        self.plan = plan
        # In a streak the newest checkpoint stays the one before it.
        if not plan.streak and self.order.done % self.recipe.checkpoint_every == 0:
            self._save()
        self.drill.damage(self.order.done, self.model)

    # -------------------------------------------------------------- answers

    def _ask(self, event: str) -> None:
        self._do(event, *self.respond(event, self.plan, self.recipe.patience))

    def _do(self, event: str, answer: str, plan: Plan) -> None:
        if answer == "save and stop":
            self.plan, self.stopped = plan, event
            self._save()
            return
        if answer not in ("roll back", "retry"):
            raise ValueError(f"respond answered {answer!r} to {event!r}, which is no answer")
        same = replace(plan, streak=0) == replace(self.plan, streak=0)
        if same and event != "corruption":  # memory that flipped a bit need not do so again
            raise ValueError(
                f"respond answered {answer!r} to {event!r} with the plan that failed: the same "
                "step would fail again"
            )
        if answer == "roll back" and not self._roll_back():
            # The weights are good: a step that was not taken has left them as they were.
            self.stopped = "corruption"
            self._save()
            return
        self._begin(plan)
        self._save()  # or a kill would bring back the plan that failed

    def _begin(self, plan: Plan) -> None:
        self.plan, self.bits = plan, None
        recipe = replace(
            self.recipe,
            precision=plan.precision,
            micro_batch=plan.micro_batch,
            accumulate=plan.accumulate,
        )
        self.recipes.append((self.order.done, recipe))

    # ---------------------------------------------------------- checkpoints

    def _save(self) -> None:
        self.newest = self.order.done
        with self.drill.saving(self.newest):
            self.saved.save(self.newest)

    def _roll_back(self) -> bool:
        """Load the newest whole checkpoint; is there one?"""
        now, then = self.order.done, self.saved.resume()
        found = then == self.order.done  # else nothing was loaded
        if then != self.newest:
            said = f"step {then} was loaded instead" if found else "no other is whole"
            said = f"the checkpoint of step {self.newest} is damaged, {said}"
            self._alert("corruption", said, now)
        if found:
            self.rollbacks.append((now, then))
        return found

    # -------------------------------------------------------------- watching

    @contextmanager
    def watching_layers(self) -> Iterator[None]:
        """Count the dtypes of what linear layers and convolutions give in training."""

        def count(layer: nn.Module, _: object, output: Tensor) -> None:
            if layer.training:
                dtypes = self.seen.setdefault(self.plan.precision, Counter())
                dtypes[name_of(output.dtype)] += 1

        hooks = [
            layer.register_forward_hook(count)
            for layer in self.model.modules()
            if isinstance(layer, nn.Linear | _ConvNd)
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _alert(self, kind: str, evidence: str, step: int) -> None:
        self.alerts.append(Fault(kind=kind, step=step, evidence=evidence))

    def _detect(self, record: StepRecord | Validation | Products) -> None:
        if self.detector is not None:
            found = self.detector.see(record)
            self.alerts += [replace(fault, step=self.order.done) for fault in found]

    def _validate(self, inputs: Tensor, targets: Tensor) -> None:
        with in_eval_mode(self.model), torch.no_grad():
            x, y = inputs.to(self.device), targets.to(self.device)
            loss = cross_entropy(self.model(x), y).item()
        accuracy = evaluate(self.model, inputs, targets, precision=self.plan.precision)
        self.metrics.append(Metrics(step=self.order.done, loss=loss, accuracy=accuracy))
        step, precision = self.resumed_from + len(self.steps), self.plan.precision
        self._detect(Validation(step=step, loss=loss))
        asked = name_of(precision_named(precision).products)
        seen = dict(self.seen.get(precision, {}))
        self._detect(Products(step=step, asked=asked, seen=seen))


def _bits(model: nn.Module) -> int:
    """A sum that any single flipped bit of a float32 parameter changes."""
    parameters = [p.detach().view(torch.int32) for p in model.parameters()]
    return sum(int(p.sum(dtype=torch.int64)) for p in parameters)


def _beyond_the_scale(record: StepRecord) -> bool:
    """Was the step skipped for another reason than a loss scale that is too large?"""
    return not math.isfinite(record.loss) or (record.skipped and record.loss_scale <= 1)
