"""One word means one thing: no public name stands twice in labkit without a reason."""

from tests import doubled_names


def test_a_public_name_stands_once():
    assert doubled_names.faults() == []


def test_a_class_in_two_modules_and_a_module_in_two_packages_are_found(tmp_path):
    for package in ("one", "other"):
        (tmp_path / package).mkdir()
        (tmp_path / package / f"{package}.py").write_text("class Plan: ...\ndef _own(): ...\n")
        (tmp_path / package / "ledger.py").write_text("def main(): ...\n")
    found = doubled_names.doubled(tmp_path)
    assert found.keys() == {"Plan", "ledger", "main"}
    said = doubled_names.faults(tmp_path)
    assert any(s.startswith("Plan stands in one/one.py, other/other.py") for s in said)
    assert "mlp stands once: take its reason out" in said
