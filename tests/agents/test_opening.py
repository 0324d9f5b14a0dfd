"""Pieces of peers, opened: whose cannot be used is known, and a good one is opened once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest

from agents.committing import opening, panecommits, panetables
from agents.committing.opening import PiecesUnusable, merge, opened
from agents.committing.panecommits import Makers
from agents.disk.store import Store
from agents.tasks.direct import types_of
from agents.tasks.engine import Mapper
from elf.batch import decode, decode_all, encode
from elf.cbt import BufferTree
from elf.errors import ElfBug, PeerError
from elf.fields import replace
from elf.job.contributions import Piece
from elf.job.counters import counters
from elf.job.effects import Combine, CommitPanes
from elf.job.rollup.decide import RootSettings
from elf.job.rollup.root import Root
from elf.job.spec import Flow
from elf.ql.plan import COUNTED, CREDIT
from elf.ql.planner import plan_text
from tests.support.ql_cases import Case, queries, scalars
from tests.support.ql_table import SCHEMA, rows
from tests.support.stragglers import progress, rooted

QUERY = "SELECT text, COUNT(*) AS n, SUM(id) AS s, MAX(ts) AS t FROM x GROUP BY text WINDOWING 1 SECOND"


def flow() -> Flow:
    return Flow("uid", plan_text(QUERY.replace("text", name_of("text")), SCHEMA).fragment, bytes(16), "home")


def name_of(kind: str) -> str:
    return next(column.name for column in SCHEMA.columns if column.type == kind)


def piece(fragment_flow: Flow, member: int, *, start: int = 3, excerpt: bool = False) -> Piece:
    fragment = fragment_flow.fragment
    groups = {
        "_pane": pa.array([start, start], pa.int64()),
        fragment.keys[0]: pa.array(["a", f"b{member}"]),
        **{one.name: values(one.name) for one in fragment.states},
    }
    counts = counters(np.array([start]), rows_in=4)
    return Piece(start, start + 1, 1 << member, encode(counts), encode(pa.table(groups)), excerpt)


def values(state: str) -> pa.Array:
    if "count" in state:
        return pa.array([2, 2], pa.int64())
    kind = pa.decimal128(38, 0) if "sum" in state else pa.timestamp("us")
    return pa.array([7, 8], pa.int64()).cast(kind) if "sum" not in state else pa.array([7, 8], kind)


def change(data: bytes, how: Callable[[pa.Table], pa.Table]) -> bytes:
    return encode(how(decode(data)))


def retyped(place: int, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        name = table.column_names[place]
        return table.set_column(place, name, pa.nulls(table.num_rows, kind))

    return change


BAD: dict[str, Callable[[Piece], Piece]] = {
    "no table": lambda one: replace(one, payload=b"none"),
    "no end": lambda one: replace(one, payload=one.payload[:-1]),
    "more at the end": lambda one: replace(one, payload=one.payload + one.payload),
    "a bit": lambda one: replace(one, payload=one.payload[:10] + b"\xff" + one.payload[11:]),
    "no panes": lambda one: replace(one, payload=change(one.payload, lambda t: t.drop_columns(["_pane"]))),
    "no key": lambda one: replace(
        one, payload=change(one.payload, lambda t: t.drop_columns(t.column_names[1:2]))
    ),
    "no state": lambda one: replace(
        one, payload=change(one.payload, lambda t: t.drop_columns(t.column_names[-1:]))
    ),
    "twice": lambda one: replace(
        one, payload=change(one.payload, lambda t: t.append_column(t.field(1), t.column(1)))
    ),
    "a null pane": lambda one: replace(one, payload=change(one.payload, retyped(0, pa.int64()))),
    "panes of doubles": lambda one: replace(one, payload=change(one.payload, retyped(0, pa.float64()))),
    "a key of numbers": lambda one: replace(one, payload=change(one.payload, retyped(1, pa.int64()))),
    "a key of lists": lambda one: replace(
        one, payload=change(one.payload, retyped(1, pa.list_(pa.string())))
    ),
    "a state of text": lambda one: replace(one, payload=change(one.payload, retyped(2, pa.string()))),
    "a count of doubles": lambda one: replace(one, payload=change(one.payload, retyped(2, pa.float64()))),
    "a tally of doubles": lambda one: replace(one, counters=change(one.counters, retyped(1, pa.float64()))),
    "no tally": lambda one: replace(one, counters=b"none"),
    "a tally of groups": lambda one: replace(one, counters=one.payload[:-8]),
}


def works(work: CommitPanes) -> list[tuple[tuple[Piece, str], ...]]:
    """What a root that is alone, and one that is a group's leader, say of it."""
    store = Store(":memory:")
    try:
        alone = panecommits.commit_panes(work, store, Makers(types=types_of))
        row, done = panecommits.made_panes(work, store, 1, Makers(types=types_of))
        assert bool(store.committed("uid")) is not bool(alone.unusable)
        assert (row is None) is bool(done.unusable)
        return [alone.unusable, done.unusable]
    finally:
        store.close()


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("how", BAD)
def test_whose_piece_cannot_be_used_is_known_and_the_others_are_merged(how: str, place: int) -> None:
    ours = flow()
    good = [piece(ours, member) for member in range(3)]
    pieces = [BAD[how](one) if number == place else one for number, one in enumerate(good)]
    done = panecommits.combine(Combine(ours, tuple(pieces)), types_of)
    assert [one for one, _ in done.unusable] == [pieces[place]]
    assert done.piece is not None
    assert done.piece.members == 0b111 & ~(1 << place)
    rest = tuple(one for one in good if one is not good[place])
    again = panecommits.combine(Combine(ours, rest), types_of)
    assert again.unusable == ()
    assert again.piece == done.piece
    for said in works(CommitPanes(ours, 3, 4, tuple(pieces), 0, 0b111, 1)):
        assert [one for one, _ in said] == [pieces[place]]
        assert all(why for _, why in said)


@pytest.mark.parametrize("how", BAD)
def test_a_piece_that_comes_alone_is_looked_at_too(how: str) -> None:
    ours = flow()
    bad = BAD[how](piece(ours, 0))
    for said in works(CommitPanes(ours, 3, 4, (bad,), 0, 1, 1)):
        assert [one for one, _ in said] == [bad]


def test_a_sum_that_cannot_be_is_its_sender_s() -> None:
    ours = flow()
    good, more = piece(ours, 0), piece(ours, 1)
    (place,) = (n for n, one in enumerate(decode(good.payload).schema.names) if "sum" in one)
    kind = pa.decimal128(38, 0)

    def huge(table: pa.Table) -> pa.Table:
        return table.set_column(place, table.column_names[place], pa.array([10**38 - 1] * 2, kind))

    bad = replace(more, payload=change(more.payload, huge))
    done = panecommits.combine(Combine(ours, (good, bad)), types_of)
    assert [one for one, _ in done.unusable] == [bad]


def test_of_bad_pieces_alone_nothing_goes_up() -> None:
    ours = flow()
    bad = tuple(replace(piece(ours, n), payload=b"none") for n in range(2))
    done = panecommits.combine(Combine(ours, bad), types_of)
    assert done.piece is None
    assert [one for one, _ in done.unusable] == list(bad)


def test_what_is_good_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counts(encoded: Sequence[bytes]) -> list[pa.Table]:
        read.append(len(encoded))
        return decode_all(encoded)

    monkeypatch.setattr(panetables, "decode_all", counts)
    ours = flow()
    panecommits.combine(Combine(ours, tuple(piece(ours, n) for n in range(3))), types_of)
    assert read == [3, 3]


def test_what_we_have_committed_ourselves_is_nobody_else_s() -> None:
    """A store that is damaged, or a bug of ours, stops the agent."""
    ours = flow()
    base = replace(piece(ours, 0), members=0, payload=b"none")
    with pytest.raises(PeerError):
        merge(ours.fragment, [piece(ours, 1)], types=types_of, below=[base])


def test_a_bug_of_ours_is_no_peer_s(monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: object) -> None:
        raise ElfBug("in the middle of it")

    monkeypatch.setattr(opening, "merged", bug)
    ours = flow()
    with pytest.raises(ElfBug):
        panecommits.combine(Combine(ours, (piece(ours, 0),)), types_of)


@pytest.mark.parametrize("case", [*queries(), *scalars()[::6]], ids=str)
def test_what_lanes_make_is_what_is_expected(case: Case) -> None:
    """Of queries that we know: through the map, a tree, the wire, and a merge."""
    fragment = plan_text(case.elf, SCHEMA).fragment
    table = rows()
    mapper = Mapper(fragment.map_sql, fragment.columns, fragment.tables)
    tree = BufferTree.of_partials(("_pane", *fragment.keys), fragment.task_states)
    made = []
    for half in (table.slice(0, 200), table.slice(200)):
        some = half.select([column.name for column in fragment.columns])
        made.append(mapper.run(some.append_column("_pane", pa.array([3] * half.num_rows, pa.int64()))))
        tree.insert_partials(made[-1])
    mapper.close()
    tables = [*made, tree.split_off("_pane", 4)]
    pieces = [Piece(3, 4, 1 << n, b"", encode(one)) for n, one in enumerate(tables)]
    for one in pieces:
        opened(fragment, [one], types_of)
    merge(fragment, pieces, types=types_of)
    wanted = types_of(fragment).names
    assert {*wanted, CREDIT, *COUNTED} >= {"_pane", *fragment.keys, *(one.name for one in fragment.states)}
    retyped = tables[0].set_column(
        1, tables[0].column_names[1], pa.nulls(tables[0].num_rows, pa.list_(pa.int8()))
    )
    with pytest.raises(PiecesUnusable):
        merge(fragment, [Piece(3, 4, 1, b"", encode(retyped))], types=types_of)


# -- at the root ---------------------------------------------------------------------------------------------


def proposed(root: Root, now_ms: int) -> CommitPanes:
    (work,) = root.propose(now_ms)
    return work


def three() -> Root:
    """A root with pieces of two of three members."""
    root = rooted(plan_text(QUERY.replace("text", name_of("text")), SCHEMA), 3, RootSettings())
    root.begin(10, 0)
    for member in range(3):
        root.hear(member, progress(11), 0)
    return root


def test_a_snapshot_is_refused_and_its_member_not_waited_for() -> None:
    root = three()
    for member in range(3):
        root.take(Piece(10, 11, 1 << member, payload=b"%d" % member))
    work = proposed(root, 100)
    bad = work.pieces[1]
    assert root.unusable(work, ((bad, "why"),)) == [(0b010, "why")]
    root.take(bad)
    again = proposed(root, 100)
    assert (again.members, again.added) == (0b101, 0b101)
    root.committed(again, 100)
    root.take(bad)
    assert root.propose(200) == []
    assert root.answers.verdict(1, 10, 11, 200) == "wait", "as of one that is held"
    assert root.answers.verdict(1, 10, 11, 10_000_000) == "final"
    assert not root.answers.lacks(1, 10, 11, 200)
    assert root.answers.missing(5_000) == []
    assert root.answers.unusable() == {"a1": (1, "why")}
    root.hear(1, progress(12), 300)
    root.take(Piece(11, 12, 0b010))
    assert root.answers.verdict(1, 11, 12, 300) == "wait"
    root.forget(12)
    root.check()


def test_of_a_merged_piece_the_members_are_asked_themselves() -> None:
    root = three()
    root.take(Piece(10, 11, 0b011, payload=b"both"))
    root.take(Piece(10, 11, 0b100))
    work = proposed(root, 100)
    whose = root.unusable(work, tuple((one, "why") for one in work.pieces if one.payload))
    assert whose == [(0b011, "why")]
    assert root.propose(200) == []
    assert {member for member, _, _ in root.answers.missing(2_000)} == {0, 1}
    for member in (0, 1):
        root.take(Piece(10, 11, 1 << member))
    assert proposed(root, 2_100).members == 0b111


def test_what_was_proposed_after_it_is_not_lost() -> None:
    """The same snapshot may be in several batches."""
    root = three()
    for member in range(3):
        root.hear(member, progress(14), 50)
    wide = Piece(10, 14, 0b001, payload=b"bad")
    root.take(wide)
    for start, end in ((10, 12), (12, 14)):
        root.take(Piece(start, end, 0b110, payload=b"%d" % start))
    done = []
    while found := root.propose(100):
        bad = tuple((one, "why") for one in found[0].pieces if one.payload == b"bad")
        if bad:
            root.unusable(found[0], bad)
        else:
            root.committed(found[0], 100)
            done.append((found[0].start, found[0].end, found[0].members))
    assert done == [(10, 11, 0b110), (11, 12, 0b110), (12, 14, 0b110)]
    root.take(wide)
    assert root.propose(200) == []
    root.check()


def test_a_part_that_cannot_be_opened_is_refused_and_others_are_not() -> None:
    root = three()
    for member in range(3):
        root.take(Piece(10, 11, 1 << member))
    root.committed(proposed(root, 100), 100)
    for name, payload in (((0, 1), b"good"), ((1, 1), b"bad"), ((1, 2), b"too")):
        root.take_part(name, Piece(10, 11, 0, payload=payload))
    work = proposed(root, 200)
    (bad,) = (one for one in work.pieces if one.payload == b"bad")
    assert root.unusable(work, ((bad, "why"),)) == [(0b010, "why")]
    assert root.answers.verdict_of_part((1, 1), 10) == "wait"
    root.take_part((1, 1), bad)
    again = proposed(root, 200)
    assert again.new == ((0, 1), (1, 2))
    root.committed(again, 200)
    assert root.answers.verdict_of_part((1, 2), 10) == "included"


def test_a_pane_in_which_nobody_is_left_goes_on() -> None:
    root = rooted(plan_text(QUERY.replace("text", name_of("text")), SCHEMA), 1)
    root.begin(10, 0)
    root.hear(0, progress(11), 0)
    root.take(Piece(10, 11, 1))
    work = proposed(root, 100)
    root.unusable(work, tuple((one, "why") for one in work.pieces))
    assert root.propose(200) == []
    late = root.stragglers.limit_ms() + 100
    root.hear(0, progress(11), late)
    empty = proposed(root, late)
    assert (empty.start, empty.end, empty.members) == (10, 11, 0)
