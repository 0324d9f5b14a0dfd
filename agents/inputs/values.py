"""What inputs hand out: sources, positions, chunks of whole lines, and what could not be a line.

Offsets are bytes from the beginning of the file (of its uncompressed contents for gzip). A source is a file
id plus its truncate generation: bytes ``[start, end)`` of a source never change, whoever reads them again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.errors import ElfBug
from elf.job.gaps import Missed

Int64s = npt.NDArray[np.int64]

REJECT_KEPT_BYTES: Final = 64 * 1024
"""So many bytes of a rejected line are kept."""

INVALID_UTF8: Final = "invalid UTF-8"
NUL_BYTE: Final = "NUL byte"


def too_long(max_line_bytes: int) -> str:
    """The reason why an overlong line is rejected."""
    return f"line longer than {max_line_bytes} bytes"


@dataclass(frozen=True)
class Source:
    """One file, for ever. ``id`` is made of device, inode, truncate generation and a fingerprint of its
    beginning, so that a reused inode is another source; ``path`` is where it was seen last, ``log`` the path
    of the log that rotation has made it of (mostly its own)."""

    id: str
    path: str
    log: str = ""

    def __post_init__(self) -> None:
        if not self.log:
            object.__setattr__(self, "log", self.path)


@dataclass(frozen=True)
class Position:
    """Where to go on reading a source: its id and path, the bytes consumed, and what tells whether a file
    is that source: its first bytes, and for a copy of it the last ones before ``offset``."""

    source: str
    path: str
    offset: int
    device: int
    inode: int
    generation: int
    head_bytes: int
    head_crc: int
    recent_bytes: int = 0
    recent_crc: int = 0
    modified_ns: int = 0
    """When the file was last written to, by the file system's clock."""
    version: int = 0
    """Of the inode, which tells it from others that had its number (0: the file system has none)."""
    finished: bool = False
    """It was read to its end: remembered so that what rotation makes of it is not read again."""
    log: str = ""
    """The path of the log that rotation has made the file of (empty: its own)."""
    beginning: bytes = b""
    """Its first bytes, as a copy that was made when there were fewer has to be compared with them."""
    severed: str = ""
    """Why what was written behind it is gone (empty: nothing is known to be). It is told when all of the
    file is read, which may be after a restart."""


@dataclass(frozen=True)
class Reject:
    """Bytes that are no line: ``data`` is cut to ``REJECT_KEPT_BYTES``, ``length`` is what the line had
    (without its end)."""

    source: str
    path: str
    offset: int
    reason: str
    data: bytes
    length: int


@dataclass(frozen=True, eq=False)
class Chunk:
    """Whole lines of one source, from its bytes ``[start, end)``.

    ``lines``: valid UTF-8 without NUL, without their ``\\n`` or ``\\r\\n``; ``offsets``: int64, where each
    begins; ``rejects``: what else began in these bytes; ``at_end``: no whole line lay beyond ``end`` when
    it was read.
    """

    source: Source
    start: int
    end: int
    lines: pa.StringArray
    offsets: Int64s
    rejects: tuple[Reject, ...]
    at_end: bool


@dataclass
class Counters:
    """What an input could not give, counted since it was opened.

    ``lost_bytes``: known to have been written but never read (truncated or vanished before we came);
    ``truncated``: files that shrank; ``vanished``: files that went before they were read to their end;
    ``failed``: reads that the system refused.
    """

    lost_bytes: int = 0
    truncated: int = 0
    vanished: int = 0
    failed: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    """Paths that cannot be read now, and why."""


class Input(Protocol):
    """What a stream task reads from. Not for several threads at once."""

    counters: Counters

    @property
    def exhausted(self) -> bool:
        """Whether nothing will ever come again."""
        ...

    @property
    def unread(self) -> int:
        """Bytes that were in its sources at the last look and not handed out yet; on any thread."""
        ...

    def read(self, bytes_max: int, now_ms: int) -> Chunk | None:
        """The next chunk of whole lines; None when there is nothing new anywhere right now."""
        ...

    def positions(self) -> tuple[Position, ...]:
        """Where each source that is still open stands: consumed up to there by the chunks handed out."""
        ...

    @property
    def has_new_sources(self) -> bool:
        """Whether there are sources with lines none of which was handed out yet: they may be as old as those
        of the last chunk."""
        ...

    def gaps(self) -> tuple[Missed, ...]:
        """What was found to be gone since this was last asked; to be asked after each ``read``."""
        ...

    def finished(self) -> tuple[str, ...]:
        """Ids of sources that ended since this was last asked: no chunk of theirs will follow."""
        ...

    def kept(self, positions: tuple[Position, ...]) -> None:
        """A durable checkpoint has these positions: what is before them is asked for no more. On the thread
        of the stream task."""
        ...

    @property
    def rests(self) -> bool:
        """Whether what comes while nobody wants it may be left unread."""
        ...

    def rest(self) -> None:
        """Let go of everything until the next ``read``, which begins anew, with the last lines of each source
        that is there then: what came before them is passed over. Only if it ``rests``."""
        ...

    @property
    def passed_us(self) -> int:
        """When the newest source that was passed over, with its last lines, was written to; 0: there was
        none. To be asked when all is read that it has begun with."""
        ...

    def close(self) -> None: ...


class Unresting:
    """What an input has to say that is read whether anybody wants it or not."""

    @property
    def rests(self) -> bool:
        return False

    def rest(self) -> None:
        raise ElfBug("what has to be read does not rest")

    @property
    def passed_us(self) -> int:
        return 0


class ReadOnce(Unresting):
    """What an input that is never resumed has to say of places and gaps: what cannot be read of it is named
    as a problem, and nothing is closed before its end."""

    def positions(self) -> tuple[Position, ...]:
        return ()

    @property
    def has_new_sources(self) -> bool:
        return False

    def gaps(self) -> tuple[Missed, ...]:
        return ()

    def kept(self, positions: tuple[Position, ...]) -> None:
        """Nothing is to be forgotten."""
