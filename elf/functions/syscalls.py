"""What a sandbox may ask of the kernel: an allow-list of system calls, as a seccomp filter (classic BPF).

The list has what Python, Arrow and NumPy need once they run: files that are only read, memory, threads,
signals to oneself, clocks, and bytes over descriptors that are open already. Everything else is refused with
EPERM, which Python raises as ``PermissionError``: new processes, programs, sockets, files that are written,
other processes, limits, namespaces. What only an attack asks for kills the process (``DEADLY``). So does a
call of another architecture or of x32, whose numbers mean something else.

Arguments are looked at where a call does both (``_rules``). A filter sees numbers and no memory, so paths are
Landlock's to judge (``elf.functions.landlock``).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence
from typing import Final

ALLOWED: Final = """
    read readv pread64 lseek close close_range dup dup2 dup3 stat fstat lstat newfstatat statx access
    faccessat faccessat2 readlink readlinkat getdents64 getcwd fadvise64
    write writev recvfrom poll ppoll select pselect6 pipe pipe2 eventfd2
    epoll_create1 epoll_ctl epoll_wait epoll_pwait
    munmap mprotect mremap madvise brk
    futex set_robust_list get_robust_list rseq set_tid_address sched_yield sched_getaffinity getcpu membarrier
    exit exit_group
    rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack rt_sigpending restart_syscall
    alarm setitimer getitimer pause
    clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times
    getpid gettid getppid getuid geteuid getgid getegid getresuid getresgid getgroups uname sysinfo getrlimit
    getrusage getrandom
"""
"""Files that are read, open descriptors, memory, threads, signals, time, and facts about itself."""
DEADLY: Final = """
    ptrace process_vm_readv process_vm_writev bpf io_uring_setup io_uring_enter io_uring_register keyctl
    add_key request_key mount umount2 pivot_root init_module finit_module kexec_load perf_event_open
    userfaultfd setns open_by_handle_at
"""

_NUMBERS: Final = {
    "read": (0, 63), "write": (1, 64), "open": (2, None), "close": (3, 57), "stat": (4, None),
    "fstat": (5, 80), "lstat": (6, None), "poll": (7, None), "lseek": (8, 62), "mmap": (9, 222),
    "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "ioctl": (16, 29), "pread64": (17, 67),
    "readv": (19, 65), "writev": (20, 66), "access": (21, None), "pipe": (22, None), "select": (23, None),
    "sched_yield": (24, 124), "mremap": (25, 216), "madvise": (28, 233),
    "dup": (32, 23), "dup2": (33, None), "pause": (34, None), "nanosleep": (35, 101),
    "getitimer": (36, 102), "alarm": (37, None), "setitimer": (38, 103), "getpid": (39, 172),
    "sendto": (44, 206), "recvfrom": (45, 207), "clone": (56, 220), "exit": (60, 93), "kill": (62, 129),
    "uname": (63, 160), "fcntl": (72, 25), "getcwd": (79, 17), "readlink": (89, None),
    "gettimeofday": (96, 169), "getrlimit": (97, 163), "getrusage": (98, 165), "sysinfo": (99, 179),
    "times": (100, 153), "ptrace": (101, 117), "getuid": (102, 174), "getgid": (104, 176),
    "geteuid": (107, 175), "getegid": (108, 177), "getppid": (110, 173), "getgroups": (115, 158),
    "getresuid": (118, 148), "getresgid": (120, 150), "rt_sigpending": (127, 136),
    "sigaltstack": (131, 132), "pivot_root": (155, 41), "prctl": (157, 167), "mount": (165, 40),
    "umount2": (166, 39), "init_module": (175, 105), "gettid": (186, 178), "time": (201, None),
    "futex": (202, 98), "sched_getaffinity": (204, 123), "getdents64": (217, 61),
    "set_tid_address": (218, 96), "restart_syscall": (219, 128), "fadvise64": (221, 223),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115),
    "exit_group": (231, 94), "epoll_wait": (232, None), "epoll_ctl": (233, 21), "tgkill": (234, 131),
    "kexec_load": (246, 104), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "openat": (257, 56), "newfstatat": (262, 79), "readlinkat": (267, 78), "faccessat": (269, 48),
    "pselect6": (270, 72), "ppoll": (271, 73), "set_robust_list": (273, 99), "get_robust_list": (274, 100),
    "epoll_pwait": (281, 22), "eventfd2": (290, 19), "epoll_create1": (291, 20), "dup3": (292, 24),
    "pipe2": (293, 59), "perf_event_open": (298, 241), "prlimit64": (302, 261),
    "open_by_handle_at": (304, 265), "setns": (308, 268), "getcpu": (309, 168),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "finit_module": (313, 273),
    "getrandom": (318, 278), "bpf": (321, 280), "userfaultfd": (323, 282), "membarrier": (324, 283),
    "statx": (332, 291), "rseq": (334, 293), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "clone3": (435, 435), "close_range": (436, 436),
    "faccessat2": (439, 439),
}  # fmt: skip
"""Of each call its number on x86_64 and on aarch64 (None: it has no such call)."""

_MACHINES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Place in ``_NUMBERS``, and what seccomp calls the architecture."""
_X32_BIT: Final = 0x4000_0000

# Classic BPF, and where seccomp_data has what.
_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_KILL, _ALLOW, _ERRNO = 0x8000_0000, 0x7FFF_0000, 0x0005_0000
_REFUSE: Final = _ERRNO | errno.EPERM

_CLONE_THREAD: Final = 0x0001_0000
_CLONE_NEW: Final = 0x7E02_0000
"""All namespaces."""
_WRITES: Final = (
    os.O_WRONLY
    | os.O_RDWR
    | os.O_CREAT
    | os.O_TRUNC
    | os.O_APPEND
    | getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY
)
_IOCTLS: Final = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""Is it a terminal (TCGETS, TIOCGWINSZ), how much there is to read, whether it blocks, and close-on-exec."""
_FCNTLS: Final = (0, 1, 2, 3, 4, 1030, 1032)
"""Duplicates, flags, and the size of a pipe; not whom to send signals."""
_SHARED, _GROWS_DOWN = 0x01, 0x100
"""Memory that no limit on a process's memory counts."""
_PR_SET_NAME, _PR_GET_NAME = 15, 16
_PR_SET_SECCOMP: Final = 22
_SECCOMP_MODE_FILTER: Final = 2

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand."""


class Filter:
    """The filter of this machine, but for the process's own id, to which it may send signals."""

    def __init__(self) -> None:
        """Raises ``KeyError`` for a machine that it is not made for."""
        self._place, self._architecture = _MACHINES[platform.machine()]

    def number(self, name: str) -> int | None:
        """Of a call; None where the machine has none of that name."""
        return _NUMBERS[name][self._place]

    def program(self, pid: int) -> bytes:
        """The filter of the process with that id."""
        found: list[Instruction] = [
            (_LOAD, 0, 0, _ARCHITECTURE),
            (_JUMP_EQUAL, 1, 0, self._architecture),
            (_RETURN, 0, 0, _KILL),
            (_LOAD, 0, 0, _NUMBER),
        ]
        if self._place == 0:
            found += [(_JUMP_ABOVE, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL)]
        for name in ALLOWED.split():
            found += self._case(name, [(_RETURN, 0, 0, _ALLOW)])
        for name, rule in _rules(pid).items():
            found += self._case(name, rule)
        for name in DEADLY.split():
            found += self._case(name, [(_RETURN, 0, 0, _KILL)])
        found.append((_RETURN, 0, 0, _REFUSE))
        return b"".join(struct.pack("=HBBI", *one) for one in found)

    def _case(self, name: str, rule: Sequence[Instruction]) -> list[Instruction]:
        """If it is this call, the rule, which ends with an answer."""
        number = self.number(name)
        return [] if number is None else [(_JUMP_EQUAL, 0, len(rule), number), *rule]


def _rules(pid: int) -> dict[str, list[Instruction]]:
    """Of calls that are allowed with some arguments. The kernel looks at the low 32 bits of all of these."""
    refused: list[Instruction] = [(_RETURN, 0, 0, _REFUSE)]
    return {
        "open": _unless_any_bit(1, _WRITES),
        "openat": _unless_any_bit(2, _WRITES),
        "mmap": _unless_any_bit(3, _SHARED | _GROWS_DOWN),
        "fcntl": _if_one_of(1, _FCNTLS),
        "ioctl": _if_one_of(1, _IOCTLS),
        "clone": [
            (_LOAD, 0, 0, _argument(0)),
            (_JUMP_ANY_BIT, 0, 2, _CLONE_THREAD),
            (_JUMP_ANY_BIT, 1, 0, _CLONE_NEW),
            (_RETURN, 0, 0, _ALLOW),
            *refused,
        ],
        "clone3": [
            (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)
        ],  # its flags are in memory; libraries then use clone
        "kill": _if_one_of(0, (pid,)),
        "tgkill": _if_one_of(0, (pid,)),
        "prlimit64": _if_one_of(0, (0, pid)),
        "prctl": _if_one_of(0, (_PR_SET_NAME, _PR_GET_NAME)),
        "sendto": [  # without an address, in either half of the pointer
            (_LOAD, 0, 0, _argument(4)),
            (_JUMP_EQUAL, 0, 3, 0),
            (_LOAD, 0, 0, _argument(4) + 4),
            (_JUMP_EQUAL, 0, 1, 0),
            (_RETURN, 0, 0, _ALLOW),
            *refused,
        ],
    }


def _argument(index: int) -> int:
    """Where the low half of an argument is."""
    return _ARGUMENTS + 8 * index


def _unless_any_bit(index: int, bits: int) -> list[Instruction]:
    return [
        (_LOAD, 0, 0, _argument(index)),
        (_JUMP_ANY_BIT, 0, 1, bits),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _if_one_of(index: int, values: Sequence[int]) -> list[Instruction]:
    found: list[Instruction] = [(_LOAD, 0, 0, _argument(index))]
    for value in values:
        found += [(_JUMP_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW)]
    return [*found, (_RETURN, 0, 0, _REFUSE)]


class _Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def install(program: bytes) -> None:
    """From here on, for this thread and all that it starts; it must have no new privileges to gain
    (``PR_SET_NO_NEW_PRIVS``). Raises ``OSError``."""
    instructions = ctypes.create_string_buffer(program, len(program))
    told = _Program(len(program) // 8, ctypes.addressof(instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(told), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")
