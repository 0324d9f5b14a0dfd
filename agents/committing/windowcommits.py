"""The long work of masters, on threads: assemble windows of committed panes, finish them, commit them.

What is committed once stays as it is: a repeated effect (after a crash, or by the next leader) answers with
what the store has. What is kept of the windows before (``agents.committing.kept``) decides nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa

from agents.committing.committed import Committed
from agents.committing.finals import FinalFunction, flagged
from agents.committing.kept import Contents, Kept, PaneRange, alike, bounded, reached
from agents.committing.panetables import (
    NOTHING_KNOWN,
    Known,
    check_covered,
    committed_counters,
    joined,
    latest,
    merged,
    opened_counters,
    opened_groups,
)
from agents.committing.promised import Moment, stamped
from agents.committing.sides import Flows, flows_of_sides, is_of, met, staged
from agents.committing.spans import (
    Span,
    by_span,
    changed,
    has_portions,
    micros,
    portion,
    rows_of,
    spans_of,
    touched,
    without,
)
from agents.committing.status import status_of_all, status_of_skipped, status_of_windows
from agents.disk.store import Store
from elf.aggregates import identity_row
from elf.batch import decode, encode
from elf.errors import ElfBug, PanesGone
from elf.functions.cpu import cpu_us
from elf.job.approximate import with_bounds
from elf.job.commits import UNNUMBERED, PaneCommitName, PanesUsed, WindowCommit
from elf.job.contributions import Piece, to_bytes
from elf.job.counters import completed
from elf.job.effects import CommitWindows, Coverage, ReadWindows
from elf.job.events import WindowsCommitted, WindowsRead
from elf.job.gaps import gaps_alone, gaps_of
from elf.job.messages.groups import PastWindow, PastWindows, ReadPast
from elf.job.ports import FinisherPort
from elf.job.spec import END_OF_TIME, START_OF_TIME, JobSpec
from elf.ql.plan import Fragment, Plan, RangeStage, Stage, StreamJoin
from elf.wire.clients import WindowResult

Treat = Callable[[pa.Table, pa.Table], tuple[pa.Table, pa.Table]]
"""What is done to (status, rows) of windows before they are committed (``agents.committing.finals``)."""


def commit_windows(
    effect: CommitWindows,
    store: Store,
    finisher: FinisherPort,
    master: str,
    kept: Kept | None = None,
    at: Moment | None = None,
) -> WindowsCommitted:
    """Assemble the windows that end in ``(first_us, last_us]``, run the final fragment, and commit them; of
    many that are complete at once the first ones, as what is done says. ``at``: when they are committed.
    """
    began = cpu_us()
    if has_portions(effect):
        needs = bounded(effect.calendar.needs_from(effect.first_us), effect.calendar.pane_us)
        effect = portion(effect, pieces_of(effect, store, needs, END_OF_TIME))
    row, new = made_windows(effect, store, finisher, kept, at=at)
    if new:
        row = msgspec.structs.replace(row, seq=store.commit_windows(row))
    result = published(effect, row, master)
    count, took = decode(row.rows).num_rows, cpu_us() - began
    return WindowsCommitted(effect, result, count, took, aggregate_failure=finisher.failure)


def drafted_windows(
    work: CommitWindows,
    committed: Committed,
    finisher: FinisherPort,
    master: str,
    kept: Kept | None = None,
    final: FinalFunction | None = None,
    known: Known = NOTHING_KNOWN,
    at: Moment | None = None,
) -> tuple[WindowCommit | None, WindowsCommitted]:
    """The work of a replicated job group's commit, but for the commit: what is to be committed, and what is
    said then; None where it is committed, or its panes are gone. ``final``: the final function of the
    version; ``known``: panes that need not be opened; ``at``: when it is committed."""
    began = cpu_us()
    try:
        row, new = made_windows(work, committed, finisher, kept, final, known, at)
    except PanesGone:
        return None, WindowsCommitted(work, None, gone=True)
    result = published(work, row, master)
    failure = "" if final is None else final.failure
    count, took = decode(row.rows).num_rows, cpu_us() - began
    done = WindowsCommitted(work, result, count, took, failure, finisher.failure)
    return row if new else None, done


def published(effect: CommitWindows, row: WindowCommit, master: str) -> WindowResult | None:
    """What is published of a commit; None if it is of no windows."""
    if not effect.final and not row.seq:
        return None
    return window_result(effect.spec.name, row, master, final=effect.final)


def made_windows(
    effect: CommitWindows,
    store: Committed,
    finisher: FinisherPort,
    kept: Kept | None = None,
    treat: Treat | None = None,
    known: Known = NOTHING_KNOWN,
    at: Moment | None = None,
) -> tuple[WindowCommit, bool]:
    """Windows to be committed; or, as (row, False), as they are committed already. ``treat``: the final
    function of the version, which is not called for those; ``at``: when windows that are made now are
    committed.

    What is ``kept`` of the windows before spares reading and merging their panes again; it decides nothing.
    Windows that are made again after a revision are made of their panes, beside what is kept. What an equal
    job has had made is not made again.
    """
    kept = Kept() if kept is None or effect.revised is not None else kept
    finisher.begin()
    key = alike(effect)
    contents, names = kept.made(key), list[PaneCommitName]()
    if contents is None:
        names = names_of(effect, store)
        check_there(effect, names)
    revision = sum(name.revision > 0 for name in names) if contents is None else contents.revision
    row = _stored(effect, store, revision)
    if row is not None:
        return row, False
    if contents is None:
        status, rows = _assemble(effect, names, store, finisher, kept, known)
        if finisher.failure:
            status = flagged(status, finisher.failed)
        status, rows = treated(effect.spec, status, rows, treat)
        empty = not status.num_rows and not rows.num_rows
        contents = Contents(revision, encode(status), encode(rows), empty, finisher.failure)
        kept.remember(key, contents)
    finisher.failure = contents.failure
    said = contents.status
    if effect.spec.plan.promise is not None:  # of this job and this moment, whoever made the windows
        said = encode(stamped(effect, decode(said), at))
    made = WindowCommit(
        effect.spec.uid,
        effect.first_us,
        effect.last_us,
        revision,
        effect.spec.version,
        False,
        said,
        contents.rows,
        panes_used(effect.coverage),
        0 if contents.empty else UNNUMBERED,
    )
    return made, True


def remade(effect: CommitWindows, store: Committed, finisher: FinisherPort, kept: Kept) -> None:
    """Windows that are committed made once more, so that the next ones go on from what is kept then. Raises
    ``PanesGone``."""
    names = names_of(effect, store)
    check_there(effect, names)
    _assemble(effect, names, store, finisher, kept, NOTHING_KNOWN)


def panes_used(coverage: Sequence[Coverage]) -> bytes:
    """What is committed with windows of the panes that they are made of."""
    used = (
        PanesUsed(
            one.flow,
            one.start,
            one.end,
            one.revision,
            to_bytes(one.reported),
            one.lost,
            tuple(sorted(one.parts)),
        )
        for one in coverage
    )
    return msgspec.msgpack.encode(tuple(used))


def treated(
    spec: JobSpec, status: pa.Table, rows: pa.Table, treat: Treat | None
) -> tuple[pa.Table, pa.Table]:
    """(status, rows) of windows, as the job's final function makes them, if it has one."""
    if spec.plan.final is None:
        return status, rows
    if treat is None:
        raise ElfBug(f"job {spec.name} has a final function, and nobody to run it")
    return treat(status, rows)


def windows_again(effect: ReadWindows, store: Store, master: str) -> WindowsRead:
    """Committed windows, as they were published; those after a number each with that of the one before."""
    uid, name = effect.spec.uid, effect.spec.name
    if isinstance(effect.request, ReadPast):
        past = past_windows(effect.request, name, store, master)
        return WindowsRead(effect.request, (), msgspec.msgpack.encode(past))
    if effect.after is None:
        rows = store.last_windows(uid, effect.count) if effect.count else []
        return WindowsRead(effect.request, tuple(window_result(name, row, master) for row in rows))
    rows = store.windows_after(uid, effect.after)
    numbers = (effect.after, *(row.seq for row in rows))
    found = (
        msgspec.structs.replace(window_result(name, row, master), before=before)
        for before, row in zip(numbers, rows, strict=False)
    )
    return WindowsRead(effect.request, tuple(found))


def past_windows(asked: ReadPast, name: str, store: Store, master: str) -> PastWindows:
    """Committed windows of some time, in the order of their commits."""
    kept, more = store.windows_within(asked.uid, asked.from_us, asked.to_us, asked.after, asked.bytes_max)
    found = []
    for row in kept:
        result = window_result(name, row, master)
        if not asked.rows:
            result = msgspec.structs.replace(result, payload=b"")
        found.append(PastWindow(result, row.panes_used if asked.panes else b""))
    return PastWindows(tuple(found), more, store.first_window(asked.uid))


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
        number=max(0, row.seq),
        before=max(0, row.seq - 1),
    )


def _stored(effect: CommitWindows, store: Committed, revision: int) -> WindowCommit | None:
    rows = store.windows(effect.spec.uid, effect.first_us - 1, effect.last_us + 1)
    version = effect.spec.version
    same = [r for r in rows if (r.first_start, r.last_end) == (effect.first_us, effect.last_us)]
    same = [r for r in same if r.version == version]
    return next((r for r in same if r.revision == revision), None)


def names_of(effect: CommitWindows, store: Committed) -> list[PaneCommitName]:
    """The pane commits that the effect speaks of: none that was made after it."""
    found: dict[PaneRange, PaneCommitName] = {}
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
    for part in effect.coverage:
        if not part.lost:
            check_covered(part.flow, known[part.flow, part.revision], part.start, part.end)


def pieces_of(
    effect: CommitWindows, store: Committed, start: int, end: int, flows: Flows = None
) -> list[Piece]:
    """The committed panes of ``[start, end)`` (of these flows), as they were when the effect was made: those
    of one flow are disjoint.
    """
    found: list[Piece] = []
    for part in effect.coverage:
        begin, stop = max(part.start, start), min(part.end, end)
        if begin < stop and not part.lost and is_of(part.flow, flows):
            rows = store.pane_commits(part.flow, begin, stop)
            found += latest((row for row in rows if row.revision <= part.revision), begin, stop)
    return found


def _assemble(
    effect: CommitWindows,
    names: Sequence[PaneCommitName],
    store: Committed,
    finisher: FinisherPort,
    kept: Kept,
    known: Known,
) -> tuple[pa.Table, pa.Table]:
    """(status, rows) of the windows."""
    plan = effect.spec.plan
    if effect.skipped_to is not None:
        return status_of_skipped(effect, effect.skipped_to), pa.table({})
    if not plan.windows:
        pieces = pieces_of(effect, store, START_OF_TIME, END_OF_TIME)
        opened = opened_counters(pieces)
        counts = merged(opened, (), committed_counters(plan.fragment))
        tables = opened_groups(pieces)
        if plan.join is not None:
            tables = [met(plan.join, joined(tables), (START_OF_TIME, END_OF_TIME), finisher)]
        groups = merged(tables, plan.made.keys, plan.made.states)
        rows = finisher.run(groups) if groups is not None else _no_rows(effect, finisher)
        return status_of_all(effect, names, counts, gaps_of(opened)), with_bounds(rows, counts, plan)
    pane_us = plan.fragment.pane_us
    assembly, from_us = kept.resume(effect, finisher)
    start, end = bounded(from_us, pane_us), bounded(effect.last_us, pane_us)
    panes: list[pa.Table | None] = []
    counter_tables: list[pa.Table | None] = []
    reach = reached(effect, from_us, effect.last_us)
    for number, (side, flows, counted) in enumerate(flows_of_sides(effect.spec)):
        own = finisher.side(number) if number else finisher
        pieces = pieces_of(effect, store, *reach, flows)
        panes.append(
            staged(side, _made_of(side, pieces, (start, end), own, known), from_us, effect.last_us, own)
        )
        if counted != flows or reach != (start, end):
            # What panes lack that are not counted is told all the same.
            counter_tables += [completed(gaps_alone(table)) for table in opened_counters(pieces)]
        if counted != flows:
            pieces = pieces_of(effect, store, start, end, counted)
        counter_tables += opened_counters((piece.clip(start, end) for piece in pieces), known)
    rows = assembly.rows(effect.first_us, effect.last_us, panes, finisher)
    held, _ = reached(effect, effect.calendar.needs_from(effect.first_us), effect.last_us)
    counters = kept.count(joined(counter_tables), held, start)
    kept.keep(assembly, effect, finisher)
    rows = with_bounds(rows, counters, plan)
    calendar = assembly.calendar
    if effect.revised is None:
        spans = spans_of(effect, calendar, counters, rows)
    elif calendar.session is None:
        spans = touched(spans_of(effect, calendar, counters, rows), effect.revised, pane_us, plan.reach)
        rows = rows_of(rows, spans)
    else:
        spans = changed(rows, _published(effect, store))
        rows = rows_of(rows, spans)
    status = status_of_windows(effect, spans, names, counters)
    return status, _without_skipped(rows, status)


def _made_of(
    side: Plan, pieces: Sequence[Piece], panes: tuple[int, int], finisher: FinisherPort, known: Known
) -> pa.Table | None:
    """The panes ``[start, end)`` that windows of a side are made of."""
    tables = opened_groups(pieces, known)
    if side.join is not None:
        return met(side.join, joined(tables), panes, finisher)
    committed, stage = side.committed, side.fragment.stage
    if side.more or (stage is not None and not stage.disjoint):
        # A group may have rows in several streams, and is in one key range; or in several ranges.
        return merged(tables, ("_pane", *committed.keys), committed.states)
    return joined(tables)


def _without_skipped(rows: pa.Table, status: pa.Table) -> pa.Table:
    """A window that lacks panes has no rows."""
    skipped = set(by_span(status.filter(status["skipped"])))
    return without(rows, skipped) if skipped else rows


def _published(effect: CommitWindows, store: Committed) -> dict[Span, tuple[int, pa.Table]]:
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


def _no_rows(effect: CommitWindows, finisher: FinisherPort) -> pa.Table:
    """Over no rows at all and without a window: what the final fragment makes of no groups, as SQL has it. A
    global aggregate has one row, and so has an empty grouping set, or either over a subquery's groups.
    """
    from agents.tasks.engine import no_groups  # DuckDB, as in agents.tasks.streams

    made = effect.spec.plan.made
    groups = no_groups(effect.spec.plan).drop_columns(["window_start", "window_end"])
    grouped = len(made.keys) > len(made.cells)
    return finisher.run(groups if grouped else one_without_rows(groups.schema, made))


def one_without_rows(schema: pa.Schema, made: Fragment | RangeStage | StreamJoin | Stage) -> pa.Table:
    """The one group that there is without keys, in its types: statements don't take a NULL of no type for a
    time."""
    row = identity_row(schema, made.states)
    for cell in made.cells:
        row = row.append_column(cell, pa.nulls(1, schema.field(cell).type))
    return row
