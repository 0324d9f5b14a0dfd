"""Where buffer trees spill: a folder with one file a piece."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path


class SpillFolder:
    """The store of one tree (``elf.cbt.SpillStore``). The folder is its own: what lies in it is removed.

    Nothing here outlives the process: trees are recovered from their dumps, never from what they spilled.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last = 0
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def write(self, data: bytes) -> int:
        """Keep these bytes; returns their ticket. Raises ``OSError``, and then leaves no file."""
        self._last += 1
        path = self._path(self._last)
        try:
            path.write_bytes(data)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return self._last

    def read(self, ticket: int) -> bytes:
        """The bytes of a ticket. Raises ``OSError``."""
        return self._path(ticket).read_bytes()

    def free(self, ticket: int) -> None:
        """Remove the file of a ticket."""
        with contextlib.suppress(OSError):
            self._path(ticket).unlink()

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, ticket: int) -> Path:
        return self._folder / f"{ticket}.run"
