"""Ways of rotating a log: what logrotate does (or the same in Python), and what is done by hand.

``Rotation`` says what becomes of the log; ``rotator_of`` gives who does it. Files of a log ``access.log`` get
the names that logrotate gives them, and keep the log's time of modification.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elf.errors import ElfError
from lab.bench.rotation.writers import REOPENED_SECS, Writer, found

INODE_TRIES: Final = 10_000
"""More than a block group of ext4 has."""
LOG: Final = "access.log"
CURRENT: Final = "current.log"
_CONFIG: Final = """\
"{log}" {{
    {directives}
    rotate {kept}
    postrotate
        {post}
    endscript
}}
"""


@dataclass(frozen=True)
class Rotation:
    """``include``: what the agent follows; ``name``: the log's. By hand: ``linked``, the log is a symlink to
    the newest file; ``reused``: the new log gets the inode of an earlier one, if the file system gives it."""

    include: str = LOG
    name: str = LOG
    copies: bool = False
    compresses: bool = False
    delays: bool = False
    dated: bool = False
    linked: bool = False
    reused: bool = False

    @property
    def directives(self) -> list[str]:
        """For logrotate."""
        return [
            "copytruncate" if self.copies else "create",
            *["compress"] * self.compresses,
            *["delaycompress"] * self.delays,
            *["dateext", "dateformat -%Y%m%d-%s"] * self.dated,
        ]


ROTATIONS: Final = {
    "compress": Rotation(compresses=True),
    "delaycompress": Rotation(compresses=True, delays=True),
    "dateext": Rotation(compresses=True, dated=True),
    "copytruncate": Rotation(copies=True, include=f"{LOG}*"),
    "copytruncate-alone": Rotation(copies=True),
    "copytruncate-compress": Rotation(copies=True, compresses=True, include=f"{LOG}*"),
    "symlink": Rotation(linked=True, name=CURRENT, include=CURRENT),
    "symlink-compress": Rotation(linked=True, name=CURRENT, include=CURRENT, compresses=True),
    "same-inode": Rotation(compresses=True, reused=True),
}


def prepare(rotation: Rotation, folder: Path) -> Path:
    """The log, before anybody has opened it."""
    log = folder / rotation.name
    if rotation.linked:
        log.symlink_to(_numbered(folder, 1))
    log.touch()
    return log


def rotator_of(rotation: Rotation, log: Path, writer: Writer, kept: int, folder: Path) -> Callable[[], None]:
    """Rotates the log once a call; ``folder`` takes what logrotate needs. Raises ``ElfError``."""
    if rotation.linked:
        return lambda: _relink(rotation, log, writer, kept)
    if writer.pid is None or rotation.reused:
        given_back: set[int] = set()
        return lambda: _rotate(rotation, log, writer, kept, given_back)
    return _by_logrotate(rotation, log, writer.pid, kept, folder)


def _by_logrotate(rotation: Rotation, log: Path, pid: int, kept: int, folder: Path) -> Callable[[], None]:
    config, state = folder / "logrotate.conf", folder / "logrotate.state"
    post = "true" if rotation.copies else f"kill -USR1 {pid}; sleep {REOPENED_SECS}"
    directives = "\n    ".join(rotation.directives)
    config.write_text(_CONFIG.format(log=log, directives=directives, kept=kept, post=post))
    config.chmod(0o600)
    command = [found("logrotate", "logrotate"), "--force", "--state", str(state), str(config)]

    def rotate() -> None:
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode or done.stderr:
            raise ElfError(f"logrotate: {done.stderr.decode(errors='replace').strip()}")

    return rotate


def _rotate(rotation: Rotation, log: Path, writer: Writer, kept: int, given_back: set[int]) -> None:
    """As logrotate does it. ``given_back``: inodes of logs that are no more."""
    if rotation.delays:
        _compress_all(log, but=())
    if rotation.dated:
        first = log.with_name(f"{log.name}-{time.strftime('%Y%m%d')}-{int(time.time())}")
    else:
        _shift(log)
        first = log.with_name(f"{log.name}.1")
    if rotation.copies:
        shutil.copy2(log, first)
        os.truncate(log, 0)
    else:
        inode = log.stat().st_ino
        log.rename(first)
        _create(log, given_back if rotation.reused else set())
        given_back.add(inode)
        writer.reopen()
    if rotation.compresses:
        _compress_all(log, but=(first,) if rotation.delays else ())
    for old in _rotated(log)[kept:]:
        old.unlink()


def _rotated(log: Path) -> list[Path]:
    """Old files of the log, the newest first."""
    numbered = [(_number(path), path) for path in log.parent.glob(f"{log.name}.[0-9]*")]
    return [path for _, path in sorted(numbered)] or sorted(log.parent.glob(f"{log.name}-*"), reverse=True)


def _number(path: Path) -> int:
    return int(path.name.removesuffix(".gz").rpartition(".")[2])


def _shift(log: Path) -> None:
    for old in reversed(_rotated(log)):
        ending = ".gz" if old.suffix == ".gz" else ""
        old.rename(log.with_name(f"{log.name}.{_number(old) + 1}{ending}"))


def _compress_all(log: Path, but: tuple[Path, ...]) -> None:
    for old in _rotated(log):
        if old.suffix != ".gz" and old not in but:
            compress(old)


def compress(path: Path) -> None:
    """As gzip does it: the new file has the times of the old one, which is removed."""
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    shutil.copystat(path, packed)
    path.unlink()


def _create(log: Path, wanted: Set[int]) -> None:
    """A new log, if possible with one of these inodes: a file system gives the lowest that is free."""
    if not wanted:
        log.touch()
        return
    made: list[Path] = []
    while len(made) < INODE_TRIES:
        made.append(log.with_name(f".new-{len(made)}"))
        made[-1].touch()
        if made[-1].stat().st_ino in wanted:
            break
    made.pop().rename(log)
    for path in made:
        path.unlink()


def _relink(rotation: Rotation, log: Path, writer: Writer, kept: int) -> None:
    """A new file; the link is swapped to it; whoever writes reopens; older files are compressed, or go."""
    folder, now = log.parent, log.readlink()
    new = _numbered(folder, int(now.stem.rpartition("-")[2]) + 1)
    new.touch()
    link = folder / ".current"
    link.symlink_to(new)
    link.replace(log)
    writer.reopen()
    if rotation.compresses:
        compress(folder / now.name)
    old = sorted((path for path in folder.glob("access-*") if path.name != new.name), reverse=True)
    for path in old[kept:]:
        path.unlink()


def _numbered(folder: Path, number: int) -> Path:
    return folder / f"access-{number:04}.log"
