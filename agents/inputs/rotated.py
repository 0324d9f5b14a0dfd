"""What rotation has made of followed files: which names it gives, and which of those files were not read yet.

While an agent is down, or stands still, a log may be rotated several times. What then lies beside it under
names of its own (``access.log.1``, ``access.log-20260101.gz``, ``access-20260101.log``) may be a file that
was followed, one that nobody has seen, or one that was read long ago. Rules:

- a file is unread when it was written to after the oldest one that is remembered, and is none of those that
  are: what was read to its end, and what was there before the first start. What it is says its content, since
  compression gives it another inode;
- one that was read to its end and has grown since is read from there on;
- of what is there at the first start nothing is read that no pattern matches;
- a folder is looked through when it has changed.

The files that a symbolic link has led to are its rotations when they are numbered, or dated, alike. They are
looked for only when the link leads to another file than before: two logs may have names of that kind.
"""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from functools import lru_cache
from pathlib import Path
from typing import Final

from agents.inputs.contents import HEAD_BYTES, Content, opened
from agents.inputs.values import Position

REMEMBERED: Final = 8
"""Files of one log that are remembered when they were read to their end."""
_JUDGED_MAX: Final = 10_000
_RECENTLY_MS: Final = 2_000
"""A folder's time of change is no finer than that on some file systems."""
_MARK: Final = r"(?:\d[\d\-_.T:]*|old)"
_BEHIND: Final = re.compile(rf"[.\-_]{_MARK}$")
_DATED: Final = re.compile(r"(.+?)(?:\.\d+|[.\-_]\d{4}[\d\-_T]{2,})(\.[A-Za-z]\w*)$")
_PACKED: Final = re.compile(r"\.(?:gz|bz2|xz|zst)$")
_NUMBER: Final = re.compile(r"\d+")

FileId = tuple[int, int]
"""Device and inode."""
Judged = tuple[int, int, int, int]
"""Device, inode, time of change and size: what was said of a file holds as long as they do."""


@lru_cache(maxsize=4096)
def originals(name: str) -> tuple[str, ...]:
    """The names of logs that rotation may have made this name of; that of which the others are rotations
    themselves first."""
    plain = _PACKED.sub("", name)
    found = [plain] if plain != name else []
    found += [plain[:place] for place in range(len(plain) - 1, 0, -1) if _BEHIND.match(plain, place)]
    if dated := _DATED.fullmatch(plain):
        found.append(dated[1] + dated[2])
    return tuple(reversed(found))


def numbered_before(name: str, target: str) -> bool:
    """``access-3.log`` before ``access-5.log``: equal but for numbers, the last of which that differs is
    lower; compressed or not."""
    name = _PACKED.sub("", name)
    if _NUMBER.sub("#", name) != _NUMBER.sub("#", target):
        return False
    both = zip(_NUMBER.findall(name), _NUMBER.findall(target), strict=True)
    return next((int(a) < int(b) for a, b in both if int(a) != int(b)), False)


class Rotated:
    """Of one stream's logs, each known by the path that is included. ``positions``: of the last cut."""

    def __init__(self, positions: Iterable[Position] = ()) -> None:
        positions = tuple(positions)
        self.logs: Set[str] = frozenset()
        """Paths that are included."""
        self._finished: dict[str, dict[tuple[int, int], Position]] = {}
        self._since: dict[str, int] = {}
        self._latest = max((position.modified_ns for position in positions), default=0)
        self._judged: OrderedDict[Judged, None] = OrderedDict()
        self._folders: dict[Path, tuple[int, int, list[str]]] = {}
        self._oldest: dict[str, int] = {}
        self._image: tuple[Position, ...] | None = None
        self.passed_ns = 0
        """When the newest file that is not read, as it was there at the first start, was written to; 0: there
        was none."""
        self._begun = positions
        """Positions whose logs are not known yet."""
        for position in positions:
            if position.finished:
                self._remember(position)

    # -- what was read ---------------------------------------------------------------------------------------

    def positions(self) -> tuple[Position, ...]:
        """The files that are remembered, for the cut."""
        if self._image is None:
            self._image = tuple(p for kept in self._finished.values() for p in kept.values())
        return self._image

    def begin(self, known: Collection[FileId], now_ms: int) -> None:
        """The first start of all: what there is by now is not to be read as a rotation of the logs, but for
        the files that are followed (``known``)."""
        self._latest = now_ms * 1_000_000
        newest: dict[str, tuple[str, str, os.stat_result]] = {}
        for found in self._beside(dict.fromkeys(self.logs, False), now_ms):
            _, log, status = found
            later = log not in newest or newest[log][2].st_mtime_ns < status.st_mtime_ns
            if later and (status.st_dev, status.st_ino) not in known:
                newest[log] = found
        for found in newest.values():
            self.passed_ns = max(self.passed_ns, found[2].st_mtime_ns)
            self._remember_unread(*found)
            self._since[found[1]] = found[2].st_mtime_ns + 1
        for log in set(self.logs) - newest.keys():
            self._remember(Position("", log, 0, 0, 0, 0, 0, 0, modified_ns=self._latest, finished=True))
            self._since[log] = 0

    def _remember_unread(self, path: str, log: str, status: os.stat_result) -> None:
        try:
            content = opened(path)
        except OSError:
            return
        head, size = content.read(HEAD_BYTES, 0), content.size()
        content.close()
        file = status.st_dev, status.st_ino, 0
        prints = len(head), zlib.crc32(head), 0, 0
        self._remember(Position("", log, size, *file, *prints, status.st_mtime_ns, finished=True))

    def finished(self, position: Position, log: str) -> None:
        """A file of this log was read to its end."""
        values = (position.source, log, position.offset, position.device, position.inode, position.generation)
        prints = (position.head_bytes, position.head_crc, position.recent_bytes, position.recent_crc)
        self._remember(Position(*values, *prints, position.modified_ns, position.version, finished=True))

    def _remember(self, position: Position) -> None:
        kept = self._finished.setdefault(position.path, {})
        kept[position.head_crc, position.offset] = position
        self._image = None
        while len(kept) > REMEMBERED:
            oldest = min(kept, key=lambda content: kept[content].modified_ns)
            del kept[oldest]
            self._since[position.path] = min(other.modified_ns for other in kept.values())

    def log_of(self, path: str) -> str:
        """The log that rotation has made this path of, as far as one is known; else the path itself. What a
        pattern matches may be a rotation itself: of ``access.log.1.gz`` the log is ``access.log``."""
        name, folder = Path(path).name, Path(path).parent
        found = (str(folder / original) for original in originals(name))
        return next((log for log in found if log in self.logs), path)

    # -- what was not ----------------------------------------------------------------------------------------

    def unread(
        self, logs: Mapping[str, bool], known: Collection[FileId], now_ms: int
    ) -> Iterator[tuple[str, str, os.stat_result]]:
        """(path, log, status) of files that may be rotations of these and were not read, or not wholly.
        ``logs``: whether each leads to another file than before; ``known``: device and inode of files that
        are followed."""
        for position in self._begun:
            log = self.log_of(position.path)
            self._since[log] = min(self._since.get(log, position.modified_ns), position.modified_ns)
        self._begun = ()
        for log in logs:
            self._since.setdefault(log, self._latest)
        self._oldest = {}
        for path, log, status in self._beside(logs, now_ms):
            self._oldest[log] = min(self._oldest.get(log, status.st_mtime_ns), status.st_mtime_ns)
            if (status.st_dev, status.st_ino) in known or _judged(status) in self._judged:
                continue
            if not status.st_size or status.st_mtime_ns < self._since[log]:
                continue
            yield path, log, status

    def has_older(self, log: str, modified_ns: int) -> bool:
        """Whether a file was beside this log, by the last look, that was not written to later: what is
        dropped first is still there."""
        return log in self._oldest and self._oldest[log] <= modified_ns

    def look(self, modified_ns: int) -> None:
        """The files that are followed were last written to then: what lies beside a log that is new from now
        on is unread if it was written to later."""
        self._latest = max(self._latest, modified_ns)

    def passed_over(self, status: os.stat_result) -> None:
        """Nothing of this file is to be read, as long as it does not change."""
        self._judged[_judged(status)] = None
        while len(self._judged) > _JUDGED_MAX:
            self._judged.popitem(last=False)

    def is_passed_over(self, status: os.stat_result) -> bool:
        """Whether ``passed_over`` was said of it."""
        return _judged(status) in self._judged

    def unread_from(self, content: Content, log: str) -> int | None:
        """From where a content is to be read: 0 if it is none that is remembered, None if it was read to its
        end."""
        head = content.read(HEAD_BYTES, 0)
        for position in self._finished.get(log, {}).values():
            begin = head[: position.head_bytes]
            if not begin or (len(begin), zlib.crc32(begin)) != (position.head_bytes, position.head_crc):
                continue
            if content.is_of_size(position.offset):
                return None
            if _goes_on(content, position):
                return position.offset if content.size() > position.offset else None
        return 0

    def _beside(self, logs: Mapping[str, bool], now_ms: int) -> Iterator[tuple[str, str, os.stat_result]]:
        """The files in the folders of these logs that rotation may have made of them."""
        folders: dict[Path, dict[str, str]] = {}
        for log in logs:
            folders.setdefault(Path(log).parent, {})[Path(log).name] = log
        for folder, names in folders.items():
            for name in self._names(folder, now_ms):
                found = (names[original] for original in originals(name) if original in names)
                if (of := next(found, None)) is not None and of != str(folder / name):
                    yield from _regular(folder / name, of)
        for link in (log for log, moved in logs.items() if moved and Path(log).is_symlink()):
            target = Path(link).resolve()
            for name in self._names(target.parent, now_ms):
                if numbered_before(name, target.name):
                    yield from _regular(target.parent / name, link)

    def _names(self, folder: Path, now_ms: int) -> list[str]:
        try:
            changed = folder.stat().st_mtime_ns
            known = self._folders.get(folder)
            if known is not None and known[0] == changed and known[1] - changed // 1_000_000 > _RECENTLY_MS:
                return known[2]
            names = os.listdir(folder)  # noqa: PTH208 (a thousand names, each second)
        except OSError:
            return []
        self._folders[folder] = changed, now_ms, names
        return names


def _goes_on(content: Content, position: Position) -> bool:
    """Whether what was read last stands where it stood."""
    begin = position.offset - position.recent_bytes
    recent = content.read(position.recent_bytes, begin)
    return len(recent) == position.recent_bytes and zlib.crc32(recent) == position.recent_crc


def _regular(path: Path, log: str) -> Iterator[tuple[str, str, os.stat_result]]:
    try:
        status = path.stat(follow_symlinks=False)
    except OSError:
        return
    if stat.S_ISREG(status.st_mode):
        yield str(path), log, status


def _judged(status: os.stat_result) -> Judged:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
