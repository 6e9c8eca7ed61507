"""What was handed in is found in every layout, and nothing in it leads astray."""

import os
import stat
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from labkit.grading.intake import deliveries as intake
from labkit.grading.intake import entries
from labkit.grading.intake.deliveries import Handed, IntakeError, collect
from labkit.grading.intake.reading import LARGEST

LABS = ["02_number_formats", "04_loss_scaling"]


def write(root: Path, *names: str, content: bytes = b"{}") -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def packed(root: Path, *entries: str | zipfile.ZipInfo, content: bytes = b"{}") -> Path:
    file = root / "class.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in entries:
            archive.writestr(entry, content)
    return file


def found(where: Path) -> list[Handed]:
    return list(collect(where, LABS))


def whose(where: Path) -> list[tuple[str, str]]:
    return [(one.student, one.assignment) for one in found(where)]


@pytest.mark.parametrize("root", ["submitted/", "", "course/submitted/"])
def test_nbgraders_layout(tmp_path, root):
    write(tmp_path, f"{root}ada/02_number_formats/x.ipynb", f"{root}bob/lab2/y.ipynb")
    where = tmp_path / "course" if root.startswith("course") else tmp_path
    assert whose(where) == [("ada", "02_number_formats"), ("bob", "lab2")]


def test_nbgraders_time_stamp_is_the_time(tmp_path):
    write(tmp_path, "submitted/ada/02_number_formats/x.ipynb")
    stamp = tmp_path / "submitted/ada/02_number_formats/timestamp.txt"
    stamp.write_text("2026-10-01 12:30:00.123456 UTC")
    (one,) = found(tmp_path)
    assert one.at == datetime(2026, 10, 1, 12, 30, 0, 123456, UTC)


def test_a_flat_folder_names_students_by_their_files(tmp_path):
    names = ["ada.ipynb", "bob_02_number_formats.ipynb", "04_loss_scaling-cy.IPYNB"]
    write(tmp_path, *names, "02_number_formats.ipynb", "notes.txt")
    assert sorted(whose(tmp_path)) == [
        ("02_number_formats", "02_number_formats"),
        ("ada", ""),
        ("bob", "02_number_formats"),
        ("cy", "04_loss_scaling"),
    ]


def test_a_folder_a_student(tmp_path):
    write(tmp_path, "ada/02_number_formats.ipynb", "bob/x.ipynb")
    assert whose(tmp_path) == [("ada", "02_number_formats"), ("bob", "")]


@pytest.mark.parametrize(
    ("name", "student", "lms_id"),
    [
        ("Ada Lovelace_4711_assignsubmission_file_/x.ipynb", "Ada Lovelace", "4711"),
        ("Ada Lovelace_4711_assignsubmission_file_x.ipynb", "Ada Lovelace", "4711"),
        ("class/Ada_M_L_4711_assignsubmission_file/02_number_formats.ipynb", "Ada_M_L", "4711"),
        ("lovelaceada_4711_99_02_number_formats.ipynb", "lovelaceada", "4711"),
        ("submissions/lovelaceada_LATE_4711_99_x-1.ipynb", "lovelaceada", "4711"),
    ],
)
def test_names_of_an_lms(tmp_path, name, student, lms_id):
    (one,) = found(packed(tmp_path, name))
    assert (one.student, one.lms_id) == (student, lms_id)
    assert one.marked_late == ("LATE" in name)
    assert one.content == b"{}"


@pytest.mark.parametrize(
    "name", ["../ada.ipynb", "a/../../ada.ipynb", "/ada.ipynb", "..\\ada.ipynb"]
)
def test_a_name_that_leads_out_of_the_zip_is_refused(tmp_path, name):
    entry = zipfile.ZipInfo("x")
    entry.filename = name  # the constructor would mend it
    (bad, good) = found(packed(tmp_path, entry, "zoe.ipynb"))
    assert (bad.cause, bad.content) == ("unsafe name", None)
    assert "leads out of its folder" in bad.trouble
    assert good.student == "zoe" and good.content == b"{}"
    assert os.listdir(tmp_path) == ["class.zip"]


def test_a_link_in_a_zip_is_not_followed(tmp_path):
    entry = zipfile.ZipInfo("ada/x.ipynb")
    entry.create_system = 3
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    ada, zoe = found(packed(tmp_path, entry, "zoe/x.ipynb", content=b"/etc/passwd"))
    assert (ada.student, ada.cause, ada.content) == ("ada", "link", None)
    assert zoe.content == b"/etc/passwd"


def test_links_in_a_folder_are_not_followed(tmp_path):
    write(tmp_path / "secret", "x.ipynb")
    root = write(tmp_path / "in", "zoe/x.ipynb")
    (root / "ada").mkdir()
    (root / "ada" / "x.ipynb").symlink_to(tmp_path / "secret" / "x.ipynb")
    (root / "bob").symlink_to(tmp_path / "secret")
    by_student = {one.student: one for one in found(root)}
    assert by_student["ada"].cause == by_student["bob"].cause == "link"
    assert by_student["ada"].content is by_student["bob"].content is None
    assert by_student["zoe"].content == b"{}"


def test_a_pipe_does_not_stop_the_batch(tmp_path):
    root = write(tmp_path, "zoe.ipynb")
    os.mkfifo(root / "ada.ipynb")
    ada, zoe = found(root)
    assert (ada.cause, zoe.content) == ("unreadable", b"{}")


def test_a_bomb_is_cut_at_the_limit(tmp_path):
    where = packed(tmp_path, "ada.ipynb", content=b"0" * (LARGEST + 2))
    assert where.stat().st_size < LARGEST / 100
    (one,) = found(where)
    assert (one.cause, one.content) == ("too large", None)
    root = write(tmp_path / "in", "ada.ipynb", content=b" " * (50 * 2**20))
    (one,) = found(root)
    assert (one.cause, one.content) == ("too large", None)


def test_a_zip_that_unpacks_to_too_much_in_all_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "LARGEST_DELIVERY", 3000)
    where = packed(tmp_path, *(f"s{n}.ipynb" for n in range(6)), content=b"0" * 1000)
    assert [one.cause for one in found(where)] == ["", "", "", "", "too large", "too large"]


def test_too_many_notebooks_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "MOST_NOTEBOOKS", 3)
    names = [f"s{n}.ipynb" for n in range(4)]
    for where in (packed(tmp_path, *names), write(tmp_path / "in", *names)):
        with pytest.raises(IntakeError, match="more than 3 notebooks; grade it in parts"):
            found(where)


def test_a_class_in_one_folder_of_too_many_files_is_refused_not_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr(entries, "MOST_FILES", 3)
    with pytest.raises(IntakeError, match="more than 3 files; grade it in parts"):
        found(write(tmp_path, *(f"s{n}.ipynb" for n in range(4))))


def test_too_many_notebooks_of_one_student_are_that_students_refusal(tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "MOST_OF_ONE", 3)
    monkeypatch.setattr(intake, "MOST_NOTEBOOKS", 5)
    names = [f"eve/x{n}.ipynb" for n in range(9)]
    for where in (
        packed(tmp_path, *names, "ada/x.ipynb", "zoe/x.ipynb"),
        write(tmp_path / "in", *names, "ada/x.ipynb", "zoe/x.ipynb"),
    ):
        ada, eve, zoe = found(where)
        assert (eve.student, eve.cause, eve.content) == ("eve", "too many files", None)
        assert "9 notebooks" in eve.trouble
        assert ada.content == zoe.content == b"{}"


@pytest.mark.parametrize("top", ["", "class/", "outer/class/", "submitted/"])
def test_too_many_files_of_one_student_are_that_students_refusal(tmp_path, monkeypatch, top):
    monkeypatch.setattr(entries, "MOST_FILES", 9)
    names = [f"{top}eve/venv/{n}.py" for n in range(12)]
    honest = [f"{top}{one}/x.ipynb" for one in ("ada", "bob", "cy", "zoe")]
    ada, bob, cy, eve, zoe = found(write(tmp_path, *names, f"{top}eve/x.ipynb", *honest))
    assert (eve.student, eve.cause) == ("eve", "too many files")
    assert {one.content for one in (ada, bob, cy, zoe)} == {b"{}"}


def test_a_damaged_entry_has_a_cause_and_the_next_one_follows(tmp_path):
    where = packed(tmp_path, "ada.ipynb", "zoe.ipynb", content=b"{}" * 500)
    raw = bytearray(where.read_bytes())
    place = raw.index(b"ada.ipynb") + len("ada.ipynb")
    raw[place : place + 4] = b"\xff\xff\xff\xff"
    where.write_bytes(raw)
    ada, zoe = found(where)
    assert (ada.cause, zoe.content) == ("corrupt", b"{}" * 500)


def test_an_encrypted_entry_has_a_cause(tmp_path):
    where = packed(tmp_path, "ada.ipynb")
    raw = bytearray(where.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.index(mark) + offset] |= 1
    where.write_bytes(raw)
    (one,) = found(where)
    assert one.cause == "encrypted"


def test_a_student_who_handed_in_no_notebook_has_a_cause(tmp_path):
    names = ["Bo_8_assignsubmission_file_/lab.pdf", "Al_7_assignsubmission_file_/x.ipynb"]
    extra = "Al_7_assignsubmission_file_/notes.txt"
    al, bo = found(packed(tmp_path, *names, extra))
    assert (al.student, al.cause) == ("Al", "")
    assert (bo.student, bo.cause) == ("Bo", "no notebook")
    assert "`lab.pdf` was handed in" in bo.trouble


@pytest.mark.parametrize(
    ("names", "students"),
    [
        (["class/ada/x.ipynb", "class/bob/y.ipynb", "class/cy/lab/z.ipynb"], ["ada", "bob", "cy"]),
        (["c/ada/02_number_formats/x.ipynb", "c/bob/04_loss_scaling/x.ipynb"], ["ada", "bob"]),
        (["c/submitted/ada/hw1/x.ipynb", "c/submitted/bob/hw1/x.ipynb"], ["ada", "bob"]),
        (["ada/02_number_formats/x.ipynb", "ada/04_loss_scaling/x.ipynb"], ["ada", "ada"]),
        (["ada/hw1/x.ipynb", "bob/hw1/x.ipynb"], ["ada", "bob"]),
        (["ada/x.ipynb", "bob/x.ipynb"], ["ada", "bob"]),
    ],
)
def test_a_folder_around_the_class_is_nobody(tmp_path, names, students):
    assert [one.student for one in found(packed(tmp_path, *names))] == students


@pytest.mark.parametrize(
    "name",
    [
        "eve/02_number_formats/submitted/bob/02_number_formats/x.ipynb",
        "eve/submissions/bob/02_number_formats/x.ipynb",
        "eve/bob/02_number_formats/x.ipynb",
        "eve/02_number_formats/bob_77_99_x.ipynb",
        "eve/bob_77_99_x.ipynb",
        "eve/02_number_formats/Bob_77_assignsubmission_file_x.ipynb",
        "eve/Bob_77_assignsubmission_file_/x.ipynb",
        "Eve_7_assignsubmission_file_/submitted/Bob_77_assignsubmission_file_/x.ipynb",
    ],
)
def test_nobody_hands_in_for_another(tmp_path, name):
    others = [f"{one}/02_number_formats/02_number_formats.ipynb" for one in ("ada", "bob")]
    if name.startswith("Eve"):
        others = [f"{one}_1_assignsubmission_file_/x.ipynb" for one in ("ada", "bob")]
    of_zip = [(one.student.lower(), one.lms_id) for one in found(packed(tmp_path, name, *others))]
    folder = write(tmp_path / "in", "submitted/" + name, *("submitted/" + one for one in others))
    of_folder = [(one.student.lower(), one.lms_id) for one in found(folder)]
    assert sorted(of_zip) == sorted(of_folder)
    assert sorted(student for student, _ in of_zip) == ["ada", "bob", "eve"]
    assert "77" not in dict(of_zip).values()


def test_an_accent_is_the_same_however_it_is_written(tmp_path):
    names = ["jose\u0301/x.ipynb", "ada/x.ipynb"]
    assert [one.student for one in found(packed(tmp_path, *names))] == ["ada", "jos\u00e9"]


def test_what_the_grader_wrote_into_the_folder_is_nobodys(tmp_path):
    write(tmp_path, "ada.ipynb", "grades.csv", "grades.feedback/ada.html")
    assert [one.student for one in found(tmp_path)] == ["ada"]


def test_what_systems_leave_behind_is_not_a_submission(tmp_path):
    names = ["ada/.ipynb_checkpoints/x-checkpoint.ipynb", "ada/._x.ipynb", "ada/.DS_Store"]
    names += ["ada/x.ipynb", "bob/x.ipynb", ".git/config", ".DS_Store", "._.DS_Store"]
    macs = ["__MACOSX/ada/._x.ipynb", "__MACOSX/._ada", "__MACOSX/bob/._x.ipynb"]
    for where in (packed(tmp_path, *names, *macs), write(tmp_path / "in", *names, *macs)):
        handed = found(where)
        assert [one.student for one in handed] == ["ada", "bob"]
        assert not any(one.remarks for one in handed)


@pytest.mark.parametrize(
    ("name", "student"),
    [
        ("~y.ipynb", "~y"),
        (".y.ipynb", ".y"),
        ("eve/.y.ipynb", "eve"),
        ("eve/~y/x.ipynb", "eve"),
        (".eve/x.ipynb", ".eve"),
        ("eve/.ipynb_checkpoints/x.ipynb", "eve"),
        ("eve/.git/x.ipynb", "eve"),
        ("__MACOSX/eve/x.ipynb", "__MACOSX"),
        ("__MACOSX/eve/._x.ipynb", "__MACOSX"),  # of no file
        ("._x.ipynb", "._x"),
    ],
)
def test_a_hidden_notebook_is_refused_with_a_word(tmp_path, name, student):
    names = [name, "ada/x.ipynb", "bob/x.ipynb"]
    for where in (packed(tmp_path, *names), write(tmp_path / "in", *names)):
        (eve,) = [one for one in found(where) if one.student not in ("ada", "bob")]
        assert (eve.student, eve.cause, eve.content) == (student, "hidden name", None)


def test_a_name_that_an_lms_wrote_is_not_hidden(tmp_path):
    names = ["~eve_7_assignsubmission_file_/x.ipynb", ".net fan_8_assignsubmission_file_/x.ipynb"]
    assert [one.content for one in found(packed(tmp_path, *names))] == [b"{}", b"{}"]


def test_who_handed_in_what_only_a_system_keeps_has_a_row(tmp_path):
    names = ["eve/.ipynb_checkpoints/x-checkpoint.ipynb", "ada/x.ipynb", "bob/x.ipynb"]
    _, _, eve = found(packed(tmp_path, *names))
    assert (eve.student, eve.cause) == ("eve", "no notebook")


def test_names_cannot_carry_control_characters(tmp_path):
    (one,) = found(write(tmp_path, "ada\x1b[31m\n=1+1.ipynb"))
    assert one.student == "ada?[31m?=1+1"
    bad = os.fsencode(tmp_path) + b"/sub/\xff.ipynb"
    os.mkdir(tmp_path / "sub")
    with open(bad, "wb") as file:
        file.write(b"{}")
    assert [one.student for one in found(tmp_path / "sub")] == ["?"]


@pytest.mark.parametrize("kind", ["nothing", "folder", "file", "zip"])
def test_nothing_to_grade_is_one_sentence(tmp_path, kind):
    where = tmp_path / "in"
    if kind == "folder":
        where.mkdir()
    elif kind == "file":
        where.write_text("x")
    elif kind == "zip":
        where = packed(tmp_path, "readme.txt")
    with pytest.raises(IntakeError) as caught:
        found(where)
    assert str(where) in str(caught.value)
