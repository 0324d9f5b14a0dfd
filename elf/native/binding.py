"""Finds the shared library, and has its types: those of ``native.h``, field by field.

It is no extension module: it knows nothing of Python, so one file serves every version of Python, and who
builds it needs no headers of Python's. ctypes lets go of the GIL for each call.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import POINTER, c_int32, c_int64, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Final

SWITCH: Final = "ELF_NATIVE"
"""``off`` in this variable: as if the library were not there."""
_NAME: Final = "_extract*.so"


class Lines(ctypes.Structure):
    """``struct elf_lines``."""

    _fields_ = (
        ("data", c_void_p),
        ("size", c_int64),
        ("offsets", c_void_p),
        ("rows", c_int64),
        ("marks", c_void_p),
    )


class Column(ctypes.Structure):
    """``struct elf_column``."""

    _fields_ = (
        ("type", c_int32),
        ("first", c_int32),
        ("ways", c_int32),
        ("counted", c_int32),
        ("values", c_void_p),
        ("valid", c_void_p),
        ("starts", c_void_p),
        ("sizes", c_void_p),
        ("bytes", c_int64),
    )


class Plan(ctypes.Structure):
    """``struct elf_plan``."""

    _fields_ = (
        ("nodes", c_void_p),
        ("node_count", c_int32),
        ("way_count", c_int32),
        ("ways", c_void_p),
        ("keys", c_void_p),
        ("keys_size", c_int64),
    )


class Values(ctypes.Structure):
    """``struct elf_values``."""

    _fields_ = (
        ("rows", c_int64),
        ("width", c_int64),
        ("values", c_void_p),
        ("size", c_int64),
        ("offsets", c_void_p),
        ("valid", c_void_p),
        ("first", c_int64),
    )


class Held(ctypes.Structure):
    """``struct elf_held``."""

    _fields_ = (
        ("how", c_int32),
        ("width", c_int32),
        ("values", c_void_p),
        ("room", c_int64),
        ("used", c_int64),
        ("offsets", c_void_p),
        ("valid", c_void_p),
        ("most", c_uint64),
    )


class Table(ctypes.Structure):
    """``struct elf_table``."""

    _fields_ = (
        ("capacity", c_int64),
        ("count", c_int64),
        ("slots", c_void_p),
        ("slot_count", c_int64),
        ("hashes", c_void_p),
        ("column_count", c_int32),
        ("stopped", c_int32),
    )


_FUNCTIONS: Final = {
    "elf_level": (c_int32, ()),
    "elf_marks": (None, (c_void_p, c_int64, c_void_p, c_int32)),
    "elf_json": (c_int64, (POINTER(Lines), POINTER(Plan), POINTER(Column), c_int32, c_void_p)),
    "elf_access": (
        c_int64,
        (POINTER(Lines), c_int32, POINTER(Column), c_int32, c_void_p, POINTER(c_int64)),
    ),
    "elf_split": (
        c_int64,
        (c_void_p, c_int64, c_int64, c_int64, c_int64, c_void_p, c_void_p, c_void_p),
    ),
    "elf_gather": (c_int64, (POINTER(Lines), POINTER(Column), c_void_p, c_void_p, c_int64)),
    "elf_hash_words": (c_int64, (c_void_p, c_int64, c_int64, c_uint64, c_void_p)),
    "elf_hash_texts": (c_int64, (c_void_p, c_int64, c_void_p, c_int64, c_uint64, c_void_p)),
    "elf_hash_mix": (c_int64, (c_void_p, c_void_p, c_int64)),
    "elf_starts": (c_int64, (POINTER(Values), c_int32, c_void_p, c_void_p, c_int64, c_void_p)),
    "elf_take": (c_int64, (POINTER(Values), c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_void_p)),
    "elf_merge": (
        c_int64,
        (c_void_p, c_int64, c_int32, c_void_p, c_int64, c_void_p, c_int64, c_void_p),
    ),
    "elf_table_add": (
        c_int64,
        (POINTER(Table), POINTER(Held), POINTER(Values), c_void_p, c_int64, c_int64),
    ),
    "elf_table_place": (c_int64, (POINTER(Table),)),
}
"""Result and arguments of each."""


@cache
def library() -> ctypes.CDLL | None:
    """The library; None where it is not there (``why_not``)."""
    return None if why_not() else _opened()


@cache
def why_not() -> str:
    """Why there is no native part, in a few words; empty where there is one."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no"):
        return f"{SWITCH} in the environment says so"
    if _path() is None:
        return "it was not built when elf was installed, for which a C compiler is needed"
    try:
        _opened()
    except (OSError, AttributeError) as error:
        return str(error)
    return ""


@cache
def ipc_size() -> Callable[[bytes, int], int] | None:
    """``elf_ipc_size``, which holds the GIL: it takes less time than to let go of it. None where it is not
    there, also in a library of an older elf."""
    if why_not():
        return None
    function = getattr(ctypes.PyDLL(str(_path())), "elf_ipc_size", None)
    if function is not None:
        function.restype, function.argtypes = c_int64, (c_void_p, c_int64)
    return function


def _path() -> Path | None:
    return next(iter(sorted(Path(__file__).parent.glob(_NAME))), None)


@cache
def _opened() -> ctypes.CDLL:
    return opened(_path() or Path())


def opened(path: Path) -> ctypes.CDLL:
    """A library at a path. Raises ``OSError``, or ``AttributeError`` for another library."""
    found = ctypes.CDLL(str(path))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found
