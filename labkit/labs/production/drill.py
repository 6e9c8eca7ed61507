"""``fault_drill``: a training run that meets planted faults, and does what a policy answers.

Each step is one step of ``train``. Around it stand checkpoints of all that the next step depends
on, and ``respond``, which says what follows a fault.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labkit.labs.production.run_plan import ANSWERS, Plan
from labkit.measuring import Monitor
from labkit.training import cross_entropy, evaluate, in_eval_mode, train

STEPS_TO_A_CHECKPOINT = 10
ROWS_THAT_FIT = 16  # where a step runs out of memory
INPUT_FACTORS = {"NaN batch": math.nan, "large batch": 2.0**20}  # beyond FP16, finite in BF16
FAULTS = (*INPUT_FACTORS, "out of memory", "damaged file", "loader")


@dataclass
class _Place:
    """Where a run stands: a part of its checkpoints, as the model is."""

    plan: Plan
    step: int = 0

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.plan, self.step = Plan(**state["plan"]), state["step"]


def fault_drill(
    model: nn.Module,
    batches: Sequence[tuple[Tensor, Tensor]],
    validation: tuple[Tensor, Tensor],
    *,
    optimizer: torch.optim.Optimizer,
    plan: Plan,
    respond: Callable[[str, Plan], tuple[str, Plan]],
    checkpoints: Callable[[Path, dict[str, Any]], Any],
    folder: str | Path,
    monitor: Monitor,
    faults: Mapping[int, str] | None = None,
    clip: float | None = None,
) -> list[dict[str, Any]]:
    """Train one step on each batch, or until ``respond`` answers "save and stop".

    The run begins with the newest whole checkpoint in the folder, whose plan wins over ``plan``. It
    ends at the bits of a run that was never killed. A step that is skipped for its loss scale is
    "ok". Where no checkpoint to roll back to is whole, the run saves and stops.

    Args:
        validation: held-out inputs and targets, for the monitor at each checkpoint.
        checkpoints: called with the folder and the parts to save.
        faults: step -> one of FAULTS; "damaged file" is once, and of the checkpoint of this step.
        clip: the largest 2-norm of the unscaled gradients.

    Returns:
        A row for each event but "ok": the error is what was raised, the plan that of the next step.

    Raises:
        ValueError: batches that have no place in a row, no validation, an unknown fault or answer;
            a batch that is larger than a step of the plan; a retry or rollback with the plan that
            failed.
    """
    faults, folder, answered = dict(faults or {}), Path(folder), []
    if unknown := set(faults.values()) - set(FAULTS):
        raise ValueError(f"faults: {unknown.pop()!r} is none of {', '.join(FAULTS)}")
    if not isinstance(batches, Sequence):
        raise ValueError(f"batches is a {type(batches).__name__}: pass list(batches)")
    if validation is None or not len(validation[1]):
        raise ValueError("validation is missing: pass inputs and targets that are held out")
    device = next(model.parameters()).device
    # The scaler is saved in BF16 too, though no loss is scaled there.
    place, scaler = _Place(plan), torch.amp.GradScaler(device.type)
    parts = {"model": model, "optimizer": optimizer, "scaler": scaler, "place": place}
    saved = checkpoints(folder, parts)

    def save() -> None:
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
        saved.save(place.step)
        if faults.get(place.step) == "damaged file":
            del faults[place.step]
            files = [path for path in folder.rglob("*") if path.is_file()]
            written = [path for path in files if before.get(path) != path.stat().st_mtime_ns]
            flip_bit(max(written, key=lambda path: path.stat().st_size))  # whatever its name

    def train_step(plan: Plan, fault: str | None) -> tuple[str, str]:
        """The event of this step, and the error that was raised."""
        try:
            if fault == "loader":
                raise OSError("injected")
            inputs, targets = batches[place.step]
        except Exception as error:  # whatever a loader raises
            return "loader", repr(error)
        if len(targets) > plan.micro_batch * plan.accumulate:
            raise ValueError(f"a batch has {len(targets)} samples: too many for a step of {plan}")
        parts_of = (inputs * INPUT_FACTORS.get(fault, 1.0)).split(plan.micro_batch)
        micro_batches = [*zip(parts_of, targets.split(plan.micro_batch), strict=True)]
        try:
            if fault == "out of memory" and plan.micro_batch > ROWS_THAT_FIT:
                raise torch.OutOfMemoryError("injected")
            (record,) = train(
                model, micro_batches, optimizer=optimizer, precision=plan.precision, device=device,
                scaler=scaler if plan.precision == "fp16" else None, accumulate=len(micro_batches),
                max_grad_norm=clip, progress=False,
            )  # fmt: skip
        except (torch.OutOfMemoryError, MemoryError) as error:
            return "out of memory", repr(error)
        monitor.see(replace(record, step=place.step))
        # A smaller scale helps neither a loss that is not finite nor a scale that is 1 already.
        beyond = not math.isfinite(record.loss) or (record.skipped and record.loss_scale <= 1)
        return "non-finite" if beyond else "ok", ""

    def validate(inputs: Tensor, targets: Tensor) -> None:
        with in_eval_mode(model), torch.no_grad():
            loss = cross_entropy(model(inputs.to(device)), targets.to(device)).item()
        monitor.see_validation(place.step - 1, loss, evaluate(model, inputs, targets))

    def rolled_back() -> bool:
        """Load the newest whole checkpoint, the place in it too; False where there is none."""
        loaded = saved.resume()
        return loaded == place.step

    if not saved.resume():
        save()
    answer = "go on"
    while place.step < len(batches) and answer != "save and stop":
        step, old = place.step, place.plan
        event, error = train_step(old, faults.get(step))
        answer, plan = respond(event, old)
        if answer not in ANSWERS:
            raise ValueError(f"respond answered {answer!r} to {event!r}: {', '.join(ANSWERS)}")
        if answer in ("go on", "skip"):
            place.step += 1
        elif answer != "save and stop" and replace(plan, streak=0) == replace(old, streak=0):
            raise ValueError(f"respond answered {answer!r} to {event!r} with the plan that failed")
        if answer == "roll back" and not rolled_back():
            error, answer = "no checkpoint is whole", "save and stop"
        place.plan = plan
        if event != "ok":
            row = {"step": step, "event": event, "error": error, "answer": answer}
            answered.append(row | {"next step": place.step} | asdict(plan))
        if answer not in ("go on", "skip"):
            save()  # or a kill would bring back the plan that failed
        elif not plan.streak and (
            place.step % STEPS_TO_A_CHECKPOINT == 0 or place.step == len(batches)
        ):
            validate(*validation)
            save()
    return answered


def flip_bit(path: Path) -> None:
    """Flip the highest bit of the byte in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x80
    path.write_bytes(data)
