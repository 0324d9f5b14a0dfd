"""The long work of roots and masters, on threads: merge pieces, commit panes, assemble and commit windows.

Each function does what one effect asks, durably, and returns the event that tells of it. They open the
encoded tables that the protocol passes around closed. What is committed once stays as it is: a repeated
effect (after a crash) answers with what the store has.
"""

from __future__ import annotations

import time
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from agents.spans import Span, by_span, changed, micros, rows_of, spans_of, touched, without
from agents.status import status_of_all, status_of_skipped, status_of_windows
from agents.store import PaneCommit, PaneCommitName, Store, WindowCommit
from elf.aggregates import State, identity_row, merge_tables
from elf.batch import decode, encode
from elf.errors import PanesGone
from elf.job import parts
from elf.job.approximate import CUT_STATE, keep_best, with_bounds
from elf.job.assembly import Assembly
from elf.job.contributions import Piece, to_bytes
from elf.job.effects import Combine, CommitPanes, CommitWindows, Coverage, ReadCommits, StorePanes
from elf.job.events import Combined, CommitsRead, PanesCommitted, PanesStored, WindowsCommitted
from elf.job.messages import PaneRow, WindowResult
from elf.job.ports import FinisherPort
from elf.job.spec import END_OF_TIME, START_OF_TIME
from elf.job.tally import TALLY_STATES
from elf.job.tops import cut_panes
from elf.ql.plan import Fragment, Top

FINISH_ROWS: Final = 1 << 20
"""Groups that one run of the final fragment takes, or a little more."""
READ_ROWS_MAX: Final = 32
READ_BYTES_MAX: Final = 8 << 20
"""Commits, and bytes of them, that are sent to a reader at a time (one at least)."""


_Range = tuple[str, int, int, int]
"""Panes of a flow in one revision: flow, start, end, revision."""


class Kept:
    """What a master keeps in memory of one job's windows. It may be lost at any time."""

    def __init__(self) -> None:
        self._assembly: Assembly | None = None
        self._tally: pa.Table | None = None
        self._revisions: list[_Range] = []
        self._landmarks: tuple[int, ...] = ()

    def resume(self, effect: CommitWindows) -> tuple[Assembly, int]:
        """What these windows go on from, and the event time up to which nothing need be read."""
        known, pane_us = self._assembly, effect.spec.plan.fragment.pane_us
        if known is not None and known.next_us == effect.first_us and self._landmarks == effect.landmarks:
            known.calendar = replace(known.calendar, until_us=effect.until_us)
            held = (bounded(us, pane_us) for us in (known.held_from_us, effect.first_us))
            if self._revisions == _revisions(effect.coverage, *held):
                return known, effect.first_us
        self._assembly, self._tally = None, None
        return Assembly(effect.spec.plan, effect.calendar), effect.calendar.needs_from(effect.first_us)

    def count(self, tally: pa.Table | None, start: int) -> pa.Table | None:
        """The tally of the windows, and keep it: what was kept from pane ``start`` on, and ``tally``."""
        kept = self._tally
        if kept is not None:
            kept = kept.filter(pc.greater_equal(kept["_pane"], start))
        self._tally = joined([kept, tally])
        return self._tally

    def keep(self, assembly: Assembly, effect: CommitWindows) -> None:
        """The next windows may go on from here, unless these were the last."""
        self._landmarks = effect.landmarks
        self._assembly = None if effect.last_us >= END_OF_TIME else assembly
        pane_us = effect.spec.plan.fragment.pane_us
        held = (bounded(us, pane_us) for us in (assembly.held_from_us, effect.last_us))
        self._revisions = _revisions(effect.coverage, *held)


def bounded(us: int, pane_us: int) -> int:
    """The pane that starts at ``us``; the ends of time stay what they are."""
    return us if abs(us) >= END_OF_TIME else us // pane_us


def _revisions(coverage: Sequence[Coverage], start: int, end: int) -> list[_Range]:
    """Panes ``[start, end)`` as ranges of one revision each: what decides their contents."""
    found: list[_Range] = []
    for part in coverage:
        begin, stop = max(part.start, start), min(part.end, end)
        if begin >= stop:
            continue
        if found and (found[-1][0], *found[-1][2:]) == (part.flow, begin, part.revision):
            begin = found.pop()[1]
        found.append((part.flow, begin, stop, part.revision))
    return found


def combine(effect: Combine) -> Combined:
    """Merge disjoint pieces into one for the parent."""
    began = time.thread_time_ns()
    tally, payload = _merge(effect.flow.fragment, effect.batch.pieces, effect.flow.fragment.keep)
    batch = effect.batch
    piece = Piece(batch.start, batch.end, batch.members, tally, payload)
    return Combined(effect.flow, piece, us_since(began))


def us_since(began_ns: int) -> int:
    """CPU time of this thread since then, in µs."""
    return (time.thread_time_ns() - began_ns) // 1_000


def commit_panes(effect: CommitPanes, store: Store) -> PanesCommitted:
    """Merge a batch, on top of the revision before it, and commit it."""
    began = time.thread_time_ns()
    row = merged_panes(effect, store)
    seq = store.commit_panes(row)
    return PanesCommitted(effect, seq, *size_of(row), us_since(began))


def size_of(row: PaneCommit) -> tuple[int, int]:
    """(keys, bytes) of a commit."""
    keys = decode(row.payload).num_rows if row.payload else 0
    return keys, len(row.tally) + len(row.payload)


def merged_panes(effect: CommitPanes, store: Store, seq: int = 0) -> PaneCommit:
    """Merge a batch, on top of the revision before it."""
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
    return PaneCommit(
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
        seq,
        parts=parts.to_bytes(effect.parts),
    )


def store_panes(effect: StorePanes, store: Store) -> PanesStored:
    """Keep commits that came from the flow's root, under its numbers."""
    store.commit_panes(
        *(
            PaneCommit(
                effect.stored_as,
                row.start,
                row.end,
                row.revision,
                row.members,
                row.roster_version,
                row.epoch,
                row.term,
                row.tally,
                row.payload,
                row.seq,
            )
            for row in effect.rows
        )
    )
    return PanesStored(effect.flow, effect.stored_as, effect.rows)


def read_commits(effect: ReadCommits, store: Store) -> CommitsRead:
    """Some commits for a reader, each with the number of the one before it."""
    rows = store.commits_after(effect.flow.uid, effect.after, effect.start, READ_ROWS_MAX + 1)
    after, size = effect.after, 0
    found: list[PaneRow] = []
    for place, row in enumerate(rows[:READ_ROWS_MAX]):
        payload = _cut(row.payload, effect) if effect.cut is not None else row.payload
        size += len(row.tally) + len(payload)
        full = place + 1 == READ_ROWS_MAX or size >= READ_BYTES_MAX
        found.append(
            PaneRow(
                flow=row.flow,
                after=after,
                seq=row.seq,
                more=full and place + 1 < len(rows),
                start=row.start,
                end=row.end,
                revision=row.revision,
                members=row.members,
                roster_version=row.roster_version,
                epoch=row.epoch,
                term=row.term,
                tally=row.tally,
                payload=payload,
                cut=effect.cut,
                wanted=effect.start,
            )
        )
        after = row.seq
        if full:
            break
    return CommitsRead(effect.flow, effect.to, tuple(found))


def _cut(payload: bytes, effect: ReadCommits) -> bytes:
    """The rows that the reader needs."""
    if not payload or effect.cut is None:
        return payload
    table = decode(payload)
    kept = cut_panes(table, effect.cut, effect.flow.fragment.states)
    return encode(kept) if kept.num_rows < table.num_rows else payload


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


def _merge(fragment: Fragment, pieces: Sequence[Piece], keep: Top | None = None) -> tuple[bytes, bytes]:
    """(tally, payload); ``keep``: of an approximate fragment the best groups only."""
    if len(pieces) == 1 and not pieces[0].tally and not pieces[0].payload:
        return b"", b""
    keys = ("_pane", *fragment.keys)
    tally = merged([opened(p.tally, p.start, p.end) for p in pieces], ("_pane",), tally_states(fragment))
    payload = merged([opened(p.payload, p.start, p.end) for p in pieces], keys, fragment.states)
    if keep is not None and payload is not None:
        payload, tally = keep_best(payload, tally, keep)
    return (encode(tally) if tally is not None else b""), (encode(payload) if payload is not None else b"")


def tally_states(fragment: Fragment) -> tuple[State, ...]:
    """The states of a tally of a fragment's panes."""
    return TALLY_STATES if fragment.keep is None else (*TALLY_STATES, CUT_STATE)


def merged(
    tables: Sequence[pa.Table | None], keys: Sequence[str], states: Sequence[State]
) -> pa.Table | None:
    present = [table for table in tables if table is not None and table.num_rows]
    return merge_tables(present, keys, states) if present else None


def opened(data: bytes, start: int, end: int) -> pa.Table | None:
    """The panes ``[start, end)`` of an encoded table."""
    if not data:
        return None
    table = decode(data)
    panes = table["_pane"].to_numpy()
    inside = (panes >= start) & (panes < end)
    return table if inside.all() else table.filter(pa.array(inside))


# -- windows -------------------------------------------------------------------------------------------------


def commit_windows(
    effect: CommitWindows, store: Store, finisher: FinisherPort, master: str, kept: Kept | None = None
) -> WindowsCommitted:
    """Assemble the windows that end in ``(first_us, last_us]``, run the final fragment, and commit them."""
    began = time.thread_time_ns()
    row, new = made_windows(effect, store, finisher, kept)
    if new:
        store.commit_windows(row)
    result = published(effect, row, master)
    return WindowsCommitted(effect, result, decode(row.rows).num_rows, us_since(began))


def published(effect: CommitWindows, row: WindowCommit, master: str) -> WindowResult | None:
    """What is published of a commit; None if it is of no windows."""
    if not effect.final and not decode(row.status).num_rows and not decode(row.rows).num_rows:
        return None
    return window_result(effect.spec.name, row, master, final=effect.final)


def made_windows(
    effect: CommitWindows, store: Store, finisher: FinisherPort, kept: Kept | None = None
) -> tuple[WindowCommit, bool]:
    """Windows to be committed; or, as (row, False), as they are committed already.

    What is ``kept`` of the windows before spares reading and merging their panes again; it decides nothing.
    Windows that are made again after a revision are made of their panes, beside what is kept.
    """
    names = names_of(effect, store)
    check_there(effect, names)
    revision = sum(name.revision > 0 for name in names)
    row = _stored(effect, store, revision)
    if row is not None:
        return row, False
    kept = Kept() if kept is None or effect.revised is not None else kept
    status, rows = _assemble(effect, names, store, finisher, kept)
    made = WindowCommit(
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
    return made, True


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
    version = effect.spec.version
    same = [r for r in rows if (r.first_start, r.last_end) == (effect.first_us, effect.last_us)]
    same = [r for r in same if r.version == version]
    return next((r for r in same if r.revision == revision), None)


def names_of(effect: CommitWindows, store: Store) -> list[PaneCommitName]:
    """The pane commits that the effect speaks of: none that was made after it."""
    found: dict[_Range, PaneCommitName] = {}
    for part in effect.coverage:
        for name in store.pane_names(part.flow, part.start, part.end) if not part.lost else ():
            if name.revision <= part.revision:
                found[(name.flow, name.start, name.end, name.revision)] = name
    return list(found.values())


def check_there(effect: CommitWindows, names: Sequence[PaneCommitName]) -> None:
    """Raises ``PanesGone`` unless the store has all that the effect speaks of."""
    known: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for name in names:
        known[name.flow, name.revision].append((name.start, name.end))
    for spans in known.values():
        spans.sort()
    for part in effect.coverage:
        spans, at = known.get((part.flow, part.revision), []), part.start
        for start, end in spans[max(0, bisect(spans, (at, END_OF_TIME)) - 1) :] if not part.lost else ():
            if at >= part.end or start > at:
                break
            at = max(at, end)
        if at < part.end and not part.lost:
            raise PanesGone(f"panes [{at}, {part.end}) of {part.flow} are not here any more")


def pieces_of(effect: CommitWindows, store: Store, start: int, end: int) -> list[Piece]:
    """The committed panes of ``[start, end)``, as they were when the effect was made: those of one flow are
    disjoint.
    """
    found: list[Piece] = []
    for part in effect.coverage:
        begin, stop = max(part.start, start), min(part.end, end)
        if begin < stop and not part.lost:
            rows = store.pane_commits(part.flow, begin, stop)
            found += _latest((row for row in rows if row.revision <= part.revision), begin, stop)
    return found


def _assemble(
    effect: CommitWindows,
    names: Sequence[PaneCommitName],
    store: Store,
    finisher: FinisherPort,
    kept: Kept,
) -> tuple[pa.Table, pa.Table]:
    """(status, rows) of the windows."""
    plan = effect.spec.plan
    if effect.skipped_to is not None:
        return status_of_skipped(effect, effect.skipped_to), pa.table({})
    if not plan.windows:
        pieces = pieces_of(effect, store, START_OF_TIME, END_OF_TIME)
        counts = merged([opened(p.tally, p.start, p.end) for p in pieces], (), tally_states(plan.fragment))
        groups = merged(
            [opened(p.payload, p.start, p.end) for p in pieces], plan.fragment.keys, plan.fragment.states
        )
        rows = finisher.run(groups) if groups is not None else _no_rows(effect, finisher)
        return status_of_all(effect, names, counts), with_bounds(rows, counts, plan)
    pane_us = plan.fragment.pane_us
    assembly, from_us = kept.resume(effect)
    start, end = bounded(from_us, pane_us), bounded(effect.last_us, pane_us)
    pieces = pieces_of(effect, store, start, end)
    tables = [opened(p.payload, p.start, p.end) for p in pieces]
    if plan.more:  # a group may have rows in several streams, and is in one key range
        keys = ("_pane", *plan.fragment.keys)
        groups = merged(tables, keys, plan.fragment.states)
    else:
        groups = joined(tables)
    rows = finished(assembly.windows(effect.first_us, effect.last_us, groups), finisher)
    held = bounded(effect.calendar.needs_from(effect.first_us), pane_us)
    tally = kept.count(joined([opened(p.tally, p.start, p.end) for p in pieces]), held)
    kept.keep(assembly, effect)
    rows = with_bounds(rows, tally, plan)
    calendar = assembly.calendar
    if effect.revised is None:
        spans = spans_of(effect, calendar, tally, rows)
    elif calendar.session is None:
        spans = touched(spans_of(effect, calendar, tally, rows), effect.revised, pane_us)
        rows = rows_of(rows, spans)
    else:
        spans = changed(rows, _published(effect, store))
        rows = rows_of(rows, spans)
    status = status_of_windows(effect, spans, names, tally)
    return status, _without_skipped(rows, status)


def _without_skipped(rows: pa.Table, status: pa.Table) -> pa.Table:
    """A window that lacks panes has no rows."""
    skipped = set(by_span(status.filter(status["skipped"])))
    return without(rows, skipped) if skipped else rows


def _published(effect: CommitWindows, store: Store) -> dict[Span, tuple[int, pa.Table]]:
    """What was said last of each window that ends in the effect's range: (revision, rows)."""
    found: dict[Span, tuple[int, pa.Table]] = {}
    for row in store.windows(effect.spec.uid, effect.first_us, effect.last_us):
        if row.version != effect.spec.version:
            continue
        status, rows = decode(row.status), decode(row.rows)
        parts = by_span(rows)
        for one in status.to_pylist():
            span = (micros(one["window_start"]), micros(one["window_end"]))
            inside = effect.first_us < span[1] <= effect.last_us
            if inside and (span not in found or found[span][0] <= one["revision"]):
                found[span] = one["revision"], parts.get(span, rows.slice(0, 0))
    return found


def joined(tables: Sequence[pa.Table | None]) -> pa.Table | None:
    present = [table for table in tables if table is not None and table.num_rows]
    return pa.concat_tables(present, promote_options="permissive") if present else None


def finished(groups: Iterable[pa.Table], finisher: FinisherPort) -> pa.Table:
    """The final fragment over windows, many at a time but never so many that they fill the memory."""
    found: list[pa.Table] = []
    waiting: list[pa.Table] = []
    for table in groups:
        waiting += [table] if table.num_rows else []
        if sum(one.num_rows for one in waiting) >= FINISH_ROWS:
            found.append(finisher.run(pa.concat_tables(waiting)))
            waiting = []
    if waiting:
        found.append(finisher.run(pa.concat_tables(waiting)))
    return pa.concat_tables(found) if found else pa.table({})


def _no_rows(effect: CommitWindows, finisher: FinisherPort) -> pa.Table:
    """Over no rows at all a global aggregate without a window still has one row, also one over a subquery's
    groups, of which there are none; everything else has none.
    """
    plan = effect.spec.plan
    fragment = plan.fragment
    grouped = len(fragment.keys) > len(fragment.cells)
    if grouped and not plan.one_over_all:
        return pa.table({})
    schema = pa.schema([(s.name, pa.int64() if s.identity_zero else pa.null()) for s in fragment.states])
    row = identity_row(schema, fragment.states)
    for key in fragment.keys if grouped else fragment.cells:
        row = row.append_column(key, pa.nulls(1))
    return finisher.run(row.slice(0, 0) if grouped else row)
