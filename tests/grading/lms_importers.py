"""What Moodle and Canvas do with an uploaded file, after the rules that their sources state.

The sources are named in ``labkit.grading.report.moodle`` and ``canvas``. Nothing here is theirs.
"""

import csv
import io
import re
import zipfile
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

MOODLE_DAY = "%A, %d %B %Y, %I:%M %p"


def moodle_grades(
    text: str,
    users: dict[int, str],
    maximum: float,
    *,
    graded: dict[str, tuple[float, datetime]] | None = None,
    heads: tuple[str, str, str] = ("Identifier", "Grade", "Last modified (grade)"),
    hidden_user: str = "Participant ",
    ignore_modified: bool = False,
) -> dict[str, float]:
    """The grades that the import sets, by user; ``graded`` are those there and when they came."""
    lines = list(csv.reader(io.StringIO(text.removeprefix("\ufeff"))))
    assert len({len(line) for line in lines}) == 1, "csvweirdcolumns"
    identifier, grade, modified = (lines[0].index(head) for head in heads)
    set_ = {}
    for line in lines[1:]:
        user = users.get(int(line[identifier][len(hidden_user) :]))
        if user is None or not line[grade].strip():
            continue
        points = float(line[grade].replace(" ", "").replace(",", "."))
        before, at = (graded or {}).get(user, (None, None))
        stale = at and at.timestamp() > _moodle_time(line[modified]) + 60
        if points != before and 0 <= points <= maximum and (ignore_modified or not stale):
            set_[user] = points
    return set_


def _moodle_time(cell: str) -> float:
    try:
        return datetime.strptime(cell, MOODLE_DAY).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


def moodle_feedback(file: Path, users: dict[int, str]) -> dict[str, dict[str, bytes]]:
    """The feedback files that the import gives each user, by name."""
    given: dict[str, dict[str, bytes]] = {}
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            assert PurePosixPath(name).parts == tuple(name.split("/")), "unpacks elsewhere"
            if name.split("/")[-1].startswith((".", "~")):
                continue
            parts = name.split("/")
            while parts:
                info = parts.pop(0).split("_", 4)
                if len(info) < 4 or not info[1].isdecimal() or int(info[1]) not in users:
                    continue
                if info[2:4] != ["assignfeedback", "file"]:
                    continue
                rest = "/".join([info[4] if info[4:] else "", *parts])
                given.setdefault(users[int(info[1])], {})[rest] = archive.read(name)
                break
    return given


def canvas_grades(
    text: str, users: dict[int, str], assignments: dict[int, str]
) -> dict[str, dict[str, str]]:
    """The grade that the import gives each user in each assignment that the file has.

    ``users`` are names by id, ``assignments`` titles by id. A user who is not found is named as in
    the file, with "new: " before it, and so is an assignment.
    """
    text = text.removeprefix("\ufeff")
    first = text.splitlines()[:3]
    widths = {
        mark: {len(next(csv.reader([line], delimiter=mark))) for line in first} for mark in ";,"
    }
    count = {mark: max(found) if len(found) == 1 else 0 for mark, found in widths.items()}
    mark = ";" if count[";"] > count[","] else ","
    lines = [line for line in csv.reader(io.StringIO(text), delimiter=mark) if any(line)]
    heads = lines.pop(0)
    split_names = heads[0] == "LastName"
    id_ = 2 if split_names else 1
    assert "ID" in heads[id_] and len(heads) > 3, "Invalid header row"
    assert "Section" in heads
    columns = {}
    for column in range(heads.index("Section") + 1, len(heads)):
        head = heads[column]
        if re.search("(Current|Final|Override) (Score|Points|Grade)", head):
            continue
        number = re.search(r"\((\d+)\)$", head)
        title = assignments.get(int(number[1])) if number else None
        columns[column] = title or (head if head in assignments.values() else f"new: {head}")
    given: dict[str, dict[str, str]] = {}
    for line in lines:
        if "Points Possible" in line[0] or all(re.fullmatch("|Manual Posting.*", c) for c in line):
            continue
        user = users.get(int(line[id_])) if line[id_] else None
        user = user or (line[0] if line[0] in users.values() else f"new: {line[0]}")
        given[user] = {title: line[column].strip() for column, title in columns.items()}
    return given


def canvas_comments(
    file: Path, users: dict[int, str], attachments: dict[int, set[int]]
) -> tuple[dict[str, list[bytes]], list[str]]:
    """The files that each user gets with a comment, and the names that were ignored.

    ``attachments`` are the ids of what each user's present submission holds.
    """
    given: dict[str, list[bytes]] = {}
    ignored = []
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            words = [w for w in name.split("/")[-1].split("_") if w != "LATE"]
            user, attachment = [*(int(w) for w in words if re.fullmatch("[0-9]+", w)), 0, 0][:2]
            is_bad = words[0] == "anon" or words[-1].startswith("link") or name.startswith("._")
            if is_bad or attachment not in attachments.get(user, ()):
                ignored.append(name)
            else:
                given.setdefault(users[user], []).append(archive.read(name))
    return given, ignored
