"""The files of a delivery: found in a folder or a zip, and read one at a time within bounds.

Nothing is unpacked to the disk, no link is followed, and whatever is wrong with one file or folder
becomes an entry that says so; the next one follows.
"""

import contextlib
import itertools
import os
import re
import stat
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

Parts = tuple[str, ...]
"""A path as the delivery writes it; the last part is "" where a folder itself is meant."""

MOST_FILES = 100_000
"""Files in one student's folder, or in one group's, that are looked at."""

MARKERS = ("submitted", "submissions")
"""Folders that are nobody: nbgrader collects into the one, Canvas's zip unpacks to the other."""

_INSTALLED = {"site-packages", "node_modules"}  # thousands of files, and none of them an answer
_MOST_FOLDERS = 60  # one in the other; Windows cannot even name so many
_MOST_OTHERS = 20  # files that are neither notebook nor Python, kept of one folder
_NO_TIME = (1980, 1, 1, 0, 0, 0)  # what a zip says that knows no time


class IntakeError(Exception):
    """Nothing to grade, in a sentence with what to do."""


class Refusal(Exception):
    """A file that was not read: ``cause`` in a word or two, the message in a sentence."""

    def __init__(self, cause: str, message: str):
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True, kw_only=True)
class Read:
    """The first bytes of a file, and when it was written; ``odd_time``: a time that cannot be."""

    content: bytes
    at: datetime | None = None
    odd_time: bool = False


@dataclass(frozen=True, kw_only=True)
class DeliveredFile:
    """One file of a delivery. ``read(n)`` gives at most n bytes of it, or raises anything at all.

    Where it is None, ``cause`` and ``trouble`` say why; both are "" for an empty folder.
    ``outside`` is the whole path where it leads out of the delivery; ``parts`` is then its end.
    """

    parts: Parts
    read: Callable[[int], Read] | None = None
    cause: str = ""
    trouble: str = ""
    outside: str = ""

    @property
    def is_notebook(self) -> bool:
        return self.parts[-1].lower().endswith(".ipynb")


def shown(text: str) -> str:
    """A name as it can be written anywhere: no control characters, no half characters.

    Two names may be shown alike, so what is shown is never what tells two students apart.
    """
    text = text.encode("utf-8", "replace").decode("utf-8")
    text = unicodedata.normalize("NFC", text)  # macOS writes an accent as a letter of its own
    kept = "".join(c if unicodedata.category(c)[0] != "C" else "?" for c in text[:1000])
    return kept.strip()[:200]


@contextlib.contextmanager
def opened(where: Path) -> Iterator[list[DeliveredFile]]:
    """The entries of a folder, a zip or a single notebook, by their paths; raises IntakeError."""
    try:
        is_folder, is_file = where.is_dir(), where.is_file()
    except OSError as error:
        raise IntakeError(f"{where} cannot be read: {error.strerror}.") from None
    if is_folder:
        yield in_folder(where)
    elif is_file and zipfile.is_zipfile(where):
        with _archive(where) as archive:
            yield in_zip(archive)
    elif is_file and where.suffix.lower() == ".ipynb":
        yield [DeliveredFile(parts=(where.name,), read=partial(_read_file, str(where)))]
    elif is_file:
        raise IntakeError(f"{where} is neither a folder, nor a zip, nor a notebook.")
    else:
        raise IntakeError(f"{where} does not exist; name the folder or zip of the submissions.")


def in_folder(root: Path) -> list[DeliveredFile]:
    """Every file below a folder; links are not followed.

    A folder that holds too many files to look at is one entry that says so.
    """
    found: list[DeliveredFile] = []
    seen: Counter[Parts] = Counter()
    waiting: list[tuple[Parts, Parts]] = [((), ())]
    while waiting:
        parts, counted = waiting.pop()
        if seen[counted] > MOST_FILES:
            continue
        try:
            files, folders, links = _listing(root.joinpath(*parts), parts)
        except Refusal as refusal:
            if not parts:
                raise IntakeError(f"{root}: {refusal}") from None
            found.append(_refused((*parts, ""), refusal.cause, str(refusal)))
            continue
        if parts and not (files or folders or links):
            found.append(DeliveredFile(parts=(*parts, "")))
        found += [_refused((*parts, name, ""), "link", _NOT_OPENED % "a link") for name in links]
        found += [_packages((*parts, name)) for name in folders if name in _INSTALLED]
        folders = [name for name in folders if name not in _INSTALLED]
        found += [
            DeliveredFile(
                parts=(*parts, name), read=partial(_read_file, str(root.joinpath(*parts, name)))
            )
            for name in _worth_keeping(files)
        ]
        if counted:
            seen[counted] += len(files) + len(folders)
        elif len(files) + len(folders) > MOST_FILES:
            raise IntakeError(f"{root} holds more than {MOST_FILES:,} files; grade it in parts.")
        is_class = not counted and not _is_wrapper(files, folders)
        for name in reversed(folders):
            below = (*parts, name)
            is_counted = is_class and name not in MARKERS
            waiting.append((below, counted or (below if is_counted else ())))
    full = [parts for parts, count in seen.items() if count > MOST_FILES]
    for folder in full:
        found = [one for one in found if one.parts[: len(folder)] != folder]
        found.append(
            _refused(
                (*folder, ""),
                "too many files",
                f"The folder holds more than {MOST_FILES:,} files. Hand in the notebook alone.",
            )
        )
    return sorted(found, key=lambda one: one.parts)


def _listing(folder: Path, parts: Parts) -> tuple[list[str], list[str], list[str]]:
    """The names of files, folders, and links to folders, sorted; raises Refusal."""
    if len(parts) > _MOST_FOLDERS:
        raise Refusal("unreadable", f"More than {_MOST_FOLDERS} folders lie in one another.")
    files, folders, links = [], [], []
    try:
        with os.scandir(folder) as listing:
            for one in itertools.islice(listing, MOST_FILES + 1):
                if one.is_symlink():
                    (links if os.path.isdir(one.path) else files).append(one.name)
                else:
                    (folders if one.is_dir() else files).append(one.name)
    except OSError as error:
        raise Refusal("unreadable", f"The folder cannot be read: {error.strerror}.") from None
    return sorted(files), sorted(folders), sorted(links)


def _is_wrapper(files: list[str], folders: list[str]) -> bool:
    """Whether this can only be a folder around the class's folder."""
    visible = [name for name in folders if not name.startswith(".")]
    return len(visible) == 1 and not any(name.lower().endswith(".ipynb") for name in files)


def _worth_keeping(files: list[str]) -> list[str]:
    """Notebooks, Python, and of all else so much that one can see what it is."""
    kept, others = [], 0
    for name in files:
        wanted = name.lower().endswith((".ipynb", ".py")) or name == "timestamp.txt"
        others += not wanted
        if wanted or others <= _MOST_OTHERS:
            kept.append(name)
    return kept


def _read_file(file: str, most: int) -> Read:
    try:
        descriptor = os.open(
            file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        )
    except OSError as error:
        if os.path.islink(file):
            raise Refusal("link", _NOT_OPENED % "a link") from None
        raise Refusal("unreadable", f"It cannot be opened: {error.strerror}.") from None
    with os.fdopen(descriptor, "rb") as opened:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise Refusal("unreadable", _NOT_OPENED % "no ordinary file")
        try:
            content = opened.read(most)
        except OSError as error:
            raise Refusal("unreadable", f"It cannot be read: {error.strerror}.") from None
    try:
        return Read(content=content, at=datetime.fromtimestamp(facts.st_mtime, UTC))
    except (ValueError, OverflowError, OSError):
        return Read(content=content, odd_time=True)


_NOT_OPENED = "It is %s; it was not opened."


def _refused(parts: Parts, cause: str, trouble: str, outside: str = "") -> DeliveredFile:
    return DeliveredFile(parts=parts, cause=cause, trouble=trouble, outside=outside)


def _packages(folder: Parts) -> DeliveredFile:
    return _refused((*folder, ""), "packages", "It holds installed packages; it was not searched.")


def _archive(where: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(where)
    except Exception as error:  # zipfile promises less than it raises
        said = shown(str(error)) or type(error).__name__
        raise IntakeError(f"{where} is no zip that can be read: {said}.") from None


def in_zip(archive: zipfile.ZipFile) -> list[DeliveredFile]:
    """Every file of a zip, and its empty folders."""
    # The name before zipfile cuts it at a NUL: nobody may hide behind the rest.
    named = [(entry.orig_filename, entry) for entry in archive.infolist()]
    if all(entry.create_system == 0 and "/" not in path for path, entry in named):
        # Windows has no file with a backslash in its name, and once packed folders so.
        named = [(path.replace("\\", "/"), entry) for path, entry in named]
    named.sort(key=lambda one: one[1].header_offset)  # of twins the order in which they came
    found: list[DeliveredFile] = []
    empty = {_split(path) for path, _ in named if path.endswith("/")} - {()}
    installed: set[Parts] = set()
    for path, entry in named:
        if _leads_out(path):
            # The last part still tells whose it is; a path out of the delivery is not followed.
            name = re.split(r"[/\\]", path.rstrip("/\\"))[-1] or "unnamed"
            said = f"named {shown(path)!r}, which leads out of its folder"
            found.append(_refused((name,), "unsafe name", _NOT_OPENED % said, outside=path))
            continue
        parts = _split(path)
        for depth in range(1, len(parts)) if empty else ():
            empty.discard(parts[:depth])
        if not _INSTALLED.isdisjoint(parts):
            installed.add(parts[: min(map(parts.index, _INSTALLED.intersection(parts))) + 1])
        elif path.endswith("/"):
            continue
        elif stat.S_ISLNK(entry.external_attr >> 16):
            found.append(_refused(parts or ("",), "link", _NOT_OPENED % "a link"))
        else:
            found.append(DeliveredFile(parts=parts or ("",), read=partial(_unpack, archive, entry)))
    found += [DeliveredFile(parts=(*parts, "")) for parts in empty]
    found += [_packages(parts) for parts in installed]
    return sorted(found, key=lambda one: one.outside or "/".join(one.parts))


def _split(path: str) -> Parts:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _leads_out(path: str) -> bool:
    return path.startswith("/") or "\\" in path or ":" in path[:2] or ".." in path.split("/")


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int) -> Read:
    if entry.flag_bits & 1:
        raise Refusal("encrypted", _NOT_OPENED % "encrypted")
    # The size that an entry states is not believed: what is read is bounded.
    with archive.open(entry) as opened:
        content = opened.read(most)
    if entry.date_time == _NO_TIME:
        return Read(content=content)
    try:
        return Read(content=content, at=datetime(*entry.date_time).astimezone(UTC))
    except (ValueError, OverflowError):
        return Read(content=content, odd_time=True)
