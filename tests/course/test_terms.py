"""The table of terms: its rows, the blocks that it fills, and labs and bank that follow it."""

import csv
import functools
import re
import tomllib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import jupytext
import pytest
from tiny_lab import TINY

from labkit.base.home import DATA, NOTEBOOKS, read_manifest
from labkit.course.build import build
from labkit.course.lab_source import LabError, read_lab
from labkit.course.minutes import by_heading, sitting_of
from labkit.course.terms import CHINESE, Term, TermError, glossary, terms_beside

LABS = [lab.lab for lab in read_manifest().labs]
TERMS = terms_beside(NOTEBOOKS)
ULP = {
    "id": "ulp",
    "en": "ulp",
    "zh": "末位单位",
    "meaning_en": "The gap above a number.",
    "meaning_zh": "一个数上方的间隔。",
    "lab": "02_tiny",
    "sitting": "",
}
SITTINGS = TINY.replace(
    '# %% predict="ones"',
    "# %% [markdown]\n# ## Sitting A: ones\n#\n# You are here.\n\n"
    "# %% [markdown]\n# ## Sitting B: twos\n\n"
    '# %% predict="ones"',
)


def course(tmp_path: Path, *rows: dict[str, str], source: str = TINY) -> Path:
    """The notebooks of a course with these rows of terms; a row changes ``ULP``."""
    notebooks = tmp_path / "notebooks"
    (notebooks / "source").mkdir(parents=True)
    (notebooks / "source" / "02_tiny.py").write_text(source, encoding="utf-8")
    (tmp_path / "data").mkdir()
    with (tmp_path / "data" / "terms.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(ULP))
        writer.writeheader()
        writer.writerows(ULP | row for row in rows)
    return notebooks


def texts(notebooks: Path) -> list[str]:
    """The Markdown cells of the tiny lab, the same for the learner and solved."""
    lab = read_lab(notebooks / "source" / "02_tiny.py")
    seen, solved = (
        [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
        for notebook in (lab.learner, lab.solution)
    )
    assert seen == solved
    return seen


def test_each_sitting_has_its_own_terms_under_its_title(tmp_path):
    notebooks = course(
        tmp_path,
        {"sitting": "B"},
        {"id": "bit", "en": "bit", "zh": "位", "sitting": "A"},
        {"id": "other", "lab": "", "zh": "别的"},
        source=SITTINGS,
    )
    first, a, b = texts(notebooks)
    assert not CHINESE.search(first)
    assert a.startswith("## Sitting A: ones\n\n<details>") and a.endswith("\n\nYou are here.")
    assert b.startswith("## Sitting B: twos\n\n<details>") and b.endswith("</details>")
    row = "| ulp | 末位单位 | The gap above a number.<br>一个数上方的间隔。 |"
    assert row in b.splitlines() and row not in a.splitlines()
    assert "| bit | 位 |" in a and "别的" not in a + b


def test_a_lab_without_sittings_has_its_terms_in_the_first_cell(tmp_path):
    (first,) = texts(course(tmp_path, {}))
    before, block, _ = first.partition("\n\n<details>")
    assert before.startswith("# 2. Tiny numbers") and "needs: nothing" in before and block


def test_the_block_takes_no_minutes_and_is_no_section(tmp_path):
    with_term, without = (
        read_lab(course(tmp_path / name, *rows, source=SITTINGS) / "source" / "02_tiny.py")
        for name, rows in (
            ("with", [{"sitting": "A", "meaning_en": "word " * 1000 + "end"}]),
            ("without", []),
        )
    )
    assert with_term.minutes == without.minutes
    assert with_term.sections == without.sections


WRONG = {
    "two rows of one id": ([{}, {}], TermError, "line 3.*'ulp' stands in another row"),
    "an id with a capital": ([{"id": "ULP"}], TermError, "line 2.*'ULP'"),
    "a term without Chinese": ([{"zh": "ulp"}], TermError, "zh is 'ulp'"),
    "Chinese in the English meaning": ([{"meaning_en": "间隔"}], TermError, "meaning_en is"),
    "an empty meaning": ([{"meaning_en": ""}], TermError, "meaning_en must be one line"),
    "a meaning of two lines": ([{"meaning_en": "a\nb"}], TermError, "one line"),
    "a bar": ([{"meaning_en": "|x|"}], TermError, "holds a `|`"),
    "a sitting of no lab": ([{"lab": "", "sitting": "A"}], TermError, "of no lab"),
    "an unknown lab": ([{"lab": "99_gone"}], TermError, "no lab '99_gone'"),
    "an unknown sitting": ([{"sitting": "A"}], LabError, "no sitting A"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_row_is_named(name, tmp_path):
    rows, error, says = WRONG[name]
    with pytest.raises(error, match=says):
        build(notebooks=course(tmp_path, *rows), check=True)


def test_a_lab_with_sittings_asks_for_one(tmp_path):
    with pytest.raises(LabError, match="say which sitting, one of A, B"):
        build(notebooks=course(tmp_path, {}, source=SITTINGS), check=True)


def test_a_row_with_a_stray_comma_or_another_head_is_named(tmp_path):
    notebooks = course(tmp_path)
    table = tmp_path / "data" / "terms.csv"
    head = table.read_text(encoding="utf-8")
    table.write_text(head + "ulp,ulp,末位单位,One, two.,一,,\n", encoding="utf-8")
    with pytest.raises(TermError, match="line 2: not as many fields"):
        terms_beside(notebooks)
    table.write_text(head.replace("zh", "cn"), encoding="utf-8")
    with pytest.raises(TermError, match="columns must be id,en,zh"):
        terms_beside(notebooks)


def test_the_glossary_has_all_terms_in_order_and_a_stale_one_is_named(tmp_path):
    rows = [ULP | {"id": "x", "en": en, "lab": lab} for en, lab in [("b", "02_tiny"), ("A", "")]]
    lines = glossary([Term(**row) for row in rows]).splitlines()[-2:]
    assert lines[0].startswith("| A |") and lines[0].endswith("| question bank |")
    assert lines[1].startswith("| b |")
    assert lines[1].endswith("| [lab 02](../notebooks/02_tiny.ipynb) |")

    notebooks = course(tmp_path, {})
    assert any("glossary.md" in said for said in build(notebooks=notebooks, check=True))
    page = tmp_path / "docs" / "glossary.md"
    page.parent.mkdir()
    page.write_text(glossary(terms_beside(notebooks)), encoding="utf-8")
    assert not any("glossary.md" in said for said in build(notebooks=notebooks, check=True))


# The course's own table.


@functools.cache
def written(lab: str) -> dict[str, str]:
    """The text of each sitting in lower case, without marks; what stands before A is A's."""
    sitting, found = "", {"": ""}
    for cell in jupytext.read(NOTEBOOKS / "source" / f"{lab}.py").cells:
        for heading, text in by_heading(cell.source) if cell.cell_type == "markdown" else ():
            sitting = sitting_of(heading) or sitting
            found[sitting] = f"{found.get(sitting, '')} {text}"
    if "A" in found:
        found["A"] = found.pop("") + found["A"]
    return {letter: plain(text) for letter, text in found.items()}


@functools.cache
def bank() -> str:
    files = sorted((DATA / "questions").glob("*.toml"))
    return plain(" ".join(path.read_text(encoding="utf-8") for path in files))


def plain(text: str) -> str:
    return " ".join(re.sub(r"[*_`]", "", text).lower().split())


def test_a_term_stands_in_the_text_that_brings_it():
    lost = []
    for term in TERMS:
        text = written(term.lab)[term.sitting] if term.lab else bank()
        if not re.search(rf"\b{re.escape(plain(term.en))}", text):
            lost.append(asdict(term))
    assert lost == []


def test_running_text_of_a_lab_holds_no_chinese():
    found = [
        (lab, line)
        for lab in LABS
        for line in (NOTEBOOKS / "source" / f"{lab}.py").read_text(encoding="utf-8").splitlines()
        if CHINESE.search(line)
    ]
    assert found == []


# What the table calls otherwise, and where the same characters are right.
NOT_SAID = {
    "次正规": "非规格化数",
    "非正规数": "非规格化数",
    "规约": "归约",
    "平局": "中点",
    "梯度累加": "梯度累积",
    "每张量": "逐张量",
    "每通道": "逐通道",
    "一阶动量": "一阶矩",
    "二阶动量": "二阶矩",
    "切分参数": "分片",
    "内核": "kernel",
    "计算强度": "算术强度",
    "倍频程": "相邻两个 2 的幂之间",
}


BANK = [
    *sorted((DATA / "questions").glob("*.toml")),
    *sorted((DATA / "problems").glob("*.toml")),
    DATA / "misconceptions.toml",
]


def test_the_bank_says_what_the_table_says():
    found = [
        f"{path.name}: {line.strip()}: the table's word is {NOT_SAID[word]}"
        for path in BANK
        for line in path.read_text(encoding="utf-8").splitlines()
        for word in NOT_SAID
        if word in line
    ]
    assert found == []
    in_table = " ".join(term.zh for term in TERMS)
    assert [word for word in NOT_SAID.values() if word not in in_table] == []


def in_chinese(entry: object, language: str = "") -> Iterator[str]:
    """The Chinese texts of a TOML document, each code and formula of them as one letter."""
    if isinstance(entry, dict):
        for key, inner in entry.items():
            yield from in_chinese(inner, key if key in ("en", "zh") else language)
    elif isinstance(entry, list):
        for inner in entry:
            yield from in_chinese(inner, language)
    elif isinstance(entry, str) and language == "zh" and CHINESE.search(entry):
        yield re.sub(r"```.*?```|`[^`]*`|\$[^$]*\$|\{[\w.]+\}", "x", entry, flags=re.DOTALL)


HALF_WIDTH = re.compile(
    r"[,:;?!](?=[\u4e00-\u9fff（“])|(?<=[\u4e00-\u9fff）”])[,:;?!]"  # beside Chinese
    r"|(?<=\w):(?=[A-Za-z])"  # FP16:loss, in a Chinese sentence
    r"|(?<=[\u4e00-\u9fff，。；：、）”]) +(?=[\u4e00-\u9fff，。；：、（“])"  # a stray space
)


def test_chinese_has_full_width_marks():
    found = [
        (path.name, text[max(mark.start() - 12, 0) : mark.end() + 12])
        for path in BANK
        for text in in_chinese(tomllib.loads(path.read_text(encoding="utf-8")))
        for mark in HALF_WIDTH.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text", ["约为 6e-8,更小的", "FP16：对吗?", "`FP16`:停住", "FP16:loss 不动", "保持 输入的"]
)
def test_a_half_width_mark_is_seen(text):
    (seen,) = in_chinese({"prompt": {"zh": text, "en": text}})
    assert HALF_WIDTH.search(seen)
