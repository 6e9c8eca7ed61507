"""Templates: what is given is escaped, a name that lacks is an error, a page can be written."""

import jinja2
import pytest
from markupsafe import Markup

from labkit.labs.engine import templates
from labkit.labs.engine.templates import render

EVIL = """"><script>alert('1')</script>"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder of templates in place of labkit's."""
    monkeypatch.setattr(templates, "_LABKIT", tmp_path)
    templates._environment.cache_clear()
    yield tmp_path
    templates._environment.cache_clear()


@pytest.mark.parametrize("name", ["page.html", "page.svg", "page"])
def test_what_is_given_is_escaped_whatever_the_file_is_called(folder, name):
    (folder / name).write_text('<p title="{{ words }}">{{ words }}{{ ready }}</p>')
    page = render(name, words=EVIL, ready=Markup("<b>"))
    escaped = "&#34;&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;"
    assert page == f'<p title="{escaped}">{escaped}<b></p>'


@pytest.mark.parametrize("asks", ["{{ nam }}", "{{ one.nam }}", "{% if nam %}{% endif %}"])
def test_a_name_that_is_not_given_is_an_error(folder, asks):
    (folder / "page.html").write_text(asks)
    with pytest.raises(jinja2.UndefinedError, match="nam"):
        render("page.html", name="ada", one={})


def test_what_no_page_can_hold_becomes_a_question_mark(folder):
    (folder / "page.html").write_text("{{ words }}", encoding="utf-8")
    assert render("page.html", words="a\ud800b\0c 李") == "a?b?c 李"
