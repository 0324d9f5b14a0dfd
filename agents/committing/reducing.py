"""A user's reduce function over the groups of a pane, at the root of a key range: ``def reduce(batch)``.

A root has whole groups: no other range has rows of them. Each pane that has groups is one call, when its
commit is made; some of them come back, with values as they were or changed. What comes back is what the pane
is, for windows, for readers and for other jobs. The function is a part of the fragment, so that only jobs
with the same function share it, and a version with another one has flows of its own (protocol 6.5).

A revision is made of what was there *before* the function, which is kept with the commit, and goes through it
again: so it need not be that reduce(reduce(a) ∪ b) = reduce(a ∪ b), and the first rows of a pane are as good
a reduce function as a bound on values. The groups come in the order of their keys, and the process lives for
one commit: a pane does not depend on how its pieces came, or on which agent is root. Where a job group is a
group, a commit is a record before it is anything; so there is one of a pane, whoever leads, whatever the
function does.

A pane on which it fails is neither lost nor passed off as reduced: it is committed as it was, and its
counters says so (``UNREDUCED``), as do its windows (``function_failed``). The root does not try the function
again, and tells the masters of its readers, who go back to the version before it
(``elf.job.group.reconfiguration``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agents.tasks.direct import no_panes
from elf.aggregates import normalise
from elf.batch import decode
from elf.errors import ElfError
from elf.functions import wire
from elf.functions.function import MORE_BYTES_MAX, Done, Failed, conform
from elf.grouping import grouped
from elf.job.rollup.mirrors import flow_of
from elf.ql.plan import Fragment, Plan, Reduce

if TYPE_CHECKING:
    from agents.disk.store import Store
    from agents.tasks.streams import Running

TRIED_COMMITS: Final = 20
"""So many commits of a flow are looked through for groups, to try a function on."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ReduceFunction:
    """The function of one flow, for one commit; ``call``: what runs it. ``failure``: why it was taken out of
    the rest of the commit. Once the agent is ``stopping`` there is no commit."""

    def __init__(
        self,
        fragment: Fragment,
        reduce: Reduce,
        call: Callable[[pa.RecordBatch], Done | Failed],
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._fragment = fragment
        self._function = call
        self._stopping = stopping
        self._who = f"{reduce.function.filename}: reduce()"
        self._columns = [column for column, _ in reduce.columns]
        self._names = [name for _, name in reduce.columns]
        self._keys = [name for column, name in reduce.columns if column in fragment.keys]
        counts = {state.name for state in fragment.states if state.identity_zero}
        self._counts = [name for column, name in reduce.columns if column in counts]
        self._more = 0
        self.failure = ""

    def __call__(self, groups: pa.Table) -> tuple[pa.Table, tuple[int, ...]]:
        """(groups of panes, as the function makes them; the panes that are as they were)."""
        groups = _in_order(groups, self._fragment)
        panes, starts = np.unique(groups["_pane"].to_numpy(), return_index=True)
        ends = [*starts[1:], groups.num_rows]
        made, left = [], []
        for pane, start, end in zip(panes.tolist(), starts, ends, strict=True):
            if self._stopping():
                raise ElfError("the agent stops in the middle of a commit")
            whole = groups.slice(start, end - start)
            result = whole if self.failure else self.result(pane, whole)
            if isinstance(result, str):
                self.failure, result = result, whole
            if self.failure:
                left.append(pane)
            made.append(result)
        return pa.concat_tables(made), tuple(left)

    def result(self, pane: int, groups: pa.Table) -> pa.Table | str:
        """What it makes of the groups of a pane, or why there is nothing: file, line, row and pane."""
        batch = wire.one_batch(groups.select(self._columns).rename_columns(self._names))
        done = self._function(batch)
        if isinstance(done, Failed):
            at = f" at row {done.row}" if done.row is not None else ""
            kept = f"; its input is in {done.kept}" if done.kept is not None else ""
            return f"{done.text}{at}{self._of_pane(pane, groups)}{kept}"
        table = self._checked(done.batch, batch)
        if isinstance(table, str):
            return table + self._of_pane(pane, groups)
        self._more += max(0, table.nbytes - batch.nbytes)
        if self._more > MORE_BYTES_MAX:
            return (
                f"{self._who} gives {self._more} bytes more than it gets; at most {MORE_BYTES_MAX} are taken"
            )
        table = table.rename_columns(self._columns)
        table = table.append_column("_pane", pa.repeat(pa.scalar(pane, pa.int64()), table.num_rows))
        made = table.select(groups.column_names).cast(groups.schema)
        return normalise(made, self._fragment.keys, self._fragment.states)

    def _checked(self, given: pa.RecordBatch, batch: pa.RecordBatch) -> pa.Table | str:
        """Some of the groups of the batch, each at most once, with its columns in their types."""
        table = conform(self._who, given, batch.schema)
        if isinstance(table, str):
            return table
        nulls = [name for name in self._counts if table[name].null_count]
        if nulls:
            return f"{self._who} gives NULL in {nulls[0]}, which is a count"
        if not self._keys:
            more = table.num_rows > batch.num_rows
            return f"{self._who} gives {table.num_rows} rows for the one group" if more else table
        return self._others(table, pa.Table.from_batches([batch])) or table

    def _others(self, made: pa.Table, given: pa.Table) -> str:
        """Which group it gives twice, or was not given; empty if none."""
        places = [str(place) for place, _ in enumerate(self._keys)]
        tables = []
        for table, marks in ((made, (1, 0)), (given, (0, 1))):
            keys = normalise(table.select(self._keys), self._keys, ())
            marked = [pa.repeat(mark, table.num_rows) for mark in marks]
            tables.append(pa.table([*keys.columns, *marked], [*places, "made", "given"]))
        sums = {"made": ("made", "sum"), "given": ("given", "sum")}
        counted = grouped(pa.concat_tables(tables), places, sums)
        more = pc.greater(counted["made"], counted["given"])
        for row in counted.filter(more).slice(0, 1).to_pylist():
            pairs = zip(self._keys, places, strict=True)
            group = ", ".join(f"{key} = {row[place]!r}" for key, place in pairs)
            how = "twice" if row["given"] else "that it was not given"
            return (
                f"{self._who} gives a group {how} ({group}): it may leave groups out and change their values"
            )
        return ""

    def _of_pane(self, pane: int, groups: pa.Table) -> str:
        if not groups.num_rows:
            return " on a pane without groups"
        return of_panes(self._fragment, pane, pane + 1)


def of_panes(fragment: Fragment, start: int, end: int) -> str:
    """Which panes, at the end of what is said of them."""
    if not fragment.pane_us:
        return ""
    begins, ends = (_EPOCH + timedelta(microseconds=n * fragment.pane_us) for n in (start, end))
    place, count = fragment.range
    which = f"the pane{'s' if end - start > 1 else ''}"
    of = f", key range {place + 1} of {count}" if count > 1 else ""
    return f" of {which} from {begins:%Y-%m-%d %H:%M:%S} to {ends:%Y-%m-%d %H:%M:%S}{of}"


@contextlib.contextmanager
def reducing(
    fragment: Fragment, at: Running, stopping: Callable[[], bool] = lambda: False
) -> Iterator[ReduceFunction | None]:
    """The function of a fragment in a process of its own, which ends with the block; None if it has none."""
    if fragment.reduce is None:
        yield None
        return
    with at.running(fragment.reduce.function) as call:
        yield ReduceFunction(fragment, fragment.reduce, call, stopping)


def why_not(plan: Plan, flows: Iterable[str], store: Store, at: Running) -> str:
    """Why a job cannot have the plan's reduce function; empty if it can. It is tried on the last groups that
    ``flows`` (uids, of the same groups) have here, or on none in the right columns."""
    if plan.fragment.reduce is None:
        return ""
    with reducing(plan.fragment, at) as function:
        result = function.result(*_sample(plan.fragment, frozenset(flows), store)) if function else ""
    return result if isinstance(result, str) else ""


def _in_order(groups: pa.Table, fragment: Fragment) -> pa.Table:
    return groups.sort_by([(key, "ascending") for key in ("_pane", *fragment.keys)]).combine_chunks()


def _sample(fragment: Fragment, flows: frozenset[str], store: Store) -> tuple[int, pa.Table]:
    """(Pane, its groups.)"""
    empty = no_panes(fragment)
    found: list[tuple[int, pa.Table]] = [(0, empty)]
    for name in (name for name in store.flows() if flow_of(name) in flows):
        for commit in store.committed(name)[: -TRIED_COMMITS - 1 : -1]:
            row = store.committed_as(name, commit.start, commit.end, commit.revision)
            groups = decode(row.payload) if row is not None and row.payload else empty
            groups = groups.select([one for one in empty.column_names if one in groups.column_names])
            if groups.num_rows and groups.schema.equals(empty.schema):
                pane = pc.max(groups["_pane"]).as_py()
                found.append((pane, _in_order(groups.filter(pc.equal(groups["_pane"], pane)), fragment)))
                break
    return max(found, key=lambda one: (one[1].num_rows > 0, one[0]))
