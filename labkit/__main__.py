"""The command line: ``python -m labkit COMMAND``, or ``labkit COMMAND``.

``labkit.commands`` holds the commands; here their tables become parsers of arguments.
"""

import argparse
import functools
import sys
from argparse import ArgumentParser, Namespace

from labkit.commands import Command, Group, instructors, learners

_HELP = functools.partial(argparse.HelpFormatter, max_help_position=32)


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status; without a command, list the commands."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    return options.run(options)


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


def _add(parser: ArgumentParser, commands: dict[str, Command | Group]) -> None:
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
        if isinstance(entry, Group):
            _add(one, entry.commands)
        else:
            one.set_defaults(run=entry.run, refuse=one.error)
            entry.declare(one)


if __name__ == "__main__":
    sys.exit(main())
