"""What the paths of a delivery say: which folders stand around the students, and whose a file is.

**The rule: the forms of Moodle, Canvas and GitHub Classroom, a folder `submitted` or `submissions`,
and the names of labs are signs. Without a sign, several notebooks in one folder are a class, and so
are several folders in one; where the names could as well be a student's pieces of work (`hw1`,
`hw2`), or a folder stands around many, the delivery is refused.** Everything here is decided by
names; no file is opened. Whose a file is, the first part below the folders around the class says
and no other: what stands below that a student may have named.
"""

import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from labkit.grading.intake.entries import MARKERS, IntakeError, Parts, shown

_NBGRADERS = {"source", "release", "autograded", "feedback", "downloaded"}  # beside `submitted`

_MOODLE_FOLDER = re.compile(
    r"(?P<name>.+)_(?P<id>[0-9]{1,18})_assignsubmission_(file|onlinetext)_?", re.DOTALL
)
_MOODLE_FILE = re.compile(
    r"(?P<name>.+?)_(?P<id>[0-9]{1,18})_assignsubmission_(file|onlinetext)_(?P<file>.+)", re.DOTALL
)
_MOODLE_MARK = re.compile(r"_[0-9]+_assignsubmission_")
_CANVAS = re.compile(
    r"(?P<name>.+?)(?P<late>_LATE)?_(?P<id>[0-9]{1,18})_(?P<attempt>[0-9]{1,18})_(?P<file>.+)",
    re.DOTALL,
)
_CANVAS_ANONYMOUS = re.compile(
    r"(?P<late>LATE_)?(?P<name>anon)_(?P<id>[0-9A-Za-z]{4,12})_(?P<attempt>[0-9]{1,18})"
    r"_(?P<file>.+)",
    re.DOTALL,
)
_NUMBER = re.compile(r"[0-9]+_")

_WORK = re.compile(
    r"(hw|homework|lab|assignment|exercise|ex|week|ps|pset|project|task|sheet|unit|part|problem"
    r"|module|session|day|try|attempt|version|v|untitled|notebook|draft|copy)[-_ .(]*[0-9]{1,3}[)]?"
    r"|homework|assignment|solution|submission|untitled|notebook|draft|final|copy"
)
"""What students call their pieces of work, and nobody is called."""

_CLASSROOM = "submissions"
"""GitHub Classroom clones into `SLUG-submissions/SLUG-USER` (github/gh-classroom, `clone`)."""

_SHORT_NUMBER = re.compile(r"[(]?[0-9]{1,3}[)]?")  # of a student, or of a piece of work


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the students stand in the paths of a delivery.

    ``top``: the folders around all of them. ``grouped``: below it, a folder of a lab or of a group
    stands around some. ``form``: "moodle", "canvas" or "". ``is_nbgraders``: what lies in its
    `submitted`. ``is_assumed``: only names told that ``top`` stands around a class. ``prefixes``:
    what stands before each student's name, by the folder of the group; "" is for no groups.
    """

    top: Parts = ()
    grouped: bool = False
    form: str = ""
    is_nbgraders: bool = False
    is_assumed: bool = False
    prefixes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Whose a file is, as its path says.

    Two files are one student's where ``key`` and ``lms_id`` agree; ``name`` is for people.
    ``below`` is the path within what the student handed in; ``is_theirs``: nobody else's files lie
    beside it. ``said``: in what the path contradicts itself, a sentence.
    """

    key: Parts
    name: str
    below: Parts
    lms_id: str = ""
    assignment: str = ""
    attempt: int = 0
    marked_late: bool = False
    is_theirs: bool = False
    said: str = ""


def read_layout(paths: Iterable[Parts], labs: Sequence[str], where: Path) -> Layout:
    """The layout of a delivery whose notebooks have these paths.

    Raises IntakeError where they can be read in two ways.
    """
    return _Reader(labs, where).layout(
        sorted(set(paths)), (), os.path.basename(os.path.abspath(where)) == "submitted"
    )


def place_of(parts: Parts, layout: Layout, labs: Sequence[str]) -> Place | None:
    """Whose the file with this path is; None where it is nobody's, as nbgrader's own folders."""
    top = layout.top
    lab = next((part for part in top if part in labs), "")
    if parts[: len(top)] == top:
        parts = parts[len(top) :]
    elif top[-1] in MARKERS and parts[: len(top)][-1] in _NBGRADERS:
        return None
    group = ""
    if layout.grouped and len(parts) > 1:
        lab = parts[0] if parts[0] in labs else lab
        group, parts = parts[0], parts[1:]
    if not any(parts):
        return None  # a folder around the class
    parts = (parts[0].removeprefix(layout.prefixes.get(group, "")), *parts[1:])
    place = _in_form(parts, layout.form, labs) or _plain(parts, layout.form, labs)
    return place if place.assignment or not lab else replace(place, assignment=lab)


def _in_form(parts: Parts, form: str, labs: Sequence[str]) -> Place | None:
    """The place of a file that is named as an LMS names it."""
    name, below = parts[0], parts[1:]
    by, found = _by_lms(name, bool(below))
    if not by or by != form:
        return None
    if form == "moodle":
        file = parts[-1]
        is_clear = len(_MOODLE_MARK.findall(name)) == 1
    else:
        file = found["file"]
        # Canvas lets no `_7_` into a student's name, but `_7` at its end.
        is_clear = not _NUMBER.match(file) or file.startswith(tuple(labs))
    said = ""
    if not is_clear:
        said = f"`{shown(name)}` can be split into a name and a number in two ways"
        if not below:  # its end is the student's own
            return replace(_plain(parts, form, labs), said=f"{said}; no number was believed.")
        said = f"{said}; the last number was believed."
    return Place(
        key=(found["name"],),
        name=found["name"],
        below=below or (found["file"],),
        lms_id=found["id"],
        assignment=_lab_in(file, labs),
        attempt=int(found.get("attempt", 0)),
        marked_late=bool(found.get("late")),
        is_theirs=True,
        said=said,
    )


def _plain(parts: Parts, form: str, labs: Sequence[str]) -> Place:
    """The place of a file in a folder that is called like the student, or that is itself."""
    name, below = parts[0], parts[1:]
    said = ""
    if not form and _by_lms(name, bool(below))[0]:
        said = (
            f"`{shown(name)}` is named as an LMS names files, and the delivery as a whole is not;"
            " no number was believed."
        )
    if below:
        assignment = next((part for part in below[:-1] if part in labs), below[0])
        if len(below) == 1:
            assignment = _lab_in(below[0], labs)
        return Place(
            key=(name,), name=name, below=below, assignment=assignment, is_theirs=True, said=said
        )
    stem = _stem(name)
    lab = _lab_in(stem, labs)
    named: Parts = (stem,)
    if lab:
        before, _, after = stem.partition(lab)
        # One separator belongs to the lab; what more there is, to the name.
        before, after = re.sub("( - |[-_. ])$", "", before), re.sub("^( - |[-_. ])", "", after)
        named = tuple(part for part in (before, after) if part) or named
    return Place(key=named, name="_".join(named), below=(name,), assignment=lab, said=said)


class _Reader:
    """Reads the layout of one delivery; ``labs`` are the course's, the longest first."""

    def __init__(self, labs: Sequence[str], where: Path):
        self.labs = labs
        self.where = where

    def layout(self, paths: list[Parts], top: Parts, is_nbgraders: bool) -> Layout:
        common = _common(paths)
        if classroom := self._classroom(paths, common, top):
            return classroom
        for depth in range(len(common) + 1):
            here, around = [parts[depth:] for parts in paths], (*top, *common[:depth])
            if depth > 1 and common[depth - 1] in self.labs and len({h[0] for h in here}) == 1:
                break  # whatever lies below STUDENT/LAB a student has named
            if form := _lms_form(here):
                return Layout(top=around, form=form)
            if is_nbgraders and (not common or all(len(parts) > 2 for parts in paths)):
                return Layout(top=top, is_nbgraders=True)
            if any(parts[0] in MARKERS and len(parts) > 1 for parts in here):
                return self._marked(here, around)
        depth, is_assumed = self._depth(paths, common)
        here, around = [parts[depth:] for parts in paths], (*top, *common[:depth])
        grouped, form = self._grouped(here)
        return Layout(top=around, grouped=grouped, form=form, is_assumed=is_assumed)

    def _classroom(self, paths: list[Parts], common: Parts, top: Parts) -> Layout | None:
        """The layout where GitHub Classroom has named the folders, be it for several assignments.

        Only the outermost folders count: what stands deeper a student may have named.
        """
        if top:
            return None
        here = os.path.basename(os.path.abspath(self.where))
        if (prefix := _prefix(here)) and _all_begin(paths, prefix):
            return Layout(prefixes={"": prefix})
        prefixes = {parts[0]: _prefix(parts[0]) for parts in paths if len(parts) > 2}
        inside = [parts[1:] for parts in paths]
        if not all(parts[0] in prefixes for parts in paths) or not all(
            _all_begin([below], prefixes[parts[0]])
            for parts, below in zip(paths, inside, strict=True)
        ):
            return None
        if len(prefixes) == 1:
            return Layout(top=common[:1], prefixes={"": min(prefixes.values())})
        return Layout(grouped=True, prefixes=prefixes)

    def _marked(self, paths: list[Parts], around: Parts) -> Layout:
        """The layout below a folder `submitted` or `submissions` at this level."""
        folders = {parts[0] for parts in paths if len(parts) > 1}
        marker = next(name for name in MARKERS if name in folders)
        outside = sorted({parts[0] for parts in paths} - {marker} - _NBGRADERS)
        if outside:
            raise IntakeError(
                f"{self.where} can be read in two ways: only the folder `{marker}` was handed in,"
                f" or what lies beside it too, such as `{shown(outside[0])}`. Name the folder"
                f" `{marker}` alone, or move the others into it."
            )
        inside = [parts[1:] for parts in paths if parts[0] == marker and len(parts) > 1]
        return self.layout(inside, (*around, marker), marker == "submitted")

    def _depth(self, paths: list[Parts], common: Parts) -> tuple[int, bool]:
        """How many of the common folders stand around the students, and if only names say so."""
        if not common:
            return 0, False
        lab = next((depth for depth, part in enumerate(common) if part in self.labs), None)
        if lab is not None:
            return self._depth_of_lab(paths, common, lab)
        level, folder = len(common), common[-1]
        names = sorted({parts[level] for parts in paths})
        works = [name for name in names if self._may_be_work(name, folder)]
        in_labs = all(len(parts) > level + 2 and parts[level + 1] in self.labs for parts in paths)
        if in_labs and not works:
            return level, False  # STUDENT/LAB/x.ipynb
        titled = [name for name in works if self._is_titled(name, folder)]
        inside = self._names_inside(paths, level)
        if titled == names and inside < 2 and (len(names) > 1 or level == 1):
            return level - 1, level > 1
        if max(len(names), inside) <= len(self.labs) and (  # one student may have so many
            2 * len(works) >= len(names)
            or len({self._key(name) for name in names}) == 1
            or len({len(parts) > level + 1 for parts in paths}) > 1
        ):
            raise self._two_ways(folder, names)
        return level, True

    def _depth_of_lab(self, paths: list[Parts], common: Parts, lab: int) -> tuple[int, bool]:
        """The same where the folder ``common[lab]`` is a lab's."""
        below = {parts[lab + 1] for parts in paths}
        if lab > 0:
            is_only = len(paths) == 1 and len(paths[0]) == lab + 2
            student = common[lab - 1]
            if is_only or all(self._is_titled(n, student) or self._is_work(n) for n in below):
                return lab - 1, lab > 1  # STUDENT/LAB/x.ipynb
            if len(below) <= len(self.labs):
                raise self._two_ways(common[lab], below)
        inside = [parts[lab + 1 :] for parts in paths]
        depth, is_assumed = self._depth(inside, common[lab + 1 :])
        return lab + 1 + depth, is_assumed or lab > 0

    def _names_inside(self, paths: list[Parts], level: int) -> int:
        """How many names that may be students' lie in the folders of this level."""
        inside = {parts[level + 1] for parts in paths if len(parts) > level + 1}
        if all(self._is_work(name) for name in inside):
            return 0
        return len(inside)

    def _grouped(self, paths: list[Parts]) -> tuple[bool, str]:
        """Whether the first folders are labs or groups around students, and the form inside.

        Where half of them look like groups, that may be; a single student cannot bring it about.
        """
        inside: dict[str, list[Parts]] = defaultdict(list)
        for parts in paths:
            inside[parts[0]] += [parts[1:]] if len(parts) > 1 else []
        folders = {name: below for name, below in inside.items() if below}
        forms = {_lms_form(below) for below in folders.values()}
        if len(folders) == len(inside):
            if all(name in self.labs for name in folders):
                if all(self._key(parts[-1]) == "" for parts in paths):
                    raise self._nameless(paths[0][0])
                return True, _lms_form([parts[1:] for parts in paths])
            if len(forms) == 1 and "" not in forms:
                return True, forms.pop()
            if 1 < len(folders) <= len(self.labs) and all(self._may_be_work(n) for n in folders):
                raise self._two_groups(min(folders))
        groups = [name for name, below in folders.items() if self._is_group(name, below)]
        if groups and 2 * len(groups) >= len(inside) and not self._share_names(folders, inside):
            raise self._two_groups(min(groups))
        return False, ""

    def _is_group(self, name: str, below: list[Parts]) -> bool:
        """Whether a folder could as well hold several students as one."""
        firsts = {parts[0] for parts in below}
        if any(self._is_titled(first, name) for first in firsts) or all(map(self._is_work, firsts)):
            return False
        are_alike = len({len(parts) > 1 for parts in below}) == 1  # all files, or all folders
        return are_alike and len({self._key(first) for first in firsts}) > 1

    def _share_names(self, folders: dict[str, list[Parts]], inside: dict) -> bool:
        """Whether few names stand in many folders, as pieces of work do."""
        keys = {self._key(parts[0]) for below in folders.values() for parts in below}
        return 2 * len(keys) <= len(inside)

    def _may_be_work(self, name: str, student: str = "") -> bool:
        """Whether a name could be one of a student's pieces of work."""
        is_number = _SHORT_NUMBER.fullmatch(self._key(name))
        return bool(is_number) or self._is_titled(name, student) or self._is_work(name)

    def _is_titled(self, name: str, student: str) -> bool:
        """Whether it is called like a lab alone, or like the student."""
        return self._key(name) in ("", _folded(student))

    def _is_work(self, name: str) -> bool:
        """Whether it is called as pieces of work are, and nobody is."""
        return self._key(name) == "" or bool(_WORK.fullmatch(self._key(name)))

    def _key(self, name: str) -> str:
        """What a name says beside the lab."""
        stem, lab = _stem(name), _lab_in(name, self.labs)
        rest = stem.replace(lab, "", 1) if lab else stem
        return _folded(rest) or rest

    def _two_ways(self, folder: str, names: Iterable[str]) -> IntakeError:
        folder, first = shown(folder), shown(min(names))
        return IntakeError(
            f"{self.where} can be read in two ways: `{folder}` is one student, who handed in"
            f" `{first}`, or a folder around students, and `{first}` is one of them. For one"
            f" student, move the notebooks to `submitted/STUDENT/LAB/`; for several, rename"
            f" `{folder}` to `submitted`."
        )

    def _two_groups(self, folder: str) -> IntakeError:
        folder = shown(folder)
        return IntakeError(
            f"{self.where} can be read in two ways: `{folder}` is a student with several notebooks,"
            " or a folder around several students, and so are others beside it. If they are"
            " students, move them into a folder called `submitted`; if not, grade each of these"
            " folders by itself."
        )

    def _nameless(self, lab: str) -> IntakeError:
        return IntakeError(
            f"{self.where} says nowhere whose the notebooks are: `{shown(lab)}` is a lab, and the"
            " notebook in it is called like one. Move the notebooks to `submitted/STUDENT/LAB/`."
        )


def _common(paths: list[Parts]) -> Parts:
    """The folders that all these files lie in."""
    if not paths:
        return ()
    first, last = paths[0], paths[-1]  # sorted: what these two share, all do
    length = 0
    while length < min(len(first), len(last)) - 1 and first[length] == last[length]:
        length += 1
    return first[:length]


def _prefix(folder: str) -> str:
    """`SLUG-` for `SLUG-submissions`; "" for another name."""
    slug = folder.removesuffix(_CLASSROOM)
    return slug if slug not in (folder, "", "-") and slug.endswith("-") else ""


def _all_begin(paths: list[Parts], prefix: str) -> bool:
    """Whether each path begins with a folder that is called so, and has a name after it.

    Moodle's folders may begin alike too, with the name of a team; they say more.
    """
    return (
        bool(prefix)
        and not _lms_form(paths)
        and all(
            len(parts) > 1 and parts[0].startswith(prefix) and parts[0] != prefix for parts in paths
        )
    )


def _lms_form(paths: list[Parts]) -> str:
    """The LMS that has named most of what lies at this level, or ""."""
    entries = {parts[0]: len(parts) > 1 for parts in paths}
    named = [_by_lms(*entry) for entry in entries.items()]
    if 2 * sum(form == "moodle" for form, _ in named) > len(entries):
        return "moodle"
    found = [one for form, one in named if form == "canvas"]
    # Canvas counts all attempts of all students; `hw_2026_10_ada.ipynb` has dates instead.
    if len(found) > 1 and (
        2 * len({one["attempt"] for one in found}) <= len(found)
        or len({(one["name"], one["id"]) for one in found}) == 1
    ):
        return ""
    return "canvas" if 2 * len(found) > len(entries) else ""


def _by_lms(name: str, is_folder: bool) -> tuple[str, dict[str, str]]:
    """The LMS that a name is by, or "", and the parts of the name."""
    if is_folder:
        found = _MOODLE_FOLDER.fullmatch(name)
        return ("moodle", found.groupdict()) if found else ("", {})
    moodle = _MOODLE_FILE.fullmatch(name)
    canvas = _CANVAS_ANONYMOUS.fullmatch(name) or _CANVAS.fullmatch(name)
    # The end of the name is the student's own and may be like the other's; the LMS's comes first.
    if moodle and not (canvas and len(canvas["name"]) < len(moodle["name"])):
        return "moodle", moodle.groupdict()
    return ("canvas", canvas.groupdict()) if canvas else ("", {})


def _lab_in(name: str, labs: Sequence[str]) -> str:
    return next((lab for lab in labs if lab in name), "")


def _stem(name: str) -> str:
    return name[: -len(".ipynb")] if name.lower().endswith(".ipynb") else name


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold().strip("-_. ")
