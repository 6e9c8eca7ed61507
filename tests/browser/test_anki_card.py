"""The template of the Anki deck in a browser: shuffled options, the same order on both sides."""

import genanki
import pytest

from labkit.interview import anki
from tests.browser.conftest import GLANCE
from tests.interview.small_bank import small_bank
from tests.interview.test_anki import opened

pytestmark = pytest.mark.browser


@pytest.fixture
def side(tmp_path, chromium):
    """Shows a side of the card "pick" and returns the options' texts in their order."""
    anki.export(small_bank(tmp_path), tmp_path / "deck.apkg", "en")
    notes, _, model = opened(tmp_path / "deck.apkg", tmp_path)
    note = notes[genanki.guid_for("labkit", "pick", "en")]
    (template,) = model["tmpls"]
    context = chromium.new_context()
    page = context.new_page()
    page.set_default_timeout(GLANCE * 1000)

    def show(name, *, storage=True):
        html = template[name]
        for field, text in note.items():
            html = html.replace("{{" + str(field) + "}}", str(text))
        body = f"<style>{model['css']}</style><body class=card>{html}</body>"
        if storage:
            page.route("http://anki.test/", lambda route: route.fulfill(body=body))
            page.goto("http://anki.test/")
            page.unroute("http://anki.test/")
        else:
            page.goto("about:blank")
            page.set_content(body)
        rows = page.locator("ol.choices > li").all_inner_texts()
        return [row.split("\n")[0].strip() for row in rows]

    yield show
    context.close()


def test_the_back_repeats_the_order_of_the_front_and_fronts_differ(side):
    seen = set()
    for _ in range(12):
        front = side("qfmt")
        assert side("afmt") == front and len(set(front)) == 3
        seen.add(tuple(front))
    # Of 6 orders all twelve agree by chance once in 6**11.
    assert len(seen) > 1


def test_without_storage_both_sides_have_the_order_of_the_day(side):
    front = side("qfmt", storage=False)
    assert side("afmt", storage=False) == front and len(set(front)) == 3
