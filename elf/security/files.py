"""Files that only their owner may read."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

from elf.errors import UserError

FILE_BYTES_MAX: Final = 16 << 20


def write(file: Path, data: bytes, *, only_new: bool = False) -> None:
    """A file that nobody else may read, whole or not at all. ``only_new``: one that is there stays as it is.
    Raises ``UserError``."""
    partial = file.with_name(f".{file.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        make_folder(file.parent)
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        if only_new:
            with contextlib.suppress(FileExistsError):
                os.link(partial, file)
            partial.unlink()
        else:
            partial.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise UserError(f"{file} cannot be written: {_words(error)}") from None


def make_folder(folder: Path) -> None:
    """A folder, and those that it is in, as far as they are not there: nobody else may look into them. Raises
    ``OSError``."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)


def read_secret(file: Path) -> bytes:
    """A file that only its owner may read. Raises ``UserError``."""
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as source:  # a pipe may stay empty
            mode = os.fstat(source.fileno())
            if not stat.S_ISREG(mode.st_mode):
                raise UserError(f"{file} is no file")
            if stat.S_IMODE(mode.st_mode) & 0o077:
                raise UserError(f"{file} can be read by others: chmod 600 {file}")
            if mode.st_uid not in (0, os.geteuid()) and os.geteuid() != 0:
                raise UserError(f"{file} belongs to another user")
            return source.read(FILE_BYTES_MAX)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {_words(error)}") from None


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
