"""The part of ``elf bench tables`` about a key that changes: reads and writes while it does, and how long
that takes.

A load is as YCSB has it (``lab.bench.ycsb``): reads alone, or 40 % reads, 40 % updates and 20 % inserts. A
read is a SELECT by both columns of the key. A write is a line in an agent's log; it has succeeded if in the
end the table has the row of that user, of the window of the line or a later one. Each load runs with a key
that stays, then while one ALTER TABLE … SET KEY follows the other. Between two of them a key stays too, for
as long as it takes to see that the last one is done.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC
from typing import Final

import numpy as np

from elf.client import Client
from elf.errors import ElfError
from lab.bench.control_fleet import STORES, STREAM, ControlFleet, line_of
from lab.bench.ycsb import drawn

JOB: Final = (
    f'CREATE JOB kept AS SELECT "user", store, COUNT(*) AS hits FROM {STREAM} GROUP BY "user", store '
    "WINDOWING 2 SECONDS"
)
KEYS: Final = ('"user", store', 'store, "user"')
TABLE: Final = f"CREATE TABLE kept FROM JOB kept KEY ({KEYS[0]})"
MIXES: Final = {"read-only": (1.0, 0.0), "40/40/20": (0.4, 0.4)}
"""Shares of reads and updates; the rest are inserts."""
SIZES: Final = (0.25, 0.5, 1.0)
"""Of the users, for time against data."""
TIMES: Final = 3
"""Changes of each size."""
RECENT: Final = 1_000
POLL_SECS: Final = 0.05
SETTLE_SECS: Final = 30.0
WAIT_SECS: Final = 120.0


@dataclass
class Load:
    """What became of one load: milliseconds of reads with a key that stays, and while it changes; reads that
    failed meanwhile; writes meanwhile, as (user, event time in µs), and those of them that are not in the
    table; changes. ``failed``: what those who failed were told."""

    still: list[float] = field(default_factory=list)
    changing: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    writes: list[tuple[int, int]] = field(default_factory=list)
    lost: int = 0
    changes: int = 0


@dataclass(frozen=True)
class Changed:
    """``loads`` by kind of users and mix; ``took``: rows of the table, and seconds of a change without
    load."""

    loads: dict[str, Load]
    took: list[tuple[int, float]]


class Rekeying:
    """Of one fleet. ``readers``: clients that ask at a time; ``secs``: of each half of a load."""

    def __init__(
        self,
        fleet: ControlFleet,
        readers: Sequence[Client],
        users: int,
        secs: float,
        alpha: float,
        *,
        ring: bool = False,
    ) -> None:
        self._fleet = fleet
        self._readers = readers
        self._asker = readers[0]
        self._users = users
        self._secs = secs
        self._alpha = alpha
        self._table = f"{TABLE} RING" if ring else TABLE
        self._key = 0
        self._inserted = users
        self._recent: deque[int] = deque(range(min(users, RECENT)), RECENT)
        self._changing = False

    async def measured(self, kinds: Sequence[str]) -> Changed:
        """All of it; whoever calls sees to it that windows end."""
        await self._asker.sql(JOB)
        await self._asker.sql(self._table)
        took = [await self._size(round(share * self._users)) for share in SIZES]
        loads = {f"{kind}, {mix}": await self._load(kind, mix) for kind in kinds for mix in MIXES}
        await self._settled(list(loads.values()))
        return Changed(loads, took)

    async def _settled(self, loads: Sequence[Load]) -> None:
        """Count the writes that are not in the table when it has had the time."""
        deadline = time.monotonic() + SETTLE_SECS
        while True:
            table = (await self._asker.sql('SELECT "user", window_end FROM kept')).table
            columns = [] if table is None else [column.to_pylist() for column in table.columns]
            ends = {
                user: end.replace(tzinfo=UTC).timestamp() * 1e6 for user, end in zip(*columns, strict=True)
            }
            for load in loads:
                load.lost = sum(ends.get(user, 0) <= us for user, us in load.writes)
            if time.monotonic() > deadline or not any(load.lost for load in loads):
                return
            await asyncio.sleep(1)

    # -- a change --------------------------------------------------------------------------------------------

    async def _size(self, users: int) -> tuple[int, float]:
        """Seconds of a change with so many users."""
        await self._filled(1)  # it has begun: it has all windows to come
        at, us = self._fleet.places[0].clicks, time.time_ns() // 1_000
        at.write(b"".join(line_of(us, user) for user in range(users)))
        rows = await self._filled(users)
        return rows, statistics.median([await self._change() for _ in range(TIMES)])

    async def _filled(self, users: int) -> int:
        """The table has so many rows, or more; how many."""
        deadline = time.monotonic() + WAIT_SECS
        while (rows := int(str((await self._shown())["rows"]))) < users:
            if time.monotonic() > deadline:
                raise ElfError(f"the table has {rows} rows of {users} after {WAIT_SECS:g} s")
            await asyncio.sleep(4 * POLL_SECS)
        return rows

    async def _shown(self) -> dict[str, object]:
        table = (await self._asker.sql("SHOW TABLES")).table
        rows = [] if table is None else table.to_pylist()
        return next(row for row in rows if row["table"] == "kept")

    async def _change(self) -> float:
        """Give the table its other key; seconds until all rows have it."""
        self._key = 1 - self._key
        began = time.monotonic()
        asked = asyncio.create_task(self._asker.sql(f"ALTER TABLE kept SET KEY ({KEYS[self._key]})"))
        wanted = KEYS[self._key].replace('"', "")
        while (shown := await self._shown())["key"] != wanted or "until" in str(shown["state"]):
            await asyncio.sleep(POLL_SECS)
        took = time.monotonic() - began
        await asked
        return took

    @asynccontextmanager
    async def _changes(self, load: Load) -> AsyncIterator[None]:
        """One change after the other, as long as the block goes on; the last one is seen through."""
        over = False

        async def change() -> None:
            while not over:
                self._changing = True
                await self._change()
                self._changing = False
                load.changes += 1

        changing = asyncio.create_task(change())
        try:
            yield
        finally:
            over = True
            await changing

    # -- a load ----------------------------------------------------------------------------------------------

    async def _load(self, kind: str, mix: str) -> Load:
        load = Load()
        await self._all(kind, mix, load)
        async with self._changes(load):
            await self._all(kind, mix, load)
        return load

    async def _all(self, kind: str, mix: str, load: Load) -> None:
        await asyncio.gather(
            *(self._one(reader, kind, mix, load, number) for number, reader in enumerate(self._readers))
        )

    async def _one(self, reader: Client, kind: str, mix: str, load: Load, number: int) -> None:
        """One of those who ask and write, one thing after the other."""
        rng = np.random.default_rng(number)
        reads, updates = MIXES[mix]
        until = time.monotonic() + self._secs
        while time.monotonic() < until:
            share = rng.random()
            if share < reads:
                await self._read(reader, self._drawn(kind, rng), load)
            else:
                self._write(self._drawn(kind, rng) if share < reads + updates else None, rng, load)
                await asyncio.sleep(0.002)  # as long as a read, or so: else writes alone are drawn

    async def _read(self, reader: Client, user: int, load: Load) -> None:
        during, began = self._changing, time.perf_counter()
        sql = f"SELECT * FROM kept WHERE \"user\" = {user} AND store = '{STORES[user % len(STORES)]}'"
        try:
            await reader.sql(sql)
        except ElfError as error:
            load.failed.append(str(error))
            return
        (load.changing if during else load.still).append(1e3 * (time.perf_counter() - began))

    def _write(self, user: int | None, rng: np.random.Generator, load: Load) -> None:
        """An update, or an insert where no user is named."""
        if user is None:
            user, self._inserted = self._inserted, self._inserted + 1
        us = time.time_ns() // 1_000
        place = self._fleet.places[int(rng.integers(len(self._fleet.places)))]
        place.clicks.write(line_of(us, user))
        self._recent.append(user)
        if self._changing:
            load.writes.append((user, us))

    def _drawn(self, kind: str, rng: np.random.Generator) -> int:
        return drawn(kind, rng, self._alpha, self._users, self._recent)
