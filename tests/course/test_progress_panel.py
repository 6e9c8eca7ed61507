"""The progress panel: the page and its text twin say what the log holds."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from small_manifest import lab

from labkit.base import progress
from labkit.base.home import Manifest, ManifestError
from labkit.course import progress_panel as module
from labkit.course.progress_panel import progress_panel
from labkit.labs.engine.misconceptions import Misconception

LAB = "02_number_formats"
MANIFEST = Manifest(
    (
        lab("00_start_here", "Start <here>"),
        lab(LAB, "Build a number system", ulp=2, snap=2, ruler=2),
    )
)
KNOWN = {
    "max-not-gap": Misconception(
        id="max-not-gap",
        en="Only the maximum limits a sum.",
        zh="只有上限才限制求和。",
        cure=f"{LAB}#The-gap-above-x",
    )
}
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DAY = NOON.astimezone().date().isoformat()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LABKIT_PROGRESS", raising=False)
    monkeypatch.setattr(module, "read_manifest", lambda: MANIFEST)
    monkeypatch.setattr(module, "misconceptions", lambda: KNOWN)
    return tmp_path / "home"


def some_progress():
    progress.record("check", lab=LAB, item="ulp", status="passed", now=NOON)
    for item, ideas in (
        ("ones-fp16", ["max-not-gap"]),
        ("halfway", []),
    ):
        progress.record(
            "prediction",
            lab=LAB,
            item=item,
            status="wrong",
            now=NOON,
            guess="<5000>",
            truth="2048",
            sure=3,
            correct=False,
            misconceptions=ideas,
        )
    progress.record(
        "check", lab=LAB, item="snap", status="failed", now=NOON, misconceptions=["max-not-gap"]
    )
    progress.record(
        "check",
        lab=LAB,
        item="snap",
        status="failed",
        now=NOON + timedelta(minutes=1),
        misconceptions=["gone-since"],
    )


class Page(HTMLParser):
    """What a page says, its links, and its tags with their attributes."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.words, self.links = [], [], {}
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.words.append(data)
        if data.strip() and self.tags and self.tags[-1][0] == "a":
            self.links.setdefault(data, self.tags[-1][1]["href"])


def test_an_empty_log_shows_the_labs_and_no_lists():
    assert repr(progress_panel()).splitlines() == [
        "lab                passed  points  last seen",
        "00_start_here      0 of 0  0 of 0  never",
        "02_number_formats  0 of 3  0 of 6  never",
    ]
    page = Page(progress_panel()._repr_html_())
    assert [tag for tag, _ in page.tags].count("table") == 1


def test_what_is_optional_is_named_beside_what_counts(monkeypatch):
    of_lab = lab(LAB, "Build a number system", snap=3, tf32=0)
    monkeypatch.setattr(module, "read_manifest", lambda: Manifest((of_lab,)))
    progress.record("check", lab=LAB, item="snap", status="passed", now=NOON)
    assert repr(progress_panel()).splitlines() == [
        "lab                passed                    points  last seen",
        f"02_number_formats  1 of 1 + 0 of 1 optional  3 of 3  {DAY}",
    ]
    page = Page(progress_panel()._repr_html_())
    assert "1 of 1 + 0 of 1 optional" in page.words
    assert "width: 100%" in str(page.tags)
    assert module.as_text(module.lab_progress(of_lab, progress.events())).splitlines()[
        2
    ].split() == (["tf32", "not", "started", "optional", "0", "never"])


def test_the_text_twin_lists_what_is_worth_another_look():
    some_progress()
    assert repr(progress_panel()).splitlines() == [
        "lab                passed  points  last seen",
        "00_start_here      0 of 0  0 of 0  never",
        f"02_number_formats  1 of 3  2 of 6  {DAY}",
        "",
        "Sure and wrong",
        "- ones-fp16 (lab 02): you said <5000>, it is 2048."
        " Look at lab 02, section “The gap above x”.",
        "- halfway (lab 02): you said <5000>, it is 2048. Look at lab 02.",
        "",
        "Wrong ideas met",
        "- gone-since. Met once.",
        "- Only the maximum limits a sum. Met 2 times. Look at lab 02, section “The gap above x”.",
    ]


def test_the_page_says_the_same_in_both_languages():
    some_progress()
    page = Page(progress_panel()._repr_html_())
    words = set(page.words)
    assert {"02 Build a number system", "00 Start <here>", "1 of 3", "2 of 6", DAY} <= words
    assert {"ones-fp16 (lab 02)", "<5000>", "2048", "gone-since", "2 times", "once"} <= words
    assert {"Only the maximum limits a sum.", "只有上限才限制求和。"} <= words
    assert ("span", {"lang": "zh"}) in page.tags


def test_links_lead_to_the_lab_and_to_the_section_that_cures():
    some_progress()
    links = Page(progress_panel()._repr_html_()).links
    assert links == {
        "00 Start <here>": "00_start_here.ipynb",
        "02 Build a number system": "02_number_formats.ipynb",
        "lab 02, section “The gap above x”": "02_number_formats.ipynb#The-gap-above-x",
        "lab 02": "02_number_formats.ipynb",
    }


def test_an_idea_that_questions_cure_leads_to_their_topic_and_links_nowhere(monkeypatch):
    idea = replace(KNOWN["max-not-gap"], cure="topic:loss-scaling")
    monkeypatch.setattr(module, "misconceptions", lambda: {idea.id: idea})
    some_progress()
    panel = progress_panel()
    assert "Look at the interview questions on loss scaling." in repr(panel)
    page = Page(panel._repr_html_())
    assert "the interview questions on loss scaling" in page.words
    assert not [link for link in page.links.values() if "topic" in link]


def test_every_table_has_a_caption_and_headers_with_a_scope():
    some_progress()
    tags = Page(progress_panel()._repr_html_()).tags
    names = [name for name, _ in tags]
    assert names.count("table") == names.count("caption") == names.count("thead") == 3
    scopes = [attributes.get("scope") for name, attributes in tags if name == "th"]
    assert set(scopes) == {"col", "row"}


def test_a_bar_is_as_long_as_the_share_passed_and_hidden_from_screen_readers():
    some_progress()
    tags = Page(progress_panel()._repr_html_()).tags
    widths = [attributes["style"] for _, attributes in tags if "style" in attributes]
    assert widths == ["width: 0%", "width: 33%"]
    bars = [attributes for _, attributes in tags if attributes.get("class") == "bar"]
    assert all(attributes["aria-hidden"] == "true" for attributes in bars)


def test_long_lists_end_in_how_many_more():
    for number in range(7):
        progress.record(
            "check", lab=LAB, item="snap", status="failed", misconceptions=[f"idea-{number}"]
        )
    text = repr(progress_panel())
    assert "idea-6" in text and "idea-2" in text
    assert "idea-1" not in text
    assert text.endswith("\nand 2 more")
    assert "<p>and 2 more</p>" in progress_panel()._repr_html_()


def test_a_log_that_cannot_be_read_is_a_sentence_above_the_labs(home):
    home.mkdir()
    progress.path().write_text("no database" * 100)
    panel = progress_panel()
    assert "is damaged" in repr(panel).splitlines()[0]
    assert "00_start_here      0 of 0" in repr(panel)
    assert "is damaged" in panel._repr_html_()


def test_a_log_that_is_off_is_said(monkeypatch):
    monkeypatch.setenv("LABKIT_PROGRESS", "off")
    assert repr(progress_panel()).startswith("LABKIT_PROGRESS=off: there is no log.\n")


def test_a_missing_manifest_is_a_sentence(monkeypatch, tmp_path):
    def missing():
        raise ManifestError(Path("manifest.json"), "is missing")

    monkeypatch.setattr(module, "read_manifest", missing)
    said = repr(progress_panel())
    assert said.startswith("manifest.json is missing. It lists the labs")
    assert said.endswith("\n\nNo labs are listed.")


def test_no_text_becomes_a_tag_of_the_page(monkeypatch):
    evil = "\"><script>alert('1')</script>"
    idea = Misconception(id="max-not-gap", en=evil, zh=evil, cure=f"{LAB}#{evil}")
    monkeypatch.setattr(module, "misconceptions", lambda: {"max-not-gap": idea})
    monkeypatch.setattr(
        module, "read_manifest", lambda: Manifest((lab(f"02_{evil}", evil, ulp=1),))
    )
    ideas = ["max-not-gap", evil]
    said = {"guess": evil, "truth": evil, "sure": 3, "correct": False, "misconceptions": ideas}
    progress.record("prediction", lab=LAB, item=evil, status="wrong", **said)
    progress.record(
        "prediction", lab=evil, item=evil, status="wrong", **{**said, "misconceptions": []}
    )
    panel = progress_panel()
    pages = [panel._repr_html_(), replace(panel, remark=evil)._repr_html_()]
    # Title, two predictions with where, guess and truth, one section, three ideas; and a remark.
    assert [page.count("&lt;script&gt;") > 10 for page in pages] == [True, True]
    for page in pages:
        assert "script" not in [tag for tag, _ in Page(page).tags]
        assert not {"<script", "alert('1')"} & {*re.findall(r"<script|alert\('1'\)", page)}
