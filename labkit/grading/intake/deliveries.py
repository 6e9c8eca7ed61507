"""Find what was handed in: a folder in nbgrader's layout, a flat folder, or a zip of an LMS.

Files are looked at one after the other and never unpacked to the disk. A name that leads out of
the folder, a link, an entry that grows beyond its bound: each becomes a record that says so, and
the next file follows. Whose a file is, the first part of its path says and no other: what stands
below that a student may have named.
"""

import os
import re
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from labkit.grading.intake.reading import LARGEST
from labkit.grading.intake.remarks import Remark

MOST_FILES = 100_000
"""Files in one delivery; a class of 5,000 with seven labs each hands in 35,000 notebooks."""

LARGEST_DELIVERY = 32 * 2**30
"""Bytes that all notebooks of one zip may unpack to."""

_SKIPPED = {"__MACOSX", ".ipynb_checkpoints", ".git", "__pycache__"}
_MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_[a-z]+(_.*)?")
_CANVAS = re.compile(r"(?P<name>[^_]+)(?P<late>_LATE)?_(?P<id>\d+)_(?P<attempt>\d+)_(?P<file>.+)")
_DELIVERIES = {"submitted", "submissions"}
_NO_TIME = (1980, 1, 1, 0, 0, 0)  # what a zip says that knows no time


class IntakeError(Exception):
    """Nothing to grade, in a sentence with what to do."""


@dataclass(frozen=True, kw_only=True)
class Handed:
    """One file that somebody handed in.

    ``content`` is None where the file was refused; ``cause`` and ``trouble`` then say why, in a
    word or two and in a sentence. ``at`` is when it was handed in, as far as the files tell;
    ``attempt`` is what the LMS counts up; ``marked_late``: the LMS's own mark.
    """

    student: str
    file: str
    lms_id: str = ""
    assignment: str = ""
    at: datetime | None = None
    attempt: int = 0
    marked_late: bool = False
    content: bytes | None = None
    cause: str = ""
    trouble: str = ""
    remarks: tuple[Remark, ...] = ()
    helpers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Found:
    """A file of the delivery: its path in it, when it was written, and its bytes or the reason."""

    path: str
    at: datetime | None
    content: bytes | None = None
    cause: str = ""
    trouble: str = ""


def collect(where: Path, labs: Iterable[str]) -> Iterator[Handed]:
    """Everything handed in at ``where``, one file at a time, in the order of the names.

    ``labs`` are the course's, by name: a file name such as `ada_02_number_formats.ipynb` is split
    there. Raises IntakeError where there is nothing to grade.
    """
    labs = sorted(labs, key=len, reverse=True)
    if where.is_dir():
        inner = [where / name for name in sorted(_DELIVERIES)]
        inner = [folder for folder in inner if folder.is_dir() and not folder.is_symlink()]
        found = _in_folder(inner[-1] if inner else where, labs)
    elif where.is_file() and zipfile.is_zipfile(where):
        found = _in_zip(where, labs)
    elif where.is_file() and where.suffix == ".ipynb":
        found = iter([_read(where, where.name)])
    elif where.is_file():
        raise IntakeError(f"{where} is neither a folder, nor a zip, nor a notebook.")
    else:
        raise IntakeError(f"{where} does not exist; name the folder or zip of the submissions.")
    nothing, others = True, {}
    with_notebook = set()
    for one in found:
        handed = _handed(one, labs)
        if one.content is None and not one.cause:
            others.setdefault(handed.student, handed)
            continue
        nothing = False
        with_notebook.add(handed.student)
        yield handed
    for student, handed in others.items():
        # A stray README, or what a grader wrote beside the submissions, is nobody's.
        if student not in with_notebook and (handed.lms_id or handed.file.count("/") > 1):
            nothing = False
            yield replace(
                handed,
                cause="no notebook",
                trouble=f"`{PurePosixPath(handed.file).name}` was handed in, and no notebook.",
            )
    if nothing:
        raise IntakeError(
            f"{where} holds no submissions: no file in it ends in .ipynb. Folders are searched as"
            " STUDENT/ASSIGNMENT/*.ipynb and STUDENT/*.ipynb, or notebooks side by side."
        )


def shown(text: str) -> str:
    """A name as it can be written anywhere: no control characters, no half characters."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    text = unicodedata.normalize("NFC", text)  # macOS writes an accent as a letter of its own
    kept = "".join(c if unicodedata.category(c)[0] != "C" else "?" for c in text)
    return kept.strip()[:200]


def _in_folder(root: Path, labs: list[str]) -> Iterator[_Found]:
    files = [file for file in _walk(root) if file.name != "timestamp.txt"]  # nbgrader's
    paths = [file.relative_to(root).as_posix() for file in files]
    top = _common_top(paths, labs)
    for file, path in zip(files, paths, strict=True):
        path = path.removeprefix(top)
        if file.is_symlink() and file.is_dir():
            yield _refused(path, "link", "a link to a folder")
        elif not path.lower().endswith(".ipynb"):
            yield _Found(path=path, at=None)
        else:
            yield _read(file, path)


def _walk(root: Path) -> list[Path]:
    """Every file below a folder, and the links to folders, which are not followed."""
    found: list[Path] = []
    for folder, folders, files in os.walk(root):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        folders[:] = sorted(name for name in folders if not _is_noise(name) and name not in links)
        names = sorted(links) + sorted(name for name in files if not _is_noise(name))
        found += [Path(folder) / name for name in names]
        if len(found) > MOST_FILES:
            raise IntakeError(
                f"{root} holds more than {MOST_FILES} files; grade it in several parts."
            )
    return found


def _is_noise(name: str) -> bool:
    return name.startswith((".", "~")) or name in _SKIPPED


def _read(file: Path, path: str) -> _Found:
    try:
        descriptor = os.open(
            file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        )
    except OSError as error:
        if file.is_symlink():
            return _refused(path, "link", "a link")
        return _Found(path=path, at=None, cause="unreadable", trouble=f"{error.strerror}.")
    with os.fdopen(descriptor, "rb") as opened:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            return _refused(path, "unreadable", "no ordinary file")
        try:
            content = opened.read(LARGEST + 1)
        except OSError as error:
            return _Found(path=path, at=None, cause="unreadable", trouble=f"{error.strerror}.")
    at = _timestamp(file.parent / "timestamp.txt")
    return _bounded(path, at or datetime.fromtimestamp(facts.st_mtime, UTC), content)


def _bounded(path: str, at: datetime | None, content: bytes) -> _Found:
    if len(content) > LARGEST:
        return _Found(
            path=path,
            at=at,
            cause="too large",
            trouble=f"The file has more than {LARGEST >> 20} MB. Clear the outputs of all cells,"
            " save, and hand it in again.",
        )
    return _Found(path=path, at=at, content=content)


def _refused(path: str, cause: str, what: str) -> _Found:
    return _Found(path=path, at=None, cause=cause, trouble=f"It is {what}; it was not opened.")


def _timestamp(file: Path) -> datetime | None:
    """When nbgrader collected it: `2026-10-01 12:00:00.000000 UTC`."""
    try:
        text = "" if file.is_symlink() else file.read_text(encoding="utf-8")[:100].strip()
        at = datetime.fromisoformat(text.removesuffix(" UTC"))
    except (OSError, ValueError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _in_zip(where: Path, labs: list[str]) -> Iterator[_Found]:
    try:
        archive = zipfile.ZipFile(where)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise IntakeError(f"{where} is no zip that can be read: {error}.") from None
    with archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        if len(entries) > MOST_FILES:
            raise IntakeError(
                f"{where} holds {len(entries)} files, and {MOST_FILES} are the limit."
            )
        top = _common_top([entry.filename for entry in entries], labs)
        unpacked = 0
        for entry in sorted(entries, key=lambda entry: (entry.filename, entry.header_offset)):
            path = entry.filename
            if not _leads_out(path) and any(_is_noise(part) for part in path.split("/")):
                continue
            found = _unpacked(archive, entry, top, unpacked)
            unpacked += len(found.content or b"")
            yield found


def _common_top(paths: list[str], labs: list[str]) -> str:
    """The folders that were packed with the class in them: `class/` of `class/STUDENT/x.ipynb`.

    What all notebooks agree on no single student has named.
    """
    paths = [path for path in paths if path.lower().endswith(".ipynb") and not _leads_out(path)]
    split = [path.split("/") for path in paths]
    split = [parts for parts in split if not any(_is_noise(part) for part in parts)]
    top: list[str] = []
    while split and _is_class(split, labs):
        top.append(split[0][0])
        split = [parts[1:] for parts in split]
    return "".join(f"{part}/" for part in top)


def _is_class(split: list[list[str]], labs: list[str]) -> bool:
    """Whether the first folder is one around all students."""
    if len({parts[0] for parts in split}) > 1 or min(map(len, split)) < 2:
        return False
    first, second = split[0][0], {parts[1] for parts in split}
    if first in _DELIVERIES or second <= _DELIVERIES or all(map(_is_of_an_lms, second)):
        return True
    if min(map(len, split)) < 3 or second & set(labs):
        return False
    return len(second) > 1 or {parts[2] for parts in split} <= set(labs)


def _is_of_an_lms(name: str) -> bool:
    return bool(_MOODLE.fullmatch(name) or _CANVAS.fullmatch(name))


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, top: str, unpacked: int) -> _Found:
    path = entry.filename
    if _leads_out(path):
        # The last part still tells whose it is; a path out of the folder is followed nowhere.
        name = re.split(r"[/\\]", path)[-1] or "unnamed"
        return _refused(
            name, "unsafe name", f"named {shown(path)!r}, which leads out of its folder"
        )
    path = path.removeprefix(top)
    if stat.S_ISLNK(entry.external_attr >> 16):
        return _refused(path, "link", "a link")
    if not path.lower().endswith(".ipynb"):
        return _Found(path=path, at=None)
    if entry.flag_bits & 1:
        return _refused(path, "encrypted", "encrypted")
    if unpacked > LARGEST_DELIVERY:
        return _refused(path, "too large", "beyond what one zip may unpack to")
    try:
        at = None if entry.date_time == _NO_TIME else datetime(*entry.date_time).astimezone(UTC)
    except (ValueError, OverflowError):
        at = None
    try:
        # The size that an entry states is not believed: what is read is bounded.
        with archive.open(entry) as opened:
            content = opened.read(LARGEST + 1)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError) as error:
        return _Found(
            path=path,
            at=at,
            cause="corrupt",
            trouble=f"It cannot be unpacked: {shown(str(error))}.",
        )
    return _bounded(path, at, content)


def _leads_out(path: str) -> bool:
    return path.startswith("/") or "\\" in path or ":" in path[:2] or ".." in path.split("/")


def _handed(found: _Found, labs: list[str]) -> Handed:
    """Whose file it is, from where it lies and how it is called."""
    parts = [part for part in PurePosixPath(found.path).parts if part not in ("/", ".")]
    student, assignment, facts = _whose(parts, labs)
    return Handed(
        student=shown(student) or "unnamed",
        file=shown("/".join(parts)),
        assignment=shown(assignment),
        at=found.at,
        content=found.content,
        cause=found.cause,
        trouble=found.trouble,
        **facts,
    )


def _whose(parts: list[str], labs: list[str]) -> tuple[str, str, dict]:
    first, *rest = parts
    if moodle := _MOODLE.fullmatch(first):
        return moodle["name"], _lab_in(parts[-1], labs), {"lms_id": moodle["id"]}
    if len(rest) > 1:
        return first, next((part for part in rest[:-1] if part in labs), rest[0]), {}
    if rest:
        return first, _lab_in(rest[0], labs), {}
    if canvas := _CANVAS.fullmatch(first):
        facts = {
            "lms_id": canvas["id"],
            "attempt": int(canvas["attempt"]),
            "marked_late": bool(canvas["late"]),
        }
        return canvas["name"], _lab_in(canvas["file"], labs), facts
    stem = re.sub(r"\.ipynb$", "", first, flags=re.IGNORECASE)
    lab = _lab_in(first, labs)
    alone = re.sub(rf"[-_. ]*{re.escape(lab)}[-_. ]*", "", stem) if lab else stem
    return alone or stem, lab, {}


def _lab_in(name: str, labs: list[str]) -> str:
    return next((lab for lab in labs if lab in name), "")
