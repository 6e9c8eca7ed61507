"""The commands of learners, and of those who prepare for an interview."""

import argparse
import calendar
import dataclasses
import json
import sys
from argparse import ArgumentParser, Namespace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from labkit.commands import Command, CommandGroup, plainly


def _declare_doctor(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the findings for programs")
    parser.add_argument(
        "--grader", action="store_true", help="for instructors: can you grade here?"
    )


def _doctor(options: Namespace) -> int:
    """Will the course run here? What is missing, and how to get it."""
    if options.grader:
        from labkit.grading.sandbox import sandbox_state

        found = sandbox_state.sandbox_state()
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


@plainly
def _start(options: Namespace) -> int:
    """Copy the labs to a folder of your own, or update them there."""
    from labkit.course import my_labs

    started = my_labs.start(options.folder)
    print(started)
    return 1 if started.blocked else 0


def _declare_progress(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.add_argument("--lab", help="the exercises of one lab, such as 02_number_formats or 02")


@plainly
def _progress(options: Namespace) -> int:
    """What you have passed, lab by lab."""
    from labkit.base import progress
    from labkit.base.home import read_manifest
    from labkit.course.progress_panel import as_text, lab_progress, overview

    manifest = read_manifest()
    if options.lab is None:
        rows = overview(manifest.labs, progress.events())
    else:
        rows = lab_progress(manifest.find(options.lab), progress.events())
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
    parser.add_argument(
        "--count", type=int, metavar="N", help="questions in this sitting (10; with --core, all)"
    )
    parser.add_argument("--topic", action="append", default=[], help="such as fp8; may be repeated")
    parser.add_argument("--core", action="store_true", help="only what interviewers ask most")
    _declare_language(parser)


@plainly
def _drill(options: Namespace) -> int:
    """Interview questions: what is due, then what is new."""
    from labkit.interview import questions, sittings

    sitting = sittings.todays(
        questions.load_bank(),
        count=options.count,
        topics=options.topic,
        core=options.core,
    )
    return _hold_drill(sitting, _language(options))


def _hold_drill(sitting, language: str) -> int:
    from labkit.interview import drills, terminal
    from labkit.interview import log as interview

    trouble = drills.clock_trouble(interview.reviews(), datetime.now(UTC))
    if trouble:
        print(trouble[language])
    terminal.hold(sitting, language=language)
    return 0


def _declare_mock(parser: ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, help="5 to 120, 20 if left out")
    parser.add_argument("--seed", type=int, help="the same seed asks the same way")
    parser.add_argument("--new", action="store_true", help="do not resume one that was broken off")
    _declare_language(parser)


@plainly
def _mock(options: Namespace) -> int:
    """A mock interview of some minutes, with a report."""
    from labkit.interview import log as interview
    from labkit.interview import questions, sittings, terminal
    from labkit.interview.wording import WORDS

    bank, language = questions.load_bank(), _language(options)
    asked = {"minutes": options.minutes, "seed": options.seed}
    sitting = None if options.new else sittings.resumed(bank, **asked)
    if sitting:
        print(WORDS["resumed"][language].format(place=sitting.place + 1))
    else:
        other = None if options.new else interview.unfinished_mock(bank)
        if other:
            print(WORDS["other mock"][language].format(seed=other[1].seed))
        sitting = sittings.new_mock(bank, **asked)
        print(f"Seed {sitting.mock.seed}")
    terminal.hold(sitting, language=language)
    return 0


@plainly
def _plan(options: Namespace) -> int:
    """What is left to do until the interview."""
    from labkit.interview import questions, terminal

    print(terminal.plan_text(questions.load_bank(), _language(options)))
    return 0


@plainly
def _ready(options: Namespace) -> int:
    """How ready you are, topic by topic."""
    from labkit.interview import questions, terminal

    print(terminal.readiness_text(questions.load_bank(), _language(options)))
    return 0


@plainly
def _diagnostic(options: Namespace) -> int:
    """A few questions on each lab, to find where to start."""
    from labkit.interview import questions, sittings

    return _hold_drill(sittings.diagnostic_sitting(questions.load_bank()), _language(options))


def _declare_date(parser: ArgumentParser) -> None:
    parser.add_argument(
        "day",
        nargs="?",
        type=_day,
        metavar="DAY",
        help="a date such as 2026-12-01, or a weekday such as fri: the next one, today included;"
        " kept from now on",
    )
    _declare_language(parser)


@plainly
def _date(options: Namespace) -> int:
    """Say when the interview is, or show what you said."""
    from labkit.interview import log as interview
    from labkit.interview import wording

    language = _language(options)
    trouble = options.day and (
        _past(options.day, language) or interview.set_interview_date(options.day)
    )
    if trouble:
        print(trouble, file=sys.stderr)
        return 1
    found = interview.interview_date()
    day = options.day or (found and found.date())
    print(wording.ahead(day, date.today())[language] if day else wording.WORDS["no date"][language])
    return 0


def _past(day: date, language: str) -> str | None:
    """A sentence for a day on which no interview can be any more."""
    from labkit.interview.wording import WORDS

    return WORDS["past date"][language].format(day=day) if day < date.today() else None


def _day(text: str) -> date:
    """A date such as 2026-12-01; fri is the next Friday, or today where it is one."""
    today, said = date.today(), text.lower()
    for number, name in enumerate(calendar.day_name):
        if len(said) >= 3 and name.lower().startswith(said):
            return today + timedelta(days=(number - today.weekday()) % 7)
    try:
        return date.fromisoformat(text)
    except ValueError:
        refused = f"{text!r} is no date; write it like 2026-12-01 or fri"
        raise argparse.ArgumentTypeError(refused) from None


def _declare_export(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="OUT.json", help="the file to write")


@plainly
def _export(options: Namespace) -> int:
    """Write your reviews to a file, for another machine."""
    from labkit.interview import log as interview
    from labkit.interview.wording import WORDS

    count, said = interview.export_reviews(options.file), WORDS["reviews written"]
    print(said[interview.language()].format(file=options.file, count=count))
    return 0


def _declare_import(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="IN.json", help="what `export` wrote")


@plainly
def _import(options: Namespace) -> int:
    """Add the reviews of such a file to yours."""
    from labkit.interview import log as interview
    from labkit.interview.wording import WORDS

    added, known = interview.import_reviews(options.file)
    said = WORDS["reviews read"][interview.language()]
    print(said.format(file=options.file, added=added, known=known))
    return 0


def _declare_anki(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="OUT.apkg", help="the file to write")
    _declare_language(parser)


@plainly
def _anki(options: Namespace) -> int:
    """Write the interview questions as an Anki deck."""
    from labkit.interview import anki, questions
    from labkit.interview.wording import WORDS

    language = _language(options)
    deck = anki.export(questions.load_bank(), options.file, language)
    facts = {"file": options.file, "tag": anki.ON_PAPER, **dataclasses.asdict(deck)}
    print(WORDS["exported"][language].format(**facts))
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


@plainly
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

        past = _past(options.interview, _language(options))
        if past:
            options.refuse(past)
        interview.set_interview_date(options.interview)
    if not flags:
        return _drill(options)
    _language(options)  # kept, also by a command that has no words in it
    options.file = given[flag[2:]]
    return run(options)


COMMANDS: dict[str, Command | CommandGroup] = {
    "doctor": Command(_doctor, _declare_doctor),
    "start": Command(_start, _declare_start),
    "progress": Command(_progress, _declare_progress),
    "drill": Command(_drill_or_flag, _declare_drill_and_its_flags),
    "mock": Command(_mock, _declare_mock),
    "interview": CommandGroup(
        "Prepare for an interview: plan, readiness, date, questions.",
        {
            "plan": Command(_plan, _declare_language),
            "ready": Command(_ready, _declare_language),
            "date": Command(_date, _declare_date),
            "diagnostic": Command(_diagnostic, _declare_language),
            "drill": Command(_drill, _declare_drill),
            "mock": Command(_mock, _declare_mock),
        },
    ),
    "reviews": CommandGroup(
        "Carry your reviews to another machine.",
        {
            "export": Command(_export, _declare_export),
            "import": Command(_import, _declare_import),
        },
    ),
    "anki": Command(_anki, _declare_anki),
}
