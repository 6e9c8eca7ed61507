"""What the checks of lab 06 share: which other number an answer has computed."""

from labkit.labs.engine.behaviour import near


def only_fit(value, others):
    """The name of the one number among ``others`` that a value is; None if several or none are."""
    fitting = [name for name, other in others.items() if near(value, other)]
    return fitting[0] if len(fitting) == 1 else None
