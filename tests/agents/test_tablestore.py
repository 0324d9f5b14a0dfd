"""What a member of a job's group keeps of its tables: a function of the commits alone, however they come."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pytest

from agents.disk import tablerows, tablestore
from agents.disk.store import Store
from elf.batch import decode, encode
from elf.fields import replace
from elf.job.commits import WindowCommit
from elf.job.tables import BEHIND, Asked, ReadTable, TableKept, TableRound, TableRows
from elf.ql.keyed import over_table
from elf.ql.statements import parse_query
from tests.support.tables import JOB, KEPT, SECOND, TABLE, commit, moment, shown


def put(store: Store, *rows: WindowCommit) -> None:
    for row in rows:
        store.tables.take(row, store.commit_windows(row))


def read(store: Store, *equals: Asked, **more: object) -> TableRows:
    asked = ReadTable(id=0, origin="", uid=JOB, table=TABLE, equals=equals, **more)  # type: ignore[arg-type]
    found = store.tables.read(asked)
    assert isinstance(found, TableRows), found
    return found


@pytest.fixture
def store() -> Store:
    store = Store(":memory:")
    store.tables.begin(KEPT, None, 0)
    return store


def test_the_last_window_of_each_group_counts_and_a_key_finds_all_its_groups(store: Store) -> None:
    put(store, commit(10, [("a", "/", 1), ("a", "/x", 2), ("b", "/", 3)]), commit(20, [("a", "/", 5)]))
    put(store, commit(0, [("b", "/", 9), ("c", "/", 7)]))  # of before, made offline
    assert shown(read(store, ("ip", ("a",)))) == [("a", "/", 5), ("a", "/x", 2)]
    assert shown(read(store, ("IP", ("b", "c")))) == [("b", "/", 3), ("c", "/", 7)]
    assert not shown(read(store, ("ip", ("none",))))
    found = read(store, ("page", ("/",)))
    assert (found.found, found.count, found.number) == (False, 4, 3)
    assert len(shown(found)) == 4


def test_a_revision_replaces_its_window_and_what_it_has_no_more_leaves(store: Store) -> None:
    put(store, commit(10, [("a", "/", 1), ("b", "/", 3)]), commit(20, [("b", "/", 4)]))
    put(store, commit(10, [("a", "/x", 2), ("b", "/", 8)], revision=1))
    assert shown(read(store)) == [("a", "/x", 2), ("b", "/", 4)]
    put(store, commit(20, [], revision=1))
    assert shown(read(store)) == [("a", "/x", 2)]


Spans = Sequence[tuple[int, int]]


def commit_of(revision: int, spans: Spans, rows: Sequence[tuple[int, int, str, int]]) -> WindowCommit:
    """Of several windows, with rows (start, end, ip, n)."""

    def bounds(pairs: Spans) -> dict[str, pa.Array]:
        us = [[moment(one[place] * SECOND) for one in pairs] for place in (0, 1)]
        arrays = (pa.array(one, pa.timestamp("us")) for one in us)
        return dict(zip(("window_start", "window_end"), arrays, strict=True))

    own = {"ip": pa.array([row[2] for row in rows], pa.string())}
    own |= {"page": pa.array(["/"] * len(rows)), "n": pa.array([row[3] for row in rows], pa.int64())}
    made = encode(pa.table(bounds([row[:2] for row in rows]) | own))
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    status = encode(pa.table(bounds(spans)))
    return WindowCommit(JOB, first * SECOND, last * SECOND, revision, 1, False, status, made, b"")


def test_of_one_window_what_was_committed_last_counts_whatever_its_revision(store: Store) -> None:
    """A commit of several windows has the revision of all of them together."""
    many = [(10 * n, 60 + 10 * n) for n in range(6)]
    put(store, commit_of(3, many, [(*many[-1], "a", 1), (*many[-1], "b", 1), (*many[-2], "c", 1)]))
    put(store, commit_of(2, many[-1:], [(*many[-1], "a", 2)]))
    assert shown(read(store)) == [("a", "/", 2), ("c", "/", 1)]


def test_a_session_that_is_a_part_of_another_one_makes_way(store: Store) -> None:
    put(store, commit_of(0, [(0, 10)], [(0, 10, "a", 1)]), commit_of(0, [(20, 30)], [(20, 30, "a", 2)]))
    put(store, commit_of(1, [(0, 10), (0, 30), (20, 30)], [(0, 30, "a", 4)]))
    assert shown(read(store)) == [("a", "/", 4)]


def without_bounds(data: bytes) -> bytes:
    table = decode(data)
    return encode(table.set_column(0, "window_start", pa.nulls(table.num_rows, pa.timestamp("us"))))


def doubled(data: bytes) -> bytes:
    table = decode(data)
    return encode(table.append_column("n", table["n"]))


def with_texts(data: bytes) -> bytes:
    table = decode(data)
    return encode(table.set_column(1, "window_end", pa.array(["soon"] * table.num_rows)))


@pytest.mark.parametrize("revision", [0, 1])
def test_a_commit_that_is_not_of_windows_is_counted_and_the_others_come_in(revision: int) -> None:
    store = Store(":memory:")
    store.tables.begin(KEPT, None, 0)
    put(store, commit(10, [("a", "/", 1)]))
    good = commit(20, [("b", "/", 2)], revision)
    wrong = [replace(good, rows=made(good.rows)) for made in (without_bounds, doubled, with_texts)]
    wrong.append(replace(good, rows=b"x"))
    if revision:
        wrong += [replace(good, status=made(good.status)) for made in (without_bounds, with_texts)]
        wrong += [replace(good, status=b"x"), replace(good, status=encode(pa.table({"n": [1]})))]
    for number, row in enumerate(wrong, 2):
        store.tables.take(row, number)
        assert (read(store).unfit, read(store).number) == (number - 1, number)
    assert shown(read(store)) == [("a", "/", 1)]
    store.tables.take(good, 20)
    assert shown(read(store)) == [("a", "/", 1), ("b", "/", 2)]


def test_records_that_come_again_and_states_of_before_change_nothing(store: Store) -> None:
    first = [commit(10, [("a", "/", 1), ("b", "/", 3)]), commit(20, [("a", "/", 4)])]
    put(store, *first)
    (before,) = store.tables.states(JOB)
    put(store, commit(10, [("b", "/", 5)], revision=1))
    there = store.tables.states(JOB)
    put(store, *first)
    store.tables.begin(KEPT, None, 0)
    store.tables.install(before)
    assert store.tables.states(JOB) == there


def test_a_member_that_begins_with_a_state_goes_on_as_the_others() -> None:
    rng, one, other = random.Random(7), Store(":memory:"), Store(":memory:")
    one.tables.begin(KEPT, None, 0)
    for number in range(1, 40):
        end, revision = rng.randrange(1, 5), number  # each a revision of its own
        rows = [(rng.choice("abcd"), rng.choice("xyz"), number) for _ in range(rng.randrange(4))]
        made = commit(10 * end, list({row[:2]: row for row in rows}.values()), revision)
        one.commit_windows(made)
        one.tables.take(made, number)
        if number > 20:
            other.tables.take(made, number)
        if number == 20:
            (state,) = one.tables.states(JOB)
            other.tables.install(state)
    assert one.tables.states(JOB) == other.tables.states(JOB)
    assert read(one).number == 39


def test_a_state_whose_rows_cannot_be_read_is_a_table_without_rows(store: Store) -> None:
    put(store, commit(10, [("a", "/", 1)]))
    (state,) = store.tables.states(JOB)
    wrong = replace(state, rows=encode(pa.table({})))
    for broken in (wrong, replace(state, rows=b"x"), replace(state, schemas=(b"x",))):
        other = Store(":memory:")
        other.tables.install(broken)
        assert (read(other).count, read(other).unfit, read(other).number) == (0, 1, 1)


PAGES = TableKept(JOB, f"{'a' * 32}.2", ("page", "ip"), ("page",), of=TABLE)


def drawn(rng: random.Random, number: int) -> WindowCommit:
    rows = {(rng.choice("abcd"), rng.choice("xyz")): number for _ in range(rng.randrange(4))}
    return commit(10 * rng.randrange(1, 5), [(*key, n) for key, n in rows.items()], number)


def told(store: Store, kept: TableKept) -> tuple[list[tuple[object, ...]], int]:
    asked = ReadTable(id=0, origin="", uid=JOB, table=kept.table)
    found = store.tables.read(asked)
    assert isinstance(found, TableRows)
    return shown(found), found.number


@pytest.mark.parametrize("seed", range(6))
def test_a_table_takes_the_place_of_another_one_in_rounds_while_windows_go_in(seed: int) -> None:
    """Beside a member that had it all along: one that hears all records again after each, as after a crash,
    and one that comes in the middle."""
    rng = random.Random(seed)
    one, again, late = Store(":memory:"), Store(":memory:"), Store(":memory:")
    records: list[TableKept | TableRound | tuple[WindowCommit, int]] = [KEPT]
    windows = [(drawn(rng, number), number) for number in range(1, 41)]
    records += [*windows[:20], PAGES]
    rounds = [TableRound(JOB, PAGES.table, number) for number in range(1, 9)]
    left: list[list[TableRound] | list[tuple[WindowCommit, int]]] = [rounds, windows[20:]]
    while any(left):
        records.append(rng.choice([some for some in left if some]).pop(0))

    def apply(store: Store, record: TableKept | TableRound | tuple[WindowCommit, int]) -> None:
        store.tables.round_rows = 3
        match record:
            case TableKept():
                store.tables.begin(record, None, 0)
            case TableRound():
                store.tables.copy(record)
            case (row, number):
                store.tables.take(row, number)

    middle = rng.randrange(21, len(records))
    for place, record in enumerate(records):
        apply(one, record)
        for before in records[: place + 1]:
            apply(again, before)
        assert again.tables.states(JOB) == one.tables.states(JOB)
        if place == middle:
            for state in one.tables.states(JOB):
                late.tables.install(state)
        elif place > middle:
            apply(late, record)
        for stored in [
            known for known in one.tables.stored(JOB) if known.kept.table == PAGES.table
        ]:  # it is read in the place of the other one when it has all that that has
            asked = ReadTable(id=0, origin="", uid=JOB, table=PAGES.table, of=TABLE)
            found = one.tables.read(asked)
            assert isinstance(found, TableRows)
            assert (found.kept.table == PAGES.table) == stored.whole
            assert (shown(found), found.number) == told(one, KEPT)
    assert late.tables.states(JOB) == one.tables.states(JOB)
    assert all(stored.whole for stored in one.tables.stored(JOB))
    asked = ReadTable(id=0, origin="", uid=JOB, table=PAGES.table, equals=(("page", ("x",)),))
    found = one.tables.read(asked)
    assert isinstance(found, TableRows)
    assert found.found
    assert shown(found) == [row for row in told(one, KEPT)[0] if row[1] == "x"]
    one.tables.end(TABLE)
    assert told(one, PAGES) == told(again, KEPT)


def test_a_change_is_taken_back_and_the_table_of_before_has_all_windows(store: Store) -> None:
    store.tables.round_rows = 1
    put(store, commit(10, [("a", "/", 1), ("b", "/", 2)]))
    store.tables.begin(PAGES, None, 0)
    store.tables.copy(TableRound(JOB, PAGES.table, 1))
    put(store, commit(20, [("a", "/", 3)]))
    back = replace(KEPT, table=f"{'a' * 32}.3", of=PAGES.table)
    for _ in range(2):  # as after a crash
        store.tables.begin(back, None, 0)
    assert [one.kept.table for one in store.tables.stored(JOB)] == [back.table]
    put(store, commit(30, [("c", "/", 4)]))
    assert told(store, back) == ([("a", "/", 3), ("b", "/", 2), ("c", "/", 4)], 3)
    other = Store(":memory:")
    for state in store.tables.states(JOB):
        other.tables.install(state)
    assert other.tables.states(JOB) == store.tables.states(JOB)


def test_a_restart_hears_again_what_was_taken_back_and_changes_nothing(store: Store) -> None:
    """The state of before, and all records since that."""
    store.tables.round_rows = 1
    put(store, commit(10, [("a", "/", 1), ("b", "/", 2)]))
    before = store.tables.states(JOB)
    back = replace(KEPT, table=f"{'a' * 32}.3", of=PAGES.table)

    def changed() -> None:
        store.tables.begin(KEPT, None, 0)
        store.tables.begin(PAGES, None, 0)
        store.tables.copy(TableRound(JOB, PAGES.table, 1))
        store.tables.begin(back, None, 0)

    changed()
    there = store.tables.states(JOB)
    for state in before:
        store.tables.install(state)
    changed()
    assert store.tables.states(JOB) == there


def test_a_member_that_lacks_rounds_alone_takes_the_state_of_another_one(store: Store) -> None:
    store.tables.round_rows = 1
    put(store, commit(10, [("a", "/", 1), ("b", "/", 2)]))
    store.tables.begin(PAGES, None, 0)
    other = Store(":memory:")
    for state in store.tables.states(JOB):
        other.tables.install(state)
    for number in range(1, 4):
        store.tables.copy(TableRound(JOB, PAGES.table, number))
    there = store.tables.states(JOB)
    for state in there:
        other.tables.install(state)
    assert other.tables.states(JOB) == there


def test_a_row_that_the_old_table_never_had_is_not_in_the_new_one(store: Store) -> None:
    """An older window is revised, and has a row of a group that has not come to the new table; then the later
    row of that group is revised away."""
    store.tables.round_rows = 1
    put(store, commit(10, [("a", "/", 1)]), commit(20, [("b", "/", 2)]))
    store.tables.begin(PAGES, None, 0)
    store.tables.copy(TableRound(JOB, PAGES.table, 1))
    put(store, commit(10, [("a", "/", 1), ("b", "/", 9)], revision=1))
    put(store, commit(20, [("c", "/", 3)], revision=1))
    for number in range(2, 5):
        store.tables.copy(TableRound(JOB, PAGES.table, number))
    assert told(store, PAGES)[0] == told(store, KEPT)[0] == [("a", "/", 1), ("c", "/", 3)]


def test_rows_of_long_ago_leave_and_those_that_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(":memory:")
    store.tables.begin(TableKept(JOB, TABLE, ("ip", "page"), ("ip",), 60 * SECOND), None, 0)
    put(store, commit(10, [("a", "/", 1)]), commit(60, [("b", "/", 1)]), commit(70, [("c", "/", 1)]))
    assert shown(read(store)) == [("b", "/", 1), ("c", "/", 1)]
    size = read(store).size
    monkeypatch.setattr(tablerows, "BYTES_MAX", 2 * size)
    put(store, commit(80, [(f"{n}", "/", 1) for n in range(4)]))
    found = read(store)
    assert (found.count, found.evicted) == (4, 2)
    assert found.size <= 2 * size
    assert [row[0] for row in shown(found)] == ["0", "1", "2", "3"], "those of the oldest windows leave first"


def test_rows_are_counted_as_they_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that begins with the state of another one counts all of them."""
    monkeypatch.setattr(tablerows, "BYTES_MAX", 250)
    monkeypatch.setattr(tablerows, "_AT_ONCE", 2)
    rng, one, counts = random.Random(11), Store(":memory:"), set[int]()
    one.tables.begin(TableKept(JOB, TABLE, ("ip", "page"), ("ip",), 20 * SECOND), None, 0)
    for number in range(1, 60):
        one.tables.take(drawn(rng, number), number)
        other, (state,) = Store(":memory:"), one.tables.states(JOB)
        other.tables.install(state)
        assert read(one) == read(other)
        counts.add(read(one).count)
    assert read(one).evicted
    assert counts == {0, 1, 2, 3}


def test_values_come_back_as_they_were_and_windows_without_the_columns_are_counted(store: Store) -> None:
    more = {
        "at": pa.array([moment(5)], pa.timestamp("us")),
        "sum": pa.array([Decimal(10**30)], pa.decimal128(38, 0)),
        "rate": pa.array([0.5]),
        "some": pa.array([[1, 2]], pa.list_(pa.int64())),
        "bot": pa.array([True]),
    }
    put(store, commit(10, [("a", "/", 1)], **more), commit(20, [("b", "/", 2)]))
    rows = decode(read(store, ("ip", ("a",))).rows)
    assert {name: rows[name].to_pylist() for name in more} == {
        name: one.to_pylist() for name, one in more.items()
    }
    assert rows.schema.field("sum").type == pa.decimal128(38, 0)
    assert decode(read(store).rows)["rate"].to_pylist() == [0.5, None]
    odd = commit(30, [("a", "/", 1)])
    lacking = encode(decode(odd.rows).drop_columns(["page"]))
    put(store, WindowCommit(JOB, odd.first_start, odd.last_end, 0, 1, False, odd.status, lacking, b""))
    assert read(store).unfit == 1


def test_all_rows_come_in_portions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tablestore, "PAGE_BYTES", 100)
    put(store, commit(10, [(f"{n:03}", "/", n) for n in range(50)]))
    found, after = [], b""
    while True:
        one = read(store, after=after)
        found += shown(one)
        if not one.more:
            break
        assert len(shown(one)) < 20
        after = one.next
    assert [n for _, _, n in found] == list(range(50))


def test_a_member_that_lacks_windows_says_so_and_a_key_has_a_type() -> None:
    store = Store(":memory:")
    store.tables.begin(TableKept(JOB, TABLE, ("ip", "n"), ("n",)), None, 0)
    put(store, commit(10, [("a", "/", 1)]))
    assert store.tables.read(ReadTable(id=0, origin="", uid=JOB, table=TABLE, least=2)) == BEHIND
    assert len(shown(read(store, ("n", ("1",))))) == 1
    wrong = ReadTable(id=0, origin="", uid=JOB, table=TABLE, equals=(("n", ("x",)),))
    for value in ("x", 2**63, 2**64 - 1, 1e300):
        wrong = ReadTable(id=0, origin="", uid=JOB, table=TABLE, equals=(("n", (value,)),))
        assert str(store.tables.read(wrong)).startswith("its key cannot have this value: ")


@pytest.mark.parametrize("value", [2**63, 10**23, -(10**23)])
def test_a_number_that_no_column_has_is_no_key(value: int) -> None:
    """It is asked of DuckDB, over all rows."""
    sql = f"SELECT * FROM seen WHERE n = {value} AND ip IN ('a', {value}) AND page = '/'"
    query = parse_query(sql)
    assert query is not None
    found = over_table(sql, query, {"seen"})
    assert found is not None
    assert found.equals == (("page", ("/",)),)
    assert found.columns is None


def test_tables_of_a_job_go_with_it(store: Store) -> None:
    put(store, commit(10, [("a", "/", 1)]))
    store.drop_job(JOB)
    assert store.tables.stored(JOB) == ()
    store.tables.begin(KEPT, None, 0)
    assert read(store).count == 0
