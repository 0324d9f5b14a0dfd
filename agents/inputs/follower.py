"""One open file that may grow, shrink, be renamed or vanish: where we are in it, and its next whole lines.

Reads are by position from the start of the first line that was not handed out, so nothing is buffered between
calls and what a position says is all that there is to remember. After each read the beginning of the file
is looked at again, so that bytes of a file that was begun anew in between are never taken for the old
one's. A line that is longer than allowed is searched through in blocks and handed out as a reject once its
end is known: until then the position stays at its beginning.
"""

from __future__ import annotations

import zlib
from typing import Final

from agents.inputs.contents import HEAD_BYTES, Content
from agents.inputs.copies import RECENT_BYTES, Ended
from agents.inputs.records import Records, joined
from agents.inputs.split import split
from agents.inputs.values import REJECT_KEPT_BYTES, Chunk, Position, Reject, Source, too_long

_LAST_BYTES: Final = 64
_SEARCH_BYTES: Final = 1 << 20
_SEARCH_BYTES_A_TURN: Final = 16 << 20


class Follower:
    """A regular file by its content. The fingerprint covers up to ``HEAD_BYTES`` of
    what the file held when it was last looked at.

    ``offset``: bytes consumed; ``gone_ms``: since when no path leads to it (None: one does); ``quiet_ms``:
    since when nothing new came; ``had_turn``: it has had a turn; ``unlinked``: no name led to it
    at the last scan; ``doubtful``: files that came after it may be gone; ``log``: the path of the log that
    rotation has made it of, mostly its own; ``modified_ns``: when it was last written to, by the file
    system's clock.
    """

    def __init__(
        self,
        path: str,
        content: Content,
        *,
        generation: int = 0,
        max_line_bytes: int,
        records: Records | None = None,
    ) -> None:
        status = content.status()
        self.path = self.log = path
        self.device = status.st_dev
        self.inode = status.st_ino
        self.version = content.version()
        self.generation = generation
        self.offset = 0
        self.size = content.size()
        self.modified_ns = status.st_mtime_ns
        self.gone_ms: int | None = None
        self.had_turn = self.unlinked = self.doubtful = False
        self.quiet_ms = 0
        self.severed = ""
        """Why what was written behind it is gone; empty: nothing is known to be."""
        self.content = content
        self._max_line_bytes = max_line_bytes
        self._records = records
        self._held_ms: int | None = None
        """Since when its last record waits for the next one to begin; None: it does not."""
        self._searched = self._handed = 0
        self._looked = -1, -1
        self.same_at = -1
        self._head = 0, 0
        self._beginning = b""
        self._recent = b""
        self._recent_print: tuple[int, int] | None = None
        self._id: str | None = None
        self._source: Source | None = None

    # -- identity --------------------------------------------------------------------------------------------

    @property
    def source(self) -> Source | None:
        """None as long as the file was not ``identify``-ed."""
        if self._id is None:
            return None
        if self._source is None or (self._source.path, self._source.log) != (self.path, self.log):
            self._source = Source(self._id, self.path, self.log)
        return self._source

    def identify(self) -> bool:
        """Gives the source its name; False as long as the file holds nothing."""
        if self._id is None and self._grow_head():
            length, crc = self._head
            self._id = f"{self.device:x}:{self.inode:x}:{self.generation}:{length:x}-{crc:08x}"
        return self._id is not None

    def position(self) -> Position | None:
        """None as long as there is nothing to remember."""
        if self._id is None:
            return None
        if self._recent_print is None:
            self._recent_print = len(self._recent), zlib.crc32(self._recent)
        file = self.device, self.inode, self.generation
        prints = *self._head, *self._recent_print
        times = self.modified_ns, self.version
        return Position(
            self._id,
            self.path,
            self.offset,
            *file,
            *prints,
            *times,
            log=self.log,
            beginning=self._beginning,
            severed=self.severed,
        )

    def unnamed(self) -> Position:
        """Of a file that has no name yet: it was there, and nothing of it was read."""
        file = self.device, self.inode, self.generation
        times = self.modified_ns, self.version
        return Position("", self.path, 0, *file, 0, 0, 0, 0, *times, log=self.log, severed=self.severed)

    def ended(self) -> Ended | None:
        """What there is to say of it, if nothing more will be read; None of a file that held nothing."""
        position = self.position()
        return None if position is None else Ended(position, self._recent, self.size)

    def is_file_of(self, position: Position) -> bool:
        """Whether it is the file of a position, whatever it holds by now."""
        if (position.device, position.inode) != (self.device, self.inode):
            return False
        return not position.version or not self.version or position.version == self.version

    def resume(self, position: Position) -> bool:
        """Go on from the position, if it is one of this very file, grown or not or cut short since."""
        if not self.is_file_of(position):
            return False
        if not position.source:
            self.severed = position.severed
            return True
        head = self.content.read(position.head_bytes, 0)
        if len(head) == position.head_bytes and zlib.crc32(head) != position.head_crc:
            return False
        recent = self.content.read(position.recent_bytes, position.offset - position.recent_bytes)
        if len(recent) == position.recent_bytes and zlib.crc32(recent) != position.recent_crc:
            return False
        self.generation = position.generation
        self.offset = self._searched = self._handed = position.offset
        self._head, self._beginning = (position.head_bytes, position.head_crc), position.beginning
        self._id = position.source
        self.severed = position.severed
        self._remember()
        if len(recent) < position.recent_bytes:  # it is shorter: the next look says so
            self._recent, self._recent_print = b"", (position.recent_bytes, position.recent_crc)
        return True

    def skip_to_end(self, kept_bytes: int = 0) -> None:
        """Start behind the last whole line, or behind the last one before the last ``kept_bytes``."""
        end = max(self.size - kept_bytes, 0)
        low = max(end - self._max_line_bytes - 2, 0)
        before = self.content.read(end - low, low)
        self.go_on_at(low + before.rfind(b"\n") + 1)

    def go_on_at(self, offset: int) -> None:
        """Take what stands before ``offset`` for read."""
        self.offset = self._searched = self._handed = offset
        self._remember()

    def _remember(self) -> None:
        """The last bytes before the offset, from the file."""
        count = min(RECENT_BYTES, self.offset)
        self._recent = self.content.read(count, self.offset - count)
        self._recent_print = None

    def peek(self, count: int, offset: int) -> bytes:
        """Bytes of the file, consumed or not."""
        return self.content.read(count, offset)

    # -- change ----------------------------------------------------------------------------------------------

    def look(self) -> Ended | None:
        """Notice what happened to the file: that it grew, or that it was begun anew, which is a new
        generation.

        The result is None, or for a file begun anew what was known of the old one.
        """
        status = self.content.status()
        looked = status.st_size, status.st_mtime_ns
        if looked == self._looked:
            return None
        self._looked = looked
        self.modified_ns = status.st_mtime_ns
        seen, self.size = self.size, self.content.size()
        position, recent = self.position(), self._recent
        if position is None or (self.size >= self.offset and self._grow_head() and self._goes_on()):
            return None
        self.generation += 1
        self.offset = self._searched = self._handed = 0
        self.same_at = -1
        self._head, self._beginning = (0, 0), b""
        self._recent, self._recent_print = b"", None
        self._id = self._source = None
        return Ended(position, recent, seen, cut=True)

    @property
    def deleted(self) -> bool:
        """Whether no name leads to the file any more."""
        return self.content.status().st_nlink == 0

    def _grow_head(self) -> bool:
        """Whether the file still begins as it did (and holds anything); the fingerprint grows with the
        file."""
        head = self.content.read(HEAD_BYTES, 0)
        length, crc = self._head
        if not head or len(head) < length or zlib.crc32(head[:length]) != crc:
            return False
        if len(head) > length:
            self._head, self._beginning = (len(head), zlib.crc32(head)), head
        return True

    def _goes_on(self) -> bool:
        """Whether what was read last stands before the offset. Who writes without ``O_APPEND`` goes on where
        he was when his file was cut, and leaves a hole before it: one is like another."""
        last = self._recent[-_LAST_BYTES:]
        return self.content.read(len(last), self.offset - len(last)) == last

    # -- lines -----------------------------------------------------------------------------------------------

    def read(self, bytes_max: int, now_ms: int = 0, *, all_of_it: bool = False) -> Chunk | None:
        """The next whole lines, at most ``bytes_max`` unless the first alone is longer; None when there
        were none at the last ``look``. Of records whole ones, but that the last one has waited until
        ``now_ms``, or ``all_of_it`` is wanted."""
        records, held_ms = self._records, self._held_ms
        if records is not None and held_ms is not None:
            all_of_it |= now_ms - held_ms >= records.wait_ms
        more = self.size > self._searched or (held_ms is not None and all_of_it)
        if not more or not self.identify():
            return None
        longest = self._max_line_bytes + 2
        if self._searched - self.offset >= longest:
            return self._search()
        asked = max(bytes_max, 1)
        data = self.content.read(asked, self.offset)
        end = data.rfind(b"\n") + 1
        if not end and len(data) == asked < longest:
            asked = longest
            data = self.content.read(asked, self.offset)
            end = data.find(b"\n") + 1
        if not end and len(data) >= longest and data[0] == 0 and self._skip_hole():
            return self.read(bytes_max, now_ms, all_of_it=all_of_it)
        if not end:
            self._searched = self.offset + len(data)
            return self._search() if len(data) >= longest else None
        if not self._grow_head():
            self._looked = -1, -1
            return None
        if records is not None:
            return self._whole_records(records, data, end, now_ms, asked, all_of_it=all_of_it)
        at_end = len(data) < asked and data.find(b"\n", end) < 0
        return self._chunk(data, end, at_end=at_end)

    def _whole_records(
        self, records: Records, data: bytes, end: int, now_ms: int, asked: int, *, all_of_it: bool
    ) -> Chunk | None:
        """Those of ``data[:end]``, which was read where ``asked`` bytes were wanted."""
        source, start = self._known_source(), self.offset
        found = split(source, data, start, self._max_line_bytes, end)
        firsts = records.firsts(found.lines, found.offsets, self._max_line_bytes)
        stop, count = start + end, len(firsts)
        if len(firsts) and not all_of_it:
            stop, count = int(found.offsets[firsts[-1]]), len(firsts) - 1
        if stop == start:
            if len(data) == asked:
                return self.read(max(2 * asked, self._max_line_bytes + 2), now_ms)
            self._searched, self._held_ms = start + len(data), now_ms
            return None
        kept = found.lines[: int(firsts[count])] if count < len(firsts) else found.lines
        lines = joined(kept, firsts[:count]) if count else kept[:0]
        rejects = tuple(one for one in found.rejects if one.offset < stop)
        begin = self._pass_to(data, stop - start)
        return Chunk(source, begin, stop, lines, found.offsets[firsts[:count]], rejects, at_end=False)

    def _skip_hole(self) -> bool:
        """To behind the NULs that stand here, if anything does. Many of them are not even on the disk."""
        at = self.content.data_at(self.offset)
        stop = min(at + _SEARCH_BYTES_A_TURN, self.size)
        while at < stop:
            block = self.content.read(_SEARCH_BYTES, at)
            behind = block.lstrip(b"\0")
            at += len(block) - len(behind)
            if behind:
                handed = self._handed
                self.go_on_at(at)
                self._handed = handed
                return True
            if not block:
                break
        return False

    def last_line(self) -> Chunk | None:
        """What lies behind the last newline of a file that nobody will write to again, and the last record
        before it."""
        if (
            self._held_ms is not None
            and (chunk := self.read(self._max_line_bytes, all_of_it=True)) is not None
        ):
            return chunk
        if self.source is None or self.size <= self.offset:
            return None
        if self.size - self.offset > self._max_line_bytes + 2:
            self._searched = self.size
            return self._overlong(self.size, self.size - self.offset)
        data = self.content.read(self.size - self.offset, self.offset)
        return self._chunk(data, len(data), at_end=True) if data else None

    def _chunk(self, data: bytes, end: int, *, at_end: bool) -> Chunk:
        source, start = self._known_source(), self.offset
        begin = self._pass_to(data, end)
        found = split(source, data, start, self._max_line_bytes, end)
        return Chunk(source, begin, self.offset, found.lines, found.offsets, found.rejects, at_end)

    def _pass_to(self, data: bytes, end: int) -> int:
        """``data[:end]`` is handed out; from where on, with what was passed over before it."""
        begin = self._handed
        self.offset = self._searched = self._handed = self.offset + end
        last = data[max(end - RECENT_BYTES, 0) : end]
        self._recent = (self._recent + last)[-RECENT_BYTES:]
        self._recent_print = self._held_ms = None
        return begin

    def _search(self) -> Chunk | None:
        """Look for the end of an overlong line: a bounded piece of it a turn."""
        stop = self._searched + _SEARCH_BYTES_A_TURN
        while self._searched < stop:
            block = self.content.read(_SEARCH_BYTES, self._searched)
            if not block:
                return None
            newline = block.find(b"\n")
            if newline >= 0:
                at = self._searched + newline
                ends_in_return = self.content.read(1, at - 1) == b"\r"
                return self._overlong(at + 1, at - self.offset - ends_in_return)
            self._searched += len(block)
        return None

    def _overlong(self, end: int, length: int) -> Chunk:
        source = self._known_source()
        kept = self.content.read(min(REJECT_KEPT_BYTES, length), self.offset)
        reject = Reject(source.id, source.path, self.offset, too_long(self._max_line_bytes), kept, length)
        start = self._handed
        self.go_on_at(end)
        nothing = split(source, b"", start, self._max_line_bytes)
        return Chunk(source, start, end, nothing.lines, nothing.offsets, (reject,), at_end=end >= self.size)

    def _known_source(self) -> Source:
        source = self.source
        if source is None:
            raise RuntimeError(f"{self.path}: read from a file that holds nothing")
        return source

    @property
    def searching(self) -> bool:
        """Whether an overlong line has more bytes to be searched right now."""
        return self.offset + self._max_line_bytes + 2 <= self._searched < self.size

    @property
    def pending(self) -> bool:
        """Whether there may be whole lines to read, which are not a copy's of a file that is followed."""
        return self.size > self._searched and self.same_at != self.size

    @property
    def unread(self) -> int:
        """Bytes that are in the file and were not consumed."""
        return max(self.size - self.offset, 0)

    def close(self) -> None:
        self.content.close()
