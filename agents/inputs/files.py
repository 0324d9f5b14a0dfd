"""Which files a stream has: what its patterns lead to, what rotation has made of it, and what was left of the
last life.

``Files`` opens, finds again and lets go; what is read of a file when, and what is a copy of what, is the
matter of ``agents.inputs.tail``. A file that cannot be read is named as a problem, and stops nothing.
"""

from __future__ import annotations

import contextlib
import glob
import os
import stat
from collections import OrderedDict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from agents.inputs.contents import Content, Plain, opened
from agents.inputs.copies import Ended
from agents.inputs.follower import Follower
from agents.inputs.records import Records
from agents.inputs.rotated import FileId, Rotated
from agents.inputs.values import Counters, Position

_REMEMBERED_INODES: Final = 10_000
_INCOMPLETE_MS: Final = 5_000
"""A compressed file that ends before its end is damaged when nobody has written to it for so long."""
STALL_MS: Final = 3_000
"""Who has not looked for so long may have missed a whole file."""
COMPRESSED: Final = "compressed: not followed"
CUT: Final = "it was cut, and nobody has what was written between the copy and the cut"
_GONE: Final = "it is gone, as may be files that were written after it"
_NEVER_READ: Final = "it could not be read while it was there"


@dataclass(frozen=True)
class _Unopened:
    """A file that could not be opened: ``size`` bytes of this log."""

    path: str
    log: str
    size: int


@dataclass(frozen=True)
class Scan:
    """What a look at the folders found: sources that no file goes on from, and files (position, size, why)
    that are gone unread."""

    ended: tuple[Ended, ...]
    missed: tuple[tuple[Position, int, str], ...]


class Files:
    """The files that are followed, by device and inode, in the order in which they have their turns.

    ``at``: where included paths led to at the last scan; ``families``: logs that several files are of;
    ``rotated``: what was read of each log. For ``initial`` and ``positions`` see ``Tail``; ``kept_bytes``:
    what is read of each file that is there at first, where they are not read from their beginning."""

    def __init__(
        self,
        include: Sequence[str],
        exclude: Sequence[str],
        counters: Counters,
        *,
        from_end: bool,
        max_line_bytes: int,
        positions: Sequence[Position] = (),
        kept_bytes: int = 0,
        records: Records | None = None,
    ) -> None:
        self.followers: OrderedDict[FileId, Follower] = OrderedDict()
        self.resume = {(p.device, p.inode): p for p in positions if not p.finished}
        self.rotated = Rotated(positions)
        self.at: dict[str, FileId] = {p.path: key for key, p in self.resume.items()}
        self.families: dict[str, tuple[Follower, ...]] = {}
        self.scanned_ms: int | None = None
        self._include = tuple(include)
        self._exclude = tuple(exclude)
        self._counters = counters
        self._first = not positions
        self._from_end = from_end and not positions
        self._kept_bytes = kept_bytes
        self._max_line_bytes = max_line_bytes
        self._records = records
        self._generations: OrderedDict[FileId, int] = OrderedDict()
        self._unopened: dict[FileId, _Unopened] = {}
        self._ended: list[Ended] = []
        self._new: set[Follower] = set()
        """Those that were not followed before this scan."""
        self._replaced: set[str] = set()
        """Paths at which there is another file than before, though it has the same inode."""

    def scan(self, now_ms: int) -> Scan:
        """Look which files there are now."""
        looked_ms, self.scanned_ms = self.scanned_ms, now_ms
        first = looked_ms is None
        self._counters.problems = {}
        before, self.at = self.at, {}
        seen: set[FileId] = set()
        paths = paths_of(self._include, self._exclude)
        followed = (follower.log for follower in self.followers.values())
        self.rotated.logs = {*paths, *before, *followed, *(p.log or p.path for p in self.resume.values())}
        for path in paths:
            key = self._see(path)
            if key is not None and key not in seen:
                seen.add(key)
                self.at[path] = key
                self._follow(key, path, from_end=first and self._from_end)
        self._find_renamed()
        self._find_rotated(before, now_ms)
        for key in list(self.resume):
            self._drop(key)
        new, self._new = self._new, set()
        self._find_copies(new, before)
        self._find_severed(new, now_ms - (looked_ms if looked_ms is not None else now_ms))
        for key, follower in self.followers.items():
            if key not in seen and follower.gone_ms is None:
                follower.gone_ms = now_ms
        self._group()
        ended, self._ended = tuple(self._ended), []
        return Scan(ended, tuple(self._find_missing(seen)))

    def _find_rotated(self, before: dict[str, FileId], now_ms: int) -> None:
        """Files that rotation has made of the logs while nobody looked."""
        logs = {path: key != before.get(path, key) for path, key in self.at.items()}
        logs |= dict.fromkeys(self.rotated.logs - logs.keys(), False)
        if self._first:
            self._first = False
            self.rotated.begin(self.followers.keys(), now_ms)
        for path, log, status in self.rotated.unread(logs, self.followers.keys(), now_ms):
            self._follow_rotated(path, log, status, now_ms)
        self.rotated.look(max((one.modified_ns for one in self.followers.values()), default=0))

    def _follow_rotated(self, path: str, log: str, status: os.stat_result, now_ms: int) -> None:
        """A file beside a log, which was not read, or not wholly, if it is what its name says."""
        key = status.st_dev, status.st_ino
        content = self._content(key, path, log)
        if content is None:
            return
        offset = self.rotated.unread_from(content, log) if content.size() or content.damage else None
        changed_ms = now_ms - status.st_mtime_ns // 1_000_000
        if offset is None:
            self.rotated.passed_over(status)
        elif not (content.damage and changed_ms < _INCOMPLETE_MS):
            follower = self._follower(key, path, content)
            follower.log = log
            follower.severed = f"it is damaged ({content.damage})" if content.damage else ""
            if offset:
                follower.go_on_at(offset)
                follower.identify()
            self.followers[key] = follower
            self._new.add(follower)
            self._counters.problems.pop(path, None)
            return
        content.close()

    def _find_copies(self, new: Set[Follower], before: dict[str, FileId]) -> None:
        """What is new beside a log that is the file that it was before is a copy, and the log was cut."""
        for follower in new:
            log = follower.log
            same = log in self.at and self.at[log] == before.get(log) and log not in self._replaced
            if same and log != follower.path and not (follower.severed or follower.offset):
                follower.severed = CUT
        self._replaced.clear()

    def _find_severed(self, new: Set[Follower], unlooked_ms: int) -> None:
        """Where the last file of a log that was known was deleted while nobody looked, and another has taken
        its place, those in between may be deleted too."""
        last: dict[str, Follower] = {}
        for follower in self.followers.values():
            known = last.get(follower.log)
            if follower not in new and (known is None or known.modified_ns < follower.modified_ns):
                last[follower.log] = follower
        for log, follower in last.items():
            if self.at.get(log) == (follower.device, follower.inode):
                continue
            before, follower.unlinked = follower.unlinked, follower.deleted
            if unlooked_ms > STALL_MS and follower.unlinked and not (before or follower.severed):
                written_ns = follower.content.status().st_mtime_ns
                follower.doubtful = not self.rotated.has_older(log, written_ns)
        for follower in self.followers.values():
            if follower.doubtful and any(
                one.log == follower.log and one.modified_ns > follower.modified_ns
                for one in self.followers.values()
            ):
                follower.severed, follower.doubtful = _GONE, False

    def _group(self) -> None:
        """Which files are of one log."""
        families: dict[str, list[Follower]] = {}
        for follower in self.followers.values():
            families.setdefault(follower.log, []).append(follower)
        self.families = {log: tuple(files) for log, files in families.items() if len(files) > 1}

    def _find_missing(self, seen: set[FileId]) -> Iterator[tuple[Position, int, str]]:
        """Files that could never be opened, and are there no more."""
        for key, file in list(self._unopened.items()):
            if key in self.followers:
                del self._unopened[key]
            elif key not in seen and _path_of(key, Path(file.path).parent) is None:
                del self._unopened[key]
                yield Position("", file.path, 0, *key, 0, 0, 0), file.size, _NEVER_READ

    def _see(self, path: str) -> FileId | None:
        """The identity of a regular file; anything else is named as a problem, folders are passed over."""
        try:
            status = Path(path).stat()
        except OSError as error:
            self._counters.problems[path] = _reason(error)
            return None
        if stat.S_ISREG(status.st_mode):
            return status.st_dev, status.st_ino
        if not stat.S_ISDIR(status.st_mode) or path in self._include:
            self._counters.problems[path] = "not a regular file"
        return None

    def _follow(self, key: FileId, path: str, *, from_end: bool) -> None:
        follower = self.followers.get(key)
        if follower is not None:
            follower.path, follower.log = path, self.rotated.log_of(path)
            follower.gone_ms = None
            return
        content = self._content(key, path, self.rotated.log_of(path))
        position = self.resume.get(key)
        if content is None:
            return
        if not isinstance(content, Plain) and position is None:
            if not self.rotated.is_passed_over(content.status()):
                self._counters.problems[path] = COMPRESSED
            content.close()
            return
        follower = self._follower(key, path, content)
        try:
            resumed = self._resumed(key, follower, position)
            if not resumed and from_end:
                follower.skip_to_end(self._kept_bytes)
                follower.identify()
        except OSError as error:
            follower.close()
            self._counters.problems[path] = _reason(error)
            return
        if position is not None and not resumed:
            cut = follower.is_file_of(position)
            follower.generation = position.generation + 1 if cut else follower.generation
            self._drop(key, cut=cut)
            if not cut:
                self._replaced.add(path)
        self.followers[key] = follower
        if not resumed:
            self._new.add(follower)

    def _resumed(self, key: FileId, follower: Follower, position: Position | None) -> bool:
        """Whether a file is the one of a position, and goes on from there. Raises ``OSError``."""
        if position is None or not follower.resume(position):
            return False
        del self.resume[key]
        return True

    def _content(self, key: FileId, path: str, log: str) -> Content | None:
        """None, and a problem, for a file that cannot be read (or is not what it was a moment ago)."""
        try:
            content = opened(path)
        except OSError as error:
            self._counters.problems[path] = _reason(error)
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
        most, records = self._max_line_bytes, self._records
        follower = Follower(path, content, generation=generation, max_line_bytes=most, records=records)
        follower.log = self.rotated.log_of(path)
        return follower

    def _find_renamed(self) -> None:
        """Sources to resume that no path leads to: renamed out of the globs while we were away."""
        for key, position in list(self.resume.items()):
            log = self.rotated.log_of(position.path)
            path = _path_of(key, Path(log).parent) or _path_of(key, Path(log).resolve().parent)
            content = None if path is None else self._content(key, path, log)
            if path is None or content is None:
                continue
            follower = self._follower(key, path, content)
            with contextlib.suppress(OSError):
                if self._resumed(key, follower, position):
                    follower.log, follower.gone_ms = log, self.scanned_ms
                    self.followers[key] = follower
                    continue
            follower.close()  # the inode was given to another file

    def _drop(self, key: FileId, *, cut: bool = False) -> None:
        """A position that no file answers to any more: its source has ended, with or without its last
        bytes."""
        position = self.resume.pop(key, None)
        if position is not None:
            self._counters.vanished += 1
            self._ended.append(Ended(position, b"", position.offset, cut))

    def let_go(self, key: FileId, follower: Follower) -> None:
        position = follower.position()
        if position is not None:
            self.rotated.finished(position, follower.log)
        self._remember_generation(key, follower.generation)
        self.forget(key, follower)

    def forget(self, key: FileId, follower: Follower) -> None:
        follower.close()
        del self.followers[key]
        if family := self.families.get(follower.log):
            self.families[follower.log] = tuple(one for one in family if one is not follower)

    def _remember_generation(self, key: FileId, generation: int) -> None:
        """The inode may be given to another file that begins alike: that one is the next generation."""
        self._generations[key] = generation
        self._generations.move_to_end(key)
        while len(self._generations) > _REMEMBERED_INODES:
            self._generations.popitem(last=False)

    def give_up(self, key: FileId, follower: Follower, error: OSError) -> None:
        """A read failed: the next scan opens the file again and goes on from the same position."""
        self._counters.failed += 1
        self._counters.problems[follower.path] = _reason(error)
        position = follower.position()
        if position is not None:
            self.resume[key] = position
        self.forget(key, follower)


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
