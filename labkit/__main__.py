"""The commands: ``python -m labkit COMMAND``, or ``labkit COMMAND``.

A command imports what it needs when it runs, so that ``labkit progress`` answers without torch and
``labkit doctor`` also where torch is what is missing.
"""

import argparse
import dataclasses
import json
import shlex
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status; without a command, list the commands."""
    arguments = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(
        prog="labkit",
        usage="labkit COMMAND [...]",
        description="The commands of the mixed precision labs.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="commands:\n"
        + "\n".join(f"  {name:<10} {_promise(command)}" for name, command in _COMMANDS.items())
        + "\n\n`labkit COMMAND --help` tells more.",
    )
    parser.add_argument(
        "command", nargs="?", choices=_COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS
    )
    # What follows the command is the command's own, its --help too.
    chosen = parser.parse_args(arguments[:1]).command
    if chosen is None:
        parser.print_help()
        return 0
    return _COMMANDS[chosen](arguments[1:])


def _doctor(arguments: list[str]) -> int:
    """Will the course run on this machine? Says what is missing and how to mend it."""
    parser = _parser("doctor", _doctor)
    parser.add_argument("--json", action="store_true", help="the findings for programs")
    parser.add_argument(
        "--grader", action="store_true", help="for instructors: can you grade here?"
    )
    options = parser.parse_args(arguments)
    if options.grader:
        return _examine_grader(as_json=options.json)
    from labkit.course.doctor import examine

    report = examine()
    findings = {"runs": report.runs, **dataclasses.asdict(report)}
    print(json.dumps(findings, indent=1) if options.json else report)
    return 0 if report.runs else 1


def _examine_grader(*, as_json: bool) -> int:
    from labkit.grading.sandbox import readiness

    found = readiness.examine()
    facts = {"ready": found.ready, **dataclasses.asdict(found)}
    print(json.dumps(facts, indent=1) if as_json else found)
    return 0 if found.ready else 1


def _start(arguments: list[str]) -> int:
    """Copy the labs to a folder of your own, or carry your answers into updated ones."""
    from labkit.course import my_labs

    return my_labs.main(arguments)


def _show_progress(arguments: list[str]) -> int:
    """What you have passed, lab by lab; --lab LAB shows one lab's exercises."""
    parser = _parser("progress", _show_progress)
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.add_argument("--lab", help="one lab, such as 02_number_formats or 02")
    options = parser.parse_args(arguments)
    from labkit.base import progress
    from labkit.course.progress_panel import as_text

    try:
        manifest = progress.read_manifest()
        if options.lab is None:
            rows = progress.overview(manifest)
        else:
            rows = progress.lab_progress(manifest, _full_name(options.lab, manifest))
    except (progress.ProgressError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], default=datetime.isoformat))
        return 0
    print(as_text(rows))
    where = "LABKIT_PROGRESS=off: there is no log." if progress.is_off() else progress.path()
    print(f"\n{where}")
    return 0


def _build(arguments: list[str]) -> int:
    """Build the notebooks from their sources; --check says what is stale. For authors."""
    if any(argument.split("=")[0] == "--nbgrader" for argument in arguments):
        from labkit.grading.nbgrader import exported_course as nbgrader_course

        return nbgrader_course.main(arguments)
    try:
        from labkit.course import build

        return build.main(arguments)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("labkit"):
            raise
        print(
            f"labkit build needs {error.name}, which is not installed. Run"
            " `pip install -e '.[dev]'` in the checkout.",
            file=sys.stderr,
        )
        return 1


def _record(arguments: list[str]) -> int:
    """Measure this machine for some minutes and write one recording, with its provenance."""
    parser = _parser("record", _record)
    parser.add_argument("out", metavar="OUT.json", type=Path, help="the file to write")
    parser.add_argument("--device", help="such as cuda:1; the accelerator, or the CPU without one")
    parser.add_argument("--quick", action="store_true", help="a trial of seconds, to see it work")
    options = parser.parse_args(arguments)
    if options.out.is_dir() or not options.out.parent.is_dir():
        print(f"{options.out}: name a file in a folder that exists", file=sys.stderr)
        return 2
    import torch

    from labkit.measuring import recordings

    device = options.device or str(torch.accelerator.current_accelerator(True) or "cpu")
    try:
        done = recordings.record(
            device, command=shlex.join(["labkit", "record", *arguments]), quick=options.quick
        )
    except (ValueError, RuntimeError) as error:
        print(str(error).splitlines()[0], file=sys.stderr)
        return 1
    recordings.save(done, options.out)
    print(f"{options.out}: {done.source}")
    return 0


def _drill(arguments: list[str]) -> int:
    """Interview questions: what is due, then what is new. In the terminal, offline."""
    parser = _parser("drill", _drill)
    parser.add_argument("--count", type=int, default=10, help="questions in this sitting (10)")
    parser.add_argument("--topic", action="append", default=[], help="such as fp8; may be repeated")
    parser.add_argument("--core", action="store_true", help="the forty that are asked most")
    parser.add_argument("--friday", action="store_true", help="what to do when it is days away")
    parser.add_argument("--diagnostic", action="store_true", help="twelve questions on labs 01-06")
    parser.add_argument("--language", choices=("en", "zh"), help="kept for the next time")
    parser.add_argument("--interview", type=_day, metavar="YYYY-MM-DD", help="when it is; kept")
    parser.add_argument("--ready", action="store_true", help="how ready you are, topic by topic")
    parser.add_argument("--export", type=Path, metavar="OUT.json", help="write your reviews")
    parser.add_argument("--import", type=Path, metavar="IN.json", dest="take", help="add reviews")
    parser.add_argument("--anki", type=Path, metavar="OUT.apkg", help="the bank as an Anki deck")
    options = parser.parse_args(arguments)
    from labkit.base import progress
    from labkit.interview import drills, questions, sittings, terminal
    from labkit.interview import log as interview

    try:
        bank = questions.load()
        if options.language:
            interview.set_language(options.language)
        if options.interview:
            interview.set_interview_date(options.interview)
        language = options.language or interview.language()
        if options.take:
            added, known = interview.import_reviews(options.take)
            print(f"{options.take}: {added} added, {known} known before")
        if options.export:
            print(f"{options.export}: {interview.export_reviews(options.export)} reviews")
        if options.anki:
            from labkit.interview import anki

            print(f"{options.anki}: {anki.export(bank, options.anki, language)} cards")
        if options.ready:
            print(terminal.readiness_text(bank, language))
        if options.friday:
            print(terminal.friday_text(bank))
        asked = (options.take, options.export, options.anki, options.ready, options.friday)
        if not any(asked):
            past, now = interview.reviews(), datetime.now(UTC)
            print(drills.clock_trouble(past, now) or "", end="")
            sitting = (
                sittings.diagnostic(bank)
                if options.diagnostic
                else sittings.todays(
                    bank, count=options.count, topics=options.topic, core=options.core
                )
            )
            terminal.hold(sitting, language=language)
    except (progress.ProgressError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _mock(arguments: list[str]) -> int:
    """A mock interview of 5, 10 or 15 questions; the report comes at its end."""
    parser = _parser("mock", _mock)
    parser.add_argument("--length", type=int, default=10, choices=(5, 10, 15))
    parser.add_argument("--minutes", type=float, help="2 for each question if left out")
    parser.add_argument("--seed", type=int, help="the same seed asks the same way")
    parser.add_argument("--new", action="store_true", help="do not resume one that was broken off")
    parser.add_argument("--language", choices=("en", "zh"), help="kept for the next time")
    options = parser.parse_args(arguments)
    from labkit.base import progress
    from labkit.interview import log as interview
    from labkit.interview import questions, sittings, terminal

    try:
        bank = questions.load()
        if options.language:
            interview.set_language(options.language)
        broken_off = sittings.resumed(bank, seed=options.seed, length=options.length)
        sitting = None if options.new else broken_off
        if sitting:
            print(f"Resumed at question {sitting.place + 1}; --new begins another.")
        else:
            sitting = sittings.new_mock(
                bank, length=options.length, minutes=options.minutes, seed=options.seed
            )
            print(f"Seed {sitting.mock.seed}")
        terminal.hold(sitting, language=options.language or interview.language())
    except (progress.ProgressError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _grade(arguments: list[str]) -> int:
    """Grade what a class handed in, in a sandbox. For instructors."""
    from labkit.grading import command

    return command.main(arguments)


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "doctor": _doctor,
    "start": _start,
    "progress": _show_progress,
    "drill": _drill,
    "mock": _mock,
    "build": _build,
    "grade": _grade,
    "record": _record,
}


def _promise(command: Callable) -> str:
    return (command.__doc__ or "").splitlines()[0]


def _parser(name: str, command: Callable) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f"labkit {name}", description=_promise(command))


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no date; write it like 2026-12-01") from None


def _full_name(lab: str, manifest: dict) -> str:
    """The lab of that name, or the one whose number it is: 02 is 02_number_formats."""
    names = [entry["lab"] for entry in manifest["labs"]]
    numbered = [name for name in names if name.split("_")[0] == lab]
    return numbered[0] if numbered else lab


if __name__ == "__main__":
    sys.exit(main())
