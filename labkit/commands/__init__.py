"""The commands of ``python -m labkit``, and what a command is.

A command is a function of its parsed options that returns the exit status; the first line of its
docstring is its help. ``learners`` and ``instructors`` end with the table of theirs, each with the
function that declares its arguments. A command imports what it needs when it runs, so that
``labkit progress`` answers without torch and ``labkit doctor`` also where torch is what is missing.
"""

import functools
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """What runs, and what declares its arguments."""

    run: Callable[[Namespace], int]
    declare: Callable[[ArgumentParser], None] = lambda parser: None

    @property
    def promise(self) -> str:
        return (self.run.__doc__ or "").splitlines()[0]


@dataclass(frozen=True)
class CommandGroup:
    """Commands under one name."""

    promise: str
    commands: dict[str, Command]


def plainly(command: Callable[[Namespace], int]) -> Callable[[Namespace], int]:
    """The command; what it may meet (the log, a file, a name) is a sentence and exit status 1.

    A closed pipe is for ``__main__``, which handles it for all commands.
    """

    @functools.wraps(command)
    def run(options: Namespace) -> int:
        from labkit.base.progress import ProgressError

        try:
            return command(options)
        except BrokenPipeError:
            raise
        except (ProgressError, OSError, ValueError) as error:
            print(error, file=sys.stderr)
            return 1

    return run
