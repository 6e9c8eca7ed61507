"""What was handed in: each file of a folder or a zip, with whose it is, one after the other.

A file that cannot be read, a link, a name that leads out of the folder: each becomes a record that
says so, and the next file follows. Nothing is left out without a word but what a system keeps for
itself (`.ipynb_checkpoints`, `__MACOSX`) and nbgrader's own folders beside `submitted`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from labkit.grading.intake.entries import (
    MARKERS,
    DeliveredFile,
    IntakeError,
    Parts,
    Refusal,
    opened,
    shown,
)
from labkit.grading.intake.layouts import Layout, Place, place_of, read_layout
from labkit.grading.intake.notebooks_read import LARGEST
from labkit.grading.intake.remarks import Remark

MOST_NOTEBOOKS = 100_000
"""In one delivery; a class of 5,000 with seven labs each hands in 35,000."""

MOST_OF_ONE = 200
"""Notebooks of one student."""

LARGEST_DELIVERY = 32 * 2**30
"""Bytes that are read, or unpacked, of one delivery."""

LARGEST_OF_ONE = 2**28
"""Bytes that are read of one student."""

MOST_HELPERS, LARGEST_HELPERS = 50, 2**20
"""Modules beside one notebook, and their bytes together."""

_MOST_MODULES = 1000  # of one student that are looked at

_MOST_NAMED = 20  # of what was left out, named one by one
_SYSTEMS = (".git", ".DS_Store", ".localized", ".directory", ".vscode", ".idea", "__MACOSX")
_SYSTEMS += (".ipynb_checkpoints", "Thumbs.db", "desktop.ini")
_FULL = ("unreadable", "too many files")  # of a folder that may hold notebooks
# What `labkit grade` leaves beside grades.csv.
_GRADERS = (".feedback", ".moodle", ".canvas", ".secret", ".ledger.db")


@dataclass(frozen=True, kw_only=True)
class Handed:
    """One file that somebody handed in.

    ``content`` is None where the file was refused; ``cause`` and ``trouble`` then say why, in a
    word or two and in a sentence. ``at`` is when it was handed in, as far as the files tell;
    ``attempt`` is what the LMS counts up; ``marked_late``: the LMS's own mark. ``remarks`` are for
    the instructor; those that concern no single student stand with the first file. ``helpers`` are
    the Python modules in the notebook's folder and below it, by their paths from there.
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


def deliveries_in(where: Path, labs: Iterable[str]) -> Iterator[Handed]:
    """Everything handed in at ``where``, one file at a time, in the order of the names.

    ``labs`` are the course's, by name: a file name such as `ada_02_number_formats.ipynb` is split
    there. Raises IntakeError where there is nothing to grade, or where the delivery can be read in
    two ways.
    """
    labs = sorted(labs, key=len, reverse=True)
    with opened(where) as entries:
        yield from _Delivery(where, entries, labs).handed()


@dataclass(frozen=True, kw_only=True)
class _File:
    """An entry, and whose it is."""

    entry: DeliveredFile
    place: Place


@dataclass(kw_only=True)
class _Owner:
    """All that one student handed in; ``refused`` and ``others`` are no notebooks.

    ``modules`` are Python files of ``others``, ``helpers`` what notebooks in a folder get of them.
    """

    student: str = ""
    remarks: list[Remark] = field(default_factory=list)
    notebooks: list[_File] = field(default_factory=list)
    refused: list[_File] = field(default_factory=list)
    others: list[_File] = field(default_factory=list)
    modules: list[_File] = field(default_factory=list)
    helpers: dict[Parts, tuple] = field(default_factory=dict)
    bytes_read: int = 0

    @property
    def place(self) -> Place:
        """That of the first file, which tells whose all are."""
        return (self.notebooks or self.refused or self.others)[0].place


class _Delivery:
    """The entries of one delivery, told apart by whose they are."""

    def __init__(self, where: Path, entries: list[DeliveredFile], labs: Sequence[str]):
        self.where = where
        self.labs = labs
        self.bytes_read = 0
        there = {entry.parts for entry in entries}
        self.kept = {entry.parts for entry in entries if _is_a_systems(entry.parts, there)}
        self.layout = self._layout(entries)
        self.stamps = {one.parts: one for one in entries if one.parts[-1] == "timestamp.txt"}
        self.owners = self._owners(entries)
        _name(self.owners)

    def handed(self) -> Iterator[Handed]:
        """See ``deliveries_in``."""
        count = sum(min(len(owner.notebooks), MOST_OF_ONE) for owner in self.owners)
        if count > MOST_NOTEBOOKS:
            raise IntakeError(
                f"{self.where} holds more than {MOST_NOTEBOOKS:,} notebooks; grade it in parts."
            )
        students, left = self._students()
        of_all = self._of_all(left)
        for handed in (one for owner in students for one in self._of(owner)):
            yield replace(handed, remarks=(*of_all, *handed.remarks))
            of_all = []
        if not students:
            raise IntakeError(
                f"{self.where} holds no submissions: no file in it ends in .ipynb. Folders are"
                " searched as STUDENT/ASSIGNMENT/*.ipynb and STUDENT/*.ipynb, or notebooks side by"
                " side."
            )

    def _layout(self, entries: list[DeliveredFile]) -> Layout:
        inside = [one for one in entries if not one.outside and one.parts not in self.kept]
        notebooks = [one.parts for one in inside if one.is_notebook]
        if notebooks:
            # A name like a system's is no evidence while there are others.
            plain = [parts for parts in notebooks if not any(map(_is_hidden, parts))]
            return read_layout(plain or notebooks, self.labs, self.where)
        others = [one.parts for one in inside if one.parts[-1] and one.parts[0] not in _SYSTEMS]
        try:  # an LMS names those who handed in something else
            return read_layout(others, self.labs, self.where) if others else Layout()
        except IntakeError:
            return Layout()

    def _owners(self, entries: list[DeliveredFile]) -> list[_Owner]:
        owners: dict[tuple[Parts, str], _Owner] = {}
        for entry in entries:
            place = self._place(entry)
            if place is None:
                continue
            owner = owners.setdefault((place.key, place.lms_id), _Owner())
            if entry.is_notebook and entry.parts not in self.kept:
                files = owner.notebooks
            else:
                files = owner.refused if entry.cause else owner.others
            file = _File(entry=entry, place=place)
            files.append(file)
            if files is owner.others and entry.parts[-1].endswith(".py"):
                owner.modules += [file] if len(owner.modules) < _MOST_MODULES else []
        return list(owners.values())

    def _place(self, entry: DeliveredFile) -> Place | None:
        if not entry.outside:
            return place_of(entry.parts, self.layout, self.labs)
        place = place_of(entry.parts, Layout(), self.labs)
        # No other file is of the same student, whatever it says.
        return place and replace(place, key=("", "", entry.outside), is_theirs=False)

    def _students(self) -> tuple[list[_Owner], list[_Owner]]:
        """Those who handed something in, and what lies about."""
        in_folders = self.layout.form == "moodle"
        if not self.layout.form:
            theirs = [owner.place.is_theirs for owner in self.owners if owner.notebooks]
            in_folders = 2 * sum(theirs) > len(theirs)
        students, left = [], []
        for owner in self.owners:
            name = _first_of(owner)
            is_known = _is_hidden(name) or name.endswith(_GRADERS)
            has_row = (
                owner.notebooks
                or owner.place.lms_id
                or any(file.entry.outside for file in owner.refused)
                or (not is_known and any(file.entry.cause in _FULL for file in owner.refused))
                or (not is_known and in_folders and self._is_folder_inside(owner))
            )
            (students if has_row else left).append(owner)
        return students, left

    def _is_folder_inside(self, owner: _Owner) -> bool:
        return owner.place.is_theirs and self._is_inside(owner)

    def _is_inside(self, owner: _Owner) -> bool:
        top = self.layout.top
        return (owner.refused + owner.others)[0].entry.parts[: len(top)] == top

    def _of_all(self, left: list[_Owner]) -> list[Remark]:
        """What there is to say of the delivery, and of files that are nobody's."""
        remarks, top = [], self.layout.top
        if self.layout.is_assumed:
            said = "All notebooks lie in this folder, so it was taken for the one around the class."
            remarks.append(Remark(kind="repaired", who=shown("/".join(top)), said=said))
        ends = [(name, end) for name in map(_first_of, left) for end in _GRADERS]
        graders = tuple(name.removesuffix(end) + "." for name, end in ends if name.endswith(end))
        names = []
        for owner in left:
            name = _first_of(owner)
            is_known = name.lower().endswith(".csv") or name.startswith((*graders, "._"))
            if top and top[-1] in MARKERS and not self._is_inside(owner):
                is_known = is_known or _is_hidden(name) or not owner.place.is_theirs
            if not (is_known or name in _SYSTEMS):
                names.append(shown(name))
        said = "It is no notebook and in no student's folder; it was left out."
        remarks += [Remark(kind="dropped", who=name, said=said) for name in names[:_MOST_NAMED]]
        if names[_MOST_NAMED:]:
            said = f"{len(names) - _MOST_NAMED} more files were left out: they are no notebooks."
            remarks.append(Remark(kind="dropped", who=shown(self.where.name), said=said))
        return remarks

    def _of(self, owner: _Owner) -> Iterator[Handed]:
        """All that one student handed in, or the one record that says why there is nothing."""
        if not owner.notebooks:
            yield self._without_notebook(owner)
        elif len(owner.notebooks) > MOST_OF_ONE:
            yield replace(
                self._handed(owner.notebooks[0], owner),
                cause="too many files",
                trouble=f"{len(owner.notebooks)} notebooks were handed in; the limit is"
                f" {MOST_OF_ONE}. Hand in the notebook alone.",
            )
        else:
            if owner.refused:
                said = [f"`{self._path(one)}`: {one.entry.trouble}" for one in owner.refused[:3]]
                said += [f"{len(owner.refused) - 3} more."] if owner.refused[3:] else []
                remark = Remark(kind="dropped", who=owner.student, said=" ".join(said))
                owner.remarks.append(remark)
            for file in owner.notebooks:
                yield self._read(file, owner)

    def _without_notebook(self, owner: _Owner) -> Handed:
        if owner.refused:
            entry = owner.refused[0].entry
            return replace(
                self._handed(owner.refused[0], owner), cause=entry.cause, trouble=entry.trouble
            )
        name = shown(owner.others[0].entry.parts[-1])
        said = f"`{name}` was handed in, and no notebook." if name else "The folder is empty."
        return replace(self._handed(owner.others[0], owner), cause="no notebook", trouble=said)

    def _handed(self, file: _File, owner: _Owner) -> Handed:
        place = file.place
        return Handed(
            student=owner.student,
            file=self._path(file),
            lms_id=place.lms_id,
            assignment=shown(place.assignment),
            attempt=place.attempt,
            marked_late=place.marked_late,
            remarks=tuple(dict.fromkeys(owner.remarks)),
        )

    def _below_top(self, file: _File) -> Parts:
        parts, top = file.entry.parts, self.layout.top
        return parts[len(top) :] if parts[: len(top)] == top else parts

    def _path(self, file: _File) -> str:
        return shown("/".join(self._below_top(file)).rstrip("/"))

    def _read(self, file: _File, owner: _Owner) -> Handed:
        entry, handed = file.entry, self._handed(file, owner)
        try:
            self._admit(file, owner)
            read = entry.read(LARGEST + 1)
        except Refusal as refusal:
            return replace(handed, cause=refusal.cause, trouble=str(refusal))
        except Exception as error:  # a damaged file may raise anything; the next one follows
            owner.bytes_read += LARGEST  # it may have taken as long
            said = shown(str(error)) or type(error).__name__
            return replace(handed, cause="corrupt", trouble=f"It cannot be unpacked: {said}.")
        self.bytes_read += len(read.content)
        owner.bytes_read += len(read.content)
        stamp = self._stamp(file)
        at = _time_of(stamp) if stamp else None
        handed = replace(handed, at=at or read.at)
        said = []
        if stamp and not at:
            said = [
                f"The timestamp.txt beside `{handed.file}` holds no time; that of the file on the"
                " disk was taken."
            ]
        if read.odd_time and not at:
            said = [f"The time of `{handed.file}` cannot be; it was read as unknown."]
        remarks = [Remark(kind="repaired", who=owner.student, said=one) for one in said]
        handed = replace(handed, remarks=(*handed.remarks, *remarks))
        if len(read.content) > LARGEST:
            return replace(
                handed,
                cause="too large",
                trouble=f"The file has more than {LARGEST >> 20} MB. Clear the outputs of all"
                " cells, save, and hand it in again.",
            )
        helpers, left = self._helpers(file, owner)
        return replace(
            handed,
            content=read.content,
            helpers=helpers,
            remarks=(*handed.remarks, *left),
        )

    def _admit(self, file: _File, owner: _Owner) -> None:
        """Raises Refusal where a file is not to be read."""
        if file.entry.read is None:
            raise Refusal(file.entry.cause, file.entry.trouble)
        # What the LMS or the instructor has named, no student hides.
        named = self._below_top(file)[bool(file.place.lms_id) + self.layout.grouped :]
        if any(map(_is_hidden, named)):
            raise Refusal(
                "hidden name",
                "It is named as files that a program keeps for itself; it was not opened. Hand it"
                " in under a name without `.` or `~` at its start.",
            )
        if self.bytes_read > LARGEST_DELIVERY or owner.bytes_read > LARGEST_OF_ONE:
            of_whom = "all students" if self.bytes_read > LARGEST_DELIVERY else "this student"
            raise Refusal("too large", f"It was not read: the files of {of_whom} are too large.")

    def _stamp(self, file: _File) -> DeliveredFile | None:
        """What nbgrader writes beside the notebook of STUDENT/ASSIGNMENT when it collects it.

        In any other layout the student may have put the file there.
        """
        if not self.layout.is_nbgraders or len(file.place.below) != 2:
            return None
        return self.stamps.get((*file.entry.parts[:-1], "timestamp.txt"))

    def _helpers(self, file: _File, owner: _Owner) -> tuple[tuple, tuple[Remark, ...]]:
        """The modules that the notebook can import from its folder, and what was left out."""
        folder = file.place.below[:-1]
        if not file.place.is_theirs:
            return (), ()
        if folder not in owner.helpers:
            owner.helpers[folder] = self._read_helpers(folder, owner)
        return owner.helpers[folder]

    def _read_helpers(self, folder: Parts, owner: _Owner) -> tuple[tuple, tuple[Remark, ...]]:
        modules = {}
        for other in owner.modules:
            path = self._module(other, folder)
            if path:
                modules[path] = other
        taken, left, size = [], [], 0
        for path in sorted(modules, key=lambda path: (path.count("/"), path)):
            try:
                if len(taken) == MOST_HELPERS or owner.bytes_read > LARGEST_OF_ONE:
                    raise Refusal("too many files", "")
                content = modules[path].entry.read(LARGEST_HELPERS - size + 1).content
                owner.bytes_read += len(content)
                if size + len(content) > LARGEST_HELPERS:
                    raise Refusal("too large", "")
            except Exception:  # a link, damaged, too large: the others follow
                left.append(path)
                continue
            size += len(content)
            taken.append((path, content))
        if not left:
            return tuple(taken), ()
        said = (
            f"{len(left)} Python files beside the notebook were left out, such as `{left[0]}`: they"
            f" cannot be read, or are more than {MOST_HELPERS} or than"
            f" {LARGEST_HELPERS >> 20} MB together."
        )
        return tuple(taken), (Remark(kind="dropped", who=owner.student, said=said),)

    def _module(self, file: _File, folder: Parts) -> str:
        """The path of a Python module from this folder, "" where it cannot be imported from it."""
        below = file.place.below
        if below[: len(folder)] != folder or not below[-1].endswith(".py") or not file.entry.read:
            return ""
        *packages, name = below[len(folder) :] or ("",)
        name = name.removesuffix(".py")
        if self.layout.form == "canvas":
            name = re.sub("-[0-9]+$", "", name)  # Canvas counts what is handed in again
        importable = all(part.isidentifier() for part in (*packages, name))
        return "/".join((*packages, f"{name}.py")) if importable else ""


def _time_of(stamp: DeliveredFile) -> datetime | None:
    """The time in nbgrader's file, such as `2026-10-01 12:00:00.000000 UTC`."""
    try:
        text = stamp.read(100).content.decode().strip()
        at = datetime.fromisoformat(text.removesuffix(" UTC"))
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except Exception:  # whatever else it may be, it is no time stamp
        return None


def _first_of(owner: _Owner) -> str:
    """The folder or the file that lies at the students' level."""
    return owner.place.key[0] if owner.place.is_theirs else owner.place.below[0]


def _name(owners: list[_Owner]) -> None:
    """Give each owner a name that can be shown, and no two different names the same."""
    raw = {owner.place.key: owner.place.name for owner in owners}
    said = {key: shown(name) or "unnamed" for key, name in raw.items()}
    taken, given, alike, suffixes = set(said.values()), {}, Counter(), Counter()
    # Who is named as shown keeps the name; a path that leads out never takes it from somebody.
    for key in sorted(raw, key=lambda key: (len(key) > 2, said[key] != raw[key])):
        name, stem = said[key], said[key][:180]
        given[key] = name
        alike[name] += 1
        if alike[name] > 1:
            while given[key] in taken:
                suffixes[stem] += 1
                given[key] = f"{stem} ({suffixes[stem] + 1})"
            taken.add(given[key])
    for owner in owners:
        name = said[owner.place.key]
        owner.student = given[owner.place.key]
        files = owner.notebooks + owner.refused + owner.others
        contradictions = dict.fromkeys(file.place.said for file in files if file.place.said)
        if owner.student != name:
            contradictions[
                f"Several names are shown as `{name}` and are not the same; this one is called"
                f" `{owner.student}`."
            ] = None
        owner.remarks += [
            Remark(kind="contradicting", who=owner.student, said=one) for one in contradictions
        ]


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "~")) or name == "__MACOSX"


def _is_a_systems(parts: Parts, there: set[Parts]) -> bool:
    """Whether a system made this file for itself.

    Jupyter keeps a checkpoint of each notebook, and macOS its notes on each file. The file of such
    notes must be there: anybody may call a notebook so.
    """
    *folders, name = parts
    if name.startswith("._"):
        if folders and folders[0] == "__MACOSX":
            folders = folders[1:]
        return (*folders, name[2:]) in there
    original = name.replace("-checkpoint.ipynb", ".ipynb")
    return folders[-1:] == [".ipynb_checkpoints"] and original != name
