"""What was handed in is found in every layout, and nothing in it leads astray."""

import os
import stat
import subprocess
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from labkit.grading.intake import deliveries as intake
from labkit.grading.intake import entries
from labkit.grading.intake.deliveries import Handed, IntakeError, deliveries_in
from labkit.grading.intake.notebooks_read import LARGEST

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
    return list(deliveries_in(where, LABS))


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


@pytest.mark.parametrize("lab", ["", "_02_number_formats"])
@pytest.mark.parametrize("around", ["class/", "outer/class/"])
def test_notebooks_side_by_side_in_a_folder_are_a_class(tmp_path, around, lab):
    names = [f"{around}{name}{lab}.ipynb" for name in ("ada", "bob", "cy", "di")]
    for where in (packed(tmp_path, *names), write(tmp_path / "in", *names)):
        handed = found(where)
        assert [one.student for one in handed] == ["ada", "bob", "cy", "di"]
        (remark,) = {remark for one in handed for remark in one.remarks}
        assert (remark.kind, remark.who) == ("repaired", around.rstrip("/"))


def test_a_zip_with_backslashes_is_read_as_windows_meant_it(tmp_path):
    entries = [zipfile.ZipInfo("x") for _ in range(3)]
    for entry, name in zip(entries, ("ada", "bob", "..\\cy"), strict=True):
        entry.filename = f"class\\{name}\\x.ipynb"
        entry.create_system = 0
    cy, ada, bob = found(packed(tmp_path, *entries))
    assert (ada.student, bob.student) == ("ada", "bob")
    assert cy.cause == "unsafe name"


def test_a_name_with_a_nul_is_not_cut_there(tmp_path):
    where = packed(tmp_path, "ada_eve/x.ipynb", "ada/x.ipynb", "zoe/x.ipynb")
    where.write_bytes(where.read_bytes().replace(b"ada_eve", b"ada\0eve"))
    assert sorted(one.student for one in found(where)) == ["ada", "ada?eve", "zoe"]


def test_a_file_time_that_cannot_be_is_unknown_and_said(tmp_path, monkeypatch):
    root = write(tmp_path, "ada.ipynb", "zoe.ipynb")
    os.utime(root / "zoe.ipynb", (0, 0))
    real = os.fstat

    def far_away(descriptor):
        facts = real(descriptor)
        if facts.st_mtime == 0:
            return os.stat_result([*facts[:8], 10**12, facts[9]])  # as tmpfs and ZFS can keep
        return facts

    monkeypatch.setattr(os, "fstat", far_away)
    ada, zoe = found(root)
    assert (zoe.at, zoe.content, [one.kind for one in zoe.remarks]) == (None, b"{}", ["repaired"])
    assert ada.at and not ada.remarks


def test_an_entry_time_that_cannot_be_is_unknown_and_said(tmp_path):
    entry = zipfile.ZipInfo("ada.ipynb", (2026, 10, 1, 12, 0, 0))
    where = packed(tmp_path, entry, "zoe.ipynb")
    month = (10 << 5 | 1 | (2026 - 1980) << 9).to_bytes(2, "little")
    where.write_bytes(where.read_bytes().replace(month, (15 << 5).to_bytes(2, "little")))
    ada, zoe = found(where)
    assert (ada.at, ada.content, [one.kind for one in ada.remarks]) == (None, b"{}", ["repaired"])
    assert zoe.content == b"{}"


def test_folders_nested_beyond_measure_are_one_students_refusal(tmp_path):
    root = write(tmp_path / "in", "ada/x.ipynb", "zoe/x.ipynb")
    (root / "eve").mkdir()
    here = os.open(root / "eve", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    try:
        ada, eve, zoe = found(root)
        assert (eve.student, eve.cause) == ("eve", "unreadable")
        assert ada.content == zoe.content == b"{}"
        deep = "eve/" + "d/" * 1500 + "x.ipynb"
        ada, eve, zoe = found(packed(tmp_path, deep, "ada/x.ipynb", "zoe/x.ipynb"))
        assert eve.student == "eve"
    finally:
        subprocess.run(["rm", "-r", root / "eve"], check=True)  # shutil recurses


def test_a_folder_that_cannot_be_read_is_one_students_refusal(tmp_path, monkeypatch):
    real = os.scandir

    def refuse(folder):
        if str(folder).endswith("eve"):
            raise PermissionError(13, "Permission denied")
        return real(folder)

    root = write(tmp_path, "ada/x.ipynb", "eve/x.ipynb", "zoe/x.ipynb")
    monkeypatch.setattr(os, "scandir", refuse)
    ada, eve, zoe = found(root)
    assert (eve.student, eve.cause, ada.content, zoe.content) == ("eve", "unreadable", b"{}", b"{}")
    monkeypatch.setattr(os, "scandir", lambda folder: refuse("eve"))
    with pytest.raises(IntakeError, match="cannot be read: Permission denied"):
        found(root)


@pytest.mark.parametrize(
    "kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_whatever_a_damaged_entry_raises_the_next_one_follows(tmp_path, kind):
    where = tmp_path / "class.zip"
    content = os.urandom(400)
    with zipfile.ZipFile(where, "w", kind) as archive:
        archive.writestr("ada.ipynb", content)
        archive.writestr("zoe.ipynb", content)
    sound = where.read_bytes()
    start = sound.index(b"ada.ipynb") + len("ada.ipynb")
    causes = set()
    for place in range(start, start + 40):
        raw = bytearray(sound)
        raw[place] ^= 0xFF
        where.write_bytes(raw)
        ada, zoe = found(where)
        causes.add(ada.cause)
        assert ada.content in (None, content) and zoe.content == content
    assert causes <= {"corrupt", ""} and "corrupt" in causes


def test_a_method_that_nobody_unpacks_is_a_cause(tmp_path):
    where = packed(tmp_path, "ada.ipynb", "zoe.ipynb")
    raw = bytearray(where.read_bytes())
    raw[raw.index(b"PK\x01\x02") + 10] = 99
    where.write_bytes(raw)
    ada, zoe = found(where)
    assert (ada.cause, zoe.content) == ("corrupt", b"{}")


def test_the_bytes_of_one_student_are_bounded_and_the_next_one_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "LARGEST_OF_ONE", 2500)
    names = [f"eve/{n}.ipynb" for n in range(5)]
    where = packed(tmp_path, *names, "ada/x.ipynb", "zoe/x.ipynb", content=b"0" * 1000)
    ada, *eves, zoe = found(where)
    assert [one.cause for one in eves] == ["", "", "", "too large", "too large"]
    assert ada.content and zoe.content


@pytest.mark.parametrize("kind", ["pipe", "huge", "folder", "link", "not a time", "far away"])
def test_a_time_stamp_that_is_none_is_passed_over(tmp_path, kind):
    root = write(tmp_path, "submitted/ada/hw1/x.ipynb")
    os.utime(root / "submitted/ada/hw1/x.ipynb", (10**9, 10**9))
    stamp = root / "submitted/ada/hw1/timestamp.txt"
    if kind == "pipe":
        os.mkfifo(stamp)
    elif kind == "folder":
        stamp.mkdir()
    elif kind == "link":
        (root / "t").write_text("2020-01-01 12:00:00 UTC")
        stamp.symlink_to(root / "t")
    elif kind == "huge":
        with open(stamp, "wb") as file:
            file.truncate(2**40)
    else:
        stamp.write_text("soon" if kind == "not a time" else "0001-01-01 00:00:00+23:59")
    (one,) = found(root)
    assert one.at == datetime.fromtimestamp(10**9, UTC)


@pytest.mark.parametrize(
    ("name", "is_believed"),
    [
        ("submitted/ada/02_number_formats/", True),
        ("submitted/ada/", False),
        ("submitted/ada/02_number_formats/mine/", False),
        ("ada/02_number_formats/", False),
        ("Ada_7_assignsubmission_file_/", False),
        ("Ada_7_assignsubmission_file_/02_number_formats/", False),
        ("submitted/Ada_7_assignsubmission_file_/02_number_formats/", False),
    ],
)
def test_a_time_stamp_is_believed_only_where_nbgrader_writes_it(tmp_path, name, is_believed):
    others = [name.replace("da", other) for other in ("eve", "cy")]
    names = [f"{one}{file}" for one in (name, *others) for file in ("x.ipynb", "timestamp.txt")]
    stamp = b"2020-01-01 12:00:00 UTC"
    for where in (packed(tmp_path, *names, content=stamp), write(tmp_path / "in", *names)):
        for file in (tmp_path / "in").rglob("timestamp.txt"):
            file.write_bytes(stamp)
        assert {one.at and one.at.year == 2020 for one in found(where)} == {is_believed}


@pytest.mark.parametrize(
    "names",
    [
        ["trail/x.ipynb", "trail /x.ipynb"],
        ["a\x01/x.ipynb", "a\x02/x.ipynb", "a?/x.ipynb"],
        ["jose\u0301/x.ipynb", "jos\u00e9/x.ipynb"],
        ["n" * 201 + "a.ipynb", "n" * 201 + "b.ipynb"],
        ["a_02_number_formats_b.ipynb", "a_b_02_number_formats.ipynb"],
        ["x (2)/x.ipynb", "x/x.ipynb", "x\u200b/x.ipynb", "x\u200c/x.ipynb"],
        ["x/x.ipynb", "x (2)/x.ipynb", " x/x.ipynb", "x /x.ipynb"],
        ["../x.ipynb", "a/../../x.ipynb", "x.ipynb"],
        [" /x.ipynb", "\t/x.ipynb", "unnamed/x.ipynb"],
    ],
)
def test_names_that_are_shown_alike_stay_apart_and_it_is_said(tmp_path, names):
    entries = [zipfile.ZipInfo("x") for _ in names]
    for entry, name in zip(entries, names, strict=True):
        entry.filename = name
    handed = found(packed(tmp_path, *entries, "zoe/x.ipynb"))
    students = [one.student for one in handed]
    assert len(set(students)) == len(names) + 1
    said = [one for one in handed if any(remark.kind == "contradicting" for remark in one.remarks)]
    assert said
    assert all(remark.who == one.student for one in said for remark in one.remarks)


def test_who_is_called_as_shown_keeps_the_name(tmp_path):
    names = ["jose\u0301/x.ipynb", "jos\u00e9/x.ipynb", "../zo\u00eb.ipynb", "zo\u00eb/x.ipynb"]
    entries = [zipfile.ZipInfo("x") for _ in names]
    for entry, name in zip(entries, names, strict=True):
        entry.filename = name
    by_name = {one.student: one for one in found(packed(tmp_path, *entries))}
    assert by_name["zo\u00eb"].content and by_name["zo\u00eb (2)"].cause == "unsafe name"
    assert not by_name["jos\u00e9"].remarks and by_name["jos\u00e9 (2)"].remarks


def test_many_names_that_are_shown_alike_take_no_time(tmp_path):
    names = [f"{'n' * 190}{'x' * 20}{n}/x.ipynb" for n in range(3000)]
    assert len({one.student for one in found(packed(tmp_path, *names))}) == 3000


@pytest.mark.parametrize(
    "form", ["{}/hw/", "{}/", "submitted/{}/hw/", "{}_7_assignsubmission_file/"]
)
def test_modules_beside_a_notebook_come_with_it(tmp_path, form):
    eve, ada, zoe = (form.format(one) for one in ("eve", "ada", "zoe"))
    wanted = ["helpers.py", "pkg/__init__.py", "pkg/deep.py"]
    others = ["notes.txt", "my-own.py", "venv/site-packages/x.py", ".x.py", "__pycache__/x.pyc"]
    names = [f"{eve}{name}" for name in (*wanted, *others)] + [f"{ada}mine.py", "lost.py"]
    names += [f"{one}x.ipynb" for one in (ada, eve, zoe)]
    for where in (packed(tmp_path, *names, content=b"A = 1"), write(tmp_path / "in", *names)):
        handed = {one.student: one for one in found(where)}
        assert [name for name, _ in handed["eve"].helpers] == wanted
        assert [name for name, _ in handed["ada"].helpers] == ["mine.py"]
        assert handed["zoe"].helpers == ()
    assert handed["eve"].helpers[0][1] == b"{}"


def test_a_notebook_takes_modules_of_its_own_folder_only(tmp_path):
    names = ["ada/x.ipynb", "ada/a.py", "ada/hw/y.ipynb", "ada/hw/b.py", "bob/x.ipynb"]
    deep, above, _ = sorted(found(packed(tmp_path, *names)), key=lambda one: one.file)
    assert [name for name, _ in deep.helpers] == ["b.py"]
    assert [name for name, _ in above.helpers] == ["a.py", "hw/b.py"]


def test_modules_of_an_lms_that_puts_all_files_side_by_side_are_told_apart(tmp_path):
    lab = "02_number_formats.ipynb"
    names = ["ada_7_90_helpers-1.py", f"ada_7_91_{lab}", "bob_8_92_helpers.py", f"bob_8_93_{lab}"]
    ada, bob = found(packed(tmp_path, *names))
    assert [name for name, _ in ada.helpers] == [name for name, _ in bob.helpers] == ["helpers.py"]
    flat = found(packed(tmp_path, "ada.ipynb", "bob.ipynb", "helpers.py"))
    assert [one.helpers for one in flat] == [(), ()]


def test_modules_beyond_the_bounds_are_left_out_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "MOST_HELPERS", 3)
    monkeypatch.setattr(intake, "LARGEST_HELPERS", 250)
    many = [f"ada/m{n}.py" for n in range(5)] + ["ada/x.ipynb", "bob/x.ipynb"]
    ada, bob = found(packed(tmp_path, *many, content=b"x" * 10))
    assert [name for name, _ in ada.helpers] == ["m0.py", "m1.py", "m2.py"]
    (remark,) = ada.remarks
    assert (remark.kind, remark.who) == ("dropped", "ada") and remark.said.startswith("2 Python")
    assert not bob.remarks
    ada, _ = found(packed(tmp_path, *many, content=b"x" * 100))
    assert [name for name, _ in ada.helpers] == ["m0.py", "m1.py"]


def test_a_damaged_or_linked_module_costs_that_module_only(tmp_path):
    root = write(tmp_path, "ada/x.ipynb", "ada/good.py", "bob/x.ipynb")
    (root / "ada" / "bad.py").symlink_to("/etc/passwd")
    os.mkfifo(root / "ada" / "pipe.py")
    ada, _ = found(root)
    assert [name for name, _ in ada.helpers] == ["good.py"]
    assert [remark.kind for remark in ada.remarks] == ["dropped"]


@pytest.mark.parametrize("file", ["lab.pdf", "x.ipynb.txt", "", "data/deep/x.csv"])
def test_a_students_folder_without_a_notebook_has_a_row(tmp_path, file):
    names = [f"{one}/x.ipynb" for one in ("ada", "zoe")]
    where = packed(tmp_path, *names, f"bob/{file}")
    root = write(tmp_path / "in", *names)
    if file:
        write(root, f"bob/{file}")
    else:
        (root / "bob").mkdir()
    for each in (where, root):
        bob = found(each)[1]
        assert (bob.student, bob.cause) == ("bob", "no notebook")
        assert bob.trouble == ("The folder is empty." if not file else bob.trouble)


def test_what_lies_beside_notebooks_is_left_out_with_a_word(tmp_path):
    names = ["ada.ipynb", "bob.ipynb", "cy.pdf", "data/x.txt", "roster.csv"]
    graders = ["grades.secret", "grades.json", "grades.feedback/ada.html"]
    ada, bob = found(write(tmp_path, *names, *graders))
    assert {(one.kind, one.who) for one in ada.remarks} == {
        ("dropped", "cy.pdf"),
        ("dropped", "data"),
    }
    assert not bob.remarks


def test_a_link_in_a_students_folder_is_said_and_the_notebook_graded(tmp_path):
    root = write(tmp_path, "ada/x.ipynb", "bob/x.ipynb")
    (root / "ada" / "lib64").symlink_to("/usr/lib")
    ada, bob = found(root)
    assert ada.content == b"{}" and not bob.remarks
    assert [(one.kind, "lib64" in one.said) for one in ada.remarks] == [("dropped", True)]


def test_installed_packages_are_not_searched_and_the_notebook_is_graded(tmp_path):
    packages = "venv/lib/python3.11/site-packages"
    names = [f"ada/{packages}/pkg/{name}" for name in ("demo.ipynb", "a.py")]
    names += ["ada/x.ipynb", "bob/x.ipynb", f"cy/{packages}/x.ipynb"]
    for where in (packed(tmp_path, *names), write(tmp_path / "in", *names)):
        ada, bob, cy = found(where)
        assert (ada.content, ada.helpers, bob.remarks) == (b"{}", (), ())
        assert [(one.kind, packages in one.said) for one in ada.remarks] == [("dropped", True)]
        assert (cy.student, cy.cause) == ("cy", "packages")


def test_a_folder_beside_nbgraders_own_is_left_out_with_a_word(tmp_path):
    names = ["submitted/ada/hw1/x.ipynb", "source/hw1/x.ipynb", "late/bob.pdf", "gradebook.db"]
    for where in (packed(tmp_path, *names), write(tmp_path / "in", *names)):
        (ada,) = found(where)
        assert [(one.kind, one.who) for one in ada.remarks] == [("dropped", "late")]


@pytest.mark.parametrize("names", [["ada.ipynb", "bob.ipynb"], ["ada/x.ipynb", "bob/x.ipynb"]])
def test_the_instructors_own_environment_is_nobody(tmp_path, names):
    root = write(tmp_path, *names, ".venv/lib/python3.11/site-packages/x.ipynb", ".venv/bin/pip")
    (root / ".venv" / "lib64").symlink_to(root / ".venv" / "lib")
    ada, bob = found(root)
    assert [(one.kind, one.who) for one in ada.remarks + bob.remarks] == [("dropped", ".venv")]


@pytest.mark.parametrize("name", ["x" * 5000, "a/" * 3000 + "b"])
def test_a_path_that_no_system_has_is_one_sentence(tmp_path, name):
    with pytest.raises(IntakeError, match="cannot be read"):
        found(tmp_path / name)
