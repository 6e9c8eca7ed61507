"""What a process gives up before a student's code runs in it: namespaces, capabilities, calls.

Runs inside the sandbox. The limits here are the inner ring: bubblewrap has already taken files,
network and other processes away, and the judge watches the whole tree from outside.
"""

import ctypes
import errno
import os
import platform
import resource
import struct

# linux/sched.h
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWIPC = 0x10000000, 0x20000000, 0x08000000
_CLONE_ANY_NAMESPACE = 0x7E020000  # every CLONE_NEW* flag of clone

PROCESSES = 64
"""Processes and threads of one submission."""

FILES = 256
"""Open files of one process."""

NOBODY = 65534

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2

# Calls that no lab needs and that reach past the limits. memfd holds memory that no process is
# charged for; keys and message queues outlive their process; the others enlarge what can be
# attacked. Numbers of (x86_64, aarch64): asm/unistd_64.h and asm-generic/unistd.h.
_FORBIDDEN = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "fsopen": (430, 430),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # linux/audit.h

_libc = ctypes.CDLL(None, use_errno=True)


def drop_root() -> None:
    """Become nobody, where this process is root: the last capability goes with it."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


def unshare() -> None:
    """Let the next child be the first process of namespaces of its own: pid, ipc and user.

    Raises OSError where the kernel refuses. The caller must have one thread, as after a fork.
    """
    _call(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWPID | _CLONE_NEWIPC))


def limit(*, data_bytes: int, disk_bytes: int) -> None:
    """Bound this process and what it forks; memory is private memory a process."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: FILES,
        resource.RLIMIT_FSIZE: disk_bytes,
        resource.RLIMIT_DATA: data_bytes,
    }
    release = tuple(int(part) for part in platform.release().split(".")[:2])
    if release >= (5, 14):  # counted within the user namespace; before, over the whole machine
        wanted[resource.RLIMIT_NPROC] = PROCESSES
    for kind, most in wanted.items():
        resource.setrlimit(kind, (most, most))


def lock() -> None:
    """Give up every capability of this namespace and the calls of the table, for good."""
    header = struct.pack("<Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3
    _call(_libc.capset(header, bytes(24)))
    _call(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if platform.machine() in _ARCHITECTURES:
        program = _filter(*_ARCHITECTURES[platform.machine()])
        code = ctypes.create_string_buffer(program, len(program))
        # struct sock_fprog: an unsigned short, padding, a pointer.
        described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
        _call(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, described, 0, 0))


def _call(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _filter(place: int, architecture: int) -> bytes:
    """A seccomp program (linux/filter.h): forbidden calls fail, another architecture dies."""
    load = lambda offset: struct.pack("<HBBI", 0x20, 0, 0, offset)  # noqa: E731
    equal = lambda value, yes, no: struct.pack("<HBBI", 0x15, yes, no, value)  # noqa: E731
    bits = lambda value, yes, no: struct.pack("<HBBI", 0x45, yes, no, value)  # noqa: E731
    leave = lambda value: struct.pack("<HBBI", 0x06, 0, 0, value)  # noqa: E731
    allow, kill = 0x7FFF0000, 0x80000000
    fail = lambda number: leave(0x00050000 | number)  # noqa: E731
    program = [load(4), equal(architecture, 1, 0), leave(kill), load(0)]
    for numbers in _FORBIDDEN.values():
        program += [equal(numbers[place], 0, 1), fail(errno.EPERM)]
    # The flags of clone3 lie in memory, where a filter cannot look: glibc then takes clone.
    program += [equal(_CLONE3[place], 0, 1), fail(errno.ENOSYS)]
    if place == 0:  # the x32 calls of x86_64 have numbers of their own
        program += [struct.pack("<HBBI", 0x35, 0, 1, 0x40000000), leave(kill)]
    program += [equal(_CLONE[place], 1, 0), leave(allow)]
    program += [load(16), bits(_CLONE_ANY_NAMESPACE, 0, 1), fail(errno.EPERM), leave(allow)]
    return b"".join(program)
