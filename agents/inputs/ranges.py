"""Finite inputs: which bytes of which files each agent of ``elf run`` reads.

A line belongs to the range in which it begins, so ranges may be cut anywhere. What cannot be cut (compressed
files, pipes) is read whole.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agents.inputs.packed import MAGICS, is_packed
from elf.errors import InputError

UNREAD_MAGIC: Final = {b"PK\x03\x04": ("zip", "unzip -p")}
"""How files begin that are compressed in a way that is not read here: its name, and what undoes it."""
_ALL: Final = (*MAGICS, *UNREAD_MAGIC)
MAGIC_BYTES: Final = max(map(len, _ALL))


@dataclass(frozen=True)
class Range:
    """The lines of a file that begin in its bytes ``[start, end)``; ``end`` None: to the end of the file."""

    path: str
    start: int = 0
    end: int | None = None


@dataclass
class _Share:
    """What one agent gets; ``load`` in bytes."""

    ranges: list[Range]
    load: int = 0

    def add(self, item: Range, size: int) -> None:
        self.ranges.append(item)
        self.load += size


def check_path(path: str) -> os.stat_result:
    """What a path leads to, if it can be read; else raises ``InputError`` with one line that says why."""
    try:
        status = Path(path).stat()
    except OSError as error:
        raise InputError(f"input {path}: {(error.strerror or str(error)).lower()}") from error
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"input {path}: is a directory, not a file")
    if not os.access(path, os.R_OK):
        raise InputError(f"input {path}: permission denied")
    if stat.S_ISREG(status.st_mode):
        with Path(path).open("rb") as file:
            head = file.read(MAGIC_BYTES)
        for name, command in (unread for magic, unread in UNREAD_MAGIC.items() if head.startswith(magic)):
            raise InputError(
                f"input {path}: is compressed with {name}, which elf does not read; decompress it first: "
                f"{command} {path} | elf run --input - …"
            )
    return status


def is_compressed(head: bytes) -> bool:
    """Whether a file with this beginning is, in any way that is known."""
    return head.startswith(_ALL)


def may_be_compressed(head: bytes) -> bool:
    """Whether a file with so little in it may still turn out to be."""
    return any(magic != head and magic.startswith(head) for magic in _ALL)


def split_inputs(paths: Sequence[str], parts: int, *, whole_files: bool = False) -> list[list[Range]]:
    """Spreads inputs over ``parts`` agents: whole files if there are enough, balanced by size; else ranges
    of files (never with ``whole_files``: a row is late by what stands before it in its file).

    Some agents may get nothing. Raises ``InputError`` for a path that cannot be read.
    """
    if parts < 1:
        raise InputError(f"cannot spread inputs over {parts} agents")
    sizes = {path: check_path(path) for path in paths}
    shares = [_Share([]) for _ in range(parts)]
    cut = not whole_files and len(paths) < parts
    divisible = [path for path in paths if cut and _divisible(path, sizes[path])]
    whole = [path for path in paths if path not in divisible]
    for path in sorted(whole, key=lambda path: -sizes[path].st_size):
        min(shares, key=lambda share: share.load).add(Range(path), sizes[path].st_size)
    _cut([(path, sizes[path].st_size) for path in divisible], shares)
    return [share.ranges for share in shares]


def _divisible(path: str, status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and not is_packed(path)


def _cut(files: list[tuple[str, int]], shares: list[_Share]) -> None:
    """Pours files, one after the other, into the shares, filling each up to the mean."""
    mean = -(-(sum(size for _, size in files) + sum(share.load for share in shares)) // len(shares))
    waiting = iter(shares)
    share = next(waiting)
    for path, size in files:
        start = 0
        while start < size:
            room = mean - share.load
            following = next(waiting, None) if room <= 0 else None
            if following is not None:
                share = following
                continue
            end = size if room <= 0 else min(size, start + room)
            share.add(Range(path, start, None if end == size else end), end - start)
            start = end
