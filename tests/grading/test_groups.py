"""The memory cgroup of a submission, in folders that stand for the kernel's."""

import os

import pytest

from labkit.grading.sandbox import groups, sandbox_state, watching

MOUNTS = """\
23 27 0:22 / /sys rw,relatime - sysfs sysfs rw
36 31 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
41 31 0:38 {root} {folder} rw,relatime shared:5 - cgroup2 cgroup2 rw,nsdelegate
"""


@pytest.fixture
def own(tmp_path):
    """Our own group, as systemd delegates one: it may be divided, and is not yet."""
    folder = tmp_path / "user.slice" / "run-1.scope"
    folder.mkdir(parents=True)
    (folder / "cgroup.controllers").write_text("cpu memory pids\n")
    (folder / "cgroup.subtree_control").write_text("")
    (folder / "cgroup.procs").write_text("")
    return folder


@pytest.mark.parametrize(
    ("root", "path", "found"),
    [
        ("/", "/user.slice/run-1.scope", "user.slice/run-1.scope"),
        ("/machine/c1", "/machine/c1/run", "run"),
        ("/machine/c1", "/elsewhere", None),
    ],
)
def test_our_own_group_is_found_where_it_is_mounted(tmp_path, root, path, found):
    (tmp_path / "cgroup").write_text(f"4:memory:/other\n0::{path}\n")
    (tmp_path / "mounts").write_text(MOUNTS.format(root=root, folder=tmp_path / "cg"))
    here = groups._own(tmp_path / "cgroup", tmp_path / "mounts")
    assert here == (tmp_path / "cg" / found if found else None)


def test_without_version_two_there_is_none(tmp_path):
    (tmp_path / "cgroup").write_text("4:memory:/other\n")
    (tmp_path / "mounts").write_text(MOUNTS.format(root="/", folder=tmp_path))
    assert groups._own(tmp_path / "cgroup", tmp_path / "mounts") is None


def test_a_group_is_ours_to_divide_where_it_was_given_to_us(own, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: own.stat().st_uid + 1)
    assert not groups._is_given(own), "somebody else's"
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"1")
    assert groups._is_given(own), "marked as delegated"


def test_the_grader_moves_aside_in_a_group_that_it_divides(own):
    groups._divide(own)
    assert (own / "labkit-grader" / "cgroup.procs").read_text() == str(os.getpid())
    assert (own / "cgroup.subtree_control").read_text() == "+memory"


def test_where_others_are_in_the_group_the_grader_moves_back(own, monkeypatch):
    write = type(own).write_text

    def refused(path, text, *args, **kwargs):
        if path.name == "cgroup.subtree_control":
            (own / "labkit-grader" / "cgroup.procs").unlink()  # as the kernel's do with the folder
            raise OSError(16, "Device or resource busy")
        return write(path, text, *args, **kwargs)

    monkeypatch.setattr(type(own), "write_text", refused)
    with pytest.raises(OSError, match="busy"):
        groups._divide(own)
    assert (own / "cgroup.procs").read_text() == str(os.getpid())
    assert not (own / "labkit-grader").exists()


def test_a_group_counts_and_tells_of_kills(own):
    group = groups.ControlGroup(own, limit_bytes=1000)
    assert (group.folder / "memory.max").read_text() == "1000"
    assert (group.folder / "memory.oom.group").read_text() == "1"
    group.enter(17)
    assert (group.folder / "cgroup.procs").read_text() == "17"
    (group.folder / "memory.current").write_text("900\n")
    (group.folder / "memory.stat").write_text("anon 1\nactive_file 200\ninactive_file 100\n")
    (group.folder / "memory.events").write_text("oom 3\noom_kill 0\n")
    assert group.memory_bytes(1000, []) == 900, "no need to look closer"
    assert group.memory_bytes(800, []) == 600, "files of the host apart"
    assert not group.has_killed()
    (group.folder / "memory.events").write_text("oom 3\noom_kill 1\n")
    assert group.has_killed()
    assert watching.Tree(os.getpid(), group).usage().memory_bytes == 900


def test_a_group_that_is_gone_is_empty(own):
    group = groups.ControlGroup(own, limit_bytes=1000)
    for file in group.folder.iterdir():
        file.unlink()
    group.close()
    group.close()
    assert not group.folder.exists()
    assert (group.memory_bytes(0, []), group.has_killed()) == (0, False)


@pytest.mark.parametrize(("home", "words"), [(None, "counts it"), ("/group", "has a cgroup")])
def test_the_doctor_says_how_memory_is_bounded(monkeypatch, home, words):
    monkeypatch.setattr(sandbox_state.sandbox, "why_not", lambda: None)
    monkeypatch.setattr(sandbox_state.groups, "home", lambda: home)
    assert words in str(sandbox_state.sandbox_state())
