"""The figures of lab 07: the bytes of a training step, operator by operator."""

from labkit.labs.memory_and_many_gpus.tape import GIB, Tape
from labkit.plots import BLUE, GREY, ORANGE, Picture, new_axes

_ROLES = {
    "weights": "#444444",
    "moments": GREY,
    "copies": "#cc79a7",
    "gradients": "#009e73",
    "kept": BLUE,
    "temporary": "#e69f00",
}
_NAMES = {"copies": "16-bit copies", "kept": "kept for backward"}


def tape_picture(tape: Tape, *, limit: int) -> Picture:
    """The bytes alive during a training step, stacked by what they are.

    Args:
        tape: any settings.
        limit: bytes of a card, drawn as a line.
    """
    figure, axes = new_axes(height=3.8)
    shown = {
        role: [getattr(point, role) / GIB for point in tape.points]
        for role in _ROLES
        if any(getattr(point, role) for point in tape.points)
    }
    axes.stackplot(
        range(len(tape.points)),
        *shown.values(),
        labels=[_NAMES.get(role, role) for role in shown],
        colors=[_ROLES[role] for role in shown],
        step="post",
    )
    axes.axhline(limit / GIB, color=ORANGE, linestyle="--", linewidth=2)
    last = len(tape.points) - 1
    axes.text(
        last, limit / GIB, f"a card of {limit / GIB:.0f} GiB", color=ORANGE, ha="right", va="bottom"
    )
    top = max(range(last + 1), key=lambda i: tape.points[i].total)
    name = tape.peak_at.partition("/")[2].removeprefix("aten.")
    words = f"{tape.peak / GIB:.2f} GiB, during {name}"
    axes.annotate(words, (top, tape.peak / GIB), (8, -4), textcoords="offset points")
    phases = [point.phase for point in tape.points]
    starts = {phase: phases.index(phase) for phase in ("forward", "backward", "step")}
    axes.set_xticks(list(starts.values()), list(starts), ha="left")
    axes.set(ylabel="GiB alive", xlim=(0, last), ylim=(0, 1.12 * tape.peak / GIB))
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], labels[::-1], bbox_to_anchor=(1, 0.66), loc="upper right", frameon=False
    )
    hills = "; ".join(
        f"{name} {hill.total / GIB:.2f} GiB in {hill.at}" for name, hill in tape.hills.items()
    )
    return Picture(
        figure,
        "Counted on fake tensors, from left to right operator by operator. The peak is where the "
        "loss's tensors stand on everything that the blocks keep.",
        f"The bytes of one training step. Peaks of its phases: {hills}.",
    )
