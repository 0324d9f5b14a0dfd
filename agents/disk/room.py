"""Room on the disk of an agent's data folder, and what happens without any.

An agent that cannot write can promise nothing: it could neither seal a pane nor vote. So it stands aside, as
if it had crashed, but for its process: the jobs that live on it move, others name it as missing, the web
server's files wait where they are. When there is room again it goes on from its last checkpoint, and the rows
that it had not sent make revisions. Nothing is deleted to make room, and nothing is shed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from pathlib import Path
from typing import Final

from agents.logs import get_logger

ROOM_BYTES: Final = 4 << 20
"""An agent starts only where it can have so much: SQLite's log alone may grow to that."""
LOOK_S: Final = 1.0
PROBE: Final = "room"

_REFUSALS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_PRIMARY: Final = 0xFF
"""The part of SQLite's codes that says what kind of error it is."""


def is_refusal(error: BaseException | None) -> bool:
    """Whether this came of a disk, a quota or a limit on files that takes no more."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _REFUSALS:
            return True
        code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
        if isinstance(error, sqlite3.Error) and code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return True
        error = error.__cause__
    return False


def lacking(folder: Path) -> str:
    """Why there is no room in a folder; empty if there is."""
    path = folder / PROBE
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, ROOM_BYTES)
        finally:
            os.close(descriptor)
            path.unlink()
    except OSError as error:
        return os.strerror(error.errno or errno.EIO)
    return ""


async def wait_for_room(folder: Path, why: str, agent: str, asked: asyncio.Future[str]) -> None:
    """Until there is room, which it lacked (``why``), or somebody has asked to stop."""
    log = get_logger().bind(agent=agent, data_dir=str(folder))
    log.error("agent stands aside: it cannot write; make room for it", reason=why, needs=ROOM_BYTES)
    while why and not asked.done():
        await asyncio.wait([asked], timeout=LOOK_S)
        why = lacking(folder)
        if not why:
            log.info("there is room again")
