"""A row that is asked for by its key is what the way says that opens the table."""

from __future__ import annotations

import random

import pyarrow as pa

from agents.disk.store import Store
from elf.batch import decode
from elf.fields import replace
from elf.job.tables import BEHIND, ReadTable, TableKept, TableRound, TableRows
from tests.support.tables import JOB, KEPT, TABLE, Rows, commit, shown

NEXT = f"{'a' * 32}.2"


def asked(value: str, column: str = "ip", **more: object) -> ReadTable:
    equals = ((column, (value,)),)
    return ReadTable(id=0, origin="", uid=JOB, table=TABLE, equals=equals, **more)  # type: ignore[arg-type]


def same(store: Store, question: ReadTable) -> bool:
    """Whether it is answered at once, as it is in the other way."""
    found, whole = store.tables.point(question), store.tables.read(question)
    if isinstance(found, TableRows) and isinstance(whole, TableRows):
        assert decode(found.rows).equals(decode(whole.rows))
        assert replace(found, rows=b"") == replace(whole, rows=b"")
        assert found.told == decode(found.rows).num_rows
    else:
        assert found is None or found == whole
    return found is not None


def put(store: Store, end: int, some: Rows, revision: int = 0, **columns: pa.Array) -> None:
    row = commit(end, some, revision, **columns)
    store.tables.take(row, store.commit_windows(row))


def drawn(rng: random.Random) -> Rows:
    groups = {(rng.choice("abcd"), rng.choice("/xyz")): rng.randrange(9) for _ in range(rng.randrange(5))}
    return [(*group, n) for group, n in groups.items()]


def test_answers_are_those_of_the_other_way_whatever_comes_between() -> None:
    rng, store, at_once = random.Random(3), Store(":memory:"), 0
    store.tables.begin(KEPT, None, 0)
    put(store, 10, [("a", "/", 1)])
    before = store.tables.states(JOB)
    for step in range(120):
        put(store, 10 * rng.randrange(1, 9), drawn(rng), step)
        if step == 40:  # another member's state, of before: with the same uid, and other rows
            store.tables.end(TABLE)
            store.tables.install(before[0])
        at_once += sum(same(store, asked(rng.choice("abcde"))) for _ in range(3))
        least = rng.randrange(step + 3)
        same(store, asked("a", least=least))
    assert at_once > 250
    assert store.tables.point(asked("a", least=10_000)) == BEHIND


def test_rows_of_several_schemas_and_questions_of_another_kind_are_read_in_the_other_way() -> None:
    store = Store(":memory:")
    store.tables.begin(KEPT, None, 0)
    assert store.tables.point(asked("a")) is None
    put(store, 10, [("a", "/", 1), ("b", "/", 2)])
    same(store, asked("a"))
    assert same(store, asked("a"))
    for other in (
        replace(asked("a"), rows=False),
        replace(asked("a"), equals=(("ip", ("a", "b")),)),
        asked("/", "page"),
        replace(asked("a"), table=NEXT),
    ):
        assert store.tables.point(other) is None
    put(store, 20, [("b", "/", 3)], more=pa.array([7]))
    assert not same(store, asked("a"))
    assert [row["more"] for row in decode(rows_of(store, "b")).to_pylist()] == [7]


def rows_of(store: Store, value: str) -> bytes:
    found = store.tables.read(asked(value))
    assert isinstance(found, TableRows)
    return found.rows


def test_a_table_that_has_not_got_all_rows_is_not_answered_for() -> None:
    store = Store(":memory:")
    store.tables.round_rows = 1
    store.tables.begin(KEPT, None, 0)
    put(store, 10, [("a", "/", 1), ("b", "/x", 2)])
    kept = TableKept(JOB, NEXT, KEPT.columns, ("page",), of=TABLE)
    store.tables.begin(kept, None, 0)
    question = replace(asked("/", "page"), table=NEXT, of=TABLE)
    for number in range(1, 4):
        found = store.tables.read(question)
        assert isinstance(found, TableRows)
        assert found.kept.key == ("ip",), "it is still found by the old key"
        assert store.tables.point(question) is None
        store.tables.copy(TableRound(JOB, NEXT, number))
    store.tables.end(TABLE)
    found = store.tables.read(question)
    assert isinstance(found, TableRows)
    assert shown(found) == [("a", "/", 1)]
    assert same(store, question)
