"""Which files a sandbox may read, and that it may reach nothing else: Landlock, by its three system calls.

A *ruleset* names the kinds of access that it is about, all of which are refused from then on but for those
beneath the paths that it allows. A process takes one on for good, and so do its forks. Kernels differ by the
version of their Landlock: all have the rules for files, the fourth those for TCP, the sixth those for signals
and abstract sockets. What an older one lacks the filter of system calls refuses all the same.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""Their numbers, the same on all machines."""
_ASK_VERSION: Final = 1
_PATH_BENEATH: Final = 1

_READ_FILE, _READ_DIR, _MAKE_LINK = 1 << 2, 1 << 3, 1 << 12
_FILES: Final = (0, (1 << 13) - 1, (1 << 14) - 1, (1 << 15) - 1, (1 << 15) - 1, (1 << 16) - 1)
"""All kinds of access to files, by version."""
_NETWORK: Final = 0b11
"""TCP: bind, connect."""
_SCOPES: Final = 0b11
"""Abstract sockets and signals stay within what has taken the ruleset on."""
_NETWORK_SINCE, _SCOPES_SINCE = 4, 6


def version() -> int:
    """The kernel's; 0: it has none, or none that is switched on."""
    found = int(_syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION)))
    return max(found, 0)


def restrict(readable: Iterable[Path]) -> None:
    """From here on nothing can be done with files but read those in ``readable`` and beneath, if they are
    there; nothing over TCP; and nothing to processes and abstract sockets outside. The process must have no
    new privileges to gain. Raises ``OSError``."""
    _take_on(_FILES[min(version(), len(_FILES) - 1)], readable)


def set_apart() -> None:
    """From here on also what has the same rules, or is this process's parent, is outside. Raises
    ``OSError``."""
    _take_on(_MAKE_LINK, ())


def _take_on(files: int, readable: Iterable[Path]) -> None:
    ruleset = _ruleset(files)
    try:
        for path in readable:
            _allow(ruleset, path)
        if _syscall(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)):
            raise OSError(ctypes.get_errno(), "Landlock takes no ruleset on")
    finally:
        os.close(ruleset)


def _ruleset(files: int) -> int:
    """About these kinds of access to files."""
    has = version()
    if not has:
        raise OSError(errno.EOPNOTSUPP, "the kernel has no Landlock")
    told = struct.pack("=Q", files)
    if has >= _NETWORK_SINCE:
        told += struct.pack("=Q", _NETWORK)
    if has >= _SCOPES_SINCE:
        told += struct.pack("=Q", _SCOPES)
    made = _syscall(_CREATE, told, ctypes.c_size_t(len(told)), ctypes.c_uint32(0))
    if made < 0:
        raise OSError(ctypes.get_errno(), "Landlock makes no ruleset")
    return made


def _allow(ruleset: int, path: Path) -> None:
    try:
        at = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # it is not there, or may not be read anyway
    try:
        access = _READ_FILE | _READ_DIR if path.is_dir() else _READ_FILE
        rule = struct.pack("=Qi", access, at)
        if _syscall(_ADD, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0)):
            raise OSError(ctypes.get_errno(), f"Landlock takes no rule for {path}")
    finally:
        os.close(at)


def _syscall(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(ctypes.c_long(number), *arguments))
