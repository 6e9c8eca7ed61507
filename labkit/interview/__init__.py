"""Preparing for an interview: the bank of questions, drills, the mock interview, plans.

Read ``questions`` first (the bank, validated kind by kind), then ``answers`` (judging), ``drills``
(what is due) and ``mock``. ``log`` keeps reviews, ``sittings`` holds a drill or a mock,
``terminal`` and ``widget_drill_card`` show one, ``bank_checks`` judge code. Labs open with
``warm_up`` and close with ``say_it``.
"""

from typing import TYPE_CHECKING

from labkit.base.home import lazily

if TYPE_CHECKING:
    from labkit.interview.widget_drill_card import say_it, warm_up

__all__ = ["say_it", "warm_up"]

__getattr__ = lazily(__name__, {"widget_drill_card": "say_it warm_up"})
