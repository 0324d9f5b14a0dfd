"""The long work of roots, and of copies of flows, on threads: merge pieces, commit panes, read commits.

Each function does what one effect asks, durably, and returns the event that tells of it. They open the
encoded tables that the protocol passes around closed. What is committed once stays as it is: a repeated
effect (after a crash) answers with what the store has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from agents.committing import opening
from agents.committing.opening import PiecesUnusable, Types
from agents.committing.panetables import Known, Merged, check_covered, latest, merged_counters
from agents.committing.reducing import ReduceFunction, of_panes
from agents.committing.staging import Stages, staged_panes
from agents.disk.store import Store
from elf.batch import decode, encode
from elf.errors import ElfBug, PanesGone, UserError
from elf.fields import replace
from elf.functions.cpu import cpu_us
from elf.job import parts
from elf.job.commits import PaneCommit
from elf.job.contributions import Piece, UnusablePieces, members_of, to_bytes
from elf.job.counters import COUNTER_SCHEMA, COUNTER_STATES, UNREDUCED
from elf.job.effects import Combine, CommitPanes, ReadCommits, StorePanes
from elf.job.events import Combined, CommitsRead, PanesCommitted, PanesStored
from elf.job.messages.rollup import PaneRow
from elf.job.snapshots import Threshold
from elf.job.spec import END_OF_TIME, START_OF_TIME
from elf.job.thresholds import Unsure, first_rows, threshold_of
from elf.job.tops import cut_panes
from elf.ql.plan import Fragment

Merge = Callable[[pa.Table], pa.Table]
"""The same groups in fewer rows (``agents.tasks.aggregating``)."""
FAILURES_MAX: Final = 64
"""How often later stages fail on panes of a commit before those they fail on are no longer told apart."""
READ_ROWS_MAX: Final = 32
READ_BYTES_MAX: Final = 8 << 20
"""Commits, and bytes of them, that are sent to a reader at a time (one at least)."""


class Size(NamedTuple):
    """Of a commit. ``panes``: empty ones too, but where they begin or end with all times."""

    keys: int
    bytes: int
    panes: int
    rows: int


class MadePanes(NamedTuple):
    """What is to be committed of panes, its tables as they are in it, and what agents may leave out of the
    next."""

    row: PaneCommit
    tables: Merged
    threshold: Threshold | None
    unstaged: str = ""
    """Why the later stages of its query were not made of it."""

    @property
    def known(self) -> Known:
        """Its tables, which need not be opened again."""
        return self.tables.known(self.row.counters, self.row.payload)


class Makers(NamedTuple):
    """What panes are made with, beside the merge itself. ``reduces``: the fragment's reduce function, if it
    has one; ``types``: how its columns are to be; ``stages``: what runs its stage, if it has one; ``merge``:
    what merges states of people's own aggregates."""

    reduces: ReduceFunction | None = None
    types: Types | None = None
    stages: Stages | None = None
    merge: Merge | None = None


PLAIN: Final = Makers()
"""Of a fragment that has none of these."""


def combine(effect: Combine, types: Types | None = None, merge: Merge | None = None) -> Combined:
    """Merge disjoint pieces into one for the parent, but for those that cannot be used; ``types``: of
    columns; ``merge``: what merges states of aggregates of people's own."""
    began = cpu_us()
    if effect.unit > 1:
        return _one(effect, types, merge)
    fragment, pieces = effect.flow.fragment, effect.pieces
    start, end, members = pieces[0].start, pieces[0].end, members_of(pieces)
    unusable: UnusablePieces = ()
    while True:
        try:
            merged = opening.merge(fragment, pieces, fragment.keep, types, last=False)
            break
        except PiecesUnusable as error:
            unusable += error.pieces
            bad = [piece for piece, _ in unusable]
            pieces = tuple(piece for piece in pieces if piece not in bad)
        if not pieces:
            return Combined(effect.flow, None, cpu_us() - began, unusable)
    merged = _thinned(merged, merge)
    excerpt = any(piece.excerpt for piece in pieces)
    for left_out, _ in unusable:
        members &= ~left_out.members
    piece = Piece(start, end, members, *merged.encoded(), excerpt)
    return Combined(effect.flow, piece, cpu_us() - began, unusable)


def _one(effect: Combine, types: Types | None, merge: Merge | None) -> Combined:
    """Panes of a unit as one. Where a piece cannot be used, none is: the root asks their members itself."""
    began, pieces = cpu_us(), effect.pieces
    start, members = min(piece.start for piece in pieces), 0
    for piece in pieces:
        members |= piece.members
    try:
        tables = opening.merge(effect.flow.fragment, pieces, None, types, last=False, unit=effect.unit)
    except PiecesUnusable as error:
        return Combined(effect.flow, None, cpu_us() - began, error.pieces)
    encoded = _thinned(tables, merge).encoded()
    piece = Piece(start, start + effect.unit, members, *encoded, unit=effect.unit)
    return Combined(effect.flow, piece, cpu_us() - began)


def _thinned(tables: Merged, merge: Merge | None) -> Merged:
    groups = tables.groups
    return tables if merge is None or groups is None else tables._replace(groups=merge(groups))


def commit_panes(work: CommitPanes, store: Store, makers: Makers = PLAIN) -> PanesCommitted:
    """Merge pieces, on top of the revision before, and commit them, unless that is gone, groups may be
    missing, or some pieces cannot be used."""
    made, done = made_panes(work, store, 0, makers)
    return done if made is None else replace(done, seq=store.commit_panes(made.row))


def made_panes(
    work: CommitPanes, store: Store, seq: int, makers: Makers = PLAIN
) -> tuple[MadePanes | None, PanesCommitted]:
    """What is to be committed, and what is said then; None where it cannot be."""
    began = cpu_us()
    try:
        made = merged_panes(work, store, seq, makers)
    except PanesGone:
        return None, PanesCommitted(work, 0, gone=True)
    except Unsure:
        return None, PanesCommitted(work, 0, unsure=True)
    except PiecesUnusable as error:
        return None, PanesCommitted(work, 0, unusable=error.pieces)
    size, failure = size_of(made), "" if makers.reduces is None else makers.reduces.failure
    took = cpu_us() - began
    return made, PanesCommitted(
        work,
        seq,
        size.keys,
        size.bytes,
        took,
        failure=failure,
        unstaged=made.unstaged,
        threshold=made.threshold,
        panes=size.panes,
        rows=size.rows,
    )


def size_of(made: MadePanes) -> Size:
    """How much there is in a commit."""
    row, (counters, groups) = made.row, made.tables
    bounded = row.start > START_OF_TIME and row.end < END_OF_TIME
    there = 0 if counters is None else counters.num_rows
    return Size(
        0 if groups is None else groups.num_rows,
        len(row.counters) + len(row.payload),
        row.end - row.start if bounded else there,
        0 if counters is None else pc.sum(counters["rows_in"]).as_py() or 0,
    )


def merged_panes(effect: CommitPanes, store: Store, seq: int = 0, makers: Makers = PLAIN) -> MadePanes:
    """Merge pieces, on top of the revision before, and find what agents may leave out of the next.

    Raises ``PanesGone`` if that has been dropped, ``Unsure`` if groups may be missing, ``PiecesUnusable``.
    """
    flow, start, end = effect.flow, effect.start, effect.end
    base: list[Piece] = []
    if effect.revision:
        below = [row for row in store.pane_commits(flow.uid, start, end) if row.revision < effect.revision]
        if flow.fragment.changes_panes:
            before = store.raw_of(flow.uid, start, end)
            below = [
                replace(row, payload=before.get((row.start, row.revision), row.payload)) for row in below
            ]
        base = latest(below, start, end)
        check_covered(flow.uid, [(piece.start, piece.end) for piece in base], start, end)
    tables, threshold = opening.merge(flow.fragment, effect.pieces, types=makers.types, below=base), None
    tables = _thinned(tables, makers.merge)
    if flow.fragment.first is not None:
        tables, threshold = _first_rows(effect, tables)
    raw, unstaged = b"", ""
    if flow.fragment.changes_panes:
        _, raw = tables.encoded()
    if flow.fragment.reduce is not None:
        tables = _reduced(effect, tables, makers.reduces)
    if flow.fragment.stage is not None:
        tables, unstaged = _staged(effect, tables, makers.stages)
    counters, payload = tables.encoded()
    row = PaneCommit(
        flow.uid,
        start,
        end,
        effect.revision,
        to_bytes(effect.members),
        effect.roster_version,
        counters,
        payload,
        seq,
        parts=parts.to_bytes(effect.parts),
        raw=raw if raw != payload else b"",
    )
    return MadePanes(row, tables, threshold, unstaged)


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
                row.counters,
                row.payload,
                row.seq,
                row.parts,
            )
            for row in effect.rows
        )
    )
    return PanesStored(effect.flow, effect.stored_as, effect.rows)


def read_commits(effect: ReadCommits, store: Store) -> CommitsRead:
    """Some commits for a reader, each with the number of the one before it."""
    rows = store.commits_after(effect.flow.uid, effect.after, effect.start, READ_ROWS_MAX + 1)
    after, size = effect.after, 0
    late = store.parts_of(effect.flow.uid)
    found: list[PaneRow] = []
    for place, row in enumerate(rows[:READ_ROWS_MAX]):
        payload = _cut(row.payload, effect) if effect.cut is not None else row.payload
        size += len(row.counters) + len(payload)
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
                counters=row.counters,
                payload=payload,
                cut=effect.cut,
                wanted=effect.start,
                parts=late.get((row.start, row.revision), b""),
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


def _first_rows(effect: CommitPanes, tables: Merged) -> tuple[Merged, Threshold | None]:
    """The first rows of each pane alone, and what agents may leave out of the next."""
    if tables.groups is None and any(piece.excerpt for piece in effect.pieces):
        raise Unsure("all groups were left out")
    if tables.groups is None:
        return tables, None
    fragment = effect.flow.fragment
    threshold = threshold_of(tables.groups, effect.members.bit_count(), fragment)
    groups, counters = first_rows(tables.groups, tables.counters, fragment, effect.told)
    return Merged(counters, groups), threshold


def _reduced(effect: CommitPanes, tables: Merged, reduces: ReduceFunction | None) -> Merged:
    """Panes after the reduce function; those that it fails on as they were."""
    groups, left = tables.groups, tuple[int, ...]()
    if groups is not None and effect.plain:
        left = tuple(pc.unique(groups["_pane"]).to_pylist())
    elif groups is not None:
        if reduces is None:
            raise ElfBug(f"flow {effect.flow.uid} has a reduce function, and nobody to run it")
        made, left = reduces(groups)
        groups = made if made.num_rows else None
    return Merged(_marked(tables.counters, left), groups)


def _staged(effect: CommitPanes, tables: Merged, stages: Stages | None) -> tuple[Merged, str]:
    """Panes after the later stages of the query that its root does; where these fail, without groups, and
    why."""
    if stages is None:
        raise ElfBug(f"flow {effect.flow.uid} has a stage, and nobody to run it")
    if tables.groups is None:
        return Merged(_marked(tables.counters, ()), None), ""
    panes = sorted(pc.unique(tables.groups["_pane"]).to_pylist())
    groups, left, why = _staged_alone(effect.flow.fragment, tables.groups, panes, stages)
    return Merged(_marked(tables.counters, left), groups), why


def _staged_alone(
    fragment: Fragment, groups: pa.Table, panes: Sequence[int], stages: Stages
) -> tuple[pa.Table | None, Sequence[int], str]:
    """What the stages make of these panes, the panes that are left out, and why the first is: one that they
    fail on takes nothing from the others, unless they fail ``FAILURES_MAX`` times."""
    made: list[pa.Table] = []
    left: list[int] = []
    why, failures, untold = "", 0, 0
    todo = [(groups, panes)]
    while todo:
        some, numbers = todo.pop()
        try:
            table = staged_panes(fragment, some, stages)
            made += [] if table is None else [table]
        except UserError as error:
            failures += 1
            if len(numbers) > 1 and failures < FAILURES_MAX:
                middle = numbers[len(numbers) // 2]
                before = pc.less(some["_pane"], middle)
                todo.append((some.filter(pc.invert(before)), [pane for pane in numbers if pane >= middle]))
                todo.append((some.filter(before), [pane for pane in numbers if pane < middle]))
                continue
            left += numbers
            untold += len(numbers) if len(numbers) > 1 else 0
            why = why or f"{error}{of_panes(fragment, numbers[0], numbers[-1] + 1)}"
    if untold:
        why += f"; it failed {failures} times, so {untold} other panes were left out without a try of each"
    return pa.concat_tables(made, promote_options="permissive") if made else None, left, why


def _marked(known: pa.Table | None, left: Sequence[int]) -> pa.Table | None:
    """Counters that say which panes are not reduced: in most key ranges there is no row of them yet."""
    known = COUNTER_SCHEMA.empty_table() if known is None else known
    states = (*COUNTER_STATES, UNREDUCED)
    none = {name: [0] * len(left) for name in COUNTER_SCHEMA.names} | {"_pane": left}
    tables = [
        table
        if UNREDUCED.name in table.column_names
        else table.append_column(UNREDUCED.name, pa.repeat(pa.scalar(flag, pa.int64()), table.num_rows))
        for flag, table in ((0, known), (1, pa.table(none, COUNTER_SCHEMA)))
    ]
    return merged_counters(tables, states)
