"""The manifest is read into records, a lab is found by name or number, and trouble is said."""

import json
from dataclasses import asdict

import pytest

from labkit.base.home import NOTEBOOKS, ManifestError, full_name, read_manifest


def test_the_records_hold_what_the_build_wrote():
    content = json.loads((NOTEBOOKS / "manifest.json").read_text(encoding="utf-8"))
    labs = read_manifest().labs
    assert [entry.lab for entry in labs] == [entry["lab"] for entry in content["labs"]]
    for lab, entry in zip(labs, content["labs"], strict=True):
        facts = (lab.title, lab.version, lab.minutes, lab.hardware, list(lab.predictions))
        names = ("title", "version", "minutes", "hardware", "predictions")
        assert facts == tuple(entry[name] for name in names)
        assert lab.optional_minutes == entry["optional_minutes"]
        sections = [{**asdict(section), "items": list(section.items)} for section in lab.sections]
        assert sections == entry["sections"]
        assert [
            {
                "exercise": each.exercise,
                "names": list(each.names),
                "points": each.points,
                "check_version": each.check_version or None,
                "limits": {"seconds": each.seconds},
            }
            for each in lab.exercises
        ] == entry["exercises"]
        assert f"{lab.number:02}" == lab.lab[:2]


@pytest.mark.parametrize("name", ["02", "02_number_formats"])
def test_a_lab_is_found_by_its_number_or_its_name(name):
    assert read_manifest().find(name).lab == "02_number_formats"


@pytest.mark.parametrize("name", ["2", "02_number", "number_formats", "", "99"])
def test_what_is_neither_is_refused_with_the_names_there_are(name):
    with pytest.raises(ValueError, match=f"no lab {name!r}; there are 00_start_here, 01_"):
        read_manifest().find(name)
    with pytest.raises(ValueError, match="there are none"):
        full_name(name, [])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "is missing"),
        ("{", "cannot be read"),
        ("\udcff", "cannot be read"),
        ("[]", "cannot be read"),
        ("{}", "entries are not this labkit's"),
        ('{"labs": [{"lab": "02_x"}]}', "entries are not this labkit's"),
        ('{"labs": ["02_x"]}', "cannot be read"),
    ],
)
def test_a_manifest_that_is_missing_or_damaged_says_what_brings_it_back(tmp_path, text, why):
    file = tmp_path / "manifest.json"
    if text is not None:
        file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ManifestError) as caught:
        read_manifest(tmp_path)
    assert why in caught.value.why
    for part in (str(file), why, "git checkout", "labkit build", "installing labkit again"):
        assert part in str(caught.value)


def test_an_entry_of_the_wrong_kind_is_damage(tmp_path):
    content = json.loads((NOTEBOOKS / "manifest.json").read_text(encoding="utf-8"))
    content["labs"][0]["exercises"] = None
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(ManifestError, match="cannot be read"):
        read_manifest(tmp_path)
