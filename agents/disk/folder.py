"""The data folder of an agent: one process at a time has it, and nobody else looks into it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TextIO

from agents.config import Config
from agents.disk.modes import Access, too_open
from elf.errors import UserError

LOCK_FILE: Final = "lock"
"""Held while an agent runs there, and has the number of its process."""
PID_CHARS_MAX: Final = 20


@contextlib.contextmanager
def held(folder: Path) -> Iterator[Path]:
    """The data folder, held by this process alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK_FILE).open("a+")
    except OSError as error:
        raise UserError(f"data_dir {folder} cannot be used: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(
                f"data_dir {folder} is in use by another agent{_holder(lock)}; give each agent its own"
            ) from None
        with contextlib.suppress(OSError):  # of a full disk
            lock.truncate(0)
            os.write(lock.fileno(), str(os.getpid()).encode())
        yield folder


def _holder(lock: TextIO) -> str:
    """Who holds a lock, as it has written there."""
    lock.seek(0)
    text = lock.read(PID_CHARS_MAX)
    return f" (process {text})" if text.isdecimal() else ""


def in_use(folder: Path) -> str:
    """Which agent runs with a data folder, for people; empty: none does. Nothing is made there."""
    try:
        with (folder / LOCK_FILE).open("r") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return f"an agent{_holder(lock)}"
    except OSError:  # there is none, or it may not be read, which is told of the folder
        pass
    return ""


def pid_of(folder: Path) -> int | None:
    """The process of the agent that runs with a data folder; None: none does. Raises ``OSError`` where that
    cannot be seen."""
    with contextlib.suppress(FileNotFoundError), (folder / LOCK_FILE).open("r") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            text = lock.read(PID_CHARS_MAX)
            return int(text) if text.isdecimal() else None
    return None


def open_folders(config: Config) -> list[str]:
    """Folders that are there, and that others may look into though the configuration does not say so."""
    folders = [("data_dir", config.data_dir, 0o700)]
    archive = config.archive
    if archive.path.startswith("/") and not Path(archive.path).is_relative_to(config.data_dir):
        folders.append(("archive.path", archive.path, Access(archive.readers).folder_mode))
    return [f"{key}: {why}" for key, path, mode in folders if (why := too_open(Path(path), mode))]
