"""What a stream task hands over of a flow: snapshots of sealed panes, whole or as excerpts, and open panes
early."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np

from elf.keys import UInt64s

Span = tuple[int, int]
Name = tuple[int, int, int]
"""The name of a snapshot: first pane, end, part."""


class SnapshotName(NamedTuple):
    """Names the snapshots of one agent: panes ``[start, end)`` of a flow; part 0 is the main one."""

    flow: str
    start: int
    end: int
    part: int = 0


class Sealed(msgspec.Struct, frozen=True):
    """A snapshot: panes ``[start, end)`` of a flow, as this agent has sealed them and retains them until a
    commit includes them. They are encoded tables, ``payload`` empty when all panes are. ``part``: 0, or the
    number of what late rows add to a pane."""

    flow: str
    start: int
    end: int
    counters: bytes
    payload: bytes
    part: int = 0
    excerpt: tuple[bytes, bytes] | None = None
    """(counters, payload) in which groups are left out (``elf.job.thresholds``): goes up instead, if there is
    one; the whole is kept."""

    @property
    def name(self) -> SnapshotName:
        return SnapshotName(self.flow, self.start, self.end, self.part)


class Early(msgspec.Struct, frozen=True):
    """The open panes of a flow, from ``start`` on, as they are now; ``end``: after the last with a row."""

    flow: str
    start: int
    end: int
    counters: bytes
    payload: bytes


@dataclass(frozen=True)
class Threshold:
    """What agents send of a pane (``elf.job.thresholds``): groups with at least ``least``, and those that are
    ``watched`` (hashes of keys, 8 bytes each, those of the first rows first)."""

    least: float
    watched: bytes

    @cached_property
    def number(self) -> int:
        """Identifies the threshold."""
        said = struct.pack("<d", self.least) + self.watched
        return int.from_bytes(hashlib.blake2b(said, digest_size=7).digest(), "little")

    @property
    def hashes(self) -> UInt64s:
        return np.frombuffer(self.watched, np.dtype("<u8"))

    def serves(self, new: Threshold) -> bool:
        """Whether it does about as well as a newer one."""
        first = new.hashes[: len(new.hashes) // 2]
        near = 0.75 * new.least <= self.least <= 1.25 * new.least
        return near and bool(np.isin(first, self.hashes).all())
