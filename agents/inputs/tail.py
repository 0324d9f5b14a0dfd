"""Following the files of a stream: new ones, renamed ones, truncated ones, vanished ones.

Rules (PROTOCOL sections 3 and 9):

- a file is known by device, inode and its beginning, never by its path: after a rename the same source goes
  on, and the new file at the old path is a new source from its beginning;
- a source that no path leads to any more is read to its end and for ``rotate_wait_secs`` more (who writes
  it may not have noticed the rename yet); then it is finished, its last line complete or not;
- a file that shrank or begins differently was truncated: generation + 1, from 0; what is known to be lost
  is counted;
- a new file is nothing yet until its first bytes say what it is: compressed, a copy of a file that is
  followed (``agents.inputs.copies``), or a source of its own;
- the last line of a file that is followed waits until it is complete.

It never writes, never waits for anything but the disk, and never stops because one file cannot be read.
"""

from __future__ import annotations

import glob
import os
import stat
from collections import OrderedDict
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, Literal

from agents.inputs.copies import Ended, goes_on_at, is_beginning, named_after
from agents.inputs.follower import Follower
from agents.inputs.ranges import MAGIC_BYTES, is_compressed, may_be_compressed
from agents.inputs.values import Chunk, Counters, Position

_SCAN_EVERY_MS: Final = 1000
_REMEMBERED_INODES: Final = 10_000
_COMPRESSED: Final = "compressed: not followed"
_FileId = tuple[int, int]


class Tail:
    """One per stream, used by one thread. ``include`` and ``exclude`` are paths or globs (``**`` too).

    ``initial`` says where to start in files that are there when a tail without ``positions`` looks for the
    first time; files that turn up later, or while the agent was down, are read from their beginning.
    ``positions`` are those of the last cut: a file with the same identity goes on from there, also if it
    was renamed meanwhile within its folder.
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
    ) -> None:
        self.counters = Counters()
        self._include = tuple(include)
        self._exclude = tuple(exclude)
        self._max_line_bytes = max_line_bytes
        self._rotate_wait_ms = int(rotate_wait_secs * 1000)
        self._scan_every_ms = scan_every_ms
        self._scanned_ms: int | None = None
        self._resume = {(position.device, position.inode): position for position in positions}
        self._from_end = initial == "end" and not positions
        self._followers: OrderedDict[_FileId, Follower] = OrderedDict()
        self._generations: OrderedDict[_FileId, int] = OrderedDict()
        self._ended: list[Ended] = []
        self._finished: list[str] = []

    @property
    def exhausted(self) -> bool:
        """A followed file may always grow."""
        return False

    @property
    def unread(self) -> int:
        """Bytes in the files by the last look at each, of a line that is being written too."""
        return sum(one.unread for one in tuple(self._followers.values()) if one.same_at != one.size)

    # -- reading -----------------------------------------------------------------------------------

    def read(self, bytes_max: int, now_ms: int) -> Chunk | None:
        """The next whole lines of the sources in turn; None when there is nothing new anywhere right now."""
        if self._scanned_ms is None or now_ms - self._scanned_ms >= self._scan_every_ms:
            self.scan(now_ms)
        searching = True
        while searching:
            searching = False
            for key in list(self._followers):
                follower = self._followers[key]
                chunk = self._turn(key, follower, bytes_max, now_ms)
                if chunk is not None:
                    return chunk
                searching |= key in self._followers and follower.searching
        return None

    def _turn(self, key: _FileId, follower: Follower, bytes_max: int, now_ms: int) -> Chunk | None:
        try:
            self._look(follower, now_ms)
            decided = follower.source is not None or self._decide(key, follower, now_ms)
            if key not in self._followers:
                return None
            chunk = follower.read(bytes_max) if decided else None
            if chunk is not None:
                follower.quiet_ms = now_ms
                self._followers.move_to_end(key)
                return chunk
            if follower.gone_ms is None or follower.searching:
                return None
            if now_ms - max(follower.gone_ms, follower.quiet_ms) < self._rotate_wait_ms:
                return None
            chunk = follower.last_line()
        except OSError as error:
            self._give_up(key, follower, error)
            return None
        if chunk is None:
            self._finish(key, follower, now_ms)
        return chunk

    def _look(self, follower: Follower, now_ms: int) -> None:
        ended = follower.look()
        if ended is None:
            return
        self.counters.truncated += 1
        self._finished.append(ended.position.source)
        self.scan(now_ms)  # a copy was made before the cut, so it is there
        kept = self._settle(ended, now_ms)
        self.counters.lost_bytes += max(ended.size - max(ended.position.offset, kept), 0)

    def _settle(self, ended: Ended, now_ms: int) -> int:
        """A source is no more: its copies go on from there. The size of the largest."""
        kept = 0
        for follower in tuple(self._followers.values()):
            if not named_after(follower.path, ended.position.path):
                continue
            try:
                self._look(follower, now_ms)  # what was copied over an older file is new as well
                if follower.source is not None:
                    continue
                offset = goes_on_at(follower, ended)
                follower.same_at = -1
                if offset is not None:
                    follower.go_on_at(offset)
                    follower.identify()
                    kept = max(kept, follower.size)
            except OSError:
                continue  # its own turn says so
        return kept

    def _decide(self, key: _FileId, follower: Follower, now_ms: int) -> bool:
        """What a new file is; False as long as that is open, or it is nothing that is followed."""
        head = follower.peek(MAGIC_BYTES, 0)
        if is_compressed(head):
            self.counters.problems[follower.path] = _COMPRESSED
            follower.close()
            del self._followers[key]
            return False
        if not head or self._resume or (may_be_compressed(head) and follower.gone_ms is None):
            return False
        for original in tuple(self._followers.values()):
            if original.source is None or not named_after(follower.path, original.path):
                continue
            same = is_beginning(follower, original)
            self._look(original, now_ms)  # it may have been cut meanwhile
            if follower.source is not None:
                return True
            if same:
                return False
        return follower.identify()

    def _finish(self, key: _FileId, follower: Follower, now_ms: int) -> None:
        ended = follower.ended()
        if follower.deleted:
            self.counters.vanished += 1
        self._remember_generation(key, follower.generation)
        follower.close()
        del self._followers[key]
        if ended is not None:
            self._finished.append(ended.position.source)
            self._settle(ended, now_ms)

    def _remember_generation(self, key: _FileId, generation: int) -> None:
        """The inode may be given to another file that begins alike: that one is the next generation."""
        self._generations[key] = generation
        self._generations.move_to_end(key)
        while len(self._generations) > _REMEMBERED_INODES:
            self._generations.popitem(last=False)

    def _give_up(self, key: _FileId, follower: Follower, error: OSError) -> None:
        """A read failed: the next scan opens the file again and goes on from the same position."""
        self.counters.failed += 1
        self.counters.problems[follower.path] = _reason(error)
        position = follower.position()
        if position is not None:
            self._resume[key] = position
        follower.close()
        del self._followers[key]

    # -- looking for files -------------------------------------------------------------------------

    def scan(self, now_ms: int) -> None:
        """Look which files there are now; ``read`` does it by itself every ``scan_every_ms``."""
        first = self._scanned_ms is None
        self._scanned_ms = now_ms
        self.counters.problems = {}
        seen: set[_FileId] = set()
        for path in paths_of(self._include, self._exclude):
            key = self._see(path)
            if key is not None and key not in seen:
                seen.add(key)
                self._follow(key, path, from_end=first and self._from_end)
        self._find_renamed()
        for key, follower in self._followers.items():
            if key not in seen and follower.gone_ms is None:
                follower.gone_ms = now_ms
        ended, self._ended = self._ended, []
        for one in ended:
            self._settle(one, now_ms)

    def _see(self, path: str) -> _FileId | None:
        """The identity of a regular file; anything else is named as a problem, folders are passed over."""
        try:
            status = Path(path).stat()
        except OSError as error:
            self.counters.problems[path] = _reason(error)
            return None
        if stat.S_ISREG(status.st_mode):
            return status.st_dev, status.st_ino
        if not stat.S_ISDIR(status.st_mode) or path in self._include:
            self.counters.problems[path] = "not a regular file"
        return None

    def _follow(self, key: _FileId, path: str, *, from_end: bool) -> None:
        follower = self._followers.get(key)
        if follower is not None:
            follower.path = path
            follower.gone_ms = None
            return
        follower = self._open(key, path)
        if follower is None:
            return
        try:
            position = self._resume.get(key)
            if position is not None and follower.resume(position):
                del self._resume[key]
            elif from_end:
                follower.skip_to_end()
                follower.identify()
        except OSError as error:
            follower.close()
            self.counters.problems[path] = _reason(error)
            return
        self._drop(key)
        self._followers[key] = follower

    def _open(self, key: _FileId, path: str) -> Follower | None:
        """None, and a problem, for a file that cannot be followed (or is not what it was a moment ago)."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self.counters.problems[path] = _reason(error)
            return None
        generation = self._generations.get(key, -1) + 1
        follower = Follower(path, descriptor, generation=generation, max_line_bytes=self._max_line_bytes)
        try:
            compressed = is_compressed(os.pread(descriptor, MAGIC_BYTES, 0))
        except OSError as error:
            self.counters.problems[path] = _reason(error)
        else:
            if not compressed and (follower.device, follower.inode) == key:
                return follower
            if compressed:
                self.counters.problems[path] = _COMPRESSED
        follower.close()
        return None

    def _find_renamed(self) -> None:
        """Sources to resume that no path leads to: renamed out of the globs while we were away, or
        vanished."""
        for key, position in list(self._resume.items()):
            path = _path_of(key, Path(position.path).parent)
            if path is not None:
                self._follow(key, path, from_end=False)
            if key in self._followers:
                self._followers[key].gone_ms = self._scanned_ms
            self._drop(key)

    def _drop(self, key: _FileId) -> None:
        """A position that no file answers to any more: its source has ended, with or without its last
        bytes."""
        position = self._resume.pop(key, None)
        if position is not None:
            self.counters.vanished += 1
            self._finished.append(position.source)
            self._ended.append(Ended(position, b"", position.offset))

    # -- what is known -----------------------------------------------------------------------------

    def positions(self) -> tuple[Position, ...]:
        """Where each open source stands, and those of the last cut that were not looked for yet."""
        here = (follower.position() for follower in self._followers.values())
        return (*(position for position in here if position is not None), *self._resume.values())

    def finished(self) -> tuple[str, ...]:
        """Ids of the sources that ended since this was last asked."""
        done, self._finished = tuple(self._finished), []
        return done

    def close(self) -> None:
        for follower in self._followers.values():
            follower.close()
        self._followers.clear()


def paths_of(include: Sequence[str], exclude: Sequence[str]) -> list[str]:
    """What these patterns lead to now."""
    found: dict[str, None] = {}
    for pattern in include:
        # Path.glob wants a folder to start from; a pattern here may be absolute or not.
        paths = sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) else [pattern]  # noqa: PTH207
        found.update((path, None) for path in paths if not _excluded(path, exclude))
    return list(found)


def _excluded(path: str, exclude: Sequence[str]) -> bool:
    return any(fnmatch(path, pattern) or fnmatch(Path(path).name, pattern) for pattern in exclude)


def _path_of(key: _FileId, folder: Path) -> str | None:
    """The file of that identity in a folder, under any name."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.inode() == key[1] and entry.is_file() and entry.stat().st_dev == key[0]:
                    return entry.path
    except OSError:
        return None
    return None


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
