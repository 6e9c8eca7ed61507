"""A step of a small made-up model, for the widget's tests: round bytes, no torch, no second."""

from labkit.labs.memory_and_many_gpus.counted_step import StepSettings
from labkit.labs.memory_and_many_gpus.step_bytes import StepPoint
from labkit.labs.memory_and_many_gpus.tape import GIB, Tape

STATE = {"fp32": 1.0, "bf16": 0.5, "8-bit": 0.25}


def small_tape(settings: StepSettings) -> Tape:
    """At batch 8 in FP32: hills of 7.5, 10.5 and 3 GiB. Each of 12 blocks keeps 0.4 GiB."""
    rows = settings.batch / 8 / settings.micro_batches
    each = rows * (0.25 if settings.autocast else 0.4)
    loss = rows * 3 / settings.loss_chunks
    copies = 0.25 if settings.autocast else 0.0
    always = {"weights": 0.5, "moments": STATE[settings.moments]}

    def point(at: str, **held: float) -> StepPoint:
        sizes = {"gradients": 0.0, "copies": 0.0, "kept": 0.0, "temporary": 0.0, **always, **held}
        return StepPoint(at=at, **{role: int(size * GIB) for role, size in sizes.items()})

    def kept(blocks: int) -> float:
        return sum(each / 8 if i in settings.checkpointed else each for i in range(blocks))

    points = []
    for piece in range(settings.micro_batches):
        had = {"gradients": 0.5 if piece else 0.0, "copies": copies}
        points += [
            point(f"forward/{op}", kept=kept(i), temporary=each / 2, **had)
            for i in range(12)
            for op in ("aten.mm", "aten.gelu")
        ]
        points.append(point("forward/aten._log_softmax", kept=kept(12) + loss / 2, **had))
        points.append(
            point(
                "backward/aten._log_softmax_backward_data",
                kept=kept(12) + loss,
                temporary=loss / 2,
                **had,
            )
        )
        points += [
            point(
                "backward/aten.mm",
                copies=copies,
                gradients=0.5 if piece else 0.5 * (12 - i) / 12,
                kept=kept(i + 1),
                temporary=each,
            )
            for i in reversed(range(12))
        ]
    wide = 1.0 if settings.foreach else 0.125
    points += [
        point("step/aten._foreach_sqrt", gradients=0.5, temporary=size)
        for size in (wide / 2, wide, wide / 4)
    ]
    return Tape(
        settings=settings,
        points=tuple(points),
        extra_flop=0.02 * len(settings.checkpointed) + (0.1 if settings.loss_chunks > 1 else 0.0),
    )
