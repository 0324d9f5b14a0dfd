"""The walls around users' code, all of which hold before the first line of it is read.

======================  =====================================================================================
files                   Landlock: Python's library and packages, elf itself, shared libraries and time zones
                        may be read; nothing may be written, made or removed, anywhere
network, processes,     the filter of system calls (``elf.functions.syscalls``): no sockets, programs or new
the kernel              processes, no signals but to oneself
who it is               no capabilities, and no way to new ones; not to be traced, no core dump
the environment         ``environment`` and nothing else; standard input and output, and the one socket
                        to the agent, are all the open descriptors
amounts                 memory, open files, threads, and files of no bytes (``elf.functions.zygote``)
======================  =====================================================================================

A zygote takes on what is the same for all its forks (``enter``), each fork the rest (``seal``): its own
ruleset, so that forks cannot reach each other or the zygote, and the filter, in which its own id stands.

What is seen all the same: names, sizes and times of files whose paths are guessed (Landlock does not hide
them), the host's name, its clocks and its load. A machine without Landlock or without such filters has no
walls: ``lacking`` says why, and whoever runs others' code there must refuse it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import sysconfig
from pathlib import Path
from typing import Final

from elf.functions import landlock, syscalls

_PR_GET_SECCOMP: Final = 21
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38
_CAPABILITIES_3: Final = 0x2008_0522
PASSED_ON: Final = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "PYTHONHOME")
"""What the interpreter needs of the agent's environment, beside where its modules are."""
SYSTEM: Final = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/etc/localtime",
    "/usr/share/zoneinfo", "/dev/null", "/dev/urandom",
)  # fmt: skip
"""Shared libraries, time zones, and devices that give nothing away."""
PACKAGES: Final = ("elf", "overlay")
"""Of this installation."""


def lacking() -> str:
    """Why users' code cannot be confined on this machine; empty: it can."""
    if sys.platform != "linux":
        return f"{platform.system()} has neither Landlock nor seccomp; that takes Linux 5.13 or later"
    try:
        syscalls.Filter()
    except KeyError:
        return f"there is no filter of system calls for {platform.machine()}; there is for x86_64 and aarch64"
    if not landlock.version():
        return (
            f"its kernel ({platform.release()}) has no Landlock, or does not switch it on (lsm=landlock,…); "
            "that takes Linux 5.13 or later"
        )
    if ctypes.CDLL(None).prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) < 0:
        return f"its kernel ({platform.release()}) has no seccomp"
    return ""


def walls() -> str:
    """What confines users' code on this machine, for people."""
    why = lacking()
    return f"none: {why}" if why else f"Landlock {landlock.version()}, seccomp"


def environment(root: str) -> dict[str, str]:
    """Of a zygote, and so of all users' code. Nothing that it imports may start a thread, and memory comes
    from malloc, so that a limit on it is felt at once."""
    places = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
        "PYTHONPATH": os.pathsep.join(str(Path(place).absolute()) for place in dict.fromkeys(places)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "MALLOC_ARENA_MAX": "2",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
    }


def readable() -> list[Path]:
    """All that users' code may read."""
    root = Path(__file__).resolve().parents[2]
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    libraries |= {place for place in sys.path if Path(place).name in ("site-packages", "dist-packages")}
    libraries |= {f"{prefix}/lib" for prefix in (sys.base_prefix, sys.prefix)}
    return [*map(Path, sorted(libraries)), *map(Path, SYSTEM), *(root / name for name in PACKAGES)]


def enter() -> None:
    """For a zygote, once it has imported what its forks need. Raises ``OSError``."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    landlock.restrict(readable())


def seal() -> None:
    """For a fork of one thread, as the last thing before users' code. Raises ``OSError``."""
    _drop_capabilities()
    _prctl(_PR_SET_DUMPABLE, 0)
    landlock.set_apart()
    syscalls.install(syscalls.Filter().program(os.getpid()))


def _drop_capabilities() -> None:
    """All of them, also where the agent is root."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(struct.pack("=Ii", _CAPABILITIES_3, 0), bytes(24)):
        raise OSError(ctypes.get_errno(), "capabilities cannot be given up")


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl {option}")
