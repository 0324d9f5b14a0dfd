"""Copies of snapshots as values: their names, and what is asked of the disk about them (the protocol:
``elf.job.rollup.copying``).

The effects of this module are performed in order, one after the other, beside everything else that an agent
does; they come back as its events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from elf.job.snapshots import Sealed
from elf.job.spec import Flow


class CopyName(NamedTuple):
    """Names one snapshot in the fleet: panes ``[start, end)`` of a flow, by a member of its stream, and the
    part."""

    flow: str
    member: int
    start: int
    end: int
    part: int = 0


class Copy(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot as its owner has sealed it: encoded tables."""

    name: CopyName
    counters: bytes = b""
    payload: bytes = b""

    @property
    def size(self) -> int:
        """Bytes, as quotas count them."""
        return len(self.counters) + len(self.payload) + COPY_OVERHEAD


COPY_OVERHEAD: Final = 256
"""Bytes that a copy takes besides its contents."""


@dataclass(frozen=True)
class ReadSnapshots:
    """Read snapshots that this agent retains, for the holders at ``to``; comes back as ``SnapshotsRead``."""

    names: tuple[CopyName, ...]
    to: tuple[str, ...]


@dataclass(frozen=True)
class StoreCopies:
    """Keep copies of another agent's snapshots, which came from ``owner``; comes back as ``CopiesStored``."""

    owner: str
    copies: tuple[Copy, ...]


@dataclass(frozen=True)
class ForgetCopies:
    """Delete copies. It need not be durable: one that is there again is offered once more."""

    names: tuple[CopyName, ...]


@dataclass(frozen=True)
class ReadHeld:
    """Read copies that this agent holds, for other holders at ``to``; comes back as ``HeldRead``."""

    names: tuple[CopyName, ...]
    to: tuple[str, ...]


@dataclass(frozen=True)
class ReadCopies:
    """Read the copies of a member that have panes in ``[start, end)``, of this part; ``CopiesRead``."""

    flow: Flow
    member: int
    start: int
    end: int
    part: int = 0


@dataclass(frozen=True)
class SnapshotsRead:
    """What was there of the snapshots that were named."""

    to: tuple[str, ...]
    copies: tuple[Copy, ...]


@dataclass(frozen=True)
class CopiesStored:
    """The copies are durable, but those that the disk has ``refused``."""

    owner: str
    names: tuple[CopyName, ...]
    refused: tuple[CopyName, ...] = ()


@dataclass(frozen=True)
class CopiesRead:
    """``damaged``: those whose checksum is wrong; they are deleted."""

    flow: Flow
    member: int
    snapshots: tuple[Sealed, ...]
    damaged: tuple[CopyName, ...] = ()


@dataclass(frozen=True)
class HeldRead:
    """What was there of the copies that were named; ``damaged`` as in ``CopiesRead``."""

    to: tuple[str, ...]
    copies: tuple[Copy, ...]
    damaged: tuple[CopyName, ...] = ()


CopyEffect = ReadSnapshots | StoreCopies | ForgetCopies | ReadHeld | ReadCopies
CopyEvent = SnapshotsRead | CopiesStored | HeldRead | CopiesRead
