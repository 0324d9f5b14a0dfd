"""What web servers do to their log files on virtual time: rows are written, and the files are rotated while
an agent reads them, or while it is away.

The files are real and small, and agents read them with their real ``Tail``; only the times of their last
change are virtual, by a clock that never jumps. ``fates`` follows each row.

An inode that no process holds open when its last name goes is given to the next file of that log, as file
systems do; in a folder in memory the kernel would never do it, and has no versions of inodes.
"""

from __future__ import annotations

import gzip
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agents.inputs.files import STALL_MS
from lab.chaos.fates import Fates
from lab.chaos.task import Log

if TYPE_CHECKING:
    from lab.chaos.agent import SimAgent

LINE_BYTES: Final = 40
"""The least length of a row: several of them are shorter than the fingerprint of a file."""
LOOK_MS: Final = 100
"""The pause between two looks whether an agent is well."""
PACKING_MS: Final = 200
"""How long a compressed file exists beside its original, at most."""


@dataclass(frozen=True)
class Style:
    """How a log is rotated, in logrotate's words.

    ``copies``: copytruncate; else it is renamed, and the server reopens it. ``pause_ms``: until it does, or
    between the copy and the truncation. ``dated``: dateext. ``packed``: compress, "" or "now" or "later"
    (delaycompress). ``keep``: rotate. ``hidden``: no pattern of the agent's matches a rotated file.
    """

    copies: bool = False
    pause_ms: int = 0
    dated: bool = False
    packed: str = ""
    keep: int = 3
    hidden: bool = False

    def __str__(self) -> str:
        how = "copied and cut" if self.copies else "renamed"
        packed = {"": "", "now": ", packed", "later": ", packed later"}[self.packed]
        names = ", dated" * self.dated + ", not in include" * self.hidden
        return f"{how} ({self.pause_ms} ms){names}{packed}, {self.keep} kept"


@dataclass(eq=False)
class _File:
    """``rows``: numbers of those in it; ``nameless_ms``: since when no path leads to it."""

    path: Path
    born_ms: int
    rows: list[int] = field(default_factory=list)
    packed: bool = False
    nameless_ms: int | None = None

    @property
    def deleted(self) -> tuple[int, int] | None:
        """For a file that was deleted by hand: since when, and until when, a path led to it."""
        return None if self.nameless_ms is None else (self.born_ms, self.nameless_ms)


class FileLog(Log):
    """A stream of one agent: several logs of web servers on its machine, in ``folder``. Each row goes to one
    of them."""

    def __init__(self, agent: SimAgent, folder: Path, styles: tuple[Style, ...], seed: str) -> None:
        super().__init__()
        folder.mkdir(parents=True)
        self.agent = agent
        self.fates = Fates()
        self.rotations = 0
        self.rng = random.Random(seed)
        self._spare: dict[Path, list[Path]] = defaultdict(list)
        """Inodes of files of each log that have no name in the folder."""
        self._spares = folder.with_name(f"{folder.name} spare")
        self._spares.mkdir()
        self._life = agent.life
        self.sites = [_Site(self, folder / f"www{n}.log", style) for n, style in enumerate(styles)]
        self.include = [f"{site.path}{'' if site.style.hidden else '*'}" for site in self.sites]
        self._look()

    def add(self, ts: int, key: str) -> None:
        """The row's time is made unique, by microseconds."""
        ts += len(self.rows) % 1_000
        self.rows.append((ts, key))
        self.rng.choice(self.sites).write(f"{ts},{key},".ljust(LINE_BYTES, "-"))

    def _look(self) -> None:
        agent = self.agent
        self.fates.looked(agent.well and agent.life == self._life, self.now_ms)
        self._life = agent.life
        self.after(LOOK_MS, self._look)

    # -- the machine -----------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return self.agent.world.now

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.agent.world.at(self.now_ms + delay_ms, action)

    def create(self, path: Path, rotated: int) -> int:
        """A new file, open for appending, of a log that has so many rotated ones."""
        if self._spare[path]:
            self._spare[path].pop(0).rename(path)
            self.fates.reused(path.name, rotated)
        self.touch(path.parent)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
        self.touch(descriptor)
        return descriptor

    def unlink(self, file: _File, log: Path, *, written: bool = False) -> None:
        """Delete a file of this log. ``written``: a server has it open. Its inode is free for another file if
        no process has it open; where inodes have no versions nobody can tell that file from one of which
        nothing was read."""
        self.touch(file.path.parent)
        read = self.fates.was_read(file.rows)
        if not read:
            self.fates.destroyed(log.name, self.now_ms)
        if self.agent.up or written or not read:
            file.path.unlink()
        else:
            spare = self._spares / str(self.rng.getrandbits(60))
            file.path.rename(spare)
            os.truncate(spare, 0)
            self._spare[log].append(spare)

    def touch(self, file: int | Path) -> None:
        """The file was changed now."""
        os.utime(file, ns=(self.now_ms * 1_000_000,) * 2)

    def close(self) -> None:
        for site in self.sites:
            site.close()


class _Site:
    """One log, and its rotated files: newest first."""

    def __init__(self, log: FileLog, path: Path, style: Style) -> None:
        self.path = path
        self.style = style
        self._log = log
        self._rotated: list[_File] = []
        self._busy = False
        self._open()

    def _open(self) -> None:
        self._file = _File(self.path, self._log.now_ms)
        self._descriptor = self._log.create(self.path, len(self._rotated))

    def close(self) -> None:
        os.close(self._descriptor)

    def write(self, line: str) -> None:
        log, file = self._log, self._file
        os.write(self._descriptor, f"{line}\n".encode())
        log.touch(self._descriptor)
        file.rows.append(log.fates.written(self.path.name, line, log.now_ms))
        if file.nameless_ms is not None:
            log.fates.dropped(file.rows[-1:], log.now_ms, file.deleted)

    def rotate(self) -> None:
        """Rotate, unless that is going on. An empty log is not copied (notifempty): an empty copy says
        nothing."""
        if not self._busy and (self._file.rows or not self.style.copies):
            self._log.rotations += 1
            self._begin(self._rotation())

    def remove(self) -> None:
        """Somebody deletes the log; a while later its server opens a new one."""
        if not self._busy:
            self._begin(self._removal())

    def _begin(self, steps: Iterator[int]) -> None:
        """``steps`` yields the time until the next one (ms)."""
        self._busy = True

        def step() -> None:
            pause_ms = next(steps, None)
            if pause_ms is None:
                self._busy = False
            else:
                self._log.after(pause_ms, step)

        step()

    def _rotation(self) -> Iterator[int]:
        log, style = self._log, self.style
        if style.packed == "later" and self._rotated and not self._rotated[0].packed:
            yield from self._pack(self._rotated[0])
        for file in self._rotated[style.keep - 1 :]:
            log.unlink(file, self.path)
            self._destroyed(file)
        del self._rotated[style.keep - 1 :]
        path = self._shift()
        if style.copies:
            path.write_bytes(self.path.read_bytes())
            log.touch(path)
            log.touch(path.parent)
            log.fates.copied(self._file.rows)
            self._rotated.insert(0, _File(path, log.now_ms, [*self._file.rows]))
            yield style.pause_ms
            os.ftruncate(self._descriptor, 0)
            log.touch(self._descriptor)
            self._destroyed(self._file, cut=True)
            self._file.rows.clear()
        else:
            self._file.path = self.path.rename(path)
            log.touch(path.parent)
            self._rotated.insert(0, self._file)
            yield style.pause_ms
            self.close()
            self._open()
        if style.packed == "now":
            yield log.rng.randrange(PACKING_MS)
            yield from self._pack(self._rotated[0])

    def _destroyed(self, file: _File, *, cut: bool = False) -> None:
        fates, now_ms = self._log.fates, self._log.now_ms
        if cut:
            fates.cut(self.path.name, file.rows, now_ms)
        else:
            fleeting = now_ms - file.born_ms <= STALL_MS
            fates.dropped(file.rows, now_ms, file.deleted, fleeting=fleeting)
            fates.destroyed(self.path.name, now_ms)

    def _shift(self) -> Path:
        """The path of the next rotated file: older ones make room."""
        if self.style.dated:
            return self.path.with_name(f"{self.path.name}-{self._log.now_ms:010d}")
        for number, file in reversed([*enumerate(self._rotated, 2)]):
            file.path = file.path.rename(f"{self.path}.{number}{'.gz' * file.packed}")
        return self.path.with_name(f"{self.path.name}.1")

    def _pack(self, file: _File) -> Iterator[int]:
        """gzip: the packed file grows beside the other, which goes when it is whole."""
        log, path = self._log, file.path.with_name(f"{file.path.name}.gz")
        changed = file.path.stat().st_mtime_ns
        packed = gzip.compress(file.path.read_bytes(), mtime=0)
        path.write_bytes(packed[: len(packed) // 2])
        log.touch(path)
        yield log.rng.randrange(PACKING_MS)
        path.write_bytes(packed)
        os.utime(path, ns=(changed, changed))
        log.unlink(file, self.path)
        file.path, file.packed = path, True

    def _removal(self) -> Iterator[int]:
        log, file = self._log, self._file
        log.unlink(file, self.path, written=True)
        file.nameless_ms = log.now_ms
        self._destroyed(file)
        yield log.rng.randrange(50, 1_000)
        self.close()
        self._open()
