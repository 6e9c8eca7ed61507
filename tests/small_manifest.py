"""A lab of the manifest in a line, for tests of what reads it."""

from labkit.base.home import ExerciseEntry, LabEntry


def lab(name: str, title: str, **points: float) -> LabEntry:
    """A lab with an exercise for each keyword, worth so many points."""
    exercises = tuple(
        ExerciseEntry(exercise=exercise, names=(), points=worth, seconds=1, check_version="")
        for exercise, worth in points.items()
    )
    return LabEntry(
        lab=name,
        title=title,
        version="0" * 12,
        minutes=1,
        hardware="cpu",
        exercises=exercises,
        predictions=(),
        optional_minutes=0,
        sections=(),
    )
