"""The long work of roots and masters, on threads: merge pieces, commit panes, assemble and commit windows.

Each function does what one effect asks, durably, and returns the event that tells of it. They open the
encoded tables that the protocol passes around closed. What is committed once stays as it is: a repeated
effect (after a crash) answers with what the store has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from agents.store import PaneCommit, Store, WindowCommit
from elf import windows
from elf.aggregates import State, identity_row, merge_tables
from elf.batch import decode, encode
from elf.job.contributions import Piece, numbers, to_bytes
from elf.job.effects import Combine, CommitPanes, CommitWindows, Coverage
from elf.job.events import Combined, PanesCommitted, WindowsCommitted
from elf.job.messages import WindowResult
from elf.job.ports import FinisherPort
from elf.job.spec import END_OF_TIME, START_OF_TIME
from elf.job.tally import TALLY_COLUMNS, TALLY_STATES
from elf.ql.plan import Fragment

STATUS_ROWS_MAX: Final = 1_000
"""Windows without any row get a status of their own up to this many at a time; beyond, only those with rows
do.
"""


def combine(effect: Combine) -> Combined:
    """Merge disjoint pieces into one for the parent."""
    tally, payload = _merge(effect.flow.fragment, effect.batch.pieces)
    batch = effect.batch
    return Combined(effect.flow, Piece(batch.start, batch.end, batch.members, tally, payload))


def commit_panes(effect: CommitPanes, store: Store) -> PanesCommitted:
    """Merge a batch, on top of the revision before it, and commit it."""
    batch, flow = effect.batch, effect.flow
    pieces = list(batch.pieces)
    if effect.revision:
        below = [
            row
            for row in store.pane_commits(flow.uid, batch.start, batch.end)
            if row.revision < effect.revision
        ]
        pieces += _latest(below, batch.start, batch.end)
    tally, payload = _merge(flow.fragment, pieces)
    store.commit_panes(
        PaneCommit(
            flow.uid,
            batch.start,
            batch.end,
            effect.revision,
            to_bytes(effect.members),
            effect.roster_version,
            effect.epoch,
            effect.term,
            tally,
            payload,
        )
    )
    return PanesCommitted(effect)


def _latest(rows: Iterable[PaneCommit], start: int, end: int) -> list[Piece]:
    """For each pane of ``[start, end)`` its highest revision, as disjoint pieces."""
    found: list[Piece] = []
    for row in sorted(rows, key=lambda row: row.revision):
        new = Piece(max(row.start, start), min(row.end, end), 0, row.tally, row.payload)
        kept: list[Piece] = []
        for old in found:
            left, right = old.clip(old.start, new.start), old.clip(new.end, old.end)
            kept += [part for part in (left, right) if part.start < part.end]
        found = [*kept, new]
    return found


def _merge(fragment: Fragment, pieces: Sequence[Piece]) -> tuple[bytes, bytes]:
    if len(pieces) == 1 and not pieces[0].tally and not pieces[0].payload:
        return b"", b""
    keys = ("_pane", *fragment.keys)
    tally = _merged([_open(p.tally, p.start, p.end) for p in pieces], ("_pane",), TALLY_STATES)
    payload = _merged([_open(p.payload, p.start, p.end) for p in pieces], keys, fragment.states)
    return (encode(tally) if tally is not None else b""), (encode(payload) if payload is not None else b"")


def _merged(
    tables: Sequence[pa.Table | None], keys: Sequence[str], states: Sequence[State]
) -> pa.Table | None:
    present = [table for table in tables if table is not None and table.num_rows]
    return merge_tables(present, keys, states) if present else None


def _open(data: bytes, start: int, end: int) -> pa.Table | None:
    """The panes ``[start, end)`` of an encoded table."""
    if not data:
        return None
    table = decode(data)
    panes = table["_pane"].to_numpy()
    inside = (panes >= start) & (panes < end)
    return table if inside.all() else table.filter(pa.array(inside))


# -- windows -------------------------------------------------------------------------------------------------


def commit_windows(
    effect: CommitWindows, store: Store, finisher: FinisherPort, master: str
) -> WindowsCommitted:
    """Assemble the windows that start in ``[first_us, last_us)``, run the final fragment, and commit them."""
    commits = _commits(effect, store)
    revision = sum(commit.revision > 0 for commit in commits)
    row = _stored(effect, store, revision)
    if row is None:
        status, rows = _assemble(effect, commits, finisher)
        row = WindowCommit(
            effect.spec.uid,
            effect.first_us,
            effect.last_us,
            revision,
            effect.spec.version,
            False,
            encode(status),
            encode(rows),
            repr(effect.coverage).encode(),
        )
        store.commit_windows(row)
    if not decode(row.status).num_rows and not decode(row.rows).num_rows:
        return WindowsCommitted(effect, None)
    return WindowsCommitted(effect, window_result(effect.spec.name, row, master, final=effect.final))


def window_result(name: str, row: WindowCommit, master: str, *, final: bool = False) -> WindowResult:
    """A stored commit as it is published."""
    return WindowResult(
        job=row.job,
        name=name,
        version=row.version,
        provisional=row.provisional,
        master=master,
        first_us=row.first_start,
        last_us=row.last_end,
        revision=row.revision,
        final=final,
        status=row.status,
        payload=row.rows,
    )


def _stored(effect: CommitWindows, store: Store, revision: int) -> WindowCommit | None:
    rows = store.windows(effect.spec.uid, effect.first_us - 1, effect.last_us + 1)
    same = [r for r in rows if (r.first_start, r.last_end) == (effect.first_us, effect.last_us)]
    return next((r for r in same if r.revision == revision), None)


def _commits(effect: CommitWindows, store: Store) -> list[PaneCommit]:
    """The pane commits that the effect speaks of: none that was made after it."""
    found: dict[tuple[int, int, int], PaneCommit] = {}
    for part in effect.coverage:
        for row in store.pane_commits(effect.spec.flows[0].uid, part.start, part.end):
            if row.revision <= part.revision:
                found[(row.start, row.end, row.revision)] = row
    return list(found.values())


def _assemble(
    effect: CommitWindows, commits: Sequence[PaneCommit], finisher: FinisherPort
) -> tuple[pa.Table, pa.Table]:
    """(status, rows) of the windows."""
    plan = effect.spec.plan
    start = min((part.start for part in effect.coverage), default=START_OF_TIME)
    end = max((part.end for part in effect.coverage), default=END_OF_TIME)
    pieces = _latest(commits, start, end)
    keys, states = plan.fragment.keys, plan.fragment.states
    groups = _merged([_open(p.payload, p.start, p.end) for p in pieces], ("_pane", *keys), states)
    tally = _merged([_open(p.tally, p.start, p.end) for p in pieces], ("_pane",), TALLY_STATES)
    status = _status(effect, commits, _by_window(tally, (), TALLY_STATES, effect))
    if groups is None:
        return status, _no_rows(effect, finisher)
    by_window = _by_window(groups, keys, states, effect)
    if by_window is None:
        return status, pa.table({})
    return status, finisher.run(by_window)


def _no_rows(effect: CommitWindows, finisher: FinisherPort) -> pa.Table:
    """Over no rows at all a global aggregate without a window still has one row; everything else has none."""
    plan = effect.spec.plan
    if plan.window is not None or plan.fragment.keys:
        return pa.table({})
    schema = pa.schema([(s.name, pa.int64() if s.identity_zero else pa.null()) for s in plan.fragment.states])
    return finisher.run(identity_row(schema, plan.fragment.states))


def _by_window(
    table: pa.Table | None, keys: Sequence[str], states: Sequence[State], effect: CommitWindows
) -> pa.Table | None:
    """Merge panes into the windows that hold them: ``window_start``, ``window_end``, keys, states."""
    window = effect.spec.plan.window
    if table is None or window is None:
        return None if table is None else merge_tables([table], keys, states)
    panes = table["_pane"].to_numpy()
    index, starts = windows.expand(panes, effect.spec.plan.fragment.pane_us, window.size_us, window.slide_us)
    inside = (starts >= effect.first_us) & (starts < effect.last_us)
    index, starts = index[inside], starts[inside]
    if not len(index):
        return None
    spread = table.take(pa.array(index)).append_column("window_start", pa.array(starts))
    merged = merge_tables([spread], ("window_start", *keys), states)
    begin = merged["window_start"].to_numpy()
    times = [pa.array(begin, pa.timestamp("us")), pa.array(begin + window.size_us, pa.timestamp("us"))]
    rest = merged.drop_columns(["window_start"])
    return pa.table([*times, *rest.columns], names=["window_start", "window_end", *rest.column_names])


STATUS_SCHEMA: Final = pa.schema(
    [
        ("window_start", pa.timestamp("us")),
        ("window_end", pa.timestamp("us")),
        ("revision", pa.int64()),
        ("expected", pa.int64()),
        ("reported", pa.int64()),
        ("missing", pa.list_(pa.string())),
        *((name, pa.int64()) for name in TALLY_COLUMNS),
    ]
)


def _status(effect: CommitWindows, commits: Sequence[PaneCommit], tally: pa.Table | None) -> pa.Table:
    """A row a window: coverage from the commits, counts from the tally."""
    window = effect.spec.plan.window
    if window is None:
        counts = _counts(tally, 0) if tally is not None else {}
        return pa.Table.from_pylist([_status_row(effect, commits, None, None, counts)], schema=STATUS_SCHEMA)
    known: dict[int, dict[str, int]] = {}
    if tally is not None:
        starts = pc.cast(tally["window_start"], pa.int64()).to_pylist()
        known = {start: _counts(tally, i) for i, start in enumerate(starts)}
    begins: Iterable[int] = sorted(known)
    span = effect.last_us - effect.first_us
    if span <= STATUS_ROWS_MAX * window.slide_us:
        begins = range(effect.first_us, effect.last_us, window.slide_us)
    rows = [
        _status_row(effect, commits, start, start + window.size_us, known.get(start, {})) for start in begins
    ]
    return pa.Table.from_pylist(rows, schema=STATUS_SCHEMA)


def _counts(tally: pa.Table, index: int) -> dict[str, int]:
    return {name: tally[name][index].as_py() for name in TALLY_COLUMNS}


def _status_row(
    effect: CommitWindows,
    commits: Sequence[PaneCommit],
    start: int | None,
    end: int | None,
    counts: dict[str, int],
) -> dict[str, object]:
    pane_us = effect.spec.plan.fragment.pane_us
    first = START_OF_TIME if start is None else start // pane_us
    last = END_OF_TIME if end is None else end // pane_us
    expected, missing = _covered(effect.coverage, first, last)
    names = dict(effect.names)
    return {
        "window_start": start,
        "window_end": end,
        "revision": sum(c.revision > 0 and c.start < last and first < c.end for c in commits),
        "expected": expected.bit_count(),
        "reported": (expected & ~missing).bit_count(),
        "missing": [names.get(number, str(number)) for number in numbers(missing)],
        **{name: counts.get(name, 0) for name in TALLY_COLUMNS},
    }


def _covered(coverage: Sequence[Coverage], first: int, last: int) -> tuple[int, int]:
    """(expected, missing in at least one pane) of panes ``[first, last)``."""
    expected = missing = 0
    for part in coverage:
        if part.start < last and first < part.end:
            expected |= part.expected
            missing |= part.expected & ~part.reported
    return expected, missing
