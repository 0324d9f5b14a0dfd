"""New files that are copies of followed ones: logrotate's ``copytruncate``, ``cp``, ``mv`` to another disk.

A file that is named after a followed one and begins with all that was read of it holds those lines a second
time. While the original is there the copy waits; when the original was cut, or is no more, the copy is read
from where the original had been read to. What is equal is decided by contents: the first bytes, and the last
ones before that place (``Ended``), which a cut keeps as lengths and checksums (``Position``).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from agents.inputs.values import Position

RECENT_BYTES: Final = 64 << 10
"""So many bytes before a position say whether a file goes on from there."""


@dataclass(frozen=True)
class Ended:
    """A source that is no more: where it stood, the bytes read last (as far as they are known), and how large
    it is known to have been. ``cut``: its file is there and was begun anew, so a copy was made, if any."""

    position: Position
    recent: bytes
    size: int
    cut: bool = False


class NewFile(Protocol):
    """A file that nothing was read of. ``same_at``: the size at which it was the beginning of an original
    (-1: never)."""

    path: str
    size: int
    same_at: int

    def peek(self, count: int, offset: int) -> bytes: ...


def named_after(copy: str, original: str) -> bool:
    """``access.log.1``, ``access.log-20260101`` or ``access.1.log`` is what rotation makes of ``access.log``,
    in any folder. Two logs with other names may say the same, and are two logs."""
    name, first = Path(copy).name, Path(original)
    if name.startswith(first.name):
        return name != first.name or copy != original
    rest = name.removeprefix(first.stem)
    return (
        rest != name and rest[:1] in {".", "-", "_"} and rest[1:2].isdigit() and rest.endswith(first.suffix)
    )


def is_beginning(copy: NewFile, original: NewFile) -> bool:
    """Whether all of the one is the beginning of the other, by its first and last bytes."""
    if copy.same_at != copy.size:
        last = max(copy.size - RECENT_BYTES, 0)
        pieces = [(min(RECENT_BYTES, copy.size - at), at) for at in (0, last)]
        same = all(copy.peek(*piece) == original.peek(*piece) for piece in pieces)
        copy.same_at = copy.size if same else -1
    return copy.same_at == copy.size


def goes_on_at(copy: NewFile, ended: Ended) -> int | None:
    """Where a copy goes on from what was read of the original that it is named after; None: it is no copy."""
    position, recent = ended.position, ended.recent
    if position.offset and not position.recent_bytes:
        return None
    head = copy.peek(position.head_bytes, 0)
    if len(head) < position.head_bytes:
        return min(copy.size, position.offset) if head and position.beginning.startswith(head) else None
    if zlib.crc32(head) != position.head_crc:
        return None
    if copy.size >= position.offset:
        last = copy.peek(position.recent_bytes, position.offset - position.recent_bytes)
        return position.offset if zlib.crc32(last) == position.recent_crc else None
    # The original was written to, and read, between the copy and the cut: nothing in the copy is new.
    begins = position.offset - len(recent)
    known = recent[: max(copy.size - begins, 0)]
    same = copy.peek(len(known), begins) == known if known else ended.cut and not recent
    return copy.size if same or copy.same_at == copy.size else None
