"""Answers that the author of a check did not foresee, and what each must be told.

    python -m tests.corpus                           every lab, at seed 0
    python -m tests.corpus 02 06 --seeds 5           at the seeds 0 to 4
    python -m tests.corpus 02 --exercise ulp --show  with every message

For each exercise it prints how many right answers were refused, how many wrong ones were accepted,
told truly or misled, and then the answers for which a check does not do what the corpus asks. The
answers are in ``tests/labs/corpus``; CONTRIBUTING.md explains their form.
"""

import argparse
import functools
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from labkit.base.home import full_name, read_manifest
from labkit.grading.judge.shipping import check_modules, checks_in
from labkit.labs.engine import Check
from labkit.labs.engine.slips import answer_of, solutions_of, text_of

CORPUS = Path(__file__).parent / "labs" / "corpus"

_HEAD = re.compile(r"# %% (?P<kind>right|wrong) (?P<exercise>[a-z0-9-]+): (?P<title>.+)")
_ASKS = re.compile(r"# +(?P<what>idea|says|never): (?P<text>.+)")


@dataclass(frozen=True, kw_only=True)
class Snippet:
    """One answer: right or wrong, as Python text, and what must be said of it.

    ``idea`` is the id of the misconception that must be named, "" if none may be; ``says`` are
    words that the message must hold, ``never`` words that it must not.
    """

    lab: str
    exercise: str
    kind: str
    title: str
    place: str
    code: str
    idea: str = ""
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def answer(self) -> object:
        """The answer that the text defines.

        The text finds the names of the lab's solutions, ``ours`` for the solutions themselves, and
        ``changed(old, new, ...)``: the solution with text replaced.
        """
        more = {"ours": solutions_of(self.lab), "changed": self._changed}
        return answer_of(self.code, self.lab, self.exercise, self.place, **more)

    def _changed(self, *swaps: str) -> object:
        text = text_of(solutions_of(self.lab), self.exercise)
        for old, new in zip(swaps[::2], swaps[1::2], strict=True):
            if text.count(old) != 1:
                raise ValueError(f"{self.place}: {old!r} stands {text.count(old)} times in\n{text}")
            text = text.replace(old, new)
        return answer_of(text, self.lab, self.exercise, f"{self.place}, changed")


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a check made of a snippet.

    ``what`` is one of OUTCOMES; ``as_asked`` whether the corpus asks for that; ``shortcuts`` names
    the forbidden functions that an answer uses in other ways than by their names.
    """

    snippet: Snippet
    what: str
    as_asked: bool
    message: str
    shortcuts: tuple[str, ...] = ()


OUTCOMES = (
    "accepted", "refused wrongly", "accepted wrongly", "told truly", "misled", "only refused",
)  # fmt: skip


@dataclass
class _Open:
    """A snippet while its lines are read."""

    head: re.Match
    line: int
    asks: list[tuple[str, str]] = field(default_factory=list)
    code: list[str] = field(default_factory=list)


def read(path: Path) -> list[Snippet]:
    """The snippets of a file named as its lab; raises ValueError with the line that is no header.

    Code above the first header is shared by all.
    """
    shared: list[str] = []
    opened: list[_Open] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("# %%"):
            head = _HEAD.fullmatch(line)
            if head is None:
                raise ValueError(
                    f"{path.name}:{number}: {line!r}; write `# %% right EXERCISE: title` or wrong"
                )
            opened.append(_Open(head, number))
        elif not opened:
            shared.append(line)
        elif (asks := _ASKS.fullmatch(line)) and not opened[-1].code:
            opened[-1].asks.append((asks["what"], asks["text"]))
        else:
            opened[-1].code.append(line)
    return [_snippet(path, one, shared) for one in opened]


def _snippet(path: Path, one: _Open, shared: list[str]) -> Snippet:
    def asked(what: str) -> tuple[str, ...]:
        return tuple(text for name, text in one.asks if name == what)

    above = [*shared, *[""] * (one.line + len(one.asks) - len(shared))]
    return Snippet(
        lab=path.stem,
        exercise=one.head["exercise"],
        kind=one.head["kind"],
        title=one.head["title"],
        place=f"{path.name}:{one.line}",
        # Tracebacks count lines as the file does.
        code="\n".join([*above, *one.code]),
        idea="".join(asked("idea")[:1]),
        says=asked("says"),
        never=asked("never"),
    )


def every_snippet() -> list[Snippet]:
    """The snippets of all labs, in their order."""
    return [snippet for path in sorted(CORPUS.glob("*.py")) for snippet in read(path)]


@functools.cache
def _checks() -> dict[tuple[str, str], Check]:
    found = [check for module in check_modules() for check in checks_in(module)]
    return {(check.lab, check.exercise): check for check in found}


def judge(snippet: Snippet, seed: int = 0) -> Found:
    """What the exercise's check makes of a snippet, beside what must be said of it."""
    result = _checks()[snippet.lab, snippet.exercise].result(snippet.answer(), seed=seed)
    passed, ideas = result.status == "passed", result.misconceptions
    said = all(words in result.message for words in snippet.says)
    lied = [words for words in snippet.never if words in result.message]
    asks = bool(snippet.idea or snippet.says)
    if snippet.kind == "right":
        what, as_asked = ("accepted", True) if passed else ("refused wrongly", False)
    elif passed:
        what, as_asked = "accepted wrongly", False
    elif lied or (ideas and ideas != (snippet.idea,)):
        what, as_asked = "misled", False
    elif asks and said and ideas == ((snippet.idea,) if snippet.idea else ()):
        what, as_asked = "told truly", True
    else:
        what, as_asked = "only refused", not asks
    return Found(
        snippet=snippet,
        what=what,
        as_asked=as_asked,
        message=result.message,
        shortcuts=result.shortcuts,
    )


def table(found: Iterable[Found]) -> str:
    """The counts, a row an exercise."""
    counts: dict[tuple[str, str], Counter] = {}
    for one in found:
        key = one.snippet.lab, one.snippet.exercise
        counts.setdefault(key, Counter())[one.what] += 1
    rows = [("lab", "exercise", "right", "refused", "wrong", "accepted", "told", "misled")]
    total: Counter = Counter()
    for (lab, exercise), count in counts.items():
        rows.append((lab.partition("_")[0], exercise, *_numbers(count)))
        total += count
    rows.append(("", "all", *_numbers(total)))
    columns = [
        (max(map(len, column)), "<" if i < 2 else ">")
        for i, column in enumerate(zip(*rows, strict=True))
    ]
    return "\n".join(
        "  ".join(f"{cell:{side}{width}}" for cell, (width, side) in zip(row, columns, strict=True))
        for row in rows
    )


def _numbers(count: Counter) -> tuple[str, ...]:
    right = count["accepted"] + count["refused wrongly"]
    numbers = (right, count["refused wrongly"], count.total() - right)
    numbers += count["accepted wrongly"], count["told truly"], count["misled"]
    return tuple(map(str, numbers))


def main(arguments: list[str]) -> int:
    """Judge the snippets that are asked for; 1 where a check does not do what the corpus asks."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.corpus", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("labs", nargs="*", metavar="LAB", help="a lab or its number; all labs")
    parser.add_argument("--exercise", help="one exercise")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="0 to N - 1 (1)")
    parser.add_argument("--show", action="store_true", help="every message")
    options = parser.parse_args(arguments)
    known = [entry.lab for entry in read_manifest().labs]
    labs = [full_name(name, known) for name in options.labs] or known
    found = [
        judge(snippet, seed)
        for snippet in every_snippet()
        if snippet.lab in labs and options.exercise in (None, snippet.exercise)
        for seed in range(options.seeds)
    ]
    for one in found:
        if options.show or not one.as_asked:
            snippet = one.snippet
            asked = [f"idea: {snippet.idea}"] * bool(snippet.idea)
            asked += [f"says: {words}" for words in snippet.says]
            asked += [f"never: {words}" for words in snippet.never]
            print(f"{one.what}: {snippet.place}, {snippet.exercise}, {snippet.title}")
            print(f"    {one.message}")
            print("".join(f"    asked for: {line}\n" for line in asked if not one.as_asked), end="")
    print(table(found))
    return 0 if all(one.as_asked for one in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
