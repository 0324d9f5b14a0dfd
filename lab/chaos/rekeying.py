"""Changes of tables' keys in a simulated fleet: one that is paused stands still, and any other one ends.

How far a change has got is the highest number of a round of its table, or of a shard of it, that a member of
the group has made durable. A leader proposes a round when it has the one before; so when all agents know of a
pause there is at most one proposal more than that on its way, and none comes behind it (protocol 7.18).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from elf.job.catalog.log import CatalogLog
from elf.job.messages.log import LogEntry, OutputAdded, RekeyingPaused
from elf.job.output import OutputSpec
from elf.job.ring import PARTS, has_ring, majority
from elf.job.tables import begun, is_shard, is_table, shard_uid, table_of

if TYPE_CHECKING:
    from lab.chaos.world import World

LOOK_MS: Final = 100


class Rekeyings:
    """What the oracle knows of them, whatever agents know. ``wrong``: is told what must not be."""

    def __init__(self, wrong: Callable[[str], None]) -> None:
        self._wrong = wrong
        self._rounds: dict[str, int] = {}
        """By table or shard, the highest round that anybody has had."""
        self._paused: dict[str, int] = {}
        """By table, the entry of the log that says so."""
        self._stand: dict[str, dict[str, int]] = {}
        """What rounds there were when all agents had that entry."""

    def heard(self, entry: LogEntry) -> None:
        """A new entry of the catalog log."""
        if isinstance(entry, RekeyingPaused):
            self._goes_on(entry.uid)
            if entry.paused:
                self._paused[entry.uid] = entry.seq
        elif isinstance(entry, OutputAdded) and entry.spec.option("of"):
            self._goes_on(entry.spec.option("of"))  # the next table needs its rows

    def _goes_on(self, uid: str) -> None:
        self._paused.pop(uid, None)
        self._stand.pop(uid, None)

    def look(self, world: World) -> None:
        """By now all agents may know of a pause; and again, soon."""
        there = [agent for agent in world.agents if not agent.ended]
        if all(agent.up for agent in there):
            known = min((agent.node.log.last for agent in there), default=0)
            for uid, seq in self._paused.items():
                if seq <= known:
                    self._stand.setdefault(uid, dict(self._rounds))
        world.at(world.now + LOOK_MS, partial(self.look, world))

    def had(self, uid: str, rounds: int) -> None:
        """A member has so many rounds of a table, or of a shard."""
        self._rounds[uid] = max(rounds, self._rounds.get(uid, 0))
        table = table_of(uid) if is_shard(uid) else uid
        stand = self._stand.get(table)
        if stand is not None and rounds > stand.get(uid, 0) + 1:
            self._wrong(
                f"table {uid} has round {rounds}, and stood at {stand.get(uid, 0)} when it was paused"
            )

    def unfinished(self, world: World, log: CatalogLog) -> Iterator[str]:
        """What lacks rows by its new key, of tables whose change is not paused."""
        for spec in log.outputs():
            job = log.job(spec.job) if is_table(spec) and spec.option("of") else None
            if job is None or spec.uid in self._paused or isinstance(begun(spec, job.plan), str):
                continue
            if has_ring(spec):
                yield from _unfinished(world, log, spec)
                continue
            homes = log.homes(spec.uid)
            parts = [(home, shard_uid(spec.uid, place)) for place, home in enumerate(homes)]
            for group, uid in parts or [(spec.job, spec.uid)]:
                leader = world.by_address[log.leader(group) or job.leader]
                stored = {one.kept.table: one for one in leader.store.tables.stored(group)}
                if uid not in stored or not stored[uid].whole:
                    yield f"table {uid} has not got all rows by its new key"


def _unfinished(world: World, log: CatalogLog, spec: OutputSpec) -> Iterator[str]:
    """The same of a table with a ring, which needs a majority of each part."""
    parts = [[world.by_address[at].up for at in log.rings.replicas(place)] for place in range(PARTS)]
    if log.rings.is_changing(spec.uid) and all(sum(part) >= majority(len(part)) for part in parts):
        yield f"table {spec.uid} has not taken the place of the one before"
    for place in range(PARTS):
        for at in log.rings.replicas(place):
            there = world.by_address[at].store.tables.replicas()
            uid = shard_uid(spec.uid, place)
            if world.by_address[at].up and not any(one.kept.table == uid and one.whole for one in there):
                yield f"replica {at} of {uid} has not got all rows by its new key"
