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
from dataclasses import dataclass

# linux/sched.h
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWIPC = 0x10000000, 0x20000000, 0x08000000
_CLONE_ANY_NAMESPACE = 0x7E020000  # every CLONE_NEW* flag of clone

PROCESSES = 64
"""Processes and threads of one submission."""

FILES = 256
"""Open files of one process."""

NOBODY = 65534

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2

# Calls that no lab needs and that reach past the limits. memfd, vmsplice and attributes of files
# hold memory that no process is charged for; keys, message queues, asynchronous input and watches
# of files are counted for the user, whose other programs would lack them; sync is work for every
# disk; the others enlarge what can be attacked.
# Numbers of (x86_64, aarch64; None where it has no such call): asm/unistd_64.h and
# asm-generic/unistd.h.
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
    "vmsplice": (278, 75),
    "io_setup": (206, 0),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "sync": (162, 81),
    "syncfs": (306, 267),
    "setrlimit": (160, 164),  # a lower limit of CPU time would end a process as if from outside
}


@dataclass(frozen=True, kw_only=True)
class _Where:
    """A condition on one argument of a call: its lower half under ``mask`` is ``value``, or not.

    ``upper`` looks at the upper half instead: a filter sees 32 bits at a time.
    """

    argument: int
    value: int
    mask: int = 0xFFFFFFFF
    equal: bool = True
    upper: bool = False


_CLONE3 = (435, 435)
_MAP_SHARED_ANONYMOUS = 0x21  # linux/mman.h: bit 0 stands in MAP_SHARED and MAP_SHARED_VALIDATE
_AF_UNIX, _SOCK_STREAM, _SOCK_TYPE = 1, 1, 0xF
_SOL_SOCKET, _SO_SNDBUF = 1, 7
_RANGE_LOCKS = (6, 7, 37, 38)  # linux/fcntl.h: F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW

# Calls that fail where their arguments are these, with what error.
_FORBIDDEN_WITH: list[tuple[tuple[int, int], tuple[_Where, ...], int]] = [
    # Such memory stays when it is unmapped in part, or given back, and no process shows it.
    (
        (9, 222),  # mmap
        (_Where(argument=3, mask=_MAP_SHARED_ANONYMOUS, value=_MAP_SHARED_ANONYMOUS),),
        errno.EPERM,
    ),
    # Streams of the Unix kind are counted; the buffers of others are not.
    ((41, 198), (_Where(argument=0, value=_AF_UNIX, equal=False),), errno.ENETUNREACH),  # socket
    *[
        (
            numbers,
            (_Where(argument=1, mask=_SOCK_TYPE, value=_SOCK_STREAM, equal=False),),
            errno.EPERM,
        )
        for numbers in ((41, 198), (53, 199))  # socket, socketpair
    ],
    (
        (54, 208),  # setsockopt
        (_Where(argument=1, value=_SOL_SOCKET), _Where(argument=2, value=_SO_SNDBUF)),
        errno.EPERM,
    ),
    # A record in the kernel for each range of a file, and no limit on them; flock has one a file.
    *[((72, 25), (_Where(argument=1, value=kind),), errno.ENOLCK) for kind in _RANGE_LOCKS],
    # prlimit64 with a new limit; without one it reads. The size of files may be lowered: lab 15
    # lets the kernel end a process in the middle of a write, which a signal can do as well.
    *[
        (
            (302, 261),
            (
                _Where(argument=1, value=resource.RLIMIT_FSIZE, equal=False),
                _Where(argument=2, value=0, equal=False, upper=upper),
            ),
            errno.EPERM,
        )
        for upper in (False, True)
    ],
    (
        (56, 220),  # clone
        (_Where(argument=0, mask=_CLONE_ANY_NAMESPACE, value=0, equal=False),),
        errno.EPERM,
    ),
    # The flags of clone3 lie in memory, where a filter cannot look: glibc then takes clone.
    (_CLONE3, (), errno.ENOSYS),
]
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
    allow, kill = 0x7FFF0000, 0x80000000
    program = [_load(4), _jump(architecture, 1, 0), _leave(kill), _load(0)]
    if place == 0:  # the x32 calls of x86_64 have numbers of their own
        program += [struct.pack("<HBBI", 0x35, 0, 1, 0x40000000), _leave(kill)]
    rules = [(numbers, (), errno.EPERM) for numbers in _FORBIDDEN.values()]
    for numbers, conditions, error in rules + _FORBIDDEN_WITH:
        if numbers[place] is not None:
            program += _rule(numbers[place], conditions, error)
    return b"".join([*program, _leave(allow)])


def _rule(number: int, conditions: tuple[_Where, ...], error: int) -> list[bytes]:
    """The call ``number`` fails where every condition holds; behind it its number is loaded."""
    fail = _leave(0x00050000 | error)
    if not conditions:
        return [_jump(number, 0, 1), fail]
    # What is left to skip where a condition does not hold: the conditions after it, and `fail`.
    tests: list[bytes] = []
    for left, one in zip(range(len(conditions) - 1, -1, -1), conditions, strict=True):
        skip = 3 * left + 1
        offset = 16 + 8 * one.argument + 4 * one.upper
        tests += [_load(offset), struct.pack("<HBBI", 0x54, 0, 0, one.mask)]
        tests += [_jump(one.value, 0, skip) if one.equal else _jump(one.value, skip, 0)]
    return [_jump(number, 0, len(tests) + 2), *tests, fail, _load(0)]


def _load(offset: int) -> bytes:
    return struct.pack("<HBBI", 0x20, 0, 0, offset)


def _jump(value: int, yes: int, no: int) -> bytes:
    """Skip ``yes`` instructions where the loaded number is ``value``, else ``no``."""
    return struct.pack("<HBBI", 0x15, yes, no, value)


def _leave(result: int) -> bytes:
    return struct.pack("<HBBI", 0x06, 0, 0, result)
