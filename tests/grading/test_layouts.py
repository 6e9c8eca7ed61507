"""Each layout that desktops, Moodle, Canvas and nbgrader make is read, and no other is guessed."""

from pathlib import Path

import pytest

from labkit.grading.intake.entries import IntakeError
from labkit.grading.intake.layouts import place_of, read_layout

LABS = ["02_number_formats", "03_rounding", "04_loss_scaling"]
LAB, LAB4 = LABS[0], LABS[2]


def places(*files: str, where: str = "class.zip") -> list:
    paths = [tuple(file.split("/")) for file in files]
    layout = read_layout(paths, LABS, Path("/") / where)
    return [place_of(path, layout, LABS) for path in paths]


def students(*files: str, where: str = "class.zip") -> list[tuple[str, str]]:
    return [(place.name, place.lms_id) for place in places(*files, where=where)]


LAYOUTS = {
    "flat": ["{}.ipynb"],
    "flat with the lab": [f"{{}}_{LAB}.ipynb"],
    "flat with the lab first": [f"{LAB}-{{}}.ipynb"],
    "flat, two labs": [f"{{}}_{LAB}.ipynb", f"{{}}_{LAB4}.ipynb"],
    "a folder a student": ["{}/x.ipynb"],
    "a folder a student, by lab": [f"{{}}/{LAB}.ipynb", f"{{}}/{LAB4}.ipynb"],
    "a folder a student, a copy": [f"{{}}/{LAB}.ipynb", f"{{}}/{LAB}-Copy1.ipynb"],
    "an assignment below": ["{}/hw1/x.ipynb"],
    "assignments below": ["{}/hw1/x.ipynb", "{}/hw2/x.ipynb"],
    "labs below": [f"{{}}/{LAB}/x.ipynb", f"{{}}/{LAB4}/x.ipynb"],
    "deep below": [f"{{}}/{LAB}/src/deep/x.ipynb", f"{{}}/{LAB}/x.ipynb"],
    "labs around": [f"{LAB}/{{}}.ipynb", f"{LAB4}/{{}}.ipynb"],
    "labs around folders": [f"{LAB}/{{}}/x.ipynb", f"{LAB4}/{{}}/x.ipynb"],
    "nbgrader": [f"submitted/{{}}/{LAB}/{LAB}.ipynb"],
    "nbgrader, two": [f"submitted/{{}}/{LAB}/x.ipynb", "submitted/{}/hw2/x.ipynb"],
    "submissions": ["submissions/{}/x.ipynb"],
    "submissions, flat": ["submissions/{}.ipynb"],
}
AROUND = ["", "class/", "class/class/", "Downloads/2026_10_05_hw/course 1/", f"{LAB}/"]
CLASS = ("ada", "bob", "Li Lei", "zoë")


@pytest.mark.parametrize(
    ("layout", "around"),
    [
        (layout, around)
        for layout in LAYOUTS
        for around in AROUND
        if not (around == f"{LAB}/" and layout.startswith("labs around"))
    ],
)
def test_each_student_is_found_in_each_layout_with_any_folders_around(layout, around):
    files = [around + form.format(name) for name in CLASS for form in LAYOUTS[layout]]
    expected = [(name, "") for name in CLASS for _ in LAYOUTS[layout]]
    assert students(*files) == expected


LMS = {
    "Moodle": ["{0}_{1}_assignsubmission_file/x.ipynb"],
    "Moodle, older": ["{0}_{1}_assignsubmission_file_/x.ipynb"],
    "Moodle, folders below": ["{0}_{1}_assignsubmission_file_/src/x.ipynb"],
    "Moodle, text too": [
        "{0}_{1}_assignsubmission_file_/x.ipynb",
        "{0}_{1}_assignsubmission_onlinetext_/onlinetext.ipynb",
    ],
    "Moodle, flat": ["{0}_{1}_assignsubmission_file_x.ipynb"],
    "Moodle, with a number in the file": ["{0}_{1}_assignsubmission_file_2_3_x.ipynb"],
    "Canvas": [f"{{0}}_{{1}}_9{{1}}_{LAB}.ipynb"],
    "Canvas, late": [f"{{0}}_LATE_{{1}}_9{{1}}_{LAB}-1.ipynb"],
    "Canvas, two files": [f"{{0}}_{{1}}_9{{1}}_{LAB}.ipynb", f"{{0}}_{{1}}_8{{1}}_{LAB4}.ipynb"],
}


@pytest.mark.parametrize("around", [*AROUND, "submissions/", "week 1/submissions/"])
@pytest.mark.parametrize("layout", LMS)
def test_an_lms_is_known_by_its_names_with_any_folders_around(layout, around):
    numbered = [(name, str(4711 + n)) for n, name in enumerate(CLASS)]
    files = [around + form.format(*one) for one in numbered for form in LMS[layout]]
    assert students(*files) == [one for one in numbered for _ in LMS[layout]]
    assert students(files[0]) == [numbered[0]]


def test_what_canvas_says_of_a_file_is_read():
    (one, *_) = places("lovelaceada_LATE_4711_99_x.ipynb", f"bob_5_100_{LAB}.ipynb")
    assert (one.name, one.lms_id, one.attempt, one.marked_late) == ("lovelaceada", "4711", 99, True)
    anonymous = ["anon_AbCdE_7_x.ipynb", f"LATE_anon_XyZ12_8_{LAB}.ipynb"]
    assert [(one.lms_id, one.attempt, one.marked_late) for one in places(*anonymous)] == [
        ("AbCdE", 7, False),
        ("XyZ12", 8, True),
    ]


def test_zips_of_an_lms_side_by_side_are_one_class():
    files = [
        "group 1/Ada_1_assignsubmission_file_/x.ipynb",
        f"{LAB}/Bob_2_assignsubmission_file/x.ipynb",
    ]
    assert students(*files) == [("Ada", "1"), ("Bob", "2")]
    labs = [f"{LAB}/ada_1_10_x.ipynb", f"{LAB4}/ada_1_11_x.ipynb", f"{LAB4}/bob_2_12_x.ipynb"]
    assert [(one.name, one.assignment) for one in places(*labs)] == [
        ("ada", LAB),
        ("ada", LAB4),
        ("bob", LAB4),
    ]


@pytest.mark.parametrize(
    "files",
    [
        ["ada/hw1/x.ipynb", "ada/hw2/x.ipynb"],  # a class of one, or hw1 and hw2 in a class `ada`
        ["ada/hw1.ipynb", "ada/hw2.ipynb"],
        ["ada/x.ipynb"],
        ["class/ada/x.ipynb"],
        [f"ada/{LAB}-1.ipynb", f"ada/{LAB}.ipynb"],
        [f"ada/{LAB}.ipynb", "ada/scratch.ipynb"],
        [f"class/{LAB}/ada.ipynb", f"class/{LAB}/bob.ipynb"],  # or drafts of a student `class`
        [f"class/{LAB}/{name}.ipynb" for name in ("ada", "bob")]
        + [f"class/{LAB4}/{name}.ipynb" for name in ("ada", "bob")],
        [f"class/{LAB}/7.ipynb", f"class/{LAB}/8.ipynb"],
        [f"class/{LAB}/ada.ipynb", f"class/{LAB4}/bob.ipynb"],
        [f"class/{LAB}/ada.ipynb", f"class/{LAB}/7.ipynb", f"class/{LAB4}/7.ipynb"],
        ["class/ada.ipynb", "class/bob/x.ipynb"],
        ["monday/7.ipynb", "monday/8.ipynb", "friday/9.ipynb", "friday/10.ipynb"],
        ["monday/ada.ipynb", "monday/bob.ipynb", "friday/cy.ipynb", "friday/di.ipynb"],
        ["monday/ada/x.ipynb", "monday/bob/x.ipynb", "friday/cy/x.ipynb", "friday/di/x.ipynb"],
        ["hw1/ada.ipynb", "hw2/ada.ipynb"],
        ["hw1/ada.ipynb", "hw1/bob.ipynb", "hw2/ada.ipynb", "hw2/bob.ipynb"],
        ["first/ada.ipynb", "first/bob.ipynb", "second/ada.ipynb", "second/bob.ipynb"],
        ["submitted/ada/hw1/x.ipynb", "late/bob/hw1/x.ipynb"],
        ["submitted/ada/hw1/x.ipynb", "submissions/bob/hw1/x.ipynb"],
    ],
)
def test_what_can_be_read_in_two_ways_is_refused_with_both_and_a_way_out(files):
    with pytest.raises(IntakeError, match=r"class\.zip can be read in two ways: .* or .*submitted"):
        students(*files)


def test_a_lab_alone_names_nobody():
    with pytest.raises(IntakeError, match="says nowhere whose the notebooks are"):
        students(f"{LAB}/{LAB}.ipynb", f"{LAB4}/{LAB4}.ipynb")


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (["submitted/ada/hw1/x.ipynb", "submitted/ada/hw2/x.ipynb"], ["ada", "ada"]),
        (["submitted/hw1/x.ipynb", "submitted/hw2/x.ipynb"], ["hw1", "hw2"]),
        (["submitted/hw1.ipynb", "submitted/hw2.ipynb"], ["hw1", "hw2"]),
        (["submitted/ada/LAB/x.ipynb"], ["ada"]),
        (["submitted/x.ipynb"], ["x"]),
        (["class/submitted/ada.ipynb", "class/submitted/bob.ipynb"], ["ada", "bob"]),
        (["submitted/monday/ada.ipynb", "submitted/friday/bob.ipynb"], ["monday", "friday"]),
        (["submitted/ada.ipynb", "submitted/bob/x.ipynb"], ["ada", "bob"]),
    ],
)
def test_the_way_out_leads_out(files, found):
    assert [name for name, _ in students(*files)] == found


def test_a_folder_called_submitted_may_be_named_itself():
    files = ["ada/hw1/x.ipynb", "ada/hw2/x.ipynb"]
    assert students(*files, where="course/submitted") == [("ada", ""), ("ada", "")]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([f"ada/{LAB}/x.ipynb", f"ada/{LAB4}/x.ipynb"], ["ada", "ada"]),  # labs' names decide
        ([f"ada/{LAB}.ipynb", f"ada/{LAB4}.ipynb"], ["ada", "ada"]),
        ([f"class/ada/{LAB}/x.ipynb", f"class/ada/{LAB4}/x.ipynb"], ["ada", "ada"]),
        ([f"ada/ada_{LAB}.ipynb", f"ada/ada_{LAB4}.ipynb"], ["ada", "ada"]),
        ([f"ada/{LAB}.ipynb"], ["ada"]),
        ([f"ada/{LAB}/x.ipynb"], ["ada"]),
        ([f"class/ada/{LAB}/x.ipynb"], ["ada"]),
        ([f"{LAB}/ada.ipynb"], ["ada"]),
        (["ada.ipynb"], ["ada"]),
    ],
)
def test_a_class_of_one_is_decided_by_the_names_of_labs(files, found):
    assert [name for name, _ in students(*files)] == found


def test_numbered_students_are_students_where_there_are_more_than_labs():
    files = [f"class/{n}/x.ipynb" for n in range(1, 9)]
    assert [name for name, _ in students(*files)] == [str(n) for n in range(1, 9)]
    assert [name for name, _ in students(*(f"{n}/x.ipynb" for n in range(1, 9)))] == [
        str(n) for n in range(1, 9)
    ]


def test_nbgraders_other_folders_are_nobodys():
    files = [f"c/source/{LAB}/x.ipynb", f"c/submitted/ada/{LAB}/x.ipynb", "c/release/x.ipynb"]
    source, ada, release = places(*files)
    assert (source, release) == (None, None)
    assert ada.name == "ada"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Bob_42_assignsubmission_x_888_assignsubmission_file/x.ipynb", "888"),
        ("Bob_42_assignsubmission_x_888_assignsubmission_file_/x.ipynb", "888"),
        ("Bob_42_assignsubmission_file_eve_888_assignsubmission_file_x.ipynb", ""),
        ("Eve_888_assignsubmission_file_Bob_42_assignsubmission_file_x.ipynb", ""),
    ],
)
def test_a_name_of_moodle_that_splits_in_two_ways_is_never_the_other_student(name, found):
    others = [f"{one}_{n}_assignsubmission_file_" for n, one in enumerate(("Ada", "Bob", "Cy"), 41)]
    files = [f"{one}/x.ipynb" for one in others]
    one, *rest = places(name, *files)
    assert (one.lms_id, one.name == "Bob") == (found, False)
    assert "in two ways" in one.said
    assert not any(other.said for other in rest)


def test_a_name_of_canvas_that_splits_in_two_ways_is_never_the_other_student():
    others = [f"ada_41_90_{LAB}.ipynb", f"bob_42_91_{LAB}.ipynb", f"cy_43_92_{LAB}.ipynb"]
    for name in ("eve_42_888_99_x.ipynb", f"eve_888_99_42_91_{LAB}.ipynb"):
        one, *rest = places(name, *others)
        assert (one.lms_id, one.name in ("eve", "bob")) == ("", False)
        assert "in two ways" in one.said
        assert [other.lms_id for other in rest] == ["41", "42", "43"]


@pytest.mark.parametrize(
    "files",
    [
        ["bob_77_99_x.ipynb", "ada.ipynb", "cy.ipynb"],
        ["Bob_77_assignsubmission_file_/x.ipynb", "ada/x.ipynb", "cy/x.ipynb"],
        [f"Bob_77_assignsubmission_{one}/x.ipynb" for one in ("x", "comments")],
        ["Bob_77_assignsubmission_file_x.ipynb", "ada.ipynb", "cy.ipynb"],
        [f"eve_7_9_Bob_77_assignsubmission_file_{n}.ipynb" for n in "ab"]
        + [f"s{n}_{n}_1{n}_x.ipynb" for n in range(3)],
    ],
)
def test_a_number_is_believed_only_where_the_whole_delivery_is_the_lms(files):
    found = places(*files)
    assert "77" not in {one.lms_id for one in found}
    if files[0].startswith("b"):
        assert "no number was believed" in found[0].said


def test_files_that_students_name_as_another_lms_does_change_nothing():
    moodles = [f"eve_7_9{n}_Bob_42_assignsubmission_file_{n}.ipynb" for n in range(9)]
    one, *_ = places(*moodles, f"ada_8_80_{LAB}.ipynb")
    assert (one.name, one.lms_id) == ("eve", "7")
    canvass = [f"Eve_7_assignsubmission_file_42_9{n}_{LAB}.ipynb" for n in range(9)]
    one, *_ = places(*canvass, "Ada_8_assignsubmission_file_x.ipynb")
    assert (one.name, one.lms_id) == ("Eve", "7")


@pytest.mark.parametrize("form", ["hw_2026_10_{}.ipynb", "lab_1_{1}_{0}.ipynb"])
def test_dates_in_names_are_not_canvass_numbers(form):
    files = [form.format(name, 20 + n) for n, name in enumerate(CLASS)]
    found = places(*files)
    assert len({one.name for one in found}) == len(CLASS)
    assert {one.lms_id for one in found} == {""}


def test_numbers_of_any_length_are_no_numbers():
    digits = "7" * 5000
    files = [f"eve_1_{digits}_x.ipynb", f"eve_{digits}_1_y.ipynb", "ada.ipynb"]
    assert [one.lms_id for one in places(*files)] == ["", "", ""]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (f"ada_{LAB}.ipynb", f"ada__{LAB}.ipynb"),
        (f"a_{LAB}_b.ipynb", f"a_b_{LAB}.ipynb"),
        ("ada.ipynb", "ada_.ipynb"),
        ("class/-/x.ipynb", "class/_/x.ipynb"),
        (f"class/-_{LAB}.ipynb", f"class/__{LAB}.ipynb"),
        (f"ada_{LAB}.ipynb", f"ada {LAB} (1).ipynb"),
        ("trail/x.ipynb", "trail /x.ipynb"),
        ("a\x01/x.ipynb", "a\x02/x.ipynb"),
    ],
)
def test_two_names_have_two_keys(first, second):
    one, other = places(first, second)
    assert one.key != other.key


CLASSROOM = {
    "one assignment": ["lab2-submissions/lab2-{}/x.ipynb"],
    "a repository with folders": ["lab2-submissions/lab2-{}/notebooks/deep/x.ipynb"],
    "two notebooks": [f"l-2-submissions/l-2-{{}}/{LAB}.ipynb", "l-2-submissions/l-2-{}/x.ipynb"],
    "two assignments": ["a-submissions/a-{}/x.ipynb", "a-b-submissions/a-b-{}/x.ipynb"],
    "its own file": ["s-submissions/s-{}/s-submissions/s-other/x.ipynb"],
}


@pytest.mark.parametrize("layout", CLASSROOM)
def test_repositories_of_github_classroom_are_called_like_their_students(layout):
    files = [form.format(name) for name in CLASS for form in CLASSROOM[layout]]
    expected = [(name, "") for name in CLASS for _ in CLASSROOM[layout]]
    assert students(*files) == expected
    one = [form.format("ada") for form in CLASSROOM[layout]]
    assert students(*one) == [("ada", "")] * len(one)


def test_the_folder_of_github_classroom_itself_can_be_given():
    files = [f"lab2-{name}/x.ipynb" for name in CLASS]
    assert students(*files, where="lab2-submissions") == [(name, "") for name in CLASS]
    assert students(*files) == [(f"lab2-{name}", "") for name in CLASS], "called otherwise"


def test_a_team_of_moodle_is_no_assignment_of_github_classroom():
    files = [
        f"T-submissions/T-{name}_{n}_assignsubmission_file/x.ipynb" for n, name in enumerate(CLASS)
    ]
    assert [number for _, number in students(*files)] == ["0", "1", "2", "3"]
    inside = [file.removeprefix("T-submissions/") for file in files]
    assert [number for _, number in students(*inside, where="T-submissions")] == [
        "0",
        "1",
        "2",
        "3",
    ]


@pytest.mark.parametrize("folder", ["eve", "lab2-"])
def test_one_folder_that_github_classroom_would_not_name_keeps_all_names_whole(folder):
    names = [*(f"lab2-{name}" for name in CLASS), folder]
    assert students(*(f"lab2-submissions/{name}/x.ipynb" for name in names)) == [
        (name, "") for name in names
    ]


def test_a_folder_beside_that_of_github_classroom_is_refused():
    files = [f"lab2-submissions/lab2-{name}/x.ipynb" for name in CLASS]
    with pytest.raises(IntakeError, match="two ways"):
        students(*files, "eve/lab2-x/x.ipynb")
