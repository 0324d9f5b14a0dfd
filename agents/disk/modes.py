"""Who may read what an agent writes: its own user, and nobody else, but for an archive whose ``readers`` are
more.

``close`` makes that so for all that a process makes from then on, whatever its user's habits are. What was
there before stays as it is, and is told (``too_open``).
"""

from __future__ import annotations

import grp
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_UMASK: Final = 0o077
READERS: Final = {"user": 0o600, "group": 0o640, "all": 0o644}
"""Who reads an archive, and the mode of its files."""


def close() -> None:
    """What this process makes from now on is for its user alone."""
    os.umask(_UMASK)


@dataclass(frozen=True)
class Access:
    """To an archive on a local file system. ``group``: of its files and folders; empty: the user's own."""

    readers: str = "user"
    group: str = ""

    @property
    def folder_mode(self) -> int:
        """Who may read may enter."""
        mode = READERS[self.readers]
        return mode | (mode & 0o444) >> 2

    def give(self, path: Path) -> None:
        """Let the readers in to what the agent has just made."""
        if self.group:
            shutil.chown(path, group=self.group)
        if self.readers != "user":
            path.chmod(self.folder_mode if path.is_dir() else READERS[self.readers])

    def make_folder(self, folder: Path) -> None:
        """With all that leads to it."""
        missing = [one for one in (folder, *folder.parents) if not one.exists()]
        for one in reversed(missing):
            one.mkdir(exist_ok=True)
            self.give(one)


def access_of(folder: Path) -> Access:
    """To what lies in a folder that is there: whoever may read it may read what is put there."""
    said = folder.stat()
    mode = stat.S_IMODE(said.st_mode)
    readers = "all" if mode & 0o004 else "group" if mode & 0o040 else "user"
    try:
        group = grp.getgrgid(said.st_gid).gr_name
    except KeyError:  # a group without a name: new files have that of the process
        group = ""
    return Access(readers, group if readers == "group" else "")


def too_open(path: Path, mode: int = 0o700) -> str:
    """Why others than are meant may look into a folder, with what closes it; empty: they may not, or it is
    not there."""
    try:
        said = path.stat().st_mode
    except OSError:
        return ""
    has = stat.S_IMODE(said)
    if not stat.S_ISDIR(said) or not has & ~mode & 0o077:
        return ""
    return f"other users may look into {path} (mode {has:04o}); close it: chmod -R {_closing(mode)} {path}"


def _closing(mode: int) -> str:
    return {0o700: "go=", 0o750: "g-w,o="}.get(mode, "go-w")
