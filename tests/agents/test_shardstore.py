"""Shards of tables in stores: what all have together is what the table without shards has."""

from __future__ import annotations

import random

import msgspec
import pyarrow as pa
import pytest

from agents.disk import shardstore, tablerows
from agents.disk.store import Store
from agents.disk.tablevalues import opened
from elf.aggregates import range_places, split_by_range
from elf.batch import decode
from elf.fields import replace
from elf.job.spec import group_uid
from elf.job.tables import (
    BEHIND,
    NO_TABLE,
    CopyShard,
    ReadShard,
    ReadTable,
    ShardPart,
    ShardRound,
    ShardRows,
    ShardWindows,
    TableKept,
    TableRound,
    TableRows,
    cursor,
    shard_uid,
)
from tests.support.tables import JOB, KEPT, SECOND, TABLE, Rows, commit, shown

SHARDS = 3
WHOLE = replace(KEPT, table=f"{'b' * 32}.1", shards=SHARDS)


def question(place: int, after: int, upto: int = 0) -> ReadShard:
    return ReadShard(
        id=0,
        origin="",
        uid=JOB,
        table=WHOLE.table,
        key=WHOLE.key,
        shards=SHARDS,
        place=place,
        after=after,
        upto=upto,
    )


def asked(store: Store, place: int, after: int) -> ShardWindows:
    request = question(place, after)
    error, body = shardstore.answer(store, request)
    assert not error
    return msgspec.msgpack.decode(body, type=ShardWindows)


def record(master: Store, place: int, after: int) -> ShardRows:
    said = asked(master, place, after)
    group = group_uid(JOB, place)
    return ShardRows(group, shard_uid(WHOLE.table, place), after, said.upto, said.windows, said.lost)


def of(store: Store, table: str) -> TableRows:
    found = store.tables.read(ReadTable(id=0, origin="", uid=JOB, table=table))
    assert isinstance(found, TableRows)
    return found


def drawn(rng: random.Random) -> Rows:
    return [(f"{rng.randrange(12)}", "/", rng.randrange(9)) for _ in range(rng.randrange(9))]


@pytest.mark.parametrize("seed", range(6))
def test_all_shards_together_are_the_table_however_records_come(seed: int) -> None:
    """Records come twice, and late ones again; one member of a group begins with the state of another."""
    rng = random.Random(seed)
    master, shards = Store(":memory:"), [Store(":memory:") for _ in range(SHARDS)]
    retain = 40 * SECOND
    master.tables.begin(replace(KEPT, retain_us=retain), None, 0)
    master.tables.begin(replace(WHOLE, retain_us=retain), None, 0)
    for place, store in enumerate(shards):
        kept = replace(
            WHOLE, job=group_uid(JOB, place), table=shard_uid(WHOLE.table, place), retain_us=retain
        )
        store.tables.begin(kept, None, 0)
    records: list[list[ShardRows]] = [[] for _ in range(SHARDS)]
    revisions: dict[int, int] = {}
    for _ in range(40):
        end = 10 * rng.randrange(1, 9)
        row = commit(end, list({one[0]: one for one in drawn(rng)}.values()), revisions.get(end, 0))
        revisions[end] = revisions.get(end, 0) + 1
        master.tables.take(row, master.commit_windows(row))
        for place, store in enumerate(shards):
            if rng.random() < 0.5:
                records[place].append(record(master, place, of(store, shard_uid(WHOLE.table, place)).number))
            for said in rng.sample(records[place], min(2, len(records[place]))):
                store.tables.put(said)
    for place, store in enumerate(shards):
        store.tables.put(record(master, place, of(store, shard_uid(WHOLE.table, place)).number))
        other = Store(":memory:")
        for state in store.tables.states(group_uid(JOB, place)):
            other.tables.install(state)
        assert other.tables.states(group_uid(JOB, place)) == store.tables.states(group_uid(JOB, place))
    found = [of(store, shard_uid(WHOLE.table, place)) for place, store in enumerate(shards)]
    assert {one.number for one in found} == {of(master, TABLE).number}
    assert {one.newest_us for one in found} == {of(master, TABLE).newest_us}
    assert sorted(row for one in found if one.rows for row in shown(one)) == shown(of(master, TABLE))


def test_a_shard_begins_with_the_table_and_counts_what_is_no_longer_kept() -> None:
    master = Store(":memory:")
    for end in (10, 20, 30):
        master.commit_windows(commit(end, [("a", "/", end)]))
    assert shardstore.answer(master, question(0, 0)) == (NO_TABLE, b"")
    master.tables.begin(WHOLE, None, 2)
    said = [asked(master, place, 0) for place in range(SHARDS)]
    assert [[row.seq for row in one.windows] for one in said] == [[2, 3]] * SHARDS
    rows = [decode(row.rows) for one in said for row in one.windows if row.rows]
    assert pa.concat_tables(rows)["n"].to_pylist() == [20, 30]
    for end in (40, 50):
        master.commit_windows(commit(end, [("a", "/", end)]))
    master.prune_windows(JOB, 40 * SECOND)
    late = asked(master, 0, 3)
    assert (late.upto, late.lost) == (5, 1)
    master.commit_windows(commit(35, [("b", "/", 6)]))
    master.commit_windows(commit(60, [("a", "/", 7)]))
    master.prune_windows(JOB, 40 * SECOND)
    late = asked(master, 0, 4)
    assert ([row.seq for row in late.windows], late.upto, late.lost) == ([5, 7], 7, 1)


def test_a_shard_that_gets_most_rows_by_the_new_key_lets_go_of_the_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, new = Store(":memory:"), Store(":memory:")
    kept = replace(WHOLE, table=shard_uid(WHOLE.table, 0), shards=1)
    old.tables.begin(kept, None, 0)
    windows = tuple(
        replace(commit(10 * number, [(f"{number}", "/", number)]), seq=number) for number in (1, 2, 3)
    )
    old.tables.put(ShardRows(JOB, kept.table, 0, 3, windows))
    pages = replace(kept, table=shard_uid(f"{'b' * 32}.2", 0), key=("page",), of=WHOLE.table, was=("ip",))
    new.tables.begin(pages, None, 0)
    size = of(old, kept.table).size
    monkeypatch.setattr(tablerows, "BYTES_MAX", size - 1)
    wanted = CopyShard(id=0, origin="", uid=JOB, table=kept.table, key=("page",), place=0, after=b"", least=0)
    part = msgspec.msgpack.decode(old.tables.some(wanted)[1], type=ShardPart)
    new.tables.join(ShardRound(JOB, pages.table, 0, b"", part))
    found = of(new, pages.table)
    assert (found.count, found.evicted) == (2, 1)
    assert shown(found) == [("2", "/", 2), ("3", "/", 3)]


def test_a_shard_behind_loses_nothing_though_another_one_is_in_the_group_of_the_job() -> None:
    """Where the table of before has ended there already, while its shards go on."""
    master = Store(":memory:")
    master.tables.begin(WHOLE, None, 0)
    first = replace(WHOLE, table=shard_uid(WHOLE.table, 0))
    master.tables.begin(first, None, 0)
    for end in (10, 20, 30, 40):
        row = commit(end, [("a", "/", end)])
        master.tables.take(row, master.commit_windows(row))
    pages = replace(WHOLE, table=f"{'b' * 32}.2", key=("page",), of=WHOLE.table, was=WHOLE.key)
    master.tables.begin(pages, None, 4)
    master.tables.copy(TableRound(JOB, pages.table, 1))
    master.tables.end(WHOLE.table)
    master.tables.put(replace(record(master, 0, 0), job=JOB, table=first.table))
    late = asked(master, 1, 1)
    assert ([row.seq for row in late.windows], late.upto, late.lost) == ([2, 3, 4], 4, 0)


def test_shards_do_not_begin_with_a_table_of_that_name_that_was_dropped() -> None:
    master = Store(":memory:")
    master.tables.begin(WHOLE, None, 1)
    error, _ = shardstore.answer(master, replace(question(0, 0), table=f"{'b' * 32}.2"))
    assert error == NO_TABLE


def test_results_that_are_of_one_shard_come_in_records_that_a_group_can_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master = Store(":memory:")
    master.tables.begin(WHOLE, None, 0)
    rows = [("a", f"/{number}", number) for number in range(200)]
    for end in (10, 20, 30):
        master.commit_windows(commit(end, rows))
    whole = asked(master, 1, 0)
    assert [row.seq for row in whole.windows] == [1, 2, 3]
    (one, *_) = whole.windows
    monkeypatch.setattr(shardstore, "RESULTS_BYTES", len(commit(10, rows).rows) + 1)
    assert one.rows, "the key is of this shard"
    assert [row.seq for row in asked(master, 1, 0).windows] == [1]
    assert [row.seq for row in asked(master, 1, 1).windows] == [2]


@pytest.mark.parametrize("seed", range(6))
def test_shards_of_a_table_take_the_place_of_those_of_another_one(seed: int) -> None:
    """By another key, part by part, while windows go in, and each shard is where it is; records come twice,
    and members begin with the state of others."""
    rng = random.Random(seed)
    master = Store(":memory:")
    master.tables.begin(KEPT, None, 0)
    master.tables.begin(WHOLE, None, 0)
    pages = replace(WHOLE, table=f"{'b' * 32}.2", key=("page",), of=WHOLE.table, was=WHOLE.key, shards=SHARDS)
    master.tables.begin(pages, None, 0)
    olds, news = ([Store(":memory:") for _ in range(SHARDS)] for _ in range(2))
    for place, store in enumerate(olds):
        store.tables.begin(replace(WHOLE, table=shard_uid(WHOLE.table, place)), None, 0)
    for place, store in enumerate(news):
        store.tables.begin(replace(pages, table=shard_uid(pages.table, place)), None, 0)
    for store in (*olds, *news):
        store.tables.round_rows = 2

    def windows() -> None:
        rows = [(f"{rng.randrange(9)}", f"/{rng.randrange(9)}", rng.randrange(9)) for _ in range(9)]
        end = 10 * rng.randrange(1, 9)
        row = commit(end, list({one[:2]: one for one in rows}.values()), master.last_windows_seq(JOB))
        master.tables.take(row, master.commit_windows(row))

    def follow(store: Store, kept: TableKept, place: int, upto: int) -> None:
        said = replace(kept, table=shard_uid(kept.table, place))
        (now,) = store.tables.stored(JOB)
        request = replace(question(place, now.number, upto), key=said.key, table=kept.table)
        error, body = shardstore.answer(master, request)
        assert not error
        came = msgspec.msgpack.decode(body, type=ShardWindows)
        store.tables.put(ShardRows(JOB, said.table, now.number, came.upto, came.windows, came.lost))

    def step(place: int) -> bool:
        """A shard gets its next rows; whether it has all."""
        store = news[place]
        (now,) = store.tables.stored(JOB)
        if now.whole:
            return True
        source, after = cursor(now.kept, now.behind)
        wanted = CopyShard(
            id=0, origin="", uid=JOB, table=shard_uid(WHOLE.table, source), key=("page",), place=place,
            after=after, least=now.number,
        )  # fmt: skip
        error, body = olds[source].tables.some(wanted)
        if error:
            assert error == BEHIND
            follow(olds[source], WHOLE, source, 0)
            return False
        part = msgspec.msgpack.decode(body, type=ShardPart)
        while now.behind and now.number < part.number:
            follow(store, pages, place, part.number)
            (now,) = store.tables.stored(JOB)
        said = ShardRound(JOB, shard_uid(pages.table, place), source, after, part)
        for _ in range(2):
            store.tables.join(said)
        if rng.random() < 0.3:
            news[place] = Store(":memory:")
            for state in store.tables.states(JOB):
                news[place].tables.install(state)
            news[place].tables.round_rows = 2
        return False

    for _ in range(8):
        windows()
    left = set(range(SHARDS))
    while left:
        left = {place for place in left if not step(place)}
        if rng.random() < 0.2:
            windows()
        for place, store in enumerate(olds):
            if rng.random() < 0.3:
                follow(store, WHOLE, place, 0)
    for place, store in enumerate(news):
        follow(store, pages, place, 0)
    found = [of(store, shard_uid(pages.table, place)) for place, store in enumerate(news)]
    assert {one.number for one in found} == {of(master, TABLE).number}
    assert sorted(row for one in found if one.rows for row in shown(one)) == shown(of(master, TABLE))
    for place, one in enumerate(found):
        by_page = split_by_range(decode(one.rows), ("page",), SHARDS)[place] if one.rows else None
        assert by_page is None or by_page.num_rows == one.count


def test_rows_that_all_shards_of_the_next_table_ask_for_are_divided_once() -> None:
    """Each gets its own, and what has come meanwhile."""
    kept = replace(WHOLE, job=group_uid(JOB, 0), table=shard_uid(WHOLE.table, 0))
    master, store, other = Store(":memory:"), Store(":memory:"), Store(":memory:")
    master.tables.begin(WHOLE, None, 0)
    for one in (store, other):
        one.tables.begin(kept, None, 0)
        one.tables.round_rows = 10
    first = CopyShard(id=0, origin="", uid=JOB, table=kept.table, key=("page",), place=0, after=b"", least=0)
    pages = 0
    for end in (10, 20):
        row = commit(end, [(f"{n}", f"/{n % 7}", end) for n in range(60)])
        master.tables.take(row, master.commit_windows(row))
        for one in (store, other):
            one.tables.put(record(master, 0, of(one, kept.table).number))
        found: list[object] = []
        after, more = b"", True
        while more:
            for place in range(SHARDS):
                wanted = replace(first, place=place, after=after)
                other.tables._pages._pages.clear()
                said, again = store.tables.some(wanted), other.tables.some(wanted)
                assert said == again
                part = msgspec.msgpack.decode(said[1], type=ShardPart)
                rows = opened(part.schemas, part.rows) or []
                assert {key_place(row[1]) for row in rows} <= {place}
                found += [row[0] for row in rows]
            after, more, pages = part.next, part.more, pages + 1
        assert len(found) == len(set(found)) == of(store, kept.table).count
    assert store.tables._pages.divided == pages
    assert other.tables._pages.divided == SHARDS * pages


def key_place(key: bytes) -> int:
    """Of the shard that has a key, which is one text."""
    (text,) = msgspec.msgpack.decode(key)
    return int(range_places(pa.table({"page": [text]}), ("page",), SHARDS)[0])
