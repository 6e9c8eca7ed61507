"""A file is replaced whole or not at all."""

import os

import pytest

from labkit.base.home import replace_file, replacing


@pytest.mark.parametrize("durable", [False, True])
def test_text_is_utf8_with_its_ends_of_lines_and_bytes_are_as_they_are(tmp_path, durable):
    path = tmp_path / "file"
    for content, stored in [("\u00e9\r\n\n", b"\xc3\xa9\r\n\n"), (b"\xff\r", b"\xff\r"), ("", b"")]:
        replace_file(path, content, durable=durable)
        assert path.read_bytes() == stored
    assert [each.name for each in tmp_path.iterdir()] == ["file"], "no temporary file stays"


def test_a_reader_sees_the_old_file_or_the_new_one_and_never_a_part(tmp_path, monkeypatch):
    path, seen, replace = tmp_path / "file", [], os.replace
    path.write_text("old")

    def watched(source, target):
        seen.append(path.read_text())
        replace(source, target)
        seen.append(path.read_text())

    monkeypatch.setattr(os, "replace", watched)
    replace_file(path, "new")
    assert seen == ["old", "new"]


@pytest.mark.parametrize("step", ["replace", "fsync"])
def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path, monkeypatch, step):
    path = tmp_path / "file"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, "new", durable=True)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("file", "old")]


def test_only_what_must_last_waits_for_the_disk(tmp_path, monkeypatch):
    """A class of 5,000 has as many pages of feedback, which can be written again."""
    order = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: order.append("on the disk"))
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *paths: (order.append("named"), replace(*paths)))
    replace_file(tmp_path / "page", "a")
    replace_file(tmp_path / "answers", "a", durable=True)
    assert order == ["named", "on the disk", "named"]


def test_what_is_written_in_parts_comes_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    with replacing(path) as file:
        file.write(b"a")
        assert not path.exists()
        file.write(b"b")
    assert path.read_bytes() == b"ab"
    with pytest.raises(ValueError, match="halfway"), replacing(path) as file:
        file.write(b"c")
        raise ValueError("halfway")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("file", b"ab")]
