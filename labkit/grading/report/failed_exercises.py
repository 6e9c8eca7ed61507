"""Failures of a class that read alike, each group with one student's message and code.

A message and a piece of code are shown as they are. So that they give away nobody, an example is
taken whose author's name does not stand in it; where each has it, it is blotted out.
"""

import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from labkit.grading.judge.batch import Submission
from labkit.grading.records import HIDDEN
from labkit.grading.report.noteworthy import without_names
from labkit.grading.report.scores import Sheet, pseudonym

_ALIKE = 0.85  # by eye: two sentences of one check that differ in a clause lie above it
_MOST_COMPARED, _MOST_GROUPS = 300, 20  # so many sentences, each with the largest groups so far


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Failures of one exercise that show one idea, or whose messages read alike.

    ``idea`` is the id of a misconception or "". ``message`` and ``code`` are one student's; the
    code is without comments and docstrings, and "" where it cannot be parsed. ``students`` are
    pseudonyms.
    """

    exercise: str
    idea: str
    message: str
    code: str
    students: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Failure:
    """One student's failure; ``own`` finds the student's id and name in a text."""

    student: str
    message: str
    code: str
    own: re.Pattern[str]


def clusters(sheets: Sequence[Sheet], secret: bytes) -> list[Cluster]:
    """All failures of these sheets, the largest group first."""
    found: dict[tuple[str, str, str], list[_Failure]] = defaultdict(list)
    for sheet in sheets:
        of = sheet.submission
        student, own = pseudonym(of.student, secret), _own(of)
        for row in sheet.rows:
            if row.status in ("failed", "error"):
                template = "" if row.idea else without_names(row.message)
                form = of.forms.get(row.exercise.removeprefix(HIDDEN))
                found[row.exercise, row.idea, template].append(
                    _Failure(
                        student=student,
                        message=row.message,
                        code=form.text if form else "",
                        own=own,
                    )
                )
    return sorted(
        (_cluster(exercise, idea, of_it) for (exercise, idea, _), of_it in _merged(found).items()),
        key=lambda one: (-len(one.students), one.exercise, one.idea, one.message, one.students),
    )


def _cluster(exercise: str, idea: str, failures: list[_Failure]) -> Cluster:
    messages = Counter(one.message for one in failures)
    pairs = Counter((one.message, one.code) for one in failures)
    example = min(
        failures,
        key=lambda one: (
            bool(one.own.search(f"{one.message}\n{one.code}")),
            not one.code,
            -messages[one.message],
            -pairs[one.message, one.code],
            len(one.code),
            one.student,
        ),
    )
    return Cluster(
        exercise=exercise,
        idea=idea,
        message=example.own.sub("…", example.message),
        code=example.own.sub("…", example.code),
        students=tuple(sorted({one.student for one in failures})),
    )


def _own(of: Submission) -> re.Pattern[str]:
    """Finds what a student is called: the id, the number, and each word of the name.

    A short word is found where it stands alone, so that `an` is no part of `nan`.
    """
    words = re.findall(r"[^\W\d_]{2,}", f"{of.student} {of.name}")
    wholes = {one for one in (of.student, of.lms_id) if len(one) > 1}
    letter = r"[^\W\d_]"
    parts = [
        re.escape(word)
        if len(word) > 3 or not word.isascii()
        else rf"(?<!{letter}){re.escape(word)}(?!{letter})"
        for word in sorted({*words, *wholes}, key=lambda word: (-len(word), word))
    ]
    return re.compile("|".join(parts) or r"(?!)", re.IGNORECASE)


def _merged(found: Mapping[tuple[str, str, str], list[_Failure]]) -> dict[tuple, list[_Failure]]:
    """The groups, those put together whose messages read alike."""
    merged: dict[tuple[str, str, str], list[_Failure]] = {}
    largest: dict[str, list[str]] = defaultdict(list)  # the first messages of groups, by exercise
    by_size = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    for place, ((exercise, idea, template), failures) in enumerate(by_size):
        first = template
        if not idea and place < _MOST_COMPARED:
            first = _twin(template, largest[exercise]) or template
            if first == template and len(largest[exercise]) < _MOST_GROUPS:
                largest[exercise].append(template)
        merged.setdefault((exercise, idea, first), []).extend(failures)
    return merged


def _twin(template: str, others: Iterable[str]) -> str | None:
    """The first of the others that reads like this message."""
    matcher = difflib.SequenceMatcher(None, "", template, autojunk=False)
    for other in others:
        matcher.set_seq1(other)
        ratios = (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)
        if all(ratio() >= _ALIKE for ratio in ratios):
            return other
    return None
