"""Old copies of the labs import this name, which is labkit.labs now: they are told what to do."""

raise ImportError(
    "This copy of the lab is older than the course. Run `python -m labkit start`: it brings your "
    "copies up to date and keeps your answers."
)
