"""What the leader of a group asks for its shards of tables, and what it proposes, without a network."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import msgspec
import pytest

from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.rings import Rings
from elf.job.effects import Effect, SaveShard, SaveTable, Send
from elf.job.group.shards import ASKED_MS, PAUSE_MS, Shards
from elf.job.output import OutputSpec
from elf.job.spec import JobSpec, group_uid
from elf.job.tables import (
    CopyShard,
    ReadShard,
    ShardPart,
    ShardRound,
    ShardWindows,
    StoredTable,
    TableKept,
    shard_uid,
)
from elf.wire.base import Answer
from tests.support.tables import JOB

HERE = "10.0.0.1:7400"
OLD = OutputSpec("seen", "me", 1, JOB, "table:", (("key", "ip"), ("shards", "3")))
NEW = replace(OLD, generation=2, options=(("key", "page"), ("of", OLD.uid), ("shards", "3"), ("was", "ip")))
GROUP = group_uid(JOB, 1)
KEPT = TableKept(GROUP, shard_uid(NEW.uid, 1), ("ip", "page"), ("page",), of=OLD.uid, shards=3, was=("ip",))


class Log:
    """What a log says of the tables of one job."""

    def __init__(self, *tables: OutputSpec, dropped: Iterable[str] = ()) -> None:
        self.tables = tables
        self.rings = Rings()
        self.dropped = frozenset(dropped)
        self.paused = False

    def is_rekeying_paused(self, uid: str) -> bool:
        return self.paused and uid == NEW.uid

    def outputs(self, job: str) -> tuple[OutputSpec, ...]:
        return tuple(one for one in self.tables if one.job == job and one.uid not in self.dropped)

    def output(self, uid: str) -> OutputSpec | None:
        return next((one for one in self.tables if one.uid == uid), None)

    def homes(self, uid: str) -> tuple[str, ...]:
        spec = self.output(uid)
        count = 1 if spec is None else int(spec.option("shards", "1"))
        return tuple(group_uid(JOB, place) for place in range(count)) if count > 1 else ()

    def is_dropped(self, uid: str) -> bool:
        return uid in self.dropped

    def leader(self, _: str) -> str:
        return "10.0.0.2:7400"

    def job(self, _: str) -> JobSpec | None:
        return None


def shards(log: Log, *stored: StoredTable) -> Shards:
    found = Shards(HERE, cast(CatalogLog, log))
    found.take_up(GROUP, stored)
    return found


def question(effects: list[Effect]) -> ReadShard | CopyShard:
    (one,) = (effect.message for effect in effects if isinstance(effect, Send))
    assert isinstance(one, ReadShard | CopyShard)
    return one


def test_a_part_whose_record_got_lost_is_proposed_again() -> None:
    behind = msgspec.msgpack.encode((1, b""))
    ours = shards(Log(OLD, NEW, dropped=(OLD.uid,)), StoredTable(KEPT, 1, False, 7, behind))
    asked = question(ours.advance(1_000))
    assert isinstance(asked, CopyShard)
    part = ShardPart(7, None, (), b"", b"", False)
    (first,) = ours.answered(Answer(id=asked.id, body=msgspec.msgpack.encode(part)), 1_100)
    assert isinstance(first, SaveShard)
    again = ours.advance(1_100 + ASKED_MS)
    assert [one.rows for one in again if isinstance(one, SaveShard)] == [first.rows]
    ours.saved(SaveShard(cast(ShardRound, first.rows)), 7_000)
    assert isinstance(question(ours.advance(8_000)), CopyShard)


def test_a_shard_whose_change_is_paused_takes_results_and_no_rows() -> None:
    log = Log(OLD, NEW, dropped=(OLD.uid,))
    log.paused = True
    new = shards(log, StoredTable(KEPT, 0, False, 0, b""))
    assert not new.advance(1_000), "it has nothing to keep up to date"
    behind = msgspec.msgpack.encode((1, b""))
    ours = shards(log, StoredTable(KEPT, 1, False, 7, behind))
    asked = question(ours.advance(1_000))
    assert isinstance(asked, ReadShard)
    assert asked.after == 7
    (rows,) = ours.answered(Answer(id=asked.id, body=msgspec.msgpack.encode(ShardWindows(9))), 1_100)
    assert isinstance(rows, SaveShard)
    ours.saved(rows, 1_200)
    assert isinstance(question(ours.advance(1_200)), ReadShard)
    log.paused = False
    for one, least in ((new, 0), (ours, 9)):
        copy = question(one.advance(1_200 + ASKED_MS))
        assert isinstance(copy, CopyShard)
        assert copy.least == least


@pytest.mark.parametrize("count", ["1", "2"])
def test_shards_of_a_dropped_table_end_though_one_of_that_name_has_fewer_and_gets_another_key(
    count: str,
) -> None:
    made = replace(OLD, generation=2, options=(("key", "ip"), ("shards", count)))
    heir = replace(OLD, generation=3, options=(("key", "page"), ("of", made.uid), ("shards", count)))
    kept = replace(KEPT, table=shard_uid(OLD.uid, 1), key=("ip",), of="", was=())
    ours = shards(Log(OLD, made, heir, dropped=(OLD.uid, made.uid)), StoredTable(kept, 0, True, 7))
    over = [one.kept.over for one in ours.advance(1_000) if isinstance(one, SaveTable)]
    assert over == [True]


def test_an_answer_to_an_agent_that_has_died_is_none_to_its_next_life() -> None:
    log, stored = Log(OLD), StoredTable(replace(KEPT, table=shard_uid(OLD.uid, 1), of=""), 0, True, 7)
    asked = question(shards(log, stored).advance(1_000))
    later = shards(log, stored)
    again = question(later.advance(1_500))
    assert asked.id != again.id
    assert not later.awaits(asked.id)


def test_results_come_behind_those_that_were_asked_for() -> None:
    ours = shards(Log(OLD), StoredTable(replace(KEPT, table=shard_uid(OLD.uid, 1), of=""), 0, True, 7))
    asked = question(ours.advance(1_000))
    body = msgspec.msgpack.encode(ShardWindows(9))
    (first,) = ours.answered(Answer(id=asked.id, body=body), 1_100)
    assert isinstance(first, SaveShard)
    late = question(ours.advance(1_100 + ASKED_MS))
    ours.saved(first, 6_200)
    assert not ours.answered(Answer(id=late.id, body=msgspec.msgpack.encode(ShardWindows(10))), 6_300)


def test_whoever_leads_before_its_log_has_come_to_the_table_waits_for_that() -> None:
    behind = msgspec.msgpack.encode((1, b""))
    ours = shards(Log(), StoredTable(KEPT, 1, False, 7, behind))
    assert not ours.advance(1_000)
    assert ours.deadline() == 1_000 + PAUSE_MS
