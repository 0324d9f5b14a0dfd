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

import contextlib
import glob
import os
import stat
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, Literal

from agents.inputs.contents import Content, Plain, opened
from agents.inputs.copies import Ended, goes_on_at, is_beginning, named_after
from agents.inputs.follower import Follower
from agents.inputs.ranges import MAGIC_BYTES, is_compressed, may_be_compressed
from agents.inputs.rotated import FileId, Rotated
from agents.inputs.values import Chunk, Counters, Position
from elf.job.gaps import Missed

_SCAN_EVERY_MS: Final = 1000
_UNREPLACED_MS: Final = 600_000
"""A file that is gone from its path, where there is no other yet, is finished when it is silent for so long:
who writes it has not let go of it."""
_REMEMBERED_INODES: Final = 10_000
_COMPRESSED: Final = "compressed: not followed"
_CUT: Final = "it was cut, and nobody has what was written between the copy and the cut"
_SEVERED: Final = "it is gone, as may be files that were written after it"
_STALL_MS: Final = 3_000
"""Who has not looked for so long may have missed a whole file."""


@dataclass(frozen=True)
class _Unopened:
    """A file that could not be opened: ``size`` bytes of this log."""

    path: str
    log: str
    size: int


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
    ) -> None:
        self.counters = Counters()
        self._include = tuple(include)
        self._exclude = tuple(exclude)
        self._max_line_bytes = max_line_bytes
        self._rotate_wait_ms = int(rotate_wait_secs * 1000)
        self._scan_every_ms = scan_every_ms
        self._scanned_ms: int | None = None
        self._resume = {(p.device, p.inode): p for p in positions if not p.finished}
        self._first = not positions
        self._from_end = initial == "end" and not positions
        self._rotated = Rotated(positions)
        self._followers: OrderedDict[FileId, Follower] = OrderedDict()
        self._at: dict[str, FileId] = {p.path: key for key, p in self._resume.items()}
        """Where included paths led to at the last scan."""
        self._families: dict[str, tuple[Follower, ...]] = {}
        """Logs that several files are of."""
        self._generations: OrderedDict[FileId, int] = OrderedDict()
        self._unopened: dict[FileId, _Unopened] = {}
        self._ended: list[Ended] = []
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
        return sum(one.unread for one in tuple(self._followers.values()) if one.same_at != one.size)

    # -- reading -----------------------------------------------------------------------------------

    def read(self, bytes_max: int, now_ms: int) -> Chunk | None:
        """The next whole lines of the sources in turn; None when there is nothing new anywhere right now."""
        if self._scanned_ms is None or now_ms - self._scanned_ms >= self._scan_every_ms:
            self.scan(now_ms)
        self._reading, searching = "", True
        while searching:
            searching = False
            for key in list(self._followers):
                follower = self._followers.get(key)
                chunk = None if follower is None else self._turn(key, follower, bytes_max, now_ms)
                if follower is not None and chunk is not None:
                    self._reading = follower.log
                    return chunk
                searching |= key in self._followers and self._followers[key].searching
        return None

    def _turn(self, key: FileId, follower: Follower, bytes_max: int, now_ms: int) -> Chunk | None:
        try:
            self._look(follower, now_ms)
            if follower.log in self._families and self._waits(follower):
                return None
            decided = follower.source is not None or self._decide(key, follower, now_ms)
            if key not in self._followers:
                return None
            if follower.log in self._families and decided and follower.pending:
                self._pass_gaps(follower)
            chunk = follower.read(bytes_max) if decided else None
            if chunk is not None:
                follower.quiet_ms = now_ms
                self._followers.move_to_end(key)
                return chunk
            if follower.gone_ms is None or follower.searching or follower.same_at == follower.size:
                return None
            if now_ms - max(follower.gone_ms, follower.quiet_ms) < self._patience_ms(key, follower):
                return None
            chunk = follower.last_line()
        except OSError as error:
            self._give_up(key, follower, error)
            return None
        if chunk is None:
            self._finish(key, follower, now_ms)
        return chunk

    def _waits(self, follower: Follower) -> bool:
        """Whether files that rotation has made of the same log before this one are to be read first."""
        return any(
            elder.pending and elder.modified_ns < follower.modified_ns
            for elder in self._families[follower.log]
            if elder is not follower and (elder.gone_ms is not None or elder.path != elder.log)
        )

    def _pass_gaps(self, follower: Follower) -> None:
        """What is gone lies behind files that were read before this one."""
        for elder in self._families[follower.log]:
            if elder is not follower and elder.modified_ns <= follower.modified_ns:
                self._miss_behind(elder)

    def _miss_behind(self, follower: Follower) -> None:
        position = follower.position()
        if follower.severed and position is not None:
            self._miss(position, None, follower.severed)
        follower.severed = ""

    def _patience_ms(self, key: FileId, follower: Follower) -> int:
        """So long a file that is gone may be silent."""
        replaced = self._at.get(follower.log, key) != key or follower.source is None
        return self._rotate_wait_ms if replaced else max(self._rotate_wait_ms, _UNREPLACED_MS)

    def _look(self, follower: Follower, now_ms: int) -> None:
        ended = follower.look()
        if ended is None:
            return
        self.counters.truncated += 1
        self._finished.append(ended.position.source)
        self.scan(now_ms)  # a copy was made before the cut, so it is there
        kept = self._settle(ended, now_ms)
        if kept is None:
            lost = max(ended.size - ended.position.offset, 0)
            self._miss(ended.position, lost or None, "it was cut")
            return
        lost = max(ended.size - max(ended.position.offset, kept.size), 0)
        if lost or kept not in self._followers.values():
            self._miss(ended.position, lost or None, _CUT)
        else:
            kept.severed = _CUT

    def _miss(self, position: Position, lost: int | None, why: str) -> None:
        """What was behind this position is gone. What was written after it is read next."""
        log = self._rotated.log_of(position.path)
        self.counters.lost_bytes += lost or 0
        self._gaps.append((log, Missed(position.source, position.path, position.offset, lost, why)))
        for key in [key for key, follower in self._followers.items() if follower.log == log][::-1]:
            self._followers.move_to_end(key, last=False)

    def _settle(self, ended: Ended, now_ms: int) -> Follower | None:
        """A source is no more: its copies go on from there. The largest; None: there is none."""
        found: Follower | None = None
        path, log = ended.position.path, self._rotated.log_of(ended.position.path)
        for key, follower in list(self._followers.items()):
            rotated = follower.log == log and follower.path != path
            if not (rotated or named_after(follower.path, path)):
                continue
            try:
                self._look(follower, now_ms)  # what was copied over an older file is new as well
                if follower.source is not None:
                    continue
                offset = goes_on_at(follower, ended)
                follower.same_at = -1
                if offset is None:
                    continue
                follower.go_on_at(offset)
                follower.identify()
            except OSError:
                continue  # its own turn says so
            found = follower if found is None or found.size < follower.size else found
            if offset == follower.size and rotated and key not in self._at.values():
                self._let_go(key, follower)  # nothing will be written to it
        return found

    def _decide(self, key: FileId, follower: Follower, now_ms: int) -> bool:
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
            if original.source is None or not (
                named_after(follower.path, original.path) or follower.log == original.log
            ):
                continue
            same = is_beginning(follower, original)
            self._look(original, now_ms)  # it may have been cut meanwhile
            if follower.source is not None:
                return True
            if same:
                return False
        return follower.identify()

    def _finish(self, key: FileId, follower: Follower, now_ms: int) -> None:
        ended = follower.ended()
        if follower.deleted:
            self.counters.vanished += 1
        self._miss_behind(follower)
        self._let_go(key, follower)
        if ended is not None:
            self._finished.append(ended.position.source)
            self._settle(ended, now_ms)

    def _let_go(self, key: FileId, follower: Follower) -> None:
        position = follower.position()
        if position is not None:
            self._rotated.finished(position, follower.log)
        self._remember_generation(key, follower.generation)
        follower.close()
        del self._followers[key]

    def _remember_generation(self, key: FileId, generation: int) -> None:
        """The inode may be given to another file that begins alike: that one is the next generation."""
        self._generations[key] = generation
        self._generations.move_to_end(key)
        while len(self._generations) > _REMEMBERED_INODES:
            self._generations.popitem(last=False)

    def _give_up(self, key: FileId, follower: Follower, error: OSError) -> None:
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
        looked_ms, self._scanned_ms = self._scanned_ms, now_ms
        first = looked_ms is None
        self.counters.problems = {}
        before, self._at = self._at, {}
        seen: set[FileId] = set()
        paths = paths_of(self._include, self._exclude)
        self._rotated.logs = {*paths, *before}
        for path in paths:
            key = self._see(path)
            if key is not None and key not in seen:
                seen.add(key)
                self._at[path] = key
                self._follow(key, path, from_end=first and self._from_end)
        self._find_renamed()
        self._find_rotated(before, now_ms)
        for key in list(self._resume):
            self._drop(key)
        self._find_severed(before, now_ms - (looked_ms if looked_ms is not None else now_ms))
        for key, follower in self._followers.items():
            if key not in seen and follower.gone_ms is None:
                follower.gone_ms = now_ms
        self._group()
        ended, self._ended = self._ended, []
        for one in ended:
            if not one.position.source:
                found = self._rotated.has_older(one.position.path, one.position.modified_ns)
            else:
                found = self._settle(one, now_ms) is not None
            if not found:
                self._miss(one.position, None, "it is gone, and no file in its folder goes on from there")
        self._find_missing(seen)

    def _find_rotated(self, before: dict[str, FileId], now_ms: int) -> None:
        """Files that rotation has made of the logs while nobody looked."""
        logs = {path: key != before.get(path, key) for path, key in self._at.items()}
        logs |= dict.fromkeys(self._rotated.logs - logs.keys(), False)
        if self._first:
            self._first = False
            self._rotated.begin(self._followers.keys(), now_ms)
        for path, log, status in self._rotated.unread(logs, self._followers.keys(), now_ms):
            self._follow_rotated(path, log, status, now_ms)
        self._rotated.look(max((one.modified_ns for one in self._followers.values()), default=0))

    def _follow_rotated(self, path: str, log: str, status: os.stat_result, now_ms: int) -> None:
        """A file beside a log, which was not read, or not wholly, if it is what its name says."""
        key = status.st_dev, status.st_ino
        content = self._content(key, path, log)
        if content is None:
            return
        offset = self._rotated.unread_from(content, log) if content.size() or content.damage else None
        changed_ms = now_ms - status.st_mtime_ns // 1_000_000
        if offset is None:
            self._rotated.passed_over(status)
        elif not (content.size() and content.damage and changed_ms < self._rotate_wait_ms):
            follower = self._follower(key, path, content)
            follower.log = log
            follower.severed = f"it is damaged ({content.damage})" if content.damage else ""
            if offset:
                follower.go_on_at(offset)
                follower.identify()
            self._followers[key] = follower
            self.counters.problems.pop(path, None)
            return
        content.close()

    def _find_severed(self, before: dict[str, FileId], unlooked_ms: int) -> None:
        """Files that are deleted, as others that came after them may be, of which nothing is known."""
        if unlooked_ms <= _STALL_MS:
            return
        for log, key in before.items():
            follower = self._followers.get(key)
            if follower is None or self._at.get(log) in (None, key) or not follower.deleted:
                continue
            if not self._rotated.has_older(log, follower.modified_ns):
                follower.severed = _SEVERED

    def _group(self) -> None:
        """Which files are of one log."""
        families: dict[str, list[Follower]] = {}
        for follower in self._followers.values():
            families.setdefault(follower.log, []).append(follower)
        self._families = {log: tuple(files) for log, files in families.items() if len(files) > 1}

    def _find_missing(self, seen: set[FileId]) -> None:
        """Files that could never be opened, and are there no more."""
        for key, file in list(self._unopened.items()):
            if key in self._followers:
                del self._unopened[key]
            elif key not in seen and _path_of(key, Path(file.path).parent) is None:
                del self._unopened[key]
                position = Position("", file.path, 0, *key, 0, 0, 0)
                self._miss(position, file.size, "it could not be read while it was there")

    def _see(self, path: str) -> FileId | None:
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

    def _follow(self, key: FileId, path: str, *, from_end: bool) -> None:
        follower = self._followers.get(key)
        if follower is not None:
            follower.path, follower.log = path, self._rotated.log_of(path)
            follower.gone_ms = None
            return
        content = self._content(key, path, self._rotated.log_of(path))
        position = self._resume.get(key)
        if content is None:
            return
        if not isinstance(content, Plain) and position is None:
            if not self._rotated.is_passed_over(content.status()):
                self.counters.problems[path] = _COMPRESSED
            content.close()
            return
        follower = self._follower(key, path, content)
        try:
            if not self._resumed(key, follower, position) and from_end:
                follower.skip_to_end()
                follower.identify()
        except OSError as error:
            follower.close()
            self.counters.problems[path] = _reason(error)
            return
        self._drop(key)
        self._followers[key] = follower

    def _resumed(self, key: FileId, follower: Follower, position: Position | None) -> bool:
        """Whether a file is the one of a position, and goes on from there. Raises ``OSError``."""
        if position is None or not follower.resume(position):
            return False
        del self._resume[key]
        return True

    def _content(self, key: FileId, path: str, log: str) -> Content | None:
        """None, and a problem, for a file that cannot be read (or is not what it was a moment ago)."""
        try:
            content = opened(path)
        except OSError as error:
            self.counters.problems[path] = _reason(error)
            with contextlib.suppress(OSError):
                self._unopened[key] = _Unopened(path, log, Path(path).stat().st_size)
            return None
        status = content.status()
        if (status.st_dev, status.st_ino) == key:
            return content
        content.close()
        return None

    def _follower(self, key: FileId, path: str, content: Content) -> Follower:
        generation = self._generations.get(key, -1) + 1
        follower = Follower(path, content, generation=generation, max_line_bytes=self._max_line_bytes)
        follower.log = self._rotated.log_of(path)
        return follower

    def _find_renamed(self) -> None:
        """Sources to resume that no path leads to: renamed out of the globs while we were away."""
        for key, position in list(self._resume.items()):
            log = self._rotated.log_of(position.path)
            path = _path_of(key, Path(log).parent) or _path_of(key, Path(log).resolve().parent)
            content = None if path is None else self._content(key, path, log)
            if path is None or content is None:
                continue
            follower = self._follower(key, path, content)
            with contextlib.suppress(OSError):
                if self._resumed(key, follower, position):
                    follower.log, follower.gone_ms = log, self._scanned_ms
                    self._followers[key] = follower
                    continue
            follower.close()  # the inode was given to another file

    def _drop(self, key: FileId) -> None:
        """A position that no file answers to any more: its source has ended, with or without its last
        bytes."""
        position = self._resume.pop(key, None)
        if position is not None:
            self.counters.vanished += 1
            if position.source:
                self._finished.append(position.source)
            self._ended.append(Ended(position, b"", position.offset))

    # -- what is known -----------------------------------------------------------------------------

    def positions(self) -> tuple[Position, ...]:
        """Where each open source stands, those of the last cut that were not looked for yet, and the last
        files of each log that were read to their end."""
        here = (
            follower.position() or follower.unnamed()
            for key, follower in self._followers.items()
            if follower.source is not None or self._at.get(follower.log) == key
        )
        return (*here, *self._resume.values(), *self._rotated.positions())

    def gaps(self) -> tuple[Missed, ...]:
        """What was found to be gone since this was last asked; to be asked after each ``read``."""
        found = tuple(replace(gap, ended=log == self._reading) for log, gap in self._gaps)
        self._gaps = []
        return found

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


def _path_of(key: FileId, folder: Path) -> str | None:
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
