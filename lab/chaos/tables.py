"""Readers of tables in a simulated fleet, and what they may be told.

The oracle is slow and obvious: after the results of a job up to a number, a table has what one gets by
putting the windows of these results into a dict, one after the other. Whoever asks one life of an agent hears
of no lower number than was told before that.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from agents.committing.spans import micros
from elf.aggregates import split_by_range
from elf.batch import decode
from elf.job import events as was
from elf.job.commits import WindowCommit
from elf.job.output import OutputSpec
from elf.job.ring import PARTS, has_ring, majority
from elf.job.tables import is_table, shard_uid, shards_of, table_of
from elf.wire.clients import Execute, Reply

if TYPE_CHECKING:
    from lab.chaos.agent import SimAgent
    from lab.chaos.ledger import Ledger
    from lab.chaos.world import World

READER: Final = "client:tables"
FIRST: Final = 1 << 20
"""The number of the first question: nobody else asks with such."""
PAUSE_MS: Final = 250

Had = tuple[str, dict[int, tuple[tuple[str, ...], int]]]
"""A table, and by part its replicas and a number."""
Rows = dict[str, tuple[int, int]]
"""By key, when the window of its row ends (µs), and its count."""


@dataclass(frozen=True)
class Answer:
    """What a table had for whoever asked an agent in one of its lives, up to a number. ``name``: by which it
    was asked, whichever table has that by then; ``job``: that it is of; ``shards``: the number of each of its
    shards or parts, if it has some; ``least``: the highest number that this life had told when it was asked;
    ``key``: the one that was asked for; empty: all."""

    name: str
    job: str
    agent: int
    life: int
    least: int
    table: str
    number: int
    rows: Rows
    shards: Mapping[int, int]
    key: str = ""


class TableReaders:
    """Of all tables of a fleet."""

    def __init__(self, world: World, ledger: Ledger, seed: int) -> None:
        self._world = world
        self._ledger = ledger
        self._rng = random.Random(f"table readers {seed}")
        self._drawn = random.Random(f"keys of tables {seed}")
        self._keys: dict[str, None] = {}
        """That were told of."""
        self._asked: dict[int, tuple[str, str, int, int, int]] = {}
        self._wanted: dict[int, str] = {}
        """The keys of questions for one."""
        self._before: dict[str, int] = {}
        """By table with a ring, the highest number that a replica of the one before it ever had."""
        self._had: dict[int, Had] = {}
        """Of questions for a majority, what majorities of replicas had."""
        self._told = defaultdict[tuple[str, int, int, str], int](int)
        """By table, agent and its life, the highest number that was told of all of it (of its last part), and
        of a key."""
        self._number = FIRST
        self.answers: list[Answer] = []
        self._passed_over: list[str] = []

    def ask(self) -> None:
        """Of each table its rows, or those of a key: at the leader, or anywhere."""
        log = self._world.longest()
        up = [agent for agent in self._world.agents if agent.up and agent.node.ready]
        for table in log.outputs() if log is not None else ():
            if is_table(table) and up:
                self._ask(self._rng.choice(up), table, " AS OF ANY" * (self._rng.random() < 0.6))

    def _ask(self, agent: SimAgent, table: OutputSpec, as_of: str) -> None:
        self._number += 1
        key = ""
        if self._keys and self._drawn.random() < 0.5:
            key = self._wanted[self._number] = self._drawn.choice(list(self._keys))
        least = max(self._told[table.name, agent.index, agent.life, one] for one in {"", key})
        self._asked[self._number] = table.name, table.job, agent.index, agent.life, least
        if has_ring(table):
            self._look(table)
        if has_ring(table) and not as_of:
            self._had[self._number] = self._majorities(agent, table)
        sql = f"SELECT * FROM {table.name}{as_of}"
        sql += f" WHERE k0 = '{key}'" * bool(key)
        asked = Execute(request=self._number, sql=sql, creator=table.creator)
        agent.guard(lambda: agent.handle(was.Arrived(READER, asked)))

    def heard(self, message: object) -> None:
        """Perhaps an answer. (Nobody has to get one.)"""
        if isinstance(message, Reply) and (asked := self._asked.pop(message.request, None)) and message.body:
            rows = decode(message.payload).to_pylist() if message.payload else []
            found = {row["k0"]: (micros(row["window_end"]), row["s0"]) for row in rows}
            said = json.loads(message.body)
            parts = said.get("shards") or said.get("parts") or {}
            shards = {int(place): number for place, number in parts.items()}
            self._keys |= dict.fromkeys(found)
            key = self._wanted.pop(message.request, "")
            one = Answer(*asked, said["table"], said["number"], found, shards, key)
            self.answers.append(one)
            if (had := self._had.pop(message.request, None)) is not None:
                self._compare(one, had)
            if not said.get("recovering") and one.number < (least := self._before.get(one.table, 0)):
                self._passed_over.append(
                    f"a{one.agent} tells of table {one.table} up to {one.number} as if that were all; "
                    f"the one before it had {least}"
                )
            who = (one.name, one.agent, one.life, key)
            self._told[who] = max(self._told[who], one.number)

    # -- majorities of replicas (protocol 7.19) --------------------------------------------------------------

    def _majorities(self, agent: SimAgent, table: OutputSpec) -> Had:
        """By part of the table that is read, whom this agent takes for its replicas, and the highest number
        that a majority of them has."""
        rings = agent.node.log.rings
        uid = table.option("of") if rings.is_changing(table.uid) else table.uid
        found: dict[int, tuple[tuple[str, ...], int]] = {}
        for place in range(PARTS):
            numbers = []
            for at in rings.replicas(place):
                there = self._world.by_address[at].store.tables.replicas()
                own = (one.number for one in there if one.kept.table == shard_uid(uid, place) and one.whole)
                numbers.append(next(own, 0))
            numbers.sort(reverse=True)
            found[place] = rings.replicas(place), numbers[majority(len(numbers)) - 1] if numbers else 0
        return uid, found

    def _look(self, table: OutputSpec) -> None:
        for agent in self._world.agents:
            for one in agent.store.tables.replicas() if agent.up else ():
                if table_of(one.kept.table) == table.option("of"):
                    self._before[table.uid] = max(self._before.get(table.uid, 0), one.number)

    def _compare(self, one: Answer, had: Had) -> None:
        """An answer has what a majority had when it was asked for, unless the ring, or the table, is another
        one by now."""
        uid, parts = had
        rings = self._world.agents[one.agent].node.log.rings
        for place, number in one.shards.items() if one.table == uid else ():
            replicas, least = parts[place]
            if replicas == rings.replicas(place) and number < least:
                self._passed_over.append(
                    f"a{one.agent} tells of part {place} of {uid} up to {number}; a majority had {least}"
                )

    # -- what they may be told -------------------------------------------------------------------------------

    def wrong(self) -> list[str]:
        """What is wrong with the answers."""
        return [*self._fallen(), *self._otherwise(), *self._passed_over]

    def _fallen(self) -> list[str]:
        """Answers from before what had been told when they were asked for."""
        return [
            f"a{one.agent} tells of a table up to {one.number}, asked after {one.least}"
            for one in self.answers
            if one.number < one.least
        ]

    def _otherwise(self) -> list[str]:
        """Answers that are not what the windows up to their number come to."""
        found: list[str] = []
        by_table: dict[str, list[Answer]] = defaultdict(list)
        for one in self.answers:
            by_table[one.table].append(one)
        for table, answers in by_table.items():
            windows = self._windows(answers[0].job)
            if windows is None or table not in self._ledger.tables:
                continue
            oracle = Oracle(windows, self._ledger.tables[table])
            found += [
                f"a{one.agent} tells {one.rows} of a table up to {one.number} {one.shards}, not {rows}"
                for one in answers
                if max((one.number, *one.shards.values())) <= oracle.last
                and (rows := oracle.answer(one)) != one.rows
            ]
        return found

    def counts(self, app: str, number: int) -> dict[str, int] | None:
        """What the table whose uid begins with ``app`` has after the results up to a number; None: that
        cannot be said, or each shard is at a number of its own."""
        log = self._world.longest()
        there = (one for one in log.outputs() if one.app.hex() == app) if log is not None else ()
        table = next((one for one in there if is_table(one) and shards_of(one) == 1), None)
        if table is None or table.uid not in self._ledger.tables:
            return None
        windows = self._windows(table.job)
        oracle = None if windows is None else Oracle(windows, self._ledger.tables[table.uid])
        if oracle is None or number > oracle.last:
            return None
        return {key: count for key, (_, count) in oracle.rows(number).items()}

    def _windows(self, uid: str) -> Sequence[WindowCommit] | None:
        """The windows of a job, by number, if its group is there."""
        log = self._world.longest()
        job = None if log is None else log.job(uid)
        if job is None or not (leader := self._world.leader(job)).up:
            return None
        windows = leader.store.windows_after(job.uid, 0)
        return windows if [one.seq for one in windows] == list(range(1, len(windows) + 1)) else None


class Oracle:
    """What a table has after each of the windows of its job."""

    def __init__(self, windows: Sequence[WindowCommit], began: tuple[int, int, int]) -> None:
        """``began``: see ``Ledger.tables``."""
        before, first, self._retain_us = began
        self.last = windows[-1].seq if windows else 0
        taken = [one for one in windows if (one.seq == first or one.seq > before) and not one.provisional]
        self._taken = [(one, _status(one), _rows(one)) for one in taken]
        self._after: dict[int, Rows] = {}

    def rows(self, number: int) -> Rows:
        """After all windows up to a number."""
        if number not in self._after:
            self._after[number] = self._rows(number)
        return self._after[number]

    def answer(self, one: Answer) -> Rows:
        """What whoever asked has to be told."""
        if one.key:
            return {key: row for key, row in self.rows(one.number).items() if key == one.key}
        if not one.shards:
            return self.rows(one.number)
        after = {place: self.rows(number) for place, number in one.shards.items()}
        keys = pa.table(
            {"k0": pa.array(sorted({key for rows in after.values() for key in rows}), pa.string())}
        )
        parts = split_by_range(keys, ("k0",), len(after))
        own = {key: place for place, part in enumerate(parts) for key in part["k0"].to_pylist()}
        return {key: row for place, rows in after.items() for key, row in rows.items() if own[key] == place}

    def _rows(self, number: int) -> Rows:
        found: dict[str, tuple[tuple[int, int], int]] = {}
        """By key, end and start of its window, and its count."""
        newest = 0
        for one, spans, rows in self._taken:
            if one.seq > number:
                break
            newest = max(newest, one.last_end)
            had = [key for key, ((end, start), _) in found.items() if (start, end) in spans]
            for key in had if one.revision else ():
                del found[key]
            for key, (start, end), count in rows:
                if key not in found or (end, start) >= found[key][0]:
                    found[key] = (end, start), count
        least = newest - self._retain_us if self._retain_us else 0
        return {key: (end, count) for key, ((end, _), count) in found.items() if end > least}


def _status(one: WindowCommit) -> set[tuple[int, int]]:
    """Start and end of each of its windows."""
    return {_span(row) for row in decode(one.status).to_pylist()}


def _rows(one: WindowCommit) -> list[tuple[str, tuple[int, int], int]]:
    """Key, window and count of its rows, if they have a key."""
    rows = decode(one.rows).to_pylist() if one.rows else []
    return [(row["k0"], _span(row), row["s0"]) for row in rows if "k0" in row]


def _span(row: dict[str, Any]) -> tuple[int, int]:
    return micros(row["window_start"]), micros(row["window_end"])
