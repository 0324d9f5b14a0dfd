"""A disk that takes no more is told from all else that can go wrong, and room is looked for."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from agents.disk.room import ROOM_BYTES, is_refusal, lacking, wait_for_room
from agents.disk.store import Store, StoreError
from agents.inputs.values import Reject, Source
from agents.tasks.archive import Archive, ArchiveError
from agents.tasks.sinks import RejectFile
from elf.errors import UserError


@contextmanager
def files_of(bytes_max: int) -> Iterator[None]:
    """No file of this process grows beyond that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_state_file_that_cannot_grow(tmp_path: Path) -> None:
    store = Store(tmp_path / "elf.sqlite")
    with files_of(16 << 10), pytest.raises(StoreError, match="cannot use the agent's state file") as refused:
        store.put("fact", bytes(1 << 20))
    assert is_refusal(refused.value)
    store.put("fact", b"small again")
    assert store.get("fact") == b"small again"
    store.close()


def test_a_full_database_is_a_refusal_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    con = sqlite3.connect(tmp_path / "full.sqlite", isolation_level=None)
    con.execute("PRAGMA max_page_count = 2")
    con.execute("CREATE TABLE t (x)")
    with pytest.raises(sqlite3.OperationalError) as full:
        con.execute("INSERT INTO t VALUES (zeroblob(100000))")
    assert is_refusal(full.value)
    con.close()
    (tmp_path / "damaged.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError) as damaged:
        Store(tmp_path / "damaged.sqlite")
    assert not is_refusal(damaged.value)


def test_other_errors_are_none() -> None:
    assert not is_refusal(None)
    assert not is_refusal(OSError(errno.EACCES, "no"))
    assert not is_refusal(ValueError("no"))
    for number in (errno.ENOSPC, errno.EDQUOT):
        assert is_refusal(OSError(number, os.strerror(number)))


def test_an_archive_says_why_it_takes_no_more_however_often_it_is_asked(tmp_path: Path) -> None:
    archive = Archive(
        tmp_path / "rolls",
        str(tmp_path / "archive"),
        stream="clicks",
        agent="a",
        roll_secs=60,
        roll_bytes=1 << 30,
        facts={},
    )
    archive.restore(0)
    lines = pa.array([os.urandom(500).hex() for _ in range(100)], pa.string())  # they hardly compress
    record = (lines, pa.array(range(100), pa.int64()), Source("s", "/s"), np.arange(100, dtype=np.int64))
    archive.append(*record)
    with files_of(16 << 10), pytest.raises(ArchiveError) as first:
        archive.sync()
    with pytest.raises(ArchiveError, match=r"has failed: .*File too large") as then:
        archive.append(*record)
    assert is_refusal(first.value)
    assert is_refusal(then.value)
    archive.restore(0)
    archive.append(*record)
    assert archive.sync() == 100
    archive.close()


def rejects_one(rejects: RejectFile) -> None:
    rejects.add(Reject("source", "/log", 0, "no json line", b"x" * 5_000, 5_000))
    rejects.sync()


def test_a_reject_file_that_cannot_grow(tmp_path: Path) -> None:
    rejects = RejectFile(tmp_path / "rejects.jsonl")
    with files_of(1 << 10):
        with pytest.raises(UserError, match=r"cannot write to the reject file .*: File too large") as refused:
            rejects_one(rejects)
        rejects.close()
    assert is_refusal(refused.value)


async def test_it_waits_until_there_is_room_or_somebody_asks_to_stop(tmp_path: Path) -> None:
    asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    assert lacking(tmp_path) == ""
    await wait_for_room(tmp_path, "", "a", asked)
    with files_of(ROOM_BYTES - 1):
        why = lacking(tmp_path)
        assert why == "File too large"
        waiting = asyncio.ensure_future(wait_for_room(tmp_path, why, "a", asked))
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
        asked.set_result("stopped")
        await waiting
    assert list(tmp_path.iterdir()) == [], "what it tries is deleted"
