"""The command line: ``python -m labkit COMMAND``, or ``labkit COMMAND``.

Each command is a function of its parsed options that returns the exit status; the first line of its
docstring is its help. ``_COMMANDS`` at the end lists them all, each with the function that declares
its arguments. A command imports what it needs when it runs, so that ``labkit progress`` answers
without torch and ``labkit doctor`` also where torch is what is missing.
"""

import argparse
import dataclasses
import functools
import importlib.util
import json
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

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
    _add(parser, _COMMANDS)
    return parser.parse_args(arguments, Namespace(typed=arguments))


@dataclass(frozen=True)
class _Command:
    """What runs, and what declares its arguments."""

    run: Callable[[Namespace], int]
    declare: Callable[[ArgumentParser], None] = lambda parser: None

    @property
    def promise(self) -> str:
        return (self.run.__doc__ or "").splitlines()[0]


@dataclass(frozen=True)
class _Group:
    """Commands under one name."""

    promise: str
    commands: dict[str, _Command]


def _add(parser: ArgumentParser, commands: dict[str, "_Command | _Group"]) -> None:
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
        if isinstance(entry, _Group):
            _add(one, entry.commands)
        else:
            one.set_defaults(run=entry.run, refuse=one.error)
            entry.declare(one)


def _plainly(command: Callable[[Namespace], int]) -> Callable[[Namespace], int]:
    """The command; what it may meet (the log, a file, a name) is a sentence and exit status 1."""

    @functools.wraps(command)
    def run(options: Namespace) -> int:
        from labkit.base.progress import ProgressError

        try:
            return command(options)
        except (ProgressError, OSError, ValueError) as error:
            print(error, file=sys.stderr)
            return 1

    return run


# For everybody


def _declare_doctor(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the findings for programs")
    parser.add_argument(
        "--grader", action="store_true", help="for instructors: can you grade here?"
    )


def _doctor(options: Namespace) -> int:
    """Will the course run here? What is missing, and how to get it."""
    if options.grader:
        from labkit.grading.sandbox import readiness

        found = readiness.examine()
        facts = {"ready": found.ready, **dataclasses.asdict(found)}
        works = found.ready
    else:
        from labkit.course import doctor

        found = doctor.examine()
        facts = {"runs": found.runs, **dataclasses.asdict(found)}
        works = found.runs
    print(json.dumps(facts, indent=1) if options.json else found)
    return 0 if works else 1


def _declare_start(parser: ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", metavar="DIR", help="by default my_labs")


@_plainly
def _start(options: Namespace) -> int:
    """Copy the labs to a folder of your own, or update them there."""
    from labkit.course import my_labs

    started = my_labs.start(options.folder)
    print(started)
    return 1 if started.blocked else 0


def _declare_progress(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.add_argument("--lab", help="the exercises of one lab, such as 02_number_formats or 02")


@_plainly
def _progress(options: Namespace) -> int:
    """What you have passed, lab by lab."""
    from labkit.base import progress
    from labkit.base.manifest import read_manifest
    from labkit.course.progress_panel import as_text

    manifest = read_manifest()
    if options.lab is None:
        rows = progress.overview(manifest.labs)
    else:
        rows = progress.lab_progress(manifest.find(options.lab))
    if options.json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], default=datetime.isoformat))
        return 0
    print(as_text(rows))
    where = "LABKIT_PROGRESS=off: there is no log." if progress.is_off() else progress.path()
    print(f"\n{where}")
    return 0


# Interviews


def _declare_language(parser: ArgumentParser) -> None:
    parser.add_argument("--language", choices=("en", "zh"), help="kept for the next time")


def _language(options: Namespace) -> str:
    from labkit.interview import log as interview

    if options.language:
        interview.set_language(options.language)
    return options.language or interview.language()


def _declare_drill(parser: ArgumentParser) -> None:
    parser.add_argument("--count", type=int, metavar="N", help="questions in this sitting (10)")
    parser.add_argument("--topic", action="append", default=[], help="such as fp8; may be repeated")
    parser.add_argument("--core", action="store_true", help="only what interviewers ask most")
    _declare_language(parser)


@_plainly
def _drill(options: Namespace) -> int:
    """Interview questions: what is due, then what is new."""
    from labkit.interview import questions, sittings

    sitting = sittings.todays(
        questions.load(),
        count=10 if options.count is None else options.count,
        topics=options.topic,
        core=options.core,
    )
    return _hold_drill(sitting, _language(options))


def _hold_drill(sitting, language: str) -> int:
    from labkit.interview import drills, terminal
    from labkit.interview import log as interview

    trouble = drills.clock_trouble(interview.reviews(), datetime.now(UTC))
    if trouble:
        print(trouble)
    terminal.hold(sitting, language=language)
    return 0


def _declare_mock(parser: ArgumentParser) -> None:
    parser.add_argument("--length", type=int, choices=(5, 10, 15), help="questions (10)")
    parser.add_argument("--minutes", type=float, help="2 for each question if left out")
    parser.add_argument("--seed", type=int, help="the same seed asks the same way")
    parser.add_argument("--new", action="store_true", help="do not resume one that was broken off")
    _declare_language(parser)


@_plainly
def _mock(options: Namespace) -> int:
    """A mock interview of 5, 10 or 15 questions, with a report."""
    from labkit.interview import questions, sittings, terminal

    bank, language = questions.load(), _language(options)
    asked = {"length": options.length, "minutes": options.minutes, "seed": options.seed}
    sitting = None if options.new else sittings.resumed(bank, **asked)
    if sitting:
        print(f"Resumed at question {sitting.place + 1}; --new begins another.")
    else:
        sitting = sittings.new_mock(bank, **asked)
        print(f"Seed {sitting.mock.seed}")
    terminal.hold(sitting, language=language)
    return 0


@_plainly
def _plan(options: Namespace) -> int:
    """What is left to do when the interview is days away."""
    from labkit.interview import questions, terminal

    print(terminal.friday_text(questions.load()))
    return 0


@_plainly
def _ready(options: Namespace) -> int:
    """How ready you are, topic by topic."""
    from labkit.interview import questions, terminal

    print(terminal.readiness_text(questions.load(), _language(options)))
    return 0


@_plainly
def _diagnostic(options: Namespace) -> int:
    """A few questions on each lab, to find where to start."""
    from labkit.interview import questions, sittings

    return _hold_drill(sittings.diagnostic(questions.load()), _language(options))


def _declare_date(parser: ArgumentParser) -> None:
    parser.add_argument("day", nargs="?", type=_day, metavar="YYYY-MM-DD", help="kept from now on")


@_plainly
def _date(options: Namespace) -> int:
    """Say when the interview is, or show what you said."""
    from labkit.interview import log as interview

    trouble = options.day and interview.set_interview_date(options.day)
    if trouble:
        print(trouble, file=sys.stderr)
        return 1
    day = interview.interview_date()
    print(f"The interview is on {day:%Y-%m-%d}." if day else "No interview is ahead.")
    return 0


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no date; write it like 2026-12-01") from None


def _declare_export(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="OUT.json", help="the file to write")


@_plainly
def _export(options: Namespace) -> int:
    """Write your reviews to a file, for another machine."""
    from labkit.interview import log as interview

    print(f"{options.file}: {interview.export_reviews(options.file)} reviews")
    return 0


def _declare_import(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="IN.json", help="what `export` wrote")


@_plainly
def _import(options: Namespace) -> int:
    """Add the reviews of such a file to yours."""
    from labkit.interview import log as interview

    added, known = interview.import_reviews(options.file)
    print(f"{options.file}: {added} added, {known} known before")
    return 0


def _declare_anki(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="OUT.apkg", help="the file to write")
    _declare_language(parser)


@_plainly
def _anki(options: Namespace) -> int:
    """Write the interview questions as an Anki deck."""
    from labkit.interview import anki, questions

    cards = anki.export(questions.load(), options.file, _language(options))
    print(f"{options.file}: {cards} cards")
    return 0


# `labkit drill` once had these flags, which were commands: each says which command it is now.
_FLAGS_OF_DRILL = {
    "--friday": ("labkit interview plan", _plan),
    "--ready": ("labkit interview ready", _ready),
    "--diagnostic": ("labkit interview diagnostic", _diagnostic),
    "--export": ("labkit reviews export", _export),
    "--import": ("labkit reviews import", _import),
    "--anki": ("labkit anki", _anki),
}


def _declare_drill_and_its_flags(parser: ArgumentParser) -> None:
    _declare_drill(parser)
    parser.add_argument("--interview", type=_day, help=argparse.SUPPRESS)
    for flag in ("--friday", "--ready", "--diagnostic"):
        parser.add_argument(flag, action="store_true", help=argparse.SUPPRESS)
    for flag in ("--export", "--import", "--anki"):
        parser.add_argument(flag, type=Path, help=argparse.SUPPRESS)


@_plainly
def _drill_or_flag(options: Namespace) -> int:
    """Interview questions: what is due, then what is new."""
    given = vars(options)
    flags = [flag for flag in _FLAGS_OF_DRILL if given[flag[2:]]]
    if flags:
        flag, (command, run) = flags[0], _FLAGS_OF_DRILL[flags[0]]
        other = flags[1:] + [f"--{name}" for name in ("topic", "core") if given[name]]
        other += ["--count"] if options.count is not None else []
        if other:
            options.refuse(f"{flag} is `{command}` and does not go with {', '.join(other)}")
    if options.interview:
        from labkit.interview import log as interview

        interview.set_interview_date(options.interview)
    if not flags:
        return _drill(options)
    _language(options)  # kept, also by a command that has no words in it
    options.file = given[flag[2:]]
    return run(options)


# For instructors and authors


def _declare_build(parser: ArgumentParser) -> None:
    parser.add_argument("labs", nargs="*", metavar="LAB", help="such as 02_number_formats or 02")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="say what is stale, change nothing")
    mode.add_argument("--execute", action="store_true", help="execute current solutions again")
    # `labkit build --nbgrader DIR` is how `labkit nbgrader DIR` was once written.
    mode.add_argument("--nbgrader", type=Path, dest="course", help=argparse.SUPPRESS)
    parser.add_argument("--labs", nargs="+", dest="of_course", help=argparse.SUPPRESS)
    parser.add_argument("--extra", type=Path, action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--variants", action="store_true", help=argparse.SUPPRESS)


def _build(options: Namespace) -> int:
    """Build the notebooks from their sources. For authors."""
    if options.course:
        options.of_course = [*(options.of_course or []), *options.labs] or None
        return _nbgrader(options)
    for flag, given in (
        ("--labs", options.of_course),
        ("--extra", options.extra),
        ("--variants", options.variants),
    ):
        if given:
            options.refuse(f"{flag} belongs to `labkit nbgrader DIR`")
    if not _installed("dev", "jupytext", "nbgrader", "nbformat", "nbclient"):
        return 1
    from labkit.course import build, bundle
    from labkit.course.lab_source import LabError

    try:
        said = bundle.stale() if options.check else bundle.bundle()
        said += build.build(options.labs or None, check=options.check, execute=options.execute)
    except (LabError, build.BuildError, bundle.BundleError) as error:
        print(error, file=sys.stderr)
        return 1
    for sentence in said:
        print(sentence, file=sys.stderr if options.check else sys.stdout)
    if not said:
        print("Every notebook and every widget is current.")
    return 1 if options.check and said else 0


def _declare_nbgrader(parser: ArgumentParser) -> None:
    parser.add_argument("course", type=Path, metavar="DIR", help="the folder of the course")
    parser.add_argument(
        "--labs", nargs="+", dest="of_course", metavar="LAB", help="such as 02; all by default"
    )
    parser.add_argument(
        "--extra",
        type=Path,
        action="append",
        default=[],
        metavar="checks.py",
        help="hidden checks of your own; may be repeated",
    )
    parser.add_argument(
        "--variants", action="store_true", help="a seed for each student, not one for the class"
    )


def _nbgrader(options: Namespace) -> int:
    """Write an nbgrader course from the labs. For instructors."""
    if not _installed("instructor", "nbgrader", "jupytext"):
        return 1
    from labkit.course.build import BuildError
    from labkit.course.lab_source import LabError
    from labkit.grading.nbgrader import exported_course as nbgrader_course

    try:
        said = nbgrader_course.write_course(
            options.course, options.of_course, extra=options.extra, variants=options.variants
        )
    except (nbgrader_course.CourseError, BuildError, LabError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(said) or "The course is current.")
    return 0


def _installed(extra: str, *packages: str) -> bool:
    """Whether all packages are there; if not, a sentence says what to install."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            print(
                f"{package} is not installed. Run `pip install -e '.[{extra}]'` in the checkout.",
                file=sys.stderr,
            )
            return False
    return True


def _declare_grade(parser: ArgumentParser) -> None:
    parser.usage = "labkit grade SUBMISSIONS -o grades.csv [...], or labkit grade --self-test"
    add = parser.add_argument
    add("submissions", nargs="?", type=Path, metavar="SUBMISSIONS", help="a folder or an LMS's zip")
    add("-o", dest="out", type=Path, metavar="grades.csv", help="the table to write")
    add("--lab", help="one lab, such as 02_number_formats or 02")
    add("--jobs", type=int, metavar="N", help="submissions at a time; by default one a core")
    add("--extra", type=Path, metavar="checks.py", help="hidden checks of your own")
    add("--gradebook", type=Path, metavar="nbgrader.db", help="write the scores there too")
    add("--roster", type=Path, metavar="FILE", help="columns id, name, lms_id and maybe due")
    add("--only", action="append", default=[], metavar="EXERCISE", help="grade this again")
    add("--overrides", type=Path, metavar="FILE", help="student, lab, exercise, points, reason")
    add("--no-sandbox", action="store_true", help="run students' code as yourself; see the doctor")
    add("--self-test", action="store_true", help="do the course's own answers earn their points?")
    add("--scheduler", metavar="ADDRESS", help="of Dask, such as tcp://10.0.0.5:8786")
    add("--secret-file", type=Path, metavar="FILE", help="seeds the checks; made if absent")


_FLAGS_OF_GRADING = {
    "submissions": "SUBMISSIONS",
    "out": "-o",
    "extra": "--extra",
    "gradebook": "--gradebook",
    "roster": "--roster",
    "only": "--only",
    "overrides": "--overrides",
    "scheduler": "--scheduler",
    "secret_file": "--secret-file",
}


def _grade(options: Namespace) -> int:
    """Grade what a class handed in, in a sandbox. For instructors."""
    if options.jobs is not None and options.jobs < 1:
        options.refuse(f"--jobs is {options.jobs}; it is at least 1")
    if options.scheduler and options.jobs is not None:
        options.refuse("--jobs is for this machine; with --scheduler each worker has its own")
    if options.self_test:
        own = [flag for name, flag in _FLAGS_OF_GRADING.items() if vars(options)[name]]
        if own:
            options.refuse(
                f"--self-test grades the course's own answers and does not go with {', '.join(own)}"
            )
    from labkit.grading import command

    return command.run(options)


def _declare_record(parser: ArgumentParser) -> None:
    parser.add_argument("out", metavar="OUT.json", type=Path, help="the file to write")
    parser.add_argument("--device", help="such as cuda:1; the accelerator, or the CPU without one")
    parser.add_argument("--quick", action="store_true", help="a trial of seconds, to see it work")


def _record(options: Namespace) -> int:
    """Measure this machine for some minutes; write one recording."""
    if options.out.is_dir() or not options.out.parent.is_dir():
        print(f"{options.out}: name a file in a folder that exists", file=sys.stderr)
        return 2
    import torch

    from labkit.measuring import recordings

    device = options.device or str(torch.accelerator.current_accelerator(True) or "cpu")
    try:
        done = recordings.record(
            device, command=shlex.join(["labkit", *options.typed]), quick=options.quick
        )
    except (ValueError, RuntimeError) as error:
        print(str(error).splitlines()[0], file=sys.stderr)
        return 1
    recordings.save(done, options.out)
    print(f"{options.out}: {done.source}")
    return 0


_COMMANDS: dict[str, _Command | _Group] = {
    "doctor": _Command(_doctor, _declare_doctor),
    "start": _Command(_start, _declare_start),
    "progress": _Command(_progress, _declare_progress),
    "drill": _Command(_drill_or_flag, _declare_drill_and_its_flags),
    "mock": _Command(_mock, _declare_mock),
    "interview": _Group(
        "Prepare for an interview: plan, readiness, date, questions.",
        {
            "plan": _Command(_plan),
            "ready": _Command(_ready, _declare_language),
            "date": _Command(_date, _declare_date),
            "diagnostic": _Command(_diagnostic, _declare_language),
            "drill": _Command(_drill, _declare_drill),
            "mock": _Command(_mock, _declare_mock),
        },
    ),
    "reviews": _Group(
        "Carry your reviews to another machine.",
        {
            "export": _Command(_export, _declare_export),
            "import": _Command(_import, _declare_import),
        },
    ),
    "anki": _Command(_anki, _declare_anki),
    "grade": _Command(_grade, _declare_grade),
    "nbgrader": _Command(_nbgrader, _declare_nbgrader),
    "build": _Command(_build, _declare_build),
    "record": _Command(_record, _declare_record),
}


if __name__ == "__main__":
    sys.exit(main())
