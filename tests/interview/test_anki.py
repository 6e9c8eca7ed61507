"""The bank as an Anki deck: what its notes hold, opened as Anki opens them."""

import json
import re
import sqlite3
import zipfile

import genanki
import pytest

from labkit.__main__ import main
from labkit.interview import anki
from labkit.interview.answers import right_answer
from labkit.interview.cards import draw
from labkit.interview.questions import load_bank
from labkit.labs.texts import LANGUAGES
from tests.interview.small_bank import small_bank

BANK = load_bank()


def opened(file, folder):
    """The notes by their guid, each with tags and fields by name, and the decks' and models."""
    with zipfile.ZipFile(file) as deck:
        deck.extract("collection.anki2", folder)
    with sqlite3.connect(folder / "collection.anki2") as base:
        rows = base.execute("select guid, tags, flds from notes").fetchall()
        ((models, decks),) = base.execute("select models, decks from col").fetchall()
    (model,) = json.loads(models).values()
    names = [field["name"] for field in model["flds"]]
    notes = {
        guid: {"tags": tags.split(), **dict(zip(names, fields.split("\x1f"), strict=True))}
        for guid, tags, fields in rows
    }
    return notes, json.loads(decks), model


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    found = {}
    for language in LANGUAGES:
        folder = tmp_path_factory.mktemp(language)
        anki.export(BANK, folder / "deck.apkg", language)
        found[language] = opened(folder / "deck.apkg", folder)
    return found


def note(exported, id, language="en"):
    return exported[language][0][genanki.guid_for("labkit", id, language)]


def of_kind(kind):
    return next(q for q in BANK.questions.values() if q.kind == kind)


def test_the_languages_stand_side_by_side(exported):
    (english, decks, _), (chinese, other, _) = exported["en"], exported["zh"]
    assert not set(english) & set(chinese) and len(english) == len(chinese)
    ours = [{id for id in found if id != "1"} for found in (decks, other)]
    assert len(ours[0]) == len(BANK.topics) and not ours[0] & ours[1]


def test_a_deck_keeps_its_ids_over_exports(tmp_path, exported):
    anki.export(BANK, tmp_path / "again.apkg", "en")
    assert set(opened(tmp_path / "again.apkg", tmp_path)[0]) == set(exported["en"][0])


def test_programs_are_left_out_and_it_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    assert main(["anki", str(tmp_path / "deck.apkg")]) == 0
    notes, _, _ = opened(tmp_path / "deck.apkg", tmp_path)
    programs = sum(question.program for question in BANK.questions.values())
    tagged = sum(anki.ON_PAPER in found["tags"] for found in notes.values())
    kinds = [question.kind for question in BANK.questions.values()]
    assert tagged == kinds.count("order") + kinds.count("match") > 0
    assert len(notes) == len(BANK.questions) - programs and programs > 0
    said = capsys.readouterr().out
    assert all(f"{n} " in said for n in (len(notes), programs, tagged))
    assert main(["drill", "--anki", str(tmp_path / "zh.apkg"), "--language", "zh"]) == 0
    assert f"{len(notes)} 张卡片" in capsys.readouterr().out


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_code_shows_backticks_or_dollars_and_no_field_a_script(exported, language):
    for found in exported[language][0].values():
        for name in ("Question", "Choices", "Hints", "Answer", "Explanation", "More"):
            assert "<script" not in found[name]
            bare = re.sub(r"<pre>.*?</pre>|<code>.*?</code>", "", found[name], flags=re.S)
            assert "`" not in bare, found["Question"]
            assert not re.search(r"\$[^$\s][^$]*\^", bare), found["Question"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_wrong_option_says_why(tmp_path, language):
    bank = small_bank(tmp_path)
    anki.export(bank, tmp_path / "deck.apkg", language)
    notes, _, _ = opened(tmp_path / "deck.apkg", tmp_path)
    found = notes[genanki.guid_for("labkit", "pick", language)]
    for option in bank.questions["pick"].options:
        text = option[language].replace("<b>bold</b>", "&lt;b&gt;bold&lt;/b&gt;")
        side = "right" if option.right else "wrong"
        (item,) = (i for i in found["Answer"].split("<li") if text in i)
        assert item.startswith(f' class="{side}"') and text in found["Choices"]
        if not option.right:
            assert option.feedback[language] in item
            assert option.feedback[language] not in found["Choices"] + found["Question"]
    assert bank.questions["pick"].hints[language][0] in found["Hints"]
    assert r"\(2^{10}\)" in found["Explanation"]


def test_wrong_numbers_have_their_reasons_and_drawn_ones_are_called_so(tmp_path):
    bank = small_bank(tmp_path)
    anki.export(bank, tmp_path / "deck.apkg", "en")
    notes, _, _ = opened(tmp_path / "deck.apkg", tmp_path)
    found = notes[genanki.guid_for("labkit", "double", "en")]
    n = draw(bank.questions["double"], 0).values["n"]
    assert f"That is {n} itself." in found["More"] and str(2 * n) in found["Answer"]
    assert "This card keeps one draw." in found["Question"]
    easy = notes[genanki.guid_for("labkit", "easy", "en")]
    assert "keeps one draw" not in easy["Question"]


def test_speech_has_its_points(exported):
    question = of_kind("free")
    found = note(exported, question.id)
    assert found["More"].count("<li>") >= len(question.rubric)
    words = right_answer(draw(question, 0)).en.split("`")[-1].split()[-3:]
    assert " ".join(words) in found["Answer"]


@pytest.mark.parametrize("kind", ["order", "match", "line", "predict", "bits"])
def test_every_kind_shows_its_wrong_answers(exported, kind):
    question = of_kind(kind)
    found = note(exported, question.id)
    assert found["More"].count("<b>") >= len(question.known_wrongs)
    assert found["Answer"]


def test_proof_and_sources_are_on_the_back(exported):
    proved = next(q for q in BANK.questions.values() if q.cell and q.sources and not q.program)
    found = note(exported, proved.id)
    assert "See for yourself" in found["More"] and "<pre><code>" in found["More"]
    assert "Sources" in found["More"]
    assert "More" not in exported["en"][2]["tmpls"][0]["qfmt"]


def test_addresses_are_links():
    assert anki._source("A & B, https://a.org/b?c=1.") == (
        'A &amp; B, <a href="https://a.org/b?c=1">https://a.org/b?c=1</a>.'
    )
