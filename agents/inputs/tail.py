"""Following the files of a stream: new ones, renamed ones, truncated ones, vanished ones.

Rules:

- a file is known by device, inode and its beginning, never by its path: after a rename the same source goes
  on, and the new file at the old path is a new source from its beginning;
- a source that no path leads to any more is read to its end and for ``rotate_wait_secs`` more (who writes
  it may not have noticed the rename yet; until there is a new file at its path that may take much longer);
  then it is finished, its last line complete or not;
- a file that shrank or begins differently was begun anew: generation + 1, from 0;
- what rotation has made of a log while nobody looked is looked for by content and read to its end, also when
  it is compressed and no pattern matches it (``agents.inputs.rotated``), the oldest first, before the log
  itself: so each row comes before those that were written after it;
- what can't be found is ``Missed``, which is told with the next chunk, or when there is none;
- a new file is nothing yet until its first bytes say what it is: compressed, a copy of a file that is
  followed (``agents.inputs.copies``), or a source of its own;
- the last line of a file that is followed waits until it is complete.

It never writes, never waits for anything but the disk, and never stops because one file cannot be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Literal

from agents.inputs.contents import Plain
from agents.inputs.copies import Ended, goes_on_at, is_beginning, named_after
from agents.inputs.files import COMPRESSED, CUT, Files
from agents.inputs.follower import Follower
from agents.inputs.ranges import MAGIC_BYTES, is_compressed, may_be_compressed
from agents.inputs.records import Records
from agents.inputs.rotated import FileId
from agents.inputs.values import Chunk, Counters, Position
from elf.fields import replace
from elf.job.gaps import Missed

_SCAN_EVERY_MS: Final = 1000
_UNREPLACED_MS: Final = 600_000
"""A file that is gone from its path, where there is no other yet, is finished when it is silent for so long:
who writes it has not let go of it."""
KEPT_BYTES: Final = 64 << 10
"""So much of each file is read when a tail that has rested goes on: enough to tell where event time stands,
and what columns the lines have."""
_GONE: Final = "it is gone, and no file in its folder goes on from there"


class Tail:
    """One per stream, used by one thread. ``include`` and ``exclude`` are paths or globs (``**`` too).

    ``initial`` says where to start in files that are there when a tail without ``positions`` looks for the
    first time; files that turn up later, or while the agent was down, are read from their beginning.
    ``positions`` are those of the last cut: a file with the same identity goes on from there, also if it
    was renamed meanwhile within its folder, or compressed there.
    """

    def __init__(
        self,
        include: Sequence[str],
        exclude: Sequence[str] = (),
        *,
        initial: Literal["beginning", "end"] = "beginning",
        max_line_bytes: int = 1 << 20,
        rotate_wait_secs: float = 5.0,
        positions: Sequence[Position] = (),
        scan_every_ms: int = _SCAN_EVERY_MS,
        records: Records | None = None,
    ) -> None:
        """``records``: of several lines (None: each line is one)."""
        self.counters = Counters()
        self._new_files = partial(
            Files, include, exclude, self.counters, max_line_bytes=max_line_bytes, records=records
        )
        self._files = self._new_files(from_end=initial == "end", positions=positions)
        self._rotate_wait_ms = int(rotate_wait_secs * 1000)
        self._scan_every_ms = scan_every_ms
        self._gaps: list[tuple[str, Missed]] = []
        self._reading = ""
        """The log of the last chunk."""
        self._finished: list[str] = []

    @property
    def exhausted(self) -> bool:
        """A followed file may always grow."""
        return False

    @property
    def unread(self) -> int:
        """Bytes in the files by the last look at each, of a line that is being written too."""
        return sum(one.unread for one in tuple(self._files.followers.values()) if one.same_at != one.size)

    # -- reading ---------------------------------------------------------------------------------------------

    def read(self, bytes_max: int, now_ms: int) -> Chunk | None:
        """The next whole lines of the sources in turn; None when there is nothing new anywhere right now."""
        if self._files.scanned_ms is None or now_ms - self._files.scanned_ms >= self._scan_every_ms:
            self.scan(now_ms)
        self._reading, searching = "", True
        while searching:
            searching = False
            for key in list(self._files.followers):
                follower = self._files.followers.get(key)
                chunk = None if follower is None else self._turn(key, follower, bytes_max, now_ms)
                if follower is not None and chunk is not None:
                    self._reading = follower.log
                    return chunk
                searching |= key in self._files.followers and self._files.followers[key].searching
        return None

    def _turn(self, key: FileId, follower: Follower, bytes_max: int, now_ms: int) -> Chunk | None:
        try:
            self._look(follower, now_ms)
            if not self._has(key, follower) or self._waits(follower):
                return None
            follower.had_turn = True
            decided = follower.source is not None or self._decide(key, follower, now_ms)
            if key not in self._files.followers:
                return None
            if follower.log in self._files.families and decided and follower.pending:
                self._pass_gaps(follower)
            chunk = follower.read(bytes_max, now_ms) if decided else None
            if chunk is not None:
                follower.quiet_ms = now_ms
                self._files.followers.move_to_end(key)
                return chunk
            if follower.gone_ms is None or follower.searching or follower.same_at == follower.size:
                return None
            if now_ms - max(follower.gone_ms, follower.quiet_ms) < self._patience_ms(key, follower):
                return None
            chunk = follower.last_line()
        except OSError as error:
            self._files.give_up(key, follower, error)
            return None
        if chunk is None:
            self._finish(key, follower, now_ms)
        return chunk

    def _waits(self, follower: Follower) -> bool:
        """Whether files that rotation has made of the same log before this one are to be read first."""
        return any(
            elder.pending and elder.modified_ns < follower.modified_ns
            for elder in self._files.families.get(follower.log, ())
            if elder is not follower and (elder.gone_ms is not None or elder.path != elder.log)
        )

    def _pass_gaps(self, follower: Follower) -> None:
        """What is gone lies behind files that were read before this one."""
        for elder in self._files.families[follower.log]:
            if elder is not follower and elder.modified_ns <= follower.modified_ns:
                self._miss_behind(elder)

    def _miss_behind(self, follower: Follower) -> None:
        position = follower.position()
        if follower.severed and position is not None:
            self._miss(position, None, follower.severed)
        follower.severed = ""

    def _patience_ms(self, key: FileId, follower: Follower) -> int:
        """So long a file that is gone may be silent."""
        replaced = self._files.at.get(follower.log, key) != key or follower.source is None
        return self._rotate_wait_ms if replaced else max(self._rotate_wait_ms, _UNREPLACED_MS)

    def _has(self, key: FileId, follower: Follower) -> bool:
        """Whether it is followed still: a look at another may have shown what it is."""
        return self._files.followers.get(key) is follower

    def _look(self, follower: Follower, now_ms: int) -> None:
        ended = follower.look()
        if ended is None:
            return
        self.counters.truncated += 1
        self._finished.append(ended.position.source)
        self.scan(now_ms)  # a copy was made before the cut, so it is there
        self._end(ended, now_ms)

    def _end(self, ended: Ended, now_ms: int) -> None:
        """A source is no more: a copy of it goes on, or there is a gap. Of one that was cut there always is,
        behind the copy, and of one behind which something was gone before."""
        kept = self._settle(ended, now_ms)
        position = ended.position
        lost = max(ended.size - max(position.offset, kept.size if kept is not None else 0), 0) or None
        behind = CUT if ended.cut else position.severed
        if kept is None:
            self._miss(position, lost, "it was cut" if ended.cut else _GONE)
        elif behind and kept not in self._files.followers.values():
            self._miss(position, lost, behind)
        elif behind:  # what is left of the copy comes first
            kept.severed = behind
            self.counters.lost_bytes += lost or 0

    def _miss(self, position: Position, lost: int | None, why: str) -> None:
        """What was behind this position is gone. What was written after it is read next."""
        log = self._files.rotated.log_of(position.path)
        self.counters.lost_bytes += lost or 0
        self._gaps.append((log, Missed(position.source, position.path, position.offset, lost, why)))
        for key in [key for key, follower in self._files.followers.items() if follower.log == log][::-1]:
            self._files.followers.move_to_end(key, last=False)

    def _settle(self, ended: Ended, now_ms: int) -> Follower | None:
        """A source is no more: the largest of its copies goes on from there, and is returned. Others that go
        on there too are copies of that one."""
        found: list[tuple[int, int, FileId, Follower]] = []
        path, log = ended.position.path, self._files.rotated.log_of(ended.position.path)
        for key, follower in list(self._files.followers.items()):
            rotated = follower.log == log and follower.path != path
            if not ((rotated or named_after(follower.path, path)) and self._has(key, follower)):
                continue
            try:
                self._look(follower, now_ms)  # what was copied over an older file is new as well
                offset = goes_on_at(follower, ended) if follower.source is None else None
            except OSError:
                continue  # its own turn says so
            if follower.source is None:
                follower.same_at = -1
            if offset is not None:
                found.append((follower.size, offset, key, follower))
        if not found:
            return None
        size, offset, key, copy = max(found, key=lambda one: one[0])
        copy.go_on_at(offset)
        copy.identify()
        if copy.severed == CUT:
            copy.severed = ""  # it is known what it is
        if offset == size and copy.log == log and copy.path != path and key not in self._files.at.values():
            self._files.let_go(key, copy)  # nothing will be written to it
        return copy

    def _decide(self, key: FileId, follower: Follower, now_ms: int) -> bool:
        """What a new file is; False as long as that is open, or it is nothing that is followed."""
        head = follower.peek(MAGIC_BYTES, 0)
        if is_compressed(head):
            self.counters.problems[follower.path] = COMPRESSED
            self._files.forget(key, follower)
            return False
        if not head or self._files.resume or (may_be_compressed(head) and follower.gone_ms is None):
            return False
        for other, original in tuple(self._files.followers.items()):
            is_log = original is not follower and original.path == follower.log  # newer: decided later
            related = named_after(follower.path, original.path) or follower.log == original.log
            if not (related and (is_log or original.source is not None) and self._has(other, original)):
                continue
            if original.source is None:
                follower.same_at = -1  # that it was cut is not seen of a file of which nothing was read
            same = is_beginning(follower, original)
            self._look(original, now_ms)  # it may have been cut meanwhile
            if follower.source is not None:
                return True
            if same:
                return False
        included = key in self._files.at.values()
        if follower.log != follower.path and not (included and isinstance(follower.content, Plain)):
            offset = self._files.rotated.unread_from(follower.content, follower.log)
            if offset is None:
                self._files.let_go(key, follower)
                return False
            if offset:
                follower.go_on_at(offset)
        return follower.identify()

    def _finish(self, key: FileId, follower: Follower, now_ms: int) -> None:
        ended = follower.ended()
        if follower.deleted:
            self.counters.vanished += 1
        self._miss_behind(follower)
        self._files.let_go(key, follower)
        if ended is not None:
            self._finished.append(ended.position.source)
            self._settle(ended, now_ms)

    def scan(self, now_ms: int) -> None:
        """Look which files there are now; ``read`` does it by itself every ``scan_every_ms``."""
        found, rotated = self._files.scan(now_ms), self._files.rotated
        for one in found.ended:
            position = one.position
            if position.source:
                self._finished.append(position.source)
                self._end(one, now_ms)
            elif not rotated.has_older(rotated.log_of(position.path), position.modified_ns):
                self._miss(position, None, _GONE)  # nothing was read of it
        for position, size, why in found.missed:
            self._miss(position, size, why)

    # -- what is known ---------------------------------------------------------------------------------------

    def positions(self) -> tuple[Position, ...]:
        """Where each open source stands, those of the last cut that were not looked for yet, and the last
        files of each log that were read to their end."""
        here = (
            follower.position() or follower.unnamed()
            for key, follower in self._files.followers.items()
            if follower.source is not None or follower.same_at != follower.size
        )
        return (*here, *self._files.resume.values(), *self._files.rotated.positions())

    @property
    def has_new_sources(self) -> bool:
        """Whether there are files with lines that have had no turn yet."""
        waiting = (one for one in self._files.followers.values() if one.pending and not one.had_turn)
        return any(not self._waits(one) for one in waiting)

    def gaps(self) -> tuple[Missed, ...]:
        """What was found to be gone since this was last asked; to be asked after each ``read``."""
        found = tuple(replace(gap, ended=log == self._reading) for log, gap in self._gaps)
        self._gaps = []
        return found

    def finished(self) -> tuple[str, ...]:
        """Ids of the sources that ended since this was last asked."""
        done, self._finished = tuple(self._finished), []
        return done

    def kept(self, positions: tuple[Position, ...]) -> None:
        """See ``Input``. Log files are not ours to remove."""

    @property
    def rests(self) -> bool:
        """Files keep what nobody reads."""
        return True

    def rest(self) -> None:
        """See ``Input``. The sources are finished; those that are read afterwards are others."""
        here = (follower.source for follower in self._files.followers.values())
        sources = [
            *(one.id for one in here if one is not None),
            *(p.source for p in self._files.resume.values()),
        ]
        self._finished += filter(None, sources)
        self.close()
        self._files = self._new_files(from_end=True, kept_bytes=KEPT_BYTES)
        self._gaps = []

    @property
    def passed_us(self) -> int:
        """See ``Input``."""
        return self._files.rotated.passed_ns // 1_000

    def close(self) -> None:
        for follower in self._files.followers.values():
            follower.close()
        self._files.followers.clear()
