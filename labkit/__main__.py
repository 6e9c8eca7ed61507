"""The command line: ``python -m labkit COMMAND``, or ``labkit COMMAND``.

``labkit.commands`` holds the commands; here their tables become parsers of arguments.
"""

import argparse
import functools
import os
import sys
from argparse import ArgumentParser, Namespace

from labkit.commands import Command, CommandGroup, instructors, learners

_HELP = functools.partial(argparse.HelpFormatter, max_help_position=32)

_NOBODY_READS = 128 + 13
"""The exit status of a command whose pipe was closed: a shell's for an end by SIGPIPE, 13."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status; without a command, list the commands.

    A command whose reader has gone, as in ``labkit doctor | head -2``, ends without a word.
    """
    try:
        try:
            options = parse(sys.argv[1:] if arguments is None else arguments)
            return options.run(options)
        finally:  # SystemExit too, after a help
            print(end="", flush=True)
    except BrokenPipeError:
        _discard_the_rest()
        return _NOBODY_READS


def _discard_the_rest() -> None:
    """Send to nowhere what is still to be written: Python writes it out when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


def parse(arguments: list[str]) -> Namespace:
    """The options of a command line; ``run`` is the command, ``refuse`` ends with a sentence.

    Raises SystemExit with status 2, after a sentence on stderr, for what no command takes.
    """
    parser = ArgumentParser(
        prog="labkit",
        description="The commands of the mixed precision labs.",
        formatter_class=_HELP,
    )
    _add(parser, learners.COMMANDS | instructors.COMMANDS)
    return parser.parse_args(arguments, Namespace(typed=arguments))


def _add(parser: ArgumentParser, commands: dict[str, Command | CommandGroup]) -> None:
    """Give the parser subcommands; without one of them it shows its help."""
    parser.set_defaults(run=lambda _: parser.print_help() or 0)
    name = "COMMAND [...]"
    parser.usage = f"{parser.prog} {name}"
    parsers = parser.add_subparsers(
        title="commands",
        prog=parser.prog,
        metavar=name,
        description=f"`{parser.prog} COMMAND --help` tells more.",
    )
    for name, entry in commands.items():
        one = parsers.add_parser(
            name,
            help=entry.promise,
            description=entry.promise,
            formatter_class=_HELP,
        )
        if isinstance(entry, CommandGroup):
            _add(one, entry.commands)
        else:
            one.set_defaults(run=entry.run, refuse=one.error)
            entry.declare(one)


if __name__ == "__main__":
    sys.exit(main())
