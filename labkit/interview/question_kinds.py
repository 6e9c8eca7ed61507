"""The kinds of questions by name.

A new kind is a class in ``choice_kinds`` or ``typed_kinds``, its name below, and a
branch for its ``form`` in the page of the card (labkit/interview/widget_drill_card.js) where no
form of today asks for it.
"""

from typing import get_args

from labkit.interview.cards import Question
from labkit.interview.choice_kinds import Choice, Claim, Match, Order, Select
from labkit.interview.typed_kinds import Bits, Code, Free, Numeric, Predict, ProgramLine

_CLASSES = (Choice, Select, Numeric, Bits, Order, Match, Predict, Claim, ProgramLine, Code, Free)
KINDS: dict[str, type[Question]] = {
    get_args(kind.model_fields["kind"].annotation)[0]: kind for kind in _CLASSES
}
"""The class of each kind, by the name that the bank gives it."""
