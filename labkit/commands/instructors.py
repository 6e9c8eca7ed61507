"""The commands of instructors, who hand out and grade labs, and of authors, who build them."""

import argparse
import importlib.util
import shlex
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from urllib.parse import urlsplit

from labkit.commands import Command, CommandGroup


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
    parser.set_defaults(hidden_feedback="result")


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
    from labkit.course.terms import TermError

    try:
        said = bundle.stale_bundles() if options.check else bundle.bundle()
        said += build.build(options.labs or None, check=options.check, execute=options.execute)
    except (LabError, TermError, build.BuildError, bundle.BundleError) as error:
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
    parser.add_argument(
        "--hidden-feedback",
        choices=["result", "message"],
        default="result",
        help="what feedback tells of a hidden check; by default whether it passed",
    )


def _nbgrader(options: Namespace) -> int:
    """Write an nbgrader course from the labs. For instructors."""
    if not _installed("instructor", "nbgrader", "jupytext"):
        return 1
    from labkit.course.build import BuildError
    from labkit.course.lab_source import LabError
    from labkit.course.terms import TermError
    from labkit.grading.nbgrader import exported_course as nbgrader_course

    try:
        said = nbgrader_course.write_course(
            options.course,
            options.of_course,
            extra=options.extra,
            variants=options.variants,
            hidden_feedback=options.hidden_feedback,
        )
    except (nbgrader_course.CourseError, BuildError, LabError, TermError, OSError) as error:
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
    add("--gradebook", type=Path, metavar="gradebook.db", help="write the scores there too")
    add("--roster", type=Path, metavar="FILE", help="columns id, name, lms_id and maybe due")
    add("--only", action="append", default=[], metavar="EXERCISE", help="grade this again")
    add("--overrides", type=Path, metavar="FILE", help="points and comments by hand")
    add("--partial", action="store_true", help="a failed answer earns a part of the points")
    add("--lms", choices=("moodle", "canvas"), help="write files to upload there")
    add(
        "--lms-table",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="the LMS's worksheet or gradebook, to be filled",
    )
    add("--chinese", action="store_true", help="feedback pages state wrong ideas in Chinese too")
    # The words stand in labkit.grading too, which is read when it is needed.
    add(
        "--hidden-feedback",
        choices=["result", "message", "none"],
        help="what a student's page tells of a hidden check; by default whether it passed",
    )
    add("--labs-url", metavar="URL", help="where the labs' notebooks lie; pages then link to them")
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
    "partial": "--partial",
    "lms": "--lms",
    "lms_table": "--lms-table",
    "chinese": "--chinese",
    "hidden_feedback": "--hidden-feedback",
    "labs_url": "--labs-url",
    "scheduler": "--scheduler",
    "secret_file": "--secret-file",
}


def _grade(options: Namespace) -> int:
    """Grade what a class handed in, in a sandbox. For instructors."""
    if options.jobs is not None and options.jobs < 1:
        options.refuse(f"--jobs is {options.jobs}; it is at least 1")
    if options.scheduler and options.jobs is not None:
        options.refuse("--jobs is for this machine; with --scheduler each worker has its own")
    if options.lms_table and not options.lms:
        options.refuse("--lms-table needs --lms, which says whose table it is")
    if options.hidden_feedback and not options.extra and not options.self_test:
        options.refuse("--hidden-feedback needs --extra, the file of the hidden checks")
    if options.labs_url is not None and not _is_web_address(options.labs_url):
        options.refuse(
            f"--labs-url is {options.labs_url!r}; it is the address of the folder with the labs'"
            " notebooks and begins with https:// or http://, with no ? and no # in it"
        )
    if options.self_test:
        own = [flag for name, flag in _FLAGS_OF_GRADING.items() if vars(options)[name]]
        if own:
            options.refuse(
                f"--self-test grades the course's own answers and does not go with {', '.join(own)}"
            )
    from labkit.grading import command

    return command.run_grade(options)


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError:  # half an IPv6 address
        return False
    written = text.isprintable() and not set(' "<>\\^`{|}?#') & set(text)
    return parts.scheme in ("http", "https") and bool(host) and written


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
        done = recordings.record_device(
            device, command=shlex.join(["labkit", *options.typed]), quick=options.quick
        )
    except (ValueError, RuntimeError) as error:
        print(str(error).splitlines()[0], file=sys.stderr)
        return 1
    recordings.save(done, options.out)
    print(f"{options.out}: {done.source}")
    for trouble in done.trouble:
        print(trouble, file=sys.stderr)
    if done.trouble:
        print(
            "The recording is kept, and is marked wherever it is shown. Close other programs and "
            "record again",
            file=sys.stderr,
        )
    return 0


COMMANDS: dict[str, Command | CommandGroup] = {
    "grade": Command(_grade, _declare_grade),
    "nbgrader": Command(_nbgrader, _declare_nbgrader),
    "build": Command(_build, _declare_build),
    "record": Command(_record, _declare_record),
}
