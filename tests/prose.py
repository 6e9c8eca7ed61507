"""The prose of a lab as a reader counts it: words, sentences, and what does not belong there."""

import re
from statistics import mean

WORDS_A_SITTING = 1200
WORDS_A_CELL = 200
WORDS_A_SENTENCE = 25  # the longest one; STYLE.md asks for 20, which the mean must keep
MEAN_WORDS_A_SENTENCE = 20

_EMOJI = re.compile("[\U0001f000-\U0001faff\u2600-\u26ff\u2705\u274c\u2728\u2757]")


def plain(markdown: str) -> str:
    """What is read: no code, tables or folded hints; a formula or code span is one word."""
    text = re.sub(r"<details>.*?</details>", "", markdown, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^\s*\|.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL)
    text = re.sub(r"\$[^$]+\$|`[^`]*`", "it", text)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"<[^>\s][^>]*>|\*+", "", text)


def words(text: str) -> int:
    """Words of a text: what holds a letter or a digit."""
    return sum(1 for word in text.split() if re.search(r"\w", word))


def sentences(markdown: str) -> list[str]:
    """The sentences of a cell; a heading is none, an item of a list begins one."""
    text = re.sub(r"^#+ .*$", "", plain(markdown), flags=re.MULTILINE)
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text)
    # A full stop before a blank ends a sentence, and so does one before a closing quote or bracket.
    parts = [part for block in blocks for part in re.split(r"(?<=[.?!])[\"')]*\s+", block)]
    return [" ".join(part.split()) for part in parts if words(part)]


def sittings(cells: list[str]) -> list[list[str]]:
    """The markdown cells of each sitting; what stands before the first belongs to it."""
    found: list[list[str]] = [[]]
    begun = False
    for cell in cells:
        if re.search(r"^## Sitting", cell, flags=re.MULTILINE):
            if begun:
                found.append([])
            begun = True
        found[-1].append(cell)
    return found


def problems_of_prose(cells: list[str]) -> list[str]:
    """Where the markdown cells of a lab leave the limits of STYLE.md."""
    said = []
    for number, sitting in enumerate(sittings(cells), start=1):
        count = sum(words(plain(cell)) for cell in sitting)
        if count > WORDS_A_SITTING:
            said.append(f"sitting {number} has {count} words, at most {WORDS_A_SITTING}")
    for cell in cells:
        text, start = plain(cell), cell.strip().split("\n")[0][:60]
        if words(text) > WORDS_A_CELL:
            said.append(f"{words(text)} words in one cell, at most {WORDS_A_CELL}: {start}")
        if "!" in text:
            said.append(f"an exclamation mark: {start}")
        if _EMOJI.search(cell):
            said.append(f"an emoji: {start}")
    lengths = {sentence: words(sentence) for cell in cells for sentence in sentences(cell)}
    for sentence, length in lengths.items():
        if length > WORDS_A_SENTENCE:
            said.append(f"{length} words in one sentence, at most {WORDS_A_SENTENCE}: {sentence}")
    if lengths and mean(lengths.values()) > MEAN_WORDS_A_SENTENCE:
        said.append(f"a sentence has {mean(lengths.values()):.0f} words on average, at most 20")
    return said
